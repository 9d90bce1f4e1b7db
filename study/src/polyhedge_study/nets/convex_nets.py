"""The level sets of a partially convex network at many contexts, evaluated together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge_study.inside import Array, Indices, Mask
from polyhedge_study.nets.convex_net import ConvexNet

# Newton's method ends by itself after finitely many steps; rounding could keep it going.
_MAX_STEPS = 200
# Relative accuracy of a boundary point's score.
_ACCURACY = 1e-13


@dataclass(frozen=True)
class NetValues:
    """Scores (N,), their gradients in the residual (N, d), and which hidden units are on."""

    scores: Array
    gradients: Array
    first: Mask
    second: Mask

    def where(self, choose: Mask, other: NetValues) -> NetValues:
        """Rows of this one where `choose`, else of the other."""
        column = choose[:, None]
        return NetValues(
            np.where(choose, self.scores, other.scores),
            np.where(column, self.gradients, other.gradients),
            np.where(column, self.first, other.first),
            np.where(column, self.second, other.second),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvexNets:
    r"""One `ConvexNet` for each of N contexts; the contexts share matrices and differ in gates and offsets.

    $$s_i(e) = w_3^\top \big(m_{3i} \circ [C_2 (m_{2i} \circ [A_1 (g_{1i} \circ e) + k_{1i}]_+) + A_2 (g_{2i} \circ e)
    + k_{2i}]_+\big) + k_{3i} + \text{slope}\,\|e\|_\infty$$

    This is the partially input-convex network of Amos et al. without the direct path from e to the output, which
    would leave level sets unbounded. The gates m are non-negative.

    Attributes
    ----------
    A1, C2, A2, w3 : shared arrays (h1, d), (h2, h1), (h2, d), (h2,)
    g1, g2 : (N, d)
    k1, m2 : (N, h1)
    k2, m3 : (N, h2)
    k3 : (N,)
    slope : float
    """

    A1: Array
    C2: Array
    A2: Array
    w3: Array
    g1: Array
    k1: Array
    m2: Array
    g2: Array
    k2: Array
    m3: Array
    k3: Array
    slope: float

    def __len__(self) -> int:
        return len(self.k3)

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return int(self.A1.shape[1])

    def __getitem__(self, rows: Indices | Mask) -> ConvexNets:
        """The networks of some contexts, in that order; a row may repeat."""
        return ConvexNets(
            A1=self.A1,
            C2=self.C2,
            A2=self.A2,
            w3=self.w3,
            g1=self.g1[rows],
            k1=self.k1[rows],
            m2=self.m2[rows],
            g2=self.g2[rows],
            k2=self.k2[rows],
            m3=self.m3[rows],
            k3=self.k3[rows],
            slope=self.slope,
        )

    def at(self, i: int) -> ConvexNet:
        """The network of one context."""
        return ConvexNet(
            A1=self.A1 * self.g1[i],
            k1=self.k1[i],
            C2=self.C2 * self.m2[i],
            A2=self.A2 * self.g2[i],
            k2=self.k2[i],
            w3=self.w3 * self.m3[i],
            k3=float(self.k3[i]),
            slope=self.slope,
        )

    def scores(self, residuals: Array) -> Array:
        """The score of row i of `residuals` (N, d) at context i."""
        first = np.maximum((residuals * self.g1) @ self.A1.T + self.k1, 0.0)
        second = (first * self.m2) @ self.C2.T + (residuals * self.g2) @ self.A2.T + self.k2
        return (np.maximum(second, 0.0) * self.m3) @ self.w3 + self.k3 + self.slope * np.abs(residuals).max(axis=1)

    def evaluate(self, residuals: Array) -> NetValues:
        """Scores with a subgradient in the residual: that of the units which are on."""
        first = (residuals * self.g1) @ self.A1.T + self.k1
        first_on = first > 0
        second = (np.maximum(first, 0.0) * self.m2) @ self.C2.T + (residuals * self.g2) @ self.A2.T + self.k2
        second_on = second > 0
        rows, largest = np.arange(len(residuals)), np.abs(residuals).argmax(axis=1)
        scores = (np.maximum(second, 0.0) * self.m3) @ self.w3 + self.k3
        scores = scores + self.slope * np.abs(residuals[rows, largest])
        back_second = second_on * self.m3 * self.w3
        back_first = (back_second @ self.C2) * self.m2 * first_on
        gradients = (back_first @ self.A1) * self.g1 + (back_second @ self.A2) * self.g2
        gradients[rows, largest] += self.slope * np.sign(residuals[rows, largest])
        return NetValues(scores, gradients, first_on, second_on)

    def boundary(self, origins: Array, rays: Array, radii: Array, start: Array) -> tuple[Array, NetValues]:
        """Distances t at which s_i(origin + t ray) equals radius i, and the network there.

        Origins lie inside their level sets. From any point outside, Newton's method on a convex piecewise-linear
        function falls to the root and ends there after finitely many steps.
        """
        t = np.array(start, dtype=np.float64)
        values = self.evaluate(origins + t[:, None] * rays)
        todo = np.flatnonzero(values.scores < radii)
        if len(todo):
            while len(todo):
                t[todo] *= 2.0
                todo = todo[self[todo].scores(origins[todo] + t[todo, None] * rays[todo]) < radii[todo]]
            values = self.evaluate(origins + t[:, None] * rays)
        todo = np.flatnonzero(values.scores > radii)
        for _ in range(_MAX_STEPS):
            if not len(todo):
                break
            rate = np.einsum("nd,nd->n", values.gradients[todo], rays[todo])
            t[todo] -= (values.scores[todo] - radii[todo]) / rate
            some = self if len(todo) == len(self) else self[todo]
            fresh = some.evaluate(origins[todo] + t[todo, None] * rays[todo])
            for old, new in (
                (values.scores, fresh.scores),
                (values.gradients, fresh.gradients),
                (values.first, fresh.first),
                (values.second, fresh.second),
            ):
                old[todo] = new
            todo = todo[fresh.scores > radii[todo] + _ACCURACY * (1 + np.abs(radii[todo]))]
        return t, values

    def inner_points(self, radii: Array, candidates: Array) -> tuple[Array, Mask]:
        """A residual (N, d) inside each level set: the best of `candidates`, else the minimiser, and whether it is."""
        points = np.repeat(candidates[:1], len(self), axis=0)
        best = self.scores(points)
        margin = 1e-3 * (1 + np.abs(radii))
        for candidate in candidates[1:]:
            todo = np.flatnonzero(best > radii - margin)
            if not len(todo):
                break
            scores = self[todo].scores(np.repeat(candidate[None], len(todo), axis=0))
            better = scores < best[todo]
            points[todo[better]], best[todo[better]] = candidate, scores[better]
        for i in np.flatnonzero(best > radii - margin):
            best[i], points[i] = self.at(int(i)).minimum()
        return points, np.asarray(best < radii - 1e-6 * (1 + np.abs(radii)))
