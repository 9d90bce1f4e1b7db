"""Folds that follow one another in time: whatever is scored was predicted and planned from earlier rows alone.

The first fold is a third of the rows and is only learned from; its own predictions are cross-fitted within it. Each of
the later folds is predicted by a model of all rows before it, and scored by distributions of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.data import take_rows
from polyhedge.predictors.regressor import Predictor, out_of_fold

_PARTS = 6
"""Rows are cut into so many equal parts, of which the first two are the first fold: a distribution needs some to begin
with."""
# The first rows have none before them: they predict one another in as few folds as keep most of them in use.
_FOLDS_OF_FIRST = 3
FEWEST_FORWARD = 150
"""Rows below which folds look both ways: predictors of a third of fewer say little about one of all."""


def forward_folds(n: int, groups: Any = None) -> Indices:
    """The fold (n,) of each of n rows in time order; a group is whole, and counts as being at the time of its last row.

    Examples
    --------
    >>> forward_folds(12)
    array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    """
    last = np.arange(n)
    if groups is not None:
        labels, its_label = np.unique(groups, return_inverse=True)
        last_of = np.zeros(len(labels), dtype=np.int64)
        np.maximum.at(last_of, its_label, np.arange(n))
        last = last_of[its_label]
    return np.asarray(np.maximum(_PARTS * last // n - 1, 0))


def forward_predictions(
    make: Callable[[], Predictor], X: Any, Y: Array, folds: Indices, groups: Any = None, weights: Array | None = None
) -> Array:
    """Predictions (n, d), each by a model of earlier folds; within the first, of its other rows."""
    centers = np.empty(Y.shape)
    for k in np.unique(folds):
        own, before = np.flatnonzero(folds == k), np.flatnonzero(folds < k)
        if not len(before):
            labels, its_weights = (None if each is None else each[own] for each in (groups, weights))
            centers[own] = out_of_fold(make, take_rows(X, own), Y[own], _FOLDS_OF_FIRST, labels, its_weights)
            continue
        its_weights = None if weights is None else weights[before]
        centers[own] = make().fit(take_rows(X, before), Y[before], its_weights).predict(take_rows(X, own))
    return centers
