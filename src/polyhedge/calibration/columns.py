"""One column of the features, by name or position."""

from __future__ import annotations

from typing import Any

import numpy as np

_SHOWN = 5
"""Names that a message lists before it says "and more"."""


def column_of(X: Any, column: str | int) -> Any:
    """The values of a column of a data frame or array, as a list (N,)."""
    if hasattr(X, "columns"):
        named = {str(name): name for name in X.columns}
        if str(column) in named:
            return X[named[str(column)]].tolist()
        raise ValueError(f"X has no column {column!r} that calibration needs. It has {listed(list(named))}.")
    array = np.asarray(X)
    if array.ndim != 2 or not isinstance(column, int) or not -array.shape[1] <= column < array.shape[1]:
        raise ValueError(
            f"Calibration needs column {column!r}, but X has no names and the shape {array.shape}. Give the position "
            "of the column, or a data frame."
        )
    return array[:, column].tolist()


def listed(names: Any) -> str:
    """The first few names."""
    return ", ".join(map(str, names[:_SHOWN])) + (" and more" if len(names) > _SHOWN else "")
