"""By how much a cost can exceed its plan, where decisions and outcomes are bounded: what promises on means need."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import FEASIBLE
from polyhedge._support.validation import Array, Indices
from polyhedge.problems import DecisionProblem
from polyhedge.solvers.program import Cone, ConicProgram, Status
from polyhedge.solvers.solve import solve

_WHY = (
    "A promise on a mean needs largest, the most by which a cost can exceed its planned cost: a case in a million that "
    "costs a billion moves the mean, and no sample shows that there is none. It is derived where costs are sums of "
    "maxima of affine functions, and decisions and outcomes are bounded. {}. State such bounds, as constraints and as "
    "outcome_support, or give largest in the units of the cost."
)
Box = tuple[Array, Array]


def largest_excess(problem: DecisionProblem) -> float:
    """An upper bound of all costs less a lower bound of them; a ValueError where there is none.

    Planned costs are costs of decisions, hence no lower, unless a policy plans with outcomes beyond the support.
    """
    own, split = problem.structure.own_cost, problem.cost_split
    if problem.has_recourse and problem.all_pieces is None:
        what = "infeasible outcomes, integers, squares, parameters or too many dual vertices to list"
        raise ValueError(_WHY.format(f"The second stage has {what}"))
    if problem.parameters or split is None or own is None:
        raise ValueError(_WHY.format("This cost has parameters or is of another kind"))
    A, h = problem.support_rows
    d, feasible = problem.n_outcomes, problem.feasible
    known = ConicProgram(c=np.zeros(d), A=sp.csr_array(A), b=h, cones=(Cone("nonneg", len(h)),))
    u = box(known, np.arange(d)) if len(h) else None
    if u is None:
        raise ValueError(_WHY.format(f"Outcomes ({', '.join(problem.outcome_names)}) are not bounded here"))
    z = box(feasible.program, feasible.z_columns)
    if z is None:
        raise ValueError(_WHY.format(f"Decisions ({', '.join(problem.decision_names)}) are not bounded here"))
    joint = split.joint_part.merged()
    # [1, z]' M [1, z] of the decision's own cost, and [1, z]' M [1, u] of the rest.
    constant = own.offset + 0.5 * float(own.l @ own.D @ own.l)
    alone = np.block([[np.array([[constant]]), 0.5 * own.slope[None]], [0.5 * own.slope[:, None], 0.5 * own.hessian]])
    high = limits(alone, z, z)[1] + limits(joint.base, z, u)[1]
    high += sum(max(limits(piece, z, u)[1] for piece in group) for group in joint.groups)
    low = _least(problem)
    if low is None:
        low = limits(alone, z, z)[0] + limits(joint.base, z, u)[0]
        low += sum(max(limits(piece, z, u)[0] for piece in group) for group in joint.groups)
    return float((high - low) * (1 + FEASIBLE))


def box(program: ConicProgram, columns: Indices) -> Box | None:
    """A 1, then limits of some columns over a program's points, integers or not; None if one has no limit."""
    ends = np.empty((2, len(columns)))
    for (k, column), side in product(enumerate(columns), (0, 1)):
        costs = np.zeros(len(program.c))
        costs[column] = 1.0 - 2 * side
        found = solve(replace(program, c=costs, P=None, offset=0.0, integer=np.zeros(0, dtype=np.int64)))
        if found.status is not Status.OPTIMAL:
            return None
        ends[side, k] = found.x[column]
    slack = FEASIBLE * (1 + np.abs(ends).max(axis=0))
    return np.append(1.0, ends[0] - slack), np.append(1.0, ends[1] + slack)


def limits(M: Array, left: Box, right: Box) -> tuple[float, float]:
    """Lower and upper limits of x'My over two boxes, term by term."""
    corners = np.stack([np.outer(a, b) for a in left for b in right])
    terms = M * np.stack([corners.min(axis=0), corners.max(axis=0)])
    return float(terms.min(axis=0).sum()), float(terms.max(axis=0).sum())


def _least(problem: DecisionProblem) -> float | None:
    """The least cost of any decision at any outcome; None where both are multiplied, or it is not found."""
    assert problem.cost_split is not None
    joint, feasible = problem.cost_split.joint_part.merged(), problem.feasible
    if any(M[..., 1:, 1:].any() for M in (joint.base, *joint.groups)):
        return None
    program, (A, h), z = feasible.program, problem.support_rows, feasible.z_columns
    n, d, n_groups = len(program.c), problem.n_outcomes, len(joint.groups)
    places = np.concatenate([z, n + np.arange(d)])
    costs = np.concatenate([program.c, np.zeros(d), np.ones(n_groups)])
    costs[places] += np.concatenate([joint.base[1:, 0], joint.base[0, 1:]])
    rows, sides = [], []
    for g, group in enumerate(joint.groups):
        for piece in group:
            row = np.zeros(len(costs))
            row[places], row[n + d + g] = np.concatenate([piece[1:, 0], piece[0, 1:]]), -1.0
            rows.append(row)
            sides.append(-piece[0, 0])
    above = sp.csr_array(np.array(rows).reshape(len(rows), len(costs)))
    left = sp.block_diag([program.A, sp.csr_array(A), sp.csr_array((0, n_groups))])
    whole = ConicProgram(
        c=costs,
        A=sp.csr_array(sp.vstack([left, above])),
        b=np.concatenate([program.b, h, sides]),
        cones=(*program.cones, Cone("nonneg", len(h) + len(rows))),
        P=None if program.P is None else sp.csr_array(sp.block_diag([program.P, sp.csr_array((d + n_groups,) * 2)])),
        offset=program.offset + joint.base[0, 0],
    )
    found = solve(whole)
    return found.value - found.gap if found.status is Status.OPTIMAL else None
