"""A decision problem as plain data: names, variables and formulas, for model files and pickles.

The data hold the formulas and nothing compiled: whoever reads them compiles the problem again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from polyhedge.problems.formula import FormulaBudget, FormulaFunction, NotPortableError, from_data, to_data
from polyhedge.problems.layout import Source, check_variable_names, sample_values

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

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
