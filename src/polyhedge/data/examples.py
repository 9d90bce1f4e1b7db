"""Tables to try things on: the UCI Energy Efficiency data, and examples with a history, new rows and fresh rows."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from polyhedge._support.validation import Array

__all__ = ["EXAMPLES", "EnergyEfficiency", "ExampleTables", "load_energy_efficiency", "make_example"]

# A fifth of the buildings stays unseen, so that the promise can be checked.
_N_FRESH_BUILDINGS = 40
# Each building was simulated facing four ways: four near-copies.
_ORIENTATIONS = 4
# As many rows as fit on a screen.
_N_NEW = 12
# Enough rows for all four parts, and a fit within seconds.
_N_DAYS = 500
_SHOPS = ("airport", "centre", "station")


@dataclass(frozen=True, eq=False)
class ExampleTables:
    """A worked example.

    Attributes
    ----------
    history : pandas.DataFrame, features and outcomes to learn from.
    fresh : pandas.DataFrame, later rows with outcomes.
    new : pandas.DataFrame, rows without outcomes, to decide.
    outcomes : names of the outcome columns.
    """

    history: Any
    fresh: Any
    new: Any
    outcomes: tuple[str, ...]


def make_example(name: str) -> ExampleTables:
    """The tables of the example of this `name`, one of `EXAMPLES`; always the same.

    Examples
    --------
    >>> tables = make_example("energy")
    >>> len(tables.history), len(tables.fresh), len(tables.new)
    (608, 160, 12)
    """
    if name not in _MAKERS:
        raise ValueError(f"The example must be one of {', '.join(EXAMPLES)}, got {name!r}.")
    return _MAKERS[name]()


def _energy() -> ExampleTables:
    """The Energy Efficiency data in random order; the four orientations of a building are near-copies."""
    import pandas as pd

    data = load_energy_efficiency()
    X, Y = data.as_frame()
    codes = {"orientation": int, "glazing_area_distribution": int}
    frame = pd.concat([X.astype(codes), Y], axis=1)
    # The file lists the four orientations of a building one after the other.
    frame.insert(0, "building", [f"B{1 + i // _ORIENTATIONS:03d}" for i in range(len(frame))])
    rng = np.random.default_rng(2024)
    buildings = rng.permutation(frame["building"].unique())
    is_fresh = frame["building"].isin(buildings[:_N_FRESH_BUILDINGS])
    shuffled = frame.iloc[rng.permutation(len(frame))]
    history, fresh = shuffled[~is_fresh[shuffled.index]], shuffled[is_fresh[shuffled.index]]
    new = fresh.drop(columns=list(data.outcome_names)).head(_N_NEW)
    return ExampleTables(history, fresh, new, data.outcome_names)


def _newsvendor() -> ExampleTables:
    """Daily demand for three products in three shops: season, weekday, weather, promotions, and some gaps."""
    import pandas as pd

    rng = np.random.default_rng(2025)
    days = np.repeat(np.arange(_N_DAYS), len(_SHOPS))
    shop = np.tile(np.arange(len(_SHOPS)), _N_DAYS)
    n = len(days)
    weekday = days % 7
    temperature = 14 - 3 * np.cos(2 * np.pi * (days - 20) / 365) + rng.normal(0, 4, n)
    promotion = rng.random(n) < 0.2
    busy = np.array([1.0, 1.4, 0.8])[shop] * np.where(weekday >= 5, 1.3, 1.0)
    # One crowd comes or stays away for all products at once, so demands move together.
    crowd = rng.gamma(20.0, 1 / 20.0, n)
    means = np.column_stack(
        [
            40 * busy * (1 + 0.3 * promotion),
            25 * busy * np.exp(0.02 * (temperature - 14)),
            30 * busy * np.exp(-0.01 * (temperature - 14)),
        ]
    )
    demand = rng.poisson(means * crowd[:, None])
    frame = pd.DataFrame(
        {
            "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D"),
            "shop": np.array(_SHOPS)[shop],
            "weekday": np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])[weekday],
            "temperature": np.where(rng.random(n) < 0.03, np.nan, temperature.round(1)),
            "promotion": np.where(promotion, "yes", "no"),
            "bread": demand[:, 0],
            "salad": demand[:, 1],
            "soup": demand[:, 2],
        }
    )
    outcomes = ("bread", "salad", "soup")
    last = days >= _N_DAYS - _N_NEW // len(_SHOPS)
    recent = (days >= _N_DAYS - 50) & ~last
    return ExampleTables(frame[~(last | recent)], frame[recent], frame[last].drop(columns=list(outcomes)), outcomes)


@dataclass(frozen=True, eq=False)
class EnergyEfficiency:
    """Covariates and outcomes of the Energy Efficiency data, in their original units and row order.

    Attributes
    ----------
    X : (768, 8) building design attributes, in the order of `feature_names`.
    Y : (768, 2) heating and cooling load in kWh/m², in the order of `outcome_names`.
    feature_names, outcome_names : names of the columns.
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

    The 768 rows are a full factorial design in systematic order, so a split has to be random. The paper z-scores inputs
    and outcomes; take means and standard deviations from the training split only.

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
    return EnergyEfficiency(table[:, :-2].copy(), table[:, -2:].copy(), tuple(header[:-2]), tuple(header[-2:]))


_MAKERS = {"energy": _energy, "newsvendor": _newsvendor}
EXAMPLES = tuple(_MAKERS)
