"""Validity: the coverage of a recalibrated set follows its exact law.

False-alarm rates: each Kolmogorov-Smirnov test fails for a correct library with probability 0.001
over the choice of its seed; the seeds are fixed, so a run is deterministic.
"""

from functools import cache

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import RandomForestRegressor

import polyhedge as ph
from polyhedge.learners import Descent, OneSidedBox
from polyhedge_study.feature_ridge import FeatureRidge

FALSE_ALARM = 0.001
REPETITIONS = 200
PREDICTORS = {
    "forest": lambda: RandomForestRegressor(20, random_state=0),
    "ridge": lambda: FeatureRidge(),
    "precomputed": lambda: "precomputed",
}


def features(kind, X, Y, rng):
    """Precomputed predictions are the outcome with an error, made without looking at the split."""
    return Y + rng.normal(size=Y.shape) * [0.3, 0.6] if kind == "precomputed" else X


@cache
def frozen(kind):
    """A decider of which nothing but its radius changes from here on, and the scores of many rows in order."""
    rng = np.random.default_rng(7)
    X, Y = ph.data.make_synthetic(500, rng=rng)
    problem = ph.problems.simplex_linear([-0.08, 0.0])
    decider = ph.RobustDecider(problem, PREDICTORS[kind](), learner=Descent(n_steps=20), random_state=0)
    decider.fit(features(kind, X, Y, rng), Y)
    X_test, Y_test = ph.data.make_synthetic(10_000, rng=rng)
    centers = decider.predictor_.predict(features(kind, X_test, Y_test, rng))
    return decider, np.sort(decider.set_.scores(Y_test - centers))


@pytest.mark.parametrize("m", [20, 49])
@pytest.mark.parametrize("kind", PREDICTORS)
def test_coverage_given_the_calibration_split_follows_its_beta_law(kind, m):
    (decider, scores), rng, coverages = frozen(kind), np.random.default_rng(m), []
    for _ in range(REPETITIONS):
        X_fresh, Y_fresh = ph.data.make_synthetic(m, rng=rng)
        decider.recalibrate(features(kind, X_fresh, Y_fresh, rng), Y_fresh)
        coverages.append(np.searchsorted(scores, decider.radius_, side="right") / len(scores))
    test = stats.kstest(coverages, ph.coverage_law(m, decider.alpha).cdf)
    assert test.pvalue > FALSE_ALARM


# Settings, and how many fits: those of a default take half a second each.
WHOLE_FITS = {
    "one learner": ({"learner": ph.learners.PcaBox()}, REPETITIONS),
    "the default's set": ({"guarantee": "outcome"}, 15),
    "the default": ({}, 12),
}


@pytest.mark.parametrize(
    "kind", ["one learner", pytest.param("the default's set", marks=pytest.mark.slow), "the default"]
)
def test_whole_fits_on_fresh_data_keep_the_promise_and_follow_the_beta_law(kind):
    problem, (settings, n_fits) = ph.problems.simplex_linear([-0.08, 0.0]), WHOLE_FITS[kind]
    rng = np.random.default_rng(11)
    X_test, Y_test = ph.data.make_synthetic(2_000, rng=rng)
    uniform = []
    for seed in range(n_fits):
        X, Y = ph.data.make_synthetic(120, rng=rng)
        decider = ph.RobustDecider(problem, FeatureRidge(), random_state=seed, **settings).fit(X, Y)
        held = (decider.model_.scores(decider.model_.read(X_test, Y_test)) <= decider.radius_).mean()
        uniform.append(ph.coverage_law(decider.n_calibrate_, 0.1).cdf(held))
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_the_cost_bound_holds_at_least_as_often_as_the_set_covers():
    rng = np.random.default_rng(3)
    X, Y = ph.data.make_synthetic(1500, rng=rng)
    problem = ph.problems.simplex_newsvendor(0.3, 0.7, 2)
    decider = ph.RobustDecider(problem, learner=Descent(n_steps=30), random_state=0).fit(X[:900], Y[:900])
    found = decider.decide(X[900:])
    costs = problem.evaluate(found.z, Y[900:])
    inside = decider.set_.contains(Y[900:] - decider.predictor_.predict(X[900:]), decider.radius_)
    assert (costs <= found.cost_bound + 1e-9)[inside].all()


def uneven_groups(rng, n_groups):
    """Labels of groups of 1 or 100 rows, and the size of each group's residuals: larger groups are wilder."""
    large = rng.random(n_groups) < 0.5
    labels = np.repeat(np.arange(n_groups), np.where(large, 100, 1))
    return labels, np.where(large, 3.0, 1.0)


def test_groups_calibrate_whatever_their_size_so_that_coverage_follows_the_beta_law_of_their_number():
    # Rows of a group are copies, so that a new row is a new group and the law is exact.
    rng = np.random.default_rng(5)
    coverages = []
    for _ in range(5 * REPETITIONS):
        labels, scale = uneven_groups(rng, 20)
        scores = (scale * rng.random(20))[labels]
        split = ph.data.partition_rows(len(labels), (0.0, 0.5, 0.5, 0.0), rng=rng, groups=labels)
        own = split.calibrate
        radius = ph.calibration.grouped_radius(scores[own], labels[own], 0.2)
        coverages.append(np.minimum(radius / np.array([1.0, 3.0]), 1.0).mean())
    assert stats.kstest(coverages, ph.coverage_law(10, 0.2).cdf).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_whole_fits_with_groups_of_unequal_size_follow_the_beta_law_of_their_number():
    problem = ph.problems.newsvendor(1.0, 2.0, 1)
    rng = np.random.default_rng(6)
    scale = np.where(rng.random(4000) < 0.5, 3.0, 1.0)
    new = scale * rng.exponential(size=4000)
    coverages = []
    for seed in range(REPETITIONS):
        labels, scale = uneven_groups(rng, 20)
        Y = (scale * rng.exponential(size=20))[labels, None]
        decider = ph.RobustDecider(problem, "precomputed", learner=OneSidedBox(), random_state=seed)
        decider.fit(np.zeros_like(Y), Y, groups=labels)
        coverages.append(decider.set_.contains(new[:, None], decider.radius_).mean())
    assert stats.kstest(coverages, ph.coverage_law(10, 0.1).cdf).pvalue > FALSE_ALARM


def test_a_row_of_a_new_group_is_covered_as_promised_where_rows_of_a_group_differ():
    # The promise is a lower bound here, so the test is one-sided: a normal mean of many repetitions.
    rng = np.random.default_rng(8)
    radii = []
    for _ in range(1000):
        labels, scale = uneven_groups(rng, 20)
        scores = scale[labels] * (rng.random(20)[labels] + rng.random(len(labels)))
        split = ph.data.partition_rows(len(labels), (0.0, 0.5, 0.5, 0.0), rng=rng, groups=labels)
        radii.append(ph.calibration.grouped_radius(scores[split.calibrate], labels[split.calibrate], 0.2))
    law = stats.triang(0.5, scale=2.0)  # of the sum of two uniform numbers
    coverages = (law.cdf(radii) + law.cdf(np.array(radii) / 3)) / 2
    assert coverages.mean() > 0.8 - stats.norm.isf(FALSE_ALARM) * stats.sem(coverages)
