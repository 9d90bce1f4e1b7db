"""Rows that a model has not seen: which of them can be used, which belong together, and whether it has seen them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhedge.app import tables

if TYPE_CHECKING:
    from polyhedge._support.validation import Array
    from polyhedge.app.tables import Diagnostic, FitRecord, Sources, Table
    from polyhedge.estimator import RobustDecider

# Share of a model's training and learning rows in a table beyond which the table is no fresh one.
_NOTABLE_OVERLAP = 0.02


class FreshRows(NamedTuple):
    """The rows of a table that can be used."""

    X: Any
    Y: Array
    numbers: Any
    groups: Any
    parameters: dict[str, Array]
    labels: Any
    warnings: list[Diagnostic]


def fresh_rows(
    decider: RobustDecider, kept: FitRecord, table: Table, parameter: Sequence[str] | None = None
) -> FreshRows:
    """The rows that can be used, with groups (or None); what was left out, and whether the model knows them."""
    sources = sources_in(decider, kept, parameter)
    X, Y, usable, values, warnings = tables.usable_rows(with_rows(table), kept.schema, decider.problem_, sources)
    check_any(usable, table)
    groups = groups_in(kept, table)
    groups = None if groups is None else groups[usable]
    labels = labels_in(decider, kept, table, usable)
    return FreshRows(X, Y, usable, groups, values, labels, [*warnings, *seen_before(kept, table)])


def sources_in(decider: RobustDecider, kept: FitRecord, parameter: Sequence[str] | None) -> Sources:
    """Where the values of the problem's parameters come from: as asked now, else as in the fit."""
    return tables.sources_of(decider.problem_, kept.parameters, tables.read_sources(parameter or []))


def labels_in(decider: RobustDecider, kept: FitRecord, table: Table, numbers: Any) -> Any:
    """Labels or weights of rows by their numbers, where the model was calibrated by a column that is no feature."""
    if kept.labels is None:
        return None
    from polyhedge.calibration import reads_weights

    are_weights = reads_weights(decider.model_.radii)
    return tables.labels_or_weights(table, kept.labels, are_weights=are_weights)[numbers]


def sources_in_words(sources: Sources) -> str:
    """The same for a reader."""
    return ", ".join(
        name if source == (name,) else f"{name} = {', '.join(map(str, source))}" for name, source in sources.items()
    )


def with_rows(table: Table) -> Table:
    """The table, if it has rows."""
    if not len(table):
        raise ValueError(f"{table.source} has the names of columns but no rows.")
    return table


def check_any(kept: Sequence[int] | Any, table: Table) -> None:
    """Raise where no row is left."""
    if not len(kept):
        raise ValueError(
            f"No row of {table.source} can be used: in every one an outcome is missing, or a feature is missing or of "
            "another kind than when the model was fitted. Bring rows whose outcomes are known, in the same columns."
        )


def groups_in(kept: FitRecord, table: Table) -> Any:
    """Labels of the table's rows, where the model was fitted by groups and the table has their columns."""
    columns = [name for name in kept.group if name in table.frame.columns]
    return tables.groups_of(table, columns) if columns else None


def prints_of(kept: FitRecord, table: Table, **most: int) -> tuple[str, ...]:
    """Fingerprints of what the model knows of the rows of a table."""
    return tables.row_prints(table, [*kept.schema.source_names, *kept.schema.outcomes], **most)


def seen_before(kept: FitRecord, table: Table) -> list[Diagnostic]:
    """Whether rows of the table trained or shaped the model: then nothing it says about them can be trusted."""
    there = set(prints_of(kept, table, most=0))
    share = max(len(there.intersection(known)) / max(len(known), 1) for known in (kept.seen, kept.trained))
    if share <= _NOTABLE_OVERLAP:
        return []
    return [
        tables.Diagnostic(
            tables.Code.SEEN,
            f"Seen before: about {share:.0%} of the rows that trained or shaped the model are in {table.source}. "
            "Coverage measured or promised with them is not to be trusted. Use rows that the model has not seen.",
        )
    ]


def seen_by_model(decider: RobustDecider, X: Any, Y: Any) -> list[Diagnostic]:
    """The same by what the model itself keeps of its rows, where it was fitted in Python."""
    from polyhedge.diagnosing import row_hashes, seen_diagnostic, seen_rows

    model = decider.model_
    return seen_diagnostic(seen_rows(model), row_hashes(model.features(X), model.outcomes(X, Y)))


def n_units(decider: RobustDecider, kept: FitRecord) -> int:
    """How many independent pieces of evidence set the radius: groups where there were any, else rows."""
    return decider.n_calibrate_ if kept.n_groups is None else kept.n_groups
