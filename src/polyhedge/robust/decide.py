"""Robust decisions for many contexts: set x problem x predictions -> decisions with bounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyhedge._validation import Array, as_rows
from polyhedge.problems import DecisionProblem
from polyhedge.problems.segment import as_segment
from polyhedge.problems.vertices import decision_vertices
from polyhedge.robust.adversary import Adversary
from polyhedge.robust.along_segment import decide_along, support_along
from polyhedge.robust.counterpart import Counterpart, CounterpartSolution
from polyhedge.robust.pool import Pooled, VertexCosts, decide_from_pool
from polyhedge.robust.scenarios import decide_by_scenarios
from polyhedge.robust.support import form_at, is_empty, maximise
from polyhedge.sets import Polyhedron, UncertaintySet
from polyhedge.solvers.program import Status

_WORTH_POOLING = 64
_NO_BOUND = {Status.UNBOUNDED_SET: np.inf, Status.UNBOUNDED: -np.inf}


@dataclass(frozen=True)
class Decisions:
    """Robust decisions for N contexts and what proves them.

    Attributes
    ----------
    z : (N, *shape of the decision variable)
        The decisions; NaN where there is none. Where several are optimal, which of them is returned
        may depend on the other contexts of the call; the bound does not.
    cost_bound : (N,)
        Worst-case cost over the set: the realised cost is below it whenever the outcome is in the set.
    worst_outcome : (N, n_outcomes)
        An outcome of the set at which the bound is attained.
    active_facets : (N, n_facets) of bool
        Facets of a polyhedral set that are tight at the worst outcome (no columns for other sets).
    status : (N,) of Status
        How each solve ended.
    gap : (N,)
        Proven distance between the bound and the least possible worst-case cost.
    """

    z: Array
    cost_bound: Array
    worst_outcome: Array
    active_facets: NDArray[np.bool_]
    status: NDArray[np.object_]
    gap: Array
    detail: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.cost_bound)

    @property
    def is_optimal(self) -> NDArray[np.bool_]:
        """Which decisions are proven optimal."""
        return np.array([status is Status.OPTIMAL for status in self.status], dtype=bool)

    def complaint(self) -> str:
        """What went wrong in which share of the contexts; empty if nothing did."""
        counts = Counter(str(status) for status in self.status if status is not Status.OPTIMAL)
        parts = [f"{count} of {len(self)} decisions: {message}" for message, count in counts.most_common()]
        details = sorted({text for text in self.detail if text})
        return ". ".join(parts + details[:3])


def decide(problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array) -> Decisions:
    """The exact robust decision around each prediction.

    Parameters
    ----------
    problem : what is decided.
    shape, radius : the set of residuals around each prediction.
    centers : (N, n_outcomes) predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from polyhedge.problems import simplex_linear
    >>> from polyhedge.sets import Box
    >>> found = decide(simplex_linear([0.0, 0.0]), Box([1.0, 3.0]), 1.0, np.array([[0.0, 0.0]]))
    >>> found.z.round(6), found.cost_bound.round(6)
    (array([[1., 0.]]), array([1.]))
    """
    centers = as_rows(centers, "centers", problem.n_outcomes)
    if shape.n_outcomes != problem.n_outcomes:
        raise ValueError(
            f"The set has {shape.n_outcomes} outcome(s) but the problem has {problem.n_outcomes}. They must agree."
        )
    if not np.isfinite(radius):
        raise ValueError(f"radius must be finite, got {radius}. Calibrate with more samples or a larger alpha.")
    found = _along_segment(problem, shape, radius, centers)
    if found is not None:
        return found
    rows = _by_counterpart if problem.pieces is not None else _by_scenarios
    return _collect(problem, shape, radius, centers, [*rows(problem, shape, radius, centers)])


@dataclass(frozen=True)
class _Row:
    z: Array
    value: float
    outcome: Array
    status: Status
    gap: float
    detail: str


def _along_segment(problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array) -> Decisions | None:
    """All contexts in closed form, where decisions lie on a segment; None where they do not."""
    segment = as_segment(problem) if problem.pieces is not None else None
    form = shape.conic_form(radius)
    if segment is None or any(cone.kind == "soc" for cone in form.cones):
        return None
    support = support_along(segment, form)
    if support is None:
        return None
    found = decide_along(segment, support, centers)
    status = np.empty(len(centers), dtype=object)
    status.fill(Status.OPTIMAL)
    return Decisions(
        z=problem.as_given(segment.z0 + found.s[:, None] * (segment.z1 - segment.z0)),
        cost_bound=found.cost_bound,
        worst_outcome=centers + found.worst_residual,
        active_facets=_tight_facets(shape, radius, found.worst_residual),
        status=status,
        gap=np.zeros(len(centers)),
    )


def _by_counterpart(problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array) -> list[_Row]:
    counterpart = Counterpart(problem, shape, radius)
    pooled = _from_pool(problem, counterpart, centers)
    rows = []
    for i, center in enumerate(centers):
        if pooled is not None and not pooled.is_open[i]:
            gap = max(float(pooled.upper[i] - pooled.lower[i]), 0.0)
            outcome = center + pooled.residual[i]
            rows.append(_Row(pooled.z[i], float(pooled.upper[i]), outcome, Status.OPTIMAL, gap, ""))
            continue
        rows.append(_from_counterpart(problem, shape, radius, center, counterpart, counterpart.solve(center)))
    return rows


def _from_pool(problem: DecisionProblem, counterpart: Counterpart, centers: Array) -> Pooled | None:
    """What a pool of decisions and worst cases can certify; None where it does not apply."""
    if len(centers) < _WORTH_POOLING or len(problem.support_rows[0]) or problem.feasible.program.P is not None:
        return None
    if problem.pieces is None or len(problem.pieces) != 1 or not counterpart.parametric.at_zero.is_linear:
        return None
    vertices = decision_vertices(problem)
    if vertices is None:
        return None
    constants = problem.evaluate(vertices, np.zeros((len(vertices), problem.n_outcomes)))
    costs = VertexCosts(constants, problem.pieces.directions(vertices)[:, 0])
    return decide_from_pool(problem, counterpart, costs, centers)


def _from_counterpart(
    problem: DecisionProblem,
    shape: UncertaintySet,
    radius: float,
    center: Array,
    counterpart: Counterpart,
    solution: CounterpartSolution,
) -> _Row:
    nothing = np.full(problem.n_outcomes, np.nan)
    if not solution.status.has_solution:
        status, detail = diagnose(problem, shape, radius, center, solution)
        return _Row(solution.z, _NO_BOUND.get(status, np.nan), nothing, status, np.inf, detail)
    residual = counterpart.worst_residual(solution)
    if np.isfinite(residual).all():
        return _Row(solution.z, solution.value, center + residual, solution.status, solution.gap, "")
    worst = Adversary(problem, shape, radius, center).worst_case(solution.z)
    gap = max(worst.value - solution.value, 0.0) + solution.gap
    return _Row(solution.z, worst.value, worst.outcome, solution.status, gap, "")


def diagnose(
    problem: DecisionProblem,
    shape: UncertaintySet,
    radius: float,
    center: Array,
    solution: CounterpartSolution,
) -> tuple[Status, str]:
    """Tell why a counterpart has no solution: the set, the constraints or the cost."""
    form = form_at(shape, radius, center, problem.support_rows)
    if is_empty(form):
        return Status.EMPTY_SET, "Check the prediction against outcome_support, or recalibrate on more data"
    if solution.status is not Status.INFEASIBLE:
        return solution.status, solution.detail
    axes = np.eye(problem.n_outcomes)
    reach = maximise(form, np.vstack([axes, -axes])).values
    if np.isfinite(reach).all():
        return Status.INFEASIBLE, "No decision satisfies uncertain_constraints for all outcomes of the set"
    direction = np.vstack([axes, -axes])[int(np.argmax(reach))].tolist()
    if isinstance(shape, Polyhedron) and not len(problem.support_rows[0]):
        recession = shape.unbounded_direction()
        direction = direction if recession is None else recession.round(4).tolist()
    return Status.UNBOUNDED_SET, (
        f"The set is unbounded along {direction}, so the worst-case cost is infinite. "
        "Add facets (n_facets >= n_outcomes + 1) or a bounding box"
    )


def _by_scenarios(problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array) -> list[_Row]:
    found = [decide_by_scenarios(problem, shape, radius, center) for center in centers]
    return [_Row(s.z, s.value, s.outcome, s.status, s.gap, s.detail) for s in found]


def _collect(
    problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array, rows: list[_Row]
) -> Decisions:
    outcomes = np.array([row.outcome for row in rows]).reshape(-1, problem.n_outcomes)
    status = np.empty(len(rows), dtype=object)
    status[:] = [row.status for row in rows]
    z = np.array([row.z for row in rows]).reshape(-1, problem.n_decisions) + 0.0  # no negative zeros
    return Decisions(
        z=problem.as_given(z),
        cost_bound=np.array([row.value for row in rows], dtype=float),
        worst_outcome=outcomes,
        active_facets=_tight_facets(shape, radius, outcomes - centers),
        status=status,
        gap=np.array([row.gap for row in rows], dtype=float),
        detail=tuple(row.detail for row in rows),
    )


def _tight_facets(shape: UncertaintySet, radius: float, residuals: Array) -> NDArray[np.bool_]:
    if not isinstance(shape, Polyhedron):
        return np.zeros((len(residuals), 0), dtype=bool)
    slack = radius - shape.b - residuals @ shape.W.T
    scale = np.abs(radius - shape.b) + np.linalg.norm(shape.W, axis=1)
    return np.asarray(slack <= 1e-7 * scale, dtype=bool)
