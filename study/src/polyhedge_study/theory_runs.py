"""The paper's theory, measured: the law of the coverage, what reuse of data costs, and the suboptimality gap.

The population is a fixed pool of 100 000 synthetic residuals, and samples are drawn from it with replacement. So
the true coverage, the true radius of a shape and the oracle's cost are exact numbers, not estimates.

`theory_coverage.csv` : m, seed, status, coverage (of the recalibrated set), detail.
`theory_reuse.csv` : sweep ("n", "K" or "d"), value, seed, status, reused (coverage where the learning samples also set
    the radius), recalibrated (coverage with as many fresh samples), detail.
`theory_gap.csv` : n (= m), seed, status, gap (of Theorem 2), learning_gap, calibration_gap (its two parts), detail.
Each has a record of the same stem (`.json`), as in `study.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge.calibration import conformal_radius
from polyhedge.learners import Descent, Learner, Samples, Scenario
from polyhedge.robust import decide
from polyhedge_study.experiment import Experiment
from polyhedge_study.finite_population import TheorySettings, hard_context, population
from polyhedge_study.inside import check_count
from polyhedge_study.jobs import Progress, Workers

__all__ = [
    "CALIBRATION_SIZES",
    "GAP_SIZES",
    "REUSE",
    "CoverageRow",
    "GapRow",
    "ReuseRow",
    "run_coverage",
    "run_gap",
    "run_reuse",
]

CALIBRATION_SIZES = (50, 100, 300)
"""Up to the paper's m."""
GAP_SIZES = (50, 100, 200, 400, 800, 1600, 3200)
"""Doubled each time, so that a slope against log n weighs all sizes alike."""
REUSE: dict[str, tuple[int, ...]] = {"n": (20, 40, 80, 160, 320), "K": (3, 4, 6, 8, 12), "d": (2, 3, 4, 5)}
_REUSE_SAMPLES = 80
"""Where n stays: so few that reusing them shows."""
_COVERAGE_SAMPLES = 100
"""The law of the coverage is the same for every shape, so that one is learned from few samples."""
_STEPS = 80
"""Of `Descent`: the optimism of a set that is learned this far is what is measured."""


# --- the law of the coverage ------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoverageJob:
    """Learn from 100 samples, calibrate with m others."""

    m: int
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"coverage, m = {self.m}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """All take the same time."""
        return "coverage"


@dataclass(frozen=True)
class CoverageRow:
    """The true coverage of one recalibrated set."""

    m: int
    seed: int
    status: str
    coverage: float
    detail: str

    @property
    def job(self) -> CoverageJob:
        """The job that made it."""
        return CoverageJob(self.m, self.seed)


def run_coverage(seeds: int, folder: Path, **options: Any) -> list[CoverageRow]:
    """Coverage of sets that the exact learner shaped and fresh samples sized; see `_run` for the options."""
    jobs = [CoverageJob(m, seed) for seed in range(check_count(seeds, "seeds", minimum=1)) for m in CALIBRATION_SIZES]
    failed = partial(_failed, CoverageRow, names=("coverage",))
    return _run("theory_coverage", CoverageRow, jobs, coverage_job, failed, folder, **options)


def coverage_job(job: CoverageJob, settings: TheorySettings) -> CoverageRow:
    """One row."""
    rng, world = np.random.default_rng([1, job.m, job.seed]), population(2, settings.pool)
    shape = Scenario().learn(Samples(*world.draw(_COVERAGE_SAMPLES, rng), world.problem, settings.alpha)).set
    radius = conformal_radius(shape.scores(world.draw(job.m, rng)[0]), settings.alpha)
    return CoverageRow(job.m, job.seed, "done", world.coverage(shape, radius), "")


# --- reuse of the learning samples ------------------------------------------------------------------------


@dataclass(frozen=True)
class ReuseJob:
    """Learn at one value of n, K or d; the other two stay."""

    sweep: str
    value: int
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"reuse, {self.sweep} = {self.value}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Only seeds take the same time."""
        return f"{self.sweep} {self.value}"

    @property
    def learner(self) -> Learner:
        """Exact where n varies; with K facets where K or d does, K = 4 d for the latter."""
        if self.sweep == "n":
            return Scenario()
        return Descent(n_facets=self.value if self.sweep == "K" else 4 * self.value, n_steps=_STEPS)


@dataclass(frozen=True)
class ReuseRow:
    """True coverages of one shape: its radius from the learning samples, and from as many fresh ones."""

    sweep: str
    value: int
    seed: int
    status: str
    reused: float
    recalibrated: float
    detail: str

    @property
    def job(self) -> ReuseJob:
        """The job that made it."""
        return ReuseJob(self.sweep, self.value, self.seed)


def run_reuse(seeds: int, folder: Path, **options: Any) -> list[ReuseRow]:
    """Lemma 4: how far the coverage falls where learning samples also set the radius."""
    jobs = [
        ReuseJob(sweep, value, seed)
        for seed in range(check_count(seeds, "seeds", minimum=1))
        for sweep, values in REUSE.items()
        for value in values
    ]
    failed = partial(_failed, ReuseRow, names=("reused", "recalibrated"))
    return _run("theory_reuse", ReuseRow, jobs, reuse_job, failed, folder, **options)


def reuse_job(job: ReuseJob, settings: TheorySettings) -> ReuseRow:
    """One row."""
    rng = np.random.default_rng([2, list(REUSE).index(job.sweep), job.value, job.seed])
    world = population(job.value if job.sweep == "d" else 2, settings.pool)
    n = job.value if job.sweep == "n" else _REUSE_SAMPLES
    residuals, centers = world.draw(n, rng)
    learned = job.learner.learn(Samples(residuals, centers, world.problem, settings.alpha), random_state=job.seed)
    shape = learned.set
    reused, recalibrated = (
        world.coverage(shape, conformal_radius(shape.scores(sample), settings.alpha))
        for sample in (residuals, world.draw(n, rng)[0])
    )
    return ReuseRow(job.sweep, job.value, job.seed, "done", reused, recalibrated, "")


# --- the suboptimality gap --------------------------------------------------------------------------------


@dataclass(frozen=True)
class GapJob:
    """Learn from n samples and calibrate with m = n others, for one context."""

    n: int
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"gap, n = m = {self.n}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Only seeds take the same time."""
        return str(self.n)


@dataclass(frozen=True)
class GapRow:
    """The gap of Theorem 2 and its two parts, in cost."""

    n: int
    seed: int
    status: str
    gap: float
    learning_gap: float
    calibration_gap: float
    detail: str

    @property
    def job(self) -> GapJob:
        """The job that made it."""
        return GapJob(self.n, self.seed)


def run_gap(seeds: int, folder: Path, **options: Any) -> list[GapRow]:
    """Theorem 2: cost of the learned and recalibrated set above the oracle's, for one context."""
    jobs = [GapJob(n, seed) for seed in range(check_count(seeds, "seeds", minimum=1)) for n in GAP_SIZES]
    failed = partial(_failed, GapRow, names=("gap", "learning_gap", "calibration_gap"))
    return _run("theory_gap", GapRow, jobs, gap_job, failed, folder, **options)


def gap_job(job: GapJob, settings: TheorySettings) -> GapRow:
    """One row."""
    rng, world = np.random.default_rng([3, job.n, job.seed]), population(2, settings.pool)
    center, best = hard_context(settings)
    shape = Scenario().learn(Samples(world.draw(job.n, rng)[0], center, world.problem, settings.alpha)).set
    calibrated = conformal_radius(shape.scores(world.draw(job.n, rng)[0]), settings.alpha)
    recalibrated, true = (
        float(decide(world.problem, shape, radius, center).cost_bound[0])
        for radius in (calibrated, world.radius(shape, settings.alpha))
    )
    return GapRow(job.n, job.seed, "done", recalibrated - best, true - best, recalibrated - true, "")


# --- what the three share ---------------------------------------------------------------------------------


def _run(
    name: str,
    row_type: type[Any],
    jobs: Sequence[Any],
    work: Callable[..., Any],
    failed: Callable[[Any, str], Any],
    folder: Path,
    *,
    settings: TheorySettings | None = None,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[Any]:
    """Run what `<name>.csv` lacks; see `run_study`."""
    settings = TheorySettings() if settings is None else settings
    place = {job: position for position, job in enumerate(jobs)}
    experiment = Experiment(
        name=name,
        row_type=row_type,
        settings=settings,
        work=partial(work, settings=settings),
        failed=failed,
        order=lambda row: (place.get(row.job, len(place)), row.seed),
        about=_about,
    )
    rows = experiment.run(jobs, folder, workers=workers, report=report)
    return [row for row in rows if row.job in place]


def _failed(row_type: type[Any], job: Any, reason: str, *, names: tuple[str, ...]) -> Any:
    return row_type(**vars(job), status="failed", **dict.fromkeys(names, np.nan), detail=reason)


def _about(rows: Sequence[Any]) -> dict[str, object]:
    seeds = sorted({row.seed for row in rows})
    return {"command": f"polyhedge reproduce theory --seeds {len(seeds)}", "seeds": seeds}
