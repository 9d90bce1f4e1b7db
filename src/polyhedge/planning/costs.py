"""What a policy asks of a decision problem: its joint cost by pieces, and the cost of a decision alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.planning.leaf_weights import weighted_quantiles
from polyhedge.planning.programs import least_by_programs
from polyhedge.planning.residual_distributions import PlacedDistribution
from polyhedge.planning.risk import Cuts, JointCost, Risk, ranks_of
from polyhedge.planning.separable import Separable, separable_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import QuadraticCost
from polyhedge.problems.parameters import layout_of
from polyhedge.problems.pieces import SumOfMaxima

MOST_KEPT = 256
"""Values of parameters at which a problem is kept: as many rows are planned together where each has its own."""


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """A decision problem as policies see it; contexts are [prediction, parameters]."""

    problem: DecisionProblem

    @property
    def has_maxima(self) -> bool:
        """Whether the joint part of the cost is a sum of maxima; else it is known by its formula alone."""
        return self.problem.structure.has_maxima

    @property
    def joint(self) -> SumOfMaxima:
        """The joint part of the cost over [outcome, parameters]; an error where it is no sum of maxima."""
        return self.problem.structure.maxima

    @cached_property
    def segment(self) -> tuple[Array, Array, Array] | None:
        """The ends of the decisions and g_0 between them, where they lie on a segment and g_0 is quadratic."""
        if self.problem.parameters or not self.has_maxima:
            return None
        ends, base = self.problem.structure.ends, self.problem.structure.base
        return None if ends is None or base is None else (*ends, base)

    @cached_property
    def separable(self) -> Separable | None:
        """The cost as one term a decision, where it falls apart so and decisions do not lie on a segment."""
        return None if self.is_on_segment else separable_of(self.problem)

    @property
    def is_on_segment(self) -> bool:
        """Whether decisions lie on a segment and g_0 is quadratic."""
        return self.segment is not None

    @property
    def is_separable(self) -> bool:
        """Whether the cost is one term a decision, and decisions do not lie on a segment."""
        return self.separable is not None

    @property
    def is_integer(self) -> bool:
        """Whether some decisions are whole, so that a mean of two decisions is none."""
        return any(v.attributes.get("integer") or v.attributes.get("boolean") for v in self.problem.written.variables)

    @property
    def is_costly(self) -> bool:
        """Whether every row needs a program made for it alone: with whole decisions, or parameters of its own."""
        return self.is_integer or bool(self.problem.parameters)

    @property
    def is_by_value(self) -> bool:
        """Whether parameters enter in such a way that the cost may be a sum of maxima at each of their values alone."""
        return bool(self.problem.parameters) and not self.has_maxima

    def at_value(self, value: Array) -> PlanProblem:
        """The problem at one row's values (t,) of its parameters; the last ones are kept, each a program of its own."""
        key = np.ascontiguousarray(value, dtype=np.float64).tobytes()
        own = self._at_values.get(key)
        if own is None:
            own = PlanProblem(self.problem.at_values(value))
            if len(self._at_values) >= MOST_KEPT:
                self._at_values.clear()
            self._at_values[key] = own
        return own

    @cached_property
    def _at_values(self) -> dict[bytes, PlanProblem]:
        return {}

    @property
    def is_coupled_sum(self) -> bool:
        """Whether the cost is a sum of several maxima that does not fall apart, and decisions lie on no segment."""
        return self.has_maxima and len(self.joint.groups) > 1 and not (self.is_on_segment or self.is_separable)

    @property
    def has_linear_programs(self) -> bool:
        """Whether a row's program is linear, and the same for all rows but for few numbers."""
        return not self.is_costly and self.problem.feasible.program.is_linear

    def is_tail_of_sum(self, risk: Risk) -> bool:
        """Whether this risk is a tail that does not split into terms, although the cost does."""
        return self.is_coupled_sum and not risk.is_mean

    @cached_property
    def _quadratic(self) -> QuadraticCost | None:
        return self.problem.structure.own_cost if self.has_maxima else None

    @cached_property
    def _usual(self) -> dict[bytes, Array]:
        return {}

    def usual_decision(self, context: Array) -> Array:
        """The best decision (p,) at one context, not whole where that takes a search; zeros where there is none.

        It is kept: rules of one distribution ask for the same.
        """
        key = context.tobytes()
        if key not in self._usual:
            problem, d = self.problem, self.problem.n_outcomes
            if self.is_integer and not problem.parameters:
                problem = problem.relaxed()
            cost = JointCost(self.joint, np.zeros((1, len(context))))
            M, term = cost.matrices, np.repeat(np.arange(len(cost.groups)), [len(group) for group in cost.groups])
            pieces = Cuts(M[:, :, 0], np.zeros(M.shape[:2]), M[:, :, 1:], term)
            z = least_by_programs(problem, pieces, context[None], np.ones(1), context[None, d:], n_jobs=1)[0][0]
            self._usual[key] = z if np.isfinite(z).all() else np.zeros(len(z))
        return self._usual[key]

    def alone(self, z: Array, values: Array) -> Array:
        """g_0 (N,): the cost of each decision (N, p) that no outcome enters, each row by itself; NaN without one."""
        if self._quadratic is not None:
            return _evaluate(self._quadratic, z)
        problem, costs = self.problem, np.full(len(z), np.nan)
        there = np.isfinite(z).all(axis=1)
        nothing = np.zeros((int(there.sum()), problem.n_outcomes))
        known = layout_of(problem.parameters).columns(values[there])
        costs[there] = problem._cost_values(*problem.layout.columns(z[there]), nothing, *known)
        return costs

    def evaluate(self, z: Array, outcomes: Array, values: Array) -> Array:
        """The cost (N,) at matching rows; NaN without a decision."""
        if not self.has_maxima:
            costs, there = np.full(len(z), np.nan), np.isfinite(z).all(axis=1)
            costs[there] = self.problem.evaluate(z[there], outcomes[there], values[there])
            return costs
        return self.joint.evaluate(z, np.hstack([outcomes, values])) + self.alone(z, values)

    def sampled_costs(
        self, z: Array, at: PlacedDistribution, values: Array, points: Array, levels: Sequence[float]
    ) -> tuple[Array, Array]:
        """Quantiles of these levels (N, T) and mean (N,) of the cost of each decision under the distribution with
        these points.

        For costs that are known by their formula alone. Row by row, so that no row depends on the others. Outcomes at
        which the formula has no value cannot come, and do not count; where none is left, there is no policy.
        """
        quantiles, mean = np.full((len(z), len(levels)), np.nan), np.full(len(z), np.nan)
        for i in np.flatnonzero(np.isfinite(z).all(axis=1)):
            outcomes = at.centers[i] + at.scales[i] * points
            own, known = (np.tile(row, (len(points), 1)) for row in (z[i], values[i]))
            with np.errstate(invalid="ignore"):
                costs = self.evaluate(own, outcomes, known)
            can_come = np.isfinite(costs)
            if at.weights:
                weights = at.weights[0][[i]].toarray()[0] * can_come
                can_come &= weights > 0
                weights = weights[can_come] / (weights.sum() or 1.0)
            costs = costs[can_come]
            if not len(costs):
                continue
            if at.weights:
                quantiles[i], mean[i] = weighted_quantiles(costs[None], weights[None], levels)[0], weights @ costs
                continue
            costs.sort()
            quantiles[i], mean[i] = costs[ranks_of(levels, len(costs))], costs.mean()
        return quantiles, mean


def _evaluate(cost: QuadraticCost, z: Array) -> Array:
    """One column after the other, so that a sum does not depend on the number of rows."""
    H, total = cost.hessian, np.full(len(z), cost.offset + 0.5 * float(cost.l @ cost.D @ cost.l))
    for i, slope in enumerate(cost.slope):
        inner = np.full(len(z), slope)
        for j in np.flatnonzero(H[i]):
            inner = inner + 0.5 * H[i, j] * z[:, j]
        total += inner * z[:, i]
    return total
