r"""All decisions at once where Z is a segment and the set is polyhedral.

With decisions z(s), s in [0, 1], the support function h(v(s)) is a convex piecewise-linear function of s whose
pieces belong to worst-case residuals. The total slope of a context's cost rises with s, so its minimum is
found by one binary search in a table of slopes: a matrix product and a look-up for millions of contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import ROUNDING
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems.structure import Segment
from polyhedge.robust.support import Maximiser
from polyhedge.solvers.program import ConicForm

_SAME = 1e-10
"""Share of the distance between the worst cases of both ends up to which two of them are one."""
_FEW = 32
"""Thresholds up to which comparing with each is faster than a binary search."""
_BLOCK = 8192
"""Contexts that are worked on together: their numbers should stay in the processor's cache."""


@dataclass(frozen=True)
class SupportAlongSegment:
    """h(v(s)) for s in [0, 1]: residual k is the worst one between breaks[k] and breaks[k + 1]."""

    points: Array
    breaks: Array
    heights: Array
    slopes: Array


def support_along(segment: Segment, form: ConicForm) -> SupportAlongSegment | None:
    """The worst-case residuals along the segment by rising slope; None where h is infinite somewhere.

    Wherever two neighbouring residuals' lines cross, one maximisation tells whether a third is higher.
    """
    turn, maximise = segment.v1 - segment.v0, Maximiser(form)
    ends = maximise(np.stack([segment.v0, segment.v1]))
    if not np.isfinite(ends.values).all():
        return None
    residuals, open_pairs = [ends.points[0], ends.points[1]], [(0, 1)]
    # Differences of less than this, as a share of those between the ends, are none.
    apart = np.abs(np.stack([segment.v0, segment.v1]) @ (residuals[1] - residuals[0])).max()
    scale = _SAME * float(apart) + ROUNDING * float(np.abs(ends.values).max())
    while open_pairs:
        i, j = open_pairs.pop()
        rise = float(turn @ (residuals[j] - residuals[i]))
        if rise <= scale:
            continue
        s = float(np.clip(segment.v0 @ (residuals[i] - residuals[j]) / rise, 0.0, 1.0))
        direction = segment.v0 + s * turn
        top = maximise(direction[None])
        if not np.isfinite(top.values[0]):
            return None
        if top.values[0] > direction @ residuals[i] + scale:
            residuals.append(top.points[0])
            open_pairs += [(i, len(residuals) - 1), (len(residuals) - 1, j)]
    return _ordered(segment, np.array(residuals))


def _ordered(segment: Segment, points: Array) -> SupportAlongSegment:
    """Keep the residuals that show on the upper envelope over [0, 1], by rising slope."""
    heights, slopes = points @ segment.v0, points @ (segment.v1 - segment.v0)
    order = np.lexsort((heights, slopes))
    same = ROUNDING * float(np.abs(slopes).max(initial=0.0))
    chain: list[int] = []
    breaks: list[float] = []
    for k in order:
        while chain:
            last = chain[-1]
            if slopes[k] - slopes[last] <= same:
                crossing = -np.inf if heights[k] >= heights[last] else np.inf
            else:
                crossing = float((heights[last] - heights[k]) / (slopes[k] - slopes[last]))
            if crossing > (breaks[-1] if breaks else 0.0):
                break
            chain.pop()
            if breaks:
                breaks.pop()
        if chain and crossing >= 1.0:
            continue
        if chain:
            breaks.append(crossing)
        chain.append(int(k))
    kept = np.array(chain)
    return SupportAlongSegment(points[kept], np.array([0.0, *breaks, 1.0]), heights[kept], slopes[kept])


@dataclass(frozen=True)
class _Table:
    """What holds between neighbouring thresholds of the slope t = -g1 at which a context enters.

    There the position is s = s0 + s1 t between `lowest` and `highest`, the support h = height + slope s and the worst
    residual r0 + r1 t, with a row of r0 and r1 for each outcome: NumPy is fast along rows.
    """

    thresholds: Array
    s0: Array
    s1: Array
    lowest: Array
    highest: Array
    height: Array
    slope: Array
    r0: Array
    r1: Array

    def locate(self, t: Array) -> Indices:
        """The number of thresholds below each slope."""
        if len(self.thresholds) > _FEW:
            return self.thresholds.searchsorted(t)
        k = np.zeros(len(t), dtype=np.int64)
        for threshold in self.thresholds:
            k += t > threshold
        return k


def decide_along(segment: Segment, support: SupportAlongSegment, centers: Array) -> tuple[Array, Array, Array]:
    """Positions s (N,), bounds (N,) and worst-case residuals (N, d), exactly; in blocks that stay in the cache."""
    n, d = centers.shape
    s, bound, worst = np.empty(n), np.empty(n), np.empty((n, d))
    table = _table(support, float(segment.base[2]))
    for k in range(0, n, _BLOCK):
        block = slice(k, k + _BLOCK)
        _decide_block(segment, table, centers[block], s[block], bound[block], worst[block])
    return s, bound, worst


def ties_along(segment: Segment, support: SupportAlongSegment, centers: Array) -> Mask:
    """Contexts (N,) whose worst-case cost is level along a piece of the segment, up to rounding."""
    if segment.base[2] > 0:
        return np.zeros(len(centers), dtype=bool)
    table, may_tie = _table(support, 0.0), np.empty(len(centers), dtype=bool)
    # What slopes are sums of: rounding is a share of these, also where the slopes themselves cancel out.
    largest = float(np.abs(support.points @ np.stack([segment.v0, segment.v1]).T).max()) + abs(float(segment.base[1]))
    sizes = np.abs(segment.v0) + np.abs(segment.v1)
    for k in range(0, len(centers), _BLOCK):
        t = centers[k : k + _BLOCK] @ (segment.v0 - segment.v1)
        t -= segment.base[1]
        near = _SAME * (largest + np.abs(centers[k : k + _BLOCK]) @ sizes)
        may_tie[k : k + _BLOCK] = table.locate(t + near) != table.locate(t - near)
    return may_tie


def _decide_block(segment: Segment, table: _Table, centers: Array, s: Array, bound: Array, worst: Array) -> None:
    t = centers @ (segment.v0 - segment.v1)
    t -= segment.base[1]
    k = table.locate(t)
    s[:] = table.s0[k]
    if table.s1.any():
        s += table.s1[k] * t
        # A curvature far below the slopes leaves s to rounding; the piece holds between its breaks only.
        np.clip(s, table.lowest[k], table.highest[k], out=s)
    for j, (r0, r1) in enumerate(zip(table.r0, table.r1, strict=True)):
        worst[:, j] = r0[k] + r1[k] * t
    rise = table.slope[k]
    rise -= t
    if segment.base[2]:
        rise += segment.base[2] * s
    rise *= s
    rise += table.height[k]
    rise += segment.base[0]
    np.add(rise, centers @ segment.v0, out=bound)


def _table(support: SupportAlongSegment, curvature: float) -> _Table:
    """Rows by turns: at a break, where two residuals are mixed so that their slopes balance, and inside a piece."""
    points, slopes, breaks = support.points, support.slopes, support.breaks
    n_pieces = len(slopes)
    left, right = slopes + 2 * curvature * breaks[:-1], slopes + 2 * curvature * breaks[1:]
    n = 2 * n_pieces + 1
    lowest, highest = np.zeros(n), np.zeros(n)
    s0, s1, r0, r1 = np.zeros(n), np.zeros(n), np.zeros((n, points.shape[1])), np.zeros((n, points.shape[1]))
    s0[::2] = lowest[::2] = highest[::2] = breaks
    lowest[1::2], highest[1::2] = breaks[:-1], breaks[1:]
    if curvature > 0:
        s0[1::2], s1[1::2] = -slopes / (2 * curvature), 1 / (2 * curvature)
    r0[0], r0[-1], r0[1::2] = points[0], points[-1], points
    step = np.diff(slopes)
    turn = np.diff(points, axis=0) / np.where(step > 0, step, 1.0)[:, None] * (step > 0)[:, None]
    r1[2:-1:2], r0[2:-1:2] = turn, np.where((step > 0)[:, None], points[:-1] - right[:-1, None] * turn, points[1:])
    piece = np.minimum(np.arange(n) // 2, n_pieces - 1)
    thresholds = np.stack([left, right], axis=1).ravel()
    # Without curvature the minimum is never inside a piece.
    rows = slice(None) if curvature > 0 else slice(None, None, 2)
    heights, rises = support.heights[piece][rows], slopes[piece][rows]
    places = s0[rows], s1[rows], lowest[rows], highest[rows]
    return _Table(thresholds[rows], *places, heights, rises, r0[rows].T.copy(), r1[rows].T.copy())
