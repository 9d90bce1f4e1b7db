r"""Subgradient descent on the true learning objective.

$$\min_{W, b}\ \frac1n\sum_i \min_z \max_{e \in P} g(z, \hat f(X_i) + e), \qquad
P = \{e : W e + b \le R(D_n; W, b)\}$$

The robust cost of fixed facets has an exact subgradient by the envelope theorem (`samples.py`). The
radius is an order statistic: it moves with the facet that is active at the sample of rank c_n. Its
derivative is spread over samples of nearby rank by a kernel whose width shrinks during the run, which
lets far samples pull early and leaves the exact derivative at the end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.batch_invariant import steady
from polyhedge.learners.result import LearnResult, Needs
from polyhedge.learners.samples import Samples
from polyhedge.learners.scales import standard_deviations
from polyhedge.learners.scaling import in_own_units
from polyhedge.learners.starts import (
    axis_box,
    check_n_facets,
    closed,
    one_sided,
    pca_box,
    selection_on_segment,
    simplex,
    trimmed,
    turned_to_decisions,
    with_n_facets,
)
from polyhedge.problems import NoSolutionError
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

_FEW_SAMPLES = 1000
"""Samples up to which the best selection on a segment is quickly found and serves as a start."""
_MANY_SAMPLES = 5000
"""Samples beyond which the trimmed start is left out: it drops them a few at a time."""
# Trimmed starts are near an optimum already: long steps would leave it.
_STEP_SHARE = {"trimmed": 0.2, "one-sided": 1.0, "axes": 1.0, "components": 1.0}
_JUDGE_EVERY, _JUDGEMENTS = 5, 4
"""Steps after which a set is scored on all contexts where that takes no solver; else in how many parts of the steps."""
_FIRST_WIDTH = 0.05
"""Share of the samples over which the radius' derivative is spread at first: single residuals make it jump."""
_LAST_STEP = 0.01
"""Share of the first step that is left of the last: steps fall evenly on a logarithmic scale."""


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
        Contexts in each step, where each needs a solver; all contexts where they have a closed form.
    step_size : float
        First step relative to the residuals' scale; it falls to a hundredth.
    final_width : float
        Share of the samples over which the radius' derivative stays spread to the end. Zero descends
        on the objective itself; a positive width trusts single residuals less.
    starts : tuple of str
        Of "trimmed" (facets where costs can rise, offsets by greedy trimming, small steps; up to 5 000
        samples), "one-sided" (the same facets at a common quantile), "axes" and "components" (boxes).
    max_contexts : int
        Contexts on which candidates are compared, where each needs a solver.
    time_limit : float or None
        Seconds after which the best set so far is returned.

    Examples
    --------
    >>> import polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Descent(n_steps=50).learn(samples, random_state=0)
    >>> result.objective <= ph.learners.OneSidedBox().learn(samples).objective + 1e-9
    True
    """

    needs: ClassVar[Needs] = Needs()

    n_facets: int | None = None
    n_steps: int = 200
    batch_size: int = 16
    step_size: float = 0.1
    final_width: float = 0.0
    starts: tuple[str, ...] = ("trimmed", "one-sided")
    max_contexts: int = 300
    time_limit: float | None = None

    @in_own_units
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        d = samples.problem.n_outcomes
        n_facets = max(4, 2 * d) if self.n_facets is None else self.n_facets
        check_n_facets(n_facets, d)
        if not self.starts or not set(self.starts) <= set(_STEP_SHARE):
            raise ValueError(f"starts must be some of {sorted(_STEP_SHARE)}, got {self.starts!r}.")
        return _Run(self, samples, np.random.default_rng(random_state)).learn(n_facets)


class _Run:
    """One call of `learn`: candidates, the best so far, the clock."""

    def __init__(self, settings: Descent, samples: Samples, rng: np.random.Generator) -> None:
        self.settings, self.given, self.rng = settings, samples, rng
        self.samples = steady(samples) if samples.problem.structure.has_pieces else samples
        self.began = time.perf_counter()
        m = samples.n_contexts
        limit = m if samples.has_closed_form else min(m, settings.max_contexts)
        self.scored_on = np.sort(rng.choice(m, size=limit, replace=False))
        self.best: Polyhedron | None = None
        self.best_value = np.inf
        self.trace: list[float] = []
        self.status, self.interrupted = Status.OPTIMAL, False

    def learn(self, n_facets: int) -> LearnResult:
        """Descend from every start; Ctrl-C and the time limit keep the best so far."""
        try:
            if not self.samples.problem.structure.has_pieces:
                detail = self._choose_among_boxes()
            else:
                detail = self._descend_from_all(n_facets)
        except KeyboardInterrupt:
            self.status, detail, self.interrupted = Status.STOPPED_EARLY, "interrupted", True
            if self.best is None:
                raise
        return self._result(detail)

    def _choose_among_boxes(self, n_contexts: int = 12) -> str:
        self.scored_on = self.scored_on[:: max(len(self.scored_on) // n_contexts, 1)]
        for shape in (axis_box(self.samples), pca_box(self.samples)):
            self.judge(self.samples.normalised(shape))
        return "best of the boxes along axes and principal components: the cost has no piece list"

    def _descend_from_all(self, n_facets: int) -> str:
        names = [name for name in self.settings.starts if name != "trimmed" or self.samples.n <= _MANY_SAMPLES]
        starts = {name: self._start(name, n_facets) for name in names or ["one-sided"]}
        for start in starts.values():
            self.judge(start)
        if not np.isfinite(self.best_value):
            starts["axes"] = self.samples.normalised(simplex(self.samples, n_facets))
            self.judge(starts["axes"])
        for name, start in starts.items():
            self._descend(start, self.settings.step_size * _STEP_SHARE[name])
        return f"descent on the true objective from {len(starts)} start(s) with {n_facets} facets"

    def _start(self, name: str, n_facets: int) -> Polyhedron:
        if name in ("one-sided", "trimmed"):
            start = one_sided(self.samples, n_facets)
            return self.samples.normalised(start if name == "one-sided" else self._trimmed(start, n_facets))
        box = axis_box(self.samples) if name == "axes" else pca_box(self.samples)
        return with_n_facets(self.samples, self.samples.normalised(box), n_facets)

    def _trimmed(self, start: Polyhedron, n_facets: int) -> Polyhedron:
        """Greedy offsets, or, where the best selection is quickly found, facets for it."""
        samples, W = self.samples, start.W
        shape = trimmed(samples, W, self._batch(), self.rng)
        kept = selection_on_segment(samples) if samples.n <= _FEW_SAMPLES else None
        if kept is None:
            return shape
        self.judge(samples.normalised(shape))
        W = turned_to_decisions(samples, kept, W, n_facets)
        self.judge(samples.normalised(Polyhedron(W, -(samples.residuals[kept] @ W.T).max(axis=0))))
        return trimmed(samples, W, self._batch(), self.rng)

    def judge(self, shape: Polyhedron) -> None:
        """Evaluate a candidate on what the search sees and keep it if it is the best."""
        value = self.samples.value(shape, self.scored_on)
        self.trace.append(value)
        if self.best is None or value < self.best_value - self.samples.tie:
            self.best, self.best_value = shape, value

    def _descend(self, start: Polyhedron, step_size: float) -> None:
        settings, samples = self.settings, self.samples
        scale = float(standard_deviations(samples.residuals.reshape(-1, 1))[0])
        W, b = start.W.copy(), start.b.copy()
        steps = _Adam(W.shape), _Adam(b.shape)
        judge_every = _JUDGE_EVERY if samples.has_closed_form else max(settings.n_steps // _JUDGEMENTS, 1)
        for t in range(settings.n_steps):
            if self._out_of_time():
                return
            progress = t / settings.n_steps
            width = samples.n * max(_FIRST_WIDTH * (1 - progress) ** 2, settings.final_width)
            gradient = total_gradient(samples, W, b, self._batch(), width)
            if gradient is None:
                return
            rate = step_size * _LAST_STEP**progress
            W = W - rate * steps[0].direction(gradient[0])
            b = b - rate * scale * steps[1].direction(gradient[1])
            shape = samples.normalised(Polyhedron(W, b))
            W, b = shape.W.copy(), shape.b.copy()
            if t + 1 == settings.n_steps or (2 * t > settings.n_steps and (t + 1) % judge_every == 0):
                self.judge(shape)

    def _batch(self) -> Indices:
        m = self.samples.n_contexts
        if self.samples.has_closed_form or m <= self.settings.batch_size:
            return np.arange(m)
        return self.rng.choice(m, size=self.settings.batch_size, replace=False)

    def _out_of_time(self) -> bool:
        limit = self.settings.time_limit
        if limit is None or time.perf_counter() - self.began <= limit:
            return False
        self.status = Status.STOPPED_EARLY
        return True

    def _result(self, detail: str) -> LearnResult:
        assert self.best is not None
        if not np.isfinite(self.best_value):
            raise NoSolutionError(
                "No starting set gives a finite worst-case cost on the whole learning split. With a box around the "
                f"predictions: {self._complaint()}. Relax the constraints, bound the decision or drop such rows."
            )
        shape, value = self.best, self.best_value
        if self.samples is not self.given:  # the search saw them rounded
            shape = self.given.normalised(shape)
            value = self.given.value(shape, self.scored_on)
        return LearnResult(
            set=closed(self.given, shape),
            objective=value,
            status=self.status,
            seconds=time.perf_counter() - self.began,
            trace=tuple(self.trace),
            detail=detail,
            interrupted=self.interrupted,
        )

    def _complaint(self) -> str:
        """What goes wrong in which share of the contexts, with the plainest bounded set."""
        box = axis_box(self.samples)
        decisions = decide(self.samples.problem, box, self.samples.radius(box), self.samples.centers)
        return decisions.complaint() or "every context has a decision, but no set with so few facets is bounded"


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
    near, weight = _rank_weights(samples.n, samples.rank, width)
    near = order[near]
    grad_W, grad_b, push = cost.W.copy(), -cost.q, cost.q.sum()
    np.add.at(grad_W, facet[near], push * weight[:, None] * samples.residuals[near])
    np.add.at(grad_b, facet[near], push * weight)
    return samples.told(grad_W), samples.told(grad_b)


def _rank_weights(n: int, rank: int, width: float) -> tuple[Indices, Array]:
    """Positions near the rank and kernel weights that sum to 1 (all on the rank itself at width 0)."""
    half = int(np.ceil(width))
    near = np.arange(max(rank - 1 - half, 0), min(rank - 1 + half, n - 1) + 1)
    weight = np.maximum(1 - ((near - (rank - 1)) / (width + 1)) ** 2, 0)
    return near, weight / weight.sum()


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
