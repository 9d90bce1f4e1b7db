"""Balls of the norms l_1, l_2 and l_inf."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.validation import Array, as_rows
from polyhedge.sets.polyhedron import Polyhedron
from polyhedge.sets.scaled_shape import Scaled, ScaledRound
from polyhedge.sets.shape import (
    N_SAMPLES,
    Volume,
    as_center,
    as_directions,
    like_directions,
    row_norms,
    score_in_blocks,
)
from polyhedge.solvers.program import Cone, ConicForm

# The norm whose unit ball gives the support function of the unit ball of the key.
DUAL_NORM = {1: np.inf, 2: 2, np.inf: 1}
# 2^d facets: beyond this, the lifted conic form is the only sensible description of an l_1 ball.
MAX_CROSS_POLYTOPE_OUTCOMES = 12


@dataclass(frozen=True, eq=False, init=False)
class Ball:
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

    def __init__(self, n_outcomes: int, norm: float = 2, center: ArrayLike | None = None) -> None:
        if n_outcomes < 1:
            raise ValueError(f"n_outcomes must be at least 1, got {n_outcomes}.")
        if norm not in DUAL_NORM:
            raise ValueError(f"norm must be 1, 2 or inf (np.inf), got {norm!r}.")
        object.__setattr__(self, "n_outcomes", int(n_outcomes))
        object.__setattr__(self, "norm", norm)
        object.__setattr__(self, "center", as_center(center, n_outcomes))

    @property
    def is_bounded(self) -> bool:
        """Always True."""
        return True

    @property
    def has_support_formula(self) -> bool:
        """Always True: `support` asks no solver."""
        return True

    @property
    def is_polyhedral(self) -> bool:
        """Whether `as_polyhedron` applies: norm inf, or norm 1 with few enough facets to list them."""
        few_facets = self.n_outcomes <= MAX_CROSS_POLYTOPE_OUTCOMES
        return self.norm == np.inf or (self.norm == 1 and few_facets)

    def scores(self, residuals: ArrayLike) -> Array:
        r"""$\|e - c\|_p$ of each row of `residuals` (n, d)."""
        rows = as_rows(residuals, "residuals", self.n_outcomes)
        return score_in_blocks(lambda block: row_norms(block - self.center, self.norm), rows)

    def contains(self, residuals: ArrayLike, radius: float) -> NDArray[np.bool_]:
        """Whether each row of `residuals` (n, d) has a score of at most `radius`."""
        return self.scores(residuals) <= radius

    def support(self, directions: ArrayLike, radius: float) -> Any:
        r"""$v^\top c + r \|v\|_q$, 1/p + 1/q = 1, of each row v of `directions`; `-inf` if r < 0."""
        V, single = as_directions(directions, self.n_outcomes)
        values = V @ self.center + radius * np.linalg.norm(V, ord=DUAL_NORM[self.norm], axis=1)
        return like_directions(values if radius >= 0 else np.full(len(V), -np.inf), single)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        r"""$r^d$ times $2^d/d!$, $\pi^{d/2}/\Gamma(d/2+1)$ or $2^d$ for the norms 1, 2 and inf; exact."""
        with np.errstate(over="ignore"):  # beyond the largest number a volume is infinite, and no error
            power = float(np.float64(max(radius, 0.0)) ** self.n_outcomes)
        return Volume(power * unit_ball_volume(self.n_outcomes, self.norm))

    def sample(self, radius: float, n_samples: int, rng: np.random.Generator) -> Array:
        """Independent uniform points (n_samples, d) of the ball with a non-negative radius."""
        shape = (n_samples, self.n_outcomes)
        if self.norm == np.inf:
            return self.center + radius * rng.uniform(-1.0, 1.0, shape)
        # The densities depend on the norm alone, so that normalised draws have no preferred direction.
        draws = rng.standard_normal(shape) if self.norm == 2 else rng.laplace(size=shape)
        lengths = np.linalg.norm(draws, ord=self.norm, axis=1, keepdims=True)
        return self.center + radius * rng.random((n_samples, 1)) ** (1.0 / self.n_outcomes) * draws / lengths

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
        """As `as_polyhedron`, where that applies; see `LearnedShape`."""
        return self.as_polyhedron() if self.is_polyhedral else None

    def vertices(self, radius: float) -> Array | None:
        """The 2 d vertices (2 d, d) of an l_1 ball, none if it is empty; None for other norms."""
        if self.norm != 1:
            return None
        steps = np.vstack([np.eye(self.n_outcomes), -np.eye(self.n_outcomes)])
        return self.center + radius * steps if radius >= 0 else np.zeros((0, self.n_outcomes))

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball of its norm."""
        return center + self.center + radius * points

    def scaled(self, factor: float) -> Scaled:
        """The ball whose residuals are `factor` times as large, at every radius."""
        return ScaledRound(self, factor)

    def state(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {"kind": "Ball", "n_outcomes": self.n_outcomes, "norm": self.norm, "center": self.center}

    def as_polyhedron(self) -> Polyhedron:
        """The same sets, radius by radius, with the same scores, as 2d (l_inf) or 2^d (l_1) half-spaces."""
        if self.norm == 2:
            raise TypeError("An l_2 ball is no polyhedron. Use its support function or its conic form.")
        if self.norm == np.inf:
            W = np.vstack([np.eye(self.n_outcomes), -np.eye(self.n_outcomes)])
        elif self.n_outcomes <= MAX_CROSS_POLYTOPE_OUTCOMES:
            W = np.array(list(product([1.0, -1.0], repeat=self.n_outcomes)))
        else:
            raise ValueError(
                f"An l_1 ball in {self.n_outcomes} dimensions has 2^{self.n_outcomes} facets; listing them "
                f"is supported up to {MAX_CROSS_POLYTOPE_OUTCOMES} outcomes. Use its conic form."
            )
        return Polyhedron(W, -W @ self.center)


def unit_ball_volume(n_outcomes: int, norm: float = 2) -> float:
    """Volume of the unit ball of the norm 1, 2 or inf."""
    if norm == 2:
        return math.exp(n_outcomes / 2 * math.log(math.pi) - math.lgamma(n_outcomes / 2 + 1))
    return 2.0**n_outcomes / (math.factorial(n_outcomes) if norm == 1 else 1)
