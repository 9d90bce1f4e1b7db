"""Dates as features: parts that come back, such as the weekday."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

__all__ = ["DATE_PARTS", "are_iso_dates", "is_dates", "part_values"]

DATE_PARTS = ("weekday", "month", "hour")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?")
_WITH_OFFSET = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*?)(?:Z|[+-]\d{2}(?::?\d{2})?)")


def is_dates(column: Any) -> bool:
    """Whether a column of a frame holds dates, as a type of its own or as Python objects; texts are texts."""
    if column.dtype.kind == "M":
        return True
    there = column.dropna() if column.dtype == object else ()
    return bool(len(there)) and all(isinstance(value, date) for value in there)


def are_iso_dates(column: Any) -> bool:
    """Whether a column holds texts such as 2024-02-29 or 2024-02-29T18:00 alone, which is how files keep dates.

    Examples
    --------
    >>> import pandas as pd
    >>> [are_iso_dates(pd.Series(values)) for values in (["2024-02-29", None], ["2024-02-30"], ["May"], [7])]
    [True, False, False, False]
    """
    there = column.dropna()
    if not len(there) or not all(isinstance(value, str) and _ISO.fullmatch(value) for value in there):
        return False
    return bool(_read(there).notna().all())


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
