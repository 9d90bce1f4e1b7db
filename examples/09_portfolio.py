"""
Twenty shares, and the most a week may lose
===========================================

Split a budget over twenty shares of the S&P 500 (weekly losses in per cent, from prices in the package skfolio,
BSD-3-Clause). Nobody forecasts these well; what can be had is a portfolio whose loss of a week stays below a stated
bound in nine weeks of ten.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.dummy import DummyRegressor

import polyhedge as ph
from polyhedge_study.real import share_losses

X, Y = share_losses()
X, Y = X.iloc[-1200:], Y.iloc[-1200:]
past, test = (X.iloc[:900], Y.iloc[:900]), (X.iloc[900:], Y.iloc[900:])

z = cp.Variable(20, nonneg=True, name="share")
problem = ph.DecisionProblem(
    decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=20, decision_names=list(Y.columns)
)


def even(rows):
    """The portfolio that needs no data."""
    return np.full((len(rows), 20), 1 / 20)


mean = DummyRegressor()
ways = {
    "Polyhedge": ph.RobustDecider(problem, mean, guarantee="cost", split="time", random_state=0),
    "one-sided box": ph.RobustDecider(problem, mean, learner=ph.learners.OneSidedBox(), split="time", random_state=0),
    "a twentieth each": ph.RobustDecider(problem, mean, policy=even, split="time", random_state=0),
}
bounds, losses = {}, {}
print(f"{'':20} {'bound':>6} {'mean loss':>9} {'held':>6} {'bound if 9 of 10 had held':>26}")
for name, decider in ways.items():
    decisions = decider.fit(*past).decide(test[0])
    bounds[name] = decisions.cost_bound
    losses[name] = (decisions.z * test[1].to_numpy()).sum(axis=1)
    excess = losses[name] - bounds[name]
    level = bounds[name].mean() + np.quantile(excess, 0.9)
    print(f"{name:20} {bounds[name].mean():6.2f} {losses[name].mean():9.2f} {(excess <= 0).mean():6.3f} {level:26.2f}")

# %%
# Week by week: the bound of the portfolio follows the recent volatility.

fig, ax = plt.subplots(figsize=(8, 3))
ax.plot(test[0].index, losses["Polyhedge"], ".", ms=3, color="0.5", label="loss of the portfolio")
ax.plot(test[0].index, bounds["Polyhedge"], color="#1b4f7a", label="its bound")
ax.plot(test[0].index, bounds["a twentieth each"], color="#c98a3b", lw=1, label="bound of a twentieth each")
ax.set(ylabel="loss of a week, %", ylim=(-8, 14))
ax.legend(frameon=False, ncols=3, fontsize=8)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A set with a limit for each share promises little: the worst weeks of twenty shares do not come
# together. A twentieth each has gained a little more, and lost more in bad weeks: its bound is higher and held less
# often. The last column compares bounds at equal coverage. In time order the promise is as good as the past
# resembles the future: 2020 was in nobody's past, and the share of weeks that held says so.
