"""A certified bound and the selection of residuals behind it; the one place where lower and upper are compared."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Mask
from polyhedge.solvers.program import Status, status_at

logger = logging.getLogger(__name__)

_DIGITS = 1e-12
"""Share of a cost itself that double precision may lose in a sum of many."""
_SOLVED = 1e-8
"""Share of a cost itself to which a solver of convex programs finds it."""


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
    interrupted : whether Ctrl-C ended the search.
    """

    lower: float
    upper: float
    kept: Mask
    status: Status
    seconds: float
    detail: str = ""
    unit: float = 0.0
    interrupted: bool = False

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise ValueError(
                f"A lower bound must not exceed its upper bound, got {self.lower!r} > {self.upper!r}. Use `certified`, "
                "which reports bounds that cross."
            )

    @property
    def gap(self) -> float:
        """Upper - lower."""
        return self.upper - self.lower


def certified(
    lower: float,
    upper: float,
    kept: Mask,
    *,
    unit: float,
    tolerance: float,
    seconds: float,
    detail: str,
    interrupted: bool = False,
) -> CertifiedBound:
    """Bounds with their status: optimal if apart by `tolerance` units, failed if they cross by more than rounding.

    Examples
    --------
    >>> kept = np.ones(3, dtype=bool)
    >>> bound = certified(0.9, 1.0, kept, unit=1.0, tolerance=0.01, seconds=0.0, detail="")
    >>> bound.status.name, round(bound.gap, 6)
    ('STOPPED_EARLY', 0.1)
    """
    proven, complaint = below(lower, upper, unit)
    if complaint:
        detail = f"{complaint}; {detail}"
        return CertifiedBound(proven, upper, kept, Status.FAILED, seconds, detail, unit, interrupted)
    # The rounding of a sum of many costs is no gap: without it no bound on costs far from zero would be optimal.
    status = status_between(proven, upper, unit, tolerance)
    return CertifiedBound(proven, upper, kept, status, seconds, detail, unit, interrupted)


def status_between(lower: float, value: float, unit: float, tolerance: float) -> Status:
    """OPTIMAL where a value is proven to be within `tolerance` units of the least possible, up to rounding."""
    return status_at(value - lower, unit + _DIGITS / tolerance * abs(value), tolerance)


def below(lower: float, value: float, unit: float) -> tuple[float, str]:
    """A lower bound as it may be claimed beside a value that is reached, and what is wrong with it, if anything.

    A bound above the value by rounding meets it. One that is further above is wrong, or the value is: then
    nothing is claimed, and the text says so.

    Examples
    --------
    >>> below(1.0, 2.0, 1.0), below(2.0 + 1e-9, 2.0, 1.0)
    ((1.0, ''), (2.0, ''))
    >>> below(3.0, 2.0, 1.0)
    (-inf, 'no bound is claimed: 3 was to be proven and 2 is reached')
    """
    if lower <= value:
        return lower, ""
    if lower - value <= OPTIMAL * unit + _SOLVED * abs(value):
        return value, ""
    complaint = f"no bound is claimed: {lower:.12g} was to be proven and {value:.12g} is reached"
    logger.warning("%s", complaint)
    return -np.inf, complaint
