"""Raw data frames: columns of numbers, texts, categories, booleans and dates, with gaps, and the predictor for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._columns import names_of
from polyhedge._validation import Array, Indices
from polyhedge.columns.pipelines import choose_predictor, make_predictor
from polyhedge.columns.schema import Column, Schema, features_of, part_of, useful_columns
from polyhedge.columns.table import IN_PYTHON, Table, listed, values_of

__all__ = ["Prepared", "chooses_predictor", "is_raw", "number_columns", "oddities", "prepare", "read_features"]


def is_raw(X: Any) -> bool:
    """Whether X is a data frame with named columns of which one holds more than numbers, or a gap.

    Examples
    --------
    >>> import pandas as pd
    >>> is_raw(pd.DataFrame({"a": [1.0, 2.0]})), is_raw(pd.DataFrame({"a": [1.0, None]})), is_raw(np.eye(2))
    (False, True, False)
    """
    return hasattr(X, "select_dtypes") and names_of(X) is not None and not (_are_numbers(X) and _has_no_gaps(X))


def chooses_predictor(predictor: Any, X: Any) -> bool:
    """Whether the predictor is chosen for the columns of X: on request, and for raw frames without a predictor."""
    return is_raw(X) if predictor is None else isinstance(predictor, str) and predictor == "auto"


def _are_numbers(X: Any) -> bool:
    return all(dtype.kind in "iuf" for dtype in X.dtypes)


def _has_no_gaps(X: Any) -> bool:
    return not bool(X.isna().to_numpy().any())


@dataclass(frozen=True, eq=False)
class Prepared:
    """A frame that a predictor can take, and the predictor that does best on its training rows.

    Attributes
    ----------
    X : the features as numbers and texts.
    schema : which columns they are of.
    template : the predictor, a pipeline that is not fitted.
    said : what was chosen and why, what was left out and why.
    """

    X: Any
    schema: Schema
    template: Any
    said: dict[str, str]


def prepare(
    X: Any,
    Y: Array,
    outcomes: Sequence[str],
    train: Indices,
    groups: Any,
    random_state: int,
    weights: Array | None = None,
) -> Prepared:
    """Read a raw frame, and choose among ridge, forest and boosting by cross-validation.

    Kinds of columns, their levels and the predictor come from the training rows. Other rows say only where values may
    be missing, which decides no prediction: a gap is filled from the training rows.
    """
    table = _as_table(X)
    history = replace(table, frame=table.frame.iloc[train])
    categories = [str(name) for name, dtype in table.frame.dtypes.items() if dtype == "category"]
    columns, notes = useful_columns(history, list(table.frame.columns), outcomes, categories)
    schema = Schema(tuple(_with_gaps(table, column) for column in columns), tuple(outcomes))
    features = read_features(X, schema)
    its_groups = None if groups is None else groups[train]
    name, reason = choose_predictor(
        schema,
        features.iloc[train],
        Y[train],
        groups=its_groups,
        random_state=random_state,
        weights=None if weights is None else weights[train],
    )
    said = {"chosen predictor": f"{name} ({reason})"} | ({"left out": " ".join(notes)} if notes else {})
    return Prepared(features, schema, make_predictor(name, schema, random_state=random_state), said)


def read_features(X: Any, schema: Schema) -> Any:
    """The features of a raw frame as numbers and texts; an error names the first row that cannot be used."""
    features, reasons, _ = features_of(_as_table(X, schema.source_names), schema)
    bad = np.flatnonzero([bool(reason) for reason in reasons])
    if len(bad):
        raise ValueError(
            f"{len(bad)} of {len(reasons)} rows of X cannot be used, the first is row {X.index.tolist()[bad[0]]!r}: "
            f"{reasons[bad[0]]}. Correct or drop these rows; gaps are filled in only where rows of fit had some."
        )
    return features


def oddities(X: Any, schema: Schema) -> NDArray[np.object_]:
    """What is unlike the training rows in each row; empty texts where nothing is."""
    return features_of(_as_table(X, schema.source_names), schema)[2]


def number_columns(X: Any, outcomes: Sequence[str], train: Indices) -> Schema | None:
    """The columns of a frame of numbers with names, for readers of a model file; None for any other."""
    if not hasattr(X, "select_dtypes") or names_of(X) is None or not _are_numbers(X) or not X.columns.is_unique:
        return None
    found = []
    for place, name in enumerate(X.columns):
        values = values_of(X.iloc[:, place])[0]
        known = values[train][np.isfinite(values[train])]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        found.append(Column(str(name), "number", bool(np.isnan(values).any()), (), low, high))
    return Schema(tuple(found), tuple(outcomes))


def _as_table(X: Any, known: Sequence[str] = ()) -> Table:
    """The frame with names as texts; `known` are the columns that a model was fitted with."""
    if names_of(X) is None or not hasattr(X, "select_dtypes"):
        frame = "pd.DataFrame([X])" if isinstance(X, Mapping) else "pd.DataFrame(X)"
        named = f"{frame[:-1]}, columns=[{', '.join(map(repr, known))}])" if known else f'{frame}.add_prefix("x")'
        is_named = isinstance(X, Mapping) or (isinstance(X, Sequence) and any(isinstance(row, Mapping) for row in X))
        raise ValueError(
            f"Raw rows must come as a data frame with names of columns, got {type(X).__name__}. Make one: "
            f"{frame if is_named else named}."
        )
    frame = X.rename(columns=str)
    twice = sorted({name for name in frame.columns if list(frame.columns).count(name) > 1})
    if twice:
        raise ValueError(f"X has more than one column {listed(twice)}. Give every column its own name.")
    return Table(frame, "X", ways_out=IN_PYTHON)


def _with_gaps(table: Table, column: Column) -> Column:
    return replace(column, may_be_missing=bool(part_of(table.frame, column).isna().any()))
