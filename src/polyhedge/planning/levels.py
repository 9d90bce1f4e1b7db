r"""Planned costs: quantiles of what a decision costs under a distribution, at one level or at levels shared out over
rows.

A policy with the same level at every row is not the cheapest that covers a given share of them. With a price $\beta$
for a unit of level each row takes what is worth it,

$$v(x) = Q_{t(x)}(x), \qquad t(x) = \arg\min_t\ Q_t(x) - \beta\,t,$$

where $Q_t(x)$ is the t-quantile of g(z(x), .) under the distribution: rows where certainty is dear get less of it.
Levels have a floor, so that no row is given up for the mean of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.equivalent import first_alike
from polyhedge.planning.residual_distributions import PlacedDistribution, ResidualDistribution, padded
from polyhedge.planning.risk import JointCost

_SHARES = (5, 4, 3, 2.5, 2, 1.6, 1.3, 1, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1)
"""How many times alpha the levels to choose from leave out: closer where quantiles rise fast."""
_FLOOR = 0.5
"""The least level of a planned cost: half of what a row may cost lies below it."""
_HALVINGS = 24
"""Of the price: it then lies above the one at which some row changes its level by more than rounding, which must not
choose that row's level, and by less than any difference of bounds that counts."""


def planned_level(alpha: float) -> float:
    """The one level of a planned cost: below 1 - alpha, so that a common margin is added where the distribution is
    wide.
    """
    return max(1 - 2 * alpha, _FLOOR)


def levels_to_share(alpha: float) -> tuple[float, ...]:
    """The levels that rows may have where they are shared out, from the floor upwards.

    Examples
    --------
    >>> levels_to_share(0.2)
    (0.5, 0.6, 0.68, 0.74, 0.8, 0.84, 0.88, 0.91, 0.94, 0.96, 0.98)
    """
    return tuple(sorted({round(max(1 - share * alpha, _FLOOR), 12) for share in _SHARES}))


@dataclass(frozen=True)
class PlannedBy:
    """How a cost is planned: by a distribution of this name, at the one of the levels that is worth most at this
    price.
    """

    distribution: str
    levels: tuple[float, ...]
    price: float = 0.0

    def __str__(self) -> str:
        return self.distribution if len(self.levels) == 1 else f"{self.distribution}, levels shared out"

    def taken(self, quantiles: Array) -> Array:
        """The planned cost (N,) by the quantiles (N, T) of all levels."""
        if len(self.levels) == 1:
            return quantiles[:, 0]
        best = np.argmin(quantiles - self.price * np.array(self.levels), axis=1)
        return np.take_along_axis(quantiles, best[:, None], axis=1)[:, 0]


def shared_out(distribution: str, levels: tuple[float, ...], quantiles: Array, costs: Array, alpha: float) -> PlannedBy:
    """Levels at the least price at which planned costs, of quantiles (N, T), cover 1 - alpha of the costs (N,)."""
    rises = np.diff(quantiles, axis=1) / np.diff(levels)
    low, high = 0.0, 2.0 * float(np.nanmax(rises, initial=0.0))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_enough = np.mean(costs <= PlannedBy(distribution, levels, middle).taken(quantiles)) >= 1 - alpha
        low, high = (low, middle) if is_enough else (middle, high)
    return PlannedBy(distribution, levels, high)


def quantiles_at(
    problem: PlanProblem,
    distribution: ResidualDistribution,
    levels: tuple[float, ...],
    z: Array,
    at: PlacedDistribution,
    values: Array,
) -> tuple[Array, Array]:
    """Quantiles (N, T) and mean (N,) of g(z(x), .) where centres, spreads and weights of the distribution are known."""
    if problem.is_by_value:
        return _by_value(problem, distribution, levels, z, at, values)
    if not problem.has_maxima:
        return problem.sampled_costs(z, at, values, distribution.points, levels)
    cost = JointCost(problem.joint, padded(distribution.points, values.shape[1]))
    weights = at.weights[0] if at.weights else None
    quantiles, mean = cost.quantiles(z, np.hstack([at.centers, values]), at.scales, levels, weights)
    alone = problem.alone(z, values)
    return quantiles + alone[:, None], mean + alone


def _by_value(
    problem: PlanProblem,
    distribution: ResidualDistribution,
    levels: tuple[float, ...],
    z: Array,
    at: PlacedDistribution,
    values: Array,
) -> tuple[Array, Array]:
    """The same, each row with the problem at its own values: by pieces where it has them there, or by its formula."""
    quantiles, mean = np.full((len(z), len(levels)), np.nan), np.full(len(z), np.nan)
    for i in np.flatnonzero(np.isfinite(z).all(axis=1)):
        row = slice(i, i + 1)
        there = PlacedDistribution(at.centers[row], at.scales[row], tuple(weights[row] for weights in at.weights))
        quantiles[row], mean[row] = quantiles_at(
            problem.at_value(values[i]), distribution, levels, z[row], there, np.zeros((1, 0))
        )
    return quantiles, mean


def quantiles_of_each(
    problem: PlanProblem,
    distribution: ResidualDistribution,
    levels: tuple[float, ...],
    decisions: Sequence[Array],
    at: PlacedDistribution,
    values: Array,
) -> Array:
    """Quantiles (R, N, T) of what each of R decisions (N, p) costs at the same rows.

    Rules often decide alike at a row, at an end of the decisions above all: what is the same is looked at once.
    """
    own = first_alike(decisions)
    rule, row = np.nonzero(own == np.arange(len(decisions))[:, None])
    z = np.concatenate([each[row[rule == i]] for i, each in enumerate(decisions)])
    there = PlacedDistribution(at.centers[row], at.scales[row], tuple(weights[row] for weights in at.weights))
    places = np.empty(own.shape, dtype=np.int64)
    places[rule, row] = np.arange(len(row))
    return quantiles_at(problem, distribution, levels, z, there, values[row])[0][
        np.take_along_axis(places, own, axis=0)
    ]


def planned_cost(
    problem: PlanProblem,
    distribution: ResidualDistribution,
    level: float,
    z: Array,
    X: Any,
    centers: Array,
    values: Array,
) -> tuple[Array, Array]:
    """V (N,), the quantile of this one level of g(z(x), .) under a distribution, and its mean (N,)."""
    return PlannedCost.at_level(distribution, level)(problem, z, X, centers, values)


@dataclass(frozen=True, eq=False)
class PlannedCost:
    """A planned cost with the distribution that makes it, frozen: a function of the row and its decision alone."""

    distribution: ResidualDistribution
    by: PlannedBy

    @classmethod
    def at_level(cls, distribution: ResidualDistribution, level: float) -> PlannedCost:
        """The same level at every row."""
        return cls(distribution, PlannedBy(distribution.name, (level,)))

    def __call__(self, problem: PlanProblem, z: Array, X: Any, centers: Array, values: Array) -> tuple[Array, Array]:
        """V (N,) of decisions z (N, p), and their mean costs (N,) under the distribution; NaN where there is no
        decision.
        """
        v, mean = np.empty(len(z)), np.empty(len(z))
        for part, at in self.distribution.parts(X, centers):
            quantiles, mean[part] = quantiles_at(problem, self.distribution, self.by.levels, z[part], at, values[part])
            v[part] = self.by.taken(quantiles)
        return v, mean
