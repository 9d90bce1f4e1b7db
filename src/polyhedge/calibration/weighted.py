"""Weighted rows: the promise for rows whose features come from another law than those of the past (covariate shift)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.density_ratio import ClassifierRatio, LogisticRatio, fitted_ratio
from polyhedge.calibration.labels import ROW_LABELS, RowLabels, source_of, takes_labels, values_of
from polyhedge.calibration.radii import Rows
from polyhedge.calibration.weighted_rank import WeightedScores, as_weights

_Source = str | int | Callable[[Any], Any] | RowLabels


@dataclass(frozen=True, eq=False)
class Weighted:
    """A radius for each row, from calibration rows that count as much more often as they will come.

    The weight of a row is the likelihood ratio of its features: how often they come among the rows to decide over how
    often they came among the rows of the past, up to a common factor. A row that the past hardly knows has an infinite
    radius, hence no bound, and says so.

    Parameters
    ----------
    weights : str, int, callable or numbers (n,)
        The likelihood ratio, where it is known: a column of X by name or position, or a function of X. Or the weights
        of the rows of `fit`, one each; new rows then bring theirs, `decide(X, labels=weights)`, in the same unit.
    density_ratio : "logistic" or classifier with predict_proba
        What estimates it otherwise, from features only: those of `fit` that calibrate nothing, and of `target`. The
        promise is then approximate, as good as the estimate.
    target : rows like X
        Features of rows to decide, or of rows like them; needed with `density_ratio`.

    References
    ----------
    .. [1] R. J. Tibshirani, R. F. Barber, E. J. Candes and A. Ramdas, "Conformal prediction under covariate shift",
       NeurIPS 2019, corollary 1.

    Examples
    --------
    >>> X = np.repeat([[1.0], [4.0]], [60, 40], axis=0)
    >>> radii = Weighted(weights=0).calibrate(np.arange(100.0), Rows(X, 100), 0.1)
    >>> radii.at(Rows(np.array([[1.0], [4.0], [40.0]]), 3))
    array([94., 95., inf])
    """

    weights: Any = None
    density_ratio: Any = None
    target: Any = field(default=None, repr=False)
    reads_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.weights is None) == (self.density_ratio is None):
            raise ValueError("Give either weights, where the likelihood ratio is known, or density_ratio and target.")
        if self.density_ratio is not None and self.target is None:
            raise ValueError("density_ratio needs target, features like those of the rows to decide.")
        if self.weights is not None:
            object.__setattr__(self, "weights", source_of(self.weights, "weights"))

    @property
    def source(self) -> Any:
        """Where weights come from; None where they are yet to be estimated."""
        return self.weights

    def prepared(self, features: Any, n_calibrate: int, alpha: float, labels: Any = None) -> Weighted:
        """The same with the ratio estimated from rows that calibrate nothing; itself where the ratio is known."""
        if self.weights is not None:
            return Weighted(ROW_LABELS) if takes_labels(self) else self
        return Weighted(fitted_ratio(self.density_ratio, features, self.target))

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> WeightedRadii:
        """Scores in order with their weights; calibration rows only."""
        if rows.groups is not None:
            raise ValueError(
                "Weighted counts rows one by one, and rows of one group are near-copies. Keep one row of each group."
            )
        if self.weights is None:
            raise ValueError(
                "The density ratio is not estimated yet. fit does so; before recalibrate alone, call "
                "prepared(X, n, alpha) with features of rows that do not calibrate."
            )
        counted = WeightedScores.of(scores, weights_of(rows, self.weights))
        source = ROW_LABELS if takes_labels(self) else self.weights
        return WeightedRadii(source, counted, check_alpha(alpha), len(scores))


def weights_of(rows: Rows, source: _Source) -> Array:
    """Weights (N,) of rows."""
    values = source(rows.X) if callable(source) else values_of(rows, source, "weights")
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        where = "" if callable(source) or isinstance(source, RowLabels) else f" in the column {source!r}"
        raise ValueError(
            f"Weights{where} must be numbers, which say how much more often a row comes among those to decide than it "
            f"came in the past: {error}. Name a column of numbers, or calibrate by-category where it holds kinds."
        ) from error
    return as_weights(weights)


@stored("weighted radii")
@dataclass(frozen=True, eq=False)
class WeightedRadii:
    """Calibration scores in order with their weights, and where the weight of a new row comes from.

    Attributes
    ----------
    source : where weights come from: a column of X, the labels of the rows, or a function of X.
    counted : scores of the calibration rows with their weights.
    alpha, n : the level and the number of calibration rows.
    """

    source: _Source
    counted: WeightedScores
    alpha: float
    n: int
    is_grouped: ClassVar[bool] = False
    kind: ClassVar[str] = "weighted"
    reads_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if len(self.counted.scores) > check_count(self.n, "n", minimum=1):
            raise ValueError(f"{len(self.counted.scores)} scores cannot come from {self.n} rows.")
        self.counted.radii([1.0], 0.5)  # weights that cannot be added are refused here and not at the first row

    @property
    def calibrator(self) -> Weighted:
        """With the same weights; an estimated ratio stays as it is."""
        return Weighted(self.source)

    @property
    def radius(self) -> float:
        """The largest finite radius that a row can have."""
        return self.counted.largest

    @property
    def smallest(self) -> float:
        """The smallest score: no row has a smaller radius."""
        return float(self.counted.scores[0])

    @property
    def is_estimated(self) -> bool:
        """Whether the likelihood ratio is an estimate."""
        return isinstance(self.source, (LogisticRatio, ClassifierRatio))

    def at_level(self, alpha: float) -> WeightedRadii:
        """The radii for another level, from the same calibration rows."""
        return replace(self, alpha=check_alpha(alpha))

    def at(self, rows: Rows) -> Array:
        """The radius of each row (N,), infinite where the calibration rows weigh too little."""
        return self.counted.radii(weights_of(rows, self.source), self.alpha)

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """Rows without a bound."""
        return {
            int(i): "The calibration rows are too unlike this row for a bound at this level: nothing is promised"
            for i in np.flatnonzero(~np.isfinite(self.at(rows)))
        }

    def promise(self) -> str:
        """What holds, in words."""
        held = f"holds for a new row with probability {'about' if self.is_estimated else 'at least'} {1 - self.alpha:g}"
        told = "as far as the estimate of how often rows come is right (approximate)" if self.is_estimated else ""
        return (
            f"{held} under another law of the features, {told or 'if the weights are its likelihood ratio'} and "
            "outcomes depend on features as in the calibration rows, which count as "
            f"{self.counted.n_effective:.0f} equal ones; rows without a bound count as held"
        )

    def law(self) -> Any:
        """None: each row has a radius of its own."""
        return None
