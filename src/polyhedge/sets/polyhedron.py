"""Polyhedra: the shape that is learned for a decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, as_finite
from polyhedge.sets import halfspaces
from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, frozen
from polyhedge.solvers.linear import maximise_linear, recession_direction
from polyhedge.solvers.program import Cone, ConicForm


@stored("polyhedron")
@dataclass(frozen=True, eq=False, init=False)
class Polyhedron(Shape):
    r"""A polyhedron: $\{e : W e + b \le r\}$; all facets move when the radius r changes.

    Its `scores` are the nonconformity score of the paper, $s(x, y; \theta) = \max_k w_k^\top e + b_k$.

    Fewer than d + 1 facets never bound a set; such half-spaces are allowed, with `is_bounded` False.

    Parameters
    ----------
    W : (n_facets, d) array
        Facet normals, none of them zero.
    b : (n_facets,) array
        Facet offsets.

    Examples
    --------
    >>> triangle = Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 0.0])
    >>> triangle.scores([[0.5, 0.25]])
    array([0.5])
    >>> triangle.support([[1.0, 1.0], [-1.0, 0.0]], radius=1.0)
    array([2., 2.])
    >>> triangle.is_bounded, round(triangle.volume(1.0), 9)
    (True, 4.5)
    """

    W: Array
    b: Array

    def __init__(self, W: ArrayLike, b: ArrayLike) -> None:
        W, b = as_finite(W, "W", ndim=2), as_finite(b, "b", ndim=1)
        if len(W) != len(b):
            raise ValueError(f"b must have one offset for each of the {len(W)} facets (rows of W), got {len(b)}.")
        zero = np.flatnonzero(~W.any(axis=1))
        if len(zero):
            raise ValueError(f"Each facet normal must be nonzero, got zeros in row(s) {zero.tolist()} of W. Drop them.")
        object.__setattr__(self, "W", frozen(W))
        object.__setattr__(self, "b", frozen(b))

    @classmethod
    def from_halfspaces(cls, W: ArrayLike, h: ArrayLike) -> Polyhedron:
        r"""The polyhedron that is $\{e : W e \le h\}$ at radius 0 (b = -h).

        Examples
        --------
        >>> Polyhedron.from_halfspaces([[1.0], [-1.0]], [2.0, 1.0]).support([1.0], radius=0.0)
        2.0
        """
        return cls(W, -as_finite(h, "h", ndim=1))

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return self.W.shape[1]

    @property
    def n_facets(self) -> int:
        """Number of rows of `W`, redundant ones included."""
        return self.W.shape[0]

    @property
    def is_bounded(self) -> bool:
        """Whether the facet normals span R^d positively, so that the set is bounded at every radius."""
        return self.unbounded_direction() is None

    def unbounded_direction(self) -> Array | None:
        r"""A unit vector t with $W t \le 0$, along which the set never ends, or None if it is bounded.

        Examples
        --------
        >>> Polyhedron([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0.0, 0.0, 0.0]).unbounded_direction()
        array([-1.,  0.])
        """
        return recession_direction(self.W)

    def vertices(self, radius: float) -> Array:
        """Vertices (n_vertices, d); also of flat sets, and no rows if the set is empty.

        Examples
        --------
        >>> Polyhedron([[1.0], [-2.0]], [0.0, 0.0]).vertices(radius=1.0)
        array([[-0.5],
               [ 1. ]])
        """
        direction = self.unbounded_direction()
        if direction is not None:
            raise ValueError(
                f"The polyhedron is unbounded along {direction.round(6).tolist()}, so it is not the hull of "
                "its vertices. Add facets (n_facets >= n_outcomes + 1) or a bounding box."
            )
        return halfspaces.vertices(self.W, radius - self.b)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """Lebesgue volume: 0 if empty or flat, `inf` if unbounded with interior.

        Up to 5 outcomes it is exact up to rounding. Above it is estimated from uniform points of the bounding box.
        """
        exact = halfspaces.volume(self.W, radius - self.b)
        return super().volume(radius, rng=rng, n_samples=n_samples) if exact is None else Volume(exact)

    def conic_form(self, radius: float) -> ConicForm:
        """One nonnegative row for each facet."""
        return ConicForm(sp.csr_array(self.W), radius - self.b, (Cone("nonneg", self.n_facets),))

    def scaled(self, factor: float) -> Polyhedron:
        """The set whose residuals are `factor` times as large, at every radius."""
        if not 0 < factor < np.inf:
            raise ValueError(f"factor must be positive, got {factor}.")
        return self if factor == 1 else Polyhedron(self.W / factor, self.b)

    def facets(self) -> Polyhedron:
        """The polyhedron itself."""
        return self

    def _scores(self, rows: Array) -> Array:
        return np.asarray((rows @ self.W.T + self.b).max(axis=1))

    def _support(self, directions: Array, radius: float) -> Array:
        # For many directions in few dimensions, all vertices cost less than a linear program for each direction.
        if self.n_outcomes <= 4 and len(directions) >= 64 and self.is_bounded:
            corners = self.vertices(radius)
            return (directions @ corners.T).max(axis=1) if len(corners) else np.full(len(directions), -np.inf)
        return maximise_linear(self.W, radius - self.b, directions)[0]
