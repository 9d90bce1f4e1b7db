"""Seconds to learn a set, against the samples n, the outcomes d and the facets K, and against other ways.

*shared*: one set for all learning contexts, what the library does; the rival searches facets with SciPy on the same
objective. *single*: one context, where the problem is a value-at-risk minimisation; the rivals are the paper's
mixed-integer program and the mixed-integer linear one, as one would hand it to SciPy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhedge.calibration import conformal_rank
from polyhedge.learners import Auto, Descent, Learner, OneSidedBox, Samples, Scenario
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Polyhedron
from polyhedge_study.inside import Array
from polyhedge_study.learners.miqcp import MIQCP
from polyhedge_study.speed.cases import ALPHA
from polyhedge_study.speed.growth import GrowthPoint
from polyhedge_study.tasks import synthetic_task

__all__ = ["METHODS", "LearningMethod", "LearningRow", "LearningRun", "LearningSettings", "run_learning"]

logger = logging.getLogger(__name__)

_FACETS_SEARCHED = 4
"""The paper's K."""
_OUT_OF_TIME = "out of time"


@dataclass(frozen=True)
class LearningSettings:
    """What is timed.

    Attributes
    ----------
    sizes : learning samples n, for d = 2 outcomes; rivals stop where the time limit stops them.
    outcomes : outcomes d, for `n_fixed` samples.
    facets : facets K, for d = 5 outcomes and `n_fixed` samples.
    n_fixed : samples where n does not vary.
    limit : seconds for one call.
    seed : of all draws.
    """

    sizes: tuple[int, ...] = (100, 300, 1000, 3000, 10_000)
    outcomes: tuple[int, ...] = (2, 3, 5, 8)
    facets: tuple[int, ...] = (6, 12, 24, 48)
    n_fixed: int = 300
    limit: float = 30.0
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> LearningSettings:
        """Small sizes and at most 15 seconds a call: about two minutes."""
        return cls(sizes=(50, 100, 200), outcomes=(2, 3), facets=(6, 12), n_fixed=100, limit=15.0, seed=seed)


@dataclass(frozen=True)
class LearningRow:
    """One method on one learning split.

    Attributes
    ----------
    mode : "shared" or "single".
    parameter : which of n, d, K varies in this row's curve.
    method, n, d, K : K is 0 where the method chooses the facets itself.
    seconds : of the call.
    objective : the learning objective it reached; `lower_bound` is what it proves, -inf for nothing.
    reason : why there is no time, or why the call ended early.
    """

    mode: str
    parameter: str
    method: str
    n: int
    d: int
    K: int
    seconds: float
    objective: float
    lower_bound: float
    reason: str = ""


@dataclass(frozen=True)
class LearningRun:
    """All rows with what made them."""

    settings: LearningSettings
    machine: dict[str, Any]
    rows: tuple[LearningRow, ...] = ()

    @property
    def growth(self) -> tuple[GrowthPoint, ...]:
        """The rows as points of curves; a call that the limit stopped is no measure of growth."""
        fixed = {"n": "d = 2", "d": f"n = {self.settings.n_fixed}", "K": f"d = 5, n = {self.settings.n_fixed}"}
        return tuple(
            GrowthPoint(
                row.method,
                row.parameter,
                getattr(row, row.parameter),
                row.seconds,
                f"{fixed[row.parameter]}, {row.mode}",
                row.reason,
            )
            for row in self.rows
        )


@dataclass(frozen=True, eq=False)
class Data:
    """What a learner sees: residuals (n, d), predictions, the problem, and a time limit."""

    residuals: Array
    centers: Array
    problem: DecisionProblem
    K: int
    limit: float


@dataclass(frozen=True)
class Learned:
    """Objective, lower bound and why the search ended early."""

    objective: float
    lower_bound: float = -np.inf
    reason: str = ""


@dataclass(frozen=True)
class LearningMethod:
    """A way to learn: its name, where it applies, and the call."""

    name: str
    curves: tuple[tuple[str, str], ...]
    learn: Callable[[Data], Learned]


def _ours(make: Callable[[Data], Learner]) -> Callable[[Data], Learned]:
    def learn(data: Data) -> Learned:
        result = make(data).learn(Samples(data.residuals, data.centers, data.problem, ALPHA), random_state=0)
        stopped = _OUT_OF_TIME if result.status.name == "STOPPED_EARLY" else ""
        return Learned(result.objective, result.lower_bound, stopped)

    return learn


def _by_powell(data: Data) -> Learned:
    """Search normals and offsets of few facets for the least learning objective, without gradients."""
    from scipy.optimize import minimize

    objective = Samples(data.residuals, data.centers, data.problem, ALPHA)
    start = OneSidedBox().learn(Samples(data.residuals, data.centers, data.problem, ALPHA), random_state=0).set
    assert isinstance(start, Polyhedron)
    W0, b0 = start.W[:_FACETS_SEARCHED], start.b[:_FACETS_SEARCHED]
    deadline = time.perf_counter() + data.limit

    def value(x: Array) -> float:
        if time.perf_counter() > deadline:
            raise TimeoutError
        W = x[: W0.size].reshape(W0.shape)
        shape = Polyhedron(W, x[W0.size :]) if (np.abs(W).max(axis=1) > 1e-9).all() else start
        cost = objective.value(shape)
        seen.append(cost if np.isfinite(cost) else 1e9)  # Powell's method takes no infinity
        return seen[-1]

    seen: list[float] = []
    try:
        minimize(value, np.concatenate([W0.ravel(), b0]), method="Powell")
    except TimeoutError:
        return Learned(min(seen), reason=_OUT_OF_TIME)
    return Learned(min(seen))


def _by_milp(data: Data) -> Learned:
    """Solve min (c + f)'z + v  s.t.  v >= z'e_j - M (1 - t_j),  sum t >= c_n,  z in the simplex,  t binary."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    (n, d), pieces = data.residuals.shape, data.problem.structure.pieces
    cost = pieces.p[0] + pieces.Q[0].T @ data.centers[0]
    big = data.residuals.max(axis=1) - data.residuals.min()
    rows = np.hstack([data.residuals @ pieces.Q[0], -np.ones((n, 1)), np.diag(big)])
    counted = np.concatenate([np.zeros(d + 1), np.ones(n)])
    whole = np.concatenate([np.ones(d), np.zeros(n + 1)])
    solution = milp(
        np.concatenate([cost, [1.0], np.zeros(n)]),
        constraints=[
            LinearConstraint(rows, ub=big),
            LinearConstraint(counted[None], lb=conformal_rank(n, ALPHA)),
            LinearConstraint(whole[None], lb=1.0, ub=1.0),
        ],
        bounds=Bounds(
            np.concatenate([np.zeros(d), [-np.inf], np.zeros(n)]), np.concatenate([np.ones(d), [np.inf], np.ones(n)])
        ),
        integrality=np.concatenate([np.zeros(d + 1), np.ones(n)]),
        options={"time_limit": data.limit},
    )
    if solution.x is None:
        raise RuntimeError(solution.message)
    return Learned(float(solution.fun), float(solution.mip_dual_bound), "" if solution.status == 0 else _OUT_OF_TIME)


_SHARED = (("shared", "n"), ("shared", "d"))
_SINGLE = (("single", "n"),)

METHODS = (
    LearningMethod("Descent", (*_SHARED, ("shared", "K")), _ours(lambda data: Descent(n_facets=data.K or None))),
    LearningMethod("Auto", _SHARED, _ours(lambda data: Auto())),
    LearningMethod("Scenario", (*_SHARED, *_SINGLE), _ours(lambda data: Scenario(time_limit=data.limit))),
    LearningMethod("SciPy Powell", (("shared", "n"),), _by_powell),
    LearningMethod("SciPy milp", _SINGLE, _by_milp),
    LearningMethod("MIQCP (SCIP)", _SINGLE, _ours(lambda data: MIQCP(time_limit=data.limit))),
)

Report = Callable[[LearningRun, str], None]


def run_learning(
    settings: LearningSettings,
    machine: dict[str, Any],
    *,
    methods: Sequence[LearningMethod] = METHODS,
    report: Report | None = None,
) -> LearningRun:
    """Time every method along its curves; where the limit stops one, larger sizes are left out with that reason."""
    say: Report = report if report is not None else lambda run, text: None
    run, stopped = LearningRun(settings, machine), set()
    for mode, parameter, n, d, K in _points(settings):
        data = _draw(n, d, K, mode, settings)
        for method in methods:
            curve = method.name, mode, parameter
            if (mode, parameter) not in method.curves:
                continue
            say(run, f"{method.name}, {mode}, n = {n}, d = {d}" + (f", K = {K}" if K else ""))
            row = LearningRow(mode, parameter, method.name, n, d, K, np.nan, np.nan, -np.inf)
            if curve in stopped:
                row = replace(row, reason="not run: out of time at a smaller size")
            else:
                row = _timed(method, data, row)
            if row.reason:
                stopped.add(curve)
            run = LearningRun(settings, machine, (*run.rows, row))
    say(run, "")
    return run


def _points(settings: LearningSettings) -> list[tuple[str, str, int, int, int]]:
    fixed = settings.n_fixed
    points = [("shared", "n", n, 2, 0) for n in settings.sizes]
    points += [("shared", "d", fixed, d, 0) for d in settings.outcomes]
    points += [("shared", "K", fixed, 5, K) for K in settings.facets]
    return points + [("single", "n", n, 2, 0) for n in settings.sizes]


def _draw(n: int, d: int, K: int, mode: str, settings: LearningSettings) -> Data:
    task = synthetic_task(settings.seed, "linear", n_outcomes=d, sizes=(1200, n, 10, 10))
    task.predictor.fit(*task.rows("train"))
    X, Y = task.rows("learn")
    centers = np.asarray(task.predictor.predict(X))
    planned = centers if mode == "shared" else centers.mean(axis=0, keepdims=True)
    return Data(Y - centers, planned, task.problem, K, settings.limit)


def _timed(method: LearningMethod, data: Data, row: LearningRow) -> LearningRow:
    began = time.perf_counter()
    try:
        learned = method.learn(data)
    except Exception as error:  # a method that fails is a row with its reason
        logger.debug("%s failed", method.name, exc_info=error)
        return replace(row, reason=" ".join(str(error).split()) or type(error).__name__)
    seconds = time.perf_counter() - began
    return replace(
        row, seconds=seconds, objective=learned.objective, lower_bound=learned.lower_bound, reason=learned.reason
    )
