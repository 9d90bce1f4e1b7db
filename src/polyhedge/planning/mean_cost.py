"""Mean costs over the residuals that a set was learned from: what its guarded decisions are expected to cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.levels import quantiles_at
from polyhedge.planning.residual_distributions import (
    EVEN_DISTRIBUTIONS,
    MOST_POINTS,
    PlacedDistribution,
    ResidualDistribution,
    is_sample,
)
from polyhedge.problems import DecisionProblem
from polyhedge.regions import SetRegions


@dataclass(frozen=True, eq=False)
class MeanCost:
    """The mean of g(z(x), f(x) + s(x) e_i) over residuals e_i, all equally likely.

    Attributes
    ----------
    problem : what is decided.
    points : (n, d) residuals, divided by the spread where there is one.
    """

    problem: DecisionProblem
    points: Array

    def at(self, placed: SetRegions, z: Array) -> Array:
        """Mean costs (N,) of decisions (N, p) at rows of sets, each a function of its row alone; NaN without one."""
        values = np.zeros((len(z), 0)) if placed.values is None else placed.values
        distribution, at = (
            ResidualDistribution(EVEN_DISTRIBUTIONS[0], self.points),
            PlacedDistribution(placed.centers, placed.scales),
        )
        return quantiles_at(self._seen, distribution, (0.5,), z, at, values)[1]

    @cached_property
    def _seen(self) -> PlanProblem:
        return PlanProblem(self.problem)


def mean_cost_from(problem: DecisionProblem, points: Array | None) -> MeanCost | None:
    """The mean cost over these residuals, None without any; a ValueError where no fit can have kept them."""
    if points is None:
        return None
    if not is_sample(points, problem.n_outcomes) or not np.isfinite(points).all():
        raise ValueError(
            f"Costs are expected over at most {MOST_POINTS} finite residuals of {problem.n_outcomes} outcomes."
        )
    return MeanCost(problem, points)
