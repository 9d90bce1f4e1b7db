"""Decision problems from TOML files: ready-made ones, linear and quadratic programs (docs/problem-file.md)."""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge.problems import ready_made
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.names import Source
from polyhedge.problems.tabled import Row, Rows, TabledCost, read_cost, read_rows
from polyhedge.problems.toml_table import Table, is_number
from polyhedge.problems.toml_text import MAX_BYTES, read_toml
from polyhedge.problems.violations import each_once

_GENERAL = "program"
_READY_MADE: dict[str, Callable[..., DecisionProblem]] = {
    name: getattr(ready_made, name)
    for name in ("newsvendor", "portfolio", "simplex_linear", "simplex_newsvendor", "simplex_quadratic")
}
_SWITCHES = ("integer", "nonnegative_demand")
# Entries of one variable: more are a matter for CVXPY itself.
_MAX_ENTRIES = 10_000
MAX_PAIRS = 1_000_000
"""Pairs of an outcome and a decision: every piece of the cost has a coefficient for each, which makes 8 MB."""
_LIMITS = ["lower", "upper", "integer"]
_TOP = ["kind", "name", "outcomes", "decisions", "parameters", "cost", "constraints", "support", "units", *_LIMITS]

_ANY = {"lower": -np.inf, "upper": np.inf}
_SIGNED = ((-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0))
"""Limits of a parameter that its sign says already."""


def from_toml(path: str | Path) -> DecisionProblem:
    """Read a decision problem from a TOML file.

    Parameters
    ----------
    path : str or Path
        The file; docs/problem-file.md says what it may hold. Every mistake is a ValueError that names the key.

    Returns
    -------
    DecisionProblem
        With the names of the file, and `source`: the file's name and a digest of its text.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "plan.toml"
    >>> text = '''
    ... outcomes = ["demand"]
    ... decisions = ["order"]
    ... cost = "max(3 * (demand - order), order - demand)"
    ... lower = 0
    ... '''
    >>> _ = path.write_text(text)
    >>> problem = from_toml(path)
    >>> problem.decision_names, str(problem.curvature)
    (('order',), 'maximum of affine functions')
    """
    path = Path(path)
    with path.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)  # one more is too many, and so are all that may follow
    try:
        table = Table(read_toml(content), "")
        problem = _problem(table)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be UTF-8 text: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not proper TOML: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return problem.labelled(source=Source(path.name, hashlib.sha256(content).hexdigest()))


def _problem(table: Table) -> DecisionProblem:
    kind = table.text("kind", _GENERAL)
    if kind == _GENERAL:
        return _program(table)
    if kind not in _READY_MADE:
        close = get_close_matches(kind, _READY_MADE, n=1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        raise ValueError(f'kind must be "{_GENERAL}" or one of {", ".join(_READY_MADE)}, got "{kind}".{hint}')
    return _ready_made(kind, table)


def _ready_made(kind: str, table: Table) -> DecisionProblem:
    """Call the function of that name with the file's values."""
    function = _READY_MADE[kind]
    parameters = inspect.signature(function).parameters
    names: dict[str, Any] = {
        f"{key[:-1]}_names": _names(table, key) for key in ("outcomes", "decisions") if table.has(key)
    }
    given = {key: _setting(table, key) for key in parameters if table.has(key)}
    if "n_outcomes" in parameters and "outcome_names" in names:
        given.setdefault("n_outcomes", len(names["outcome_names"]))
    title = table.text("name", kind.replace("_", " "))
    units = table.take("units")
    table.finish(["kind", "name", "outcomes", "decisions", "units", *parameters])
    counts = [given.get("n_outcomes", 1), *(len(value) for value in given.values() if isinstance(value, list))]
    _check_size(max(counts), max(counts))
    needed = [k for k, p in parameters.items() if p.default is inspect.Parameter.empty and k not in given]
    if needed:
        raise ValueError(f'{needed[0]} is missing: kind = "{kind}" needs {", ".join(needed)}.')
    return function(**given).labelled(name=title, **names).labelled(units=units)


def _setting(table: Table, key: str) -> Any:
    """A value of the kind that the ready-made problems take under this key."""
    value = table.take(key)
    if key in _SWITCHES:
        is_fine, wanted = isinstance(value, bool), "must be true or false"
    elif key == "n_outcomes":
        is_fine = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_ENTRIES
        wanted = f"must be a whole number from 1 to {_MAX_ENTRIES}"
    else:
        is_fine, wanted = _is_numeric(value), "must be a number or a list of numbers"
    if not is_fine:
        raise table.wrong(key, wanted, value)
    return value


def _is_numeric(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_numeric(item) for item in value)
    return is_number(value)


def _program(table: Table) -> DecisionProblem:
    outcomes, decisions = _names(table, "outcomes", "u"), _names(table, "decisions", "z")
    parameters = _parameters(table)
    shared = _shared(outcomes, decisions, [parameter.name() for parameter in parameters])
    if shared:
        raise ValueError(f"outcomes, decisions and parameters must have different names, two are called {shared}.")
    _check_size(len(outcomes), len(decisions))
    title = table.text("name", "decision problem")
    z = _variable(table, decisions)
    cost = _cost(table, decisions, outcomes, parameters)
    rows = read_rows(table, "constraints", decisions, outcomes, parameters)
    support, units = read_rows(table, "support", (), outcomes), table.take("units")
    table.finish(_TOP)
    certain = [row for row in rows if not row.sees_outcome]
    uncertain = tuple(row for row in rows if row.sees_outcome)
    u = cp.Constant(np.zeros(len(outcomes)))
    problem = DecisionProblem(
        decision=z,
        cost=cost,
        constraints=[constraint for row in certain for constraint in row.constraints(z, u)],
        n_outcomes=len(outcomes),
        uncertain_constraints=Rows(uncertain) if uncertain else None,
        outcome_support=Rows(tuple(support)) if support else None,
        name=title,
        outcome_names=outcomes,
        decision_names=decisions,
        constraint_names=_constraint_names(uncertain, z, cp.Variable(len(outcomes))),
        units=units,
    )
    used = {parameter.name for parameter in problem.parameters}
    idle = [parameter.name() for parameter in parameters if parameter.name() not in used]
    if idle:
        raise ValueError(f"parameters names {idle[0]!r}, which neither the cost nor a constraint uses.")
    return problem


def _check_size(n_outcomes: int, n_decisions: int) -> None:
    # Each outcome is read on its own, a millisecond.
    for what, n in (("outcomes", n_outcomes), ("decisions", n_decisions)):
        if n > _MAX_ENTRIES:
            raise ValueError(
                f"{what} must be at most {_MAX_ENTRIES}, got {n}. Write a larger problem in Python, as FILE.py:NAME."
            )
    if n_outcomes * n_decisions > MAX_PAIRS:
        raise ValueError(
            f"outcomes times decisions must be at most {MAX_PAIRS}, got {n_outcomes} x {n_decisions}. Write a larger "
            "problem in Python, as FILE.py:NAME, where there is no limit."
        )


def _constraint_names(rows: tuple[Row, ...], z: cp.Variable, u: cp.Variable) -> list[str]:
    """The name of each row for each of its constraints that sees the outcome: "0 <= a - u <= 1" makes two."""
    made = [(row.name, constraint) for row in rows for constraint in row.constraints(z, u)]
    return each_once([name for name, constraint in made if u.id in {v.id for v in constraint.variables()}])


def _names(table: Table, key: str, stem: str = "") -> tuple[str, ...]:
    """Names as a list, or a count for names such as u_1, u_2."""
    value = table.take(key)
    if stem and isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_ENTRIES:
        return tuple(f"{stem}_{i + 1}" for i in range(value))
    is_list = isinstance(value, list) and bool(value) and all(isinstance(name, str) and name for name in value)
    if not is_list or len(set(value)) < len(value):
        raise table.wrong(key, "must be a list of distinct names" + (" or how many there are" if stem else ""), value)
    return tuple(value)


def _shared(*kinds: Sequence[str]) -> str:
    """A name that two kinds have in common; empty where there is none."""
    counts = Counter(name for names in kinds for name in names)
    return next((name for name, count in counts.items() if count > 1), "")


def _parameters(table: Table) -> tuple[cp.Parameter, ...]:
    """Inputs that are numbers: a list of names, or a table of names with what is known of each (lower, upper)."""
    if not isinstance(table.content.get("parameters"), dict):
        return tuple(cp.Parameter(name=name) for name in _names(table, "parameters")) if table.has("parameters") else ()
    parameters = []
    for name, limits in table.take("parameters").items():
        if not isinstance(limits, dict):
            raise table.wrong(f"parameters.{name}", "must be a table such as { lower = 0 }", limits)
        its = Table(limits, f"parameters.{name}")
        lower, upper = (its.number(key, default) if its.has(key) else default for key, default in _ANY.items())
        its.finish(list(_ANY))
        if lower > upper:
            raise ValueError(f"parameters.{name}.lower must be at most its upper, got {lower:g} and {upper:g}.")
        parameters.append(cp.Parameter(name=name, **_attributes(lower, upper)))
    return tuple(parameters)


def _attributes(lower: float, upper: float) -> dict[str, Any]:
    """Limits as CVXPY knows them; rules of convexity look at signs alone."""
    sign = {"nonneg": True} if lower >= 0 else {"nonpos": True} if upper <= 0 else {}
    return sign if (lower, upper) in _SIGNED else {"bounds": [lower, upper], **sign}


def _variable(table: Table, decisions: tuple[str, ...]) -> cp.Variable:
    lower = table.vector("lower", decisions, fill=True, missing=-np.inf)
    upper = table.vector("upper", decisions, fill=True, missing=np.inf)
    if (lower > upper).any():
        first = int(np.flatnonzero(lower > upper)[0])
        raise ValueError(f"lower must be at most upper, but {decisions[first]} has {lower[first]} and {upper[first]}.")
    integer = table.take("integer", False)
    if isinstance(integer, list):
        strange = [name for name in integer if name not in decisions]
        if strange:
            raise ValueError(f"integer names {strange[0]!r}, which is no decision. Known are {', '.join(decisions)}.")
        # CVXPY wants the positions along each axis, and there is one.
        integer = [[decisions.index(name) for name in integer]] if integer else False
    elif not isinstance(integer, bool):
        raise table.wrong("integer", "must be true, false or a list of decisions", integer)
    is_bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
    settings: dict[str, Any] = {"bounds": [lower, upper]} if is_bounded else {}
    return cp.Variable(len(decisions), name="z", integer=integer, **settings)


def _cost(
    table: Table, decisions: tuple[str, ...], outcomes: tuple[str, ...], parameters: tuple[cp.Parameter, ...]
) -> TabledCost:
    value = table.take("cost")
    if isinstance(value, str):
        return read_cost(Table({"formula": value}, ""), decisions, outcomes, parameters, formula_at="cost")
    if not isinstance(value, dict) or not value:
        raise table.wrong("cost", "must be a formula or a table of coefficients", value)
    return read_cost(Table(value, "cost", _TOP), decisions, outcomes, parameters)
