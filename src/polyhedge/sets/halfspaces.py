r"""Geometry of $\{e : W e \le h\}$: vertices and volume from the convex hull of the polar body.

Seen from an interior point with slacks $s = h - W c$, the vertices correspond to the facets of the hull of the points
$w_k / s_k$. Everything is computed in coordinates in which the bounding box of the set is about $[-1, 1]^d$, so that
the answers do not depend on the units of outcomes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from polyhedge._support.tolerances import SOLVER
from polyhedge._support.validation import Array
from polyhedge.solvers.linear import chebyshev_center, maximise_linear, units_of_outcomes
from polyhedge.solvers.program import power_of_two

MAX_VERTICES = 5_000_000
"""Most vertices that are listed or that a volume is computed from: more take gigabytes."""


def vertices(W: Array, h: Array) -> Array:
    r"""Vertices (n_vertices, d) of the bounded polyhedron $W e \le h$; no rows if it is empty."""
    body = _standardised(W, h)
    return body.origin + body.unit * _vertices(body)


def volume(W: Array, h: Array) -> float | None:
    r"""Volume of $W e \le h$: 0 if empty or flat, `inf` if unbounded with interior.

    It is that of the hull of the vertices. None for more than 5 outcomes, or for too many vertices.
    """
    body, d = _standardised(W, h), W.shape[1]
    size, W, h = float(np.prod(body.unit)), body.W, body.h
    center, depth = body.inner_ball()
    if depth <= 0:
        return 0.0
    if d == 1:
        lower, upper = _interval(W, h)
        return size * (upper - lower)
    center, width = body.bounding_box(center)
    if not np.isfinite(width).all():
        return np.inf
    # In the coordinates of the bounding box, thin sets are as well conditioned as fat ones.
    size, W, slack = size * float(np.prod(width)), W * width, h - W @ center
    if d > 5 or most_vertices(*W.shape) > MAX_VERTICES:
        return None
    return size * float(ConvexHull(_polar(W, slack)).volume)


def most_vertices(n_facets: int, d: int) -> int:
    """The most vertices that so many facets can have in d dimensions (McMullen's upper bound theorem)."""
    if n_facets <= d:
        return 1
    return math.comb(n_facets - (d + 1) // 2, n_facets - d) + math.comb(n_facets - (d + 2) // 2, n_facets - d)


class _Body(NamedTuple):
    """Half-spaces W e' <= h of e' = (e - origin) / unit; the bounding box of the set is about [-1, 1]^d."""

    W: Array
    h: Array
    near: NDArray[np.bool_]  # half-spaces that come near the box; the others are redundant
    origin: Array
    unit: Array  # powers of two

    def inner_ball(self) -> tuple[Array, float]:
        """Chebyshev centre and radius; the radius is exactly 0 for flat sets and negative for empty ones."""
        W, h = self.W[self.near], self.h[self.near]
        center, _ = chebyshev_center(W, h)
        # Seen from a first centre, right-hand sides are as small as the set, so that the tolerance is relative to it.
        slack = h - W @ center
        shift, depth = chebyshev_center(W, slack)
        size = float(np.abs(slack / np.linalg.norm(W, axis=1)).max(initial=0.0))
        return center + shift, 0.0 if abs(depth) <= SOLVER * size else depth

    def bounding_box(self, inner: Array) -> tuple[Array, Array]:
        """A point well inside, and the half-widths of the bounding box (inf if unbounded)."""
        W, d = self.W[self.near], self.W.shape[1]
        slack = self.h[self.near] - W @ inner
        values, points = maximise_linear(W, slack, np.vstack([np.eye(d), -np.eye(d)]), np.ones(d))
        if not np.isfinite(values).all():
            return inner, np.where(np.isfinite(values[:d] + values[d:]), 1.0, np.inf)
        return inner + points.sum(axis=0) / (2 * d + 1), (values[:d] + values[d:]) / 2


def _standardised(W: Array, h: Array) -> _Body:
    """Half-spaces in the coordinates of their bounding box; units from the entries alone if it is empty or unbounded.

    An outcome without width takes a unit that does not outweigh the others.
    """
    d = W.shape[1]
    unit, origin, near, flat = units_of_outcomes(W, h), np.zeros(d), np.ones(len(W), bool), np.zeros(d, bool)
    for _ in range(3):  # a box that is narrow in the units of the last one is measured again in its own
        rows, slack = (W * unit)[near], (h - W @ origin)[near]
        values, _ = maximise_linear(rows, slack, np.vstack([np.eye(d), -np.eye(d)]), np.ones(d))
        if not np.isfinite(values).all():
            break
        middle, width = (values[:d] - values[d:]) / 2, (values[:d] + values[d:]) / 2
        least = 2.0**-20 * float(np.abs(slack / np.linalg.norm(rows, axis=1)).max(initial=0.0))
        flat = width <= 0
        factor = np.where(flat, 1.0, [power_of_two(max(w, least)) for w in width.tolist()])
        origin, unit = origin + unit * middle, unit * factor
        near = ~(h - W @ origin > 2 * np.abs(W * unit) @ np.maximum(width / factor, 1.0))
        if not (~flat & (width < least)).any():
            break
    rest = np.linalg.norm(W * np.where(flat, 0.0, unit), axis=1)
    for j in np.flatnonzero(flat):
        both = (W[:, j] != 0) & (rest > 0)
        unit[j] = power_of_two(float((rest[both] / np.abs(W[both, j])).min(initial=unit[j])))
    return _Body(W * unit, h - W @ origin, near, origin, unit)


def _vertices(body: _Body) -> Array:
    W, h = body.W, body.h
    center, depth = body.inner_ball()
    if depth < 0:
        return np.empty((0, W.shape[1]))
    if depth == 0:
        return _flat_vertices(W[body.near], h[body.near] - W[body.near] @ center, center)
    if W.shape[1] == 1:
        return np.array(_interval(W, h))[:, None]
    if most_vertices(*W.shape) > MAX_VERTICES:
        raise ValueError(
            f"A set of {len(W)} facets in {W.shape[1]} dimensions may have more than {MAX_VERTICES} vertices, too many "
            "to list. Use fewer facets."
        )
    center, width = body.bounding_box(center)
    corners = _polar(W * width, h - W @ center)
    grid = np.round(corners / (SOLVER * max(1e-300, float(np.abs(corners).max()))))
    return center + width * corners[np.unique(grid, axis=0, return_index=True)[1]]


def _flat_vertices(W: Array, slack: Array, center: Array) -> Array:
    """Vertices of a set without interior: those of its coordinates in its affine hull."""
    length = np.linalg.norm(W, axis=1)
    lowest, _ = maximise_linear(W, slack, -W, np.ones(W.shape[1]))
    # Rows that are tight on the whole set span the normals of its affine hull; a flat set has at least one.
    excess = (slack + lowest) / (10 * SOLVER * np.maximum(length, np.abs(slack)))
    tight = excess <= max(1.0, float(excess.min()))
    _, singular, Vt = np.linalg.svd(W[tight] / length[tight, None], full_matrices=True)
    basis = Vt[max(int(np.sum(singular > SOLVER)), 1) :].T
    if not basis.shape[1]:
        return center[None, :]
    reduced = W[~tight] @ basis
    moving = np.linalg.norm(reduced, axis=1) > SOLVER * length[~tight]
    return center + vertices(reduced[moving], slack[~tight][moving]) @ basis.T


def _interval(W: Array, h: Array) -> tuple[float, float]:
    w = W[:, 0]
    lower = np.max(h[w < 0] / w[w < 0], initial=-np.inf)
    upper = np.min(h[w > 0] / w[w > 0], initial=np.inf)
    return float(lower), float(upper)


def _polar(W: Array, slack: Array) -> Array:
    """A vertex for each simplex of the polar hull; degenerate ones repeat."""
    hull = ConvexHull(W / slack[:, None])
    return np.asarray(-hull.equations[:, :-1] / hull.equations[:, -1:])
