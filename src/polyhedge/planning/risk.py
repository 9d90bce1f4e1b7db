r"""The cost of a decision over a distribution: all its samples, their risk, and cuts that bound the risk from below.

A piece of the cost is biaffine, $[1, z]^\top M_l [1, u]$. At $u = c + s\,e_i$ it is $s\,v_l^\top e_i + w_l$ with
$v_l$ and $w_l$ affine in z, so that the risk of the joint part of the cost,

$$H(s v, w) = \rho_i\Big(\sum_g \max_{l \in g}\, s\,v_l^\top e_i + w_l\Big), \qquad \rho = \mathrm{CVaR}_\tau,$$

is one convex and positively homogeneous function for *all* rows: a subgradient found at one row,
$V_l = \sum_i q_i e_i [l\text{ is largest}]$ and $W_l = \sum_i q_i [l\text{ is largest}]$, bounds the risk
at every other. For one piece this says that CVaR is the support function of a fixed polytope.

The tail of a sum of several maxima has as many sides as all of them together, and the sum of their tails has few. The
sum is what the tail would be if all terms had their worst scenarios at once. Rows that need a program take the sum.

Cuts are looked for at some rows until they miss little of the risk there. A round decides every row by the cuts so far
and adds the cut of its decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import CANCELLATION, ROUNDING, TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.problems.pieces import SumOfMaxima

_BLOCK = 2**16
"""Entries of a matrix of costs that is worked on at a time: half a megabyte, which a near cache holds."""
# Share of the spread of costs that the cuts may miss: far below what any choice between rules can tell.
ENOUGH = 2e-4
# How many times their heights the slopes of pieces come to where every piece of the cost has its final slope.
_FAR = 1e3


@stored("risk")
@dataclass(frozen=True)
class Risk:
    """CVaR, the mean of the worst share 1 - level; the mean at level 0."""

    level: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.level < 1:
            raise ValueError(f"The level of a tail must lie in [0, 1), got {self.level}.")

    @property
    def is_mean(self) -> bool:
        """Whether the tail plays no part."""
        return self.level == 0

    def weights(self, costs: Array, same: Array | None = None) -> Array:
        """Weights (N, n) of the samples under which the mean of costs (N, n) is the risk.

        Costs that differ by no more than `same` (N,) share what is left of the tail.
        """
        n = costs.shape[1]
        if self.is_mean:
            return np.full(costs.shape, 1 / n)
        mass = (1 - self.level) * n
        whole = int(np.floor(mass + 1e-9))  # a level that prints as .7 leaves a whole number of ten samples
        edge = (
            np.partition(costs, n - whole - 1, axis=1)[:, [n - whole - 1]] if whole < n else costs.min(axis=1)[:, None]
        )
        within = 0.0 if same is None else same[:, None]
        above = costs > edge + within
        at_edge = np.flatnonzero((costs >= edge - within) ^ above)  # few of all samples
        row = at_edge // n
        rest = (mass - above.sum(axis=1)) / np.maximum(np.bincount(row, minlength=len(costs)), 1)
        tail = np.multiply(above, 1 / mass)
        tail.flat[at_edge] = rest[row] / mass
        return np.asarray(tail)


@stored("cuts")
@dataclass(frozen=True, eq=False)
class Cuts:
    """Lower bounds of the terms of the risk, [1, z] (A_k + s B_k + C_k c) for each k.

    Attributes
    ----------
    A, B : (K, 1 + p)
    C : (K, 1 + p, d)
    term : (K,) the term that each of them bounds: a maximum of the cost, or the whole of it.
    """

    A: Array
    B: Array
    C: Array
    term: Indices

    def __post_init__(self) -> None:
        is_table = self.A.ndim == 2 and self.B.shape == self.A.shape and self.C.ndim == 3
        if not is_table or self.C.shape[:2] != self.A.shape or self.term.shape != (len(self.A),):
            raise ValueError("Cuts must each have a term, and coefficients of the same decisions and outcomes.")

    def __len__(self) -> int:
        return len(self.A)

    @classmethod
    def joined(cls, lists: Sequence[Cuts]) -> Cuts:
        """All cuts of these lists."""
        A, B, C, term = zip(*(cuts.parts for cuts in lists), strict=True)
        return cls(np.concatenate(A), np.concatenate(B), np.concatenate(C), np.concatenate(term))

    def take(self, chosen: Indices) -> Cuts:
        """Some of them."""
        return Cuts(self.A[chosen], self.B[chosen], self.C[chosen], self.term[chosen])

    @property
    def parts(self) -> tuple[Array, Array, Array, Indices]:
        """The four arrays."""
        return self.A, self.B, self.C, self.term

    @property
    def terms(self) -> list[Indices]:
        """The cuts of each term."""
        return [np.flatnonzero(self.term == k) for k in np.unique(self.term)]

    def at(self, center: Array, scale: float | Array) -> Array:
        """Coefficients (K, 1 + p) of [1, z] at one row; `scale` may be (K, 1), one for each cut."""
        return np.asarray(self.A + scale * self.B + self.C @ center)


@dataclass(frozen=True, eq=False)
class JointCost:
    """The part of the cost that mixes decision and outcome, over all points (n, d) of a distribution.

    `sums_tails` says that the risk is the sum of the tails of its maxima, not the tail of their sum.
    """

    total: SumOfMaxima
    points: Array
    sums_tails: bool = False

    @cached_property
    def matrices(self) -> Array:
        """All pieces (P, 1 + p, 1 + d): the base first, then group after group."""
        return np.concatenate([self.total.base[None], *self.total.groups])

    @cached_property
    def groups(self) -> list[range]:
        """The pieces of each maximum; the base is one of its own."""
        ends = 1 + np.cumsum([0, *(len(group) for group in self.total.groups)])
        return [range(0, 1), *(range(a, b) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))]

    def sides(self, z: Array, centers: Array, scales: Array) -> Array:
        """Slopes s v and heights w of the pieces (N, P, d + 1)."""
        rows = self.matrices[:, 0] + np.tensordot(z, self.matrices[:, 1:], (1, 1))
        v = rows[:, :, 1:]
        w = rows[:, :, 0] + np.einsum("npd,nd->np", v, centers)
        return np.concatenate([v * scales[:, None, None], w[:, :, None]], axis=2)

    def samples(self, z: Array, centers: Array, scales: Array) -> Array:
        """Costs (N, n) of decisions z (N, p) at centers + scales * points."""
        sides = self.sides(z, centers, scales)
        # The first pieces of all maxima together, and by how much others exceed the first of theirs.
        costs = sides[:, [group[0] for group in self.groups]].sum(axis=1) @ self._by_outcome
        for first, *others in self.groups:
            if others:
                above = reduce(np.maximum, [(sides[:, k] - sides[:, first]) @ self._by_outcome for k in others])
                costs += np.maximum(above, 0.0, out=above)
        return np.asarray(costs)

    def _same(self, z: Array, centers: Array, scales: Array, deviation: Array) -> Array:
        """Differences of costs at each row (N,) that rounding can explain, where costs differ by a `deviation` (N,)."""
        sizes, farthest = self._sizes
        at = np.abs(centers) + scales[:, None] * farthest
        terms = np.hstack([np.ones((len(z), 1)), np.abs(z)]) @ sizes
        whole = terms[:, 0] + (terms[:, 1:] * at).sum(axis=1)
        return np.asarray(TIE * deviation + ROUNDING * whole)

    @cached_property
    def _sizes(self) -> tuple[Array, Array]:
        """The largest sizes of the pieces' entries (1 + p, 1 + d) and of the points' outcomes (d,)."""
        return np.abs(self.matrices).max(axis=0), np.abs(self.points).max(axis=0)

    def _piece(self, sides: Array, piece: int) -> Array:
        """A piece at each row and point (N, n), or (N, 1) if it is the same at all points."""
        is_varied = self.matrices[piece, :, 1:].any()
        return np.asarray(sides[:, piece] @ self._by_outcome if is_varied else sides[:, piece, -1:])

    @cached_property
    def _by_outcome(self) -> Array:
        """The points (d + 1, n), outcome by outcome, and ones."""
        return np.vstack([self.points.T, np.ones(len(self.points))])

    def blocks(self, n_rows: int) -> list[slice]:
        """Rows that are worked on together."""
        step = max(_BLOCK // len(self.points), 1)
        return [slice(k, k + step) for k in range(0, n_rows, step)]

    def quantile(self, z: Array, centers: Array, scales: Array, level: float) -> tuple[Array, Array]:
        """The quantile of this level (N,) of the costs of each row, an order statistic, and their mean (N,).

        A cost of one piece is w + s v'e with v a function of the decision alone, so that each distinct decision is
        looked at once, however many rows share it.
        """
        if self.total.groups:
            return self._quantile(z, centers, scales, level)
        first, own = _distinct(z)
        nowhere, evenly = np.zeros((len(first), centers.shape[1])), np.ones(len(first))
        v, w = np.split(self.sides(z[first], nowhere, evenly)[:, 0], [-1], axis=1)
        quantile, mean = self._quantile(z[first], nowhere, evenly, level)
        heights = w[own, 0] + (v[own] * centers).sum(axis=1)
        return heights + scales * (quantile - w[:, 0])[own], heights + scales * (mean - w[:, 0])[own]

    def _quantile(self, z: Array, centers: Array, scales: Array, level: float) -> tuple[Array, Array]:
        rank = rank_of(level, len(self.points))
        quantile, mean = np.empty(len(z)), np.empty(len(z))
        for part in self.blocks(len(z)):
            costs = self.samples(z[part], centers[part], scales[part])
            mean[part] = costs.mean(axis=1)
            costs.partition(rank, axis=1)
            quantile[part] = costs[:, rank]
        return quantile, mean

    def cuts(self, z: Array, centers: Array, scales: Array, risk: Risk) -> list[tuple[Array, Cuts]]:
        """The terms of the risk (N,) of the joint cost at each row, and for each term the cut that each row gives."""
        return self.cuts_and_deviation(z, centers, scales, risk)[0]

    def cuts_and_deviation(
        self, z: Array, centers: Array, scales: Array, risk: Risk
    ) -> tuple[list[tuple[Array, Cuts]], Array]:
        """The same, and how far costs differ over the points at each row (N,)."""
        parts = [self._cuts(z[part], centers[part], scales[part], risk) for part in self.blocks(len(z))]
        terms = [
            (np.concatenate([values for values, _ in blocks]), Cuts.joined([cuts for _, cuts in blocks]))
            for blocks in zip(*(terms for terms, _ in parts), strict=True)
        ]
        return terms, np.concatenate([deviation for _, deviation in parts])

    def _cuts(self, z: Array, centers: Array, scales: Array, risk: Risk) -> tuple[list[tuple[Array, Cuts]], Array]:
        sides = self.sides(z, centers, scales)
        # All pieces are kept: their sum says which differences are none, and only then is known which are on top.
        pieces = [[self._piece(sides, piece) for piece in group] for group in self.groups]
        highs = [reduce(np.maximum, own) for own in pieces]
        costs = np.zeros((len(z), len(self.points)))
        for high in highs:
            costs += high
        deviation = costs.std(axis=1)
        same = self._same(z, centers, scales, deviation)
        tops = [_first_on_top(own, same) for own in pieces]
        if risk.is_mean or self.sums_tails:
            even = np.full((1, len(self.points)), 1 / len(self.points))
            terms = []
            for term, (group, high) in enumerate(zip(self.groups, highs, strict=True)):
                is_same_everywhere = risk.is_mean or high.shape[1] == 1
                weights = even if is_same_everywhere else risk.weights(high, same)
                value = high.mean(axis=1) if is_same_everywhere else np.einsum("ij,ij->i", weights, high)
                terms.append((value, self._cut(group, *self._shares(tops, weights, [term]), term)))
            return terms, deviation
        weights = risk.weights(costs, same)
        total = self._cut(range(len(self.matrices)), *self._shares(tops, weights, range(len(tops))), 0)
        return [(np.einsum("ij,ij->i", weights, costs), total)], deviation

    def _shares(self, tops: Sequence[Any], weights: Array, terms: Iterable[int]) -> tuple[Array, Array]:
        """The weight W (N, P) of the points at which each piece is the largest, and their weighted sum V (N, P, d)."""
        n, (n_pieces, _, d) = len(tops[0]), self.matrices.shape
        W, V = np.zeros((n, n_pieces)), np.zeros((n, n_pieces, d - 1))
        for term in terms:
            group, arg = self.groups[term], tops[term]
            for k, piece in enumerate(group):
                if not self.matrices[piece].any():
                    continue
                # A group of one is always there, and rounding must not make its cuts differ.
                share = weights if len(group) == 1 else weights * (arg == k)
                W[:, piece] = 1.0 if len(group) == 1 else share.sum(axis=1)
                V[:, piece] = share @ self.points
        return W, V

    def _cut(self, pieces: range, W: Array, V: Array, term: int) -> Cuts:
        """The cut of these pieces: each counts at the points at which it is the largest."""
        M, own = self.matrices[pieces], slice(pieces.start, pieces.stop)
        A, B = np.einsum("np,pi->ni", W[:, own], M[:, :, 0]), np.einsum("npd,pid->ni", V[:, own], M[:, :, 1:])
        return Cuts(A, B, np.einsum("np,pid->nid", W[:, own], M[:, :, 1:]), np.full(len(W), term))


@dataclass(frozen=True)
class Effort:
    """How long cuts are looked for: at so many rows, in so many rounds, until they miss this share of the deviation."""

    rows: int
    rounds: int
    enough: float


def search_cuts(
    cost: JointCost,
    risk: Risk,
    rows: tuple[Array, Array],
    cuts: Cuts,
    effort: Effort,
    decided: Callable[[Cuts, Indices], Array],
) -> Cuts:
    """The cuts, and those that they lack at these rows.

    Parameters
    ----------
    cost, risk : what the cuts bound.
    rows : contexts (N, d) and spreads (N,).
    cuts : to begin with.
    effort : when it ends.
    decided : cuts and numbers of rows -> their decisions (n, p), NaN where there is none.
    """
    contexts, scales = rows
    is_open = np.ones(len(scales), dtype=bool)
    looked_at = np.full((len(scales), cost.matrices.shape[1] - 1), np.nan)
    for _ in range(effort.rounds):
        own = np.flatnonzero(is_open)
        z = decided(cuts, own)
        # Rows without a decision fail where they are decided; those that keep theirs have all cuts that it needs.
        is_new = np.isfinite(z).all(axis=1) & (z != looked_at[own]).any(axis=1)
        own, z = own[is_new], z[is_new]
        if not len(own):
            break
        looked_at[own] = z
        lacking = lacking_cuts(cuts, cost, risk, z, contexts[own], scales[own], effort.enough)
        is_open[:] = False
        is_open[own[np.concatenate([rows for rows, _ in lacking])]] = True
        if not is_open.any():
            break
        cuts = distinct_cuts(Cuts.joined([cuts, *(more for _, more in lacking)]))
    return cuts


def first_cuts(
    cost: JointCost,
    risk: Risk,
    contexts: Array,
    scales: Array,
    decided: Callable[[Array], Array],
    bounded: bool = False,
) -> Cuts:
    """Cuts at a usual decision and far from it on all sides, so that the cuts alone have a least where the risk has.

    Usual is the best decision at a usual context: nothing here depends on where outcomes and decisions have their zero.
    If decisions are `bounded`, the cuts have a least anyway.
    """
    usual = np.median(contexts, axis=0)
    z0 = decided(usual)
    p = len(z0)
    sides = np.vstack([np.ones((1, p)), -np.ones((1, p)), np.eye(p), -np.eye(p)])[: 0 if bounded else None]
    deviation = np.abs(contexts - usual).max(axis=0) + np.median(scales) * np.abs(cost.points).max(axis=0)
    z = z0 + np.vstack([np.zeros((1, p)), sides]) * _far(cost, z0, usual, deviation)
    middle, scale = np.tile(usual, (len(z), 1)), np.full(len(z), np.median(scales))
    return distinct_cuts(Cuts.joined([cuts for _, cuts in cost.cuts(z, middle, scale, risk)]))


def _far(cost: JointCost, z: Array, context: Array, deviation: Array) -> Array:
    """For each decision (p,) a distance from z at which its slopes outweigh all heights, in units of the problem's own.

    Heights and slopes are the differences between the pieces of a group near a context, and the changes of each piece
    when outcomes deviate from it (d + t,). What all have in common, such as outcomes far from 0, changes no order.
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


def lacking_cuts(
    cuts: Cuts, cost: JointCost, risk: Risk, z: Array, contexts: Array, scales: Array, share: float = ENOUGH
) -> list[tuple[Indices, Cuts]]:
    """For each term the rows where cuts miss it by more than this share of the costs' deviation, and a cut for each."""
    terms, deviation = cost.cuts_and_deviation(z, contexts, scales, risk)
    lacking = []
    for term, (values, fresh) in enumerate(terms):
        known = _known(cuts.take(np.flatnonzero(cuts.term == term)), z, contexts, scales)
        allowed = np.maximum(share * deviation, CANCELLATION * np.abs(values))
        rows = np.flatnonzero(values - known > allowed)
        lacking.append((rows, fresh.take(rows)))
    return lacking


def _known(cuts: Cuts, z: Array, contexts: Array, scales: Array) -> Array:
    """The lower bound of the risk that the cuts give at each row (N,)."""
    z1 = np.hstack([np.ones((len(z), 1)), z])
    moved = (z1[:, :, None] * contexts[:, None, :]).reshape(len(z), -1) @ cuts.C.reshape(len(cuts), -1).T
    return np.asarray((z1 @ cuts.A.T + scales[:, None] * (z1 @ cuts.B.T) + moved).max(axis=1))


def rank_of(level: float, n: int) -> int:
    """Where the quantile of this level stands among n sorted costs, counted from 0."""
    return int(np.clip(np.ceil(level * n - 1e-9), 1, n)) - 1


def _distinct(z: Array) -> tuple[Indices, Indices]:
    """Rows that hold every distinct decision, and for each row (N,) the place of its own among them.

    A sum with odd weights tells decisions apart ten times faster than sorting them; those that it confuses stand alone.
    """
    _, first, own = np.unique(z @ np.sqrt(2.0 + np.arange(z.shape[1])), return_index=True, return_inverse=True)
    confused = np.flatnonzero((z[first[own]] != z).any(axis=1))
    own[confused] = len(first) + np.arange(len(confused))
    return np.concatenate([first, confused]), own


def _first_on_top(pieces: Sequence[Array], same: Array) -> Any:
    """Which of the pieces (N, n) is the largest, the first of those that differ by no more than `same` (N,)."""
    if len(pieces) == 2:
        return pieces[1] > pieces[0] + same[:, None]
    high, arg = pieces[0], np.zeros(np.broadcast_shapes(*(each.shape for each in pieces)), dtype=np.int16)
    for k, other in enumerate(pieces[1:], start=1):
        np.copyto(arg, k, where=other > high + same[:, None])
        if k < len(pieces) - 1:
            high = np.maximum(high, other)
    return arg
