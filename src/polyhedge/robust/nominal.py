"""Decisions with the outcome known: the lower end of every comparison."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array
from polyhedge.problems import DecisionProblem
from polyhedge.robust.batch import decide_in_batch
from polyhedge.robust.counterpart import Counterpart
from polyhedge.robust.scenarios import best_against
from polyhedge.solvers.program import Cone, ConicForm


def decide_knowing(problem: DecisionProblem, outcomes: Array) -> tuple[Array, Array]:
    """Best decisions (N, p) and costs min_z g(z, u) (N,) for known outcomes; NaN where there is none."""
    if problem.pieces is not None:
        return _by_counterpart(problem, outcomes)
    found = [best_against(problem, u[None]) for u in outcomes]
    z = [z if solution.status.has_solution else z * np.nan for solution, z in found]
    values = np.array([solution.value for solution, _ in found], dtype=float)
    return np.array(z).reshape(-1, problem.n_decisions), values


def _by_counterpart(problem: DecisionProblem, outcomes: Array) -> tuple[Array, Array]:
    d = problem.n_outcomes
    # What happened need not be what outcome_support held possible.
    everything = np.zeros((0, d)), np.zeros(0)
    counterpart = Counterpart(problem, _Point(d), 0.0, support_rows=everything)  # type: ignore[arg-type]
    decided = decide_in_batch(counterpart, outcomes)
    for i in np.flatnonzero(decided.is_open):
        solution = counterpart.solve(outcomes[i])
        decided.z[i], decided.cost_bound[i] = solution.z, solution.value
    return decided.z, decided.cost_bound


class _Point:
    """The set {0}: no uncertainty."""

    def __init__(self, n_outcomes: int) -> None:
        self.n_outcomes = n_outcomes

    def conic_form(self, radius: float) -> ConicForm:
        d = self.n_outcomes
        return ConicForm(G=sp.eye_array(d, format="csr"), g=np.zeros(d), cones=(Cone("zero", d),))
