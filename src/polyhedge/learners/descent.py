r"""Subgradient descent on the true learning objective.

$$\min_{W, b}\ \frac1n\sum_i \min_z \max_{e \in P} g(z, \hat f(X_i) + e), \qquad
P = \{e : W e + b \le R(D_n; W, b)\}$$

The robust cost of fixed facets has an exact subgradient by the envelope theorem (`objective.py`). The
radius is an order statistic: it moves with the facet that is active at the sample of rank c_n. Its
derivative is spread over samples of nearby rank by a kernel whose width shrinks during the run, which
lets far samples pull early and leaves the exact derivative at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.learners.samples import Learner, LearnResult, Samples, standard_deviations, standardised
from polyhedge.learners.starts import axis_box, check_n_facets, closed, coarse, one_sided, pca_box, simplex
from polyhedge.problems import NoSolutionError
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status


@dataclass(frozen=True)
class Descent(Learner):
    """Descend on the mean worst-case cost from facets where costs can rise, and keep the best set.

    Parameters
    ----------
    n_facets, max_contexts : as in `Learner`
    n_steps : int
        Steps of the descent.
    batch_size : int
        Contexts in each step, where each needs a solver; all contexts where they have a closed form.
    step_size : float
        First step relative to the residuals' scale; it falls to a hundredth.
    final_width : float
        Share of the samples over which the radius' derivative stays spread to the end. Zero descends
        on the objective itself; a positive width trusts single residuals less.

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Descent(n_steps=50).learn(samples, random_state=0)
    >>> result.objective <= ph.learners.OneSidedBox().learn(samples).objective + 1e-9
    True
    """

    n_facets: int | None = None
    n_steps: int = 200
    batch_size: int = 16
    step_size: float = 0.1
    final_width: float = 0.0
    max_contexts: int = 300

    @standardised(each_outcome=True)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        d = samples.problem.n_outcomes
        n_facets = max(4, 2 * d) if self.n_facets is None else self.n_facets
        check_n_facets(n_facets, d)
        return _Run(self, samples, np.random.default_rng(random_state)).learn(n_facets)


class _Run:
    """One call of `learn` with the best candidate so far."""

    def __init__(self, settings: Descent, samples: Samples, rng: np.random.Generator) -> None:
        self.settings, self.given, self.rng = settings, samples, rng
        self.samples = samples
        if samples.problem.structure.has_pieces:
            self.samples = replace(samples, residuals=coarse(samples.residuals, np.abs(samples.residuals).mean(axis=0)))
        m = samples.n_contexts
        limit = m if samples.has_closed_form else min(m, settings.max_contexts)
        self.scored_on = np.sort(rng.choice(m, size=limit, replace=False))
        self.best: Polyhedron | None = None
        self.best_value = np.inf

    def learn(self, n_facets: int) -> LearnResult:
        """The best set that was scored."""
        if self.samples.problem.structure.has_pieces:
            detail = f"descent on the true objective with {n_facets} facets"
            start = self._score(self.samples.normalised(one_sided(self.samples, n_facets)))
            if not np.isfinite(self.best_value):
                start = self._score(self.samples.normalised(simplex(self.samples, n_facets)))
            self._descend(start)
        else:
            detail = "best of the boxes along axes and principal components: the cost has no piece list"
            self.scored_on = self.scored_on[:: max(len(self.scored_on) // 12, 1)]
            for shape in (axis_box(self.samples), pca_box(self.samples)):
                self._score(self.samples.normalised(shape))
        assert self.best is not None
        if not np.isfinite(self.best_value):
            box = axis_box(self.samples)
            found = decide(self.samples.problem, box, self.samples.radius(box), self.samples.centers)
            complaint = found.complaint() or "every context has a decision, but no set with so few facets is bounded"
            raise NoSolutionError(
                "No starting set gives a finite worst-case cost on the whole learning split. With a box around the "
                f"predictions: {complaint}. Relax the constraints, bound the decision or drop such rows."
            )
        shape, value = self.best, self.best_value
        if self.samples is not self.given:
            shape = self.given.normalised(shape)
            value = self.given.value(shape, self.scored_on)
        return LearnResult(set=closed(self.given, shape), objective=value, status=Status.FINISHED, detail=detail)

    def _score(self, shape: Polyhedron) -> Polyhedron:
        """Evaluate a candidate, keep it if it is the best, and return it."""
        value = self.samples.value(shape, self.scored_on)
        if self.best is None or value < self.best_value - TIE:
            self.best, self.best_value = shape, value
        return shape

    def _descend(self, start: Polyhedron) -> None:
        samples, n_steps = self.samples, self.settings.n_steps
        scale = float(standard_deviations(samples.residuals.reshape(-1, 1))[0])
        W, b, m = start.W, start.b, samples.n_contexts
        takes_all = samples.has_closed_form or m <= self.settings.batch_size
        steps = _Adam(W.shape), _Adam(b.shape)
        score_every = 5 if samples.has_closed_form else max(n_steps // 4, 1)
        for t in range(n_steps):
            # The derivative of the radius is spread over 5 % of the samples at first, steps fall to a hundredth.
            progress = t / n_steps
            width = samples.n * max(0.05 * (1 - progress) ** 2, self.settings.final_width)
            batch = np.arange(m) if takes_all else self.rng.choice(m, size=self.settings.batch_size, replace=False)
            gradient = total_gradient(samples, W, b, batch, width)
            if gradient is None:
                return
            rate = self.settings.step_size * 0.01**progress
            grad_W, grad_b = (coarse(part, np.abs(part).max()) for part in gradient)
            W = W - rate * steps[0].direction(grad_W)
            b = b - rate * scale * steps[1].direction(grad_b)
            shape = samples.normalised(Polyhedron(W, b))
            W, b = shape.W, shape.b
            if t + 1 == n_steps or (2 * t > n_steps and (t + 1) % score_every == 0):
                self._score(shape)


def total_gradient(samples: Samples, W: Array, b: Array, contexts: Indices, width: float) -> tuple[Array, Array] | None:
    """Gradient in (W, b) of the mean cost at the conformal radius; None where the cost is infinite."""
    scores = samples.residuals @ W.T + b
    facet = scores.argmax(axis=1)
    sample_scores = scores[np.arange(len(scores)), facet]
    order = np.argsort(sample_scores, kind="stable")
    q = sample_scores[order[samples.rank - 1]] - b
    cost = samples.facet_gradient(W, q, contexts)
    if not np.isfinite(cost.value):
        return None
    # Kernel weights of positions near the rank; all on the rank at width 0.
    rank, half = samples.rank - 1, int(np.ceil(width))
    near = np.arange(max(rank - half, 0), min(rank + half, samples.n - 1) + 1)
    weight = np.maximum(1 - ((near - rank) / (width + 1)) ** 2, 0)
    near, weight = order[near], weight / weight.sum()
    grad_W, grad_b, push = cost.W.copy(), -cost.q, cost.q.sum()
    np.add.at(grad_W, facet[near], push * weight[:, None] * samples.residuals[near])
    np.add.at(grad_b, facet[near], push * weight)
    return grad_W, grad_b


class _Adam:
    """First and second moments of a gradient (Kingma and Ba, 2015)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.square, self.t = np.zeros(shape), np.zeros(shape), 0

    def direction(self, gradient: Array) -> Array:
        """The next step, of about unit size in each coordinate."""
        self.t += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient**2
        return (self.mean / (1 - 0.9**self.t)) / (np.sqrt(self.square / (1 - 0.99**self.t)) + 1e-12)
