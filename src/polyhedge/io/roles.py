"""What a loaded predictor will do with rows: each part checked in the role it plays, on its final state.

`outputs` and `columns` follow rows through a predictor without any rows: from the number of columns that come in to
the number that goes out, with every array on the way of the shape, type and range that scikit-learn's code takes for
granted. A part that serves at two places is checked at both; what serves nowhere must not be fitted (`templates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from polyhedge.io import roles_of_columns
from polyhedge.io.example_rows import first_part
from polyhedge.io.known import LINEAR_MODELS
from polyhedge.io.roles_of_columns import Width, check, check_features_in, finite, is_count
from polyhedge.io.templates import check_templates
from polyhedge.io.tree_checks import check_array_is, check_features_of

__all__ = ["check_predictor"]

# These pass their rows on to models that say themselves how many features they take.
_OF_OTHERS = (
    *("MultiOutputRegressor", "GridSearchCV", "RandomizedSearchCV", "FrozenEstimator", "Pipeline"),
    "TransformedTargetRegressor",
)
_ACTIVATIONS = ("identity", "logistic", "tanh", "relu", "softmax")


def check_predictor(model: Any, n_outcomes: int) -> None:
    """Raise ValueError unless `model` turns rows into `n_outcomes` finite numbers without harm.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> model = Ridge().fit(np.eye(3), np.eye(3)[:, :2])
    >>> check_predictor(model, 2)
    >>> model.coef_ = model.coef_[:, :2]
    >>> check_predictor(model, 2)
    Traceback (most recent call last):
        ...
    ValueError: Ridge: coef_ must have the shape (None, 3), got (2, 2)
    """
    n_features: Any = getattr(first_part(model), "n_features_in_", None)
    check(is_count(n_features), f"{type(model).__name__} must say how many features it takes")
    width = Width()
    n_outputs = outputs(model, n_features, width)
    check_templates(model, width.parts)
    check(n_outputs == n_outcomes, f"the predictor has {n_outputs} outputs, the problem {n_outcomes} outcomes")


def outputs(model: Any, n: int, width: Width) -> int:
    """Number of outputs of a fitted regressor that gets n columns."""
    name = type(model).__name__
    check(name in _REGRESSORS, f"{name} is no regressor that a file may hold")
    width.add(n)
    check_features_in(model, n, is_needed=name not in _OF_OTHERS)
    width.parts.add(id(model))
    return _REGRESSORS[name](model, n, width)


def _linear(model: Any, n: int, width: Width) -> int:
    return _checked_coefficients(model, n, getattr(model, "intercept_", None))


def _feature_ridge(model: Any, n: int, width: Width) -> int:
    check(model.features == "all" or (model.features == "paper" and n >= 2), "FeatureRidge: unknown features")
    width.add(1 + 3 * n)
    return _checked_coefficients(model, 1 + 3 * n if model.features == "all" else 1 + n + 4, 0.0)


def _checked_coefficients(model: Any, n: int, intercept: Any) -> int:
    name, coef = type(model).__name__, model.coef_
    finite(coef, (None, n) if np.ndim(coef) == 2 else (n,), f"{name}: coef_")
    d = len(coef) if coef.ndim == 2 else 1
    # One intercept for all outputs, or one for each; a column of one output may come with a list of one.
    is_number = type(intercept) in (int, float) or (isinstance(intercept, np.ndarray) and intercept.dtype.kind == "f")
    fits = is_number and np.shape(intercept) in ((), (1,), (d,)) and bool(np.isfinite(intercept).all())
    check(fits, f"{name}: intercept_ must be finite, one for each output")
    return d


def _dummy(model: Any, n: int, width: Width) -> int:
    check(is_count(model.n_outputs_), "DummyRegressor must have outputs")
    finite(model.constant_, (1, model.n_outputs_), "DummyRegressor: constant_")
    return int(model.n_outputs_)


def _tree(model: Any, n: int, width: Width) -> int:
    tree = model.tree_
    check(type(tree).__name__ == "Tree" and tree.n_features == n, f"a tree must have the {n} features of its owner")
    check(is_count(model.n_outputs_) and model.n_outputs_ == tree.n_outputs, "a tree has other outputs than its owner")
    return int(tree.n_outputs)


def _forest(model: Any, n: int, width: Width) -> int:
    trees = model.estimators_
    check(isinstance(trees, list) and len(trees) > 0, "a forest must have trees")
    kinds = {"RandomForestRegressor": "DecisionTreeRegressor", "ExtraTreesRegressor": "ExtraTreeRegressor"}
    check(all(type(t).__name__ == kinds[type(model).__name__] for t in trees), "a forest must consist of its own trees")
    check(all(outputs(tree, n, width) == model.n_outputs_ for tree in trees), "the trees of a forest differ in outputs")
    return int(model.n_outputs_)


def _boosting(model: Any, n: int, width: Width) -> int:
    stages = model.estimators_
    check(isinstance(stages, np.ndarray) and stages.dtype == object, "the stages of boosting must be an array")
    check(stages.ndim == 2 and stages.shape[0] > 0 and stages.shape[1] == 1, "boosting must have one tree a stage")
    check(type(model.n_trees_per_iteration_) is int and model.n_trees_per_iteration_ == 1, "one tree a stage")
    check(all(type(t).__name__ == "DecisionTreeRegressor" for t in stages.ravel()), "boosting must consist of trees")
    check(all(outputs(tree, n, width) == 1 for tree in stages.ravel()), "a stage of boosting must have one output")
    start = model.init_
    if not (isinstance(start, str) and start == "zero"):
        # Compiled code adds to an array of the start's own making, so the start must be one number a row.
        check(type(start).__name__ == "DummyRegressor", "boosting must start from zero or from a constant")
        check(outputs(start, n, width) == 1, "the start of boosting must have one output")
    _check_rate(model)
    return 1


def _check_rate(model: Any) -> None:
    rate = model.learning_rate
    check(isinstance(rate, (int, float)) and bool(np.isfinite(rate)), "learning_rate must be finite")


def _hist_boosting(model: Any, n: int, width: Width) -> int:
    preprocessor, mapper = model._preprocessor, model._bin_mapper
    n_columns = n
    if preprocessor is not None:
        check(type(preprocessor).__name__ == "ColumnTransformer", "boosting must read a table by its columns")
        n_columns = roles_of_columns.columns(preprocessor, n, width)
        check(preprocessor.sparse_output_ is False, "boosting takes no sparse rows")
    check(type(mapper).__name__ == "_BinMapper", "boosting must have bins")
    width.parts.add(id(mapper))
    check_array_is(mapper.is_categorical_, np.dtype(np.uint8), (n_columns,), "categorical features of boosting")
    check(model._n_features == n_columns, "boosting has another number of features than its bins")
    is_categorical = mapper.is_categorical_ != 0
    _check_known_categories(mapper, is_categorical)
    baseline = np.asarray(model._baseline_prediction)
    finite(baseline, (1, 1) if baseline.ndim == 2 else (1,) * baseline.ndim, "the baseline of boosting")
    check(model.n_trees_per_iteration_ == 1 and type(model.n_trees_per_iteration_) is int, "one tree a stage")
    stages = model._predictors
    check(isinstance(stages, list) and all(isinstance(s, list) and len(s) == 1 for s in stages), "one tree a stage")
    for (tree,) in stages:
        check(type(tree).__name__ == "TreePredictor", "boosting must consist of trees")
        check_features_of(tree, is_categorical)
    return 1


def _check_known_categories(mapper: Any, is_categorical: Any) -> None:
    """Categories become positions in 256 bits without a look at their range."""
    bins = mapper.bin_thresholds_
    check(isinstance(bins, list) and len(bins) == len(is_categorical), "boosting must have bins for each feature")
    for thresholds in (each for each, is_kind in zip(bins, is_categorical, strict=True) if is_kind):
        finite(thresholds, (None,), "categories of boosting")
        check(not len(thresholds) or (thresholds.min() >= 0 and thresholds.max() <= 255), "categories lie in 0 to 255")


def _network(model: Any, n: int, width: Width) -> int:
    layers, shifts = model.coefs_, model.intercepts_
    is_known = model.activation in _ACTIVATIONS[:-1] and model.out_activation_ in _ACTIVATIONS
    check(is_known and isinstance(layers, list) and isinstance(shifts, list), "a network must have known layers")
    check(0 < len(layers) == len(shifts) and model.n_layers_ == len(layers) + 1, "a network must have all its layers")
    for layer, shift in zip(layers, shifts, strict=True):
        finite(layer, (n, None), "a layer of the network")
        n = width.add(layer.shape[1])
        finite(shift, (n,), "a layer of the network")
    check(is_count(model.n_outputs_) and model.n_outputs_ == n, "a network must have as many outputs as its last layer")
    return n


def _several(model: Any, n: int, width: Width) -> int:
    models = model.estimators_
    check(isinstance(models, list) and len(models) > 0, "a model of several outputs must have a model for each")
    check(all(outputs(each, n, width) == 1 for each in models), "each of several models must have one output")
    return len(models)


def _chain(model: Any, n: int, width: Width) -> int:
    models, order = model.estimators_, model.order_
    order = np.asarray(order)
    check(isinstance(models, list) and len(models) > 0, "a chain must have models")
    check(order.ndim == 1 and order.dtype.kind == "i", "the order of a chain must be a list of positions")
    check(sorted(order.tolist()) == list(range(len(models))), "the order of a chain must name each model once")
    n_outputs = [outputs(each, n + k, width) for k, each in enumerate(models)]
    check(all(d == 1 for d in n_outputs), "each model of a chain must have one output")
    return len(models)


def _search(model: Any, n: int, width: Width) -> int:
    check(model.refit is True, "a search must have been fitted again with what it found")
    return outputs(model.best_estimator_, n, width)


def _frozen(model: Any, n: int, width: Width) -> int:
    return outputs(model.estimator, n, width)


def _transformed_target(model: Any, n: int, width: Width) -> int:
    d = outputs(model.regressor_, n, width)
    scaler = model.transformer_
    allowed = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "FunctionTransformer")
    check(type(scaler).__name__ in allowed, "outcomes may be transformed by a scaler or a function")
    check(roles_of_columns.columns(scaler, d, width) == d, "outcomes must be transformed one by one")
    check(model._training_dim in (1, 2), "outcomes have one or two axes")
    return d


def _pipeline(model: Pipeline, n: int, width: Width) -> int:
    *steps, (_, last) = roles_of_columns.checked_steps(model)
    for _, step in steps:
        n = roles_of_columns.columns(step, n, width)
    return outputs(last, n, width)


_REGRESSORS: Mapping[str, Callable[[Any, int, Width], int]] = {
    **dict.fromkeys(LINEAR_MODELS, _linear),
    "FeatureRidge": _feature_ridge,
    "DummyRegressor": _dummy,
    "DecisionTreeRegressor": _tree,
    "ExtraTreeRegressor": _tree,
    "RandomForestRegressor": _forest,
    "ExtraTreesRegressor": _forest,
    "GradientBoostingRegressor": _boosting,
    "HistGradientBoostingRegressor": _hist_boosting,
    "MLPRegressor": _network,
    "MultiOutputRegressor": _several,
    "RegressorChain": _chain,
    "GridSearchCV": _search,
    "RandomizedSearchCV": _search,
    "FrozenEstimator": _frozen,
    "TransformedTargetRegressor": _transformed_target,
    "Pipeline": _pipeline,
}
