"""Samples for a search that is the same wherever outcomes lie and whatever they are measured in.

A descent follows order statistics and corners of sets, and what its samples differ by grows a thousandfold to a
billionfold on the way: with outcomes a million spreads from zero, what rounding does to them in the tenth digit
would decide between sets that are about as good. Samples of a few hundred rows say nothing of a set beyond the
third digit; a search that sees five sees the same numbers in all of these cases.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.learners.samples import Samples
from polyhedge.solvers.scaling import rounded_to

_BITS = 16
"""Bits of a column's mean size, or of the largest slope, that a search sees. With outcomes a million spreads from zero
rounding moves one of 70 000 numbers to its neighbour; what it sees of a residual is right to a hundred-thousandth."""
_TIE = 1e-8
"""In the unit of costs: sets that are no further apart cost the same, and the first of them is kept."""

_GOLDEN = (5**0.5 - 1) / 2
"""Multiples by squares are spread over an interval, and no sums of as many of them are alike."""


class SteadySamples(Samples):
    """Samples in their own units as a search sees them."""

    tie: ClassVar[float] = _TIE

    def apart(self, reach: Array) -> Array:
        """Reaches (L,), no two of which are alike: of a box, many pieces of a cost would be the worst at once.

        Which of them a solver names is decided by its last digit; so much apart, it is the same one everywhere.
        """
        return reach + 2.0**-_BITS * np.modf(_GOLDEN * np.arange(len(reach)) ** 2)[0]

    def told(self, slopes: Array) -> Array:
        """Slopes to the bits of the largest of them that are told."""
        return rounded_to(slopes, float(np.abs(slopes).max(initial=0.0)), _BITS)


def steady(samples: Samples) -> Samples:
    """What a search sees of samples in their own units; closed forms on a straight segment see all there is.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> rows = np.array([[0.5, 0.25, 1.0], [1.0, 0.3, -0.7]])
    >>> seen = steady(Samples(rows + 1e-10, rows, simplex_linear([0.0, 0.0, 0.0]), 0.5))
    >>> bool((seen.residuals == steady(Samples(rows, rows, seen.problem, 0.5)).residuals).all())
    True
    """
    if not samples.n or samples.is_on_straight_segment:
        return samples
    sizes = np.abs(samples.residuals).mean(axis=0)
    columns = [rounded_to(column, float(size), _BITS) for column, size in zip(samples.residuals.T, sizes, strict=True)]
    return SteadySamples(np.column_stack(columns), samples.centers, samples.problem, samples.alpha)
