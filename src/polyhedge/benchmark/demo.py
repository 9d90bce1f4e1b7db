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

from polyhedge._validation import Array, as_finite, check_alpha
from polyhedge.benchmark.files import save_figure
from polyhedge.benchmark.tasks import Task
from polyhedge.calibration import conformal_radius
from polyhedge.estimator import RobustDecider
from polyhedge.metrics import Evaluation, evaluate_decisions
from polyhedge.robust import decide
from polyhedge.sets import Box, Region, UncertaintySet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "Row", "bonferroni_box", "compare", "draw_sets"]

_LEARNED, _BOX, _DOTS, _MISSED = "#1f5fa8", "#d1781b", "#7d838d", "#b3261e"
# Share of the residuals on each side of each axis that may lie outside the picture's frame.
_TAIL = 0.005


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
    shape: UncertaintySet
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
    decider = RobustDecider(task.problem, predictor=FrozenEstimator(predictor), alpha=alpha, random_state=random_state)
    began = time.perf_counter()
    decider.fit(task.X, task.Y, learn=task.split.learn, calibrate=task.split.calibrate)
    seconds = time.perf_counter() - began
    evaluation = decider.evaluate(*task.rows("test"))
    return Row("learned polyhedron", decider.set_, decider.radius_, evaluation, seconds)


def _box_row(task: Task, predictor: Any, alpha: float) -> Row:
    began = time.perf_counter()
    pooled = np.concatenate([task.split.learn, task.split.calibrate])
    box = bonferroni_box(_residuals(predictor, task.X[pooled], task.Y[pooled]), alpha)
    seconds = time.perf_counter() - began
    X, Y = task.rows("test")
    centers = predictor.predict(X)
    evaluation = evaluate_decisions(
        task.problem,
        decide(task.problem, box, 1.0, centers),
        box.contains(Y - centers, 1.0),
        centers,
        Y,
        box.volume(1.0),
        alpha,
    )
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
    _draw_set(ax, comparison.learned, _LEARNED, linestyle="-", fill=0.16)
    _draw_set(ax, comparison.box, _BOX, linestyle="--", fill=0.0)
    ax.plot(0, 0, marker="+", color="black", markersize=9, linestyle="none", zorder=5, label="prediction")
    _draw_residuals(ax, comparison)
    _frame(ax, comparison)
    save_figure(figure, [path])


def _draw_set(ax: Axes, row: Row, color: str, *, linestyle: str, fill: float) -> None:
    from matplotlib.colors import to_rgba

    coverage, premium = row.evaluation.coverage.value, row.evaluation.premium.value
    Region(row.shape, row.radius, np.zeros(2)).plot(
        ax,
        facecolor=to_rgba(color, fill),
        edgecolor=color,
        linestyle=linestyle,
        linewidth=1.8,
        alpha=None,
        zorder=4 if fill == 0 else 2,
        label=f"{row.method}: coverage {coverage:.3f}, premium {premium:.3f}",
    )


def _draw_residuals(ax: Axes, comparison: Comparison) -> None:
    learned = comparison.learned
    inside = learned.shape.contains(comparison.residuals, learned.radius)
    within, without = comparison.residuals[inside], comparison.residuals[~inside]
    styles: tuple[tuple[Array, dict[str, Any]], ...] = (
        (within, {"s": 9, "marker": "o", "linewidths": 0, "color": _DOTS, "label": "inside the learned set"}),
        (without, {"s": 18, "marker": "x", "linewidths": 0.9, "color": _MISSED, "label": "outside it"}),
    )
    for points, style in styles:
        ax.scatter(points[:, 0], points[:, 1], zorder=3, **style)


def _frame(ax: Axes, comparison: Comparison) -> None:
    """Limit the axes to the bulk of the residuals and the box: the learned set may open far beyond."""
    residuals = comparison.residuals
    reach = comparison.box.shape.support(np.vstack([np.eye(2), -np.eye(2)]), comparison.box.radius)
    low = np.minimum(np.quantile(residuals, _TAIL, axis=0), -reach[2:])
    high = np.maximum(np.quantile(residuals, 1 - _TAIL, axis=0), reach[:2])
    margin = 0.08 * (high - low).max()
    low, high = low - margin, high + margin
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_aspect("equal")
    ax.grid(color="#e4e6ea", linewidth=0.6, zorder=0)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    first, second = comparison.task.outcome_names
    ax.set_xlabel(f"{first}: outcome minus prediction")
    ax.set_ylabel(f"{second}: outcome minus prediction")
    n_beyond = int(np.any((residuals < low) | (residuals > high), axis=1).sum())
    beyond = f" ({n_beyond} beyond the frame)" if n_beyond else ""
    ax.set_title(f"Task {comparison.task.name}: {len(residuals)} test residuals{beyond}", fontsize=11)
    # Legends fill column by column: the sets and the prediction in the first, the dots in the second.
    ax.figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
