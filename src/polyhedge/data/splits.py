"""Disjoint parts of the rows: train the predictor, learn the set, calibrate its radius, hold out for a report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.stored import stored
from polyhedge._support.validation import check_count, check_rng

__all__ = ["IndexArray", "Split", "as_indices", "digest_rows", "partition_rows", "split_rows", "take_rows"]

IndexArray = NDArray[np.intp]

_PARTS = ("train", "learn", "calibrate", "held_out")


@stored("split")
@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of disjoint parts of one data set.

    Parameters
    ----------
    train : rows that fit the predictor, as numbers or a mask; may be empty for one that needs no training.
    learn : rows that shape the set.
    calibrate : rows that give the conformal radius, and nothing else.
    n_rows : number of rows of the data set; row numbers are then checked against it. Boolean masks supply it.
    held_out : rows for evaluation only.

    Examples
    --------
    >>> split = Split(train=[0, 1], learn=[4, 2], calibrate=[3, 5])
    >>> split.learn
    array([4, 2])
    >>> Split(train=[0, 1], learn=[1, 2], calibrate=[3, 4])
    Traceback (most recent call last):
        ...
    ValueError: train and learn share 1 row(s), the first is row 1: the coverage guarantee needs disjoint ...
    """

    train: IndexArray
    learn: IndexArray
    calibrate: IndexArray
    n_rows: int | None = None
    held_out: IndexArray = ()  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = [f"{len(getattr(self, part))} {part}" for part in _PARTS[:3]]
        return f"<Split: {', '.join([*sizes, *[f'{len(self.held_out)} held out'] * bool(len(self.held_out))])}>"

    def __post_init__(self) -> None:
        n_rows = None if self.n_rows is None else check_count(self.n_rows, "n_rows", minimum=0)
        masks = [mask for part in _PARTS if (mask := np.asarray(getattr(self, part))).dtype == np.bool_]
        n_rows = masks[0].size if masks and n_rows is None else n_rows
        object.__setattr__(self, "n_rows", n_rows)
        for part in _PARTS:
            indices = as_indices(getattr(self, part), n_rows, name=part)
            indices.flags.writeable = False
            object.__setattr__(self, part, indices)
        if n_repeated(np.concatenate([getattr(self, part) for part in _PARTS])):
            for first, second in combinations(_PARTS, 2):
                shared = np.intersect1d(getattr(self, first), getattr(self, second), assume_unique=True)
                if shared.size:
                    raise ValueError(
                        f"{first} and {second} share {shared.size} row(s), the first is row {shared[0]}: the "
                        "coverage guarantee needs disjoint splits. Give every row to one part only."
                    )


def split_rows(n: int, shares: Sequence[float] = (0.5, 0.25, 0.25), *, rng: np.random.Generator) -> Split:
    """Split rows ``0, ..., n - 1`` at random into train, learn and calibrate.

    A random permutation is cut after ``round(n * s_train)`` and ``round(n * (s_train + s_learn))`` rows, so
    every row lands in exactly one part and each part is less than one row away from its share.

    Parameters
    ----------
    n : number of rows. `partition_rows` also holds rows out.
    shares : of train, learn and calibrate; they sum to 1. Only the share of train may be 0.
    rng : source of the permutation.

    Examples
    --------
    >>> split = split_rows(10, rng=np.random.default_rng(0))
    >>> split.train.size, split.learn.size, split.calibrate.size
    (5, 3, 2)
    """
    n, checked = check_count(n, "n", minimum=2), _check_shares(shares, 3)
    # Half-integers go up, by floor(x + 1/2), so that the sizes do not depend on banker's rounding.
    cuts = np.floor(n * np.cumsum(checked)[:2] + 0.5).astype(np.intp)
    parts = np.split(check_rng(rng).permutation(n), cuts)
    for part, share, rows in zip(_PARTS, checked, parts, strict=False):
        if share > 0 and rows.size == 0:
            raise ValueError(f"The {part} share {share:g} of n={n} rows is empty. Raise the share or n.")
    train, learn, calibrate = parts
    return Split(train, learn, calibrate, n_rows=n)


def partition_rows(
    n: int,
    shares: Sequence[float] = (0.4, 0.2, 0.2, 0.2),
    *,
    rng: np.random.Generator,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
) -> Split:
    """Split rows ``0, ..., n - 1`` into train, learn, calibrate and held-out, with groups and times whole.

    Near-copies in two parts break exchangeability, so rows of one group stay together, and so do rows of one time. The
    order of these blocks is random, or by time where `times` are given: train first, held-out last. It is cut where the
    shares are met most closely: shares of the groups where there are any, whatever their sizes, else of the rows.

    Parameters
    ----------
    n : number of rows.
    shares : of the four parts; they sum to 1. Those of train and held-out may be 0.
    rng : source of the random order; not used where `times` are given.
    groups : (n,) labels; rows with equal labels stay together, and the shares count groups instead of rows.
    times : (n,) numbers or dates. With groups as well, a group counts as being at the time of its last row.

    Notes
    -----
    Which groups calibrate must not depend on how large they are: if the order were cut at a number of rows, a large
    group would tend to lie across the cut, and calibration groups would be smaller than a new one, and calmer or
    wilder where that goes with the size. So parts may hold very unequal numbers of rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> split = partition_rows(10, rng=rng, times=np.arange(10)[::-1])
    >>> split.train, split.held_out
    (array([6, 7, 8, 9]), array([0, 1]))
    >>> partition_rows(8, (0.25, 0.25, 0.25, 0.25), rng=rng, groups=list("aabbccdd"))
    <Split: 2 train, 2 learn, 2 calibrate, 2 held out>
    """
    n, wanted = check_count(n, "n", minimum=2), _check_shares(shares, 4)
    block_of, ends = _blocks(n, groups, times, check_rng(rng))
    # The first cut that is nearest; where two are equally near the later part gets the block.
    cuts = [_nearest(ends, ends[-1] * share) for share in np.cumsum(wanted)[:3]]
    part_of = np.searchsorted(np.array(cuts), block_of, side="right")
    parts = {name: np.flatnonzero(part_of == k) for k, name in enumerate(_PARTS)}
    for (name, rows), share in zip(parts.items(), wanted, strict=True):
        if share > 0 and rows.size == 0:
            raise ValueError(
                f"No rows are left for the {name.replace('_', '-')} part: {n} rows in {len(ends)} block(s) that stay "
                f"together cannot be split by the shares {wanted.tolist()}. Bring more rows or groups, or change the "
                "shares."
            )
    return Split(**parts, n_rows=n)


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
    by_block = np.argsort(block_of, kind="stable")
    n_first = int((block_of < _nearest(ends, ends[-1] / 2)).sum())
    if not 0 < n_first < n:
        raise ValueError(
            f"{n} rows in {len(ends)} block(s) that stay together have no halves. Bring more rows or groups."
        )
    return by_block[:n_first], by_block[n_first:]


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


def _check_shares(given: Sequence[float], n_parts: int) -> NDArray[np.float64]:
    shares = np.asarray(given, dtype=np.float64)
    received = f"({', '.join(f'{share:g}' for share in shares.ravel())})"
    names = "train, learn, calibrate" if n_parts == 3 else "train, learn, calibrate, held-out"
    if shares.shape != (n_parts,):
        raise ValueError(f"The shares ({names}) must be {n_parts} numbers, got {received}.")
    if not np.all(shares >= 0) or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"The shares ({names}) must be non-negative and sum to 1, got {received}.")
    if shares[1] == 0 or shares[2] == 0:
        raise ValueError(f"learn and calibrate need a positive share, got {received}.")
    return shares


def as_indices(values: ArrayLike, n_rows: int | None = None, *, name: str = "indices") -> IndexArray:
    """Row numbers, given as integers without repetition or as a boolean mask, as a new checked integer array.

    Parameters
    ----------
    values : array-like of int or bool, shape (n_selected,) or (n_rows,)
    n_rows : number of rows that may be addressed.
    name : what the error messages call the argument.

    Examples
    --------
    >>> as_indices([False, True, True])
    array([1, 2])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {array.shape}.")
    if array.dtype == np.bool_:
        if n_rows is not None and array.size != n_rows:
            raise ValueError(f"{name} is a mask over {array.size} rows, but there are {n_rows} rows.")
        return np.flatnonzero(array)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold row numbers or be a boolean mask, got dtype {array.dtype}.")
    indices = array.astype(np.intp)
    # Negative numbers are refused as well: -1 and n - 1 are the same row and would pass as disjoint.
    outside = (indices < 0) | (False if n_rows is None else indices >= n_rows)
    if np.any(outside):
        allowed = "be at least 0" if n_rows is None else f"lie between 0 and {n_rows - 1}"
        raise ValueError(
            f"{name} must {allowed}, got {int(outside.sum())} row number(s) outside, the first is "
            f"{indices[outside][0]}."
        )
    again = n_repeated(indices)
    if again:
        raise ValueError(f"{name} names {again} row(s) more than once. Give every row once.")
    return indices


def n_repeated(rows: IndexArray) -> int:
    """How many of these row numbers were there before; by marks, because sorting takes minutes for large files.

    Examples
    --------
    >>> n_repeated(np.array([3, 1, 3, 3])), n_repeated(np.array([0, 10**12]))
    (2, 0)
    """
    if not rows.size:
        return 0
    end = int(rows.max()) + 1
    if end <= max(8 * rows.size, 2**26):  # a mark is a byte
        is_there = np.zeros(end, dtype=bool)
        is_there[rows] = True
        return rows.size - int(np.count_nonzero(is_there))
    return int(np.count_nonzero(np.diff(np.sort(rows)) == 0))


def evenly_chosen(n: int, most: int) -> IndexArray:
    """At most so many of the numbers from 0 to n - 1, evenly spaced.

    Examples
    --------
    >>> evenly_chosen(7, 4), evenly_chosen(2, 4)
    (array([0, 2, 4, 6]), array([0, 1]))
    """
    return np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.int64))


def fold_of(n: int, n_folds: int, groups: Any = None) -> IndexArray:
    """The fold (n,) of each row: blocks of rows in their order, with groups whole.

    Examples
    --------
    >>> fold_of(5, 2), fold_of(4, 2, ["b", "a", "b", "c"])
    (array([0, 0, 0, 1, 1]), array([0, 0, 0, 1]))
    """
    block_of = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    parts = np.array_split(np.unique(block_of), n_folds)
    number = np.repeat(np.arange(n_folds), [len(part) for part in parts])
    return np.asarray(number[block_of])


def take_rows(X: Any, indices: ArrayLike) -> Any:
    """The rows of `X`, an array, a data frame or a sequence, at these `indices`, as the same kind of object.

    Examples
    --------
    >>> take_rows(np.array([[1.0], [2.0], [3.0]]), [2, 0])
    array([[3.],
           [1.]])
    """
    rows = as_indices(indices)
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]


def equal_rows(frame: Any) -> tuple[IndexArray, int]:
    """A number (n,) for each distinct row of a pandas frame, and how many rows are equal to an earlier one.

    Copies in two parts make a model look better than it is: pass the numbers as `groups` to `RobustDecider.fit`.

    Examples
    --------
    >>> import pandas as pd
    >>> equal_rows(pd.DataFrame({"load": [1.0, 2.0, 1.0], "town": ["Ulm", None, "Ulm"]}))
    (array([0, 1, 0]), 1)
    """
    numbers = np.asarray(frame.groupby(list(frame.columns), dropna=False, sort=False).ngroup(), dtype=np.intp)
    return numbers, len(numbers) - len(np.unique(numbers))


def digest_rows(*tables: Any) -> str:
    """SHA-256 of the values, shapes and column names of tables, as 64 hexadecimal digits.

    Parameters
    ----------
    *tables : arrays, data frames, sparse matrices or sequences
        A data frame and an array of the same numbers differ, because the frame has column names.

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> digest_rows(X) == digest_rows(X.copy()), digest_rows(X) == digest_rows(X[::-1])
    (True, False)
    """
    digest = hashlib.sha256()
    for table in tables:
        for name, values in _columns(table):
            digest.update(repr((name, values.shape, values.dtype.kind)).encode())
            if values.dtype.kind in "fiub":
                digest.update(np.ascontiguousarray(values, dtype=np.float64).tobytes())
                continue
            # Length before text, so that no two lists of texts run together into the same bytes.
            for text in (str(value).encode() for value in values.ravel()):
                digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()


def _columns(table: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        for position, name in enumerate(table.columns):
            yield str(name), np.asarray(table.iloc[:, position])
    elif hasattr(table, "tocsr"):
        rows = table.tocsr()
        yield str(rows.shape), np.asarray(rows.indptr)
        yield "", np.asarray(rows.indices)
        yield "", np.asarray(rows.data)
    else:
        yield "", np.asarray(table)
