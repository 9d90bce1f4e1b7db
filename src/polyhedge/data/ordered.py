"""Splits that respect time and groups, for `RobustDecider(split=...)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._columns import column_of
from polyhedge.data.partition import partition_rows
from polyhedge.data.splits import IndexArray, Split

__all__ = ["GroupSplit", "TimeSplit"]

_SHARES = (0.5, 0.25, 0.25)


@dataclass(frozen=True)
class TimeSplit:
    """The oldest rows train, later ones learn, the newest calibrate; rows of one time stay together.

    Parameters
    ----------
    column : str, int or None
        Column of X that holds the time, as numbers or dates. None where rows come in the order of time.
    times : (n,) array-like, optional
        The times instead of a column, where the predictor should not see them.
    shares : (train, learn, calibrate)
    starts : (learn, calibrate), optional
        First times of the two later parts, instead of shares.
    gap : number or text
        How far before each of the two cuts rows are left out, so that what was learned knows nothing of what calibrates
        through lagged features: in units of the time, such as "7D" or "12h" for dates; in rows without times.

    Examples
    --------
    >>> split = TimeSplit(shares=(0.5, 0.3, 0.2), gap=1).parts(np.zeros((10, 1)), 10)
    >>> split.train, split.learn, split.calibrate
    (array([0, 1, 2, 3]), array([5, 6]), array([8, 9]))
    """

    column: str | int | None = None
    times: Any = field(default=None, repr=False, compare=False)
    shares: Sequence[float] = _SHARES
    starts: tuple[Any, Any] | None = None
    gap: Any = 0

    def parts(self, X: Any, n: int, *, groups: ArrayLike | None = None, needs_training: bool = True) -> Split:
        """The split of n rows; where nothing is to train, its share goes to the others."""
        times = self._times(X, n)
        if self.starts is None:
            shares = (*dealt(self.shares, needs_training), 0.0)
            split = partition_rows(n, shares, rng=np.random.default_rng(0), groups=groups, times=times)[0]
            parts = [split.train, split.learn, split.calibrate]
        else:
            starts = as_times(self.starts, times.dtype)
            part_of = np.searchsorted(starts, times, side="right")
            parts = [np.flatnonzero(part_of == k) for k in range(3)]
        kept = [_before(rows, later, times, as_span(self.gap, times, "gap")) for rows, later in pairwise(parts)]
        in_order = [rows[np.argsort(times[rows], kind="stable")] for rows in (*kept, parts[2])]
        if not len(in_order[1]) or not len(in_order[2]) or (needs_training and not len(in_order[0])):
            raise ValueError(
                f"A split in time with {self} leaves {', '.join(str(len(rows)) for rows in in_order)} rows for train, "
                "learn and calibrate. Change its shares, starts or gap."
            )
        return Split(in_order[0], in_order[1], in_order[2], n_rows=n)

    def _times(self, X: Any, n: int) -> NDArray[Any]:
        if self.times is None and self.column is None:
            return np.arange(n)
        times = as_times(column_of(X, self.column) if self.times is None else self.times)  # type: ignore[arg-type]
        if times.shape != (n,):
            raise ValueError(f"times must have one entry for each of the {n} rows, got shape {times.shape}.")
        return times


@dataclass(frozen=True)
class GroupSplit:
    """Rows with one value in a column are near-copies: they stay in one part, and the radius counts them once.

    Parameters
    ----------
    column : str or int
        Column of X with the labels of the groups.
    shares : (train, learn, calibrate)
        Of the groups, whatever their sizes.

    Examples
    --------
    >>> X = np.repeat(np.arange(8.0), 5)[:, None]
    >>> split = GroupSplit(0).parts(X, 40, rng=np.random.default_rng(0))
    >>> len(np.unique(X[split.calibrate]))
    2
    """

    column: str | int
    shares: Sequence[float] = _SHARES

    def labels(self, X: Any) -> NDArray[Any]:
        """The labels of the groups (n,)."""
        return np.asarray([str(label) for label in column_of(X, self.column)])

    def parts(self, X: Any, n: int, *, rng: np.random.Generator, needs_training: bool = True) -> Split:
        """The split of n rows; where nothing is to train, its share goes to the others."""
        shares = (*dealt(self.shares, needs_training), 0.0)
        return partition_rows(n, shares, rng=rng, groups=self.labels(X))[0]


def dealt(shares: Sequence[float], needs_training: bool) -> tuple[float, ...]:
    """Shares of train, learn and calibrate; that of train goes to the others where nothing is to train."""
    parts = np.asarray(shares, dtype=float)
    if needs_training or len(parts) != 3 or not parts[1:].sum() > 0:
        return tuple(parts.tolist())
    return (0.0, *(parts[1:] / parts[1:].sum()).tolist())


def as_times(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Times as numbers or as dates, none of them missing."""
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values))
    try:
        wants_dates = array.dtype.kind not in "iuf" if dtype is None else np.dtype(dtype).kind == "M"
        times = array.astype("datetime64[us]") if wants_dates else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Times must be numbers, or dates such as 2024-12-31: {error}.") from error
    if np.isnan(times).any() if times.dtype.kind == "f" else np.isnat(times).any():
        raise ValueError("Times must not be missing. Leave rows without a time out.")
    return times


def as_span(amount: Any, times: NDArray[Any], name: str) -> Any:
    """A length of time to add to these times: a number, or a duration where they are dates."""
    if times.dtype.kind != "M":
        return float(amount) if times.dtype.kind == "f" else int(amount)
    text = str(amount).strip()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit: Any = text[len(digits) :].strip()
    if digits == "0":
        return np.timedelta64(0, "us")
    try:
        return np.timedelta64(int(digits), unit).astype("timedelta64[us]")
    except (TypeError, ValueError) as error:
        raise ValueError(f'{name} must be a number with a unit, such as "7D" or "12h", got {amount!r}.') from error


def _before(rows: IndexArray, later: IndexArray, times: NDArray[Any], gap: Any) -> IndexArray:
    """Rows that lie more than the gap before the later part."""
    return rows[times[rows] < times[later].min() - gap] if gap and len(later) else rows
