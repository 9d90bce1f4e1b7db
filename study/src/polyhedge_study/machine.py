"""What made the results: the machine, the versions of the packages that matter, and the source."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import polyhedge
from polyhedge_study.inside import versions

__all__ = ["environment", "source_fingerprint"]

_PACKAGES = (
    *("polyhedge", "numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel"),
    *("pyscipopt", "gurobipy", "jax", "optax"),
)


def environment() -> dict[str, Any]:
    """The machine and the versions of the packages that matter.

    Examples
    --------
    >>> sorted(environment())
    ['cores', 'packages', 'platform', 'processor', 'python']
    """
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions(_PACKAGES),
    }


def source_fingerprint() -> str:
    """Twelve digits that change with any source or data file of the library or the study.

    Examples
    --------
    >>> len(source_fingerprint())
    12
    """
    digest = hashlib.sha256()
    for package in (polyhedge.__file__, __file__):
        root = Path(package).resolve().parent
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".csv")):
            digest.update(str(path.relative_to(root.parent)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
