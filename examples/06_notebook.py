"""
A raw data frame in a notebook
==============================

A bakery's days as they come from a file: dates, texts, flags and gaps. What comes out has your index and your names,
and says how often its bounds hold.

The file is real: demand for three products of a bakery chain, 2016 to 2019 (in the package ddop2, Apache 2.0). Its
column ``weekday`` is a day off its date and is left out; the date says it too.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import matplotlib.pyplot as plt
import pandas as pd

import polyhedge as ph
from polyhedge_study.real import bakery_rows

# %%
# The file has a row for each day, shop and product. A decision is about all products of a shop for a day, so the
# products become columns. What was asked for a week before is not known in the first week, and no gap has to be filled.

raw = bakery_rows(n_shops=2).query("date >= '2018-01-01'")
keys, products = ["date", "store"], {101: "rolls", 109: "bread", 110: "cake"}  # the file has numbers only
Y = raw.pivot(index=keys, columns="product", values="demand").rename(columns=products)
known = ["month", "is_holiday", "is_schoolholiday", "rain", "temperature"]
X = raw.groupby(keys)[known].first().reset_index()
X = X.astype({"store": str, "is_holiday": bool, "is_schoolholiday": bool})
X = X.join(Y.groupby("store").shift(7).add_suffix("_week").reset_index(drop=True))
X.index = Y.index = pd.Index([f"shop {shop}, {day:%d %b %Y}" for day, shop in Y.index], name="delivery")
X.iloc[[0, 1, -2, -1]]

# %%
# A piece too many costs 1, one too few 2. The columns are understood from the training rows, and the predictor is
# chosen on them. Later days will be decided, so the rows are split in time.

problem = ph.problems.newsvendor(overage=1.0, underage=2.0, names=list(Y.columns))
problem = problem.labelled(units={"cost": "EUR"} | {f"order_{name}": "pieces" for name in Y.columns})
n = 160  # the last eighty days of both shops
past, test = (X[:-n], Y[:-n]), (X[-n:], Y[-n:])
decider = ph.RobustDecider(problem, split="time", random_state=0).fit(*past)

# %%
# Decisions for the days that follow. ``to_frame()`` gives all of them as a frame like the one that came in.

decisions = decider.decide(test[0])
decisions

# %%
# One of them in words, and how promise and reality compare, over all days and by shop. Every figure is a number with
# its error.

print(decisions[0])
evaluation = decider.evaluate(*test, by="store")
print(f"held {evaluation.bound_held:.1%}:", "as promised" if evaluation.bound_held.high > 0.9 else "less than promised")
evaluation

# %%
# What one would do instead: as much as a week ago, or a tenth more. A policy of your own gets a bound in one line; it
# sees the columns of the frame.


def as_last_week(rows):
    """Orders: what was asked for a week ago."""
    return rows[[f"{name}_week" for name in Y.columns]].to_numpy(dtype=float)


rows = {"Polyhedge": (decider, evaluation)}
first = X["rolls_week"].isna().sum()  # the rule cannot decide rows of the first week
for name, policy in {"as last week": as_last_week, "a tenth more": lambda rows: 1.1 * as_last_week(rows)}.items():
    bounded = ph.RobustDecider(problem, policy=policy, split="time", random_state=0).fit(X[first:-n], Y[first:-n])
    rows[name] = bounded, bounded.evaluate(*test)
pd.DataFrame(
    {name: [float(e.worst_case_cost), float(e.realised_cost), float(e.bound_held)] for name, (_, e) in rows.items()},
    index=["bound", "cost", "held"],
).T.round(3)

# %%
# The same fit at another level, from the same calibration rows.

print(decider.at(alpha=0.05).decide(test[0][:1])[0])

# %%
# Before each day: what it costs at most. After it: what it cost.

shop = (test[0]["store"] == test[0]["store"].iloc[0]).to_numpy()
days, bounds = test[0]["date"][shop], decisions.cost_bound[shop]
costs = decider.measure(*test).realised[shop]
fig, ax = plt.subplots(figsize=(7, 2.8))
ax.bar(days, bounds, color="#cfe1f2", label="bound, known before")
kept = costs <= bounds
ax.plot(days[kept], costs[kept], "o", ms=4, color="#1f6fb2", label="cost, known after")
ax.plot(days[~kept], costs[~kept], "o", ms=4, color="#d1242f", label="above its bound")
ax.set(ylabel="EUR, one shop")
ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
fig.autofmt_xdate()
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Frames go in as they are and come out with your index and your names; every figure is a number. Ordering
# as much as a week ago is a hard habit to break, and here an expensive one: its bound and its cost are both higher.
