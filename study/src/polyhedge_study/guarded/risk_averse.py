r"""Risk-averse calibration (Kiyani, Pappas, Roth, Hassani, "Decision theoretic foundations for conformal prediction",
ICML 2025), in costs instead of utilities.

With $\theta(x, t) = \min_z Q_t[g(z, Y) \mid x]$ from an estimated distribution, each row gets the level
$t_\beta(x) = \arg\min_t \theta(x, t) - \beta t$, its set is $\{u : g(z_t(x), u) \le \theta(x, t)\}$ and its bound
$\theta(x, t_\beta(x))$. The one parameter $\beta$ is calibrated: a row's score is the least $\beta$ of a fixed list
from which it is covered at every later one, so that the conformal rank of the scores is valid though sets are not
nested.

Estimated distribution: prediction plus residuals scaled by a predicted spread. Quantiles are not convex in z, so the
least is taken over the decisions of least CVaR at several levels. Levels below `_FLOOR` are not given: without a floor
a sliver of rows could be given up, and their bounds would be as low as one likes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge.data.splits import evenly_chosen
from polyhedge.planning import DevelopmentRows
from polyhedge.planning.policies import Planner
from polyhedge.planning.risk import JointCost, Risk
from polyhedge_study.guarded.developed import Bounded, Developed
from polyhedge_study.guarded.rules import fit_rule
from polyhedge_study.inside import Array
from polyhedge_study.tasks import Task

__all__ = ["risk_averse"]

_FLOOR = 0.5
"""The least level of a row: that of Polyhedge's own levels, so that neither gives up more rows."""
_LEVELS = np.concatenate([np.arange(_FLOOR, 0.9, 0.02), np.arange(0.9, 0.995, 0.005)])
"""Closer where quantiles rise fast."""
_TAILS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95)
"""From the mean to the steepest tail that some hundred residuals know: one more than Polyhedge's rules have."""
_N_BETAS = 400
"""More prices than levels and calibration rows can tell apart in the cases and tasks."""
_N_PRICED = 200
"""Rows that the list of prices is made from: its quantiles change little with more."""


def risk_averse(task: Task, alpha: float, seed: int) -> Bounded:
    """Calibrate how the level is shared out over rows."""
    developed = Developed.of(task)
    # A tail of a sum of maxima splits into no terms: its cuts would be too many.
    tails = (0.0, 1 - alpha) if _is_hard(task) else _TAILS
    planners = [fit_rule(task, developed, Risk(level), "scaled", seed) for level in tails]
    betas = _betas(_levelled(planners, *_some(developed.rows)).theta)

    def at(part: str) -> Levelled:
        X = task.rows(part)[0]
        return _levelled(planners, X, developed.predictor.predict(X))

    fresh = at("test")
    return Bounded(
        lambda index: fresh.at(betas[int(min(index, _N_BETAS - 1))]),
        _scores(at("calibrate"), betas, task.rows("calibrate")[1], task),
        _scores(fresh, betas, task.rows("test")[1], task),
        alpha,
    )


@dataclass(frozen=True, eq=False)
class Levelled:
    """For N rows and T levels the least quantile `theta` (N, T), and the decision `z` (N, T, p) that has it."""

    theta: Array
    z: Array

    def at(self, beta: float) -> tuple[Array, Array]:
        """Decisions (N, p) and bounds (N,) where a unit of level is worth beta."""
        best, rows = np.argmin(self.theta - beta * _LEVELS, axis=1), np.arange(len(self.theta))
        return self.z[rows, best], self.theta[rows, best]


def _is_hard(task: Task) -> bool:
    structure = task.problem.structure
    return structure.has_maxima and bool(structure.maxima.groups) and task.problem.n_decisions > 2


def _some(rows: DevelopmentRows) -> tuple[Array, Array]:
    """An even choice of development rows, by features and predictions: the list of prices comes from them."""
    few = rows.take(evenly_chosen(len(rows), _N_PRICED))
    return few.X, few.centers


def _levelled(planners: list[Planner], X: Array, centers: Array) -> Levelled:
    none = np.zeros((len(X), 0))
    decisions = np.stack([planner(X, centers, none) for planner in planners])
    quantiles = np.stack([_quantiles(planner, z, X, centers) for planner, z in zip(planners, decisions, strict=True)])
    best, rows = quantiles.argmin(axis=0), np.arange(len(X))[:, None]
    theta = np.take_along_axis(quantiles, best[None], axis=0)[0]
    return Levelled(theta, decisions[best, rows])


def _quantiles(planner: Planner, z: Array, X: Array, centers: Array) -> Array:
    """Quantiles (N, T) of the costs of decisions under the planner's distribution."""
    distribution, seen = planner.distribution, planner.problem
    if distribution is None or not seen.has_maxima:
        raise ValueError("Risk-averse calibration needs a cost made of pieces that are affine in the outcome.")
    cost, (centers, scales) = JointCost(seen.joint, distribution.points), distribution.at(X, centers)
    ranks = np.ceil(_LEVELS * len(distribution.points) - 1e-9).astype(int) - 1
    quantiles = np.empty((len(z), len(_LEVELS)))
    for rows in cost.blocks(len(z)):
        quantiles[rows] = np.sort(cost.samples(z[rows], centers[rows], scales[rows]), axis=1)[:, ranks]
    return quantiles + seen.alone(z, np.zeros((len(z), 0)))[:, None]


def _betas(theta: Array) -> Array:
    """Prices of a unit of level at which the rows change theirs, from the least to the largest."""
    slopes = np.diff(theta, axis=1) / np.diff(_LEVELS)
    return np.concatenate([[0.0], np.quantile(slopes, np.linspace(0, 1, _N_BETAS - 2)), [slopes.max() * 2 + 1e-9]])


def _scores(rows: Levelled, betas: Array, outcomes: Array, task: Task) -> Array:
    """The index (N,) of the least price from which a row is covered at every later one; infinite where it never is."""
    last_miss = np.full(len(outcomes), -1.0)
    for k, beta in enumerate(betas):
        z, bound = rows.at(float(beta))
        last_miss[task.problem.evaluate(z, outcomes) > bound] = k
    return np.where(last_miss == len(betas) - 1, np.inf, last_miss + 1)
