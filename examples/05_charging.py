"""
Charging a fleet against day-ahead prices
=========================================

Ten MWh have to be charged within a day, at most one in each hour. The 24 prices of tomorrow are not known; yesterday's
and last week's are. Real prices of the Netherlands (published by ENTSO-E, found in the package ev2gym, MIT), in time
order: 2015 to 2017 train, 2018 learns, 2019 calibrates, 2020 tests.

What a user would do instead: charge in the ten hours with the lowest forecast.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyhedge as ph
from polyhedge_study.real import day_ahead_prices

X, Y = day_ahead_prices()
years = X.index.year
parts = {"train": years <= 2017, "learn": years == 2018, "calibrate": years == 2019}
test = years == 2020

z = cp.Variable(24, bounds=[0, 1], name="charge")
problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 10], n_outcomes=24)
forecast = make_pipeline(StandardScaler(), Ridge(10.0))

# %%
# Three ways: a set for every schedule, a policy with a bound for its own schedule, and the ten cheapest hours of the
# forecast as the user's policy. The user's forecast has seen the training years only.

own_forecast = make_pipeline(StandardScaler(), Ridge(10.0)).fit(X[parts["train"]], Y[parts["train"]])


def cheapest_hours(rows):
    """One MWh in each of the ten hours with the lowest forecast."""
    ranks = np.argsort(np.argsort(own_forecast.predict(rows), axis=1), axis=1)
    return (ranks < 10).astype(float)


ways = {
    "set, every schedule": ph.RobustDecider(problem, forecast, guarantee="outcome", split="time", random_state=0),
    "policy, this schedule": ph.RobustDecider(problem, forecast, guarantee="cost", split="time", random_state=0),
    "cheapest hours": ph.RobustDecider(problem, forecast, policy=cheapest_hours, split="time", random_state=0),
}
schedules = {}
print(f"{'2020':24} {'bound':>7} {'realised':>9} {'held':>6}")
for name, decider in ways.items():
    decider.fit(X, Y, **parts)
    e = decider.evaluate(X[test], Y[test])
    schedules[name] = decider.decide(X[test]).z
    print(f"{name:24} {e.worst_case_cost:7.1f} {e.realised_cost:9.1f} {e.bound_held:6.3f}")

# %%
# How often each hour is charged. The set has to be large in 24 dimensions, and its schedule is nearly the same every
# day; the policy follows the forecast.

fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True)
for ax, (name, schedule) in zip(axes, schedules.items(), strict=True):
    ax.imshow(schedule.T, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.set(title=name, xlabel="day of 2020")
axes[0].set_ylabel("hour")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** If you take one schedule, ask for a bound on one schedule: the set is higher in bound and in cost. The
# policy does not win against the simplest rule here. For a cost that is linear in the prices, the cheapest hours are
# nearly optimal. In 2020 prices fell, and bounds from 2019 held about as often as promised. The example on the price
# crisis shows what happened in 2021.
