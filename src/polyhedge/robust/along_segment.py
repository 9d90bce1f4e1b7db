r"""All decisions at once where Z is a segment and the set is polyhedral.

With decisions z(s), s in [0, 1], the support function h(v(s)) is a convex piecewise-linear function of s whose
pieces belong to worst-case residuals. The total slope of a context's cost rises with s, so its minimum is
found by one binary search in a table of slopes: a matrix product and a look-up for millions of contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._validation import Array, Indices, Mask
from polyhedge.problems.segment import Segment
from polyhedge.robust.support import maximise
from polyhedge.solvers.program import ConicForm


@dataclass(frozen=True)
class SegmentDecisions:
    """Positions s (N,), bounds (N,) and worst-case residuals (N, d)."""

    s: Array
    cost_bound: Array
    worst_residual: Array


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
    turn = segment.v1 - segment.v0
    ends = maximise(form, np.stack([segment.v0, segment.v1]))
    if not np.isfinite(ends.values).all():
        return None
    found, open_pairs = [ends.points[0], ends.points[1]], [(0, 1)]
    scale = 1e-10 * (1 + float(np.abs(ends.values).max()))
    while open_pairs:
        i, j = open_pairs.pop()
        rise = float(turn @ (found[j] - found[i]))
        if rise <= scale:
            continue
        s = float(np.clip(segment.v0 @ (found[i] - found[j]) / rise, 0.0, 1.0))
        direction = segment.v0 + s * turn
        top = maximise(form, direction[None])
        if not np.isfinite(top.values[0]):
            return None
        if top.values[0] > direction @ found[i] + scale:
            found.append(top.points[0])
            open_pairs += [(i, len(found) - 1), (len(found) - 1, j)]
    return _ordered(segment, np.array(found))


def _ordered(segment: Segment, points: Array) -> SupportAlongSegment:
    """Keep the residuals that show on the upper envelope over [0, 1], by rising slope."""
    heights, slopes = points @ segment.v0, points @ (segment.v1 - segment.v0)
    order = np.lexsort((heights, slopes))
    chain: list[int] = []
    breaks: list[float] = []
    for k in order:
        while chain:
            last = chain[-1]
            if slopes[k] - slopes[last] <= 1e-12 * (1 + abs(slopes[k])):
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


def decide_along(segment: Segment, support: SupportAlongSegment, centers: Array) -> SegmentDecisions:
    """The robust decision of every context, exactly."""
    g1 = segment.base[1] + centers @ (segment.v1 - segment.v0)
    curvature = float(segment.base[2])
    position, inside = _locate(support, curvature, g1)
    piece = np.minimum(position, len(support.slopes) - 1)
    s = support.breaks[position]
    if curvature > 0:
        s = np.where(inside, -(g1 + support.slopes[piece]) / (2 * curvature), s)
    heights = support.heights[piece] + support.slopes[piece] * s
    bound = segment.base[0] + centers @ segment.v0 + (g1 + curvature * s) * s + heights
    return SegmentDecisions(s, bound, _worst(support, curvature, g1, position, inside, s))


def _locate(support: SupportAlongSegment, curvature: float, g1: Array) -> tuple[Indices, Mask]:
    """The break at which (or the piece inside which) the total slope passes through zero."""
    left = support.slopes + 2 * curvature * support.breaks[:-1]
    right = support.slopes + 2 * curvature * support.breaks[1:]
    table = np.stack([left, right], axis=1).ravel()
    found = np.searchsorted(table, -g1, side="left")
    return found // 2, found % 2 == 1


def _worst(
    support: SupportAlongSegment, curvature: float, g1: Array, position: Indices, inside: Mask, s: Array
) -> Array:
    """The residual of the piece, or at a break the mixture of two residuals that balances the slopes."""
    last = len(support.slopes) - 1
    before, after = np.clip(position - 1, 0, last), np.minimum(position, last)
    low, high = support.slopes[before], support.slopes[after]
    between = ~inside & (high > low) & (position > 0) & (position <= last)
    step = np.where(between, high - low, 1.0)
    weight = np.where(between, np.clip((-g1 - 2 * curvature * s - low) / step, 0.0, 1.0), 1.0)
    return support.points[before] + weight[:, None] * (support.points[after] - support.points[before])
