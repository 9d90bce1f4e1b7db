"""Commands that use a model: `decide`, `evaluate` and `inspect`; `keygen` and `example`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from polyhedge import io
from polyhedge._support.files import replace_file
from polyhedge._support.progress import progress
from polyhedge._support.tolerances import SOLVER
from polyhedge.app.cli.app import app, say, say_csv
from polyhedge.app.cli.monitor import KeyColumn, LogFile, keys_of, log_of, log_path, quietly
from polyhedge.app.cli.options import (
    BAD_INPUT,
    NO_SOLUTION,
    AsJson,
    FileOptions,
    ModelFile,
    ModelTableOptions,
    check_statuses,
    command,
    names_in,
    opened,
    sources_in_words,
    tell,
    tell_json,
    warn,
)
from polyhedge.app.reading import check_target, csv_text, write_table


@command
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
    options: ModelTableOptions,
) -> None:
    """Decide for new rows: one decision a row, in the same order, with the most it will cost.

    Writes the decision under the problem's own names, cost_bound, the worst outcome, status and note. A row that cannot
    be decided, because a value is missing, keeps its place, and the note says why; it also tells of values unlike any
    in the history. In a CSV file an apostrophe stands before texts that a spreadsheet would run as formulas, unless
    --raw is given. With --out - the table is alone on standard output, and all other text goes to standard error.

    With --key, that column stands first, and decisions and bounds are noted in a database next to the model, so that
    polyhedge update counts outcomes against the bounds that were issued. A radius that follows outcomes is the one that
    the database has led to.

    Exit codes: 0 done, 2 bad input, 3 a row has no feasible or no bounded decision, 4 a solver stopped early.

    Example: polyhedge decide model.polyhedge new.csv --out decisions.csv
    """
    import numpy as np

    from polyhedge.decisions import no_decisions

    target = None if out == "-" else check_target(out)
    decider, record = options.model_and_record(model)
    table, fitted = options.table(data), decider.model_
    table.check_columns(names_in(keep))
    names = None if key is None else keys_of(table, key)
    rows = options.new_rows(decider, record, table)
    usable, reasons, notes = rows.usable, rows.reasons, rows.notes
    outcomes, follows = None, fitted.radii.follows_outcomes
    if names is not None or (follows and (log or log_path(model)).is_file()):
        outcomes = log_of(model, log, fitted)
        decider.model_ = outcomes.replay()[0] if follows else fitted
    with progress("deciding"):
        decisions = no_decisions(fitted.problem, is_planned=fitted.guarantee == "cost")
        if len(usable):
            decisions = decider.model_.decide(rows.X.iloc[usable], rows.parameters, labels=rows.labels)
    if names is not None and outcomes is not None and len(usable):
        outcomes.note([names[i] for i in usable], decisions)
    decisions = decisions.among(usable, reasons.tolist()).noted(notes.tolist())
    frame = replace(decisions, labels=fitted.labels(rows.X)).to_frame("pandas")
    columns = zip(fitted.problem.outcome_names, record.schema.outcomes, strict=True)
    frame = frame.rename(columns={f"worst_{name}": f"worst_{column}" for name, column in columns if name != column})
    if digits is not None:
        # Rounding errors of a solver are not worth a reader's time.
        numbers = frame.map(lambda value: isinstance(value, float) and abs(value) < SOLVER)
        frame = frame.mask(numbers, 0.0).map(lambda x: float(f"{x:.{digits}g}") if isinstance(x, float) else x)
    for place, name in enumerate(dict.fromkeys([*([] if key is None else [key]), *names_in(keep)])):
        frame.insert(place, f"input_{name}" if name in frame.columns else name, table.frame[name].to_numpy())
    if target is None:
        say_csv(csv_text(frame, raw=raw))
    else:
        write_table(frame, target, raw=raw)
    bounds, totals = frame["cost_bound"].to_numpy(), None if decisions.total_radius is None else decisions.totals()
    without_bound, status = int(np.isposinf(bounds).sum()), dict(Counter(frame["status"]))
    undecided, odd = (dict(Counter(filter(None, texts)).most_common(5)) for texts in (reasons, notes))
    if options.as_json:
        mean = bounds[np.isfinite(bounds)].mean() if np.isfinite(bounds).any() else None
        counts = {"decisions": out, "n_rows": len(frame), "status": status, "mean_cost_bound": mean}
        texts = {"without_bound": without_bound, "reasons": undecided, "oddities": odd, "notes": table.notes}
        more = {} if totals is None else {"totals": totals.reset_index(names="block").to_dict("records")}
        more |= {} if decisions.risk is None else {"risk_bound": decisions.risk_bound()}
        tell_json({**counts, **texts, **more}, err=target is None)
    else:
        shares = ", ".join(f"{count} {each}" for each, count in status.items()) or "none"
        say(f"{len(frame)} rows: {shares}", err=target is None)
        if target is not None:
            say(f"Decisions: {out}")
        for line in _beyond_rows(decisions, totals):
            say(line, err=target is None)
        if without_bound:
            say(f"without a bound ({without_bound} row(s)): nothing is promised; their notes say why", err=True)
        for what, found in (("not decided", undecided), ("note", odd)):
            for text, count in found.items():
                say(f"{what} ({count} row(s)): {text}", err=True)
    if len(table) and not len(usable):
        raise typer.Exit(BAD_INPUT)
    check_statuses(list(decisions.status[usable]))
    if without_bound:  # decided by a policy, but promised nothing: a set has no decision there
        raise typer.Exit(NO_SOLUTION)


def _beyond_rows(decisions: Any, totals: Any) -> list[str]:
    """Bounds of the first blocks together, and on the mean of rows, where something is promised for them."""
    lines = []
    if totals is not None:
        shown = totals[totals.index != ""]  # rows without a block are not decided
        few = shown.iloc[:_MOST_BLOCKS].iterrows()
        lines = [
            f"block {name}: {int(row['n_rows'])} rows cost together at most {row['cost_bound']:.4g}"
            for name, row in few
        ]
        lines += [f"... {len(shown) - _MOST_BLOCKS} more blocks: --json has all"] * (len(shown) > _MOST_BLOCKS)
    if decisions.risk is not None:
        share = decisions.risk[0]
        whose = "These rows" if share == 1 else f"The worst {share:g} of these rows"
        lines.append(f"{whose} are expected to cost on average at most {decisions.risk_bound():.4g}")
    return lines


_MOST_BLOCKS = 10
"""Blocks that are listed: they fit a screen."""


@command
def bound(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Rows: a CSV or Parquet file with the feature columns.")],
    out: Annotated[str, typer.Option(help="Bounds to write: a .csv or .parquet file, or - for standard output.")],
    decisions: Annotated[
        Path | None,
        typer.Option(help="Your decisions, in columns of the problem's names, a row each; by default in the rows."),
    ] = None,
    options: ModelTableOptions,
) -> None:
    """Bound what decisions of your own will cost at most, for example those of polyhedge decide after a change.

    The bounds hold as often as those of polyhedge decide, for all decisions at once. A bound is infinite where nothing
    limits an outcome that hurts the decision, and the note then names this outcome.

    Example: polyhedge bound model.polyhedge new.csv --decisions changed.csv --out bounds.csv
    """
    import numpy as np

    from polyhedge.predictors.columns import values_of

    target = None if out == "-" else check_target(out)
    decider, record = options.model_and_record(model)
    table = options.table(data)
    mine = table if decisions is None else options.table(decisions)
    if len(mine) != len(table):
        raise ValueError(f"{mine.source} must have one row for each of the {len(table)} rows, got {len(mine)}.")
    names = decider.problem_.decision_names
    mine.check_columns(names)
    z = np.column_stack([values_of(mine.column(name))[0] for name in names])
    rows = options.new_rows(decider, record, table)
    with progress("bounding"):
        found = decider.model_.bound(rows.X.iloc[rows.usable], z[rows.usable], rows.parameters, rows.labels)
    frame = found.among(rows.usable, rows.reasons.tolist()).to_frame("pandas")
    if target is None:
        say_csv(csv_text(frame))
    else:
        write_table(frame, target)
        say(f"Bounds: {out}")
    n_open = int(np.isposinf(frame["cost_bound"]).sum())
    if n_open:
        say(f"without a bound: {n_open} row(s); their notes say why", err=True)


@command
def evaluate(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Fresh rows with features and outcomes: a CSV or Parquet file.")],
    by: Annotated[str | None, typer.Option(help="Column by which to break the results down.")] = None,
    volume: Annotated[
        bool, typer.Option("--volume", help="Tell the mean volume of the sets; slow with many outcomes.")
    ] = False,
    options: ModelTableOptions,
) -> None:
    """Compare promise and reality on rows that the model has not seen.

    Coverage with its exact 95 % interval, realised cost against bound and expected cost, uncertain constraints, and
    regret against the best decision in hindsight and against trusting the prediction; for each value of a column with
    --by, with intervals that hold for all of them at once.

    Example: polyhedge evaluate model.polyhedge fresh.csv --by season
    """
    from polyhedge.predictors.columns import text_of
    from polyhedge.rows import read_from

    decider, record, table, rows = options.rows(model, data)
    categories = None if by is None else text_of(table.column(by))[rows.numbers]
    if categories is not None and len(set(categories)) > _MOST_GROUPS:
        raise ValueError(
            f"--by gives {len(set(categories))} groups, more than {_MOST_GROUPS}. Choose a coarser column."
        )
    given: Any = {"by": categories, "groups": rows.groups, "volume": volume or None, **rows.given}
    with progress("evaluating"), quietly():
        seen = decider.evaluate(rows.X, rows.Y, **given)
    shares = [] if seen.rows is None else seen.rows.held_by_width()
    warnings = [*rows.warnings, *seen.diagnostics]
    if options.as_json:
        counts = {"n_rows": len(table), "n_used": len(rows), "all": seen}
        tell_json({**counts, "held_by_width": shares, "notes": table.notes, "warnings": warnings})
        return
    say(f"{table.source}: {len(rows)} of {len(table)} rows used")
    for line in seen.lines():
        say(line)
    held = ", ".join(f"{share.value:.3f}" for share in shares)
    say(f"by width         bound held in {held} of rows, from the fifth with the lowest extra cost to the highest")
    if by is not None:
        radii = decider.model_.radii
        source = read_from(radii)
        named = source if isinstance(source, tuple) else (source, record.labels)
        is_promised = radii.promises_each_label and by in named
        whom = "each of these categories that had enough calibration rows" if is_promised else "all rows together"
        say(f"The promise is for {whom}. The intervals of groups hold for all of them at once, in 95 % of cases.")
    warn(warnings)


_MOST_GROUPS = 50
"""Lines that a reader takes in; a column of more values names rows."""


@command
def inspect(*, model: ModelFile, options: FileOptions) -> None:
    """Say what is in a model file and who can have made it, without making its predictor or its problem.

    Example: polyhedge inspect model.polyhedge
    """
    from polyhedge.io.fit_record import FitRecord

    with opened(model):
        info = io.inspect_model(model, max_bytes=options.max_bytes, verify=options.verify)
        kept = FitRecord.read(info.details)
    if options.as_json:
        stored = {name: value for name, value in vars(info).items() if name not in ("set", "spread")}
        shape = None if info.set is None else {"kind": type(info.set).__name__, "n_outcomes": info.set.n_outcomes}
        spread = None if info.spread is None else info.spread.summary()
        in_force = {"alpha": info.alpha, "radius": info.radius, "n_calibrate": info.n_calibrate}
        tell_json({**stored, "author": info.author, "set": shape, "spread": spread, **in_force})
        return
    for line in str(info).splitlines():
        say(line)
    if kept is None:
        return
    schema, new = kept.schema, kept.refreshed
    lines = {"features": ", ".join(f"{column.name} ({column.kind})" for column in schema.features)}
    if schema.outcomes != info.outcome_names:
        lines["columns"] = f"{', '.join(schema.outcomes)} hold the outcomes"
    if kept.parameters:
        lines["parameters"] = sources_in_words(kept.parameters)
    if kept.file:
        lines["fitted on"] = f"{kept.file}, {kept.n_rows} rows"
    if new is not None:
        lines["refreshed"] = f"on {new.file}, {new.n_rows} rows: {new.train} train, {new.calibrate} calibrate"
    lines["observed"] = "no rows were held out" if kept.coverage is None else f"coverage {kept.coverage}"
    for label, text in lines.items():
        say(f"{label:<10} {text}")


@app.command()
def keygen(
    key: Annotated[Path, typer.Argument(help="File for the private key; the public one is KEY.pub next to it.")],
    as_json: AsJson = False,
) -> None:
    """Make a pair of keys, so that your organisation can refuse model files that it did not make.

    Sign with the private key (polyhedge fit --sign KEY) and keep it to yourself. Give away the public one: polyhedge
    decide --verify KEY.pub refuses every file that was not signed with its private key, or was changed since.

    Example: polyhedge keygen team.key
    """
    public, fingerprint = io.make_keys(key)
    if as_json:
        tell_json({"private": key, "public": public, "fingerprint": fingerprint})
        return
    tell(
        {
            "private key": f"{key} (for you alone: who has it can sign as you)",
            "public key": f"{public} (for everyone who uses your models)",
            "fingerprint": fingerprint,
        }
    )


@app.command()
def example(
    name: Annotated[str, typer.Argument(help="energy or newsvendor.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the files; made if it is missing.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a history, fresh rows, new rows and a decision problem, to try the other commands on.

    Files that are there already are left alone if they are the same, and never overwritten.

    Example: polyhedge example energy --out energy
    """
    from importlib import resources

    from polyhedge.data.examples import make_example

    tables = make_example(name)
    contents = {
        f"{part}.csv": getattr(tables, part).to_csv(index=False, lineterminator="\n").encode()
        for part in ("history", "fresh", "new")
    }
    contents["problem.toml"] = resources.files("polyhedge.data").joinpath(f"example_{name}.toml").read_bytes()
    there = [file for file in contents if (out / file).exists()]
    other = [file for file in there if (out / file).read_bytes() != contents[file]]
    if other:
        raise ValueError(f"{out / other[0]} is there already and differs. Choose another folder with --out.")
    for file, content in contents.items():
        replace_file(out / file, content)
    if as_json:
        tell_json({"files": [out / file for file in contents]})
        return
    for file in contents:
        say(f"{out / file}")
