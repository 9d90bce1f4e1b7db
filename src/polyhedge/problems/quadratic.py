r"""Costs that are quadratic in the decision, read from the compiled program.

The compiled program says what $g_0$ is: a quadratic function of columns x, the decision z among them. If equations
give every column that costs something as an affine function of z, then $g_0$ is a quadratic function of z with just
these coefficients; a column that is only bounded (an epigraph, as of an absolute value or a maximum) makes it
something else. No cost is ever evaluated: finitely many points cannot tell a parabola from its neighbours. CVXPY's own
`is_quadratic` cannot either: it counts Huber's function in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.problems.feasible_set import FeasibleProgram
from polyhedge.solvers.program import ConicProgram, row_kinds

_FLATTEST = 1e-200
"""Dividing a slope by less curvature than this would overflow."""


@dataclass(frozen=True)
class QuadraticCost:
    r"""The function $\tfrac12 |L z + l|_D^2 + c^\top z + \text{offset}$ with the symmetric matrix D."""

    L: Array
    l: Array  # noqa: E741 - the letter of the formula
    D: Array
    c: Array
    offset: float

    @property
    def hessian(self) -> Array:
        """H of z'Hz / 2 + slope'z + constant."""
        return np.asarray(self.L.T @ self.D @ self.L)

    @property
    def slope(self) -> Array:
        """The gradient at z = 0."""
        return np.asarray(self.c + self.L.T @ self.D @ self.l)

    def along(self, z0: Array, z1: Array) -> Array:
        """Coefficients (3,) of 1, s and s^2 at z0 + s (z1 - z0)."""
        step = z1 - z0
        start, turn = self.L @ z0 + self.l, self.L @ step
        constant = 0.5 * start @ self.D @ start + self.c @ z0 + self.offset
        bend = 0.5 * float(turn @ self.D @ turn)
        # The cost is convex: what is below zero is rounding.
        return np.array([constant, turn @ self.D @ start + self.c @ step, bend if bend > _FLATTEST else 0.0])


def quadratic_cost(feasible: FeasibleProgram) -> QuadraticCost | None:
    """g_0 as a quadratic function of the decision, or None where the compiled program does not say that it is one."""
    program = feasible.program
    is_curved = np.zeros(len(program.c), dtype=bool)
    if program.P is not None:
        is_curved[program.P.tocoo().row] = True
    columns = np.flatnonzero(is_curved | (program.c != 0))
    maps = _affine_in_decision(program, feasible.z_columns, columns)
    if maps is None:
        return None
    M, m = maps
    curved = is_curved[columns]
    D = np.zeros((0, 0)) if program.P is None else program.P[columns[curved]][:, columns[curved]].toarray()
    costs = program.c[columns]
    return QuadraticCost(M[curved], m[curved], D, costs @ M, float(costs @ m) + program.offset)


def _affine_in_decision(program: ConicProgram, z: Indices, columns: Indices) -> tuple[Array, Array] | None:
    """M, m with x[columns] = M z + m for every feasible x; None where some column is not given by an equation."""
    M, m = np.zeros((len(columns), len(z))), np.zeros(len(columns))
    equations, place = _one_unknown_each(program, z), {int(column): k for k, column in enumerate(z)}
    for k, column in enumerate(columns):
        if int(column) in place:
            M[k, place[int(column)]] = 1.0
        elif int(column) in equations:
            row = program.A[[equations[int(column)]]].toarray().ravel()
            M[k], m[k] = -row[z] / row[column], program.b[equations[int(column)]] / row[column]
        else:
            return None
    return M, m


def _one_unknown_each(program: ConicProgram, z: Indices) -> dict[int, int]:
    """Column -> an equation in which it stands with decisions only."""
    equations = np.flatnonzero(row_kinds(program.cones) == "zero")
    others = program.A[equations].tocoo()
    unknown = (others.data != 0) & ~np.isin(others.col, z)
    count = np.bincount(others.row[unknown], minlength=len(equations))
    alone = unknown & (count[others.row] == 1)
    return {int(column): int(equations[row]) for row, column in zip(others.row[alone], others.col[alone], strict=True)}
