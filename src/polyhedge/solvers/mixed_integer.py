"""Mixed-integer convex programs on HiGHS by outer approximation.

HiGHS takes integers only with linear rows. Second-order cones and a convex quadratic objective are
replaced by tangent planes, added where the last mixed-integer solution violates them, until none is
violated by more than the tolerance. The value of the linear relaxation is a lower bound, so the
result carries its gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, TIE
from polyhedge._support.validation import Array
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.fixed import with_fixed_integers
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status, status_at
from polyhedge.solvers.rotated import SecondOrder
from polyhedge.solvers.scaling import Frame, power_of_two
from polyhedge.solvers.verify import Judge, nothing_known

__all__ = ["at_stake", "check_cones", "relaxed", "seen_from", "solve_mixed_integer", "with_fixed_integers"]

# Usual problems take fewer than twenty rounds of tangents.
_MAX_ROUNDS = 200
_TANGENT_BITS = 30
"""Bits after the point, in the program's own units, of where tangents touch: they miss 2^-60 of what they bound."""


def solve_mixed_integer(
    program: ConicProgram, *, time_limit: float | None = None, max_nodes: int | None = None
) -> Solution:
    """Solve with integer columns; exact for linear programs, to `OPTIMAL` for convex ones.

    `max_nodes` limits the nodes of all searches together.
    """
    check_cones(program)
    continuous = relaxed(program, time_limit)
    plain = Frame.of(program)
    frame = seen_from(plain, program, continuous)
    if program.is_linear:
        known = _Known(program, plain, frame, continuous)
        return known.optimum or known.checked(
            LinearSolver(program, time_limit=time_limit, max_nodes=max_nodes, frame=seen) for seen in (frame, plain)
        )
    if continuous.status in (Status.INFEASIBLE, Status.UNBOUNDED):
        return nothing_known(program, continuous.status, continuous.detail)
    # All tolerances below are in the program's own units.
    solution = _by_tangents(SecondOrder(program.cones).of(frame.seen(program)), time_limit, max_nodes)
    if not solution.status.has_solution:
        return nothing_known(program, solution.status, solution.detail)
    x = frame.back(solution).x
    whole = Judge(program, frame).whole(
        program, x, frame.cost * solution.gap, min(frame.cost, at_stake(program, x, plain))
    )
    return replace(whole, n_nodes=solution.n_nodes)


def seen_from(plain: Frame, program: ConicProgram, continuous: Solution) -> Frame:
    """Where a mixed-integer program is seen from: around its relaxation, where that is proven; else the plain frame.

    Multipliers that prove nothing would set units in which any answer is near to any other.
    """
    return plain.around(program, continuous.x, continuous.y) if continuous.status is Status.OPTIMAL else plain


def at_stake(program: ConicProgram, x: Array, plain: Frame) -> float:
    """The largest cost of a column at a point, at least that of a unit of it: no multiplier has a say in it."""
    steep = program.c if program.P is None else program.c + program.P @ x
    return float(np.abs(steep * np.maximum(np.abs(x), plain.columns)).max(initial=0.0))


class _Known:
    """What the relaxation of a linear program says of its whole numbers: a lower bound, and perhaps a point."""

    def __init__(self, program: ConicProgram, plain: Frame, frame: Frame, continuous: Solution) -> None:
        self.program, self.plain, self.frame = program, plain, frame
        is_proven = continuous.status is Status.OPTIMAL
        self.lower = continuous.value - continuous.gap if is_proven else -np.inf
        self.point = with_fixed_integers(program, continuous.x, frame) if is_proven else continuous
        self.size = at_stake(program, self.point.x, plain) if self.point.status.has_solution and is_proven else np.nan
        self.value = self.point.value if self.size >= 0 else np.inf

    @property
    def optimum(self) -> Solution | None:
        """The rounded point where it costs what the relaxation does: nothing can be better."""
        gap = self.value - self.lower
        if not abs(gap) <= TIE * max(self.size, abs(self.value - self.program.offset)):
            return None
        whole = Judge(self.program, self.frame).whole(self.program, self.point.x, max(gap, 0.0), self.size)
        return whole if whole.status is Status.OPTIMAL else None

    def checked(self, solvers: Iterable[LinearSolver]) -> Solution:
        """The first answer that does not contradict the point; where all do, the point with what is proven of it."""
        for solver in solvers:
            for search in (solver.solve, solver.solve_otherwise):
                answer = self._sized(search())
                if not self._is_wrong(answer):
                    return answer
        gap = self.value - self.lower
        point = Judge(self.program, self.frame).whole(self.program, self.point.x, gap, self.size)
        return replace(point, detail="the search contradicts a point that is known")

    def _is_wrong(self, answer: Solution) -> bool:
        if answer.status is Status.INFEASIBLE:
            return bool(np.isfinite(self.value))
        size = max(self.size, abs(self.value - self.program.offset))
        return bool(answer.status.has_solution and answer.value - answer.gap > self.value + OPTIMAL * size)

    def _sized(self, answer: Solution) -> Solution:
        """The answer, optimal only if it is so beside its costs, not only beside those that multipliers set."""
        if answer.status is not Status.OPTIMAL:
            return answer
        size = min(
            answer.size, max(at_stake(self.program, answer.x, self.plain), abs(answer.value - self.program.offset))
        )
        return replace(answer, size=size, status=status_at(answer.gap, size, OPTIMAL))


def check_cones(program: ConicProgram) -> None:
    """Raise where whole numbers meet cones that have no tangents here."""
    unsupported = {c.kind for c in program.cones if c.size} - {"zero", "nonneg", "soc", "rotated"}
    if unsupported:
        raise ValueError(
            f"Integer decisions with {sorted(unsupported)} cones are not supported, only with linear, quadratic "
            "and second-order-cone parts. Rewrite the feasible set or drop integrality."
        )


def relaxed(program: ConicProgram, time_limit: float | None) -> Solution:
    """The solution without integrality."""
    continuous = replace(program, integer=np.zeros(0, dtype=np.int64))
    if continuous.is_linear:
        return LinearSolver(continuous, time_limit=time_limit).solve()
    return solve_conic(continuous, time_limit=time_limit)


def _by_tangents(program: ConicProgram, time_limit: float | None, max_nodes: int | None) -> Solution:
    """Rounds of outer approximation; the status of what is returned tells only whether there is a point."""
    start = time.perf_counter()
    relaxation = _LinearRelaxation(program)
    best, lower, n_nodes = replace(nothing_known(program, Status.FAILED, ""), value=np.inf), -np.inf, 0
    # Tangents at the optimum without integrality keep the first linear relaxation bounded.
    relaxation.support_at(relaxed(program, time_limit))
    for _ in range(_MAX_ROUNDS):
        left = None if time_limit is None else max(time_limit - (time.perf_counter() - start), 0.01)
        outer = relaxation.solve(left, None if max_nodes is None else max(max_nodes - n_nodes, 1), best.value)
        n_nodes += outer.n_nodes
        if outer.status is Status.UNBOUNDED and relaxation.bound_all_sides():
            continue
        if not outer.status.has_solution:
            if not best.status.has_solution:
                return replace(best, status=outer.status, detail=outer.detail)
            break
        lower = max(lower, outer.value - outer.gap)
        candidate = with_fixed_integers(program, outer.x[: len(program.c)], _as_seen(program))
        relaxation.support_at(candidate)
        is_cut = relaxation.cut_off(outer.x)
        if not is_cut and not candidate.status.has_solution:
            # One failure is not believed: what no tangent cuts off is a point of the program.
            candidate = _as_point(program, outer.x[: len(program.c)])
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


def _contradicts(answer: Solution, value: float) -> bool:
    """Whether an answer says that there is no point, or none so low, although one of this value is known."""
    if answer.status is Status.INFEASIBLE:
        return bool(np.isfinite(value))
    return bool(answer.value - answer.gap > value + OPTIMAL * max(1.0, abs(value)))


def _as_point(program: ConicProgram, x: Array) -> Solution:
    """A point with its value, its integer columns rounded; whoever takes it judges it."""
    x = x.copy()
    x[program.integer] = np.round(x[program.integer])
    curved = 0.0 if program.P is None else 0.5 * (program.P @ x)
    value = float((program.c + curved) @ x) + program.offset
    return Solution(x, np.full(len(program.b), np.nan), value, Status.STOPPED_EARLY)


def _as_seen(program: ConicProgram) -> Frame:
    """The frame of a program that is seen from one, with tangents among its rows, which have their own units.

    What is nearly 0 there is rounding, and tells of no finer units.
    """
    n, m = len(program.c), len(program.b)
    rows = np.ones(m)
    if all(cone.kind in ("zero", "nonneg") for cone in program.cones):
        largest = abs(program.A).max(axis=1)
        largest = np.ravel(largest.toarray() if sp.issparse(largest) else largest)
        rows = np.array([1 / power_of_two(size) for size in largest.tolist()])
    return Frame(rows, np.ones(n), 1.0, np.zeros(n), np.zeros(m))


class _LinearRelaxation:
    """Linear rows of the program, an epigraph column for its quadratic term, and tangent cuts."""

    def __init__(self, program: ConicProgram) -> None:
        self.program, n = program, len(program.c)
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
        self.A = sp.hstack([A, sp.csr_array((A.shape[0], 1))], format="csr")
        self.b, self.kinds, self.n, self.has_sides = np.concatenate([np.zeros(0), *rhs]), kinds, n, False
        if program.P is None:
            self._add_row(np.eye(1, n + 1, n)[0], 0.0)
            self._add_row(-np.eye(1, n + 1, n)[0], 0.0)
        else:
            self._quadratic_cut(np.zeros(n))

    def _add_row(self, row: Array, rhs: float) -> None:
        self.A = sp.vstack([self.A, sp.csr_array(row[None])], format="csr")
        self.b = np.append(self.b, rhs)
        self.kinds.append(Cone("nonneg", 1))

    def _quadratic_cut(self, x: Array) -> None:
        """Add the tangent of 1/2 x'Px at x as a lower bound on the epigraph column.

        Any tangent is one: at nine digits of x its slopes are 0 or large enough for HiGHS, which fails on tiny ones.
        """
        assert self.program.P is not None
        x = np.ldexp(np.round(np.ldexp(x, _TANGENT_BITS)), -_TANGENT_BITS)
        gradient = self.program.P @ x
        self._add_row(np.append(gradient, -1.0), 0.5 * float(x @ gradient))

    def solve(self, time_limit: float | None, max_nodes: int | None, at_most: float) -> Solution:
        """The least of the relaxation; a point of the program with the value `at_most` is known."""
        program = self.program
        linear = ConicProgram(
            c=np.append(program.c, 1.0),
            A=self.A,
            b=self.b,
            cones=tuple(self.kinds),
            offset=program.offset,
            integer=program.integer,
        )
        for frame in (_as_seen(linear), None):  # a search that fails, or says what cannot be, is made in another way
            solver = LinearSolver(linear, time_limit=time_limit, max_nodes=max_nodes, frame=frame)
            for search in (solver.solve, solver.solve_otherwise):
                answer = search()
                if answer.status is not Status.FAILED and not _contradicts(answer, at_most):
                    return answer
        return replace(answer, gap=np.inf)

    def support_at(self, solution: Solution) -> None:
        """Add the half-spaces that prove a convex solution optimal: y'(b - A x) >= 0 for every cone."""
        if not solution.status.has_solution or not np.isfinite(solution.y).all():
            return
        if self.program.P is not None:
            self._quadratic_cut(solution.x)
        for (block, b), start in zip(self.cones, self.cone_starts, strict=True):
            y = solution.y[start : start + len(b)]
            # Rounding may put y just outside its own cone, where the half-space would cut off the set.
            y = np.append(max(y[0], float(np.linalg.norm(y[1:]))), y[1:])
            if y[0] > 1e-9:
                self._add_row(np.append((y / y[0]) @ block, 0.0), float((y / y[0]) @ b))

    def bound_all_sides(self) -> bool:
        """Add tangents on both sides of 0 wherever the quadratic term rises, once: their slopes outweigh rounding."""
        if self.program.P is None or self.has_sides:
            return False
        self.has_sides = True
        for j in np.flatnonzero(self.program.P.diagonal() > 0).tolist():
            for side in (-1.0, 1.0):
                self._quadratic_cut(side * np.eye(1, self.n, j)[0])
        return True

    def cut_off(self, x: Array) -> bool:
        """Add a tangent for every cone and for the quadratic term that x violates."""
        added = False
        point, level = x[: self.n], x[self.n]
        if self.program.P is not None and 0.5 * point @ (self.program.P @ point) > level + 1e-10:
            self._quadratic_cut(point)
            added = True
        for block, b in self.cones:
            slack = b - block @ point
            norm = float(np.linalg.norm(slack[1:]))
            if norm > slack[0] + 1e-10:
                direction = np.append(-1.0, slack[1:] / norm)
                self._add_row(np.append(-(direction @ block), 0.0), float(-(direction @ b)))
                added = True
        return added
