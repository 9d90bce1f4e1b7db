"""A radius that follows its own errors: coverage in the long run for any sequence of rows, however things change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.marginal import attained_rank, conformal_radius, exact
from polyhedge.calibration.radii import Calibrator, Radii
from polyhedge.rows import Rows

SPEEDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Steps that are mixed: those of Gibbs and Candes (2024), from nearly constant to one miss moving the level by 0.1."""
SATURATION = 0.01
"""The step whose long-run bound the mixture is held to: 91 misses at alpha = 0.1."""
_INTERVAL = 100
"""Steps over which the mixture should be nearly as good as the best speed: about a quarter of daily rows."""


@stored("online calibration")
@dataclass(frozen=True)
class Online(Calibrator):
    r"""One radius, which every outcome that becomes known moves: up after a miss, down after a hit.

    Adaptive conformal inference keeps a level $\alpha_t$, starts at $\alpha$, and takes the conformal radius at that
    level of the last `window` scores: $\alpha_{t+1} = \alpha_t + \text{step}(\alpha - \mathrm{err}_t)$, one step a row,
    with the error of the bound that the row was *issued*. For *any* sequence of T outcomes the number of misses is at
    most $\alpha T + \alpha / \text{step} + (1 - \alpha)(D + 1)$, where at most D other outcomes became known between
    the decision of a row and its own outcome: D is 0 where each is fed before the next row is decided, and b - 1 where
    b rows are decided at once. Nothing is promised for one row by itself.

    A level of 0 or less means an infinite radius, hence no bound, and nothing to miss; the note of such a row has the
    largest score of the window. While the level is 1 or more each row counts as missed in the step, as the empty set
    would, and the smallest score is the radius: so the level follows as fast when things get worse again.

    Parameters
    ----------
    step : "auto" or float
        "auto" mixes levels that follow at eight speeds by how well each would have done (Gibbs and Candes 2024), and
        takes the infinite radius, or counts a miss, where misses have run by $M = \max(\alpha, 1 - \alpha) / 0.01$ away
        from $\alpha T$. So there are at most $\alpha T + M + (1 - \alpha)(D + 1)$ of them.
    window : int or None
        Scores that are ranked; None for as many as there were calibration rows.
    follow : {"level", "radius"}
        What moves. "radius" is quantile tracking, $r_{t+1} = r_t + \eta(\mathrm{err}_t - \alpha)$, with eta the step
        times the range of the calibration scores: never infinite. Where all scores, and the first radius, lie in an
        interval of length B, misses are at most $\alpha T + B / \eta + (1 - \alpha)(D + 1)$, and at least
        $\alpha T - B / \eta - \alpha (D + 1)$.

    Notes
    -----
    Calibration rows should be older than those to come, and in their order. `updated` takes the scores of rows whose
    outcomes became known, in any order and number.

    Why misses are bounded: a row misses only if it was decided at a level above 0. Let s be the last row before whose
    step the level was above 0. Rows after s + D were decided after that step, at levels of 0 or less, and raise the
    level; so at most D + 1 rows have lowered it below 0, by step (1 - alpha) each, and the level never falls to
    -step (1 - alpha)(D + 1). The steps add up to alpha - step (misses - alpha T), which gives the bound.

    References
    ----------
    .. [1] I. Gibbs and E. Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021, proposition 1
       (there for D = 0, and with the looser constant of both sides).
    .. [2] I. Gibbs and E. Candes, "Conformal inference for online prediction with arbitrary distribution shifts",
       Journal of Machine Learning Research 25, 2024.
    .. [3] A. Angelopoulos, E. Candes and R. J. Tibshirani, "Conformal PID control for time series prediction",
       NeurIPS 2023: the saturation of "auto" is their error integration.

    Examples
    --------
    >>> radii = Online(step=0.05).calibrate(np.arange(100.0), Rows(np.zeros((100, 0))), 0.1)
    >>> radii.radius, radii.updated([500.0]).radius, radii.updated([0.0] * 20).radius
    (90.0, 96.0, 80.0)
    """

    step: str | float = "auto"
    window: int | None = None
    follow: str = "level"

    def __post_init__(self) -> None:
        if self.step != "auto" and (isinstance(self.step, (str, bool)) or not 0 < self.step < math.inf):
            raise ValueError(f'step must be "auto" or a number above zero such as 0.05, got {self.step!r}.')
        if self.follow not in ("level", "radius"):
            raise ValueError(f'follow must be "level" or "radius", got {self.follow!r}.')
        if self.follow == "radius" and self.step == "auto":
            raise ValueError('step="auto" chooses among levels. Give a number, such as 0.05, to follow the radius.')
        if self.window is not None:
            check_count(self.window, "window", minimum=1)

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> OnlineRadii:
        """The first radius, that of the last scores; calibration rows only, in time order."""
        alpha, window = check_alpha(alpha), len(scores) if self.window is None else self.window
        kept = np.asarray(scores, dtype=np.float64)[-window:]
        start = conformal_radius(kept, alpha)
        finite = kept[np.isfinite(kept)]
        unit = float(np.ptp(finite)) or abs(start) or 1.0
        speeds = SPEEDS if self.step == "auto" else (float(self.step),)
        return OnlineRadii(
            self, alpha, kept, np.full(len(speeds), alpha), np.full(len(speeds), 1 / len(speeds)), start, unit, window
        )


@stored("online radii", unbounded=("scores",))
@dataclass(frozen=True, eq=False)
class OnlineRadii(Radii):
    """The last scores, the levels and their weights, and how many rows the radii have missed so far.

    Attributes
    ----------
    calibrator, alpha : how the radius follows, and the share of misses that it aims at.
    scores : (n,) the last scores, the newest last.
    window : most scores that are ranked.
    levels, weights : (K,) levels that follow at different speeds, and how much each counts.
    tracked, unit : the radius that quantile tracking moves, and the range of scores that its step is a share of.
    n_rows : rows whose outcomes are known so far, one step each.
    n_missed, n_infinite : rows that were not covered, and rows without a bound, which cannot be missed.
    surplus : misses as counted beyond alpha, added up over rows.
    """

    calibrator: Online
    alpha: float
    scores: Array
    levels: Array
    weights: Array
    tracked: float
    unit: float
    window: int
    n_rows: int = 0
    n_missed: int = 0
    n_infinite: int = 0
    surplus: float = 0.0
    kind: ClassVar[str] = "online"
    follows_outcomes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        n_speeds = len(SPEEDS) if self.calibrator.step == "auto" else 1
        if not (self.levels.shape == self.weights.shape == (n_speeds,)):
            raise ValueError(f"There must be {n_speeds} level(s) with weights.")
        attained_rank(len(self.scores), check_alpha(self.alpha))
        check_count(self.window, "window", minimum=len(self.scores))
        numbers = (*self.levels, *self.weights, self.tracked, self.unit, self.surplus)
        if not all(map(math.isfinite, numbers)) or min(self.weights) < 0 or self.scores.ndim != 1:
            raise ValueError("Online radii must have finite levels and weights that are not negative.")
        if min(self.n_missed, self.n_infinite) < 0 or self.n_missed + self.n_infinite > self.n_rows:
            raise ValueError(
                f"{self.n_missed} misses and {self.n_infinite} rows without a bound among {self.n_rows} rows do not "
                "add up."
            )

    @property
    def n(self) -> int:
        """Scores behind the radius."""
        return len(self.scores)

    @property
    def level(self) -> float:
        """The level in force."""
        level = float(self.weights @ self.levels)
        if self.calibrator.step == "auto":
            return saturated(level, self.surplus, self.alpha)
        return level

    @property
    def issued(self) -> float:
        """The radius in force; infinite where no score has the rank that the level asks for."""
        return self.tracked if self.calibrator.follow == "radius" else radius_at(self.level, self.scores)

    @property
    def radius(self) -> float:
        """The radius in force, or the largest finite score where it is infinite."""
        return self.issued if math.isfinite(self.issued) else self.largest

    @property
    def smallest(self) -> float:
        """The smallest score of the window, or the radius in force where that is smaller."""
        return float(np.min(self.scores, initial=self.radius))

    @property
    def largest(self) -> float:
        """The largest finite score of the window."""
        finite = self.scores[np.isfinite(self.scores)]
        return float(finite.max()) if finite.size else self.tracked

    def updated(self, scores: ArrayLike, issued: ArrayLike | None = None) -> Self:
        """The radii after outcomes with these scores (N,) became known.

        `issued` (N,) are the radii in the bounds of these rows. Without them, rows count as decided one after another,
        each with the radius then in force.
        """
        scores = np.atleast_1d(np.asarray(scores, dtype=np.float64))
        if scores.ndim != 1 or np.isnan(scores).any():
            raise ValueError(f"scores must be (N,) without NaN, got shape {scores.shape}. Leave such rows out.")
        given: Sequence[float | None] = [None] * scores.size
        if issued is not None:
            radii = np.asarray(issued, dtype=np.float64)
            if radii.shape != scores.shape or np.isnan(radii).any():
                raise ValueError(
                    f"issued must have one radius for each of {scores.size} scores, got shape {radii.shape}."
                )
            given = radii.tolist()
        later = self
        for score, radius in zip(scores.tolist(), given, strict=True):
            later = later._stepped(score, later.issued if radius is None else radius)
        return later

    def _stepped(self, score: float, radius: float) -> Self:
        """The radii after one row whose bound had this radius; each row is one step, also if rows came together."""
        missed = score > radius
        # By the level of now and not by that of the decision: so no delay lets the level run further above 1.
        is_empty = self.calibrator.follow == "level" and self.level >= 1
        error = 1.0 if is_empty else float(missed)
        if self.calibrator.step == "auto":
            levels, weights = next_levels(self.levels, self.weights, self.alpha, self.scores, score)
        else:
            levels, weights = self.levels + float(self.calibrator.step) * (self.alpha - error), self.weights
        return replace(
            self,
            scores=np.append(self.scores, score)[-self.window :],
            levels=levels,
            weights=weights,
            tracked=self.tracked + self._eta * (error - self.alpha),
            n_rows=self.n_rows + 1,
            n_missed=self.n_missed + missed,
            n_infinite=self.n_infinite + (radius == math.inf),
            surplus=self.surplus + (error - self.alpha),
        )

    @property
    def _eta(self) -> float:
        return float(self.calibrator.step) * self.unit if self.calibrator.follow == "radius" else 0.0

    def at(self, rows: Rows) -> Array:
        """The radius in force, once for each row (N,)."""
        return np.full(len(rows), self.issued)

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """All rows, where the radius in force is infinite."""
        if math.isfinite(self.issued):
            return {}
        note = (
            f"So many of the last bounds failed that the radius is infinite (level {self.level:.3g}); the largest "
            f"score of the last {self.n} rows is {self.largest:.6g}"
        )
        return dict.fromkeys(range(len(rows)), note)

    def promise(self) -> str:
        """What holds, in words."""
        most = f"at most {self.alpha:g} T + {self.excess():.6g}"
        scores = ""
        if self.calibrator.follow == "radius":
            most = f"at most {self.alpha:g} T + B / {self._eta:.6g} + {1 - self.alpha:g}"
            scores = ", as long as all scores stay in an interval of some length B"
        return (
            f"holds for {1 - self.alpha:g} of all rows in the long run, whatever comes{scores}: of T rows {most} are "
            f"missed, and {1 - self.alpha:g} more for each other outcome that became known between the decision of a "
            "row and its own outcome, if every outcome is fed to update with the bound that was issued; rows without a "
            "bound count as held, and nothing is promised for one row by itself"
        )

    def excess(self, delay: int = 0) -> float:
        """How far misses can exceed alpha T in T rows, for any sequence of outcomes, if the level is updated.

        `delay` is the most other outcomes that became known between the decision of a row and its own outcome.
        """
        room = most_surplus(self.alpha) if self.calibrator.step == "auto" else self.alpha / float(self.calibrator.step)
        return room + (1 - self.alpha) * (delay + 1)


def radius_at(level: float, scores: Array) -> float:
    """The conformal radius of scores at a level that may lie outside (0, 1): infinite below, the smallest score above.

    Examples
    --------
    >>> [radius_at(level, np.arange(9.0)) for level in (-0.2, 0.0, 0.1, 0.5, 1.3)]
    [inf, inf, 8.0, 4.0, 0.0]
    """
    if level <= 0:
        return math.inf
    kept = 1 - exact(level) if level < 1 else Fraction(0)
    k = max(math.ceil((len(scores) + 1) * kept), 1)
    return math.inf if k > len(scores) else float(np.partition(scores, k - 1)[k - 1])


def next_levels(levels: Array, weights: Array, alpha: float, window: Array, score: float) -> tuple[Array, Array]:
    """Levels and weights (K,) after a score, ranked among those of the window.

    A score is covered at levels below 1 - #{smaller scores} / (n + 1). The pinball loss between this and a level says
    how well the level did.
    """
    gap = 1 - float((window < score).sum()) / (len(window) + 1) - levels
    losses = alpha * gap - np.minimum(gap, 0.0)
    tilted = weights * np.exp(-_learning_rate(alpha) * (losses - losses.min()))
    share = 1 / (2 * _INTERVAL)
    mixed = (1 - share) * tilted / tilted.sum() + share / len(weights)
    return levels + np.array(SPEEDS) * (alpha - (gap <= 0)), mixed / mixed.sum()


def _learning_rate(alpha: float) -> float:
    """The rate that Gibbs and Candes (2024, section 2.2) derive for an interval of this length."""
    size = (1 - alpha) ** 2 * alpha**3 + alpha**2 * (1 - alpha) ** 3
    return math.sqrt(3 / _INTERVAL * (math.log(len(SPEEDS) * _INTERVAL) + 2) / size)


def most_surplus(alpha: float) -> float:
    """The surplus of misses over alpha T that makes bounds infinite; as large a deficit makes rows count as missed."""
    return max(alpha, 1 - alpha) / SATURATION


def saturated(level: float, surplus: float, alpha: float) -> float:
    """The level, but 0 where misses have run too far above alpha and 1 where too far below.

    At level 0 rows count as hits, at level 1 as misses, so that the surplus shrinks.
    """
    most = most_surplus(alpha)
    return 0.0 if surplus >= most else 1.0 if surplus <= -most else level
