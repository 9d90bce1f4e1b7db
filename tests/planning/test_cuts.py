"""Cuts, segments and distributions that predict chance, on arrays."""

from __future__ import annotations

import numpy as np
import pytest

from polyhedge.planning import DevelopmentRows, selection
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule
from polyhedge.planning.programs import least_on_segment
from polyhedge.planning.residual_distributions import ResidualDistribution, fit_distribution
from polyhedge.planning.risk import Cuts, JointCost, Risk
from polyhedge.problems import newsvendor, simplex_newsvendor


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
            patch.setattr(ResidualDistribution, "is_uniform", False)
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
