"""Mean cost and CVaR: how often the bounds fail on laws with heavy tails, ties and few rows, and what they cost."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import polyhedge as ph
from polyhedge.calibration import CVaR, Mean, conformal_radius
from polyhedge.calibration.mean_cost import mean_bound, risk_radius
from polyhedge.decisions import Decisions, all_optimal, tail_mean
from polyhedge.regions.largest_cost import largest_excess
from polyhedge.rows import Rows
from shared import round_trip, run

N_CALIBRATIONS, DELTA, LEVEL = 300, 0.1, 0.2
FALSE_ALARM = 1e-4
MOST = stats.binom(N_CALIBRATIONS, DELTA).ppf(1 - FALSE_ALARM)
"""Failures of 300 that a promise with delta has at most, but for one test in 10 000."""


class Law:
    """A law of scores that are at most `largest`, with its mean, losses beyond r, and CVaR."""

    def __init__(self, name: str) -> None:
        self.largest = {"heavy tails": 60.0, "ties": 10.0, "shifted": 3.0}[name]
        grid = (np.arange(400_000) + 0.5) / 400_000
        quantiles = {
            "heavy tails": lambda p: np.minimum((1 - p) ** (-1 / 1.5), 60.0),
            "ties": lambda p: np.where(p > 0.97, 10.0, np.where(p > 0.5, 1.0, 0.0)),
            "shifted": lambda p: 3.0 - np.minimum(-np.log1p(-p), 40.0),
        }
        self.quantile = quantiles[name]
        self.values = self.quantile(grid)
        self.mean, self.cvar = float(self.values.mean()), tail_mean(self.values, LEVEL)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(self.quantile(rng.uniform(size=n)))

    def losses(self, radii: np.ndarray) -> np.ndarray:
        """E (S - r)+ for each r, by sums over the sorted law."""
        ordered = np.sort(self.values)
        above = np.append(np.cumsum(ordered[::-1])[::-1], 0.0)
        first = np.searchsorted(ordered, radii)
        return (above[first] - (len(ordered) - first) * radii) / len(ordered)


LAWS = {name: Law(name) for name in ("heavy tails", "ties", "shifted")}
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def failures_of_mean(law: Law, n: int) -> int:
    rng = np.random.default_rng(0)
    bounds = [
        Mean(DELTA, law.largest).calibrate(law.draw(rng, n), Rows(np.zeros((n, 0))), 0.1).mean_radius
        for _ in range(N_CALIBRATIONS)
    ]
    return int((np.array(bounds) < law.mean).sum())


def check(n_failures: int) -> None:
    assert n_failures <= MOST, "failed too often"


@pytest.mark.parametrize("n", [20, 150])
@every_law
def test_bound_on_the_mean_fails_in_no_more_than_a_share_delta_of_calibrations(law: Law, n: int) -> None:
    check(failures_of_mean(law, n))


def test_bound_by_a_normal_law_breaks_the_promise_and_the_test_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_normal(scores: np.ndarray, largest: float, delta: float) -> float:
        return float(scores.mean() + stats.norm.isf(delta) * scores.std(ddof=1) / np.sqrt(len(scores)))

    monkeypatch.setattr("polyhedge.calibration.mean_cost.mean_bound", by_normal)
    with pytest.raises(AssertionError, match="failed too often"):
        check(failures_of_mean(LAWS["ties"], 20))


@pytest.mark.parametrize("n", [10, 60])
@every_law
def test_losses_beyond_the_radius_are_what_risk_control_promises(law: Law, n: int) -> None:
    """3000 calibrations: the mean loss is at most the level asked for, and little below; four standard errors."""
    check_losses(law, n, mean_losses(law, n, law.largest))


def mean_losses(law: Law, n: int, largest: float) -> np.ndarray:
    rng = np.random.default_rng(1)
    asked = asked_of(law, n)
    return law.losses(np.array([risk_radius(law.draw(rng, n), largest, asked) for _ in range(10 * N_CALIBRATIONS)]))


def asked_of(law: Law, n: int) -> float:
    return 0.5 * float(law.losses(np.array([law.mean]))[0]) + law.largest / (n + 1)


def check_losses(law: Law, n: int, losses: np.ndarray) -> None:
    error = 4 * losses.std() / np.sqrt(len(losses))
    assert losses.mean() <= asked_of(law, n) + error, "lost too much"
    assert losses.mean() >= asked_of(law, n) - 2 * (law.largest + 10) / (n + 1) - error


def test_risk_control_without_the_largest_score_breaks_the_promise_and_the_test_sees_it() -> None:
    law = LAWS["heavy tails"]
    rng, asked = np.random.default_rng(1), 0.5 * float(LAWS["heavy tails"].losses(np.array([law.mean]))[0])
    without = []
    for _ in range(10 * N_CALIBRATIONS):
        scores = law.draw(rng, 10)
        without.append(risk_radius(scores[1:], scores[0], asked))  # the mean over the rows themselves
    losses = law.losses(np.array(without))
    with pytest.raises(AssertionError, match="lost too much"):
        assert losses.mean() <= asked + 4 * losses.std() / np.sqrt(len(losses)), "lost too much"


@pytest.mark.parametrize("n", [40, 200])
@every_law
def test_cvar_is_at_most_its_bound_in_the_mean_and_with_delta_nearly_always(law: Law, n: int) -> None:
    rng, given = np.random.default_rng(2), Rows(np.zeros((n, 0)))
    drawn = [law.draw(rng, n) for _ in range(N_CALIBRATIONS)]
    bounds = np.array([CVaR(LEVEL, law.largest).calibrate(own, given, 0.1).mean_radius for own in drawn])
    assert bounds.mean() >= law.cvar - 4 * bounds.std() / np.sqrt(N_CALIBRATIONS)
    surer = [CVaR(LEVEL, law.largest, DELTA).calibrate(own, given, 0.1).mean_radius for own in drawn]
    check(int((np.array(surer) < law.cvar).sum()))
    assert max(bounds.max(), *surer) <= law.largest


def test_with_a_thousand_rows_bounds_are_within_a_tenth_of_the_truth() -> None:
    rng, given = np.random.default_rng(3), Rows(np.zeros((1000, 0)))
    mean, cvar = 1.0, 1 + np.log(10)  # of the exponential law, cut at 20
    drawn = [np.minimum(rng.exponential(size=1000), 20) for _ in range(60)]
    means = [Mean(0.05, 20.0).calibrate(own, given, 0.1).mean_radius for own in drawn]
    tails = [CVaR(0.1, 20.0).calibrate(own, given, 0.1).mean_radius for own in drawn]
    assert mean < np.mean(means) < 1.1 * mean
    assert cvar < np.mean(tails) < 1.1 * cvar


def test_mean_bound_is_the_edge_of_the_means_that_no_bet_refutes() -> None:
    scores = np.random.default_rng(0).uniform(size=80)
    low = 1.5 - mean_bound(scores, 1.5, 0.1)
    Z, n = 1.5 - scores, len(scores)

    def wealth(m: float) -> float:
        worth, most = 1.0, 1.0
        for t in range(n):
            bet = min(np.sqrt(2 * np.log(10) / (n * np.var(Z[:t]))) if t > 1 else 0.0, 0.75 / m)
            bet = 0.75 / m if t == 1 else bet  # one row has no variance
            worth *= 1 + bet * (Z[t] - m)
            most = max(most, worth)
        return most

    assert wealth(low - 1e-6) >= 10 > wealth(low + 1e-6)


def check_tables(calibration: CVaR | Mean) -> None:
    """The mean cost of the worst rows of a table is at most its bound in the mean over 300 models and tables.

    Rows differ in what they are planned to cost far more than in what they cost beyond it, so that the highest plans
    matter. 30 times in a million the mean lies further off than four standard errors.
    """
    rng, law, n = np.random.default_rng(0), LAWS["heavy tails"], 40
    layout = ph.problems.newsvendor([1.0], [3.0]).layout
    left = []
    for _ in range(N_CALIBRATIONS):
        radii = calibration.calibrate(law.draw(rng, 100), Rows(np.zeros((100, 0))), 0.1)
        planned = 20 * np.exp(rng.normal(size=n))
        shape = {"flat": np.zeros((n, 1)), "worst_outcome": np.zeros((n, 1)), "gap": np.zeros(n), "layout": layout}
        given = {"status": all_optimal(n), "radii": np.full(n, radii.radius), "risk": radii.risk}
        decisions = Decisions(cost_bound=planned + radii.radius, **shape, **given)
        costs = np.sort(planned + law.draw(rng, n))[::-1]
        left.append(decisions.risk_bound() - costs[: int(round(radii.share * n))].mean())
    assert np.mean(left) >= -4 * np.std(left) / np.sqrt(N_CALIBRATIONS), "tables cost more than their bounds"


@pytest.mark.parametrize("calibration", [Mean(DELTA, 60.0), CVaR(LEVEL, 60.0), CVaR(LEVEL, 60.0, DELTA)])
def test_the_worst_rows_of_a_table_cost_no_more_than_its_bound_in_the_mean(calibration: CVaR | Mean) -> None:
    check_tables(calibration)


def test_the_mean_of_all_plans_breaks_the_promise_for_the_worst_rows_and_the_test_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("polyhedge.decisions.tail_mean", lambda values, share: values.mean())
    with pytest.raises(AssertionError, match="tables cost more than their bounds"):
        check_tables(CVaR(LEVEL, 60.0))


def test_single_bounds_hold_as_ever_and_a_file_keeps_both() -> None:
    scores, given = np.random.default_rng(0).exponential(size=200), Rows(np.zeros((200, 0)))
    for calibrator in (Mean(0.05, 30.0), CVaR(0.2, 30.0), CVaR(largest=30.0, delta=0.1)):
        radii = calibrator.calibrate(scores, given, 0.1)
        assert radii.radius == conformal_radius(scores, 0.1)
        twin = round_trip(radii)
        assert (twin.risk, twin.promise(), twin.calibrator) == (radii.risk, radii.promise(), calibrator)
        assert radii.at_level(0.3).radius < radii.radius


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mean(1.0), "delta must lie strictly between 0 and 1"),
        (lambda: CVaR(0.0), "level must lie strictly between 0 and 1"),
        (lambda: CVaR(0.1, np.inf), "largest must be a finite number, .* can exceed its plan by; got inf"),
        (lambda: calibrated(Mean()), "Mean needs largest, the most by which"),
        (lambda: calibrated(Mean(largest=5.0)), "largest must be at least every score, got 5, and .* the score 19"),
        (lambda: calibrated(CVaR(0.1, 30.0)), "CVaR of level 0.1 needs at least 50 calibration samples, got 20"),
    ],
)
def test_what_has_no_mean_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def calibrated(calibrator: Any) -> Any:
    return calibrator.calibrate(np.arange(20.0), Rows(np.zeros((20, 0))), 0.1)


def bakery(limit: float = 60.0) -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z)) + 0.1 * cp.sum(z) + 5,
        constraints=[z <= limit],
        n_outcomes=2,
        outcome_support=lambda u: [u >= 0, u <= 50],
    )


def test_largest_excess_is_attained_and_asks_for_limits_where_there_are_none() -> None:
    """Nothing baked costs 3 * 50 a product more than the cheapest day of all."""
    assert largest_excess(bakery(40.0)) == pytest.approx(2 * (150 + 4.0), rel=1e-4)
    with pytest.raises(ValueError, match=r"a case in a million .* Outcomes \(u_1\) are not bounded"):
        largest_excess(ph.problems.newsvendor([1.0], [3.0]))
    open_decision = ph.DecisionProblem(
        decision=cp.Variable(1),
        cost=lambda z, u: cp.sum(cp.abs(z - u)),
        n_outcomes=1,
        outcome_support=lambda u: [u >= 0, u <= 1],
    )
    with pytest.raises(ValueError, match=r"Decisions \(.*\) are not bounded"):
        largest_excess(open_decision)
    products = ph.DecisionProblem(
        decision=(z := cp.Variable(2, nonneg=True)),
        cost=lambda z, u: u @ z + cp.sum_squares(z),
        constraints=[z <= 2],
        n_outcomes=2,
        outcome_support=lambda u: [u >= -1, u <= 3],
    )
    assert largest_excess(products) >= (2 * (3 * 2 + 4)) - (2 * (-0.25))  # the true range
    assert largest_excess(products) <= 2 * (10 + 2) * 1.001


def test_a_decider_promises_means_from_the_problem_alone(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 1))
    Y = np.clip(20 + 3 * X + rng.normal(size=(900, 2)) * 3, 0, 50)
    for calibration in (Mean(), CVaR(0.2)):
        decider = ph.RobustDecider(bakery(), "ridge", calibration=calibration, random_state=0).fit(X[:600], Y[:600])
        seen, decided = decider.evaluate(X[600:], Y[600:]), decider.decide(X[600:])
        share, realised, bound = seen.risk
        costs = bakery().evaluate(decided.flat, Y[600:])
        assert realised == pytest.approx(tail_mean(costs, share))
        assert realised < bound == decided.risk_bound()
        assert ("mean cost" if share == 1 else "worst 0.2 cost") in str(seen)
        decider.save(tmp_path / "m.polyhedge")
        again = ph.load(tmp_path / "m.polyhedge")
        assert again.decide(X[600:]).risk_bound() == pytest.approx(bound)
        assert again.recalibrate(X[600:], Y[600:]).model_.radii.given.largest == decider.model_.radii.given.largest
    with pytest.raises(ValueError, match="Means are promised by"):
        ph.robust.decide(bakery(), ph.Box([1.0, 1.0]), 1.0, np.ones((1, 2))).risk_bound()
    sets = {"learner": ph.learners.OneSidedBox(), "guarantee": "outcome"}
    with pytest.raises(ValueError, match="Mean adds up costs"):
        ph.RobustDecider(bakery(), "ridge", calibration=Mean(), random_state=0, **sets).fit(X[:600], Y[:600])
    problem = ph.problems.newsvendor([1.0] * 2, [3.0] * 2)
    with pytest.raises(ValueError, match="A promise on a mean needs largest"):
        ph.RobustDecider(problem, "ridge", calibration=Mean(), random_state=0).fit(X[:600], Y[:600])


def test_the_command_line_takes_both_with_their_numbers(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    demand = np.clip(20 + rng.normal(size=400), 0, 50)
    lines = [f"{a},{b}" for a, b in zip(rng.normal(size=400), demand, strict=True)]
    (tmp_path / "h.csv").write_text("\n".join(["trend,demand", *lines]))
    (tmp_path / "problem.toml").write_text('kind = "newsvendor"\noutcomes = ["demand"]\noverage = 1\nunderage = 3\n')
    given = ("--problem", tmp_path / "problem.toml", "--out", tmp_path / "m.polyhedge")
    for words, kind in (("mean:0.1,150", Mean(0.1, 150.0)), ("cvar:0.2,150", CVaR(0.2, 150.0))):
        done = run("fit", tmp_path / "h.csv", *given, "--calibration", words)
        assert done.exit_code == 0, done.output
        assert ph.load(tmp_path / "m.polyhedge").model_.radii.given == kind
