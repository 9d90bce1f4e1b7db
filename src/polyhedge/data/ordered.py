"""Splits by time and by group, for `RobustDecider(split=...)`; times of rows, and lengths of time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.frames import as_pandas, check_same_rows, column_of, is_missing
from polyhedge._support.stored import stored
from polyhedge.data.splits import IndexArray, Split, halve_rows, last_times, partition_rows

__all__ = ["GroupSplit", "TimeSplit"]

_SHARES = (0.5, 0.25, 0.25)
"""Train, learn, calibrate: as in `split_rows`."""
_TEXT = re.compile(r"\s*(-?\d{1,30})\s*([A-Za-z]*)\s*")
_ZONED = re.compile(r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$")
"""The end of a text with an hour and a time zone."""
# Times are counted in microseconds, as Python's own dates are.
_SECOND = 10**6
_UNITS = {"W": 604_800 * _SECOND, "D": 86_400 * _SECOND, "h": 3600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND}
_UNITS |= {"ms": 1000, "us": 1}
_LONGEST = 2**62
"""Microseconds: a date and a length of time below have a sum."""
# Months have no fixed length and are counted by the calendar.
_MONTHS = {"M": 1, "Y": 12}


@stored("time split")
@dataclass(frozen=True)
class TimeSplit:
    """The oldest rows train, later ones learn, the newest calibrate; rows of one time stay together.

    Groups of near-copies stay whole: a group counts as being at the time of its last row, with shares and with starts.

    Parameters
    ----------
    column : column of X that holds the time, as numbers or dates, by name or position. None where rows come in the
        order of time. Dates with a time zone are taken in UTC, and starts without one too.
    times : (n,) the times instead of a column, where the predictor should not see them. With a column as well, times
        of other rows (in `refresh` and `recalibrate`) are read from it.
    shares : (train, learn, calibrate), or with a fourth share of the newest rows, which are held out
    starts : first times of learning and calibration rows, instead of shares; from a third on rows are held out.
    gap : how far before each of the cuts rows are left out, so that what was learned knows nothing of what calibrates
        through lagged features: in units of the time, such as "7D" or "12h" for dates; in rows without times. `refresh`
        keeps it between the rows that train and those that calibrate.

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
        check_gap(self.gap)
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
        parts = self._cut(times, groups, needs_training)
        kept = [self.before(rows, later, times) for rows, later in pairwise(parts)]
        train, learn, calibrate = (in_order(rows, times) for rows in kept)
        if not len(learn) or not len(calibrate) or (needs_training and not len(train)):
            raise ValueError(
                f"A split in time with {self} leaves {len(train)}, {len(learn)}, {len(calibrate)} rows for train, "
                "learn and calibrate. Change its shares, starts or gap."
            )
        return Split(train, learn, calibrate, n_rows=n, held_out=parts[3])

    def _cut(self, times: NDArray[Any], groups: ArrayLike | None, needs_training: bool) -> list[IndexArray]:
        """Rows of train, learn and calibrate, and those held out, without a gap."""
        if self.starts is None:
            shares = dealt(self.shares, needs_training)
            shares = shares if len(shares) == 4 else (*shares, 0.0)
            rng = np.random.default_rng(0)  # not used: rows have times
            split = partition_rows(len(times), shares, rng=rng, groups=groups, times=times)
            return [split.train, split.learn, split.calibrate, split.held_out]
        starts = as_times(self.starts, times.dtype)
        if not (starts[:-1] < starts[1:]).all():
            and_others = ", and held-out rows after these" if len(starts) == 3 else ""
            raise ValueError(
                f"Calibration rows must begin after learning rows{and_others}, got starts={self.starts!r}."
            )
        part_of = np.searchsorted(starts, times if groups is None else last_times(groups, times), side="right")
        return [np.flatnonzero(part_of == k) for k in range(4)]

    def halves(self, X: Any, n: int, *, groups: ArrayLike | None = None) -> tuple[IndexArray, IndexArray]:
        """The older and the newer half of n rows, each in time order, with the gap between them.

        Parameters
        ----------
        X, n, groups : as in `parts`.

        Examples
        --------
        >>> TimeSplit(gap=1).halves(None, 6)
        (array([0, 1]), array([3, 4, 5]))
        """
        times = self.clock(X, n)
        older, newer = halve_rows(n, rng=np.random.default_rng(0), groups=groups, times=times)
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
        shares = dealt(self.shares, needs_training)
        shares = shares if len(shares) == 4 else (*shares, 0.0)
        return partition_rows(n, shares, rng=rng, groups=self.labels(X))


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
    """Shares of train, learn, calibrate, perhaps of held-out rows; without training the others get its share."""
    parts = np.asarray(shares, dtype=float)
    if needs_training or len(parts) not in (3, 4) or not parts[1:3].sum() > 0:
        return tuple(parts.tolist())
    held_out = parts[3:]
    return (0.0, *(parts[1:3] / parts[1:3].sum() * (1 - held_out.sum())).tolist(), *held_out.tolist())


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
        wants_dates = array.dtype.kind not in "iuf" if dtype is None else np.dtype(dtype).kind == "M"
        if wants_dates and array.dtype.kind in "OU" and array.ndim == 1:
            array = np.fromiter(map(_in_utc, array.tolist()), dtype=object, count=len(array))
        times = array.astype("datetime64[us]") if wants_dates else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Times must be numbers, or dates such as 2024-12-31: {error}.") from error
    if np.isnan(times).any() if times.dtype.kind == "f" else np.isnat(times).any():
        raise ValueError("Times must not be missing. Leave rows without a time out.")
    return times


def _in_utc(time: Any) -> Any:
    """A date without a time zone: NumPy has none, and warns of each that it drops."""
    if is_missing(time):
        return np.datetime64("NaT")
    if isinstance(time, str) and _ZONED.search(time):
        time = datetime.fromisoformat(time.strip())
    return time.astimezone(UTC).replace(tzinfo=None) if getattr(time, "tzinfo", None) is not None else time


def as_span(amount: Any, times: NDArray[Any], name: str) -> Any:
    """A length of time, to be added to these times: a number, or a duration where they are dates.

    Examples
    --------
    >>> str(as_span("7D", np.array(["2024-05-01"], dtype="datetime64[us]"), "gap").astype("timedelta64[D]"))
    '7 days'
    """
    if times.dtype.kind == "M":
        return _duration(amount, name)
    if not _is_number(amount) or not 0 <= amount < math.inf:
        unit = "in rows, because rows have no times" if times.dtype.kind == "i" else "in the unit of the times"
        raise ValueError(
            f"{name} must be a number of at least 0 {unit}, got {amount!r}. Texts such as '7D' are for times that are "
            "dates."
        )
    return amount


def check_gap(gap: Any) -> None:
    """Raise where a gap is neither a number nor a duration of at least 0, whatever the times are."""
    if not _is_number(gap):
        _duration(gap, "gap")
    elif not 0 <= gap < math.inf:
        raise ValueError(f"gap must be at least 0, got {gap!r}: it is how far before a cut rows are left out.")


def months_in(amount: Any) -> int | None:
    """How many months a text such as "1M" or "2Y" means; None for all other lengths.

    Examples
    --------
    >>> months_in("3M"), months_in("1Y"), months_in("30D")
    (3, 12, None)
    """
    match = _TEXT.fullmatch(amount) if isinstance(amount, str) else None
    return int(match[1]) * _MONTHS[match[2]] if match and match[2] in _MONTHS else None


def _duration(amount: Any, name: str) -> Any:
    if isinstance(amount, (timedelta, np.timedelta64)):
        length = int(np.timedelta64(amount).astype("timedelta64[us]").astype(np.int64))
    elif (_is_number(amount) and amount == 0) or amount == "0":
        length = 0
    elif months_in(amount) is not None:
        raise ValueError(
            f"{name} must be a length of time that is always the same, got {amount!r}, and months and years are not. "
            "Give days, such as '30D'."
        )
    else:
        match = _TEXT.fullmatch(amount) if isinstance(amount, str) else None
        if match is None or match[2] not in _UNITS:
            raise ValueError(
                f"{name} must be a number with a unit, such as '7D' or '12h', where times are dates, got "
                f"{str(amount)[:40]!r}. Units are {', '.join(_UNITS)}."
            )
        length = int(match[1]) * _UNITS[match[2]]
    if not 0 <= length < _LONGEST:
        most = f"{_LONGEST / _UNITS['D'] / 365:.0f} years"
        raise ValueError(f"{name} must be at least 0 and below {most}, got {str(amount)[:40]!r}.")
    return np.timedelta64(length, "us")


def _is_number(amount: Any) -> bool:
    return isinstance(amount, (int, float, np.integer, np.floating)) and not isinstance(amount, bool)
