"""Boxes: one half-width for each outcome."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, as_finite
from polyhedge.sets.polyhedron import Polyhedron
from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, as_center, frozen


@stored("box")
@dataclass(frozen=True, eq=False, init=False)
class Box(Shape):
    r"""An axis-parallel box: $\{e : |e_j - c_j| \le r\,s_j \text{ for all } j\}$, c = `center`, s = `scale`.

    The Bonferroni box with given half-widths is `Box(half_widths)` at radius 1. A negative radius gives the empty set.

    Parameters
    ----------
    scale : (d,) array
        Positive half-widths at radius 1.
    center : (d,) array or float, default 0

    Examples
    --------
    >>> box = Box([1.0, 2.0])
    >>> box.scores([[0.5, 3.0]])
    array([1.5])
    >>> box.support([1.0, -1.0], radius=1.0)
    3.0
    >>> box.volume(1.0)
    Volume(8.0, exact)
    """

    scale: Array
    center: Array

    has_support_formula = True

    def __init__(self, scale: ArrayLike, center: ArrayLike = 0.0) -> None:
        scale = frozen(as_finite(scale, "scale", ndim=1))
        if not len(scale) or scale.min() <= 0:
            raise ValueError(
                f"scale must hold a positive half-width for each outcome, got {scale.tolist()}. "
                "Use a small positive value for an outcome that hardly varies."
            )
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "center", as_center(center, len(scale)))

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return len(self.scale)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        r"""$\prod_j 2 r s_j$, exact."""
        return Volume(float(np.prod(2.0 * max(radius, 0.0) * self.scale)))

    def facets(self) -> Polyhedron:
        """The 2d half-spaces of the box."""
        rows, offset = np.diag(1.0 / self.scale), self.center / self.scale
        return Polyhedron(np.vstack([rows, -rows]), np.concatenate([-offset, offset]))

    def scaled(self, factor: float) -> Box:
        """The box with half-widths and centre `factor` times as large."""
        return Box(factor * self.scale, factor * self.center)

    def _scores(self, rows: Array) -> Array:
        return np.asarray(np.abs((rows - self.center) / self.scale).max(axis=1))

    def _support(self, directions: Array, radius: float) -> Array:
        return directions @ self.center + (radius * (np.abs(directions) @ self.scale) if radius >= 0 else -np.inf)
