"""Tables of whichever library the caller uses: pandas inside, columns by name, rows by their labels.

Names decide where there are names: columns are put in order by name, and rows must be the same ones. Arrays have no
names and are taken as they come. Other libraries than pandas are distinguished by narwhals.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib import import_module
from numbers import Integral, Number
from typing import Any

BACKENDS = ("pandas", "polars", "pyarrow")
"""Libraries whose frames come out; frames of others that narwhals knows go in."""
# Most rows are of these, and are recognised without narwhals, which takes longer to import than a row takes to decide.
_PLAIN = ("builtins", "numpy", "scipy", "pandas")
_WITH_POINTS = re.compile(r"\s*(\d{1,2})\.(\d{1,2})\.(\d{4})\b(.*)")


# Frames of other libraries


def is_dask_frame(X: Any) -> bool:
    """Whether X is a Dask data frame; Dask need not be installed."""
    # On a frame of pandas a name that is not there takes microseconds to miss, on its class none.
    return all(hasattr(type(X), name) for name in ("map_partitions", "npartitions", "columns"))


def backend_of(data: Any) -> str:
    """The library of result frames: that of the frame given, "pandas" for all other data."""
    known = _known(data)
    name = _root(data) if known is None else str(known.implementation.name).lower()
    return name if name in BACKENDS else "pandas"


def as_pandas(data: Any) -> Any:
    """Data as it came, but a frame of another library, or a column of one, as its pandas twin.

    Raises where rows are not in memory: a query has no order of rows in which X and Y could be the same ones.
    """
    known = _known(data)
    if known is None:
        # Parts of pyarrow's tables that narwhals does not take for frames: record batches and arrays in one piece.
        return data.to_pandas() if _root(data) == "pyarrow" and hasattr(data, "to_pandas") else data
    refuse_queries(data)
    return known.to_pandas()


def from_dictionaries(data: Any) -> Any:
    """A frame of a dictionary (one row, or columns of several) or of a list of rows; other data unchanged."""
    is_mapping = isinstance(data, Mapping) and not hasattr(data, "shape")  # SciPy has sparse matrices that are
    if not is_mapping and not (isinstance(data, (list, tuple)) and data and isinstance(data[0], Mapping)):
        return data
    import pandas as pd

    is_row = is_mapping and not any(hasattr(value, "__len__") and not isinstance(value, str) for value in data.values())
    return pd.DataFrame([data] if is_row else data)


def refuse_queries(*tables: Any) -> None:
    """Raise a TypeError where one of these is a query of rows, such as a polars LazyFrame, and no table of them."""
    for table in tables:
        if hasattr(_known(table), "collect"):
            refuse_rows_elsewhere(table)


def refuse_rows_elsewhere(data: Any) -> None:
    """Raise a TypeError for rows that are not in memory, and for what is no rows at all."""
    if isinstance(data, Mapping):
        raise TypeError(
            f"Rows must be a data frame or an array, got a {type(data).__name__}. Pass one row as pd.DataFrame([X]), "
            "columns of several as pd.DataFrame(X)."
        )
    if data is None or isinstance(data, (str, bytes, bool, int, float, complex)):
        raise TypeError(
            "Rows must be an array (rows, columns), a list of rows or a data frame, got "
            f"{'None' if data is None else f'{data!r:.60}'}. Pass one row as x[None] or as a frame of one row."
        )
    raise TypeError(
        f"Rows must be in memory, got {type(data).__name__}. Call collect() or to_table() first (compute() for Dask, "
        "df() for DuckDB), and see that the rows of X and Y come in the same order."
    )


def _root(data: Any) -> str:
    return type(data).__module__.split(".")[0]


def _known(data: Any) -> Any:
    """The frame or column as narwhals sees it; None where it is pandas' own, or where narwhals knows nothing of it."""
    if _root(data) in _PLAIN:
        return None
    import narwhals as nw

    seen = nw.from_native(data, pass_through=True, allow_series=True)
    return seen if isinstance(seen, (nw.DataFrame, nw.LazyFrame, nw.Series)) else None


def distinct_names(names: Sequence[str]) -> list[str]:
    """Distinct names: a name gets an underscore if a later one is equal, since decisions may be named like our columns.

    Examples
    --------
    >>> distinct_names(["status", "z", "status"])
    ['status_', 'z', 'status']
    """
    taken: set[str] = set()
    distinct = []
    for name in reversed(names):
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        distinct.append(name)
    return distinct[::-1]


def iso_date(value: Any) -> Any:
    """A text that begins with a date with points, whose day comes first, in ISO 8601; anything else as it is.

    Examples
    --------
    >>> iso_date("31.12.2024 18:00"), iso_date("2024-12-31"), iso_date(1.5)
    ('2024-12-31 18:00', '2024-12-31', 1.5)
    """
    match = _WITH_POINTS.match(value) if isinstance(value, str) else None
    if match is None:
        return value
    day, month, year, time = match.groups()
    return f"{year}-{month:0>2}-{day:0>2}{time}"


def as_frame(columns: Mapping[str, Any], backend: str, index: Any = None) -> Any:
    """A frame of named columns; the row labels are kept where the library has any."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if backend == "pandas":
        return import_module(backend).DataFrame(dict(columns), index=index)
    import narwhals as nw

    return nw.from_dict(dict(columns), backend=backend).to_native()


def as_html(text: str, frame: Any, more: str = "") -> str:
    """A sentence, a table of a pandas frame, and a closing line: what a notebook shows."""
    table: str = frame.to_html(na_rep="", float_format="{:.4g}".format, border=0)
    return "".join([f"<p>{escape(text)}</p>" if text else "", table, f"<p>{escape(more)}</p>" if more else ""])


# Names of columns and rows


def names_of(table: Any) -> tuple[str, ...] | None:
    """Names of the columns of a data frame, or of a series; None where nothing is named.

    Examples
    --------
    >>> import pandas as pd
    >>> names_of(pd.DataFrame({"heating": [1.0], "cooling": [2.0]})), names_of(pd.DataFrame([[1.0, 2.0]]))
    (('heating', 'cooling'), None)
    """
    if hasattr(table, "to_frame") and hasattr(table, "name"):
        return None if table.name is None or table.name == "" else (str(table.name),)
    labels = list(getattr(table, "columns", ()))
    # Other tables call the columns themselves their columns; these have no names that we know of.
    if not (hasattr(table, "iloc") or all(isinstance(label, str) for label in labels)):
        return None
    numbered = list(range(len(labels)))
    if labels == numbered:
        return None
    if all(isinstance(label, Integral) for label in labels) and sorted(labels) == numbered:
        raise ValueError(
            f"Columns without names must be numbered 0, 1, 2, ... in this order, got {listed(labels)}. Bring them "
            "back into their order, or give them names."
        )
    return tuple(str(label) for label in labels)


def select_columns(table: Any, names: Sequence[str], what: str, *, exactly: bool = False) -> Any:
    """The table with its columns by these names, in this order; as it is where it has no names.

    Errors call the table `what`. Other columns are an error with `exactly`; else they are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> select_columns(pd.DataFrame({"b": [2.0], "a": [1.0]}), ["a", "b"], "X").to_numpy()
    array([[1., 2.]])
    """
    own, wanted = names_of(table), [str(name) for name in names]
    if own is None or list(own) == wanted:
        return table
    missing = [name for name in wanted if name not in own]
    extra = [name for name in own if name not in wanted]
    if missing or (exactly and extra):
        text = [f"missing: {listed(missing)}"] * bool(missing) + [f"not known: {listed(extra)}"] * bool(extra)
        raise ValueError(
            f"{what} must have the column(s) {listed(wanted)}, got {listed(own)} ({'; '.join(text)}). Rename its "
            "columns, or pass an array to have them taken in their order."
        )
    twice = sorted({name for name in wanted if wanted.count(name) > 1 or own.count(name) > 1})
    if twice:
        raise ValueError(
            f"{what} has the column(s) {listed(twice)} more than once, in another order or number than before: names "
            "do not tell them apart. Give each column a name of its own."
        )
    order = [own.index(name) for name in wanted]
    return table.iloc[:, order] if hasattr(table, "iloc") else table[wanted]


def check_same_rows(tables: Mapping[str, Any]) -> None:
    """Raise if two of the named `tables` (frames or series) have equally many rows but different indices."""
    indexed = [(name, table.index) for name, table in tables.items() if hasattr(table, "iloc")]
    for name, index in indexed[1:]:
        first, expected = indexed[0]
        if len(index) != len(expected) or index.equals(expected):
            continue  # a wrong number of rows is an error of the caller
        for row, (a, b) in enumerate(zip(expected.tolist(), index.tolist(), strict=True)):
            if a != b and not (a != a and b != b):  # two missing labels are the same
                raise ValueError(
                    f"{first} and {name} must hold the same rows in the same order, but row {row} is {a!r} in {first} "
                    f"and {b!r} in {name}. Bring them into one order, for example by "
                    f"{name}.loc[{first}.index], or pass arrays to have rows taken as they come."
                )


def column_of(X: Any, column: str | int) -> list[Any]:
    """The values of one column of a data frame, by its name, or of an array, by its position."""
    if hasattr(X, "columns"):
        named = {str(name): name for name in X.columns}
        if str(column) in named:
            return list(X[named[str(column)]].to_list())
        raise ValueError(f"X has no column {column!r}. It has {listed(list(named))}.")
    shape = getattr(X, "shape", ())
    if len(shape) != 2 or not isinstance(column, Integral) or not -shape[1] <= column < shape[1]:
        raise ValueError(
            f"Column {column!r} is needed, but X has no names and the shape {shape}. Give the position of the column, "
            "or a data frame."
        )
    return list(X[:, column].tolist())


def refuse_outcomes(X: Any, names: Sequence[str], outcomes: Sequence[Any]) -> None:
    """Raise where a frame holds its own outcomes: a column of an outcome's name with the outcome's values.

    Yesterday's price under the name of today's is a feature like others. `outcomes` has the values of each name.
    """
    if not hasattr(X, "columns") or names_of(X) is None:
        return

    def holds(column: Any, values: Any) -> bool:
        try:
            return bool((column.to_numpy(dtype=float, na_value=float("nan"))[:, 0] == values).all())
        except (TypeError, ValueError):  # texts and dates are no outcomes
            return False

    pairs = [(name, column, values) for name, values in zip(names, outcomes, strict=True) for column in X.columns]
    known = [name for name, column, values in pairs if str(column) == name and holds(X[[column]], values)]
    if known:
        raise ValueError(
            f"X holds the outcome(s) {listed(known)}, which are not known when a decision is taken. Leave them out: "
            f"fit(X.drop(columns={known}), Y)."
        )


def is_missing(value: Any) -> bool:
    """Whether a value of a column is missing: None, NaN, or a missing value of pandas."""
    # A value that is not itself is NaN or NaT; pandas' own missing value answers neither way.
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def listed(names: Sequence[Any], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


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
    texts = []
    for value in values:
        if type(value).__name__ == "datetime64":  # of NumPy, which is not imported for a command's help
            value = value.astype("datetime64[us]").item()
        if isinstance(value, datetime):
            texts.append(str(value).removesuffix(" 00:00:00"))
        elif isinstance(value, Number) and not isinstance(value, (bool, Integral, complex)):
            number = float(value)  # type: ignore[arg-type]
            texts.append(str(int(number)) if number.is_integer() else str(value))
        else:
            texts.append(str(value))
    key, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    if count > 1:
        raise ValueError(f"{what} must name each row once, but {key!r} stands there {count} times.")
    return texts
