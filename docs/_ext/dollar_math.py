"""Docstrings write formulas as $...$ and $$...$$, names as `name`; here they become what Sphinx understands."""

import re
from typing import Any

from sphinx.application import Sphinx

_DISPLAY = re.compile(r"^([ ]*)\$\$(.+?)\$\$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"""
    (?P<kept>``.*?`` | :[\w:]+:`[^`]*` | `[^`]*`__?)   # literals, roles and links
    | \$(?P<formula>[^$\s](?:[^$]*[^$\s])?)\$
    | `(?P<name>[^`]+)`
    """, re.DOTALL | re.VERBOSE)  # fmt: skip
_EXAMPLE = re.compile(r"(^[ ]*>>> .*(?:\n(?!\s*$).*)*)", re.MULTILINE)


def to_sphinx(text: str) -> str:
    """The text with formulas as math and names as literals; what is one already stays.

    >>> to_sphinx("the radius `r` of $e < r$, ``kept``")
    'the radius ``r`` of :math:`e < r`, ``kept``'
    """
    return _INLINE.sub(_inline, _DISPLAY.sub(_display, text))


def _display(found: re.Match[str]) -> str:
    return f"\n\n{found[1]}.. math:: {_on_one_line(found[2])}\n\n{found[1]}"


def _inline(found: re.Match[str]) -> str:
    if found["kept"]:
        return found["kept"]
    return f":math:`{_on_one_line(found['formula'])}`" if found["formula"] else f"``{_on_one_line(found['name'])}``"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    pieces = _EXAMPLE.split("\n".join(lines))
    lines[:] = "".join(piece if k % 2 else to_sphinx(piece) for k, piece in enumerate(pieces)).split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Docstrings are translated before numpydoc reads them."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
