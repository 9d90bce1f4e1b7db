"""A promise for this very model: coverage of at least 1 - alpha, unless the calibration rows were unlucky.

The marginal promise is an average over calibration splits: about half of all models cover a little less than 1 - alpha.
A higher rank makes nearly every model cover at least that much (training-conditional validity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.marginal import conformal_rank, exact, minimum_samples
from polyhedge.calibration.radii import Calibrator, Radii, check_radius
from polyhedge.rows import Rows

_MOST_EXACT = 2000
"""Rows up to which exact integers are quick; with more, a close comparison is settled on the safe side."""


def this_model_rank(n: int, alpha: float, delta: float) -> int:
    r"""Smallest rank k with $P\{\mathrm{Beta}(k, n+1-k) \ge 1-\alpha\} \ge 1-\delta$, and at least the conformal rank.

    The k-th smallest of n uniform numbers lies below p where at least k of them do, so the condition says
    $P\{\mathrm{Bin}(n, 1-\alpha) \ge k\} \le \delta$. The value n + 1 says that no score has that rank.

    Examples
    --------
    >>> this_model_rank(300, 0.1, 0.05), conformal_rank(300, 0.1)
    (279, 271)
    """
    n, wanted = check_count(n, "n", minimum=0), exact(_check_delta(delta))
    k = int(stats.binom.isf(float(wanted), n, 1 - alpha)) + 1
    while k <= n and _tail_exceeds(k, n, alpha, wanted):
        k += 1
    while k > 1 and not _tail_exceeds(k - 1, n, alpha, wanted):
        k -= 1
    return max(k, conformal_rank(n, alpha))


def this_model_minimum(alpha: float, delta: float) -> int:
    """Fewest calibration samples with a finite radius: the least n with `(1 - alpha)^n <= delta`, or the marginal one.

    Examples
    --------
    >>> this_model_minimum(0.1, 0.05), this_model_minimum(0.5, 0.5)
    (29, 1)
    """
    kept, wanted = 1 - exact(alpha), exact(_check_delta(delta))
    in_floats = math.log(wanted) / math.log1p(-float(exact(alpha)))
    if in_floats > _MOST_EXACT:
        return max(math.ceil(in_floats * (1 + TIE)), minimum_samples(alpha))
    n = max(math.floor(in_floats) - 1, 1)
    while kept**n > wanted:
        n += 1
    return max(n, minimum_samples(alpha))


def _tail_exceeds(k: int, n: int, alpha: float, delta: Fraction) -> bool:
    """Whether P{Bin(n, 1 - alpha) >= k} > delta; True if n is too large to tell a close comparison."""
    in_floats = float(stats.binom.sf(k - 1, n, 1 - alpha))
    if abs(in_floats - float(delta)) > TIE * float(delta) or n > _MOST_EXACT:
        return in_floats > (1 - TIE) * float(delta)
    kept = 1 - exact(alpha)
    a, b = kept.numerator, kept.denominator
    tail = sum(math.comb(n, j) * a**j * (b - a) ** (n - j) for j in range(k, n + 1))
    return Fraction(tail, b**n) > delta


def _check_delta(delta: float) -> float:
    if isinstance(delta, bool) or not isinstance(delta, (int, float, np.floating)) or not 0 < delta < 1:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, got {delta!r}. It is the share of models that may cover less "
            "than 1 - alpha: delta=0.05 leaves one in twenty."
        )
    return float(delta)


@dataclass(frozen=True)
class ThisModel(Calibrator):
    """One radius, such that this model covers at least 1 - alpha of all new rows, with probability 1 - delta.

    The probability 1 - delta is over the calibration rows. The marginal promise holds as well.

    Parameters
    ----------
    delta : float
        Share of models that may cover less than 1 - alpha.

    References
    ----------
    .. [1] V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012, proposition 2a.

    Examples
    --------
    >>> radii = ThisModel(delta=0.05).calibrate(np.arange(300.0), Rows(np.zeros((300, 0))), 0.1)
    >>> radii.radius
    278.0
    """

    delta: float = 0.05

    def __post_init__(self) -> None:
        _check_delta(self.delta)

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> ThisModelRadius:
        """The score of the higher rank; calibration rows only."""
        scores, alpha, n = np.asarray(scores, dtype=np.float64), check_alpha(alpha), len(scores)
        if np.isnan(scores).any():
            raise ValueError(f"scores must not be NaN, got {int(np.isnan(scores).sum())} of {n}: a NaN has no rank.")
        k = _attained(n, alpha, self.delta)
        radius = float(np.partition(scores, k - 1)[k - 1])
        if not math.isfinite(radius):
            raise ValueError(f"The radius would be {radius}: the score of rank {k} of {n} is not finite. Raise alpha.")
        return ThisModelRadius(radius, alpha, n, float(self.delta), scores)


def _attained(n: int, alpha: float, delta: float) -> int:
    k = this_model_rank(n, alpha, delta)
    if k > n:
        raise ValueError(
            f"alpha={alpha} with delta={delta} needs at least {this_model_minimum(alpha, delta)} calibration samples, "
            f"got {n}: the radius would be infinite. Raise alpha, delta or the calibration share."
        )
    return k


@stored("radius of this model", transient=("scores",))
@dataclass(frozen=True)
class ThisModelRadius(Radii):
    """A radius, with the level, the number of rows and the share of unlucky models that it was made for.

    Attributes
    ----------
    radius, alpha, n : the radius, its level and the number of calibration rows.
    delta : share of models for which the promise may fail; see `ThisModel`.
    scores : of the calibration rows, for radii at other levels; files do not keep them.
    """

    radius: float
    alpha: float
    n: int
    delta: float
    scores: Array | None = field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "this model"

    def __post_init__(self) -> None:
        _attained(check_count(self.n, "n", minimum=1), check_alpha(self.alpha), _check_delta(self.delta))
        check_radius(self.radius)

    @property
    def calibrator(self) -> ThisModel:
        """With the same share of unlucky models."""
        return ThisModel(self.delta)

    def promise(self) -> str:
        """What holds, in words."""
        return (
            f"holds for at least {1 - self.alpha:g} of all new rows with this very model, unless its calibration rows "
            f"were among the unluckiest {self.delta:g}, if new rows are drawn independently like them"
        )

    def law(self) -> Any:
        """Beta(k, n + 1 - k) at the higher rank."""
        k = this_model_rank(self.n, self.alpha, self.delta)
        return stats.beta(k, self.n + 1 - k)
