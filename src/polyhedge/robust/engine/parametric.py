"""A conic program whose numbers are affine in the context, solved at many contexts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.solvers.conic import ConicSolver, solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Solution, Status, as_slice, row_kinds, status_at
from polyhedge.solvers.solve import solve, with_fixed_integers


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

    def scaling_at(self, center: Array) -> Scaling:
        """The scaling of programs near one prediction, around the solution there if one is proven."""
        program = replace(self.at(center), integer=np.zeros(0, dtype=np.int64))
        scaling = Scaling.of(program)
        linear = program.is_linear
        solution = LinearSolver(program, scaling=scaling).solve() if linear else solve_conic(program, scaling=scaling)
        return scaling.around(program, solution.x, solution.y) if solution.status is Status.OPTIMAL else scaling


class ContextSolver:
    """Solve one parametric program at one prediction after the other: set up once, warm where the solver allows.

    All programs have one scaling: a given one, else that of the first prediction.
    """

    def __init__(self, parametric: ParametricProgram, scaling: Scaling | None = None) -> None:
        self.parametric, self.scaling = parametric, scaling
        zero = parametric.at_zero
        self.costs = _rows_with_entries(parametric.cost_slope)
        self.rhs = _rows_with_entries(parametric.rhs_slope)
        self.entries = _rows_with_entries(parametric.entry_slope)
        self.entry_rows = np.repeat(np.arange(zero.A.shape[0]), np.diff(zero.A.indptr))[self.entries]
        self.is_warm = zero.is_linear and not len(zero.integer)

    def _set_up(self, program: ConicProgram, center: Array) -> None:
        self.scaling = self.parametric.scaling_at(center) if self.scaling is None else self.scaling
        if self.is_warm:
            varying = np.union1d(self.rhs, self.entry_rows)
            self.solver = LinearSolver(program, varying_rows=varying, scaling=self.scaling)
        else:
            self.conic = ConicSolver(program, scaling=self.scaling)

    @property
    def row_units(self) -> Array | None:
        """Units of the rows; None without a scaling, as for programs with integers."""
        return None if self.scaling is None else self.scaling.rows

    def forget(self) -> None:
        """Drop the warm start: the next answer does not depend on earlier ones."""
        if hasattr(self, "solver"):
            self.solver.forget()

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
        self.solver.change_entries(self.entries, program.A.data[self.entries])
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


def level_program(problem: DecisionProblem) -> ParametricProgram:
    """The program with the levels y (L,) as its context; its last L rows are the pieces."""
    pieces, program = problem.structure.pieces, problem.feasible.program
    n_columns, n_rows = len(program.c) + 1, len(program.b)
    rows = np.zeros((len(pieces), n_columns))
    rows[:, problem.feasible.z_columns] = pieces.p
    rows[:, -1] = -1.0
    padded = sp.hstack([program.A, sp.csr_array((n_rows, 1))], format="csr")
    at_zero = ConicProgram(
        c=np.append(program.c, 1.0),
        A=sp.vstack([padded, sp.csr_array(rows)], format="csr"),
        b=np.concatenate([program.b, -pieces.c]),
        cones=(*program.cones, Cone("nonneg", len(pieces))),
        P=None if program.P is None else sp.block_diag([program.P, sp.csr_array((1, 1))], format="csr"),
        offset=program.offset,
        integer=program.integer,
    )
    slope = np.vstack([np.zeros((n_rows, len(pieces))), -np.eye(len(pieces))])
    return ParametricProgram(
        at_zero,
        cost_slope=sp.csr_array((n_columns, len(pieces))),
        entry_slope=sp.csr_array((at_zero.A.nnz, len(pieces))),
        rhs_slope=sp.csr_array(slope),
        offset_slope=np.zeros(len(pieces)),
    )


@dataclass(frozen=True, eq=False)
class Uniqueness:
    """Whether multipliers prove that a solution is the only one; else decisions may tie.

    Inequalities with positive multipliers are tight in every solution. As many of them as
    there are columns, with the equations and the curvature of the cost, leave one solution.

    `missing` is how many multipliers must be positive. `is_decidable` says whether they prove anything: for integer
    decisions they do not. `prices_move` says whether they change with the context.
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

    def is_proven(self, y: Array, rows: Array | None) -> Mask:
        """For multipliers (N, m), whether they say that there is one solution.

        `rows` (m,) are the units of the program's rows in its scaling: prices of one limit are compared with those of
        another. None is proven if multipliers are not conclusive, or without units.
        """
        if not self.is_decidable or rows is None:
            return np.zeros(len(y), dtype=bool)
        own = y[:, self.inequalities] / rows[self.inequalities]
        largest = np.maximum(own.max(axis=1, initial=0.0), -own.min(axis=1, initial=0.0))
        with np.errstate(invalid="ignore"):
            positive = own > SOLVER * largest[:, None]
        return np.asarray(np.count_nonzero(positive, axis=1) >= self.missing)
