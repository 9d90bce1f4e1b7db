r"""Values and multipliers of linear programs of which only right-hand sides move, from bases that served others.

In $\min \{c^\top x : A x \le b\}$ the multipliers of a basis, $A_B^\top y = -c$, do not depend on b: a basis that was
best once has $y \ge 0$ for ever, and $-y^\top b_B$ is a lower bound of every program's value. So each program takes the
known basis with the largest bound, and has its value if $A_B^{-1} b_B$ keeps the other rows. It is taken where that is
*sharp*, every other row clearly slack: the multipliers are then the only ones, and do not depend on what was known.

Rows and columns are multiplied by powers of two as solvers' programs are (`solvers.scaling`): which entry an inverse is
begun with depends on sizes, and with it the last digit of all that is found.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.engine.parametric import ParametricProgram
from polyhedge.solvers.program import row_kinds
from polyhedge.solvers.scaling import balance

_CLEARLY = 1e-7
"""Share of its size by which a slack must exceed zero: well above roundings and tolerances of solvers."""
_ZERO = 1e-9
"""Share of the largest multiplier below which one is a rounding of zero."""
_MOST = 1024
"""Bases that are kept: with more of them the products that choose one take as long as a solver."""
_TRIES = 8
"""Bases of the same bound that are tried: those that share their multipliers differ in rows without weight."""


class SharpLevels:
    """The bases of one such program that are known; make it with `sharp_levels`.

    Parameters
    ----------
    c, A : costs (n,) and rows (m, n).
    is_equation : (m,) rows that hold with equality.
    rows, columns : (m,) and (n,) what these are multiplied by.
    """

    def __init__(self, c: Array, A: Array, is_equation: Mask, rows: Array, columns: Array) -> None:
        self.c, self.A, self.is_equation, self.rows = columns * c, rows[:, None] * A * columns, is_equation, rows
        n = len(c)
        self.bases, self.inverses = np.zeros((0, n), dtype=np.int64), np.zeros((0, n, n))
        self.multipliers, self.known = np.zeros((0, len(A))), set[bytes]()

    def __call__(self, b: Array) -> tuple[Array, Array, Mask]:
        """Values (N,) and multipliers (N, m) at right-hand sides (N, m), and where they are sharp."""
        if not len(self.bases):
            return np.zeros(len(b)), np.zeros(b.shape), np.zeros(len(b), dtype=bool)
        b = self.rows * b
        bounds = -b @ self.multipliers.T
        order = np.argsort(-bounds, axis=1, kind="stable")[:, :_TRIES]
        best, is_sharp = order[:, 0].copy(), np.zeros(len(b), dtype=bool)
        values, room = np.zeros(len(b)), _ZERO * (1 + np.abs(bounds).max(axis=1))
        for k in range(order.shape[1]):
            due = np.flatnonzero(~is_sharp)
            due = due[bounds[due, order[due, k]] >= bounds[due, best[due]] - room[due]]
            if not len(due):
                break
            chosen = order[due, k]
            x, clear = self._at(chosen, b[due])
            values[due[clear]], best[due[clear]], is_sharp[due[clear]] = x[clear] @ self.c, chosen[clear], True
        return values, self.rows * self.multipliers[best], is_sharp

    def _at(self, chosen: Indices, b: Array) -> tuple[Array, Mask]:
        """Where the rows of the chosen bases meet, and whether all others are clearly slack."""
        bases = self.bases[chosen]
        x = (self.inverses[chosen] @ np.take_along_axis(b, bases, axis=1)[:, :, None])[:, :, 0]
        slack, size = b - x @ self.A.T, np.abs(x) @ np.abs(self.A).T + np.abs(b)
        others = slack > _CLEARLY * size
        np.put_along_axis(others, bases, True, axis=1)
        return x, np.asarray(others.all(axis=1))

    def remember(self, tight: Mask | None) -> None:
        """Take over the basis of a solver, given by its tight rows (m,)."""
        if tight is None or len(self.bases) >= _MOST:
            return
        basis = np.flatnonzero(tight)
        if len(basis) != len(self.c) or basis.tobytes() in self.known:
            return
        self.known.add(basis.tobytes())
        try:
            inverse = np.linalg.inv(self.A[basis])
        except np.linalg.LinAlgError:
            return
        own = -self.c @ inverse
        own[np.abs(own) <= _ZERO * np.abs(own).max()] = 0.0
        if (own[~self.is_equation[basis]] >= 0).all():
            multipliers = np.zeros((1, len(self.A)))
            multipliers[0, basis] = own
            self.bases, self.inverses = np.vstack([self.bases, basis]), np.concatenate([self.inverses, inverse[None]])
            self.multipliers = np.vstack([self.multipliers, multipliers])


def sharp_levels(parametric: ParametricProgram) -> SharpLevels | None:
    """For linear programs without whole numbers, of which nothing but right-hand sides moves; else None."""
    zero, kinds = parametric.at_zero, row_kinds(parametric.at_zero.cones)
    moves = parametric.cost_slope.nnz or parametric.entry_slope.nnz or parametric.offset_slope.any()
    if zero.P is not None or len(zero.integer) or moves or not np.isin(kinds, ("zero", "nonneg")).all():
        return None
    # Levels of about 1 are usual in the problem's own units; without them a program may not say how large anything is.
    usual = np.abs(zero.b) + abs(parametric.rhs_slope).sum(axis=1)
    rows, columns, _ = balance(replace(zero, b=usual))
    return SharpLevels(zero.c, zero.A.toarray(), kinds == "zero", rows, columns)
