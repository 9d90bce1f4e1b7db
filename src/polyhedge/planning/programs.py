r"""Decisions of least risk by cuts: the least $g_0(z) + \eta$ over Z with $\eta \ge [1, z]^\top G_k$ for every cut k.

Of equally good decisions the one with the least $\sum_j r_j s_j z_j$ is taken, where $s_j$ is by how much the slopes of
the cuts in $z_j$ differ, and the weights $r_j$ grow with j: rounding must not choose, or units would. A small share of
this sum is part of every objective.

Where outcomes do not multiply decisions, only right-hand sides change from row to row. Where the cost has one piece,
cuts are the same at all rows and only prices change. Rows then share the vertices of one program (`corners.py`); rows
whose vertex is not found there are solved like all others. Where decisions lie on a segment, every cut is a line, and
all rows are solved together by bisection.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.progress import tell
from polyhedge._support.tolerances import ROUNDING, TIE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.planning.corners import Corners, MovingProgram
from polyhedge.planning.risk import Cuts
from polyhedge.problems import DecisionProblem
from polyhedge.robust.threads import in_order
from polyhedge.solvers.conic import ConicSolver
from polyhedge.solvers.linear import DualProgram, LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Solution, Status, row_kinds
from polyhedge.solvers.solve import IntegerSolver, solve
from polyhedge.solvers.verify import Verifier

_PART, _PART_OF_INTEGERS = 256, 32
"""Rows that one solver takes, one after the other; each of those with integers takes long."""
_LOG = logging.getLogger(__name__)
_MOSTLY_FIXED = 2.0**-7
"""Share of costs up to which what is decided counts as little next to what is fixed: solvers tell nine digits."""
_WALKED = 2**12
"""Rows that walk together: all that are at a corner are looked at in one go."""
_TIE = 1e-6
"""Weight of what breaks ties: a thousand times what HiGHS tells apart, and far below what cuts miss of the risk."""
_NO_SLOPE = 1e-13
"""Share of the largest slope of a decision below which others are what rounding left of 0.

Units would blow a row of such slopes up to 1e11 next to others of 1, and HiGHS would end without an answer."""
# Halvings of the segment: 2^-24 of its length is below what a solver would tell apart.
_HALVINGS = 24
# Halvings after which rows whose least cost is known by then are left alone: nine of ten after the first of these.
_LOOKS = (6, 9, 12, 16)
_LINES_TOGETHER = 2**18
"""Lines of all rows that are looked at together: some megabytes, which stay in a near cache."""


def least_on_segment(cuts: Cuts, base: Array, z0: Array, z1: Array, centers: Array, scales: Array) -> Array:
    """Positions t (N,) in [0, 1] with the least base'(1, t, t^2) + max_k of the cuts at z0 + t (z1 - z0)."""
    ends = np.stack([np.append(1.0, z0), np.append(0.0, z1 - z0)])
    # Every cut is a line in t; its height and slope are affine in (1, s, c).
    lines = np.stack([np.vstack([cuts.A @ e, cuts.B @ e, np.einsum("kid,i->dk", cuts.C, e)]) for e in ends])
    positions, step = np.empty(len(centers)), max(_LINES_TOGETHER // len(cuts), 1)
    for k in range(0, len(centers), step):
        at = centers[k : k + step], scales[k : k + step]
        positions[k : k + step] = _bisect(
            [(_lines_at(lines[0][:, own], *at), _lines_at(lines[1][:, own], *at)) for own in cuts.terms], base
        )
    return positions


def _lines_at(coefficients: Array, centers: Array, scales: Array) -> Array:
    total = coefficients[0] + scales[:, None] * coefficients[1]
    for j in range(centers.shape[1]):
        total += centers[:, [j]] * coefficients[2 + j]
    return total


def _bisect(terms: list[tuple[Array, Array]], base: Array) -> Array:
    """The ends where the cost falls towards them; between them, where no end is best, by halving."""
    n = len(terms[0][0])
    left, right = _end(terms, 0.0, 1.0), _end(terms, 1.0, -1.0)
    flat = TIE * sum((np.abs(slopes).max(axis=1) for _, slopes in terms), np.full(n, np.abs(base[1:]).max()))
    stays, leaves = left[1] + base[1] >= -flat, right[1] + base[1] + 2 * base[2] <= flat
    positions, inner = np.where(stays, 0.0, 1.0), np.flatnonzero(~(stays | leaves))
    if len(inner):
        own = [(heights[inner], slopes[inner]) for heights, slopes in terms]
        positions[inner] = _between(own, base, flat[inner], left[:, inner], right[:, inner])
    return positions


def _between(terms: list[tuple[Array, Array]], base: Array, flat: Array, left: Array, right: Array) -> Array:
    """Halve by the slope of the lines on top; end where those on both sides cross."""
    positions, rows = np.empty(len(flat)), np.arange(len(flat))
    low, high = np.zeros(len(flat)), np.ones(len(flat))
    for step in range(_HALVINGS):
        middle = (low + high) / 2
        top = _top(terms, middle)
        rises = top[1] + base[1] + 2 * base[2] * middle >= -flat
        high, right = np.where(rises, middle, high), np.where(rises, top, right)
        low, left = np.where(rises, low, middle), np.where(rises, left, top)
        if step in _LOOKS:
            is_known, least = _known_least(terms, base, flat, left, right)
            positions[rows[is_known]] = np.clip(least, low, high)[is_known]
            rest = np.flatnonzero(~is_known)
            if not len(rest):
                return positions
            rows, flat, left, right = rows[rest], flat[rest], left[:, rest], right[:, rest]
            low, high = low[rest], high[rest]
            terms = [(heights[rest], slopes[rest]) for heights, slopes in terms]
    crossing = _crossing(left, right)
    positions[rows] = np.where(np.isfinite(crossing), np.clip(crossing, low, high), (low + high) / 2)
    return positions


def _known_least(
    terms: list[tuple[Array, Array]], base: Array, flat: Array, left: Array, right: Array
) -> tuple[Mask, Array]:
    """Where (N,) the least is known by the lines on both sides, and its positions (N,).

    It lies where they cross, or where one of them and g_0 together are level, if no other line is on top there: further
    halvings would end there too.
    """
    at = _crossing(left, right)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = -(base[1] + np.stack([left[1], right[1]])) / (2 * base[2])
    before = ~(left[1] + base[1] + 2 * base[2] * at < -flat)
    behind = right[1] + base[1] + 2 * base[2] * at < -flat
    at = np.where(before, level[0], np.where(behind, level[1], at))
    is_known = np.isfinite(at)
    at = np.where(is_known, at, 0.0)
    top = _top(terms, at)
    return is_known & ((top == left).all(axis=0) | (top == right).all(axis=0)), at


def _crossing(left: Array, right: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((left[0] - right[0]) / (right[1] - left[1]))


def _end(terms: list[tuple[Array, Array]], t: float, side: float) -> Array:
    """Height and slope (2, N) at an end: of lines that are on top together, those on top beyond it on this side."""
    total = np.zeros((2, len(terms[0][0])))
    for heights, slopes in terms:
        at = heights + t * slopes
        highest, lowest = at.max(axis=1), at.min(axis=1)
        same = TIE * (highest - lowest) + ROUNDING * np.maximum(highest, -lowest)
        tied = at >= (highest - same)[:, None]
        own = side * np.where(tied, side * slopes, -np.inf).max(axis=1)
        total += np.stack([highest - t * own, own])
    return total


def _top(terms: list[tuple[Array, Array]], t: Array) -> Array:
    """Height and slope (2, N) of the sum of the lines that are on top at t."""
    total = np.zeros((2, len(t)))
    for heights, slopes in terms:
        if heights.shape[1] == 1:
            total += heights[:, 0], slopes[:, 0]
            continue
        lines = t[:, None] * slopes
        lines += heights
        top = lines.argmax(axis=1) + np.arange(0, heights.size, heights.shape[1])
        total[0] += heights.take(top)
        total[1] += slopes.take(top)
    return total


def corners_of(problem: DecisionProblem, cuts: Cuts, starts: Array, is_scored: bool = False) -> Corners | None:
    """The corners of the rows' common program; None where rows have programs of another kind.

    `starts` (J, d + 1) are [centre, spread] of rows whose best corners others start at. To compare few decisions the
    dual is as quick where prices move.
    """
    if problem.parameters or not len(starts):
        return None
    program = program_of(problem, cuts)
    return program.corners(starts) if isinstance(program, _LimitsChange if is_scored else _Fixed) else None


def least_by_programs(
    problem: DecisionProblem,
    cuts: Cuts,
    centers: Array,
    scales: Array,
    values: Array,
    n_jobs: int | None = None,
    corners: Corners | None = None,
    *,
    is_scored: bool = False,
    program: RowProgram | None = None,
) -> tuple[Array, Mask]:
    """Decisions (N, p) of least cost over the cuts, NaN where there is none, and whether each is proven to be one (N,).

    Decisions that are only scored, not used, need no proof: solvers are then taken at their word, and one `program` may
    serve all rows.

    A linear program starts from the basis of the row before: the sum that breaks ties leaves one best decision. No
    solver is believed: a point that breaks a limit is none, and only multipliers prove that it is the least.
    """
    z, is_best = np.full((len(centers), problem.n_decisions), np.nan), np.zeros(len(centers), dtype=bool)
    if corners is not None:
        theta = np.column_stack([centers, scales])
        wide = [slice(k, k + _WALKED) for k in range(0, len(theta), _WALKED)]
        walks = in_order(lambda own: corners(theta[own]), wide, n_jobs=n_jobs)
        for own, (some, arrived) in zip(wide, walks, strict=True):
            z[own], is_best[own] = some, arrived
    rest = np.flatnonzero(~is_best)
    if program is not None:
        z[rest] = program.compared(centers[rest], scales[rest])
        rest = rest[~np.isfinite(z[rest]).all(axis=1)]
    size = _PART_OF_INTEGERS if problem.parameters or len(problem.feasible.program.integer) else _PART
    parts, n_done = [rest[k : k + size] for k in range(0, len(rest), size)], 0

    def work(part: Indices) -> list[tuple[Array, bool]]:
        return _solve_part(problem, cuts, (centers[part], scales[part], values[part]), is_scored=is_scored)

    for part, solved in zip(parts, in_order(work, parts, n_jobs=n_jobs), strict=True):
        for i, (one, is_proven) in zip(part, solved, strict=True):
            z[i], is_best[i] = one, is_proven
        n_done += len(part)
        if len(parts) > 1 and not is_scored:
            tell(_LOG, "deciding rows", n_done, len(rest))
    return z, is_best


def _solve_part(
    problem: DecisionProblem, cuts: Cuts, rows: tuple[Array, ...], *, is_scored: bool
) -> list[tuple[Array, bool]]:
    program, key, solved = None, b"", list[tuple[Array, bool]]()
    for center, scale, value in zip(*rows, strict=True):
        if program is None or (problem.parameters and value.tobytes() != key):
            key = value.tobytes()
            program = program_of(problem.at_values(value) if problem.parameters else problem, cuts)
        one = program.compared(center[None], np.array([scale]))[0] if is_scored else np.full(program.n, np.nan)
        solved.append((one, False) if np.isfinite(one).all() else program(center, float(scale)))
    return solved


def _condensed(problem: DecisionProblem) -> tuple[ConicProgram, Indices]:
    """The program of Z and g_0, and the columns of z in it, without the columns that only define a quadratic g_0."""
    feasible, cost = problem.feasible, problem.structure.own_cost
    program, columns, n = feasible.program, feasible.z_columns, len(feasible.program.c)
    kinds = row_kinds(program.cones)
    if cost is None or program.P is None or not set(kinds) <= {"zero", "nonneg"}:
        return program, columns
    others = np.setdiff1d(np.arange(n), columns)
    defines = np.diff(sp.csr_array(program.A[:, others]).indptr) > 0
    is_integer = np.isin(columns, program.integer)
    if (kinds[defines] != "zero").any() or defines.sum() != len(others) or is_integer.sum() != len(program.integer):
        return program, columns
    rows = [np.flatnonzero(~defines & (kinds == kind)) for kind in ("zero", "nonneg")]
    own = np.concatenate(rows)
    return ConicProgram(
        c=cost.slope,
        A=sp.csr_array(program.A[own][:, columns]),
        b=program.b[own],
        cones=tuple(Cone(kind, len(each)) for kind, each in zip(("zero", "nonneg"), rows, strict=True) if len(each)),
        P=sp.csr_array(cost.hessian) if cost.hessian.any() else None,
        offset=cost.offset + 0.5 * float(cost.l @ cost.D @ cost.l),
        integer=np.flatnonzero(is_integer),
    ), np.arange(len(columns))


def program_of(problem: DecisionProblem, cuts: Cuts) -> RowProgram:
    """What solves one row after the other: the fastest that the cuts allow."""
    program = _condensed(problem)[0]
    if len(program.integer) and not IntegerSolver.takes(program):
        return RowProgram(problem, cuts)
    if _is_one_piece(cuts):
        return _PricesChange(problem, cuts)
    if not (cuts.B[:, 1:].any() or cuts.C[:, 1:].any()):
        return _LimitsChange(problem, cuts)
    return _EntriesChange(problem, cuts)


def _is_one_piece(cuts: Cuts) -> bool:
    """Whether cuts are those of a cost of one piece, which differ by what the spread multiplies alone."""
    return not (cuts.term.any() or np.ptp(cuts.A, axis=0).any() or np.ptp(cuts.C, axis=0).any())


class RowProgram:
    """Any convex or mixed-integer program, made for each row."""

    def __init__(self, problem: DecisionProblem, cuts: Cuts) -> None:
        self.program, self.columns = _condensed(problem)
        self.problem, self.cuts, self.n = problem, cuts, problem.n_decisions

    def grown(self, cuts: Cuts) -> RowProgram:
        """The program with further cuts, for decisions that are only compared."""
        return program_of(self.problem, cuts)

    def __call__(self, center: Array, scale: float) -> tuple[Array, bool]:
        """The decision (p,) of a row, and whether it is proven to be the best."""
        solution = self._solve(center, scale)
        z = solution.x[self.columns] if solution.status.has_solution else np.full(self.n, np.nan)
        return z, solution.status is Status.OPTIMAL

    def _solve(self, center: Array, scale: float) -> Solution:
        return least_with_cuts(self.program, self.columns, self.cuts.at(center, scale), self.cuts.term)

    def compared(self, centers: Array, scales: Array) -> Array:
        """Decisions (N, p) of rows without a proof; NaN where a proof takes no longer."""
        return np.full((len(centers), self.n), np.nan)


class _EntriesChange(RowProgram):
    """A convex program that is set up at the first row; later rows change its numbers, as long as no entry vanishes."""

    solver: LinearSolver | ConicSolver | IntegerSolver | None = None

    def _solve(self, center: Array, scale: float) -> Solution:
        G = self.cuts.at(center, scale)
        whole = with_cuts(self.program, self.columns, G[:, 1:], G[:, 0], self.cuts.term)
        if self.solver is None:
            self.indices = whole.A.indices
            self.solver = solver_of(whole, np.zeros(0, dtype=np.int64))
        if not np.array_equal(whole.A.indices, self.indices):
            return super()._solve(center, scale)
        if isinstance(self.solver, ConicSolver):
            solution = self.solver.solve(whole)
        else:
            self.solver.program.c[:], self.solver.program.b[:] = whole.c, whole.b
            self.solver.change_entries(np.arange(whole.A.nnz), whole.A.data)
            solution = self.solver.solve_cold()
        return super()._solve(center, scale) if solution.status is Status.UNBOUNDED else solution


def solver_of(program: ConicProgram, rows: Indices, scaling: Scaling | None = None) -> Any:
    """A program of which the limits of these rows move, set up for its kind."""
    if len(program.integer):
        return IntegerSolver(program, rows)
    if not program.is_linear:
        return ConicSolver(program, scaling=scaling)
    return LinearSolver(program, varying_rows=rows, scaling=scaling, presolve=False)


class _Fixed(RowProgram, ABC):
    """A convex program whose matrix is the same at all rows."""

    def __init__(self, problem: DecisionProblem, cuts: Cuts, slopes: Array, heights: Array) -> None:
        super().__init__(problem, cuts)
        self.whole = with_cuts(self.program, self.columns, slopes, heights, cuts.term)
        self.scaling = Scaling.of(self.whole)
        self.prices, self.cut_rows = self.whole.c.copy(), np.arange(len(self.whole.b) - len(cuts), len(self.whole.b))

    @cached_property
    def solver(self) -> LinearSolver | ConicSolver | IntegerSolver:
        """The program as it was set up; a linear one takes the place of `whole`."""
        solver = solver_of(self.whole, self.cut_rows, self.scaling)
        self.whole = self.whole if isinstance(solver, ConicSolver) else solver.program
        return solver

    @abstractmethod
    def change(self, center: Array, scale: float) -> None:
        """Write the numbers of a row into the program."""

    @abstractmethod
    def corners(self, starts: Array) -> Corners | None:
        """The corners of all rows' common program, found from the first of some; None if it is not linear."""

    def _solve(self, center: Array, scale: float) -> Solution:
        solver = self.solver
        self.change(center, scale)
        solution = solver.solve(self.whole) if isinstance(solver, ConicSolver) else solver.solve()
        return super()._solve(center, scale) if solution.status is Status.UNBOUNDED else solution

    def compared(self, centers: Array, scales: Array) -> Array:
        z = super().compared(centers, scales)
        if not self.whole.is_linear and isinstance(self.solver, ConicSolver):
            for k, (center, scale) in enumerate(zip(centers, scales.tolist(), strict=True)):
                self.change(center, scale)
                z[k] = self.solver.point(self.whole)[self.columns]
        return z


class _PricesChange(_Fixed):
    """One piece: A and C are common to all cuts and belong to the prices, the spread is the price of eta."""

    def __init__(self, problem: DecisionProblem, cuts: Cuts) -> None:
        super().__init__(problem, cuts, cuts.B[:, 1:], cuts.B[:, 0])
        self.level = np.array([len(self.prices) - 1])
        self.has_dual = self.whole.is_linear and not len(self.whole.integer)
        is_equation = row_kinds(self.whole.cones) == "zero"
        self.units = self.scaling.columns
        self.equations = self.scaling.rows[is_equation, None] * self.whole.A[is_equation].toarray() * self.units
        self.inverse = np.linalg.pinv(self.equations)

    @cached_property
    def dual(self) -> DualProgram:
        """The dual of the program with the cuts so far."""
        return DualProgram(self.whole, self.scaling)

    @cached_property
    def verifier(self) -> Verifier:
        """Verifies what the dual says of the program as it was set up."""
        return Verifier(self.whole, self.scaling)

    def _solve(self, center: Array, scale: float) -> Solution:
        if self.has_dual:
            self.change(center, scale)
            solution = self.dual.solve(self.whole, self.verifier)
            if solution.status is Status.OPTIMAL:
                return solution
        return super()._solve(center, scale)

    def grown(self, cuts: Cuts) -> RowProgram:
        """The same program, with the further cuts in its dual; another where a first cut hid that pieces differ."""
        if not (self.has_dual and _is_one_piece(cuts)):
            return super().grown(cuts)
        new = cuts.take(np.arange(len(self.cuts), len(cuts)))
        rows = np.zeros((len(new), len(self.prices)))
        rows[:, self.columns], rows[:, self.level] = new.B[:, 1:], -1.0
        self.dual.add_rows(rows, -new.B[:, 0], float(self.scaling.rows[-1]))
        self.cuts = cuts
        return self

    def compared(self, centers: Array, scales: Array) -> Array:
        if not self.has_dual:
            return super().compared(centers, scales)
        return self.dual.points(self._costs(centers, scales))[:, self.columns]

    def change(self, center: Array, scale: float) -> None:
        self.whole.c[:] = self._costs(center[None], np.array([scale]))[0]

    def _costs(self, centers: Array, scales: Array) -> Array:
        """The costs (N, n) of rows."""
        costs = np.tile(self.prices, (len(centers), 1))
        costs[:, self.level] = 0.0
        costs[:, self.columns] += self.cuts.A[0, 1:] + centers @ self.cuts.C[0, 1:].T
        bare = self._bare(costs)
        costs = np.where(self._is_far(costs, bare)[:, None], bare, costs)
        costs[:, self.level] = scales[:, None]
        return costs

    def _bare(self, costs: Array) -> Array:
        """Costs (..., n) without what equations fix whatever is decided, such as outcomes far from 0 under a budget."""
        seen = self.units * costs
        return np.asarray((seen - seen @ self.inverse @ self.equations) / self.units)

    def _is_far(self, costs: Array, bare: Array) -> Mask:
        """Whether costs are nearly all fixed, so that a tolerance of the rest would be lost in their rounding."""
        whole = np.abs(self.units * costs).max(axis=-1)
        return np.asarray(np.abs(self.units * bare).max(axis=-1) < _MOSTLY_FIXED * whole)

    def corners(self, starts: Array) -> Corners | None:
        """The corners of costs that move."""
        solver = self.solver
        if not isinstance(solver, LinearSolver):
            return None
        costs, slope = self.prices.copy(), np.zeros((len(self.prices), self.cuts.C.shape[2] + 1))
        costs[self.columns] += self.cuts.A[0, 1:]
        costs[self.level] = 0.0
        slope[self.columns, :-1] = self.cuts.C[0, 1:]
        slope[self.level, -1] = 1.0
        self.change(starts[0, :-1], float(starts[0, -1]))
        origin = np.append(np.median(starts[:, :-1], axis=0), 0.0)
        there = costs + slope @ origin
        bare = self._bare(there)
        if self._is_far(there, bare):
            costs, slope = bare, self._bare(slope.T).T
        else:
            origin = np.zeros_like(origin)
        whole = replace(self.whole, c=costs)
        moving = MovingProgram.of(whole, self.columns, slope, origin, self.scaling)
        return Corners(moving, solver, starts)


class _LimitsChange(_Fixed):
    """No outcome multiplies a decision: a row moves the heights of the cuts only."""

    def __init__(self, problem: DecisionProblem, cuts: Cuts) -> None:
        super().__init__(problem, cuts, cuts.A[:, 1:], cuts.A[:, 0])

    def change(self, center: Array, scale: float) -> None:
        self.whole.b[self.cut_rows] = -(self.cuts.A[:, 0] + scale * self.cuts.B[:, 0] + self.cuts.C[:, 0] @ center)

    def corners(self, starts: Array) -> Corners | None:
        """The corners of limits that move."""
        solver = self.solver
        if not isinstance(solver, LinearSolver):
            return None
        limits, slope = self.whole.b.copy(), np.zeros((len(self.whole.b), starts.shape[1]))
        limits[self.cut_rows] = -self.cuts.A[:, 0]
        slope[self.cut_rows] = -np.column_stack([self.cuts.C[:, 0], self.cuts.B[:, 0]])
        self.change(starts[0, :-1], float(starts[0, -1]))
        origin = np.append(np.median(starts[:, :-1], axis=0), 0.0)
        whole = replace(self.whole, b=limits + slope @ origin)
        moving = MovingProgram.of(whole, self.columns, slope, origin, self.scaling, moves_limits=True)
        return Corners(moving, solver, starts)


def least_with_cuts(program: ConicProgram, columns: Indices, G: Array, term: Indices) -> Solution:
    """The least over the cuts [1, z] G_k (K, 1 + p) of each term."""
    solution = solve(with_cuts(program, columns, G[:, 1:], G[:, 0], term))
    if solution.status is Status.UNBOUNDED:  # of equally good decisions without end none may have the least sum
        return solve(with_cuts(program, columns, G[:, 1:], G[:, 0], term, breaks_ties=False))
    return solution


def with_cuts(
    program: ConicProgram, columns: Indices, slopes: Array, heights: Array, term: Indices, *, breaks_ties: bool = True
) -> ConicProgram:
    """The program with a column eta of cost 1 for each term, and the rows slope'z - eta <= -height."""
    n, k, terms = len(program.c), len(heights), np.unique(term)
    size = np.abs(slopes).max(axis=0, initial=0.0)
    rows = np.hstack([np.where(np.abs(slopes) <= _NO_SLOPE * size, 0.0, slopes), np.full((k, 1), -1.0)])
    places = np.hstack([np.tile(columns, (k, 1)), (n + np.searchsorted(terms, term))[:, None]])
    is_there, m = rows != 0, len(terms)
    # By hand: stacking sparse matrices takes longer than solving a small program.
    A = sp.csr_array(program.A)
    A = sp.csr_array(
        (
            np.concatenate([A.data, rows[is_there]]),
            np.concatenate([A.indices, places[is_there]]),
            np.concatenate([A.indptr, A.indptr[-1] + np.cumsum(is_there.sum(axis=1))]),
        ),
        shape=(A.shape[0] + k, n + m),
    )
    P = program.P
    if P is not None:
        P = sp.csr_array((P.data, P.indices, np.append(P.indptr, np.full(m, P.indptr[-1]))), shape=(n + m, n + m))
    c = np.concatenate([program.c, np.ones(m)])
    if breaks_ties:
        # A term of one cut has the slopes of a cost that all rows share.
        own = [slopes[term == one] for one in terms]
        sizes = np.max([np.ptp(one, axis=0) if len(one) > 1 else np.abs(one[0]) for one in own], axis=0)
        sizes += np.abs(c[columns])
        weights = np.sqrt(2.0 + np.arange(len(columns)))  # no sums of some are sums of others
        c[columns] += _TIE * weights / weights[-1] * sizes
    return ConicProgram(
        c=c,
        A=A,
        b=np.concatenate([program.b, -heights]),
        cones=(*program.cones, Cone("nonneg", k)),
        P=P,
        offset=program.offset,
        integer=program.integer,
    )
