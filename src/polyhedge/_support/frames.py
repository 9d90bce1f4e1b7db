"""Data frames of whichever library the caller uses, distinguished by narwhals; pandas is what everything works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

BACKENDS = ("pandas", "polars", "pyarrow", "modin", "cudf")
"""Libraries whose frames come out: those that narwhals knows and that keep rows in memory."""
_INDEXED = ("pandas", "modin", "cudf")
# Most rows are of these, and are recognised without narwhals, which takes longer to import than a row takes to decide.
_PLAIN = ("builtins", "numpy", "scipy", "pandas")


def is_dask_frame(X: Any) -> bool:
    """Whether X is a Dask data frame; asks for nothing to be installed."""
    return hasattr(X, "map_partitions") and hasattr(X, "npartitions") and hasattr(X, "columns")


def backend_of(data: Any) -> str:
    """The library whose frame, or column, this is; "pandas" for arrays and everything else.

    Examples
    --------
    >>> backend_of([1.0, 2.0])
    'pandas'
    """
    known = _known(data)
    if known is not None:
        return str(known.implementation.name).lower()
    return "pyarrow" if _root(data) == "pyarrow" else "pandas"


def as_pandas(data: Any) -> Any:
    """Data as it came, but a frame of another library, or a column of one, as its pandas twin.

    Raises where rows are not in memory: a query has no order of rows in which X and Y could be the same ones.
    """
    known = _known(data)
    if known is None:
        # Parts of pyarrow's tables that narwhals does not take for frames: record batches and arrays in one piece.
        return data.to_pandas() if _root(data) == "pyarrow" and hasattr(data, "to_pandas") else data
    refuse_queries(data)
    if backend_of(data) != "polars":
        return known.to_pandas()
    # Its own way to pandas asks for pyarrow.
    if not hasattr(known, "columns"):
        return _column(known)
    import pandas as pd

    columns = {name: _column(known[name]) for name in known.columns}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(known)))


def from_dictionaries(data: Any) -> Any:
    """A frame of a dictionary, one row of values or columns of several, or of a list of rows; other data as they came.

    Examples
    --------
    >>> from_dictionaries({"load": 2.0, "town": "Ulm"}).shape, from_dictionaries([{"load": 2.0}, {"load": 3.0}]).shape
    ((1, 2), (2, 1))
    """
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


def row_labels(data: Any) -> Any:
    """The index of a pandas frame, or of one of its kind; None for data whose rows have no names."""
    if _root(data) == "pandas":
        return data.index
    return as_pandas(data).index if backend_of(data) != "pandas" and backend_of(data) in _INDEXED else None


def _root(data: Any) -> str:
    return type(data).__module__.split(".")[0]


def _known(data: Any) -> Any:
    """The frame or column as narwhals sees it; None where it is pandas' own, or where narwhals knows nothing of it."""
    if _root(data) in _PLAIN:
        return None
    import narwhals as nw

    seen = nw.from_native(data, pass_through=True, allow_series=True)
    return seen if isinstance(seen, (nw.DataFrame, nw.LazyFrame, nw.Series)) else None


def _column(series: Any) -> Any:
    """A column of polars, as narwhals sees it, as one of pandas: gaps among whole numbers make floats."""
    import narwhals as nw
    import pandas as pd

    dtype = series.dtype
    if dtype == nw.Decimal:
        series, dtype = series.cast(nw.Float64()), nw.Float64()
    is_plain = dtype.is_numeric() or dtype in (nw.Datetime, nw.Date, nw.Duration)
    if is_plain or (dtype == nw.Boolean and not series.null_count()):
        column = pd.Series(series.to_numpy(), name=series.name)
        zone = getattr(dtype, "time_zone", None)
        return column if zone is None else column.dt.tz_localize("UTC").dt.tz_convert(zone)
    values = series.to_list()
    if dtype in (nw.Categorical, nw.Enum):
        return pd.Series(pd.Categorical(values, categories=getattr(dtype, "categories", None)), name=series.name)
    return pd.Series(values, name=series.name, dtype=None if values else object)


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names with an underscore after those that a later name needs: a decision may be called like a column of ours.

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


def as_frame(columns: Mapping[str, Any], backend: str, index: Any = None) -> Any:
    """A frame of named columns; the row labels are kept where the library has any."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    try:
        library = import_module("modin.pandas" if backend == "modin" else backend)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"A frame of {backend} was asked for, but {backend} is not installed: pip install {backend}, or ask for "
            "another one."
        ) from error
    if backend in _INDEXED:
        return library.DataFrame(dict(columns), index=index)
    import narwhals as nw

    return nw.from_dict(dict(columns), backend=backend).to_native()


def as_html(text: str, frame: Any, more: str = "") -> str:
    """A sentence, a table of a pandas frame, and a closing line: what a notebook shows."""
    table: str = frame.to_html(na_rep="", float_format="{:.4g}".format, border=0)
    return "".join([f"<p>{escape(text)}</p>" if text else "", table, f"<p>{escape(more)}</p>" if more else ""])
