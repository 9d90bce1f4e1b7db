r"""A parametric linear or quadratic program in terms of its complementary pairs.

Every inequality has a slack s and a multiplier y, and one of each pair is zero at an optimum. With an active set W
chosen as base, the optimality conditions of $\min \tfrac12 x^\top P x + c(f)^\top x$, $A x + s = b(f)$
read $w = T v + q(f)$: w are the slacks off W and the multipliers on W, v their partners, which vanish at the base.
All else follows linearly from v, so a solver only has to find which pairs change sides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import PIVOT
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.engine.parametric import ParametricProgram
from polyhedge.solvers.program import as_slice, row_kinds
from polyhedge.solvers.scaling import Scaling

# In units of the program's scaling.
_ROUNDING = 1e-13
_LARGEST = 1e8


@dataclass(frozen=True)
class Pairs:
    r"""The system w = T v + q [1; f] and what follows from v: x = X0 [1; f] + X1 v, y = Y0 [1; f] + Y1 v.

    Slacks and multipliers are measured in units of their usual size. `at_base` tells which inequalities are
    active at the base, so that the multiplier is the pair's w.
    """

    T: Array
    q: Array
    X0: Array
    X1: Array
    Y0: Array
    Y1: Array
    at_base: Mask


@dataclass(frozen=True)
class DenseProgram:
    """A parametric program near one prediction as dense arrays, in the units of a scaling.

    Each row of C, B and offset holds [there, slopes in f]; f counts from that prediction. All but the offset, which
    makes the value, are in the scaling's units.
    """

    A: Array
    B: Array
    C: Array
    P: Array | None
    offset: Array
    inequalities: Indices
    scaling: Scaling

    @classmethod
    def of(cls, parametric: ParametricProgram, center: Array, scaling: Scaling) -> DenseProgram:
        """The program's arrays around a prediction; its matrix must not depend on it."""
        program = parametric.at(center)
        inside, x, prices = scaling.apply(program), scaling.origin, scaling.prices
        cost_slope, rhs_slope = parametric.cost_slope.toarray(), parametric.rhs_slope.toarray()
        bend = 0.0 if program.P is None else 0.5 * float(x @ (program.P @ x))
        there = program.offset + bend + float(program.c @ x) + float(prices @ (program.A @ x - program.b))
        kinds = row_kinds(program.cones)
        return cls(
            A=inside.A.toarray(),
            B=np.column_stack([inside.b, scaling.rows[:, None] * rhs_slope]),
            C=np.column_stack([inside.c, scaling.columns[:, None] * cost_slope / scaling.cost]),
            P=None if inside.P is None else inside.P.toarray(),
            offset=np.append(there, parametric.offset_slope + cost_slope.T @ x - rhs_slope.T @ prices),
            inequalities=np.flatnonzero(kinds == "nonneg"),
            scaling=scaling,
        )

    def points(self, x: Array) -> Array:
        """Points (N, n) of the program itself."""
        return np.asarray(self.scaling.origin + self.scaling.columns * x)

    def maps(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Point X [1; f] and multipliers Y [1; f] as maps for the program itself."""
        scaling = self.scaling
        X, Y = scaling.columns[:, None] * X, scaling.cost * scaling.rows[:, None] * Y
        X[:, 0] += scaling.origin
        Y[:, 0] += scaling.prices
        return X, Y

    def multipliers(self, y: Array) -> Array:
        """Multipliers (N, n_rows) of the program itself."""
        return np.asarray(self.scaling.prices + self.scaling.cost * self.scaling.rows * y)


def independent_rows(program: DenseProgram, wanted: Indices) -> Mask:
    """All equations, then the wanted inequalities in their order, each only if independent of those before it.

    At a degenerate point a basis may do without an equation, or more inequalities may be tight than there are
    dimensions; a base must have the one and not the other.
    """
    chosen = np.zeros(len(program.A), dtype=bool)
    directions = np.zeros((0, program.A.shape[1]))
    for row in [*np.flatnonzero(_equations(program.A, program.inequalities)), *wanted]:
        rest = program.A[row] / np.linalg.norm(program.A[row])
        for _ in range(2):  # once more for accuracy
            rest = rest - (directions @ rest) @ directions
        if np.linalg.norm(rest) > PIVOT:
            chosen[row] = True
            directions = np.vstack([directions, rest / np.linalg.norm(rest)])
    return chosen


def complementary_pairs(program: DenseProgram, active: Mask, reach: Array) -> Pairs | None:
    """The pairs with this base (a mask of rows); None where its equations have no unique solution.

    `reach` (1 + d) is the usual size of [1; f].
    """
    A, n = program.A, program.A.shape[1]
    rows, W = program.inequalities, np.flatnonzero(active)
    P = np.zeros((n, n)) if program.P is None else program.P
    at_base = active[rows]
    forces = np.zeros((n + len(W), len(rows)))
    forces[:n, ~at_base] = -A[rows[~at_base]].T
    forces[n + np.searchsorted(W, rows[at_base]), np.flatnonzero(at_base)] = -1.0
    system = np.block([[P, A[W].T], [A[W], np.zeros((len(W), len(W)))]])
    try:
        solution = np.linalg.solve(system, np.hstack([np.vstack([-program.C, program.B[W]]), forces]))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(solution).all() or np.abs(solution).max() > _LARGEST:
        return None
    X0, X1 = np.hsplit(solution[:n], [program.C.shape[1]])
    Y0, Y1 = np.zeros((len(A), X0.shape[1])), np.zeros((len(A), len(rows)))
    Y0[W], Y1[W] = np.hsplit(solution[n:], [program.C.shape[1]])
    Y1[rows[~at_base], np.flatnonzero(~at_base)] = 1.0
    T = np.where(at_base[:, None], Y1[rows], -A[rows] @ X1)
    T[np.abs(T) < _ROUNDING * np.abs(T).max()] = 0.0
    q = np.where(at_base[:, None], Y0[rows], program.B[rows] - A[rows] @ X0)
    sizes = np.abs(q) @ reach
    y_size, s_size = (float(sizes[side].max(initial=0.0)) or 1.0 for side in (at_base, ~at_base))
    w_size, v_size = np.where(at_base, y_size, s_size), np.where(at_base, s_size, y_size)
    return Pairs(T * v_size / w_size[:, None], q / w_size[:, None], X0, X1 * v_size, Y0, Y1 * v_size, at_base)


@dataclass(frozen=True)
class Proven:
    """Points x and multipliers y of N contexts, their values, gaps, and which are proven optimal."""

    x: Array
    y: Array
    value: Array
    gap: Array
    is_optimal: Mask


def prove(program: DenseProgram, pairs: Pairs, F: Array, v: Array, tolerance: float) -> Proven:
    """Point and multipliers at the pairs' values v (N, n_pairs), checked against the program's own numbers.

    Feasibility of both and the gap between primal and dual value must hold to the tolerance, relative to the size
    of the numbers involved; whatever route led to v.
    """
    A, rows = program.A, as_slice(program.inequalities)
    x, y = F @ pairs.X0.T + v @ pairs.X1.T, F @ pairs.Y0.T + v @ pairs.Y1.T
    c, b = F @ program.C.T, F @ program.B.T
    curved = 0.0 if program.P is None else x @ program.P
    slack = b - x @ A.T
    force = curved + c + y @ A
    bend = 0.5 * (curved * x).sum(axis=1) if program.P is not None else np.zeros(len(F))
    value = bend + (c * x).sum(axis=1)
    gap = value + bend + (b * y).sum(axis=1)
    x_size, y_size = 1 + np.abs(x).max(axis=1), 1 + np.abs(y).max(axis=1)
    wrong = np.abs(slack).max(axis=1, where=_equations(A, program.inequalities), initial=0.0) / x_size
    wrong = np.maximum(wrong, -slack[:, rows].min(axis=1, initial=0.0) / x_size)
    wrong = np.maximum(wrong, -y[:, rows].min(axis=1, initial=0.0) / y_size)
    wrong = np.maximum(wrong, np.abs(force).max(axis=1, initial=0.0) / y_size)
    wrong = np.maximum(wrong, np.abs(gap) / (1 + np.abs(value)))
    unit = program.scaling.cost
    value, gap = unit * value + F @ program.offset, unit * np.abs(gap)
    return Proven(program.points(x), program.multipliers(y), value, gap, wrong <= tolerance)


def _equations(A: Array, inequalities: Indices) -> Mask:
    mask = np.ones(len(A), dtype=bool)
    mask[inequalities] = False
    return mask
