"""Labels and weights that are no column of X: those of fit come with the calibrator, later ones with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import as_pandas, check_same_rows, column_of, listed
from polyhedge._support.stored import stored
from polyhedge.rows import Rows


@stored("labels of the rows", transient=("values", "given"))
@dataclass(frozen=True, repr=False)
class RowLabels:
    """One value a row that is no column of X; none where new rows bring their own.

    `given` is what they were read from: it may have an index, which must be that of X.
    """

    values: tuple[Any, ...] = ()
    given: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, given: Any, what: str) -> Self:
        """Those of an array, a series or a list."""
        array = as_values(given)
        if array.ndim != 1 or not array.size:
            raise ValueError(
                f"{what} must be a column of X, by its name or position, or one value for each row of fit, got "
                f"{'nothing' if given is None else f'an array of shape {array.shape}'}."
            )
        return cls(tuple(array.tolist()), given)

    def __repr__(self) -> str:
        return f"<{len(self.values)} values, one a row>" if self.values else "<values of the rows>"


def as_values(given: Any) -> NDArray[Any]:
    """One value a row as an array, each of its own kind."""
    array = np.asarray(given)
    if array.dtype.kind not in "US" or isinstance(given, np.ndarray):
        return array
    # Beside a text NumPy makes a text of each number, and of NaN too: a row without a label would have one.
    return np.asarray(given, dtype=object)


ROW_LABELS = RowLabels()
"""New rows bring their own."""


def source_of(given: Any, what: str) -> Any:
    """A column by name or position as it is, a function too, and one value a row as `RowLabels`."""
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)  # files hold plain numbers, not those of NumPy
    return given if isinstance(given, (str, RowLabels)) or callable(given) else RowLabels.of(given, what)


def values_of(rows: Rows, source: Any, what: str) -> Sequence[Any]:
    """The values of rows: from a column of X, or the labels of the rows; `what` they are called."""
    if not isinstance(source, RowLabels):
        return column_of(rows.features, source)
    values = source.values if rows.labels is None else rows.labels
    if rows.labels is None and not source.values:
        raise ValueError(
            f"The {what} were given to fit one for each row, so new rows need theirs: give them as in "
            f"decide(X, labels={what}), or make them a column of X and name it in calibration."
        )
    if np.shape(values) != (len(rows),):
        raise ValueError(f"{what} must be one value for each of these {len(rows)} rows, got shape {np.shape(values)}.")
    return list(as_values(values).tolist())


def read_from(calibrated: Any) -> Any:
    """Where a calibrator, or the radii that it made, read labels or weights; None where they read none."""
    return None if calibrated is None else calibrated.source


def takes_labels(calibrated: Any) -> bool:
    """Whether `calibrated`, a calibrator or the radii that it made, needs labels or weights of the rows."""
    return isinstance(read_from(calibrated), RowLabels)


def check_row_labels(calibrated: Any, X: Any, labels: Any) -> None:
    """Raise if the radii, or the calibrator, read no labels of the rows, or if these are of other rows."""
    if labels is None:
        return
    if not takes_labels(calibrated):
        raise ValueError(
            "No labels are read: only calibration=ByCategory(labels) and Weighted(weights), with one value "
            "for each row of fit, take them. Leave labels= out."
        )
    check_same_rows({"X": X, "labels": labels})


def check_source(calibrator: Any, X: Any, raw: Any) -> None:
    """Raise before hours of learning where a calibrator names a column that is not among the features X.

    `raw` is X as it came: dates become parts, and columns that say nothing are left out.
    """
    name = read_from(calibrator)
    if isinstance(name, str) and X is not raw and name in getattr(raw, "columns", ()) and name not in X.columns:
        raise ValueError(
            f"calibration names the column {name!r}, which is no feature as it is. Name one of "
            f"{listed(list(X.columns))}, or give its values: {type(calibrator).__name__}(X[{name!r}])."
        )
    if isinstance(name, (str, int)):
        column_of(as_pandas(X), name)


def with_values(calibrator: Any, values: Any) -> Any:
    """The same calibrator for other rows of a fit, with the labels of these rows in place of its source."""
    source = read_from(calibrator)
    names = (
        [f.name for f in fields(calibrator) if getattr(calibrator, f.name) is source]
        if is_dataclass(calibrator)
        else []
    )
    if source is None or len(names) != 1:
        raise ValueError(
            "A calibrator that is to read labels of rows must be a dataclass with one field that is its source, got "
            f"{calibrator!r}. Name a column of X instead, or write it like ByCategory."
        )
    return replace(calibrator, **{names[0]: values})


def fit_labels(calibrator: Any, n: int) -> Any:
    """What came with the `calibrator` for the `n` rows of a fit; None where it reads X."""
    source = read_from(calibrator)
    if not isinstance(source, RowLabels):
        return None
    if len(source.values) != n:
        raise ValueError(
            f"{type(calibrator).__name__} must have one value for each of the {n} rows of this fit, got "
            f"{len(source.values)}. Where rows are split or left out before fit, make them a column of X."
        )
    return np.fromiter(source.values, dtype=object, count=n)
