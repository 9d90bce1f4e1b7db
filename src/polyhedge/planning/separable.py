r"""Separable costs, one term a decision, as a newsvendor's: decisions from sorted residuals, without a program.

The cost is $\sum_i k_i z_i + \max(a^+_i t_i, a^-_i t_i) + b_i u_{j(i)}$ with
$t_i = z_i - \beta_i u_{j(i)} - \kappa_i$, decisions have bounds, and at most one row $a^\top z = h$ or
$a^\top z \le h$ couples them. At $u = c + s\,e$ a term is $s$ times one function of
$\zeta_i = (z_i - \beta_i c_{j(i)} - \kappa_i) / s$, whose slopes are the same at all rows: they are tabled once. With a
price $\lambda$ on the row every decision is a look-up, and $\lambda$ is found by halving.

Integers are allocated by marginal costs: the best integer at a price is one of the two next to the look-up, and units
that cost the same at the final price fill what the row has left. This is exact if all units weigh the same in the row.

The tail of a sum is not the sum of tails. A tail rule takes the latter, which is what the tail would be if the worst
came to all terms at once: more careful than the tail of the sum, and scored like any other rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhedge._support.tolerances import FEASIBLE, TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.data.splits import evenly_chosen
from polyhedge.planning.risk import Risk
from polyhedge.problems import DecisionProblem
from polyhedge.problems.pieces import SumOfMaxima
from polyhedge.solvers.program import row_kinds

# Differences of coefficients below this share of them are rounding.
_SAME = 1e-9
# The price is halved down to this share of it: well above rounding, so that terms which are indifferent at one price
# share what is left in every unit of theirs, and well below what a residual more or less makes of a slope.
_SAME_PRICE = 2.0**-40
_MOST_KNOTS = 128
"""Residuals at which the slope of a tail is tabled: each takes a pass over all of them."""
_BLOCK, _FEW = 2**16, 2**8
"""Rows that are worked on at a time, and rows that are few."""


@dataclass(frozen=True, eq=False)
class Separable:
    """The terms and what couples them; arrays have an entry for each decision.

    Attributes
    ----------
    outcome : j(i).
    beta, kappa : where the kinks are.
    high, low : slopes beyond and before the kink.
    common : b_i.
    slope : k_i.
    lower, upper : bounds.
    row, limit, is_equation : the coupling row; a row of zeros where there is none.
    is_integer : whether all decisions are integers, of the same weight in the row.
    """

    outcome: Indices
    beta: Array
    kappa: Array
    high: Array
    low: Array
    common: Array
    slope: Array
    lower: Array
    upper: Array
    row: Array
    limit: float
    is_equation: bool
    is_integer: bool = False

    def tabled(self, points: Array, risk: Risk) -> Tables:
        """The risk of the terms over points (n, d)."""
        return Tables(self, [self._table(i, points[:, self.outcome[i]], risk) for i in range(len(self.slope))])

    def _table(self, i: int, residuals: Array, risk: Risk) -> tuple[Array, Array]:
        kinks, low, high = self.beta[i] * residuals, self.low[i], self.high[i]
        knots, n = np.sort(kinks), len(kinks)
        if risk.is_mean:
            return knots, low + (high - low) * np.arange(n + 1) / n
        knots = knots[evenly_chosen(n, _MOST_KNOTS)]
        beyond = np.ptp(knots) or 1.0
        between = np.concatenate([[knots[0] - beyond], (knots[:-1] + knots[1:]) / 2, [knots[-1] + beyond]])
        t = between[:, None] - kinks
        weights = risk.weights(np.where(t > 0, high, low) * t + self.common[i] * residuals)
        slopes = (weights * np.where(t > 0, high, low)).sum(axis=1)
        return knots, np.maximum.accumulate(slopes)


@dataclass(frozen=True, eq=False)
class Tables:
    """The risk of each term: knots (K,) of zeta, and its slopes (K + 1,) between them."""

    cost: Separable
    terms: list[tuple[Array, Array]]

    def least(self, contexts: Array, scales: Array) -> Array:
        """Decisions (N, p) of least risk at contexts (N, d) with spreads (N,); each is a function of its row alone."""
        parts = [slice(k, k + _BLOCK) for k in range(0, len(contexts), _BLOCK)]
        decisions = [self._least(contexts[part], scales[part]) for part in parts]
        return np.vstack([np.zeros((0, len(self.terms))), *decisions])

    def _least(self, contexts: Array, scales: Array) -> Array:
        """The decisions at the price at which the coupling row is just kept."""
        cost, centers = self.cost, self.cost.kappa + self.cost.beta * contexts[:, self.cost.outcome]
        free = self._placed(np.zeros(1), centers, scales)
        within = ~np.array(cost.is_equation) & (free @ cost.row <= cost.limit)
        if not cost.row.any() or within.all():
            return free
        rows = np.flatnonzero(~within)
        centers, scales = centers[rows], scales[rows]
        if cost.is_integer:
            free[rows] = self._filled(*self._halved(centers, scales))
            return free
        more, less = self._stepped(centers, scales, free[rows])
        above, below = more @ cost.row, less @ cost.row
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip((cost.limit - below) / (above - below), 0.0, 1.0)
        free[rows] = less + np.where(above > below, share, 0.0)[:, None] * (more - less)
        return free

    @cached_property
    def _steps(self) -> Array:
        """Where decisions stand, as zeta (M, p), between the prices at which a term is indifferent.

        These prices are the same for all rows, and decisions change nowhere else. Prices that differ by a share of
        2^-40 are one, so that terms which are indifferent together share what is left.
        """
        cost = self.cost
        each = zip(self.terms, cost.slope, cost.row, strict=True)
        steps = np.sort(np.concatenate([-(slopes + k) / a for (_, slopes), k, a in each if a]))
        if not cost.is_equation:
            steps = np.append(0.0, steps[steps > 0])
        is_next = np.diff(steps) > _SAME_PRICE * np.maximum(np.abs(steps[1:]), np.abs(steps[steps != 0]).min(initial=0))
        beyond = np.ptp(steps) or abs(steps[-1]) or 1.0
        between = np.concatenate([((steps[:-1] + steps[1:]) / 2)[is_next], [steps[-1] + beyond]])
        return self._zeta(np.append(steps[0] - beyond, between) if cost.is_equation else between)

    def _stepped(self, centers: Array, scales: Array, free: Array) -> tuple[Array, Array]:
        """Decisions just before and just behind the price at which the row is kept."""
        cost, zeta, rows = self.cost, self._steps, np.arange(len(free))

        def placed(k: Indices) -> Array:
            return np.minimum(np.maximum(centers[:, None] + scales[:, None, None] * zeta[k], cost.lower), cost.upper)

        low, high = np.full(len(free), -1), np.full(len(free), len(zeta) - 1)
        ways = 2 if len(free) > _FEW else 32  # of few rows a call takes longer than its numbers
        while (high - low > 1).any():
            middle = np.maximum(low[:, None] + (high - low)[:, None] * np.arange(1, ways) // ways, 0)
            n_over = (placed(middle) @ cost.row > cost.limit).sum(axis=1)
            edges = np.column_stack([low, middle, high])
            low, high = edges[rows, n_over], edges[rows, n_over + 1]
        more, less = placed(np.maximum(np.column_stack([low, high]), 0)).transpose(1, 0, 2)
        return np.where((low < 0)[:, None], free, more), less

    def _zeta(self, price: Array) -> Array:
        """Where the decisions stand (N, p) when the coupling row has this price (N,)."""
        zeta = np.empty((len(price), len(self.terms)))
        for i, (stands, slopes, tie) in enumerate(self._stands):
            zeta[:, i] = stands[slopes.searchsorted(-(self.cost.slope[i] + price * self.cost.row[i]) - tie)]
        return zeta

    @cached_property
    def _without_price(self) -> Array:
        return self._zeta(np.zeros(1))

    @cached_property
    def _stands(self) -> list[tuple[Array, Array, float]]:
        """For each term where its decision may stand, the slopes between, and what counts as level."""
        ends = [-np.inf], [np.inf]
        return [(np.concatenate([ends[0], knots, ends[1]]), s, TIE * np.abs(s).max()) for knots, s in self.terms]

    def _placed(self, price: Array, centers: Array, scales: Array) -> Array:
        """The best decisions when the coupling row has this price (N,), or one for all rows (1,)."""
        cost = self.cost
        zeta = self._zeta(price) if price.any() else self._without_price
        z = np.minimum(np.maximum(centers + scales[:, None] * zeta, cost.lower), cost.upper)
        if not cost.is_integer:
            return z
        below = np.floor(z + FEASIBLE)
        for i, (knots, slopes) in enumerate(self.terms):
            start = below[:, i] - centers[:, i]
            step = _risen(knots, slopes, start / scales, (start + 1) / scales)
            rises = scales * step + (cost.slope[i] + price * cost.row[i]) > -TIE * np.abs(slopes).max()
            z[:, i] = below[:, i] + ~(rises | (below[:, i] + 1 > cost.upper[i]))
        return z

    def _halved(self, centers: Array, scales: Array) -> tuple[Array, Array]:
        """Integers just behind and just before that price, which depends on the row: by halving."""
        cost = self.cost
        each = zip(self.terms, cost.slope, cost.row, strict=True)
        ends = [np.abs((slopes + k) / a).max() for (_, slopes), k, a in each if a]
        # Shares of the slopes and nothing absolute: in other units the same halvings find the same price.
        reach = 2 * max(ends) or 1.0
        least = min((end for end in ends if end > 0), default=reach)
        low, high = np.full(len(centers), -reach if cost.is_equation else 0.0), np.full(len(centers), reach)
        while True:
            is_open = high - low > _SAME_PRICE * np.maximum(np.maximum(np.abs(low), np.abs(high)), least)
            if not is_open.any():
                return self._placed(high, centers, scales), self._placed(low, centers, scales)
            middle = (low + high) / 2
            is_over = self._placed(middle, centers, scales) @ cost.row > cost.limit
            low, high = np.where(is_open & is_over, middle, low), np.where(is_open & ~is_over, middle, high)

    def _filled(self, less: Array, more: Array) -> Array:
        """Integer decisions at the final price, with as many of the units between them as the row takes."""
        cost, z = self.cost, less.copy()
        left = np.floor((cost.limit - less @ cost.row) / np.abs(cost.row).max() + FEASIBLE)
        for i in range(z.shape[1]):
            units = np.clip(left, 0, np.abs(more[:, i] - less[:, i]))
            z[:, i] += np.sign(cost.row[i]) * units
            left -= units
        is_kept = left == 0 if cost.is_equation else left >= 0
        return np.where(is_kept[:, None], z, np.nan)


def _risen(knots: Array, slopes: Array, start: Array, end: Array) -> Array:
    """By how much the function with these slopes between its knots rises from `start` (N,) to `end` (N,)."""
    heights = np.concatenate([[0.0], np.cumsum(slopes[1:-1] * np.diff(knots))])

    def at(x: Array) -> Array:
        passed = np.searchsorted(knots, x)
        before = np.maximum(passed - 1, 0)
        return np.asarray(heights[before] + slopes[passed] * (x - knots[before]))

    return at(end) - at(start)


def separable_of(problem: DecisionProblem) -> Separable | None:
    """The terms of a problem's cost; None where it is not separable."""
    if not problem.structure.has_maxima or problem.parameters:
        return None
    joint, program, columns = problem.structure.maxima, problem.feasible.program, problem.feasible.z_columns
    if not joint.groups or joint.base[1:, 1:].any():
        return None
    if not program.is_linear or len(program.c) != problem.n_decisions:
        return None
    terms, bounds = _terms(joint, problem.n_decisions), _bounds(problem)
    if terms is None or bounds is None:
        return None
    lower, upper, row, limit, is_equation = bounds
    if row.any() and not np.isfinite([lower, upper]).all():
        return None
    is_integer = len(program.integer) > 0
    if is_integer:
        lower, upper, weights = np.ceil(lower - FEASIBLE), np.floor(upper + FEASIBLE), row[row != 0]
        if len(program.integer) < len(columns) or len(np.unique(weights)) > 1 or (lower > upper).any():
            return None
    slope = program.c[columns] + joint.base[1:, 0]
    return Separable(*terms, slope, lower, upper, row, limit, is_equation, is_integer)


def _terms(joint: SumOfMaxima, p: int) -> tuple[Indices, Array, Array, Array, Array, Array] | None:
    """Outcome, beta, kappa, high, low and common of each decision."""
    outcome, kinks, slopes, common = np.full(p, -1), np.zeros((p, 2)), np.zeros((p, 2)), np.zeros(p)
    for group in joint.groups:
        own = np.flatnonzero(np.ptp(group[:, 1:, 0], axis=0)), np.flatnonzero(np.ptp(group[:, 0, 1:], axis=0))
        if group[:, 1:, 1:].any() or any(len(one) != 1 for one in own):
            return None
        if np.count_nonzero(group[:, 1:, 0].any(axis=0)) > 1 or np.count_nonzero(group[:, 0, 1:].any(axis=0)) > 1:
            return None
        i, j = (int(one[0]) for one in own)
        a, b, k = group[:, 1 + i, 0], group[:, 0, 1 + j], group[:, 0, 0]
        first, last = int(a.argmin()), int(a.argmax())
        kink = -np.array([b[last] - b[first], k[last] - k[first]]) / (a[last] - a[first])
        if any(np.ptp(side + a * at) > _SAME * np.abs(side).max() for side, at in ((b, kink[0]), (k, kink[1]))):
            return None
        if outcome[i] >= 0 and (outcome[i] != j or (np.abs(kinks[i] - kink) > _SAME * np.abs(kink)).any()):
            return None
        outcome[i], kinks[i] = j, kink
        slopes[i] += a[last], a[first]
        common[i] += b[first] + a[first] * kink[0]
    for j in np.unique(outcome[outcome >= 0]):
        common[np.flatnonzero(outcome == j)[0]] += joint.base[0, 1 + j]
    return np.maximum(outcome, 0), kinks[:, 0], kinks[:, 1], slopes[:, 0], slopes[:, 1], common


def _bounds(problem: DecisionProblem) -> tuple[Array, Array, Array, float, bool] | None:
    """Bounds of the decisions and the row that couples them; None where several do."""
    program, columns = problem.feasible.program, problem.feasible.z_columns
    A, b, is_zero = program.A.toarray()[:, columns], program.b, row_kinds(program.cones) == "zero"
    entries = np.count_nonzero(A, axis=1)
    coupling = np.flatnonzero(entries > 1)
    if len(coupling) > 1:
        return None
    lower, upper = np.full(A.shape[1], -np.inf), np.full(A.shape[1], np.inf)
    for k in np.flatnonzero(entries == 1):
        i = int(np.flatnonzero(A[k])[0])
        if A[k, i] > 0 or is_zero[k]:
            upper[i] = min(upper[i], b[k] / A[k, i])
        if A[k, i] < 0 or is_zero[k]:
            lower[i] = max(lower[i], b[k] / A[k, i])
    if not len(coupling):
        return lower, upper, np.zeros(A.shape[1]), 0.0, False
    row, limit = A[coupling[0]], float(b[coupling[0]])
    if (row > 0).all() and np.isfinite(lower).all():  # what the others leave at least
        upper = np.minimum(upper, lower + (limit - row @ lower) / row)
    return lower, upper, row, limit, bool(is_zero[coupling[0]])
