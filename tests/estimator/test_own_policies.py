"""Decisions of a user's own policy must be ones that can be taken: others are refused, and never called optimal."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import polyhedge as ph
from polyhedge._support.tolerances import FEASIBLE
from polyhedge.calibration import Marginal
from polyhedge.model import calibrated_radii
from polyhedge.problems.checks import broken_by
from polyhedge.rows import Rows
from polyhedge.solvers.program import Status


def problem_with(*constraints, cost=lambda z, u: u @ z, **attributes) -> ph.DecisionProblem:
    z = cp.Variable(2, **attributes)
    return ph.DecisionProblem(decision=z, cost=cost, constraints=[make(z) for make in constraints], n_outcomes=2)


KINDS = {
    "equation": (problem_with(lambda z: cp.sum(z) == 1, nonneg=True), [0.25, 0.75], [0.25, 0.76]),
    "inequality": (problem_with(lambda z: z[0] + 2 * z[1] <= 3, nonneg=True), [1.0, 1.0], [1.0, 1.001]),
    "sign": (problem_with(lambda z: cp.sum(z) <= 1, nonneg=True), [0.0, 1.0], [-0.01, 1.0]),
    "bounds": (problem_with(bounds=[0, 1]), [0.0, 1.0], [0.0, 1.1]),
    "whole": (problem_with(lambda z: cp.sum(z) <= 5, integer=True, nonneg=True), [2.0, 3.0], [2.0, 2.5]),
    "cone": (problem_with(lambda z: cp.norm(z) <= 1), [0.6, 0.8], [0.6, 0.9]),
    "absolute": (problem_with(lambda z: cp.norm1(z) <= 1), [0.5, -0.5], [0.5, -0.6]),
    "cost of its own": (
        problem_with(lambda z: cp.sum(z) == 1, cost=lambda z, u: u @ z + cp.sum_squares(z), nonneg=True),
        [0.5, 0.5],
        [0.5, 0.4],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_decision_breaks_is_measured(kind):
    problem, kept, broken = KINDS[kind]
    nothing = np.zeros((3, 0))
    # Rounding in the last digits breaks nothing.
    by = broken_by(problem, np.array([kept, broken, np.multiply(kept, 1 + 1e-9)]), nothing)
    assert by[0] <= FEASIBLE >= by[2]
    assert by[1] > 100 * FEASIBLE


def test_constraints_with_parameters_are_kept_row_by_row():
    z, most = cp.Variable(2, nonneg=True), cp.Parameter(nonneg=True, name="most")
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) <= most], n_outcomes=2)
    by = broken_by(problem, np.ones((3, 2)), np.array([[3.0], [2.0], [1.5]]))
    assert (by <= FEASIBLE).tolist() == [True, True, False]


def test_trained_policy_is_scored_on_rows_that_it_had_not_seen():
    # One that knows its rows by heart has no cost there.
    X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    newsvendor = ph.DecisionProblem(
        decision=cp.Variable(2), cost=lambda z, u: cp.sum(cp.abs(z - u)), constraints=[], n_outcomes=2
    )
    decider = ph.RobustDecider(newsvendor, None, policy=KNeighborsRegressor(1), alpha=0.2, random_state=0).fit(X, Y)
    fresh_X, fresh_Y = ph.data.make_synthetic(1000, rng=np.random.default_rng(1))
    came = decider.evaluate(fresh_X, fresh_Y)
    (entry,) = decider.policy_.entries
    assert entry.cost == pytest.approx(came.realised_cost.value, rel=0.15)
    assert entry.bound == pytest.approx(came.worst_case_cost.value, rel=0.15)
    assert "no rule had seen" not in str(decider.policy_)


def test_learning_rows_calibrate_no_policy_that_may_have_been_made_from_them():
    # Calibration rows too few for a level are joined by learning rows only where `fit` itself trains the policy.
    # 6 fits, 60 calibration and 100 test rows each: a policy that knows the learning rows by heart held .67 there.
    held, newsvendor = [], ph.problems.newsvendor(1.0, 3.0, 1)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(400, 2))
        Y = 10 + X[:, :1] + rng.normal(size=(400, 1))
        nearest = KNeighborsRegressor(1).fit(X[:240], Y[:240])
        parts = {"train": np.arange(100), "learn": np.arange(100, 240), "calibrate": np.arange(240, 300)}
        given = FrozenEstimator(nearest) if seed % 2 else nearest.predict
        decider = ph.RobustDecider(newsvendor, LinearRegression(), policy=given, random_state=0)
        assert decider.fit(X[:300], Y[:300], **parts).n_calibrate_ == 60
        held.append(decider.evaluate(X[300:], Y[300:]).bound_held)
        if seed == 0:
            trained = ph.RobustDecider(newsvendor, LinearRegression(), policy=KNeighborsRegressor(1), random_state=0)
            assert trained.set_params(alpha=0.01).fit(X[:300], Y[:300], **parts).n_calibrate_ == 200
    assert np.mean(held) > 0.82  # the mean of six has a standard error of .02


def policy(X):
    """Everything on one outcome, and too much of it in a few rows."""
    z = np.column_stack([X[:, 0] < 0, X[:, 0] >= 0]).astype(float)
    return np.where((X[:, 0] > 2.0)[:, None], 1.2 * z, z)


def test_infeasible_decisions_are_refused_and_count_as_infinitely_expensive():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(2))
    is_broken = X[:, 0] > 2.0
    assert 2 < is_broken.sum() < 20
    decider = ph.RobustDecider(
        ph.problems.simplex_linear([-0.08, 0.0]), LinearRegression(), policy=policy, random_state=0
    )
    with pytest.warns(RuntimeWarning, match="breaks the constraints"):
        found = decider.fit(X, Y).decide(X)
    assert (found.status[is_broken] == Status.REFUSED).all()
    assert (found.status[~is_broken] == Status.FINISHED).all()
    assert not found.is_optimal.any()
    assert np.isnan(found.cost_bound[is_broken]).all()
    assert np.isfinite(found.cost_bound[~is_broken]).all()
    assert "breaks the constraints by 0.0" in found.detail[int(np.argmax(is_broken))]
    assert "within 1e-06. Let the policy return the nearest" in found.detail[int(np.argmax(is_broken))]
    scores = decider.model_.family.at(X).scores(Y)
    assert (np.isinf(scores) == is_broken).all()


def test_a_policy_that_is_mostly_infeasible_is_refused_by_fit_with_a_decision_it_gave():
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(2))
    decider = ph.RobustDecider(
        ph.problems.simplex_linear([-0.08, 0.0]), LinearRegression(), policy=lambda X: np.full((len(X), 2), 0.7)
    )
    with pytest.raises(ValueError, match=r"in 75 of 75 rows that do not calibrate it does not.*\[0.7 0.7\] breaks"):
        decider.fit(X, Y)


def stock(**settings):
    """A newsvendor with room for every order, its policy and other settings."""
    z = cp.Variable(1, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum(z) + 3 * cp.sum(cp.pos(u - z)), constraints=[z <= 99], n_outcomes=1
    )
    return ph.RobustDecider(problem, LinearRegression(), random_state=0, **settings)


def demand(n=200):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    return X, 9 + X[:, :1] + 0.3 * X[:, 1:2] + rng.normal(size=(n, 1))


def test_policy_that_looks_at_other_rows_is_refused_with_what_it_gave():
    with pytest.raises(ValueError, match=r"function of its row alone.*Row 0 of \d+ .* decided as \[.*\] alone, and as"):
        stock(policy=lambda A: 10 + A[:, 0] - A[:, 0].mean()).fit(*demand())
    with pytest.raises(ValueError, match="in another order"):  # alone and among all it looks the same
        stock(policy=lambda A: 10.0 + (np.arange(len(A)) if len(A) == 8 else np.zeros(len(A)))).fit(*demand())


def test_rows_without_a_decision_of_the_policy_say_so():
    X, Y = demand()
    decider = stock(policy=lambda A: np.where(A[:, 2] > 2.0, np.nan, 10.0)).fit(X, Y)
    new = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    with pytest.warns(RuntimeWarning, match="gave no decision"):
        found = decider.decide(new)
    assert found.detail[0] == ""
    assert "The policy gave no decision" in found.detail[1]
    assert np.isnan(found.cost_bound).tolist() == [False, True]
    assert found.status[1] is Status.REFUSED  # no solver was asked


def test_calibration_that_fails_for_want_of_decisions_says_how_many_rows_have_none():
    X, Y = demand()
    split = stock(policy=lambda A: np.full(len(A), 10.0)).fit(X, Y).split_
    X[:, 2] = 0.0
    X[split.calibrate[:30], 2] = 9.0
    with pytest.raises(
        ValueError, match=r"In 30 of 50 calibration rows \(the first: .*\) the policy has no decision.*raise alpha"
    ):
        stock(policy=lambda A: np.where(A[:, 2] > 2.0, np.nan, 10.0)).fit(X, Y)
    # With too few rows for alpha, the rows without a decision are not to blame.
    X[split.calibrate, 2] = 0.0
    family = stock(policy=lambda A: np.where(A[:, 2] > 2.0, np.nan, 10.0)).fit(X, Y).model_.family
    X[0, 2] = 9.0
    with pytest.raises(ValueError, match="Raise alpha or the calibration share"):
        calibrated_radii(family, Marginal(), Rows(X[:5], Y[:5]), 0.1)


def room_problem() -> ph.DecisionProblem:
    """Orders within the room of the day, at the price of the day."""
    z, room, price = cp.Variable(2, nonneg=True), cp.Parameter(nonneg=True, name="room"), cp.Parameter(2, name="price")
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: price @ z + 4 * cp.sum(cp.pos(u - z)),
        constraints=[cp.sum(z) <= room],
        n_outcomes=2,
    )


def room_rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    given = {"room": 4 + 2 * rng.random(n), "price": 0.5 + rng.random((n, 2))}
    return X, 3 + 0.5 * X[:, :2] + rng.normal(size=(n, 2)), given


def fill_the_room(X, parameters):
    """The forecast and a margin, more of what is cheap, within the room: no function of X."""
    wanted = np.maximum(X[:, :2] @ np.array([[0.5, 0.0], [0.0, 0.5]]) + 4 - parameters["price"], 0.1)
    return wanted * np.minimum(parameters["room"] / wanted.sum(axis=1), 1.0)[:, None]


def test_a_policy_that_takes_parameters_is_given_those_of_its_rows_and_its_bounds_hold():
    # 4 fits of 99 calibration rows: the mean coverage of 200 fresh rows each has a standard error of .018.
    held, problem = [], room_problem()
    for seed in range(4):
        X, Y, given = room_rows(499, seed)
        split = {"train": np.arange(100), "learn": np.arange(100, 200), "calibrate": np.arange(200, 299)}
        decider = ph.RobustDecider(problem, LinearRegression(), policy=fill_the_room, random_state=0)
        past = {name: value[:299] for name, value in given.items()}
        new = {name: value[299:] for name, value in given.items()}
        decider.fit(X[:299], Y[:299], parameters=past, **split)
        decided = decider.decide(X[299:], parameters=new)
        assert (decided.z.sum(axis=1) <= new["room"] * (1 + 1e-6)).all()
        np.testing.assert_allclose(decided.z, fill_the_room(X[299:], new), rtol=1e-6)
        costs = (new["price"] * decided.z).sum(axis=1) + 4 * np.maximum(Y[299:] - decided.z, 0.0).sum(axis=1)
        held.append((costs <= decided.cost_bound).mean())
    assert 0.828 < np.mean(held) < 0.972  # four standard errors
