"""Disjoint parts of the rows: train the predictor, learn the set, calibrate its radius, hold out for a report.

Parts are random, or by time (`TimeSplit`) and by group (`GroupSplit`) for `RobustDecider(split=...)`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.frames import as_pandas, check_same_rows, column_of, is_missing, iso_date
from polyhedge._support.stored import stored
from polyhedge._support.validation import check_count, check_rng

IndexArray = NDArray[np.intp]

_PARTS = ("train", "learn", "calibrate", "held_out")
_SHARES = (0.5, 0.25, 0.25)
"""Train, learn, calibrate."""
HALVES = (0.0, 0.5, 0.5, 0.0)
"""Two halves, of which the first learns and the second calibrates."""
_MONTHS = {"M": 1, "Y": 12}
"""Months have no fixed length and are counted by the calendar."""


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
        if _n_repeated(np.concatenate([getattr(self, part) for part in _PARTS])):
            for first, second in combinations(_PARTS, 2):
                shared = np.intersect1d(getattr(self, first), getattr(self, second), assume_unique=True)
                if shared.size:
                    raise ValueError(
                        f"{first} and {second} share {shared.size} row(s), the first is row {shared[0]}: the "
                        "coverage guarantee needs disjoint splits. Give every row to one part only."
                    )


def split_rows(n: int, shares: Sequence[float] = _SHARES, *, rng: np.random.Generator) -> Split:
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
    rng: np.random.Generator | None = None,
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
    rng : source of the random order; not needed where `times` are given.
    groups : (n,) labels; rows with equal labels stay together, and the shares count groups instead of rows.
    times : (n,) numbers or dates. With groups as well, a group counts as being at the time of its last row.

    Notes
    -----
    Which groups calibrate must not depend on how large they are. If the order were cut at a number of rows, a large
    group would tend to lie across the cut. Calibration groups would then be smaller than a new one, and unlike it in
    all that depends on the size. So parts may hold very unequal numbers of rows.

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
    # The place of each row's block in the order in which parts are cut, and how many groups lie up to each block.
    group_of = np.arange(n) if groups is None else _codes(groups, n, "groups")
    if times is None:
        block_of = check_rng(rng).permutation(group_of.max() + 1)[group_of]
    else:
        block_of = np.unique(_last(group_of, _codes(times, n, "times")), return_inverse=True)[1]
    # One row of each group stands for it, so that its size has no say in where the cuts are.
    ends = np.cumsum(np.bincount(block_of[np.unique(group_of, return_index=True)[1]]))
    # The first cut that is nearest; where two are equally near the later part gets the block.
    at = np.concatenate([[0], ends])
    cuts = [int(np.argmin(np.abs(at - ends[-1] * share))) for share in np.cumsum(wanted)[:3]]
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


@stored("time split")
@dataclass(frozen=True)
class TimeSplit:
    """The oldest rows train, later ones learn, the newest calibrate; rows of one time stay together.

    Groups of near-copies stay whole: a group has the time of its last row, both for shares and for starts.

    Parameters
    ----------
    column : column of X that holds the time, as numbers or dates, by name or position. None where rows come in the
        order of time. Dates with a time zone are taken in UTC, and starts without one too.
    times : (n,) the times instead of a column, where the predictor should not see them. With a column as well, times
        of other rows (in `refresh` and `recalibrate`) are read from it.
    shares : (train, learn, calibrate), or with a fourth share of the newest rows, which are held out
    starts : first times of learning and calibration rows, instead of shares; from a third on rows are held out.
    gap : how far before each of the cuts rows are left out, because lagged features of later rows look back at them.
        In units of the time, such as "7D" or "12h" for dates; in rows without times. `refresh` keeps it between the
        rows that train and those that calibrate.

    Examples
    --------
    >>> split = TimeSplit(shares=(0.5, 0.3, 0.2), gap=1).parts(np.zeros((10, 1)), 10)
    >>> split.train, split.learn, split.calibrate
    (array([0, 1, 2, 3]), array([5, 6]), array([8, 9]))
    """

    column: str | int | None = None
    times: Any = field(default=None, repr=False, compare=False)
    shares: Sequence[float] = _SHARES
    starts: tuple[Any, ...] | None = None
    gap: Any = 0

    def __post_init__(self) -> None:
        """Refuse what is wrong whatever the rows are."""
        if isinstance(self.column, Integral):
            object.__setattr__(self, "column", int(self.column))  # files hold plain numbers
        if not _is_number(self.gap) or not 0 <= self.gap < math.inf:
            _duration(self.gap, "gap")
        if self.starts is not None and (isinstance(self.starts, str) or np.shape(self.starts) not in [(2,), (3,)]):
            raise ValueError(
                "starts must be two times, those at which learning rows and calibration rows begin, got "
                f"{self.starts!r}. Give both, or shares instead; a third time is where held-out rows begin."
            )

    def parts(self, X: Any, n: int, *, groups: ArrayLike | None = None, needs_training: bool = True) -> Split:
        """The split of n rows; those of a fourth share, or from a third start on, are held out.

        Parameters
        ----------
        X, n : the rows, in which the column of times is looked up, and their number.
        groups : labels of near-copies (n,), which stay in one part.
        needs_training : whether rows are to train a predictor; if not, their share goes to the others.
        """
        times = self.clock(X, n)
        if self.starts is None:
            split = partition_rows(n, dealt(self.shares, needs_training), groups=groups, times=times)
            parts = [split.train, split.learn, split.calibrate, split.held_out]
        else:
            starts = as_times(self.starts, times.dtype)
            if not (starts[:-1] < starts[1:]).all():
                raise ValueError(f"starts must follow one another in time, got {self.starts!r}.")
            part_of = np.searchsorted(starts, times if groups is None else last_times(groups, times), side="right")
            parts = [np.flatnonzero(part_of == k) for k in range(4)]
        kept = [self.before(rows, later, times) for rows, later in pairwise(parts)]
        train, learn, calibrate = (in_order(rows, times) for rows in kept)
        if not len(learn) or not len(calibrate) or (needs_training and not len(train)):
            raise ValueError(
                f"A split in time with {self} leaves {len(train)}, {len(learn)}, {len(calibrate)} rows for train, "
                "learn and calibrate. Change its shares, starts or gap."
            )
        return Split(train, learn, calibrate, n_rows=n, held_out=parts[3])

    def halves(self, X: Any, n: int, *, groups: ArrayLike | None = None) -> tuple[IndexArray, IndexArray]:
        """The older and the newer half of n rows, each in time order, with the gap between them.

        Parameters
        ----------
        X, n, groups : as in `parts`.
        """
        times = self.clock(X, n)
        halves = partition_rows(n, HALVES, groups=groups, times=times)
        older, newer = halves.learn, halves.calibrate
        kept = self.before(older, newer, times)
        if not len(kept):
            raise ValueError(
                f"A gap of {self.gap!r} leaves none of the older {len(older)} of {n} rows. Bring rows of a longer "
                "time, or a shorter gap."
            )
        return in_order(kept, times), in_order(newer, times)

    def clock(self, X: Any, n: int) -> NDArray[Any]:
        """The times (n,) of the `n` rows of `X`: those given, those of the column, or else the numbers of the rows."""
        if self.times is None and self.column is None:
            return np.arange(n)
        check_same_rows({"X": X, "times": self.times})
        times = as_times(column_of(X, self.column) if self.times is None else self.times)  # type: ignore[arg-type]
        if times.shape != (n,):
            raise ValueError(f"times must have one entry for each of the {n} rows, got shape {times.shape}.")
        return times

    def before(self, rows: IndexArray, later: IndexArray, times: NDArray[Any]) -> IndexArray:
        """Those of the `rows` whose `times` lie more than the gap before the `later` ones; all without a gap."""
        gap = as_span(self.gap, times, "gap")
        return rows[times[rows] < times[later].min() - gap] if gap and len(later) else rows


@stored("group split")
@dataclass(frozen=True)
class GroupSplit:
    """Rows with one value in a column are near-copies: they stay in one part, and the radius counts them once.

    Parameters
    ----------
    column : column of X with the labels of the groups, by name or position.
    shares : (train, learn, calibrate) of the groups, whatever their sizes, perhaps with a fourth share of groups that
        are held out.

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
        """The labels of the groups (n,) of the rows of X; none may be missing."""
        labels = column_of(X, self.column)
        missing = [row for row, label in enumerate(labels) if is_missing(label)]
        if missing:
            raise ValueError(
                f"The column {self.column!r} must name the group of each row, but {len(missing)} row(s) have none, the "
                f"first is row {missing[0]}. Give rows without a group a label of their own."
            )
        return np.asarray([str(label) for label in labels])

    def parts(self, X: Any, n: int, *, rng: np.random.Generator, needs_training: bool = True) -> Split:
        """The split of n rows.

        Parameters
        ----------
        X, n : the rows, in which the column of labels is looked up, and their number.
        rng : numpy.random.Generator, which deals the groups.
        needs_training : whether rows are to train a predictor; if not, their share goes to the others.
        """
        return partition_rows(n, dealt(self.shares, needs_training), rng=rng, groups=self.labels(X))


def in_time(split: Any) -> bool:
    """Whether parts follow one another in time."""
    return isinstance(split, (str, TimeSplit))


def has_clock(split: Any) -> bool:
    """Whether a split knows the times of rows, by a column or as given."""
    return isinstance(split, TimeSplit) and not (split.column is None and split.times is None)


def clock_for(split: Any, times: Any = None) -> TimeSplit | None:
    """How rows that a fit has not seen are ordered in time; None where that is not known, or not of importance.

    `times` are those of these rows; a split that was given times knows those of others.
    """
    how = TimeSplit() if isinstance(split, str) else split if isinstance(split, TimeSplit) else None
    if times is not None:
        return TimeSplit(times=times, gap=0 if how is None else how.gap)
    return None if how is None or (how.times is not None and how.column is None) else replace(how, times=None)


def dealt(shares: Sequence[float], needs_training: bool) -> tuple[float, ...]:
    """Shares of train, learn, calibrate and held-out rows; without training the others get its share."""
    parts = np.asarray([*shares, 0.0] if len(shares) == 3 else shares, dtype=float)
    if needs_training or len(parts) != 4 or not parts[1:3].sum() > 0:
        return tuple(parts.tolist())
    return (0.0, *(parts[1:3] / parts[1:3].sum() * (1 - parts[3])).tolist(), float(parts[3]))


def in_order(rows: IndexArray, times: NDArray[Any]) -> IndexArray:
    """The rows by their times; those of one time as they come."""
    return rows[np.argsort(times[rows], kind="stable")]


def as_times(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Times as numbers or as dates, none of them missing; those with a time zone as they are in UTC.

    Examples
    --------
    >>> as_times(["2024-03-31T01:30+01:00", "2024-03-31T03:30+02:00"]).astype(str).tolist()
    ['2024-03-31T00:30:00.000000', '2024-03-31T01:30:00.000000']
    """
    values = as_pandas(values)
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values))
    try:
        if array.dtype.kind in "iuf" if dtype is None else np.dtype(dtype).kind != "M":
            times = array.astype(np.float64)
        else:
            from pandas import to_datetime

            dates = [iso_date(each) for each in array.tolist()] if array.dtype.kind in "OU" else array
            times = to_datetime(dates, utc=True, format="ISO8601").tz_localize(None).to_numpy("datetime64[us]")
    except (TypeError, ValueError) as error:
        raise ValueError(f"Times must be numbers, or dates such as 2024-12-31: {error}.") from error
    if np.isnan(times).any() if times.dtype.kind == "f" else np.isnat(times).any():
        raise ValueError("Times must not be missing. Leave rows without a time out.")
    return times


def as_span(amount: Any, times: NDArray[Any], name: str) -> Any:
    """A length of time, to be added to these times: a number, or a duration where they are dates."""
    if times.dtype.kind == "M":
        return _duration(amount, name)
    if not _is_number(amount) or not 0 <= amount < math.inf:
        unit = "in rows, because rows have no times" if times.dtype.kind == "i" else "in the unit of the times"
        raise ValueError(
            f"{name} must be a number of at least 0 {unit}, got {amount!r}. Texts such as '7D' are for times that are "
            "dates."
        )
    return amount


def months_in(amount: Any) -> int | None:
    """How many months a text such as "1M" or "2Y" means; None for all other lengths.

    Examples
    --------
    >>> months_in("3M"), months_in("1Y"), months_in("30D")
    (3, 12, None)
    """
    match = re.fullmatch(r"(\d+)([MY])", amount) if isinstance(amount, str) else None
    return int(match[1]) * _MONTHS[match[2]] if match else None


def _duration(amount: Any, name: str) -> Any:
    from pandas import Timedelta

    try:
        if _is_number(amount) and amount != 0:
            raise ValueError
        length = Timedelta(amount)
        if not length >= Timedelta(0):  # negative, or none
            raise ValueError
    except ValueError as error:
        raise ValueError(
            f"{name} must be a number of at least 0 with a unit, such as '7D' or '12h', where times are dates, got "
            f"{str(amount)[:40]!r}. Units are W, D, h, min, s, ms and us; backtests "
            "and blocks also take months (1M) and years (1Y)."
        ) from error
    return length.to_timedelta64().astype("timedelta64[us]")


def _is_number(amount: Any) -> bool:
    return isinstance(amount, (int, float, np.integer, np.floating)) and not isinstance(amount, (bool, np.timedelta64))


def last_times(groups: ArrayLike, times: NDArray[Any]) -> NDArray[Any]:
    """The time (n,) of the last row of each row's group."""
    values, code = np.unique(times, return_inverse=True)
    return np.asarray(values[_last(_codes(groups, len(times), "groups"), code)])


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


def _check_shares(given: Sequence[float], n_parts: int) -> NDArray[np.float64]:
    shares = np.asarray(given, dtype=np.float64)
    received = f"({', '.join(f'{share:g}' for share in shares.ravel())})"
    names = "train, learn, calibrate" if n_parts == 3 else "train, learn, calibrate, held-out"
    if shares.shape != (n_parts,) or not np.all(shares >= 0) or abs(shares.sum() - 1) > 1e-9 or not shares[1:3].all():
        raise ValueError(
            f"The shares ({names}) must be {n_parts} non-negative numbers that sum to 1, those of learn and calibrate "
            f"positive, got {received}."
        )
    return shares


def as_indices(values: ArrayLike, n_rows: int | None = None, *, name: str = "indices") -> IndexArray:
    """Row numbers, given by `values` without repetition or as a mask, as a new integer array checked against `n_rows`.

    Errors call the argument `name`.
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
    again = _n_repeated(indices)
    if again:
        raise ValueError(f"{name} names {again} row(s) more than once. Give every row once.")
    return indices


def _n_repeated(rows: IndexArray) -> int:
    return rows.size - len(np.unique(rows))


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
    """The rows of `X`, an array, a data frame or a sequence, at these `indices`, as the same kind of object."""
    rows = as_indices(indices)
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]


def equal_rows(frame: Any) -> tuple[IndexArray, int]:
    """A number (n,) for each distinct row of a pandas frame, and how many rows are equal to an earlier one.

    Copies in two parts make a model look better than it is: pass the numbers as `groups` to `RobustDecider.fit`.
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
