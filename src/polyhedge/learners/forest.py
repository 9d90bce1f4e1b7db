"""Small forests kept as plain arrays, so that they can be stored, sent and checked as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from polyhedge._support.validation import Array, Indices, check_count, numbers_of
from polyhedge.learners.tree_walk import TreeWalk

# Trees work in single precision.
_LARGEST = 1e30
# Enough trees that a second forest would predict alike; more cost time at every row.
_N_TREES = 30
_MAX_DEPTH = 12
_BLOCK = 16_384
_STEPS = 2.0**20
"""Steps of the grid on which trees see columns and targets, in a usual deviation: no finer than single precision."""
_NOISE = 2.0**-44
"""Share of the largest number of a column that is rounding: a column that is constant but for it must look constant."""
_LARGEST_SEED = 2**31 - 1
"""Seeds of trees are whole numbers below this, as scikit-learn's are."""
_MOST_TREES = 64
"""Trees that a file may have: each costs time at every row, and fits grow about thirty."""


@dataclass(frozen=True, eq=False)
class Forest:
    """The mean of regression trees of several outputs on the numeric columns of X and on the prediction.

    Attributes
    ----------
    names, columns : the columns of X that it looks at; the prediction is looked at too, after them.
    fill : values that stand for missing ones.
    roots : (n_trees,) first node of each tree.
    feature, threshold, left, right : (n_nodes,) go left where the feature is at most the threshold.
    value : (n_nodes, n_outputs); a leaf has itself as both children.
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
        check_nodes(self, "forest")
        if self.value.ndim != 2 or not np.isfinite(self.value).all() or self.depth > _MAX_DEPTH:
            raise ValueError("A forest must have finite values, a row for each node, and a small depth.")

    @classmethod
    def fit(cls, X: Any, centers: Array, targets: Array, *, min_leaf: int, seed: int) -> tuple[Forest, Array]:
        """A forest for targets (n, k) at rows X with predictions (n, d), and what trees that had not seen a row say."""
        names, columns = numeric_columns(X)
        matrix = np.hstack([numbers_of_columns(X, names, columns), centers])
        fill = middle_of(matrix)
        settings: dict[str, Any] = {"n_trees": _N_TREES, "max_depth": _MAX_DEPTH, "max_features": 0.5}
        nodes, unseen = grow(ready(matrix, fill), fill, targets, **settings, min_leaf=min_leaf, seed=seed, unseen=True)
        return cls(names, columns, fill, **nodes), unseen

    def __call__(self, X: Any, centers: Array) -> Array:
        """Predictions (N, k), each a function of its own row to the last bit."""
        blocks = [self._mean(block) for block in self._blocks(X, centers)]
        return np.vstack([np.zeros((0, self.value.shape[1])), *blocks])

    def leaves(self, X: Any, centers: Array) -> Indices:
        """The node (N, n_trees) at which each row ends in each tree."""
        blocks = [self._walk.leaves(block) for block in self._blocks(X, centers)]
        return np.vstack([np.zeros((0, len(self.roots)), dtype=np.int64), *blocks])

    @property
    def has_ends(self) -> bool:
        """Whether every row surely ends in a leaf, as in trees that were grown."""
        return self._walk.is_in_order()

    def _blocks(self, X: Any, centers: Array) -> Iterator[Array]:
        matrix = ready(np.hstack([numbers_of_columns(X, self.names, self.columns), centers]), self.fill)
        return (matrix[k : k + _BLOCK] for k in range(0, len(matrix), _BLOCK))

    def _mean(self, matrix: Array) -> Array:
        leaves, total = self._walk.leaves(matrix), np.zeros((len(matrix), self.value.shape[1]))
        for leaf in leaves.T:  # one after the other: the order of a sum must not depend on the number of rows
            total += self.value[leaf]
        return total / len(self.roots)

    @cached_property
    def _walk(self) -> TreeWalk:
        return TreeWalk(self.roots, self.feature, self.threshold, self.left, self.right, self.depth)

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def state(self) -> dict[str, Any]:
        """The fields by name, from which `from_state` makes the same."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Forest:
        """The forest with this state."""
        return cls(**{**state, "names": tuple(str(name) for name in state["names"])})


def check_nodes(forest: Any, name: str) -> None:
    """Raise where the nodes of a forest do not fit together, as those of a damaged file may."""
    n_nodes, n_features = len(forest.value), len(forest.fill)
    nodes = (forest.feature, forest.threshold, forest.left, forest.right)
    if any(part.shape != (n_nodes,) for part in nodes) or len(forest.columns) > n_features or not len(forest.roots):
        raise ValueError(f"The nodes of a {name} must be arrays of one length.")
    if forest.columns.dtype.kind != "i" or forest.columns.ndim != 1 or (forest.columns < 0).any():
        raise ValueError(f"The columns of a {name} must be positions.")
    if forest.fill.ndim != 1 or any(len(set(each)) < len(each) for each in (forest.names, forest.columns.tolist())):
        raise ValueError(f"A {name} must look at each of its columns once, and have one value that fills its gaps.")
    check_count(forest.depth, "depth", minimum=0)
    if len(forest.roots) > _MOST_TREES:
        raise ValueError(f"A {name} may have {_MOST_TREES} trees, got {len(forest.roots)}.")
    links = ((forest.feature, n_features), *((p, n_nodes) for p in (forest.roots, forest.left, forest.right)))
    for part, limit in links:
        if part.dtype.kind != "i" or part.ndim != 1 or part.min() < 0 or part.max() >= limit:
            raise ValueError(f"The nodes of a {name} must refer to features and nodes that exist.")
    if forest.names and len(forest.names) != len(forest.columns):
        raise ValueError(f"A {name} must have a name for each of its columns.")


def grow(
    matrix: Array,
    fill: Array,
    targets: Array,
    *,
    n_trees: int,
    min_leaf: int,
    max_depth: int,
    max_features: float,
    seed: int,
    unseen: bool = False,
    rows_a_tree: int | None = None,
) -> tuple[dict[str, Any], Array]:
    """The nodes of a forest for targets (n, k), and its predictions by trees without the row, where these are asked."""
    # Two splits that part the rows alike are the same to a tree unless rounding tells them apart. On whole numbers
    # nothing is rounded, so that trees are the same in all units, and columns count from their middle.
    step, size = _grid(matrix, fill), _grid(targets, np.zeros(targets.shape[1]))
    rows, wholes = np.round((matrix - fill) / step).astype(np.float32), np.ascontiguousarray(np.round(targets / size))
    if not (np.isfinite(rows).all() and np.isfinite(wholes).all()):
        raise ValueError(
            "A forest learns from finite numbers, got others. Check predictions and outcomes for NaN and inf."
        )
    # To seed a generator again takes a fiftieth of the time of making one; two of them were a tenth of a tree's.
    n, draws, of_tree = len(rows), np.random.RandomState(seed), np.random.RandomState(seed)
    settings = {"min_samples_leaf": min_leaf, "max_depth": max_depth, "max_features": max_features}
    trees, told, n_told = [], np.zeros(targets.shape), np.zeros((n, 1))
    # The trees of scikit-learn's forest for this seed, one by one: its own handling adds a third to their time.
    with config_context(skip_parameter_validation=True, assume_finite=True):
        for _ in range(n_trees):
            own = int(draws.randint(_LARGEST_SEED))
            of_tree.seed(own)
            drawn = of_tree.randint(0, n, min(rows_a_tree or n, n))
            counts = np.bincount(drawn, minlength=n).astype(np.float64)
            of_tree.seed(own)
            model = DecisionTreeRegressor(**settings, random_state=of_tree)
            trees.append(model.fit(rows, wholes, sample_weight=counts, check_input=False).tree_)
            if unseen:
                others = np.flatnonzero(counts == 0)
                told[others] += trees[-1].value[trees[-1].apply(rows[others]), :, 0]
                n_told[others] += 1
    nodes = _joined(trees)
    nodes["threshold"] = fill[nodes["feature"]] + step[nodes["feature"]] * nodes["threshold"]
    nodes["value"] = nodes["value"] * size
    return nodes, told / np.maximum(n_told, 1) * size if unseen else targets


def _grid(columns: Array, middle: Array) -> Array:
    """The step (k,) in which each column (n, k) is counted from its middle."""
    usual, largest = np.abs(columns - middle).mean(axis=0), np.abs(columns).max(axis=0)
    step = np.maximum(usual / _STEPS, largest * _NOISE)
    return np.where(step > 0, step, 1.0)


def middle_of(matrix: Array) -> Array:
    """The median of each column, over the numbers that are known."""
    return np.array([_median(column) for column in matrix.T])


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


def numbers_of_columns(X: Any, names: tuple[str, ...], columns: Indices) -> Array:
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


def ready(matrix: Array, fill: Array) -> Array:
    """The matrix without gaps, within what single precision holds."""
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
        parts["value"].append(tree.value[:, :, 0])
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    return {**joined, "roots": starts[:-1], "depth": max(tree.max_depth for tree in trees)}
