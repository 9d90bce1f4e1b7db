"""Fitted predictors as plain arrays that this module evaluates, and unfitted ones as recipes.

`as_arrays` turns a fitted model of scikit-learn into an `ArrayPredictor` with the same predictions, and `recipe_of` an
unfitted one into a `Recipe`. Model files hold these two, so that reading a file makes nothing of anybody's code. Both
know linear models, forests, gradient boosting, `FeatureRidge`, the columns that `selection` prepares, and pipelines and
searches of these. They ask for public attributes only, and raise `NotPlainError` for any other model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    QuantileRegressor,
    Ridge,
    RidgeCV,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices
from polyhedge.predictors.regressor import FeatureRidge, all_features, paper_features
from polyhedge.predictors.trees import Trees, joined

__all__ = ["ArrayPredictor", "NotPlainError", "Recipe", "as_arrays", "recipe_of"]

_LINEAR = (
    *(LinearRegression, Ridge, RidgeCV, Lasso, LassoCV, ElasticNet, ElasticNetCV),
    *(BayesianRidge, HuberRegressor, QuantileRegressor),
)
_FORESTS = (RandomForestRegressor, ExtraTreesRegressor)
_SEARCHES = (GridSearchCV, RandomizedSearchCV)
_CLASSES: Mapping[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        *(*_LINEAR, *_FORESTS, *_SEARCHES, FeatureRidge, DecisionTreeRegressor, GradientBoostingRegressor),
        *(DummyRegressor, MultiOutputRegressor, Pipeline, ColumnTransformer),
        *(SimpleImputer, OneHotEncoder, StandardScaler),
    )
}
"""Classes of which recipes may be."""
_TUPLE = "tuple"
_NOT_KEPT = ("n_jobs", "memory", "verbose", "pre_dispatch")
"""Parameters that say how to compute and not what."""


class NotPlainError(ValueError):
    """A predictor is none of those that can be stored as plain arrays; the message is what it consists of."""


class Step:
    """A function of rows: of a matrix (N, p), or of a data frame where it is the first step."""

    def __call__(self, X: Any) -> Array:
        """The values (N, q) of N rows."""
        raise NotImplementedError


@stored("standardisation")
@dataclass(frozen=True, eq=False)
class Standardise(Step):
    """$(x - m) / s$ with m = `mean` (p,) and s = `scale` (p,)."""

    mean: Array
    scale: Array

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.scale.shape or not (self.scale > 0).all():
            raise ValueError("A standardisation must have a mean and a positive scale for each column.")

    def __call__(self, X: Any) -> Array:
        """The standardised rows (N, p)."""
        return np.asarray((X - self.mean) / self.scale)


_FEATURES: Mapping[str, Callable[[Any], Array]] = {"x": lambda X: X, "paper": paper_features, "all": all_features}


@stored("linear map")
@dataclass(frozen=True, eq=False)
class Linear(Step):
    r"""$B\,\phi(x) + b$ with B = `coef` (d, m), b = `intercept` (d,) and the feature map $\phi$ = `features`."""

    coef: Array
    intercept: Array
    features: Literal["x", "paper", "all"] = "x"

    def __post_init__(self) -> None:
        if self.coef.ndim != 2 or self.intercept.shape != (len(self.coef),):
            raise ValueError("A linear map must have a row of coefficients and an intercept for each outcome.")

    def __call__(self, X: Any) -> Array:
        """The values (N, d)."""
        return np.asarray(_FEATURES[self.features](X) @ self.coef.T + self.intercept)


@stored("tree ensemble")
@dataclass(frozen=True, eq=False)
class TreeEnsemble(Step):
    r"""$b + \lambda \sum_t T_t(x)$ with b = `base` (d,) and $\lambda$ = `factor`; x in single precision."""

    trees: Trees
    base: Array
    factor: float

    def __post_init__(self) -> None:
        if self.base.shape != self.trees.value.shape[1:]:
            raise ValueError("A tree ensemble must have a base for each output of its trees.")

    def __call__(self, X: Any) -> Array:
        """The values (N, d)."""
        if X.shape[1] < self.trees.n_features:
            raise ValueError(f"Trees ask for {self.trees.n_features} columns, got {X.shape[1]}.")
        return self.base + self.factor * self.trees.sums(np.asarray(X, dtype=np.float32))


@stored("number columns")
@dataclass(frozen=True, eq=False)
class NumberColumns(Step):
    """Columns of a frame by name, gaps filled by `fill` (p,), then a 1 where a column of `indicated` had a gap."""

    names: tuple[str, ...]
    fill: Array
    indicated: Indices

    def __post_init__(self) -> None:
        p = len(self.names)
        if self.fill.shape != (p,) or self.indicated.ndim != 1 or not np.isin(self.indicated, np.arange(p)).all():
            raise ValueError("Columns of numbers must have one value that fills the gaps of each.")

    def __call__(self, X: Any) -> Array:
        """The values (N, p + q)."""
        values = np.asarray(X[list(self.names)].to_numpy(dtype=np.float64, na_value=np.nan))
        is_missing = np.isnan(values)
        return np.hstack([np.where(is_missing, self.fill, values), is_missing[:, self.indicated]])


@stored("category columns")
@dataclass(frozen=True, eq=False)
class CategoryColumns(Step):
    """A 1 at the level of each column of a frame; other levels share a column where `has_others` says so."""

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    has_others: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.levels) == len(self.has_others):
            raise ValueError("Columns of categories must each have levels.")

    def __call__(self, X: Any) -> Array:
        """The values (N, q)."""
        parts = []
        for name, levels, has_others in zip(self.names, self.levels, self.has_others, strict=True):
            place = {level: k for k, level in enumerate(levels)}
            codes = np.array([place.get(value, len(levels)) for value in X[name].tolist()], dtype=np.int64)
            parts.append(np.arange(len(levels) + has_others) == codes[:, None])
        return np.hstack(parts).astype(np.float64)


@stored("side by side")
@dataclass(frozen=True, eq=False)
class SideBySide(Step):
    """Values of several models, or of several ways to read columns, of the same rows."""

    parts: tuple[tuple[Step, ...], ...]

    def __post_init__(self) -> None:
        steps = [step for part in self.parts for step in part]
        if not steps or len({id(step) for step in steps}) < len(steps) or any(type(s) is SideBySide for s in steps):
            raise ValueError("Parts side by side must be made of steps of their own.")

    def __call__(self, X: Any) -> Array:
        """The values (N, q)."""
        return np.hstack([_applied(steps, X) for steps in self.parts])


def _applied(steps: tuple[Step, ...], X: Any) -> Array:
    for step in steps:
        X = step(X)
    return np.asarray(X)


@stored("array predictor")
@dataclass(frozen=True, eq=False)
class ArrayPredictor:
    """A fitted predictor made of arrays.

    Attributes
    ----------
    steps : functions that are applied one after the other; the first takes the rows.
    n_features_in_ : columns of X.
    names : names of the columns of X; none where it was fitted on an array.
    takes_nan : whether rows may have missing numbers.

    Examples
    --------
    >>> ArrayPredictor((Linear(np.array([[2.0]]), np.ones(1)),), 1).predict([[3.0]])
    array([[7.]])
    """

    steps: tuple[Step, ...] = field(repr=False)
    n_features_in_: int
    names: tuple[str, ...] = ()
    takes_nan: bool = False

    def __post_init__(self) -> None:
        if not self.steps or (self.names and len(self.names) != self.n_features_in_):
            raise ValueError("A predictor must have a step, and a name for each of its columns or none.")

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, as an array; an AttributeError where they have none."""
        if not self.names:
            raise AttributeError("This predictor was fitted on columns without names.")
        return np.array(self.names, dtype=object)

    @property
    def _reads_frame(self) -> bool:
        first = self.steps[0]
        return isinstance(first, SideBySide) and isinstance(first.parts[0][0], (NumberColumns, CategoryColumns))

    def example(self) -> Any:
        """A row that it takes: zeros, by name where columns have names."""
        zeros = np.zeros((1, self.n_features_in_))
        if not self.names:
            return zeros
        import pandas as pd

        return pd.DataFrame(zeros, columns=list(self.names))

    def predict(self, X: Any) -> Array:
        """Predictions (N, d)."""
        if self._reads_frame:
            return _applied(self.steps, X)
        if hasattr(X, "columns") and self.names:
            X = X[list(self.names)]
        matrix = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} columns, got an array of shape {matrix.shape}.")
        return _applied(self.steps, matrix)


def as_arrays(model: Any, *, takes_nan: bool = False) -> ArrayPredictor:
    """The predictor of arrays that predicts as a fitted model does.

    Examples
    --------
    >>> X = np.arange(4.0)[:, None]
    >>> as_arrays(LinearRegression().fit(X, 2 * X)).predict([[10.0]]).round(9)
    array([[20.]])
    """
    if isinstance(model, ArrayPredictor):
        return model
    try:
        names = tuple(map(str, getattr(model, "feature_names_in_", ())))
        return ArrayPredictor(_steps_of(model), int(model.n_features_in_), names, takes_nan)
    except (AttributeError, ValueError, TypeError) as error:
        raise NotPlainError(
            f"{_name_of(model)} ({error})" if type(error) is not NotPlainError else str(error)
        ) from error


def _steps_of(model: Any) -> tuple[Step, ...]:
    kind = type(model)
    if kind is FrozenEstimator:
        return _steps_of(model.estimator)
    if kind in _SEARCHES:
        return _steps_of(model.best_estimator_)
    if kind is Pipeline:
        steps = [step for _, step in model.steps if step is not None and step != "passthrough"]
        return tuple(each for step in steps for each in _steps_of(step))
    if kind is MultiOutputRegressor:
        return (SideBySide(tuple(_steps_of(each) for each in model.estimators_)),)
    if kind is StandardScaler:
        p = model.n_features_in_
        mean, scale = (np.full(p, v) if a is None else a for a, v in ((model.mean_, 0.0), (model.scale_, 1.0)))
        return (Standardise(mean if model.with_mean else np.zeros(p), scale),)
    if kind is ColumnTransformer:
        used = [(part, names) for _, part, names in model.transformers_ if not isinstance(part, str) or part != "drop"]
        return (SideBySide(tuple(_columns_of(part, names) for part, names in used)),)
    if kind is FeatureRidge:
        coef = np.atleast_2d(model.coef_)
        return (Linear(coef, np.zeros(len(coef)), model.features),)
    if kind in _LINEAR:
        coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        return (Linear(coef, np.broadcast_to(np.ravel(model.intercept_), len(coef)).astype(np.float64)),)
    if kind is DummyRegressor:
        constant = np.ravel(model.constant_).astype(np.float64)
        return (Linear(np.zeros((len(constant), model.n_features_in_)), constant),)
    if kind is DecisionTreeRegressor or kind in _FORESTS:
        fitted = [model] if kind is DecisionTreeRegressor else model.estimators_
        trees = Trees(**joined([each.tree_ for each in fitted], with_missing=True))
        return (TreeEnsemble(trees, np.zeros(trees.value.shape[1]), 1 / len(fitted)),)
    if kind is GradientBoostingRegressor:
        trees = Trees(**joined([each.tree_ for each in model.estimators_.ravel()]))
        init = np.zeros(1) if isinstance(model.init_, str) else np.ravel(model.init_.constant_).astype(np.float64)
        return (TreeEnsemble(trees, init, float(model.learning_rate)),)
    raise NotPlainError(_name_of(model))


def _columns_of(part: Any, names: Any) -> tuple[Step, ...]:
    """The steps of one part of a `ColumnTransformer` that `selection` made."""
    own = tuple(names)
    if not all(isinstance(name, str) for name in own):
        raise NotPlainError(f"sklearn.compose.ColumnTransformer of the columns {names!r}")
    if type(part) is OneHotEncoder and part.handle_unknown in ("ignore", "infrequent_if_exist") and part.drop is None:
        rare = getattr(part, "infrequent_categories_", None) or [None] * len(own)
        rare = [set() if each is None else set(each.tolist()) for each in rare]
        pairs = zip(part.categories_, rare, strict=True)
        levels = [tuple(level for level in known.tolist() if level not in few) for known, few in pairs]
        if all(isinstance(level, str) for each in levels for level in each):
            return (CategoryColumns(own, tuple(levels), tuple(map(bool, rare))),)
    if type(part) is StandardScaler:
        return (NumberColumns(own, np.zeros(len(own)), np.zeros(0, dtype=np.int64)), *_steps_of(part))
    steps = [step for _, step in part.steps] if type(part) is Pipeline else [part]
    if [type(step) for step in steps] in ([SimpleImputer], [SimpleImputer, StandardScaler]):
        fill, values = steps[0], np.asarray(steps[0].statistics_)
        if fill.missing_values is np.nan and values.dtype.kind == "f" and np.isfinite(values).all():
            indicated = fill.indicator_.features_ if fill.add_indicator else np.zeros(0, dtype=np.int64)
            return (NumberColumns(own, values, indicated), *(step for each in steps[1:] for step in _steps_of(each)))
    raise NotPlainError(_name_of(part))


@stored("recipe")
@dataclass(frozen=True)
class Recipe:
    """An unfitted estimator: the name of its class in the table, and the parameters that are not its defaults."""

    name: str
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.name != _TUPLE:
            unknown = set(self.parameters) - (_defaults(_CLASSES[self.name]).keys() if self.name in _CLASSES else set())
            if self.name not in _CLASSES or unknown:
                raise ValueError(f"A recipe of {self.name[:80]!r} with the parameters {unknown} is not known.")

    def make(self) -> Any:
        """The estimator, not fitted."""
        parameters = {name: _made(value) for name, value in self.parameters.items()}
        return tuple(parameters["items"]) if self.name == _TUPLE else _CLASSES[self.name](**parameters)


def recipe_of(template: Any) -> Recipe:
    """The recipe of an estimator; fitted attributes are left out.

    Examples
    --------
    >>> recipe_of(Ridge(alpha=3.0)).make()
    Ridge(alpha=3.0)
    """
    if _CLASSES.get(type(template).__name__) is not type(template):
        raise NotPlainError(_name_of(template))
    given, defaults = template.get_params(deep=False), _defaults(type(template))
    kept = {}
    for name, value in given.items():
        default = defaults[name]
        is_plain = type(value) is type(default) and isinstance(value, (str, float, int))
        if name not in _NOT_KEPT and value is not default and not (is_plain and value == default):
            kept[name] = _plain(value)
    return Recipe(type(template).__name__, kept)


def _defaults(cls: type[Any]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(cls).parameters.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return value
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # its state has moved on
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, tuple):
        return Recipe(_TUPLE, {"items": [_plain(each) for each in value]})
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, BaseEstimator):
        return recipe_of(value)
    raise NotPlainError(_name_of(value))


def _made(value: Any) -> Any:
    if isinstance(value, Recipe):
        return value.make()
    if isinstance(value, list):
        return [_made(each) for each in value]
    if isinstance(value, dict):
        return {key: _made(each) for key, each in value.items()}
    return value


def _name_of(item: Any) -> str:
    """The name that `trusted` would have to hold."""
    named = item if isinstance(item, type) or (callable(item) and hasattr(item, "__name__")) else type(item)
    return f"{getattr(named, '__module__', 'builtins')}.{named.__name__}"
