"""Fitted estimators to records, and back: objects of the table's classes with nothing but checked data in them."""

from __future__ import annotations

import inspect
import os
import re
from collections import UserList
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from polyhedge.io.known import TYPES, attributes_of, function_named, known_classes, name_of_function
from polyhedge.io.records import Named, Objects, Record, Unreadable, Work, is_plain_array
from polyhedge.io.tree_checks import checked_boosted_tree, checked_tree

_DTYPES = (
    *("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    *("bool", "object"),
)
_DRAWS = ("random_state", "_random_state")
_OUTPUT = "_sklearn_output_config"
# Of most classes the constructor's parameters are cloned by a fit; these predict with some, or clone others as well.
_TEMPLATES = {
    "Pipeline": (),
    "FrozenEstimator": (),
    "ColumnTransformer": ("transformers", "remainder", "_remainder"),
    **dict.fromkeys(
        ("GridSearchCV", "RandomizedSearchCV"), ("estimator", "param_grid", "param_distributions", "best_params_")
    ),
}
_PRE_DISPATCH = re.compile(r"all|\d{0,4}\*?n_jobs|\d{1,6}")


class NotPlainError(ValueError):
    """An object, or a setting of one, is not on the list of what can be stored as plain data."""


def to_record(estimator: Any) -> Record:
    """The record of a fitted estimator of the table; `NotPlainError` names what is not in it."""
    record = _plain(estimator)
    if not isinstance(record, Record):
        raise NotPlainError(_type_name(estimator))
    return record


def _plain(item: Any) -> Any:
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    if isinstance(item, (np.bool_, np.integer, np.floating)):
        return item.item()
    if isinstance(item, np.ndarray):
        return _plain_array(item)
    if isinstance(item, UserList):  # how scikit-learn 1.5 to 1.7 keeps the columns of a remainder
        item = list(item.data)
    if type(item) in (list, tuple):
        return type(item)(_plain(value) for value in item)
    if type(item) is dict and all(isinstance(key, (str, int, np.integer)) for key in item):
        return {key if isinstance(key, str) else int(key): _plain(value) for key, value in item.items()}
    if isinstance(item, slice):
        return slice(*(None if n is None else int(n) for n in (item.start, item.stop, item.step)))
    if isinstance(item, np.dtype) and item.name in _DTYPES:
        return Named("dtype", item.name)
    if isinstance(item, type) and TYPES.get(_name_of(item)) is item:
        return Named("type", _name_of(item))
    if (name := name_of_function(item)) is not None:
        return Named("function", name)
    if known_classes().get(type(item).__name__) is type(item):
        return Record(type(item).__name__, _state_of(item))
    raise NotPlainError(_type_name(item))


def _plain_array(array: Any) -> Any:
    if array.dtype.kind in "OU" and type(array) is np.ndarray and array.ndim <= 2:
        items = [_plain(item) for item in array.ravel().tolist()]
        return Objects(items, tuple(array.shape), is_text=array.dtype.kind == "U")
    if type(array) is not np.ndarray or not is_plain_array(array):
        raise NotPlainError(f"numpy.ndarray of {str(array.dtype)[:80]}")
    return array


def _state_of(item: Any) -> dict[str, Any]:
    """Parameters that differ from their defaults, and the fitted attributes of the table."""
    name = type(item).__name__
    if name == "Tree":
        _, (n_features, n_classes, n_outputs), state = item.__reduce__()
        arguments = {"n_features": int(n_features), "n_classes": n_classes, "n_outputs": int(n_outputs)}
        return {key: _plain(value) for key, value in {**arguments, **state}.items()}
    attributes = vars(item)
    if attributes.get(_OUTPUT, {}).get("transform", "default") != "default":
        raise NotPlainError(f"{name} with set_output(transform={attributes[_OUTPUT]['transform']!r})")
    kept = {key: attributes[key] for key in attributes_of(name) if key in attributes}
    parameters = _parameters_of(item) if isinstance(item, BaseEstimator) else {}
    return {key: _plain(value) for key, value in {**parameters, **kept}.items()}


def _parameters_of(item: Any) -> dict[str, Any]:
    parameters = item.get_params(deep=False)
    if "memory" in parameters:
        parameters["memory"] = None  # a folder of this machine
    if isinstance(parameters.get("random_state"), (np.random.RandomState, np.random.Generator)):
        parameters["random_state"] = None  # its state has moved on; predictions draw nothing
    if "transformers" in parameters and hasattr(item, "_columns"):
        # What chose the columns is a function; which columns it chose is data.
        chosen = zip(parameters["transformers"], item._columns, strict=True)
        parameters["transformers"] = [
            (name, step, columns if callable(given) else given) for (name, step, given), columns in chosen
        ]
    cls: Any = type(item)
    defaults = _defaults(cls)
    return {key: value for key, value in parameters.items() if not _is_default(value, defaults.get(key, ...))}


@cache
def _defaults(cls: type) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(cls).parameters.items()}


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and isinstance(value, (bool, int, str, float, type(None))) and value == default


def from_record(record: Record) -> Any:
    """The object that a record describes; its fitness for a role is for `roles` to check."""
    return _Maker().make(record, 0)


class _Maker:
    """One reading: a count of everything that is made, with its multiplicity."""

    def __init__(self) -> None:
        self.work = Work()

    def make(self, record: Record, depth: int, *, is_template: bool = False) -> Any:
        """The object; a template, which a fit would clone, without what it was fitted to, as its clone would be."""
        if record.name not in known_classes():
            raise NotPlainError(record.name[:200])
        cls = known_classes()[record.name]
        _check_output(record)
        names = {*(() if is_template else attributes_of(record.name)), *_parameter_names(cls)}
        if record.name == "Tree":
            names |= {"n_features", "n_classes", "n_outputs"}
        known = {key: value for key, value in record.state.items() if key in names}
        cloned = set(known if is_template else _TEMPLATES.get(record.name, _parameter_names(cls)))
        state = {
            key: self.value(_readable(key, value, record.state), depth + 1, is_template=key in cloned)
            for key, value in known.items()
        }
        if record.name == "Tree":
            return checked_tree(state)
        if record.name == "TreePredictor":
            return checked_boosted_tree(state)
        parameters = {key: _checked_parameter(key, state.pop(key)) for key in _parameter_names(cls) if key in state}
        if record.name == "ColumnTransformer":
            parameters.pop("n_jobs", None)  # it would start processes, and a file has no say in that
        made = cls(**parameters)
        vars(made).update(state)
        return _completed(made, state)

    def value(self, item: Any, depth: int, *, is_template: bool) -> Any:
        self.work.step(depth)
        if isinstance(item, Record):
            return self.make(item, depth, is_template=is_template)
        if isinstance(item, Unreadable):
            raise NotPlainError(item.name[:200])
        if isinstance(item, Named):
            return _named(item)
        if isinstance(item, Objects):
            return item.array([self.value(each, depth + 1, is_template=is_template) for each in item.items])
        if isinstance(item, (list, tuple)):
            return type(item)(self.value(each, depth + 1, is_template=is_template) for each in item)
        if isinstance(item, dict):
            return {key: self.value(each, depth + 1, is_template=is_template) for key, each in item.items()}
        return item


@cache
def _parameter_names(cls: Any) -> list[str]:
    return cls._get_param_names() if issubclass(cls, BaseEstimator) else []


def _check_output(record: Record) -> None:
    config = record.state.get(_OUTPUT, {})
    if not isinstance(config, dict) or config.get("transform", "default") != "default":
        raise NotPlainError(f"{record.name} with set_output")


def _readable(key: str, value: Any, state: dict[str, Any]) -> Any:
    """Without a generator of random numbers, and with the columns that a function chose in its place."""
    if key in _DRAWS and isinstance(value, Unreadable):
        return None
    if key == "transformers" and isinstance(state.get("_columns"), list):
        parts = zip(value, state["_columns"], strict=True)
        return [
            (name, step, own if isinstance(given, (Unreadable, Record)) else given)
            for (name, step, given), own in parts
        ]
    return value


def _named(item: Named) -> Any:
    if item.kind == "dtype" and item.name in _DTYPES:
        return np.dtype(item.name)
    if item.kind == "type" and item.name in TYPES:
        return TYPES[item.name]
    if item.kind == "function":
        return function_named(item.name)
    raise NotPlainError(item.name[:200])


def _checked_parameter(name: str, value: Any) -> Any:
    """Parameters that reach beyond the arrays: threads, folders, and texts that are evaluated."""
    if name == "memory":
        return None
    if name == "n_jobs" and value is not None:
        if type(value) is not int:
            raise ValueError(f"n_jobs must be a whole number or None, got {value!r}")
        return max(-1, min(value, os.cpu_count() or 1))
    if name == "pre_dispatch" and not (isinstance(value, (str, int)) and _PRE_DISPATCH.fullmatch(str(value))):
        raise ValueError(f"pre_dispatch must be a number or a multiple of n_jobs, got {str(value)[:80]!r}")
    return value


def _completed(made: Any, state: dict[str, Any]) -> Any:
    """With the attributes that follow from the parameters and are not stored."""
    name = type(made).__name__
    if name in ("RandomForestRegressor", "ExtraTreesRegressor") and "estimators_" in state:
        made.estimator_ = made.estimator
    if name in ("GradientBoostingRegressor", "HistGradientBoostingRegressor") and "n_trees_per_iteration_" in state:
        if not isinstance(made.loss, str):
            raise ValueError(f"the loss of {name} must be a name")
        made._loss = made._get_loss(sample_weight=None)
    if name == "HistGradientBoostingRegressor":
        made._scorer = None
    if name == "SimpleImputer" and "_fit_dtype" in state:
        vars(made).setdefault("_fill_dtype", made._fit_dtype)  # scikit-learn has it since 1.8
    return made


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def _type_name(item: Any) -> str:
    """The name that `trusted` would have to hold."""
    named = item if isinstance(item, type) or (callable(item) and hasattr(item, "__name__")) else type(item)
    return f"{getattr(named, '__module__', 'builtins')}.{named.__name__}"
