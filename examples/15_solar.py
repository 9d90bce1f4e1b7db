"""
A solar plant with a battery
============================

A plant of 10 MW sells the energy of tomorrow before it knows the sun or the price (production and prices of 2019 in the
Netherlands, from the package ev2gym, MIT). Its battery of 10 MWh is used once the sun is known. What is missing then is
bought for 90 EUR/MWh, what is left over is sold for 10. How much does the day earn at least, in nine days of ten?

What a user would do instead: fix the use of the battery together with the sale.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyhedge as ph
from polyhedge_study.real import solar_market

X, Y = solar_market()
order = np.random.default_rng(0).permutation(len(Y))
train, learn, calibrate, test = np.split(order, [160, 230, 290])
print(Y.mean().round(1).to_string())

# %%
# Four parts of the day. The sale is decided now, and the price multiplies it. The battery is recourse.

stored, sold = np.tril(np.ones((4, 4))), cp.Variable(4, bounds=[0, 30], name="sold")
charge, empty = (cp.Variable(4, bounds=[0, 30], name=name) for name in ("charge", "empty"))


def cost(z, u, y):
    """What is bought less what is earned: below zero is a profit."""
    missing = z - 10 * u[:4] - y["empty"] + y["charge"]
    return 80 * cp.sum(cp.pos(missing)) + 10 * cp.sum(missing) - u[4:] @ z


def battery(z, u, y):
    """Nine tenths of what is stored come back."""
    level = stored @ (0.9 * y["charge"] - y["empty"])
    return [level >= 0, level <= 10]


problem = ph.DecisionProblem(
    decision=sold, recourse={"charge": charge, "empty": empty}, n_outcomes=8, cost=cost, recourse_constraints=battery
)
forecast = make_pipeline(StandardScaler(), Ridge(10.0))
decider = ph.RobustDecider(problem, forecast, guarantee="cost", random_state=0)
decider.fit(X.to_numpy(), Y.to_numpy(), train=train, learn=learn, calibrate=calibrate)
now = decider.decide(X.to_numpy()[test])
later = decider.repair(X.to_numpy()[test], Y.to_numpy()[test], now)
print(f"earns at least {-now.cost_bound.mean():.0f} EUR a day, earned {-later.cost.mean():.0f}")
print(f"held on {later.is_within.mean():.0%} of {len(later)} days")

# %%
# The mean day: what was sold ahead, and what the battery did once the sun was known.

fig, ax = plt.subplots(figsize=(7, 3))
hours = np.array(["6-9", "9-12", "12-15", "15-18"])
ax.bar(hours, now["sold"].mean(axis=0), color="#1f6fb2", label="sold ahead")
ax.bar(hours, later["empty"].mean(axis=0), color="#c98a3b", width=0.3, label="from the battery")
ax.bar(hours, -later["charge"].mean(axis=0), color="#888888", width=0.3, label="into the battery")
ax.set(xlabel="hour (UTC)", ylabel="MWh")
ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
fig.tight_layout()
plt.show()

# %%
# **Lesson.** The battery is worth more when it may wait for the sun. The floor under the profit already counts on it.
