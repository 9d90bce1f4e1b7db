"""Rows of results as a CSV file that grows row by row and survives a kill at any moment."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from itertools import chain, count
from pathlib import Path
from typing import Any, Generic, TypeVar

from polyhedge_study.inside import explained, replace_file

__all__ = ["TidyTable", "read_rows"]

R = TypeVar("R")

_READERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": lambda text: text == "True"}


def read_rows(path: Path, row_type: type[R]) -> list[R]:
    """Rows of a saved table; a last line that was cut short is left out."""
    whole = path.read_bytes().rpartition(b"\n")[0].decode()
    table = csv.DictReader(io.StringIO(whole, newline=""))
    names = [field.name for field in fields(row_type)]  # type: ignore[arg-type]
    if list(table.fieldnames or []) != names:
        raise ValueError(
            f"{path} must have the columns {', '.join(names)}, got {', '.join(table.fieldnames or ['none'])}. "
            "Move the file away, or choose another folder."
        )
    types = {field.name: _READERS.get(str(field.type), str) for field in fields(row_type)}  # type: ignore[arg-type]
    return [row_type(**{name: types[name](text) for name, text in row.items()}) for row in table]


class TidyTable(Generic[R]):
    """A CSV file whose columns are the fields of a frozen dataclass of text and numbers.

    A row is added by one write of one whole line, so a killed process leaves at most a last line without its end,
    which `recover` cuts off.

    Parameters
    ----------
    path : Path
    row_type : dataclass
    """

    def __init__(self, path: Path, row_type: type[R]) -> None:
        self.path, self.row_type = path, row_type

    def recover(self) -> list[R]:
        """The whole rows of the file; what a kill left of the next one is removed."""
        rows = read_rows(self.path, self.row_type)
        if not self.path.read_bytes().endswith(b"\n"):
            self.write(rows)
        return rows

    def set_aside(self, label: str) -> Path:
        """Rename the file, if there is one, to `<stem>-<label>`; never over another."""
        names = (
            self.path.with_stem(f"{self.path.stem}-{label}{end}") for end in chain([""], map("-{}".format, count(2)))
        )
        aside = next(name for name in names if not name.exists())
        if self.path.exists():
            self.path.replace(aside)
        return aside

    def append(self, row: R) -> None:
        """Add one row to a file that `write` began, to the disk; where that fails, the file is as long as before.

        A kill may leave a part of the row, which has no end of line then.
        """
        with explained(self.path), self.path.open("r+b", buffering=0) as stream:
            length = stream.seek(0, os.SEEK_END)
            try:
                left = memoryview(self._text([row], header=False).encode())
                while left:
                    left = left[stream.write(left) :]
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(length)
                raise

    def write(self, rows: Iterable[R]) -> None:
        """Replace the whole file."""
        replace_file(self.path, self._text(rows, header=True).encode())

    def _text(self, rows: Iterable[R], *, header: bool) -> str:
        text = io.StringIO(newline="")
        names = [field.name for field in fields(self.row_type)]  # type: ignore[arg-type]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        if header:
            writer.writeheader()
        for row in rows:
            values = asdict(row)  # type: ignore[call-overload]
            # A line break inside a cell would make half a row look whole.
            writer.writerow({k: " ".join(v.split()) if isinstance(v, str) else v for k, v in values.items()})
        return text.getvalue()
