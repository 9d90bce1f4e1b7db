r"""Weights of residuals by the leaves of a forest that they share with a row (quantile regression forests).

$$w_i(x) = \frac1T \sum_t \frac{[\,x \text{ and } x_i \text{ end in the same leaf of tree } t\,]}{\text{rows in that
leaf}}$$

Rows like x have weight, others none, so that a distribution of weighted residuals may change its whole shape with x,
at the price of fewer residuals that count (Meinshausen 2006).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.forest import Forest

_WIDTH = 64
"""Widths of rows are multiples of this: fewer steps have more to fill up, more of them fewer rows in each."""
_REACHED = 1e-9
"""What sums of weights may be off by, so that rounding does not choose a quantile."""


@dataclass(frozen=True, eq=False)
class LeafWeights:
    """Weights of n residuals at a row.

    Attributes
    ----------
    forest : whose leaves are shared.
    leaves : (n, n_trees) where the residuals' own rows end.
    """

    forest: Forest
    leaves: Indices

    @classmethod
    def fit(cls, X: Any, centers: Array, targets: Array, *, min_leaf: int, seed: int) -> LeafWeights:
        """Weights of the residuals of these rows, by a forest for targets (n, k)."""
        forest, _ = Forest.fit(X, centers, targets, min_leaf=min_leaf, seed=seed)
        return cls(forest, forest.leaves(X, centers))

    def __call__(self, X: Any, centers: Array) -> sp.csr_array:
        """Weights (N, n), each row with sum 1 and a function of its own row to the last bit."""
        own = self.forest.leaves(X, centers)
        n, n_trees = own.shape
        shares = np.full(own.size, 1 / n_trees)
        at = sp.csr_array((shares, own.ravel(), np.arange(0, own.size + 1, n_trees)), (n, len(self.forest.value)))
        return sp.csr_array(at @ self._residuals)

    @cached_property
    def _residuals(self) -> sp.csr_array:
        """For each node (n_nodes, n) the share of each residual: those that end there have the same."""
        n, n_trees = self.leaves.shape
        columns = np.tile(np.arange(n), n_trees)
        ones = sp.csr_array((np.ones(n * n_trees), (self.leaves.T.ravel(), columns)), (len(self.forest.value), n))
        counts = np.asarray(ones.sum(axis=1)).ravel()
        scaled = sp.csr_array(sp.diags_array(1 / np.maximum(counts, 1)) @ ones)
        scaled.sort_indices()
        return scaled

    def state(self) -> dict[str, Any]:
        """Plain values from which `from_state` makes the same."""
        return {"forest": self.forest.state(), "leaves": self.leaves}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_points: int) -> LeafWeights:
        """The weights with this state; a ValueError where no fit can have made them."""
        forest, leaves = Forest.from_state(state["forest"]), state["leaves"]
        if leaves.dtype.kind != "i" or leaves.shape != (n_points, len(forest.roots)):
            raise ValueError("Weights of residuals must know the leaf of each residual in each tree.")
        is_leaf = (forest.left == np.arange(len(forest.left))) & (forest.right == forest.left)
        if leaves.min() < 0 or not np.array_equal(np.unique(leaves), np.flatnonzero(is_leaf)):
            raise ValueError("Weights of residuals must know leaves that exist, and no leaf may be without one.")
        if not forest.has_ends:  # a row that ends elsewhere would have no weights at all
            raise ValueError("Trees that weigh residuals must have nodes in order, and lead every row to a leaf.")
        return cls(forest, leaves)


def rows_of_a_width(weights: sp.csr_array, most: int) -> Iterator[tuple[Indices, Indices, Array]]:
    """At most so many rows with about as many residuals that count, which residuals these are, and their weights.

    Most residuals count nothing at a row, and need not be sorted there. Short rows are filled up with a weight of 0 to
    a width that hangs on themselves alone, so that sums over it do too.

    Examples
    --------
    >>> weights = sp.csr_array(np.array([[0.0, 0.0, 0.25, 0.75], [0.0, 1.0, 0.0, 0.0]]))
    >>> rows, residuals, shares = next(rows_of_a_width(weights, most=10))
    >>> rows.tolist(), residuals[:, :3].tolist(), shares[:, :3].tolist()
    ([0, 1], [[2, 3, 0], [1, 0, 0]], [[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    """
    counts = np.diff(weights.indptr)
    widths = np.minimum(-(-counts // _WIDTH) * _WIDTH, weights.shape[1])
    for width in np.unique(widths):
        alike = np.flatnonzero(widths == width)
        for rows in (alike[k : k + most] for k in range(0, len(alike), most)):
            counted = np.arange(width) < counts[rows][:, None]
            places = np.where(counted, weights.indptr[rows][:, None] + np.arange(width), 0)
            yield rows, np.where(counted, weights.indices[places], 0), np.where(counted, weights.data[places], 0.0)


def weighted_quantiles(costs: Array, weights: Array, levels: Sequence[float]) -> Array:
    """For each level (N, T) the least of a row's costs (N, n) that are not exceeded with this weight; weights sum to 1.

    Examples
    --------
    >>> weighted_quantiles(np.array([[3.0, 1.0, 2.0]]), np.array([[0.5, 0.3, 0.2]]), [0.3, 0.5])
    array([[1., 2.]])
    """
    order = np.argsort(costs, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    first = [(reached >= level - _REACHED).argmax(axis=1) for level in levels]
    return np.asarray(np.take_along_axis(costs, np.take_along_axis(order, np.stack(first, axis=1), axis=1), axis=1))
