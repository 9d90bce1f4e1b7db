r"""The worst-case cost of decisions that solvers found, computed once more from the set and the cost as written.

The counterpart of a solver's answer is one program; here nothing of it is used but the decision and, where the set has
no support function in closed form, the multipliers. For any $\lambda$ in the dual cone of the set's form,
$h(v) \le g^\top\lambda + \max_e (v - G^\top\lambda)^\top e$, whoever found them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyhedge._support.tolerances import OPTIMAL, ROUNDING
from polyhedge._support.validation import Array, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.robust.counterpart import Counterpart, CounterpartSolution
from polyhedge.sets import Shape
from polyhedge.solvers.verify import in_dual_cone

_MANY = 64
"""Roundings of sums of sums, in terms of those of a sum."""


def bounds_hold(
    problem: DecisionProblem,
    counterpart: Counterpart,
    shape: Shape,
    radius: float,
    contexts: Array,
    solutions: Sequence[CounterpartSolution],
) -> Mask:
    """Which values (N,) are the worst-case costs of their decisions, up to gap and tolerance; contexts as they were."""
    pieces, d = counterpart.pieces, problem.n_outcomes
    Z = np.array([solution.z for solution in solutions])
    V, at_center = pieces.directions(Z)[:, :, :d], pieces.values(Z, contexts)
    if shape.has_support_formula and not counterpart.n_support_rows:
        h = np.asarray(shape.support(V.reshape(-1, d), radius)).reshape(V.shape[:2])
    else:
        h = _by_multipliers(counterpart, V, contexts[:, :d], solutions)
    base = _base(problem, Z, contexts, at_center.max(axis=1))
    values, gaps, sizes = (np.array([getattr(s, name) for s in solutions]) for name in ("value", "gap", "size"))
    terms = np.abs(V * contexts[:, None, :d]).sum(axis=2).max(axis=1) + np.abs(h).max(axis=1) + np.abs(base)
    allowed = OPTIMAL * sizes + np.where(np.isfinite(gaps), gaps, 0.0) + _MANY * ROUNDING * terms
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(base + (h + at_center).max(axis=1) - values) <= allowed)


def _by_multipliers(
    counterpart: Counterpart, V: Array, centers: Array, solutions: Sequence[CounterpartSolution]
) -> Array:
    """Upper bounds (N, L) of the support at directions (N, L, d), by weak duality at the multipliers of each piece."""
    form, d = counterpart.form, V.shape[2]
    of_cost = [k for k, block in enumerate(counterpart.blocks) if block.row == 0]
    Y = np.array([solution.facet_multipliers[of_cost] for solution in solutions])
    start = 0
    for cone in form.cones:
        rows = slice(start, start + cone.n_rows)
        start += cone.n_rows
        if cone.kind == "nonneg":
            Y[:, :, rows] = np.maximum(Y[:, :, rows], 0.0)
        elif cone.kind != "zero":
            Y[:, :, rows] = [[in_dual_cone(cone, y) for y in of_pieces] for of_pieces in Y[:, :, rows]]
    g = np.tile(form.g, (len(V), 1))
    if counterpart.n_support_rows:
        g[:, -counterpart.n_support_rows :] -= centers @ counterpart.support_rows[0].T
    left = -(counterpart.transposed @ Y.reshape(-1, Y.shape[2]).T).T.reshape(*Y.shape[:2], -1)
    left[:, :, :d] += V
    reach = np.array([solution.reach for solution in solutions])
    return np.asarray(np.einsum("nm,nlm->nl", g, Y) + np.einsum("nlc,nc->nl", np.abs(left), reach))


def _base(problem: DecisionProblem, Z: Array, contexts: Array, at_center: Array) -> Array:
    """The part of the cost that is the decision's alone (N,): a formula where it is quadratic, else as written."""
    known = problem.structure.own_cost
    if known is not None:
        bent = Z @ known.L.T + known.l
        return np.asarray(0.5 * ((bent @ known.D) * bent).sum(axis=1) + Z @ known.c + known.offset)
    u, values = np.hsplit(contexts, [problem.n_outcomes])
    return problem.evaluate(Z, u, values) - at_center
