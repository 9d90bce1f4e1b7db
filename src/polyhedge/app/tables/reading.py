"""Tables from files: CSV in the many ways it is written, and Parquet. Values stay as they are written."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge.app.tables.as_csv import restored
from polyhedge.app.tables.limits import MAX_TEXT, MAX_VALUES, check_bytes, check_size, check_texts
from polyhedge.predictors.table import Table, listed

__all__ = ["read_table"]

_SEPARATORS = (",", ";", "\t", "|")
_MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "?", "-", "--", ".")
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_DOT_NUMBER = re.compile(r"[+-]?\d+\.\d+")
_COMMA_CELL = r"^\s*[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)?(?:,\d+)?(?:[eE][+-]?\d+)?\s*$"
# Enough lines to tell separator and decimal sign, and read at once.
_SAMPLE_LINES = 200
_EVERY_ROW = (
    "Every row needs as many values as the first line has names; put values that contain the separator in quotes, or "
    "give --separator."
)


def read_table(
    path: str | Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] = (),
    max_values: int = MAX_VALUES,
) -> Table:
    r"""Read a CSV or Parquet file; what is not given is found out.

    Parameters
    ----------
    path : path of a file; ``.parquet`` and ``.pq`` are read as Parquet, everything else as CSV.
    separator : character between values; by default the one of comma, semicolon, tab and bar that fits.
    encoding : of the text; by default UTF-8 (also 16 with a byte-order mark), else Windows-1252.
    decimal : "." or ","; by default found out from the numbers.
    missing : more words that stand for a missing value, besides the usual ones (empty, NA, NaN, null, ?, -).
    max_values : rows times columns beyond which a table is refused; it may have its square root of columns.

    Returns
    -------
    Table

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "history.csv"
    ...     _ = file.write_text("city;load\nOslo;12,5\nRoma;NA\n")
    ...     table = read_table(file)
    >>> table.frame["load"].tolist(), table.notes
    (['12.5', nan], ('history.csv was read with a decimal comma.',))
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Check the path.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _checked(_read_parquet(path, max_values), path, [])
    check_bytes(path, path.stat().st_size, max_values)
    text, notes = _decode(path, encoding)
    separator = None if separator is None else separator.replace("\\t", "\t")
    if separator is not None and len(separator) != 1:
        raise ValueError(f"The separator must be one character, got {separator!r}.")
    _check_shape(text, separator, path, max_values)
    separator = _separator(text) if separator is None else separator
    sample = _sample(text, separator, path)
    _check_header(sample, path)
    _check_widths(sample, separator, path)
    frame = _parse(text, separator, missing, path)
    decimal = _decimal(sample) if decimal is None else decimal
    if decimal not in (".", ","):
        raise ValueError(f"The decimal sign must be '.' or ',', got {decimal!r}.")
    if decimal == "," and len(frame):
        frame = frame.apply(_with_points)
        notes.append(f"{path.name} was read with a decimal comma.")
    return _checked(frame, path, notes)


def _read_parquet(path: Path, max_values: int) -> Any:
    import pandas as pd

    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"Reading {path.name} needs pyarrow: pip install 'polyhedge[parquet]'.") from error
    try:
        # A few bytes may stand for very many rows, so what the file says of itself comes first.
        about = pyarrow.parquet.read_metadata(path)
        check_size(path.name, about.num_rows, about.num_columns, max_values)
        check_bytes(path, sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)), max_values)
        return pd.read_parquet(path, engine="pyarrow").reset_index(drop=True)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from error


def _decode(path: Path, encoding: str | None) -> tuple[str, list[str]]:
    content = path.read_bytes()
    if encoding is not None:
        try:
            return content.decode(encoding).removeprefix("\ufeff"), []
        except (UnicodeDecodeError, LookupError) as error:
            raise ValueError(f"{path} cannot be read with the encoding {encoding!r}: {error}.") from error
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16"), []
    if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")) or b"\0" in content[:4096]:
        raise ValueError(f"{path} is no text file. Save it as CSV (from a spreadsheet: Save as, CSV) or Parquet.")
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        note = f"{path.name} is not UTF-8 and was read as Windows-1252; give --encoding if letters look wrong."
        return content.decode("cp1252", errors="replace"), [note]


def _separator(text: str) -> str:
    """The candidate that gives the most columns, the same number in most lines."""
    lines = [line for line in islice(io.StringIO(text), _SAMPLE_LINES) if line.strip()]

    def fit(candidate: str) -> tuple[float, int]:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=candidate)]
        except csv.Error:  # a line of many columns is one long value to the wrong candidate
            return 0.0, 0
        width = widths[0] if widths else 1
        return (float(np.mean([w == width for w in widths])) if width > 1 else 0.0, width)

    return max(_SEPARATORS, key=fit)


def _check_shape(text: str, separator: str | None, path: Path, max_values: int) -> None:
    """Count before parsing: separators of the first line that holds something, and lines."""
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    n_columns = 1 + max(first.count(candidate) for candidate in ([separator] if separator else _SEPARATORS))
    check_size(path.name, max(text.count("\n"), 1), n_columns, max_values)


def _sample(text: str, separator: str, path: Path) -> list[list[str]]:
    try:
        return list(islice(csv.reader(io.StringIO(text), delimiter=separator), _SAMPLE_LINES))
    except csv.Error as error:
        raise ValueError(
            f"{path} cannot be read with the separator {separator!r}: {error}. Is a quote missing, or is it no CSV "
            f"file? A value may have {MAX_TEXT} characters."
        ) from error


def _check_header(sample: list[list[str]], path: Path) -> None:
    header = next((row for row in sample if row), [])
    if not any(name.strip() for name in header):
        raise ValueError(f"{path} is empty. It needs a first line with the names of the columns, and rows below it.")
    names = [name.strip() for name in header if name.strip()]
    twice = sorted(name for name, n in Counter(names).items() if n > 1)
    if twice:
        raise ValueError(f"{path} has more than one column {listed(twice)}. Give every column its own name.")
    if all(re.fullmatch(r"[+-]?\d+([.,]\d+)?", name) for name in names):
        raise ValueError(f"The first line of {path} holds numbers. Write the names of the columns into the first line.")


def _check_widths(sample: list[list[str]], separator: str, path: Path) -> None:
    """Pandas makes as many columns as the first row has values, before it compares; it may forgive one too many."""
    rows = [row for row in sample if row]
    widest = max(map(len, rows))
    if widest > len(rows[0]) + 1:
        raise ValueError(
            f"{path} cannot be read with the separator {separator!r}: a row has {widest} values, the first line has "
            f"{len(rows[0])} names. {_EVERY_ROW}"
        )


def _parse(text: str, separator: str, missing: Sequence[str], path: Path) -> Any:
    import pandas as pd

    with warnings.catch_warnings():
        # Pandas warns where rows are longer than the header, and would cut them.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(
                io.StringIO(text),
                sep=separator,
                dtype=str,
                index_col=False,
                skipinitialspace=True,
                keep_default_na=False,
            )
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            reason = str(error).removeprefix("Error tokenizing data. C error: ").strip().rstrip(".")
            raise ValueError(
                f"{path} cannot be read with the separator {separator!r}: {reason}. {_EVERY_ROW}"
            ) from error
    words = {*_MISSING, *missing}
    frame = frame.apply(lambda column: column.str.strip()).rename(columns=lambda name: str(name).strip())
    frame = frame.mask(frame.isin(words))
    if "'" not in text:
        return frame
    # An apostrophe that keeps spreadsheets from running a formula is not part of the text.
    return frame.apply(lambda column: column.map(restored, na_action="ignore")).rename(columns=restored)


def _decimal(sample: list[list[str]]) -> str:
    cells = [cell.strip() for row in sample[1:] for cell in row]
    commas = [cell for cell in cells if _COMMA_NUMBER.fullmatch(cell)]
    # 1,234 alone could be a thousand; 1,5 could not.
    is_decimal = any(len(cell.partition(",")[2]) != 3 for cell in commas)
    return "," if is_decimal and not any(_DOT_NUMBER.fullmatch(cell) for cell in cells) else "."


def _with_points(column: Any) -> Any:
    is_number = column.str.match(_COMMA_CELL, na=False)
    pointed = column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return column.where(~is_number, pointed)


def _checked(frame: Any, path: Path, notes: list[str]) -> Table:
    """Leave out columns without a name: most are row numbers that a program wrote."""
    frame = frame.rename(columns=str)
    nameless = [name for name in frame.columns if not name.strip() or name.startswith("Unnamed: ")]
    if nameless:
        notes = [*notes, f"{path.name}: {len(nameless)} column(s) without a name were left out."]
        frame = frame.drop(columns=nameless)
    check_texts(frame, path.name)
    if not len(frame.columns):
        raise ValueError(f"{path} has no columns with names.")
    return Table(frame, path.name, tuple(notes))
