r"""A region family: for each x nested regions $C_r(x)$ of outcomes that grow with the radius r.

A family is what learning leaves behind. It has seen training and learning rows, never calibration rows, and does not
change any more. Placed at N rows it knows the score of an outcome, $\inf\{r : y \in C_r(x)\}$, and the decision that
goes with a radius. Calibration turns scores into radii, and needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from polyhedge._validation import Array, Indices
from polyhedge.predictors import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.robust import Decisions
from polyhedge.sets import Region, Volume


@dataclass(frozen=True)
class Work:
    """How to work; results do not depend on it.

    `n_jobs` threads (None for one a core); `progress` is called with the number of rows done and of all.
    """

    n_jobs: int | None = None
    progress: Callable[[int, int], None] | None = None


DEFAULT_WORK = Work()


class PlacedRegions(Protocol):
    """The regions of a family at N rows."""

    @property
    def centers(self) -> Array:
        """Predictions (N, d) at these rows."""

    def scores(self, outcomes: Array) -> Array:
        """The least radius at which the region of each row holds its outcome; (N,) for outcomes (N, d)."""

    def decide(self, radii: Array) -> Decisions:
        """The decision for each row, and a bound on its cost that holds where the outcome is in the region."""

    def region(self, row: int, radius: float) -> Region:
        """The region of one row."""

    def volume(self, radii: Array) -> Volume:
        """Mean volume of the regions."""

    def take(self, rows: Indices) -> Self:
        """The regions at some of the rows."""


class RegionFamily(Protocol):
    """x -> nested regions, learned and frozen."""

    @property
    def kind(self) -> str:
        """What a file calls it."""

    @property
    def problem(self) -> DecisionProblem:
        """What is decided."""

    @property
    def predictor(self) -> Predictor:
        """What gives the centres."""

    @property
    def sets(self) -> Any:
        """The `ScaledSet` whose shape was learned; an AttributeError where none was."""

    def set_radius(self, radius: float) -> float:
        """The radius at which the learned shape decides, if `radius` is the calibrated one."""

    @property
    def scores_need_parameters(self) -> bool:
        """Whether the score of an outcome depends on the values of the problem's parameters."""

    @property
    def trains_on_learning_rows(self) -> bool:
        """Whether the predictor was fitted on learning rows too, so that residuals there are too small."""

    @property
    def has_quick_volume(self) -> bool:
        """Whether volumes of regions are finite and computed at once."""

    def at(self, features: Any, values: Array | None = None, work: Work = ...) -> PlacedRegions:
        """The regions at these rows; `values` (N, t) are those of the problem's parameters, flat."""
