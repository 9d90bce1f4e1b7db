"""A finite population with a known truth: coverage, radius and the oracle's cost are exact numbers, not estimates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from sklearn.base import clone

from polyhedge.calibration import conformal_rank
from polyhedge.data import make_synthetic
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Shape
from polyhedge_study.inside import Array, check_alpha
from polyhedge_study.tasks import ADVANTAGE, synthetic_task

__all__ = ["Population", "TheorySettings", "hard_context", "population"]

_POOL = 100_000
"""Rows: a coverage moves by 1e-5 from one to the next, where 300 calibration rows spread it by 0.017."""


@dataclass(frozen=True)
class TheorySettings:
    """What all rows share: the miscoverage level, and the size of the population."""

    alpha: float = 0.1
    pool: int = _POOL

    def __post_init__(self) -> None:
        check_alpha(self.alpha)


@dataclass(frozen=True, eq=False)
class Population:
    """A finite population of residuals and predictions (N, d) with a problem; every row is equally likely."""

    problem: DecisionProblem
    residuals: Array
    centers: Array

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """`n` independent draws of (residual, prediction)."""
        rows = rng.integers(len(self.residuals), size=n)
        return self.residuals[rows], self.centers[rows]

    def coverage(self, shape: Shape, radius: float) -> float:
        """Probability that an outcome lies in its set."""
        return float(np.mean(shape.contains(self.residuals, radius)))

    def radius(self, shape: Shape, alpha: float) -> float:
        """The true radius: the least one that covers a share 1 - alpha of the population."""
        scores = shape.scores(self.residuals)
        rank = conformal_rank(len(scores) - 1, alpha)
        return float(np.partition(scores, rank - 1)[rank - 1])


@lru_cache(maxsize=8)
def population(n_outcomes: int = 2, pool: int = _POOL) -> Population:
    """The synthetic linear task's population for a predictor that was trained once."""
    task = synthetic_task(0, "linear", n_outcomes=n_outcomes)
    predictor = clone(task.predictor).fit(*task.rows("train"))
    X, Y = make_synthetic(pool, rng=np.random.default_rng([n_outcomes, 7]), n_outcomes=n_outcomes)
    centers = np.asarray(predictor.predict(X))
    return Population(task.problem, Y - centers, centers)


@lru_cache(maxsize=4)
def hard_context(settings: TheorySettings) -> tuple[Array, float]:
    """A prediction (1, 2) at which both pure decisions cost the same, and the oracle's cost there.

    For most predictions one pure decision is best whatever the set, and nothing can be learned. Here mixtures are
    best, and the normal of the facet matters. For one context the oracle is a half-space along the decision, so its
    cost is a minimum over mixtures s of the two decisions.
    """
    world = population(2, settings.pool)
    rank = conformal_rank(len(world.residuals) - 1, settings.alpha)

    def costs(s: Array) -> Array:
        level = [np.partition(world.residuals @ [1 - t, t], rank - 1)[rank - 1] for t in s]
        return np.asarray(level) - ADVANTAGE * (1 - s)

    ends = costs(np.array([0.0, 1.0]))
    center = np.array([[0.0, ends[0] - ends[1]]])
    grid, width = np.linspace(0.0, 1.0, 41), 1.0
    for _ in range(3):  # each pass looks closer around the best mixture
        values = costs(grid) + grid * center[0, 1]
        width /= 10
        grid = np.clip(np.linspace(-width, width, 41) + grid[np.argmin(values)], 0.0, 1.0)
    return center, float((costs(grid) + grid * center[0, 1]).min())
