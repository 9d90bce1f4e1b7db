"""The one-sided box is calibrated on learning and calibration rows together."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsRegressor

import polyhedge as ph
from polyhedge.learners import Descent, Needs, OneSidedBox, PcaBox
from polyhedge.learners.one_sided_box import axis_scales
from polyhedge_study.feature_ridge import FeatureRidge

PROBLEM = ph.problems.simplex_linear([-0.08, 0.0])
SPLIT = {"train": np.arange(200), "learn": np.arange(200, 250), "calibrate": np.arange(250, 300)}


@pytest.fixture(scope="module")
def data():
    return ph.data.make_synthetic(300, rng=np.random.default_rng(0))


def fitted(data, learner, predictor=None, **settings):
    predictor = FeatureRidge() if predictor is None else predictor
    return ph.RobustDecider(PROBLEM, predictor, learner=learner, random_state=0, **settings).fit(*data, **SPLIT)


@dataclass(frozen=True)
class Spy:
    """Remembers what it is given."""

    seen: list
    needs: ClassVar[Needs] = Needs(learning_rows=False)

    def learn(self, samples, random_state=None):
        self.seen.append(samples.residuals)
        return OneSidedBox().learn(samples)


def test_scales_come_from_training_rows_and_the_radius_from_all_others(data):
    X, Y = data
    spy = Spy([])
    decider = fitted(data, spy)
    residuals = Y - decider.predictor_.predict(X)
    assert np.array_equal(spy.seen[0], residuals[SPLIT["train"]])
    pooled = np.concatenate([SPLIT["learn"], SPLIT["calibrate"]])
    assert decider.n_calibrate_ == len(pooled)
    expected = ph.conformal_radius(decider.set_.scores(residuals[pooled]), decider.alpha)
    assert decider.radius_ == pytest.approx(expected, abs=1e-8)


def test_no_calibration_row_influences_predictor_or_shape(data):
    X, Y = data
    altered = Y.copy()
    altered[200:] += 10.0
    first, second = fitted(data, OneSidedBox()), fitted((X, altered), OneSidedBox())
    assert np.array_equal(first.set_.W, second.set_.W)
    assert np.array_equal(first.set_.b, second.set_.b)
    assert first.radius_ != second.radius_


@pytest.mark.parametrize("learner", [Descent(n_steps=2), PcaBox()], ids=lambda learner: type(learner).__name__)
def test_learners_that_use_their_rows_are_calibrated_on_the_calibration_rows_alone(learner, data):
    assert fitted(data, learner).n_calibrate_ == 50


def test_without_a_trained_predictor_the_splits_keep_their_roles(data):
    X, Y = data
    frozen = FrozenEstimator(FeatureRidge().fit(X[:200], Y[:200]))
    assert fitted(data, OneSidedBox(), frozen).n_calibrate_ == 50


def test_a_predictor_that_reproduces_its_training_rows_leaves_the_scales_to_the_learning_rows(data):
    decider = fitted(data, OneSidedBox(), KNeighborsRegressor(1))
    assert decider.n_calibrate_ == 50
    assert np.isfinite(decider.decide(data[0][:3]).cost_bound).all()


def test_few_training_rows_leave_the_scales_to_the_learning_rows(data):
    X, Y = data
    split = {**SPLIT, "train": np.arange(8)}
    decider = ph.RobustDecider(PROBLEM, FeatureRidge(), learner=OneSidedBox()).fit(X, Y, **split)
    assert decider.n_calibrate_ == 50


def test_true_means_standard_deviations_and_false_equal_scales(data):
    residuals = data[1]
    assert np.array_equal(axis_scales(residuals, True, 0.1), residuals.std(axis=0))
    assert np.array_equal(axis_scales(residuals, "std", 0.1), residuals.std(axis=0))
    assert np.array_equal(axis_scales(residuals, False, 0.1), [1.0, 1.0])


def test_tail_scale_is_the_mean_of_the_largest_absolute_residuals_and_resists_an_outlier():
    residuals = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 3.0]
    tail = axis_scales(residuals, "tail", 0.1)
    assert tail == pytest.approx(np.sort(np.abs(residuals), axis=0)[-100:].mean(axis=0))
    residuals[0, 0] = 100.0
    assert axis_scales(residuals, "tail", 0.1)[0] < 1.7 * tail[0]
    assert axis_scales(residuals, "std", 0.1)[0] > 4.0
    assert np.array_equal(axis_scales(np.zeros((20, 1)), "tail", 0.1), [1.0])
