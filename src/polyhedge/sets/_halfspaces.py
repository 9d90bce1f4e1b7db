r"""Geometry of $\{e : W e \le h\}$: vertices and volume from the convex hull of the polar body.

Seen from an interior point with slacks $s = h - W c$, the vertices correspond to the facets of the hull of
the points $w_k / s_k$. Whether a set is flat is asked where its bounding box is nearly a cube, so that the answer does
not depend on the units that outcomes are measured in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from polyhedge._support.tolerances import ROUNDING, SOLVER
from polyhedge._support.validation import Array
from polyhedge.sets._sampling import polytope_volume
from polyhedge.sets.shape import Volume
from polyhedge.solvers.linear import chebyshev_center, maximise_linear, units_of_outcomes
from polyhedge.solvers.scaling import power_of_two

# Above this dimension, the number of vertices makes exact volumes hopeless.
MAX_EXACT_OUTCOMES = 8
# The hull of the vertices is the most accurate way to a volume, but its cost explodes with the dimension.
MAX_HULL_OUTCOMES = 4
# Corners that a set may have for its volume or its corners to be computed from them: more take gigabytes.
MAX_VERTICES = 5_000_000
# Lawrence's sum is accepted if cancellation leaves at least this relative accuracy.
VOLUME_ACCURACY = 1e-6
N_OBJECTIVES = 64
# Bounding boxes sought, each seen from the last: one does unless outcomes or limits differ by millions.
_MOST_FRAMES = 8
# Share of the largest slack down to which a width is told from the tolerances of a solver; the next frame sees more.
_CLEAR = 2.0**-20


def vertices(W: Array, h: Array) -> Array:
    r"""Vertices (n_vertices, d) of the bounded polyhedron $W e \le h$; no rows if it is empty.

    Examples
    --------
    >>> vertices(np.array([[1.0], [-1.0]]), np.array([2.0, 1.0]))
    array([[-1.],
           [ 2.]])
    """
    return _vertices(W, h, np.zeros(len(h)))


def _vertices(W: Array, h: Array, noise: Array) -> Array:
    """Vertices where each limit may be off by its noise."""
    frame = _framed(W, h, noise)
    return frame.origin + frame.unit * _vertices_seen(frame)


def _vertices_seen(frame: _Framed) -> Array:
    W, h = frame.W, frame.h
    center, depth = _inner_ball(frame)
    if depth < 0:
        return np.empty((0, W.shape[1]))
    if depth == 0:
        return _flat_vertices(frame, center)
    if W.shape[1] == 1:
        return np.array(_interval(W, h))[:, None]
    if most_vertices(*W.shape) > MAX_VERTICES:
        raise ValueError(
            f"A set of {len(W)} facets in {W.shape[1]} dimensions may have more than {MAX_VERTICES} vertices, too many "
            "to list. Use fewer facets."
        )
    center, width = _bounding_frame(W[frame.near], h[frame.near], center)
    corners = _polar(W * width, h - W @ center).vertices
    return center + width * corners[_first_of_equals(corners)]


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
    frame = _framed(W, h, np.zeros(len(h)))
    size, W, h = float(np.prod(frame.unit)), frame.W, frame.h
    center, depth = _inner_ball(frame)
    if depth <= 0:
        return Volume(0.0)
    if d == 1:
        lower, upper = _interval(W, h)
        return Volume(size * (upper - lower))
    center, width = _bounding_frame(W[frame.near], h[frame.near], center)
    if not np.isfinite(width).all():
        return Volume(np.inf)
    # In the frame of the bounding box, thin sets are as well conditioned as fat ones.
    size, W, slack = size * float(np.prod(width)), W * width, h - W @ center
    are_few = most_vertices(*W.shape) <= MAX_VERTICES
    if d <= MAX_HULL_OUTCOMES and are_few:
        return Volume(size * float(ConvexHull(_polar(W, slack).vertices).volume))
    exact = _lawrence_volume(W, slack) if MAX_HULL_OUTCOMES < d <= MAX_EXACT_OUTCOMES and are_few else None
    if exact is not None:
        return Volume(size * exact)
    estimate = polytope_volume(W, slack, rng, n_samples)
    return Volume(size * estimate, size * estimate.standard_error)


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


class _Framed(NamedTuple):
    """Half-spaces W e' <= h of e' = (e - origin) / unit, with the box of the set from about -1 to 1 in each outcome."""

    W: Array
    h: Array
    noise: Array  # what each limit may be off by
    near: NDArray[np.bool_]  # limits that the box comes near to; the others say nothing of the set
    origin: Array
    unit: Array  # powers of two


def _framed(W: Array, h: Array, noise: Array) -> _Framed:
    """Half-spaces in the frame of their bounding box.

    It is that of limits widened by the digits that they have lost, which is as narrow as a set can be said to be. An
    outcome in which the set has no end keeps a unit that goes by the numbers in the half-spaces, one in which it has
    exactly no width takes a unit that does not outweigh the others.
    """
    d, still = W.shape[1], np.zeros(W.shape[1], dtype=bool)
    unit, origin, near = units_of_outcomes(W, h), np.zeros(d), np.ones(len(W), dtype=bool)
    for _ in range(_MOST_FRAMES):
        lost = noise + ROUNDING * (np.abs(h) + np.abs(W) @ np.abs(origin))
        seen, slack = (W * unit)[near], (h - W @ origin + lost)[near]
        values, _ = maximise_linear(seen, slack, np.vstack([np.eye(d), -np.eye(d)]), np.ones(d))
        if not np.isfinite(values).all():  # empty, or without end
            break
        middle, width = (values[:d] - values[d:]) / 2, (values[:d] + values[d:]) / 2
        clear = _CLEAR * float(np.abs(slack / np.linalg.norm(seen, axis=1)).max(initial=0.0))
        still = width <= 0
        factor = np.where(still, 1.0, [power_of_two(max(w, clear)) for w in width.tolist()])
        origin, unit = origin + unit * middle, unit * factor
        # What lies beyond twice the box on all sides would measure the set by its own distance.
        near = ~(h - W @ origin > 2 * np.abs(W * unit) @ np.maximum(width / factor, 1.0))
        if not (~still & (width < clear)).any():
            break
    rest = np.linalg.norm(W * np.where(still, 0.0, unit), axis=1)
    for j in np.flatnonzero(still):
        both = (W[:, j] != 0) & (rest > 0)
        unit[j] = power_of_two(float((rest[both] / np.abs(W[both, j])).min(initial=unit[j])))
    lost = noise + ROUNDING * (np.abs(h) + np.abs(W) @ np.abs(origin))
    return _Framed(W * unit, h - W @ origin, lost, near, origin, unit)


def _inner_ball(frame: _Framed) -> tuple[Array, float]:
    """Chebyshev centre and radius; the radius is exactly 0 for flat sets and negative for empty ones."""
    W, h = frame.W[frame.near], frame.h[frame.near]
    center, _ = chebyshev_center(W, h)
    # Seen from a first centre, offsets are as small as the set, so the tolerance is relative to its size.
    slack, length = h - W @ center, np.linalg.norm(W, axis=1)
    shift, depth = chebyshev_center(W, slack)
    size = float(np.abs(slack / length).max(initial=0.0))
    # What is left of h - W c is no thicker than the digits that the difference has lost.
    rounding = float((frame.noise[frame.near] / length).max(initial=0.0))
    return center + shift, 0.0 if abs(depth) <= max(SOLVER * size, rounding) else depth


def _interval(W: Array, h: Array) -> tuple[float, float]:
    w = W[:, 0]
    lower = np.max(h[w < 0] / w[w < 0], initial=-np.inf)
    upper = np.min(h[w > 0] / w[w > 0], initial=np.inf)
    return float(lower), float(upper)


def _bounding_frame(W: Array, h: Array, inner: Array) -> tuple[Array, Array]:
    """A point well inside, and the half-widths of the bounding box (inf if unbounded)."""
    d = W.shape[1]
    values, points = maximise_linear(W, h - W @ inner, np.vstack([np.eye(d), -np.eye(d)]), np.ones(d))
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


def _flat_vertices(frame: _Framed, center: Array) -> Array:
    """Vertices of a set without interior: those of its coordinates in its own affine hull."""
    W, noise = frame.W[frame.near], frame.noise[frame.near]
    slack, length = frame.h[frame.near] - W @ center, np.linalg.norm(W, axis=1)
    lowest, _ = maximise_linear(W, slack + noise, -W, np.ones(W.shape[1]))
    # Rows that are tight on the whole set span the normals of its affine hull; the set is flat, so that some row is.
    limit = np.maximum(10 * SOLVER * np.maximum(length, np.abs(slack)), 2 * noise)
    excess = (slack + lowest) / limit
    tight = excess <= max(1.0, float(excess.min()))
    _, singular, Vt = np.linalg.svd(W[tight] / length[tight, None], full_matrices=True)
    rank = max(int(np.sum(singular > SOLVER)), 1)
    basis = Vt[rank:].T
    if not basis.shape[1]:
        return center[None, :]
    reduced = W[~tight] @ basis
    moving = np.linalg.norm(reduced, axis=1) > SOLVER * length[~tight]
    return center + _vertices(reduced[moving], slack[~tight][moving], noise[~tight][moving]) @ basis.T


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
