"""List the licences of everything that an installation of polyhedge brings; `make licences`.

Fails on a licence that is unknown or of the GPL family: the GPL and AGPL would bind whoever ships a program with
polyhedge in it, and the LGPL asks for things that few check. Wheels with compiled code also carry the run-time
libraries of their compiler (libgfortran, libgomp, libquadmath) under its run-time exception or the LGPL; these are the
compiler's, not a package of their own, and no package can do without them.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOOLS = {"dev", "docs", "test"}
"""Extras for who works on polyhedge itself, its site included; nobody installs them at run time."""

FAMILY = re.compile(r"\b[AL]?GPL|GNU (Affero|Lesser|Library|General)", flags=re.IGNORECASE)
EXCEPTION = re.compile(r"WITH (GCC-exception|Classpath-exception)\S*", flags=re.IGNORECASE)
TITLES = ("MIT License", "BSD 3-Clause License", "Apache License", "ISC License")


def brought(extra: str = "") -> set[str]:
    """Names of all packages here that `pip install polyhedge[extra]` brings, directly or not."""
    seen: set[tuple[str, str]] = set()
    waiting = [("polyhedge", extra)]
    while waiting:
        package, extra = waiting.pop()
        for requirement in map(Requirement, metadata.requires(package) or []):
            name = canonicalize_name(requirement.name)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            more = {(name, asked) for asked in {"", *requirement.extras}} - seen
            if wanted and is_installed(name):
                seen |= more
                waiting += more
    return {name for name, _ in seen} - {"polyhedge"}


def is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def licence(package: str) -> str:
    """What a package says of its licence: expression, classifiers, a line of text, or the title of its file."""
    facts = metadata.metadata(package)
    classified = [
        text.rpartition(" :: ")[2] for text in facts.get_all("Classifier") or [] if text.startswith("License ::")
    ]
    named = ", ".join(name for name in classified if name != "OSI Approved")
    text = (facts.get("License") or "").strip()
    return facts.get("License-Expression") or named or ("" if "\n" in text else text) or title(package)


def title(package: str) -> str:
    """The name of a licence at the head of the licence file, or "unknown"."""
    for path in metadata.files(package) or []:
        if path.stem.upper() in ("LICENSE", "LICENCE", "COPYING"):
            head = path.read_text(encoding="utf-8")[:200]
            return next((name for name in TITLES if name in head), "unknown")
    return "unknown"


def is_refused(text: str) -> bool:
    """Whether a licence is unknown, or leaves no choice but one of the GPL family.

    Examples
    --------
    >>> [is_refused(text) for text in ("MIT", "MIT OR GPL-2.0-only", "BSD-3-Clause AND GPL-3.0-only", "unknown")]
    [False, False, True, True]
    """
    choices = re.split(r"\bOR\b", text)
    return all(choice.strip() in ("", "unknown") or is_gpl(choice) for choice in choices)


def is_gpl(text: str) -> bool:
    parts = re.split(r"\bAND\b", text)
    return any(FAMILY.search(part) and not EXCEPTION.search(part) for part in parts)


def listed() -> dict[str, tuple[str, str, str]]:
    """Version, licence and the installations that bring it, for each package."""
    extras = [name for name in metadata.metadata("polyhedge").get_all("Provides-Extra") or [] if name not in TOOLS]
    core = brought()
    by_extra = {extra: brought(extra) - core for extra in extras}
    rows = {}
    for name in sorted(core.union(*by_extra.values())):
        who = "polyhedge" if name in core else ", ".join(f"[{e}]" for e, names in by_extra.items() if name in names)
        rows[name] = (metadata.version(name), licence(name), who)
    return rows


def main() -> int:
    rows = listed()
    for name, (version, text, who) in rows.items():
        print(f"{name:20} {version:16} {text:50} {who}")
    refused = [name for name, (_, text, _) in rows.items() if is_refused(text)]
    print(
        f"{len(rows)} packages, "
        + (f"refused: {', '.join(refused)}" if refused else "none under the GPL, AGPL or LGPL")
    )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
