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
from polyhedge.problems.decompose import decompose
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
from polyhedge.problems.second_stage import RecourseFormulas, split_cost

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
    recourse : the second stage; `cost` is then that of the first.
    """

    variables: tuple[cp.Variable, ...]
    layout: Layout
    outcome: cp.Variable
    parameters: tuple[ProblemParameter, ...]
    cost: cp.Expression
    certain: tuple[cp.Constraint, ...]
    uncertain: tuple[cp.Constraint, ...]
    support: tuple[cp.Constraint, ...]
    recourse: RecourseFormulas | None = None

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
        if self.recourse is not None:
            own |= {v.name(): n for v, n in zip(self.recourse.variables, self.recourse.layout.names, strict=True)}
        return own | {self.outcome.name(): "u"}

    @property
    def total_cost(self) -> cp.Expression:
        """The cost of both stages."""
        if self.recourse is None:
            return self.cost
        return self.recourse.cost if self.cost.is_zero() else self.cost + self.recourse.cost

    def places(self) -> dict[str, Sequence[Any]]:
        """The formulas by their places in a `DecisionProblem`."""
        later = self.recourse
        return {
            "cost": [self.cost] if later is None else [self.cost, later.cost],
            "constraints": self.certain,
            "uncertain_constraints": self.uncertain,
            "outcome_support": self.support,
        } | ({} if later is None else {"recourse_constraints": later.constraints})

    def substituted(self, leaves: Mapping[int, Any], **parts: Any) -> Written:
        """The formulas with leaves replaced, by their id, and other `parts`."""
        rows: dict[str, Any] = {
            name: tuple(substitute_in(row, leaves) for row in getattr(self, name))
            for name in ("certain", "uncertain", "support")
        }
        later = self.recourse
        if later is not None:
            kept = tuple(substitute_in(row, leaves) for row in later.constraints)
            parts = {"recourse": replace(later, cost=substitute(later.cost, leaves), constraints=kept)} | parts
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
    later = read_recourse(problem, declared, names, z, u)
    arguments = (z, u) if later is None else (z, u, later.structure)
    total = call_cost(problem.cost, *arguments)
    written = Written(
        variables=declared,
        layout=Layout(names, tuple(tuple(v.shape) for v in declared), len(declared)),
        outcome=u,
        parameters=(),
        cost=total,
        certain=tuple(as_list(problem.constraints, "constraints")),
        uncertain=() if uncertain is None else tuple(as_list(uncertain(z, u), "uncertain_constraints")),
        support=() if support is None else tuple(as_list(support(u), "outcome_support")),
    )
    if later is not None:
        written = with_second_stage(written, later)
    _refuse_recourse(written)
    _refuse_own_outcome(written)
    # Variables of the cost that nobody declared are chosen with the decision: they join it at its end.
    met = {v.id: v for v in written.cost.variables()}
    if written.recourse is not None:
        apart = {v.id for v in written.recourse.variables}
        late = (written.recourse.cost, *written.recourse.constraints)
        met |= {v.id: v for node in late for v in node.variables() if v.id not in apart}
    joining = [v for key, v in met.items() if key not in {v.id for v in (*declared, u)}]
    names = (*names, *(own_name(v) or f"w{k}" for k, v in enumerate(joining, start=1)))
    check_variable_names([*names, *(() if written.recourse is None else written.recourse.layout.names)])
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


@dataclass(frozen=True)
class _Later:
    """The declared recourse variables, their names and structure, and the constraints that link both stages."""

    variables: tuple[cp.Variable, ...]
    names: tuple[str, ...]
    structure: Any
    constraints: tuple[cp.Constraint, ...]


def read_recourse(problem: Any, declared: Sequence[cp.Variable], names: Sequence[str], z: Any, u: Any) -> _Later | None:
    """What a problem says of its second stage; None if it has none."""
    if problem.recourse is None:
        if problem.recourse_constraints is not None:
            raise ValueError(
                "recourse_constraints are given without recourse. Declare the variables that are chosen once the "
                "outcome is known: recourse=y."
            )
        return None
    variables, own = declared_variables(problem.recourse, "recourse", "y")
    twice = {v.id for v in variables} & {v.id for v in declared}
    if twice:
        name = next(v.name() for v in variables if v.id in twice)
        raise ValueError(
            f"The variable {name} is part of the decision and of the recourse. It is chosen either before the outcome "
            "is known or after: name it once."
        )
    check_variable_names([*names, *own])
    structure = in_structure(problem.recourse, variables)
    rows: list[cp.Constraint] = []
    if problem.recourse_constraints is not None:
        given = call(problem.recourse_constraints, "recourse_constraints", z, u, structure)
        rows = as_list(given, "recourse_constraints")
    return _Later(variables, own, structure, tuple(rows))


def with_second_stage(written: Written, later: _Later) -> Written:
    """The formulas with their second stage apart.

    Variables that nobody declared are chosen later if only the second stage has them. Constraints without outcome
    and recourse belong to the first stage, all that hold a recourse variable to the second, wherever they were given.
    """
    u, late = written.outcome, {v.id: v for v in later.variables}
    first, rows = list[cp.Constraint](), list[cp.Constraint]()
    for row in written.certain:
        (rows if set(late) & {v.id for v in row.variables()} else first).append(row)
    known = {v.id for v in (*written.variables, u)} | {v.id for row in first for v in row.variables()}
    for row in later.constraints:
        met = {v.id for v in row.variables()}
        (first if met <= known and u.id not in met else rows).append(row)
    late |= {v.id: v for row in rows for v in row.variables() if v.id not in known}
    early_cost, late_cost = split_cost(written.cost, set(late))
    # Undeclared variables that share a term with the recourse are chosen with it, unless the first stage has them, too.
    fixed = known | {v.id for v in early_cost.variables()}
    late |= {v.id: v for v in late_cost.variables() if v.id not in fixed}
    if {v.id for v in early_cost.variables()} & set(late):
        early_cost, late_cost = split_cost(written.cost, set(late))
    own = [v for v in early_cost.variables() if v.id != u.id] or written.variables
    if decompose(early_cost, own, u, early_cost.parameters()) is None:
        # A cost of the first stage that is no maximum of pieces is evaluated along with the second.
        early_cost, late_cost = split_cost(written.cost, {u.id, *late})
    variables = tuple(late.values())
    names = (*later.names, *(own_name(v) or f"v{k}" for k, v in enumerate(variables[len(later.names) :], start=1)))
    layout = Layout(names, tuple(tuple(v.shape) for v in variables), len(later.variables))
    recourse = RecourseFormulas(variables, layout, late_cost, tuple(rows))
    return replace(written, cost=early_cost, certain=tuple(first), recourse=recourse)


def call(function: Any, name: str, *arguments: Any) -> Any:
    """What a user's function returns; errors are in terms of the problem."""
    if not callable(function):
        raise TypeError(f"{name} must be a callable {name}(z, u, y), got {function!r}.")
    try:
        return function(*arguments)
    except Exception as error:  # whatever a user's function raises
        kind = ValueError if isinstance(error, (ValueError, LookupError)) else TypeError
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise kind(f"{name}(z, u, y) failed: {text}. Check n_outcomes, names and shapes.") from error


def call_cost(cost: Callable[..., Any], z: Any, u: Any, *later: Any) -> cp.Expression:
    """The cost as a scalar CVXPY expression; errors are in terms of the problem."""
    if not callable(cost):
        raise TypeError(
            f"cost must be a callable cost(z, u), got {cost!r}. Write a function of decision and outcome, such as "
            "cost=lambda z, u: u @ z; to maximise a profit, return minus the profit."
        )
    how = "cost(z, u, y)" if later else "cost(z, u)"
    try:
        value = cost(z, u, *later)
    except Exception as error:  # whatever a user's function raises; CVXPY alone knows five kinds
        kind = ValueError if isinstance(error, (ValueError, LookupError)) else TypeError
        shapes = ", ".join(str(leaf.shape) for leaf in leaves_of(z, z))
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise kind(
            f"{how} failed for z of shape {shapes} and u of shape {u.shape}: {text}. Check n_outcomes, names and "
            "shapes, and take CVXPY's functions (cp.maximum, cp.pos, cp.abs, cp.sum) instead of max, if and NumPy's."
        ) from error
    if not isinstance(value, (cp.Expression, int, float, np.number, np.ndarray)):
        raise ValueError(f"{how} must return a number or an expression (to maximise: minus it), got {value!r}.")
    expression = value if isinstance(value, cp.Expression) else cp.Constant(value)
    if expression.size != 1:
        raise ValueError(
            f"{how} must return one number, got an expression of shape {expression.shape}. "
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
                f"{place} holds a partial_optimize over {chosen}: whether this choice may wait for the outcome cannot "
                "be read from it. Write its objective and constraints out, and declare variables that are chosen once "
                f"the outcome is known: recourse={chosen}."
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
                f"{place} holds the variable {name}, which is not part of the decision. If {name} is chosen before the "
                f"outcome is known, declare it: decision=[..., {name}]. If it is chosen afterwards, declare "
                f"recourse={name}, and write constraints that hold it in recourse_constraints."
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
    if problem.written.recourse is not None:
        _check_second_stage(problem, outcome)
        return
    if problem.structure.has_maxima:
        return
    in_outcome = problem.cost_of_outcome()
    if not (in_outcome.is_convex() or in_outcome.is_concave()):
        raise ValueError(
            "The cost is neither affine, concave nor convex in the outcome, so its worst case cannot be computed "
            f"exactly: {formulas_by_name(problem)[0]}. Rewrite it by CVXPY's rules; if it needs z >= 0, declare the "
            "variable nonneg=True."
        )


def _check_second_stage(problem: DecisionProblem, outcome: cp.Parameter) -> None:
    """Raise unless cost and constraints of the second stage are convex in both decisions together."""
    written, leaves = problem.written, problem.written.leaves(u=outcome)
    later = written.recourse
    assert later is not None
    bent = [("cost", later.cost, substitute(later.cost, leaves).is_convex())]
    bent += [("recourse_constraints", row, substitute_in(row, leaves).is_dcp()) for row in later.constraints]
    for place, node, is_fine in bent:
        if not is_fine:
            raise ValueError(
                f"In {place}, {to_text(node, written.names())} must be convex in both decisions together for every "
                "outcome, and CVXPY cannot see that it is. A decision must not be multiplied with a recourse variable: "
                "write y <= z in place of y * z. Rewrite it by CVXPY's rules; if it needs u >= 0, say so in "
                "outcome_support."
            )


def problem_text(problem: DecisionProblem) -> str:
    """The problem as one line of formulas."""
    written = problem.written
    names = written.names()
    cost, limits, known = _formula_texts(written, names)

    def chosen(variables: Sequence[cp.Variable]) -> str:
        texts = []
        for variable in variables:
            words = {"nonneg": "at least 0", "nonpos": "at most 0", "integer": "integers", "boolean": "0 or 1"}
            facts = [" x ".join(map(str, variable.shape)) or "a number"]
            facts += [text for key, text in words.items() if variable.attributes[key]]
            ends = variable.attributes["bounds"]
            facts += [] if ends is None else [f"{np.min(ends[0]):g} to {np.max(ends[1]):g}"]
            texts.append(f"{names[variable.name()]} ({', '.join(facts)})")
        return ", ".join(texts)

    over, later = chosen(written.variables[: written.layout.n_given]), written.recourse
    if later is not None:
        over += f" and, once u is known, over {chosen(later.variables[: later.layout.n_given])}"
    parts = [
        f"minimise over {over} the cost {cost}{' subject to ' if limits else ''}{'; '.join(limits)}",
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

    later = () if written.recourse is None else written.recourse.constraints
    return shown([written.total_cost])[0], shown([*written.certain, *written.uncertain, *later]), shown(written.support)


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
    auxiliary, later = [*joined, *in_constraints.values()], written.recourse
    chosen_later = () if later is None else later.variables
    leaves = _leaf_names(declared, auxiliary, [p.leaf for p in written.parameters], written.outcome, chosen_later)

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
        "structure": _structure_of(problem.decision),
        "decision": [_leaf_to_data(v, name) for v, name in zip(declared, names, strict=False)],
        "auxiliary": [_leaf_to_data(v, name) for v, name in zip(auxiliary, names[layout.n_given :], strict=True)],
        "parameters": [_leaf_to_data(p.leaf, p.name, _MATRIX_ATTRIBUTES) for p in problem.parameters],
        "cost": data_of([written.cost])[0],
        "constraints": data_of(written.certain),
        "uncertain_constraints": data_of(written.uncertain),
        "outcome_support": data_of(written.support),
        "recourse": None
        if later is None
        else {
            "variables": [_leaf_to_data(v, n) for v, n in zip(later.variables, later.layout.names, strict=True)],
            "n_declared": later.layout.n_given,
            "structure": _structure_of(problem.recourse),
            "cost": data_of([later.cost])[0],
            "constraints": data_of(later.constraints),
        },
    }


def _structure_of(decision: Any) -> str:
    return next((kind.__name__ for kind in (dict, list, tuple) if isinstance(decision, kind)), "one")


def _in_structure_of(name: Any, variables: Sequence[cp.Variable]) -> Any:
    """The variables as the decision of a structure with this name."""
    names = [v.name() for v in variables]
    check_variable_names(names)
    if name not in ("one", "list", "tuple", "dict") or (name == "one" and len(variables) != 1):
        raise ValueError(f"Unknown structure {name!r} of a decision with {len(variables)} variables.")
    if name == "dict":
        return dict(zip(names, variables, strict=True))
    return variables[0] if name == "one" else tuple(variables) if name == "tuple" else list(variables)


def fields_from_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the `DecisionProblem` that plain data describe; mistakes in the data are ValueErrors."""
    declared = [_leaf_from_data(one, cp.Variable) for one in data["decision"]]
    auxiliary = [_leaf_from_data(one, cp.Variable) for one in data["auxiliary"]]
    parameters = [_leaf_from_data(one, cp.Parameter, _MATRIX_ATTRIBUTES) for one in data["parameters"]]
    later = data["recourse"]
    chosen_later = [] if later is None else [_leaf_from_data(one, cp.Variable) for one in later["variables"]]
    d, p, n_auxiliary = len(data["outcome_names"]), _size(declared), _size(auxiliary) + _size(chosen_later)
    if max(p, n_auxiliary) > _MAX_ENTRIES or (1 + p + n_auxiliary) * (1 + d) > _MAX_PRODUCTS:
        raise ValueError(
            f"A problem of {p} decisions, {n_auxiliary} auxiliary variables and {d} outcomes is larger than what is "
            "read."
        )
    if _size(parameters) > _MAX_ENTRIES:
        raise ValueError(f"The parameters of a problem may have {_MAX_ENTRIES} entries in all.")
    decision = _in_structure_of(data["structure"], declared)
    u, budget = cp.Variable(d), FormulaBudget()
    leaves = _leaf_names(declared, auxiliary, parameters, u, chosen_later)
    early = {name: leaf for name, leaf in leaves.items() if name[0] != "y"}
    without_outcome = {name: leaf for name, leaf in early.items() if name != "u"}
    cost, recourse, linked = from_data(data["cost"], early, budget), None, None
    if later is not None:
        recourse = _in_structure_of(later["structure"], chosen_later[: int(later["n_declared"])])
        rows = tuple(from_data(one, leaves, budget) for one in later["constraints"])
        linked = FormulaFunction(decision, u, rows, recourse) if rows else None
        cost = cost + from_data(later["cost"], leaves, budget)
    if not isinstance(cost, cp.Expression) or cost.shape != ():
        raise ValueError("The cost must be one number.")
    uncertain = tuple(from_data(one, early, budget) for one in data["uncertain_constraints"])
    support = tuple(from_data(one, {"u": u}, budget) for one in data["outcome_support"])
    return {
        "decision": decision,
        "cost": FormulaFunction(decision, u, cost, recourse),
        "recourse": recourse,
        "recourse_constraints": linked,
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


def _leaf_names(
    declared: Sequence[Any], auxiliary: Sequence[Any], parameters: Sequence[Any], u: Any, later: Sequence[Any] = ()
) -> dict[str, Any]:
    """Leaves by their names in data: z1, z2, ..., auxiliary a1, ..., recourse y1, ..., parameters p1, ..., u."""
    kinds = {"z": declared, "a": auxiliary, "y": later, "p": parameters}
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
