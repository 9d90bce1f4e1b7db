"""Regions for PyROS, the robust solver of Pyomo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhedge.sets import Ball, Ellipsoid

if TYPE_CHECKING:
    from polyhedge.sets.region import Region


def as_pyros(region: Region) -> Any:
    """The region as an uncertainty set of PyROS."""
    try:
        from pyomo.contrib import pyros
    except ImportError as error:
        raise ImportError("A set for PyROS needs Pyomo: pip install 'polyhedge[pyomo]'.") from error
    if not region.is_bounded or region.is_empty:
        raise ValueError("PyROS takes bounded sets with at least one outcome. Look at region.is_bounded and is_empty.")
    if region.shape.facets() is not None:
        return pyros.PolyhedralSet(region.W.tolist(), region.h.tolist())
    shape: Any = region.shape
    if isinstance(shape, Ellipsoid):
        matrix = shape.shape
    elif isinstance(shape, Ball) and shape.norm == 2:
        matrix = np.eye(region.n_outcomes)
    else:
        raise ValueError(
            f"PyROS has no set like {type(region.shape).__name__}: only polyhedra, Euclidean balls and ellipsoids go "
            "there."
        )
    center = region.center + shape.center
    round_set = pyros.EllipsoidalSet(center.tolist(), matrix.tolist(), scale=region.radius**2)
    if region.support_W is None or region.support_h is None:
        return round_set
    # PyROS wants a bounded polyhedron: the known support, closed by the box around the round set.
    eye = np.eye(region.n_outcomes)
    rows = np.vstack([region.support_W, eye, -eye])
    sides = np.concatenate([region.support_h, region.support(eye), region.support(-eye)])
    return pyros.IntersectionSet(round=round_set, known=pyros.PolyhedralSet(rows.tolist(), sides.tolist()))
