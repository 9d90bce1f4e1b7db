"""A radius for each row, such that the promise holds within each of many groups that overlap.

A row may lie in several groups at once: its store, its weekday, a holiday. Radii by store would miss more on holidays,
and radii for every combination would need many more rows. Here a quantile regression of the scores on indicators of the
groups gives each row its radius, and the new row is part of the fit, so that the promise is exact in finite samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.frames import listed
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, as_finite, check_alpha
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration.by_category import as_label, rare
from polyhedge.calibration.marginal import minimum_samples
from polyhedge.calibration.quantile_fit import QuantileFit
from polyhedge.calibration.radii import Calibrator, Radii, refuse_groups
from polyhedge.data.splits import evenly_chosen
from polyhedge.rows import RowLabels, Rows, as_values, takes_labels, values_of

_MOST_KINDS = 100
"""Kinds of rows whose radii are computed at once: each takes a few milliseconds."""


@dataclass(frozen=True)
class ByGroups(Calibrator):
    """The bound holds with probability at least 1 - alpha within each of many groups, which may overlap.

    Parameters
    ----------
    by : str, int, list of them, or features (n, k)
        Columns of X by name or position: each of their values is a group. Or a matrix with one row for each row of
        `fit`, the indicators of your own groups or other features; new rows then bring theirs,
        `decide(X, labels=features)`. All rows together are a group in any case.
    groups : tuple of tuples of str
        The groups of each column; all other values of a column are one more group. `fit` finds them, from features of
        rows that calibrate nothing: values with at least twice the rows that a radius needs, in expectation, without
        the next smallest where the others would have fewer together.

    By I. Gibbs, J. J. Cherian and E. J. Candes, "Conformal prediction with conditional guarantees", 2023.

    Examples
    --------
    >>> X = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 40, axis=0)
    >>> scores = np.tile(np.arange(40.0), 4) * (1 + X[:, 0]) + 10 * X[:, 1]
    >>> radii = ByGroups([0, 1]).calibrate(scores, Rows(X), 0.1)
    >>> radii.at(Rows(X[::40])).round()
    array([36., 46., 72., 82.])
    """

    by: Any
    groups: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        by = self.by
        if isinstance(by, (str, Integral)) and not isinstance(by, bool):
            by = (by,)
        if isinstance(by, (list, tuple)) and by and all(isinstance(name, (str, Integral)) for name in by):
            by = tuple(int(name) if isinstance(name, Integral) else name for name in by)
        elif not isinstance(by, RowLabels):
            by = RowLabels(tuple(map(tuple, as_features(by).tolist())), by, tuple(map(str, getattr(by, "columns", ()))))
        object.__setattr__(self, "by", by)

    @property
    def source(self) -> Any:
        """Where groups come from: columns, or features of the rows."""
        return self.by

    def prepared(self, rows: Rows, n_calibrate: int, alpha: float) -> ByGroups:
        """The same with its groups, those with enough rows among rows that calibrate nothing."""
        if takes_labels(self):
            return ByGroups(replace(self.by, values=(), given=None))
        if self.groups is not None:
            return self
        groups = list[tuple[str, ...]]()
        for column, labels in zip(self.by, labels_of(rows, self.by), strict=True):
            values, counts = np.unique(labels, return_counts=True)
            if few := rare(values, counts, n_calibrate, alpha):
                text = f"Too few calibration rows to promise something for each: {listed(few)}"
                warn(Code.FEW_IN_CATEGORY, f"{text} of {column!r} are one group together.", stacklevel=5)
            groups.append(tuple(sorted(set(values.tolist()) - set(few))))
        if not any(groups):
            none = f"No value of {listed(self.by)} has the rows that a group needs"
            raise ValueError(f"{none}. Name other columns, or give features.")
        return replace(self, groups=tuple(groups))

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> GroupRadii:
        """Scores with the features of their rows; calibration rows only."""
        refuse_groups(self, rows)
        scores, alpha, n = np.asarray(scores, dtype=np.float64), check_alpha(alpha), len(scores)
        by, groups = replace(self.by, values=(), given=None) if takes_labels(self) else self.by, self.groups
        if groups is None and not takes_labels(self):
            groups = tuple(tuple(np.unique(labels).tolist()) for labels in labels_of(rows, self.by))
        features = features_of(rows, self.by, groups or ())
        if np.isnan(scores).any() or n < minimum_samples(alpha):
            needs = f"needs at least {minimum_samples(alpha)} calibration samples with a score that is a number"
            got = f"got {n} of which {int(np.isnan(scores).sum())} are NaN. Raise alpha or the calibration share."
            raise ValueError(f"alpha={alpha} {needs}, {got}")
        is_lost = np.isinf(scores)
        radii = GroupRadii(by, groups or (), features[~is_lost], scores[~is_lost], features[is_lost], alpha)
        radii.complain()
        return radii


def as_features(given: Any) -> Array:
    """Features (n, k) of rows, a number each."""
    array = np.asarray(given)
    array = np.array(array.tolist()) if array.dtype == object else array  # rows that travelled as tuples
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            "by must name columns of X, by names or positions, or be a matrix of features (n, k) with one row for each "
            f"row of fit, got {'nothing' if given is None else f'an array of shape {array.shape}'}."
        )
    return as_finite(array, "The features of groups", ndim=2)


def labels_of(rows: Rows, columns: tuple[str | int, ...]) -> list[np.ndarray[Any, Any]]:
    """The groups of rows by each column, as texts (N,)."""
    return [np.array([as_label(value) for value in values_of(rows, name, "labels")], dtype=str) for name in columns]


def features_of(rows: Rows, by: Any, groups: tuple[tuple[str, ...], ...]) -> Array:
    """1 for all rows, then the indicator of each group, or the given features (N, 1 + k)."""
    if isinstance(by, RowLabels):
        if rows.labels is None and not by.values:
            raise ValueError(
                "The features of groups were given to fit one row for each row, so new rows need theirs: give them as "
                "in decide(X, labels=features), or make groups columns of X and name them in calibration."
            )
        own = by.values if rows.labels is None else as_values(rows.labels).tolist()
        features = as_features(list(own))
        if len(features) != len(rows):
            raise ValueError(f"There must be one row of features for each of {len(rows)} rows, got {len(features)}.")
        return np.column_stack([np.ones(len(rows)), features])
    own = [labels[:, None] == np.array(known)[None] for labels, known in zip(labels_of(rows, by), groups, strict=True)]
    return np.hstack([np.ones((len(rows), 1)), *(part.reshape(len(rows), -1) for part in own)])


@stored("radii by groups")
@dataclass(frozen=True, eq=False)
class GroupRadii(Radii):
    """Scores of calibration rows with their groups: each new row gets the critical value of a quantile regression.

    Attributes
    ----------
    by : where groups come from: columns of X, or features of the rows.
    groups : the groups of each column.
    features, scores_by_row : (m, 1 + k) and (m,) of the calibration rows with a finite score.
    lost : (l, 1 + k) features of the calibration rows with an infinite score.
    alpha : the level.
    """

    by: Any
    groups: tuple[tuple[str, ...], ...]
    features: Array
    scores_by_row: Array
    lost: Array
    alpha: float
    kind: ClassVar[str] = "by groups"
    promises_each_label: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        object.__setattr__(self, "by", ByGroups(self.by).by)  # files hold lists
        if self.features.ndim != 2 or not len(self.features) or self.scores_by_row.shape != self.features.shape[:1]:
            raise ValueError("There must be a finite score of a calibration row, and features of groups for each.")
        if self.lost.ndim != 2 or self.lost.shape[1] != self.features.shape[1]:
            raise ValueError("Rows with an infinite score must have the same features of groups.")

    @property
    def n(self) -> int:
        """The number of calibration rows."""
        return len(self.features) + len(self.lost)

    @property
    def source(self) -> Any:
        """Where groups come from."""
        return self.by

    @property
    def calibrator(self) -> ByGroups:
        """By the same groups."""
        return ByGroups(self.by, None if isinstance(self.by, RowLabels) else self.groups)

    @cached_property
    def _fit(self) -> QuantileFit:
        return QuantileFit(self.features, self.scores_by_row, self.lost, self.alpha)

    @cached_property
    def _own(self) -> Array:
        """Finite radii of kinds of calibration rows, and the largest score where none is finite."""
        kinds = np.unique(self.features, axis=0)
        found = self._at(kinds[evenly_chosen(len(kinds), _MOST_KINDS)])
        found = found[np.isfinite(found)]
        return found if len(found) else self.scores_by_row.max(keepdims=True)

    @property
    def radius(self) -> float:
        """The largest finite radius of rows like those of calibration, of a hundred kinds at most."""
        return float(self._own.max())

    @property
    def smallest(self) -> float:
        """The smallest radius of these rows."""
        return float(self._own.min())

    def at_level(self, alpha: float) -> GroupRadii:
        """The radii for another level, from the same calibration rows."""
        return replace(self, alpha=check_alpha(alpha))

    def at(self, rows: Rows) -> Array:
        """The radius of each row (N,), infinite where a group of the row has too few calibration rows."""
        return self._at(features_of(rows, self.by, self.groups))

    def _at(self, features: Array) -> Array:
        if features.shape[1] != self.features.shape[1]:
            k, got = self.features.shape[1] - 1, features.shape[1] - 1
            raise ValueError(f"New rows must have the {k} features of groups that rows of fit had, got {got}.")
        kinds, kind_of = np.unique(features, axis=0, return_inverse=True)
        return np.array([self._fit.critical(kind) for kind in kinds])[kind_of.ravel()]

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """Rows without a bound."""
        by = () if isinstance(self.by, RowLabels) else self.by
        groups, found = list(zip(by, labels_of(rows, by), self.groups, strict=False)), dict[int, str]()
        for i in np.flatnonzero(~np.isfinite(self.at(rows))).tolist():
            unknown = listed([f"{column}={labels[i]}" for column, labels, known in groups if labels[i] not in known])
            none = f"none ({unknown})" if unknown else "none"
            found[i] = f"A group of this row had too few calibration rows, or {none}, so that nothing is promised"
        return found

    def complain(self) -> None:
        """Warn of groups that have too few calibration rows for a radius."""
        all_features, needed = np.vstack([self.features, self.lost])[:, 1:], minimum_samples(self.alpha)
        is_group, n_rows = np.isin(all_features, (0.0, 1.0)).all(axis=0), all_features.sum(axis=0)
        if isinstance(self.by, RowLabels):
            names = list(self.by.names) or [f"feature {k}" for k in range(len(n_rows))]
        else:
            names = [f"{column}={value}" for column, own in zip(self.by, self.groups, strict=True) for value in own]
        if few := [names[k] for k in np.flatnonzero(is_group & (n_rows < needed))]:
            have = f"{listed(few)} {'has' if len(few) == 1 else 'have'} fewer: its rows get no bound."
            text = f"alpha={self.alpha} needs at least {needed} calibration rows in each group, and {have}"
            warn(Code.FEW_IN_CATEGORY, text, stacklevel=4)

    def promise(self) -> str:
        """What holds, in words."""
        k, level = self.features.shape[1] - 1, f"with probability at least {1 - self.alpha:g}"
        what = f"in each group that {k} features tell, and in all together,"
        if not isinstance(self.by, RowLabels):
            what = f"in each of {k} groups by {listed(self.by)}, which may overlap, and among the other rows of each,"
        return f"holds for a new row {what} {level}, if it is exchangeable with the calibration rows"
