r"""The least mean of a cost that falls apart, under limits that couple its decisions.

With $\zeta_i = (z_i - \beta_i c_{j(i)} - \kappa_i) / s$ the mean over residuals is $s \sum_i f_i(\zeta_i)$ plus prices,
the same functions at all rows (`separable.py`); a row moves the limits $A \zeta \le b$ alone. Where the best decision
of all keeps the limits, it is the answer, and exact. Elsewhere each $f_i$ is known by lines that support it, and a
small linear program decides; where the lines miss too much of the mean, it has more of them near its answer, once more.

Means of residuals are level over stretches: slopes are shares of a whole number of residuals, and beyond the last
residual nothing changes them. A program would take any end of such a stretch. So no two terms have lines of the same
slopes, and beyond the residuals slopes grow by next to nothing: one answer is the best, whatever the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.planning.risk import Risk
from polyhedge.planning.separable import Separable
from polyhedge.problems import DecisionProblem
from polyhedge.robust.threads import in_order
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Status

_LINES, _MORE = 100, 12
"""Lines of a term that all rows share, and those that a round adds near the answer of a row: few rows need a round."""
_ROUNDS = 4
"""Rounds of more lines."""
_APART = (5**0.5 - 1) / 2
"""Steps by which the levels of one term's lines are shifted against those of the next: no two come near soon."""
_BEYOND, _TILT = (0.0, 0.25, 1.0, 4.0), 1e-6
"""Where slopes beyond the residuals change, in widths of these, and by which share of a term's range of slopes."""
_PART = 64
"""Rows that one solver takes, one after the other, each from its beginning."""


@dataclass(frozen=True, eq=False)
class Term:
    """The mean f of max(high t, low t), t = zeta - knot, over knots (n,) in their order; the shift is of its lines."""

    knots: Array
    low: float
    high: float
    shift: float

    @cached_property
    def _sums(self) -> Array:
        return np.concatenate([[0.0], np.cumsum(self.knots)])

    def __call__(self, zeta: Array) -> Array:
        """The mean at each zeta."""
        n, sums = len(self.knots), self._sums
        k = np.searchsorted(self.knots, zeta, side="right")
        above, below = k * zeta - sums[k], (n - k) * zeta - (sums[-1] - sums[k])
        return np.asarray((self.high * above + self.low * below) / n)

    def levels_near(self, zeta: Array) -> Array:
        """Levels (N, M) of lines about those that support the mean at zeta (N,), as far as the shared lines leave."""
        level = np.searchsorted(self.knots, zeta, side="right") / len(self.knots)
        angle = np.arcsin(np.sqrt(level)) * 2 / np.pi
        steps = 3 / _LINES * ((np.arange(_MORE) + self.shift) / _MORE - 0.5)
        return _levels(np.clip(angle[:, None] + steps, 0.0, 1.0))

    def lines(self, levels: Array) -> tuple[Array, Array]:
        """Slopes and heights of lines slope zeta - height that support the mean where this share of knots is passed."""
        slopes = self.low + (self.high - self.low) * levels
        n = len(self.knots)
        touched = self.knots[np.clip(np.floor(levels * n).astype(np.int64), 0, n - 1)]
        return slopes, slopes * touched - self(touched)

    @cached_property
    def shared_lines(self) -> tuple[Array, Array]:
        """Lines that all rows have, more of them where few residuals are, and those beyond."""
        inner = _levels((np.arange(_LINES) + self.shift) / _LINES)
        slopes, heights = self.lines(inner)
        width = float(np.ptp(self.knots)) or float(np.abs(self.knots).max()) or 1.0
        before, beyond = self._tail(self.knots[0], -width, self.low), self._tail(self.knots[-1], width, self.high)
        return np.concatenate([slopes, before[0], beyond[0]]), np.concatenate([heights, before[1], beyond[1]])

    def _tail(self, knot: float, width: float, slope: float) -> tuple[Array, Array]:
        """Lines that each leave the one before them a little, ever farther beyond the last knot."""
        tilt = np.sign(width) * _TILT * (self.high - self.low) * (1 + self.shift)
        slopes, heights, height = [], [], slope * knot - float(self(np.array(knot)))
        for distance in _BEYOND:
            height += tilt * (knot + distance * width)
            slope += tilt
            slopes.append(slope)
            heights.append(height)
        return np.array(slopes), np.array(heights)


def _levels(angles: Array) -> Array:
    """Levels from 0 to 1, dense at both ends: few residuals are there, and far apart."""
    return np.asarray(np.sin(np.pi / 2 * angles) ** 2)


@dataclass(frozen=True, eq=False)
class WithinLimits:
    """Decides by the least mean cost over points (n, d), where z also keeps rows' z <= limits.

    Attributes
    ----------
    problem, terms : what is decided, and its cost as one term a decision.
    points : residuals (n, d).
    rows : (L, p) further limits, whose right-hand sides each row has of its own.
    """

    problem: DecisionProblem
    terms: Separable
    points: Array
    rows: Array

    def least(self, centers: Array, scales: Array, limits: Array, enough: Array, n_jobs: int | None = None) -> Array:
        """Decisions (N, p) at rows with limits (N, L); NaN where no solver finds one. Lines may miss `enough` (N,)."""
        z = self.terms.least(self._tables, centers, scales)
        rest = np.flatnonzero(~self._are_kept(z, limits))
        if len(rest):
            kinks = self.terms.kappa + self.terms.beta * centers[rest][:, self.terms.outcome]
            b = np.hstack([np.tile(self.problem.feasible.program.b, (len(rest), 1)), limits[rest]])
            zeta = self._by_lines((b - kinks @ self._A.T) / scales[rest, None], enough[rest] / scales[rest], n_jobs)
            z[rest] = np.clip(kinks + scales[rest, None] * zeta, self.terms.lower, self.terms.upper)
        return z

    def _are_kept(self, z: Array, limits: Array) -> Mask:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.isfinite(z).all(axis=1) & (z @ self.rows.T <= limits).all(axis=1))

    @cached_property
    def _tables(self) -> list[tuple[Array, Array]]:
        return self.terms.tables(self.points, Risk())

    @cached_property
    def _means(self) -> list[Term]:
        own = self.terms
        return [
            Term(knots, float(own.low[i]), float(own.high[i]), (0.5 + _APART * i) % 1.0)
            for i, (knots, _) in enumerate(self._tables)
        ]

    @cached_property
    def _A(self) -> Array:
        """All limits of a decision, those of the problem first."""
        program, columns = self.problem.feasible.program, self.problem.feasible.z_columns
        return np.vstack([program.A.toarray()[:, columns], self.rows])

    def _by_lines(self, b: Array, enough: Array, n_jobs: int | None) -> Array:
        """The best zeta (N, p) under limits b (N, m), by as many lines as it takes."""
        lines = [np.stack(each) for each in zip(*(term.shared_lines for term in self._means), strict=True)]
        lines = [np.broadcast_to(each, (len(b), *each.shape)) for each in lines]
        zeta, is_open = np.full((len(b), self._A.shape[1]), np.nan), np.ones(len(b), dtype=bool)
        for k in range(1 + _ROUNDS):
            own = np.flatnonzero(is_open)
            zeta[own] = self._solved(b[own], lines, n_jobs, is_shared=not k)
            is_lacking = self._missing(zeta[own], lines) > enough[own]
            is_open[own] = is_lacking
            if not is_lacking.any():
                break
            more = [term.lines(term.levels_near(zeta[is_open, i])) for i, term in enumerate(self._means)]
            fresh = [np.stack(each, axis=1) for each in zip(*more, strict=True)]
            lines = [np.concatenate([old[is_lacking], new], axis=2) for old, new in zip(lines, fresh, strict=True)]
        return zeta

    def _missing(self, zeta: Array, lines: Sequence[Array]) -> Array:
        """What lines (N, p, K) do not know of the mean at each row (N,); nothing where there is no answer."""
        missing = np.zeros(len(zeta))
        for i, term in enumerate(self._means):
            known = (lines[0][:, i] * zeta[:, [i]] - lines[1][:, i]).max(axis=1)
            missing += np.maximum(term(np.nan_to_num(zeta[:, i])) - known, 0.0)
        return missing

    def _solved(self, b: Array, lines: Sequence[Array], n_jobs: int | None, is_shared: bool) -> Array:
        """The best zeta (N, p) by these lines; NaN where there is none."""
        slopes, heights = (each.reshape(len(b), -1) for each in lines)
        whole, entries = self._program(lines[0].shape[2])
        moving, p = np.arange(len(whole.b)), len(self._means)

        def work(part: Indices) -> list[Array]:
            solver, answers = LinearSolver(whole, varying_rows=moving, presolve=False), []
            for i in part:
                solver.change_rhs(moving, np.concatenate([b[i], heights[i]]))
                solution = solver.solve_anew() if is_shared else solver.solve_with(entries, slopes[i])
                answers.append(solution.x[:p] if solution.status is Status.OPTIMAL else np.full(p, np.nan))
            return answers

        parts = [np.arange(k, min(k + _PART, len(b))) for k in range(0, len(b), _PART)]
        return np.array([one for part in in_order(work, parts, n_jobs=n_jobs) for one in part])

    def _program(self, n_lines: int) -> tuple[ConicProgram, Indices]:
        """The program in zeta and eta, with the shared lines over and over, and the places of their slopes in it.

        Its numbers, and so its units, are those of no row: what is decided at one does not depend on the others.
        """
        p, (m, _) = len(self._means), self._A.shape
        slopes, heights = (np.stack(each) for each in zip(*(term.shared_lines for term in self._means), strict=True))
        taken = np.arange(n_lines) % slopes.shape[1]
        term = np.repeat(np.arange(p), n_lines)
        data = np.column_stack([slopes[:, taken].ravel(), np.full(len(term), -1.0)])
        columns = np.column_stack([term, p + term])
        rows = sp.csr_array((data.ravel(), columns.ravel(), 2 * np.arange(len(term) + 1)), shape=(len(term), 2 * p))
        limits = sp.csr_array(np.hstack([self._A, np.zeros((m, p))]))
        base = self.problem.feasible.program
        program = ConicProgram(
            c=np.concatenate([self.terms.slope, np.ones(p)]),
            A=sp.csr_array(sp.vstack([limits, rows])),
            b=np.concatenate([np.zeros(m), heights[:, taken].ravel()]),
            cones=(*base.cones, Cone("nonneg", len(self.rows) + len(term))),
        )
        return program, limits.nnz + 2 * np.arange(len(term))
