"""Dates as features: parts that come back, such as the weekday."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

__all__ = ["DATE_PARTS", "are_iso_dates", "is_dates", "part_values"]

DATE_PARTS = ("weekday", "month", "hour")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?")


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
    import pandas as pd

    there = column.dropna()
    if not len(there) or not all(isinstance(value, str) and _ISO.fullmatch(value) for value in there):
        return False
    return bool(pd.to_datetime(there, errors="coerce", format="ISO8601").notna().all())


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
