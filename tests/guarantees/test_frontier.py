"""The certified frontier: estimates that are valid for a named decider, and limits for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import polyhedge as ph

N_DRAWS, N_ROWS, DELTA, LARGEST = 300, 150, 0.06, 40.0
FALSE_ALARM = 1e-4
LEVELS = np.linspace(0.05, 0.6, 8)


@dataclass
class Fixed:
    """A decider whose rows miss with a known probability, at a cost with heavy tails."""

    alpha: float

    def evaluate(self, X: Any, Y: np.ndarray) -> Any:
        held, ones = Y[:, 0] > self.alpha, np.ones(len(Y))
        costs = np.minimum((1 - Y[:, 1]) ** (-1 / 1.5), LARGEST) - 10 * self.alpha
        more = {"realised": costs, "decided": ones > 0, "cost_bound": 50 * ones}
        return SimpleNamespace(rows=SimpleNamespace(held=held, promise_held=held, **more))


def mean_cost(alpha: float) -> float:
    p = (np.arange(200_000) + 0.5) / 200_000
    return float(np.minimum((1 - p) ** (-1 / 1.5), LARGEST).mean()) - 10 * alpha


def drawn(delta: float = DELTA) -> np.ndarray:
    """Figures (300, 8, columns) of frontiers on fresh rows."""
    rng = np.random.default_rng(0)
    deciders = {alpha: Fixed(alpha) for alpha in LEVELS}
    made = [
        ph.certified_frontier(deciders, None, rng.uniform(size=(N_ROWS, 2)), largest=LARGEST, delta=delta)
        for _ in range(N_DRAWS)
    ]
    assert (np.diff(made[0]["bound"]) == 0).all()
    return np.array([one.to_numpy() for one in made])


def check(found: np.ndarray) -> None:
    """Columns are bound, miscoverage, its limit, cost and its limit."""
    costs = np.array([mean_cost(alpha) for alpha in LEVELS])
    for column, truth in ((1, LEVELS), (3, costs)):
        error = 4 * found[..., column].std(axis=0) / np.sqrt(N_DRAWS)  # three alarms in 100 000 for each
        assert (found[..., column].mean(axis=0) >= truth - error).all(), "estimates are too low"
    broken = (found[..., 2] < LEVELS).any(axis=1) | (found[..., 4] < costs).any(axis=1)
    assert broken.sum() <= stats.binom(N_DRAWS, DELTA).ppf(1 - FALSE_ALARM), "limits are broken too often"


def test_estimates_and_limits_keep_what_they_promise() -> None:
    found = drawn()
    check(found)
    assert (found[..., 1].mean(axis=0) <= LEVELS + 1.5 / (N_ROWS + 1)).all()  # and are no more than a row above


def test_limits_for_one_decider_break_the_promise_for_all_and_the_test_sees_it() -> None:
    with pytest.raises(AssertionError, match="limits are broken too often"):
        check(drawn(16 * DELTA))  # eight deciders, each with a limit of misses and one of costs


def test_frontier_along_caution_and_level_is_of_real_deciders() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1))
    Y = np.clip(20 + 3 * X + 3 * rng.standard_t(3, size=(600, 1)), 0, None)
    problem = ph.problems.newsvendor([1.0], [3.0])
    decider = ph.RobustDecider(problem, "ridge", random_state=0).fit(X[:400], Y[:400])
    frontier = ph.certified_frontier({alpha: decider.at(alpha) for alpha in (0.1, 0.3)}, X[400:], Y[400:])
    seen = decider.evaluate(X[400:], Y[400:])
    assert frontier.loc[0.1, "bound"] == pytest.approx(float(seen.worst_case_cost))
    assert frontier.loc[0.1, "miscoverage"] == pytest.approx((200 * (1 - seen.bound_held) + 1) / 201)
    assert frontier.loc[0.1, "cost"] == pytest.approx(float(seen.realised_cost))
    certified = ph.certified_frontier({"one": decider}, X[400:], Y[400:], largest=90.0).loc["one"]
    assert certified["cost"] == pytest.approx((200 * float(seen.realised_cost) + 90) / 201)
    assert frontier.loc[0.3, "bound"] < frontier.loc[0.1, "bound"]
    assert (frontier["miscoverage_at_most"] > frontier["miscoverage"]).all()
    with pytest.raises(ValueError, match="largest must be at least every cost, got 1 and a cost of"):
        ph.certified_frontier({"one": decider}, X[400:], Y[400:], largest=1.0)
    for nothing in ({}, [decider]):
        with pytest.raises(ValueError, match="a dictionary with at least one fitted decider"):
            ph.certified_frontier(nothing, X[400:], Y[400:])
    with pytest.warns(ph.DiagnosticWarning, match="Seen before"):
        ph.certified_frontier({"one": decider}, X[200:], Y[200:])


@pytest.mark.parametrize(("given", "message"), [({"delta": 0.0}, "delta must lie"), ({"largest": "x"}, "got 'x'")])
def test_wrong_numbers_are_named(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ph.certified_frontier({"a": Fixed(0.1)}, None, np.zeros((3, 2)), **given)
