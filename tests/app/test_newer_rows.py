"""Newer rows in a model file: `polyhedge refresh` does what `decider.refresh` does, split as the file says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.calibration import Online, Recent
from polyhedge.data import GroupSplit, TimeSplit
from polyhedge.data.ordered import as_times
from shared import run

PROBLEM = """\
kind = "newsvendor"
outcomes = ["demand"]
decisions = ["order"]
overage = [1.0]
underage = [3.0]
"""


def history(n: int = 240, seed: int = 0, level: float = 10.0, first: str = "2024-01-01") -> pd.DataFrame:
    """Days out of order, two rows a day, with a demand around a level."""
    rng = np.random.default_rng(seed)
    a, order = rng.normal(size=n).round(6), rng.permutation(n)
    days = pd.date_range(first, periods=n // 2, freq="D").repeat(2)
    demand = (level + a + rng.normal(size=n)).round(6)
    frame = pd.DataFrame({"day": days.strftime("%Y-%m-%d"), "t": np.arange(n) // 2, "a": a, "demand": demand})
    return frame.iloc[order].reset_index(drop=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem, a history, newer rows at another level, and models split in time and at random."""
    made = tmp_path_factory.mktemp("newer")
    (made / "problem.toml").write_text(PROBLEM)
    history().to_csv(made / "history.csv", index=False)
    history(160, 1, 30.0, "2025-01-01").to_csv(made / "newer.csv", index=False)
    for out, more in (
        ("timed", ("--time-column", "day", "--gap", "3D", "--seed", "5")),
        ("random", ("--seed", "7", "--guarantee", "outcome")),
    ):
        fixed = ("--problem", made / "problem.toml", "--predictor", "linear", "--features", "a")
        done = run("fit", made / "history.csv", "--out", made / f"{out}.polyhedge", *fixed, *more)
        assert done.exit_code == 0, done.output
    return made


def refreshed(folder: Path, model: str, *more: object, data: str = "newer.csv", out: str = "out.polyhedge") -> dict:
    done = run("refresh", folder / model, folder / data, "--out", folder / out, *more, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_newest_rows_calibrate_with_the_gap_of_the_fit_as_in_python(folder: Path) -> None:
    told = refreshed(folder, "timed.polyhedge")
    assert told["split"] == {"n_rows": 160, "train": 74, "calibrate": 80, "left_out": 6}
    by_hand, frame = ph.load(folder / "timed.polyhedge"), pd.read_csv(folder / "newer.csv")
    assert by_hand.split == TimeSplit("day", shares=(0.4, 0.2, 0.2, 0.2), gap="3D")
    assert by_hand.random_state == 5
    by_hand.refresh(frame, frame[["demand"]])  # the file knows the column of the times
    times = as_times(frame["day"])
    train, calibrate = by_hand.refreshed_split_.train, by_hand.refreshed_split_.calibrate
    assert times[train].max() < times[calibrate].min() - np.timedelta64(3, "D")
    assert told["radius"] == by_hand.radius_
    new = ph.load(folder / "out.polyhedge")
    assert new.promise_ == by_hand.promise_
    assert (new.decide(frame).cost_bound == by_hand.decide(frame).cost_bound).all()


@pytest.mark.parametrize("model", ["timed.polyhedge", "random.polyhedge"])
def test_newer_rows_move_decisions_to_their_level_and_the_promise_stays(folder: Path, model: str) -> None:
    refreshed(folder, model)
    old, new = ph.load(folder / model), ph.load(folder / "out.polyhedge")
    fresh = history(200, 2, 30.0, "2026-01-01")
    assert old.decide(fresh).z.mean() < 15
    assert abs(new.decide(fresh).z.mean() - 31) < 2
    assert new.promise_ == old.promise_
    assert new.guarantee == old.guarantee
    assert new.evaluate(fresh, fresh[["demand"]]).coverage > 0.8
    assert len(new.calibrations_) == 2


def test_halves_at_random_are_those_of_the_seed_of_the_fit_or_of_another_one(folder: Path) -> None:
    first, again, other = (refreshed(folder, "random.polyhedge", *more) for more in ((), (), ("--seed", 8)))
    assert first["radius"] == again["radius"] != other["radius"]
    frame = pd.read_csv(folder / "newer.csv")
    by_hand = ph.load(folder / "random.polyhedge").refresh(frame, frame[["demand"]])
    assert first["radius"] == by_hand.radius_
    done = run("refresh", folder / "random.polyhedge", folder / "newer.csv", "--out", folder / "out.polyhedge")
    assert "80 train, 80 calibrate (at random, seed 7)" in done.stdout
    assert "from 48 rows ->" in done.stdout
    assert "coverage  promised 0.9 for rows like these" in done.stdout


def test_file_tells_of_its_refresh_and_knows_the_rows_that_trained(folder: Path) -> None:
    refreshed(folder, "timed.polyhedge")
    shown = run("inspect", folder / "out.polyhedge").stdout
    assert "fitted on  history.csv, 240 rows" in shown
    assert "refreshed  on newer.csv, 160 rows: 74 train, 80 calibrate" in shown
    assert "observed   no rows were held out" in shown
    done = run("evaluate", folder / "out.polyhedge", folder / "newer.csv")
    assert "Seen before: 46% of these rows trained or shaped the model" in done.stderr
    page = folder / "page.html"
    assert run("report", folder / "out.polyhedge", "--out", page).exit_code == 0
    assert "newer.csv, 160 rows" in page.read_text()


def test_predictor_that_newer_rows_would_make_worse_stays_and_the_command_says_so(folder: Path) -> None:
    history(44, 1, first="2025-01-01").to_csv(folder / "few.csv", index=False)
    told = refreshed(folder, "timed.polyhedge", data="few.csv")
    assert any(text.startswith("Refresh: the predictor from before stays") for text in told["warnings"])
    old, new = (ph.load(folder / name) for name in ("timed.polyhedge", "out.polyhedge"))
    frame = pd.read_csv(folder / "few.csv")
    assert (old.centers(frame) == new.centers(frame)).all()
    assert any(text.startswith("Refresh") for text in new.details_["table"].warnings)


def test_commands_and_pages_tell_of_bounds_that_are_higher_than_need_be(folder: Path) -> None:
    model, data, page = folder / "timed.polyhedge", folder / "quiet.csv", folder / "page.html"
    quiet = history(240, 1, first="2025-01-01").assign(id=range(240))
    quiet.assign(demand=10 + quiet["a"]).to_csv(data, index=False)
    found = ["Coverage: 1.000", "Expected cost: decisions cost"]
    told = json.loads(run("evaluate", model, data, "--json").stdout)
    assert all(any(text.startswith(one) for text in told["warnings"]) for one in found)
    assert told["all"]["diagnostics"] == told["warnings"]
    assert run("report", model, data, "--out", page).exit_code == 0
    assert all(page.read_text().count(one) == 1 for one in found)
    assert run("decide", model, data, "--out", folder / "decided.csv", "--key", "id").exit_code == 0
    assert all(one in run("update", model, data, "--key", "id").stderr for one in found)
    told = json.loads(run("monitor", model, "--out", page, "--json").stdout)
    assert [text.partition(":")[0] for text in told["warnings"]] == ["Coverage", "Expected cost"]
    assert all(text[:50] in page.read_text() for text in told["warnings"])
    (folder / "timed.polyhedge.outcomes.db").unlink()


def test_groups_and_copies_stay_in_one_half_and_count_once(folder: Path) -> None:
    frame = pd.read_csv(folder / "newer.csv")
    pd.concat([frame, frame]).to_csv(folder / "copies.csv", index=False)
    told = refreshed(folder, "random.polyhedge", data="copies.csv")
    assert [text for text in told["warnings"] if text.startswith("Copies: 160 rows")]
    assert ph.load(folder / "out.polyhedge").details_["table"].n_groups == 80
    # A model that counts copies once is refreshed on rows without any too.
    told = refreshed(folder, "out.polyhedge", out="twice.polyhedge")
    assert told["split"]["calibrate"] == 80
    told = refreshed(folder, "random.polyhedge", "--group", "day")
    assert ph.load(folder / "out.polyhedge").details_["table"].n_groups == 40


@pytest.mark.parametrize(
    ("model", "change", "said"),
    [
        ("timed", lambda frame: frame.drop(columns="day"), "has no column 'day'"),
        (
            "timed",
            lambda frame: frame.head(2),
            "needs at least 9 newer rows to calibrate and 2 to train with, got 1 and 1",
        ),
        (
            "random",
            lambda frame: frame.head(12),
            "needs at least 9 newer rows to calibrate and 2 to train with, got 6 and 6",
        ),
        ("random", lambda frame: frame.assign(demand=np.nan), "No row of bad.csv can be used"),
        ("random", lambda frame: frame.head(0), "no rows"),
    ],
)
def test_rows_that_cannot_refresh_are_refused_in_one_line(folder: Path, model: str, change, said: str) -> None:
    change(pd.read_csv(folder / "newer.csv")).to_csv(folder / "bad.csv", index=False)
    done = run("refresh", folder / f"{model}.polyhedge", folder / "bad.csv", "--out", folder / "never.polyhedge")
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "never.polyhedge").exists()


def test_outcomes_of_the_old_radius_are_named_where_the_file_is_replaced(folder: Path) -> None:
    model = folder / "replaced.polyhedge"
    model.write_bytes((folder / "timed.polyhedge").read_bytes())
    data = pd.read_csv(folder / "newer.csv").assign(id=np.arange(160))
    data.to_csv(folder / "keyed.csv", index=False)
    assert run("update", model, folder / "keyed.csv", "--key", "id").exit_code == 0
    for command in ("recalibrate", "refresh"):
        done = run(command, model, folder / "newer.csv", "--out", model)
        assert f"{model}.outcomes.db holds decisions and outcomes of another radius" in done.stderr
    assert "outcomes.db" not in run("refresh", model, folder / "newer.csv", "--out", folder / "out.polyhedge").stderr


def test_few_rows_are_told_in_the_words_of_the_promise(folder: Path) -> None:
    model = saved(folder, TimeSplit("t"), calibration=Online())
    done = run("refresh", model, folder / "newer.csv", "--out", folder / "out.polyhedge")
    assert "the coverage of this one model lies between" not in done.stderr


def saved(folder: Path, split: object, **given: object) -> Path:
    frame, learner = history(seed=3), ph.learners.OneSidedBox()
    decider = ph.RobustDecider(ph.problems.newsvendor(1.0, 3.0, 1), learner=learner, split=split, **given)
    decider.fit(frame[["t", "a"]], frame[["demand"]]).save(folder / "python.polyhedge")
    return folder / "python.polyhedge"


def test_models_saved_in_python_are_refreshed_by_the_columns_of_their_split(folder: Path) -> None:
    told = refreshed(folder, saved(folder, TimeSplit("t", gap=3)).name)
    assert told["split"] == {"n_rows": 160, "train": 74, "calibrate": 80, "left_out": 6}
    refreshed(folder, saved(folder, GroupSplit("t")).name)
    assert ph.load(folder / "out.polyhedge").details_["table"].n_groups == 40


def test_recalibrating_counts_groups_in_the_record_of_a_fit_and_leaves_what_others_stored(folder: Path) -> None:
    ph.load(saved(folder, TimeSplit("t"))).save(folder / "own.polyhedge", {"group": "mine"})
    for model in ("random.polyhedge", "own.polyhedge"):
        out = folder / "out.polyhedge"
        done = run("recalibrate", folder / model, folder / "newer.csv", "--group", "day", "--out", out)
        assert done.exit_code == 0, done.stderr
        before, after = ph.load(folder / model).details_, ph.load(out).details_
        if model == "own.polyhedge":
            assert after == before
        else:
            assert after == {**before, "table": replace(before["table"], n_groups=80)}


def test_times_that_no_column_holds_are_asked_for(folder: Path) -> None:
    model = saved(folder, TimeSplit(times=np.arange(240)))
    done = run("refresh", model, folder / "newer.csv", "--out", folder / "never.polyhedge")
    assert done.exit_code == 2
    assert "no column of the table is known to hold them. Use refresh(X, Y, times=...) in Python" in done.stderr


def test_recalibration_takes_rows_by_their_time_in_python_and_from_a_table(folder: Path) -> None:
    model = saved(folder, TimeSplit("t"), calibration=Recent(30))
    done = run("recalibrate", model, folder / "newer.csv", "--out", folder / "out.polyhedge", "--json")
    frame = pd.read_csv(folder / "newer.csv")
    one, other = ph.load(model), ph.load(model)
    one.recalibrate(frame, frame[["demand"]])
    in_order = frame.iloc[np.argsort(frame["t"], kind="stable")]
    other.recalibrate(in_order, in_order[["demand"]], times=np.arange(160))
    assert json.loads(done.stdout)["radius"] == one.radius_ == other.radius_


def test_seeds_travel_in_files_and_generators_do_not(folder: Path) -> None:
    decider = ph.load(folder / "timed.polyhedge")
    for seed, kept in ((np.int64(3), 3), (np.random.default_rng(0), None), (None, None)):
        decider.set_params(random_state=seed).save(folder / "seed.polyhedge")
        assert ph.load(folder / "seed.polyhedge").random_state == kept
