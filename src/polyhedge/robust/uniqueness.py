"""Whether the multipliers of a program say that its solution is the only one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.engine.parametric import ParametricProgram
from polyhedge.solvers.program import as_slice, row_kinds


@dataclass(frozen=True, eq=False)
class Uniqueness:
    """Limits with positive multipliers hold with equality in every solution.

    As many of them as there are columns, with the equations and the curvature of the cost, leave one solution. Fewer
    may leave more: that is where to look for ties.

    Attributes
    ----------
    inequalities : rows with multipliers that are not negative.
    missing : how many multipliers must be positive.
    is_decidable : whether multipliers tell: not for whole decisions.
    prices_move : whether multipliers change with the context.
    """

    inequalities: Indices | slice
    missing: int
    is_decidable: bool
    prices_move: bool

    @classmethod
    def of(cls, parametric: ParametricProgram) -> Uniqueness:
        """What must hold of the multipliers of this program."""
        zero = parametric.at_zero
        kinds = row_kinds(zero.cones)
        is_curved = zero.P is not None and zero.P.nnz > 0
        curvature = int(np.linalg.matrix_rank(zero.P.toarray())) if is_curved and zero.P is not None else 0
        missing = len(zero.c) - int((kinds == "zero").sum()) - curvature
        # A round set or limit has no two decisions of one worst case but along a ray.
        missing = 0 if np.isin(kinds, ("soc", "rotated")).any() else missing
        moves = bool(parametric.cost_slope.nnz or parametric.entry_slope.nnz or is_curved)
        return cls(as_slice(np.flatnonzero(kinds == "nonneg")), missing, not len(zero.integer), moves)

    def is_seen(self, y: Array, rows: Array | None) -> Mask:
        """For multipliers (N, m), whether they say that there is one solution.

        `rows` (m,) are the units of the program's rows as in its frame: prices of one limit are compared with those of
        another. There are none where multipliers do not tell.
        """
        if not self.is_decidable or rows is None:
            return np.zeros(len(y), dtype=bool)
        own = y[:, self.inequalities] / rows[self.inequalities]
        largest = np.maximum(own.max(axis=1, initial=0.0), -own.min(axis=1, initial=0.0))
        with np.errstate(invalid="ignore"):
            positive = own > SOLVER * largest[:, None]
        return np.asarray(np.count_nonzero(positive, axis=1) >= self.missing)
