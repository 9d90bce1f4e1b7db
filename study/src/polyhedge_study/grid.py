r"""A table as text, and its forms in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Grid"]

_LATEX = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "±": r"$\pm$", "≤": r"$\le$"}


@dataclass(frozen=True)
class Grid:
    """A table as text: a title, column heads, rows and a note.

    A cell between double asterisks is bold.

    Examples
    --------
    >>> grid = Grid("Costs", ("method", "cost"), (("box", "2 ± 1"), ("ours", "**1 ± 1**")))
    >>> print(grid.markdown())
    ## Costs
    <BLANKLINE>
    | method | cost |
    | --- | ---: |
    | box | 2 ± 1 |
    | ours | **1 ± 1** |
    <BLANKLINE>
    >>> print(grid.csv(), end="")
    method,cost
    box,2 ± 1
    ours,1 ± 1
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [f"## {self.title}", "", _line(self.heads), _line(["---", *["---:"] * (len(self.heads) - 1)])]
        lines += [_line(row) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])

    def latex(self) -> str:
        """The table in LaTeX, for the packages booktabs and graphicx."""
        columns = "l" + "r" * (len(self.heads) - 1)
        body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in self.rows]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_latex(' '.join([self.title + '.', self.note]).strip())}}}",
                rf"\resizebox{{\textwidth}}{{!}}{{\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                " & ".join(_latex(head) for head in self.heads) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}}",
                r"\end{table}",
                "",
            ]
        )

    def csv(self) -> str:
        """Heads and rows as CSV, without marks."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.heads)
        writer.writerows([cell.replace("**", "") for cell in row] for row in self.rows)
        return text.getvalue()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex(cell: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in cell)
    # A minus sign is a hyphen in text mode.
    escaped = re.sub(r"(?<![\w}-])-(?=\d)", "$-$", escaped)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped)
