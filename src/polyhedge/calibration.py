"""Conformal calibration: the rank, the radius and the law of the coverage they give.

A residual set is a family of nested level sets of a score. The calibration split picks one of them: its
radius is the ``k``-th smallest calibration score with ``k = ceil((n + 1) * (1 - alpha))``. If calibration and
test samples are exchangeable, and nothing else was chosen on the calibration split, then a new score is at
most that radius with probability at least ``1 - alpha``, whatever the distribution.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from polyhedge._validation import check_alpha, check_count

__all__ = [
    "Calibration",
    "attained_rank",
    "check_groups",
    "conformal_radius",
    "conformal_rank",
    "coverage_law",
    "grouped_radius",
    "minimum_samples",
]


@dataclass(frozen=True)
class Calibration:
    """One entry of a model's audit trail: when a radius was set, for which level, from how many rows, and which.

    Attributes
    ----------
    date : time in UTC, ISO 8601.
    n : number of calibration samples.
    radius : the conformal radius they gave.
    digest : SHA-256 of the rows.
    alpha : the miscoverage level that the radius was set for, hence what it promises.
    """

    date: str
    n: int
    radius: float
    digest: str
    alpha: float


def conformal_rank(n: int, alpha: float) -> int:
    """Rank of the conformal order statistic, ``k = ceil((n + 1) * (1 - alpha))``.

    Parameters
    ----------
    n : int
        Number of scores, at least 0.
    alpha : float
        Miscoverage level, strictly between 0 and 1. It is read as the decimal that it prints as, so ``0.1``
        means one tenth and not the binary fraction next to it.

    Returns
    -------
    int
        The rank ``k``, between 1 and ``n + 1``. The value ``n + 1`` says that no radius estimated from ``n``
        scores reaches ``1 - alpha``.

    Notes
    -----
    Computed in exact arithmetic. In floating point ``(n + 1) * (1 - alpha)`` can end up a hair above an
    integer, which makes the rank one too high and the set larger than the guarantee asks for.

    Examples
    --------
    >>> conformal_rank(300, 0.1)
    271
    >>> conformal_rank(99, 0.45), ceil((99 + 1) * (1 - 0.45))
    (55, 56)
    """
    n = check_count(n, "n", minimum=0)
    return ceil((n + 1) * (1 - _exact(alpha)))


def conformal_radius(scores: ArrayLike, alpha: float) -> float:
    """Conformal radius, the ``k``-th smallest score with ``k = conformal_rank(n, alpha)``.

    It equals ``inf{r : #{i : scores[i] <= r} >= k}``, also when scores are tied.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores of the calibration split only: the guarantee is void if these samples also trained the
        predictor or shaped the set. ``inf`` marks a sample that no radius covers and is counted as such; NaN
        is an error.
    alpha : float
        Miscoverage level, strictly between 0 and 1.

    Returns
    -------
    float
        The radius, always finite.

    Raises
    ------
    ValueError
        If there are fewer than `minimum_samples` scores, or so many infinite ones that the radius is too.

    Examples
    --------
    >>> conformal_radius([0.3, 0.1, 0.2, 0.4], alpha=0.2)
    0.4
    >>> conformal_radius([0.3, 0.1, 0.2, float("inf")], alpha=0.4)
    0.3
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(f"scores must have 1 dimension, one score for each sample, got shape {scores.shape}.")
    if n_missing := int(np.isnan(scores).sum()):
        raise ValueError(f"scores must not be NaN, got {n_missing} of {scores.size}: a NaN has no rank.")
    k = attained_rank(scores.size, alpha)
    radius = float(np.partition(scores, k - 1)[k - 1])
    if not np.isfinite(radius):
        raise ValueError(
            f"The conformal radius would be {radius}: the score of rank {k} of {scores.size} is not finite. "
            "Check the score or raise alpha."
        )
    return radius


def grouped_radius(scores: ArrayLike, groups: ArrayLike, alpha: float) -> float:
    r"""Conformal radius where rows come in groups, for a new row of a new group.

    .. math:: \inf\Big\{r : \sum_{g=1}^{G} \frac{\#\{i \in g : s_i \le r\}}{|g|} \ge (G + 1)(1 - \alpha)\Big\}

    Rows of one group may be as alike as they please; only the G groups have to be exchangeable. With one row in
    each group this is `conformal_radius`.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores of the calibration split only.
    groups : array-like of shape (n,)
        Labels of the groups. No group may also have rows in another split.
    alpha : float
        Miscoverage level, strictly between 0 and 1; needs at least ``minimum_samples(alpha)`` groups.

    References
    ----------
    .. [1] Y. Lee, R. F. Barber and R. Willett, "Distribution-free inference with hierarchical data", 2023.

    Examples
    --------
    >>> grouped_radius([0.1, 0.1, 0.3, 0.5], ["a", "a", "b", "c"], alpha=0.5)
    0.3
    """
    scores = np.asarray(scores, dtype=np.float64)
    labels, group_of, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if scores.ndim != 1 or group_of.shape != scores.shape:
        raise ValueError(f"groups must have one label for each score, got {group_of.shape} and {scores.shape}.")
    n_groups = check_groups(labels, alpha)
    order = np.argsort(scores, kind="stable")
    # Whole numbers, by a common multiple of the sizes: sums of fractions would carry rounding errors.
    whole = lcm(*sizes.tolist())
    covered = list(accumulate(whole // int(size) for size in sizes[group_of[order]]))
    wanted = ceil((n_groups + 1) * (1 - _exact(alpha)) * whole)
    radius = float(scores[order][bisect_left(covered, wanted)])
    if not np.isfinite(radius):
        raise ValueError(f"The conformal radius would be {radius}. Check the scores or raise alpha.")
    return radius


def check_groups(groups: ArrayLike, alpha: float) -> int:
    """Number of groups that these labels name, if a radius at this level can be had from so many."""
    n_groups = len(np.unique(np.asarray(groups)))
    if n_groups < minimum_samples(alpha):
        raise ValueError(
            f"alpha={float(alpha)} needs at least {minimum_samples(alpha)} calibration groups, got {n_groups}: rows of "
            "one group count as one. Raise alpha or the calibration share, or bring more groups."
        )
    return n_groups


def minimum_samples(alpha: float) -> int:
    """Fewest calibration samples with a finite radius, ``n = ceil(1 / alpha) - 1``.

    Examples
    --------
    >>> minimum_samples(0.1), minimum_samples(0.01)
    (9, 99)
    """
    return ceil(1 / _exact(alpha)) - 1


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


def attained_rank(n: int, alpha: float) -> int:
    """Return the conformal rank, or say how many samples are missing if no sample has that rank."""
    k = conformal_rank(n, alpha)
    if k > n:
        raise ValueError(
            f"alpha={float(alpha)} needs at least {minimum_samples(alpha)} calibration samples, got {n}: "
            "the conformal radius would be infinite. Raise alpha or the calibration share."
        )
    return k


def _exact(alpha: float) -> Fraction:
    # repr of a Python float is the shortest decimal that reads back as the same number, hence what was typed.
    return Fraction(repr(float(check_alpha(alpha))))
