"""Distributions whose residuals have weights that follow the row, and forests that are held back where they tell
chance."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from polyhedge.planning import DevelopmentRows, PolicyReport, ScenarioPolicy, policy_from
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.levels import PlannedCost, planned_cost
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.report import Entry
from polyhedge.planning.residual_distributions import distribution_from, fit_distribution
from polyhedge.planning.selection import Selection, candidates
from polyhedge.problems import DecisionProblem, newsvendor, simplex_linear, simplex_newsvendor

WEIGHTED = ("weighted", "marginal")


def skewed(n: int = 90, seed: int = 0) -> DevelopmentRows:
    """Residuals that turn from left to right with the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    centers = np.round(3 + X, 6)
    outcomes = centers + np.where(X[:, [0]] > 0.5, 1, -1) * rng.exponential(size=(n, 2))
    return DevelopmentRows(X, centers, outcomes, np.zeros((n, 0)), np.arange(n) * 3 // n)


def free() -> DecisionProblem:
    return newsvendor(1.0, 3.0, 2)


def shared() -> DecisionProblem:
    return newsvendor(1.0, [3.0, 2.0], 2, capacity=6.0)


@pytest.fixture(scope="module")
def rows() -> DevelopmentRows:
    return skewed()


@pytest.fixture(scope="module")
def distributions(rows):
    return {name: fit_distribution(name, rows, seed=0) for name in WEIGHTED}


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_shares_of_the_leaves_that_rows_have_in_common(name, rows, distributions):
    for weights in distributions[name].weights:
        forest, found = weights.forest, weights(rows.X[:5], rows.centers[:5]).toarray()
        own, all_leaves = forest.leaves(rows.X[:5], rows.centers[:5]), forest.leaves(rows.X, rows.centers)
        for i in range(5):
            same = all_leaves == own[i]
            assert np.allclose(found[i], (same / same.sum(axis=0)).mean(axis=1))
        assert np.allclose(found.sum(axis=1), 1.0)


def test_planned_cost_under_weights_is_their_quantile(rows, distributions):
    distribution, problem, z = distributions["weighted"], free(), np.full((90, 2), 3.4)
    v, mean = planned_cost(PlanProblem(problem), distribution, 0.8, z, rows.X, rows.centers, rows.values)
    weights = distribution.weights[0](rows.X, rows.centers).toarray()
    for i in (0, 50):
        costs = problem.evaluate(z, rows.centers[i] + distribution.points)
        order = np.argsort(costs)
        assert v[i] == pytest.approx(costs[order][np.searchsorted(np.cumsum(weights[i][order]), 0.8)])
        assert mean[i] == pytest.approx(weights[i] @ costs)


def test_planned_cost_of_a_formula_without_pieces_has_weights_too(rows, distributions):
    z = cp.Variable(2, nonneg=True)
    cost = lambda z, u: cp.sum(z) + 4 * cp.sqrt(u[0] + 9)  # noqa: E731
    problem = DecisionProblem(decision=z, cost=cost, n_outcomes=2)
    decided, few, distribution = np.zeros((3, 2)), slice(0, 3), distributions["weighted"]
    v, mean = planned_cost(
        PlanProblem(problem), distribution, 0.8, decided, rows.X[few], rows.centers[few], rows.values[few]
    )
    weights = distribution.weights[0](rows.X[few], rows.centers[few]).toarray()
    costs = 4 * np.sqrt(rows.centers[0, 0] + distribution.points[:, 0] + 9)
    order = np.argsort(costs)
    assert v[0] == pytest.approx(costs[order][np.searchsorted(np.cumsum(weights[0][order]), 0.8)])
    assert mean[0] == pytest.approx(weights[0] @ costs)


@pytest.mark.parametrize("make", [free, shared])
@pytest.mark.parametrize("name", WEIGHTED)
def test_orders_have_the_least_mean_cost_under_the_weights(name, make, rows, distributions):
    problem, distribution, few = make(), distributions[name], slice(0, 6)
    planner = fit_planner(PlanProblem(problem), Rule(name), distribution, rows.X, rows.centers, rows.values)
    z = planner(rows.X[few], rows.centers[few], rows.values[few])
    weights = [each(rows.X[few], rows.centers[few]).toarray() for each in distribution.weights] * (
        2 if name == "weighted" else 1
    )
    order, prices = cp.Variable(2, nonneg=True), np.array([3.0, 3.0 if make is free else 2.0])
    for i in range(6):
        demand = rows.centers[i] + distribution.points
        terms = [
            weights[j][i] @ (cp.pos(order[j] - demand[:, j]) + prices[j] * cp.pos(demand[:, j] - order[j]))
            for j in range(2)
        ]
        limits = [cp.sum(order) <= 6.0] if make is shared else []
        least = cp.Problem(cp.Minimize(sum(terms)), limits).solve(solver=cp.HIGHS)
        order.value = z[i]
        assert sum(term.value for term in terms) == pytest.approx(least, abs=1e-6)
        assert all(limit.violation() < 1e-6 for limit in limits)


@pytest.fixture(scope="module", params=[free, shared])
def decide(request, rows, distributions):
    problem = request.param()
    seen, report = PlanProblem(problem), PolicyReport((Entry("two rules", "weighted", 1.0, 0.5, 1.0),), 0.1, 0.5, 90)
    planners = [fit_planner(seen, Rule(n), distributions[n], rows.X, rows.centers, rows.values) for n in WEIGHTED]
    return ScenarioPolicy(
        problem, tuple(planners), (0.4, 0.6), (PlannedCost.at_level(distributions["weighted"], 0.8),), (1.0,), report
    )


def test_weighted_plans_are_functions_of_the_row_to_the_last_bit(policy, rows):
    whole = policy.decide(rows.X, rows.centers, rows.values)
    for some in (np.array([3]), np.arange(90)[::-1], np.array([70, 3, 11])):
        part = policy.decide(rows.X[some], rows.centers[some], rows.values[some])
        for name in ("z", "v", "expected"):
            assert (getattr(part, name) == getattr(whole, name)[some]).all()


def test_weighted_plan_made_of_its_state_plans_alike(policy, rows):
    again = policy_from(policy.problem, policy.state()).decide(rows.X, rows.centers, rows.values)
    before = policy.decide(rows.X, rows.centers, rows.values)
    assert (again.z == before.z).all()
    assert (again.v == before.v).all()


@pytest.mark.parametrize("name", WEIGHTED)
def test_weighted_plans_are_the_same_to_the_last_bit_in_units_of_powers_of_two(name, rows, distributions):
    def planned(unit: float):
        own = replace(rows, centers=unit * rows.centers, outcomes=unit * rows.outcomes)
        distribution = distributions[name] if unit == 1 else fit_distribution(name, own, seed=0)
        seen, at = PlanProblem(newsvendor(1.0, 3.0, 2, capacity=6.0 * unit)), (own.X, own.centers, own.values)
        z = fit_planner(seen, Rule(name), distribution, *at)(*at)
        return z / unit, planned_cost(seen, distribution, 0.8, z, *at)[0] / unit

    for mine, its in zip(planned(1.0), planned(2.0**-7), strict=True):
        assert (mine == its).all()


HOSTILE = {
    "no weights": (lambda s: s.pop("weights"), "none, one, or one an outcome"),
    "weights of an even distribution": (lambda s: s.update(name="scaled"), "none, one, or one an outcome"),
    "two forests": (lambda s: s.update(weights=s["weights"] * 2), "none, one, or one an outcome"),
    "leaves of fewer residuals": (lambda s: s["weights"][0].update(leaves=np.zeros((3, 30), int)), "leaf of each"),
    "leaves in fractions": (lambda s: s["weights"][0].update(leaves=s["weights"][0]["leaves"] * 1.0), "leaf of each"),
    "leaves that are not there": (lambda s: s["weights"][0].update(leaves=s["weights"][0]["leaves"] + 10**6), "exist"),
    "one leaf for all": (lambda s: s["weights"][0].update(leaves=0 * s["weights"][0]["leaves"]), "without one"),
    "a way that ends before a leaf": (lambda s: s["weights"][0]["forest"].update(depth=0), "lead every row to a leaf"),
    "a way in a circle": (lambda s: in_a_circle(s["weights"][0]["forest"]), "lead every row to a leaf"),
}


def in_a_circle(forest):
    """The first inner node below the root leads back to the root; every leaf is still one."""
    inner = np.flatnonzero((forest["left"] != np.arange(len(forest["left"]))) & (forest["left"] > 1))
    forest["left"] = forest["left"].copy()
    forest["left"][inner[0]] = 0


@pytest.mark.parametrize("name", HOSTILE)
def test_weights_that_no_fit_can_have_made_are_refused(name, distributions):
    change, message = HOSTILE[name]
    state = distributions["weighted"].state()
    change(state)
    with pytest.raises(ValueError, match=message):
        distribution_from(state, 2)


def test_a_rule_weighs_residuals_only_where_that_is_exact(policy, distributions):
    state = policy.state()
    state["planners"][0]["risk"] = 0.5
    with pytest.raises(ValueError, match=r"weigh residuals for the mean of a cost that falls apart"):
        policy_from(policy.problem, state)
    state = policy.state()
    state["planned_by"][0]["distribution"] = "marginal"
    with pytest.raises(ValueError, match=r"must be planned by one of these distributions: scaled, corrected, weighted"):
        policy_from(policy.problem, state)


def test_candidates_have_the_promised_tail_and_weights_where_these_are_exact():
    for alpha, tail in ((0.2, "CVaR 0.8"), (0.05, "CVaR 0.95")):
        assert f"scaled distribution, {tail}" in map(str, candidates(PlanProblem(simplex_linear([0.0, 0.0])), alpha))
    kinds = {
        "free": (free(), {"weighted", "marginal"}),
        "coupled": (shared(), {"weighted"}),
        "segment": (simplex_newsvendor(0.3, 0.7, 2), set()),
    }
    for problem, wanted in kinds.values():
        assert {rule.distribution for rule in candidates(PlanProblem(problem), 0.1)} & set(WEIGHTED) == wanted


def test_weighted_costs_are_judged_on_folds_that_their_forest_had_not_seen(rows):
    problem, noise = PlanProblem(free()), np.random.default_rng(1)
    chance = replace(rows, outcomes=rows.centers + noise.normal(size=rows.centers.shape))
    selection = Selection(problem, chance, [Rule()], 0.8, 0)
    selection.look_closer([0], 0.2)
    by_distribution = {str(one.planned_by): one.bound(0.2) for one in selection.scored[0]}
    assert list(by_distribution)[:3] == ["scaled", "corrected", "weighted"]
    assert all("shared" in name for name in list(by_distribution)[3:])
    # Where nothing is to be found, weights that had seen the scored rows would seem to lower the bound.
    assert by_distribution["weighted"] > by_distribution["scaled"] - 0.1


def test_a_forest_that_tells_chance_is_held_back_and_one_that_is_right_is_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    noise, centers, rest = rng.normal(size=(300, 2)), np.zeros((300, 2)), (np.zeros((300, 0)), np.arange(300) % 3)
    even = fit_distribution("corrected", DevelopmentRows(X, centers, noise, *rest), seed=0)
    told = fit_distribution(
        "corrected", DevelopmentRows(X, centers, noise * (0.2 + 2 * X[:, [0]]) + 3 * X, *rest), seed=0
    )
    (center, spread), (moved, scales) = even.at(X, centers), told.at(X, centers)
    assert np.abs(center).mean() < 0.15
    assert spread.std() < 0.1
    assert np.corrcoef(moved[:, 0], X[:, 0])[0, 1] > 0.9
    assert scales.std() > 0.3
