"""Programs that are solved together are solved as they would be alone."""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import polyhedge as ph
from polyhedge.planning import margins
from polyhedge.planning.bases import least_from_basis, least_integers
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Status


def mixtures(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Shares of five parts that sum to 4, each at most 2, and three contents that differ and must not be too low."""
    rng, p = np.random.default_rng(seed), 5
    fixed = np.vstack([np.ones((1, p)), np.eye(p), -np.eye(p)])
    A = np.concatenate([np.tile(fixed, (n, 1, 1)), -rng.uniform(0.2, 1.0, size=(n, 3, p))], axis=1)
    b = np.concatenate([np.tile([4.0] + [2.0] * p + [0.0] * p, (n, 1)), -rng.uniform(1.5, 3.3, size=(n, 3))], axis=1)
    return A, b, np.array([1.0, 0.81, 0.73, 0.9, 0.66]), np.arange(14) == 0


def alone(A: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[ph.Status, float, np.ndarray]:
    """How HiGHS ends, the least cost and the rows that are active."""
    program = ConicProgram(c, sp.csr_array(A), b, (Cone("zero", 1), Cone("nonneg", len(b) - 1)))
    plain = Scaling(np.ones(len(b)), np.ones(len(c)), 1.0, np.zeros(len(c)), np.zeros(len(b)))
    solver = LinearSolver(program, scaling=plain, presolve=False)
    solution = solver.solve()
    active = solver.active_rows()
    return solution.status, solution.value, np.zeros(0) if active is None else np.flatnonzero(active)


def test_least_points_from_a_common_basis_are_those_of_a_solver_and_no_point_is_missed() -> None:
    A, b, c, is_equation = mixtures(120)
    expected = [alone(*pair, c) for pair in zip(A, b, strict=True)]
    first = next(active for status, _, active in expected if status is Status.OPTIMAL)
    x, is_proven, is_empty, last = least_from_basis(A, b, c, is_equation, np.tile(first, (120, 1)))
    has_one = np.array([status is Status.OPTIMAL for status, _, _ in expected])
    assert 20 < has_one.sum() < 120
    np.testing.assert_array_equal(is_proven, has_one)
    np.testing.assert_array_equal(is_empty, ~has_one)
    np.testing.assert_allclose((x @ c)[has_one], [value for status, value, _ in expected if status is Status.OPTIMAL])
    again = least_from_basis(A[has_one], b[has_one], c, is_equation, last[has_one])
    np.testing.assert_array_equal(again[0], x[has_one])  # however a basis was found


def test_a_singular_basis_proves_nothing() -> None:
    A, b, c, is_equation = mixtures(3)
    _, is_proven, is_empty, _ = least_from_basis(A, b, c, is_equation, np.tile([0, 1, 2, 3, 6], (3, 1)))
    assert not (is_proven | is_empty).any()


def test_integers_that_are_branched_together_are_the_best_of_all() -> None:
    A, b, c, is_equation = mixtures(60, seed=1)
    first = next(active for pair in zip(A, b, strict=True) if len(active := alone(*pair, c)[2]))
    z, is_proven, is_empty = least_integers(A, b, c, is_equation, np.tile(first, (60, 1)), np.arange(5))
    all_z = np.array([one for one in product(range(3), repeat=5) if sum(one) == 4], dtype=float)
    allowed = (np.einsum("nkp,zp->nzk", A[:, 11:], all_z) <= b[:, None, 11:]).all(axis=2)
    expected = np.where(allowed, all_z @ c, np.inf).min(axis=1)
    np.testing.assert_array_equal(is_proven, np.isfinite(expected))
    np.testing.assert_array_equal(is_empty, np.isposinf(expected))
    np.testing.assert_allclose((z @ c)[is_proven], expected[is_proven])
    assert 5 < is_proven.sum() < 60


@pytest.mark.parametrize("integer", [False, True], ids=["continuous", "integers"])
def test_margins_are_decided_together_as_one_by_one(monkeypatch: pytest.MonkeyPatch, integer: bool) -> None:
    z, total, price = cp.Variable(3, integer=integer), 12 if integer else 1.0, np.array([1.0, 1.3, 1.9])
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: price @ z,
        constraints=[z >= 0, cp.sum(z) == total],
        uncertain_constraints=lambda z, u: [u @ z >= 0.5 * cp.sum(z), u @ z <= 0.62 * cp.sum(z)],
        n_outcomes=3,
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    Y = np.array([0.45, 0.53, 0.6]) + 0.03 * np.tanh(X[:, :1]) + 0.03 * rng.normal(size=(160, 3))
    decider = ph.RobustDecider(problem, alpha=0.2, random_state=0, guarantee="cost").fit(X, Y)
    planner = decider.model_.family.policy.planner
    contexts, scales = planner.contexts(X, np.asarray(decider.centers(X)), np.zeros((160, 0)))
    values = np.zeros((160, 0))
    for margin in (0.5, 2.0):
        together, statuses = planner.at(contexts, scales, np.full(160, margin), values)
        with monkeypatch.context() as patch:
            patch.setattr(margins, "_BASES", 0)
            one_by_one, expected = planner.at(contexts, scales, np.full(160, margin), values)
        np.testing.assert_array_equal(statuses, expected)
        np.testing.assert_allclose(together, one_by_one, atol=1e-9)
