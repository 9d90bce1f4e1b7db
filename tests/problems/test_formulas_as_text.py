"""What is shown of a problem says what the problem is: signs, brackets, names, and what is a constraint."""

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.problems.formula import to_text
from polyhedge.problems.written import formulas_by_name

Z, U = cp.Variable(3, name="z"), cp.Variable(3, name="u")
P = cp.Variable((2, 3), name="P")
FUNCTIONS = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs": np.abs,
    "sum": np.sum,
    "power": np.power,
    "norm": np.linalg.norm,
    "max": np.max,
    "sum_squares": lambda x: np.sum(x**2),
}
EXPRESSIONS = {
    "a difference of sums": Z[0] - (U[0] + U[1]),
    "a difference of differences": Z[0] - (U[0] - (Z[1] - U[2])),
    "minus a product": 3 * Z[0] - 2 * (U[0] + U[1]) - Z[1],
    "a sum with a minus in front": Z[0] + (-U[0] + U[1]),
    "minus a sum": -(Z[0] - 1),
    "a negative number": Z[0] - (-2.0) + (-3.0),
    "a negative factor": Z[0] - (-2.0) * (U[0] - 1),
    "an entry of a sum": (Z + U)[1] - (Z - U)[2],
    "entries by a list": cp.sum(Z[[0, 2]] - U[[1, 2]]),
    "a slice": cp.sum(Z[1:] - U[:2]),
    "vectors": np.array([1.0, -2.0, 3.0]) @ (Z - U),
    "a matrix": np.array([[1.0, 2.0, 0.0]]) @ (Z - U),
    "maxima": cp.sum(cp.pos(Z - U)) - 5 * cp.minimum(Z[0], U[0]),
    "a quotient": (Z[0] - U[0]) / 4 - Z[1] / 2.0,
    "factors of one": 1.0 * Z[0] + (-1.0) * (U[0] - Z[1]),
    "powers": cp.square(Z[0] - U[0]) + cp.sum_squares(Z - U) - cp.norm(Z, 2),
    "along an axis": cp.sum(cp.sum(P, axis=0) - U),
    "a column": cp.sum(P[:, 0]) - P[1, 2],
    "absolute values": cp.max(cp.abs(U - Z)) + cp.norm(Z - U, 1),
}


@pytest.mark.parametrize("formula", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_the_text_of_a_formula_has_its_value(formula):
    rng = np.random.default_rng(0)
    for _ in range(3):
        Z.value, U.value, P.value = rng.normal(size=3), rng.normal(size=3), rng.normal(size=(2, 3))
        text, values = to_text(formula), {"z": Z.value, "u": U.value, "P": P.value}
        found = eval(text, {"__builtins__": {}}, FUNCTIONS | values)
        np.testing.assert_allclose(np.ravel(found), np.ravel(formula.value), err_msg=text)


def dam(**more):
    z = cp.Variable(2, nonneg=True)  # without a name, for which CVXPY makes one up
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.pos(z[0] - (u[0] + u[1])) + z[1],
        constraints=[z[0] - (z[1] + 1) <= 3, *more.pop("limits", ())],
        outcome_support=lambda u: [u >= 0],
        n_outcomes=2,
        outcome_names=["rain", "melt"],
        decision_names=["gate", "pump"],
        **more,
    )


def test_a_page_shows_cost_and_constraints_by_name_with_their_signs_and_brackets():
    cost, limits, known = formulas_by_name(dam())
    assert (cost, limits, known) == ("maximum(gate - (rain + melt), 0) + pump", ["gate - (pump + 1) <= 3"], ["0 <= u"])


def test_what_is_known_of_outcomes_is_no_constraint_and_a_variable_without_a_name_is_z():
    assert repr(dam()) == (
        "<decision problem: minimise over z (2, at least 0) the cost maximum(z[0] - (u[0] + u[1]), 0) + z[1] "
        "subject to z[0] - (z[1] + 1) <= 3; known of u: 0 <= u>"
    )


def test_of_many_constraints_the_rest_is_counted():
    z = cp.Variable(2, name="z")
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z, constraints=[z >= 0, *(cp.sum(z) == 1 for _ in range(299))], n_outcomes=2
    )
    assert repr(problem).count("sum(z) == 1") == 11
    assert "; 288 more>" in repr(problem)
