"""Another learner, with a certificate added to its result where one can be had in time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyhedge._validation import Array
from polyhedge.learners.auto import Auto
from polyhedge.learners.exact.bound import below
from polyhedge.learners.exact.certificate import lower_bound
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.own_units import in_own_units
from polyhedge.learners.result import Learner, LearnResult, as_interrupted
from polyhedge.problems import DecisionProblem

_WORK = 5e5
"""Rows of programs that a certificate beside a fit may solve: a few seconds."""


@dataclass(frozen=True)
class Certified:
    """Learn with another learner, then prove how much cheaper any set could be on the same samples.

    Parameters
    ----------
    learner : Learner
        What learns the set; the set is not changed.
    max_work : float
        Work for the certificate, in rows of programs solved: about five seconds for every half a million. What is
        proven by then counts.
    seconds : float or None
        Time for the certificate; None, so that the gap never depends on the clock, unless the learner has a time
        limit: then the certificate gets what is left of it.
    max_samples : int
        Samples up to which a certificate is tried.
    keep_interrupted : bool
        Whether `RobustDecider.fit` calibrates the best set so far where Ctrl-C stopped the learning.

    Examples
    --------
    >>> import polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> problem = ph.problems.simplex_newsvendor(1.0, 2.0, 2)
    >>> plain, certified = (
    ...     learner.learn(residuals, centers, problem, 0.1)
    ...     for learner in (ph.learners.OneSidedBox(), Certified(ph.learners.OneSidedBox()))
    ... )
    >>> bool(plain.gap == np.inf), bool(0 <= certified.gap < np.inf)
    (True, True)
    """

    learner: Learner = field(default_factory=Auto)
    max_work: float = _WORK
    seconds: float | None = None
    max_samples: int = 2000
    keep_interrupted: bool = False

    @property
    def training_folds(self) -> int:
        """As the learner says: folds of training rows that it would like to learn from as well."""
        return int(getattr(self.learner, "training_folds", 0))

    @property
    def spread(self) -> bool:
        """As the learner says: whether the set may be scaled by a predicted spread."""
        return bool(getattr(self.learner, "spread", False))

    @property
    def handicap(self) -> float:
        """As the learner says: what a more complex choice must save."""
        return float(getattr(self.learner, "handicap", 0.0))

    @property
    def time_limit(self) -> float | None:
        """As the learner says, and the time for the certificate."""
        limit = getattr(self.learner, "time_limit", None)
        return None if limit is None else limit + (self.seconds or 0.0)

    @property
    def learns_from_decisions(self) -> bool:
        """As the learner says: whether it needs learning rows."""
        return bool(getattr(self.learner, "learns_from_decisions", True))

    @in_own_units
    def learn(
        self,
        residuals: Array,
        centers: Array,
        problem: DecisionProblem,
        alpha: float,
        random_state: Any = None,
    ) -> LearnResult:
        """Learn from the given samples only; see `Learner`."""
        began = time.perf_counter()
        result = self.learner.learn(residuals, centers, problem, alpha, random_state)
        if np.isfinite(result.lower_bound) or len(residuals) > self.max_samples or result.interrupted:
            return result
        seconds = self.seconds
        if seconds is None and self.time_limit is not None:
            seconds = max(began + self.time_limit - time.perf_counter(), 0.0)
        try:
            bound = lower_bound(residuals, centers, problem, alpha, seconds, max_work=self.max_work)
        except ValueError:  # for some problems there is no certificate
            return result
        except KeyboardInterrupt:
            return as_interrupted(result)
        # The learner may have judged its set on some of the contexts; the bound is for all.
        value = LearningObjective(problem, residuals, centers, alpha).value(result.set)
        lower, complaint = below(bound.lower, value, bound.unit)
        detail = f"{result.detail}; {complaint}" if complaint else result.detail
        found = replace(result, objective=value, lower_bound=lower, detail=detail)
        return as_interrupted(found) if bound.interrupted else found
