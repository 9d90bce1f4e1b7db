r"""A convex program as arrays, its units, and what a solver found out about it.

The tolerances of solvers are absolute. So rows, columns and costs are multiplied by powers of two, which bring all
numbers near 1; numbers that are large only because the origin lies far away need another origin, see `Scaling.around`.

A square under a product, $x^\top x \le s\,t$ with $s, t \ge 0$, is a cone of the kind `rotated`. CVXPY writes
$x^2 \le t$ as the second-order cone $(1 + t, 1 - t, 2 x)$, in which no scaling of rows separates a small t from
the 1. The sum and the difference of the first two rows are the sides of a product, each with a unit of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg

from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Array, Indices, Mask

LIGHT = 0.01
"""Weight of costs against rows: they tell the size of a column that no row tells."""
_NEITHER = 0.5 - 1 / np.pi
"""Added before rounding, so that means of integers are never half-way between two powers."""
_FEW = 256
"""Unknowns up to which a dense solve is the quickest."""
_RIDGE = 1e-10
"""Regularises unknowns that no number determines."""
_TINY, _MOST_ROUNDS = -20.0, 4
"""Binary logarithm below which a number says nothing of units, and the rounds in which such numbers are found."""
NOISE = 2.0**-26
"""Share of its terms, or of a unit, below which a slack or a reduced cost is 0 as far as a solver can tell."""
_NO_LARGER = 2.0**10
"""Times the unit of costs up to which prices are believed: right ones make costs smaller, or spread them over rows."""
_PULL = 1e-4
"""Weight of the former units, which decide where no number does."""


class SolverError(RuntimeError, ValueError):
    """A solver has no answer to a question that has one, mostly because numbers are too far apart in size.

    It is a ValueError too, because the numbers of the caller cause it.
    """


class Status(StrEnum):
    """How a solve ended; each value is the message a user sees.

    Examples
    --------
    >>> Status.OPTIMAL == "optimal", Status.INFEASIBLE.has_solution
    (True, False)
    """

    OPTIMAL = "optimal"
    FINISHED = "finished: all steps were taken, without a proof that nothing is better"
    STOPPED_EARLY = "stopped early: the best point found is returned with its gap"
    INFEASIBLE = "infeasible: no decision satisfies the constraints"
    UNBOUNDED = "unbounded: the cost can be lowered without limit"
    UNBOUNDED_SET = "unbounded set: the worst-case cost is infinite for every decision"
    EMPTY_SET = "empty set: the uncertainty set and the known support of the outcome do not meet"
    REFUSED = "refused: no policy keeps what would be promised"
    NOT_DECIDED = "not decided: a value that the row needs is missing or cannot be used"
    FAILED = "failed: the solver could not solve the problem"

    @property
    def has_solution(self) -> bool:
        """Whether a feasible point comes with this status."""
        return self in (Status.OPTIMAL, Status.FINISHED, Status.STOPPED_EARLY)


def status_at(gap: float, size: float, tolerance: float = OPTIMAL) -> Status:
    """OPTIMAL if the gap is within the tolerance, as a share of `size`; the only place that says so."""
    return Status.OPTIMAL if np.isfinite(gap) and gap <= tolerance * size else Status.STOPPED_EARLY


@dataclass(frozen=True)
class Cone:
    """A block of consecutive rows and the cone their slack lies in.

    Kinds: `zero` (equations), `nonneg` (inequalities), `soc` (first entry bounds the norm of the
    others), `rotated` (the product of the first two, which are not negative, bounds the square of that norm), and, for
    feasible sets a user writes, `exp`, `psd` (order in `size`) and `pow`.
    """

    kind: str
    size: int
    exponent: float = 0.5

    @property
    def n_rows(self) -> int:
        """Rows that the block occupies (a `psd` block stores a triangle)."""
        return self.size * (self.size + 1) // 2 if self.kind == "psd" else self.size


def row_kinds(cones: Iterable[Cone]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """The kind of cone that each row of a stack belongs to."""
    return np.array([kind for cone in cones for kind in [cone.kind] * cone.n_rows], dtype="<U7")


def as_slice(rows: Indices) -> slice | Indices:
    """Rows that follow each other as a slice, which copies nothing where it is taken; others as they are."""
    first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
    is_run = last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return slice(first, last + 1) if is_run else rows


@dataclass(frozen=True)
class ConicForm:
    r"""A convex set by linear maps and cones: $\{e : \exists y,\ g - G\,[e; y] \in K\}$.

    `G` has `n_outcomes` columns for e, then one for each auxiliary y.
    """

    G: sp.csr_array
    g: Array
    cones: tuple[Cone, ...]


@dataclass(frozen=True)
class ConicProgram:
    r"""Minimise $\tfrac12 x^\top P x + c^\top x + \text{offset}$ subject to $b - A x \in K$, $x_I$ integer."""

    c: Array
    A: sp.csr_array
    b: Array
    cones: tuple[Cone, ...]
    P: sp.csr_array | None = None
    offset: float = 0.0
    integer: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def value(self, x: Array) -> float:
        """The objective at a point."""
        return float((self.c if self.P is None else self.c + 0.5 * (self.P @ x)) @ x) + self.offset

    @property
    def is_linear(self) -> bool:
        """Whether objective and cones are linear, so that a simplex solver applies."""
        return self.P is None and all(cone.kind in ("zero", "nonneg") for cone in self.cones)


@dataclass(frozen=True)
class Solution:
    """A point with its evidence: `y` are the duals of the rows, `gap` is upper minus lower bound.

    `size` is that of the costs at stake: OPTIMAL says that the gap is at most `OPTIMAL` times as large. `n_nodes`
    counts the nodes of a mixed-integer search, `broken` is by how much a limit is broken, as a share of its terms.
    """

    x: Array
    y: Array
    value: float
    status: Status
    gap: float = 0.0
    detail: str = ""
    size: float = np.nan
    broken: float = 0.0
    n_nodes: int = 0


@dataclass(frozen=True)
class Scaling:
    r"""The units and the origin of a program: x = origin + columns x', row i times rows[i], costs in terms of `cost`.

    `prices` (one for each row, 0 on inequalities) times the equations have been added to the costs, which moves all
    values by a constant. `first_cost` is what costs were measured in before any were.
    """

    rows: Array
    columns: Array
    cost: float
    origin: Array
    prices: Array
    first_cost: float = 0.0

    @classmethod
    def of(cls, program: ConicProgram) -> Scaling:
        """The units of a program around 0."""
        rows, columns, cost = balance(program)
        return cls(rows, columns, cost, np.zeros(len(program.c)), np.zeros(len(program.b)), cost)

    def around(self, program: ConicProgram, x: Array, y: Array) -> Scaling:
        """The scaling with its origin at a point near the optimum, found in this one, and prices as found there.

        What is left of limits and costs is small, and tells how finely the rest should be measured. Where the point
        or its multipliers are no numbers, or make costs larger by far, the scaling stays as it is.
        """
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return self
        origin = x.copy()
        origin[program.integer] = np.round(x[program.integer])
        prices = np.where(row_kinds(program.cones) == "zero", y, 0.0)
        moved, size = shifted(program, origin, prices), abs(program.A)
        b_noise = np.maximum(np.abs(program.b) + size @ np.abs(origin), 1 / self.rows)
        c_noise = np.maximum(np.abs(program.c) + size.T @ np.abs(prices), self.cost / self.columns)
        if program.P is not None:
            c_noise += abs(program.P) @ np.abs(origin)
        remainder = replace(
            moved,
            b=np.where(np.abs(moved.b) > NOISE * b_noise, moved.b, 0.0),
            c=np.where(np.abs(moved.c) > NOISE * c_noise, moved.c, 0.0),
        )
        scaling = Scaling(*balance(remainder, self), origin, prices, self.first_cost)
        return scaling if scaling.cost <= _NO_LARGER * max(self.cost, self.first_cost) else self

    def apply(self, program: ConicProgram) -> ConicProgram:
        """The program in these units, without its offset."""
        moved = shifted(program, self.origin, self.prices)
        return replace(
            moved,
            c=self.columns * moved.c / self.cost,
            A=scaled(moved.A, self.rows, self.columns),
            b=self.rows * moved.b,
            P=None if moved.P is None else scaled(moved.P, self.columns / self.cost, self.columns),
            offset=0.0,
        )

    def invert(self, solution: Solution) -> Solution:
        """Point and multipliers of a solution of the program in these units."""
        return replace(
            solution, x=self.origin + self.columns * solution.x, y=self.prices + self.cost * self.rows * solution.y
        )

    def is_finer_than(self, other: Scaling, by: float = 128.0) -> bool:
        """Whether some size is measured this many times finer than by another scaling."""
        return bool((other.columns / self.columns).max(initial=1.0) >= by or other.cost / self.cost >= by)


def scaled(matrix: sp.csr_array, rows: Array, columns: Array) -> sp.csr_array:
    """A matrix with its rows and columns multiplied; stored zeros stay."""
    data = matrix.data * np.repeat(rows, np.diff(matrix.indptr)) * columns[matrix.indices]
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def power_of_two(size: float) -> float:
    """The power of two next below a size (within a factor of 2); 1 for 0."""
    return float(2.0 ** (np.frexp(size)[1] - 1)) if size else 1.0


def shifted(program: ConicProgram, origin: Array, prices: Array) -> ConicProgram:
    """The program in x - origin, with prices times its equations added to the costs; the offset is left alone."""
    c = program.c + program.A.T @ prices
    if program.P is not None:
        c = c + program.P @ origin
    return replace(program, c=c, b=program.b - program.A @ origin)


def balance(program: ConicProgram, before: Scaling | None = None) -> tuple[Array, Array, float]:
    """Powers of two for rows and columns, and the unit of costs; the rows of a cone keep their proportions.

    What the program says nothing of stays as it was before.
    """
    group, turn, sign = _groups(program.cones)
    n_groups, n = int(max(group.max(initial=-1), turn.max(initial=-1))) + 1, len(program.c)
    size = n_groups + n + 1
    turn = np.where(sign == 0, size, turn)
    equations = Equations(size)
    row, column = places(program.A)
    equations.add(program.A.data, 1.0, group[row], n_groups + column, turn[row], sign=sign[row])
    equations.add(program.b, 1.0, group, np.full(len(group), size), turn, sign=sign)
    columns = n_groups + np.arange(n)
    equations.add(program.c, LIGHT, columns, np.full(n, size - 1))
    if program.P is not None:
        row, column = places(program.P)
        equations.add(program.P.data, LIGHT, n_groups + row, n_groups + column, np.full(len(row), size - 1))
    if before is not None:
        units, upper = np.ones(n_groups), sign > 0
        units[group[sign == 0]] = before.rows[sign == 0]
        units[turn[upper]] = before.rows[upper] / units[group[upper]]
        equations.add(1 / np.concatenate([units, before.columns, [1 / before.cost]]), _PULL, np.arange(size))
    exponents = equations.solve(fixed=n_groups + program.integer)
    exponents = np.append(exponents, 0.0)
    powers = 2.0 ** np.floor(exponents + 0.5 + _NEITHER)
    return powers[group] * powers[turn] ** sign, powers[n_groups:-2], float(1 / powers[-2])


def places(matrix: sp.csr_array) -> tuple[Indices, Indices]:
    """Row and column of each stored entry, without the checks of a matrix in another form."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices


def _groups(cones: Iterable[Cone]) -> tuple[Indices, Indices, Array]:
    """The number of the scale of each row: one for each linear row, one for each other cone.

    The sides of a product have a second one, by which one is multiplied and the other divided: its number and, as 1 or
    -1, which of both; 0 for all other rows.
    """
    groups, turns, signs = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    start = 0
    for cone in cones:
        own = cone.kind in ("zero", "nonneg")
        is_product = cone.kind == "rotated"
        groups.append(start + (np.arange(cone.n_rows) if own else np.zeros(cone.n_rows, dtype=np.int64)))
        turns.append(np.full(cone.n_rows, start + 1 if is_product else 0))
        signs.append(np.concatenate([[1.0, -1.0], np.zeros(cone.n_rows - 2)]) if is_product else np.zeros(cone.n_rows))
        start += cone.n_rows if own else 1 + is_product
    return np.concatenate(groups), np.concatenate(turns), np.concatenate(signs)


def cone_groups(cones: Iterable[Cone]) -> Indices:
    """For each row the number of its cone; every linear row counts as a cone of its own."""
    sizes = [n for cone in cones for n in ([1] * cone.size if cone.kind in ("zero", "nonneg") else [cone.n_rows])]
    return np.repeat(np.arange(len(sizes)), sizes)


class Equations:
    """Least squares: for every number that is not 0, its binary logarithm plus up to three unknowns should vanish.

    The third may be subtracted instead.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.logs, self.weights, self.signs = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
        self.unknowns = [np.zeros((0, 3), dtype=np.int64)]

    def add(self, numbers: Array, weight: float, *unknowns: Indices, sign: Array | None = None) -> None:
        """One equation for each number i: entry i of each of the `unknowns` is in it, the third with the `sign`."""
        there = (numbers != 0) & np.isfinite(numbers)
        self.logs.append(np.log2(np.abs(numbers[there])))
        self.weights.append(np.full(len(self.logs[-1]), weight))
        # The unknown behind the last one is 0.
        filled = [*unknowns, *[np.full(len(numbers), self.size)] * (3 - len(unknowns))]
        self.unknowns.append(np.stack(filled, axis=1)[there])
        self.signs.append(np.ones(len(self.logs[-1])) if sign is None else np.where(sign < 0, -1.0, 1.0)[there])

    def solve(self, fixed: Indices, n_refinements: int = 0) -> Array:
        """The unknowns; 0 where they are fixed or undetermined.

        Numbers that are tiny against the others in the units found, such as rounding errors, are left out. What the
        regularisation leaves open goes with each refinement.
        """
        logs, weights, unknowns = np.concatenate(self.logs), np.concatenate(self.weights), np.vstack(self.unknowns)
        signs = np.ones(unknowns.shape)
        signs[:, 2] = np.concatenate(self.signs)
        free = np.ones(self.size + 1, dtype=bool)
        free[fixed] = free[self.size] = False
        kept = np.ones(len(logs), dtype=bool)
        for _ in range(_MOST_ROUNDS):
            exponents = self._fitted(logs[kept], weights[kept], unknowns[kept], signs[kept], free)
            tiny = kept & (weights > _PULL) & (logs + (signs * exponents[unknowns]).sum(axis=1) < _TINY)
            if not tiny.any():
                break
            kept &= ~tiny
        for _ in range(n_refinements):
            rest = (logs + (signs * exponents[unknowns]).sum(axis=1))[kept]
            exponents += self._fitted(rest, weights[kept], unknowns[kept], signs[kept], free)
        return exponents[: self.size]

    def _fitted(self, logs: Array, weights: Array, unknowns: Indices, signs: Array, free: Mask) -> Array:
        size, exponents = self.size + 1, np.zeros(self.size + 1)
        rhs = -np.bincount(unknowns.ravel(), signs.ravel() * np.repeat(weights * logs, 3), size)
        first, second = np.repeat(unknowns, 3, axis=1).ravel(), np.tile(unknowns, 3).ravel()
        each = np.repeat(weights, 9) * np.repeat(signs, 3, axis=1).ravel() * np.tile(signs, 3).ravel()
        if size <= _FEW:
            dense = np.bincount(first * size + second, each, size**2).reshape(size, size)[np.ix_(free, free)]
            exponents[free] = np.linalg.solve(dense + _RIDGE * np.eye(len(dense)), rhs[free])
            return exponents
        matrix = sp.csr_array((each, (first, second)), shape=(size, size))[free][:, free]
        matrix = matrix + _RIDGE * sp.eye_array(matrix.shape[0])
        jacobi = sp.diags_array(1 / matrix.diagonal())
        exponents[free] = cg(matrix, rhs[free], rtol=1e-12, maxiter=1000, M=jacobi)[0]
        return exponents


def products(A: sp.csr_array, b: Array, cones: Sequence[Cone]) -> list[int]:
    """The second-order cones, by their places in the list, whose first two rows are a sum and a difference."""
    places, start = [], 0
    for k, cone in enumerate(cones):
        if cone.kind == "soc" and cone.size > 2:
            total, difference = (np.append(A[[start + i]].toarray().ravel(), b[start + i]) for i in (0, 1))
            is_there = total != 0
            if ((total == difference) & is_there).any() and ((total == -difference) & is_there).any():
                places.append(k)
        start += cone.n_rows
    return places


def rotation(cones: Sequence[Cone], chosen: Iterable[int], factor: float = 1.0) -> sp.csr_array:
    """The map of rows that replaces the first two of each chosen cone by their sum and difference, times a factor."""
    size, starts = sum(cone.n_rows for cone in cones), np.cumsum([0, *(cone.n_rows for cone in cones)])
    first = np.array([starts[k] for k in chosen], dtype=np.int64)
    others = np.setdiff1d(np.arange(size), np.concatenate([first, first + 1]))
    rows = np.concatenate([others, first, first, first + 1, first + 1])
    columns = np.concatenate([others, first, first + 1, first, first + 1])
    one = np.full(len(first), factor)
    entries = np.concatenate([np.ones(len(others)), one, one, one, -one])
    return sp.csr_array((entries, (rows, columns)), shape=(size, size))


def as_rotated(cones: Sequence[Cone], chosen: Iterable[int]) -> tuple[Cone, ...]:
    """The cones with other names for the chosen ones."""
    among = set(chosen)
    return tuple(replace(cone, kind="rotated") if k in among else cone for k, cone in enumerate(cones))


class SecondOrder:
    """Programs with these cones as solvers take them: with second-order cones instead of products."""

    def __init__(self, cones: Sequence[Cone]) -> None:
        chosen = [k for k, cone in enumerate(cones) if cone.kind == "rotated"]
        self.turn = rotation(cones, chosen, 0.5) if chosen else None
        self.cones = tuple(replace(cone, kind="soc") if cone.kind == "rotated" else cone for cone in cones)

    def matrix(self, A: sp.csr_array) -> sp.csr_array:
        """The rows of a matrix; the pattern of stored entries follows from that of A alone, zeros stay in it."""
        if self.turn is None:
            return A
        # A product of sparse matrices leaves out what comes to 0, where another parameter's entry may not be 0.
        stored = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
        turned = sp.csr_array(abs(self.turn) @ stored)
        turned.sort_indices()
        rows = np.repeat(np.arange(turned.shape[0]), np.diff(turned.indptr))
        entries = np.asarray(sp.csr_array(self.turn @ A)[rows, turned.indices]).ravel()
        return sp.csr_array((entries, turned.indices, turned.indptr), shape=turned.shape)

    def limits(self, b: Array) -> Array:
        """Right-hand sides."""
        return b if self.turn is None else np.asarray(self.turn @ b)

    def multipliers(self, y: Array) -> Array:
        """Multipliers of the rows as they were."""
        return y if self.turn is None else np.asarray(self.turn.T @ y)

    def of(self, program: ConicProgram) -> ConicProgram:
        """The whole program."""
        if self.turn is None:
            return program
        return replace(program, A=self.matrix(program.A), b=self.limits(program.b), cones=self.cones)
