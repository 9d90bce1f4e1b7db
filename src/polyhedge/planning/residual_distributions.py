r"""Residual distributions: scenarios of the outcome at a row, from residuals that the predictor had not seen.

The outcome at x is one of the scenarios $f(x) + m(x) + s(x)\,e_i$, all equally likely. The points $e_i$ are residuals
$y_i - f(x_i) - m(x_i)$ divided by $s(x_i)$.

| name | centre m(x) | spread s(x) |
|---|---|---|
| uniform | 0 | 1 |
| scaled | 0 | a forest of the sizes of the residuals |
| corrected | a forest of the residuals | a forest of the sizes of what it leaves |

Calibration rows take no part: a distribution shapes the policy whose cost they bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.predictors.trees import Forest

DISTRIBUTIONS = ("uniform", "scaled", "corrected")
"""Names of the distributions, from simple to complex."""
MOST_POINTS = 3000
"""Residuals that a distribution keeps at most, evenly chosen: every row needs all of them, and files store them."""


@dataclass(frozen=True, eq=False)
class DevelopmentRows:
    """Rows that policies are made from, with predictions of models that had not seen them.

    Attributes
    ----------
    X : features, row by row.
    centers, outcomes : (n, d) predictions and outcomes.
    values : (n, t) of the problem's parameters.
    blocks : (n,) fold of each row.
    in_time : whether folds follow one another in time: each is then scored by earlier ones alone.
    """

    X: Any
    centers: Array
    outcomes: Array
    values: Array
    blocks: Indices
    in_time: bool = False

    def __len__(self) -> int:
        return len(self.centers)

    def take(self, rows: Indices) -> DevelopmentRows:
        """Some of the rows."""
        centers, outcomes, values = (part[rows] for part in (self.centers, self.outcomes, self.values))
        return DevelopmentRows(take_rows(self.X, rows), centers, outcomes, values, self.blocks[rows], self.in_time)

    def thinned(self, most: int) -> DevelopmentRows:
        """An even choice of at most so many rows, in their order."""
        return self if len(self) <= most else self.take(evenly_chosen(len(self), most))

    def folds(self) -> list[tuple[Indices, Indices]]:
        """Pairs of rows to score and rows to fit on: all other folds, in time the earlier ones."""
        numbers = np.unique(self.blocks)
        if not self.in_time:
            return [(np.flatnonzero(self.blocks == k), np.flatnonzero(self.blocks != k)) for k in numbers]
        return [(np.flatnonzero(self.blocks == k), np.flatnonzero(self.blocks < k)) for k in numbers[1:]]


@stored("residual distribution")
@dataclass(frozen=True, eq=False)
class ResidualDistribution:
    """Scenarios f(x) + m(x) + s(x) e_i of the outcome at x, all equally likely.

    Attributes
    ----------
    name : one of `DISTRIBUTIONS`.
    points : (n, d) the e_i.
    spread, center : forests of s and m; None for 1 and 0.
    """

    name: str
    points: Array
    spread: Forest | None = None
    center: Forest | None = None

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or not self.points.size:
            raise ValueError("A residual distribution must have at least one residual, a row each.")
        for forest, n_outputs in ((self.spread, 1), (self.center, self.points.shape[1])):
            if forest is not None and not forest.fits(self.points.shape[1], n_outputs):
                raise ValueError("A forest of a residual distribution must look at the prediction of each outcome.")

    def at(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Centres f + m (N, d) and spreads s (N,) at rows with predictions `centers` (N, d)."""
        scales = np.ones(len(centers)) if self.spread is None else within(self.spread(X, centers))[:, 0]
        return centers if self.center is None else centers + self.center(X, centers), scales

    def outcomes(self, X: Any, centers: Array) -> Iterator[Array]:
        """Row by row the scenarios (n, d)."""
        for center, scale in zip(*self.at(X, centers), strict=True):
            yield center + scale * self.points

    @property
    def is_uniform(self) -> bool:
        """Whether the spread is 1 at every row: a forest that predicts chance is shrunk to that."""
        return self.spread is None or bool((self.spread.value == 1).all())


def padded(points: Array, n_values: int) -> Array:
    """Points of a distribution over [outcome, parameters]: parameters are known, no residual moves them."""
    return np.hstack([points, np.zeros((len(points), n_values))])


def fit_distribution(name: str, rows: DevelopmentRows, seed: int) -> ResidualDistribution:
    """The distribution of this name from development rows."""
    residuals, center = fit_center(name, rows, seed)
    spread = None
    if name != "uniform":
        spread, sizes = fit_spread(rows, _sizes(residuals)[:, None], seed)
        residuals = residuals / sizes
    return ResidualDistribution(name, residuals[evenly_chosen(len(residuals), MOST_POINTS)], spread, center)


def fit_center(name: str, rows: DevelopmentRows, seed: int) -> tuple[Array, Forest | None]:
    """Residuals (n, d) from the centre of the distribution of this name, out of bag, and the forest of that centre."""
    residuals = rows.outcomes - rows.centers
    if name != "corrected":
        return residuals, None
    center, predicted = _center(rows, seed)
    return residuals - predicted, center


def fit_spread(rows: DevelopmentRows, sizes: Array, seed: int) -> tuple[Forest, Array]:
    """The forest of relative sizes (n, k), and its out-of-bag predictions (n, k)."""
    # Leaves of ten rows: smaller ones overfit where the size does not vary.
    forest, predicted = Forest.fit(rows.X, rows.centers, sizes, min_leaf=10, seed=seed)
    spread, predicted = _shrunk(forest, predicted, sizes, 1.0)
    return spread, within(predicted)


def helpful_distributions(rows: DevelopmentRows, seed: int) -> tuple[str, ...]:
    """Names of the distributions to compare: corrected only if its centre explains 5 % of the variance of an outcome's
    residuals out of bag, as for a biased predictor.
    """
    residuals = rows.outcomes - rows.centers
    total, left = (part.var(axis=0) for part in (residuals, residuals - _center(rows, seed)[1]))
    return DISTRIBUTIONS if (left < 0.95 * total).any() else DISTRIBUTIONS[:2]


def _center(rows: DevelopmentRows, seed: int) -> tuple[Forest, Array]:
    """The forest of the residuals, and its out-of-bag predictions (n, d)."""
    residuals = rows.outcomes - rows.centers
    return _shrunk(*Forest.fit(rows.X, rows.centers, residuals, min_leaf=5, seed=seed), residuals, 0.0)


def _shrunk(forest: Forest, predicted: Array, targets: Array, middle: float) -> tuple[Forest, Array]:
    """The forest shrunk towards `middle` by as much as it overfits, and its out-of-bag predictions (n, k).

    The slope of a target on out-of-bag predictions is 1 for a calibrated forest and 0 for one that predicts chance.
    """
    x, y = predicted - predicted.mean(axis=0), targets - targets.mean(axis=0)
    norm = (x**2).sum(axis=0)
    slope = np.clip((x * y).sum(axis=0) / np.where(norm > 0, norm, 1.0), 0.0, 1.0)
    return replace(forest, value=middle + slope * (forest.value - middle)), middle + slope * (predicted - middle)


def _sizes(residuals: Array) -> Array:
    """One size a residual: the mean of |e_j| over the outcome's standard deviation, relative to the mean of all."""
    deviation = residuals.std(axis=0)
    sizes = (np.abs(residuals) / np.where(deviation > 0, deviation, 1.0)).mean(axis=1)
    return np.asarray(sizes / (sizes.mean() or 1.0))


def within(sizes: Array) -> Array:
    """Predicted sizes (N, k), from an eighth of the mean to eight times it: what lies beyond is chance."""
    return np.clip(sizes, 1 / 8, 8.0)
