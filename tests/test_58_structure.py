"""What a problem is, and that every way to decide that applies to it comes to the same bound."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.problems.structure import Kind
from polyhedge.robust.routes import WAYS, Job, decide_by_first


def written(cost, **kinds) -> ph.DecisionProblem:
    z = cp.Variable(2, **(kinds or {"nonneg": True}))
    return ph.DecisionProblem(decision=z, cost=cost, constraints=[cp.sum(z) <= 2, z >= 0, z <= 1], n_outcomes=2)


PROBLEMS = {
    Kind.SEGMENT: ph.problems.simplex_linear([0.1, 0.0]),
    Kind.FIXED_DIRECTIONS: ph.problems.simplex_newsvendor(1.0, 2.0, 2),
    Kind.PIECES: written(lambda z, u: u @ z - cp.sum(z)),
    Kind.SUM_OF_MAXIMA: ph.problems.newsvendor(1.0, 2.0, 16),
    Kind.GENERAL: written(lambda z, u: cp.sum_squares(z - u)),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_problem_says_what_it_is_and_says_it_once(kind):
    problem = PROBLEMS[kind]
    assert problem.structure.kind is kind
    assert problem.structure is problem.structure
    assert problem.structure.has_pieces == (kind not in (Kind.SUM_OF_MAXIMA, Kind.GENERAL))


def test_a_problem_made_from_another_finds_its_structure_anew():
    whole = written(lambda z, u: cp.max(u) - cp.sum(z), integer=True)
    assert not whole.structure.is_continuous
    assert whole.structure.kind is Kind.PIECES
    assert whole.relaxed().structure.kind is Kind.FIXED_DIRECTIONS
    assert whole.labelled(name="other").structure.problem.name == "other"


def test_pieces_that_are_not_there_are_an_error_that_says_what_to_use():
    with pytest.raises(ValueError, match=r"affine in the outcome, got one that is convex\. The learner Descent takes"):
        _ = PROBLEMS[Kind.GENERAL].structure.pieces


@pytest.mark.parametrize("kind", [Kind.SEGMENT, Kind.FIXED_DIRECTIONS, Kind.PIECES, Kind.GENERAL])
def test_every_way_that_applies_comes_to_the_same_bound(kind):
    job = Job(PROBLEMS[kind], ph.Box([0.5, 0.3]), 1.0, 1)
    centers = np.array([[0.4, 0.6], [1.0, -0.5]])
    bounds = [way.decide(job, centers, None).cost_bound for way in WAYS if way.applies(job)]
    assert len(bounds) == {Kind.SEGMENT: 3, Kind.GENERAL: 1}.get(kind, 2)
    for bound in bounds:
        assert bound == pytest.approx(decide_by_first(job, centers, None).cost_bound, abs=1e-6)


def test_a_way_that_gives_up_leaves_the_contexts_to_the_next():
    job = Job(PROBLEMS[Kind.SEGMENT], ph.Ball(2), 1.0, 1)
    assert WAYS[0].applies(job)
    assert WAYS[0].decide(job, np.zeros((1, 2)), None) is None
    assert decide_by_first(job, np.zeros((1, 2)), None).is_optimal.all()
