"""`Rows`: features with everything that belongs to each row, what rows must be, and labels that are no column of X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import (
    as_pandas,
    check_same_rows,
    column_of,
    listed,
    refuse_queries,
    refuse_rows_elsewhere,
)
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask, numbers_of
from polyhedge.data.splits import take_rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table; each part has one entry for each row, or is None.

    Parameters
    ----------
    features : covariates X (n, p), an array or a data frame.
    outcomes : outcomes Y (n, d).
    parameters : values of the problem's parameters (n, t).
    groups : labels of rows that belong together, such as near-copies (n,).
    labels : labels or weights that calibration reads (n,).
    weights : weights of the rows in the predictor's fit (n,).
    times : times of the rows (n,).
    notes : what is unlike the training rows (n,), a text for each row.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.arange(6.0).reshape(3, 2), outcomes=np.array([[1.0], [2.0], [3.0]]))
    >>> len(rows), rows.take([0, 2]).outcomes.ravel()
    (3, array([1., 3.]))
    """

    features: Any
    outcomes: Array | None = None
    parameters: Array | None = None
    groups: Any = None
    labels: Any = None
    weights: Any = None
    times: Any = None
    notes: Any = None

    def __len__(self) -> int:
        return int(self.features.shape[0]) if hasattr(self.features, "shape") else len(self.features)

    @property
    def Y(self) -> Array:
        """The outcomes (n, d) of rows that have them."""
        if self.outcomes is None:
            raise ValueError("These rows have no outcomes. Give Y.")
        return self.outcomes

    def take(self, index: Indices | Mask | slice | list[int]) -> Self:
        """The rows at `index`, in its order."""
        index = np.arange(len(self))[index]
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: take_rows(part, index) for name, part in parts.items() if part is not None})


def n_rows_of(X: Any) -> int:
    """The number of rows of whatever a predictor takes."""
    if not hasattr(X, "__len__") or isinstance(X, (str, bytes) if hasattr(X, "shape") else (str, bytes, Mapping)):
        refuse_rows_elsewhere(X)
    return int(X.shape[0] if hasattr(X, "shape") else len(X))


def one_row(x: Any) -> Any:
    """One row in the form of many."""
    x = as_pandas(x)
    if hasattr(x, "to_frame"):
        return x.to_frame().T.infer_objects()
    if hasattr(x, "iloc") or hasattr(x, "tocsr"):
        return x
    return np.atleast_2d(np.asarray(x))


def labels_by(X: Any, by: Any, what: str = "by") -> Any:
    """Labels of rows: a column of X by its name or position, or the labels themselves, which must be of its rows."""
    if isinstance(by, (str, Integral)):
        return column_of(as_pandas(X), by if isinstance(by, str) else int(by))
    check_same_rows({"X": X, what: by})
    return by


def check_rows(X: Any, Y: Any, groups: Any = None, sample_weight: Any = None, **parts: Any) -> None:
    """Raise if outcomes, groups, weights or masks of parts have another index than X."""
    refuse_queries(X, Y)
    masks = {name: part for name, part in parts.items() if getattr(part, "dtype", None) == np.bool_}
    check_same_rows({"X": X, "Y": Y, "groups": groups, "sample_weight": sample_weight, **masks})


def check_features(X: Any, *, may_be_missing: bool) -> None:
    """Raise if there are no rows, or if a number is infinite, or missing where the predictor takes no gaps."""
    if n_rows_of(X) == 0:
        raise ValueError("X has no rows. Bring at least one.")
    if bad := unusable_numbers(X, may_be_missing=may_be_missing):
        first = "the first is row {} ({})".format(*next(iter(bad.items())))
        raise ValueError(
            f"X must be finite, got {len(bad)} row(s) with NaN or infinity, {first}. Drop or impute these rows."
        )


def unusable_numbers(features: Any, *, may_be_missing: bool) -> dict[int, str]:
    """Rows, by position, whose numbers are missing or infinite, and the columns of these numbers."""
    numbers = numbers_of(features)
    if numbers is None:
        return {}
    bad = np.isinf(numbers) if may_be_missing else ~np.isfinite(numbers)
    names = getattr(features, "columns", None)
    names = np.arange(numbers.shape[1]) if names is None else features.select_dtypes("number").columns
    reasons = {}
    for row in np.flatnonzero(bad.any(axis=1)):
        kind = "missing" if np.isnan(numbers[row, bad[row]]).all() else "not finite"
        reasons[int(row)] = f"{kind}: {', '.join(str(name) for name in names[bad[row]])}"
    return reasons


@stored("labels of the rows", transient=("values", "given"))
@dataclass(frozen=True, repr=False)
class RowLabels:
    """One value a row that is no column of X; none where new rows bring their own.

    `given` is what they were read from: it may have an index, which must be that of X, and `names` of columns.
    """

    values: tuple[Any, ...] = ()
    given: Any = field(default=None, compare=False)
    names: tuple[str, ...] = ()

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
        return array.astype("datetime64[us]") if array.dtype.kind == "M" else array  # finer ones would become numbers
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
    """The values of rows, from a column of X or from the labels of the rows; errors call them `what`."""
    if not isinstance(source, RowLabels) and rows.labels is None:
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


def raw_values(calibrated: Any, X: Any) -> Any:
    """The column of X whose values are blocks, as it came, for dates are no feature as they are; None for others."""
    source = read_from(calibrated)
    is_raw = isinstance(source, str) and calibrated.of_blocks and hasattr(X, "columns")
    return np.fromiter(column_of(as_pandas(X), source), dtype=object, count=n_rows_of(X)) if is_raw else None


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
            "No labels are read: only calibration=ByCategory(labels), Weighted(weights) and others with one value "
            "for each row of fit, take them. Leave labels= out."
        )
    check_same_rows({"X": X, "labels": labels})
    names, own = list(read_from(calibrated).names), list(map(str, getattr(labels, "columns", ())))
    if names and own and own != names:
        raise ValueError(f"labels must have the columns {listed(names)}, in this order, got {listed(own)}.")


def check_source(calibrator: Any, X: Any, raw: Any) -> None:
    """Raise before hours of learning where a calibrator names a column that is not among the features X.

    `raw` is X as it came: dates become parts, and columns that say nothing are left out.
    """
    source = read_from(calibrator) if raw_values(calibrator, raw) is None else None
    for name in source if isinstance(source, tuple) else (source,):
        if isinstance(name, str) and X is not raw and name in getattr(raw, "columns", ()) and name not in X.columns:
            raise ValueError(
                f"calibration names the column {name!r}, which is no feature as it is. Name one of "
                f"{listed(list(X.columns))}, or give {'a matrix' if isinstance(source, tuple) else f'X[{name!r}]'}."
            )
        if isinstance(name, (str, int)):
            column_of(as_pandas(X), name)


def with_values(calibrator: Any, values: Any) -> Any:
    """The same calibrator for other rows of a fit, with the labels of these rows in place of its source."""
    source = read_from(calibrator)
    own = fields(calibrator) if is_dataclass(calibrator) else ()
    names = [f.name for f in own if getattr(calibrator, f.name) is source]
    if source is None or len(names) != 1:
        raise ValueError(
            "A calibrator that is to read labels of rows must be a dataclass with one field that is its source, got "
            f"{calibrator!r}. Name a column of X instead, or write it like ByCategory."
        )
    return replace(calibrator, **{names[0]: values})


def fit_labels(calibrator: Any, n: int) -> Any:
    """The labels or weights that came with the `calibrator`, for the `n` rows of a fit; None if it reads X."""
    source = read_from(calibrator)
    if not isinstance(source, RowLabels):
        return None
    if len(source.values) != n:
        raise ValueError(
            f"{type(calibrator).__name__} must have one value for each of the {n} rows of this fit, got "
            f"{len(source.values)}. Where rows are split or left out before fit, make them a column of X."
        )
    return np.fromiter(source.values, dtype=object, count=n)
