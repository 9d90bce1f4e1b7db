"""Commands for the life of a model after its fit: `update` and `monitor`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge._support.files import check_writable, replace_file
from polyhedge.app.cli.app import app
from polyhedge.app.cli.bundles import with_bundles
from polyhedge.app.cli.common import (
    AsJson,
    Parameter,
    Reading,
    tell,
    tell_json,
    warn,
)
from polyhedge.app.cli.fresh import fresh_rows
from polyhedge.app.cli.models import ModelFile, Opening
from polyhedge.app.cli.solving import Solving
from polyhedge.monitoring.row_keys import row_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polyhedge.app.tables import Table
    from polyhedge.model import Model
    from polyhedge.monitoring.log import OutcomeLog
    from polyhedge.monitoring.monitor import Followed

_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")
"""A whole number with a fraction of zeros."""

__all__ = ["KeyColumn", "LogFile", "keys_of", "log_of", "log_path"]

LogFile = Annotated[Path | None, typer.Option(help="SQLite database; MODEL.outcomes.db beside the model by default.")]
KeyColumn = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Column that names each row: what is decided is noted in the database that polyhedge update reads.",
    ),
]


@app.command()
@with_bundles
def update(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Rows whose outcomes are known now: a CSV or Parquet file.")],
    key: Annotated[str, typer.Option(help="Column that names each row, so that none is counted twice.")],
    log: LogFile = None,
    parameter: Parameter = None,
    opening: Opening,
    reading: Reading,
    solving: Solving,
    as_json: AsJson = False,
) -> None:
    """Note outcomes that became known, and say whether the promise still holds.

    What came is kept in a database beside the model. A row counts against the bound that polyhedge decide --key noted
    for it; where none was noted, the bound is computed anew, and that is said. Rows that are in the database already
    are left as they are, so that a command that was killed can simply be run again. The alarm may be looked at after
    every row: on rows like the calibration rows it is ever raised with probability at most 0.01.

    Example: polyhedge update model.polyhedge today.csv --key id
    """
    solving.begin()
    decider, kept = opening.model_and_record(model)
    table = reading.table(data)
    names = keys_of(table, key)
    rows = fresh_rows(decider, kept, table, parameter)
    outcomes = log_of(model, log, decider.model_)
    called = [names[i] for i in rows.numbers]
    n_new = outcomes.add(called, rows.X, rows.Y, parameters=rows.parameters, labels=rows.labels)
    _tell(*outcomes.replay(), as_json, {"rows": len(rows.numbers), "new": n_new}, outcomes.diagnostics())
    if not as_json:
        warn(rows.warnings)


@app.command()
@with_bundles
def monitor(
    *,
    model: ModelFile,
    log: LogFile = None,
    out: Annotated[Path | None, typer.Option(help="Page to write: coverage, bounds and costs over time.")] = None,
    opening: Opening,
    as_json: AsJson = False,
) -> None:
    """Say what came of a model's bounds so far: coverage, and whether it is worse than chance allows.

    Example: polyhedge monitor model.polyhedge --out monitor.html
    """
    path = log or log_path(model)
    if not path.is_file():
        raise FileNotFoundError(f"There is no database {path}. Write one with polyhedge update.")
    page = None if out is None else check_writable(out)
    outcomes = log_of(model, log, opening.model(model).model_)
    now, followed = outcomes.replay()
    if page is not None:
        from polyhedge.app.report import followed_report

        unit = (now.problem.units or {}).get("cost", "")
        title, told = f"Bounds of {model.name}", outcomes.diagnostics()
        text = followed_report(title, followed, outcomes.history(), now.radii.radius, unit, told)
        replace_file(page, text.encode())
    _tell(now, followed, as_json, {} if page is None else {"page": str(page)}, outcomes.diagnostics())


def keys_of(table: Table, column: str) -> list[str]:
    """What rows are called, one name each."""
    table.check_columns([column])
    # Files hold texts: what one program writes as 7 another writes as 7.0.
    names = [_WHOLE.sub(r"\1", name) if isinstance(name, str) else name for name in table.frame[column].to_list()]
    return row_keys(names, what=f"The column {column}")


def log_of(model: Path, log: Path | None, fitted: Model) -> OutcomeLog:
    """The database of a model file."""
    from polyhedge.monitoring.log import OutcomeLog

    return OutcomeLog(log or log_path(model), fitted)


def log_path(model: Path) -> Path:
    """Where the database of a model is unless it is said otherwise."""
    return model.with_name(f"{model.name}.outcomes.db")


def _tell(model: Model, followed: Followed, as_json: bool, counts: dict[str, Any], diagnostics: Sequence[str]) -> None:
    coverage, alarm = followed.coverage, followed.alarm
    if as_json:
        alarmed = None if alarm is None else alarm.raised_at
        shares = {"coverage": coverage, "without_bound": followed.without_bound, "not_missed": followed.not_missed}
        numbers: dict[str, Any] = {name: None if share is None else float(share) for name, share in shares.items()}
        numbers |= {"n": len(followed.missed), "promised": followed.promised, "alarm_at": alarmed}
        numbers["recomputed"] = followed.was_recomputed
        tell_json({**counts, **numbers, "radius": model.radii.radius, "warnings": diagnostics})
        return
    lines = [(name, str(number)) for name, number in counts.items()]
    lines.append(("coverage", followed.in_words()))
    lines.append(("alarm", "none for this kind of promise" if alarm is None else str(alarm)))
    if followed.was_recomputed:
        lines.append(("bounds", "some were not noted by polyhedge decide --key, and were computed anew"))
    tell([*lines, ("radius", f"{model.radii.radius:.6g}")])
    warn(diagnostics)
