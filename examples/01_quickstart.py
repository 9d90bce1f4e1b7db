"""
Quick start
===========

From a data frame and a decision problem to decisions with a cost bound, in one page. Run it with
``python examples/01_quickstart.py``; it needs nothing from the net.

The rows are the Energy Efficiency data of A. Tsanas and A. Xifara (UCI Machine Learning Repository, CC BY 4.0), which
come with Polyhedge: 192 building designs in four orientations, with the heating and the cooling load that a building
simulator gave each of them.

It needs ``pip install 'polyhedge[plot]'``.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor

import polyhedge as ph

# %%
# Your own frame takes the place of these: what is known of each row, and the outcomes that followed. The four
# orientations of a building are near-copies of each other. ``building`` says so, and is no feature.

tables = ph.data.make_example("energy")
outcomes, group = list(tables.outcomes), "building"
X, Y = tables.history.drop(columns=[*outcomes, group]), tables.history[outcomes]
X_test, Y_test = tables.fresh[X.columns], tables.fresh[outcomes]
print(Y.describe().loc[["mean", "min", "max"]].round(1))

# %%
# How much heating and cooling to install before the loads are known: a unit costs 1 and 1.5, a unit that is missing 6.
# Both share a budget of 60 units.

price, budget = np.array([1.0, 1.5]), 60.0
z = cp.Variable(2, nonneg=True, name="install")
problem = ph.DecisionProblem(
    decision=z, cost=lambda z, u: price @ z + 6 * cp.sum(cp.pos(u - z)), constraints=[cp.sum(z) <= budget], n_outcomes=2
)

# %%
# `fit` deals the buildings into three parts: the first two make a policy, the third calibrates its bound.

own = {"alpha": 0.1, "random_state": 0}
forest = RandomForestRegressor(n_estimators=25, random_state=0)
decider = ph.RobustDecider(problem, forest, **own)
decider.fit(X, Y, groups=tables.history[group])
decisions = decider.decide(X_test)
for row in range(3):
    print(f"install {decisions.z[row].round(1)}: costs at most {decisions.cost_bound[row]:.1f}")
print(decider.policy_.why())

# %%
# What one would do instead, with the same rows: install what the forest says, or decide against every outcome of a
# learned set. The user's own policy gets its bound by the same calibration.


class WhatTheForestSays(RandomForestRegressor):
    """Trained on the training rows; its predictions are the decisions."""

    def predict(self, X):
        """The forecast, cut back to the budget."""
        loads = super().predict(X)
        return loads * np.minimum(1.0, budget / loads.sum(axis=1, keepdims=True))


rule = WhatTheForestSays(n_estimators=25, random_state=0)
ways = {
    "Polyhedge": decider,
    "trust the forecast": ph.RobustDecider(problem, forest, policy=rule, **own).fit(X, Y, groups=tables.history[group]),
    "learned set": ph.RobustDecider(problem, forest, guarantee="outcome", **own).fit(
        X, Y, groups=tables.history[group]
    ),
}
print(f"{'':20} {'bound':>6} {'cost':>6} {'held':>6}")
for name, way in ways.items():
    e = way.evaluate(X_test, Y_test)
    print(f"{name:20} {float(e.worst_case_cost):6.1f} {float(e.realised_cost):6.1f} {float(e.bound_held):6.3f}")

# %%
# A set has a bounded region to look at. The plot shows the cost of the default's decisions against their bounds.

region = ways["learned set"].region(X_test.iloc[:1])
print(f"{len(region.h)} facets, {len(region.vertices())} vertices, volume {float(region.volume()):.3g}")

costs = decider.measure(X_test, Y_test).realised
fig, ax = plt.subplots(figsize=(4.6, 4.2))
ax.plot(decisions.cost_bound, costs, ".", ms=4, color="#4f86b5")
ends = [decisions.cost_bound.min(), decisions.cost_bound.max()]
ax.plot(ends, ends, color="0.3", lw=1)
share = np.mean(costs <= decisions.cost_bound)
ax.set(xlabel="bound, known before", ylabel="cost, known after", title=f"{share:.0%} of points lie below the line")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A bound is known before its cost and holds in nine cases out of ten, whatever the forest is worth. It does
# not lower the mean cost: installing what the forest says costs about the same on average. The set bounds every
# decision, also one that is changed later, at a higher price. Take the warning above seriously: with few buildings to
# calibrate on, one model may cover more or less than promised.
