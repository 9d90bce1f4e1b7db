"""A convex program as arrays, and what a solver found out about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Array, Indices


class SolverError(RuntimeError, ValueError):
    """A solver has no answer to a question that has one, mostly because numbers are too far apart in size.

    It is a ValueError too: what brings it about is the numbers that were handed in.
    """


class Status(StrEnum):
    """How a solve ended; each value is the message a user sees.

    Examples
    --------
    >>> Status.OPTIMAL == "optimal", Status.INFEASIBLE.has_solution
    (True, False)
    """

    OPTIMAL = "optimal"
    FINISHED = "finished: all steps were taken, without a proof that nothing is better"
    STOPPED_EARLY = "stopped early: the best point found is returned with its gap"
    INFEASIBLE = "infeasible: no decision satisfies the constraints"
    UNBOUNDED = "unbounded: the cost can be lowered without limit"
    UNBOUNDED_SET = "unbounded set: the worst-case cost is infinite for every decision"
    EMPTY_SET = "empty set: the uncertainty set and the known support of the outcome do not meet"
    REFUSED = "refused: no policy keeps what would be promised"
    NOT_DECIDED = "not decided: a value that the row needs is missing or cannot be used"
    FAILED = "failed: the solver could not solve the problem"

    @property
    def has_solution(self) -> bool:
        """Whether a feasible point comes with this status."""
        return self in (Status.OPTIMAL, Status.FINISHED, Status.STOPPED_EARLY)


def status_at(gap: float, size: float, tolerance: float = OPTIMAL) -> Status:
    """OPTIMAL if the gap is within the tolerance, as a share of `size`; the only place that says so.

    Examples
    --------
    >>> status_at(1e-9, 1.0).name, status_at(1e-3, 1.0).name
    ('OPTIMAL', 'STOPPED_EARLY')
    """
    return Status.OPTIMAL if np.isfinite(gap) and gap <= tolerance * size else Status.STOPPED_EARLY


@dataclass(frozen=True)
class Cone:
    """A block of consecutive rows and the cone their slack lies in.

    Kinds: `zero` (equations), `nonneg` (inequalities), `soc` (first entry bounds the norm of the
    others), `rotated` (the product of the first two, which are not negative, bounds the square of that norm), and, for
    feasible sets a user writes, `exp`, `psd` (order in `size`) and `pow`.
    """

    kind: str
    size: int
    exponent: float = 0.5

    @property
    def n_rows(self) -> int:
        """Rows that the block occupies (a `psd` block stores a triangle)."""
        return self.size * (self.size + 1) // 2 if self.kind == "psd" else self.size


def row_kinds(cones: Iterable[Cone]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """The kind of cone that each row of a stack belongs to.

    Examples
    --------
    >>> row_kinds([Cone("zero", 1), Cone("soc", 2)]).tolist()
    ['zero', 'soc', 'soc']
    """
    return np.array([kind for cone in cones for kind in [cone.kind] * cone.n_rows], dtype="<U7")


def as_slice(rows: Indices) -> slice | Indices:
    """Rows that follow each other as a slice, which copies nothing where it is taken; others as they are.

    Examples
    --------
    >>> as_slice(np.array([2, 3, 4])), as_slice(np.array([2, 4]))
    (slice(2, 5, None), array([2, 4]))
    """
    first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
    is_run = last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return slice(first, last + 1) if is_run else rows


@dataclass(frozen=True)
class ConicForm:
    r"""A convex set by linear maps and cones: $\{e : \exists y,\ g - G\,[e; y] \in K\}$.

    `G` has `n_outcomes` columns for e, then one for each auxiliary y.
    """

    G: sp.csr_array
    g: Array
    cones: tuple[Cone, ...]


@dataclass(frozen=True)
class ConicProgram:
    r"""Minimise $\tfrac12 x^\top P x + c^\top x + \text{offset}$ subject to $b - A x \in K$, $x_I$ integer."""

    c: Array
    A: sp.csr_array
    b: Array
    cones: tuple[Cone, ...]
    P: sp.csr_array | None = None
    offset: float = 0.0
    integer: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def is_linear(self) -> bool:
        """Whether objective and cones are linear, so that a simplex solver applies."""
        return self.P is None and all(cone.kind in ("zero", "nonneg") for cone in self.cones)


@dataclass(frozen=True)
class Solution:
    """A point with its evidence: `y` are the duals of the rows, `gap` is upper minus lower bound.

    `size` is that of the costs at stake: OPTIMAL says that the gap is at most `OPTIMAL` times as large. `n_nodes`
    counts the nodes of a mixed-integer search, `broken` is by how much a limit is broken, as a share of its terms.
    """

    x: Array
    y: Array
    value: float
    status: Status
    gap: float = 0.0
    detail: str = ""
    size: float = np.nan
    broken: float = 0.0
    n_nodes: int = 0
