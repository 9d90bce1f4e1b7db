"""Every method with a promise about costs on the real cases, and their table beside earlier figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

from polyhedge._validation import check_alpha
from polyhedge_study.cases import CASES, make_case
from polyhedge_study.experiment import Experiment
from polyhedge_study.grid import Grid
from polyhedge_study.guarantees import find_guarded
from polyhedge_study.guarded.methods import GUARDED, PLAN, RIVALS
from polyhedge_study.jobs import Progress, Workers

__all__ = ["CaseJob", "CaseRow", "case_grid", "case_jobs", "case_words", "run_cases"]

_SEPARATE = ("bakery",)
"""Cases whose cost separates into one for each outcome."""


@dataclass(frozen=True)
class CaseSettings:
    """What all rows share: level and seed."""

    alpha: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)


@dataclass(frozen=True)
class CaseJob:
    """One method on one case."""

    case: str
    method: str

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.case}, {GUARDED[self.method].name}"

    @property
    def kind(self) -> str:
        """No two of them take the same time."""
        return f"{self.case} {self.method}"


@dataclass(frozen=True)
class CaseRow:
    """What a method gives there.

    Attributes
    ----------
    bound, realised : means over the test rows.
    held : share of test rows that cost no more than their bound.
    n_decisions : distinct decisions at the test rows: one says that the forecast is not followed.
    seconds : CPU time.
    """

    case: str
    method: str
    status: str
    bound: float
    realised: float
    held: float
    n_decisions: int
    n_test: int
    seconds: float
    detail: str

    @property
    def job(self) -> CaseJob:
        """The job that made it."""
        return CaseJob(self.case, self.method)


def case_jobs(names: Sequence[str] = (), methods: Sequence[str] = ()) -> list[CaseJob]:
    """The named methods on the named cases (none named: all that can be used there)."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise ValueError(f"case must be one of {', '.join(CASES)}; got {', '.join(map(repr, unknown))}.")
    chosen = find_guarded(methods or tuple(GUARDED))
    return [
        CaseJob(name, key)
        for name in CASES
        if not names or name in names
        for key in chosen
        if name in _SEPARATE or not GUARDED[key].needs_ratios
    ]


def run_cases(
    jobs: Sequence[CaseJob],
    folder: Path,
    *,
    alpha: float = 0.1,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[CaseRow]:
    """Run what `cases.csv` in the folder lacks; return all its rows in order."""
    settings = CaseSettings(alpha)
    experiment = Experiment(
        name="cases",
        row_type=CaseRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=lambda job, why: CaseRow(job.case, job.method, "failed", *(np.nan,) * 3, 0, 0, np.nan, why),
        order=lambda row: (list(CASES).index(row.case), list(GUARDED).index(row.method)),
        about=lambda rows: {"command": "polyhedge reproduce cases"},
    )
    return experiment.run(jobs, folder, workers=workers or Workers(), report=report)


def run_job(job: CaseJob, settings: CaseSettings) -> CaseRow:
    """One row."""
    task = make_case(job.case)
    _ = task.problem.pieces, task.problem.feasible
    before = process_time()
    found = GUARDED[job.method].run(task, settings.alpha, settings.seed)
    seconds = process_time() - before
    costs = task.problem.evaluate(found.z, task.rows("test")[1])
    return CaseRow(
        job.case,
        job.method,
        "done",
        bound=float(found.bound.mean()),
        realised=float(costs.mean()),
        held=float((costs <= found.bound).mean()),
        n_decisions=len(np.unique(found.z.round(6), axis=0)),
        n_test=len(costs),
        seconds=seconds,
        detail=found.detail,
    )


def case_grid(rows: Sequence[CaseRow]) -> Grid:
    """Bound, realised cost and held share of every method on every case."""
    lines = []
    for name in CASES:
        own = [row for row in rows if row.case == name]
        for k, row in enumerate(own):
            figures = ("failed", "", "", "")
            if row.status == "done":
                figures = (_number(row.bound), _number(row.realised), f"{row.held:.3f}", str(row.n_decisions))
            lines.append((name if k == 0 else "", GUARDED[row.method].name, *figures))
    failures = "; ".join(
        f"{row.case}, {GUARDED[row.method].name}: {row.detail}" for row in rows if row.status != "done"
    )
    return Grid(
        "Real cases, in time order",
        ("case", "method", "bound", "cost", "held", "decisions"),
        tuple(lines),
        "bound: mean of what is promised; cost: mean realised; held: share of test rows that cost no more than their "
        "bound (drift in time moves it); decisions: distinct ones at the test rows. A battery earns where costs are "
        "below zero. The last row of a case bounds every decision at once."
        + (f" Failed: {failures}." if failures else ""),
    )


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def case_words(rows: Sequence[CaseRow]) -> list[str]:
    """Where a rival with the same guarantee has a lower bound or cost than Polyhedge."""
    sentences = []
    for name in CASES:
        own = {row.method: row for row in rows if row.case == name and row.status == "done"}
        rivals = [own[key] for key in RIVALS if key in own]
        if PLAN not in own or not rivals:
            continue
        parts = []
        for what, figure in (("bound", "bound"), ("realised cost", "realised")):
            ours, best = getattr(own[PLAN], figure), min(rivals, key=lambda row: getattr(row, figure))
            theirs = getattr(best, figure)
            verb = "lowest" if ours <= theirs else f"above that of {GUARDED[best.method].name}"
            parts.append(f"the {what} of Polyhedge is {verb} ({_number(ours)} against {_number(theirs)})")
        sentences.append(f"{name.capitalize()}: {' and '.join(parts)}.")
    return sentences
