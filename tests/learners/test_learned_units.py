"""Learners see the same problem whatever decisions are measured in and wherever outcomes are counted from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.learners import Samples
from polyhedge.learners.samples import SampleScaling
from polyhedge.robust import decide
from polyhedge.sets import Box

Make = Callable[..., ph.DecisionProblem]


def three_parts(unit: Any = 1.0, shift: float = 0.0, outcome: Any = 1.0, cost: float = 1.0) -> ph.DecisionProblem:
    """A budget over three, none of which may have too much."""
    z = cp.Variable(3, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cost * ((u / outcome - shift) @ (z / unit)),
        constraints=[cp.sum(z / unit) == 1, z / unit <= 0.6],
        n_outcomes=3,
    )


def two_budgets(unit: Any = 1.0, shift: float = 0.0, outcome: Any = 1.0, cost: float = 1.0) -> ph.DecisionProblem:
    """Orders of three products, of which the second shares a shelf with each of the others."""
    z = cp.Variable(3, nonneg=True)

    def costs(z: Any, u: Any) -> Any:
        short = u / outcome - shift - z / unit
        return cost * cp.sum(cp.pos(-short) + 3 * cp.pos(short))

    w = z / unit
    return ph.DecisionProblem(decision=z, cost=costs, constraints=[w[0] + w[1] <= 3, w[1] + w[2] <= 2.5], n_outcomes=3)


def nothing_but_orders(
    unit: Any = 1.0, shift: float = 0.0, outcome: Any = 1.0, cost: float = 1.0
) -> ph.DecisionProblem:
    """No limit tells the unit of a decision: only the outcomes do that it is compared with."""
    z = cp.Variable(2, nonneg=True)

    def costs(z: Any, u: Any) -> Any:
        short = u / outcome - shift - z / unit
        return cost * cp.sum(cp.pos(-short) + 3 * cp.pos(short))

    return ph.DecisionProblem(decision=z, cost=costs, n_outcomes=2)


def bent(unit: Any = 1.0, shift: float = 0.0, outcome: Any = 1.0, cost: float = 1.0) -> ph.DecisionProblem:
    z = cp.Variable(3)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cost * ((u / outcome - shift) @ (z / unit) + 0.4 * cp.sum_squares(z / unit)),
        constraints=[cp.norm(z / unit) <= 1.5],
        n_outcomes=3,
    )


def needs(unit: Any = 1.0, shift: float = 0.0, outcome: Any = 1.0, cost: float = 1.0) -> ph.DecisionProblem:
    """Uncertain constraints, one of which bends; bounds are an attribute of the variable."""
    z = cp.Variable(2, bounds=[0.0, 20.0 * unit])

    def rows(z: Any, u: Any) -> list[Any]:
        v, w = u / outcome - shift, z / unit
        return [w[0] + 0.5 * w[1] >= v[0], cp.square(w[0] - 3) + v[1] <= 30 + w[1]]

    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cost * (np.array([1.0, 1.5]) @ (z / unit) + 0.1 * (u / outcome - shift)[0]),
        uncertain_constraints=rows,
        n_outcomes=2,
    )


def with_a_switch(unit: Any = 1.0, shift: float = 0.0, outcome: Any = 1.0, cost: float = 1.0) -> ph.DecisionProblem:
    """Integers have no unit, what they switch on has; the fee is auxiliary and in units of cost."""
    on, power, fee = cp.Variable(2, boolean=True), cp.Variable(2, nonneg=True), cp.Variable(name="fee")
    return ph.DecisionProblem(
        decision={"on": on, "power": power},
        cost=lambda z, u: cost * ((u / outcome - shift) @ (z["power"] / unit)) + fee,
        constraints=[power / unit <= 2 * on, cp.sum(power) >= 3 * unit, fee >= 0.2 * cost * cp.sum(on)],
        n_outcomes=2,
    )


MAKES: list[Make] = [three_parts, two_budgets, nothing_but_orders, bent, needs, with_a_switch]
DECIMAL: list[dict[str, Any]] = [{"unit": 1e3}, {"unit": 7e-5, "outcome": 3e4, "cost": 0.01}]
EACH = np.array([1e-3, 7.0, 3e4])
"""A price, a weight, a number of pieces."""
AXES = np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3))])


def samples_in(make: Make, seed: int, shift: float = 0.0, outcome: Any = 1.0, n: int = 60, **units: Any) -> Samples:
    """What `fit` would hand over: outcomes as they are stored, and residuals of these."""
    problem = make(shift=shift, outcome=outcome, **units)
    residuals, centers = np.random.default_rng(seed).normal(size=(2, n, problem.n_outcomes))
    outcomes, centers = outcome * (1 + centers + residuals + shift), outcome * (1 + centers + shift)
    return Samples(outcomes - centers, centers, problem, 0.2)


@pytest.mark.parametrize("make", MAKES)
def test_a_learner_sees_the_same_numbers_in_all_units_and_wherever_outcomes_are_counted_from(make: Make) -> None:
    def seen(**units: Any) -> dict[str, np.ndarray]:
        samples = samples_in(make, 0, **units)
        samples = SampleScaling.of(samples, each_outcome=True).apply(samples)
        z = 0.3 * units.get("unit", 1.0) / samples.problem.decision_units[None]
        directions = samples.problem.pieces.directions(z)
        return {"residuals": samples.residuals, "centers": samples.centers, "directions": directions}

    usual, each = seen(), EACH[: make().n_outcomes]
    for units in (*DECIMAL, {"outcome": each}, {"shift": 1e4}):
        for name, numbers in seen(**units).items():
            np.testing.assert_allclose(numbers, usual[name], atol=1e-6, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("make", MAKES)
def test_the_standardised_problem_is_the_same_problem(make: Make) -> None:
    samples = samples_in(make, 1, outcome=3e4, unit=7e-5, cost=0.01)
    scaling = SampleScaling.of(samples, each_outcome=False)
    units, twin, centers = scaling.units, scaling.apply(samples), samples.centers[:4]
    box = np.full(samples.problem.n_outcomes, 1.5e4)
    usual = decide(samples.problem, Box(box), 1.0, centers)
    found = decide(twin.problem, Box(box / units.outcome), 1.0, twin.centers[:4])
    assert found.is_optimal.all()
    assert units.cost_shift + units.cost * found.cost_bound == pytest.approx(usual.cost_bound, rel=1e-7)
    assert samples.problem.violations(
        twin.problem.decision_units * found.flat, units.outcome * found.worst_outcome + units.shift
    ) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "seed"),
    [(two_budgets, 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((three_parts, 1), (two_budgets, 1)))],
)
def test_a_descent_learns_the_same_set_in_all_units_and_wherever_outcomes_lie(make: Make, seed: int) -> None:
    learner = ph.learners.Descent(n_steps=40, final_width=0.08)

    def learned(outcome: Any = 1.0, cost: float = 1.0, **units: Any) -> list[float]:
        result = learner.learn(samples_in(make, seed, outcome=outcome, cost=cost, **units), 0)
        return [result.objective / cost, *(result.set.support(AXES, 0.0) / outcome).tolist()]

    usual = learned()
    for units in (*DECIMAL, {"shift": 1e4}):
        assert learned(**units) == pytest.approx(usual, abs=1e-6)


def test_an_outcome_that_never_differs_from_its_prediction_has_a_unit_too() -> None:
    rng = np.random.default_rng(0)
    residuals, centers = rng.normal(size=(60, 2)) * [1.0, 0.0], rng.normal(size=(60, 2)) * [1.0, 0.0] + [0.0, 5.0]
    objectives = []
    for each in (np.ones(2), np.array([1.0, 1e4])):
        samples = Samples(each * residuals, each * centers, nothing_but_orders(outcome=each), 0.1)
        assert (
            SampleScaling.of(samples, each_outcome=True).units.outcomes[1] < 1e-4 * each[1]
        )  # it is hardly open at all
        objectives.append(ph.learners.Descent(n_steps=5).learn(samples, 0).objective)
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


def test_a_formula_that_rests_on_the_sign_of_outcomes_far_from_zero_is_learned() -> None:
    """Seen from the middle of an outcome of 50 ± 0.03 its sign would be lost, and with it the convex cost."""
    rng, z = np.random.default_rng(0), cp.Variable(2)
    X = rng.normal(size=(100, 2))
    Y = np.column_stack([100 + 10 * X[:, 0] + 10 * rng.normal(size=100), 50 + 0.03 * rng.normal(size=100)])
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ cp.pos(z - np.array([0.2, 0.3])) + 100 * cp.sum_squares(z - 1),
        constraints=[z >= 0, z <= 2],
        n_outcomes=2,
        outcome_support=lambda u: [u >= 0],
    )
    learner = ph.learners.Descent(n_steps=5, max_contexts=2)
    decider = ph.RobustDecider(problem, LinearRegression(), guarantee="outcome", learner=learner, random_state=0)
    assert decider.fit(X, np.maximum(Y, 0.0)).decide(X[:2]).is_optimal.all()
