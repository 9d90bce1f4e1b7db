"""The project's own Markdown tables as blocks of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from polyhedge.app.report.page import Block, Cell, Column, Points, Table, Text
from polyhedge_study.page_blocks import Heading

__all__ = ["markdown_blocks"]

_NUMBER = re.compile(r"[<>≤≥]?\s*([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def markdown_blocks(text: str) -> list[Block]:
    r"""Headings, tables, lists and paragraphs; the first heading, which names the file, is left out.

    Cells between double asterisks are the best of their column. A column is sorted by the numbers its cells begin with.

    Examples
    --------
    >>> blocks = markdown_blocks("# All\n\n## Costs\n\n| method | cost |\n| --- | ---: |\n| box | **2 ± 1** |\n")
    >>> [type(block).__name__ for block in blocks], blocks[1].rows[0][1]
    (['Heading', 'Table'], Cell(text='2 ± 1', value=2.0, best=True, detail=''))
    """
    blocks: list[Block] = []
    title = "Table"
    for kind, group in groupby(text.splitlines(), key=_kind):
        lines = list(group)
        if kind == "heading":
            title = lines[-1].lstrip("#").strip()
            blocks += [Heading(line.lstrip("#").strip()) for line in lines if line.startswith("##")]
        elif kind == "table":
            blocks.append(_table(title, [_cells(line) for line in lines]))
        elif kind == "item":
            blocks.append(Points([line[2:].strip() for line in lines]))
        elif kind == "text":
            blocks.append(Text(" ".join(lines)))
    return blocks


def _kind(line: str) -> str:
    if not line.strip():
        return "empty"
    starts = {"#": "heading", "|": "table", "- ": "item", "* ": "item"}
    return next((kind for start, kind in starts.items() if line.startswith(start)), "text")


def _cells(line: str) -> list[str]:
    # A bar inside a cell is written with a backslash before it.
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _table(title: str, lines: Sequence[Sequence[str]]) -> Table:
    heads, rows = lines[0], [line for line in lines[1:] if not all(re.fullmatch(r":?-+:?", cell) for cell in line)]
    width = len(heads)
    columns = [Column(head.replace("<br>", " ")) for head in heads]
    cells = [[_cell(text) for text in [*row, *[""] * width][:width]] for row in rows]
    # A row that begins with a dash goes on with what the row above it is about.
    return Table(title, columns, cells, sortable=not any(row[0].startswith("- ") for row in rows if row))


def _cell(text: str) -> Cell:
    bold = re.fullmatch(r"\*\*(.*)\*\*", text)
    text = bold.group(1) if bold else text
    if text == "nan":
        return Cell("", float("nan"))
    number = _NUMBER.match(text)
    return Cell(text, float(number.group(1)) if number else None, best=bold is not None)
