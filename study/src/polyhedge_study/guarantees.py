"""The promise about the decision that is taken, by every method that makes it, and the set that guards every decision.

All methods share data, predictor and splits of a seed, so that differences are paired. The bound of a seed whose test
rows happen to be covered more often is higher, and lower where less often; `equal` is the premium if the test rows
themselves had set the radius, so that methods can be compared at equal coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

from polyhedge.data import synthetic_mean
from polyhedge.robust import decide_knowing
from polyhedge_study.baselines.fitted import fit_predictor
from polyhedge_study.experiment import Experiment
from polyhedge_study.generalisation import Setting
from polyhedge_study.guarded.methods import GUARDED
from polyhedge_study.inside import check_alpha, check_count
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.tasks import ENERGY_SIZES

__all__ = [
    "OF_THE_PAPER",
    "SETTINGS",
    "GuaranteeJob",
    "GuaranteeRow",
    "find_guarded",
    "guarantee_jobs",
    "run_guarantees",
]

_MORE = (1200, 500, 500, 1000)
"""More outcomes need more rows to learn from and to calibrate on than the paper's 300."""
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
OF_THE_PAPER = {setting.task: name for name, setting in SETTINGS.items() if setting.n_outcomes == 2}
"""Those of the paper's tasks, by task."""


@dataclass(frozen=True)
class GuaranteeSettings:
    """What all rows share: the level."""

    alpha: float = 0.1

    def __post_init__(self) -> None:
        check_alpha(self.alpha)


@dataclass(frozen=True)
class GuaranteeJob:
    """One method in one setting with one seed."""

    setting: str
    method: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.setting}, {GUARDED[self.method].name}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Only seeds take the same time."""
        return f"{self.setting} {self.method}"


@dataclass(frozen=True)
class GuaranteeRow:
    """What a method gives there.

    Attributes
    ----------
    premium : mean bound minus the cost of knowing the mean outcome; where that is not known, of trusting the prediction
        of a model that has seen the training rows.
    equal : the same if the test rows had set the radius.
    realised : mean cost of the decisions.
    covered : share of test rows within the radius: inside the set, or, for one decision, at most at its bound.
    held : share of test rows that cost no more than their bound.
    n_calibrate, n_test : rows that set the radius, and that are counted.
    seconds : CPU time of everything but the test rows' costs.
    """

    setting: str
    method: str
    seed: int
    status: str
    premium: float
    equal: float
    realised: float
    covered: float
    held: float
    n_calibrate: int
    n_test: int
    seconds: float
    detail: str

    @property
    def job(self) -> GuaranteeJob:
        """The job that made it."""
        return GuaranteeJob(self.setting, self.method, self.seed)


def find_guarded(keys: Sequence[str] = ()) -> list[str]:
    """Keys of the named methods in the order of the tables (none named: of all that need no cost that separates)."""
    unknown = [key for key in keys if key not in GUARDED]
    if unknown:
        raise ValueError(f"method must be one of {', '.join(GUARDED)}; got {', '.join(map(repr, unknown))}.")
    return [key for key, row in GUARDED.items() if (key in keys if keys else not row.needs)]


def guarantee_jobs(
    names: Sequence[str] = (), seeds: int = 5, first_seed: int = 0, methods: Sequence[str] = ()
) -> list[GuaranteeJob]:
    """The named methods in the named settings (none named: all), seed by seed.

    Examples
    --------
    >>> jobs = guarantee_jobs(["energy, d = 2, n = 160"], seeds=1, methods=["polyhedge", "polyhedge-set"])
    >>> [job.label for job in jobs]
    ['energy, d = 2, n = 160, Polyhedge, seed 0', 'energy, d = 2, n = 160, Polyhedge, set, seed 0']
    """
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        raise ValueError(f"setting must be one of {'; '.join(SETTINGS)}; got {', '.join(map(repr, unknown))}.")
    check_count(seeds, "seeds", minimum=1)
    chosen, keys = [name for name in SETTINGS if not names or name in names], find_guarded(methods)
    every = range(first_seed, first_seed + seeds)
    return [GuaranteeJob(name, key, seed) for seed in every for name in chosen for key in keys]


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
        order=lambda row: (list(SETTINGS).index(row.setting), list(GUARDED).index(row.method), row.seed),
        about=lambda rows: {"command": "polyhedge reproduce guarantees"},
    )
    return experiment.run(jobs, folder, workers=workers, report=report)


def run_job(job: GuaranteeJob, settings: GuaranteeSettings) -> GuaranteeRow:
    """One row."""
    task = SETTINGS[job.setting].make(job.seed)
    _ = task.problem.pieces, task.problem.feasible  # compiled now, not on the method's time
    before = process_time()
    bounded = GUARDED[job.method].run(task, settings.alpha, job.seed)
    seconds = process_time() - before
    X = task.rows("test")[0]
    ideal = fit_predictor(task).centers("test") if task.name == "energy" else synthetic_mean(X)
    ideal_cost = float(decide_knowing(task.problem, ideal)[1].mean())
    costs = task.problem.evaluate(bounded.z, task.rows("test")[1])
    return GuaranteeRow(
        job.setting,
        job.method,
        job.seed,
        "done",
        premium=float(bounded.bound.mean()) - ideal_cost,
        equal=float(bounded.equal.mean()) - ideal_cost,
        realised=float(costs.mean()),
        covered=bounded.covered,
        held=float((costs <= bounded.bound).mean()),
        n_calibrate=len(task.split.calibrate),
        n_test=len(task.test),
        seconds=seconds,
        detail=bounded.detail,
    )


def _failed(job: GuaranteeJob, reason: str) -> GuaranteeRow:
    n = float("nan")
    return GuaranteeRow(job.setting, job.method, job.seed, "failed", n, n, n, n, n, 0, 0, n, reason)
