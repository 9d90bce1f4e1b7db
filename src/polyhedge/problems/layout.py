"""Several variables as one flat vector: row-major, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array


@dataclass(frozen=True)
class Layout:
    """Where each named variable stands in a flat vector.

    The first `n_given` variables are the decision that the user declared; the others are auxiliary: met in the cost,
    chosen together with the decision, and reported apart from it.

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
    """The variables of a decision (one, a list, or a dictionary of them) and what to call them.

    Examples
    --------
    >>> declared_variables([cp.Variable(2), cp.Variable(name="power")])[1]
    ('z1', 'power')
    """
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
    if isinstance(decision, dict):
        names = tuple(decision)
    else:
        names = tuple(own_name(variable) or f"z{k}" for k, variable in enumerate(variables, start=1))
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
    """The name that the user gave; empty where CVXPY made one up."""
    given: str = leaf.name()
    return "" if given in (f"var{leaf.id}", f"param{leaf.id}") else given


def in_structure(decision: Any, leaves: Sequence[Any]) -> Any:
    """Other leaves in the structure of a decision: one, a list, a tuple or a dictionary."""
    if isinstance(decision, Mapping):
        return dict(zip(decision, leaves, strict=True))
    if isinstance(decision, list):
        return list(leaves)
    return tuple(leaves) if isinstance(decision, tuple) else leaves[0]


def leaves_of(decision: Any, given: Any) -> list[Any]:
    """What stands at the variables' places in something of a decision's structure."""
    if isinstance(decision, Mapping):
        return [given[name] for name in decision]
    return list(given) if isinstance(decision, (list, tuple)) else [given]
