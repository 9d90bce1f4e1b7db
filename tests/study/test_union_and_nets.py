"""Unions of balls and level sets of convex networks, and decisions where every context has a set of its own."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from polyhedge.problems import DecisionProblem, simplex_linear, simplex_newsvendor, simplex_quadratic
from polyhedge.robust import Adversary, decide
from polyhedge.sets import Ball, Box, Region
from polyhedge.solvers.linear import maximise_conic
from polyhedge_study.baselines.union_of_balls import UnionOfBalls
from polyhedge_study.each_context import decide_each, has_segment, least_maximum
from polyhedge_study.nets import ConvexNet, ConvexNets
from polyhedge_study.nets.net_decisions import decide_nets, guarded_sets
from polyhedge_study.nets.net_saddle import supports

ANCHORS = np.array([[0.0, 0.0], [1.0, 0.4], [-0.3, 1.1], [0.4, 0.4], [3.0, -1.0]])
PROBLEMS = {
    "linear": simplex_linear([-0.08, 0.0]),
    "quadratic": simplex_quadratic([-0.08, 0.0], beta=0.08),
    "newsvendor": simplex_newsvendor(0.3, 0.7, 2),
}
seeds = st.integers(0, 2**32 - 1)
fast = settings(max_examples=25, deadline=None)


def circle(n: int) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return np.column_stack([np.cos(angles), np.sin(angles)])


def grid_points(half: float, n: int) -> np.ndarray:
    axis = np.linspace(-half, half, n)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


# --- unions of balls -----------------------------------------------------------------------------------------


def test_contains_is_the_union_and_not_its_hull():
    union = UnionOfBalls([[0.0, 0.0], [4.0, 0.0]])
    assert not union.contains([[2.0, 0.0]], 1.0)[0]
    assert union.support([1.0, 0.0], 1.0) == 5.0
    assert not Region(union, 1.0, [0.0, 0.0]).contains([2.0, 0.0])


def test_a_negative_radius_gives_the_empty_union():
    union = UnionOfBalls(ANCHORS)
    assert union.support([1.0, 0.0], -0.1) == -np.inf
    assert union.volume(-0.1) == 0
    assert maximise_conic(union.conic_form(-0.1), np.eye(2)).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.9, 2.0, 5.0])
def test_the_area_of_two_discs_is_that_of_the_textbook_within_five_standard_errors(distance):
    half = min(distance / 2, 1.0)
    lens = 2 * math.acos(half) - 2 * half * math.sqrt(1 - half**2)
    union = UnionOfBalls([[0.3, -0.2], [0.3 + distance * 0.6, -0.2 + distance * 0.8]])
    area = union.volume(1.0, rng=np.random.default_rng(0))
    assert abs(area - (2 * math.pi - lens)) <= 5 * area.standard_error + 1e-9


def test_anchors_must_be_points():
    with pytest.raises(ValueError, match="at least one point"):
        UnionOfBalls(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="read-only"):
        UnionOfBalls(ANCHORS).anchors[0] = 1.0


def one_sided(cost, n_outcomes=2):
    z = cp.Variable(2, nonneg=True)
    return DecisionProblem(decision=z, cost=cost, constraints=[cp.sum(z) == 1], n_outcomes=n_outcomes)


def test_the_worst_case_of_a_convex_cost_over_a_union_is_the_worst_of_its_balls():
    problem = one_sided(lambda z, u: cp.sum_squares(u) + z[0])
    union = UnionOfBalls([[0.6, 0.3], [2.0, 0.0]])
    worst = Adversary(problem, union, 1.0, np.zeros(2)).worst_case(np.array([0.5, 0.5]))
    assert worst.value == pytest.approx(9.5, abs=1e-5)
    assert union.contains(worst.outcome[None], 1.0 + 1e-9)[0]


def test_the_worst_case_of_a_concave_cost_over_a_union_is_not_that_over_its_hull():
    problem = one_sided(lambda z, u: -cp.sum_squares(u - np.array([2.0, 0.0])) + z[0])
    union = UnionOfBalls([[0.0, 0.0], [4.0, 0.0]])
    worst = Adversary(problem, union, 1.0, np.zeros(2)).worst_case(np.array([0.0, 1.0]))
    assert worst.value == pytest.approx(-1.0, abs=1e-5)


# --- a set for each context ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_decide_each_equals_decide_context_by_context(name):
    rng = np.random.default_rng(3)
    problem, centers = PROBLEMS[name], rng.normal(size=(30, 2)) * 0.6
    scales, radii = rng.uniform(0.1, 1.0, (30, 2)), rng.uniform(0.2, 1.0, 30)
    sets = [(Box(scale), float(radius)) for scale, radius in zip(scales, radii, strict=True)]
    found = decide_each(problem, lambda V: radii[:, None] * scales * np.sign(V), lambda i: sets[i], centers)
    expected = [decide(problem, *sets[i], centers[i : i + 1]).cost_bound[0] for i in range(30)]
    np.testing.assert_allclose(found.cost_bound, expected, atol=1e-9)
    assert found.is_optimal.all()
    assert found.gap.max() < 1e-9
    z, worst = found.z.reshape(30, -1), found.worst_outcome
    assert np.all(problem.evaluate(z, worst) <= found.cost_bound + 1e-9)
    assert all(sets[i][0].contains(worst[i : i + 1] - centers[i], sets[i][1] + 1e-9)[0] for i in range(30))


def test_decide_each_solves_other_problems_one_by_one():
    problem, radii = simplex_newsvendor(0.3, 0.7, 3), np.array([0.2, 0.5])
    assert not has_segment(problem)
    centers = np.full((2, 3), 0.4)
    found = decide_each(problem, lambda V: V, lambda i: (Ball(3, norm=np.inf), radii[i]), centers)
    expected = [decide(problem, Ball(3, norm=np.inf), r, centers[:1]).cost_bound[0] for r in radii]
    np.testing.assert_allclose(found.cost_bound, expected, atol=1e-9)


@given(seeds, st.integers(1, 6))
@fast
def test_the_least_maximum_of_lines_equals_a_fine_search(seed, n_lines):
    rng = np.random.default_rng(seed)
    heights, slopes = rng.normal(size=(5, n_lines)), rng.normal(size=n_lines)
    s, line = least_maximum(heights, slopes)
    fine = np.linspace(0, 1, 2001)
    searched = (heights[:, :, None] + slopes[:, None] * fine).max(axis=1).min(axis=1)
    values = heights[np.arange(5), line] + slopes[line] * s
    assert np.all(values <= searched + 1e-9)
    assert np.all(values >= searched - 1e-3 * np.abs(slopes).max())


# --- level sets of convex networks ---------------------------------------------------------------------------


def random_nets(n, seed, d=2, h=8, slope=0.05):
    rng = np.random.default_rng(seed)
    return ConvexNets(
        A1=rng.normal(size=(h, d)),
        C2=rng.uniform(0, 2 / h, (h, h)),
        A2=0.3 * rng.normal(size=(h, d)),
        w3=rng.uniform(0, 4 / h, h),
        g1=1 + 0.3 * rng.normal(size=(n, d)),
        k1=0.5 * rng.normal(size=(n, h)),
        m2=np.maximum(1 + 0.3 * rng.normal(size=(n, h)), 0),
        g2=1 + 0.3 * rng.normal(size=(n, d)),
        k2=0.3 * rng.normal(size=(n, h)) - 0.3,
        m3=np.maximum(1 + 0.3 * rng.normal(size=(n, h)), 0),
        k3=0.1 * rng.normal(size=n),
        slope=slope,
    )


def cube_net(d, slope=2.0):
    """A network that is nothing but slope times the largest entry."""
    zeros = np.zeros((1, d))
    return ConvexNet(A1=zeros, k1=[0.0], C2=[[0.0]], A2=zeros, k2=[0.0], w3=[0.0], k3=0.5, slope=slope)


@given(seeds)
@fast
def test_the_score_is_convex_in_the_residual(seed):
    nets, rng = random_nets(20, seed), np.random.default_rng(seed)
    a, b, share = rng.normal(size=(20, 2)) * 3, rng.normal(size=(20, 2)) * 3, rng.uniform(size=20)
    middle = nets.scores(share[:, None] * a + (1 - share)[:, None] * b)
    assert np.all(middle <= share * nets.scores(a) + (1 - share) * nets.scores(b) + 1e-12)


def test_a_batch_of_nets_scores_like_each_net_alone_and_its_gradient_is_a_finite_difference():
    nets, e = random_nets(30, 1), np.random.default_rng(1).normal(size=(30, 2))
    np.testing.assert_allclose(nets.scores(e), [nets.at(i).scores(e[[i]])[0] for i in range(30)], atol=1e-12)
    values, step = nets.evaluate(e), 1e-7
    np.testing.assert_allclose(values.scores, nets.scores(e), atol=1e-12)
    for j in range(2):
        shift = step * np.eye(2)[j]
        slopes = (nets.scores(e + shift) - nets.scores(e - shift)) / (2 * step)
        np.testing.assert_allclose(values.gradients[:, j], slopes, atol=1e-5)


@pytest.mark.parametrize("d", [2, 3])
def test_the_linear_program_of_a_net_equals_dense_sampling_of_its_boundary(d):
    nets = random_nets(3, 5, d=d)
    rng = np.random.default_rng(0)
    for i in range(3):
        net = nets.at(i)
        radius = net.least_score() + 1.0
        center = net.minimum()[1]
        n_rays = 4000 if d == 2 else 40_000
        rays = circle(n_rays) if d == 2 else rng.normal(size=(n_rays, d))
        rows = np.full(n_rays, i)
        t, _ = nets[rows].boundary(np.tile(center, (n_rays, 1)), rays, np.full(n_rays, radius), np.ones(n_rays))
        boundary = center + t[:, None] * rays
        np.testing.assert_allclose(net.scores(boundary), radius, atol=1e-9)
        V = rng.normal(size=(5, d))
        gap = net.support(V, radius) - (boundary @ V.T).max(axis=0)
        assert gap.min() > -1e-8
        assert gap.max() < (1e-2 if d == 2 else 0.1) * np.abs(net.support(V, radius)).max()
        np.testing.assert_allclose(maximise_conic(net.conic_form(radius), V), net.support(V, radius), atol=1e-5)


def test_supports_of_many_nets_equal_their_linear_programs():
    nets, rng = random_nets(40, 2), np.random.default_rng(2)
    sets = guarded_sets(nets, 1.5, np.zeros((1, 2)))
    V = rng.normal(size=(40, 2))
    found = supports(sets.nets, sets.radii, sets.origins, V)
    solid = np.flatnonzero(sets.is_solid)
    assert len(solid) > 30
    expected = [nets.at(int(i)).support(V[i], float(sets.radii[i])) for i in solid]
    np.testing.assert_allclose(found.value[solid], expected, atol=1e-7)
    assert found.gap[solid].max() < 1e-8
    np.testing.assert_allclose(sets.nets.scores(found.residual)[solid], sets.radii[solid], atol=1e-8)


def test_the_multipliers_of_a_support_are_its_slope_in_the_radius():
    nets, V = random_nets(20, 3), np.random.default_rng(3).normal(size=(20, 2))
    origins, radii, step = np.array([nets.at(i).minimum()[1] for i in range(20)]), np.full(20, 2.5), 1e-6
    found = supports(nets, radii, origins, V)
    higher, lower = (supports(nets, radii + sign * step, origins, V).value for sign in (1, -1))
    np.testing.assert_allclose(found.weights.sum(axis=1), (higher - lower) / (2 * step), rtol=1e-4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_decisions_over_nets_equal_the_robust_counterpart_of_each(name):
    problem, nets = PROBLEMS[name], random_nets(12, 4)
    centers = np.random.default_rng(4).normal(size=(12, 2))
    sets = guarded_sets(nets, 1.5, np.zeros((1, 2)))
    found = decide_nets(problem, sets, centers)
    expected = [decide(problem, nets.at(i), float(sets.radii[i]), centers[[i]]).cost_bound[0] for i in range(12)]
    np.testing.assert_allclose(found.cost_bound, expected, atol=1e-7)
    assert found.is_optimal.all()
    z = found.z.reshape(12, -1)
    assert np.all(problem.evaluate(z, found.worst_outcome) <= found.cost_bound + 1e-7)


def test_a_radius_below_the_least_score_is_raised_to_it_and_still_gives_decisions():
    nets = random_nets(6, 6)
    least = np.array([nets.at(i).least_score() for i in range(6)])
    sets = guarded_sets(nets, float(np.median(least)), np.zeros((1, 2)))
    assert not sets.is_solid.all()
    assert np.all(sets.radii >= np.maximum(least, np.median(least)) - 1e-9)
    for i in range(6):
        assert np.isfinite(nets.at(i).support(np.eye(2), float(sets.radii[i]))).all()
        assert nets.at(i).support([1.0, 0.0], least[i] - 0.01) == -np.inf
    found = decide_nets(PROBLEMS["linear"], sets, np.zeros((6, 2)))
    assert np.isfinite(found.cost_bound).all()


def test_the_volume_of_a_net_is_that_of_a_cube_or_a_fine_grid():
    assert cube_net(2).volume(2.5) == pytest.approx(4.0, rel=1e-4)
    assert cube_net(2).volume(0.4) == 0
    volume = cube_net(3).volume(2.5, rng=np.random.default_rng(0), n_samples=100_000)
    # Five standard errors of 10 000 rays: false alarm below 1e-5.
    assert abs(volume - 8.0) < 5 * volume.standard_error
    net = random_nets(1, 7).at(0)
    radius = net.least_score() + 0.5
    half = float(net.support(np.vstack([np.eye(2), -np.eye(2)]), radius).max())
    inside = net.contains(grid_points(half, 801), radius).sum()
    assert net.volume(radius) == pytest.approx(inside * (2 * half / 800) ** 2, rel=5e-3)
