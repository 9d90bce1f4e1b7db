"""A certified bound and the selection of residuals behind it."""

from __future__ import annotations

from dataclasses import dataclass

from polyhedge._validation import Mask
from polyhedge.solvers.program import Status


@dataclass(frozen=True)
class CertifiedBound:
    """A lower bound on the learning objective of every set, and the best selection found.

    Attributes
    ----------
    lower : no set that covers the conformal rank of the residuals costs less.
    upper : mean cost of the hull of `kept`; equal to `lower` (within `gap`) where optimal.
    kept : which residuals the best selection keeps.
    status : OPTIMAL, or STOPPED_EARLY where time ran out first.
    """

    lower: float
    upper: float
    kept: Mask
    status: Status
    seconds: float
    detail: str = ""

    @property
    def gap(self) -> float:
        """Upper - lower."""
        return max(self.upper - self.lower, 0.0)
