"""Real problems with rows in time order, for every method that promises a bound on the cost of its decision.

| case | outcomes | decision | train / learn / calibrate / test |
|---|---|---|---|
| charging | 24 Dutch day-ahead prices | 10 MWh within a day, at most 1 in an hour | 2015-17 / 2018 / 2019 / 2020 |
| battery | the same | buy and sell up to 1 MWh an hour, 4 MWh of storage, 90 % come back | the same |
| bakery | demand for 3 products, 8 shops | orders; a unit left over costs 1, one short 2 | 50 / 15 / 15 / 20 % |
| portfolio | weekly losses of 20 shares | weights of at most 1, sum 1 | 50 / 15 / 15 / 20 % |
| restaurant | demand for 7 dishes | portions within the kitchen's limit; left over 1, short 3 | 50 / 15 / 17 / 18 % |
| bikes | casual, registered riders of an hour | bikes ready, within a limit; idle 1, missing 4 | 50 / 15 / 15 / 20 % |
| plants | load by night and by day | units of 40 MW; one running costs 1, one short 4 | 50 / 21 / 60 / 200 rows |
| crews | riders at 8 and at 17 hours | crews for one kind or both, which must suffice | 50 / 15 / 15 / 20 % |
| transfers | demand for a product at 2 shops | orders; moved 1, left over 1, short 4 | 50 / 15 / 15 / 20 % |
| wind | wind power of 6 hours | MWh sold ahead at 1, ramp of 10 MW; more earns .5, a lack costs 2 | the same |
| patrol | traffic in 6 parts of a day | shifts of two parts, in integers; a car costs 1, one missing 5 | the same |
| parking | free places in 6 car parks | 300 cars in all; a park further costs 1, no place 10 | the same |

No setting was chosen on the restaurant, the bikes, the plants or the transfers, but one: random parts of them and of
the bakery showed that few rows develop better than they calibrate. The restaurant showed that a rule was missing, and
the steps of margins were set after a look at the crews. The wind, the patrol and the parking were
added after all settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyhedge.data import Split
from polyhedge.data.splits import IndexArray
from polyhedge.problems import DecisionProblem, newsvendor
from polyhedge_study.real import (
    Table,
    bakery_demand,
    bike_riders,
    day_ahead_prices,
    electric_load,
    free_places,
    restaurant_demand,
    share_losses,
    traffic_flow,
    wind_power,
)
from polyhedge_study.tasks import Task

__all__ = ["CASES", "SEPARATE", "SERVED", "make_case"]

_SHARES = (50, 15, 15, 20)
"""Per cent of the dates that train, learn, calibrate and test: half for the predictor, the rest nearly alike."""
_CAPACITY, _EFFICIENCY = 4.0, 0.9
"""MWh that a battery of 1 MW holds, and the share of what it buys that it can sell."""


def make_case(name: str) -> Task:
    """The case of this name, one of `CASES`; its data are downloaded where they are not there yet."""
    if name not in CASES:
        raise ValueError(f"case must be one of {', '.join(CASES)}, got {name!r}.")
    return CASES[name]()


def _charging() -> Task:
    z = cp.Variable(24, bounds=[0, 1], name="charge")
    problem = DecisionProblem(decision=z, cost=_bill, constraints=[cp.sum(z) == 10], n_outcomes=24, name="charging")
    return _priced("charging", problem)


def _battery() -> Task:
    """Bought and sold energy; what is stored starts and ends at nothing."""
    z = cp.Variable(48, bounds=[0, 1], name="trade")
    stored = np.tril(np.ones((24, 24))) @ (_EFFICIENCY * z[:24] - z[24:])
    limits = [stored >= 0, stored <= _CAPACITY]
    problem = DecisionProblem(decision=z, cost=_balance, constraints=limits, n_outcomes=24, name="battery")
    return _priced("battery", problem)


def _bill(z: Any, u: Any) -> Any:
    return u @ z


def _balance(z: Any, u: Any) -> Any:
    return u @ (z[:24] - z[24:])


def _priced(name: str, problem: DecisionProblem) -> Task:
    table = day_ahead_prices()
    years = pd.DatetimeIndex(table.X.index).year
    parts = [np.flatnonzero(rows) for rows in (years <= 2017, years == 2018, years == 2019, years == 2020)]
    return _task(name, problem, table, parts, _ridge())


def _bakery() -> Task:
    table, ratio = bakery_demand(), 2 / 3
    X = pd.get_dummies(table.X, columns=["store"], dtype=float)
    problem = newsvendor(1.0, 2.0, 3)
    return _task("bakery", problem, Table(X, table.Y), _by_time(X), _trees(), (ratio,) * 3)


def _portfolio() -> Task:
    table = share_losses()
    d = table.Y.shape[1]
    z = cp.Variable(d, nonneg=True, name="weight")
    problem = DecisionProblem(decision=z, cost=_bill, constraints=[cp.sum(z) == 1], n_outcomes=d, name="portfolio")
    return _task("portfolio", problem, table, _by_time(table.X), DummyRegressor())


def _restaurant() -> Task:
    table = restaurant_demand()
    parts = _by_time(table.X, (50, 15, 17, 18))
    # The kitchen can prepare what was asked for on nine of ten days of the first part.
    limit = float(np.quantile(table.Y.to_numpy()[parts[0]].sum(axis=1), 0.9))
    problem = newsvendor(1.0, 3.0, table.Y.shape[1], capacity=limit)
    return _task("restaurant", problem, table, parts, _ridge())


def _bikes() -> Task:
    table = bike_riders()
    parts = _by_time(table.X)
    limit = float(np.quantile(table.Y.to_numpy()[parts[0]].sum(axis=1), 0.9))
    return _task("bikes", newsvendor(1.0, 4.0, 2, capacity=limit), table, parts, _trees())


def _plants() -> Task:
    """Units that run, in integers; 71 days to develop with."""
    table, size = electric_load(), 40.0
    z = cp.Variable(2, integer=True, nonneg=True, name="units")
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z) + 4 / size * cp.sum(cp.pos(u - size * z)),
        constraints=[z <= 40],
        n_outcomes=2,
        name="plants",
    )
    # Days at random: few rows are what this case is about, not drift.
    parts = np.split(np.random.default_rng(0).permutation(len(table.Y))[:331], [50, 71, 131])
    task = _task("plants", problem, table, parts, _ridge())
    return replace(task, in_time=False)


def _crews() -> Task:
    """The service level is a constraint that holds the outcome: the first kind serves both kinds of riders."""
    table = bike_riders()
    rows = np.isin(pd.DatetimeIndex(table.X.index).hour, (8, 17))
    table = Table(table.X[rows], table.Y[rows])
    z, price = cp.Variable(3, nonneg=True, name="crews"), np.array([3.0, 2.0, 2.0])
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: price @ z,
        uncertain_constraints=lambda z, u: [z[0] + z[1] >= u[0], z[0] + z[2] >= u[1]],
        n_outcomes=2,
        name="crews",
    )
    return _task("crews", problem, table, _by_time(table.X), _trees())


def _transfers() -> Task:
    """What one shop has left and the other lacks is moved: the least cost after that, as a maximum of pieces."""
    table = bakery_demand(2)
    first, second = (table.X["store"].to_numpy() == name for name in np.unique(table.X["store"]))
    earlier = table.X[second].filter(regex="_week|_month").add_suffix("_second")
    X = table.X[first].drop(columns="store").join(earlier, how="inner")
    Y = pd.DataFrame({"first": table.Y[first].iloc[:, 0], "second": table.Y[second].iloc[:, 0]}).loc[X.index]
    over, under, move = 1.0, 4.0, 1.0
    prices = [(over, over), (-under, -under), (over, over - move), (over - move, over)]
    prices += [(-under, move - under), (move - under, -under)]
    z = cp.Variable(2, nonneg=True, name="order")
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.maximum(*(a * (z[0] - u[0]) + b * (z[1] - u[1]) for a, b in prices)),
        n_outcomes=2,
        name="transfers",
    )
    return _task("transfers", problem, Table(X, Y), _by_time(X), _trees())


def _wind() -> Task:
    """What a wind farm earns on a schedule: the cost is income with a minus, and holds the outcome in every piece."""
    z, ramp = cp.Variable(6, bounds=[0, 130], name="schedule"), 10.0
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.maximum(-(z + u) / 2, z - 2 * u)),
        constraints=[cp.abs(cp.diff(z)) <= ramp],
        n_outcomes=6,
        name="wind",
    )
    table = wind_power()
    return _task("wind", problem, table, _by_time(table.X), _ridge())


def _patrol() -> Task:
    """Cars on patrol, one for 500 vehicles an hour; a shift begins at any part but the last and lasts for two."""
    table, size = traffic_flow(), 500.0
    z = cp.Variable(5, integer=True, nonneg=True, name="shifts")
    covers = np.eye(6, 5) + np.eye(6, 5, -1)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(covers @ z) + 5 / size * cp.sum(cp.pos(u - size * (covers @ z))),
        constraints=[z <= 20],
        n_outcomes=6,
        name="patrol",
    )
    return _task("patrol", problem, table, _by_time(table.X), _ridge())


def _parking() -> Task:
    """Signs share out the cars that arrive; the first car park is the nearest."""
    table = free_places()
    z, distance = cp.Variable(6, nonneg=True, name="cars"), np.arange(6.0)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: distance @ z + 10 * cp.sum(cp.pos(z - u)),
        constraints=[cp.sum(z) == 300],
        n_outcomes=6,
        name="parking",
    )
    return _task("parking", problem, table, _by_time(table.X), _ridge())


CASES: dict[str, Callable[[], Task]] = {
    "charging": _charging,
    "battery": _battery,
    "bakery": _bakery,
    "portfolio": _portfolio,
    "restaurant": _restaurant,
    "bikes": _bikes,
    "plants": _plants,
    "crews": _crews,
    "transfers": _transfers,
    "wind": _wind,
    "patrol": _patrol,
    "parking": _parking,
}
"""Makers of the cases by name."""
SEPARATE, SERVED = ("bakery",), ("crews",)
"""Cases whose cost separates into one for each outcome; cases whose constraints hold the outcome."""


def _ridge() -> Any:
    return make_pipeline(StandardScaler(), Ridge(10.0))


def _trees() -> Any:
    model = HistGradientBoostingRegressor(max_iter=150, learning_rate=0.05, max_leaf_nodes=12, random_state=0)
    return MultiOutputRegressor(model)


def _by_time(X: pd.DataFrame, shares: tuple[int, ...] = _SHARES) -> list[IndexArray]:
    """Rows of the four parts; a date lies in one of them."""
    dates = pd.DatetimeIndex(X.index)
    cuts = dates.unique()[np.floor(np.cumsum(shares)[:-1] / 100 * dates.nunique()).astype(int)]
    part = np.searchsorted(cuts.to_numpy(), dates.to_numpy(), side="right")
    return [np.flatnonzero(part == k) for k in range(4)]


def _task(
    name: str,
    problem: DecisionProblem,
    table: Table,
    parts: list[IndexArray],
    predictor: Any,
    ratios: tuple[float, ...] | None = None,
) -> Task:
    X, Y = table.X.to_numpy(dtype=np.float64), table.Y.to_numpy(dtype=np.float64)
    train, learn, calibrate, test = parts
    split = Split(train, learn, calibrate, n_rows=len(Y))
    names = tuple(map(str, table.Y.columns))
    return Task(name, problem, X, Y, split, test, predictor, names, ratios, in_time=True)
