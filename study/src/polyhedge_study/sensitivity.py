"""How our learners depend on the number of outcomes d, of facets K, and on the split n / (n + m).

The paper's figure: d varies with K = 8 and with K = 4 d, K varies at d = 2, and the share of learning samples varies
at K = 4 with n + m = 600. Learners without a number of facets take part where something else varies. `Scenario` is
exact for two outcomes; beyond, its result would depend on a time limit, so it is left out there. `Pinball` takes fewer
steps than in the tables, because each of them solves a program for every context beyond two outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from polyhedge.learners import Auto, Descent, Learner, OneSidedBox, Pinball, Scenario
from polyhedge_study.experiment import Experiment
from polyhedge_study.inside import check_count
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.learners.boxes import RotatedBoxGrid
from polyhedge_study.measure import Measured
from polyhedge_study.methods import METHODS, learned
from polyhedge_study.study import nothing, plain
from polyhedge_study.tasks import synthetic_task

__all__ = ["SWEEPS", "SensitivityJob", "SensitivityRow", "SensitivitySettings", "run_sensitivity", "sensitivity_jobs"]

SWEEPS: dict[str, tuple[float, ...]] = {
    "d, K = 8": (2, 3, 4, 5),
    "d, K = 4d": (2, 3, 4, 5),
    "K": (3, 4, 6, 8, 12, 16),
    "n / (n + m)": (0.1, 0.25, 0.5, 0.75, 0.9),
}
_WITH_FACETS: dict[str, Learner] = {"pinball": Pinball(n_steps=400), "descent": Descent(), "polyhedge": Auto()}
_WITHOUT_FACETS: dict[str, Learner] = {"one-sided-box": OneSidedBox(), "grid": RotatedBoxGrid()}
_TWO_OUTCOMES: dict[str, Learner] = {"scenario": Scenario()}
_LEARNERS = {**_WITHOUT_FACETS, **_TWO_OUTCOMES, **_WITH_FACETS}


@dataclass(frozen=True)
class SensitivitySettings:
    """What all rows share.

    Attributes
    ----------
    task : "linear", "quadratic" or "newsvendor", on the synthetic data.
    alpha : miscoverage level.
    n_train, n_pooled, n_test : rows that train, that learn and calibrate together, and that test.
    """

    task: str = "linear"
    alpha: float = 0.1
    n_train: int = 1200
    n_pooled: int = 600
    n_test: int = 1000

    def __post_init__(self) -> None:
        if self.task not in ("linear", "quadratic", "newsvendor"):
            raise ValueError(f"task must be linear, quadratic or newsvendor, got {self.task!r}.")


@dataclass(frozen=True)
class SensitivityJob:
    """One learner at one value of one sweep."""

    sweep: str
    value: float
    method: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.sweep}: {self.value:g}, {METHODS[self.method].name}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Only seeds take the same time."""
        return f"{self.sweep} {self.value} {self.method}"

    @property
    def n_outcomes(self) -> int:
        """Number d of outcomes."""
        return int(self.value) if self.sweep.startswith("d") else 2

    @property
    def n_facets(self) -> int:
        """Number K of facets."""
        facets = {"d, K = 8": 8, "d, K = 4d": 4 * self.n_outcomes, "K": int(self.value), "n / (n + m)": 4}
        return facets[self.sweep]

    @property
    def learn_share(self) -> float:
        """Share n / (n + m) of the learning samples."""
        return self.value if self.sweep == "n / (n + m)" else 0.5


@dataclass(frozen=True)
class SensitivityRow:
    """What a learner achieves there; see `Measured`."""

    sweep: str
    value: float
    method: str
    seed: int
    status: str
    coverage: float
    volume: float
    worst_case_cost: float
    premium: float
    regret: float
    seconds: float
    detail: str
    hull_volume: float = np.nan

    @property
    def job(self) -> SensitivityJob:
        """The job that made it."""
        return SensitivityJob(self.sweep, self.value, self.method, self.seed)


def sensitivity_jobs(seeds: int = 5) -> list[SensitivityJob]:
    """All rows of the experiment, seed by seed.

    Examples
    --------
    >>> sensitivity_jobs(seeds=1)[0].label
    'd, K = 8: 2, One-sided box, seed 0'
    """
    return [
        SensitivityJob(sweep, float(value), key, seed)
        for seed in range(check_count(seeds, "seeds", minimum=1))
        for sweep, values in SWEEPS.items()
        for value in values
        for key in _LEARNERS
        if _takes_part(key, sweep, value)
    ]


def _takes_part(key: str, sweep: str, value: float) -> bool:
    if key in _WITH_FACETS:
        return True
    if sweep in ("d, K = 4d", "K"):
        return False
    return key in _WITHOUT_FACETS or sweep == "n / (n + m)" or value == 2


def run_sensitivity(
    jobs: Sequence[SensitivityJob],
    folder: Path,
    *,
    settings: SensitivitySettings | None = None,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[SensitivityRow]:
    """Run the jobs that `sensitivity.csv` in the folder lacks; see `run_study`."""
    settings = SensitivitySettings() if settings is None else settings
    experiment = Experiment(
        name="sensitivity",
        row_type=SensitivityRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=lambda job, reason: _row(job, "failed", nothing(reason)),
        order=_order,
        about=lambda rows: _about(rows, settings),
    )
    return experiment.run(jobs, folder, workers=workers, report=report)


def _order(row: SensitivityRow) -> tuple[int, float, int, int]:
    return list(SWEEPS).index(row.sweep), row.value, list(_LEARNERS).index(row.method), row.seed


def _about(rows: Sequence[SensitivityRow], settings: SensitivitySettings) -> dict[str, object]:
    seeds = sorted({row.seed for row in rows})
    command = f"polyhedge reproduce sensitivity --task {settings.task} --seeds {max(seeds, default=0) + 1}"
    methods = [{"key": key, "name": METHODS[key].name} for key in _LEARNERS]
    return {
        "command": command,
        "seeds": seeds,
        "sweeps": {name: list(v) for name, v in SWEEPS.items()},
        "methods": methods,
    }


def run_job(job: SensitivityJob, settings: SensitivitySettings) -> SensitivityRow:
    """One row."""
    n = round(job.learn_share * settings.n_pooled)
    sizes = (settings.n_train, n, settings.n_pooled - n, settings.n_test)
    task = synthetic_task(job.seed, settings.task, n_outcomes=job.n_outcomes, sizes=sizes)
    return _row(job, "done", learned(task, settings.alpha, job.seed, learner=learner_of(job)))


def learner_of(job: SensitivityJob) -> Learner:
    """The learner, with the job's number of facets where it has one.

    Examples
    --------
    >>> learner_of(SensitivityJob("K", 6.0, "polyhedge", 0)).n_facets
    6
    """
    learner = _LEARNERS[job.method]
    return replace(learner, n_facets=job.n_facets) if job.method in _WITH_FACETS else learner  # type: ignore[type-var]


def _row(job: SensitivityJob, status: str, measured: Measured) -> SensitivityRow:
    return SensitivityRow(job.sweep, job.value, job.method, job.seed, status, **plain(measured), detail=measured.detail)
