r"""A region family: for each x nested regions $C_r(x)$ of outcomes that grow with the radius r.

A family is what learning leaves behind. It has seen training and learning rows, never calibration rows, and does not
change any more. Placed at N rows it knows the score of an outcome, $\inf\{r : y \in C_r(x)\}$, and the decision that
goes with a radius. Calibration turns scores into radii, and needs to know nothing else.

How to write a family of your own
---------------------------------
Write a frozen dataclass that inherits `UsualAnswers` and has what `RegionFamily` adds to it: `kind`, `guarantee`,
`problem`, `predictor`, `scores_need_parameters` and `at`, which gives what `PlacedRegions` asks for. Nobody asks a
family for its type: whatever differs from the usual answers it says by a member of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from polyhedge._support.validation import Array, Indices
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.robust import Decisions
from polyhedge.sets import Region, Volume

if TYPE_CHECKING:  # the learned sets are a family themselves
    from polyhedge.regions.learned_set import ScaledSet

BOUNDS_TELL_NOTHING = (
    "Bounds on costs do not say which outcomes these rows were guarded against: the promise is about a {}. Give what "
    "decide returned, bounds=decisions, or radii=decisions.radii."
)


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

    def radii_of(self, bounds: Array, own: Array) -> Array:
        """The radii (N,) at which rows have these bounds on their costs; a ValueError where bounds do not tell that.

        `own` are the radii in force, which are given back where they lead to these bounds to the last bit.
        """

    def take(self, rows: Indices) -> Self:
        """The regions at some of the rows."""


def no_set(family: RegionFamily) -> AttributeError:
    """What to raise where a learned set is asked for and there is none."""
    instead = 'Use guarantee="outcome" for a set that guards every decision at once.'
    if family.guarantee == "outcome":
        instead = "region(x) gives the region of a row."
    return AttributeError(f"No set was learned: what guards decisions is {family.made_of}. {instead}")


def own_predictor(family: UsualAnswers) -> ValueError:
    """What to raise where a family would have to leave its predictor."""
    return ValueError(
        "What guards decisions was made for the residuals of its own predictor, and does not say how to leave it: it "
        f"is {family.made_of}. Fit it anew."
    )


class UsualAnswers(Protocol):
    """What a family is asked beside its regions, with the answers of one that is made of no set and of no selection."""

    @property
    def sets(self) -> ScaledSet | None:
        """The sets whose shape was learned; None where none was."""
        return None

    def set_radius(self, radius: float) -> float:
        """The radius at which the learned shape decides, if `radius` is the calibrated one; only where `sets` are."""
        raise no_set(cast("RegionFamily", self))

    @property
    def report(self) -> Any:
        """How the policy was chosen, a `polyhedge.planning.PolicyReport`; None where there was no selection of
        policies.
        """
        return None

    @property
    def made_of(self) -> str:
        """What it is, in a few words for a summary."""
        return "a region of its own for each row"

    @property
    def scores_are_steps(self) -> bool:
        """Whether scores count steps, so that many are equal and a radius is a step and no size."""
        return False

    @property
    def why_infinite(self) -> str:
        """What holds of calibration rows that score infinity, and what to do; "" where the calibrator says enough.

        It follows "In 3 of 80 calibration rows ...", in an error that says that there is no radius.
        """
        return ""

    @property
    def trains_on_learning_rows(self) -> bool:
        """Whether the predictor was fitted on learning rows too, so that residuals there are too small."""
        return False

    @property
    def has_quick_volume(self) -> bool:
        """Whether volumes of regions are finite and computed at once."""
        return False

    def worst_outcomes(self, features: Any, decided: Decisions, values: Array) -> Array:
        """For each row (N, d) an outcome at which its decision costs what it may; NaN where none is known."""
        return decided.worst_outcome

    @property
    def is_refitted(self) -> bool:
        """Whether newer rows make it anew by `refitted`; otherwise it is taken to a new predictor by `moved`."""
        return self.report is not None

    def refitted(self, predictor: Predictor, rows: Any, seed: int) -> RegionFamily:
        """The same rules on newer rows, `polyhedge.planning.DevelopmentRows` that this predictor had not seen."""
        raise own_predictor(self)

    def moved(self, predictor: Predictor, X: Any) -> RegionFamily:
        """The same around another predictor, which was trained on rows with these features."""
        raise own_predictor(self)


class RegionFamily(UsualAnswers, Protocol):
    """x -> nested regions, learned and frozen."""

    @property
    def kind(self) -> str:
        """What a file calls it."""

    @property
    def guarantee(self) -> str:
        """What is promised: that the "outcome" lies in its region, or that the decision's "cost" keeps its bound."""

    @property
    def problem(self) -> DecisionProblem:
        """What is decided."""

    @property
    def predictor(self) -> Predictor:
        """What gives the centres."""

    @property
    def scores_need_parameters(self) -> bool:
        """Whether the score of an outcome depends on the values of the problem's parameters."""

    def at(self, features: Any, values: Array | None = None, work: Work = ...) -> PlacedRegions:
        """The regions at these rows; `values` (N, t) are those of the problem's parameters, flat."""
