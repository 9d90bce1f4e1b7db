"""Programs with their integer columns fixed: the best of all other columns, and its multipliers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, ROUNDING
from polyhedge._support.validation import Array, Mask
from polyhedge.solvers.cones import outside
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status
from polyhedge.solvers.scaling import Frame
from polyhedge.solvers.verify import nothing_known


def with_fixed_integers(program: ConicProgram, x: Array, frame: Frame | None = None) -> Solution:
    """The best continuous completion of the integer part of x, with the duals of the program's rows.

    Its point is feasible, so its value is an upper bound of the mixed-integer optimum. Fixed columns are put in, not
    fixed by equations: what is left is small where their limits meet, and solvers need not find out that it is. Rows
    in which nothing is left have a dual of 0. What fails in the program's own units is tried in those of what is left.
    """
    is_given, frame = frame is not None, Frame.of(program) if frame is None else frame
    whole = np.round(x[program.integer])
    rest = _Rest(program, whole, frame)
    if rest.broken > OPTIMAL:
        detail = f"whole numbers alone break a limit by {rest.broken:.1e} of its terms"
        return nothing_known(program, Status.INFEASIBLE, detail)
    if not len(rest.columns):
        nothing = np.zeros(0)
        return rest.whole(Solution(nothing, nothing, rest.program.offset, Status.OPTIMAL, size=frame.cost))
    if rest.program.is_linear:
        return rest.whole(LinearSolver(rest.program, frame=rest.frame if is_given else None).solve())
    solution = solve_conic(rest.program, frame=rest.frame)
    return rest.whole(solution if solution.status is Status.OPTIMAL else _better(solution, solve_conic(rest.program)))


def _better(first: Solution, second: Solution) -> Solution:
    """The one with a point, then the one with the smaller gap."""
    return max(first, second, key=lambda solution: (solution.status.has_solution, -solution.gap))


class _Rest:
    """What is left of a program, and of its frame, where its integer columns have these values.

    `broken` is by how much rows in which nothing is left are broken, as a share of a unit and their terms.
    """

    def __init__(self, program: ConicProgram, values: Array, frame: Frame) -> None:
        n, m = len(program.c), len(program.b)
        self.full, self.values = program, values
        self.columns = np.setdiff1d(np.arange(n), program.integer)
        fixed = sp.csr_array(program.A[:, program.integer])
        reach, terms = fixed @ values, abs(fixed) @ np.abs(values)
        with np.errstate(invalid="ignore"):
            size = np.where(np.isfinite(program.b), np.abs(program.b), 0.0) + terms
            b = program.b - reach
        # What is left of a difference is no more than rounding where it is that small beside its terms.
        b = np.where(np.abs(b) <= ROUNDING * size, 0.0, b)
        A = sp.csr_array(program.A[:, self.columns])
        kept, cones, self.broken = np.ones(m, dtype=bool), [], 0.0
        is_left, start = np.diff(A.indptr) > 0, 0
        for cone in program.cones:
            rows = slice(start, start + cone.n_rows)
            start += cone.n_rows
            is_linear = cone.kind in ("zero", "nonneg")
            gone = ~is_left[rows] if is_linear else np.full(cone.n_rows, not is_left[rows].any())
            kept[rows] = ~gone
            if gone.any():
                self.broken = max(
                    self.broken, _off(cone, frame.rows[rows] * b[rows], frame.rows[rows] * size[rows], gone)
                )
            if not gone.all():
                cones.append(replace(cone, size=int((~gone).sum())) if is_linear else cone)
        c, P, offset = program.c[self.columns], None, program.offset + float(program.c[program.integer] @ values)
        if program.P is not None:
            across = sp.csr_array(program.P[:, program.integer]) @ values
            c, P = c + across[self.columns], sp.csr_array(program.P[self.columns][:, self.columns])
            offset += 0.5 * float(across[program.integer] @ values)
        self.kept = np.flatnonzero(kept)
        self.program = ConicProgram(c, sp.csr_array(A[self.kept]), b[self.kept], tuple(cones), P, offset)
        self.frame = Frame(
            frame.rows[self.kept],
            frame.columns[self.columns],
            frame.cost,
            frame.origin[self.columns],
            frame.prices[self.kept],
        )

    def whole(self, solution: Solution) -> Solution:
        """A solution of what is left as one of the program."""
        if not solution.status.has_solution:
            return nothing_known(self.full, solution.status, solution.detail)
        x, y = np.empty(len(self.full.c)), np.zeros(len(self.full.b))
        x[self.full.integer], x[self.columns], y[self.kept] = self.values, solution.x, solution.y
        curved = 0.0 if self.full.P is None else 0.5 * (self.full.P @ x)
        return replace(solution, x=x, y=y, value=float((self.full.c + curved) @ x) + self.full.offset)


def _off(cone: Cone, slack: Array, size: Array, gone: Mask) -> float:
    """By how much the rows of a cone in which nothing is left are broken, in units of their frame."""
    if cone.kind == "zero":
        return float((np.abs(slack) / (1 + size))[gone].max())
    if cone.kind == "nonneg":
        return float((np.maximum(-slack, 0.0) / (1 + size))[gone].max())
    return outside(cone, slack) / (1 + float(size.max()))
