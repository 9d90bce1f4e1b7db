"""What one method achieves on one task: the columns of the paper's tables, and the premium."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge.metrics import evaluate_decisions
from polyhedge.regions import PlacedSet
from polyhedge.robust import Decisions
from polyhedge.sets import UncertaintySet, Volume, mean_volume
from polyhedge_study.hull_volume import hull_volume_of_shape
from polyhedge_study.inside import Array, Mask
from polyhedge_study.tasks import Task

__all__ = ["Measured", "measure_decisions", "measure_set"]


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
    shape: UncertaintySet,
    radius: float,
    alpha: float,
    seconds: float,
    detail: str = "",
    scales: Array | None = None,
) -> Measured:
    """Measure a set of residuals around the predictions `centers` of the test rows, where it is scaled by `scales`."""
    scales = np.ones(len(centers)) if scales is None else scales
    placed = PlacedSet(task.problem, shape, centers, scales)
    outcomes = task.rows("test")[1]
    inside = shape.contains(placed.residuals(outcomes), radius)
    decisions = placed.decide(np.full(len(centers), radius))
    volume = mean_volume(shape, radius, scales, rng=np.random.default_rng(0))
    within = hull_volume_of_shape(outcomes - centers, shape, radius, scales)
    return measure_decisions(task, centers, decisions, inside, volume, alpha, seconds, detail, within)


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
    evaluation = evaluate_decisions(task.problem, decisions, inside, centers, task.rows("test")[1], volume, alpha)
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
