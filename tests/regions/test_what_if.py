"""Bounds of decisions of one's own: the worst cost over the region that the outcome lies in as often as promised."""

from __future__ import annotations

from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import polyhedge as ph
from polyhedge.regions.cost_guard import region_of_facets
from shared import run

N = 300


def sampled(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(1, 3, size=(n, 2))
    return X, np.abs(5 + 2 * X + X * rng.normal(size=(n, 2)))


def boxed() -> ph.DecisionProblem:
    """Two products under a budget, with demand between 0 and 40."""
    z = cp.Variable(2, nonneg=True, name="order")
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(0.5 * z + 2 * cp.pos(u - z)),
        constraints=[cp.sum(z) <= 30],
        n_outcomes=2,
        outcome_support=lambda u: [u >= 0, u <= 40],
        outcome_names=["bread", "rolls"],
    )


def fitted(problem: ph.DecisionProblem, guarantee: str, **more: object) -> ph.RobustDecider:
    learner = {"learner": ph.learners.OneSidedBox()} if guarantee == "outcome" else {}
    X, Y = sampled()
    return ph.RobustDecider(problem, guarantee=guarantee, random_state=0, **learner, **more).fit(X, Y)


@pytest.fixture(scope="module", params=["cost", "outcome"])
def decider(request: pytest.FixtureRequest) -> ph.RobustDecider:
    return fitted(boxed(), request.param)


def test_the_decision_taken_has_its_own_bound(decider: ph.RobustDecider) -> None:
    X = sampled(1)[0][:20]
    decided = decider.decide(X)
    again = decider.bound(X, decided)
    np.testing.assert_allclose(again.cost_bound, decided.cost_bound, rtol=1e-7)
    np.testing.assert_allclose(decider.problem_.evaluate(again.flat, again.worst_outcome), again.cost_bound, rtol=1e-7)


def test_bounds_are_the_largest_cost_over_the_vertices_of_the_region(decider: ph.RobustDecider) -> None:
    """Brute force: a convex cost is largest at a vertex."""
    X, rng = sampled(2)[0][:8], np.random.default_rng(0)
    z = rng.uniform(0, 20, size=(8, 2))
    found = decider.bound(X, z)
    for i in range(8):
        vertices = decider.region(X[i]).vertices()
        costs = decider.problem_.evaluate(np.tile(z[i], (len(vertices), 1)), vertices)
        assert found.cost_bound[i] == pytest.approx(costs.max(), rel=1e-7)


def test_an_outcome_in_its_region_keeps_the_bounds_of_all_decisions_at_once(decider: ph.RobustDecider) -> None:
    """The promise is about the outcome, so that a decision may even be chosen to break it."""
    X, Y = (part[:60] for part in sampled(3))
    inside = np.array([decider.region(X[i]).contains(Y[i]) for i in range(60)])
    assert 40 <= inside.sum() < 60
    rng, broken = np.random.default_rng(1), np.zeros(60, dtype=bool)
    for _ in range(6):
        z = np.where(rng.uniform(size=(60, 2)) < 0.5, 0.0, rng.uniform(0, 30, size=(60, 2)))
        broken |= decider.problem_.evaluate(z, Y) > decider.bound(X, z).cost_bound * (1 + 1e-9)
    assert not broken[inside].any()
    assert broken[~inside].any()  # outside of the region nothing is promised


def n_broken(decider: ph.RobustDecider, n: int) -> int:
    """In how many of n calibrations with 19 rows one of four decisions exceeds its bound at a new row, heavy tails.

    The decisions are chosen against the outcome, which must not help.
    """
    rng, found = np.random.default_rng(0), 0
    for _ in range(n):
        X = rng.uniform(1, 3, size=(20, 1))
        Y = np.clip(20 + 5 * X + 3 * rng.standard_t(1.5, size=(20, 1)), 0, 200)
        decider.recalibrate(X[:19], Y[:19])
        z = np.append(np.linspace(0, 60, 3), Y[19] + 20 * rng.choice([-1, 1])).clip(0)[:, None]
        bounds = decider.bound(np.tile(X[19:], (4, 1)), z).cost_bound
        found += int((decider.problem_.evaluate(z, np.tile(Y[19:], (4, 1))) > bounds * (1 + 1e-9)).any())
    return found


@pytest.mark.filterwarnings("ignore::polyhedge.DiagnosticWarning")
@pytest.mark.parametrize("guarantee", ["cost", "outcome"])
def test_bounds_of_all_decisions_hold_together_as_often_as_promised(
    guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most a binomial number of 300, but for one test in 10 000; with too low a rank it is more."""
    z = cp.Variable(1, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u) + 3 * cp.pos(u - z)),
        n_outcomes=1,
        outcome_support=lambda u: [u >= 0, u <= 200],
    )
    X, rng = np.random.default_rng(1).uniform(1, 3, size=(300, 1)), np.random.default_rng(2)
    Y = np.clip(20 + 5 * X + 3 * rng.standard_t(1.5, size=(300, 1)), 0, 200)
    learner = ph.learners.PcaBox() if guarantee == "outcome" else None
    decider = ph.RobustDecider(problem, "ridge", 0.2, guarantee=guarantee, learner=learner, random_state=0).fit(X, Y)
    assert n_broken(decider, 300) <= stats.binom(300, 0.2).ppf(1 - 1e-4)
    broken = lambda scores, groups, alpha: ph.calibration.conformal_radius(scores, alpha + 0.4)  # noqa: E731
    monkeypatch.setattr("polyhedge.calibration.marginal.radius_of", broken)
    assert n_broken(decider, 100) > stats.binom(100, 0.2).ppf(1 - 1e-4)


def test_the_region_of_a_set_bounds_a_convex_cost_too() -> None:
    """Over the vertices of a polyhedral set."""
    z = cp.Variable(2)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum_squares(z - u), constraints=[cp.abs(z) <= 9], n_outcomes=2
    )
    X, Y = sampled()
    decider = ph.RobustDecider(problem, guarantee="outcome", learner=ph.learners.PcaBox(), random_state=0).fit(X, Y)
    mine = np.array([[1.0, 2.0], [-3.0, 4.0]])
    for i, row in enumerate(decider.bound(X[:2], mine)):
        vertices = decider.region(X[i]).vertices()
        assert row.cost_bound == pytest.approx(((vertices - mine[i]) ** 2).sum(axis=1).max(), rel=1e-6)


def test_a_region_that_is_open_towards_harm_has_no_bound_and_says_which_limit_would_close_it() -> None:
    z = cp.Variable(2, nonneg=True, name="share")
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: -u @ z,
        constraints=[cp.sum(z) == 1],
        n_outcomes=2,
        outcome_names=["steel", "glass"],
    )
    decider = fitted(problem, "cost")
    X = sampled()[0][:1]
    taken = decider.decide(X).z[0]
    found = decider.bound(X, [taken[::-1]])
    assert np.isposinf(found.cost_bound[0])
    assert "outcome_support" in found.detail[0]
    assert "from below" in found.detail[0]


@pytest.mark.parametrize(
    "cost",
    [
        lambda z, u: cp.sum_squares(z - u),
        lambda z, u: cp.sum(cp.exp(0.1 * (u - z))) + 0.2 * cp.sum(z),
        lambda z, u: cp.sum_squares(z - 3) + cp.sum(cp.sqrt(u)),
    ],
)
def test_a_worst_case_that_is_out_of_reach_is_that_over_the_support_or_infinite_and_says_so(cost: object) -> None:
    at = {"decision": (z := cp.Variable(2, nonneg=True)), "cost": cost, "constraints": [z <= 30], "n_outcomes": 2}
    for high in (np.inf, 40.0):
        problem = ph.DecisionProblem(**at, outcome_support=lambda u, high=high: [u >= 0, u <= high][: 1 + (high < 99)])
        decider, X = fitted(problem, "cost"), sampled()[0][:1]
        mine = 1.1 * decider.decide(X).z
        found = decider.bound(X, mine)
        if high == np.inf:
            assert np.isposinf(found.cost_bound[0])
            assert 'Use guarantee="outcome"' in found.detail[0]
        else:
            corners = np.array([[a, b] for a in (0.0, high) for b in (0.0, high)])
            assert found.cost_bound[0] == pytest.approx(
                problem.evaluate(np.tile(mine, (4, 1)), corners).max(), rel=1e-6
            )
            assert "out of reach: this is that over outcome_support" in found.detail[0]


def test_auxiliary_variables_are_altered_with_the_decision() -> None:
    z, over = cp.Variable(1, nonneg=True, name="order"), cp.Variable(1, name="over")
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(2 * over + 3 * cp.pos(u - z) + cp.pos(z - u)),
        constraints=[over >= z - 12, over >= 0],
        n_outcomes=1,
        outcome_support=lambda u: [u >= 0, u <= 60],
    )
    X, Y = sampled()
    decider = ph.RobustDecider(problem, "ridge", random_state=0).fit(X, Y[:, :1])
    decided = decider.decide(X[:3])
    np.testing.assert_allclose(decider.bound(X[:3], decided).cost_bound, decided.cost_bound, rtol=1e-7)
    assert (decider.bound(X[:3], decided.flat + np.array([0.0, 1.0])).cost_bound > decided.cost_bound + 1.9).all()
    with pytest.raises(ValueError, match="and the 1 auxiliary ones behind them, as in flat of decisions"):
        decider.bound(X[:3], decided.z)


def test_constraints_that_may_break_are_named() -> None:
    z = cp.Variable(nonneg=True, name="capacity")
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: 1.0 * z + 0 * u,
        uncertain_constraints=lambda z, u: [u <= z],
        constraint_names=["load is met"],
        n_outcomes=1,
        outcome_support=lambda u: [u >= 0],
    )
    X, Y = sampled()
    decider = ph.RobustDecider(problem, guarantee="outcome", learner=ph.learners.OneSidedBox(), random_state=0)
    decider.fit(X, Y[:, :1])
    taken = decider.decide(X[:1]).z
    assert "load is met" not in "".join(decider.bound(X[:1], taken).detail)
    assert "load is met may be exceeded by 1" in decider.bound(X[:1], taken - 1).detail[0]


def test_a_margin_path_bounds_other_decisions_and_names_what_they_may_break() -> None:
    """Where the outcome lies in the region, every decision keeps its bound, and breaks only what its note names."""
    z = cp.Variable(2, nonneg=True, name="capacity")
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z) + 2 * cp.pos(u[0] - z[0]),
        constraints=[z <= 60],
        uncertain_constraints=lambda z, u: [u[1] <= z[1]],
        constraint_names=["load is met"],
        n_outcomes=2,
        outcome_support=lambda u: [u >= 0, u <= 40],
    )
    decider = fitted(problem, "cost")
    X, Y = (part[:40] for part in sampled(5))
    assert decider.model_.family.kind == "path"
    inside = decider.model_.scores(decider.model_.read(X, Y)) <= decider.radius_
    assert 0 < inside.sum() < 40
    rng, n_broken = np.random.default_rng(0), 0
    for factor in (1.0, *rng.uniform(0.4, 1.3, size=4)):
        z = factor * decider.decide(X).flat
        found = decider.bound(X, z)
        assert (problem.evaluate(z, Y) <= found.cost_bound + 1e-9)[inside].all()
        is_broken = (problem.violations(z, Y) > 1e-6).any(axis=1) & inside
        is_named = np.array(["load is met" in text for text in found.detail or [""] * 40])
        assert is_named[is_broken].all()
        n_broken += int(is_broken.sum())
        if factor == 1.0:
            assert not is_named.any()
    assert n_broken


def test_decisions_come_as_arrays_frames_and_decisions_and_mistakes_are_named(decider: ph.RobustDecider) -> None:
    X = sampled(4)[0][:3]
    names = list(decider.problem_.decision_names)
    z = np.array([[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    frame = pd.DataFrame(z[:, ::-1], columns=names[::-1])
    np.testing.assert_array_equal(decider.bound(X, z).cost_bound, decider.bound(X, frame).cost_bound)
    assert np.isnan(decider.bound(X, np.where(z == 3, np.nan, z)).cost_bound).tolist() == [True, False, False]
    for wrong in (z[:2], z.T):
        with pytest.raises(ValueError, match=r"z must have 3 row\(s\) of 2 number\(s\)"):
            decider.bound(X, wrong)
    with pytest.raises(ValueError, match=r"of numbers: an array, a table or dictionary by name.*got list"):
        decider.bound(X, [["many", 1.0]] * 3)
    with pytest.raises(ValueError, match=f"It lacks {names[1]}"):
        decider.bound(X, {names[0]: 1})
    with pytest.raises(ValueError, match="X and z must hold the same rows in the same order"):
        decider.bound(pd.DataFrame(X), frame[::-1])
    with_gap = np.vstack([X[0], [np.nan, 1.0]])
    assert np.isnan(decider.bound(with_gap, z[:2]).cost_bound).tolist() == [False, True]
    with pytest.raises(ValueError, match=f"It lacks {names[0]}"):
        decider.bound(X, frame[[names[1]]])


def test_a_decision_by_name_is_the_same_as_a_table_a_dictionary_or_one_row(decider: ph.RobustDecider) -> None:
    X = pd.DataFrame(sampled(4)[0][:3], index=[7, 8, 9])
    decided = decider.decide(X)
    bounds, frame, names = decided.cost_bound, decided.to_frame(), list(decider.problem_.decision_names)
    for z in (frame, {"order": decided["order"]}, {name: decided[name] for name in names}):
        np.testing.assert_allclose(decider.bound(X, z).cost_bound, bounds, rtol=1e-7)
    for one in (decided[0], frame.iloc[0], {name: frame.iloc[0][name] for name in names}):
        np.testing.assert_allclose(decider.bound(X[:1], one).cost_bound, bounds[:1], rtol=1e-7)
    gap = frame[names].astype("Float64")
    gap.iloc[1, 0] = pd.NA
    assert np.isnan(decider.bound(X, gap).cost_bound).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="X and z must hold the same rows in the same order"):
        decider.bound(X, pd.Series(np.zeros(3)))


def test_a_decision_that_no_outcome_hurts_leaves_the_outcome_open_and_spoils_no_other_row() -> None:
    """Where nothing is bought the cost is 0 whatever the price, so that the region is the whole support."""
    z = cp.Variable(2, nonneg=True)
    X, Y = np.random.default_rng(0).normal(size=(2, N, 2))
    at = {"decision": z, "cost": lambda z, u: -u @ z, "constraints": [z <= 1], "n_outcomes": 2}
    for support in (None, lambda u: [u >= -9, u <= 9]):
        problem = ph.DecisionProblem(**at, outcome_support=support)
        decider = ph.RobustDecider(problem, "ridge", random_state=0).fit(X + 0.5, Y + X)
        decided = decider.decide(X)
        idle = (decided.z == 0).all(axis=1)
        assert 0 < idle.sum() < N
        again = decider.bound(X, decided).cost_bound
        np.testing.assert_allclose(again[~idle], decided.cost_bound[~idle], atol=1e-7)
        assert (again[idle] == 0).all()
        assert decider.region(X[idle][0]).contains(np.array([8.0, -8.0]))
        other = decider.bound(X[idle], np.tile([1.0, 0.5], (idle.sum(), 1))).cost_bound
        assert (other == (np.inf if support is None else 9 * 1.5)).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_limits_that_the_note_names_close_the_region_and_fewer_do_not(seed: int) -> None:
    rng, names = np.random.default_rng(seed), ["steel", "glass", "wood"]
    X, E = rng.normal(size=(2, N, 3))

    def bounded(limits: list[str]) -> ph.Decisions:
        signs = {"above": -1, "below": 1}
        rows = [(signs[side] * np.eye(3)[names.index(name)]) for name, _, side in map(str.split, limits)]
        problem = ph.DecisionProblem(
            decision=cp.Variable(3),
            cost=lambda z, u: u @ z + 5 * cp.sum_squares(z - [0.3, -0.4, 0.2]),
            n_outcomes=3,
            outcome_names=names,
            outcome_support=(lambda u: [np.array(rows) @ u >= -50]) if rows else None,
        )
        decider = ph.RobustDecider(problem, "ridge", random_state=0).fit(X, X + E)
        return decider.bound(X[:1], mine)

    mine = rng.uniform(-1, 1, size=(1, 3))
    found = bounded([])
    assert np.isposinf(found.cost_bound[0])
    limits = found.detail[0].split("limit ")[1].split(".")[0].split(" and ")
    assert np.isfinite(bounded(limits).cost_bound[0])
    for left_out in limits:
        assert np.isposinf(bounded([limit for limit in limits if limit != left_out]).cost_bound[0])


def test_the_command_line_bounds_what_was_decided_and_what_was_changed(tmp_path: Path) -> None:
    X, Y = sampled()
    rows = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "bread": Y[:, 0], "rolls": Y[:, 1]})
    rows.to_csv(tmp_path / "history.csv", index=False)
    rows[:4].to_csv(tmp_path / "new.csv", index=False)
    problem = 'kind = "newsvendor"\noutcomes = ["bread", "rolls"]\noverage = [1, 1]\nunderage = [3, 2]\n'
    (tmp_path / "problem.toml").write_text(problem)
    model, decided = tmp_path / "m.polyhedge", tmp_path / "decided.csv"
    assert run("fit", tmp_path / "history.csv", "--problem", tmp_path / "problem.toml", "--out", model).exit_code == 0
    assert run("decide", model, tmp_path / "new.csv", "--out", decided).exit_code == 0
    for change, name in ((1.0, "same.csv"), (1.3, "more.csv")):
        frame = pd.read_csv(decided)
        frame.iloc[:, :2] *= change
        frame.to_csv(tmp_path / "mine.csv", index=False)
        given = ("--decisions", tmp_path / "mine.csv", "--out", tmp_path / name)
        done = run("bound", model, tmp_path / "new.csv", *given)
        assert done.exit_code == 0, done.output
    same, more = pd.read_csv(tmp_path / "same.csv"), pd.read_csv(tmp_path / "more.csv")
    np.testing.assert_allclose(same.cost_bound, pd.read_csv(decided).cost_bound, rtol=1e-6)
    assert (more.cost_bound > same.cost_bound).all()
    assert run("bound", model, tmp_path / "new.csv", "--out", "-").exit_code == 2


def test_limits_that_no_outcome_moves_are_kept_everywhere_or_nowhere() -> None:
    normals, mean = np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros(2)
    kept, broken = (region_of_facets(boxed(), normals, np.array([h, 5.0]), mean) for h in (0.0, -1.0))
    assert kept.contains([4.0, 30.0])
    assert not kept.contains([6.0, 30.0])
    assert broken.is_empty
    assert not broken.contains([4.0, 30.0])
