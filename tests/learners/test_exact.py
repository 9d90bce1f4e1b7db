"""Exact learning: certificates equal brute force over all selections, and the learned set attains them."""

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import polyhedge as ph
from polyhedge.calibration import conformal_rank
from polyhedge.learners import Descent, Samples, Scenario, lower_bound
from polyhedge.learners.exact.bound import Budget
from polyhedge.learners.exact.segment import select_on_segment
from polyhedge.learners.exact.selection import HullOracle, SelectionSearch, star_inequality
from polyhedge.learners.objective import ROUTES, FacetCosts, reach_cost
from polyhedge.problems.structure import Segment
from polyhedge.robust import decide
from polyhedge.solvers.program import Status


def ridge_problem(d):
    z = cp.Variable(d, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.max(cp.hstack([u @ z, 0.5 * u[0] + z[0], 0.2])) + 0.1 * cp.sum_squares(z),
        constraints=[cp.sum(z) == 1],
        n_outcomes=d,
    )


PROBLEMS = {
    "segment, linear": (2, lambda: ph.problems.simplex_linear([-0.08, 0.0])),
    "segment, quadratic": (2, lambda: ph.problems.simplex_quadratic([-0.08, 0.0], 0.1)),
    "fixed directions": (2, lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 2)),
    "fixed directions, d=3": (3, lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 3)),
    "simplex, d=3": (3, lambda: ph.problems.simplex_linear(np.zeros(3))),
    "quadratic, d=3": (3, lambda: ph.problems.simplex_quadratic(np.zeros(3), 0.05)),
    "portfolio": (3, lambda: ph.problems.portfolio(0.1 * np.eye(3))),
    "user's maximum": (2, lambda: ridge_problem(2)),
}


def draw(n, d, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d))


def best_of_all_selections(problem, residuals, centers, rank):
    """min over S of the mean of min_z max over the points of S, each by its own convex program."""
    best = np.inf
    for chosen in combinations(range(len(residuals)), rank):
        total = 0.0
        for center in centers:
            z = problem.decision
            costs = [problem.expression(z, cp.Constant(center + residuals[j])) for j in chosen]
            model = cp.Problem(cp.Minimize(cp.maximum(*costs)), list(problem.constraints))
            total += model.solve(solver=cp.CLARABEL)
        best = min(best, total / len(centers))
    return best


@pytest.mark.parametrize("n_contexts", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_certified_bound_equals_brute_force_over_all_selections(name, n_contexts):
    d, make = PROBLEMS[name]
    problem, (residuals, centers) = make(), draw(7, d, 0)
    bound = lower_bound(Samples(residuals, centers[:n_contexts], problem, 0.3))
    expected = best_of_all_selections(problem, residuals, centers[:n_contexts], conformal_rank(7, 0.3))
    assert bound.status is Status.OPTIMAL
    assert bound.lower == pytest.approx(expected, abs=2e-6)
    assert bound.upper == pytest.approx(expected, abs=2e-6)
    assert bound.kept.sum() >= conformal_rank(7, 0.3)


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in ("segment, quadratic", "user's maximum")]


@pytest.mark.parametrize("name", ["segment, linear", "fixed directions", *SLOWER])
def test_the_general_search_agrees_with_the_special_methods(name):
    d, make = PROBLEMS[name]
    problem, (residuals, centers) = make(), draw(12, d, 3)
    samples = Samples(residuals, centers, problem, 0.2)
    search, special = SelectionSearch(samples, 1e-6, Budget(np.inf)).run(), lower_bound(samples)
    assert search.lower == pytest.approx(special.lower, abs=1e-5)
    assert search.upper == pytest.approx(special.upper, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.just(0.0) | st.floats(1e-6, 1))
def test_the_envelope_program_is_exact_also_with_ties(seed, tied, curvature):
    rng = np.random.default_rng(seed)
    residuals, centers = rng.normal(size=(8, 2)), rng.normal(size=(4, 2))
    if tied:
        residuals = residuals.round()
    segment = ph.problems.simplex_quadratic([0.1, 0.0], curvature).structure.segment
    selection = select_on_segment(segment, residuals, centers, 5)
    s = np.linspace(0, 1, 2001)
    lines = np.outer(1 - s, residuals @ segment.v0) + np.outer(s, residuals @ segment.v1)
    base = segment.base[0] + (segment.base[1] + segment.base[2] * s) * s
    contexts = base + np.outer(centers @ segment.v0, 1 - s) + np.outer(centers @ segment.v1, s)
    best = min(
        (contexts + lines[:, list(chosen)].max(axis=1)).min(axis=1).mean() for chosen in combinations(range(8), 5)
    )
    kept, value = selection
    assert best - 2e-3 <= value <= best + 1e-9
    assert kept.sum() >= 5


@pytest.mark.parametrize("quadratic", [0.0, 0.7])
@pytest.mark.parametrize("lattice", [False, True], ids=["general position", "ties"])
def test_for_one_context_the_envelope_program_finds_the_least_order_statistic(quadratic, lattice):
    rng = np.random.default_rng(3)
    for _ in range(20):
        n = int(rng.integers(3, 20))
        rank = int(rng.integers(1, n + 1))
        residuals = rng.integers(-2, 3, size=(n, 2)).astype(float) if lattice else rng.normal(size=(n, 2))
        base, center = np.array([0.3, rng.normal(), quadratic]), rng.normal(size=2)
        segment = Segment(*np.eye(2), *np.eye(2), base=base)
        kept, value = select_on_segment(segment, residuals, center[None], rank)
        # All crossings of two lines, all stationary points and both ends.
        alpha, beta = residuals[:, 0], residuals[:, 1] - residuals[:, 0]
        g = base + np.array([center[0], center[1] - center[0], 0.0])
        with np.errstate(divide="ignore", invalid="ignore"):
            s = ((alpha[:, None] - alpha) / (beta - beta[:, None])).ravel()
            s = np.concatenate([s, -(g[1] + beta) / (2 * g[2])])
        s = np.concatenate([s[np.isfinite(s) & (s > 0) & (s < 1)], [0.0, 1.0]])
        levels = np.sort(alpha + beta * s[:, None], axis=1)[:, rank - 1]
        assert value == pytest.approx((g[0] + g[1] * s + g[2] * s**2 + levels).min(), abs=1e-9)
        assert kept.sum() >= rank


@pytest.mark.parametrize(
    "name", ["simplex, d=3", pytest.param("user's maximum", marks=pytest.mark.slow), "fixed directions"]
)
def test_disjoint_mixtures_have_disjoint_members_and_falling_values_that_prove_a_floor(name):
    d, make = PROBLEMS[name]
    problem, (residuals, centers) = make(), draw(9, d, 5)
    oracle = HullOracle(problem, residuals, centers[:1])
    mixtures = oracle.disjoint_mixtures(0, 3)
    members = [j for mixture in mixtures for j in mixture.members]
    assert len(members) == len(set(members))
    values = [mixture.value for mixture in mixtures]
    assert values == sorted(values, reverse=True)
    assert len(mixtures) == 3 or not mixtures[-1].members
    for dropped in combinations(range(9), 2):
        kept = np.ones(9, dtype=bool)
        kept[list(dropped)] = False
        assert oracle.evaluate(kept).values[0] >= values[-1] - 1e-7


def test_star_inequalities_hold_at_every_selection():
    problem, (residuals, centers) = PROBLEMS["simplex, d=3"][1](), draw(9, 3, 1)
    oracle = HullOracle(problem, residuals, centers[:1])
    mixtures = oracle.disjoint_mixtures(0, 3)
    ranked = [(m.value, m.members) for m in mixtures[:-1]]
    fractional = np.random.default_rng(0).random(9) * 0.4
    cut = star_inequality(0, ranked, fractional, mixtures[-1].value)
    assert cut is not None
    for dropped in combinations(range(9), 2):
        drop = np.zeros(9)
        drop[list(dropped)] = 1.0
        assert oracle.evaluate(drop == 0).values[0] >= cut.value_at(drop) - 1e-7


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_scenario_set_attains_its_bound_and_covers_the_rank(name):
    d, make = PROBLEMS[name]
    problem, (residuals, centers) = make(), draw(10, d, 2)
    centers = centers[:5]
    objective = Samples(residuals, centers, problem, 0.2)
    result = Scenario().learn(objective)
    assert result.status is Status.OPTIMAL
    assert result.gap == pytest.approx(0.0, abs=1e-5)
    assert result.set.contains(residuals, 1e-9).sum() >= objective.rank
    assert decide(problem, result.set, 0.0, centers).cost_bound.mean() == pytest.approx(result.lower_bound, abs=1e-5)
    assert result.set.is_bounded


@pytest.mark.parametrize("curvature", [0.0, 0.08])
def test_closed_form_costs_and_gradients_equal_the_solver_s(curvature):
    problem, centers = ph.problems.simplex_quadratic([-0.08, 0.0], curvature), draw(40, 2, 0)[1]
    costs, rng = FacetCosts(problem, centers), np.random.default_rng(1)
    for _ in range(15):
        n_facets = int(rng.integers(3, 8))
        W, q = rng.normal(size=(n_facets, 2)), rng.random(n_facets) + 0.3
        fast, slow = (ROUTES[name][1](costs, W, q, np.arange(40)) for name in ("segment", "counterparts"))
        if not np.isfinite(slow.value):
            assert not np.isfinite(fast.value)
            continue
        assert fast.value == pytest.approx(slow.value, abs=1e-7)
        assert fast.q == pytest.approx(slow.q, abs=1e-5)
        assert pytest.approx(slow.W, abs=1e-5) == fast.W


def test_closed_form_ignores_nearly_parallel_pairs_of_facets():
    problem, (residuals, centers) = ph.problems.simplex_quadratic([-0.08, 0.0], 0.08), draw(40, 2, 0)
    shape = ph.Polyhedron([[1.0, 3.8e-12], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], -np.ones(4))
    objective = Samples(residuals, centers, problem, 0.1)
    expected = decide(problem, shape, 0.0, centers).cost_bound.mean()
    assert objective.cost_at(shape, 0.0) == pytest.approx(expected, abs=1e-7)


def test_reach_cost_in_closed_form_equals_linear_programs_and_its_tangent_supports():
    problem, (_, centers) = ph.problems.simplex_newsvendor(0.3, 0.7, 2), draw(20, 2, 0)
    assert problem.structure.has_fixed_directions
    closed = reach_cost(problem, centers)
    reach = np.array([0.3, 0.5, 0.2, 0.4])
    value, constant, slopes = closed.tangent(reach)
    shapes = ph.Polyhedron.from_halfspaces(problem.pieces.q, reach)
    assert value == pytest.approx(decide(problem, shapes, 0.0, centers).cost_bound.mean(), abs=1e-8)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = reach + 0.3 * rng.normal(size=4)
        assert closed.tangent(other)[0] >= constant + slopes @ other - 1e-9


NOT_CERTIFIED = {
    "no pieces": lambda z: {"cost": lambda z, u: cp.square(u @ z)},
    "uncertain_constraints": lambda z: {"uncertain_constraints": lambda z, u: [u @ z <= 5]},
    "outcome_support": lambda z: {"outcome_support": lambda u: [u >= -9]},
}


@pytest.mark.parametrize("kind", NOT_CERTIFIED)
def test_where_no_certificate_exists_the_error_names_a_learner_that_works(kind):
    z = cp.Variable(2, nonneg=True)
    common = {"decision": z, "cost": lambda z, u: u @ z, "constraints": [cp.sum(z) == 1], "n_outcomes": 2}
    problem = ph.DecisionProblem(**{**common, **NOT_CERTIFIED[kind](z)})
    residuals, centers = draw(20, 2, 0)
    with pytest.raises(ValueError, match=r"No certificate is available.*Descent works"):
        Scenario().learn(Samples(residuals, centers, problem, 0.2))
    assert np.isfinite(Descent(n_steps=4, max_contexts=2).learn(Samples(residuals, centers, problem, 0.2)).objective)


def test_too_few_residuals_for_alpha_is_an_error():
    residuals, centers = draw(5, 2, 0)
    with pytest.raises(ValueError, match="needs more than 5 residuals"):
        lower_bound(Samples(residuals, centers, PROBLEMS["segment, linear"][1](), 0.05))


def test_a_bound_without_time_is_valid_and_says_so():
    rng = np.random.default_rng(0)
    samples = Samples(*rng.normal(size=(2, 12, 3)), ph.problems.simplex_linear([0.0, 0.0, 0.0]), 0.2)
    exact, hasty = lower_bound(samples, 60.0), lower_bound(samples, 0.0)
    assert exact.status is Status.OPTIMAL
    assert hasty.status is Status.STOPPED_EARLY
    assert hasty.lower <= exact.lower
    assert hasty.upper >= exact.upper - 1e-9
    hurried = Scenario(time_limit=0.0).learn(samples)
    assert hurried.status is Status.STOPPED_EARLY
    assert hurried.lower_bound <= exact.lower + 1e-7 <= hurried.objective + 2e-7
    assert hurried.set.contains(samples.residuals, 1e-9).sum() >= samples.rank
