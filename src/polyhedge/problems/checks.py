"""What a decision problem must satisfy, checked when it is written and not when it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyhedge._support.alignment import listed, names_of, select_columns
from polyhedge._support.tolerances import INSIDE
from polyhedge._support.validation import Array, Mask, as_rows
from polyhedge.problems.formula import substitute
from polyhedge.problems.layout import default_outcome_names, in_structure
from polyhedge.problems.parameters import layout_of, sample_values
from polyhedge.problems.pieces import SumOfMaxima
from polyhedge.problems.written import call_cost, formulas_by_name
from polyhedge.solvers.program import Cone, ConicProgram, Status
from polyhedge.solvers.solve import solve

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

_SAME = 1e-6
"""Costs that differ by less than this share of the largest are the same formula, rounded in another order."""


class NoSolutionError(ValueError):
    """No decision satisfies the constraints, or the cost has no least value."""


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


def check_feasible(problem: DecisionProblem) -> None:
    """Raise if no decision satisfies the constraints that do not depend on the outcome."""
    if is_empty_of_decisions(problem):
        raise NoSolutionError(
            "The feasible set of the decision problem is empty: no decision satisfies its constraints. "
            "Relax or remove the constraints that contradict each other."
        )


def is_empty_of_decisions(problem: DecisionProblem) -> bool:
    """Whether the constraints that do not depend on the outcome contradict each other, whatever anything costs."""
    program = problem.feasible.program
    nothing = replace(program, c=np.zeros_like(program.c), P=None, offset=0.0)
    return solve(nothing).status is Status.INFEASIBLE


def may_be_infeasible(problem: DecisionProblem) -> bool:
    """Whether a solver can be right that no decision is robust: only constraints can exclude all, never the cost."""
    return problem.uncertain_constraints is not None or is_empty_of_decisions(problem)


def check_with_parameters(problem: DecisionProblem, *, is_called: bool = True) -> None:
    """Compile a problem at some values of its parameters, so that mistakes show when it is written.

    `is_called` says whether its cost is a callable of somebody's, and not only the formula that one has given.
    """
    some = problem.at_values(sample_values(problem.parameters, np.random.default_rng(0)))
    assert some.feasible is not None
    assert some.uncertain_rows is not None
    if is_called:
        check_compiled_cost(problem)


def named_by(problem: DecisionProblem, *tables: Any) -> DecisionProblem:
    """The problem with names for its outcomes: its own, else those of the first table that has any."""
    if is_named(problem):
        return problem
    for table in tables:
        names = names_of(table)
        if names is not None and len(names) == problem.n_outcomes:
            return problem if set(names) == set(problem.outcome_names) else problem.labelled(outcome_names=names)
    return problem


def in_outcome_order(problem: DecisionProblem, table: Any, what: str) -> Any:
    """A table with a column for each outcome, these in the problem's order where both have names."""
    names = names_of(table)
    if names is None or not (is_named(problem) or set(names) == set(problem.outcome_names)):
        return table
    return select_columns(table, problem.outcome_names, what, exactly=True)


def is_named(problem: DecisionProblem) -> bool:
    """Whether its outcomes have names of their own."""
    return list(problem.outcome_names) != default_outcome_names(problem.n_outcomes)


def check_outcomes(problem: DecisionProblem, Y: Any) -> Array:
    """Return outcomes as finite rows (n, n_outcomes) if all lie in the problem's `outcome_support`.

    Columns with names are put in the order of the problem's outcome names.
    """
    values = np.asarray(in_outcome_order(problem, Y, "Y"))
    if _are_words(values):
        raise ValueError(
            f"Y must hold the outcomes of each row, got the text(s) {listed(values.reshape(-1).tolist())}. Where these "
            "are names of columns of a frame, pass fit(frame.drop(columns=names), frame[names])."
        )
    if values.ndim == 1:
        values = values[:, None]
    # One layout in memory: sums over rows would differ in the last bits between layouts.
    outcomes = np.ascontiguousarray(as_rows(values, "Y", problem.n_outcomes))
    outside = outside_support(problem, outcomes)
    if outside.any():
        raise ValueError(
            f"{int(outside.sum())} row(s) of Y violate outcome_support, the first is row "
            f"{int(np.flatnonzero(outside)[0])}. Correct the data or the problem's outcome_support."
        )
    return outcomes


def _are_words(values: NDArray[Any]) -> bool:
    """Whether texts that are no numbers stand where a column of outcomes should be."""
    if values.ndim > 1 or values.dtype.kind not in "OU" or not all(isinstance(v, str) for v in values.reshape(-1)):
        return False
    try:
        values.astype(np.float64)
    except ValueError:
        return True
    return False


def outside_support(problem: DecisionProblem, Y: Array) -> Mask:
    """Which rows of Y (N, n_outcomes) violate the problem's `outcome_support` by more than rounding, in any units."""
    A, h = problem.support_rows
    # What the terms of each row of the support usually add up to: a limit of 0 has no size of its own.
    usual = (np.abs(Y) @ np.abs(A).T).mean(axis=0) if len(Y) else 0.0
    return np.asarray((h + INSIDE * (np.abs(h) + usual) < Y @ A.T).any(axis=1))


def check_compiled_cost(problem: DecisionProblem, n_points: int = 2) -> None:
    """Raise if the callable, given numbers, differs from what it said as an expression."""
    rng = np.random.default_rng(0)
    values = sample_values(problem.parameters, rng)
    z = feasible_points(problem.at_values(values), n_points, rng)
    z = np.vstack([z, rng.dirichlet(np.ones(len(z)), n_points) @ z]) if len(z) else z  # between them as well
    if problem.parameters and not len(z):  # other values may leave room for a decision
        z = rng.normal(size=(n_points, problem.n_decisions))
    # A callable cannot be looked into, so a few points must do here; whatever else is known of a cost, its
    # expression says.
    u = _outcomes_in_support(problem, rng.normal(size=(2 * len(z), problem.n_outcomes)))
    z = np.tile(z, (2, 1))
    costs = problem.evaluate(z, u, np.tile(values, (len(z), 1)))
    size = float(np.abs(costs[np.isfinite(costs)]).max(initial=0.0))
    allowed = _SAME * size + _rounding(problem.at_values(values), z, u)
    for k, (decision, outcome, said, most) in enumerate(zip(z, u, costs, allowed, strict=True)):
        given = _value_by_call(problem, decision, outcome, values, k)
        if np.isclose(said, given, rtol=0.0, atol=most, equal_nan=True):
            continue
        raise ValueError(
            f"cost(z, u) gives {given:.6g} for constant z and u but its expression has the value {said:.6g}. "
            "The callable must return the same formula for variables and constants: remove branches on "
            "types or values, randomness and NumPy functions applied to z or u."
        )


def _rounding(problem: DecisionProblem, z: Array, u: Array) -> Array:
    """What roundings make of a cost whose terms are larger than itself, at matching rows."""
    joint = problem.sum_of_maxima
    if joint is None:
        return np.zeros(len(z))
    sizes = SumOfMaxima(np.abs(joint.base), tuple(np.abs(group) for group in joint.groups))
    return 4096 * float(np.finfo(float).eps) * sizes.evaluate(np.abs(z), np.abs(u))


def _value_by_call(problem: DecisionProblem, z: Array, u: Array, values: Array, turn: int) -> float:
    """The cost in one of the three ways in which solvers will ask for it, by turns: z, u or both constant."""
    parts = problem.layout.split(z)[: problem.layout.n_given]
    given_z: list[Any] = [cp.Constant(part) for part in parts]
    given_u: Any = cp.Constant(u)
    if turn % 3 == 1:
        given_z = [cp.Variable(part.shape, value=part) for part in parts]
    elif turn % 3 == 2:
        given_u = cp.Variable(len(u), value=u)
    # What a callable takes from elsewhere than its arguments are the variables and parameters themselves.
    leaves = problem.written.leaves(z) | {one.parameter.id: cp.Constant(one.value) for one in problem.constants}
    parameters = zip(problem.parameters, layout_of(problem.parameters).split(values), strict=True)
    leaves |= {parameter.origin: cp.Constant(value) for parameter, value in parameters}
    with np.errstate(all="ignore"):  # outside its domain a cost is NaN
        said = call_cost(problem.cost, in_structure(problem.decision, given_z), given_u)
        value = substitute(said, leaves).value
    return float("nan") if value is None else float(value)


def _outcomes_in_support(problem: DecisionProblem, u: Array) -> Array:
    """Project outcomes onto the known support, where costs such as powers may be undefined outside."""
    A, h = problem.support_rows
    if not len(A):
        return u
    nearest = ConicProgram(
        c=np.zeros(A.shape[1]),
        A=sp.csr_array(A),
        b=h,
        cones=(Cone("nonneg", len(h)),),
        P=sp.eye_array(A.shape[1]).tocsr(),
    )
    points = [solve(replace(nearest, c=-row)).x for row in u]
    if not np.isfinite(points).all():
        raise ValueError(
            "outcome_support is empty: no outcome satisfies it. Remove the constraints that contradict each other."
        )
    return np.array(points)


def feasible_points(
    problem: DecisionProblem,
    n_points: int,
    rng: np.random.Generator,
    time_limit: float | None = None,
    size: float = 1.0,
) -> Array:
    """Projections of random points of a size onto (the relaxation of) Z, as many as are found in `time_limit` each."""
    program, columns = problem.feasible.program, problem.feasible.z_columns
    n = len(program.c)
    P = sp.csr_array((np.ones(len(columns)), (columns, columns)), shape=(n, n))
    points = []
    for target in size * rng.normal(size=(n_points, len(columns))):
        c = np.zeros(n)
        c[columns] = -target
        projection = ConicProgram(c=c, A=program.A, b=program.b, cones=program.cones, P=P)
        solution = solve(projection, time_limit=time_limit)
        if solution.status.has_solution:
            points.append(solution.x[columns])
    return np.array(points).reshape(-1, len(columns))
