"""Regression trees as plain arrays: they can be stored, sent and checked as data, and NumPy walks through them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask

__all__ = ["Trees"]

_PAIRS = 262_144
"""Pairs of a row and a tree that are walked together: what is needed in between stays in the cache."""


@stored("trees")
@dataclass(frozen=True, eq=False)
class Trees:
    """Regression trees of several outputs: at an inner node a row goes left if its feature is at most the threshold.

    Attributes
    ----------
    roots : (n_trees,) first node of each tree.
    feature, threshold, left, right : (n_nodes,) of each node; a leaf is its own child on both sides.
    value : (n_nodes, n_outputs) outputs of the leaves.
    missing_left : (n_nodes,) whether a missing number goes left; None where it goes right everywhere.

    Examples
    --------
    >>> at = np.array
    >>> trees = Trees(at([0]), at([0, 0, 0]), at([0.5, 0, 0]), at([1, 1, 2]), at([2, 1, 2]), at([[0.0], [3.0], [4.0]]))
    >>> trees.sums(np.array([[0.5], [0.6]])).ravel()
    array([3., 4.])
    """

    roots: Indices
    feature: Indices = field(repr=False)
    threshold: Array = field(repr=False)
    left: Indices = field(repr=False)
    right: Indices = field(repr=False)
    value: Array = field(repr=False)
    missing_left: Mask | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n = len(self.feature)
        own, links = np.arange(n), (self.roots, self.feature, self.left, self.right)
        parts = (self.threshold, *links[1:], *(() if self.missing_left is None else (self.missing_left,)))
        if any(part.shape != (n,) for part in parts) or self.value.ndim != 2 or len(self.value) != n or not n:
            raise ValueError("The nodes of trees must be arrays of one length.")
        if self.roots.ndim != 1 or any(part.dtype.kind != "i" or part.min(initial=0) < 0 for part in links):
            raise ValueError("The nodes of trees must refer to features and nodes by their numbers.")
        inner = ~self._is_leaf
        children = np.concatenate([self.left[inner], self.right[inner]])
        # With every node the root of a tree or the child of one node before it, every walk ends in a leaf.
        if (children <= np.tile(own[inner], 2)).any() or not np.array_equal(
            np.sort(np.concatenate([self.roots, children])), own
        ):
            raise ValueError("Every node of trees must be a root, or the child of one node that stands before it.")

    @classmethod
    def joined(cls, trees: list[Any], *, with_missing: bool = False) -> Trees:
        """The fitted trees (`tree_`) of scikit-learn's regressors as one list of nodes."""
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])
        parts: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
        for tree, start in zip(trees, starts, strict=False):
            own, is_leaf = np.arange(tree.node_count), tree.children_left < 0
            parts["feature"].append(np.where(is_leaf, 0, tree.feature))
            parts["threshold"].append(np.where(is_leaf, 0.0, tree.threshold))
            parts["left"].append(start + np.where(is_leaf, own, tree.children_left))
            parts["right"].append(start + np.where(is_leaf, own, tree.children_right))
            parts["value"].append(tree.value[:, :, 0])
        nodes = {name: np.concatenate(values) for name, values in parts.items()}
        missing = np.concatenate([np.asarray(tree.missing_go_to_left, dtype=bool) for tree in trees])
        return cls(starts[:-1], **nodes, missing_left=missing if with_missing and missing.any() else None)

    @property
    def n_features(self) -> int:
        """The least number of columns that rows must have."""
        return int(self.feature.max()) + 1

    def sums(self, matrix: Array) -> Array:
        """The sum over trees (N, n_outputs) of what each says of the rows of a matrix (N, p)."""
        step = max(_PAIRS // len(self.roots), 1)
        blocks = [self.value[self.leaves(matrix[k : k + step])].sum(axis=1) for k in range(0, len(matrix), step)]
        return np.vstack([np.zeros((0, self.value.shape[1])), *blocks])

    def leaves(self, matrix: Array) -> Indices:
        """The leaf (N, n_trees) in which each row ends in each tree."""
        n_trees, (n, p) = len(self.roots), matrix.shape
        flat, node = np.ascontiguousarray(matrix).ravel(), np.tile(self.roots, n)
        walking = np.flatnonzero(~self._is_leaf[node])
        while len(walking):
            at = node[walking]
            values = flat[walking // n_trees * p + self.feature[at]]
            goes_left = values <= self.threshold[at]
            if self.missing_left is not None:
                goes_left |= np.isnan(values) & self.missing_left[at]
            node[walking] = at = np.where(goes_left, self.left[at], self.right[at])
            walking = walking[~self._is_leaf[at]]
        return node.reshape(n, n_trees)

    @cached_property
    def _is_leaf(self) -> Mask:
        own = np.arange(len(self.left))
        return np.asarray((self.left == own) & (self.right == own))
