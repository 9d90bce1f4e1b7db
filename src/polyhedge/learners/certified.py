"""Another learner, with a certificate added to its result where one can be had in time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyhedge._validation import Array
from polyhedge.learners.auto import Auto
from polyhedge.learners.certificate import lower_bound
from polyhedge.learners.result import Learner, LearnResult
from polyhedge.problems import DecisionProblem


@dataclass(frozen=True)
class Certified:
    """Learn with another learner, then prove how much cheaper any set could be on the same samples.

    Parameters
    ----------
    learner : Learner
        What learns the set; the set is not changed.
    seconds : float
        Time for the certificate. What is proven by then counts, so only the gap depends on the clock.
    max_samples : int
        Samples up to which a certificate is tried.

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
    seconds: float = 5.0
    max_samples: int = 2000

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
        return None if limit is None else limit + self.seconds

    @property
    def learns_from_decisions(self) -> bool:
        """As the learner says: whether it needs learning rows."""
        return bool(getattr(self.learner, "learns_from_decisions", True))

    def learn(
        self,
        residuals: Array,
        centers: Array,
        problem: DecisionProblem,
        alpha: float,
        random_state: Any = None,
    ) -> LearnResult:
        """Learn from the given samples only; see `Learner`."""
        result = self.learner.learn(residuals, centers, problem, alpha, random_state)
        if np.isfinite(result.lower_bound) or len(residuals) > self.max_samples:
            return result
        try:
            bound = lower_bound(residuals, centers, problem, alpha, self.seconds)
        except ValueError:  # for some problems there is no certificate
            return result
        return replace(result, lower_bound=min(bound.lower, result.objective))
