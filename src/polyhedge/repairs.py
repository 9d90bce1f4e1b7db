"""Second decisions of a problem with recourse, once the outcomes are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import as_frame, as_html, distinct_names
from polyhedge._support.text import amount, counted, with_unit
from polyhedge._support.tolerances import CANCELLATION, SOLVED
from polyhedge._support.validation import Array, Mask
from polyhedge.decisions import Decisions, Labels, all_optimal
from polyhedge.problems import DecisionProblem
from polyhedge.problems.layout import Layout, entry_names
from polyhedge.solvers.program import Status

_SHOWN = 10
"""Rows of a table for readers."""


@dataclass(frozen=True)
class Repairs:
    """The best second decisions for N outcomes, and what both decisions cost.

    `repairs["moved"]` is a recourse variable by its name, `repairs[2:5]` are some rows, and `to_frame` has everything.

    Attributes
    ----------
    flat : (N, q)
        All recourse variables, row-major and one after the other, with undeclared ones behind; NaN without a decision.
    first_cost, second_cost : (N,)
        Realised costs of both stages. The second is infinite where no second decision meets the constraints.
    cost_bound : (N,)
        Bounds that the first decisions came with, on both costs together.
    status : (N,) of Status
        "infeasible" where no second decision meets the constraints.
    layout : where each variable stands in `flat`.
    labels : what rows and columns are called, where it is known.
    """

    flat: Array
    first_cost: Array
    second_cost: Array
    cost_bound: Array
    status: NDArray[np.object_]
    layout: Layout
    labels: Labels | None = None

    @property
    def y(self) -> Array:
        """The declared second decisions: (N, ...) of one variable, (N, q) of several, side by side."""
        return self.layout.given(self.flat)

    @property
    def cost(self) -> Array:
        """What both decisions cost together (N,)."""
        return self.first_cost + self.second_cost

    @property
    def is_within(self) -> Mask:
        """Whether the cost of both decisions kept to its bound (N,)."""
        slack = SOLVED * np.abs(np.where(np.isfinite(self.second_cost), self.second_cost, 0.0))
        slack += CANCELLATION * np.abs(np.where(np.isfinite(self.cost_bound), self.cost_bound, 0.0))
        return np.asarray(self.cost <= self.cost_bound + slack)

    def __len__(self) -> int:
        return len(self.first_cost)

    def __getitem__(self, key: Any) -> Any:
        """A variable by its name (N, ...), or the repairs of some rows."""
        return self.layout.of(self.flat, key) if isinstance(key, str) else self.take(np.arange(len(self))[key])

    def take(self, rows: Any) -> Self:
        """The repairs of some rows, in this order."""
        rows = np.atleast_1d(rows)
        names = ("flat", "first_cost", "second_cost", "cost_bound", "status")
        labels = self.labels
        if labels is not None and labels.index is not None:
            labels = replace(labels, index=labels.index[rows])
        return replace(self, **{name: getattr(self, name)[rows] for name in names}, labels=labels)

    def to_frame(self, backend: str | None = None) -> Any:
        """Second decisions by name, costs of both stages and together, the bound, whether it held, and the status."""
        columns = [*self.flat[:, : self.layout.given_size].T, self.first_cost, self.second_cost, self.cost]
        columns += [self.cost_bound, self.is_within, np.array([str(s).partition(":")[0] for s in self.status], object)]
        heads = ["first_cost", "second_cost", "cost", "cost_bound", "is_within", "status"]
        names = distinct_names([*entry_names(self.layout), *heads])
        frame, index = ("pandas", None) if self.labels is None else (self.labels.frame, self.labels.index)
        return as_frame(dict(zip(names, columns, strict=True)), backend or frame, index)

    def complaint(self) -> str:
        """How many rows have no second decision; empty if all have one."""
        n = int((self.status == Status.INFEASIBLE).sum())
        rows = ", ".join(str(i) for i in np.flatnonzero(self.status == Status.INFEASIBLE)[:5])
        return f"{n} of {len(self)} rows have no feasible second decision, the first at {rows}" if n else ""

    @property
    def text(self) -> str:
        """Rows, mean cost and how many kept to their bounds, in a line."""
        unit = "" if self.labels is None else self.labels.units.get("cost", "")
        there = self.cost[np.isfinite(self.cost)]
        cost = f", mean cost {amount(f'{there.mean():.4g}', unit)}" if len(there) else ""
        return f"{counted(len(self), 'row')}{cost}, {int(self.is_within.sum())} within their bounds"

    def __repr__(self) -> str:
        return f"<Repairs: {self.text}>"

    def _repr_html_(self) -> str:
        shown = self[:_SHOWN].to_frame("pandas")
        unit = "" if self.labels is None else self.labels.units.get("cost", "")
        shown.columns = [with_unit(name, unit if "cost" in name else None) for name in shown.columns]
        return as_html(f"Second decisions: {self.text}.", shown, "to_frame() has all." if len(self) > _SHOWN else "")


def repair(problem: DecisionProblem, decisions: Decisions, outcomes: Array, values: Array) -> Repairs:
    """The best second decision of each row for its outcome (N, d) and values (N, t) of the parameters.

    Each depends on its own row alone.
    """
    layout, z, n = problem.recourse_layout, decisions.flat, len(decisions)
    if decisions.layout != problem.layout:
        raise ValueError("repair needs decisions of its own problem, got those of another: their variables differ.")
    decided = np.flatnonzero(np.isfinite(z).all(axis=1))
    flat, first, second = np.full((n, layout.size), np.nan), np.full(n, np.nan), np.full(n, np.nan)
    status = all_optimal(n)
    status.fill(Status.NOT_DECIDED)
    at = z[decided], outcomes[decided], values[decided]
    found = problem.answers(*at)
    flat[decided], second[decided] = found.y, found.costs
    first[decided] = problem.first_stage.evaluate(*at)
    status[decided] = [Status.INFEASIBLE if np.isposinf(cost) else Status.OPTIMAL for cost in found.costs]
    return Repairs(flat, first, second, decisions.cost_bound, status, layout, decisions.labels)


def as_decisions(problem: DecisionProblem, z: Array, bounds: Array) -> Decisions:
    """Decisions from a table: entries of the declared variables (N, p), and their bounds (N,)."""
    if problem.layout.size > problem.layout.given_size:
        raise ValueError(
            "A table of decisions does not have the auxiliary variables of this problem. Declare them as decisions, or "
            "call repair in Python with what decide returned."
        )
    nothing, status = np.full((len(z), problem.n_outcomes), np.nan), all_optimal(len(z))
    return Decisions(z, bounds, nothing, status, np.zeros(len(z)), problem.layout)


def same_rows(decisions: Any, n: int, index: Any = None) -> Decisions:
    """Decisions for n rows with this index, where it is known, as `decide` returned them."""
    if not isinstance(decisions, Decisions):
        raise TypeError(
            f"repair takes what decide returned for these rows, got {type(decisions).__name__}. For decisions of your "
            "own pass bound(X, z)."
        )
    own = None if decisions.labels is None else decisions.labels.index
    if own is not None and index is not None and len(own) == n and not np.array_equal(own, index):
        raise ValueError("repair needs the decisions of these very rows, got others by their index. Select the same.")
    if len(decisions) != n:
        raise ValueError(f"repair needs a decision for each of the {n} rows, got {len(decisions)}. Select them first.")
    return decisions
