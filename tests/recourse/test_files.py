"""Recourse in problem files and on the command line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import polyhedge as ph
from polyhedge.app.cli import app

TEXT = """
outcomes = ["demand_a", "demand_b"]
decisions = ["stock_a", "stock_b"]
recourse = ["a_to_b >= 0", "0 <= b_to_a <= 50"]
lower = 0
cost = "stock_a + stock_b + 0.5 * (a_to_b + b_to_a) + 4 * pos(demand_a - stock_a + a_to_b - b_to_a) + \
4 * pos(demand_b - stock_b - a_to_b + b_to_a)"
constraints = ["a_to_b <= stock_a", "b_to_a <= stock_b", "stock_a + stock_b <= 200"]
support = ["demand_a >= 0", "demand_b >= 0"]
"""


@pytest.fixture
def problem_file(tmp_path):
    path = tmp_path / "shops.toml"
    path.write_text(TEXT)
    return path


def history(n=240):
    rng = np.random.default_rng(0)
    X = rng.uniform(20, 40, size=(n, 2))
    Y = X * rng.uniform(0.6, 1.4, size=(n, 2))
    columns = {"week_a": X[:, 0], "week_b": X[:, 1], "demand_a": Y[:, 0], "demand_b": Y[:, 1]}
    return pd.DataFrame(columns).round(3)


def test_recourse_of_a_file_moves_what_is_left_over(problem_file):
    problem = ph.problems.from_toml(problem_file)
    assert problem.recourse_layout.names == ("a_to_b", "b_to_a")
    answers = problem.answers(np.array([[30.0, 10.0]]), np.array([[20.0, 25.0]]))
    np.testing.assert_allclose(answers.y, [[10.0, 0.0]], atol=1e-7)
    np.testing.assert_allclose(
        answers.costs + 40.0, problem.evaluate(np.array([[30.0, 10.0]]), np.array([[20.0, 25.0]]))
    )


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('recourse = ["demand_a >= 0"]', "recourse and parameters must have different names, two are called demand_a"),
        ('recourse = ["a_to_b < 0"]', "recourse must be distinct names, perhaps with limits"),
        ("recourse = 3", "recourse must be a list of texts"),
        ("recourse_integer = true", "recourse_integer must be true, false or"),
        ('recourse = ["a_to_b >= 0", "b_to_a"]\nrecourse_integer = ["c"]', "recourse_integer must be true, false or"),
    ],
)
def test_mistakes_in_recourse_are_named(tmp_path, line, match):
    path = tmp_path / "shops.toml"
    path.write_text(TEXT.replace('recourse = ["a_to_b >= 0", "0 <= b_to_a <= 50"]', line))
    with pytest.raises(ValueError, match=match):
        ph.problems.from_toml(path)


@pytest.mark.filterwarnings("ignore::polyhedge.DiagnosticWarning")
def test_command_line_decides_and_repairs_as_python_does(problem_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, run = history(), CliRunner()
    table[:200].to_csv("history.csv", index=False)
    table[200:].to_csv("outcomes.csv", index=False)
    table[200:][["week_a", "week_b"]].to_csv("new.csv", index=False)
    fit = ["fit", "history.csv", "--problem", str(problem_file), "--out", "m.polyhedge", "--guarantee", "cost"]
    for command in (
        [*fit, "--predictor", "linear"],
        ["decide", "m.polyhedge", "new.csv", "--out", "decisions.csv"],
        ["repair", "m.polyhedge", "outcomes.csv", "--decisions", "decisions.csv", "--out", "repairs.csv"],
        ["evaluate", "m.polyhedge", "outcomes.csv"],
    ):
        result = run.invoke(app, command)
        assert result.exit_code == 0, result.output
    assert "second stage" in result.output
    found, decider = pd.read_csv("repairs.csv"), ph.load("m.polyhedge")
    fresh = table[200:]
    later = decider.repair(
        fresh[["week_a", "week_b"]], fresh[["demand_a", "demand_b"]], decider.decide(fresh[["week_a", "week_b"]])
    )
    np.testing.assert_allclose(found["cost"], later.cost, rtol=1e-6)
    assert list(found.columns[:3]) == ["row", "a_to_b", "b_to_a"]
    short = run.invoke(app, ["repair", "m.polyhedge", "history.csv", "--decisions", "decisions.csv", "--out", "x.csv"])
    assert short.exit_code == 2
    assert "must have one row for each of the 200 rows" in short.output


@pytest.mark.filterwarnings("ignore::polyhedge.DiagnosticWarning")
def test_clone_backtest_monitoring_parquet_dask_and_plots_take_both_stages(problem_file, tmp_path):
    rows = history(300)
    X, Y = rows[["week_a", "week_b"]], rows[["demand_a", "demand_b"]]
    problem = ph.problems.from_toml(problem_file)
    decider = clone(ph.RobustDecider(problem, "linear", guarantee="cost", random_state=0))
    assert decider.get_params()["problem"] is problem
    found = ph.backtest(decider, X, Y, every=50)
    assert 0.6 < found.coverage.value <= 1
    decider.fit(X[:200], Y[:200])
    now = decider.decide(X[200:])
    later = decider.repair(X[200:], Y[200:], now)
    seen = decider.update(X[200:], Y[200:])
    assert seen.coverage.value == pytest.approx(later.is_within.mean())
    X[200:].to_parquet(tmp_path / "new.parquet")
    ph.distributed.decide_parquet(decider, tmp_path / "new.parquet", tmp_path / "out.parquet")
    bounds = pd.read_parquet(tmp_path / "out.parquet")["cost_bound"]
    np.testing.assert_allclose(bounds, now.cost_bound, rtol=1e-9)
    assert decider.evaluate(X[200:], Y[200:]).plot() is not None
