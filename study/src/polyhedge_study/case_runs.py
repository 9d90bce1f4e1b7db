"""Every method with a promise about costs on the real cases: one row each, in `cases.csv`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

from polyhedge.data.splits import evenly_chosen
from polyhedge_study.cases import CASES, SEPARATE, SERVED, make_case
from polyhedge_study.experiment import Experiment
from polyhedge_study.guarantees import find_guarded
from polyhedge_study.guarded.developed import Bounded, attained_radius
from polyhedge_study.guarded.methods import GUARDED, PLAN
from polyhedge_study.inside import Array, Indices, check_alpha
from polyhedge_study.jobs import Progress, Workers

__all__ = ["N_RESAMPLED", "N_STRETCHES", "CaseJob", "CaseRow", "case_jobs", "resampled", "run_cases"]

N_STRETCHES = 20
"""Stretches of a period that are drawn again as a whole, because neighbours in time are alike."""
_RADII_OF_SETS = 16
"""Sets and paths of margins decide anew at every radius, which takes minutes: so many leave errors to two digits."""
N_RESAMPLED = 200
"""Pairs of periods drawn again: standard errors are then known to 5 per cent."""


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
    held : share of test rows that cost no more than their bound, or whose constraints hold.
    n_decisions : distinct decisions at the test rows: one says that the forecast is not followed.
    seconds : CPU time.
    equal : mean bound if the test rows themselves had set the radius, so that exactly the promised share is covered.
    resampled : "bound/cost/equal" with stretches of the calibration and of the test period drawn again, the same for
        all methods: the radius is then another one too.
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
    equal: float = np.nan
    resampled: str = ""

    @property
    def draws(self) -> Array:
        """Bound, cost and bound at equal coverage (3, N_RESAMPLED) in periods drawn again."""
        return np.array([[float(x) for x in one.split("/")] for one in self.resampled.split()]).reshape(-1, 3).T

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
    return [CaseJob(name, key) for name in CASES if not names or name in names for key in chosen if _suits(key, name)]


def _suits(key: str, case: str) -> bool:
    """Constraints that hold the outcome are served, not guarded; quantiles of outcomes need a cost that separates."""
    needs = GUARDED[key].needs
    if case in SERVED:
        return key == PLAN or needs == "service"
    return not needs or (needs == "ratios" and case in SEPARATE)


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
    promised = GUARDED[job.method].run(task, settings.alpha, settings.seed)
    seconds = process_time() - before
    outcomes = task.rows("test")[1]
    costs = task.problem.evaluate(promised.z, outcomes)
    return CaseRow(
        job.case,
        job.method,
        "done",
        bound=float(promised.bound.mean()),
        realised=float(costs.mean()),
        held=promised.covered if job.case in SERVED else float((costs <= promised.bound).mean()),
        n_decisions=len(np.unique(promised.z.round(6), axis=0)),
        n_test=len(costs),
        seconds=seconds,
        detail=promised.detail,
        equal=float(promised.equal.mean()),
        resampled=resampled(
            promised,
            lambda z: task.problem.evaluate(z, outcomes),
            most_radii=_RADII_OF_SETS if GUARDED[job.method].promise == "outcome" or job.case in SERVED else None,
        ),
    )


def resampled(promised: Bounded, costs_of: Callable[[Array], Array], *, most_radii: int | None = None) -> str:
    """Figures in periods drawn again; a method sees the same draws as all others, which have as many rows.

    `most_radii` limits the radii that are decided at; those drawn are then the next larger of them.
    """
    rng, sizes = np.random.default_rng(0), (len(promised.scores), len(promised.fresh))
    draws = [tuple(_stretches(n, rng) for n in sizes) for _ in range(N_RESAMPLED)]
    radii = np.array(
        [
            (
                attained_radius(promised.scores[calibration], promised.alpha),
                attained_radius(promised.fresh[test], promised.alpha),
            )
            for calibration, test in draws
        ]
    )
    knots = np.unique(radii)
    if most_radii is not None and len(knots) > most_radii:
        knots = knots[evenly_chosen(len(knots), most_radii)]
    of_knot = np.minimum(np.searchsorted(knots, radii), len(knots) - 1)
    at = [(bound, costs_of(z)) for z, bound in map(promised.at, knots.tolist())]
    texts = []
    for (_, test), (k, k_equal) in zip(draws, of_knot, strict=True):
        figures = (*at[k], at[k_equal][0])
        texts.append("/".join(f"{figure[test].mean():.9g}" for figure in figures))
    return " ".join(texts)


def _stretches(n: int, rng: np.random.Generator) -> Indices:
    """Rows of as many consecutive stretches as there are, drawn with replacement."""
    parts = np.array_split(np.arange(n), N_STRETCHES)
    return np.concatenate([parts[k] for k in rng.integers(N_STRETCHES, size=N_STRETCHES)])
