"""Where the split is in time, rules and distributions are scored by earlier rows alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.planning import DevelopmentRows
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.development import forward_folds, forward_predictions
from polyhedge.planning.policies import Rule
from polyhedge.planning.risk import Risk
from polyhedge.planning.selection import Folds
from polyhedge.predictors.regressor import as_predictor
from polyhedge.problems import simplex_linear

N = 240
RULES = [Rule(), Rule("scaled", Risk(0.5))]


class LastSeen(RegressorMixin, BaseEstimator):
    """Predicts the latest time that it was trained on; times are the first feature."""

    def fit(self, X, y):
        self.latest_ = X[:, 0].max()
        return self

    def predict(self, X):
        return np.full(len(X), self.latest_)


def timed(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    X, Y = ph.data.make_synthetic(n, rng=np.random.default_rng(0))
    return np.column_stack([np.arange(n), X]), Y


def forward_rows(X: np.ndarray, Y: np.ndarray) -> DevelopmentRows:
    folds = forward_folds(len(Y))
    centers = forward_predictions(lambda: as_predictor(LinearRegression(), 2), X, Y, folds)
    return DevelopmentRows(X, centers, Y, np.zeros((len(Y), 0)), folds, in_time=True)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_no_fold_is_scored_by_later_rows(is_grouped):
    X, Y = timed()
    groups = np.repeat(np.random.default_rng(1).permutation(N // 4), 4) if is_grouped else None
    folds = forward_folds(N, groups)
    seen = forward_predictions(lambda: as_predictor(LastSeen(), 2), X, Y, folds, groups)
    rows = DevelopmentRows(X, seen, Y, np.zeros((N, 0)), folds, in_time=True)
    assert len(rows.folds()) == 4
    for own, rest in rows.folds():
        assert rest.max() < own.min()
        assert (seen[own] == rest.max()).all()
        assert seen[rest].max() < own.min()
    if groups is not None:
        assert all(len(np.unique(folds[groups == one])) == 1 for one in np.unique(groups))


def test_later_outcomes_do_not_change_how_earlier_rows_are_scored():
    X, Y = timed()
    is_last = forward_folds(N) == 4
    other = np.where(is_last[:, None], 5 - 2 * Y, Y)
    seen = PlanningProblem(simplex_linear([-0.08, 0.0]))
    before, after = (Folds(seen, forward_rows(X, one), RULES, 0.8, 0).scored(RULES)["scaled"] for one in (Y, other))
    n_earlier = int((~is_last & (forward_folds(N) > 0)).sum())
    for one, same in zip(before, after, strict=True):
        assert (one.planned[:n_earlier] == same.planned[:n_earlier]).all()
        assert (one.realised[:n_earlier] == same.realised[:n_earlier]).all()
        assert (one.realised[n_earlier:] != same.realised[n_earlier:]).any()


@pytest.mark.parametrize("predictor", [LinearRegression(), "precomputed"])
def test_selections_of_splits_in_time_look_back_and_others_do_not(predictor):
    X, Y = timed(320)
    if predictor == "precomputed":
        X = Y + np.random.default_rng(2).normal(0, 0.3, Y.shape)
    scored = {}
    for split in ("time", (0.5, 0.25, 0.25)):
        decider = ph.RobustDecider(simplex_linear([-0.08, 0.0]), predictor, split=split, random_state=0).fit(X, Y)
        n = len(decider.split_.learn) + (0 if predictor == "precomputed" else len(decider.split_.train))
        scored[str(split)] = decider.policy_.n_scored / n
    assert scored["(0.5, 0.25, 0.25)"] == 1
    assert scored["time"] == pytest.approx(2 / 3, abs=0.01)


def test_few_rows_are_scored_both_ways_in_time_too():
    X, Y = timed(160)
    decider = ph.RobustDecider(simplex_linear([-0.08, 0.0]), LinearRegression(), split="time", random_state=0).fit(X, Y)
    assert decider.policy_.n_scored == len(decider.split_.train) + len(decider.split_.learn)
