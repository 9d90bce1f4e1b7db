"""Guarded decisions over a learned set: what they are expected to cost, and an outcome as dear as may be."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from shared import Given, ScaledBox


def coupled() -> ph.DecisionProblem:
    """A newsvendor under a budget that each row brings along: every row has a program."""
    z, budget = cp.Variable(2, nonneg=True), cp.Parameter(nonneg=True, name="budget")
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum(0.3 * z + cp.pos(u - z)), constraints=[cp.sum(z) <= budget], n_outcomes=2
    )


def bent() -> ph.DecisionProblem:
    """A cost that is known by its formula alone."""
    z = cp.Variable(2)
    return ph.DecisionProblem(decision=z, cost=lambda z, u: cp.sum_squares(z - u), constraints=[z <= 5], n_outcomes=2)


def covering() -> ph.DecisionProblem:
    """Uncertain constraints beside a cost of pieces."""
    return ph.DecisionProblem(
        decision=cp.Variable(2, nonneg=True),
        cost=lambda z, u: 2 * cp.sum(z) + 0.3 * (u @ z),
        constraints=[],
        uncertain_constraints=lambda z, u: [z >= u],
        n_outcomes=2,
        outcome_support=lambda u: [u <= 9],
    )


BOX = Given(ph.Polyhedron(np.vstack([np.eye(2), -np.eye(2)]), -np.array([1.0, 0.6, 1.0, 0.6])))

KINDS = {
    "linear": (lambda: ph.problems.simplex_linear([-0.08, 0.0]), ph.learners.OneSidedBox(), {}),
    "scaled": (lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 2), ScaledBox(complexity_penalty=0.0), {}),
    "budget": (coupled, ph.learners.OneSidedBox(), {"budget": 1.5}),
    "bent": (bent, BOX, {}),
    "covering": (covering, BOX, {}),
}


@pytest.fixture(scope="module", params=KINDS)
def guarded(request):
    make, learner, given = KINDS[request.param]
    X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
    settings = {"learner": learner, "guarantee": "cost", "alpha": 0.2, "random_state": 0}
    decider = ph.RobustDecider(make(), "linear", **settings)
    with np.errstate(all="raise"):
        decider.fit(X[:120], Y[:120], parameters=given or None)
    return decider, X[120:], {"parameters": given} if given else {}


def test_expected_cost_is_the_mean_over_the_residuals_around_the_prediction(guarded):
    decider, X, more = guarded
    decided, policy = decider.decide(X, **more), decider.model_.family.policy
    centers, scales = decider.centers(X), policy.sets.scales(X, decider.centers(X))
    for i in range(len(X)):
        outcomes = centers[i] + scales[i] * policy.costs.points
        own = np.tile(decided.flat[i], (len(outcomes), 1))
        values = np.tile(list(more["parameters"].values()), (len(outcomes), 1)) if more else None
        assert decided.expected_cost[i] == pytest.approx(decider.problem_.evaluate(own, outcomes, values).mean())


def test_files_keep_what_decisions_are_expected_to_cost(guarded, tmp_path):
    decider, X, more = guarded
    decider.save(tmp_path / "model.polyhedge")
    loaded = ph.load(tmp_path / "model.polyhedge").decide(X, **more)
    np.testing.assert_array_equal(loaded.expected_cost, decider.decide(X, **more).expected_cost)


def test_scenarios_of_rows_are_predictions_with_residuals_and_plan_the_expected_cost() -> None:
    """The frame that a model of one's own takes: the mean cost over it is what the policy expects."""
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 2, size=(240, 2))
    Y = 10 + X * (1 + 0.2 * rng.normal(size=(240, 2)))
    decider = ph.RobustDecider(ph.problems.newsvendor([1.0, 1.0], [3.0, 2.0]), random_state=0).fit(X, Y)
    frame = decider.scenarios(pd.DataFrame(X[:3], index=["a", "b", "c"]))
    assert list(frame.columns) == list(decider.problem_.outcome_names)
    assert list(dict.fromkeys(frame.index.get_level_values("row"))) == ["a", "b", "c"]
    decided = decider.decide(X[:3])
    for k, name in enumerate("abc"):
        own = frame.loc[name].to_numpy()
        costs = decider.problem_.evaluate(np.tile(decided.flat[k], (len(own), 1)), own)
        assert costs.mean() == pytest.approx(decided.expected_cost[k], rel=1e-9)


def test_scenarios_stay_within_the_known_support_and_sets_have_none() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(120, 1))
    Y = rng.exponential(size=(120, 1))
    problem = ph.problems.newsvendor([1.0], [3.0])
    assert (ph.RobustDecider(problem, random_state=0).fit(X, Y).scenarios(X[:5]) >= 0).all(axis=None)
    sets = ph.RobustDecider(problem, guarantee="outcome", learner=ph.learners.OneSidedBox(), random_state=0)
    with pytest.raises(ValueError, match="There are no scenarios"):
        sets.fit(X, Y).scenarios(X[:5])
