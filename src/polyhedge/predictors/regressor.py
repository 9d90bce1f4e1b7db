"""Predictors: whatever turns covariates into the centres of the sets.

The guarantee does not depend on how good a predictor is, only on which rows it has seen: the training split
and no other. `as_predictor` gives every kind of predictor one small interface.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from polyhedge._support.frames import select_columns
from polyhedge._support.progress import tell
from polyhedge._support.validation import Array, as_rows, check_count
from polyhedge.data import take_rows
from polyhedge.data.splits import fold_of
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.recipes import Recipe

_LOG = logging.getLogger(__name__)


class Predictor(Protocol):
    """What the rest of the library asks of a predictor; `as_predictor` makes one."""

    @property
    def needs_training(self) -> bool:
        """Whether `fit` has to see a training split before `predict`."""

    @property
    def takes_nan(self) -> bool:
        """Whether `predict` takes rows with missing numbers."""

    def fit(self, X: Any, Y: ArrayLike, weights: Array | None = None) -> Self:
        """Fit on the training split, and on no other row; does nothing if no training is needed."""

    def predict(self, X: Any) -> Array:
        """Centres for the rows of any split, shape (n_samples, n_outcomes), all finite."""


def as_predictor(
    predictor: Any, n_outcomes: int, *, random_state: int | None = None, outcome_names: Sequence[str] = ()
) -> Predictor:
    """Give any kind of predictor the interface `Predictor`.

    Parameters
    ----------
    predictor : estimator, recipe, callable, "precomputed" or None
        - A scikit-learn regressor, pipeline or search: cloned, then fitted on the training split, also if it
          was fitted before. One that predicts a single outcome is fitted once for each outcome.
        - ``FrozenEstimator(model)``, an object with ``predict`` and without ``fit``, or a callable
          ``X -> (n_samples, n_outcomes)``: used as it is. It must not have seen the learning and calibration splits.
        - ``"precomputed"``: the rows of ``X`` already are predictions.
        - None: a smooth ridge on z-scores. Predictions move and scale with the outcomes.
    n_outcomes : number of outcome columns.
    random_state : seed for every parameter ``random_state`` of the estimator, at any depth, that is None.
    outcome_names : predictions that come as data frames are put in this order.

    Notes
    -----
    `X` reaches the model as it came: a data frame stays a data frame, so that columns can be chosen by name.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> X = np.arange(6.0).reshape(6, 1)
    >>> predictor = as_predictor(Ridge(), n_outcomes=2).fit(X, np.hstack([X, -X]))
    >>> predictor.predict(X).shape
    (6, 2)
    >>> as_predictor("precomputed", n_outcomes=2).needs_training
    False
    """
    d = check_count(n_outcomes, "n_outcomes", minimum=1)
    if predictor is None or isinstance(predictor, Recipe):
        recipe = Recipe("smooth-ridge") if predictor is None else predictor
        return _TrainedPredictor(recipe, d, recipe.takes_nan)
    if isinstance(predictor, str) and predictor == "precomputed":
        return _GivenPredictor(_identity, d, 'X with predictor="precomputed"')
    is_class = isinstance(predictor, type)
    # A stacked model has no `predict` before it is fitted, so that its tag has to tell.
    is_tagged = hasattr(predictor, "fit") and hasattr(predictor, "__sklearn_tags__")
    predicts = not is_class and (hasattr(predictor, "predict") or (is_tagged and is_regressor(predictor)))
    if is_class or not (predicts or callable(predictor)):
        raise ValueError(
            'predictor must be a regressor, a callable X -> (n_samples, n_outcomes), "auto" for a choice on the '
            f'training rows, "precomputed" if X holds predictions, one of {", ".join(PREDICTORS)}, or None, got '
            f"{predictor!r}. A class has to be called, such as Ridge()."
        )
    if not predicts:
        return _GivenPredictor(predictor, d, "The value of the predictor", takes_nan(predictor), tuple(outcome_names))
    if isinstance(predictor, FrozenEstimator) or not hasattr(predictor, "fit"):
        return _GivenPredictor(predictor.predict, d, "The prediction", takes_nan(predictor), tuple(outcome_names))
    return _TrainedPredictor(_regressor(predictor, d, random_state), d, takes_nan(predictor))


def out_of_fold(
    make: Callable[[], Predictor], X: Any, Y: ArrayLike, n_folds: int, groups: Any = None, weights: Array | None = None
) -> Array:
    """Predictions for the training rows, each by a predictor that was trained without its fold.

    The `n_folds` folds are blocks of the rows `X`, `Y` in their order, so that neighbours in time mostly stay together;
    rows of one label in `groups` stay in one fold. `make` returns a new predictor that is not fitted, and `weights` say
    how much each row counts.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(8.0).reshape(8, 1)
    >>> out_of_fold(lambda: as_predictor(LinearRegression(), 1), X, 2 * X, n_folds=4).round(6).ravel()
    array([ 0.,  2.,  4.,  6.,  8., 10., 12., 14.])
    """
    centers = np.empty((Y := np.asarray(Y)).shape)
    number = fold_of(len(Y), check_count(n_folds, "n_folds", minimum=2), groups)
    for done, k in enumerate(folds := np.unique(number)):
        tell(_LOG, "predicting rows by models without them", done, len(folds))
        fold, rest = np.flatnonzero(number == k), np.flatnonzero(number != k)
        its_weights = None if weights is None else weights[rest]
        centers[fold] = make().fit(take_rows(X, rest), Y[rest], its_weights).predict(take_rows(X, fold))
    return centers


@dataclass(frozen=True)
class _GivenPredictor:
    """A predictor that comes as a function of `X` and is never fitted."""

    function: Callable[[Any], ArrayLike]
    n_outcomes: int
    name: str
    takes_nan: bool = False
    outcome_names: tuple[str, ...] = ()
    needs_training: bool = field(default=False, init=False)

    def fit(self, X: Any, Y: ArrayLike, weights: Array | None = None) -> Self:
        return self

    def predict(self, X: Any) -> Array:
        predicted = self.function(X)
        ordered = select_columns(predicted, self.outcome_names, self.name) if self.outcome_names else predicted
        return _check_prediction(ordered, X, self.n_outcomes, self.name)


@dataclass
class _TrainedPredictor:
    """A scikit-learn regressor that is cloned for every fit, so that the user's object stays untouched."""

    template: Any
    n_outcomes: int
    takes_nan: bool = False
    model: Any = field(default=None, init=False)
    needs_training: bool = field(default=True, init=False)

    def fit(self, X: Any, Y: ArrayLike, weights: Array | None = None) -> Self:
        Y = as_rows(Y, "Y", self.n_outcomes)
        if len(Y) == 0:
            raise ValueError(
                "The training split is empty, but the predictor has to be fitted. Raise the training share "
                "or hand in a fitted model as FrozenEstimator(model)."
            )
        # Most regressors warn about a target of one column; those made for several outcomes insist on it.
        has_tags = hasattr(self.template, "__sklearn_tags__")
        flat = self.n_outcomes == 1 and (not has_tags or get_tags(self.template).target_tags.single_output)
        weighted = {} if weights is None else _weight_argument(self.template, weights)
        self.model = clone(self.template, safe=False).fit(X, Y.ravel() if flat else Y, **weighted)
        return self

    def predict(self, X: Any) -> Array:
        if self.model is None:
            raise NotFittedError("The predictor is not fitted: call fit on the training split first.")
        return _check_prediction(self.model.predict(X), X, self.n_outcomes, "The prediction")


def _identity(X: Any) -> Any:
    # A named function, because a lambda would keep the predictor from being sent to other processes.
    return X


def _regressor(predictor: Any, n_outcomes: int, random_state: int | None) -> Any:
    """Return a clone that fits `n_outcomes` columns and whose unset random states are set."""
    regressor = clone(predictor, safe=False)
    if not hasattr(regressor, "get_params"):
        return regressor
    kind = get_tags(regressor).estimator_type
    if kind not in (None, "regressor"):
        raise ValueError(
            f"predictor must be a regressor, got the {kind.replace('_', ' ')} {type(predictor).__name__}. Use a model "
            "of numbers, such as a regressor of the same family."
        )
    if random_state is not None:
        unset = [
            key
            for key, value in regressor.get_params(deep=True).items()
            if value is None and key.split("__")[-1] == "random_state"
        ]
        regressor.set_params(**dict.fromkeys(sorted(unset), random_state))
    # A search takes as many columns as the model it searches over, but its own tag always says one.
    inner = regressor
    while isinstance(inner, (GridSearchCV, RandomizedSearchCV, Pipeline)):
        inner = inner.steps[-1][1] if isinstance(inner, Pipeline) else inner.estimator
    fits_columns = n_outcomes == 1 or get_tags(inner).target_tags.multi_output
    return regressor if fits_columns else MultiOutputRegressor(regressor)


def _check_prediction(values: Any, X: Any, n_outcomes: int, name: str) -> Array:
    values = np.asarray(values)
    if values.ndim == 1 and n_outcomes == 1:
        values = values[:, None]
    n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
    if values.ndim != 2 or values.shape[0] != n_samples:
        raise ValueError(
            f"{name} must have shape (n_samples, n_outcomes) = ({n_samples}, {n_outcomes}), got {values.shape}."
        )
    return as_rows(values, name, n_outcomes)


def takes_nan(predictor: Any) -> bool:
    """Whether a predictor, as the user gave it, says that it fills in missing numbers itself."""
    if hasattr(predictor, "takes_nan"):  # a predictor from a model file
        return bool(predictor.takes_nan)
    # Scikit-learn's tags of composed models do not say what their first steps can do.
    if isinstance(predictor, FrozenEstimator):
        return takes_nan(predictor.estimator)
    if isinstance(predictor, Pipeline):
        # Each step must take what the one before hands on: scalers hand missing numbers on, others fill them in.
        steps = [step for _, step in predictor.steps if step is not None and step != "passthrough"]
        scalers = list(takewhile(lambda step: type(step).__module__ == StandardScaler.__module__, steps))
        return all(map(takes_nan, steps[: len(scalers) + 1]))
    if isinstance(predictor, ColumnTransformer):
        return any(takes_nan(transformer) for _, transformer, _ in predictor.transformers)
    tags = getattr(predictor, "__sklearn_tags__", None)
    return callable(predictor) if tags is None else bool(tags().input_tags.allow_nan)


def takes_sparse(predictor: Any) -> bool:
    """Whether a predictor, as the user gave it, says that it takes sparse matrices; a function may."""
    tags = getattr(predictor, "__sklearn_tags__", None)
    return callable(predictor) if tags is None else bool(tags().input_tags.sparse)


def _weight_argument(predictor: Any, weights: Array) -> dict[str, Any]:
    """What `fit` of a predictor calls these weights; a pipeline hands them to its last step."""
    if isinstance(predictor, Pipeline):
        name, last = predictor.steps[-1]
        return {f"{name}__{key}": value for key, value in _weight_argument(last, weights).items()}
    inner = predictor
    while hasattr(inner, "estimator") and has_fit_parameter(inner, "sample_weight"):
        inner = inner.estimator  # one that fits another takes weights only where this one does
    if not has_fit_parameter(inner, "sample_weight"):
        raise ValueError(
            f"sample_weight is for the predictor, but {type(inner).__name__} takes no weights. Leave them out, or use "
            "a predictor whose fit takes sample_weight."
        )
    return {"sample_weight": weights}
