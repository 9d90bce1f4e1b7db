"""Shares and means that know how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import stats

from polyhedge._support.validation import Array, Mask

__all__ = ["Estimate", "Proportion", "estimate", "proportion"]


_ROUNDING = 1e-12
"""Standard errors below this share of the values are what adding them up leaves behind."""


class _Number(float):
    """A number that knows how sure it is: it compares, rounds, formats and computes as a float."""

    def __new__(cls, value: float, *args: float, **kwargs: float) -> Self:
        return super().__new__(cls, value)


@dataclass(frozen=True, eq=False)
class Proportion(_Number):
    """A share of trials with its exact (Clopper-Pearson) 95 % interval; a float.

    Attributes
    ----------
    value : the share; NaN of no trials.
    low, high : ends of the interval.
    n : number of trials.

    Examples
    --------
    >>> held = Proportion(0.9, 0.555, 0.997, n=10)
    >>> print(held, f"{held:.1%}", held > 0.8)
    0.900 [0.555, 0.997] 90.0% True
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self:.3f} [{self.low:.3f}, {self.high:.3f}]" if self.n else "unknown (no rows)"


def proportion(hits: Mask, level: float = 0.95) -> Proportion:
    """The share of true entries of `hits` with its exact binomial interval of this `level`; unknown of no entries.

    Examples
    --------
    >>> print(proportion(np.array([True] * 9 + [False])))
    0.900 [0.555, 0.997]
    >>> print(proportion(np.zeros(0, dtype=bool)))
    unknown (no rows)
    """
    n, k = len(hits), int(np.sum(hits))
    if n == 0:
        return Proportion(np.nan, 0.0, 1.0, 0)
    interval = stats.binomtest(k, n).proportion_ci(confidence_level=level, method="exact")
    return Proportion(k / n, float(interval.low), float(interval.high), n)


@dataclass(frozen=True, eq=False)
class Estimate(_Number):
    """A mean, the `value`, with its `standard_error`; a float.

    Examples
    --------
    >>> print(Estimate(0.97013, 0.0123), Estimate(0.97013, 1.7e-17))
    0.9701 ± 0.012 0.9701
    """

    value: float
    standard_error: float

    def __str__(self) -> str:
        if np.isnan(self):
            return "unknown"
        return f"{self:.4g} {self.error_text}".rstrip()

    @property
    def error_text(self) -> str:
        """The error behind its sign; empty where one row has none, or rows that are all the same only of rounding."""
        is_told = self.standard_error > _ROUNDING * abs(self)
        return f"± {self.standard_error:.2g}" if is_told else ""


def estimate(values: Array, among: Array | None = None) -> Estimate:
    """The mean of the finite entries of `values` and its standard error.

    `among` are the numbers of which the values are differences: what their rounding leaves behind counts as 0.

    Examples
    --------
    >>> costs = np.array([0.1 + 0.2, 0.3, 0.3])
    >>> print(estimate(np.array([1.0, 2.0, 6.0])), estimate(costs - 0.3, among=costs))
    3 ± 1.5 0
    """
    finite = values[np.isfinite(values)]
    if among is not None:
        size = np.abs(among[np.isfinite(among)]).max(initial=0.0)
        finite = np.where(np.abs(finite) <= _ROUNDING * size, 0.0, finite)
    if not len(finite):
        return Estimate(np.nan, np.nan)
    error = float(finite.std(ddof=1) / np.sqrt(len(finite))) if len(finite) > 1 else np.nan
    # Values that differ by rounding alone are one value.
    if error <= _ROUNDING * np.abs(finite).max():
        error = 0.0
    return Estimate(float(finite.mean()), error)
