r"""Supports of polyhedra that change little from one to the next, from the facets that met at the vertices before.

Along a direction v the maximiser of $v^\top e$ over $\{e : W e \le q\}$ is a vertex, where d facets B meet:
$W_B e = q_B$, and $W_B^\top \lambda = v$ with multipliers $\lambda \ge 0$ proves it. A learner moves facets a little in
every step, so that the same ones meet, or others after a few pivots: small systems of equations, solved for all
directions together, then take the place of linear programs. What they find is taken where it is *sharp*, every
multiplier and every slack of another facet clearly positive. Vertex and multipliers are then the only ones, and do not
depend on what was asked before. Else a solver is asked.
"""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.support import SupportCertificate, maximise
from polyhedge.sets import Polyhedron

_CLEARLY = 1e-7
"""Share of its size by which a multiplier or slack must exceed zero: well above roundings and tolerances of solvers."""
_MISSES = 1e-11
"""Share of their size by which equations may be missed: facets that are nearly parallel lose more digits."""
_MAX_PIVOTS = 12
"""Pivots of a step beyond which a solver is quicker; one or two are usual."""


class SharpVertices:
    """Along given directions (L, d), the supports of one polyhedron {e : W e <= q} after the other.

    Examples
    --------
    >>> supports = SharpVertices(np.array([[1.0, 2.0]]))
    >>> box = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> supports(box, np.ones(4)).values, supports(box, np.array([1.0, 3.0, 1.0, 1.0])).values
    (array([3.]), array([7.]))
    """

    def __init__(self, directions: Array) -> None:
        self.directions = directions
        self._bases: Indices | None = None

    def __call__(self, W: Array, q: Array) -> SupportCertificate:
        """Values, maximisers and multipliers; inf where unbounded, -inf where the set is empty."""
        if self._bases is not None and self._bases.max() < len(q):
            corners = _pivoted(W, q, self.directions, self._bases)
            if corners is not None:
                self._bases = corners.bases
                return corners.certificate(W, q, self.directions)
        certificate = maximise(Polyhedron.from_halfspaces(W, q).conic_form(0.0), self.directions)
        meet = certificate.multipliers > 0
        if (meet.sum(axis=1) != self.directions.shape[1]).any():  # nan where there is no maximiser
            return certificate
        bases = np.nonzero(meet)[1].reshape(self.directions.shape)
        try:
            # Once more from the facets alone: a solver's last digits depend on where it began.
            corners = _Corners(W, q, self.directions, bases)
        except np.linalg.LinAlgError:  # parallel facets share a multiplier, and meet in no point
            return certificate
        self._bases = bases
        return (
            corners.certificate(W, q, self.directions) if corners.is_sharp(W, q, self.directions).all() else certificate
        )


class _Corners:
    """Where the facets `bases` (L, d) meet: vertices, multipliers along the directions, slacks of all facets."""

    def __init__(self, W: Array, q: Array, directions: Array, bases: Indices) -> None:
        self.bases, self.rows = bases, np.arange(len(bases))[:, None]
        self.B = W[bases]
        self.inverses = np.linalg.inv(self.B)
        self.points = np.einsum("nij,nj->ni", self.inverses, q[bases])
        self.weights = np.einsum("nij,ni->nj", self.inverses, directions)
        self.slacks = q - self.points @ W.T

    def is_sharp(self, W: Array, q: Array, directions: Array) -> Mask:
        """Where vertex and multipliers are proven, and are the only ones."""
        sizes = np.abs(self.points) @ np.abs(W).T + np.abs(q)
        others = self.slacks > _CLEARLY * sizes
        own = self.rows, self.bases
        others[own] = np.abs(self.slacks[own]) <= _MISSES * sizes[own]
        largest = np.abs(self.weights).max(axis=1, keepdims=True)
        missed = np.abs(np.einsum("ni,nij->nj", self.weights, self.B) - directions)
        allowed = _MISSES * (np.einsum("ni,nij->nj", np.abs(self.weights), np.abs(self.B)) + np.abs(directions))
        return others.all(axis=1) & (self.weights > _CLEARLY * largest).all(axis=1) & (missed <= allowed).all(axis=1)

    def pivoted(self, W: Array) -> tuple[Indices, Mask]:
        """Bases with one facet exchanged for another, as the simplex methods would, and where that has an end."""
        slacks, rows = self.slacks.copy(), self.rows[:, 0]
        slacks[self.rows, self.bases] = np.inf
        enters, leaves = slacks.argmin(axis=1), self.weights.argmin(axis=1)
        is_dual = slacks[rows, enters] < 0  # a facet is violated: it enters
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.einsum("nij,ni->nj", self.inverses, W[enters])
            ratios = np.where(rates > _CLEARLY, np.maximum(self.weights, 0.0) / rates, np.inf)
            by_dual = ratios.argmin(axis=1)
            ways = -self.inverses[rows, :, leaves] @ W.T
            steps = np.where(ways > _CLEARLY, slacks / ways, np.inf)
            by_primal = steps.argmin(axis=1)
        has_end = np.where(is_dual, np.isfinite(ratios[rows, by_dual]), np.isfinite(steps[rows, by_primal]))
        bases = self.bases.copy()
        bases[rows, np.where(is_dual, by_dual, leaves)] = np.where(is_dual, enters, by_primal)
        bases.sort(axis=1)  # so that the same facets give the same digits
        return bases, has_end

    def certificate(self, W: Array, q: Array, directions: Array) -> SupportCertificate:
        """As a solver would give it."""
        multipliers = np.zeros((len(self.bases), len(q)))
        multipliers[self.rows, self.bases] = self.weights
        values = np.einsum("ij,ij->i", directions, self.points)
        return SupportCertificate(values, self.points, multipliers, directions.shape[1])


def _pivoted(W: Array, q: Array, directions: Array, bases: Indices) -> _Corners | None:
    """Sharp vertices after some pivots from the given bases; None where they are not sharp, or far."""
    bases, is_open = bases.copy(), np.ones(len(bases), dtype=bool)
    try:
        for _ in range(_MAX_PIVOTS):
            some = np.flatnonzero(is_open)
            corners = _Corners(W, q, directions[some], bases[some])
            is_sharp = corners.is_sharp(W, q, directions[some])
            if is_sharp.all():
                return corners if len(some) == len(bases) else _Corners(W, q, directions, bases)
            is_open[some[is_sharp]] = False
            moved, has_end = corners.pivoted(W)
            if not has_end[~is_sharp].all():
                return None
            bases[some[~is_sharp]] = moved[~is_sharp]
    except np.linalg.LinAlgError:
        return None
    return None
