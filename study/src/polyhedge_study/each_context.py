r"""Robust decisions where every context has a set of its own.

`decide` shares one set of residuals over all contexts. Here context i has the set $S_i$, known by its
maximisers $e_i(v) \in \arg\max_{e \in S_i} v^\top e$, found for all contexts in one call. That suffices for
decisions on a segment z(s), s in [0, 1]:

- one affine piece: the slope of the worst-case cost in s is that of the cost at the maximiser, and it rises
  with s, so all contexts are bisected together;
- pieces with fixed directions: the worst case of each piece is a line in s, and the least maximum of lines
  lies at an end or where two of them cross.

All other problems are solved context by context. `ROUTES_EACH` lists these ways in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from polyhedge.decisions import Decisions, joined
from polyhedge.problems import DecisionProblem
from polyhedge.robust.routes import Route, decide, dispatch
from polyhedge.sets import Shape
from polyhedge.solvers.program import status_at
from polyhedge_study.inside import OPTIMAL, ROUNDING, Array, Mask

Maximisers = Callable[[Array], Array]
"""Row i of the result is a maximiser over the set of context i in the direction of row i."""
SetAt = Callable[[int], tuple[Shape, float]]
"""The set and the radius of one context."""

_N_BISECTIONS = 60
"""Halvings after which an interval of length 1 is as short as floats can tell."""


def decide_each(problem: DecisionProblem, maximisers: Maximisers, set_at: SetAt, centers: Array) -> Decisions:
    """The exact robust decision of each context over its own set.

    Parameters
    ----------
    problem : what is decided.
    maximisers : (N, d) directions -> (N, d) residuals, row i over the set of context i.
    set_at : i -> the set and radius of context i, used where the decisions do not lie on a segment.
    centers : (N, n_outcomes) predictions.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> from polyhedge.sets import Ball
    >>> radii = np.array([1.0, 2.0])
    >>> decisions = decide_each(
    ...     simplex_linear([0.0, 0.0]),
    ...     lambda V: radii[:, None] * V / np.linalg.norm(V, axis=1, keepdims=True),
    ...     lambda i: (Ball(2), radii[i]),
    ...     np.zeros((2, 2)),
    ... )
    >>> decisions.cost_bound.round(6)
    array([0.707107, 1.414214])
    """
    return dispatch(ROUTES_EACH, problem, maximisers, set_at, centers)


def has_segment(problem: DecisionProblem) -> bool:
    """Whether `decide_each` solves all contexts together."""
    return problem.structure.segment is not None or problem.structure.fixed_lines is not None


def decisions_at(
    problem: DecisionProblem, z: Array, bound: Array, outcomes: Array, gap: Array, size: Array
) -> Decisions:
    """Decisions z (N, p) with their gaps as a `Decisions`; `size` (N,) is that of the costs at stake."""
    return Decisions(
        flat=z,
        cost_bound=bound,
        worst_outcome=outcomes,
        status=np.array([status_at(*pair) for pair in zip(gap, size, strict=True)], dtype=object),
        gap=gap,
        layout=problem.layout,
    )


def _one_by_one(problem: DecisionProblem, _: Maximisers, set_at: SetAt, centers: Array) -> Decisions:
    rows = [np.array([i]) for i in range(len(centers))]
    return joined([decide(problem, *set_at(i), centers[[i]]) for i in range(len(centers))], rows)


@dataclass(frozen=True)
class _Tangent:
    """Position, value and slope of the worst-case cost, and the residual that gives them."""

    s: Array
    value: Array
    slope: Array
    residual: Array


def _by_bisection(problem: DecisionProblem, maximisers: Maximisers, _: SetAt, centers: Array) -> Decisions:
    segment = problem.structure.segment
    assert segment is not None
    turn = segment.v1 - segment.v0

    def tangent(s: Array) -> _Tangent:
        V = segment.v0 + s[:, None] * turn
        residual = maximisers(V)
        outcomes = centers + residual
        value = segment.base[0] + (segment.base[1] + segment.base[2] * s) * s + np.einsum("nd,nd->n", V, outcomes)
        return _Tangent(s, value, segment.base[1] + 2 * segment.base[2] * s + outcomes @ turn, residual)

    low, high = first, last = tangent(np.zeros(len(centers))), tangent(np.ones(len(centers)))
    for _halving in range(_N_BISECTIONS):
        middle = tangent((low.s + high.s) / 2)
        rises = middle.slope >= 0
        low, high = _where(rises, low, middle), _where(rises, middle, high)
    best = _where(low.value <= high.value, low, high)
    s, bound, residual, gap = _between(low, high, best)
    size = np.abs(first.slope) + np.abs(last.slope) + ROUNDING / OPTIMAL * np.abs(bound)
    z = segment.z0 + s[:, None] * (segment.z1 - segment.z0)
    return decisions_at(problem, z, bound, centers + residual, gap, size)


def _where(choose: Mask, first: _Tangent, second: _Tangent) -> _Tangent:
    return _Tangent(
        np.where(choose, first.s, second.s),
        np.where(choose, first.value, second.value),
        np.where(choose, first.slope, second.slope),
        np.where(choose[:, None], first.residual, second.residual),
    )


def _between(low: _Tangent, high: _Tangent, best: _Tangent) -> tuple[Array, Array, Array, Array]:
    """The better end, the mixture of worst cases that balances the slopes, and what tangents leave open."""
    falls, rises = low.slope < 0, high.slope > 0
    open_ = falls & rises
    step = np.where(open_, high.slope - low.slope, 1.0)
    weight = np.where(open_, -low.slope / step, np.where(falls, 1.0, 0.0))
    residual = low.residual + weight[:, None] * (high.residual - low.residual)
    # The tangents of a convex function cross below it.
    crossing = (low.value * high.slope - high.value * low.slope + low.slope * high.slope * (high.s - low.s)) / step
    gap = np.where(open_, np.maximum(best.value - crossing, 0.0), 0.0)
    return best.s, best.value, residual, gap


def _by_crossings(problem: DecisionProblem, maximisers: Maximisers, _: SetAt, centers: Array) -> Decisions:
    lines = problem.structure.fixed_lines
    assert lines is not None
    n = len(centers)
    residuals = np.stack([maximisers(np.tile(q, (n, 1))) for q in lines.directions], axis=1)
    heights = lines.constants + np.einsum("nld,ld->nl", centers[:, None] + residuals, lines.directions)
    s, piece = least_maximum(heights, lines.slopes)
    bound = heights[np.arange(n), piece] + lines.slopes[piece] * s
    outcomes = centers + residuals[np.arange(n), piece]
    z = lines.z0 + s[:, None] * (lines.z1 - lines.z0)
    return decisions_at(problem, z, bound, outcomes, np.zeros(n), np.ones(n))


def least_maximum(heights: Array, slopes: Array) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Where in [0, 1] the maximum of lines heights + slopes s, both (N, L), is least, and a highest line there.

    Slopes (L,) are shared by all rows.

    Examples
    --------
    >>> s, line = least_maximum(np.array([[0.0, 1.0]]), np.array([2.0, -2.0]))
    >>> s
    array([0.25])
    """
    slopes = np.broadcast_to(slopes, heights.shape)
    positions = [np.zeros(len(heights)), np.ones(len(heights))]
    for k, m in combinations(range(heights.shape[1]), 2):
        turn = slopes[:, k] - slopes[:, m]
        crossing = (heights[:, m] - heights[:, k]) / np.where(turn != 0, turn, 1.0)
        positions.append(np.where(turn != 0, np.clip(crossing, 0.0, 1.0), 0.0))
    S = np.stack(positions, axis=1)
    values = heights[:, None, :] + S[:, :, None] * slopes[:, None, :]
    highest = values.max(axis=2)
    least = highest.min(axis=1, keepdims=True)
    # On a flat stretch both ends are best up to rounding; the first one is taken, so that nothing flickers.
    rounding = 1e-12 * (np.abs(heights) + np.abs(slopes)).max(axis=1, keepdims=True)
    best = np.where(highest <= least + rounding, S, np.inf).argmin(axis=1)
    rows = np.arange(len(heights))
    return S[rows, best], values[rows, best].argmax(axis=1)


ROUTES_EACH: tuple[Route[[DecisionProblem, Maximisers, SetAt, Array], Decisions], ...] = (
    Route("bisection", lambda problem, *_: problem.structure.segment is not None, _by_bisection),
    Route("crossings", lambda problem, *_: problem.structure.fixed_lines is not None, _by_crossings),
    Route("one by one", lambda *_: True, _one_by_one),
)
