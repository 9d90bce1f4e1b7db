"""Predictors: every kind gives finite centres, sees training rows only and is left untouched."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, MultiTaskLasso, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import check_estimator

from polyhedge.data import make_synthetic, synthetic_mean
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.recipes import Recipe
from polyhedge.predictors.regressor import as_predictor
from polyhedge_study.feature_ridge import FeatureRidge, all_features, paper_features

X, Y = make_synthetic(150, rng=np.random.default_rng(0))
X_NEW = make_synthetic(40, rng=np.random.default_rng(1))[0]

STACKED = StackingRegressor([("ridge", Ridge()), ("svr", SVR())], Ridge(), cv=2)
TRAINED = {
    "default": None,
    "paper": FeatureRidge(),
    "many outcomes": Ridge(),
    "one outcome": SVR(),
    "one outcome, random": GradientBoostingRegressor(n_estimators=5, subsample=0.5),
    "pipeline, many": make_pipeline(StandardScaler(), KNeighborsRegressor()),
    "pipeline, one": make_pipeline(StandardScaler(), SVR()),
    "search, many": GridSearchCV(Ridge(), {"alpha": [0.1, 10.0]}, cv=3),
    "search, one": GridSearchCV(make_pipeline(StandardScaler(), SVR()), {"svr__C": [0.1, 1.0]}, cv=3),
    "wrapped": MultiOutputRegressor(SVR()),
    "chain": RegressorChain(Ridge()),
    "scaled target": TransformedTargetRegressor(FeatureRidge(), transformer=StandardScaler()),
    "random": RandomForestRegressor(n_estimators=5),
    "stacked": STACKED,
    "stacked, searched": GridSearchCV(STACKED, {"ridge__alpha": [0.1, 10.0]}, cv=2),
    "stacked, in a pipeline": make_pipeline(StandardScaler(), STACKED),
    "stacked, wrapped": MultiOutputRegressor(STACKED),
    "voted": VotingRegressor([("ridge", Ridge()), ("svr", SVR())]),
    "bagged": BaggingRegressor(SVR(), n_estimators=2),
    "scaled target of one": TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
    "made for several": MultiTaskLasso(alpha=0.01),
}


class HomeMade:
    """Has fit and predict, but none of scikit-learn's machinery."""

    def fit(self, X, Y):
        self.mean = np.mean(Y, axis=0)
        return self

    def predict(self, X):
        return np.tile(self.mean, (len(X), 1))


class TestEveryKindOfPredictor:
    @pytest.mark.parametrize("kind", TRAINED)
    @pytest.mark.parametrize("n_outcomes", [1, 2])
    def test_a_regressor_gives_one_finite_row_of_centres_a_sample(self, kind, n_outcomes):
        predictor = as_predictor(TRAINED[kind], n_outcomes)
        assert predictor.needs_training
        centers = predictor.fit(X, Y[:, :n_outcomes]).predict(X_NEW)
        assert centers.shape == (40, n_outcomes)
        assert centers.dtype == np.float64
        assert np.isfinite(centers).all()

    @pytest.mark.parametrize(
        "kind", ["one outcome", "pipeline, one", "stacked", "voted", "bagged", "scaled target of one"]
    )
    def test_a_single_outcome_regressor_is_fitted_once_for_each_outcome(self, kind):
        centers = as_predictor(TRAINED[kind], 2, random_state=0).fit(X, Y).predict(X_NEW)
        seeded = {"random_state": 0} if "random_state" in TRAINED[kind].get_params() else {}
        columns = [clone(TRAINED[kind]).set_params(**seeded).fit(X, Y[:, j]).predict(X_NEW) for j in range(2)]
        np.testing.assert_allclose(centers, np.column_stack(columns))

    @pytest.mark.parametrize("kind", ["paper", "pipeline, many", "search, many", "scaled target"])
    def test_a_regressor_of_many_outcomes_is_fitted_on_all_at_once(self, kind):
        centers = as_predictor(TRAINED[kind], 2).fit(X, Y).predict(X_NEW)
        np.testing.assert_allclose(centers, clone(TRAINED[kind]).fit(X, Y).predict(X_NEW))

    def test_an_estimator_from_outside_scikit_learn_works(self):
        model = HomeMade()
        centers = as_predictor(model, 2).fit(X, Y).predict(X_NEW)
        np.testing.assert_allclose(centers, np.tile(Y.mean(axis=0), (40, 1)))
        assert not hasattr(model, "mean")

    def test_the_default_improves_on_the_mean_whatever_the_units(self):
        # Units enter through z-scores only, up to rounding.
        units = np.array([1e3, 1e-4, 1.0, 50.0])
        centers = as_predictor(None, 2).fit(X, Y).predict(X_NEW)
        rescaled = as_predictor(None, 2).fit(X * units, Y).predict(X_NEW * units)
        np.testing.assert_allclose(rescaled, centers, atol=1e-8)
        truth = synthetic_mean(X_NEW)
        assert np.mean((centers - truth) ** 2) < 0.2 * np.mean((truth - Y.mean(axis=0)) ** 2)

    @pytest.mark.parametrize(("scale", "shift"), [(1.0, 1e3), (1.0, -1e6), (1e6, 0.0), (1e-6, 0.0), (2.0**20, 0.0)])
    def test_the_default_moves_and_scales_with_the_outcomes(self, scale, shift):
        centers = as_predictor(None, 2).fit(X, Y).predict(X_NEW)
        moved = as_predictor(None, 2).fit(X, scale * Y + shift).predict(X_NEW)
        np.testing.assert_allclose(moved, scale * centers + shift, rtol=1e-12, atol=1e-12 * scale)

    @pytest.mark.parametrize(
        ("predictor", "takes"),
        [
            (None, False),
            (make_pipeline(StandardScaler(), Ridge()), False),
            (make_pipeline(StandardScaler(), FeatureRidge()), False),
            (make_pipeline("passthrough", StandardScaler(), HistGradientBoostingRegressor()), True),
            (make_pipeline(StandardScaler(), SimpleImputer(), Ridge()), True),
            (make_pipeline(SimpleImputer(), Ridge()), True),
            (FrozenEstimator(make_pipeline(StandardScaler(), Ridge())), False),
            ("precomputed", False),
        ],
    )
    def test_missing_numbers_are_taken_only_where_a_step_takes_what_it_is_handed(self, predictor, takes):
        assert as_predictor(predictor, 2).takes_nan is takes


class TestFitting:
    def test_the_users_estimator_stays_unfitted_and_a_fitted_one_is_fitted_anew(self):
        model = Ridge()
        as_predictor(model, 2).fit(X, Y)
        assert not hasattr(model, "coef_")
        model.fit(X, Y + 100)
        old = model.intercept_.copy()
        assert as_predictor(model, 2).fit(X, Y).predict(X_NEW).max() < 50
        np.testing.assert_array_equal(model.intercept_, old)

    @pytest.mark.parametrize("kind", ["random", "one outcome, random"])
    def test_unset_random_states_are_set_and_the_global_generator_is_left_alone(self, kind):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        fits = [as_predictor(TRAINED[kind], 2, random_state=s).fit(X, Y).predict(X_NEW) for s in (3, 3, 4)]
        np.testing.assert_array_equal(fits[0], fits[1])
        assert not np.array_equal(fits[0], fits[2])
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002

    def test_predicting_before_fitting_names_the_missing_step(self):
        with pytest.raises(NotFittedError, match="call fit on the training split first"):
            as_predictor(Ridge(), 2).predict(X)

    def test_an_empty_training_split_is_refused_only_where_training_is_needed(self):
        with pytest.raises(ValueError, match="The training split is empty"):
            as_predictor(Ridge(), 2).fit(X[:0], Y[:0])
        as_predictor("precomputed", 2).fit(X[:0], Y[:0])


class TestGivenPredictors:
    def test_a_frozen_model_is_never_refitted(self):
        model = Ridge().fit(X, Y)
        predictor = as_predictor(FrozenEstimator(model), 2)
        assert not predictor.needs_training
        np.testing.assert_array_equal(predictor.fit(X, Y + 100).predict(X_NEW), model.predict(X_NEW))

    def test_a_callable_is_used_as_it_is(self):
        predictor = as_predictor(synthetic_mean, 2)
        assert not predictor.needs_training
        np.testing.assert_array_equal(predictor.fit(X, Y).predict(X_NEW), synthetic_mean(X_NEW))

    def test_precomputed_rows_are_the_centres(self):
        np.testing.assert_array_equal(as_predictor("precomputed", 2).predict(Y), Y)
        with pytest.raises(ValueError, match=r'X with predictor="precomputed" must have 2 column.* got 4'):
            as_predictor("precomputed", 2).predict(X)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda X: X[:, :3], "must have 2 column.*got 3"),
            (lambda X: X[:, 0], r"\(n_samples, n_outcomes\) = \(40, 2\), got \(40,\)"),
            (lambda X: X[:7, :2], r"\(n_samples, n_outcomes\) = \(40, 2\), got \(7, 2\)"),
            (lambda X: np.full((len(X), 2), np.nan), r"must be finite, got 80 NaN .* index \(0, 0\)"),
        ],
    )
    def test_a_malformed_prediction_is_refused_with_what_came(self, function, message):
        with pytest.raises(ValueError, match=f"The value of the predictor .*{message}"):
            as_predictor(function, 2).predict(X_NEW)

    @pytest.mark.parametrize("given", [Ridge(), FrozenEstimator(Ridge().fit(X, Y)), synthetic_mean, Recipe("linear")])
    def test_predictors_can_be_sent_to_other_processes(self, given):
        predictor = as_predictor(given, 2).fit(X, Y)
        sent = pickle.loads(pickle.dumps(predictor))
        np.testing.assert_array_equal(sent.predict(X_NEW), predictor.predict(X_NEW))

    @pytest.mark.parametrize("bad", ["precompute", 3, RandomForestRegressor, np.zeros(3)])
    def test_what_cannot_predict_is_refused(self, bad):
        with pytest.raises(ValueError, match="predictor must be a regressor, a callable"):
            as_predictor(bad, 2)

    @pytest.mark.parametrize(("other", "kind"), [(KMeans(2), "clusterer"), (IsolationForest(), "outlier detector")])
    def test_what_predicts_no_numbers_is_refused(self, other, kind):
        with pytest.raises(ValueError, match=f"got the {kind}.*Use a model of numbers"):
            as_predictor(other, 2)


class TestFrames:
    @pytest.fixture
    def frame(self):
        frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
        return frame.assign(site=np.where(X[:, 0] > 0, "north", "south"))

    @pytest.mark.parametrize("regressor", [LinearRegression(), SVR()], ids=["many", "one"])
    def test_columns_can_be_chosen_by_name(self, frame, regressor):
        columns = ColumnTransformer([("site", OneHotEncoder(), ["site"]), ("keep", "passthrough", ["b", "d"])])
        predictor = as_predictor(make_pipeline(columns, regressor), 2)
        centers = predictor.fit(frame, pd.DataFrame(Y)).predict(frame[::-1])
        assert type(centers) is np.ndarray
        assert centers.shape == (150, 2)

    def test_a_callable_receives_the_frame_and_may_return_one(self, frame):
        centers = as_predictor(lambda rows: rows[["b", "a"]], 2).predict(frame)
        assert type(centers) is np.ndarray
        np.testing.assert_array_equal(centers, X[:, [1, 0]])


class TestFeatureRidge:
    @pytest.mark.parametrize(("features", "phi"), [("paper", paper_features), ("all", all_features)])
    @pytest.mark.parametrize("penalty", [1e-3, 1.0, 100.0])
    def test_coefficients_solve_the_normal_equations(self, features, phi, penalty):
        model = FeatureRidge(penalty=penalty, features=features).fit(X, Y)
        Phi = phi(X)
        expected = np.linalg.solve(Phi.T @ Phi + penalty * np.eye(Phi.shape[1]), Phi.T @ Y)
        np.testing.assert_allclose(model.coef_.T, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(model.predict(X_NEW), phi(X_NEW) @ expected, rtol=1e-8, atol=1e-10)

    @pytest.mark.parametrize(("features", "phi"), [("paper", paper_features), ("all", all_features)])
    def test_a_free_constant_is_ridge_without_a_penalty_on_the_intercept(self, features, phi):
        model = FeatureRidge(penalty=5.0, features=features, fit_intercept=True).fit(X, Y)
        expected = Ridge(alpha=5.0).fit(phi(X)[:, 1:], Y)
        np.testing.assert_allclose(model.coef_, np.column_stack([expected.intercept_, expected.coef_]), atol=1e-10)

    def test_without_penalty_it_is_least_squares_also_for_collinear_columns(self):
        doubled = np.hstack([X, X])
        model = FeatureRidge(penalty=0.0).fit(doubled, Y)
        expected = np.linalg.lstsq(paper_features(X), Y, rcond=None)[0]
        np.testing.assert_allclose(model.predict(doubled), paper_features(X) @ expected, atol=1e-9)

    def test_a_flat_target_gives_flat_predictions(self):
        model = FeatureRidge().fit(X, Y[:, 0])
        np.testing.assert_allclose(model.predict(X_NEW), FeatureRidge().fit(X, Y).predict(X_NEW)[:, 0])

    @pytest.mark.parametrize("features", ["paper", "all"])
    @pytest.mark.parametrize("fit_intercept", [False, True])
    def test_it_keeps_the_contract_of_scikit_learn(self, features, fit_intercept):
        results = check_estimator(FeatureRidge(features=features, fit_intercept=fit_intercept), on_skip=None)
        assert {result["status"] for result in results} <= {"passed", "skipped"}

    @pytest.mark.parametrize(
        ("options", "columns", "message"),
        [
            ({"penalty": -1.0}, 4, "penalty must be a finite number of at least 0, got -1.0"),
            ({"features": "cubic"}, 4, r"features must be one of \['all', 'paper'\], got 'cubic'"),
            ({"features": "paper"}, 1, 'needs at least 2 columns, got 1 feature.s.. Use features="all"'),
        ],
    )
    def test_impossible_settings_are_refused_at_fit(self, options, columns, message):
        with pytest.raises(ValueError, match=message):
            FeatureRidge(**options).fit(X[:, :columns], Y)


RECIPES = {
    "smooth-ridge": make_pipeline(StandardScaler(), FeatureRidge(1.0, "all", fit_intercept=True)),
    "ridge": make_pipeline(StandardScaler(), RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))),
    "linear": LinearRegression(),
    "forest": RandomForestRegressor(min_samples_leaf=2, random_state=0),
    "boosting": MultiOutputRegressor(GradientBoostingRegressor(subsample=0.8, random_state=0)),
}


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("n_outcomes", [1, 2])
def test_a_recipe_predicts_as_the_models_of_scikit_learn_that_it_stands_for(name, n_outcomes):
    rows, outcomes, weights = X.copy(), Y[:, :n_outcomes], np.linspace(0.5, 2.0, len(X))
    rows[:, 3] = 7.0  # a column that never changes is not scaled
    recipe, model = as_predictor(Recipe(name, seed=0), n_outcomes), clone(RECIPES[name])
    own = outcomes[:, 0] if name == "forest" and n_outcomes == 1 else outcomes
    last = {f"{model.steps[-1][0]}__sample_weight": weights} if hasattr(model, "steps") else {"sample_weight": weights}
    expected = model.fit(rows, own, **last).predict(X_NEW).reshape(-1, n_outcomes)
    np.testing.assert_allclose(recipe.fit(rows, outcomes, weights).predict(X_NEW), expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="expecting 4 features"):
        recipe.predict(X_NEW[:, :3])
