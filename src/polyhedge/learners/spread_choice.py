"""Whether to scale a set by a predicted spread: judged by cross-fitting on the learning rows.

The shape stays as it was learned. Candidates are forests of two sizes and two powers of what they predict; each is
fitted without a fold and predicts it. The radius of the scaled scores, and the mean cost at it, estimate what
recalibration on fresh rows will give. Where residuals spread alike everywhere, none of them beats one size for all.
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

from polyhedge._validation import Array, Indices
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.data import take_rows
from polyhedge.learners.paper.boxes import judged_contexts
from polyhedge.learners.result import Learner, LearnResult, as_interrupted
from polyhedge.learners.samples import Samples
from polyhedge.learners.scales import standard_deviations
from polyhedge.learners.spread import Spread
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron, facets_of
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
_TIE = 1e-6
"""Share of the premium below which two costs are the same: forests often give the same sizes, up to rounding."""


def learn_with_spread(
    learner: Learner, samples: Samples, X: Any, *, seed: int, groups: Any = None
) -> tuple[LearnResult, Spread | None]:
    """Learn a shape and, where the learner's needs say `may_scale` and it pays, the spread that scales it.

    Parameters
    ----------
    learner : gives the shape; `handicap` and `time_limit` of its needs hold for the spread too.
    samples : learning rows only.
    X : features of these samples, row by row.
    seed : of the learner, of folds and of forests.
    groups : labels of rows that are near-copies of each other.
    """
    began, limit = time.perf_counter(), learner.needs.time_limit
    samples, X, groups, said = _some(learner.needs.samples_an_outcome, samples, X, groups)
    result = learner.learn(samples, random_state=seed)
    result = replace(result, detail=result.detail + said) if said else result
    if not learner.needs.may_scale:
        return result, None
    return choose_spread(
        result,
        samples,
        X,
        handicap=learner.needs.handicap,
        seed=seed,
        groups=groups,
        deadline=np.inf if limit is None else began + limit,
    )


def _some(each: int | None, samples: Samples, X: Any, groups: Any) -> tuple[Samples, Any, Any, str]:
    """An even choice of the rows where there are more than so many for each outcome, and a word about it."""
    n, most = samples.n, samples.n if each is None else each * samples.problem.n_outcomes
    if n <= most:
        return samples, X, groups, ""
    rows = np.linspace(0, n - 1, most).astype(np.int64)
    centers = samples.centers if samples.n_contexts == 1 else samples.centers[rows]
    chosen = Samples(samples.residuals[rows], centers, samples.problem, samples.alpha)
    said = f"; from {most} of {n} rows, evenly chosen"
    return chosen, take_rows(X, rows), None if groups is None else np.asarray(groups)[rows], said


def choose_spread(
    result: LearnResult,
    samples: Samples,
    X: Any,
    *,
    handicap: float,
    seed: int,
    groups: Any = None,
    deadline: float = np.inf,
) -> tuple[LearnResult, Spread | None]:
    """The result with the spread that pays, and that spread; as it is, and None, where none does.

    Parameters
    ----------
    result : the learned shape.
    samples : what it was learned from: learning rows only.
    X : features of these samples, row by row.
    handicap : twice this share of the premium, over the square root of the number of samples, must be saved.
    seed : of folds and forests.
    groups : labels of rows that are near-copies of each other; they stay in one fold.
    deadline : time (of `time.perf_counter`) after which nothing more is tried.
    """
    facets = facets_of(result.set)
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
        return _Judge(facets, relaxed, X, seed, groups, deadline).choose(result, handicap)
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

    def choose(self, result: LearnResult, handicap: float) -> tuple[LearnResult, Spread | None]:
        n, plain, nominal = self.samples.n, self._cost(np.ones(self.samples.n)), self._nominal
        margin = _MARGINS * handicap / np.sqrt(n) * max(plain - nominal, 0.0) if np.isfinite(plain) else 0.0
        best, least, tie = None, plain - margin, _TIE * abs(plain - nominal) if np.isfinite(plain) else 0.0
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
            fitted = [(rows, self._fit(rest, min_leaf)) for rest, rows in self._folds()]
            for power in _POWERS:
                scales = np.ones(self.samples.n)
                for rows, spread in fitted:
                    centers = self.samples.centers[rows]
                    scales[rows] = replace(spread, power=power)(take_rows(self.X, rows), centers)
                yield _Candidate(min_leaf, power, scales)

    @cached_property
    def _contexts(self) -> Indices:
        """All contexts, an even choice of them where each needs a solver."""
        few = int(np.clip(6400 // len(self.samples.problem.structure.pieces), 20, 200))
        return judged_contexts(self.samples, None if self.samples.has_closed_form else few)

    @cached_property
    def _nominal(self) -> float:
        found = decide_knowing(self.samples.problem, self.samples.centers[self._contexts])[1]
        return float(np.nanmean(found))

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
        return Spread.fit(X, centers, self._sizes[rows], min_leaf=min_leaf, seed=self.seed)

    def _radius(self, scales: Array) -> float:
        return conformal_radius(self.shape.scores(self.samples.residuals / scales[:, None]), self.samples.alpha)

    def _cost(self, scales: Array, contexts: Indices | None = None) -> float:
        """Mean worst-case cost at the radius that these scales would get; by default over the judged contexts."""
        samples, radius, total = self.samples, self._radius(scales), 0.0
        rows = self._contexts if contexts is None else contexts
        for scale in np.unique(scales[rows]):
            own = rows[scales[rows] == scale]
            total += len(own) * samples.cost_at(self.shape.scaled(float(scale)), radius, own)
        return total / len(rows)
