"""How much more often a row comes among the rows to decide than among those of the past, estimated by a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from polyhedge._columns import names_of, select_columns
from polyhedge._validation import Array, as_finite, numbers_of

_FIELDS = ("means", "scales", "slopes")


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

    def state(self) -> dict[str, Any]:
        """A classifier is code and not numbers."""
        raise ValueError(
            f"Radii whose density ratio is a {type(self.classifier).__name__} cannot be stored in a file. Take "
            'density_ratio="logistic", or bring the weights as a column of X.'
        )


@dataclass(frozen=True, eq=False)
class LogisticRatio:
    """exp(slopes' (x - means) / scales + intercept) of the numeric features x, from a logistic regression."""

    means: Array
    scales: Array
    slopes: Array
    intercept: float

    @classmethod
    def fitted(cls, past: Any, target: Any) -> Self:
        """Penalised logistic regression on standardised features; missing ones are taken as their mean."""
        from sklearn.linear_model import LogisticRegression

        old, new = _numbers(past), _numbers(target)
        if old.shape[1] != new.shape[1]:
            raise ValueError(f"target must have the {old.shape[1]} numeric features of X, got {new.shape[1]}.")
        means, spreads = np.nanmean(old, axis=0), np.nanstd(old, axis=0)
        scales = np.where(spreads > 0, spreads, 1.0)
        X = np.nan_to_num((np.vstack([old, new]) - means) / scales)
        model = LogisticRegression(max_iter=1000).fit(X, np.arange(len(X)) >= len(old))
        return cls(means, scales, model.coef_[0], float(model.intercept_[0]))

    def __call__(self, X: Any) -> Array:
        """Odds (N,), the ratio but for a factor that does not matter."""
        x = np.nan_to_num((_numbers(X) - self.means) / self.scales)
        # A sum for each row by itself: a matrix product may round a row otherwise in another batch.
        exponent = (x * self.slopes).sum(axis=1) + self.intercept
        return np.exp(np.clip(exponent, -500.0, 500.0))  # beyond this a float overflows, and one row outweighs all

    def state(self) -> dict[str, Any]:
        """Arrays and a number."""
        return {**{name: getattr(self, name) for name in _FIELDS}, "intercept": self.intercept}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The ratio of a file."""
        means, scales, slopes = (as_finite(state[name], name, ndim=1) for name in _FIELDS)
        if not means.shape == scales.shape == slopes.shape or not (scales > 0).all():
            raise ValueError("A density ratio needs a mean, a positive scale and a slope for each feature.")
        return cls(means, scales, slopes, float(as_finite(state["intercept"], "intercept", ndim=0)))


def _numbers(X: Any) -> Array:
    numbers = numbers_of(X)
    if numbers is None or not numbers.shape[1]:
        raise ValueError("A logistic density ratio needs numeric features, got none. Give a classifier that takes X.")
    return numbers


def _together(past: Any, target: Any) -> tuple[Any, Any]:
    is_target = np.repeat([False, True], [len(past), len(target)])
    if not hasattr(past, "iloc"):
        return np.concatenate([np.asarray(past), np.asarray(target)]), is_target
    import pandas as pd

    return pd.concat([past, pd.DataFrame(target, columns=past.columns)], ignore_index=True), is_target
