"""Commands for the life of a model after its fit: `update` and `monitor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge.cli.app import app
from polyhedge.cli.common import AsJson, read, tell, tell_json, warn
from polyhedge.cli.fresh import fresh_rows
from polyhedge.cli.models import ModelFile, open_model, read_model
from polyhedge.io.archive import MAX_BYTES
from polyhedge.tables.limits import MAX_VALUES

if TYPE_CHECKING:
    from polyhedge.following import Followed
    from polyhedge.model import Model

LogFile = Annotated[Path | None, typer.Option(help="SQLite database; MODEL.outcomes.db beside the model by default.")]


@app.command()
def update(
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Rows whose outcomes are known now: a CSV or Parquet file.")],
    key: Annotated[str, typer.Option(help="Column that names each row, so that none is counted twice.")],
    log: LogFile = None,
    as_json: AsJson = False,
) -> None:
    """Note outcomes that became known, and say whether the promise still holds.

    What came is kept in a database beside the model. Rows that are in it already are left as they are, so that a
    command that was killed can simply be run again. The alarm may be looked at after every row: on rows like the
    calibration rows it is ever raised with probability at most 0.01.

    Example: polyhedge update model.polyhedge today.csv --key id
    """
    from polyhedge import tables
    from polyhedge.outcome_log import OutcomeLog

    decider, kept = read_model(model, None, MAX_BYTES, None)
    table = read(data, None, None, None, None, MAX_VALUES)
    table.check_columns([key])
    X, Y, _, warnings = fresh_rows(decider, kept, table)
    usable = tables.usable_rows(table, kept.schema, decider.problem_)[2]
    keys = [str(name) for name in table.frame[key].iloc[usable]]
    outcomes = OutcomeLog(log or _beside(model), decider.model_)
    n_new = outcomes.add(keys, X, Y)
    _tell(*outcomes.replay(), as_json, {"rows": len(keys), "new": n_new})
    if not as_json:
        warn(warnings)


@app.command()
def monitor(model: ModelFile, log: LogFile = None, as_json: AsJson = False) -> None:
    """Say what came of a model's bounds so far: coverage, and whether it is worse than chance allows.

    Example: polyhedge monitor model.polyhedge
    """
    from polyhedge.outcome_log import OutcomeLog

    path = log or _beside(model)
    if not path.is_file():
        raise FileNotFoundError(f"There is no database {path}. Write one with polyhedge update.")
    _tell(*OutcomeLog(path, open_model(model, None, MAX_BYTES, None).model_).replay(), as_json, {})


def _beside(model: Path) -> Path:
    return model.with_name(f"{model.name}.outcomes.db")


def _tell(model: Model, found: Followed, as_json: bool, counts: dict[str, Any]) -> None:
    coverage, alarm = found.coverage, found.alarm
    if as_json:
        alarmed = None if alarm is None else alarm.raised_at
        share = None if coverage is None else float(coverage)
        numbers = {"n": len(found.missed), "coverage": share, "promised": found.promised, "alarm_at": alarmed}
        tell_json({**counts, **numbers, "radius": model.radii.radius})
        return
    lines = [(name, str(number)) for name, number in counts.items()]
    lines.append(("coverage", f"{coverage} of {len(found.missed)} rows  (promised {found.promised:.3g})"))
    lines.append(("alarm", "none for this kind of promise" if alarm is None else str(alarm)))
    tell([*lines, ("radius", f"{model.radii.radius:.6g}")])
