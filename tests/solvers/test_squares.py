"""Integer programs with a quadratic cost keep the lines that bound it, and find what each would find alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from polyhedge.solvers.program import Cone, ConicProgram, Status
from polyhedge.solvers.solve import IntegerSolver, _LinearRelaxation, _Squares, solve

COMMON = np.eye(3) + 0.4 * np.ones((3, 3))
SKEW = np.array([[2.0, 0.3, -0.7], [0.3, 1.1, 0.2], [-0.7, 0.2, 0.9]])
FLAT = np.outer([1.0, 2.0, -1.0], [1.0, 2.0, -1.0])


def bent(P: np.ndarray, c: np.ndarray, total: float) -> ConicProgram:
    """Minimise c'x + x'Px / 2 over whole x from -3 to 3 with at most this sum."""
    A = np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3))])
    b = np.append(np.full(6, 3.0), total)
    return ConicProgram(c, sp.csr_array(A), b, (Cone("nonneg", 7),), sp.csr_array(P), integer=np.arange(3))


@pytest.mark.parametrize("P", [COMMON, SKEW, FLAT, np.diag([1.0, 4.0, 0.0])], ids=["sum", "skew", "flat", "diagonal"])
def test_kept_lines_find_the_best_integers_of_every_row(P: np.ndarray) -> None:
    rng, points = np.random.default_rng(0), np.array(list(product(range(-3, 4), repeat=3)), dtype=float)
    costs = rng.normal(size=(12, 3)) * 3
    kept = IntegerSolver(bent(P, costs[0], 1.0), np.array([6]))
    for c, total in zip(costs, rng.integers(-3, 5, size=12), strict=True):
        kept.program.c[:], kept.program.b[6] = c, total
        found, fresh = kept.solve(), solve(bent(P, c, float(total)))
        values = points @ c + 0.5 * np.einsum("zi,ij,zj->z", points, P, points)
        least = values[points.sum(axis=1) <= total].min()
        assert found.status is Status.OPTIMAL
        assert found.value == pytest.approx(least, abs=1e-9)
        assert fresh.value == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("P", [COMMON, SKEW, FLAT], ids=["sum", "skew", "flat"])
def test_lines_bound_the_squares_from_below_and_are_never_given_twice(P: np.ndarray) -> None:
    squares = _Squares(bent(P, np.zeros(3), 1.0))
    x = np.random.default_rng(1).uniform(-3, 3, size=3)
    rows, limits = squares.rows_at(squares.L @ x)
    points = np.array(list(product(range(-3, 4), repeat=3)), dtype=float)
    t = 0.5 * squares.d * (points @ squares.L.T) ** 2
    np.testing.assert_allclose(t.sum(axis=1), 0.5 * np.einsum("zi,ij,zj->z", points, P, points), atol=1e-12)
    assert (np.hstack([points, t]) @ rows.T <= limits + 1e-12).all()
    assert not len(squares.rows_at(squares.L @ x)[0])


def test_squares_of_sums_of_integers_are_exact_at_integers() -> None:
    assert _Squares(bent(COMMON, np.zeros(3), 1.0)).is_integer.all()


@pytest.mark.parametrize("square", [0.001, 1.0, 2.0])
def test_limits_between_integers_hide_no_integer(square: float) -> None:
    rng, one = np.random.default_rng(2), np.array([0])
    for limit in rng.uniform(-9, 9, size=12):
        c, P = np.array([-5.0 * square * rng.uniform(0, 4)]), sp.csr_array([[square]])
        program = ConicProgram(c, sp.csr_array([[1.0]]), np.array([limit]), (Cone("nonneg", 1),), P, integer=one)
        x = np.arange(-30.0, np.floor(limit) + 1)
        least = (c[0] * x + square / 2 * x**2).min()
        for found in (solve(program), IntegerSolver(program, one).solve()):
            assert found.status is Status.OPTIMAL
            assert found.value == pytest.approx(least, abs=1e-6 * square)


def test_integers_without_limits_on_one_side_are_bounded_by_their_squares() -> None:
    """HiGHS says of such a relaxation that it is infeasible or unbounded."""
    rng, grid = np.random.default_rng(3), np.array(list(product(range(-12, 13), repeat=2)), dtype=float)
    for _ in range(8):
        root = rng.normal(size=(2, 2))
        P, c = 100 * (root @ root.T + np.eye(2)), 200 * rng.normal(size=2)
        cones = (Cone("nonneg", 1),)
        program = ConicProgram(
            c, sp.csr_array([[2.0, 3.0]]), np.array([8.03]), cones, sp.csr_array(P), integer=np.arange(2)
        )
        own = grid[grid @ [2.0, 3.0] <= 8.03]
        found = solve(program)
        assert found.status is Status.OPTIMAL
        assert found.value == pytest.approx((own @ c + 0.5 * ((own @ P) * own).sum(axis=1)).min(), rel=1e-6)


def test_a_relaxation_that_the_solver_gives_up_is_bounded_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program, honest, gives_up = bent(SKEW, np.array([-4.0, 2.0, 1.0]), 1.0), _LinearRelaxation.solve, [True]

    def once(self, *limits):  # what HiGHS calls "infeasible or unbounded" comes back as a failure
        found = honest(self, *limits)
        return replace(found, status=Status.FAILED) if gives_up and gives_up.pop() else found

    expected = solve(program).value
    monkeypatch.setattr(_LinearRelaxation, "solve", once)
    found = solve(program)
    assert found.status is Status.OPTIMAL
    assert not gives_up
    assert found.value == pytest.approx(expected, abs=1e-9)
