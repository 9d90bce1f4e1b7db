r"""What one method achieves on one task: the columns of the paper's tables, and the premium.

**Ties.** On the newsvendor many contexts have an interval of robust decisions, and the regret depends on which of them
is taken. One rule holds for every set: of the decisions with the least bound, the one with the least mean cost over the
residuals of the learning rows. It is the rule of `RobustDecider.decide`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from polyhedge.decisions import Decisions
from polyhedge.evaluation import measure_rows
from polyhedge.planning import LeastMean
from polyhedge.problems import DecisionProblem
from polyhedge.regions import SetRegions
from polyhedge.sets import Shape, Volume, mean_volume
from polyhedge_study.hull_volume import hull_volume_of_shape
from polyhedge_study.inside import Array, Mask
from polyhedge_study.tasks import Task

__all__ = ["Measured", "least_mean", "measure_decisions", "measure_set"]


@dataclass(frozen=True)
class Measured:
    """Means over the test rows of a task.

    Attributes
    ----------
    coverage : share of the test outcomes inside their sets.
    volume : Lebesgue volume of the set, a mean over contexts where it depends on them.
    worst_case_cost : mean of min_z max_u g.
    premium : mean worst-case cost minus mean cost of the nominal decision.
    regret : mean of g(z(x), y) - min_z g(z, y).
    seconds : learning, calibration and selection, without the test evaluation.
    detail : what a reader of the tables should know, such as what a learner chose.
    hull_volume : volume of the part within the convex hull of the test residuals; see `hull_volume.py`.
    """

    coverage: float
    volume: float
    worst_case_cost: float
    premium: float
    regret: float
    seconds: float
    detail: str = ""
    hull_volume: float = np.nan


def measure_set(
    task: Task,
    centers: Array,
    shape: Shape,
    radius: float,
    alpha: float,
    seconds: float,
    residuals: Array,
    detail: str = "",
    scales: Array | None = None,
) -> Measured:
    """Measure a set of residuals around the predictions `centers` of the test rows, where it is scaled by `scales`.

    `residuals` (n, d) of the learning rows, divided by their scales, break ties.
    """
    scales = np.ones(len(centers)) if scales is None else scales
    placed = SetRegions(task.problem, shape, centers, scales)
    outcomes = task.rows("test")[1]
    inside = shape.contains(placed.residuals(outcomes), radius)
    decisions = placed.decide(np.full(len(centers), radius))
    decisions = least_mean(
        task.problem, decisions, centers, lambda V: scales * np.asarray(shape.support(V, radius)), residuals, scales
    )
    volume = mean_volume(shape, radius, scales, rng=np.random.default_rng(0))
    within = hull_volume_of_shape(outcomes - centers, shape, radius, scales)
    return measure_decisions(task, centers, decisions, inside, volume, alpha, seconds, detail, within)


def least_mean(
    problem: DecisionProblem,
    decisions: Decisions,
    centers: Array,
    support: Callable[[Array], Array],
    residuals: Array,
    scales: Array | None = None,
) -> Decisions:
    r"""Of the decisions with the same bound, those of least mean cost $\frac1n \sum_j g(z, \hat f(x) + \sigma(x)e_j)$.

    Parameters
    ----------
    problem, decisions, centers : what was decided at N rows, and their predictions (N, d).
    support : (N, d) directions -> (N,), row i of the set of context i.
    residuals : (n, d) of learning rows.
    scales : (N,) factors of the residuals; 1 by default.
    """
    if problem.structure.fixed_lines is None:  # one piece that turns with the decision ties at single contexts only
        return decisions
    n, scales = len(centers), np.ones(len(centers)) if scales is None else scales
    reach = np.stack([support(np.tile(q, (n, 1))) for q in problem.structure.pieces.q], axis=1)
    ties, bound = LeastMean.of(problem, residuals), decisions.cost_bound
    z = ties.on_segment(centers, scales, decisions.flat, bound, reach)
    return replace(decisions, flat=np.where(np.isfinite(bound)[:, None], z, decisions.flat))


def measure_decisions(
    task: Task,
    centers: Array,
    decisions: Decisions,
    inside: Mask,
    volume: Volume,
    alpha: float,
    seconds: float,
    detail: str = "",
    hull_volume: float = np.nan,
) -> Measured:
    """Measure decisions however they were made; `inside` says which test outcomes their sets hold."""
    measured = measure_rows(task.problem, decisions, inside, centers, task.rows("test")[1])
    evaluation = measured.summary(alpha, volume=volume)
    complaint = decisions.complaint()
    return Measured(
        coverage=evaluation.coverage.value,
        volume=float(volume),
        worst_case_cost=evaluation.worst_case_cost.value,
        premium=evaluation.premium.value,
        regret=evaluation.regret.value,
        seconds=seconds,
        detail=". ".join(part for part in (detail, complaint) if part),
        hull_volume=hull_volume,
    )
