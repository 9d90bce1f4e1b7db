"""Rules of policies that share no short way: tails of sums of maxima, and worst cases over a learned set."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.planning import policy_from, worst_case
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.cutting import Effort, search_cuts
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.programs import with_cuts
from polyhedge.planning.residual_distributions import DevelopmentRows, ResidualDistribution
from polyhedge.planning.risk import JointCost, Risk
from polyhedge.planning.selection import Selection, candidates, complexity
from polyhedge.planning.worst_case import WorstCost, learned_set, takes_sets
from polyhedge.problems import DecisionProblem, newsvendor, simplex_linear
from polyhedge.robust import Adversary

OVER_SET = Rule("uniform", Risk(0.9), is_over_set=True)


def shop(d: int = 3) -> DecisionProblem:
    """Orders under two constraints: what is left over and what is short do not fall apart."""
    z = cp.Variable(d, nonneg=True)
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z)),
        constraints=[cp.sum(z) <= 3 * d, z[0] + 2 * z[1] <= 6, z <= 20],
        n_outcomes=d,
    )


def plants() -> DecisionProblem:
    """Whole decisions, and a sum of two shortages."""
    on, power = cp.Variable(2, boolean=True), cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision={"on": on, "power": power},
        cost=lambda z, u: cp.sum(z["on"]) + cp.sum(z["power"]) + 9 * cp.sum(cp.pos(u - z["power"])),
        constraints=[power <= 5 * on, cp.sum(power) <= 7],
        n_outcomes=2,
    )


def one_plant() -> DecisionProblem:
    """Whole decisions, and one maximum that couples all of them."""
    on, power = cp.Variable(2, boolean=True), cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision={"on": on, "power": power},
        cost=lambda z, u: cp.sum(z["on"]) + 9 * cp.pos(cp.sum(u) - cp.sum(z["power"])),
        constraints=[power <= 5 * on],
        n_outcomes=2,
    )


def sample(d: int, n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals that go together, predictions, and no parameters."""
    rng = np.random.default_rng(seed)
    residuals = rng.standard_t(5, size=(n, d)) @ (np.eye(d) + 0.4 * rng.normal(size=(d, d)))
    return residuals, 3 + 1.5 * rng.normal(size=(n, d)), np.zeros((n, 0))


def tail(problem: DecisionProblem, z, center, residuals, level: float) -> float:
    """CVaR of the cost of a decision, by its definition."""
    costs = np.sort(problem.evaluate(np.tile(z, (len(residuals), 1)), center + residuals))
    k = round((1 - level) * len(costs))
    return float(costs[-k:].mean())


def least_tail(center, residuals, level: float) -> float:
    """The least CVaR in the shop: all residuals in one program, by Rockafellar and Uryasev."""
    z, at, u = cp.Variable(residuals.shape[1], nonneg=True), cp.Variable(), center + residuals
    z_rows = cp.vstack([z] * len(u))
    costs = cp.sum(cp.pos(z_rows - u), axis=1) + 3 * cp.sum(cp.pos(u - z_rows), axis=1)
    over = cp.sum(cp.pos(costs - at)) / ((1 - level) * len(u))
    limits = [cp.sum(z) <= 3 * residuals.shape[1], z[0] + 2 * z[1] <= 6, z <= 20]
    return float(cp.Problem(cp.Minimize(at + over), limits).solve(solver=cp.HIGHS))


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_tail_of_a_sum_is_as_low_as_all_residuals_in_one_program_make_it(level):
    residuals, centers, nothing = sample(3)
    problem, distribution = shop(), ResidualDistribution("uniform", residuals)
    planner = fit_planner(PlanProblem(problem), Rule("uniform", Risk(level)), distribution, centers, centers, nothing)
    z = planner(centers[:6], centers[:6], nothing[:6])
    reached = [tail(problem, one, c, residuals, level) for one, c in zip(z, centers[:6], strict=True)]
    least = [least_tail(c, residuals, level) for c in centers[:6]]
    deviation = problem.evaluate(np.tile(z[0], (len(residuals), 1)), centers[0] + residuals).std()
    assert np.all(np.array(reached) >= np.array(least) - 1e-6)
    assert np.all(np.array(reached) <= np.array(least) + 2e-3 * deviation)


def test_half_way_cuts_need_fewer_rounds_than_cuts_at_the_decisions():
    residuals, centers, nothing = sample(6)
    problem, few = PlanProblem(shop(6)), slice(10)
    distribution = ResidualDistribution("uniform", residuals)
    cost, rule = JointCost(problem.joint, residuals), Rule("uniform", Risk(0.7))
    rows = centers[few], np.ones(10)
    asked = {}
    for name, alone in {"inner": lambda z, own: problem.alone(z, nothing[own]), "outer": None}.items():
        rounds = []

        def decided(cuts, own, rounds=rounds):
            rounds.append(len(own))
            planner = ph.planning.policies.Planner(problem, rule, distribution, cuts, is_steady=False)
            return planner.at(
                ph.planning.residual_distributions.PlacedDistribution(centers[own], np.ones(len(own))),
                nothing[own],
                n_jobs=1,
            )

        first = ph.planning.cutting.first_cuts(problem, cost, rule.risk, *rows)
        search_cuts(cost, rule.risk, rows, first, Effort(10, 60, 1e-3), decided, alone)
        asked[name] = sum(rounds)
    assert asked["inner"] < asked["outer"]


SETS = {
    "segment": (lambda: simplex_linear([0.0, 0.1]), 2),
    "simplex": (lambda: simplex_linear(np.zeros(5)), 5),
    "whole decisions": (plants, 2),
}


@pytest.mark.parametrize("name", SETS)
def test_decisions_over_a_learned_set_are_its_robust_decisions(name):
    problem, d = SETS[name][0](), SETS[name][1]
    residuals, centers, nothing = sample(d, n=120)
    distribution, some = ResidualDistribution("uniform", residuals), slice(15)
    z = fit_planner(PlanProblem(problem), OVER_SET, distribution, centers, centers, nothing)(
        centers[some], centers[some], nothing[some]
    )
    shape = learned_set(problem, residuals, centers, 0.9)
    best = ph.robust.decide(problem, shape, 0.0, centers[some]).cost_bound
    reached = [Adversary(problem, shape, 0.0, c).worst_case(one).value for one, c in zip(z, centers[some], strict=True)]
    assert np.allclose(reached, best, atol=1e-3 * residuals.std())


def test_a_learned_set_covers_the_share_that_was_asked_for():
    residuals, centers, _ = sample(2, n=150)
    shape = learned_set(simplex_linear([0.0, 0.0]), residuals, centers, 0.8)
    assert 0.8 <= shape.contains(residuals, 1e-9).mean() <= 0.83


@pytest.mark.parametrize("n", [7, 11, 42])  # 1 / (n + 1) is no short decimal, and rounding it down asks for one more
def test_of_few_residuals_a_set_covers_all(n):
    residuals, centers, _ = sample(2, n=n)
    shape = learned_set(simplex_linear([0.0, 0.0]), residuals, centers, 0.999)
    assert shape.contains(residuals, 1e-9).all()


@pytest.mark.parametrize("d", [2, 4])
def test_cuts_of_a_worst_case_touch_it_and_bound_it_everywhere(d):
    rng = np.random.default_rng(3)
    residuals, centers, _ = sample(d)
    problem = simplex_linear(np.zeros(d))
    cost = WorstCost(JointCost(PlanProblem(problem).joint, residuals), learned_set(problem, residuals, centers, 0.9))
    z, scales = rng.dirichlet(np.ones(d), size=20), rng.uniform(0.5, 2.0, size=20)
    [(values, cuts)] = cost.cuts(z, centers[:20], scales, Risk(0.9))
    known = np.array(
        [cuts.at(c, s)[:, 0] + cuts.at(c, s)[:, 1:] @ one for one, c, s in zip(z, centers[:20], scales, strict=True)]
    )
    assert np.allclose(np.diag(known), values)
    assert (known <= values[:, None] + 1e-9).all()


def tails_of(problem: DecisionProblem) -> set[tuple[str | None, float]]:
    """Distributions and levels of the tails that compete."""
    rules = candidates(PlanProblem(problem), 0.1)
    return {(rule.distribution, rule.risk.level) for rule in rules if not rule.risk.is_mean and not rule.is_over_set}


def test_which_rules_compete():
    assert tails_of(shop()) == {(distribution, level) for distribution in ("scaled", "uniform") for level in (0.5, 0.7)}
    assert ("corrected", 0.7) in tails_of(one_plant())
    assert not tails_of(plants())  # whole decisions, each row a search with all cuts
    assert OVER_SET in candidates(PlanProblem(simplex_linear([0.0, 0.0, 0.0])), 0.1)
    assert complexity(OVER_SET) > complexity(Rule("uniform", Risk(0.9)))


def test_sets_take_part_where_they_are_quickly_learned():
    price, z = cp.Parameter(2, nonneg=True, name="price"), cp.Variable(2, nonneg=True)
    priced = DecisionProblem(
        decision=z, cost=lambda z, u: u @ z + price @ z, constraints=[cp.sum(z) == 1], n_outcomes=2
    )
    many = shop(4)  # sixteen pieces
    assert takes_sets(PlanProblem(plants()))
    assert not any(takes_sets(PlanProblem(one)) for one in (newsvendor(1.0, 2.0, 3), priced, many))


def test_a_rule_without_a_set_is_not_judged(monkeypatch):
    monkeypatch.setattr(ph.planning.policies, "learned_set", lambda *_: None)
    residuals, centers, nothing = sample(2)
    rows = DevelopmentRows(centers, centers, centers + residuals, nothing, np.arange(80) % 4)
    selection = Selection(PlanProblem(simplex_linear([0.0, 0.0])), rows, [Rule(), OVER_SET], 0.8, seed=0)
    assert [one[0].rule for one in selection.scored] == [Rule()]


def test_a_set_that_all_rows_do_not_give_is_left_out_of_the_plan(monkeypatch):
    residuals, centers, nothing = sample(2)
    rows = DevelopmentRows(centers, centers, centers + residuals, nothing, np.arange(80) % 4)
    problem, whole = simplex_linear([0.0, 0.0]), ph.planning.policies.learned_set
    monkeypatch.setattr(ph.planning.planned, "candidates", lambda *_: [OVER_SET])
    monkeypatch.setattr(
        ph.planning.policies,
        "learned_set",
        lambda of, points, *at: None if len(points) == 80 else whole(of, points, *at),
    )
    policy = ph.planning.fit_policy(problem, rows, 0.1, 0.5, seed=0)
    assert [planner.rule for planner in policy.planners] == [Rule()]
    assert np.isfinite(policy.decide(centers, centers, nothing).z).all()


def test_no_set_is_learned_where_every_worst_case_is_infinite(monkeypatch):
    def refuse(*_, **__):
        raise ph.problems.NoSolutionError("no starting set gives a finite worst case")

    monkeypatch.setattr(worst_case, "_LEARNER", type("Refusing", (), {"learn": staticmethod(refuse)}))
    residuals, centers, _ = sample(2)
    assert learned_set(simplex_linear([0.0, 0.0]), residuals, centers, 0.9) is None


@pytest.fixture(scope="module")
def decided():
    """The shop's decider, its fresh rows and how it decides them."""
    residuals, centers, _ = sample(3, n=400)
    decider = ph.RobustDecider(shop(), None, random_state=0).fit(centers[:300], centers[:300] + residuals[:300])
    return decider, centers[300:], centers[300:] + residuals[300:]


def test_tails_of_sums_are_judged_and_named(decided):
    decider, X, Y = decided
    assert "uniform residuals, CVaR 0.7" in {entry.rule for entry in decider.policy_.entries}
    D = decider.decide(X)
    costs = decider.problem.evaluate(D.z, Y)
    # A bound from 60 rows with a mean coverage of .9 covers fewer than 72 of 100 others less than once in 700 draws.
    assert (costs <= D.cost_bound).sum() >= 72


def test_a_file_keeps_tails_of_sums(decided, tmp_path):
    decider, X, _ = decided
    decider.save(tmp_path / "shop.polyhedge")
    again = ph.load(tmp_path / "shop.polyhedge").decide(X)
    assert (again.flat == decider.decide(X).flat).all()


def test_a_file_may_not_put_a_set_where_none_takes_part():
    problem, (residuals, centers, nothing) = newsvendor(1.0, 2.0, 3), sample(3)
    rows = DevelopmentRows(centers, centers, centers + residuals, nothing, np.arange(80) % 4)
    policy = ph.planning.fit_policy(problem, rows, 0.1, 0.5, seed=0)
    state = {**policy.state()}
    state["planners"] = [{**one, "is_over_set": True} for one in state["planners"]]
    with pytest.raises(ValueError, match="over a set of a distribution of equal weights"):
        policy_from(problem, state)


def test_slopes_that_rounding_left_of_nothing_are_none():
    program, columns = shop().feasible.program, shop().feasible.z_columns
    slopes = np.array([[1.0, -3.0, 1.0], [2e-16, -4e-16, 1e-16], [1e-3, 0.0, 1.0]])
    whole = with_cuts(program, columns, slopes, np.zeros(3), np.zeros(3, dtype=np.int64))
    seen = whole.A.toarray()[-3:, columns]
    assert (seen[1] == 0).all()
    assert (seen[[0, 2]] == slopes[[0, 2]]).all()
