"""The extreme decisions of a polyhedral Z, where they are few enough to list."""

from __future__ import annotations

import numpy as np

from polyhedge._validation import Array
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.sets import Polyhedron

_MAX_DIMENSION = 5
_MAX_VERTICES = 2000


def decision_vertices(problem: DecisionProblem) -> Array | None:
    """Vertices (k, p) of a bounded polyhedral Z; None where Z is not one or has too many."""
    program = problem.feasible.program
    if problem.uncertain_rows or len(program.integer) or len(program.c) != problem.n_decisions:
        return None
    if any(cone.kind not in ("zero", "nonneg") for cone in program.cones):
        return None
    A = program.A.toarray()[:, problem.feasible.z_columns]
    kinds = np.concatenate([np.repeat(cone.kind, cone.size) for cone in program.cones])
    equations, inequalities = kinds == "zero", kinds == "nonneg"
    budget = _budget_vertices(A[equations], program.b[equations], A[inequalities], program.b[inequalities])
    if budget is not None:
        return budget
    if problem.n_decisions > _MAX_DIMENSION:
        return None
    W = np.vstack([A[inequalities], A[equations], -A[equations]])
    h = np.concatenate([program.b[inequalities], program.b[equations], -program.b[equations]])
    Z = Polyhedron.from_halfspaces(W, h)
    if not Z.is_bounded:
        return None
    vertices = Z.vertices(0.0)
    return vertices if len(vertices) <= _MAX_VERTICES else None


def _budget_vertices(A_eq: Array, b_eq: Array, A_ub: Array, b_ub: Array) -> Array | None:
    """The corners of {z >= 0 : a'z = b} with a > 0: a budget that goes to one entry."""
    if len(A_eq) != 1 or A_eq.shape[1] != len(A_ub) or not (A_eq * b_eq > 0).all():
        return None
    is_sign = (np.abs(A_ub).sum(axis=1) == np.abs(A_ub).max(axis=1)) & (A_ub.min(axis=1) < 0) & (b_ub == 0)
    if not is_sign.all() or len(np.unique(np.abs(A_ub).argmax(axis=1))) != len(A_ub):
        return None
    return np.diag(b_eq[0] / A_eq[0])
