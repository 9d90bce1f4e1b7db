"""Outcomes by what one decision costs there, and one of them that shows what its bound means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from polyhedge._support.tolerances import INSIDE
from polyhedge._support.validation import Array, as_rows
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.sets import Region, Shape
from polyhedge.solvers.linear import recession_direction
from polyhedge.solvers.program import ConicForm
from polyhedge.solvers.scaling import SecondOrder

_NO_VOLUME = (
    "The cost of this problem is known by its formula alone, so that its region has no volume. Use "
    'guarantee="outcome" for a set of outcomes.'
)
_NO_SUPPORT = (
    "The cost of this problem is known by its formula alone, which is not convex in the outcome, or has other terms "
    "than squares and norms. So its region tells by contains which outcomes it holds, not how far it reaches nor "
    "whether it ends or is empty. With an outcome_support that bounds all outcomes it is bounded; or use "
    'guarantee="outcome" for a set of outcomes.'
)
_CONES = {"zero", "nonneg", "soc"}
"""Cones of sets: a region of others is as little known as one that is not convex."""


@dataclass(frozen=True, eq=False)
class CostLevels(Shape):
    r"""$\{u : g(z, u) \le r\}$ for one decision z (p,), where the cost is known by its formula alone.

    A problem with parameters has their values in it. Outcomes at which an uncertain constraint does not hold, or the
    formula has no value, are in no level. Where the formula is convex in the outcome, levels are sets with a support.
    """

    problem: DecisionProblem
    z: Array

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the outcomes."""
        return self.problem.n_outcomes

    @property
    def is_bounded(self) -> bool:
        """False: a cost need not grow in every direction."""
        return False

    def scores(self, residuals: ArrayLike) -> Array:
        """The cost (n,) at each outcome (n, d)."""
        return costs_at(self.problem, self.z, as_rows(residuals, "outcomes", self.n_outcomes))

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = 0) -> NoReturn:
        """A ValueError: costs at single outcomes do not tell it."""
        raise ValueError(_NO_VOLUME)

    def conic_form(self, radius: float) -> ConicForm:
        """Arrays of the level where the formula is convex in the outcome; a ValueError elsewhere."""
        problem, d = self.problem, self.n_outcomes
        u = cp.Variable(d, nonneg=problem.outcomes_are_nonneg)
        cost = problem.cost_at(problem.with_known_signs(self.z, np.zeros(d))[0], u)
        if not cost.is_convex():
            raise ValueError(_NO_SUPPORT)
        W, h = facets_of_constraints(problem, self.z[None])
        feasible = compile_feasible_program(u, cp.Constant(0.0), [cost <= radius, *([W @ u <= h] if len(W) else [])])
        program, columns = SecondOrder(feasible.program.cones).of(feasible.program), feasible.z_columns
        if {cone.kind for cone in program.cones} - _CONES:
            raise ValueError(_NO_SUPPORT)
        order = np.concatenate([columns, np.setdiff1d(np.arange(program.A.shape[1]), columns)])
        return ConicForm(sp.csr_array(program.A[:, order]), program.b, program.cones)


class CostRegion(Region):
    """The outcomes at which a decision keeps its promise: a polyhedron of outcomes, or levels of a cost.

    It counts from zero, not from the `prediction`, which it need not contain.
    """

    prediction: Array

    def __init__(self, problem: DecisionProblem, shape: Shape, prediction: Array, bound: float = 0.0) -> None:
        A, known = problem.support_rows
        super().__init__(shape, bound, np.zeros(problem.n_outcomes), *((A, known) if len(A) else ()))
        object.__setattr__(self, "prediction", prediction)

    def __repr__(self) -> str:
        what = f"outcomes at which a decision costs at most {self.radius:.4g}"
        if self._has_facets:
            n, d = len(self.W), self.n_outcomes
            what = f"{n} half-space{'s' if n > 1 else ''} of {d} outcome{'s' if d > 1 else ''}"
        return f"<Region: {what}, {self._extent()}>"

    def _extent(self) -> str:
        """Whether it ends, in words: a repr answers where `is_bounded` cannot."""
        try:
            if not self.is_bounded:
                return "unbounded"
            return "empty" if self.is_empty else "bounded"
        except ValueError:
            is_within = self.support_W is not None and recession_direction(self.support_W) is None
            return "bounded" if is_within else "perhaps unbounded"

    @property
    def _middle(self) -> Array:
        return self.prediction


def facets_of_constraints(problem: DecisionProblem, z: Array) -> tuple[Array, Array]:
    """W (k, d) and h (k,): where W u <= h, the decision z (1, p) keeps all uncertain constraints."""
    nothing, W, h = np.zeros((1, problem.n_outcomes)), [np.zeros((0, problem.n_outcomes))], [np.zeros(0)]
    for pieces, part in zip(problem.uncertain_rows, problem.row_parts(z[0]), strict=True):
        W.append(pieces.directions(z)[0])
        h.append(-part - pieces.values(z, nothing)[0])
    return np.vstack(W), np.concatenate(h)


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
        outcomes = outcomes[(outcomes @ A.T <= limit + INSIDE * (1 + np.abs(limit))).all(axis=1)]
    costs = costs_at(problem, z, outcomes, values) if len(outcomes) else np.zeros(0)
    costs = np.where(np.isfinite(costs) & (costs <= bound), costs, -np.inf)
    if not np.isfinite(costs).any():
        return np.full(problem.n_outcomes, np.nan)
    return np.asarray(outcomes[int(costs.argmax())])
