"""Values of a problem's parameters for the rows of a table: from columns, or one value for all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.predictors.schema import Labels
from polyhedge.predictors.table import Table, values_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import ProblemParameter

__all__ = ["Sources", "columns_in", "parameters_of", "read_sources", "sources_of", "take_parameters"]

Sources = Mapping[str, tuple[Any, ...]]
"""Where the values of each parameter come from: names of columns, or numbers, one for each of its entries."""


def read_sources(texts: Sequence[str]) -> Sources:
    """Sources from texts such as "stock=on_hand" (a column), "stock=12" (a number) or "caps=cap_a,cap_b".

    Examples
    --------
    >>> read_sources(["stock=on hand", "caps=3,4.5"])
    {'stock': ('on hand',), 'caps': (3.0, 4.5)}
    """
    sources: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, given = (part.strip() for part in text.partition("="))
        entries = tuple(entry.strip() for entry in given.split(","))
        if not (name and equals and all(entries)):
            raise ValueError(f"A parameter must be given as NAME=COLUMN or NAME=NUMBER, got {text!r}.")
        if name in sources:
            raise ValueError(f"The parameter {name} is given twice.")
        sources[name] = _numbers(entries) or entries
    return sources


def _numbers(entries: Sequence[str]) -> tuple[float, ...]:
    """The numbers that all entries are; nothing where one is none."""
    try:
        return tuple(float(entry) for entry in entries)
    except ValueError:
        return ()


def sources_of(problem: DecisionProblem, *given: Sources) -> Sources:
    """Where the values of all parameters come from, the last that was given first; else a column of the same name."""
    asked = {name: source for some in given for name, source in some.items()}
    names = [parameter.name for parameter in problem.parameters]
    strange = [name for name in asked if name not in names]
    if strange:
        has = f"It has {', '.join(names)}." if names else "It has none."
        raise ValueError(f"The problem has no parameter {strange[0]!r}. {has}")
    sources = {}
    for parameter in problem.parameters:
        source, size = asked.get(parameter.name, (parameter.name,)), max(int(np.prod(parameter.shape)), 1)
        if len(source) != size and not (len(source) == 1 and isinstance(source[0], float)):
            shown = ",".join(f"COLUMN_{i + 1}" for i in range(min(size, 3))) + ("" if size <= 3 else ",...")
            raise ValueError(
                f"The parameter {parameter.name} has {size} entries, so it needs as many columns or numbers, got "
                f"{len(source)}. Give --parameter {parameter.name}={shown}."
            )
        sources[parameter.name] = source
    return sources


def columns_in(sources: Sources) -> list[str]:
    """The columns that values come from."""
    return [name for source in sources.values() for name in source if isinstance(name, str)]


def parameters_of(table: Table, problem: DecisionProblem, sources: Sources) -> tuple[dict[str, Array], Labels]:
    """Values (n, *shape) of each parameter, and why a row has none (empty text where it has)."""
    absent = [name for name in columns_in(sources) if name not in table.frame.columns]
    if absent:
        owner = next(name for name, source in sources.items() if absent[0] in source)
        raise ValueError(
            f"{table.source} has no column {absent[0]!r} with the values of the parameter {owner}. Name another "
            f"column or give one value for all rows: --parameter {owner}=COLUMN or --parameter {owner}=NUMBER."
        )
    reasons = np.full(len(table), "", dtype=object)
    values = {p.name: _values(table, p, sources[p.name], reasons) for p in problem.parameters}
    return values, reasons


def _values(table: Table, parameter: ProblemParameter, source: tuple[Any, ...], reasons: Labels) -> Array:
    shape = (len(table), *parameter.shape)
    if isinstance(source[0], float):
        values = np.broadcast_to(np.reshape(source, parameter.shape if len(source) > 1 else ()), shape).copy()
        if len(table):
            parameter.check(values[:1])  # the same in all rows: no reason of a row
        return values
    columns = []
    for name in source:
        entries, is_text = values_of(table.frame[name])
        for row in np.flatnonzero(~np.isfinite(entries)):
            what = f"is not a number: {str(table.frame[name].iloc[row])!r}" if is_text[row] else "is missing"
            reasons[row] = f"{reasons[row]}; {name} {what}" if reasons[row] else f"{name} {what}"
        columns.append(entries)
    values = np.column_stack(columns).reshape(shape)
    there = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    for row in np.flatnonzero(there):
        if not parameter.allows(values[row : row + 1])[0]:
            reasons[row] = "; ".join(text for text in (reasons[row], parameter.demand_of(values[row])) if text)
    return values


def take_parameters(values: Mapping[str, Array], rows: Any) -> dict[str, Array]:
    """The values of some rows."""
    return {name: value[rows] for name, value in values.items()}
