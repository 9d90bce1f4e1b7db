"""Boxes along any orthonormal frame: the library of candidate sets of F-CROMS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge_study.each_context import decide_each, has_segment
from polyhedge_study.inside import Array

# Half-widths of a candidate are log-uniform between the inverse of this and this.
MAX_ASPECT = 2.0


@dataclass(frozen=True, eq=False)
class Frame:
    r"""A rotated box: $\{e : |u_j^\top e| \le r a_j \text{ for all } j\}$, $u_j$ = row j of `U`, a = `half_widths`."""

    U: Array
    half_widths: Array

    def scores(self, residuals: Array) -> Array:
        """The least radius at which the box holds each row of `residuals` (n, d)."""
        return np.asarray((np.abs(residuals @ self.U.T) / self.half_widths).max(axis=1))

    def support(self, V: Array) -> Array:
        """Support function (n,) of the box of radius 1 along the rows of V (n, d)."""
        return np.asarray(np.abs(V @ self.U.T) @ self.half_widths)

    def maximisers(self, V: Array) -> Array:
        """Points (n, d) of the box of radius 1 at which its support function is attained."""
        return np.asarray((np.sign(V @ self.U.T) * self.half_widths) @ self.U)

    def volume(self, radius: float) -> float:
        """Volume of the box."""
        return float(np.prod(2 * radius * self.half_widths))

    def as_polyhedron(self) -> Polyhedron:
        """The same sets, radius by radius, as 2 d half-spaces."""
        rows = self.U / self.half_widths[:, None]
        return Polyhedron(np.vstack([rows, -rows]), np.zeros(2 * len(rows)))


def random_frames(n_outcomes: int, n_candidates: int, rng: np.random.Generator) -> list[Frame]:
    """Draw frames uniformly among orthonormal ones and half-widths log-uniformly."""
    frames = []
    for _ in range(n_candidates):
        Q, R = np.linalg.qr(rng.standard_normal((n_outcomes, n_outcomes)))
        # Without the signs the law of Q would depend on how the factorisation is computed.
        U = (Q * np.sign(np.diag(R))).T
        frames.append(Frame(U, MAX_ASPECT ** rng.uniform(-1.0, 1.0, n_outcomes)))
    return frames


def worst_case_costs(problem: DecisionProblem, frame: Frame, radii: Array, centers: Array) -> Array:
    """Least worst-case cost (N,) of each context over the frame at its own radius (N,)."""
    shape = frame.as_polyhedron()
    if has_segment(problem):
        decisions = decide_each(
            problem, lambda V: radii[:, None] * frame.maximisers(V), lambda i: (shape, float(radii[i])), centers
        )
        return decisions.cost_bound
    costs = np.empty(len(centers))
    for radius in np.unique(radii):
        rows = radii == radius
        costs[rows] = decide(problem, shape, float(radius), centers[rows]).cost_bound
    return costs
