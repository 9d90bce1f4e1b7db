r"""How far residuals spread at a row, predicted from its features: some contexts are harder than others.

$$\{u : W (u - \hat f(x)) / s(x) + b \le r\}$$

One shape serves all contexts, scaled by s(x). The conformal radius is set on residuals divided by their spread, so that
the guarantee is the same for any s that was learned without the calibration rows. The levels of s are few ($2^{k/4}$),
because each of them is a set of its own, and decisions for many contexts are fast for one set.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from polyhedge._validation import Array, Indices, numbers_of
from polyhedge.solvers.scaling import power_of_two

__all__ = ["Spread"]

_LEVELS_AN_OCTAVE = 4
_MOST_OCTAVES = 3.0
_MAX_DEPTH = 16
_N_TREES = 32
_FEATURES_A_SPLIT = 32
_BLOCK = 4096
# Trees work in single precision.
_LARGEST = 1e30
_LEAST = 1e-3


@dataclass(frozen=True, eq=False)
class Spread:
    """A small forest that predicts the size of residuals, relative to their mean size.

    Attributes
    ----------
    names : names of the numeric and boolean columns of X that it looks at, where X was a data frame.
    columns : their positions. The prediction itself is looked at too, after them.
    fill : values that stand for missing ones.
    roots : (n_trees,) first node of each tree.
    feature, threshold, left, right, value : (n_nodes,)
        The trees: go left where the feature is at most the threshold. A leaf has itself as both children.
    depth : steps from a root to the farthest leaf.
    power : exponent of the forest's prediction; below 1, contexts differ less.
    """

    names: tuple[str, ...]
    columns: Indices
    fill: Array = field(repr=False)
    roots: Indices = field(repr=False)
    feature: Indices = field(repr=False)
    threshold: Array = field(repr=False)
    left: Indices = field(repr=False)
    right: Indices = field(repr=False)
    value: Array = field(repr=False)
    depth: int
    power: float = 1.0

    def __post_init__(self) -> None:
        n_nodes, n_features = len(self.value), len(self.fill)
        nodes = (self.feature, self.threshold, self.left, self.right, self.value)
        if any(part.shape != (n_nodes,) for part in nodes) or len(self.columns) > n_features or not len(self.roots):
            raise ValueError("The nodes of a spread must be arrays of one length.")
        if self.columns.dtype.kind != "i" or self.columns.ndim != 1 or (self.columns < 0).any():
            raise ValueError("The columns of a spread must be positions.")
        for part, limit in ((self.feature, n_features), *((p, n_nodes) for p in (self.roots, self.left, self.right))):
            if part.dtype.kind != "i" or part.ndim != 1 or part.min() < 0 or part.max() >= limit:
                raise ValueError("The nodes of a spread must refer to features and nodes that exist.")
        if self.names and len(self.names) != len(self.columns):
            raise ValueError("A spread must have a name for each of its columns.")
        if not (self.value > 0).all() or not 0 <= self.depth <= _MAX_DEPTH or not 0 < self.power <= 1:
            raise ValueError("A spread must have positive values, a small depth and a power in (0, 1].")

    @classmethod
    def fit(cls, X: Any, centers: Array, sizes: Array, *, min_leaf: int, seed: int) -> Spread:
        """Learn from rows X, predictions (n, d) and sizes of their residuals (n,); learning rows only.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(400, 1))
        >>> sizes = np.where(X[:, 0] > 0.5, 3.0, 1.0)
        >>> Spread.fit(X, np.zeros((400, 1)), sizes, min_leaf=20, seed=0)([[0.1], [0.9]], np.zeros((2, 1)))
        array([0.5       , 1.41421356])
        """
        names, columns = _numeric_columns(X)
        matrix = np.hstack([_numbers(X, names, columns), centers])
        fill = np.array([_median(column) for column in matrix.T])
        matrix = _ready(matrix, fill)
        forest = RandomForestRegressor(
            _N_TREES,
            min_samples_leaf=min_leaf,
            max_depth=_MAX_DEPTH,
            max_features=min(matrix.shape[1], _FEATURES_A_SPLIT),
            random_state=seed,
        )
        # In single precision, and with a least distance between thresholds: columns must count from their middle.
        unit = np.array([power_of_two(size) for size in np.abs(matrix - fill).mean(axis=0)])
        forest.fit((matrix - fill) / unit, sizes / (sizes.mean() or 1.0))
        nodes = _joined([tree.tree_ for tree in forest.estimators_])
        nodes["threshold"] = fill[nodes["feature"]] + unit[nodes["feature"]] * nodes["threshold"]
        return cls(names, columns, fill, **nodes)

    def __call__(self, X: Any, centers: Array) -> Array:
        """Levels (N,) at rows X with their predictions (N, d)."""
        matrix = _ready(np.hstack([_numbers(X, self.names, self.columns), centers]), self.fill)
        sizes = np.empty(len(matrix))
        for k in range(0, len(matrix), _BLOCK):
            sizes[k : k + _BLOCK] = self._forest(matrix[k : k + _BLOCK])
        octaves = np.clip(self.power * np.log2(sizes), -_MOST_OCTAVES, _MOST_OCTAVES)
        return np.asarray(2.0 ** (np.round(octaves * _LEVELS_AN_OCTAVE) / _LEVELS_AN_OCTAVE))

    def _forest(self, matrix: Array) -> Array:
        rows = np.arange(len(matrix))[:, None]
        node = np.tile(self.roots, (len(matrix), 1))
        for _ in range(self.depth):
            goes_left = matrix[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return np.asarray(self.value[node].mean(axis=1))

    def summary(self) -> dict[str, Any]:
        """What it looks at and how strongly it scales, without its trees."""
        return {"names": list(self.names), "n_columns": len(self.columns), "power": self.power}

    def state(self) -> dict[str, Any]:
        """The fields by name: `Spread(**state)` is the same."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _numeric_columns(X: Any) -> tuple[tuple[str, ...], Indices]:
    """Numeric and boolean columns of a data frame by name and position; all of an array; none of anything else."""
    if not hasattr(X, "select_dtypes"):
        numbers = numbers_of(X)
        return (), np.arange(0 if numbers is None else numbers.shape[1])
    kinds = {"include": ["number", "bool"], "exclude": ["timedelta"]}
    columns = np.flatnonzero([X.iloc[:, [j]].select_dtypes(**kinds).shape[1] for j in range(X.shape[1])])
    names = [X.columns[j] for j in columns]
    is_named = all(isinstance(name, str) for name in names) and len(set(X.columns)) == len(X.columns)
    return tuple(names) if is_named else (), columns


def _numbers(X: Any, names: tuple[str, ...], columns: Indices) -> Array:
    """These columns of X (N, k) as numbers."""
    if not len(columns):
        return np.zeros((X.shape[0] if hasattr(X, "shape") else len(X), 0))
    if hasattr(X, "columns") and names:
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"X has no column {', '.join(missing)}, from which the spread is predicted.")
        return np.asarray(X[list(names)].to_numpy(dtype=np.float64, na_value=np.nan))
    n_columns = np.shape(X)[1] if len(np.shape(X)) == 2 else 0
    if columns.max() >= n_columns:
        raise ValueError(f"The spread is predicted from column {columns.max()}, but X has {n_columns} columns.")
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, columns].to_numpy(dtype=np.float64, na_value=np.nan))
    rows = X.tocsr()[:, columns].toarray() if hasattr(X, "tocsr") else np.asarray(X)[:, columns]
    return np.asarray(rows, dtype=np.float64)


def _median(column: Array) -> float:
    known = column[np.isfinite(column)]
    return float(np.median(known)) if len(known) else 0.0


def _ready(matrix: Array, fill: Array) -> Array:
    return np.clip(np.where(np.isnan(matrix), fill, matrix), -_LARGEST, _LARGEST)


def _joined(trees: list[Any]) -> dict[str, Any]:
    """All trees in one list of nodes; a leaf has itself as both children."""
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    parts: dict[str, list[Array]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    for tree, start in zip(trees, starts, strict=False):
        own = np.arange(tree.node_count)
        is_leaf = tree.children_left < 0
        parts["feature"].append(np.where(is_leaf, 0, tree.feature))
        parts["threshold"].append(np.where(is_leaf, 0.0, tree.threshold))
        parts["left"].append(start + np.where(is_leaf, own, tree.children_left))
        parts["right"].append(start + np.where(is_leaf, own, tree.children_right))
        parts["value"].append(np.maximum(tree.value[:, 0, 0], _LEAST))
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    return {**joined, "roots": starts[:-1], "depth": max(tree.max_depth for tree in trees)}
