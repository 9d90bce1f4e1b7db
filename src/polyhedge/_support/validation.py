"""Checks of what users hand in: each error says what must hold, what came and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.signedinteger[Any]]
Mask = NDArray[np.bool_]


def as_finite(values: ArrayLike, name: str, *, ndim: int) -> Array:
    """Return `values` as a float array of `ndim` dimensions without NaN or infinity."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "mMc":  # times have no unit that a cost could have
            raise TypeError("Complex data not supported" if array.dtype.kind == "c" else "these are times")
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        text = str(error).rpartition(": ")[2]
        places = [i for i, value in np.ndenumerate(np.asarray(values, dtype=object)) if repr(str(value)) == text]
        where = f" at index {places[0]}" if places else ""
        raise ValueError(f"{name} must be numeric: {error}{where}. Correct it, or encode text as numbers.") from error
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        where = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"{name} must be finite, got {bad} NaN or infinite value(s), the first at index "
            f"{tuple(int(i) for i in where)}. Drop or impute these rows."
        )
    return array


def as_rows(values: ArrayLike, name: str, n_columns: int) -> Array:
    """Return `values` as a finite matrix with `n_columns` columns."""
    array = as_finite(values, name, ndim=2)
    if array.shape[1] != n_columns:
        raise ValueError(f"{name} must have {n_columns} column(s), one for each outcome, got {array.shape[1]}.")
    return array


def check_alpha(alpha: float) -> float:
    """Return the miscoverage level if it lies strictly between 0 and 1."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float, np.floating)) or not 0 < alpha < 1:
        raise ValueError(
            f"alpha must lie strictly between 0 and 1, got {alpha!r}. It is the share of bounds that may "
            "fail: with alpha=0.1 nine of ten hold."
        )
    return float(alpha)


def check_count(value: int, name: str, *, minimum: int) -> int:
    """Return `value` as an int if it is a whole number of at least `minimum`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    return int(value)


def check_rng(rng: np.random.Generator | None) -> np.random.Generator:
    """Return `rng` if it is a NumPy generator; a bare seed would hide where the randomness comes from."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy Generator, got {rng!r}. Write np.random.default_rng(seed).")
    return rng


def numbers_of(X: Any) -> Array | None:
    """The numeric part of an array or data frame; None where there is none to check."""
    if hasattr(X, "select_dtypes"):
        return np.asarray(X.select_dtypes("number").to_numpy(dtype=np.float64, na_value=np.nan))
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" and X.ndim == 2:
        return X.astype(np.float64, copy=False)
    return None
