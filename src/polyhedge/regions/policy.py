"""`Policy`: the base class of policies, rows -> decisions and planned costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import Decisions, as_statuses
from polyhedge.problems import DecisionProblem
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.solvers.program import Status


@dataclass(frozen=True, eq=False)
class PlannedDecisions:
    """What a policy decides at N rows.

    Attributes
    ----------
    z : (N, p) decisions, flat as in `Decisions.flat`; NaN for a row without one.
    v : (N,) planned costs, finite for rows with a decision.
    status : (N,) of Status; FINISHED for a policy that is not optimal in any sense.
    detail : N texts, or none.
    expected : (N,) mean costs that the policy expects of its decisions; None if it expects none.
    """

    z: Array
    v: Array
    status: NDArray[np.object_]
    detail: tuple[str, ...] = ()
    expected: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", as_statuses(self.status, len(self.v)))

    @property
    def has_decision(self) -> Mask:
        """Rows with a decision and a planned cost (N,)."""
        return np.asarray(np.isfinite(self.z).all(axis=1) & np.isfinite(self.v))

    def decisions(self, problem: DecisionProblem, bounds: Array) -> Decisions:
        """The decisions with these bounds (N,); no facet binds, and no single outcome is the worst."""
        n = len(bounds)
        return Decisions(
            flat=self.z,
            cost_bound=bounds,
            worst_outcome=np.full((n, problem.n_outcomes), np.nan),
            status=self.status,
            gap=np.where(np.isfinite(bounds) & (self.status != Status.STOPPED_EARLY), 0.0, np.inf),
            layout=problem.layout,
            detail=self.detail if any(self.detail) else (),
            expected_cost=self.expected,
        )

    def take(self, rows: Indices) -> Self:
        """The decisions of some of the rows."""
        detail = tuple(self.detail[i] for i in rows) if self.detail else ()
        expected = None if self.expected is None else self.expected[rows]
        return type(self)(self.z[rows], self.v[rows], self.status[rows], detail, expected)


class Policy:
    """A decision z(x) and a planned cost v(x) for each row.

    A policy of your own is a frozen dataclass that inherits this class and defines `kind` and `decide`. Its decisions
    are functions of the row alone: not of the other rows of the call, a warm start or a thread. It has seen training
    and learning rows only, and so has whatever selected it. A row without a decision has NaN in z; it scores +infinity
    when it calibrates, and has no bound later.
    """

    if TYPE_CHECKING:

        @property
        def kind(self) -> str:
            """What a file calls it."""

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
        """Decisions at N rows, by features, predictions (N, d) and flat values (N, t) of the problem's parameters."""
        raise NotImplementedError(f"{type(self).__name__} must define decide(features, centers, values, work).")

    def outcomes(self, features: Any, centers: Array) -> Iterable[Array] | None:
        """Row by row the outcomes (n, d) that the policy holds possible; None if it does not say."""
        return None


class DevelopedPolicy(Policy):
    """A policy that was selected on development rows."""

    if TYPE_CHECKING:  # subclasses have it as a field

        @property
        def report(self) -> Any:
            """How it was selected, a `polyhedge.planning.PolicyReport`."""

    def refitted(self, rows: Any, seed: int) -> Self:
        """The same from other development rows, `polyhedge.planning.DevelopmentRows`: nothing is selected again."""
        raise NotImplementedError(f"{type(self).__name__} must define refitted(rows, seed).")
