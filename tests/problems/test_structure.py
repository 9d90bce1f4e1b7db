"""What a problem is, and that every way to decide that applies to it comes to the same bound."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.learners.objective import ROUTES as GRADIENTS, FacetCosts
from polyhedge.robust.engine.batch import WORTH_A_POOL
from polyhedge.robust.routes import ROUTES, ROUTES_KNOWING, Job, dispatch


def written(cost, **kinds) -> ph.DecisionProblem:
    z = cp.Variable(2, **(kinds or {"nonneg": True}))
    return ph.DecisionProblem(decision=z, cost=cost, constraints=[cp.sum(z) <= 2, z >= 0, z <= 1], n_outcomes=2)


PROBLEMS = {
    "segment": ph.problems.simplex_linear([0.1, 0.0]),
    "fixed directions": ph.problems.simplex_newsvendor(1.0, 2.0, 2),
    "pieces": written(lambda z, u: u @ z - cp.sum(z)),
    "sum of maxima": ph.problems.newsvendor(1.0, 2.0, 16),
    "general": written(lambda z, u: cp.sum_squares(z - u)),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_problem_says_what_it_is_and_says_it_once(kind):
    structure = PROBLEMS[kind].structure
    assert structure is PROBLEMS[kind].structure
    assert (structure.segment is not None) == (kind == "segment")
    assert structure.has_fixed_directions == (kind == "fixed directions")
    assert structure.has_pieces == (kind not in ("sum of maxima", "general"))
    assert structure.has_maxima == (kind != "general")


def test_a_problem_made_from_another_has_a_structure_of_its_own():
    whole = written(lambda z, u: cp.max(u) - cp.sum(z), integer=True)
    assert not whole.structure.is_continuous
    assert not whole.structure.has_fixed_directions
    assert whole.relaxed().structure.has_fixed_directions
    assert whole.labelled(name="other").structure.problem.name == "other"


def test_pieces_that_are_not_there_are_an_error_that_says_what_to_use():
    with pytest.raises(ValueError, match=r"affine in the outcome, got one that is convex\. The learner Descent takes"):
        _ = PROBLEMS["general"].structure.pieces


@pytest.mark.parametrize("kind", ["segment", "fixed directions", "pieces", "general"])
def test_every_way_that_applies_comes_to_the_same_bound(kind):
    job = Job(PROBLEMS[kind], ph.Box([0.5, 0.3]), 1.0, 1)
    centers = np.array([[0.4, 0.6], [1.0, -0.5]])
    bounds = [way.decide(job, centers).cost_bound for way in ROUTES if way.applies(job, centers)]
    assert len(bounds) == {"segment": 3, "general": 1}.get(kind, 2)
    for bound in bounds:
        assert bound == pytest.approx(dispatch(ROUTES, job, centers).cost_bound, abs=1e-6)


def test_a_way_that_gives_up_leaves_the_contexts_to_the_next():
    job = Job(PROBLEMS["segment"], ph.Ball(2), 1.0, 1)
    asked = job, np.zeros((1, 2))
    first = next(way for way in ROUTES if way.applies(*asked))
    assert first.name == "along a segment"
    assert first.decide(*asked) is None
    assert dispatch(ROUTES, *asked).is_optimal.all()


def at_price(charged=lambda price: price) -> ph.DecisionProblem:
    z, price = cp.Variable(2, nonneg=True), cp.Parameter(name="price", nonneg=True)
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z + charged(price) * z[0], constraints=[cp.sum(z) == 1], n_outcomes=2
    )


@pytest.mark.parametrize("n", [4, 40])
def test_values_of_parameters_decide_alike_all_at_once_and_one_after_the_other(n):
    problem, rng = at_price(), np.random.default_rng(0)
    contexts = np.column_stack([rng.normal(size=(n, 2)), np.resize([0.1, 0.4], n)])
    job, ways = Job(problem, ph.Box([0.5, 0.3]), 1.0, 1), {way.name: way for way in ROUTES}
    assert ways["all values"].applies(job, contexts)
    assert not ways["nothing"].applies(job, contexts)
    at_once, one_by_one = (ways[name].decide(job, contexts) for name in ("all values", "value by value"))
    assert at_once.cost_bound == pytest.approx(one_by_one.cost_bound, abs=1e-6)
    contexts[:, 2] = 0.1
    assert ways["all values"].applies(job, contexts) == (n < WORTH_A_POOL)


def test_no_radius_or_no_context_needs_no_program():
    problem = at_price()
    nothing, shape = ROUTES[0], ph.Box([0.5, 0.3])
    assert nothing.applies(Job(problem, shape, np.inf, 1), np.zeros((1, 3)))
    assert nothing.applies(Job(problem, shape, 1.0, 1), np.zeros((0, 3)))
    assert np.isposinf(nothing.decide(Job(problem, shape, np.inf, 1), np.zeros((1, 3))).cost_bound).all()


KNOWN = {
    **{kind: (PROBLEMS[kind], ["as written"]) for kind in ("general", "sum of maxima")},
    **{kind: (PROBLEMS[kind], ["counterpart", "as written"]) for kind in ("segment", "fixed directions")},
    "affine parameter": (at_price(), ["all values", "value by value"]),
    "other parameter": (at_price(cp.square), ["value by value"]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_every_way_that_knows_the_outcome_comes_to_the_same_cost(name):
    (problem, names), rng = KNOWN[name], np.random.default_rng(0)
    asked = problem, rng.random((2, problem.n_outcomes)), np.full((2, len(problem.parameters)), 0.3)
    ways = [way for way in ROUTES_KNOWING if way.name in names]
    assert next(way for way in ROUTES_KNOWING if way.applies(*asked)) is ways[0]
    for way in ways:
        assert way.applies(*asked)
        assert way.decide(*asked)[1] == pytest.approx(dispatch(ROUTES_KNOWING, *asked)[1], abs=1e-6)


@pytest.mark.parametrize("kind", ["segment", "fixed directions", "pieces"])
def test_every_way_to_a_gradient_comes_to_the_same_cost(kind):
    rng = np.random.default_rng(0)
    asked = FacetCosts(PROBLEMS[kind], rng.normal(size=(6, 2)))
    facets = np.vstack([np.eye(2), -np.ones((1, 2))]), np.array([0.5, 0.4, 0.6]), np.arange(6)
    routes = [gradient for applies, gradient in GRADIENTS.values() if applies(asked)]
    assert len(routes) >= 2
    for gradient in routes:
        assert gradient(asked, *facets).value == pytest.approx(asked.cost(*facets), abs=1e-6)
