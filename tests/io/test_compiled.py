"""Arrays and formulas of a stored problem that differ where nobody would look: refused, and without long looks."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.problems import decompose, stored_checks
from polyhedge.problems.stored import problem_from_state, problem_to_state


def written(cost, upper=10.0, **settings):
    z = cp.Variable(1, nonneg=True)
    return ph.DecisionProblem(decision=z, cost=cost, constraints=[z <= upper], n_outcomes=1, **settings)


def edited(problem, **edits):
    state = problem_to_state(problem)
    state["compiled"] = {**state["compiled"], **{key: edit(state["compiled"][key]) for key, edit in edits.items()}}
    return problem_from_state(state)


def tripled(groups):
    return [np.where(np.abs(group) == 100_000, 3 * group, group) for group in groups]


STEEP = written(lambda z, u: cp.maximum(u[0] - z[0], 5 * (u[0] - 20_000)))


def test_a_piece_that_is_another_one_only_where_the_outcomes_are_is_refused():
    with pytest.raises(ValueError, match="The cost is compiled to another one than its formula"):
        edited(STEEP, groups=tripled)


@pytest.mark.parametrize("at", [1e-5, 20_000.0, 1e7])
def test_values_alone_show_a_piece_that_differs_at_any_size(at, monkeypatch):
    monkeypatch.setattr(stored_checks, "_check_coefficients", lambda problem: None)
    problem = written(lambda z, u: cp.maximum(u[0] - z[0], 5 * (u[0] - at)))
    with pytest.raises(ValueError, match="The cost is compiled to another one than its formula"):
        edited(problem, groups=lambda groups: [np.where(np.abs(group) == 5 * at, 3 * group, group) for group in groups])


def test_a_cost_of_far_decisions_that_is_another_one_is_refused():
    problem = written(lambda z, u: 3 * cp.pos(z[0] - 100) + u[0] * z[0], upper=1000.0)
    edited(problem)
    with pytest.raises(ValueError, match="The cost of a decision is compiled to another one"):
        edited(problem, b=lambda b: np.where(np.abs(b) == 100, 5 * b, b))


def test_a_known_limit_is_not_hidden_by_a_larger_one():
    problem = written(lambda z, u: u[0] * z[0], outcome_support=lambda u: [u <= 5, u >= -1e9])
    with pytest.raises(ValueError, match="known support of the outcome is compiled to another"):
        edited(problem, support_rows=lambda rows: [rows[0], np.where(rows[1] == 5, 5.4, rows[1])])


def test_an_uncertain_constraint_that_differs_far_away_is_refused():
    problem = written(
        lambda z, u: u[0] * z[0], uncertain_constraints=lambda z, u: [cp.maximum(u[0], 5 * u[0] - 1e7) <= z[0] + 1]
    )
    edited(problem)
    with pytest.raises(ValueError, match="uncertain constraint is compiled to another"):
        edited(problem, uncertain_rows=lambda rows: [[*row[:3], np.where(row[3] < -1e6, -9e7, row[3])] for row in rows])


def test_pieces_that_are_more_than_those_of_the_formula_are_not_used():
    """A narrow piece would escape any points: what is not as the formula has it is taken from the formula."""
    narrow = np.array([[[-1e9, 2e4], [0.0, 0.0]]])
    problem = edited(STEEP, groups=lambda groups: [np.concatenate([groups[0], narrow])])
    assert np.array_equal(problem.sum_of_maxima.groups[0], STEEP.sum_of_maxima.groups[0])
    rows = written(lambda z, u: u[0] * z[0], uncertain_constraints=lambda z, u: [u[0] <= z[0] + 1])
    twice = edited(rows, uncertain_rows=lambda rows: [[np.concatenate([part, part - 1e-3]) for part in rows[0]]])
    assert len(twice.uncertain_rows[0]) == 1


def test_pieces_in_another_order_and_rounded_otherwise_are_the_same():
    assert edited(STEEP, groups=lambda groups: [group[::-1] * (1 + 1e-15) for group in groups]) is not None


def test_a_long_formula_is_evaluated_a_few_times_and_a_short_one_often(monkeypatch):
    counts = []
    at = stored_checks._Values.at
    monkeypatch.setattr(stored_checks._Values, "at", lambda own, z, u: (counts.append(len(u)), at(own, z, u))[1])
    edited(STEEP)
    short = sum(counts)
    counts.clear()
    monkeypatch.setattr(stored_checks, "_WORK", 1)
    edited(STEEP)
    assert short >= 200
    assert sum(counts) == 2 * 4


def test_coefficients_of_long_formulas_are_those_of_the_gradient(monkeypatch):
    z, u = cp.Variable((2, 2)), cp.Variable(3)
    matrix = np.random.default_rng(0).normal(size=(2, 3))
    formula = cp.hstack(
        [cp.vec(z.T @ matrix, order="C")[2] + 0.1 * (u[k] - 1e6) - cp.sum(z[:, 1]) / 3 + cp.exp(1.0) for k in range(3)]
    )
    own = decompose._at_zero([z, u])
    expression = decompose.substitute(formula, own)
    slow = decompose._affine_map(expression, own)
    monkeypatch.setattr(decompose, "_MANY_PARTS", 1)
    monkeypatch.setattr(decompose, "_gradient", None)
    quick = decompose._affine_map(expression, own)
    assert quick == pytest.approx(slow, rel=1e-15)
    assert np.array_equal(quick[:, 0], slow[:, 0])
