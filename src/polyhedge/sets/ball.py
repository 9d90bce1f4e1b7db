"""Balls of the norms l_1, l_2 and l_inf."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array
from polyhedge.sets.polyhedron import Polyhedron
from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, as_center
from polyhedge.solvers.program import Cone, ConicForm

_DUAL_NORM = {1: np.inf, 2: 2, np.inf: 1}
_MAX_CROSS_POLYTOPE_OUTCOMES = 12
"""An l_1 ball has 2^d facets; beyond this dimension its lifted conic form describes it."""


@stored("ball")
@dataclass(frozen=True, eq=False, init=False)
class Ball(Shape):
    r"""A ball: $\{e : \|e - c\|_p \le r\}$, p = `norm`, c = `center`. A negative radius gives the empty set.

    Parameters
    ----------
    n_outcomes : int
    norm : {1, 2, inf}, default 2
    center : (d,) array, optional
        The origin if not given.

    Examples
    --------
    >>> ball = Ball(2)
    >>> ball.scores([[3.0, 4.0]])
    array([5.])
    >>> ball.support([[3.0, 4.0], [1.0, 0.0]], radius=2.0)
    array([10.,  2.])
    >>> Ball(3, norm=1).volume(1.0)
    Volume(1.333..., exact)
    """

    n_outcomes: int
    norm: float
    center: Array

    has_support_formula = True
    is_round = True

    def __init__(self, n_outcomes: int, norm: float = 2, center: ArrayLike | None = None) -> None:
        if norm not in _DUAL_NORM:
            raise ValueError(f"norm must be 1, 2 or inf (np.inf), got {norm!r}.")
        object.__setattr__(self, "n_outcomes", int(n_outcomes))
        object.__setattr__(self, "norm", norm)
        object.__setattr__(self, "center", as_center(center, n_outcomes))

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        r"""$r^d$ times $2^d/d!$, $\pi^{d/2}/\Gamma(d/2+1)$ or $2^d$ for the norms 1, 2 and inf; exact."""
        d = self.n_outcomes
        if self.norm == 2:
            unit = math.exp(d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1))
        else:
            unit = 2.0**d / (math.factorial(d) if self.norm == 1 else 1)
        return Volume(max(radius, 0.0) ** d * unit)

    def conic_form(self, radius: float) -> ConicForm:
        r"""A second-order cone (l_2), half-spaces (l_inf), or $-y \le e - c \le y,\ 1^\top y \le r$ (l_1)."""
        d, c = self.n_outcomes, self.center
        if self.norm == 2:
            G = sp.csr_array(np.vstack([np.zeros((1, d)), -np.eye(d)]))
            return ConicForm(G, np.concatenate([[radius], -c]), (Cone("soc", d + 1),))
        if self.norm == np.inf:
            return self.as_polyhedron().conic_form(radius)
        eye = np.eye(d)
        G = sp.csr_array(np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, d)), np.ones((1, d))]]))
        return ConicForm(G, np.concatenate([c, -c, [radius]]), (Cone("nonneg", 2 * d + 1),))

    def facets(self) -> Polyhedron | None:
        """2d (l_inf) or 2^d (l_1, up to 12 outcomes) half-spaces; None for l_2."""
        if self.norm == np.inf:
            W = np.vstack([np.eye(self.n_outcomes), -np.eye(self.n_outcomes)])
        elif self.norm == 1 and self.n_outcomes <= _MAX_CROSS_POLYTOPE_OUTCOMES:
            W = np.array(list(product([1.0, -1.0], repeat=self.n_outcomes)))
        else:
            return None
        return Polyhedron(W, -W @ self.center)

    def vertices(self, radius: float) -> Array | None:
        """The 2d vertices of an l_1 ball, the 2^d of an l_inf ball, none if it is empty; None for l_2."""
        if self.norm != 1:
            return super().vertices(radius)
        steps = np.vstack([np.eye(self.n_outcomes), -np.eye(self.n_outcomes)])
        return self.center + radius * steps if radius >= 0 else np.zeros((0, self.n_outcomes))

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball of its norm."""
        return center + self.center + radius * points

    def _scores(self, rows: Array) -> Array:
        return np.asarray(np.linalg.norm(rows - self.center, ord=self.norm, axis=1))

    def _support(self, directions: Array, radius: float) -> Array:
        reach = np.linalg.norm(directions, ord=_DUAL_NORM[self.norm], axis=1)
        return directions @ self.center + (radius * reach if radius >= 0 else -np.inf)
