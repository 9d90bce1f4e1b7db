"""`Rows`: features with everything that belongs to each row."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data.splits import take_rows

__all__ = ["Rows"]


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

    def __len__(self) -> int:
        return int(self.features.shape[0]) if hasattr(self.features, "shape") else len(self.features)

    def take(self, index: Indices | Mask | slice | list[int]) -> Self:
        """The rows at `index`, in its order."""
        index = np.arange(len(self))[index]
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: take_rows(part, index) for name, part in parts.items() if part is not None})
