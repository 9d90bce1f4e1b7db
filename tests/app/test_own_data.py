"""A user's own data from the first file to the decisions: what each kind of table gets, and how commands end."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

import polyhedge as ph
from polyhedge.app.cli.fit import LEARNERS
from polyhedge.app.reading import read_table
from polyhedge.app.rows import plain_columns
from polyhedge.data import TimeSplit, equal_rows
from shared import run

PROBLEM = """\
kind = "simplex_linear"
outcomes = ["left", "right"]
decisions = ["go_left", "go_right"]
c = [-0.1, 0.0]
"""
OUTCOMES = ["left", "right"]


def history(n: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, town = rng.normal(size=n), rng.integers(0, 3, n)
    noise = rng.normal(size=(n, 2)) @ np.array([[0.3, 0.1], [0.1, 0.2]])
    return pd.DataFrame(
        {
            "a": a.round(6),
            "town": np.array(["Bern", "Oslo", "Roma"])[town],
            "left": (a + noise[:, 0]).round(6),
            "right": (0.5 * town - a + noise[:, 1]).round(6),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a problem, a history and a fitted model."""
    made = tmp_path_factory.mktemp("own")
    (made / "problem.toml").write_text(PROBLEM)
    history().to_csv(made / "history.csv", index=False)
    done = fit(made, made / "history.csv", "--seed", 1)
    assert done.exit_code == 0, done.output
    return made


def fit(folder: Path, data: Path, *more: object, out: str = "model.polyhedge") -> Result:
    fixed = ["--predictor", "linear"] if "--predictor" not in more else []
    problem = [] if "--problem" in more else ["--problem", folder / "problem.toml"]
    # Most of what is asserted here is told of a set.
    problem += [] if "--guarantee" in more else ["--guarantee", "outcome"]
    return run("fit", data, *problem, "--out", folder / out, *fixed, *more)


def decided(folder: Path, new: pd.DataFrame, *more: object) -> tuple[Result, pd.DataFrame]:
    new.to_csv(folder / "new.csv", index=False)
    done = run("decide", folder / "model.polyhedge", folder / "new.csv", "--out", folder / "decisions.csv", *more)
    return done, pd.read_csv(folder / "decisions.csv", keep_default_na=False, na_values=[""])


# --- fit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_time", [False, True])
def test_fit_of_the_command_line_is_the_fit_of_python_on_the_frame_that_was_read(folder: Path, in_time: bool) -> None:
    frame = pd.concat([history(240), history(240)[:3]], ignore_index=True)
    if in_time:
        frame["day"] = pd.date_range("2024-01-01", periods=243)
    frame.loc[5, "a"] = np.nan
    frame.to_csv(folder / "both.csv", index=False)
    options = ["--alpha", "0.2", "--guarantee", "cost", "--seed", "3", "--predictor", "auto"]
    options += ["--time-column", "day", "--gap", "2D"] if in_time else []
    done = fit(folder, folder / "both.csv", *options, "--json", out="both.polyhedge")
    assert done.exit_code == 0, done.output
    told, loaded = json.loads(done.stdout), ph.load(folder / "both.polyhedge")

    read, shares = pd.read_csv(folder / "both.csv"), (0.4, 0.2, 0.2, 0.2)
    split = TimeSplit("day", read["day"], shares, gap="2D") if in_time else shares
    python = ph.RobustDecider(
        ph.problems.from_toml(folder / "problem.toml"), alpha=0.2, split=split, random_state=3, guarantee="cost"
    )
    X, groups = read[["a", "town"]], None if in_time else equal_rows(read)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        python.fit(X, read[OUTCOMES], groups=groups)
    for part in ("train", "learn", "calibrate"):
        np.testing.assert_array_equal(getattr(python.split_, part), getattr(loaded.split_, part))
    assert told["split"]["held_out"] == len(python.split_.held_out) > 0
    assert loaded.radius_ == python.radius_
    assert loaded.settings_["chosen predictor"] == python.settings_["chosen predictor"]
    assert set(map(str, python.diagnostics_)) <= set(told["warnings"])
    assert any("3 rows are equal to an earlier one" in text for text in told["warnings"]) != in_time
    new = X.iloc[python.split_.held_out]
    np.testing.assert_array_equal(loaded.decide(new).z, python.decide(new).z)
    np.testing.assert_array_equal(loaded.decide(new).cost_bound, python.decide(new).cost_bound)


def test_texts_of_numbers_become_numbers_and_other_columns_stay(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,d\n1.5,x,True,\n,2,False,\n")
    frame = plain_columns(read_table(tmp_path / "t.csv"), ["a", "b", "c", "d"], ["b"])
    assert [frame[name].dtype.kind for name in "acd"] == ["f", "O", "f"]
    assert frame["b"].dtype == "category"


def test_every_learner_has_a_name_on_the_command_line() -> None:
    exported = {name for name in ph.learners.__all__ if hasattr(getattr(ph.learners, name), "learn")}
    assert set(LEARNERS.values()) == exported - {"Certified", "Learner"}
    assert ", ".join(LEARNERS) in " ".join(run("fit", "--help").stdout.replace("│", " ").split())


# --- decide -----------------------------------------------------------------------------------------------


def test_table_without_rows_gets_decisions_without_rows_and_one_without_usable_rows_an_error(folder: Path) -> None:
    new = history(2).drop(columns=OUTCOMES)
    done, frame = decided(folder, new.head(0))
    assert (done.exit_code, len(frame)) == (0, 0)
    assert "go_left" in frame.columns
    done, frame = decided(folder, new.assign(a=np.nan))
    assert (done.exit_code, len(frame)) == (2, 2)


@pytest.mark.needs("pyarrow")
def test_decisions_as_parquet_json_and_on_standard_output(folder: Path) -> None:
    new = history(5).drop(columns=OUTCOMES).assign(id=[f"n{i}" for i in range(5)])
    done, frame = decided(folder, new, "--keep", "id", "--json")
    assert json.loads(done.stdout)["status"] == {"optimal": 5}
    assert frame["id"].tolist() == ["n0", "n1", "n2", "n3", "n4"]
    model, data = folder / "model.polyhedge", folder / "new.csv"
    assert run("decide", model, data, "--out", folder / "d.parquet").exit_code == 0
    np.testing.assert_array_equal(pd.read_parquet(folder / "d.parquet")["cost_bound"], frame["cost_bound"])
    done = run("decide", model, data, "--out", "-")
    assert done.stdout.splitlines()[0].startswith("go_left,go_right,cost_bound")
    assert len(done.stdout.splitlines()) == 6
    assert done.stderr.splitlines() == ["5 rows: 5 optimal"]
    both = run("decide", model, data, "--out", "-", "--json")
    assert both.stdout == done.stdout
    assert json.loads(both.stderr)["status"] == {"optimal": 5}


def test_infeasible_and_unbounded_are_exit_code_3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyhedge.learners.Certified", lambda *_, **__: ph.learners.Descent(n_steps=1))
    empty = folder / "empty.toml"
    empty.write_text(
        'outcomes = ["left", "right"]\ndecisions = ["z"]\nconstraints = ["z >= 2", "z <= 1"]\ncost = "left * z"\n'
    )
    assert fit(folder, folder / "history.csv", "--problem", empty, out="never").exit_code == 3
    free = folder / "free.toml"
    free.write_text('outcomes = ["left", "right"]\ndecisions = ["z"]\ncost = "z + left + right"\n')
    done = fit(folder, folder / "history.csv", "--problem", free, out="never")
    assert done.exit_code == 3
    assert "the cost can be lowered without limit" in done.stderr


def test_stopping_early_is_exit_code_4_with_a_model(folder: Path) -> None:
    done = fit(folder, folder / "history.csv", "--learner", "ccg", "--time-limit", "0", out="early.polyhedge")
    assert done.exit_code == 4, done.output
    assert ph.load(folder / "early.polyhedge").radius_ > -np.inf


def test_interrupt_is_exit_code_4(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ph.RobustDecider, "fit", interrupt)
    done = fit(folder, folder / "history.csv", out="never")
    assert done.exit_code == 4
    assert "stopped early" in done.stderr


# --- comfort ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{0}/history.csv", "--problem", "{0}/none.toml", "--out", "{0}/m"], "There is no file"),
        (
            ["fit", "{0}/history.csv", "--problem", "linear", "--out", "{0}/m"],
            "must be a .toml or .mps file, or FILE.py:NAME",
        ),
        (["decide", "{0}/none", "{0}/history.csv", "--out", "{0}/d.csv"], "Write one with polyhedge fit"),
        (["decide", "{0}/model.polyhedge", "{0}/history.csv", "--out", "{0}/d.xlsx"], ".csv or .parquet"),
        (["evaluate", "{0}/model.polyhedge", "{0}/history.csv", "--by", "a"], "Choose a coarser column"),
        (["decide", "{0}/model.polyhedge", "{0}/history.csv", "--max-bytes", "9", "--out", "{0}/d.csv"], "--max-bytes"),
        (["example", "wine"], "one of energy, newsvendor"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(folder: Path, arguments: list[str], message: str) -> None:
    done = run(*(argument.format(folder) for argument in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.output


@pytest.mark.parametrize("command", ["fit", "decide", "evaluate", "recalibrate", "refresh", "inspect", "example"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"Example: polyhedge {command} " in done.stdout


def test_examples_are_written_once_and_never_over_other_files(tmp_path: Path) -> None:
    for _ in range(2):
        assert run("example", "newsvendor", "--out", tmp_path).exit_code == 0
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["fresh.csv", "history.csv", "new.csv", "problem.toml"]
    (tmp_path / "new.csv").write_text("mine")
    done = run("example", "newsvendor", "--out", tmp_path)
    assert done.exit_code == 2
    assert "is there already and differs" in done.stderr
    assert (tmp_path / "new.csv").read_text() == "mine"
