"""Scales of residuals along axes, usable also where an outcome does not vary."""

from __future__ import annotations

import numpy as np

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array


def standard_deviations(values: Array) -> Array:
    """Standard deviations (d,) of the columns, as `usable` scales.

    Examples
    --------
    >>> standard_deviations(np.array([[0.1, 1.0], [0.1, 3.0], [0.1, 5.0]])).round(3)
    array([1.633, 1.633])
    """
    return usable(values.std(axis=0), values)


def usable(scales: Array, values: Array) -> Array:
    """The scales (d,) of columns, none of them zero: a column that does not vary takes the largest of the others.

    Where no column varies it is the size of the numbers, and 1 where all are zero.
    """
    varies = scales > CANCELLATION * np.abs(values).max(axis=0)
    other = float(scales[varies].max()) if varies.any() else float(np.abs(values).max()) or 1.0
    return np.where(varies, scales, other)
