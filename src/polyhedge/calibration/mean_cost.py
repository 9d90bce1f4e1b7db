r"""Promises for the mean: `Mean` for the mean cost of all rows, `CVaR` for that of the worst share of them.

A score S is the cost of a row minus its planned cost, and at most the number `largest`, B. Without such a number no
promise on a mean is possible: an outcome in a million that costs a billion moves the mean, and no sample shows it.

- `Mean` bets that the mean of $Z = B - S \ge 0$ is at most m: the wealth $\prod_{s \le t} (1 + \lambda_s (Z_s - m))$ is
  then a supermartingale. The bound is $B - m$ at the largest m at which the wealth reaches $1 / \delta$ [1].
- `CVaR` takes the least r with $\sum_i (S_i - r)_+ + (B - r)_+ \le (n + 1) \varepsilon$. Then [2] gives
  $E (S - r)_+ \le \varepsilon$, so that $\mathrm{CVaR}(S) \le E r + \varepsilon / \text{level}$.

.. [1] I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024.
.. [2] A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei and T. Schuster, "Conformal risk control", ICLR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Array, check_alpha
from polyhedge.calibration.marginal import OneRadius, conformal_radius, coverage_law
from polyhedge.calibration.radii import Calibrator, refuse_groups
from polyhedge.rows import Rows

_CHOOSE = 5
"""One row in so many chooses the level of losses, or where the tail begins, and does not calibrate it."""
_BOLDEST = 0.75
"""Share of the wealth that is bet at most: a single row cannot lose more."""
_HALVINGS = 60
"""Halvings of the interval of the mean: to the last digits of a float."""


class Risk(Calibrator):
    """What `Mean` and `CVaR` share: scores are costs, each at most `largest`, and single bounds hold as ever."""

    largest: float | None
    needs_costs: ClassVar[bool] = True

    @property
    def needs_largest(self) -> bool:
        """Whether the largest score is to be derived from the problem."""
        return self.largest is None

    def bound(self, scores: Array, largest: float, alpha: float) -> tuple[float, float]:
        """The share of rows whose mean is bounded, and the bound on their mean score."""
        raise NotImplementedError(f"{type(self).__name__} must define bound(scores, largest, alpha).")

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> RiskRadius:
        """The marginal radius of single rows, and the bound on the mean; calibration rows only."""
        refuse_groups(self, rows)
        scores, alpha, largest = np.asarray(scores, dtype=np.float64), check_alpha(alpha), self.largest
        if largest is None:
            raise ValueError(f"{type(self).__name__} needs largest, the most by which a cost can exceed its plan.")
        if not (scores <= largest + OPTIMAL * (np.ptp(scores) if np.isfinite(scores).all() else 0.0)).all():
            got = f"got {largest:g}, and a calibration row has the score {np.max(scores):g}"
            how = "Raise largest, or relax the constraints if rows without a decision score infinity."
            raise ValueError(
                f"largest must be at least every score, {got}: its cost exceeds its plan by so much. {how}"
            )
        # An order of the rows' own: tables are often sorted, and bets that go from row to row assume that none are.
        shuffled = np.minimum(scores, largest)[np.random.default_rng(0).permutation(len(scores))]
        given: Any = self
        share, bound = self.bound(shuffled, float(largest), alpha)
        radius = conformal_radius(scores, alpha)
        return RiskRadius(radius, alpha, len(scores), scores=scores, share=share, mean_radius=bound, given=given)


@stored("mean")
@dataclass(frozen=True)
class Mean(Risk):
    """A bound on the mean cost of all new rows, which holds for this model with probability at least 1 - delta.

    `Decisions.risk_bound` has it. The bounds of single rows hold at the level alpha, as ever.

    Parameters
    ----------
    delta : share of calibrations for which the bound on the mean may fail.
    largest : the most by which a cost can exceed its planned cost; None to derive it from a problem whose decisions and
        outcomes are bounded.

    Examples
    --------
    >>> scores = np.tile([0.0, 1.0], 200)
    >>> radii = Mean(0.05, largest=2.0).calibrate(scores, Rows(np.zeros((400, 0))), 0.1)
    >>> radii.radius, round(radii.mean_radius, 2)
    (1.0, 0.54)
    """

    delta: float = 0.05
    largest: float | None = None

    def __post_init__(self) -> None:
        check_numbers(self.largest, delta=self.delta)

    def bound(self, scores: Array, largest: float, alpha: float) -> tuple[float, float]:
        """1, and the betting bound."""
        return 1.0, mean_bound(scores, largest, self.delta)


@stored("CVaR")
@dataclass(frozen=True)
class CVaR(Risk):
    """A bound on the mean cost of the worst share of new rows, in excess of planned costs.

    The bound is at least the CVaR in the mean over calibrations; with `delta`, with probability at least 1 - delta.
    `Decisions.risk_bound` has it. The bounds of single rows hold at the level alpha, as ever.

    Parameters
    ----------
    level : the worst share of rows; None for the level alpha of single bounds.
    largest : as in `Mean`.
    delta : share of calibrations for which the bound may fail; None for a bound that holds in the mean over them.

    Examples
    --------
    >>> scores = np.random.default_rng(0).uniform(size=1000)
    >>> radii = CVaR(0.1, largest=1.0).calibrate(scores, Rows(np.zeros((1000, 0))), 0.1)
    >>> radii.share, round(radii.mean_radius, 2)
    (0.1, 0.95)
    """

    level: float | None = None
    largest: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        check_numbers(self.largest, level=self.level, delta=self.delta)

    def bound(self, scores: Array, largest: float, alpha: float) -> tuple[float, float]:
        """The level, and the bound by conformal risk control or by betting."""
        level = alpha if self.level is None else self.level
        choose, own = scores[: len(scores) // _CHOOSE], scores[len(scores) // _CHOOSE :]
        if len(choose) < 1 / level:
            needs = f"needs at least {int(np.ceil(_CHOOSE / level))} calibration samples, got {len(scores)}"
            why = f"one in {_CHOOSE} chooses where the tail begins. Raise the level or bring more rows."
            raise ValueError(f"A CVaR of level {level:g} {needs}: {why}")
        start, losses = tail_start(choose, largest, len(own), level)
        if self.delta is None:
            bound = risk_radius(own, largest, losses) + losses / level
        else:
            tail = np.maximum(own - start, 0.0)
            bound = start + mean_bound(tail, max(largest - start, 0.0), self.delta) / level
        return level, min(bound, largest)


def check_numbers(largest: Any, **shares: Any) -> None:
    """Raise unless `largest` is None or a finite number, and each share None or strictly between 0 and 1."""
    for name, share in shares.items():
        if share is not None and not (isinstance(share, (float, np.floating)) and 0 < share < 1):
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {share!r}.")
    if largest is not None and not (isinstance(largest, (int, float, np.number)) and np.isfinite(largest)):
        what = "a finite number, the most that a cost can be, or can exceed its plan by"
        raise ValueError(f"largest must be {what}; got {largest!r}.")


def mean_bound(scores: Array, largest: float, delta: float) -> float:
    """Upper bound of the mean of scores that are at most `largest`, from independent rows (n,) in a random order.

    It fails with probability at most `delta`. The bets are those for a variance like that of the rows before.
    """
    Z, n = largest - scores, len(scores)
    count = np.arange(1, n)
    variance = np.cumsum(Z**2)[:-1] / count - (np.cumsum(Z)[:-1] / count) ** 2
    with np.errstate(divide="ignore"):
        bets = np.append(0.0, np.sqrt(2 * np.log(1 / delta) / (n * np.maximum(variance, 0.0))))
    low, high = 0.0, float(Z.mean())
    for _ in range(_HALVINGS):
        m = (low + high) / 2
        if m in (low, high):
            break
        wealth = np.cumsum(np.log1p(np.minimum(bets, _BOLDEST / m) * (Z - m)))
        low, high = (m, high) if wealth.max() >= np.log(1 / delta) else (low, m)
    return largest - low


def tail_start(scores: Array, largest: float, n: int, level: float) -> tuple[float, float]:
    """Where a tail of this level begins, and the mean loss beyond it that `risk_radius` of n more rows would meet."""
    ordered = np.sort(scores)[::-1]
    # The new row counts as the largest score, with the weight 1 / (n + 1).
    taken = 1 / (n + 1) + np.arange(1, len(ordered) + 1) / len(ordered) * n / (n + 1)
    start = float(ordered[min(int(np.searchsorted(taken, level)), len(ordered) - 1)])
    losses = np.maximum(scores - start, 0.0).mean() * n + max(largest - start, 0.0)
    return start, float(losses / (n + 1))


def risk_radius(scores: Array, largest: float, losses: float) -> float:
    """The least r with mean of (S_i - r)+ over the scores and `largest` at most `losses`: conformal risk control."""
    ordered = np.sort(np.append(scores, largest))[::-1]
    above = np.arange(1, len(ordered) + 1)
    # With k scores above r the mean loss is (sum of these - k r) / (n + 1): the first r that lies below no score.
    radii = (np.cumsum(ordered) - len(ordered) * losses) / above
    return float(radii.max())


@stored("radius with a mean", transient=("scores", "groups"))
@dataclass(frozen=True)
class RiskRadius(OneRadius):
    """The marginal radius of single rows, and a bound on the mean score of all rows or of the worst of them.

    Attributes
    ----------
    radius, alpha, n, n_groups, scores, groups : as in `OneRadius`.
    share : of the rows whose mean is bounded, the worst; 1 for all.
    mean_radius : how much more than planned these rows cost at most, in their mean.
    given : the calibrator.
    """

    share: float = 1.0
    mean_radius: float = np.inf
    given: Mean | CVaR = field(default_factory=Mean)
    kind: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "risk", (self.share, self.mean_radius))
        if not 0 < self.share <= 1 or not np.isfinite(self.mean_radius):
            raise ValueError("A bound on a mean must be finite, of a share of rows between 0 and 1.")

    @property
    def calibrator(self) -> Any:
        """The same, with the same largest score."""
        return self.given

    def promise(self) -> str:
        """What holds, in words."""
        whose = "all new rows" if self.share == 1 else f"the worst {self.share:g} of new rows"
        how = f"with probability at least {1 - self.given.delta:g}" if self.given.delta else "in the mean over models"
        return (
            f"{super().promise()}; and {whose} cost on average at most {self.mean_radius:.6g} more than planned, "
            f"{how}, if rows are independent and no cost exceeds its plan by more than {self.given.largest:.6g}"
        )

    def law(self) -> Any:
        """Beta(k, n + 1 - k), for single rows."""
        return coverage_law(self.n, self.alpha)
