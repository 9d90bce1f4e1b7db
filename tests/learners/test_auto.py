"""The default learner: what it looks at, what it says, and that it takes every problem."""

from functools import cache, partial

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import polyhedge as ph
import shared
from polyhedge.learners import Auto, Descent, Needs, OneSidedBox, Samples, learn_with_spread, lower_bound
from polyhedge.learners.auto import _CrossFit, half_way
from polyhedge.learners.spread import cross_validated
from polyhedge.robust import decide
from polyhedge_study.feature_ridge import FeatureRidge
from shared import codes

Z = cp.Variable(2, nonneg=True)
COUNT = cp.Variable(2, integer=True)
LINEAR = ph.problems.simplex_linear([-0.08, 0.0])
NEWSVENDOR = ph.problems.simplex_newsvendor(0.3, 0.7, 2)
USER_PROBLEMS = {
    "uncertain constraints": ph.DecisionProblem(
        decision=Z,
        cost=lambda z, u: cp.sum(z),
        constraints=[Z <= 50],
        n_outcomes=2,
        uncertain_constraints=lambda z, u: [z >= u],
    ),
    "integer": ph.DecisionProblem(
        decision=COUNT,
        cost=lambda z, u: u @ z + 0.1 * cp.sum_squares(z),
        constraints=[COUNT >= 0, COUNT <= 3, cp.sum(COUNT) == 3],
        n_outcomes=2,
    ),
    "convex without pieces": ph.DecisionProblem(
        decision=Z, cost=lambda z, u: cp.square(u @ z - 1), constraints=[cp.sum(Z) == 1], n_outcomes=2
    ),
    "known support": ph.DecisionProblem(
        decision=Z,
        cost=lambda z, u: u @ z,
        constraints=[cp.sum(Z) == 1],
        n_outcomes=2,
        outcome_support=lambda u: [u >= -30],
    ),
}


learning_data = partial(shared.learning_data, n=90)
SHORT = Auto(n_folds=2, training_folds=2, spread=False)
"""The default learner with a short selection, where what it chooses is not looked at."""


@cache
def chosen(problem):
    """What the default selection chooses for the usual data: learned once for all tests that look at it."""
    return Auto().learn(Samples(*learning_data(), problem, 0.1), 0)


def fitted(X, Y, problem=NEWSVENDOR, predictor=None, **settings):
    split = {"train": np.arange(100), "learn": np.arange(100, 200), "calibrate": np.arange(200, 300)}
    predictor = FeatureRidge() if predictor is None else predictor
    return ph.RobustDecider(problem, predictor, guarantee="outcome", random_state=0, **settings).fit(X, Y, **split)


def test_the_choice_depends_on_the_learning_split_only():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(0))
    altered = Y.copy()
    altered[200:] = 5 * Y[200:][::-1] + 1
    first, second = (fitted(X, outcomes, LINEAR, learner=SHORT) for outcomes in (Y, altered))
    assert first.learn_result_.detail == second.learn_result_.detail
    assert np.array_equal(first.set_.W, second.set_.W)
    assert np.array_equal(first.set_.b, second.set_.b)
    assert first.radius_ != second.radius_


def test_detail_names_the_choice_and_the_premiums_it_was_made_by():
    winner, reason = chosen(NEWSVENDOR).detail.removeprefix("chose ").split(": ", 1)
    assert reason.startswith("cross-validated extra costs: ")
    premiums = dict(part.rsplit(" ", 1) for part in reason.removeprefix("cross-validated extra costs: ").split(", "))
    assert {"one-sided box", "smooth descent", "smooth descent + one-sided box"} <= set(premiums)
    assert winner in premiums
    assert float(premiums[winner]) <= float(premiums["one-sided box"])


@pytest.mark.parametrize("problem", [LINEAR, NEWSVENDOR], ids=["linear", "newsvendor"])
def test_the_set_is_bounded_covers_the_rank_and_costs_no_less_than_a_certified_bound(problem):
    samples, result = Samples(*learning_data(), problem, 0.1), chosen(problem)
    assert result.set.is_bounded
    assert samples.radius(result.set) == pytest.approx(0.0, abs=1e-8)
    assert result.objective == pytest.approx(samples.value(result.set))
    assert lower_bound(samples).lower <= result.objective + 1e-9


# Where outcomes have a known support every context is solved for itself, which takes seconds.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "known support" else []) for name in USER_PROBLEMS]
)
def test_problems_of_users_are_learned(name):
    X, Y = ph.data.make_synthetic(60, rng=np.random.default_rng(0))
    decider = ph.RobustDecider(USER_PROBLEMS[name], alpha=0.2, learner=SHORT, random_state=0).fit(X, Y)
    assert np.isfinite(decider.learn_result_.objective)
    assert decider.decide(X[:3]).is_optimal.all()


def test_no_choice_is_made_from_too_few_samples():
    result = Auto().learn(Samples(*learning_data(n=12), LINEAR, 0.1), 0)
    assert result.detail == "chose one-sided box: too few learning samples to compare"


def test_a_cost_that_no_outcome_can_raise_gets_the_simplest_set():
    problem = ph.DecisionProblem(
        decision=Z, cost=lambda z, u: cp.sum(z) + 0 * cp.sum(u), constraints=[cp.sum(Z) == 1], n_outcomes=2
    )
    assert (
        Auto().learn(Samples(*learning_data(), problem, 0.1), 0).detail
        == "chose one-sided box: no outcome can raise the cost"
    )


def test_learners_are_fitted_without_a_fold_and_scored_on_it_at_the_radius_of_all_left_out_scores():
    samples = Samples(*learning_data(n=120), LINEAR, 0.1)
    run = _CrossFit(samples, {"one-sided box": OneSidedBox()}, 3, 0.7, seed=0)
    rests = [np.setdiff1d(np.arange(120), fold) for fold in run.folds]
    shapes = [OneSidedBox().learn(samples.take(rest)).set for rest in rests]
    scores = [shape.scores(samples.residuals[fold]) for shape, fold in zip(shapes, run.folds, strict=True)]
    radius = ph.conformal_radius(np.concatenate(scores), 0.1)
    costs = [
        decide(LINEAR, shape, radius, samples.centers[fold]).cost_bound
        for shape, fold in zip(shapes, run.folds, strict=True)
    ]
    assert sorted(np.concatenate(run.folds)) == list(range(120))
    fitted = [run.fitted("one-sided box", k) for k in range(3)]
    assert run._cost(fitted) == pytest.approx(np.concatenate(costs).mean())


def test_the_least_penalised_score_is_chosen_and_the_simplest_of_those_that_tie():
    scores, folds = {"simple": 3.0, "complex": 2.0, "alike": 2.0}, [np.arange(2), np.arange(2, 4)]
    seen = []

    def fit(name, k):
        seen.append((name, k))
        return scores[name]

    def chosen(penalty):
        return cross_validated({name: name for name in scores}, fit, np.mean, folds, penalty)

    assert chosen(lambda name, simplest: 0.0).chosen == "complex"
    assert seen == [(name, k) for name in scores for k in range(2)]
    dear = chosen(lambda name, simplest: 0.0 if name == "simple" else 0.4 * simplest)
    assert dear.chosen == "simple"
    assert dear.penalties == {"simple": 0.0, "complex": pytest.approx(1.2), "alike": pytest.approx(1.2)}


def test_a_selection_without_a_candidate_compares_the_others():
    def fit(name, k):
        if name == "b":
            raise ValueError("no")
        return {"a": 2.0, "c": 1.0}[name]

    found = cross_validated({name: name for name in "abc"}, fit, np.mean, [np.arange(2)])
    assert (list(found.scores), found.failed, found.chosen) == (["a", "c"], ("b",), "c")


def test_a_candidate_must_lead_by_more_than_the_complexity_penalty():
    assert chosen(NEWSVENDOR).detail.startswith("chose smooth descent")
    strict = Auto(complexity_penalty=1e3).learn(Samples(*learning_data(), NEWSVENDOR, 0.1), 0)
    assert strict.detail.startswith("chose one-sided box")


def test_out_of_fold_residuals_of_training_rows_join_the_learning_rows():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(0))
    assert SHORT.needs.training_folds == 2
    assert fitted(X, Y, LINEAR, learner=Folded()).n_learn_ == 200
    assert fitted(X, Y, LINEAR, learner=Descent(n_steps=5)).n_learn_ == 100


class Folded(OneSidedBox):
    """A quick learner that asks for folds of the training rows."""

    needs = Needs(training_folds=2)


def test_training_rows_fill_the_learning_samples_up_to_enough_and_no_further(monkeypatch):
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(0))
    monkeypatch.setattr("polyhedge.fitting._ENOUGH_TO_LEARN", 150)
    assert fitted(X, Y, LINEAR, learner=Folded()).n_learn_ == 150
    monkeypatch.setattr("polyhedge.fitting._ENOUGH_TO_LEARN", 100)
    assert fitted(X, Y, LINEAR, learner=Folded()).n_learn_ == 100


def test_out_of_fold_predictions_come_from_predictors_that_have_not_seen_the_fold():
    X, Y = ph.data.make_synthetic(60, rng=np.random.default_rng(0))
    make = lambda: ph.predictors.as_predictor(KNeighborsRegressor(1), 2)  # noqa: E731
    centers = ph.predictors.out_of_fold(make, X, Y, n_folds=4)
    own = (centers[:, None] == Y[None]).all(axis=2)
    assert own.any(axis=1).all()
    assert (own.argmax(axis=1) // 15 != np.arange(60) // 15).all()


def test_a_predictor_that_cannot_do_without_a_fold_is_warned_of_and_learned_without():
    Y = ph.data.make_synthetic(300, rng=np.random.default_rng(0))[1]
    kinds = np.zeros((300, 1), dtype=object)
    kinds[:] = "common"
    kinds[0] = "rare"
    strict = make_pipeline(OneHotEncoder(categories=[["common", "rare"]]), AllRowsNeeded())
    with pytest.warns(RuntimeWarning, match="cannot be fitted without a fold of the training rows") as caught:
        decider = fitted(kinds, Y, LINEAR, predictor=strict, learner=Folded())
    assert "No folds" in codes(caught)
    assert decider.n_learn_ == 100


class AllRowsNeeded(LinearRegression):
    """Refuses to be fitted where a column is constant, as some models do."""

    def fit(self, X, y):
        if X.toarray().std(axis=0).min() == 0:
            raise ValueError("a column is constant")
        return super().fit(X, y)


def test_the_support_of_a_blend_is_the_mean_of_both_along_their_facets():
    residuals, centers = learning_data()
    shapes = [
        learner.learn(Samples(residuals, centers, NEWSVENDOR, 0.1), 0).set
        for learner in (OneSidedBox(scale="tail"), Descent(n_steps=20))
    ]
    blend = half_way(*shapes)
    normals = np.vstack([shape.W / np.linalg.norm(shape.W, axis=1, keepdims=True) for shape in shapes])
    supports = [shape.support(normals, 0.0) for shape in shapes]
    assert blend.support(normals, 0.0) == pytest.approx(np.mean(supports, axis=0), abs=1e-8)
    angles = np.linspace(0, 2 * np.pi, 60)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    both = np.array([shape.support(directions, 0.0) for shape in shapes])
    assert (blend.support(directions, 0.0) >= both.mean(axis=0) - 1e-8).all()
    assert half_way(shapes[0], shapes[0]).support(directions, 0.0) == pytest.approx(both[0], abs=1e-8)


# --- many rows --------------------------------------------------------------------------------------------


def test_of_many_rows_an_even_choice_is_learned_from_and_the_detail_says_so():
    rng = np.random.default_rng(0)
    residuals, centers, X = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
    problem = ph.problems.simplex_linear([0.0, 0.0])
    some, every = Auto(samples_an_outcome=60, n_folds=2), Auto(samples_an_outcome=None, n_folds=2)
    found, _ = learn_with_spread(some, Samples(residuals, centers, problem, 0.1), X, seed=0)
    rows = np.linspace(0, 299, 120).astype(int)
    alone, _ = learn_with_spread(every, Samples(residuals[rows], centers[rows], problem, 0.1), X[rows], seed=0)
    np.testing.assert_array_equal(found.set.W, alone.set.W)
    np.testing.assert_array_equal(found.set.b, alone.set.b)
    assert "from 120 of 300 rows, evenly chosen" in found.detail
    assert "evenly chosen" not in alone.detail


def test_a_spread_is_scored_on_rows_that_the_shape_is_not_learned_from():
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(1200, 1)), rng.normal(size=(1200, 2))
    rows = np.linspace(0, 1199, 120).astype(int)
    is_wide = (X[:, 0] > 0) & ~np.isin(np.arange(1200), rows)  # what the shape is learned from knows nothing of it
    residuals = np.where(is_wide, 3.0, 0.3)[:, None] * rng.normal(size=(1200, 2))
    samples = Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    few, spread = learn_with_spread(Auto(samples_an_outcome=60, n_folds=2), samples, X, seed=0)
    assert spread is not None
    assert np.median(spread(X[is_wide], centers[is_wide])) > 2 * np.median(spread(X[~is_wide], centers[~is_wide]))
    assert few.lower_bound == -np.inf  # the shape may be proven for its rows, and the objective is that of all


@pytest.mark.parametrize("is_limited", [False, True])
def test_gradients_of_contexts_that_are_solved_together_are_those_of_each_alone(is_limited, monkeypatch):
    rng, d = np.random.default_rng(0), 4
    problem = ph.problems.portfolio(np.eye(d) + 0.2, risk_aversion=0.3, upper=0.4 if is_limited else 1.0)
    samples = Samples(rng.normal(size=(30, d)), rng.normal(size=(30, d)), problem, 0.1)
    W = np.vstack([np.eye(d), -np.ones((1, d)), rng.normal(size=(d, d))])
    q, contexts = rng.uniform(0.5, 1.5, len(W)), np.arange(20)
    together = samples.facet_gradient(W, q, contexts)
    asked = []
    monkeypatch.setattr("polyhedge.learners.objective._BATCH", 1000)
    monkeypatch.setattr("polyhedge.learners.objective.batch_engine", lambda *given: asked.append(given))
    alone = samples.facet_gradient(W, q, contexts)
    assert not asked
    assert together.value == pytest.approx(alone.value, rel=1e-9)
    np.testing.assert_allclose(together.W, alone.W, atol=1e-8)
    np.testing.assert_allclose(together.q, alone.q, atol=1e-8)
