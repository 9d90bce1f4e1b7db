"""Tables that can be sorted by a click on a column's head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from polyhedge.app.report.blocks import escaped, inline

__all__ = ["Cell", "Column", "Table"]

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
