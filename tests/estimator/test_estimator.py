"""RobustDecider: the public chain, its contract with scikit-learn and its errors."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.learners import Descent
from shared import Given, codes

QUICK = Descent(n_steps=8)


def box(problem):
    """Returned at once instead of a learned set."""
    return Given(ph.Box(np.ones(problem.n_outcomes)).as_polyhedron())


@pytest.fixture(scope="module")
def data():
    return ph.data.make_synthetic(400, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def problem():
    return ph.problems.simplex_linear([-0.08, 0.0])


@pytest.fixture(scope="module")
def fitted(data, problem):
    return ph.RobustDecider(problem, LinearRegression(), learner=QUICK, random_state=0).fit(*data)


def test_cost_bound_is_the_worst_cost_over_the_vertices_of_the_region(fitted, data, problem):
    found = fitted.decide(data[0][:5])
    for x, z, bound, worst in zip(data[0], found.z, found.cost_bound, found.worst_outcome, strict=False):
        region = fitted.region(x)
        vertices = region.vertices()
        costs = problem.evaluate(np.tile(z, (len(vertices), 1)), vertices)
        assert bound == pytest.approx(costs.max(), abs=1e-8)
        assert region.contains(worst)
        assert problem.evaluate(z[None], worst[None])[0] == pytest.approx(bound, abs=1e-8)


@pytest.mark.parametrize("as_rows", [np.asarray, pd.DataFrame], ids=["array", "frame"])
@pytest.mark.parametrize("guarantee", ["cost", "outcome"])
def test_a_row_that_cannot_be_decided_is_marked_and_the_others_are_decided(data, problem, as_rows, guarantee):
    X, Y = as_rows(data[0]), data[1]
    learner = QUICK if guarantee == "outcome" else None
    decider = ph.RobustDecider(problem, LinearRegression(), learner=learner, guarantee=guarantee, random_state=0)
    decider.fit(X, Y)
    gaps = np.array(data[0][:8])
    gaps[2, 1], gaps[5, 0] = np.nan, np.inf
    rows, whole = as_rows(gaps), np.delete(np.arange(8), [2, 5])
    with pytest.warns(RuntimeWarning, match="2 of 8 decisions: not decided.*missing: 1"):
        found = decider.decide(rows)
    alone = decider.decide(X[:8]).take(whole)
    assert [str(status).partition(":")[0] for status in found.status[[2, 5]]] == ["not decided"] * 2
    assert (found.detail[2], found.detail[5]) == ("missing: 1", "not finite: 0")
    assert np.isnan(found.flat[[2, 5]]).all()
    assert np.isnan(found.cost_bound[[2, 5]]).all()
    for name in ("flat", "cost_bound", "worst_outcome", "gap", "radii", "expected_cost"):
        some, others = getattr(found, name), getattr(alone, name)
        assert (some is None) == (others is None)
        np.testing.assert_allclose(
            np.zeros(0) if some is None else some[whole], np.zeros(0) if others is None else others
        )
    assert found.to_frame()["status"].tolist().count("not decided") == 2
    told, rest = decider.evaluate(rows, Y[:8]), decider.evaluate(as_rows(gaps[whole]), Y[:8][whole])
    assert (told.n_undecided, told.coverage, told.bound_held) == (2, rest.coverage, rest.bound_held)
    assert float(told.realised_cost.value) == pytest.approx(rest.realised_cost.value)
    with pytest.warns(RuntimeWarning, match="1 of 1 decisions: not decided.*missing: 1"):
        none = decider.decide(as_rows(gaps[2:3]))
    assert list(none.to_frame().columns) == list(found.to_frame().columns)
    assert np.isnan(none.flat).all()


def test_recalibration_changes_the_radius_and_keeps_the_shape(data, problem):
    X, Y = data
    decider = ph.RobustDecider(problem, LinearRegression(), learner=QUICK, random_state=0).fit(X, Y)
    shape, radius = decider.set_, decider.radius_
    fresh = ph.data.make_synthetic(200, rng=np.random.default_rng(5))
    assert decider.recalibrate(fresh[0], 3 * fresh[1]) is decider
    assert decider.set_ is shape
    assert decider.radius_ > radius
    assert decider.n_calibrate_ == 200


def test_same_seed_gives_the_same_decisions_and_another_seed_another_split(data, problem):
    def bounds(seed):
        decider = ph.RobustDecider(problem, RandomForestRegressor(10), learner=QUICK, random_state=seed)
        return decider.fit(*data).decide(data[0][:20]).cost_bound

    assert np.array_equal(bounds(0), bounds(0))
    assert not np.array_equal(bounds(0), bounds(1))


def test_predictors_that_need_no_training_leave_all_rows_to_learning_and_calibration(data, problem):
    Y = data[1]
    decider = ph.RobustDecider(problem, "precomputed", learner=QUICK, random_state=0).fit(Y * 0.9, Y)
    assert len(decider.split_.train) == 0
    assert len(decider.split_.learn) + len(decider.split_.calibrate) == len(Y)
    assert decider.region(Y[0] * 0.9).center == pytest.approx(Y[0] * 0.9)


def test_rows_without_a_decision_are_reported_and_keep_their_place():
    problem = ph.DecisionProblem(
        decision=(z := cp.Variable(1, nonneg=True)),
        cost=lambda z, u: u @ z,
        constraints=[z <= 1],
        n_outcomes=1,
        outcome_support=lambda u: [u >= 0],
    )
    rng = np.random.default_rng(0)
    Y = rng.random((200, 1))
    decider = ph.RobustDecider(problem, "precomputed", learner=box(problem), random_state=0).fit(Y * 0.9, Y)
    with pytest.warns(RuntimeWarning, match="1 of 2 decisions: empty set") as caught:
        found = decider.decide(np.array([[0.5], [-50.0]]))
    assert codes(caught) == {"No decision"}
    assert found.status[0] is ph.Status.OPTIMAL
    assert found.status[1] is ph.Status.EMPTY_SET
    assert np.isnan(found.z[1]).all()


ERRORS = {
    "NaN in X": (
        lambda X, Y: (np.where(X > 2, np.nan, X), Y),
        {},
        r"X must be finite, got .* the first is row \d+ \(missing",
    ),
    "NaN in Y": (lambda X, Y: (X, np.where(Y > 2, np.nan, Y)), {}, "Y must be finite"),
    "one column too many": (lambda X, Y: (X, np.c_[Y, Y[:, 0]]), {}, r"Y must have 2 column\(s\).*got 3"),
    "fewer rows": (lambda X, Y: (X, Y[:-1]), {}, "same number of rows, got 400 and 399"),
    "no rows": (lambda X, Y: (X[:0], Y[:0]), {}, "no rows"),
    "alpha 0": (lambda X, Y: (X, Y), {"alpha": 0.0}, "alpha must lie strictly between 0 and 1, got 0.0"),
    "too few rows": (lambda X, Y: (X, Y), {"alpha": 0.005}, "needs at least 199 learning samples, got 100"),
    "few to calibrate": (
        lambda X, Y: (X, Y),
        {"alpha": 0.01, "split": (0.5, 0.45, 0.05)},
        "needs at least 99 calibration samples, got 20",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_gets_an_error_that_says_what_must_hold(case, data, problem):
    spoil, settings, message = ERRORS[case]
    decider = ph.RobustDecider(problem, LinearRegression(), **{"learner": QUICK, "random_state": 0, **settings})
    with pytest.raises(ValueError, match=message):
        decider.fit(*spoil(*data))


@pytest.mark.parametrize("method", ["decide", "region", "evaluate", "recalibrate"])
def test_using_a_decider_before_fit_names_the_missing_step(method, data, problem):
    arguments = data if method in ("evaluate", "recalibrate") else data[:1]
    with pytest.raises(NotFittedError, match=rf"Call fit\(X, Y\) before {method}"):
        getattr(ph.RobustDecider(problem), method)(*arguments)


def test_outcomes_outside_their_known_support_are_an_error():
    problem = ph.problems.newsvendor(0.3, 0.7, 2)
    Y = np.random.default_rng(0).normal(size=(100, 2))
    with pytest.raises(ValueError, match=r"row\(s\) of Y violate outcome_support"):
        ph.RobustDecider(problem, "precomputed").fit(Y, Y)


def test_a_cost_that_ignores_the_outcome_is_no_obstacle():
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: z @ np.array([1.0, 2.0]), constraints=[cp.sum(z) == 1], n_outcomes=2
    )
    Y = np.random.default_rng(0).normal(size=(100, 2))
    decider = ph.RobustDecider(problem, "precomputed", random_state=0).fit(Y * 0.5, Y)
    assert decider.decide(Y[:2]).cost_bound == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_share_of_bounds_that_held_does_not_depend_on_units(scale, data):
    X, Y = data
    problem = ph.problems.simplex_linear([0.0, 0.0])
    decider = ph.RobustDecider(problem, LinearRegression(), learner=box(problem), random_state=0)
    decider.fit(X, scale * Y)
    centers = decider.predictor_.predict(X)
    found = decider.decide(X)
    realised = problem.evaluate(found.z, scale * Y)
    expected = (realised <= found.cost_bound + 1e-9 * scale).mean()
    assert decider.evaluate(X, scale * Y).bound_held.value == pytest.approx(expected, abs=1e-9)
    assert centers.shape == Y.shape


@pytest.mark.parametrize(
    ("guarantee", "said"),
    [("outcome", "infeasible: no decision satisfies the constraints"), (None, "none meets the constraints")],
)
def test_constraints_nobody_can_meet_are_explained_by_fit(guarantee, said):
    z = cp.Variable(1, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z),
        constraints=[z <= 1],
        n_outcomes=1,
        uncertain_constraints=lambda z, u: [z >= u + 50],
    )
    Y = np.random.default_rng(0).normal(size=(100, 1))
    with pytest.raises(ValueError, match=said):
        ph.RobustDecider(problem, "precomputed", guarantee=guarantee, random_state=0).fit(Y, Y)
