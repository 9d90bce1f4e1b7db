"""A set in words: which mixture of outcomes each facet limits, and how often it is tight."""

from __future__ import annotations

import numpy as np
import pytest

import polyhedge as ph
from polyhedge.app.report.facets import _binding, _limit_in_words, facets_in_words
from shared import Given


def fitted(problem: ph.DecisionProblem, shape: ph.sets.Shape, *, shift: float = 1.0) -> ph.RobustDecider:
    rng = np.random.default_rng(0)
    centers = shift * rng.normal(size=(200, problem.n_outcomes))
    decider = ph.RobustDecider(problem, "precomputed", learner=Given(shape), random_state=0)
    return decider.fit(centers, centers + rng.uniform(-1, 1, centers.shape))


def contexts(n: int = 60, d: int = 2) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, d))


def test_words_say_which_mixture_is_limited_on_which_side() -> None:
    names, reach = ["heating", "cooling"], np.ones(2)

    def words(weights: list[float], limit: float) -> str:
        return _limit_in_words(np.array(weights), limit, limit, reach, names)

    assert words([0.7, 0.3], 0.5) == "limits 0.7 heating + 0.3 cooling to at most 0.5 above the prediction"
    assert words([-1.0, 0.0], 0.5) == "limits heating to at most 0.5 below its prediction"
    assert words([-0.25, -0.75], -0.1) == "limits 0.25 heating + 0.75 cooling to at least 0.1 above the prediction"


def test_outcomes_of_other_units_are_not_dropped_for_their_small_weight() -> None:
    assert "b" in _limit_in_words(np.array([1.0, 1e-4]), 1.0, 1.0, np.array([1.0, 1e4]), ["a", "b"])


def test_rows_without_a_decision_are_not_counted() -> None:
    rng = np.random.default_rng(0)
    centers = rng.uniform(4.0, 6.0, (100, 2))
    problem = ph.problems.newsvendor(1.0, 1.0, 2)
    decider = ph.RobustDecider(problem, "precomputed", learner=Given(ph.Box([1.0, 1.0])), random_state=0)
    decider.fit(centers, centers + rng.uniform(-1, 1, centers.shape))
    assert "tight in 100 %" in facets_in_words(decider, np.array([[5.0, 5.0], [-50.0, -50.0]]))[0]


def test_a_facet_binds_where_moving_it_inwards_lowers_the_bound() -> None:
    W = np.random.default_rng(2).normal(size=(6, 2))
    shape, problem = ph.Polyhedron(np.vstack([W, -W]), np.zeros(12)), ph.problems.simplex_linear([0.0, 0.0])
    decider = fitted(problem, shape)
    model, rows = decider.model_, decider.model_.read(contexts())
    placed = model.place(rows)
    decided = placed.decide()
    moved = [ph.Polyhedron(shape.W, 0.1 * np.eye(12)[k]) for k in range(12)]
    slopes = problem.structure.pieces.directions(decided.flat)[:, 0]
    reach = np.column_stack([one.support(slopes, decider.radius_) for one in (shape, *moved)])
    binds = _binding(shape, model, rows, placed.radii, decided)
    np.testing.assert_array_equal(binds, reach[:, 1:] < reach[:, :1] - 1e-6)


@pytest.mark.parametrize("shape", [ph.Box([1.0, 1.0]), ph.Ball(2)], ids=["facets", "round"])
@pytest.mark.parametrize(
    "problem",
    [ph.problems.simplex_linear([0.0, 0.0]), ph.problems.simplex_quadratic([0.0, 0.0], 0.1)],
    ids=lambda problem: problem.name,
)
def test_facets_of_rows_with_different_radii_show_the_range(problem, shape) -> None:
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
