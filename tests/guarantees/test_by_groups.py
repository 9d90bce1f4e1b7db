"""Overlapping groups: the exact promise within each of them, on laws with heavy tails, ties and few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import linprog

import polyhedge as ph
from polyhedge._support.warnings import UseWarning
from polyhedge.calibration import ByCategory, ByGroups, conformal_radius
from polyhedge.calibration.quantile_fit import QuantileFit
from polyhedge.calibration.radii import rows_without_features
from polyhedge.rows import Rows
from shared import round_trip, run

N_CALIBRATIONS, ALPHA = 300, 0.2
FALSE_ALARM = stats.norm.sf(4)
"""Of a mean over calibrations that lies further from its limit than four standard errors: 3 in 100 000 a group."""
KINDS = np.array([[store, late] for store in range(3) for late in range(2)], dtype=float)
SHARES = np.array([0.35, 0.1, 0.25, 0.1, 0.1, 0.1])
SIZES = 1 + KINDS[:, 0] + 4 * KINDS[:, 1]


def drawn(rng: np.random.Generator, law: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of n rows, and their stores and hours; both groups change the law."""
    kind = rng.choice(len(KINDS), size=n, p=SHARES)
    own = {"heavy tails": lambda: rng.standard_t(1.5, n), "ties": lambda: rng.integers(0, 4, n).astype(float)}[law]()
    return own * SIZES[kind], KINDS[kind]


def held(law: str, radii: np.ndarray) -> np.ndarray:
    """How often scores of each kind are at most these radii: exact, by their law."""
    at = np.asarray(radii) / SIZES
    return stats.t(1.5).cdf(at) if law == "heavy tails" else np.clip((np.floor(at + 1e-9) + 1) / 4, 0, 1)


def held_in_groups(law: str, n: int, seed: int) -> np.ndarray:
    """For each calibration and group how often the bound of its new rows holds (300, 6)."""
    rng, found = np.random.default_rng(seed), []
    groups = (
        np.column_stack([np.ones(6), KINDS[:, [0]] == np.arange(3), KINDS[:, [1]] == np.arange(2)]) * SHARES[:, None]
    )
    for _ in range(N_CALIBRATIONS):
        scores, X = drawn(rng, law, n)
        radii = ByGroups([0, 1]).calibrate(scores, Rows(X), ALPHA).at(Rows(KINDS))
        found.append(held(law, radii) @ (groups / groups.sum(axis=0)))
    return np.array(found)


def check(covered: np.ndarray, most: float | None) -> None:
    """The mean coverage of each group lies between 1 - alpha and `most`, within four standard errors."""
    error = 4 * covered.std(axis=0) / np.sqrt(len(covered))
    assert (covered.mean(axis=0) >= 1 - ALPHA - error).all(), "covered too rarely"
    if most is not None:
        assert (covered.mean(axis=0) <= most + error).all(), "covered too often"


@pytest.mark.filterwarnings("ignore:alpha=0.2 needs at least 4")
@pytest.mark.parametrize("n", [40, 120])
@pytest.mark.parametrize("law", ["heavy tails", "ties"])
def test_each_of_many_overlapping_groups_is_covered_as_promised(law: str, n: int) -> None:
    """The expected coverage of a group of share p lies between 1 - alpha and 1 - alpha + 4 / ((n + 1) p).

    The fit has four free numbers. So at most four rows of n + 1 lie on it, and these alone can be covered for nothing.
    """
    covered = held_in_groups(law, n, 0)
    check(covered, None if law == "ties" or n == 40 else 1 - ALPHA + 4 / ((n + 1) * SHARES[KINDS[:, 1] == 1].sum()))


def test_twenty_overlapping_groups_are_covered_within_a_point_and_a_half_at_little_more_than_one_radius() -> None:
    """Sizes of scores differ by up to a third from group to group; coverage is exact, by the law."""
    rng, n = np.random.default_rng(0), 3000
    effects = rng.uniform(-0.15, 0.15, size=20)
    X = np.column_stack([rng.integers(0, 2, size=(18_000, 20))]).astype(float)
    scores = np.exp(X @ effects) * np.abs(rng.standard_t(3, len(X)))
    test = Rows(X[:150])
    exact = lambda radii: 2 * stats.t(3).cdf(radii / np.exp(X[:150] @ effects)) - 1  # noqa: E731
    found, bounds = [], []
    for k in range(5):
        rows = 3000 + n * k + np.arange(n)
        radii = ByGroups(list(range(20))).calibrate(scores[rows], Rows(X[rows]), 0.1).at(test)
        found.append([exact(radii)[X[:150, g] == 1].mean() for g in range(20)])
        bounds.append([radii.mean(), conformal_radius(scores[rows], 0.1)])
    assert np.abs(np.mean(found, axis=0) - 0.9).max() <= 0.015
    by_groups, one = np.mean(bounds, axis=0)
    assert by_groups <= 1.05 * one


@pytest.mark.filterwarnings("ignore:alpha=0.2 needs at least 4")
def test_a_fit_without_the_new_row_breaks_the_promise_and_the_test_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(fit: QuantileFit, new: np.ndarray) -> float:
        beta = np.linalg.solve(fit.features[fit.start[0]], fit.values[fit.start[0]])
        return float(new[fit.columns] @ beta)

    monkeypatch.setattr(QuantileFit, "critical", without)
    with pytest.raises(AssertionError, match="covered too rarely"):
        check(held_in_groups("heavy tails", 40, 0), None)


def test_one_radius_for_all_breaks_the_promise_within_groups_and_the_test_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QuantileFit, "critical", lambda fit, new: conformal_radius(fit.scores, ALPHA))
    with pytest.raises(AssertionError, match="covered too rarely"):
        check(held_in_groups("heavy tails", 120, 0), None)


@pytest.mark.parametrize("n", [9, 19, 20, 64])
def test_without_groups_it_is_the_conformal_rank_and_by_one_column_that_of_each_category(n: int) -> None:
    rng = np.random.default_rng(n)
    for scores in (rng.standard_t(2, n), rng.integers(0, 3, n).astype(float)):
        fit = QuantileFit(np.ones((n, 1)), scores, np.zeros((0, 1)), 0.1)
        assert fit.critical(np.ones(1)) == conformal_radius(scores, 0.1)
        X = np.repeat([[0.0], [1.0]], [n, n + 10], axis=0)
        both = np.concatenate([scores, rng.normal(size=n + 10)])
        found = [one.calibrate(both, Rows(X), 0.1).at(Rows(X[[0, -1]])) for one in (ByGroups(0), ByCategory(0))]
        np.testing.assert_allclose(*found, rtol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_critical_value_is_the_largest_score_that_the_fit_with_the_new_row_does_not_exclude(seed: int) -> None:
    """The linear program with the new score in it, solved by another method at scores on both sides."""
    rng, n, k = np.random.default_rng(seed), 45, 5
    F = np.column_stack([np.ones(n), rng.integers(0, 2, size=(n, k - 1))]).astype(float)
    S = rng.integers(0, 5, n).astype(float) if seed % 3 == 0 else rng.standard_t(2, n)
    is_lost = np.arange(n) < seed % 2
    fit = QuantileFit(F[~is_lost], S[~is_lost], F[is_lost], 0.15)
    new = F[-1]
    critical = fit.critical(new)

    def weight(score: float) -> float:
        """The most that the new row weighs among all optimal weights; 1 if it lies above every fit."""
        scores = np.append(np.where(is_lost, 1e4, S), score)
        all_features = np.vstack([F, new])
        found = linprog(-scores, A_eq=all_features.T, b_eq=0.15 * all_features.sum(axis=0), bounds=(0, 1))
        return float(found.x[-1])

    assert weight(critical + 1e-3) == pytest.approx(1)
    assert weight(critical - 1e-3) < 1 - 1e-6


def test_groups_that_are_too_small_are_named_and_their_rows_have_no_bound() -> None:
    X = np.column_stack([np.repeat([0.0, 1.0, 2.0], [60, 55, 5]), np.tile([0.0, 1.0], 60)])
    scores = np.random.default_rng(0).normal(size=120)
    with pytest.warns(UseWarning, match="at least 9 calibration rows in each group, and 0=2 has fewer"):
        radii = ByGroups([0, 1]).calibrate(scores, Rows(X), 0.1)
    new = Rows(np.array([[0.0, 1.0], [2.0, 0.0], [7.0, 0.0]]))
    assert np.isfinite(radii.at(new)).tolist() == [True, False, False]
    assert set(radii.notes(new)) == {1, 2}
    assert "none (0=7), so that nothing is promised" in radii.notes(new)[2]
    with pytest.warns(UseWarning, match="2, 1 of 0 are one group together"):
        prepared = ByGroups([0, 1]).prepared(Rows(X), 120, 0.1)
    assert prepared.groups == (("0",), ("0", "1"))
    assert np.isfinite(prepared.calibrate(scores, Rows(X), 0.1).at(new)).all()
    with pytest.warns(UseWarning, match="0, 1"), pytest.raises(ValueError, match="No value of 0 has the rows that a"):
        ByGroups(0).prepared(Rows(np.arange(60.0)[:, None]), 60, 0.1)


def test_features_in_a_table_are_named_where_they_are_too_small() -> None:
    features = pd.DataFrame({"late": np.arange(60) < 5, "trend": np.linspace(-1, 1, 60)})
    with pytest.warns(UseWarning, match="in each group, and late has fewer"):
        radii = ByGroups(features).calibrate(np.arange(60.0), rows_without_features(60), 0.1)
    assert round_trip(radii).by.names == ("late", "trend")


def test_scores_that_no_radius_covers_count_as_missed() -> None:
    X, scores = np.tile([[0.0], [1.0]], (30, 1)), np.arange(60.0)
    scores[[1, 3]] = np.inf
    radii = ByGroups(0).calibrate(scores, Rows(X), 0.1)
    np.testing.assert_allclose(radii.at(Rows(X[:2])), ByCategory(0).calibrate(scores, Rows(X), 0.1).at(Rows(X[:2])))
    scores[1:10:2] = np.inf
    assert np.isfinite(ByGroups(0).calibrate(scores, Rows(X), 0.1).at(Rows(X[:2]))).tolist() == [True, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByGroups([]), "must name columns of X, by names or positions, or be a matrix"),
        (lambda: ByGroups(np.ones(3)), r"got an array of shape \(3,\)"),
        (lambda: ByGroups(0).calibrate(np.arange(5.0), Rows(np.ones((5, 1))), 0.1), "at least 9 .*, got 5"),
        (lambda: ByGroups(0).calibrate(np.arange(9.0), Rows(np.ones((9, 1)), groups=np.ones(9)), 0.1), "one by one"),
        (
            lambda: ByGroups(np.ones((9, 1))).calibrate(np.arange(9.0), rows_without_features(9), 0.1).at(NEW),
            "new rows need theirs",
        ),
        (
            lambda: ByGroups(np.ones((9, 1))).calibrate(
                np.arange(9.0), Rows(np.ones((9, 1)), labels=np.ones((8, 1))), 0.1
            ),
            "one row of features for each of 9 rows, got 8",
        ),
    ],
)
def test_what_is_no_group_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


NEW = Rows(np.ones((2, 1)))


def days(n: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"store": rng.choice(list("abc"), n), "holiday": rng.choice(["no", "yes"], n), "t": rng.normal(size=n)}
    )
    noise = rng.normal(size=n) * (1 + 3 * (X["holiday"] == "yes") + (X["store"] == "c"))
    return X, pd.DataFrame({"demand": (20 + 3 * X["t"] + noise).clip(lower=0)})


def test_a_decider_promises_it_by_columns_and_by_a_matrix_and_keeps_it_in_a_file(tmp_path: Any) -> None:
    (X, Y), (new, outcomes) = days(600, 0), days(300, 1)
    problem = ph.problems.newsvendor([1.0], [3.0])
    decider = ph.RobustDecider(problem, "ridge", calibration=ByGroups(["store", "holiday"]), random_state=0).fit(X, Y)
    assert "in each of 5 groups by store, holiday, which may overlap" in decider.promise_
    bounds = decider.decide(new).cost_bound
    assert bounds[new["holiday"] == "yes"].mean() > 1.5 * bounds[new["holiday"] == "no"].mean()
    decider.save(tmp_path / "m.polyhedge")
    again = ph.load(tmp_path / "m.polyhedge")
    np.testing.assert_allclose(again.decide(new).cost_bound, bounds)
    assert again.at(alpha=0.3).radius_ < again.radius_
    assert again.recalibrate(new, outcomes).model_.radii.groups == decider.model_.radii.groups
    matrices = [pd.DataFrame({"c": x["store"] == "c", "yes": x["holiday"] == "yes"}) for x in (X, new)]
    given = ph.RobustDecider(problem, "ridge", calibration=ByGroups(matrices[0]), random_state=0).fit(X, Y)
    assert given.decide(new, labels=matrices[1]).cost_bound.mean() == pytest.approx(bounds.mean(), rel=0.2)
    with pytest.raises(ValueError, match="labels must have the columns c, yes, in this order, got yes, c"):
        given.decide(new, labels=matrices[1][["yes", "c"]])
    with pytest.raises(ValueError, match="the 2 features of groups that rows of fit had, got 3"):
        given.decide(new, labels=np.ones((len(new), 3)))
    settings = ph.RobustDecider(problem, "ridge", calibration=ByGroups(matrices[0]), random_state=0)
    assert ph.backtest(settings, X, Y, every=150).decider.model_.radii.features.shape[1] == 3
    twin = round_trip(given.model_.radii)
    assert (
        twin.at(Rows(new, labels=matrices[1])).tolist() == given.model_.radii.at(Rows(new, labels=matrices[1])).tolist()
    )


def test_the_command_line_takes_columns(tmp_path: Any) -> None:
    X, Y = days(400, 0)
    X.assign(demand=Y["demand"]).to_csv(tmp_path / "history.csv", index=False)
    (tmp_path / "problem.toml").write_text('kind = "newsvendor"\noutcomes = ["demand"]\noverage = 1\nunderage = 3\n')
    given = ("--problem", tmp_path / "problem.toml", "--out", tmp_path / "m.polyhedge")
    done = run("fit", tmp_path / "history.csv", *given, "--calibration", "by-groups:store, holiday")
    assert done.exit_code == 0, done.output
    assert "groups by store, holiday" in ph.load(tmp_path / "m.polyhedge").promise_
    shown = run("evaluate", tmp_path / "m.polyhedge", tmp_path / "history.csv", "--by", "holiday").stdout
    assert "The promise is for each of these categories" in shown
