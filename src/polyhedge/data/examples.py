"""Tables to try things on: worked examples, the UCI Energy Efficiency data, and the paper's synthetic generator."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from polyhedge._support.validation import Array, as_finite, check_count, check_rng

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


def make_synthetic(
    n_samples: int, *, rng: np.random.Generator, n_outcomes: int = 2, contamination: float = 0.06
) -> tuple[Array, Array]:
    """Draw independent samples ``Y = mu(X) + s(X) A xi + 0.4 B T`` with ``X ~ N(0, I)``.

    ``A`` is `mixing_matrix`, ``s`` is `noise_scale`, ``xi`` is standard normal, ``B`` is one Bernoulli(`contamination`)
    a row, and ``T`` holds independent Student-t draws with 3 degrees of freedom, one for each outcome.

    Parameters
    ----------
    n_samples : number of rows. The rows are not split: hand them to `split_rows`.
    rng : source of all draws, in the order X, xi, B, T.
    n_outcomes : number ``d`` of outcomes, at least 2; the covariates X have ``2 d`` columns.
    contamination : probability that a row is contaminated; 0 leaves Gaussian noise.

    Notes
    -----
    For ``d = 2`` the mean and the scale are those of the paper. It does not print ``A`` and the family of the
    contamination; the defaults reproduce the noise level (0.27, 0.15) and the correlation its tables imply.

    Examples
    --------
    >>> X, Y = make_synthetic(5, rng=np.random.default_rng(0))
    >>> X.shape, Y.shape
    ((5, 4), (5, 2))
    """
    n = check_count(n_samples, "n_samples", minimum=1)
    d = check_count(n_outcomes, "n_outcomes", minimum=2)
    X = check_rng(rng).standard_normal((n, 2 * d))
    gaussian = noise_scale(X)[:, None] * (rng.standard_normal((n, d)) @ mixing_matrix(d).T)
    contaminated = rng.random((n, 1)) < contamination
    heavy = 0.40 * rng.standard_t(3.0, (n, d))
    return X, synthetic_mean(X) + gaussian + np.where(contaminated, heavy, 0.0)


def synthetic_mean(X: ArrayLike) -> Array:
    """Conditional mean ``mu(X)`` of the outcomes, the predictor that knows the truth.

    Outcomes come in pairs, and pair ``p = 0, 1, ...`` reads the covariates from ``x_1 = X[:, 4 p]`` on::

        mu_1 =  0.75 x_1 + 0.35 sin(x_2) - 0.20 x_3
        mu_2 = -0.45 x_1 + 0.55 x_2 ** 2 + 0.30 x_4

    An odd number of outcomes ends with a ``mu_1`` whose covariates wrap around to the first columns. The mean
    uses no outcome, so it may see every split.

    Examples
    --------
    >>> synthetic_mean([[1.0, 0.0, 1.0, 1.0]])
    array([[ 0.55, -0.15]])
    """
    X = as_finite(X, "X", ndim=2)
    n_columns = X.shape[1]
    if n_columns < 4 or n_columns % 2:
        raise ValueError(f"X must have two columns for each of at least two outcomes, got {n_columns} column(s).")
    means = []
    for j in range(n_columns // 2):
        first = 4 * (j // 2)
        x1, x2, x3, x4 = (X[:, (first + i) % n_columns] for i in range(4))
        odd = 0.75 * x1 + 0.35 * np.sin(x2) - 0.20 * x3
        even = -0.45 * x1 + 0.55 * x2**2 + 0.30 * x4
        means.append(odd if j % 2 == 0 else even)
    return np.column_stack(means)


def noise_scale(X: ArrayLike) -> Array:
    """Factor ``s(X) = 0.80 + 0.45 * sigmoid(X_1)`` on the Gaussian noise of each row.

    Examples
    --------
    >>> noise_scale([[0.0, 3.0, 3.0, 3.0]])
    array([1.025])
    """
    return 0.80 + 0.45 * np.asarray(expit(as_finite(X, "X", ndim=2)[:, 0]), dtype=np.float64)


def mixing_matrix(n_outcomes: int = 2) -> Array:
    """Root ``A`` of the noise covariance: blocks ``[[0.26, 0.08], [0.08, 0.13]]`` and small cross terms.

    The entry 0.02 links the last outcome of a block and the first of the next. All other entries are 0, so the noise
    level of an outcome does not grow with `n_outcomes`. An odd number of outcomes ends with the single entry 0.26.

    Examples
    --------
    >>> mixing_matrix(3)
    array([[0.26, 0.08, 0.  ],
           [0.08, 0.13, 0.02],
           [0.  , 0.02, 0.26]])
    """
    d = check_count(n_outcomes, "n_outcomes", minimum=1)
    diagonal = np.where(np.arange(d) % 2 == 0, 0.26, 0.13)
    neighbours = np.where(np.arange(d - 1) % 2 == 0, 0.08, 0.02)
    return np.diag(diagonal) + np.diag(neighbours, 1) + np.diag(neighbours, -1)
