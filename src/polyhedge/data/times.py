"""Times of rows, and lengths of time."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.alignment import is_missing
from polyhedge._support.frames import as_pandas

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
    else:
        length = 0 if (_is_number(amount) and amount == 0) or amount == "0" else _microseconds(amount, name)
    if not 0 <= length < _LONGEST:
        most = f"{_LONGEST / _UNITS['D'] / 365:.0f} years"
        raise ValueError(f"{name} must be at least 0 and below {most}, got {str(amount)[:40]!r}.")
    return np.timedelta64(length, "us")


def _microseconds(amount: Any, name: str) -> int:
    if months_in(amount) is not None:
        raise ValueError(
            f"{name} must be a length of time that is always the same, got {amount!r}, and months and years are not. "
            "Give days, such as '30D'."
        )
    match = _TEXT.fullmatch(amount) if isinstance(amount, str) else None
    if match is None or match[2] not in _UNITS:
        raise ValueError(
            f"{name} must be a number with a unit, such as '7D' or '12h', where times are dates, got "
            f"{str(amount)[:40]!r}. Units are {', '.join(_UNITS)}."
        )
    return int(match[1]) * _UNITS[match[2]]


def _is_number(amount: Any) -> bool:
    return isinstance(amount, (int, float, np.integer, np.floating)) and not isinstance(amount, bool)
