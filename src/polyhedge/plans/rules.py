r"""Decision rules: what to do at a row when its law is known.

$$z(x) = \arg\min_{z \in Z}\ g_0(z) + \rho_i\,[\,g(z, c(x) + s(x)\,e_i) - g_0(z)\,]$$

The risk is known by cuts (`risk.py`) that were found once and then kept: the plan is the least over these, hence a
function of the row alone. Decisions on a segment are found for all rows at once, and so are those whose cost falls
apart into a term a decision (`separable.py`); others by a program each. A cost without pieces is planned at the centre
of the law.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from polyhedge._validation import Array, Indices, Mask
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.plans.corners import Corners
from polyhedge.plans.costs import PlanProblem
from polyhedge.plans.laws import Law, PlacedLaw, padded
from polyhedge.plans.line import least_on_segment
from polyhedge.plans.programs import corners_of, least_by_programs
from polyhedge.plans.risk import Cuts, JointCost, Risk
from polyhedge.plans.weighted import least_weighted
from polyhedge.robust.nominal import best_knowing

# Rounds in which cuts are looked for, and rows they are looked for at.
_ROUNDS = 15
_ROWS_ON_SEGMENT, _ROWS, _ROWS_IF_COSTLY = 300, 100, 30
# Share of the spread of costs that the cuts may miss: far below what any choice between rules can tell.
_ENOUGH = 2e-4
# What sums of costs are off by, as a share of them: a cost that no outcome enters lacks nothing.
_ROUNDING = 1e-12
# The same of planners that are only judged, one for each fold: choices between rules do not hang on more.
_ROUNDS_TO_JUDGE, _ENOUGH_TO_JUDGE = 6, 5e-3
# On a segment cuts are quick and sharper ones worth their time: with these, figures of rules are off by less than 0.001
# on the newsvendor task, a tenth of their noise, in two thirds of the time.
_ROWS_TO_JUDGE_ON_SEGMENT, _ENOUGH_TO_JUDGE_ON_SEGMENT = 120, 4e-4
# How many times their heights the slopes of pieces come to where every piece of the cost has its final slope.
_FAR = 1e3


@dataclass(frozen=True)
class Rule:
    """What is minimised at a row: the cost at the prediction (law None), or a risk under a law."""

    law: str | None = None
    risk: Risk = field(default_factory=Risk)

    def __str__(self) -> str:
        if self.law is None:
            return "trust the prediction"
        return f"{self.law} law, mean" if self.risk.is_mean else f"{self.law} law, CVaR {self.risk.level:g}"


@dataclass(frozen=True, eq=False)
class Planner:
    """A rule with its law and its cuts, frozen: z(x) is a function of the row alone.

    Attributes
    ----------
    problem, rule, law : what is decided, and how.
    cuts : lower bounds of the risk; None where the cost has no pieces, or falls apart into a term a decision.
    starts : (J, d + t + 1) contexts and spreads of rows near whose plans those of others are looked for.
    is_steady : whether a plan must not depend on the rows around, to the last bit: not where it is only judged.
    """

    problem: PlanProblem
    rule: Rule
    law: Law | None
    cuts: Cuts | None
    starts: Array = field(default_factory=lambda: np.zeros((0, 1)))
    is_steady: bool = True

    def __call__(self, X: Any, centers: Array, values: Array, n_jobs: int | None = None) -> Array:
        """Decisions (N, p); NaN where there is none."""
        return self.proven(X, centers, values, n_jobs)[0]

    def proven(self, X: Any, centers: Array, values: Array, n_jobs: int | None = None) -> tuple[Array, Mask]:
        """Decisions (N, p), NaN where there is none, and where it is proven that the rule has no better one (N,)."""
        if self.law is None:
            return self._decided(PlacedLaw(centers, np.ones(len(centers))), values, n_jobs)
        z, is_best = np.empty((len(centers), self.problem.problem.n_decisions)), np.empty(len(centers), dtype=bool)
        for part, at in self.law.parts(X, centers):
            z[part], is_best[part] = self._decided(at, values[part], n_jobs)
        return z, is_best

    def at(self, at: PlacedLaw, values: Array, n_jobs: int | None = None) -> Array:
        """Decisions at rows where centres, spreads and weights of the law are known."""
        return self._decided(at, values, n_jobs)[0]

    @cached_property
    def _tables(self) -> list[tuple[Array, Array]]:
        separable = self.problem.separable
        points = np.zeros((1, self.problem.problem.n_outcomes)) if self.law is None else self.law.points
        return [] if separable is None else separable.tables(points, self.rule.risk)

    @cached_property
    def _corners(self) -> Corners | None:
        if self.cuts is None or self.problem.is_on_segment:
            return None
        return corners_of(self.problem.problem, self.cuts, self.starts)

    def _decided(self, at: PlacedLaw, values: Array, n_jobs: int | None = None) -> tuple[Array, Mask]:
        cuts, contexts, scales = self.cuts, np.hstack([at.centers, values]), at.scales
        if at.weights and self.law is not None and self.problem.separable is not None:
            z = least_weighted(self.problem.separable, self.law.points, contexts, at.weights)
            return z, np.asarray(np.isfinite(z).all(axis=1))
        if cuts is None and self.problem.separable is not None:
            z = self.problem.separable.least(self._tables, contexts, scales)
            return z, np.asarray(np.isfinite(z).all(axis=1))
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


def fit_planner(
    problem: PlanProblem,
    rule: Rule,
    law: Law | None,
    X: Any,
    centers: Array,
    values: Array,
    *,
    is_judged: bool = False,
) -> Planner:
    """The rule with the cuts that an even choice of these rows needs, without whole decisions where there are such.

    A planner that is only judged has cuts for fewer rows, and less sharp ones: it is made many times.
    """
    if not has_cuts(problem):
        return Planner(problem, rule, law, None)
    d = centers.shape[1] + values.shape[1]
    points = np.zeros((1, d)) if law is None else padded(law.points, values.shape[1])
    cost = JointCost(problem.joint, points)
    few = _ROWS_ON_SEGMENT if problem.is_on_segment else _ROWS
    if not problem.is_on_segment and (is_judged or problem.problem.parameters):
        few = _ROWS_IF_COSTLY
    enough = _ENOUGH_TO_JUDGE if is_judged and not problem.is_on_segment else _ENOUGH
    if is_judged and problem.is_on_segment:
        few, enough = _ROWS_TO_JUDGE_ON_SEGMENT, _ENOUGH_TO_JUDGE_ON_SEGMENT
    rows = evenly_chosen(len(centers), few)
    values = values[rows]
    contexts, scales = _contexts(law, take_rows(X, rows), centers[rows], values)
    cuts = first_cuts(problem, cost, rule.risk, contexts, scales)
    # Cuts hold for whole decisions and others alike, and programs without whole decisions are quick.
    can_relax = problem.is_integer and not problem.problem.parameters
    relaxed = PlanProblem(problem.problem.relaxed()) if can_relax else problem
    is_open, looked_at = np.ones(len(rows), dtype=bool), np.full((len(rows), problem.problem.n_decisions), np.nan)
    for _ in range(_ROUNDS_TO_JUDGE if is_judged and not problem.is_on_segment else _ROUNDS):
        own = np.flatnonzero(is_open)
        # A map of corners would be made anew with every cut: these few rows have programs of their own.
        at = PlacedLaw(contexts[own, : centers.shape[1]], scales[own])
        z = Planner(relaxed, rule, law, cuts, is_steady=False).at(at, values[own], n_jobs=1)
        # Rows without a decision fail where they are decided; those that keep theirs have all cuts that it needs.
        is_new = np.isfinite(z).all(axis=1) & (z != looked_at[own]).any(axis=1)
        own, z = own[is_new], z[is_new]
        if not len(own):
            break
        looked_at[own] = z
        lacking, is_open = lacking_cuts(cuts, cost, rule.risk, z, contexts[own], scales[own], enough), is_open & False
        is_open[own[np.unique(np.concatenate([rows for rows, _ in lacking]))]] = True
        if not is_open.any():
            break
        cuts = distinct_cuts(Cuts.joined([cuts, *(fresh for _, fresh in lacking)]))
    starts = np.zeros((0, 1)) if is_judged else np.column_stack([contexts, scales])
    return Planner(problem, rule, law, cuts, starts, not is_judged)


def has_cuts(problem: PlanProblem) -> bool:
    """Whether the rule decides by cuts: not where the cost has no pieces or falls apart."""
    return problem.has_maxima and not problem.falls_apart


def first_cuts(problem: PlanProblem, cost: JointCost, risk: Risk, contexts: Array, scales: Array) -> Cuts:
    """Cuts at a usual decision and far from it on all sides, so that the cuts alone have a least where the risk has.

    Usual is the best decision at a usual context: nothing here depends on where outcomes and decisions have their zero.
    """
    p, usual = problem.problem.n_decisions, np.median(contexts, axis=0)
    z0 = problem.usual_decision(usual)
    z = np.vstack([np.zeros((1, p)), np.ones((1, p)), -np.ones((1, p)), np.eye(p), -np.eye(p)])
    deviation = np.abs(contexts - usual).max(axis=0) + np.median(scales) * np.abs(cost.points).max(axis=0)
    z = z0 + z * _far(cost, z0, usual, deviation)
    middle, scale = np.tile(usual, (len(z), 1)), np.full(len(z), np.median(scales))
    return distinct_cuts(Cuts.joined([cuts for _, cuts in cost.cuts(z, middle, scale, risk)]))


def _far(cost: JointCost, z: Array, context: Array, deviation: Array) -> Array:
    """For each decision (p,) a distance from z at which its slopes outweigh all heights, in units of the problem's own.

    Heights and slopes are those by which the pieces of a group differ near a context, and by which outcomes move each,
    as far as they deviate from it (d + t,): what all have in common, such as outcomes far from 0, changes no order.
    """
    M = cost.matrices
    here = np.concatenate([(M[:, :1] + np.tensordot(M[:, 1:], z, (1, 0))[:, None]), M[:, 1:]], axis=1)
    apart = np.concatenate([here[group] - here[group].mean(axis=0) for group in cost.groups])
    sizes = np.abs(apart[:, :, 0] + apart[:, :, 1:] @ context) + np.abs(here[:, :, 1:]) @ deviation
    height, slopes = sizes[:, 0].max(initial=0.0), sizes[:, 1:].max(axis=0, initial=0.0)
    # Without heights any distance will do: what multiplies decisions has the same slopes everywhere.
    return np.asarray((_FAR * height or 1.0) / np.where(slopes > 0, slopes, np.inf))


def _contexts(law: Law | None, X: Any, centers: Array, values: Array) -> tuple[Array, Array]:
    moved, scales = (centers, np.ones(len(centers))) if law is None else law.at(X, centers)
    return np.hstack([moved, values]), scales


def distinct_cuts(cuts: Cuts) -> Cuts:
    """Each of the cuts once."""
    flat = np.hstack([part.reshape(len(cuts), -1) for part in cuts.parts]) + 0.0  # -0 is 0
    first: dict[bytes, int] = {}
    for k, row in enumerate(flat):  # np.unique would sort rows of hundreds of numbers
        first.setdefault(row.tobytes(), k)
    return cuts.take(np.array(list(first.values()), dtype=np.int64))


def lacking_cuts(
    cuts: Cuts, cost: JointCost, risk: Risk, z: Array, contexts: Array, scales: Array, share: float = _ENOUGH
) -> list[tuple[Indices, Cuts]]:
    """For each term the rows where the cuts miss it by more than this share of the costs' deviation, and more cuts."""
    terms, deviation = cost.cuts_and_deviation(z, contexts, scales, risk)
    enough, lacking = share * deviation, []
    for term, (values, fresh) in enumerate(terms):
        known = _known(cuts.take(np.flatnonzero(cuts.term == term)), z, contexts, scales)
        rows = np.flatnonzero(values - known > np.maximum(enough, _ROUNDING * np.abs(values)))
        lacking.append((rows, fresh.take(rows)))
    return lacking


def _known(cuts: Cuts, z: Array, contexts: Array, scales: Array) -> Array:
    """What the cuts know of the risk at each row (N,)."""
    z1 = np.hstack([np.ones((len(z), 1)), z])
    moved = (z1[:, :, None] * contexts[:, None, :]).reshape(len(z), -1) @ cuts.C.reshape(len(cuts), -1).T
    return np.asarray((z1 @ cuts.A.T + scales[:, None] * (z1 @ cuts.B.T) + moved).max(axis=1))
