"""The one entry to the solvers: the structure of a program picks the vendor; a user may name another for integers.

HiGHS takes integers only with linear rows. Second-order cones and a convex quadratic objective are replaced by tangent
planes, added where the last mixed-integer solution violates them, until none is violated by more than the tolerance.
The value of the linear relaxation is a lower bound, so that the result carries its gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, PIVOT, ROUNDING, SOLVER, TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.options import Solver, seconds_allowed, solver_in_force
from polyhedge.solvers.program import (
    Cone,
    ConicProgram,
    Scaling,
    SecondOrder,
    Solution,
    SolverError,
    Status,
    power_of_two,
    status_at,
)
from polyhedge.solvers.verify import Verifier, nothing_known, outside

_MOST_ROUNDS = 200
"""Rounds of tangents: usual programs take fewer than twenty."""


def solve(program: ConicProgram, *, time_limit: float | None = None, max_nodes: int | None = None) -> Solution:
    """Solve with HiGHS (linear), Clarabel (convex) or outer approximation (mixed-integer convex).

    A back-end that the user named takes mixed-integer programs without limits of the caller's own.
    """
    if len(program.integer):
        solver = solver_in_force()
        if solver.backend != "auto" and time_limit is None and max_nodes is None:
            return solve_named(program, solver.backend, solver.options)
        return solve_mixed_integer(program, time_limit=seconds_allowed(time_limit), max_nodes=max_nodes)
    if program.is_linear:
        return LinearSolver(program, time_limit=time_limit).solve()
    return solve_conic(program, time_limit=time_limit)


def with_fixed_integers(program: ConicProgram, x: Array, scaling: Scaling | None = None) -> Solution:
    """The best continuous completion of the integer part of x, with the duals of the program's rows.

    Its point is feasible, so its value is an upper bound of the mixed-integer optimum. Fixed columns are put in, not
    fixed by equations: what is left is small where their limits meet, and solvers need not find out that it is. Rows
    in which nothing is left have a dual of 0. What fails in the program's own units is tried in those of what is left.
    """
    is_given, scaling = scaling is not None, Scaling.of(program) if scaling is None else scaling
    rest = _Rest(program, np.round(x[program.integer]), scaling)
    if rest.broken > OPTIMAL:
        detail = f"the integers alone violate a constraint by {rest.broken:.1e} of its terms"
        return nothing_known(program, Status.INFEASIBLE, detail)
    if not len(rest.columns):
        nothing = np.zeros(0)
        return rest.completed(Solution(nothing, nothing, rest.program.offset, Status.OPTIMAL, size=scaling.cost))
    if rest.program.is_linear:
        return rest.completed(LinearSolver(rest.program, scaling=rest.scaling if is_given else None).solve())
    solution = solve_conic(rest.program, scaling=rest.scaling)
    if solution.status is not Status.OPTIMAL:
        again = solve_conic(rest.program)
        solution = max(solution, again, key=lambda each: (each.status.has_solution, -each.gap))
    return rest.completed(solution)


class _Rest:
    """What is left of a program, and of its scaling, where its integer columns have these values.

    `broken` is by how much rows in which nothing is left are broken, as a share of a unit and their terms.
    """

    def __init__(self, program: ConicProgram, values: Array, scaling: Scaling) -> None:
        n, m = len(program.c), len(program.b)
        self.full, self.values = program, values
        self.columns = np.setdiff1d(np.arange(n), program.integer)
        fixed = sp.csr_array(program.A[:, program.integer])
        reach, terms = fixed @ values, abs(fixed) @ np.abs(values)
        with np.errstate(invalid="ignore"):
            size = np.where(np.isfinite(program.b), np.abs(program.b), 0.0) + terms
            b = program.b - reach
        # What is left of a difference is no more than rounding where it is that small next to its terms.
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
                slack, terms_of = scaling.rows[rows] * b[rows], 1 + scaling.rows[rows] * size[rows]
                broken = np.abs(slack) if cone.kind == "zero" else np.maximum(-slack, 0.0)
                off = float((broken / terms_of)[gone].max()) if is_linear else outside(cone, slack) / terms_of.max()
                self.broken = max(self.broken, off)
            if not gone.all():
                cones.append(replace(cone, size=int((~gone).sum())) if is_linear else cone)
        c, P, offset = program.c[self.columns], None, program.offset + float(program.c[program.integer] @ values)
        if program.P is not None:
            across = sp.csr_array(program.P[:, program.integer]) @ values
            c, P = c + across[self.columns], sp.csr_array(program.P[self.columns][:, self.columns])
            offset += 0.5 * float(across[program.integer] @ values)
        self.kept = np.flatnonzero(kept)
        self.program = ConicProgram(c, sp.csr_array(A[self.kept]), b[self.kept], tuple(cones), P, offset)
        self.scaling = Scaling(
            scaling.rows[self.kept],
            scaling.columns[self.columns],
            scaling.cost,
            scaling.origin[self.columns],
            scaling.prices[self.kept],
        )

    def completed(self, solution: Solution) -> Solution:
        """A solution of what is left as one of the program."""
        if not solution.status.has_solution:
            return nothing_known(self.full, solution.status, solution.detail)
        x, y = np.empty(len(self.full.c)), np.zeros(len(self.full.b))
        x[self.full.integer], x[self.columns], y[self.kept] = self.values, solution.x, solution.y
        return replace(solution, x=x, y=y, value=self.full.value(x))


def solve_mixed_integer(
    program: ConicProgram, *, time_limit: float | None = None, max_nodes: int | None = None
) -> Solution:
    """Solve with integer columns; exact for linear programs, to `OPTIMAL` for convex ones.

    `max_nodes` limits the nodes of all searches together.
    """
    check_cones(program)
    continuous = relaxed(program, time_limit)
    plain = Scaling.of(program)
    scaling = scaling_around(plain, program, continuous)
    if program.is_linear:
        point = continuous
        if continuous.status is Status.OPTIMAL:
            point = with_fixed_integers(program, continuous.x, scaling)
        bound = _RelaxationBound(program, plain, scaling, continuous, point)
        return bound.optimum or bound.checked(
            LinearSolver(program, time_limit=time_limit, max_nodes=max_nodes, scaling=each) for each in (scaling, plain)
        )
    if continuous.status in (Status.INFEASIBLE, Status.UNBOUNDED):
        return nothing_known(program, continuous.status, continuous.detail)
    # All tolerances below are in the program's own units.
    solution = _by_tangents(SecondOrder(program.cones).of(scaling.apply(program)), time_limit, max_nodes)
    if not solution.status.has_solution:
        return nothing_known(program, solution.status, solution.detail)
    x = scaling.invert(solution).x
    point = Verifier(program, scaling).verify_integer(
        program, x, scaling.cost * solution.gap, min(scaling.cost, at_stake(program, x, plain))
    )
    return replace(point, n_nodes=solution.n_nodes)


def scaling_around(plain: Scaling, program: ConicProgram, continuous: Solution) -> Scaling:
    """The scaling of a mixed-integer program: around its relaxation if that is proven, else the plain one.

    Multipliers that prove nothing would set units in which any answer is near to any other.
    """
    return plain.around(program, continuous.x, continuous.y) if continuous.status is Status.OPTIMAL else plain


def at_stake(program: ConicProgram, x: Array, plain: Scaling) -> float:
    """The largest cost of a column at a point, at least that of a unit of it: multipliers do not enter."""
    steep = program.c if program.P is None else program.c + program.P @ x
    return float(np.abs(steep * np.maximum(np.abs(x), plain.columns)).max(initial=0.0))


class _RelaxationBound:
    """What the relaxation of a linear program gives: a lower bound, and perhaps a point with integers."""

    def __init__(
        self, program: ConicProgram, plain: Scaling, scaling: Scaling, continuous: Solution, point: Solution
    ) -> None:
        self.program, self.plain, self.scaling, self.point = program, plain, scaling, point
        is_proven = continuous.status is Status.OPTIMAL
        self.lower = continuous.value - continuous.gap if is_proven else -np.inf
        self.size = at_stake(program, point.x, plain) if point.status.has_solution and is_proven else np.nan
        self.value = self.point.value if self.size >= 0 else np.inf

    @property
    def optimum(self) -> Solution | None:
        """The rounded point where it costs what the relaxation does: nothing can be better."""
        gap = self.value - self.lower
        if not abs(gap) <= TIE * max(self.size, abs(self.value - self.program.offset)):
            return None
        point = Verifier(self.program, self.scaling).verify_integer(
            self.program, self.point.x, max(gap, 0.0), self.size
        )
        return point if point.status is Status.OPTIMAL else None

    def seen(self, answer: Solution) -> tuple[Solution, bool]:
        """An answer, optimal only if the gap is small against its own costs too, and whether the point allows it."""
        if answer.status is Status.OPTIMAL:
            own = max(at_stake(self.program, answer.x, self.plain), abs(answer.value - self.program.offset))
            size = min(answer.size, own)
            answer = replace(answer, size=size, status=status_at(answer.gap, size))
        return answer, not _contradicts(answer, self.value, max(self.size, abs(self.value - self.program.offset)))

    def checked(self, solvers: Iterable[LinearSolver]) -> Solution:
        """The first answer that does not contradict the point; where all do, the point with what is proven of it."""
        for solver in solvers:
            for search in (solver.solve, solver.solve_otherwise):
                answer, is_credible = self.seen(search())
                if is_credible:
                    return answer
        gap = self.value - self.lower
        point = Verifier(self.program, self.scaling).verify_integer(self.program, self.point.x, gap, self.size)
        return replace(point, detail="the search contradicts a point that is known")


class IntegerSolver:
    """A mixed-integer program, linear but for squares of integers, whose numbers change except for these squares.

    `program` has the numbers of now, `varying_rows` may move. HiGHS keeps a linear program and its relaxation in the
    units of the first numbers, with the lines that bound the squares from below: they are the same whatever else
    changes. What is not proven there is solved in full.
    """

    def __init__(self, program: ConicProgram, varying_rows: Indices) -> None:
        self.program = replace(program, c=program.c.copy(), b=program.b.copy(), A=program.A.copy())
        self.varying, self.squares = varying_rows, _Squares(program)
        self.rows, self.limits = self.squares.rows_at(np.zeros(len(self.squares)))
        self.search: LinearSolver | None = None
        if len(self.squares) and (first := relaxed(program, None)).status.has_solution:
            self._bound_squares(first.x)

    @staticmethod
    def takes(program: ConicProgram) -> bool:
        """Whether a program has linear rows, and squares of integers only."""
        others = np.setdiff1d(np.arange(len(program.c)), program.integer)
        is_flat = all(cone.kind in ("zero", "nonneg") for cone in program.cones)
        return is_flat and (program.P is None or not program.P.diagonal()[others].any())

    def change_entries(self, entries: Indices, values: Array) -> None:
        """Set stored entries of the matrix, by their places in it."""
        self.program.A.data[entries] = values
        if self.search is not None:
            self.relaxation.change_entries(entries, values)
            self.search.change_entries(entries, values)

    def solve(self) -> Solution:
        """Solve as if it were the first time: the answer depends on the present numbers and the first units alone."""
        return self._quickly() or solve(self.program)

    solve_cold = solve

    def _quickly(self) -> Solution | None:
        """The verified optimum, once the lines are exact at the answer."""
        if solver_in_force() != Solver():  # with limits of the user's the search would be made twice
            return None
        for _ in range(_MOST_ROUNDS):
            answer = self._least()
            if answer is None or not len(self.squares):
                return answer
            x = answer.x[: len(self.program.c)]
            gap = self.program.value(x) - (answer.value - answer.gap)
            if gap <= SOLVER * answer.size or not self._bound_squares(x):
                scaling = Scaling.of(self.program)
                size = at_stake(self.program, x, scaling)
                point = Verifier(self.program, scaling).verify_integer(self.program, x, gap, size)
                return point if point.status is Status.OPTIMAL else None
        return None

    def _bound_squares(self, x: Array) -> bool:
        """Whether there are new lines that bound the squares at a point."""
        rows, limits = self.squares.rows_at(self.squares.L @ x)
        self.rows, self.limits = np.vstack([self.rows, rows]), np.append(self.limits, limits)
        self.search = None if len(rows) else self.search
        return len(rows) > 0

    def _set_up(self) -> LinearSolver:
        """The program with the lines so far."""
        program, (m, n), k = self.program, self.program.A.shape, len(self.squares)
        A = sp.csr_array((program.A.data, program.A.indices, program.A.indptr), shape=(m, n + k))
        whole = ConicProgram(
            np.append(program.c, np.ones(k)),
            sp.csr_array(sp.vstack([A, sp.csr_array(self.rows)])) if k else A,
            np.append(program.b, self.limits),
            (*program.cones, Cone("nonneg", len(self.limits))),
            offset=program.offset,
            integer=program.integer,
        )
        plain = Scaling.of(whole)
        self.search = LinearSolver(whole, varying_rows=self.varying, scaling=plain)
        self.linear = self.search.program
        bare = replace(self.linear, integer=np.zeros(0, dtype=np.int64))
        self.relaxation = LinearSolver(bare, varying_rows=self.varying, scaling=plain, presolve=False)
        self.relaxation.program = replace(bare, c=self.linear.c, A=self.linear.A, b=self.linear.b)
        return self.search

    def _least(self) -> Solution | None:
        """The linear program's optimum, if neither the relaxation nor its rounded integers contradict the search."""
        search = self.search or self._set_up()
        program, scaling = self.linear, search.scaling
        program.c[: len(self.program.c)], program.b[: len(self.program.b)] = self.program.c, self.program.b
        continuous = self.relaxation.solve_cold()
        if continuous.status is not Status.OPTIMAL:
            return None
        x = self.relaxation.completed(program.integer, np.round(continuous.x[program.integer]))
        size = at_stake(program, x, scaling)
        point = search.verifier.verify_integer(program, x, 0.0, size)
        bound = _RelaxationBound(program, scaling, scaling, continuous, point)
        if (rounded := bound.optimum) is not None:
            return rounded
        answer, is_credible = bound.seen(search.solve_cold())
        return answer if is_credible and answer.status is Status.OPTIMAL else None


class _Squares:
    r"""$\tfrac12 x^\top P x$ as a sum of $\tfrac12 d_k (l_k^\top x)^2$, each with a column that is at least as large.

    A square is at least as large as its tangents. If $l_k^\top x$ is an integer, it is at least as large as the line
    through its values at two integers next to each other, and equal to it at both.
    """

    def __init__(self, program: ConicProgram) -> None:
        self.n = len(program.c)
        P = np.zeros((self.n, self.n)) if program.P is None else program.P.toarray()
        size, there, self.known = P.max(initial=0.0), np.flatnonzero(P.diagonal() > 0), set[tuple[int, float, float]]()
        terms, is_whole = list[tuple[float, Array]](), np.isin(np.arange(self.n), program.integer)
        if is_whole[there].all() and np.count_nonzero(P) > len(there):
            # What all integers have in common goes first: it is exact there, and what is left is often a sum of them.
            least = float(np.linalg.eigvalsh(P[np.ix_(there, there)])[0])
            terms = [(least, row) for row in np.eye(self.n)[there]] if least > PIVOT * size else []
            P[there, there] -= least if terms else 0.0
        for j in there:
            if P[j, j] > ROUNDING * size:
                terms.append((float(P[j, j]), P[j] / P[j, j]))
                P = P - P[j, j] * np.outer(terms[-1][1], terms[-1][1])
        self.d, self.L = np.array([d for d, _ in terms]), np.array([row for _, row in terms]).reshape(-1, self.n)
        is_integer = (np.abs(self.L - np.round(self.L)) <= TIE) & (is_whole | (np.abs(self.L) <= TIE))
        self.is_integer = is_integer.all(axis=1)
        self.L[self.is_integer] = np.round(self.L[self.is_integer])

    def __len__(self) -> int:
        return len(self.d)

    def rows_at(self, y: Array) -> tuple[Array, Array]:
        """Inequalities (m, n + k) and limits (m,) that bound the squares of y (k,) there, without those given before.

        Any tangent is one: at nine digits its slopes are 0 or large enough for HiGHS, which fails on tiny ones.
        """
        y = np.round(y, 9)
        low, high = np.where(self.is_integer, np.floor(y), y), np.where(self.is_integer, np.ceil(y), y)
        ends = [(low, np.where(self.is_integer, low + 1, y)), (np.where(self.is_integer, high - 1, y), high)]
        new = {(k, float(a[k]), float(b[k])) for a, b in ends for k in range(len(y))} - self.known
        self.known |= new
        rows, limits = np.zeros((len(new), self.n + len(y))), np.zeros(len(new))
        for i, (k, a, b) in enumerate(sorted(new)):
            rows[i, : self.n], rows[i, self.n + k] = self.d[k] * (a + b) / 2 * self.L[k], -1.0
            limits[i] = self.d[k] * a * b / 2
        return rows, limits


def check_cones(program: ConicProgram) -> None:
    """Raise where integers meet cones without tangents here."""
    unsupported = {c.kind for c in program.cones if c.size} - {"zero", "nonneg", "soc", "rotated"}
    if unsupported:
        raise ValueError(
            f"Integer decisions with {sorted(unsupported)} cones are not supported, only with linear, quadratic "
            "and second-order-cone parts. Rewrite the feasible set or drop integrality."
        )


def relaxed(program: ConicProgram, time_limit: float | None) -> Solution:
    """The solution without integrality."""
    return solve(replace(program, integer=np.zeros(0, dtype=np.int64)), time_limit=time_limit)


def _by_tangents(program: ConicProgram, time_limit: float | None, max_nodes: int | None) -> Solution:
    """Rounds of outer approximation; the status of what is returned tells only whether there is a point."""
    start = time.perf_counter()
    relaxation = _LinearRelaxation(program)
    best, lower, n_nodes = replace(nothing_known(program, Status.FAILED, ""), value=np.inf), -np.inf, 0
    # Tangents at the optimum without integrality keep the first linear relaxation bounded.
    relaxation.support_at(relaxed(program, time_limit))
    for _ in range(_MOST_ROUNDS):
        left = None if time_limit is None else max(time_limit - (time.perf_counter() - start), 0.01)
        outer = relaxation.solve(left, None if max_nodes is None else max(max_nodes - n_nodes, 1), best.value)
        n_nodes += outer.n_nodes
        if outer.status in (Status.UNBOUNDED, Status.FAILED) and relaxation.bound_all_sides():
            continue
        if not outer.status.has_solution:
            if not best.status.has_solution:
                return replace(best, status=outer.status, detail=outer.detail)
            break
        lower = outer.value - outer.gap  # rows are only added: a higher bound of before was an error of the search
        candidate = with_fixed_integers(program, outer.x[: len(program.c)], _scaling_of_rows(program))
        is_cut = relaxation.cut_off(outer.x)
        relaxation.support_at(candidate)
        if not is_cut and not candidate.status.has_solution:
            # One failure is not believed: what no tangent cuts off is a point of the program.
            x = outer.x[: len(program.c)].copy()
            x[program.integer] = np.round(x[program.integer])
            candidate = Solution(x, np.full(len(program.b), np.nan), program.value(x), Status.STOPPED_EARLY)
        if candidate.status.has_solution and not candidate.value >= best.value:
            best = candidate
        done = status_at(best.value - lower, max(1.0, abs(best.value))) is Status.OPTIMAL
        # A relaxation that was not solved to its tolerance still bounds from below; only limits end the rounds.
        is_late = time_limit is not None and time.perf_counter() - start >= time_limit
        is_out = is_late or (max_nodes is not None and n_nodes >= max_nodes)
        if done or is_out or not is_cut:
            break
    if not best.status.has_solution:
        return replace(best, detail="no feasible integer point was found before the limit", n_nodes=n_nodes)
    return replace(best, gap=best.value - lower, n_nodes=n_nodes)


def _contradicts(answer: Solution, value: float, size: float) -> bool:
    """Whether an answer says that there is no point, or none so low, although one of this value is known."""
    if answer.status is Status.INFEASIBLE:
        return bool(np.isfinite(value))
    return bool(answer.status.has_solution and answer.value - answer.gap > value + OPTIMAL * size)


def _scaling_of_rows(program: ConicProgram) -> Scaling:
    """The scaling of a scaled program with tangents among its rows, which have units of their own.

    What is nearly 0 there is rounding, and tells of no finer units.
    """
    n, m = len(program.c), len(program.b)
    rows = np.ones(m)
    if all(cone.kind in ("zero", "nonneg") for cone in program.cones):
        largest = abs(program.A).max(axis=1)
        largest = np.ravel(largest.toarray() if sp.issparse(largest) else largest)
        rows = np.array([1 / power_of_two(size) for size in largest.tolist()])
    return Scaling(rows, np.ones(n), 1.0, np.zeros(n), np.zeros(m))


class _LinearRelaxation:
    """Linear rows of the program, a column for each of its squares, and tangent cuts."""

    def __init__(self, program: ConicProgram) -> None:
        self.program, n = program, len(program.c)
        self.squares = _Squares(program)
        self.cones: list[tuple[sp.csr_array, Array]] = []
        self.cone_starts: list[int] = []
        rows, rhs, kinds, start = [], [], [], 0
        for cone in program.cones:
            block = program.A[start : start + cone.n_rows]
            b = program.b[start : start + cone.n_rows]
            start += cone.n_rows
            if cone.kind == "soc":
                self.cones.append((block, b))
                self.cone_starts.append(start - cone.n_rows)
                rows.append(block[:1])
                rhs.append(b[:1])
                kinds.append(Cone("nonneg", 1))
            else:
                rows.append(block)
                rhs.append(b)
                kinds.append(cone)
        A = sp.vstack([sp.csr_array((0, n)), *rows], format="csr")
        self.A = sp.hstack([A, sp.csr_array((A.shape[0], len(self.squares)))], format="csr")
        self.b, self.kinds, self.n, self.y = np.concatenate([np.zeros(0), *rhs]), kinds, n, np.zeros(len(self.squares))
        self._add_rows(*self.squares.rows_at(self.y))

    def _add_rows(self, rows: Array, limits: Array) -> bool:
        """Whether there are any."""
        if len(rows):
            self.A = sp.vstack([self.A, sp.csr_array(rows)], format="csr")
            self.b = np.append(self.b, limits)
            self.kinds.append(Cone("nonneg", len(rows)))
        return len(rows) > 0

    def _add_half_space(self, row: Array, limit: float) -> None:
        self._add_rows(np.append(row, np.zeros(len(self.squares)))[None], np.array([limit]))

    def solve(self, time_limit: float | None, max_nodes: int | None, at_most: float) -> Solution:
        """The least of the relaxation; a point of the program with the value `at_most` is known."""
        program = self.program
        linear = ConicProgram(
            c=np.append(program.c, np.ones(len(self.squares))),
            A=self.A,
            b=self.b,
            cones=tuple(self.kinds),
            offset=program.offset,
            integer=program.integer,
        )
        # A search that fails, or says what cannot be, is made in another way.
        for scaling in (_scaling_of_rows(linear), None):
            solver = LinearSolver(linear, time_limit=time_limit, max_nodes=max_nodes, scaling=scaling)
            for search in (solver.solve, solver.solve_otherwise):
                answer = search()
                if answer.status is not Status.FAILED and not _contradicts(answer, at_most, max(1.0, abs(at_most))):
                    return answer
        return replace(answer, gap=np.inf)

    def support_at(self, solution: Solution) -> None:
        """Add the half-spaces that prove a convex solution optimal: y'(b - A x) >= 0 for every cone."""
        if not solution.status.has_solution or not np.isfinite(solution.y).all():
            return
        self.y = self.squares.L @ solution.x
        self._add_rows(*self.squares.rows_at(self.y))
        for (block, b), start in zip(self.cones, self.cone_starts, strict=True):
            y = solution.y[start : start + len(b)]
            # Rounding may put y just outside its own cone, where the half-space would cut off the set.
            y = np.append(max(y[0], float(np.linalg.norm(y[1:]))), y[1:])
            if y[0] > 1e-9:
                self._add_half_space((y / y[0]) @ block, float((y / y[0]) @ b))

    def bound_all_sides(self) -> bool:
        """Add lines to one side of the last point for every square, then to the other: slopes outweigh all costs."""
        return any(self._add_rows(*self.squares.rows_at(self.y + side)) for side in (-1.0, 1.0))

    def cut_off(self, x: Array) -> bool:
        """Add a tangent for every cone and for the quadratic term that x violates."""
        point, levels = x[: self.n], x[self.n :]
        y = self.squares.L @ point
        is_over = float(self.squares.d @ y**2) / 2 > levels.sum() + 1e-10
        added = is_over and self._add_rows(*self.squares.rows_at(y))
        for block, b in self.cones:
            slack = b - block @ point
            norm = float(np.linalg.norm(slack[1:]))
            if norm > slack[0] + 1e-10:
                direction = np.append(-1.0, slack[1:] / norm)
                self._add_half_space(-(direction @ block), float(-(direction @ b)))
                added = True
        return added


_NAMED = ("scip", "gurobi", "copt", "mosek", "glpk_mi", "cbc", "cplex", "xpress")
_FINER: dict[str, dict[str, Any]] = {
    "scip": {"scip_params": {"limits/gap": 0.0, "numerics/feastol": SOLVER}},
    "gurobi": {"MIPGap": SOLVER, "MIPGapAbs": SOLVER, "FeasibilityTol": SOLVER, "IntFeasTol": SOLVER, "Threads": 1},
    "copt": {"RelGap": SOLVER, "FeasTol": SOLVER, "IntTol": SOLVER, "Threads": 1},
}
"""What is asked of those whose own tolerances are too wide to call an answer optimal; the user's options win."""
_BOUNDS: dict[str, Callable[[Any], float]] = {
    "scip": lambda stats: stats["model"].getDualbound(),
    "gurobi": lambda stats: stats.ObjBound,
    "copt": lambda stats: stats.BestBnd,
}
"""Where each tells the lower bound of its search."""


def check_named(backend: Any) -> None:
    """Raise where CVXPY knows no such solver for integers, or where it is not installed."""
    import cvxpy as cp

    if backend not in _NAMED:
        known = ", ".join(repr(name) for name in ("auto", *_NAMED))
        raise ValueError(f"backend must be one of {known}, got {backend!r}.")
    if backend.upper() not in cp.installed_solvers():
        raise ImportError(
            f"backend={backend!r} is not among CVXPY's installed solvers, {', '.join(cp.installed_solvers())}. Install "
            "its Python package (SCIP: pip install 'polyhedge[exact]'), or use backend='auto'."
        )


def solve_named(program: ConicProgram, backend: str, options: Mapping[str, Any]) -> Solution:
    """Solve with integer columns by this solver: its integers, completed and verified here.

    What it finds for the other columns is found again with the integers fixed, so that the point keeps its
    constraints as closely as any other; only its lower bound is the solver's word.
    """
    check_cones(program)
    continuous = relaxed(program, None)
    if not continuous.status.has_solution:  # nothing to search
        return solve_mixed_integer(program)
    plain = Scaling.of(program)
    scaling = scaling_around(plain, program, continuous)
    inside = SecondOrder(program.cones).of(scaling.apply(program))
    finer = _FINER.get(backend, {})
    nested = {name: {**finer[name], **options[name]} for name in finer if isinstance(options.get(name), Mapping)}
    status, words, x, lower = _ask(inside, backend, {**finer, **options, **nested})
    if x is None:
        return nothing_known(program, status, f"{backend}: {words}")
    completed = with_fixed_integers(inside, x)
    if not completed.status.has_solution:
        return nothing_known(program, Status.FAILED, f"{backend}: its integers have no feasible completion")
    if lower is None:
        least = relaxed(inside, None)
        lower = least.value - least.gap
    gap, x = scaling.cost * (completed.value - lower), scaling.invert(completed).x
    return Verifier(program, scaling).verify_integer(program, x, gap, min(scaling.cost, at_stake(program, x, plain)))


def _ask(
    program: ConicProgram, backend: str, options: dict[str, Any]
) -> tuple[Status, str, Array | None, float | None]:
    """How a solver ended, also in its words; perhaps a point, and perhaps a lower bound."""
    import cvxpy as cp

    n = len(program.c)
    z = cp.Variable(n, integer=len(program.integer) == n or [tuple(program.integer.tolist())])
    cost = program.c @ z if program.P is None else program.c @ z + 0.5 * cp.quad_form(z, cp.psd_wrap(program.P))
    rows, start = [], 0
    for cone in program.cones:
        block = slice(start, start + cone.n_rows)
        start += cone.n_rows
        kept = np.isfinite(program.b[block])
        if kept.any():
            slack = program.b[block][kept] - program.A[block][kept] @ z
            is_soc = cone.kind == "soc"
            rows.append(cp.SOC(slack[0], slack[1:]) if is_soc else slack == 0 if cone.kind == "zero" else slack >= 0)
    problem = cp.Problem(cp.Minimize(cost), rows)
    try:
        data, chain, inverse = problem.get_problem_data(backend.upper())
        solution = chain.invert(chain.solve_via_data(problem, data, solver_opts=options), inverse)
    except Exception as error:
        raise SolverError(
            f"backend={backend!r} refused a program with {n} columns: {error} Check its licence and `options`, or use "
            "backend='auto'."
        ) from error
    words = str(solution.status)
    if words in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE, "infeasible_or_unbounded"):
        return Status.INFEASIBLE, words, None, None  # the relaxation is bounded
    x = np.ravel((solution.primal_vars or {}).get(z.id, np.full(n, np.nan)))
    if not np.isfinite(x).all():
        return Status.FAILED, words, None, None
    read = _BOUNDS.get(backend)
    lower = None if read is None else float(read(solution.attr["solver_specific_stats"])) + program.offset
    return Status.OPTIMAL, words, x, lower
