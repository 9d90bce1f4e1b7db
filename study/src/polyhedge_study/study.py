"""The paper's study: every method on every task and seed, beside the printed figures.

Files in the results folder
---------------------------
All of them are UTF-8, appear whole or not at all, and hold plain units: the paper prints costs and regrets times
ten, the CSV files do not. An experiment `X` has a tidy table `X.csv` (one row a run, sorted when the run is
finished, so that it does not depend on the order in which runs ended) and a record `X.json`.

`study.csv` : one row for each (task, method, seed); the columns are the fields of `StudyRow`:
    task, method (the key of `METHODS`), seed, status ("done" or "failed"), coverage, volume, worst_case_cost, premium,
    regret, seconds, detail (what a learner chose; the reason where it failed), hull_volume (see `hull_volume.py`). A
    figure that a method does not have, such as the coverage of the oracle, is "nan"; an unbounded volume is "inf".
`study.json` : how the rows were made.
    experiment ("study"), settings (object), machine (`environment()`: platform, processor, cores, python, packages),
    source (fingerprint of the package's files), command (how to run it again), seeds (list of int), tasks (list of
    str), methods (list of objects: key, name, group, guarantee, calibrated_on, paper, extra; see `Method`).
`tables.csv` : one row for each (task, method, metric); the columns are the fields of `TableRow`:
    task, method, name, group, guarantee, metric (coverage, volume, worst_case_cost, premium, regret, hull_volume),
    paper, paper_sd ("nan" where the paper prints nothing), here, sd, se (mean, standard deviation and standard error
    over the seeds), n_done, n_failed, difference (here - paper), z_value (the difference in standard errors of both),
    versus_polyhedge, versus_polyhedge_se (mean paired difference to Polyhedge over common seeds, and its standard
    error), p_value (paired t-test, Holm-corrected within task and metric), best (whether it is the lowest mean among
    guaranteed methods; never for coverage), reason (of a failure).
`tables.md`, `tables.tex` : the same for readers, one table a task. Times are not in them: whatever was interrupted
    and resumed gives the same bytes as what was not.
`times.csv`, `times.md` : task, method, name, paper, paper_at_most, seconds, sd, n_done.
`bubble.png`, `bubble.svg` : coverage, worst-case cost and volume, one panel a task.

`sensitivity.csv` : one row for each (sweep, value, method, seed), the fields of `SensitivityRow`:
    sweep ("d, K = 8", "d, K = 4d", "K", "n / (n + m)"), value (float), method (key), seed, status, coverage, volume,
    worst_case_cost, premium, regret, seconds, detail, hull_volume. With `sensitivity.json` (as `study.json`),
    `sensitivity.md`, `sensitivity.png` and `.svg`.
`theory_coverage.csv`, `theory_reuse.csv`, `theory_gap.csv` : see `theory_runs.py`; each with its `.json`; `theory.md`,
    `theory.png` and `.svg` for all three.
`motivation.png`, `motivation.svg`, `motivation.json` : the first figure, and its numbers (list of objects: name,
    coverage, worst_case_cost, decision, worst_outcome).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from polyhedge_study.experiment import Experiment
from polyhedge_study.inside import check_alpha, check_count
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.measure import Measured
from polyhedge_study.methods import METHODS, POLYHEDGE, QUICK, Method, find_methods
from polyhedge_study.tasks import SYNTHETIC_SIZES, TASKS, Task, make_task, synthetic_task

__all__ = ["StudyJob", "StudyRow", "StudySettings", "nothing", "plain", "run_study", "study_jobs"]


_LONGEST = ("picnn", "picnn-realised", "picnn-steps", POLYHEDGE)
"""Methods that come first in each seed: several times as long as others, and no worker should wait for the last."""


@dataclass(frozen=True)
class StudySettings:
    """What all rows of a study share.

    Attributes
    ----------
    alpha : miscoverage level.
    sizes : rows of train, learn, calibrate and test of the synthetic tasks.
    """

    alpha: float = 0.1
    sizes: tuple[int, ...] = SYNTHETIC_SIZES

    def __post_init__(self) -> None:
        check_alpha(self.alpha)


@dataclass(frozen=True)
class StudyRow:
    """One method on one task and seed; see the head of this module and `Measured`."""

    task: str
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
    def job(self) -> StudyJob:
        """The job that made it."""
        return StudyJob(self.task, self.method, self.seed)


@dataclass(frozen=True)
class StudyJob:
    """One row to be made."""

    task: str
    method: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.task}, {METHODS[self.method].name}, seed {self.seed}"

    @property
    def kind(self) -> str:
        """Methods differ in time much more than seeds do."""
        return f"{self.task} {self.method}"

    @property
    def order(self) -> tuple[int, int, int]:
        """Place in the finished table."""
        return TASKS.index(self.task), list(METHODS).index(self.method), self.seed


def study_jobs(tasks: Sequence[str] = (), methods: Sequence[str] = (), seeds: int = 5) -> list[StudyJob]:
    """All rows of the study, seed by seed, the longest first; none named means all of them.

    Examples
    --------
    >>> [job.label for job in study_jobs(["energy"], ["polyhedge"], seeds=2)]
    ['energy, Polyhedge, set, seed 0', 'energy, Polyhedge, set, seed 1']
    """
    unknown = [name for name in tasks if name not in TASKS]
    if unknown:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {', '.join(map(repr, unknown))}.")
    chosen = [method.key for method in find_methods(tuple(methods))]
    jobs = [
        StudyJob(task, key, seed)
        for seed in range(check_count(seeds, "seeds", minimum=1))
        for task in TASKS
        if not tasks or task in tasks
        for key in chosen
    ]
    return sorted(jobs, key=lambda job: (job.seed, job.method not in _LONGEST))


def run_study(
    jobs: Sequence[StudyJob],
    folder: Path,
    *,
    settings: StudySettings | None = None,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[StudyRow]:
    """Run the jobs that `study.csv` in the folder does not have yet.

    Parameters
    ----------
    jobs : what should be in the table, as from `study_jobs`.
    folder : where `study.csv` and `study.json` are kept; made if it is missing.
    settings : what all rows share; rows of other settings in the folder are an error.
    workers : where the jobs run; by default in this process.
    report : called at the start and after each job.

    Returns
    -------
    list of StudyRow
        All rows of the table, also those of earlier runs, sorted by task, method and seed.
    """
    settings = StudySettings() if settings is None else settings
    experiment = Experiment(
        name="study",
        row_type=StudyRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=failed_row,
        order=lambda row: row.job.order,
        about=_about,
    )
    return experiment.run(jobs, folder, workers=workers, report=report)


def run_job(job: StudyJob, settings: StudySettings) -> StudyRow:
    """One row."""
    return _row(job, "done", METHODS[job.method].run(_task(job, settings), settings.alpha, job.seed))


def failed_row(job: StudyJob, reason: str) -> StudyRow:
    """The row of a method that gave nothing, with the reason."""
    return _row(job, "failed", nothing(reason))


def nothing(reason: str) -> Measured:
    """A measurement without figures."""
    return Measured(np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, detail=reason)


def _row(job: StudyJob, status: str, measured: Measured) -> StudyRow:
    return StudyRow(job.task, job.method, job.seed, status, **plain(measured), detail=measured.detail)


def plain(measured: Measured) -> dict[str, float]:
    """The figures of a measurement as plain floats: a CSV file holds what Python prints."""
    names = ("coverage", "volume", "worst_case_cost", "premium", "regret", "seconds", "hull_volume")
    return {name: float(getattr(measured, name)) for name in names}


def _task(job: StudyJob, settings: StudySettings) -> Task:
    task = make_task(job.task, job.seed) if job.task == "energy" else None
    task = synthetic_task(job.seed, job.task, sizes=settings.sizes) if task is None else task
    _ = task.problem.pieces, task.problem.feasible  # compiled now, not on the method's time
    return task


def _about(rows: Sequence[StudyRow]) -> dict[str, object]:
    """What `study.json` says about the rows themselves."""
    tasks, seeds = {row.task for row in rows}, {row.seed for row in rows}
    keys = {row.method for row in rows}
    return {
        "command": _command(sorted(seeds), [task for task in TASKS if task in tasks], keys),
        "seeds": sorted(seeds),
        "tasks": [task for task in TASKS if task in tasks],
        "methods": [_described(method) for key, method in METHODS.items() if key in keys],
    }


def _described(method: Method) -> dict[str, str]:
    names = ("key", "name", "group", "guarantee", "calibrated_on", "paper", "extra")
    return {name: str(getattr(method, name)) for name in names}


def _command(seeds: list[int], tasks: list[str], keys: set[str]) -> str:
    parts = ["polyhedge reproduce tables", f"--seeds {max(seeds, default=0) + 1}"]
    if len(tasks) < len(TASKS):
        parts += [f"--task {task}" for task in tasks]
    if keys == set(QUICK):
        parts.append("--quick")
    elif len(keys) < len(METHODS):
        parts += [f"--method {key}" for key in METHODS if key in keys]
    return " ".join(parts)
