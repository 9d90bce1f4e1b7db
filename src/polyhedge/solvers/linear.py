"""HiGHS: linear and mixed-integer linear programs, and linear functions over half-spaces or a conic form.

Programs are solved again from the last basis when their numbers change.
"""

from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import FEASIBLE, OPTIMAL, SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.options import seconds_allowed, solver_in_force
from polyhedge.solvers.program import (
    Cone,
    ConicForm,
    ConicProgram,
    Scaling,
    Solution,
    SolverError,
    Status,
    balance,
    power_of_two,
    row_kinds,
    scaled,
)
from polyhedge.solvers.verify import Verifier, nothing_known, settled

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

    A program of dense rows, such as cuts, leaves nothing to presolve, which then takes most of the time: say so.

    HiGHS sees the program in its own units, or from a given scaling, with costs measured by the largest of each solve,
    because its tolerances are absolute.
    """

    def __init__(
        self,
        program: ConicProgram,
        *,
        varying_rows: Indices | None = None,
        time_limit: float | None = None,
        max_nodes: int | None = None,
        relative_gap: float = 1e-9,
        scaling: Scaling | None = None,
        presolve: bool = True,
    ) -> None:
        if not program.is_linear:
            raise ValueError("LinearSolver takes programs without quadratic terms and cones.")
        self.scaling = Scaling.of(program) if scaling is None else scaling
        # The numbers as they are now, in the caller's units.
        self.program = replace(program, c=program.c.copy(), b=program.b.copy(), A=program.A.copy())
        self.verifier, self.tolerance = Verifier(self.program, self.scaling), max(OPTIMAL, relative_gap)
        self._split_rows(np.zeros(0, dtype=np.int64) if varying_rows is None else varying_rows)
        self.options = {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": relative_gap,
            "mip_abs_gap": SOLVER,
            "mip_feasibility_tolerance": SOLVER,
            "primal_feasibility_tolerance": SOLVER,
            "dual_feasibility_tolerance": SOLVER,
            # HiGHS 1.15 may lose the optimum when a search restarts at its root; a small program gains nothing by it,
            # and the feasibility jump takes 6 ms where the whole search takes less than 1.
            "mip_allow_restart": len(program.c) > 2_000,
            "mip_heuristic_run_feasibility_jump": len(program.c) > 200,
            "presolve": "choose" if presolve else "off",
        } | dict(solver_in_force().highs)
        self.time_limit = seconds_allowed(time_limit)
        if max_nodes is not None:
            self.options["mip_max_nodes"] = min(max_nodes, 2**31 - 1)
        self.highs = highspy.Highs()
        for option, value in self.options.items():
            self.highs.setOptionValue(option, value)
        self._pass_program()

    def _pass_program(self, basis: highspy.HighsBasis | None = None) -> None:
        """Give HiGHS all numbers and a basis; what it refuses is cleared, because half of it would stay."""
        self._is_passed = self.highs.passModel(self._model()) != highspy.HighsStatus.kError
        if not self._is_passed:
            self.highs.clearModel()
        elif basis is not None and basis.valid:
            self.highs.setBasis(basis)

    def _split_rows(self, varying_rows: Indices) -> None:
        """Tell bounds (rows with one entry that never change) from proper rows."""
        A = scaled(self.program.A, self.scaling.rows, self.scaling.columns)
        self.is_equation, self.varying = self.verifier.is_equation, varying_rows
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
        # What stays the same of the model, the entries in its rows, and the units of each.
        self.lp, matrix = highspy.HighsLp(), self.program.A
        self.entries = np.flatnonzero(np.repeat(~self.is_bound, entries))
        self.units = (np.repeat(self.scaling.rows, entries) * self.scaling.columns[matrix.indices])[self.entries]
        self.lp.num_col_, self.lp.num_row_ = len(self.program.c), len(self.rows)
        self.lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        self.lp.a_matrix_.start_ = np.append(0, np.cumsum(entries[self.rows]))
        self.lp.a_matrix_.index_ = matrix.indices[self.entries]
        if len(self.program.integer):
            kinds = np.full(len(self.program.c), highspy.HighsVarType.kContinuous)
            kinds[self.program.integer] = highspy.HighsVarType.kInteger
            self.lp.integrality_ = list(kinds)

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
        # HiGHS takes a limit of an integer between two integers for one that can be met.
        whole = self.program.integer
        lower[whole], upper[whole] = np.ceil(lower[whole] - FEASIBLE), np.floor(upper[whole] + FEASIBLE)
        # Of several rows that bound one column from one side, the first tightest carries the multiplier.
        order = np.lexsort((np.where(positive, limit, -limit), positive, column))
        side = 2 * column[order] + positive[order]
        self._is_tightest[rows[order[np.flatnonzero(np.diff(side, prepend=-1))]]] = True
        return lower, upper

    def _model(self) -> highspy.HighsLp:
        limits = self.verifier.limits(self.program.b)
        b = limits[self.rows]
        self.lp.col_cost_ = self._costs()
        self.lp.col_lower_, self.lp.col_upper_ = self._bounds(limits)
        self.lp.row_upper_ = b
        self.lp.row_lower_ = np.where(self.is_equation[self.rows], b, -highspy.kHighsInf)
        self.lp.a_matrix_.value_ = self.program.A.data[self.entries] * self.units
        return self.lp

    def _costs(self) -> Array:
        """The scaled costs, in units of the largest of them."""
        costs = self.scaling.cost * self.verifier.costs(self.program.c)
        self.cost = power_of_two(float(np.abs(costs).max(initial=0.0)))
        return costs / self.cost

    def change_costs(self, columns: Indices, values: Array) -> None:
        """Set the costs of some columns."""
        self.program.c[columns] = values

    def change_rhs(self, rows: Indices, values: Array) -> None:
        """Set right-hand sides of varying rows."""
        self.program.b[rows] = values

    def change_entries(self, entries: Indices, values: Array) -> None:
        """Set stored entries of the matrix, by their places in it: HiGHS gets the whole program again."""
        if len(entries):
            self.program.A.data[entries] = values
            self.verifier, self._is_passed = Verifier(self.program, self.scaling), False

    def forget(self) -> None:
        """Drop the last basis, so that the next answer depends on the numbers alone."""
        self.highs.clearSolver()

    def solve_cold(self) -> Solution:
        """Solve as if it were the first time: the answer depends on the present numbers alone."""
        self.forget()
        return self.solve()

    def solve(self) -> Solution:
        """Solve from the last basis if there is one; what cannot be proven is solved another way, then failed."""
        if not self._pass_numbers():
            refused = nothing_known(self.program, Status.FAILED, "HiGHS refuses the numbers of the program")
            return refused if len(self.program.integer) else settled(self.program, self._by_cones(refused))
        self._run()
        status = self.highs.getModelStatus()
        if status == highspy.HighsModelStatus.kUnboundedOrInfeasible:
            status = self._without_presolve()
        elif status not in _STATUS:
            self.highs.clearSolver()
            status = self._without_presolve()
        solution = self._read(status)
        if solution.status is Status.INFEASIBLE and not len(self.program.integer):
            # That there is no point is the solver's word: it is taken unless another one finds the best of them.
            other = solve_conic(self.program, time_limit=self.time_limit)
            return other if other.status is Status.OPTIMAL else solution
        if len(self.program.integer):
            is_questionable = _STATUS.get(status) is Status.OPTIMAL and solution.status is Status.FAILED
            return self._read(self._without_presolve()) if is_questionable else solution
        if _STATUS.get(status, Status.OPTIMAL) is Status.OPTIMAL and solution.status is not Status.OPTIMAL:
            solution = self._by_cones(solution)
        return settled(self.program, solution)

    def _pass_numbers(self) -> bool:
        """Give HiGHS the present costs and limits; False if it refuses the program."""
        if not self._is_passed:
            self._pass_program(self.highs.getBasis())
            return self._is_passed
        n = len(self.program.c)
        self.highs.changeColsCost(n, np.arange(n, dtype=np.int32), self._costs())
        if len(self.varying):
            rows, limits = self.row_position[self.varying], self.verifier.limits(self.program.b)[self.varying]
            lower = np.where(self.is_equation[self.varying], limits, -highspy.kHighsInf)
            self.highs.changeRowsBounds(len(rows), rows.astype(np.int32), lower, limits)
        return True

    def _by_cones(self, solution: Solution) -> Solution:
        """What Clarabel finds, where that is better than this solution."""
        other = solve_conic(self.program, time_limit=self.time_limit)
        is_none = other.status in (Status.INFEASIBLE, Status.UNBOUNDED)
        return other if is_none or other.gap < solution.gap else solution

    def solve_otherwise(self) -> Solution:
        """Solve for integers without presolve, where the answer of `solve` contradicts what is known."""
        self.highs.clearSolver()
        return self._read(self._without_presolve())

    def completed(self, columns: Indices, values: Array) -> Array:
        """A best point with these values of columns whose unit is 1 and origin 0, not verified, or NaN."""
        lower, upper = self._bounds(self.verifier.limits(self.program.b))
        places = columns.astype(np.int32)
        self.highs.changeColsBounds(len(places), places, values, values)
        self.highs.run()
        is_known = self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        x = np.array(self.highs.getSolution().col_value) if is_known else np.full(len(lower), np.nan)
        self.highs.changeColsBounds(len(places), places, lower[columns], upper[columns])
        return np.asarray(self.scaling.origin + self.scaling.columns * x)

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
        self._run()
        self.highs.setOptionValue("presolve", self.options["presolve"])
        return self.highs.getModelStatus()

    def _run(self) -> None:
        """Run with the whole time limit: HiGHS counts the seconds of all runs together."""
        if self.time_limit is not None:
            self.highs.setOptionValue("time_limit", self.highs.getRunTime() + self.time_limit)
        self.highs.run()

    def _read(self, highs_status: highspy.HighsModelStatus) -> Solution:
        status = _STATUS.get(highs_status, Status.FAILED)
        program, scaling = self.program, self.scaling
        n = len(program.c)
        info, solution = self.highs.getInfo(), self.highs.getSolution()
        x = np.array(solution.col_value)
        if status is Status.STOPPED_EARLY and not solution.value_valid:
            status = Status.FAILED
        if not status.has_solution or len(x) != n:
            return nothing_known(program, status, self.highs.modelStatusToString(highs_status))
        if len(program.integer):
            inside, x = x, scaling.origin + scaling.columns * x
            gap = self.cost * (float(self._costs() @ inside) - float(info.mip_dual_bound))
            point = self.verifier.verify_integer(program, x, gap, self.cost, self.tolerance)
            return replace(point, n_nodes=max(int(info.mip_node_count), 0))
        y = np.zeros(program.A.shape[0])
        y[self.rows] = -np.array(solution.row_dual)
        if len(self.rows) < len(y):
            bounds = np.flatnonzero(self.is_bound)
            multiplier = -np.array(solution.col_dual)[self.bound_column[bounds]] / self.bound_coefficient[bounds]
            y[bounds] = np.where(self._is_tightest[bounds], np.maximum(multiplier, 0.0), 0.0)
        point = Solution(
            scaling.origin + scaling.columns * x, scaling.prices + self.cost * scaling.rows * y, np.nan, status
        )
        return self.verifier.verify(program, point, self.cost)


class DualProgram:
    r"""Linear programs that differ in their costs alone, by their duals.

    $$\min_y\ b^\top y \quad\text{s.t.}\quad A^\top y = -c,\ y \ge 0 \text{ off the equations}.$$

    Other costs are other right-hand sides, and another row is another column: the last basis serves the next program.
    """

    def __init__(self, program: ConicProgram, scaling: Scaling) -> None:
        self.scaling, self.n = scaling, len(program.c)
        self.every = np.arange(self.n, dtype=np.int32)
        self.highs = highspy.Highs()
        for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self.highs.setOptionValue(option, SOLVER)
        for option, value in {"output_flag": False, "threads": 1, "presolve": "off"}.items():
            self.highs.setOptionValue(option, value)
        nothing, none = np.zeros(self.n), np.zeros(0, dtype=np.int32)
        self.highs.addRows(self.n, nothing, nothing, 0, none, none, np.zeros(0))
        A = scaled(program.A, scaling.rows, scaling.columns)
        self._add(A, scaling.rows * program.b, row_kinds(program.cones) == "zero")

    def add_rows(self, rows: Array, limits: Array, unit: float) -> None:
        """Add the inequalities `rows` x <= `limits`, each in the same unit."""
        entries = sp.csr_array(unit * rows * self.scaling.columns)
        self._add(entries, unit * limits, np.zeros(len(rows), dtype=bool))

    def _add(self, A: sp.csr_array, b: Array, is_equation: Mask) -> None:
        lower, upper = np.where(is_equation, -highspy.kHighsInf, 0.0), np.full(len(b), highspy.kHighsInf)
        starts = A.indptr[:-1].astype(np.int32)
        self.highs.addCols(len(b), b, lower, upper, A.nnz, starts, A.indices.astype(np.int32), A.data)

    def solve(self, program: ConicProgram, verifier: Verifier) -> Solution:
        """A best point of the program, which has other costs, and its multipliers, verified."""
        x = self.points(program.c[None])[0]
        if not np.isfinite(x).all():
            return nothing_known(program, Status.FAILED, "HiGHS has no best point of the dual")
        y = self.cost * self.scaling.rows * np.array(self.highs.getSolution().col_value)
        return settled(program, verifier.verify(program, Solution(x, y, np.nan, Status.OPTIMAL), self.cost))

    def points(self, costs: Array) -> Array:
        """Best points (N, n) at costs (N, n), not verified: to compare decisions. NaN where HiGHS has none."""
        costs, x = -self.scaling.columns * costs, np.full(costs.shape, np.nan)
        for k, size in enumerate(np.abs(costs).max(axis=1, initial=0.0).tolist()):
            self.cost = power_of_two(size)
            own = costs[k] / self.cost
            self.highs.changeRowsBounds(self.n, self.every, own, own)
            self.highs.run()
            if self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                x[k] = self.highs.getSolution().row_dual
        return self.scaling.columns * x


def maximise_linear(W: Array, h: Array, directions: Array, units: Array | None = None) -> tuple[Array, Array]:
    r"""Maximise linear functions over one polyhedron: $\max\{v_i^\top e : W e \le h\}$ for every row $v_i$.

    The basis of one direction is the (primal feasible) start of the next. Values (m,) are `inf` where the polyhedron
    is unbounded along the direction, `-inf` everywhere if it is empty; maximisers (m, d) are NaN there. `units` (d,) of
    the outcomes are powers of two, by default those of the half-spaces.
    """
    units = units_of_outcomes(W, h) if units is None else units
    W, h, unit = _unit_rows(W * units, h)
    (m, n), columns = W.shape, np.arange(W.shape[1])
    program = ConicProgram(np.zeros(n), sp.csr_array(W), h, (Cone("nonneg", m),))
    scaling = Scaling(np.ones(m), np.ones(n), 1.0, np.zeros(n), np.zeros(m))  # rows have unit length already
    solver = LinearSolver(program, scaling=scaling, presolve=False)
    values, points = np.full(len(directions), -np.inf), np.full(directions.shape, np.nan)
    if solver.solve().status is Status.INFEASIBLE:
        return values, points
    for i, v in enumerate(directions):
        solver.change_costs(columns, -units * v)
        solution = solver.solve()
        values[i], points[i] = np.inf, np.nan
        # A vertex far away, between nearly parallel half-spaces, is known to a share of its distance.
        if solution.status is Status.OPTIMAL or solution.gap <= OPTIMAL * abs(solution.value):
            points[i] = unit * (units * solution.x)
            values[i] = v @ points[i]
        elif solution.status is not Status.UNBOUNDED:
            raise SolverError(f"HiGHS could not maximise a linear function over half-spaces: {solution.status}.")
    return values, points


def chebyshev_center(W: Array, h: Array) -> tuple[Array, float]:
    r"""Centre and radius of a largest ball in $\{e : W e \le h\}$.

    The radius is negative for an empty set (minus the least violation), and cut off at a finite value
    if balls of any size fit.

    Examples
    --------
    >>> center, radius = chebyshev_center(np.array([[1.0], [-1.0]]), np.array([3.0, 1.0]))
    >>> center, radius
    (array([1.]), 2.0)
    """
    W, h, unit = _unit_rows(W, h)
    d = W.shape[1]
    cut_off = np.eye(1, d + 1, d)
    lifted = np.vstack([np.hstack([W, np.ones((len(W), 1))]), cut_off])
    _, points = maximise_linear(lifted, np.append(h, 1.0), cut_off, np.ones(d + 1))
    return unit * points[0, :d], float(unit * points[0, d])


def recession_direction(W: Array) -> Array | None:
    r"""A unit vector of $\{t : W t \le 0\}$, or None if that cone is $\{0\}$: then $W e \le h$ is bounded.

    Examples
    --------
    >>> recession_direction(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
    array([ 0., -1.])
    """
    columns = units_of_outcomes(W, np.zeros(len(W)))
    W = _unit_rows(W * columns, np.zeros(len(W)))[0]
    _, singular, Vt = np.linalg.svd(W, full_matrices=True)
    if np.sum(singular > SOLVER * max(1.0, singular.max(initial=0.0))) < W.shape[1]:
        return _unit(Vt[-1], columns)
    # With full column rank, W t <= 0 and t != 0 imply sum(W t) < 0, so that one linear program decides.
    outward = -W.sum(axis=0)
    length = np.linalg.norm(outward)
    values, points = maximise_linear(np.vstack([W, outward]), np.append(np.zeros(len(W)), length), outward[None, :])
    return None if values[0] < 0.5 * length or not outward.any() else _unit(points[0], columns)


def units_of_outcomes(W: Array, h: Array) -> Array:
    """Powers of two that make the entries of the half-spaces alike; ones where they are so already."""
    alike = 2.0**10  # what is left of the tolerances of solvers is then a millionth
    sizes = np.abs(np.column_stack([W, h]))
    largest, least = sizes.max(initial=0.0), sizes.min(initial=np.inf, where=sizes > 0)
    if largest <= alike * least:
        return np.ones(W.shape[1])
    program = ConicProgram(np.zeros(W.shape[1]), sp.csr_array(W), h, (Cone("nonneg", len(W)),))
    columns = balance(program)[1]
    return columns if columns.max() > alike * columns.min() else np.ones(W.shape[1])


def _unit_rows(W: Array, h: Array) -> tuple[Array, Array, float]:
    """Rows of unit length and offsets of unit size, and that unit."""
    length = np.linalg.norm(W, axis=1)
    length = np.where(length > 0, length, 1.0)
    unit = float(np.abs(h / length).max(initial=0.0)) or 1.0
    return W / length[:, None], h / length / unit, unit


def _unit(vector: Array, columns: Array) -> Array:
    # Adding zero turns -0.0 into 0.0, which matters because the direction is quoted in error messages.
    rounded = columns * np.where(np.abs(vector) > SOLVER * np.abs(vector).max(), vector, 0.0)
    return rounded / np.linalg.norm(rounded) + 0.0


def maximise_conic(form: ConicForm, directions: Array) -> Array:
    r"""Support function of a conic set: $\max\{v_i^\top e : g - G\,[e; y] \in K\}$ for every row $v_i$.

    Its cones are `zero`, `nonneg` and `soc`. Values (m,) are `inf` where it is unbounded, `-inf` if it is empty.
    """
    unknown = {cone.kind for cone in form.cones} - {"zero", "nonneg", "soc"}
    if unknown:
        raise ValueError(f"A set may use the cones zero, nonneg, soc, got {', '.join(map(repr, sorted(unknown)))}.")
    n = form.G.shape[1]
    program = ConicProgram(c=np.zeros(n), A=form.G, b=form.g, cones=form.cones)
    values = np.empty(len(directions))
    for i, v in enumerate(directions):
        solution = solve_conic(replace(program, c=np.append(-v, np.zeros(n - len(v)))))
        if solution.status not in (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED):
            raise SolverError(f"Clarabel could not maximise a linear function over a conic set: {solution.detail}.")
        values[i] = {Status.INFEASIBLE: -np.inf, Status.UNBOUNDED: np.inf}.get(solution.status, -solution.value)
    return values
