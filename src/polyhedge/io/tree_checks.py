"""Trees of a loaded predictor: their node numbers reach compiled code that follows them without looking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

_LEAF = -1


def check_trees(estimator: Any) -> None:
    """Raise ValueError unless every tree inside leads from its root to leaves, over existing features."""
    for item in _parts(estimator):
        if isinstance(item, Tree):
            _check_tree(item)
        elif isinstance(item, BaseDecisionTree) and hasattr(item, "tree_"):
            _check_owner(item, [item])
        elif isinstance(item, (BaseForest, BaseGradientBoosting)) and hasattr(item, "estimators_"):
            _check_owner(item, np.ravel(item.estimators_))
        elif isinstance(item, BaseHistGradientBoosting) and hasattr(item, "_predictors"):
            _check_boosting(item)


def _parts(root: Any) -> Iterator[Any]:
    """Everything that is reachable through attributes and containers."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float)):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, (list, tuple, set)) or (isinstance(item, np.ndarray) and item.dtype == object):
            todo.extend(item.ravel() if isinstance(item, np.ndarray) else item)
        else:
            todo.extend(getattr(item, "__dict__", {}).values())


def _check_tree(tree: Tree) -> None:
    if not 1 <= tree.node_count <= tree.capacity:
        raise ValueError(f"a tree says it has {tree.node_count} nodes but holds {tree.capacity}")
    left, right = tree.children_left, tree.children_right
    inner = left != _LEAF
    _check_children(np.flatnonzero(inner), left[inner], tree.node_count)
    _check_children(np.flatnonzero(inner), right[inner], tree.node_count)
    _check_range(tree.feature[inner], tree.n_features, "feature")


def _check_owner(owner: Any, trees: Any) -> None:
    """An ensemble checks the columns of X once and hands X to its trees as it is."""
    is_column = not isinstance(owner, BaseGradientBoosting) or np.shape(owner.estimators_)[1:] == (1,)
    if not is_column or any(tree.tree_.n_features != owner.n_features_in_ for tree in trees):
        raise ValueError("the trees of an ensemble do not fit its features and outputs")


def _check_boosting(owner: Any) -> None:
    n = owner.n_features_in_
    is_categorical = owner._bin_mapper.is_categorical_
    if len(is_categorical) != n:
        raise ValueError("a boosting model does not know which of its features are categorical")
    for trees in owner._predictors:
        for tree in trees:
            _check_boosted_tree(tree, np.asarray(is_categorical, dtype=bool), n)


def _check_boosted_tree(tree: TreePredictor, is_categorical: Any, n_features: int) -> None:
    nodes = tree.nodes
    inner = nodes["is_leaf"] == 0
    chosen = nodes[inner]
    _check_children(np.flatnonzero(inner), chosen["left"].astype(np.int64), len(nodes))
    _check_children(np.flatnonzero(inner), chosen["right"].astype(np.int64), len(nodes))
    features = chosen["feature_idx"].astype(np.int64)
    _check_range(features, n_features, "feature")
    split_by_category = chosen["is_categorical"] != 0
    if not len(nodes) or not is_categorical[features[split_by_category]].all():
        raise ValueError("a boosted tree is empty, or splits numbers by category")
    for bitsets in (tree.raw_left_cat_bitsets, tree.binned_left_cat_bitsets):
        if bitsets.dtype != np.uint32 or bitsets.ndim != 2 or bitsets.shape[1] != 8:
            raise ValueError("a boosted tree has categories in an unexpected form")
        _check_range(chosen["bitset_idx"][split_by_category].astype(np.int64), len(bitsets), "set of categories")


def _check_children(parents: Any, children: Any, n_nodes: int) -> None:
    # Builders number children after their parents, which also shows that no path runs in a circle.
    if len(parents) and not ((children > parents) & (children < n_nodes)).all():
        raise ValueError("a tree has a node whose child does not exist or stands before it")


def _check_range(numbers: Any, n: int, what: str) -> None:
    if len(numbers) and not ((numbers >= 0) & (numbers < n)).all():
        raise ValueError(f"a tree asks for a {what} that does not exist")
