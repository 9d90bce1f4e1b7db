r"""Probabilistic conformal prediction (Wang et al. 2023): a union of balls around draws of the outcome.

The draws are $\hat f(x)$ plus residuals of the *training* rows, which are independent of the calibration rows.
The score of an outcome is its distance to the nearest draw, the set a union of balls of the conformal radius. The
learning and calibration rows together give the radius. The authors' code takes the order statistic beside the
right one; the rank here is exact.

| variant        | draws                                                                              |
|----------------|------------------------------------------------------------------------------------|
| "high-density" | 22 for all contexts, without the 2 of lowest density: 20 anchors (default)         |
| "plain"        | 20 for all contexts                                                                |
| "redraw"       | 22 anew for each context, without the 2 of lowest density                          |
"""

from __future__ import annotations

import time

import numpy as np
from scipy.stats import gaussian_kde

from polyhedge.calibration import conformal_radius
from polyhedge.sets import Volume
from polyhedge_study.baselines.fitted import fit_predictor
from polyhedge_study.baselines.union_of_balls import UnionOfBalls
from polyhedge_study.each_context import decide_each
from polyhedge_study.hull_volume import hull_volume
from polyhedge_study.inside import Array
from polyhedge_study.measure import Measured, least_mean, measure_decisions, measure_set
from polyhedge_study.tasks import Task

VARIANTS = ("high-density", "plain", "redraw")
# The high-density variant of the authors keeps 20 of 22 draws; the other variants have as many.
N_ANCHORS = 20
N_DROPPED = 2
# Volumes of unions that differ from context to context are averaged over this many contexts.
N_VOLUMES = 200


def pcp(task: Task, alpha: float, seed: int, *, variant: str = "high-density") -> Measured:
    """Measure probabilistic conformal prediction; `variant` is one of `VARIANTS`."""
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}.")
    return _redrawn(task, alpha, seed) if variant == "redraw" else _shared(task, alpha, seed, variant)


def _shared(task: Task, alpha: float, seed: int, variant: str) -> Measured:
    fitted = fit_predictor(task)
    began = time.perf_counter()
    n_dropped = N_DROPPED if variant == "high-density" else 0
    anchors = draw_anchors(fitted.residuals("train"), 1, n_dropped, np.random.default_rng(seed))[0]
    shape = UnionOfBalls(anchors)
    radius = conformal_radius(shape.scores(fitted.residuals("learn", "calibrate")), alpha)
    seconds = time.perf_counter() - began
    return measure_set(task, fitted.centers("test"), shape, radius, alpha, seconds, fitted.residuals("learn"))


def _redrawn(task: Task, alpha: float, seed: int) -> Measured:
    fitted = fit_predictor(task)
    began = time.perf_counter()
    rng, train = np.random.default_rng(seed), fitted.residuals("train")
    calibration, residuals = fitted.residuals("learn", "calibrate"), fitted.residuals("test")
    radius = conformal_radius(_nearest(calibration, draw_anchors(train, len(calibration), N_DROPPED, rng)), alpha)
    seconds = time.perf_counter() - began
    anchors, centers = draw_anchors(train, len(residuals), N_DROPPED, rng), fitted.centers("test")

    def maximisers(V: Array) -> Array:
        far = np.einsum("nkd,nd->nk", anchors, V).argmax(axis=1)
        length = np.linalg.norm(V, axis=1, keepdims=True)
        return anchors[np.arange(len(V)), far] + radius * V / np.where(length > 0, length, 1.0)

    decisions = decide_each(task.problem, maximisers, lambda i: (UnionOfBalls(anchors[i]), radius), centers)
    decisions = least_mean(
        task.problem, decisions, centers, lambda V: (maximisers(V) * V).sum(axis=1), fitted.residuals("learn")
    )
    inside = _nearest(residuals, anchors) <= radius
    within = hull_volume(residuals, lambda e, i: _nearest(e, anchors[i]) <= radius, len(anchors))
    volume = _mean_volume(anchors, radius)
    return measure_decisions(task, centers, decisions, inside, volume, alpha, seconds, hull_volume=within)


def draw_anchors(residuals: Array, n_draws: int, n_dropped: int, rng: np.random.Generator) -> Array:
    """Draw `N_ANCHORS` + `n_dropped` residuals, `n_draws` times, and drop those of lowest density from each draw.

    The density is a Gaussian kernel estimate on the same residuals (n, d): hand in training residuals only.

    Returns
    -------
    ndarray of shape (n_draws, N_ANCHORS, d)
    """
    size = N_ANCHORS + n_dropped
    chosen = np.stack([rng.choice(len(residuals), size, replace=size > len(residuals)) for _ in range(n_draws)])
    if n_dropped:
        drawn = np.unique(chosen)
        density = np.zeros(len(residuals))
        density[drawn] = gaussian_kde(residuals.T)(residuals[drawn].T)
        densest = np.argsort(-density[chosen], axis=1, kind="stable")[:, :N_ANCHORS]
        chosen = np.take_along_axis(chosen, densest, axis=1)
    return np.asarray(residuals[chosen])


def _nearest(residuals: Array, anchors: Array) -> Array:
    """Distance of residual i to the nearest anchor of its own draw."""
    return np.linalg.norm(residuals[:, None] - anchors, axis=2).min(axis=1)


def _mean_volume(anchors: Array, radius: float) -> Volume:
    volumes = [UnionOfBalls(rows).volume(radius) for rows in anchors[:N_VOLUMES]]
    spread = float(np.std(volumes, ddof=1)) if len(volumes) > 1 else np.inf
    return Volume(float(np.mean(volumes)), spread / np.sqrt(len(volumes)))
