"""Tables into files that appear whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from polyhedge._support.files import check_writable, replace_file
from polyhedge.app.tables.as_csv import csv_text

__all__ = ["check_target", "write_table"]

_PARQUET = (".parquet", ".pq")


def write_table(frame: Any, path: str | Path, *, raw: bool = False) -> None:
    r"""Write a pandas data frame as CSV or Parquet, by the ending of the name; rows keep their order.

    In a CSV file an apostrophe stands in front of texts that a spreadsheet would run as formulas, unless they are
    wanted `raw`; `read_table` takes it away again. Numbers are never changed.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(pd.DataFrame({"a": [2, 1]}), Path(folder) / "a.csv")
    ...     (Path(folder) / "a.csv").read_text()
    'a\n2\n1\n'
    """
    path = check_target(path)
    if path.suffix.lower() in _PARQUET:
        content = io.BytesIO()
        frame.to_parquet(content, index=False, engine="pyarrow")
        replace_file(path, content.getvalue())
    else:
        replace_file(path, csv_text(frame, raw=raw).encode())


def check_target(path: str | Path) -> Path:
    """Raise early, before any work is done, where a table could not be written."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Name the file in it, for example {path / 'decisions.csv'}.")
    if path.suffix.lower() not in (".csv", ".txt", ".tsv", *_PARQUET):
        raise ValueError(f"A table is written as .csv or .parquet, got the name {path.name!r}.")
    if path.suffix.lower() in _PARQUET:
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(f"Writing {path.name} needs pyarrow: pip install 'polyhedge[parquet]'.") from error
    return check_writable(path)
