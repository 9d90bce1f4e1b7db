"""Four parts of a table: at random, in the order of time, and with groups kept together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.validation import check_count, check_rng
from polyhedge.data.splits import IndexArray, Split

__all__ = ["halve_rows", "last_times", "partition_rows"]

_PARTS = ("train", "learn", "calibrate", "held-out")


def partition_rows(
    n: int,
    shares: Sequence[float] = (0.4, 0.2, 0.2, 0.2),
    *,
    rng: np.random.Generator,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
) -> tuple[Split, IndexArray]:
    """Split rows ``0, ..., n - 1`` into train, learn, calibrate and a held-out part.

    Rows that belong together are never torn apart, because near-copies in two parts break exchangeability: rows
    of one group are kept together, and so are rows of one time. The order of these blocks is random, or by time
    where `times` are given: train first, held-out last. It is cut where the shares are met most closely: shares of the
    groups where there are any, whatever their sizes, else of the rows.

    Parameters
    ----------
    n : int
        Number of rows.
    shares : sequence of 4 floats, default=(0.4, 0.2, 0.2, 0.2)
        Shares of the four parts; they sum to 1. Those of train and held-out may be 0.
    rng : numpy.random.Generator
        Source of the random order; not used where `times` are given.
    groups : array-like of shape (n,), optional
        Labels; rows with equal labels stay together, and the shares count groups instead of rows.
    times : array-like of shape (n,), optional
        Numbers or dates. With groups as well, a group counts as being at the time of its last row.

    Returns
    -------
    split : Split
    held_out : ndarray of int
        Rows for evaluation only.

    Notes
    -----
    Which groups calibrate must not depend on how large they are: if the order were cut at a number of rows, a large
    group would tend to lie across the cut, and calibration groups would be smaller than a new one, and calmer or
    wilder where that goes with the size. So parts may hold very unequal numbers of rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> split, held_out = partition_rows(10, rng=rng, times=np.arange(10)[::-1])
    >>> split.train, held_out
    (array([6, 7, 8, 9]), array([0, 1]))
    >>> split, held_out = partition_rows(8, (0.25, 0.25, 0.25, 0.25), rng=rng, groups=list("aabbccdd"))
    >>> sorted(len(part) for part in (split.train, split.learn, split.calibrate, held_out))
    [2, 2, 2, 2]
    """
    n = check_count(n, "n", minimum=2)
    wanted = _check_shares(shares)
    block_of, ends = _blocks(n, groups, times, check_rng(rng))
    # The first cut that is nearest; where two are equally near the later part gets the block.
    cuts = [_nearest(ends, ends[-1] * share) for share in np.cumsum(wanted)[:3]]
    part_of = np.searchsorted(np.array(cuts), block_of, side="right")
    parts = [np.flatnonzero(part_of == k) for k in range(4)]
    for name, share, rows in zip(_PARTS, wanted, parts, strict=True):
        if share > 0 and rows.size == 0:
            raise ValueError(
                f"No rows are left for the {name} part: {n} rows in {len(ends)} block(s) that stay together cannot "
                f"be split by the shares {wanted.tolist()}. Bring more rows or groups, or change the shares."
            )
    train, learn, calibrate, held_out = parts
    return Split(train, learn, calibrate, n_rows=n), held_out


def halve_rows(
    n: int, *, rng: np.random.Generator, groups: ArrayLike | None = None, times: ArrayLike | None = None
) -> tuple[IndexArray, IndexArray]:
    """Two halves of the rows ``0, ..., n - 1`` by the rules of `partition_rows`; with times the older one comes first.

    Examples
    --------
    >>> halve_rows(6, rng=np.random.default_rng(0), groups=list("abacbc"), times=range(6))
    (array([0, 2]), array([1, 4, 3, 5]))
    """
    n = check_count(n, "n", minimum=2)
    block_of, ends = _blocks(n, groups, times, check_rng(rng))
    in_order = np.argsort(block_of, kind="stable")
    n_first = int((block_of < _nearest(ends, ends[-1] / 2)).sum())
    if not 0 < n_first < n:
        raise ValueError(
            f"{n} rows in {len(ends)} block(s) that stay together have no halves. Bring more rows or groups."
        )
    return in_order[:n_first], in_order[n_first:]


def last_times(groups: ArrayLike, times: NDArray[Any]) -> NDArray[Any]:
    """The time (n,) of the last row of each row's group.

    Examples
    --------
    >>> last_times(["a", "b", "a"], np.array([1.0, 2.0, 3.0]))
    array([3., 2., 3.])
    """
    values, code = np.unique(times, return_inverse=True)
    return np.asarray(values[_last(_codes(groups, len(times), "groups"), code)])


def _blocks(n: int, groups: Any, times: Any, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The place of each row's block in the order in which parts are cut, and how many groups lie up to each block."""
    group_of = np.arange(n) if groups is None else _codes(groups, n, "groups")
    if times is None:
        block_of = rng.permutation(group_of.max() + 1)[group_of]
    else:
        block_of = np.unique(_last(group_of, _codes(times, n, "times")), return_inverse=True)[1]
    # One row of each group stands for it, so that its size has no say in where the cuts are.
    return block_of, np.cumsum(np.bincount(block_of[np.unique(group_of, return_index=True)[1]]))


def _last(group_of: NDArray[np.intp], time_of: NDArray[np.intp]) -> NDArray[np.intp]:
    """The number of the time of the last row of each row's group (n,)."""
    last = np.zeros(group_of.max() + 1, dtype=np.intp)
    np.maximum.at(last, group_of, time_of)
    return last[group_of]


def _codes(values: Any, n: int, name: str) -> NDArray[np.intp]:
    array = np.asarray(values)
    if array.shape != (n,):
        raise ValueError(f"{name} must have one entry for each of the {n} rows, got shape {array.shape}.")
    return np.unique(array, return_inverse=True)[1]


def _nearest(ends: NDArray[np.intp], target: float) -> int:
    """How many blocks come before the cut that is nearest to `target` groups."""
    return int(np.argmin(np.abs(np.concatenate([[0], ends]) - target)))


def _check_shares(shares: Sequence[float]) -> NDArray[np.float64]:
    wanted = np.asarray(shares, dtype=np.float64)
    if wanted.shape != (4,) or not np.all(wanted >= 0) or abs(wanted.sum() - 1) > 1e-9:
        raise ValueError(
            "shares must be four non-negative numbers (train, learn, calibrate, held-out) that sum to 1, "
            f"got {tuple(shares)!r}."
        )
    if wanted[1] == 0 or wanted[2] == 0:
        raise ValueError(f"learn and calibrate need a positive share, got {tuple(shares)!r}.")
    return wanted
