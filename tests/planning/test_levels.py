"""Planned costs whose levels are shared out over rows: least mean at their coverage, in every unit, kept in files."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from polyhedge.planning import DevelopmentRows, fit_policy, policy_from
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.levels import PlannedBy, PlannedCost, levels_to_share, planned_cost, planned_level, shared_out
from polyhedge.planning.policies import Rule
from polyhedge.planning.residual_distributions import fit_distribution
from polyhedge.planning.risk import Risk
from polyhedge.planning.selection import Selection
from polyhedge.problems import newsvendor, simplex_newsvendor


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.4])
def test_levels_grow_have_a_floor_and_hold_the_promised_one(alpha):
    levels = levels_to_share(alpha)
    assert list(levels) == sorted(set(levels))
    assert levels[0] >= 0.5
    assert levels[-1] < 1
    assert any(np.isclose(level, max(1 - alpha, 0.5)) for level in levels)


def test_no_other_choice_of_levels_with_as_high_a_mean_has_a_lower_mean_cost():
    rng, levels = np.random.default_rng(0), (0.5, 0.8, 0.9)
    quantiles = np.cumsum(rng.exponential(size=(6, 3)), axis=1)
    all_choices = np.array(list(product(range(3), repeat=6)))
    for price in (0.5, 2.0, 8.0):
        taken = PlannedBy("scaled", levels, price).taken(quantiles)
        mean_level = np.take(levels, (quantiles == taken[:, None]).argmax(axis=1)).mean()
        is_as_high = np.take(levels, all_choices).mean(axis=1) >= mean_level - 1e-12
        costs = quantiles[np.arange(6), all_choices[is_as_high]].mean(axis=1)
        assert taken.mean() <= costs.min() + 1e-12


@pytest.mark.parametrize("alpha", [0.1, 0.25])
def test_the_price_is_the_least_at_which_the_promised_share_is_covered(alpha):
    rng, levels = np.random.default_rng(1), levels_to_share(alpha)
    spreads = rng.uniform(0.2, 4, size=400)
    quantiles = spreads[:, None] * np.quantile(np.abs(rng.normal(size=4000)), levels)
    costs = spreads * np.abs(rng.normal(size=400))

    def covered(price: float) -> float:
        return float(np.mean(costs <= PlannedBy("scaled", levels, price).taken(quantiles)))

    price = shared_out("scaled", levels, quantiles, costs, alpha).price
    assert covered(price) >= 1 - alpha
    largest = (np.diff(quantiles, axis=1) / np.diff(levels)).max()
    assert covered(price - 2.0**-22 * largest) < 1 - alpha


def test_where_nothing_covers_enough_rows_every_row_has_the_highest_level():
    quantiles = np.tile([1.0, 2.0, 3.0], (10, 1))
    by = shared_out("scaled", (0.5, 0.8, 0.9), quantiles, np.full(10, 9.0), 0.1)
    assert (by.taken(quantiles) == 3.0).all()


def test_rows_without_a_decision_have_no_planned_cost():
    quantiles = np.array([[1.0, 2.0], [np.nan, np.nan]])
    assert np.isnan(PlannedBy("scaled", (0.5, 0.9), 1.0).taken(quantiles)).tolist() == [False, True]


def heavy(n: int = 90, unit: float = 1.0) -> DevelopmentRows:
    """Demand whose spread grows with x: certainty is dear at some rows."""
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(n, 1))
    Y = 5 + rng.standard_t(3, size=(n, 2)) * (0.2 + 3 * X)
    return DevelopmentRows(X, np.full((n, 2), 5.0) * unit, Y * unit, np.zeros((n, 0)), np.arange(n) % 3)


def test_one_of_the_levels_plans_each_cost_and_batches_do_not_matter():
    problem, rows = PlanProblem(simplex_newsvendor(0.3, 0.7, 2)), heavy()
    distribution, z, levels = fit_distribution("scaled", rows, 0), np.full((90, 2), 0.5), (0.6, 0.8, 0.9)
    at, by = (rows.X, rows.centers, rows.values), PlannedBy("scaled", levels, 9.0)
    v, mean = PlannedCost(distribution, by)(problem, z, *at)
    each = np.column_stack([planned_cost(problem, distribution, level, z, *at)[0] for level in levels])
    best = np.argmin(each - by.price * np.array(levels), axis=1)
    assert (v == each[np.arange(90), best]).all()
    assert len(np.unique(best)) > 1
    assert (mean == planned_cost(problem, distribution, 0.8, z, *at)[1]).all()
    few = [part[7:9] for part in at]
    assert (PlannedCost(distribution, by)(problem, z[7:9], *few)[0] == v[7:9]).all()


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**17, 1e-5, 3e6])
def test_levels_are_shared_out_alike_in_every_unit(unit):
    def scored(unit: float) -> list[np.ndarray]:
        rows, problem = heavy(unit=unit), PlanProblem(newsvendor(1.0, 3.0, 2))
        selection = Selection(problem, rows, [Rule(), Rule("scaled", Risk(0.5))], planned_level(0.1), 0)
        selection.look_closer([0, 1], 0.1)
        assert sum("shared" in str(one.planned_by) for one in selection.scored[1]) == 2
        return [one.planned / unit for both in selection.scored for one in both]

    for mine, its in zip(scored(1.0), scored(unit), strict=True):
        if np.log2(unit) == round(np.log2(unit)):
            assert (mine == its).all()
        else:
            assert mine == pytest.approx(its, rel=1e-9)


@pytest.mark.parametrize("shift", [10.0, -1e4, 1e6])
def test_levels_are_shared_out_alike_wherever_costs_have_their_zero(shift):
    for seed in range(20):
        rng, levels = np.random.default_rng(seed), levels_to_share(0.1)
        # Rows that decide alike under a distribution without a spread differ by heights alone: all change levels at
        # one price.
        quantiles = rng.normal(size=(60, 1)) + np.cumsum(rng.exponential(size=len(levels)))
        costs = quantiles[:, 4] + rng.normal(size=60)
        usual, moved = (shared_out("scaled", levels, quantiles + by, costs + by, 0.1) for by in (0.0, shift))
        assert moved.taken(quantiles + shift) - shift == pytest.approx(usual.taken(quantiles), abs=1e-9 * abs(shift))


def test_a_plan_with_shared_levels_is_the_same_when_it_is_read_again():
    problem, rows = simplex_newsvendor(0.3, 0.7, 2), heavy()
    policy = fit_policy(problem, rows, alpha=0.2, caution=0.5, seed=0)
    distributions = {name: fit_distribution(name, rows, 0) for name in ("scaled", "corrected")}
    costs = tuple(
        PlannedCost(distribution, PlannedBy(name, levels_to_share(0.2), 1.5))
        for name, distribution in distributions.items()
    )
    policy = type(policy)(problem, policy.planners, policy.weights, costs, (0.5, 0.5), policy.report)
    again = policy_from(problem, policy.state())
    at = rows.X[:9], rows.centers[:9], rows.values[:9]
    assert (policy.decide(*at).v == again.decide(*at).v).all()
    assert [cost.by for cost in again.costs] == [cost.by for cost in policy.costs]


def test_a_file_with_one_level_for_the_whole_plan_is_still_read():
    problem, rows = simplex_newsvendor(0.3, 0.7, 2), heavy()
    policy = fit_policy(problem, rows, alpha=0.2, caution=0.5, seed=0)
    state = dict(policy.state(), planned_by=[{"distribution": policy.costs[0].distribution.name, "weight": 1.0}])
    assert policy_from(problem, {**state, "level": 0.7}).costs[0].by.levels == (0.7,)
    with pytest.raises(TypeError, match="NoneType"):
        policy_from(problem, state)
