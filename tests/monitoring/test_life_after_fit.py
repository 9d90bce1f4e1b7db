"""Life after fit: newer rows, rows that were seen before, files in between, and history replayed."""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge._support.warnings import Code
from polyhedge.calibration import ByCategory, Online, Recent, ThisModel
from polyhedge.data import GroupSplit, TimeSplit, digest_rows
from polyhedge.data.splits import HALVES, partition_rows
from polyhedge.diagnostics import row_hashes
from polyhedge.rows import Rows
from shared import codes

PROBLEM = ph.problems.simplex_linear([0.0, 0.1])


def rows(n: int = 400, seed: int = 0) -> tuple[Any, Any]:
    """One feature, and a clock that says nothing, in the second column, out of order."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.permutation(n)])
    return X, X[:, :1] + rng.normal(size=(n, 2))


def decider(**given: Any) -> ph.RobustDecider:
    return ph.RobustDecider(PROBLEM, **{"learner": ph.learners.PcaBox(), "random_state": 0, **given})


def said(call: Any, *arguments: Any, **given: Any) -> list[str]:
    """The diagnostics that a call warns of, by what they are about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments, **given)
    diagnostics = [one.message for one in caught if isinstance(one.message, ph.DiagnosticWarning)]
    # Programs ask the code, readers the text; most texts begin with the code.
    assert all(one.code is not None and isinstance(one.code, str) for one in diagnostics)
    return [str(one).partition(":")[0] for one in diagnostics]


def calibrated_on(fitted: ph.RobustDecider, X: Any, Y: Any) -> bool:
    """Whether these rows, in this order, set the radius in force."""
    return fitted.calibrations_[-1].digest == digest_rows(X, Y)


class TestRefreshInTime:
    """The older rows train, the newer ones calibrate, with a gap between them."""

    @pytest.mark.parametrize("how", ["column", "times", "order"])
    def test_newest_rows_calibrate_in_order_and_the_gap_stays(self, how: str) -> None:
        split = {"column": TimeSplit(1, gap=30), "times": TimeSplit(times=rows()[0][:, 1], gap=30)}
        fitted = decider(split=split.get(how, TimeSplit(gap=30))).fit(*rows())
        X, Y = rows(300, seed=1)
        by_time = np.arange(300) if how == "order" else np.argsort(X[:, 1])
        fitted.refresh(X, Y, **({"times": X[:, 1]} if how == "times" else {}))
        assert calibrated_on(fitted, X[by_time[150:]], Y[by_time[150:]])
        trained = fitted.model_.record.trained
        assert trained is not None
        assert trained.tolist() == row_hashes(Rows(X[by_time[:120]], Y[by_time[:120]])).tolist()  # type: ignore[union-attr]

    def test_recalibration_takes_rows_in_the_order_of_the_column_too(self) -> None:
        X, Y = rows(300, seed=1)
        one, other = (decider(split=TimeSplit(1), calibration=Recent(40)).fit(*rows()) for _ in range(2))
        by_time = np.argsort(X[:, 1])
        assert one.recalibrate(X, Y).radius_ == other.recalibrate(X[by_time], Y[by_time]).radius_

    def test_times_of_other_rows_are_asked_for_even_where_their_number_fits(self) -> None:
        fitted = decider(split=TimeSplit(times=rows()[0][:, 1])).fit(*rows())
        with pytest.raises(ValueError, match=r"given the times of other rows\. Give times="):
            fitted.refresh(*rows(seed=1))

    def test_parts_can_be_given_and_must_be_complete_and_hold_whole_groups(self) -> None:
        fitted, (X, Y) = decider().fit(*rows()), rows(300, seed=1)
        fitted.refresh(X, Y, train=np.arange(100), calibrate=np.arange(120, 300))
        assert calibrated_on(fitted, X[120:], Y[120:])
        with pytest.raises(ValueError, match="Give train and calibrate together"):
            fitted.refresh(X, Y, calibrate=np.arange(300))
        with pytest.raises(ValueError, match=r"1 group\(s\) have rows in train and in calibrate, the first is 0"):
            fitted.refresh(X, Y, train=np.arange(100), calibrate=np.arange(100, 300), groups=np.arange(300) % 299)

    @pytest.mark.parametrize("is_in_time", [False, True])
    def test_halves_tear_no_group_and_leave_no_row_out(self, is_in_time: bool) -> None:
        labels, times = np.random.default_rng(1).integers(15, size=(2, 90))
        clock = times if is_in_time else None
        halves = partition_rows(90, HALVES, rng=np.random.default_rng(2), groups=labels, times=clock)
        older, newer = halves.learn, halves.calibrate
        assert sorted([*older, *newer]) == list(range(90))
        assert not set(labels[older]) & set(labels[newer])
        if is_in_time:  # a group is at the time of its last row
            last = {label: times[labels == label].max() for label in set(labels)}
            assert max(last[k] for k in labels[older]) < min(last[k] for k in labels[newer])
        else:
            assert len(set(labels[older])) == 7


class TestSeenBefore:
    """What sets a radius, or measures, has neither trained nor learned nor chosen anything."""

    def test_rows_that_made_the_shape_are_named_where_they_would_calibrate_a_refresh(self) -> None:
        X, Y = rows()
        fitted = decider(split="time").fit(X, Y)
        assert "Seen before" in said(fitted.refresh, X[100:300], Y[100:300])
        assert "Seen before" in [diagnostic.code for diagnostic in fitted.diagnostics_]
        newer = rows(200, seed=1)
        both = np.vstack([X[:200], newer[0]]), np.vstack([Y[:200], newer[1]])
        assert "Seen before" not in said(fitted.refresh, *both)  # they may train

    def test_rows_that_trained_a_refresh_are_known_until_the_next_one_forgets_them(self) -> None:
        fitted = decider(split="time").fit(*rows())
        X, Y = rows(300, seed=1)
        fitted.refresh(X, Y)
        for call in (fitted.evaluate, fitted.update, fitted.recalibrate):
            assert said(call, X[150:], Y[150:]).count("Seen before") == 0
            assert said(call, X[:150], Y[:150]).count("Seen before") == 1
        newer = rows(300, seed=2)
        assert "Seen before" not in said(fitted.refresh, *(np.vstack(both) for both in zip(newer, (X, Y), strict=True)))
        assert "Seen before" in said(fitted.evaluate, *newer)
        assert "Seen before" in said(fitted.evaluate, *rows())  # those of the fit made the shape, which stays

    def test_integers_are_known_whatever_their_type(self) -> None:
        X, Y = np.arange(400)[:, None] % 97, np.random.default_rng(0).normal(size=(400, 2))
        fitted = decider(split="time").fit(X, Y)
        assert "Seen before" in said(fitted.evaluate, X[:200].astype(float), Y[:200])

    def test_periods_of_a_backtest_are_calibrated_on_rows_that_learned_nothing(self) -> None:
        X, Y = rows(600)
        found = ph.backtest(decider(), X, Y, every=50, between="refresh")
        assert "Seen before" not in [diagnostic.code for diagnostic in found.decider.diagnostics_]
        # Row 225 is the first that learned nothing: of those up to the last period, at 550, the newer half calibrates.
        first = 225 + (550 - 225) // 2
        assert calibrated_on(found.decider, X[first:550], Y[first:550])
        trained = found.decider.model_.record.trained
        assert trained is not None
        assert set(trained) == set(row_hashes(Rows(X[:first], Y[:first])).tolist())  # type: ignore[union-attr]


class TestDiagnostics:
    """The five warnings come wherever a radius is set."""

    @pytest.mark.parametrize("verb", ["fit", "refresh", "recalibrate"])
    @pytest.mark.parametrize("about", ["Few rows", "Ties", "Drift", "Copies", "Order"])
    def test_each_diagnostic_of_a_fit_is_one_of_a_new_radius(self, verb: str, about: str) -> None:
        split = "time" if about == "Drift" else (0.5, 0.25, 0.25)
        fitted = decider(split=split).fit(*rows(1200))
        X, Y = rows(60 if about == "Few rows" else 1200, seed=1)
        if about == "Ties":
            X, Y = X * 0, np.round(Y / 3)
        elif about in ("Drift", "Order"):
            Y = Y + 9 * (np.arange(1200)[:, None] > 900)
        elif about == "Copies":
            X, Y = np.vstack([X, X]), np.vstack([Y, Y])
        assert about in said(getattr(fitted, verb), X, Y)
        assert about in [diagnostic.code for diagnostic in fitted.diagnostics_]
        assert said(getattr(fitted, verb), *rows(1200, seed=2)) == []
        assert fitted.diagnostics_ == ()

    @pytest.mark.parametrize("guarantee", ["cost", "outcome"])
    def test_a_split_in_time_is_warned_of_drift_and_not_of_order(self, guarantee: str) -> None:
        """The newer half of the calibration rows differs; a policy has trained on the rows before these."""
        X, Y = rows(1200)
        Y = Y + 9 * (np.arange(1200)[:, None] > 1050)
        learner = None if guarantee == "cost" else ph.learners.PcaBox()
        about = said(decider(guarantee=guarantee, learner=learner, split="time").fit, X, Y)
        assert "Drift" in about
        assert "Order" not in about

    @pytest.mark.parametrize("verb", ["fit", "refresh", "recalibrate"])
    def test_level_that_looks_like_a_coverage_is_warned_of(self, verb: str) -> None:
        fitted = decider().fit(*rows()).set_params(alpha=0.9)
        with pytest.warns(RuntimeWarning, match="alpha=0.9 looks like a coverage level") as caught:
            getattr(fitted, verb)(*rows(seed=1))
        assert "Level" in codes(caught)

    def test_copies_in_two_parts_of_a_fit_are_warned_of_unless_they_are_in_one_group(self) -> None:
        X, Y = rows(600)
        twice = np.vstack([X, X]), np.vstack([Y, Y])
        assert "Copies" in said(decider().fit, *twice)
        assert "Copies" not in said(decider().fit, *twice, groups=np.tile(np.arange(600), 2))
        assert "Copies" not in said(decider().fit, X, Y)


class TestFiles:
    """A loaded decider goes on where the saved one stood."""

    def saved(self, fitted: ph.RobustDecider, folder: Path) -> ph.RobustDecider:
        fitted.save(folder / "model.polyhedge")
        return ph.load(folder / "model.polyhedge")

    def test_dates_are_the_same_and_times_that_were_given_are_asked_for(self, tmp_path: Path) -> None:
        day = np.datetime64("2024-01-01") + rows()[0][:, 1].astype(int)
        starts = pd.Timestamp("2024-08-01"), "2024-11-01"
        fitted = decider(split=TimeSplit(times=day, starts=starts, gap=timedelta(days=7))).fit(*rows())
        twin, (X, Y) = self.saved(fitted, tmp_path), rows(300, seed=1)
        with pytest.raises(ValueError, match="Give times="):
            twin.refresh(X, Y)
        for each in (twin, fitted):
            each.set_params(random_state=0).refresh(X, Y, times=day[:300])
        assert twin.calibrations_[-1].digest == fitted.calibrations_[-1].digest
        assert twin.radius_ == fitted.radius_

    @pytest.mark.parametrize("calibration", [None, Online(0.05), ByCategory(2, otherwise="refuse")], ids=str)
    def test_update_counts_on_and_the_alarm_stands_where_it_stood(self, calibration: Any, tmp_path: Path) -> None:
        def stored(n: int, seed: int) -> tuple[Any, Any]:
            X, Y = rows(n, seed)
            return np.column_stack([X, np.arange(n) % 3]), Y

        fitted = decider(calibration=calibration, split="time").fit(*stored(600, 0))
        X, Y = stored(60, 1)
        X[:3, 2] = 9  # a category without a radius
        fitted.update(X, 2 * Y)
        twin = self.saved(fitted, tmp_path)
        for each in (twin, fitted):
            each.update(X, 9 * Y)
        one, other = twin.monitored_, fitted.monitored_
        assert (one.missed.tolist(), one.radii.tolist()) == (other.missed.tolist(), other.radii.tolist())
        assert (one.was_recomputed, one.promised, str(one)) == (other.was_recomputed, other.promised, str(other))
        if one.alarm is not None and other.alarm is not None:
            assert one.alarm.is_raised
            assert {**vars(one.alarm), "wealth": one.alarm.wealth.tolist()} == {
                **vars(other.alarm),
                "wealth": other.alarm.wealth.tolist(),
            }

    def test_rows_that_were_seen_are_known_after_a_file_and_a_refresh(self, tmp_path: Path) -> None:
        fitted, (X, Y) = decider(split="time").fit(*rows()), rows(300, seed=1)
        twin = self.saved(fitted.refresh(X, Y), tmp_path)
        assert "Seen before" in said(twin.evaluate, *rows())
        assert "Seen before" in said(twin.evaluate, X[:150], Y[:150])
        assert "Seen before" not in said(twin.evaluate, X[150:], Y[150:])


class TestSplits:
    """Lengths of time, dates and groups."""

    def test_starts_keep_groups_whole_at_the_time_of_their_last_row(self) -> None:
        times, labels = np.arange(40.0), np.arange(40) // 7
        split = TimeSplit(times=times, starts=(16, 30)).parts(None, 40, groups=labels)
        parts = [set(labels[getattr(split, part)]) for part in ("train", "learn", "calibrate")]
        assert parts == [{0, 1}, {2, 3}, {4, 5}]


class TestBacktest:
    """History is replayed with the decider's own split."""

    @pytest.mark.parametrize("between", ["none", "fit"])
    def test_column_gap_and_shares_of_the_split_stay(self, between: str) -> None:
        X, Y = rows(600)
        by_time = np.argsort(X[:, 1])
        split = TimeSplit(1, gap=10, shares=(0.4, 0.3, 0.3))
        found = ph.backtest(decider(split=split), X, Y, every=100, between=between)
        n = 300 if between == "none" else 500
        assert [len(getattr(found.decider.split_, part)) for part in ("train", "learn", "calibrate")] == [
            int(0.4 * n) - 10,
            int(0.3 * n) - 10,
            int(0.3 * n),
        ]
        newest = by_time[n - int(0.3 * n) : n]
        assert calibrated_on(found.decider, X[newest], Y[newest])
        assert found.decider.split == split

    def test_refresh_in_between_keeps_the_gap(self) -> None:
        X, Y = rows(600)
        found = ph.backtest(decider(split=TimeSplit(gap=20)), X, Y, every=100, between="refresh")
        trained = found.decider.model_.record.trained
        assert trained is not None
        first = 225 + (500 - 225) // 2
        assert set(trained) == set(row_hashes(Rows(X[: first - 20], Y[: first - 20])).tolist())  # type: ignore[union-attr]

    @pytest.mark.parametrize("is_column", [False, True])
    def test_groups_are_learned_from_only_when_they_are_past(self, is_column: bool) -> None:
        X, Y = rows(600)
        X[:, 1] = np.arange(600) // 7
        settings: Any = {"split": GroupSplit(1)} if is_column else {}
        groups = {} if is_column else {"groups": X[:, 1]}
        found = ph.backtest(decider(**settings), X, Y, every=100, between="fit", **groups)
        n = 500 // 7 * 7  # row 500 is in a group that began before
        assert found.decider.split_.n_rows == n
        assert "a row of a new group" in found.decider.promise_
        assert sum(period.n for period in found.periods) == 300
        parts = [set(X[getattr(found.decider.split_, part), 1]) for part in ("train", "learn", "calibrate")]
        assert sum(map(len, parts)) == len(set.union(*parts)) == n // 7

    @pytest.mark.parametrize(
        ("every", "start", "begins"),
        [
            (
                "1M",
                None,
                ["2024-08-01", "2024-09-01", "2024-10-01", "2024-11-01", "2024-12-01", "2025-01-01", "2025-02-01"],
            ),
            ("2M", "2024-09-15", ["2024-09-15", "2024-11-15", "2025-01-15"]),
            ("1Y", "2025-01-01", ["2025-01-01"]),
            ("60D", "2024-09-15", ["2024-09-15", "2024-11-14", "2025-01-13"]),
        ],
    )
    def test_months_are_those_of_the_calendar(self, every: str, start: Any, begins: list[str]) -> None:
        X, Y = rows(400)
        days = np.datetime64("2024-01-01") + np.arange(400)
        found = ph.backtest(decider(), X, Y, every=every, start=start, times=days)
        assert [str(period.start)[:10] for period in found.periods] == begins


class TestRefreshThatWouldMakeThingsWorse:
    """The better of the old and the new predictor stays; rows that calibrate take no part in the choice."""

    @pytest.mark.parametrize("given", [{}, {"learner": None, "predictor": None}], ids=["set", "policy"])
    def test_predictor_of_many_rows_is_not_replaced_by_one_of_few(self, given: dict[str, Any]) -> None:
        fitted = decider(**given).fit(*rows(1200))
        before, (X, Y) = fitted.model_.family, rows(60, seed=1)
        assert "Refresh" in said(fitted.refresh, X, Y)
        assert fitted.model_.family is before
        assert fitted.n_calibrate_ == len(fitted.refreshed_split_.calibrate) == 30
        # What chose may not calibrate: it is known as seen, in the next refresh too.
        train = fitted.refreshed_split_.train
        assert "Seen before" in said(fitted.recalibrate, np.repeat(X[train], 2, axis=0), np.repeat(Y[train], 2, axis=0))
        assert "Refresh" in said(fitted.refresh, *rows(60, seed=2))
        assert len(fitted.model_.record.trained) == 60

    def test_predictor_is_replaced_where_the_world_has_changed(self) -> None:
        fitted = decider().fit(*rows(1200))
        before, (X, Y) = fitted.model_.family, rows(60, seed=1)
        assert "Refresh" not in said(fitted.refresh, X, Y + 9 * X[:, :1])
        assert fitted.model_.family is not before

    def test_outcomes_of_calibration_rows_do_not_choose(self) -> None:
        X, Y = rows(60, seed=1)
        parts = {"train": np.arange(30), "calibrate": np.arange(30, 60)}
        for changed in (Y, np.vstack([Y[:30], Y[30:] + 9 * X[30:, :1]])):
            fitted = decider().fit(*rows(1200))
            assert "Refresh" in said(fitted.refresh, X, changed, **parts)

    def test_rows_that_trained_the_old_predictor_do_not_compare(self) -> None:
        X, Y = rows(1200)
        fitted = decider().fit(X, Y)
        fresh, outcomes = rows(60, seed=1)
        # Of the old rows alone, the old predictor knows the answers.
        old = fitted.split_.train[:200]
        both = np.vstack([X[old], fresh]), np.vstack([Y[old], outcomes])
        assert "Refresh" not in said(fitted.refresh, *both, train=np.arange(200), calibrate=np.arange(200, 260))

    def test_better_predictor_that_calibration_rows_have_trained_goes_with_a_warning(self) -> None:
        X, Y = rows(1200)
        fitted = decider().fit(X, Y)
        before, (fresh, outcomes), old = fitted.model_.family, rows(60, seed=1), fitted.split_.train[:4]
        both = np.vstack([fresh, X[old]]), np.vstack([outcomes, Y[old]])
        with pytest.warns(ph.DiagnosticWarning, match="could not stay because 4 calibration rows trained it"):
            fitted.refresh(*both, train=np.arange(30), calibrate=np.arange(30, 64))
        assert fitted.model_.family is not before


class TestBoundsThatAreHigherThanNeedBe:
    """Coverage above the promise and expected costs that are off are findings, in evaluations and over time."""

    def test_evaluation_and_update_tell_of_them(self, tmp_path: Path) -> None:
        fitted = decider(learner=None, predictor=None).fit(*rows(1200))
        X, Y = rows(300, seed=1)
        usual, quiet = fitted.evaluate(X, Y), fitted.evaluate(X, X[:, :1] - 2 + 0 * Y)
        assert usual.diagnostics == ()
        assert [diagnostic.code for diagnostic in quiet.diagnostics] == [Code.COVERAGE, Code.EXPECTED_COST]
        assert all(text in str(quiet) and text[:30] in quiet._repr_html_() for text in quiet.diagnostics)
        log, names = ph.OutcomeLog(tmp_path / "outcomes.db", fitted), [str(i) for i in range(300)]
        log.note(names, fitted.decide(X))
        came = fitted.update(X, X[:, :1] - 2 + 0 * Y, keys=names, log=log)
        assert [diagnostic.code for diagnostic in came.diagnostics] == [Code.COVERAGE]
        assert str(came).endswith(came.diagnostics[0])
        assert [diagnostic.code for diagnostic in log.diagnostics()] == [Code.COVERAGE, Code.EXPECTED_COST]

    def test_promise_for_this_model_is_meant_to_be_exceeded(self) -> None:
        fitted = decider(calibration=ThisModel(0.05)).fit(*rows(1200))
        X, Y = rows(300, seed=1)
        assert fitted.evaluate(X, X[:, :1] + 0 * Y).diagnostics == ()
        assert fitted.update(X, X[:, :1] + 0 * Y).diagnostics == ()
