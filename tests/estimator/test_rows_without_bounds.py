"""Rows with an infinite radius have no bound: they break nothing, and are in no share of what held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import polyhedge as ph
from polyhedge.app import cli
from polyhedge.calibration import ByCategory, Calibrator, Online, Weighted
from polyhedge.evaluation import proportion
from polyhedge.plots.curves import cost_curve

PROBLEM = ph.problems.simplex_linear([0.0, 0.1])
N, N_NONE = 40, 10


def rows(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(2, size=n)])
    return X, X[:, :1] + rng.normal(size=(n, 2)) * (1.0 + X[:, 1:])


def fitted(calibration: Calibrator, guarantee: str) -> ph.RobustDecider:
    learner = ph.learners.OneSidedBox()
    settings: Any = {"calibration": calibration, "guarantee": guarantee, "learner": learner, "random_state": 0}
    return ph.RobustDecider(PROBLEM, **settings).fit(*rows(400, 0))


def weight(X: Any) -> Any:
    return np.where(X[:, 1] == 9, 1e6, 1.0)


BY_ROW: list[Calibrator] = [ByCategory(1), Weighted(weight)]
GUARANTEES = pytest.mark.parametrize("guarantee", ["outcome", "cost"])


def mixed() -> tuple[Any, Any, Any]:
    """Rows with a bound, and rows of a category that nobody has seen between them; which have a bound."""
    X, Y = rows(N + N_NONE, 1)
    has_bound = np.random.default_rng(2).permutation(N + N_NONE) < N
    X[~has_bound, 1] = 9
    return X, Y, has_bound


@GUARANTEES
@pytest.mark.parametrize("calibration", BY_ROW, ids=lambda c: type(c).__name__)
def test_rows_without_a_bound_change_no_share_of_what_held(calibration: Calibrator, guarantee: str) -> None:
    decider, (X, Y, has_bound) = fitted(calibration, guarantee), mixed()
    alone, both = decider.evaluate(X[has_bound], Y[has_bound]), decider.evaluate(X, Y)
    for name in ("coverage", "bound_held", "promise_held", "worst_case_cost"):
        assert str(getattr(both, name)) == str(getattr(alone, name))
    assert both.without_bound == N_NONE / (N + N_NONE)
    assert both.not_missed == (round(alone.coverage * N) + N_NONE) / (N + N_NONE)
    assert alone.without_bound == 0
    assert both.to_frame().loc["without_bound", "value"] == both.without_bound
    assert "without a bound" in str(both)
    assert "without a bound" not in str(alone)
    assert decider.measure(X, Y).has_bound.tolist() == has_bound.tolist()
    assert [len(share) for share in (both.groups, decider.evaluate(X, Y, by=has_bound).groups)] == [0, 2]
    none, some = decider.evaluate(X, Y, by=has_bound).groups
    assert (none.coverage.n, none.n_without_bound, some.n_without_bound) == (0, N_NONE, 0)
    assert not none.is_short
    if guarantee == "outcome":
        assert decider.mean_volume(X) == pytest.approx(decider.mean_volume(X[has_bound]), rel=0.05)


@GUARANTEES
def test_outcomes_of_rows_without_a_bound_are_counted_apart(guarantee: str) -> None:
    decider, (X, Y, has_bound) = fitted(ByCategory(1), guarantee), mixed()
    found = decider.update(X, Y)
    inside = decider.measure(X, Y).inside
    assert found.coverage == inside[has_bound].mean()
    assert found.without_bound == N_NONE / (N + N_NONE)
    assert found.not_missed == (inside[has_bound].sum() + N_NONE) / (N + N_NONE)
    assert f"of {N} rows with a bound" in str(found)
    assert f"{N_NONE} of {N + N_NONE} rows had no bound" in str(found)


def test_curve_of_costs_leaves_rows_without_a_bound_out_of_the_own_level() -> None:
    decider, (X, Y, has_bound) = fitted(ByCategory(1), "outcome"), mixed()
    assert cost_curve(decider, X, Y).own_bound == pytest.approx(decider.decide(X[has_bound]).cost_bound.mean())


@GUARANTEES
def test_where_no_row_has_a_bound_everything_says_so(guarantee: str, tmp_path: Path) -> None:
    decider, (X, Y) = fitted(Online(0.5), guarantee), rows(30, 3)
    decider.update(X[:3], Y[:3] + 99)
    found = decider.evaluate(X, Y)
    assert found.coverage.n == 0
    assert found.without_bound == 1
    assert "unknown (no rows)" in str(found)
    with pytest.raises(ValueError, match=r"has no region, because its radius is infinite. So many of the last bounds"):
        decider.region(X[0])
    decider.report(tmp_path / "page.html", X, Y)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "None of 30 rows that the model had not seen has a finite bound" in page
    assert "of 30 held-out rows have no finite bound" in page
    assert "nan %" not in page


def test_backtest_tells_both_shares() -> None:
    decider = fitted(Online(0.5), "cost")
    backtest = ph.backtest(decider, *rows(200, 4), every=100)
    assert backtest.coverage.n + sum(period.n_without_bound for period in backtest.periods) == 100
    assert backtest.not_missed.n == 100


def test_row_with_the_radius_of_all_rows_is_counted_as_not_promised() -> None:
    decider, (X, Y, _) = fitted(ByCategory(1, otherwise="marginal"), "cost"), mixed()
    found = decider.evaluate(X, Y)
    assert (found.without_bound, found.n_unpromised, found.coverage.n) == (0, N_NONE, N + N_NONE)
    assert f"without promise  {N_NONE} of the rows" in str(found)


def test_commands_and_pages_tell_rows_without_a_bound(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    names = ["x", "store", "u", "v"]
    X, Y = rows(400, 0)
    frame = pd.DataFrame(np.column_stack([X, Y]), columns=names).assign(store=np.where(X[:, 1] > 0, "a", "b"))
    settings: Any = {"calibration": ByCategory("store"), "learner": ph.learners.OneSidedBox(), "random_state": 0}
    decider = ph.RobustDecider(PROBLEM, **settings).fit(frame[["x", "store"]], frame[["u", "v"]])
    model, data, page = (str(tmp_path / name) for name in ("m.polyhedge", "new.csv", "page.html"))
    decider.save(model)
    X, Y, has_bound = mixed()
    fresh = pd.DataFrame(np.column_stack([X, Y]), columns=names).assign(id=np.arange(N + N_NONE))
    fresh.assign(store=np.where(has_bound, np.where(X[:, 1] > 0, "a", "b"), "new")).to_csv(data, index=False)

    def run(*arguments: str) -> str:
        told = CliRunner().invoke(cli.app, list(arguments))
        assert told.exit_code == 0, told.output
        return told.output

    decided = CliRunner().invoke(cli.app, ["decide", model, data, "--out", str(tmp_path / "z.csv")])
    assert decided.exit_code == 3  # a set that holds every outcome has no decision
    assert f"without a bound ({N_NONE} row(s))" in decided.output
    planned = ph.RobustDecider(PROBLEM, guarantee="cost", **settings).fit(frame[["x", "store"]], frame[["u", "v"]])
    planned.save(tmp_path / "planned.polyhedge")
    decided = CliRunner().invoke(
        cli.app, ["decide", str(tmp_path / "planned.polyhedge"), data, "--out", str(tmp_path / "z.csv")]
    )
    assert decided.exit_code == 3  # a policy has one, but promises nothing of its cost
    assert f"without a bound ({N_NONE} row(s))" in decided.output
    told = json.loads(run("evaluate", model, data, "--json"))["all"]
    assert told["without_bound"]["value"] == N_NONE / (N + N_NONE)
    assert told["coverage"]["n"] == N
    by_store = run("evaluate", model, data, "--by", "store")
    assert f"on {N} rows with a bound" in by_store
    assert "rows  no bound  " in by_store
    run("update", model, data, "--key", "id")
    assert f"{N_NONE} of {N + N_NONE} rows had no bound" in run("monitor", model, "--out", page)
    assert "rows without a bound" in Path(page).read_text(encoding="utf-8")
    assert json.loads(run("monitor", model, "--json"))["coverage"] == told["coverage"]["value"]


def test_share_of_no_rows_is_unknown() -> None:
    found = proportion(np.zeros(0, dtype=bool))
    assert np.isnan(found)
    assert (found.low, found.high, found.n, str(found)) == (0.0, 1.0, 0, "unknown (no rows)")
