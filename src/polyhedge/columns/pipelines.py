"""Predictors for tables: scikit-learn pipelines that fill gaps, encode categories and fit all outcomes.

Every type in them is scikit-learn's own, so that a fitted one can be saved without pickle and loaded by an
allow-list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from polyhedge._validation import Array
from polyhedge.columns import PREDICTORS
from polyhedge.columns.schema import Schema
from polyhedge.columns.weights import weight_argument

__all__ = ["choose_predictor", "make_predictor"]

_COMPARED = ("ridge", "forest", "boosting")
_MOST_CATEGORIES = 30
"""Kinds of a column that get a column of their own; rarer ones share one."""
_MOST_ROWS = 2000
"""Rows on which predictors are compared: a choice between three needs no more."""
_N_FOLDS = 3
"""The fewest folds that train on most of the rows."""
_TIE = 1e-9
"""Share of the variance below which errors are the same, so that rounding does not choose."""
# From hardly any shrinkage to nearly all, a step of ten each: features are standardised.
_RIDGE_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def make_predictor(name: str, schema: Schema, *, random_state: int | None = None) -> Pipeline:
    """A pipeline that is not fitted yet: columns to numbers, then a model of all outcomes.

    Parameters
    ----------
    name : {"ridge", "forest", "boosting", "linear"}
    schema : the columns.
    random_state : seed of the models that draw.

    Notes
    -----
    Gaps are filled with the median, and a column says where they were. Categories that the training rows do not
    hold, or hold rarely, share one code.

    Examples
    --------
    >>> from polyhedge.columns.schema import Column
    >>> schema = Schema((Column("load", "number"),), ("cost",))
    >>> make_predictor("ridge", schema).steps[-1][1]
    RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))
    """
    if name not in PREDICTORS:
        raise ValueError(f"The predictor must be one of {', '.join(PREDICTORS)}, got {name!r}.")
    model = _model(name, random_state)
    if name == "boosting" and len(schema.outcomes) > 1:
        model = MultiOutputRegressor(model)
    return Pipeline([("columns", _columns(schema)), ("model", model)])


def choose_predictor(
    schema: Schema,
    X: Any,
    Y: Array,
    *,
    groups: Any = None,
    random_state: int | None = None,
    weights: Array | None = None,
) -> tuple[str, str]:
    """The best of ridge, forest and boosting by cross-validation, and why.

    Training rows only: the choice is part of the training, so it costs no guarantee. The error is the mean square
    over outcomes, each in units of its variance; rows count by their weights.
    """
    if len(X) > _MOST_ROWS:
        chosen = np.sort(np.random.default_rng(random_state).choice(len(X), _MOST_ROWS, replace=False))
        X, Y, groups = X.iloc[chosen], Y[chosen], None if groups is None else groups[chosen]
        weights = None if weights is None else weights[chosen]
    n_blocks = len(X) if groups is None else len(np.unique(groups))
    if n_blocks < 2 * _N_FOLDS:
        return "ridge", "too few training rows to compare"
    folds = KFold(_N_FOLDS, shuffle=True, random_state=random_state) if groups is None else GroupKFold(_N_FOLDS)
    spread = np.maximum(Y.var(axis=0), np.finfo(float).tiny)
    errors = {}
    for name in _COMPARED:
        pipeline = make_predictor(name, schema, random_state=random_state)
        target = Y[:, 0] if Y.shape[1] == 1 else Y
        params = {} if weights is None else weight_argument(pipeline, weights)
        predicted = cross_val_predict(pipeline, X, target, groups=groups, cv=folds, params=params).reshape(Y.shape)
        squares = np.average((Y - predicted) ** 2, axis=0, weights=weights)
        errors[name] = float((squares / spread).mean())
    best = next(name for name in errors if errors[name] <= min(errors.values()) + _TIE)
    compared = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    return best, f"share of the variance left unexplained in cross-validation on the training rows: {compared}"


def _model(name: str, random_state: int | None) -> Any:
    if name == "linear":
        return LinearRegression()
    if name == "ridge":
        return RidgeCV(alphas=_RIDGE_PENALTIES)
    if name == "forest":
        return RandomForestRegressor(min_samples_leaf=2, random_state=random_state)
    return GradientBoostingRegressor(subsample=0.8, random_state=random_state)


def _columns(schema: Schema) -> ColumnTransformer:
    whole = [c.name for c in schema.features if c.kind == "number" and not c.may_be_missing]
    gappy = [c.name for c in schema.features if c.kind == "number" and c.may_be_missing]
    kinds = [c.name for c in schema.features if c.kind == "category"]
    fill = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    encode = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=_MOST_CATEGORIES, sparse_output=False, dtype=np.float64
    )
    parts = [
        ("numbers", StandardScaler(), whole),
        ("numbers with gaps", make_pipeline(fill, StandardScaler()), gappy),
        ("categories", encode, kinds),
    ]
    return ColumnTransformer([part for part in parts if part[2]])
