"""Ranks of scores that count for more or less than one, exactly: weights are added as whole numbers."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, as_finite
from polyhedge.calibration.rank import exact

_BITS_OF_AN_INT = 512
"""What Python takes for a whole number beside its digits, with its place in a list and the rests of making it."""
_MOST_BITS = 8 * 2**28
"""A quarter of a gigabyte: three million rows whose weights are within a factor of a billion."""


@stored("weighted scores")
@dataclass(frozen=True, eq=False)
class WeightedScores:
    r"""Finite scores in order with their weights, and the weight of scores that no radius covers.

    The radius of a new row of weight w is
    $\inf\{r : \sum_i w_i 1\{s_i \le r\} \ge (1-\alpha)(\sum_i w_i + w)\}$: the row's own weight lies at infinity.
    """

    scores: Array
    weights: Array
    uncovered: float = 0.0

    def __post_init__(self) -> None:
        is_ordered = self.scores.ndim == 1 and len(self.scores) > 0 and (np.diff(self.scores) >= 0).all()
        if not is_ordered or self.scores.shape != as_weights(self.weights).shape or self.weights.min() == 0:
            raise ValueError("Weighted scores must be in order, each with a weight above zero.")
        as_weights([self.uncovered])

    @classmethod
    def of(cls, scores: ArrayLike, weights: ArrayLike) -> Self:
        """Scores as they come; infinite ones count as never covered."""
        scores, weights = np.asarray(scores, dtype=np.float64), as_weights(weights)
        if scores.shape != weights.shape or np.isnan(scores).any():
            raise ValueError(
                f"There must be one weight for each score and no score that is NaN, got {weights.shape} and "
                f"{scores.shape} with {int(np.isnan(scores).sum())} NaN."
            )
        order = np.argsort(scores, kind="stable")
        counted = order[np.isfinite(scores[order]) & (weights[order] > 0)]
        if not counted.size:
            raise ValueError("No calibration row has a finite score and a weight above zero. Check scores and weights.")
        lost = Fraction(0) + sum(map(Fraction, weights[~np.isfinite(scores)].tolist()))
        return cls(scores[counted], weights[counted], float(lost))

    @cached_property
    def _whole(self) -> tuple[list[int], int, int]:
        """Running sums as whole numbers, the weight of all, and the unit in which they are counted."""
        fractions, exponents = np.frexp(np.append(self.weights, self.uncovered))
        exponents = np.where(fractions > 0, exponents, exponents[fractions > 0].min()) - 53
        least = min(int(exponents.min()), 0)
        n_bits = int(exponents.max()) - least + 53 + len(exponents).bit_length()
        if len(exponents) * (_BITS_OF_AN_INT + n_bits) > _MOST_BITS:
            raise ValueError(
                f"{len(self.weights)} weights that lie {n_bits} powers of two apart take too much memory to be added "
                "exactly. Calibrate on fewer rows, or clip the weights."
            )
        whole = np.ldexp(fractions, 53).astype(np.int64).tolist()
        sums = list(accumulate(part << int(place) for part, place in zip(whole, exponents - least, strict=True)))
        return sums[:-1], sums[-1], 2**-least

    def radii(self, weights: ArrayLike, alpha: float) -> Array:
        """The radius of each new row (N,) with these weights; infinite where the calibration rows weigh too little."""
        sums, total, unit = self._whole
        different, which = np.unique(as_weights(weights), return_inverse=True)
        kept = 1 - exact(alpha)
        ranks = [bisect_left(sums, ceil(kept * (total + Fraction(weight) * unit))) for weight in different.tolist()]
        return np.append(self.scores, np.inf)[ranks][which]

    @property
    def largest(self) -> float:
        """The largest finite score: no row with a bound has a larger radius."""
        return float(self.scores[-1])

    @property
    def n_effective(self) -> float:
        """As many rows of equal weight would be about as informative."""
        share = self.weights / self.weights.max()
        return float(share.sum() ** 2 / (share**2).sum())


def as_weights(weights: ArrayLike) -> Array:
    """Weights (n,) that are finite and not negative."""
    weights = as_finite(weights, "weights", ndim=1)
    if (weights < 0).any():
        raise ValueError(
            f"Weights must not be negative, got {weights.min():g}. They say how much more often a row comes."
        )
    return weights
