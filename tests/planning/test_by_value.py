"""Policies of costs in which a parameter multiplies the outcome: each row has the problem at its own values."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.planning import policies
from polyhedge.planning.costs import MOST_KEPT, PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.residual_distributions import Uniform
from polyhedge.planning.risk import Risk
from polyhedge.planning.selection import candidates
from polyhedge.problems import DecisionProblem

RNG = np.random.default_rng(0)
RESIDUALS, CENTERS = RNG.standard_t(4, size=(60, 2)), 5 + RNG.normal(size=(12, 2))
PENALTIES = RNG.uniform(3, 9, size=(12, 2))
DISTRIBUTION = Uniform(RESIDUALS)


def shop(penalty, *limits) -> DecisionProblem:
    """What is short costs a penalty, a number or a parameter of the row."""
    z = cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + penalty @ cp.pos(u - z),
        constraints=[z <= 20, *(limit(z) for limit in limits)],
        n_outcomes=2,
    )


def priced(*limits) -> DecisionProblem:
    return shop(cp.Parameter(2, nonneg=True, name="penalty"), *limits)


TWO_LIMITS = (lambda z: cp.sum(z) <= 9, lambda z: z[0] + 2 * z[1] <= 14)


def planner(problem: DecisionProblem, rule: Rule):
    return fit_planner(PlanningProblem(problem), rule, DISTRIBUTION, CENTERS, CENTERS, PENALTIES)


def test_the_decision_of_least_mean_cost_is_a_quantile_by_the_penalty_of_the_row():
    z = planner(priced(), Rule("uniform"))(CENTERS, CENTERS, PENALTIES)
    ranks = np.ceil(PENALTIES / (1 + PENALTIES) * len(RESIDUALS)).astype(int) - 1
    assert np.allclose(z, CENTERS + np.take_along_axis(np.sort(RESIDUALS, axis=0), ranks, axis=0))


@pytest.mark.parametrize("level", [0.0, 0.7])
@pytest.mark.parametrize("limits", [(), TWO_LIMITS], ids=["falls apart", "coupled"])
def test_rows_are_decided_as_if_their_values_were_written_into_the_problem(limits, level):
    rule = Rule("uniform", Risk(level))
    z = planner(priced(*limits), rule)(CENTERS, CENTERS, PENALTIES)
    for i in (0, 5):
        fixed, at, nothing = shop(PENALTIES[i], *limits), CENTERS[[i]], np.zeros((1, 0))
        one = fit_planner(PlanningProblem(fixed), rule, DISTRIBUTION, at, at, nothing)(at, at, nothing)[0]
        costs = [
            np.sort(fixed.evaluate(np.tile(own, (60, 1)), CENTERS[i] + RESIDUALS))[-round(60 * (1 - level)) :].mean()
            for own in (z[i], one)
        ]
        assert np.isclose(*costs, rtol=0, atol=2e-3 * np.std(RESIDUALS))


def test_planned_costs_are_those_of_the_formula():
    seen = PlanningProblem(priced())
    z = planner(priced(), Rule("uniform"))(CENTERS, CENTERS, PENALTIES)
    v, mean = seen.planned_cost(RESIDUALS, 0.8, z, CENTERS, np.ones(len(CENTERS)), PENALTIES)
    for i in range(len(CENTERS)):
        own = np.tile(z[i], (60, 1)), CENTERS[i] + RESIDUALS, np.tile(PENALTIES[i], (60, 1))
        costs = np.sort(priced().evaluate(*own))
        assert np.isclose(v[i], costs[47])
        assert np.isclose(mean[i], costs.mean())


def test_tails_compete_where_the_cost_has_maxima_at_the_values_of_a_row():
    squared = cp.Parameter(2, nonneg=True, name="weight")
    z = cp.Variable(2, nonneg=True)
    bent = DecisionProblem(
        decision=z, cost=lambda z, u: squared @ cp.square(z - u), constraints=[z <= 20], n_outcomes=2
    )
    assert Rule("scaled", Risk(0.7)) in candidates(PlanningProblem(priced()), 0.1, PENALTIES[:1])
    assert candidates(PlanningProblem(bent), 0.1, PENALTIES[:1]) == [Rule()]


@pytest.fixture(scope="module")
def decided():
    """A decider whose rows have penalties of their own, with what it decides 30 of them by."""
    X = RNG.normal(size=(170, 2))
    Y, penalties = 5 + X + RNG.normal(size=(170, 2)), RNG.uniform(3, 9, size=(170, 2))
    decider = ph.RobustDecider(priced(), None, guarantee="cost", random_state=0)
    decider.fit(X[:140], Y[:140], parameters={"penalty": penalties[:140]})
    return decider, X[140:], {"penalty": penalties[140:]}


def test_rows_do_not_depend_on_each_other(decided, monkeypatch):
    decider, X, given = decided
    whole = decider.decide(X, parameters=given)
    monkeypatch.setattr(policies, "MOST_KEPT", 7)  # in parts
    parts = decider.decide(X, parameters=given, n_jobs=1)
    alone = decider.decide(X[[3]], parameters={"penalty": given["penalty"][[3]]})
    assert len(X) < MOST_KEPT
    for name in ("flat", "cost_bound", "expected_cost"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=0, atol=1e-9)
        np.testing.assert_allclose(getattr(alone, name)[0], getattr(whole, name)[3], rtol=0, atol=1e-9)
