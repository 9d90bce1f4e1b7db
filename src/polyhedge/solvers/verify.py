r"""What a point and its multipliers prove about a program, whatever the solver says of itself.

Every solution passes here before it is called optimal. Distances from a cone are those to a nearby point of it,
at least as large as to the nearest one.

- rotated: $s_0 s_1 \ge \lVert s_{2:} \rVert^2$ with $s_0, s_1 \ge 0$: a soc of half their sum and difference.
- soc: $s_0 \ge \lVert s_{1:} \rVert$; psd: symmetric matrices without negative eigenvalues. Both are self-dual.
- exp: closure of $s_1 e^{s_0 / s_1} \le s_2$, $s_1 > 0$. Dual: closure of $-y_0 e^{y_1 / y_0 - 1} \le y_2$, $y_0 < 0$.
- pow: $s_0^a s_1^{1-a} \ge |s_2|$ with $s_0, s_1 \ge 0$. Dual: the same of $y_0 / a$, $y_1 / (1 - a)$ and $y_2$.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import FEASIBLE, OPTIMAL, ROUNDING
from polyhedge._support.validation import Array, Mask
from polyhedge.solvers.program import NOISE, Cone, ConicProgram, Scaling, Solution, Status, row_kinds, status_at

_ROUGH = 1e-3
"""Share of the costs at stake up to which the residuals of stationarity and feasibility leave a proof."""
_FAINT = 1e-3
"""Share of a unit that is at stake where all costs vanish: solvers tell no less than `OPTIMAL` of it from 0."""
_MOST_AT_STAKE = 16.0
"""Times all costs at the answer and a unit of each: of 39 000 solves of the tests 5 had more at stake."""
_SMALL = 40_000
"""Entries up to which products with a dense matrix are the quickest."""


class Verifier:
    """Verify solutions of programs that share matrix, curvature and cones with the first, in the units of a scaling."""

    def __init__(self, program: ConicProgram, scaling: Scaling) -> None:
        self.scaling, self.cones = scaling, program.cones
        self.A, self.P = _quick(program.A), None if program.P is None else _quick(program.P)
        self.At = self.A.T if isinstance(self.A, np.ndarray) else sp.csr_array(self.A.T)
        kinds = row_kinds(program.cones)
        self.is_equation, self.is_limit = kinds == "zero", kinds == "nonneg"
        self.others, start = [], 0
        for cone in program.cones:
            if cone.size and cone.kind not in ("zero", "nonneg"):
                self.others.append((cone, slice(start, start + cone.n_rows)))
            start += cone.n_rows
        self.price, self.reach = self.At @ scaling.prices, self.A @ scaling.origin
        if self.P is not None:
            self.price = self.price + self.P @ scaling.origin
        self.size = abs(self.A)

    def costs(self, c: Array) -> Array:
        """Scaled costs."""
        return np.asarray(self.scaling.columns * (c + self.price) / self.scaling.cost)

    def limits(self, b: Array) -> Array:
        """Scaled right-hand sides."""
        return np.asarray(self.scaling.rows * (b - self.reach))

    def verify(self, program: ConicProgram, solution: Solution, cost: float | None = None) -> Solution:
        r"""The solution with its verified value, gap and status; `cost` is the unit of costs, by default the scaling's.

        Let $r = c + P x + A^\top y$ and $s = b - A x$. A step d to a better point gains at most
        $\sum y_i s_i + \sum |r_j d_j|$, which is the duality gap if r = 0. The length of d is taken as the distance
        from the scaling's origin, at least a unit; violated rows count with their multipliers in the same way.
        Multipliers are first moved into the dual cone, and the change enters r.
        """
        scaling, x = self.scaling, solution.x
        unit = scaling.cost if cost is None else cost
        b, curved, slack, force = self._sums(program, x, solution.y)
        value = program.value(x)
        if not np.isfinite(value):  # solvers accept costs and limits that are not numbers
            return nothing_known(program, Status.FAILED, "the value is not a finite number")
        y = self._in_dual_cone(solution.y, np.isposinf(program.b))
        if y is not solution.y:
            force = force + self.At @ (y - solution.y)
        complementarity, broken = self._slacks(slack, y)
        imbalance = float(np.abs(force) @ np.maximum(np.abs(x - scaling.origin), scaling.columns))
        imbalance += float(broken @ np.maximum(np.abs(y - scaling.prices), unit * scaling.rows))
        row_terms = np.abs(b) + self.size @ np.abs(x)
        off = float((broken / (1 / scaling.rows + row_terms)).max(initial=0.0))
        terms = float(np.abs(program.c * x).sum() + np.abs(curved * x).sum())
        # A column far from its unit has no part by being far: what it costs is what it costs where it stands.
        reduced = force - self.At @ np.where(self.is_equation, 0.0, y)
        parts = np.abs(reduced) * np.minimum(scaling.columns, np.abs(x))
        size = max(unit, float(parts.max(initial=0.0)))
        total = terms + float(np.abs(y) @ row_terms)
        is_faint = total < _FAINT * unit
        if is_faint:  # the sum of all scaled terms is 0 at a cost of 0, however far from 0 the origin is
            step = np.abs(x - scaling.origin)
            left = np.abs(scaling.cost / scaling.columns * self.costs(program.c)) @ step + np.abs(curved) @ step
            limits = np.abs(self.limits(b) / scaling.rows) + self.size @ step
            is_faint = float(left + np.abs(y - scaling.prices) @ limits) <= NOISE * unit
        size = _FAINT * unit if is_faint else min(size, total)
        size += ROUNDING / OPTIMAL * (terms + float(np.abs(b) @ np.abs(y)))
        # Multipliers come from the solver: large ones must not raise the costs at stake.
        size = min(size, _MOST_AT_STAKE * (unit + terms + float(np.abs(program.c + curved) @ scaling.columns)))
        # The length of a step to a better point is an estimate, which suffices for small residuals only.
        gap = complementarity + imbalance if imbalance <= _ROUGH * size and np.isfinite(complementarity) else np.inf
        status = status_at(max(gap, off * size), size)
        return replace(solution, value=value, gap=gap, status=status, size=size, broken=off)

    def _in_dual_cone(self, y: Array, is_none: Mask) -> Array:
        """Multipliers that may prove something: moved into the dual cone, 0 where there is no limit."""
        wrong = (self.is_limit & (y < 0)) | (is_none & (y != 0))
        moved = np.where(wrong, 0.0, y) if wrong.any() else y
        for cone, rows in self.others:
            unit = self._units_of(cone, rows)
            inside = unit * in_dual_cone(cone, y[rows] / unit)
            if not np.array_equal(inside, y[rows]):
                moved = moved.copy() if moved is y else moved
                moved[rows] = inside
        return moved

    def verify_integer(
        self, program: ConicProgram, x: Array, gap: float, size: float, tolerance: float = OPTIMAL
    ) -> Solution:
        """A point of a mixed-integer program, `gap` above a lower bound of the solver's; it has no multipliers.

        Only the search vouches for the lower bound; a point below it refutes it. The integers of a solver are rounded
        first, so that what is verified and returned has no 38.99999999999918.
        """
        off = float(np.abs(x[program.integer] - np.round(x[program.integer])).max(initial=0.0))
        x = x.copy()
        x[program.integer] = np.round(x[program.integer]) + 0.0
        nothing = np.full(len(program.b), np.nan)
        b, _, slack, _ = self._sums(program, x, np.zeros(len(program.b)))
        value = program.value(x)
        if not np.isfinite([value, gap]).all():
            return nothing_known(program, Status.FAILED, "the value or its lower bound is not a finite number")
        broken = self._slacks(slack, np.zeros(len(program.b)))[1]
        off = max(off, float((broken / (1 / self.scaling.rows + np.abs(b) + self.size @ np.abs(x))).max(initial=0.0)))
        size = max(size, abs(value - program.offset))
        if gap < -tolerance * size:
            return nothing_known(program, Status.FAILED, "the solver's lower bound lies above the value of its point")
        gap = max(gap, 0.0)
        solution = Solution(x, nothing, value, status_at(gap, size, tolerance), gap, size=size, broken=off)
        return settled(program, solution)

    def _sums(self, program: ConicProgram, x: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """Limits, 0 for infinite ones; P x; slacks; and the residual c + P x + A'y."""
        is_none = np.isposinf(program.b)
        b = np.where(is_none, 0.0, program.b)
        curved = np.zeros(len(x)) if self.P is None else self.P @ x
        force = program.c + curved + self.At @ y
        return b, curved, np.where(is_none, 0.0, b - self.A @ x), force

    def _slacks(self, slack: Array, y: Array) -> tuple[float, Array]:
        """The gap that multipliers times slacks leave, and by how much each row is broken (of a cone, the heaviest)."""
        broken = np.where(self.is_equation, np.abs(slack), np.where(self.is_limit, np.maximum(-slack, 0.0), 0.0))
        complementarity = float(y[self.is_limit] @ np.maximum(slack[self.is_limit], 0.0))
        for cone, rows in self.others:
            complementarity += abs(float(y[rows] @ slack[rows]))
            unit = self._units_of(cone, rows)
            heaviest = int(np.argmax(np.abs(y[rows] / unit)))
            broken[rows.start + heaviest] = outside(cone, unit * slack[rows]) / unit[heaviest]
        return complementarity, broken

    def _units_of(self, cone: Cone, rows: slice) -> Array:
        """The units in which distances of a cone's rows are alike: those of products differ, others are the same."""
        return self.scaling.rows[rows] if cone.kind == "rotated" else np.ones(cone.n_rows)


def _quick(matrix: sp.csr_array) -> Any:
    return matrix.toarray() if matrix.shape[0] * matrix.shape[1] <= _SMALL else matrix


def settled(program: ConicProgram, solution: Solution) -> Solution:
    """A solution as adapters return it: a point that breaks its limits is dropped, however early the solver stopped."""
    if solution.status.has_solution and not solution.broken <= FEASIBLE:
        detail = f"the point breaks a limit by {solution.broken:.1e} of its terms"
        return nothing_known(program, Status.FAILED, detail)
    return solution


def nothing_known(program: ConicProgram, status: Status, detail: str) -> Solution:
    """How a solve without a point ended."""
    nan = np.nan
    return Solution(np.full(len(program.c), nan), np.full(len(program.b), nan), nan, status, np.inf, detail)


def outside(cone: Cone, slack: Array) -> float:
    """How far a slack lies outside its cone; 0 inside."""
    if cone.kind == "soc":
        return max(float(np.linalg.norm(slack[1:])) - float(slack[0]), 0.0)
    if cone.kind == "rotated":
        half, apart = (slack[0] + slack[1]) / 2, (slack[0] - slack[1]) / 2
        return max(float(np.linalg.norm(np.append(apart, slack[2:]))) - float(half), 0.0)
    if cone.kind == "psd":
        return max(-float(np.linalg.eigvalsh(_matrix(slack, cone.size)).min()), 0.0)
    x, y, z = slack.tolist()
    if cone.kind == "exp":
        # The least of what three repairs change: to the face with y = 0, by raising z, by lowering x.
        repairs = [float(np.linalg.norm([max(x, 0.0), y, min(z, 0.0)]))]
        if y > 0:
            with np.errstate(over="ignore"):
                repairs.append(max(float(y * np.exp(x / y)) - z, 0.0))
        if y > 0 and z > 0:
            repairs.append(max(x - y * float(np.log(z / y)), 0.0))
        return min(repairs)
    reach = max(x, 0.0) ** cone.exponent * max(y, 0.0) ** (1 - cone.exponent)
    return max(-x, -y, abs(z) - reach, 0.0)


def in_dual_cone(cone: Cone, y: Array) -> Array:
    """Multipliers of a cone as they are where they lie in the dual cone, else moved into it."""
    if not np.isfinite(y).all():
        return y
    if cone.kind == "soc":
        return np.append(max(float(y[0]), float(np.linalg.norm(y[1:]))), y[1:])
    if cone.kind == "rotated":
        missing = float(np.linalg.norm(np.append(y[0] - y[1], y[2:]))) - float(y[0] + y[1])
        return np.append(y[:2] + missing / 2, y[2:]) if missing > 0 else y
    if cone.kind == "psd":
        values, vectors = np.linalg.eigh(_matrix(y, cone.size))
        if values.min() >= 0:
            return y
        columns, rows = np.tril_indices(cone.size)
        matrix = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))
    if cone.kind == "exp":
        # Raise the last entry, or go to the face with y_0 = 0 where that changes less.
        u, v, w = y.tolist()
        face = np.array([0.0, max(v, 0.0), max(w, 0.0)])
        if u >= 0:
            return face
        with np.errstate(over="ignore"):
            least = float(-u * np.exp(v / u - 1))
        return np.array([u, v, max(w, least)]) if least - w <= np.linalg.norm(face - y) else face
    a, (u, v) = cone.exponent, np.maximum(y[:2], 0.0).tolist()
    most = (u / a) ** a * (v / (1 - a)) ** (1 - a)
    return np.array([u, v, np.clip(y[2], -most, most)])


def _matrix(triangle: Array, n: int) -> Array:
    """The symmetric matrix of an upper triangle, column by column, with off-diagonal entries times the root of 2."""
    columns, rows = np.tril_indices(n)
    matrix = np.zeros((n, n))
    matrix[rows, columns] = matrix[columns, rows] = triangle / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return matrix
