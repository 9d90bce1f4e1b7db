"""Docstrings write `name : what it is` where a sentence says all; numpydoc would take that sentence for a type."""

import re
from itertools import pairwise
from typing import Any

from sphinx.application import Sphinx

_SECTIONS = ("Attributes", "Parameters", "Other Parameters", "Returns")
_ENTRY = re.compile(r"(\S.*?) : (.+)")


def described(lines: list[str]) -> list[str]:
    """The lines with sentences below their names; an entry with a type and a text of its own stays.

    >>> described(["Attributes", "----------", "z : the decisions.", "r : float", "    Its size."])
    ['Attributes', '----------', 'z', '    The decisions.', 'r : float', '    Its size.']
    """
    found: list[str] = []
    section = ""
    for line, below in pairwise([*lines, ""]):
        if below and set(below.strip()) == {"-"}:
            section = line.strip()
        entry = _ENTRY.fullmatch(line) if section in _SECTIONS else None
        if entry and _is_sentence(entry[2], below):
            found += [entry[1], f"    {entry[2][0].upper()}{entry[2][1:]}"]
        else:
            found.append(line)
    return found


def _is_sentence(text: str, below: str) -> bool:
    goes_on = below.startswith(" ") and below.strip()[:1].islower()
    return text.endswith((".", ",")) or goes_on or ". " in text or "; " in text


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = described(lines)


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What `fit` leaves behind stands in the list of attributes already."""
    return True if isinstance(obj, property) and name.endswith("_") and not name.startswith("_") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Before numpydoc reads the docstrings."""
    app.connect("autodoc-process-docstring", _process, priority=90)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
