"""A decision problem as policies see it: its joint cost by pieces, its cost over scenarios, its simplest form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array
from polyhedge.planning.programs import least_by_programs
from polyhedge.planning.residual_distributions import padded
from polyhedge.planning.risk import Cuts, JointCost, rank_of
from polyhedge.planning.separable import Separable, separable_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.layout import layout_of
from polyhedge.problems.pieces import SumOfMaxima
from polyhedge.problems.second_stage import equal_rows, penalised
from polyhedge.solvers.linear import recession_direction
from polyhedge.solvers.program import row_kinds

MOST_KEPT = 256
"""Values of parameters whose problems are kept: as many rows are planned together if each has its own."""


def planned_level(alpha: float) -> float:
    """The level of the quantile that is the planned cost.

    It lies below 1 - alpha, so that the radius adds a common margin, and a little more evenly where costs are wide.
    """
    return max(1 - 2 * alpha, 0.5)


@stored("planned problem")
@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """A decision problem as policies see it; contexts are [prediction, parameters].

    Attributes
    ----------
    original : what is decided. Its costs are exact wherever one is realised or scored.
    pool : (K, 1 + p, 1 + d + t) pieces that stand for the second stage in plans, a lower bound of it; None without.
    tried_z, tried_u : (n, p) and (n, d), decisions and outcomes that give a pool at values of the parameters, where
        these move the pieces.
    n_penalties : how many of the last pieces make infeasible second stages expensive: expected costs do without them.
    """

    original: DecisionProblem
    pool: Array | None = None
    tried_z: Array | None = None
    tried_u: Array | None = None
    n_penalties: int = 0

    @cached_property
    def problem(self) -> DecisionProblem:
        """What is planned: the original, or its first stage with the pool for its second."""
        return self.original if self.pool is None else self.original.with_pool(self.pool)

    @cached_property
    def has_maxima(self) -> bool:
        """Whether the joint part of the cost is a sum of maxima; else it is known by its formula alone."""
        return self.problem.structure.has_maxima

    @cached_property
    def joint(self) -> SumOfMaxima:
        """The joint part of the cost over [outcome, parameters]; an error if it is no sum of maxima."""
        return self.problem.structure.maxima

    @cached_property
    def segment(self) -> tuple[Array, Array, Array] | None:
        """The ends of the decisions and g_0 between them, if decisions lie on a segment and g_0 is quadratic."""
        if self.problem.parameters or not self.has_maxima:
            return None
        ends, base = self.problem.structure.ends, self.problem.structure.base
        return None if ends is None or base is None else (*ends, base)

    @cached_property
    def separable(self) -> Separable | None:
        """The cost as one term a decision, if it is separable and decisions do not lie on a segment."""
        return None if self.segment is not None else separable_of(self.problem)

    @property
    def has_cuts(self) -> bool:
        """Whether decisions are found by cuts: not if the cost has no pieces or is separable."""
        return self.has_maxima and self.separable is None

    @property
    def needs_programs(self) -> bool:
        """Whether every row needs a program: decisions lie on no segment, and the cost is not separable."""
        return self.segment is None and self.separable is None

    @property
    def is_integer(self) -> bool:
        """Whether some decisions are integers, so that a mean of two decisions is none."""
        return any(v.attributes.get("integer") or v.attributes.get("boolean") for v in self.problem.written.variables)

    @cached_property
    def is_bounded(self) -> bool:
        """Whether linear constraints alone bound all decisions; False if rows have parameters."""
        if self.problem.parameters:
            return False
        program, columns = self.problem.feasible.program, self.problem.feasible.z_columns
        kinds, A = row_kinds(program.cones), program.A[:, columns].toarray()
        own = np.flatnonzero(np.diff(program.A.indptr) == np.count_nonzero(A, axis=1))
        W = np.vstack([A[own[np.isin(kinds[own], ("zero", "nonneg"))]], -A[own[kinds[own] == "zero"]]])
        return len(W) > 0 and recession_direction(W) is None

    @property
    def is_costly(self) -> bool:
        """Whether every row needs a program of its own: with integers that are not separable, or parameters."""
        return (self.is_integer and self.separable is None) or bool(self.problem.parameters)

    @property
    def is_bent(self) -> bool:
        """Whether the programs of rows are not linear, whatever their parameters: every cut takes time there."""
        if self.problem.parameters or self.problem.feasible.program.is_linear:
            return False
        own = self.problem.structure.own_cost
        return own is None or bool(own.hessian.any())

    @property
    def is_coupled_sum(self) -> bool:
        """Whether the cost is a sum of several maxima, not separable, and decisions lie on no segment."""
        return self.has_cuts and len(self.joint.groups) > 1 and self.segment is None

    @property
    def is_by_value(self) -> bool:
        """Whether the cost may be a sum of maxima only once the values of its parameters are known."""
        return bool(self.problem.parameters) and not self.has_maxima

    def at_value(self, value: Array) -> PlanningProblem:
        """The problem at one row's values (t,) of its parameters; the last ones are kept."""
        key = np.ascontiguousarray(value, dtype=np.float64).tobytes()
        own = self._at_values.get(key)
        if own is None:
            problem, pool, n, at = self.problem.at_values(value), None, 0, (self.tried_z, self.tried_u)
            if at[0] is not None and at[1] is not None and problem.second_stage is not None:
                pool, n = penalised(*problem.second_stage.cuts(at[0], at[1]), at[0], at[1])
            own = PlanningProblem(problem, pool, n_penalties=n)
            if len(self._at_values) >= MOST_KEPT:
                self._at_values.clear()
            self._at_values[key] = own
        return own

    @cached_property
    def _at_values(self) -> dict[bytes, PlanningProblem]:
        return {}

    @cached_property
    def relaxed(self) -> PlanningProblem:
        """The problem without integers; itself where it has none, or where rows have parameters."""
        can_relax = self.is_integer and not self.problem.parameters
        return PlanningProblem(self.problem.relaxed()) if can_relax else self

    @cached_property
    def _usual(self) -> dict[bytes, Array]:
        return {}

    def usual_decision(self, context: Array) -> Array:
        """The best decision (p,) at one context, relaxed; zeros where there is none. Rules share it."""
        key = context.tobytes()
        if key not in self._usual:
            cost = JointCost(self.joint, np.zeros((1, len(context))))
            M, term = cost.matrices, np.repeat(np.arange(len(cost.groups)), [len(group) for group in cost.groups])
            pieces = Cuts(M[:, :, 0], np.zeros(M.shape[:2]), M[:, :, 1:], term)
            values = context[None, self.problem.n_outcomes :]
            z = least_by_programs(self.relaxed.problem, pieces, context[None], np.ones(1), values, n_jobs=1)[0][0]
            self._usual[key] = z if np.isfinite(z).all() else np.zeros(len(z))
        return self._usual[key]

    @cached_property
    def _quadratic(self) -> tuple[float, Array, Array] | None:
        """Constant, slope and Hessian of g_0, if it is quadratic."""
        own = self.problem.structure.own_cost if self.has_maxima else None
        return None if own is None else (own.offset + 0.5 * float(own.l @ own.D @ own.l), own.slope, own.hessian)

    @cached_property
    def _over(self) -> dict[str, tuple[Array, JointCost]]:
        """The last points, and the joint cost over them."""
        return {}

    def alone(self, z: Array, values: Array) -> Array:
        """g_0 (N,) of decisions (N, p), the part of their cost that no outcome enters; NaN without a decision."""
        if self._quadratic is not None:
            constant, slope, hessian = self._quadratic
            return np.asarray(constant + ((slope + 0.5 * z @ hessian) * z).sum(axis=1))
        problem, costs = self.problem, np.full(len(z), np.nan)
        there = np.isfinite(z).all(axis=1)
        nothing = np.zeros((int(there.sum()), problem.n_outcomes))
        known = layout_of(problem.parameters).columns(values[there])
        costs[there] = problem._cost_values(*problem.layout.columns(z[there]), nothing, *known)
        return costs

    def evaluate(self, z: Array, outcomes: Array, values: Array) -> Array:
        """The cost (N,) at matching rows; NaN without a decision."""
        if self.has_maxima and self.pool is None:
            return self.joint.evaluate(z, np.hstack([outcomes, values])) + self.alone(z, values)
        costs, there = np.full(len(z), np.nan), np.isfinite(z).all(axis=1)
        costs[there] = self.original.evaluate(z[there], outcomes[there], values[there])
        return costs

    @cached_property
    def _without_penalties(self) -> PlanningProblem:
        assert self.pool is not None
        return replace(self, pool=self.pool[: -self.n_penalties], n_penalties=0)

    def _cost_over(self, points: Array, n_values: int) -> JointCost:
        """The joint cost over points, kept for the last ones."""
        over = self._over.get("")
        if over is None or over[0] is not points:
            over = self._over[""] = points, JointCost(self.joint, padded(points, n_values))
        return over[1]

    @property
    def has_mean(self) -> bool:
        """Whether mean costs are known: pieces of the relaxation of a second stage cost less than it does."""
        second = self.original.second_stage
        return self.pool is None or second is None or second.is_linear

    def planned_cost(
        self, points: Array, level: float, z: Array, centers: Array, scales: Array, values: Array
    ) -> tuple[Array, Array]:
        """The quantile (N,) of this level of g(z(x), .) over the scenarios centers + scales * points, and its mean.

        A cost that is known by its formula alone is evaluated row by row. Scenarios at which the formula has no value
        do not count; where none is left, there is no planned cost.
        """
        if self.has_maxima:
            over = z, np.hstack([centers, values]), scales, level
            quantile, mean = self._cost_over(points, values.shape[1]).quantile(*over)
            if self.n_penalties:
                mean = self._without_penalties._cost_over(points, values.shape[1]).quantile(*over)[1]
            alone = self.alone(z, values)
            return quantile + alone, mean + alone
        quantile, mean = np.full(len(z), np.nan), np.full(len(z), np.nan)
        there = np.asarray(np.isfinite(z).all(axis=1))
        for rows in equal_rows(values) if self.is_by_value else ():
            if (own := self.at_value(values[rows[0]])).has_maxima:
                at = z[rows], centers[rows], scales[rows], np.zeros((len(rows), 0))
                quantile[rows], mean[rows] = own.planned_cost(points, level, *at)
                there[rows] = False
        for i in np.flatnonzero(there):
            outcomes = centers[i] + scales[i] * points
            repeated, known = (np.tile(one, (len(points), 1)) for one in (z[i], values[i]))
            with np.errstate(invalid="ignore"):
                costs = self.evaluate(repeated, outcomes, known)
            costs = np.sort(costs[np.isfinite(costs)])
            if len(costs):
                quantile[i], mean[i] = costs[rank_of(level, len(costs))], costs.mean()
        return quantile, mean
