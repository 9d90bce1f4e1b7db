"""Regions: an uncertainty set placed around a prediction, cut with what is known of the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from polyhedge._support.tolerances import INSIDE
from polyhedge._support.validation import Array, as_finite, as_rows
from polyhedge.sets.polyhedron import Polyhedron
from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, as_directions, frozen, volume_from_share
from polyhedge.solvers.linear import maximise_conic, recession_direction
from polyhedge.solvers.program import Cone, ConicForm


@dataclass(frozen=True, eq=False, init=False)
class Region:
    r"""The outcomes a decision must face: $\{u : u - c \in S(r),\ A u \le h\}$.

    S(r) is the `shape` at `radius`, c the `center` (the prediction), and (A, h) = (`support_W`, `support_h`)
    the known support of the outcome, for example demand that is never negative.

    Parameters
    ----------
    shape : Shape
    radius : float
    center : (d,) array
    support_W : (k, d) array, optional
        Normals of the known support.
    support_h : (k,) array, optional
        Right-hand sides of the known support.

    Examples
    --------
    >>> from polyhedge.sets import Box
    >>> region = Region(Box([1.0, 1.0]), 2.0, [1.0, 5.0], support_W=-np.eye(2), support_h=np.zeros(2))
    >>> region.support([[1.0, 0.0], [-1.0, 0.0]])
    array([3., 0.])
    >>> region.contains([-0.5, 5.0]), round(region.volume(), 9)
    (False, 12.0)
    """

    shape: Shape
    radius: float
    center: Array
    support_W: Array | None
    support_h: Array | None

    def __init__(
        self,
        shape: Shape,
        radius: float,
        center: ArrayLike,
        support_W: ArrayLike | None = None,
        support_h: ArrayLike | None = None,
    ) -> None:
        if not np.isfinite(radius):
            raise ValueError(f"radius must be finite, got {radius}. Calibrate with more samples or a larger alpha.")
        center = as_finite(center, "center", ndim=1)
        if len(center) != shape.n_outcomes:
            raise ValueError(f"center must have {shape.n_outcomes} entries, one for each outcome, got {len(center)}.")
        if (support_W is None) != (support_h is None):
            raise ValueError("support_W and support_h describe the known support together: give both or none.")
        W = h = None
        if support_W is not None and support_h is not None:
            W, h = as_rows(support_W, "support_W", shape.n_outcomes), as_finite(support_h, "support_h", ndim=1)
            if len(W) != len(h):
                raise ValueError(
                    f"support_h must have an entry for each of the {len(W)} rows of support_W, got {len(h)}."
                )
            W, h = (frozen(W), frozen(h)) if len(W) else (None, None)
        fields = {"shape": shape, "radius": float(radius), "center": frozen(center), "support_W": W, "support_h": h}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        middle = np.array2string(self.center, precision=4, separator=", ", threshold=8)
        return f"<Region: {type(self.shape).__name__} of radius {self.radius:.4g} around {middle}>"

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the outcomes."""
        return self.shape.n_outcomes

    @property
    def W(self) -> Array:
        r"""Normals (n_facets + k, d) of $\{u : W u \le h\}$; polyhedral shapes only."""
        return self._residual_polyhedron().W

    @property
    def h(self) -> Array:
        r"""Right-hand sides (n_facets + k,) of $\{u : W u \le h\}$; polyhedral shapes only."""
        polyhedron = self._residual_polyhedron()
        return polyhedron.W @ self.center - polyhedron.b

    @property
    def is_bounded(self) -> bool:
        """Whether the region is bounded, by its shape, by the known support, or by both together."""
        if self.shape.is_bounded or (self.support_W is not None and recession_direction(self.support_W) is None):
            return True
        eye = np.eye(self.n_outcomes)
        return bool(np.all(self.support(np.vstack([eye, -eye])) < np.inf))

    @property
    def is_empty(self) -> bool:
        """Whether no outcome lies in the region."""
        return bool(self.support(np.zeros(self.n_outcomes)) == -np.inf)

    def to_pyros(self) -> Any:
        """The region as an uncertainty set of PyROS, the robust solver of Pyomo (`pip install 'polyhedge[pyomo]'`).

        Polyhedra, Euclidean balls and ellipsoids, with what is known of the outcome; bounded and not empty.
        """
        return import_module("polyhedge.integrations.pyros").as_pyros(self)

    def contains(self, outcomes: ArrayLike) -> Any:
        """Whether outcomes lie in the region: an array (n,) for rows (n, d), a bool for one point (d,).

        Boundary points count as inside up to a relative tolerance of 1e-9.
        """
        single = np.ndim(outcomes) == 1
        rows = as_finite(outcomes, "outcomes", ndim=1)[None, :] if single else outcomes
        residuals = as_rows(rows, "outcomes", self.n_outcomes) - self.center
        if self._has_facets:
            polyhedron = self._residual_polyhedron()
            inside = _satisfies(residuals, polyhedron.W, -polyhedron.b)
        else:
            inside = self.shape.contains(residuals, self.radius + INSIDE * abs(self.radius))
            if self.support_W is not None and self.support_h is not None:
                inside &= _satisfies(residuals, self.support_W, self.support_h - self.support_W @ self.center)
        return bool(inside[0]) if single else inside

    def support(self, directions: ArrayLike) -> Any:
        r"""$\max\{v^\top u : u \in \text{region}\}$ of each row v of `directions`.

        An array (m,) for `directions` (m, d), a float for one direction (d,); `inf` where unbounded,
        `-inf` if the region is empty.
        """
        V, single = as_directions(directions, self.n_outcomes)
        if self.support_W is None:
            values = self.shape.support(V, self.radius)
        elif self._has_facets:
            values = self._residual_polyhedron().support(V, 0.0)
        else:
            values = maximise_conic(self._residual_form(), V)
        values = values + V @ self.center
        return float(values[0]) if single else values

    def conic_form(self) -> ConicForm:
        r"""Arrays of the region in outcome space: $\{u : \exists y,\ g - G\,[u; y] \in K\}$."""
        form = self._residual_form()
        return ConicForm(form.G, form.g + form.G[:, : self.n_outcomes] @ self.center, form.cones)

    def vertices(self) -> Array:
        """Vertices (n_vertices, d); bounded regions of polyhedral shapes only."""
        return self.center + self._residual_polyhedron().vertices(0.0)

    def volume(self, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """Lebesgue volume, as exact as that of the shape.

        Only a shape without facets that is cut with a known support is estimated, from the share of `n_samples` uniform
        points of its bounding box that lie in the region.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        if self.support_W is None:
            return self.shape.volume(self.radius, rng=rng, n_samples=n_samples)
        if self._has_facets:
            return self._residual_polyhedron().volume(0.0, rng=rng, n_samples=n_samples)
        if self.is_empty:
            return Volume(0.0)
        if not self.is_bounded:
            return Volume(np.inf)
        eye = np.eye(self.n_outcomes)
        upper, lower = self.support(eye), -self.support(-eye)
        inside = self.contains(rng.uniform(lower, upper, (n_samples, len(eye))))
        return volume_from_share(inside, float(np.prod(upper - lower)))

    @property
    def _has_facets(self) -> bool:
        return self.shape.facets() is not None

    def _residual_polyhedron(self) -> Polyhedron:
        """The region shifted to the origin, at radius 0: far away, rounding would eat the set's own size."""
        polyhedron = self.shape.facets()
        if polyhedron is None:
            raise TypeError(
                "Only shapes with facets, such as Polyhedron, Box and Ball (norm inf; norm 1 up to 12 outcomes), have "
                f"W, h and vertices, got {type(self.shape).__name__}. Use support() or conic_form()."
            )
        W, h = polyhedron.W, self.radius - polyhedron.b
        if self.support_W is not None and self.support_h is not None:
            W = np.vstack([W, self.support_W])
            h = np.concatenate([h, self.support_h - self.support_W @ self.center])
        return Polyhedron.from_halfspaces(W, h)

    def _residual_form(self) -> ConicForm:
        form = self.shape.conic_form(self.radius)
        if self.support_W is None or self.support_h is None:
            return form
        return cut_form(form, self.center, (self.support_W, self.support_h))


def cut_form(form: ConicForm, center: Array, support_rows: tuple[Array, Array]) -> ConicForm:
    """The residual set cut by {e : A (center + e) <= h}."""
    A, h = support_rows
    if not len(A):
        return form
    rows = sp.hstack([sp.csr_array(A), sp.csr_array((len(A), form.G.shape[1] - A.shape[1]))], format="csr")
    g = np.concatenate([form.g, h - A @ center])
    return ConicForm(sp.vstack([form.G, rows], format="csr"), g, (*form.cones, Cone("nonneg", len(A))))


def _satisfies(points: Array, W: Array, h: Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    size = np.abs(points) @ np.abs(W).T + np.abs(h)
    return np.all(points @ W.T <= h + INSIDE * size, axis=1)
