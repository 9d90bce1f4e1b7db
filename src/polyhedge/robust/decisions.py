"""Robust decisions of many contexts and what proves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyhedge._validation import Array, Indices
from polyhedge.problems.layout import Layout
from polyhedge.robust.along_segment import BLOCK
from polyhedge.sets import Polyhedron, UncertaintySet
from polyhedge.solvers.program import TOLERANCE, Status, status_at


@dataclass(frozen=True)
class Decisions:
    """Robust decisions for N contexts and what proves them.

    Attributes
    ----------
    flat : (N, p)
        All variables, row-major and one after the other, with auxiliary ones of the cost behind the decision's own.
        `z` is the decision as it was declared; `decisions["power"]` is the variable of that name, (N, ...).
        NaN where there is no decision. Where several are optimal, which of them is returned may depend on the other
        contexts of the call; the bound does not.
    cost_bound : (N,)
        Worst-case cost over the set: the realised cost is below it whenever the outcome is in the set.
    worst_outcome : (N, n_outcomes)
        An outcome of the set at which the bound is attained.
    active_facets : (N, n_facets) of bool
        Facets of a polyhedral set that are tight at the worst outcome (no columns for other sets).
    status : (N,) of Status
        How each solve ended.
    gap : (N,)
        Proven distance between the bound and the least possible worst-case cost.
    detail : N texts that explain the status, or none where there is nothing to explain.
    layout : where each variable stands in `flat`.
    """

    flat: Array
    cost_bound: Array
    worst_outcome: Array
    active_facets: NDArray[np.bool_]
    status: NDArray[np.object_]
    gap: Array
    layout: Layout
    detail: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        nameless = [i for i in np.flatnonzero(np.isnan(self.cost_bound)) if self.status[i].has_solution]
        if nameless:  # whatever a solver said: without a bound nothing is proven
            status = self.status.copy()
            status[nameless] = Status.FAILED
            object.__setattr__(self, "status", status)

    @property
    def z(self) -> Array:
        """The decisions: (N, ...) of one variable (scalars as (N, 1)), (N, p) of several, side by side."""
        return self.layout.given(self.flat)

    def __getitem__(self, name: str) -> Array:
        """The variable of this name, (N, ...): one of the decision, or an auxiliary one of the cost."""
        if not isinstance(name, str):
            raise TypeError(f"Decisions are looked up by the name of a variable, got {name!r}. Index z by rows.")
        return self.layout.of(self.flat, name)

    def __len__(self) -> int:
        return len(self.cost_bound)

    @property
    def is_optimal(self) -> NDArray[np.bool_]:
        """Which decisions are proven optimal."""
        return np.asarray(self.status == Status.OPTIMAL, dtype=bool)

    def complaint(self) -> str:
        """What went wrong in which share of the contexts; empty if nothing did."""
        counts = Counter(str(status) for status in self.status[~self.is_optimal])
        parts = [f"{count} of {len(self)} decisions: {message}" for message, count in counts.most_common()]
        details = sorted({text for text in self.detail if text})
        return ". ".join(parts + details[:3])


def joined(parts: Sequence[Decisions], rows: Sequence[Indices]) -> Decisions:
    """Decisions for parts of the contexts, put together: part k has the contexts rows[k]."""
    back = np.argsort(np.concatenate(rows), kind="stable")
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])[back]
        for name in ("flat", "cost_bound", "worst_outcome", "active_facets", "status", "gap")
    }
    texts = [text for part in parts for text in (part.detail or ("",) * len(part))]
    return Decisions(**arrays, layout=parts[0].layout, detail=tuple(texts[i] for i in back) if any(texts) else ())


def statuses(gaps: Array, sizes: Array) -> NDArray[np.object_]:
    """The status of each context by its gap and the size of its costs, see `status_at`."""
    status = all_optimal(len(gaps))
    for i in np.flatnonzero(~(gaps <= TOLERANCE * sizes)):
        status[i] = status_at(float(gaps[i]), float(sizes[i]))
    return status


def all_optimal(n: int) -> NDArray[np.object_]:
    """The status of N contexts that are all proven optimal."""
    status = np.empty(n, dtype=object)
    status.fill(Status.OPTIMAL)
    return status


def tight_facets(
    shape: UncertaintySet, radius: float, points: Array, centers: Array | None = None
) -> NDArray[np.bool_]:
    """Facets of a polyhedron that are tight at residuals (or outcomes around centers); block by block."""
    if not isinstance(shape, Polyhedron):
        return np.zeros((len(points), 0), dtype=bool)
    limit, length = radius - shape.b, np.linalg.norm(shape.W, axis=1)
    # Near is what is near beside the usual distance of a facet from the origin.
    enough = limit - 1e-7 * (np.abs(limit) + length * np.median(np.abs(limit) / length))
    tight = np.empty((len(points), len(limit)), dtype=bool)
    # Comparing two arrays of one shape is several times faster than comparing short rows with one.
    enough = np.tile(enough, (min(BLOCK, len(points)), 1))
    for k in range(0, len(points), BLOCK):
        block = points[k : k + BLOCK]
        reached = (block if centers is None else block - centers[k : k + BLOCK]) @ shape.W.T
        np.greater_equal(reached, enough[: len(block)], out=tight[k : k + BLOCK])
    return tight
