"""Tables of the study on the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyhedge_study.grid import Grid
from polyhedge_study.inside import printable

__all__ = ["rich_table", "show"]


def show(table: Table | Grid, *, dense: bool = False) -> None:
    """Print a table."""
    Console().print(rich_table(table, dense=dense) if isinstance(table, Grid) else table)


def rich_table(grid: Grid, *, dense: bool = False) -> Table:
    """A grid of cells as a table of the terminal; `**cell**` is bold. A dense one has no lines between columns."""
    table = Table(title=_text(grid.title, "bold"), caption=_text(grid.note), caption_justify="left")
    if dense:
        table.box, table.padding, table.pad_edge = box.SIMPLE_HEAD, 0, False
    for position, head in enumerate(grid.heads):
        table.add_column(_text(head), justify="right" if position else "left", no_wrap=not position)
    for row in grid.rows:
        table.add_row(*(_text(cell.strip("*"), "bold" if cell.startswith("**") else "") for cell in row))
    return table


def _text(text: str, style: str = "") -> Text:
    # Not as a string: square brackets are markup to rich.
    return Text("\n".join(map(printable, text.split("\n"))), style=style)
