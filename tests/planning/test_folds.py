"""Successive halving: which folds score which rules, and that the same seed gives the same choice."""

from __future__ import annotations

import numpy as np
import pytest

from polyhedge.planning import DevelopmentRows, fit_policy, selection
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.selection import Folds, candidates
from polyhedge.problems import simplex_linear


def rows_of(n: int = 150, d: int = 3) -> DevelopmentRows:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 2))
    centers = X @ rng.normal(size=(2, d))
    outcomes = centers + rng.standard_t(4, size=(n, d)) * (1 + (X[:, :1] > 0))
    return DevelopmentRows(X, centers, outcomes, np.zeros((n, 0)), np.arange(n) * 5 // n)


PROBLEM = PlanningProblem(simplex_linear(np.zeros(3)))
RULES = candidates(PROBLEM, 0.1)


def test_rules_are_scored_on_the_last_folds_alone_and_their_decisions_kept():
    rows, folds = rows_of(), Folds(PROBLEM, rows_of(), RULES, 0.8, 0)
    first = folds.scored(RULES, 2)["scaled"]
    assert {k for k, _ in folds.decisions} == {3, 4}
    few = RULES[:2]
    kept = dict(folds.decisions)
    whole = folds.scored(few)["scaled"]
    assert all(folds.decisions[job] is z for job, z in kept.items())
    for one, all_folds in zip(first, whole, strict=False):
        is_last = rows.blocks >= 3
        np.testing.assert_array_equal(one.realised, all_folds.realised[is_last])
        np.testing.assert_array_equal(one.planned, all_folds.planned[is_last])
    z = np.vstack([folds.decisions[k, RULES[0]] for k in range(5)])
    np.testing.assert_allclose(whole[0].realised, (rows.outcomes * z).sum(axis=1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_choice_and_few_rules_go_on(seed, monkeypatch):
    scored = []
    own = Folds.scored

    def told(self, rules, most=None):
        scored.append((len(rules), most))
        return own(self, rules, most)

    monkeypatch.setattr(selection.Folds, "scored", told)
    one, other = (fit_policy(PROBLEM.problem, rows_of(), 0.1, 0.5, seed) for _ in range(2))
    assert one.report == other.report
    assert one.weights == other.weights
    assert scored[:2] == scored[2:]
    assert scored[0] == (len(RULES), 2)
    assert scored[1][0] <= 3
    assert len(one.planners) <= 3
