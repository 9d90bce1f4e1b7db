"""What all rivals share with Polyhedge: the predictor for use, honest residuals, and the guard.

Training and learning rows develop a policy, calibration rows set its radius, test rows are only looked at. The
predictor for use has seen all development rows; predictions of development rows are those of models that had not seen
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhedge.calibration import attained_rank, conformal_radius
from polyhedge.data.splits import fold_of
from polyhedge.planning import DevelopmentRows
from polyhedge.predictors.regressor import Predictor, as_predictor, out_of_fold
from polyhedge.regions import CostGuard, Policy
from polyhedge.regions.family import RegionFamily
from polyhedge_study.inside import Array
from polyhedge_study.tasks import Task

__all__ = ["Bounded", "Developed", "attained_radius", "bounded", "guard", "seen_from"]

N_FOLDS = 5
"""Folds of out-of-fold predictions: as many as Polyhedge takes."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """What a method promises of the cost of its decisions at the test rows of a task, at any radius.

    Attributes
    ----------
    at : radius -> decisions (N, p) at the test rows and bounds (N,) on their costs.
    scores : (m,) of the calibration rows, which set the radius.
    fresh : (N,) scores of the test rows, which are only looked at.
    alpha : share of rows whose score may be above the radius.
    detail : what the method chose.
    """

    at: Callable[[float], tuple[Array, Array]]
    scores: Array
    fresh: Array
    alpha: float
    detail: str = ""

    @cached_property
    def _calibrated(self) -> tuple[Array, Array]:
        return self.at(self.radius)

    @property
    def radius(self) -> float:
        """The conformal radius."""
        return conformal_radius(self.scores, self.alpha)

    @property
    def z(self) -> Array:
        """The decisions (N, p) that are taken."""
        return self._calibrated[0]

    @property
    def bound(self) -> Array:
        """The bounds (N,) that are promised."""
        return self._calibrated[1]

    @property
    def covered(self) -> float:
        """Share of test rows whose score is within the radius: what the promise is about."""
        return float(np.mean(self.fresh <= self.radius))

    @property
    def equal(self) -> Array:
        """Bounds (N,) if the test rows themselves had set the radius, so that just the promised share is covered."""
        return self.at(attained_radius(self.fresh, self.alpha))[1]


def attained_radius(scores: Array, alpha: float) -> float:
    """The score of the conformal rank: the radius, infinite where that row's score is."""
    k = attained_rank(len(scores), alpha)
    return float(np.partition(scores, k - 1)[k - 1])


@dataclass(frozen=True, eq=False)
class Developed:
    """A predictor fitted on the development rows, and these rows with predictions that are as honest as new ones."""

    predictor: Predictor
    rows: DevelopmentRows

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
        rows = DevelopmentRows(X, centers, Y, np.zeros((len(Y), 0)), blocks)
        return cls(make().fit(X, Y), rows)


def seen_from(X: Array, centers: Array) -> Array:
    """Features and predictions side by side."""
    return np.hstack([np.asarray(X, dtype=np.float64), centers])


def guard(task: Task, predictor: Predictor, policy: Policy, alpha: float, detail: str = "") -> Bounded:
    """Guard a frozen policy: its bound is planned cost plus the conformal radius of the calibration rows' excess."""
    return bounded(task, CostGuard(task.problem, predictor, policy), alpha, detail)


def bounded(task: Task, family: RegionFamily, alpha: float, detail: str = "") -> Bounded:
    """What regions of a family promise at the test rows."""
    (X, Y), (X_fresh, Y_fresh) = task.rows("calibrate"), task.rows("test")
    placed = family.at(X_fresh)

    def at(radius: float) -> tuple[Array, Array]:
        decided = placed.decide(np.full(len(X_fresh), radius))
        return decided.flat, decided.cost_bound

    return Bounded(at, family.at(X).scores(Y), placed.scores(Y_fresh), alpha, detail)


Run = Callable[[Task, float, int], Bounded]
"""Task, alpha and seed -> what the method promises at the test rows."""
