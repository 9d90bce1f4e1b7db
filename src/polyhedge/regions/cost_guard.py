r"""The guard of a policy: $C_r(x) = \{u : g(z(x), u) \le v(x) + r\}$, cut by the constraints that hold for z(x).

A policy fixes for each row the decision z(x) and a planned cost v(x), both made from training and learning rows only.
The score of an outcome is the excess of the decision's cost over its policy, so that one conformal radius bounds the
cost of exactly the decision that is taken: $P\{g(z(X), Y) \le v(X) + r\} \ge 1 - \alpha$. Recalibration moves the
bound and not the decision. For a cost that is a maximum of affine pieces the region is a polyhedron, often unbounded:
it is open towards outcomes that cannot hurt this decision. It says nothing about any other decision.

How to plug in a policy of your own
---------------------------------
Write a frozen dataclass with `kind`, `decide` and `state` (see `Policy`; `OverSets`, `Developed` and `WithOutcomes` say
what more it may have), pass it to `Guard(problem, predictor, policy)`, and name it in `polyhedge.io.families` where
files may hold it. Three things are asked of it:

- z(x) and v(x) depend on the row alone, to the last bit: not on the other rows of the call, on a pool, a warm start or
  a thread. What is guarded is a function of the row; one that depends on its batch is another function on calibration
  rows than later. `Guard` gives predictions that are steady in this sense.
- It has seen training and learning rows only, and so has whatever chose it.
- Where it has no decision, z is NaN. Such a row scores +infinity when it calibrates, and has no bound later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import as_statuses
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.regions.batch_invariant import Grid, steady_predictions
from polyhedge.regions.cost_levels import CostLevels, CostRegion, dearest_within, facets_of_constraints
from polyhedge.regions.family import DEFAULT_WORK, UsualAnswers, Work, no_set, own_predictor
from polyhedge.regions.learned_set import ScaledSet
from polyhedge.robust import Decisions
from polyhedge.robust.threads import one_blas_thread
from polyhedge.sets import Polyhedron, Region, Volume
from polyhedge.solvers.program import Status

NO_VOLUME = (
    "A bound on the cost of one decision has no volume: it is open towards all outcomes that cannot hurt this "
    'decision. Use guarantee="outcome" for a set of outcomes.'
)

_NO_DECISION = (
    "the policy has no decision, or one that breaks a constraint. Such rows have no bound, and no more than a share "
    "alpha may be such. Let the policy give decisions there that keep all constraints, relax these, raise alpha or "
    "calibrate on more rows."
)


@dataclass(frozen=True, eq=False)
class Planned:
    """What a policy says of N rows.

    Attributes
    ----------
    z : (N, p) decisions, flat as in `Decisions.flat`; NaN where there is none.
    v : (N,) planned costs, finite where there is a decision.
    status : (N,) of Status; for a policy that is not optimal in any sense, FINISHED.
    detail : N texts, or none.
    expected : (N,) mean costs that the policy expects of its decisions; None where it expects none.
    """

    z: Array
    v: Array
    status: NDArray[np.object_]
    detail: tuple[str, ...] = ()
    expected: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", as_statuses(self.status, len(self.v)))

    def decisions(self, problem: DecisionProblem, bounds: Array) -> Decisions:
        """What is decided, with these bounds (N,); of a guard no facet binds and no one outcome is the worst."""
        n = len(bounds)
        return Decisions(
            flat=self.z,
            cost_bound=bounds,
            worst_outcome=np.full((n, problem.n_outcomes), np.nan),
            active_facets=np.zeros((n, 0), dtype=bool),
            status=self.status,
            gap=np.where(np.isfinite(bounds) & (self.status != Status.STOPPED_EARLY), 0.0, np.inf),
            layout=problem.layout,
            detail=self.detail if any(self.detail) else (),
            expected_cost=self.expected,
        )


class Policy(Protocol):
    """A decision and a planned cost for each row, as functions of the row alone."""

    @property
    def kind(self) -> str:
        """What a file calls it."""

    def decide(self, features: Any, centers: Array, values: Array, work: Work = ...) -> Planned:
        """Policies of N rows, by features, predictions (N, d) and flat values (N, t) of the problem's parameters."""

    def state(self) -> Mapping[str, Any]:
        """Numbers, texts and arrays from which the same policy can be made."""


@runtime_checkable
class OverSets(Protocol):
    """A policy of decisions over learned sets."""

    @property
    def sets(self) -> ScaledSet:
        """The sets."""

    @property
    def radius(self) -> float:
        """The radius at which they decide, whatever the calibrated one is."""

    def over(self, sets: ScaledSet) -> Policy:
        """The same policy over other sets."""


@runtime_checkable
class Developed(Protocol):
    """A policy, or a path of policies, that was chosen on development rows."""

    @property
    def report(self) -> Any:
        """How it was chosen, a `polyhedge.planning.PolicyReport`."""

    def refitted(self, rows: Any, seed: int) -> Any:
        """The same from other development rows, `polyhedge.planning.DevelopmentRows`: nothing is chosen again."""


@runtime_checkable
class WithOutcomes(Protocol):
    """A policy, or a path of policies, that knows which outcomes are possible."""

    def outcomes(self, features: Any, centers: Array) -> Iterable[Array]:
        """Row by row the outcomes (n, d) that are possible."""


@dataclass(frozen=True, eq=False)
class Guard(UsualAnswers):
    """The regions in which a planned decision costs no more than planned plus the radius.

    Attributes
    ----------
    problem, predictor, policy : what is decided, and how.
    grid : of the predictions that are planned with; None where these are rounded in shares of themselves.
    """

    problem: DecisionProblem
    predictor: Predictor
    policy: Policy
    grid: Grid | None = None
    kind: ClassVar[str] = "guard"
    guarantee: ClassVar[str] = "cost"
    made_of: ClassVar[str] = "a policy, whose cost is bounded"
    scores_need_parameters: ClassVar[bool] = True
    why_infinite: ClassVar[str] = _NO_DECISION

    @property
    def trains_on_learning_rows(self) -> bool:
        """Whether the policy is made of no set: it was developed then, and its predictor has seen learning rows."""
        return self.sets is None

    @property
    def sets(self) -> ScaledSet | None:
        """The learned sets that the policy is made of; None where it is made of something else."""
        return self.policy.sets if isinstance(self.policy, OverSets) else None

    def set_radius(self, radius: float) -> float:
        """The radius at which the policy's set decides, whatever the calibrated one is."""
        if not isinstance(self.policy, OverSets):
            raise no_set(self)
        return float(self.policy.radius)

    @property
    def report(self) -> Any:
        """How the policy was chosen; None where it was not developed."""
        return self.policy.report if isinstance(self.policy, Developed) else None

    def refitted(self, predictor: Predictor, rows: Any, seed: int) -> Guard:
        """The guard of the policy that newer rows develop."""
        if not isinstance(self.policy, Developed):
            raise own_predictor(self)
        return replace(self, predictor=predictor, policy=self.policy.refitted(rows, seed), grid=Grid.of(rows.centers))

    def moved(self, predictor: Predictor, X: Any) -> Guard:
        """The guard of the same decisions over its sets, around another predictor."""
        if not isinstance(self.policy, OverSets):
            raise own_predictor(self)
        policy = self.policy.over(self.policy.sets.moved(predictor, X))
        return replace(self, predictor=predictor, policy=policy, grid=Grid.of(predictor.predict(X)))

    def worst_outcomes(self, features: Any, decided: Decisions, values: Array) -> Array:
        """For each row (N, d) the dearest outcome of the policy's distribution that keeps to its bound; NaN where
        there is none.

        An illustration: the bound is about the cost, and many outcomes cost the same.
        """
        centers = steady_predictions(self.predictor, features, self.grid)
        return dearest_outcomes(self.problem, self.policy, features, centers, decided, values)

    def at(self, features: Any, values: Array | None = None, work: Work = DEFAULT_WORK) -> PlacedGuard:
        """Planned decisions at these rows."""
        centers = steady_predictions(self.predictor, features, self.grid)
        known = np.zeros((len(centers), 0)) if values is None else values
        with one_blas_thread():
            planned = self.policy.decide(features, centers, known, work)
        return PlacedGuard(self.problem, centers, known, planned)


@dataclass(frozen=True, eq=False)
class PlacedGuard:
    """Planned decisions of N rows, with flat values (N, t) of the problem's parameters."""

    problem: DecisionProblem
    centers: Array
    values: Array
    planned: Planned

    @property
    def has_policy(self) -> Mask:
        """Rows with a decision and a planned cost."""
        return has_policy(self.planned)

    def scores(self, outcomes: Array) -> Array:
        """Cost minus planned cost (N,); infinite without a policy, or where a constraint is not kept."""
        scores, rows = np.full(len(outcomes), np.inf), np.flatnonzero(self.has_policy)
        at = self.planned.z[rows], outcomes[rows], self.values[rows]
        excess = self.problem.evaluate(*at) - self.planned.v[rows]
        scores[rows] = np.where((self.problem.violations(*at) == 0).all(axis=1), excess, np.inf)
        return scores

    def radii_of(self, bounds: Array, own: Array) -> Array:
        """The radii (N,) at which rows have these bounds: `own` where they give them to the last bit.

        Elsewhere a difference of floats is rounded up, so that a cost that is equal to its bound keeps to it. A row
        without a policy has no bound, and no radius covers it.
        """
        if np.isnan(bounds[self.has_policy]).any():
            raise ValueError(
                "bounds must be numbers, or infinite where a row had none, got NaN for rows with a decision."
            )
        v = np.where(self.has_policy, self.planned.v, 0.0)
        bounds = np.where(self.has_policy, bounds, 0.0)
        rounding = np.finfo(float).eps * (np.abs(np.where(np.isfinite(bounds), bounds, 0.0)) + np.abs(v))
        return np.asarray(np.where(v + own == bounds, own, bounds - v + 2 * rounding))

    def decide(self, radii: Array) -> Decisions:
        """The planned decisions, each with its planned cost plus its radius as the bound."""
        return self.planned.decisions(self.problem, np.where(self.has_policy, self.planned.v + radii, np.nan))

    def region(self, row: int, radius: float) -> Region:
        """The outcomes at which the decision of one row costs no more than its bound, cut by what is known of outcomes.

        It is open towards outcomes that cannot hurt this decision: `is_bounded` says so. Where the cost has no list of
        pieces, the region has no facets, and where it is not convex in the outcome either, it tells which outcomes it
        contains and nothing else.
        """
        problem, bound = self.problem.at_values(self.values[row]), float(self.planned.v[row]) + radius
        if not problem.structure.has_pieces:
            return CostRegion(problem, CostLevels(problem, self.planned.z[row]), self.centers[row], bound)
        return region_of_facets(problem, *facets_of_plan(problem, self.planned.z[[row]], bound), self.centers[row])

    def volume(self, radii: Array) -> Volume:
        """A ValueError: the region of a guard is open towards all outcomes that cannot hurt its decision."""
        raise ValueError(NO_VOLUME)

    def take(self, rows: Indices) -> Self:
        """The policies of some of the rows."""
        p = self.planned
        detail = tuple(p.detail[i] for i in rows) if p.detail else ()
        expected = None if p.expected is None else p.expected[rows]
        some = Planned(p.z[rows], p.v[rows], p.status[rows], detail, expected)
        return replace(self, centers=self.centers[rows], values=self.values[rows], planned=some)


def has_policy(planned: Planned) -> Mask:
    """Rows with a decision and a planned cost (N,)."""
    return np.asarray(np.isfinite(planned.z).all(axis=1) & np.isfinite(planned.v))


def dearest_outcomes(
    problem: DecisionProblem, policy: object, features: Any, centers: Array, decided: Decisions, values: Array
) -> Array:
    """For each row (N, d) the dearest of the outcomes that the policy holds possible at which the row keeps its
    promise.

    That is: the decision costs at most its bound and keeps all constraints, and the outcome is within the known
    support. NaN where there is none, and where the policy does not say what is possible.
    """
    worst = np.full((len(decided), problem.n_outcomes), np.nan)
    if not isinstance(policy, WithOutcomes):
        return worst
    for i, own in enumerate(policy.outcomes(features, centers)):
        if np.isfinite(decided.flat[i]).all():
            worst[i] = dearest_within(problem, decided.flat[i], float(decided.cost_bound[i]), own, values[i])
    return worst


def facets_of_plan(problem: DecisionProblem, z: Array, bound: float) -> tuple[Array, Array]:
    """W (k, d) and h (k,): where W u <= h, the decision z (1, p) costs at most its bound and keeps all constraints."""
    if not problem.structure.has_pieces:
        raise ValueError(
            "The region of a guard is known for costs that are a maximum of affine pieces, and this problem is of "
            'another kind. Use guarantee="outcome" for a set of outcomes.'
        )
    nothing = np.zeros((1, problem.n_outcomes))
    alone = problem.evaluate(z, nothing) - problem.structure.pieces.evaluate(z, nothing)
    limit = bound - float(alone[0])
    W, h = facets_of_constraints(problem, z)
    pieces = problem.structure.pieces
    return np.vstack([pieces.directions(z)[0], W]), np.concatenate([limit - pieces.values(z, nothing)[0], h])


def region_of_facets(problem: DecisionProblem, W: Array, h: Array, prediction: Array) -> Region:
    """The outcomes with W u <= h, cut by what is known of outcomes."""
    sees = W.any(axis=1)
    if not sees.any():
        raise ValueError(
            "The cost of this decision does not depend on the outcome, so that no outcome lies outside its region. "
            'Use guarantee="outcome" for a set of outcomes.'
        )
    return CostRegion(problem, Polyhedron(W[sees], -h[sees]), prediction)
