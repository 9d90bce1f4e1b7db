"""Rows of the kind that a predictor was fitted on, made from its own state, to see whether it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np

# Two rows show whether a predictor gives a row of outcomes for each row of features.
_N = 2


def example_rows(model: Any) -> Any:
    """Two rows that `model` should be able to take: a data frame where it was fitted on one.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> example_rows(LinearRegression().fit(np.eye(2), [0.0, 1.0]))
    array([[0., 0.],
           [0., 0.]])
    """
    first = first_part(model)
    names = getattr(first, "feature_names_in_", None)
    n = int(first.n_features_in_)
    values: list[Any] = [0.0] * n
    for position, value in _categories(first):
        values[position] = value
    if names is None:
        is_numeric = all(isinstance(value, (int, float)) for value in values)
        return np.array([values] * _N, dtype=float if is_numeric else object)
    import pandas as pd

    return pd.DataFrame({name: [value] * _N for name, value in zip(names, values, strict=True)})


def first_part(model: Any) -> Any:
    """The part that meets the rows first, and says how many columns they have."""
    while True:
        steps = [step for _, step in getattr(model, "steps", ()) if step is not None and not isinstance(step, str)]
        inner = getattr(model, "best_estimator_", None) or getattr(model, "regressor_", None)
        several = getattr(model, "estimators_", None)
        if steps:
            model = steps[0]
        elif inner is not None:
            model = inner
        elif type(model).__name__ == "FrozenEstimator":
            model = model.estimator
        elif type(model).__name__ == "MultiOutputRegressor" and several:
            model = several[0]
        elif getattr(model, "_preprocessor", None) is not None:
            model = model._preprocessor
        else:
            return model


def _categories(model: Any) -> list[tuple[int, Any]]:
    """Positions of columns that do not take numbers, with a value that they take."""
    if hasattr(model, "transformers_"):
        where = model._transformer_to_input_indices
        parts = [(where[name], step) for name, step, _ in model.transformers_ if not isinstance(step, str)]
        return [(list(own)[k], value) for own, step in parts if own for k, value in _categories(first_part(step))]
    if hasattr(model, "categories_"):
        return [(k, values.tolist()[0]) for k, values in enumerate(model.categories_)]
    statistics = getattr(model, "statistics_", None)
    if statistics is not None and statistics.dtype == object:
        return list(enumerate(statistics.tolist()))
    return []
