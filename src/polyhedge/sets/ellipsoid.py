"""Ellipsoids: balls of the Mahalanobis distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import INPUT
from polyhedge._support.validation import Array, as_finite
from polyhedge.sets.ball import Ball
from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, as_center, frozen
from polyhedge.solvers.program import Cone, ConicForm


@stored("ellipsoid")
@dataclass(frozen=True, eq=False, init=False)
class Ellipsoid(Shape):
    r"""An ellipsoid: $\{e : \|L^{-1}(e - c)\|_2 \le r\}$ with $L L^\top$ = `shape` and c = `center`.

    A negative radius gives the empty set.

    Parameters
    ----------
    shape : (d, d) array
        Symmetric and positive definite, for example a covariance matrix.
    center : (d,) array, optional
        The origin if not given.

    Examples
    --------
    >>> ellipsoid = Ellipsoid([[4.0, 0.0], [0.0, 1.0]])
    >>> ellipsoid.scores([[2.0, 0.0], [0.0, 2.0]])
    array([1., 2.])
    >>> ellipsoid.support([1.0, 0.0], radius=3.0)
    6.0
    """

    shape: Array
    center: Array

    has_support_formula = True
    is_round = True

    def __init__(self, shape: ArrayLike, center: ArrayLike | None = None) -> None:
        matrix = as_finite(shape, "shape", ndim=2)
        skew = float(np.abs(matrix - matrix.T).max())
        if skew > INPUT * np.abs(matrix).max():
            raise ValueError(f"shape must be symmetric, got entries that differ by {skew:.3g} from their mirror image.")
        matrix = (matrix + matrix.T) / 2
        eigenvalues = np.linalg.eigvalsh(matrix)
        # A rounding-size eigenvalue would pass a Cholesky factorisation by luck and give meaningless scores.
        if eigenvalues[0] <= len(matrix) * np.finfo(float).eps * abs(eigenvalues[-1]):
            raise ValueError(
                f"shape must be positive definite, got the eigenvalues {eigenvalues.round(12).tolist()}. "
                "Drop outcomes that are combinations of others, or add a small multiple of the identity."
            )
        object.__setattr__(self, "shape", frozen(matrix))
        object.__setattr__(self, "center", as_center(center, len(matrix)))

    @classmethod
    def from_residuals(cls, residuals: ArrayLike) -> Ellipsoid:
        """Mean and covariance of `residuals` (n, d), n > d.

        Hand in learning residuals only: a shape that has seen the calibration split voids the coverage guarantee.
        """
        rows = as_finite(residuals, "residuals", ndim=2)
        return cls(np.atleast_2d(np.cov(rows, rowvar=False)), rows.mean(axis=0))

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return len(self.shape)

    @property
    def L(self) -> Array:
        """Lower Cholesky factor (d, d) of `shape`."""
        return np.asarray(np.linalg.cholesky(self.shape), dtype=np.float64)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        r"""$\det(L)$ times the volume of the l_2 ball of that radius, exact."""
        return Volume(float(Ball(self.n_outcomes).volume(radius) * np.prod(np.diag(self.L))))

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball."""
        return center + self.center + radius * (points @ self.L.T)

    def scaled(self, factor: float) -> Ellipsoid:
        """The ellipsoid with L and centre `factor` times as large."""
        return Ellipsoid(factor**2 * self.shape, factor * self.center)

    def conic_form(self, radius: float) -> ConicForm:
        r"""One second-order cone: $(r, L^{-1}(e - c))$; infeasible if the radius is negative."""
        inverse = self._inverse_factor()
        G = sp.csr_array(np.vstack([np.zeros((1, self.n_outcomes)), -inverse]))
        return ConicForm(G, np.concatenate([[radius], -inverse @ self.center]), (Cone("soc", len(inverse) + 1),))

    def _scores(self, rows: Array) -> Array:
        return np.asarray(np.linalg.norm((rows - self.center) @ self._inverse_factor().T, axis=1))

    def _support(self, directions: Array, radius: float) -> Array:
        reach = np.linalg.norm(directions @ self.L, axis=1)
        return directions @ self.center + (radius * reach if radius >= 0 else -np.inf)

    def _inverse_factor(self) -> Array:
        return solve_triangular(self.L, np.eye(self.n_outcomes), lower=True)
