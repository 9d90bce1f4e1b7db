"""Trees out of a file: their numbers reach compiled code that follows them without looking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import NODE_DTYPE, Tree

NODE_TYPES = (np.dtype(NODE_DTYPE), np.dtype(PREDICTOR_RECORD_DTYPE))
"""The nodes of a tree, and of a tree of histogram boosting, in the installed scikit-learn."""
# scikit-learn's mark of a node without children, and words of 32 bits in its sets of 256 categories.
_LEAF = -1
_BITSET = 8
MAX_TREE_DEPTH = 4096
"""Steps from a root to a leaf; trees on a million rows have sixty, chains of rows in one order a thousand."""


def checked_tree(state: Mapping[str, Any]) -> Tree:
    """A regression tree that leads from its root to leaves, over existing features; otherwise a ValueError."""
    n_features, n_outputs, n_classes = state["n_features"], state["n_outputs"], state["n_classes"]
    nodes, values = state["nodes"], state["values"]
    if any(type(n) is not int or n < 1 for n in (n_features, n_outputs)):
        raise ValueError("a tree must have features and outputs")
    check_array_is(nodes, NODE_TYPES[0], (None,), "nodes")
    check_array_is(values, np.dtype(np.float64), (len(nodes), n_outputs, 1), "values")
    # The constructor reads as many classes as there are outputs, whatever the length of the array.
    check_array_is(n_classes, np.dtype(np.intp), (n_outputs,), "classes")
    if not (n_classes == 1).all() or not len(nodes) or state["node_count"] != len(nodes):
        raise ValueError("a regression tree has nodes, and one class for each output")
    if not np.isfinite(values).all() or np.isnan(nodes["threshold"]).any():
        raise ValueError("a tree must have finite values")
    inner = nodes["left_child"] != _LEAF
    depth = _checked_depth(np.flatnonzero(inner), nodes["left_child"][inner], nodes["right_child"][inner], len(nodes))
    _check_range(nodes["feature"][inner], n_features, "feature")
    tree = Tree(n_features, np.ascontiguousarray(n_classes), n_outputs)
    tree.__setstate__({"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def checked_boosted_tree(state: Mapping[str, Any]) -> TreePredictor:
    """A tree of histogram boosting whose children, bits and values exist; its features are its owner's to check."""
    nodes, bitsets = state["nodes"], [state[f"{kind}_left_cat_bitsets"] for kind in ("binned", "raw")]
    check_array_is(nodes, NODE_TYPES[1], (None,), "nodes")
    if not len(nodes) or not np.isfinite(nodes["value"]).all() or np.isnan(nodes["num_threshold"]).any():
        raise ValueError("a boosted tree must have nodes with finite values")
    inner = nodes["is_leaf"] == 0
    left, right = (nodes[side][inner].astype(np.int64) for side in ("left", "right"))
    _checked_depth(np.flatnonzero(inner), left, right, len(nodes))
    by_category = inner & (nodes["is_categorical"] != 0)
    for bits in bitsets:
        check_array_is(bits, np.dtype(np.uint32), (None, _BITSET), "sets of categories")
        _check_range(nodes["bitset_idx"][by_category].astype(np.int64), len(bits), "set of categories")
    return TreePredictor(nodes, *(np.ascontiguousarray(bits) for bits in bitsets))


def check_features_of(tree: TreePredictor, is_categorical: Any) -> None:
    """A boosted tree must split existing features, and by category only what has categories."""
    inner = tree.nodes[tree.nodes["is_leaf"] == 0]
    _check_range(inner["feature_idx"].astype(np.int64), len(is_categorical), "feature")
    by_category = inner["feature_idx"][inner["is_categorical"] != 0]
    if not is_categorical[by_category].all():
        raise ValueError("a boosted tree splits numbers by category")


def check_array_is(array: Any, dtype: np.dtype[Any], shape: tuple[int | None, ...], what: str) -> None:
    """Raise ValueError unless `array` has this type and shape (None: any length)."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != len(shape):
        raise ValueError(f"the {what} must be an array of {str(dtype)[:40]} with {len(shape)} axes")
    if any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True)):
        raise ValueError(f"the {what} must have the shape {shape}, got {array.shape}")


def _checked_depth(parents: Any, left: Any, right: Any, n_nodes: int) -> int:
    """Depth of a tree whose children exist, stand after their parents and have one parent each."""
    children = np.stack([left, right], axis=1)
    # Builders number children after their parents, which also shows that no path runs in a circle.
    if not ((children > parents[:, None]) & (children < n_nodes)).all():
        raise ValueError("a tree has a node whose child does not exist or stands before it")
    if np.bincount(children.ravel(), minlength=1).max() > 1:
        raise ValueError("a tree has a node with two parents")
    children_of = np.full((n_nodes, 2), _LEAF, dtype=np.int64)
    children_of[parents] = children
    depth, reached = 0, np.zeros(1, dtype=np.int64)
    while len(below := children_of[reached].ravel()[children_of[reached].ravel() != _LEAF]):
        depth, reached = depth + 1, below
        if depth > MAX_TREE_DEPTH:
            raise ValueError(f"a tree is deeper than {MAX_TREE_DEPTH} levels")
    return depth


def _check_range(numbers: Any, n: int, what: str) -> None:
    if len(numbers) and not ((numbers >= 0) & (numbers < n)).all():
        raise ValueError(f"a tree asks for a {what} that does not exist")
