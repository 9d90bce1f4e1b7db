r"""An alarm that may be looked at after every row: whether bounds fail more often than exchangeable rows can explain.

The coverage of one model is itself random, Beta(k, m + 1 - k), so that a test of "coverage is 1 - alpha" raises false
alarms however well a model was calibrated. What is certain is less: if the m calibration rows and the n rows since are
exchangeable and scores are continuous, the next row is a miss with probability (m + 1 - k + misses) / (m + 1 + n),
whatever happened before. The alarm bets against this: it multiplies its wealth by q / p at each row, q being the
chance of what happened if bounds fail more often from some row on. On exchangeable rows wealth is a martingale that
starts at 1, so by Ville's inequality it ever reaches 1 / rate with probability at most `rate`. It is a conformal test
martingale on whether each row is covered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array

_MULTIPLES = np.array([1.5, 2.0, 3.0, 5.0])
"""How many times more often bounds may fail after a change: from what hundreds of rows show to what ten do."""
_EVERY = 50
"""Rows between the moments at which a change is suspected to begin."""


@stored("alarm")
@dataclass(frozen=True, eq=False)
class Alarm:
    """Wealth of bets that bounds have begun to fail.

    Attributes
    ----------
    n_calibrate, rank : m and k of the radius.
    rate : chance that exchangeable rows ever raise the alarm, at most.
    n, n_missed : rows since, and those that were not covered.
    wealth : (J,) of the bets on each share of misses, over all moments at which the change may have begun: from then on
        bets on one share pay the same, so that their sum is all that has to be kept.
    n_moments : moments on which bets were placed so far.
    highest : the most that all bets together were worth so far.
    raised_at : number of the row at which the alarm was raised; None if it was not.

    Examples
    --------
    >>> alarm = Alarm.of(500, 451, rate=0.01)
    >>> alarm.updated([False] * 90 + [True] * 10).is_raised, alarm.updated([True] * 30).raised_at
    (False, 5)
    """

    n_calibrate: int
    rank: int
    rate: float
    wealth: Array
    n_moments: int = 0
    n: int = 0
    n_missed: int = 0
    highest: float = 1.0
    raised_at: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must lie strictly between 0 and 1, got {self.rate!r}: the chance of a false alarm.")
        has_counts = 0 <= self.n_missed <= self.n and self.n_moments == -(-self.n // _EVERY)
        if not has_counts or not (self.raised_at is None or 1 <= self.raised_at <= self.n):
            raise ValueError("An alarm must count misses, moments and the row that raised it among its rows.")
        if self.wealth.shape != _MULTIPLES.shape or not (self.wealth >= 0).all() or not self.highest >= 1:
            raise ValueError("An alarm must have a wealth of at least 0 for each bet, and 1 at its highest.")
        if self.is_raised != (self.highest >= 1 / self.rate):
            raise ValueError("An alarm is raised if its wealth has reached the inverse of its rate, and only then.")

    @classmethod
    def of(cls, n_calibrate: int, rank: int, rate: float = 0.01) -> Self:
        """Before any row."""
        return cls(n_calibrate, rank, rate, np.zeros(len(_MULTIPLES)))

    @property
    def is_raised(self) -> bool:
        """Whether wealth has ever reached 1 / rate."""
        return self.raised_at is not None

    def updated(self, missed: ArrayLike) -> Self:
        """After more rows, in order; `missed` (N,) says which were not covered."""
        n, n_missed, wealth, highest, raised = self.n, self.n_missed, self.wealth, self.highest, self.raised_at
        n_moments, size, planned = self.n_moments, self.n_calibrate + 1, self.n_calibrate + 1 - self.rank
        for miss in np.asarray(missed, dtype=bool).tolist():
            if n % _EVERY == 0:
                n_moments += 1
                # All bets on a change at the c-th moment start with 1 / (c (c + 1)) together, which adds up to 1.
                wealth = wealth + 1 / (n_moments * (n_moments + 1) * len(_MULTIPLES))
            chance, share = (planned + n_missed) / (size + n), planned / size
            # Never a bet that bounds fail less often: with tied scores they do, and that is no reason for an alarm.
            suspected = np.maximum(np.minimum(_MULTIPLES * share, (1 + share) / 2), chance)
            wealth = wealth * (suspected / chance if miss else (1 - suspected) / (1 - chance))
            n, n_missed = n + 1, n_missed + miss
            highest = max(highest, float(wealth.sum()) + 1 / (n_moments + 1))  # with the stakes of moments to come
            raised = n if raised is None and highest >= 1 / self.rate else raised
        return replace(
            self, wealth=wealth, n_moments=n_moments, n=n, n_missed=n_missed, highest=highest, raised_at=raised
        )

    def __str__(self) -> str:
        """What was seen, how unlikely it is, and what to do."""
        seen = f"{self.n_missed} of {self.n} rows were not covered"
        if not self.is_raised:
            return f"no alarm: {seen}"
        return (
            f"alarm at row {self.raised_at}: {seen}; rows like the calibration rows would ever look so bad with "
            f"probability {min(1 / self.highest, self.rate):.1g} at most. Refresh the decider on newer rows, "
            "recalibrate on recent ones, or take calibration=Online()"
        )


def alarm_for(radii: Any, rate: float = 0.01) -> Alarm | None:
    """An alarm for radii whose coverage has an exact distribution, Beta(k, m + 1 - k); None for others."""
    law = radii.law()
    return None if law is None else Alarm.of(radii.n, round(law.args[0]), rate)
