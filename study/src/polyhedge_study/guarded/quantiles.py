"""Rivals by quantile regression: gradient boosting on features and predictions.

Where the cost separates into a newsvendor for each outcome (`Task.ratios`), the decision is the quantile of the demand
at the critical ratio. Elsewhere the sample-average decision is taken. Either way the (1 - alpha)-quantile of the
decision's cost is predicted by another model, from costs that the decision's own models had not seen. The guard is
additive, or scaled: bounds are then a common multiple of the predicted quantile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from polyhedge.planning.policies import Planner
from polyhedge.planning.risk import Risk
from polyhedge.problems import DecisionProblem
from polyhedge.regions import CostGuard, PlannedDecisions, Policy
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge_study.guarded.developed import Bounded, Developed, guard, seen_from
from polyhedge_study.guarded.rules import fit_rule, planned
from polyhedge_study.inside import Array
from polyhedge_study.tasks import Task

__all__ = ["quantile_regression", "scaled_quantile_regression"]


def quantile_regression(task: Task, alpha: float, seed: int) -> Bounded:
    """Quantile models with an additive guard."""
    developed = Developed.of(task)
    policy = _fit(task, developed, alpha, seed)
    return guard(task, developed.predictor, policy, alpha, policy.detail)


def scaled_quantile_regression(task: Task, alpha: float, seed: int) -> Bounded:
    """Quantile models whose bounds are a common multiple of the predicted quantile of the cost, which is positive."""
    developed = Developed.of(task)
    policy = _fit(task, developed, alpha, seed)
    family = CostGuard(task.problem, developed.predictor, policy)

    def units(part: str) -> tuple[Array, Array, Array]:
        """Decisions, predicted quantiles of their costs, and what the costs are in these."""
        X, Y = task.rows(part)
        policies = family.at(X).planned
        unit = np.maximum(policies.v, policy.least)
        return policies.z, unit, task.problem.evaluate(policies.z, Y) / unit

    z, unit, fresh = units("test")
    return Bounded(lambda radius: (z, radius * unit), units("calibrate")[2], fresh, alpha, policy.detail)


@dataclass(frozen=True, eq=False)
class QuantilePolicy(Policy):
    """Decisions by a rule, or by a quantile model an outcome, and a predicted quantile of their cost.

    Attributes
    ----------
    problem : what is decided.
    rule : planner, or models of the outcomes.
    cost : model of the cost's quantile.
    least : a positive cost below which none is predicted where bounds are multiples of it.
    """

    problem: DecisionProblem
    rule: Planner | tuple[Any, ...]
    cost: Any
    least: float
    kind: ClassVar[str] = "rival"

    @property
    def detail(self) -> str:
        """How decisions are made."""
        return "sample average" if isinstance(self.rule, Planner) else "a quantile of each outcome"

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
        """Decisions and planned costs; trees decide each row by itself."""
        known = seen_from(features, centers)
        if isinstance(self.rule, Planner):
            z = self.rule(features, centers, values, work.n_jobs)
        else:
            z = _orders(self.rule, known)
        return planned(self.problem, z, self.cost.predict(known))

    def state(self) -> Mapping[str, Any]:
        """Rivals are not stored."""
        raise ValueError("The policy of a rival cannot be saved: it is made for one comparison.")


def _fit(task: Task, developed: Developed, alpha: float, seed: int) -> QuantilePolicy:
    known, rows = developed.known, developed.rows
    rule: Planner | tuple[Any, ...]
    if task.ratios is None:
        rule = fit_rule(task, developed, Risk())
        z = rule(rows.X, rows.centers, rows.values)
    else:
        rule = _models(known, rows.outcomes, task.ratios, seed)
        z = np.empty_like(rows.outcomes)
        for block in np.unique(rows.blocks):
            own, rest = rows.blocks == block, rows.blocks != block
            z[own] = _orders(_models(known[rest], rows.outcomes[rest], task.ratios, seed), known[own])
    costs = task.problem.evaluate(z, rows.outcomes)
    return QuantilePolicy(
        task.problem, rule, _boosted(known, costs, 1 - alpha, seed), float(np.median(np.abs(costs))) / 8
    )


def _models(known: Array, outcomes: Array, ratios: tuple[float, ...], seed: int) -> tuple[Any, ...]:
    return tuple(_boosted(known, y, ratio, seed) for y, ratio in zip(outcomes.T, ratios, strict=True))


def _boosted(known: Array, target: Array, level: float, seed: int) -> Any:
    model = HistGradientBoostingRegressor(
        loss="quantile", quantile=level, max_iter=100, learning_rate=0.05, max_leaf_nodes=8, random_state=seed
    )
    return model.fit(known, target)


def _orders(models: tuple[Any, ...], known: Array) -> Array:
    """Orders are not negative."""
    return np.maximum(np.column_stack([model.predict(known) for model in models]), 0.0)
