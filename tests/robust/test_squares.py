"""Squares of outcomes in any unit: CVXPY writes them beside a constant 1, which no unit of theirs can move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import polyhedge as ph
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.robust import decide
from polyhedge.robust.routes import best_knowing
from polyhedge.sets import Ball, Box
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.program import Cone, ConicProgram, SecondOrder, as_rotated, products, rotation

EPS = float(np.finfo(float).eps)
D = 2


@dataclass(frozen=True)
class Squares:
    """A cost of the distances z - u, in CVXPY, and what it makes of the largest distances of each outcome."""

    written: Callable[[Any, Any, float], Any]
    at: Callable[[np.ndarray], float]
    degree: int = 2


WEIGHTS = np.array([1.0, 3.0])
SQUARES = {
    "sum_squares": Squares(lambda z, u, _: cp.sum_squares(z - u), lambda r: r @ r),
    "square": Squares(lambda z, u, _: WEIGHTS @ cp.square(z - u), lambda r: WEIGHTS @ r**2),
    "power": Squares(lambda z, u, _: cp.sum(cp.power(z - u, 2)), lambda r: r @ r),
    "quad_over_lin": Squares(lambda z, u, _: cp.quad_over_lin(z - u, 4.0), lambda r: r @ r / 4),
    "largest": Squares(lambda z, u, _: cp.max(cp.multiply(WEIGHTS, cp.square(z - u))), lambda r: max(WEIGHTS * r**2)),
    "huber": Squares(
        lambda z, u, unit: cp.sum(cp.huber(z - u, unit)), lambda r: np.where(r <= 1, r**2, 2 * r - 1).sum()
    ),
    "fourth": Squares(lambda z, u, _: cp.sum(cp.power(z - u, 4)), lambda r: (r**4).sum(), 4),
}


def complaints(name: str, seed: int) -> list[str]:
    """What is wrong in one random unit, far from zero or not, over a box and with the outcome known, in words."""
    rng, cost = np.random.default_rng([seed, sorted(SQUARES).index(name)]), SQUARES[name]
    unit, shift = float(10.0 ** rng.uniform(-6, 8)), float(10.0 ** rng.uniform(0, 6)) * rng.integers(2)
    wide, centers = rng.uniform(0.3, 1.5, size=D), rng.normal(size=(2, D))
    low = rng.uniform(-1, 0.5, size=D)
    problem = ph.DecisionProblem(
        decision=(z := cp.Variable(D)),
        cost=lambda z, u: cost.written(z, u, unit),
        constraints=[z >= unit * (low + shift), z <= unit * (shift + 3)],
        n_outcomes=D,
    )
    decided = decide(problem, Box(unit * wide), 1.0, unit * (centers + shift))
    known = best_knowing(problem, unit * (centers + shift))
    # Each outcome by itself: the nearest decision allowed is the best, and the far end of its interval the worst.
    away = np.maximum(low - centers, 0.0)
    allowed = 1e-6 + 4096 * EPS * (1 + shift)
    wrong = [] if decided.is_optimal.all() and known[2].all() else [f"{decided.complaint()} {known[2]}"]
    for said, right, size in ((decided.cost_bound, away + wide, 1.0), (known[1], away, cost.at(wide))):
        for value, distances in zip(said / unit**cost.degree, right, strict=True):
            if not abs(value - cost.at(distances)) <= allowed * (size + cost.at(distances)):
                wrong.append(f"{value} instead of {cost.at(distances)}")
    return [f"{name} {seed} unit {unit:.1e} shift {shift:.1e}: {text}" for text in wrong]


@pytest.mark.parametrize("name", sorted(SQUARES))
def test_squares_of_outcomes_are_decided_in_every_unit_as_their_closed_form_says(name: str) -> None:
    assert [text for seed in range(6) for text in complaints(name, seed)] == []


@pytest.mark.slow
def test_fourth_powers_have_the_right_values_although_a_cost_of_zero_is_not_always_proven() -> None:
    said = [text for seed in range(30) for text in complaints("fourth", 1000 + seed)]
    assert [text for text in said if "instead of" in text] == []


def square_problem(z: cp.Variable, rows: list[Any], lot: float = 1.0) -> ph.DecisionProblem:
    cost: Callable[[Any, Any], Any] = lambda z, u: cp.sum_squares(lot * z - u)  # noqa: E731
    return ph.DecisionProblem(decision=z, cost=cost, constraints=rows, n_outcomes=D)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_integer_lots_near_outcomes_in_any_unit_are_the_best_of_all(unit: float) -> None:
    wide, center = np.array([0.7, 1.1]), np.array([2.2, 4.6])
    z = cp.Variable(D, integer=True)
    problem = square_problem(z, [z >= 0, z <= 6, cp.sum(z) <= 6], unit)
    decided = decide(problem, Box(unit * wide), 1.0, unit * center[None])
    tried = [np.array(z) for z in product(range(7), repeat=D) if sum(z) <= 6]
    least = min(float(((np.abs(z - center) + wide) ** 2).sum()) for z in tried)
    assert decided.is_optimal.all()
    assert decided.cost_bound[0] / unit**2 == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_squares_over_a_ball_and_under_uncertain_constraints_hold_in_any_unit(unit: float) -> None:
    # (|z - u| + 0.4)^2 + z_1^2 is least half-way between 0 and 1.4.
    pulled = ph.DecisionProblem(
        decision=cp.Variable(D), cost=lambda z, u: cp.sum_squares(z - u) + cp.square(z[0]), constraints=[], n_outcomes=D
    )
    decided = decide(pulled, Ball(D), 0.4 * unit, unit * np.array([[1.0, -2.0]]))
    assert decided.is_optimal.all()
    assert decided.cost_bound[0] / unit**2 == pytest.approx(0.98, rel=1e-5)
    # z^2 - unit u <= 0 for all u in [1, 3] units: |z| <= 1, and the cost is least at the upper end.
    bent = ph.DecisionProblem(
        decision=cp.Variable(1),
        cost=lambda z, u: u[0] - z[0],
        constraints=[],
        n_outcomes=1,
        uncertain_constraints=lambda z, u: [cp.square(z) <= unit * u],
    )
    decided = decide(bent, Box(np.array([unit])), 1.0, np.array([[2 * unit]]))
    assert decided.is_optimal.all()
    assert decided.z[0, 0] / unit == pytest.approx(1.0, abs=1e-6)


def fitted(unit: float, guarantee: str, shift: float = 0.0) -> list[list[float]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    Y = unit * (X + rng.normal(size=(60, D)) * [0.5, 1.0] + shift)
    z = cp.Variable(D)
    rows = [z >= unit * (shift - 3), z <= unit * (shift + 3), cp.sum(z) <= unit * (2 * shift + 1)]
    learner = ph.learners.Auto(n_folds=2, training_folds=2) if guarantee == "outcome" else None
    decider = ph.RobustDecider(square_problem(z, rows), alpha=0.2, learner=learner, guarantee=guarantee, random_state=0)
    decided = decider.fit(X, Y).decide(X[:5])
    assert decided.is_optimal.all()
    return [(decided.cost_bound / unit**2).tolist(), (decided.z / unit - shift).ravel().tolist()]


@pytest.mark.parametrize("guarantee", ["outcome", pytest.param("cost", marks=pytest.mark.slow)])
def test_fits_of_squares_are_the_same_in_all_units(guarantee: str) -> None:
    usual = fitted(1.0, guarantee)
    bounds, decisions = fitted(1e-6, guarantee, shift=1e4)
    assert bounds == pytest.approx(usual[0], abs=1e-5)
    assert decisions == pytest.approx(usual[1], abs=1e-4)  # the bound hardly moves with them


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_square_beside_a_constant_is_a_product_with_the_same_points_and_values(unit: float) -> None:
    # Minimise t with (x - 3 unit)^2 <= t and x <= unit, where both forms can be read.
    A = np.array([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0], [-2.0, 0.0]])
    b = np.array([unit, 1.0, 1.0, -6 * unit])
    plain = ConicProgram(np.array([0.0, 1.0]), sp.csr_array(A), b, (Cone("nonneg", 1), Cone("soc", 3)))
    chosen = products(plain.A, plain.b, plain.cones)
    turn = rotation(plain.cones, chosen)
    turned = replace(plain, A=sp.csr_array(turn @ plain.A), b=turn @ plain.b, cones=as_rotated(plain.cones, chosen))
    assert [cone.kind for cone in turned.cones] == ["nonneg", "rotated"]
    assert turned.b.tolist() == [unit, 2.0, 0.0, -6 * unit]
    back = SecondOrder(turned.cones).of(turned)
    assert np.array_equal(back.A.toarray(), A)
    assert back.b.tolist() == b.tolist()
    assert back.cones == plain.cones
    found = solve_conic(turned)
    assert found.status is ph.Status.OPTIMAL
    assert found.value / unit**2 == pytest.approx(4.0, rel=1e-6)


def test_cones_that_are_no_products_stay_as_they_are() -> None:
    z = cp.Variable(3)
    feasible = compile_feasible_program(z, cp.norm(z - 1), [cp.norm(z) <= 2, cp.quad_over_lin(z[:2], z[2]) <= 1])
    assert [cone.kind for cone in feasible.program.cones if cone.kind != "nonneg"].count("soc") == 2
    assert [cone.kind for cone in feasible.program.cones].count("rotated") == 1


def test_a_parameter_that_is_zero_at_some_rows_leaves_squares_as_they_are() -> None:
    p, z = cp.Parameter(name="p"), cp.Variable(2, name="z")
    rows = [z >= 0, z <= 5, p * z[1] + z[0] >= 1, cp.sum_squares(z) <= 30]
    problem = ph.DecisionProblem(decision=z, constraints=rows, cost=lambda z, u: u @ z + cp.square(z[0]), n_outcomes=2)
    outcomes, values = (
        np.array([[1.0, 0.5], [1.0, 0.5], [2.0, 1.0], [1.0, 0.5]]),
        np.array([[1.0], [0.0], [2.0], [1.0]]),
    )
    together = best_knowing(problem, outcomes, values)
    for i in range(len(values)):
        alone = best_knowing(problem, outcomes[[i]], values[[i]])
        assert together[1][i] == pytest.approx(alone[1][0], rel=1e-6)
    # Either all of it is done by the first entry, or the second one takes over what it can.
    assert together[1] == pytest.approx([0.5, 2.0, 0.5, 0.5], rel=1e-6)
