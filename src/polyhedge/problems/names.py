"""What the entries of decisions and outcomes are called in tables and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from polyhedge._support.alignment import listed, names_of
from polyhedge._support.frames import as_pandas


@dataclass(frozen=True)
class Source:
    """Where a problem was written.

    Attributes
    ----------
    reference : a file, and the name in it.
    digest : SHA-256, of its text.
    """

    reference: str
    digest: str


class NamedParts:
    """What is made of named arguments alone, and says so where it is given another."""

    def __new__(cls, *given: Any, **parts: Any) -> Self:  # noqa: D102
        if given:
            raise TypeError(
                f"A DecisionProblem is made of named parts, got {type(given[0]).__name__} without a name. Write "
                "DecisionProblem(decision=z, cost=lambda z, u: ..., constraints=[...], n_outcomes=...). A "
                "cvxpy.Problem does not say what is uncertain in it: hand over its variables and constraints, and the "
                "cost as a function of the decision z and the outcome u."
            )
        return super().__new__(cls)


def as_names(names: Any) -> Any:
    """Names in a list: the columns of a data frame, the entries of a pandas Index; anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"heating": [1.0], "cooling": [2.0]})
    >>> as_names(frame) == as_names(frame.columns) == ["heating", "cooling"]
    True
    """
    if hasattr(names, "columns"):
        return list(names_of(as_pandas(names)) or ())
    return list(names) if hasattr(names, "tolist") else names


def check_names(names: Any, size: int, what: str, default: Sequence[str]) -> tuple[str, ...]:
    """Return one distinct name for each entry; the default ones where none are given.

    Examples
    --------
    >>> check_names(["heating", "cooling"], 2, "outcome_names", ["u_1", "u_2"])
    ('heating', 'cooling')
    """
    names = as_names(names)
    if isinstance(names, (list, tuple)) and not names and default:
        return tuple(default)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{what} must be a list of non-empty texts, or a frame with such columns, got {names!r}.")
    if len(names) != size:
        raise ValueError(f"{what} must have {size} name(s), one for each entry, got {len(names)}.")
    if len(set(names)) < size:
        raise ValueError(f"{what} must be distinct, got {list(names)}.")
    return tuple(names)


def check_units(units: Any, names: Sequence[str]) -> dict[str, str] | None:
    """What the "cost" and the entries of these names are measured in, as texts; None where nothing is said.

    Examples
    --------
    >>> check_units({"cost": "EUR", "demand": "loaves"}, ["demand", "order"])
    {'cost': 'EUR', 'demand': 'loaves'}
    """
    if units is None:
        return None
    if not isinstance(units, Mapping) or not all(isinstance(text, str) and text for text in units.values()):
        raise ValueError(f'units must be texts by name, such as {{"cost": "EUR"}}, got {units!r}.')
    unknown = [name for name in units if name not in ("cost", *names)]
    if unknown:
        raise ValueError(f"units has {unknown[0]!r}, but the names are: {listed(['cost', *names])}.")
    return dict(units)


def units_of(problem: Any, before: Any = None) -> dict[str, str] | None:
    """The units of a problem, checked; where it has none, those that it had before, by the names of now."""
    names = _all_names(problem)
    if problem.units is None and before is not None and before.units is not None:
        now = dict(zip(_all_names(before), names, strict=True))
        return {now.get(name, name): unit for name, unit in before.units.items()}
    return check_units(problem.units, names)


def _all_names(problem: Any) -> list[str]:
    return [*problem.outcome_names, *problem.decision_names, *(parameter.name for parameter in problem.parameters)]


def order_outcomes(names: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Columns that hold outcomes, in the order of the outcomes' `names` where they are called alike; else as given.

    Examples
    --------
    >>> order_outcomes(["heating", "cooling"], ["cooling", "heating"]), order_outcomes(["u_1", "u_2"], ["b", "a"])
    (('heating', 'cooling'), ('b', 'a'))
    """
    if set(given) == set(names):
        return tuple(names)
    for column, outcome in zip(given, names, strict=True):
        if column in names and column != outcome:
            raise ValueError(
                f"The columns {', '.join(given)} would stand for the outcomes {', '.join(names)} in this order, and so "
                f"{column} for {outcome}. Name the column of each outcome, in the order of the outcomes."
            )
    return tuple(given)


def default_outcome_names(n_outcomes: int) -> list[str]:
    """u_1, u_2, ..."""
    return [f"u_{i + 1}" for i in range(n_outcomes)]


def own_decision_names(problem: Any) -> list[str]:
    """What entries of a decision are called if no names are given: like the outcomes they belong to, or numbered."""
    layout, outcomes = problem.layout, list(problem.outcome_names)
    if problem.is_paired and (layout.n_given, layout.given_size) != (1, len(outcomes)):
        raise ValueError(
            f"is_paired=True needs one variable as decision, with an entry for each of {len(outcomes)} outcome(s), got "
            f"{layout.n_given} variable(s) with {layout.given_size} entries. Leave it out, and give decision_names."
        )
    if problem.is_paired and outcomes != default_outcome_names(len(outcomes)):
        return [f"{layout.names[0]}_{name}" for name in outcomes]
    return entry_names(layout.names[: layout.n_given], layout.shapes)


def entry_names(stems: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """Each stem with an index for each axis of its shape, row-major.

    Examples
    --------
    >>> entry_names(["z", "level"], [(1, 2), ()])
    ['z_1_1', 'z_1_2', 'level']
    """
    return [
        "_".join([stem, *(str(i + 1) for i in index)])
        for stem, shape in zip(stems, shapes[: len(stems)], strict=True)
        for index in np.ndindex(*shape)
    ]
