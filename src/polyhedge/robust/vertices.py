r"""Vertices of polyhedral sets around a prediction, also of those that are known by a lifted form only.

A convex cost is worst at a vertex. Where the facets are listed, the vertices follow from them (`Region`); an l_1 ball
has 2 d of them, however many facets. Level sets of convex networks are shadows of polyhedra in more dimensions: a
linear program along a direction finds a vertex of the shadow, and the directions to ask for are the normals of the
hull of the vertices found so far. When no facet of the hull can be passed, all of them are found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import ConvexHull

from polyhedge._support.tolerances import INSIDE
from polyhedge._support.validation import Array
from polyhedge.robust.support import maximise
from polyhedge.sets import Region, UncertaintySet
from polyhedge.sets.shape import Cornered, facets_of
from polyhedge.solvers.program import ConicForm

_MAX_OUTCOMES = 4
"""Outcomes up to which shadows are searched: the number of their vertices grows with the power d - 1."""
_MAX_VERTICES = 5000
"""Each is a row of the program that decides."""


@dataclass(frozen=True, eq=False)
class ResidualSet:
    """A set of residuals at one radius; its vertices, found when first asked for, are those of every context."""

    shape: UncertaintySet
    radius: float

    @cached_property
    def vertices(self) -> Array:
        """Vertices (n, d) of a set that is polyhedral, but lists neither facets nor vertices."""
        return shadow_vertices(self.shape.conic_form(self.radius), self.shape.n_outcomes)


def vertices_around(residuals: ResidualSet, center: Array, support_rows: tuple[Array, Array], form: ConicForm) -> Array:
    """Vertices (n, d) of the outcomes around one prediction; `form` is the residual set cut by the known support."""
    (A, h), shape, radius = support_rows, residuals.shape, residuals.radius
    listed = shape.vertices(radius) if isinstance(shape, Cornered) and not len(A) else None
    if listed is not None:
        return center + listed
    if facets_of(shape) is not None:
        return Region(shape, radius, center, *((A, h) if len(A) else (None, None))).vertices()
    if len(center) > _MAX_OUTCOMES:
        raise ValueError(
            f"The worst case of a convex cost over this {type(shape).__name__} needs all its vertices, which are found "
            f"up to {_MAX_OUTCOMES} outcomes, got {len(center)}. Use a Polyhedron, a Box or an Ellipsoid, or a cost "
            "that is a maximum of affine functions of the outcome."
        )
    if len(A):
        return center + shadow_vertices(form, len(center))
    return center + residuals.vertices


def shadow_vertices(form: ConicForm, d: int) -> Array:
    """Vertices (n, d) of the first d coordinates of a bounded polyhedral form; no rows if it is empty.

    Examples
    --------
    >>> from polyhedge.sets import Ball
    >>> shadow_vertices(Ball(2, norm=1).conic_form(1.0), 2).round(6) + 0.0
    array([[-1.,  0.],
           [ 0., -1.],
           [ 0.,  1.],
           [ 1.,  0.]])
    """
    axes = np.vstack([np.eye(d), -np.eye(d)])
    first = maximise(form, axes)
    if np.isneginf(first.values).any():
        return np.zeros((0, d))
    if not np.isfinite(first.values).all():
        raise ValueError("The set is unbounded, so it has no vertices to list. Add facets or a bounding box.")
    size = float((first.values[:d] + first.values[d:]).max())
    points, basis = _affine_hull(form, first.points, size)
    if basis.shape[1] == 1:
        points = maximise(form, np.vstack([basis.T, -basis.T])).points
    elif basis.shape[1] > 1:
        points = _outermost(form, points, basis, size)
    return points[np.lexsort(points.T[::-1])]


def _affine_hull(form: ConicForm, points: Array, size: float) -> tuple[Array, Array]:
    """Points that span the set (one, where it is a single point), and an orthonormal basis (d, r) of its directions."""
    d = points.shape[1]
    inside, across = np.zeros((d, 0)), np.zeros((d, 0))
    while inside.shape[1] + across.shape[1] < d:
        known = np.column_stack([inside, across])
        direction = np.linalg.svd(known, full_matrices=True)[0][:, -1]
        ends = maximise(form, np.stack([direction, -direction]))
        if ends.values.sum() <= INSIDE * size:
            across = np.column_stack([across, direction])
            continue
        step = ends.points[0] - ends.points[1]
        step = step - known @ (known.T @ step)
        inside = np.column_stack([inside, step / np.linalg.norm(step)])
        points = np.vstack([points, ends.points])
    return (points if inside.shape[1] else points[:1]), inside


def _outermost(form: ConicForm, points: Array, basis: Array, size: float) -> Array:
    """All vertices: pass the facets of the hull of those found as long as one can be passed."""
    proven: set[frozenset[int]] = set()
    while len(points) <= _MAX_VERTICES:
        hull = ConvexHull(points @ basis)
        facets = [frozenset(simplex) for simplex in hull.simplices.tolist()]
        asked = [k for k, facet in enumerate(facets) if facet not in proven]
        if not asked:
            return points[hull.vertices]
        normals, offsets = hull.equations[asked, :-1], hull.equations[asked, -1]
        certificate = maximise(form, normals @ basis.T)
        passed = certificate.values + offsets > INSIDE * size
        proven |= {facets[k] for k, is_passed in zip(asked, passed, strict=True) if not is_passed}
        points = np.vstack([points, certificate.points[passed]])
    raise ValueError(
        f"The set has more than {_MAX_VERTICES} vertices, too many for the worst case of a convex cost. Use a "
        "Polyhedron, a Box or an Ellipsoid, or a cost that is a maximum of affine functions of the outcome."
    )
