"""HiGHS: linear and mixed-integer linear programs, re-solved from the last basis when numbers change."""

from __future__ import annotations

import highspy
import numpy as np

from polyhedge._validation import Array, Indices, Mask
from polyhedge.solvers.program import ConicProgram, Solution, Status, row_kinds

_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kModelEmpty: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: Status.STOPPED_EARLY,
    highspy.HighsModelStatus.kIterationLimit: Status.STOPPED_EARLY,
    highspy.HighsModelStatus.kSolutionLimit: Status.STOPPED_EARLY,
}


class LinearSolver:
    """One linear program in HiGHS; change its numbers and solve again.

    Rows with a single entry become bounds, so that the basis stays small; name in `varying_rows` those
    whose numbers will change. Duals follow c + A'y = 0 with y >= 0 on inequalities.
    """

    def __init__(
        self,
        program: ConicProgram,
        *,
        varying_rows: Indices | None = None,
        time_limit: float | None = None,
        max_nodes: int | None = None,
        relative_gap: float = 1e-9,
    ) -> None:
        if not program.is_linear:
            raise ValueError("LinearSolver takes programs without quadratic terms and cones.")
        self.program = program
        self._split_rows(np.zeros(0, dtype=np.int64) if varying_rows is None else varying_rows)
        self.highs = highspy.Highs()
        for option, value in {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": relative_gap,
            "mip_abs_gap": 1e-9,
            "mip_feasibility_tolerance": 1e-9,
            "primal_feasibility_tolerance": 1e-9,
            "dual_feasibility_tolerance": 1e-9,
        }.items():
            self.highs.setOptionValue(option, value)
        if time_limit is not None:
            self.highs.setOptionValue("time_limit", float(time_limit))
        if max_nodes is not None:
            self.highs.setOptionValue("mip_max_nodes", min(max_nodes, 2**31 - 1))
        self.highs.passModel(self._model())

    def _split_rows(self, varying_rows: Indices) -> None:
        """Tell bounds (rows with one entry that never change) from proper rows."""
        A, cones = self.program.A, self.program.cones
        kinds = row_kinds(cones)
        self.is_equation = kinds == "zero"
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
        rows = np.flatnonzero(self.is_bound)
        column, coefficient = self.bound_column[rows], self.bound_coefficient[rows]
        limit = b[rows] / coefficient
        positive = coefficient > 0
        np.minimum.at(upper, column[positive], limit[positive])
        np.maximum.at(lower, column[~positive], limit[~positive])
        # Of several rows that bound one column from one side, the first tightest carries the multiplier.
        order = np.lexsort((np.where(positive, limit, -limit), positive, column))
        side = 2 * column[order] + positive[order]
        self._is_tightest = np.zeros(len(b), dtype=bool)
        self._is_tightest[rows[order[np.flatnonzero(np.diff(side, prepend=-1))]]] = True
        return lower, upper

    def _model(self) -> highspy.HighsLp:
        program = self.program
        A = program.A[self.rows]
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(program.c), len(self.rows)
        lp.col_cost_, lp.offset_ = program.c, program.offset
        lp.col_lower_, lp.col_upper_ = self._bounds(program.b)
        lp.row_upper_ = program.b[self.rows]
        lp.row_lower_ = np.where(self.is_equation[self.rows], program.b[self.rows], -highspy.kHighsInf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = A.indptr, A.indices, A.data
        if len(program.integer):
            kinds = np.full(len(program.c), highspy.HighsVarType.kContinuous)
            kinds[program.integer] = highspy.HighsVarType.kInteger
            lp.integrality_ = list(kinds)
        return lp

    def change_costs(self, columns: Indices, values: Array) -> None:
        """Set the costs of some columns."""
        self.highs.changeColsCost(len(columns), columns.astype(np.int32), values)

    def change_rhs(self, rows: Indices, values: Array) -> None:
        """Set right-hand sides of varying rows."""
        for row, value in zip(self.row_position[rows].tolist(), values.tolist(), strict=True):
            lower = value if self.is_equation[self.rows[row]] else -highspy.kHighsInf
            self.highs.changeRowBounds(row, lower, value)

    def change_coefficients(self, rows: Indices, columns: Indices, values: Array) -> None:
        """Set single entries of varying rows."""
        for row, column, value in zip(self.row_position[rows].tolist(), columns.tolist(), values.tolist(), strict=True):
            self.highs.changeCoeff(row, column, value)

    def solve(self) -> Solution:
        """Solve from the last basis if there is one."""
        self.highs.run()
        status = self.highs.getModelStatus()
        if status == highspy.HighsModelStatus.kUnboundedOrInfeasible:
            status = self._without_presolve()
        elif status not in _STATUS:
            self.highs.clearSolver()
            status = self._without_presolve()
        return self._read(status)

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
        self.highs.run()
        self.highs.setOptionValue("presolve", "choose")
        return self.highs.getModelStatus()

    def _read(self, highs_status: highspy.HighsModelStatus) -> Solution:
        status = _STATUS.get(highs_status, Status.FAILED)
        n, m = self.program.A.shape[1], self.program.A.shape[0]
        info, solution = self.highs.getInfo(), self.highs.getSolution()
        x = np.array(solution.col_value)
        if status is Status.STOPPED_EARLY and not solution.value_valid:
            status = Status.FAILED
        if not status.has_solution or len(x) != n:
            detail = self.highs.modelStatusToString(highs_status)
            return Solution(np.full(n, np.nan), np.full(m, np.nan), np.nan, status, np.inf, detail)
        is_mip = len(self.program.integer) > 0
        value = float(info.objective_function_value)
        if not np.isfinite(value):  # costs or limits are not numbers, which HiGHS does not mind
            return Solution(np.full(n, np.nan), np.full(m, np.nan), np.nan, Status.FAILED, np.inf, "value not finite")
        gap = abs(value - float(info.mip_dual_bound)) if is_mip else float(info.max_dual_infeasibility)
        y = np.full(m, np.nan) if is_mip else self._duals(np.array(solution.row_dual), np.array(solution.col_dual))
        return Solution(x, y, value, status, gap, n_nodes=max(int(info.mip_node_count), 0) if is_mip else 0)

    def _duals(self, row_dual: Array, col_dual: Array) -> Array:
        y = np.zeros(self.program.A.shape[0])
        y[self.rows] = -row_dual
        bounds = np.flatnonzero(self.is_bound)
        multiplier = -col_dual[self.bound_column[bounds]] / self.bound_coefficient[bounds]
        y[bounds] = np.where(self._is_tightest[bounds], np.maximum(multiplier, 0.0), 0.0)
        return y
