"""
Bakeries that help each other out
=================================

Six shops of a bakery chain order bread for tomorrow (demand from the package ddop2, Apache 2.0). What is left over
costs 1, what is missing 4. Once demand is known, bread can be moved from shop to shop for 1 each. The order of today
then has two jobs: to serve each shop, and to be moved where it is needed. What do both decisions cost at most?

What a user would do instead: order for each shop by itself, and move bread afterwards without a plan.

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import polyhedge as ph
from polyhedge_study.recourse import CASES

case = CASES["bakeries"]()
X, Y = case.table
parts = np.split(np.arange(900), [405, 585, 720])
history = [rows + len(Y) - 900 for rows in parts[:3]]
test = parts[3] + len(Y) - 900

# %%
# The second decision is a recourse variable. The cost is a function of three arguments.

order, moved = cp.Variable(6, nonneg=True, name="order"), cp.Variable((6, 6), nonneg=True, name="moved")


def cost(z, u, y):
    """Left over, missing and moved."""
    have = z - cp.sum(y, axis=1) + cp.sum(y, axis=0)
    return cp.sum(cp.pos(have - u)) + 4 * cp.sum(cp.pos(u - have)) + cp.sum(y)


problem = ph.DecisionProblem(
    decision=order,
    recourse=moved,
    n_outcomes=6,
    cost=cost,
    recourse_constraints=lambda z, u, y: [cp.sum(y, axis=1) <= z],
    name="bakeries",
)

# %%
# With recourse in the plan, and without. Without it, bread is moved all the same, once demand is known.

names = {"with recourse": problem, "each shop by itself": case.alone}
decisions, parts_of = {}, dict(zip(("train", "learn", "calibrate"), history, strict=True))
print(f"{'':20} {'at most':>8} {'cost':>6} {'moved afterwards':>17} {'held':>6}")
for name, own in names.items():
    decider = ph.RobustDecider(own, "ridge", guarantee="cost", random_state=0)
    d = decisions[name] = decider.fit(X.to_numpy(), Y.to_numpy(), **parts_of).decide(X.to_numpy()[test])
    realised, repaired = (each.evaluate(d.flat, Y.to_numpy()[test]) for each in (own, problem))
    held = (realised <= d.cost_bound).mean()
    print(f"{name:20} {d.cost_bound.mean():8.1f} {realised.mean():6.1f} {repaired.mean():17.1f} {held:6.3f}")
    if own is problem:
        later = decider.repair(X.to_numpy()[test], Y.to_numpy()[test], d)

# %%
# How much of the order is moved, day by day.

fig, ax = plt.subplots(figsize=(7, 3))
ax.bar(np.arange(60), decisions["with recourse"].z[:60].sum(axis=1), color="#1f6fb2", label="ordered")
ax.bar(np.arange(60), later["moved"][:60].sum(axis=(1, 2)), color="#c98a3b", label="moved")
ax.set(xlabel="day of the test", ylabel="loaves in six shops")
ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Moving bread lowers the cost, here as much if nobody planned it. Only a plan that knows of it can promise
# the saving in advance: its bound is a third lower, because a surplus in one shop covers what another lacks. The rows
# are in time order, and demand drifts, so that the bound holds less often than promised: see the price crisis.
