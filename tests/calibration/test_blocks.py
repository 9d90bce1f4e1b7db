"""Promises for blocks of rows: their total, and all of them at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import polyhedge as ph
from polyhedge._support.warnings import UseWarning
from polyhedge.calibration import AllOf, Total, coverage_law
from polyhedge.calibration.radii import rows_without_features
from shared import round_trip, run

FALSE_ALARM = 1e-3
"""Chance that a test of a law fails although the promise is kept."""


def drawn(rng: np.random.Generator, law: str, n_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of rows that depend on each other within blocks of unequal sizes, and their blocks."""
    sizes = rng.integers(1, 8, size=n_blocks)
    blocks = np.repeat(np.arange(n_blocks), sizes)
    shared = {
        "heavy tails": lambda: rng.standard_t(2, n_blocks),
        "ties": lambda: rng.integers(0, 3, n_blocks).astype(float),
        "larger blocks are worse": lambda: rng.normal(size=n_blocks) * sizes,
    }[law]()
    own = rng.integers(0, 2, len(blocks)) if law == "ties" else rng.normal(size=len(blocks))
    return shared[blocks] + own, blocks


def kept(calibrator: type, radii: object, scores: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """For each block whether its promise is kept."""
    block_of = np.unique(blocks, return_inverse=True)[1]
    if calibrator is Total:
        return np.bincount(block_of, scores) <= np.bincount(block_of) * radii.total_radius + 1e-12
    largest = np.full(block_of.max() + 1, -np.inf)
    np.maximum.at(largest, block_of, scores)
    return largest <= radii.radius


def check_law(calibrator: type, law: str) -> None:
    """300 calibrations with 19 blocks each; scores without ties follow Beta(k, n + 1 - k)."""
    rng, n, alpha = np.random.default_rng(0), 19, 0.2
    test_scores, test_blocks = drawn(rng, law, 4000)
    uniform, held = [], []
    for _ in range(300):
        scores, blocks = drawn(rng, law, n)
        radii = calibrator(["?"]).calibrate(scores, rows_without_features(len(scores), labels=blocks), alpha)
        held.append(kept(calibrator, radii, test_scores, test_blocks).mean())
        uniform.append(coverage_law(n, alpha).cdf(held[-1]))
    if law == "ties":
        assert np.mean(held) >= 1 - alpha - 4 * np.std(held) / np.sqrt(300), "held too rarely"
    else:
        assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM, "not the exact law"


@pytest.mark.parametrize("calibrator", [Total, AllOf])
@pytest.mark.parametrize("law", ["heavy tails", "ties", "larger blocks are worse"])
def test_blocks_keep_their_promise_as_often_as_the_exact_law_says(calibrator: type, law: str) -> None:
    check_law(calibrator, law)


@pytest.mark.parametrize("calibrator", [Total, AllOf])
def test_a_radius_of_too_low_a_rank_breaks_the_promise_and_the_test_sees_it(
    calibrator: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = lambda scores, alpha: ph.calibration.conformal_radius(scores, alpha + 0.1)  # noqa: E731
    monkeypatch.setattr("polyhedge.calibration.blocks.conformal_radius", broken)
    with pytest.raises(AssertionError, match="not the exact law"):
        check_law(calibrator, "heavy tails")


def test_bounds_of_single_rows_break_the_promise_for_all_of_a_block() -> None:
    """What the promises are for: one row in ten is one week in two."""
    rng = np.random.default_rng(0)
    scores, blocks = rng.normal(size=1400), np.repeat(np.arange(200), 7)
    marginal = ph.calibration.conformal_radius(scores[:700], 0.1)
    all_of = AllOf(["?"]).calibrate(scores[:700], rows_without_features(700, labels=blocks[:700]), 0.1)
    largest = scores[700:].reshape(100, 7).max(axis=1)
    assert (largest <= marginal).mean() < 0.6
    assert (largest <= all_of.radius).mean() > 0.8


def test_single_bounds_of_a_total_are_those_for_a_row_of_a_new_block() -> None:
    rng = np.random.default_rng(2)
    scores, blocks = drawn(rng, "larger blocks are worse", 60)
    radii = Total(["?"]).calibrate(scores, rows_without_features(len(scores), labels=blocks), 0.1)
    assert radii.radius == ph.calibration.grouped_radius(scores, blocks, 0.1)
    assert radii.radius != ph.calibration.conformal_radius(scores, 0.1)
    assert radii.at_level(0.3).total_radius < radii.total_radius


def panel(n_weeks: int, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Days of weeks, each week with a surprise of its own."""
    rng = np.random.default_rng(seed)
    week, day = np.repeat(np.arange(n_weeks), 7), np.tile(np.arange(7), n_weeks)
    surprise = rng.normal(size=n_weeks)[week]
    X = pd.DataFrame({"day": day.astype(float), "promotion": rng.integers(0, 2, len(week)).astype(float), "week": week})
    demand = 20 + 2 * X["day"] + 5 * X["promotion"] + 2 * surprise + 3 * rng.normal(size=len(week))
    return X, pd.DataFrame({"demand": demand.clip(lower=0)})


def newsvendor() -> ph.DecisionProblem:
    return ph.problems.newsvendor([1.0], [3.0])


@pytest.fixture(scope="module")
def decider() -> ph.RobustDecider:
    X, Y = panel(120)
    return ph.RobustDecider(newsvendor(), calibration=Total("week"), alpha=0.2, random_state=0).fit(X, Y)


def test_totals_hold_and_lie_below_the_sum_of_single_bounds(decider: ph.RobustDecider, tmp_path: Path) -> None:
    X, Y = panel(60, seed=1)
    decided = decider.decide(X)
    totals = decided.totals()
    assert list(totals["n_rows"]) == [7] * 60
    planned = pd.Series(decided.cost_bound - decided.radii).groupby(X["week"].astype(str)).sum()
    expected = planned + 7 * decider.model_.radii.total_radius
    pd.testing.assert_series_equal(totals["cost_bound"], expected, check_names=False)
    single = pd.Series(decided.cost_bound).groupby(X["week"]).sum()
    assert totals["cost_bound"].sum() < 0.9 * single.sum()
    evaluation = decider.evaluate(X, Y)
    realised = pd.Series(newsvendor().evaluate(decided.flat, Y.to_numpy())).groupby(X["week"].astype(str)).sum()
    held = (realised <= totals["cost_bound"]).mean()
    assert float(evaluation.blocks_held) == pytest.approx(held)
    assert evaluation.blocks_held.n == 60
    assert evaluation.blocks_held.high > 0.8
    assert "blocks held" in str(evaluation)
    decider.save(tmp_path / "m.polyhedge")
    again = ph.load(tmp_path / "m.polyhedge").decide(X).totals()
    pd.testing.assert_frame_equal(again, totals)
    assert "bound of the block for the sum of its rows" in " ".join(ph.model.promise_of(decider.model_))


def test_blocks_stay_whole_in_every_part(decider: ph.RobustDecider) -> None:
    X, _ = panel(120)
    parts = [set(X["week"].iloc[getattr(decider.split_, part)]) for part in ("train", "learn", "calibrate")]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert decider.model_.radii.n_units == len(parts[2])
    assert "210 calibration rows in 30 blocks that did nothing else" in str(decider)


def test_other_rows_and_levels_get_such_bounds_too(decider: ph.RobustDecider) -> None:
    X, Y = panel(60, seed=2)
    lower = decider.at(alpha=0.4).decide(X).totals()["cost_bound"]
    assert (lower < decider.decide(X).totals()["cost_bound"]).all()
    twin = ph.RobustDecider(newsvendor(), calibration=Total("week"), alpha=0.2, random_state=0).fit(*panel(120))
    twin.recalibrate(X, Y)
    assert twin.model_.radii.n_units == 60
    tested = ph.backtest(decider, *panel(120, seed=3), every=70)
    assert tested.decider.model_.radii.kind == "total"


@pytest.mark.parametrize("calibrator", [Total, AllOf])
def test_evaluate_update_and_backtest_count_blocks(calibrator: type) -> None:
    """By hand: a block holds if its sum, or each of its rows, keeps to the bound that was issued."""
    (X, Y), (new, outcomes) = panel(90), panel(40, seed=5)
    settings = ph.RobustDecider(newsvendor(), "ridge", calibration=calibrator("week"), alpha=0.2, random_state=0)
    decider = ph.RobustDecider(**settings.get_params(deep=False)).fit(X, Y)
    decided = decider.decide(new)
    costs = pd.Series(newsvendor().evaluate(decided.flat, outcomes.to_numpy()))
    week = new["week"].astype(str)
    if calibrator is Total:
        kept = costs.groupby(week).sum() <= decided.totals()["cost_bound"]
    else:
        kept = (costs <= decided.cost_bound).groupby(week).all()
    seen = decider.evaluate(new, outcomes)
    assert 0 < kept.mean() < 1
    assert (float(seen.blocks_held), seen.blocks_held.n) == (pytest.approx(kept.mean()), 40)
    assert (seen.evidence is seen.blocks_held) == (calibrator is AllOf)
    assert ("of rows, the promise is for blocks" in str(seen)) == (calibrator is AllOf)
    first = decider.update(new[:133], outcomes[:133], decided[:133])  # 19 weeks
    assert first.blocks_held.n == 19
    later = decider.update(new[133:], outcomes[133:], decided[133:])
    assert float(later.blocks_held) == pytest.approx(kept.mean())
    assert f"{later.blocks_held} of 40 blocks kept their promise" in str(later)
    assert round_trip(later).blocks_held == later.blocks_held
    tested = ph.backtest(settings, X, Y, every=100)  # periods cut weeks
    assert tested.blocks_held.n == 45
    assert tested.evidence is (tested.blocks_held if calibrator is AllOf else tested.coverage)
    assert f"blocks held {tested.blocks_held} of 45" in str(tested)


def test_blocks_come_from_a_column_of_dates_that_features_are_made_of() -> None:
    X, Y = panel(60)
    X = X.drop(columns="week").assign(date=pd.date_range("2024-01-01", periods=len(X), freq="D"))
    decider = ph.RobustDecider(newsvendor(), calibration=Total("date", every="7D"), alpha=0.2, random_state=0)
    decider.fit(X, Y)
    broken = X[:21].assign(promotion=[np.nan, *X["promotion"][1:21]])
    with pytest.warns(UseWarning, match="1 of 21 decisions: not decided"):
        totals = decider.decide(broken).totals()
    assert list(totals.index) == ["2024-01-01", "2024-01-08", "2024-01-15"]
    assert list(totals["n_rows"]) == [7, 7, 7]
    assert np.isfinite(totals["cost_bound"]).tolist() == [False, True, True]  # nothing holds without one of its rows
    monthly = ph.RobustDecider(newsvendor(), calibration=AllOf("date", every="1M"), alpha=0.5, random_state=0).fit(X, Y)
    assert sorted(set(monthly.decide(X[25:40]).blocks)) == ["2024-01", "2024-02"]
    assert monthly.recalibrate(X, Y).model_.radii.n_units == 14


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (Total("date", every="0D"), "every must be above zero, got '0D'"),
        (Total(["a", None] * 210), "Each row must have a block, and 210 row.s. have none, the first is row 1"),
        (Total("dates"), "X has no column 'dates'"),
        (Total("date", every=7), "every must be a number for numbers, and such as '7D' for dates: 7"),
        (Total("week", every="7D"), "every must be a number of at least 0 in the unit of the times, got '7D'"),
    ],
)
def test_what_is_no_block_is_refused(calibration: Total, message: str) -> None:
    X, Y = panel(60)
    X = X.assign(date=pd.date_range("2024-01-01", periods=len(X), freq="D"))
    with pytest.raises(ValueError, match=message):
        ph.RobustDecider(newsvendor(), calibration=calibration, alpha=0.2, random_state=0).fit(X, Y)


def test_blocks_of_time_come_from_dates_that_are_no_feature() -> None:
    X, Y = panel(60)
    dates = pd.Series(pd.date_range("2024-01-01", periods=len(X), freq="D"))
    decider = ph.RobustDecider(newsvendor(), calibration=Total(dates, every="7D"), alpha=0.2, random_state=0)
    decider.fit(X.drop(columns="week"), Y)
    decided = decider.decide(X.drop(columns="week")[:14], labels=dates[:14])
    assert list(decided.totals().index.str[:10]) == ["2024-01-01", "2024-01-08"]
    assert list(decided.totals()["n_rows"]) == [7, 7]


DAYS = pd.date_range("2023-12-25", periods=420, freq="D")
"""A Monday, and two changes of the clock."""
BERLIN = DAYS.tz_localize("Europe/Berlin")
"""Local midnight is the day before in UTC."""


@pytest.mark.parametrize(
    ("dates", "every"),
    [
        (DAYS, "7D"),
        (DAYS, pd.Timedelta("7D")),
        (DAYS, np.timedelta64(7, "D")),
        (DAYS, DAYS[7].to_pydatetime() - DAYS[0].to_pydatetime()),
        (np.asarray(DAYS.as_unit("ns")), "1W"),
        (DAYS.as_unit("ns"), "7D"),
        ([day.date() for day in DAYS], "7D"),
        (DAYS.strftime("%d.%m.%Y"), "7D"),
        (BERLIN, "7D"),
        ([day.isoformat() for day in BERLIN], "7D"),
        ((DAYS + pd.Timedelta("23h")).tz_localize("America/New_York"), "7D"),
        (DAYS.tz_localize("UTC").strftime("%Y-%m-%dT%H:%MZ"), "7D"),
    ],
)
def test_a_week_begins_on_monday_by_its_own_clock_however_dates_are_written(
    dates: object, every: object, tmp_path: Path
) -> None:
    X, Y = panel(60)
    X = X.drop(columns="week")
    decider = ph.RobustDecider(newsvendor(), "ridge", calibration=Total(dates, every), alpha=0.2, random_state=0)
    decided = decider.fit(X, Y).decide(X, labels=dates)
    expected = (DAYS - pd.to_timedelta(DAYS.day_of_week, unit="D")).strftime("%Y-%m-%d")
    assert decided.blocks.tolist() == expected.tolist()
    decider.save(tmp_path / "m.polyhedge")
    again = ph.load(tmp_path / "m.polyhedge").decide(X, labels=dates)
    np.testing.assert_allclose(again.totals().cost_bound, decided.totals().cost_bound)


def test_a_new_row_without_a_time_is_left_out_of_all_blocks() -> None:
    X, Y = panel(60)
    decider = ph.RobustDecider(newsvendor(), "ridge", calibration=Total(DAYS, "7D"), alpha=0.2, random_state=0)
    labels = pd.Series(DAYS)
    decider.fit(X, Y)
    labels[3] = pd.NaT
    assert decider.decide(X, labels=labels).totals().n_rows.tolist() == [6, *[7] * 59]
    decider.set_params(calibration=Total(labels, "7D"))
    with pytest.raises(ValueError, match=r"Each row must have a block, and 1 row.s. have none, the first is row 3"):
        decider.fit(X, Y)


def test_words_say_that_bounds_of_all_of_a_block_are_promised_by_blocks() -> None:
    X, Y = panel(60)
    for calibration, words in ((AllOf("week"), "held in 4 of 5 blocks"), (Total("week"), "held in 4 of 5\n")):
        decider = ph.RobustDecider(newsvendor(), "ridge", 0.2, calibration=calibration, random_state=0).fit(X, Y)
        assert words in decider.summary()
        assert words.strip() in str(decider.decide(X[:1])[0])


def test_what_cannot_be_added_up_is_refused() -> None:
    X, Y = panel(60)
    sets = {"learner": ph.learners.OneSidedBox(), "guarantee": "outcome"}
    with pytest.raises(ValueError, match="Total adds up costs"):
        ph.RobustDecider(newsvendor(), calibration=Total("week"), alpha=0.2, random_state=0, **sets).fit(X, Y)
    whole = ph.RobustDecider(newsvendor(), calibration=AllOf("week"), alpha=0.2, random_state=0, **sets).fit(X, Y)
    with pytest.raises(ValueError, match="Totals are promised by"):
        whole.decide(X[:7]).totals()
    with pytest.raises(ValueError, match="needs at least 4 calibration blocks"):
        ph.RobustDecider(newsvendor(), calibration=Total("week"), alpha=0.2, random_state=0).fit(X[:70], Y[:70])


def test_other_groups_than_the_blocks_are_refused() -> None:
    """Finer groups would let a part of a block calibrate; coarser ones link blocks that are counted one by one."""
    X, Y = panel(60)
    weeks = X["week"].to_numpy()
    decider = ph.RobustDecider(newsvendor(), calibration=AllOf("week"), alpha=0.2, random_state=0)
    for groups in (np.arange(len(X)) // 2, weeks // 2):
        with pytest.raises(ValueError, match="The groups of AllOf are its blocks"):
            decider.fit(X, Y, groups=groups)
    decider.split = ph.data.GroupSplit("week")
    own = decider.fit(X, Y).split_.calibrate
    assert not set(weeks[own]) & set(np.delete(weeks, own))


def test_all_of_a_block_costs_more_than_one_row(decider: ph.RobustDecider) -> None:
    X, Y = panel(120)
    all_of = ph.RobustDecider(newsvendor(), calibration=AllOf("week"), alpha=0.2, random_state=0).fit(X, Y)
    assert all_of.radius_ > decider.radius_
    fresh, outcomes = panel(80, seed=4)
    costs = newsvendor().evaluate(all_of.decide(fresh).flat, outcomes.to_numpy())
    kept_together = pd.Series(costs <= all_of.decide(fresh).cost_bound).groupby(fresh["week"]).all()
    assert stats.binom.sf(kept_together.sum() - 1, 80, 0.6) < 0.05  # well above what single bounds keep


def test_the_command_line_takes_both_by_a_column(tmp_path: Path) -> None:
    X, Y = panel(60)
    X.assign(demand=Y["demand"]).to_csv(tmp_path / "history.csv", index=False)
    (tmp_path / "problem.toml").write_text('kind = "newsvendor"\noutcomes = ["demand"]\noverage = 1\nunderage = 3\n')
    given = ("--problem", tmp_path / "problem.toml", "--alpha", "0.3", "--out", tmp_path / "m.polyhedge")
    for words in ("total:week", "all-of:week", "total:week,3"):
        done = run("fit", tmp_path / "history.csv", *given, "--calibration", words)
        assert done.exit_code == 0, done.output
    assert "must be one of" in run("fit", tmp_path / "history.csv", *given, "--calibration", "cvar:1,2,3,4").output
    assert "blocks held" in run("fit", tmp_path / "history.csv", *given, "--calibration", "total:week").stdout


def test_the_command_line_and_the_page_show_bounds_of_blocks(tmp_path: Path) -> None:
    X, Y = panel(60)
    X.assign(demand=Y["demand"]).to_csv(tmp_path / "history.csv", index=False)
    new, outcomes = panel(15, seed=1)
    new.assign(demand=outcomes["demand"]).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "problem.toml").write_text('kind = "newsvendor"\noutcomes = ["demand"]\noverage = 1\nunderage = 3\n')
    given = ("--problem", tmp_path / "problem.toml", "--alpha", "0.3", "--out", tmp_path / "m.polyhedge")
    assert run("fit", tmp_path / "history.csv", *given, "--calibration", "total:week").exit_code == 0
    totals = ph.load(tmp_path / "m.polyhedge").decide(new).totals()
    use = ("decide", tmp_path / "m.polyhedge", tmp_path / "new.csv", "--out", tmp_path / "d.csv")
    shown = run(*use).stdout
    assert f"block 0: 7 rows cost together at most {totals['cost_bound']['0']:.4g}" in shown
    assert "... 5 more blocks" in shown
    told = json.loads(run(*use, "--json").stdout)["totals"]
    assert [one["block"] for one in told] == list(totals.index)
    page = ("report", tmp_path / "m.polyhedge", tmp_path / "new.csv", "--out", tmp_path / "page.html")
    assert run(*page).exit_code == 0
    assert "Promise for blocks held" in (tmp_path / "page.html").read_text(encoding="utf-8")
