"""
Four promises that a bakery chain signs
=======================================

Who is promised what? A shop asks about its day, the treasurer about the week of the whole chain, the works council
about every shop, weekday and holiday, and the insurer about the worst days. Demand of a bakery chain, day by day (in
the package ddop2, Apache 2.0). One model decides; four calibrations of it make four promises.

What a user would do instead: add up the bounds of single days for the week, and show the insurer the worst day so far.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

from copy import copy

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import polyhedge as ph
from polyhedge.calibration import ByGroups, CVaR, Total
from polyhedge_study.real import bakery_demand

X, Y = bakery_demand(n_shops=8)
week = ((X.index - X.index.min()).days // 7).to_numpy()
shops = pd.get_dummies(X["store"]).astype(float).add_prefix("shop_")
kinds = pd.DataFrame(
    {
        "shop": X["store"].to_numpy(),
        "weekday": X.index.day_of_week.astype(str),
        "holidays": np.where(X["is_schoolholiday"] > 0, "yes", "no"),
    }
)
groups = pd.get_dummies(kinds)
X = X.drop(columns="store").astype(float).assign(**shops.iloc[:, 1:]).reset_index(drop=True)
Y = Y.reset_index(drop=True)

# %%
# One model. Whole weeks train, calibrate or test: days of one week have the same weather.

most = 2000.0  # pieces that a shop could sell on one day at most, agreed with the insurer
problem = ph.problems.newsvendor(1.0, [3.0] * 3, names=list(Y.columns))
chain = ph.RobustDecider(problem, "ridge", calibration=Total(week), split=(0.35, 0.15, 0.3, 0.2), random_state=0)
chain.fit(X, Y)
calibrate, test = chain.split_.calibrate, chain.split_.held_out


def promised(calibration, alpha, labels=None):
    """The same decisions with another promise, from the same calibration rows."""
    own = copy(chain).set_params(calibration=calibration, alpha=alpha)
    rows = X.iloc[calibrate], Y.iloc[calibrate]
    return own.recalibrate(*rows, labels=None if labels is None else labels[calibrate])


# %%
# Each promise holds by itself at 90 %. Signed together, they hold together at 90 % if each has a quarter of the level.

features, rows = groups.to_numpy(float), []
for level in (0.1, 0.025):
    total = promised(Total(week), level, week)
    by_groups = promised(ByGroups(features), level, features)
    worst = promised(CVaR(0.1, largest=3.0 * most, delta=level), level)
    decided = total.decide(X.iloc[test], labels=week[test])
    costs = problem.evaluate(decided.flat, Y.iloc[test].to_numpy())
    weekly = pd.Series(costs).groupby(week[test].astype(str)).sum()  # totals name blocks by texts
    totals = decided.totals()["cost_bound"]
    grouped = by_groups.decide(X.iloc[test], labels=features[test]).cost_bound
    held = [(costs <= grouped)[features[test][:, k] == 1].mean() for k in range(features.shape[1])]
    tail = worst.evaluate(X.iloc[test], Y.iloc[test]).risk
    single = decided.cost_bound.mean() * len(test) / len(weekly)
    print(
        f"level {level}: bounds of a week's days add up to {single:.0f}, the bound of the week is {totals.mean():.0f}"
    )
    rows += [
        ("a day of a shop", level, costs.mean(), decided.cost_bound.mean(), (costs <= decided.cost_bound).mean()),
        ("a week of the chain", level, weekly.mean(), totals.mean(), (weekly <= totals).mean()),
        ("a day, in 17 groups", level, costs.mean(), grouped.mean(), min(held)),
        ("the worst tenth of days", level, tail[1], tail[2], float(tail[1] <= tail[2])),
    ]
signed = pd.DataFrame(rows, columns=["promise", "level", "cost", "bound", "held"])
print(signed.round(3).to_string(index=False))

# %%
# What each signature costs: the bound over the mean cost, alone and with the three others.

fig, ax = plt.subplots(figsize=(7, 2.8))
names, place = signed["promise"].unique(), np.arange(4)
for shift, level, color, text in ((-0.2, 0.1, "#9fc3e0", "alone"), (0.2, 0.025, "#1b4f7a", "all four together")):
    own = signed[signed["level"] == level]
    ax.barh(place + shift, own["bound"] / own["cost"], 0.38, color=color, label=text)
ax.set_yticks(place, names)
ax.invert_yaxis()
ax.set(xlabel="bound over the mean cost")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** One model carries all four signatures, because calibration moves bounds and no decision. The week's bound
# lies a third below the sum of its days, for errors of single days cancel out. A promise within each shop, weekday and
# holiday costs nothing here; it counts days one by one, though days of a week are alike, and its worst group was missed
# a little too often. Weeks count once. So signing all four together is expensive where there are only 51 of them: the
# bound for a day of a new week trebles, and that of the week rises by a tenth.
