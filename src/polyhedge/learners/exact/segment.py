r"""Exact selection of residuals by dynamic programming, where the cost's directions form a segment.

With an affine cost and a one-dimensional Z (two-outcome budgets, for example) a decision is a number
s in [0, 1] and its cost direction is v(s) = v_0 + s (v_1 - v_0). Residual j is then the line
$\alpha_j + \beta_j s$ with $\alpha_j = v_0^\top e_j$, $\beta_j = (v_1 - v_0)^\top e_j$, and the scenario value of a
selection S is

$$V(S) = \frac1n \sum_i \min_{s \in [0, 1]} G_i(s) + \max_{j \in S} (\alpha_j + \beta_j s).$$

Only the upper envelope of the kept lines matters. Walk along it by rising slope. Where line i hands over to line j at
the breakpoint s_ij, a line whose slope lies between theirs rises above the envelope if and only if it is above the
breakpoint. So the lines that must be dropped are counted edge by edge, and so are the contexts whose minimum lies
there. The best envelope with at most n - c_n lines above it is a shortest path over (edge, dropped so far), which takes
O(m^2 (n - c_n)) time for m candidate lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.validation import Array, Mask
from polyhedge.problems.structure import Segment


def select_on_segment(segment: Segment, residuals: Array, centers: Array, rank: int) -> tuple[Mask, float] | None:
    """The `rank` residuals to keep at the least mean cost, and that cost; None where the table would be too large."""
    table = _Table(segment, residuals, centers, len(residuals) - rank)
    if len(table.candidates) ** 2 * (table.n_drop + 1) > 150_000_000:
        return None
    table.place_contexts()
    path, total = table.best_path()
    return table.below_envelope(path), total / len(centers)


class _Table:
    """Shortest path over (last edge of the envelope, lines dropped so far).

    Residuals are lines `all_alpha` + `all_beta` s, of which `alpha` and `beta` can show on an envelope; contexts cost
    g0 + g1 s + g2 s^2.
    """

    def __init__(self, segment: Segment, residuals: Array, centers: Array, n_drop: int) -> None:
        turn = segment.v1 - segment.v0
        alpha, beta = self.all_alpha, self.all_beta = residuals @ segment.v0, residuals @ turn
        self.g0, self.g1 = segment.base[0] + centers @ segment.v0, segment.base[1] + centers @ turn
        self.g2, self.n_drop = float(segment.base[2]), n_drop
        # What rounding may do to a height.
        self.tolerance = 1e-12 * float(1 + np.abs(alpha).max() + np.abs(beta).max())
        # At most n_drop others lie above a candidate everywhere; they are sorted by slope.
        ends = np.stack([alpha, alpha + beta])
        is_above = [(ends >= line[:, None]).all(axis=0) & (ends > line[:, None]).any(axis=0) for line in ends.T]
        chosen = np.flatnonzero(np.sum(is_above, axis=1) <= n_drop)
        self.candidates = chosen[np.lexsort((alpha[chosen], beta[chosen]))]
        self.alpha, self.beta = alpha[self.candidates], beta[self.candidates]

    def place_contexts(self) -> None:
        """Where each context's cost is least if a line alone were the envelope, and running sums of these costs."""
        slopes = self.g1 + self.beta[:, None]
        self.minimisers = np.clip(-slopes / (2 * self.g2), 0, 1) if self.g2 > 0 else (slopes < 0).astype(float)
        values = self._context_costs(self.minimisers) + self.alpha[:, None] + self.beta[:, None] * self.minimisers
        order = np.argsort(self.minimisers, axis=1)
        self.sorted_minimisers = np.take_along_axis(self.minimisers, order, axis=1)
        running = np.cumsum(np.take_along_axis(values, order, axis=1), axis=1)
        self.running = np.concatenate([np.zeros((len(running), 1)), running], axis=1)

    def _context_costs(self, s: Array | float) -> Array:
        """Cost without uncertainty of every context at s."""
        return np.asarray(self.g0 + (self.g1 + self.g2 * s) * s)

    def below_envelope(self, path: list[int]) -> Mask:
        """Which lines do not rise above the envelope of the lines on the path."""
        alpha, beta = self.all_alpha[path], self.all_beta[path]
        breaks = (alpha[:-1] - alpha[1:]) / (beta[1:] - beta[:-1])
        s = np.concatenate([[0.0], breaks, [1.0]])
        envelope = (alpha[:, None] + beta[:, None] * s).max(axis=0)
        heights = self.all_alpha[:, None] + self.all_beta[:, None] * s
        return np.asarray((heights <= envelope + self.tolerance).all(axis=1))

    def best_path(self) -> tuple[list[int], float]:
        """The lines of the best envelope by rising slope, and the contexts' total cost."""
        arrivals: list[list[_Arrival]] = [[self._start(j)] for j in range(len(self.candidates))]
        best, best_end = np.inf, None
        for i in range(len(self.candidates)):
            node = _Node(arrivals[i])
            dropped_at_end = self._above(1.0, i, self.all_beta > self.beta[i])
            if dropped_at_end <= self.n_drop:
                totals = node.least[-1][: self.n_drop + 1 - dropped_at_end] + self._interior(i, 1.0)
                count = int(np.argmin(totals))
                if totals[count] < best:
                    best, best_end = float(totals[count]), (node, node.which[-1, count], count)
            for j, arrival in self._departures(i, node):
                arrivals[j].append(arrival)
        assert best_end is not None
        return [int(self.candidates[line]) for line in _trace_back(*best_end)], best

    def _start(self, j: int) -> _Arrival:
        dropped = self._above(0.0, j, self.all_beta <= self.beta[j])
        costs = np.full(self.n_drop + 1, np.inf)
        if dropped <= self.n_drop:
            costs[dropped] = 0.0
        return _Arrival(0.0, costs, j, None, None, dropped)

    def _above(self, s: float, i: int, among: Mask) -> int:
        level = self.alpha[i] + self.beta[i] * s
        return int((among & (self.all_alpha + self.all_beta * s > level + self.tolerance)).sum())

    def _interior(self, i: int, s: float) -> float:
        """Total cost of the contexts whose minimum on line i lies in [0, s]."""
        return float(self.running[i, np.searchsorted(self.sorted_minimisers[i], s, side="right")])

    def _departures(self, i: int, node: _Node) -> list[tuple[int, _Arrival]]:
        """Edges from line i to steeper lines that start after line i was reached."""
        later = np.flatnonzero(self.beta > self.beta[i])
        s = (self.alpha[i] - self.alpha[later]) / (self.beta[later] - self.beta[i])
        later, s = later[(s >= 0) & (s <= 1)], s[(s >= 0) & (s <= 1)]
        position = np.searchsorted(node.s, s, side="right") - 1
        reachable = (position >= 0) & np.isfinite(node.least[position]).any(axis=1)
        later, s, position = later[reachable], s[reachable], position[reachable]
        if not len(later):
            return []
        level = self.alpha[i] + self.beta[i] * s
        between = (self.all_beta > self.beta[i]) & (self.all_beta <= self.beta[later][:, None])
        heights = self.all_alpha + self.all_beta * s[:, None]
        dropped = (between & (heights > level[:, None] + self.tolerance)).sum(axis=1)
        return [
            (int(j), self._arrive(i, int(j), float(sj), float(height), int(k), node, int(at)))
            for j, sj, height, k, at in zip(later, s, level, dropped, position, strict=True)
            if k <= self.n_drop
        ]

    def _arrive(self, i: int, j: int, s: float, level: float, dropped: int, node: _Node, at: int) -> _Arrival:
        here = (self.minimisers[i] > s) & (self.minimisers[j] <= s)
        cost = self._interior(i, s) - self._interior(j, s) + float((self._context_costs(s) + level)[here].sum())
        costs = np.full(self.n_drop + 1, np.inf)
        costs[dropped:] = node.least[at][: self.n_drop + 1 - dropped] + cost
        return _Arrival(s, costs, j, node, at, dropped)


@dataclass(frozen=True)
class _Arrival:
    """Line `line` reached at breakpoint s: least cost for each number of dropped lines."""

    s: float
    costs: Array
    line: int
    origin: _Node | None
    origin_position: int | None
    dropped: int


class _Node:
    """All arrivals at one line, sorted by breakpoint, with running minima."""

    def __init__(self, arrivals: list[_Arrival]) -> None:
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival.s)
        self.s = np.array([arrival.s for arrival in self.arrivals])
        costs = np.array([arrival.costs for arrival in self.arrivals])
        self.least = np.minimum.accumulate(costs, axis=0)
        improves = np.concatenate([np.ones((1, costs.shape[1]), bool), costs[1:] < self.least[:-1]])
        row = np.where(improves, np.arange(len(costs))[:, None], 0)
        self.which = np.maximum.accumulate(row, axis=0)


def _trace_back(node: _Node, which: int, count: int) -> list[int]:
    path = []
    arrival = node.arrivals[int(which)]
    while True:
        path.append(arrival.line)
        if arrival.origin is None or arrival.origin_position is None:
            return path[::-1]
        count -= arrival.dropped
        arrival = arrival.origin.arrivals[int(arrival.origin.which[arrival.origin_position, count])]
