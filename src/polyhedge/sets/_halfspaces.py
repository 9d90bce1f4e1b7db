r"""Geometry of $\{e : W e \le h\}$: vertices and volume from the convex hull of the polar body.

Seen from an interior point with slacks $s = h - W c$, the vertices correspond to the facets of the hull of
the points $w_k / s_k$.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from polyhedge._validation import Array
from polyhedge.sets._sampling import polytope_volume
from polyhedge.sets.protocol import Volume
from polyhedge.solvers.polyhedral import TOLERANCE, chebyshev_center, maximise_linear

# Above this dimension, the number of vertices makes exact volumes hopeless.
MAX_EXACT_OUTCOMES = 8
# The hull of the vertices is the most accurate way to a volume, but its cost explodes with the dimension.
MAX_HULL_OUTCOMES = 4
# Corners that a set may have for its volume or its corners to be computed from them: more take gigabytes.
MAX_VERTICES = 5_000_000
# Lawrence's sum is accepted if cancellation leaves at least this relative accuracy.
VOLUME_ACCURACY = 1e-6
N_OBJECTIVES = 64


def vertices(W: Array, h: Array) -> Array:
    r"""Vertices (n_vertices, d) of the bounded polyhedron $W e \le h$; no rows if it is empty.

    Examples
    --------
    >>> vertices(np.array([[1.0], [-1.0]]), np.array([2.0, 1.0]))
    array([[-1.],
           [ 2.]])
    """
    center, depth = _inner_ball(W, h)
    if depth < 0:
        return np.empty((0, W.shape[1]))
    if depth == 0:
        return _flat_vertices(W, h, center)
    if W.shape[1] == 1:
        return np.array(_interval(W, h))[:, None]
    if most_vertices(*W.shape) > MAX_VERTICES:
        raise ValueError(
            f"A set of {len(W)} facets in {W.shape[1]} dimensions may have more than {MAX_VERTICES} vertices, too many "
            "to list. Use fewer facets."
        )
    center, width = _bounding_frame(W, h, center)
    found = _polar(W * width, h - W @ center).vertices
    return center + width * found[_first_of_equals(found)]


def volume(W: Array, h: Array, rng: np.random.Generator, n_samples: int) -> Volume:
    r"""Volume of $W e \le h$: 0 if empty or flat, `inf` if unbounded with interior.

    Exact up to rounding for d <= 8 (hull of the vertices for d <= 4, Lawrence's sum over the vertices above),
    a Monte Carlo estimate for d > 8, where so many facets could have more vertices than fit into memory, and where
    Lawrence's sum loses its accuracy to cancellation.

    Examples
    --------
    >>> W = np.vstack([np.eye(2), -np.eye(2)])
    >>> round(volume(W, np.array([1.0, 2.0, 0.0, 0.0]), np.random.default_rng(0), 100), 9)
    2.0
    """
    d = W.shape[1]
    center, depth = _inner_ball(W, h)
    if depth <= 0:
        return Volume(0.0)
    if d == 1:
        lower, upper = _interval(W, h)
        return Volume(upper - lower)
    center, width = _bounding_frame(W, h, center)
    if not np.isfinite(width).all():
        return Volume(np.inf)
    # In the frame of the bounding box, thin sets are as well conditioned as fat ones.
    unit, W, slack = float(np.prod(width)), W * width, h - W @ center
    are_few = most_vertices(*W.shape) <= MAX_VERTICES
    if d <= MAX_HULL_OUTCOMES and are_few:
        return Volume(unit * float(ConvexHull(_polar(W, slack).vertices).volume))
    exact = _lawrence_volume(W, slack) if MAX_HULL_OUTCOMES < d <= MAX_EXACT_OUTCOMES and are_few else None
    if exact is not None:
        return Volume(unit * exact)
    estimate = polytope_volume(W, slack, rng, n_samples)
    return Volume(unit * estimate, unit * estimate.standard_error)


def most_vertices(n_facets: int, d: int) -> int:
    """The most vertices that so many facets can have in d dimensions (McMullen's upper bound theorem).

    Examples
    --------
    >>> most_vertices(5, 2), most_vertices(8, 3), most_vertices(200, 8)
    (5, 12, 60843250)
    """
    if n_facets <= d:
        return 1
    return math.comb(n_facets - (d + 1) // 2, n_facets - d) + math.comb(n_facets - (d + 2) // 2, n_facets - d)


def _inner_ball(W: Array, h: Array) -> tuple[Array, float]:
    """Chebyshev centre and radius; the radius is exactly 0 for flat sets and negative for empty ones."""
    center, _ = chebyshev_center(W, h)
    # Seen from a first centre, offsets are as small as the set, so the tolerance is relative to its size.
    slack, length = h - W @ center, np.linalg.norm(W, axis=1)
    shift, depth = chebyshev_center(W, slack)
    size = float(np.abs(slack / length).max(initial=0.0))
    # What is left of h - W c is no thicker than the digits that the difference has lost.
    rounding = 16 * np.finfo(float).eps * float(((np.abs(h) + np.abs(W) @ np.abs(center)) / length).max(initial=0.0))
    return center + shift, 0.0 if abs(depth) <= max(TOLERANCE * size, rounding) else depth


def _interval(W: Array, h: Array) -> tuple[float, float]:
    w = W[:, 0]
    lower = np.max(h[w < 0] / w[w < 0], initial=-np.inf)
    upper = np.min(h[w > 0] / w[w > 0], initial=np.inf)
    return float(lower), float(upper)


def _bounding_frame(W: Array, h: Array, inner: Array) -> tuple[Array, Array]:
    """A point well inside, and the half-widths of the bounding box (inf if unbounded)."""
    d = W.shape[1]
    values, points = maximise_linear(W, h - W @ inner, np.vstack([np.eye(d), -np.eye(d)]))
    if not np.isfinite(values).all():
        return inner, np.where(np.isfinite(values[:d] + values[d:]), 1.0, np.inf)
    return inner + points.sum(axis=0) / (2 * d + 1), (values[:d] + values[d:]) / 2


class _Polar(NamedTuple):
    vertices: Array  # of the polyhedron, one for each simplex of the polar hull, so degenerate ones repeat
    facets: Array  # (n, d) indices of facets that meet in that vertex


def _polar(W: Array, slack: Array) -> _Polar:
    hull = ConvexHull(W / slack[:, None])
    return _Polar(-hull.equations[:, :-1] / hull.equations[:, -1:], hull.simplices)


def _first_of_equals(points: Array) -> NDArray[np.intp]:
    grid = np.round(points / (1e-9 * max(1e-300, float(np.abs(points).max()))))
    return np.unique(grid, axis=0, return_index=True)[1]


def _flat_vertices(W: Array, h: Array, center: Array) -> Array:
    """Vertices of a set without interior: those of its coordinates in its own affine hull."""
    slack = h - W @ center
    lowest, _ = maximise_linear(W, slack, -W)
    length = np.linalg.norm(W, axis=1)
    # Rows that are tight on the whole set span the normals of its affine hull.
    tight = slack + lowest <= 10 * TOLERANCE * np.maximum(length, np.abs(slack))
    _, singular, Vt = np.linalg.svd(W[tight] / length[tight, None], full_matrices=True)
    basis = Vt[int(np.sum(singular > TOLERANCE)) :].T
    if not basis.shape[1]:
        return center[None, :]
    reduced = W[~tight] @ basis
    moving = np.linalg.norm(reduced, axis=1) > TOLERANCE * length[~tight]
    return center + vertices(reduced[moving], slack[~tight][moving]) @ basis.T


def _lawrence_volume(W: Array, slack: Array) -> float | None:
    r"""Lawrence's formula: $\sum_v (c^\top v)^d / (d!\,|\det W_v| \prod_j \gamma_j)$, $W_v^\top \gamma = c$.

    True for every objective c that is constant on no edge; the one with the least cancellation is taken.
    None if even that one is too inaccurate. Simplices of a triangulated degenerate vertex add up to its term.
    """
    d = W.shape[1]
    polar = _polar(W, slack)
    bases = W[polar.facets]
    sign, logdet = np.linalg.slogdet(bases)
    # A flat simplex of the triangulation has a normal cone of measure zero.
    solid = (sign != 0) & (logdet > math.log(1e-12) + np.log(np.linalg.norm(bases, axis=2)).sum(axis=1))
    objectives = np.random.default_rng(0).standard_normal((d, N_OBJECTIVES))
    gamma = np.linalg.solve(bases[solid].transpose(0, 2, 1), objectives)
    heights = polar.vertices[solid] @ objectives
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        terms = heights**d / (math.factorial(d) * np.exp(logdet[solid])[:, None] * gamma.prod(axis=1))
    sums, sizes = terms.sum(axis=0), np.abs(terms).sum(axis=0)
    best = int(np.nanargmin(np.where(np.isfinite(sizes), sizes, np.inf)))
    accuracy = 1e3 * np.finfo(float).eps * sizes[best] / abs(sums[best])
    return float(sums[best]) if accuracy <= VOLUME_ACCURACY and sums[best] > 0 else None
