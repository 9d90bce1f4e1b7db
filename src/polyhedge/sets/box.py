"""Boxes: one half-width for each outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.validation import Array, as_finite, as_rows
from polyhedge.sets.polyhedron import Polyhedron
from polyhedge.sets.shape import (
    N_SAMPLES,
    Volume,
    as_center,
    as_directions,
    frozen,
    like_directions,
    score_in_blocks,
)
from polyhedge.solvers.program import ConicForm


@dataclass(frozen=True, eq=False, init=False)
class Box:
    r"""An axis-parallel box: $\{e : |e_j - c_j| \le r\,s_j \text{ for all } j\}$, c = `center`, s = `scale`.

    The Bonferroni box with given half-widths is `Box(half_widths)` at radius 1. A negative radius gives
    the empty set.

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

    @property
    def is_bounded(self) -> bool:
        """Always True."""
        return True

    @property
    def has_support_formula(self) -> bool:
        """Always True: `support` asks no solver."""
        return True

    def scores(self, residuals: ArrayLike) -> Array:
        r"""$\max_j |e_j - c_j| / s_j$ of each row of `residuals` (n, d)."""
        rows = as_rows(residuals, "residuals", self.n_outcomes)
        return score_in_blocks(lambda block: np.abs((block - self.center) / self.scale).max(axis=1), rows)

    def contains(self, residuals: ArrayLike, radius: float) -> NDArray[np.bool_]:
        """Whether each row of `residuals` (n, d) has a score of at most `radius`."""
        return self.scores(residuals) <= radius

    def support(self, directions: ArrayLike, radius: float) -> Any:
        r"""$v^\top c + r \sum_j s_j |v_j|$ of each row v of `directions`; `-inf` if r < 0."""
        V, single = as_directions(directions, self.n_outcomes)
        values = V @ self.center + radius * (np.abs(V) @ self.scale)
        return like_directions(values if radius >= 0 else np.full(len(V), -np.inf), single)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        r"""$\prod_j 2 r s_j$, exact."""
        return Volume(float(np.prod(2.0 * max(radius, 0.0) * self.scale)))

    def conic_form(self, radius: float) -> ConicForm:
        """The 2d half-spaces of the box; infeasible if the radius is negative."""
        return self.as_polyhedron().conic_form(radius)

    def facets(self) -> Polyhedron:
        """As `as_polyhedron`; see `LearnedShape`."""
        return self.as_polyhedron()

    def scaled(self, factor: float) -> Box:
        """The box whose residuals are `factor` times as large, at every radius."""
        return Box(factor * self.scale, factor * self.center)

    def state(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {"kind": "Box", "scale": self.scale, "center": self.center}

    def as_polyhedron(self) -> Polyhedron:
        """The same sets, radius by radius, with the same scores, as half-spaces."""
        rows, offset = np.diag(1.0 / self.scale), self.center / self.scale
        return Polyhedron(np.vstack([rows, -rows]), np.concatenate([-offset, offset]))
