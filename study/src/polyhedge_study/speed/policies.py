"""Policies a second: decisions and planned costs for many rows, against the same planning program in CVXPY."""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Planner, Rule, fit_planner
from polyhedge.planning.residual_distributions import Uniform
from polyhedge.planning.risk import JointCost, Risk
from polyhedge_study.inside import Array
from polyhedge_study.speed.cases import PARAMETERS, Regime, problem_of
from polyhedge_study.speed.rivals import Solve
from polyhedge_study.tasks import OVERAGE, UNDERAGE, advantage

__all__ = ["PLAN_REGIMES", "PlanInstance", "draw_plan", "largest_excess", "plan_rows", "planning_in_cvxpy", "risks"]

TAIL, PLANNED_LEVEL = 0.7, 0.8
"""A tail and a level such as the selection of policies tries."""
_FOUND_AT = 100
"""Rows at which the cuts of a rule are looked for, as in a fit."""

PLAN_REGIMES = (
    Regime("plan-d2", "linear", 2, 1000, 1_000_000, facets="residuals", targets={PARAMETERS: 1000.0}),
    Regime("plan-d10", "linear", 10, 1000, 100_000, facets="residuals", targets={PARAMETERS: 100.0}),
    Regime("plan-d24", "linear", 24, 1000, 100_000, facets="residuals", targets={PARAMETERS: 100.0}),
    Regime("plan-newsvendor-d6", "newsvendor", 6, 1000, 20_000, facets="residuals", targets={PARAMETERS: 50.0}),
)
"""K residuals in place of facets: CVaR at 0.7 where the cost has one piece, the mean if it is separable."""


@dataclass(frozen=True, eq=False)
class PlanInstance:
    """A rule with its residual distribution, and the rows (N, d + 1) that are planned: predictions and spreads."""

    regime: Regime
    planner: Planner
    rows: Array

    @property
    def points(self) -> Array:
        """The residuals of the distribution."""
        assert self.planner.distribution is not None
        return self.planner.distribution.points

    @property
    def cost(self) -> JointCost:
        """What decisions cost over the residuals."""
        return JointCost(self.planner.problem.joint, self.points)


def draw_plan(regime: Regime, seed: int) -> PlanInstance:
    """The numbers of a regime: predictions vary three times as much as residuals, spreads from 0.5 to 2.

    The rule is fitted at rows of its own, so that those that are timed are new to it.
    """
    d, rng = regime.d, np.random.default_rng([seed, regime.d, regime.K])
    points = rng.normal(size=(regime.K, d)) * rng.gamma(4.0, 0.25, size=(regime.K, 1))
    contexts = regime.spread * rng.normal(size=(_FOUND_AT + regime.n_contexts, d))
    if regime.cost == "newsvendor":
        points, contexts = 0.2 / d * points, 1 / d + 0.2 / d * contexts
    seen, rule = (
        PlanningProblem(problem_of(regime)),
        Rule("uniform", Risk(0.0 if regime.cost == "newsvendor" else TAIL)),
    )
    distribution, own = Uniform(points), contexts[:_FOUND_AT]
    planner = fit_planner(seen, rule, distribution, np.zeros((len(own), 1)), own, np.zeros((len(own), 0)))
    spreads = rng.uniform(0.5, 2.0, size=regime.n_contexts)
    return PlanInstance(regime, planner, np.column_stack([contexts[_FOUND_AT:], spreads]))


def plan_rows(instance: PlanInstance) -> tuple[Array, Array]:
    """Decisions (N, p) and planned costs (N,) of all rows: what is timed."""
    contexts, spreads, nothing = instance.rows[:, :-1], instance.rows[:, -1], np.zeros((len(instance.rows), 0))
    z, _ = instance.planner.at(contexts, spreads, nothing)
    v, _ = instance.cost.quantile(z, contexts, spreads, PLANNED_LEVEL)
    return z, v + instance.planner.problem.alone(z, nothing)


def risks(instance: PlanInstance, z: Array) -> Array:
    """The risk of decisions (n, p) at the first n rows, with which a rival's optimal value is compared."""
    n, rule = len(z), instance.planner.rule
    costs = instance.cost.samples(z, instance.rows[:n, :-1], instance.rows[:n, -1])
    risk = (rule.risk.weights(costs) * costs).sum(axis=1)
    return np.asarray(risk + instance.planner.problem.alone(z, np.zeros((n, 0))))


def planning_in_cvxpy(instance: PlanInstance) -> Solve:
    """The planning program with all its residuals, written in CVXPY once, prediction and spread as parameters."""
    regime, points = instance.regime, instance.points
    center, scale = cp.Parameter(regime.d), cp.Parameter(nonneg=True)
    z = cp.Variable(regime.d, bounds=[0, 1])  # without an upper bound CVXPY multiplies zeros with infinity
    if regime.cost == "newsvendor":
        short = [center[j] - z[j] + scale * points[:, j] for j in range(regime.d)]
        cost = sum(cp.sum(cp.maximum(UNDERAGE * each, -OVERAGE * each)) for each in short) / len(points)
    else:
        # The spread goes to the price of the tail, so that no two variables and parameters multiply thrice.
        level, tail = cp.Variable(), points @ z
        risk = level + cp.sum(cp.pos(tail - level)) / ((1 - TAIL) * len(points))
        cost = (advantage(regime.d) + center) @ z + scale * risk
    problem = cp.Problem(cp.Minimize(cost), [cp.sum(z) == 1])

    def solve(row: Array) -> float:
        center.value, scale.value = row[:-1], float(row[-1])
        return float(problem.solve(solver=cp.HIGHS))

    solve(instance.rows[0])  # pays for the compilation
    return solve


def largest_excess(instance: PlanInstance, z: Array) -> tuple[str, float]:
    """How far decisions (n, p) of the first n rows are from the best, by the solver of this name.

    Judged by what a policy minimises: the risk as its frozen cuts know it, or the mean where the cost falls apart.
    """
    cuts = instance.planner.cuts
    if cuts is None:
        solve = planning_in_cvxpy(instance)
        return "CVXPY with HiGHS", float(
            np.abs(risks(instance, z) - [solve(row) for row in instance.rows[: len(z)]]).max()
        )
    worst, p = 0.0, z.shape[1]
    for row, one in zip(instance.rows, z, strict=False):
        G = cuts.at(row[:-1], float(row[-1]))
        solution = linprog(
            np.append(np.zeros(p), 1.0),
            A_ub=np.column_stack([G[:, 1:], -np.ones(len(G))]),
            b_ub=-G[:, 0],
            A_eq=np.append(np.ones(p), 0.0)[None],
            b_eq=[1.0],
            bounds=[*[(0, None)] * p, (None, None)],
        )
        worst = max(worst, abs(float((G @ np.append(1.0, one)).max()) - float(solution.fun)))
    return "SciPy on the cuts", worst
