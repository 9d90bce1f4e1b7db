"""The rows of a history that can be used, their roles, and whether they are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.app.tables.options import TableOptions
from polyhedge.app.tables.parameters import Sources, parameters_of, sources_of, take_parameters
from polyhedge.app.tables.roles import copies_of, groups_of, holds_dates, times_of
from polyhedge.calibration import minimum_samples
from polyhedge.data.splits import IndexArray
from polyhedge.diagnostics import Code, Diagnostic
from polyhedge.fitting import reference_values
from polyhedge.planning.development import fewest_for_policy
from polyhedge.predictors.schema import Schema, features_of, outcomes_of
from polyhedge.predictors.table import Table
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.checks import outside_support
from polyhedge.problems.layout import order_outcomes as order_columns
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust import decide_knowing

__all__ = ["UsableRows", "check_solvable", "order_outcomes", "usable_rows"]


def order_outcomes(problem: DecisionProblem, outcomes: Sequence[str]) -> tuple[str, ...]:
    """The outcome columns in the order of the problem, which knows outcomes by name where it names them."""
    names = problem.outcome_names
    if not outcomes:
        outcomes = names
    if len(outcomes) != problem.n_outcomes:
        raise ValueError(
            f"The problem has {problem.n_outcomes} outcome(s) ({', '.join(names)}), but {len(outcomes)} outcome "
            f"column(s) were named: {', '.join(outcomes)}. Name one column for each."
        )
    return order_columns(names, outcomes)


def check_solvable(problem: DecisionProblem, outcome: Array, parameters: Mapping[str, Array]) -> None:
    """Raise if the problem has no least cost even where the outcome is known, here a typical one.

    `parameters` are their values (n, *shape) row by row; typical ones are taken.
    """
    if problem.parameters:
        values = parameter_rows(problem.parameters, parameters, len(next(iter(parameters.values()))))
        problem = problem.at_values(reference_values(problem, values))
    value = float(decide_knowing(problem, outcome[None])[1][0])
    if not np.isfinite(value):
        raise NoSolutionError(
            f"With the mean outcome {outcome.round(4).tolist()} known, the problem has no best decision: none "
            "satisfies the constraints, or the cost can be lowered without limit. Check constraints, bounds and signs."
        )


def usable_rows(
    table: Table, schema: Schema, problem: DecisionProblem, sources: Sources | None = None
) -> tuple[Any, Array, IndexArray, dict[str, Array], list[Diagnostic]]:
    """X, Y, numbers and parameters of the rows with outcomes and usable features, and what was left out."""
    X, reasons, _ = features_of(table, schema)
    values, lacking = parameters_of(table, problem, sources_of(problem, sources or {}))
    reasons = np.where(reasons == "", lacking, reasons)
    Y = outcomes_of(table, schema.outcomes)
    without_outcome = ~np.isfinite(Y).all(axis=1)
    unusable = np.array([bool(reason) for reason in reasons], dtype=bool) & ~without_outcome
    warnings = []
    if without_outcome.any():
        warnings.append(
            Diagnostic(
                Code.LEFT_OUT,
                f"{int(without_outcome.sum())} of {len(table)} rows have a missing outcome and were left out.",
            )
        )
    if unusable.any():
        first = int(np.flatnonzero(unusable)[0])
        text = f"{int(unusable.sum())} of {len(table)} rows cannot be used and were left out, the first is row "
        warnings.append(Diagnostic(Code.LEFT_OUT, f"{text}{first + 1}: {reasons[first]}."))
    kept = np.flatnonzero(~without_outcome & ~unusable)
    _check_support(problem, Y[kept], kept, table.source, schema.outcomes)
    return X.iloc[kept].reset_index(drop=True), Y[kept], kept, take_parameters(values, kept), warnings


@dataclass(frozen=True, eq=False)
class UsableRows:
    """The usable rows of a table with their roles."""

    X: Any
    Y: Array
    kept: IndexArray
    groups: Any
    times: Any
    unit: str
    warnings: tuple[Diagnostic, ...]
    parameters: Mapping[str, Array]

    @classmethod
    def of(cls, table: Table, schema: Schema, problem: DecisionProblem, options: TableOptions) -> UsableRows:
        """Read features, outcomes, times and groups; rows without outcome or time are left out."""
        X, Y, kept, values, warnings = usable_rows(table, schema, problem, options.parameters)
        times = None
        if options.time_column is not None:
            all_times = times_of(table, options.time_column)
            dated = np.isfinite(all_times[kept])
            if not dated.all():
                n_undated = int((~dated).sum())
                text = f"{n_undated} rows have no time in {options.time_column!r} and were left out."
                warnings.append(Diagnostic(Code.LEFT_OUT, text))
            X, Y, kept = X.iloc[np.flatnonzero(dated)].reset_index(drop=True), Y[dated], kept[dated]
            values = take_parameters(values, dated)
            times = all_times[kept]
            times = times.astype("datetime64[us]") if holds_dates(table, options.time_column) else times
        groups = groups_of(table, options.group)[kept] if options.group else None
        unit = "groups" if groups is not None else "rows"
        if groups is None:
            groups, about_copies = _copies(table, kept, options.copies)
            warnings += about_copies
        return cls(X, Y, kept, groups, times, unit, tuple(warnings), values)

    def check_size(self, source: str, alpha: float, shares: Sequence[float], guarantee: str) -> None:
        """Raise where rows that make a set or a policy, or those that calibrate it, would be too few for this alpha."""
        if len(shares) != 4:
            return
        needed, n = minimum_samples(alpha), len(self.Y) if self.groups is None else len(np.unique(self.groups))
        makes, roles, now = "learn from", (shares[1], shares[2]), (shares[1], shares[2])
        least = int(np.ceil(needed / max(min(roles), 1e-9)))
        if guarantee == "cost":
            rows_a_unit = len(self.Y) / max(n, 1)
            least, roles = fewest_for_policy(needed, shares, n, rows_a_unit)
            makes, now = "plan with", fewest_for_policy(0, shares, n, rows_a_unit)[1]
        if n < least:
            lost = f" ({' '.join(self.warnings).rstrip('.')})" if self.warnings else ""
            possible = f", or raise alpha to {_rounded_up(1 / (1 + np.floor(n * min(now))))}" if n >= 5 else ""
            raise ValueError(
                f"{source} has {n} usable {self.unit}{lost}, but alpha={alpha:g} needs at least {least}: {needed} to "
                f"{makes}, {roles[0]:.0%} of them, and {needed} to calibrate with, {roles[1]:.0%}. Bring more "
                f"{self.unit}{possible}."
            )


def _copies(table: Table, kept: IndexArray, copies: str) -> tuple[Any, list[Diagnostic]]:
    if copies not in ("together", "independent"):
        raise ValueError(f"copies must be 'together' or 'independent', got {copies!r}.")
    numbers = copies_of(table)[kept]
    n_copies = len(numbers) - len(np.unique(numbers))
    if not n_copies or copies == "independent":
        return None, []
    return numbers, [
        Diagnostic(
            Code.COPIES,
            f"Copies: {n_copies} rows are equal to an earlier one in every column. They were kept in one part and "
            "count once, because copies in two parts make a model look better than it is. If they are separate events, "
            "give --copies independent.",
        )
    ]


def _check_support(problem: DecisionProblem, Y: Array, kept: IndexArray, source: str, outcomes: Sequence[str]) -> None:
    outside = outside_support(problem, Y)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        values = ", ".join(f"{name} = {value:g}" for name, value in zip(outcomes, Y[first], strict=True))
        raise ValueError(
            f"{int(outside.sum())} row(s) of {source} hold outcomes that the problem says cannot occur, the first is "
            f"row {int(kept[first]) + 1} ({values}). Correct them, or the problem's outcome support."
        )


def _rounded_up(alpha: float) -> float:
    return float(np.ceil(alpha * 100) / 100)
