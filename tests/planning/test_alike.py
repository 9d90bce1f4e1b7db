"""What rules and distributions have in common is worked out once, and comes to the same as by itself."""

from __future__ import annotations

import numpy as np
import pytest

from polyhedge.planning import DevelopmentRows
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.equivalent import first_alike
from polyhedge.planning.leaf_weights import weighted_quantiles
from polyhedge.planning.levels import quantiles_at, quantiles_of_each
from polyhedge.planning.line import least_on_segment
from polyhedge.planning.policies import Rule
from polyhedge.planning.residual_distributions import (
    DISTRIBUTIONS,
    EVEN_DISTRIBUTIONS,
    fit_distribution,
    fit_distributions,
    says_the_same,
)
from polyhedge.planning.risk import Cuts, JointCost, Risk
from polyhedge.planning.selection import Selection
from polyhedge.problems import newsvendor, simplex_newsvendor


def rows_of(n: int = 120, *, bias: float = 0.0, seed: int = 0) -> DevelopmentRows:
    """Outcomes around their predictions, or beside them by a multiple of the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    centers = 0.5 + 0.2 * X
    outcomes = centers + bias * X[:, [0]] + 0.3 * rng.normal(size=(n, 2))
    return DevelopmentRows(X, centers, outcomes, np.zeros((n, 0)), np.arange(n) * 3 // n)


FEW = (rows_of(20, seed=9).X, rows_of(20, seed=9).centers)


@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_laws_that_are_fitted_together_are_those_that_are_fitted_alone(bias):
    for seed in range(4):
        rows = rows_of(bias=bias, seed=seed)
        for name, distribution in fit_distributions(DISTRIBUTIONS, rows, seed=0).items():
            alone = fit_distribution(name, rows, seed=0)
            told, expected = (each.placed(rows.X, rows.centers) for each in (distribution, alone))
            assert np.array_equal(distribution.points, alone.points)
            assert np.array_equal(told.centers, expected.centers)
            assert np.array_equal(told.scales, expected.scales)


def test_laws_say_the_same_where_forests_tell_chance_and_not_where_they_tell_more():
    distributions = [fit_distributions(EVEN_DISTRIBUTIONS, rows_of(seed=seed), seed=0) for seed in range(8)]
    alike = [says_the_same(each["scaled"], each["corrected"]) for each in distributions]
    assert 0 < sum(alike) < len(alike)  # a share of forests is held back to nothing, the others are not
    for each in (distributions[k] for k in np.flatnonzero(alike)):
        for part, other in zip(*(each[name].at(*FEW) for name in ("scaled", "corrected")), strict=True):
            assert np.array_equal(part, other)
    told = fit_distributions(EVEN_DISTRIBUTIONS, rows_of(bias=3.0), seed=0)
    assert not says_the_same(told["scaled"], told["corrected"])


def test_rules_on_laws_that_say_the_same_are_judged_as_if_each_had_a_law_of_its_own(monkeypatch):
    problem, rules = (
        PlanProblem(simplex_newsvendor(0.3, 0.7, 2)),
        [Rule(distribution, Risk(0.5)) for distribution in EVEN_DISTRIBUTIONS],
    )
    for seed in range(3):
        together = Selection(problem, rows_of(seed=seed), rules, 0.8, seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(
                "polyhedge.planning.selection.says_the_same", lambda distribution, other: distribution is other
            )
            apart = Selection(problem, rows_of(seed=seed), rules, 0.8, seed=0)
        for one, other in zip(together.scored, apart.scored, strict=True):
            for a, b in zip(one, other, strict=True):
                assert np.array_equal(a.planned, b.planned)
                assert np.array_equal(a.realised, b.realised)


@pytest.mark.parametrize("name", ["scaled", "weighted"])
def test_costs_of_many_rules_are_planned_as_those_of_each(name):
    rows, problem, rng = rows_of(), PlanProblem(simplex_newsvendor(0.3, 0.7, 2)), np.random.default_rng(1)
    distribution = fit_distribution(name, rows, seed=0)
    t = np.round(2 * rng.uniform(size=(4, len(rows)))) / 2  # ends and the middle: many decisions are the same
    decisions = [np.column_stack([each, 1 - each]) for each in t]
    decisions[3][5] = np.nan
    at = distribution.placed(rows.X, rows.centers)
    together = quantiles_of_each(problem, distribution, (0.5, 0.9), decisions, at, rows.values)
    for z, own in zip(decisions, together, strict=True):
        assert np.array_equal(
            own, quantiles_at(problem, distribution, (0.5, 0.9), z, at, rows.values)[0], equal_nan=True
        )
    assert (first_alike(decisions)[1:] == 0).any()


def test_weighted_quantiles_over_residuals_that_count_are_those_over_all_and_hang_on_the_row_alone():
    rows, problem = rows_of(300), PlanProblem(simplex_newsvendor(0.3, 0.7, 2))
    distribution = fit_distribution("weighted", rows, seed=0)
    weights = distribution.placed(rows.X, rows.centers).weights[0]
    cost, scales = JointCost(problem.joint, distribution.points), np.ones(len(rows))
    z = np.full((len(rows), 2), 0.5)
    quantiles, mean = cost.quantiles(z, rows.centers, scales, (0.5, 0.9), weights)
    costs, dense = cost.samples(z, rows.centers, scales), weights.toarray()
    assert np.array_equal(quantiles, weighted_quantiles(costs, dense, (0.5, 0.9)))
    assert np.allclose(mean, (costs * dense).sum(axis=1), rtol=1e-13)
    for i in (0, 7, 299):
        alone = cost.quantiles(z[[i]], rows.centers[[i]], scales[[i]], (0.5, 0.9), weights[[i]])
        assert np.array_equal(alone[0][0], quantiles[i])
        assert alone[1][0] == mean[i]


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
        assert alone[0] == at
