r"""Subgradient descent on the true learning objective.

$$\min_{W, b}\ \frac1n\sum_i \min_z \max_{e \in P} g(z, \hat f(X_i) + e), \qquad P = \{e : W e + b \le R(D_n; W, b)\}$$

The robust cost of fixed facets has an exact subgradient by the envelope theorem (`objective.py`). The
radius is an order statistic: it moves with the facet that is active at the sample of rank c_n. Its
derivative is spread over samples of nearby rank by a kernel whose width shrinks during the run, which
lets far samples pull early and leaves the exact derivative at the end.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._validation import Array, Indices
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.result import LearnResult
from polyhedge.learners.starts import axis_box, check_n_facets, closed, one_sided, pca_box
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Descent:
    """Descend on the mean worst-case cost from several starts and keep the best set.

    Parameters
    ----------
    n_facets : int or None
        Facets K that are learned; None for max(4, 2 d). Far facets that only keep the set bounded are
        added to them where needed.
    n_steps : int
        Steps for each start.
    batch_size : int
        Contexts in each step.
    step_size : float
        First step relative to the residuals' scale; it falls to a hundredth.
    max_contexts : int
        Contexts on which candidates are compared (all, where there are fewer).
    time_limit : float or None
        Seconds after which the best set so far is returned.
    """

    n_facets: int | None = None
    n_steps: int = 200
    batch_size: int = 16
    step_size: float = 0.1
    max_contexts: int = 300
    time_limit: float | None = None

    def learn(
        self,
        residuals: Array,
        centers: Array,
        problem: DecisionProblem,
        alpha: float,
        random_state: Any = None,
    ) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        began = time.perf_counter()
        d = problem.n_outcomes
        n_facets = max(4, 2 * d) if self.n_facets is None else self.n_facets
        check_n_facets(n_facets, d)
        objective = LearningObjective(problem, residuals, centers, alpha)
        rng = np.random.default_rng(random_state)
        run = _Run(self, objective, rng, began)
        if problem.pieces is None:
            return run.choose_among([axis_box(objective), pca_box(objective)])
        return run.descend_from(_starts(objective, n_facets))


def _starts(objective: LearningObjective, n_facets: int) -> list[Polyhedron]:
    starts = [one_sided(objective, n_facets)]
    if n_facets >= 2 * objective.problem.n_outcomes:
        starts += [axis_box(objective), pca_box(objective)]
    return starts


class _Run:
    """One call of `learn`: candidates, the best so far, the clock."""

    def __init__(
        self, settings: Descent, objective: LearningObjective, rng: np.random.Generator, began: float
    ) -> None:
        self.settings, self.objective, self.rng, self.began = settings, objective, rng, began
        limit = min(objective.n, settings.max_contexts)
        self.judged_on = np.sort(rng.choice(objective.n, size=limit, replace=False))
        self.best: Polyhedron | None = None
        self.best_value = np.inf
        self.trace: list[float] = []
        self.stopped = False

    def choose_among(self, shapes: list[Polyhedron], n_contexts: int = 12) -> LearnResult:
        """The best of given shapes, for costs whose gradient is not available."""
        self.judged_on = self.judged_on[:n_contexts]
        for shape in shapes:
            self.judge(self.objective.normalised(shape))
        return self.result(
            "best of the boxes along axes and principal components: the cost has no piece list"
        )

    def descend_from(self, starts: list[Polyhedron]) -> LearnResult:
        for start in starts:
            shape = self.objective.normalised(start)
            self.judge(shape)
            self._descend(shape)
        return self.result(f"descent on the true objective from {len(starts)} starts")

    def judge(self, shape: Polyhedron) -> None:
        """Evaluate a candidate exactly and keep it if it is the best."""
        value = self.objective.value(shape, self.judged_on)
        self.trace.append(value)
        if value < self.best_value or self.best is None:
            self.best, self.best_value = shape, value

    def _descend(self, start: Polyhedron) -> None:
        settings, objective = self.settings, self.objective
        scale = float(objective.residuals.std()) or 1.0
        W, b = start.W.copy(), start.b.copy()
        steps = _Adam(W.shape), _Adam(b.shape)
        for t in range(settings.n_steps):
            if self._out_of_time():
                break
            progress = t / settings.n_steps
            batch = self.rng.choice(objective.n, size=min(settings.batch_size, objective.n), replace=False)
            gradient = total_gradient(objective, W, b, batch, width=_kernel_width(objective.n, progress))
            if gradient is None:
                break
            rate = settings.step_size * 0.01**progress
            W = W - rate * steps[0].direction(gradient[0])
            b = b - rate * scale * steps[1].direction(gradient[1])
            W, b = _normalise(objective, W, b)
            if (t + 1) % max(settings.n_steps // 4, 1) == 0:
                self.judge(Polyhedron(W, b))

    def _out_of_time(self) -> bool:
        limit = self.settings.time_limit
        self.stopped = limit is not None and time.perf_counter() - self.began > limit
        return self.stopped

    def result(self, detail: str) -> LearnResult:
        assert self.best is not None
        if not np.isfinite(self.best_value):
            raise ValueError(
                "No bounded starting set gives a finite worst-case cost on the learning split. Check that every "
                "decision has a finite cost and that uncertain_constraints can be met; solve one context with "
                "polyhedge.robust.decide to see its status."
            )
        return LearnResult(
            set=closed(self.objective, self.best),
            objective=self.best_value,
            status=Status.STOPPED_EARLY if self.stopped else Status.OPTIMAL,
            seconds=time.perf_counter() - self.began,
            trace=tuple(self.trace),
            detail=detail,
        )


def total_gradient(
    objective: LearningObjective, W: Array, b: Array, contexts: Indices, width: float
) -> tuple[Array, Array] | None:
    """Gradient in (W, b) of the mean cost at the conformal radius; None where the cost is infinite."""
    scores = objective.residuals @ W.T + b
    facet = scores.argmax(axis=1)
    sample_scores = scores.max(axis=1)
    order = np.argsort(sample_scores, kind="stable")
    q = sample_scores[order[objective.rank - 1]] - b
    cost = objective.facet_gradient(W, q, contexts)
    if not np.isfinite(cost.value):
        return None
    near, weight = _rank_weights(objective.n, objective.rank, width)
    samples = order[near]
    grad_W, grad_b, push = cost.W.copy(), -cost.q, cost.q.sum()
    np.add.at(grad_W, facet[samples], push * weight[:, None] * objective.residuals[samples])
    np.add.at(grad_b, facet[samples], push * weight)
    return grad_W, grad_b


def _rank_weights(n: int, rank: int, width: float) -> tuple[Indices, Array]:
    """Positions near the rank and kernel weights that sum to 1 (all on the rank itself at width 0)."""
    half = int(np.ceil(width))
    near = np.arange(max(rank - 1 - half, 0), min(rank - 1 + half, n - 1) + 1)
    weight = np.maximum(1 - ((near - (rank - 1)) / (width + 1)) ** 2, 0)
    return near, weight / weight.sum()


def _kernel_width(n: int, progress: float) -> float:
    return 0.05 * n * (1 - progress) ** 2


def _normalise(objective: LearningObjective, W: Array, b: Array) -> tuple[Array, Array]:
    shape = objective.normalised(Polyhedron(W, b))
    return shape.W.copy(), shape.b.copy()


class _Adam:
    """First and second moments of a gradient (Kingma and Ba, 2015)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.square, self.t = np.zeros(shape), np.zeros(shape), 0

    def direction(self, gradient: Array) -> Array:
        self.t += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient**2
        return (self.mean / (1 - 0.9**self.t)) / (np.sqrt(self.square / (1 - 0.99**self.t)) + 1e-12)
