"""Weighted rows: the promise for rows whose features come from another law than those of the past (covariate shift)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.frames import names_of, select_columns
from polyhedge._support.stored import stored
from polyhedge._support.tolerances import ROUNDING
from polyhedge._support.validation import Array, as_finite, check_alpha, check_count
from polyhedge.calibration.radii import Calibrator, Radii
from polyhedge.predictors.columns import Column, Encoding, Schema
from polyhedge.rows import ROW_LABELS, RowLabels, Rows, source_of, takes_labels, values_of

_Source = str | int | Callable[[Any], Any] | RowLabels


@dataclass(frozen=True, eq=False)
class Weighted(Calibrator):
    """A radius for each row, from calibration rows weighted by how much more often such rows will come.

    The weight of a row is the likelihood ratio of its features: how often they come among the rows to decide over how
    often they came among the rows of the past, up to a common factor. A row that the past hardly knows has an infinite
    radius, hence no bound, and says so.

    Parameters
    ----------
    weights : str, int, callable or numbers (n,)
        The likelihood ratio, where it is known: a column of X by name or position, or a function of X. Or the weights
        of the rows of `fit`, one each; new rows then bring theirs, `decide(X, labels=weights)`, in the same unit.
    target : rows like X
        Features of rows to decide, or of rows like them, where it is not known: a logistic regression compares them
        with features of `fit` that calibrate nothing. The promise is then approximate, as good as the estimate.

    References
    ----------
    .. [1] R. J. Tibshirani, R. F. Barber, E. J. Candes and A. Ramdas, "Conformal prediction under covariate shift",
       NeurIPS 2019, corollary 1.

    Examples
    --------
    >>> X = np.repeat([[1.0], [4.0]], [60, 40], axis=0)
    >>> radii = Weighted(weights=0).calibrate(np.arange(100.0), Rows(X), 0.1)
    >>> radii.at(Rows(np.array([[1.0], [4.0], [40.0]])))
    array([94., 95., inf])
    """

    weights: Any = None
    target: Any = field(default=None, repr=False)
    reads_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.weights is None) == (self.target is None):
            raise ValueError("Give either weights, the likelihood ratio, or target, features like those to come.")
        if self.weights is not None:
            object.__setattr__(self, "weights", source_of(self.weights, "weights"))

    @property
    def source(self) -> Any:
        """Where weights come from; None where they are yet to be estimated."""
        return self.weights

    def prepared(self, rows: Rows, n_calibrate: int, alpha: float) -> Weighted:
        """The same with the ratio estimated from rows that calibrate nothing; itself where the ratio is known."""
        if self.weights is not None:
            return Weighted(ROW_LABELS) if takes_labels(self) else self
        return Weighted(LogisticRatio.fitted(rows.features, self.target))

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> WeightedRadii:
        """Scores in order with their weights; calibration rows only."""
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
    values = source(rows.features) if callable(source) else values_of(rows, source, "weights")
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
class WeightedRadii(Radii):
    """Calibration scores in order with their weights, and where the weight of a new row comes from.

    Attributes
    ----------
    weights : where weights come from: a column of X, the labels of the rows, or a function of X.
    counted : scores of the calibration rows with their weights.
    alpha, n : the level and the number of calibration rows.
    """

    weights: _Source
    counted: WeightedScores
    alpha: float
    n: int
    kind: ClassVar[str] = "weighted"
    reads_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if len(self.counted.scores) > check_count(self.n, "n", minimum=1):
            raise ValueError(f"{len(self.counted.scores)} scores cannot come from {self.n} rows.")

    @property
    def source(self) -> Any:
        """Where weights come from."""
        return self.weights

    @property
    def calibrator(self) -> Weighted:
        """With the same weights; an estimated ratio stays as it is."""
        return Weighted(self.weights)

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
        return isinstance(self.weights, LogisticRatio)

    def at_level(self, alpha: float) -> WeightedRadii:
        """The radii for another level, from the same calibration rows."""
        return replace(self, alpha=check_alpha(alpha))

    def at(self, rows: Rows) -> Array:
        """The radius of each row (N,), infinite where the calibration rows weigh too little."""
        return self.counted.radii(weights_of(rows, self.weights), self.alpha)

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """Rows without a bound."""
        return {
            int(i): "The calibration rows are too unlike this row for a bound at this level: nothing is promised"
            for i in np.flatnonzero(~np.isfinite(self.at(rows)))
        }

    def promise(self) -> str:
        """What holds, in words."""
        held = f"holds for a new row with probability {'about' if self.is_estimated else 'at least'} {1 - self.alpha:g}"
        assumption = "as far as the estimate of how often rows come is right (approximate)" if self.is_estimated else ""
        return (
            f"{held} under another law of the features, {assumption or 'if the weights are its likelihood ratio'} and "
            "outcomes depend on features as in the calibration rows, which count as "
            f"{self.counted.n_effective:.0f} equal ones; rows without a bound count as held"
        )


@stored("weighted scores")
@dataclass(frozen=True, eq=False)
class WeightedScores:
    r"""Finite scores in order with their weights, and the weight of scores that no radius covers.

    The radius of a new row of weight w is
    $\inf\{r : \sum_i w_i 1\{s_i \le r\} \ge (1-\alpha)(\sum_i w_i + w)\}$: the row's own weight lies at infinity.
    """

    scores: Array
    weights: Array
    uncovered: float = 0.0

    def __post_init__(self) -> None:
        is_ordered = self.scores.ndim == 1 and len(self.scores) > 0 and (np.diff(self.scores) >= 0).all()
        if not is_ordered or self.scores.shape != as_weights(self.weights).shape or self.weights.min() == 0:
            raise ValueError("Weighted scores must be in order, each with a weight above zero.")
        as_weights([self.uncovered])

    @classmethod
    def of(cls, scores: ArrayLike, weights: ArrayLike) -> Self:
        """Scores as they come; infinite ones count as never covered."""
        scores, weights = np.asarray(scores, dtype=np.float64), as_weights(weights)
        if scores.shape != weights.shape or np.isnan(scores).any():
            raise ValueError(
                f"There must be one weight for each score and no score that is NaN, got {weights.shape} and "
                f"{scores.shape} with {int(np.isnan(scores).sum())} NaN."
            )
        order = np.argsort(scores, kind="stable")
        counted = order[np.isfinite(scores[order]) & (weights[order] > 0)]
        if not counted.size:
            raise ValueError("No calibration row has a finite score and a weight above zero. Check scores and weights.")
        return cls(scores[counted], weights[counted], float(weights[~np.isfinite(scores)].sum()))

    def radii(self, weights: ArrayLike, alpha: float) -> Array:
        """The radius of each new row (N,) with these weights; infinite if the calibration rows weigh too little.

        Sums of weights are compared up to rounding, so that equal weights have the conformal rank.
        """
        covered = np.cumsum(self.weights)
        needed = (1 - check_alpha(alpha)) * (covered[-1] + self.uncovered + as_weights(weights))
        return np.append(self.scores, np.inf)[np.searchsorted(covered, (1 - ROUNDING) * needed)]

    @property
    def largest(self) -> float:
        """The largest finite score: no row with a bound has a larger radius."""
        return float(self.scores[-1])

    @property
    def n_effective(self) -> float:
        """The effective sample size: so many rows of equal weight are about as informative."""
        share = self.weights / self.weights.max()
        return float(share.sum() ** 2 / (share**2).sum())


def as_weights(weights: ArrayLike) -> Array:
    """Weights (n,) that are finite and not negative."""
    weights = as_finite(weights, "weights", ndim=1)
    if (weights < 0).any():
        raise ValueError(
            f"Weights must not be negative, got {weights.min():g}. They say how much more often a row comes."
        )
    return weights


@stored("logistic density ratio")
@dataclass(frozen=True, eq=False)
class LogisticRatio:
    """exp(slopes' x + intercept) of encoded features x, from a logistic regression of target rows against past ones."""

    reads: Encoding
    slopes: Array
    intercept: float

    def __post_init__(self) -> None:
        if self.slopes.ndim != 1:
            raise ValueError("A density ratio needs a slope for each encoded feature.")

    @classmethod
    def fitted(cls, past: Any, target: Any) -> Self:
        """Penalised logistic regression on rows that calibrate nothing; columns of the target as in the past."""
        import pandas as pd
        from sklearn.linear_model import LogisticRegression

        names = names_of(past)
        old, new = _frame(past), _frame(target if names is None else select_columns(target, names, "target"))
        kinds = {name: "number" if kind.kind in "biuf" else "category" for name, kind in old.dtypes.items()}
        if not kinds or old.shape[1] != new.shape[1]:
            raise ValueError(f"target must have the {old.shape[1]} features of X, at least one, got {new.shape[1]}.")
        rows = pd.concat([old, new.set_axis(old.columns, axis=1)], ignore_index=True)
        schema = Schema(tuple(Column(name, kind) for name, kind in kinds.items()), ())
        reads = Encoding.of(rows, schema)
        model = LogisticRegression(max_iter=1000).fit(reads(rows), np.arange(len(rows)) >= len(old))
        return cls(reads, model.coef_[0], float(model.intercept_[0]))

    def __call__(self, X: Any) -> Array:
        """Odds (N,), the ratio but for a factor that does not matter."""
        exponent = self.reads(_frame(X)) @ self.slopes + self.intercept
        return np.exp(np.clip(exponent, -500.0, 500.0))  # beyond this a float overflows, and one row outweighs all


def _frame(X: Any) -> Any:
    """Rows as a frame of numbers and texts, its columns named by texts."""
    import pandas as pd

    frame = X if hasattr(X, "select_dtypes") else pd.DataFrame(X.toarray() if hasattr(X, "tocsr") else np.asarray(X))
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    return frame.astype({name: str for name, kind in frame.dtypes.items() if kind.kind not in "biuf"})
