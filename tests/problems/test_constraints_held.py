"""What held on fresh rows: bound and uncertain constraints together, row by row, in text, JSON and on the page."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.problems import DecisionProblem, from_toml, problem_from_data, problem_to_data
from polyhedge.sets import Box
from shared import Given

RULES = ["stock covers demand", "reserve", "soft limit"]


def supply(unit: float = 1.0, upper: float = 20.0, **names: object) -> DecisionProblem:
    """Two supplies for an unknown demand; amounts in units."""
    return DecisionProblem(
        decision=cp.Variable(2, nonneg=True),
        cost=lambda z, u: cp.sum(z) + 0.1 / unit * cp.sum_squares(z),
        uncertain_constraints=lambda z, u: [
            z[0] + 0.5 * z[1] >= u[0],
            z >= u - 3 * unit,
            0.1 / unit * cp.square(z[1]) + u[1] <= 9 * unit + 2 * z[1],
            z <= upper * unit,  # does not see the outcome
        ],
        n_outcomes=2,
        **names,
    )


def demand(n: int, seed: int = 0, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 4
    return X, X + rng.normal(size=(n, d))


def fitted(problem: DecisionProblem, unit: float = 1.0) -> ph.RobustDecider:
    learner = Given(Box(np.full(problem.n_outcomes, unit)).as_polyhedron())
    X, Y = demand(120, d=problem.n_outcomes)
    return ph.RobustDecider(problem, "precomputed", learner=learner, random_state=0).fit(unit * X, unit * Y)


@pytest.fixture(scope="module")
def decider() -> ph.RobustDecider:
    return fitted(supply(constraint_names=RULES))


def test_violations_are_those_of_the_written_constraints(decider: ph.RobustDecider) -> None:
    problem, rng = decider.problem_, np.random.default_rng(3)
    z, u = rng.uniform(0, 6, size=(30, 2)), rng.normal(size=(30, 2)) + 4
    found = problem.violations(z, u)
    for i in range(len(z)):
        rows = [
            cp.Constant(z[i, 0] + 0.5 * z[i, 1]) >= u[i, 0],
            cp.Constant(z[i]) >= u[i] - 3,
            0.1 * z[i, 1] ** 2 + u[i, 1] <= cp.Constant(9 + 2 * z[i, 1]),
        ]
        assert found[i] == pytest.approx([np.max(row.violation()) for row in rows], abs=1e-12)
    assert (found > 0).any(axis=0).tolist() == [True, True, False]


def test_bound_and_constraints_hold_together_wherever_the_outcome_is_in_the_set(decider: ph.RobustDecider) -> None:
    X, Y = demand(200, 5)
    rows, found = decider.measure(X, Y), decider.evaluate(X, Y)
    assert rows.promise_held[rows.inside].all()
    assert found.promise_held.value >= found.coverage.value
    assert found.promise_held.value <= min(found.bound_held.value, found.constraints_held.value)
    # The cost does not depend on the outcome, so that only constraints can be broken.
    assert found.bound_held.value == 1.0
    assert found.constraints_held.value == np.mean(rows.violations.max(axis=1) == 0) < 1
    for k, one in enumerate(found.constraints):
        assert one.name == RULES[k]
        assert one.held.value == np.mean(rows.violations[:, k] == 0)
        assert one.largest_violation == rows.violations[:, k].max()
        assert one.nominal_largest_violation == rows.nominal_violations[:, k].max()
    assert found.nominal_constraints_held.value < 0.5


def test_problems_without_uncertain_constraints_promise_the_bound() -> None:
    found = fitted(ph.problems.simplex_linear([0.0, 0.0])).evaluate(*demand(50, 6))
    assert found.promise_held == found.bound_held
    assert found.constraints_held is None
    assert found.constraints == ()
    assert "promise held" not in str(found)


def test_a_row_without_a_decision_keeps_nothing() -> None:
    tight = fitted(supply(upper=4.5))
    rows = tight.measure(*demand(60, 7))
    assert 0 < rows.decided.sum() < 60
    assert np.isnan(rows.violations[~rows.decided]).all()
    assert not rows.constraints_held[~rows.decided].any()
    assert rows.summary(0.1).constraints_held.value == rows.constraints_held.mean()


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_violations_do_not_depend_on_units(unit: float) -> None:
    rng = np.random.default_rng(4)
    z, u = rng.uniform(0, 6, size=(30, 2)), rng.normal(size=(30, 2)) + 4
    z[:5, 0] = u[:5, 0] - 0.5 * z[:5, 1]  # just held, up to rounding
    np.testing.assert_allclose(
        supply(unit).violations(unit * z, unit * u) / unit, supply().violations(z, u), atol=1e-12
    )


def test_constraints_are_called_by_their_text_where_nobody_named_them() -> None:
    assert supply().constraint_names[:2] == ("u[0] <= z[0] + 0.5 * z[1]", "u - 3 <= z")
    with pytest.raises(ValueError, match=r"constraint_names must have 3 name\(s\), one for each entry, got 2"):
        supply(constraint_names=["a", "b"])


def test_names_of_constraints_travel_in_files(tmp_path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(TOML)
    problem = from_toml(path)
    names = ("order >= demand", "0 <= order - 0.5 * demand <= 30 + demand", "order >= 0.9 * demand + 0.5")
    assert problem.constraint_names == (names[0], names[1], f"{names[1]} (2)", names[2])
    assert problem_from_data(problem_to_data(problem)).constraint_names == problem.constraint_names


TOML = """\
outcomes = ["demand"]
decisions = ["order"]
cost = "order"
lower = 0
upper = 99
constraints = [
    "order >= demand",
    "0 <= order - 0.5 * demand <= 30 + demand",
    "0 <= order",
    "order >= 0.9 * demand + 0.5",
]
"""


def test_constraints_are_measured_at_the_parameters_of_each_row() -> None:
    stock, z = cp.Parameter(name="stock", nonneg=True), cp.Variable(1, nonneg=True)
    for power in (1, 2):  # linear in the parameter, and not
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum(z),
            uncertain_constraints=lambda z, u, power=power: [z + stock**power >= u],
            n_outcomes=1,
        )
        found = problem.violations(np.ones((3, 1)), np.full((3, 1), 4.0), np.array([[0.0], [1.0], [3.0]]))
        assert found[:, 0] == pytest.approx([3.0, 2.0, 0.0])
