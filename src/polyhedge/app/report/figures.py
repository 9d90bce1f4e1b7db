"""Pictures and charts inside a page: no file beside it, no library from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from polyhedge.app.report.blocks import Block, escaped, inline

__all__ = ["Chart", "Drawing", "Figures", "Picture", "as_svg", "plotly_library", "settings_for_pages"]

# Colours that stand for the page's own: a picture takes the ink and paper of the mode it is read in.
INK, PAPER = "#0b0c0d", "#f9fafb"


@contextmanager
def settings_for_pages() -> Iterator[None]:
    """Inside, matplotlib draws in colours that `as_svg` replaces by those of the page."""
    from matplotlib import rc_context

    settings = {
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.facecolor": PAPER,
        "legend.edgecolor": "none",
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        # Words stay words: they can be searched and read aloud, and the file is a tenth of the size.
        "svg.fonttype": "none",
        "font.family": "sans-serif",
    }
    with rc_context(settings):
        yield


def as_svg(figure: Any) -> str:
    """A matplotlib figure as an SVG element, the same bytes for the same figure."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "page"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return clean_svg(buffer.getvalue())


def clean_svg(text: str) -> str:
    """The bare element of an SVG file, in the page's colours; comments, metadata and namespaces are left out."""
    text = text[text.index("<svg") : text.rindex("</svg>") + len("</svg>")]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->|<script.*?</script>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    return text.replace(INK, "currentColor").replace(PAPER, "var(--panel)")


@dataclass(frozen=True)
class Drawing:
    """A vector picture with a `caption`. `svg` is an SVG element, as from `as_svg`."""

    svg: str
    caption: str

    def html(self) -> str:
        """The element itself, so that it takes the page's colours; the caption is read aloud in its place."""
        svg = _own_names(self.svg, f"d{hashlib.sha256(self.svg.encode()).hexdigest()[:8]}-")
        svg = re.sub(r"<svg ", f'<svg role="img" aria-label="{escaped(self.caption)}" ', svg, count=1)
        return f"<figure>{svg}<figcaption>{inline(self.caption)}</figcaption></figure>"


def _own_names(svg: str, prefix: str) -> str:
    """Names inside one picture must not meet those of another on the same page."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)


@dataclass(frozen=True)
class Picture:
    """A picture from a file with a caption, stored in the page.

    Attributes
    ----------
    data : the bytes of the file.
    caption : what it shows.
    kind : "png" or "svg+xml".
    wide : scrolls sideways on a phone instead of shrinking to a stamp.
    """

    data: bytes
    caption: str
    kind: str = "png"
    wide: bool = False

    def html(self) -> str:
        """An image whose bytes are part of the page; as an image, an SVG file can run no script."""
        data = base64.b64encode(self.data).decode()
        image = f'<img alt="{escaped(self.caption)}" src="data:image/{self.kind};base64,{data}">'
        if self.wide:
            label = escaped(self.caption)
            image = f'<div class="scroll sheet" tabindex="0" role="region" aria-label="{label}">{image}</div>'
        return f"<figure>{image}<figcaption>{inline(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Figures:
    """Pictures, the `items`, side by side where there is room."""

    items: Sequence[Block]

    def html(self) -> str:
        """A grid that folds to one column on a phone."""
        return f'<div class="figures">{"".join(item.html() for item in self.items)}</div>'


@dataclass(frozen=True)
class Chart:
    """A chart to hover over and zoom, drawn by Plotly.

    Attributes
    ----------
    name : of the element; unique on the page.
    data, layout : what Plotly calls so; colours of text and grid come from the page.
    caption : what it shows.
    """

    name: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    caption: str

    def html(self) -> str:
        """An empty box and the numbers; the page's script draws."""
        return (
            f'<figure><div class="chart" id="{escaped(self.name)}" data-source="{escaped(self.name)}-data" '
            f'role="img" aria-label="{escaped(self.caption)}"></div><figcaption>{inline(self.caption)}</figcaption>'
            f'<script type="application/json" id="{escaped(self.name)}-data">{self._json}</script></figure>'
        )

    @cached_property
    def _json(self) -> str:
        # NaN is not JSON, and a closing tag inside a string would end the script.
        text = json.dumps(_finite({"data": list(self.data), "layout": dict(self.layout)}), allow_nan=False)
        return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def plotly_library() -> str | None:
    """The script of Plotly, or None where the package is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    return str(get_plotlyjs()).replace("</script", "<\\/script")
