r"""Laws of the outcome at a row, made from residuals of rows that the predictor had not seen.

A law says that the outcome at x is one of $f(x) + m(x) + s(x)\,e_i$, all equally likely, where the points $e_i$ are
residuals $y_i - f(x_i) - m(x_i)$ divided by $s(x_i)$. Members differ in what they let depend on x:

| name | centre m(x) | spread s(x) |
|---|---|---|
| uniform   | 0 | 1 |
| scaled    | 0 | a forest of the residuals' size |
| corrected | a forest of the residuals | a forest of what it leaves |

Nothing here may see calibration rows: a law shapes the plan that they guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._validation import Array, Indices
from polyhedge.data import take_rows
from polyhedge.learners.forest import Forest

LAWS = ("uniform", "scaled", "corrected")
"""From simple to complex."""
# Rows that a leaf must have: fewer make sharp local laws, which overfit where nothing is to be found.
_LEAF_OF_SPREAD, _LEAF_OF_CENTER = 10, 5
# Sizes beyond these shares of the mean are held to be chance.
_LEAST_SIZE, _LARGEST_SIZE = 1 / 8, 8.0
MOST_POINTS = 3000
"""Residuals that a law keeps at most, evenly chosen: all of them are needed at every row, and stored."""


@dataclass(frozen=True, eq=False)
class PlanRows:
    """Rows that plans are made from: features, predictions by models that had not seen them, outcomes.

    Attributes
    ----------
    X : features, row by row.
    centers, outcomes : (n, d)
    values : (n, t) of the problem's parameters.
    blocks : (n,) number of the fold of each row; whatever is fitted is judged on folds it has not seen.
    in_time : whether folds follow one another in time: each is then judged by earlier ones alone.
    """

    X: Any
    centers: Array
    outcomes: Array
    values: Array
    blocks: Indices
    in_time: bool = False

    def __len__(self) -> int:
        return len(self.centers)

    def take(self, rows: Indices) -> PlanRows:
        """Some of the rows."""
        centers, outcomes, values = (part[rows] for part in (self.centers, self.outcomes, self.values))
        return PlanRows(take_rows(self.X, rows), centers, outcomes, values, self.blocks[rows], self.in_time)

    def folds(self) -> list[tuple[Indices, Indices]]:
        """Rows that are judged, and those that they are judged by: all other folds, in time the earlier ones."""
        numbers = np.unique(self.blocks)
        if not self.in_time:
            return [(np.flatnonzero(self.blocks == k), np.flatnonzero(self.blocks != k)) for k in numbers]
        return [(np.flatnonzero(self.blocks == k), np.flatnonzero(self.blocks < k)) for k in numbers[1:]]


@dataclass(frozen=True, eq=False)
class Law:
    """The outcome at x is f(x) + m(x) + s(x) e_i, each i with the same probability.

    Attributes
    ----------
    name : one of `LAWS`.
    points : (n, d) the e_i.
    center, spread : forests for m and s; None for 0 and 1.
    """

    name: str
    points: Array
    center: Forest | None = None
    spread: Forest | None = None

    def at(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Centres f + m (N, d) and spreads s (N,) at rows with predictions `centers`."""
        moved = centers if self.center is None else centers + self.center(X, centers)
        scales = np.ones(len(centers)) if self.spread is None else _sizes_within(self.spread(X, centers))
        return moved, scales

    def state(self) -> dict[str, Any]:
        """Plain values from which `law_from` makes the same law."""
        forests = {"center": self.center, "spread": self.spread}
        return {"name": self.name, "points": self.points} | {
            name: None if forest is None else forest.state() for name, forest in forests.items()
        }


def law_from(state: Mapping[str, Any], n_outcomes: int) -> Law:
    """The law with this state; a ValueError where no fit can have made it."""
    points, outputs = state["points"], {"center": n_outcomes, "spread": 1}
    is_sample = points.ndim == 2 and points.shape[1] == n_outcomes and 0 < len(points) <= MOST_POINTS
    is_sample = is_sample and points.dtype.kind == "f"
    if state["name"] not in LAWS or not is_sample:
        raise ValueError(f"A law must have a known name and at most {MOST_POINTS} residuals of {n_outcomes} outcomes.")
    forests = {name: None if state[name] is None else Forest.from_state(state[name]) for name in outputs}
    for name, forest in forests.items():
        if forest is not None and (
            forest.value.shape[1] != outputs[name] or len(forest.fill) != len(forest.columns) + n_outcomes
        ):
            raise ValueError("A forest of a law must look at the prediction of each outcome, and predict as many.")
    return Law(state["name"], points, **forests)


def fit_law(name: str, samples: PlanRows, seed: int) -> Law:
    """The law of this name from development rows."""
    residuals, center, spread = samples.outcomes - samples.centers, None, None
    if name == "corrected":
        center, found = Forest.fit(samples.X, samples.centers, residuals, min_leaf=_LEAF_OF_CENTER, seed=seed)
        residuals = residuals - found
    if name != "uniform":
        sizes = _residual_sizes(residuals)[:, None]
        spread, found = Forest.fit(samples.X, samples.centers, sizes, min_leaf=_LEAF_OF_SPREAD, seed=seed)
        residuals = residuals / _sizes_within(found)[:, None]
    kept = np.unique(np.linspace(0, len(residuals) - 1, min(MOST_POINTS, len(residuals))).astype(int))
    return Law(name, residuals[kept], center, spread)


def _residual_sizes(residuals: Array) -> Array:
    """One size a residual: the mean of |e_j| over the outcome's standard deviation, relative to the mean of all."""
    deviation = residuals.std(axis=0)
    sizes = (np.abs(residuals) / np.where(deviation > 0, deviation, 1.0)).mean(axis=1)
    return np.asarray(sizes / (sizes.mean() or 1.0))


def _sizes_within(found: Array) -> Array:
    return np.clip(found[:, 0], _LEAST_SIZE, _LARGEST_SIZE)
