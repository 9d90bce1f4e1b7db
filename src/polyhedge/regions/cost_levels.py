"""Outcomes by what one decision costs there, and one of them that shows what its bound means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._validation import Array, Mask, as_rows
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Volume
from polyhedge.sets.region import TOLERANCE
from polyhedge.solvers.program import ConicForm

_BY_FORMULA = (
    "The cost of this problem is known by its formula alone, so that its region tells which outcomes it contains and "
    'has no facets, support or volume. Use guarantee="outcome" for a set of outcomes.'
)


@dataclass(frozen=True, eq=False)
class CostLevels:
    r"""$\{u : g(z, u) \le r\}$ for one decision z (p,), where the cost is known by its formula alone.

    A problem with parameters has their values in it. Outcomes at which an uncertain constraint does not hold, or the
    formula has no value, are in no level.
    """

    problem: DecisionProblem
    z: Array
    is_bounded: ClassVar[bool] = False

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the outcomes."""
        return self.problem.n_outcomes

    def scores(self, residuals: ArrayLike) -> Array:
        """The cost (n,) at each outcome (n, d), as seen from zero."""
        outcomes = as_rows(residuals, "outcomes", self.n_outcomes)
        return costs_at(self.problem, self.z, outcomes)

    def contains(self, residuals: ArrayLike, radius: float) -> Mask:
        """Whether each outcome (n, d) costs at most `radius`."""
        return np.asarray(self.scores(residuals) <= radius)

    def support(self, directions: ArrayLike, radius: float) -> NoReturn:
        """A ValueError: nothing is known beside costs at single outcomes."""
        raise ValueError(_BY_FORMULA)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = 0) -> Volume:
        """A ValueError, as for `support`."""
        raise ValueError(_BY_FORMULA)

    def conic_form(self, radius: float) -> ConicForm:
        """A ValueError, as for `support`."""
        raise ValueError(_BY_FORMULA)


def costs_at(problem: DecisionProblem, z: Array, outcomes: Array, values: Array | None = None) -> Array:
    """The cost (n,) of one decision (p,) at outcomes (n, d); infinite where it breaks a constraint or has no cost."""
    rows = np.tile(z, (len(outcomes), 1)), outcomes, None if values is None else np.tile(values, (len(outcomes), 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        costs, is_kept = problem.evaluate(*rows), (problem.violations(*rows) == 0).all(axis=1)
    return np.where(is_kept & np.isfinite(costs), costs, np.inf)


def dearest_within(problem: DecisionProblem, z: Array, bound: float, outcomes: Array, values: Array) -> Array:
    """Of outcomes (n, d) that can come, the dearest (d,) at which the bound of this decision holds; NaN without one."""
    A, limit = problem.support_rows
    if len(A):
        outcomes = outcomes[(outcomes @ A.T <= limit + TOLERANCE * (1 + np.abs(limit))).all(axis=1)]
    costs = costs_at(problem, z, outcomes, values) if len(outcomes) else np.zeros(0)
    costs = np.where(np.isfinite(costs) & (costs <= bound), costs, -np.inf)
    if not np.isfinite(costs).any():
        return np.full(problem.n_outcomes, np.nan)
    return np.asarray(outcomes[int(costs.argmax())])
