r"""Boxes as polyhedra with 2 d facets: our reading of the paper's ablations and of its grid search.

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

from polyhedge._support.validation import Array
from polyhedge.learners.samples import Learner, LearnResult, Samples, standard_deviations
from polyhedge.learners.starts import principal_frame
from polyhedge.problems import NoSolutionError
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status


@dataclass(frozen=True)
class PcaBox(Learner):
    r"""The paper's ablation "Polyhedron": nothing is optimised and the problem is ignored.

    $$\{e : |u_j^\top e| \le r \sigma_j\},\quad \text{cov}(\epsilon) = \sum_j \sigma_j^2 u_j u_j^\top$$

    Parameters
    ----------
    max_contexts : as in `Learner`, for the reported objective

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> len(PcaBox().learn(samples).set.b)
    4
    """

    max_contexts: int = 300

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Take principal components and standard deviations of the learning split; see `Learner`."""
        began = time.perf_counter()
        shape = at_learning_radius(samples, box(principal_frame(samples.residuals), samples.residuals))
        return LearnResult(
            set=shape,
            objective=mean_cost(samples, shape, self.max_contexts),
            status=Status.OPTIMAL,
            seconds=time.perf_counter() - began,
            detail="box along the principal components of the learning residuals",
            scores_in="spreads",
        )


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


def mean_cost(samples: Samples, shape: Polyhedron, max_contexts: int | None, *, must_be_finite: bool = False) -> float:
    """The objective over some contexts, inf where one of them has no decision; an error where none has."""
    contexts = samples.scored_contexts(max_contexts)
    value = samples.value(shape, contexts)
    if not np.isfinite(value):
        decisions = decide(samples.problem, shape, samples.radius(shape), samples.centers[contexts])
        if must_be_finite or not np.isfinite(decisions.cost_bound).any():
            raise NoSolutionError(
                f"A box has no finite worst-case cost on the learning split. {decisions.complaint()}. Relax the "
                "constraints, bound the decision or drop such rows."
            )
    return value


def box(frame: Array, residuals: Array, aspects: Array | None = None) -> Polyhedron:
    """The box along orthonormal rows; half-widths at radius 1 are standard deviations times aspects."""
    half_widths = standard_deviations(residuals @ frame.T) * (1.0 if aspects is None else aspects)
    W = frame / half_widths[:, None]
    return Polyhedron(np.vstack([W, -W]), np.zeros(2 * len(frame)))


def box_volume(shape: Polyhedron) -> float:
    """Volume at radius 0 of a polyhedron of `box` form: the product of its widths."""
    d = shape.n_outcomes
    widths = -(shape.b[:d] + shape.b[d:]) / np.linalg.norm(shape.W[:d], axis=1)
    return float(np.prod(widths))


def at_learning_radius(samples: Samples, shape: Polyhedron) -> Polyhedron:
    """The same shape with radius 0 at the conformal radius of the learning split; row norms stay."""
    return Polyhedron(shape.W, shape.b - samples.radius(shape))


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
