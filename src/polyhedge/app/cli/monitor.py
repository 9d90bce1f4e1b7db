"""Commands for a model after its fit: `update` and `monitor`, `recalibrate` and `refresh`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from warnings import catch_warnings, simplefilter

import typer

from polyhedge._support.files import check_writable, replace_file
from polyhedge._support.frames import row_keys
from polyhedge._support.progress import progress
from polyhedge.app.cli.app import say
from polyhedge.app.cli.options import (
    ModelFile,
    ModelOptions,
    ModelTableOptions,
    SignKey,
    command,
    names_in,
    seen_before,
    tell,
    tell_json,
    warn,
)

if TYPE_CHECKING:
    from polyhedge.app.rows import TableRows
    from polyhedge.estimator import RobustDecider
    from polyhedge.io.fit_record import FitRecord
    from polyhedge.model import Model
    from polyhedge.monitoring.log import OutcomeLog
    from polyhedge.monitoring.monitor import Monitoring
    from polyhedge.predictors.columns import Table

LogFile = Annotated[Path | None, typer.Option(help="SQLite database; MODEL.outcomes.db next to the model by default.")]
KeyColumn = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Column that names each row: what is decided is noted in the database that polyhedge update reads.",
    ),
]


@command
def update(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Rows whose outcomes are known now: a CSV or Parquet file.")],
    key: Annotated[str, typer.Option(help="Column that names each row, so that none is counted twice.")],
    log: LogFile = None,
    options: ModelTableOptions,
) -> None:
    """Note outcomes that became known, and say whether the promise still holds.

    What came is kept in a database next to the model. A row counts against the bound that polyhedge decide --key noted
    for it; where none was noted, the bound is computed from the model. Rows that are in the database already
    are left as they are, so that a command that was killed can simply be run again. The alarm may be looked at after
    every row: on rows like the calibration rows it is ever raised with probability at most 0.01.

    Example: polyhedge update model.polyhedge today.csv --key id
    """
    decider, _, table, rows = options.rows(model, data)
    names = keys_of(table, key)
    outcomes = log_of(model, log, decider.model_)
    n_new = outcomes.add([names[i] for i in rows.numbers], rows.X, rows.Y, **rows.given)
    warnings = [*outcomes.diagnostics(), *rows.warnings, *seen_before(decider, rows)]
    _tell_since(*outcomes.replay(), options.as_json, {"rows": len(rows), "new": n_new}, warnings)


@command
def monitor(
    *,
    model: ModelFile,
    log: LogFile = None,
    out: Annotated[Path | None, typer.Option(help="Page to write: coverage, bounds and costs over time.")] = None,
    options: ModelOptions,
) -> None:
    """Say how a model's bounds have held so far: coverage, and whether it is worse than chance allows.

    Example: polyhedge monitor model.polyhedge --out monitor.html
    """
    path = log or log_path(model)
    if not path.is_file():
        raise FileNotFoundError(f"There is no database {path}. Write one with polyhedge update.")
    page = None if out is None else check_writable(out)
    outcomes = log_of(model, log, options.model(model).model_)
    now, monitored = outcomes.replay()
    findings = outcomes.diagnostics()
    if page is not None:
        from polyhedge.app.report import monitoring_report

        unit = (now.problem.units or {}).get("cost", "")
        title = f"Bounds of {model.name}"
        text = monitoring_report(title, monitored, outcomes.history(), now.radii.radius, unit, findings)
        replace_file(page, text.encode())
    _tell_since(now, monitored, options.as_json, {} if page is None else {"page": str(page)}, findings)


def keys_of(table: Table, column: str) -> list[str]:
    """What rows are called, one name each."""
    table.check_columns([column])
    # Files hold texts: what one program writes as 7 another writes as 7.0.
    names = table.frame[column].to_list()
    plain = [re.sub(r"^([+-]?\d+)\.0+$", r"\1", name) if isinstance(name, str) else name for name in names]
    return row_keys(plain, what=f"The column {column}")


def log_of(model: Path, log: Path | None, fitted: Model) -> OutcomeLog:
    """The database of a model file."""
    from polyhedge.monitoring.log import OutcomeLog

    return OutcomeLog(log or log_path(model), fitted)


def log_path(model: Path) -> Path:
    """Where the database of a model is by default."""
    return model.with_name(f"{model.name}.outcomes.db")


def _tell_since(
    model: Model, monitored: Monitoring, as_json: bool, counts: dict[str, Any], diagnostics: Sequence[str]
) -> None:
    coverage, alarm = monitored.coverage, monitored.alarm
    if as_json:
        alarmed = None if alarm is None else alarm.raised_at
        shares = {"coverage": coverage, "without_bound": monitored.without_bound, "not_missed": monitored.not_missed}
        numbers: dict[str, Any] = {name: None if share is None else float(share) for name, share in shares.items()}
        numbers |= {"n": len(monitored.missed), "promised": monitored.promised, "alarm_at": alarmed}
        numbers["recomputed"] = monitored.was_recomputed
        tell_json({**counts, **numbers, "radius": model.radii.radius, "warnings": diagnostics})
        return
    lines = {name: str(number) for name, number in counts.items()}
    lines |= {
        "coverage": monitored.in_words(),
        "alarm": "none for this kind of promise" if alarm is None else str(alarm),
    }
    if monitored.was_recomputed:
        lines["bounds"] = "some were not noted by polyhedge decide --key, and were recomputed"
    tell({**lines, "radius": f"{model.radii.radius:.6g}"})
    warn(diagnostics)


@dataclass(frozen=True)
class NewerRowsOptions(ModelTableOptions):
    """Newer rows, how they belong together, and the model file that they make."""

    group: Annotated[
        str | None, typer.Option(help="Columns that mark rows which belong together; by default those of the fit.")
    ] = None
    copies: Annotated[
        str | None, typer.Option(help="Rows equal in all columns: together or independent; as in the fit.")
    ] = None
    sign: SignKey = None

    def newer_rows(
        self, decider: RobustDecider, record: FitRecord, table: Table, time_column: str | None
    ) -> tuple[TableRows, Any]:
        """The usable rows, and the groups to pass to the decider: none if its split finds them in a column of X."""
        from polyhedge.data import GroupSplit

        columns = record.group if self.group is None else names_in(self.group)
        if self.group is None and not columns and isinstance(decider.split, GroupSplit):
            columns = (str(decider.split.column),)
        record = replace(record, group=columns, copies=self.copies or record.copies, time_column=time_column)
        rows = self.rows_for(decider, record, table, with_times=True, with_copies=True)
        return rows, None if isinstance(decider.split, GroupSplit) else rows.groups


OutFile = Annotated[Path, typer.Option(help="Model file to write; may be the old one.")]
NewerRows = Annotated[Path, typer.Argument(help="Newer rows with features and outcomes: a CSV or Parquet file.")]


@command
def recalibrate(*, model: ModelFile, data: NewerRows, out: OutFile, options: NewerRowsOptions) -> None:
    """Set the radius from fresh rows, for example after a change; its shape stays.

    The rows must not have been used to fit the model, and are taken in the order of its time column, where they have
    it. The file keeps all old radii with their dates.

    Example: polyhedge recalibrate model.polyhedge fresh.csv --out model.polyhedge
    """
    import numpy as np

    check_writable(out)
    decider, record = options.model_and_record(model)
    table, clock = options.table(data), _time_column(decider, record)
    rows, groups = options.newer_rows(decider, record, table, clock if clock in table.frame.columns else None)
    before = decider.radius_, decider.n_calibrate_
    with quietly():
        times = np.arange(len(rows)) if rows.times is None else rows.times  # rows are taken as they come without one
        decider.recalibrate(rows.X, rows.Y, groups=groups, times=times, **rows.given)
    decider.save(out, sign=options.sign)
    _tell_radius(decider, before, table, rows, out, options.as_json)


@command
def refresh(
    *,
    model: ModelFile,
    data: NewerRows,
    out: OutFile,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the halves and of the predictor; by default that of the fit.")
    ] = None,
    options: NewerRowsOptions,
) -> None:
    """Fit the predictor and the policy on newer rows, and set the bound from other newer rows; all choices stay.

    One half of the rows trains, the other calibrates. Where the model was fitted with --time-column the older half
    trains, and the gap of the fit stays between them; otherwise halves are random. Rows that belong together stay in
    one half. Rows of the fit may train again, but must not calibrate. The promise is the one of the fit, for rows
    like the newer half; the shape of a set stays that of the fit. The predictor of the model stays where it predicts
    the newer training rows better than one fitted on them, and a warning says so.

    Example: polyhedge refresh model.polyhedge newer.csv --out refreshed.polyhedge
    """
    import numpy as np

    from polyhedge.data import TimeSplit
    from polyhedge.io.fit_record import Refreshed

    check_writable(out)
    decider, record = options.model_and_record(model)
    table, clock = options.table(data), _time_column(decider, record)
    if clock is None and isinstance(decider.split, TimeSplit) and decider.split.times is not None:
        raise ValueError(
            "The model was fitted with times that were given separately, and no column of the table is known to "
            "hold them. Use refresh(X, Y, times=...) in Python."
        )
    rows, groups = options.newer_rows(decider, record, table, clock)
    if seed is not None or decider.random_state is None:
        decider.random_state = seed or 0
    before = decider.radius_, decider.n_calibrate_
    if rows.groups is None and decider.model_.radii.is_grouped:
        groups = np.arange(len(rows))  # no row is a copy of another, so that each stands for itself
    with quietly(), progress("refreshing"):
        decider.refresh(rows.X, rows.Y, groups=groups, times=rows.times, **rows.given)
    split = decider.refreshed_split_
    sizes = {"n_rows": len(table), "train": len(split.train), "calibrate": len(split.calibrate)}
    record = replace(
        record,
        coverage=None,
        coded=tuple((str(one.code), str(one)) for one in (*rows.warnings, *decider.diagnostics_)),
        refreshed=Refreshed(data.name, **sizes),
    )
    decider.save(out, {**decider.details_, **record.as_details()}, sign=options.sign)
    left_out = len(rows) - len(split.train) - len(split.calibrate)
    how = f"at random, seed {decider.random_state}" if clock is None else f"by {clock}"
    how += f", {left_out} left out in the gap" if left_out else ""
    text = f"{sizes['train']} train, {sizes['calibrate']} calibrate ({how})"
    _tell_radius(decider, before, table, rows, out, options.as_json, text, {"split": {**sizes, "left_out": left_out}})


@command
def backtest(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="History with outcomes: a CSV or Parquet file.")],
    every: Annotated[str, typer.Option(help="Length of a period: rows, or with times such as 30D, 1M or 1Y.")],
    time_column: Annotated[
        str | None, typer.Option(help="Column with the time; by default that of the fit, else rows are in time order.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Row or time of the first period; by default after half of the rows.")
    ] = None,
    between: Annotated[str, typer.Option(help="Before each period: none, refresh or fit.")] = "none",
    out: Annotated[Path | None, typer.Option(help="Page to write: coverage, bounds and costs over time.")] = None,
    options: ModelTableOptions,
) -> None:
    """Replay history with the settings of a model: what would have been promised, and what came.

    The first rows are fitted, the others are decided period by period with what was known before each. The verdict
    compares the share of rows that kept to their bound with the promise.

    Example: polyhedge backtest model.polyhedge history.csv --every 1M --time-column date
    """
    from polyhedge.app.cli.fit import outcome_frame
    from polyhedge.monitoring.backtest import backtest as replay, in_days
    from polyhedge.rows import with_values

    page = None if out is None else check_writable(out)
    decider, record = options.model_and_record(model)
    clock = time_column or _time_column(decider, record)
    record = replace(record, time_column=clock)
    rows = options.rows_for(decider, record, options.table(data), with_times=clock is not None, with_copies=True)
    if rows.labels is not None:
        decider.set_params(calibration=with_values(decider.calibration, rows.labels))
    outcomes = outcome_frame(decider.problem, rows.Y, record.schema.outcomes)
    with quietly(), progress("replaying"):
        given = {"groups": rows.groups, "parameters": rows.parameters, "times": rows.times}
        first = None if start is None else _number_or_text(start)
        tested = replay(decider, rows.X, outcomes, every=_number_or_text(every), start=first, between=between, **given)
    if page is not None:
        tested.report(page, f"{data.name} by the settings of {model.name}")
    if options.as_json:
        periods = [replace(period, start=in_days(period.start)) for period in tested.periods]
        figures = {"coverage": tested.coverage, "promised": tested.promised, "not_missed": tested.not_missed}
        tell_json({**figures, "verdict": tested.verdict, "periods": periods, "page": page})
        return
    for line in str(tested).splitlines():
        say(line)
    warn(rows.warnings)
    if page is not None:
        say(f"Page: {page}")


def _number_or_text(text: str) -> Any:
    """A whole number of rows, a number in the unit of the times, or a text such as 30D."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _time_column(decider: RobustDecider, record: FitRecord) -> str | None:
    """The column that orders rows: that of the fit from a table, or of the split of a fit in Python."""
    column = getattr(decider.split, "column", None) if hasattr(decider.split, "gap") else None
    return record.time_column or (None if column is None else str(column))


@contextmanager
def quietly() -> Iterator[None]:
    """Diagnostics are printed at the end, with what the table adds."""
    from polyhedge.diagnostics import DiagnosticWarning

    with catch_warnings():
        simplefilter("ignore", DiagnosticWarning)
        yield


def _tell_radius(
    decider: RobustDecider,
    before: tuple[float, int],
    table: Table,
    rows: TableRows,
    out: Path,
    as_json: bool,
    split: str = "",
    more: Mapping[str, Any] | None = None,
) -> None:
    warnings: list[str] = [*rows.warnings, *decider.diagnostics_]
    if log_path(out).is_file():  # of the radius before
        warnings.append(
            f"{log_path(out)} holds decisions and outcomes of another radius. Move it away: polyhedge decide --key and "
            "polyhedge update begin a new one."
        )
    if as_json:
        numbers = {
            "model": out,
            "alpha": decider.alpha_,
            "radius": decider.radius_,
            "radius_before": before[0],
            "n_calibrate": decider.n_calibrate_,
            "calibrations": [asdict(entry) for entry in decider.calibrations_],
        }
        tell_json({**numbers, **(more or {}), "notes": table.notes, "warnings": warnings})
        return
    # Sets that cost the same differ in the measure of their radius: a number would mean nothing.
    old, new = (
        f"{radius:.4g} from {n} rows" if hasattr(decider, "policy_") else f"from {n} rows"
        for radius, n in (before, (decider.radius_, decider.n_calibrate_))
    )
    tell(
        {
            "data": f"{table.source}: {len(rows)} of {len(table)} rows used",
            **({"split": split} if split else {}),
            "radius": f"{old} -> {new}",
            "coverage": f"promised {1 - decider.alpha_:.6g} for rows like these",
            "history": f"{len(decider.calibrations_)} radii are kept in the file",
        }
    )
    say(f"Model: {out}")
    warn(warnings)
