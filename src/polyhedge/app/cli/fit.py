"""`polyhedge fit`: a model from a table and a decision problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge._support.files import check_writable
from polyhedge._support.progress import progress
from polyhedge._support.text import counted
from polyhedge.app import tables
from polyhedge.app.cli.app import app
from polyhedge.app.cli.bundles import with_bundles
from polyhedge.app.cli.common import (
    AsJson,
    Parameter,
    Reading,
    check_statuses,
    evaluation_lines,
    names_in,
    read_problem,
    tell,
    tell_json,
    warn,
)
from polyhedge.app.cli.fresh import sources_in_words
from polyhedge.app.cli.models import SignKey
from polyhedge.app.cli.output import say
from polyhedge.app.cli.solving import Solving
from polyhedge.app.tables.options import LEARNERS, TableOptions
from polyhedge.predictors import PREDICTORS

if TYPE_CHECKING:
    from polyhedge.app.tables import FittedTable
    from polyhedge.estimator import RobustDecider
    from polyhedge.learners import LearnResult

_MODEL_SUFFIX = ".polyhedge"


@app.command()
@with_bundles
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
    out: Annotated[Path, typer.Option(help=f"Model file to write, for example model{_MODEL_SUFFIX}.")],
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
    shares: Annotated[str, typer.Option(help="Shares of train, learn, calibrate and held-out.")] = "0.4,0.2,0.2,0.2",
    copies: Annotated[
        str, typer.Option(help="Rows equal in all columns: together (count once) or independent events.")
    ] = "together",
    learner: Annotated[
        str | None,
        typer.Option(help=f"What learns a set, with --guarantee outcome then: {', '.join(LEARNERS)}; by default auto."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which the learner settles for what it has.")
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(
            help="cost: the lowest bound for the decision taken. outcome: a set guards every decision at once. By "
            "default cost, unless --learner is given, the problem has parameters, or uncertain constraints beside a "
            "cost that is no sum of maxima of affine functions."
        ),
    ] = None,
    caution: Annotated[
        float, typer.Option(min=0, max=1, help="With cost alone: weight of the bound against the mean cost.")
    ] = 0.5,
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Whom the promise is for: marginal, by-category:COLUMN, this-model[:DELTA], weighted:COLUMN, "
            "recent:HALF_LIFE or online[:STEP]. COLUMN need not be a feature."
        ),
    ] = None,
    keep_interrupted: Annotated[
        bool,
        typer.Option("--keep-interrupted", help="After Ctrl-C, calibrate and save the best set so far, not nothing."),
    ] = False,
    parameter: Parameter = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the predictor and the learner.")] = 0,
    sign: SignKey = None,
    reading: Reading,
    solving: Solving,
    as_json: AsJson = False,
) -> None:
    """Learn from a table what to decide and what it will cost at most, and save the model.

    The rows are split into four parts: one trains a predictor, one plans decisions (with --guarantee outcome it learns
    the shape of a set of outcomes), one sets the bound so that it holds in the promised share of cases, and one checks
    the promise.

    Example: polyhedge fit history.csv --outcomes heating_load,cooling_load --problem problem.toml --alpha 0.1
    --out model.polyhedge
    """
    solving.begin()
    if out.is_dir():
        raise ValueError(f"{out} is a folder. Name the file in it, for example {out / ('model' + _MODEL_SUFFIX)}.")
    check_writable(out)
    options = TableOptions(
        features=None if features is None else names_in(features),
        categorical=names_in(categorical),
        predictor=predictor,
        time_column=time_column,
        starts=None if starts is None else names_in(starts),
        gap=_number(gap),
        group=names_in(group),
        shares=_numbers(shares),
        copies=copies,
        learner=learner,
        time_limit=time_limit,
        seed=seed,
        keep_interrupted=keep_interrupted,
        guarantee=guarantee,
        caution=caution,
        calibration=calibration,
        parameters=tables.read_sources(parameter or []),
    )
    table = reading.table(data)
    try:
        with progress("fitting"):
            fitted = tables.fit_table(table, read_problem(problem, uncertain), names_in(outcomes), alpha, options)
            facets = _facets(fitted)
    except KeyboardInterrupt:
        warn(["No model was saved. With --keep-interrupted the best set so far is calibrated and saved."])
        raise
    fitted.decider.save(out, _details(fitted, options, data, len(table)), sign=sign)
    if as_json:
        tell_json(_summary(fitted, facets, out, len(table)))
    else:
        _print(fitted, options, facets, table.source, len(table))
        say(f"Model: {out}")
    if not _is_planned(fitted.decider):
        check_statuses([fitted.decider.learn_result_.status])


def _is_planned(decider: RobustDecider) -> bool:
    return hasattr(decider, "policy_")


def _facets(fitted: FittedTable) -> tuple[str, ...]:
    from polyhedge.app.words import facets_in_words

    if _is_planned(fitted.decider):
        return ()
    rows = fitted.held_out if len(fitted.held_out) else fitted.split.calibrate
    values = tables.take_parameters(fitted.parameters, rows)
    X = fitted.X.iloc[rows]
    own = None if fitted.labels is None else fitted.labels[rows]
    return facets_in_words(fitted.decider, X, fitted.schema.outcomes, parameters=values, labels=own)


def _print(fitted: FittedTable, options: TableOptions, facets: tuple[str, ...], source: str, n_rows: int) -> None:
    decider, sizes = fitted.decider, fitted.sizes
    unit = "" if fitted.n_groups is None else f" in {fitted.n_groups} groups"
    how = f"by {options.time_column}" if options.time_column else f"at random, seed {options.seed}"
    how += f", {fitted.n_between} left out in gaps" if options.gap else ""
    lines = [
        ("data", f"{source}: {n_rows} rows, {counted(len(fitted.schema.features), 'feature')}"),
        ("outcomes", ", ".join(fitted.schema.outcomes)),
        (
            "split",
            f"{sizes['train']} train, {sizes['learn']} learn, {sizes['calibrate']} calibrate{unit}, "
            f"{sizes['held_out']} held out ({how})",
        ),
        ("predictor", f"{fitted.predictor} ({fitted.reason})"),
        ("guarantee", decider.guarantee_),
        *_learned(decider),
        *([] if options.calibration is None else [("promise", decider.promise_)]),
    ]
    if fitted.sources:
        lines.insert(2, ("parameters", sources_in_words(fitted.sources)))
    if fitted.evaluation is not None:
        lines += evaluation_lines(fitted.evaluation, fitted.thinned)
    else:
        lines.append(("coverage", f"promised {1 - decider.alpha_:.6g}; no rows were held out to observe it"))
    tell([*lines, *[("facets" if not i else "", text) for i, text in enumerate(facets)]])
    for note in fitted.notes:
        say(f"note: {note}", err=True)
    warn(fitted.warnings)


def _learned(decider: RobustDecider) -> list[tuple[str, str]]:
    if _is_planned(decider):
        return [("policy", decider.policy_.why()), ("radius", f"{decider.radius_:.4g}")]
    # Not the radius: it counts in the set's own measure, and sets that cost the same differ in it.
    return [("learner", _learner(decider.learn_result_)), ("gap", _gap(decider))]


def _learner(result: LearnResult) -> str:
    return f"{result.detail or 'done'} ({str(result.status).partition(':')[0]}, {result.seconds:.1f} s)"


def _gap(decider: RobustDecider) -> str:
    gap = decider.learn_result_.gap
    if gap == float("inf"):
        return "not certified for this kind of problem"
    size = "" if decider.spread_ is None else " and one size"
    # CCG and MIQCP plan for the mean prediction alone.
    is_mean = hasattr(getattr(decider.learner, "learner", None), "contexts")
    rows = "for the mean prediction" if is_mean else "on the learning rows"
    if gap < 0 and size:
        return f"{-gap:.3g} below the cheapest set of any shape{size} {rows}: scaling it pays (certified)"
    return f"at most {max(gap, 0.0):.3g} above the cheapest set of any shape{size} {rows} (certified)"


def _details(fitted: FittedTable, options: TableOptions, data: Path, n_rows: int) -> dict[str, Any]:
    """What the model file keeps beside the model: how to read new rows, and what was found."""
    return tables.FitRecord(
        schema=fitted.schema,
        file=data.name,
        n_rows=n_rows,
        sizes=fitted.sizes,
        n_groups=fitted.n_groups,
        time_column=options.time_column,
        group=tuple(options.group),
        copies=options.copies,
        predictor=fitted.predictor,
        coverage=None if fitted.evaluation is None else str(fitted.thinned or fitted.evaluation.coverage),
        warnings=fitted.warnings,
        seen=fitted.prints,
        labels=fitted.labels_column,
        parameters=fitted.sources,
    ).as_json()


def _summary(fitted: FittedTable, facets: tuple[str, ...], out: Path, n_rows: int) -> dict[str, Any]:
    decider = fitted.decider
    return {
        "model": out,
        "n_rows": n_rows,
        "features": fitted.schema.feature_names,
        "outcomes": fitted.schema.outcomes,
        "parameters": fitted.sources,
        "split": fitted.sizes,
        "n_between": fitted.n_between,
        "n_groups": fitted.n_groups,
        "predictor": {"name": fitted.predictor, "reason": fitted.reason},
        "guarantee": decider.guarantee_,
        **_how(decider),
        "alpha": decider.alpha_,
        "radius": decider.radius_,
        "held_out": fitted.evaluation,
        "one_row_a_group": fitted.thinned,
        "facets": facets,
        "notes": fitted.notes,
        "warnings": fitted.warnings,
    }


def _how(decider: RobustDecider) -> dict[str, Any]:
    """How the family was made: by a selection of policies, or by a learner and perhaps a spread."""
    if _is_planned(decider):
        return {"policy": decider.policy_.state(), "frontier": decider.frontier()}
    result, spread = decider.learn_result_, decider.spread_
    learner = {
        "detail": result.detail,
        "status": str(result.status).partition(":")[0],
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "seconds": result.seconds,
    }
    return {"learner": learner, "spread": None if spread is None else spread.summary()}


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in names_in(text))
    except ValueError as error:
        raise ValueError(f"--shares must be four numbers such as 0.4,0.2,0.2,0.2, got {text!r}.") from error


def _number(text: str) -> float | str:
    """The number that a text holds, or the text: the split says what it must be."""
    try:
        return float(text)
    except ValueError:
        return text
