"""The first thing to run: a learned set beside a Bonferroni box, in numbers and as a picture."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from polyhedge.calibration import conformal_radius
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Evaluation, measure_rows
from polyhedge.learners import Auto
from polyhedge.plots import sets_over_residuals
from polyhedge.plots.directions import directions_around
from polyhedge.robust import decide
from polyhedge.sets import Box, Shape
from polyhedge_study.files import save_figure
from polyhedge_study.inside import Array, as_finite, check_alpha
from polyhedge_study.tasks import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "Row", "bonferroni_box", "compare", "draw_sets", "paint_sets"]


@dataclass(frozen=True, eq=False)
class Row:
    """One method on one task.

    Attributes
    ----------
    method : what made the set.
    shape, radius : the set of residuals.
    evaluation : what held on the test split.
    seconds : learning and calibration, without training and evaluation.
    """

    method: str
    shape: Shape
    radius: float
    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Both methods on one task, and the test residuals (n, d) that the picture shows."""

    task: Task
    learned: Row
    box: Row
    residuals: Array

    @property
    def rows(self) -> tuple[Row, Row]:
        """The learned set, then the box."""
        return self.learned, self.box

    @property
    def premium_saved(self) -> float:
        """Share of the box's robustness premium that the learned set does not need."""
        return 1 - self.learned.evaluation.premium.value / self.box.evaluation.premium.value


def compare(task: Task, *, alpha: float = 0.1, random_state: int = 0) -> Comparison:
    """Fit `RobustDecider` and a Bonferroni box on a task and evaluate both on its test split.

    The box needs no learning split, so it is calibrated on the learning and calibration rows together.

    Parameters
    ----------
    task : Task
    alpha : float, default=0.1
    random_state : int, default=0
        Seed of the learner.

    Returns
    -------
    Comparison
    """
    check_alpha(alpha)
    # Fitted here and frozen: both sets stand around the same predictions, neither is charged for them.
    predictor = clone(task.predictor).fit(*task.rows("train"))
    return Comparison(
        task=task,
        learned=_learned_row(task, predictor, alpha, random_state),
        box=_box_row(task, predictor, alpha),
        residuals=_residuals(predictor, *task.rows("test")),
    )


def bonferroni_box(residuals: ArrayLike, alpha: float) -> Box:
    r"""Box of half-widths $s_j$ = conformal radius of $|e_{ij}|$ at level alpha / d; use it at radius 1.

    Each outcome leaves its interval with probability at most alpha / d, so together they leave the box with
    probability at most alpha.

    Examples
    --------
    >>> bonferroni_box([[1.0, -4.0], [-2.0, 5.0], [3.0, 6.0]], alpha=0.5).scale
    array([3., 6.])
    """
    residuals = as_finite(residuals, "residuals", ndim=2)
    d = residuals.shape[1]
    return Box([conformal_radius(column, alpha / d) for column in np.abs(residuals).T])


def _learned_row(task: Task, predictor: Any, alpha: float, random_state: int) -> Row:
    # One size for all contexts, as the picture has one set.
    decider = RobustDecider(
        task.problem, FrozenEstimator(predictor), alpha=alpha, learner=Auto(spread=False), random_state=random_state
    )
    began = time.perf_counter()
    decider.fit(task.X, task.Y, learn=task.split.learn, calibrate=task.split.calibrate)
    seconds = time.perf_counter() - began
    evaluation = decider.evaluate(*task.rows("test"), volume=True)
    return Row("learned polyhedron", decider.set_, decider.radius_, evaluation, seconds)


def _box_row(task: Task, predictor: Any, alpha: float) -> Row:
    began = time.perf_counter()
    pooled = np.concatenate([task.split.learn, task.split.calibrate])
    box = bonferroni_box(_residuals(predictor, task.X[pooled], task.Y[pooled]), alpha)
    seconds = time.perf_counter() - began
    X, Y = task.rows("test")
    centers = predictor.predict(X)
    decisions = decide(task.problem, box, 1.0, centers)
    measured = measure_rows(task.problem, decisions, box.contains(Y - centers, 1.0), centers, Y)
    evaluation = measured.summary(alpha, volume=box.volume(1.0))
    return Row("Bonferroni box", box, 1.0, evaluation, seconds)


def _residuals(predictor: Any, X: Array, Y: Array) -> Array:
    return Y - np.asarray(predictor.predict(X))


def draw_sets(comparison: Comparison, path: Path) -> None:
    """Draw both sets over the test residuals and save the picture as a PNG file.

    The file appears whole or not at all. Needs matplotlib.

    Parameters
    ----------
    comparison : Comparison
        On a task of two outcomes.
    path : Path
        Where to write; an existing file is replaced.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 5.4), layout="constrained")
    ax = figure.add_subplot()
    paint_sets(comparison, ax)
    premiums = [row.evaluation.premium.value for row in comparison.rows]
    title = f"Task {comparison.task.name}: {len(comparison.residuals)} test residuals"
    ax.set_title(
        f"{title}\npremium {premiums[0]:.3f} with the learned set, {premiums[1]:.3f} with the box", fontsize=11
    )
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    save_figure(figure, [path])


def paint_sets(comparison: Comparison, ax: Axes) -> Axes:
    """Draw both sets over the test residuals on axes, with the directions in which outcomes cost more."""
    learned, residuals = comparison.learned, comparison.residuals
    centers = comparison.task.rows("test")[1] - residuals
    return sets_over_residuals(
        {row.method: (row.shape, row.radius) for row in comparison.rows},
        residuals,
        outcome_names=comparison.task.outcome_names,
        directions=directions_around(comparison.task.problem, learned.shape, learned.radius, centers),
        ax=ax,
    )
