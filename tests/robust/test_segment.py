"""Decisions on a segment: what is known to be quadratic, and bounds of every other convex base."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.spatial import ConvexHull

import polyhedge as ph
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide
from polyhedge.sets import Box


def on_simplex(base, cost=lambda z, u: u @ z):
    z = cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision=z, cost=lambda z, u: cost(z, u) + base(z[0]), constraints=[cp.sum(z) == 1], n_outcomes=2
    )


def five_points_on_a_parabola(s):
    """A maximum of lines that equals 16 s^2 at s = 0, 1/4, 1/2, 3/4 and 1."""
    return cp.maximum(4 * s, 12 * s - 2, 20 * s - 6, 28 * s - 12)


def least_worst_case(base, outcomes, n_zooms=8):
    """Brute force: the least over s of base(s) + the highest cost over some outcomes, on grids that close in on it."""
    low, high = 0.0, 1.0
    for _ in range(n_zooms):
        s = np.linspace(low, high, 201)
        worst = base(s) + (np.outer(s, outcomes[:, 0]) + np.outer(1 - s, outcomes[:, 1])).max(axis=1)
        k = int(np.argmin(worst))
        low, high = s[max(k - 1, 0)], s[min(k + 1, 200)]
    return float(worst[k])


def test_points_on_a_parabola_do_not_make_a_maximum_of_lines_quadratic():
    problem = on_simplex(five_points_on_a_parabola)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(50, 2)) + np.array([0.0, 8.0])
    found = decide(problem, Box([0.1, 0.1]), 1.0, centers)
    expected = [
        least_worst_case(lambda s: np.max([4 * s, 12 * s - 2, 20 * s - 6, 28 * s - 12], axis=0), center[None] + 0.1)
        for center in centers
    ]
    assert np.allclose(found.cost_bound, expected, rtol=0, atol=1e-9)
    assert problem.structure.segment is None


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e5, 1e6, 1e9])
def test_an_offset_does_not_hide_a_kink(offset):
    problem = on_simplex(lambda s: offset + 3 * cp.abs(s - 0.5))
    centers = np.array([[0.0, 0.0], [1.0, 0.5], [0.0, 4.0]])
    found = decide(problem, Box([0.1, 0.1]), 1.0, centers)
    expected = [least_worst_case(lambda s: 3 * np.abs(s - 0.5), center[None] + 0.1) for center in centers]
    assert np.allclose(found.cost_bound - offset, expected, rtol=0, atol=1e-9 + 1e-15 * offset)


@st.composite
def convex_bases(draw):
    """A convex function on [0, 1] in CVXPY and in NumPy: a maximum of lines, a parabola, both, or Huber's."""
    number = st.floats(-4, 4, allow_subnormal=False).map(lambda x: round(x, 3))
    lines = draw(st.lists(st.tuples(number, number), min_size=1, max_size=5))
    bend = draw(st.sampled_from([0.0, 0.25, 3.0]))
    huber = draw(st.sampled_from([0.0, 2.0]))
    offset = draw(st.sampled_from([1.0, 1e2, 1e4, 1e6]))

    def in_cvxpy(s):
        kinks = [a + b * s for a, b in lines]
        return (
            (cp.maximum(*kinks) if len(kinks) > 1 else kinks[0])
            + bend * cp.square(s - 0.3)
            + (huber * cp.huber(s - 0.6, 0.1) if huber else 0.0)
            + offset
        )

    def in_numpy(s):
        far = np.abs(s - 0.6)
        kinks = np.max([a + b * s for a, b in lines], axis=0)
        return kinks + bend * (s - 0.3) ** 2 + huber * np.where(far <= 0.1, far**2, 0.2 * far - 0.01)

    return in_cvxpy, in_numpy, offset


@settings(max_examples=25, deadline=None)
@given(convex_bases(), st.integers(0, 10**6))
def test_bounds_on_a_segment_are_those_of_brute_force_whatever_the_base(base, seed):
    in_cvxpy, in_numpy, offset = base
    rng = np.random.default_rng(seed)
    centers, corners = 3 * rng.normal(size=(4, 2)), rng.normal(size=(6, 2))
    hull = ConvexHull(corners)
    found = decide(on_simplex(in_cvxpy), ph.Polyhedron(hull.equations[:, :2], hull.equations[:, 2]), 0.0, centers)
    expected = np.array([least_worst_case(in_numpy, center + corners) for center in centers])
    # Interior points stop within 1e-8; the offset costs its rounding.
    assert np.allclose(found.cost_bound - offset, expected, rtol=0, atol=1e-7 + 1e-15 * offset)
    worst = in_numpy(found.z[:, 0]) + (found.z * centers).sum(axis=1) + (found.z @ corners.T).max(axis=1)
    assert (worst <= found.cost_bound - offset + found.gap + 1e-7 + 1e-15 * offset).all()


QUADRATIC = {
    "nothing": lambda s: 0.0,
    "line": lambda s: 3 * s + 1e6,
    "square": lambda s: cp.square(s - 0.3),
    "sum_of_squares": lambda s: cp.sum_squares(np.array([1.0, -2.0]) * s + 1),
    "quadratic_form": lambda s: cp.quad_form(cp.hstack([s, 1 - s]), np.array([[2.0, 1.0], [1.0, 3.0]])),
    "many": lambda s: 1e-3 * cp.square(s) + cp.sum_squares(5 * s - 1) / 7 - 2 * s,
}
NOT_QUADRATIC = {
    "kink": lambda s: cp.abs(s - 0.5),
    "faint_kink": lambda s: 1e6 + 1e-6 * cp.abs(s - 0.5),
    "kink_outside": lambda s: cp.pos(s - 3),
    "huber": lambda s: cp.huber(s, 0.1),
    "squared_hinge": lambda s: cp.square(cp.pos(s - 0.4)),
    "kink_and_square": lambda s: cp.square(s) + 1e-9 * cp.abs(s - 0.5),
    "fourth_power": lambda s: cp.power(s, 4),
}


@pytest.mark.parametrize("name", QUADRATIC)
def test_a_quadratic_base_is_known_and_its_coefficients_are_exact(name):
    problem = on_simplex(QUADRATIC[name])
    segment = problem.structure.segment
    s = np.linspace(0, 1, 7)
    z = segment.z0 + s[:, None] * (segment.z1 - segment.z0)
    costs = problem.evaluate(z, np.zeros((7, 2)))
    assert np.allclose(np.polynomial.polynomial.polyval(s, segment.base), costs, rtol=1e-14, atol=1e-14)
    assert segment.base[2] >= 0


@pytest.mark.parametrize("name", NOT_QUADRATIC)
def test_no_other_base_is_taken_for_quadratic(name):
    assert on_simplex(NOT_QUADRATIC[name]).structure.segment is None
    newsvendor = on_simplex(NOT_QUADRATIC[name], lambda z, u: cp.sum(cp.pos(u - z)))
    assert newsvendor.structure.fixed_lines is None


def _region(*constraints, n=2):
    z = cp.Variable(n)
    return DecisionProblem(
        decision=z, cost=lambda z, u: u @ z, constraints=[rule(z) for rule in constraints], n_outcomes=n
    )


def test_two_opposite_inequalities_are_an_equation():
    rules = (lambda z: cp.sum(z) <= 1, lambda z: cp.sum(z) >= 1, lambda z: z[2] == 0, lambda z: z >= 0)
    low, high = _region(*rules, n=3).structure.ends
    assert np.allclose([low, high], [[0, 1, 0], [1, 0, 0]])


def test_a_thin_strip_is_not_a_segment():
    strip = _region(lambda z: cp.sum(z) <= 1 + 1e-8, lambda z: cp.sum(z) >= 1, lambda z: z >= 0)
    assert strip.structure.ends is None
    found = decide(strip, Box([1e-6, 1e-6]), 1.0, np.array([[-1e8, -2e8]]))
    assert found.cost_bound[0] == pytest.approx(-2e8 - 2, abs=1e-3)


def test_curvature_far_below_the_slopes_leaves_decisions_on_the_segment():
    problem = on_simplex(lambda s: 1e-9 * cp.square(s))
    centers = np.array([[1e7, 1e7], [1e7 + 1e-9, 1e7], [1e7, 1e7 + 3e-9]])
    found = decide(problem, Box([0.5, 0.5]), 1.0, centers)
    assert (found.z >= 0).all()
    worst = problem.evaluate(found.z, centers + 0.5)
    assert np.allclose(found.cost_bound, worst, rtol=1e-14)


@pytest.mark.parametrize(
    ("limits", "ray"),
    [([lambda z: z >= 1], (1, 2)), ([lambda z: z <= 3], (3, 2)), ([lambda z: z >= 1, lambda z: z <= 3], None)],
)
def test_half_a_line_is_known_by_its_end_and_a_step_away_from_it(limits, ray):
    found = _region(*limits, n=1).structure.ray
    assert (None if found is None else np.ravel(found).tolist()) == (ray and pytest.approx(ray))
