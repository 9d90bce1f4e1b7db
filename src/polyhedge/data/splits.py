"""Disjoint splits: one part trains the predictor, one learns the set, one calibrates its radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.validation import check_count, check_rng, warn_of_old_name

__all__ = ["IndexArray", "Split", "as_indices", "split_rows", "take_rows"]

IndexArray = NDArray[np.intp]

_PARTS = ("train", "learn", "calibrate")
_APART, _MARKS = 8, 2**26
"""Row numbers are marked, a byte for each possible one, where these are so many times as many or fewer than this."""


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of three disjoint parts of one data set.

    Parameters
    ----------
    train : array-like of int or bool
        Rows that fit the predictor; may be empty for a predictor that needs no training.
    learn : array-like of int or bool
        Rows that shape the set.
    calibrate : array-like of int or bool
        Rows that give the conformal radius, and nothing else.
    n_rows : int, optional
        Number of rows of the data set; row numbers are then checked against it. Boolean masks supply it.

    Notes
    -----
    The parts are stored as read-only integer arrays. They need not exhaust the data set: rows in no part can
    serve as a test split.

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

    def __repr__(self) -> str:
        return f"<Split: {', '.join(f'{len(getattr(self, part))} {part}' for part in _PARTS)}>"

    def __post_init__(self) -> None:
        n_rows = None if self.n_rows is None else check_count(self.n_rows, "n_rows", minimum=0)
        for part in _PARTS:
            values = np.asarray(getattr(self, part))
            if values.dtype == np.bool_ and n_rows is None:
                n_rows = values.size
        for part in _PARTS:
            indices = as_indices(getattr(self, part), n_rows, name=part)
            indices.flags.writeable = False
            object.__setattr__(self, part, indices)
        object.__setattr__(self, "n_rows", n_rows)
        if n_repeated(np.concatenate([getattr(self, part) for part in _PARTS])):
            for first, second in combinations(_PARTS, 2):
                self._check_disjoint(first, second)

    def _check_disjoint(self, first: str, second: str) -> None:
        shared = np.intersect1d(getattr(self, first), getattr(self, second), assume_unique=True)
        if shared.size:
            raise ValueError(
                f"{first} and {second} share {shared.size} row(s), the first is row {shared[0]}: the "
                "coverage guarantee needs disjoint splits. Give every row to one part only."
            )


def split_rows(
    n: int,
    shares: Sequence[float] = (0.5, 0.25, 0.25),
    *,
    rng: np.random.Generator,
    fractions: Sequence[float] | None = None,
) -> Split:
    """Split rows ``0, ..., n - 1`` at random into train, learn and calibrate.

    A random permutation is cut after ``round(n * s_train)`` and ``round(n * (s_train + s_learn))`` rows, so
    every row lands in exactly one part and each part is less than one row away from its share.

    Parameters
    ----------
    n : int
        Number of rows. Hold out test rows before you call this.
    shares : sequence of 3 floats, default=(0.5, 0.25, 0.25)
        Shares of train, learn and calibrate; they sum to 1. Only the share of train may be 0.
    rng : numpy.random.Generator
        Source of the permutation.
    fractions : the former name of `shares`, with a warning.

    Returns
    -------
    Split
        Three disjoint parts that together hold all rows.

    Examples
    --------
    >>> split = split_rows(10, rng=np.random.default_rng(0))
    >>> split.train.size, split.learn.size, split.calibrate.size
    (5, 3, 2)
    """
    n = check_count(n, "n", minimum=2)
    if fractions is not None:
        warn_of_old_name("split_rows", "fractions", "shares")
        shares = fractions
    checked = _check_shares(shares)
    # Half-integers go up, by floor(x + 1/2), so that the sizes do not depend on banker's rounding.
    cuts = np.floor(n * np.cumsum(checked)[:2] + 0.5).astype(np.intp)
    parts = np.split(check_rng(rng).permutation(n), cuts)
    for part, share, rows in zip(_PARTS, checked, parts, strict=True):
        if share > 0 and rows.size == 0:
            raise ValueError(f"The {part} share {share:g} of n={n} rows is empty. Raise the share or n.")
    train, learn, calibrate = parts
    return Split(train, learn, calibrate, n_rows=n)


def as_indices(values: ArrayLike, n_rows: int | None = None, *, name: str = "indices") -> IndexArray:
    """Return row numbers, given as integers or as a boolean mask, as a checked integer array.

    Parameters
    ----------
    values : array-like of int or bool, shape (n_selected,) or (n_rows,)
        Row numbers without repetition, or a mask over all rows.
    n_rows : int, optional
        Number of rows that may be addressed.
    name : str, default="indices"
        What the error messages call the argument.

    Returns
    -------
    ndarray of int, shape (n_selected,)
        Always a new array.

    Examples
    --------
    >>> as_indices([False, True, True])
    array([1, 2])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {array.shape}.")
    if array.dtype == np.bool_:
        return _mask_indices(array, n_rows, name)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold row numbers or be a boolean mask, got dtype {array.dtype}.")
    indices = array.astype(np.intp)
    _check_range(indices, n_rows, name)
    again = n_repeated(indices)
    if again:
        raise ValueError(f"{name} names {again} row(s) more than once. Give every row once.")
    return indices


def are_marked(end: int, n: int) -> bool:
    """Whether n row numbers below `end` lie near enough to each other for marks."""
    return end <= max(_APART * n, _MARKS)


def n_repeated(rows: IndexArray) -> int:
    """How many of these row numbers were there before.

    By marks where they are not far apart: NumPy's `unique` takes minutes for as many rows as a file can hold.

    Examples
    --------
    >>> n_repeated(np.array([3, 1, 3, 3])), n_repeated(np.array([0, 10**12]))
    (2, 0)
    """
    if not rows.size:
        return 0
    end = int(rows.max()) + 1
    if are_marked(end, rows.size):
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
    """Return some rows of `X`, an array, a data frame or a sequence, as the same kind of object.

    Data frames stay data frames, so that predictors which select columns by name keep working. The function
    sees whatever split `indices` names.

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


def _check_shares(given: Sequence[float]) -> NDArray[np.float64]:
    shares = np.asarray(given, dtype=np.float64)
    came = f"({', '.join(f'{share:g}' for share in shares.ravel())})"
    if shares.shape != (3,):
        raise ValueError(f"The shares (train, learn, calibrate) must be three numbers, got {came}.")
    if not np.all(shares >= 0) or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"The shares (train, learn, calibrate) must be non-negative and sum to 1, got {came}.")
    if shares[1] == 0 or shares[2] == 0:
        raise ValueError(f"learn and calibrate need a positive share, got {came}. Only train may be 0.")
    return shares


def _mask_indices(mask: NDArray[np.bool_], n_rows: int | None, name: str) -> IndexArray:
    if n_rows is not None and mask.size != n_rows:
        raise ValueError(f"{name} is a mask over {mask.size} rows, but there are {n_rows} rows.")
    return np.flatnonzero(mask)


def _check_range(indices: IndexArray, n_rows: int | None, name: str) -> None:
    # Negative numbers are refused as well: -1 and n - 1 are the same row and would pass as disjoint.
    outside = (indices < 0) | (False if n_rows is None else indices >= n_rows)
    if np.any(outside):
        allowed = "be at least 0" if n_rows is None else f"lie between 0 and {n_rows - 1}"
        raise ValueError(
            f"{name} must {allowed}, got {int(outside.sum())} row number(s) outside, the first is "
            f"{indices[outside][0]}."
        )
