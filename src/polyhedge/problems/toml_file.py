"""Problems in files: TOML (docs/problem-file.md) and Python (`"file.py:name"`)."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems import ready_made
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.formula import FormulaFunction, close_match, constraints_from_text, from_text, is_number
from polyhedge.problems.layout import Source, numbered_twins

MAX_BYTES = 4 * 2**20
"""Some 200 000 numbers; Python's TOML reader takes seconds for more."""
MAX_DEPTH = 32
"""Levels of a file, which needs five: Python's TOML reader takes memory with the square of the depth, and recurses."""
# Linear in the text, also if a text in it does not end; two quotes may stand before the three that end one.
_TEXT_OR_COMMENT = re.compile(
    r"""
    \"{3} (?: \\. | [^\\"] | "(?!"") )*+ (?: "{3,5}+ )?
    | '{3} (?: [^'] | '(?!'') )*+ (?: '{3,5}+ )?
    | " (?: \\. | [^"\\\n] )*+ "?
    | ' [^'\n]*+ '?
    | \# [^\n]*+
    """,
    re.DOTALL | re.VERBOSE,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
_MAX_ENTRIES = 10_000
"""Outcomes, and decisions."""
MAX_PAIRS = 1_000_000
"""Pairs of an outcome and a decision: every piece of the cost has a coefficient for each, 8 MB."""
_READY_MADE = ("newsvendor", "portfolio", "simplex_linear", "simplex_newsvendor", "simplex_quadratic")
_LIMITS = ["lower", "upper", "integer"]
_LATER = ["recourse", "recourse_integer"]
_PARTS = ["outcomes", "decisions", "parameters", "cost", "constraints", "support", "units"]
_TOP = ["kind", "name", *_PARTS, *_LIMITS, *_LATER]
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LIMITED = re.compile(rf"(?:({_NUMBER})\s*<=\s*)?([^\W\d]\w*)(?:\s*(<=|>=)\s*({_NUMBER}))?")
"""A recourse variable with its limits: `moved >= 0`, `moved <= 5`, `0 <= moved <= 5` or `moved`."""


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
        table = _Table(read_toml(content), "")
        problem = _problem(table)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be UTF-8 text.") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not proper TOML: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return problem.labelled(source=Source(path.name, hashlib.sha256(content).hexdigest()))


def from_reference(reference: str) -> DecisionProblem:
    r"""The problem that a Python file defines: `"my_module.py:problem"`. This runs the file.

    Parameters
    ----------
    reference : str
        A path and a name in that file, separated by a colon. The name holds a `DecisionProblem`, or a function
        without arguments that returns one. The file can import modules of its directory.

    Returns
    -------
    DecisionProblem
        With `source`: the reference and a SHA-256 digest of the file, by which a model file recognises it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "budget.py"
    >>> text = "import polyhedge as ph\nproblem = ph.problems.simplex_linear([0.0, 0.0])\n"
    >>> _ = path.write_text(text)
    >>> from_reference(f"{path}:problem").name
    'simplex linear'
    """
    file, colon, name = reference.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ValueError(f'A problem in Python is given as "file.py:name", got "{reference}".')
    if not path.is_file():
        raise FileNotFoundError(f'There is no file "{file}". A problem in Python is given as "file.py:name".')
    source = path.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    module = ModuleType(f"polyhedge_problem_{digest[:16]}")
    module.__file__ = str(path)
    # Classes look their module up by name, and a module finds its neighbours along the path.
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # the very bytes of the digest
    finally:
        sys.path.remove(str(path.parent.resolve()))
    defined = getattr(module, name, None)
    problem = defined() if callable(defined) else defined
    if not isinstance(problem, DecisionProblem):
        raise ValueError(
            f'"{name}" in {file} must be a DecisionProblem or a function that returns one, got '
            f"{'nothing' if defined is None else type(problem).__name__}."
        )
    return problem.labelled(source=Source(reference, digest))


def read_toml(content: bytes) -> dict[str, Any]:
    """The tables of a TOML text; ValueError if it is too large, nested too deep or no TOML."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes. Write a large problem in Python, as FILE.py:NAME.")
    text = content.decode("utf-8")
    bare = _TEXT_OR_COMMENT.sub("s", text)
    levels = accumulate((1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", bare)), initial=0)
    if max(levels) > MAX_DEPTH or _LONG_KEY.search(bare):
        raise ValueError(
            f"it is nested more than {MAX_DEPTH} levels deep. A problem file needs five: look for brackets that are "
            "not closed."
        )
    return tomllib.loads(text)


def _problem(table: _Table) -> DecisionProblem:
    kind = table.text("kind", "program")
    if kind == "program":
        return _program(table)
    if kind not in _READY_MADE:
        raise ValueError(f'kind must be "program" or a ready-made one, got "{kind}".{close_match(kind, _READY_MADE)}')
    function: Callable[..., DecisionProblem] = getattr(ready_made, kind)
    parameters = inspect.signature(function).parameters
    names: dict[str, Any] = {
        f"{key[:-1]}_names": _names(table, key) for key in ("outcomes", "decisions") if key in table.content
    }
    given: dict[str, Any] = {}
    for key in (key for key in parameters if key in table.content):
        value = given[key] = table.take(key)
        rows = value if isinstance(value, list) else [value]
        entries = [entry for row in rows for entry in (row if isinstance(row, list) else [row])]
        is_fine, wanted = bool(entries) and all(map(is_number, entries)), "must be a number or a list of numbers"
        if key in ("integer", "nonnegative_demand"):
            is_fine, wanted = isinstance(value, bool), "must be true or false"
        elif key == "n_outcomes":
            is_fine, wanted = _is_count(value), f"must be an integer from 1 to {_MAX_ENTRIES}"
        if not is_fine:
            raise table.wrong(key, wanted, value)
    if "n_outcomes" in parameters and "outcome_names" in names:
        given.setdefault("n_outcomes", len(names["outcome_names"]))
    title, units = table.text("name", kind.replace("_", " ")), table.take("units")
    table.finish(["kind", "name", "outcomes", "decisions", "units", *parameters])
    counts = [given.get("n_outcomes", 1), *(len(value) for value in given.values() if isinstance(value, list))]
    _check_size(max(counts), max(counts))
    needed = [k for k, p in parameters.items() if p.default is inspect.Parameter.empty and k not in given]
    if needed:
        raise ValueError(f'{needed[0]} is missing: kind = "{kind}" needs {", ".join(needed)}.')
    return function(**given).labelled(name=title, **names).labelled(units=units)


def _program(table: _Table) -> DecisionProblem:
    outcomes, decisions = _names(table, "outcomes", "u"), _names(table, "decisions", "z")
    parameters = _parameters(table)
    later = _recourse(table)
    counts = Counter([*outcomes, *decisions, *(leaf.name() for leaf in (*parameters, *later))])
    name, count = counts.most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"outcomes, decisions, recourse and parameters must have different names, two are called {name}."
        )
    _check_size(len(outcomes), len(decisions) + len(later))
    title = table.text("name", "decision problem")
    z, u = _variable(table, decisions), cp.Variable(len(outcomes))
    # Entries are made if a formula names them: there may be thousands.
    of_outcomes: dict[str, Any] = {name: (u, i) for i, name in enumerate(outcomes)}
    entries = (
        of_outcomes | {name: (z, i) for i, name in enumerate(decisions)} | {p.name(): p for p in (*parameters, *later)}
    )
    cost = _read(from_text, table.text("cost"), entries, "cost")
    rows = _constraints(table, "constraints", entries)
    support, units = _constraints(table, "support", of_outcomes), table.take("units")
    table.finish(_TOP)
    late = {v.id for v in later}
    linked = [row for _, row in rows if late & {v.id for v in row.variables()}]
    rows = [(named, row) for named, row in rows if not late & {v.id for v in row.variables()}]
    sees_outcome = [u.id in {v.id for v in row.variables()} for _, row in rows]
    uncertain = [named for named, sees in zip(rows, sees_outcome, strict=True) if sees]
    problem = DecisionProblem(
        decision=z,
        cost=FormulaFunction(z, u, cp.Constant(cost) if isinstance(cost, float) else cost, later or None),
        recourse=later or None,
        recourse_constraints=FormulaFunction(z, u, linked, later) if linked else None,
        constraints=[row for (_, row), sees in zip(rows, sees_outcome, strict=True) if not sees],
        n_outcomes=len(outcomes),
        uncertain_constraints=FormulaFunction(z, u, [row for _, row in uncertain]) if uncertain else None,
        outcome_support=FormulaFunction(z, u, [row for _, row in support]) if support else None,
        name=title,
        outcome_names=outcomes,
        decision_names=decisions,
        constraint_names=numbered_twins([name for name, _ in uncertain]),
        units=units,
    )
    used = {parameter.name for parameter in problem.parameters}
    idle = [parameter.name() for parameter in parameters if parameter.name() not in used]
    if idle:
        raise ValueError(f"parameters names {idle[0]!r}, which neither the cost nor a constraint uses.")
    return problem


def _check_size(n_outcomes: int, n_decisions: int) -> None:
    sizes = {"outcomes": n_outcomes, "decisions": n_decisions, "outcomes times decisions": n_outcomes * n_decisions}
    for what, most in zip(sizes, (_MAX_ENTRIES, _MAX_ENTRIES, MAX_PAIRS), strict=True):
        if sizes[what] > most:
            raise ValueError(
                f"{what} must be at most {most}, got {sizes[what]}. Write a larger problem in Python, as FILE.py:NAME, "
                "where there is no limit."
            )


def _names(table: _Table, key: str, stem: str = "") -> tuple[str, ...]:
    """Names as a list, or a count for names such as u_1, u_2."""
    value = table.take(key)
    if stem and _is_count(value):
        return tuple(f"{stem}_{i + 1}" for i in range(value))
    is_list = isinstance(value, list) and bool(value) and all(isinstance(name, str) and name for name in value)
    if not is_list or len(set(value)) < len(value):
        raise table.wrong(key, "must be a list of distinct names" + (" or how many there are" if stem else ""), value)
    return tuple(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_ENTRIES


def _parameters(table: _Table) -> tuple[cp.Parameter, ...]:
    """A list of names, or a table of names with limits of each (lower, upper)."""
    if not isinstance(table.content.get("parameters"), dict):
        return (
            tuple(cp.Parameter(name=name) for name in _names(table, "parameters"))
            if "parameters" in table.content
            else ()
        )
    parameters = []
    for name, limits in table.take("parameters").items():
        if not isinstance(limits, dict):
            raise table.wrong(f"parameters.{name}", "must be a table such as { lower = 0 }", limits)
        own, ends = _Table(limits, f"parameters.{name}"), {"lower": -np.inf, "upper": np.inf}
        lower, upper = (own.number(key) if key in own.content else end for key, end in ends.items())
        own.finish(list(ends))
        # CVXPY's rules of convexity look at signs alone.
        sign = {"nonneg": True} if lower >= 0 else {"nonpos": True} if upper <= 0 else {}
        is_sign_all = (lower, upper) in ((-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0))
        parameters.append(cp.Parameter(name=name, **({} if is_sign_all else {"bounds": [lower, upper]}), **sign))
    return tuple(parameters)


def _variable(table: _Table, decisions: tuple[str, ...]) -> cp.Variable:
    lower = table.bounds("lower", decisions, -np.inf)
    upper = table.bounds("upper", decisions, np.inf)
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


def _recourse(table: _Table) -> list[cp.Variable]:
    """Decisions once the outcome is known, from texts such as `moved >= 0`."""
    texts, integer = table.take("recourse", []), table.take("recourse_integer", False)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise table.wrong("recourse", 'must be a list of texts such as "moved >= 0"', texts)
    limits = dict[str, tuple[float, float]]()
    for text in texts:
        found = _LIMITED.fullmatch(text.strip())
        if found is None or found[2] in limits or (found[1] is not None and found[3] == ">="):
            raise table.wrong("recourse", 'must be distinct names, perhaps with limits: "0 <= moved <= 5"', text)
        lower, upper = float(found[1] or -np.inf), np.inf
        if found[3] is not None:
            lower, upper = (lower, float(found[4])) if found[3] == "<=" else (float(found[4]), upper)
        limits[found[2]] = lower, upper
    whole = list(limits) if integer is True else integer or []
    if not isinstance(whole, list) or not set(whole) <= set(limits) or (integer and not limits):
        raise table.wrong("recourse_integer", "must be true, false or a list of names in recourse", integer)
    return [
        cp.Variable(name=name, integer=name in whole, **_limits_of(lower, upper))
        for name, (lower, upper) in limits.items()
    ]


def _limits_of(lower: float, upper: float) -> dict[str, Any]:
    if (lower, upper) == (0.0, np.inf):
        return {"nonneg": True}
    return {"bounds": [lower, upper]} if np.isfinite([lower, upper]).any() else {}


def _constraints(table: _Table, key: str, entries: Mapping[str, Any]) -> list[tuple[str, cp.Constraint]]:
    """Constraints with their texts; "0 <= a - u <= 1" makes two."""
    value = table.take(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise table.wrong(key, 'must be a list of formulas such as "a + b <= 1"', value)
    places = (f"{table.at(key)}[{i + 1}]" for i in range(len(value)))
    return [
        (text, row)
        for text, place in zip(value, places, strict=True)
        for row in _read(constraints_from_text, text, entries, place)
    ]


def _read(reader: Callable[[str, Mapping[str, Any]], Any], text: str, entries: Mapping[str, Any], place: str) -> Any:
    try:
        return reader(text, entries)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


class _Table:
    """A table with its place in the file, for messages such as "parameters.stock.lower must ..."."""

    def __init__(self, content: Mapping[str, Any], place: str) -> None:
        self.content, self.place = dict(content), place

    def at(self, key: str) -> str:
        """The place of a key in the file."""
        return f"{self.place}.{key}" if self.place else key

    def take(self, key: str, default: Any = None) -> Any:
        """A value, which then is no longer left over."""
        return self.content.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty text."""
        value = self.take(key, default)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "must be a text", value)
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.take(key)
        if not is_number(value):
            raise self.wrong(key, "must be a finite number", value)
        return float(value)

    def bounds(self, key: str, names: Sequence[str], missing: float) -> Array:
        """One number for each name: a list, a table by name, or one for all; `missing` where none is given."""
        value, n = self.take(key, {}), len(names)
        if is_number(value):
            return np.full(n, float(value))
        if isinstance(value, dict):
            strange = [name for name in value if name not in names]
            if strange:
                raise ValueError(
                    f"{self.at(key)} names {strange[0]}, which is not one of them.{close_match(strange[0], names)}"
                )
            own = _Table(value, self.at(key))
            return np.array([own.number(name) if name in value else missing for name in names])
        if not isinstance(value, list) or len(value) != n or not all(map(is_number, value)):
            wanted = f"must be a list of {n} numbers, a table by name ({', '.join(names)[:200]}) or one number"
            raise self.wrong(key, wanted, value)
        return np.array(value, dtype=np.float64)

    def wrong(self, key: str, wanted: str, value: Any) -> ValueError:
        """The error that says what must hold and what was given."""
        if value is None:
            return ValueError(f"{self.at(key)} is missing: it {wanted}.")
        shown = repr(value)
        return ValueError(f"{self.at(key)} {wanted}, got {shown if len(shown) <= 80 else shown[:77] + '...'}.")

    def finish(self, known: Sequence[str]) -> None:
        """Refuse the first key that is left over."""
        for key in self.content:
            raise ValueError(f"{self.at(key)} is not a key of a problem file.{close_match(key, known)}")
