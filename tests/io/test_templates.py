"""What a stored predictor would train anew: nothing fitted that nobody has checked, nothing larger than is sensible."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LassoCV, LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import polyhedge as ph
from polyhedge.io.make import to_record
from polyhedge.io.predictor import PLAIN, predictor_from_members
from polyhedge.io.records import pack_record
from polyhedge.io.roles import check_predictor

X, Y = ph.data.make_synthetic(60, rng=np.random.default_rng(0))
TREE = DecisionTreeRegressor(max_depth=2)
SEARCHED = MultiOutputRegressor(GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2)).fit(X, Y)


def several(part):
    """A predictor of both outcomes whose one parameter is `part`; the parts that predict are sound."""
    model = MultiOutputRegressor(LinearRegression()).fit(X, Y)
    model.estimator = part
    return model


def boosting(**parameters):
    return several(GradientBoostingRegressor(n_estimators=2, **parameters))


def searched(**parameters):
    model = clone(SEARCHED)
    model.estimators_ = list(SEARCHED.estimators_)
    model.n_features_in_ = 4
    model.estimator = GridSearchCV(Ridge(), **parameters)
    return model


def columns(part):
    model = make_pipeline(ColumnTransformer([("a", StandardScaler(), [0])], remainder="passthrough"), Ridge())
    model.fit(X, Y)
    model[0].transformers = [("a", part, [0])]
    return model


def with_remainder(part):
    model = columns(StandardScaler())
    model[0]._remainder = ("remainder", part, [1, 2, 3])
    return model


# Every place of a parameter, or of an attribute that is no more used once a predictor is fitted.
PLACES = {
    "several outputs": several,
    "a search": lambda part: searched_in("estimator", part),
    "a grid of a search": lambda part: searched(param_grid={"estimator": [part]}),
    "what a search found": lambda part: searched_in("best_params_", {"alpha": part}),
    "a chain": lambda part: several(RegressorChain(part)),
    "outcomes that are transformed": lambda part: several(TransformedTargetRegressor(part)),
    "a transformer of outcomes": lambda part: several(TransformedTargetRegressor(Ridge(), transformer=part)),
    "the start of boosting": lambda part: boosting(init=part),
    "a pipeline": lambda part: several(make_pipeline(StandardScaler(), part)),
    "columns": columns,
    "the remainder of columns": with_remainder,
}


def searched_in(name, part):
    model = searched(param_grid={"alpha": [1.0]})
    model.estimators_ = [clone(each).fit(X, Y[:, 0]) for each in SEARCHED.estimators_]
    setattr(model.estimators_[0], name, part)
    return model


def loaded(model):
    values, members = pack_record(to_record(model))
    members[PLAIN] = json.dumps(values).encode()
    return predictor_from_members("trained", members, 2)[1].model


@pytest.mark.parametrize("place", PLACES)
def test_a_frozen_model_where_a_fit_would_clone_it_needs_trust(place):
    with pytest.raises(ph.ModelFileError, match="needs trusted="):
        loaded(PLACES[place](FrozenEstimator(clone(TREE).fit(X, Y[:, 0]))))


@pytest.mark.parametrize("place", [name for name in PLACES if name != "the start of boosting"])
def test_what_a_fit_would_clone_is_read_as_its_clone_would_be(place):
    fitted = DecisionTreeRegressor(max_depth=2).fit(X, Y[:, 0])
    trees = [
        part for part in everything(loaded(PLACES[place](fitted))) if type(part).__name__ == "DecisionTreeRegressor"
    ]
    assert trees
    assert all(vars(tree).keys() == vars(TREE).keys() for tree in trees)


def everything(item):
    yield item
    inner = item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else ()
    for value in vars(item).values() if hasattr(item, "get_params") else inner:
        yield from everything(value)


def test_a_fitted_part_that_nothing_predicts_with_is_refused():
    model = loaded(several(Ridge()))
    model.estimator = Ridge().fit(X, Y)
    with pytest.raises(ValueError, match="Ridge with n_features_in_, coef_, intercept_, which nothing predicts with"):
        check_predictor(model, 2)


TOO_MUCH = {
    "a wide network": lambda: several(MLPRegressor(hidden_layer_sizes=(20_000, 20_000))),
    "one wide layer": lambda: several(MLPRegressor(hidden_layer_sizes=10**9)),
    "many trees": lambda: several(RandomForestRegressor(10**7)),
    "many trees in a predicting part": lambda: RandomForestRegressor(2).fit(X, Y).set_params(n_estimators=10**7),
    "many stages": lambda: several(HistGradientBoostingRegressor(max_iter=10**6)),
    "products of many": lambda: several(make_pipeline(PolynomialFeatures((1, 60)), Ridge())),
    "many steps": lambda: several(MLPRegressor(max_iter=10**9)),
    "many folds": lambda: several(LassoCV(cv=10**6)),
    "a grid of many candidates": lambda: searched(param_grid={str(k): list(range(100)) for k in range(5)}),
    "many trees in a grid": lambda: searched(param_grid={"a__n_estimators": [10, 10**8]}),
    "many draws": lambda: several(RandomizedSearchCV(Ridge(), {"alpha": [1.0]}, n_iter=10**8)),
    "a folder that a search would choose": lambda: searched(param_grid={"memory": ["/tmp/pickles"]}),
    "a start that a search would choose": lambda: searched(param_grid={"init": [Ridge()]}),
    "boosting that starts from a model": lambda: boosting(init=RegressorChain(Ridge())),
    "a function with settings": lambda: several(
        make_pipeline(FunctionTransformer(np.tanh, kw_args={"out": np.zeros(1)}), Ridge())
    ),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_parameters_that_would_make_a_later_fit_endless_need_trust(name):
    with pytest.raises(ph.ModelFileError, match=r"needs trusted=|without trusted="):
        loaded(TOO_MUCH[name]())


def test_honest_parameters_pass():
    loaded(SEARCHED)
    loaded(boosting(init=DummyRegressor()))
    loaded(several(LassoCV(cv=[(np.arange(9), np.arange(9))])))
    loaded(several(RandomizedSearchCV(Ridge(), {"alpha": list(range(10**4))}, n_iter=5)))
    loaded(searched(param_grid=[{"alpha": [0.1, 1.0]}, {"fit_intercept": (True, False)}]))
    loaded(
        several(Pipeline([("wide", PolynomialFeatures((1, 3))), ("net", MLPRegressor(hidden_layer_sizes=(100, 50)))]))
    )


@pytest.mark.filterwarnings("ignore:The predictor Pipeline is fitted already")
def test_a_frozen_model_that_predicts_is_checked_as_any_other_and_stays_through_a_refresh(tmp_path):
    frozen = FrozenEstimator(LinearRegression().fit(X[:30], Y[:30]))
    decider = ph.RobustDecider(
        ph.problems.simplex_linear([-0.08, 0.0]),
        make_pipeline(PolynomialFeatures(1, include_bias=False), frozen),
        alpha=0.3,
        learner=ph.learners.OneSidedBox(),
        random_state=0,
    ).fit(X, Y)
    decider.save(tmp_path / "model")
    twin = ph.load(tmp_path / "model").refresh(X + 1, Y)
    assert np.array_equal(twin.predictor_.predict(X), frozen.predict(X))
