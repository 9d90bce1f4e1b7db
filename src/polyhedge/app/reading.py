"""Tables from files and into files: CSV in the many ways it is written, and Parquet.

Values stay as they are written. A table that does not fit into memory is refused before it is read. In a CSV file that
is written, texts that a spreadsheet would run as formulas get an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyhedge._support.files import check_writable, replace_file

if TYPE_CHECKING:
    from polyhedge.predictors.columns import Table


MAX_VALUES = 20_000_000
"""Rows times columns; as text they take some 2 GiB. Columns may number its square root, as they meet in pairs."""
MAX_TEXT = 100_000
"""Characters of one value. What is longer is a text with a quote that does not end, or no value."""
_BYTES_A_VALUE = 20
"""A double in full precision; a file that holds more has texts, which `MAX_VALUES` does not count."""
_PARQUET = (".parquet", ".pq")
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
# What a spreadsheet may skip in front of a formula: controls, spaces of every width and none, and marks of direction.
_UNSEEN = (
    r"\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
# What it takes for the beginning of one, also in full width or small; a control in front of anything is not shown.
_FORMULA = re.compile(
    rf"'*+(?:[{_UNSEEN}]*+[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]|[\x00-\x1f\x7f-\x9f])"
)
_NUMBER = re.compile(r"\s*[+-]?(?:\d[\d.,]*|[.,]\d+)(?:[eE][+-]?\d+)?\s*")
# With other settings a spreadsheet would split at these, and the second half may be a formula.
_QUOTED = re.compile(r"""[,;\t|"\r\n]""")


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
    missing : more words that stand for a missing value, in addition to the usual ones (empty, NA, NaN, null, ?, -).
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
    if path.suffix.lower() in _PARQUET:
        return _checked(_read_parquet(path, max_values), path, [])
    _check_bytes(path, path.stat().st_size, max_values)
    text, notes = _decode(path, encoding)
    separator = None if separator is None else separator.replace("\\t", "\t")
    if separator is not None and len(separator) != 1:
        raise ValueError(f"The separator must be one character, got {separator!r}.")
    # Counted before parsing: separators of the first line that holds something, and lines.
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    n_columns = 1 + max(first.count(candidate) for candidate in ([separator] if separator else _SEPARATORS))
    _check_size(path.name, max(text.count("\n"), 1), n_columns, max_values)
    separator = _separator(text) if separator is None else separator
    cannot = f"{path} cannot be read with the separator {separator!r}"
    try:
        sample = [row for row in islice(csv.reader(io.StringIO(text), delimiter=separator), _SAMPLE_LINES) if row]
    except csv.Error as error:
        raise ValueError(
            f"{cannot}: {error}. Is a quote missing, or is it no CSV file? A value may have {MAX_TEXT} characters."
        ) from error
    _check_header(sample, path)
    widest = max(map(len, sample))
    if widest > len(sample[0]) + 1:  # pandas would make as many columns before it compares, and forgive one
        raise ValueError(
            f"{cannot}: a row has {widest} values, the first line has {len(sample[0])} names. {_EVERY_ROW}"
        )
    frame = _parse(text, separator, missing, cannot)
    if decimal is None:
        cells = [cell.strip() for row in sample[1:] for cell in row]
        commas = [cell for cell in cells if _COMMA_NUMBER.fullmatch(cell)]
        # 1,234 alone could be a thousand; 1,5 could not.
        is_decimal = any(len(cell.partition(",")[2]) != 3 for cell in commas)
        decimal = "," if is_decimal and not any(_DOT_NUMBER.fullmatch(cell) for cell in cells) else "."
    if decimal not in (".", ","):
        raise ValueError(f"The decimal sign must be '.' or ',', got {decimal!r}.")
    if decimal == "," and len(frame):
        for name, column in frame.items():
            pointed = column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            frame[name] = column.where(~column.str.match(_COMMA_CELL, na=False), pointed)
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
        _check_size(path.name, about.num_rows, about.num_columns, max_values)
        _check_bytes(path, sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)), max_values)
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
        return (sum(w == width for w in widths) / len(widths) if width > 1 else 0.0, width)

    return max(_SEPARATORS, key=fit)


def _check_header(sample: list[list[str]], path: Path) -> None:
    names = [name.strip() for row in sample[:1] for name in row if name.strip()]
    if not names:
        raise ValueError(f"{path} is empty. It needs a first line with the names of the columns, and rows below it.")
    twice = sorted(name for name, n in Counter(names).items() if n > 1)
    if twice:
        shown = ", ".join(map(repr, twice))[:400]
        raise ValueError(f"{path} has more than one column {shown}. Give every column its own name.")
    if all(re.fullmatch(r"[+-]?\d+([.,]\d+)?", name) for name in names):
        raise ValueError(f"The first line of {path} holds numbers. Write the names of the columns into the first line.")


def _parse(text: str, separator: str, missing: Sequence[str], cannot: str) -> Any:
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
            raise ValueError(f"{cannot}: {reason}. {_EVERY_ROW}") from error
    words = {*_MISSING, *missing}
    frame = frame.apply(lambda column: column.str.strip()).rename(columns=lambda name: str(name).strip())
    frame = frame.mask(frame.isin(words))
    if "'" not in text:
        return frame
    # An apostrophe that keeps spreadsheets from running a formula is not part of the text.
    return frame.apply(lambda column: column.map(restored, na_action="ignore")).rename(columns=restored)


def _checked(frame: Any, path: Path, notes: list[str]) -> Table:
    """Leave out columns without a name: most are row numbers that a program wrote."""
    from polyhedge.predictors.columns import Table

    frame = frame.rename(columns=str)
    nameless = [name for name in frame.columns if not name.strip() or name.startswith("Unnamed: ")]
    if nameless:
        notes = [*notes, f"{path.name}: {len(nameless)} column(s) without a name were left out."]
        frame = frame.drop(columns=nameless)
    for column in frame.columns:
        if frame[column].dtype.kind in "OUT":
            lengths = frame[column].map(lambda value: len(value) if isinstance(value, str) else 0).to_numpy()
            if (lengths > MAX_TEXT).any():
                row = int(lengths.argmax())
                raise ValueError(
                    f"{path.name} has a value of {lengths[row]} characters in row {row + 1} of column "
                    f"{str(column)[:80]!r}, more than {MAX_TEXT}. Is a quote missing? Leave out or cut columns with "
                    "long texts."
                )
    if not len(frame.columns):
        raise ValueError(f"{path} has no columns with names.")
    return Table(frame, path.name, tuple(notes))


def _check_size(name: str, n_rows: int, n_columns: int, max_values: int) -> None:
    """Raise if a table has too many values or columns."""
    if n_columns > isqrt(max_values):
        _refuse(f"{name} has {n_columns} columns, more than {isqrt(max_values)}", n_columns**2)
    if n_rows * n_columns > max_values:
        values = n_rows * n_columns
        _refuse(f"{name} has {n_rows} rows and {n_columns} columns, more than {max_values} values", values)


def _check_bytes(path: Path, n_bytes: int, max_values: int) -> None:
    """Raise if a file, or what a packed one says it holds, is larger than the values it may have."""
    limit = _BYTES_A_VALUE * max_values
    if n_bytes > limit:
        _refuse(f"{path.name} has {n_bytes} bytes, more than {limit}", -(-n_bytes // _BYTES_A_VALUE))


def _refuse(what: str, needed: int) -> None:
    raise ValueError(f"{what}. If that is meant, pass max_values={needed} (--max-values).")


def write_table(frame: Any, path: str | Path, *, raw: bool = False) -> None:
    r"""Write a pandas data frame as CSV or Parquet, by the ending of the name; rows keep their order.

    In a CSV file an apostrophe stands in front of texts that a spreadsheet would run as formulas, unless they are
    wanted `raw`; `read_table` takes it away again. Numbers are never changed.
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


def csv_text(frame: Any, *, raw: bool = False) -> str:
    r"""The rows of a pandas data frame as CSV, with texts and names `neutralised` unless they are wanted `raw`.

    Examples
    --------
    >>> import pandas as pd
    >>> csv_text(pd.DataFrame({"plan": ["=1+1", "-2.5", "a"], "cost": [-1.0, 0.5, None]}))
    "plan,cost\n'=1+1,-1.0\n-2.5,0.5\na,\n"
    """
    if raw:
        return str(frame.to_csv(index=False, lineterminator="\n"))
    columns = [_cells(frame.iloc[:, place]) for place in range(frame.shape[1])]
    lines = [[_quoted(neutralised(str(name))) for name in frame.columns], *map(list, zip(*columns, strict=True))]
    # A line that is empty would be no row.
    return "".join(f"{','.join(line) or chr(34) * 2}\n" for line in lines)


def neutralised(text: str) -> str:
    """The text with an apostrophe in front if a spreadsheet would take it for a formula; numbers never are."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def restored(text: str) -> str:
    """The text without the apostrophe of `neutralised`.

    Examples
    --------
    >>> restored("'=HYPERLINK(1)"), restored("-1.5e3"), restored("''@x"), restored("'quoted'")
    ('=HYPERLINK(1)', '-1.5e3', "'@x", "'quoted'")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _cells(column: Any) -> list[str]:
    """The values as pandas writes them, texts made safe."""
    if column.dtype.kind in "mM" or column.dtype in ("float16", "float32"):  # times and short floats are rounded
        return [line.strip('"') for line in column.to_csv(index=False, header=False).splitlines()]
    values, missing = column.tolist(), column.isna().tolist()
    return [
        "" if is_missing else _quoted(neutralised(value)) if isinstance(value, str) else _quoted(str(value))
        for value, is_missing in zip(values, missing, strict=True)
    ]


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text
