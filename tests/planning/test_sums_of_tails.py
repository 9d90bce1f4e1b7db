"""Sums of the tails of coupled maxima: the rules that need a program for each row."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.programs import with_cuts
from polyhedge.planning.residual_distributions import Uniform
from polyhedge.planning.risk import Risk
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


def sum_of_tails(z, u, level: float) -> float:
    """CVaR of each product's cost by its definition, summed up."""
    costs = np.sort(np.maximum(z - u, 3 * (u - z)), axis=0)
    return float(costs[-round((1 - level) * len(u)) :].mean(axis=0).sum())


def least_sum(u, level: float) -> float:
    """The least of them in the shop: all scenarios in one program, by Rockafellar and Uryasev."""
    z, at = cp.Variable(u.shape[1], nonneg=True), cp.Variable(u.shape[1])
    costs = cp.maximum(cp.vstack([z] * len(u)) - u, 3 * (u - cp.vstack([z] * len(u))))
    over = cp.sum(cp.pos(costs - cp.vstack([at] * len(u)))) / ((1 - level) * len(u))
    limits = [cp.sum(z) <= 3 * u.shape[1], z[0] + 2 * z[1] <= 6, z <= 20]
    return float(cp.Problem(cp.Minimize(cp.sum(at) + over), limits).solve(solver=cp.HIGHS))


@pytest.mark.parametrize("level", [0.0, 0.5, 0.9])
def test_sum_of_tails_is_as_low_as_all_residuals_in_one_program_make_it(level):
    residuals, centers, nothing = sample(3)
    problem, distribution = shop(), Uniform(residuals)
    planner = fit_planner(
        PlanningProblem(problem), Rule("uniform", Risk(level)), distribution, centers, centers, nothing
    )
    z = planner(centers[:6], centers[:6], nothing[:6])
    reached = np.array([sum_of_tails(one, c + residuals, level) for one, c in zip(z, centers[:6], strict=True)])
    least = np.array([least_sum(c + residuals, level) for c in centers[:6]])
    deviation = problem.evaluate(np.tile(z[0], (len(residuals), 1)), centers[0] + residuals).std()
    assert np.all(reached >= least - 1e-6)
    assert np.all(reached <= least + 3e-3 * deviation)


def tails_of(problem: DecisionProblem) -> set[tuple[str | None, float]]:
    """Distributions and levels of the tails that compete."""
    rules = candidates(PlanningProblem(problem), 0.1)
    return {(rule.distribution, rule.risk.level) for rule in rules if not rule.risk.is_mean}


def test_which_rules_compete():
    assert tails_of(shop()) == {(distribution, level) for distribution in ("scaled", "uniform") for level in (0.5, 0.7)}
    assert ("scaled", 0.7) in tails_of(one_plant())
    assert not tails_of(plants())  # whole decisions, each row a search with all cuts


def test_slopes_that_rounding_left_of_nothing_are_none():
    program, columns = shop().feasible.program, shop().feasible.z_columns
    slopes = np.array([[1.0, -3.0, 1.0], [2e-16, -4e-16, 1e-16], [1e-3, 0.0, 1.0]])
    whole = with_cuts(program, columns, slopes, np.zeros(3), np.zeros(3, dtype=np.int64))
    seen = whole.A.toarray()[-3:, columns]
    assert (seen[1] == 0).all()
    assert (seen[[0, 2]] == slopes[[0, 2]]).all()
