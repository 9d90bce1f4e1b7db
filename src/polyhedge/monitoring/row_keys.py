"""What rows are called: one text a row, so that what was decided and what came find each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from numbers import Integral, Number
from typing import Any

from polyhedge._support.alignment import is_missing

__all__ = ["row_keys"]


def row_keys(keys: Iterable[Any], n: int | None = None, what: str = "keys") -> list[str]:
    """Keys as texts; an error where there is not one for each of `n` rows, one is missing, or one stands twice.

    A number is the same key however it is stored: a column of whole numbers becomes one of floats where a value is
    missing in another file. A date is too, in NumPy, in pandas and as a text, without an hour where it is midnight.

    Examples
    --------
    >>> row_keys([7, 8.0, 0.5, "007"])
    ['7', '8', '0.5', '007']
    >>> import numpy as np
    >>> row_keys([np.datetime64("2024-05-01"), datetime(2024, 5, 2, 12)])
    ['2024-05-01', '2024-05-02 12:00:00']
    """
    values = list(keys)
    if n is not None and len(values) != n:
        raise ValueError(f"There must be one key for each of {n} rows, got {len(values)}.")
    missing = [i for i, value in enumerate(values) if is_missing(value) or value == ""]
    if missing:
        raise ValueError(
            f"{what} must name every row, but {len(missing)} row(s) have no name, the first is row {missing[0] + 1}. "
            "Give each a name of its own, or leave these rows out."
        )
    texts = [_text(value) for value in values]
    key, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    if count > 1:
        raise ValueError(f"{what} must name each row once, but {key!r} stands there {count} times.")
    return texts


def _text(value: Any) -> str:
    if type(value).__name__ == "datetime64":  # of NumPy, which is not imported for a command's help
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime):
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, Number) and not isinstance(value, (bool, Integral, complex)):
        number = float(value)  # type: ignore[arg-type]
        return str(int(number)) if number.is_integer() else str(value)
    return str(value)
