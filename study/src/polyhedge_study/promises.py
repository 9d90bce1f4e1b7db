"""Figures of the promises beyond single rows: altered decisions, totals of blocks, overlapping groups, mean and CVaR.

Every figure is a mean over seeds with its standard error. Methods are paired: they share rows, parts and decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy.stats import betabinom

import polyhedge as ph
from polyhedge.calibration import ByGroups, CVaR, Mean, Total, conformal_radius, conformal_rank
from polyhedge.decisions import tail_mean
from polyhedge.rows import Rows
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.real import Table, bakery_demand, bike_riders, restaurant_demand

__all__ = ["TABLES", "altered", "groups", "means", "totals"]

CHANGES = (0.0, 0.05, 0.1, 0.2)
"""Shares by which each entry of a decision is changed, up or down at random."""
_MOST_TESTED = 40
"""Rows whose altered decisions are bounded: worst cases are mixed-integer programs for costs of many parts."""
_SHARES = (0.4, 0.2, 0.25, 0.15)
"""Of rows, or blocks, that train, learn, calibrate and test."""


def _of(values: Any) -> str:
    """The mean with its standard error."""
    array = np.asarray(values, dtype=np.float64)
    return f"{array.mean():.3f} ± {array.std(ddof=1) / np.sqrt(len(array)):.3f}"


def _parts(n: int, seed: int) -> list[Array]:
    return np.split(np.random.default_rng(seed).permutation(n), (np.cumsum(_SHARES)[:3] * n).astype(int))


# What if


def _bread(seed: int) -> tuple[ph.DecisionProblem, Array, Array]:
    """The newsvendor, 2 products, with demand of at least 0."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(1, 3, size=(620, 2))
    return ph.problems.newsvendor([1.0, 1.0], [3.0, 2.0]), X, np.abs(5 + 2 * X + X * rng.normal(size=(620, 2)))


def _shares(seed: int) -> tuple[ph.DecisionProblem, Array, Array]:
    """Mean and spread of losses of five shares, each between -30 and 30 per cent."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(620, 3))
    Y = np.clip(X @ rng.normal(size=(3, 5)) + (2 + np.abs(X[:, :1])) * rng.standard_t(4, size=(620, 5)), -30, 30)
    z = cp.Variable(5, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z + 5 * cp.sum_squares(z),
        constraints=[cp.sum(z) == 1],
        n_outcomes=5,
        outcome_support=lambda u: [u >= -30, u <= 30],
    )
    return problem, X, Y


def _units(seed: int) -> tuple[ph.DecisionProblem, Array, Array]:
    """Whole machines under two budgets; demand lies between 0 and 40."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(1, 3, size=(620, 2))
    z = cp.Variable(2, integer=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(0.5 * z + 3 * cp.pos(u - z)),
        constraints=[z >= 0, cp.sum(z) <= 30, z[0] + 2 * z[1] <= 45],
        n_outcomes=2,
        outcome_support=lambda u: [u >= 0, u <= 40],
    )
    return problem, X, np.clip(5 + 2 * X + X * rng.normal(size=(620, 2)), 0, 40)


def _bikes(seed: int) -> tuple[ph.DecisionProblem, Array, Array]:
    """Bikes for casual and registered riders in the last hours of a real table, demand of at least 0."""
    X, Y = bike_riders()
    return ph.problems.newsvendor(1.0, [3.0, 3.0]), X.to_numpy(float)[-620:], Y.to_numpy(float)[-620:]


PROBLEMS: dict[str, Callable[[int], tuple[ph.DecisionProblem, Array, Array]]] = {
    "newsvendor, 2 products": _bread,
    "five shares, quadratic": _shares,
    "integers, two budgets": _units,
    "bikes, 2 kinds of riders": _bikes,
}


def altered(seeds: int) -> Grid:
    """The guard's bound of altered decisions over that of the learned set, for the same altered decisions."""
    lines = []
    for name, make in PROBLEMS.items():
        found: dict[float, list[Any]] = {change: [] for change in CHANGES}
        for seed in range(seeds):
            problem, X, Y = make(seed)
            train, learn, calibrate, test = _parts(len(X), seed)
            test = test[:_MOST_TESTED]
            deciders = [
                ph.RobustDecider(problem, "ridge", guarantee=shape, random_state=seed).fit(
                    X, Y, train=train, learn=learn, calibrate=calibrate
                )
                for shape in ("cost", "outcome")
            ]
            z = deciders[0].decide(X[test]).flat
            signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=z.shape)
            for change in CHANGES:
                mine = z * (1 + change * signs)
                if len(problem.feasible.program.integer):
                    mine = np.round(mine)
                both = np.array([one.bound(X[test], mine).cost_bound for one in deciders])
                held = (problem.evaluate(mine, Y[test]) <= both * (1 + 1e-9)).mean(axis=1)
                found[change].append((both.mean(axis=1), held, np.isfinite(both).mean()))
        for k, change in enumerate(CHANGES):
            bounds, held, finite = (np.array(each) for each in zip(*found[change], strict=True))
            figures = [f"{bounds[:, j].mean():.4g} ({held[:, j].mean():.3f})" for j in (0, 1)]
            ratio = _of(bounds[:, 0] / bounds[:, 1]) if finite.mean() == 1 else "infinite"
            lines.append((name if k == 0 else "", f"{change:.0%}", *figures, ratio))
    note = f"Mean bound (share of rows that kept it), alpha = 0.1, {seeds} seeds; the ratio is paired."
    return Grid("What if", ("problem", "change", '"cost"', '"outcome"', "ratio"), tuple(lines), note)


# Totals


def _bakery() -> tuple[Table, Array]:
    X, Y = bakery_demand(n_shops=8)
    weeks = ((X.index - X.index.min()).days // 7).to_numpy()
    return Table(pd.get_dummies(X, columns=["store"]).astype(float), Y), weeks


def _weeks_of(table: Table) -> tuple[Table, Array]:
    return table, ((table.X.index - table.X.index.min()).days // 7).to_numpy()


def _days_of(table: Table) -> tuple[Table, Array]:
    return table, table.X.index.normalize().to_numpy()


TABLES: dict[str, Callable[[], tuple[Table, Array]]] = {
    "restaurant, 7 dishes, week": lambda: _weeks_of(restaurant_demand()),
    "bakery, 8 shops, week": _bakery,
    "bikes, 2 kinds of riders, week": lambda: _weeks_of(bike_riders()),
    "bikes, 2 kinds of riders, day": lambda: _days_of(bike_riders()),
}


def totals(seeds: int) -> Grid:
    """Sum of the single bounds of the rows of a block, and the bound of the block, over the same decisions."""
    lines = []
    for name, make in TABLES.items():
        (frame, outcomes), blocks = make()
        X, Y = frame.to_numpy(float), outcomes.to_numpy(float)
        problem = ph.problems.newsvendor(1.0, [3.0] * Y.shape[1])
        found = []
        for seed in range(seeds):
            split = (0.35, 0.15, 0.3, 0.2)
            decider = ph.RobustDecider(problem, "ridge", calibration=Total(blocks), split=split, random_state=seed)
            decider.fit(X, Y)
            test = decider.split_.held_out
            decided = decider.decide(X[test], labels=blocks[test])
            own, block_of = np.unique(np.asarray(decided.blocks), return_inverse=True)
            costs = np.bincount(block_of, problem.evaluate(decided.flat, Y[test]))
            single, whole = np.bincount(block_of, decided.cost_bound), decided.totals()["cost_bound"].to_numpy()
            # Given the table a random split deals ranks of exchangeable blocks: so many of the tested ones are kept.
            n = decider.model_.radii.n_units
            law = betabinom(len(own), rank := conformal_rank(n, decider.alpha_), n + 1 - rank)
            kept = ((costs <= each).mean() for each in (single, whole))
            found.append(
                (single.mean(), whole.mean(), *kept, len(own), law.mean() / len(own), law.var() / len(own) ** 2)
            )
        single, whole, held_single, held, n_tested, mean, variance = np.array(found).T
        figures = (f"{single.mean():.4g} ({held_single.mean():.3f})", f"{whole.mean():.4g}", f"{held.mean():.3f}")
        law = f"{mean.mean():.3f} ± {np.sqrt(variance.sum()) / seeds:.3f}"
        lines.append((name, *figures, law, _of(whole / single), f"{n_tested.sum():.0f}"))
    heads = (
        "table",
        "sum of single bounds (held)",
        "bound of the block",
        "held",
        "exact law",
        "ratio",
        "blocks tested",
    )
    return Grid("Totals", heads, tuple(lines), f"alpha = 0.1, ridge, {seeds} random splits by block.")


# Overlapping groups


def _bakery_groups() -> tuple[Table, pd.DataFrame, Any]:
    X, Y = bakery_demand(n_shops=8)
    flags = {"school": "is_schoolholiday", "rain": "rain", "before a holiday": "is_holiday_next2days"}
    kinds = pd.DataFrame({"shop": X["store"].to_numpy(), "weekday": X.index.day_of_week.astype(str)})
    kinds = kinds.assign(**{name: (X[column] > 0).astype(str).to_numpy() for name, column in flags.items()})
    shops = pd.get_dummies(X["store"]).astype(float).add_prefix("shop_")
    return Table(X.drop(columns="store").astype(float).assign(**shops.iloc[:, 1:]), Y), kinds, "ridge"


def _bike_groups() -> tuple[Table, pd.DataFrame, Any]:
    X, Y = bike_riders()
    own = {"part": X["hour"].astype(int) // 4, "weekday": X.index.day_of_week, "season": X.index.month % 12 // 3}
    kinds = pd.DataFrame({**own, "wet": X["wet"], "off": 1 - X["workingday"]}).astype(str).reset_index(drop=True)
    return Table(X, Y), kinds, "boosting"


GROUPS: dict[str, tuple[Callable[[], tuple[Table, pd.DataFrame, Any]], int, bool]] = {
    "bakery, ridge, 15 groups: shop, weekday": (_bakery_groups, 2, True),
    "bakery, ridge, 21 groups": (_bakery_groups, 5, True),
    "bakery, automatic predictor, 21 groups": (_bakery_groups, 5, False),
    "bikes, boosting, 21 groups": (_bike_groups, 5, True),
}


def groups(seeds: int) -> Grid:
    """One radius, one radius at the coverage of `ByGroups`, and `ByGroups`: mean bound, and coverage of the groups.

    A third of the rows develops the policy; 3000 of the others calibrate, and the rest test. "All rows" is a quantile
    regression on all rows but those of development: what equal coverage costs if the law is known.
    """
    lines = []
    for name, (make, n_kinds, is_named) in GROUPS.items():
        table, kinds, predictor = make()
        X, Y = table.X.to_numpy(float), table.Y.to_numpy(float)
        member = pd.get_dummies(kinds.iloc[:, :n_kinds]).to_numpy(float)
        order = np.random.default_rng(0).permutation(len(X))
        own, rest = order[: len(X) // 3], order[len(X) // 3 :]
        problem, cut = ph.problems.newsvendor(1.0, [3.0] * Y.shape[1]), 2 * len(own) // 3
        decider = ph.RobustDecider(problem, predictor if is_named else "auto", random_state=0)
        decider.fit(X, Y, train=own[:cut], learn=own[cut:], calibrate=rest[:3000])
        scores = decider.model_.scores(decider.model_.read(X[rest], Y[rest]))
        plans, member = decider.decide(X[rest]).cost_bound - decider.radius_, member[rest]
        known = _radii(member, scores, member)
        found, covered = [], []
        for seed in range(seeds):
            calibrate, test = np.split(np.random.default_rng(seed).permutation(len(rest)), [3000])
            one = np.full(len(test), conformal_radius(scores[calibrate], 0.1))
            by = _radii(member[calibrate], scores[calibrate], member[test])
            level = np.full(len(test), np.quantile(scores[test], (scores[test] <= by).mean()))
            found.append([(plans[test] + radii).mean() for radii in (one, level, by, known[test])])
            covered.append([_covered(member[test], scores[test] <= radii) for radii in (one, by)])
        bounds, share = np.array(found), np.mean(covered, axis=0)
        extents = [f"{each.min():.3f} to {each.max():.3f}" for each in share]
        figures = [f"{bounds[:, 0].mean():.1f}", f"{bounds[:, 2].mean():.1f}"]
        more = [f"{_of(100 * (bounds[:, j] / bounds[:, k] - 1))} %" for j, k in ((2, 0), (2, 1), (3, 0))]
        lines.append((name, extents[0], figures[0], extents[1], figures[1], *more))
    heads = ("table", "one radius: groups covered", "mean bound", "ByGroups: groups covered", "mean bound")
    more_heads = ("more than one radius", "at equal coverage", "law known")
    return Grid("Overlapping groups", heads + more_heads, tuple(lines), f"alpha = 0.1, {seeds} random splits.")


def _radii(member: Array, scores: Array, new: Array) -> Array:
    fitted = ByGroups(member).calibrate(scores, Rows(member, labels=member), 0.1)
    return fitted.at(Rows(new, labels=new))


def _covered(member: Array, held: Any) -> Array:
    return np.array([held[own == 1].mean() for own in member.T])


# Mean and CVaR


def means(seeds: int) -> Grid:
    """Bounds over the truth, for scores with an exponential law that is cut at 20 times its mean."""
    grid = -np.log1p(-(np.arange(400_000) + 0.5) / 400_000)
    truth = {1.0: float(np.minimum(grid, 20).mean()), 0.1: tail_mean(np.minimum(grid, 20), 0.1)}
    calibrators = {
        "Mean()": Mean(largest=20.0),
        "CVaR(0.1)": CVaR(0.1, 20.0),
        "CVaR(0.1, delta=0.05)": CVaR(0.1, 20.0, 0.05),
    }
    lines = []
    for n in (100, 1000):
        rng = np.random.default_rng(n)
        drawn = [np.minimum(rng.exponential(size=n), 20.0) for _ in range(10 * seeds)]
        line = [str(n)]
        for calibrator in calibrators.values():
            made = [copy(calibrator).calibrate(scores, Rows(np.zeros((n, 0))), 0.1) for scores in drawn]
            line.append(_of([each.mean_radius / truth[each.share] for each in made]))
        lines.append(tuple(line))
    note = f"Bound over the truth; means over {10 * seeds} calibrations."
    return Grid("Mean and CVaR", ("calibration rows", *calibrators), tuple(lines), note)
