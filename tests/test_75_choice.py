"""Which rule of a contest is taken: the best figure, and of figures that rows cannot tell apart the least mean cost."""

from __future__ import annotations

import numpy as np
import pytest

from polyhedge.plans.contest import Choice, Judged, resampled
from polyhedge.plans.levels import PlannedBy
from polyhedge.plans.rules import Rule

N = 400
RNG = np.random.default_rng(0)
COMMON = RNG.normal(size=N)


def entry(cost: float, spread: float, own: float = 0.0, seed: int = 1) -> Judged:
    """A rule with this mean cost and spread of costs; `own` is noise that other rules do not share."""
    noise = np.random.default_rng(seed).normal(size=N)
    realised = cost + spread * (COMMON - COMMON.mean()) + own * (noise - noise.mean())
    return Judged(Rule(), PlannedBy("scaled", (0.8,)), np.full(N, cost), realised)


def chosen(entries: list[Judged], caution: float = 0.5) -> Choice:
    return Choice(entries, 0.1, caution, resampled(N, seed=0))


def test_a_figure_that_is_clearly_better_wins_at_a_higher_cost():
    choice = chosen([entry(0.0, 3.0), entry(0.1, 1.0)])
    assert choice.single == 1
    assert set(choice.wins) == {1}


def test_of_figures_that_rows_cannot_tell_apart_the_cheaper_wins():
    dear, cheap = entry(0.08, 1.0, own=0.6), entry(0.0, 1.15, own=0.6, seed=2)
    assert dear.figure(0.1, 0.5) < cheap.figure(0.1, 0.5)
    for order in ([dear, cheap], [cheap, dear]):
        choice = chosen(order)
        assert order[choice.single] is cheap
        assert order[choice.wins.most_common(1)[0][0]] is cheap


def test_at_caution_1_the_bound_alone_decides():
    dear, cheap = entry(0.08, 1.0, own=0.6), entry(0.0, 1.15, own=0.6, seed=2)
    assert dear.bound(0.1) < cheap.bound(0.1)
    assert chosen([cheap, dear], caution=1.0).single == 1


def test_at_caution_0_the_mean_cost_alone_decides():
    assert chosen([entry(0.1, 0.1), entry(0.0, 5.0)], caution=0.0).single == 1


@pytest.mark.parametrize("caution", [0.1, 0.5, 1.0])
def test_a_rule_without_a_finite_bound_wins_nothing_that_another_can(caution):
    has_plan = np.arange(N) % 5 > 0
    lost = Judged(Rule(), PlannedBy("scaled", (0.8,)), np.where(has_plan, 1.0, np.nan), np.where(has_plan, 1.0, np.nan))
    choice = chosen([entry(2.0, 1.0), lost], caution)
    assert choice.single == 0
    assert set(choice.wins) == {0}


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**30])
def test_the_choice_is_the_same_in_every_unit(unit):
    entries = [entry(0.1 * k, 1.5 - 0.1 * k, own=0.3, seed=k) for k in range(6)]
    scaled = [Judged(e.rule, e.planned_by, unit * e.planned, unit * e.realised) for e in entries]
    assert chosen(entries).wins == chosen(scaled).wins
