r"""The second stage: a decision y that is taken once the outcome is known, compiled to arrays.

$$Q(z, u) = \kappa(z, u) + \min_y \{q^\top y : W y + s = h(u) - T(u)\,z,\ s \in K\}$$

$\kappa$ is biaffine, and so is the right-hand side; W and q depend on neither z nor u (fixed recourse). Where K is
linear and y continuous, Q is the maximum of $\kappa - \lambda^\top(h(u) - T(u) z)$ over the dual feasible $\lambda$:
every vertex is a biaffine piece. A piece is a lower bound of Q also if y is integer or K has other cones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import combinations
from math import comb
from operator import add
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.unary_operators import NegExpression

from polyhedge._support.tolerances import CANCELLATION, FEASIBLE, ROUNDING
from polyhedge._support.validation import Array, Indices
from polyhedge.problems.feasible_set import NotAffineError, compile_feasible_program
from polyhedge.problems.formula import substitute, substitute_in
from polyhedge.problems.layout import Layout
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, SolverError, Status, row_kinds
from polyhedge.solvers.solve import solve

if TYPE_CHECKING:
    from polyhedge.problems.written import Written

_MOST_BASES = 20_000
"""Sets of rows that are tried where all dual vertices are listed: some tenths of a second."""
_MOST_KEPT, _MOST_ENTRIES = 1000, 20_000_000
"""Bases that a second stage remembers, and entries of all their matrices: 160 MB."""
_PENALTY = 10.0
"""Deviations of the cost that a deviation of a violation counts as in plans."""
_BLOCK = 512
"""Rows whose right-hand sides are held against all bases together."""


@dataclass(frozen=True, eq=False)
class RecourseFormulas:
    """The second stage as it was written: its variables, its part of the cost, and its constraints."""

    variables: tuple[cp.Variable, ...]
    layout: Layout
    cost: cp.Expression
    constraints: tuple[cp.Constraint, ...]


class Answers(NamedTuple):
    """Costs Q (N,), infinite where no y is feasible; decisions y (N, n_y) and multipliers (N, m), NaN where unknown."""

    costs: Array
    y: Array
    multipliers: Array


@dataclass(frozen=True, eq=False)
class SecondStage:
    """The arrays of the second stage over z (p,) and the context w = [outcome, parameters] (k,).

    Attributes
    ----------
    program : c, A, cones and integers of y with auxiliary columns behind it; its right-hand side is not used.
    columns : (n_y,) of y in the program.
    sides : (m, 1 + p, 1 + k), right-hand side r is [1, z]' sides[r] [1, w].
    constant : (1 + p, 1 + k) of the biaffine part kappa.
    layout : the variables of y.
    moves : by how much a unit of each parameter (t) moves q (n, t) and W (m, n, t); None where none does.
    """

    program: ConicProgram
    columns: Indices
    sides: Array
    constant: Array
    layout: Layout
    moves: tuple[Array, Array] | None = None
    _bases: list[_Basis] = field(default_factory=list, init=False, repr=False)
    _lock: Any = field(default_factory=Lock, init=False, repr=False)

    @property
    def is_linear(self) -> bool:
        """Whether Q is the maximum of its dual vertices: a continuous linear program."""
        return self.program.is_linear and not len(self.program.integer)

    def at(self, values: Array) -> SecondStage:
        """The second stage at values of the parameters, the last entries of the context."""
        d = self.sides.shape[2] - len(values)

        def at(M: Array) -> Array:
            return np.concatenate([M[..., :1] + (M[..., d:] @ values)[..., None], M[..., 1:d]], axis=-1)

        program = self.program
        if self.moves is not None:
            costs, matrix = self.moves
            program = replace(
                program, c=program.c + costs @ values, A=sp.csr_array(program.A.toarray() + matrix @ values)
            )
        sides = at(self.sides)
        # What no longer moves with an outcome is not set again at a row.
        program = replace(program, b=sides[:, 0, 0])
        return SecondStage(program, self.columns, sides, at(self.constant), self.layout)

    def right_sides(self, z: Array, w: Array) -> Array:
        """Right-hand sides (N, m) at rows of z (N, p) and w (N, k)."""
        i, j, entries = self._entries
        one = np.ones((len(z), 1))
        return np.asarray((np.hstack([one, z])[:, i] * np.hstack([one, w])[:, j]) @ entries)

    @cached_property
    def _entries(self) -> tuple[Indices, Indices, Array]:
        """The pairs of an entry of [1, z] and one of [1, w] that matter, and what each adds to right-hand sides."""
        i, j = np.nonzero(self.sides.any(axis=0))
        return i, j, np.ascontiguousarray(self.sides[:, i, j].T)

    def constants(self, z: Array, w: Array) -> Array:
        """Kappa (N,)."""
        one = np.ones((len(z), 1))
        return np.einsum("ni,ij,nj->n", np.hstack([one, z]), self.constant, np.hstack([one, w]))

    def costs(self, z: Array, w: Array) -> Array:
        """Q (N,) at rows of z and w: infinite where no y is feasible, and never a lower bound."""
        return self.answers(z, w, with_decisions=False).costs

    def answers(self, z: Array, w: Array, *, with_decisions: bool = True) -> Answers:
        """The second stage of each row, solved exactly.

        Linear programs share bases: a basis that is feasible at a row and whose multipliers are, proves its optimum.
        With decisions every row is solved by itself, so that y is a function of the row.
        """
        m, n = len(self.sides), len(z)
        found = Answers(np.full(n, np.nan), np.full((n, self.layout.size), np.nan), np.full((n, m), np.nan))
        if self.moves is not None:
            values = w[:, -self.moves[0].shape[1] :]
            for rows in equal_rows(values):
                own = self.at(values[rows[0]])
                at = z[rows], w[rows, : -values.shape[1]]
                for part, answer in zip(found, own.answers(*at, with_decisions=with_decisions), strict=True):
                    part[rows] = answer
            return found
        sides = self.right_sides(z, w)
        is_there = np.isfinite(sides).all(axis=1)
        rest = np.flatnonzero(is_there)
        if self.is_linear and not with_decisions:
            rest = self._by_bases(sides, found, rest)
        elif len(rest):
            solver = self._solver()
            for i in rest.tolist():
                self._solve(solver, sides[i], found, i, cold=True)
        constants = np.full(len(z), np.nan)
        constants[is_there] = self.constants(z[is_there], w[is_there])
        return found._replace(costs=found.costs + constants)

    def _by_bases(self, sides: Array, found: Answers, rest: Indices) -> Indices:
        """Cost and multipliers of rows by the bases that are known, and by new ones where these do not suffice."""
        with self._lock:
            bases = list(self._bases)
        solver, tried = None, 0
        most = min(_MOST_KEPT, _MOST_ENTRIES // (self.program.A.shape[0] * self.program.A.shape[1] or 1))
        while len(rest):
            for part in np.array_split(rest, -(-len(rest) // _BLOCK)):
                _settle(bases, sides, found, part)
            rest = rest[np.isnan(found.costs[rest])]
            if not len(rest):
                break
            solver = self._solver() if solver is None else solver
            # One row after the other gives a basis that may serve the rows behind it: look again ever more rarely.
            tried = min(2 * tried + 1, 64)
            for i in rest[:tried].tolist():
                self._solve(solver, sides[i], found, i)
                if len(bases) < most and np.isfinite(found.costs[i]):
                    basis = self._basis(solver, found.multipliers[i])
                    bases += [] if basis is None else [basis]
            rest = rest[tried:]
        with self._lock:
            if len(bases) > len(self._bases):
                self._bases[:] = bases
        return rest

    def _solver(self) -> LinearSolver | None:
        program = self.program
        if not program.is_linear:
            return None
        return LinearSolver(replace(program, b=program.b.copy()), varying_rows=self._varying)

    @cached_property
    def _varying(self) -> Indices:
        """Rows whose right-hand side depends on z or w; the others may be bounds of y."""
        flat = self.sides.reshape(len(self.sides), -1)
        return np.flatnonzero(flat[:, 1:].any(axis=1))

    def _solve(self, solver: LinearSolver | None, side: Array, found: Answers, i: int, cold: bool = False) -> None:
        """Solve one row to its place; infinite without a feasible y."""
        if solver is None:
            solution = solve(replace(self.program, b=side))
        else:
            solver.change_rhs(self._varying, side[self._varying])
            solution = solver.solve_cold() if cold else solver.solve()
        if solution.status is Status.INFEASIBLE:
            found.costs[i] = np.inf
        elif solution.status.has_solution:
            found.costs[i], found.y[i] = solution.value, solution.x[self.columns]
            found.multipliers[i] = solution.y if len(solution.y) == len(side) else np.nan
        else:
            raise SolverError(f"A second stage could not be solved: {solution.status} {solution.detail}".rstrip())

    def _basis(self, solver: LinearSolver | None, multipliers: Array) -> _Basis | None:
        """The last basis of the solver; None where its rows do not determine y."""
        active = None if solver is None else solver.active_rows()
        A = self.program.A.toarray()
        if active is None or int(active.sum()) != A.shape[1] or not np.isfinite(multipliers).all():
            return None
        rows = np.flatnonzero(active)
        try:
            inverse = np.linalg.inv(A[rows])
        except np.linalg.LinAlgError:
            return None
        if np.abs(A[rows] @ inverse - np.eye(len(rows))).max(initial=0.0) > FEASIBLE:
            return None
        exact = np.zeros(len(A))
        exact[rows] = -inverse.T @ self.program.c
        is_limit = row_kinds(self.program.cones) == "nonneg"
        if (exact[is_limit] < -CANCELLATION * (1 + np.abs(exact).max())).any():
            return None
        exact[is_limit] = np.maximum(exact[is_limit], 0.0)
        return _Basis(exact, A @ inverse, rows, ~is_limit)

    def pieces_of(self, multipliers: Array) -> Array:
        """The biaffine functions (K, 1 + p, 1 + k), lower bounds of Q, that multipliers (K, m) stand for."""
        return np.asarray(self.constant - np.tensordot(multipliers, self.sides, (1, 0)))

    def relaxed(self) -> SecondStage:
        """The second stage without integers, whose multipliers bound that with integers from below."""
        if not len(self.program.integer):
            return self
        program = replace(self.program, integer=np.zeros(0, dtype=np.int64))
        return SecondStage(program, self.columns, self.sides, self.constant, self.layout)

    def cuts(self, z: Array, w: Array) -> tuple[Array, Array]:
        """Lower bounds of Q: the pieces (K, 1 + p, 1 + k) that are met at rows, and for each infeasible row a ray.

        A ray (R, 1 + p, 1 + k) is above 0 at its row and at most 0 wherever the second stage is feasible.
        """
        easy = self.relaxed()
        sides, rays = easy.right_sides(z, w), [np.zeros((0, *self.constant.shape))]
        found = easy.answers(z, w, with_decisions=not easy.is_linear)
        for i in np.flatnonzero(np.isposinf(found.costs)):
            ray = easy._ray(sides[i])
            if ray is not None:
                rays.append(-np.tensordot(ray[None], self.sides, (1, 0)))
        there = np.isfinite(found.multipliers).all(axis=1) & np.isfinite(found.costs)
        pieces = easy.pieces_of(found.multipliers[there])
        if easy.program.P is not None:  # at its optimum a convex quadratic lies above the dual by y'Py / 2 less
            short = found.costs[there] - np.einsum("ni,nij,nj->n", _with_one(z[there]), pieces, _with_one(w[there]))
            pieces[:, 0, 0] += short
        return distinct(pieces), distinct(np.concatenate(rays))

    def _ray(self, side: Array) -> Array | None:
        """Multipliers (m,) with A'r = 0 and r'side < 0, of length 1: they prove that no y is feasible."""
        A, m = self.program.A, len(side)
        if not self.program.is_linear:
            return None
        limits = row_kinds(self.program.cones) == "nonneg"
        size = np.abs(self.sides).reshape(m, -1).sum(axis=1) + abs(A).sum(axis=1)
        # The least sum of violations, each in units of its row.
        less, more = -sp.diags_array(size).tocsr(), sp.diags_array(size).tocsr()[:, ~limits]
        n = A.shape[1]
        extra = m + int((~limits).sum())
        whole = sp.csr_array(sp.block_array([[A, less, more], [None, -sp.eye_array(m), None]]))
        if more.shape[1]:
            rest = sp.hstack([sp.csr_array((more.shape[1], n + m)), -sp.eye_array(more.shape[1])])
            whole = sp.csr_array(sp.vstack([whole, rest]))
        program = ConicProgram(
            np.concatenate([np.zeros(n), np.ones(extra)]),
            whole,
            np.concatenate([side, np.zeros(extra)]),
            (*self.program.cones, Cone("nonneg", extra)),
        )
        solution = solve(program)
        return solution.y[:m] if solution.status.has_solution and solution.value > ROUNDING else None

    def is_bounded(self) -> bool:
        """Whether no direction of y lowers the cost for ever, with no constraint in its way."""
        free = replace(self.program, b=np.zeros(len(self.program.b)), integer=np.zeros(0, dtype=np.int64))
        return solve(free).status is not Status.UNBOUNDED

    @cached_property
    def dual(self) -> tuple[Array, Array] | None:
        """All vertices as pieces (K, 1 + p, 1 + k), and all extreme rays (R, 1 + p, 1 + k) of the dual.

        Q is the maximum of the pieces where no ray is above 0, and infinite elsewhere. None where they are too many to
        list.
        """
        A, kinds = self.program.A.toarray(), row_kinds(self.program.cones)
        (m, n), limits, fixed = A.shape, kinds == "nonneg", np.flatnonzero(kinds == "zero")
        if (
            self.moves is not None
            or not self.is_linear
            or comb(m, n) + comb(m, n + 1) > _MOST_BASES
            or np.linalg.matrix_rank(A) < n
        ):
            return None
        vertices = [np.zeros((0, m))]
        if np.linalg.matrix_rank(A[fixed]) < len(fixed):
            return None
        for rows, squares in _subsets(A, fixed, n):
            regular = np.abs(np.linalg.det(squares)) > FEASIBLE * np.abs(squares).max(axis=(1, 2)) ** n
            rows, squares = rows[regular], squares[regular]
            right = np.broadcast_to(-self.program.c[:, None], (len(rows), n, 1))
            vertices.append(_spread(rows, np.linalg.solve(np.swapaxes(squares, 1, 2), right)[..., 0], m))
        rays = [np.zeros((0, m))]
        for rows, tall in _subsets(A, np.zeros(0, dtype=np.int64), n + 1):
            _, sizes, axes = np.linalg.svd(np.swapaxes(tall, 1, 2))
            is_line = sizes[:, -1] > FEASIBLE * sizes[:, 0]
            line = _spread(rows[is_line], axes[is_line, -1], m)
            rays.extend([line, -line])
        feasible = []
        for some in (vertices, rays):
            every = np.concatenate(some)
            size = CANCELLATION * (1 + np.abs(every).max(axis=1, initial=0.0, keepdims=True))
            every = np.where(np.abs(every) <= size, 0.0, every)
            feasible.append(every[(every[:, limits] >= 0).all(axis=1)])
        if not len(feasible[0]):
            return None
        # What rounding leaves of a sum is no slope: the support may reach far.
        noise = CANCELLATION * np.tensordot(np.abs(feasible[1]), np.abs(self.sides), (1, 0))
        slopes = -np.tensordot(feasible[1], self.sides, (1, 0))
        return distinct(self.pieces_of(feasible[0])), distinct(np.where(np.abs(slopes) <= noise, 0.0, slopes))


@dataclass(frozen=True, eq=False)
class _Basis:
    """Multipliers (m,) that are dual feasible, and the map (m, n) from the right-hand sides of its rows to A y."""

    multipliers: Array
    reach: Array
    rows: Indices
    is_equation: Any

    def is_feasible(self, sides: Array, sizes: Array) -> Any:
        """Which right-hand sides (N, m) its y meets: the basis is optimal there."""
        slack = sides - sides[:, self.rows] @ self.reach.T
        off = np.where(self.is_equation, np.abs(slack), -slack)
        return (off <= CANCELLATION * sizes[:, None]).all(axis=1)


def _settle(bases: Sequence[_Basis], sides: Array, found: Answers, rows: Indices) -> None:
    """Costs and multipliers of the rows at which one of the bases with the highest dual value is feasible."""
    if not bases:
        return
    own = sides[rows]
    sizes = 1 + np.abs(own).max(axis=1)
    values = -own @ np.stack([basis.multipliers for basis in bases]).T
    best = values.max(axis=1)
    # Bases with the same multipliers have the same value, up to rounding.
    rounding = CANCELLATION * (np.abs(own) @ np.abs([basis.multipliers for basis in bases]).max(axis=0))
    tied = values >= (best - rounding)[:, None]
    is_open = np.ones(len(rows), dtype=bool)
    for k in np.flatnonzero(tied.any(axis=0)).tolist():
        some = np.flatnonzero(is_open & tied[:, k])
        some = some[bases[k].is_feasible(own[some], sizes[some])]
        is_open[some] = False
        found.costs[rows[some]], found.multipliers[rows[some]] = values[some, k], bases[k].multipliers


def equal_rows(values: Array) -> list[Indices]:
    """The rows of each distinct row of values (N, t)."""
    _, own = np.unique(values, axis=0, return_inverse=True)
    return [np.flatnonzero(own.ravel() == k) for k in range(int(own.max(initial=-1)) + 1)]


def _subsets(A: Array, fixed: Indices, size: int) -> Iterator[tuple[Indices, Array]]:
    """Sets of so many rows with the fixed ones among them, a thousand at a time, and these rows of A."""
    others = np.setdiff1d(np.arange(len(A)), fixed).tolist()
    if not 0 <= size - len(fixed) <= len(others):
        return
    sets = np.array([[*fixed, *some] for some in combinations(others, size - len(fixed))], dtype=np.int64)
    for rows in np.array_split(sets, -(-len(sets) // 1000)):
        yield rows, A[rows]


def _spread(rows: Indices, entries: Array, m: int) -> Array:
    """Vectors (S, m) with entries at rows (S, n), 0 elsewhere."""
    full = np.zeros((len(rows), m))
    np.put_along_axis(full, rows, entries, axis=1)
    return full


def distinct(pieces: Array) -> Array:
    """Each of the pieces once, up to rounding, in the order in which they come."""
    flat = pieces.reshape(len(pieces), pieces[0].size if len(pieces) else 0)
    unit = np.abs(flat).max(axis=0, initial=0.0)
    keys = np.round(flat / np.where(unit > 0, unit, 1.0), 9) + 0.0
    return np.asarray(pieces[np.sort(np.unique(keys, axis=0, return_index=True)[1])])


def values_at(pieces: Array, z: Array, w: Array) -> Array:
    """Biaffine functions (K, 1 + p, 1 + k) at matching rows of z and w: (N, K)."""
    z1, w1 = _with_one(z), _with_one(w)
    i, j = np.nonzero(pieces.any(axis=0))
    return np.asarray((z1[:, i] * w1[:, j]) @ pieces[:, i, j].T)


def penalised(pieces: Array, rays: Array, z: Array, w: Array) -> tuple[Array, int]:
    """The pieces, and behind them a usual one with a multiple of each ray, which makes infeasible rows expensive in
    plans; and how many of these there are.
    """
    if not len(pieces) or not len(rays):
        return pieces, 0
    high, violated = values_at(pieces, z, w), values_at(rays, z, w)
    deviation = float(high.max(axis=1).std()) or 1.0
    usual = np.maximum(violated.std(axis=0), 1e-9 * (1 + np.abs(violated).max(axis=0)))
    usual_piece = pieces[np.bincount(high.argmax(axis=1)).argmax()]
    return np.concatenate([pieces, usual_piece + (_PENALTY * deviation / usual)[:, None, None] * rays]), len(rays)


def _with_one(rows: Array) -> Array:
    return np.hstack([np.ones((len(rows), 1)), rows])


def compile_second_stage(written: Written, *, is_nonneg: bool) -> SecondStage:
    """The arrays of the second stage of formulas, `is_nonneg` if no outcome is negative.

    A ValueError where W or q would depend on the outcome; `NotAffineError` where a parameter does not enter linearly.
    """
    recourse = written.recourse
    assert recourse is not None
    p, d = written.layout.size, written.outcome.size
    u = cp.Parameter(d, nonneg=is_nonneg)
    leaves, known = {written.outcome.id: u}, [u, *(one.leaf for one in written.parameters)]
    cost = substitute(recourse.cost, leaves)
    rows = [substitute_in(row, leaves) for row in recourse.constraints]
    try:
        compiled = compile_feasible_program([*written.variables, *recourse.variables], cost, rows, parameters=known)
    except NotAffineError:
        if written.parameters:
            raise
        raise ValueError(
            "The outcome must enter cost and constraints of the second stage in an affine way: not squared, and "
            "not multiplied with a recourse variable. Write terms without recourse variables by themselves."
        ) from None
    program, slopes = compiled.program, compiled.slopes
    assert slopes is not None
    z, y = compiled.z_columns[:p], compiled.z_columns[p:]
    rest = np.setdiff1d(np.arange(len(program.c)), z)
    entries = sp.csr_array(program.A)
    row_of, column_of = np.repeat(np.arange(entries.shape[0]), np.diff(entries.indptr)), entries.indices
    moved = slopes.A.toarray()
    in_rest = ~np.isin(column_of, z)
    in_costs = slopes.c[rest].toarray()
    _refuse_moved(written, rest, y, in_costs[:, :d], moved[in_rest, :d], column_of[in_rest])
    if program.P is not None and abs(program.P[:, z]).sum():
        raise ValueError(
            "A square of the first decision stands in one term with a recourse variable. Write it as a term of its own."
        )
    sides = np.zeros((entries.shape[0], 1 + p, 1 + moved.shape[1]))
    sides[:, 0, 0], sides[:, 0, 1:] = program.b, slopes.b.toarray()
    place = np.full(len(program.c), -1)
    place[z] = 1 + np.arange(p)
    own = np.flatnonzero(~in_rest)
    sides[row_of[own], place[column_of[own]], 0] -= entries.data[own]
    sides[row_of[own], place[column_of[own]], 1:] -= moved[own]
    constant = np.zeros(sides.shape[1:])
    constant[0, 0], constant[0, 1:] = program.offset, slopes.offset
    constant[1:, 0], constant[1:, 1:] = program.c[z], slopes.c[z].toarray()
    W = sp.csr_array(entries[:, rest])
    W.eliminate_zeros()
    # Signs and bounds of the first decision are not the second stage's business: rows of z alone go.
    kinds = row_kinds(program.cones)
    is_linear = np.isin(kinds, ("zero", "nonneg"))
    is_moved = np.bincount(row_of[in_rest], np.abs(moved[in_rest, d:]).sum(axis=1), len(kinds)) > 0
    is_empty = (np.diff(W.indptr) == 0) & ~is_moved
    kept = ~(is_linear & is_empty & ~sides[:, :, 1:].any(axis=(1, 2)))
    cones, start = list[Cone](), 0
    for cone in program.cones:
        n = cone.n_rows
        size = int(kept[start : start + n].sum()) if cone.kind in ("zero", "nonneg") else cone.size
        cones += [replace(cone, size=size)] if size else []
        start += n
    position = np.full(len(program.c), -1)
    position[rest] = np.arange(len(rest))
    integer = position[program.integer]
    P = program.P
    inner = ConicProgram(
        program.c[rest],
        sp.csr_array(W[np.flatnonzero(kept)]),
        sides[kept, 0, 0],
        tuple(cones),
        None if P is None else sp.csr_array(P[rest][:, rest]),
        integer=integer[integer >= 0],
    )
    moves = None
    if in_costs.any() or moved[in_rest].any():
        matrix = np.zeros((entries.shape[0], len(rest), moved.shape[1] - d))
        inside = np.flatnonzero(in_rest)
        matrix[row_of[inside], position[column_of[inside]]] = moved[inside, d:]
        moves = in_costs[:, d:], matrix[kept]
    return SecondStage(inner, position[y], sides[kept], constant, recourse.layout, moves)


def _refuse_moved(written: Written, rest: Indices, y: Indices, costs: Array, entries: Array, columns: Indices) -> None:
    """Raise if an outcome multiplies a recourse variable: the dual of Q would move with it."""
    recourse = written.recourse
    assert recourse is not None
    for owners, moved in ((rest, costs), (columns, entries)):
        for row, k in zip(*np.nonzero(moved), strict=True):
            name = "a term of the recourse variables"
            where = np.flatnonzero(y == owners[row])
            if len(where):
                variable = next(v for v, part in enumerate(recourse.layout.slices) if part.stop > where[0])
                name = f"the recourse variable {recourse.layout.names[variable]}"
            raise ValueError(
                f"The outcome u[{k}] multiplies {name}, so that the second stage has no fixed costs and coefficients. "
                "Multiply by a number or a parameter: outcomes may stand in limits, or multiply the first decision."
            )


def split_cost(cost: cp.Expression, chosen_later: set[int]) -> tuple[cp.Expression, cp.Expression]:
    """The terms of a cost without variables that are chosen later (by their id), and the terms with them."""
    sides: tuple[list[cp.Expression], list[cp.Expression]] = [], []
    for term in _terms(cost):
        sides[bool(chosen_later & {v.id for v in term.variables()})].append(term)
    early, late = (reduce(add, terms) if terms else cp.Constant(0.0) for terms in sides)
    return early, late


def _terms(node: cp.Expression) -> list[cp.Expression]:
    if isinstance(node, AddExpression):
        return [term for argument in node.args for term in _terms(argument)]
    is_scalar = isinstance(node, (cp.reshape, NegExpression)) and node.size == 1
    if is_scalar and isinstance(node.args[0], (AddExpression, cp.reshape, NegExpression)) and node.args[0].size == 1:
        terms = _terms(node.args[0])
        return (
            [-term for term in terms]
            if isinstance(node, NegExpression)
            else [cp.reshape(t, (), order="C") for t in terms]
        )
    return [node]
