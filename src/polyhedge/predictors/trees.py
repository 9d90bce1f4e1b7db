"""Regression trees as plain arrays: they can be stored, sent and checked as data, and NumPy walks through them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask, numbers_of
from polyhedge.predictors.columns import numbers_in

_PAIRS = 65_536
"""Pairs of a row and a tree that are walked together: what is needed in between stays in the cache."""
_DEEPEST = 4096
"""Nodes from a root to a leaf: a file with a longer chain would keep a row busy for minutes."""
_LARGEST = 1e30
"""Larger features count as this: trees are grown in single precision."""


@stored("trees")
@dataclass(frozen=True, eq=False)
class Trees:
    """Regression trees of several outputs: at an inner node a row goes left if its feature is at most the threshold.

    Attributes
    ----------
    n_trees : the first so many nodes are the roots.
    feature, threshold, child : (n_nodes,) of each node; the right child stands behind the left one, which is `child`. A
        leaf is its own child.
    value : (n_nodes, n_outputs) outputs of the leaves.

    Examples
    --------
    >>> at = np.array
    >>> trees = Trees(1, at([0, 0, 0]), at([0.5, 0, 0]), at([1, 1, 2]), at([[0.0], [3.0], [4.0]]))
    >>> trees.sums(np.array([[0.5], [0.6]])).ravel()
    array([3., 4.])
    """

    n_trees: int
    feature: Indices = field(repr=False)
    threshold: Array = field(repr=False)
    child: Indices = field(repr=False)
    value: Array = field(repr=False)

    def __post_init__(self) -> None:
        n, nodes = len(self.value), (self.feature, self.threshold, self.child)
        if any(part.shape != (n,) for part in nodes) or self.value.ndim != 2 or not 0 < self.n_trees <= n:
            raise ValueError("The nodes of trees must be arrays of one length.")
        if any(part.dtype.kind != "i" or part.min() < 0 for part in (self.feature, self.child)):
            raise ValueError("The nodes of trees must refer to features and nodes by their numbers.")
        own, inner = np.arange(n), ~self._is_leaf
        linked = np.concatenate([own[: self.n_trees], self.child[inner], self.child[inner] + 1])
        if (self.child[inner] < own[inner]).any() or not np.array_equal(np.sort(linked), own):
            raise ValueError("Every node of trees must be a root, or the child of one node that stands before it.")
        if self._depth > _DEEPEST:
            raise ValueError(f"Trees must be at most {_DEEPEST} nodes deep.")

    @property
    def n_features(self) -> int:
        """The least number of columns that rows must have."""
        return int(self.feature.max()) + 1

    def sums(self, matrix: Array) -> Array:
        """The sum (N, n_outputs) of all trees' values at the rows of a matrix (N, p)."""
        step, total = max(_PAIRS // self.n_trees, 1), np.zeros((len(matrix), self.value.shape[1]))
        for k in range(0, len(matrix), step):
            total[k : k + step] = self.value.take(self._leaves(matrix[k : k + step]), axis=0).sum(axis=0)
        return total

    def _leaves(self, matrix: Array) -> Indices:
        """The leaf (n_trees, N) in which each row ends in each tree; all pairs take a step together."""
        flat, (n, p) = np.ascontiguousarray(matrix, dtype=np.float64).ravel(), matrix.shape
        node, start = np.repeat(np.arange(self.n_trees), n), np.tile(np.arange(0, n * p, p), self.n_trees)
        for _ in range(self._depth):
            is_right = flat.take(start + self.feature.take(node)) > self._limit.take(node)
            node = self.child.take(node) + is_right
        return node.reshape(self.n_trees, n)

    @cached_property
    def _depth(self) -> int:
        """Steps from a root to the deepest leaf."""
        level, depth = np.arange(self.n_trees), 0
        while depth <= _DEEPEST and len(level := level[~self._is_leaf[level]]):
            level, depth = np.concatenate([self.child[level], self.child[level] + 1]), depth + 1
        return depth

    @cached_property
    def _is_leaf(self) -> Mask:
        return np.asarray(self.child == np.arange(len(self.child)))

    @cached_property
    def _limit(self) -> Array:
        """Thresholds, infinite at leaves: no row leaves a leaf."""
        return np.where(self._is_leaf, np.inf, self.threshold)


def joined(trees: list[Any]) -> dict[str, Any]:
    """The fields of `Trees` for the fitted trees (`tree_`) of scikit-learn's regressors."""
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    left = np.concatenate([tree.children_left + start for tree, start in zip(trees, starts, strict=False)])
    right = np.concatenate([tree.children_right + start for tree, start in zip(trees, starts, strict=False)])
    inner, n_trees = np.flatnonzero(np.concatenate([tree.children_left >= 0 for tree in trees])), len(trees)
    place = np.empty(len(left), dtype=np.int64)  # of each node in the new order: roots, then pairs of children
    place[starts[:-1]] = np.arange(n_trees)
    place[left[inner]] = np.arange(n_trees, len(left), 2)
    place[right[inner]] = place[left[inner]] + 1
    order = np.argsort(place)
    feature, threshold = (np.concatenate([getattr(tree, name) for tree in trees]) for name in ("feature", "threshold"))
    child = np.arange(len(left))
    child[place[inner]] = place[left[inner]]
    is_inner = child > np.arange(len(left))
    return {
        "n_trees": n_trees,
        "feature": np.where(is_inner, feature[order], 0),
        "threshold": np.where(is_inner, threshold[order], 0.0),
        "child": child,
        "value": np.concatenate([tree.value[:, :, 0] for tree in trees])[order],
    }


@stored("forest")
@dataclass(frozen=True, eq=False, kw_only=True)
class Forest(Trees):
    """The mean of regression trees of several outputs on the numeric columns of X and on the prediction.

    Attributes
    ----------
    n_trees, feature, threshold, child, value : as in `Trees`.
    names, columns : numeric and boolean columns of X by name (data frames) and position; the prediction comes after
        them.
    fill : values that stand for missing ones.
    """

    names: tuple[str, ...]
    columns: Indices
    fill: Array = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fill.ndim != 1 or max(self.n_features, len(self.columns)) > len(self.fill):
            raise ValueError("A forest must have a value that fills the gaps of each of its features.")
        if self.columns.dtype.kind != "i" or self.columns.ndim != 1 or (self.columns < 0).any():
            raise ValueError("The columns of a forest must be positions.")
        if any(len(set(each)) < len(each) for each in (self.names, self.columns.tolist())):
            raise ValueError("A forest must look at each of its columns once.")
        if self.names and len(self.names) != len(self.columns):
            raise ValueError("A forest must have a name for each of its columns.")

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
        max_features: int | None = None,
        rows_a_tree: int | None = None,
    ) -> tuple[Self, Array]:
        """A forest for targets (n, k) at rows X with predictions (n, d), and out-of-bag predictions (n, k).

        Each tree draws as many rows as there are, or `rows_a_tree` if that is less. A split looks at `max_features`
        columns, by default at half of them and at most eight.
        """
        names: tuple[str, ...] = ()
        if hasattr(X, "select_dtypes"):
            columns = np.flatnonzero([dtype.kind in "biuf" for dtype in X.dtypes])
            numeric = tuple(X.columns[j] for j in columns)
            is_named = all(isinstance(name, str) for name in numeric) and len(set(X.columns)) == len(X.columns)
            names = numeric if is_named else ()
        else:  # all columns of an array, none of anything else
            numbers = numbers_of(X)
            columns = np.arange(0 if numbers is None else numbers.shape[1])
        matrix = np.hstack([_numbers(X, names, columns), centers])
        known = [column[np.isfinite(column)] for column in matrix.T]
        fill = np.array([float(np.median(each)) if len(each) else 0.0 for each in known])
        matrix = _filled(matrix, fill)
        # Trees see integers: splits that part the rows alike then tie exactly, in all units of columns and targets.
        step, size = _grid(matrix, fill), _grid(targets, np.zeros(targets.shape[1]))
        rows, steps = np.round((matrix - fill) / step).astype(np.float32), np.round(targets / size)
        if not (np.isfinite(rows).all() and np.isfinite(steps).all()):
            raise ValueError(
                "A forest learns from finite numbers, got others. Check predictions and outcomes for NaN and inf."
            )
        # The trees of scikit-learn's forest for this seed, one by one: its own handling adds a third to their time.
        n, draws, of_tree = len(rows), np.random.RandomState(seed), np.random.RandomState(seed)
        most = min(max_features or max(min(matrix.shape[1] // 2, 8), 1), matrix.shape[1])
        settings = {"min_samples_leaf": min_leaf, "max_depth": max_depth, "max_features": most}
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
        nodes = joined(trees)
        nodes["threshold"] = fill[nodes["feature"]] + step[nodes["feature"]] * nodes["threshold"]
        nodes["value"] = nodes["value"] * size
        return cls(**nodes, names=names, columns=columns, fill=fill), total / np.maximum(count, 1) * size

    def __call__(self, X: Any, centers: Array) -> Array:
        """Predictions (N, k)."""
        matrix = _filled(np.hstack([_numbers(X, self.names, self.columns), centers]), self.fill)
        return self.sums(matrix) / self.n_trees

    def fits(self, n_outcomes: int, n_outputs: int | None = None) -> bool:
        """Whether it looks at the prediction of so many outcomes, and has so many outputs."""
        is_wide = n_outputs is None or self.value.shape[1] == n_outputs
        return len(self.fill) == len(self.columns) + n_outcomes and is_wide


def _numbers(X: Any, names: tuple[str, ...], columns: Indices) -> Array:
    """These columns of X (N, k) as numbers."""
    if not len(columns):
        return np.zeros((X.shape[0] if hasattr(X, "shape") else len(X), 0))
    if hasattr(X, "columns") and names:
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"X has no column {', '.join(missing)}, from which the spread is predicted.")
        return numbers_in(X, names)
    n_columns = np.shape(X)[1] if len(np.shape(X)) == 2 else 0
    if columns.max() >= n_columns:
        raise ValueError(f"The spread is predicted from column {columns.max()}, but X has {n_columns} columns.")
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, columns].to_numpy(dtype=np.float64, na_value=np.nan))
    rows = X.tocsr()[:, columns].toarray() if hasattr(X, "tocsr") else np.asarray(X)[:, columns]
    return np.asarray(rows, dtype=np.float64)


def _filled(matrix: Array, fill: Array) -> Array:
    """The matrix without gaps, within what single precision holds."""
    return np.clip(np.where(np.isnan(matrix), fill, matrix), -_LARGEST, _LARGEST)


def _grid(columns: Array, middle: Array) -> Array:
    """The step (k,) in which each column (n, k) is counted from its middle: fine, but above rounding."""
    usual, largest = np.abs(columns - middle).mean(axis=0), np.abs(columns).max(axis=0)
    step = np.maximum(usual * 2.0**-20, largest * 2.0**-44)
    return np.where(step > 0, step, 1.0)
