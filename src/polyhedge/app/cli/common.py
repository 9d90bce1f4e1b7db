"""What commands share: rows of a table for a model, results as lines and as JSON, exit codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from polyhedge._support.text import amount, with_unit
from polyhedge.app.cli.app import say, say_json

if TYPE_CHECKING:
    from polyhedge.app.rows import Sources, TableRows
    from polyhedge.estimator import RobustDecider
    from polyhedge.evaluation import Estimate, Evaluation, Proportion
    from polyhedge.io.fit_record import FitRecord
    from polyhedge.predictors.table import Table
    from polyhedge.solvers.program import Status

BAD_INPUT, NO_SOLUTION, STOPPED_EARLY = 2, 3, 4
"""Exit codes; 1 is left to faults of the library."""


def model_rows(
    decider: RobustDecider, record: FitRecord, table: Table, parameter: Sequence[str] | None = None, **more: Any
) -> TableRows:
    """The usable rows of a table for a model; `more` as in `table_rows`."""
    from polyhedge.app.rows import table_rows

    record = replace(record, parameters=sources_in(decider, record, parameter))
    return table_rows(table, decider.problem_, record, decider.model_.radii, **more)


def sources_in(decider: RobustDecider, record: FitRecord, parameter: Sequence[str] | None) -> Sources:
    """Where the values of the problem's parameters come from: as asked now, else as in the fit."""
    from polyhedge.app.rows import read_sources, sources_of

    return sources_of(decider.problem_, record.parameters, read_sources(parameter or []))


def sources_in_words(sources: Sources) -> str:
    """The same for a reader."""
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


def part_sizes(decider: RobustDecider) -> dict[str, int]:
    """Rows of each part of the fit."""
    return {name: len(getattr(decider.split_, name)) for name in ("train", "learn", "calibrate", "held_out")}


def tell(lines: Sequence[tuple[str, str]]) -> None:
    """Print labelled lines, the labels in one column."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        say(f"{label:<{width}}  {text}".rstrip())


def warn(messages: Sequence[str]) -> None:
    """Print warnings to stderr, one a line."""
    for message in messages:
        say(f"warning: {message}", err=True)


def tell_json(payload: Mapping[str, Any], *, err: bool = False) -> None:
    """Print one JSON object; numbers that JSON cannot write become null."""
    say_json(plain(payload), err=err)


def plain(value: Any) -> Any:
    """Dictionaries, lists, texts and finite numbers only.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"radius": np.float64(1.5), "gap": float("inf")})
    {'radius': 1.5, 'gap': None}
    """
    import numpy as np

    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return str(value) if isinstance(value, (Path, Enum)) else value


def evaluation_lines(evaluation: Evaluation, thinned: Proportion | None = None) -> list[tuple[str, str]]:
    """What held on rows that were not used for fitting; `thinned` is the coverage of one row a group."""
    n = evaluation.coverage.n
    rows = f"{n} rows" if not evaluation.without_bound > 0 else f"{n} rows with a bound"
    observed = f"{evaluation.coverage} on {rows}"
    if thinned is not None:
        # Near-copies are no independent evidence, so an interval from all rows would be too narrow.
        observed = f"{evaluation.coverage.value:.3f} on {rows}, {thinned} on one row of each of {thinned.n} groups"
    unit, over = evaluation.cost_unit, evaluation.over_nominal
    realised, difference = amount(evaluation.realised_cost, unit), f"{'+' if over > 0 else ''}{over}"
    expected = evaluation.expected_cost
    realised = f"realised {realised}" if expected is None else f"expected {amount(expected, unit)}, realised {realised}"
    return [
        ("coverage", f"promised {evaluation.promised:.6g}, observed {observed}"),
        *_held_lines(evaluation),
        *_unbounded_lines(evaluation),
        ("cost", f"bound {amount(_estimate(evaluation.worst_case_cost), unit)}, {realised}"),
        ("regret", f"{amount(evaluation.regret, unit)} above the best decision in hindsight"),
        ("vs nominal", f"{amount(difference, unit)} against trusting the prediction"),
    ]


def _held_lines(evaluation: Evaluation) -> list[tuple[str, str]]:
    """What is promised holds together: a bound alone is not good news where a constraint was violated."""
    bound = ("bound held", f"{evaluation.bound_held} of these rows cost no more than their bound")
    if not evaluation.constraints:
        return [bound]
    nominal = f"trusting the prediction {evaluation.nominal_constraints_held}"
    return [
        ("promise held", f"{evaluation.promise_held} of these rows kept to bound and constraints together"),
        bound,
        ("constraints held", f"{evaluation.constraints_held} of these rows kept to all of them, {nominal}"),
        *(("", f"{one.name}: {one}") for one in evaluation.constraints),
    ]


def _unbounded_lines(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Rows that are in no share of what held."""
    lines = []
    if evaluation.without_bound > 0:
        lines.append(("no bound", f"{evaluation.without_bound} of all rows, for which nothing is promised"))
        lines.append(("not missed", f"{evaluation.not_missed} of all rows, where those without a bound count as held"))
    if evaluation.n_unpromised:
        lines.append(("no promise", f"{evaluation.n_unpromised} of the rows have a bound that is not promised"))
    return lines


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


def _estimate(estimate: Estimate) -> str:
    # A bound that is the same for all rows has no error worth telling.
    is_constant = estimate.standard_error <= 1e-9 * abs(estimate.value)
    return f"{estimate.value:.4g}" if is_constant else str(estimate)


def tell_groups(by: str, groups: dict[str, Evaluation], *, is_promised: bool) -> None:
    """A table with a line for each group, and whom the promise is for."""
    has_constraints = any(evaluation.constraints for evaluation in groups.values())
    held = ["constraints"] if has_constraints else []
    is_bounded = not any(evaluation.without_bound > 0 for evaluation in groups.values())
    heads = [by, "rows", *([] if is_bounded else ["no bound"]), "coverage", *held]
    unit = next((evaluation.cost_unit for evaluation in groups.values()), "")
    is_expected = any(evaluation.expected_cost is not None for evaluation in groups.values())
    costs = ("bound", *(["expected"] if is_expected else []), "realised", "regret", "vs nominal")
    heads += [with_unit(name, unit) for name in costs]
    rows = [
        [
            label,
            str(evaluation.without_bound.n),
            *([] if is_bounded else [str(evaluation.without_bound.n - evaluation.coverage.n)]),
            str(evaluation.coverage),
            *([str(evaluation.constraints_held)] if has_constraints else []),
            f"{evaluation.worst_case_cost.value:.4g}",
            *(
                ["unknown" if (cost := evaluation.expected_cost) is None else f"{cost.value:.4g}"]
                if is_expected
                else []
            ),
            f"{evaluation.realised_cost.value:.4g}",
            f"{evaluation.regret.value:.4g}",
            f"{evaluation.over_nominal.value:+.3g}",
        ]
        for label, evaluation in groups.items()
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    say()
    for row in [heads, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        say("  ".join(cells))
    if is_promised:
        say("The promise is for each of these categories that had enough calibration rows, and for no other.")
        return
    say("The promise is an average over all rows. A group may be covered less often without breaking it.")


def tell_short(whole: Evaluation, *, are_independent: bool) -> None:
    """How intervals of many groups are to be read, and which groups fall short beyond chance."""
    say("The intervals hold for all groups at once, in 95 % of cases (Bonferroni).")
    if not are_independent:
        say("They take rows for independent; rows that belong together make them too narrow.")
        return
    short = [group.label for group in whole.groups if group.is_short]
    if short:
        say(f"Covered less than promised, beyond chance: {', '.join(short)}.")
