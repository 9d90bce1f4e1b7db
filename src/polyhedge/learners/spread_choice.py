"""Whether to scale a set by a predicted spread: scored by cross-fitting on the learning rows.

The shape stays as it was learned. Candidates are forests of two sizes and two powers of what they predict; each is
fitted without a fold and predicts it. The radius of the scaled scores, and the mean cost at it, estimate what
recalibration on fresh rows will give. Where residuals spread alike everywhere, none of them beats one size for all.

What a spread saves is little beside the noise of few rows. Where a shape is learned from some of the rows, its spread
is therefore scored on many more; trees then draw few rows each, and different ones, which takes no longer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.paper.boxes import scored_contexts
from polyhedge.learners.result import Learner, LearnResult, as_interrupted
from polyhedge.learners.samples import Samples, n_affordable
from polyhedge.learners.scales import standard_deviations
from polyhedge.learners.spread import Spread, levels
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

__all__ = ["choose_spread", "learn_with_spread"]

logger = logging.getLogger(__name__)

# Leaves that follow the data and leaves that smooth; and the square root of a spread between none and all of it.
_LEAVES = (5, 20)
_POWERS = (0.5, 1.0)
_N_FOLDS = 3
"""The fewest folds that learn from most of the rows: each fold grows forests."""
# The best of several is taken, and a spread makes every decision dearer to compute: it must lead by more than a shape.
_MARGINS = 2.0
_FEWEST = 100
_TIMES_AS_MANY = 8
"""Rows that judge a spread, for each that a shape is learned from: with more the time of a fit would grow again."""
_SHARE_A_TREE = 0.5
"""Rows that a tree draws then, for each that the shape is learned from. Trees of 2500 rows of 10 000 gave bounds as low
as trees of all of them, in less than half the time (two prices, seven draws)."""


def learn_with_spread(
    learner: Learner, samples: Samples, X: Any, *, seed: int, groups: Any = None
) -> tuple[LearnResult, Spread | None]:
    """Learn a shape and, where the learner's needs say `may_scale` and it pays, the spread that scales it.

    Parameters
    ----------
    learner : gives the shape; `complexity penalty` and `time_limit` of its needs hold for the spread too.
    samples : learning rows only.
    X : features of these samples, row by row.
    seed : of the learner, of folds and of forests.
    groups : labels of rows that are near-copies of each other.
    """
    began, limit, each = time.perf_counter(), learner.needs.time_limit, learner.needs.samples_an_outcome
    some, rows = _some(each, samples)
    result = learner.learn(some, random_state=seed)
    if rows is not None:
        result = replace(result, detail=f"{result.detail}; from {some.n} of {samples.n} rows, evenly chosen")
    if not learner.needs.may_scale:
        return result, None
    many, rows_of_many = _some(None if each is None else _TIMES_AS_MANY * each, samples)
    if rows_of_many is not None:
        X, groups = take_rows(X, rows_of_many), None if groups is None else np.asarray(groups)[rows_of_many]
    chosen, spread = choose_spread(
        result,
        many,
        X,
        complexity_penalty=learner.needs.complexity_penalty,
        seed=seed,
        groups=groups,
        deadline=np.inf if limit is None else began + limit,
        rows_a_tree=None if rows is None else max(int(_SHARE_A_TREE * some.n), 1),
    )
    if spread is not None and rows is not None:
        chosen = replace(chosen, lower_bound=-np.inf)  # it was proven for other rows than the objective is of
    return chosen, spread


def _some(each: int | None, samples: Samples) -> tuple[Samples, Indices | None]:
    """An even choice of the samples where there are more than so many for each outcome, and their rows."""
    n, most = samples.n, samples.n if each is None else each * samples.problem.n_outcomes
    if n <= most:
        return samples, None
    rows = evenly_chosen(n, most)
    centers = samples.centers if samples.n_contexts == 1 else samples.centers[rows]
    return Samples(samples.residuals[rows], centers, samples.problem, samples.alpha), rows


def choose_spread(
    result: LearnResult,
    samples: Samples,
    X: Any,
    *,
    complexity_penalty: float,
    seed: int,
    groups: Any = None,
    deadline: float = np.inf,
    rows_a_tree: int | None = None,
) -> tuple[LearnResult, Spread | None]:
    """The result with the spread that pays, and that spread; as it is, and None, where none does.

    Parameters
    ----------
    result : the learned shape.
    samples : learning rows only: those that it was learned from, or more.
    X : features of these samples, row by row.
    complexity penalty : twice this share of the premium, over the square root of the number of samples, must be saved.
    seed : of folds and forests.
    groups : labels of rows that are near-copies of each other; they stay in one fold.
    deadline : time (of `time.perf_counter`) after which nothing more is tried.
    rows_a_tree : rows that each tree of a forest draws, where there are more; None for as many as there are.
    """
    facets = result.set.facets()
    groups_at_hand = np.inf if groups is None else len(np.unique(groups))
    if (
        facets is None
        or result.status is Status.STOPPED_EARLY
        or not samples.problem.structure.has_pieces
        or samples.n < max(_FEWEST, minimum_samples(samples.alpha))
        or min(samples.n, groups_at_hand) < _N_FOLDS
    ):
        return result, None
    relaxed = replace(samples, problem=samples.problem.relaxed())
    try:
        return _Judge(facets, relaxed, X, seed, groups, deadline, rows_a_tree).choose(result, complexity_penalty)
    except KeyboardInterrupt:
        return as_interrupted(result), None


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Settings of a spread, and the scales (n,) that it gives to samples it has not seen."""

    min_leaf: int
    power: float
    scales: Array = field(repr=False)


@dataclass(frozen=True, eq=False)
class _Judge:
    """One call of `choose_spread`: what a shape costs with and without scales."""

    shape: Polyhedron
    samples: Samples
    X: Any
    seed: int
    groups: Any
    deadline: float
    rows_a_tree: int | None = None

    def choose(self, result: LearnResult, complexity_penalty: float) -> tuple[LearnResult, Spread | None]:
        n, plain, nominal = self.samples.n, self._cost(np.ones(self.samples.n)), self._nominal
        margin = _MARGINS * complexity_penalty / np.sqrt(n) * max(plain - nominal, 0.0) if np.isfinite(plain) else 0.0
        best, least, tie = None, plain - margin, SELECTION_TIE * abs(plain - nominal) if np.isfinite(plain) else 0.0
        for candidate in self._candidates():
            cost = self._cost(candidate.scales)
            logger.info("%s costs %g, one size for all %g", candidate, cost, plain)
            if cost < least - tie:
                best, least = candidate, cost
        if best is None:
            return result, None
        spread = replace(self._fit(np.arange(n), best.min_leaf), power=best.power)
        scales = spread(self.X, self.samples.centers)
        scaled = replace(
            result,
            set=Polyhedron(self.shape.W, self.shape.b - self._radius(scales)),
            # What was proven is for all contexts.
            objective=self._cost(scales, np.arange(n) if np.isfinite(result.lower_bound) else None),
            detail=f"{result.detail}; scaled by a predicted spread: cross-fitted premium {least - nominal:.4g}, "
            f"at one size {plain - nominal:.4g}",
        )
        return scaled, spread

    def _candidates(self) -> Iterator[_Candidate]:
        """Scales of all samples, each from a forest that has not seen its fold."""
        for min_leaf in _LEAVES:
            if time.perf_counter() > self.deadline:
                return
            sizes = np.ones(self.samples.n)
            for rest, rows in self._folds():
                sizes[rows] = self._fit(rest, min_leaf).sizes(take_rows(self.X, rows), self.samples.centers[rows])
            for power in _POWERS:
                yield _Candidate(min_leaf, power, levels(sizes, power))

    @cached_property
    def _contexts(self) -> Indices:
        """All contexts, an even choice of them where each needs a solver."""
        few = n_affordable(len(self.samples.problem.structure.pieces))
        return scored_contexts(self.samples, None if self.samples.has_closed_form else few)

    @cached_property
    def _nominal(self) -> float:
        costs = decide_knowing(self.samples.problem, self.samples.centers[self._contexts])[1]
        return float(np.nanmean(costs))

    def _folds(self) -> Any:
        if self.groups is None:
            return KFold(_N_FOLDS, shuffle=True, random_state=self.seed).split(self.samples.residuals)
        return GroupKFold(_N_FOLDS).split(self.samples.residuals, groups=self.groups)

    @cached_property
    def _sizes(self) -> Array:
        """One size a residual: the mean over outcomes of its absolute value in units of the outcome's spread."""
        residuals = self.samples.residuals
        return np.asarray((np.abs(residuals) / standard_deviations(residuals)).mean(axis=1))

    def _fit(self, rows: Indices, min_leaf: int) -> Spread:
        X, centers = take_rows(self.X, rows), self.samples.centers[rows]
        few = self.rows_a_tree
        return Spread.fit(X, centers, self._sizes[rows], min_leaf=min_leaf, seed=self.seed, rows_a_tree=few)

    def _radius(self, scales: Array) -> float:
        return conformal_radius(self.shape.scores(self.samples.residuals / scales[:, None]), self.samples.alpha)

    def _cost(self, scales: Array, contexts: Indices | None = None) -> float:
        """Mean worst-case cost at the radius that these scales would get; by default over the scored contexts."""
        samples, radius, total = self.samples, self._radius(scales), 0.0
        rows = self._contexts if contexts is None else contexts
        for scale in np.unique(scales[rows]):
            own = rows[scales[rows] == scale]
            total += len(own) * samples.cost_at(self.shape.scaled(float(scale)), radius, own)
        return total / len(rows)
