"""The automatic choice of a predictor: one cross-fitted selection on the training rows, of tables and of numbers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from warnings import catch_warnings, simplefilter

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import Pipeline

from polyhedge._support.progress import tell
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices, as_finite, numbers_of
from polyhedge.data.splits import evenly_chosen
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.columns import (
    Encoding,
    Schema,
    as_table,
    part_of,
    read_features,
    reads_columns,
    useful_columns,
)
from polyhedge.predictors.recipes import Recipe
from polyhedge.rows import Rows

_LOG = logging.getLogger(__name__)
COMPARED = ("smooth-ridge", "ridge", "forest", "boosting")
"""The candidates of the selection; of equal ones the first wins."""
_PREPARED = 'columns prepared as with "auto": numbers standardised, gaps filled, texts and parts of dates one-hot'


@dataclass(frozen=True, eq=False)
class Prepared:
    """Features of all rows that a predictor can take, and the predictor, not fitted.

    `notes` say what was chosen, prepared and left out, and why; the schema is that of a raw frame, None for numbers.
    """

    features: Any
    template: Any
    notes: dict[str, str]
    schema: Schema | None = None


def is_auto(predictor: Any) -> bool:
    """Whether a predictor, as the user gave it, is one of ours: to be chosen, or given by its name."""
    return isinstance(predictor, str) and predictor in ("auto", *PREDICTORS)


def prepare(rows: Rows, train: Indices, outcomes: Sequence[str], seed: int, own: Any = None) -> Prepared:
    """Read rows, and choose a predictor by cross-fitting on the training rows, or take `own`, a model or a name.

    Kinds and levels of columns come from the training rows. Other rows say only where values may be missing, which
    decides no prediction: a gap is filled from the training rows.
    """
    X = rows.features
    named = (own, "as asked") if isinstance(own, str) and own != "auto" else None
    if not reads_columns(X):
        name, reason = named or choose_predictor(None, rows.take(train), seed)
        return Prepared(X, Recipe(name, seed=seed), {"chosen predictor": f"{name} ({reason})"})
    table = as_table(X)
    history = replace(table, frame=table.frame.iloc[train])
    categories = [str(name) for name, dtype in table.frame.dtypes.items() if dtype == "category"]
    columns, left_out = useful_columns(history, list(table.frame.columns), outcomes, categories)
    with_gaps = [replace(column, may_be_missing=bool(part_of(table.frame, column).isna().any())) for column in columns]
    schema = Schema(tuple(with_gaps), tuple(outcomes))
    features, _ = read_features(X, schema)
    notes = {"left out": " ".join(left_out)} if left_out else {}
    if own is not None and not isinstance(own, str):
        pipeline = Pipeline([("columns", EncodedColumns(schema)), ("model", own)])
        return Prepared(features, pipeline, {"prepared columns": _PREPARED} | notes, schema)
    name, reason = named or choose_predictor(schema, replace(rows, features=features).take(train), seed)
    notes = {"chosen predictor": f"{name} ({reason})"} | notes
    return Prepared(features, Recipe(name, schema, seed), notes, schema)


def choose_predictor(schema: Schema | None, rows: Rows, random_state: int | None = None) -> tuple[str, str]:
    """The best of smooth ridge, ridge, forest and boosting by cross-validation, and why; `schema` is that of a table.

    The rows are training rows: the choice is part of the training, so it costs no guarantee. The score is the mean
    squared error over outcomes, each in units of its variance; rows count by their weights. A candidate leaves at the
    first fold on which an earlier one is clearly better.

    Examples
    --------
    >>> from polyhedge.data import make_synthetic
    >>> choose_predictor(None, Rows(*make_synthetic(300, rng=np.random.default_rng(0))), random_state=0)[0]
    'smooth-ridge'
    """
    n_folds, most_rows = 3, 2000  # the fewest folds that train on most of the rows; a choice of four needs no more rows
    most_outcomes = 4  # boosting is fitted for each
    if len(rows) > most_rows:
        chosen = np.random.default_rng(random_state).choice(len(rows), most_rows, replace=False)
        rows = rows.take(np.sort(chosen))
    groups = rows.groups
    if (len(rows) if groups is None else len(np.unique(groups))) < 2 * n_folds:
        return "smooth-ridge" if schema is None else "ridge", "too few training rows to compare"
    folds = KFold(n_folds, shuffle=True, random_state=random_state) if groups is None else GroupKFold(n_folds)
    X = _standardised(as_finite(rows.features, "X", ndim=2)) if schema is None else rows.features
    Y = _standardised(rows.Y[:, evenly_chosen(rows.Y.shape[1], most_outcomes)])
    own, pairs = replace(rows, features=X), list(folds.split(Y, groups=groups))
    weights = np.ones(len(Y)) if rows.weights is None else rows.weights
    losses, errors = dict[str, Array](), dict[str, float]()
    for k, name in enumerate(COMPARED, start=1):
        losses[name], recipe = np.empty(len(Y)), Recipe(name, schema, random_state)
        for rest, fold in pairs:
            train = own.take(rest)
            predicted = recipe.fit(train.features, Y[rest], train.weights).predict(own.take(fold).features)
            losses[name][fold] = weights[fold] * ((Y[fold] - predicted) ** 2).mean(axis=1)
            worse = [losses[name][fold] - losses[other][fold] for other in errors]
            if any(each.mean() > 3 * each.std() / np.sqrt(len(each)) > 0 for each in worse):  # three standard errors
                break
        else:
            errors[name] = float(losses[name].sum() / weights.sum())
        tell(_LOG, "choosing the predictor", k, len(COMPARED))
    best = next(name for name in errors if errors[name] <= min(errors.values()) + TIE)
    compared = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    return best, f"share of the variance left unexplained in cross-validation on the training rows: {compared}"


def _standardised(rows: Array) -> Array:
    """Columns of mean 0 and variance 1: the same choice in every unit."""
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    # Trees split between numbers: rounding that depends on the unit must not choose among equal splits.
    return np.asarray(np.round(scaled, 9))


class EncodedColumns(TransformerMixin, BaseEstimator):
    """The `Encoding` of raw columns as the first step of a pipeline, for a regressor of the user's own."""

    takes_nan = True

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the encoding on the training rows `X`; outcomes `y` are not used."""
        self.encoding_, self.n_features_in_ = Encoding.of(X, self.schema), X.shape[1]
        return self

    def transform(self, X: Any) -> Array:
        """The encoded rows."""
        return self.encoding_(X)


def is_made_here(predictor: Any) -> bool:
    """Whether a predictor, fitted or not, takes raw columns as they are read here.

    Examples
    --------
    >>> is_made_here(Recipe("ridge", Schema((), ()))), is_made_here(Recipe("ridge"))
    (True, False)
    """
    first = predictor.steps[0][1] if isinstance(predictor, Pipeline) else predictor
    return getattr(first, "schema", None) is not None


def takes_frame(predictor: Any, rows: Rows, train: Indices) -> bool:
    """Whether a user's own regressor takes a raw frame as it is: it says so of gaps, and is tried on some rows.

    One that holds a `ColumnTransformer` prepares columns itself, and says what is wrong with them.
    """
    parts = predictor.template.get_params().values() if hasattr(predictor.template, "get_params") else ()
    if any(isinstance(part, ColumnTransformer) for part in parts):
        return True
    numbers = numbers_of(rows.features)
    if not predictor.takes_nan and numbers is not None and np.isnan(numbers).any():
        return False
    some = rows.take(train[evenly_chosen(len(train), 200)])  # one row of each kind would do
    with catch_warnings():
        simplefilter("ignore")
        try:
            predictor.fit(some.features, some.Y)
        except Exception:  # in whatever way a library refuses texts and dates
            return False
    return True
