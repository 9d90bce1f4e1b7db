"""The paper's printed figures, as data."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from importlib import resources

import numpy as np

__all__ = ["METRICS", "PAPER_SEEDS", "PaperRow", "PrintedRow", "paper_table1", "paper_tables"]

METRICS = ("coverage", "volume", "worst_case_cost", "regret")
"""Columns that are printed as mean ± standard deviation."""
PAPER_SEEDS = 5
"""Runs behind each printed mean."""


@dataclass(frozen=True)
class PaperRow:
    """A printed row of the paper's Table 1.

    Attributes
    ----------
    n : learning samples.
    certified, runs : runs with a certificate within 1e-4, of so many.
    miqcp_seconds, pinball_seconds, time_ratio : mean times, and the first over the second.
    gap_percent : how much more the pinball solution costs than the MIQCP solution.
    """

    n: int
    certified: int
    runs: int
    miqcp_seconds: float
    pinball_seconds: float
    time_ratio: float
    gap_percent: float


def paper_table1() -> tuple[PaperRow, ...]:
    """The printed figures of the paper's Table 1.

    Examples
    --------
    >>> rows = paper_table1()
    >>> sum(row.certified for row in rows), sum(row.runs for row in rows)
    (26, 30)
    """
    return tuple(
        PaperRow(
            n=int(row["n"]),
            certified=int(row["certified"]),
            runs=int(row["runs"]),
            miqcp_seconds=float(row["miqcp_seconds"]),
            pinball_seconds=float(row["pinball_seconds"]),
            time_ratio=float(row["time_ratio"]),
            gap_percent=float(row["gap_percent"]),
        )
        for row in _records("paper_table1.csv")
    )


@dataclass(frozen=True)
class PrintedRow:
    """A printed row of the paper's Table 2 (synthetic tasks) or 3 (energy): means and standard deviations of 5 seeds.

    Costs are in plain units here; the paper prints them times ten.

    Attributes
    ----------
    table, task, method : where it stands; `method` is the paper's name.
    mean, sd : for each of `METRICS`.
    seconds : mean time; where the paper prints "<0.01" it is 0.01 and `at_most` is true.
    at_most : whether `seconds` is only an upper bound.
    """

    table: int
    task: str
    method: str
    mean: dict[str, float]
    sd: dict[str, float]
    seconds: float
    at_most: bool


def paper_tables() -> dict[tuple[str, str], PrintedRow]:
    """The printed figures of the paper's Tables 2 and 3 by (task, the paper's name of the method).

    Examples
    --------
    >>> rows = paper_tables()
    >>> len(rows), rows["linear", "Ours"].mean["worst_case_cost"], rows["energy", "PCP"].table
    (44, 0.119, 3)
    """
    rows = [_printed(number, row) for number in (2, 3) for row in _records(f"paper_table{number}.csv")]
    return {(row.task, row.method): row for row in rows}


def _printed(table: int, row: dict[str, str]) -> PrintedRow:
    scales = {"worst_case_cost": 10, "regret": 10}
    return PrintedRow(
        table=table,
        task=row["task"],
        method=row["method"],
        # Rounded, so that a printed 1.19 becomes 0.119 and not the float beside it.
        mean={name: float(np.round(float(row[name]) / scales.get(name, 1), 6)) for name in METRICS},
        sd={name: float(np.round(float(row[f"{name}_sd"]) / scales.get(name, 1), 6)) for name in METRICS},
        seconds=float(row["seconds"].removeprefix("<")),
        at_most=row["seconds"].startswith("<"),
    )


def _records(name: str) -> list[dict[str, str]]:
    text = resources.files("polyhedge_study").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))
