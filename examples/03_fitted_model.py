"""
A model that is fitted already
==============================

Often the forecast exists: it was trained last year, by another team, on other rows. Wrapped as it is, it costs no rows:
all of them learn and calibrate. A biased forecast is as valid, and costs little more, because the policy learns the
bias; what costs is a forecast that knows less.

The rows are real: riders of the bike share of Washington, hour by hour through 2011, casual and registered (in the
package ISLP, BSD-3-Clause). How many bikes should stand ready for either? One that stands idle costs 1, one that is
missing 4. In time order: the first half trains the forecast, the last fifth tests.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator

import polyhedge as ph
from polyhedge_study.real import bike_riders

X, Y = (table.astype(float) for table in bike_riders())
theirs, ours, test = np.split(np.arange(len(X)), [len(X) // 2, 4 * len(X) // 5])
forest = RandomForestRegressor(n_estimators=60, min_samples_leaf=5, random_state=0)
forest.fit(X.iloc[theirs].to_numpy(), Y.iloc[theirs])
problem = ph.problems.newsvendor(1.0, 4.0, names=list(Y.columns))

# %%
# Three forecasts: the forest, the forest with a bias that nobody noticed, and no model at all: as many as a week ago.


def biased(rows):
    """The forest, always twenty riders too high."""
    return forest.predict(rows) + 20


def last_week(rows):
    """As many as a week ago; these columns are part of X."""
    return rows[:, [X.columns.get_loc(f"{name}_week") for name in Y.columns]]


forecasts = {"forest": FrozenEstimator(forest), "biased forest": biased, "last week": last_week}
rows = {"X": X.iloc[ours].to_numpy(), "Y": Y.iloc[ours].to_numpy()}
X_test, Y_test = X.iloc[test].to_numpy(), Y.iloc[test].to_numpy()
decided = {}
for name, predictor in forecasts.items():
    decider = ph.RobustDecider(problem, predictor, split="time", random_state=0).fit(**rows)
    decided[name] = decider.decide(X_test)

# %%
# What a user would do instead: have ready what the forest says, or decide against a box of intervals, one for each kind
# of riders, each with half of the risk (Bonferroni). The forest gets its bound through `policy=`.

trusted = ph.RobustDecider(problem, FrozenEstimator(forest), policy=forest.predict, split="time", random_state=0)
decided["trust the forest"] = trusted.fit(**rows).decide(X_test)

errors = np.abs(rows["Y"] - forest.predict(rows["X"]))
box = ph.Box([ph.conformal_radius(column, 0.1 / 2) for column in errors.T])
decided["Bonferroni box"] = ph.robust.decide(problem, box, 1.0, forest.predict(X_test))

figures = {}
print(f"{'':18} {'bound':>6} {'cost':>6} {'held':>6} {'bound if 9 of 10 had held':>26}")
for name, d in decided.items():
    came = problem.evaluate(d.z, Y_test)
    bound, excess = d.cost_bound.mean(), came - d.cost_bound
    figures[name] = bound, came.mean(), (excess <= 0).mean()
    level = bound + np.quantile(excess, 0.9)
    print(f"{name:18} {bound:6.1f} {came.mean():6.1f} {figures[name][2]:6.3f} {level:26.1f}")

# %%
# The bound that was known before, the mean cost that came, and the share of hours whose bound held.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), sharey=True, width_ratios=(2, 1))
places = np.arange(len(figures))
bounds, costs, held = np.array(list(figures.values())).T
left.barh(places, bounds, color="#9bb8d3", label="bound")
left.plot(costs, places, "o", color="#1b4f7a", label="cost that came")
left.set(xlabel="mean of an hour", yticks=places, yticklabels=figures)
left.invert_yaxis()
left.legend(frameon=False)
right.plot(held, places, "o", color="#1b4f7a")
right.axvline(0.9, color="0.5", ls="--", lw=1)
right.set(xlabel="share of hours that held", xlim=(0.8, 1.0))
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Any forecast can be wrapped; what it knows decides what the promise costs. A bias that is the same at
# every hour costs next to nothing on average, because the learning rows show it, and raises the bound by a tenth.
# Trusting the forest, or a box around it, costs more in both: a missing bike is more expensive than an idle
# one, and neither knows. Where we do not win: autumn is unlike the summer before it, and in time order the policy's low
# bounds held less often than promised. The last column compares bounds at equal coverage.
