"""Of all decisions with the least bound, the one with the least mean cost over the learning residuals is taken."""

from dataclasses import replace
from functools import cache
from itertools import product

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.planning import LeastMean
from polyhedge.planning.separable import separable_of
from polyhedge.predictors.regressor import as_predictor
from polyhedge.regions import LearnedSet, Work
from polyhedge.robust import Adversary
from polyhedge.sets import Box, Polyhedron


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
    family = LearnedSet(problem, as_predictor("precomputed", d), shape, ties=LeastMean.of(problem, residuals))
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
        adversary = Adversary(own, sets.shape.scaled(float(sets.scales[i])), 1.0, sets.centers[i])
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
    alone = replace(sets.take(rows), work=Work(n_jobs=1)).decide(radii[rows])
    np.testing.assert_array_equal(alone.flat, few.flat)


def test_a_decision_without_rival_stays_to_the_last_bit():
    for problem in (ph.problems.simplex_linear(np.zeros(4)), ph.problems.simplex_quadratic(np.zeros(2), 0.1)):
        d, rng = problem.n_outcomes, np.random.default_rng(1)
        ties = LeastMean.of(problem, rng.normal(size=(50, d)))
        sets = LearnedSet(problem, as_predictor("precomputed", d), Box(np.linspace(0.5, 1, d)), ties=ties)
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


def newsvendor(d: int, kind: str, over=1.0, under=4.0, weights=1.0, upper: float = np.inf) -> ph.DecisionProblem:
    """A newsvendor whose cap of 2 a product is an equation or a limit."""
    z, (over, under, weights) = cp.Variable(d, nonneg=True), (np.broadcast_to(v, d) for v in (over, under, weights))
    limits = [weights @ z == 2.0 * d if kind == "==" else weights @ z <= 2.0 * d]
    limits += [z <= upper] if np.isfinite(upper) else []
    cost = lambda z, u: over @ cp.pos(z - u) + under @ cp.pos(u - z)  # noqa: E731
    return ph.DecisionProblem(decision=z, cost=cost, constraints=limits, n_outcomes=d)


def facets(d: int) -> Polyhedron:
    W = np.vstack([np.eye(d), -np.eye(d), np.random.default_rng(d).normal(size=(4, d))])
    return Polyhedron(W / np.linalg.norm(W, axis=1)[:, None], -np.linspace(0.0, 0.5, len(W)))


# Problem, shape, mean demand (the cap is 2 a product), whether sets have sizes of their own.
CAPPED = {
    "scarce": (newsvendor(2, "<="), Box([1.3, 2.0]), 3.0, False),
    "scarce, far below all demand": (newsvendor(2, "<="), Box([1.3, 2.0]), 9.0, False),
    "scarce, three": (newsvendor(3, "<="), Box([1.3, 1.7, 2.0]), 3.0, False),
    "scarce, three, an equation": (newsvendor(3, "=="), Box([1.3, 1.7, 2.0]), 3.0, False),
    "a segment": (newsvendor(2, "=="), Box([1.3, 2.0]), 2.5, False),
    "plenty": (newsvendor(2, "<="), Box([1.3, 2.0]), 1.0, False),
    "plenty, three": (newsvendor(3, "<=", 4.0, 1.0), Box([1.3, 1.7, 2.0]), 2.2, False),
    "plenty, three, an equation": (newsvendor(3, "=="), facets(3), 1.0, False),
    "several dearest pieces": (newsvendor(3, "<="), facets(3), 1.8, False),
    "upper bounds": (newsvendor(3, "<=", upper=2.5), Box([1.3, 1.7, 2.0]), 3.0, False),
    "weights": (newsvendor(2, "<=", 1.0, [3.2, 4.8], weights=[0.8, 1.2]), Box([1.3, 2.0]), 2.2, False),
    "costs of their own": (newsvendor(2, "<=", [1.0, 2.0], [4.0, 3.0]), Box([1.3, 2.0]), 2.2, False),
    "sizes of their own": (newsvendor(2, "<="), Box([1.3, 2.0]), 2.2, True),
    "sizes of their own, three": (newsvendor(3, "<="), facets(3), 1.8, True),
}


def around_demand(name: str, n: int = 70):
    problem, shape, mean, is_scaled = CAPPED[name]
    rng, d = np.random.default_rng(5), problem.n_outcomes
    centers, residuals = mean + 0.7 * rng.normal(size=(n, d)), rng.normal(size=(300, d)) * np.linspace(0.7, 1.2, d)
    family = LearnedSet(problem, as_predictor("precomputed", d), shape, ties=LeastMean.of(problem, residuals))
    sets = family.around(centers, centers)
    return replace(sets, scales=np.where(np.arange(n) % 2, 1.2, 0.8)) if is_scaled else sets, np.full(n, 1.0)


@cache
def decided(name: str):
    """Sets, radii and decisions of all rows, which several tests look at."""
    sets, radii = around_demand(name)
    return sets, radii, sets.decide(radii)


def capped_grid(problem: ph.DecisionProblem) -> np.ndarray:
    """Decisions within the limits on a fine grid, among them those that use up the cap."""
    terms, n = separable_of(problem), {2: 600, 3: 70}[problem.n_decisions]
    free = [np.linspace(0.0, min(upper, terms.limit / a), n) for a, upper in zip(terms.row, terms.upper, strict=True)]
    rest = np.array(list(product(*free[:-1])))
    last = (terms.limit - rest @ terms.row[:-1]) / terms.row[-1]
    using_up = np.column_stack([rest, last])[(last >= 0) & (last <= terms.upper[-1])]
    if terms.is_equation:
        return using_up
    inner = np.array(list(product(*(axis[:: 3 if len(free) == 2 else 4] for axis in free))))
    return np.vstack([using_up, inner[inner @ terms.row <= terms.limit]])


def worst_cases(sets, i: int, radius: float, z: np.ndarray) -> np.ndarray:
    """The worst-case cost of each decision by the support of the set in the directions of the pieces."""
    pieces = sets.problem.structure.pieces
    reach = sets.scales[i] * sets.shape.support(pieces.q, radius) + pieces.q @ sets.centers[i]
    return (reach + z @ pieces.p.T + pieces.c).max(axis=1)


@pytest.mark.parametrize("name", CAPPED)
def test_no_decision_on_a_grid_with_the_same_bound_has_a_lower_mean_cost(name):
    sets, radii, found = decided(name)
    grid, n_rivals = capped_grid(sets.problem), 0
    np.testing.assert_array_equal(found.cost_bound, replace(sets, ties=None).decide(radii).cost_bound)
    means = sets.ties.mean_costs(sets, found.flat)
    for i in range(0, len(radii), 12):
        outcomes = sets.centers[i] + sets.scales[i] * sets.ties.points
        deviation = sets.problem.evaluate(np.tile(found.flat[i], (300, 1)), outcomes).std()
        assert worst_cases(sets, i, 1.0, found.flat[[i]])[0] <= found.cost_bound[i] + 1e-6 * deviation
        rivals = grid[worst_cases(sets, i, 1.0, grid) <= found.cost_bound[i] * (1 + 1e-9)]
        rivals, n_rivals = rivals[:: 1 + len(rivals) // 1000], n_rivals + len(rivals)
        if len(rivals):
            least = sets.ties.mean_costs(sets.take(np.full(len(rivals), i)), rivals).min()
            assert means[i] <= least + 1e-3 * deviation
    assert n_rivals


@pytest.mark.parametrize("name", CAPPED)
def test_a_row_decides_alone_as_in_company(name):
    sets, radii, found = decided(name)
    scale = np.ptp(found.flat, axis=0).max()
    for i in range(0, len(radii), 23):
        for rows in ([i], [i, (i + 1) % len(radii)]):
            own = sets.take(np.array(rows)).decide(radii[rows])
            np.testing.assert_allclose(own.flat[0], found.flat[i], rtol=0, atol=1e-6 * scale)
            np.testing.assert_allclose(own.cost_bound[0], found.cost_bound[i], rtol=1e-9)


@pytest.mark.parametrize("name", ["scarce", "plenty", "plenty, three, an equation", "sizes of their own, three"])
def test_what_was_found_first_does_not_matter(name):
    sets, radii = around_demand(name, 16)
    first = replace(sets, ties=None).decide(radii)
    known = sets.ties.broken(sets, radii, replace(first, may_tie=np.ones(len(radii), dtype=bool)))
    other = sets.ties.broken(sets, radii, replace(known, may_tie=np.ones(len(radii), dtype=bool)))
    np.testing.assert_allclose(other.flat, known.flat, rtol=0, atol=1e-6 * np.ptp(known.flat, axis=0).max())


@pytest.mark.parametrize("upper", [20.0, np.inf])
def test_one_decision_that_costs_nothing_beyond_all_demand_is_the_same_in_any_company(upper):
    z = cp.Variable(1, nonneg=True)
    limits = [z <= upper] if np.isfinite(upper) else []
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: 4 * cp.pos(u - z), constraints=limits, n_outcomes=1)
    rng = np.random.default_rng(0)
    centers, residuals = 3 + rng.normal(size=(70, 1)), rng.normal(size=(300, 1))
    family = LearnedSet(problem, as_predictor("precomputed", 1), Box([1.0]), ties=LeastMean.of(problem, residuals))
    sets, radii = family.around(centers, centers), np.ones(70)
    found = sets.decide(radii)
    assert sets.ties.mean_costs(sets, found.flat).max() < 1e-6
    assert (found.cost_bound < 1e-6).all()
    for i in range(0, 70, 10):
        np.testing.assert_allclose(sets.take(np.array([i])).decide(radii[[i]]).flat[0], found.flat[i], atol=1e-6)


@pytest.mark.parametrize("mean", [1.0, 3.0])
@pytest.mark.parametrize(("unit", "price", "origin"), [(1e6 / 3, 1.0, 0.0), (1e-5, 1e4 / 7, 0.0), (1.0, 1.0, 1e4)])
def test_units_and_where_zero_lies_change_no_choice_among_ties(mean, unit, price, origin):
    rng, found = np.random.default_rng(0), []
    centers, residuals = mean + 0.7 * rng.normal(size=(12, 3)), rng.normal(size=(200, 3))
    for k, m, o in ((1.0, 1.0, 0.0), (unit, price, origin)):
        z = cp.Variable(3)
        cost = lambda z, u, m=m: m * cp.sum(cp.pos(z - u) + 4 * cp.pos(u - z))  # noqa: E731
        limits = [z >= o * k, cp.sum(z) <= (6 + 3 * o) * k]
        problem = ph.DecisionProblem(decision=z, cost=cost, constraints=limits, n_outcomes=3)
        ties, shape = LeastMean.of(problem, k * residuals), Box(k * np.array([1.3, 1.7, 2.0]))
        family = LearnedSet(problem, as_predictor("precomputed", 3), shape, ties=ties)
        decisions = family.around((centers + o) * k, centers).decide(np.ones(12))
        assert decisions.may_tie.any()
        found.append(decisions.flat / k - o)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


def test_tied_decisions_keep_uncertain_constraints_for_every_outcome_of_the_set():
    # The cost alone would rather have nothing: the worst outcome of the second constraint asks for 0.5 + 0.3.
    problem = ph.DecisionProblem(
        decision=cp.Variable(2, nonneg=True),
        cost=lambda z, u: z[0] + cp.pos(u[0] - z[0]),
        constraints=[],
        uncertain_constraints=lambda z, u: [z[1] >= u[1]],
        n_outcomes=2,
    )
    residuals = 0.25 * np.random.default_rng(0).normal(size=(60, 2))
    family = LearnedSet(problem, as_predictor("precomputed", 2), Box([0.4, 0.3]), ties=LeastMean.of(problem, residuals))
    centers = np.full((3, 2), 0.5)
    assert (family.around(centers, centers).decide(np.ones(3)).flat[:, 1] >= 0.8 - 1e-7).all()


def test_ties_of_sets_that_a_known_support_cuts_are_broken_over_the_cut_set():
    problem, shape, rng = known_support(), Box([0.4, 0.3, 0.5]), np.random.default_rng(1)
    residuals, centers = 0.25 * rng.normal(size=(60, 3)), rng.uniform(0.05, 0.25, size=(6, 3))
    family = LearnedSet(problem, as_predictor("precomputed", 3), shape, ties=LeastMean.of(problem, residuals))
    sets = family.around(centers, centers)
    found, rivals = sets.decide(np.ones(6)), decisions_around(problem, 12)
    for i, (center, z, bound) in enumerate(zip(centers, found.flat, found.cost_bound, strict=True)):
        adversary = Adversary(problem, shape, 1.0, center)
        assert adversary.worst_case(z).value <= bound + 1e-6
        tied = np.array([one for one in rivals if adversary.worst_case(one).value <= bound + 1e-9])
        if len(tied):
            costs = sets.ties.mean_costs(sets.take(np.full(len(tied), i)), tied)
            assert sets.ties.mean_costs(sets.take(np.array([i])), z[None])[0] <= costs.min() + 5e-4
