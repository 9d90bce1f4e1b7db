"""Rows, columns and labels are known by their names, orders and kinds wherever a decider takes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.calibration import ByCategory, Online, Recent, Weighted
from polyhedge.calibration.by_category import as_label
from polyhedge.data import GroupSplit, TimeSplit

PROBLEM = ph.problems.simplex_linear([0.0, 0.1])
N, FRESH = 400, slice(300, 400)


def rows(n: int = N) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Residuals grow along the clock, so that every order of the rows has a radius of its own."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"heat": rng.normal(size=n), "load": rng.normal(5, 2, size=n), "clock": np.arange(n)})
    Y = X[["heat"]].to_numpy() + rng.normal(size=(n, 2)) * (1 + np.arange(n)[:, None] / n)
    return X, pd.DataFrame(Y, columns=["a", "b"])


def decider(**given: Any) -> ph.RobustDecider:
    return ph.RobustDecider(PROBLEM, learner=ph.learners.PcaBox(), random_state=0, **given)


X, Y = rows()


def shuffled(values: Any) -> pd.Series:
    """Values of the fresh rows under an index in another order."""
    return pd.Series(values, index=X.index[FRESH][::-1])


def fitted() -> ph.RobustDecider:
    return decider().fit(X[:300], Y[:300])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("by", lambda: fitted().evaluate(X[FRESH], Y[FRESH], by=shuffled(["u", "v"] * 50))),
        ("times", lambda: ph.backtest(decider(), X[FRESH], Y[FRESH], times=shuffled(np.arange(100)), every=10)),
        ("times", lambda: decider(split=TimeSplit(times=shuffled(np.arange(100)))).fit(X[FRESH], Y[FRESH])),
        ("times", lambda: fitted().refresh(X[FRESH], Y[FRESH], times=shuffled(np.arange(100)))),
        ("radii", lambda: fitted().update(X[FRESH], Y[FRESH], radii=shuffled(np.ones(100)))),
        ("bounds", lambda: fitted().update(X[FRESH], Y[FRESH], bounds=shuffled(np.ones(100)))),
        ("keys", lambda: fitted().update(X[FRESH], Y[FRESH], keys=shuffled(np.arange(100)))),
        ("sample_weight", lambda: decider().fit(X[FRESH], Y[FRESH], sample_weight=shuffled(np.ones(100)))),
    ],
    ids=["evaluate by", "backtest", "split", "refresh", "radii", "bounds", "keys", "weights"],
)
def test_series_of_other_rows_are_refused_and_never_taken_as_they_come(name: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=f"X and {name} must hold the same rows in the same order"):
        call()


def test_times_with_a_zone_are_in_order_through_the_hour_that_comes_twice() -> None:
    hours = pd.date_range("2024-10-26 20:00", periods=N, freq="h", tz="Europe/Berlin")
    for times in (hours, pd.Series(hours), [hour.isoformat() for hour in hours], hours.to_pydatetime()):
        found = decider(split=TimeSplit(times=times, gap="3h")).fit(X, Y).split_
        assert found.train.tolist() == list(range(197))
        assert found.calibrate.tolist() == list(range(300, 400))
    with pytest.raises(ValueError, match="Times must not be missing"):
        decider(split=TimeSplit(times=pd.Series(hours).where(np.arange(N) > 0))).fit(X, Y)


def test_a_date_is_one_key_however_it_is_stored() -> None:
    days, follows = pd.date_range("2024-05-01", periods=2), fitted()
    for keys in (days, days.to_numpy(), list(days.date), ["2024-05-01", "2024-05-02"]):
        assert len(follows.update(X[300:302], Y[300:302], keys=keys).missed) == 2


def test_target_of_a_density_ratio_is_read_by_the_names_of_its_columns() -> None:
    target = X[X["heat"] > 0]
    found = [
        decider(calibration=Weighted(target=each)).fit(X, Y).decide(X[:5]).radii
        for each in (target, target[["clock", "load", "heat"]].assign(more=1.0), target.to_numpy())
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    with pytest.raises(ValueError, match="target must have the column"):
        decider(calibration=Weighted(target=target[["heat"]])).fit(X, Y)


@pytest.mark.parametrize("calibration", [Recent(30), Online(window=40)], ids=["recent", "online"])
def test_given_parts_are_taken_in_the_order_of_time(calibration: Any) -> None:
    settings = {"split": TimeSplit("clock"), "calibration": calibration}
    parts = {"train": np.arange(150), "learn": np.arange(150, 200), "calibrate": np.arange(200, 300)}
    mixed = {name: np.random.default_rng(1).permutation(part) for name, part in parts.items()}
    one, other = decider(**settings).fit(X, Y, **parts), decider(**settings).fit(X, Y, **mixed)
    assert one.radius_ == other.radius_
    one.refresh(X[300:], Y[300:], train=np.arange(40), calibrate=np.arange(40, 100))
    other.refresh(X[300:], Y[300:], train=np.arange(40), calibrate=np.arange(99, 39, -1))
    assert one.radius_ == other.radius_
    assert np.array_equal(one.decide(X[:3]).cost_bound, other.decide(X[:3]).cost_bound)


def test_long_integers_are_different_categories() -> None:
    first = 2**53
    labels = np.where(np.arange(N) % 2 == 0, first, first + 1)
    radii: Any = decider(calibration=ByCategory(labels)).fit(X, Y).model_.radii
    assert radii.categories == (str(first), str(first + 1))
    assert as_label(np.int64(7)) == as_label(7.0) == as_label(7) == "7"


def test_missing_labels_are_one_category_also_among_texts() -> None:
    labels = [np.nan if i % 2 else "u" for i in range(N)]
    by_label = decider(calibration=ByCategory(labels)).fit(X, Y)
    mixed = by_label.decide(X[:2], labels=["u", np.nan]).radii
    alone = by_label.decide(X[:1], labels=[None]).radii
    assert mixed is not None
    assert alone is not None
    assert np.isfinite(mixed).all()
    assert alone[0] == mixed[1]


def test_keys_are_known_until_the_next_fit_and_no_longer() -> None:
    again = fitted()
    again.update(X[300:302], Y[300:302], keys=["mon", "tue"])
    again.fit(X[:300], Y[:300])
    assert len(again.update(X[300:302], Y[300:302], keys=["mon", "tue"]).missed) == 2


@pytest.mark.parametrize("between", ["none", "refresh", "fit"])
def test_a_backtest_takes_labels_and_weights_given_separately_as_it_takes_columns(between: str) -> None:
    table = X.assign(kind=X["clock"] % 2)
    pairs = [
        (ByCategory(table["kind"]), ByCategory("kind")),
        (Weighted(np.exp(X["heat"])), Weighted(lambda rows: np.exp(rows["heat"]))),
    ]
    for labels, column in pairs:
        one, other = (
            ph.backtest(decider(calibration=each), table, Y, every=100, between=between) for each in (labels, column)
        )
        assert one.periods == other.periods
        assert one.decider.radius_ == other.decider.radius_


def test_history_is_replayed_with_the_parameters_of_each_row() -> None:
    order, price = cp.Variable(1), cp.Parameter(nonneg=True, name="price")
    problem = ph.DecisionProblem(
        decision=order,
        cost=lambda z, u: price * z[0] + 4 * cp.pos(u[0] + u[1] - z[0]),
        constraints=[order >= 0, order <= 20],
        n_outcomes=2,
    )
    prices = np.where(np.arange(N) < 330, 1.0, 2.0)
    settings = ph.RobustDecider(problem, learner=ph.learners.PcaBox(), split="time", random_state=0)
    found = ph.backtest(settings, X, Y, every=100, start=300, parameters={"price": prices})
    fitted_once = settings.fit(X[:300], Y[:300], parameters={"price": prices[:300]})
    known = fitted_once.evaluate(X[300:], Y[300:], parameters={"price": prices[300:]})
    assert found.periods[0].realised == known.realised_cost.value
    assert found.periods[0].cost_bound == known.worst_case_cost.value
    with pytest.raises(ValueError, match="price"):
        ph.backtest(settings, X, Y, every=100)


def test_a_log_is_opened_with_the_model_before_its_outcomes_and_says_so(tmp_path: Path) -> None:
    follows = decider(calibration=Online(), split="time").fit(X[:300], Y[:300])
    follows.save(tmp_path / "before.polyhedge")
    log = ph.OutcomeLog(tmp_path / "log.db", follows)
    follows.update(X[300:310], Y[300:310], keys=range(10), log=log)
    follows.save(tmp_path / "after.polyhedge")
    with pytest.raises(ValueError, match="this one has taken in 10 already"):
        ph.OutcomeLog(tmp_path / "log.db", ph.load(tmp_path / "after.polyhedge"))
    again = ph.load(tmp_path / "before.polyhedge")
    again.follow(ph.OutcomeLog(tmp_path / "log.db", again))
    assert again.radius_ == follows.radius_


def test_outcomes_that_threads_feed_at_once_are_all_counted() -> None:
    follows = decider(calibration=Online(), split="time").fit(X[:300], Y[:300])
    parts = [slice(start, start + 10) for start in range(300, 400, 10)]
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda part: follows.update(X[part], Y[part]), parts))
    radii: Any = follows.model_.radii
    assert len(follows.monitored_.missed) == radii.n_rows == 100


def test_rows_without_a_group_are_refused_also_in_a_column() -> None:
    groups = pd.Series(np.arange(N) // 2.0).where(np.arange(N) > 3)
    for split, given in ((GroupSplit("group"), {}), ((0.5, 0.25, 0.25), {"groups": groups})):
        with pytest.raises(ValueError, match=r"4 row\(s\) have none, the first is row 0"):
            decider(split=split).fit(X.assign(group=groups), Y, **given)
