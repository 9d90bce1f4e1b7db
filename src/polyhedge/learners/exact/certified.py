"""Another learner, with a certificate added to its result where one can be had in time."""

from __future__ import annotations

import time
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np

from polyhedge._support.validation import warn_of_old_name
from polyhedge.learners.auto import Auto
from polyhedge.learners.exact.bound import below
from polyhedge.learners.exact.certificate import lower_bound
from polyhedge.learners.result import Learner, LearnResult, Needs, as_interrupted
from polyhedge.learners.samples import Samples

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
    time_limit : float or None
        Seconds for the certificate; None, so that the gap never depends on the clock, unless the learner has a time
        limit: then the certificate gets what is left of it.
    max_samples : int
        Samples up to which a certificate is tried.
    keep_interrupted : bool
        Whether `RobustDecider.fit` calibrates the best set so far where Ctrl-C stopped the learning.
    seconds : the former name of `time_limit`, with a warning.

    Examples
    --------
    >>> import polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> problem = ph.problems.simplex_newsvendor(1.0, 2.0, 2)
    >>> plain, certified = (
    ...     learner.learn(ph.learners.Samples(residuals, centers, problem, 0.1))
    ...     for learner in (ph.learners.OneSidedBox(), Certified(ph.learners.OneSidedBox()))
    ... )
    >>> bool(plain.gap == np.inf), bool(0 <= certified.gap < np.inf)
    (True, True)
    """

    learner: Learner = field(default_factory=Auto)
    max_work: float = _WORK
    time_limit: float | None = None
    max_samples: int = 2000
    keep_interrupted: bool = False
    seconds: InitVar[float | None] = None

    def __post_init__(self, seconds: float | None) -> None:
        if seconds is not None:
            warn_of_old_name("Certified", "seconds", "time_limit", stacklevel=4)
            object.__setattr__(self, "time_limit", seconds)

    @property
    def needs(self) -> Needs:
        """As the learner says, with the time for the certificate."""
        own = self.learner.needs
        limit = None if own.time_limit is None else own.time_limit + (self.time_limit or 0.0)
        return replace(own, time_limit=limit, keep_interrupted=self.keep_interrupted)

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the given samples only; see `Learner`."""
        began = time.perf_counter()
        result = self.learner.learn(samples, random_state)
        if np.isfinite(result.lower_bound) or samples.n > self.max_samples or result.interrupted:
            return result
        left, limit = self.time_limit, self.needs.time_limit
        if left is None and limit is not None:
            left = max(began + limit - time.perf_counter(), 0.0)
        try:
            bound = lower_bound(samples, left, max_work=self.max_work)
        except ValueError:  # for some problems there is no certificate
            return result
        except KeyboardInterrupt:
            return as_interrupted(result)
        # The learner may have scored its set on some of the contexts; the bound is for all.
        value = samples.value(result.set)
        lower, complaint = below(bound.lower, value, bound.unit)
        detail = f"{result.detail}; {complaint}" if complaint else result.detail
        certified = replace(result, objective=value, lower_bound=lower, detail=detail)
        return as_interrupted(certified) if bound.interrupted else certified
