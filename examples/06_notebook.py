"""
A raw data frame in a notebook
==============================

A bakery's days as they come from a file: dates, texts, flags and gaps. What comes out has your index and your names,
and says how often its bounds hold.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import polyhedge as ph

# %%
# What was known in the morning, and what was asked for. Your own frame takes its place: pandas, polars or pyarrow.
rng = np.random.default_rng(0)
n = 500
X = pd.DataFrame(
    {
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), unit="D"),
        "weather": rng.choice(["sun", "rain", "snow"], n, p=[0.6, 0.3, 0.1]),
        "holiday": rng.random(n) < 0.1,
        "temperature": np.where(rng.random(n) < 0.1, np.nan, rng.normal(12.0, 6.0, n).round(1)),
    },
    index=pd.Index([f"day {k}" for k in range(n)], name="case"),
)
level = 60 + 25 * (X["day"].dt.day_of_week >= 5) + 15 * (X["weather"] == "sun") - 20 * X["holiday"]
Y = pd.DataFrame({"rolls": 2 * level, "bread": level}, index=X.index) + rng.normal(0.0, 6.0, (n, 2))
X.head()

# %%
# A roll or a loaf too many costs 1, one too few costs 4. The columns are understood from the training rows, and the
# predictor is chosen on them.
problem = ph.problems.newsvendor(overage=1.0, underage=4.0, names=["rolls", "bread"])
problem = problem.labelled(units={"cost": "EUR", "order_rolls": "pieces", "order_bread": "loaves"})
decider = ph.RobustDecider(problem, learner=ph.learners.OneSidedBox(), random_state=0)
decider.fit(X[:440], Y[:440])

# %%
# Decisions for the days that follow. ``to_frame()`` gives all of them as a frame like the one that came in.
decisions = decider.decide(X[440:])
decisions

# %%
# One of them in words, and how promise and reality compare, over all days and by the weather. Every figure is a number
# with its error.
print(decisions[0])
evaluation = decider.evaluate(X[440:], Y[440:], by="weather")
print(f"covered {evaluation.coverage:.1%}", "as promised" if evaluation.coverage.high > 0.9 else "less than promised")
evaluation

# %%
# The same fit at another level, from the same calibration rows.
print(decider.at(alpha=0.05).decide(X[440:441])[0])

# %%
# Before each day: what it costs at most. After it: what it cost.
days, costs = X["day"][440:], decider.measure(X[440:], Y[440:]).realised
fig, ax = plt.subplots(figsize=(7, 2.8))
ax.bar(days, decisions.cost_bound, color="#cfe1f2", label="bound, known before")
kept = costs <= decisions.cost_bound
ax.plot(days[kept], costs[kept], "o", ms=4, color="#1f6fb2", label="cost, known after")
ax.plot(days[~kept], costs[~kept], "o", ms=4, color="#d1242f", label="above its bound")
ax.set(ylabel="cost of a day")
ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
fig.autofmt_xdate()
plt.show()

# %%
# **Lesson.** Frames go in as they are and come out with your index and your names; every figure is a number.
