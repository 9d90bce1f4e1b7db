"""Columns of tables: which are features and of what kind, how rows are read, and how they become numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import iso_date, listed, names_of
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask

DATE_PARTS = ("weekday", "month", "hour")
_WEEKDAYS = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"], dtype=object)
_MONTHS = np.array([f"{month:02d}" for month in range(1, 13)], dtype=object)
MISSING = "(missing)"
_MOST_LEVELS = 30
"""Levels of a text column, each seen a few times only, beyond which it names rows rather than kinds."""
_FEW_ROWS_A_LEVEL = 8
"""Rows of a level that make it a kind, whatever the number of levels."""
_MOST_ENCODED = 30
"""Categories of a column that get an indicator each; rarer ones share one."""
_MOST_SHOWN = 5
"""Rows that an error shows."""
_HALF = 0.5
"""Share of the values below which texts among numbers are slips of the pen, and the column is one of numbers."""
_MOST = 0.8
"""Share of different texts that look like numbers with a unit from which on the column is taken to mean numbers."""
_WITH_UNIT = re.compile(r"[€$£]?\s*[+-]?\d+(?:[.,]\d+)*\s*\D{0,4}$")
_FAR_OUTSIDE = 0.1
"""Share of the range of the history by which a number lies outside it when a note says so."""
_FEWEST_STEPS = 10
"""Steps from date to date that tell an order: fewer may go one way by chance."""
_MOST_READABLE = 0.9
"""Share of texts beyond which a column is one of dates, and others in it are missing: slips of the pen."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?")
_WITH_OFFSET = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*?)(?:Z|[+-]\d{2}(?::?\d{2})?)")

Labels = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a file, or of a frame, in their order, with what was guessed while reading them.

    Attributes
    ----------
    frame : pandas.DataFrame
        Text as written in a CSV file (missing values as NaN), typed columns of a Parquet file.
    source : name of the file, for messages.
    notes : what a reader should know: a guessed encoding, a decimal comma, columns left out.
    """

    frame: Any
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    def column(self, name: str) -> Any:
        """One column, or an error that lists the columns there are."""
        self.check_columns([name])
        return self.frame[name]

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise if a column is not there."""
        missing = [repr(name) for name in names if name not in self.frame.columns]
        if missing:
            known = listed(list(self.frame.columns), most=50)
            raise ValueError(f"{self.source} has no column {listed(missing)}. Its columns are: {known}.")


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

    @classmethod
    def of_numbers(cls, name: str, values: Array, is_missing: bool) -> Self:
        """A column of these numbers, NaN where they are missing."""
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        return cls(name, "number", is_missing, (), low, high)


@stored("schema")
@dataclass(frozen=True)
class Schema:
    """Features and outcomes of a history; new rows are read by it."""

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


# Which columns are features


def choose_columns(
    table: Table,
    outcomes: Sequence[str],
    *,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    set_aside: Sequence[str] = (),
) -> tuple[Schema, tuple[str, ...]]:
    """The features of a history and their kinds, and what a reader should know about the choice.

    By default `features` are all columns that are neither outcomes nor `set_aside` for another role, such as the time.
    Those that are `categorical` are categories although they look like numbers.
    """
    if not outcomes:
        raise ValueError("Name at least one outcome column with --outcomes.")
    table.check_columns([*outcomes, *(features or ()), *categorical])
    if not len(table):
        raise ValueError(f"{table.source} has a header and no rows. Bring rows with features and outcomes.")
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
        is_wanted = were_named or name in categorical
        reasons = [_useless(table, missing_in(table.frame, column), column, is_wanted) for column in own]
        useful = [column for column, reason in zip(own, reasons, strict=True) if not reason]
        columns += useful
        notes += [] if useful else [f"Column {name!r} was left out: {reasons[0]}"]
    if not columns:
        raise ValueError(
            f"{table.source} has no feature left to predict {', '.join(outcomes)} from. Bring a column that varies, "
            "or make texts that name kinds a category."
        )
    return tuple(columns), tuple(notes)


def number_columns(X: Any, outcomes: Sequence[str], train: Indices) -> Schema | None:
    """The columns of a frame of numbers with names, for readers of a model file; None for any other."""
    if not hasattr(X, "select_dtypes") or names_of(X) is None or not _are_numbers(X) or not X.columns.is_unique:
        return None
    columns = []
    for place, name in enumerate(X.columns):
        values = values_of(X.iloc[:, place])[0]
        columns.append(Column.of_numbers(str(name), values[train], bool(np.isnan(values).any())))
    return Schema(tuple(columns), tuple(outcomes))


def _as_column(table: Table, name: str, is_category: bool) -> Column:
    raw = table.frame[name]
    missing = bool(raw.isna().any())
    is_text = values_of(raw)[1]
    n_text, n_there = int(is_text.sum()), int(raw.notna().sum())
    # Beside other words, true and false are two labels among others.
    is_mixed = n_text > 0 and bool(np.any(_truth_values(raw)))
    if not is_category and not is_mixed and (n_text == 0 or n_text < _HALF * n_there):
        return Column.of_numbers(name, _numbers(table, name), missing)
    levels = sorted({str(label) for label in text_of(raw) if label is not None})
    # Numbers with a unit, a percent sign or a comma: whoever wrote so many different ones meant numbers.
    if not is_category and len(levels) > _MOST_LEVELS and np.mean([bool(_WITH_UNIT.match(x)) for x in levels]) > _MOST:
        raise ValueError(_complaint(table, name, raw, is_text))
    return Column(name, "category", missing, tuple(levels))


def _useless(table: Table, is_missing: Mask, column: Column, was_named: bool) -> str:
    """Why a column cannot help to predict; empty if it may."""
    if is_missing.all():
        return "it has no values."
    is_constant = column.low == column.high if column.kind == "number" else len(column.levels) == 1
    if is_constant and not column.may_be_missing:
        return "it has the same value in every row."
    most = max(_MOST_LEVELS, len(table) / _FEW_ROWS_A_LEVEL)
    if column.kind == "category" and not was_named and len(column.levels) > most:
        return (
            f"its {len(column.levels)} different texts in {len(table)} rows look like names or dates, not kinds. "
            f"{_as_category(column.name)} to use it, and write dates as 2024-02-29 to use their weekday and month."
        )
    return ""


def _as_category(name: str) -> str:
    return f"Make it a category (--categorical {name}, in Python X[{name!r}].astype('category'))"


def _date_parts(name: str, raw: Any) -> list[Column]:
    """Weekday, month and, where the time of day varies, hour of a column of dates; none for other columns.

    Not the day itself: a predictor cannot have seen the days to come, but it has seen their weekdays and months.
    """
    if not is_dates(raw):
        return []
    missing, clock = bool(raw.isna().any()), clock_of(raw)
    hours = part_values(there := clock[~np.isnat(clock)], "hour")
    columns = [
        Column(f"{name} ({part})", "category", missing, tuple(sorted({*part_values(there, part)})))
        for part in ("weekday", "month")
    ]
    if len(hours) and hours.min() < hours.max():
        columns.append(Column.of_numbers(f"{name} (hour)", hours, missing))
    return [replace(column, source=name, part=part) for column, part in zip(columns, DATE_PARTS, strict=False)]


def missing_in(frame: Any, column: Column) -> Mask:
    """Where a feature has no value (N,): in its column, or in the column of dates that it is a part of."""
    is_part = column.part and column.name not in frame.columns
    missing = np.isnat(clock_of(frame[column.source])) if is_part else frame[column.name].isna()
    return np.asarray(missing, dtype=bool)


# Reading rows


def reads_columns(X: Any) -> bool:
    """Whether columns of X have to be read: X is a data frame with gaps, or with more than numbers.

    A frame of numbers is like an array, unless two columns have the same name: reading then refuses them.
    """
    if not hasattr(X, "select_dtypes"):
        return False
    names_of(X)  # numbers that are out of order are no names, and no order either
    return not (X.columns.is_unique and _are_numbers(X)) or bool(X.isna().to_numpy().any())


def _are_numbers(X: Any) -> bool:
    return all(dtype.kind in "iuf" for dtype in X.dtypes)


def as_table(X: Any, known: Sequence[str] = ()) -> Table:
    """The frame with names as texts; `known` are the columns that a model was fitted with."""
    is_frame = hasattr(X, "select_dtypes")
    if is_frame and X.columns.is_unique and len(X.columns) and all(isinstance(name, str) for name in X.columns):
        return Table(X, "X")
    if names_of(X) is None or not is_frame:
        frame = "pd.DataFrame([X])" if np.ndim(X) == 1 else "pd.DataFrame(X)"
        named = f"{frame[:-1]}, columns=[{', '.join(map(repr, known))}])" if known else f'{frame}.add_prefix("x")'
        raise ValueError(
            f"Raw rows must come as a data frame whose columns have texts for names, got {type(X).__name__}. "
            f"Make one: {named}."
        )
    frame = X.set_axis([str(name) for name in X.columns], axis=1)  # of several levels, too
    twice = sorted({repr(name) for name in frame.columns[frame.columns.duplicated()]})
    if twice:
        raise ValueError(f"X has more than one column {listed(twice)}. Give every column its own name.")
    return Table(frame, "X")


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """Numbers and texts (N,) by column; models of ours take them for a frame, which takes longer than a decision."""

    columns: dict[str, Any]
    shape: tuple[int, int]

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def frame(self) -> Any:
        """The same as a frame (pandas)."""
        import pandas as pd

        return pd.DataFrame(self.columns, index=pd.RangeIndex(self.shape[0]))


def features_of(table: Table, schema: Schema) -> tuple[ReadColumns, Labels, Labels]:
    """The features of a table; texts (n,) why a row cannot be used and what is odd about it, empty where nothing is."""
    there = table.frame.columns
    absent = [column.source or column.name for column in schema.features if column.name not in there]
    table.check_columns(list(dict.fromkeys(absent)))
    reasons, notes = (np.full(len(table), "", dtype=object) for _ in range(2))
    clock, columns = cache(lambda source: clock_of(table.frame[source])), dict[str, Any]()
    for column in schema.features:
        read = _read_numbers if column.kind == "number" else _read_levels
        is_part = column.part and column.name not in there
        raw = part_values(clock(column.source), column.part) if is_part else table.frame[column.name]
        columns[column.name] = read(raw, column, reasons, notes)
    return ReadColumns(columns, (len(table), len(columns))), reasons, notes


def read_features(X: Any, schema: Schema) -> tuple[ReadColumns, Labels]:
    """The features of a raw frame as numbers and texts, and notes on its rows; an error if a row cannot be used."""
    features, reasons, notes = features_of(as_table(X, schema.source_names), schema)
    bad = np.flatnonzero([bool(reason) for reason in reasons])
    if len(bad):
        raise ValueError(
            f"{len(bad)} of {len(reasons)} rows of X cannot be used, the first is row {X.index.tolist()[bad[0]]!r}: "
            f"{reasons[bad[0]]}. Correct or drop these rows; gaps are filled in only where rows of fit had some."
        )
    return features, notes


def outcomes_of(table: Table, outcomes: Sequence[str]) -> Array:
    """Outcomes (n, d) as numbers, NaN where missing; text among them is an error that names the rows."""
    table.check_columns(outcomes)
    return np.column_stack([_numbers(table, name) for name in outcomes])


def _numbers(table: Table, name: str) -> Array:
    raw = table.frame[name]
    values, is_text = values_of(raw)
    if is_text.any():
        raise ValueError(_complaint(table, name, raw, is_text))
    return values


def _complaint(table: Table, name: str, raw: Any, is_text: Mask) -> str:
    """What a user needs to find text among numbers: the rows, the text, and the ways out."""
    rows = np.flatnonzero(is_text)
    is_frame = table.source == "X"
    counted = "by the index of X" if is_frame else "are counted from 1, below the header"
    places = raw.index[rows] if is_frame else rows + 1
    texts = [f"row {place} ({str(raw.iloc[row])!r})" for place, row in zip(places, rows, strict=True)]
    hint = " Read decimal commas with --decimal ',', in Python with pd.read_csv(..., decimal=',')."
    return (
        f"Column {name!r} of {table.source} must hold numbers, but {len(rows)} of {len(table)} rows hold something "
        f"else: {listed(texts, _MOST_SHOWN)} (rows {counted}). Correct them (no units), write "
        f"dates as 2024-02-29, or leave them empty (--missing WORD). {_as_category(name)} if it names kinds."
        + (hint if any("," in text for text in texts[:_MOST_SHOWN]) else "")
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
    labels, known = text_of(raw), set(column.levels)
    for row, label in () if known.issuperset(labels) else enumerate(labels):
        if label is None:
            labels[row] = MISSING
            if not column.may_be_missing:
                _add(reasons, row, f"{column.name} is missing")
        elif label not in known:
            _add(notes, row, f"{column.name} = {label!r} was never seen before")
    return np.asarray(labels, dtype=object)


def _add(texts: Labels, row: int | np.integer[Any], text: str) -> None:
    texts[row] = f"{texts[row]}; {text}" if texts[row] else text


# Values of one column


def values_of(column: Any) -> tuple[Array, Mask]:
    """A column as numbers, NaN where there is none, and where it holds something that is no number."""
    import pandas as pd

    if column.dtype.kind == "M":
        return np.full(len(column), np.nan), column.notna().to_numpy()
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        values = np.array(column, dtype=np.float64)
        is_text = np.isinf(values)
        values[is_text] = np.nan
        return values, is_text
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    if column.dtype.kind not in "biuf":
        # pandas before 3 misses the last digit of some numbers that are written as text.
        pairs = zip(values, column.tolist(), strict=True)
        values = np.array([float(x) if isinstance(x, str) and np.isfinite(value) else value for value, x in pairs])
    odd = np.flatnonzero(np.isnan(values))
    is_true, is_false = _truth_values(column.iloc[odd])
    values[odd[is_true]], values[odd[is_false]] = 1.0, 0.0
    is_text = (column.notna().to_numpy() & np.isnan(values)) | np.isinf(values)
    values[is_text] = np.nan
    return values, np.asarray(is_text, dtype=bool)


def _truth_values(column: Any) -> tuple[Mask, Mask]:
    """Where a column says true and where it says false, as booleans or in words: CSV and Parquet files must agree."""
    if column.dtype.kind in "iuf":
        return np.zeros(len(column), dtype=bool), np.zeros(len(column), dtype=bool)
    words = np.array([str(value).strip().lower() for value in column], dtype=object)
    return np.asarray(words == "true"), np.asarray(words == "false")


def text_of(column: Any) -> Any:
    """A column as labels, None where missing; integers are written without a point.

    A Parquet file may store the codes 1, 2, 3 as floats because one of them is missing.
    """
    import pandas as pd

    def label(value: Any) -> str | None:
        if value is None or value is pd.NA or value != value:
            return None
        is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
        return str(int(value)) if is_whole else str(value).strip()

    labels = np.empty(len(column), dtype=object)
    labels[:] = [value.strip() if type(value) is str else label(value) for value in column.tolist()]
    return labels


def is_dates(column: Any) -> bool:
    """Whether a column of a frame holds dates: as a type of its own, as Python objects or as texts.

    Texts are dates in ISO 8601, or with points and the day first.

    Empty texts, and a few that are no dates, are missing dates.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = ["2024-02-29", None], ["29.2.2024 18:00", "2024-03-01T06:00:00Z"], ["2024-02-30"], ["May"], [7]
    >>> [is_dates(pd.Series(values)) for values in columns]
    [True, True, False, False, False]
    """
    if column.dtype.kind == "M":
        return True
    there = column.dropna()
    if not len(there) or column.dtype == "category":
        return False
    if all(isinstance(value, date) for value in there):
        return True
    if not all(isinstance(value, str) for value in there):
        return False
    there = there[there.str.strip() != ""]
    is_iso = there.map(lambda text: bool(_ISO.fullmatch(iso_date(text)))) & _dates(there).notna()
    return len(there) > 0 and bool(is_iso.sum() > _MOST_READABLE * len(there))


def time_order(frame: Any) -> tuple[str, bool] | None:
    """The column of dates in whose order rows come, and whether no row is earlier than the one before; None if none is.

    An index of dates is the column "X.index". Rows may come newest first, several of one date, or one store after
    another: at most one step in four goes the other way, where rows in no order go either way equally often.

    Examples
    --------
    >>> import pandas as pd
    >>> days = pd.date_range("2024-01-01", periods=30).strftime("%Y-%m-%d")
    >>> time_order(pd.DataFrame({"day": days})), time_order(pd.DataFrame({"day": [*days[::-1], *days[::-1]]}))
    (('day', True), ('day', False))
    """
    index = [("X.index", frame.index.to_series())] if frame.index.dtype.kind == "M" else []
    for name, column in [*frame.items(), *index]:
        if is_dates(column):
            steps = np.diff(_dates(column).dropna().astype("int64"))
            forward, back = int((steps > 0).sum()), int((steps < 0).sum())
            if forward + back >= _FEWEST_STEPS and 4 * min(forward, back) <= forward + back:
                return str(name), back == 0
    return None


def _dates(column: Any) -> Any:
    """Dates by the clock that they are written in: offsets of a zone change in spring and autumn, weekdays do not."""
    import pandas as pd

    def without_offset(value: Any) -> Any:
        match = _WITH_OFFSET.fullmatch(value) if isinstance(value, str) else None
        return iso_date(value) if match is None else match.group(1)

    if column.dtype.kind == "M":
        return column
    return pd.to_datetime(column.map(without_offset), errors="coerce", format="ISO8601")


def clock_of(column: Any) -> Any:
    """A column as dates of NumPy (N,), by the clock that they are written in; texts are read as ISO 8601."""
    dates = _dates(column)
    return (dates if isinstance(dates.dtype, np.dtype) else dates.dt.tz_localize(None)).to_numpy()


def part_values(clock: Any, part: str) -> Any:
    """The weekdays ("Monday", ...), months ("01", ...) or hours (0.0 to 23.98) of dates (N,); NaN where there is none.

    Examples
    --------
    >>> import pandas as pd
    >>> part_values(clock_of(pd.Series(["2024-02-29", "soon"])), "weekday").tolist()
    ['Thursday', nan]
    >>> part_values(clock_of(pd.Series(["2024-03-31 00:30+01:00", "2024-03-31 05:00+02:00"])), "hour").tolist()
    [0.5, 5.0]
    """
    days, is_there = clock.astype("datetime64[D]"), ~np.isnat(clock)
    if part == "hour":
        values = (clock - days).astype("timedelta64[m]").astype(np.int64) / 60
        return np.where(is_there, values, np.nan)
    names, first = (
        (_WEEKDAYS, days.view(np.int64) + 3) if part == "weekday" else (_MONTHS, days.astype("datetime64[M]"))
    )
    own = names[np.where(is_there, first.astype(np.int64) % len(names), 0)]
    return np.where(is_there, own, np.nan)


# Numbers for a predictor


@stored("encoding")
@dataclass(frozen=True, eq=False)
class Encoding:
    """Features as a matrix: standardised numbers, a 1 where a number was missing, a 1 at the level of each category.

    Attributes
    ----------
    numbers : names of the columns of numbers.
    fill : (p,) the medians that stand for missing numbers.
    indicated : which of the numbers have a column that says where they were missing.
    mean, scale : (p + q,) of the numbers and of these columns; $(x - m) / s$ is what a predictor sees.
    categories, levels : names of the columns of categories, and the levels of each that have an indicator.
    has_others : whether the rarer levels of a category, and levels never seen, share an indicator.
    """

    numbers: tuple[str, ...]
    fill: Array
    indicated: Indices
    mean: Array
    scale: Array
    categories: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    has_others: tuple[bool, ...]

    def __post_init__(self) -> None:
        p = len(self.numbers)
        if self.fill.shape != (p,) or self.indicated.ndim != 1 or not np.isin(self.indicated, np.arange(p)).all():
            raise ValueError("Columns of numbers must have one value that fills the gaps of each.")
        if self.mean.shape != (p + len(self.indicated),) or self.mean.shape != self.scale.shape:
            raise ValueError("Columns of numbers must have a mean and a scale each.")
        if not (self.scale > 0).all() or not len(self.categories) == len(self.levels) == len(self.has_others):
            raise ValueError("Scales must be positive, and columns of categories must each have levels.")

    @classmethod
    def of(cls, features: Any, schema: Schema) -> Self:
        """The encoding that the training rows ask for; `features` are those that `features_of` has read."""
        numbers = [c.name for c in schema.features if c.kind == "number"]
        categories = [c.name for c in schema.features if c.kind == "category"]
        values = numbers_in(features, numbers)
        known = [column[~np.isnan(column)] for column in values.T]
        fill = np.array([float(np.median(each)) if len(each) else 0.0 for each in known])
        indicated = np.flatnonzero(np.isnan(values).any(axis=0))
        counts = [Counter(features[name].tolist()) for name in categories]
        has_others = tuple(len(count) > _MOST_ENCODED for count in counts)
        # The most frequent ones; among equals the first by name.
        usual = [sorted(count, key=lambda level, count=count: (-count[level], level)) for count in counts]  # type: ignore[misc]
        levels = tuple(
            tuple(sorted(each[: _MOST_ENCODED - 1] if others else each))
            for each, others in zip(usual, has_others, strict=True)
        )
        mean, scale = np.zeros(len(numbers) + len(indicated)), np.ones(len(numbers) + len(indicated))
        plain = cls(tuple(numbers), fill, indicated, mean, scale, tuple(categories), levels, has_others)
        mean, scale = center_and_scale(plain(features)[:, : len(mean)])
        return replace(plain, mean=mean, scale=scale)

    def __call__(self, features: Any) -> Array:
        """The matrix (N, p + q + number of indicators) of N rows."""
        values = numbers_in(features, self.numbers)
        is_missing = np.isnan(values)
        filled = np.hstack([np.where(is_missing, self.fill, values), is_missing[:, self.indicated]])
        k, n_columns = len(self.mean), len(self.mean) + sum(map(len, self.levels)) + sum(self.has_others)
        matrix, rows = np.zeros((len(values), n_columns + 1)), np.arange(len(values))
        matrix[:, :k] = (filled - self.mean) / self.scale
        for name, columns, other in self._columns:
            matrix[rows, [columns.get(value, other) for value in features[name].tolist()]] = 1.0
        return matrix[:, :-1]

    @cached_property
    def _columns(self) -> list[tuple[str, dict[str, int], int]]:
        """For each category the column of each level, and that of other levels: the last, if they have none."""
        columns, k = [], len(self.mean)
        for name, levels, has_others in zip(self.categories, self.levels, self.has_others, strict=True):
            own = {level: k + i for i, level in enumerate(levels)}
            k += len(levels) + has_others
            columns.append((name, own, k - 1 if has_others else -1))
        return columns


def numbers_in(frame: Any, names: Sequence[str]) -> Array:
    """Columns of a frame as numbers (N, k), NaN where one is missing: one by one, ten times faster for a row."""
    is_read = isinstance(frame, ReadColumns)
    columns = [frame[k] if is_read else frame[k].to_numpy(dtype=np.float64, na_value=np.nan) for k in names]
    return np.stack(columns, axis=1) if columns else np.zeros((frame.shape[0], 0))


def center_and_scale(matrix: Array) -> tuple[Array, Array]:
    """The means and standard deviations (p,) of columns; 1 for a column that never changes, up to rounding."""
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0)
    is_constant = scale <= 1e-12 * np.abs(matrix).max(axis=0, initial=0.0)
    return mean, np.where(is_constant, 1.0, scale)
