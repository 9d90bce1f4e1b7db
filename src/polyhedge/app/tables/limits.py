"""How large a table may be: what does not fit into memory, or is no table at all, is refused before it is read."""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Any

__all__ = ["MAX_TEXT", "MAX_VALUES", "check_bytes", "check_size", "check_texts"]

MAX_VALUES = 20_000_000
"""Rows times columns; as text they take some 2 GiB. Columns may number its square root, as they meet in pairs."""
MAX_TEXT = 100_000
"""Characters of one value. What is longer is a text with a quote that does not end, or no value."""
_BYTES_A_VALUE = 20
"""A double in full precision; a file that holds more has texts, which `MAX_VALUES` does not count."""


def check_size(name: str, n_rows: int, n_columns: int, max_values: int) -> None:
    """Raise where a table has too many values or columns.

    Examples
    --------
    >>> check_size("history.csv", 100, 20_000, MAX_VALUES)
    Traceback (most recent call last):
        ...
    ValueError: history.csv has 20000 columns, more than 4472. If that is meant, pass max_values=400000000 ...
    """
    if n_columns > isqrt(max_values):
        _refuse(f"{name} has {n_columns} columns, more than {isqrt(max_values)}", n_columns**2)
    if n_rows * n_columns > max_values:
        values = n_rows * n_columns
        _refuse(f"{name} has {n_rows} rows and {n_columns} columns, more than {max_values} values", values)


def check_bytes(path: Path, n_bytes: int, max_values: int) -> None:
    """Raise where a file, or what a packed one says it holds, is larger than the values it may have."""
    limit = _BYTES_A_VALUE * max_values
    if n_bytes > limit:
        _refuse(f"{path.name} has {n_bytes} bytes, more than {limit}", -(-n_bytes // _BYTES_A_VALUE))


def check_texts(frame: Any, name: str) -> None:
    """Raise where one value is as long as a book."""
    for column in frame.columns:
        if frame[column].dtype.kind in "OUT":
            lengths = frame[column].map(lambda value: len(value) if isinstance(value, str) else 0).to_numpy()
            if (lengths > MAX_TEXT).any():
                row = int(lengths.argmax())
                raise ValueError(
                    f"{name} has a value of {lengths[row]} characters in row {row + 1} of column {str(column)[:80]!r}, "
                    f"more than {MAX_TEXT}. Is a quote missing? Leave out or cut columns with long texts."
                )


def _refuse(what: str, needed: int) -> None:
    raise ValueError(f"{what}. If that is meant, pass max_values={needed} (--max-values).")
