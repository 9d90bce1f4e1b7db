"""Labels and weights that calibration reads from a column that is no feature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge.calibration import Calibrator
from polyhedge.calibration.labels import read_from
from polyhedge.predictors.table import Table, text_of, values_of

__all__ = ["labels_column", "labels_or_weights"]


def labels_column(calibrator: Calibrator | None, table: Table, X: Any, outcomes: Any) -> str | None:
    """The column of the table that a calibrator names and that is no feature; None where it needs none."""
    name = read_from(calibrator)
    if not isinstance(name, str) or name in X.columns:
        return None
    table.check_columns([name])
    if name in outcomes:
        raise ValueError(
            f"calibration must name a column that is known before the outcome is, got the outcome {name!r}. Name "
            "another."
        )
    return name


def labels_or_weights(table: Table, name: str, *, are_weights: bool) -> NDArray[Any]:
    """One value for each row of the table: a label as text, None where it is missing, or a weight."""
    table.check_columns([name])
    if not are_weights:
        return np.asarray(text_of(table.column(name)), dtype=object)
    return np.asarray(values_of(table.column(name))[0], dtype=np.float64)
