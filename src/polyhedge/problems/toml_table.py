"""Tables of a problem file: each value is taken once, checked, and what is left over is a mistake that is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from polyhedge._support.validation import Array


class Table:
    """A table with its place in the file, for messages such as "cost.maxima[2].pieces must ...".

    Examples
    --------
    >>> table = Table({"lower": 0, "uper": 1}, "")
    >>> table.vector("lower", ("a", "b"), fill=True)
    array([0., 0.])
    >>> table.finish(["lower", "upper"])
    Traceback (most recent call last):
        ...
    ValueError: uper is not a key of a problem file. Did you mean "upper"?
    """

    def __init__(self, content: Mapping[str, Any], place: str, top: Sequence[str] = ()) -> None:
        self.content, self.place, self.top = dict(content), place, top

    def at(self, key: str) -> str:
        """Where a key stands in the file."""
        return f"{self.place}.{key}" if self.place else key

    def take(self, key: str, default: Any = None) -> Any:
        """A value, which then is no longer left over."""
        return self.content.pop(key, default)

    def has(self, key: str) -> bool:
        """Whether a key is there and not taken yet."""
        return key in self.content

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty text."""
        value = self.take(key, default)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "must be a text", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.take(key, default)
        if not is_number(value):
            raise self.wrong(key, "must be a finite number", value)
        return float(value)

    def vector(self, key: str, names: Sequence[str], *, fill: bool = False, missing: float = 0.0) -> Array:
        """One number for each name: a list, a table by name, or (with `fill`) one number for all.

        Entries that a table leaves out are `missing`, and so is a key that is not there.
        """
        value = self.take(key)
        n = len(names)
        if value is None:
            return np.full(n, missing)
        if fill and is_number(value):
            return np.full(n, float(value))
        if isinstance(value, dict):
            return self._by_name(key, value, names, missing)
        wanted = f"must be a list of {n} numbers or a table by name ({', '.join(names)[:200]})"
        if not isinstance(value, list) or len(value) != n or not all(map(is_number, value)):
            raise self.wrong(key, wanted + (" or one number" if fill else ""), value)
        return np.array(value, dtype=np.float64)

    def _by_name(self, key: str, value: Mapping[str, Any], names: Sequence[str], missing: float) -> Array:
        numbers = np.full(len(names), missing)
        for name, number in value.items():
            if name not in names:
                raise ValueError(f"{self.at(key)} names {name}, which is not one of them.{_hint(name, names)}")
            if not is_number(number):
                raise self.wrong(f"{key}.{name}", "must be a finite number", number)
            numbers[list(names).index(name)] = float(number)
        return numbers

    def matrix(self, key: str, rows: int, columns: int, what: str) -> Array | None:
        """A list of rows, or None where the key is not there."""
        value = self.take(key)
        if value is None:
            return None
        fits = isinstance(value, list) and len(value) == rows and all(isinstance(row, list) for row in value)
        if not fits or not all(len(row) == columns and all(map(is_number, row)) for row in value):
            raise self.wrong(key, f"must be {rows} rows of {columns} numbers ({what})", value)
        return np.array(value, dtype=np.float64)

    def tables(self, key: str) -> list[Table]:
        """A list of tables; empty where the key is not there."""
        value = self.take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "must be a list of tables", value)
        return [Table(item, f"{self.at(key)}[{i + 1}]", self.top) for i, item in enumerate(value)]

    def wrong(self, key: str, wanted: str, value: Any) -> ValueError:
        """The error that says what must hold and what came."""
        if value is None:
            return ValueError(f"{self.at(key)} is missing: it {wanted}.")
        shown = repr(value)
        return ValueError(f"{self.at(key)} {wanted}, got {shown if len(shown) <= 80 else shown[:77] + '...'}.")

    def finish(self, known: Sequence[str]) -> None:
        """Complain about the first key that nobody took."""
        for key in self.content:
            if self.place and key in self.top:
                raise ValueError(
                    f"{self.at(key)} stands in the section {self.place}, but {key} belongs to the whole problem. "
                    "Write it above the first section."
                )
            raise ValueError(f"{self.at(key)} is not a key of a problem file.{_hint(key, known)}")


def _hint(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f' Did you mean "{close[0]}"?' if close else f" Known are {', '.join(known)}."


def is_number(value: Any) -> bool:
    """Whether a value of a file is a number that a float can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
