"""Raw data frames: columns of numbers, texts, categories, booleans and dates, with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.alignment import names_of
from polyhedge._support.validation import Indices
from polyhedge.predictors.schema import Column, Schema, features_of, part_of
from polyhedge.predictors.table import IN_PYTHON, Table, listed, values_of

__all__ = ["as_table", "is_raw", "number_columns", "oddities", "read_features", "with_gaps"]


def is_raw(X: Any) -> bool:
    """Whether X is a data frame with named columns of which one holds more than numbers, or a gap.

    Examples
    --------
    >>> import pandas as pd
    >>> is_raw(pd.DataFrame({"a": [1.0, 2.0]})), is_raw(pd.DataFrame({"a": [1.0, None]})), is_raw(np.eye(2))
    (False, True, False)
    """
    return hasattr(X, "select_dtypes") and names_of(X) is not None and not (_are_numbers(X) and _has_no_gaps(X))


def _are_numbers(X: Any) -> bool:
    return all(dtype.kind in "iuf" for dtype in X.dtypes)


def _has_no_gaps(X: Any) -> bool:
    return not bool(X.isna().to_numpy().any())


def read_features(X: Any, schema: Schema) -> Any:
    """The features of a raw frame as numbers and texts; an error names the first row that cannot be used."""
    features, reasons, _ = features_of(as_table(X, schema.source_names), schema)
    bad = np.flatnonzero([bool(reason) for reason in reasons])
    if len(bad):
        raise ValueError(
            f"{len(bad)} of {len(reasons)} rows of X cannot be used, the first is row {X.index.tolist()[bad[0]]!r}: "
            f"{reasons[bad[0]]}. Correct or drop these rows; gaps are filled in only where rows of fit had some."
        )
    return features


def oddities(X: Any, schema: Schema) -> NDArray[np.object_]:
    """What is unlike the training rows in each row; empty texts where nothing is."""
    return features_of(as_table(X, schema.source_names), schema)[2]


def number_columns(X: Any, outcomes: Sequence[str], train: Indices) -> Schema | None:
    """The columns of a frame of numbers with names, for readers of a model file; None for any other."""
    if not hasattr(X, "select_dtypes") or names_of(X) is None or not _are_numbers(X) or not X.columns.is_unique:
        return None
    columns = []
    for place, name in enumerate(X.columns):
        values = values_of(X.iloc[:, place])[0]
        known = values[train][np.isfinite(values[train])]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        columns.append(Column(str(name), "number", bool(np.isnan(values).any()), (), low, high))
    return Schema(tuple(columns), tuple(outcomes))


def as_table(X: Any, known: Sequence[str] = ()) -> Table:
    """The frame with names as texts; `known` are the columns that a model was fitted with."""
    if names_of(X) is None or not hasattr(X, "select_dtypes"):
        frame = "pd.DataFrame([X])" if np.ndim(X) == 1 else "pd.DataFrame(X)"
        named = f"{frame[:-1]}, columns=[{', '.join(map(repr, known))}])" if known else f'{frame}.add_prefix("x")'
        raise ValueError(
            f"Raw rows must come as a data frame whose columns have texts for names, got {type(X).__name__}. "
            f"Make one: {named}."
        )
    frame = X.set_axis([str(name) for name in X.columns], axis=1)  # of several levels, too
    twice = sorted({name for name in frame.columns if list(frame.columns).count(name) > 1})
    if twice:
        raise ValueError(f"X has more than one column {listed(twice)}. Give every column its own name.")
    return Table(frame, "X", ways_out=IN_PYTHON)


def with_gaps(table: Table, column: Column) -> Column:
    """The column, saying whether values of it are missing anywhere in the table."""
    return replace(column, may_be_missing=bool(part_of(table.frame, column).isna().any()))
