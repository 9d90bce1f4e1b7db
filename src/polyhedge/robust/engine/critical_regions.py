r"""Critical regions: predictions that share one active set, so that one affine map solves them all.

A region is a set of flipped pairs. Its tests, $M [1; f] \ge 0$, say for any number of contexts by one matrix product
whether they belong to it; its maps then give decision, worst-case residual and bound without a solve. A region is
kept only if its maps satisfy the optimality conditions of the original program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import INSIDE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.engine.pairs import DenseProgram, Pairs
from polyhedge.robust.engine.pivots import PivotRule, Start, start_at


@dataclass(frozen=True)
class Region:
    """An active set with its tests (1 + d, n_rows) and the point X [1; f] and multipliers Y [1; f] it implies.

    `is_active` tells the inequalities whose slack is zero in it.
    """

    start: Start
    tests: Array
    X: Array
    Y: Array
    is_active: Mask

    def margins(self, F: Array) -> Array:
        """How far inside the region contexts lie, as rows [1, f]; on its edge zero, outside negative."""
        return np.asarray((F @ self.tests).min(axis=1, initial=np.inf))


def lies_inside(margins: Array) -> Mask:
    """Whether contexts with these margins belong to the region."""
    return margins >= -INSIDE


def region_at(rule: PivotRule, pairs: Pairs, flipped: Indices) -> Region | None:
    """The region with these pairs flipped; None where its equations are singular."""
    start = start_at(rule, flipped)
    if start is None:
        return None
    n = rule.n_columns
    if (start.tableau[rule.n_rows : rule.n_rows + 1, :n] < -INSIDE).any():
        return None  # a negative price: not optimal anywhere
    tests = np.ascontiguousarray(start.tableau[: rule.n_rows, n:].T)
    v = _affine_values(rule, start)
    is_active = pairs.at_base.copy()
    is_active[flipped] ^= True
    return Region(start, tests, pairs.X0 + pairs.X1 @ v, pairs.Y0 + pairs.Y1 @ v, is_active)


def _affine_values(rule: PivotRule, start: Start) -> Array:
    """V with v = V [1; f], by reading the tableau once for each column of [1; f]; prices belong to the first."""
    n, each = rule.n_columns, start.tableau.shape[1] - rule.n_columns
    M = np.zeros((each, len(start.tableau), n + 1))
    M[0, :, :n] = start.tableau[:, :n]
    M[:, :, n] = start.tableau[:, n:].T
    rows, columns = np.repeat(start.rows[None], each, axis=0), np.repeat(start.columns[None], each, axis=0)
    return rule.values(M, rows, columns)[0].T


def is_certified(program: DenseProgram, region: Region, tolerance: float) -> bool:
    """Whether the region's maps satisfy the program's equations for all predictions; its tests do the rest."""
    X, Y, rows = region.X, region.Y, program.inequalities
    slack = program.B - program.A @ X
    force = program.C + program.A.T @ Y + (0.0 if program.P is None else program.P @ X)
    must_vanish = np.ones(len(slack), dtype=bool)
    must_vanish[rows] = region.is_active
    wrong = np.abs(slack[must_vanish]).max(initial=0.0) / (1 + np.abs(X).max())
    idle = np.abs(Y[rows[~region.is_active]]).max(initial=0.0)
    wrong = max(wrong, max(np.abs(force).max(), idle) / (1 + np.abs(Y).max()))
    return bool(wrong <= tolerance)
