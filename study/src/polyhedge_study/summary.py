"""Means over the seeds, beside the paper's figures and paired with Polyhedge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from polyhedge_study.inside import Array
from polyhedge_study.methods import METHODS, POLYHEDGE
from polyhedge_study.paper import PAPER_SEEDS, PrintedRow, paper_tables
from polyhedge_study.study import StudyRow
from polyhedge_study.tasks import TASKS

__all__ = ["COLUMNS", "TableRow", "TimeRow", "holm", "paired", "table_rows", "time_rows"]

COLUMNS = ("coverage", "volume", "worst_case_cost", "premium", "regret", "hull_volume")
"""What the tables show, in this order."""


@dataclass(frozen=True)
class TableRow:
    """One figure of one method on one task; see the head of `study.py`.

    Attributes
    ----------
    task, method, name, group, guarantee, metric : which figure.
    paper, paper_sd : the printed mean and standard deviation; NaN where there is none.
    here, sd, se : mean, standard deviation and standard error over the seeds.
    n_done, n_failed : seeds that gave a row, and that failed.
    difference : here - paper.
    z_value : the difference in standard errors of both, here over the seeds and there over the paper's five.
    versus_polyhedge, versus_polyhedge_se : mean difference to Polyhedge over common seeds, and its standard error.
    p_value : of the paired t-test against Polyhedge, Holm-corrected over the methods.
    best : whether it is the lowest mean among the guaranteed methods.
    reason : why seeds failed.
    """

    task: str
    method: str
    name: str
    group: str
    guarantee: str
    metric: str
    paper: float
    paper_sd: float
    here: float
    sd: float
    se: float
    n_done: int
    n_failed: int
    difference: float
    z_value: float
    versus_polyhedge: float
    versus_polyhedge_se: float
    p_value: float
    best: bool
    reason: str


def table_rows(rows: Iterable[StudyRow]) -> list[TableRow]:
    """All figures of a study, by task, metric and method."""
    groups: dict[tuple[str, str], list[StudyRow]] = {}
    for row in rows:
        groups.setdefault((row.task, row.method), []).append(row)
    figures = []
    for task in TASKS:
        own = {key: groups[task, key] for key in METHODS if (task, key) in groups}
        for metric in COLUMNS:
            figures += _column(task, metric, own)
    return figures


def _column(task: str, metric: str, own: dict[str, list[StudyRow]]) -> list[TableRow]:
    """One metric of all methods on one task."""
    rival = own.get(POLYHEDGE, [])
    tests = {key: paired(rows, rival, metric) for key, rows in own.items()}
    if POLYHEDGE in tests:
        # Polyhedge has no test against itself, and none is counted in the correction.
        tests[POLYHEDGE] = (*tests[POLYHEDGE][:2], np.nan)
    p_values = dict(zip(tests, holm([test[2] for test in tests.values()]), strict=True))
    means = {key: _moments(_values(rows, metric))[0] for key, rows in own.items()}
    rivals = [means[key] for key in own if METHODS[key].guarantee != "none" and np.isfinite(means[key])]
    lowest = min(rivals, default=np.nan) if metric != "coverage" else np.nan
    printed, column = paper_tables(), []
    for key, rows in own.items():
        method, paper = METHODS[key], _printed(printed.get((task, METHODS[key].paper)), metric)
        mean, sd, se = _moments(_values(rows, metric))
        failed = [row for row in rows if row.status == "failed"]
        column.append(
            TableRow(
                task,
                key,
                method.name,
                method.group,
                method.guarantee,
                metric,
                *paper,
                here=mean,
                sd=sd,
                se=se,
                n_done=len(rows) - len(failed),
                n_failed=len(failed),
                difference=mean - paper[0],
                z_value=(mean - paper[0]) / float(np.hypot(se, paper[1] / np.sqrt(PAPER_SEEDS))),
                versus_polyhedge=tests[key][0],
                versus_polyhedge_se=tests[key][1],
                p_value=p_values[key],
                best=bool(method.guarantee != "none" and mean == lowest),
                reason="; ".join(dict.fromkeys(row.detail for row in failed)),
            )
        )
    return column


def _printed(row: PrintedRow | None, metric: str) -> tuple[float, float]:
    if row is None or metric not in row.mean:
        return np.nan, np.nan
    return row.mean[metric], row.sd[metric]


def _values(rows: Sequence[StudyRow], metric: str) -> Array:
    return np.array([getattr(row, metric) for row in rows if row.status == "done"], dtype=float)


def _moments(values: Array) -> tuple[float, float, float]:
    """Mean, standard deviation and standard error; NaN where there are too few values."""
    if not len(values):
        return np.nan, np.nan, np.nan
    # An infinite volume has an infinite mean, and no spread.
    sd = float(values.std(ddof=1)) if len(values) > 1 and np.isfinite(values).all() else np.nan
    return float(values.mean()), sd, sd / float(np.sqrt(len(values)))


def paired(rows: Sequence[Any], rival: Sequence[Any], metric: str) -> tuple[float, float, float]:
    """Mean difference over common seeds, its standard error, and the p-value of the paired t-test."""
    own, theirs = (
        {row.seed: getattr(row, metric) for row in side if np.isfinite(getattr(row, metric))} for side in (rows, rival)
    )
    common = sorted(own.keys() & theirs.keys())
    difference = np.array([own[seed] - theirs[seed] for seed in common])
    mean, _, se = _moments(difference)
    if len(common) < 2:
        return mean, np.nan, np.nan
    if se == 0:
        return mean, 0.0, 1.0 if mean == 0 else 0.0
    return mean, se, float(2 * stats.t.sf(abs(mean) / se, len(common) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: with these, the chance of any false finding is at most the level; NaN stays.

    Examples
    --------
    >>> holm([0.04, 0.01, float("nan")])
    [0.04, 0.02, nan]
    """
    p = np.asarray(p_values, dtype=float)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = p.copy()
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1.0)
    return [float(value) for value in adjusted]


@dataclass(frozen=True)
class TimeRow:
    """Seconds of one method on one task: `paper` is printed (at most that, if so), `seconds` and `sd` are ours."""

    task: str
    method: str
    name: str
    paper: float
    paper_at_most: bool
    seconds: float
    sd: float
    n_done: int


def time_rows(rows: Iterable[StudyRow]) -> list[TimeRow]:
    """Times by task and method. They are measured: two runs never give the same."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.status == "done":
            groups.setdefault((row.task, row.method), []).append(row.seconds)
    printed, times = paper_tables(), []
    for task in TASKS:
        for key, method in METHODS.items():
            if (task, key) in groups:
                mean, sd, _ = _moments(np.array(groups[task, key]))
                paper = printed.get((task, method.paper))
                seconds, at_most = (paper.seconds, paper.at_most) if paper else (np.nan, False)
                times.append(TimeRow(task, key, method.name, seconds, at_most, mean, sd, len(groups[task, key])))
    return times
