"""Whole numbers under squares: small problems against all their points, in ordinary and in strange units."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

import polyhedge as ph
from polyhedge.solvers import solve as solving
from polyhedge.solvers.program import Cone, ConicProgram, Status
from polyhedge.solvers.solve import solve_mixed_integer, with_fixed_integers

seeds = st.integers(0, 2**32 - 1)


def test_an_integer_whose_best_value_lies_on_its_limit_is_found() -> None:
    z = cp.Variable(integer=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: u[0] * z + cp.square(z - 0.5), constraints=[z >= 0, z <= 4], n_outcomes=1
    )
    found = ph.robust.decide(problem, ph.sets.Box([1.0]), 0.5, np.array([[1.5], [1.4], [1.6], [1.7]]))
    assert found.status.tolist() == [Status.OPTIMAL] * 4
    np.testing.assert_allclose(found.cost_bound, 0.25, atol=1e-6)
    np.testing.assert_array_equal(np.ravel(found.z), np.zeros(4))


@pytest.mark.parametrize("in_units", [False, True], ids=["ordinary units", "strange units"])
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_small_problems_are_solved_as_all_their_points_say(in_units: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, m, top = (int(rng.integers(*ends)) for ends in ((1, 4), (1, 3), (0, 3), (1, 5)))
    Q, aim = rng.normal(size=(n, d)), rng.choice([0.25, 0.3, 0.5, 0.7, 1.0, 1.5], size=n)
    pull, steep, slope = rng.normal(size=(m, n)), rng.uniform(0.3, 2, size=m), rng.normal(size=m)
    reach = float(rng.uniform(1.0, 2.5)) if rng.random() < 0.4 else np.inf
    cost_unit, *units = [10.0 ** rng.uniform(-5, 5, size=size if in_units else 0) for size in (1, d, m)]
    k, u_unit, w_unit = (float(cost_unit[0]), *units) if in_units else (1.0, np.ones(d), np.ones(m))
    z, w = cp.Variable(n, integer=True, name="z"), cp.Variable(max(m, 1), name="w")
    size, center = rng.uniform(0.3, 2, size=d), rng.normal(size=(1, d))

    def cost(z, u):
        own = (Q @ cp.multiply(1 / u_unit, u)) @ z + cp.sum_squares(z - aim)
        rest = cp.multiply(1 / w_unit, w) if m else 0.0
        return k * (own + (steep @ cp.square(rest - pull @ z) + slope @ rest if m else 0.0))

    def least(whole: np.ndarray) -> float:
        felt, rest = Q.T @ whole, np.clip(pull @ whole - slope / (2 * steep), 0, 2)
        worst = float(center[0] @ felt + size @ np.abs(felt)) + float(((whole - aim) ** 2).sum())
        return worst + float(steep @ (rest - pull @ whole) ** 2 + slope @ rest)

    points = [np.array(point, float) for point in itertools.product(range(top + 1), repeat=n)]
    values = [least(point) for point in points if np.linalg.norm(point - aim) <= reach]
    if not values:
        return
    limits = [z >= 0, z <= top] + ([cp.norm(z - aim) <= reach] if np.isfinite(reach) else [])
    limits += [w >= 0, cp.multiply(1 / w_unit, w) <= 2] if m else []
    problem = ph.DecisionProblem(decision=z, cost=cost, constraints=limits, n_outcomes=d)
    found = ph.robust.decide(problem, ph.sets.Box(size * u_unit), 1.0, center * u_unit)
    assert found.status[0] is Status.OPTIMAL, found.detail
    assert found.cost_bound[0] / k == pytest.approx(min(values), rel=3e-6, abs=3e-6)


def program(limit: float) -> ConicProgram:
    """Minimise (x - 0.5)^2 + y with y >= x, y >= limit, x <= 4 and x whole."""
    A = sp.csr_array(np.array([[1.0, -1.0], [0.0, -1.0], [1.0, 0.0]]))
    P = sp.csr_array(np.diag([2.0, 0.0]))
    return ConicProgram(
        c=np.array([-1.0, 1.0]),
        A=A,
        b=np.array([0.0, -limit, 4.0]),
        cones=(Cone("nonneg", 3),),
        P=P,
        offset=0.25,
        integer=np.array([0]),
    )


def test_what_is_left_of_fixed_numbers_has_the_multipliers_of_its_rows() -> None:
    found = with_fixed_integers(program(-3.0), np.array([2.2, 0.0]))
    assert found.status is Status.OPTIMAL
    np.testing.assert_allclose(found.x, [2.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(found.y, [1.0, 0.0, 0.0], atol=1e-6)
    assert found.value == pytest.approx(4.25, abs=1e-6)


def test_fixed_numbers_that_break_a_limit_of_their_own_have_no_completion() -> None:
    found = with_fixed_integers(program(-3.0), np.array([5.0, 0.0]))
    assert found.status is Status.INFEASIBLE
    assert "the integers alone violate a constraint" in found.detail


def test_a_program_of_whole_numbers_alone_is_completed_by_itself() -> None:
    own = ConicProgram(
        np.array([1.0]), sp.csr_array([[-1.0]]), np.array([-2.0]), (Cone("nonneg", 1),), integer=np.array([0])
    )
    found = with_fixed_integers(own, np.array([3.0]))
    assert (found.status, found.value) == (Status.OPTIMAL, 3.0)


def test_a_completion_that_fails_is_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(program, x, frame=None):
        return solving.nothing_known(program, Status.FAILED, "a lie")

    monkeypatch.setattr(solving, "with_fixed_integers", fails)
    found = solve_mixed_integer(program(0.0))
    assert found.status is Status.OPTIMAL
    assert found.value == pytest.approx(0.25, abs=1e-6)
