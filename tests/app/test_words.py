"""A decider in words: the facets that are named are those that hold the bound up."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.app.report.facets import _round_in_words, facets, facets_in_words, promise_in_words
from polyhedge.learners import OneSidedBox
from polyhedge.plots.sets import name_outcomes
from shared import Given


def fitted(problem: ph.DecisionProblem, shape: ph.sets.Shape, *, shift: float = 1.0) -> ph.RobustDecider:
    rng = np.random.default_rng(0)
    centers = shift * rng.normal(size=(200, problem.n_outcomes))
    decider = ph.RobustDecider(problem, "precomputed", learner=Given(shape), random_state=0)
    return decider.fit(centers, centers + rng.uniform(-1, 1, centers.shape))


def contexts(n: int = 60, d: int = 2) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, d))


@pytest.mark.parametrize(
    "problem",
    [ph.problems.simplex_linear([0.0, 0.1]), ph.problems.simplex_newsvendor(0.3, 0.7, 2)],
    ids=lambda problem: problem.name,
)
def test_a_facet_binds_where_moving_it_inwards_lowers_the_bound(problem: ph.DecisionProblem) -> None:
    W = np.array([[1.0, 0.2], [0.1, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.7, 0.6]])
    shape = ph.Polyhedron(W, np.zeros(5))
    decider, X = fitted(problem, shape), contexts()
    bound = decider.decide(X).cost_bound
    for facet in facets(decider, X):
        k, step = facet.number - 1, 1e-5
        tighter = ph.Polyhedron(W, step * np.eye(5)[k])
        lower = ph.robust.decide(problem, tighter, decider.radius_, X).cost_bound
        assert facet.share == pytest.approx(np.mean(bound - lower > 1e-3 * step))


def test_facets_are_the_set_with_normals_of_size_one() -> None:
    decider = fitted(
        ph.problems.simplex_linear([0.0, 0.0]), ph.Polyhedron([[2.0, 6.0], [-1.0, 0.0], [0.0, -1.0]], [0.0] * 3)
    )
    points = contexts(500)
    found = facets(decider, contexts())
    inside = np.all([points @ facet.weights <= facet.limit for facet in found], axis=0)
    np.testing.assert_array_equal(inside, decider.set_.contains(points, decider.radius_))
    assert all(np.abs(facet.weights).sum() == pytest.approx(1.0) for facet in found)


def test_words_say_which_mixture_is_limited_on_which_side() -> None:
    W = [[0.7, 0.3], [-1.0, 0.0], [0.0, -1.0], [-1.0, -3.0]]
    decider = fitted(ph.problems.simplex_linear([0.0, 0.0]), ph.Polyhedron(W, [0.0, 0.0, 0.0, 1.0]))
    decider.model_ = replace(decider.model_, radii=replace(decider.model_.radii, radius=0.5))
    text = {facet.number: facet.text for facet in facets(decider, contexts(), ["heating", "cooling"])}
    assert text[1].startswith("limits 0.7 heating + 0.3 cooling to at most")
    assert text[1].endswith("above the prediction")
    assert text[2].startswith("limits heating to at most")
    assert text[2].endswith("below its prediction")
    assert text[4].startswith("limits 0.25 heating + 0.75 cooling to at least")
    assert text[4].endswith("above the prediction")


def test_outcomes_of_other_units_are_not_dropped_for_their_small_weight() -> None:
    shape = ph.Polyhedron([[1.0, 1e-4], [-1.0, 0.0], [0.0, -1.0], [0.0, 1.0]], [0.0, 0.0, -1e4, -1e4])
    decider = fitted(ph.problems.simplex_linear([0.0, 0.0]), shape)
    assert "u_2" in next(facet.text for facet in facets(decider, contexts()) if facet.number == 1)


def test_long_facets_are_cut_to_their_largest_terms() -> None:
    d = 12
    W = np.vstack([np.arange(1.0, d + 1), -np.eye(d), np.eye(d)])
    decider = fitted(ph.problems.simplex_linear(np.zeros(d)), ph.Polyhedron(W, np.zeros(len(W))))
    text = next(facet.text for facet in facets(decider, contexts(5, d)) if facet.number == 1)
    assert "and 6 smaller terms" in text
    assert "u_12" in text


def test_round_sets_are_described_by_their_reach() -> None:
    decider = fitted(ph.problems.simplex_linear([0.0, 0.0]), ph.Ball(2))
    sentences = facets_in_words(decider, contexts(3), ["a", "b"])
    assert sentences[0].startswith("the set has no facets: it is a Ball")
    assert sentences[1] == f"a lies between {-decider.radius_:+.3g} and {decider.radius_:+.3g} of its prediction"


def test_rounding_is_told_as_zero() -> None:
    tiny = _round_in_words(ph.Ellipsoid(np.eye(2), [5e-18, 0.5]), 0.0, 0.0, ["a", "b"])
    assert tiny[1:] == (
        "a lies between +0 and +0 of its prediction",
        "b lies between +0.5 and +0.5 of its prediction",
    )


def test_every_facet_through_the_worst_outcome_counts_where_the_cost_has_no_pieces() -> None:
    z = cp.Variable(2, nonneg=True)
    concave = ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z - cp.sum_squares(u), constraints=[cp.sum(z) == 1], n_outcomes=2
    )
    decider = fitted(concave, ph.Box([1.0, 1.0]), shift=3.0)
    assert all(0 <= facet.share <= 1 for facet in facets(decider, 3 * contexts(5)))


def test_known_support_takes_its_part_of_the_bound() -> None:
    problem = ph.problems.newsvendor(1.0, 4.0, 2)
    rng = np.random.default_rng(0)
    centers = rng.uniform(0.1, 0.3, (200, 2))
    decider = ph.RobustDecider(problem, "precomputed", learner=OneSidedBox(), random_state=0)
    decider.fit(centers, rng.uniform(0.0, 2.0, (200, 2)))
    assert facets(decider, centers[:20])[0].share > 0


def test_rows_without_a_decision_are_not_counted() -> None:
    problem = ph.problems.newsvendor(1.0, 1.0, 2)
    decider = fitted_demand(problem)
    X = np.array([[5.0, 5.0], [-50.0, -50.0]])
    assert max(facet.share for facet in facets(decider, X)) == 1.0


def fitted_demand(problem: ph.DecisionProblem) -> ph.RobustDecider:
    rng = np.random.default_rng(0)
    centers = rng.uniform(4.0, 6.0, (100, 2))
    decider = ph.RobustDecider(problem, "precomputed", learner=Given(ph.Box([1.0, 1.0])), random_state=0)
    return decider.fit(centers, centers + rng.uniform(-1, 1, centers.shape))


def test_promise_names_the_level_and_the_calibration_rows() -> None:
    decider = fitted(ph.problems.simplex_linear([0.0, 0.0]), ph.Box([1.0, 1.0]))
    text = " ".join(promise_in_words(decider))
    assert "at least 90 %" in text
    assert f"{decider.n_calibrate_} calibration rows" in text


def test_names_must_match_the_outcomes() -> None:
    decider = fitted(ph.problems.simplex_linear([0.0, 0.0]), ph.Box([1.0, 1.0]))
    assert name_outcomes(decider) == ("u_1", "u_2")
    with pytest.raises(ValueError, match="outcome_names must have 2 names, one for each outcome, got 1"):
        name_outcomes(decider, ["one"])


@pytest.mark.parametrize("shape", [ph.Box([1.0, 1.0]), ph.Ball(2)], ids=["facets", "round"])
@pytest.mark.parametrize(
    "problem",
    [ph.problems.simplex_linear([0.0, 0.0]), ph.problems.simplex_quadratic([0.0, 0.0], 0.1)],
    ids=lambda problem: problem.name,
)
def test_rows_with_radii_of_their_own_are_told_in_words(problem, shape) -> None:
    rng, labels = np.random.default_rng(0), np.repeat(["calm", "wild"], 200)
    centers = rng.normal(size=(400, 2))
    Y = centers + np.where(labels == "wild", 5.0, 1.0)[:, None] * rng.uniform(-1, 1, (400, 2))
    order = rng.permutation(400)
    decider = ph.RobustDecider(
        problem,
        "precomputed",
        learner=Given(shape),
        calibration=ph.calibration.ByCategory(labels[order]),
        random_state=0,
    ).fit(centers[order], Y[order])
    radii = np.unique(decider.decide(centers, labels=labels).radii)
    words = facets_in_words(decider, centers, labels=labels)
    for radius in radii:  # both, where rows of both kinds are told of
        assert f"{radius:.3g}" in words[0]
    calm = facets_in_words(decider, centers[:200], labels=labels[:200])
    assert f"{radii[0]:.3g}" in calm[0]
    assert f"{radii[1]:.3g}" not in calm[0]
    # Without labels nothing else is known than the largest radius.
    assert f"{radii[1]:.3g}" in facets_in_words(decider, centers)[0]


def test_a_convex_cost_with_radii_of_its_own_is_told_too() -> None:
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum_squares(u - z), constraints=[cp.sum(z) == 1], n_outcomes=2
    )
    rng, labels = np.random.default_rng(0), np.tile(["calm", "wild"], 100)
    centers = rng.normal(size=(200, 2))
    Y = centers + np.where(labels == "wild", 5.0, 1.0)[:, None] * rng.uniform(-1, 1, (200, 2))
    decider = ph.RobustDecider(
        problem,
        "precomputed",
        guarantee="outcome",
        learner=Given(ph.Box([1.0, 1.0])),
        calibration=ph.calibration.ByCategory(labels),
        random_state=0,
    ).fit(centers, Y)
    found = facets(decider, centers[:6], labels=labels[:6])
    # At a worst vertex of a box half of its sides are tight.
    assert sum(facet.share for facet in found) == pytest.approx(2.0)
