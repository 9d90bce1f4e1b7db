"""Which predictors a model file may hold: exact classes, and of each the fitted attributes that its predictions need.

A class stands here once its prediction is checked in `roles`: what it reads of its own state, and what compiled code
does with that. Everything else is left to `trusted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

__all__ = [
    "LINEAR_MODELS",
    "TYPES",
    "attributes_of",
    "function_named",
    "is_function",
    "is_numbers_of_boosting",
    "known_classes",
    "name_of_function",
]

_COMMON = ("n_features_in_", "feature_names_in_")
_LINEAR = ("coef_", "intercept_")
_FOREST = ("n_outputs_", "estimators_")
_TREE = ("n_outputs_", "max_features_", "tree_")
_SEARCH = ("best_estimator_", "best_params_", "best_index_", "best_score_", "n_splits_", "multimetric_", "refit_time_")
_ENCODER = ("categories_", "_infrequent_enabled", "_infrequent_indices", "_default_to_infrequent_mappings")
_HIST = (
    *("is_categorical_", "_is_categorical_remapped", "_preprocessor", "_bin_mapper", "_n_features", "_predictors"),
    *("_baseline_prediction", "n_trees_per_iteration_", "do_early_stopping_", "_use_validation_data"),
    *("train_score_", "validation_score_"),
)
_COLUMNS = (
    *("transformers_", "_columns", "_transformer_to_input_indices", "_remainder", "sparse_output_"),
    *("output_indices_", "_n_features", "_name_to_fitted_passthrough"),
)
LINEAR_MODELS = (
    *("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV"),
    *("MultiTaskLasso", "MultiTaskLassoCV", "MultiTaskElasticNet", "MultiTaskElasticNetCV"),
    *("BayesianRidge", "HuberRegressor", "QuantileRegressor"),
)

# Fitted attributes by class. What a fit leaves besides, such as random generators, tables of a search and losses
# (which follow from the parameters), is not kept.
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(LINEAR_MODELS, _LINEAR),
    **dict.fromkeys(("DecisionTreeRegressor", "ExtraTreeRegressor"), _TREE),
    **dict.fromkeys(("RandomForestRegressor", "ExtraTreesRegressor"), _FOREST),
    **dict.fromkeys(("GridSearchCV", "RandomizedSearchCV"), _SEARCH),
    "FeatureRidge": ("coef_",),
    "DummyRegressor": ("constant_", "n_outputs_"),
    "GradientBoostingRegressor": (
        *("n_trees_per_iteration_", "max_features_", "n_estimators_", "init_", "estimators_", "train_score_"),
    ),
    "HistGradientBoostingRegressor": _HIST,
    "MLPRegressor": ("n_outputs_", "n_layers_", "out_activation_", "coefs_", "intercepts_", "n_iter_", "loss_"),
    "MultiOutputRegressor": ("estimators_",),
    "RegressorChain": ("estimators_", "order_"),
    "TransformedTargetRegressor": ("regressor_", "transformer_", "_training_dim"),
    "FrozenEstimator": (),
    "Pipeline": (),
    "ColumnTransformer": _COLUMNS,
    "StandardScaler": ("mean_", "var_", "scale_", "n_samples_seen_"),
    "MinMaxScaler": ("min_", "scale_", "data_min_", "data_max_", "data_range_", "n_samples_seen_"),
    "MaxAbsScaler": ("max_abs_", "scale_", "n_samples_seen_"),
    "RobustScaler": ("center_", "scale_"),
    "SimpleImputer": ("statistics_", "indicator_", "_fit_dtype", "_fill_dtype"),
    "MissingIndicator": ("features_", "_n_features", "_precomputed"),
    "OneHotEncoder": (*_ENCODER, "_drop_idx_after_grouping", "drop_idx_", "_n_features_outs"),
    "OrdinalEncoder": (*_ENCODER, "_missing_indices"),
    "FunctionTransformer": (),
    "PolynomialFeatures": ("_min_degree", "_max_degree", "n_output_features_", "_n_out_full"),
    "PCA": ("components_", "n_components_", "mean_", "explained_variance_", "explained_variance_ratio_"),
    # Parts of the above; as predictors of their own they are refused.
    "Tree": ("max_depth", "node_count", "nodes", "values"),
    "TreePredictor": ("nodes", "binned_left_cat_bitsets", "raw_left_cat_bitsets"),
    "_BinMapper": ("bin_thresholds_", "is_categorical_", "n_bins_non_missing_", "missing_values_bin_idx_"),
}

# Functions of one number that a FunctionTransformer may apply.
_UFUNCS = (
    *("absolute", "arcsinh", "arctan", "cbrt", "cos", "exp", "expm1", "fabs", "log", "log10", "log1p", "log2"),
    *("negative", "reciprocal", "rint", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
)
_NUMBERS = "numbers of boosting"

_MODULES = (
    *("compose", "decomposition", "dummy", "ensemble", "frozen", "impute", "linear_model", "model_selection"),
    *("multioutput", "neural_network", "pipeline", "preprocessing", "tree"),
)

TYPES: Mapping[str, type] = {
    **{f"builtins.{t.__name__}": t for t in (bool, float, int, object, str)},
    **{f"numpy.{t.__name__}": t for t in (np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_)},
}
"""Types that parameters such as `dtype` may have."""


def attributes_of(name: str) -> tuple[str, ...]:
    """Fitted attributes of a class of the table that a file keeps."""
    own = _ATTRIBUTES[name]
    return own if name in ("Tree", "TreePredictor") else (*_COMMON, *own)


@cache
def known_classes() -> Mapping[str, type]:
    """The classes of the table by name; imported here and nowhere by a name in a file."""
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
    from sklearn.tree._tree import Tree

    from polyhedge.predictors.regressor import FeatureRidge

    own = {"FeatureRidge": FeatureRidge, "_BinMapper": _BinMapper, "TreePredictor": TreePredictor, "Tree": Tree}
    modules = [import_module(f"sklearn.{name}") for name in _MODULES]
    listed = {name: getattr(module, name) for module in modules for name in _ATTRIBUTES if hasattr(module, name)}
    return {**listed, **own}


def function_named(name: str) -> Any:
    """A function of the table by name; a ValueError for any other."""
    if name == _NUMBERS:
        return _numbers_of_boosting()
    if name not in _UFUNCS:
        raise ValueError(f"{name[:80]!r} is not on the list of known functions")
    return getattr(np, name)


def is_function(name: str) -> bool:
    """Whether a name is that of a function of NumPy in the table."""
    return name in _UFUNCS


def name_of_function(function: Any) -> str | None:
    """The name under which a function can be stored; None where it cannot."""
    if isinstance(function, np.ufunc) and function.__name__ in _UFUNCS and getattr(np, function.__name__) is function:
        return function.__name__
    if isinstance(function, partial) and is_numbers_of_boosting(function.func, function.args, function.keywords):
        return _NUMBERS
    return None


def is_numbers_of_boosting(function: Any, args: Any, keywords: Any) -> bool:
    """Whether this is the one step by which histogram boosting reads the numbers beside its categories."""
    wanted = _numbers_of_boosting()
    return function is wanted.func and not args and keywords == wanted.keywords


def _numbers_of_boosting() -> partial[Any]:
    from sklearn.utils import check_array

    return partial(check_array, dtype=[np.float64], ensure_all_finite=False)
