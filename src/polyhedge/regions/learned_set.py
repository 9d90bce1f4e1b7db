r"""The learned set around the prediction, scaled or not: $C_r(x) = \{u : s((u - \hat f(x)) / \sigma(x)) \le r\}$.

This is the set of the paper. `SetPolicy` is the policy of its min-max decisions, which a `CostGuard` bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import Decisions, joined
from polyhedge.learners import Spread
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.problems.layout import by_row
from polyhedge.regions.family import DEFAULT_WORK, PlannedDecisions, Policy, RegionFamily, Regions, Work
from polyhedge.robust import decide
from polyhedge.robust.routes import Cache, is_closed_form
from polyhedge.robust.threads import in_order
from polyhedge.sets import Region, Shape, Volume, mean_volume

_VOLUME_REGIONS = 20
"""Regions of different form whose volumes are averaged: each may take a second."""


class Ties(Protocol):
    """Chooses among decisions of one row that have the same bound."""

    @property
    def points(self) -> Array:
        """Residuals (n, d) of learning rows by which it chooses."""

    def broken(self, placed: SetRegions, radii: Array, decisions: Decisions) -> Decisions:
        """The decisions with their ties broken: bounds are those that were found."""


@stored("learned set")
@dataclass(frozen=True, eq=False)
class LearnedSet(RegionFamily):
    """One shape of residuals around every prediction.

    Attributes
    ----------
    problem, predictor : what is decided, and what gives the centres.
    shape : the set of residuals, divided by the spread if there is one.
    spread : predicts the factor by which the set is scaled at each row; None for 1.
    ties : chooses if several decisions have the same bound; None for the one that is found first.
    cache : programs that calls with few rows have compiled; no part of the model, and not pickled.
    """

    problem: DecisionProblem
    predictor: Predictor
    shape: Shape
    spread: Spread | None = None
    ties: Ties | None = None
    cache: Cache = field(default_factory=Cache, init=False, repr=False)
    kind: ClassVar[str] = "set"
    guarantee: ClassVar[str] = "outcome"
    made_of: ClassVar[str] = "a set of outcomes"
    promise: ClassVar[str] = "the outcome lies in the set"

    @property
    def has_quick_volume(self) -> bool:
        """Whether the shape is bounded and of few outcomes."""
        return self.shape.has_quick_volume

    @property
    def sets(self) -> LearnedSet:
        """The learned sets: itself."""
        return self

    def set_radius(self, radius: float) -> float:
        """The radius at which the shape decides: the calibrated `radius` itself."""
        return radius

    def moved(self, predictor: Predictor) -> LearnedSet:
        """The same sets around the predictions of another predictor."""
        return replace(self, predictor=predictor)

    def at(self, features: Any, values: Array | None = None, work: Work = DEFAULT_WORK) -> SetRegions:
        """The sets around the predictions at these rows."""
        return self.around(self.predictor.predict(features), features, values, work)

    def around(
        self, centers: Array, features: Any, values: Array | None = None, work: Work = DEFAULT_WORK
    ) -> SetRegions:
        """The sets around predictions that are known already."""
        scales = self.scales(features, centers)
        return SetRegions(self.problem, self.shape, centers, scales, values, work, self.ties, self.cache)

    def scales(self, features: Any, centers: Array) -> Array:
        """How many times its calibrated size the set has at each row (N,)."""
        return np.ones(len(centers)) if self.spread is None else self.spread(features, centers)


@dataclass(frozen=True, eq=False)
class SetRegions(Regions):
    """The set at N rows: centres (N, d), scales (N,) and flat values (N, t) of the problem's parameters."""

    problem: DecisionProblem
    shape: Shape
    centers: Array
    scales: Array
    values: Array | None = None
    work: Work = DEFAULT_WORK
    ties: Ties | None = None
    cache: Cache | None = None

    def residuals(self, outcomes: Array) -> Array:
        """Outcome minus prediction over scale (N, d): what the shape is a set of."""
        return np.asarray((outcomes - self.centers) / self.scales[:, None])

    def scores(self, outcomes: Array) -> Array:
        """Nonconformity of each outcome (N,)."""
        return self.shape.scores(self.residuals(outcomes))

    def decide(self, radii: Array) -> Decisions:
        """Robust decisions, each the best against the worst outcome of its set."""
        decisions = decide(
            self.problem,
            self.shape,
            radii,
            self.centers,
            scales=self.scales,
            parameters=None if self.values is None else by_row(self.problem.parameters, self.values),
            n_jobs=self.work.n_jobs,
            progress=self.work.progress,
            return_ties=self.ties is not None,
            cache=self.cache,
        )
        return decisions if self.ties is None else self.ties.broken(self, radii, decisions)

    def region(self, row: int, radius: float) -> Region:
        """The set of outcomes around one prediction, cut by what is known of outcomes."""
        A, h = self.problem.support_rows
        known = {"support_W": A, "support_h": h} if len(A) else {}
        return Region(self.shape.scaled(float(self.scales[row])), radius, self.centers[row], **known)

    def volume(self, radii: Array) -> Volume:
        """Mean volume; over an even choice of rows if regions differ by more than their scale."""
        if not self.problem.structure.has_known_support and len(np.unique(radii)) == 1:
            return mean_volume(self.shape, float(radii[0]), self.scales)
        chosen = evenly_chosen(len(radii), _VOLUME_REGIONS)
        volumes = [self.region(i, float(radii[i])).volume() for i in chosen]
        error = float(np.std(volumes, ddof=1) / np.sqrt(len(volumes))) if len(volumes) > 1 else 0.0
        return Volume(float(np.mean(volumes)), error)

    def take(self, rows: Indices) -> Self:
        """The sets at some of the rows."""
        values = None if self.values is None else self.values[rows]
        return replace(self, centers=self.centers[rows], scales=self.scales[rows], values=values)


class MeanCosts(Protocol):
    """What decisions cost in the mean over residuals around the prediction."""

    @property
    def points(self) -> Array:
        """Residuals (n, d) of learning rows, divided by the spread if there is one."""

    def mean_costs(self, placed: SetRegions, z: Array) -> Array:
        """Mean costs (N,) of decisions (N, p) at rows of sets, each a function of its row alone; NaN without one."""


@stored("policy over a set")
@dataclass(frozen=True, eq=False)
class SetPolicy(Policy):
    """The min-max decisions over a learned set, by default at the radius that it was learned at.

    Rows are decided one by one unless there is a closed form: a pool of decisions that rows share may break ties in
    another way, and a policy must be a function of the row.

    Attributes
    ----------
    sets : the learned sets.
    radius : at which they decide.
    costs : what decisions cost in the mean over the residuals of the set; None if these are not known.
    """

    sets: LearnedSet
    radius: float = 0.0
    costs: MeanCosts | None = None
    kind: ClassVar[str] = "set"

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
        """Robust decisions and their worst-case costs at the fixed radius."""
        placed = self.sets.around(centers, features, values, work)
        shapes = (placed.shape.scaled(float(scale)) for scale in np.unique(placed.scales))
        if all(is_closed_form(placed.problem, shape, self.radius) for shape in shapes):
            decisions = placed.decide(np.full(len(centers), self.radius))
        else:
            decisions = self._one_by_one(placed)
        expected = None if self.costs is None else self.costs.mean_costs(placed, decisions.flat)
        return PlannedDecisions(decisions.flat, decisions.cost_bound, decisions.status, decisions.detail, expected)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the predictions plus residuals of the learning rows (n, d); none without residuals."""
        points = np.zeros((0, centers.shape[1])) if self.costs is None else self.costs.points
        for center, scale in zip(centers, self.sets.scales(features, centers), strict=True):
            yield center + scale * points

    def _one_by_one(self, placed: SetRegions) -> Decisions:
        n, work, decisions = len(placed.scales), placed.work, list[Decisions]()
        alone = replace(placed, work=Work(n_jobs=1))

        def decided(i: int) -> Decisions:
            return alone.take(np.array([i])).decide(np.array([self.radius]))

        for one in in_order(decided, range(n), n_jobs=work.n_jobs):
            decisions.append(one)
            if work.progress is not None:
                work.progress(len(decisions), n)
        return joined(decisions, [np.array([i]) for i in range(n)])
