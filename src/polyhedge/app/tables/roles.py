"""Columns with a role of their own: the time that orders rows, and the groups that stay together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.validation import Array
from polyhedge.predictors.table import Table, text_of, values_of

__all__ = ["copies_of", "groups_of", "holds_dates", "row_prints", "times_of"]


def times_of(table: Table, name: str) -> Array:
    """The time of each row as a number, NaN where it is missing; reads numbers and dates.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"day": ["2024-01-02", "2024-01-01"]}), "history.csv")
    >>> times_of(table, "day").argsort()
    array([1, 0])
    """
    raw = table.column(name)
    values, is_text = values_of(raw)
    if not is_text.any():
        return values
    dates = _dates(raw)
    if dates is None:
        first = raw[is_text].iloc[0]
        raise ValueError(
            f"The time column {name!r} of {table.source} holds neither numbers nor dates that read in one way only, "
            f"for example {str(first)!r}. Write dates as 2024-12-31 or 2024-12-31 23:59."
        )
    seconds = dates.astype("datetime64[us]").astype(np.float64)
    return np.where(np.isnat(dates), np.nan, seconds)


def holds_dates(table: Table, name: str) -> bool:
    """Whether the times of a column are dates, which `times_of` counts in microseconds, instead of numbers."""
    return bool(values_of(table.column(name))[1].any())


def groups_of(table: Table, names: Sequence[str]) -> NDArray[np.intp]:
    """A number for each distinct combination of the columns; a row without a label is a group of its own."""
    table.check_columns(names)
    rows = list(zip(*(text_of(table.frame[name]) for name in names), strict=True))
    codes: dict[Any, int] = {}
    # A row's own number stands for the label that it lacks.
    labels = [row if any(label is not None for label in row) else i for i, row in enumerate(rows)]
    return np.array([codes.setdefault(label, len(codes)) for label in labels], dtype=np.intp)


def copies_of(table: Table) -> NDArray[np.intp]:
    """A number for each distinct row, over all columns of the file."""
    return np.asarray(table.frame.groupby(list(table.frame.columns), dropna=False, sort=False).ngroup(), dtype=np.intp)


def row_prints(table: Table, names: Sequence[str], most: int = 256) -> tuple[str, ...]:
    """Fingerprints of the rows, or of `most` of them chosen by fingerprint, so that two tables can be compared.

    The smallest fingerprints are kept: whether another table holds these rows as well shows how much they share.
    """
    columns = [_plain(table.frame[name]) for name in names]
    prints = {hashlib.sha256(repr(row).encode()).hexdigest()[:16] for row in zip(*columns, strict=True)}
    return tuple(sorted(prints)[:most] if most else sorted(prints))


def _plain(raw: Any) -> list[Any]:
    # Numbers by value, so that 1.50 and 1.5, and CSV and Parquet, give the same fingerprint.
    values, is_text = values_of(raw)
    return values.tolist() if not is_text.any() else text_of(raw).tolist()


def _dates(raw: Any) -> Any:
    """Dates in ISO order, or in the one of day-first and month-first that reads; None where it is unclear."""
    import pandas as pd

    if raw.dtype.kind == "M":
        return _naive(raw)
    try:
        return _naive(pd.to_datetime(raw, format="ISO8601", utc=True))
    except (ValueError, TypeError):
        pass
    readings = []
    for pattern in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y"):
        try:
            readings.append(_naive(pd.to_datetime(raw, format=pattern)))
        except (ValueError, TypeError):
            continue
    return readings[0] if len(readings) == 1 else None


def _naive(dates: Any) -> NDArray[np.datetime64]:
    if dates.dt.tz is not None:
        dates = dates.dt.tz_convert("UTC").dt.tz_localize(None)
    return dates.to_numpy(dtype="datetime64[us]")
