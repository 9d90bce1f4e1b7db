r"""Small linear programs of which every number differs, solved together from a basis that they share.

$$\min_x\ c^\top x \quad\text{s.t.}\quad A_i x + s = b_i,\ s \ge 0 \text{ off the equations}$$

A basis W is n rows that hold with equality: $x = A_W^{-1} b_W$, $y_W = -A_W^{-\top} c$. Costs are first moved so that
no multiplier is negative, and the dual simplex method finds a point that keeps all rows. From there the primal simplex
method goes on with the costs as they are. All programs take each step together. A point is proven by its slacks and
multipliers, and that there is none by a row that rows of the basis contradict. The rest is left to a solver.
"""

from __future__ import annotations

import numpy as np

from polyhedge._support.tolerances import CANCELLATION, FEASIBLE, PIVOT, SOLVER
from polyhedge._support.validation import Array, Indices, Mask

_STEPS = 60
"""Steps after which programs are left to a solver."""


def least_from_basis(A: Array, b: Array, c: Array, is_equation: Mask, basis: Indices) -> tuple[Array, Mask, Mask]:
    """Best points (N, n) of programs A (N, m, n), b (N, m), c (n,); which are proven (N,), and which have none (N,).

    Numbers are near 1, and `basis` (n,) holds all equations.
    """
    x = np.full(A.shape[::2], np.nan)
    is_proven, is_empty = np.zeros((2, len(A)), dtype=bool)
    rows, W, costs = np.arange(len(A)), np.tile(basis, (len(A), 1)), np.zeros((0, 0))
    unit = np.eye(len(basis))
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
        x[rows[ends]], is_proven[rows[ends]] = point[ends], True
        # Dual: the row that is broken most enters, and the first multiplier to vanish leaves. Primal: the row with the
        # most negative multiplier leaves, and the first that is met enters.
        rates = (A[at, worst][:, None] @ inverse)[:, 0]
        entering = _first(np.maximum(y, 0.0), rates)
        # A broken row that is a sum of rows of the basis, times numbers that are not positive, is always broken.
        is_broken = slack[at, worst] < -FEASIBLE * (1 + np.abs(point).max(axis=1))
        is_empty[rows] = is_sound & is_broken & (entering < 0) & ~is_equation[worst]
        edge = -(A @ inverse[at, :, cheapest][:, :, None])[:, :, 0]
        np.put_along_axis(edge, W, 0.0, axis=1)
        met = _first(np.maximum(slack, 0.0), edge)
        leaving, found = np.where(is_inside, cheapest, entering), np.where(is_inside, met, entering) >= 0
        W[at, leaving] = np.where(is_inside, met, worst)
        goes_on = is_sound & found & ~ends & (is_inside | is_dual)
        rows, W, A, b, costs = rows[goes_on], W[goes_on], A[goes_on], b[goes_on], costs[goes_on]
        if not len(rows):
            break
    return x, is_proven, is_empty


def _first(values: Array, rates: Array) -> Indices:
    """For each program the place where a value falls to 0 first, of equal ones at the largest rate; -1 for none."""
    can = (rates > PIVOT) & np.isfinite(values)
    ratios = np.where(can, values / np.where(can, rates, 1.0), np.inf)
    least = ratios.min(axis=1, keepdims=True)
    tied = np.where(can & (ratios <= least + CANCELLATION * (1 + least)), rates, -np.inf)
    return np.where(np.isfinite(least[:, 0]), tied.argmax(axis=1), -1)
