"""Which predictors take rows with missing numbers, and sparse ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["takes_nan", "takes_sparse"]


def takes_nan(predictor: Any) -> bool:
    """Whether a predictor, as the user gave it, says that it fills in missing numbers itself.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> takes_nan(HistGradientBoostingRegressor()), takes_nan(None)
    (True, False)
    """
    # Scikit-learn's tags of composed models do not say what their first steps can do.
    if isinstance(predictor, FrozenEstimator):
        return takes_nan(predictor.estimator)
    if isinstance(predictor, Pipeline):
        return _pipeline_takes_nan([step for _, step in predictor.steps])
    if isinstance(predictor, ColumnTransformer):
        return any(takes_nan(transformer) for _, transformer, _ in predictor.transformers)
    tags = getattr(predictor, "__sklearn_tags__", None)
    if tags is None:
        return callable(predictor)
    return bool(tags().input_tags.allow_nan)


def takes_sparse(predictor: Any) -> bool:
    """Whether a predictor, as the user gave it, says that it takes sparse matrices; a function may.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> takes_sparse(Ridge()), takes_sparse(None)
    (True, False)
    """
    tags = getattr(predictor, "__sklearn_tags__", None)
    return callable(predictor) if tags is None else bool(tags().input_tags.sparse)


def _pipeline_takes_nan(steps: Sequence[Any]) -> bool:
    """Whether each step takes what the one before hands on: scalers hand missing numbers on, others fill them in."""
    for step in steps:
        if step is None or step == "passthrough":
            continue
        if not takes_nan(step):
            return False
        if type(step).__module__ != StandardScaler.__module__:
            return True
    return True
