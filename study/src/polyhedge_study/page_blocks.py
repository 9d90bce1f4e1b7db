"""Blocks of the study's page that the library's own pages do not need: headings, pictures from files and charts."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhedge.app.report.page import escaped, inline

__all__ = ["Chart", "Heading", "Picture", "plotly_library"]


@dataclass(frozen=True)
class Heading:
    """A heading within a section, the `text`."""

    text: str

    def html(self) -> str:
        """A heading below those of the sections."""
        return f"<h3>{inline(self.text)}</h3>"


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
        # NaN is not JSON, and a closing tag inside a string would end the script.
        text = json.dumps(_finite({"data": list(self.data), "layout": dict(self.layout)}), allow_nan=False)
        text = text.replace("<", "\\u003c")
        return (
            f'<figure><div class="chart" id="{escaped(self.name)}" data-source="{escaped(self.name)}-data" '
            f'role="img" aria-label="{escaped(self.caption)}"></div><figcaption>{inline(self.caption)}</figcaption>'
            f'<script type="application/json" id="{escaped(self.name)}-data">{text}</script></figure>'
        )


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
