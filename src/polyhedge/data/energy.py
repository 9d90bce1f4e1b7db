"""The UCI Energy Efficiency data: 768 simulated buildings, eight design attributes, two loads."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from polyhedge._support.validation import Array

__all__ = ["EnergyEfficiency", "load_energy_efficiency"]

# Heating and cooling load, the last two columns.
_N_OUTCOMES = 2


@dataclass(frozen=True, eq=False)
class EnergyEfficiency:
    """Covariates and outcomes of the Energy Efficiency data, in their original units and row order.

    Attributes
    ----------
    X : ndarray of shape (768, 8)
        Building design attributes, in the order of `feature_names`.
    Y : ndarray of shape (768, 2)
        Heating and cooling load in kWh/m².
    feature_names : tuple of str
    outcome_names : tuple of str
    """

    X: Array
    Y: Array
    feature_names: tuple[str, ...]
    outcome_names: tuple[str, ...]

    def as_frame(self) -> tuple[Any, Any]:
        """Return ``(X, Y)`` as pandas data frames; needs pandas, which is not a dependency."""
        import pandas as pd

        return pd.DataFrame(self.X, columns=self.feature_names), pd.DataFrame(self.Y, columns=self.outcome_names)


def load_energy_efficiency() -> EnergyEfficiency:
    """Load the Energy Efficiency data that is shipped with the package.

    Returns
    -------
    EnergyEfficiency
        All 768 rows. They are not split: hand the row numbers to `split_rows`.

    Notes
    -----
    The rows are a full factorial design in systematic order, so a split has to be random. The paper z-scores
    inputs and outcomes; take means and standard deviations from the training split only, for example with
    ``sklearn.preprocessing.StandardScaler().fit(Y[split.train])``.

    References
    ----------
    .. [1] A. Tsanas and A. Xifara (2012), "Energy Efficiency", UCI Machine Learning Repository,
       https://doi.org/10.24432/C51307, licensed under CC BY 4.0.

    Examples
    --------
    >>> data = load_energy_efficiency()
    >>> data.X.shape, data.outcome_names
    ((768, 8), ('heating_load', 'cooling_load'))
    >>> data.Y[0]
    array([15.55, 21.33])
    """
    source = resources.files(__package__).joinpath("energy_efficiency.csv")
    header, *rows = csv.reader(source.read_text(encoding="utf-8").splitlines())
    table = np.array(rows, dtype=np.float64)
    return EnergyEfficiency(
        X=table[:, :-_N_OUTCOMES].copy(),
        Y=table[:, -_N_OUTCOMES:].copy(),
        feature_names=tuple(header[:-_N_OUTCOMES]),
        outcome_names=tuple(header[-_N_OUTCOMES:]),
    )
