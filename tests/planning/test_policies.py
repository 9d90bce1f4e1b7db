"""Policies: distributions, rules, planned costs and the selection between them, on arrays."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from polyhedge import RobustDecider
from polyhedge.data import make_synthetic
from polyhedge.planning import DevelopmentRows, PolicyReport, ScenarioPolicy, fit_policy
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.programs import least_by_programs
from polyhedge.planning.report import Entry
from polyhedge.planning.residual_distributions import Uniform, fit_distribution
from polyhedge.planning.risk import JointCost, Risk
from polyhedge.planning.selection import Scored, penalized, resampled
from polyhedge.planning.separable import Separable
from polyhedge.problems import DecisionProblem, simplex_linear, simplex_newsvendor, simplex_quadratic
from polyhedge.regions import Work
from shared import round_trip


def rows_of(n: int, d: int = 2, seed: int = 0) -> DevelopmentRows:
    rng = np.random.default_rng(seed)
    X, Y = make_synthetic(n, rng=rng, n_outcomes=d)
    centers = np.round(Y + 0.3 * rng.standard_normal(Y.shape), 6)
    return DevelopmentRows(X, centers, Y, np.zeros((n, 0)), np.arange(n) * 3 // n)


def free_newsvendor(d: int = 2, **attributes: bool) -> DecisionProblem:
    z = cp.Variable(d, nonneg=True, **attributes)
    cost = lambda z, u: 0.3 * cp.sum(cp.pos(z - u)) + 0.7 * cp.sum(cp.pos(u - z))  # noqa: E731
    return DecisionProblem(decision=z, cost=cost, n_outcomes=d)


def newsvendor(d: int) -> DecisionProblem:
    return simplex_newsvendor(overage=0.3, underage=0.7, n_outcomes=d)


def two_budgets() -> DecisionProblem:
    """A newsvendor that two rows couple, so that it does not fall apart."""
    z = cp.Variable(3, nonneg=True)
    cost = lambda z, u: 0.3 * cp.sum(cp.pos(z - u)) + 0.7 * cp.sum(cp.pos(u - z))  # noqa: E731
    return DecisionProblem(decision=z, cost=cost, constraints=[cp.sum(z) == 1, z[0] + 2 * z[1] <= 1], n_outcomes=3)


def least_risk(problem: DecisionProblem, points: np.ndarray, level: float) -> float:
    """Rockafellar and Uryasev's program, written out in CVXPY."""
    z, t = problem.decision, cp.Variable()
    costs = [problem.expression(z, point) for point in points]
    mean = sum(costs) / len(costs)
    tail = t + sum(cp.pos(cost - t) for cost in costs) / ((1 - level) * len(costs))
    whole = cp.Problem(cp.Minimize(tail if level else mean), [*problem.constraints])
    return float(whole.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("level", [0.0, 0.5, 0.7])
@pytest.mark.parametrize(
    "problem",
    [
        simplex_linear([-0.08, 0.0]),
        simplex_quadratic([-0.08, 0.0], beta=0.08),
        newsvendor(2),
        simplex_linear([-0.08, 0.0, 0.0]),
    ],
    ids=lambda problem: f"{problem.name} {problem.n_outcomes}",
)
def test_rule_decides_with_the_least_risk(problem, level):
    d, rng = problem.n_outcomes, np.random.default_rng(1)
    distribution = Uniform(rng.standard_normal((13, d)) * [1.0, 0.5, 0.8][:d])
    centers, nothing = rng.standard_normal((4, d)), np.zeros((4, 0))
    seen = PlanningProblem(problem)
    z = fit_planner(seen, Rule("uniform", Risk(level)), distribution, np.zeros((4, 1)), centers, nothing)(
        np.zeros((4, 1)), centers, nothing
    )
    terms = JointCost(seen.joint, distribution.points).cuts(z, centers, np.ones(4), Risk(level))
    found = sum(values for values, _ in terms) + seen.alone(z, nothing)
    exact = [least_risk(problem, center + distribution.points, level) for center in centers]
    assert np.allclose(found, exact, atol=2e-3)
    assert (found >= np.array(exact) - 1e-6).all()


@pytest.mark.parametrize("attributes", [{}, {"integer": True}], ids=["real", "whole"])
def test_newsvendor_without_coupling_orders_its_quantile(attributes):
    problem, distribution = (
        free_newsvendor(2, **attributes),
        Uniform(np.array([[-4.0], [-1.0], [0.0], [1.0], [3.0]]) * [1, 2]),
    )
    centers, nothing = np.array([[10.0, 20.0], [30.0, 12.0]]), np.zeros((2, 0))
    planner = fit_planner(PlanningProblem(problem), Rule("uniform"), distribution, np.zeros((2, 1)), centers, nothing)
    # The smallest order with at least 0.7 of the outcomes below: the fourth of five.
    assert np.allclose(planner(np.zeros((2, 1)), centers, nothing), centers + np.array([1.0, 2.0]), atol=1e-6)


BOUGHT = cp.Variable(3, nonneg=True)
SEPARABLE = {
    "simplex": newsvendor(3),
    "free": free_newsvendor(3),
    "budget": DecisionProblem(
        decision=BOUGHT,
        cost=lambda z, u: cp.sum(0.2 * z) + cp.sum(cp.maximum(-z, -2 * (u + 0.1))) + cp.sum(u),
        constraints=[cp.sum(cp.multiply([1.0, 2.0, 0.5], BOUGHT)) <= 1.5, BOUGHT <= 2],
        n_outcomes=3,
    ),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_separable_costs_are_planned_by_sorted_residuals(name):
    problem, rng = SEPARABLE[name], np.random.default_rng(2)
    distribution, centers, nothing = (Uniform(rng.normal(size=(17, 3))), rng.uniform(size=(5, 3)), np.zeros((5, 0)))
    seen, X = PlanningProblem(problem), np.zeros((5, 1))
    assert seen.separable is not None
    z = fit_planner(seen, Rule("uniform"), distribution, X, centers, nothing)(X, centers, nothing)
    for i in range(5):
        found = problem.evaluate(np.tile(z[i], (17, 1)), centers[i] + distribution.points).mean()
        assert np.isclose(found, least_risk(problem, centers[i] + distribution.points, 0.0), atol=1e-6)
        assert (problem.violations(z[[i]], centers[[i]], nothing[[i]]) == 0).all()


@pytest.mark.parametrize("seed", range(12))
def test_separable_integers_are_those_of_the_least_mean_cost_of_all(seed):
    """Marginal allocation against every integer decision: with and without a coupling row, <=, >= and =."""
    rng = np.random.default_rng(seed)
    z, total = cp.Variable(3, integer=True), int(rng.integers(3, 9))
    row = [[], [cp.sum(z) <= total], [cp.sum(z) >= total], [2 * cp.sum(z[:2]) == 2 * (total // 2)]][seed % 4]
    over, under = rng.uniform(0.5, 3, 3), rng.uniform(0.5, 3, 3)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: over @ cp.pos(z - u) + under @ cp.pos(u - z) + 0.3 * cp.sum(z),
        constraints=[z >= 0, z <= 5.5, *row],
        n_outcomes=3,
    )
    seen, X, nothing = PlanningProblem(problem), np.zeros((6, 1)), np.zeros((6, 0))
    points, centers = rng.normal(size=(13, 3)), rng.uniform(0, 5, (6, 3))
    distribution = Uniform(points)
    assert seen.separable is not None
    found = fit_planner(seen, Rule("uniform"), distribution, X, centers, nothing)(X, centers, nothing)
    assert (found == np.round(found)).all()
    every = np.array(list(product(range(6), repeat=3)), dtype=float)
    every = every[[all(bool(one.value()) for one in row) for z.value in every]] if row else every
    for center, own in zip(centers, found, strict=True):
        mean = lambda z, at=center: float(problem.evaluate(np.tile(z, (13, 1)), at + points).mean())  # noqa: E731
        assert any((own == one).all() for one in every)
        assert np.isclose(mean(own), min(mean(one) for one in every), atol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_terms_that_are_indifferent_share_alike_whatever_each_is_measured_in(seed):
    """Equal costs of several products under one budget: only rounding could prefer one, and it must not."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 7))
    high, low = (
        np.full(p, float(rng.integers(1, 5))) if rng.random() < 0.6 else 1.0 * rng.integers(1, 5, p) for _ in "12"
    )
    cost = np.zeros(p) if seed % 2 else rng.integers(0, 2, p).astype(float)
    weight = np.ones(p) if rng.random() < 0.5 else rng.choice([1.0, 2.0, 3.0], p)
    penalty = rng.choice([1.0, 1e6])  # for what the first product lacks
    low[0] *= penalty
    limit, is_equation, risk = 8 * p * rng.uniform(0.6, 1.2), rng.random() < 0.3, Risk(0.8) if seed % 3 else Risk()
    points, contexts = rng.normal(size=(int(rng.choice([20, 50, 100])), p)), rng.uniform(5, 10, (20, p))

    def decisions(units):
        none = np.zeros(p)
        terms = Separable(
            outcome=np.arange(p),
            beta=units,
            kappa=none,
            high=high / units,
            low=-low / units,
            common=none,
            slope=cost / units,
            lower=none,
            upper=100 * units,
            row=weight / units,
            limit=limit,
            is_equation=is_equation,
        )
        return terms.tabled(points, risk).least(contexts, np.ones(20)) / units

    assert np.abs(decisions(np.ones(p)) - decisions(10.0 ** rng.uniform(-3, 3, p))).max() < 1e-9


def test_tail_of_one_term_is_the_tail_of_the_cost():
    problem, rng = free_newsvendor(1), np.random.default_rng(3)
    points, center = rng.normal(size=(60, 1)), np.array([[3.0]])
    distribution, X, nothing = Uniform(points), np.zeros((1, 1)), np.zeros((1, 0))
    seen = PlanningProblem(problem)
    z = fit_planner(seen, Rule("uniform", Risk(0.7)), distribution, X, center, nothing)(X, center, nothing)
    costs = problem.evaluate(np.tile(z, (60, 1)), center + points)
    assert np.isclose(
        (Risk(0.7).weights(costs[None]) * costs).sum(), least_risk(problem, center + points, 0.7), rtol=2e-2
    )


@pytest.mark.parametrize("problem", [two_budgets(), simplex_linear([0.0, 0.0])], ids=["two rows", "one piece"])
def test_other_costs_are_not_taken_as_separable(problem):
    assert PlanningProblem(problem).separable is None


@pytest.mark.parametrize("moves", ["costs", "limits"])
def test_walk_over_corners_ends_where_the_program_does(moves):
    problem = simplex_linear(np.zeros(5)) if moves == "costs" else two_budgets()
    d, rng, X, nothing = problem.n_outcomes, np.random.default_rng(4), np.zeros((30, 1)), np.zeros((30, 0))
    distribution, centers = Uniform(rng.standard_normal((40, d))), rng.standard_normal((30, d))
    planner = fit_planner(
        PlanningProblem(problem), Rule("uniform", Risk(0.7)), distribution, X[:15], centers[:15], nothing[:15]
    )
    theta = np.column_stack([centers, rng.uniform(0.5, 2.0, size=30)])
    z, found = planner._corners(theta)
    exact, _ = least_by_programs(problem, planner.cuts, centers, theta[:, -1], nothing)
    assert found.all()
    assert planner._corners.program.moves_limits == (moves == "limits")
    np.testing.assert_allclose(z, exact, atol=1e-8)


def test_decision_that_many_rows_share_is_costed_once_and_right():
    problem, rng = simplex_linear([-0.08, 0.0, 0.0]), np.random.default_rng(5)
    cost = JointCost(PlanningProblem(problem).joint, rng.standard_normal((30, 3)))
    z = rng.dirichlet(np.ones(3), size=4)[rng.integers(4, size=50)]
    centers, scales = rng.standard_normal((50, 3)), rng.uniform(0.5, 2, size=50)
    for mine, plain in zip(
        cost.quantile(z, centers, scales, 0.8), cost._quantile(z, centers, scales, 0.8), strict=True
    ):
        assert np.allclose(mine, plain)


def test_conic_decisions_are_planned():
    z = cp.Variable(2)
    problem = DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.norm(z) <= 1], n_outcomes=2)
    distribution, centers, nothing = (Uniform(np.array([[0.0, 0.0]])), np.array([[3.0, 4.0]]), np.zeros((1, 0)))
    planner = fit_planner(PlanningProblem(problem), Rule("uniform"), distribution, np.zeros((1, 1)), centers, nothing)
    assert np.allclose(planner(np.zeros((1, 1)), centers, nothing), [[-0.6, -0.8]], atol=1e-5)


def planned_cost(problem, distribution, level, z, rows):
    at = distribution.at(rows.X, rows.centers)
    return PlanningProblem(problem).planned_cost(distribution.points, level, z, *at, rows.values)


def test_planned_cost_is_the_quantile_of_the_cost_over_the_scenarios():
    problem, rows = newsvendor(3), rows_of(60, 3)
    distribution = fit_distribution("scaled", rows, seed=0)
    z = np.random.default_rng(0).dirichlet(np.ones(3), size=60)
    v, mean = planned_cost(problem, distribution, 0.8, z, rows)
    moved, scales = distribution.at(rows.X, rows.centers)
    for i in (0, 31):
        costs = problem.evaluate(np.tile(z[i], (60, 1)), moved[i] + scales[i] * distribution.points)
        assert np.isclose(v[i], np.sort(costs)[47])
        assert np.isclose(mean[i], costs.mean())


def test_planned_cost_of_a_formula_without_pieces_is_the_quantile_over_the_outcomes_that_can_come():
    z = cp.Variable(2, nonneg=True)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z) + 4 * cp.sqrt(u[0] + 1) - 0.1 * u @ z,
        constraints=[cp.sum(z) == 1],
        n_outcomes=2,
        outcome_support=lambda u: [u >= -1],
    )
    rows = rows_of(40)
    distribution = fit_distribution("scaled", rows, seed=0)
    decided = np.random.default_rng(0).dirichlet(np.ones(2), size=40)
    v, mean = planned_cost(problem, distribution, 0.8, decided, rows)
    moved, scales = distribution.at(rows.X, rows.centers)
    for i in (0, 17):
        u = moved[i] + scales[i] * distribution.points
        u = u[u[:, 0] >= -1]
        costs = np.sort(1 + 4 * np.sqrt(u[:, 0] + 1) - 0.1 * u @ decided[i])
        assert np.isclose(v[i], costs[int(np.ceil(0.8 * len(costs))) - 1])
        assert np.isclose(mean[i], costs.mean())


@pytest.mark.parametrize("level", [0.0, 0.5, 0.73])
def test_weights_of_a_risk_are_those_of_its_tail(level):
    costs = np.random.default_rng(0).integers(4, size=(5, 11)).astype(float)
    found = (Risk(level).weights(costs) * costs).sum(axis=1)
    t = np.unique(costs)
    tail = t + np.maximum(costs[:, :, None] - t, 0).mean(axis=1) / (1 - level)
    assert np.allclose(found, tail.min(axis=1) if level else costs.mean(axis=1))
    assert np.allclose(Risk(level).weights(costs).sum(axis=1), 1.0)


def test_cuts_bound_the_risk_at_every_row():
    problem, rng = newsvendor(2), np.random.default_rng(0)
    cost = JointCost(PlanningProblem(problem).joint, rng.standard_normal((20, 2)))
    z, centers, scales = rng.dirichlet([1, 1], size=8), rng.standard_normal((8, 2)), rng.uniform(0.5, 2, size=8)
    for risk in (Risk(), Risk(0.7)):
        for values, cuts in cost.cuts(z, centers, scales, risk):
            lines = [cuts.at(c, s) @ np.append(1.0, one) for c, s, one in zip(centers, scales, z, strict=True)]
            assert np.allclose(np.diag(np.array(lines)), values)
            assert (np.array(lines) <= values[:, None] + 1e-12).all()


PLANNED = {
    "segment": lambda: newsvendor(2),
    "corners": lambda: simplex_linear([-0.08, 0.0, 0.0]),
    "separable": lambda: newsvendor(3),
    "limits change": two_budgets,
}


@pytest.fixture(scope="module", params=PLANNED)
def planned(request):
    """A policy of two rules, made without a selection."""
    problem = PLANNED[request.param]()
    rows, seen = rows_of(60, problem.n_outcomes), PlanningProblem(problem)
    distributions = tuple(fit_distribution(name, rows, seed=0) for name in ("scaled", "uniform"))
    rules = [Rule("scaled", Risk(0.7)), Rule("uniform")]
    report = PolicyReport((Entry("two rules", 1.0, 0.5, 1.0),), 0.1, 0.5, 60)
    planners = [
        fit_planner(seen, rule, distribution, rows.X, rows.centers, rows.values)
        for rule, distribution in zip(rules, distributions, strict=True)
    ]
    return problem, rows, ScenarioPolicy(problem, tuple(planners), (0.3, 0.7), distributions[0], 0.8, report)


def test_policies_are_functions_of_the_row(planned):
    _, rows, policy = planned
    whole = policy.decide(rows.X, rows.centers, rows.values)
    order = np.random.default_rng(0).permutation(len(rows))
    mixed = policy.decide(rows.X[order], rows.centers[order], rows.values[order], work=Work(n_jobs=1))
    for i in (0, 17, 40):
        one, j = policy.decide(rows.X[[i]], rows.centers[[i]], rows.values[[i]]), int(np.flatnonzero(order == i)[0])
        for name in ("z", "v", "expected"):
            own = getattr(whole, name)[i]
            np.testing.assert_allclose(getattr(mixed, name)[j], own, rtol=0, atol=1e-9)
            np.testing.assert_allclose(getattr(one, name)[0], own, rtol=0, atol=1e-9)


def test_policy_made_of_its_state_policies_alike(planned):
    problem, rows, policy = planned
    again, before = round_trip(policy, problem=problem), policy.decide(rows.X, rows.centers, rows.values)
    after = again.decide(rows.X, rows.centers, rows.values)
    np.testing.assert_allclose(after.z, before.z, rtol=0, atol=1e-9)
    np.testing.assert_allclose(after.v, before.v, rtol=0, atol=1e-9)


def test_more_caution_never_scores_a_higher_bound_or_a_lower_cost():
    rng = np.random.default_rng(0)
    entries = tuple(Entry(f"rule {k}", *rng.uniform(size=2), 0.0) for k in range(30))
    frontier = PolicyReport(entries, 0.1, 0.5, 100).frontier(21)
    bounds, costs = ([row[name] for row in frontier] for name in ("bound", "cost"))
    assert (np.diff(bounds) <= 0).all()
    assert (np.diff(costs) >= 0).all()
    assert bounds[-1] == min(entry.bound for entry in entries)
    assert costs[0] == min(entry.cost for entry in entries)


def test_a_scored_row_without_a_decision_counts_as_infinitely_expensive():
    costs = np.arange(20.0)
    fine = Scored(Rule(), np.zeros(20), costs)
    is_there = costs >= 4
    failed = Scored(Rule(), np.where(is_there, 0.0, np.nan), np.where(is_there, costs, np.nan))
    assert fine.bound(0.1) == 18.0
    assert np.isinf(failed.bound(0.1))


def test_complex_rules_have_a_penalty():
    costs = np.arange(100.0)
    simple, complex_ = (Scored(rule, np.zeros(100), costs) for rule in (Rule(), Rule("scaled")))
    figures = penalized([simple, complex_], 0.1, 0.5)
    assert figures[0] < figures[1]
    assert np.isclose(figures[0], (simple.bound(0.1) + simple.cost()) / 2)


def test_resampled_rows_come_in_blocks_of_neighbours():
    draws = resampled(1000, seed=0)
    assert len(draws) == 25
    assert all(len(rows) == 1000 and rows.min() >= 0 and rows.max() < 1000 for rows in draws)
    assert np.mean(np.diff(draws[0]) == 1) > 0.85


def test_report_says_which_rules_were_selected_and_why():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 1))
    Y = np.column_stack([np.sign(X[:, 0] - 0.5), np.zeros(150)]) + 0.1 * rng.standard_normal((150, 2))
    rows = DevelopmentRows(X, np.zeros((150, 2)), Y, np.zeros((150, 0)), np.arange(150) % 3)
    policy = fit_policy(simplex_linear([0.0, 0.0]), rows, alpha=0.1, caution=0.5, seed=0)
    report = policy.report
    assert report.chosen[0].rule in report.why()
    assert "caution 0.5" in str(report)
    assert np.isclose(sum(entry.share for entry in report.entries), 1.0)
    assert round_trip(report) == report
    assert len(report.entries) == 13
    assert report.chosen[0].rule == "corrected residuals, mean"  # the prediction is biased
    assert policy.distribution.name == "corrected"


def test_selections_look_at_some_rows_and_distributions_for_use_at_all(monkeypatch):
    # Forests tell more the more rows they see; what is kept of the residuals, and scored, is a limited number.
    for place in ("selection", "residual_distributions"):
        monkeypatch.setattr(f"polyhedge.planning.{place}.MOST_POINTS", 40)
    rows = rows_of(120)
    policy = fit_policy(simplex_linear([0.0, 0.0]), rows, alpha=0.2, caution=0.5, seed=0)
    assert policy.report.n_scored == 40
    distribution = policy.distribution
    whole, few = (fit_distribution("scaled", part, 0).spread for part in (rows, rows.thinned(40)))
    assert len(distribution.points) == 40
    np.testing.assert_array_equal(distribution.spread.value, whole.value)
    assert len(whole.value) > len(few.value)


def test_frontier_has_both_ends_of_caution():
    report = PolicyReport((Entry("trust the prediction", 3.0, 1.0, 1.0),), 0.1, 0.5, 100)
    assert [row["caution"] for row in report.frontier(2)] == [0.0, 1.0]
    with pytest.raises(ValueError, match="n must be an integer of at least 2, got 1"):
        report.frontier(1)


@pytest.mark.slow
def test_whole_decisions_are_one_rule_and_never_a_mean():
    rows = rows_of(45, 2)
    rows = replace(rows, centers=10 * np.abs(rows.centers), outcomes=10 * np.abs(rows.outcomes))
    policy = fit_policy(free_newsvendor(2, integer=True), rows, alpha=0.2, caution=0.5, seed=0)
    z = policy.decide(rows.X, rows.centers, rows.values).z
    assert len(policy.planners) == 1
    assert "bootstrap" not in policy.report.why()  # a single pick, not the winner of resamplings
    assert np.allclose(z, np.round(z), atol=1e-6)


def test_rows_with_parameters_of_their_own_are_planned_with_these():
    z, price, cap = cp.Variable(2, nonneg=True), cp.Parameter(2, name="price", nonneg=True), cp.Parameter(name="cap")
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: price @ z + 5 * cp.sum(cp.pos(u - z)),
        constraints=[cp.sum(z) <= cap],
        n_outcomes=2,
    )
    rng = np.random.default_rng(0)
    distribution, centers = (Uniform(rng.uniform(-1, 1, size=(9, 2))), rng.uniform(1, 3, size=(4, 2)))
    values = np.hstack([rng.uniform(1, 2, size=(4, 2)), rng.uniform(1, 6, size=(4, 1))])
    planner = fit_planner(PlanningProblem(problem), Rule("uniform"), distribution, np.zeros((4, 1)), centers, values)
    found = planner(np.zeros((4, 1)), centers, values)
    assert planner(np.zeros((1, 1)), centers[[2]], values[[2]]) == pytest.approx(found[[2]], abs=1e-9)
    for i in range(4):
        outcomes, own = centers[i] + distribution.points, np.tile(values[i], (9, 1))
        cost = sum(values[i, :2] @ z + 5 * cp.sum(cp.pos(u - z)) for u in outcomes) / 9
        least = cp.Problem(cp.Minimize(cost), [cp.sum(z) <= values[i, 2]]).solve(solver=cp.CLARABEL)
        assert np.isclose(problem.evaluate(np.tile(found[i], (9, 1)), outcomes, own).mean(), least, atol=2e-3)


class AllRowsNeeded(LinearRegression):
    """Refuses to be fitted without a fold of 90 rows."""

    def fit(self, X, y):
        if len(X) == 72:
            raise ValueError("a fold is missing")
        return super().fit(X, y)


def test_learning_rows_that_make_a_policy_do_not_calibrate_it_where_calibration_rows_are_few():
    # Thirty rows cannot keep 3 %, which asks for 33: learning rows calibrate too, unless they had to make the policy.
    X, Y = make_synthetic(120, rng=np.random.default_rng(0))
    for predictor, alpha, n in (
        (LinearRegression(), 0.03, 60),
        (LinearRegression(), 0.2, 30),
        (AllRowsNeeded(), 0.2, 30),
    ):
        decider = RobustDecider(simplex_linear([-0.08, 0.0]), predictor, guarantee="cost", alpha=alpha, random_state=0)
        warns = pytest.warns(RuntimeWarning, match="made from the learning rows alone")
        said = warns if isinstance(predictor, AllRowsNeeded) else nullcontext()
        with said:
            decider.fit(X, Y)
        split = decider.model_.record.split
        assert (len(split.train), len(split.learn), len(split.calibrate)) == (60, 30, 30)
        assert decider.model_.radii.n == n


@pytest.mark.parametrize("rule", [Rule(), *(Rule("uniform", Risk(level)) for level in (0.0, 0.7))], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_policies_of_coupled_sums_are_the_same_in_decimal_units_and_wherever_outcomes_have_their_zero(seed, rule):
    # Products with the same prices share a scarce budget: many decisions are equally good.
    rng = np.random.default_rng(seed)
    d = 3 + seed
    over, under = (np.ones(d), np.full(d, 3.0)) if seed else (rng.integers(1, 3, d), rng.integers(2, 5, d))
    points, centers, weights = rng.normal(size=(40, d)), 10 + rng.normal(size=(12, d)), rng.integers(1, 4, d)
    X, nothing = np.zeros((12, 1)), np.zeros((12, 0))

    def planned(is_scored, outcome=1.0, decision=1.0, cost=1.0, shift=0.0):
        z = cp.Variable(d, nonneg=True)
        missing = lambda z, u: u / outcome - shift - z / decision  # noqa: E731
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cost * (over @ cp.pos(-missing(z, u)) + under @ cp.pos(missing(z, u))),
            constraints=[cp.sum(z) <= 10.2 * d * decision, weights @ z <= 10 * weights.sum() * decision],
            n_outcomes=d,
        )
        seen, distribution = (
            PlanningProblem(problem),
            None if rule.distribution is None else Uniform(points * outcome),
        )
        there = (centers + shift) * outcome
        found = fit_planner(seen, rule, distribution, X, there, nothing, is_scored=is_scored)(X, there, nothing)
        risky = JointCost(seen.joint, np.zeros((1, d)) if distribution is None else distribution.points)
        return found / decision, sum(part for part, _ in risky.cuts(found, there, np.ones(12), rule.risk)) / cost

    for is_scored in (True, False):
        usual = planned(is_scored)
        for exponents, shift in (((-2, -2, 0), 1e3), (rng.integers(-6, 7, size=3), -1e4)):
            for own, other in zip(usual, planned(is_scored, *10.0 ** np.array(exponents), shift), strict=True):
                np.testing.assert_allclose(other, own, rtol=0, atol=1e-8)


@pytest.mark.parametrize("level", [0.0, 0.6])
def test_equally_good_decisions_without_end_are_no_reason_to_have_none(level):
    z, rng = cp.Variable(3), np.random.default_rng(3)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: 3 * cp.sum(cp.abs(cp.hstack([z[0] + z[1], z[2]]) - u)),
        constraints=[cp.sum(z) <= 4.5, z[2] - z[0] - z[1] <= 0.2],
        n_outcomes=2,
    )
    points, centers = 0.3 * rng.normal(size=(30, 2)), 2 + rng.normal(size=(6, 2))
    X, nothing, rule = np.zeros((6, 1)), np.zeros((6, 0)), Rule("uniform", Risk(level))
    planner = fit_planner(PlanningProblem(problem), rule, Uniform(points), X, centers, nothing)
    found, is_best = planner.at(centers, np.ones(6), nothing)
    risky = JointCost(planner.problem.joint, points, sums_tails=True)
    risk = sum(part for part, _ in risky.cuts(found, centers, np.ones(6), rule.risk))
    assert is_best.all()
    least = []
    for u in centers[:, None] + points:
        at, terms = cp.Variable(2), 3 * cp.abs(cp.vstack([cp.hstack([z[0] + z[1], z[2]])] * len(u)) - u)
        over = cp.sum(cp.pos(terms - cp.vstack([at] * len(u)))) / ((1 - level) * len(u))
        least.append(cp.Problem(cp.Minimize(cp.sum(at) + over), problem.constraints).solve(solver=cp.CLARABEL))
    assert risk == pytest.approx(least, abs=3e-3)
