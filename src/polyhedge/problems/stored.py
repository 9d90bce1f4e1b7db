"""A decision problem as plain data, so that it can travel to where its source code is not.

Two descriptions travel together. The compiled arrays (the conic program of Z, the pieces, the known support) are
what decisions are made from, so they do not depend on how another version of CVXPY would compile. The formulas
serve what arrays cannot: the value of the part of the cost that depends on z alone, and costs without pieces. A problem
with parameters travels as formulas, with the name, shape and attributes of each parameter, and is compiled when it is
read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.problems.checks import check_curvature, check_with_parameters
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.expression_tree import FormulaWork, NotPortableError, from_tree, to_tree
from polyhedge.problems.feasible_set import FeasibleProgram
from polyhedge.problems.layout import Layout, check_variable_names, leaves_of, own_name
from polyhedge.problems.names import Source, check_names, check_units
from polyhedge.problems.parameters import ProblemParameter, parameter_names, sample_values
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.stored_checks import check_stored
from polyhedge.problems.violations import constraint_texts
from polyhedge.problems.written import Written, substitute, substitute_in
from polyhedge.solvers.program import Cone, ConicProgram, n_rows
from polyhedge.solvers.scaling import with_products, without_products

_ATTRIBUTES = ("nonneg", "nonpos", "pos", "neg", "boolean", "integer", "bounds")
_OF_MATRICES = ("PSD", "NSD", "symmetric", "diag")
"""Attributes that parameters may have, too."""
_CONES = ("zero", "nonneg", "soc", "rotated", "psd", "exp", "pow")
_SIZES = {"rotated": (3, np.inf), "exp": (3, 3), "pow": (3, 3)}
"""Least and most rows of those that have any."""
# The same limit as for problems in TOML files.
_MAX_ENTRIES = 10_000
_MAX_PRODUCTS = 4_000_000
"""Products of a decision and an outcome in one piece of a cost: 2000 of each."""
_MAX_ROWS = 10_000_000
"""Rows of one cone; the arrays of a file could not fill more."""
_STRUCTURES: dict[str, tuple[type, ...]] = {"dict": (dict,), "list": (list, tuple)}


@dataclass(frozen=True, eq=False)
class StoredFormula:
    """A cost (or constraints) from a file; called like the function it was written as."""

    decision: Any
    variables: tuple[cp.Variable, ...]
    outcome: cp.Variable
    nodes: tuple[Any, ...]
    is_list: bool = False

    def __call__(self, *arguments: Any) -> Any:
        """The formula at (z, u), or at u alone."""
        leaves: dict[int, Any] = {self.outcome.id: arguments[-1]}
        if len(arguments) == 2:
            leaves |= dict(zip((v.id for v in self.variables), leaves_of(self.decision, arguments[0]), strict=True))
        if self.is_list:
            return [substitute_in(node, leaves) for node in self.nodes]
        return substitute(self.nodes[0], leaves)


def problem_to_state(problem: DecisionProblem) -> dict[str, Any]:
    """Plain data of a problem; raises `NotPortableError` where a formula has unknown parts."""
    written = problem.written
    auxiliary = _in_constraints_only(written)
    leaves = _leaf_names(written.variables, auxiliary, written.outcome, written.parameters)
    by_name = {name: leaf for leaf, name in leaves}

    def trees(nodes: Any) -> list[Any]:
        made = [to_tree(node, {leaf.id: name for leaf, name in leaves}) for node in nodes]
        for node, tree in zip(nodes, made, strict=True):
            # CVXPY does not say of every atom with all settings how to make it again.
            twin = from_tree(tree, by_name)
            if str(twin) != str(node) or twin.shape != node.shape:
                raise NotPortableError(f"it holds {node}, which would be read back as {twin}")
        return made

    return {
        "name": problem.name,
        "outcome_names": list(problem.outcome_names),
        "decision_names": list(problem.decision_names),
        **({"constraint_names": list(problem.constraint_names)} if problem.constraint_names else {}),
        **({"is_paired": True} if problem.is_paired else {}),
        **({"units": dict(problem.units)} if problem.units else {}),
        "source": None if problem.source is None else [problem.source.reference, problem.source.digest],
        "decision": _decision_state(problem),
        **({"auxiliary": [_leaf_state(v) for v in auxiliary]} if auxiliary else {}),
        **({"parameters": _parameter_states(problem)} if problem.parameters else {}),
        "cost": trees([written.cost]),
        "constraints": trees(written.certain),
        "uncertain_constraints": None if problem.uncertain_constraints is None else trees(written.uncertain),
        "outcome_support": None if problem.outcome_support is None else trees(written.support),
        "compiled": _compiled_state(problem),
    }


def _in_constraints_only(written: Written) -> list[cp.Variable]:
    known = {v.id for v in (*written.variables, written.outcome)}
    others = {v.id: v for row in written.certain for v in row.variables() if v.id not in known}
    return list(others.values())


def _leaf_names(
    variables: Sequence[cp.Variable],
    auxiliary: Sequence[cp.Variable],
    outcome: cp.Variable,
    parameters: Sequence[ProblemParameter],
) -> list[tuple[Any, str]]:
    """What leaves are called in trees: z (z1, z2, ... where there are several), u, a1, ... if auxiliary, p1, ..."""
    z = [(v, "z" if len(variables) == 1 else f"z{k}") for k, v in enumerate(variables, start=1)]
    others = [(v, f"a{k}") for k, v in enumerate(auxiliary, start=1)]
    others += [(p.leaf, f"p{k}") for k, p in enumerate(parameters, start=1)]
    return [*z, *others, (outcome, "u")]


def _decision_state(problem: DecisionProblem) -> dict[str, Any]:
    """One plain variable as files of the first versions have it; else all of them with names and structure."""
    variables, layout = problem.written.variables, problem.layout
    if problem.decision is variables[0] and len(variables) == 1:
        return _leaf_state(variables[0])
    kind = next((name for name, type_ in _STRUCTURES.items() if isinstance(problem.decision, type_)), "one")
    return {
        "structure": kind,
        "n_given": layout.n_given,
        "names": list(layout.names),
        "variables": [_leaf_state(v) for v in variables],
    }


def _decision(state: Mapping[str, Any]) -> tuple[Any, tuple[cp.Variable, ...], Layout]:
    """The decision in its structure, all variables of z, and where they stand in it."""
    if "variables" not in state:
        variable = _variable(state)
        name = own_name(variable)
        stem = "z" if re.fullmatch(r"var\d+", name) else name
        return variable, (variable,), Layout((stem,), (tuple(variable.shape),), 1)
    variables = tuple(_variable(one) for one in state["variables"])
    names, n_given = [_text(name) for name in state["names"]], state["n_given"]
    check_variable_names(names)
    if type(n_given) is not int or not 1 <= n_given <= len(variables) or len(names) != len(variables):
        raise ValueError("The decision has another number of names than of variables.")
    layout = Layout(tuple(names), tuple(tuple(v.shape) for v in variables), n_given)
    given = dict(zip(names[:n_given], variables[:n_given], strict=True))
    kind = state["structure"]
    if kind not in (*_STRUCTURES, "one") or (kind == "one" and n_given != 1) or layout.size > _MAX_ENTRIES:
        raise ValueError(f"Unknown structure {kind!r} of a decision with {n_given} variables.")
    return (variables[0] if kind == "one" else given if kind == "dict" else list(given.values())), variables, layout


def problem_from_state(state: Mapping[str, Any]) -> DecisionProblem:
    """The problem that `problem_to_state` described; what is wrong with the data is a ValueError."""
    outcome_names = state["outcome_names"]
    d = len(outcome_names)
    decision, variables, layout = _decision(state["decision"])
    auxiliary = [_variable(one) for one in state.get("auxiliary", ())]
    n_auxiliary = sum(variable.size for variable in auxiliary)
    if n_auxiliary > _MAX_ENTRIES or (1 + layout.size) * (1 + d) > _MAX_PRODUCTS:
        raise ValueError(
            f"A problem of {layout.size} decisions, {n_auxiliary} auxiliary variables and {d} outcomes is larger than "
            "what is read."
        )
    u = cp.Variable(d)
    parameters = _parameters(state.get("parameters", ()))
    leaves = {name: leaf for leaf, name in _leaf_names(variables, auxiliary, u, parameters)}
    work = FormulaWork()
    certain, uncertain = _split_rows(state, leaves, work)
    written = Written(
        variables=variables,
        layout=layout,
        outcome=u,
        parameters=parameters,
        cost=_scalar(from_tree(state["cost"][0], leaves, work)),
        certain=certain,
        uncertain=uncertain,
        support=tuple(from_tree(tree, {"u": u}, work) for tree in state["outcome_support"] or ()),
    )
    given = variables[: layout.n_given]

    def called(nodes: Sequence[Any] | None, is_list: bool = True) -> StoredFormula | None:
        return None if nodes is None else StoredFormula(decision, given, u, tuple(nodes), is_list)

    values: dict[str, Any] = {
        "decision": decision,
        "cost": called([written.cost], is_list=False),
        "n_outcomes": d,
        "constraints": certain,
        "uncertain_constraints": called(None if state["uncertain_constraints"] is None else uncertain),
        "outcome_support": called(None if state["outcome_support"] is None else written.support),
        "name": _text(state["name"]),
        "outcome_names": check_names(outcome_names, d, "outcome_names", ()),
        "decision_names": check_names(state["decision_names"], layout.given_size, "decision_names", ()),
        "is_paired": state.get("is_paired") is True and (layout.n_given, layout.given_size) == (1, d),
        "constraint_names": check_names(
            state.get("constraint_names", ()), len(uncertain), "constraint_names", constraint_texts(written)
        ),
        "source": None if state["source"] is None else Source(*map(_text, state["source"])),
        "constants": (),
        "written": written,
    }
    named = [*values["outcome_names"], *values["decision_names"], *(parameter.name for parameter in parameters)]
    values["units"] = check_units(state.get("units"), named)
    # Not by its constructor, which would compile the formulas again.
    if parameters:
        problem = DecisionProblem.assembled(**values)
        check_curvature(problem)
        check_with_parameters(problem, is_called=False)
        return problem
    problem = DecisionProblem.assembled(**values, **_compiled(state["compiled"], d, layout.size))
    check_stored(problem)
    return problem


def _parameter_states(problem: DecisionProblem) -> list[dict[str, Any]]:
    return [_leaf_state(parameter.leaf, _OF_MATRICES) for parameter in problem.parameters]


def _parameters(states: Sequence[Mapping[str, Any]]) -> tuple[ProblemParameter, ...]:
    leaves = [_leaf(state, cp.Parameter, _OF_MATRICES) for state in states]
    parameter_names(leaves)  # they must differ
    if sum(leaf.size for leaf in leaves) > _MAX_ENTRIES:
        raise ValueError(f"The parameters of a problem may have {_MAX_ENTRIES} entries in all.")
    return tuple(ProblemParameter(leaf.name(), leaf, leaf.id) for leaf in leaves)


def _split_rows(
    state: Mapping[str, Any], leaves: Mapping[str, Any], work: FormulaWork
) -> tuple[tuple[cp.Constraint, ...], tuple[cp.Constraint, ...]]:
    """Certain and uncertain constraints; older files have those without u among the uncertain ones."""
    of_decision = {name: leaf for name, leaf in leaves.items() if name != "u"}
    certain = [from_tree(tree, of_decision, work) for tree in state["constraints"]]
    others = [from_tree(tree, leaves, work) for tree in state["uncertain_constraints"] or ()]
    u = leaves["u"].id
    sees_outcome = [u in {v.id for v in row.variables()} for row in others]
    certain += [row for row, sees in zip(others, sees_outcome, strict=True) if not sees]
    return tuple(certain), tuple(row for row, sees in zip(others, sees_outcome, strict=True) if sees)


def _scalar(expression: Any) -> cp.Expression:
    if not isinstance(expression, cp.Expression) or expression.shape != ():
        raise ValueError("The cost must be one number.")
    return expression


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"Expected a text, got {type(value).__name__}.")
    return value


def _leaf_state(z: cp.Variable | cp.Parameter, more: Sequence[str] = ()) -> dict[str, Any]:
    known = (*_ATTRIBUTES, *more)
    unknown = [name for name, setting in z.attributes.items() if setting and name not in known]
    if unknown:
        raise NotPortableError(f"it holds {z.name()} with the attribute {unknown[0]}")
    attributes: dict[str, Any] = {}
    for name in known:
        setting = z.attributes.get(name)
        if name == "bounds" and setting is not None:
            # Lists of numbers: a missing bound is infinite, which arrays in a file must not be.
            attributes[name] = [
                [float(b) for b in np.broadcast_to(np.asarray(bound, float), z.shape).ravel()] for bound in setting
            ]
        elif setting is True:
            attributes[name] = True
        elif setting:
            attributes[name] = [[int(i) for i in np.atleast_1d(index)] for index in setting]
    return {"shape": [int(n) for n in z.shape], "name": z.name(), "attributes": attributes}


def _variable(state: Mapping[str, Any]) -> cp.Variable:
    return _leaf(state, cp.Variable)


def _leaf(state: Mapping[str, Any], kind: type, more: Sequence[str] = ()) -> Any:
    shape = tuple(int(n) for n in state["shape"])
    if len(shape) > 2 or not 1 <= np.prod(shape, dtype=float) <= _MAX_ENTRIES:
        raise ValueError(f"The decision must have 1 to {_MAX_ENTRIES} entries on at most 2 axes, got shape {shape}.")
    settings: dict[str, Any] = {}
    for name, setting in state["attributes"].items():
        if name not in (*_ATTRIBUTES, *more):
            raise ValueError(f"The decision has the unknown attribute {name!r}.")
        if name == "bounds":
            settings[name] = _bounds(setting, shape)
        else:
            settings[name] = True if setting is True else [tuple(index) for index in setting]
    return kind(shape, name=_text(state["name"]), **settings)


def _bounds(setting: Any, shape: tuple[int, ...]) -> list[Array]:
    lower, upper = (np.array(bound, dtype=np.float64).reshape(shape) for bound in setting)
    if not (lower <= upper).all():  # also where one is no number
        raise ValueError("The bounds of a variable must be numbers, the lower not above the upper.")
    return [lower, upper]


def _compiled_state(problem: DecisionProblem) -> dict[str, Any]:
    if problem.parameters:
        some = problem.at_values(sample_values(problem.parameters, np.random.default_rng(0)))
        return {"curvature": some.curvature.name}
    program, total = without_products(problem.feasible.program), problem.sum_of_maxima
    return {
        "curvature": problem.curvature.name,
        "c": program.c,
        "A": _sparse_state(program.A),
        "b": program.b,
        "cones": [[cone.kind, cone.size, float(cone.exponent)] for cone in program.cones],
        "P": None if program.P is None else _sparse_state(program.P),
        "offset": float(program.offset),
        "integer": np.asarray(program.integer, dtype=np.int64),
        "z_columns": np.asarray(problem.feasible.z_columns, dtype=np.int64),
        "epigraph_columns": np.asarray(problem.feasible.epigraph_columns, dtype=np.int64),
        "base": None if total is None else total.base,
        "groups": None if total is None else list(total.groups),
        "uncertain_rows": [[rows.Q, rows.q, rows.p, rows.c] for rows in problem.uncertain_rows],
        "support_rows": list(problem.support_rows),
    }


def _sparse_state(matrix: sp.csr_array) -> dict[str, Any]:
    return {
        "data": np.asarray(matrix.data, dtype=np.float64),
        "indices": np.asarray(matrix.indices, dtype=np.int64),
        "indptr": np.asarray(matrix.indptr, dtype=np.int64),
        "shape": [int(n) for n in matrix.shape],
    }


def _compiled(state: Mapping[str, Any], d: int, p: int) -> dict[str, Any]:
    """The values of the problem's compiled properties, checked against each other."""
    cones = tuple(_cone(*cone) for cone in state["cones"])
    c, b = _shaped(state["c"], (None,)), _shaped(state["b"], (n_rows(cones),))
    n = len(c)
    uncertain = tuple(_pieces(rows, d, p) for rows in state["uncertain_rows"])
    program = ConicProgram(
        c=c,
        A=_sparse(state["A"], len(b), n),
        b=b,
        cones=cones,
        P=None if state["P"] is None else _sparse(state["P"], n, n),
        offset=_finite(state["offset"]),
        integer=_indices(state["integer"], 0, n),
    )
    z_columns = _indices(state["z_columns"], 0, n)
    epigraphs = _indices(state["epigraph_columns"], -1, n)
    if len(z_columns) != p or len(set(z_columns.tolist())) != p or len(epigraphs) != len(uncertain):
        raise ValueError("The program has another number of decisions or uncertain constraints than the problem.")
    A, h = state["support_rows"]
    A = _shaped(A, (None, d))
    return {
        "feasible": FeasibleProgram(with_products(program), z_columns, epigraphs),
        "curvature": Curvature[state["curvature"]],
        "sum_of_maxima": _sum_of_maxima(state["base"], state["groups"], d, p),
        "uncertain_rows": uncertain,
        "support_rows": (A, _shaped(h, (len(A),))),
    }


def _finite(value: Any) -> float:
    if type(value) is not float or not np.isfinite(value):
        raise ValueError(f"Expected a finite number, got {str(value)[:80]!r}.")
    return value


def _cone(kind: str, size: int, exponent: float) -> Cone:
    least, most = _SIZES.get(kind, (1, np.inf)) if kind in _CONES else (1, 0)
    if type(size) is not int or not least <= size <= min(most, _MAX_ROWS) or not 0 < exponent < 1:
        raise ValueError(f"Unknown cone {kind!r} of size {size!r}.")
    return Cone(kind, size, float(exponent))


def _sum_of_maxima(base: Any, groups: Any, d: int, p: int) -> SumOfMaxima | None:
    if base is None:
        return None
    return SumOfMaxima(_shaped(base, (1 + p, 1 + d)), tuple(_shaped(group, (None, 1 + p, 1 + d)) for group in groups))


def _pieces(rows: Any, d: int, p: int) -> Pieces:
    Q, q, p_rows, c = rows
    n = len(c)
    return Pieces(_shaped(Q, (n, d, p)), _shaped(q, (n, d)), _shaped(p_rows, (n, p)), _shaped(c, (n,)))


def _sparse(state: Mapping[str, Any], rows: int, columns: int) -> sp.csr_array:
    if tuple(state["shape"]) != (rows, columns):
        raise ValueError(f"A matrix must have shape ({rows}, {columns}), got {tuple(state['shape'])}.")
    indptr, indices = _indices(state["indptr"], 0, None), _indices(state["indices"], 0, columns)
    data = _shaped(state["data"], (len(indices),))
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise ValueError("The rows of a sparse matrix do not fit its entries.")
    row_of = np.repeat(np.arange(rows), np.diff(indptr))
    # Solvers that are handed two entries for one place, or places out of order, may read beyond their arrays.
    if (np.diff(row_of * np.int64(columns) + indices) <= 0).any():
        raise ValueError("The entries of a sparse matrix must stand in order, each place once.")
    return sp.csr_array((data, indices, indptr), shape=(rows, columns))


def _shaped(array: Any, shape: tuple[int | None, ...]) -> Array:
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != len(shape):
        raise ValueError(f"Expected an array of floats with {len(shape)} axes.")
    if any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True)):
        raise ValueError(f"Expected an array of shape {shape}, got {array.shape}.")
    return array


def _indices(array: Any, low: int, high: int | None) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
        raise ValueError("Expected a list of whole numbers.")
    if len(array) and (array.min() < low or (high is not None and array.max() >= high)):
        raise ValueError(f"Expected numbers between {low} and {high}, got {array.min()} to {array.max()}.")
    return array
