"""Flat vectors of several variables, and the names of their entries in tables and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.frames import as_pandas, listed, names_of
from polyhedge._support.validation import Array


@dataclass(frozen=True)
class Source:
    """The file in which a problem was written.

    Attributes
    ----------
    reference : a file, and the name in it.
    digest : SHA-256 of its text.
    """

    reference: str
    digest: str


@dataclass(frozen=True)
class Layout:
    """The slices of named variables in a flat vector: row-major, one variable after the other.

    The first `n_given` variables are the decision that the user declared. The others are auxiliary variables of the
    cost: chosen together with the decision, reported apart from it.

    Examples
    --------
    >>> layout = Layout(("on", "power", "w"), ((2,), (1, 2), ()), n_given=2)
    >>> layout.size, layout.of(np.array([[1.0, 0.0, 5.0, 6.0, 9.0]]), "power").tolist()
    (5, [[[5.0, 6.0]]])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    n_given: int

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """The entries of each variable."""
        ends = np.cumsum([0, *(np.prod(shape, dtype=np.int64) for shape in self.shapes)]).tolist()
        return tuple(slice(start, stop) for start, stop in pairwise(ends))

    @property
    def size(self) -> int:
        """Entries of all variables."""
        return self.slices[-1].stop

    @property
    def given_size(self) -> int:
        """Entries of the declared variables."""
        return self.slices[self.n_given - 1].stop

    def of(self, flat: Array, name: str) -> Array:
        """One variable of flat vectors (N, size), in its own shape: (N, *shape)."""
        if name not in self.names:
            raise KeyError(f"There is no variable {name!r}. Known are {', '.join(self.names)}.")
        k = self.names.index(name)
        return flat[:, self.slices[k]].reshape(len(flat), *self.shapes[k])

    def given(self, flat: Array) -> Array:
        """The declared decision: (N, *shape) of one variable (a scalar as (N, 1)), (N, given_size) of several."""
        if self.n_given == 1:
            return flat[:, self.slices[0]].reshape(len(flat), *(self.shapes[0] or (1,)))
        return flat[:, : self.given_size]

    def columns(self, flat: Array) -> list[Array]:
        """The columns of each variable in flat vectors (N, size)."""
        return [flat[:, part] for part in self.slices]

    def split(self, row: Array) -> list[Array]:
        """The variables of one flat vector, each in its shape."""
        return [row[part].reshape(shape) for part, shape in zip(self.slices, self.shapes, strict=True)]


def declared_variables(decision: Any) -> tuple[tuple[cp.Variable, ...], tuple[str, ...]]:
    """The variables of a decision (one, a list, or a dictionary of them) and what to call them."""
    if isinstance(decision, cp.Variable):
        return (decision,), (own_name(decision) or "z",)
    if not isinstance(decision, (list, tuple, dict)) or not decision:
        raise TypeError(
            f"decision must be a cvxpy.Variable, a list or a dictionary of them, got {type(decision).__name__}."
        )
    variables = tuple(decision.values() if isinstance(decision, dict) else decision)
    strange = [item for item in variables if not isinstance(item, cp.Variable)]
    if strange:
        raise TypeError(f"decision must hold nothing but cvxpy.Variables, got {type(strange[0]).__name__}.")
    if len({variable.id for variable in variables}) < len(variables):
        raise ValueError("decision names the same variable twice. Name each once.")
    own = (own_name(variable) or f"z{k}" for k, variable in enumerate(variables, start=1))
    names = tuple(decision if isinstance(decision, dict) else own)
    check_variable_names(names)
    return variables, names


def check_variable_names(names: Sequence[Any]) -> None:
    """Raise unless all names are distinct texts."""
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"Variables must be called by non-empty texts, got {list(names)}.")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f'Two variables are called {twice[0]!r}. Give them different names: cp.Variable(name="...").')


def own_name(leaf: cp.Variable | cp.Parameter) -> str:
    """The name that the user gave; empty if CVXPY made one up."""
    given: str = leaf.name()
    return "" if given in (f"var{leaf.id}", f"param{leaf.id}") else given


def as_names(names: Any) -> Any:
    """Names in a list: the columns of a data frame, the entries of a pandas Index; anything else as it is."""
    if hasattr(names, "columns"):
        return list(names_of(as_pandas(names)) or ())
    return list(names) if hasattr(names, "tolist") else names


def check_names(names: Any, size: int, what: str, default: Sequence[str]) -> tuple[str, ...]:
    """One distinct name for each entry; the default ones if none are given."""
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
    """The units of the "cost" and of entries of these names, as texts; None if none are given."""
    if units is None:
        return None
    if not isinstance(units, Mapping) or not all(isinstance(text, str) and text for text in units.values()):
        raise ValueError(f'units must be texts by name, such as {{"cost": "EUR"}}, got {units!r}.')
    unknown = [name for name in units if name not in ("cost", *names)]
    if unknown:
        raise ValueError(f"units has {unknown[0]!r}, but the names are: {listed(['cost', *names])}.")
    return dict(units)


def order_outcomes(names: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Columns that hold outcomes, in the order of the outcomes' `names` if these are the same; else as given."""
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
    """Default names of the entries of a decision: with those of the paired outcomes, else z_1_1, z_1_2, ..."""
    layout, outcomes = problem.layout, list(problem.outcome_names)
    if problem.is_paired and (layout.n_given, layout.given_size) != (1, len(outcomes)):
        raise ValueError(
            f"is_paired=True needs one variable as decision, with an entry for each of {len(outcomes)} outcome(s), got "
            f"{layout.n_given} variable(s) with {layout.given_size} entries. Leave it out, and give decision_names."
        )
    if problem.is_paired and outcomes != default_outcome_names(len(outcomes)):
        return [f"{layout.names[0]}_{name}" for name in outcomes]
    return [
        "_".join([stem, *(str(i + 1) for i in index)])
        for stem, shape in zip(layout.names[: layout.n_given], layout.shapes, strict=False)
        for index in np.ndindex(*shape)
    ]


def numbered_twins(names: Sequence[str]) -> list[str]:
    """The names; repeated ones get a number."""
    counts = [list(names[:i]).count(name) for i, name in enumerate(names)]
    return [name if not count else f"{name} ({count + 1})" for name, count in zip(names, counts, strict=True)]
