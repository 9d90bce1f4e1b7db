r"""One linear program at many rows: the vertices that many rows share.

$$\min_x\ c(\theta)^\top x \quad\text{s.t.}\quad A x + s = b(\theta),\ s \ge 0 \text{ off the equations},$$

where $\theta$ = [centre, spread] of a row moves either the costs or the limits. A corner is a set W of n rows that hold
with equality. Its point is $x = A_W^{-1} b_W$, its multipliers are $y_W = -A_W^{-\top} c$.

| $\theta$ moves | a corner is best where | a row leaves by | simplex method |
|---|---|---|---|
| costs | the multipliers of its inequalities are not negative | the most negative multiplier | primal |
| limits | the slacks of all other inequalities are not negative | the most negative slack | dual |

A policy stays a function of its row. Which corner comes next does not depend on $\theta$, so that rows share one map of
corners, and the numbers of a corner are made from its own rows of A. A row starts at the best of some fixed corners.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from polyhedge._support.tolerances import CANCELLATION, PIVOT
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import ConicProgram, Scaling, row_kinds, scaled

# In units of the largest costs and limits.
_NEGATIVE = 1e-9
_OUTSIDE = 1e-8
_SMALLEST_RATE = 1e-9
_MOST_STEPS, _NEW_CORNERS = 500, 100
"""Corners after which a row is given up, and corners beyond one a row that are made for rows together: a corner that
no other row needs takes as long as half a program."""
_MOST_BYTES = 2**28
"""Memory for corners; beyond it they are forgotten, and found again where they are needed."""


@dataclass(frozen=True, eq=False)
class MovingProgram:
    """A linear program with costs c or limits b times [1; theta - origin], in powers of two times the user's units.

    Attributes
    ----------
    A : (m, n)
    b : (m, 1), or (m, 1 + q) if the limits move
    c : (n, 1 + q), or (n, 1) if the limits move
    is_equation : (m,)
    columns : (p,) of the decision in x.
    origin : (q,) where theta is counted from.
    units : (n,) of x.
    """

    A: Array
    b: Array
    c: Array
    is_equation: Mask
    columns: Indices
    origin: Array
    units: Array

    @classmethod
    def of(
        cls,
        program: ConicProgram,
        columns: Indices,
        slope: Array,
        origin: Array,
        frame: Scaling,
        *,
        moves_limits: bool = False,
    ) -> MovingProgram:
        """The program whose costs move by (n, q) with theta - origin, or its limits by (m, q), with rows of length 1.

        Lengths are those in the units of a frame (its origin does not count): decisions stand next to costs in a row,
        and a length of both would depend on the user's units.
        """
        A, units = scaled(program.A, frame.rows, frame.columns).toarray(), frame.columns
        length = 1 / np.maximum(np.linalg.norm(A, axis=1), np.finfo(float).tiny)
        moving = np.column_stack([program.b if moves_limits else program.c, slope])
        b, c = (moving, program.c[:, None]) if moves_limits else (program.b[:, None], moving)
        is_equation = row_kinds(program.cones) == "zero"
        limits, costs = (frame.rows * length)[:, None] * b, units[:, None] * c
        return cls(A * length[:, None], limits, costs, is_equation, columns, origin, units)

    @property
    def moves_limits(self) -> bool:
        """Whether rows differ in their limits, not in their costs."""
        return self.b.shape[1] > 1

    def decision(self, x: Array, theta: Array) -> Array:
        """The decisions (N, p) at a corner's point x (n, 1) or (n, 1 + q), in the user's units."""
        own = (self.units[:, None] * x)[self.columns]
        return _at(own, theta) if self.moves_limits else own.T


@dataclass(eq=False)
class _Corner:
    """Rows W with equality.

    Attributes
    ----------
    rows : (n,) W.
    inverse : (n, n) of A_W.
    x, y : (n, 1 + q) or (n, 1), its point, and the multipliers of W.
    checks : (k, 1 + q) of inequalities at [1; theta], which must not be negative: their multipliers or slacks.
    labels : (k,) these inequalities.
    value : (1 + q,) by which rows choose where to start, at [1; theta]: costs, or lower bounds of them negated.
    beyond : corners that are reached by the check of an inequality, as far as known.
    """

    rows: Indices
    inverse: Array
    x: Array
    y: Array
    checks: Array
    labels: Indices
    value: Array
    beyond: dict[int, _Corner | None] = field(default_factory=dict)


class Corners:
    """The corners of a program that moves with the row, found as rows need them.

    Parameters
    ----------
    program : what is solved.
    solver : the same program in HiGHS, at the first of the starts.
    starts : (J, q) values of theta at whose best corners every walk may start.
    """

    def __init__(self, program: MovingProgram, solver: LinearSolver, starts: Array) -> None:
        self.program, self.starts = program, list[_Corner]()
        self._known: dict[bytes, _Corner] = {}
        self._sizes = np.abs(program.b if program.moves_limits else program.c).max(axis=0)
        first = self._first(solver)
        if first is None:
            return
        self.starts = [first]
        corners, own = self._walk(starts - program.origin)
        self.starts = [corner for k in np.unique(own).tolist() if (corner := corners[k]) is not None] or [first]

    def __call__(self, theta: Array) -> tuple[Array, Mask]:
        """Decisions (N, p) at theta (N, q), and which were found; the others need a program of their own."""
        z, arrived = np.full((len(theta), len(self.program.columns)), np.nan), np.zeros(len(theta), dtype=bool)
        if not self.starts:
            return z, arrived
        moved = theta - self.program.origin
        corners, own = self._walk(moved)
        for rows in _by_corner(np.arange(len(theta)), own):
            corner = corners[own[rows[0]]]
            if corner is not None:
                z[rows], arrived[rows] = self.program.decision(corner.x, moved[rows]), True
        return z, arrived

    def _walk(self, theta: Array) -> tuple[list[_Corner | None], Indices]:
        """The corners at which rows end, None among them for rows without one, and the number of each row's (N,)."""
        seen: list[_Corner | None] = [None, *self.starts]
        number = {id(corner): k for k, corner in enumerate(seen)}
        own = 1 + _at(np.stack([corner.value for corner in self.starts]), theta).argmin(axis=1)
        limit = -_NEGATIVE * _at(self._sizes[None], np.abs(theta))[:, 0]
        is_open = np.arange(len(theta))
        n_known = len(self._known)
        for _ in range(_MOST_STEPS):
            if not len(is_open) or len(self._known) > n_known + _NEW_CORNERS + len(theta):
                break
            still = [np.zeros(0, dtype=np.int64)]
            for rows in _by_corner(is_open, own):
                corner = seen[own[rows[0]]]
                if corner is None:
                    continue
                for label, some in _leaving(corner, theta, limit, rows):
                    other = self._beyond(corner, label)
                    if id(other) not in number:
                        number[id(other)] = len(seen)
                        seen.append(other)
                    own[some] = number[id(other)]
                    still.append(some)
            is_open = np.sort(np.concatenate(still))
        own[is_open] = 0
        return seen, own

    def _first(self, solver: LinearSolver) -> _Corner | None:
        """The corner at which HiGHS ends; None where its program has none."""
        solution, active = solver.solve_cold(), solver.active_rows()
        if not solution.status.has_solution or active is None:
            return None
        program = self.program
        wanted = [np.flatnonzero(program.is_equation), np.flatnonzero(active)]
        if not program.moves_limits:  # a basis is dual feasible; any rows that are tight make a point
            b = program.b[:, 0]
            tight = program.A @ (solution.x / program.units) - b >= -_NEGATIVE * (1 + np.abs(b))
            wanted.append(np.flatnonzero(tight))
        rows = _independent(program.A, np.concatenate(wanted))
        return None if len(rows) < program.A.shape[1] else self._corner(rows)

    def _corner(self, rows: Indices) -> _Corner | None:
        """The corner with these rows; None where there is none."""
        rows = np.sort(rows)
        key = rows.tobytes()
        if key not in self._known:
            corner = _make(self.program, rows)
            if corner is None:
                return None
            if len(self._known) * 2 * corner.inverse.nbytes > _MOST_BYTES:
                self._known = {}
                for start in self.starts:
                    start.beyond = {}
            self._known[key] = corner
        return self._known[key]

    def _beyond(self, corner: _Corner, label: int) -> _Corner | None:
        """The corner at the end of the edge on which this inequality is let go, or is met."""
        if label not in corner.beyond:
            swapped = _met if self.program.moves_limits else _let_go
            rows = swapped(self.program, corner, label)
            corner.beyond[label] = None if rows is None else self._corner(rows)
        return corner.beyond[label]


def _by_corner(rows: Indices, own: Indices) -> list[Indices]:
    """The rows of each corner, corner after corner; the numbers of their corners are own[row]."""
    order = rows[np.argsort(own[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(own[order])) + 1) if len(order) else []


def _at(matrix: Array, theta: Array) -> Array:
    """Matrix (k, 1 + q) at [1; theta] (N, q)."""
    return np.asarray(theta @ matrix[:, 1:].T + matrix[:, 0])


def _leaving(corner: _Corner, theta: Array, limit: Array, rows: Indices) -> list[tuple[int, Indices]]:
    """The rows at which the corner is not best, by the label of their most negative check."""
    if not len(corner.labels):
        return []
    checks = _at(corner.checks, theta[rows])
    worst = checks.argmin(axis=1)
    leaves = checks[np.arange(len(rows)), worst] < limit[rows]
    return [(int(corner.labels[w]), rows[leaves & (worst == w)]) for w in np.unique(worst[leaves]).tolist()]


def _make(program: MovingProgram, rows: Indices) -> _Corner | None:
    try:
        inverse: Array = np.asarray(np.linalg.inv(program.A[rows]), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    x, y = inverse @ program.b[rows], -inverse.T @ program.c
    x = x + inverse @ (program.b[rows] - program.A[rows] @ x)  # a budget that is missed costs as much as it is far
    excess, in_row = program.A @ x - program.b, ~program.is_equation[rows]
    if program.moves_limits:
        wrong, size = -y[in_row].min(initial=0.0), np.abs(program.c).max(initial=0.0)
        labels = np.setdiff1d(np.flatnonzero(~program.is_equation), rows)
        checks, value = -excess[labels], -(program.c[:, 0] @ x)
    else:
        wrong, size = np.where(program.is_equation[:, None], np.abs(excess), excess).max(initial=0.0), np.abs(program.b)
        size = size.max(initial=0.0)
        labels, checks, value = rows[in_row], y[in_row], x[:, 0] @ program.c
    diagnostic = np.abs(program.A[rows] @ inverse - np.eye(len(rows))).max(initial=0.0)
    # Neither the place nor the multipliers of a corner are believed unless they can be.
    if not (diagnostic <= _OUTSIDE and wrong <= _OUTSIDE * (1 + size)):
        return None
    return _Corner(rows, inverse, x, y, checks, labels, value)


def _met(program: MovingProgram, corner: _Corner, label: int) -> Indices | None:
    """The corner's rows with one that must be met in place of the first whose multiplier vanishes; None without one."""
    rates = corner.inverse.T @ program.A[label]
    can_leave = np.flatnonzero((rates > _SMALLEST_RATE) & ~program.is_equation[corner.rows])
    if not len(can_leave):
        return None
    rows = corner.rows.copy()
    rows[can_leave[_least_ratio(np.maximum(corner.y[can_leave, 0], 0.0), rates[can_leave])]] = label
    return rows


def _let_go(program: MovingProgram, corner: _Corner, label: int) -> Indices | None:
    """The corner's rows with the first that is met in place of one that is let go; None where none is met."""
    leaving = int(np.searchsorted(corner.rows, label))
    direction = -corner.inverse[:, leaving]
    rates = program.A @ direction
    can_enter = (rates > _SMALLEST_RATE * np.abs(direction).max()) & ~program.is_equation
    can_enter[corner.rows] = False
    met = np.flatnonzero(can_enter)
    if not len(met):
        return None
    rows = corner.rows.copy()
    slacks = np.maximum((program.b - program.A @ corner.x)[met, 0], 0.0)
    rows[leaving] = met[_least_ratio(slacks, rates[met])]
    return rows


def _least_ratio(values: Array, rates: Array) -> int:
    """Where values fall to zero first at these rates; of equal ones the largest rate."""
    ratios = values / rates
    tied = ratios <= ratios.min() + CANCELLATION * (1 + abs(ratios.min()))
    return int(np.where(tied, rates, -np.inf).argmax())


def _independent(A: Array, wanted: Indices) -> Indices:
    """The wanted rows in their order, each only if independent of those before it."""
    chosen, directions = list[int](), np.zeros((0, A.shape[1]))
    for row in wanted.tolist():
        rest = A[row]
        for _ in range(2):  # once more for accuracy
            rest = rest - (directions @ rest) @ directions
        if np.linalg.norm(rest) > PIVOT:
            chosen.append(row)
            directions = np.vstack([directions, rest / np.linalg.norm(rest)])
        if len(chosen) == A.shape[1]:
            break
    return np.array(chosen, dtype=np.int64)
