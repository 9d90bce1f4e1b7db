"""What commands share: results as lines and as JSON, exit codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from polyhedge.app.cli.app import say, say_json

if TYPE_CHECKING:
    from polyhedge.app.rows import Observed, Sources, TableRows
    from polyhedge.estimator import RobustDecider
    from polyhedge.io.fit_record import FitRecord
    from polyhedge.solvers.program import Status

BAD_INPUT, NO_SOLUTION, STOPPED_EARLY = 2, 3, 4
"""Exit codes; 1 is left to faults of the library."""


def sources_in_words(sources: Sources) -> str:
    """Where the values of the problem's parameters come from, for a reader."""
    return ", ".join(
        name if source == (name,) else f"{name} = {', '.join(map(str, source))}" for name, source in sources.items()
    )


def seen_before(decider: RobustDecider, rows: TableRows) -> list[Any]:
    """Whether rows trained or shaped the model: then its coverage on them is not to be trusted."""
    from polyhedge.diagnostics import fresh_rows_diagnostic

    model = decider.model_
    return fresh_rows_diagnostic(model, model.read(rows.X, rows.Y, to_score=True))


def n_units(decider: RobustDecider, record: FitRecord) -> int:
    """How many independent rows or groups set the radius."""
    return decider.n_calibrate_ if record.n_groups is None else record.n_groups


def tell(lines: Mapping[str, str]) -> None:
    """Print labelled lines, the labels in one column."""
    width = max(map(len, lines))
    for label, text in lines.items():
        say(f"{label:<{width}}  {text}".rstrip())


def tell_evaluation(seen: Observed) -> None:
    """Print an evaluation; its diagnostics are warnings of the command, and come last."""
    for line in seen.evaluation.lines():
        say(line)
    if seen.thinned is not None:  # near-copies are no independent evidence: an interval from all rows is too narrow
        say(f"one row a group  {seen.thinned} of {seen.thinned.n} groups covered")


def warn(messages: Sequence[str]) -> None:
    """Print warnings to stderr, one a line."""
    for message in messages:
        say(f"warning: {message}", err=True)


def tell_json(payload: Mapping[str, Any], *, err: bool = False) -> None:
    """Print one JSON object; numbers that JSON cannot write become null."""
    say_json(plain(payload), err=err)


def plain(value: Any) -> Any:
    """Dictionaries, lists, texts and finite numbers only."""
    import numpy as np

    if is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in fields(value) if field.repr})
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else None
    return str(value) if isinstance(value, (Path, Enum)) else value


def check_statuses(statuses: Sequence[Status]) -> None:
    """End with the exit code that the statuses of solves ask for; go on where all are optimal."""
    from polyhedge.solvers.program import Status

    no_solution = (Status.INFEASIBLE, Status.UNBOUNDED, Status.UNBOUNDED_SET, Status.EMPTY_SET, Status.REFUSED)
    if any(status in no_solution for status in statuses):
        raise typer.Exit(NO_SOLUTION)
    if any(status is Status.STOPPED_EARLY for status in statuses):
        raise typer.Exit(STOPPED_EARLY)
    if any(status is Status.FAILED for status in statuses):
        raise typer.Exit(1)
