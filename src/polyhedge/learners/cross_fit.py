"""Judge learners by what they give on folds of the learning split that they have not seen.

Scores on the left-out folds are pooled to one conformal radius; the mean worst-case cost of the left-out contexts
at that radius estimates what recalibration on fresh data will give.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from polyhedge._support.progress import tell
from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import Indices
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.result import Learner
from polyhedge.learners.samples import Samples, n_affordable
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron, Shape
from polyhedge.solvers.program import Status

logger = logging.getLogger(__name__)

# A lead of so many margins on the first fold needs no further folds, where these are slow.
_CLEAR_LEAD = 4.0


class Selection:
    """Candidates in the order of their complexity, fitted without a fold and scored on it.

    Attributes
    ----------
    scored : estimated cost of each candidate, and of the half-way sets between it and the simplest.
    stopped : why the selection ended early; empty if it did not.
    interrupted : whether it was Ctrl-C that ended it.
    """

    def __init__(self, samples: Samples, n_folds: int, complexity_penalty: float, seed: int, deadline: float) -> None:
        self.samples, self.seed, self.deadline = samples, seed, deadline
        order = np.random.default_rng(seed).permutation(samples.n)
        self.folds = [np.sort(part) for part in np.array_split(order, n_folds)]
        self.contexts = [_contexts_of(samples, fold) for fold in self.folds]
        self.share = complexity_penalty / np.sqrt(samples.n)
        self.scored: dict[str, float] = {}
        self.shapes: dict[str, Shape] = {}
        self.failed: list[str] = []
        self.n_fitted, self.n_fits = 0, 0
        self.stopped, self.interrupted = "", False

    def choose(self, candidates: Mapping[str, Learner]) -> tuple[str, str]:
        """The name of the winner, or of the two whose half-way set won, and the reason in words."""
        simplest, *others = candidates
        if not others:
            return simplest, "no outcome can raise the cost"
        if self.samples.n - max(len(fold) for fold in self.folds) < minimum_samples(self.samples.alpha):
            return simplest, "too few learning samples to compare"
        try:
            self._judge_all(candidates)
        except KeyboardInterrupt:
            self.stopped, self.interrupted = "interrupted", True
        return self._winner(simplest) if self.scored else (simplest, f"{self.stopped} before anything was compared")

    def _judge_all(self, candidates: Mapping[str, Learner]) -> None:
        simplest, *others = candidates
        # The winner is fitted once more on all rows, which takes about as long as its folds.
        self.n_fits = (len(candidates) + 1) * len(self.folds)
        rivals = self._fit(candidates[simplest])
        if rivals is None:
            return
        self._enter(simplest, rivals)
        for name in others:
            try:
                shapes = self._fit(candidates[name], rivals)
            except ValueError as error:
                if not np.isfinite(self.scored[simplest]):
                    raise
                logger.info("%s cannot be learned here: %s", name, error)
                self.failed.append(name)
                continue
            if shapes is None:
                return
            if len(shapes) < len(self.folds):
                self.scored.clear()
                self._enter(simplest, rivals[: len(shapes)])
                self._enter(name, shapes)
                return
            self._enter(f"{name} + {simplest}", [half_way(a, b) for a, b in zip(shapes, rivals, strict=True)])
            self._enter(name, shapes)

    def _enter(self, name: str, shapes: Sequence[Shape]) -> None:
        self.scored[name], self.shapes[name] = self._cost(shapes), shapes[0]

    def _fit(self, learner: Learner, rivals: Sequence[Shape] = ()) -> list[Shape] | None:
        """One shape a fold; a single one where it leads its rival clearly; None when stopped."""
        shapes: list[Shape] = []
        for fold in self.folds:
            shape = self._learn_without(fold, learner)
            if shape is None:
                return None
            shapes.append(shape)
            if len(shapes) == 1 and rivals and self._leads_clearly(shapes, rivals[:1]):
                return shapes
        return shapes

    def _learn_without(self, fold: Indices, learner: Learner) -> Shape | None:
        samples = self.samples
        if time.perf_counter() > self.deadline:
            self.stopped = "out of time"
            return None
        rest = np.setdiff1d(np.arange(samples.n), fold)
        centers = samples.centers if samples.n_contexts == 1 else samples.centers[rest]
        learner = until(self.deadline, learner)
        result = learner.learn(Samples(samples.residuals[rest], centers, samples.problem, samples.alpha), self.seed)
        if result.status is Status.STOPPED_EARLY:
            # A learner keeps Ctrl-C to itself and returns its best; the selection must not go on to the next.
            self.interrupted = result.interrupted
            self.stopped = "interrupted" if result.interrupted else "out of time"
            return None
        self.n_fitted += 1
        tell(logger, "learning", self.n_fitted, self.n_fits)
        return result.set

    def _leads_clearly(self, shapes: Sequence[Shape], rivals: Sequence[Shape]) -> bool:
        samples = self.samples
        if samples.has_closed_form or len(self.folds[0]) < minimum_samples(samples.alpha):
            return False
        behind = self._cost(rivals)
        return self._cost(shapes) < behind - _CLEAR_LEAD * self._margin(behind)

    def _cost(self, shapes: Sequence[Shape]) -> float:
        """Estimated cost after recalibration: one radius for the left-out residuals of all given folds."""
        samples, folds, contexts = self.samples, self.folds[: len(shapes)], self.contexts[: len(shapes)]
        scores = [shape.scores(samples.residuals[fold]) for shape, fold in zip(shapes, folds, strict=True)]
        radius = conformal_radius(np.concatenate(scores), samples.alpha)
        costs = [samples.cost_at(shape, radius, rows) for shape, rows in zip(shapes, contexts, strict=True)]
        return float(np.average(costs, weights=[len(fold) for fold in folds]))

    def _margin(self, cost: float) -> float:
        return max(self.share, SELECTION_TIE) * max(cost - self._nominal, 0.0) if np.isfinite(cost) else 0.0

    @cached_property
    def _nominal(self) -> float:
        rows = np.unique(np.concatenate(self.contexts))
        return float(np.nanmean(decide_knowing(self.samples.problem, self.samples.centers[rows])[1]))

    def _winner(self, simplest: str) -> tuple[str, str]:
        chosen, margin = simplest, self._margin(self.scored[simplest])
        for name, cost in self.scored.items():
            if cost < self.scored[chosen] - margin:
                chosen = name
        least = min(self.scored, key=lambda name: self.scored[name])
        lead = ""
        if self.scored[least] < self.scored[chosen]:
            lead = f"; {least} would have to be lower by more than {margin:.3g}, which chance gives it, to be worth it"
        premiums = ", ".join(f"{name} {cost - self._nominal:.4g}" for name, cost in self.scored.items())
        failed = f"; {', '.join(self.failed)} cannot be learned here" if self.failed else ""
        stopped = f"; {self.stopped} before all were compared" if self.stopped else ""
        return chosen, f"cross-fitted premiums: {premiums}{lead}{failed}{stopped}"


@runtime_checkable
class Limited(Protocol):
    """A learner whose time can be limited."""

    time_limit: float | None


def until(deadline: float, learner: Learner) -> Learner:
    """The learner with what is left of the time, where it can be limited."""
    if not np.isfinite(deadline) or not isinstance(learner, Limited):
        return learner
    return replace(learner, time_limit=max(deadline - time.perf_counter(), 0.0))  # type: ignore[type-var]


def _contexts_of(samples: Samples, fold: Indices) -> Indices:
    """The fold's contexts, an even choice of them where each needs a solver."""
    if samples.n_contexts == 1:
        return np.zeros(1, dtype=np.int64)
    if samples.has_closed_form:
        return fold
    return fold[evenly_chosen(len(fold), n_affordable(len(samples.problem.structure.pieces)))]


def half_way(first: Shape, second: Shape) -> Polyhedron:
    """Half-way between two bounded polyhedra: the facets of both at the mean of their support functions."""
    facets = [shape for shape in (first.facets(), second.facets()) if shape is not None]
    W = np.vstack([shape.W for shape in facets])
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    W = W[np.sort(np.unique(W.round(9), axis=0, return_index=True)[1])]
    return Polyhedron(W, -0.5 * (first.support(W, 0.0) + second.support(W, 0.0)))
