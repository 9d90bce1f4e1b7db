"""Sets that ignore the decision: the Bonferroni box, conformal balls and the conformal ellipsoid.

Box and balls need no learning split and are calibrated on the learning and calibration rows together. The
ellipsoid takes its shape from the learning rows.
"""

from __future__ import annotations

import time

import numpy as np

from polyhedge.calibration import conformal_radius
from polyhedge.sets import Ball, Ellipsoid, Shape
from polyhedge_study import demo
from polyhedge_study.baselines.fitted import Fitted, fit_predictor
from polyhedge_study.measure import Measured, measure_set
from polyhedge_study.tasks import Task

_POOLED = ("learn", "calibrate")


def bonferroni_box(task: Task, alpha: float, seed: int) -> Measured:
    """Box whose sides are conformal intervals at level alpha / d; `seed` is not used."""
    fitted = fit_predictor(task)
    began = time.perf_counter()
    box = demo.bonferroni_box(fitted.residuals(*_POOLED), alpha)
    return _measured(fitted, box, 1.0, alpha, began)


def conformal_l_inf(task: Task, alpha: float, seed: int) -> Measured:
    """Cube of the conformal radius of the largest entry; `seed` is not used."""
    return _ball(task, alpha, np.inf)


def conformal_l_2(task: Task, alpha: float, seed: int) -> Measured:
    """Ball of the conformal radius of the Euclidean norm; `seed` is not used."""
    return _ball(task, alpha, 2)


def conformal_ellipsoid(task: Task, alpha: float, seed: int) -> Measured:
    """Ellipsoid: mean and covariance of the learning rows, radius of the calibration rows; `seed` is not used."""
    fitted = fit_predictor(task)
    began = time.perf_counter()
    shape = Ellipsoid.from_residuals(fitted.residuals("learn"))
    radius = conformal_radius(shape.scores(fitted.residuals("calibrate")), alpha)
    return _measured(fitted, shape, radius, alpha, began)


def _ball(task: Task, alpha: float, norm: float) -> Measured:
    fitted = fit_predictor(task)
    began = time.perf_counter()
    shape = Ball(task.problem.n_outcomes, norm=norm)
    radius = conformal_radius(shape.scores(fitted.residuals(*_POOLED)), alpha)
    return _measured(fitted, shape, radius, alpha, began)


def _measured(fitted: Fitted, shape: Shape, radius: float, alpha: float, began: float) -> Measured:
    seconds = time.perf_counter() - began
    return measure_set(fitted.task, fitted.centers("test"), shape, radius, alpha, seconds, fitted.residuals("learn"))
