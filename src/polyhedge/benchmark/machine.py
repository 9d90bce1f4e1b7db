"""What made the results: the machine, the versions of the packages that matter, and the source."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

from polyhedge._versions import versions

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
    """Twelve digits that change with any source or data file of the package.

    Examples
    --------
    >>> len(source_fingerprint())
    12
    """
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".csv")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
