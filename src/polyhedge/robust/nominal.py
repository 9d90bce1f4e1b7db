"""Decisions with the outcome known: the lower end of every comparison."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array
from polyhedge.problems import DecisionProblem
from polyhedge.robust.counterpart import Counterpart
from polyhedge.robust.decide import decide
from polyhedge.robust.scenarios import best_against
from polyhedge.sets import Box
from polyhedge.solvers.program import Cone, ConicForm


class _Point:
    """The set {0}: no uncertainty."""

    def __init__(self, n_outcomes: int) -> None:
        self.n_outcomes = n_outcomes

    def conic_form(self, radius: float) -> ConicForm:
        d = self.n_outcomes
        return ConicForm(G=sp.eye_array(d, format="csr"), g=np.zeros(d), cones=(Cone("zero", d),))


def decide_knowing(problem: DecisionProblem, outcomes: Array) -> tuple[Array, Array]:
    """Best decisions (N, p) and costs min_z g(z, u) (N,) for known outcomes; NaN where there is none."""
    if problem.pieces is None:
        found = [best_against(problem, u[None]) for u in outcomes]
        solved = [(z if s.status.has_solution else z * np.nan, s.value) for s, z in found]
    elif not len(problem.support_rows[0]):
        # A box without width: all outcomes at once where decisions have a batch form.
        decisions = decide(problem, Box(np.ones(problem.n_outcomes)), 0.0, outcomes)
        return decisions.z.reshape(-1, problem.n_decisions), decisions.cost_bound
    else:
        d = problem.n_outcomes
        # What happened need not be what outcome_support held possible.
        everything = np.zeros((0, d)), np.zeros(0)
        counterpart = Counterpart(problem, _Point(d), 0.0, support_rows=everything)  # type: ignore[arg-type]
        solutions = [counterpart.solve(u) for u in outcomes]
        solved = [(s.z, s.value) for s in solutions]
    z = np.array([z for z, _ in solved]).reshape(-1, problem.n_decisions)
    return z, np.array([value for _, value in solved], dtype=float)
