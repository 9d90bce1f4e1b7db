r"""`RegionFamily`, for each x nested regions $C_r(x)$ that grow with the radius r, and `Policy`: the base classes.

A family is what learning leaves behind. It has seen training and learning rows, never calibration rows, and does not
change any more. Its `Regions` at N rows know the score of an outcome, $\inf\{r : y \in C_r(x)\}$, and the decision that
goes with a radius. Calibration turns scores into radii, and needs to know nothing else.

A family of your own is a frozen dataclass that inherits `RegionFamily` and defines `kind`, `guarantee`, `problem`,
`predictor` and `at`, which returns a subclass of `Regions`. Scores and decisions must be functions of the row alone, up
to the tolerance that `polyhedge.model.calibrated_radii` adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import Decisions, as_statuses
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Region, Volume
from polyhedge.solvers.program import Status

if TYPE_CHECKING:  # a learned set is a family itself
    from polyhedge.regions.learned_set import LearnedSet


@dataclass(frozen=True)
class Work:
    """How to work; results do not depend on it.

    `n_jobs` threads (None for one a core); `progress` is called with the number of rows done and of all.
    """

    n_jobs: int | None = None
    progress: Callable[[int, int], None] | None = None


DEFAULT_WORK = Work()


class Regions:
    """The regions of a family at N rows."""

    if TYPE_CHECKING:  # subclasses have it as a field

        @property
        def centers(self) -> Array:
            """Predictions (N, d) at these rows."""

    def scores(self, outcomes: Array) -> Array:
        """The least radius at which the region of each row holds its outcome; (N,) for outcomes (N, d)."""
        raise NotImplementedError(f"{type(self).__name__} must define scores(outcomes).")

    def scores_of_promises(self, outcomes: Array) -> Array:
        """Scores (N, J) of the bound and of each uncertain constraint; a ValueError if they are not kept apart."""
        raise ValueError(
            "Levels by constraint need a path of policies with growing margins: uncertain constraints, "
            'guarantee="cost" and no learner or policy of your own. Give one alpha.'
        )

    def decide(self, radii: Array) -> Decisions:
        """The decision for each row, and a bound on its cost that holds if the outcome is in the region."""
        raise NotImplementedError(f"{type(self).__name__} must define decide(radii).")

    def region(self, row: int, radius: float) -> Region:
        """The region of one row."""
        raise NotImplementedError(f"{type(self).__name__} must define region(row, radius).")

    def take(self, rows: Indices) -> Self:
        """The regions at some of the rows."""
        raise NotImplementedError(f"{type(self).__name__} must define take(rows).")

    def volume(self, radii: Array) -> Volume:
        """Mean volume of the regions; a ValueError if they have none."""
        raise ValueError(
            "A bound on the cost of one decision has no volume: it is open towards all outcomes that cannot hurt this "
            'decision. Use guarantee="outcome" for a set of outcomes.'
        )

    def radii_of(self, bounds: Array, own: Array) -> Array:
        """The radii (N,) at which rows have these bounds on their costs; a ValueError if bounds do not determine radii.

        `own` are the radii in force, which are returned where they lead to these bounds.
        """
        raise ValueError(
            "Bounds on costs do not say which outcomes these rows were guarded against: several regions may have the "
            "same bound. Give what decide returned, bounds=decisions, or radii=decisions.radii."
        )


class RegionFamily:
    """x -> nested regions, learned and frozen; the defaults are those of a family without a set and a selection."""

    if TYPE_CHECKING:  # subclasses have these as fields and class attributes

        @property
        def kind(self) -> str:
            """What a file calls it."""

        @property
        def guarantee(self) -> str:
            """What is promised: the "outcome" lies in its region, or the "cost" of the decision keeps its bound."""

        @property
        def problem(self) -> DecisionProblem:
            """What is decided."""

        @property
        def predictor(self) -> Predictor:
            """What gives the centres."""

    def at(self, features: Any, values: Array | None = None, work: Work = DEFAULT_WORK) -> Regions:
        """The regions at these rows; `values` (N, t) are those of the problem's parameters, flat."""
        raise NotImplementedError(f"{type(self).__name__} must define at(features, values, work).")

    scores_need_parameters: ClassVar[bool] = False
    """Whether the score of an outcome depends on the values of the problem's parameters."""
    scores_are_steps: ClassVar[bool] = False
    """Whether scores count steps, so that many are equal and a radius is a step and no size."""
    scores_are_costs: ClassVar[bool] = False
    """Whether a score is the amount by which the cost exceeds what was planned."""

    @property
    def trains_on_learning_rows(self) -> bool:
        """Whether the predictor was fitted on learning rows too, so that residuals there are too small."""
        return False

    @property
    def has_quick_volume(self) -> bool:
        """Whether volumes of regions are finite and computed at once."""
        return False

    @property
    def made_of(self) -> str:
        """What it is, in a few words for a summary."""
        return "a region of its own for each row"

    @property
    def why_infinite(self) -> str:
        """What holds of calibration rows that score infinity, and what to do; "" if the calibrator says enough.

        It follows "In 3 of 80 calibration rows ...", in an error that says that there is no radius.
        """
        return ""

    @property
    def sets(self) -> LearnedSet | None:
        """The sets whose shape was learned; None if none was."""
        return None

    def set_radius(self, radius: float) -> float:
        """The radius at which the learned shape decides, if `radius` is the calibrated one; an error without a set."""
        raise self.no_set()

    def no_set(self) -> AttributeError:
        """The error to raise if a learned set is asked for and there is none."""
        instead = 'Use guarantee="outcome" for a set that guards every decision at once.'
        if self.guarantee == "outcome":
            instead = "region(x) gives the region of a row."
        return AttributeError(f"No set was learned: what guards decisions is {self.made_of}. {instead}")

    def scenarios(self, features: Any, centers: Array) -> Iterable[Array] | None:
        """Row by row the outcomes (n, d) that the policy holds possible; None if it does not say."""
        return None

    @property
    def takes_columns(self) -> bool:
        """Whether features may be `polyhedge.predictors.columns.ReadColumns` where a frame was read."""
        return False

    @property
    def report(self) -> Any:
        """How the policy was selected, a `polyhedge.planning.PolicyReport`; None if there was no selection."""
        return None

    @property
    def is_refitted(self) -> bool:
        """Whether newer rows make it again by `refitted`; otherwise `moved` takes it to a new predictor."""
        return self.report is not None

    def refitted(self, predictor: Predictor, rows: Any, seed: int) -> RegionFamily:
        """The same rules on newer rows, `polyhedge.planning.DevelopmentRows` that this predictor had not seen."""
        return self.moved(predictor)

    def moved(self, predictor: Predictor) -> RegionFamily:
        """The same around another predictor."""
        raise ValueError(
            "What guards decisions was made for the residuals of its own predictor, and does not say how to leave it: "
            f"it is {self.made_of}. Fit it again."
        )


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

    @property
    def takes_columns(self) -> bool:
        """Whether features may be `polyhedge.predictors.columns.ReadColumns` where a frame was read."""
        return False

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
