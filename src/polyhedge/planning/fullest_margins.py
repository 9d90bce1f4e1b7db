r"""The most cautious decision of a row in which not even the first margin of a path can be kept.

All constraints get the same margin as far as there is room, in the units of the path's steps. Those that stand in the
way stay there, and the others go on: no constraint loses room because another has none. Margins are whole numbers of
notches, and every question is one program of the same kind as the policy itself, solved for its row alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.planning.margins import MarginPlanner
from polyhedge.solvers.program import Status

_HALVINGS = 8
"""Halvings of the largest margin of a path to a notch, 1/256 of it: steps lie a fiftieth of it apart or more."""


@dataclass(frozen=True, eq=False)
class Fullest:
    """Margins that constraints can have.

    Attributes
    ----------
    margins : (N, R) of each constraint; NaN where no decision keeps the constraints even without a margin.
    is_proven : (N,) whether it is proven that there is no room for a notch more, or no decision.
    """

    margins: Array
    is_proven: Mask


def fullest_margins(
    planner: MarginPlanner, contexts: Array, scales: Array, values: Array, most: float, n_jobs: int | None = None
) -> Fullest:
    """The fullest margins of N rows, up to `most`."""
    n, n_limits, notches = len(contexts), planner.n_limits, 2**_HALVINGS
    counts, is_open = np.zeros((n, n_limits), dtype=np.int64), np.ones((n, n_limits), dtype=bool)
    is_proven = np.ones(n, dtype=bool)

    def has_one(rows: Indices, tried: Indices) -> Mask:
        margins = most * (tried / notches)
        z, status = planner.at(contexts[rows], scales[rows], margins, values[rows], n_jobs=n_jobs)
        has_decision = np.isfinite(z).all(axis=1)
        is_proven[rows[~has_decision & (status != Status.INFEASIBLE)]] = False
        return np.asarray(has_decision)

    everyone = np.arange(n)
    has_any = has_one(everyone, counts)
    rows = everyone[has_any]
    while len(rows):  # a round closes one constraint or more of each of its rows
        low = np.max(counts[rows] * is_open[rows], axis=1)
        high = np.full(len(rows), notches)
        is_whole = has_one(rows, np.where(is_open[rows], notches, counts[rows]))
        low[is_whole] = notches
        while (left := np.flatnonzero(high - low > 1)).size:
            middle = (low[left] + high[left]) // 2
            fits = has_one(rows[left], np.where(is_open[rows[left]], middle[:, None], counts[rows[left]]))
            low[left], high[left] = np.where(fits, middle, low[left]), np.where(fits, high[left], middle)
        counts[rows] = np.where(is_open[rows], low[:, None], counts[rows])
        rows = rows[~is_whole]
        could = np.zeros((len(rows), n_limits), dtype=bool)
        for r in range(n_limits):
            own = np.flatnonzero(is_open[rows, r])
            more = counts[rows[own]]
            more[:, r] += 1
            could[own, r] = has_one(rows[own], more)
        stays = (could == is_open[rows]).all(axis=1)  # each can, and not all together: there is no room for all
        is_open[rows] = could & ~stays[:, None]
        rows = rows[is_open[rows].any(axis=1)]
    return Fullest(np.where(has_any[:, None], most * (counts / notches), np.nan), is_proven)
