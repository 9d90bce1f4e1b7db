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


X, Y = draw(1600)
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
# Fit and decide. `decisions["on"]` and `decisions["power"]` are the variables by name.

decider = ph.RobustDecider(problem, alpha=0.1, guarantee="outcome", random_state=0).fit(X[:1200], Y[:1200])
test = slice(1200, 1600)
decisions = decider.decide(X[test])
print(decider.evaluate(X[test], Y[test]))
print("plants on:", decisions["on"].sum(axis=0).astype(int), "of", len(decisions), "days")

# %%
# Capacity that runs against the load that came.

output, load = decisions["power"].sum(axis=1), Y[test].sum(axis=1)
expected = decider.centers(X[test]).sum(axis=1)
order = np.argsort(expected)
fig, ax = plt.subplots(figsize=(8, 3.2))
ax.plot(load[order], ".", color="0.6", ms=4, label="load that came")
ax.plot(expected[order], color="#4f86b5", lw=1, label="forecast")
ax.plot(output[order], color="#1b4f7a", drawstyle="steps-mid", label="output decided")
ax.set(xlabel="days, by forecast", ylabel="MW")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** The decision keeps a margin above the forecast that grows where errors grow, and plants start where the
# margin needs them; each row was solved to proven optimality.
