"""What the commands on the user's own data share: options, files, and how results are told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge._support.text import amount
from polyhedge.app import tables
from polyhedge.app.cli.output import say, say_json
from polyhedge.app.tables.limits import MAX_VALUES

if TYPE_CHECKING:
    from polyhedge.app.tables import Table
    from polyhedge.evaluation import Estimate, Evaluation, Proportion
    from polyhedge.problems import DecisionProblem
    from polyhedge.solvers.program import Status

Parameter = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=COLUMN",
        help="Column with a parameter of the problem, or one number for all rows; by default the column of its name.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

# What a command ends with; 1 is left to faults of the library.
BAD_INPUT, NO_SOLUTION, STOPPED_EARLY = 2, 3, 4


def names_in(text: str | None) -> tuple[str, ...]:
    """Names separated by commas.

    Examples
    --------
    >>> names_in("heating_load, cooling_load")
    ('heating_load', 'cooling_load')
    """
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@dataclass(frozen=True)
class Reading:
    """How the user's table is read."""

    separator: Annotated[
        str | None, typer.Option(help="Character between values of a CSV file; found out if not given.")
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Encoding of a CSV file, such as utf-8 or cp1252.")] = None
    decimal: Annotated[
        str | None, typer.Option(help="Decimal sign of a CSV file: '.' or ','; found out if not given.")
    ] = None
    missing: Annotated[str | None, typer.Option(help="More words for a missing value, separated by commas.")] = None
    max_values: Annotated[
        int,
        typer.Option(min=1, help="Values (rows times columns) beyond which a table is refused, to spare the memory."),
    ] = MAX_VALUES

    def table(self, path: Path) -> Table:
        """The table in a file."""
        return tables.read_table(
            path,
            separator=self.separator,
            encoding=self.encoding,
            decimal=self.decimal,
            missing=names_in(self.missing),
            max_values=self.max_values,
        )


def read_problem(reference: str, uncertain: str | None = None) -> DecisionProblem:
    """A problem from a TOML file, an MPS file and what is uncertain in it, or Python code as FILE.py:NAME."""
    from polyhedge import problems

    if reference.endswith((".mps", ".mps.gz")):
        return problems.from_mps(reference, _uncertain(reference, uncertain))
    if uncertain is not None:
        raise ValueError(f"--uncertain is for MPS files, and {reference!r} says itself what is. Leave it out.")
    if ".py:" in reference:
        return problems.from_reference(reference)
    if not reference.endswith(".toml"):
        raise ValueError(f"The problem must be a .toml or .mps file, or FILE.py:NAME, got {reference!r}.")
    if not Path(reference).is_file():
        raise FileNotFoundError(f"There is no file {reference}. Check the path.")
    return problems.from_toml(reference)


def _uncertain(path: str, text: str | None) -> Any:
    """Names of columns and rows, or a dictionary of them where a name is both."""
    if not (text or "").strip():
        raise ValueError(
            f"{path} does not say what is uncertain in it. Name columns whose costs, and rows whose right-hand sides "
            "are: --uncertain NAME,NAME"
        )
    if not str(text).lstrip().startswith("{"):
        return names_in(str(text))
    try:
        return json.loads(str(text).replace("'", '"'))
    except json.JSONDecodeError as error:
        raise ValueError(
            f'--uncertain must be NAME,NAME or {{"columns": [...], "rows": [...]}}, got {text!r}.'
        ) from error


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
