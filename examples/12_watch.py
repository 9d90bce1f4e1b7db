"""
Watching a model at work
========================

After `fit` comes use. `update` counts what came against the bounds that were issued, and an alarm may be looked at
after every row: while nothing changes it is ever raised with probability at most 0.01. Here something changes after
400 rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyhedge as ph

rng = np.random.default_rng(4)


def draw(n, shift=0.0):
    """Demand for two products; `shift` makes all of it larger."""
    X = rng.uniform(size=(n, 2))
    return X, 20 + 10 * X + shift + 3 * rng.normal(size=(n, 2))


problem = ph.problems.newsvendor(overage=1.0, underage=[3.0, 3.0])
decider = ph.RobustDecider(problem, guarantee="cost", random_state=0).fit(*draw(1600))

# %%
# Sixteen batches arrive. Each is decided first; its outcomes become known later.

history, alarm_at = [], None
for batch in range(16):
    X, Y = draw(50, shift=0.0 if batch < 8 else 2.5)
    issued = decider.decide(X)
    told = decider.update(X, Y, bounds=issued)
    history.append(1 - told.missed[-50:].mean())
    if told.alarm.is_raised and alarm_at is None:
        alarm_at = told.alarm.raised_at
        print(f"batch {batch}: {told.alarm}")

# %%
# `refresh` fits the predictor on newer rows, recalibrates on others, and keeps the rules that were chosen.

decider.refresh(*draw(800, shift=2.5))
X, Y = draw(500, shift=2.5)
print(decider.evaluate(X, Y).bound_held)

# %%

fig, ax = plt.subplots(figsize=(6.4, 2.8))
ax.plot(50 * np.arange(1, 17), history, marker="o", ms=4, color="#1b4f7a", label="held, batch by batch")
ax.axhline(0.9, color="0.5", ls="--", lw=1, label="promised")
ax.axvline(400, color="#c98a3b", lw=1, label="demand rises")
if alarm_at is not None:
    ax.axvline(alarm_at, color="#b5443c", lw=1.5, label="alarm")
ax.set(xlabel="outcomes known", ylabel="share that held", ylim=(0.4, 1.03))
ax.legend(frameon=False, fontsize=8)
fig.tight_layout()
plt.show()

# %%
# **Lesson.** Coverage of one model wavers, and comparing it with 0.9 day by day raises false alarms. This alarm does
# not, and still notices a change within a few hundred rows.
