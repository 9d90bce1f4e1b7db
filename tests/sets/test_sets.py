"""Uncertainty sets: against brute force, against each other, and under changes that leave them alone."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron, Region
from polyhedge.solvers.linear import maximise_conic, maximise_linear
from polyhedge.solvers.program import ConicForm

SHAPE = np.array([[2.0, 0.6], [0.6, 0.5]])
SETS = {
    "polyhedron": Polyhedron([[1.0, 0.2], [-0.3, 1.0], [-1.0, -1.0], [0.5, -1.0]], [0.1, -0.2, 0.0, 0.3]),
    "box": Box([1.0, 0.5], center=[0.2, -0.1]),
    "l1": Ball(2, norm=1, center=[0.3, 0.0]),
    "l2": Ball(2, center=[0.3, 0.0]),
    "linf": Ball(2, norm=np.inf, center=[0.3, 0.0]),
    "ellipsoid": Ellipsoid(SHAPE, center=[0.0, 1.0]),
}
POLYHEDRAL = ["polyhedron", "box", "l1", "linf"]
fast = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)
every_set = pytest.mark.parametrize("shape", SETS.values(), ids=SETS)


def random_polytope(rng: np.random.Generator, d: int, n_extra: int = 4) -> Polyhedron:
    """Bounded, with the origin strictly inside at radius 1: random facets and a box around them."""
    W = rng.standard_normal((n_extra, d))
    W = np.vstack([W, np.eye(d), -np.eye(d)]) * rng.uniform(0.5, 2.0, (n_extra + 2 * d, 1))
    return Polyhedron(W, rng.uniform(-1.0, 0.5, len(W)))


def brute_force_vertices(W: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Every intersection of d facets that satisfies all others."""
    found = []
    for rows in combinations(range(len(W)), W.shape[1]):
        basis = W[list(rows)]
        if abs(np.linalg.det(basis)) > 1e-10:
            point = np.linalg.solve(basis, h[list(rows)])
            if np.all(W @ point <= h + 1e-9):
                found.append(point)
    return np.array(found)


def same_points(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two clouds hold the same points, repeats aside."""
    distance = np.linalg.norm(first[:, None, :] - second[None, :, :], axis=2)
    return bool(distance.min(axis=0).max() < 1e-7 and distance.min(axis=1).max() < 1e-7)


def solve_conic_form(form: ConicForm, v: np.ndarray, point: np.ndarray | None = None) -> float:
    """max v'e over the conic form by CVXPY; with a point, whether it is feasible (0) or not (-inf)."""
    x = cp.Variable(form.G.shape[1])
    slack, constraints, start = form.g - form.G @ x, [], 0
    for cone in form.cones:
        block = slack[start : start + cone.n_rows]
        start += cone.n_rows
        if cone.kind == "soc":
            constraints.append(cp.SOC(block[0], block[1:]))
        else:
            constraints.append(block >= 0 if cone.kind == "nonneg" else block == 0)
    if point is not None:
        constraints.append(x[: len(point)] == point)
    return float(cp.Problem(cp.Maximize(v @ x[: len(v)]), constraints).solve(solver=cp.CLARABEL))


def circle(n: int = 90) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return np.column_stack([np.cos(angles), np.sin(angles)])


# --- every set -------------------------------------------------------------------------------------------


@every_set
@pytest.mark.parametrize("radius", [0.7, 2.5])
def test_support_is_the_maximum_over_a_dense_sample_of_the_set(shape, radius):
    grid = np.linspace(-12, 12, 1201)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    points = points[shape.contains(points, radius)]
    V = circle(40)
    gap = shape.support(V, radius) - (points @ V.T).max(axis=0)
    assert gap.min() > -1e-9
    assert gap.max() < 0.05


@every_set
@given(first=st.floats(0.3, 3), second=st.floats(0.3, 3))
@settings(max_examples=10, deadline=None)
def test_support_and_volume_grow_with_the_radius(shape, first, second):
    small, large = sorted((first, second))
    assert np.all(shape.support(circle(9), small) <= shape.support(circle(9), large) + 1e-9)
    assert shape.volume(small) <= shape.volume(large) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["box", "l1", "l2", "linf", "ellipsoid"])
def test_a_negative_radius_gives_the_empty_set(name):
    shape = SETS[name]
    assert shape.support([1.0, 0.0], -0.5) == -np.inf
    assert np.all(shape.support(circle(3), -0.5) == -np.inf)
    assert shape.volume(-0.5) == 0
    assert not shape.contains([[0.0, 0.0], shape.center], -0.5).any()
    assert solve_conic_form(shape.conic_form(-0.5), np.zeros(2)) == -np.inf
    assert maximise_conic(shape.conic_form(-0.5), np.eye(2)).tolist() == [-np.inf, -np.inf]


@every_set
def test_arrays_of_a_set_cannot_be_changed(shape):
    array = shape.W if isinstance(shape, Polyhedron) else shape.center
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        shape.center = np.zeros(2)


# --- polyhedra -------------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 4))
@fast
def test_vertices_equal_brute_force_and_give_the_support(seed, d):
    rng = np.random.default_rng(seed)
    shape = random_polytope(rng, d)
    vertices = shape.vertices(1.0)
    assert same_points(vertices, brute_force_vertices(shape.W, 1.0 - shape.b))
    V = rng.standard_normal((100, d))
    expected = (V @ vertices.T).max(axis=1)
    np.testing.assert_allclose(shape.support(V, 1.0), expected, atol=1e-8)
    np.testing.assert_allclose(shape.support(V[:5], 1.0), expected[:5], atol=1e-8)


@given(seeds, st.floats(0.01, 100), st.floats(-5, 5))
@fast
def test_facet_order_scaling_and_shift_leave_the_set_alone(seed, s, t):
    rng = np.random.default_rng(seed)
    shape = random_polytope(rng, 3)
    order = rng.permutation(shape.n_facets)
    V, points = rng.standard_normal((6, 3)), rng.standard_normal((50, 3))
    inside = shape.contains(points, 1.0)
    clear = np.abs(shape.scores(points) - 1.0) > 1e-9
    for other, radius in (
        (Polyhedron(shape.W[order], shape.b[order]), 1.0),
        (Polyhedron(s * shape.W, s * shape.b), s),
        (Polyhedron(shape.W, shape.b + t), 1.0 + t),
    ):
        np.testing.assert_allclose(other.support(V, radius), shape.support(V, 1.0), atol=1e-8)
        assert other.volume(radius) == pytest.approx(shape.volume(1.0), rel=1e-8)
        assert np.array_equal(other.contains(points, radius)[clear], inside[clear])


@pytest.mark.parametrize("d", range(1, 6))
def test_volumes_of_cube_simplex_and_rotated_cube_are_exact(d):
    cube = Ball(d, norm=np.inf).as_polyhedron()
    simplex = Polyhedron.from_halfspaces(np.vstack([-np.eye(d), np.ones(d)]), np.append(np.zeros(d), 1.0))
    Q, _ = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))
    for volume, expected in (
        (cube.volume(1.5), 3.0**d),
        (simplex.volume(0.0), 1 / math.factorial(d)),
        (Polyhedron(cube.W @ Q, cube.b).volume(1.5), 3.0**d),
    ):
        assert volume == pytest.approx(expected, rel=1e-6)
        assert volume.standard_error == 0


@pytest.mark.parametrize("d", range(2, 6))
def test_volume_of_the_cross_polytope_is_exact_although_its_vertices_are_degenerate(d):
    assert Ball(d, norm=1).as_polyhedron().volume(1.0) == pytest.approx(2**d / math.factorial(d), rel=1e-6)


def test_estimated_volume_agrees_with_known_bodies_within_five_standard_errors():
    # Five standard errors of a share of 10 000 points: false alarm below 1e-5 a body.
    turned = np.eye(9)
    turned[:2, :2] = np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)
    for scale in (np.ones(9), np.logspace(-3, 3, 9)):
        W = np.vstack([turned, -turned]) / scale
        volume = Polyhedron(W, np.zeros(18)).volume(1.0, rng=np.random.default_rng(3))
        assert volume.standard_error > 0
        assert abs(volume - 2.0**9 * np.prod(scale)) < 5 * volume.standard_error


def test_fewer_than_d_plus_one_facets_are_unbounded():
    shape = Polyhedron([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    assert not shape.is_bounded
    assert shape.volume(1.0) == np.inf
    assert shape.support([[1.0, 1.0], [-1.0, 0.0]], 1.0).tolist() == [2.0, np.inf]
    with pytest.raises(ValueError, match=r"unbounded along \[.*\], so .* Add facets \(n_facets >= n_outcomes \+ 1\)"):
        shape.vertices(1.0)


@given(seeds, st.integers(1, 5), st.integers(1, 9))
@fast
def test_an_unbounded_direction_is_one_and_boundedness_means_finite_support(seed, d, n_facets):
    rng = np.random.default_rng(seed)
    shape = Polyhedron(rng.standard_normal((n_facets, d)), np.zeros(n_facets))
    direction = shape.unbounded_direction()
    finite = np.isfinite(shape.support(np.vstack([np.eye(d), -np.eye(d)]), 1.0)).all()
    assert shape.is_bounded == finite == (direction is None)
    if direction is not None:
        assert np.linalg.norm(direction) == pytest.approx(1.0)
        assert np.all(shape.W @ direction <= 1e-8)


@pytest.mark.parametrize("shape", [Ball(2), Ball(13, norm=1), Ellipsoid(np.eye(2))])
def test_a_shape_that_lists_no_facets_says_so(shape):
    with pytest.raises(TypeError, match=f"A {type(shape).__name__} lists no facets. Use its support function"):
        shape.as_polyhedron()


def test_an_empty_polyhedron_has_no_vertices_no_volume_and_support_minus_infinity():
    shape = Ball(2, norm=np.inf).as_polyhedron()
    assert shape.vertices(-1.0).shape == (0, 2)
    assert shape.volume(-1.0) == 0
    assert np.all(shape.support(circle(3), -1.0) == -np.inf)
    assert np.all(shape.support(circle(100), -1.0) == -np.inf)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_point_is_its_only_vertex_and_has_no_volume(d):
    shape = Box(np.ones(d), center=np.arange(1.0, d + 1)).as_polyhedron()
    np.testing.assert_allclose(shape.vertices(0.0), [np.arange(1.0, d + 1)], atol=1e-9)
    assert shape.volume(0.0) == 0
    assert shape.support(np.ones(d), 0.0) == pytest.approx(d * (d + 1) / 2)


def test_vertices_of_a_flat_set_are_those_within_its_plane():
    W = np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3)), -np.ones((1, 3))])
    shape = Polyhedron.from_halfspaces(W, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, -1.0])
    assert same_points(shape.vertices(0.0), np.eye(3))
    assert shape.volume(0.0) == 0
    V = np.random.default_rng(0).standard_normal((80, 3))
    np.testing.assert_allclose(shape.support(V, 0.0), V.max(axis=1), atol=1e-8)


# --- boxes, balls, ellipsoids ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [SETS["l2"], SETS["ellipsoid"]], ids=["l2", "ellipsoid"])
def test_a_smooth_shape_is_the_limit_of_its_tangent_polygons(shape):
    V = circle(2000)
    polygon = Polyhedron.from_halfspaces(V, shape.support(V, 1.2))
    assert polygon.volume(0.0) == pytest.approx(shape.volume(1.2), rel=1e-4)
    points = np.random.default_rng(3).uniform(-3, 3, (2000, 2))
    clear = np.abs(shape.scores(points) - 1.2) > 1e-3
    assert np.array_equal(polygon.contains(points, 0.0)[clear], shape.contains(points, 1.2)[clear])


def test_ellipsoid_from_residuals_has_their_mean_and_covariance():
    residuals = np.random.default_rng(0).standard_normal((50, 3)) @ np.diag([1.0, 2.0, 3.0]) + 1
    shape = Ellipsoid.from_residuals(residuals)
    np.testing.assert_allclose(shape.center, residuals.mean(axis=0))
    np.testing.assert_allclose(shape.L @ shape.L.T, np.cov(residuals.T))
    # The squared scores of the sample itself sum to (n - 1) d.
    assert np.sum(shape.scores(residuals) ** 2) == pytest.approx(49 * 3)


# --- regions ---------------------------------------------------------------------------------------------

NONNEGATIVE = {"support_W": -np.eye(2), "support_h": np.zeros(2)}


@every_set
def test_a_region_is_its_shape_moved_to_the_center(shape):
    center = np.array([1e3, -2e3])
    region = Region(shape, 1.1, center)
    points = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    clear = np.abs(shape.scores(points) - 1.1) > 1e-6
    assert np.array_equal(region.contains(points + center)[clear], shape.contains(points, 1.1)[clear])
    np.testing.assert_allclose(region.support(circle(8)), shape.support(circle(8), 1.1) + circle(8) @ center)
    assert region.volume() == shape.volume(1.1)
    assert not region.is_empty
    assert region.is_bounded


@every_set
def test_a_region_with_nonnegative_outcomes_is_the_intersection(shape):
    region = Region(shape, 1.1, [0.4, 0.3], **NONNEGATIVE)
    grid = np.linspace(-0.5, 5, 1101)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    inside = shape.contains(points - [0.4, 0.3], 1.1) & (points >= 0).all(axis=1)
    assert np.mean(region.contains(points) != inside) < 1e-3
    V = circle(12)
    gap = region.support(V) - (points[inside] @ V.T).max(axis=0)
    assert gap.min() > -1e-6
    assert gap.max() < 0.02
    volume = region.volume(rng=np.random.default_rng(0))
    assert abs(volume - inside.sum() * (grid[1] - grid[0]) ** 2) < 5 * volume.standard_error + 0.02
    assert (volume.standard_error == 0) == (region.shape is not SETS["l2"] and region.shape is not SETS["ellipsoid"])


@every_set
def test_the_conic_form_of_a_region_has_its_support_function(shape):
    region = Region(shape, 1.1, [0.4, 0.3], **NONNEGATIVE)
    for v in circle(4):
        assert solve_conic_form(region.conic_form(), v) == pytest.approx(region.support(v), abs=1e-6)


@pytest.mark.parametrize("name", POLYHEDRAL)
def test_half_spaces_and_vertices_of_a_region_describe_it(name):
    region = Region(SETS[name], 1.1, [0.4, 0.3], **NONNEGATIVE)
    assert len(region.W) == len(region.h) == len(SETS[name].as_polyhedron().W) + 2
    vertices = region.vertices()
    assert same_points(vertices, brute_force_vertices(region.W, region.h))
    assert region.contains(vertices).all()
    np.testing.assert_allclose((circle(9) @ vertices.T).max(axis=1), region.support(circle(9)), atol=1e-8)


@given(seeds, st.floats(-1e6, 1e6))
@fast
def test_vertices_of_a_region_are_inside_wherever_it_lies(seed, place):
    region = Region(random_polytope(np.random.default_rng(seed), 3), 1.0, np.full(3, place))
    assert region.contains(region.vertices()).all()


@every_set
def test_a_region_far_outside_the_known_support_is_empty(shape):
    region = Region(shape, 1.0, [-50.0, -50.0], **NONNEGATIVE)
    assert region.is_empty
    assert region.support([1.0, 0.0]) == -np.inf
    assert region.volume() == 0
    assert not region.contains([-50.0, -50.0])


def test_known_support_can_bound_an_unbounded_shape():
    half_plane = Polyhedron([[1.0, 1.0]], [0.0])
    assert not Region(half_plane, 1.0, [0.0, 0.0]).is_bounded
    region = Region(half_plane, 1.0, [0.0, 0.0], **NONNEGATIVE)
    assert region.is_bounded
    assert region.volume() == pytest.approx(0.5)


def test_a_large_cross_polytope_uses_its_conic_form():
    region = Region(Ball(13, norm=1), 1.0, np.zeros(13), support_W=-np.eye(13), support_h=np.zeros(13))
    assert region.support(np.ones(13)) == pytest.approx(1.0, abs=1e-6)
    assert region.support(-np.ones(13)) == pytest.approx(0.0, abs=1e-6)


def test_one_point_gives_one_bool():
    region = Region(Ball(2), 1.0, [0.0, 0.0])
    assert region.contains([1.0, 0.0]) is True
    assert region.contains([1.0, 0.1]) is False


def test_smooth_regions_say_which_shapes_have_half_spaces():
    with pytest.raises(TypeError, match=r"Only shapes with facets, such as .* got Ellipsoid"):
        Region(SETS["ellipsoid"], 1.0, [0.0, 0.0]).vertices()


# --- solver functions ------------------------------------------------------------------------------------


def test_maximisers_attain_the_values_and_are_missing_where_infinite():
    W, h = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 2.0])
    values, points = maximise_linear(W, h, np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, 0.0], [2.0, 1.0]]))
    assert values.tolist() == [3.0, np.inf, 0.0, 4.0]
    assert np.isnan(points[1]).all()
    assert points[3].tolist() == [1.0, 2.0]


def test_an_unbounded_conic_form_has_infinite_support():
    form = Polyhedron([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]).conic_form(1.0)
    assert maximise_conic(form, np.array([[-1.0, 0.0]])).tolist() == [np.inf]
