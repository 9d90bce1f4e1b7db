"""Predictions that are functions of their rows to the last bit: rounded to a grid that was fixed before calibration.

Matrix products of another number of rows add up in another order and differ in their last bits. The grid counts from a
usual prediction in shares of their spread, so that neither the unit of an outcome nor where its zero lies decides what
is rounded away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.data import take_rows
from polyhedge.predictors.regressor import Predictor

__all__ = ["Grid", "steady_predictions"]

_BITS, _BITS_OF_ALL = 32, 38
"""Bits of the predictions' spread that are planned with, nine digits; of the predictions at most so many."""
_TRUSTED_BITS = 45
"""Bits of a prediction that predictors are trusted to give whatever the batch, of the 53 that there are."""
_BITS_WITHOUT, _TRUSTED_WITHOUT = 32, 42
"""The same where there is no grid: then predictions count from zero, in shares of themselves."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Numbers origin + k step for whole k, one grid for each outcome.

    Attributes
    ----------
    origin : (d,)
    step : (d,) 0 where predictions are rounded in shares of themselves.
    """

    origin: Array
    step: Array

    @classmethod
    def of(cls, centers: Array) -> Grid:
        """The grid for predictors whose predictions look like these (n, d); never of calibration rows.

        Examples
        --------
        >>> Grid.of(np.array([[1.0], [2.0], [7.0]])).step * 2**32
        array([2.])
        """
        origin = np.median(centers, axis=0)
        deviation, largest = np.abs(centers - origin).mean(axis=0), np.abs(centers).max(axis=0)
        return cls(origin, np.maximum(np.ldexp(deviation, -_BITS), np.ldexp(largest, -_BITS_OF_ALL)))

    def state(self) -> dict[str, Array]:
        """The arrays by name, from which `grid_from` makes the same."""
        return dict(vars(self))


def grid_from(state: Any, n_outcomes: int) -> Grid | None:
    """The grid with this state, None without one; a ValueError where no fit can have made it."""
    if state is None:
        return None
    grid = Grid(state["origin"], state["step"])
    for part in (grid.origin, grid.step):
        if part.shape != (n_outcomes,) or part.dtype.kind != "f" or not np.isfinite(part).all():
            raise ValueError(f"The grid of predictions must have {n_outcomes} origins and steps.")
    if (grid.step < 0).any():
        raise ValueError("The steps of the grid of predictions must not be negative.")
    return grid


def steady_predictions(predictor: Predictor, features: Any, grid: Grid | None = None) -> Array:
    """Predictions (N, d) of nine digits that do not depend on the rows around.

    A prediction too near the middle between two numbers of the grid is made once more, for its row alone: that is a
    function of the row, and every other batch that comes to a clear answer comes to the same.
    """
    centers = predictor.predict(features)
    origin, step, diagnostic = _at(centers, grid)
    steps = (centers - origin) / step
    questionable = np.abs(steps - np.floor(steps) - 0.5) < diagnostic / step
    for i in np.flatnonzero(questionable.any(axis=1)):
        steps[i] = (predictor.predict(take_rows(features, np.array([i])))[0] - origin) / step[i]
    return np.asarray(origin + step * np.round(steps))


def _at(centers: Array, grid: Grid | None) -> tuple[Array, Array, Array]:
    """Origins (d,), steps (N, d) and what predictions may be off by (N, d)."""
    d = centers.shape[1]
    origin, fixed = (np.zeros(d), np.zeros(d)) if grid is None else (grid.origin, grid.step)
    own = np.ldexp(1.0, np.frexp(centers)[1])
    origin = np.where(fixed > 0, origin, 0.0)
    step = np.where(fixed > 0, fixed, np.ldexp(own, -_BITS_WITHOUT))
    at = np.ldexp(np.abs(centers) + np.abs(origin), -_TRUSTED_BITS)
    return origin, step, np.where(fixed > 0, at, np.ldexp(own, -_TRUSTED_WITHOUT))
