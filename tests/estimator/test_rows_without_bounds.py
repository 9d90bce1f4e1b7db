"""Rows with an infinite radius have no bound: they break nothing, and are in no share of what held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhedge as ph
from polyhedge.calibration import ByCategory, Calibrator, Online, Weighted
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
        volumes = [decider.evaluate(X[k], Y[k], volume=True).volume for k in (slice(None), has_bound)]
        assert volumes[0] == pytest.approx(volumes[1], rel=0.05)


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
    assert "unknown (no rows)" in page
    assert "of 30 held-out rows have no finite bound" in page
    assert "nan %" not in page


def test_row_with_the_radius_of_all_rows_is_counted_as_not_promised() -> None:
    decider, (X, Y, _) = fitted(ByCategory(1, otherwise="marginal"), "cost"), mixed()
    found = decider.evaluate(X, Y)
    assert (found.without_bound, found.n_unpromised, found.coverage.n) == (0, N_NONE, N + N_NONE)
    assert f"without promise  {N_NONE} of the rows" in str(found)
