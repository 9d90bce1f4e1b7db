"""What all rivals share with Polyhedge: the predictor for use, honest residuals, and the guard.

Training and learning rows develop a plan, calibration rows set its radius, test rows are only looked at. The predictor
for use has seen all development rows; predictions of development rows are those of models that had not seen them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from polyhedge.calibration import conformal_radius
from polyhedge.data.splits import fold_of
from polyhedge.plans import PlanRows
from polyhedge.predictors import Predictor, as_predictor, out_of_fold
from polyhedge.regions import Guard, Plan
from polyhedge.regions.family import PlacedRegions
from polyhedge_study.inside import Array
from polyhedge_study.tasks import Task

__all__ = ["Bounded", "Developed", "at_radius", "guard", "seen_from"]

N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Bounded:
    """Decisions of a method at the test rows of a task, and what it promises of their cost.

    Attributes
    ----------
    z : (N, p) decisions.
    bound : (N,) on their costs.
    covered : share of test rows whose score is within the radius: what the promise is about.
    equal : (N,) bounds if the test rows themselves had set the radius, so that exactly the promised share is covered.
    detail : what the method chose.
    """

    z: Array
    bound: Array
    covered: float
    equal: Array
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Developed:
    """A predictor fitted on the development rows, and these rows with predictions that are as honest as new ones."""

    predictor: Predictor
    rows: PlanRows

    @property
    def known(self) -> Array:
        """What may be learned from (n, k): features and predictions."""
        return seen_from(self.rows.X, self.rows.centers)

    @classmethod
    def of(cls, task: Task) -> Developed:
        """From the training and learning rows of a task."""

        def make() -> Predictor:
            return as_predictor(task.predictor, task.problem.n_outcomes)

        develop = np.concatenate([task.split.train, task.split.learn])
        X, Y = task.X[develop], task.Y[develop]
        centers, blocks = out_of_fold(make, X, Y, N_FOLDS), fold_of(len(Y), N_FOLDS)
        rows = PlanRows(X, centers, Y, np.zeros((len(Y), 0)), blocks)
        return cls(make().fit(X, Y), rows)


def seen_from(X: Array, centers: Array) -> Array:
    """Features and predictions side by side."""
    return np.hstack([np.asarray(X, dtype=np.float64), centers])


def guard(task: Task, predictor: Predictor, plan: Plan, alpha: float, detail: str = "") -> Bounded:
    """Guard a frozen plan: its bound is planned cost plus the conformal radius of the calibration rows' excess."""
    family = Guard(task.problem, predictor, plan)
    X, Y = task.rows("calibrate")
    radius = conformal_radius(family.at(X).scores(Y), alpha)
    X, Y = task.rows("test")
    return at_radius(family.at(X), Y, radius, alpha, detail)


def at_radius(placed: PlacedRegions, outcomes: Array, radius: float, alpha: float, detail: str = "") -> Bounded:
    """What regions with this radius promise at test rows."""
    scores = placed.scores(outcomes)

    def bounds(r: float) -> Array:
        return placed.decide(np.full(len(outcomes), r)).cost_bound

    z = placed.decide(np.full(len(outcomes), radius)).flat
    equal = bounds(conformal_radius(scores, alpha))
    return Bounded(z, bounds(radius), float(np.mean(scores <= radius)), equal, detail)


Run = Callable[[Task, float, int], Bounded]
"""Task, alpha and seed -> what the method promises at the test rows."""
