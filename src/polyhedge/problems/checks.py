"""Checks: of a problem when it is written, of outcomes, and of decisions against constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.frames import names_of, select_columns
from polyhedge._support.tolerances import FEASIBLE, INSIDE
from polyhedge._support.validation import Array, Mask, as_rows
from polyhedge.problems.formula import substitute
from polyhedge.problems.layout import default_outcome_names, layout_of, sample_values
from polyhedge.solvers.program import Cone, ConicProgram, Status, row_kinds
from polyhedge.solvers.solve import solve

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem
    from polyhedge.problems.decompose import Decomposition
    from polyhedge.problems.feasible_set import FeasibleProgram
    from polyhedge.problems.written import Written


class NoSolutionError(ValueError):
    """No decision satisfies the constraints, or the cost has no least value."""


def check_feasible(problem: DecisionProblem) -> None:
    """Raise if no decision satisfies the constraints that do not depend on the outcome."""
    if _is_infeasible(problem):
        raise NoSolutionError(
            "The feasible set of the decision problem is empty: no decision satisfies its constraints. "
            "Relax or remove the constraints that contradict each other."
        )


def may_be_infeasible(problem: DecisionProblem) -> bool:
    """Whether a solver can be right that no decision is robust: only constraints can exclude all, never the cost."""
    may_have_no_second = problem.has_recourse and problem.all_pieces is None
    return may_have_no_second or problem.uncertain_constraints is not None or _is_infeasible(problem)


def _is_infeasible(problem: DecisionProblem) -> bool:
    program = problem.feasible.program
    return solve(replace(program, c=np.zeros_like(program.c), P=None, offset=0.0)).status is Status.INFEASIBLE


def check_with_parameters(problem: DecisionProblem) -> None:
    """Compile a problem at some values of its parameters, so that mistakes are named when it is written."""
    some = problem.at_values(sample_values(problem.parameters, np.random.default_rng(0)))
    assert some.feasible is not None
    assert some.uncertain_rows is not None
    if problem.has_recourse:
        check_second_stage(some)


def check_second_stage(problem: DecisionProblem) -> None:
    """Raise if the second stage ignores the outcome, or has no least cost."""
    second = problem.second_stage
    assert second is not None
    d = problem.n_outcomes
    if not (second.sides[..., 1 : 1 + d].any() or second.constant[:, 1 : 1 + d].any()):
        raise ValueError(
            "No cost or constraint with a recourse variable depends on the outcome, so that there is nothing to wait "
            "for. Declare the variables in decision=[...], or let recourse_constraints use the outcome u."
        )
    if not second.is_bounded():
        raise NoSolutionError(
            "The second stage is unbounded: its cost can be lowered without limit, whatever was decided first. Bound "
            "the recourse variables (nonneg=True, constraints), or check the signs of their costs."
        )


def is_never_positive(problem: DecisionProblem, rays: Array) -> bool:
    """Whether biaffine functions (R, 1 + p, 1 + k) are at most 0 at all feasible decisions and possible outcomes.

    False where products of both, or parameters, keep this from being known.
    """
    d, (A, h) = problem.n_outcomes, problem.support_rows
    if problem.parameters and rays[:, :, 1 + d :].any():
        return False
    first = problem.first_stage
    feasible = first.lifted.feasible if first.lifted is not None else first.feasible
    if rays[:, 1:, 1:].any() or feasible.slopes is not None:
        return not len(rays)
    support = ConicProgram(c=np.zeros(d), A=sp.csr_array(A), b=h, cones=(Cone("nonneg", len(h)),))
    for ray in rays:
        highest = ray[0, 0]
        for program, columns, slopes in (
            (replace(feasible.program, P=None, offset=0.0), feasible.z_columns, ray[1:, 0]),
            (support, np.arange(d), ray[0, 1 : 1 + d]),
        ):
            if not slopes.any():
                continue
            c = np.zeros(len(program.c))
            c[columns] = -slopes
            solution = solve(replace(program, c=c)) if len(program.b) else None
            if solution is None or solution.status is not Status.OPTIMAL:
                return False
            highest += solution.gap - solution.value
        if highest > FEASIBLE * float(np.abs(ray).max()):
            return False
    return True


def check_support(problem: DecisionProblem) -> None:
    """Raise if no outcome satisfies `outcome_support`."""
    A, h = problem.support_rows
    program = ConicProgram(c=np.zeros(A.shape[1]), A=sp.csr_array(A), b=h, cones=(Cone("nonneg", len(h)),))
    if len(A) and solve(program).status is Status.INFEASIBLE:
        raise ValueError(
            "outcome_support is empty: no outcome satisfies it. Remove the constraints that contradict each other."
        )


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
    """A table with a column for each outcome, these in the problem's order if both have names."""
    names = names_of(table)
    if names is None or not (is_named(problem) or set(names) == set(problem.outcome_names)):
        return table
    return select_columns(table, problem.outcome_names, what, exactly=True)


def is_named(problem: DecisionProblem) -> bool:
    """Whether its outcomes were given names."""
    return list(problem.outcome_names) != default_outcome_names(problem.n_outcomes)


def check_outcomes(problem: DecisionProblem, Y: Any) -> Array:
    """Outcomes as finite rows (n, n_outcomes); an error if some violate the problem's `outcome_support`.

    Columns with names are put in the order of the problem's outcome names.
    """
    values = np.asarray(in_outcome_order(problem, Y, "Y"))
    rows = as_rows(values[:, None] if values.ndim == 1 else values, "Y", problem.n_outcomes)
    outcomes = np.ascontiguousarray(rows)
    outside = outside_support(problem, outcomes)
    if outside.any():
        raise ValueError(
            f"{int(outside.sum())} row(s) of Y violate outcome_support, the first is row "
            f"{int(np.flatnonzero(outside)[0])}. Correct the data or the problem's outcome_support."
        )
    return outcomes


def outside_support(problem: DecisionProblem, Y: Array) -> Mask:
    """Which rows of Y (N, n_outcomes) violate the problem's `outcome_support` by more than rounding, in any units."""
    A, h = problem.support_rows
    # What the terms of each row of the support usually add up to: a limit of 0 has no size of its own.
    usual = (np.abs(Y) @ np.abs(A).T).mean(axis=0) if len(Y) else 0.0
    return np.asarray((h + INSIDE * (np.abs(h) + usual) < Y @ A.T).any(axis=1))


class RowValues:
    """A scalar formula of one or more arguments, evaluated at matching rows of numbers.

    A CVXPY parameter has one value at a time, so threads must not share one: every call works on an expression with
    its own parameters, taken from the idle ones if there are any. The arguments of a `formula` of a problem are its
    variables, the outcome and its parameters.
    """

    def __init__(self, written: Written, formula: cp.Expression) -> None:
        self.written, self.formula = written, formula
        own = (parameter.shape for parameter in written.parameters)
        self.shapes = (*written.layout.shapes, (written.outcome.size,), *own)
        self._idle: list[tuple[cp.Expression, list[cp.Parameter]]] = []

    def __call__(self, *rows: Array) -> Array:
        """The formula at row i of every argument, each (N, size): shape (N,); NaN outside its domain."""
        try:
            expression, parameters = self._idle.pop()  # atomic
        except IndexError:
            parameters = [cp.Parameter(shape) for shape in self.shapes]
            k = len(self.written.variables)
            leaves = self.written.leaves(parameters[:k], parameters[k], parameters[k + 1 :])
            expression = substitute(self.formula, leaves)
        n, met = len(rows[0]), {parameter.id for parameter in expression.parameters()}
        shaped = [
            (parameter, some.reshape(n, *shape))
            for parameter, shape, some in zip(parameters, self.shapes, rows, strict=True)
            if parameter.id in met
        ]
        values = np.full(n, np.nan if shaped else float(expression.value))
        with np.errstate(all="ignore"):
            for i in range(n if shaped else 0):
                for parameter, numbers in shaped:
                    parameter.save_value(np.asarray(numbers[i]))  # without CVXPY's slow check of attributes
                value = expression.value
                values[i] = np.nan if value is None else float(value)
        self._idle.append((expression, parameters))
        return values


class UncertainRows:
    """The uncertain constraints as functions of many decisions, outcomes and parameters at once.

    `splits` are the entries of the constraints (left side minus right side): arrays over (u, parameters), and a part of
    the decision and the parameters alone.
    """

    def __init__(self, written: Written, splits: Sequence[Decomposition]) -> None:
        self.written, self.splits = written, tuple(splits)
        self.alone = [RowValues(written, split.decision_part) for split in splits]

    def violations(self, z: Array, u: Array, values: Array) -> Array:
        """By how much each constraint is exceeded (N, n_constraints), for rows of z (N, p), u (N, d) and parameters.

        Zero if it holds up to the solvers' tolerance; the largest entry of a constraint with several; NaN without a
        decision.
        """
        solved = 1e-8  # share of the terms of a constraint that solvers leave between its sides
        excess, decided = np.full((len(z), len(self.splits)), np.nan), np.isfinite(z).all(axis=1)
        z, known, values = z[decided], np.hstack([u, values])[decided], values[decided]
        columns = layout_of(self.written.parameters).columns(values)
        for r, (split, alone) in enumerate(zip(self.splits, self.alone, strict=True)):
            rest = alone(*self.written.layout.columns(z), u[decided], *columns)
            value = split.joint_part.evaluate(z, known) + rest
            size = split.joint_part.sizes().evaluate(np.abs(z), np.abs(known)) + np.abs(rest)
            excess[decided, r] = np.where(value > solved * size, value, 0.0)
        ends = np.cumsum([0, *(constraint.size for constraint in self.written.uncertain)])
        worst = [excess[:, first:last].max(axis=1) for first, last in pairwise(ends.tolist())]
        return np.array(worst).reshape(len(worst), len(excess)).T


def broken_by(problem: DecisionProblem, z: Array, values: Array) -> Array:
    """By how much decisions (N, p) break constraints, bounds or integrality, as a share of their terms (N,).

    Only constraints that do not depend on the outcome count. For constraints with auxiliary variables or cones, the
    distance to the nearest feasible decision. NaN if a decision is NaN.
    """
    if not problem.parameters:
        return _broken(problem.feasible_without_cost, z)
    shares = [_broken(problem.at_values(v).feasible, z[[i]]) for i, v in enumerate(values)]
    return np.concatenate([np.zeros(0), *shares])


def _broken(feasible: FeasibleProgram, z: Array) -> Array:
    program, columns = feasible.program, feasible.z_columns
    kinds, others = row_kinds(program.cones), np.ones(program.A.shape[1], dtype=bool)
    others[columns] = False
    # Equations and inequalities of the decision alone.
    is_plain = np.isin(kinds, ("zero", "nonneg")) & (abs(program.A[:, np.flatnonzero(others)]).sum(axis=1) == 0)
    A, b = program.A[is_plain][:, columns], program.b[is_plain]
    # Entries of a decision are rounded at its largest.
    sizes = np.abs(z).max(axis=1, initial=0.0, keepdims=True)
    slack, size = b - z @ A.T, np.abs(b) + (np.abs(z) + sizes) @ np.abs(A).T
    over = np.where(kinds[is_plain] == "zero", np.abs(slack), np.maximum(-slack, 0.0))
    shares = np.divide(over, size, out=np.zeros_like(over), where=size > 0).max(axis=1, initial=0.0)
    integers = z[:, np.isin(columns, program.integer)]
    shares = np.maximum(shares, np.abs(integers - np.round(integers)).max(axis=1, initial=0.0))
    for i in () if is_plain.all() else np.flatnonzero(shares <= FEASIBLE):
        shares[i] = max(shares[i], _distance(feasible, z[i]))
    return np.where(np.isfinite(z).all(axis=1), shares, np.nan)


def _distance(feasible: FeasibleProgram, z: Array) -> float:
    """The distance to the nearest feasible decision, as a share of the decision's largest entry."""
    program, columns = feasible.program, feasible.z_columns
    n, p, size = program.A.shape[1], len(columns), float(np.abs(z).max(initial=0.0)) or 1.0
    picks = sp.csr_array((np.ones(p), (np.arange(p), columns)), shape=(p, n))
    reach = sp.csr_array(np.full((p, 1), -size))
    nearest = ConicProgram(
        c=np.concatenate([np.zeros(n), [1.0]]),
        A=sp.csr_array(sp.block_array([[program.A, None], [picks, reach], [-picks, reach]])),
        b=np.concatenate([program.b, z, -z]),
        cones=(*program.cones, Cone("nonneg", 2 * p)),
        integer=program.integer,
    )
    solution = solve(nearest)
    return max(float(solution.x[-1]), 0.0) if solution.status.has_solution else np.inf
