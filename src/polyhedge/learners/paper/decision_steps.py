r"""Steps of decisions down a slope of their cost and back into the feasible set Z.

As printed, $z' = \Pi_Z(z - \text{rate}\,(\nabla g_0(z) + \text{gradient}))$, with $\Pi_Z$ the nearest point of Z. On a
simplex it is a sort; elsewhere it is a convex program for each decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.problems.feasible_set import FeasibleProgram, quadratic_cost
from polyhedge.solvers.program import row_kinds
from polyhedge.solvers.solve import solve


class DecisionStep(Protocol):
    """A step from decisions z (B, p) along minus the gradient of the cost without g_0, then back into Z."""

    def __call__(self, z: Array, gradient: Array, rate: float) -> Array:
        """The new decisions (B, p)."""


def decision_step(feasible: FeasibleProgram) -> DecisionStep:
    """On a simplex with quadratic g_0 the projected step as printed, in closed form; else `_proximal_step`."""
    quadratic = _quadratic_on_simplex(feasible)
    if quadratic is None:
        return lambda z, gradient, rate: _proximal_step(feasible, z, gradient, rate)
    H, g, total = quadratic
    return lambda z, gradient, rate: project_onto_simplex(z - rate * (gradient + z @ H + g), total)


def project_onto_simplex(rows: Array, total: float = 1.0) -> Array:
    r"""Nearest points of $\{z \ge 0, 1^\top z = \text{total}\}$: z = max(row - t, 0), with t found by sorting.

    Examples
    --------
    >>> project_onto_simplex(np.array([[0.9, 0.3], [2.0, 0.0]]))
    array([[0.8, 0.2],
           [1. , 0. ]])
    """
    falling = -np.sort(-rows, axis=1)
    thresholds = (np.cumsum(falling, axis=1) - total) / np.arange(1, rows.shape[1] + 1)
    n_positive = np.maximum((falling > thresholds).sum(axis=1), 1)
    return np.maximum(rows - thresholds[np.arange(len(rows)), n_positive - 1][:, None], 0.0)


def _proximal_step(feasible: FeasibleProgram, z: Array, gradient: Array, rate: float) -> Array:
    r"""$\arg\min_{z' \in Z} g_0(z') + \text{gradient}^\top z' + |z' - z|^2 / (2\,\text{rate})$, one program a row.

    With linear g_0 this is the projected step as printed; otherwise g_0 acts at the new point.
    """
    program, columns = feasible.program, feasible.z_columns
    n = len(program.c)
    near = sp.csr_array((np.full(len(columns), 1 / rate), (columns, columns)), shape=(n, n))
    P = near if program.P is None else sp.csr_array(program.P + near)
    moved = z.copy()
    for i in range(len(z)):
        c = program.c.copy()
        c[columns] += gradient[i] - z[i] / rate
        solution = solve(replace(program, c=c, P=P))
        if solution.status.has_solution:
            moved[i] = solution.x[columns]
    return moved


def _quadratic_on_simplex(feasible: FeasibleProgram) -> tuple[Array, Array, float] | None:
    """H, g, total if Z is {z >= 0, sum z = total} and g_0 is z'Hz / 2 + g'z; None otherwise.

    Columns beside z must be fixed by as many equations, as CVXPY writes quadratic costs, so that they do not limit z.
    """
    program, z = feasible.program, feasible.z_columns
    others = np.setdiff1d(np.arange(len(program.c)), z)
    A, p = program.A.toarray(), len(z)
    kinds = row_kinds(program.cones)
    defines = A[:, others].any(axis=1)
    B = A[defines][:, others]
    own, own_kinds, own_b = A[~defines][:, z], kinds[~defines], program.b[~defines]
    equation, signs = own[own_kinds == "zero"], own[own_kinds == "nonneg"]
    is_simplex = (
        set(kinds) <= {"zero", "nonneg"}
        and not (kinds[defines] == "nonneg").any()
        and len(B) == len(others)
        and (not len(B) or np.linalg.matrix_rank(B) == len(B))
        and len(equation) == 1
        and bool(np.ptp(equation) == 0 and equation[0, 0] != 0)
        and signs.shape == (p, p)
        and not own_b[own_kinds == "nonneg"].any()
        and np.array_equal(np.sort(signs, axis=0), np.vstack([signs.min(axis=0), np.zeros((p - 1, p))]))
        and bool((signs.sum(axis=1) < 0).all() and (signs.sum(axis=0) < 0).all())
    )
    total = float(own_b[own_kinds == "zero"][0] / equation[0, 0]) if is_simplex else 0.0
    cost = quadratic_cost(feasible) if total > 0 else None
    return None if cost is None else (cost.hessian, cost.slope, total)
