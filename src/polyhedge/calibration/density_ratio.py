"""How much more often a row comes among the rows to decide than among those of the past, estimated by a classifier."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from polyhedge._support.alignment import is_missing, names_of, select_columns
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, numbers_of

_MOST_LEVELS = 30
"""Levels of a column of kinds that are told apart, as in the predictors; rarer ones are none of them."""


def fitted_ratio(classifier: Any, past: Any, target: Any) -> LogisticRatio | ClassifierRatio:
    """The ratio that tells rows of the target from rows of the past, which must not calibrate anything.

    `classifier` is "logistic", or a scikit-learn classifier with `predict_proba`, which is fitted as a copy. Columns of
    the target are put in the order of the past's, and others left out, where both have names.
    """
    names = names_of(past)
    target = target if names is None else select_columns(target, names, "target")
    if isinstance(classifier, str) and classifier == "logistic":
        return LogisticRatio.fitted(past, target)
    if isinstance(classifier, (str, type)) or not hasattr(classifier, "predict_proba"):
        raise TypeError(
            f'density_ratio must be "logistic" or a classifier with predict_proba, got {classifier!r}. Call the class.'
        )
    from sklearn.base import clone

    X, is_target = _together(past, target)
    return ClassifierRatio(clone(classifier).fit(X, is_target), len(is_target))


@dataclass(frozen=True, eq=False)
class ClassifierRatio:
    """The odds that a fitted classifier gives for a row to be of the target; `n` rows fitted it."""

    classifier: Any
    n: int

    def __call__(self, X: Any) -> Array:
        """Odds (N,), the ratio but for a factor that does not matter."""
        # n rows cannot tell rarer things than one in n: a tree's 0 and 1 would be weights of zero and infinity.
        chance = np.clip(self.classifier.predict_proba(X)[:, 1], 1 / (self.n + 2), 1 - 1 / (self.n + 2))
        return np.asarray(chance / (1 - chance))


@stored("logistic density ratio")
@dataclass(frozen=True, eq=False)
class LogisticRatio:
    """exp(slopes' (x - means) / scales + intercept) of features x, from a logistic regression.

    x holds the numeric features, then a 1 for the level of each column of kinds; `kinds` are these with their levels.
    """

    means: Array
    scales: Array
    slopes: Array
    intercept: float
    kinds: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        is_table = self.means.ndim == 1 and self.means.shape == self.scales.shape == self.slopes.shape
        if not is_table or not (self.scales > 0).all():
            raise ValueError("A density ratio needs a mean, a positive scale and a slope for each feature.")

    @classmethod
    def fitted(cls, past: Any, target: Any) -> Self:
        """Penalised logistic regression on standardised features; missing numbers are taken as their mean."""
        from sklearn.linear_model import LogisticRegression

        kinds = _kinds(past, target)
        old, new = _numbers(past, kinds), _numbers(target, kinds)
        if not old.shape[1]:
            raise ValueError("A logistic density ratio needs features, got none. Give a classifier that takes X.")
        if old.shape[1] != new.shape[1]:
            raise ValueError(f"target must have the {old.shape[1]} numeric features of X, got {new.shape[1]}.")
        means, deviations = np.nanmean(old, axis=0), np.nanstd(old, axis=0)
        scales = np.where(deviations > 0, deviations, 1.0)
        X = np.nan_to_num((np.vstack([old, new]) - means) / scales)
        model = LogisticRegression(max_iter=1000).fit(X, np.arange(len(X)) >= len(old))
        return cls(means, scales, model.coef_[0], float(model.intercept_[0]), kinds)

    def __call__(self, X: Any) -> Array:
        """Odds (N,), the ratio but for a factor that does not matter."""
        numbers = _numbers(X, self.kinds)
        if numbers.shape[1] != len(self.means):
            raise ValueError(f"The density ratio takes {len(self.means)} features, got {numbers.shape[1]}.")
        x = np.nan_to_num((numbers - self.means) / self.scales)
        # A sum for each row by itself: a matrix product may round a row otherwise in another batch.
        exponent = (x * self.slopes).sum(axis=1) + self.intercept
        return np.exp(np.clip(exponent, -500.0, 500.0))  # beyond this a float overflows, and one row outweighs all


def _kinds(past: Any, target: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Columns of a frame that hold texts, categories or truth values, each with its most frequent levels."""
    if not hasattr(past, "select_dtypes"):
        return ()
    kinds = []
    for name, dtype in past.dtypes.items():
        if dtype.kind in "ObSU" and name in target.columns:
            counts = Counter([*_labels(past[name]), *_labels(target[name])])
            kinds.append((str(name), tuple(sorted(label for label, _ in counts.most_common(_MOST_LEVELS)))))
    return tuple(kinds)


def _labels(column: Any) -> list[str]:
    return ["(missing)" if is_missing(value) else str(value) for value in column.to_list()]


def _numbers(X: Any, kinds: tuple[tuple[str, tuple[str, ...]], ...]) -> Array:
    """The numeric features (N, k), then a column for each level of each of the kinds."""
    numbers = numbers_of(X)
    if numbers is None:
        raise ValueError("A logistic density ratio needs numeric features, got none. Give a classifier that takes X.")
    named = {str(name): name for name in getattr(X, "columns", ())}
    encoded = [
        np.array([[label == level for level in levels] for label in _labels(X[named[name]])], dtype=np.float64)
        for name, levels in kinds
    ]
    return np.hstack([numbers, *(part.reshape(len(numbers), -1) for part in encoded)])


def _together(past: Any, target: Any) -> tuple[Any, Any]:
    is_target = np.repeat([False, True], [len(past), len(target)])
    if not hasattr(past, "iloc"):
        return np.concatenate([np.asarray(past), np.asarray(target)]), is_target
    import pandas as pd

    return pd.concat([past, pd.DataFrame(target, columns=past.columns)], ignore_index=True), is_target
