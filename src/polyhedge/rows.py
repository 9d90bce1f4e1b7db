"""`Rows`: features with everything that belongs to each row, and what rows must be before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, Self

import numpy as np

from polyhedge._support.frames import as_pandas, check_same_rows, column_of, refuse_queries, refuse_rows_elsewhere
from polyhedge._support.validation import Array, Indices, Mask, as_finite, numbers_of
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
    numbers = numbers_of(X)
    if numbers is not None:
        as_finite(np.where(np.isnan(numbers), 0.0, numbers) if may_be_missing else numbers, "X", ndim=2)


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
