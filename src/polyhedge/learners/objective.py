r"""The mean robust cost of {e : W e <= q} over contexts, and its gradient in W and q by the envelope theorem.

Each context contributes $\sum_l \pi_l\lambda_l$ in q and $-\sum_l \pi_l\lambda_l e_l^\top$ in W, where $\pi$ are the
multipliers of the cost's pieces, $\lambda$ those of the facets and e the worst-case residuals (at a mixed decision a
convex combination of vertices). The first route that applies is taken:

| route        | applies to                                    | how                                             |
|--------------|-----------------------------------------------|-------------------------------------------------|
| segment      | two outcomes, decisions on a segment          | closed form over pairs of facets                |
| interval     | as below, one outcome                         | closed form on both sides                       |
| cut reach    | fixed directions, something known of outcomes | reaches of each context, where the support cuts |
| reach        | fixed directions                              | reaches of the set, which all contexts share    |
| pivots       | one affine piece, linear rows, nothing known  | from known bases, else by a solver              |
| counterparts | a maximum of listed pieces                    | in a batch where costs bend, else one by one    |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Self

import numpy as np

from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.structure import Segment
from polyhedge.robust import Counterpart
from polyhedge.robust.counterpart import CounterpartSolution
from polyhedge.robust.engine.batch import batch_engine
from polyhedge.robust.engine.parametric import ContextSolver, level_program
from polyhedge.robust.support import CutReach
from polyhedge.robust.warm_starts import SharpPrograms, SharpVertices, sharp_levels, sharp_programs
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import SolverError

_MAX_PIECES = 16
"""Closed forms look at every pair of pieces for each context."""
_BATCH = 8
"""Contexts from which it is quicker to solve them in a batch than one after the other."""
_WEIGHT = 1e-9
"""Weight of a piece below which it is a solver's rounding; all weights of a context sum to 1."""


@dataclass(frozen=True)
class FacetGradient:
    """Mean robust cost of {e : W e <= q} and its (sub)gradient in W (K, d) and q (K,)."""

    value: float
    W: Array
    q: Array

    @classmethod
    def infinite(cls, W: Array, q: Array) -> Self:
        """The gradient of a set against which some context has no finite cost."""
        return cls(np.inf, np.zeros_like(W), np.zeros_like(q))


@dataclass(frozen=True, eq=False)
class FacetCosts:
    """Costs of polyhedra {e : W e <= q} for the contexts of a problem; programs are kept from one to the next."""

    problem: DecisionProblem
    centers: Array

    def gradient(self, W: Array, q: Array, contexts: Indices) -> FacetGradient:
        """Mean cost over the contexts and its gradient; infinite where a context has no finite cost.

        Against a box, many pieces of a cost with fixed directions are the worst at once. The gradient is then taken at
        reaches that differ by about 1e-5: which piece counts must not depend on a solver's last digit.
        """
        return next(route for applies, route in ROUTES.values() if applies(self))(self, W, q, contexts)

    def cost(self, W: Array, q: Array, contexts: Indices) -> float:
        """Mean cost over the contexts."""
        if not self.has_shared_reach:
            return self.gradient(W, q, contexts).value
        reach = self.supports(W, q).values
        return self.reach_cost.mean(reach, contexts)[0] if np.isfinite(reach).all() else np.inf

    @property
    def is_plane_segment(self) -> bool:
        """Whether decisions lie on a segment and outcomes in the plane."""
        return self.problem.n_outcomes == 2 and self.problem.structure.segment is not None

    @property
    def is_cut(self) -> bool:
        """Whether directions are fixed, and a known support of outcomes cuts the set of each context."""
        structure = self.problem.structure
        return structure.has_known_support and structure.has_fixed_directions_in_support

    @property
    def has_shared_reach(self) -> bool:
        """Whether directions are fixed, and the reach of a set along them is the same for all contexts."""
        return self.problem.structure.has_fixed_directions and not self.is_plane_segment and not self.is_cut

    @property
    def has_closed_form(self) -> bool:
        """Whether all contexts are evaluated at once, without a solver for each."""
        if self.is_plane_segment:
            return True
        is_quick = self.problem.structure.has_fixed_directions or (self.is_cut and self.problem.n_outcomes == 1)
        return is_quick and self.reach_cost.is_closed_form

    @cached_property
    def reach_cost(self) -> ReachCost:
        """The cost as a function of the set's reach along its fixed directions."""
        return reach_cost(self.problem, self.centers)

    @cached_property
    def supports(self) -> SharpVertices:
        """Supports along the cost's fixed directions."""
        return SharpVertices(self.problem.structure.pieces.q)

    @cached_property
    def sharp_programs(self) -> SharpPrograms | None:
        """Programs of a cost that is affine in outcome and decision."""
        return sharp_programs(self.problem)

    def counterpart(self, W: Array, q: Array) -> Counterpart:
        """The program for any context."""
        return Counterpart(self.problem, Polyhedron.from_halfspaces(W, q), 0.0)


# Segment: in the plane the support function of {e : W e <= q} is a minimum over pairs of facets,
# h(v) = min {q_a l_a + q_b l_b : l_a w_a + l_b w_b = v, l >= 0}. Along a segment of decisions both multipliers of a
# pair are affine in s, so that each pair is usable on an interval of s.


def _along_segment(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    segment, centers = costs.problem.structure.segment, costs.centers[contexts]
    assert segment is not None
    turn, curve = segment.v1 - segment.v0, segment.base[2]
    pairs = np.array(list(combinations(range(len(W)), 2)))
    matrices = np.swapaxes(W[pairs], 1, 2)
    is_proper = np.abs(np.linalg.det(matrices)) > 1e-7 * np.linalg.norm(W, axis=1)[pairs].prod(axis=1)
    pairs, inverse = pairs[is_proper], np.linalg.inv(matrices[is_proper])
    start, slope = inverse @ segment.v0, inverse @ turn
    with np.errstate(divide="ignore", invalid="ignore"):
        root = -start / slope
    low = np.where(slope > 0, root, np.where((slope == 0) & (start < 0), np.inf, 0.0)).max(axis=1, initial=0.0)
    high = np.where(slope < 0, root, 1.0).min(axis=1, initial=1.0)
    is_usable = low <= high
    if not is_usable.any():
        return FacetGradient.infinite(W, q)
    # Of pairs that tie, as at the ends of the segment against an axis facet, the one usable furthest is taken.
    order = np.flatnonzero(is_usable)[np.argsort((low - high)[is_usable], kind="stable")]
    pairs, (start, slope, low, high) = pairs[order], (part[order] for part in (start, slope, low, high))
    g1 = segment.base[1] + centers @ turn
    height, rise = (start * q[pairs]).sum(axis=1), (slope * q[pairs]).sum(axis=1) + g1[:, None]
    s = np.clip(-rise / (2 * curve), low, high) if curve > 0 else np.where(rise > 0, low, high)
    totals = height + (rise + curve * s) * s
    rows = np.arange(len(centers))
    best = (totals <= totals.min(axis=1, keepdims=True) + TIE).argmax(axis=1)
    values, s = segment.base[0] + centers @ segment.v0 + totals[rows, best], s[rows, best]
    multipliers = np.maximum(start[best] + slope[best] * s[:, None], 0.0)
    worst = _worst_residuals(segment, W, q, pairs, best, multipliers, s, g1 + 2 * curve * s)
    facet, weight = pairs[best].T.ravel(), multipliers.T.ravel() / len(centers)
    sums = [np.bincount(facet, pull, len(W)) for pull in (weight, *(-weight * np.tile(each, 2) for each in worst.T))]
    return FacetGradient(float(values.mean()), np.column_stack(sums[1:]), np.asarray(sums[0], dtype=float))


def _worst_residuals(
    segment: Segment, W: Array, q: Array, pairs: Indices, best: Indices, multipliers: Array, s: Array, slope: Array
) -> Array:
    """The vertex of the best pair, or, where one multiplier vanishes inside the segment, the point of the other
    facet at which the context is indifferent: the saddle point's mixture of two vertices.
    """
    used = np.unique(best)
    vertices = np.zeros((len(pairs), 2))
    vertices[used] = np.linalg.solve(W[pairs[used]], q[pairs[used]][..., None])[..., 0]
    residuals = vertices[best]
    less, more = np.minimum(*multipliers.T), np.maximum(*multipliers.T)
    mixed = np.flatnonzero((less <= 1e-9 * more) & (s > 1e-12) & (s < 1 - 1e-12))
    facets = pairs[best[mixed]]
    kept = np.where(multipliers[mixed, 0] < multipliers[mixed, 1], facets[:, 1], facets[:, 0])
    matrices = np.stack([W, np.broadcast_to(segment.v1 - segment.v0, W.shape)], axis=1)
    is_singular = np.abs(np.linalg.det(matrices)) <= 1e-12 * np.linalg.norm(matrices, axis=2).prod(axis=1)
    mixed, kept = mixed[~is_singular[kept]], kept[~is_singular[kept]]
    residuals[mixed] = np.linalg.solve(matrices[kept], np.stack([q[kept], -slope[mixed]], axis=1)[..., None])[..., 0]
    return residuals


# Fixed directions: the cost sees a set only through its reach along few directions.


def _by_reach(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    certificate = costs.supports(W, q)
    if not np.isfinite(certificate.values).all():
        return FacetGradient.infinite(W, q)
    # Multiples of the golden ratio by squares: no two sums of as many of them are alike.
    apart = 2.0**-16 * np.modf((5**0.5 - 1) / 2 * np.arange(len(certificate.values)) ** 2)[0]
    value, slopes = costs.reach_cost.mean(certificate.values + apart, contexts)
    weighted = slopes[:, None] * certificate.multipliers
    return FacetGradient(value - float(slopes @ apart), -weighted.T @ certificate.points, weighted.sum(axis=0))


def _by_cut_reach(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    r"""Contexts have reaches $h_l(f) = \max \{q_l^\top e : W e \le q,\ A (f + e) \le h\}$, computed where they count.

    A reach counts where its piece is tight, and differs from that of the whole set where the support binds.
    """
    form, pieces = Polyhedron.from_halfspaces(W, q).conic_form(0.0), costs.problem.structure.pieces
    reach = CutReach(form, pieces.q, costs.problem.support_rows, costs.supports(W, q))
    centers = costs.centers[contexts]
    each, is_exact = [reach.start() for _ in contexts], reach.is_free(centers)
    due = np.tile(~np.isfinite(reach.free.values), (len(contexts), 1))
    while True:
        for i in np.flatnonzero(due.any(axis=1)):
            if not reach.cut(each[i], centers[i], np.flatnonzero(due[i])):
                return FacetGradient.infinite(W, q)
        is_exact |= due
        values, weights = costs.reach_cost.each(np.array([one.values for one in each]), contexts)
        due = (weights > _WEIGHT) & ~is_exact
        if not due.any():
            break
    total = _Total(W, q)
    for value, weight, one in zip(values, weights, each, strict=True):
        used = np.flatnonzero(weight)
        pull = weight[used, None] * one.multipliers[used]
        total.add(value, pull.sum(axis=0), pull.T @ one.points[used])
    return total.mean(len(contexts))


def _by_interval(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    """One outcome: the support leaves an interval of an interval; all contexts at once."""
    (A, h), w, center = costs.problem.support_rows, W[:, 0], costs.centers[contexts, 0]
    direction = costs.problem.structure.pieces.q[:, 0]
    facets, is_facet, reaches, pulls = [], [], [], []
    for sign in (1.0, -1.0):
        is_limit = sign * A[:, 0] > 0
        limits = (h[is_limit] / np.abs(A[is_limit, 0])).min(initial=np.inf) - sign * center
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(sign * w > 0, q / np.abs(w), np.inf)
        facets.append(int(np.argmin(reach)))
        is_facet.append(reach[facets[-1]] <= limits)
        reaches.append(np.minimum(reach[facets[-1]], limits))
        pulls.append(np.maximum(sign * direction, 0.0))
    if not (np.isfinite(reaches).all() and (reaches[0] + reaches[1] >= 0).all()):
        return FacetGradient.infinite(W, q)
    values, weights = costs.reach_cost.each(np.outer(reaches[0], pulls[0]) + np.outer(reaches[1], pulls[1]), contexts)
    total = _Total(W, q)
    total.value = float(values.sum())
    for sign, facet, binds, reach, pull in zip((1.0, -1.0), facets, is_facet, reaches, pulls, strict=True):
        multipliers = np.where(binds, weights @ pull, 0.0) / abs(w[facet])
        total.q[facet] += multipliers.sum()
        total.W[facet] -= (multipliers * sign * reach).sum()
    return total.mean(len(contexts))


# Any pieces: programs.


def _by_pivots(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    total, sharp, counterpart = _Total(W, q), costs.sharp_programs, None
    assert sharp is not None
    left = total.add_sharp(sharp, costs.centers[contexts])
    while len(left):
        counterpart = counterpart or costs.counterpart(W, q)
        solution, left = counterpart.solve(left[0]), left[1:]
        if not total.add_solution(solution):
            return FacetGradient.infinite(W, q)
        if sharp.remember(solution.z, solution.facet_multipliers[0, : len(q)]):
            left = total.add_sharp(sharp, left)
    return total.mean(len(contexts))


def _by_counterparts(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    total, counterpart = _Total(W, q), costs.counterpart(W, q)
    left = total.add_batch(counterpart, costs.centers[contexts])
    is_finite = all(total.add_solution(counterpart.solve(center)) for center in left)
    return total.mean(len(contexts)) if is_finite else FacetGradient.infinite(W, q)


class _Total:
    """Sums of values and gradients over contexts."""

    def __init__(self, W: Array, q: Array) -> None:
        self.facets, self.value, self.W, self.q = (W, q), 0.0, np.zeros_like(W), np.zeros_like(q)

    def add(self, value: float, multipliers: Array, products: Array) -> None:
        """Values, multipliers of the facets, and products of these with worst residuals."""
        self.value += value
        self.q += multipliers
        self.W -= products

    def mean(self, n: int) -> FacetGradient:
        """Over n contexts."""
        return FacetGradient(self.value / n, self.W / n, self.q / n)

    def add_solution(self, solution: CounterpartSolution) -> bool:
        """Add one context from a solver; False where it has no finite worst case."""
        if solution.status.has_solution:
            facets = solution.facet_multipliers[:, : len(self.q)]
            self.add(solution.value, solution.weights @ facets, facets.T @ solution.weighted_points)
        return solution.status.has_solution

    def add_sharp(self, sharp: SharpPrograms, centers: Array) -> Array:
        """Add the contexts whose only solution is found by pivots from known bases; return the others."""
        costs = sharp(*self.facets, centers)
        facets = costs.multipliers[costs.is_sharp]
        self.add(float(costs.values[costs.is_sharp].sum()), facets.sum(axis=0), facets.T @ costs.points[costs.is_sharp])
        return centers[~costs.is_sharp]

    def add_batch(self, counterpart: Counterpart, centers: Array) -> Array:
        """Add the contexts that a batch solves, where the cost has one piece and bends; return the others.

        The facets' multipliers are columns of the program, the worst residual is the multiplier of its equations.
        """
        (W, q), block = self.facets, counterpart.blocks[0]
        is_bent, is_single = counterpart.parametric.at_zero.P is not None, len(counterpart.blocks) == 1
        if len(centers) < _BATCH or not (is_bent and is_single) or block.certificate is not None:
            return centers
        middle = centers.mean(axis=0)
        engine = batch_engine(counterpart, middle, np.abs(centers - middle).mean(axis=0))
        if engine is None:
            return centers
        values, x, y, is_proven = engine.with_multipliers(centers)
        facets = x[is_proven][:, block.multiplier_columns[: len(q)]]
        residuals = -y[is_proven][:, block.equation_rows[: W.shape[1]]]
        self.add(float(values[is_proven].sum()), facets.sum(axis=0), facets.T @ residuals)
        return centers[~is_proven]


_Applies = Callable[[FacetCosts], bool]
_Gradient = Callable[[FacetCosts, Array, Array, Indices], FacetGradient]
ROUTES: dict[str, tuple[_Applies, _Gradient]] = {
    "segment": (lambda costs: costs.is_plane_segment, _along_segment),
    "interval": (lambda costs: costs.is_cut and costs.problem.n_outcomes == 1, _by_interval),
    "cut reach": (lambda costs: costs.is_cut, _by_cut_reach),
    "reach": (lambda costs: costs.problem.structure.has_fixed_directions, _by_reach),
    "pivots": (lambda costs: costs.sharp_programs is not None, _by_pivots),
    "counterparts": (lambda costs: True, _by_counterparts),
}


class ReachCost(ABC):
    r"""$F(y) = \frac1m\sum_i \min_z g_0(z) + \max_l y_l + q_l^\top f_i + p_l^\top z + c_l$, convex in the reach y."""

    is_closed_form = False

    @abstractmethod
    def each(self, reach: Array, contexts: Indices) -> tuple[Array, Array]:
        """Costs (m,) of some contexts at a common reach (L,) or at one each (m, L), and weights of pieces (m, L)."""

    def mean(self, reach: Array, contexts: Indices) -> tuple[float, Array]:
        """The mean cost of some contexts at a reach, and its subgradient."""
        values, weights = self.each(reach, contexts)
        return float(values.mean()), weights.mean(axis=0)

    @abstractmethod
    def tangent(self, reach: Array) -> tuple[float, float, Array]:
        """F at a reach, and constant and slopes of a plane that nowhere exceeds F."""


def reach_cost(problem: DecisionProblem, centers: Array) -> ReachCost:
    """F for these contexts: in closed form where decisions lie on a segment (or ray), else by linear programs."""
    structure = problem.structure
    if len(structure.pieces) > _MAX_PIECES:
        return _ProgramReachCost(problem, centers)
    if structure.ends is not None and structure.base is not None:
        return _SegmentReachCost(problem, centers, *structure.ends, structure.base)
    # A decision without an upper limit, as orders of one product. A certificate would need an end; none is asked for
    # where the support of outcomes is known.
    if problem.n_outcomes == 1 and structure.has_known_support and structure.ray is not None:
        base = None if structure.own_cost is None else structure.own_cost.along(*structure.ray)
        rise = 0.0 if base is None else base[1] + (structure.pieces.p @ (structure.ray[1] - structure.ray[0])).max()
        if base is not None and (base[2] > 0 or rise > 0):
            return _SegmentReachCost(problem, centers, *structure.ray, base, last=np.inf)
    return _ProgramReachCost(problem, centers)


class _ProgramReachCost(ReachCost):
    """One warm-started program for all contexts: only right-hand sides change, and bases serve many of them."""

    def __init__(self, problem: DecisionProblem, centers: Array) -> None:
        parametric = level_program(problem)
        self.solver, self.sharp = ContextSolver(parametric), sharp_levels(parametric)
        self.zero = parametric.at_zero
        self.shifts, self.first = centers @ problem.structure.pieces.q.T, len(problem.feasible.program.b)

    def tangent(self, reach: Array) -> tuple[float, float, Array]:
        value, slopes = self.mean(reach, np.arange(len(self.shifts)))
        return value, value - float(slopes @ reach), slopes

    def each(self, reach: Array, contexts: Indices) -> tuple[Array, Array]:
        levels = reach + self.shifts[contexts]
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


class _SegmentReachCost(ReachCost):
    """Decisions z(s), 0 <= s <= last: a maximum of lines in s plus a parabola, minimised for all contexts at once."""

    is_closed_form = True

    def __init__(
        self, problem: DecisionProblem, centers: Array, z0: Array, z1: Array, base: Array, last: float = 1.0
    ) -> None:
        pieces = problem.structure.pieces
        self.base, self.last = base, last
        self.levels = centers @ pieces.q.T + pieces.p @ z0 + pieces.c
        self.slopes = pieces.p @ (z1 - z0)
        self.first, self.second = np.triu_indices(len(pieces), k=1)

    def tangent(self, reach: Array) -> tuple[float, float, Array]:
        """The plane rests on the least of the pieces' weighted mean over s, which is below F whatever the weights."""
        values, weights = self.each(reach, np.arange(len(self.levels)))
        height, rise = (weights * (reach + self.levels)).sum(axis=1), weights @ self.slopes + self.base[1]
        curve = self.base[2]
        s = np.clip(-rise / (2 * curve), 0.0, 1.0) if curve > 0 else (rise < 0).astype(float)
        proven, slopes = self.base[0] + height + (rise + curve * s) * s, weights.mean(axis=0)
        return float(values.mean()), float(proven.mean() - slopes @ reach), slopes

    def each(self, reach: Array, contexts: Indices) -> tuple[Array, Array]:
        levels = reach + self.levels[contexts]
        rows, s = np.arange(len(levels)), self._candidates(levels)
        # Piece by piece: a maximum over a short last axis takes several times as long.
        highest = levels[:, :1] + s * self.slopes[0]
        for level, slope in zip(levels.T[1:], self.slopes[1:], strict=True):
            np.maximum(highest, level[:, None] + s * slope, out=highest)
        totals = self.base[0] + (self.base[1] + self.base[2] * s) * s + highest
        best = totals.argmin(axis=1)
        s = s[rows, best]
        return totals[rows, best], self._weights(levels + s[:, None] * self.slopes, s)

    def _candidates(self, levels: Array) -> Array:
        """Where a minimum can be: the ends, where two lines cross, where a line balances the parabola."""
        n, end = len(levels), self.last if np.isfinite(self.last) else 0.0
        rise = self.slopes[self.second] - self.slopes[self.first]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (levels[:, self.first] - levels[:, self.second]) / rise
        parts = [np.tile([0.0, end], (n, 1)), np.nan_to_num(crossing, nan=0.0, posinf=end, neginf=0.0)]
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
