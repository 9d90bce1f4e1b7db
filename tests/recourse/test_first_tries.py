"""Recourse as people write it at first: constraints in any list, prices of the row, decisions of another problem."""

from __future__ import annotations

import pickle

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge import DecisionProblem
from polyhedge.planning.pool import with_pool
from polyhedge.planning.residual_distributions import DevelopmentRows
from polyhedge.problems import NoSolutionError
from polyhedge.robust import decide
from polyhedge.sets import Box
from polyhedge.solvers.program import Status

RNG = np.random.default_rng(11)
X = RNG.uniform(3, 8, (320, 1))
Y = np.hstack([X, X]) + RNG.gamma(2, 1, (320, 2))
PRICE = RNG.choice([2.0, 4.0], 320)


def rush_orders(price=3.0, cap=None, integer=False, **more):
    """What is missing is ordered in a rush, at a price and at most so much in sum."""
    z, y = cp.Variable(2, nonneg=True, name="make"), cp.Variable(2, nonneg=True, name="rush", integer=integer)
    given = {
        "decision": z,
        "recourse": y,
        "n_outcomes": 2,
        "cost": lambda z, u, y: cp.sum(z) + price * cp.sum(y) + 0.2 * cp.sum(cp.pos(z - u)),
        "recourse_constraints": lambda z, u, y: [z + y >= u] + ([] if cap is None else [cp.sum(y) <= cap]),
    }
    return DecisionProblem(**given | {name: one(z, y) if name == "constraints" else one for name, one in more.items()})


@pytest.mark.parametrize("limit", ["of y", "of both"])
def test_a_constraint_with_a_recourse_variable_holds_wherever_it_is_given(limit):
    def limits(z, y):
        return [y <= 1.5] if limit == "of y" else [y <= 0.5 * z]

    among = rush_orders(constraints=lambda z, y: [*limits(z, y), cp.sum(z) <= 20])
    z, u = RNG.uniform(0, 6, (200, 2)), RNG.uniform(0, 6, (200, 2))
    y = np.maximum(u - z, 0)
    is_met = (y <= (1.5 if limit == "of y" else 0.5 * z)).all(axis=1)
    expected = z.sum(axis=1) + 3 * y.sum(axis=1) + 0.2 * np.maximum(z - u, 0).sum(axis=1)
    for problem in (among, pickle.loads(pickle.dumps(among))):
        np.testing.assert_allclose(problem.evaluate(z, u), np.where(is_met, expected, np.inf), rtol=1e-9)
    assert 0.05 < is_met.mean() < 0.95


def test_error_names_both_stages_where_no_second_decision_is_ever_feasible():
    problem = rush_orders(recourse_constraints=lambda z, u, y: [z + y >= u, y >= 1, cp.sum(y) <= 1])
    with pytest.raises(NoSolutionError, match="none meets the constraints of both stages"):
        ph.RobustDecider(problem, "linear", guarantee="cost", random_state=0).fit(X, Y)


def test_repair_refuses_decisions_of_another_problem():
    three = cp.Variable(3, nonneg=True, name="make")
    y = cp.Variable(2, nonneg=True, name="rush")
    other = DecisionProblem(
        decision=three,
        recourse=y,
        n_outcomes=2,
        cost=lambda z, u, y: cp.sum(z) + 3 * cp.sum(y),
        recourse_constraints=lambda z, u, y: [z[:2] + y >= u],
    )
    deciders = [
        ph.RobustDecider(problem, "linear", guarantee="cost", random_state=0).fit(X[:300], Y[:300])
        for problem in (rush_orders(), other)
    ]
    now = deciders[1].decide(X[300:])
    with pytest.raises(ValueError, match="decisions of its own problem, got those of another"):
        deciders[0].repair(X[300:], Y[300:], now)


def test_orders_that_may_not_do_are_expensive_in_plans_also_where_a_price_moves_with_the_row():
    order, bought = cp.Variable(1, bounds=[0, 10], name="order"), cp.Variable(1, bounds=[0, 2], name="bought")
    price = cp.Parameter(name="price", nonneg=True)
    problem = DecisionProblem(
        decision=order,
        recourse=bought,
        n_outcomes=1,
        cost=lambda z, u, y: z[0] + price * y[0],
        recourse_constraints=lambda z, u, y: [z[0] + y[0] >= u[0]],
    )
    centers, outcomes, values = np.full((40, 1), 5.0), np.linspace(3, 9, 40)[:, None], np.full((40, 1), 3.0)
    rows = DevelopmentRows(np.zeros((40, 1)), centers, outcomes, values, np.arange(40) % 5)
    seen = with_pool(problem, rows).at_value(values[0])
    assert seen.n_penalties > 0
    few, many, at = np.array([[2.0]]), np.array([[8.0]]), np.full((1, 1), 9.0)
    assert seen.joint.evaluate(few, at) > 20 + seen.joint.evaluate(many, at)


@pytest.mark.filterwarnings("ignore::polyhedge.DiagnosticWarning")
@pytest.mark.filterwarnings("ignore:.*no feasible second decision")
@pytest.mark.parametrize("integer", [False, True])
def test_uncertain_constraints_beside_a_price_of_the_row_hold_with_the_bound_among_recourse_constraints(integer):
    price = cp.Parameter(name="price", nonneg=True)
    apart = rush_orders(price, integer=integer, uncertain_constraints=lambda z, u: [cp.sum(z) >= 0.8 * cp.sum(u)])
    fitted, fresh = ({"parameters": {"price": PRICE[rows]}} for rows in (slice(120), slice(240, None)))
    with pytest.raises(ValueError, match="with recourse write them in recourse_constraints"):
        ph.RobustDecider(apart, "linear", guarantee="cost", random_state=0).fit(X[:120], Y[:120], **fitted)
    within = rush_orders(
        price, integer=integer, recourse_constraints=lambda z, u, y: [z + y >= u, cp.sum(z) >= 0.8 * cp.sum(u)]
    )
    decider = ph.RobustDecider(within, "linear", guarantee="cost", random_state=0).fit(X[:120], Y[:120], **fitted)
    now = decider.decide(X[240:], **fresh)
    later = decider.repair(X[240:], Y[240:], now, **fresh)
    is_kept = now.z.sum(axis=1) >= 0.8 * Y[240:].sum(axis=1) - 1e-7
    assert is_kept[later.is_within].all()
    assert later.is_within.mean() > 0.7  # 30 rows calibrate: three standard deviations below 0.9


def test_page_of_a_model_whose_problem_has_a_price_of_the_row(tmp_path):
    price = cp.Parameter(name="price", nonneg=True)
    decider = ph.RobustDecider(rush_orders(price), "linear", guarantee="cost", random_state=0)
    decider.fit(X[:60], Y[:60], parameters={"price": PRICE[:60]})
    decider.report(tmp_path / "page.html", X[300:], Y[300:], parameters={"price": PRICE[300:]})
    assert "rush" in (tmp_path / "page.html").read_text()


def test_set_of_outcomes_without_a_robust_decision_is_infeasible_and_others_have_the_bound_of_its_corners():
    problem = rush_orders(cap=1.0, constraints=lambda z, y: [cp.sum(z) <= 12])
    centers = np.array([[9.0, 9.0], [4.0, 4.0], [2.0, 1.0]])
    found = decide(problem, Box([1.0, 1.0]), 1.0, centers)
    assert [status is Status.INFEASIBLE for status in found.status] == [True, False, False]
    for center, bound in zip(centers[1:], found.cost_bound[1:], strict=True):
        z, worst = cp.Variable(2, nonneg=True), cp.Variable()
        rows = [cp.sum(z) <= 12]
        for u in center + np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]):
            y = cp.Variable(2, nonneg=True)
            cost = cp.sum(z) + 3 * cp.sum(y) + 0.2 * cp.sum(cp.pos(z - u))
            rows += [z + y >= u, cp.sum(y) <= 1, cost <= worst]
        assert cp.Problem(cp.Minimize(worst), rows).solve(solver=cp.SCIPY) == pytest.approx(bound, rel=1e-7)


def test_a_price_of_the_row_that_multiplies_a_maximum_is_evaluated_and_planned_with():
    z, y = cp.Variable(4, nonneg=True, name="stock"), cp.Variable((4, 6), nonneg=True, name="sent")
    price, ways = cp.Parameter(name="price", nonneg=True), np.random.default_rng(0).uniform(1, 6, (4, 6))
    problem = DecisionProblem(
        decision=z,
        recourse=y,
        n_outcomes=6,
        cost=lambda z, u, y: (
            2 * cp.sum(z) + cp.sum(cp.multiply(ways, y)) + price * cp.sum(cp.pos(u - cp.sum(y, axis=0)))
        ),
        recourse_constraints=lambda z, u, y: [cp.sum(y, axis=1) <= z],
    )
    assert problem.second_stage is None  # it is compiled at values of the price
    rng, prices = np.random.default_rng(1), np.array([[5.0], [9.0], [5.0], [9.0], [5.0]])
    at, u = rng.uniform(0, 40, (5, 4)), rng.uniform(0, 40, (5, 6))
    expected = []
    for k in range(5):
        sent = cp.Variable((4, 6), nonneg=True)
        late = cp.sum(cp.multiply(ways, sent)) + prices[k, 0] * cp.sum(cp.pos(u[k] - cp.sum(sent, axis=0)))
        whole = cp.Problem(cp.Minimize(2 * at[k].sum() + late), [cp.sum(sent, axis=1) <= at[k]])
        expected.append(whole.solve(solver=cp.SCIPY))
    np.testing.assert_allclose(problem.evaluate(at, u, prices), expected, rtol=1e-7)
    centers = np.full((20, 6), 20.0)
    rows = DevelopmentRows(centers, centers, rng.uniform(10, 30, (20, 6)), np.full((20, 1), 9.0), np.arange(20) % 5)
    seen = with_pool(problem, rows).at_value(np.array([9.0]))
    assert seen.has_maxima  # policies see pieces of the second stage, not its formula alone
