r"""Complementary pairs of a parametric linear or quadratic program, and pivots for many contexts at once.

Every inequality has a slack s and a multiplier y, and one of each pair is zero at an optimum. With an active set W
chosen as base, the optimality conditions of $\min \tfrac12 x^\top P x + c(f)^\top x$, $A x + s = b(f)$
read $w = T v + q(f)$: w are the slacks off W and the multipliers on W, v their partners, which vanish at the base.
All else follows linearly from v, so a solver only has to find which pairs change sides.

Each context has a tableau of its own, $w = M v + q$, and all take their step together. Where only one side of a linear
program moves with the context (its right-hand sides or its costs), the other side keeps its sign and the
dual simplex method applies. Else single pairs are exchanged by principal pivots, the most negative first.
Neither is trusted: `prove` checks what they find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from polyhedge._support.tolerances import PIVOT
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.engine.parametric import ParametricProgram
from polyhedge.solvers.program import Scaling, as_slice, row_kinds

_ROUNDING, _LARGEST = 1e-13, 1e8
"""In units of the program's scaling: entries that are rounding, and those of a base that is nearly singular."""


@dataclass(frozen=True)
class Pairs:
    r"""The system w = T v + q [1; f] and what follows from v: x = X0 [1; f] + X1 v, y = Y0 [1; f] + Y1 v.

    Slacks and multipliers are measured in units of their usual size. `at_base` tells which inequalities are
    active at the base, so that the multiplier is the pair's w.
    """

    T: Array
    q: Array
    X0: Array
    X1: Array
    Y0: Array
    Y1: Array
    at_base: Mask


@dataclass(frozen=True)
class DenseProgram:
    """A parametric program near one prediction as dense arrays, in the units of a scaling.

    Each row of C, B and offset holds [there, slopes in f]; f counts from that prediction. All but the offset, which
    makes the value, are in the scaling's units.
    """

    A: Array
    B: Array
    C: Array
    P: Array | None
    offset: Array
    inequalities: Indices
    scaling: Scaling

    @classmethod
    def of(cls, parametric: ParametricProgram, center: Array, scaling: Scaling) -> DenseProgram:
        """The program's arrays around a prediction; its matrix must not depend on it."""
        program = parametric.at(center)
        inside, x, prices = scaling.apply(program), scaling.origin, scaling.prices
        cost_slope, rhs_slope = parametric.cost_slope.toarray(), parametric.rhs_slope.toarray()
        bend = 0.0 if program.P is None else 0.5 * float(x @ (program.P @ x))
        there = program.offset + bend + float(program.c @ x) + float(prices @ (program.A @ x - program.b))
        kinds = row_kinds(program.cones)
        return cls(
            A=inside.A.toarray(),
            B=np.column_stack([inside.b, scaling.rows[:, None] * rhs_slope]),
            C=np.column_stack([inside.c, scaling.columns[:, None] * cost_slope / scaling.cost]),
            P=None if inside.P is None else inside.P.toarray(),
            offset=np.append(there, parametric.offset_slope + cost_slope.T @ x - rhs_slope.T @ prices),
            inequalities=np.flatnonzero(kinds == "nonneg"),
            scaling=scaling,
        )

    def points(self, x: Array) -> Array:
        """Points (N, n) of the program itself."""
        return np.asarray(self.scaling.origin + self.scaling.columns * x)

    def maps(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Point X [1; f] and multipliers Y [1; f] as maps for the program itself."""
        scaling = self.scaling
        X, Y = scaling.columns[:, None] * X, scaling.cost * scaling.rows[:, None] * Y
        X[:, 0] += scaling.origin
        Y[:, 0] += scaling.prices
        return X, Y

    def multipliers(self, y: Array) -> Array:
        """Multipliers (N, n_rows) of the program itself."""
        return np.asarray(self.scaling.prices + self.scaling.cost * self.scaling.rows * y)


def independent_rows(program: DenseProgram, wanted: Indices) -> Mask:
    """All equations, then the wanted inequalities in their order, each only if independent of those before it.

    At a degenerate point a basis may do without an equation, or more inequalities may be tight than there are
    dimensions; a base must have the one and not the other.
    """
    chosen = np.zeros(len(program.A), dtype=bool)
    directions = np.zeros((0, program.A.shape[1]))
    for row in [*np.flatnonzero(_equations(program.A, program.inequalities)), *wanted]:
        rest = program.A[row] / np.linalg.norm(program.A[row])
        for _ in range(2):  # once more for accuracy
            rest = rest - (directions @ rest) @ directions
        if np.linalg.norm(rest) > PIVOT:
            chosen[row] = True
            directions = np.vstack([directions, rest / np.linalg.norm(rest)])
    return chosen


def complementary_pairs(program: DenseProgram, active: Mask, reach: Array) -> Pairs | None:
    """The pairs with this base (a mask of rows); None where its equations have no unique solution.

    `reach` (1 + d) is the usual size of [1; f].
    """
    A, n = program.A, program.A.shape[1]
    rows, W = program.inequalities, np.flatnonzero(active)
    P = np.zeros((n, n)) if program.P is None else program.P
    at_base = active[rows]
    forces = np.zeros((n + len(W), len(rows)))
    forces[:n, ~at_base] = -A[rows[~at_base]].T
    forces[n + np.searchsorted(W, rows[at_base]), np.flatnonzero(at_base)] = -1.0
    system = np.block([[P, A[W].T], [A[W], np.zeros((len(W), len(W)))]])
    try:
        solution = np.linalg.solve(system, np.hstack([np.vstack([-program.C, program.B[W]]), forces]))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(solution).all() or np.abs(solution).max() > _LARGEST:
        return None
    X0, X1 = np.hsplit(solution[:n], [program.C.shape[1]])
    Y0, Y1 = np.zeros((len(A), X0.shape[1])), np.zeros((len(A), len(rows)))
    Y0[W], Y1[W] = np.hsplit(solution[n:], [program.C.shape[1]])
    Y1[rows[~at_base], np.flatnonzero(~at_base)] = 1.0
    T = np.where(at_base[:, None], Y1[rows], -A[rows] @ X1)
    T[np.abs(T) < _ROUNDING * np.abs(T).max()] = 0.0
    q = np.where(at_base[:, None], Y0[rows], program.B[rows] - A[rows] @ X0)
    sizes = np.abs(q) @ reach
    y_size, s_size = (float(sizes[side].max(initial=0.0)) or 1.0 for side in (at_base, ~at_base))
    w_size, v_size = np.where(at_base, y_size, s_size), np.where(at_base, s_size, y_size)
    return Pairs(T * v_size / w_size[:, None], q / w_size[:, None], X0, X1 * v_size, Y0, Y1 * v_size, at_base)


@dataclass(frozen=True)
class Proven:
    """Points x and multipliers y of N contexts, their values, gaps, and which are proven optimal."""

    x: Array
    y: Array
    value: Array
    gap: Array
    is_optimal: Mask


def prove(program: DenseProgram, pairs: Pairs, F: Array, v: Array, tolerance: float) -> Proven:
    """Point and multipliers at the pairs' values v (N, n_pairs), checked against the program's own numbers.

    Feasibility of both and the gap between primal and dual value must hold to the tolerance, relative to the size
    of the numbers involved; whatever route led to v.
    """
    A, rows = program.A, as_slice(program.inequalities)
    x, y = F @ pairs.X0.T + v @ pairs.X1.T, F @ pairs.Y0.T + v @ pairs.Y1.T
    c, b = F @ program.C.T, F @ program.B.T
    curved = 0.0 if program.P is None else x @ program.P
    slack = b - x @ A.T
    force = curved + c + y @ A
    bend = 0.5 * (curved * x).sum(axis=1) if program.P is not None else np.zeros(len(F))
    value = bend + (c * x).sum(axis=1)
    gap = value + bend + (b * y).sum(axis=1)
    x_size, y_size = 1 + np.abs(x).max(axis=1), 1 + np.abs(y).max(axis=1)
    wrong = np.abs(slack).max(axis=1, where=_equations(A, program.inequalities), initial=0.0) / x_size
    wrong = np.maximum(wrong, -slack[:, rows].min(axis=1, initial=0.0) / x_size)
    wrong = np.maximum(wrong, -y[:, rows].min(axis=1, initial=0.0) / y_size)
    wrong = np.maximum(wrong, np.abs(force).max(axis=1, initial=0.0) / y_size)
    wrong = np.maximum(wrong, np.abs(gap) / (1 + np.abs(value)))
    unit = program.scaling.cost
    value, gap = unit * value + F @ program.offset, unit * np.abs(gap)
    return Proven(program.points(x), program.multipliers(y), value, gap, wrong <= tolerance)


def _equations(A: Array, inequalities: Indices) -> Mask:
    mask = np.ones(len(A), dtype=bool)
    mask[inequalities] = False
    return mask


_ZERO, _NEGATIVE = 1e-12, 1e-10
"""Sizes of a pivot that is none, and of a basic quantity that counts as negative."""
_TIE = 1e-6
"""Weight of the random prices, which order regions whose bounds tie."""
_GREEDY = 2
"""Pivots in multiples of the number of pairs after which the least number is exchanged first, which cannot cycle."""
_BATCH = 2**18
"""Numbers in the tableaus of one batch: they should stay in the processor's cache."""
_MOST_PIVOTS = 20
"""Pivots after which a context is given up, in multiples of the number of basic quantities."""


class PivotRule(Protocol):
    """A kind of tableau (its rows, then columns, then [1; f]) and how the next pivot is chosen."""

    tableau: Array
    n_rows: int
    n_columns: int
    n_pairs: int

    def sides(self, flipped: Indices) -> tuple[Indices, Indices]:
        """Rows and columns of the base tableau that change places when these pairs do."""
        ...

    def labels(self) -> tuple[Indices, Indices]:
        """The pair of each row and of each column at the base."""
        ...

    def choose(self, M: Array, rows: Indices, pending: Indices, age: Indices) -> tuple[Indices, Indices, Mask]:
        """Row and column of the next pivot of each tableau, and which tableaus have one.

        `rows` are the labels of the rows, `pending` what is left of an exchange, `age` the pivots made so far.
        """
        ...

    def bound(self, tableau: Array) -> Array | None:
        """The optimal value within a region as a function of [1; f] up to a common one; None if it is not affine."""
        ...

    def values(self, M: Array, rows: Indices, columns: Indices) -> tuple[Array, Mask]:
        """The quantities v of the pairs (n, n_pairs), and which pairs have changed sides."""
        ...


class DualSimplex:
    """Rows: quantities that move with f. Columns: their partners' side, whose prices stay non-negative.

    The prices, and small random ones that break ties between them, are two more rows of the tableau.
    """

    def __init__(self, pairs: Pairs, moving: Mask) -> None:
        self.row_pairs, self.column_pairs = np.flatnonzero(moving), np.flatnonzero(~moving)
        self.n_rows, self.n_columns, self.n_pairs = len(self.row_pairs), len(self.column_pairs), len(moving)
        self.moving = moving
        ties = np.random.default_rng(0).uniform(0.5, 1.0, self.n_columns)
        nothing = np.zeros((2, pairs.q.shape[1]))
        prices = np.stack([np.maximum(pairs.q[self.column_pairs, 0], 0.0), ties])
        quantities = np.hstack([pairs.T[np.ix_(self.row_pairs, self.column_pairs)], pairs.q[self.row_pairs]])
        self.tableau = np.vstack([quantities, np.hstack([prices, nothing])])

    def sides(self, flipped: Indices) -> tuple[Indices, Indices]:  # noqa: D102
        moving = self.moving[flipped]
        return np.searchsorted(self.row_pairs, flipped[moving]), np.searchsorted(self.column_pairs, flipped[~moving])

    def labels(self) -> tuple[Indices, Indices]:  # noqa: D102
        return self.row_pairs, self.column_pairs

    def choose(  # noqa: D102
        self, M: Array, rows: Indices, pending: Indices, age: Indices
    ) -> tuple[Indices, Indices, Mask]:
        n, each = self.n_columns, np.arange(len(M))
        q = M[:, : self.n_rows, n]
        i = q.argmin(axis=1)
        row = M[each, i, :n]
        able = row > PIVOT
        divisor = np.where(able, row, 1.0)
        ratio = np.where(able, np.maximum(M[:, -2, :n], 0.0) / divisor, np.inf)
        least = ratio.min(axis=1)
        tied = ratio <= (least + 1e-11 * (1 + least))[:, None]
        j = np.where(tied & able, M[:, -1, :n] / divisor, np.inf).argmin(axis=1)
        return i, j, (q[each, i] < -_NEGATIVE) & able.any(axis=1)

    def bound(self, tableau: Array) -> Array | None:  # noqa: D102
        prices, ties = tableau[-2:, self.n_columns :]
        return np.asarray(prices + _TIE * ties)

    def values(self, M: Array, rows: Indices, columns: Indices) -> tuple[Array, Mask]:  # noqa: D102
        v, each = np.zeros((len(M), self.n_pairs)), np.arange(len(M))[:, None]
        is_flipped = np.zeros(v.shape, dtype=bool)
        is_flipped[each, rows], is_flipped[each, columns] = ~self.moving[rows], self.moving[columns]
        v[each, rows], v[each, columns] = M[:, : self.n_rows, self.n_columns], M[:, -2, : self.n_columns]
        v[~is_flipped] = 0.0
        return v, is_flipped


class PrincipalPivots:
    """Rows and columns are all pairs; where a pair has no curvature of its own it is exchanged with another."""

    def __init__(self, pairs: Pairs) -> None:
        self.n_rows = self.n_columns = self.n_pairs = len(pairs.T)
        self.tableau = np.hstack([pairs.T, pairs.q])

    def sides(self, flipped: Indices) -> tuple[Indices, Indices]:  # noqa: D102
        return flipped, flipped

    def labels(self) -> tuple[Indices, Indices]:  # noqa: D102
        # A flipped pair's label is moved up by n, so that rows tell which partner they hold.
        return np.arange(self.n_rows), self.n_rows + np.arange(self.n_rows)

    def choose(  # noqa: D102
        self, M: Array, rows: Indices, pending: Indices, age: Indices
    ) -> tuple[Indices, Indices, Mask]:
        n, each = self.n_rows, np.arange(len(M))
        q = M[:, :, n]
        # The most negative pair first is short but may run in circles; the least numbers never do.
        is_careful = age >= _GREEDY * n
        i = q.argmin(axis=1)
        if is_careful.any():
            i = np.where(is_careful, _least(rows % n, q < -_NEGATIVE), i)
        row = M[each, i, :n]
        smallest = PIVOT * np.maximum(np.abs(row).max(axis=1), 1.0)
        curved = row[each, i] > smallest
        able = row > smallest[:, None]
        able[each, i] = curved
        ratio = np.where(able, np.maximum(q, 0.0) / np.where(able, row, 1.0), np.inf)
        j = ratio.argmin(axis=1)
        if is_careful.any():
            j = np.where(is_careful, _least(rows % n, able), j)
        j = np.where(curved, i, j)
        due = pending >= 0
        # The second half of an exchange: the partner's row and the first pair's column.
        first, second = pending // n, pending % n
        goes_on = due | ((q[each, i] < -_NEGATIVE) & able.any(axis=1))
        pending[:] = np.where(~due & goes_on & (i != j), i * n + j, -1)
        return np.where(due, second, i), np.where(due, first, j), goes_on

    def bound(self, tableau: Array) -> Array | None:  # noqa: D102
        return None

    def values(self, M: Array, rows: Indices, columns: Indices) -> tuple[Array, Mask]:  # noqa: D102
        v, each, n = np.zeros((len(M), self.n_pairs)), np.arange(len(M))[:, None], self.n_pairs
        v[each, rows % n] = np.where(rows >= n, M[:, :, n], 0.0)
        is_flipped = np.zeros(v.shape, dtype=bool)
        is_flipped[each, rows % n] = rows >= n
        return v, is_flipped


def _least(numbers: Indices, mask: Mask) -> Indices:
    """Where the least number stands among those in the mask."""
    return np.where(mask, numbers, np.iinfo(np.int64).max).argmin(axis=1)


def block_pivot(M: Array, rows: Indices, columns: Indices) -> Array | None:
    """The tableau after these rows and columns have changed places; None where they cannot."""
    if not len(rows):
        return M.copy()
    block = M[np.ix_(rows, columns)]
    try:
        inverse = np.linalg.inv(block)
    except np.linalg.LinAlgError:
        return None
    across, along = M[:, columns] @ inverse, inverse @ M[rows]
    tableau = M - across @ M[rows]
    tableau[:, columns] = across
    tableau[rows] = -along
    tableau[np.ix_(rows, columns)] = inverse
    return tableau


@dataclass(frozen=True)
class Start:
    """A tableau to start from with the pairs of its rows and columns."""

    tableau: Array
    rows: Indices
    columns: Indices


def start_at(rule: PivotRule, flipped: Indices) -> Start | None:
    """The tableau at the base with these pairs flipped; None where it is singular or badly scaled."""
    i, j = rule.sides(flipped)
    tableau = block_pivot(rule.tableau, i, j) if len(i) == len(j) else None
    if tableau is None or not np.isfinite(tableau).all() or np.abs(tableau).max() > 1e9:
        return None
    rows, columns = (labels.copy() for labels in rule.labels())
    rows[i], columns[j] = columns[j], rows[i]
    return Start(tableau, rows, columns)


@dataclass(frozen=True)
class Ends:
    """Where N contexts ended: v (N, n_pairs), the pairs that changed sides, and which contexts reached an end."""

    v: Array
    is_flipped: Mask
    has_ended: Mask


def pivot_all(rule: PivotRule, starts: Sequence[Start], which: Indices, F: Array) -> Ends:
    """Pivot every context from its start, starts[which[i]], until nothing is negative."""
    batch = _Batch(rule, starts, which, F)
    while len(batch.contexts):
        batch.step()
    return Ends(batch.v, batch.is_flipped, batch.ended)


class _Batch:
    """As many tableaus as fit the cache; a context that has ended makes place for the next."""

    def __init__(self, rule: PivotRule, starts: Sequence[Start], which: Indices, F: Array) -> None:
        self.rule, self.which, self.F = rule, which, F
        self.tableaus = [start.tableau for start in starts]
        self.maps = np.stack([start.tableau[:, rule.n_columns :] for start in starts])
        self.labels = np.stack([start.rows for start in starts]), np.stack([start.columns for start in starts])
        self.v, self.ended = np.zeros((len(F), rule.n_pairs)), np.zeros(len(F), dtype=bool)
        self.is_flipped = np.zeros(self.v.shape, dtype=bool)
        size = int(np.clip(_BATCH // (len(rule.tableau) * (rule.n_columns + 1)), 8, 2048))
        self.n_loaded = min(size, len(F))
        slots = np.arange(self.n_loaded)
        self.M = np.empty((len(slots), len(rule.tableau), rule.n_columns + 1))
        self.change = np.empty_like(self.M)
        self.rows, self.columns = self.labels[0][which[slots]], self.labels[1][which[slots]]
        self.contexts, self.pending, self.age = slots.copy(), np.empty_like(slots), np.empty_like(slots)
        self._load(slots, slots)

    def _load(self, slots: Indices, contexts: Indices) -> None:
        n, start = self.rule.n_columns, self.which[contexts]
        for slot, k in zip(slots.tolist(), start.tolist(), strict=True):
            self.M[slot, :, :n] = self.tableaus[k][:, :n]
        self.M[slots, :, n] = (self.maps[start] @ self.F[contexts][:, :, None])[:, :, 0]
        self.rows[slots], self.columns[slots] = self.labels[0][start], self.labels[1][start]
        self.contexts[slots], self.pending[slots], self.age[slots] = contexts, -1, 0

    def step(self) -> None:
        """One pivot in every tableau that needs one; the others are read and replaced."""
        i, j, goes_on = self.rule.choose(self.M, self.rows, self.pending, self.age)
        is_live = self.contexts >= 0
        size = np.abs(self.M[np.arange(len(i)), i, j])
        goes_on &= is_live & (size > _ZERO) & (self.age < _MOST_PIVOTS * self.rule.n_rows)
        self._pivot(i, j, goes_on)
        stops = np.flatnonzero(is_live & ~goes_on)
        if len(stops):
            contexts, M = self.contexts[stops], self.M[stops]
            self.v[contexts], self.is_flipped[contexts] = self.rule.values(M, self.rows[stops], self.columns[stops])
            self.ended[contexts] = M[:, : self.rule.n_rows, self.rule.n_columns].min(axis=1) >= -_NEGATIVE
            self._refill(stops)

    def _pivot(self, i: Indices, j: Indices, goes_on: Mask) -> None:
        each = np.arange(len(self.M))
        row = self.M[each, i]
        pivot = np.where(goes_on, row[each, j], 1.0)
        share = self.M[each, :, j] / pivot[:, None]
        share[~goes_on] = 0.0
        np.einsum("ni,nj->nij", share, row, out=self.change)
        self.M -= self.change
        g = np.flatnonzero(goes_on)
        i, j, row, pivot = i[g], j[g], row[g], pivot[g]
        self.M[g, :, j] = share[g]
        self.M[g, i] = -row / pivot[:, None]
        self.M[g, i, j] = 1.0 / pivot
        self.rows[g, i], self.columns[g, j] = self.columns[g, j], self.rows[g, i]
        self.age[g] += 1

    def _refill(self, slots: Indices) -> None:
        fresh = np.arange(self.n_loaded, min(self.n_loaded + len(slots), len(self.F)))
        self.n_loaded += len(fresh)
        self._load(slots[: len(fresh)], fresh)
        self.contexts[slots[len(fresh) :]] = -1
        is_live = self.contexts >= 0
        if 4 * is_live.sum() <= 3 * len(is_live):
            for name in ("M", "rows", "columns", "contexts", "pending", "age"):
                setattr(self, name, getattr(self, name)[is_live])
            self.change = self.change[: len(self.M)]
