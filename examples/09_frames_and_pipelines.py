"""
Raw frames in, named frames out
===============================

A table as it comes: dates, categories, missing values. `decide` gives back a frame with the same index, the names of
the decisions, and a bound for each row.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import polyhedge as ph

rng = np.random.default_rng(5)
n = 900
days = pd.date_range("2023-01-01", periods=n, freq="D")
X = pd.DataFrame(
    {
        "day": days,
        "shop": rng.choice(["station", "market", "school"], n),
        "temperature": np.where(rng.random(n) < 0.08, np.nan, rng.normal(12, 8, n)),
        "holiday": rng.random(n) < 0.05,
    },
    index=pd.Index([f"d{k}" for k in range(n)], name="row"),
)
level = X["shop"].map({"station": 90, "market": 60, "school": 40}) * (1 + 0.3 * (days.day_of_week >= 5))
Y = pd.DataFrame(
    {
        "rolls": level * np.exp(0.2 * rng.normal(size=n)) * np.where(X["holiday"], 0.5, 1.0),
        "cakes": 0.4 * level * np.exp(0.3 * rng.normal(size=n)),
    },
    index=X.index,
).round()

# %%
# No column is prepared by hand. The predictor is chosen on the training rows among ridge, forest and boosting.

problem = ph.problems.newsvendor(overage=[1.0, 2.0], underage=[4.0, 6.0], names=["rolls", "cakes"])
decider = ph.RobustDecider(problem, guarantee="cost", random_state=0).fit(X[:700], Y[:700])
print(decider)

# %%
# The answer, by name and with the index of the rows that were asked.

answer = decider.decide(X[700:]).to_frame()
answer.head()

# %%
# One row in words.

print(decider.decide(X[700:])[0])

# %%

measured = decider.measure(X[700:], Y[700:])
fig, ax = plt.subplots(figsize=(6.4, 3.2))
for shop, color in zip(("station", "market", "school"), ("#1b4f7a", "#c98a3b", "#5f8f4e"), strict=True):
    own = (X["shop"][700:] == shop).to_numpy()
    ax.plot(measured.cost_bound[own], measured.realised[own], ".", color=color, label=shop)
ends = [measured.cost_bound.min(), measured.cost_bound.max()]
ax.plot(ends, ends, color="0.4", lw=1)
ax.set(xlabel="bound, known before", ylabel="cost that came")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Names decide: columns may come in any order, and what cannot be matched is refused. As the last step of a
# scikit-learn ``Pipeline`` a decider is reached by name: ``pipe[-1].decide(pipe[:-1].transform(rows))``.
