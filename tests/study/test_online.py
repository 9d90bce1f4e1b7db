"""Radii that follow outcomes in the study: on days made up here, so that nothing is downloaded."""

from __future__ import annotations

import numpy as np
import pandas as pd

from polyhedge_study import online


def made_up() -> online.ScoredDays:
    rng = np.random.default_rng(0)
    months = pd.date_range("2020-01-01", periods=700).to_period("M").astype(str)
    return online.ScoredDays(rng.normal(size=200), rng.normal(size=700) + np.linspace(0, 6, 700), np.ones(700), months)


def test_a_radius_that_follows_keeps_the_level_where_a_static_one_loses_it() -> None:
    rows = {row.name: row for row in online.followed(made_up())}
    assert rows["static"].coverage < 0.5
    assert abs(rows["Online()"].coverage - 0.9) < 0.02
    best = min(row.median_bound for name, row in rows.items() if name.startswith("step") and row.coverage > 0.88)
    assert rows["Online()"].median_bound <= 1.03 * best + 0.2


def test_bound_of_a_day_does_not_know_the_day() -> None:
    days = made_up()
    other = online.ScoredDays(days.calibration, days.scores.copy(), days.planned, days.months)
    other.scores[-1] = 1e6
    radii = [online._radii(one, online.Online(), 0.1) for one in (days, other)]
    assert radii[0].tolist() == radii[1].tolist()
