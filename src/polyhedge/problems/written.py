"""The formulas of a problem over its variables, outcome and parameters, read once from the user's callables.

Everything that is compiled or evaluated later uses these formulas, never the callables or the values of parameters.

A decision problem as plain data: names, variables and formulas, for model files and pickles.

The data hold the formulas and nothing compiled: whoever reads them compiles the problem again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy.transforms.partial_optimize import PartialProblem

from polyhedge._support.validation import Array
from polyhedge.problems.formula import (
    FormulaBudget,
    FormulaFunction,
    NotPortableError,
    from_data,
    in_structure,
    leaves_of,
    substitute,
    substitute_in,
    to_data,
    to_text,
)
from polyhedge.problems.layout import (
    Layout,
    ProblemParameter,
    Source,
    check_variable_names,
    declared_variables,
    layout_of,
    numbered_twins,
    own_name,
    parameter_names,
    sample_values,
)

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem


@dataclass(frozen=True)
class Constant:
    """A user's parameter with the value that it had when a problem was written."""

    parameter: cp.Parameter
    value: Any


@dataclass(frozen=True, eq=False)
class Written:
    """The formulas of a problem.

    Attributes
    ----------
    variables : those of the decision, then the auxiliary ones of the cost; `layout` has their slices of z.
    outcome : the variable u.
    parameters : inputs without a value.
    cost : scalar expression.
    certain, uncertain : constraints without and with the outcome.
    support : constraints on the outcome alone.
    """

    variables: tuple[cp.Variable, ...]
    layout: Layout
    outcome: cp.Variable
    parameters: tuple[ProblemParameter, ...]
    cost: cp.Expression
    certain: tuple[cp.Constraint, ...]
    uncertain: tuple[cp.Constraint, ...]
    support: tuple[cp.Constraint, ...]

    def leaves(self, z: Any = None, u: Any = None, values: Any = None) -> dict[int, Any]:
        """What to put in the place of leaves: entries of a flat z, an outcome, flat values of the parameters.

        `z` and `values` may also be lists of expressions, one for each variable or parameter.
        """
        leaves: dict[int, Any] = {}
        if z is not None:
            parts = z if isinstance(z, list) else [cp.Constant(part) for part in self.layout.split(z)]
            leaves.update((v.id, part) for v, part in zip(self.variables, parts, strict=True))
        if u is not None:
            leaves[self.outcome.id] = u if isinstance(u, cp.Expression) else cp.Constant(u)
        if values is not None and self.parameters:
            split = layout_of(self.parameters).split
            parts = values if isinstance(values, list) else [cp.Constant(part) for part in split(values)]
            leaves.update((p.leaf.id, part) for p, part in zip(self.parameters, parts, strict=True))
        return leaves

    def names(self) -> dict[str, str]:
        """Texts for variables, by their names in CVXPY, which makes one up for a variable without a name."""
        own = {v.name(): name for v, name in zip(self.variables, self.layout.names, strict=True)}
        return own | {self.outcome.name(): "u"}

    def places(self) -> dict[str, Sequence[Any]]:
        """The formulas by their places in a `DecisionProblem`."""
        return {
            "cost": [self.cost],
            "constraints": self.certain,
            "uncertain_constraints": self.uncertain,
            "outcome_support": self.support,
        }

    def substituted(self, leaves: Mapping[int, Any], **parts: Any) -> Written:
        """The formulas with leaves replaced, by their id, and other `parts`."""
        rows: dict[str, Any] = {
            name: tuple(substitute_in(row, leaves) for row in getattr(self, name))
            for name in ("certain", "uncertain", "support")
        }
        return replace(self, cost=substitute(self.cost, leaves), **rows, **parts)

    def at(self, values: Array) -> Written:
        """The formulas with flat values in the place of all parameters."""
        return self.substituted(self.leaves(values=values), parameters=())


def read_problem(problem: Any) -> Written:
    """Call the callables of a `DecisionProblem` once and record their formulas."""
    declared, names = declared_variables(problem.decision)
    u = cp.Variable(problem.n_outcomes)
    z = in_structure(problem.decision, declared)
    uncertain, support = problem.uncertain_constraints, problem.outcome_support
    written = Written(
        variables=declared,
        layout=Layout(names, tuple(tuple(v.shape) for v in declared), len(declared)),
        outcome=u,
        parameters=(),
        cost=call_cost(problem.cost, z, u),
        certain=tuple(as_list(problem.constraints, "constraints")),
        uncertain=() if uncertain is None else tuple(as_list(uncertain(z, u), "uncertain_constraints")),
        support=() if support is None else tuple(as_list(support(u), "outcome_support")),
    )
    _refuse_recourse(written)
    _refuse_own_outcome(written)
    # Variables of the cost that nobody declared are chosen with the decision: they join it at its end.
    joining = [v for v in written.cost.variables() if v.id not in {v.id for v in (*declared, u)}]
    names = (*names, *(own_name(v) or f"w{k}" for k, v in enumerate(joining, start=1)))
    check_variable_names(names)
    variables = (*declared, *joining)
    layout = Layout(names, tuple(tuple(v.shape) for v in variables), len(declared))
    written = _with_parameters(replace(written, variables=variables, layout=layout), problem.constants)
    sees_outcome = [u.id in {v.id for v in row.variables()} for row in written.uncertain]
    certain = [row for row, sees in zip(written.uncertain, sees_outcome, strict=True) if not sees]
    return replace(
        written,
        certain=(*written.certain, *certain),
        uncertain=tuple(row for row, sees in zip(written.uncertain, sees_outcome, strict=True) if sees),
    )


def call_cost(cost: Callable[[Any, Any], Any], z: Any, u: Any) -> cp.Expression:
    """The cost as a scalar CVXPY expression; errors are in terms of the problem."""
    if not callable(cost):
        raise TypeError(
            f"cost must be a callable cost(z, u), got {cost!r}. Write a function of decision and outcome, such as "
            "cost=lambda z, u: u @ z; to maximise a profit, return minus the profit."
        )
    try:
        value = cost(z, u)
    except Exception as error:  # whatever a user's function raises; CVXPY alone knows five kinds
        kind = ValueError if isinstance(error, (ValueError, LookupError)) else TypeError
        shapes = ", ".join(str(leaf.shape) for leaf in leaves_of(z, z))
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise kind(
            f"cost(z, u) failed for z of shape {shapes} and u of shape {u.shape}: {text}. Check n_outcomes, names and "
            "shapes, and take CVXPY's functions (cp.maximum, cp.pos, cp.abs, cp.sum) instead of max, if and NumPy's."
        ) from error
    if not isinstance(value, (cp.Expression, int, float, np.number, np.ndarray)):
        raise ValueError(f"cost(z, u) must return a number or a CVXPY expression, got {value!r}.")
    expression = value if isinstance(value, cp.Expression) else cp.Constant(value)
    if expression.size != 1:
        raise ValueError(
            f"cost(z, u) must return one number, got an expression of shape {expression.shape}. "
            "Sum it up, for example with cp.sum."
        )
    return cp.reshape(expression, (), order="C") if expression.shape else expression


def as_list(constraints: Any, name: str) -> list[cp.Constraint]:
    """The constraints, if they are a list of nothing else."""
    if not isinstance(constraints, (list, tuple)) or not all(isinstance(c, cp.Constraint) for c in constraints):
        raise TypeError(f"{name} must be a list of CVXPY constraints, got {constraints!r}.")
    return list(constraints)


def _refuse_recourse(written: Written) -> None:
    """Refuse undeclared variables that would be chosen after the outcome."""
    for place, nodes in written.places().items():
        for partial in (node for node in _walk(nodes) if isinstance(node, PartialProblem)):
            chosen = ", ".join(variable.name() for variable in partial.opt_vars)
            raise ValueError(
                f"{place} holds a partial_optimize over {chosen}: a choice that may wait for the outcome (recourse) is "
                "not supported. Write its objective and constraints out: variables in the cost and the constraints "
                "are chosen before the outcome is known."
            )
    known = {v.id for v in (*written.variables, written.outcome)}
    for place, rows, allowed in (
        ("uncertain_constraints", written.uncertain, known),
        ("outcome_support", written.support, {written.outcome.id}),
    ):
        strange = [v for row in rows for v in row.variables() if v.id not in allowed]
        if strange:
            name = strange[0].name()
            raise ValueError(
                f"{place} holds the variable {name}, which is not part of the decision: a choice after the outcome "
                f"(recourse) is not supported. If {name} is chosen before the outcome is known, declare it: "
                f"decision=[..., {name}]."
            )


def _refuse_own_outcome(written: Written) -> None:
    """Refuse a free variable of the user's in the place of the outcome: it would be optimised with the decision."""
    u = written.outcome
    in_cost = {v.id: v for v in written.cost.variables()}
    in_rows = {v.id: v for row in written.certain for v in row.variables()}
    suspects = [("constraints", v) for v in in_rows.values() if v.id not in in_cost]
    if u.id not in in_cost:
        suspects += [("cost", v) for v in in_cost.values() if v.id not in in_rows]
    declared = {v.id for v in written.variables}
    for place, v in suspects:
        if v.id in declared or v.size != u.size or v.ndim > 1 or any(v.attributes.values()):
            continue
        raise ValueError(
            f"{place} holds the variable {v.name()}, which is free, not declared and as long as the outcome "
            f"({u.size}): it would be chosen along with the decision, as suits it best, and guard against no "
            "outcome. If the outcome is meant, take it from the arguments: uncertain_constraints=lambda z, u: [...] or "
            f"cost=lambda z, u: .... If {v.name()} is chosen before the outcome is known, declare it: "
            f"decision=[..., {v.name()}]."
        )


def _walk(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        if not isinstance(node, PartialProblem):
            yield from _walk(node.args)


def _with_parameters(written: Written, constants: Sequence[Constant]) -> Written:
    """Constants become numbers for good; all other parameters become inputs without a value."""
    parameters = {p.id: p for nodes in written.places().values() for node in nodes for p in node.parameters()}
    if not parameters:
        return written
    fixed = {one.parameter.id: cp.Constant(one.value) for one in constants}
    free = [p for p in parameters.values() if p.id not in fixed]
    inputs = [ProblemParameter.standing_for(p, name) for p, name in zip(free, parameter_names(free), strict=True)]
    written = written.substituted(fixed | {p.origin: p.leaf for p in inputs}, parameters=tuple(inputs))
    for place, nodes in written.places().items():
        for parameter in (p for node in nodes for p in node.parameters()):
            if parameter.id not in {p.leaf.id for p in inputs}:
                raise ValueError(
                    f"{place} holds the parameter {parameter.name()} as a setting of a function, where it cannot be "
                    "replaced. Write the number itself."
                )
            if place == "outcome_support":
                raise ValueError(
                    f"outcome_support holds the parameter {parameter.name()}: what is known of the outcomes must not "
                    f"differ from row to row. Write a number, or constants=[{parameter.name()}]."
                )
    return written


def read_constants(constants: Any) -> tuple[Constant, ...]:
    """Parameters with the values that they have now; a problem that is written again keeps those it had."""
    if not isinstance(constants, (list, tuple)) or not all(isinstance(p, (cp.Parameter, Constant)) for p in constants):
        raise TypeError(f"constants must be a list of cvxpy.Parameters, got {constants!r}.")
    empty = [one for one in constants if one.value is None]
    if empty:
        raise ValueError(
            f"The constant {empty[0].name()} has no value. Set it before the problem is written, or leave it out "
            "of constants and give its value in each call."
        )
    return tuple(one if isinstance(one, Constant) else Constant(one, copy(one.value)) for one in constants)


def check_curvature(problem: DecisionProblem) -> None:
    """Raise unless the cost is convex in the decision and of one curvature in the outcome (by DCP)."""
    outcome = cp.Parameter(problem.n_outcomes, nonneg=problem.outcomes_are_nonneg)
    in_decision = substitute(problem.written.cost, problem.written.leaves(u=outcome))
    if not in_decision.is_convex():
        raise ValueError(
            "The cost must be convex in the decision for every outcome, and CVXPY cannot see that it is: "
            f"{formulas_by_name(problem)[0]}. Rewrite it by CVXPY's rules, without products of decisions and without "
            "minus a maximum or square; if it needs u >= 0, say so in outcome_support (support, in a file); declare "
            "parameters with known signs nonneg=True (lower = 0)."
        )
    if problem.structure.has_maxima:
        return
    in_outcome = problem.cost_of_outcome()
    if not (in_outcome.is_convex() or in_outcome.is_concave()):
        raise ValueError(
            "The cost is neither affine, concave nor convex in the outcome, so its worst case cannot be computed "
            f"exactly: {formulas_by_name(problem)[0]}. Rewrite it by CVXPY's rules; if it needs z >= 0, declare the "
            "variable nonneg=True."
        )


def problem_text(problem: DecisionProblem) -> str:
    """The problem as one line of formulas."""
    written = problem.written
    names = written.names()
    cost, limits, known = _formula_texts(written, names)
    chosen = []
    for variable in written.variables[: written.layout.n_given]:
        words = {"nonneg": "at least 0", "nonpos": "at most 0", "integer": "integers", "boolean": "0 or 1"}
        size = " x ".join(map(str, variable.shape)) or "a number"
        facts = [text for key, text in words.items() if variable.attributes[key]]
        chosen.append(f"{names[variable.name()]} ({', '.join([size, *facts])})")
    parts = [
        f"minimise over {', '.join(chosen)} the cost {cost}{' subject to ' if limits else ''}{'; '.join(limits)}",
        f"known of u: {'; '.join(known)}" if known else "",
        units_text(problem),
    ]
    return f"<{problem.name}: {'; '.join(part for part in parts if part)}>"


def units_text(problem: DecisionProblem) -> str:
    """The units of the cost and of named entries; empty if none are given."""
    return ", ".join(f"{name} in {unit}" for name, unit in (problem.units or {}).items())


def formulas_by_name(problem: DecisionProblem) -> tuple[str, list[str], list[str]]:
    """The cost, the constraints and the support of outcomes as texts, with the names of entries."""
    written = problem.written
    names = written.names() | {f"u[{k}]": name for k, name in enumerate(problem.outcome_names)}
    if written.layout.n_given == 1 and len(written.variables[0].shape) == 1:
        stem = written.layout.names[0]
        names |= {f"{stem}[{k}]": name for k, name in enumerate(problem.decision_names)}
    return _formula_texts(written, names)


def constraint_texts(written: Written) -> list[str]:
    """The default names of uncertain constraints: their texts, each once."""
    texts = [to_text(row, written.names()) for row in written.uncertain]
    return numbered_twins([text if len(text) <= 60 else f"{text[:57]}..." for text in texts])


def _formula_texts(written: Written, names: Mapping[str, str]) -> tuple[str, list[str], list[str]]:
    """Cost, constraints and support; at most 200 letters of a formula and 12 constraints are shown."""

    def shown(rows: Sequence[Any]) -> list[str]:
        texts = [to_text(row, names) for row in rows[:12]]
        more = [f"{len(rows) - 12} more"] if len(rows) > 12 else []
        return [*(text if len(text) <= 200 else f"{text[:200]}..." for text in texts), *more]

    return shown([written.cost])[0], shown([*written.certain, *written.uncertain]), shown(written.support)


_ATTRIBUTES = ("nonneg", "nonpos", "pos", "neg", "boolean", "integer", "bounds")
_MATRIX_ATTRIBUTES = ("PSD", "NSD", "symmetric", "diag")
"""Attributes that parameters may have, too."""
_MAX_ENTRIES = 10_000
"""Entries of the decision, of auxiliary variables and of parameters; the limit of problem files."""
_MAX_PRODUCTS = 4_000_000
"""Products of a decision and an outcome in one piece of a cost: 2000 of each."""


def problem_to_data(problem: DecisionProblem) -> dict[str, Any]:
    """Plain data of a problem: texts, numbers, lists, dictionaries and arrays; its reverse is `problem_from_data`.

    Raises
    ------
    NotPortableError
        If a formula has unknown parts.
    """
    written, layout = problem.written, problem.layout
    known = {v.id for v in (*written.variables, written.outcome)}
    in_constraints = {v.id: v for row in written.certain for v in row.variables() if v.id not in known}
    declared, joined = written.variables[: layout.n_given], written.variables[layout.n_given :]
    auxiliary = [*joined, *in_constraints.values()]
    leaves = _leaf_names(declared, auxiliary, [p.leaf for p in written.parameters], written.outcome)

    def data_of(nodes: Sequence[Any]) -> list[Any]:
        made = [to_data(node, {leaf.id: name for name, leaf in leaves.items()}) for node in nodes]
        for node, data in zip(nodes, made, strict=True):
            # CVXPY does not say of every atom with all settings how to make it again.
            twin = from_data(data, leaves)
            if str(twin) != str(node) or twin.shape != node.shape:
                raise NotPortableError(f"it holds {node}, which would be read back as {twin}")
        return made

    some = sample_values(problem.parameters, np.random.default_rng(0))
    names = [*layout.names, *(v.name() for v in in_constraints.values())]
    return {
        "name": problem.name,
        "outcome_names": list(problem.outcome_names),
        "decision_names": list(problem.decision_names),
        "constraint_names": list(problem.constraint_names),
        "is_paired": bool(problem.is_paired),
        "units": None if problem.units is None else dict(problem.units),
        "source": None if problem.source is None else [problem.source.reference, problem.source.digest],
        "curvature": (problem.at_values(some) if problem.parameters else problem).curvature.name,
        "structure": next((k.__name__ for k in (dict, list, tuple) if isinstance(problem.decision, k)), "one"),
        "decision": [_leaf_to_data(v, name) for v, name in zip(declared, names, strict=False)],
        "auxiliary": [_leaf_to_data(v, name) for v, name in zip(auxiliary, names[layout.n_given :], strict=True)],
        "parameters": [_leaf_to_data(p.leaf, p.name, _MATRIX_ATTRIBUTES) for p in problem.parameters],
        "cost": data_of([written.cost])[0],
        "constraints": data_of(written.certain),
        "uncertain_constraints": data_of(written.uncertain),
        "outcome_support": data_of(written.support),
    }


def fields_from_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the `DecisionProblem` that plain data describe; mistakes in the data are ValueErrors."""
    declared = [_leaf_from_data(one, cp.Variable) for one in data["decision"]]
    auxiliary = [_leaf_from_data(one, cp.Variable) for one in data["auxiliary"]]
    parameters = [_leaf_from_data(one, cp.Parameter, _MATRIX_ATTRIBUTES) for one in data["parameters"]]
    d, p, n_auxiliary = len(data["outcome_names"]), _size(declared), _size(auxiliary)
    if max(p, n_auxiliary) > _MAX_ENTRIES or (1 + p + n_auxiliary) * (1 + d) > _MAX_PRODUCTS:
        raise ValueError(
            f"A problem of {p} decisions, {n_auxiliary} auxiliary variables and {d} outcomes is larger than what is "
            "read."
        )
    if _size(parameters) > _MAX_ENTRIES:
        raise ValueError(f"The parameters of a problem may have {_MAX_ENTRIES} entries in all.")
    structure, names = data["structure"], [v.name() for v in declared]
    check_variable_names(names)
    if structure not in ("one", "list", "tuple", "dict") or (structure == "one" and len(declared) != 1):
        raise ValueError(f"Unknown structure {structure!r} of a decision with {len(declared)} variables.")
    decision: Any = declared[0] if structure == "one" else tuple(declared) if structure == "tuple" else declared
    decision = dict(zip(names, declared, strict=True)) if structure == "dict" else decision
    u, budget = cp.Variable(d), FormulaBudget()
    leaves = _leaf_names(declared, auxiliary, parameters, u)
    without_outcome = {name: leaf for name, leaf in leaves.items() if name != "u"}
    cost = from_data(data["cost"], leaves, budget)
    if not isinstance(cost, cp.Expression) or cost.shape != ():
        raise ValueError("The cost must be one number.")
    uncertain = tuple(from_data(one, leaves, budget) for one in data["uncertain_constraints"])
    support = tuple(from_data(one, {"u": u}, budget) for one in data["outcome_support"])
    return {
        "decision": decision,
        "cost": FormulaFunction(decision, u, cost),
        "n_outcomes": d,
        "constraints": [from_data(one, without_outcome, budget) for one in data["constraints"]],
        "uncertain_constraints": FormulaFunction(decision, u, uncertain) if uncertain else None,
        "outcome_support": FormulaFunction(decision, u, support) if support else None,
        "name": _text(data["name"]),
        "outcome_names": data["outcome_names"],
        "decision_names": data["decision_names"],
        "is_paired": data["is_paired"] is True,
        "constraint_names": data["constraint_names"],
        "units": data["units"],
        "source": None if data["source"] is None else Source(*map(_text, data["source"])),
        "constants": (),
    }


def _leaf_names(declared: Sequence[Any], auxiliary: Sequence[Any], parameters: Sequence[Any], u: Any) -> dict[str, Any]:
    """Leaves by their names in data: z1, z2, ..., auxiliary a1, ..., parameters p1, ..., the outcome u."""
    kinds = {"z": declared, "a": auxiliary, "p": parameters}
    return {f"{stem}{k}": leaf for stem, leaves in kinds.items() for k, leaf in enumerate(leaves, start=1)} | {"u": u}


def _size(leaves: Sequence[Any]) -> int:
    return sum(leaf.size for leaf in leaves)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"Expected a text, got {type(value).__name__}.")
    return value


def _leaf_to_data(leaf: cp.Variable | cp.Parameter, name: str, more: Sequence[str] = ()) -> dict[str, Any]:
    known = (*_ATTRIBUTES, *more)
    unknown = [name for name, setting in leaf.attributes.items() if setting and name not in known]
    if unknown:
        raise NotPortableError(f"it holds {leaf.name()} with the attribute {unknown[0]}")
    attributes: dict[str, Any] = {}
    for key in known:
        setting = leaf.attributes.get(key)
        if key == "bounds" and setting is not None:
            # Lists of numbers: a missing bound is infinite, which arrays in a file must not be.
            attributes[key] = [
                [float(b) for b in np.broadcast_to(np.asarray(bound, float), leaf.shape).ravel()] for bound in setting
            ]
        elif setting is True:
            attributes[key] = True
        elif setting:
            attributes[key] = [[int(i) for i in np.atleast_1d(index)] for index in setting]
    return {"shape": [int(n) for n in leaf.shape], "name": name, "attributes": attributes}


def _leaf_from_data(data: Mapping[str, Any], kind: type, more: Sequence[str] = ()) -> Any:
    shape = tuple(int(n) for n in data["shape"])
    if len(shape) > 2 or not 1 <= np.prod(shape, dtype=float) <= _MAX_ENTRIES:
        raise ValueError(f"The decision must have 1 to {_MAX_ENTRIES} entries on at most 2 axes, got shape {shape}.")
    settings: dict[str, Any] = {}
    for key, setting in data["attributes"].items():
        if key not in (*_ATTRIBUTES, *more):
            raise ValueError(f"The decision has the unknown attribute {key!r}.")
        if key == "bounds":
            lower, upper = (np.array(bound, dtype=np.float64).reshape(shape) for bound in setting)
            if not (lower <= upper).all():  # also if one is no number
                raise ValueError("The bounds of a variable must be numbers, the lower not above the upper.")
            settings[key] = [lower, upper]
        else:
            settings[key] = True if setting is True else [tuple(index) for index in setting]
    return kind(shape, name=_text(data["name"]), **settings)
