r"""The path of policies: decisions of growing caution for each row, for problems with uncertain constraints.

A margin on the cost cannot repair a decision that breaks a constraint. So a path of policies is frozen for each row,
$k \mapsto (z_k(x), v_k(x))$ for k = 0, ..., K - 1, made from training and learning rows only. The promise is kept at
step k where $g(z_k(x), y) \le v_k(x)$ and all uncertain constraints hold for $z_k(x)$ and y. The score of an outcome is
the smallest k from which it is kept at *every* later step,

$$S(x, y) = \min\{k : \text{the promise is kept at every step } j \ge k\},$$

infinite where it is broken at the last step: the row falls off the path. With the conformal radius r of the scores the
decision is $z_k(x)$ and the bound $v_k(x)$ at $k = \min(\lfloor r \rfloor, K - 1)$.

Proof that it is kept with probability at least $1 - \alpha$. The path is a function of the row alone that was frozen
before calibration, so that the scores of calibration rows and of the new row are exchangeable and
$P\{S(X, Y) \le r\} \ge 1 - \alpha$. Where $S(X, Y) \le r$, the promise is kept at every step from $S(X, Y)$ on, hence
at k, an integer of at least $S(X, Y)$ and at most $K - 1$. Nothing was asked of how costs and margins change along the
path: it need not be monotone.

Where the radius is infinite, more than a share alpha of calibration rows fell off the path, and a new row is refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from polyhedge._support.progress import tell
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import Decisions, all_optimal, joined
from polyhedge.problems import DecisionProblem
from polyhedge.regions.cost_guard import CostGuard, CostRegion, facets_of_decision, region_of_facets
from polyhedge.regions.family import DEFAULT_WORK, DevelopedPolicy, PlannedDecisions, Regions, Work
from polyhedge.sets import Polyhedron, Region
from polyhedge.solvers.program import Status

REFUSED = (
    "More than a share alpha of the calibration rows that count here break the bound or a constraint even at the most "
    "cautious policy, so that nothing can be promised. Raise alpha, calibrate on more rows, loosen the constraints or "
    'widen the decisions that are allowed, or use guarantee="outcome"'
)
_LOG = logging.getLogger(__name__)
_NOT_KEPT = (
    "no policy keeps bound and uncertain constraints together, not even the most cautious one, and no more than alpha "
    "of them may be such. Relax the constraints, bound the decision more widely or raise alpha; "
    'guarantee="outcome" tells which constraints cannot be met, and policy= guards a decision of your own.'
)


class Steps(Protocol):
    """A path of policies at N rows."""

    def decide(self, step: int, rows: Indices) -> PlannedDecisions:
        """The decisions of some of the rows at one step."""

    def take(self, rows: Indices) -> Steps:
        """The path at some of the rows."""


class PathPolicy(DevelopedPolicy):
    """Policies of growing caution for each row, as functions of the row alone."""

    if TYPE_CHECKING:

        @property
        def n_steps(self) -> int:
            """How many policies there are for a row."""

    def at(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> Steps:
        """The path at N rows, by features, predictions (N, d) and flat values (N, t) of the problem's parameters."""
        raise NotImplementedError(f"{type(self).__name__} must define at(features, centers, values, work).")


@stored("margin path")
@dataclass(frozen=True, eq=False)
class MarginPath(CostGuard):
    """The regions in which the planned decision keeps bound and constraints, from a step of the path on.

    Attributes
    ----------
    problem, predictor, policy : what is decided, and how.
    """

    policy: PathPolicy
    kind: ClassVar[str] = "path"
    scores_are_costs: ClassVar[bool] = False
    scores_are_steps: ClassVar[bool] = True
    promise: ClassVar[str] = "the cost of the planned decision is at most its bound and all uncertain constraints hold"
    made_of: ClassVar[str] = "a path of policies with growing margins; calibration chose how far to go"
    why_infinite: ClassVar[str] = _NOT_KEPT

    def at(  # type: ignore[override]
        self, features: Any, values: Array | None = None, work: Work = DEFAULT_WORK
    ) -> PathRegions:
        """The path at these rows; nothing is planned yet."""
        centers = self.predictor.predict(features)
        known = np.zeros((len(centers), 0)) if values is None else values
        steps = self.policy.at(features, centers, known, work)
        return PathRegions(self.problem, centers, known, steps, self.policy.n_steps, work)


@dataclass(frozen=True, eq=False)
class PathRegions(Regions):
    """The path of N rows, with flat values (N, t) of the problem's parameters; a step is planned when it is needed."""

    problem: DecisionProblem
    centers: Array
    values: Array
    steps: Steps
    n_steps: int
    work: Work = DEFAULT_WORK

    def scores(self, outcomes: Array) -> Array:
        """The step from which bound and constraints hold all along (N,); infinite where a row falls off the path."""
        scores, rows = np.full(len(outcomes), np.inf), np.arange(len(outcomes))
        for step in reversed(range(self.n_steps)):  # a row that breaks its promise needs no earlier step
            tell(_LOG, "calibrating", self.n_steps - 1 - step, self.n_steps)
            rows = rows[self._kept(step, rows, outcomes[rows]).all(axis=1)]
            scores[rows] = step
            if not len(rows):
                break
        return scores

    def scores_of_promises(self, outcomes: Array) -> Array:
        """The step from which the bound, and each constraint, holds all along (N, J); infinite off the path."""
        scores = np.full((len(outcomes), 1 + len(self.problem.constraint_names)), np.inf)
        is_kept = np.ones(scores.shape, dtype=bool)
        for step in reversed(range(self.n_steps)):
            tell(_LOG, "calibrating", self.n_steps - 1 - step, self.n_steps)
            rows = np.flatnonzero(is_kept.any(axis=1))
            is_kept[rows] &= self._kept(step, rows, outcomes[rows])
            scores[is_kept] = step
        return scores

    def _kept(self, step: int, rows: Indices, outcomes: Array) -> Mask:
        """Whether the bound, and each constraint, is kept at this step (n, J)."""
        planned = self.steps.decide(step, rows)
        kept = np.zeros((len(rows), 1 + len(self.problem.constraint_names)), dtype=bool)
        own = np.flatnonzero(planned.has_decision)
        at = planned.z[own], outcomes[own], self.values[rows[own]]
        kept[own, 0] = self.problem.evaluate(*at) <= planned.v[own]
        kept[own, 1:] = self.problem.violations(*at) == 0
        return kept

    def decide(self, radii: Array) -> Decisions:
        """The policy of each row at its step; refused where the radius is infinite."""
        steps, n_done = self._steps(radii), 0
        parts, order = list[Decisions](), list[Indices]()
        for step in np.unique(steps):
            rows = np.flatnonzero(steps == step)
            parts.append(self._refused(len(rows)) if step == self.n_steps else self._decided(int(step), rows))
            order.append(rows)
            n_done += len(rows)
            if self.work.progress is not None:
                self.work.progress(n_done, len(steps))
        return joined(parts, order) if parts else self._refused(0)

    def _steps(self, radii: Array) -> Indices:
        """The step at which each row is decided: the last one that its radius reaches; `n_steps` for off the path."""
        steps = np.floor(np.clip(radii, 0, self.n_steps - 1)).astype(np.int64)
        return np.where(np.isfinite(radii), steps, self.n_steps)

    def _decided(self, step: int, rows: Indices) -> Decisions:
        planned = self.steps.decide(step, rows)
        return planned.decisions(self.problem, np.where(planned.has_decision, planned.v, np.nan))

    def _refused(self, n: int) -> Decisions:
        status = all_optimal(n)
        status.fill(Status.REFUSED)
        nothing = np.full((n, self.problem.n_decisions), np.nan)
        refused = PlannedDecisions(nothing, np.full(n, np.inf), status, (REFUSED,) * n, np.full(n, np.nan))
        return refused.decisions(self.problem, np.full(n, np.inf))

    def region(self, row: int, radius: float) -> Region:
        """The outcomes at which the row keeps bound and constraints at all steps from that of the radius on."""
        problem, center, d = self.problem.at_values(self.values[row]), self.centers[row], self.problem.n_outcomes
        first = int(self._steps(np.array([radius]))[0])
        if first == self.n_steps:
            raise ValueError(f"There is no region at an infinite radius. {REFUSED}.")
        policies = [self.steps.decide(step, np.array([row])) for step in range(first, self.n_steps)]
        if radius < 0 or not all(planned.has_decision.all() for planned in policies):  # no outcome has such a score
            return CostRegion(problem, Polyhedron(np.vstack([np.eye(d), -np.eye(d)]), np.ones(2 * d)), center)
        facets = [facets_of_decision(problem, planned.z, float(planned.v[0])) for planned in policies]
        W, h = np.vstack([W for W, _ in facets]), np.concatenate([h for _, h in facets])
        return region_of_facets(problem, W, h, center)

    def take(self, rows: Indices) -> Self:
        """The paths of some of the rows."""
        return replace(self, centers=self.centers[rows], values=self.values[rows], steps=self.steps.take(rows))
