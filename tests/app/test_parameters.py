"""Parameters of a problem in files and on the command line: a column of the table, or one number, for every command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.app import rows as tables
from polyhedge.plots.directions import cost_slopes, directions_around
from polyhedge.plots.maps import decision_map
from polyhedge.predictors.columns import Table
from shared import run

PROBLEM = """\
outcomes = ["bread", "cake"]
decisions = ["bake"]
lower = 0
cost = '''
price * bake
+ max(3 * (bread + cake - bake - stock), bake + stock - bread - cake)
'''
constraints = ["bake + stock <= 12", "bake <= oven"]

[parameters]
stock = { lower = 0 }
price = { lower = 0, upper = 2 }
oven = {}
"""


def history(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    heat = rng.normal(size=n)
    return pd.DataFrame(
        {
            "heat": heat.round(6),
            "rain": rng.normal(size=n).round(6),
            "stock": rng.uniform(0, 4, size=n).round(6),
            "hours": rng.uniform(6, 12, size=n).round(6),
            "bread": (5 + heat + 0.5 * rng.normal(size=n)).round(6),
            "cake": (3 - heat + 0.3 * rng.normal(size=n)).round(6),
        }
    )


@pytest.fixture(scope="module", params=["outcome", pytest.param("cost", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem with three parameters, a history, fresh rows and a fitted model."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "problem.toml").write_text(PROBLEM)
    history(80, 0).to_csv(folder / "history.csv", index=False)
    history(24, 1).assign(day=range(24)).to_csv(folder / "fresh.csv", index=False)
    asked = ["--guarantee", "cost"] if request.param == "cost" else []  # with parameters the default is a set
    done = run(
        *["fit", folder / "history.csv", "--problem", folder / "problem.toml", *asked],
        *["--out", folder / "m.polyhedge", "--predictor", "ridge", "--alpha", "0.3"],
        *["--parameter", "price=0.5", "--parameter", "oven=hours", "--json"],
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["parameters"] == {"price": [0.5], "stock": ["stock"], "oven": ["hours"]}
    assert told["features"] == ["heat", "rain"]  # what a parameter is read from is no feature unless it is named
    assert ph.load(folder / "m.polyhedge").model_.guarantee == request.param
    return folder


def in_python(folder: Path, frame: pd.DataFrame, price: float = 0.5) -> ph.Decisions:
    values = {"price": price, "stock": frame["stock"].to_numpy(), "oven": frame["hours"].to_numpy()}
    return ph.load(folder / "m.polyhedge").decide(frame[["heat", "rain"]], parameters=values)


def test_decisions_are_those_of_python_with_the_values_of_the_columns(folder: Path) -> None:
    fresh = pd.read_csv(folder / "fresh.csv")
    assert run("decide", folder / "m.polyhedge", folder / "fresh.csv", "--out", folder / "out.csv").exit_code == 0
    expected = in_python(folder, fresh)
    found = pd.read_csv(folder / "out.csv")
    assert found["bake"].to_numpy() == pytest.approx(expected.z[:, 0], abs=1e-9)
    assert found["cost_bound"].to_numpy() == pytest.approx(expected.cost_bound, abs=1e-9)
    assert (found["bake"] <= fresh["hours"] + 1e-6).all()
    # Another column and another number take the place of those of the fit.
    fresh.rename(columns={"stock": "on hand"}).to_csv(folder / "renamed.csv", index=False)
    other = ["--parameter", "stock=on hand", "--parameter", "price=1.5", "--out", folder / "other.csv"]
    assert run("decide", folder / "m.polyhedge", folder / "renamed.csv", *other).exit_code == 0
    dearer = in_python(folder, fresh, price=1.5)
    assert pd.read_csv(folder / "other.csv")["cost_bound"].to_numpy() == pytest.approx(dearer.cost_bound, abs=1e-9)


def test_a_parameter_with_several_entries_is_read_from_as_many_columns() -> None:
    import cvxpy as cp

    z, caps = cp.Variable(2, nonneg=True), cp.Parameter(2, name="caps", nonneg=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum(cp.abs(u - z)), constraints=[z <= caps], n_outcomes=2
    )
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    table = Table(frame, "caps.csv")
    values, reasons = tables.parameters_of(table, problem, tables.sources_of(problem, {"caps": ("b", "a")}))
    assert values["caps"].tolist() == [[3.0, 1.0], [4.0, 2.0]]
    assert reasons.tolist() == ["", ""]
    values, _ = tables.parameters_of(table, problem, tables.sources_of(problem, {"caps": (1.0, 2.0)}))
    assert values["caps"].tolist() == [[1.0, 2.0]] * 2
    with pytest.raises(ValueError, match="has 2 entries, so it needs as many columns or numbers, got 1"):
        tables.sources_of(problem, {"caps": ("a",)})


def newsvendor() -> ph.DecisionProblem:
    """Two products from one stock: what is baked beside it balances too much against too little of the sum."""
    import cvxpy as cp

    z, stock = cp.Variable(1, nonneg=True), cp.Parameter(name="stock", nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.maximum(3 * (u[0] + 2 * u[1] - z[0] - stock), z[0] + stock - u[0]),
        n_outcomes=2,
    )


def test_directions_with_parameters_are_those_of_the_problem_at_their_values() -> None:
    problem, box = newsvendor(), ph.Box(np.array([1.0, 0.5]))
    centers = np.random.default_rng(0).uniform(4, 8, size=(20, 2))
    found = directions_around(problem, box, 1.0, centers, values=np.full((20, 1), 2.0))
    expected = directions_around(problem.at({"stock": 2.0}), box, 1.0, centers)
    np.testing.assert_allclose(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1])
    assert len(found[0]) == 2  # too much and too little: the bound rests on both


def test_slopes_with_parameters_are_differences_of_the_cost() -> None:
    problem, rng = newsvendor(), np.random.default_rng(1)
    z, u, values = rng.uniform(0, 9, size=(12, 1)), rng.uniform(0, 5, size=(12, 2)), rng.uniform(0, 4, size=(12, 1))
    slopes, step = cost_slopes(problem, z, u, values), 1e-5
    for j, shift in enumerate(step * np.eye(2)):
        rise = (problem.evaluate(z, u + shift, values) - problem.evaluate(z, u - shift, values)) / (2 * step)
        np.testing.assert_allclose(slopes[:, j], rise, atol=1e-6)


@pytest.mark.needs("matplotlib")
def test_a_map_says_where_parameters_are_held(folder: Path) -> None:
    frame = pd.read_csv(folder / "fresh.csv")
    values = {"price": 0.5, "stock": frame["stock"].to_numpy(), "oven": frame["hours"].to_numpy()}
    drawn = decision_map(ph.load(folder / "m.polyhedge"), frame[["heat", "rain"]], resolution=3, parameters=values)
    assert f"stock = {frame['stock'].median():.4g}" in drawn.get_title(loc="left")
    assert "price = 0.5" in drawn.get_title(loc="left")
