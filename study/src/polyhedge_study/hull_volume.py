"""The volume of a set within the convex hull of the residuals: far facets that no outcome comes near do not count.

A learned set is open towards outcomes that cannot hurt, and far facets close it there. How far they lie is a constant
of the learner, and the volume grows with it. The part of the set within the hull does not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial import ConvexHull
from scipy.stats import qmc

from polyhedge.sets import Polyhedron, Shape
from polyhedge_study.inside import Array, Indices, Mask

__all__ = ["hull_volume", "hull_volume_of_shape"]

LOG2_SAMPLES = 14
"""Sobol points: for 2 outcomes 16 384 of them leave an error of about 1 % of the volume."""


def hull_volume(residuals: Array, holds: Callable[[Array, Indices], Mask], n_contexts: int) -> float:
    """Mean over the contexts of the volume of their sets within the hull of `residuals` (n, d).

    ``holds(points, contexts)`` says of each point whether the set of its context holds it. NaN where the residuals
    have no hull with volume.
    """
    n, d = residuals.shape
    if n <= d:
        return np.nan
    hull = ConvexHull(residuals)
    # Simplices from the mean to each facet fill the hull.
    corners = residuals[hull.simplices]
    middle = residuals.mean(axis=0)
    sizes = np.abs(np.linalg.det(corners - middle)).cumsum()
    draws = qmc.Sobol(d + 2, seed=0).random_base2(LOG2_SAMPLES)
    chosen = np.searchsorted(sizes, draws[:, 0] * sizes[-1])
    weights = np.diff(np.sort(draws[:, 2:], axis=1), axis=1, prepend=0.0)
    points = middle + np.einsum("nk,nkd->nd", weights, corners[chosen] - middle)
    return float(hull.volume * holds(points, (draws[:, 1] * n_contexts).astype(int)).mean())


def hull_volume_of_shape(residuals: Array, shape: Shape, radius: float, scales: Array) -> float:
    """The same for one shape, scaled by `scales` (N,): exact for two outcomes, facets and a single scale.

    Examples
    --------
    >>> from polyhedge.sets import Box
    >>> corners = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> round(hull_volume_of_shape(corners, Box([1.0, 1.0]), 1.0, np.ones(5)), 6)
    1.0
    """
    facets = shape.facets()
    if facets is None or np.ptp(scales) > 0 or residuals.shape[1] != 2 or len(residuals) < 3:
        return hull_volume(residuals, lambda e, i: shape.contains(e / scales[i, None], radius), len(scales))
    sides = ConvexHull(residuals).equations
    W = np.vstack([facets.W / scales[0], sides[:, :-1]])
    return float(Polyhedron(W, np.concatenate([facets.b - radius, sides[:, -1]])).volume(0.0))
