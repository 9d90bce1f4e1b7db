"""
Quick start
===========

From data and a decision problem to decisions with a cost bound. Run it with ``python examples/01_quickstart.py``.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor

import polyhedge as ph

# Your own data take the place of these: rows X, and the outcomes Y that followed.
X_all, Y_all = ph.data.make_synthetic(2800, rng=np.random.default_rng(0))
X, X_fresh, X_test = np.split(X_all, [1800, 2300])
Y, Y_fresh, Y_test = np.split(Y_all, [1800, 2300])
X_new = X_test[:5]

# Split a unit budget over two actions. The outcome u is what a unit of each costs; lopsided splits cost extra.
c = np.array([-0.08, 0.0])
z = cp.Variable(2, nonneg=True)
problem = ph.DecisionProblem(
    decision=z,
    cost=lambda z, u: (c + u) @ z + 0.08 * cp.square(z[0] - z[1]),
    constraints=[cp.sum(z) == 1],
    n_outcomes=2,
)

# fit splits the rows into train / learn / calibrate: the first two make a plan, the third calibrates its bound.
decider = ph.RobustDecider(problem, predictor=RandomForestRegressor(), alpha=0.1, random_state=0)
decider.fit(X, Y)

d = decider.decide(X_new)
for i in range(len(d)):
    print(f"z = {d.z[i].round(3)}, costs at most {d.cost_bound[i]:.3f}, {d.expected_cost[i]:.3f} in the mean")
print(decider.plan_.why())

# A set guards every decision at once, for a higher bound: {u : W u <= h}.
robust = ph.RobustDecider(problem, RandomForestRegressor(), alpha=0.1, guarantee="outcome", random_state=0).fit(X, Y)
region = robust.region(X_new[0])
print(f"\n{len(region.h)} facets, {len(region.vertices())} vertices, volume {float(region.volume()):.3g}")

report = decider.evaluate(X_test, Y_test)
print(f"\n{report}")

# A new margin from fresh rows; the plan stays.
before = decider.radius_
decider.recalibrate(X_fresh, Y_fresh)
print(f"\nmargin {before:.4f} -> {decider.radius_:.4f}")

# What the decisions cost, against what they were said to cost at most.
decisions, costs = decider.decide(X_test), decider.measure(X_test, Y_test).realised
fig, ax = plt.subplots(figsize=(4.6, 4.2))
ax.plot(decisions.cost_bound, costs, ".", ms=4, color="#4f86b5")
ends = [decisions.cost_bound.min(), decisions.cost_bound.max()]
ax.plot(ends, ends, color="0.3", lw=1)
ax.set(xlabel="bound, known before", ylabel="cost, known after", title="Nine points of ten lie below the line")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A bound is known before its cost and holds in nine cases of ten, whatever the forest is worth. What it
# buys is that, and not a lower mean: ``over nominal`` above tells what it costs against trusting the forecast.
