"""Does learning help after recalibration on fresh data? Premiums paired with those of the one-sided box.

The rival is the one-sided box, which learns nothing but scales: it takes them from the training rows and is
calibrated on the learning and calibration rows together. All methods of a seed share data, predictor and splits.

The second part asks how much any set could gain on the linear task, from so many samples that overfitting is
negligible: a descent from the box itself, with facets added between its sides, estimates what the best set can reach.
For two outcomes the exact optimum on the learning rows bounds it from below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from polyhedge_study.experiment import Experiment
from polyhedge_study.inside import check_count
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.methods import METHODS
from polyhedge_study.population import POPULATION, run_population
from polyhedge_study.tasks import ENERGY_SIZES, SYNTHETIC_SIZES, Task, energy_task, synthetic_task

__all__ = [
    "RIVAL",
    "SETTINGS",
    "GeneralisationJob",
    "GeneralisationRow",
    "GeneralisationSettings",
    "Setting",
    "generalisation_jobs",
    "run_generalisation",
]

RIVAL = "one-sided-box"
_FAILED = "failed: "


@dataclass(frozen=True)
class Setting:
    """One task at one size: rows of train, learn, calibrate and test, and the methods that take part."""

    task: str
    n_outcomes: int = 2
    sizes: tuple[int, int, int, int] = SYNTHETIC_SIZES
    methods: tuple[str, ...] = (RIVAL, "polyhedge", "descent", "scenario", "grid")

    @property
    def name(self) -> str:
        """As the tables call it."""
        return f"{self.task}, d = {self.n_outcomes}, n = {self.sizes[1]}"

    def make(self, seed: int) -> Task:
        """The task with the data of this seed."""
        if self.task == "energy":
            return energy_task(seed)
        return synthetic_task(seed, self.task, n_outcomes=self.n_outcomes, sizes=self.sizes)


_LARGE = (3000, 3000, 3000, 1000)
"""Ten times the paper's learning and calibration rows."""
_MORE = (1200, 500, 500, 300)
"""More outcomes need more rows to learn from; fewer test rows, because each takes a larger program."""
_FEW = (RIVAL, "polyhedge", "descent")

SETTINGS = {
    setting.name: setting
    for setting in (
        *(Setting(task) for task in ("linear", "quadratic", "newsvendor")),
        Setting("energy", sizes=ENERGY_SIZES),
        *(Setting(task, sizes=_LARGE, methods=_FEW) for task in ("linear", "quadratic", "newsvendor")),
        *(Setting("linear", d, _MORE, _FEW) for d in (5, 10, 20)),
        Setting("newsvendor", 5, _MORE, (*_FEW, "l-2")),
        Setting("newsvendor", 10, (1200, 500, 500, 40), (RIVAL, "polyhedge", "l-2")),
    )
}
"""The settings that are compared, by name."""


@dataclass(frozen=True)
class GeneralisationSettings:
    """What all rows share: the miscoverage level, and the learning rows of the population part."""

    alpha: float = 0.1
    n_population: int = 20_000


@dataclass(frozen=True)
class GeneralisationJob:
    """One method in one setting with one seed."""

    setting: str
    method: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.setting}, {self.method}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Only seeds take the same time."""
        return f"{self.setting} {self.method}"


@dataclass(frozen=True)
class GeneralisationRow:
    """What a method gives there.

    Attributes
    ----------
    premium : worst-case minus nominal cost on test contexts, after recalibration; on the learning rows themselves
        for the exact optimum, which no fresh data has.
    coverage : share of the test outcomes inside their sets.
    seconds : training, learning and calibration.
    detail : what the learner says it did, or why there is no result.
    """

    setting: str
    method: str
    seed: int
    premium: float
    coverage: float
    seconds: float
    detail: str

    @property
    def job(self) -> GeneralisationJob:
        """The job that made it."""
        return GeneralisationJob(self.setting, self.method, self.seed)

    @property
    def status(self) -> str:
        """Whether there is a result; what failed is run again."""
        return "failed" if self.detail.startswith(_FAILED) else "done"


def generalisation_jobs(
    names: Sequence[str] = (), seeds: int = 20, population: Sequence[int] = (2, 5, 10)
) -> list[GeneralisationJob]:
    """All methods in the named settings (none named: in all), then the population part for these numbers of outcomes.

    Examples
    --------
    >>> [job.label for job in generalisation_jobs(["linear, d = 20, n = 500"], seeds=1, population=())]
    ['linear, d = 20, n = 500, one-sided-box, seed 0', 'linear, d = 20, n = 500, polyhedge, seed 0', ...]
    """
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        raise ValueError(f"setting must be one of {'; '.join(SETTINGS)}; got {', '.join(map(repr, unknown))}.")
    check_count(seeds, "seeds", minimum=1)
    chosen = [setting for name, setting in SETTINGS.items() if not names or name in names]
    jobs = [GeneralisationJob(s.name, method, seed) for s in chosen for seed in range(seeds) for method in s.methods]
    return jobs + [
        GeneralisationJob(f"{POPULATION}, d = {d}", part, seed)
        for d in population
        for seed in range(min(seeds, 3))
        for part in (RIVAL, "descent from the box", *(("exact on 3000 rows", "box on 3000 rows") if d == 2 else ()))
    ]


def run_generalisation(
    jobs: Sequence[GeneralisationJob],
    folder: Path,
    *,
    settings: GeneralisationSettings | None = None,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[GeneralisationRow]:
    """Run what `generalisation.csv` in the folder lacks; return all its rows in order."""
    settings = GeneralisationSettings() if settings is None else settings
    experiment = Experiment(
        name="generalisation",
        row_type=GeneralisationRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=_failed,
        order=_order,
        about=lambda rows: {"command": "polyhedge reproduce generalisation"},
    )
    return experiment.run(jobs, folder, workers=workers, report=report)


def run_job(job: GeneralisationJob, settings: GeneralisationSettings) -> GeneralisationRow:
    """One row."""
    if job.setting in SETTINGS:
        measured = METHODS[job.method].run(SETTINGS[job.setting].make(job.seed), settings.alpha, job.seed)
        premium, coverage, seconds, detail = measured.premium, measured.coverage, measured.seconds, measured.detail
    else:
        d = int(job.setting.rsplit(" ", 1)[1])
        premium, coverage, seconds, detail = run_population(
            job.method, d, settings.n_population, job.seed, settings.alpha
        )
    row = float(premium), float(coverage), float(seconds), detail
    return GeneralisationRow(job.setting, job.method, job.seed, *row)


def _failed(job: GeneralisationJob, reason: str) -> GeneralisationRow:
    return GeneralisationRow(job.setting, job.method, job.seed, np.nan, np.nan, np.nan, _FAILED + reason)


def _order(row: GeneralisationRow) -> tuple[int, int, int, int]:
    """Settings in their order, then the population part by its number of outcomes."""
    if row.setting in SETTINGS:
        return list(SETTINGS).index(row.setting), 0, list(METHODS).index(row.method), row.seed
    n_outcomes = int(row.setting.rsplit(" ", 1)[1])
    return len(SETTINGS), n_outcomes, ("one", "des", "exa", "box").index(row.method[:3]), row.seed
