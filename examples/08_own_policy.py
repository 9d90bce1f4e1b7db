"""
Your own rule, with a promise
=============================

A policy that is in use need not be given up: `plan=` guards any rule. Here a planner orders "the forecast and a fifth".
What does a week cost at most, in nine weeks of ten? And what would another rule promise?
"""

import matplotlib.pyplot as plt
import numpy as np

import polyhedge as ph

rng = np.random.default_rng(3)
n = 2400
X = rng.uniform(0, 1, size=(n, 3))
Y = np.column_stack([40 + 30 * X[:, 0], 25 + 20 * X[:, 1]]) * np.exp(0.25 * rng.normal(size=(n, 2)))
problem = ph.problems.newsvendor(overage=[1.0, 1.0], underage=[3.0, 5.0], names=["rolls", "cakes"])
past, test = slice(0, 1800), slice(1800, n)


class WithMargin:
    """Orders a forecast and some share more; trained on the training rows by `fit`, as any estimator is."""

    def __init__(self, share=0.2):
        self.share = share

    def get_params(self, deep=True):
        """What a clone needs."""
        return {"share": self.share}

    def fit(self, X, Y):
        """Least squares."""
        self.coef_ = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), Y, rcond=None)[0]
        return self

    def predict(self, X):
        """The forecast and a share more."""
        return (1 + self.share) * np.column_stack([np.ones(len(X)), X]) @ self.coef_


# %%
# The rule at several margins, and the plan that Polyhedge makes. A choice among margins by these calibrated bounds
# would void the promise: `decider.frontier()` shows judged figures that one may choose by.

shares = (0.0, 0.2, 0.4, 0.6)
deciders = {
    f"forecast + {share:.0%}": ph.RobustDecider(problem, plan=WithMargin(share), random_state=0) for share in shares
}
deciders["planned"] = ph.RobustDecider(problem, guarantee="cost", random_state=0)
rows = {}
for name, decider in deciders.items():
    e = decider.fit(X[past], Y[past]).evaluate(X[test], Y[test])
    rows[name] = float(e.worst_case_cost), float(e.realised_cost), float(e.bound_held)
    print(f"{name:16} bound {rows[name][0]:5.1f}, cost {rows[name][1]:5.1f}, held {rows[name][2]:.3f}")

# %%

fig, ax = plt.subplots(figsize=(5.4, 3.4))
for name, (bound, cost, _) in rows.items():
    is_planned = name == "planned"
    ax.plot(cost, bound, "o", color="#1b4f7a" if is_planned else "#c98a3b", ms=8 if is_planned else 6)
    ax.annotate(name, (cost, bound), textcoords="offset points", xytext=(7, 3), fontsize=8)
ax.set(xlabel="mean cost that came", ylabel="mean bound, known before")
ax.margins(0.18)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Any rule can be given a bound that holds; whether it is a good rule shows beside another. A margin of a
# fifth costs hardly more than the plan and has a higher bound; a margin of two fifths, had one known it beforehand, has
# about the same bound and costs more. With ``caution=1`` the plan is judged by its bound alone.
