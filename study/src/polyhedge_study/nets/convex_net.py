"""Level sets of a convex network: the sets of Yeh et al. at one context."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from polyhedge.sets.shape import N_SAMPLES, Shape, Volume, frozen
from polyhedge.solvers.linear import maximise_linear
from polyhedge.solvers.program import Cone, ConicForm
from polyhedge_study.inside import Array, as_finite

# A radius at the least score leaves a set without interior, which rounding would make empty.
_GUARD = 1e-7


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvexNet(Shape):
    r"""Level set $\{e : s(e) \le r\}$ of a network with two hidden layers that is convex in the residual e:

    $$s(e) = w_3^\top [C_2 [A_1 e + k_1]_+ + A_2 e + k_2]_+ + k_3 + \text{slope}\,\|e\|_\infty .$$

    Non-negative `C2` and `w3` make s convex, a positive `slope` makes every level set bounded. Because s is convex
    and piecewise linear, its epigraph is a polyhedron with one auxiliary variable for each hidden unit, so that
    support functions and robust decisions over the level set are linear programs and exact.

    Parameters
    ----------
    A1, k1 : (h1, d) and (h1,) arrays
    C2, A2, k2 : (h2, h1), (h2, d) and (h2,) arrays, C2 >= 0
    w3, k3 : (h2,) array and float, w3 >= 0
    slope : float > 0

    Examples
    --------
    >>> cross = ConvexNet(A1=[[1.0], [-1.0]], k1=[0.0, 0.0], C2=np.eye(2), A2=np.zeros((2, 1)), k2=[0.0, 0.0],
    ...                   w3=[1.0, 2.0], k3=0.5, slope=1.0)
    >>> cross.scores([[1.0], [-1.0]])
    array([2.5, 3.5])
    >>> cross.support([[1.0], [-1.0]], radius=3.5).round(9)
    array([1.5, 1. ])
    >>> round(cross.least_score(), 9), round(cross.guarded(0.0), 6)
    (0.5, 0.5)
    """

    A1: Array
    k1: Array
    C2: Array
    A2: Array
    k2: Array
    w3: Array
    k3: float
    slope: float

    def __post_init__(self) -> None:
        for name, ndim in (("A1", 2), ("k1", 1), ("C2", 2), ("A2", 2), ("k2", 1), ("w3", 1)):
            object.__setattr__(self, name, frozen(as_finite(getattr(self, name), name, ndim=ndim)))
        h1, d = self.A1.shape
        h2 = len(self.k2)
        wanted = {"k1": (h1,), "C2": (h2, h1), "A2": (h2, d), "w3": (h2,)}
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {getattr(self, name).shape}.")
        if min(self.C2.min(initial=0.0), self.w3.min(initial=0.0)) < 0:
            raise ValueError("C2 and w3 must not have negative entries: the score would not be convex in the residual.")
        if not self.slope > 0:
            raise ValueError(f"slope must be positive, got {self.slope!r}: the level sets would not be bounded.")

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return int(self.A1.shape[1])

    def _scores(self, rows: Array) -> Array:
        first = np.maximum(rows @ self.A1.T + self.k1, 0.0)
        second = np.maximum(first @ self.C2.T + rows @ self.A2.T + self.k2, 0.0)
        return second @ self.w3 + self.k3 + self.slope * np.abs(rows).max(axis=1)

    def _support(self, directions: Array, radius: float) -> Array:
        """One linear program for each direction; `-inf` if the radius is below the least score."""
        form = self.conic_form(radius)
        padded = np.hstack([directions, np.zeros((len(directions), form.G.shape[1] - directions.shape[1]))])
        return maximise_linear(form.G.toarray(), form.g, padded)[0]

    def least_score(self) -> float:
        """The least value of the network: no level set below it has a point."""
        return self.minimum()[0]

    def minimum(self) -> tuple[float, Array]:
        """The least score and a residual (d,) that has it, by a linear program."""
        form, d = self.conic_form(0.0), self.n_outcomes
        # One more column lets the level row give way, and the program keeps that column low.
        G = np.hstack([form.G.toarray(), np.zeros((form.G.shape[0], 1))])
        G[-1, -1] = -1.0
        value, point = maximise_linear(G, form.g, -np.eye(1, G.shape[1], G.shape[1] - 1))
        return float(-value[0]), point[0, :d]

    def guarded(self, radius: float) -> float:
        """The radius, or a hair above the least score where that is larger, so that the set is never empty."""
        least = self.least_score()
        return max(float(radius), least + _GUARD * (1 + abs(least)))

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """Volume from the distances to the boundary along rays from the point of least score.

        d = 2: the polygon through 720 boundary points, from inside to about 1e-4. Otherwise `n_samples` / 10
        random rays, with their standard error.
        """
        least, center = self.minimum()
        if radius <= least:
            return Volume(0.0)
        d = self.n_outcomes
        if d == 2:
            angles = np.linspace(0, 2 * np.pi, 720, endpoint=False)
            rays = np.column_stack([np.cos(angles), np.sin(angles)])
        else:
            rays = (np.random.default_rng(0) if rng is None else rng).standard_normal((max(n_samples // 10, 2), d))
            rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        return volume_from_rays(self._reach(center, rays, radius), d)

    def conic_form(self, radius: float) -> ConicForm:
        """Half-spaces in (e, first layer, second layer, t) with t >= |e_j|; the level row comes last."""
        h1, d = self.A1.shape
        h2 = len(self.k2)
        eye, n = np.eye(d), d + h1 + h2 + 1
        e, first, second, t = slice(0, d), slice(d, d + h1), slice(d + h1, d + h1 + h2), n - 1
        G = np.zeros((2 * d + 2 * h1 + 2 * h2 + 1, n))
        G[:d, e], G[d : 2 * d, e], G[: 2 * d, t] = eye, -eye, -1.0
        row = 2 * d
        G[row : row + h1, e], G[row : row + h1, first] = self.A1, -np.eye(h1)
        G[row + h1 : row + 2 * h1, first] = -np.eye(h1)
        row += 2 * h1
        G[row : row + h2, e], G[row : row + h2, first] = self.A2, self.C2
        G[row : row + h2, second], G[row + h2 : row + 2 * h2, second] = -np.eye(h2), -np.eye(h2)
        G[-1, second], G[-1, t] = self.w3, self.slope
        g = np.concatenate([np.zeros(2 * d), -self.k1, np.zeros(h1), -self.k2, np.zeros(h2), [radius - self.k3]])
        return ConicForm(sp.csr_array(G), g, (Cone("nonneg", len(g)),))

    def _reach(self, center: Array, rays: Array, radius: float) -> Array:
        """Distances to the boundary by bisection: the score rises along every ray from its minimum."""
        low, high = (
            np.zeros(len(rays)),
            np.full(len(rays), (radius - self.k3) / self.slope + np.abs(center).max() + 1.0),
        )
        high *= math.sqrt(self.n_outcomes)
        for _ in range(60):  # to the last bits of a distance
            middle = (low + high) / 2
            inside = self.scores(center + middle[:, None] * rays) <= radius
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return low


def volume_from_rays(reach: Array, n_outcomes: int) -> Volume:
    """Volume of a star-shaped set from its extent along equally spaced (d = 2) or random rays of unit length."""
    if n_outcomes == 2:
        return Volume(float(0.5 * math.sin(2 * math.pi / len(reach)) * (reach * np.roll(reach, -1)).sum()))
    log_ball = n_outcomes / 2 * math.log(math.pi) - math.lgamma(n_outcomes / 2 + 1)
    values = math.exp(log_ball) * reach**n_outcomes
    return Volume(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)))
