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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.predictors.trees import Forest

MOST_POINTS = 3000
"""Residuals that a distribution keeps at most, evenly chosen: every row needs all of them, and files store them."""
_MOST_PLANNED = 400
"""Residuals that plan costs: their quantile errs alike at all rows, and the radius takes that up."""
_Class = TypeVar("_Class", bound="ResidualDistribution")


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


@dataclass(frozen=True, eq=False)
class ResidualDistribution:
    """Scenarios f(x) + m(x) + s(x) e_i of the outcome at x, all equally likely: the base class of distributions.

    A distribution of your own is a frozen dataclass that inherits this class, is registered with
    `@residual_distribution("name")` and defines `fit` and `at`. The selection then compares it with the others, and
    model files hold it.

    Attributes
    ----------
    points : (n, d) the e_i; a scenario that is twice as likely as others stands there twice.
    name : what reports, files and rules call it.
    complexity : how many models of residuals it fits: each has to save a penalty. 0 if s(x) is 1 and m(x) is 0.
    moves_centers : whether m(x) is not 0, so that it is worth trying where the cost is known by its formula alone.
    """

    points: Array
    name: ClassVar[str] = ""
    complexity: ClassVar[int] = 1
    moves_centers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or not self.points.size:
            raise ValueError("A residual distribution must have at least one residual, a row each.")

    @classmethod
    def fit(cls, rows: DevelopmentRows, seed: int) -> Self:
        """The distribution of development rows; of many points an even choice is kept."""
        raise NotImplementedError(f"{cls.__name__} must define fit(rows, seed).")

    @classmethod
    def may_help(cls, rows: DevelopmentRows, seed: int) -> bool:
        """Whether the selection tries it on these rows."""
        return True

    def at(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Centres f + m (N, d) and spreads s > 0 (N,) at rows with predictions `centers` (N, d), row by row."""
        return centers, np.ones(len(centers))

    def thinned(self, most: int = _MOST_PLANNED) -> Self:
        """The same with an even choice of at most so many residuals, by default as many as plan costs.

        They are moved to have the mean of all.
        """
        points = self.points[evenly_chosen(len(self.points), most)]
        return replace(self, points=points + (self.points.mean(axis=0) - points.mean(axis=0)))

    def residuals(self, rows: DevelopmentRows, seed: int) -> Array:
        """Outcomes minus centres (n, d) of the rows that it was fitted on, by models that had not seen the row."""
        return rows.outcomes - self.at(rows.X, rows.centers)[0]

    def outcomes(self, X: Any, centers: Array) -> Iterator[Array]:
        """Row by row the scenarios (n, d)."""
        for center, scale in zip(*self.at(X, centers), strict=True):
            yield center + scale * self.points

    @property
    def is_uniform(self) -> bool:
        """Whether it has the same scenarios as the uniform distribution, so that its rules need not be tried."""
        return False


DISTRIBUTIONS: dict[str, type[ResidualDistribution]] = {}
"""The distributions that the selection compares, by their names, in the order in which they were registered."""


def residual_distribution(name: str) -> Callable[[type[_Class]], type[_Class]]:
    """Register a subclass of `ResidualDistribution`: the selection tries it, and model files hold it."""

    def register(cls: type[_Class]) -> type[_Class]:
        cls.name = name
        DISTRIBUTIONS[name] = cls
        return stored(f"{name} residuals")(cls)

    return register


@residual_distribution("uniform")
@dataclass(frozen=True, eq=False)
class Uniform(ResidualDistribution):
    """Residuals as they are: m = 0 and s = 1."""

    complexity: ClassVar[int] = 0
    is_uniform: ClassVar[bool] = True

    @classmethod
    def fit(cls, rows: DevelopmentRows, seed: int) -> Self:
        """All residuals."""
        return cls(rows.outcomes - rows.centers)


@residual_distribution("scaled")
@dataclass(frozen=True, eq=False)
class Scaled(ResidualDistribution):
    """Residuals over their predicted sizes: m = 0, and s is the forest `spread`."""

    spread: Forest

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_forest(self.spread, self.points.shape[1], 1)

    @classmethod
    def fit(cls, rows: DevelopmentRows, seed: int) -> Self:
        """The forest of the sizes of the residuals."""
        return cls(*_scaled(rows, rows.outcomes - rows.centers, seed))

    def at(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Predictions (N, d) and predicted sizes (N,)."""
        return centers, within(self.spread(X, centers))[:, 0]

    @property
    def is_uniform(self) -> bool:
        """Whether the spread is 1 at every row: a forest that predicts chance is shrunk to that."""
        return bool((self.spread.value == 1).all())


@residual_distribution("corrected")
@dataclass(frozen=True, eq=False)
class Corrected(ResidualDistribution):
    """Residuals of a corrected prediction: m is the forest `center` of residuals, s the forest `spread` of the rest."""

    spread: Forest
    center: Forest
    complexity: ClassVar[int] = 2
    moves_centers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_forest(self.spread, self.points.shape[1], 1)
        _check_forest(self.center, self.points.shape[1], self.points.shape[1])

    @classmethod
    def fit(cls, rows: DevelopmentRows, seed: int) -> Self:
        """The forest of the residuals, and the forest of the sizes of what it leaves out of bag."""
        center, predicted = _center(rows, seed)
        return cls(*_scaled(rows, rows.outcomes - rows.centers - predicted, seed), center)

    @classmethod
    def may_help(cls, rows: DevelopmentRows, seed: int) -> bool:
        """Whether its centre explains 5 % of the variance of an outcome's residuals out of bag."""
        residuals = rows.outcomes - rows.centers
        total, left = (part.var(axis=0) for part in (residuals, residuals - _center(rows, seed)[1]))
        return bool((left < 0.95 * total).any())

    def at(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Corrected predictions (N, d) and predicted sizes (N,)."""
        return centers + self.center(X, centers), within(self.spread(X, centers))[:, 0]

    def residuals(self, rows: DevelopmentRows, seed: int) -> Array:
        """What the forest leaves of the residuals (n, d) out of bag."""
        return rows.outcomes - rows.centers - _center(rows, seed)[1]


def padded(points: Array, n_values: int) -> Array:
    """Points of a distribution over [outcome, parameters]: parameters are known, no residual moves them."""
    return np.hstack([points, np.zeros((len(points), n_values))])


def fit_distribution(name: str, rows: DevelopmentRows, seed: int) -> ResidualDistribution:
    """The distribution of this name from development rows."""
    return DISTRIBUTIONS[name].fit(rows, seed).thinned(MOST_POINTS)


def fit_spread(rows: DevelopmentRows, sizes: Array, seed: int) -> tuple[Forest, Array]:
    """The forest of relative sizes (n, k), and its out-of-bag predictions (n, k)."""
    # Leaves of ten rows: smaller ones overfit where the size does not vary.
    forest, predicted = Forest.fit(rows.X, rows.centers, sizes, min_leaf=10, seed=seed)
    spread, predicted = _shrunk(forest, predicted, sizes, 1.0)
    return spread, within(predicted)


def helpful_distributions(rows: DevelopmentRows, seed: int) -> tuple[str, ...]:
    """Names of the distributions to compare on these rows."""
    return tuple(name for name, one in DISTRIBUTIONS.items() if one.may_help(rows, seed))


def _scaled(rows: DevelopmentRows, residuals: Array, seed: int) -> tuple[Array, Forest]:
    """Residuals (n, d) over their predicted sizes, out of bag, and the forest of these sizes."""
    spread, sizes = fit_spread(rows, _sizes(residuals)[:, None], seed)
    return residuals / sizes, spread


def _check_forest(forest: Forest, n_outcomes: int, n_outputs: int) -> None:
    if not forest.fits(n_outcomes, n_outputs):
        raise ValueError("A forest of a residual distribution must look at the prediction of each outcome.")


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
