"""One radius for all rows: the marginal promise of split conformal prediction.

This is Step 2 of the paper, recalibration on rows that learning has not seen: a fixed set covers (Lemma 3), and so
does a learned one that is recalibrated (Theorem 1). Rows that learned it do not (Lemma 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.coverage import coverage_law
from polyhedge.calibration.grouped import grouped_radius
from polyhedge.calibration.radii import Rows, SameForAll, check_radius, kept_scores
from polyhedge.calibration.rank import attained_rank


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


def radius_of(scores: Array, groups: Any, alpha: float) -> float:
    """The radius of scores, counted by rows or, where rows are near-copies, by groups."""
    return conformal_radius(scores, alpha) if groups is None else grouped_radius(scores, groups, alpha)


@dataclass(frozen=True)
class Marginal:
    """The same radius for every row: the bound holds for 1 - alpha of all new rows together.

    Examples
    --------
    >>> radii = Marginal().calibrate(np.arange(20.0), Rows(None, 20), 0.1)
    >>> radii.at(Rows(None, 3))
    array([18., 18., 18.])
    """

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> OneRadius:
        """The conformal radius of these scores; calibration rows only."""
        radius = radius_of(scores, rows.groups, alpha)
        is_grouped = rows.groups is not None
        return OneRadius(radius, check_alpha(alpha), len(scores), is_grouped, scores=scores, groups=rows.groups)


@stored("marginal radius", transient=("scores", "groups"))
@dataclass(frozen=True)
class OneRadius(SameForAll):
    """A conformal radius, with the level and the number of rows that it was made for.

    Attributes
    ----------
    radius, alpha, n : the radius, its level and the number of calibration rows.
    is_grouped : whether groups of near-copies were counted instead of rows.
    scores, groups : of the calibration rows, for radii at other levels; files do not keep them.
    """

    radius: float
    alpha: float
    n: int
    is_grouped: bool = False
    scores: Array | None = field(default=None, repr=False, compare=False)
    groups: Any = field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "marginal"

    def __post_init__(self) -> None:
        attained_rank(check_count(self.n, "n", minimum=1), check_alpha(self.alpha))
        check_radius(self.radius)

    @property
    def calibrator(self) -> Marginal:
        """The marginal one."""
        return Marginal()

    def at_level(self, alpha: float) -> OneRadius:
        """The radius for another level, from the same calibration rows."""
        return self.calibrator.calibrate(kept_scores(self.scores), Rows(None, self.n, self.groups), alpha)

    def promise(self) -> str:
        """What holds, in words."""
        whose, among = ("a row of a new group", "groups") if self.is_grouped else ("a new row", "rows")
        return (
            f"holds for {whose} with probability at least {1 - self.alpha:g}, if it is exchangeable with the "
            f"calibration {among}"
        )

    @property
    def is_marginal(self) -> bool:
        """True; not of a subclass, whose radius or promise may be another, unless it says so itself."""
        return type(self) is OneRadius

    def law(self) -> Any:
        """Beta(k, n + 1 - k); None where rows come in groups, and where it is not the marginal radius."""
        return coverage_law(self.n, self.alpha) if self.is_marginal and not self.is_grouped else None
