"""Polyhedra are the same whatever units their outcomes are measured in: vertices, volumes, supports, directions."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import polyhedge as ph
from polyhedge.sets import Polyhedron

seeds = st.integers(0, 2**32 - 1)
some = settings(max_examples=12, deadline=None)
SQUARE = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


def random_halfspaces(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray, float]:
    """A bounded set, how large it and its place are, perhaps flat or with a limit far away."""
    d = int(rng.integers(2, 5))
    W = rng.normal(size=(d + int(rng.integers(2, 6)), d)) * (rng.random((1, d)) < 0.8)
    W = np.vstack([W[W.any(axis=1)], np.eye(d), -np.eye(d)])
    h = rng.uniform(0.2, 1.5, size=len(W))
    if kind == "flat outcome":
        j = int(rng.integers(d))
        h[[len(h) - 2 * d + j, len(h) - d + j]] = 0.0
    if kind in ("flat", "far limit"):
        normal = rng.normal(size=(1, d))
        W, h = np.vstack([W, normal]), np.append(h, 1e6 if kind == "far limit" else 0.0)
    if kind == "flat":
        W, h = np.vstack([W, -W[-1:]]), np.append(h, 0.0)
    center = rng.normal(size=d) * rng.choice([0.0, 1.0, 100.0])
    return W, h + W @ center, 3.0 + float(np.abs(center).max())


@pytest.mark.parametrize("kind", ["solid", "flat outcome", "flat", "far limit"])
@given(seed=seeds)
@some
def test_vertices_and_volumes_go_with_the_units(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    W, h, size = random_halfspaces(rng, kind)
    unit = 10.0 ** rng.uniform(-6, 6, size=W.shape[1])
    plain, other = Polyhedron.from_halfspaces(W, h), Polyhedron.from_halfspaces(W / unit, h)
    expected, found = plain.vertices(0.0), other.vertices(0.0) / unit
    assert len(found) == len(expected) > 0
    distance = np.abs(found[:, None] - expected[None]).max(axis=2)
    assert max(distance.min(axis=0).max(), distance.min(axis=1).max()) <= 1e-7 * size
    volume = plain.volume(0.0)
    assert (volume == 0) == (kind in ("flat outcome", "flat"))
    assert other.volume(0.0) / np.prod(unit) == pytest.approx(volume, rel=1e-7)


@given(seeds)
@some
def test_supports_and_directions_without_end_go_with_the_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    W, b = rng.normal(size=(2 * d, d)), -rng.uniform(0.3, 1.5, size=2 * d)
    unit, V = 10.0 ** rng.uniform(-6, 6, size=d), rng.normal(size=(4, d))
    plain, other = Polyhedron(W, b), Polyhedron(W / unit, b)
    expected = plain.support(V, 0.0)
    np.testing.assert_allclose(other.support(V / unit, 0.0), expected, rtol=1e-7, atol=1e-7)
    direction = other.unbounded_direction()
    assert (direction is None) == plain.is_bounded
    if direction is not None:
        assert (W @ (direction / unit)).max() <= 1e-7 * np.abs(direction / unit).max()


@pytest.mark.parametrize("unit", [(1.0, 1.0), (1e-6, 1.0), (1e-6, 1e6)])
def test_a_worst_case_at_vertices_is_the_same_in_all_units(unit: tuple[float, float]) -> None:
    z, D = cp.Variable(), np.array(unit)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.square(z - u[0] / D[0]) + cp.square(z - u[1] / D[1]),
        constraints=[z >= 0, z <= 3],
        n_outcomes=2,
    )
    for shape in (Polyhedron(SQUARE / D, -np.ones(4)), Polyhedron(SQUARE, -np.repeat(D, 2))):
        assert ph.robust.decide(problem, shape, 0.0, np.zeros((1, 2))).cost_bound == pytest.approx(2.0, rel=1e-6)


def test_an_empty_set_stays_empty_in_all_units() -> None:
    W, h = np.vstack([SQUARE, [1.0, 1.0]]), np.array([1.0, 1.0, 1.0, 1.0, -2.5])
    for unit in ((1.0, 1.0), (1e-6, 1.0), (1e-6, 1e6)):
        shape = Polyhedron.from_halfspaces(W / np.array(unit), h)
        assert len(shape.vertices(0.0)) == 0 == shape.volume(0.0)
