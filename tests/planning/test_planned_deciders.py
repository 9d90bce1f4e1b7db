"""Deciders that guard the cost of a planned decision: promise, conditions of its proof, files and errors."""

from __future__ import annotations

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import polyhedge as ph
from polyhedge.app.report import facets as words, model_report
from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.evaluation import measure_rows
from polyhedge.fitting import guarantee_in_force
from polyhedge.planning import PolicyReport, ScenarioPolicy
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.report import Entry
from polyhedge.planning.residual_distributions import DevelopmentRows, fit_distribution
from polyhedge.planning.risk import Risk
from polyhedge.predictors.regressor import as_predictor
from polyhedge.regions import CostGuard, GuardRegions, PlannedDecisions
from shared import codes, save_trusting


def linear() -> ph.DecisionProblem:
    return ph.problems.simplex_linear([-0.08, 0.0])


@pytest.fixture(scope="module")
def fitted():
    X, Y = ph.data.make_synthetic(240, rng=np.random.default_rng(0))
    decider = ph.RobustDecider(linear(), DecisionTreeRegressor(max_depth=3), guarantee="cost", random_state=0)
    return decider.fit(X, Y), X, Y


def test_bound_is_the_planned_cost_plus_one_radius(fitted):
    decider, X, Y = fitted
    guard, rows = decider.model_.family, decider.split_.calibrate
    scores = guard.at(X[rows]).scores(Y[rows])
    found, planned = decider.decide(X[:7]), guard.at(X[:7]).planned
    assert decider.radius_ == pytest.approx(conformal_radius(scores, 0.1), abs=1e-8)
    assert found.cost_bound == pytest.approx(planned.v + decider.radius_, rel=1e-9)
    assert (found.expected_cost <= found.cost_bound).all()
    assert found.to_frame()["expected_cost"].tolist() == found.expected_cost.tolist()


def test_evaluation_tells_the_expected_beside_the_realised_cost(fitted):
    decider, X, Y = fitted
    found, by = decider.decide(X), np.where(np.arange(len(X)) < 40, "early", "late")
    told = decider.evaluate(X, Y, by=by)
    assert told.expected_cost == pytest.approx(found.expected_cost.mean())
    assert told.to_frame().loc["expected_cost", "value"] == told.expected_cost
    assert f"expected {told.expected_cost:.4g}, realised {told.realised_cost:.4g}" in repr(told)
    assert f"expected cost    {told.expected_cost}\nrealised cost" in str(told)
    assert told._repr_html_().count("expected_cost") == 2
    early = told.groups[0]
    assert early.expected_cost == pytest.approx(found.expected_cost[:40].mean())
    assert f"(expected {early.expected_cost:.4g})" in str(early)
    page = model_report(decider, X, Y)
    assert f"expected cost    {told.expected_cost}" in page


def test_expected_cost_is_of_rows_with_a_decision_and_unknown_where_nothing_is_expected(fitted):
    decider, X, Y = fitted
    found, centers = decider.decide(X[:3]), Y[:3]
    flat = found.flat.copy()
    flat[0] = np.nan
    inside = np.ones(3, dtype=bool)
    lacking = replace(found, flat=flat)
    rows = measure_rows(decider.problem_, lacking, inside, centers, Y[:3])
    assert np.isnan(rows.expected).tolist() == np.isnan(rows.realised).tolist() == [True, False, False]
    assert rows.summary(0.1).expected_cost == pytest.approx(found.expected_cost[1:].mean())
    assert rows.summary(0.1, np.arange(3) == 0).expected_cost is None
    robust = replace(found, expected_cost=None)
    told = measure_rows(decider.problem_, robust, inside, centers, Y[:3]).summary(0.1)
    assert told.expected_cost is None
    assert "expected" not in f"{told}{told!r}{told._repr_html_()}"


def test_more_calibration_rows_change_the_bound_and_not_the_decision(fitted):
    decider, X, Y = fitted
    fresh = ph.RobustDecider(linear(), DecisionTreeRegressor(max_depth=3), guarantee="cost", random_state=0)
    fresh.model_ = decider.model_
    before = fresh.decide(X[:5])
    after = fresh.recalibrate(X[:100], Y[:100] + 1.0).decide(X[:5])
    assert (after.flat == before.flat).all()
    assert (after.cost_bound > before.cost_bound).all()


def test_model_file_keeps_the_policy_to_the_last_bit(fitted, tmp_path):
    decider, X, _ = fitted
    trusted = save_trusting(decider, tmp_path / "plan.polyhedge")
    loaded, before = ph.load(tmp_path / "plan.polyhedge", trusted=trusted), decider.decide(X)
    after = loaded.decide(X)
    assert (after.flat == before.flat).all()
    assert (after.cost_bound == before.cost_bound).all()
    assert loaded.policy_ == decider.policy_
    assert "the cost of the policy's decision is bounded" in str(ph.inspect_model(tmp_path / "plan.polyhedge"))


def with_parameter() -> ph.DecisionProblem:
    z, price = cp.Variable(2, nonneg=True), cp.Parameter(2, name="price")
    return ph.DecisionProblem(decision=z, cost=lambda z, u: (u + price) @ z, constraints=[cp.sum(z) == 1], n_outcomes=2)


def with_constant() -> ph.DecisionProblem:
    z, price = cp.Variable(2, nonneg=True), cp.Parameter(2, name="price", value=[0.1, 0.2])
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: (u + price) @ z, constraints=[cp.sum(z) == 1], n_outcomes=2, constants=[price]
    )


def without_pieces_under_uncertain_constraints() -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum_squares(z - u), n_outcomes=2, uncertain_constraints=lambda z, u: [z >= u]
    )


def with_uncertain_constraints() -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum(z), n_outcomes=2, uncertain_constraints=lambda z, u: [z >= u]
    )


def even(X):
    return np.full((len(X), 2), 0.5)


BOX = ph.learners.OneSidedBox()


@pytest.mark.parametrize(
    ("problem", "settings", "promised"),
    [
        (linear, {}, "cost"),
        (with_constant, {}, "cost"),
        (linear, {"policy": even}, "cost"),
        (linear, {"learner": BOX}, "outcome"),
        (linear, {"learner": BOX, "guarantee": "cost"}, "cost"),
        (with_parameter, {}, "outcome"),
        (with_parameter, {"guarantee": "cost"}, "cost"),
        (with_uncertain_constraints, {}, "cost"),
        (with_uncertain_constraints, {"learner": BOX}, "outcome"),
        (without_pieces_under_uncertain_constraints, {}, "outcome"),
        (with_uncertain_constraints, {"learner": BOX, "guarantee": "cost"}, "cost"),
        (linear, {"guarantee": "outcome"}, "outcome"),
    ],
)
def test_default_is_the_decision_taken_unless_a_set_is_asked_for(problem, settings, promised):
    assert (
        guarantee_in_force(settings.get("guarantee"), problem(), settings.get("learner"), settings.get("policy"))
        == promised
    )


@pytest.mark.parametrize(
    ("problem", "why", "needs"),
    [
        (with_parameter, "needs nothing of the values of price", "price to be exchangeable together with features"),
        (without_pieces_under_uncertain_constraints, "no sum of maxima", "a learner or a policy of your own"),
    ],
)
def test_another_promise_than_the_usual_one_is_told_with_its_reason_and_what_the_usual_one_needs(problem, why, needs):
    X = np.random.default_rng(0).normal(size=(60, 2))
    values = {"price": [0.1, 0.2]} if problem is with_parameter else None

    def fit(**settings):
        return ph.RobustDecider(problem(), "precomputed", alpha=0.3, **settings).fit(X, X**2, parameters=values)

    with pytest.warns(ph.CodedWarning) as caught:
        decider = fit()
    said = [str(one.message) for one in caught if one.message.code == "Guarantee"]
    assert len(said) == 1
    for told in (said[0], str(decider), model_report(decider).replace("&quot;", '"')):
        assert '"outcome", the default for' in told
        assert why in told
        assert 'guarantee="cost"' in told
        assert needs in told
    assert caught[0].filename == __file__
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        named = fit(guarantee="outcome")
    assert "Guarantee" not in codes(caught)
    assert named.guarantee_.startswith('"outcome", as asked')


def test_a_usual_promise_is_told_as_well(fitted):
    assert "guarantee  " in str(fitted[0])
    assert fitted[0].guarantee_.startswith('"cost", as asked. guarantee="outcome" has higher bounds')


@pytest.mark.parametrize("name", ["set_", "spread_"])
def test_what_only_a_set_has_names_the_guarantee_that_has_it(fitted, name):
    assert not hasattr(fitted[0], name)
    with pytest.raises(AttributeError, match='guarantee="outcome"'):
        getattr(fitted[0], name)


@pytest.mark.parametrize(
    "ask",
    [
        lambda decider, X, Y: decider.evaluate(X, Y, volume=True),
        lambda decider, X, Y: decider.scales(X),
        lambda decider, X, Y: decider.residuals(X, Y),
        lambda decider, X, Y: ph.plots.residual_set(decider, X, Y),
        lambda decider, X, Y: ph.plots.residual_pairs(decider, X, Y),
        lambda decider, X, Y: ph.plots.cost_directions(decider, X),
        lambda decider, X, Y: words.facets_in_words(decider, X),
    ],
)
def test_what_has_no_meaning_for_one_decision_names_the_guarantee_that_gives_it(fitted, ask):
    decider, X, Y = fitted
    with pytest.raises((ValueError, AttributeError), match='guarantee="outcome"'):
        ask(decider, X[:20], Y[:20])


def test_region_of_a_guard_holds_the_outcomes_that_cost_at_most_the_bound(fitted):
    decider, X, Y = fitted
    found, region = decider.decide(X[:1]), decider.region(X[0])
    costs = decider.problem_.evaluate(np.tile(found.flat[0], (len(Y), 1)), Y)
    assert (region.contains(Y) == (costs <= found.cost_bound[0])).all()


def test_region_of_a_guard_has_facets_and_support_and_says_that_it_is_open(fitted):
    decider, X, _ = fitted
    region, found = decider.region(X[0]), decider.decide(X[:1])
    assert not region.is_bounded
    (own,) = region.W  # a linear cost has one piece: its slope is the decision
    np.testing.assert_allclose(own, found.flat[0])
    # The dearest outcome of the region costs the bound; the problem's own term is -0.08 for a whole first action.
    np.testing.assert_allclose(region.support(own) - 0.08 * own[0], found.cost_bound[0])
    assert region.support(-own) == np.inf


def test_evidence_of_a_learner_is_missed_with_words_that_say_what_to_do(fitted):
    with pytest.raises(AttributeError, match=r"There is no learn_result_\. No set was learned.*guarantee=\"outcome\""):
        _ = fitted[0].learn_result_
    assert not hasattr(fitted[0], "learn_result_")
    with pytest.raises(AttributeError, match=r"has no radius yet. Call fit\(X, Y\) first"):
        _ = ph.RobustDecider(linear()).learn_result_


def test_what_if_of_the_decision_itself_is_its_bound_at_an_outcome_that_costs_it(fitted):
    decider, X, _ = fitted
    found = decider.decide(X[:5])
    again = decider.bound(X[:5], found)
    np.testing.assert_allclose(again.cost_bound, found.cost_bound, rtol=1e-6)
    np.testing.assert_allclose(decider.problem_.evaluate(found.flat, again.worst_outcome), found.cost_bound, rtol=1e-6)
    assert np.isnan(found.worst_outcome).all()  # what decides a policy is no set


def by_formula() -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z) + 4 * cp.sqrt(u[0] + 1) - 0.1 * u @ z,
        constraints=[cp.sum(z) == 1],
        n_outcomes=2,
        outcome_support=lambda u: [u >= -1],
    )


def test_region_of_a_cost_without_pieces_contains_what_costs_at_most_the_bound():
    problem, z, Y = by_formula(), np.array([[0.3, 0.7]]), np.random.default_rng(0).uniform(-1.5, 3, size=(40, 2))
    planned = PlannedDecisions(z, np.array([6.0]), np.array([ph.Status.FINISHED], dtype=object))
    region = GuardRegions(problem, np.zeros((1, 2)), np.zeros((1, 0)), planned).region(0, 0.5)
    can_come = (Y >= -1).all(axis=1)
    costs = problem.evaluate(np.tile(z, (can_come.sum(), 1)), Y[can_come])
    assert 0 < (costs <= 6.5).sum() < len(costs)
    assert (region.contains(Y)[can_come] == (costs <= 6.5)).all()
    assert not region.contains(Y)[~can_come].any()
    for ask in (lambda: region.support([1.0, 0.0]), lambda: region.is_bounded, lambda: region.is_empty):
        with pytest.raises(ValueError, match=r"known by its formula alone.*outcome_support.*guarantee=\"outcome\""):
            ask()
    assert repr(region) == "<Region: outcomes at which a decision costs at most 6.5, perhaps unbounded>"


def level(cost, bound=1.5, **more):
    """The region of a decision (0.3, 0.7) under a cost that is known by its formula alone."""
    problem = ph.DecisionProblem(decision=cp.Variable(2), cost=cost, constraints=[], n_outcomes=2, **more)
    planned = PlannedDecisions(np.array([[0.3, 0.7]]), np.array([bound]), np.array([ph.Status.FINISHED], dtype=object))
    return GuardRegions(problem, np.ones((1, 2)), np.zeros((1, 0)), planned).region(0, 0.0)


def test_region_of_a_convex_cost_without_pieces_says_whether_it_ends():
    disc = level(lambda z, u: cp.sum_squares(z - u))
    assert disc.is_bounded
    np.testing.assert_allclose(disc.support([0.6, 0.8]), 0.6 * 0.3 + 0.8 * 0.7 + np.sqrt(1.5), rtol=1e-6)
    assert repr(disc) == "<Region: outcomes at which a decision costs at most 1.5, bounded>"
    band = level(lambda z, u: cp.square(z[0] - u[0]) + 0 * z[1])
    assert not band.is_bounded
    assert band.support([0.0, 1.0]) == np.inf
    assert "unbounded>" in repr(band)
    # What is known of outcomes bounds it, and so do uncertain constraints.
    assert level(
        lambda z, u: cp.square(z[0] - u[0]) + 0 * z[1], outcome_support=lambda u: [u[1] >= 0, u[1] <= 9]
    ).is_bounded
    kept = level(
        lambda z, u: cp.square(z[0] - u[0]) + 0 * z[1], uncertain_constraints=lambda z, u: [z[1] >= u[1], u[1] >= -1]
    )
    assert kept.is_bounded
    np.testing.assert_allclose(kept.support([[0.0, 1.0], [0.0, -1.0]]), [0.7, 1.0], atol=1e-6)
    assert "empty>" in repr(level(lambda z, u: cp.sum_squares(z - u), bound=-1.0))
    # A formula that is not convex says nothing, but outcomes that are bounded bound it.
    box = level(lambda z, u: cp.sqrt(u[0] + 1) + 0 * z[0], outcome_support=lambda u: [u >= -1, u <= 9])
    assert box.is_bounded
    assert "bounded>" in repr(box)


def test_region_of_a_guard_is_cut_by_what_is_known_of_outcomes():
    problem, centers = ph.problems.newsvendor(0.3, 0.7, 2), np.array([[2.0, 3.0]])
    z = np.array([[2.0, 3.0]])
    planned = PlannedDecisions(z, np.array([1.0]), np.array([ph.Status.FINISHED], dtype=object))
    region = GuardRegions(problem, centers, np.zeros((1, 0)), planned).region(0, 0.5)
    assert region.is_bounded
    assert region.contains([2.0, 3.0])
    assert not region.contains([-0.1, 3.0])  # cheap enough, but demand is never negative


def test_users_function_is_guarded():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(2))
    decider = ph.RobustDecider(linear(), policy=lambda X: np.column_stack([X[:, 0] < 0, X[:, 0] >= 0]), random_state=0)
    found = decider.fit(X, Y).decide(X)
    assert (found.flat[:, 0] == (X[:, 0] < 0)).all()
    rows = decider.split_.calibrate  # a function may have been made from learning rows
    costs = decider.problem_.evaluate(found.flat[rows], Y[rows])
    assert (costs <= found.cost_bound[rows]).sum() == conformal_rank(len(rows), 0.1)
    with pytest.raises(
        ValueError, match="A model file holds numbers, texts and objects of registered classes, got the function"
    ):
        decider.save("nowhere.polyhedge")


class Follower(LinearRegression):
    """A policy that puts everything on the outcome with the lower prediction."""

    def predict(self, X):
        low = super().predict(X).argmin(axis=1)
        return np.eye(2)[low]


def test_users_estimator_is_trained_on_training_rows():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(3))
    policy = Follower()
    decider = ph.RobustDecider(linear(), policy=policy, random_state=0).fit(X, Y)
    expected = Follower().fit(X[decider.split_.train], Y[decider.split_.train]).predict(X)
    assert (decider.decide(X).flat == expected).all()
    assert not hasattr(policy, "coef_")


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"caution": 2.0}, ValueError, "from 0 to 1"),
        ({"policy": 3}, TypeError, "function of X"),
        ({"policy": len, "guarantee": "outcome"}, ValueError, "Leave them out"),
        ({"policy": lambda X: np.ones(len(X))}, ValueError, r"2 number\(s\) for each"),
    ],
)
def test_settings_of_a_policy_are_checked(settings, error, match):
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
    with pytest.raises(error, match=match):
        ph.RobustDecider(linear(), **settings).fit(X, Y)


@pytest.mark.parametrize("settings", [{"guarantee": "outcome"}, {"learner": ph.learners.OneSidedBox()}])
def test_caution_without_plans_is_refused_at_fit_and_nowhere_before(settings):
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
    decider = clone(ph.RobustDecider(linear(), None, alpha=0.2, random_state=0, caution=0.2, **settings))
    assert decider.get_params()["caution"] == 0.2
    with pytest.raises(ValueError, match=r'caution=0\.2 weighs policies .* or take guarantee="cost"'):
        decider.fit(X, Y)
    settings = {"learner": ph.learners.OneSidedBox()} | settings
    fitted = decider.set_params(caution=0.25, **settings).fit(X, Y)
    assert fitted.model_.guarantee == "outcome"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"guarantee": "cost", "learner": ph.learners.OneSidedBox()}, "caution=0.2 .* with learner= there is only one"),
        ({"policy": lambda X: np.full((len(X), 2), 0.5)}, "caution=0.2 .* with policy= there is only one"),
    ],
)
def test_caution_is_refused_where_there_is_one_policy(settings, match):
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=match):
        ph.RobustDecider(linear(), None, alpha=0.2, random_state=0, caution=0.2, **settings).fit(X, Y)


def test_rows_that_plan_and_calibrate_are_counted_in_the_roles_that_they_have():
    # alpha = 0.02 asks for 49: of 160 rows 80 train, and learning and calibration rows, 40 each, both calibrate.
    X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
    decider = ph.RobustDecider(linear(), None, alpha=0.02, random_state=0).fit(X, Y)
    assert (decider.n_learn_, decider.n_calibrate_) == (80, 80)
    with pytest.raises(ValueError, match="needs at least 49 learning samples, got 40"):
        ph.RobustDecider(linear(), None, alpha=0.02, random_state=0, guarantee="outcome").fit(X, Y)
    with pytest.raises(ValueError, match="needs at least 49 calibration samples, got 48"):
        ph.RobustDecider(linear(), None, alpha=0.02, random_state=0, split=(0.7, 0.1, 0.2)).fit(X, Y)


def test_uncertain_constraints_are_planned_for_unless_a_set_is_asked_for():
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
    for settings, made in (({}, ("cost", "path")), ({"guarantee": "outcome"}, ("outcome", "set"))):
        decider = ph.RobustDecider(with_uncertain_constraints(), alpha=0.2, random_state=0, **settings).fit(X, Y)
        model = decider.model_
        assert "The bound, together with all uncertain constraints, holds for a new row" in decider.promise_
        assert (model.guarantee, model.family.kind) == made


def test_coverage_of_a_planned_decision_follows_its_exact_law():
    """400 draws of 19 calibration rows and one new row: false alarm once in 10 000."""
    rng, problem = np.random.default_rng(4), linear()
    X, Y = ph.data.make_synthetic(200, rng=rng)
    predictor = as_predictor(LinearRegression(), 2).fit(X, Y)
    rows = DevelopmentRows(X, predictor.predict(X), Y, np.zeros((200, 0)), np.zeros(200, dtype=int))
    distribution, seen = fit_distribution("scaled", rows, seed=0), PlanningProblem(problem)
    planner = fit_planner(seen, Rule("scaled", Risk(0.5)), distribution, X, rows.centers, rows.values)
    report = PolicyReport((Entry("one rule", 0.0, 0.0, 1.0),), 0.1, 0.5, 200)
    policy = ScenarioPolicy(problem, (planner,), (1.0,), distribution, 0.8, report)
    guard = CostGuard(problem, predictor, policy)
    n, m = 400, 19
    scores = guard.at((fresh := ph.data.make_synthetic(n * (m + 1), rng=rng))[0]).scores(fresh[1]).reshape(n, m + 1)
    # The new row is held where its rank is at most k = 18 of 20: a binomial number of times.
    held = sum(row[-1] <= conformal_radius(row[:-1], 0.1) for row in scores)
    assert binomtest(int(held), n, 18 / 20).pvalue > 1e-4


def weighted(u, z):
    return cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z))


@pytest.mark.parametrize("is_constraint", [False, True])
def test_level_asks_more_rows_of_calibration_alone_however_few_rows_score_rules(is_constraint):
    # Each row needs an integer program, so that few rows score rules: fewer than a level of 1 % asks to calibrate.
    rng = np.random.default_rng(0)
    X = rng.uniform(5, 15, size=(420, 2))
    Y = X * rng.uniform(0.8, 1.2, size=X.shape)
    z = cp.Variable(2, integer=True, nonneg=True)
    more = {"uncertain_constraints": lambda z, u: [z >= 0.5 * u]} if is_constraint else {}
    cost = (lambda z, u: cp.sum(z)) if is_constraint else (lambda z, u: weighted(u, z))
    problem = ph.DecisionProblem(decision=z, cost=cost, constraints=[z[0] + 2.5 * z[1] <= 60], n_outcomes=2, **more)
    decider = ph.RobustDecider(problem, "ridge", alpha=0.01, random_state=0).fit(X, Y)
    assert decider.n_calibrate_ == 105
    assert np.isfinite(decider.decide(X[:5]).cost_bound).all()
