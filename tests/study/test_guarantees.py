"""The study of promises about costs: its rivals are guarded by the exact law, the limit is right where it is known."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge

from polyhedge.data import Split, synthetic_mean
from polyhedge.problems import DecisionProblem, newsvendor, simplex_linear, simplex_newsvendor
from polyhedge_study.case_report import case_comparisons, case_grid
from polyhedge_study.case_runs import N_RESAMPLED, CaseRow, case_jobs, resampled
from polyhedge_study.cases import make_case
from polyhedge_study.guarantees import GuaranteeRow, guarantee_jobs
from polyhedge_study.guarantees_report import comparisons, cost_grid, guarantee_words, set_grid
from polyhedge_study.guarded.developed import Bounded
from polyhedge_study.guarded.methods import GUARDED, PLAN, RIVALS, SET
from polyhedge_study.held_law import held_p_value
from polyhedge_study.limit import LimitRow, limit_grid, limit_jobs
from polyhedge_study.tasks import Task, synthetic_task
from polyhedge_study.true_law import descend, limit_of, order_statistics, shared_out

SETTING = "energy, d = 2, n = 160"


def row(method, seed, premium, **others):
    known = {"equal": premium, "realised": 1.0, "covered": 0.9, "held": 0.9, "n_calibrate": 99, "n_test": 200}
    known |= {"seconds": 2.0, "detail": "", "status": "done"}
    return GuaranteeRow(SETTING, method, seed, premium=premium, **(known | others))


def tiny_task(seed, key=""):
    """A newsvendor on two products, without coupling where a quantile model of each is asked for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(360, 2))
    Y = 1 + X + rng.normal(size=(360, 2)) * (0.1 + np.abs(X[:, [0]]))
    split = Split(np.arange(120), np.arange(120, 160), np.arange(160, 260), n_rows=360)
    problem, ratios = simplex_newsvendor(1.0, 2.0, 2), None
    if "quantile" in key:
        problem, ratios = newsvendor(1.0, 2.0, 2), (2 / 3, 2 / 3)
    return Task("tiny", problem, X, Y, split, np.arange(260, 360), Ridge(), ("a", "b"), ratios)


@pytest.mark.parametrize("key", [key for key in RIVALS if key not in ("risk-averse", "forecast-scaled")])
def test_the_count_of_rows_that_keep_a_rivals_bound_has_its_exact_law(key):
    # 2 seeds, each false alarm below 1 in 10 000.
    tasks = [tiny_task(seed, key) for seed in range(2)]
    found = [GUARDED[key].run(task, 0.1, 0) for task in tasks]
    counts = [round(100 * one.covered) for one in found]
    assert held_p_value(counts, 100, 100, 0.1) > 1e-4
    one, costs = found[0], tasks[0].problem.evaluate(found[0].z, tasks[0].rows("test")[1])
    assert np.mean(costs <= one.bound) == pytest.approx(one.covered)
    assert np.mean(costs <= one.equal + 1e-9) == pytest.approx(0.91)


def test_risk_averse_calibration_covers_at_least_what_it_promises_and_shares_levels_out():
    # 2 seeds, false alarm below 1 in 10 000; ties make coverage larger.
    tasks = [tiny_task(seed) for seed in range(2)]
    found = [GUARDED["risk-averse"].run(task, 0.1, 0) for task in tasks]
    counts = [round(100 * one.covered) for one in found]
    assert held_p_value(counts, 100, 100, 0.1, has_ties=True) > 1e-4
    spread = np.abs(tasks[0].rows("test")[0][:, 0])
    assert np.corrcoef(spread, found[0].bound)[0, 1] > 0.3


def test_a_forecast_with_k_times_its_error_keeps_constraints_in_the_promised_share_of_rows():
    # 2 seeds, false alarm below 1 in 10 000.
    z = cp.Variable(3, nonneg=True)
    crews = DecisionProblem(
        decision=z,
        cost=lambda z, u: np.array([3.0, 2.0, 2.0]) @ z,
        uncertain_constraints=lambda z, u: [z[0] + z[1] >= u[0], z[0] + z[2] >= u[1]],
        n_outcomes=2,
    )
    tasks = [replace(tiny_task(seed), problem=crews, Y=3 + tiny_task(seed).Y) for seed in range(2)]
    found = [GUARDED["forecast-scaled"].run(task, 0.1, 0) for task in tasks]
    assert held_p_value([round(100 * one.covered) for one in found], 100, 100, 0.1) > 1e-4
    served = found[0].z[:, [0]] + found[0].z[:, 1:]
    assert (served >= tasks[0].rows("test")[1] - 1e-7).all(axis=1).mean() >= found[0].covered


def test_the_law_of_held_counts_is_that_of_exchangeable_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 19 + 10))
    radius = np.sort(scores[:, :19], axis=1)[:, 17]  # rank 18 of 19 at alpha 0.1
    counts = (scores[:, 19:] <= radius[:, None]).sum(axis=1)
    assert (
        stats.kstest([held_p_value([int(c)], 10, 19, 0.1) for c in counts[:200]], "uniform", alternative="greater")[1]
        > 1e-4
    )
    assert held_p_value([0], 10, 19, 0.1) < 1e-4
    assert held_p_value([10], 10, 19, 0.1, has_ties=True) == 1.0


def test_the_limit_of_one_decision_is_the_quantile_of_its_cost():
    """With a cost that favours the first decision by far, the limit is a quantile that a large sample knows."""
    problem = simplex_linear([-50.0, 0.0])
    found = limit_of(problem, 0.1, np.random.default_rng(0), n_rows=60, n_samples=4000, floor=0.8)
    task = synthetic_task(0, sizes=(10, 10, 10, 40_000))
    X, Y = task.rows("test")
    noise = (Y - synthetic_mean(X))[:, 0]
    assert found.equal == pytest.approx(np.quantile(noise, 0.9), rel=0.05)
    assert found.allocated <= found.equal + 1e-9


def test_the_descent_finds_the_least_quantile_that_a_grid_finds():
    rng = np.random.default_rng(1)
    outcomes = rng.normal(size=(2000, 2)) * [1.0, 0.5] + [0.0, 0.1]
    problem = simplex_linear([0.0, 0.0])
    t = np.linspace(0, 1, 201)[:, None]
    grid = np.hstack([t, 1 - t])
    best = order_statistics(grid @ outcomes.T, np.array([0.9])).min()
    found = order_statistics(descend(problem, outcomes, 0.9)[None] @ outcomes.T, np.array([0.9]))[0, 0]
    assert found <= best + 0.02 * abs(best)


def test_shared_levels_are_never_dearer_than_equal_ones():
    rng, levels = np.random.default_rng(0), np.array([0.8, 0.85, 0.9, 0.95])
    theta = np.cumsum(rng.exponential(size=(50, 4)), axis=1)
    assert shared_out(theta, levels, 0.9) <= theta[:, 2].mean() + 1e-9


def test_differences_are_paired_and_seeds_that_only_one_has_are_left_out():
    rows = [row(PLAN, 0, 1.0, seconds=4.0), row(PLAN, 1, 2.0, seconds=4.0), row(PLAN, 2, 99.0)]
    rows += [row(SET, 0, 1.5), row(SET, 1, 2.7), row(SET, 3, math.nan)]
    (line,) = set_grid(rows).rows
    assert line[:5] == (SETTING, "2", "1.500", "2.100", "-0.600 ± 0.100")
    assert line[-1] == "2.0"


def test_a_rival_is_lower_level_or_higher_by_three_standard_errors():
    rows = [row(PLAN, seed, 1.0) for seed in range(4)]
    rows += [row("nominal-guard", seed, 2.0 + 0.01 * seed) for seed in range(4)]
    rows += [row("cvar-guard", seed, 1.0 + (-1) ** seed) for seed in range(4)]
    rows += [row("average-guard", seed, 0.5 + 0.01 * seed) for seed in range(4)]
    found = {c.rival: c for c in comparisons(rows)}
    verdicts = {key: found[key].verdict for key in found}
    assert verdicts == {"nominal-guard": "lower", "average-guard": "higher", "cvar-guard": "level"}
    assert found["nominal-guard"].p_value < 0.01 < found["cvar-guard"].p_value
    assert "higher by more than these in 1 (Sample average + guard on energy" in " ".join(guarantee_words(rows))
    assert cost_grid(rows, 0.1).rows[0][1] == "Polyhedge"


def test_the_distance_to_the_limit_is_told_at_equal_coverage():
    name = "linear, d = 2, n = 300"
    limits = [LimitRow(name, draw, "done", 0.3 + 0.01 * draw, 0.29, "") for draw in range(2)]
    ours = GuaranteeRow(name, PLAN, 0, "done", 9.0, 0.366, 1.0, 0.9, 0.9, 300, 1000, 1.0, "")
    lines = limit_grid(limits, [ours]).rows
    assert lines[2][1:4] == ("Polyhedge (1 seeds)", "0.366", "+20.0 %")


def case_row(method: str, bound: float, cost: float, noise: float) -> CaseRow:
    drawn = [f"{bound + noise * k}/{cost + noise * k}/{bound - noise * k}" for k in np.arange(-9.5, 10)]
    return CaseRow("charging", method, "done", bound, cost, 0.9, 100, 366, 1.0, "", bound, " ".join(drawn))


def test_differences_between_methods_are_paired_over_periods_drawn_again():
    # What both share from draw to draw is not noise of the difference.
    ours, theirs = case_row(PLAN, 300.0, 250.0, 50.0), case_row("nominal-guard", 310.0, 240.0, 50.1)
    assert case_comparisons([ours, theirs], 0)[0].verdict == "lower"
    lines = case_grid([ours, theirs]).rows
    assert lines[0][7:] == ("", "", "", "298.7 / 254.7 / .842")
    assert lines[1][7:] == ("+10 ± 0.59", "-10 ± 0.59", "+10 ± 0.59", "303.0 / 254.2 / .855")


def test_the_error_of_a_bound_knows_that_its_radius_comes_from_one_period():
    # Test rows are all alike: what a bound differs by from draw to draw is its radius, a quantile of 200 scores.
    scores = np.random.default_rng(0).normal(size=200)
    promised = Bounded(lambda r: (np.zeros((50, 1)), np.full(50, r)), scores, np.zeros(50), 0.1)
    row = replace(case_row(PLAN, 0.0, 0.0, 0.0), resampled=resampled(promised, lambda z: z[:, 0]))
    bounds, costs, equal = row.draws
    assert len(bounds) == N_RESAMPLED
    assert (costs == 0).all()
    assert (equal == 0).all()
    assert set(bounds) <= {float(f"{score:.9g}") for score in scores}
    # sqrt(alpha (1 - alpha) / n) / density is 0.12; stretches of ten and 200 draws leave a factor of two
    assert 0.06 < bounds.std() < 0.24
    few = replace(row, resampled=resampled(promised, lambda z: z[:, 0], most_radii=8)).draws[0]
    assert len(np.unique(few)) <= 8
    assert few.std() == pytest.approx(bounds.std(), rel=0.2)


def test_unknown_names_are_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"setting must be one of linear, d = 2.*got 'cubic'"):
        guarantee_jobs(["cubic"])
    with pytest.raises(ValueError, match=r"method must be one of polyhedge, polyhedge-cautious.*got 'best'"):
        guarantee_jobs(methods=["best"])
    with pytest.raises(ValueError, match=r"setting must be one of linear, d = 2.*got 'energy'"):
        limit_jobs(["energy"])
    with pytest.raises(ValueError, match=r"case must be one of charging, battery.*got 'bank'"):
        case_jobs(["bank"])
    with pytest.raises(ValueError, match=r"case must be one of charging, battery.*got 'bank'"):
        make_case("bank")
