"""Write the model files of this release and the decisions they must give, for all later versions to read.

One has a set of one size, one a set scaled by a predicted spread, one a guarded policy whose decisions and planned
costs use every kind of distribution, one a path of policies for uncertain constraints.
Run `python tests/files/make_model.py` once when a release is made.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np

import polyhedge as ph
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.residual_distributions import DISTRIBUTIONS, DevelopmentRows, fit_distribution
from polyhedge.planning.risk import Risk

HERE = Path(__file__).parent


def main() -> None:
    stem = "model_" + "_".join(ph.__version__.split(".")[:2])
    X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
    write(fitted(X, Y), X, Y, stem)
    scaled = fitted(X, Y)
    spread = ph.learners.Spread.fit(X, scaled.predictor_.predict(X), np.exp(X[:, 0]), min_leaf=40, seed=0)
    scaled.model_ = replace(scaled.model_, family=replace(scaled.model_.family, spread=spread))
    write(scaled, X, Y, f"{stem}_spread")
    demand = np.abs(Y)
    write(planned(X, demand), X, demand, f"{stem}_plan")
    write(path(X, demand), X, demand, f"{stem}_path")


def fitted(X: np.ndarray, Y: np.ndarray) -> ph.RobustDecider:
    problem = ph.problems.simplex_quadratic([-0.08, 0.0], 0.1)
    return ph.RobustDecider(problem, None, learner=ph.learners.OneSidedBox(), random_state=0).fit(X[:120], Y[:120])


def planned(X: np.ndarray, Y: np.ndarray) -> ph.RobustDecider:
    """Three rules: a file knows them all, whichever a selection would choose."""
    problem = ph.problems.newsvendor(1.0, 3.0, 2)
    decider = ph.RobustDecider(problem, None, random_state=0).fit(X[:120], Y[:120])
    guard = decider.model_.family
    rows = DevelopmentRows(
        X[:120], decider.predictor_.predict(X[:120]), Y[:120], np.zeros((120, 0)), np.arange(120) % 5
    )
    distributions = {name: fit_distribution(name, rows, 0) for name in DISTRIBUTIONS}
    rules = [Rule(), Rule("scaled", Risk(0.5)), Rule("uniform", Risk(0.9))]
    planners = tuple(
        fit_planner(
            PlanningProblem(problem),
            rule,
            rule.distribution and distributions[rule.distribution],
            rows.X,
            rows.centers,
            rows.values,
        )
        for rule in rules
    )
    policy = replace(
        guard.policy,
        planners=planners,
        weights=(0.5, 0.25, 0.25),
    )
    decider.model_ = replace(decider.model_, family=replace(guard, policy=policy))
    return decider


def path(X: np.ndarray, Y: np.ndarray) -> ph.RobustDecider:
    """Enough of each product for its demand."""
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z),
        constraints=[z <= 50],
        n_outcomes=2,
        uncertain_constraints=lambda z, u: [z >= u],
    )
    return ph.RobustDecider(problem, None, guarantee="cost", random_state=0).fit(X[:120], Y[:120])


def write(decider: ph.RobustDecider, X: np.ndarray, Y: np.ndarray, stem: str) -> None:
    decider.recalibrate(X[120:], Y[120:])
    decider.save(HERE / f"{stem}.polyhedge", {"features": ["a", "b", "c", "d"]})
    found = decider.decide(X[:5])
    expected = {"X": X[:5].tolist(), "z": found.z.tolist(), "cost_bound": found.cost_bound.tolist()}
    (HERE / f"{stem}.json").write_text(json.dumps({**expected, "radius": decider.radius_}, indent=1) + "\n")


if __name__ == "__main__":
    main()
