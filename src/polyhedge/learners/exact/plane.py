r"""Closed-form robust costs and gradients for two outcomes and decisions on a segment.

In the plane the support function of $\{e : W e \le q\}$ is a minimum over pairs of facets,
$h(v) = \min\{q_a\lambda_a + q_b\lambda_b : \lambda_a w_a + \lambda_b w_b = v,\ \lambda \ge 0\}$: the basic
solutions of its dual. Along a segment of decisions both multipliers of a pair are affine in s, so each pair
is usable on an interval of s and the whole problem is a minimum of one-dimensional minima, for all contexts
at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.problems.segment import Segment


@dataclass(frozen=True)
class FacetGradient:
    """Mean robust cost of {e : W e <= q} and its (sub)gradient in W (K, d) and q (K,)."""

    value: float
    W: Array
    q: Array

    @classmethod
    def infinite(cls, W: Array, q: Array) -> Self:
        """Of a set against which some context has no finite cost."""
        return cls(np.inf, np.zeros_like(W), np.zeros_like(q))


@dataclass(frozen=True)
class _Pairs:
    """Pairs of facets with multipliers start + s turn along the segment, usable for low <= s <= high."""

    facets: Indices
    start: Array
    turn: Array
    low: Array
    high: Array


def segment_gradient(segment: Segment, W: Array, q: Array, centers: Array) -> FacetGradient:
    """The mean over contexts of min_s base(s) + v(s)'f + h(v(s)), with its gradient; inf where unbounded."""
    pairs = _usable_pairs(segment, W)
    if pairs is None:
        return FacetGradient.infinite(W, q)
    turn = segment.v1 - segment.v0
    g1 = segment.base[1] + centers @ turn
    height, rise = (pairs.start * q[pairs.facets]).sum(1), (pairs.turn * q[pairs.facets]).sum(1)
    s = _minimisers(g1[:, None] + rise, segment.base[2], pairs.low, pairs.high)
    costs = height + (g1[:, None] + rise + segment.base[2] * s) * s
    best = costs.argmin(axis=1)
    rows = np.arange(len(centers))
    value = segment.base[0] + centers @ segment.v0 + costs[rows, best]
    s_best = s[rows, best]
    multipliers = np.maximum(pairs.start[best] + pairs.turn[best] * s_best[:, None], 0.0)
    slope = g1 + 2 * segment.base[2] * s_best
    worst = _worst_residuals(segment, W, q, pairs.facets, best, multipliers, s_best, slope)
    facet, weight = pairs.facets[best].T.ravel(), multipliers.T.ravel() / len(centers)
    pulls = (-weight * np.tile(each, 2) for each in worst.T)
    grad_W = np.column_stack([_sums(facet, pull, len(W)) for pull in pulls])
    return FacetGradient(float(value.mean()), grad_W, _sums(facet, weight, len(W)))


def _sums(facet: Indices, weight: Array, n_facets: int) -> Array:
    """The sum of the weights of each facet, in their order."""
    return np.bincount(facet, weight, n_facets).astype(np.float64, copy=False)


def _usable_pairs(segment: Segment, W: Array) -> _Pairs | None:
    facets = np.array(list(combinations(range(len(W)), 2)))
    matrices = np.swapaxes(W[facets], 1, 2)
    determinant = np.linalg.det(matrices)
    size = np.linalg.norm(W, axis=1)
    proper = np.abs(determinant) > 1e-7 * size[facets].prod(axis=1)
    facets, inverse = facets[proper], np.linalg.inv(matrices[proper])
    start, turn = inverse @ segment.v0, inverse @ (segment.v1 - segment.v0)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = -start / turn
    low = np.where(turn > 0, root, np.where((turn == 0) & (start < 0), np.inf, 0.0)).max(axis=1)
    high = np.where(turn < 0, root, 1.0).min(axis=1)
    low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
    usable = low <= high
    if not usable.any():
        return None
    return _Pairs(facets[usable], start[usable], turn[usable], low[usable], high[usable])


def _minimisers(slope: Array, curvature: float, low: Array, high: Array) -> Array:
    if curvature > 0:
        return np.clip(-slope / (2 * curvature), low, high)
    return np.where(slope > 0, low, high)


def _worst_residuals(
    segment: Segment, W: Array, q: Array, pairs: Indices, best: Indices, multipliers: Array, s: Array, slope: Array
) -> Array:
    """The vertex of the best pair, or, where one multiplier vanishes inside the segment, the point of the other
    facet at which the context is indifferent: the saddle point's mixture of two vertices.

    Vertices are found once a pair: contexts are many, pairs are few.
    """
    is_used = np.bincount(best, minlength=len(pairs)) > 0
    vertices = np.zeros((len(pairs), 2))
    vertices[is_used] = np.linalg.solve(W[pairs[is_used]], q[pairs[is_used]][..., None])[..., 0]
    residuals = vertices[best]
    less, more = np.minimum(*multipliers.T), np.maximum(*multipliers.T)
    mixed = np.flatnonzero((less <= 1e-9 * more) & (s > 1e-12) & (s < 1 - 1e-12))
    facets = pairs[best[mixed]]
    kept = np.where(multipliers[mixed, 0] < multipliers[mixed, 1], facets[:, 1], facets[:, 0])
    matrices = np.stack([W, np.broadcast_to(segment.v1 - segment.v0, W.shape)], axis=1)
    singular = np.abs(np.linalg.det(matrices)) <= 1e-12 * np.linalg.norm(matrices, axis=2).prod(axis=1)
    mixed, kept = mixed[~singular[kept]], kept[~singular[kept]]
    residuals[mixed] = np.linalg.solve(matrices[kept], np.stack([q[kept], -slope[mixed]], axis=1)[..., None])[..., 0]
    return residuals
