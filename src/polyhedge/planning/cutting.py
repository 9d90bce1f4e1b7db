"""Cuts that bound a risk from below, looked for at some rows until they miss little of it there.

A round decides every row by the cuts so far and adds the cut of its decision. Such points leap from side to side while
cuts are few. The tail of a sum has many sides, so that its cuts are made half-way to the best decision so far instead:
with ten products half the rounds will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, Indices
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.risk import Cuts, Risk

# Share of the spread of costs that the cuts may miss: far below what any choice between rules can tell.
ENOUGH = 2e-4
# How many times their heights the slopes of pieces come to where every piece of the cost has its final slope.
_FAR = 1e3


class RiskyCost(Protocol):
    """The part of a cost that mixes decision and outcome, seen through what may come: a distribution, or a set."""

    @property
    def points(self) -> Array:
        """Residuals (n, d) that may come."""

    @property
    def matrices(self) -> Array:
        """All pieces (P, 1 + p, 1 + d) of the cost."""

    @property
    def groups(self) -> list[range]:
        """The pieces of each maximum."""

    def cuts(self, z: Array, centers: Array, scales: Array, risk: Risk) -> list[tuple[Array, Cuts]]:
        """The terms of the risk (N,) at each row, and for each term the cut that each row gives."""

    def cuts_and_deviation(
        self, z: Array, centers: Array, scales: Array, risk: Risk
    ) -> tuple[list[tuple[Array, Cuts]], Array]:
        """The same, and how far costs differ over the points at each row (N,)."""


@dataclass(frozen=True)
class Effort:
    """How long cuts are looked for: at so many rows, in so many rounds, until they miss this share of the deviation."""

    rows: int
    rounds: int
    enough: float


def search_cuts(
    cost: RiskyCost,
    risk: Risk,
    rows: tuple[Array, Array],
    cuts: Cuts,
    effort: Effort,
    decided: Callable[[Cuts, Indices], Array],
    alone: Callable[[Array, Indices], Array] | None = None,
) -> Cuts:
    """The cuts, and those that they lack at these rows.

    Parameters
    ----------
    cost, risk : what the cuts bound.
    rows : contexts (N, d) and spreads (N,).
    cuts : to begin with.
    effort : when it ends.
    decided : cuts and numbers of rows -> their decisions (n, p), NaN where there is none.
    alone : decisions and numbers of rows -> the cost (n,) that no outcome enters. Where it is given, the risk has one
        term, and cuts are made half-way to the best decision so far.
    """
    contexts, scales = rows
    best = None if alone is None else _BestSoFar(cost, risk, contexts, scales, alone)
    is_open = np.ones(len(scales), dtype=bool)
    looked_at = np.full((len(scales), cost.matrices.shape[1] - 1), np.nan)
    for _ in range(effort.rounds):
        own = np.flatnonzero(is_open)
        z = decided(cuts, own)
        # Rows without a decision fail where they are decided; those that keep theirs have all cuts that it needs.
        is_new = np.isfinite(z).all(axis=1) & ((z != looked_at[own]).any(axis=1) | (best is not None))
        own, z = own[is_new], z[is_new]
        if not len(own):
            break
        looked_at[own] = z
        lacking = lacking_cuts(cuts, cost, risk, z, contexts[own], scales[own], effort.enough)
        is_open[:] = False
        is_open[own[np.unique(np.concatenate([few.rows for few in lacking]))]] = True
        if not is_open.any():
            break
        fresh = [few.cuts for few in lacking] if best is None else [best.inner_cuts(own, z, lacking[0])]
        cuts = distinct_cuts(Cuts.joined([cuts, *fresh]))
    return cuts


class _BestSoFar:
    """The best decisions of some rows so far, by a risk of one term, and cuts on the way to them."""

    def __init__(
        self, cost: RiskyCost, risk: Risk, contexts: Array, scales: Array, alone: Callable[[Array, Indices], Array]
    ) -> None:
        self.cost, self.risk, self.contexts, self.scales, self.alone = cost, risk, contexts, scales, alone
        self.value, self.z = np.full(len(scales), np.inf), np.zeros((len(scales), cost.matrices.shape[1] - 1))

    def inner_cuts(self, own: Indices, z: Array, lacking: Lacking) -> Cuts:
        """Cuts at rows whose decisions z lack some: half-way to the best, or at z where none can be much better."""
        total = self.alone(z, own) + lacking.values
        self._hear(own, z, total)
        least = total - lacking.missing
        is_far = self.value[own] - least > lacking.allowed
        is_inner, rows = is_far[lacking.rows], own[lacking.rows]
        inner = rows[is_inner]
        middle = (z[lacking.rows][is_inner] + self.z[inner]) / 2
        at_z = lacking.cuts.take(np.flatnonzero(~is_inner))
        if not len(inner):
            return at_z
        [(values, cuts)] = self.cost.cuts(middle, self.contexts[inner], self.scales[inner], self.risk)
        self._hear(inner, middle, self.alone(middle, inner) + values)
        return Cuts.joined([at_z, cuts])

    def _hear(self, rows: Indices, z: Array, values: Array) -> None:
        is_better = values < self.value[rows]
        self.value[rows[is_better]], self.z[rows[is_better]] = values[is_better], z[is_better]


def first_cuts(problem: PlanProblem, cost: RiskyCost, risk: Risk, contexts: Array, scales: Array) -> Cuts:
    """Cuts at a usual decision and far from it on all sides, so that the cuts alone have a least where the risk has.

    Usual is the best decision at a usual context: nothing here depends on where outcomes and decisions have their zero.
    """
    p, usual = problem.problem.n_decisions, np.median(contexts, axis=0)
    z0 = problem.usual_decision(usual)
    z = np.vstack([np.zeros((1, p)), np.ones((1, p)), -np.ones((1, p)), np.eye(p), -np.eye(p)])
    deviation = np.abs(contexts - usual).max(axis=0) + np.median(scales) * np.abs(cost.points).max(axis=0)
    z = z0 + z * _far(cost, z0, usual, deviation)
    middle, scale = np.tile(usual, (len(z), 1)), np.full(len(z), np.median(scales))
    return distinct_cuts(Cuts.joined([cuts for _, cuts in cost.cuts(z, middle, scale, risk)]))


def _far(cost: RiskyCost, z: Array, context: Array, deviation: Array) -> Array:
    """For each decision (p,) a distance from z at which its slopes outweigh all heights, in units of the problem's own.

    Heights and slopes are those by which the pieces of a group differ near a context, and by which outcomes move each,
    as far as they deviate from it (d + t,): what all have in common, such as outcomes far from 0, changes no order.
    """
    M = cost.matrices
    here = np.concatenate([(M[:, :1] + np.tensordot(M[:, 1:], z, (1, 0))[:, None]), M[:, 1:]], axis=1)
    apart = np.concatenate([here[group] - here[group].mean(axis=0) for group in cost.groups])
    sizes = np.abs(apart[:, :, 0] + apart[:, :, 1:] @ context) + np.abs(here[:, :, 1:]) @ deviation
    height, slopes = sizes[:, 0].max(initial=0.0), sizes[:, 1:].max(axis=0, initial=0.0)
    # Without heights any distance will do: what multiplies decisions has the same slopes everywhere.
    return np.asarray((_FAR * height or 1.0) / np.where(slopes > 0, slopes, np.inf))


def distinct_cuts(cuts: Cuts) -> Cuts:
    """Each of the cuts once."""
    flat = np.hstack([part.reshape(len(cuts), -1) for part in cuts.parts]) + 0.0  # -0 is 0
    first: dict[bytes, int] = {}
    for k, row in enumerate(flat):  # np.unique would sort rows of hundreds of numbers
        first.setdefault(row.tobytes(), k)
    return cuts.take(np.array(list(first.values()), dtype=np.int64))


class Lacking(NamedTuple):
    """What cuts of one term lack at N decisions.

    Attributes
    ----------
    rows : those that lack a cut.
    cuts : one for each of them.
    values, missing, allowed : (N,) the term, what the cuts do not know of it, and how much of it they need not.
    """

    rows: Indices
    cuts: Cuts
    values: Array
    missing: Array
    allowed: Array


def lacking_cuts(
    cuts: Cuts, cost: RiskyCost, risk: Risk, z: Array, contexts: Array, scales: Array, share: float = ENOUGH
) -> list[Lacking]:
    """For each term the rows where the cuts miss it by more than this share of the costs' deviation, and more cuts."""
    terms, deviation = cost.cuts_and_deviation(z, contexts, scales, risk)
    lacking = []
    for term, (values, fresh) in enumerate(terms):
        known = _known(cuts.take(np.flatnonzero(cuts.term == term)), z, contexts, scales)
        allowed = np.maximum(share * deviation, CANCELLATION * np.abs(values))
        rows = np.flatnonzero(values - known > allowed)
        lacking.append(Lacking(rows, fresh.take(rows), values, values - known, allowed))
    return lacking


def _known(cuts: Cuts, z: Array, contexts: Array, scales: Array) -> Array:
    """What the cuts know of the risk at each row (N,)."""
    z1 = np.hstack([np.ones((len(z), 1)), z])
    moved = (z1[:, :, None] * contexts[:, None, :]).reshape(len(z), -1) @ cuts.C.reshape(len(cuts), -1).T
    return np.asarray((z1 @ cuts.A.T + scales[:, None] * (z1 @ cuts.B.T) + moved).max(axis=1))
