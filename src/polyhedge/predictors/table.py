"""A table with the source of its rows, and its columns as numbers, labels or parts of dates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Mask

__all__ = [
    "DATE_PARTS",
    "IN_PYTHON",
    "Table",
    "WaysOut",
    "is_dates",
    "listed",
    "part_values",
    "text_of",
    "time_order",
    "truth_values",
    "values_of",
]

DATE_PARTS = ("weekday", "month", "hour")
_FEWEST_STEPS = 10
"""Steps from date to date that tell an order: fewer may go one way by chance."""
_MOST_READABLE = 0.9
"""Share of texts beyond which a column is one of dates, and others in it are missing: slips of the pen."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?")
_WITH_OFFSET = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*?)(?:Z|[+-]\d{2}(?::?\d{2})?)")
# What fits into a message.
_SHOWN_NAMES, _SHOWN_LETTERS = 50, 80


@dataclass(frozen=True)
class WaysOut:
    """What a user can do about a column, in the words of where the table comes from."""

    missing: str = "give --missing WORD for a word that stands for a missing value"
    kinds: str = ", or --categorical {name} if the column names kinds"
    decimal: str = " If the comma is a decimal comma, give --decimal ','."
    names: str = (
        "Name it in --features to use it, or in --group if rows of one name belong together. Write dates as 2024-02-29 "
        "to use their weekday and month."
    )
    rows: str = " (rows are counted below the header)"
    features: str = "name the features with --features"


_SECONDS_A_DAY = 86_400
"""Lengths of time are read in days: most of those in tables are of some days or hours."""
IN_PYTHON = WaysOut(
    missing="put a missing value in their place",
    kinds=", or make the column a category if it names kinds: X[{name!r}].astype('category')",
    decimal=" Read decimal commas with pd.read_csv(..., decimal=',').",
    names="Make it a category to use it, X[{name!r}].astype('category'), or dates with pd.to_datetime.",
    rows=" (rows are counted from 1)",
    features="make texts that name kinds a category",
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a file, or of a frame, in their order, with what was guessed while reading them.

    Attributes
    ----------
    frame : pandas.DataFrame
        Text as written in a CSV file (missing values as NaN), typed columns of a Parquet file. Lengths of time become
        numbers of days, and periods the dates at which they begin.
    source : str
        Name of the file, for messages.
    ways_out : WaysOut
        What a reader of the messages can do, in the words of the command line or of Python.
    notes : tuple of str
        What a reader should know: a guessed encoding, a decimal comma, columns left out.
    """

    frame: Any
    source: str
    notes: tuple[str, ...] = ()
    ways_out: WaysOut = field(default_factory=WaysOut)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", _with_plain_times(self.frame))

    def __len__(self) -> int:
        return len(self.frame)

    def column(self, name: str) -> Any:
        """One column, or an error that lists the columns there are."""
        self.check_columns([name])
        return self.frame[name]

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise if a column is not there."""
        missing = [name for name in names if name not in self.frame.columns]
        if missing:
            raise ValueError(
                f"{self.source} has no column {listed(missing)}. Its columns are: {_few(self.frame.columns)}."
            )


def _with_plain_times(frame: Any) -> Any:
    """The frame with lengths of time as days and periods as dates; as it is where it has neither."""
    lengths = [name for name, dtype in frame.dtypes.items() if getattr(dtype, "kind", "") == "m"]
    periods = [name for name, dtype in frame.dtypes.items() if type(dtype).__name__ == "PeriodDtype"]
    if not (lengths or periods) or not frame.columns.is_unique:
        return frame
    days = {name: frame[name].dt.total_seconds().astype("float64") / _SECONDS_A_DAY for name in lengths}
    return frame.assign(**days, **{name: frame[name].dt.to_timestamp() for name in periods})


def values_of(column: Any) -> tuple[Array, Mask]:
    """A column as numbers, NaN where there is none, and where it holds something that is no number.

    Examples
    --------
    >>> import pandas as pd
    >>> values, is_text = values_of(pd.Series(["1.5", "abc", None]))
    >>> values, is_text
    (array([1.5, nan, nan]), array([False,  True, False]))
    """
    import pandas as pd

    if column.dtype.kind == "M":
        return np.full(len(column), np.nan), column.notna().to_numpy()
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    if column.dtype.kind not in "biuf":
        # pandas before 3 misses the last digit of some numbers that are written as text.
        numbers = np.flatnonzero(np.isfinite(values))
        values[numbers] = [float(entry) for entry in column.iloc[numbers]]
    odd = np.flatnonzero(np.isnan(values))
    is_true, is_false = truth_values(column.iloc[odd])
    values[odd[is_true]], values[odd[is_false]] = 1.0, 0.0
    is_text = (column.notna().to_numpy() & np.isnan(values)) | np.isinf(values)
    values[is_text] = np.nan
    return values, np.asarray(is_text, dtype=bool)


def truth_values(column: Any) -> tuple[Mask, Mask]:
    """Where a column says true and where it says false, as booleans or in words: files of two kinds must agree.

    Examples
    --------
    >>> import pandas as pd
    >>> truth_values(pd.Series(["True", "false", "yes", None]))
    (array([ True, False, False, False]), array([False,  True, False, False]))
    """
    if column.dtype.kind in "iuf":
        return np.zeros(len(column), dtype=bool), np.zeros(len(column), dtype=bool)
    words = np.array([str(value).strip().lower() for value in column], dtype=object)
    return np.asarray(words == "true"), np.asarray(words == "false")


def text_of(column: Any) -> Any:
    """A column as labels, None where missing; whole numbers are written without a point."""
    labels = np.full(len(column), None, dtype=object)
    there = column.notna().to_numpy()
    labels[there] = [_label(value) for value in column[there]]
    return labels


def _label(value: Any) -> str:
    # A Parquet file may store the codes 1, 2, 3 as floats because one of them is missing.
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def listed(names: Sequence[str]) -> str:
    """Names in quotes, as many as fit into a message."""
    return _few([repr(name) for name in names])


def _few(names: Iterable[str]) -> str:
    """Names in a message that can be read."""
    names = [name if len(name) <= _SHOWN_LETTERS else f"{name[:_SHOWN_LETTERS]}..." for name in map(str, names)]
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


# Dates


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
    is_iso = there.map(lambda text: bool(_ISO.fullmatch(text))) & _read_dates(there).notna()
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
            dates = column if column.dtype.kind == "M" else _read_dates(column)
            steps = np.diff(dates.dropna().astype("int64"))
            forward, back = int((steps > 0).sum()), int((steps < 0).sum())
            if forward + back >= _FEWEST_STEPS and 4 * min(forward, back) <= forward + back:
                return str(name), back == 0
    return None


def _read_dates(texts: Any) -> Any:
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
    dates = column if column.dtype.kind == "M" else _read_dates(column)
    if part == "weekday":
        return dates.dt.day_name()
    return dates.dt.strftime("%m") if part == "month" else dates.dt.hour + dates.dt.minute / 60
