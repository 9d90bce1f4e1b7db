"""`Calibrator` and `Radii`: scores of calibration rows -> a radius for each new row, with its promise.

A calibrator sees calibration rows and no others, and nothing else sees them. The radii that it returns never change.
Neither knows what a score is the score of: sets of outcomes and guards of decisions are calibrated alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.rows import Rows


@stored("calibration")
@dataclass(frozen=True)
class CalibrationRecord:
    """One entry of a model's audit trail: when a radius was set, for which level, from how many rows, and which.

    Attributes
    ----------
    date : time in UTC, ISO 8601.
    n : number of calibration samples.
    radius : the conformal radius they gave; the largest where rows have different ones.
    digest : SHA-256 of the rows.
    alpha : the miscoverage level that the radius was set for, hence what it promises.

    Examples
    --------
    >>> CalibrationRecord("2026-01-31T12:00:00+00:00", n=100, radius=2.5, digest="0" * 64, alpha=0.1).n
    100
    """

    date: str
    n: int
    radius: float
    digest: str
    alpha: float

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.date)
        check_radius(self.radius)
        check_count(self.n, "n", minimum=1)
        check_alpha(self.alpha)


class Calibrator:
    """Turns scores of calibration rows into radii; one file a promise.

    A calibrator of your own is a frozen dataclass that inherits this class and defines `calibrate`.
    """

    @property
    def source(self) -> Any:
        """What it reads of each row: a column of X by name or position, a function of X, or `RowLabels`; or None."""
        return None

    reads_weights: ClassVar[bool] = False
    """Whether it reads weights, which are numbers; labels otherwise."""

    needs_order: ClassVar[bool] = False
    """Whether calibration rows must come in the order of time."""

    of_blocks: ClassVar[bool] = False
    """Whether it promises something for blocks of rows, which may come from a column that is no feature as it is."""

    @property
    def reads_times(self) -> bool:
        """Whether blocks are periods of time."""
        return False

    counts_groups: ClassVar[bool] = False
    """Whether rows of one group, near-copies, count once; otherwise rows in groups are refused."""

    @property
    def needs_largest(self) -> bool:
        """Whether its field `largest` is to be the most by which a cost of the problem can exceed its plan."""
        return False

    needs_costs: ClassVar[bool] = False
    """Whether scores must be amounts by which a cost exceeds its plan, which can be added up."""

    def columns(self, promises: Sequence[str]) -> list[int] | None:
        """Positions of those of the `promises` of a row whose scores (n, J) it takes; None for one score of all."""
        return None

    @property
    def target(self) -> Any:
        """Features of rows to decide, raw if those of fit are; None if it needs none."""
        return None

    def prepared(self, rows: Rows, n_calibrate: int, alpha: float) -> Calibrator:
        """The calibrator in use, after it has seen `rows` that calibrate nothing; `n_calibrate` others will."""
        return self

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> Radii:
        """Radii from scores (n,) of calibration rows, which have trained, learned and chosen nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define calibrate(scores, rows, alpha).")


class Radii:
    """A radius for each new row; the defaults are those of one radius with one promise for all rows.

    Radii of your own are a frozen dataclass that inherits this class, with the fields `alpha`, `n` and `radius`, and
    defines `calibrator` and `promise`.
    """

    if TYPE_CHECKING:  # subclasses have these as fields, properties or class attributes

        @property
        def kind(self) -> str:
            """What errors and files call them."""

        @property
        def alpha(self) -> float:
            """Miscoverage level that they were made for."""

        @property
        def n(self) -> int:
            """Calibration rows behind them."""

        @property
        def radius(self) -> float:
            """The radius, the largest if rows have different ones."""

        @property
        def scores(self) -> Array | None:
            """Scores of the calibration rows (n,), if these are marginal; None if they are not kept."""

        @property
        def calibrator(self) -> Calibrator:
            """What made them, and makes such radii again from other rows."""

    @property
    def is_grouped(self) -> bool:
        """Whether calibration rows were counted by groups of near-copies."""
        return False

    counted_as: ClassVar[str] = "groups"
    """What the rows come in where these are counted instead."""

    @property
    def n_units(self) -> int:
        """How many independent rows, groups or blocks set them."""
        return self.n

    @property
    def smallest(self) -> float:
        """The smallest radius that a row can get."""
        return self.radius

    @property
    def is_marginal(self) -> bool:
        """Whether all rows have the score of the conformal rank as their radius: promise and law are then known."""
        return False

    @property
    def source(self) -> Any:
        """What they read of each row, as `Calibrator.source`."""
        return None

    reads_weights: ClassVar[bool] = False
    """Whether they read weights, which are numbers; labels otherwise."""

    promises_each_label: ClassVar[bool] = False
    """Whether the promise holds among the rows of every label, and not only among all."""

    follows_outcomes: ClassVar[bool] = False
    """Whether `updated` moves them as outcomes become known."""

    @property
    def n_rows(self) -> int:
        """How many outcomes they have taken in."""
        return 0

    def at(self, rows: Rows) -> Array:
        """Radii (N,) of new rows; infinite if no radius keeps the promise, so that a row has no bound."""
        return np.full(len(rows), self.radius)

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """The new rows, by position, for which the promise does not hold, each with the reason."""
        return {}

    @property
    def level_of(self) -> Mapping[str, float]:
        """The level of "cost" and of each uncertain constraint, where each has its own."""
        return {}

    total_radius: float | None = None
    """With a promise for sums of rows: how much more than planned a row costs at most, in the mean of its block."""

    risk: tuple[float, float] | None = None
    """With a promise for a mean: the worst share of rows, and how much more than planned they cost on average."""

    of_blocks: ClassVar[bool] = False
    """Whether something is promised for blocks of rows: for their sum, or for all of them together."""

    def blocks(self, rows: Rows) -> Any:
        """The block of each row (N,); None where nothing is promised for blocks."""
        return None

    def promise(self) -> str:
        """What holds, of which rows and on which assumption, in words that follow "the bound ..."."""
        raise NotImplementedError(f"{type(self).__name__} must define promise().")

    def law(self) -> Any:
        """Exact law of the coverage given the calibration rows, a `scipy.stats` distribution; None if not known."""
        return None

    def at_level(self, alpha: float) -> Radii:
        """The radii for another level, from the scores of the calibration rows; a ValueError if these are not kept."""
        if self.follows_outcomes or not hasattr(self, "scores"):
            raise ValueError(
                f"Radii that are kept for one level cannot be read at another, got those of kind {self.kind!r}: they "
                "follow outcomes, or have no at_level. Set alpha and recalibrate on fresh rows, or fit again."
            )
        rows = rows_without_features(self.n, getattr(self, "groups", None))
        return self.calibrator.calibrate(kept_scores(self.scores), rows, alpha)

    def updated(self, scores: ArrayLike, issued: ArrayLike | None = None) -> Self:
        """The radii after scores (N,) of new rows.

        `issued` (N,) are the radii in the bounds of these rows; None for the radii in force, row by row.
        """
        return self


def score_tolerance(scores: Array) -> float:
    r"""What every calibration score is raised by: 1e-9 of a quarter of the range of the finite scores.

    A score is a function of the row up to this tolerance, because matrix products and solvers round differently in
    other batches. Let the computed score $\tilde s$ differ from the exact function s of the row by at most half the
    tolerance $\delta$. Radii of the scores $\tilde s_i + \delta$ are at least those of exact scores plus $\delta / 2$.
    So $s \le r - \delta / 2$ implies $\tilde s \le r$, and the exact promise holds for what is computed. Nothing else
    in the library widens a radius.

    Examples
    --------
    >>> score_tolerance(np.array([0.0, 4.0, np.inf]))
    1e-09
    """
    finite = scores[np.isfinite(scores)]
    return TIE * float(np.ptp(finite)) / 4 if len(finite) else 0.0


def rows_without_features(n: int, groups: Any = None, labels: Any = None) -> Rows:
    """`n` rows of which nothing but groups and labels is known."""
    return Rows(np.zeros((n, 0)), groups=groups, labels=labels)


def kept_scores(scores: Array | None) -> Array:
    """Scores of calibration rows that stay in memory, for radii at other levels; an error where there are none."""
    if scores is None:
        raise ValueError(
            "These radii came without the scores of their calibration rows, so that there is none for another alpha: a "
            "model file does not keep scores, and a calibrator may leave them out. Set alpha and recalibrate on fresh "
            "rows."
        )
    return scores


def refuse_groups(calibrator: Calibrator, rows: Rows) -> None:
    """Raise if calibration rows come in groups of near-copies and the calibrator does not count by groups."""
    if rows.groups is not None and not calibrator.counts_groups:
        raise ValueError(
            f"{type(calibrator).__name__} counts rows one by one, and rows of one group are near-copies. Keep one row "
            "of each group, or use Marginal()."
        )


def check_radius(radius: float) -> None:
    """Raise where a radius is not finite."""
    if not math.isfinite(radius):
        raise ValueError(f"A radius must be a finite number, got {radius!r}.")
