r"""Grids of rotated boxes: our reading of the paper's grid search and of its ablation "min size".

A box with orthonormal frame U and half-widths a is $\{e : |u_j^\top e| \le r a_j\}$. The paper leaves details open. We
read it so: boxes are centred at the prediction. Half-widths are the standard deviations of the learning residuals along
the frame, times an aspect. Facets keep the row norm $1 / a_j$, so that calibration grows a box in proportion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge.learners import Learner, LearnResult, Samples
from polyhedge.learners.paper.boxes import at_learning_radius, box, mean_cost
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status
from polyhedge_study.inside import Array


@dataclass(frozen=True)
class RotatedBoxGrid(Learner):
    r"""The learning problem (Step 1 of the paper) over a grid of rotated boxes: our reading of the printed row "Ours".

    The paper speaks of "a CCG-based grid-search implementation" for "structured polyhedral templates" and prints
    neither templates nor grid.

    $$\min_{(U, a) \in \text{grid}}\ \frac1n\sum_i \min_z \max_{e} g(z, \hat f(X_i) + e)
    \quad\text{over}\quad |u_j^\top e| \le R(D_n; U, a)\, a_j$$

    Parameters
    ----------
    n_angles, n_aspects : int
        In two dimensions: even angles in [0, 90) degrees, and ratios of the half-widths (counted in
        standard deviations along the frame) log-spaced in [1 / max_aspect, max_aspect]. In more dimensions:
        the axes and `n_angles` - 1 uniformly random orthonormal frames, each with even and `n_aspects` - 1
        random aspects, log-uniform in [1/2, 2] for each direction at the default.
    max_aspect : float
        Largest ratio of two half-widths.
    max_contexts : as in `Learner`; costs without a piece list use at most 12 contexts

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = RotatedBoxGrid().learn(samples)
    >>> len(result.set.b)
    4
    """

    n_angles: int = 12
    n_aspects: int = 10
    max_aspect: float = 4.0
    max_contexts: int | None = None

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        contexts = samples.scored_contexts(self.max_contexts)
        return _best_box(
            self, samples, lambda shape: samples.value(shape, contexts), "mean worst-case cost", random_state
        )


@dataclass(frozen=True)
class MinVolume(RotatedBoxGrid):
    r"""The paper's ablation "Polyhedron (min size)": the problem is ignored.

    $$\min_{(U, a) \in \text{grid}} \text{vol}\{e : |u_j^\top e| \le R(D_n; U, a)\, a_j\}
    = \min \prod_j 2 a_j R(D_n; U, a)$$

    Parameters
    ----------
    n_angles, n_aspects, max_aspect : as in `RotatedBoxGrid`
    max_contexts : as in `Learner`, for the reported objective

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> bool(MinVolume().learn(samples, random_state=0).set.is_bounded)
    True
    """

    max_contexts: int | None = 300

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        return _best_box(self, samples, box_volume, "volume", random_state)


def _best_box(
    settings: RotatedBoxGrid, samples: Samples, criterion: Callable[[Polyhedron], float], name: str, random_state: Any
) -> LearnResult:
    """The box with the least criterion at the learning radius."""
    began, rng = time.perf_counter(), np.random.default_rng(random_state)
    grid = rotated_boxes(samples.residuals, settings.n_angles, settings.n_aspects, settings.max_aspect, rng)
    best = min((at_learning_radius(samples, each) for each in grid), key=criterion)
    return LearnResult(
        set=best,
        objective=mean_cost(samples, best, settings.max_contexts, must_be_finite=True),
        status=Status.FINISHED,
        seconds=time.perf_counter() - began,
        detail=f"least {name} of {len(grid)} rotated boxes",
        scores_in="spreads",
    )


def box_volume(shape: Polyhedron) -> float:
    """Volume at radius 0 of a polyhedron of `box` form: the product of its widths."""
    d = shape.n_outcomes
    widths = -(shape.b[:d] + shape.b[d:]) / np.linalg.norm(shape.W[:d], axis=1)
    return float(np.prod(widths))


def rotated_boxes(
    residuals: Array, n_angles: int, n_aspects: int, max_aspect: float, rng: np.random.Generator
) -> list[Polyhedron]:
    """The grid of `RotatedBoxGrid`: n_angles x n_aspects boxes (a single one in one dimension)."""
    d = residuals.shape[1]
    if d == 1:
        return [box(np.eye(1), residuals)]
    if d == 2:
        # A quarter turn swaps the two directions, which the aspect grid does too: angles end before 90 degrees.
        angles = np.arange(n_angles) * np.pi / (2 * n_angles)
        frames = [np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) for a in angles]
        ratios = np.geomspace(1 / max_aspect, max_aspect, n_aspects) if n_aspects > 1 else np.ones(1)
        aspects = np.column_stack([np.sqrt(ratios), 1 / np.sqrt(ratios)])
        return [box(frame, residuals, each) for frame in frames for each in aspects]
    boxes, largest = [], np.log(max_aspect) / 2
    for k in range(n_angles):
        Q, R = np.linalg.qr(rng.standard_normal((d, d))) if k else (np.eye(d), np.eye(d))
        frame = Q * np.sign(np.diag(R))
        aspects = np.exp(rng.uniform(-largest, largest, (n_aspects - 1, d)))
        boxes += [box(frame, residuals, each) for each in (np.ones(d), *aspects)]
    return boxes
