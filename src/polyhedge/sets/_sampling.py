"""Volumes of polytopes in high dimension by sequential Monte Carlo, with a standard error."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.sets.shape import Volume
from polyhedge.solvers.linear import chebyshev_center, maximise_linear

N_BATCHES = 20
"""Independent estimates whose scatter gives the standard error."""
N_ROUNDINGS = 2
"""Passes that make a body round before it is sampled."""


def polytope_volume(W: Array, h: Array, rng: np.random.Generator, n_samples: int) -> Volume:
    r"""Estimate the volume of the bounded polytope $P = \{e : W e \le h\}$ that has the origin inside.

    The polytope is first brought to nearly round position by the covariance of hit-and-run samples. Then
    its volume is telescoped over $P \cap B(r_0), P \cap B(r_1), \dots, P$, with $B(r_0)$ an inscribed ball: a
    population of points is reweighted by $(\min(\rho, r_{i+1}) / \min(\rho, r_i))^d$, where $\rho$ is the
    distance to the boundary of P along the ray through the point, resampled, and moved by hit-and-run.
    Such an estimate is unbiased however slowly hit-and-run mixes; the standard error comes from 20
    independent populations of n_samples / 20 points.

    Examples
    --------
    >>> W = np.vstack([np.eye(10), -np.eye(10)])
    >>> volume = polytope_volume(W, np.ones(20), np.random.default_rng(0), 1000)
    >>> abs(volume - 2**10) < 5 * volume.standard_error
    True
    """
    d = W.shape[1]
    T = _rounding(W, h, rng)
    W = W @ T
    center, inner = chebyshev_center(W, h)
    h = h - W @ center
    values, _ = maximise_linear(W, h, np.vstack([np.eye(d), -np.eye(d)]))
    outer = float(np.linalg.norm(np.maximum(values[:d], values[d:])))
    per_batch = max(2, n_samples // N_BATCHES)
    log_ratio = _telescope(W / h[:, None], _radii(inner, outer, d), per_batch, rng)
    log_ball = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1) + d * math.log(inner)
    volumes = np.exp(log_ball + math.log(abs(float(np.linalg.det(T)))) + log_ratio)
    return Volume(float(volumes.mean()), float(volumes.std(ddof=1)) / math.sqrt(N_BATCHES))


def _rounding(W: Array, h: Array, rng: np.random.Generator) -> Array:
    """A matrix T such that $T^{-1} P$ has a covariance near that of the unit ball."""
    d = W.shape[1]
    T = np.eye(d)
    for _ in range(N_ROUNDINGS):
        G = W @ T / h[:, None]
        points = hit_and_run(np.zeros((50 * d, d)), G, np.inf, 5 * d, rng)
        T = T @ np.linalg.cholesky(np.cov(points, rowvar=False) * (d + 2))
    return T


def _radii(inner: float, outer: float, d: int) -> Array:
    """From the inscribed ball to one that holds the polytope; a step multiplies volumes by at most e^2."""
    n_steps = max(1, math.ceil(math.log(max(outer / inner, 1.0)) / math.log1p(2.0 / d)))
    return np.geomspace(inner, max(outer, inner), n_steps + 1)


def _telescope(G: Array, radii: Array, per_batch: int, rng: np.random.Generator) -> Array:
    r"""Log of vol(P) / vol(B(r_0)), P = {G e <= 1}, one independent estimate for each batch."""
    d = G.shape[1]
    points = rng.standard_normal((N_BATCHES * per_batch, d))
    log_ratio = np.zeros(N_BATCHES)
    for radius, larger in pairwise(radii):
        rays = points / np.linalg.norm(points, axis=1, keepdims=True)
        reach = 1.0 / (rays @ G.T).max(axis=1)
        weights = (np.minimum(reach, larger) / np.minimum(reach, radius)) ** d
        weights = weights.reshape(N_BATCHES, per_batch)
        log_ratio += np.log(weights.mean(axis=1))
        chosen = _resample(weights, rng)
        # Given its ray, a uniform point has a known law of the distance: no need to move there step by step.
        distance = np.minimum(reach, larger)[chosen] * rng.random(len(points)) ** (1.0 / d)
        points = hit_and_run(rays[chosen] * distance[:, None], G, larger, d, rng)
    return log_ratio


def _resample(weights: Array, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Systematic resampling within each row; indices into the flattened weights."""
    n_batches, n = weights.shape
    cumulative = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    marks = (np.arange(n) + rng.random((n_batches, 1))) / n
    rows = [
        np.minimum(np.searchsorted(c, m), n - 1) + n * i for i, (c, m) in enumerate(zip(cumulative, marks, strict=True))
    ]
    return np.concatenate(rows)


def hit_and_run(points: Array, G: Array, radius: float, n_steps: int, rng: np.random.Generator) -> Array:
    r"""Move each row within $\{e : G e \le 1, \|e\|_2 \le \text{radius}\}$ by draws on random chords."""
    for _ in range(n_steps):
        u = rng.standard_normal(points.shape)
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        # Clipping a rounding-size negative slack keeps points that touch a facet on the right side.
        slack, rate = np.maximum(1.0 - points @ G.T, 0.0), u @ G.T
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = slack / rate
        upper = np.min(np.where(rate > 0, steps, np.inf), axis=1)
        lower = np.max(np.where(rate < 0, steps, -np.inf), axis=1)
        if np.isfinite(radius):
            along = np.einsum("ij,ij->i", points, u)
            room = np.maximum(radius**2 - np.einsum("ij,ij->i", points, points), 0.0)
            half = np.sqrt(along**2 + room)
            lower, upper = np.maximum(lower, -along - half), np.minimum(upper, -along + half)
        points = points + (lower + (upper - lower) * rng.random(len(points)))[:, None] * u
    return points
