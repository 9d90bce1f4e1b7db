"""How exact and approximate learners scale with the learning split: the paper's Table 1, and more.

Two modes. *single*: one context, the mean prediction of the learning split, which is how we read the paper's table.
*shared*: one set for all learning contexts, which is what the method uses in the end. For each seed the predictor,
the calibration and the test split stay the same for all n, and smaller learning splits are parts of larger ones.

Every set is recalibrated on the calibration split before it is evaluated; the test split only evaluates.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from polyhedge._files import sole_writer
from polyhedge._validation import Array
from polyhedge.calibration import conformal_radius
from polyhedge.learners import MIQCP, LearnResult, Samples
from polyhedge.learners.result import unless_interrupted
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide, decide_knowing
from polyhedge_study.jobs import Progress
from polyhedge_study.machine import environment
from polyhedge_study.scaling_methods import METHODS, MODES, Method, ScalingSettings
from polyhedge_study.scaling_rows import ScalingRow, ScalingStore
from polyhedge_study.tasks import synthetic_task

__all__ = ["ScalingRun", "run_scaling"]

logger = logging.getLogger(__name__)

_LEARN_ROWS = 600
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
    n_known : rows that an earlier, unfinished run had left.
    """

    settings: ScalingSettings
    machine: dict[str, Any]
    rows: tuple[ScalingRow, ...]
    left_out: tuple[str, ...]
    n_known: int = 0


def run_scaling(
    settings: ScalingSettings,
    *,
    folder: Path | None = None,
    stem: str = "scaling",
    methods: Iterable[Method] = METHODS,
    report: Callable[[Progress], None] | None = None,
) -> ScalingRun:
    """Run every method on every size and seed.

    Parameters
    ----------
    settings : ScalingSettings
    folder, stem : Path and str, optional
        Where `<stem>.csv` (one row a run, whole after each) and `<stem>.json` (settings, machine) are kept. Rows
        there that were made with the same settings on the same machine are not run again.
    methods : the methods to run.
    report : called before each run and at the end.

    Returns
    -------
    ScalingRun
    """
    machine, began = environment(), time.perf_counter()
    methods = tuple(methods)
    usable = [method for method in methods if not method.missing()]
    todo = [
        _Run(mode, n, method, seed)
        for seed in range(settings.seeds)
        for n in settings.sizes
        for mode in MODES
        for method in usable
        if mode in method.limit
    ]
    with ExitStack() as stack:
        store = None
        if folder is not None:
            store = ScalingStore(folder, stem, settings, machine)
            stack.enter_context(sole_writer(store.table.path))
        rows = {} if store is None else {row.key: row for row in store.known()}
        n_known = len(rows)
        n_late = _run_all(todo, rows, settings, began, store, report)
    return ScalingRun(settings, machine, tuple(rows.values()), _left_out(methods, settings, n_late), n_known)


def _run_all(
    todo: Sequence[_Run],
    rows: dict[tuple[str, int, str, int], ScalingRow],
    settings: ScalingSettings,
    began: float,
    store: ScalingStore | None,
    report: Callable[[Progress], None] | None,
) -> int:
    """Add the rows that are missing; how many runs there was no time for."""
    n_late = 0
    data: _Data | None = None
    for position, run in enumerate(todo):
        if run.key in rows:
            continue
        left = settings.budget - (time.perf_counter() - began)
        if report is not None:
            report(Progress(len(rows), len(todo), run.label, min(_forecast(todo[position:], rows, settings), left)))
        if left < 1.0:
            n_late += 1
            continue
        if data is None or data.seed != run.seed:
            data = _draw(settings, run.seed)
        rows[run.key] = _evaluate(run, data, settings, min(run.limit(settings), left))
        if store is not None:
            store.table.append(rows[run.key])
    if report is not None:
        report(Progress(len(rows), len(todo), "", 0.0))
    return n_late


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


@dataclass(frozen=True)
class _Run:
    mode: str
    n: int
    method: Method
    seed: int

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self.mode, self.n, self.method.name, self.seed

    @property
    def label(self) -> str:
        return f"seed {self.seed}, n = {self.n}, {self.mode}: {self.method.name}"

    def limit(self, settings: ScalingSettings) -> float:
        return float(getattr(settings, self.method.limit[self.mode]))


def _forecast(
    todo: Iterable[_Run], rows: dict[tuple[str, int, str, int], ScalingRow], settings: ScalingSettings
) -> float:
    """Seconds for the runs ahead: as long as the same run took with other seeds, else a tenth of the limit."""
    known: dict[tuple[str, int, str], list[float]] = {}
    for row in rows.values():
        known.setdefault((row.mode, row.n, row.method), []).append(row.seconds)
    return sum(
        float(np.mean(known.get(run.key[:3], [run.limit(settings) / 10]))) for run in todo if run.key not in rows
    )


@dataclass(frozen=True, eq=False)
class _Data:
    """Residuals and predictions of one seed (residuals only: calibrate), and the test split's mean nominal cost."""

    seed: int
    problem: DecisionProblem
    learn: tuple[Array, Array]
    calibrate: Array
    test: tuple[Array, Array]
    test_nominal: float


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
    return _Data(seed, task.problem, split("learn"), split("calibrate")[0], test, nominal)


def _evaluate(run: _Run, data: _Data, settings: ScalingSettings, limit: float) -> ScalingRow:
    residuals, centers = data.learn[0][: run.n], data.learn[1][: run.n]
    centers = centers.mean(axis=0)[None] if run.mode == "single" else centers
    learner, planned = run.method.make(settings, limit, run.n), len(centers)
    if isinstance(learner, MIQCP) and run.mode == "shared":
        planned = min(settings.shared_contexts, run.n)
        learner = replace(learner, contexts=planned)
    objective = Samples(residuals, centers, data.problem, settings.alpha)
    problem = data.problem.labelled()  # what an earlier run found out would make this one look faster than it is
    began = time.perf_counter()
    try:
        result = learner.learn(Samples(residuals, centers, problem, settings.alpha), random_state=run.seed)
    except (ValueError, RuntimeError) as error:
        logger.warning("%s failed: %s", run.label, error)
        return _failed(run, limit, len(centers), planned, time.perf_counter() - began, error)
    seconds = time.perf_counter() - began
    unless_interrupted(result)
    value, fresh = objective.value(result.set), _on_fresh_data(result, data, objective)
    lower = result.lower_bound if planned == len(centers) else -np.inf
    return ScalingRow(
        *run.key,
        status=result.status.name,
        seconds=seconds,
        limit=limit,
        n_contexts=len(centers),
        planned_contexts=planned,
        objective=value,
        lower_bound=lower,
        gap=value - lower,
        certified=bool(value - lower <= settings.tolerance * abs(value) + _ROUNDING),
        nominal=objective.nominal_cost,
        recalibrated=fresh.recalibrated,
        test_cost=fresh.test_cost,
        test_premium=fresh.test_premium,
        test_coverage=fresh.test_coverage,
        detail=result.detail,
    )


def _failed(run: _Run, limit: float, n_contexts: int, planned: int, seconds: float, error: Exception) -> ScalingRow:
    return ScalingRow(
        *run.key,
        status="FAILED",
        seconds=seconds,
        limit=limit,
        n_contexts=n_contexts,
        planned_contexts=planned,
        objective=np.nan,
        lower_bound=-np.inf,
        gap=np.inf,
        certified=False,
        nominal=np.nan,
        recalibrated=np.nan,
        test_cost=np.nan,
        test_premium=np.nan,
        test_coverage=np.nan,
        detail=f"{type(error).__name__}: {error}",
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
