"""One radius for all rows: the marginal promise of split conformal prediction.

This is Step 2 of the paper, recalibration on rows that learning has not seen: a fixed set covers (Lemma 3), and so
does a learned one that is recalibrated (Theorem 1). Rows that learned it do not (Lemma 4).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil, lcm
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.radii import Calibrator, Radii, check_radius
from polyhedge.rows import Rows


def conformal_rank(n: int, alpha: float) -> int:
    """Rank of the conformal order statistic, ``k = ceil((n + 1) * (1 - alpha))``.

    Parameters
    ----------
    n : number of scores, at least 0. The rank ``n + 1`` says that no radius from ``n`` scores reaches ``1 - alpha``.
    alpha : miscoverage level, strictly between 0 and 1. It is read as the decimal that it prints as, so ``0.1``
        means one tenth and not the binary fraction next to it.

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
    return _rank(check_count(n, "n", minimum=0), float(check_alpha(alpha)))


@lru_cache(maxsize=256)
def _rank(n: int, alpha: float) -> int:
    """The rank; kept, since fits ask for the same one thousands of times."""
    return ceil((n + 1) * (1 - exact(alpha)))


def attained_rank(n: int, alpha: float) -> int:
    """The conformal rank of `n` samples at the level `alpha`; an error, with how many are missing, if none has it."""
    k = conformal_rank(n, alpha)
    if k > n:
        raise ValueError(
            f"alpha={float(alpha)} needs at least {minimum_samples(alpha)} calibration samples, got {n}: "
            "the conformal radius would be infinite. Raise alpha or the calibration share."
        )
    return k


def minimum_samples(alpha: float) -> int:
    """Fewest calibration samples with a finite radius, ``n = ceil(1 / alpha) - 1``.

    Examples
    --------
    >>> minimum_samples(0.1), minimum_samples(0.01)
    (9, 99)
    """
    return ceil(1 / exact(alpha)) - 1


def exact(alpha: float) -> Fraction:
    """The level as the decimal that it prints as."""
    # repr of a Python float is the shortest decimal that reads back as the same number, hence what was typed.
    return Fraction(repr(float(check_alpha(alpha))))


def conformal_radius(scores: ArrayLike, alpha: float) -> float:
    """Conformal radius, the ``k``-th smallest score with ``k = conformal_rank(n, alpha)``.

    It equals ``inf{r : #{i : scores[i] <= r} >= k}``, also when scores are tied.

    Parameters
    ----------
    scores : (n,) of the calibration split only: the guarantee is void if these samples also trained the predictor or
        shaped the set. ``inf`` marks a sample that no radius covers; NaN is an error. Fewer than `minimum_samples`
        scores, or so many infinite ones that the radius is too, are an error.
    alpha : miscoverage level, strictly between 0 and 1.

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


def radius_of(scores: Array, groups: Any, alpha: float) -> float:
    """The radius of scores, counted by rows or, where rows are near-copies, by groups."""
    return conformal_radius(scores, alpha) if groups is None else grouped_radius(scores, groups, alpha)


@dataclass(frozen=True)
class Marginal(Calibrator):
    """The same radius for every row: the bound holds for 1 - alpha of all new rows together.

    Of more than 2000 calibration rows that each need an integer program, 2000 set it, chosen by position alone.

    Examples
    --------
    >>> radii = Marginal().calibrate(np.arange(20.0), Rows(np.zeros((20, 0))), 0.1)
    >>> radii.at(Rows(np.zeros((3, 0))))
    array([18., 18., 18.])
    """

    counts_groups = True

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> OneRadius:
        """The conformal radius of these scores; calibration rows only."""
        radius = radius_of(scores, rows.groups, alpha)
        n_groups = None if rows.groups is None else len(np.unique(rows.groups))
        return OneRadius(radius, check_alpha(alpha), len(scores), n_groups, scores=scores, groups=rows.groups)


@stored("marginal radius", transient=("scores", "groups"))
@dataclass(frozen=True)
class OneRadius(Radii):
    """A conformal radius, with the level and the number of rows that it was made for.

    Attributes
    ----------
    radius, alpha, n : the radius, its level and the number of calibration rows.
    n_groups : groups of near-copies that were counted instead of rows; None where rows count.
    scores, groups : of the calibration rows, for radii at other levels; files do not keep them.
    """

    radius: float
    alpha: float
    n: int
    n_groups: int | None = None
    scores: Array | None = field(default=None, repr=False, compare=False)
    groups: Any = field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "marginal"

    def __post_init__(self) -> None:
        attained_rank(check_count(self.n_units, "n", minimum=1), check_alpha(self.alpha))
        check_radius(self.radius)

    @property
    def is_grouped(self) -> bool:
        """Whether groups were counted."""
        return self.n_groups is not None

    @property
    def n_units(self) -> int:
        """The groups, or else the rows."""
        return self.n if self.n_groups is None else self.n_groups

    @property
    def calibrator(self) -> Marginal:
        """The marginal one."""
        return Marginal()

    def promise(self) -> str:
        """What holds, in words."""
        whose, among = ("a row of a new group", "groups") if self.is_grouped else ("a new row", "rows")
        return (
            f"holds for {whose} with probability at least {1 - self.alpha:g}, if it is exchangeable with the "
            f"calibration {among}"
        )

    @property
    def is_marginal(self) -> bool:
        """True. A subclass may have another radius or promise: there it is False unless the subclass overrides it."""
        return type(self) is OneRadius

    def law(self) -> Any:
        """Beta(k, n + 1 - k); None where rows come in groups, and where it is not the marginal radius."""
        return coverage_law(self.n, self.alpha) if self.is_marginal and not self.is_grouped else None


def grouped_radius(scores: ArrayLike, groups: ArrayLike, alpha: float) -> float:
    r"""Conformal radius where rows come in groups, for a new row of a new group.

    .. math:: \inf\Big\{r : \sum_{g=1}^{G} \frac{\#\{i \in g : s_i \le r\}}{|g|} \ge (G + 1)(1 - \alpha)\Big\}

    Rows of one group may be as alike as they please; only the G groups have to be exchangeable. With one row in
    each group this is `conformal_radius`.

    Parameters
    ----------
    scores : (n,) of the calibration split only.
    groups : (n,) labels of the groups. No group may also have rows in another split.
    alpha : miscoverage level, strictly between 0 and 1; needs at least ``minimum_samples(alpha)`` groups.

    References
    ----------
    .. [1] Y. Lee, R. F. Barber and R. Willett, "Distribution-free inference with hierarchical data", 2023.

    Examples
    --------
    >>> grouped_radius([0.1, 0.1, 0.3, 0.5], ["a", "a", "b", "c"], alpha=0.5)
    0.3
    """
    scores = np.asarray(scores, dtype=np.float64)
    check_labels(np.asarray(groups))
    labels, group_of, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if scores.ndim != 1 or group_of.shape != scores.shape:
        raise ValueError(f"groups must have one label for each score, got {group_of.shape} and {scores.shape}.")
    n_groups = check_groups(labels, alpha)
    order = np.argsort(scores, kind="stable")
    # Integers, by a common multiple of the sizes: sums of fractions would carry rounding errors.
    unit = lcm(*sizes.tolist())
    covered = list(accumulate(unit // int(size) for size in sizes[group_of[order]]))
    wanted = ceil((n_groups + 1) * (1 - exact(alpha)) * unit)
    radius = float(scores[order][bisect_left(covered, wanted)])
    if not np.isfinite(radius):
        raise ValueError(f"The conformal radius would be {radius}. Check the scores or raise alpha.")
    return radius


def check_groups(groups: ArrayLike, alpha: float) -> int:
    """Number of groups that the labels `groups` name, if a radius at the level `alpha` can be had from so many."""
    n_groups = len(check_labels(np.asarray(groups)))
    if n_groups < minimum_samples(alpha):
        raise ValueError(
            f"alpha={float(alpha)} needs at least {minimum_samples(alpha)} calibration groups, got {n_groups}: rows of "
            "one group count as one. Raise alpha or the calibration share, or bring more groups."
        )
    return n_groups


def check_labels(labels: Any) -> Any:
    """The distinct labels; an error where a row has none, or where they are of several kinds.

    Examples
    --------
    >>> check_labels(np.array([2, 1, 2])).tolist()
    [1, 2]
    """
    from pandas import isna

    missing = isna(labels)
    if missing.any():
        raise ValueError(
            f"groups must have a label for each row, but {missing.sum()} row(s) have none, the first is row "
            f"{int(np.flatnonzero(missing)[0])}. Give rows without a group a label of their own."
        )
    try:
        return np.unique(labels)
    except TypeError as error:
        raise ValueError(
            f"groups must be labels of one kind, such as texts or numbers, got a mix: {error}. Give rows without a "
            "group a label of their own."
        ) from error


def coverage_law(m: int, alpha: float) -> Any:
    """Law of the coverage given the calibration split, ``Beta(k, m + 1 - k)``.

    Over repeated draws of a calibration split of ``m`` samples the probability that a new outcome falls into
    the calibrated set varies. For continuous scores it follows this law, whatever the distribution of the
    data; for scores with ties it is stochastically larger. Here ``k = conformal_rank(m, alpha)``.

    Parameters
    ----------
    m : number of calibration samples, at least ``minimum_samples(alpha)``.
    alpha : miscoverage level, strictly between 0 and 1.

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
