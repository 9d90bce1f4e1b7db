"""Levels that follow errors at several speeds, mixed by how well each would have done, so that nobody chooses one."""

from __future__ import annotations

import math

import numpy as np

from polyhedge._support.validation import Array

SPEEDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Steps that are mixed: those of Gibbs and Candes (2024), from nearly constant to one miss moving the level by 0.1."""
SATURATION = 0.01
"""The step whose long-run bound the mixture is held to: 91 misses at alpha = 0.1."""
_INTERVAL = 100
"""Steps over which the mixture should be nearly as good as the best speed: about a quarter of daily rows."""


def followed(levels: Array, weights: Array, alpha: float, window: Array, score: float) -> tuple[Array, Array]:
    """Levels and weights (K,) after a score, ranked among those of the window.

    A score is covered at levels below 1 - #{smaller scores} / (n + 1). The pinball loss between this and a level says
    how well the level did.
    """
    gap = 1 - float((window < score).sum()) / (len(window) + 1) - levels
    losses = alpha * gap - np.minimum(gap, 0.0)
    tilted = weights * np.exp(-_learning_rate(alpha) * (losses - losses.min()))
    share = 1 / (2 * _INTERVAL)
    mixed = (1 - share) * tilted / tilted.sum() + share / len(weights)
    return levels + np.array(SPEEDS) * (alpha - (gap <= 0)), mixed / mixed.sum()


def _learning_rate(alpha: float) -> float:
    """The rate that Gibbs and Candes (2024, section 2.2) derive for an interval of this length."""
    size = (1 - alpha) ** 2 * alpha**3 + alpha**2 * (1 - alpha) ** 3
    return math.sqrt(3 / _INTERVAL * (math.log(len(SPEEDS) * _INTERVAL) + 2) / size)


def most_surplus(alpha: float) -> float:
    """Misses beyond alpha T from which on bounds are infinite, or beneath it from which on rows count as missed."""
    return max(alpha, 1 - alpha) / SATURATION


def saturated(level: float, surplus: float, alpha: float) -> float:
    """The level, but 0 where misses have run too far above alpha and 1 where too far below.

    Rows that are decided from then on count as hits, or as misses, so that the surplus goes back whatever the level
    was.
    """
    most = most_surplus(alpha)
    return 0.0 if surplus >= most else 1.0 if surplus <= -most else level
