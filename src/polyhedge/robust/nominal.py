"""Decisions with the outcome known: the lower end of every comparison.

| route          | applies to                 | how                                                  |
|----------------|----------------------------|------------------------------------------------------|
| all values     | parameters that are affine | the counterpart of a point, with them as coordinates |
| value by value | other parameters           | each value by the routes below                       |
| counterpart    | a maximum of listed pieces | the counterpart of a point                           |
| as written     | any other cost             | one program an outcome                               |
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.problems.lifted import Lifted
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust.counterpart import Counterpart
from polyhedge.robust.engine.batch import decide_in_batch
from polyhedge.robust.routes import Route, dispatch
from polyhedge.robust.scenarios import best_against
from polyhedge.solvers.program import Cone, ConicForm, Status

Best = tuple[Array, Array, Mask]
"""Decisions (N, p), their costs (N,), and where it is proven that no decision is better (N,)."""


def decide_knowing(problem: DecisionProblem, outcomes: Array, values: Array | None = None) -> tuple[Array, Array]:
    """Best decisions (N, p) and costs min_z g(z, u) (N,) for known outcomes; NaN where there is none.

    Parameters
    ----------
    problem : what is decided.
    outcomes : (N, d) what is known.
    values : (N, t) of the problem's parameters, flat and row by row, where it has any.
    """
    return best_knowing(problem, outcomes, values)[:2]


def best_knowing(problem: DecisionProblem, outcomes: Array, values: Array | None = None) -> Best:
    """The same, and where it is proven that no decision is better (N,)."""
    if values is None:
        values = parameter_rows(problem.parameters, None, len(outcomes))
    return dispatch(ROUTES_KNOWING, problem, outcomes, values)


def _at_all_values(problem: DecisionProblem, outcomes: Array, values: Array) -> Best:
    return _by_counterpart(problem.structure.lifted, np.hstack([outcomes, values]))


def _value_by_value(problem: DecisionProblem, outcomes: Array, values: Array) -> Best:
    z, costs = np.full((len(outcomes), problem.n_decisions), np.nan), np.full(len(outcomes), np.nan)
    is_best = np.zeros(len(outcomes), dtype=bool)
    distinct, which = np.unique(values, axis=0, return_inverse=True)
    for k, value in enumerate(distinct):
        rows = which.ravel() == k
        z[rows], costs[rows], is_best[rows] = best_knowing(problem.at_values(value), outcomes[rows])
    return z, costs, is_best


def _by_pieces(problem: DecisionProblem, outcomes: Array, _: Array) -> Best:
    return _by_counterpart(problem, outcomes)


def _as_written(problem: DecisionProblem, outcomes: Array, _: Array) -> Best:
    solved = [best_against(problem, u[None]) for u in outcomes]
    z = [z if solution.status.has_solution else z * np.nan for solution, z in solved]
    values = np.array([solution.value for solution, _ in solved], dtype=float)
    is_best = np.array([solution.status is Status.OPTIMAL for solution, _ in solved], dtype=bool)
    return np.array(z).reshape(-1, problem.n_decisions), values, is_best


def _by_counterpart(compiled: DecisionProblem | Lifted, contexts: Array) -> Best:
    d = compiled.n_outcomes
    # What happened need not be what outcome_support held possible.
    everything = np.zeros((0, d)), np.zeros(0)
    counterpart = Counterpart(compiled, _Point(d), 0.0, support_rows=everything)  # type: ignore[arg-type]
    decided = decide_in_batch(counterpart, contexts)
    is_best = ~decided.is_open
    for i in np.flatnonzero(decided.is_open):
        solution = counterpart.solve(contexts[i])
        decided.z[i], decided.cost_bound[i] = solution.z, solution.value
        is_best[i] = solution.status is Status.OPTIMAL
    return decided.z, decided.cost_bound, is_best


class _Point:
    """The set {0}: no uncertainty."""

    def __init__(self, n_outcomes: int) -> None:
        self.n_outcomes = n_outcomes

    def conic_form(self, radius: float) -> ConicForm:
        d = self.n_outcomes
        return ConicForm(G=sp.eye_array(d, format="csr"), g=np.zeros(d), cones=(Cone("zero", d),))


ROUTES_KNOWING: tuple[Route[[DecisionProblem, Array, Array], Best], ...] = (
    Route("all values", lambda problem, *_: problem.structure.has_lifted_pieces, _at_all_values),
    Route("value by value", lambda problem, *_: bool(problem.parameters), _value_by_value),
    Route("counterpart", lambda problem, *_: problem.structure.has_pieces, _by_pieces),
    Route("as written", lambda *_: True, _as_written),
)
