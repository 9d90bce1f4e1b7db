"""The predictors that `fit` makes: recipes, which scikit-learn fits and which then are plain arrays, and their choice.

A model file holds the recipe and the arrays, and reading it makes nothing of anybody's code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array

from polyhedge._support.progress import tell
from polyhedge._support.stored import stored
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices, as_finite, numbers_of
from polyhedge.data.splits import evenly_chosen
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.columns import (
    Encoding,
    Schema,
    as_table,
    center_and_scale,
    missing_in,
    numbers_in,
    read_features,
    reads_columns,
    useful_columns,
)
from polyhedge.predictors.trees import Trees, joined
from polyhedge.rows import Rows


def check_weights(weights: ArrayLike | None, n: int) -> Array | None:
    """The weights as an array (n,); None where all rows count the same."""
    if weights is None:
        return None
    numbers = as_finite(weights, "sample_weight", ndim=1)
    if len(numbers) != n or (numbers < 0).any() or not numbers.any():
        raise ValueError(
            f"sample_weight must hold {n} numbers of at least zero, one for each row of X and not all zero, got "
            f"{len(numbers)} numbers from {min(numbers, default=0):g} to {max(numbers, default=0):g}."
        )
    return numbers


@stored("standardisation")
@dataclass(frozen=True, eq=False)
class Standardisation:
    """$(x - m) / s$ with m = `mean` (p,) and s = `scale` (p,)."""

    mean: Array
    scale: Array

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.scale.shape or not (self.scale > 0).all():
            raise ValueError("A standardisation must have a mean and a positive scale for each column.")

    def __call__(self, X: Array) -> Array:
        """The standardised rows (N, p)."""
        return np.asarray((X - self.mean) / self.scale)


def smooth_features(X: Array) -> Array:
    """Each column of X (N, p), its square and its sine: (N, 3 p)."""
    return np.hstack([X, X**2, np.sin(X)])


@stored("linear model")
@dataclass(frozen=True, eq=False)
class LinearModel:
    r"""$B\,\phi(x) + b$ with B = `coef` (d, m) and b = `intercept` (d,); $\phi$: `smooth_features` or identity."""

    coef: Array
    intercept: Array
    is_smooth: bool = False

    def __post_init__(self) -> None:
        if self.coef.ndim != 2 or self.intercept.shape != (len(self.coef),):
            raise ValueError("A linear model must have a row of coefficients and an intercept for each outcome.")

    def __call__(self, X: Array) -> Array:
        """The values (N, d)."""
        return np.asarray((smooth_features(X) if self.is_smooth else X) @ self.coef.T + self.intercept)


@stored("tree ensemble")
@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    r"""$b + \lambda \sum_t T_t(x)$ with b = `base` (d,) and $\lambda$ = `factor`; x in single precision."""

    trees: Trees
    base: Array
    factor: float

    def __post_init__(self) -> None:
        if self.base.shape != self.trees.value.shape[1:]:
            raise ValueError("A tree ensemble must have a base for each output of its trees.")

    def __call__(self, X: Array) -> Array:
        """The values (N, d)."""
        if X.shape[1] < self.trees.n_features:
            raise ValueError(f"Trees ask for {self.trees.n_features} columns, got {X.shape[1]}.")
        return self.base + self.factor * self.trees.sums(np.asarray(X, dtype=np.float32))


@stored("array predictor")
@dataclass(frozen=True, eq=False)
class ArrayPredictor:
    """A fitted predictor made of arrays.

    Attributes
    ----------
    reads : how rows become a matrix: an `Encoding` of raw columns, a standardisation of numbers, or as they are.
    models : functions of that matrix, each with some of the outcomes.
    n_features_in_ : columns of X.
    names : names of the columns of X; none where it was fitted on an array.

    Examples
    --------
    >>> ArrayPredictor(None, (LinearModel(np.array([[2.0]]), np.ones(1)),), 1).predict([[3.0]])
    array([[7.]])
    """

    reads: Encoding | Standardisation | None
    models: tuple[LinearModel | TreeEnsemble, ...] = field(repr=False)
    n_features_in_: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models or (self.names and len(self.names) != self.n_features_in_):
            raise ValueError("A predictor must have a model, and a name for each of its columns or none.")

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, as an array; an AttributeError where they have none."""
        if not self.names:
            raise AttributeError("This predictor was fitted on columns without names.")
        return np.array(self.names, dtype=object)

    def example(self) -> Any:
        """A row that it takes: zeros, by name where columns have names."""
        zeros = np.zeros((1, self.n_features_in_))
        if not self.names:
            return zeros
        import pandas as pd

        return pd.DataFrame(zeros, columns=list(self.names))

    def predict(self, X: Any) -> Array:
        """Predictions (N, d)."""
        if isinstance(self.reads, Encoding):
            matrix = self.reads(X)
        else:
            matrix = numbers_in(X, self.names) if self.names and hasattr(X, "columns") else np.asarray(X, dtype=float)
            if matrix.ndim != 2:
                raise ValueError(f"Expected 2D array of rows and columns, got the shape {matrix.shape}.")
            if matrix.shape[1] != self.n_features_in_:
                expected = f"ArrayPredictor is expecting {self.n_features_in_} features as input"
                raise ValueError(f"X has {matrix.shape[1]} features, but {expected}.")
            matrix = matrix if self.reads is None else self.reads(matrix)
        return np.hstack([model(matrix) for model in self.models])


@stored("recipe")
@dataclass(frozen=True)
class Recipe:
    """A predictor by its name, not fitted.

    Parameters
    ----------
    name : {"smooth-ridge", "ridge", "forest", "boosting", "linear"}
        "smooth-ridge" is a ridge regression on every column, its square and its sine.
    schema : the columns of a raw frame; None for numbers.
    seed : of the models that draw.

    Notes
    -----
    Gaps in raw columns are filled with the median, and a column says where they were. Categories that the training
    rows hold rarely share one code. Ridge regressions see z-scores.

    Examples
    --------
    >>> X = np.arange(4.0)[:, None]
    >>> Recipe("linear").fit(X, 2 * X).predict([[10.0]]).round(9)
    array([[20.]])
    """

    name: str
    schema: Schema | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.name not in PREDICTORS:
            raise ValueError(f"The predictor must be one of {', '.join(PREDICTORS)}, got {self.name!r}.")

    @property
    def takes_nan(self) -> bool:
        """Whether rows may have missing numbers."""
        return self.schema is not None

    def fit(self, X: Any, y: ArrayLike, sample_weight: Array | None = None) -> ArrayPredictor:
        """The predictor of the outcomes `y` (n, d) of the rows `X`; a row of `sample_weight` 2 counts as two rows."""
        reads: Encoding | Standardisation | None = None
        names = tuple(X.columns) if hasattr(X, "columns") and all(isinstance(c, str) for c in X.columns) else ()
        if self.schema is not None:
            reads, n_features = Encoding.of(X, self.schema), len(self.schema.features)
            matrix = reads(X)
        else:
            matrix = check_array(X, dtype=np.float64)
            n_features = matrix.shape[1]
            if self.name in ("ridge", "smooth-ridge"):
                reads = Standardisation(*center_and_scale(matrix))
                matrix = reads(matrix)
        Y = np.reshape(y, (len(matrix), -1))
        with config_context(skip_parameter_validation=True, assume_finite=True):  # a fifth of the time of boosting
            return ArrayPredictor(reads, self._models(matrix, Y, sample_weight), n_features, names)

    def _models(self, matrix: Array, Y: Array, weights: Array | None) -> tuple[LinearModel | TreeEnsemble, ...]:
        if self.name in ("smooth-ridge", "ridge", "linear"):
            is_smooth = self.name == "smooth-ridge"
            # From hardly any shrinkage to nearly all, a step of ten each: features are standardised.
            ridge = RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))
            model = {"smooth-ridge": Ridge(), "ridge": ridge, "linear": LinearRegression()}[self.name]
            model.fit(smooth_features(matrix) if is_smooth else matrix, Y, weights)
            return (LinearModel(np.reshape(model.coef_, (Y.shape[1], -1)), np.ravel(model.intercept_), is_smooth),)
        if self.name == "forest":
            forest = RandomForestRegressor(min_samples_leaf=2, random_state=self.seed)
            forest.fit(matrix, Y[:, 0] if Y.shape[1] == 1 else Y, weights)
            trees = Trees(**joined([each.tree_ for each in forest.estimators_]))
            return (TreeEnsemble(trees, np.zeros(Y.shape[1]), 1 / trees.n_trees),)
        ensembles = []
        for outcome in Y.T:
            boosted = GradientBoostingRegressor(subsample=0.8, random_state=self.seed).fit(matrix, outcome, weights)
            trees = Trees(**joined([each.tree_ for each in boosted.estimators_.ravel()]))
            ensembles.append(
                TreeEnsemble(trees, np.ravel(boosted.init_.constant_).astype(float), boosted.learning_rate)
            )
        return tuple(ensembles)


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
    with_gaps = [replace(column, may_be_missing=bool(missing_in(table.frame, column).any())) for column in columns]
    schema = Schema(tuple(with_gaps), tuple(outcomes))
    features = read_features(X, schema)[0].frame()
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
