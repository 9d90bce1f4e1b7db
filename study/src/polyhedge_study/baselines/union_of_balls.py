"""Unions of Euclidean balls of one radius: the sets of probabilistic conformal prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.spatial import ConvexHull, QhullError

from polyhedge.io import stored
from polyhedge.sets.ball import Ball
from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, frozen
from polyhedge.solvers.program import Cone, ConicForm
from polyhedge_study.inside import Array, as_finite


@stored("union of balls")
@dataclass(frozen=True, eq=False, init=False)
class UnionOfBalls(Shape):
    r"""A union of balls: $\{e : \min_k \|e - a_k\|_2 \le r\}$, $a_k$ = row k of `anchors`.

    The set is neither convex nor connected in general: `contains` and `volume` are those of the union. A
    linear function, and so every convex cost, is as large on the union as on its convex hull
    $\mathrm{conv}\{a_k\} + r B$, because the maximum over a hull of points is attained at one of them. `support`
    and `conic_form` describe that hull, so that robust decisions for costs that are (maxima of) affine
    functions of the outcome are exact for the union. If such a cost comes with a known support of the outcome,
    the hull is cut instead of the union, which gives a valid upper bound. A negative radius gives the empty set.

    Parameters
    ----------
    anchors : (k, d) array

    Examples
    --------
    >>> union = UnionOfBalls([[0.0, 0.0], [4.0, 0.0]])
    >>> union.scores([[1.0, 0.0], [2.0, 0.0]])
    array([1., 2.])
    >>> union.support([[1.0, 0.0], [0.0, 2.0]], radius=1.0)
    array([5., 2.])
    >>> union.contains([[2.0, 0.0]], 1.0), round(union.volume(1.0) / np.pi, 9)
    (array([False]), 2.0)
    """

    anchors: Array

    has_support_formula = True

    def __init__(self, anchors: ArrayLike) -> None:
        rows = as_finite(anchors, "anchors", ndim=2)
        if not rows.size:
            raise ValueError(f"anchors must hold at least one point, got shape {rows.shape}.")
        object.__setattr__(self, "anchors", frozen(rows))

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return int(self.anchors.shape[1])

    @property
    def parts(self) -> tuple[Ball, ...]:
        """The balls, one for each anchor."""
        return tuple(Ball(self.n_outcomes, center=anchor) for anchor in self.anchors)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """Volume of the union: exact for one outcome, else estimated with its standard error.

        Uniform points of randomly chosen balls count 1 / (number of balls that hold them): an unbiased
        estimate of the share of the balls' total volume that the union has.
        """
        if radius <= 0:
            return Volume(0.0)
        if self.n_outcomes == 1:
            gaps = np.diff(np.sort(self.anchors[:, 0]))
            return Volume(float(2 * radius + np.minimum(gaps, 2 * radius).sum()))
        rng, k = np.random.default_rng(0) if rng is None else rng, len(self.anchors)
        points = self.anchors[rng.integers(k, size=n_samples)] + _in_ball(self.n_outcomes, radius, n_samples, rng)
        n_holding = np.zeros(n_samples)
        for anchor in self.anchors:
            n_holding += np.linalg.norm(points - anchor, axis=1) <= radius
        # Rounding can put a point just outside the ball it was drawn from.
        shares = 1.0 / np.maximum(n_holding, 1.0)
        whole = k * float(Ball(self.n_outcomes).volume(radius))
        error = whole * float(shares.std(ddof=1)) / math.sqrt(n_samples) if n_samples > 1 else math.inf
        return Volume(whole * float(shares.mean()), error)

    def conic_form(self, radius: float) -> ConicForm:
        r"""The convex hull: $\|e - A^\top w\|_2 \le r,\ w \ge 0,\ 1^\top w = 1$ with the anchors' extreme points A."""
        A, d = _extreme_points(self.anchors), self.n_outcomes
        k = len(A)
        one = np.concatenate([np.zeros(d), np.ones(k)])[None]
        weights = np.hstack([np.zeros((k, d)), -np.eye(k)])
        ball = np.vstack([np.zeros((1, d + k)), np.hstack([-np.eye(d), A.T])])
        g = np.concatenate([[1.0], np.zeros(k), [radius], np.zeros(d)])
        cones = (Cone("zero", 1), Cone("nonneg", k), Cone("soc", d + 1))
        return ConicForm(sp.csr_array(np.vstack([one, weights, ball])), g, cones)

    def _scores(self, rows: Array) -> Array:
        nearest = np.full(len(rows), np.inf)
        for anchor in self.anchors:
            np.minimum(nearest, np.linalg.norm(rows - anchor, axis=1), out=nearest)
        return nearest

    def _support(self, directions: Array, radius: float) -> Array:
        reach = radius * np.linalg.norm(directions, axis=1) if radius >= 0 else -np.inf
        return (directions @ self.anchors.T).max(axis=1) + reach


def _in_ball(d: int, radius: float, n: int, rng: np.random.Generator) -> Array:
    """Independent uniform points (n, d) of a ball around the origin."""
    # The normal density depends on the norm alone, so that normalised draws have no preferred direction.
    draws = rng.standard_normal((n, d))
    return radius * rng.random((n, 1)) ** (1.0 / d) * draws / np.linalg.norm(draws, axis=1, keepdims=True)


def _extreme_points(points: Array) -> Array:
    """The points that span the hull, or all of them if the hull is too costly or flat."""
    n, d = points.shape
    if d == 1:
        return np.array([[points.min()], [points.max()]])
    if d > 4 or n <= d + 1:  # in more dimensions the hull costs more than the anchors inside it
        return points
    try:
        return np.asarray(points[ConvexHull(points).vertices])
    except QhullError:  # all points in one plane: each may be needed
        return points
