"""An error counts against the bound that was issued, however it is handed in, and each row counts once."""

from __future__ import annotations

from copy import copy
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from sklearn.base import clone

import polyhedge as ph
from polyhedge._support.frames import row_keys
from polyhedge.calibration import Calibrator, Marginal, Online
from polyhedge.regions import GuardRegions, PlannedDecisions


def rows(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.round(100 + 9 * X[:, :1] + 5 * rng.normal(size=(n, 1)))  # whole outcomes: costs tie with bounds


def fitted(calibration: Calibrator | None = None, guarantee: str = "cost") -> ph.RobustDecider:
    """One of its own, of a fit that others share."""
    return copy(_fitted(calibration, guarantee))


@cache
def _fitted(calibration: Calibrator | None, guarantee: str) -> ph.RobustDecider:
    problem, learner = ph.problems.newsvendor(1.0, 3.0, 1), ph.learners.OneSidedBox()
    settings: Any = {"calibration": calibration, "guarantee": guarantee, "learner": learner, "random_state": 0}
    return ph.RobustDecider(problem, **settings).fit(*rows(300, 0))


@pytest.mark.parametrize("calibration", [Marginal(), Online(0.05), Online()], ids=str)
def test_bounds_on_costs_count_as_the_decisions_that_have_them(calibration: Calibrator) -> None:
    X, Y = rows(60, 1)
    by_decisions, by_costs, by_radii = (fitted(calibration) for _ in range(3))
    issued = [by_decisions.decide(X[:30])]
    for each in (by_decisions, by_costs, by_radii):  # the radius moves on while outcomes are awaited
        each.update(*rows(15, 3))
    issued.append(by_decisions.decide(X[30:]))
    for part, decisions in zip((slice(30), slice(30, None)), issued, strict=True):
        told = by_decisions.update(X[part], Y[part], decisions)
        by_costs.update(X[part], Y[part], decisions.cost_bound)
        by_radii.update(X[part], Y[part], radii=decisions.radii)
        realised = by_decisions.problem_.evaluate(decisions.flat, Y[part])
        assert told.missed[-30:].tolist() == (realised > decisions.cost_bound + 1e-9).tolist()
    for other in (by_costs, by_radii):
        assert other.monitored_.missed.tolist() == by_decisions.monitored_.missed.tolist()
        assert other.radius_ == by_decisions.radius_
    assert by_costs.monitored_.missed.any()


def test_cost_equal_to_its_bound_keeps_to_it() -> None:
    decider, (X, Y) = fitted(), rows(60, 2)
    costs = decider.problem_.evaluate(decider.decide(X).flat, Y)
    assert not decider.update(X, Y, costs).missed.any()
    assert fitted().update(X, Y, np.nextafter(costs, -np.inf) - 1e-9).missed.all()
    assert fitted().update(X, Y, np.full(60, np.inf)).coverage is None


def test_radius_behind_a_bound_is_never_too_small_by_rounding() -> None:
    """A row whose score is the radius itself is covered, although v + r - v may be less than r in floats."""
    rng, n = np.random.default_rng(0), 2000
    v, r = 1e3 * rng.normal(size=n), rng.normal(size=n)
    planned = PlannedDecisions(np.zeros((n, 1)), v, np.full(n, ph.Status.FINISHED, dtype=object))
    placed = GuardRegions(fitted().problem_, np.zeros((n, 1)), np.zeros((n, 0)), planned)
    found = placed.radii_of(v + r, own=np.zeros(n))
    assert (v + r - v < r).any()
    assert (found >= r).all()
    assert found == pytest.approx(r, abs=1e-9)
    assert (placed.radii_of(v + r, own=r) == r).all()


def test_bounds_that_cannot_be_held_against_outcomes_are_refused(tmp_path: Path) -> None:
    X, Y = rows(5, 1)
    sets, guard = fitted(guarantee="outcome"), fitted()
    with pytest.raises(ValueError, match=r"do not say which outcomes .* Give what decide returned"):
        sets.update(X, Y, sets.decide(X).cost_bound)
    with pytest.raises(ValueError, match="got NaN for rows with a decision"):
        guard.update(X, Y, np.full(5, np.nan))
    with pytest.raises(ValueError, match="Give bounds or radii, not both"):
        guard.update(X, Y, guard.decide(X), radii=np.zeros(5))
    with pytest.raises(ValueError, match="A log needs keys"):
        guard.update(X, Y, log=ph.OutcomeLog(tmp_path / "log.db", guard))


class TestKeys:
    """Each row has one name and counts once."""

    @given(st.lists(st.integers(-(2**53), 2**53), unique=True, max_size=20))
    def test_a_number_is_one_key_however_it_is_stored(self, numbers: list[int]) -> None:
        texts = [str(number) for number in numbers]
        for stored in (numbers, np.array(numbers, dtype=np.int64), map(float, numbers), map(Decimal, numbers), texts):
            assert row_keys(stored) == texts

    @pytest.mark.parametrize("has_log", [False, True])
    def test_rows_count_once_and_one_call_names_each_once(self, has_log: bool, tmp_path: Path) -> None:
        decider, (X, Y) = fitted(Online(0.05)), rows(30, 1)
        twin = fitted(Online(0.05))
        more: Any = {"log": ph.OutcomeLog(tmp_path / "log.db", decider)} if has_log else {}
        decider.update(X[:20], Y[:20], keys=range(20), **more)
        found = decider.update(X, Y, keys=np.arange(30.0), **more)
        again = decider.update(X, Y, keys=[str(i) for i in range(30)], **more)
        assert len(found.missed) == len(again.missed) == 30
        assert twin.update(X, Y).missed.tolist() == found.missed.tolist()
        assert twin.radius_ == decider.radius_
        with pytest.raises(ValueError, match="must name each row once, but '1' stands there 2 times"):
            decider.update(X[:2], Y[:2], keys=[1, 1.0], **more)
        with pytest.raises(ValueError, match="one key for each of 2 rows, got 3"):
            decider.update(X[:2], Y[:2], keys="abc", **more)

    def test_a_log_knows_what_was_issued_and_brings_another_process_up_to_it(self, tmp_path: Path) -> None:
        decider, (X, Y) = fitted(Online(0.05)), rows(40, 1)
        decider.save(tmp_path / "m.polyhedge")
        log = ph.OutcomeLog(tmp_path / "log.db", decider)
        log.note(range(40), decider.decide(X))
        found = decider.update(X[:25], Y[:25], keys=range(25), log=log)
        assert not found.was_recomputed
        assert (found.radii == found.radii[0]).all()  # of one batch, although the radius has moved since
        twin = ph.load(tmp_path / "m.polyhedge")
        told = twin.follow(ph.OutcomeLog(tmp_path / "log.db", twin))
        assert told.missed.tolist() == found.missed.tolist()
        assert twin.radius_ == decider.radius_
        decider.recalibrate(*rows(60, 5))
        with pytest.raises(ValueError, match="belongs to another calibration of the decider"):
            decider.update(X[25:], Y[25:], keys=range(25, 40), log=log)
        with pytest.raises(ValueError, match="must name each row once, but '7' stands there 2 times"):
            log.note([7, 7.0], twin.decide(X[:2]))

    def test_rows_of_a_log_are_known_after_it_was_left_and_those_fed_alone_after_a_file(self, tmp_path: Path) -> None:
        decider, (X, Y) = fitted(Marginal()), rows(40, 1)
        log = ph.OutcomeLog(tmp_path / "log.db", decider)
        decider.update(X[:20], Y[:20], keys=range(20), log=log)
        assert len(decider.update(X[10:30], Y[10:30], keys=range(10, 30)).missed) == 30
        decider.save(tmp_path / "m.polyhedge")
        twin = ph.load(tmp_path / "m.polyhedge")
        assert len(twin.update(X, Y, keys=range(40)).missed) == 40
        with pytest.raises(ValueError, match="Outcomes were fed to this decider without a log"):
            ph.load(tmp_path / "m.polyhedge").update(X, Y, keys=range(40), log=log)
        assert len(decider.follow(log).missed) == 20
        assert len(decider.update(X, Y, keys=range(40)).missed) == 40  # what was fed alone was dropped with it

    @pytest.mark.parametrize("outcome", ["series", "list", "number"])
    def test_one_row_may_be_a_series_with_its_outcome(self, outcome: str) -> None:
        (X, Y), twins = rows(200, 0), []
        frame, outcomes = pd.DataFrame(X, columns=["x", "y"]), pd.DataFrame(Y, columns=["u"])
        for _ in range(2):
            made = clone(fitted(Online(0.05))).set_params(split="time")
            twins.append(made.fit(frame[:150], outcomes[:150]))
        one, other = twins
        for i in range(150, 160):
            row, came = frame.iloc[i], outcomes.iloc[i]
            came = {"series": came, "list": came.tolist(), "number": float(came.iloc[0])}[outcome]
            one.update(row, came, one.decide(row), keys=i)
            other.update(frame[i : i + 1], outcomes[i : i + 1], other.decide(frame[i : i + 1]), keys=[i])
        assert one.radius_ == other.radius_
        assert one.monitored_.missed.tolist() == other.monitored_.missed.tolist()
        assert len(one.update(frame.iloc[150], outcomes.iloc[150], keys=150).missed) == 10
