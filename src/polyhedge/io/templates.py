"""What `refresh` would train: parts of a predictor that do not predict, and what its parameters ask for.

A fit clones the constructor's parameters. Whatever stands there and is fitted already, such as a frozen model, would
work on rows that nobody has followed through it; whatever is large there costs time and memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from polyhedge.io.known import attributes_of
from polyhedge.io.roles_of_columns import MAX_DEGREE, check

__all__ = ["check_templates"]

# Of each parameter the most that a file may ask for; scikit-learn checks that they are numbers when it fits.
_MOST: Mapping[str, int] = {
    "n_estimators": 20_000,  # trees; half a million parts of a file, which may have a million
    "max_iter": 1_000_000,  # steps: a thousand are common, a hundred thousand are known (histogram boosting: trees)
    "max_fun": 1_000_000,  # likewise
    "degree": MAX_DEGREE,  # the number of products grows with this power of the columns
    "n_iter": 10_000,  # fits of a random search
    "cv": 1_000,  # fits of each candidate
    "alphas": 10_000,  # fits along a path, where it is a number
    "n_alphas": 10_000,  # the same in older versions of scikit-learn
    "iterated_power": 1_000,  # products with all rows; scikit-learn takes seven
    "n_oversamples": 10_000,  # columns of a matrix; scikit-learn takes ten
}
_MOST_CANDIDATES = 10_000
"""Of a grid, each of which is several fits; they are listed before the first one."""
_MOST_WEIGHTS = 10_000_000
"""Of a network, in all its layers: 80 megabytes, several times over while it is trained."""
_SETTINGS = {"kw_args", "inv_kw_args", "transform_input"}
# A search would set these without the looks that `make` takes at them: folders of pickles, processes, arguments.
_NOT_SEARCHED = ("memory", "n_jobs", "pre_dispatch", "init", *_SETTINGS)
_SEARCHED = {"param_grid", "param_distributions"}
_SIZES = {*_MOST, "hidden_layer_sizes"}


def check_templates(model: Any, checked: Collection[int]) -> None:
    """Raise ValueError unless all of `model` is either checked in its role or not fitted, and asks for little.

    `checked` has the identities of the parts that predict. In all others there may be nothing but parameters.

    Examples
    --------
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.multioutput import MultiOutputRegressor
    >>> check_templates(MultiOutputRegressor(Ridge()), ())
    >>> check_templates(MultiOutputRegressor(FrozenEstimator(Ridge().fit(np.eye(2), np.ones(2)))), ())
    Traceback (most recent call last):
        ...
    ValueError: a FrozenEstimator that a fit would clone needs trusted=
    """
    for part in _estimators(model):
        name = type(part).__name__
        if id(part) not in checked:
            check(name != "FrozenEstimator", "a FrozenEstimator that a fit would clone needs trusted=")
            there = [key for key in attributes_of(name) if key in vars(part)]
            check(not there, f"{name} with {', '.join(there)[:80]}, which nothing predicts with")
        _check_parameters(name, vars(part))


def _estimators(item: Any) -> Iterator[Any]:
    """All estimators in an object that `make` has made, each as often as it stands there."""
    if isinstance(item, BaseEstimator):
        yield item
        for value in vars(item).values():
            yield from _estimators(value)
    elif isinstance(item, dict):
        for value in item.values():
            yield from _estimators(value)
    elif isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.dtype == object):
        for value in np.ravel(item) if isinstance(item, np.ndarray) else item:
            yield from _estimators(value)


def _check_parameters(name: str, state: Mapping[str, Any]) -> None:
    for key in _SIZES & state.keys():
        _check_size(name, key, state[key])
    for key in _SEARCHED & state.keys():
        _check_grids(name, key, state[key])
    if "init" in state:
        # Compiled code adds to an array of the start's own making.
        start = state["init"]
        is_constant = start is None or (isinstance(start, str) and start == "zero")
        check(is_constant or type(start).__name__ == "DummyRegressor", f"{name}: a start from a model needs trusted=")
    settings = _SETTINGS & state.keys()
    check(all(state[key] is None for key in settings), f"{name} with settings of its own needs trusted=")


def _check_grids(name: str, kind: str, grids: Any) -> None:
    for grid in grids if isinstance(grids, (list, tuple)) else [grids]:
        check(isinstance(grid, dict), f"{name}: a grid must be a dictionary")
        lists = {str(key).rsplit("__", 1)[-1]: values for key, values in grid.items()}
        for key, values in lists.items():
            check(key not in _NOT_SEARCHED, f"{name}: a search over {key} needs trusted=")
            check(isinstance(values, (list, tuple, np.ndarray)), f"{name}: a grid must have lists")
            for value in values:
                _check_size(name, key, value)
        n = math.prod(len(values) for values in grid.values())
        if kind == "param_grid":  # a random search draws from its grid, and does not list it
            _check_most(n, _MOST_CANDIDATES, f"{name}: {n} candidates")


def _check_size(name: str, key: str, value: Any) -> None:
    is_list = isinstance(value, (list, tuple, np.ndarray))
    items = np.ravel(value).tolist() if isinstance(value, np.ndarray) else value if is_list else [value]
    # What is no number is scikit-learn's to refuse.
    numbers = [math.inf if n != n else n for n in items if isinstance(n, (int, float))]
    what = f"{name}: {key}={str(value)[:80]}"
    if key == "hidden_layer_sizes":
        _check_most(sum(a * b for a, b in zip([1, *numbers], [*numbers, 1], strict=True)), _MOST_WEIGHTS, what)
    if key in _MOST and not (is_list and key in ("cv", "alphas")):  # such lists are as long as the file has them
        is_trees = (name, key) == ("HistGradientBoostingRegressor", "max_iter")
        _check_most(max(numbers, default=0), _MOST["n_estimators" if is_trees else key], what)


def _check_most(asked: float, most: int, what: str) -> None:
    check(asked <= most, f"{what} is more than a file may ask for without trusted= ({most})")
