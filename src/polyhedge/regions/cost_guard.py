r"""The guard of a policy: $C_r(x) = \{u : g(z(x), u) \le v(x) + r\}$, cut by the constraints that hold for z(x).

A policy fixes for each row the decision z(x) and a planned cost v(x), both made from training and learning rows only.
The score of an outcome is the excess of the decision's cost over its planned cost, so that one conformal radius bounds
the cost of exactly the decision that is taken: $P\{g(z(X), Y) \le v(X) + r\} \ge 1 - \alpha$. Recalibration moves the
bound and not the decision. For a cost that is a maximum of affine pieces the region is a polyhedron, often unbounded:
it is open towards outcomes that cannot hurt this decision. The bound of another may be infinite.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, Self

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import INSIDE, ROUNDING
from polyhedge._support.validation import Array, Indices, as_rows
from polyhedge.decisions import Decisions
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.regions.family import (
    DEFAULT_WORK,
    DevelopedPolicy,
    PlannedDecisions,
    Policy,
    RegionFamily,
    Regions,
    Work,
)
from polyhedge.regions.learned_set import LearnedSet, SetPolicy
from polyhedge.robust.recourse import BothStages
from polyhedge.robust.threads import one_blas_thread
from polyhedge.sets import Polyhedron, Region, Shape
from polyhedge.solvers.linear import recession_direction
from polyhedge.solvers.program import ConicForm, SecondOrder

_NO_DECISION = (
    "the policy has no decision, or one that breaks a constraint. Such rows have no bound, and no more than a share "
    "alpha may be such. Let the policy give decisions there that keep all constraints, relax these, raise alpha or "
    "calibrate on more rows."
)
_NO_SECOND_DECISION = (
    "the policy has no decision, or its second stage is infeasible: no second decision meets recourse_constraints. No "
    "more than a share alpha may be such. Relax recourse_constraints, or add a recourse variable that is expensive and "
    "always feasible."
)
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


@stored("cost guard")
@dataclass(frozen=True, eq=False)
class CostGuard(RegionFamily):
    """The regions in which a planned decision costs no more than planned plus the radius.

    Attributes
    ----------
    problem, predictor, policy : what is decided, and how.
    """

    problem: DecisionProblem
    predictor: Predictor
    policy: Policy
    kind: ClassVar[str] = "guard"
    guarantee: ClassVar[str] = "cost"
    made_of: ClassVar[str] = "a policy, whose cost is bounded"
    promise: ClassVar[str] = "the cost of the planned decision is at most its bound"
    scores_need_parameters: ClassVar[bool] = True
    scores_are_costs: ClassVar[bool] = True

    @property
    def why_infinite(self) -> str:
        """What holds of calibration rows without a finite cost, and what to do."""
        return _NO_SECOND_DECISION if self.problem.has_recourse else _NO_DECISION

    @property
    def trains_on_learning_rows(self) -> bool:
        """Whether the predictor has seen learning rows: it has unless the policy decides over sets."""
        return self.sets is None

    @property
    def takes_columns(self) -> bool:
        """Whether all that the policy looks at takes `ReadColumns`."""
        return self.policy.takes_columns

    @property
    def sets(self) -> LearnedSet | None:
        """The learned sets that the policy decides over; None if it decides by something else."""
        return self.policy.sets if isinstance(self.policy, SetPolicy) else None

    def set_radius(self, radius: float) -> float:
        """The radius at which the policy's set decides, whatever the calibrated one is."""
        if not isinstance(self.policy, SetPolicy):
            raise self.no_set()
        return self.policy.radius

    @property
    def report(self) -> Any:
        """How the policy was selected; None if it was not."""
        return self.policy.report if isinstance(self.policy, DevelopedPolicy) else None

    def refitted(self, predictor: Predictor, rows: Any, seed: int) -> RegionFamily:
        """The guard of the policy that newer rows develop."""
        if not isinstance(self.policy, DevelopedPolicy):
            return super().refitted(predictor, rows, seed)
        return replace(self, predictor=predictor, policy=self.policy.refitted(rows, seed))

    def moved(self, predictor: Predictor) -> RegionFamily:
        """The guard of the same decisions over its sets, around another predictor."""
        if not isinstance(self.policy, SetPolicy):
            return super().moved(predictor)
        return replace(self, predictor=predictor, policy=replace(self.policy, sets=self.policy.sets.moved(predictor)))

    def scenarios(self, features: Any, centers: Array) -> Iterable[Array] | None:
        """The scenarios of the policy's residual distribution."""
        return self.policy.outcomes(features, centers)

    def at(self, features: Any, values: Array | None = None, work: Work = DEFAULT_WORK) -> GuardRegions:
        """Planned decisions at these rows."""
        centers = self.predictor.predict(features)
        known = np.zeros((len(centers), 0)) if values is None else values
        with one_blas_thread():
            planned = self.policy.decide(features, centers, known, work)
        return GuardRegions(self.problem, centers, known, planned)


@dataclass(frozen=True, eq=False)
class GuardRegions(Regions):
    """Planned decisions of N rows, with flat values (N, t) of the problem's parameters."""

    problem: DecisionProblem
    centers: Array
    values: Array
    planned: PlannedDecisions

    def scores(self, outcomes: Array) -> Array:
        """Cost minus planned cost (N,); infinite without a decision, or if a constraint is broken."""
        scores, rows = np.full(len(outcomes), np.inf), np.flatnonzero(self.planned.has_decision)
        at = self.planned.z[rows], outcomes[rows], self.values[rows]
        excess = self.problem.evaluate(*at) - self.planned.v[rows]
        scores[rows] = np.where((self.problem.violations(*at) == 0).all(axis=1), excess, np.inf)
        return scores

    def radii_of(self, bounds: Array, own: Array) -> Array:
        """Bound minus planned cost (N,), or the radius in force if that is the same up to rounding.

        A row without a decision has no bound, and no radius covers it.
        """
        has_decision = self.planned.has_decision
        if np.isnan(bounds[has_decision]).any():
            raise ValueError(
                "bounds must be numbers, or infinite where a row had none, got NaN for rows with a decision."
            )
        v, bounds = np.where(has_decision, self.planned.v, 0.0), np.where(has_decision, bounds, 0.0)
        rounding = ROUNDING * (np.abs(np.where(np.isfinite(bounds), bounds, 0.0)) + np.abs(v))
        with np.errstate(invalid="ignore"):  # infinite bounds and radii are the same
            is_own = (v + own == bounds) | (np.abs(v + own - bounds) <= rounding)
        return np.asarray(np.where(is_own, own, bounds - v + rounding))

    def decide(self, radii: Array) -> Decisions:
        """The planned decisions, each with its planned cost plus its radius as the bound."""
        bounds = np.where(self.planned.has_decision, self.planned.v + radii, np.nan)
        return self.planned.decisions(self.problem, bounds)

    def region(self, row: int, radius: float) -> Region:
        """The outcomes at which the decision of one row costs no more than its bound, cut by the known support.

        It is open towards outcomes that cannot hurt this decision: `is_bounded` says so. The region of a cost without
        a list of pieces has no facets; if the cost is not convex in the outcome either, the region knows which
        outcomes it contains and nothing else.
        """
        problem, bound = self.problem.at_values(self.values[row]), float(self.planned.v[row]) + radius
        if not problem.structure.has_pieces:
            return CostRegion(problem, CostLevels(problem, self.planned.z[row]), self.centers[row], bound)
        return region_of_facets(problem, *facets_of_decision(problem, self.planned.z[[row]], bound), self.centers[row])

    def take(self, rows: Indices) -> Self:
        """The decisions of some of the rows."""
        return replace(self, centers=self.centers[rows], values=self.values[rows], planned=self.planned.take(rows))


@dataclass(frozen=True, eq=False)
class CostLevels(Shape):
    r"""$\{u : g(z, u) \le r\}$ for one decision z (p,), of a cost that is known by its formula alone.

    A problem with parameters has their values in it. Outcomes that break an uncertain constraint, or at which the
    formula has no value, are in no level. Levels of a formula that is convex in the outcome have a support function.
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
        """The cost (n,) at each outcome (n, d); infinite if it breaks a constraint or has no cost."""
        outcomes = as_rows(residuals, "outcomes", self.n_outcomes)
        at = np.tile(self.z, (len(outcomes), 1)), outcomes
        with np.errstate(invalid="ignore", divide="ignore"):
            costs, is_kept = self.problem.evaluate(*at), (self.problem.violations(*at) == 0).all(axis=1)
        return np.where(is_kept & np.isfinite(costs), costs, np.inf)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = 0) -> NoReturn:
        """A ValueError: costs at single outcomes do not determine a volume."""
        raise ValueError(_NO_VOLUME)

    def conic_form(self, radius: float) -> ConicForm:
        """Arrays of the level of a formula that is convex in the outcome; a ValueError for others."""
        problem, d = self.problem, self.n_outcomes
        if problem.has_recourse:
            return BothStages(problem).level(self.z, radius, *facets_of_constraints(problem, self.z[None]))
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
            what = f"{n} half-space{'s' if n != 1 else ''} of {d} outcome{'s' if d > 1 else ''}"
        return f"<Region: {what}, {self._extent()}>"

    def _extent(self) -> str:
        """Whether it is bounded, in words: a repr must not raise."""
        try:
            if not self.is_bounded:
                return "unbounded"
            return "empty" if self.is_empty else "bounded"
        except ValueError:
            is_within = self.support_W is not None and recession_direction(self.support_W) is None
            return "bounded" if is_within else "perhaps unbounded"


def facets_of_decision(problem: DecisionProblem, z: Array, bound: float) -> tuple[Array, Array]:
    """W (k, d) and h (k,): if W u <= h, the decision z (1, p) costs at most its bound and keeps all constraints."""
    if not problem.structure.has_pieces:
        raise ValueError(
            "The region of a guard is known for costs that are a maximum of affine pieces, and this problem is of "
            'another kind. Use guarantee="outcome" for a set of outcomes.'
        )
    nothing, pieces = np.zeros((1, problem.n_outcomes)), problem.structure.pieces
    alone = problem.evaluate(z, nothing) - pieces.evaluate(z, nothing)
    W, h = facets_of_constraints(problem, z)
    limits = bound - float(alone[0]) - pieces.values(z, nothing)[0]
    return np.vstack([pieces.directions(z)[0], W]), np.concatenate([limits, h])


def region_of_facets(problem: DecisionProblem, W: Array, h: Array, prediction: Array) -> Region:
    """The outcomes with W u <= h, cut by what is known of outcomes: all of them if neither depends on the outcome."""
    matters = W.any(axis=1)
    if (h[~matters] < -INSIDE * (1 + np.abs(h).max())).any():  # whatever the outcome: the region is empty
        W, h, matters = np.vstack([0 * W[:1] + 1, 0 * W[:1] - 1]), np.full(2, -1.0), np.full(2, True)
    return CostRegion(problem, Polyhedron(W[matters], -h[matters]), prediction)


def facets_of_constraints(problem: DecisionProblem, z: Array) -> tuple[Array, Array]:
    """W (k, d) and h (k,): if W u <= h, the decision z (1, p) keeps all uncertain constraints."""
    nothing, W, h = np.zeros((1, problem.n_outcomes)), [np.zeros((0, problem.n_outcomes))], [np.zeros(0)]
    for pieces, part in zip(problem.uncertain_rows, problem.row_parts(z[0]), strict=True):
        W.append(pieces.directions(z)[0])
        h.append(-part - pieces.values(z, nothing)[0])
    return np.vstack(W), np.concatenate(h)


def within_support(problem: DecisionProblem, outcomes: Array) -> Array:
    """The outcomes, of (n, d), that the problem's known support allows."""
    A, limit = problem.support_rows
    return outcomes[(outcomes @ A.T <= limit + INSIDE * (1 + np.abs(limit))).all(axis=1)] if len(A) else outcomes
