"""The path of policies: bound and uncertain constraints are kept together, whatever the path looks like."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path as FilePath
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.ensemble import RandomForestRegressor
from test_lying_solvers import LIES, lying

import polyhedge as ph
from polyhedge.decisions import all_optimal
from polyhedge.model import promise_of
from polyhedge.planning import MarginPolicy, PolicyReport, fit_path, margin_path
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.margins import MarginPlanner, fit_limits, fit_margins, limits_of
from polyhedge.planning.report import Entry
from polyhedge.planning.residual_distributions import DevelopmentRows, Uniform, fit_distribution
from polyhedge.planning.risk import JointCost, Risk
from polyhedge.predictors.regressor import as_predictor
from polyhedge.problems import DecisionProblem
from polyhedge.regions import MarginPath, PathPolicy, PlannedDecisions
from polyhedge.rows import Rows
from polyhedge.solvers.program import Status

Floats = NDArray[np.float64]


def covering(upper: float = 9.0, **more: Any) -> DecisionProblem:
    """Two amounts whose uncertain contents must suffice; each costs, more or less."""
    return DecisionProblem(
        decision=cp.Variable(2, **{"nonneg": True, **more}),
        cost=lambda z, u: 2 * cp.sum(z) + 0.3 * (u @ z),
        constraints=[],
        uncertain_constraints=lambda z, u: [u @ z >= 3, z[0] + u[1] >= 1.5, z <= upper],
        n_outcomes=2,
        constraint_names=["contents", "first", "room"][:2],
    )


def rows(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 1.5 + 0.3 * np.tanh(X) + (0.15 + 0.1 * (X[:, :1] > 0)) * rng.normal(size=(n, 2))


PROBLEM, TIGHT = covering(), covering(upper=1.3)


HISTORY = rows(110)


@pytest.fixture(scope="module")
def decider() -> ph.RobustDecider:
    own = ph.RobustDecider(PROBLEM, "linear", guarantee="cost", alpha=0.2, random_state=0)
    with pytest.MonkeyPatch.context() as patch:  # a short selection: the choice is looked at elsewhere
        patch.setattr(margin_path, "helpful_distributions", lambda rows, seed: ("scaled",))
        return own.fit(*HISTORY)


def held(problem: DecisionProblem, found: ph.Decisions, Y: Floats) -> NDArray[np.bool_]:
    """Whether each row has a decision that keeps its bound and all constraints."""
    kept, own = np.zeros(len(Y), dtype=bool), np.flatnonzero(np.isfinite(found.flat).all(axis=1))
    kept[own] = problem.evaluate(found.flat[own], Y[own]) <= found.cost_bound[own]
    kept[own] &= (problem.violations(found.flat[own], Y[own]) == 0).all(axis=1)
    return kept


# --- any path, monotone or not ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Wild(PathPolicy):
    """A path whose steps are in no order: bounds and decisions go up and down with the row and the step."""

    n_steps: int = 7
    kind: ClassVar[str] = "wild"
    report: ClassVar[None] = None

    def at(self, features: Any, centers: Floats, values: Floats, work: Any = None) -> WildSteps:
        return WildSteps(np.asarray(features))

    def state(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, eq=False)
class WildSteps:
    X: Floats

    def decide(self, step: int, rows: Any) -> PlannedDecisions:
        x = self.X[rows, 0]
        z = np.column_stack([1.5 + np.sin(5 * step + x), 1.5 + np.cos(3 * step - x)])
        v = 10 + 4 * np.sin(7.0 * step + 3 * x)
        z[(x > 1.5) & (step == 3)] = np.nan
        return PlannedDecisions(z, v, all_optimal(len(x)), (), v)

    def take(self, rows: Any) -> WildSteps:
        return WildSteps(self.X[rows])


WILD = MarginPath(PROBLEM, as_predictor("precomputed", 2), Wild())


def kept_by_hand(x: Floats, y: Floats) -> list[bool]:
    found = []
    for step in range(7):
        planned = WildSteps(x[None]).decide(step, np.array([0]))
        z, v = planned.z[0], planned.v[0]
        if np.isnan(z).any():
            found.append(False)
            continue
        found.append(bool(2 * z.sum() + 0.3 * y @ z <= v and y @ z >= 3 and z[0] + y[1] >= 1.5 and (z <= 9).all()))
    return found


def test_score_is_the_step_from_which_the_promise_is_kept_all_along() -> None:
    X, Y = rows(120, 1)
    X, Y = 2 * X, 2 * Y
    scores, seen = WILD.at(X).scores(Y), set()
    for x, y, score in zip(X, Y, scores, strict=True):
        kept = kept_by_hand(x, y)
        broken = [k for k in range(7) if not kept[k]]
        first = broken[-1] + 1 if broken else 0
        assert score == (first if first < 7 else np.inf)
        seen.add((score < 7, not all(kept[k] <= kept[k + 1] for k in range(6))))
    assert (True, True) in seen  # kept, lost and kept again, and still on the path


def test_promise_is_kept_as_often_as_said_on_a_path_that_is_not_monotone() -> None:
    # 9 calibration rows and alpha = 0.3: the new row scores at most the 7th of them with probability at least 0.7, and
    # exactly 0.7 without ties, so that fewer than by Binomial(150, 0.7) would be a fault. False alarms: 1 in 100 000.
    kept = 0
    for seed in range(150):
        X, Y = rows(10, 1000 + seed)
        X, Y = 2 * X, 2.4 * Y
        placed = WILD.at(X)
        radius = np.sort(placed.scores(Y)[:9])[ph.conformal_rank(9, 0.3) - 1]
        found = placed.take(np.array([9])).decide(np.array([radius]))
        if np.isfinite(radius):
            cost = PROBLEM.evaluate(found.flat, Y[9:])[0]
            kept += bool(cost <= found.cost_bound[0] and (PROBLEM.violations(found.flat, Y[9:]) == 0).all())
        else:
            kept += 1  # nothing is promised of a row that is refused
    assert stats.binom.cdf(kept, 150, 0.7) > 1e-5


def assert_scores_say_where_the_promise_is_kept(family: MarginPath, X: Floats, Y: Floats, scores: Floats) -> None:
    """At every radius: a score is at most the radius just where the promise is kept at its step and at all later."""
    n_steps, placed = family.policy.n_steps, family.at(X)
    kept = np.array([held(family.problem, placed.decide(np.full(len(X), float(k))), Y) for k in range(n_steps)])
    for radius in (0.0, *np.arange(0.5, n_steps + 3, 0.5)):
        step = min(int(radius), n_steps - 1)
        np.testing.assert_array_equal(scores <= radius, kept[step:].all(axis=0))
        decided = held(family.problem, placed.decide(np.full(len(X), radius)), Y)
        np.testing.assert_array_equal(decided, kept[step])


def test_row_whose_radius_is_infinite_is_refused_with_what_to_do() -> None:
    found = WILD.at(rows(3)[0]).decide(np.array([0.0, np.inf, 2.7]))
    assert [status.name for status in found.status] == ["OPTIMAL", "REFUSED", "OPTIMAL"]
    assert np.isnan(found.flat[1]).all()
    assert found.cost_bound[1] == np.inf
    assert "Raise alpha" in found.detail[1]
    np.testing.assert_array_equal(found.flat[2], WILD.at(rows(3)[0]).decide(np.full(3, 2.0)).flat[2])
    # A finite radius beyond the path covers no more outcomes than the last step.
    beyond, last = (WILD.at(rows(3)[0]).decide(np.full(3, radius)) for radius in (99.0, 6.0))
    np.testing.assert_array_equal(beyond.flat, last.flat)
    with pytest.raises(ValueError, match="no region at an infinite radius"):
        WILD.at(rows(3)[0]).region(0, np.inf)


def test_region_holds_the_outcomes_whose_score_is_at_most_the_radius() -> None:
    X, Y = rows(60, 2)
    placed, scores = WILD.at(2 * X), WILD.at(2 * X).scores(2 * Y)
    for i in np.flatnonzero(np.isfinite(scores))[:12]:
        assert placed.region(i, scores[i]).contains(2 * Y[i])
        assert not placed.region(i, scores[i] - 0.5).contains(2 * Y[i])


# --- margins ------------------------------------------------------------------------------------------------


def developed() -> DevelopmentRows:
    X, Y = rows(150, 3)
    return DevelopmentRows(X, 1.5 + 0.3 * np.tanh(X), Y, np.zeros((150, 0)), np.arange(150) % 3)


@cache
def planner_of(problem: DecisionProblem, name: str = "scaled") -> tuple[MarginPlanner, Floats, Floats]:
    samples = developed()
    planner = fit_margins(PlanningProblem(problem), fit_distribution(name, samples, 0), 0.8, samples, 0)
    return planner, samples.X[:6], samples.centers[:6]


def path_of(problem: DecisionProblem) -> tuple[MarginPolicy, Floats, Floats]:
    """A path of few steps without a selection, some rows and their centres."""
    planner, X, centers = planner_of(problem)
    report = PolicyReport((Entry("margins", 3.0, 2.0, 1.0),), 0.2, 0.5, 150, "did best")
    return MarginPolicy(planner, (0.3, 0.8, 1.5, 4.0), (0.5, 1.0, 1.5, 2.0), 0.8, report), X, centers


@pytest.mark.parametrize("margin", [0.5, 1.0, 2.0])
def test_decision_is_the_best_that_keeps_every_tail_with_its_margin(margin: float) -> None:
    # Against the program written out over all points of each constraint.
    planner, X, centers = planner_of(PROBLEM)
    contexts, scales = planner.contexts(X, centers, np.zeros((6, 0)))
    z, status = planner.at(contexts, scales, np.full(6, margin), np.zeros((6, 0)))
    assert set(status) == {ph.Status.OPTIMAL}
    points = fit_limits(PROBLEM, planner.distribution, developed(), 0)[1]
    assert (np.ptp(scales, axis=0) > 0).all()
    for i in range(2):
        U = [contexts[i] + margin * size * own for size, own in zip(scales[i, 1:], points, strict=True)]
        x, tails = cp.Variable(2, nonneg=True), cp.Variable(2)
        losses = [3 - U[0] @ x, 1.5 - x[0] - U[1][:, 1]]
        n = len(U[0])
        limits = [tails[k] + cp.sum(cp.pos(one - tails[k])) / (0.2 * n) <= 0 for k, one in enumerate(losses)]
        best = cp.Problem(cp.Minimize(2 * cp.sum(x) + 0.3 * contexts[i] @ x), [*limits, x <= 9])
        best.solve()
        cost = float(2 * z[i].sum() + 0.3 * contexts[i] @ z[i])
        assert cost == pytest.approx(best.value, rel=2e-3)


def test_margins_of_coupled_sums_are_the_same_in_decimal_units() -> None:
    # Products with the same prices share a scarce budget: many decisions are equally good.
    rng, nothing = np.random.default_rng(0), np.zeros((40, 0))
    points, centers = rng.normal(size=(60, 3)), 10 + rng.normal(size=(40, 3))

    def planned(outcome: float, decision: float) -> Floats:
        z = cp.Variable(3, nonneg=True)
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum(cp.maximum(z / decision - u / outcome, 3 * (u / outcome - z / decision))),
            constraints=[cp.sum(z) <= 33 * decision, z[0] + 2 * z[1] <= 30 * decision],
            n_outcomes=3,
            uncertain_constraints=lambda z, u: [cp.sum(z / decision) >= cp.sum(u / outcome) - 6],
        )
        distribution, X = Uniform(points * outcome), np.zeros((40, 1))
        samples = DevelopmentRows(X, centers * outcome, centers * outcome, nothing, np.arange(40))
        planner = fit_margins(PlanningProblem(problem), distribution, 0.8, samples, 0)
        contexts, scales = planner.contexts(X, centers * outcome, nothing)
        return np.asarray(planner.at(contexts, scales, np.full(40, 0.5), nothing)[0] / decision)

    usual = planned(1.0, 1.0)
    for units in ((10.0, 1.0), (0.01, 0.01), (1e5, 1e-6)):
        np.testing.assert_allclose(planned(*units), usual, rtol=0, atol=1e-8)


def test_cuts_bound_the_tail_at_rows_and_margins_that_they_were_not_found_at() -> None:
    planner, _, _ = planner_of(PROBLEM)
    rng = np.random.default_rng(0)
    total = JointCost(limits_of(PROBLEM)[0], fit_limits(PROBLEM, planner.distribution, developed(), 0)[1][0])
    own = planner.limits.take(np.flatnonzero(planner.limits.term == 0))
    for _ in range(20):
        z, context, margin = rng.uniform(0, 3, 2), rng.normal(size=2) + 1.5, rng.uniform(0, 4)
        tail = total.cuts(z[None], context[None], np.array([margin]), Risk(0.8))[0][0][0]
        assert (own.at(context, margin) @ [1, *z]).max() <= tail + 1e-9


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_more_margin_than_there_is_room_for_gives_the_most_cautious_decision(order: tuple[int, ...]) -> None:
    # Whatever was asked for before: what a row decides at a step depends on nothing else.
    path, _, _ = path_of(TIGHT)
    X = np.random.default_rng(1).normal(size=(14, 2))
    centers, everyone, values = 1.5 + 0.3 * np.tanh(X), np.arange(14), np.zeros((14, 0))
    steps = path.at(X, centers, values)
    found = {k: steps.decide(k, everyone) for k in order}
    alone = [path.planner.at(steps.contexts, steps.scales, np.full(14, t), values)[0] for t in path.margins]
    has_own = np.array([np.isfinite(z).all(axis=1) for z in alone])
    assert 0 < has_own[2].sum() < 14
    assert has_own[0].any()
    for k, i in product(range(4), everyone):
        own = np.flatnonzero(has_own[: k + 1, i])
        np.testing.assert_array_equal(found[k].z[i], alone[own[-1]][i] if len(own) else np.full(2, np.nan))
        assert found[k].status[i] is (ph.Status.OPTIMAL if len(own) else ph.Status.REFUSED)
    again = path.at(X[[4]], centers[[4]], values[[4]]).decide(3, np.array([0]))
    np.testing.assert_array_equal(again.z[0], found[3].z[4])


def test_row_without_any_plan_scores_infinity_and_is_refused_later() -> None:
    path, _, _ = path_of(PROBLEM)
    family = MarginPath(PROBLEM, as_predictor("precomputed", 2), path)
    placed = family.at(np.array([[1.5, 1.5], [-0.5, -0.5]]))  # contents below zero: no amount suffices
    assert np.isfinite(placed.scores(np.full((2, 2), 1.6))).tolist() == [True, False]
    found = placed.decide(np.full(2, 3.0))
    assert [status.name for status in found.status] == ["OPTIMAL", "REFUSED"]
    assert np.isnan(found.cost_bound[1])
    assert "No decision keeps the uncertain constraints" in found.detail[1]
    with pytest.raises(ValueError, match="has no volume"):
        placed.volume(np.zeros(2))


def test_decision_is_called_optimal_only_where_no_lie_of_a_solver_can_have_spoiled_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, X, centers = path_of(PROBLEM)
    family, everyone, values = MarginPath(PROBLEM, as_predictor("precomputed", 2), path), np.arange(3), np.zeros((3, 0))
    X, centers = X[:3], centers[:3]
    honest = path.at(X, centers, values).decide(2, everyone)
    assert set(honest.status) == {ph.Status.OPTIMAL}
    for lie in LIES:
        with lying(monkeypatch, "both", lie):
            found = path.at(X, centers, values).decide(2, everyone)
            decided = family.at(centers).decide(np.full(3, 2.0))
        is_optimal = np.array([status is ph.Status.OPTIMAL for status in found.status])
        np.testing.assert_allclose(found.expected[is_optimal], honest.expected[is_optimal], atol=1e-4, err_msg=lie)
        assert ph.Status.REFUSED not in set(found.status), lie
        assert (decided.gap[~decided.is_optimal] > 0).all(), lie


def test_margins_follow_the_error_of_each_constraint_keep_their_promise_and_cost_no_more_than_by_hand() -> None:
    # The error of each outcome has a size of its own, so that no one spread of a row serves both.
    prices, rng, n = np.array([3.0, 2.0]), np.random.default_rng(0), 200
    problem = DecisionProblem(
        decision=cp.Variable(2, nonneg=True),
        cost=lambda z, u: prices @ z,
        uncertain_constraints=lambda z, u: [z >= u],
        n_outcomes=2,
    )
    centers = 20 + 5 * rng.uniform(-1, 1, size=(3, n, 2))
    Y = centers + np.where(centers > 22, 5.0, 0.5) * rng.normal(size=centers.shape)
    made = DevelopmentRows(centers[0], centers[0], Y[0], np.zeros((n, 0)), np.arange(n) % 5)
    family = MarginPath(problem, as_predictor("precomputed", 2), fit_path(problem, made, 0.1, 0.5, 0))
    scores, fresh = (family.at(centers[k]).scores(Y[k]) for k in (1, 2))
    # Given the scores, as many fresh rows keep their promise as by the beta-binomial law, or more: scores are tied.
    # False alarms: 1 in 100 000.
    rank = ph.conformal_rank(n, 0.1)
    kept = int((fresh <= np.sort(scores)[rank - 1]).sum())
    assert stats.betabinom(n, rank, n + 1 - rank).cdf(kept) > 1e-5
    # By hand: the forecast plus k times a forest of the error's size. Both cover the same share of the fresh rows.
    forest = RandomForestRegressor(min_samples_leaf=10, random_state=0).fit(centers[0], np.abs(Y[0] - centers[0]))
    sizes = forest.predict(centers[2])
    k = np.sort(((Y[2] - centers[2]) / sizes).max(axis=1))[rank - 1]
    by_hand = (np.maximum(centers[2] + k * sizes, 0) @ prices).mean()
    assert family.at(centers[2]).decide(np.full(n, np.sort(fresh)[rank - 1])).cost_bound.mean() < 1.05 * by_hand


# --- the decider --------------------------------------------------------------------------------------------


def test_calibration_rows_score_what_a_decision_at_their_radius_keeps(decider: ph.RobustDecider) -> None:
    model, (X, Y) = decider.model_, HISTORY
    split, scores = model.record.split, model.radii.scores
    own = split.calibrate
    np.testing.assert_array_equal(model.scores(Rows(X[own], Y[own])), scores)
    some = np.argsort(scores)[::3]
    assert len(np.unique(scores[some])) > 2
    assert_scores_say_where_the_promise_is_kept(model.family, X[own][some], Y[own][some], scores[some])
    # What is decided is the policy of the step of the radius, to the last bit, and as many rows keep it as were asked.
    found, step = model.decide(X[own]), model.family.at(X[own][::-1]).decide(np.full(len(own), model.radii.radius))
    np.testing.assert_array_equal(found.flat, step.flat[::-1])
    np.testing.assert_array_equal(found.cost_bound, step.cost_bound[::-1])
    assert held(PROBLEM, found, Y[own]).sum() >= ph.conformal_rank(len(own), 0.2)


def test_what_held_is_measured_as_it_is_promised(decider: ph.RobustDecider) -> None:
    X, Y = rows(24, 6)
    measured = decider.measure(X, Y)
    np.testing.assert_array_equal(measured.promise_held, held(PROBLEM, decider.decide(X), Y))
    assert measured.promise_held[measured.inside].all()


def test_model_decides_the_same_after_a_file(decider: ph.RobustDecider, tmp_path: FilePath) -> None:
    X, Y = rows(12, 7)
    decider.save(tmp_path / "model.polyhedge")
    read, expected = ph.load(tmp_path / "model.polyhedge"), decider.decide(X)
    assert read.guarantee == "cost"
    assert "all uncertain constraints hold" in str(ph.inspect_model(tmp_path / "model.polyhedge"))
    found = read.decide(X)
    np.testing.assert_array_equal(found.flat, expected.flat)
    np.testing.assert_array_equal(found.cost_bound, expected.cost_bound)
    np.testing.assert_array_equal(read.model_.scores(Rows(X, Y)), decider.model_.scores(Rows(X, Y)))
    assert read.policy_.why() == decider.policy_.why()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"margins": (), "spreads": ()}, "margin and spread for each step"),
        ({"margins": (-1.0,) * 27}, "margin and spread for each step"),
        ({"level": 1.5}, "margin and spread for each step"),
    ],
)
def test_path_that_no_fit_can_have_made_is_refused(decider: ph.RobustDecider, change: Any, said: str) -> None:
    policy: Any = decider.model_.family.policy
    with pytest.raises(ValueError, match=said):
        replace(policy, **change)


def test_words_promise_bound_and_constraints(decider: ph.RobustDecider) -> None:
    assert "all uncertain constraints hold" in promise_of(decider.model_)[0]
    assert "keeps all uncertain constraints" in decider.summary()
    assert "won cross-validation" in decider.policy_.why()
    assert np.isfinite([row["bound"] for row in decider.frontier()]).all()
    with pytest.raises(AttributeError, match='guarantee="outcome"'):
        _ = decider.set_


@pytest.mark.slow
def test_parameters_of_the_problem_move_the_plan() -> None:
    need, z = cp.Parameter(name="need", nonneg=True), cp.Variable(2, nonneg=True)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: 2 * cp.sum(z),
        constraints=[z <= 30],
        uncertain_constraints=lambda z, u: [u @ z >= need],
        n_outcomes=2,
    )
    X, Y = rows(90, 13)
    needs = np.random.default_rng(0).uniform(2, 4, 90).round(1)
    given = {"need": needs}
    found = ph.RobustDecider(problem, guarantee="cost", alpha=0.2, random_state=0).fit(X, Y, parameters=given)
    twice = found.decide(X[[0, 0]], parameters={"need": np.array([2.0, 4.0])})
    assert twice.cost_bound[1] > 1.5 * twice.cost_bound[0]


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (1.0, "No decision keeps the uncertain constraints with a margin"),
        (1.6, "no policy keeps bound and uncertain constraints together"),
    ],
)
def test_constraints_that_no_plan_keeps_are_told_as_such(
    most: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        margin_path, "helpful_distributions", lambda rows, seed: ("scaled",)
    )  # a short selection, as above
    z = cp.Variable(2, nonneg=True)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z),
        constraints=[z <= most],
        uncertain_constraints=lambda z, u: [cp.sum(z) >= u[0]],
        n_outcomes=2,
    )
    # The prediction can be met, and much of what comes cannot.
    Y = np.random.default_rng(0).normal(1.9, 2.0, size=(120, 2))
    with pytest.raises(ValueError, match=said):
        ph.RobustDecider(problem, "precomputed", alpha=0.2, random_state=0).fit(np.full((120, 2), 1.9), Y)


def test_cost_without_pieces_says_what_to_do_instead() -> None:
    z = cp.Variable(1, nonneg=True)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum_squares(z - u),
        constraints=[z <= 9],
        uncertain_constraints=lambda z, u: [z >= u],
        n_outcomes=1,
    )
    X, Y = rows(80)
    with pytest.raises(ValueError, match='Use guarantee="outcome"'):
        ph.RobustDecider(problem, guarantee="cost", random_state=0).fit(X, Y[:, :1])


def test_refreshed_path_keeps_its_margins_and_is_calibrated_anew(decider: ph.RobustDecider) -> None:
    old, new = decider.model_, deepcopy(decider).refresh(*rows(120, 15)).model_
    assert isinstance(new.family, MarginPath)
    assert (new.family.policy.margins, new.family.policy.spreads) == (
        old.family.policy.margins,
        old.family.policy.spreads,
    )
    assert len(new.family.policy.planner.distribution.points) == new.radii.n == 60


def test_bound_grows_along_the_path_where_costs_are_skewed() -> None:
    # Of a cost that is mostly zero, six tenths lie below the mean; still the last step must bound nearly all of it.
    problem = DecisionProblem(
        decision=cp.Variable(1, nonneg=True),
        cost=lambda z, u: z[0] + 50 * cp.pos(u[0] - 1),
        uncertain_constraints=lambda z, u: [z[0] >= u[1]],
        n_outcomes=2,
    )
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(150, 2)), np.column_stack([rng.gamma(1.0, 1.0, 150), rng.normal(2, 0.3, 150)])
    samples = DevelopmentRows(X, np.tile(Y.mean(axis=0), (150, 1)), Y, np.zeros((150, 0)), np.arange(150) % 3)
    planner = fit_margins(PlanningProblem(problem), fit_distribution("uniform", samples, 0), 0.6, samples, 0)
    path = MarginPolicy(planner, (0.5, 2.0), (1.0, 9.0), 0.6, PolicyReport((), 0.2, 0.5, 1))
    placed = MarginPath(problem, as_predictor("precomputed", 2), path).at(samples.centers)
    assert np.isfinite(placed.scores(Y)).mean() > 0.9


def test_margins_of_a_program_whose_limits_alone_move_are_decided_together_as_they_are_one_by_one() -> None:
    problem = DecisionProblem(
        decision=cp.Variable(3, nonneg=True),
        cost=lambda z, u: np.array([3.0, 2.0, 2.0]) @ z + 0.1 * cp.pos(u[0] - z[1]),
        constraints=[],
        uncertain_constraints=lambda z, u: [z[0] + z[1] >= u[0], z[0] + z[2] >= u[1], z <= 1.5],
        n_outcomes=2,
    )
    planner, X, centers = planner_of(problem)
    margins, none = np.linspace(0, 6, len(X)), np.zeros((len(X), 0))
    contexts, scales = planner.contexts(X, centers, none)
    assert planner._corners is not None
    z, status = planner.at(contexts, scales, margins, none)
    one_by_one = planner._part(contexts, scales, margins, none)
    assert [one for _, one in one_by_one] == status.tolist()
    assert {Status.OPTIMAL, Status.INFEASIBLE} == set(status)
    np.testing.assert_allclose(z, [one for one, _ in one_by_one], atol=1e-8)
