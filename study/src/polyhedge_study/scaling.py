"""How exact and approximate learners scale with the learning split: the paper's Table 1, and more.

Two modes. *single*: one context, the mean prediction of the learning split, which is how we read the paper's table.
*shared*: one set for all learning contexts, which is what the method uses in the end. For each seed the predictor,
the calibration and the test split stay the same for all n, and smaller learning splits are parts of larger ones.

Every set is recalibrated on the calibration split before it is evaluated; the test split only evaluates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from polyhedge.calibration import conformal_radius
from polyhedge.learners import LearnResult, Samples
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide, decide_knowing
from polyhedge_study.experiment import Experiment
from polyhedge_study.inside import Array
from polyhedge_study.jobs import Progress
from polyhedge_study.learners import nominal_cost
from polyhedge_study.learners.miqcp import MIQCP
from polyhedge_study.machine import environment
from polyhedge_study.scaling_methods import METHODS, MODES, Method, ScalingSettings
from polyhedge_study.scaling_rows import ScalingJob, ScalingRow
from polyhedge_study.tasks import synthetic_task

__all__ = ["ScalingRun", "run_scaling"]

_LEARN_ROWS = 600
"""The paper's largest learning split: smaller sizes are parts of the same draw."""
_LEAST_SECONDS = 1.0
"""A run that has less than this left of the budget is not worth beginning."""
_ROUNDING = 1e-7
"""Absolute gap at which the solvers stop: a relative one means nothing where costs are close to 0."""


@dataclass(frozen=True)
class ScalingRun:
    """All rows of a run with what made them.

    Attributes
    ----------
    settings, machine : what was run, and where.
    rows : in the order in which they were run.
    left_out : why methods or runs are missing, in words.
    n_known : how many of them an earlier run had left.
    """

    settings: ScalingSettings
    machine: dict[str, Any]
    rows: tuple[ScalingRow, ...]
    left_out: tuple[str, ...]
    n_known: int = 0


def run_scaling(
    settings: ScalingSettings,
    folder: Path,
    *,
    stem: str = "scaling",
    methods: Iterable[Method] = METHODS,
    report: Callable[[Progress], None] | None = None,
) -> ScalingRun:
    """Run every method on every size and seed, in this process: each is timed, and workers would disturb one another.

    Parameters
    ----------
    settings : ScalingSettings
    folder, stem : Path and str
        Where `<stem>.csv` (one row a run, whole after each) and `<stem>.json` (settings, machine) are kept. Rows
        there that were made with the same settings on the same machine are not run again.
    methods : which of METHODS to run.
    report : called at the start and after each run.

    Returns
    -------
    ScalingRun
    """
    end, methods = time.perf_counter() + settings.budget, tuple(methods)
    usable = {method.name: method for method in methods if not method.missing()}
    jobs = [
        ScalingJob(mode, n, name, seed)
        for seed in range(settings.seeds)
        for n in settings.sizes
        for mode in MODES
        for name, method in usable.items()
        if mode in method.limit
    ]
    run_now: list[ScalingJob] = []

    def work(job: ScalingJob) -> ScalingRow:
        run_now.append(job)
        method = usable[job.method]
        limit = min(float(getattr(settings, method.limit[job.mode])), max(end - time.perf_counter(), _LEAST_SECONDS))
        return _evaluate(job, method, _draw(settings, job.seed), settings, limit)

    names, sizes, seeds = [method.name for method in METHODS], settings.sizes, range(settings.seeds)
    experiment = Experiment(
        name=stem,
        row_type=ScalingRow,
        settings=settings,
        work=work,
        failed=_failed,
        order=lambda row: (row.seed, sizes.index(row.n), MODES.index(row.mode), names.index(row.method)),
        about=lambda rows: {"seeds": sorted({*seeds, *(row.seed for row in rows)})},
        may_change=("seeds", "budget"),
        timed=True,
    )
    budget = settings.budget - _LEAST_SECONDS
    every, asked = experiment.run(jobs, folder, report=report, budget=budget), set(jobs)
    rows = [row for row in every if row.job in asked]
    left_out = _left_out(methods, settings, len(jobs) - len(rows))
    return ScalingRun(settings, environment(), tuple(rows), left_out, len(rows) - len(run_now))


def _left_out(methods: Iterable[Method], settings: ScalingSettings, n_late: int) -> tuple[str, ...]:
    notes = []
    for method in methods:
        missing = method.missing()
        if missing:
            notes.append(f"{method.name}: not run. {missing}")
            continue
        notes += [f"{method.name}, {mode}: not run, {method.reason}." for mode in MODES if mode not in method.limit]
    if n_late:
        notes.append(f"{n_late} runs did not fit into {settings.budget:.0f} s. Run again to add them.")
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class _Data:
    """Residuals and predictions of one seed (residuals only: calibrate), and the test split's mean nominal cost."""

    problem: DecisionProblem
    learn: tuple[Array, Array]
    calibrate: Array
    test: tuple[Array, Array]
    test_nominal: float


@lru_cache(maxsize=1)
def _draw(settings: ScalingSettings, seed: int) -> _Data:
    # The draws depend on the total number of rows, so it is the same for all sizes.
    n_learn = max(_LEARN_ROWS, *settings.sizes)
    sizes = (settings.n_train, n_learn, settings.n_calibrate, settings.n_test)
    task = synthetic_task(seed, settings.task, sizes=sizes)
    predictor = clone(task.predictor).fit(*task.rows("train"))
    _ = task.problem.pieces, task.problem.feasible  # compiled now, not on the first method's time

    def split(part: str) -> tuple[Array, Array]:
        X, Y = task.rows(part)
        centers = np.asarray(predictor.predict(X))
        return Y - centers, centers

    test = split("test")
    nominal = float(decide_knowing(task.problem, test[1])[1].mean())
    return _Data(task.problem, split("learn"), split("calibrate")[0], test, nominal)


def _evaluate(job: ScalingJob, method: Method, data: _Data, settings: ScalingSettings, limit: float) -> ScalingRow:
    residuals, centers = data.learn[0][: job.n], data.learn[1][: job.n]
    centers = centers.mean(axis=0)[None] if job.mode == "single" else centers
    learner, planned = method.make(settings, limit, job.n), len(centers)
    if isinstance(learner, MIQCP) and job.mode == "shared":
        planned = min(settings.shared_contexts, job.n)
        learner = replace(learner, contexts=planned)
    objective = Samples(residuals, centers, data.problem, settings.alpha)
    problem = data.problem.labelled()  # what an earlier run found out would make this one look faster than it is
    began = time.perf_counter()
    result = learner.learn(Samples(residuals, centers, problem, settings.alpha), random_state=job.seed)
    seconds = time.perf_counter() - began
    value, fresh = objective.value(result.set), _on_fresh_data(result, data, objective)
    lower = result.lower_bound if planned == len(centers) else -np.inf
    return ScalingRow(
        *job,
        status=result.status.name,
        seconds=seconds,
        limit=limit,
        n_contexts=len(centers),
        planned_contexts=planned,
        objective=value,
        lower_bound=lower,
        gap=value - lower,
        certified=bool(value - lower <= settings.tolerance * abs(value) + _ROUNDING),
        nominal=nominal_cost(objective),
        recalibrated=fresh.recalibrated,
        test_cost=fresh.test_cost,
        test_premium=fresh.test_premium,
        test_coverage=fresh.test_coverage,
        detail=result.detail,
    )


def _failed(job: ScalingJob, reason: str) -> ScalingRow:
    n_contexts = 1 if job.mode == "single" else job.n
    return ScalingRow(
        *job,
        status="FAILED",
        seconds=np.nan,
        limit=np.nan,
        n_contexts=n_contexts,
        planned_contexts=n_contexts,
        objective=np.nan,
        lower_bound=-np.inf,
        gap=np.inf,
        certified=False,
        nominal=np.nan,
        recalibrated=np.nan,
        test_cost=np.nan,
        test_premium=np.nan,
        test_coverage=np.nan,
        detail=reason,
    )


@dataclass(frozen=True)
class _Fresh:
    recalibrated: float
    test_cost: float
    test_premium: float
    test_coverage: float


def _on_fresh_data(result: LearnResult, data: _Data, objective: Samples) -> _Fresh:
    """Calibrate on the calibration split, then cost and coverage; nothing flows back to the learner."""
    radius = conformal_radius(result.set.scores(data.calibrate), objective.alpha)
    residuals, centers = data.test
    cost = float(decide(data.problem, result.set, radius, centers).cost_bound.mean())
    return _Fresh(
        recalibrated=objective.cost_at(result.set, radius),
        test_cost=cost,
        test_premium=cost - data.test_nominal,
        test_coverage=float(np.mean(result.set.contains(residuals, radius))),
    )
