r"""Decision rules: what to do at a row when its distribution is known.

$$z(x) = \arg\min_{z \in Z}\ g_0(z) + \rho_i\,[\,g(z, c(x) + s(x)\,e_i) - g_0(z)\,]$$

The risk is known by cuts (`cutting.py`) that were found once and then kept: the policy is the least over these, hence a
function of the row alone. Decisions on a segment are found for all rows at once, and so are those whose cost falls
apart into a term a decision (`separable.py`); others by a program each. A cost without pieces is planned at the centre
of the distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.planning.corners import Corners
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.cutting import ENOUGH, Effort, RiskyCost, first_cuts, search_cuts
from polyhedge.planning.line import least_on_segment
from polyhedge.planning.programs import corners_of, least_by_programs
from polyhedge.planning.residual_distributions import PlacedDistribution, ResidualDistribution, padded
from polyhedge.planning.risk import Cuts, JointCost, Risk
from polyhedge.planning.weighted import least_weighted
from polyhedge.planning.worst_case import WorstCost, learned_set
from polyhedge.robust.nominal import best_knowing
from polyhedge.robust.threads import in_order

# How long cuts are looked for by rules that are used. Rows with parameters need a program each, made anew.
_FOR_USE, _FOR_USE_ON_SEGMENT, _FOR_USE_IF_COSTLY = (
    Effort(100, 15, ENOUGH),
    Effort(300, 15, ENOUGH),
    Effort(30, 15, ENOUGH),
)
# By rules that are only scored, one for each fold: choices between rules do not hang on more. On a segment cuts are
# quick and sharper ones worth their time: with these, figures of rules are off by less than 0.001 on the newsvendor
# task, a tenth of their noise, in two thirds of the time.
_TO_JUDGE, _TO_JUDGE_ON_SEGMENT = Effort(30, 6, 5e-3), Effort(120, 15, 4e-4)
# Tails of sums have many sides: cuts are looked for longer, and by scored rules at the scored rows themselves.
_FOR_ONE_ROW = Effort(1, 30, ENOUGH)
_SUMS_FOR_USE, _SUMS_TO_JUDGE = Effort(60, 20, 2e-3), Effort(60, 12, 2e-2)


@dataclass(frozen=True)
class Rule:
    """What is minimised at a row: the cost at the prediction (distribution None), a risk under a distribution, or a
    worst case.

    Over a set the level of the risk is the share of the distribution's residuals that a set learned from them covers.
    """

    distribution: str | None = None
    risk: Risk = field(default_factory=Risk)
    is_over_set: bool = False

    def __str__(self) -> str:
        if self.distribution is None:
            return "trust the prediction"
        if self.is_over_set:
            return f"{self.distribution} distribution, worst case over a set"
        return (
            f"{self.distribution} residuals, mean"
            if self.risk.is_mean
            else f"{self.distribution} residuals, CVaR {self.risk.level:g}"
        )


@dataclass(frozen=True, eq=False)
class Planner:
    """A rule with its distribution and its cuts, frozen: z(x) is a function of the row alone.

    Attributes
    ----------
    problem, rule, distribution : what is decided, and how.
    cuts : lower bounds of the risk; None where the cost has no pieces, or falls apart into a term a decision.
    starts : (J, d + t + 1) contexts and spreads of rows near whose plans those of others are looked for.
    is_steady : whether a policy must not depend on the rows around, to the last bit: not where it is only scored.
    has_plan : whether there is one: not where no set has a finite worst case.
    """

    problem: PlanProblem
    rule: Rule
    distribution: ResidualDistribution | None
    cuts: Cuts | None
    starts: Array = field(default_factory=lambda: np.zeros((0, 1)))
    is_steady: bool = True
    has_policy: bool = True

    def __call__(self, X: Any, centers: Array, values: Array, n_jobs: int | None = None) -> Array:
        """Decisions (N, p); NaN where there is none."""
        return self.proven(X, centers, values, n_jobs)[0]

    def proven(self, X: Any, centers: Array, values: Array, n_jobs: int | None = None) -> tuple[Array, Mask]:
        """Decisions (N, p), NaN where there is none, and where it is proven that the rule has no better one (N,)."""
        if self.distribution is None:
            return self._decided(PlacedDistribution(centers, np.ones(len(centers))), values, n_jobs)
        z, is_best = np.empty((len(centers), self.problem.problem.n_decisions)), np.empty(len(centers), dtype=bool)
        for part, at in self.distribution.parts(X, centers):
            z[part], is_best[part] = self._decided(at, values[part], n_jobs)
        return z, is_best

    def at(self, at: PlacedDistribution, values: Array, n_jobs: int | None = None) -> Array:
        """Decisions at rows where centres, spreads and weights of the distribution are known."""
        return self._decided(at, values, n_jobs)[0]

    @cached_property
    def _tables(self) -> list[tuple[Array, Array]]:
        separable = self.problem.separable
        points = (
            np.zeros((1, self.problem.problem.n_outcomes)) if self.distribution is None else self.distribution.points
        )
        return [] if separable is None else separable.tables(points, self.rule.risk)

    @cached_property
    def _corners(self) -> Corners | None:
        if self.cuts is None or self.problem.is_on_segment:
            return None
        return corners_of(self.problem.problem, self.cuts, self.starts)

    def _decided(self, at: PlacedDistribution, values: Array, n_jobs: int | None = None) -> tuple[Array, Mask]:
        cuts, contexts, scales = self.cuts, np.hstack([at.centers, values]), at.scales
        if not self.has_policy:
            return np.full((len(scales), self.problem.problem.n_decisions), np.nan), np.zeros(len(scales), dtype=bool)
        if at.weights and self.distribution is not None and self.problem.separable is not None:
            z = least_weighted(self.problem.separable, self.distribution.points, contexts, at.weights)
            return z, np.asarray(np.isfinite(z).all(axis=1))
        if cuts is None and self.problem.separable is not None:
            z = self.problem.separable.least(self._tables, contexts, scales)
            return z, np.asarray(np.isfinite(z).all(axis=1))
        if cuts is None and self.distribution is not None and self.problem.is_by_value:
            return self._by_value(at, values, n_jobs)
        if cuts is None:
            z, _, is_best = best_knowing(self.problem.problem, at.centers, values)
            return z, is_best
        if self.problem.segment is not None:
            z0, z1, base = self.problem.segment
            t = least_on_segment(cuts, base, z0, z1, contexts, scales)
            return np.asarray(z0 + t[:, None] * (z1 - z0)), np.ones(len(t), dtype=bool)
        return least_by_programs(
            self.problem.problem, cuts, contexts, scales, values, n_jobs, self._corners, self.is_steady
        )

    def _by_value(self, at: PlacedDistribution, values: Array, n_jobs: int | None) -> tuple[Array, Mask]:
        """Each row with the problem at its own values, and cuts of its own."""

        def decided(i: int) -> tuple[Array, Mask]:
            there, nothing = PlacedDistribution(at.centers[[i]], at.scales[[i]]), np.zeros((1, 0))
            own = planner_at(self.problem.at_value(values[i]), self.rule, self.distribution, there)
            return own._decided(there, nothing, 1)

        z, is_best = zip(*in_order(decided, range(len(at.scales)), n_jobs=n_jobs), strict=True)
        return np.vstack(z), np.concatenate(is_best)


def planner_at(
    problem: PlanProblem, rule: Rule, distribution: ResidualDistribution | None, at: PlacedDistribution
) -> Planner:
    """The rule for the rows at which a distribution is placed: all cuts that they need, of a problem without
    parameters.
    """
    if not has_cuts(problem):
        return Planner(problem, rule, distribution, None)
    nothing = np.zeros((len(at.scales), 0))
    points = np.zeros((1, at.centers.shape[1])) if distribution is None else distribution.points
    cost, rows = JointCost(problem.joint, points), (at.centers, at.scales)
    return Planner(problem, rule, distribution, _search(problem, rule, distribution, cost, rows, nothing, _FOR_ONE_ROW))


def fit_planner(
    problem: PlanProblem,
    rule: Rule,
    distribution: ResidualDistribution | None,
    X: Any,
    centers: Array,
    values: Array,
    *,
    is_scored: bool = False,
) -> Planner:
    """The rule with the cuts that an even choice of these rows needs, without whole decisions where there are such.

    A planner that is only scored has cuts for fewer rows, and less sharp ones: it is made many times.
    """
    if not has_cuts(problem):
        return Planner(problem, rule, distribution, None)
    effort = _effort(problem, rule, is_scored)
    rows = evenly_chosen(len(centers), effort.rows)
    contexts, scales = _contexts(distribution, take_rows(X, rows), centers[rows], values[rows])
    cost = _risky(problem, rule, distribution, X, centers, values)
    if cost is None:
        return Planner(problem, rule, distribution, None, has_policy=False)
    cuts = _search(problem, rule, distribution, cost, (contexts, scales), values[rows], effort)
    starts = np.zeros((0, 1)) if is_scored else np.column_stack([contexts, scales])
    return Planner(problem, rule, distribution, cuts, starts, not is_scored)


def _search(
    problem: PlanProblem,
    rule: Rule,
    distribution: ResidualDistribution | None,
    cost: RiskyCost,
    rows: tuple[Array, Array],
    values: Array,
    effort: Effort,
) -> Cuts:
    """Cuts of the rule's risk at rows, given by their contexts (N, d + t) and spreads (N,)."""
    contexts, scales = rows
    # Cuts hold for whole decisions and others alike, and programs without whole decisions are quick.
    can_relax = problem.is_integer and not problem.problem.parameters
    relaxed, d = PlanProblem(problem.problem.relaxed()) if can_relax else problem, problem.problem.n_outcomes

    def decided(cuts: Cuts, own: Indices) -> Array:
        # A map of corners would be made anew with every cut: these few rows have programs of their own.
        at = PlacedDistribution(contexts[own, :d], scales[own])
        return Planner(relaxed, rule, distribution, cuts, is_steady=False).at(at, values[own], n_jobs=1)

    def alone(z: Array, own: Indices) -> Array:
        return relaxed.alone(z, values[own])

    first = first_cuts(problem, cost, rule.risk, contexts, scales)
    inner = alone if problem.is_tail_of_sum(rule.risk) else None
    return search_cuts(cost, rule.risk, rows, first, effort, decided, inner)


def _effort(problem: PlanProblem, rule: Rule, is_scored: bool) -> Effort:
    if problem.is_on_segment:
        return _TO_JUDGE_ON_SEGMENT if is_scored else _FOR_USE_ON_SEGMENT
    if problem.is_tail_of_sum(rule.risk):
        return _SUMS_TO_JUDGE if is_scored else _SUMS_FOR_USE
    if is_scored:
        return _TO_JUDGE
    return _FOR_USE_IF_COSTLY if problem.problem.parameters else _FOR_USE


def _risky(
    problem: PlanProblem, rule: Rule, distribution: ResidualDistribution | None, X: Any, centers: Array, values: Array
) -> RiskyCost | None:
    """The cost as the rule sees it: at the prediction, over a distribution, or over a set learned from it, if there is
    one.
    """
    n_values = values.shape[1]
    if distribution is None:
        return JointCost(problem.joint, np.zeros((1, centers.shape[1] + n_values)))
    cost = JointCost(problem.joint, padded(distribution.points, n_values))
    if not rule.is_over_set:
        return cost
    shape = learned_set(problem.problem, distribution.points, distribution.at(X, centers)[0], rule.risk.level)
    return None if shape is None else WorstCost(cost, shape)


def has_cuts(problem: PlanProblem) -> bool:
    """Whether the rule decides by cuts: not where the cost has no pieces or falls apart."""
    return problem.has_maxima and not problem.is_separable


def _contexts(distribution: ResidualDistribution | None, X: Any, centers: Array, values: Array) -> tuple[Array, Array]:
    moved, scales = (centers, np.ones(len(centers))) if distribution is None else distribution.at(X, centers)
    return np.hstack([moved, values]), scales
