"""The two guarantees side by side: a set for every decision, and a plan guarded for the one that is taken.

Both share data, predictor and splits of a seed, so that differences are paired. The bound of a seed whose test rows
happen to be covered more often is higher, and lower where less often; `shift` is what brings the bound to the promised
share on the test rows, so that bounds can be compared at equal coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

from polyhedge import RobustDecider
from polyhedge._validation import Array, check_count
from polyhedge.calibration import conformal_rank
from polyhedge.data import synthetic_mean
from polyhedge.robust import decide_knowing
from polyhedge_study.experiment import Experiment
from polyhedge_study.generalisation import Setting
from polyhedge_study.grid import Grid
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.tasks import ENERGY_SIZES

__all__ = ["SETTINGS", "GuaranteeJob", "GuaranteeRow", "guarantee_grid", "guarantee_jobs", "run_guarantees"]

_MORE = (1200, 500, 500, 1000)
SETTINGS = {
    setting.name: setting
    for setting in (
        *(Setting(task) for task in ("linear", "quadratic", "newsvendor")),
        Setting("energy", sizes=ENERGY_SIZES),
        *(Setting("linear", d, _MORE) for d in (5, 10, 20)),
        Setting("newsvendor", 5, _MORE),
    )
}
"""The settings that are compared, by name."""


@dataclass(frozen=True)
class GuaranteeSettings:
    """What all rows share: the level."""

    alpha: float = 0.1


@dataclass(frozen=True)
class GuaranteeJob:
    """One guarantee in one setting with one seed."""

    setting: str
    guarantee: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.setting}, {self.guarantee}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Only seeds take the same time."""
        return f"{self.setting} {self.guarantee}"


@dataclass(frozen=True)
class GuaranteeRow:
    """What a guarantee gives there.

    Attributes
    ----------
    premium : mean bound minus the cost of knowing the mean outcome (of trusting the prediction where it is not known).
    shift : what to add to the bounds so that the promised share of test rows keeps them.
    realised : mean cost of the decisions.
    held : share of test rows that cost no more than their bound.
    seconds : CPU time of the fit.
    """

    setting: str
    guarantee: str
    seed: int
    premium: float
    shift: float
    realised: float
    held: float
    seconds: float
    detail: str

    @property
    def job(self) -> GuaranteeJob:
        """The job that made it."""
        return GuaranteeJob(self.setting, self.guarantee, self.seed)


def guarantee_jobs(names: Sequence[str] = (), seeds: int = 5, first_seed: int = 0) -> list[GuaranteeJob]:
    """Both guarantees in the named settings (none named: in all).

    Examples
    --------
    >>> [job.label for job in guarantee_jobs(["energy, d = 2, n = 160"], seeds=1)]
    ['energy, d = 2, n = 160, cost, seed 0', 'energy, d = 2, n = 160, outcome, seed 0']
    """
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        raise ValueError(f"setting must be one of {'; '.join(SETTINGS)}; got {', '.join(map(repr, unknown))}.")
    check_count(seeds, "seeds", minimum=1)
    chosen = [name for name in SETTINGS if not names or name in names]
    every = range(first_seed, first_seed + seeds)
    return [GuaranteeJob(name, kind, seed) for name in chosen for seed in every for kind in ("cost", "outcome")]


def run_guarantees(
    jobs: Sequence[GuaranteeJob],
    folder: Path,
    *,
    alpha: float = 0.1,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[GuaranteeRow]:
    """Run what `guarantees.csv` in the folder lacks; return all its rows in order."""
    settings = GuaranteeSettings(alpha)
    experiment = Experiment(
        name="guarantees",
        row_type=GuaranteeRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=_failed,
        order=lambda row: (list(SETTINGS).index(row.setting), row.guarantee, row.seed),
        about=lambda rows: {"command": "polyhedge reproduce guarantees"},
    )
    return experiment.run(jobs, folder, workers=workers or Workers(), report=report)


def run_job(job: GuaranteeJob, settings: GuaranteeSettings) -> GuaranteeRow:
    """One row."""
    task = SETTINGS[job.setting].make(job.seed)
    decider = RobustDecider(
        task.problem, task.predictor, alpha=settings.alpha, random_state=job.seed, guarantee=job.guarantee
    )
    parts = {name: getattr(task.split, name) for name in ("train", "learn", "calibrate")}
    before = process_time()
    decider.fit(task.X, task.Y, **parts)
    seconds = process_time() - before
    X, Y = task.X[task.test], task.Y[task.test]
    decisions = decider.decide(X)
    costs = task.problem.evaluate(decisions.flat, Y)
    ideal = decider.centers(X) if job.setting.startswith("energy") else synthetic_mean(X)
    premium = decisions.cost_bound.mean() - decide_knowing(task.problem, ideal)[1].mean()
    excess = costs - decisions.cost_bound
    detail = decider.plan_.why() if job.guarantee == "cost" else decider.learn_result_.detail
    return GuaranteeRow(
        setting=job.setting,
        guarantee=job.guarantee,
        seed=job.seed,
        premium=float(premium),
        shift=_shift(excess, settings.alpha),
        realised=float(costs.mean()),
        held=float((excess <= 0).mean()),
        seconds=seconds,
        detail=" ".join(detail.split()),
    )


def _shift(excess: Array, alpha: float) -> float:
    """The order statistic of the excesses at the promised share."""
    return float(np.sort(excess)[conformal_rank(len(excess), alpha) - 1])


def _failed(job: GuaranteeJob, reason: str) -> GuaranteeRow:
    n = float("nan")
    return GuaranteeRow(job.setting, job.guarantee, job.seed, n, n, n, n, n, f"failed: {reason}")


def guarantee_grid(rows: Sequence[GuaranteeRow]) -> Grid:
    """Means over the seeds that both have, and paired differences with their standard errors."""
    lines = [_line(name, [row for row in rows if row.setting == name]) for name in SETTINGS]
    return Grid(
        "The decision that is taken, beside every decision at once",
        ("setting", "seeds", "plan", "set", "plan - set", "equal coverage", "held", "cost - set's", "fit"),
        tuple(line for line in lines if line),
        "plan, set: mean premium of either guarantee. equal coverage: the plan's premium if exactly the promised share "
        "of test rows kept their bounds. held: share of rows that keep the plan's bound. cost - set's: realised cost, "
        "paired. fit: CPU time, in units of the set's.",
    )


def _line(name: str, rows: Sequence[GuaranteeRow]) -> tuple[str, ...]:
    by = {(row.guarantee, row.seed): row for row in rows if np.isfinite(row.premium)}
    seeds = sorted(seed for kind, seed in by if kind == "cost" and ("outcome", seed) in by)
    if not seeds:
        return ()
    plan, others = ([by[kind, seed] for seed in seeds] for kind in ("cost", "outcome"))

    def mean(values: Sequence[float]) -> str:
        return f"{np.mean(values):.3f}"

    def difference(of: str) -> str:
        gaps = np.array([getattr(p, of) - getattr(s, of) for p, s in zip(plan, others, strict=True)])
        error = f" ± {gaps.std(ddof=1) / np.sqrt(len(gaps)):.3f}" if len(gaps) > 1 else ""
        return f"{gaps.mean():+.3f}{error}"

    seconds = [sum(row.seconds for row in rows) for rows in (plan, others)]
    return (
        name,
        str(len(seeds)),
        mean([p.premium for p in plan]),
        mean([s.premium for s in others]),
        difference("premium"),
        mean([p.premium + p.shift for p in plan]),
        mean([p.held for p in plan]),
        difference("realised"),
        f"{seconds[0] / seconds[1]:.1f}",
    )
