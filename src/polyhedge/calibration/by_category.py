"""A radius for each category of rows: the promise holds within each of them (Mondrian conformal prediction).

A marginal promise may hide that ordinary days are covered too often and holidays too rarely. Rows of one category are
exchangeable among themselves, so a rank within each category covers each of them. Categories are not `groups`: those
are near-copies of one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Number
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.frames import is_missing, listed
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration.marginal import attained_rank, minimum_samples, radius_of
from polyhedge.calibration.radii import Calibrator, Radii, kept_scores, rows_without_features
from polyhedge.rows import ROW_LABELS, RowLabels, Rows, source_of, takes_labels, values_of

_SAFETY = 2
"""Rows of a category over those that it needs, in expectation: chance then leaves few of them with too few."""


def rare(values: Any, counts: Any, n_calibrate: int, alpha: float) -> list[str]:
    """Values with fewer than `_SAFETY` times the rows that a radius needs, in expectation, and the next smallest until
    these together have as many; `counts` are those of rows that calibrate nothing.
    """
    expected, order = counts * (n_calibrate / counts.sum()), np.argsort(counts, kind="stable")
    needed = _SAFETY * minimum_samples(alpha)
    n_rare = int((expected < needed).sum())
    together = int(np.searchsorted(np.cumsum(expected[order]), needed)) + 1
    return list(values[order[: max(n_rare, together)]].tolist()) if n_rare else []


@dataclass(frozen=True)
class ByCategory(Calibrator):
    """A radius for each value of one column of X, or for each of the labels of the rows.

    Parameters
    ----------
    column : str, int or labels (n,)
        Name of the column, or its position where X is an array. It must be known before the outcome is. Or the labels
        of the rows of `fit`, one each, where the predictor is not to see them; new rows then bring theirs,
        `decide(X, labels=labels)`.
    otherwise : {"refuse", "marginal"}
        What rows get whose category has too few calibration rows, or none: no bound ("refuse"), or the radius of all
        rows together ("marginal"), which promises nothing for that category. Such rows are marked either way.
    merged : tuple of str
        Categories that are one together. `fit` finds them, from features of rows that calibrate nothing: those with
        fewer than twice the rows that a radius needs, in expectation, and the next smallest until these together have
        as many.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman and G. Shafer, "Algorithmic Learning in a Random World", 2005, section 4.5.

    Examples
    --------
    >>> X = np.repeat([[0.0], [1.0]], 20, axis=0)
    >>> radii = ByCategory(0).calibrate(np.arange(40.0), Rows(X), 0.1)
    >>> radii.at(Rows(np.array([[1.0], [0.0], [2.0]])))
    array([38., 18., inf])
    """

    column: Any
    otherwise: str = "refuse"
    merged: tuple[str, ...] = ()

    counts_groups = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", source_of(self.column, "column"))
        object.__setattr__(self, "merged", tuple(map(as_label, self.merged)))
        if self.otherwise not in ("refuse", "marginal"):
            raise ValueError(f'otherwise must be "refuse" or "marginal", got {self.otherwise!r}.')

    @property
    def source(self) -> Any:
        """Where labels come from."""
        return self.column

    def prepared(self, rows: Rows, n_calibrate: int, alpha: float) -> ByCategory:
        """The same with rare categories merged, by how often they are among rows that calibrate nothing."""
        categories, counts = np.unique(labels_of(rows, self.column), return_counts=True)
        column = ROW_LABELS if takes_labels(self) else self.column
        if self.merged:
            if not set(self.merged) & set(categories.tolist()):
                raise ValueError(
                    f"merged must name categories of {self.column!r}, but none of {listed(self.merged)} is among its "
                    f"values: {listed(categories.tolist())}. Write them as they stand there."
                )
            return replace(self, column=column)
        # Calibration rows have no say: a category that is merged because few of them came would be a biased sample.
        return replace(self, column=column, merged=tuple(rare(categories, counts, n_calibrate, alpha)))

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> CategoryRadii:
        """The conformal radius within each category; calibration rows only."""
        labels, alpha = labels_of(rows, self.column, self.merged), check_alpha(alpha)
        categories = np.unique(labels)
        members, groups = [labels == category for category in categories], rows.groups
        counted = [part.sum() if groups is None else len(np.unique(groups[part])) for part in members]
        enough = np.array(counted) >= minimum_samples(alpha)
        self._complain(categories[~enough], len(categories), alpha, "rows" if groups is None else "groups")
        known = [part for part, is_enough in zip(members, enough, strict=True) if is_enough]
        own_radii = [radius_of(scores[part], None if groups is None else groups[part], alpha) for part in known]
        return CategoryRadii(
            column=ROW_LABELS if takes_labels(self) else self.column,
            categories=tuple(str(category) for category in categories[enough]),
            radii=np.array(own_radii),
            counts=tuple(int(part.sum()) for part in known),
            alpha=alpha,
            other=radius_of(scores, rows.groups, alpha) if self.otherwise == "marginal" else np.inf,
            n=len(scores),
            merged=self.merged,
            is_grouped=rows.groups is not None,
            kept=(scores, labels, rows.groups),
        )

    def _complain(self, few: Any, n_categories: int, alpha: float, unit: str) -> None:
        if not len(few):
            return
        message = (
            f"alpha={alpha} needs at least {minimum_samples(alpha)} calibration {unit} in each category"
            f"{_of(self.column)}, and {listed(few)} {'has' if len(few) == 1 else 'have'} fewer"
        )
        if len(few) == n_categories:
            raise ValueError(f"{message}. Merge categories, raise alpha or bring more rows.")
        gets = "no bound" if self.otherwise == "refuse" else "the radius of all rows, without a promise of its own"
        warn(Code.FEW_IN_CATEGORY, f"{message}: its rows get {gets}.", stacklevel=3)


@stored("radii by category", transient=("kept",))
@dataclass(frozen=True, eq=False)
class CategoryRadii(Radii):
    """A conformal radius for each category, with the number of rows behind each, and one for all other rows.

    Attributes
    ----------
    column : where labels come from: a column of X, or the labels of the rows.
    categories, radii, counts : names, radii (k,) and numbers of calibration rows, one for each category.
    alpha : the level that each category has.
    other : radius of rows of other categories, which is not promised; infinite where they get no bound.
    n : number of calibration rows, those of all categories.
    merged : rare categories that count as one, under the name of the first.
    is_grouped : whether groups of near-copies were counted instead of rows.
    kept : scores, labels and groups of the calibration rows, for radii at other levels; files do not keep them.
    """

    column: Any
    categories: tuple[str, ...]
    radii: Array
    counts: tuple[int, ...]
    alpha: float
    other: float
    n: int
    merged: tuple[str, ...] = ()
    is_grouped: bool = False
    kept: tuple[Array, Any, Any] | None = field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "by category"
    promises_each_label: ClassVar[bool] = True

    def __post_init__(self) -> None:
        alpha, n_categories = check_alpha(self.alpha), len(self.categories)
        if not 0 < n_categories == len(set(self.categories)) == len(self.counts) or self.radii.shape != (n_categories,):
            raise ValueError("There must be one radius and one number of rows for each category.")
        if not np.isfinite(self.radii).all() or not self.other > -np.inf or sum(self.counts) > self.n:
            raise ValueError("Radii of categories must be finite, and from no more rows than there are.")
        if not isinstance(self.column, (str, int, RowLabels)):
            raise ValueError(f"Labels must be in a column by name or position, got {self.column!r}.")
        for count in self.counts:
            attained_rank(count, alpha)

    @property
    def source(self) -> Any:
        """Where labels come from."""
        return self.column

    @property
    def radius(self) -> float:
        """The largest radius of a category."""
        return float(self.radii.max())

    @property
    def smallest(self) -> float:
        """The smallest radius, that of other rows included."""
        return float(min(self.radii.min(), self.other))

    @property
    def calibrator(self) -> ByCategory:
        """By the same column, with the same rule for other rows."""
        return ByCategory(self.column, "marginal" if np.isfinite(self.other) else "refuse", self.merged)

    def at_level(self, alpha: float) -> CategoryRadii:
        """The radii for another level, from the same calibration rows; merged categories stay merged."""
        scores, labels, groups = (None, None, None) if self.kept is None else self.kept
        rows = rows_without_features(self.n, groups, labels)
        radii = replace(self.calibrator, column=ROW_LABELS, merged=()).calibrate(kept_scores(scores), rows, alpha)
        return replace(radii, column=self.column, merged=self.merged)

    def at(self, rows: Rows) -> Array:
        """The radius of each row's category (N,)."""
        radius_of_category = dict(zip(self.categories, self.radii.tolist(), strict=True))
        return np.array([radius_of_category.get(label, self.other) for label in self._labels(rows)])

    def notes(self, rows: Rows) -> Mapping[int, str]:
        """Rows of categories that have no radius of their own."""
        labels, known = self._labels(rows).tolist(), set(self.categories)
        gets = "it has no bound" if np.isinf(self.other) else "its bound is that of all rows together"
        text = "The category {!r}{} had too few calibration rows, or none, so that nothing is promised for it: {}"
        return {i: text.format(label, _of(self.column), gets) for i, label in enumerate(labels) if label not in known}

    def _labels(self, rows: Rows) -> Any:
        return labels_of(rows, self.column, self.merged)

    def promise(self) -> str:
        """What holds, in words."""
        together = f"; {listed(self.merged)} are one category together" if self.merged else ""
        whose, among = ("a row of a new group", "groups") if self.is_grouped else ("a new row", "rows")
        return (
            f"holds for {whose} in each of {len(self.categories)} categories{_of(self.column)} with probability at "
            f"least {1 - self.alpha:g}, if it is exchangeable with the calibration {among} of that category{together}; "
            "nothing is promised for other categories"
        )


def labels_of(rows: Rows, column: Any, merged: tuple[str, ...] = ()) -> np.ndarray[Any, Any]:
    """The category of each row as a text (N,); merged categories have the name of the first of them."""
    labels, together = map(as_label, values_of(rows, column, "labels")), set(merged)
    return np.array([merged[0] if label in together else label for label in labels], dtype=str)


def as_label(value: Any) -> str:
    """The name of a category: a number is the same however it is written, and missing values are one category."""
    if is_missing(value):
        return "(missing)"
    if isinstance(value, Integral):
        return str(int(value))  # a float would take long numbers of customers for one another
    return f"{value:.17g}" if isinstance(value, Number) else str(value)


def _of(column: Any) -> str:
    """The column of the categories in words; empty if they come as labels."""
    return "" if isinstance(column, RowLabels) else f" of {column!r}"
