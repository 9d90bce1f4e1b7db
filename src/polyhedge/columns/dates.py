"""Dates as features: parts that come back, such as the weekday."""

from __future__ import annotations

from datetime import date
from typing import Any

__all__ = ["DATE_PARTS", "is_dates", "part_values"]

DATE_PARTS = ("weekday", "month", "hour")


def is_dates(column: Any) -> bool:
    """Whether a column of a frame holds dates, as a type of its own or as Python objects; texts are texts."""
    if column.dtype.kind == "M":
        return True
    there = column.dropna() if column.dtype == object else ()
    return bool(len(there)) and all(isinstance(value, date) for value in there)


def part_values(column: Any, part: str) -> Any:
    """The weekdays ("Monday", ...), months ("01", ...) or hours (0.0 to 23.98) of a column; missing where no date is.

    Texts are read as ISO 8601, which is how files keep dates.

    Examples
    --------
    >>> import pandas as pd
    >>> part_values(pd.Series(["2024-02-29", "soon"]), "weekday").tolist()
    ['Thursday', nan]
    """
    import pandas as pd

    dates = column if column.dtype.kind == "M" else pd.to_datetime(column, errors="coerce", format="ISO8601")
    if part == "weekday":
        return dates.dt.day_name()
    return dates.dt.strftime("%m") if part == "month" else dates.dt.hour + dates.dt.minute / 60
