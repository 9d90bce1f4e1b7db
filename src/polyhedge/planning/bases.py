r"""Small linear programs of which every number differs, solved together from a basis that they share.

$$\min_x\ c^\top x \quad\text{s.t.}\quad A_i x + s = b_i,\ s \ge 0 \text{ off the equations}$$

A basis W is n rows that hold with equality: $x = A_W^{-1} b_W$, $y_W = -A_W^{-\top} c$. Costs are first moved so that
no multiplier is negative, and the dual simplex method finds a point that keeps all rows. From there the primal simplex
method goes on with the costs as they are. All programs take each step together. A point is proven by its slacks and
multipliers, and that there is none by a row that rows of the basis contradict. The rest is left to a solver.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhedge._support.tolerances import CANCELLATION, FEASIBLE, PIVOT, SOLVED, SOLVER, TIE
from polyhedge._support.validation import Array, Indices, Mask

_STEPS, _ROUNDS = 60, 40
"""Steps, and rounds of branching, after which programs are left to a solver."""
_BRANCHED = 2
"""Nodes of a program that are branched in a round, those with the least bounds."""


def least_integers(
    A: Array, b: Array, c: Array, is_equation: Mask, bases: Indices, integer: Indices
) -> tuple[Array, Mask, Mask]:
    """The same as `least_from_basis` where some columns are integers, by branch and bound.

    A node is a program with further limits of its integers, and goes on from the basis of the node before.
    """
    n_rows, p, n = len(A), len(integer), A.shape[2]
    sides = np.concatenate([np.eye(n)[integer], -np.eye(n)[integer]])
    A = np.concatenate([A, np.broadcast_to(sides, (n_rows, 2 * p, n))], axis=1)
    is_equation = np.append(is_equation, np.zeros(2 * p, dtype=bool))
    best, value, is_known = np.full((n_rows, n), np.nan), np.full(n_rows, np.inf), np.ones(n_rows, dtype=bool)
    row, limits, W = np.arange(n_rows), np.full((n_rows, 2 * p), np.inf), bases
    waiting: list[Any] = [row[:0], np.zeros(0), np.zeros((0, p)), limits[:0], W[:0]]
    for _ in range(_ROUNDS):
        x, is_proven, is_empty, W = least_from_basis(A[row], np.hstack([b[row], limits]), c, is_equation, W)
        is_known[row[~is_proven & ~is_empty]] = False
        z, cost = x[:, integer], x @ c
        is_whole = np.abs(z - np.round(z)).max(axis=1) <= SOLVED
        found = np.flatnonzero(is_whole & (cost < value[row]))
        found = found[np.argsort(-cost[found], kind="stable")]  # the least of a program is written last
        best[row[found]], value[row[found]] = x[found], cost[found]
        nodes = [np.concatenate(pair) for pair in zip(waiting, (row, cost, z, limits, W), strict=True)]
        whole = np.concatenate([np.zeros(len(waiting[0]), dtype=bool), is_whole])
        is_open = ~whole & is_known[nodes[0]] & (nodes[1] < value[nodes[0]] - TIE * (1 + np.abs(nodes[1])))
        nodes = [one[is_open] for one in nodes]
        order = np.lexsort((nodes[1], nodes[0]))
        row = nodes[0][order]
        is_next = np.arange(len(row)) - np.searchsorted(row, row) < _BRANCHED
        waiting = [one[order[~is_next]] for one in nodes]
        row, _, z, limits, W = (one[order[is_next]] for one in nodes)
        if not len(row):
            break
        at, j = np.arange(len(row)), np.abs(z - np.round(z)).argmax(axis=1)
        below, above = limits.copy(), limits.copy()
        below[at, j], above[at, p + j] = np.floor(z[at, j]), -np.ceil(z[at, j])
        row, limits, W = np.tile(row, 2), np.concatenate([below, above]), np.tile(W, (2, 1))
    is_known[row] = False
    best[:, integer] = np.round(best[:, integer])
    return best, is_known & np.isfinite(value), is_known & np.isposinf(value)


@np.errstate(over="ignore", invalid="ignore")
def least_from_basis(
    A: Array, b: Array, c: Array, is_equation: Mask, bases: Indices
) -> tuple[Array, Mask, Mask, Indices]:
    """Best points (N, n) of programs A (N, m, n), b (N, m), c (n,), and the bases (N, n) where these were found.

    Between them, which points are proven (N,), and which programs have none (N,). Numbers are near 1, and the bases
    (N, n) to begin with hold all equations.
    """
    x = np.full(A.shape[::2], np.nan)
    is_proven, is_empty = np.zeros((2, len(A)), dtype=bool)
    rows, W, costs, unit = np.arange(len(A)), bases.copy(), np.zeros((0, 0)), np.eye(bases.shape[1])
    last = W.copy()
    for step in range(_STEPS):
        W.sort(axis=1)  # how a basis was found leaves no trace in the bits of its point
        at, free = np.arange(len(rows)), is_equation[W]
        square = np.take_along_axis(A, W[:, :, None], axis=1)
        try:
            inverse = np.linalg.inv(square)
        except np.linalg.LinAlgError:
            break
        if not step:
            y = -c @ inverse
            costs = -(np.where(free, y, np.maximum(y, 0.0))[:, None] @ square)[:, 0]
        point = (inverse @ np.take_along_axis(b, W, axis=1)[:, :, None])[:, :, 0]
        slack = b - (A @ point[:, :, None])[:, :, 0]
        slack[:, is_equation] = -np.abs(slack[:, is_equation])
        worst = slack.argmin(axis=1)
        is_inside = slack[at, worst] >= -SOLVER * (1 + np.abs(point).max(axis=1))
        costs[is_inside] = c
        y = np.where(free, np.inf, -(costs[:, None] @ inverse)[:, 0])
        is_sound = np.abs(square @ inverse - unit).max(axis=(1, 2)) <= SOLVER
        cheapest = y.argmin(axis=1)
        is_dual = y[at, cheapest] >= -SOLVER
        ends = is_sound & is_inside & is_dual
        x[rows[ends]], is_proven[rows[ends]], last[rows[ends]] = point[ends], True, W[ends]
        # Dual: the row that is broken most enters, and the first multiplier to vanish leaves. Primal: the row with the
        # most negative multiplier leaves, and the first that is met enters.
        rates = (A[at, worst][:, None] @ inverse)[:, 0]
        entering = _first(np.maximum(y, 0.0), rates)
        # A broken row that is a sum of rows of the basis, times numbers that are not positive, is always broken.
        is_broken = slack[at, worst] < -FEASIBLE * (1 + np.abs(point).max(axis=1))
        is_none = is_broken & (np.where(free, 0.0, rates).max(axis=1) <= CANCELLATION)
        is_empty[rows] = is_sound & is_none & ~is_equation[worst]
        edge = -(A @ inverse[at, :, cheapest][:, :, None])[:, :, 0]
        np.put_along_axis(edge, W, 0.0, axis=1)
        met = _first(np.maximum(slack, 0.0), edge)
        leaving, found = np.where(is_inside, cheapest, entering), np.where(is_inside, met, entering) >= 0
        W[at, leaving] = np.where(is_inside, met, worst)
        goes_on = is_sound & found & ~ends & (is_inside | is_dual)
        rows, W, A, b, costs = rows[goes_on], W[goes_on], A[goes_on], b[goes_on], costs[goes_on]
        if not len(rows):
            break
    return x, is_proven, is_empty, last


def _first(values: Array, rates: Array) -> Indices:
    """For each program the place where a value falls to 0 first, of equal ones at the largest rate; -1 for none."""
    can = (rates > PIVOT) & np.isfinite(values)
    ratios = np.where(can, values / np.where(can, rates, 1.0), np.inf)
    least = ratios.min(axis=1, keepdims=True)
    tied = np.where(can & (ratios <= least + CANCELLATION * (1 + least)), rates, -np.inf)
    return np.where(np.isfinite(least[:, 0]), tied.argmax(axis=1), -1)
