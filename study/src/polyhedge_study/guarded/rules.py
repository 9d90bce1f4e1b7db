"""Rivals that decide by a rule under one distribution of the residuals, the same at all rows.

| row | decision | planned cost |
|---|---|---|
| nominal + guard | trusts the prediction | its cost at the prediction: a constant margin |
| sample average + guard | least mean cost over the residuals | its (1 - alpha)-quantile over the residuals |
| CVaR + guard | least mean of the worst share alpha | the same quantile |
| scaled guard | least mean of the worst share of scaled residuals | mean + radius times predicted error |
| forecast + k times its error | serves the forecast plus k predicted errors | its cost |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from polyhedge.decisions import all_optimal
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Planner, Rule, fit_planner
from polyhedge.planning.residual_distributions import fit_distribution
from polyhedge.planning.risk import Risk
from polyhedge.problems import DecisionProblem
from polyhedge.regions import PlannedDecisions, Policy
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.robust import decide_knowing
from polyhedge_study.guarded.developed import Bounded, Developed, guard, seen_from
from polyhedge_study.inside import Array
from polyhedge_study.tasks import Task

__all__ = ["cvar", "fit_rule", "forecast_plus", "nominal", "planned", "sample_average", "scaled"]


def nominal(task: Task, alpha: float, seed: int) -> Bounded:
    """Trust the prediction, and add one margin to all rows; `seed` is not used."""
    developed = Developed.of(task)
    return guard(task, developed.predictor, RulePolicy(fit_rule(task, developed, None), None), alpha)


def sample_average(task: Task, alpha: float, seed: int) -> Bounded:
    """Least mean cost over the residuals; `seed` is not used."""
    return _by_rule(task, alpha, Risk())


def cvar(task: Task, alpha: float, seed: int) -> Bounded:
    """Least conditional value at risk over the residuals, at the level that is promised; `seed` is not used."""
    return _by_rule(task, alpha, Risk(1 - alpha))


def scaled(task: Task, alpha: float, seed: int, *, tail: float) -> Bounded:
    """Least mean of the worst share `tail` over scaled residuals; margins in proportion to the predicted error."""
    developed = Developed.of(task)
    planner = fit_rule(task, developed, Risk(1 - tail), "scaled", seed)
    distribution, seen = planner.distribution, planner.problem
    assert distribution is not None

    def units(part: str) -> tuple[Array, Array, Array, Array]:
        """Decisions, mean costs, predicted sizes of the error, and how many sizes costs lie above the mean."""
        X, Y = task.rows(part)
        centers, none = developed.predictor.predict(X), np.zeros((len(X), 0))
        z = planner(X, centers, none)
        corrected, size = distribution.at(X, centers)
        mean = seen.planned_cost(distribution.points, 1 - alpha, z, corrected, size, none)[1]
        return z, mean, size, (task.problem.evaluate(z, Y) - mean) / size

    z, mean, size, fresh = units("test")
    return Bounded(lambda radius: (z, mean + radius * size), units("calibrate")[3], fresh, alpha)


def forecast_plus(task: Task, alpha: float, seed: int) -> Bounded:
    """Decide as if the outcome were the forecast plus k times the predicted size of its error; calibrate k."""
    developed = Developed.of(task)
    residuals = np.abs(developed.rows.outcomes - developed.rows.centers)
    forest = RandomForestRegressor(min_samples_leaf=10, random_state=seed).fit(developed.known, residuals)

    def at(part: str) -> tuple[Array, Array, Array]:
        X, Y = task.rows(part)
        centers = developed.predictor.predict(X)
        sizes = np.asarray(forest.predict(seen_from(X, centers))).reshape(centers.shape)
        return centers, sizes, ((Y - centers) / sizes).max(axis=1)

    centers, sizes, fresh = at("test")

    def decided(k: float) -> tuple[Array, Array]:
        z, costs = decide_knowing(task.problem, centers + k * sizes)
        return z, costs

    return Bounded(decided, at("calibrate")[2], fresh, alpha)


def _by_rule(task: Task, alpha: float, risk: Risk) -> Bounded:
    developed = Developed.of(task)
    return guard(task, developed.predictor, RulePolicy(fit_rule(task, developed, risk), 1 - alpha), alpha)


def fit_rule(
    task: Task, developed: Developed, risk: Risk | None, distribution: str = "uniform", seed: int = 0
) -> Planner:
    """The rule of least risk under a distribution of the development rows; None for the risk trusts the prediction."""
    rows = developed.rows
    fitted = None if risk is None else fit_distribution(distribution, rows, seed)
    rule = Rule() if risk is None else Rule(distribution, risk)
    return fit_planner(PlanningProblem(task.problem), rule, fitted, rows.X, rows.centers, rows.values)


@dataclass(frozen=True, eq=False)
class RulePolicy(Policy):
    """Decisions of one rule; planned cost at the prediction, or a quantile of this level under the rule's
    distribution.
    """

    planner: Planner
    level: float | None
    kind: ClassVar[str] = "rival"

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
        """Decisions and planned costs, each a function of its row alone."""
        z, seen = self.planner(features, centers, values, work.n_jobs), self.planner.problem
        if self.level is None or self.planner.distribution is None:
            return planned(seen.problem, z, seen.evaluate(z, centers, values))
        own = self.planner.distribution
        v = seen.planned_cost(own.points, self.level, z, *own.at(features, centers), values)[0]
        return planned(seen.problem, z, v)

    def state(self) -> Mapping[str, Any]:
        """Rivals are not stored."""
        raise ValueError("The policy of a rival cannot be saved: it is made for one comparison.")


def planned(problem: DecisionProblem, z: Array, v: Array) -> PlannedDecisions:
    """Decisions and planned costs as a policy gives them."""
    z, v = z.reshape(len(v), problem.n_decisions), np.asarray(v, dtype=np.float64)
    return PlannedDecisions(z, v, all_optimal(len(v)))
