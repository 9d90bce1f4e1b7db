"""Validity: the coverage of a recalibrated set follows its exact law.

False-alarm rates: each Kolmogorov-Smirnov test fails for a correct library with probability 0.001
over the choice of its seed; the seeds are fixed, so a run is deterministic.
"""

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import RandomForestRegressor

import polyhedge as ph
from polyhedge.learners import Descent

FALSE_ALARM = 0.001
REPETITIONS = 200
PREDICTORS = {
    "forest": lambda: RandomForestRegressor(20, random_state=0),
    "ridge": lambda: ph.predictors.FeatureRidge(),
    "precomputed": lambda: "precomputed",
}


def features(kind, X, Y, rng):
    """Precomputed predictions are the outcome with an error, made without looking at the split."""
    return Y + rng.normal(size=Y.shape) * [0.3, 0.6] if kind == "precomputed" else X


@pytest.mark.parametrize("m", [20, 49])
@pytest.mark.parametrize("kind", PREDICTORS)
def test_coverage_given_the_calibration_split_follows_its_beta_law(kind, m):
    rng = np.random.default_rng(7)
    X, Y = ph.data.make_synthetic(500, rng=rng)
    problem = ph.problems.simplex_linear([-0.08, 0.0])
    decider = ph.RobustDecider(problem, PREDICTORS[kind](), learner=Descent(n_steps=20), random_state=0)
    decider.fit(features(kind, X, Y, rng), Y)
    X_test, Y_test = ph.data.make_synthetic(10_000, rng=rng)
    centers = decider.predictor_.predict(features(kind, X_test, Y_test, rng))
    scores = np.sort(decider.set_.scores(Y_test - centers))
    coverages = []
    for _ in range(REPETITIONS):
        X_fresh, Y_fresh = ph.data.make_synthetic(m, rng=rng)
        decider.recalibrate(features(kind, X_fresh, Y_fresh, rng), Y_fresh)
        coverages.append(np.searchsorted(scores, decider.radius_, side="right") / len(scores))
    test = stats.kstest(coverages, ph.coverage_law(m, decider.alpha).cdf)
    assert test.pvalue > FALSE_ALARM


def test_whole_fits_on_fresh_data_keep_the_promise_and_follow_the_beta_law():
    problem = ph.problems.simplex_linear([-0.08, 0.0])
    rng = np.random.default_rng(11)
    X_test, Y_test = ph.data.make_synthetic(4_000, rng=rng)
    coverages = []
    for seed in range(REPETITIONS):
        X, Y = ph.data.make_synthetic(120, rng=rng)
        decider = ph.RobustDecider(
            problem, ph.predictors.FeatureRidge(), learner=Descent(n_steps=2, batch_size=4), random_state=seed
        )
        decider.fit(X, Y)
        inside = decider.set_.contains(Y_test - decider.predictor_.predict(X_test), decider.radius_)
        coverages.append(inside.mean())
    assert stats.kstest(coverages, ph.coverage_law(30, 0.1).cdf).pvalue > FALSE_ALARM


def test_the_cost_bound_holds_at_least_as_often_as_the_set_covers():
    rng = np.random.default_rng(3)
    X, Y = ph.data.make_synthetic(1500, rng=rng)
    problem = ph.problems.simplex_newsvendor(0.3, 0.7, 2)
    decider = ph.RobustDecider(problem, learner=Descent(n_steps=30), random_state=0).fit(X[:900], Y[:900])
    found = decider.decide(X[900:])
    costs = problem.evaluate(found.z, Y[900:])
    inside = decider.set_.contains(Y[900:] - decider.predictor_.predict(X[900:]), decider.radius_)
    assert (costs <= found.cost_bound + 1e-9)[inside].all()
