"""Decisions on a segment: problems whose Z has one dimension, such as a budget split in two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from polyhedge._validation import Array
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import ConicProgram


@dataclass(frozen=True)
class Segment:
    """Decisions z(s) = z0 + s (z1 - z0), their directions, and their cost without uncertainty.

    The cost of z(s) at outcome u is base[0] + base[1] s + base[2] s^2 + v(s)'u.
    """

    z0: Array
    z1: Array
    v0: Array
    v1: Array
    base: Array


@lru_cache(maxsize=16)
def as_segment(problem: DecisionProblem) -> Segment | None:
    """The problem's segment of decisions, or None where it has another form; found once for a problem."""
    if problem.pieces is None or len(problem.pieces) > 1 or len(problem.support_rows[0]):
        return None
    ends = decision_segment(problem)
    if ends is None:
        return None
    z0, z1 = ends
    v0, v1 = problem.pieces.directions(np.stack([z0, z1]))[:, 0]
    base = quadratic_base(problem, z0, z1)
    return None if base is None else Segment(z0, z1, v0, v1, base)


def decision_segment(problem: DecisionProblem) -> tuple[Array, Array] | None:
    """The two extreme decisions if Z is a segment, found by linear programs over Z; else None."""
    program, p = problem.feasible.program, problem.n_decisions
    polyhedral = all(cone.kind in ("zero", "nonneg") for cone in program.cones)
    if problem.uncertain_rows or len(program.integer) or not polyhedral:
        return None
    direction = np.random.default_rng(0).normal(size=p)
    least = _Least(problem)
    low, high = least(direction), least(-direction)
    if low is None or high is None or np.allclose(low, high):
        return None
    span = direction @ (high - low)
    for j in range(p):
        off_line = np.eye(p)[j] - (high - low)[j] / span * direction
        for sign in (1.0, -1.0):
            extreme = least(sign * off_line)
            if extreme is None or abs(off_line @ (extreme - low)) > 1e-7:
                return None
    return low, high


class _Least:
    """Extreme decisions of a polyhedral Z, each linear program from the last one's basis."""

    def __init__(self, problem: DecisionProblem) -> None:
        program, self.columns = problem.feasible.program, problem.feasible.z_columns
        costs = np.zeros(len(program.c))
        self.solver = LinearSolver(ConicProgram(c=costs, A=program.A, b=program.b, cones=program.cones))

    def __call__(self, costs: Array) -> Array | None:
        self.solver.change_costs(self.columns, costs)
        solution = self.solver.solve()
        return solution.x[self.columns] if solution.status.has_solution else None


def quadratic_base(
    problem: DecisionProblem, z0: Array, z1: Array, cost: Callable[[Array], Array] | None = None
) -> Array | None:
    """Coefficients of the cost at outcome 0 along the segment if it is a convex parabola in s, else None."""
    s = np.linspace(0, 1, 5)
    z = z0 + s[:, None] * (z1 - z0)
    costs = problem.evaluate(z, np.zeros((5, problem.n_outcomes))) if cost is None else cost(z)
    base = np.polynomial.polynomial.polyfit(s, costs, 2)
    fitted = np.polynomial.polynomial.polyval(s, base)
    if not np.allclose(fitted, costs, atol=1e-9 * (1 + np.abs(costs).max())):
        return None
    base[2] = base[2] if base[2] > 1e-12 else 0.0
    return np.asarray(base, dtype=np.float64)
