"""Sets scaled by a predicted spread: what the forest sees, when it is taken, and that the guarantee stays."""

from __future__ import annotations

from dataclasses import fields, replace

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestRegressor

import polyhedge as ph
from polyhedge.learners import Auto, Samples, Spread, choose_spread
from polyhedge.predictors.trees import Forest
from polyhedge.robust import decide
from polyhedge.solvers.program import Status
from shared import ScaledBox, first_two

LINEAR = ph.problems.simplex_linear([-0.08, 0.0])
SHORT = Auto(n_folds=2, training_folds=2)
"""The default learner with a short selection, where the selection itself is looked at."""
PROBLEMS = {
    "linear": LINEAR,
    "quadratic": ph.problems.simplex_quadratic([-0.08, 0.0], 0.08),
    "newsvendor": ph.problems.simplex_newsvendor(0.3, 0.7, 2),
}


def uneven(n, seed=0):
    """Outcomes that are four times as uncertain where the last feature is above one half."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    noise = np.where(X[:, 2:] > 0.5, 0.8, 0.2) * rng.normal(size=(n, 2))
    return X, X[:, :2] + noise


def fitted(n=800, learner=ScaledBox(), problem=LINEAR, frame=False, seed=0):  # noqa: B008
    X, Y = uneven(n, seed)
    X = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind="x") if frame else X
    predictor = (lambda X: np.asarray(X)[:, :2].astype(float)) if frame else first_two
    return ph.RobustDecider(problem, predictor, learner=learner, guarantee="outcome", random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def decider():
    return fitted(learner=SHORT)


# --- the forest -------------------------------------------------------------------------------------------


def test_levels_are_few_and_larger_where_residuals_are(decider):
    X, _ = uneven(5000, seed=1)
    scales = decider.scales(X)
    octaves = 4 * np.log2(scales)
    np.testing.assert_allclose(octaves, octaves.round(), atol=1e-9)
    assert len(np.unique(scales)) <= 25
    hard = X[:, 2] > 0.5
    ratio = np.exp(np.log(scales[hard]).mean() - np.log(scales[~hard]).mean())
    assert 2.5 < ratio ** (1 / decider.spread_.power) < 5.5


def test_the_forest_predicts_what_scikit_learn_predicts_up_to_the_steps_of_its_grid():
    X, Y = uneven(400)
    X = X.astype(np.float32).astype(np.float64)  # scikit-learn rounds features before it compares
    centers, sizes = X[:, :2], np.abs(Y - X[:, :2]).mean(axis=1)
    spread = Spread.fit(X, centers, sizes, min_leaf=5, seed=3)
    forest = RandomForestRegressor(spread.n_trees, min_samples_leaf=5, max_depth=16, random_state=3)
    matrix = np.hstack([X, centers])
    expected = forest.fit(matrix, sizes / sizes.mean()).predict(matrix)
    np.testing.assert_allclose(spread.sizes(X, centers), expected, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1e3])
def test_trees_are_the_same_in_all_units_although_many_splits_part_the_rows_alike(unit):
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    # Columns order the rows alike or the other way round: only the order of sums can tell their splits apart.
    X, centers, targets = np.column_stack([x, -x, -(x**3)]), x[:, None], np.abs(rng.normal(size=(80, 2))) / 3
    usual, unseen = Forest.fit(X, centers, targets, min_leaf=2, seed=0)
    other, its_unseen = Forest.fit(X, unit * centers, unit * targets, min_leaf=2, seed=0)
    for name in ("feature", "child"):
        np.testing.assert_array_equal(getattr(other, name), getattr(usual, name))
    np.testing.assert_allclose(other.value / unit, usual.value, rtol=1e-12)
    np.testing.assert_allclose(its_unseen / unit, unseen, rtol=1e-12)


def test_columns_of_a_frame_are_found_by_name_and_text_is_left_out():
    X, Y = uneven(400)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.insert(1, "kind", "x")
    frame["whole"] = pd.array(np.arange(400), dtype="Int64")
    centers, sizes = X[:, :2], np.abs(Y - X[:, :2]).mean(axis=1)
    spread = Spread.fit(frame, centers, sizes, min_leaf=20, seed=0)
    assert spread.names == ("a", "b", "c", "whole")
    levels = spread(frame, centers)
    np.testing.assert_array_equal(spread(frame[["c", "whole", "b", "kind", "a"]], centers), levels)
    np.testing.assert_array_equal(spread(frame.to_numpy(), centers), levels)
    with pytest.raises(ValueError, match="X has no column c, from which the spread is predicted"):
        spread(frame.drop(columns="c"), centers)
    unnamed = frame.set_axis(range(5), axis=1)
    np.testing.assert_array_equal(Spread.fit(unnamed, centers, sizes, min_leaf=20, seed=0)(unnamed, centers), levels)


def test_missing_values_count_as_the_median_and_huge_ones_do_no_harm():
    X, Y = uneven(401)
    centers, sizes = X[:, :2], np.abs(Y - X[:, :2]).mean(axis=1)
    X[::7, 0], X[5, 1] = np.nan, 1e300
    spread = Spread.fit(X, centers, sizes, min_leaf=20, seed=0)
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    np.testing.assert_array_equal(spread(X, centers), spread(filled, centers))


def test_boolean_columns_count_and_spans_of_time_do_not():
    X, Y = uneven(300)
    frame = pd.DataFrame({"hard": X[:, 2] > 0.5, "took": pd.to_timedelta(X[:, 0], unit="s"), "x": X[:, 0]})
    frame["maybe"] = pd.array(X[:, 1] > 0.5, dtype="boolean")
    frame.loc[3, "maybe"] = pd.NA
    spread = Spread.fit(frame, X[:, :2], np.abs(Y - X[:, :2]).mean(axis=1), min_leaf=20, seed=0)
    assert spread.names == ("hard", "x", "maybe")
    levels = spread(frame, X[:, :2])
    assert levels[frame["hard"]].min() > 1.5 * levels[~frame["hard"]].max()
    row = frame.iloc[[0]].astype(object)
    assert spread(row, X[:1, :2])[0] == levels[0]


def test_sparse_rows_are_taken_where_dense_ones_were_learned_from(decider):
    X, _ = uneven(20, seed=1)
    for kind in (sp.csr_array, sp.csc_matrix):
        np.testing.assert_array_equal(decider.spread_(kind(X), X[:, :2]), decider.scales(X))


@pytest.mark.parametrize("rows", [["a", "b"], ["c"], []])
def test_without_numbers_the_prediction_alone_is_looked_at(rows):
    X, Y = uneven(300)
    texts = [[f"{name}{i}" for name in rows] for i in range(300)]
    spread = Spread.fit(texts, X[:, :2], np.abs(Y).mean(axis=1), min_leaf=20, seed=0)
    assert len(spread.columns) == 0
    assert spread(texts, X[:, :2]).shape == (300,)


# --- decisions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_decisions_at_many_scales_are_those_of_each_scaled_set(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    shape = ph.Polyhedron([[1.0, 0.2], [0.1, 1.0], [-1.0, 0.0], [0.0, -1.0]], [0.1, -0.2, -0.3, 0.0])
    centers, scales = rng.normal(size=(60, 2)), rng.choice([0.25, 0.5, 1.0, 2.0], 60)
    told = []
    found = decide(problem, shape, 0.4, centers, scales=scales, progress=lambda done, n: told.append((done, n)))
    for i, scale in enumerate(scales):
        alone = decide(problem, shape.scaled(scale), 0.4, centers[i : i + 1])
        assert found.cost_bound[i] == pytest.approx(alone.cost_bound[0], abs=1e-9)
        worst = problem.evaluate(found.z.reshape(60, -1)[i : i + 1], found.worst_outcome[i : i + 1])[0]
        assert worst == pytest.approx(found.cost_bound[i], abs=1e-7)
        assert shape.scaled(scale).contains(found.worst_outcome[i] - centers[i : i + 1], 0.4 + 1e-7).all()
    assert told == sorted(told)
    assert told[-1] == (60, 60)
    threaded = decide(problem, shape, 0.4, centers, scales=scales, n_jobs=2)
    np.testing.assert_array_equal(threaded.cost_bound, found.cost_bound)


@pytest.mark.parametrize(
    ("scales", "message"),
    [(np.ones(2), "an entry for each of the 3 centers"), (np.array([1.0, -1.0, 1.0]), "factor must be positive")],
)
def test_wrong_scales_are_refused(scales, message):
    with pytest.raises(ValueError, match=message):
        decide(LINEAR, ph.Box([1.0, 1.0]).as_polyhedron(), 1.0, np.zeros((3, 2)), scales=scales)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_bound_is_the_worst_cost_in_the_region(name):
    decider = fitted(400, problem=PROBLEMS[name])
    assert decider.spread_ is not None
    X, _ = uneven(8, seed=5)
    found = decider.decide(X)
    for i, x in enumerate(X):
        corners = decider.region(x).vertices()
        costs = PROBLEMS[name].evaluate(np.repeat(found.z[i : i + 1], len(corners), axis=0), corners)
        assert costs.max() == pytest.approx(found.cost_bound[i], abs=1e-7)


def test_membership_volume_and_evaluation_agree_row_by_row(decider):
    X, Y = uneven(30, seed=6)
    regions = [decider.region(x) for x in X]
    inside = decider.set_.contains(decider.residuals(X, Y), decider.radius_)
    np.testing.assert_array_equal([r.contains(y[None])[0] for r, y in zip(regions, Y, strict=True)], inside)
    assert decider.evaluate(X, Y).coverage.value == inside.mean()
    assert float(decider.evaluate(X, Y, volume=True).volume) == pytest.approx(
        np.mean([float(r.volume()) for r in regions])
    )


# --- when it is taken -------------------------------------------------------------------------------------


def test_it_lowers_the_premium_where_contexts_differ_and_says_so(decider):
    plain = fitted(learner=replace(SHORT, spread=False))
    assert plain.spread_ is None
    assert decider.spread_ is not None
    assert "scaled by a predicted spread: cross-validated extra cost" in decider.learn_result_.detail
    X, Y = uneven(2000, seed=9)
    assert decider.evaluate(X, Y).premium.value < 0.85 * plain.evaluate(X, Y).premium.value


def test_it_is_not_taken_where_residuals_spread_alike():
    X, Y = ph.data.make_synthetic(1000, rng=np.random.default_rng(0))
    decider = ph.RobustDecider(LINEAR, learner=SHORT, random_state=0).fit(X, Y)
    assert decider.spread_ is None
    np.testing.assert_array_equal(decider.scales(X), 1.0)
    assert "spread" not in decider.learn_result_.detail


def test_a_certified_learner_scales_as_its_learner_does():
    plain, certified = (fitted(400, learner) for learner in (ScaledBox(), ph.learners.Certified(ScaledBox())))
    np.testing.assert_array_equal(certified.spread_.value, plain.spread_.value)
    assert "at one size" in certified.learn_result_.detail
    assert np.isfinite(certified.learn_result_.lower_bound)
    assert not ph.learners.Certified(Auto(spread=False)).needs.may_scale
    assert ph.learners.Certified(ph.learners.OneSidedBox()).needs.complexity_penalty == 0.0


def test_calibration_rows_change_the_radius_only():
    X, Y = uneven(400)
    make = lambda: ph.RobustDecider(LINEAR, first_two, learner=ScaledBox(), random_state=0)  # noqa: E731
    decider = make().fit(X, Y)
    calibrate = decider.split_.calibrate
    other = Y.copy()
    other[calibrate] += 5.0
    moved = X.copy()
    moved[calibrate, 2] = 0.7
    twin = make().fit(moved, other)
    for name, value in vars(decider.spread_).items():
        np.testing.assert_array_equal(getattr(twin.spread_, name), value)
    np.testing.assert_array_equal(twin.set_.b, decider.set_.b)
    assert twin.radius_ > decider.radius_ + 1


def sample(n=300, seed=0):
    X, Y = uneven(n, seed)
    objective = Samples(Y - X[:, :2], X[:, :2], LINEAR, 0.1)
    return X, objective, ScaledBox().learn(objective)


def test_the_scaled_learning_set_has_radius_zero_and_the_reported_objective():
    X, objective, result = sample()
    scaled, spread = choose_spread(result, objective, X, complexity_penalty=0.7, seed=0)
    assert spread is not None
    assert scaled.objective < result.objective
    scores = scaled.set.scores(objective.residuals / spread(X, objective.centers)[:, None])
    assert np.sum(scores <= 1e-12) == objective.rank
    costs = decide(LINEAR, scaled.set, 0.0, objective.centers, scales=spread(X, objective.centers)).cost_bound
    assert scaled.objective == pytest.approx(costs.mean(), abs=1e-9)


def test_outcomes_that_are_predicted_exactly_need_no_spread():
    X, Y = uneven(400)
    decider = ph.RobustDecider(LINEAR, "precomputed", learner=ScaledBox(), random_state=0).fit(Y, Y)
    assert decider.spread_ is None
    assert (Spread.fit(X, Y, np.zeros(400), min_leaf=5, seed=0)(X, Y) > 0).all()


@pytest.mark.parametrize(("share", "is_taken"), [(0.8, True), (1.3, False)])
def test_two_complexity_penalties_must_be_saved(share, is_taken):
    """A complexity penalty for which two of them are this share of what a spread saves."""
    X, objective, result = sample()
    detail = choose_spread(result, objective, X, complexity_penalty=0.0, seed=0)[0].detail
    scaled, plain = (float(detail.partition(f"{what} ")[2].partition(",")[0]) for what in ("extra cost", "at one size"))
    complexity_penalty = share * (1 - scaled / plain) * np.sqrt(objective.n) / 2
    assert (
        choose_spread(result, objective, X, complexity_penalty=complexity_penalty, seed=0)[1] is not None
    ) == is_taken


def test_near_copies_stay_in_one_fold():
    X, Y = (np.repeat(part, 10, axis=0) for part in uneven(60))
    X[:, 2] = np.repeat(np.random.default_rng(1).uniform(size=60), 10)  # says nothing about the spread
    objective = Samples(Y - X[:, :2], X[:, :2], LINEAR, 0.1)
    result = ScaledBox().learn(objective)
    groups = np.repeat(np.arange(60), 10)
    # Copies in another fold would give the answer away.
    assert choose_spread(result, objective, X, complexity_penalty=0.7, seed=0)[1] is not None
    assert choose_spread(result, objective, X, complexity_penalty=0.7, seed=0, groups=groups)[1] is None


def test_costs_without_pieces_and_stopped_learners_keep_one_size():
    X, objective, result = sample(150)
    z = cp.Variable(2, nonneg=True)
    square = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.square(u @ z - 1), constraints=[cp.sum(z) == 1], n_outcomes=2
    )
    assert choose_spread(result, replace(objective, problem=square), X, complexity_penalty=0.0, seed=0)[1] is None
    stopped = replace(result, status=Status.STOPPED_EARLY)
    assert choose_spread(stopped, objective, X, complexity_penalty=0.0, seed=0) == (stopped, None)


# --- the guarantee ----------------------------------------------------------------------------------------


# --- files, tables, words ---------------------------------------------------------------------------------


BROKEN = {
    "a child that is not there": {"child": 10**6},
    "a negative child": {"child": -1},
    "a child that is a root": {"child": 0},
    "an unknown feature": {"feature": 99},
    "a root that is not there": {"n_trees": 10**6},
    "no size": {"value": 0.0},
    "no power": {"power": 0.0},
    "names that do not fit": {"names": ("a",)},
    "a column before the first": {"columns": -1},
}


def state_of(spread):
    return {each.name: getattr(spread, each.name) for each in fields(spread)}


@pytest.mark.parametrize("name", BROKEN)
def test_a_spread_that_leads_nowhere_is_refused(decider, name):
    (field, value), state = next(iter(BROKEN[name].items())), state_of(decider.spread_)
    if isinstance(state[field], np.ndarray):
        state[field] = state[field].copy()
        state[field][-1] = value
    else:
        state[field] = value
    with pytest.raises(ValueError, match=r"(?i)(spread|trees|forest) must"):
        Spread(**state)


def test_a_chain_that_a_row_walks_for_minutes_is_refused(decider):
    n = 10_001
    child = np.where(np.arange(n) % 2, np.arange(n), np.arange(n) + 1)
    child[-1] = n - 1
    nodes = {"n_trees": 1, "feature": np.zeros(n, dtype=int), "threshold": np.zeros(n), "child": child}
    with pytest.raises(ValueError, match="at most 4096 nodes deep"):
        Spread(**{**state_of(decider.spread_), **nodes, "value": np.ones((n, 1))})


def test_positions_must_be_integers(decider):
    for name in ("columns", "feature", "child"):
        with pytest.raises(ValueError, match=r"positions|numbers"):
            Spread(**{**state_of(decider.spread_), name: getattr(decider.spread_, name) + 0.5})
