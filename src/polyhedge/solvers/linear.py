"""HiGHS: linear and mixed-integer linear programs, re-solved from the last basis when numbers change."""

from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.solvers.choice import seconds_allowed, solver_in_force
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.program import ConicProgram, Solution, Status
from polyhedge.solvers.scaling import Frame, power_of_two, scaled
from polyhedge.solvers.verify import Judge, nothing_known, settled

_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kModelEmpty: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: Status.STOPPED_EARLY,
    highspy.HighsModelStatus.kIterationLimit: Status.STOPPED_EARLY,
    highspy.HighsModelStatus.kSolutionLimit: Status.STOPPED_EARLY,
}
_SMALL = 2_000
"""Columns up to which searches do not start anew at their root. HiGHS 1.15 may lose the optimum when it does; a small
program gains nothing by it (18 ms instead of 17 without)."""
_SHARPER = 2.0**17
"""What makes `SOLVER` a few dozen roundings."""


class LinearSolver:
    """One linear program in HiGHS; change its numbers and solve again.

    Rows with a single entry become bounds, so that the basis stays small; name in `varying_rows` those
    whose numbers will change. Duals follow c + A'y = 0 with y >= 0 on inequalities.

    A program of dense rows, such as cuts, leaves nothing to presolve, which then takes most of the time: say so.

    HiGHS sees the program in its own units, or from a given frame, with costs measured by the largest of each solve,
    because its tolerances are absolute. Where its answer is right to these but not to rounding, it is sharpened.
    """

    def __init__(
        self,
        program: ConicProgram,
        *,
        varying_rows: Indices | None = None,
        time_limit: float | None = None,
        max_nodes: int | None = None,
        relative_gap: float = 1e-9,
        frame: Frame | None = None,
        presolve: bool = True,
    ) -> None:
        if not program.is_linear:
            raise ValueError("LinearSolver takes programs without quadratic terms and cones.")
        self.frame = Frame.of(program) if frame is None else frame
        # The numbers as they are now, in the caller's units; entries of rows in the order of their columns.
        self.program = replace(program, c=program.c.copy(), b=program.b.copy(), A=program.A.sorted_indices())
        self.judge, self.tolerance = Judge(self.program, self.frame), max(OPTIMAL, relative_gap)
        self._split_rows(np.zeros(0, dtype=np.int64) if varying_rows is None else varying_rows)
        self.options = {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": relative_gap,
            "mip_abs_gap": SOLVER,
            "mip_feasibility_tolerance": SOLVER,
            "primal_feasibility_tolerance": SOLVER,
            "dual_feasibility_tolerance": SOLVER,
            "mip_allow_restart": len(program.c) > _SMALL,
            "presolve": "choose" if presolve else "off",
        } | dict(solver_in_force().highs)
        self.time_limit = seconds_allowed(time_limit)
        if max_nodes is not None:
            self.options["mip_max_nodes"] = min(max_nodes, 2**31 - 1)
        self.highs = self._highs()

    def _highs(self, sharper: float = 1.0) -> highspy.Highs:
        """HiGHS with the present numbers, costs and limits `sharper` times as large; empty where it refuses them.

        HiGHS keeps half of a program that it refuses, and dies of a later change to it.
        """
        highs = self._empty()
        is_refused = highs.passModel(self._model(sharper)) == highspy.HighsStatus.kError
        return self._empty() if is_refused else highs

    def _empty(self) -> highspy.Highs:
        highs = highspy.Highs()
        for option, value in self.options.items():
            highs.setOptionValue(option, value)
        return highs

    @property
    def _knows_program(self) -> bool:
        return bool(self.highs.getNumCol() == len(self.program.c))

    def _split_rows(self, varying_rows: Indices) -> None:
        """Tell bounds (rows with one entry that never change) from proper rows."""
        A = scaled(self.program.A, self.frame.rows, self.frame.columns)
        self.is_equation, self.varying = self.judge.is_equation, varying_rows
        entries = np.diff(A.indptr)
        column = np.full(A.shape[0], -1, dtype=np.int64)
        single = (entries == 1) & ~self.is_equation
        single[varying_rows] = False
        column[single] = A.indices[A.indptr[:-1][single]]
        coefficient = np.zeros(A.shape[0])
        coefficient[single] = A.data[A.indptr[:-1][single]]
        self.is_bound = single & (coefficient != 0)
        self.bound_column, self.bound_coefficient = column, coefficient
        self.rows = np.flatnonzero(~self.is_bound)
        self.row_position = np.full(A.shape[0], -1, dtype=np.int64)
        self.row_position[self.rows] = np.arange(len(self.rows))

    def _bounds(self, b: Array) -> tuple[Array, Array]:
        n = len(self.program.c)
        lower, upper = np.full(n, -highspy.kHighsInf), np.full(n, highspy.kHighsInf)
        self._is_tightest = np.zeros(len(b), dtype=bool)
        rows = np.flatnonzero(self.is_bound)
        if not len(rows):
            return lower, upper
        column, coefficient = self.bound_column[rows], self.bound_coefficient[rows]
        limit = b[rows] / coefficient
        positive = coefficient > 0
        np.minimum.at(upper, column[positive], limit[positive])
        np.maximum.at(lower, column[~positive], limit[~positive])
        # Of several rows that bound one column from one side, the first tightest carries the multiplier.
        order = np.lexsort((np.where(positive, limit, -limit), positive, column))
        side = 2 * column[order] + positive[order]
        self._is_tightest[rows[order[np.flatnonzero(np.diff(side, prepend=-1))]]] = True
        return lower, upper

    def _model(self, sharper: float) -> highspy.HighsLp:
        program = self.program
        A = scaled(program.A, self.frame.rows, self.frame.columns)
        if len(self.rows) < A.shape[0]:
            A = sp.csr_array(A[self.rows])
        limits = sharper * self.judge.limits(program.b)
        b = limits[self.rows]
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(program.c), len(self.rows)
        lp.col_cost_ = sharper * self._costs()
        lp.col_lower_, lp.col_upper_ = self._bounds(limits)
        lp.row_upper_ = b
        lp.row_lower_ = np.where(self.is_equation[self.rows], b, -highspy.kHighsInf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = A.indptr, A.indices, A.data
        if len(program.integer):
            kinds = np.full(len(program.c), highspy.HighsVarType.kContinuous)
            kinds[program.integer] = highspy.HighsVarType.kInteger
            lp.integrality_ = list(kinds)
        return lp

    def _costs(self) -> Array:
        """The costs as seen from the frame, in units of the largest of them."""
        costs = self.frame.cost * self.judge.costs(self.program.c)
        self.cost = power_of_two(float(np.abs(costs).max(initial=0.0)))
        return costs / self.cost

    def change_costs(self, columns: Indices, values: Array) -> None:
        """Set the costs of some columns."""
        self.program.c[columns] = values

    def change_rhs(self, rows: Indices, values: Array) -> None:
        """Set right-hand sides of varying rows."""
        self.program.b[rows] = values

    def change_coefficients(self, rows: Indices, columns: Indices, values: Array) -> None:
        """Set single entries of varying rows."""
        A = self.program.A
        scaled = self.frame.rows[rows] * values * self.frame.columns[columns]
        is_told = self._knows_program and bool(np.isfinite(scaled).all())
        if not is_told:  # the next solve passes the whole program, should it be one again
            self.highs = self._empty()
        for row, column, value, inside in zip(
            rows.tolist(), columns.tolist(), values.tolist(), scaled.tolist(), strict=True
        ):
            begin, end = A.indptr[row], A.indptr[row + 1]
            A.data[begin + np.searchsorted(A.indices[begin:end], column)] = value
            if is_told:
                self.highs.changeCoeff(int(self.row_position[row]), column, inside)
        if len(rows):
            self.judge = Judge(self.program, self.frame)

    def solve_with(self, entries: Indices, values: Array) -> Solution:
        """Set stored entries of the matrix, by their places in it, and solve as if it were the first time.

        HiGHS gets the whole program anew: one that it has changed may stand there in another order.
        """
        self.program.A.data[entries] = values
        self.judge = Judge(self.program, self.frame)
        self.highs = self._highs()
        return self.solve()

    def _pass_numbers(self) -> None:
        """Tell HiGHS the present costs, and the right-hand sides of the rows that vary."""
        n = len(self.program.c)
        self.highs.changeColsCost(n, np.arange(n, dtype=np.int32), self._costs())
        if not len(self.varying):
            return
        rows, limits = self.row_position[self.varying], self.judge.limits(self.program.b)[self.varying]
        lower = np.where(self.is_equation[self.varying], limits, -highspy.kHighsInf)
        self.highs.changeRowsBounds(len(rows), rows.astype(np.int32), lower, limits)

    def solve_anew(self) -> Solution:
        """Solve as if it were the first time: the answer depends on the present numbers alone."""
        self.highs.clearSolver()
        return self.solve()

    def solve(self) -> Solution:
        """Solve from the last basis if there is one; what cannot be proven is solved another way, then failed."""
        if not self._knows_program:
            self.highs = self._highs()
        if not self._knows_program:
            refused = nothing_known(self.program, Status.FAILED, "HiGHS refuses the numbers of the program")
            return refused if len(self.program.integer) else settled(self.program, self._by_cones(refused))
        self._pass_numbers()
        self._run(self.highs)
        status = self.highs.getModelStatus()
        if status == highspy.HighsModelStatus.kUnboundedOrInfeasible:
            status = self._without_presolve()
        elif status not in _STATUS:
            self.highs.clearSolver()
            status = self._without_presolve()
        solution = self._read(self.highs, status)
        if solution.status is Status.INFEASIBLE and not len(self.program.integer):
            return self._unless_there_is_a_point(solution)
        if len(self.program.integer):
            is_questionable = _STATUS.get(status) is Status.OPTIMAL and solution.status is Status.FAILED
            return self._read(self.highs, self._without_presolve()) if is_questionable else solution
        if status == highspy.HighsModelStatus.kOptimal and not self.judge.is_sharp(self.program, solution):
            solution = self._sharpened(solution)
        if _STATUS.get(status, Status.OPTIMAL) is Status.OPTIMAL and solution.status is not Status.OPTIMAL:
            solution = self._by_cones(solution)
        return settled(self.program, solution)

    def _unless_there_is_a_point(self, solution: Solution) -> Solution:
        """That there is no point is the solver's word: it is taken unless another one finds the best of them."""
        other = solve_conic(self.program, time_limit=self.time_limit)
        return other if other.status is Status.OPTIMAL else solution

    def _by_cones(self, solution: Solution) -> Solution:
        """What Clarabel finds, where that is better than this solution."""
        other = solve_conic(self.program, time_limit=self.time_limit)
        is_none = other.status in (Status.INFEASIBLE, Status.UNBOUNDED)
        return other if is_none or other.gap < solution.gap else solution

    def solve_otherwise(self) -> Solution:
        """Solve whole numbers without presolve, where the answer of `solve` contradicts what is known."""
        self.highs.clearSolver()
        return self._read(self.highs, self._without_presolve())

    def _sharpened(self, solution: Solution) -> Solution:
        """Go on from the last basis with all numbers so large that the tolerances are next to rounding errors."""
        highs = self._highs(_SHARPER)
        highs.setOptionValue("presolve", "off")
        highs.setBasis(self.highs.getBasis())
        self._run(highs)
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            return solution
        sharper = self._read(highs, status, _SHARPER)
        return sharper if sharper.gap <= solution.gap or self.judge.is_sharp(self.program, sharper) else solution

    def active_rows(self) -> Mask | None:
        """The rows that define the last basic solution; None where no basis or a free column says otherwise."""
        basis = self.highs.getBasis()
        if not basis.valid:
            return None
        active = np.zeros(self.program.A.shape[0], dtype=bool)
        active[self.rows] = [status != highspy.HighsBasisStatus.kBasic for status in basis.row_status]
        for column, status in enumerate(basis.col_status):
            if status == highspy.HighsBasisStatus.kBasic:
                continue
            sign = {highspy.HighsBasisStatus.kLower: -1, highspy.HighsBasisStatus.kUpper: 1}.get(status, 0)
            side = np.sign(self.bound_coefficient) == sign
            bound = np.flatnonzero(self.is_bound & self._is_tightest & side & (self.bound_column == column))
            if not sign or not len(bound):
                return None
            active[bound[0]] = True
        return active

    def _without_presolve(self) -> highspy.HighsModelStatus:
        self.highs.setOptionValue("presolve", "off")
        self._run(self.highs)
        self.highs.setOptionValue("presolve", self.options["presolve"])
        return self.highs.getModelStatus()

    def _run(self, highs: highspy.Highs) -> None:
        """Run with the whole time limit: HiGHS counts the seconds of all runs together."""
        if self.time_limit is not None:
            highs.setOptionValue("time_limit", highs.getRunTime() + self.time_limit)
        highs.run()

    def _read(self, highs: highspy.Highs, highs_status: highspy.HighsModelStatus, sharper: float = 1.0) -> Solution:
        status = _STATUS.get(highs_status, Status.FAILED)
        program, frame = self.program, self.frame
        n = len(program.c)
        info, solution = highs.getInfo(), highs.getSolution()
        x = np.array(solution.col_value) / sharper
        if status is Status.STOPPED_EARLY and not solution.value_valid:
            status = Status.FAILED
        if not status.has_solution or len(x) != n:
            return nothing_known(program, status, highs.modelStatusToString(highs_status))
        if len(program.integer):
            inside, x = x, frame.origin + frame.columns * x
            gap = self.cost * (float(self._costs() @ inside) - float(info.mip_dual_bound))
            whole = self.judge.whole(program, x, gap, self.cost, self.tolerance)
            return replace(whole, n_nodes=max(int(info.mip_node_count), 0))
        y = self._duals(np.array(solution.row_dual), np.array(solution.col_dual)) / sharper
        point = Solution(frame.origin + frame.columns * x, frame.prices + self.cost * frame.rows * y, np.nan, status)
        return self.judge.judged(program, point, self.cost)

    def _duals(self, row_dual: Array, col_dual: Array) -> Array:
        y = np.zeros(self.program.A.shape[0])
        y[self.rows] = -row_dual
        if len(self.rows) == len(y):
            return y
        bounds = np.flatnonzero(self.is_bound)
        multiplier = -col_dual[self.bound_column[bounds]] / self.bound_coefficient[bounds]
        y[bounds] = np.where(self._is_tightest[bounds], np.maximum(multiplier, 0.0), 0.0)
        return y
