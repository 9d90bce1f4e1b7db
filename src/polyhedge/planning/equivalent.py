"""What is the same among sampled costs and decisions, and what is not: functions on arrays, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices


def first_on_top(pieces: Sequence[Array], same: Array) -> Any:
    """Which of the pieces (N, n) is the largest, the first of those that differ by no more than `same` (N,)."""
    if len(pieces) == 2:
        return pieces[1] > pieces[0] + same[:, None]
    high, arg = pieces[0], np.zeros(np.broadcast_shapes(*(each.shape for each in pieces)), dtype=np.int16)
    for k, other in enumerate(pieces[1:], start=1):
        np.copyto(arg, k, where=other > high + same[:, None])
        if k < len(pieces) - 1:
            high = np.maximum(high, other)
    return arg


def deviations(costs: Array) -> Array:
    """The standard deviation of each row (N,)."""
    apart = costs - costs.mean(axis=1)[:, None]
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", apart, apart) / costs.shape[1]))


def distinct_decisions(z: Array) -> tuple[Indices, Indices]:
    """Rows with different decisions, among them every decision there is, and for each row (N,) the one that has its.

    Decisions are told apart by a sum with odd weights, which is quick to sort; those that it mixes up stand alone.
    """
    key = np.zeros(len(z))
    for j in range(z.shape[1]):
        key = key + z[:, j] * np.sqrt(2 + j)
    _, first, own = np.unique(key, return_index=True, return_inverse=True)
    mixed = np.flatnonzero((z[first[own]] != z).any(axis=1))
    own[mixed] = len(first) + np.arange(len(mixed))
    return np.concatenate([first, mixed]), own


def first_alike(decisions: Sequence[Array]) -> Indices:
    """For each of R decisions (N, p) the first (R, N) that is the same at the row, itself where none is.

    Examples
    --------
    >>> first_alike([np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]]), np.array([[3.0], [2.0]])])
    array([[0, 0],
           [0, 1],
           [2, 1]])
    """
    first = np.tile(np.arange(len(decisions))[:, None], (1, len(decisions[0])))
    for i, each in enumerate(decisions):
        for j in reversed(range(i)):
            first[i, (each == decisions[j]).all(axis=1)] = j
    return first
