r"""How far residuals spread at a row, predicted from its features: some contexts are harder than others.

$$\{u : W (u - \hat f(x)) / s(x) + b \le r\}$$

One shape serves all contexts, scaled by s(x). The conformal radius is set on residuals divided by their spread, so that
the guarantee is the same for any s that was learned without the calibration rows. The levels of s are few ($2^{k/4}$),
because each of them is a set of its own, and decisions for many contexts are fast for one set.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.forest import check_nodes, grow, middle_of, numbers_of_columns, numeric_columns, ready
from polyhedge.learners.tree_walk import TreeWalk

__all__ = ["Spread"]

_LEVELS_AN_OCTAVE = 4
"""Sizes are rounded to so many steps a doubling: rows of one size are decided together, and a step is 19 %."""
_MOST_OCTAVES = 3.0
"""Sizes differ from the usual one by a factor of 8 at most: a forest that saw few rows must not make a set vanish."""
_MAX_DEPTH = 16
"""Deeper trees would describe single rows; it also bounds the work that a file can ask for."""
_N_TREES = 32
"""Trees whose mean is the size; every one takes time at every row that is decided."""
_FEATURES_A_SPLIT = 32
"""With more columns a split looks at some of them only: growing must not take longer and longer with them."""
_BLOCK = 16_384
"""Rows that go through the forest together: what is needed in between does not grow with their number."""
_LEAST = 1e-3
"""Share of the mean size below which no leaf goes: residuals of 0 must not give a set without extent."""


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
        check_nodes(self, "spread")
        if self.value.shape != self.feature.shape:
            raise ValueError("The nodes of a spread must be arrays of one length.")
        if not (self.value > 0).all() or self.depth > _MAX_DEPTH or not 0 < self.power <= 1:
            raise ValueError("A spread must have positive values, a small depth and a power in (0, 1].")

    @classmethod
    def fit(
        cls, X: Any, centers: Array, sizes: Array, *, min_leaf: int, seed: int, rows_a_tree: int | None = None
    ) -> Spread:
        """Learn from rows X, predictions (n, d) and sizes of their residuals (n,); learning rows only.

        Each tree draws as many rows as there are, or `rows_a_tree` if that is less.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(400, 1))
        >>> sizes = np.where(X[:, 0] > 0.5, 3.0, 1.0)
        >>> Spread.fit(X, np.zeros((400, 1)), sizes, min_leaf=20, seed=0)([[0.1], [0.9]], np.zeros((2, 1)))
        array([0.5       , 1.41421356])
        """
        names, columns = numeric_columns(X)
        matrix = np.hstack([numbers_of_columns(X, names, columns), centers])
        fill = middle_of(matrix)
        nodes, _ = grow(
            ready(matrix, fill),
            fill,
            (sizes / (sizes.mean() or 1.0))[:, None],
            n_trees=_N_TREES,
            min_leaf=min_leaf,
            max_depth=_MAX_DEPTH,
            max_features=min(matrix.shape[1], _FEATURES_A_SPLIT),
            seed=seed,
            rows_a_tree=rows_a_tree,
        )
        nodes["value"] = np.maximum(nodes["value"][:, 0], _LEAST)
        return cls(names, columns, fill, **nodes)

    def __call__(self, X: Any, centers: Array) -> Array:
        """Levels (N,) at rows X with their predictions (N, d)."""
        return levels(self.sizes(X, centers), self.power)

    def sizes(self, X: Any, centers: Array) -> Array:
        """What the forest says of them (N,), before its power and the levels."""
        matrix = ready(np.hstack([numbers_of_columns(X, self.names, self.columns), centers]), self.fill)
        sizes = np.empty(len(matrix))
        for k in range(0, len(matrix), _BLOCK):
            sizes[k : k + _BLOCK] = self._forest(matrix[k : k + _BLOCK])
        return sizes

    def _forest(self, matrix: Array) -> Array:
        return np.asarray(self.value[self._walk.leaves(matrix)].mean(axis=1))

    @cached_property
    def _walk(self) -> TreeWalk:
        return TreeWalk(self.roots, self.feature, self.threshold, self.left, self.right, self.depth)

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def summary(self) -> dict[str, Any]:
        """What it looks at and how strongly it scales, without its trees."""
        return {"names": list(self.names), "n_columns": len(self.columns), "power": self.power}

    def state(self) -> dict[str, Any]:
        """The fields by name: `Spread(**state)` is the same."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def levels(sizes: Array, power: float) -> Array:
    """The level (N,) of each size, to the power.

    Examples
    --------
    >>> levels(np.array([0.25, 1.05, 100.0]), 1.0)
    array([0.25, 1.  , 8.  ])
    """
    octaves = np.clip(power * np.log2(sizes), -_MOST_OCTAVES, _MOST_OCTAVES)
    return np.asarray(2.0 ** (np.round(octaves * _LEVELS_AN_OCTAVE) / _LEVELS_AN_OCTAVE))
