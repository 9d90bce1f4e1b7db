r"""The exact law of how many test rows keep their bounds.

With continuous scores the number of n test rows within the conformal radius of m calibration rows is beta-binomial,
$\mathrm{BetaBin}(n, k, m + 1 - k)$ with k the conformal rank, whatever the method and the data. Over seeds the counts
add up. Ties among scores make counts larger, never smaller.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from polyhedge.calibration import conformal_rank
from polyhedge_study.inside import Array

__all__ = ["held_p_value"]


def held_p_value(
    counts: Sequence[int], n_test: int, n_calibrate: int, alpha: float, *, has_ties: bool = False
) -> float:
    """How likely a total at least as odd as that of these counts is, one for each independent seed.

    Two-sided; where scores have ties, only too few are odd.

    Examples
    --------
    >>> round(held_p_value([900, 905], 1000, 300, 0.1), 2), round(held_p_value([600, 610], 1000, 300, 0.1), 2)
    (0.92, 0.0)
    """
    law = _sum_of_counts(len(counts), n_test, n_calibrate, alpha)
    total = sum(counts)
    # Sums of thousands of terms miss 1 by rounding.
    few, many = (min(float(part.sum()) + 1e-12, 1.0) for part in (law[: total + 1], law[total:]))
    return min(few if has_ties else 2 * min(few, many), 1.0)


def _sum_of_counts(n_seeds: int, n_test: int, n_calibrate: int, alpha: float) -> Array:
    """Probabilities of the totals 0, 1, ..., n_seeds n_test."""
    k = conformal_rank(n_calibrate, alpha)
    one = stats.betabinom(n_test, k, n_calibrate + 1 - k).pmf(np.arange(n_test + 1))
    law = np.ones(1)
    for _ in range(n_seeds):
        law = np.convolve(law, one)
    return law
