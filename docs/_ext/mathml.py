"""Formulas as MathML, which every browser reads: the site needs no script from elsewhere."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

_LARGE = re.compile(r"\\[Bb]igg?[lrm]?(?=\\[{}])")
_IN_TEXT = re.compile(r"(\\text\{[^{}]*)\\_")


def to_mathml(formula: str, display: str = "inline") -> str:
    r"""The formula as MathML; the converter knows neither large braces nor an escaped underscore in a text.

    >>> shown = to_mathml(r"\inf\Big\{r : r \ge 2^{\text{half\_life}}\Big\}")
    >>> chr(92) in shown, "half_life" in shown
    (False, True)
    """
    return convert(_IN_TEXT.sub(r"\1_", _LARGE.sub("", formula)), display=display)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(to_mathml(node.astext()))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{to_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
