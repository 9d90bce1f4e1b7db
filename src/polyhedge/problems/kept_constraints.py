"""Whether decisions that somebody else made keep the constraints that do not depend on the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import FEASIBLE
from polyhedge._support.validation import Array, Mask
from polyhedge.problems.feasible_set import FeasibleProgram, compile_feasible_program
from polyhedge.solvers.program import Cone, ConicProgram, row_kinds
from polyhedge.solvers.solve import solve

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem


@dataclass(frozen=True, eq=False)
class Limits:
    """The constraints of a problem, compiled once.

    Attributes
    ----------
    problem : what is decided.
    shared : the constraints without the cost; None where rows have parameters of their own.
    """

    problem: DecisionProblem
    shared: FeasibleProgram | None

    @classmethod
    def of(cls, problem: DecisionProblem) -> Limits:
        """Those of a problem."""
        if problem.parameters:
            return cls(problem, None)
        written = problem.written
        return cls(problem, compile_feasible_program(written.variables, cp.Constant(0.0), written.certain))

    def broken_by(self, z: Array, values: Array) -> Array:
        """By how much decisions (N, p) break constraints, bounds or whole numbers, as a share of their terms (N,).

        Where constraints have variables of their own, or cones, it is how far away the nearest decision is that keeps
        them. NaN where a decision has one.

        Examples
        --------
        >>> from polyhedge.problems import simplex_linear
        >>> limits = Limits.of(simplex_linear([0.0, 0.0]))
        >>> limits.broken_by(np.array([[0.5, 0.5], [1.0, 1.0]]), np.zeros((2, 0))).round(2)
        array([0. , 0.2])
        """
        if self.shared is not None:
            return _broken(self.shared, z)
        shares = [_broken(self.problem.at_values(v).feasible, z[[i]]) for i, v in enumerate(values)]
        return np.concatenate(shares) if shares else np.zeros(0)


def _broken(feasible: FeasibleProgram, z: Array) -> Array:
    program, columns = feasible.program, feasible.z_columns
    is_plain = _plain_rows(feasible)
    A, b = program.A[is_plain][:, columns], program.b[is_plain]
    slack, size = b - z @ A.T, np.abs(b) + (np.abs(z) + _sizes(z)) @ np.abs(A).T
    over = np.where(row_kinds(program.cones)[is_plain] == "zero", np.abs(slack), np.maximum(-slack, 0.0))
    shares = np.divide(over, size, out=np.zeros_like(over), where=size > 0).max(axis=1, initial=0.0)
    whole = z[:, np.isin(columns, program.integer)]
    shares = np.maximum(shares, np.abs(whole - np.round(whole)).max(axis=1, initial=0.0))
    if not is_plain.all():
        for i in np.flatnonzero(shares <= FEASIBLE):
            shares[i] = max(shares[i], _distance(feasible, z[i]))
    return np.where(np.isfinite(z).all(axis=1), shares, np.nan)


def _plain_rows(feasible: FeasibleProgram) -> Mask:
    """Equations and inequalities of the decision alone."""
    program = feasible.program
    others = np.ones(program.A.shape[1], dtype=bool)
    others[feasible.z_columns] = False
    sees_others = np.asarray(abs(program.A[:, np.flatnonzero(others)]).sum(axis=1)).ravel() > 0
    return np.isin(row_kinds(program.cones), ("zero", "nonneg")) & ~sees_others


def _sizes(z: Array) -> Array:
    """The largest entry of each decision (N, 1): what the others are rounded at."""
    return np.abs(z).max(axis=1, initial=0.0, keepdims=True)


def _distance(feasible: FeasibleProgram, z: Array) -> float:
    """How far the nearest decision is that keeps everything, as a share of the decision's size: a program."""
    program, columns = feasible.program, feasible.z_columns
    n, p, size = program.A.shape[1], len(columns), float(_sizes(z[None])[0, 0]) or 1.0
    picks = sp.csr_array((np.ones(p), (np.arange(p), columns)), shape=(p, n))
    reach = sp.csr_array(np.full((p, 1), -size))
    A = sp.vstack([sp.hstack([program.A, sp.csr_array((program.A.shape[0], 1))]), sp.hstack([picks, reach])])
    A = sp.csr_array(sp.vstack([A, sp.hstack([-picks, reach])]))
    nearest = ConicProgram(
        c=np.concatenate([np.zeros(n), [1.0]]),
        A=A,
        b=np.concatenate([program.b, z, -z]),
        cones=(*program.cones, Cone("nonneg", 2 * p)),
        integer=program.integer,
    )
    solution = solve(nearest)
    return max(float(solution.x[-1]), 0.0) if solution.status.has_solution else np.inf
