"""Certified bounds, the one place where lower and upper are compared, and the work that may go into them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Mask
from polyhedge.solvers.program import Status, status_at

logger = logging.getLogger(__name__)

WORK = 6e6
"""Rows of programs that an exact search may solve by default: about a minute."""
_CALL = 100
"""Rows that a call of a solver costs by itself: small programs take a tenth of a millisecond to a millisecond."""


@dataclass(frozen=True)
class CertifiedBound:
    """A lower bound on the learning objective of every set, and the best selection found.

    Attributes
    ----------
    lower : no set that covers the conformal rank of the residuals costs less; -inf where nothing is proven.
    upper : mean cost of the hull of `kept`; equal to `lower` (within `gap`) where optimal.
    kept : which residuals the best selection keeps.
    status : OPTIMAL where the gap is within the tolerance that was asked for, STOPPED_EARLY where the search ended
        before, FAILED where the bounds crossed, so that none is claimed.
    seconds, detail : how long it took, and what else there is to say.
    unit : the spread of costs: how much the residuals differ in cost, or what dropping them can save. Tolerances are
        shares of it, so that neither the unit of costs nor a constant in them matters.
    """

    lower: float
    upper: float
    kept: Mask
    status: Status
    seconds: float
    detail: str = ""
    unit: float = 0.0

    @property
    def gap(self) -> float:
        """Upper - lower."""
        return self.upper - self.lower


def certified(
    lower: float, upper: float, kept: Mask, *, unit: float, tolerance: float, seconds: float, detail: str
) -> CertifiedBound:
    """Bounds with their status: optimal if apart by `tolerance` units, failed if they cross by more than rounding."""
    proven, complaint = below(lower, upper, unit)
    detail = f"{complaint}; {detail}" if complaint else detail
    status = Status.FAILED if complaint else status_between(proven, upper, unit, tolerance)
    return CertifiedBound(proven, upper, kept, status, seconds, detail, unit)


def status_between(lower: float, value: float, unit: float, tolerance: float) -> Status:
    """OPTIMAL where a value is proven to be within `tolerance` units of the least possible, up to rounding."""
    # Double precision loses a share of 1e-12 of a cost in a sum of many; that is no gap.
    return status_at(value - lower, unit + 1e-12 / tolerance * abs(value), tolerance)


def below(lower: float, value: float, unit: float) -> tuple[float, str]:
    """The lower bound that may be claimed for an attained value, and a text where the two contradict each other.

    A bound above the value by rounding alone equals it. If it is further above, bound or value is wrong: nothing is
    claimed, and the text says so.
    """
    if lower <= value:
        return lower, ""
    # Solvers stop at 1e-9 to 1e-7 of the unit, those of convex programs at 1e-8 of the cost.
    if lower - value <= OPTIMAL * unit + 1e-8 * abs(value):
        return value, ""
    complaint = f"no bound is claimed: {lower:.12g} was to be proven and {value:.12g} is reached"
    logger.warning("%s", complaint)
    return -np.inf, complaint


@dataclass
class Budget:
    """Work, counted in rows of programs solved, so that a search ends at the same point on every machine.

    Parameters
    ----------
    work : rows that may be solved; a core does about a million in ten seconds.
    deadline : time of the performance counter; infinite where no time limit was asked for.
    """

    work: float
    deadline: float = np.inf
    spent: float = 0.0

    @classmethod
    def of(cls, work: float, time_limit: float | None) -> Budget:
        """So much work, within so many seconds from now if there is a limit."""
        return cls(work, np.inf if time_limit is None else time.perf_counter() + time_limit)

    def spend(self, n_rows: int, times: int = 1) -> None:
        """Take note of programs with so many rows each."""
        self.spent += (_CALL + n_rows) * times

    def affords(self, n_rows: int) -> int | None:
        """How many programs (or nodes of a search tree) of so many rows are left, at least one; None for any number."""
        if np.isinf(self.work):
            return None
        return max(int((self.work - self.spent) / (_CALL + n_rows)), 1)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.work or self.seconds == 0

    @property
    def seconds(self) -> float | None:
        """Seconds left, for a solver; None without a time limit."""
        return None if np.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 0.0)
