"""`polyhedge fit`: a model from a table and a decision problem, as `RobustDecider.fit` makes it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from warnings import catch_warnings, simplefilter

import typer

from polyhedge._support.files import check_writable
from polyhedge._support.progress import progress
from polyhedge._support.text import counted
from polyhedge._support.warnings import SettingWarning
from polyhedge.app.cli.app import say
from polyhedge.app.cli.options import (
    SignKey,
    TableOptions,
    check_statuses,
    command,
    names_in,
    read_problem,
    sources_in_words,
    tell_json,
    warn,
)
from polyhedge.predictors import PREDICTORS

if TYPE_CHECKING:
    from polyhedge.estimator import RobustDecider
    from polyhedge.evaluation import Evaluation
    from polyhedge.io.fit_record import FitRecord

LEARNERS = {
    "auto": "Auto",
    "descent": "Descent",
    "one-sided-box": "OneSidedBox",
    "scenario": "Scenario",
    "pinball": "Pinball",
    "ccg": "CCG",
    "pca-box": "PcaBox",
}
"""Names of learners on the command line, and their classes in `polyhedge.learners`."""
_SHARES = "0.4,0.2,0.2,0.2"


@command
def fit(
    *,
    data: Annotated[Path, typer.Argument(help="History: a CSV or Parquet file, one row an observation.")],
    problem: Annotated[
        str,
        typer.Option(
            help="The decision problem: a .toml file, an .mps file with --uncertain, or FILE.py:NAME, which runs the "
            "code in that file."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Model file to write, for example model.polyhedge.")],
    outcomes: Annotated[
        str, typer.Option(help="Outcome columns, separated by commas; by default the problem's outcome names.")
    ] = "",
    uncertain: Annotated[
        str | None,
        typer.Option(help="Of an .mps file: columns whose costs, rows whose right-hand sides are the outcomes."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Share of cases in which the bound may fail.")] = 0.1,
    features: Annotated[
        str | None, typer.Option(help="Feature columns; by default all columns without another role.")
    ] = None,
    categorical: Annotated[str, typer.Option(help="Features that name kinds although they look like numbers.")] = "",
    predictor: Annotated[
        str, typer.Option(help=f"{', '.join(PREDICTORS)}, or auto: the best on the training rows.")
    ] = "auto",
    time_column: Annotated[
        str | None, typer.Option(help="Column with the time: the split is then by time, the latest rows held out.")
    ] = None,
    gap: Annotated[
        str,
        typer.Option(
            help="With --time-column: how far before each cut rows are left out, a number in the unit of the times or, "
            "for dates, such as 7D or 12h."
        ),
    ] = "0",
    starts: Annotated[
        str | None,
        typer.Option(
            metavar="LEARN,CALIBRATE[,HELD_OUT]",
            help="With --time-column, instead of --shares: first times of the later parts, dates such as 2025-09-01 "
            "or numbers. Without the third no rows are held out.",
        ),
    ] = None,
    group: Annotated[
        str, typer.Option(help="Columns that mark rows which belong together; such rows stay in one part.")
    ] = "",
    shares: Annotated[str, typer.Option(help="Shares of train, learn, calibrate and held-out.")] = _SHARES,
    copies: Annotated[
        str, typer.Option(help="Rows equal in all columns: together (count once) or independent events.")
    ] = "together",
    learner: Annotated[
        str | None,
        typer.Option(help=f"What learns a set, with --guarantee outcome then: {', '.join(LEARNERS)}; by default auto."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which a search or a certificate settles for what it has.")
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(
            help="cost: the lowest bound, for the decision taken. outcome: a set, whose bound holds for every "
            "decision. By default cost, unless --learner is given, the problem has parameters, or uncertain "
            "constraints with a cost that is no sum of maxima of affine functions."
        ),
    ] = None,
    caution: Annotated[
        float, typer.Option(min=0, max=1, help="With cost alone: weight of the bound against the mean cost.")
    ] = 0.25,
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Whom the promise is for: marginal, by-category:COLUMN, by-groups:COLUMN,..., total:COLUMN, "
            "all-of:COLUMN, by-constraint:NAME=ALPHA,..., mean:DELTA,LARGEST, cvar:LEVEL,LARGEST, this-model[:DELTA], "
            "weighted:COLUMN, recent:HALF_LIFE or online[:STEP]. But for by-groups, COLUMN need not be a feature."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the predictor and the learner.")] = 0,
    sign: SignKey = None,
    options: TableOptions,
) -> None:
    """Learn from a table what to decide and what it will cost at most, and save the model.

    The rows are split into four parts: one trains a predictor, one selects a policy (with --guarantee outcome it learns
    the shape of a set of outcomes), one sets the bound so that it holds in the promised share of cases, and one checks
    the promise.

    Example: polyhedge fit history.csv --outcomes heating_load,cooling_load --problem problem.toml --alpha 0.1
    --out model.polyhedge
    """
    if out.is_dir():
        raise ValueError(f"{out} is a folder. Name the file in it, for example {out / 'model.polyhedge'}.")
    check_writable(out)
    from polyhedge import learners
    from polyhedge.app.rows import (
        check_solvable,
        columns_in,
        labels_column,
        order_outcomes,
        read_sources,
        sources_of,
        table_rows,
    )
    from polyhedge.calibration.named import calibrator_named
    from polyhedge.data import TimeSplit
    from polyhedge.diagnostics import DiagnosticWarning
    from polyhedge.estimator import RobustDecider
    from polyhedge.io.fit_record import FitRecord
    from polyhedge.predictors.columns import choose_columns
    from polyhedge.rows import with_values

    if time_column is None and (starts is not None or gap != "0"):
        name = "--gap" if starts is None else "--starts"
        raise ValueError(f"{name} is about the time of rows, and no column with it was named. Give --time-column.")
    if starts is not None and shares != _SHARES:
        raise ValueError("--starts and --shares both say where parts are cut. Give one of them.")
    table, decided = options.table(data), read_problem(problem, uncertain)
    names = order_outcomes(decided, names_in(outcomes))
    sources = sources_of(decided, read_sources(options.parameter or []))
    aside = [*names_in(group), *([] if time_column is None else [time_column])]
    table.check_columns(aside)
    named = None if features is None else names_in(features)
    schema, notes = choose_columns(
        table, names, features=named, categorical=names_in(categorical), set_aside=[*aside, *columns_in(sources)]
    )
    kinds = [column.name for column in schema.features if column.kind == "category" and not column.source]
    calibrator = None if calibration is None else calibrator_named(calibration)
    record = FitRecord(
        schema=schema,
        file=data.name,
        n_rows=len(table),
        time_column=time_column,
        group=names_in(group),
        copies=copies,
        labels=labels_column(calibrator, table, schema.source_names, names),
        parameters=sources,
    )
    rows = table_rows(
        table,
        decided,
        record,
        calibrator,
        categories=names_in(categorical) if named is None else kinds,
        with_times=True,
        with_copies=True,
    )
    check_solvable(decided, rows)
    if learner not in (None, *LEARNERS):
        raise ValueError(f"--learner must be one of {', '.join(LEARNERS)}, got {learner!r}.")
    try:
        parts = tuple(float(part) for part in names_in(shares))
        if len(parts) != 4:
            raise ValueError
    except ValueError as error:
        raise ValueError(f"--shares must be four numbers such as {_SHARES}, got {shares!r}.") from error
    split: Any = parts
    if time_column is not None:
        length: Any = gap
        with suppress(ValueError):
            length = float(gap)
        split = TimeSplit(time_column, rows.times, parts, None if starts is None else names_in(starts), length)
    made = None
    if learner is not None or guarantee == "outcome":
        kind = getattr(learners, LEARNERS[learner or "auto"])
        limit = {} if "time_limit" not in kind.__dataclass_fields__ else {"time_limit": time_limit}
        made = learners.Certified(kind(**limit), time_limit=time_limit)
    decider = RobustDecider(
        decided,
        predictor=predictor,
        alpha=alpha,
        learner=made,
        split=split,
        random_state=seed,
        calibration=calibrator if rows.labels is None else with_values(calibrator, rows.labels),
        guarantee=guarantee,
        caution=caution,
    )
    try:
        with progress("fitting"), catch_warnings():
            for kind in (DiagnosticWarning, SettingWarning):  # printed below, with those of the table
                simplefilter("ignore", kind)
            decider.fit(rows.X, outcome_frame(decided, rows.Y, names), groups=rows.groups, parameters=rows.parameters)
            held_out = rows.take(decider.split_.held_out)
            seen = None
            if len(held_out):
                seen = decider.evaluate(held_out.X, held_out.Y, groups=held_out.groups, **held_out.given)
    except KeyboardInterrupt:
        warn(["No model was saved."])
        raise
    about: tuple[Any, ...] = (*rows.warnings, *decider.diagnostics_, *(() if seen is None else seen.diagnostics))
    record = replace(
        record,
        schema=replace(decider.model_.record.schema or schema, outcomes=names),
        coverage=None if seen is None else str(seen.evidence),
        coded=tuple((str(one.code), str(one)) for one in about),
    )
    decider.save(out, record.as_details(), sign=sign)
    notes, is_policy = (*table.notes, *notes), hasattr(decider, "policy_")
    if options.as_json:
        tell_json({"model": out, **_summary(decider, record, seen, len(rows)), "notes": notes})
    else:
        say(f"{record.file}: {record.n_rows} rows, {counted(len(record.schema.features), 'feature')}")
        if record.parameters:
            say(f"parameters: {sources_in_words(record.parameters)}")
        for line in decider.summary().splitlines():
            say(line)
        if seen is None:
            say("No rows were held out to observe the coverage.")
        else:
            for line in seen.lines():
                say(line)
        for note in notes:
            say(f"note: {note}", err=True)
        warn(about)
        say(f"Model: {out}")
    if not is_policy:
        check_statuses([decider.learn_result_.status])


def outcome_frame(problem: Any, Y: Any, names: Any) -> Any:
    """Outcomes by name if the problem has these names or none; else as an array in its order."""
    import pandas as pd

    from polyhedge.problems.checks import is_named

    return Y if is_named(problem) and tuple(problem.outcome_names) != tuple(names) else pd.DataFrame(Y, columns=names)


def _summary(decider: RobustDecider, record: FitRecord, seen: Evaluation | None, n_used: int) -> dict[str, Any]:
    name, _, reason = decider.settings_.get("chosen predictor", "").partition(" (")
    if not name:
        name, reason = str(decider.predictor), "as asked"
    sizes = {part: len(getattr(decider.split_, part)) for part in ("train", "learn", "calibrate", "held_out")}
    how: dict[str, Any]
    if hasattr(decider, "policy_"):
        how = {"policy": asdict(decider.policy_), "frontier": decider.frontier()}
    else:
        result, spread = decider.learn_result_, decider.spread_
        learner = {key: getattr(result, key) for key in ("detail", "objective", "lower_bound", "gap", "seconds")}
        learner["status"] = str(result.status).partition(":")[0]
        how = {"learner": learner, "spread": None if spread is None else spread.summary()}
    return {
        "n_rows": record.n_rows,
        "features": record.schema.feature_names,
        "outcomes": record.schema.outcomes,
        "parameters": record.parameters,
        "split": sizes,
        "n_between": n_used - sum(sizes.values()),
        "n_groups": decider.model_.radii.n_units if decider.model_.radii.is_grouped else None,
        "predictor": {"name": name, "reason": reason.removesuffix(")")},
        "guarantee": decider.guarantee_,
        **how,
        "alpha": decider.alpha_,
        "radius": decider.radius_,
        "held_out": seen,
        "warnings": record.warnings,
    }
