"""Deciders for data with groups, shift and time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

import polyhedge as ph
from polyhedge._support.warnings import Code
from polyhedge.calibration import ByCategory, Calibrator, Online, Recent, ThisModel, Weighted
from polyhedge.calibration.named import calibrator_named
from polyhedge.data import GroupSplit, TimeSplit
from polyhedge.diagnostics import FALSE_ALARMS, groups_diagnostic
from polyhedge.evaluation import shortfalls

PROBLEM = ph.problems.simplex_linear([0.0, 0.1])


def rows(n: int = 600, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    store = rng.choice(3, p=[0.5, 0.45, 0.05], size=n)
    X = np.column_stack([rng.normal(size=n), store])
    return X, X[:, :1] + rng.normal(size=(n, 2)) * (1.0 + store[:, None])


def decider(**given: Any) -> ph.RobustDecider:
    return ph.RobustDecider(PROBLEM, learner=ph.learners.OneSidedBox(), random_state=0, **given)


SHIFT = Weighted(target=rows(100, seed=5)[0] + [1.0, 0.0])


@pytest.mark.parametrize(
    "calibration", [ByCategory(1), ThisModel(), SHIFT, Recent(60), Online()], ids=lambda c: type(c).__name__
)
def test_fit_decide_recalibrate_and_a_file_keep_one_promise(calibration: Calibrator, tmp_path: Path) -> None:
    X, Y = rows()
    fitted = decider(calibration=calibration, split="time").fit(X, Y)
    new = rows(5, seed=1)[0]
    fitted.save(tmp_path / "model.phm")
    twin = ph.load(tmp_path / "model.phm")
    assert twin.promise_ == fitted.promise_
    assert (twin.decide(new).cost_bound == fitted.decide(new).cost_bound).all()
    fresh = rows(300, seed=2)
    for each in (twin, fitted):
        each.recalibrate(*fresh)
    assert (twin.decide(new).cost_bound == fitted.decide(new).cost_bound).all()
    assert type(fitted.model_.radii.calibrator) is type(calibration)


def test_rare_categories_are_merged_in_fit_and_stay_merged_when_recalibrated() -> None:
    fitted = decider(calibration=ByCategory(1)).fit(*rows(400))
    merged = fitted.model_.radii.calibrator.merged  # type: ignore[attr-defined]
    assert "2" in merged
    assert fitted.recalibrate(*rows(400, seed=3)).model_.radii.calibrator.merged == merged  # type: ignore[attr-defined]


def test_row_of_an_unseen_category_has_no_bound_and_is_marked() -> None:
    fitted = decider(calibration=ByCategory(1)).fit(*rows())
    with pytest.warns(RuntimeWarning, match="1 of 2 decisions"):
        found = fitted.decide(np.array([[0.0, 0.0], [0.0, 9.0]]))
    assert np.isfinite(found.cost_bound).tolist() == [True, False]
    assert "category '9' of 1 had too few calibration rows, or none" in found.detail[1]


class TestTimeSplit:
    """Old rows train, new rows calibrate."""

    def test_gap_leaves_rows_out_before_each_cut(self) -> None:
        days = np.arange("2024-01-01", "2024-04-10", dtype="datetime64[D]")
        split = TimeSplit(times=days, starts=("2024-02-01", "2024-03-01"), gap="7D").parts(None, len(days))
        assert str(days[split.train].max()) == "2024-01-24"
        assert str(days[split.learn].min()) == "2024-02-01"
        assert str(days[split.learn].max()) == "2024-02-22"


def test_group_split_keeps_groups_whole_and_counts_them() -> None:
    X, Y = rows()
    X[:, 1] = np.arange(600) // 6
    fitted = decider(split=GroupSplit(1)).fit(X, Y)
    parts = [set(X[getattr(fitted.split_, part), 1]) for part in ("train", "learn", "calibrate")]
    assert sum(map(len, parts)) == 100
    assert "a row of a new group" in fitted.promise_
    with pytest.raises(ValueError, match="finds others in X"):
        decider(split=GroupSplit(1)).fit(X, Y, groups=X[:, 1])


def test_evaluation_by_group_names_the_group_that_a_marginal_promise_hides() -> None:
    fitted = decider().fit(*rows(900))
    X, Y = rows(900, seed=7)
    found = fitted.evaluate(X, Y, by=1)
    assert [group.label for group in found.groups] == ["0.0", "1.0", "2.0"]
    assert sum(group.coverage.n for group in found.groups) == 900
    assert not found.groups[0].is_short
    assert found.groups[2].is_short
    assert "2.0 (n=" in str(found)
    assert found.groups == fitted.evaluate(X, Y, by=X[:, 1]).groups
    apart = decider(calibration=ByCategory(1)).fit(*rows(2000)).evaluate(X, Y, by=1)
    assert not any(group.is_short for group in apart.groups)


def test_rows_without_a_label_are_one_group_that_is_called_so() -> None:
    fitted = decider().fit(*rows())
    for labels in (["a", None] * 15, [1.0, np.nan] * 15, np.array(["2024-01-01", "NaT"] * 15, dtype="datetime64[ns]")):
        names = [group.label for group in fitted.evaluate(*rows(30), by=labels).groups]
        assert names[0] == "(missing)"
        assert names[1].partition("T")[0] in ("a", "1.0", "2024-01-01")


@pytest.mark.parametrize("n_groups", [1, 4])
def test_correction_for_many_groups_names_one_wrongly_as_rarely_as_stated(n_groups: int) -> None:
    """All groups are covered exactly as promised; some are named in at most 5 % of evaluations."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(n_groups), 100)

    def named() -> bool:
        inside = rng.uniform(size=len(labels)) < 0.9
        return bool((shortfalls([inside[labels == k] for k in range(n_groups)], 0.1) <= 0.05).any())

    assert sum(named() for _ in range(1000)) <= stats.binom(1000, 0.05).ppf(1 - 1e-4)


class TestMonitoring:
    """Outcomes become known."""

    def test_coverage_is_counted_against_the_bounds_that_were_issued(self) -> None:
        fitted = decider().fit(*rows())
        X, Y = rows(40, seed=1)
        issued = fitted.decide(X)
        missed = ~fitted.measure(X, Y).inside
        fitted.recalibrate(*rows(200, seed=2), groups=None)
        found = fitted.update(X, Y, issued)
        assert found.missed.tolist() == missed.tolist()
        assert not found.was_recomputed
        assert found.coverage == 1 - missed.mean()
        assert fitted.update(X, Y, radii=np.full(40, -1e9)).missed[40:].all()
        assert fitted.update(*rows(40, seed=9)).was_recomputed

    def test_rows_fed_late_and_in_batches_give_the_same_radius(self) -> None:
        X, Y = rows(60, seed=1)
        one, other = (decider(calibration=Online(), split="time").fit(*rows()) for _ in range(2))
        one.update(X, Y)
        for i in range(60):
            other.update(X[[i]], Y[[i]])
        assert one.radius_ == other.radius_
        assert (one.monitored_.missed == other.monitored_.missed).all()

    def test_alarm_is_raised_where_bounds_fail_and_not_before(self) -> None:
        fitted = decider().fit(*rows())
        X, Y = rows(80, seed=1)
        calm = fitted.update(X, Y)
        assert calm.alarm is not None
        assert not calm.alarm.is_raised
        assert fitted.update(X, 20 * Y + 20).alarm.is_raised  # type: ignore[union-attr]
        assert "alarm at row" in str(fitted.monitored_)
        assert not hasattr(fitted.recalibrate(X, Y), "monitored_")

    def test_refresh_trains_on_newer_rows_keeps_the_shape_and_forgets_what_was(self) -> None:
        X, Y = rows()
        fitted = decider(split="time").fit(X, Y)
        shape, (newer, outcomes) = fitted.set_, rows(400, seed=3)
        fitted.update(newer, outcomes + 10 * newer[:, :1])
        fitted.refresh(newer, outcomes + 10 * newer[:, :1])
        assert fitted.set_ is shape
        assert not hasattr(fitted, "monitored_")
        fresh, later = rows(400, seed=4)
        held = fitted.evaluate(fresh, later + 10 * fresh[:, :1])
        assert held.coverage.high > 0.9
        assert fitted.n_calibrate_ == 200

    def test_refresh_of_a_policy_keeps_its_rules_and_takes_newer_residuals(self) -> None:
        X, Y = rows(500)
        fitted = ph.RobustDecider(
            ph.problems.simplex_linear([0.0, 0.0]), guarantee="cost", split="time", random_state=0
        ).fit(X, Y)
        said, before = fitted.policy_, fitted.decide(X[:5]).cost_bound
        newer, outcomes = rows(400, seed=3)
        fitted.refresh(newer, 3 * outcomes)
        assert fitted.policy_ is said
        assert fitted.n_calibrate_ == 200
        assert (fitted.decide(X[:5]).cost_bound > before).all()
        fresh, later = rows(400, seed=4)
        assert fitted.evaluate(fresh, 3 * later).bound_held.high > 0.9

    def test_another_predictor_than_the_reader_of_raw_columns_is_not_ignored(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "polyhedge.predictors.recipes.choose_predictor", lambda *rows, **settings: ("ridge", "given")
        )
        X, Y = rows(300)
        frame = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 0] > 0, "a", "b")})
        fitted = decider(predictor="auto").fit(frame, Y)
        with pytest.raises(ValueError, match=r"reads raw columns .* got predictor=Ridge\(\) since. Call fit"):
            fitted.set_params(predictor=Ridge()).refresh(frame, Y)

    def test_decisions_from_elsewhere_are_refused(self) -> None:
        fitted = decider().fit(*rows())
        X, Y = rows(4, seed=1)
        with pytest.raises(ValueError, match=r"bounds on the costs, of these 4 rows, got shape \(3,\)"):
            fitted.update(X, Y, np.ones(3))
        with pytest.raises(ValueError, match=r"radii must be those of these 4 rows, got shape \(4,\) with 1 NaN"):
            fitted.update(X, Y, radii=[1.0, 2.0, np.nan, 3.0])
        with pytest.raises(ValueError, match="do not know their radii"):
            fitted.update(X, Y, replace(fitted.decide(X), radii=None))


class TestBacktest:
    """Promise and reality over history."""

    def drifting(self) -> tuple[Any, Any, Any]:
        X, Y = rows(600)
        days = np.arange("2024-01-01", "2025-08-23", dtype="datetime64[D]")
        return X, Y * np.where(np.arange(600) < 400, 1.0, 3.0)[:, None], days

    def test_online_radius_keeps_coverage_where_a_fixed_one_loses_it(self) -> None:
        X, Y, days = self.drifting()
        fixed = ph.backtest(decider(), X, Y, every="30D", times=days)
        online = ph.backtest(decider(calibration=Online(0.05)), X, Y, every="30D", times=days, start="2025-02-01")
        assert fixed.coverage < 0.75 < 0.85 < online.coverage
        assert [period.n for period in online.periods] == [30] * 6 + [23]
        assert str(online.periods[1].start)[:10] == "2025-03-03"
        assert online.worst.coverage == min(online.to_frame()["coverage"])
        assert "worst period" in str(online)

    def test_a_period_knows_nothing_of_its_own_outcomes_or_later_ones(self) -> None:
        X, Y, days = self.drifting()
        usual = ph.backtest(decider(), X, Y, every="100D", times=days)
        other = np.where(np.arange(600)[:, None] < 400, Y, 0.0)
        changed = ph.backtest(decider(), X, other, every="100D", times=days)
        assert [p.cost_bound for p in usual.periods[:2]] == [p.cost_bound for p in changed.periods[:2]]


class TestDiagnostics:
    """What the command line warns of, Python warns of."""

    def test_no_drift_is_seen_in_exchangeable_rows_where_a_policy_was_developed_on_learning_rows(self) -> None:
        X, Y = rows(800)
        deep = ph.RobustDecider(
            PROBLEM, RandomForestRegressor(20, random_state=0), guarantee="cost", split="time", random_state=0
        )
        assert not [
            diagnostic for diagnostic in deep.fit(X, Y).diagnostics_ if diagnostic.code in (Code.DRIFT, Code.ORDER)
        ]

    def test_category_that_is_covered_less_often_is_named_and_a_promise_by_category_says_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Not of the choice of a predictor, which takes longest with so many rows.
        monkeypatch.setattr(
            "polyhedge.predictors.recipes.choose_predictor", lambda *rows, **settings: ("ridge", "given")
        )
        X, Y = rows(4000)
        frame = pd.DataFrame({"x": X[:, 0], "store": pd.Categorical(X[:, 1].astype(int).astype(str))})
        settings: Any = {"learner": ph.learners.OneSidedBox(), "random_state": 0}
        with pytest.warns(ph.DiagnosticWarning, match=r"covered, but 0.\d+ where store is 2, 0.\d+ where store is 1"):
            ph.RobustDecider(PROBLEM, **settings).fit(frame, Y)
        apart = ph.RobustDecider(PROBLEM, calibration=ByCategory("store"), **settings).fit(frame, Y)
        assert apart.diagnostics_ == ()

    def test_categories_that_mean_nothing_are_suspected_as_rarely_as_stated(self) -> None:
        rng, n = np.random.default_rng(0), 400
        found = [
            bool(
                groups_diagnostic(rng.random(60) < 0.9, {"a": rng.integers(4, size=60), "b": rng.integers(2, size=60)})
            )
            for _ in range(n)
        ]
        assert stats.binom.sf(sum(found) - 1, n, FALSE_ALARMS) > 1e-4


@pytest.mark.parametrize(
    ("text", "calibrator"),
    [
        ("by-category:store", ByCategory("store")),
        ("this-model:0.1", ThisModel(0.1)),
        ("recent:60", Recent(60.0)),
        ("online", Online()),
        ("online:0.05", Online(0.05)),
    ],
)
def test_words_of_the_command_line_name_calibrators(text: str, calibrator: Calibrator) -> None:
    assert calibrator_named(text) == calibrator


def test_refresh_and_recalibrate_keep_groups_of_near_copies_whole() -> None:
    rng = np.random.default_rng(0)

    def rows(first: int) -> tuple[Any, Any]:
        """40 groups of 10 near-copies, whose errors are those of the group."""
        group = np.repeat(np.arange(first, first + 40), 10)
        x, error = rng.normal(size=40), rng.normal(size=40)
        features = np.column_stack([group, np.repeat(x, 10) + 1e-3 * rng.normal(size=400)])
        return features, (20 + np.repeat(x + error, 10) + 1e-3 * rng.normal(size=400))[:, None]

    problem, learner = ph.problems.newsvendor(1.0, 3.0, 1), ph.learners.OneSidedBox()
    decider = ph.RobustDecider(problem, learner=learner, split=ph.data.GroupSplit(0), random_state=0).fit(*rows(0))
    fresh = rows(40)
    decider.refresh(*fresh)
    assert "a row of a new group" in decider.promise_
    assert decider.n_calibrate_ == 200  # 20 whole groups
    assert "a row of a new group" in decider.recalibrate(*rows(80)).promise_
    plain = ph.RobustDecider(problem, learner=learner, random_state=0)
    plain.fit(*fresh, groups=fresh[0][:, 0])
    with pytest.raises(ValueError, match="calibrated with groups of near-copies"):
        plain.refresh(*fresh)
    assert plain.refresh(*fresh, groups=fresh[0][:, 0]).n_calibrate_ == 200
