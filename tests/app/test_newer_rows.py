"""Newer rows in a model file: `polyhedge refresh` does what `decider.refresh` does, split as the file says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.data import TimeSplit
from polyhedge.data.splits import as_times
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


def test_a_backtest_on_the_command_line_is_that_of_python(folder: Path) -> None:
    """The settings of the model file, on the rows in time order."""
    given = (folder / "timed.polyhedge", folder / "history.csv", "--every", "20D")
    done = run("backtest", *given, "--json", "--out", folder / "backtest.html")
    assert done.exit_code == 0, done.output
    frame = pd.read_csv(folder / "history.csv")
    again = ph.load(folder / "timed.polyhedge")
    tested = ph.backtest(again, frame[["a"]], frame[["demand"]], times=as_times(frame["day"]), every="20D")
    told = json.loads(done.stdout)
    assert told["coverage"]["value"] == float(tested.coverage)
    assert [period["cost_bound"] for period in told["periods"]] == pytest.approx([p.cost_bound for p in tested.periods])
    assert told["verdict"] == tested.verdict
    assert tested.verdict in (folder / "backtest.html").read_text()
