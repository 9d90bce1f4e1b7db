"""Dates as features: parts that come back, such as the weekday."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import numpy as np

__all__ = ["DATE_PARTS", "is_dates", "part_values", "time_order"]

DATE_PARTS = ("weekday", "month", "hour")
_FEWEST_STEPS = 10
"""Steps from date to date that tell an order: fewer may go one way by chance."""
_MOST_READABLE = 0.9
"""Share of texts beyond which a column is one of dates, and others in it are missing: slips of the pen."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?")
_WITH_OFFSET = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*?)(?:Z|[+-]\d{2}(?::?\d{2})?)")


def is_dates(column: Any) -> bool:
    """Whether a column of a frame holds dates: as a type of its own, as Python objects or as ISO 8601 texts.

    Empty texts, and a few that are no dates, are missing dates.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = ["2024-02-29", None], ["2024-02-29 18:00", "2024-03-01T06:00:00Z"], ["2024-02-30"], ["May"], [7]
    >>> [is_dates(pd.Series(values)) for values in columns]
    [True, True, False, False, False]
    """
    if column.dtype.kind == "M":
        return True
    there = column.dropna()
    if not len(there) or column.dtype == "category":
        return False
    if all(isinstance(value, date) for value in there):
        return True
    if not all(isinstance(value, str) for value in there):
        return False
    there = there[there.str.strip() != ""]
    is_iso = there.map(lambda text: bool(_ISO.fullmatch(text))) & _read(there).notna()
    return len(there) > 0 and bool(is_iso.sum() > _MOST_READABLE * len(there))


def time_order(frame: Any) -> tuple[str, bool] | None:
    """The column of dates in whose order rows come, and whether no row is earlier than the one before; None if none is.

    An index of dates is the column "X.index". Rows may come newest first, several of one date, or one store after
    another: at most one step in four goes the other way, where rows in no order go either way equally often.

    Examples
    --------
    >>> import pandas as pd
    >>> days = pd.date_range("2024-01-01", periods=30).strftime("%Y-%m-%d")
    >>> time_order(pd.DataFrame({"day": days})), time_order(pd.DataFrame({"day": [*days[::-1], *days[::-1]]}))
    (('day', True), ('day', False))
    """
    index = [("X.index", frame.index.to_series())] if frame.index.dtype.kind == "M" else []
    for name, column in [*frame.items(), *index]:
        if is_dates(column):
            dates = column if column.dtype.kind == "M" else _read(column)
            steps = np.diff(dates.dropna().astype("int64"))
            forward, back = int((steps > 0).sum()), int((steps < 0).sum())
            if forward + back >= _FEWEST_STEPS and 4 * min(forward, back) <= forward + back:
                return str(name), back == 0
    return None


def _read(texts: Any) -> Any:
    """Dates by the clock that they are written in: offsets of a zone change in spring and autumn, weekdays do not."""
    import pandas as pd

    return pd.to_datetime(texts.map(_without_offset), errors="coerce", format="ISO8601")


def _without_offset(value: Any) -> Any:
    match = _WITH_OFFSET.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else match.group(1)


def part_values(column: Any, part: str) -> Any:
    """The weekdays ("Monday", ...), months ("01", ...) or hours (0.0 to 23.98) of a column; missing where no date is.

    Texts are read as ISO 8601, which is how files keep dates.

    Examples
    --------
    >>> import pandas as pd
    >>> part_values(pd.Series(["2024-02-29", "soon"]), "weekday").tolist()
    ['Thursday', nan]
    >>> part_values(pd.Series(["2024-03-31 00:30+01:00", "2024-03-31 05:00+02:00"]), "hour").tolist()
    [0.5, 5.0]
    """
    dates = column if column.dtype.kind == "M" else _read(column)
    if part == "weekday":
        return dates.dt.day_name()
    return dates.dt.strftime("%m") if part == "month" else dates.dt.hour + dates.dt.minute / 60
