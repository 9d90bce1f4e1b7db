r"""The mean robust cost of a set that is cut by what is known of outcomes, where the cost's directions are fixed.

Every context has a reach of its own, $h_l(f) = \max \{q_l^\top e : W e \le q,\ A (f + e) \le h\}$, but only along the
directions of its tight pieces does it matter, and only where the support binds is it another than that of all contexts.
"""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.exact.fixed_directions import ReachCost
from polyhedge.learners.exact.plane import FacetGradient
from polyhedge.problems import DecisionProblem
from polyhedge.robust.known_support import CutReach, Reach
from polyhedge.robust.warm_starts import SharpVertices
from polyhedge.sets import Polyhedron

_WEIGHS = 1e-9
"""Weight of a piece below which it is a solver's rounding; all weights of a context sum to 1."""


def cut_gradient(
    problem: DecisionProblem,
    cost: ReachCost,
    supports: SharpVertices,
    W: Array,
    q: Array,
    centers: Array,
    contexts: Indices,
) -> FacetGradient:
    """Mean cost over the contexts, and its gradient; inf where a context has none. `supports` are of the whole set."""
    form = Polyhedron.from_halfspaces(W, q).conic_form(0.0)
    reach = CutReach(form, problem.structure.pieces.q, problem.support_rows, supports(W, q))
    own = [reach.start() for _ in contexts]
    is_exact = reach.is_free(centers[contexts])
    due = np.tile(~np.isfinite(reach.free.values), (len(contexts), 1))
    while True:
        for i in np.flatnonzero(due.any(axis=1)):
            if not reach.cut(own[i], centers[contexts[i]], np.flatnonzero(due[i])):
                return FacetGradient.infinite(W, q)
        is_exact |= due
        values, weights = cost.each(np.array([one.values for one in own]), contexts)
        due = (weights > _WEIGHS) & ~is_exact
        if not due.any():
            return _gradient(values, weights, own, len(q))


def _gradient(values: Array, weights: Array, own: list[Reach], n_facets: int) -> FacetGradient:
    W, q = np.zeros((n_facets, own[0].points.shape[1])), np.zeros(n_facets)
    for weight, reach in zip(weights, own, strict=True):
        used = np.flatnonzero(weight)
        pull = weight[used, None] * reach.multipliers[used]
        q += pull.sum(axis=0)
        W -= pull.T @ reach.points[used]
    return FacetGradient(float(values.mean()), W / len(own), q / len(own))


def interval_gradient(
    problem: DecisionProblem, cost: ReachCost, W: Array, q: Array, centers: Array, contexts: Indices
) -> FacetGradient:
    """One outcome: the set is an interval, and so is what the support leaves of it; all contexts at once."""
    (A, h), w, at = problem.support_rows, W[:, 0], centers[contexts, 0]
    sides = [_end(sign, w, q, sign * _limits(sign, A[:, 0], h) - sign * at) for sign in (1.0, -1.0)]
    (up, above, high), (down, below, low) = sides
    if not (np.isfinite(high).all() and np.isfinite(low).all() and (high + low >= 0).all()):
        return FacetGradient.infinite(W, q)
    direction = problem.structure.pieces.q[:, 0]
    rises, falls = np.maximum(direction, 0.0), np.maximum(-direction, 0.0)
    values, weights = cost.each(np.outer(high, rises) + np.outer(low, falls), contexts)
    push_up, push_down = np.where(above, weights @ rises, 0.0), np.where(below, weights @ falls, 0.0)
    turn, pull = np.zeros((len(w), 1)), np.zeros(len(q))
    for facet, push, end in ((up, push_up, high), (down, push_down, -low)):
        if facet >= 0:
            multipliers = push / abs(w[facet])
            pull[facet] += multipliers.mean()
            turn[facet] -= (multipliers * end).mean()
    return FacetGradient(float(values.mean()), turn, pull)


def _limits(sign: float, a: Array, h: Array) -> float:
    """The least (or largest) outcome that the support allows on one side; infinite where it allows all."""
    limits = h[sign * a > 0] / a[sign * a > 0]
    return float(sign * (sign * limits).min(initial=np.inf))


def _end(sign: float, w: Array, q: Array, limits: Array) -> tuple[int, Array, Array]:
    """On one side: the facet, where it is nearer than the support's limits (m,), and how far the cut set goes (m,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(sign * w > 0, q / np.abs(w), np.inf)
    facet = int(np.argmin(reach))
    if not np.isfinite(reach[facet]):
        return -1, np.zeros(len(limits), dtype=bool), limits
    return facet, reach[facet] <= limits, np.minimum(reach[facet], limits)
