"""Flat vectors of several variables or parameters, the names of their entries, and values that every call gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.frames import as_pandas, check_same_rows, listed, names_of
from polyhedge._support.tolerances import INPUT
from polyhedge._support.validation import Array, Mask, as_finite


@dataclass(frozen=True)
class Source:
    """The file in which a problem was written, with the name in it (`reference`), and a `digest` of its text."""

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


def declared_variables(
    decision: Any, what: str = "decision", stem: str = "z"
) -> tuple[tuple[cp.Variable, ...], tuple[str, ...]]:
    """The variables of a decision (one, a list, or a dictionary of them) and what to call them."""
    if isinstance(decision, cp.Variable):
        return (decision,), (own_name(decision) or stem,)
    parts = decision.values() if isinstance(decision, dict) else decision
    if not isinstance(decision, (list, tuple, dict)) or not all(isinstance(part, cp.Variable) for part in parts or [0]):
        raise TypeError(f"{what} must be a cvxpy.Variable, a list or a dictionary of them, got {decision!r:.60}.")
    variables = tuple(parts)
    if len({variable.id for variable in variables}) < len(variables):
        raise ValueError(f"{what} names the same variable twice. Name each once.")
    own = (own_name(variable) or f"{stem}{k}" for k, variable in enumerate(variables, start=1))
    names = tuple(decision if isinstance(decision, dict) else own)
    check_variable_names(names)
    return variables, names


def check_variable_names(names: Sequence[Any], kind: str = "Variable") -> None:
    """Raise unless all names are distinct texts."""
    twice = [name for name in names if names.count(name) > 1]
    if twice or not all(isinstance(name, str) and name for name in names):
        raise ValueError(
            f'Each {kind.lower()} must have a name of its own, got {list(names)}. Give them: cp.{kind}(name="...").'
        )


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
    return entry_names(layout)


def entry_names(layout: Layout) -> list[str]:
    """stem_1_1, stem_1_2, ... of the declared variables."""
    return [
        "_".join([stem, *(str(i + 1) for i in index)])
        for stem, shape in zip(layout.names[: layout.n_given], layout.shapes, strict=False)
        for index in np.ndindex(*shape)
    ]


def numbered_twins(names: Sequence[str]) -> list[str]:
    """The names; repeated ones get a number."""
    counts = [list(names[:i]).count(name) for i, name in enumerate(names)]
    return [name if not count else f"{name} ({count + 1})" for name, count in zip(names, counts, strict=True)]


# Parameters: inputs of a problem, for all rows or row by row


@dataclass(frozen=True, eq=False)
class ProblemParameter:
    """An input of a problem: its name, and the leaf without a value that stands for it in the formulas.

    `origin` is the id of the user's own `cp.Parameter`, which can serve as a key.
    """

    name: str
    leaf: cp.Parameter
    origin: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value."""
        return tuple(self.leaf.shape)

    @classmethod
    def standing_for(cls, own: cp.Parameter, name: str) -> ProblemParameter:
        """The input that a user's parameter is: its shape and attributes, but never its value."""
        return cls(name, cp.Parameter(own.shape, name=name, **_set_attributes(own)), own.id)

    def attributes(self) -> dict[str, Any]:
        """The attributes that are set."""
        return _set_attributes(self.leaf)

    def check(self, values: Array) -> None:
        """Raise unless every value (n, *shape) has the parameter's attributes."""
        bad = ~self.allows(values)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"The parameter {self.demand_of(values[row])}{f' in row {row}' if len(values) > 1 else ''}. "
                "Correct the value, or the attributes of the parameter."
            )

    def demand_of(self, value: Array) -> str:
        """An error text: the attributes that the parameter must have, and a value without them."""
        demands = ", ".join(
            f"in {setting}" if key == "bounds" else f"a {key} matrix" if key in ("PSD", "NSD") else key
            for key, setting in self.attributes().items()
        )
        text = " ".join(str(value.tolist()).split())
        return f"{self.name} must be {demands}, got {text if len(text) <= 60 else f'{text[:57]}...'}"

    def allows(self, values: Array) -> Mask:
        """Whether each value (n, *shape) has the parameter's attributes."""
        lower, upper = self._limits()
        low, high = lower - INPUT * (1 + np.abs(lower)), upper + INPUT * (1 + np.abs(upper))
        off = np.asarray((values < low) | (values > high))
        if self.leaf.attributes.get("integer") or self.leaf.attributes.get("boolean"):
            off = off | (np.abs(values - np.round(values)) > INPUT)
        bad: Mask = np.array(off.any(axis=tuple(range(1, off.ndim))))
        for row in range(len(values)) if self.is_matrix_kind else ():
            try:
                cp.Parameter(self.shape, value=values[row], **self.attributes())
            except ValueError:
                bad[row] = True
        return ~bad

    def sample(self, rng: np.random.Generator) -> Array:
        """A value that the parameter may have."""
        lower, upper = self._limits()
        value = np.clip(0.5 + np.abs(rng.normal(size=self.shape)), lower, upper)
        if self.leaf.attributes.get("nonpos") or self.leaf.attributes.get("neg"):
            value = np.clip(-0.5 - np.abs(rng.normal(size=self.shape)), lower, upper)
        if self.leaf.attributes.get("integer") or self.leaf.attributes.get("boolean"):
            value = np.round(value)
        if self.is_matrix_kind:
            projected = self.leaf.project(value)
            value = projected.toarray() if hasattr(projected, "toarray") else projected
        return np.asarray(value, dtype=np.float64)

    @property
    def is_matrix_kind(self) -> bool:
        """Whether it must be a matrix of some kind, such as a positive semidefinite one."""
        return any(self.leaf.attributes.get(key) for key in ("PSD", "NSD", "symmetric", "diag", "sparsity"))

    def _limits(self) -> tuple[Array, Array]:
        lower, upper = np.full(self.shape, -np.inf), np.full(self.shape, np.inf)
        attributes = self.leaf.attributes
        if attributes.get("nonneg") or attributes.get("pos") or attributes.get("boolean") is True:
            lower = np.maximum(lower, 0.0)
        if attributes.get("nonpos") or attributes.get("neg"):
            upper = np.minimum(upper, 0.0)
        if attributes.get("boolean") is True:
            upper = np.minimum(upper, 1.0)
        if attributes.get("bounds") is not None:
            low, high = attributes["bounds"]
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        return lower, upper


def _set_attributes(leaf: cp.Parameter) -> dict[str, Any]:
    return {
        key: setting
        for key, setting in leaf.attributes.items()
        if not (setting is None or setting is False or (isinstance(setting, (list, tuple)) and not len(setting)))
    }


def parameter_names(parameters: Sequence[cp.Parameter]) -> list[str]:
    """Names of parameters: their own, p1, p2, ... if they have none."""
    names = [own_name(parameter) or f"p{k}" for k, parameter in enumerate(parameters, start=1)]
    check_variable_names(names, "Parameter")
    return names


def sample_values(parameters: Sequence[ProblemParameter], rng: np.random.Generator) -> Array:
    """Flat values that all parameters may have, not too special."""
    return np.concatenate([np.zeros(0), *(parameter.sample(rng).ravel() for parameter in parameters)])


def layout_of(parameters: Sequence[ProblemParameter]) -> Layout:
    """The slices of parameters in a flat vector of all of them."""
    return Layout(tuple(p.name for p in parameters), tuple(p.shape for p in parameters), len(parameters))


def parameter_rows(
    parameters: Sequence[ProblemParameter], given: Mapping[Any, Any] | None, n: int, frame: Any = None
) -> Array:
    """Values for n rows as flat vectors (n, size), from one value or one value a row of each parameter.

    Values are `given` by name or by the user's own `cp.Parameter`, in the parameter's shape, or as (n, *shape); columns
    of a `frame` are read as `from_columns` says.

    Examples
    --------
    >>> stock = ProblemParameter.standing_for(cp.Parameter(name="stock", nonneg=True), "stock")
    >>> parameter_rows([stock], {"stock": [1.0, 2.0]}, 2).tolist()
    [[1.0], [2.0]]
    """
    values = from_columns(parameters, given, frame)
    missing = [p.name for p in parameters if p.name not in values]
    if missing:
        first = missing[0]
        raise ValueError(
            f"The problem has the parameter{'s' * (len(missing) > 1)} {', '.join(missing)} without a value. Give "
            f'parameters={{"{first}": one value, or one for each row}} in this call, or a data frame X with a column '
            f"{first} where the parameter has one entry, or write the problem with "
            f"constants=[{first}] to keep the value that the cp.Parameter has at that moment."
        )
    rows = [np.zeros((n, 0))]
    for parameter in parameters:
        shape, name, value = parameter.shape, f"The parameter {parameter.name}", values[parameter.name]
        value = value.toarray() if hasattr(value, "toarray") else value
        array = as_finite(value, name, ndim=np.ndim(value))
        if array.shape not in (shape, (n, *shape)):
            raise ValueError(
                f"{name} must have shape {shape} (one value for all rows) or {(n, *shape)} (one for each row), got "
                f"{array.shape}."
            )
        each = array[None] if array.shape == shape else array
        parameter.check(each)
        rows.append(np.broadcast_to(each, (n, *shape)).reshape(n, math.prod(shape)))
    return np.concatenate(rows, axis=1)


def by_row(parameters: Sequence[ProblemParameter], values: Array) -> dict[str, Array]:
    """Values (n, *shape) by the parameters' names, from the flat ones (n, size) that `parameter_rows` makes."""
    columns = layout_of(parameters).columns(values)
    return {p.name: part.reshape(len(values), *p.shape) for p, part in zip(parameters, columns, strict=True)}


def from_columns(parameters: Sequence[ProblemParameter], given: Any, frame: Any) -> dict[str, Any]:
    """Values by name, read where columns of the frame were named: a text, or a list of texts for several entries.

    A parameter that is not given is read from the column of its name, see `with_columns`.
    """
    if parameters:
        frame = as_pandas(frame)
    known = [str(name) for name in getattr(frame, "columns", ())]
    values = with_columns(parameters, given, known)
    for name, value in values.items():
        check_same_rows({"X": frame, f"parameters[{name!r}]": value})
        columns = column_names(value)
        missing = [column for column in columns if column not in known]
        if missing:
            raise ValueError(
                f"There is no column {missing[0]!r} to take the values of a parameter from. "
                + (
                    f"The table has {', '.join(known)}."
                    if known
                    else "Names of columns need a data frame: give numbers."
                )
            )
        if columns:
            try:
                values[name] = frame[value if isinstance(value, str) else columns].to_numpy(dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"The column(s) {', '.join(columns)} must hold numbers: {error}.") from error
    return values


def with_columns(parameters: Sequence[ProblemParameter], given: Any, columns: Any) -> dict[str, Any]:
    """The given values by name; a scalar parameter without one is read from the column of its name, if there is one."""
    found = {p.name: [p.name] if p.shape else p.name for p in parameters if p.shape in ((), (1,)) and p.name in columns}
    if not isinstance(given, Mapping | None):
        raise TypeError(f'parameters must be a dictionary such as {{"stock": 3.0}}, got {type(given).__name__}.')
    by_origin = {p.origin: p.name for p in parameters}
    names, values = {p.name for p in parameters}, dict[str, Any]()
    for key, value in (given or {}).items():
        name = by_origin.get(key.id) if isinstance(key, cp.Parameter) else key
        if name not in names:
            shown = key.name() if isinstance(key, cp.Parameter) else key
            raise ValueError(
                f"The problem has no parameter {shown!r}. "
                + (f"It has {', '.join(sorted(names))}." if names else "It has none: leave parameters out.")
            )
        values[name] = value
    return found | values


def column_names(value: Any) -> list[str]:
    """The columns that a value names; none if it is a number or an array."""
    if isinstance(value, str):
        return [value]
    is_list = isinstance(value, (list, tuple)) and bool(value) and all(isinstance(name, str) for name in value)
    return list(value) if is_list else []
