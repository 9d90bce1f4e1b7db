"""Raw data frames: which columns are features, of what kind, and how rows become numbers and texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.alignment import names_of
from polyhedge._support.stored import stored
from polyhedge._support.text import printable
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.predictors.table import (
    DATE_PARTS,
    IN_PYTHON,
    Table,
    is_dates,
    listed,
    part_values,
    text_of,
    truth_values,
    values_of,
)

__all__ = [
    "Column",
    "Schema",
    "as_table",
    "choose_columns",
    "features_of",
    "number_columns",
    "oddities",
    "outcomes_of",
    "part_of",
    "read_features",
    "reads_columns",
    "useful_columns",
]

MISSING = "(missing)"
# A text column with more levels than this, each seen a few times only, names rows rather than kinds.
_MOST_LEVELS = 30
_FEW_ROWS_A_LEVEL = 8
_MOST_SHOWN = 5
_HALF = 0.5
"""Share of the values below which texts among numbers are slips of the pen, and the column is one of numbers."""
_MOST = 0.8
"""Share of different texts that look like numbers with a unit from which on the column is taken to mean numbers."""
# Numbers with a unit, a percent sign or a comma: whoever wrote so many different ones meant numbers.
_WITH_UNIT = re.compile(r"[€$£]?\s*[+-]?\d+(?:[.,]\d+)*\s*\D{0,4}$")
# A number this far outside the range of the history, as a share of that range, is worth a note.
_FAR_OUTSIDE = 0.1

Labels = NDArray[np.object_]


@stored("column")
@dataclass(frozen=True)
class Column:
    """One feature.

    Attributes
    ----------
    name : its name in the file.
    kind : "number" or "category".
    may_be_missing : whether values were missing in the history, so that the predictor knows how to fill them.
    levels : the categories of the history.
    low, high : the range of the numbers in the history.
    source, part : the column of dates that it is a part of, and which: "weekday", "month" or "hour".
    """

    name: str
    kind: str
    may_be_missing: bool = False
    levels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    source: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("number", "category"):
            raise ValueError(f"A column must be of the kind number or category, got {self.kind!r}.")
        if (self.source or self.part) and not (self.source and self.part in DATE_PARTS):
            raise ValueError(f"The column {self.name!r} is no part of a date.")


@stored("schema")
@dataclass(frozen=True)
class Schema:
    """Features and outcomes of a history; new rows are read by it.

    Examples
    --------
    >>> schema = Schema((Column("load", "number", low=1.0, high=2.0),), ("cost",))
    >>> schema.feature_names
    ('load',)
    """

    features: tuple[Column, ...]
    outcomes: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order in which the predictor takes them."""
        return tuple(column.name for column in self.features)

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of the columns that the features are made of."""
        return tuple(dict.fromkeys(column.source or column.name for column in self.features))

    def check_columns(self, table: Table) -> None:
        """Raise where a table has neither a feature nor the dates that it is a part of."""
        there = set(table.frame.columns)
        absent = [column.source or column.name for column in self.features if column.name not in there]
        table.check_columns(list(dict.fromkeys(absent)))


def choose_columns(
    table: Table,
    outcomes: Sequence[str],
    *,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    set_aside: Sequence[str] = (),
) -> tuple[Schema, tuple[str, ...]]:
    """Find out the features and their kinds; also return what a reader should know about the choice.

    Parameters
    ----------
    table : the history.
    outcomes : names of the outcome columns.
    features : names of the features; by default all columns that are neither outcomes nor `set_aside`.
    categorical : features that are categories although they look like numbers.
    set_aside : columns with another role, such as the time; features only where named in `features`.
    """
    if not outcomes:
        raise ValueError("Name at least one outcome column with --outcomes.")
    table.check_columns([*outcomes, *(features or ()), *categorical])
    both = [name for name in outcomes if name in (features or ())]
    if both:
        raise ValueError(f"Column {both[0]!r} cannot be an outcome and a feature. Take it out of one of them.")
    named_twice = [name for name in outcomes if list(outcomes).count(name) > 1]
    if named_twice:
        raise ValueError(f"The outcome {named_twice[0]!r} is named twice.")
    others = [name for name in table.frame.columns if name not in (*outcomes, *set_aside)]
    candidates = others if features is None else features
    columns, notes = useful_columns(table, candidates, outcomes, categorical, were_named=features is not None)
    return Schema(columns, tuple(outcomes)), notes


def useful_columns(
    table: Table,
    candidates: Sequence[str],
    outcomes: Sequence[str],
    categorical: Sequence[str] = (),
    *,
    were_named: bool = False,
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """The columns from which outcomes can be predicted, and why others were left out."""
    columns, notes = [], []
    for name in candidates:
        parts = [] if name in categorical else _date_parts(name, table.frame[name])
        own = parts or [_as_column(table, name, name in categorical)]
        raw = {column.name: part_of(table.frame, column) for column in own}
        is_wanted = were_named or name in categorical
        reasons = [_useless(table, raw[column.name], column, is_wanted) for column in own]
        useful = [column for column, reason in zip(own, reasons, strict=True) if not reason]
        columns += useful
        notes += [] if useful else [f"Column {name!r} was left out: {reasons[0]}"]
    if not columns:
        raise ValueError(
            f"{table.source} has no feature left to predict {', '.join(outcomes)} from. Bring a column that varies, "
            f"or {table.ways_out.features}."
        )
    return tuple(columns), tuple(notes)


def features_of(table: Table, schema: Schema) -> tuple[Any, Labels, Labels]:
    """The features of a table, why a row cannot be used, and what is odd about it (empty text where nothing is).

    Returns
    -------
    X : pandas.DataFrame
        Numbers as floats and categories as text.
    reasons, notes : (n,) of str
    """
    import pandas as pd

    schema.check_columns(table)
    reasons, notes = (np.full(len(table), "", dtype=object) for _ in range(2))
    columns: dict[str, Any] = {}
    for column in schema.features:
        read = _read_numbers if column.kind == "number" else _read_levels
        columns[column.name] = read(part_of(table.frame, column), column, reasons, notes)
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table))), reasons, notes


def outcomes_of(table: Table, outcomes: Sequence[str]) -> Array:
    """Outcomes (n, d) as numbers, NaN where missing; text among them is an error that names the rows."""
    table.check_columns(outcomes)
    return np.column_stack([_numbers(table, name, is_outcome=True) for name in outcomes])


def _as_column(table: Table, name: str, is_category: bool) -> Column:
    raw = table.frame[name]
    missing = bool(raw.isna().any())
    values, is_text = values_of(raw)
    n_text, n_there = int(is_text.sum()), int(raw.notna().sum())
    # Beside other words, true and false are two labels among others.
    is_mixed = n_text > 0 and bool(np.any(truth_values(raw)))
    if not is_category and not is_mixed and (n_text == 0 or n_text < _HALF * n_there):
        values = _numbers(table, name)
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        return Column(name, "number", missing, (), low, high)
    levels = sorted({str(label) for label in text_of(raw) if label is not None})
    if not is_category and len(levels) > _MOST_LEVELS and np.mean([bool(_WITH_UNIT.match(x)) for x in levels]) > _MOST:
        raise ValueError(_complaint(table, name, raw, is_text))
    return Column(name, "category", missing, tuple(levels))


def _useless(table: Table, raw: Any, column: Column, was_named: bool) -> str:
    """Why a column cannot help to predict; empty if it may."""
    if not raw.notna().any():
        return "it has no values."
    is_constant = column.low == column.high if column.kind == "number" else len(column.levels) == 1
    if is_constant and not column.may_be_missing:
        return "it has the same value in every row."
    most = max(_MOST_LEVELS, len(table) / _FEW_ROWS_A_LEVEL)
    if column.kind == "category" and not was_named and len(column.levels) > most:
        return (
            f"its {len(column.levels)} different texts in {len(table)} rows look like names or dates, not kinds. "
            + table.ways_out.names.format(name=column.name)
        )
    return ""


def _date_parts(name: str, raw: Any) -> list[Column]:
    """Weekday, month and, where the time of day varies, hour of a column of dates; none for other columns.

    Not the day itself: a predictor cannot have seen the days to come, but it has seen their weekdays and months.
    """
    if not is_dates(raw):
        return []
    missing = bool(raw.isna().any())
    hours = part_values(raw, "hour").dropna()
    columns = [
        Column(f"{name} ({part})", "category", missing, tuple(sorted(part_values(raw, part).dropna().unique())))
        for part in ("weekday", "month")
    ]
    if len(hours) and hours.min() < hours.max():
        columns.append(Column(f"{name} (hour)", "number", missing, (), float(hours.min()), float(hours.max())))
    parts = ("weekday", "month", "hour")
    return [replace(column, source=name, part=part) for column, part in zip(columns, parts, strict=False)]


def part_of(frame: Any, column: Column) -> Any:
    """The values of a feature: its column, or the part of a column of dates."""
    is_part = column.part and column.name not in frame.columns
    return part_values(frame[column.source], column.part) if is_part else frame[column.name]


def _numbers(table: Table, name: str, *, is_outcome: bool = False) -> Array:
    raw = table.frame[name]
    values, is_text = values_of(raw)
    if is_text.any():
        raise ValueError(_complaint(table, name, raw, is_text, is_outcome=is_outcome))
    return values


def _complaint(table: Table, name: str, raw: Any, is_text: Mask, *, is_outcome: bool = False) -> str:
    """What a user needs to find text among numbers: the rows, the text, and the ways out."""
    rows = np.flatnonzero(is_text)
    texts = [str(raw.iloc[row]) for row in rows[:_MOST_SHOWN]]
    shown = ", ".join(f"row {row + 1} ({text!r})" for row, text in zip(rows, texts, strict=False))
    more = f" and {len(rows) - _MOST_SHOWN} more" if len(rows) > _MOST_SHOWN else ""
    kinds = "" if is_outcome else table.ways_out.kinds.format(name=name)
    hint = table.ways_out.decimal if any("," in text for text in texts) else ""
    return (
        f"Column {name!r} of {table.source} must hold numbers, but {len(rows)} of {len(table)} rows hold something "
        f"else: {shown}{more}{table.ways_out.rows}. Correct them (no units), or {table.ways_out.missing}{kinds}.{hint}"
    )


def _read_numbers(raw: Any, column: Column, reasons: Labels, notes: Labels) -> Array:
    values, is_text = values_of(raw)
    for row in np.flatnonzero(is_text):
        _add(reasons, row, f"{column.name} is not a number: {str(raw.iloc[row])!r}")
    if not column.may_be_missing:
        for row in np.flatnonzero(np.isnan(values) & ~is_text):
            _add(reasons, row, f"{column.name} is missing")
    margin = _FAR_OUTSIDE * (column.high - column.low)
    far = (values < column.low - margin) | (values > column.high + margin)
    for row in np.flatnonzero(far):
        _add(notes, row, f"{column.name} = {values[row]:.6g} is far outside {column.low:.6g} to {column.high:.6g}")
    return values


def _read_levels(raw: Any, column: Column, reasons: Labels, notes: Labels) -> Labels:
    labels = text_of(raw)
    known = set(column.levels)
    for row, label in enumerate(labels):
        if label is None:
            labels[row] = MISSING
            if not column.may_be_missing:
                _add(reasons, row, f"{printable(column.name)} is missing")
        elif label not in known:
            _add(notes, row, f"{printable(column.name)} = {label!r} was never seen before")
    return np.asarray(labels, dtype=object)


def _add(texts: Labels, row: int | np.integer[Any], text: str) -> None:
    texts[row] = f"{texts[row]}; {text}" if texts[row] else text


# Frames of X


def reads_columns(X: Any) -> bool:
    """Whether columns of X have to be read: those of a data frame that holds more than numbers, or gaps.

    So do columns that names do not tell apart, and they are refused; a frame of numbers is like an array.

    Examples
    --------
    >>> import pandas as pd
    >>> [reads_columns(X) for X in (pd.DataFrame({"a": [1.0]}), pd.DataFrame({"a": [None]}), np.eye(2))]
    [False, True, False]
    """
    if not hasattr(X, "select_dtypes"):
        return False
    names_of(X)  # numbers that are out of order are no names, and no order either
    return not (X.columns.is_unique and _are_numbers(X)) or bool(X.isna().to_numpy().any())


def _are_numbers(X: Any) -> bool:
    return all(dtype.kind in "iuf" for dtype in X.dtypes)


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
