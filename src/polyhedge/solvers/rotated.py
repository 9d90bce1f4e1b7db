r"""Squares under a product: $x^\top x \le s\,t$ with $s, t \ge 0$, each side in a unit of its own.

CVXPY writes $x^2 \le t$ as the second-order cone $(1 + t, 1 - t, 2 x)$. No scaling of its rows tells a small t from the
1 beside it: where outcomes are measured in millionths, t is lost in the last digits. The sum and the difference of the
first two rows are the sides of a product, here a cone of the kind `rotated`: $(2, 2 t, 2 x)$, in which each side may be
measured in its own unit as long as x has the root of their product. In these units it is a second-order cone again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.solvers.program import Cone, ConicProgram


def products(A: sp.csr_array, b: Array, cones: Sequence[Cone]) -> list[int]:
    """The second-order cones, by their places in the list, whose first two rows are a sum and a difference.

    Examples
    --------
    >>> A = sp.csr_array(np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -2.0]]))
    >>> products(A, np.array([1.0, 1.0, 0.0]), [Cone("soc", 3)])
    [0]
    """
    places, start = [], 0
    for k, cone in enumerate(cones):
        if cone.kind == "soc" and cone.size > 2:
            total, difference = (np.append(A[[start + i]].toarray().ravel(), b[start + i]) for i in (0, 1))
            is_there = total != 0
            if ((total == difference) & is_there).any() and ((total == -difference) & is_there).any():
                places.append(k)
        start += cone.n_rows
    return places


def rotation(cones: Sequence[Cone], chosen: Iterable[int], factor: float = 1.0) -> sp.csr_array:
    """The map of rows that replaces the first two of each chosen cone by their sum and difference, times a factor."""
    size, starts = sum(cone.n_rows for cone in cones), np.cumsum([0, *(cone.n_rows for cone in cones)])
    first = np.array([starts[k] for k in chosen], dtype=np.int64)
    others = np.setdiff1d(np.arange(size), np.concatenate([first, first + 1]))
    rows = np.concatenate([others, first, first, first + 1, first + 1])
    columns = np.concatenate([others, first, first + 1, first, first + 1])
    one = np.full(len(first), factor)
    entries = np.concatenate([np.ones(len(others)), one, one, one, -one])
    return sp.csr_array((entries, (rows, columns)), shape=(size, size))


def with_products(program: ConicProgram) -> ConicProgram:
    """The program with `rotated` cones where second-order cones are products."""
    chosen = products(program.A, program.b, program.cones)
    if not chosen:
        return program
    turn = rotation(program.cones, chosen)
    A = sp.csr_array(turn @ program.A)
    A.eliminate_zeros()
    A.sort_indices()
    return replace(program, A=A, b=turn @ program.b, cones=as_rotated(program.cones, chosen))


def without_products(program: ConicProgram) -> ConicProgram:
    """The program with second-order cones alone, where `with_products` makes the same of it to the last bit.

    So files can be read by what knows no products.
    """
    plain = SecondOrder(program.cones).of(program)
    if plain is program:
        return program
    plain.A.eliminate_zeros()
    again = with_products(plain)
    is_same = again.cones == program.cones and np.array_equal(again.b, program.b)
    return plain if is_same and np.array_equal(again.A.toarray(), program.A.toarray()) else program


def as_rotated(cones: Sequence[Cone], chosen: Iterable[int]) -> tuple[Cone, ...]:
    """The cones with other names for the chosen ones."""
    among = set(chosen)
    return tuple(replace(cone, kind="rotated") if k in among else cone for k, cone in enumerate(cones))


class SecondOrder:
    """Programs with these cones as solvers take them: with second-order cones instead of products."""

    def __init__(self, cones: Sequence[Cone]) -> None:
        chosen = [k for k, cone in enumerate(cones) if cone.kind == "rotated"]
        self.turn = rotation(cones, chosen, 0.5) if chosen else None
        self.cones = tuple(replace(cone, kind="soc") if cone.kind == "rotated" else cone for cone in cones)

    def matrix(self, A: sp.csr_array) -> sp.csr_array:
        """The rows of a matrix; the pattern of stored entries follows from that of A alone, zeros stay in it."""
        if self.turn is None:
            return A
        # A product of sparse matrices leaves out what comes to 0, where another parameter's entry may not be 0.
        stored = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
        turned = sp.csr_array(abs(self.turn) @ stored)
        turned.sort_indices()
        rows = np.repeat(np.arange(turned.shape[0]), np.diff(turned.indptr))
        entries = np.asarray(sp.csr_array(self.turn @ A)[rows, turned.indices]).ravel()
        return sp.csr_array((entries, turned.indices, turned.indptr), shape=turned.shape)

    def limits(self, b: Array) -> Array:
        """Right-hand sides."""
        return b if self.turn is None else np.asarray(self.turn @ b)

    def multipliers(self, y: Array) -> Array:
        """Multipliers of the rows as they were."""
        return y if self.turn is None else np.asarray(self.turn.T @ y)

    def of(self, program: ConicProgram) -> ConicProgram:
        """The whole program."""
        if self.turn is None:
            return program
        return replace(program, A=self.matrix(program.A), b=self.limits(program.b), cones=self.cones)
