"""`repair`: second decisions once the outcomes are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyhedge._support.progress import progress
from polyhedge.app.cli.app import say, say_csv
from polyhedge.app.cli.options import NO_SOLUTION, ModelFile, ModelTableOptions, command, tell_json
from polyhedge.app.reading import check_target, csv_text, write_table


@command
def repair(
    *,
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Rows with features and outcomes: a CSV or Parquet file.")],
    decisions: Annotated[Path, typer.Option(help="What polyhedge decide wrote for these rows, in the same order.")],
    out: Annotated[str, typer.Option(help="Second decisions to write: a .csv or .parquet file, or - for the output.")],
    options: ModelTableOptions,
) -> None:
    """Find the best second decisions once the outcomes are known, for a problem with recourse.

    Writes the second decision of each row, what both stages cost, and whether the total kept to its bound.

    Example: polyhedge repair model.polyhedge outcomes.csv --decisions decisions.csv --out repairs.csv
    """
    import numpy as np

    from polyhedge.predictors.columns import values_of
    from polyhedge.problems.layout import parameter_rows
    from polyhedge.repairs import as_decisions, repair as repaired
    from polyhedge.solvers.program import Status

    target = None if out == "-" else check_target(out)
    decider, _, table, rows = options.rows(model, data)
    taken = options.table(decisions)
    if len(taken) != len(table):
        raise ValueError(f"{taken.source} must have one row for each of the {len(table)} rows, got {len(taken)}.")
    problem, names = decider.problem_, [*decider.problem_.decision_names, "cost_bound"]
    taken.check_columns(names)
    columns = np.column_stack([values_of(taken.column(name))[0] for name in names])[rows.numbers]
    values = parameter_rows(problem.parameters, rows.parameters, len(columns))
    with progress("repairing"):
        found = repaired(problem, as_decisions(problem, columns[:, :-1], columns[:, -1]), rows.Y, values)
    frame = found.to_frame("pandas")
    frame.insert(0, "row", rows.numbers)
    if target is None:
        say_csv(csv_text(frame))
    else:
        write_table(frame, target)
    done = int((found.status == Status.OPTIMAL).sum())
    counts = {"n_rows": len(table), "n_repaired": done, "within_bound": int(found.is_within.sum())}
    if options.as_json:
        mean = {name: float(np.mean(getattr(found, name))) for name in ("first_cost", "second_cost")}
        tell_json({"repairs": out, **counts, **mean}, err=target is None)
    else:
        say(f"{table.source}: {done} of {len(table)} rows repaired: {found.text}", err=target is None)
    if found.complaint():
        say(found.complaint(), err=True)
        raise typer.Exit(NO_SOLUTION)
