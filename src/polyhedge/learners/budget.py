"""What a search may spend: a fixed amount of work, and time only where a limit was asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

WORK = 6e6
"""Rows of programs that an exact search may solve by default: about a minute."""
_OF_A_CALL = 100
"""Rows that a call of a solver costs by itself: small programs take a tenth of a millisecond to a millisecond."""


@dataclass
class Budget:
    """Work, counted in rows of programs solved, so that a search ends at the same point on every machine.

    Parameters
    ----------
    work : rows that may be solved; a core does about a million in ten seconds.
    deadline : time of the performance counter; infinite where no time limit was asked for.

    Examples
    --------
    >>> budget = Budget(1000)
    >>> budget.spend(300, times=2)
    >>> budget.is_over, budget.spend(1), budget.spend(1), budget.is_over
    (False, None, None, True)
    """

    work: float
    deadline: float = np.inf
    spent: float = 0.0

    @classmethod
    def of(cls, work: float, time_limit: float | None) -> Budget:
        """So much work, within so many seconds from now if there is a limit."""
        return cls(work, np.inf if time_limit is None else time.perf_counter() + time_limit)

    def spend(self, n_rows: int, times: int = 1) -> None:
        """Take note of programs with so many rows each."""
        self.spent += (_OF_A_CALL + n_rows) * times

    def affords(self, n_rows: int) -> int | None:
        """How many programs (or nodes of a search tree) of so many rows are left, at least one; None for any number."""
        if np.isinf(self.work):
            return None
        return max(int((self.work - self.spent) / (_OF_A_CALL + n_rows)), 1)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.work or self.seconds == 0

    @property
    def seconds(self) -> float | None:
        """Seconds left, for a solver; None without a time limit."""
        return None if np.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 0.0)
