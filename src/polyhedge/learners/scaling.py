r"""Standardised samples: $u_i = s_i + a_i u_i'$ and $g = t + k g'$, so that no tolerance depends on the user's units.

Residuals have a mean size of about 1, in each outcome or in all together; outcomes count from the mean prediction,
costs from the cost of the best decision there; costs differ by about 1 over the residuals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.exact.bound import CertifiedBound
from polyhedge.learners.samples import LearnResult, Samples
from polyhedge.problems import DecisionProblem
from polyhedge.problems.units import Units, scaled
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron

_NOTHING = 2.0**-20
"""Share of a usual number below which one is a rounding."""
Learn = Callable[..., LearnResult]


def standardised(*, each_outcome: bool) -> Callable[[Learn], Learn]:
    """Let a method `learn` see standardised samples, and report how long it takes; see `Learner`.

    One unit for all outcomes keeps their proportions, as the paper's methods need it; else each has its own.
    """

    def decorator(learn: Learn) -> Learn:
        @wraps(learn)
        def wrapped(self: Any, samples: Samples, random_state: Any = None) -> LearnResult:
            began, scaling = time.perf_counter(), SampleScaling.of(samples, each_outcome=each_outcome)
            result = scaling.invert(learn(self, scaling.apply(samples), random_state))
            return replace(result, seconds=time.perf_counter() - began)

        return wrapped

    return decorator


@dataclass(frozen=True)
class SampleScaling:
    """Units of outcomes and costs."""

    units: Units

    @classmethod
    def of(cls, samples: Samples, *, each_outcome: bool) -> SampleScaling:
        """The units of some learning samples; none for samples that are standardised already."""
        residuals, centers, problem = samples.residuals, samples.centers, samples.problem
        if problem.parameters or problem.is_in_own_units or not len(residuals) or not len(centers):
            return cls(Units())
        outcome = float(np.abs(residuals).mean()) or float(np.abs(centers).mean()) or 1.0
        each: tuple[float, ...] = ()
        if each_outcome and residuals.shape[1] > 1:
            sizes, usual = np.abs(residuals).mean(axis=0), np.abs(centers).mean(axis=0)
            # An outcome that never differs from its prediction is open to a small share of itself.
            known = _NOTHING * np.where(usual > 0, usual, outcome)
            # A mean size of 3/4 stands between powers of two, on which grids of numbers depend.
            each = tuple((np.where(sizes > 1e-12 * usual, sizes, known) / (0.75 * outcome)).tolist())
        middle = centers.mean(axis=0)
        cost, value = _cost_unit(problem.relaxed(), middle, residuals)
        if not problem.structure.has_pieces:  # a formula may rest on the sign of outcomes
            return cls(Units(outcome, cost, each=each))
        return cls(Units(outcome, cost, tuple(middle.tolist()), value, each=each))

    def apply(self, samples: Samples) -> Samples:
        """The samples and their problem in these units."""
        if self.units.are_usual:
            return replace(samples)
        residuals = samples.residuals / self.units.outcomes
        centers = (samples.centers - self.units.shift) / self.units.outcomes
        return Samples(residuals, centers, scaled(samples.problem, self.units), samples.alpha)

    def invert(self, learned: LearnResult) -> LearnResult:
        """A learner's result in the user's units; facets keep what their scores are measured in."""
        units, facets = self.units, learned.set.facets()
        if units.are_usual or facets is None:
            return learned
        score = {"outcomes": units.outcome, "costs": units.cost, "spreads": 1.0}[learned.scores_in]
        return replace(
            learned,
            set=Polyhedron(score / units.outcomes * facets.W, score * facets.b),
            objective=self._cost(learned.objective),
            lower_bound=self._cost(learned.lower_bound),
        )

    def invert_bound(self, bound: CertifiedBound) -> CertifiedBound:
        """A certificate in the user's units."""
        lower, upper = self._cost(bound.lower), self._cost(bound.upper)
        return replace(bound, lower=min(lower, upper), upper=upper, unit=self.units.cost * bound.unit)

    def _cost(self, value: float) -> float:
        return self.units.cost_shift + self.units.cost * value


def _cost_unit(problem: DecisionProblem, middle: Array, residuals: Array) -> tuple[float, float]:
    """How far costs differ over the residuals at the best decision for the middle, and its cost there.

    Decisions for the largest residuals count instead where that decision costs the same whatever happens.
    """
    outcomes = middle + residuals[evenly_chosen(len(residuals), 256)]
    largest = np.argsort(-np.abs(outcomes - middle).max(axis=1), kind="stable")[:8]
    decisions, values = decide_knowing(problem, np.vstack([middle[None], outcomes[largest]]))
    deviations = np.zeros(len(decisions))
    for i in np.flatnonzero(np.isfinite(decisions).all(axis=1)):
        costs = problem.evaluate(np.tile(decisions[i], (len(outcomes), 1)), outcomes)
        deviation = float(np.abs(costs - np.median(costs)).mean())
        deviations[i] = deviation if deviation > 1e-12 * np.abs(costs).max() else 0.0
    first, most = float(deviations[0]), float(deviations.max())
    unit = first if first > _NOTHING * most else most
    return unit or 1.0, float(values[0]) if np.isfinite(values[0]) else 0.0
