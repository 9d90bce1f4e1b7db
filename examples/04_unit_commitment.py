"""
Which plants to start, and how much to hold
===========================================

Integers: each of three plants is on or off for the whole day, and a plant that is on has a least output. The load of
two zones is not known; what is short is bought at a penalty. Starting a plant is cheap beside a shortage and dear
beside an idle night, so it pays to know how high the load may go.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

import polyhedge as ph

rng = np.random.default_rng(2)

# %%
# Two zones whose load follows temperature, with errors that are correlated and larger on cold days.


def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Temperature and weekday, and the load of both zones."""
    cold, weekday = rng.gamma(2.0, 4.0, n), rng.integers(0, 2, n)
    noise = rng.multivariate_normal([0, 0], [[9, 6], [6, 9]], n) * (0.6 + 0.05 * cold[:, None])
    load = np.column_stack([40 + 1.2 * cold + 10 * weekday, 25 + 0.8 * cold + 5 * weekday])
    return np.column_stack([cold, weekday]), load + noise


X, Y = draw(800)
capacity, least = np.array([50.0, 40.0, 30.0]), np.array([20.0, 10.0, 5.0])
start, fuel, penalty = np.array([60.0, 45.0, 20.0]), np.array([1.0, 1.6, 2.4]), 12.0

on, power = cp.Variable(3, boolean=True), cp.Variable(3, nonneg=True)
problem = ph.DecisionProblem(
    decision={"on": on, "power": power},
    cost=lambda z, u: start @ z["on"] + fuel @ z["power"] + penalty * cp.pos(cp.sum(u) - cp.sum(z["power"])),
    constraints=[power <= cp.multiply(capacity, on), power >= cp.multiply(least, on)],
    n_outcomes=2,
)

# %%
# Three ways with the same promise: the default, a set that guards every schedule, and what a user would do instead, the
# best schedule if the forecast were true. This rule has a forecast of its own, from the training rows alone.

train, learn, calibrate, test = np.split(np.arange(800), [300, 450, 600])
own_forecast = Ridge().fit(X[train], Y[train])


def trust_the_forecast(rows):
    """The best plants and outputs for the load that is forecast: a set of size 0."""
    return ph.robust.decide(problem, ph.sets.Box([1.0, 1.0]), 0.0, own_forecast.predict(rows)).z


ways = {
    "planned (default)": ph.RobustDecider(problem, Ridge(), random_state=0),
    "set, every schedule": ph.RobustDecider(problem, Ridge(), guarantee="outcome", random_state=0),
    "trust the forecast": ph.RobustDecider(problem, Ridge(), plan=trust_the_forecast, random_state=0),
}
decided = {}
print(f"{'':20} {'bound':>6} {'cost':>6} {'held':>6}  days with plant 1, 2, 3")
for name, decider in ways.items():
    decider.fit(X, Y, train=train, learn=learn, calibrate=calibrate)
    d = decided[name] = decider.decide(X[test])
    costs, days = problem.evaluate(d.z, Y[test]), d["on"].sum(axis=0).astype(int)
    held = (costs <= d.cost_bound).mean()
    print(f"{name:20} {d.cost_bound.mean():6.1f} {costs.mean():6.1f} {held:6.3f}  {days}")

# %%
# Capacity that runs against the load that came; `decisions["on"]` and `decisions["power"]` are the variables by name.

load, expected = Y[test].sum(axis=1), own_forecast.predict(X[test]).sum(axis=1)
order = np.argsort(expected)
fig, ax = plt.subplots(figsize=(8, 3.2))
ax.plot(load[order], ".", color="0.6", ms=4, label="load that came")
for (name, decisions), color in zip(decided.items(), ("#1b4f7a", "#c98a3b", "#4f86b5"), strict=True):
    output = decisions["power"].sum(axis=1)
    ax.plot(output[order], color=color, lw=1, drawstyle="steps-mid", label=name)
ax.set(xlabel="days, by forecast", ylabel="MW")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Both keep a margin above the forecast, and plants start where the margin needs them; whoever trusts the
# forecast has the highest bound, and the highest mean cost as well. The default does not win everything: its plan has
# the least mean cost, but the set has the lower bound. A plan of whole numbers is one rule, chosen on few rows because
# each takes a search, and cannot be a mean of several; if the bound is what counts, ask for
# ``guarantee="outcome"``, before you look at bounds.
