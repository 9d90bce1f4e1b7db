"""A table with the source of its rows, and its columns as numbers or labels; values stay as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Mask

__all__ = ["IN_PYTHON", "Table", "WaysOut", "listed", "text_of", "truth_values", "values_of"]

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
