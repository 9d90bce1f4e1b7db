"""Charging against day-ahead prices through the price crisis: radii that follow outcomes, beside one that does not.

Ten MWh are charged a day, at most one an hour; the predictor, a policy and its first radius know the years 2015 to
2019, and the days from 2020 to 2024 come one after another. The policy is fixed, so that only the radius can follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyhedge import DecisionProblem, RobustDecider
from polyhedge.calibration import Online, conformal_radius
from polyhedge.rows import Rows
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.real import Table, day_ahead_prices

__all__ = ["STEPS", "ScoredDays", "followed", "online_grid", "scored_days"]

STEPS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Fixed steps of adaptive conformal inference, among which the best is only known afterwards."""


@dataclass(frozen=True, eq=False)
class ScoredDays:
    """Scores of calibration days (m,), and of the days after them (n,) with planned costs and months."""

    calibration: Array
    scores: Array
    planned: Array
    months: Any


@dataclass(frozen=True)
class FollowedRadius:
    """What came of one way to follow.

    Attributes
    ----------
    name : of the way.
    coverage, worst_month : share of days that were not missed, of all and in the worst month; days without a bound
        count as held, as in the theorem.
    bounded : share of days whose bound held, among those that had one.
    median_bound : over the days; infinite ones count as such.
    infinite : share of days without a bound.
    """

    name: str
    coverage: float
    worst_month: float
    bounded: float
    median_bound: float
    infinite: float


def scored_days(table: Table | None = None) -> ScoredDays:
    """Plan on the years to 2018, score 2019 and the days since."""
    X, Y = day_ahead_prices() if table is None else table
    years = pd.DatetimeIndex(X.index).year
    z = cp.Variable(24, bounds=[0, 1], name="charge")
    problem = DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 10], n_outcomes=24)
    forecast = make_pipeline(StandardScaler(), Ridge(10.0))
    decider = RobustDecider(problem, forecast, guarantee="cost", split="time", random_state=0)
    decider.fit(X, Y, train=years <= 2017, learn=years == 2018, calibrate=years == 2019)
    model, since = decider.model_, years >= 2020
    regions: Any = model.place(model.read(X[since])).regions
    return ScoredDays(
        model.scores(model.read(X[years == 2019], Y[years == 2019])),
        regions.scores(Y[since].to_numpy()),
        regions.planned.v,
        pd.DatetimeIndex(X.index[since]).to_period("M").astype(str),
    )


def followed(days: ScoredDays, alpha: float = 0.1, steps: Sequence[float] = STEPS) -> list[FollowedRadius]:
    """The static radius, the one that chooses its own speed, and one for each fixed step."""
    static = np.full(len(days.scores), conformal_radius(days.calibration, alpha))
    ways = {"static": static, "Online()": _radii(days, Online(), alpha)}
    ways |= {f"step {step:g}": _radii(days, Online(step), alpha) for step in steps}
    return [_measured(name, days, radii) for name, radii in ways.items()]


def _radii(days: ScoredDays, calibrator: Online, alpha: float) -> Array:
    """The radius in force on each day, when all days before are known."""
    radii, issued = calibrator.calibrate(days.calibration, Rows(days.calibration[:, None]), alpha), []
    for score in days.scores:
        issued.append(radii.issued)
        radii = radii.updated([score])
    return np.array(issued)


def _measured(name: str, days: ScoredDays, radii: Array) -> FollowedRadius:
    held = days.scores <= radii
    worst = min(float(held[days.months == month].mean()) for month in np.unique(days.months))
    bound = float(np.median(days.planned + radii))
    bounded = float(held[np.isfinite(radii)].mean())
    return FollowedRadius(name, float(held.mean()), worst, bounded, bound, float(np.isinf(radii).mean()))


def online_grid(rows: Sequence[FollowedRadius]) -> Grid:
    """A line for each way to follow."""
    return Grid(
        "Charging 10 MWh a day against Dutch prices, 2020 to 2024",
        ("radius", "held", "worst month", "held with a bound", "median bound", "no bound"),
        tuple(
            (
                row.name,
                f"{row.coverage:.4f}",
                f"{row.worst_month:.2f}",
                f"{row.bounded:.4f}",
                f"{row.median_bound:.1f}",
                f"{row.infinite:.3f}",
            )
            for row in rows
        ),
        "held: share of days whose cost was at most its bound, 0.9 promised; days without a finite bound (no bound) "
        "count as held, as in the theorem, and are left out in: held with a bound. Which step is best is known only "
        "afterwards; Online() chooses as it goes.",
    )
