"""One page in one file: it works offline, on a phone, in the dark and on paper.

A page is made of blocks: words, cards, facts, code, sortable tables, pictures and charts. All text is escaped; `code`
in backticks is set as code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import groupby
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from polyhedge._support.files import replace_file
from polyhedge._support.text import printable


class Block(Protocol):
    """Anything that can stand on a page."""

    def html(self) -> str:
        """The block as HTML, with all text escaped."""


def escaped(text: str) -> str:
    """Text that is no markup, and no command of a terminal either, should somebody print the page there."""
    return html.escape("\n".join(map(printable, text.split("\n"))))


def inline(text: str) -> str:
    """Text as HTML: escaped, with `code` in backticks; a number and its percent sign stay on one line.

    Examples
    --------
    >>> inline("a < b, run `make`")
    'a &lt; b, run <code>make</code>'
    """
    text = re.sub(r"(?<=\d) (?=%)", "\u00a0", escaped(text))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


@dataclass(frozen=True)
class Text:
    """A paragraph of `text`."""

    text: str

    def html(self) -> str:
        """A paragraph."""
        return f"<p>{inline(self.text)}</p>"


@dataclass(frozen=True)
class Heading:
    """A heading within a section, the `text`."""

    text: str

    def html(self) -> str:
        """A heading below those of the sections."""
        return f"<h3>{inline(self.text)}</h3>"


@dataclass(frozen=True)
class Points:
    """A list of sentences, the `items`."""

    items: Sequence[str]

    def html(self) -> str:
        """A list."""
        return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in self.items)}</ul>"


@dataclass(frozen=True)
class Note:
    """A sentence, the `text`, in a box; a `warning` stands out."""

    text: str
    warning: bool = False

    def html(self) -> str:
        """A box; screen readers hear that it is a warning."""
        kind, word = ("note warning", "Warning: ") if self.warning else ("note", "")
        return f'<div class="{kind}" role="note"><p><strong>{word}</strong>{inline(self.text)}</p></div>'


@dataclass(frozen=True)
class Missing:
    """A part that is not there: `what` is missing, and the `command` that makes it."""

    what: str
    command: str

    def html(self) -> str:
        """A line in soft ink."""
        return f'<p class="missing">{inline(self.what)} Make it with <code>{escaped(self.command)}</code>.</p>'


@dataclass(frozen=True)
class Code:
    """Commands or a program, the `text` as it is typed."""

    text: str

    def html(self) -> str:
        """Preformatted text."""
        return f"<pre><code>{escaped(self.text)}</code></pre>"


@dataclass(frozen=True)
class Facts:
    """Names and what they are, the `items`."""

    items: Mapping[str, str]

    def html(self) -> str:
        """A list of descriptions."""
        pairs = (f"<dt>{inline(name)}</dt><dd>{inline(value)}</dd>" for name, value in self.items.items())
        return f"<dl>{''.join(pairs)}</dl>"


@dataclass(frozen=True)
class Card:
    """One figure that matters: its `name`, its `value` and a line with `more` about it."""

    name: str
    value: str
    more: str = ""


@dataclass(frozen=True)
class Cards:
    """Figures side by side, the `items`."""

    items: Sequence[Card]

    def html(self) -> str:
        """A grid that folds to one column on a phone."""
        return f'<div class="cards">{"".join(map(_card, self.items))}</div>'


def _card(card: Card) -> str:
    more = f'<p class="more">{inline(card.more)}</p>' if card.more else ""
    name, value = f'<p class="name">{inline(card.name)}</p>', f'<p class="value">{inline(card.value)}</p>'
    return f'<div class="card">{name}{value}{more}</div>'


# Tables


# Tables of more columns are set smaller on paper.
_WIDE = 10


@dataclass(frozen=True)
class Column:
    """A column: its `head`, the `group` of columns it belongs to, and whether its cells are words (`is_text`)."""

    head: str
    group: str = ""
    is_text: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: what is read, what it is sorted by, and whether it is the best of its column.

    Attributes
    ----------
    text : what is read.
    value : what it is sorted by; None sorts by the text, NaN stays last.
    best : set in bold.
    detail : a smaller addition, such as a standard error.
    """

    text: str
    value: float | None = None
    best: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """A sortable table; the first column heads the rows.

    Attributes
    ----------
    title : what it shows, also for screen readers.
    columns, rows : the first cell of a row names it.
    note : a line below.
    sortable : whether a click sorts; rows that explain each other must stay together.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    sortable: bool = True

    def __post_init__(self) -> None:
        for position, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Row {position} of the table {self.title!r} must have {len(self.columns)} cells, got {len(row)}."
                )

    def html(self) -> str:
        """The table in a box of its own that scrolls where it is too wide."""
        starts = _starts(self.columns)
        body = "".join(_row(row, self.columns, starts) for row in self.rows)
        note = f'<p class="under">{inline(self.note)}</p>' if self.note else ""
        head = f"{_groups(self.columns)}{_heads(self.columns, starts, self.sortable)}"
        kinds = [name for name, on in (("sortable", self.sortable), ("wide", len(self.columns) > _WIDE)) if on]
        # Focusable, so that it can be scrolled without a mouse.
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(self.title)}">'
            f'<table class="{" ".join(kinds)}"><caption class="hidden">{inline(self.title)}</caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody></table></div>{note}"
        )


def frame_table(title: str, frame: Any, note: str = "", *, sortable: bool = True) -> Table:
    """A pandas frame as a table; numbers are shown to four digits, and means with their standard error."""
    columns = [Column(str(name), is_text=isinstance(frame[name].iloc[0], str)) for name in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    return Table(title, columns, rows, note, sortable)


def _cell(value: Any) -> Cell:
    if isinstance(value, bool) or not isinstance(value, Real):
        return Cell(str(value))
    return Cell(f"{float(value):.4g}", float(value), detail=getattr(value, "error_text", ""))


def _starts(columns: Sequence[Column]) -> list[bool]:
    """Which columns begin a group."""
    groups = [column.group for column in columns]
    return [bool(k) and groups[k] != groups[k - 1] for k in range(len(groups))]


def _groups(columns: Sequence[Column]) -> str:
    if not any(column.group for column in columns):
        return ""
    cells = []
    for group, members in groupby(columns, key=lambda column: column.group):
        span = len(list(members))
        scope = ' scope="colgroup"' if group else ' class="none"'
        cells.append(f'<th colspan="{span}"{scope}>{inline(group)}</th>')
    return f'<tr class="groups">{"".join(cells)}</tr>'


def _heads(columns: Sequence[Column], starts: Sequence[bool], sortable: bool) -> str:
    cells = []
    for k, (column, start) in enumerate(zip(columns, starts, strict=True)):
        kinds = [name for name, on in (("text", column.is_text), ("starts", start)) if on]
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        group = f'<span class="hidden">{inline(column.group)}: </span>' if column.group else ""
        head = f"{group}{inline(column.head)}"
        # Chromium leaves buttons out on the further pages of a printed table, so that the style sheet writes the head.
        head = f'<button type="button" data-column="{k}">{head}</button>' if sortable else head
        kind += f' data-head="{escaped(column.head)}"' if sortable else ""
        cells.append(f'<th scope="col"{kind}>{head}</th>')
    return f"<tr>{''.join(cells)}</tr>"


def _row(row: Sequence[Cell], columns: Sequence[Column], starts: Sequence[bool]) -> str:
    cells = [f'<th scope="row">{_content(row[0])}</th>']
    for cell, column, start in zip(row[1:], columns[1:], starts[1:], strict=True):
        kinds = [name for name, on in (("text", column.is_text), ("best", cell.best), ("starts", start)) if on]
        if column.is_text and len(cell.text) > 40:
            kinds.append("wrap")
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        cells.append(f"<td{kind}{_sort_value(cell)}>{_content(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _sort_value(cell: Cell) -> str:
    if cell.value is None:
        return ""
    if math.isnan(cell.value):
        return ' data-value=""'
    if math.isinf(cell.value):
        return f' data-value="{"" if cell.value > 0 else "-"}Infinity"'
    return f' data-value="{cell.value!r}"'


def _content(cell: Cell) -> str:
    text = inline(cell.text)
    text = f"<strong>{text}</strong>" if cell.best else text
    return f'{text} <span class="detail">{inline(cell.detail)}</span>' if cell.detail else text


# Pictures and charts


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


# The page


# The browser itself refuses whatever is not in the file.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Section:
    """A part of a page: `blocks` under a `title` that the table of contents shows."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """What a link to it ends in."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


@dataclass(frozen=True)
class Page:
    """A page: a `title`, the `lead` below it, `sections` and a `closing` line.

    Examples
    --------
    >>> from polyhedge.app.report import Text
    >>> page = Page("Loads", "What was <decided>", [Section("First", [Text("Hello")])])
    >>> "What was &lt;decided&gt;" in page.html(), "<p>Hello</p>" in page.html()
    (True, True)
    """

    title: str
    lead: str
    sections: Sequence[Section]
    closing: str = ""

    def html(self) -> str:
        """The whole page; nothing in it refers to anything outside."""
        sections = list(zip(self.sections, _distinct(section.anchor for section in self.sections), strict=True))
        links = "".join(f'<li><a href="#{anchor}">{inline(section.title)}</a></li>' for section, anchor in sections)
        body = "".join(
            f'<section id="{anchor}"><h2>{inline(section.title)}</h2>{_joined(section.blocks)}</section>'
            for section, anchor in sections
        )
        return _PAGE.format(
            policy=html.escape(_POLICY),
            title=escaped(self.title),
            style=_asset("page.css"),
            heading=inline(self.title),
            lead=inline(self.lead),
            links=links,
            body=body,
            closing=inline(self.closing),
            library=self._library(),
            script=_asset("page.js"),
        )

    def _library(self) -> str:
        """Plotly, once, where some chart needs it."""
        if not any(isinstance(block, Chart) for section in self.sections for block in _flat(section.blocks)):
            return ""
        library = plotly_library()
        if library is None:
            raise ImportError("Charts need plotly: pip install 'polyhedge[plot]'.")
        return f"<script>{library}</script>"


def write_page(page: Page, path: Path) -> Path:
    """Write a `page` to a `path`; the file appears whole or not at all."""
    replace_file(path, page.html().encode())
    return path


def _joined(blocks: Iterable[Block]) -> str:
    return "".join(block.html() for block in blocks)


def _flat(blocks: Iterable[Any]) -> Iterator[Any]:
    for block in blocks:
        yield block
        yield from _flat(getattr(block, "items", ()) if not isinstance(getattr(block, "items", ()), dict) else ())


def _distinct(names: Iterable[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _asset(name: str) -> str:
    return resources.files("polyhedge.app.report").joinpath(name).read_text(encoding="utf-8")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{heading}</h1><p class="lead">{lead}</p><nav aria-label="Contents"><ul>{links}</ul></nav></header>
<main>{body}</main>
<footer>{closing}</footer>
{library}<script>{script}</script>
</body>
</html>
"""
