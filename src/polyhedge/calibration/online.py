"""A radius that follows its own errors: coverage in the long run for any sequence of rows, however things change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._validation import Array, as_finite, check_alpha, check_count
from polyhedge.calibration import step_sizes
from polyhedge.calibration.marginal import conformal_radius
from polyhedge.calibration.radii import Rows
from polyhedge.calibration.rank import attained_rank, exact

_COUNTS = ("n_steps", "n_rows", "n_missed", "n_infinite")


@dataclass(frozen=True)
class Online:
    r"""One radius, which every outcome that becomes known moves: up after a miss, down after a hit.

    Adaptive conformal inference keeps a level $\alpha_t$, starts at $\alpha$, and takes the conformal radius at that
    level of the last `window` scores: $\alpha_{t+1} = \alpha_t + \text{step}(\alpha - \mathrm{err}_t)$. For *any*
    sequence of outcomes the share of misses after T steps differs from alpha by at most
    $(\max(\alpha, 1 - \alpha) + \text{step}) / (\text{step}\, T)$. Nothing is promised for one row by itself.

    A level of 0 or less means an infinite radius, hence no bound; the note of such a row has the largest score of the
    window. A level of 1 or more counts as a miss, as the empty set would, and the smallest score is the radius.

    Parameters
    ----------
    step : "auto" or float
        "auto" mixes levels that follow at eight speeds by how well each would have done (Gibbs and Candes 2024), and
        takes the infinite radius, or counts a miss, where errors have run further from alpha than with a step of 0.01
        they ever could. So it has the bound above with 0.01 for the step, and follows faster where that pays.
    window : int or None
        Scores that are ranked; None for as many as there were calibration rows.
    follow : {"level", "radius"}
        What moves. "radius" is quantile tracking, $r_{t+1} = r_t + \eta(\mathrm{err}_t - \alpha)$, with eta the step
        times the range of the calibration scores: never infinite, and the share of misses differs from alpha by at most
        $(B / \eta + 1) / T$ where all scores, and the first radius, lie in an interval of length B.

    Notes
    -----
    Calibration rows should be older than those to come, and in their order. `updated` takes the scores of rows whose
    outcomes became known. Rows that were issued the same radius one after another are one step, whose error is the
    share of them that missed.

    References
    ----------
    .. [1] I. Gibbs and E. Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021, proposition 1.
    .. [2] I. Gibbs and E. Candes, "Conformal inference for online prediction with arbitrary distribution shifts",
       Journal of Machine Learning Research 25, 2024.
    .. [3] A. Angelopoulos, E. Candes and R. J. Tibshirani, "Conformal PID control for time series prediction",
       NeurIPS 2023: the saturation of "auto" is their error integration.

    Examples
    --------
    >>> radii = Online(step=0.05).calibrate(np.arange(100.0), Rows(None, 100), 0.1)
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
        if rows.groups is not None:
            raise ValueError(
                "Online takes one row after another, and rows of one group come together. Keep one row of each group."
            )
        alpha, window = check_alpha(alpha), len(scores) if self.window is None else self.window
        kept = np.asarray(scores, dtype=np.float64)[-window:]
        start = conformal_radius(kept, alpha)
        finite = kept[np.isfinite(kept)]
        unit = float(np.ptp(finite)) or abs(start) or 1.0
        speeds = step_sizes.SPEEDS if self.step == "auto" else (float(self.step),)
        return OnlineRadii(
            self, alpha, kept, np.full(len(speeds), alpha), np.full(len(speeds), 1 / len(speeds)), start, unit, window
        )


@dataclass(frozen=True, eq=False)
class OnlineRadii:
    """The last scores, the levels and their weights, and what came of the radii so far.

    Attributes
    ----------
    scores : (n,) the last scores, the newest last.
    levels, weights : (K,) levels that follow at different speeds, and how much each counts.
    tracked, unit : the radius that quantile tracking moves, and the range of scores that its step is a share of.
    n_steps, n_rows : steps so far, and rows in them.
    n_missed, n_infinite : rows that were not covered, and rows without a bound.
    surplus : misses as counted beyond alpha, added up over steps.
    """

    calibrator: Online
    alpha: float
    scores: Array
    levels: Array
    weights: Array
    tracked: float
    unit: float
    window: int
    n_steps: int = 0
    n_rows: int = 0
    n_missed: int = 0
    n_infinite: int = 0
    surplus: float = 0.0
    kind: ClassVar[str] = "online"

    @property
    def n(self) -> int:
        """Scores behind the radius."""
        return len(self.scores)

    @property
    def level(self) -> float:
        """The level in force."""
        level = float(self.weights @ self.levels)
        if self.calibrator.step == "auto":
            return step_sizes.saturated(level, self.surplus, self.alpha)
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
    def largest(self) -> float:
        """The largest finite score of the window."""
        finite = self.scores[np.isfinite(self.scores)]
        return float(finite.max()) if finite.size else self.tracked

    def updated(self, scores: ArrayLike, issued: ArrayLike | None = None) -> Self:
        """The radii after outcomes with these scores (N,) became known.

        `issued` (N,) are the radii of the bounds that rows were given; without them each row is taken as decided with
        the radius then in force, one after another.
        """
        scores = np.atleast_1d(np.asarray(scores, dtype=np.float64))
        if scores.ndim != 1 or np.isnan(scores).any():
            raise ValueError(f"scores must be (N,) without NaN, got shape {scores.shape}. Leave such rows out.")
        if issued is None:
            return _fold(self, [(score, None) for score in np.split(scores, scores.size)])
        given = np.asarray(issued, dtype=np.float64)
        if given.shape != scores.shape or np.isnan(given).any():
            raise ValueError(f"issued must have one radius for each of {scores.size} scores, got shape {given.shape}.")
        ends = np.flatnonzero(given[1:] != given[:-1]) + 1
        return _fold(self, list(zip(np.split(scores, ends), np.split(given, ends), strict=True)))

    def _stepped(self, scores: Array, given: Array | None) -> Self:
        """After one step: rows that were issued one radius."""
        radius = self.issued if given is None else float(given[0])
        missed = scores > radius
        is_empty = self.calibrator.follow == "level" and self.level >= 1
        error = 1.0 if is_empty else float(missed.mean())
        if self.calibrator.step == "auto":
            levels, weights = step_sizes.followed(self.levels, self.weights, self.alpha, self.scores, scores)
        else:
            levels, weights = self.levels + float(self.calibrator.step) * (self.alpha - error), self.weights
        return replace(
            self,
            scores=np.concatenate([self.scores, scores])[-self.window :],
            levels=levels,
            weights=weights,
            tracked=self.tracked + self._eta * (error - self.alpha),
            n_steps=self.n_steps + 1,
            n_rows=self.n_rows + scores.size,
            n_missed=self.n_missed + int(missed.sum()),
            n_infinite=self.n_infinite + (scores.size if radius == math.inf else 0),
            surplus=self.surplus + (error - self.alpha),
        )

    @property
    def _eta(self) -> float:
        return float(self.calibrator.step) * self.unit if self.calibrator.follow == "radius" else 0.0

    def at(self, rows: Rows) -> Array:
        """The radius in force, once for each row (N,)."""
        return np.full(rows.n, self.issued)

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """All rows, where the radius in force is infinite."""
        if math.isfinite(self.issued):
            return {}
        said = (
            f"So many of the last bounds failed that the radius is infinite (level {self.level:.3g}); the largest "
            f"score of the last {self.n} rows is {self.largest:.6g}"
        )
        return dict.fromkeys(range(rows.n), said)

    def promise(self) -> str:
        """What holds, in words."""
        if self.calibrator.follow == "radius":
            return (
                f"holds for {1 - self.alpha:g} of all rows in the long run, whatever comes, as long as scores stay in "
                f"an interval: with one of length B the share of misses after T steps is within "
                f"(B / {self._eta:.6g} + 1) / T of alpha; nothing is promised for one row by itself"
            )
        return (
            f"holds for {1 - self.alpha:g} of all rows in the long run, whatever comes: the share of misses after T "
            f"steps exceeds {self.alpha:g} by at most {self.excess:.6g} / T, if each outcome is fed to update; nothing "
            "is promised for one row by itself"
        )

    @property
    def excess(self) -> float:
        """After T steps misses differ from alpha T by at most so many, for any sequence, where levels are followed."""
        step = step_sizes.SATURATION if self.calibrator.step == "auto" else float(self.calibrator.step)
        return (max(self.alpha, 1 - self.alpha) + step) / step

    def law(self) -> Any:
        """None: any sequence is allowed."""
        return None

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and texts; infinite scores by their places."""
        is_finite = np.isfinite(self.scores)
        names = ("alpha", "levels", "weights", "tracked", "unit", "surplus", "window", *_COUNTS)
        return {
            **{name: getattr(self, name) for name in names},
            "scores": np.where(is_finite, self.scores, 0.0),
            "infinite": np.flatnonzero(~is_finite),
            "settings": [self.calibrator.step, self.calibrator.window, self.calibrator.follow],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The radii of a file."""
        scores, calibrator = as_finite(state["scores"], "scores", ndim=1).copy(), Online(*state["settings"])
        scores[np.asarray(state["infinite"], dtype=np.int64)] = np.inf
        levels, weights = (as_finite(state[name], name, ndim=1) for name in ("levels", "weights"))
        n_speeds = len(step_sizes.SPEEDS) if calibrator.step == "auto" else 1
        if not (levels.shape == weights.shape == (n_speeds,)) or (weights < 0).any() or abs(weights.sum() - 1) > 1e-9:
            raise ValueError(f"There must be {n_speeds} level(s) with weights that add up to 1.")
        numbers = {name: float(as_finite(state[name], name, ndim=0)) for name in ("tracked", "unit", "surplus")}
        counts = {name: check_count(state[name], name, minimum=0) for name in _COUNTS}
        alpha, window = check_alpha(state["alpha"]), check_count(state["window"], "window", minimum=len(scores))
        attained_rank(len(scores), alpha)
        return cls(
            calibrator,
            alpha,
            scores,
            levels,
            weights,
            numbers["tracked"],
            numbers["unit"],
            window,
            surplus=numbers["surplus"],
            **counts,
        )


def _fold(radii: Any, steps: list[tuple[Array, Array | None]]) -> Any:
    for scores, given in steps:
        if scores.size:
            radii = radii._stepped(scores, given)
    return radii


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
