"""Maxima of biaffine functions of decision and outcome, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from polyhedge._support.tolerances import ROUNDING
from polyhedge._support.validation import Array, Mask

PIECE_LIMIT = 4096
"""Piece lists longer than this are not written out; their worst case is found by a mixed-integer program."""
ENTRY_LIMIT = 30_000_000
"""Nor are those with more coefficients: a quarter of a gigabyte."""


@dataclass(frozen=True)
class Pieces:
    r"""The function $\max_l \{(Q_l z + q_l)^\top u + p_l^\top z + c_l\}$ of a decision z and an outcome u.

    Attributes
    ----------
    Q : (n_pieces, n_outcomes, n_decisions)
    q : (n_pieces, n_outcomes)
    p : (n_pieces, n_decisions)
    c : (n_pieces,)
    """

    Q: Array
    q: Array
    p: Array
    c: Array

    @classmethod
    def from_coefficients(cls, M: Array) -> Pieces:
        """Build from matrices M with pieces $[1, z]^T M_l [1, u]$, shape (n_pieces, 1+p, 1+d)."""
        return cls(Q=np.swapaxes(M[:, 1:, 1:], 1, 2), q=M[:, 0, 1:], p=M[:, 1:, 0], c=M[:, 0, 0])

    def __len__(self) -> int:
        return len(self.c)

    @property
    def directions_are_fixed(self) -> bool:
        """Whether no direction $Q_l z + q_l$ depends on the decision, as in the newsvendor."""
        return not self.Q.any()

    @property
    def sees_outcome(self) -> Mask:
        """Which pieces depend on the outcome at all."""
        return np.asarray(self.Q.any(axis=(1, 2)) | self.q.any(axis=1))

    def directions(self, z: Array) -> Array:
        """Slopes in u for decisions z (N, p): shape (N, n_pieces, d)."""
        return np.einsum("ldp,np->nld", self.Q, z) + self.q

    def values(self, z: Array, u: Array) -> Array:
        """All pieces at matching rows of z (N, p) and u (N, d): shape (N, n_pieces)."""
        return np.einsum("nld,nd->nl", self.directions(z), u) + z @ self.p.T + self.c

    def evaluate(self, z: Array, u: Array) -> Array:
        """The maximum over the pieces at matching rows of z and u: shape (N,)."""
        return self.values(z, u).max(axis=1)


@dataclass(frozen=True)
class SumOfMaxima:
    """The function base(z, u) + sum over groups of the group's maximum, all parts biaffine.

    `base` has shape (1+p, 1+d) and stands for $[1, z]^T base [1, u]$; each of `groups` stacks such matrices.
    A maximum of linear functions is the support function of the convex hull of its coefficients and a
    sum of maxima that of a Minkowski sum, which is how groups are merged and written out.
    """

    base: Array
    groups: tuple[Array, ...] = ()

    @property
    def n_pieces(self) -> int:
        """Length of the piece list if the sum were written out."""
        return prod(len(group) for group in self.groups)

    def with_known(self, values: Array) -> SumOfMaxima:
        """The function at known values of its last outcomes."""
        d = self.base.shape[1] - len(values)

        def at(M: Array) -> Array:
            return np.concatenate([M[..., :1] + (M[..., d:] @ values)[..., None], M[..., 1:d]], axis=-1)

        return SumOfMaxima(at(self.base), tuple(at(group) for group in self.groups))

    def scaled(self, weight: float) -> SumOfMaxima:
        """Return weight times this function (weight >= 0, or no groups)."""
        if weight == 0:
            return SumOfMaxima(np.zeros_like(self.base))
        return SumOfMaxima(weight * self.base, tuple(weight * group for group in self.groups))

    def sizes(self) -> SumOfMaxima:
        """The sum of the sizes of all terms, as a function of the sizes of z and u."""
        return SumOfMaxima(np.abs(self.base), tuple(np.abs(group) for group in self.groups))

    def plus(self, other: SumOfMaxima) -> SumOfMaxima:
        """Return the sum of two such functions."""
        return SumOfMaxima(self.base + other.base, self.groups + other.groups)

    def expanded(self) -> Array:
        """All pieces, shape (n_pieces, 1+p, 1+d)."""
        if not self.groups:
            return self.base[None]
        return np.array([self.base + sum(choice) for choice in product(*self.groups)])

    def merged(self) -> SumOfMaxima:
        """Merge groups that are parallel segments: c max(a, 0) + k max(-a, 0) = max(c a, -k a)."""
        groups, sizes = list[Array](), list[Array]()
        for group in self.groups:
            size = np.abs(group).max(axis=0)  # what the rounding of a step is relative to
            step = group[-1] - group[0]
            is_twin = (
                len(group) == len(g) == 2 and _parallel(g, own, step, size)
                for g, own in zip(groups, sizes, strict=True)
            )
            twin = next((i for i, is_one in enumerate(is_twin) if is_one), None)
            if twin is None:
                groups.append(group)
                sizes.append(size)
                continue
            other = groups[twin]
            groups[twin] = other + (group if np.vdot(other[1] - other[0], step) > 0 else group[::-1])
            sizes[twin] = np.maximum(sizes[twin], size)
        return SumOfMaxima(self.base, tuple(groups))

    def pieces(self) -> Pieces | None:
        """The piece list, or None if it would be longer than `PIECE_LIMIT` or larger than `ENTRY_LIMIT`."""
        merged = self.merged()
        if not _may_be_written_out(merged.n_pieces, merged.base):
            return None
        return Pieces.from_coefficients(merged.expanded())

    def evaluate(self, z: Array, u: Array) -> Array:
        """Values at matching rows of z (N, p) and u (N, d)."""
        z1, u1 = _with_one(z), _with_one(u)
        total = np.einsum("ni,ij,nj->n", z1, self.base, u1)
        for group in self.groups:
            total += np.einsum("ni,lij,nj->nl", z1, group, u1).max(axis=1)
        return np.asarray(total)


def maximum_of(functions: Sequence[SumOfMaxima]) -> SumOfMaxima | None:
    """The pointwise maximum as one group, or None if its piece list would be too long."""
    functions = [f.merged() for f in functions]
    if not _may_be_written_out(sum(f.n_pieces for f in functions), functions[0].base):
        return None
    group = in_order(np.unique(np.concatenate([f.expanded() for f in functions]), axis=0))
    if len(group) == 1:
        return SumOfMaxima(group[0])
    return SumOfMaxima(np.zeros_like(group[0]), (group,))


def in_order(group: Array) -> Array:
    """Pieces ordered by their coefficients of the outcome: the others depend on the origin of outcomes."""
    keys = np.concatenate([group[:, :, 1:].reshape(len(group), -1), group[:, :, 0]], axis=1)
    return np.asarray(group[np.lexsort(keys.T[::-1])])


def _may_be_written_out(n_pieces: int, base: Array) -> bool:
    return n_pieces <= PIECE_LIMIT and n_pieces * base.size <= ENTRY_LIMIT


def _parallel(segment: Array, segment_size: Array, step: Array, size: Array) -> bool:
    """Whether a step is a multiple of a segment, entry by entry up to rounding: no large entry hides another slope."""
    other = segment[1] - segment[0]
    largest = np.unravel_index(int(np.abs(other).argmax()), other.shape)
    if not (other[largest] and step[largest]):
        return False
    ratio = step[largest] / other[largest]
    rounding = ROUNDING * (abs(ratio) * segment_size + size)
    return bool((np.abs(ratio * other - step) <= rounding).all())


def _with_one(rows: Array) -> Array:
    return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
