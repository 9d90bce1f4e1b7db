"""Tails of coupled sums of maxima: the rules that need a program with many cuts for each row."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Planner, Rule, fit_planner
from polyhedge.planning.programs import with_cuts
from polyhedge.planning.residual_distributions import ResidualDistribution
from polyhedge.planning.risk import Effort, JointCost, Risk, first_cuts, search_cuts
from polyhedge.planning.selection import candidates
from polyhedge.problems import DecisionProblem


def shop(d: int = 3) -> DecisionProblem:
    """Orders under two constraints: what is left over and what is short do not fall apart."""
    z = cp.Variable(d, nonneg=True)
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z)),
        constraints=[cp.sum(z) <= 3 * d, z[0] + 2 * z[1] <= 6, z <= 20],
        n_outcomes=d,
    )


def plants() -> DecisionProblem:
    """Whole decisions, and a sum of two shortages."""
    on, power = cp.Variable(2, boolean=True), cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision={"on": on, "power": power},
        cost=lambda z, u: cp.sum(z["on"]) + cp.sum(z["power"]) + 9 * cp.sum(cp.pos(u - z["power"])),
        constraints=[power <= 5 * on, cp.sum(power) <= 7],
        n_outcomes=2,
    )


def one_plant() -> DecisionProblem:
    """Whole decisions, and one maximum that couples all of them."""
    on, power = cp.Variable(2, boolean=True), cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision={"on": on, "power": power},
        cost=lambda z, u: cp.sum(z["on"]) + 9 * cp.pos(cp.sum(u) - cp.sum(z["power"])),
        constraints=[power <= 5 * on],
        n_outcomes=2,
    )


def sample(d: int, n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals that go together, predictions, and no parameters."""
    rng = np.random.default_rng(seed)
    residuals = rng.standard_t(5, size=(n, d)) @ (np.eye(d) + 0.4 * rng.normal(size=(d, d)))
    return residuals, 3 + 1.5 * rng.normal(size=(n, d)), np.zeros((n, 0))


def tail(problem: DecisionProblem, z, center, residuals, level: float) -> float:
    """CVaR of the cost of a decision, by its definition."""
    costs = np.sort(problem.evaluate(np.tile(z, (len(residuals), 1)), center + residuals))
    k = round((1 - level) * len(costs))
    return float(costs[-k:].mean())


def least_tail(center, residuals, level: float) -> float:
    """The least CVaR in the shop: all residuals in one program, by Rockafellar and Uryasev."""
    z, at, u = cp.Variable(residuals.shape[1], nonneg=True), cp.Variable(), center + residuals
    z_rows = cp.vstack([z] * len(u))
    costs = cp.sum(cp.pos(z_rows - u), axis=1) + 3 * cp.sum(cp.pos(u - z_rows), axis=1)
    over = cp.sum(cp.pos(costs - at)) / ((1 - level) * len(u))
    limits = [cp.sum(z) <= 3 * residuals.shape[1], z[0] + 2 * z[1] <= 6, z <= 20]
    return float(cp.Problem(cp.Minimize(at + over), limits).solve(solver=cp.HIGHS))


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_tail_of_a_sum_is_as_low_as_all_residuals_in_one_program_make_it(level):
    residuals, centers, nothing = sample(3)
    problem, distribution = shop(), ResidualDistribution("uniform", residuals)
    planner = fit_planner(
        PlanningProblem(problem), Rule("uniform", Risk(level)), distribution, centers, centers, nothing
    )
    z = planner(centers[:6], centers[:6], nothing[:6])
    reached = [tail(problem, one, c, residuals, level) for one, c in zip(z, centers[:6], strict=True)]
    least = [least_tail(c, residuals, level) for c in centers[:6]]
    deviation = problem.evaluate(np.tile(z[0], (len(residuals), 1)), centers[0] + residuals).std()
    assert np.all(np.array(reached) >= np.array(least) - 1e-6)
    assert np.all(np.array(reached) <= np.array(least) + 2e-3 * deviation)


def test_half_way_cuts_need_fewer_rounds_than_cuts_at_the_decisions():
    residuals, centers, nothing = sample(6)
    problem, few = PlanningProblem(shop(6)), slice(10)
    distribution = ResidualDistribution("uniform", residuals)
    cost, rule = JointCost(problem.joint, residuals), Rule("uniform", Risk(0.7))
    rows = centers[few], np.ones(10)
    asked = {}
    for name, alone in {"inner": lambda z, own: problem.alone(z, nothing[own]), "outer": None}.items():
        rounds = []

        def decided(cuts, own, rounds=rounds):
            rounds.append(len(own))
            planner = Planner(problem, rule, distribution, cuts)
            return planner.at(centers[own], np.ones(len(own)), nothing[own], n_jobs=1)[0]

        first = first_cuts(cost, rule.risk, *rows, problem.usual_decision)
        search_cuts(cost, rule.risk, rows, first, Effort(10, 60, 1e-3), decided, alone)
        asked[name] = sum(rounds)
    assert asked["inner"] < asked["outer"]


def tails_of(problem: DecisionProblem) -> set[tuple[str | None, float]]:
    """Distributions and levels of the tails that compete."""
    rules = candidates(PlanningProblem(problem), 0.1)
    return {(rule.distribution, rule.risk.level) for rule in rules if not rule.risk.is_mean}


def test_which_rules_compete():
    assert tails_of(shop()) == {(distribution, level) for distribution in ("scaled", "uniform") for level in (0.5, 0.7)}
    assert ("scaled", 0.7) in tails_of(one_plant())
    assert not tails_of(plants())  # whole decisions, each row a search with all cuts


@pytest.fixture(scope="module")
def decided():
    """The shop's decider, its fresh rows and how it decides them."""
    residuals, centers, _ = sample(3, n=400)
    decider = ph.RobustDecider(shop(), None, random_state=0).fit(centers[:300], centers[:300] + residuals[:300])
    return decider, centers[300:], centers[300:] + residuals[300:]


def test_tails_of_sums_are_scored_and_named(decided):
    decider, X, Y = decided
    assert "uniform residuals, CVaR 0.7" in {entry.rule for entry in decider.policy_.entries}
    D = decider.decide(X)
    costs = decider.problem.evaluate(D.z, Y)
    # A bound from 60 rows with a mean coverage of .9 covers fewer than 72 of 100 others less than once in 700 draws.
    assert (costs <= D.cost_bound).sum() >= 72


def test_a_file_keeps_tails_of_sums(decided, tmp_path):
    decider, X, _ = decided
    decider.save(tmp_path / "shop.polyhedge")
    again = ph.load(tmp_path / "shop.polyhedge").decide(X)
    np.testing.assert_allclose(again.flat, decider.decide(X).flat, rtol=0, atol=1e-9)


def test_slopes_that_rounding_left_of_nothing_are_none():
    program, columns = shop().feasible.program, shop().feasible.z_columns
    slopes = np.array([[1.0, -3.0, 1.0], [2e-16, -4e-16, 1e-16], [1e-3, 0.0, 1.0]])
    whole = with_cuts(program, columns, slopes, np.zeros(3), np.zeros(3, dtype=np.int64))
    seen = whole.A.toarray()[-3:, columns]
    assert (seen[1] == 0).all()
    assert (seen[[0, 2]] == slopes[[0, 2]]).all()
