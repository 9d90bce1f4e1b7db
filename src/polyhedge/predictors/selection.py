"""Which predictor does best on the training rows, of tables and of plain numbers.

For tables they are scikit-learn pipelines that fill gaps, encode categories and fit all outcomes. Every type in them is
scikit-learn's own or the smooth ridge, so that a fitted one can be saved without pickle and loaded by an allow-list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from polyhedge._support.alignment import names_of
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices, as_finite, numbers_of
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.raw_columns import as_table, is_raw, read_features, with_gaps
from polyhedge.predictors.regressor import FeatureRidge
from polyhedge.predictors.schema import Schema, useful_columns
from polyhedge.predictors.weights import weight_argument

__all__ = [
    "Prepared",
    "choose_for_numbers",
    "choose_predictor",
    "is_auto",
    "is_made_here",
    "make_predictor",
    "prepare",
    "reads_columns",
    "takes_frame",
]

COMPARED = ("smooth-ridge", "ridge", "forest", "boosting")
"""What takes part in the selection, the first among equals first."""
_MOST_CATEGORIES = 30
"""Kinds of a column that get a column of their own; rarer ones share one."""
_TRIED_ROWS = 200
"""Rows on which a regressor shows whether it takes columns as they are: one of each kind would do."""
_BEFORE_OWN = "columns for a model of one's own"
"""Step before a user's own model, by which files know it."""
_PREPARED = 'columns prepared as with "auto": numbers standardised, gaps filled, texts and parts of dates one-hot'
_MOST_ROWS = 2000
"""Rows on which predictors are compared: a choice between four needs no more."""
_N_FOLDS = 3
"""The fewest folds that train on most of the rows."""
_BITS = 32
"""Bits of a column's spread that the selection sees: the rest is below any noise, and other units would change it."""
# From hardly any shrinkage to nearly all, a step of ten each: features are standardised.
_RIDGE_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def make_predictor(name: str, schema: Schema, *, random_state: int | None = None) -> Pipeline:
    """A pipeline that is not fitted yet: columns to numbers, then a model of all outcomes.

    Parameters
    ----------
    name : {"smooth-ridge", "ridge", "forest", "boosting", "linear"}
    schema : the columns.
    random_state : seed of the models that draw.

    Notes
    -----
    Gaps are filled with the median, and a column says where they were. Categories that the training rows do not
    hold, or hold rarely, share one code. "smooth-ridge" is a ridge regression on every column, its square and its sine.

    Examples
    --------
    >>> from polyhedge.predictors.schema import Column
    >>> schema = Schema((Column("load", "number"),), ("cost",))
    >>> make_predictor("ridge", schema).steps[-1][1]
    RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))
    """
    if name not in PREDICTORS:
        raise ValueError(f"The predictor must be one of {', '.join(PREDICTORS)}, got {name!r}.")
    model = _for_all(_model(name, random_state), name, len(schema.outcomes))
    return Pipeline([("columns", _columns(schema)), ("model", model)])


def is_made_here(predictor: Any) -> bool:
    """Whether columns of a predictor, fitted or not, are prepared here: told by its steps, whatever users call theirs.

    Files know it by the same token, so that a pipeline of the same steps with the same settings is taken for one too.

    Examples
    --------
    >>> is_made_here(Pipeline([("columns", StandardScaler()), ("model", LinearRegression())]))
    False
    """
    steps = list(getattr(predictor, "steps", ()))
    names = [name for name, _ in steps]
    if names not in (["columns", "model"], [_BEFORE_OWN, "model"]) or not isinstance(steps[0][1], ColumnTransformer):
        return False
    model = steps[1][1]
    one = model.estimator if isinstance(model, MultiOutputRegressor) else model
    is_known = names[0] == _BEFORE_OWN or isinstance(one, _MODELS)
    return is_known and all(_is_part(name, part) for name, part, _ in steps[0][1].transformers)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that a predictor can take, and the predictor that does best on the training rows.

    Attributes
    ----------
    X : the features; of a raw frame, as numbers and texts.
    template : the predictor, not fitted; None for the smooth ridge that `as_predictor` makes.
    said : what was chosen and why, what was left out and why.
    schema : which columns a raw frame's features are of.
    """

    X: Any
    template: Any
    said: dict[str, str]
    schema: Schema | None = None


def is_auto(predictor: Any) -> bool:
    """Whether a predictor, as the user gave it, is one of ours: to be chosen, or given by its name."""
    return isinstance(predictor, str) and predictor in ("auto", *PREDICTORS)


def reads_columns(X: Any) -> bool:
    """Whether columns of X have to be understood: those of a data frame that holds more than numbers, or gaps.

    So do columns that names do not tell apart, and they are refused; a frame of numbers is like an array.
    """
    if not hasattr(X, "select_dtypes"):
        return False
    return not X.columns.is_unique or is_raw(X.add_prefix("x") if names_of(X) is None else X)


def takes_frame(predictor: Any, X: Any, Y: Array, train: Indices) -> bool:
    """Whether a user's own regressor takes a raw frame as it is: it says so of gaps, and is tried on some rows.

    One that holds a `ColumnTransformer` prepares columns itself, and says what is wrong with them.
    """
    parts = predictor.template.get_params().values() if hasattr(predictor.template, "get_params") else ()
    if any(isinstance(part, ColumnTransformer) for part in parts):
        return True
    numbers = numbers_of(X)
    if not predictor.takes_nan and numbers is not None and np.isnan(numbers).any():
        return False
    some = train[evenly_chosen(len(train), _TRIED_ROWS)]
    with catch_warnings():
        simplefilter("ignore")
        try:
            predictor.fit(take_rows(X, some), Y[some])
        except Exception:  # in whatever way a library refuses texts and dates
            return False
    return True


def prepare(
    X: Any,
    Y: Array,
    outcomes: Sequence[str],
    train: Indices,
    groups: Any,
    random_state: int,
    weights: Array | None = None,
    own: Any = None,
) -> Prepared:
    """Read rows, and choose one of ours by cross-validation, or take `own`, a model or the name of one of ours.

    Kinds of columns, their levels and the predictor come from the training rows. Other rows say only where values may
    be missing, which decides no prediction: a gap is filled from the training rows.
    """
    its_groups, its_weights = (None if part is None else part[train] for part in (groups, weights))
    named = (own, "as asked") if isinstance(own, str) and own != "auto" else None
    if not reads_columns(X):
        name, reason = named or choose_for_numbers(take_rows(X, train), Y[train], its_groups, random_state, its_weights)
        return Prepared(X, _for_numbers(name, random_state), {"chosen predictor": f"{name} ({reason})"})
    table = as_table(X)
    history = replace(table, frame=table.frame.iloc[train])
    categories = [str(name) for name, dtype in table.frame.dtypes.items() if dtype == "category"]
    columns, notes = useful_columns(history, list(table.frame.columns), outcomes, categories)
    schema = Schema(tuple(with_gaps(table, column) for column in columns), tuple(outcomes))
    features = read_features(X, schema)
    left_out = {"left out": " ".join(notes)} if notes else {}
    if own is not None and not isinstance(own, str):
        pipeline = Pipeline([(_BEFORE_OWN, _columns(schema)), ("model", own)])
        return Prepared(features, pipeline, {"prepared columns": _PREPARED} | left_out, schema)
    name, reason = named or choose_predictor(
        schema, features.iloc[train], Y[train], groups=its_groups, random_state=random_state, weights=its_weights
    )
    said = {"chosen predictor": f"{name} ({reason})"} | left_out
    return Prepared(features, make_predictor(name, schema, random_state=random_state), said, schema)


def choose_predictor(
    schema: Schema,
    X: Any,
    Y: Array,
    *,
    groups: Any = None,
    random_state: int | None = None,
    weights: Array | None = None,
) -> tuple[str, str]:
    """The best of smooth ridge, ridge, forest and boosting for a table by cross-validation, and why.

    Training rows only: the choice is part of the training, so it costs no guarantee. The error is the mean square
    over outcomes, each in units of its variance; rows count by their weights.
    """

    def make(name: str) -> Any:
        return make_predictor(name, schema, random_state=random_state)

    return _best(make, X, Y, groups, random_state, weights, "ridge")


def choose_for_numbers(
    X: Any, Y: Array, groups: Any = None, random_state: int | None = None, weights: Array | None = None
) -> tuple[str, str]:
    """The best of the same for rows of numbers, and why.

    Examples
    --------
    >>> from polyhedge.data import make_synthetic
    >>> choose_for_numbers(*make_synthetic(300, rng=np.random.default_rng(0)), random_state=0)[0]
    'smooth-ridge'
    """

    def make(name: str) -> Any:
        model = _model(name, random_state)
        return make_pipeline(StandardScaler(), _for_all(model, name, Y.shape[1]))

    return _best(make, _in_own_units(as_finite(X, "X", ndim=2)), Y, groups, random_state, weights, "smooth-ridge")


def _best(
    make: Callable[[str], Any],
    X: Any,
    Y: Array,
    groups: Any,
    random_state: int | None,
    weights: Array | None,
    otherwise: str,
) -> tuple[str, str]:
    """The selection; `otherwise` is taken where there are too few rows for one."""
    if len(X) > _MOST_ROWS:
        chosen = np.sort(np.random.default_rng(random_state).choice(len(X), _MOST_ROWS, replace=False))
        X, Y, groups = take_rows(X, chosen), Y[chosen], None if groups is None else groups[chosen]
        weights = None if weights is None else weights[chosen]
    n_blocks = len(X) if groups is None else len(np.unique(groups))
    if n_blocks < 2 * _N_FOLDS:
        return otherwise, "too few training rows to compare"
    folds = KFold(_N_FOLDS, shuffle=True, random_state=random_state) if groups is None else GroupKFold(_N_FOLDS)
    Y = _in_own_units(Y)
    errors = {}
    for name in COMPARED:
        pipeline = make(name)
        target = Y[:, 0] if Y.shape[1] == 1 else Y
        params = {} if weights is None else weight_argument(pipeline, weights)
        predicted = cross_val_predict(pipeline, X, target, groups=groups, cv=folds, params=params).reshape(Y.shape)
        squares = np.average((Y - predicted) ** 2, axis=0, weights=weights)
        errors[name] = float(squares.mean())
    best = next(name for name in errors if errors[name] <= min(errors.values()) + TIE)
    compared = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    return best, f"share of the variance left unexplained in cross-validation on the training rows: {compared}"


def _in_own_units(rows: Array) -> Array:
    """Columns of mean 0 and variance 1: the same numbers, and with them the same choice, in every unit."""
    middle, spread = rows.mean(axis=0), rows.std(axis=0)
    scaled = (rows - middle) / np.where(spread > 0, spread, 1.0)
    return np.asarray(np.round(scaled * 2.0**_BITS) * 2.0**-_BITS)


def _for_numbers(name: str, random_state: int) -> Any:
    """A predictor of numbers, not fitted; trees need no scaling."""
    if name == "smooth-ridge":
        return None
    model = _model(name, random_state)
    return make_pipeline(StandardScaler(), model) if name == "ridge" else model


def _for_all(model: Any, name: str, n_outcomes: int) -> Any:
    """The model for all outcomes: boosting is fitted once for each."""
    return MultiOutputRegressor(model) if name == "boosting" and n_outcomes > 1 else model


def _model(name: str, random_state: int | None) -> Any:
    if name == "smooth-ridge":
        return FeatureRidge(penalty=1.0, features="all", fit_intercept=True)
    if name == "linear":
        return LinearRegression()
    if name == "ridge":
        return RidgeCV(alphas=_RIDGE_PENALTIES)
    if name == "forest":
        return RandomForestRegressor(min_samples_leaf=2, random_state=random_state)
    return GradientBoostingRegressor(subsample=0.8, random_state=random_state)


_MODELS = (FeatureRidge, LinearRegression, RidgeCV, RandomForestRegressor, GradientBoostingRegressor)
"""What `_model` makes."""


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


def _is_part(name: str, part: Any) -> bool:
    """Whether a part of columns is as `_columns` makes it."""
    if name == "categories":
        return isinstance(part, OneHotEncoder) and part.max_categories == _MOST_CATEGORIES and not part.sparse_output
    kind = {"numbers": StandardScaler, "numbers with gaps": Pipeline}.get(name)
    return kind is not None and isinstance(part, kind)
