r"""Exact selection of residuals for a single context, where the cost's directions form a segment.

With decisions s in [0, 1] and residual j as the line $\alpha_j + \beta_j s$ (`envelope.py`), a set that covers
`rank` residuals costs at least the rank-th smallest line at the decision s that is planned for, and a half-space
attains it. So

$$V^\star = \min_{s \in [0, 1]} G(s) + (\text{rank-th smallest of } \alpha_j + \beta_j s),$$

a value-at-risk minimisation. The order statistic is one level of an arrangement of lines: piecewise linear, and it
passes to another line at every crossing. The walk along it visits each piece once, in O(n) time a piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.learners.exact.envelope import Selection
from polyhedge.problems.segment import Segment

_STEP = 1e-12
"""Crossings closer to each other than this are one breakpoint."""


def sweep_segment(segment: Segment, residuals: Array, center: Array, rank: int) -> Selection:
    """The `rank` residuals to keep for one prediction (d,), at least cost.

    Sees the learning split only.

    Examples
    --------
    >>> segment = Segment(*np.eye(2), *np.eye(2), base=np.zeros(3))
    >>> sweep_segment(segment, np.array([[0.0, 3.0], [3.0, 0.0], [9.0, 9.0]]), np.zeros(2), rank=2)
    Selection(kept=array([ True,  True, False]), value=1.5, s=0.5)
    """
    turn = segment.v1 - segment.v0
    alpha, beta = residuals @ segment.v0, residuals @ turn
    g = segment.base + np.array([center @ segment.v0, center @ turn, 0.0])
    scale = 1e-11 * (1 + np.abs(alpha).max() + np.abs(beta).max())
    points = np.array(list(_least_points(alpha, beta, g, rank, scale)))
    heights = alpha + beta * points[:, None]
    levels = np.partition(heights, rank - 1, axis=1)[:, rank - 1]
    costs = g[0] + (g[1] + g[2] * points) * points + levels
    best = int(np.argmin(costs))
    return Selection(np.asarray(heights[best] <= levels[best] + scale), float(costs[best]), float(points[best]))


def _least_points(alpha: Array, beta: Array, g: Array, rank: int, scale: float) -> Iterator[float]:
    """Where the cost can be least: both ends, breakpoints of the level and stationary points between them."""
    s = 0.0
    while s < 1.0:
        line = _level_line(alpha + beta * s, beta, rank, scale)
        after = _next_crossing(alpha, beta, line, s)
        yield s
        if g[2] > 0:
            yield float(np.clip(-(g[1] + beta[line]) / (2 * g[2]), s, after))
        s = after
    yield 1.0


def _level_line(heights: Array, beta: Array, rank: int, scale: float) -> int:
    """The line that is the rank-th lowest just after the point with these heights; ties go by slope."""
    level = np.partition(heights, rank - 1)[rank - 1]
    tied = np.flatnonzero(np.abs(heights - level) <= scale)
    below = int((heights < level - scale).sum())
    return int(tied[np.argsort(beta[tied], kind="stable")[rank - 1 - below]])


def _next_crossing(alpha: Array, beta: Array, line: int, s: float) -> float:
    """Where another line next meets this one, at most 1."""
    slope = beta - beta[line]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (alpha[line] - alpha) / slope
    later = crossing[(crossing > s + _STEP) & (slope != 0)]
    return min(float(later.min(initial=1.0)), 1.0)
