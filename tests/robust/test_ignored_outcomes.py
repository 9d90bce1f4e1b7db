"""Outcomes that a problem never looks at stay as predicted in the worst case, as far as the set allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.robust import decide
from polyhedge.sets import Ball, Box, Polyhedron

CENTERS = np.random.default_rng(0).normal(size=(9, 4)) + 2
SLANTED = Polyhedron(
    np.vstack([np.eye(4), -np.eye(4), [[1.0, 1.0, 1.0, 0.0]], [[0.0, 1.0, 1.0, -1.0]]]), -np.full(10, 1.5)
)
SHAPES = {"box": Box([1.0, 2.0, 3.0, 1.0], [0.1, 0.0, 0.2, 9.0]), "ball": Ball(4, 1), "slanted": SLANTED}


def of_two(cost: Callable[[Any, Any], Any], **others: Any) -> ph.DecisionProblem:
    """Four outcomes, of which the cost sees the first two."""
    z = cp.Variable(2, nonneg=True)
    rows = [cp.sum(z) == 1]
    return ph.DecisionProblem(decision=z, cost=lambda z, u: cost(z, u[:2]), constraints=rows, n_outcomes=4, **others)


PROBLEMS = {
    "affine": of_two(lambda z, u: u @ z),
    "bent": of_two(lambda z, u: u @ z + cp.sum_squares(z)),
    "maxima": of_two(lambda z, u: cp.sum(cp.pos(z - u) + 3 * cp.pos(u - z))),
    "known": of_two(lambda z, u: u @ z, outcome_support=lambda u: [u >= -1]),
}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_a_worst_outcome_lies_in_the_set_and_leaves_what_is_ignored_where_it_was_predicted(
    name: str, shape: str
) -> None:
    problem, chosen = PROBLEMS[name], SHAPES[shape]
    assert problem.structure.ignored_outcomes.tolist() == [False, False, True, True]
    found = decide(problem, chosen, 1.0, CENTERS)
    assert found.is_optimal.all()
    e = found.worst_outcome - CENTERS
    assert chosen.scores(e).max() <= 1.0 + 1e-7
    assert problem.evaluate(found.flat, found.worst_outcome) == pytest.approx(found.cost_bound, abs=1e-6)
    for k in (2, 3):  # nothing nearer to the prediction is in the set, as the others are
        nearer = e.copy()
        nearer[:, k] -= 1e-3 * np.sign(e[:, k])
        is_free = (chosen.scores(nearer) <= 1.0 - 1e-9) & (np.abs(e[:, k]) > 1e-3)
        assert not is_free.any()


def test_an_outcome_that_a_constraint_sees_is_not_ignored() -> None:
    problem = of_two(lambda z, u: u @ z, uncertain_constraints=lambda z, u: [z[0] + 5 >= u[2]])
    assert problem.structure.ignored_outcomes.tolist() == [False, False, False, True]


def test_a_problem_with_parameters_leaves_what_is_ignored_as_predicted_too() -> None:
    z, price = cp.Variable(2, nonneg=True), cp.Parameter(2, name="price")
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: (u[:2] + price) @ z, constraints=[cp.sum(z) == 1], n_outcomes=4
    )
    prices = np.random.default_rng(1).uniform(size=(9, 2))
    found = decide(problem, Box(np.ones(4)), 1.0, CENTERS, parameters={"price": prices})
    assert np.array_equal(found.worst_outcome[:, 2:], CENTERS[:, 2:])
