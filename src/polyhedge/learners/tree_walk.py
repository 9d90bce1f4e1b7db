"""Where rows end in trees that are kept as plain arrays: by NumPy for few rows, by scikit-learn's C code for many.

Both compare the same numbers and give the same leaves. For scikit-learn, whose trees take single precision, every value
is replaced by its rank among the thresholds of its column, which single precision holds exactly.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.validation import Array, Indices

_MANY = 4096
"""Rows from which ranks and C code are faster than the walk in NumPy."""
_LARGEST_RANK = 2**24
"""Whole numbers up to which single precision has no gaps."""


class TreeWalk:
    """The way of rows through trees: nodes as in `Forest`, whose arrays must have been checked."""

    def __init__(
        self, roots: Indices, feature: Indices, threshold: Array, left: Indices, right: Indices, depth: int
    ) -> None:
        self.roots, self.feature, self.threshold = roots, feature, threshold
        self.left, self.right, self.depth = left, right, depth

    def leaves(self, matrix: Array) -> Indices:
        """The leaf (N, n_trees) of each row in each tree."""
        if len(matrix) < _MANY or self._compiled is None:
            return self._by_steps(matrix)
        return self._by_ranks(matrix, *self._compiled)

    def _by_steps(self, matrix: Array) -> Indices:
        rows = np.arange(len(matrix))[:, None]
        node = np.tile(self.roots, (len(matrix), 1))
        for _ in range(self.depth):
            goes_left = matrix[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return node

    def _by_ranks(self, matrix: Array, thresholds: list[Array], trees: list[Any]) -> Indices:
        ranks = np.zeros((len(matrix), len(thresholds)), dtype=np.float32)
        for j, of_column in enumerate(thresholds):
            if len(of_column):
                ranks[:, j] = np.searchsorted(of_column, matrix[:, j])
        leaves = np.empty((len(matrix), len(self.roots)), dtype=np.int64)
        for k, (root, tree) in enumerate(zip(self.roots, trees, strict=True)):
            np.add(tree.apply(ranks), root, out=leaves[:, k])
        return leaves

    def is_in_order(self) -> bool:
        """Whether every tree has its nodes in a row and children behind their parents, within `depth` of the root.

        The C code follows links until it comes to a leaf: only then does it surely come to one, and the same one.
        """
        own, n = np.arange(len(self.left)), len(self.left)
        last = np.append(self.roots[1:], n)[np.searchsorted(self.roots, own, side="right") - 1]
        is_leaf = (self.left == own) & (self.right == own)
        if self.roots[0] != 0 or (np.diff(self.roots) <= 0).any():
            return False
        if not (is_leaf | ((self.left > own) & (self.right > own) & (self.left < last) & (self.right < last))).all():
            return False
        level = np.zeros(n, dtype=np.int64)
        for node in np.flatnonzero(~is_leaf).tolist():  # parents come first
            for child in (self.left[node], self.right[node]):
                level[child] = max(level[child], level[node] + 1)
        return bool(level.max(initial=0) <= self.depth)

    @cached_property
    def _compiled(self) -> tuple[list[Array], list[Any]] | None:
        """Thresholds of each column and the trees on ranks among them; None where the nodes are not in order."""
        if not self.is_in_order():
            return None
        own = np.arange(len(self.left))
        is_inner = (self.left != own) | (self.right != own)
        n_features = int(self.feature.max(initial=0)) + 1
        thresholds = [np.unique(self.threshold[is_inner & (self.feature == j)]) for j in range(n_features)]
        rank = np.zeros(len(own))
        for j, of_column in enumerate(thresholds):
            mine = is_inner & (self.feature == j)
            rank[mine] = np.searchsorted(of_column, self.threshold[mine])
        ends = [*self.roots[1:].tolist(), len(own)]
        trees = []
        for root, end in zip(self.roots.tolist(), ends, strict=True):
            part = slice(root, end)
            children = self.left[part] - root, self.right[part] - root
            trees.append(_as_sklearn(*children, self.feature[part], rank[part], n_features, self.depth))
        is_usable = len(own) < _LARGEST_RANK and all(tree is not None for tree in trees)
        return (thresholds, trees) if is_usable else None


def _as_sklearn(
    left: Indices, right: Indices, feature: Indices, threshold: Array, n_features: int, depth: int
) -> Any | None:
    """One tree as scikit-learn's own; None where this version of it takes other arrays."""
    try:
        from sklearn.tree._tree import NODE_DTYPE, Tree
    except ImportError:
        return None
    own = np.arange(len(left))
    is_leaf = (left == own) & (right == own)
    nodes: NDArray[Any] = np.zeros(len(own), dtype=NODE_DTYPE)
    nodes["left_child"], nodes["right_child"] = np.where(is_leaf, -1, left), np.where(is_leaf, -1, right)
    nodes["feature"], nodes["threshold"] = np.where(is_leaf, -2, feature), np.where(is_leaf, -2.0, threshold)
    tree = Tree(n_features, np.ones(1, dtype=np.intp), 1)
    state = {"max_depth": depth, "node_count": len(own), "nodes": nodes, "values": np.zeros((len(own), 1, 1))}
    try:
        tree.__setstate__(state)
    except (KeyError, TypeError, ValueError):
        return None
    return tree
