"""The linear task with so many learning samples that hardly anything is left to overfit."""

from __future__ import annotations

import time

import numpy as np
from sklearn.base import clone

from polyhedge.calibration import conformal_radius
from polyhedge.learners import OneSidedBox, Samples, lower_bound
from polyhedge.learners.descent import total_gradient
from polyhedge.learners.one_sided_box import harmful_sides
from polyhedge.learners.starts import closed
from polyhedge.robust import decide, decide_knowing
from polyhedge.sets import Polyhedron, Shape
from polyhedge_study.inside import Array
from polyhedge_study.learners import nominal_cost
from polyhedge_study.tasks import synthetic_task

__all__ = ["POPULATION", "descend_from_box", "run_population"]

POPULATION = "population"
_EXACT_ROWS = 3000
"""Part of the learning rows, of which the exact optimum is computed; the methods are named after it."""


def run_population(method: str, d: int, n: int, seed: int, alpha: float) -> tuple[float, float, float, str]:
    """Premium, coverage, seconds and a word, for one way to use n learning samples of the linear task.

    Methods on "3000 rows" are judged on these rows themselves: the exact optimum there is a lower bound of what any
    set can reach in the mean, and the box there is what to compare it with.
    """
    # Seeds of their own, a predictor from as many rows as the paper's or more, and enough test rows for a third digit.
    task = synthetic_task(10_000 + seed, "linear", n_outcomes=d, sizes=(max(1200, n // 2), n, n, 4000))
    predictor = clone(task.predictor).fit(*task.rows("train"))
    centers = {part: predictor.predict(task.rows(part)[0]) for part in ("learn", "calibrate", "test")}
    residuals = {part: task.rows(part)[1] - centers[part] for part in centers}
    began = time.perf_counter()
    if method.endswith("3000 rows"):
        rows = slice(_EXACT_ROWS)
        objective = Samples(residuals["learn"][rows], centers["learn"][rows], task.problem, alpha)
        if method.startswith("exact"):
            value = lower_bound(Samples(objective.residuals, objective.centers, task.problem, alpha)).lower
        else:
            value = objective.value(_box(objective))
        return value - nominal_cost(objective), np.nan, time.perf_counter() - began, "on the learning rows"
    objective = Samples(residuals["learn"], centers["learn"], task.problem, alpha)
    shape: Shape = _box(objective)
    if method.startswith("descent"):
        shape = descend_from_box(objective, shape, np.random.default_rng(seed))
    seconds = time.perf_counter() - began
    radius = conformal_radius(shape.scores(residuals["calibrate"]), alpha)
    bounds = decide(task.problem, shape, radius, centers["test"]).cost_bound
    premium = float(bounds.mean() - decide_knowing(task.problem, centers["test"])[1].mean())
    return premium, float(shape.contains(residuals["test"], radius).mean()), seconds, ""


def _box(objective: Samples) -> Shape:
    return OneSidedBox().learn(objective).set


def descend_from_box(
    objective: Samples,
    box: Shape,
    rng: np.random.Generator,
    *,
    n_steps: int = 300,
    batch_size: int = 256,
    step_size: float = 0.01,
) -> Shape:
    """Descend on the learning objective from a one-sided box and facets between its sides that just touch it.

    The best set so far is kept, judged on a fixed choice of contexts, so the objective on them cannot rise.
    """
    start = _with_facets_between(objective, box)
    scale = float(np.median(np.abs(objective.residuals)))
    # Judging takes a decision for each context: some of them, every so many steps.
    scored_on = rng.choice(objective.n, min(objective.n, 2000), replace=False)
    best, best_value = start, objective.value(start, scored_on)
    W, b = start.W, start.b
    for t in range(n_steps):
        contexts = rng.choice(objective.n, min(objective.n, batch_size), replace=False)
        # Scores near the radius share its derivative: about a hundredth of the rows; steps shrink to a hundredth too.
        gradient = total_gradient(objective, W, b, contexts, 0.01 * objective.n)
        if gradient is None:
            break
        W, b = _step(objective, W, b, gradient, step_size * 0.01 ** (t / n_steps), scale)
        shape = Polyhedron(W, b)
        if (t + 1) % 25 == 0 and (value := objective.value(shape, scored_on)) < best_value:
            best, best_value = shape, value
    return closed(objective, best)


def _step(
    objective: Samples, W: Array, b: Array, gradient: tuple[Array, Array], rate: float, scale: float
) -> tuple[Array, Array]:
    size = max(float(np.abs(gradient[0]).max()), float(np.abs(gradient[1]).max()) / scale, 1e-12)
    shape = objective.normalised(Polyhedron(W - rate * gradient[0] / size, b - rate * gradient[1] / size))
    return shape.W, shape.b


def _with_facets_between(objective: Samples, box: Shape) -> Polyhedron:
    assert isinstance(box, Polyhedron)
    n_sides = len(harmful_sides(objective.problem))
    sides = objective.normalised(Polyhedron(box.W[:n_sides], box.b[:n_sides]))
    first, second = np.triu_indices(n_sides, k=1)
    between = (sides.W[first] + sides.W[second]) / np.sqrt(2)
    return Polyhedron(np.vstack([sides.W, between]), np.concatenate([sides.b, -sides.support(between, 0.0)]))
