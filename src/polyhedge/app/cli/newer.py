"""Commands that bring newer rows into a model: `recalibrate` and `refresh`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from warnings import catch_warnings, simplefilter

import typer

from polyhedge._support.files import check_writable
from polyhedge._support.progress import progress
from polyhedge.app import tables
from polyhedge.app.cli.app import app
from polyhedge.app.cli.bundles import with_bundles
from polyhedge.app.cli.common import (
    AsJson,
    Parameter,
    Reading,
    names_in,
    tell,
    tell_json,
    warn,
)
from polyhedge.app.cli.follow import log_path
from polyhedge.app.cli.fresh import check_any, labels_in, prints_of, seen_before, sources_in, with_rows
from polyhedge.app.cli.models import ModelFile, Opening, SignKey
from polyhedge.app.cli.output import say
from polyhedge.app.cli.solving import Solving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polyhedge.app.tables import Diagnostic, FitRecord, Table, UsableRows
    from polyhedge.estimator import RobustDecider

Group = Annotated[
    str | None, typer.Option(help="Columns that mark rows which belong together; by default those of the fit.")
]
Copies = Annotated[str | None, typer.Option(help="Rows equal in all columns: together or independent; as in the fit.")]


@app.command()
@with_bundles
def recalibrate(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Fresh rows with features and outcomes: a CSV or Parquet file.")],
    out: Annotated[Path, typer.Option(help="Model file to write; may be the old one.")],
    group: Group = None,
    copies: Copies = None,
    parameter: Parameter = None,
    opening: Opening,
    sign: SignKey = None,
    reading: Reading,
    solving: Solving,
    as_json: AsJson = False,
) -> None:
    """Set the size of the set anew from fresh rows, for example after a change; its shape stays.

    The rows must not have been used to fit the model, and are taken in the order of its time column, where they have
    it. The file keeps all old radii with their dates.

    Example: polyhedge recalibrate model.polyhedge fresh.csv --out model.polyhedge
    """
    solving.begin()
    import numpy as np

    check_writable(out)
    decider, kept = opening.model_and_record(model)
    table = with_rows(reading.table(data))
    clock = _time_column(decider, kept)
    clock = clock if clock in table.frame.columns else None
    rows = _newer_rows(decider, kept, table, group, copies, parameter, clock)
    before = _radius(decider)
    with _quietly():
        decider.recalibrate(
            rows.X,
            rows.Y,
            groups=rows.groups,
            # Without its column rows are taken as they come.
            times=np.arange(len(rows.Y)) if rows.times is None else rows.times,
            parameters=rows.parameters,
            labels=labels_in(decider, kept, table, rows.kept),
        )
    n_groups = None if rows.groups is None else len(np.unique(rows.groups))
    details = decider.details_
    if tables.FitRecord.schema_in(details) is not None:  # else they are what other code has stored
        details |= replace(kept, n_groups=n_groups).as_json()
    decider.save(out, details, sign=sign)
    warnings = [*rows.warnings, *_few(decider, rows, n_groups), *seen_before(kept, table), *_of_radii(decider)]
    _tell(decider, before, table, warnings, out, as_json, [], {})


@app.command()
@with_bundles
def refresh(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Newer rows with features and outcomes: a CSV or Parquet file.")],
    out: Annotated[Path, typer.Option(help="Model file to write; may be the old one.")],
    group: Group = None,
    copies: Copies = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the halves and of the predictor; by default that of the fit.")
    ] = None,
    parameter: Parameter = None,
    opening: Opening,
    sign: SignKey = None,
    reading: Reading,
    solving: Solving,
    as_json: AsJson = False,
) -> None:
    """Fit the predictor and the policy on newer rows, and set the bound from other newer rows; all choices stay.

    One half of the rows trains, the other calibrates. Where the model was fitted with --time-column the older half
    trains, and the gap of the fit stays between them; otherwise halves are random. Rows that belong together stay in
    one half. Rows of the fit may train again, but must not calibrate. The promise is the one of the fit, for rows
    like the newer half; the shape of a set stays that of the fit. The predictor of the model stays where it predicts
    the newer training rows better than one fitted on them, and a warning says so.

    Example: polyhedge refresh model.polyhedge newer.csv --out refreshed.polyhedge
    """
    solving.begin()
    import numpy as np

    check_writable(out)
    decider, kept = opening.model_and_record(model)
    table = with_rows(reading.table(data))
    clock = _time_column(decider, kept)
    if clock is None and _has_unknown_times(decider):
        raise ValueError(
            "The model was fitted with times that were given beside the rows, and no column of the table is known to "
            "hold them. Use refresh(X, Y, times=...) in Python."
        )
    rows = _newer_rows(decider, kept, table, group, copies, parameter, clock)
    if seed is not None or decider.random_state is None:
        decider.random_state = seed or 0
    groups, before = rows.groups, _radius(decider)
    if groups is None and decider.model_.radii.is_grouped:
        groups = np.arange(len(rows.Y))  # no row is a copy of another, so that each stands for itself
    with _quietly(), progress("refreshing"):
        decider.refresh(
            rows.X,
            rows.Y,
            groups=groups,
            times=rows.times,
            parameters=rows.parameters,
            labels=labels_in(decider, kept, table, rows.kept),
        )
    split = decider.refreshed_split_
    trained, calibrated = (_part_of(table, rows.kept[part]) for part in (split.train, split.calibrate))
    n_groups = None if groups is None else len(np.unique(groups[split.calibrate]))
    few = _few(decider, rows, n_groups)
    warnings = [*rows.warnings, *few, *seen_before(replace(kept, trained=()), calibrated), *_of_radii(decider)]
    # Where the old predictor stays, so do the rows of an earlier refresh.
    stays = kept.trained if any(diagnostic.code is tables.Code.REFRESH for diagnostic in decider.diagnostics_) else ()
    sizes = {"n_rows": len(table), "train": len(split.train), "calibrate": len(split.calibrate)}
    record = replace(
        kept,
        n_groups=n_groups,
        coverage=None,
        warnings=tuple(warnings),
        trained=(*stays, *prints_of(kept, trained)) if len(split.train) else (),
        refreshed=tables.Refreshed(data.name, **sizes),
    )
    decider.save(out, {**decider.details_, **record.as_json()}, sign=sign)
    left_out = len(rows.Y) - len(split.train) - len(split.calibrate)
    how = f"at random, seed {decider.random_state}" if clock is None else f"by {clock}"
    told = f"{len(split.train)} train, {len(split.calibrate)} calibrate ({how}"
    told += f", {left_out} left out in the gap)" if left_out else ")"
    lines = [("data", f"{table.source}: {len(rows.Y)} of {len(table)} rows used"), ("split", told)]
    _tell(decider, before, table, warnings, out, as_json, lines, {"split": {**sizes, "left_out": left_out}})


def _time_column(decider: RobustDecider, kept: FitRecord) -> str | None:
    """The column that orders rows: that of the fit from a table, or of the split of a fit in Python."""
    from polyhedge.data import TimeSplit

    column = decider.split.column if isinstance(decider.split, TimeSplit) else None
    return kept.time_column or (None if column is None else str(column))


def _has_unknown_times(decider: RobustDecider) -> bool:
    from polyhedge.data import TimeSplit

    return isinstance(decider.split, TimeSplit) and decider.split.times is not None


def _newer_rows(
    decider: RobustDecider,
    kept: FitRecord,
    table: Table,
    group: str | None,
    copies: str | None,
    parameter: Sequence[str] | None,
    time_column: str | None,
) -> UsableRows:
    from polyhedge.data import GroupSplit

    columns = kept.group if group is None else names_in(group)
    if group is None and not columns and isinstance(decider.split, GroupSplit):
        columns = (str(decider.split.column),)
    options = tables.TableOptions(
        group=columns,
        copies=copies or kept.copies,
        parameters=sources_in(decider, kept, parameter),
        time_column=time_column,
    )
    rows = tables.UsableRows.of(table, kept.schema, decider.problem_, options)
    check_any(rows.kept, table)
    return rows


@contextmanager
def _quietly() -> Iterator[None]:
    """Diagnoses are told at the end, with what the table adds."""
    from polyhedge.diagnosing import DiagnosticWarning

    with catch_warnings():
        simplefilter("ignore", DiagnosticWarning)
        yield


def _radius(decider: RobustDecider) -> tuple[float, int]:
    return decider.radius_, decider.n_calibrate_


def _in_words(radius: tuple[float, int], decider: RobustDecider) -> str:
    # Sets that cost the same differ in the measure of their radius: a number would mean nothing.
    number = f"{radius[0]:.4g} " if hasattr(decider, "policy_") else ""
    return f"{number}from {radius[1]} rows"


def _part_of(table: Table, numbers: Any) -> Table:
    return tables.Table(table.frame.iloc[numbers], table.source)


def _few(decider: RobustDecider, rows: UsableRows, n_groups: int | None) -> list[Diagnostic]:
    """Whether few rows calibrate: in the table's words where one radius serves all rows, else as the promise has it."""
    from polyhedge.calibration import is_marginal

    if not is_marginal(decider.model_.radii):
        return [diagnostic for diagnostic in decider.diagnostics_ if diagnostic.code is tables.Code.FEW_ROWS]
    return tables.few_rows_diagnostic(n_groups or decider.n_calibrate_, decider.alpha_, rows.unit)


def _old_log(out: Path) -> list[str]:
    """What to do with outcomes that were noted for another radius of the same file."""
    log = log_path(out)
    if not log.is_file():
        return []
    return [
        f"{log} holds what was decided and what came with another radius. Move it away: polyhedge decide --key and "
        "polyhedge update begin a new one."
    ]


def _of_radii(decider: RobustDecider) -> list[Diagnostic]:
    codes = (tables.Code.REFRESH, tables.Code.TIES, tables.Code.DRIFT)
    return [diagnostic for diagnostic in decider.diagnostics_ if diagnostic.code in codes]


def _tell(
    decider: RobustDecider,
    before: tuple[float, int],
    table: Table,
    warnings: Sequence[Diagnostic],
    out: Path,
    as_json: bool,
    lines: list[tuple[str, str]],
    more: dict[str, Any],
) -> None:
    if as_json:
        numbers = {
            "model": out,
            "alpha": decider.alpha_,
            "radius": decider.radius_,
            "radius_before": before[0],
            "n_calibrate": decider.n_calibrate_,
            "calibrations": [asdict(entry) for entry in decider.calibrations_],
        }
        tell_json({**numbers, **more, "notes": table.notes, "warnings": [*warnings, *_old_log(out)]})
        return
    tell(
        [
            *lines,
            ("radius", f"{_in_words(before, decider)} -> {_in_words(_radius(decider), decider)}"),
            ("coverage", f"promised {1 - decider.alpha_:.6g} for rows like these"),
            ("history", f"{len(decider.calibrations_)} radii are kept in the file"),
        ]
    )
    say(f"Model: {out}")
    warn([*warnings, *_old_log(out)])
