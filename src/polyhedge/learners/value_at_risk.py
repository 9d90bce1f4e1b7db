r"""Exact selection of residuals for a single context and a cost affine in the outcome: a mixed-integer program.

A set that covers `rank` residuals has support at least the rank-th smallest of $v^\top\epsilon_j$ in direction v, and
a half-space attains it. So with $v = Qz + q$

$$V^\star = \min_{z \in Z}\ g_0(z) + v^\top \hat f + (\text{rank-th smallest of } v^\top \epsilon_j),$$

a value-at-risk minimisation with one binary for each residual that can be worth dropping, and no bilinear term. Where
decisions form a segment, `sweep.py` needs no solver.
"""

from __future__ import annotations

import time

import numpy as np

from polyhedge.learners.bilinear_model import ModelRows
from polyhedge.learners.bound import CertifiedBound
from polyhedge.learners.ccg_master import Cut, Master
from polyhedge.learners.objective import LearningObjective
from polyhedge.solvers.program import Status

_ALWAYS = np.zeros(0, dtype=np.int64)


def minimise_value_at_risk(objective: LearningObjective, tolerance: float, deadline: float) -> CertifiedBound | None:
    """The bound for one context; None where the cost's directions are unbounded, so that no big M is valid.

    Every residual is a cut of the one context: it counts unless it is dropped, or always where no selection
    of `rank` residuals gains by dropping it.
    """
    began = time.perf_counter()
    try:
        master = Master(objective)
    except ValueError:
        return None
    residuals, rank = objective.residuals, objective.rank
    M = [master.costs.big_m(0, Cut(0, e, np.array([j]))) for j, e in enumerate(residuals)]
    master.cuts = [Cut(0, e, np.array([j]) if M[j] > 0 else _ALWAYS) for j, e in enumerate(residuals)]
    rows = ModelRows()
    selected = rows.columns(len(residuals), 0.0, 1.0, integer=True)
    rows.at_most(selected, -np.ones(len(residuals)), -float(rank))
    found = master.solve(rows, selected, max(deadline - time.perf_counter(), 0.0))
    if not found.solution.status.has_solution:
        return None
    outcomes = objective.centers + residuals
    costs = objective.problem.evaluate(np.tile(found.z, (len(outcomes), 1)), outcomes)
    kept = np.zeros(len(outcomes), dtype=bool)
    kept[np.argsort(costs, kind="stable")[:rank]] = True
    upper = float(costs[kept].max())
    lower = min(found.solution.value - found.solution.gap, upper)
    status = Status.OPTIMAL if upper - lower <= tolerance * max(1.0, abs(upper)) else Status.STOPPED_EARLY
    n_binaries = sum(m > 0 for m in M)
    detail = f"value-at-risk program with {n_binaries} binaries on one context"
    return CertifiedBound(lower, upper, kept, status, time.perf_counter() - began, detail)
