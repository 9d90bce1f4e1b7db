"""One page in one file: it works offline, on a phone, in the dark and on paper.

A page is made of blocks: words, cards, facts, code, sortable tables, pictures and charts. All text is escaped; `code`
in backticks is set as code.
"""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from numbers import Real
from typing import Any, Protocol

from polyhedge._support.text import printable


class Block(Protocol):
    """Anything that can stand on a page."""

    def html(self) -> str:
        """The block as HTML, with all text escaped."""


def escaped(text: str) -> str:
    """Text that is no markup, and no command of a terminal either, should somebody print the page there."""
    return html.escape("\n".join(map(printable, text.split("\n"))))


def inline(text: str) -> str:
    """Text as HTML: escaped, with `code` in backticks; a number and its percent sign stay on one line."""
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

    def html(self) -> str:
        """A box."""
        lines = {"name": self.name, "value": self.value, "more": self.more}
        inside = "".join(f'<p class="{kind}">{inline(text)}</p>' for kind, text in lines.items() if text)
        return f'<div class="card">{inside}</div>'


@dataclass(frozen=True)
class Cards:
    """Figures side by side, the `items`."""

    items: Sequence[Card]

    def html(self) -> str:
        """A grid that folds to one column on a phone."""
        return f'<div class="cards">{"".join(card.html() for card in self.items)}</div>'


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

    def html(self) -> str:
        """The table in a box of its own that scrolls where it is too wide."""
        groups = [column.group for column in self.columns]
        starts = [k > 0 and groups[k] != groups[k - 1] for k in range(len(groups))]
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
    rows = [
        [
            Cell(f"{float(value):.4g}", float(value), detail=getattr(value, "error_text", ""))
            if isinstance(value, Real) and not isinstance(value, bool)
            else Cell(str(value))
            for value in row
        ]
        for row in frame.itertuples(index=False)
    ]
    return Table(title, columns, rows, note, sortable)


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
        if cell.value is not None:
            infinite = f"{'' if cell.value > 0 else '-'}Infinity"
            value = "" if math.isnan(cell.value) else infinite if math.isinf(cell.value) else repr(cell.value)
            kind += f' data-value="{value}"'
        cells.append(f"<td{kind}>{_content(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


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
        # Names inside one picture must not meet those of another on the same page.
        own = f"d{hashlib.sha256(self.svg.encode()).hexdigest()[:8]}-"
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{own}", self.svg)
        svg = re.sub(r"<svg ", f'<svg role="img" aria-label="{escaped(self.caption)}" ', svg, count=1)
        return f"<figure>{svg}<figcaption>{inline(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Figures:
    """Pictures, the `items`, side by side where there is room."""

    items: Sequence[Block]

    def html(self) -> str:
        """A grid that folds to one column on a phone."""
        return f'<div class="figures">{"".join(item.html() for item in self.items)}</div>'


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

    def html(self) -> str:
        """The heading and the blocks."""
        return f"<h2>{inline(self.title)}</h2>{''.join(block.html() for block in self.blocks)}"


@dataclass(frozen=True)
class Page:
    """A page: a `title`, the `lead` below it, `sections`, a `closing` line and a script `library` for its blocks."""

    title: str
    lead: str
    sections: Sequence[Section]
    closing: str = ""
    library: str = ""

    def html(self) -> str:
        """The whole page; nothing in it refers to anything outside."""
        sections = list(zip(self.sections, _distinct(section.anchor for section in self.sections), strict=True))
        links = "".join(f'<li><a href="#{anchor}">{inline(section.title)}</a></li>' for section, anchor in sections)
        body = "".join(f'<section id="{anchor}">{section.html()}</section>' for section, anchor in sections)
        return _PAGE.format(
            policy=html.escape(_POLICY),
            title=escaped(self.title),
            style=_asset("page.css"),
            heading=inline(self.title),
            lead=inline(self.lead),
            links=links,
            body=body,
            closing=inline(self.closing),
            library=f"<script>{self.library}</script>" if self.library else "",
            script=_asset("page.js"),
        )


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
