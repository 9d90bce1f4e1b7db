r"""The best residuals to keep where the cost rises along finitely many fixed directions (newsvendors).

The cost sees a selection S only through its reach $y_l = \max_{j \in S} q_l^\top e_j$ along each direction, and the
mean cost F(y) over the contexts is a convex function of these few numbers. So the master has a level for
each direction, bounded below by star inequalities with single residuals, and tangents of F.
"""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from polyhedge._support.tolerances import SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.learners.budget import Budget
from polyhedge.learners.exact.bound import CertifiedBound, certified
from polyhedge.learners.exact.mixing import Master, Tangent, star_inequality
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.segment import quadratic_base
from polyhedge.robust.engine.parametric import ContextSolver, level_program
from polyhedge.robust.warm_starts import sharp_levels
from polyhedge.solvers.program import SolverError, Status

# The closed form looks at every pair of pieces for each context.
_FEW_PIECES = 16


def reach_cost(problem: DecisionProblem, centers: Array) -> ReachCost:
    """F for these contexts: in closed form where decisions lie on a segment, else by linear programs."""
    structure = problem.structure
    ends, base = (structure.ends, structure.base) if len(structure.pieces) <= _FEW_PIECES else (None, None)
    if ends is not None and base is not None:
        return _SegmentReachCost(problem, centers, *ends, base)
    return _along_ray(problem, centers) or _ProgramReachCost(problem, centers)


def _along_ray(problem: DecisionProblem, centers: Array) -> ReachCost | None:
    """One outcome and a decision without an upper limit (orders of one product); None for other problems."""
    structure = problem.structure
    # No certificate is asked for where something is known of outcomes: what is proven there would need an end.
    if problem.n_outcomes > 1 or not structure.has_known_support or structure.ray is None:
        return None
    base = quadratic_base(problem, *structure.ray)
    if base is None or len(structure.pieces) > _FEW_PIECES:
        return None
    rise = base[1] + (structure.pieces.p @ (structure.ray[1] - structure.ray[0])).max()
    is_held = base[2] > 0 or rise > 0  # else costs fall for ever, which the program says
    return _SegmentReachCost(problem, centers, *structure.ray, base, last=np.inf) if is_held else None


class ReachCost(Protocol):
    """F(y): the mean over contexts of min_z max_l y_l + q_l'f + p_l'z + c_l + g_0(z)."""

    is_closed_form: bool

    def tangent(self, reach: Array, contexts: Indices | None = None) -> tuple[float, Tangent]:
        """F (over some contexts) at a reach and its supporting plane there."""

    def each(self, reach: Array, contexts: Indices) -> tuple[Array, Array]:
        """Costs (m,) of some contexts, each at its own reach (m, L), and the weights of their pieces (m, L)."""


class _ProgramReachCost:
    """One warm-started program for all contexts: only right-hand sides change, and bases serve many of them."""

    is_closed_form = False

    def __init__(self, problem: DecisionProblem, centers: Array) -> None:
        parametric = level_program(problem)
        self.solver, self.sharp = ContextSolver(parametric), sharp_levels(parametric)
        self.zero = parametric.at_zero
        pieces = problem.structure.pieces
        self.shifts, self.first = centers @ pieces.q.T, len(problem.feasible.program.b)

    def tangent(self, reach: Array, contexts: Indices | None = None) -> tuple[float, Tangent]:
        values, weights = self._each(reach + (self.shifts if contexts is None else self.shifts[contexts]))
        value, slopes = float(values.mean()), weights.mean(axis=0)
        return value, Tangent(value - float(slopes @ reach), slopes)

    def each(self, reach: Array, contexts: Indices) -> tuple[Array, Array]:
        return self._each(reach + self.shifts[contexts])

    def _each(self, levels: Array) -> tuple[Array, Array]:
        values, weights, is_open = np.empty(len(levels)), np.empty(levels.shape), np.ones(len(levels), dtype=bool)
        if self.sharp is not None:
            b = np.tile(self.zero.b, (len(levels), 1))
            b[:, self.first :] -= levels
            sharp_values, y, is_sharp = self.sharp(b)
            values, weights, is_open = sharp_values + self.zero.offset, y[:, self.first :], ~is_sharp
        for i in np.flatnonzero(is_open):
            values[i], weights[i] = self._solve(levels[i])
        return values, weights

    def _solve(self, levels: Array) -> tuple[float, Array]:
        solution = self.solver.solve(levels)
        if not solution.status.has_solution:
            raise NoSolutionError(
                f"A context of the learning split has no best decision: {solution.status}. "
                "Check the feasible set and the cost; a decision that lowers the cost without limit needs bounds."
            )
        if not np.isfinite(solution.gap):  # its multipliers make no tangent
            raise SolverError(f"A context of the learning split could not be solved: {solution.status}.")
        if self.sharp is not None:
            self.sharp.remember(self.solver.solver.active_rows())
        return solution.value, solution.y[self.first :]


class _SegmentReachCost:
    """Decisions z(s), 0 <= s <= last: a maximum of lines in s plus a parabola, minimised for all contexts at once."""

    is_closed_form = True

    def __init__(
        self, problem: DecisionProblem, centers: Array, z0: Array, z1: Array, base: Array, last: float = 1.0
    ) -> None:
        pieces = problem.structure.pieces
        self.last = last
        self.levels = centers @ pieces.q.T + pieces.p @ z0 + pieces.c
        self.slopes = pieces.p @ (z1 - z0)
        self.base = base
        self.first, self.second = np.triu_indices(len(pieces), k=1)

    def tangent(self, reach: Array, contexts: Indices | None = None) -> tuple[float, Tangent]:
        levels = reach + (self.levels if contexts is None else self.levels[contexts])
        totals, weights = self._solved(levels)
        slopes = weights.mean(axis=0)
        proven = self._proven(weights, levels).mean()
        return float(totals.mean()), Tangent(float(proven - slopes @ reach), slopes)

    def each(self, reach: Array, contexts: Indices) -> tuple[Array, Array]:
        return self._solved(reach + self.levels[contexts])

    def _solved(self, levels: Array) -> tuple[Array, Array]:
        """The least maximum of each context and the weights of its pieces."""
        s = self._candidates(levels)
        parabola = self.base[0] + (self.base[1] + self.base[2] * s) * s
        # Piece by piece: a maximum over a short last axis takes several times as long.
        highest = levels[:, :1] + s * self.slopes[0]
        for level, slope in zip(levels.T[1:], self.slopes[1:], strict=True):
            np.maximum(highest, level[:, None] + s * slope, out=highest)
        totals = parabola + highest
        best = totals.argmin(axis=1)
        rows = np.arange(len(levels))
        s = s[rows, best]
        return totals[rows, best], self._weights(levels + s[:, None] * self.slopes, s)

    def _proven(self, weights: Array, levels: Array) -> Array:
        """The least of the pieces' weighted mean over s: below F at every reach, whatever the weights are."""
        height, rise = (weights * levels).sum(axis=1), weights @ self.slopes + self.base[1]
        curve = self.base[2]
        s = np.clip(-rise / (2 * curve), 0.0, 1.0) if curve > 0 else (rise < 0).astype(float)
        return np.asarray(self.base[0] + height + (rise + curve * s) * s)

    def _candidates(self, levels: Array) -> Array:
        """Where a minimum can be: the ends, where two lines cross, where a line balances the parabola."""
        n = len(levels)
        rise = self.slopes[self.second] - self.slopes[self.first]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (levels[:, self.first] - levels[:, self.second]) / rise
        end = self.last if np.isfinite(self.last) else 0.0
        ends = np.tile([0.0, end], (n, 1))
        parts = [ends, np.nan_to_num(crossing, nan=0.0, posinf=end, neginf=0.0)]
        if self.base[2] > 0:
            parts.append(np.tile(-(self.base[1] + self.slopes) / (2 * self.base[2]), (n, 1)))
        return np.clip(np.concatenate(parts, axis=1), 0.0, self.last)

    def _weights(self, heights: Array, s: Array) -> Array:
        """Multipliers of the pieces: the steepest rising and falling active lines, in balance."""
        active = heights >= heights.max(axis=1, keepdims=True) - 1e-9 * (1 + np.abs(heights).max())
        total = self.slopes + (self.base[1] + 2 * self.base[2] * s)[:, None]
        up = np.where(active, total, -np.inf).argmax(axis=1)
        down = np.where(active, total, np.inf).argmin(axis=1)
        rows = np.arange(len(s))
        high, low = total[rows, up], total[rows, down]
        inside = (low < 0) & (high > 0)
        share = np.where(inside, -low / np.where(inside, high - low, 1.0), np.where(low >= 0, 0.0, 1.0))
        weights = np.zeros_like(heights)
        weights[rows, up] += share
        weights[rows, down] += 1 - share
        return weights


class FixedDirectionSearch:
    """Cutting planes on the continuous master, then on the integer one.

    What the lower bound rests on: along each direction one of the n_drop + 1 furthest residuals is kept, which gives
    the floor; star inequalities over it; tangents of F; and the master's own dual bound.
    """

    def __init__(
        self,
        problem: DecisionProblem,
        residuals: Array,
        centers: Array,
        rank: int,
        tolerance: float,
        budget: Budget,
    ) -> None:
        self.heights = residuals @ problem.structure.pieces.q.T
        self.n, self.n_drop = len(residuals), len(residuals) - rank
        self.ranked = [
            [(float(column[j]), (int(j),)) for j in np.argsort(-column, kind="stable")] for column in self.heights.T
        ]
        floor = -np.sort(-self.heights, axis=0)[self.n_drop]
        rise = float((self.heights.max(axis=0) - floor).max())
        self.master = Master(self.n, self.n_drop, floor, None, rise)
        self.cost, self.tolerance, self.budget = reach_cost(problem, centers), tolerance, budget
        self.work_of_tangent = 0 if self.cost.is_closed_form else len(centers)
        self.n_rows = len(problem.feasible.program.b) + len(problem.structure.pieces)
        self.lower, self.upper, self.unit = -np.inf, np.inf, 0.0
        self.best_kept = np.ones(self.n, dtype=bool)

    def run(self, start: Mask | None, began: float) -> CertifiedBound:
        """Search until the bounds meet or the budget is spent."""
        self._visit(np.ones(self.n, dtype=bool))
        interrupted = False
        try:
            self._search(start)
        except KeyboardInterrupt:
            interrupted = True
        return certified(
            self.lower,
            self.upper,
            self.best_kept,
            unit=self.unit,
            tolerance=self.tolerance,
            seconds=time.perf_counter() - began,
            interrupted=interrupted,
            detail=f"{len(self.master.cuts)} star inequalities along {self.heights.shape[1]} directions",
        )

    def _search(self, start: Mask | None) -> None:
        highest = self.upper
        self.lower = self._touch(self.master.floor)
        self.unit = max(highest - self.lower, float(np.ptp(self.heights, axis=0).max()))
        if start is not None and start.sum() >= self.n - self.n_drop:
            self._visit(start)
        self._tighten(integer=False)
        self._tighten(integer=True)

    def _allowed(self) -> float:
        """The gap at which the search ends: a share of how much residuals differ in cost, or can save."""
        return self.tolerance * self.unit

    def _touch(self, reach: Array) -> float:
        value, tangent = self.cost.tangent(reach)
        self.budget.spend(self.n_rows, times=self.work_of_tangent)
        self.master.tangents.append(tangent)
        return value

    def _visit(self, kept: Mask) -> None:
        """Evaluate a selection exactly: an upper bound, and a tangent where it matters."""
        value = self._touch(self.heights[kept].max(axis=0))
        if value < self.upper:
            self.upper, self.best_kept = value, kept.copy()

    def _tighten(self, *, integer: bool) -> None:
        while not self.budget.is_over and self.upper - self.lower > self._allowed():
            n_rows = self.master.n_rows
            solution = self.master.solve(
                integer=integer, time_limit=self.budget.seconds, max_nodes=self.budget.affords(n_rows)
            )
            self.budget.spend(n_rows, times=1 + solution.n_nodes)
            if not solution.status.has_solution or (solution.status is Status.STOPPED_EARLY and not integer):
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            drop, levels = self.master.split(solution.x)
            added = self._separate(drop, levels)
            behind = self._touch(levels) - solution.value
            self._visit(self._rounded(drop))
            is_settled = not added and behind <= SOLVER * self.master.unit
            if is_settled or solution.status is Status.STOPPED_EARLY:
                return

    def _separate(self, drop: Array, levels: Array) -> int:
        added = 0
        for level, ranked in enumerate(self.ranked):
            cut = star_inequality(level, ranked, drop, float(self.master.floor[level]))
            if cut is not None and cut.value_at(drop) > levels[level] + SOLVER * self.master.unit:
                self.master.cuts.append(cut)
                added += 1
        return added

    def _rounded(self, drop: Array) -> Mask:
        kept = np.ones(self.n, dtype=bool)
        kept[np.argsort(-drop, kind="stable")[: self.n_drop]] = False
        return kept
