r"""Distributions of the outcome at a row, made from residuals of rows that the predictor had not seen.

A distribution says that the outcome at x is one of $f(x) + m(x) + s(x)\,e_i$, with probabilities $w_i(x)$, where the
points $e_i$ are residuals $y_i - f(x_i) - m(x_i)$ divided by $s(x_i)$. Members differ in what they let depend on x:

| name | centre m(x) | spread s(x) | weights w(x) |
|---|---|---|---|
| uniform   | 0 | 1 | equal |
| scaled    | 0 | a forest of the residuals' size | equal |
| corrected | a forest of the residuals | a forest of what it leaves | equal |
| weighted  | 0 | 1 | leaves shared in a forest of the residuals and their sizes (`leaf_weights.py`) |
| marginal  | 0 | 1 | the same by a forest an outcome: a distribution of each outcome by itself, which says nothing of
sums |

Nothing here may see calibration rows: a distribution shapes the policy that they guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.forest import Forest
from polyhedge.planning.leaf_weights import LeafWeights

EVEN_DISTRIBUTIONS = ("uniform", "scaled", "corrected")
"""Distributions whose points are all equally likely, from simple to complex."""
DISTRIBUTIONS = (*EVEN_DISTRIBUTIONS, "weighted", "marginal")
"""All of them, from simple to complex."""
# Rows that a leaf must have: fewer make sharp local distributions, which overfit where nothing is to be found.
_LEAF_OF_SPREAD, _LEAF_OF_CENTER, _LEAF_OF_WEIGHTS = 10, 5, 10
# Sizes beyond these shares of the mean are held to be chance.
_LEAST_SIZE, _LARGEST_SIZE = 1 / 8, 8.0
_WEIGHTED_ROWS = 4096
"""Rows whose weights are looked at together: some hundred numbers each."""
MOST_POINTS = 3000
"""Residuals that a distribution keeps at most, evenly chosen: all of them are needed at every row, and stored."""


@dataclass(frozen=True, eq=False)
class DevelopmentRows:
    """Rows that policies are made from: features, predictions by models that had not seen them, outcomes.

    Attributes
    ----------
    X : features, row by row.
    centers, outcomes : (n, d)
    values : (n, t) of the problem's parameters.
    blocks : (n,) number of the fold of each row; whatever is fitted is scored on folds it has not seen.
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
        """Rows that are scored, and those that they are scored by: all other folds, in time the earlier ones."""
        numbers = np.unique(self.blocks)
        if not self.in_time:
            return [(np.flatnonzero(self.blocks == k), np.flatnonzero(self.blocks != k)) for k in numbers]
        return [(np.flatnonzero(self.blocks == k), np.flatnonzero(self.blocks < k)) for k in numbers[1:]]


class PlacedDistribution(NamedTuple):
    """A distribution at N rows: centres (N, d), spreads (N,) and weights (N, n) of its points.

    There are no weights where all points are equally likely, one matrix of them, or one an outcome.
    """

    centers: Array
    scales: Array
    weights: tuple[sp.csr_array, ...] = ()


@dataclass(frozen=True, eq=False)
class ResidualDistribution:
    """The outcome at x is f(x) + m(x) + s(x) e_i with probability w_i(x).

    Attributes
    ----------
    name : one of `LAWS`.
    points : (n, d) the e_i.
    center, spread : forests for m and s; None for 0 and 1.
    weights : for w; none where all points are equally likely, one for all outcomes, or one for each.
    """

    name: str
    points: Array
    center: Forest | None = None
    spread: Forest | None = None
    weights: tuple[LeafWeights, ...] = ()

    def placed(self, X: Any, centers: Array) -> PlacedDistribution:
        """The distribution at rows with predictions `centers`."""
        return PlacedDistribution(*self.at(X, centers), tuple(each(X, centers) for each in self.weights))

    def parts(self, X: Any, centers: Array) -> Iterator[tuple[slice, PlacedDistribution]]:
        """The distribution at stretches of the rows: weights of all of them at once might not fit into memory."""
        step = _WEIGHTED_ROWS if self.weights else max(len(centers), 1)
        for k in range(0, len(centers), step):
            part = slice(k, k + step)
            own = X if step >= len(centers) else take_rows(X, np.arange(*part.indices(len(centers))))
            yield part, self.placed(own, centers[part])

    def outcomes(self, X: Any, centers: Array) -> Iterator[Array]:
        """Row by row the outcomes (n, d) that the distribution holds possible."""
        for _, at in self.parts(X, centers):
            for i, (center, scale) in enumerate(zip(at.centers, at.scales, strict=True)):
                seen = self.points[at.weights[0][[i]].indices] if at.weights else self.points
                yield center + scale * seen

    def at(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Centres f + m (N, d) and spreads s (N,) at rows with predictions `centers`."""
        moved = centers if self.center is None else centers + self.center(X, centers)
        scales = np.ones(len(centers)) if self.spread is None else _sizes_within(self.spread(X, centers))
        return moved, scales

    def state(self) -> dict[str, Any]:
        """Plain values from which `law_from` makes the same distribution."""
        forests = {"center": self.center, "spread": self.spread}
        weights = {"weights": [each.state() for each in self.weights]} if self.weights else {}
        return {"name": self.name, "points": self.points, **weights} | {
            name: None if forest is None else forest.state() for name, forest in forests.items()
        }


def distribution_from(state: Mapping[str, Any], n_outcomes: int) -> ResidualDistribution:
    """The distribution with this state; a ValueError where no fit can have made it."""
    points, outputs = state["points"], {"center": n_outcomes, "spread": 1}
    if state["name"] not in DISTRIBUTIONS or not is_sample(points, n_outcomes):
        raise ValueError(
            f"A distribution must have a known name and at most {MOST_POINTS} residuals of {n_outcomes} outcomes."
        )
    forests = {name: None if state[name] is None else Forest.from_state(state[name]) for name in outputs}
    weights = tuple(LeafWeights.from_state(one, len(points)) for one in state.get("weights", ()))
    if len(weights) != n_weights(state["name"], n_outcomes):
        raise ValueError(
            "A distribution must have weights of its residuals as its name says: none, one, or one an outcome."
        )
    known = {"scaled": {"spread"}, "corrected": {"center", "spread"}}.get(state["name"], set())
    if known != {name for name, forest in forests.items() if forest is not None}:
        raise ValueError(
            "A distribution must have forests for its centre and its spread as its name says, and no others."
        )
    for k, each in enumerate(weights):
        name = f"weights {k}"
        forests[name], outputs[name] = each.forest, 2 * (n_outcomes if len(weights) == 1 else 1)
    for name, forest in forests.items():
        if forest is not None and (
            forest.value.shape[1] != outputs[name] or len(forest.fill) != len(forest.columns) + n_outcomes
        ):
            raise ValueError(
                "A forest of a distribution must look at the prediction of each outcome, and predict as many."
            )
    return ResidualDistribution(state["name"], points, forests["center"], forests["spread"], weights)


def is_sample(points: Array, n_outcomes: int) -> bool:
    """Whether these are residuals as a file keeps them: numbers (n, d), at least one row and not too many."""
    is_table = points.ndim == 2 and points.shape[1] == n_outcomes and points.dtype.kind == "f"
    return is_table and 0 < len(points) <= MOST_POINTS


def padded(points: Array, n_values: int) -> Array:
    """Points of a distribution over [outcome, parameters]: parameters are known, no residual moves them."""
    return np.hstack([points, np.zeros((len(points), n_values))])


def n_weights(name: str, n_outcomes: int) -> int:
    """How many forests weigh the residuals of a distribution of this name."""
    return {"weighted": 1, "marginal": n_outcomes}.get(name, 0)


def fit_distributions(names: Sequence[str], samples: DevelopmentRows, seed: int) -> dict[str, ResidualDistribution]:
    """Distributions by name from development rows, from simple to complex: what one has in common with another is
    grown once.
    """
    distributions: dict[str, ResidualDistribution] = {}
    for name in sorted(names, key=DISTRIBUTIONS.index):
        distributions[name] = fit_distribution(name, samples, seed, distributions.get("scaled"))
    return distributions


def says_the_same(distribution: ResidualDistribution, other: ResidualDistribution) -> bool:
    """Whether two distributions surely say the same of every row: forests that tell chance are held back to nothing."""
    if distribution.weights or other.weights or not np.array_equal(distribution.points, other.points):
        return False
    pairs = ((distribution.center, other.center, 0.0), (distribution.spread, other.spread, 1.0))
    return all(a is b or (_is_always(a, middle) and _is_always(b, middle)) for a, b, middle in pairs)


def _is_always(forest: Forest | None, value: float) -> bool:
    return forest is None or bool((forest.value == value).all())


def fit_distribution(
    name: str, samples: DevelopmentRows, seed: int, scaled: ResidualDistribution | None = None
) -> ResidualDistribution:
    """The distribution of this name from development rows; `scaled` is that distribution of the same rows, where it is
    known.
    """
    residuals, center, spread = samples.outcomes - samples.centers, None, None
    kept = evenly_chosen(len(residuals), MOST_POINTS)
    if name not in EVEN_DISTRIBUTIONS:
        X, centers, points = take_rows(samples.X, kept), samples.centers[kept], residuals[kept]
        parts = [points] if name == "weighted" else np.split(points, points.shape[1], axis=1)
        # Trees part rows by the centre and by the spread of their residuals, whichever tells more.
        targets = [np.hstack([part, np.abs(part)]) for part in parts]
        weights = [LeafWeights.fit(X, centers, one, min_leaf=_LEAF_OF_WEIGHTS, seed=seed) for one in targets]
        return ResidualDistribution(name, points, weights=tuple(weights))
    if name == "corrected":
        forest, said = Forest.fit(samples.X, samples.centers, residuals, min_leaf=_LEAF_OF_CENTER, seed=seed)
        center, said = _held_back(forest, said, residuals, np.zeros(residuals.shape[1]))
        if scaled is not None and _is_always(center, 0.0):  # what it leaves are the same residuals
            return ResidualDistribution(name, scaled.points, center, scaled.spread)
        residuals = residuals - said
    if name in ("scaled", "corrected"):
        sizes = _residual_sizes(residuals)[:, None]
        forest, said = Forest.fit(samples.X, samples.centers, sizes, min_leaf=_LEAF_OF_SPREAD, seed=seed)
        spread, said = _held_back(forest, said, sizes, np.ones(1))
        residuals = residuals / _sizes_within(said)[:, None]
    return ResidualDistribution(name, residuals[kept], center, spread)


def _held_back(forest: Forest, said: Array, targets: Array, middle: Array) -> tuple[Forest, Array]:
    """The forest drawn towards `middle` (k,) by as much as it overstates, and what it then says of unseen rows (n, k).

    The slope of the targets on what trees say that had not seen them is 1 for a forest that is right, and 0 for one
    that tells chance: kept is the share of each output that this slope leaves, so that a distribution is no worse for
    looking.
    """
    told, true = said - middle, targets - middle
    told, true = told - told.mean(axis=0), true - true.mean(axis=0)
    size = (told**2).sum(axis=0)
    kept = np.clip((told * true).sum(axis=0) / np.where(size > 0, size, 1.0), 0.0, 1.0)
    return replace(forest, value=middle + kept * (forest.value - middle)), middle + kept * (said - middle)


def _residual_sizes(residuals: Array) -> Array:
    """One size a residual: the mean of |e_j| over the outcome's standard deviation, relative to the mean of all."""
    deviation = residuals.std(axis=0)
    sizes = (np.abs(residuals) / np.where(deviation > 0, deviation, 1.0)).mean(axis=1)
    return np.asarray(sizes / (sizes.mean() or 1.0))


def _sizes_within(sizes: Array) -> Array:
    return np.clip(sizes[:, 0], _LEAST_SIZE, _LARGEST_SIZE)
