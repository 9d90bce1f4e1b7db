r"""Exact selection of residuals for a single context and a cost affine in the outcome: a mixed-integer program.

A set that covers `rank` residuals has support at least the rank-th smallest of $v^\top\epsilon_j$ in direction v, and
a half-space attains it. So with $v = Qz + q$

$$V^\star = \min_{z \in Z}\ g_0(z) + v^\top \hat f + (\text{rank-th smallest of } v^\top \epsilon_j),$$

a value-at-risk minimisation with one binary for each residual that can be worth dropping, and no bilinear term. Where
decisions form a segment, `sweep.py` needs no solver.

What the lower bound rests on: the dual bound of this program, whose big M is how far a residual can exceed the nearest
n - rank + 1 others over all directions of the cost (`excess_over_selected`).
"""

from __future__ import annotations

import time

import numpy as np

from polyhedge.learners.budget import Budget
from polyhedge.learners.exact.bound import CertifiedBound, certified
from polyhedge.learners.paper.big_m import ModelRows
from polyhedge.learners.paper.ccg_master import Cut, Master
from polyhedge.learners.samples import Samples

_ALWAYS = np.zeros(0, dtype=np.int64)


def minimise_value_at_risk(samples: Samples, tolerance: float, budget: Budget) -> CertifiedBound | None:
    """The bound for one context; None where the cost's directions are unbounded, so that no big M is valid.

    Every residual is a cut of the one context: it counts unless it is dropped, or always where no selection
    of `rank` residuals gains by dropping it.
    """
    began = time.perf_counter()
    try:
        master = Master(samples)
    except ValueError:
        return None
    residuals, rank = samples.residuals, samples.rank
    M = [master.costs.big_m(0, Cut(0, e, np.array([j]))) for j, e in enumerate(residuals)]
    master.cuts = [Cut(0, e, np.array([j]) if M[j] > 0 else _ALWAYS) for j, e in enumerate(residuals)]
    rows = ModelRows()
    selected = rows.columns(len(residuals), 0.0, 1.0, integer=True)
    rows.at_most(selected, -np.ones(len(residuals)), -float(rank))
    answer = master.solve(rows, selected, budget)
    if not answer.solution.status.has_solution:
        return None
    outcomes = samples.centers + residuals
    costs = samples.problem.evaluate(np.tile(answer.z, (len(outcomes), 1)), outcomes)
    kept = np.zeros(len(outcomes), dtype=bool)
    kept[np.argsort(costs, kind="stable")[:rank]] = True
    upper = float(costs[kept].max())
    unit = max(float(np.ptp(costs)), *M)
    return certified(
        answer.solution.value - answer.solution.gap,
        upper,
        kept,
        unit=unit,
        tolerance=tolerance,
        seconds=time.perf_counter() - began,
        detail=f"value-at-risk program with {sum(m > 0 for m in M)} binaries on one context",
    )
