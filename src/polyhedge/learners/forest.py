"""A random forest as plain arrays, so that it can be stored, sent and checked as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, check_count, numbers_of

_MAX_DEPTH, _MAX_TREES = 16, 64
"""What a file may ask for: deeper trees would describe single rows, and every tree costs time at every row."""
_BLOCK = 16_384
"""Rows that go through the forest together, so that memory does not grow with their number."""
_LARGEST = 1e30
"""Larger features count as this: trees are grown in single precision."""


@stored("forest")
@dataclass(frozen=True, eq=False)
class Forest:
    """The mean of regression trees of several outputs on the numeric columns of X and on the prediction.

    Attributes
    ----------
    names, columns : numeric and boolean columns of X by name (data frames) and position; the prediction comes after
        them.
    fill : values that stand for missing ones.
    roots : (n_trees,) first node of each tree.
    feature, threshold, left, right : (n_nodes,)
        Rows go left where the feature is at most the threshold. A leaf has itself as both children.
    value : (n_nodes, n_outputs)
    depth : steps from a root to the farthest leaf.
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

    def __post_init__(self) -> None:
        """Raise unless the nodes fit together, as those of a damaged file may not."""
        name, n_nodes, n_features = type(self).__name__.lower(), len(self.value), len(self.fill)
        nodes = (self.feature, self.threshold, self.left, self.right)
        if any(part.shape != (n_nodes,) for part in nodes) or len(self.columns) > n_features or not len(self.roots):
            raise ValueError(f"The nodes of a {name} must be arrays of one length.")
        if self.columns.dtype.kind != "i" or self.columns.ndim != 1 or (self.columns < 0).any():
            raise ValueError(f"The columns of a {name} must be positions.")
        if self.fill.ndim != 1 or any(len(set(each)) < len(each) for each in (self.names, self.columns.tolist())):
            raise ValueError(f"A {name} must look at each of its columns once, and have one value that fills its gaps.")
        if self.names and len(self.names) != len(self.columns):
            raise ValueError(f"A {name} must have a name for each of its columns.")
        links = ((self.feature, n_features), *((part, n_nodes) for part in (self.roots, self.left, self.right)))
        if any(p.dtype.kind != "i" or p.ndim != 1 or p.min() < 0 or p.max() >= limit for p, limit in links):
            raise ValueError(f"The nodes of a {name} must refer to features and nodes that exist.")
        check_count(self.depth, "depth", minimum=0)
        if self.value.ndim != 2 or not np.isfinite(self.value).all():
            raise ValueError(f"A {name} must have finite values, a row for each node.")
        if self.depth > _MAX_DEPTH or len(self.roots) > _MAX_TREES:
            raise ValueError(f"A {name} must have at most {_MAX_TREES} trees of depth {_MAX_DEPTH}.")

    @classmethod
    def fit(
        cls,
        X: Any,
        centers: Array,
        targets: Array,
        *,
        min_leaf: int,
        seed: int,
        n_trees: int = 30,
        max_depth: int = 12,
        max_features: float | int = 0.5,
        rows_a_tree: int | None = None,
    ) -> tuple[Self, Array]:
        """A forest for targets (n, k) at rows X with predictions (n, d), and out-of-bag predictions (n, k).

        Each tree draws as many rows as there are, or `rows_a_tree` if that is less. A split looks at `max_features`
        columns, or at that share of them.
        """
        names, columns = numeric_columns(X)
        matrix = np.hstack([_numbers(X, names, columns), centers])
        fill = np.array([float(np.median(known)) if len(known) else 0.0 for known in map(_known, matrix.T)])
        matrix = _filled(matrix, fill)
        max_features = min(max_features, matrix.shape[1]) if isinstance(max_features, int) else max_features
        # Trees see integers: splits that part the rows alike then tie exactly, in all units of columns and targets.
        step, size = _grid(matrix, fill), _grid(targets, np.zeros(targets.shape[1]))
        rows, steps = np.round((matrix - fill) / step).astype(np.float32), np.round(targets / size)
        if not (np.isfinite(rows).all() and np.isfinite(steps).all()):
            raise ValueError(
                "A forest learns from finite numbers, got others. Check predictions and outcomes for NaN and inf."
            )
        # The trees of scikit-learn's forest for this seed, one by one: its own handling adds a third to their time.
        n, draws, of_tree = len(rows), np.random.RandomState(seed), np.random.RandomState(seed)
        settings = {"min_samples_leaf": min_leaf, "max_depth": max_depth, "max_features": max_features}
        trees, total, count = [], np.zeros(targets.shape), np.zeros((n, 1))
        with config_context(skip_parameter_validation=True, assume_finite=True):
            for _ in range(n_trees):
                tree_seed = int(draws.randint(np.iinfo(np.int32).max))
                of_tree.seed(tree_seed)
                drawn = of_tree.randint(0, n, min(rows_a_tree or n, n))
                weights = np.bincount(drawn, minlength=n).astype(np.float64)
                of_tree.seed(tree_seed)
                model = DecisionTreeRegressor(**settings, random_state=of_tree)
                tree = model.fit(rows, steps, sample_weight=weights, check_input=False).tree_
                trees.append(tree)
                others = np.flatnonzero(weights == 0)
                total[others] += tree.value[tree.apply(rows[others]), :, 0]
                count[others] += 1
        nodes = _joined(trees)
        nodes["threshold"] = fill[nodes["feature"]] + step[nodes["feature"]] * nodes["threshold"]
        nodes["value"] = nodes["value"] * size
        return cls(names, columns, fill, **nodes), total / np.maximum(count, 1) * size

    def __call__(self, X: Any, centers: Array) -> Array:
        """Predictions (N, k)."""
        blocks = [self.value[self._leaves(block)].mean(axis=1) for block in self._blocks(X, centers)]
        return np.vstack([np.zeros((0, self.value.shape[1])), *blocks])

    def leaves(self, X: Any, centers: Array) -> Indices:
        """The node (N, n_trees) at which each row ends in each tree."""
        blocks = [self._leaves(block) for block in self._blocks(X, centers)]
        return np.vstack([np.zeros((0, len(self.roots)), dtype=np.int64), *blocks])

    def fits(self, n_outcomes: int, n_outputs: int | None = None) -> bool:
        """Whether it looks at the prediction of so many outcomes, and has so many outputs."""
        is_wide = n_outputs is None or self.value.shape[1] == n_outputs
        return len(self.fill) == len(self.columns) + n_outcomes and is_wide

    def _blocks(self, X: Any, centers: Array) -> Iterator[Array]:
        matrix = _filled(np.hstack([_numbers(X, self.names, self.columns), centers]), self.fill)
        return (matrix[k : k + _BLOCK] for k in range(0, len(matrix), _BLOCK))

    def _leaves(self, matrix: Array) -> Indices:
        rows, node = np.arange(len(matrix))[:, None], np.tile(self.roots, (len(matrix), 1))
        for _ in range(self.depth):
            goes_left = matrix[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return node

    @cached_property
    def has_ends(self) -> bool:
        """Whether every row ends in a leaf: children stand behind their parents, within `depth` of the root."""
        node, n = np.arange(len(self.left)), len(self.left)
        if self.roots[0] != 0 or (np.diff(self.roots) <= 0).any():
            return False
        end = np.append(self.roots[1:], n)[np.searchsorted(self.roots, node, side="right") - 1]
        is_leaf, children = (self.left == node) & (self.right == node), np.stack([self.left, self.right])
        if not (is_leaf | ((children > node) & (children < end)).all(axis=0)).all():
            return False
        level = np.zeros(n, dtype=np.int64)
        for parent in np.flatnonzero(~is_leaf).tolist():
            level[children[:, parent]] = np.maximum(level[children[:, parent]], level[parent] + 1)
        return bool(level.max(initial=0) <= self.depth)


def numeric_columns(X: Any) -> tuple[tuple[str, ...], Indices]:
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


def _known(column: Array) -> Array:
    return column[np.isfinite(column)]


def _filled(matrix: Array, fill: Array) -> Array:
    """The matrix without gaps, within what single precision holds."""
    return np.clip(np.where(np.isnan(matrix), fill, matrix), -_LARGEST, _LARGEST)


def _grid(columns: Array, middle: Array) -> Array:
    """The step (k,) in which each column (n, k) is counted from its middle: fine, but above rounding."""
    usual, largest = np.abs(columns - middle).mean(axis=0), np.abs(columns).max(axis=0)
    step = np.maximum(usual * 2.0**-20, largest * 2.0**-44)
    return np.where(step > 0, step, 1.0)


def _joined(trees: list[Any]) -> dict[str, Any]:
    """All trees in one list of nodes; a leaf has itself as both children."""
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    parts: dict[str, list[Array]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    for tree, start in zip(trees, starts, strict=False):
        node, is_leaf = np.arange(tree.node_count), tree.children_left < 0
        parts["feature"].append(np.where(is_leaf, 0, tree.feature))
        parts["threshold"].append(np.where(is_leaf, 0.0, tree.threshold))
        parts["left"].append(start + np.where(is_leaf, node, tree.children_left))
        parts["right"].append(start + np.where(is_leaf, node, tree.children_right))
        parts["value"].append(tree.value[:, :, 0])
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    return {**joined, "roots": starts[:-1], "depth": max(tree.max_depth for tree in trees)}
