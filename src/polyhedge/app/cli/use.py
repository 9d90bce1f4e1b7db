"""Commands that use a model: `decide`, `evaluate` and `inspect`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge import io
from polyhedge._support.progress import progress
from polyhedge._support.tolerances import SOLVER
from polyhedge.app import tables
from polyhedge.app.cli.app import app
from polyhedge.app.cli.bundles import with_bundles
from polyhedge.app.cli.by_group import tell_groups, tell_short
from polyhedge.app.cli.common import (
    BAD_INPUT,
    NO_SOLUTION,
    AsJson,
    Parameter,
    Reading,
    check_statuses,
    evaluation_lines,
    names_in,
    tell,
    tell_json,
    warn,
)
from polyhedge.app.cli.follow import KeyColumn, LogFile, keys_of, log_of, log_path
from polyhedge.app.cli.fresh import (
    check_any,
    groups_in,
    labels_in,
    n_units,
    seen_before,
    seen_by_model,
    sources_in,
    sources_in_words,
    with_rows,
)
from polyhedge.app.cli.models import MaxBytes, ModelFile, Opening, VerifyKey, opened
from polyhedge.app.cli.output import say, say_csv
from polyhedge.app.cli.solving import Solving
from polyhedge.io.archive import MAX_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from polyhedge.app.tables import FitRecord, Table
    from polyhedge.estimator import RobustDecider
    from polyhedge.evaluation import Proportion, RowMeasures
    from polyhedge.monitoring.log import OutcomeLog
    from polyhedge.sets import Volume

# Lines that a reader takes in; more are the sign of a column that names rows.
_MOST_GROUPS = 50


@app.command()
@with_bundles
def decide(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="New rows: a CSV or Parquet file with the feature columns.")],
    out: Annotated[str, typer.Option(help="Decisions to write: a .csv or .parquet file, or - for standard output.")],
    keep: Annotated[str, typer.Option(help="Columns of the new rows to copy into the decisions, such as a name.")] = "",
    digits: Annotated[int | None, typer.Option(min=1, help="Significant digits to write; all by default.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write texts into a CSV file as they are, also those that look like formulas.")
    ] = False,
    key: KeyColumn = None,
    log: LogFile = None,
    parameter: Parameter = None,
    opening: Opening,
    reading: Reading,
    solving: Solving,
    as_json: AsJson = False,
) -> None:
    """Decide for new rows: one decision a row, in the same order, with the most it will cost.

    Writes the decision under the problem's own names, cost_bound, the worst outcome it guards against, status and
    note. A row that cannot be decided, because a value is missing, keeps its place, and the note says why; it also
    tells of values unlike any in the history. In a CSV file an apostrophe stands before texts that a spreadsheet would
    run as formulas, unless --raw is given. With --out - the table is alone on standard output, and what there is to say
    of it goes to standard error.

    With --key, that column stands first, and decisions and bounds are noted in a database beside the model, so that
    polyhedge update counts outcomes against the bounds that were issued. A radius that follows outcomes is the one that
    the database has led to.

    Exit codes: 0 done, 2 bad input, 3 a row has no feasible or no bounded decision, 4 a solver stopped early.

    Example: polyhedge decide model.polyhedge new.csv --out decisions.csv
    """
    solving.begin()
    import numpy as np

    target = None if out == "-" else tables.check_target(out)
    decider, kept = opening.model_and_record(model)
    table = reading.table(data)
    table.check_columns(names_in(keep))
    names = None if key is None else keys_of(table, key)
    X, reasons, notes = tables.features_of(table, kept.schema)
    values, lacking = tables.parameters_of(table, decider.problem_, sources_in(decider, kept, parameter))
    reasons = np.where(reasons == "", lacking, reasons)
    usable = np.flatnonzero([not reason for reason in reasons])
    labels = labels_in(decider, kept, table, usable)
    outcomes = _followed(model, log, decider, needed=names is not None)
    with progress("deciding"):
        decisions = tables.decide_table(decider, X.iloc[usable], tables.take_parameters(values, usable), labels)
    if names is not None and decisions is not None and outcomes is not None:
        outcomes.note([names[i] for i in usable], decisions)
    frame = tables.decisions_frame(decider, decisions, kept.schema.outcomes, reasons, notes)
    if digits is not None:
        frame = frame.map(lambda value: _rounded(value, digits) if isinstance(value, float) else value)
    for place, name in enumerate(dict.fromkeys([*([] if key is None else [key]), *names_in(keep)])):
        frame.insert(place, f"input_{name}" if name in frame.columns else name, table.frame[name].to_numpy())
    if target is None:
        say_csv(tables.csv_text(frame, raw=raw))
    else:
        tables.write_table(frame, target, raw=raw)
    summary = _decided(frame, reasons, notes, out)
    if as_json:
        tell_json({**summary, "notes": table.notes}, err=target is None)
    else:
        _tell_decided(summary, target is None)
    if len(table) and not len(usable):
        raise typer.Exit(BAD_INPUT)
    check_statuses([] if decisions is None else list(decisions.status))
    if summary["without_bound"]:  # decided by a policy, but promised nothing: a set has no decision there
        raise typer.Exit(NO_SOLUTION)


def _followed(model: Path, log: Path | None, decider: RobustDecider, needed: bool) -> OutcomeLog | None:
    """The database of a model, where there is one or one is needed; radii that follow outcomes are then up to date."""
    from polyhedge.calibration import FollowingRadii

    follows = isinstance(decider.model_.radii, FollowingRadii)
    if not needed and not (follows and (log or log_path(model)).is_file()):
        return None
    outcomes = log_of(model, log, decider.model_)
    if follows:
        decider.model_ = outcomes.replay()[0]
    return outcomes


def _rounded(value: float, digits: int) -> float:
    # Rounding errors of a solver are not worth a reader's time.
    return 0.0 if abs(value) < SOLVER else float(f"{value:.{digits}g}")


def _decided(frame: Any, reasons: Any, notes: Any, out: str) -> dict[str, Any]:
    import numpy as np

    bounds = frame["cost_bound"].to_numpy()
    finite = bounds[np.isfinite(bounds)]
    return {
        "decisions": out,
        "n_rows": len(frame),
        "status": dict(Counter(frame["status"])),
        "mean_cost_bound": float(finite.mean()) if len(finite) else None,
        "without_bound": int(np.isposinf(bounds).sum()),
        "reasons": dict(Counter(reason for reason in reasons if reason).most_common(5)),
        "oddities": dict(Counter(note for note in notes if note).most_common(5)),
    }


def _tell_decided(summary: dict[str, Any], to_stderr: bool) -> None:
    counts = ", ".join(f"{count} {status}" for status, count in summary["status"].items()) or "none"
    say(f"{summary['n_rows']} rows: {counts}", err=to_stderr)
    if not to_stderr:
        say(f"Decisions: {summary['decisions']}")
    if summary["without_bound"]:
        say(f"without a bound ({summary['without_bound']} row(s)): nothing is promised; their notes say why", err=True)
    for text, count in summary["reasons"].items():
        say(f"not decided ({count} row(s)): {text}", err=True)
    for text, count in summary["oddities"].items():
        say(f"note ({count} row(s)): {text}", err=True)


@app.command()
@with_bundles
def evaluate(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Fresh rows with features and outcomes: a CSV or Parquet file.")],
    by: Annotated[str | None, typer.Option(help="Column by which to break the results down.")] = None,
    volume: Annotated[
        bool, typer.Option("--volume", help="Tell the mean volume of the sets; slow with many outcomes.")
    ] = False,
    parameter: Parameter = None,
    opening: Opening,
    reading: Reading,
    solving: Solving,
    as_json: AsJson = False,
) -> None:
    """Compare promise and reality on rows that the model has not seen.

    Coverage with its exact 95 % interval, realised cost against bound and expected cost, uncertain constraints, and
    regret against the best decision in hindsight and against trusting the prediction; for each value of a column with
    --by, with intervals that hold for all of them at once.

    Example: polyhedge evaluate model.polyhedge fresh.csv --by season
    """
    solving.begin()
    import numpy as np

    from polyhedge.calibration import promises_each_label
    from polyhedge.calibration.labels import read_from
    from polyhedge.diagnosing import diagnostics_of_evaluation
    from polyhedge.evaluation import by_group, level_of_each

    decider, kept = opening.model_and_record(model)
    table = with_rows(reading.table(data))
    sources = sources_in(decider, kept, parameter)
    X, Y, usable, values, warnings = tables.usable_rows(table, kept.schema, decider.problem_, sources)
    check_any(usable, table)
    categories = None if by is None else _labels(table, by)[usable]
    labels = labels_in(decider, kept, table, usable)
    with progress("evaluating"):
        measures = tables.measure_table(decider, X, Y, values, labels)
    volume_of = partial(_volume, decider, X, values, volume, labels)
    whole = measures.summary(decider.alpha_, volume=volume_of(slice(None)))
    thinned = _thinned(kept, measures, table, usable)
    names = [] if categories is None else _most_common(categories)
    groups = {
        label: measures.summary(decider.alpha_, own, volume=volume_of(own), level=level_of_each(len(names)))
        for label in names
        for own in [np.asarray(categories == label)]
    }
    copies = groups_in(kept, table)
    diagnostics = diagnostics_of_evaluation(
        decider.model_,
        whole.coverage if thinned is None else thinned,
        measures,
        n_units(decider, kept),
        None if copies is None else copies[usable],
    )
    its_groups = by_group(measures, categories, decider.alpha_) if names else ()
    whole = replace(whole, groups=its_groups, diagnostics=tuple(diagnostics))
    warnings += diagnostics
    warnings += seen_before(kept, table) or seen_by_model(decider, X, Y)
    if as_json:
        counts = {"n_rows": len(table), "n_used": len(usable)}
        evaluations = {"all": whole, "one_row_a_group": thinned, "by": groups if by else None}
        shares = {"held_by_width": measures.held_by_width()}
        tell_json({**counts, **evaluations, **shares, "notes": table.notes, "warnings": warnings})
        return
    lines = evaluation_lines(whole, thinned)
    held = ", ".join(f"{share.value:.3f}" for share in measures.held_by_width())
    lines.append(("by width", f"bound held in {held} of rows, from the fifth with the lowest premium to the highest"))
    lines += [("volume", f"{whole.volume:.4g} in the mean")] if volume and whole.volume is not None else []
    tell([("data", f"{table.source}: {len(usable)} of {len(table)} rows used"), *lines])
    if by is not None:
        radii = decider.model_.radii
        is_promised = promises_each_label(radii) and by in (read_from(radii), kept.labels)
        tell_groups(by, groups, is_promised=is_promised)
        tell_short(whole, are_independent=thinned is None)
    warn(warnings)


def _volume(
    decider: RobustDecider, X: Any, values: dict[str, Any], is_asked: bool, labels: Any, rows: Any
) -> Volume | None:
    own = None if labels is None else labels[rows]
    if not is_asked:
        return tables.quick_volume(decider, X[rows], own)
    return decider.mean_volume(X[rows], parameters=tables.take_parameters(values, rows), labels=own)


def _labels(table: Table, name: str) -> NDArray[np.str_]:
    import numpy as np

    return np.array(["(missing)" if label is None else str(label) for label in tables.text_of(table.column(name))])


def _thinned(kept: FitRecord, measures: RowMeasures, table: Table, usable: Any) -> Proportion | None:
    import numpy as np

    groups = groups_in(kept, table)
    return None if groups is None else tables.thinned_coverage(measures, groups[usable], np.random.default_rng(0))


def _most_common(labels: NDArray[np.str_]) -> list[str]:
    counts = Counter(labels.tolist())
    if len(counts) > _MOST_GROUPS:
        raise ValueError(f"--by gives {len(counts)} groups, more than {_MOST_GROUPS}. Choose a coarser column.")
    return [label for label, _ in counts.most_common()]


@app.command()
def inspect(
    model: ModelFile, max_bytes: MaxBytes = MAX_BYTES, verify: VerifyKey = None, as_json: AsJson = False
) -> None:
    """Say what is in a model file and who can have made it, without making its predictor or its problem.

    Example: polyhedge inspect model.polyhedge
    """
    with opened(model):
        info = io.inspect_model(model, max_bytes=max_bytes, verify=verify)
        more = [] if as_json else _kept_lines(info)
    if as_json:
        stored = {name: value for name, value in vars(info).items() if name not in ("set", "spread")}
        shape = None if info.set is None else {"kind": type(info.set).__name__, "n_outcomes": info.set.n_outcomes}
        spread = None if info.spread is None else info.spread.summary()
        before = {"schema": info.format_version}  # its name in 0.1, which scripts may read
        in_force = {"alpha": info.alpha, "radius": info.radius, "n_calibrate": info.n_calibrate}
        tell_json({**stored, **before, "author": info.author, "set": shape, "spread": spread, **in_force})
        return
    for line in str(info).splitlines():
        say(line)
    for label, text in more:
        say(f"{label:<10} {text}")


def _kept_lines(info: io.ModelInfo) -> list[tuple[str, str]]:
    kept = tables.FitRecord.read(info.details)
    if kept is None:
        return []
    schema = kept.schema
    lines = [("features", ", ".join(f"{column.name} ({column.kind})" for column in schema.features))]
    if schema.outcomes != info.outcome_names:
        lines.append(("columns", f"{', '.join(schema.outcomes)} hold the outcomes"))
    if kept.parameters:
        lines.append(("parameters", sources_in_words(kept.parameters)))
    if kept.file:
        lines.append(("fitted on", f"{kept.file}, {kept.n_rows} rows"))
    if kept.refreshed is not None:
        new = kept.refreshed
        told = f"on {new.file}, {new.n_rows} rows: {new.train} train, {new.calibrate} calibrate"
        lines.append(("refreshed", told))
    return [*lines, ("observed", "no rows were held out" if kept.coverage is None else f"coverage {kept.coverage}")]
