"""The guard of a policy: its exact law, and what the proof asks for, with everything in play.

False-alarm rates: each test of a law fails for a correct library with probability 0.001 over the choice of its seed;
the seeds are fixed, so a run is deterministic.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.calibration import conformal_radius

FALSE_ALARM = 0.001
REPETITIONS = 300


def rows(n: int, rng: np.random.Generator, X: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Steps that a line misses, with noise that grows: a spread pays."""
    X = rng.normal(size=(n, 2)) if X is None else X
    noise = (0.2 + np.abs(X[:, [1]])) * rng.normal(size=(n, 2))
    return X, 3 + np.column_stack([6.0 * (X[:, 0] > 0), np.zeros(n)]) + noise


def simplex() -> ph.DecisionProblem:
    return ph.problems.simplex_linear([0.0, 0.0])


def coverages(decider: ph.RobustDecider, draw, m: int, rng: np.random.Generator, n_known: int = 10_000) -> np.ndarray:
    """Coverage of the frozen policy after each of many calibrations with m fresh rows."""
    guard, alpha = decider.model_.family, decider.alpha
    # Scores that are equal but for the rounding of sums are ties.
    fresh, known = (guard.at(X).scores(Y).round(9) for X, Y in (draw(REPETITIONS * m, rng), draw(10_000, rng)))
    scores, ranked = fresh.reshape(REPETITIONS, m), np.sort(known)
    return np.array([np.searchsorted(ranked, conformal_radius(s, alpha), side="right") / len(ranked) for s in scores])


@pytest.fixture(scope="module")
def selected():
    rng = np.random.default_rng(5)
    X, Y = rows(300, rng)
    return ph.RobustDecider(simplex(), LinearRegression(), alpha=0.2, random_state=0).fit(X, Y), rng


@pytest.mark.parametrize("m", [9, 30])
def test_coverage_after_a_selection_with_a_spread_follows_the_beta_law(selected, m):
    decider, rng = selected
    assert not decider.model_.family.policy.distribution.is_uniform
    assert stats.kstest(coverages(decider, rows, m, rng), ph.coverage_law(m, 0.2).cdf).pvalue > FALSE_ALARM


def test_coverage_of_a_users_policy_follows_the_beta_law():
    rng = np.random.default_rng(6)
    decider = ph.RobustDecider(
        simplex(), LinearRegression(), policy=lambda X: np.column_stack([X[:, 0] < 0, X[:, 0] >= 0]), alpha=0.2
    )
    decider.fit(*rows(100, rng))
    assert stats.kstest(coverages(decider, rows, 15, rng), ph.coverage_law(15, 0.2).cdf).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_ties_of_whole_decisions_and_demands_make_coverage_larger_and_never_smaller():
    rng, m = np.random.default_rng(7), 9
    X, Y = rows(100, rng)
    problem = ph.problems.newsvendor(1.0, 2.0, 2, capacity=15, integer=True)
    decider = ph.RobustDecider(problem, LinearRegression(), alpha=0.2, random_state=0)
    decider.fit(X, np.maximum(Y.round(), 0.0))
    contexts = rng.normal(size=(40, 2))
    placed = decider.model_.family.at(contexts)
    np.testing.assert_allclose(placed.planned.z, placed.planned.z.round(), atol=1e-6)

    def draw(n):
        which = rng.integers(len(contexts), size=n)
        return placed.take(which).scores(np.maximum(rows(n, rng, contexts[which])[1].round(), 0.0)).round(9)

    ranked = np.sort(draw(10_000))
    assert len(np.unique(ranked)) < 1000  # ties there are
    radii = [conformal_radius(scores, 0.2) for scores in draw(REPETITIONS * m).reshape(REPETITIONS, m)]
    found = np.searchsorted(ranked, radii, side="right") / len(ranked)
    # One-sided: how far the share of small coverages lies above the law's.
    assert stats.kstest(found, ph.coverage_law(m, 0.2).cdf, alternative="greater").pvalue > FALSE_ALARM


def test_rows_of_new_groups_of_near_copies_are_covered_as_promised_on_average(selected):
    decider, rng = selected
    guard, n_groups, copies = decider.model_.family, 12, 5

    def draw(n):
        X, Y = rows(n, rng)
        labels = np.repeat(np.arange(n), copies)
        return guard.at(X[labels]).scores(Y[labels] + 0.1 * rng.normal(size=(n * copies, 2))), labels

    scores, labels = draw(REPETITIONS * n_groups)
    ranked = np.sort(draw(3000)[0])
    parts = np.split(scores, REPETITIONS), np.split(labels, REPETITIONS)
    radii = [ph.calibration.grouped_radius(s, own, 0.2) for s, own in zip(*parts, strict=True)]
    found = np.searchsorted(ranked, radii, side="right") / len(ranked)
    assert found.mean() > 0.8 - stats.norm.isf(FALSE_ALARM) * stats.sem(found)


def test_calibration_rows_of_their_own_choose_nothing():
    # A hundred calibration rows: learning rows make the policy, and only these set the radius.
    X, Y = rows(160, np.random.default_rng(8))
    parts = {"train": np.arange(40), "learn": np.arange(40, 60), "calibrate": np.arange(60, 160)}
    other = Y.copy()
    other[60:] = 5 * Y[60:] + 3
    one, two = (
        ph.RobustDecider(simplex(), LinearRegression(), alpha=0.2, random_state=0).fit(X, its, **parts)
        for its in (Y, other)
    )
    assert one.n_calibrate_ == two.n_calibrate_ == 100
    policy, its = (decider.model_.family.at(X).planned for decider in (one, two))
    assert (policy.z == its.z).all()
    assert (policy.v == its.v).all()
    assert one.policy_ == two.policy_
    points = [decider.model_.family.policy.distribution.points for decider in (one, two)]
    assert (points[0] == points[1]).all()
    assert (one.decide(X).cost_bound == policy.v + one.radius_).all()
    radius, order = one.radius_, np.random.default_rng(0).permutation(parts["calibrate"])
    assert two.radius_ != radius == one.recalibrate(X[order], Y[order]).radius_
