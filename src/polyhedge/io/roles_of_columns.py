"""The transformers in front of a regressor: how many columns each makes of those it gets, by its final state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from polyhedge.io.known import TYPES, name_of_function

# More columns than any table that polyhedge reads; each costs memory before the first row comes.
_MAX_COLUMNS = 100_000
MAX_DEGREE = 10
"""The number of polynomial features grows with this power of the columns."""
_MISSING = (float, int, str, type(None))


class Width:
    """Columns that all parts of a predictor make of one row, together: few bytes of a file could ask for billions.

    `parts` has the identities of the parts that were looked at in the role they play.
    """

    def __init__(self) -> None:
        self.total = 0
        self.parts: set[int] = set()

    def add(self, n: int) -> int:
        """Count n more columns."""
        self.total += n
        check(self.total <= 100 * _MAX_COLUMNS and n <= _MAX_COLUMNS, f"a row may have {_MAX_COLUMNS} columns")
        return n


def columns(step: Any, n: int, width: Width) -> int:
    """Number of columns that a fitted transformer makes of n; "passthrough" makes n and "drop" none."""
    if isinstance(step, str) or step is None:
        check(step in ("passthrough", "drop", None), f"{str(step)[:40]!r} is no transformer")
        return width.add(0 if step == "drop" else n)
    name = type(step).__name__
    check(name in _TRANSFORMERS, f"{name} is no transformer that a file may hold")
    check_features_in(step, n, is_needed=name != "Pipeline")
    width.parts.add(id(step))
    return width.add(_TRANSFORMERS[name](step, n, width))


def check(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)


def is_count(value: Any) -> bool:
    """Whether a value is a positive whole number that counts columns."""
    return type(value) is int and 1 <= value <= _MAX_COLUMNS


def finite(array: Any, shape: tuple[int | None, ...], what: str) -> None:
    """Raise ValueError unless `array` holds finite floats and has this shape (None: any length)."""
    check(isinstance(array, np.ndarray) and array.dtype.kind == "f", f"{what} must be an array of numbers")
    fits = array.ndim == len(shape) and all(a in (None, b) for a, b in zip(shape, array.shape, strict=True))
    check(fits, f"{what} must have the shape {shape}, got {array.shape}")
    check(bool(np.isfinite(array).all()), f"{what} must be finite")


def check_features_in(part: Any, n: int, *, is_needed: bool) -> None:
    """A part must say that it takes n features, otherwise scikit-learn would let any number through."""
    attributes = vars(part)
    if is_needed or "n_features_in_" in attributes:
        said = attributes.get("n_features_in_")
        check(type(said) is int and said == n, f"{type(part).__name__} takes {said!r} features and gets {n}")
    names = attributes.get("feature_names_in_")
    if names is not None:
        is_list = isinstance(names, np.ndarray) and names.dtype == object and names.shape == (n,)
        check(is_list and all(isinstance(name, str) for name in names), "the names of features must be texts, one each")


def checked_steps(model: Pipeline) -> list[Any]:
    """The steps of a pipeline: pairs of a name and a part."""
    check(isinstance(model.steps, list) and len(model.steps) > 0, "a pipeline must have steps")
    for step in model.steps:
        check(isinstance(step, (tuple, list)) and len(step) == 2 and isinstance(step[0], str), "a step has a name")
    check(model.transform_input is None, "a pipeline that transforms other inputs is not known")
    return model.steps


def _pipeline(model: Any, n: int, width: Width) -> int:
    for _, step in checked_steps(model):
        n = columns(step, n, width)
    return n


def _standard(model: Any, n: int, width: Width) -> int:
    _check_flags(model, "with_mean", "with_std")
    return _scaled(model, n, mean_=model.with_mean, scale_=model.with_std)


def _min_max(model: Any, n: int, width: Width) -> int:
    low, high = model.feature_range
    check(all(isinstance(x, (int, float)) and math.isfinite(x) for x in (low, high)), "MinMaxScaler: unknown range")
    return _scaled(model, n, min_=True, scale_=True)


def _max_abs(model: Any, n: int, width: Width) -> int:
    return _scaled(model, n, scale_=True)


def _robust(model: Any, n: int, width: Width) -> int:
    _check_flags(model, "with_centering", "with_scaling")
    return _scaled(model, n, center_=model.with_centering, scale_=model.with_scaling)


def _scaled(model: Any, n: int, **needed: bool) -> int:
    for name, is_needed in needed.items():
        if is_needed:
            finite(getattr(model, name), (n,), f"{type(model).__name__}: {name}")
    return n


def _check_flags(model: Any, *names: str) -> None:
    for name in names:
        check(type(getattr(model, name)) is bool, f"{type(model).__name__}: {name} must be True or False")


def _pca(model: Any, n: int, width: Width) -> int:
    finite(model.components_, (None, n), "PCA: components_")
    k = len(model.components_)
    check(type(model.whiten) is bool and model.n_components_ == k > 0, "PCA: unknown setting")
    finite(model.explained_variance_, (k,), "PCA: explained_variance_")
    finite(model.mean_, (n,), "PCA: mean_")
    return k


def _polynomial(model: Any, n: int, width: Width) -> int:
    low, high = model._min_degree, model._max_degree
    _check_flags(model, "interaction_only", "include_bias")
    check(model.order in ("C", "F"), "PolynomialFeatures: unknown order")
    check(type(low) is int and type(high) is int and 0 <= low <= high <= MAX_DEGREE and high > 0, "unknown degrees")
    combinations = [math.comb(n if model.interaction_only else n + k - 1, k) for k in range(high + 1)]
    full = sum(combinations[1:]) + model.include_bias
    width.add(full)
    # Where low degrees are left out, they are computed all the same.
    kept = sum(combinations[max(low, 1) :]) + model.include_bias
    check((model._n_out_full, model.n_output_features_) == (full, kept), "PolynomialFeatures: columns do not add up")
    return kept


def _function(model: Any, n: int, width: Width) -> int:
    for function in (model.func, model.inverse_func):
        check(function is None or name_of_function(function) is not None, "a function that is not known")
    check(model.kw_args is None and model.inv_kw_args is None, "a function with settings is not known")
    check(type(model.validate) is bool, "FunctionTransformer: unknown setting")
    return n


def _imputer(model: Any, n: int, width: Width) -> int:
    statistics, indicator = model.statistics_, model.indicator_
    check(isinstance(statistics, np.ndarray) and statistics.shape == (n,), f"SimpleImputer must have {n} values")
    kinds = [float if statistics.dtype.kind == "f" else type(value) for value in statistics.tolist()]
    check(statistics.dtype.kind in "fiO" and all(kind in _MISSING for kind in kinds), "SimpleImputer: unknown values")
    check(type(model.missing_values) in _MISSING, "SimpleImputer: unknown missing value")
    _check_flags(model, "add_indicator", "keep_empty_features")
    check(model.strategy in ("mean", "median", "most_frequent", "constant"), "SimpleImputer: unknown strategy")
    check(all(isinstance(getattr(model, d), np.dtype) for d in ("_fit_dtype", "_fill_dtype")), "SimpleImputer: dtype")
    is_empty = [isinstance(value, float) and math.isnan(value) for value in statistics.tolist()]
    kept = n if model.keep_empty_features else n - sum(is_empty)
    check(kept > 0, "SimpleImputer must keep a column")
    if not model.add_indicator:
        return kept
    check(type(indicator).__name__ == "MissingIndicator", "SimpleImputer must have an indicator")
    return kept + columns(indicator, n, width)


def _indicator(model: Any, n: int, width: Width) -> int:
    where = model.features_
    is_list = isinstance(where, np.ndarray) and where.dtype.kind == "i" and where.ndim == 1
    check(is_list and (np.diff(where) > 0).all(), "MissingIndicator must name its features in order")
    check(not len(where) or (where[0] >= 0 and where[-1] < n), "MissingIndicator names a feature that does not exist")
    check(type(model._n_features) is int and model._n_features == n, "MissingIndicator has other features")
    check(type(model._precomputed) is bool and model.features in ("missing-only", "all"), "MissingIndicator: setting")
    check(model.sparse in ("auto", False), "MissingIndicator: unknown setting")
    return n if model.features == "all" else len(where)


def _column_transformer(model: Any, n: int, width: Width) -> int:
    parts, where = model.transformers_, model._transformer_to_input_indices
    check(isinstance(parts, list) and isinstance(where, dict), "ColumnTransformer must have parts")
    check(type(model.sparse_output_) is bool, "ColumnTransformer: unknown output")
    weights = model.transformer_weights or {}
    is_known = isinstance(weights, dict) and all(isinstance(w, (int, float)) for w in weights.values())
    check(is_known, "ColumnTransformer: unknown weights")
    names, passed = getattr(model, "feature_names_in_", None), vars(model).get("_name_to_fitted_passthrough", {})
    check(isinstance(passed, dict), "ColumnTransformer: unknown columns")
    total = 0
    for part in parts:
        check(isinstance(part, tuple) and len(part) == 3 and isinstance(part[0], str), "a part has a name and columns")
        name, step, chosen = part
        positions = _positions(chosen, n, names)
        check(where.get(name) == positions, "the columns of a part are not those of its name")
        if positions and not (isinstance(step, str) and step == "drop"):
            total += columns(step, len(positions), width)
        if name in passed:  # what scikit-learn before 1.6 puts in the place of columns that stay as they are
            check(type(passed[name]).__name__ == "FunctionTransformer" and passed[name].func is None, "unknown columns")
            columns(passed[name], len(positions), width)
    check(len({name for name, _, _ in parts}) == len(parts), "two parts have one name")
    check(total > 0, "ColumnTransformer must keep a column")
    return total


def _positions(chosen: Any, n: int, names: Any) -> list[int]:
    """The columns that a part has: given by name, position, mask or slice."""
    chosen = list(chosen) if isinstance(chosen, np.ndarray) else chosen
    if isinstance(chosen, slice):
        check(all(x is None or type(x) is int for x in (chosen.start, chosen.stop, chosen.step)), "unknown columns")
        return list(range(n))[chosen]
    check(isinstance(chosen, list), "the columns of a part must be a list")
    if all(isinstance(item, (bool, np.bool_)) for item in chosen):
        check(len(chosen) in (0, n), "a choice of columns must have one answer for each")
        return [k for k, is_in in enumerate(chosen) if is_in]
    if all(isinstance(item, str) for item in chosen):
        check(names is not None, "columns are chosen by name, but have none")
        position = {name: k for k, name in enumerate(names)}
        check(all(name in position for name in chosen), "a part has a column that does not exist")
        return [position[name] for name in chosen]
    check(
        all(isinstance(item, (int, np.integer)) and -n <= item < n for item in chosen), "a column that does not exist"
    )
    return [int(item) % n for item in chosen]


def _one_hot(model: Any, n: int, width: Width) -> int:
    sizes = _encoder(model, n)
    known = ("error", "ignore", "infrequent_if_exist", "warn")
    check(model.handle_unknown in known and type(model.sparse_output) is bool, "OneHotEncoder: unknown setting")
    check(model.dtype in TYPES.values(), "OneHotEncoder: unknown type of numbers")
    dropped = model._drop_idx_after_grouping
    if dropped is not None:
        check(isinstance(dropped, np.ndarray) and dropped.dtype == object and dropped.shape == (n,), "unknown drop")
        check(all(k is None or (type(k) is int and 0 <= k < m) for k, m in zip(dropped, sizes, strict=True)), "drop")
        sizes = [m - (k is not None) for k, m in zip(dropped, sizes, strict=True)]
    # Positions are added up from these sizes and written to without a look.
    check(list(model._n_features_outs) == sizes and sum(sizes) > 0, "OneHotEncoder: columns do not add up")
    return sum(sizes)


def _ordinal(model: Any, n: int, width: Width) -> int:
    missing = model._missing_indices
    is_known = isinstance(missing, dict) and all(type(k) is int and type(v) is int for k, v in missing.items())
    check(is_known and all(0 <= k < n for k in missing), "OrdinalEncoder: unknown missing values")
    _encoder(model, n, missing)
    check(all(0 <= v < len(model.categories_[k]) for k, v in missing.items()), "OrdinalEncoder: missing values")
    check(model.handle_unknown in ("error", "use_encoded_value"), "OrdinalEncoder: unknown setting")
    check(model.dtype in TYPES.values(), "OrdinalEncoder: unknown type of numbers")
    fills = (model.unknown_value, model.encoded_missing_value)
    check(all(value is None or isinstance(value, (int, float)) for value in fills), "OrdinalEncoder: unknown value")
    return n


def _encoder(model: Any, n: int, missing: Any = ()) -> list[int]:
    """Numbers of codes of each feature, after rare categories have been put together."""
    categories = model.categories_
    check(isinstance(categories, list) and len(categories) == n, f"an encoder must have categories for {n} features")
    sizes = [_n_categories(each) for each in categories]
    check(type(model._infrequent_enabled) is bool, "an encoder must say whether rare categories share a code")
    if not model._infrequent_enabled:
        return sizes
    rare, maps = model._infrequent_indices, model._default_to_infrequent_mappings
    check(isinstance(rare, list) and isinstance(maps, list) and len(rare) == len(maps) == n, "rare categories")
    return [_n_codes(sizes[k] - (k in missing), rare[k], maps[k]) for k in range(n)]


def _n_categories(values: Any) -> int:
    check(isinstance(values, np.ndarray) and values.ndim == 1 and len(values) > 0, "categories must be a list")
    items = values.tolist()
    # A missing value stands last.
    known = items[:-1] if items[-1] is None or items[-1] != items[-1] else items
    if all(isinstance(item, str) for item in known):
        return len(values)
    # Numbers are looked up by bisection, whose answers are positions only where they are sorted.
    check(all(isinstance(item, (bool, int, float)) for item in known), "categories must be texts or numbers")
    check(all(a < b for a, b in pairwise(known)), "categories must be sorted")
    return len(values)


def _n_codes(size: int, rare: Any, mapping: Any) -> int:
    if rare is None:
        check(mapping is None, "rare categories do not fit")
        return size
    is_list = isinstance(rare, np.ndarray) and rare.dtype.kind == "i" and rare.ndim == 1 and 0 < len(rare) <= size
    check(
        is_list and isinstance(mapping, np.ndarray) and mapping.dtype.kind == "i", "rare categories must be positions"
    )
    check(rare.min() >= 0 and rare.max() < size and len(np.unique(rare)) == len(rare), "rare categories must exist")
    common = np.setdiff1d(np.arange(size), rare)
    expected = np.full(size, len(common))
    expected[common] = np.arange(len(common))
    check(np.array_equal(mapping, expected), "the codes of rare categories do not add up")
    return len(common) + 1


_TRANSFORMERS: Mapping[str, Callable[[Any, int, Width], int]] = {
    "Pipeline": _pipeline,
    "ColumnTransformer": _column_transformer,
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "PCA": _pca,
    "PolynomialFeatures": _polynomial,
    "FunctionTransformer": _function,
    "SimpleImputer": _imputer,
    "MissingIndicator": _indicator,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
}
