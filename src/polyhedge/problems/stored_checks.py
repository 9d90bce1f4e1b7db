"""Whether the two descriptions in a file, arrays and formulas, are of one problem: compared at points.

Decisions are made from the arrays. A file in which they say another cost than the formula, or another feasible set,
would give bounds that mean nothing. The points do not depend on the clock, so that a file is accepted always or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array, Indices
from polyhedge.problems.checks import check_curvature, feasible_points
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.written import substitute, substitute_in
from polyhedge.solvers.program import Cone, ConicProgram
from polyhedge.solvers.solve import solve

_SCALES = (0.0, 0.1, 1.0, 10.0, 1000.0)
"""Sizes of outcomes: pieces differ far from zero, constants near it."""
_N_DECISIONS = 3
"""Each costs two or more solves of the feasible set."""
# Seconds of a solve in a check: loading as a whole must take no longer than two.
_TIME_LIMIT = 1.0
# The compiled and the written cost are sums of the same terms in another order.
_EXACT = 1e-9
_SOLVED = 1e-4
"""Solvers stop at 1e-8 of a program's own units, which may be far from those of a value."""


def check_stored(problem: DecisionProblem) -> None:
    """Raise ValueError where arrays and formulas of a problem that was read differ."""
    rng = np.random.default_rng(0)
    check_curvature(problem)
    _check_kind(problem)
    _check_support(problem, rng)
    decisions = feasible_points(problem, _N_DECISIONS, rng, _TIME_LIMIT)
    # Points of Z may all lie in one corner; others show more, where the formula is defined.
    others = problem.with_known_signs(rng.normal(size=(_N_DECISIONS, problem.n_decisions)), np.zeros((1, 1)))[0]
    for i, z in enumerate((*decisions, *others)):
        u = np.array(_SCALES)[:, None] * rng.normal(size=(len(_SCALES), problem.n_outcomes))
        is_feasible = i < len(decisions)
        if is_feasible:
            _check_constraints(problem, z)
        _check_cost(problem, z, u, is_feasible)
        _check_uncertain_rows(problem, z, u, is_feasible)


def _check_kind(problem: DecisionProblem) -> None:
    total = problem.sum_of_maxima
    if total is not None:
        expected = [Curvature.MAX_AFFINE if total.groups else Curvature.AFFINE]
    else:
        in_outcome = problem.cost_of_outcome()
        said = ((Curvature.CONCAVE, in_outcome.is_concave()), (Curvature.CONVEX, in_outcome.is_convex()))
        expected = [kind for kind, holds in said if holds]
    if problem.curvature not in expected:
        raise ValueError(f"The cost is compiled as {problem.curvature}, its formula is {' or '.join(expected)}.")


def _check_support(problem: DecisionProblem, rng: np.random.Generator) -> None:
    A, h = problem.support_rows
    for u in np.vstack([np.zeros(problem.n_outcomes), rng.normal(size=(2, problem.n_outcomes))]):
        written = []
        for row in problem.written.support:
            if not isinstance(row, (cp.constraints.Inequality, cp.constraints.Equality)) or not row.expr.is_affine():
                raise ValueError("The known support of the outcome must be linear.")
            values = _entries(row.expr, {problem.written.outcome.id: cp.Constant(u)})
            written.append(np.concatenate([values, -values]) if isinstance(row, cp.constraints.Equality) else values)
        _check_same(A @ u - h, np.concatenate([np.zeros(0), *written]), "known support of the outcome")


def _check_constraints(problem: DecisionProblem, z: Array) -> None:
    """A decision of the compiled feasible set must satisfy the constraints as they are written."""
    own = {v.id for v in problem.written.variables}
    leaves, scale = problem.written.leaves(z), 1.0 + float(np.abs(z).max(initial=0.0))
    for row in problem.written.certain:
        if not {v.id for v in row.variables()} <= own:
            continue  # auxiliary variables are not known at a decision
        violation = np.max(np.asarray(substitute_in(row, leaves).violation(), dtype=float), initial=0.0)
        size = max((float(np.abs(c.value).max()) for c in row.constants() if c.size), default=0.0)
        if not violation <= _SOLVED * scale * (1.0 + size):
            raise ValueError("The feasible set is compiled to another one than its constraints.")


def _check_cost(problem: DecisionProblem, z: Array, u: Array, is_feasible: bool) -> None:
    total, written = problem.sum_of_maxima, problem.written
    values = np.concatenate([_entries(written.cost, written.leaves(z, row)) for row in u])
    if total is None:
        return
    alone = _remainder(values, total, z, u, "cost")
    if is_feasible and alone is not None:
        _check_least(problem.feasible.program, problem.feasible.z_columns, z, alone)


def _check_uncertain_rows(problem: DecisionProblem, z: Array, u: Array, is_feasible: bool) -> None:
    written, feasible = problem.written, problem.feasible
    if any(not isinstance(row, cp.constraints.Inequality) for row in written.uncertain):
        raise ValueError("Uncertain constraints must be inequalities.")
    at = [np.concatenate([np.zeros(0), *_entries_of(written.uncertain, written.leaves(z, row))]) for row in u]
    values = np.array(at).T
    if len(values) != len(problem.uncertain_rows):
        raise ValueError("The problem has another number of uncertain constraints than it is compiled to.")
    for said, pieces, column in zip(values, problem.uncertain_rows, feasible.epigraph_columns, strict=True):
        alone = _remainder(said, pieces, z, u, "uncertain constraint")
        if alone is None or not is_feasible:
            continue
        if column < 0:
            _check_same(np.array([0.0]), np.array([alone]), "uncertain constraint", _SOLVED)
            continue
        c = np.zeros(len(feasible.program.c))
        c[column] = 1.0
        _check_least(replace(feasible.program, c=c, P=None, offset=0.0), feasible.z_columns, z, alone)


def _entries_of(rows: Sequence[cp.Constraint], leaves: dict[int, Any]) -> list[Array]:
    return [_entries(row.expr, leaves) for row in rows]


def _entries(expression: cp.Expression, leaves: dict[int, Any]) -> Array:
    """The values of an expression, row-major; NaN outside its domain."""
    with np.errstate(all="ignore"):
        value = substitute(expression, leaves).value
    if value is None:
        return np.full(expression.size, np.nan)
    value = value.toarray() if sp.issparse(value) else value
    return np.asarray(value, dtype=np.float64).reshape(-1)


def _remainder(written: Array, compiled: SumOfMaxima | Pieces, z: Array, u: Array, what: str) -> float | None:
    """What the formula has beyond its compiled part, which must be the same at every outcome; None if undefined."""
    joint = compiled.evaluate(np.tile(z, (len(u), 1)), u)
    if not np.isfinite(joint).all():
        raise ValueError(f"The {what} is compiled to numbers without end.")
    if not np.isfinite(written).all():
        return None
    # Relative to each value, so that a large outcome does not hide what a small one shows.
    alone = written - joint
    size = np.maximum(1.0, np.maximum(np.abs(written), np.abs(joint)))
    if (np.abs(alone - alone[0]) > _EXACT * np.maximum(size, size[0])).any():
        raise ValueError(f"The {what} is compiled to another one than its formula.")
    return float(alone[0])


def _check_same(compiled: Array, written: Array, what: str, tolerance: float = _EXACT) -> None:
    if compiled.shape == written.shape:
        size = np.maximum(np.abs(compiled), np.abs(written)).max(initial=1.0)
        if np.isfinite(compiled).all() and (np.abs(compiled - written) <= tolerance * size).all():
            return
    raise ValueError(f"The {what} is compiled to another one than its formula.")


def _check_least(program: ConicProgram, columns: Indices, z: Array, said: float) -> None:
    """The least objective at a fixed decision is the part of the formula that depends on it alone."""
    n = len(program.c)
    fixed = sp.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n))
    at_z = replace(
        program,
        A=sp.csr_array(sp.vstack([fixed, program.A])),
        b=np.concatenate([z, program.b]),
        cones=(Cone("zero", len(columns)), *program.cones),
        integer=np.zeros(0, dtype=np.int64),
    )
    found = solve(at_z, time_limit=_TIME_LIMIT)
    scale = 1.0 + abs(said) + float(np.abs(program.c[columns] * z).sum())
    # A point on the border may lie outside by a rounding error, or leave the solver short of an answer; then nothing
    # can be compared.
    if found.status.has_solution and found.gap <= 0.1 * _SOLVED * scale:
        _check_same(np.array([found.value / scale]), np.array([said / scale]), "cost of a decision", _SOLVED)
