"""What calibration makes of scores: a radius for each new row, and the promise that comes with it.

A *calibrator* sees calibration rows and no others, and it is the only thing that sees them. What it returns, *radii*,
never changes and is made of numbers, texts and arrays, so that a file can keep it. Neither knows what a score is the
score of: sets of outcomes and guards of decisions are calibrated alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.rank import attained_rank


@stored("calibration")
@dataclass(frozen=True)
class Calibration:
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
    >>> import numpy as np
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(120, rng=np.random.default_rng(0))
    >>> problem, learner = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=learner, random_state=0).fit(X, Y)
    >>> entry = decider.calibrations_[-1]
    >>> entry.alpha, entry.radius == decider.radius_
    (0.1, True)
    """

    date: str
    n: int
    radius: float
    digest: str
    alpha: float

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.date)
        check_radius(self.radius)
        attained_rank(check_count(self.n, "n", minimum=1), check_alpha(self.alpha))


@dataclass(frozen=True, eq=False)
class Rows:
    """What a calibrator may know of rows.

    Attributes
    ----------
    X : features, as the predictor takes them: a data frame, or an array without names.
    n : how many rows they are.
    groups : (n,) labels of calibration rows that are near-copies of each other; None where there are none.
    labels : (n,) labels or weights that the calibrator reads; None where it reads none.
    """

    X: Any
    n: int
    groups: Any = None
    labels: Any = None


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


def kept_scores(scores: Array | None) -> Array:
    """Scores of calibration rows that stay in memory, for radii at other levels; an error where there are none."""
    if scores is None:
        raise ValueError(
            "These radii came without the scores of their calibration rows, so that there is none for another alpha: a "
            "model file does not keep scores, and a calibrator may leave them out. Set alpha and recalibrate on fresh "
            "rows."
        )
    return scores


class Radii(Protocol):
    """A radius for each new row."""

    @property
    def kind(self) -> str:
        """What a file calls them."""

    @property
    def alpha(self) -> float:
        """Miscoverage level that they were made for."""

    @property
    def n(self) -> int:
        """Calibration rows behind them."""

    @property
    def radius(self) -> float:
        """The radius, the largest where rows have different ones."""

    @property
    def smallest(self) -> float:
        """The smallest radius that a row can get."""

    @property
    def is_grouped(self) -> bool:
        """Whether calibration rows were counted by groups of near-copies."""

    @property
    def calibrator(self) -> Calibrator:
        """What made them, and makes such radii again from other rows."""

    def at(self, rows: Rows) -> Array:
        """Radii (N,) of new rows; infinite where no radius keeps the promise, so that a row has no bound."""

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """New rows for which the promise does not hold as for the others, by position, and why not."""

    def promise(self) -> str:
        """What holds, of which rows and on which assumption, in words that follow "the bound ..."."""

    def law(self) -> Any:
        """Exact law of the coverage given the calibration rows, a `scipy.stats` distribution; None if it has none."""


def check_radius(radius: float) -> None:
    """Raise where a radius is not finite."""
    if not math.isfinite(radius):
        raise ValueError(f"A radius must be a finite number, got {radius!r}.")


class SameForAll:
    """What radii say that have one radius, with one promise, for every row."""

    radius: float
    is_grouped: bool = False

    @property
    def smallest(self) -> float:
        """The one radius."""
        return self.radius

    def at(self, rows: Rows) -> Array:
        """The radius, once for each row (N,)."""
        return np.full(rows.n, self.radius)

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """None: the promise is the same for all."""
        return {}


@runtime_checkable
class Calibrator(Protocol):
    """Turns scores of calibration rows into radii: one file a guarantee."""

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> Radii:
        """Radii from scores (n,) of calibration rows, which have trained, learned and chosen nothing."""


@runtime_checkable
class PreparedCalibrator(Calibrator, Protocol):
    """A calibrator that first looks at features of rows that calibrate nothing."""

    def prepared(self, features: Any, n_calibrate: int, alpha: float, labels: Any = None) -> Calibrator:
        """What calibrates, after a look at features of training and learning rows; `n_calibrate` rows will.

        `labels` are values of the same rows that came with the calibrator.
        """


@runtime_checkable
class TargetedCalibrator(PreparedCalibrator, Protocol):
    """A calibrator that also looks at features of rows to decide."""

    @property
    def target(self) -> Any:
        """Features of rows to decide, raw where those of fit are; None where it needs none."""


@runtime_checkable
class OrderedCalibrator(Calibrator, Protocol):
    """A calibrator for which the order of calibration rows may matter."""

    @property
    def needs_order(self) -> bool:
        """Whether rows must come in the order of time."""


@runtime_checkable
class ReadsRows(Protocol):
    """A calibrator, or its radii, that reads a label or a weight of each row."""

    @property
    def source(self) -> Any:
        """Where that stands: a column of X by name or position, a function of X, or `RowLabels`; None where unknown."""


@runtime_checkable
class LevelledRadii(Radii, Protocol):
    """Radii that can be read at another level."""

    def at_level(self, alpha: float) -> Self:
        """The radii for another level, from the same calibration rows; a ValueError where a file has lost these."""


@runtime_checkable
class FollowingRadii(Radii, Protocol):
    """Radii that follow outcomes as they become known."""

    @property
    def n_rows(self) -> int:
        """How many outcomes they have followed."""

    def updated(self, scores: Array, issued: Array | None = None) -> Self:
        """The radii after scores (N,), of rows that were issued these radii, or those in force row by row."""


@runtime_checkable
class MarginalRadii(Radii, Protocol):
    """Radii that may be the one radius of the marginal promise."""

    @property
    def is_marginal(self) -> bool:
        """Whether it is the score of the conformal rank, for all rows: its promise and law are known then."""

    @property
    def scores(self) -> Array | None:
        """Scores of the calibration rows (n,); None where they are not kept."""


@runtime_checkable
class ReadsWeights(ReadsRows, Protocol):
    """What reads rows and says whether as numbers."""

    @property
    def reads_weights(self) -> bool:
        """Whether it reads weights, which are numbers; labels otherwise."""


@runtime_checkable
class PromisesLabels(ReadsRows, Protocol):
    """Radii by labels that may promise something for each of them."""

    @property
    def promises_each_label(self) -> bool:
        """Whether the promise holds among the rows of every label, and not only among all."""


def is_marginal(radii: Radii) -> bool:
    """Whether radii are the one radius of the marginal promise; radii that do not say so are not."""
    return isinstance(radii, MarginalRadii) and radii.is_marginal


def reads_weights(calibrated: Any) -> bool:
    """Whether `calibrated`, a calibrator or its radii, reads a weight of each row; not where it does not say so."""
    return isinstance(calibrated, ReadsWeights) and calibrated.reads_weights


def promises_each_label(radii: Radii) -> bool:
    """Whether radii promise something for each label that they read; those that do not say so do not."""
    return isinstance(radii, PromisesLabels) and radii.promises_each_label


def n_followed(radii: Radii) -> int:
    """How many outcomes radii have followed; 0 for radii that follow none."""
    return radii.n_rows if isinstance(radii, FollowingRadii) else 0
