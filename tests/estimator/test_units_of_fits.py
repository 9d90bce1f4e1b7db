"""Whole fits are the same in all units, for outcomes up to 1e4 spreads from 0: random problems, both guarantees.

Costs are piecewise linear. Where they bend, an interior-point method leaves a gap of 1e-9 of the costs. Decisions are
then known to its root, 3e-5, and so are the bounds on their costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import polyhedge as ph


def problem_of(kind: str, d: int, rng: np.random.Generator) -> Callable[[np.ndarray, float, float, float], Any]:
    """A random problem of a kind, to be written in any units."""
    a, A, most = rng.normal(size=d), rng.normal(size=(3, d)), rng.uniform(0.5, 1.0, size=d)
    over, under = rng.uniform(0.5, 1.5, size=d), rng.uniform(1.5, 4.0, size=d)
    least, room = rng.uniform(0.2, 0.5), d * rng.uniform(1.0, 2.0)

    def make(outcome: np.ndarray, shift: float, decision: float, cost: float) -> ph.DecisionProblem:
        z, fee = cp.Variable(d, nonneg=True), cp.Variable()
        parts, in_spreads = z / decision, lambda u: cp.multiply(1 / outcome, u) - shift
        costs = {
            "budget": lambda z, u: (in_spreads(u) + a) @ z,
            "shop": lambda z, u: over @ cp.pos(z - in_spreads(u)) + under @ cp.pos(in_spreads(u) - z),
            "orders": lambda z, u: over @ cp.pos(z - in_spreads(u)) + under @ cp.pos(in_spreads(u) - z),
            "pieces": lambda z, u: most @ z + cp.max(A @ in_spreads(u) - A @ z),
            "fee": lambda z, u: in_spreads(u) @ z,
        }
        limits = {
            "budget": [cp.sum(parts) == 1, parts <= most],
            "shop": [cp.sum(z) <= room * decision],
            "pieces": [cp.sum(parts) <= 2],
            "fee": [
                cp.sum(z) == decision,
                fee >= cost * (parts[0] - parts[-1]),
                fee >= under[0] * cost * (parts[-1] - least),
            ],
        }
        # The fee is a decision in units of costs.
        return ph.DecisionProblem(
            decision=[z, fee] if kind == "fee" else [z],
            cost=lambda z, u: cost * costs[kind](z[0] / decision, u) + (z[1] if kind == "fee" else 0.0),
            constraints=limits.get(kind, []),
            n_outcomes=d,
        )

    return make


def errors(kind: str, guarantee: str, seed: int) -> list[float]:
    """How far bounds in two other units, the second with a shift, are from the usual ones, in spreads of costs."""
    rng = np.random.default_rng([seed, *map(ord, kind)])
    d, n = int(rng.integers(2, 4)), 48
    make, X = problem_of(kind, d, rng), rng.normal(size=(n, 2))
    Y = 1 + X @ rng.normal(size=(2, d)) + rng.normal(size=(n, d))
    learner = ph.learners.Auto(n_folds=2, training_folds=2) if guarantee == "outcome" else None

    def fitted(outcome: np.ndarray, shift: float, decision: float, cost: float) -> ph.Decisions:
        problem = make(outcome, shift, decision, cost)
        settings: dict[str, Any] = {"guarantee": guarantee, "learner": learner, "alpha": 0.25, "random_state": 0}
        return ph.RobustDecider(problem, LinearRegression(), **settings).fit(X, outcome * (Y + shift)).decide(X[:8])

    usual = fitted(np.ones(d), 0.0, 1.0, 1.0)
    spread = np.ptp(make(np.ones(d), 0.0, 1.0, 1.0).evaluate(np.tile(usual.flat[0], (n, 1)), Y))
    found = []
    for shift in (0.0, 10.0 ** rng.uniform(0, 4)):
        outcome, (decision, cost) = 10.0 ** rng.uniform(-6, 6, size=d), 10.0 ** rng.uniform(-6, 6, size=2)
        bounds = fitted(outcome, shift, decision, cost).cost_bound / cost
        found.append(float(np.abs(bounds - usual.cost_bound).max() / spread))
    return found


QUICK, SLOW = range(2), range(2, 12)
CASES = [
    pytest.param(kind, guarantee, seeds, marks=marks, id=f"{kind}-{guarantee}-{seeds.start}")
    for kind in ("budget", "shop", "orders", "pieces", "fee")
    for guarantee in ("outcome", "cost")
    for seeds, marks in ((QUICK, ()), (SLOW, pytest.mark.slow))
]


@pytest.mark.parametrize(("kind", "guarantee", "seeds"), CASES)
def test_bounds_of_whole_fits_are_the_same_in_all_units_and_wherever_outcomes_lie(
    kind: str, guarantee: str, seeds: range
) -> None:
    found = {seed: max(errors(kind, guarantee, seed)) for seed in seeds}
    # A slope at the border of two numbers that a descent may see moves the set by the step between them.
    assert sum(error > 1e-6 for error in found.values()) <= len(seeds) // 10, found
    assert max(found.values()) <= 1e-5, found
