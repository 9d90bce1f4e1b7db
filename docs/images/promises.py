"""Draw the figures of the promises: one for each of their pages, from the page's own example.

Run it as ``python docs/images/promises.py``.
"""

from pathlib import Path

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import polyhedge as ph
from polyhedge.calibration import ByGroups, CVaR, Mean, Total
from polyhedge.decisions import tail_mean
from polyhedge.rows import Rows

HERE = Path(__file__).parent
BLUE, ORANGE, GREY, RED = "#1f6fb2", "#bc6c00", "#8c959f", "#d1242f"


def save(name: str, fig: plt.Figure) -> None:
    """Write one figure."""
    for ax in fig.axes:
        ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    fig.savefig(HERE / f"{name}.png", dpi=110)


def what_if() -> None:
    """The region of one row, and the worst outcomes in it for two decisions."""
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 3, size=(600, 2))
    Y = 5 + 2 * X + X * rng.uniform(-1, 1, size=(600, 2))
    problem = ph.problems.newsvendor([1.0, 1.0], [3.0, 2.0], names=["bread", "rolls"])
    decider = ph.RobustDecider(problem, "ridge", random_state=0).fit(X[:500], Y[:500])
    row = X[500:501]
    taken, corners = decider.decide(row), decider.region(X[500]).vertices()
    around = np.argsort(np.arctan2(*(corners - corners.mean(axis=0)).T[::-1]))
    fig, ax = plt.subplots(figsize=(6.4, 3.6))
    ax.fill(*corners[around].T, color=BLUE, alpha=0.18, label="region: outcomes at which the decision keeps its bound")
    for z, color, name in ((taken.z, BLUE, "decision taken"), (1.2 * taken.z, ORANGE, "20 % more of everything")):
        case = decider.bound(row, z)
        bound = f"{name}: at most {case.cost_bound[0]:.1f}"
        ax.plot(*z[0], "o", color=color, label=bound)
        ax.plot(*case.worst_outcome[0], "X", color=color, markersize=9)
        ax.annotate("", case.worst_outcome[0], z[0], arrowprops={"arrowstyle": "->", "color": color, "ls": "--"})
    ax.set(xlabel="bread", ylabel="rolls", xlim=(0, None), ylim=(0, None))
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    save("what_if", fig)


def total() -> None:
    """Weeks of the page's example: what they cost, the bound of the week, and the sum of its single bounds."""
    rng = np.random.default_rng(0)
    week = np.repeat(np.arange(150), 7)
    X = pd.DataFrame({"day": np.tile(np.arange(7.0), 150)})
    Y = 20 + 2 * X[["day"]].to_numpy() + 2 * rng.normal(size=150)[week][:, None] + 3 * rng.normal(size=(1050, 1))
    problem = ph.problems.newsvendor(1.0, 3.0, 1)
    decider = ph.RobustDecider(problem, "ridge", calibration=Total(week[:840]), random_state=0).fit(X[:840], Y[:840])
    decided = decider.decide(X[840:], labels=week[840:])
    costs = problem.evaluate(decided.flat, Y[840:]).reshape(30, 7).sum(axis=1)
    whole = decided.totals()["cost_bound"].to_numpy()
    fig, ax = plt.subplots(figsize=(6.4, 3))
    ax.step(
        np.arange(30), decided.cost_bound.reshape(30, 7).sum(axis=1), color=GREY, where="mid", label="sum of 7 bounds"
    )
    ax.step(np.arange(30), whole, color=BLUE, where="mid", label="bound of the week")
    held = costs <= whole
    ax.plot(np.flatnonzero(held), costs[held], "o", color=BLUE, markersize=4, label="cost of the week")
    ax.plot(np.flatnonzero(~held), costs[~held], "o", color=RED, markersize=4, label="above its bound")
    ax.set(xlabel="new week", ylabel="cost", ylim=(0, 85))
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower left")
    save("total", fig)


def by_groups() -> None:
    """Coverage of each group, by one radius and by `ByGroups`."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"store": rng.choice(list("abcd"), 9000), "weekday": rng.integers(7, size=9000).astype(str)})
    X["holiday"], X["trend"] = rng.choice(["no", "yes"], 9000, p=[0.9, 0.1]), rng.normal(size=9000)
    size = 1 + 2 * (X["holiday"] == "yes") + (X["store"] == "d")
    Y = pd.DataFrame({"demand": 20 + 3 * X["trend"] + size * rng.normal(size=9000)})
    problem, columns = ph.problems.newsvendor(1.0, 3.0, 1), ["store", "weekday", "holiday"]
    fig, ax = plt.subplots(figsize=(6.4, 3))
    for calibration, color, name in ((None, GREY, "one radius"), (ByGroups(columns), BLUE, "ByGroups")):
        decider = ph.RobustDecider(problem, "ridge", calibration=calibration, random_state=0).fit(X[:4000], Y[:4000])
        seen = {by: decider.evaluate(X[4000:], Y[4000:], by=by).groups for by in columns}
        names = [f"{by} {group.label}" for by in columns for group in seen[by]]
        ax.plot(names, [float(group.coverage) for by in columns for group in seen[by]], "o", color=color, label=name)
    ax.axhline(0.9, color=RED, linewidth=1)
    ax.tick_params(axis="x", rotation=60, labelsize=8)
    ax.set(ylabel="share that held", ylim=(0.45, 1.0))
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    save("by_groups", fig)


def by_constraint() -> None:
    """How often each promise is broken at each step of the path, on calibration rows."""
    problem = ph.DecisionProblem(
        decision=cp.Variable(1, nonneg=True, name="power"),
        cost=lambda z, u: u[1] * z[0],
        constraints=[],
        uncertain_constraints=lambda z, u: [z[0] >= u[0]],
        constraint_names=["load is met"],
        outcome_names=["load", "price"],
        n_outcomes=2,
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    Y = np.column_stack([20 + 3 * X[:, 0] + rng.normal(size=400), 10 + rng.standard_t(3, size=400)])
    levels = {"cost": 0.2, "load is met": 0.02}
    radii = ph.RobustDecider(problem, "ridge", alpha=levels, random_state=0).fit(X, Y).model_.radii
    steps = np.arange(0, radii.kept.max() + 2)
    fig, ax = plt.subplots(figsize=(6.4, 3))
    for (name, level), own, radius, color in zip(radii.levels, radii.kept.T, radii.radii, (BLUE, ORANGE), strict=True):
        broken = (own[None] > steps[:, None]).mean(axis=1)
        ax.step(steps, broken, color=color, where="post", label=f"{name}, level {level:g}: step {radius:.0f}")
        ax.plot(radius, level, "o", color=color)
        ax.hlines(level, 0, radius, color=color, linewidth=1, linestyle=":")
    ax.axvline(radii.radius, color=RED, linewidth=1)
    ax.text(radii.radius, 0.3, " rows are decided here", color=RED, fontsize=8)
    ax.set(xlabel="step of the path, towards more caution", ylabel="share of rows that break it", ylim=(0, 0.45))
    ax.legend(frameon=False, fontsize=8)
    save("by_constraint", fig)


def mean() -> None:
    """Bounds over the truth, against the number of calibration rows."""
    grid = np.minimum(-np.log1p(-(np.arange(400_000) + 0.5) / 400_000), 20)
    ways = {"Mean()": (Mean(largest=20.0), BLUE), "CVaR(0.1)": (CVaR(0.1, 20.0), ORANGE)}
    ways["CVaR(0.1, delta=0.05)"] = (CVaR(0.1, 20.0, 0.05), GREY)
    rng, counts = np.random.default_rng(0), (100, 200, 500, 1000, 2000, 5000)
    fig, ax = plt.subplots(figsize=(6.4, 3))
    for name, (calibrator, color) in ways.items():
        means = []
        for n in counts:
            drawn = [np.minimum(rng.exponential(size=n), 20.0) for _ in range(60)]
            made = [calibrator.calibrate(scores, Rows(np.zeros((n, 0))), 0.1) for scores in drawn]
            means.append(np.mean([each.mean_radius / tail_mean(grid, each.share) for each in made]))
        ax.plot(counts, means, "o-", color=color, label=name, markersize=4)
    ax.axhline(1.0, color=RED, linewidth=1)
    ax.set(xlabel="calibration rows", ylabel="bound over the truth", xscale="log", ylim=(0.9, 2.2))
    ax.legend(frameon=False, fontsize=8)
    save("mean", fig)


def frontier() -> None:
    """The mean bound against miscoverage, with its limits for all levels at once."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 1))
    Y = np.clip(20 + 3 * X + 3 * rng.normal(size=(1500, 1)), 0, 60)
    decider = ph.RobustDecider(ph.problems.newsvendor([1.0], [3.0]), "ridge", random_state=0).fit(X[:900], Y[:900])
    deciders = {alpha: decider.at(alpha) for alpha in (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2)}
    found = ph.certified_frontier(deciders, X[900:], Y[900:])
    fig, ax = plt.subplots(figsize=(6.4, 3))
    ax.plot(found["miscoverage"], found["bound"], "o-", color=BLUE, label="miscoverage of one that was named before")
    ax.plot(found["miscoverage_at_most"], found["bound"], "o-", color=ORANGE, label="at most, for all at once")
    for alpha, row in found.iterrows():
        ax.annotate(
            f"{alpha:g}", (row["miscoverage"], row["bound"]), (-16, -10), textcoords="offset points", fontsize=7
        )
    ax.set(xlabel="share of bounds that fail", ylabel="mean bound", xlim=(0, None), ylim=(5, 12))
    ax.legend(frameon=False, fontsize=8)
    save("frontier", fig)


if __name__ == "__main__":
    for draw in (what_if, total, by_groups, by_constraint, mean, frontier):
        draw()
