"""Of all decisions with the least bound, the one with the least mean cost over the learning residuals is taken."""

from dataclasses import replace
from itertools import product

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.plans import LeastMean
from polyhedge.predictors import as_predictor
from polyhedge.regions import ScaledSet, Work
from polyhedge.robust import Adversary
from polyhedge.sets import Box, scaled


def whole(d: int = 3) -> ph.DecisionProblem:
    """Two of three, whole; all cost the same in the worst case where the set is even."""
    z = cp.Variable(d, boolean=True)
    return ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 2], n_outcomes=d)


def half_curved() -> ph.DecisionProblem:
    """Quadratic in the first decision, linear in the others."""
    z = cp.Variable(3, nonneg=True)
    cost, limits = lambda z, u: (z[0] - 0.2) ** 2 + u @ z[1:], [cp.sum(z) == 1]
    return ph.DecisionProblem(decision=z, cost=cost, constraints=limits, n_outcomes=2)


def known_support() -> ph.DecisionProblem:
    z = cp.Variable(3, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.maximum(0.7 * (u - z), 0.3 * (z - u))),
        constraints=[cp.sum(z) == 1],
        n_outcomes=3,
        outcome_support=lambda u: [u >= 0],
    )


def priced() -> ph.DecisionProblem:
    z, price = cp.Variable(3, nonneg=True), cp.Parameter(name="price")
    cost, limits = lambda z, u: price * cp.sum(z) + cp.sum(cp.maximum(0.7 * (u - z), 0.3 * (z - u))), [cp.sum(z) == 1]
    return ph.DecisionProblem(decision=z, cost=cost, constraints=limits, n_outcomes=3)


# Each with a number of rows that its route is for: 64 and more are decided in batch.
CASES = {
    "newsvendor on a segment": (ph.problems.simplex_newsvendor(0.3, 0.7, 2), Box([0.4, 0.3]), 65),
    "newsvendor, batch": (ph.problems.simplex_newsvendor(0.3, 0.7, 3), Box([0.4, 0.3, 0.5]), 65),
    "newsvendor, a few rows": (ph.problems.simplex_newsvendor(0.3, 0.7, 3), Box([0.4, 0.3, 0.5]), 6),
    "linear on a segment, even": (ph.problems.simplex_linear([0.0, 0.0]), Box([1.0, 1.0]), 4),
    "linear, batch, even": (ph.problems.simplex_linear(np.zeros(3)), Box([1.0, 1.0, 1.0]), 64),
    "linear, a few rows, even": (ph.problems.simplex_linear(np.zeros(3)), Box([1.0, 1.0, 1.0]), 4),
    "quadratic": (half_curved(), Box([1.0, 1.0]), 4),
    "whole decisions": (whole(), Box([1.0, 1.0, 1.0]), 4),
    "known support": (known_support(), Box([0.4, 0.3, 0.5]), 3),
    "parameters": (priced(), Box([0.4, 0.3, 0.5]), 3),
}


def placed(name: str, seed: int = 0):
    problem, shape, n = CASES[name]
    rng, d = np.random.default_rng(seed), problem.n_outcomes
    is_even = "even" in name or name in ("whole decisions", "quadratic")
    centers = np.full((n, d), 0.4) if is_even else 0.4 + 0.2 * rng.normal(size=(n, d))
    residuals = 0.25 * rng.normal(size=(60, d)) + 0.05 * rng.normal(size=d)
    scales = np.where(np.arange(n) % 2, 1.0, 0.8) if name == "newsvendor on a segment" else np.ones(n)
    family = ScaledSet(problem, as_predictor("precomputed", d), shape, ties=LeastMean.of(problem, residuals))
    values = 0.1 * rng.uniform(size=(n, 1)) if problem.parameters else None
    return replace(family.around(centers, centers, values), scales=scales), np.full(n, 1.0)


def decisions_around(problem: ph.DecisionProblem, n: int = 7) -> np.ndarray:
    """Many feasible decisions: all whole ones, or a grid."""
    p = problem.n_decisions
    if not problem.parameters and not problem.structure.is_continuous:
        grid = np.array(list(product((0.0, 1.0), repeat=p)))
        return grid[grid.sum(axis=1) == 2]
    steps = np.array([point for point in product(range(n + 1), repeat=p) if sum(point) == n])
    return steps / n


@pytest.mark.parametrize("name", CASES)
def test_bounds_stay_and_the_mean_cost_is_the_least_of_all_decisions_with_this_bound(name):
    sets, radii = placed(name)
    before, after = replace(sets, ties=None).decide(radii), sets.decide(radii)
    np.testing.assert_array_equal(after.cost_bound, before.cost_bound)
    means = [sets.ties.mean_costs(sets, found.flat) for found in (before, after)]
    assert (means[1] <= means[0] + 1e-9).all()
    problem, rivals = sets.problem, decisions_around(sets.problem)
    for i in range(0, len(radii), 40):
        own = problem if sets.values is None else problem.at_values(sets.values[i])
        adversary = Adversary(own, scaled(sets.shape, float(sets.scales[i])), 1.0, sets.centers[i])
        bound = after.cost_bound[i]
        assert adversary.worst_case(after.flat[i]).value <= bound + 1e-6
        cost = problem.evaluate(after.flat[[i]], after.worst_outcome[[i]], None if own is problem else sets.values[[i]])
        assert abs(float(cost[0]) - bound) < 1e-6  # the worst outcome is one of this decision
        tied = np.array([z for z in rivals if adversary.worst_case(z).value <= bound + 1e-9])
        if len(tied):
            rest = sets.take(np.full(len(tied), i))
            spread = 0.25
            assert means[1][i] <= sets.ties.mean_costs(rest, tied).min() + 2e-3 * spread


@pytest.mark.parametrize("name", CASES)
def test_some_decisions_move_and_they_do_not_depend_on_company_or_threads(name):
    # What is found first may be the best by chance, but not with other residuals too.
    for seed in range(4):
        sets, radii = placed(name, seed)
        before, after = replace(sets, ties=None).decide(radii), sets.decide(radii)
        gained = sets.ties.mean_costs(sets, before.flat) - sets.ties.mean_costs(sets, after.flat)
        if gained.max() > 1e-3:
            break
    assert gained.max() > 1e-3
    rows = np.arange(len(radii))[::7][:5]
    few = sets.take(rows).decide(radii[rows])
    np.testing.assert_allclose(few.flat, after.flat[rows], atol=1e-7)
    alone = replace(sets, work=Work(n_jobs=1)).decide(radii)
    np.testing.assert_array_equal(alone.flat, after.flat)


def test_a_decision_without_rival_stays_to_the_last_bit():
    for problem in (ph.problems.simplex_linear(np.zeros(4)), ph.problems.simplex_quadratic(np.zeros(2), 0.1)):
        d, rng = problem.n_outcomes, np.random.default_rng(1)
        ties = LeastMean.of(problem, rng.normal(size=(50, d)))
        sets = ScaledSet(problem, as_predictor("precomputed", d), Box(np.linspace(0.5, 1, d)), ties=ties)
        centers = rng.normal(size=(200, d))
        at = sets.around(centers, centers)
        found = at.decide(np.ones(200))
        assert not found.may_tie.any()
        np.testing.assert_array_equal(found.flat, replace(at, ties=None).decide(np.ones(200)).flat)


def test_a_fit_breaks_ties_by_its_learning_residuals_and_a_file_keeps_them(tmp_path):
    X, Y = ph.data.make_synthetic(260, rng=np.random.default_rng(3))
    problem = ph.problems.simplex_newsvendor(0.3, 0.7, 2)
    learner = ph.learners.Descent(n_steps=20)
    decider = ph.RobustDecider(problem, learner=learner, random_state=0).fit(X[:200], Y[:200])
    family, split = decider.model_.family, decider.split_
    learned = Y[split.learn] - decider.predictor_.predict(X[split.learn])
    np.testing.assert_allclose(family.ties.points, learned)
    assert not set(split.learn) & set(split.calibrate)
    found = decider.decide(X[200:])
    first = replace(family, ties=None).at(X[200:]).decide(np.full(60, decider.radius_))
    assert np.abs(found.flat - first.flat).max() > 1e-3
    decider.save(tmp_path / "model.polyhedge")
    np.testing.assert_array_equal(ph.load(tmp_path / "model.polyhedge").decide(X[200:]).flat, found.flat)
    guarded = ph.RobustDecider(problem, learner=ph.learners.OneSidedBox(), guarantee="cost", random_state=0)
    assert guarded.fit(X[:200], Y[:200]).model_.family.sets.ties is None


def test_files_cannot_bring_ties_that_no_fit_makes():
    from polyhedge.plans import ties_from

    problem = ph.problems.simplex_linear([0.0, 0.0])
    for points in (np.zeros((0, 2)), np.zeros((3, 3)), np.zeros((3001, 2)), np.zeros((3, 2), dtype=int)):
        with pytest.raises(ValueError, match="at most 3000 residuals of 2 outcomes"):
            ties_from(problem, points)
