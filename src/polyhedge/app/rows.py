"""Rows of the user's table with everything that belongs to them, as `RobustDecider` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import iso_date
from polyhedge._support.validation import Array
from polyhedge._support.warnings import Code
from polyhedge.data import equal_rows, take_rows
from polyhedge.diagnostics import Diagnostic
from polyhedge.fitting import reference_values
from polyhedge.io.fit_record import FitRecord
from polyhedge.predictors.columns import Labels, Table, features_of, outcomes_of, text_of, values_of
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.layout import ProblemParameter, order_outcomes as order_columns, parameter_rows
from polyhedge.robust import decide_knowing
from polyhedge.rows import read_from

Sources = Mapping[str, tuple[Any, ...]]
"""Where the values of each parameter come from: names of columns, or numbers, one for each of its entries."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """The usable rows of a table.

    Attributes
    ----------
    X, Y : features and outcomes.
    numbers : row numbers in the table.
    groups : labels of rows that belong together; None if rows count one by one.
    times : times of the rows; None without a column for them.
    parameters : values of the problem's parameters, by name.
    labels : labels or weights that calibration reads from a column that is no feature.
    warnings : rows that were left out, and copies.
    """

    X: Any
    Y: Array
    numbers: NDArray[np.intp]
    groups: Any
    times: Any
    parameters: Mapping[str, Array]
    labels: Any
    warnings: tuple[Diagnostic, ...]

    def __len__(self) -> int:
        return len(self.Y)

    def take(self, index: Any) -> TableRows:
        """Some of the rows."""
        parts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "warnings"}
        parameters = {name: value[index] for name, value in parts.pop("parameters").items()}
        index = np.arange(len(self))[index]
        taken = {name: take_rows(part, index) for name, part in parts.items() if part is not None}
        return replace(self, **taken, parameters=parameters)

    @property
    def given(self) -> dict[str, Any]:
        """The keyword arguments of `decide` and `measure`."""
        return {"parameters": self.parameters, "labels": self.labels}


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows of a table without outcomes: features of all, numbers of the `usable` ones, parameters and labels of these.

    `reasons` say for all rows why one cannot be decided, `notes` what is odd about it; empty texts where nothing is.
    """

    X: Any
    usable: NDArray[np.intp]
    parameters: Mapping[str, Array]
    labels: Any
    reasons: Labels
    notes: Labels


def new_rows(table: Table, problem: DecisionProblem, record: FitRecord, radii: Any) -> NewRows:
    """The rows of a table as a model takes them; `record` has the roles of the columns."""
    features, reasons, notes = features_of(table, record.schema)
    values, lacking = parameters_of(table, problem, record.parameters)
    reasons = np.where(reasons == "", lacking, reasons)
    usable = np.flatnonzero([not reason for reason in reasons])
    values = {name: value[usable] for name, value in values.items()}
    labels = None
    if record.labels is not None:
        labels = labels_of(table, record.labels, are_weights=radii.reads_weights)[usable]
    return NewRows(features.frame(), usable, values, labels, reasons, notes)


def table_rows(
    table: Table,
    problem: DecisionProblem,
    record: FitRecord,
    calibration: Any = None,
    *,
    categories: Sequence[str] | None = None,
    with_times: bool = False,
    with_copies: bool = False,
) -> TableRows:
    """The rows of a table that have outcomes, features and parameters; the others are counted.

    The `record` has the roles of the columns; `calibration` (or radii) says whether its labels are weights. For a fit
    columns are taken as they are, some as `categories`; else they are read by the schema. `with_copies`, equal rows
    belong together where no groups do.
    """
    if not len(table):
        raise ValueError(f"{table.source} has the names of columns but no rows. Bring rows.")
    schema, n = record.schema, len(table)
    if categories is None:
        features, reasons, _ = features_of(table, schema)
        X = features.frame()
    else:
        X, reasons = plain_columns(table, schema.source_names, categories), np.full(n, "", dtype=object)
    values, lacking = parameters_of(table, problem, record.parameters)
    reasons = np.where(reasons == "", lacking, reasons)
    Y = outcomes_of(table, schema.outcomes)
    times = times_of(table, str(record.time_column)) if with_times and record.time_column is not None else None
    labels = None if record.labels is None else labels_of(table, record.labels, are_weights=calibration.reads_weights)
    has_outcome = np.isfinite(Y).all(axis=1)
    has_reason = np.array([bool(reason) for reason in reasons], dtype=bool) & has_outcome
    has_no_time = np.zeros(n, dtype=bool) if times is None else np.isnan(times) & has_outcome & ~has_reason
    warnings = []
    if not has_outcome.all():
        text = f"{int((~has_outcome).sum())} of {n} rows have a missing outcome and were left out."
        warnings.append(Diagnostic(Code.LEFT_OUT, text))
    if has_reason.any():
        first = int(np.flatnonzero(has_reason)[0])
        text = f"{int(has_reason.sum())} of {n} rows cannot be used and were left out, the first is row {first + 1}"
        warnings.append(Diagnostic(Code.LEFT_OUT, f"{text}: {reasons[first]}."))
    if has_no_time.any():
        text = f"{int(has_no_time.sum())} rows have no time in {record.time_column!r} and were left out."
        warnings.append(Diagnostic(Code.LEFT_OUT, text))
    numbers = np.flatnonzero(has_outcome & ~has_reason & ~has_no_time)
    if not len(numbers):
        raise ValueError(
            f"No row of {table.source} can be used: in every one an outcome is missing, or a feature is missing or of "
            "another kind than when the model was fitted. Bring rows whose outcomes are known, in the same columns."
        )
    columns = [name for name in record.group if categories is not None or name in table.frame.columns]
    groups = groups_of(table, columns)[numbers] if columns else None
    if with_copies and groups is None and record.copies != "independent":
        if record.copies != "together":
            raise ValueError(f"copies must be 'together' or 'independent', got {record.copies!r}.")
        copies, n_copies = equal_rows(table.frame.iloc[numbers])
        if n_copies:
            groups = copies
            text = (
                f"Copies: {n_copies} rows are equal to an earlier one in every column. They were kept in one part and "
                "count once, because copies in two parts make a model look better than it is. If they are separate "
                "events, give --copies independent."
            )
            warnings.append(Diagnostic(Code.COPIES, text))
    return TableRows(
        X=X.iloc[numbers].reset_index(drop=True),
        Y=Y[numbers],
        numbers=numbers,
        groups=groups,
        times=None if times is None else times[numbers],
        parameters={name: value[numbers] for name, value in values.items()},
        labels=None if labels is None else labels[numbers],
        warnings=tuple(warnings),
    )


def plain_columns(table: Table, names: Sequence[str], categories: Sequence[str] = ()) -> Any:
    """Columns of a table with texts of numbers as numbers; `categories` are of pandas' categorical type."""
    table.check_columns(names)
    frame = table.frame[list(names)].copy()
    for name in names:
        column = frame[name]
        if name in categories:
            frame[name] = text_of(column)
            frame[name] = frame[name].astype("category")
        elif column.dtype.kind not in "biufM":
            values, is_text = values_of(column)
            words = column[column.notna()].astype(str).str.strip().str.lower()
            if not is_text.any() and not words.isin(["true", "false"]).any():
                frame[name] = values
    return frame


def order_outcomes(problem: DecisionProblem, outcomes: Sequence[str]) -> tuple[str, ...]:
    """The outcome columns in the order of the problem; by default the columns of its outcome names."""
    names = problem.outcome_names
    outcomes = outcomes or names
    if len(outcomes) != problem.n_outcomes:
        raise ValueError(
            f"The problem has {problem.n_outcomes} outcome(s) ({', '.join(names)}), but {len(outcomes)} outcome "
            f"column(s) were named: {', '.join(outcomes)}. Name one column for each."
        )
    return order_columns(names, outcomes)


def check_solvable(problem: DecisionProblem, rows: TableRows) -> None:
    """Raise if the problem has no least cost even at a known outcome, the mean, and typical parameters."""
    if problem.parameters:
        values = parameter_rows(problem.parameters, rows.parameters, len(rows))
        problem = problem.at_values(reference_values(problem, values))
    outcome = rows.Y.mean(axis=0)
    if not np.isfinite(decide_knowing(problem, outcome[None])[1][0]):
        raise NoSolutionError(
            f"With the mean outcome {outcome.round(4).tolist()} known, the problem has no best decision: none "
            "satisfies the constraints, or the cost can be lowered without limit. Check constraints, bounds and signs."
        )


def times_of(table: Table, name: str) -> NDArray[Any]:
    """The time of each row, a number or a date (datetime64); NaN or NaT if it is missing."""
    raw = table.column(name)
    values, is_text = values_of(raw)
    if not is_text.any():
        return values
    import pandas as pd

    try:
        dates = pd.to_datetime(raw.map(iso_date), format="ISO8601", utc=True)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"The time column {name!r} of {table.source} must hold numbers, or dates written as 2024-12-31, "
            f"2024-12-31 23:59 or 31.12.2024, got for example {str(raw[is_text].iloc[0])!r}."
        ) from error
    return np.asarray(dates.dt.tz_localize(None).to_numpy(dtype="datetime64[us]"))


def groups_of(table: Table, names: Sequence[str]) -> NDArray[np.intp]:
    """A number for each distinct combination of the columns; a row without a label is a group of its own."""
    table.check_columns(names)
    rows = list(zip(*(text_of(table.frame[name]) for name in names), strict=True))
    codes: dict[Any, int] = {}
    # A row's own number stands for the label that it lacks.
    labels = [row if any(label is not None for label in row) else i for i, row in enumerate(rows)]
    return np.array([codes.setdefault(label, len(codes)) for label in labels], dtype=np.intp)


def labels_of(table: Table, name: str, *, are_weights: bool) -> NDArray[Any]:
    """One value for each row of the table: a label as text, None if it is missing, or a weight."""
    column = table.column(name)
    return np.asarray(values_of(column)[0] if are_weights else text_of(column))


def labels_column(calibrator: Any, table: Table, features: Sequence[str], outcomes: Sequence[str]) -> str | None:
    """The column of the table that a calibrator names and that is no feature, or that has times; None if none does."""
    name = read_from(calibrator)
    if not isinstance(name, str) or (name in features and not calibrator.reads_times):
        return None
    table.check_columns([name])
    if name in outcomes:
        raise ValueError(
            f"calibration must name a column that is known before the outcome is, got the outcome {name!r}. Name "
            "another."
        )
    return name


# Parameters of the problem


def read_sources(texts: Sequence[str]) -> Sources:
    """Sources from texts such as "stock=on_hand" (a column), "stock=12" (a number) or "caps=cap_a,cap_b"."""
    sources: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, given = (part.strip() for part in text.partition("="))
        entries: tuple[Any, ...] = tuple(entry.strip() for entry in given.split(","))
        if not (name and equals and all(entries)):
            raise ValueError(f"A parameter must be given as NAME=COLUMN or NAME=NUMBER, got {text!r}.")
        if name in sources:
            raise ValueError(f"The parameter {name} is given twice.")
        try:
            sources[name] = tuple(float(entry) for entry in entries)
        except ValueError:
            sources[name] = entries
    return sources


def sources_of(problem: DecisionProblem, *given: Sources) -> Sources:
    """Where the values of all parameters come from, the last that was given first; else a column of the same name."""
    asked = {name: source for some in given for name, source in some.items()}
    names = [parameter.name for parameter in problem.parameters]
    strange = [name for name in asked if name not in names]
    if strange:
        has = f"It has {', '.join(names)}." if names else "It has none."
        raise ValueError(f"The problem has no parameter {strange[0]!r}. {has}")
    sources = {}
    for parameter in problem.parameters:
        source, size = asked.get(parameter.name, (parameter.name,)), max(int(np.prod(parameter.shape)), 1)
        if len(source) != size and not (len(source) == 1 and isinstance(source[0], float)):
            shown = ",".join(f"COLUMN_{i + 1}" for i in range(min(size, 3))) + ("" if size <= 3 else ",...")
            raise ValueError(
                f"The parameter {parameter.name} has {size} entries, so it needs as many columns or numbers, got "
                f"{len(source)}. Give --parameter {parameter.name}={shown}."
            )
        sources[parameter.name] = source
    return sources


def columns_in(sources: Sources) -> list[str]:
    """The columns that values come from."""
    return [name for source in sources.values() for name in source if isinstance(name, str)]


def parameters_of(table: Table, problem: DecisionProblem, sources: Sources) -> tuple[dict[str, Array], Labels]:
    """Values (n, *shape) of each parameter, and why a row has none (empty text if it has)."""
    absent = [name for name in columns_in(sources) if name not in table.frame.columns]
    if absent:
        owner = next(name for name, source in sources.items() if absent[0] in source)
        raise ValueError(
            f"{table.source} has no column {absent[0]!r} with the values of the parameter {owner}. Name another "
            f"column or give one value for all rows: --parameter {owner}=COLUMN or --parameter {owner}=NUMBER."
        )
    reasons = np.full(len(table), "", dtype=object)
    return {p.name: _values(table, p, sources[p.name], reasons) for p in problem.parameters}, reasons


def _values(table: Table, parameter: ProblemParameter, source: tuple[Any, ...], reasons: Labels) -> Array:
    shape = (len(table), *parameter.shape)
    if isinstance(source[0], float):
        values = np.broadcast_to(np.reshape(source, parameter.shape if len(source) > 1 else ()), shape).copy()
        if len(table):
            parameter.check(values[:1])  # the same in all rows: no reason of a row
        return values
    columns = []
    for name in source:
        entries, is_text = values_of(table.frame[name])
        for row in np.flatnonzero(~np.isfinite(entries)):
            what = f"is not a number: {str(table.frame[name].iloc[row])!r}" if is_text[row] else "is missing"
            reasons[row] = f"{reasons[row]}; {name} {what}" if reasons[row] else f"{name} {what}"
        columns.append(entries)
    values = np.column_stack(columns).reshape(shape)
    there = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    for row in np.flatnonzero(there):
        if not parameter.allows(values[row : row + 1])[0]:
            reasons[row] = "; ".join(text for text in (reasons[row], parameter.demand_of(values[row])) if text)
    return values
