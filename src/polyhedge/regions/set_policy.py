"""The policy of a learned set: its min-max decisions, guarded by what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.decisions import joined
from polyhedge.regions.cost_guard import Planned
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.regions.learned_set import PlacedSet, ScaledSet
from polyhedge.robust import Decisions
from polyhedge.robust.routes import is_closed_form
from polyhedge.robust.threads import in_order


class MeanCosts(Protocol):
    """What decisions cost in the mean over residuals around the prediction."""

    @property
    def points(self) -> Array:
        """Residuals (n, d) of learning rows, divided by the spread where there is one."""

    def at(self, placed: PlacedSet, z: Array) -> Array:
        """Mean costs (N,) of decisions (N, p) at rows of sets, each a function of its row alone; NaN without one."""


@dataclass(frozen=True, eq=False)
class SetPolicy:
    """The min-max decisions over a learned set, by default at the radius that it was learned at.

    Every row is decided by itself, unless a closed form gives the same to the last bit for many: a pool of decisions
    shared by rows may break ties in another way.

    Attributes
    ----------
    sets : the learned sets.
    radius : at which they decide.
    costs : what decisions cost in the mean over the residuals of the set; None where these are not known, as in files
        that held none.
    """

    sets: ScaledSet
    radius: float = 0.0
    costs: MeanCosts | None = None
    kind: ClassVar[str] = "set"

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> Planned:
        """Robust decisions and their worst-case costs at the fixed radius."""
        placed = self.sets.around(centers, features, values, work)
        together = self._is_steady(placed)
        decisions = placed.decide(np.full(len(centers), self.radius)) if together else self._one_by_one(placed)
        expected = None if self.costs is None else self.costs.at(placed, decisions.flat)
        return Planned(decisions.flat, decisions.cost_bound, decisions.status, decisions.detail, expected)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the outcomes (n, d) that the residuals of the set make of the prediction; none without them."""
        points = np.zeros((0, centers.shape[1])) if self.costs is None else self.costs.points
        for center, scale in zip(centers, self.sets.scales(features, centers), strict=True):
            yield center + scale * points

    def _is_steady(self, placed: PlacedSet) -> bool:
        shapes = (placed.shape.scaled(float(scale)) for scale in np.unique(placed.scales))
        return not len(placed.scales) or all(is_closed_form(placed.problem, shape, self.radius) for shape in shapes)

    def _one_by_one(self, placed: PlacedSet) -> Decisions:
        n, work, decisions = len(placed.scales), placed.work, list[Decisions]()
        alone = replace(placed, work=Work(n_jobs=1))

        def decided(i: int) -> Decisions:
            return alone.take(np.array([i])).decide(np.array([self.radius]))

        for one in in_order(decided, range(n), n_jobs=work.n_jobs):
            decisions.append(one)
            if work.progress is not None:
                work.progress(len(decisions), n)
        return joined(decisions, [np.array([i]) for i in range(n)])

    def over(self, sets: ScaledSet) -> SetPolicy:
        """The same policy over other sets."""
        return replace(self, sets=sets)

    def state(self) -> Mapping[str, Any]:
        """The radius and the residuals; the set is stored beside it."""
        return {"radius": self.radius, "residuals": None if self.costs is None else self.costs.points}
