"""A conic program whose numbers move linearly with the context, solved at many contexts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.solvers.conic import ConicSolver, solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.mixed_integer import with_fixed_integers
from polyhedge.solvers.program import ConicProgram, Solution, Status, status_at
from polyhedge.solvers.scaling import Frame
from polyhedge.solvers.solve import solve


@dataclass(frozen=True)
class ParametricProgram:
    """The program at prediction f: costs, entries, right-hand sides and offset are affine in f.

    `entry_slope` has a row for each stored entry of `at_zero.A`; the sparsity never changes.
    """

    at_zero: ConicProgram
    cost_slope: sp.csr_array
    entry_slope: sp.csr_array
    rhs_slope: sp.csr_array
    offset_slope: Array

    def at(self, center: Array) -> ConicProgram:
        """The program at one prediction."""
        zero = self.at_zero
        A = zero.A
        if self.entry_slope.nnz:
            A = sp.csr_array((A.data + self.entry_slope @ center, A.indices, A.indptr), A.shape)
        return replace(
            zero,
            c=zero.c + self.cost_slope @ center,
            A=A,
            b=zero.b + self.rhs_slope @ center,
            offset=zero.offset + float(self.offset_slope @ center),
        )

    def frame_at(self, center: Array) -> Frame:
        """Where the programs near one prediction are best seen from: the solution there, if there is a proven one."""
        program = replace(self.at(center), integer=np.zeros(0, dtype=np.int64))
        frame = Frame.of(program)
        linear = program.is_linear
        solution = LinearSolver(program, frame=frame).solve() if linear else solve_conic(program, frame=frame)
        return frame.around(program, solution.x, solution.y) if solution.status is Status.OPTIMAL else frame


class ContextSolver:
    """Solve one parametric program at one prediction after the other: set up once, warm where the solver allows.

    All programs are seen from one frame: a given one, else that of the first prediction.
    """

    def __init__(self, parametric: ParametricProgram, frame: Frame | None = None) -> None:
        self.parametric, self.frame = parametric, frame
        zero = parametric.at_zero
        self.costs = _rows_with_entries(parametric.cost_slope)
        self.rhs = _rows_with_entries(parametric.rhs_slope)
        self.entries = _rows_with_entries(parametric.entry_slope)
        rows_of_entries = np.repeat(np.arange(zero.A.shape[0]), np.diff(zero.A.indptr))
        self.entry_rows, self.entry_columns = rows_of_entries[self.entries], zero.A.indices[self.entries]
        self.is_warm = zero.is_linear and not len(zero.integer)

    def _set_up(self, program: ConicProgram, center: Array) -> None:
        self.frame = self.parametric.frame_at(center) if self.frame is None else self.frame
        if self.is_warm:
            varying = np.union1d(self.rhs, self.entry_rows)
            self.solver = LinearSolver(program, varying_rows=varying, frame=self.frame)
        else:
            self.conic = ConicSolver(program, frame=self.frame)

    @property
    def row_units(self) -> Array | None:
        """What rows are measured in; None where nothing was seen from a frame, such as programs of whole numbers."""
        return None if self.frame is None else self.frame.rows

    def forget(self) -> None:
        """Begin anew: what comes next does not depend on what was solved before."""
        if hasattr(self, "solver"):
            self.solver.highs.clearSolver()

    def solve(self, center: Array) -> Solution:
        """The solution at one prediction."""
        program = self.parametric.at(center)
        if len(program.integer):
            return _with_duals(program, solve(program))
        if not hasattr(self, "solver") and not hasattr(self, "conic"):
            self._set_up(program, center)
        if not self.is_warm:
            return self.conic.solve(program)
        self.solver.change_costs(self.costs, program.c[self.costs])
        self.solver.change_rhs(self.rhs, program.b[self.rhs])
        self.solver.change_coefficients(self.entry_rows, self.entry_columns, program.A.data[self.entries])
        solution = self.solver.solve()
        return replace(solution, value=solution.value + program.offset - self.solver.program.offset)


def _with_duals(program: ConicProgram, solution: Solution) -> Solution:
    """Multipliers of a mixed-integer solution: those of the program with its integers fixed."""
    if not solution.status.has_solution:
        return solution
    completed = with_fixed_integers(program, solution.x)
    if not completed.status.has_solution:
        return solution
    gap = max(completed.value - (solution.value - solution.gap), 0.0)
    status = status_at(gap, solution.size) if completed.status is Status.OPTIMAL else Status.STOPPED_EARLY
    return replace(solution, x=completed.x, y=completed.y, value=completed.value, gap=gap, status=status)


def _rows_with_entries(matrix: sp.csr_array) -> Indices:
    return np.flatnonzero(np.diff(matrix.indptr))
