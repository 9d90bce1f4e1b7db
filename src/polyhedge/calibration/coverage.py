"""The law of the coverage, given the calibration split."""

from __future__ import annotations

from typing import Any

from scipy import stats

from polyhedge._support.validation import check_count
from polyhedge.calibration.rank import attained_rank


def coverage_law(m: int, alpha: float) -> Any:
    """Law of the coverage given the calibration split, ``Beta(k, m + 1 - k)``.

    Over repeated draws of a calibration split of ``m`` samples the probability that a new outcome falls into
    the calibrated set varies. For continuous scores it follows this law, whatever the distribution of the
    data; for scores with ties it is stochastically larger. Here ``k = conformal_rank(m, alpha)``.

    Parameters
    ----------
    m : int
        Number of calibration samples, at least ``minimum_samples(alpha)``.
    alpha : float
        Miscoverage level, strictly between 0 and 1.

    Returns
    -------
    scipy.stats.rv_frozen
        A frozen beta distribution with ``mean``, ``ppf``, ``cdf`` and so on.

    References
    ----------
    .. [1] V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012.

    Examples
    --------
    >>> law = coverage_law(300, alpha=0.1)
    >>> round(float(law.mean()), 4)
    0.9003
    >>> [round(float(q), 3) for q in law.ppf([0.05, 0.95])]
    [0.871, 0.927]
    """
    m = check_count(m, "m", minimum=0)
    k = attained_rank(m, alpha)
    return stats.beta(k, m + 1 - k)
