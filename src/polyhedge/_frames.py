"""Data frames of whichever library the caller uses; pandas is the only one that has to be installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

_MAKERS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}


def backend_of(data: Any) -> str:
    """The library whose frame this is; "pandas" for arrays and everything else.

    Examples
    --------
    >>> backend_of([1.0, 2.0])
    'pandas'
    """
    name = type(data).__module__.split(".")[0]
    return name if name in _MAKERS else "pandas"


def as_pandas(data: Any) -> Any:
    """Data as it came, but a polars or pyarrow frame, or a column of one, as its pandas twin."""
    return data if backend_of(data) == "pandas" else data.to_pandas()


def row_labels(data: Any) -> Any:
    """The index of a pandas frame; None for data whose rows have no names."""
    return data.index if type(data).__module__.split(".")[0] == "pandas" else None


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names with an underscore after those that a later name needs: a decision may be called like a column of ours.

    Examples
    --------
    >>> distinct_names(["status", "z", "status"])
    ['status_', 'z', 'status']
    """
    taken: set[str] = set()
    found = []
    for name in reversed(names):
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        found.append(name)
    return found[::-1]


def as_frame(columns: Mapping[str, Any], backend: str, index: Any = None) -> Any:
    """A frame of named columns; the row labels are kept where the library has any."""
    if backend not in _MAKERS:
        raise ValueError(f"backend must be one of {', '.join(_MAKERS)}, got {backend!r}.")
    try:
        library = import_module(backend)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"A frame of {backend} was asked for, but {backend} is not installed: pip install {backend}, or ask for "
            "another one."
        ) from error
    make = getattr(library, _MAKERS[backend])
    return make(dict(columns), index=index) if backend == "pandas" else make(dict(columns))


def as_html(said: str, frame: Any, more: str = "") -> str:
    """A sentence, a table of a pandas frame, and a closing line: what a notebook shows."""
    table: str = frame.to_html(na_rep="", float_format="{:.4g}".format, border=0)
    return "".join([f"<p>{escape(said)}</p>" if said else "", table, f"<p>{escape(more)}</p>" if more else ""])
