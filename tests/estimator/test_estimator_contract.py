"""The contract of scikit-learn: its own checks, weights and their routing, sparse rows, pipelines, pickles."""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import polyhedge as ph
from polyhedge_study.feature_ridge import FeatureRidge

X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(0))
PROBLEM = ph.problems.simplex_linear([0.0, 0.0])
QUICK = ph.learners.OneSidedBox()


def decider(**settings):
    return ph.RobustDecider(PROBLEM, **{"learner": QUICK, "random_state": 0, **settings})


@pytest.mark.parametrize("guarantee", ["outcome", pytest.param("cost", marks=pytest.mark.slow)])
def test_the_checks_of_scikit_learn_pass_but_for_two_on_weights(guarantee):
    problem = ph.problems.newsvendor(1.0, [4.0], nonnegative_demand=False)
    # Its checks fit as few as six rows, which promise one in two.
    robust = ph.RobustDecider(problem, learner=QUICK, alpha=0.5, random_state=0, guarantee=guarantee)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks bring degenerate rows
        results = check_estimator(robust, on_fail=None, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert len(results) > 40
    # Weights are for the predictor only, so that a row of weight 2 is not two rows; and rows must have a length.
    assert failed <= {"check_sample_weight_equivalence_on_dense_data", "check_sample_weights_not_an_array"}


def weights_to(rows: np.ndarray) -> np.ndarray:
    weights = np.zeros(len(X))
    weights[rows] = 1.0
    return weights


@pytest.mark.parametrize(
    "predictor", [None, Ridge(), make_pipeline(StandardScaler(), Ridge()), RandomForestRegressor(5, random_state=0)]
)
def test_weights_reach_the_predictor_whatever_it_is(predictor):
    rng = np.random.default_rng(1)
    plain, weighted = (decider(predictor=predictor).fit(X, Y, sample_weight=w) for w in (None, rng.uniform(size=200)))
    assert np.abs(plain.centers(X) - weighted.centers(X)).max() > 1e-6
    if isinstance(predictor, RandomForestRegressor):
        return  # draws other rows where it is given weights
    same = decider(predictor=predictor).fit(X, Y, sample_weight=np.full(200, 1.0))
    np.testing.assert_allclose(same.centers(X), plain.centers(X), atol=1e-9)


def test_rows_of_no_weight_do_not_train_but_calibrate():
    shifted = Y + np.where(np.arange(200)[:, None] < 100, 50.0, 0.0)
    robust = decider(predictor=LinearRegression()).fit(X, shifted, sample_weight=weights_to(np.arange(100, 200)))
    train = robust.split_.train[robust.split_.train >= 100]
    expected = LinearRegression().fit(X[train], Y[train])
    np.testing.assert_allclose(robust.centers(X), expected.predict(X))
    assert robust.n_calibrate_ == decider(predictor=LinearRegression()).fit(X, Y).n_calibrate_


def test_a_weight_of_two_is_two_rows_for_the_ridge_on_features():
    twice = np.repeat(np.arange(200), 1 + (np.arange(200) < 50))
    for intercept in (False, True):
        ridge = FeatureRidge(0.1, "all", fit_intercept=intercept)
        weighted = ridge.fit(X, Y, sample_weight=1.0 + (np.arange(200) < 50)).coef_.copy()
        np.testing.assert_allclose(weighted, ridge.fit(X[twice], Y[twice]).coef_, atol=1e-9)


def test_weights_that_nothing_takes_and_wrong_weights_are_refused():
    with pytest.raises(ValueError, match="is for the predictor, but KNeighborsRegressor takes no weights"):
        decider(predictor=KNeighborsRegressor()).fit(X, Y, sample_weight=np.ones(200))
    with pytest.raises(ValueError, match=r"sample_weight must hold 200 numbers .*, got 3 numbers from 1 to 1\."):
        decider().fit(X, Y, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match=r"not all zero, got 200 numbers from -1 to -1\."):
        decider().fit(X, Y, sample_weight=-np.ones(200))


def test_a_search_hands_weights_on_by_metadata_routing():
    weights = np.random.default_rng(1).uniform(size=200)
    with config_context(enable_metadata_routing=True):
        asked = decider(predictor=Ridge()).set_fit_request(sample_weight=True)
        search = GridSearchCV(asked, {"learner__max_contexts": [20]}, cv=2).fit(X, Y, sample_weight=weights)
    direct = decider(predictor=Ridge(), learner=ph.learners.OneSidedBox(max_contexts=20))
    direct.fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(search.best_estimator_.centers(X), direct.centers(X))


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.coo_matrix])
def test_sparse_rows_are_taken_where_the_predictor_takes_them(form):
    ridge = Ridge(solver="sparse_cg", tol=1e-12)
    robust = decider(predictor=ridge)
    assert robust.__sklearn_tags__().input_tags.sparse
    found = robust.fit(form(X), Y).decide(form(X)).cost_bound
    np.testing.assert_allclose(found, decider(predictor=ridge).fit(X, Y).decide(X).cost_bound, atol=1e-7)
    assert not decider().__sklearn_tags__().input_tags.sparse
    with pytest.raises(TypeError, match=r"The default predictor does not take sparse data, got .*Pass X\.toarray\(\)"):
        decider().fit(form(X), Y)


def test_the_verbs_of_a_last_step_are_reached_through_its_pipeline():
    pipeline = make_pipeline(StandardScaler(), decider()).fit(X, Y)
    Z = pipeline[:-1].transform(X)
    assert pipeline.score(X) == -pipeline[-1].decide(Z).cost_bound.mean()


def test_a_decider_with_a_lambda_for_a_cost_is_pickled_by_its_formulas():
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=2)
    robust = ph.RobustDecider(problem, learner=QUICK, random_state=0).fit(X, Y)
    twin = pickle.loads(pickle.dumps(robust))
    np.testing.assert_array_equal(twin.decide(X).cost_bound, robust.decide(X).cost_bound)


def test_settings_of_calibrators_are_set_by_name_and_policies_have_their_own():
    calibrator = ph.calibration.ByCategory("shop")
    robust = decider(calibration=calibrator, policy=RandomForestRegressor())
    known = robust.get_params()
    assert {"calibration__column", "policy__max_depth"} <= set(known), sorted(known)
    robust.set_params(policy__max_depth=3)
    assert robust.policy.max_depth == 3
