"""
When the world changes: online calibration through a price crisis
=================================================================

Charging 10 MWh a day against Dutch day-ahead prices, 2015 to 2024 (published by ENTSO-E, found in the package ev2gym,
MIT). A radius from 2019 was not made for 2022. `ph.backtest` replays history month by month: what would have been
promised, and what would have come?

It needs ``pip install 'polyhedge[plot]'``, and for the data ``pip install ./study`` in a copy of the repository.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyhedge as ph
from polyhedge.calibration import Marginal, Online
from polyhedge_study.real import day_ahead_prices

X, Y = day_ahead_prices()
z = cp.Variable(24, bounds=[0, 1], name="charge")
problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 10], n_outcomes=24)
forecast = make_pipeline(StandardScaler(), Ridge(10.0))
early = X.index < "2017-01-01"
own_forecast = make_pipeline(StandardScaler(), Ridge(10.0)).fit(X[early], Y[early])


def cheapest_hours(rows):
    """One MWh in each of the ten hours with the lowest forecast; the forecast has seen two years only."""
    ranks = np.argsort(np.argsort(own_forecast.predict(rows), axis=1), axis=1)
    return (ranks < 10).astype(float)


# %%
# The same policy twice: with a radius that was set once, and with one that follows its own errors.

found = {}
print(f"{'EUR a day':9} {'bound':>6} {'cost':>6} {'held':>6}  worst month")
for name, calibration in {"set once": Marginal(), "online": Online()}.items():
    decider = ph.RobustDecider(problem, forecast, policy=cheapest_hours, calibration=calibration, random_state=0)
    found[name] = ph.backtest(decider, X, Y, every="30D", times=X.index, start="2020-01-01")
    held, worst, months = float(found[name].coverage), found[name].worst, found[name].to_frame()
    bound, cost = (np.average(months[column], weights=months["n"]) for column in ("cost_bound", "realised"))
    print(f"{name:9} {bound:6.0f} {cost:6.0f} {held:6.3f}  {worst.coverage:.2f} from {str(worst.start)[:10]}")

# %%

fig, axes = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True)
for (name, one), color in zip(found.items(), ("#c98a3b", "#1b4f7a"), strict=True):
    table = one.to_frame()
    axes[0].plot(table["start"], table["coverage"], color=color, label=name)
    axes[1].plot(table["start"], table["cost_bound"], color=color, label=f"bound, {name}")
axes[1].plot(table["start"], table["realised"], color="0.4", lw=1, label="cost that came")
axes[0].axhline(0.9, color="0.5", ls="--", lw=1)
axes[0].set(ylabel="share of days that held", ylim=(-0.02, 1.02))
axes[1].set(ylabel="EUR a day")
axes[0].legend(frameon=False, fontsize=8, ncols=2, loc="lower left")
axes[1].legend(frameon=False, fontsize=8, loc="upper left")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** The promise of a fixed radius is void when prices leave its past behind. A radius that follows errors
# keeps the promised share in the long run whatever comes. It makes bounds hold, not decisions good: for that the
# forecast has to be renewed, ``between="refresh"``.
