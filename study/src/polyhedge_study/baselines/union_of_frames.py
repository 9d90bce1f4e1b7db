"""Unions of rotated boxes that differ from context to context: the sets of full conformal selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyhedge.decisions import Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Shape, Volume
from polyhedge.solvers.program import Cone, ConicForm
from polyhedge_study.baselines.frames import Frame
from polyhedge_study.each_context import decide_each
from polyhedge_study.inside import Array, Mask


@dataclass(frozen=True, eq=False)
class UnionOfFrames:
    """The set of context i is the union of the frames m at `radii[i, m]`; -inf leaves a frame out."""

    frames: list[Frame]
    radii: Array

    @property
    def n_parts(self) -> NDArray[np.int64]:
        """How many frames each union has."""
        return np.isfinite(self.radii).sum(axis=1)

    def contains(self, residuals: Array) -> Mask:
        """Whether row i of `residuals` (N, d) lies in the union of context i."""
        scores = np.stack([frame.scores(residuals) for frame in self.frames], axis=1)
        return np.asarray((scores <= self.radii).any(axis=1))

    def decide(self, problem: DecisionProblem, centers: Array) -> Decisions:
        """The exact robust decision of each context, for costs that are (maxima of) affine functions."""
        return decide_each(problem, self._maximisers, self._hull_at, centers)

    def support(self, V: Array) -> Array:
        """Support (N,) of the union of context i in the direction of row i."""
        return np.asarray((self._maximisers(V) * V).sum(axis=1))

    def mean_volume(self, rng: np.random.Generator, n_samples: int = 4000) -> Volume:
        """Mean volume over the contexts: exact where one frame remains, else sampled from all frames together.

        A uniform point of a randomly chosen frame, all at their largest radii, counts 1 / (number of frames that
        hold it), if the union of the context holds it too.
        """
        sizes = np.array([frame.volume(1.0) for frame in self.frames])
        finite = np.where(np.isfinite(self.radii), self.radii, 0.0)
        volumes = (sizes * finite ** self.frames[0].U.shape[0]).sum(axis=1)
        many = self.n_parts > 1
        error = 0.0
        if many.any():
            volumes[many], error = self._sampled(self.radii[many], rng, n_samples)
        return Volume(float(volumes.mean()), error * float(many.mean()))

    def _sampled(self, radii: Array, rng: np.random.Generator, n_samples: int) -> tuple[Array, float]:
        used = np.flatnonzero(np.isfinite(radii).any(axis=0))
        frames, radii = [self.frames[m] for m in used], radii[:, used]
        largest = radii.max(axis=0)
        whole = np.array([frame.volume(radius) for frame, radius in zip(frames, largest, strict=True)])
        chosen = rng.choice(len(frames), n_samples, p=whole / whole.sum())
        cube = rng.uniform(-1.0, 1.0, (n_samples, frames[0].U.shape[0]))
        points = np.array([(cube[i] * largest[m] * frames[m].half_widths) @ frames[m].U for i, m in enumerate(chosen)])
        scores = np.stack([frame.scores(points) for frame in frames], axis=1)
        weights = whole.sum() / np.maximum((scores <= largest).sum(axis=1), 1)
        inside = np.zeros((len(radii), n_samples), dtype=bool)
        for score, radius in zip(scores.T, radii.T, strict=True):
            inside |= score <= radius[:, None]
        values = (inside * weights).mean(axis=0)
        return inside @ weights / n_samples, float(values.std(ddof=1) / np.sqrt(n_samples))

    def _maximisers(self, V: Array) -> Array:
        reach = np.stack([frame.support(V) for frame in self.frames], axis=1)
        values = np.where(np.isfinite(self.radii), np.where(np.isfinite(self.radii), self.radii, 0.0) * reach, -np.inf)
        best = values.argmax(axis=1)
        points = np.empty_like(V)
        for m in np.unique(best):
            rows = best == m
            points[rows] = self.radii[rows, m, None] * self.frames[m].maximisers(V[rows])
        return points

    def _hull_at(self, i: int) -> tuple[Shape, float]:
        parts = np.flatnonzero(np.isfinite(self.radii[i]))
        if len(parts) == 1:
            return self.frames[parts[0]].as_polyhedron(), float(self.radii[i, parts[0]])
        hull = _HullOfFrames([self.frames[m] for m in parts], self.radii[i, parts])
        return hull, 0.0


@dataclass(frozen=True, eq=False)
class _HullOfFrames(Shape):
    """Convex hull of boxes as conic rows: all that a robust decision needs to know."""

    frames: list[Frame]
    radii: Array

    @property
    def n_outcomes(self) -> int:
        return self.frames[0].U.shape[0]

    def conic_form(self, radius: float) -> ConicForm:
        r"""$e = \sum_m e_m,\ |u_{mj}^\top e_m| \le w_m r_m a_{mj},\ w \ge 0,\ 1^\top w = 1$."""
        d, k = self.n_outcomes, len(self.frames)
        sums = sp.hstack([sp.eye_array(d), *([-sp.eye_array(d)] * k), sp.csr_array((d, k))])
        one = sp.hstack([sp.csr_array((1, d + k * d)), sp.csr_array(np.ones((1, k)))])
        U = sp.block_diag([frame.U for frame in self.frames])
        reach = sp.block_diag(
            [(r * frame.half_widths)[:, None] for frame, r in zip(self.frames, self.radii, strict=True)]
        )
        sides = [sp.hstack([sp.csr_array((k * d, d)), sign * U, -reach]) for sign in (1.0, -1.0)]
        weights = sp.hstack([sp.csr_array((k, d + k * d)), -sp.eye_array(k)])
        G = sp.csr_array(sp.vstack([sums, one, *sides, weights]))
        g = np.concatenate([np.zeros(d), [1.0], np.zeros(2 * k * d + k)])
        return ConicForm(G, g, (Cone("zero", d + 1), Cone("nonneg", 2 * k * d + k)))
