"""The part that all baselines share: a predictor that has seen the training rows only, and its residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from polyhedge_study.inside import Array
from polyhedge_study.tasks import Task


@dataclass(frozen=True, eq=False)
class Fitted:
    """A task with its predictor fitted on the training rows.

    Parts are "train", "learn", "calibrate" and "test"; several names give their rows one after the other.
    """

    task: Task
    predictor: Any

    def centers(self, *parts: str) -> Array:
        """Predictions (n, d)."""
        return np.concatenate([np.asarray(self.predictor.predict(self.task.rows(part)[0])) for part in parts])

    def residuals(self, *parts: str) -> Array:
        """Outcomes minus predictions (n, d)."""
        return np.concatenate([self.task.rows(part)[1] for part in parts]) - self.centers(*parts)


def fit_predictor(task: Task) -> Fitted:
    """Fit the task's predictor; learning, calibration and test rows stay unseen.

    Examples
    --------
    >>> from polyhedge_study.tasks import make_task
    >>> fit_predictor(make_task("linear", 0)).residuals("learn", "calibrate").shape
    (600, 2)
    """
    return Fitted(task, clone(task.predictor).fit(*task.rows("train")))
