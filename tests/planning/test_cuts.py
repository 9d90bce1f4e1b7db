"""Cuts, segments and distributions that predict chance, on arrays."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from polyhedge.planning import DevelopmentRows, selection
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.programs import _condensed, least_on_segment
from polyhedge.planning.residual_distributions import Scaled, fit_distribution
from polyhedge.planning.risk import Cuts, JointCost, Risk
from polyhedge.planning.separable import separable_of
from polyhedge.problems import DecisionProblem, newsvendor, simplex_newsvendor
from polyhedge.solvers.solve import solve


def rows_of(n: int = 120, *, seed: int = 0) -> DevelopmentRows:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    centers = 0.5 + 0.2 * X
    outcomes = centers + 0.3 * rng.normal(size=(n, 2))
    return DevelopmentRows(X, centers, outcomes, np.zeros((n, 0)), np.arange(n) * 3 // n)


def test_forests_that_predict_chance_are_shrunk_and_rules_on_them_scored_as_if_decided_anew(monkeypatch):
    problem = PlanningProblem(simplex_newsvendor(0.3, 0.7, 2))
    rules = [Rule(name, Risk(0.5)) for name in ("uniform", "scaled")]
    is_uniform = []
    for seed in range(6):
        rows = rows_of(seed=seed)
        is_uniform.append(fit_distribution("scaled", rows, 0).is_uniform)
        together = selection.Folds(problem, rows, rules, 0.8, 0).scored(rules)["scaled"]
        with monkeypatch.context() as patch:
            patch.setattr(Scaled, "is_uniform", False)
            apart = selection.Folds(problem, rows, rules, 0.8, 0).scored(rules)["scaled"]
        for one, other in zip(together, apart, strict=True):
            np.testing.assert_allclose(one.planned, other.planned, rtol=0, atol=1e-9)
            np.testing.assert_allclose(one.realised, other.realised, rtol=0, atol=1e-9)
    assert 0 < sum(is_uniform) < len(is_uniform)


@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("level", [0.0, 0.7])
def test_terms_of_cuts_come_to_the_risk_of_the_sampled_costs(d, level):
    """With two outcomes pieces are matrix products, with twelve one column after the other."""
    rng = np.random.default_rng(d)
    cost = JointCost(newsvendor(1.0, 3.0, d).structure.maxima, rng.normal(size=(200, d)))
    z, centers, scales = rng.uniform(size=(9, d)), rng.uniform(size=(9, d)), rng.uniform(1, 2, size=9)
    worst = np.sort(cost.samples(z, centers, scales), axis=1)[:, int(level * 200) :]
    terms = cost.cuts(z, centers, scales, Risk(level))
    assert np.allclose(sum(values for values, _ in terms), worst.mean(axis=1), rtol=1e-12)
    z1 = np.hstack([np.ones((9, 1)), z])
    for values, cuts in terms:
        own = [z1[i] @ cuts.take(np.array([i])).at(centers[i], scales[i])[0] for i in range(9)]
        assert np.allclose(values, own, rtol=1e-9)


@pytest.mark.parametrize("bend", [0.0, 0.3, 5.0])
def test_least_on_a_segment_is_exact_and_a_function_of_the_row(bend):
    rng, n_cuts = np.random.default_rng(4), 60
    t = np.sort(rng.uniform(size=n_cuts))  # tangents of a parabola at these positions, and lines that follow the row
    A = np.column_stack([-(t**2), 2 * t]) + 1e-3 * rng.normal(size=(n_cuts, 2))
    cuts = Cuts(A, np.zeros((n_cuts, 2)), 0.5 * rng.normal(size=(n_cuts, 2, 1)), np.zeros(n_cuts, dtype=np.int64))
    base, centers, scales = np.array([0.0, -0.8, bend]), 0.2 * rng.normal(size=(40, 1)), np.ones(40)
    found = least_on_segment(cuts, base, np.zeros(1), np.ones(1), centers, scales)
    for i, at in enumerate(found):
        lines = cuts.at(centers[i], 1.0)
        a, b = np.triu_indices(n_cuts, k=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            kinks = (lines[a, 0] - lines[b, 0]) / (lines[b, 1] - lines[a, 1])
            level = -(base[1] + lines[:, 1]) / (2 * bend) if bend else np.zeros(0)
        candidates = np.concatenate([[0.0, 1.0, at], kinks, level])
        candidates = candidates[(candidates >= 0) & (candidates <= 1)]
        costs = (lines[:, 0] + candidates[:, None] * lines[:, 1]).max(axis=1) + candidates * (
            base[1] + bend * candidates
        )
        assert costs[candidates == at].min() <= costs.min() + 1e-12
        alone = least_on_segment(cuts, base, np.zeros(1), np.ones(1), centers[[i]], scales[[i]])
        assert alone[0] == pytest.approx(at, abs=1e-9)


def test_a_quadratic_cost_condensed_to_the_decision_is_the_cost():
    rng = np.random.default_rng(1)
    L, z = rng.normal(size=(3, 3)), cp.Variable(3, nonneg=True)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: -u @ z + 0.5 * cp.sum_squares(L @ z - 1) + cp.sum(z),
        constraints=[cp.sum(z) == 2, z[0] + 3 * z[1] <= 4],
        n_outcomes=3,
    )
    program, columns = _condensed(problem)
    assert len(program.c) == 3 < len(problem.feasible.program.c)
    joint = problem.structure.maxima.base  # what is linear in the decision stands there, with the outcome
    for point in rng.uniform(size=(4, 3)):
        alone = 0.5 * ((L @ point - 1) ** 2).sum() + point.sum() - np.append(1.0, point) @ joint[:, 0]
        assert program.value(point) == pytest.approx(alone)
    for price in rng.normal(size=(4, 3)):
        fixed, *slope = joint @ np.append(1.0, price)
        least = solve(replace(program, c=program.c + slope, offset=program.offset + fixed))
        asked = cp.Problem(cp.Minimize(problem.expression(z, price)), problem.constraints)
        assert least.value == pytest.approx(asked.solve(solver=cp.CLARABEL), abs=1e-6)
        np.testing.assert_allclose(least.x[columns], z.value, atol=1e-4)


@pytest.mark.parametrize("level", [0.0, 0.5])
@pytest.mark.parametrize("is_equation", [False, True])
def test_the_price_of_a_coupling_row_is_found_among_the_steps(is_equation, level):
    rng, d = np.random.default_rng(5), 3
    z, weights, points = cp.Variable(d, nonneg=True), np.array([1.0, 2.0, 1.5]), rng.normal(size=(40, d))
    row = weights @ z == 8 if is_equation else weights @ z <= 8
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + [3, 2, 4] @ cp.pos(u - z),
        constraints=[row, z <= 9],
        n_outcomes=d,
    )
    own = separable_of(problem)
    assert own is not None
    centers, scales = rng.uniform(0, 3, size=(6, d)), rng.uniform(0.5, 2, size=6)
    found = own.tabled(points, Risk(level)).least(centers, scales)
    for one, center, scale in zip(found, centers, scales, strict=True):
        u, at = center + scale * points, cp.Variable(d)

        def costs(z, u=u):
            at_all = cp.vstack([z] * len(u))
            return cp.maximum(at_all - u, cp.multiply(np.tile([3.0, 2.0, 4.0], (len(u), 1)), u - at_all))

        tails = at + cp.sum(cp.pos(costs(z) - cp.vstack([at] * len(u))), axis=0) / ((1 - level) * len(u))
        least = cp.Problem(cp.Minimize(cp.sum(tails)), [row, z <= 9]).solve(solver=cp.HIGHS)
        worst = np.sort(np.maximum(one - u, [3, 2, 4] * (u - one)), axis=0)[-round((1 - level) * len(u)) :]
        # A tail's slopes are tabled between residuals: its least is missed by less than one step of them.
        assert worst.mean(axis=0).sum() == pytest.approx(least, abs=1e-6 if level == 0 else 0.02 * least)
        assert weights @ one <= 8 + 1e-9
        assert not is_equation or weights @ one == pytest.approx(8)


@pytest.mark.parametrize("level", [0.0, 0.7])
def test_rule_of_one_maximum_over_bounded_decisions_is_the_program_over_its_scenarios(level):
    """One cut suffices to begin with there, and does not show that the pieces have slopes of their own."""
    z = cp.Variable(2, bounds=[0, 3])
    problem = DecisionProblem(decision=z, cost=lambda z, u: cp.sum(z) + 4 * cp.max(cp.hstack([u - z, 0])), n_outcomes=2)
    rows = rows_of()
    rows = replace(rows, centers=rows.centers + 1, outcomes=rows.outcomes + 1)
    for is_scored in (True, False):
        rule, distribution = Rule("uniform", Risk(level)), fit_distribution("uniform", rows, 0)
        at = rows.X, rows.centers, rows.values
        planner = fit_planner(PlanningProblem(problem), rule, distribution, *at, is_scored=is_scored)
        one, *values = (part[:1] for part in at)
        u, own, top = values[0] + distribution.points, cp.Variable(2), cp.Variable()
        costs = cp.sum(own) + 4 * cp.max(cp.hstack([u - own[None], np.zeros((len(u), 1))]), axis=1)
        risk = top + cp.sum(cp.pos(costs - top)) / ((1 - level) * len(u))
        program = cp.Problem(cp.Minimize(risk), [own >= 0, own <= 3])
        found = planner(one, *values)[0]
        least, own.value = program.solve(solver=cp.SCIPY), found
        top.value = np.quantile(costs.value, level) if level else costs.value.min()
        np.testing.assert_allclose(risk.value, least, rtol=0.02)
