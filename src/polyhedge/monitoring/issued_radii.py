"""The radii behind bounds that were issued: what outcomes are held against once they become known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.alignment import check_same_rows
from polyhedge._support.validation import Array
from polyhedge.fitting import n_rows_of
from polyhedge.model import Model
from polyhedge.robust import Decisions

__all__ = ["issued_radii"]


def issued_radii(
    model: Model,
    X: Any,
    bounds: Decisions | ArrayLike | None,
    radii: ArrayLike | None = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> Array | None:
    """The radii (N,) of bounds that were issued; None where they are to be computed anew."""
    if bounds is not None and radii is not None:
        raise ValueError("Give bounds or radii, not both: they say the same.")
    check_same_rows({"X": X, "bounds": bounds, "radii": radii})
    if isinstance(bounds, Decisions):
        if bounds.radii is None:
            raise ValueError("These decisions do not know their radii. Give those that decide returned, as they are.")
        return _one_a_row(bounds.radii, n_rows_of(X), "bounds must be the decisions")
    if bounds is None:
        return None if radii is None else _one_a_row(radii, n_rows_of(X), "radii must be those")
    costs = _one_a_row(bounds, n_rows_of(X), "bounds must be the decisions, or the bounds on the costs,", has_nan=True)
    placed = model.placed(X, parameters, to_decide=False, labels=labels)
    return placed.regions.radii_of(costs, placed.radii)


def _one_a_row(values: ArrayLike, n: int, must: str, *, has_nan: bool = False) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{must} of these {n} rows, got a {type(values).__name__}: {error}.") from error
    if array.shape != (n,) or (np.isnan(array).any() and not has_nan):
        missing = int(np.isnan(array).sum())
        raise ValueError(f"{must} of these {n} rows, got shape {array.shape} with {missing} NaN.")
    return array
