"""
A model that is fitted already
==============================

Often the forecast exists: it was trained last year, by another team, on other rows. Wrapped as it is, it costs no rows:
all of them learn and calibrate. A biased forecast is as valid, and costs little more, because the plan learns the bias;
what costs is a forecast that knows less.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator

import polyhedge as ph

X, Y = ph.data.make_synthetic(2600, rng=np.random.default_rng(1))
Y = np.maximum(3 + Y, 0)  # demand for two products
forecast = RandomForestRegressor(min_samples_leaf=5, random_state=0).fit(X[:1000], Y[:1000])
problem = ph.problems.newsvendor([1.0, 1.0], [4.0, 4.0], n_outcomes=2)

# %%
# Three forecasts: the forest, the forest with a bias that nobody noticed, and none at all (the mean of last year).


def biased(rows: np.ndarray) -> np.ndarray:
    """The forest, always too high."""
    return forecast.predict(rows) + 0.3


def mean(rows: np.ndarray) -> np.ndarray:
    """The same for every row."""
    return np.tile(Y[:1000].mean(axis=0), (len(rows), 1))


results = {}
for name, predictor in {"forest": FrozenEstimator(forecast), "biased forest": biased, "mean": mean}.items():
    decider = ph.RobustDecider(problem, predictor, alpha=0.1, random_state=0).fit(X[1000:2000], Y[1000:2000])
    results[name] = decider.evaluate(X[2000:], Y[2000:])
    print(f"{name}\n{results[name]}\n")

# %%
# The share of rows whose bound held, and what the bound was.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True)
places = np.arange(len(results))
held = [e.bound_held for e in results.values()]
left.errorbar(held, places, xerr=[[h - h.low for h in held], [h.high - h for h in held]], fmt="o", color="#1b4f7a")
left.axvline(0.9, color="0.5", ls="--", lw=1)
left.set(xlabel="share of rows whose bound held", yticks=places, yticklabels=results)
right.barh(places, [e.worst_case_cost for e in results.values()], color="#9bb8d3", label="bound")
right.plot([e.realised_cost for e in results.values()], places, "o", color="#1b4f7a", label="realised cost")
right.set(xlabel="mean cost")
right.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Validity does not depend on the forecast; the price depends on what it knows, and hardly on a bias, which
# the learning rows show. The forest must not have seen the 1000 rows that learn and calibrate: that is why it was
# trained on others.
