"""
More rows than memory
=====================

A Dask data frame goes in, a lazy one comes out, partition by partition; the decisions are those of the same rows in
memory, to the last bit.
"""

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import polyhedge as ph

X, Y = ph.data.make_synthetic(3000, rng=np.random.default_rng(0))
columns = [f"x{k}" for k in range(X.shape[1])]
frame = pd.DataFrame(X, columns=columns)
problem = ph.problems.simplex_linear([-0.08, 0.0])
decider = ph.RobustDecider(problem, guarantee="outcome", learner=ph.learners.OneSidedBox(), random_state=0)
decider.fit(frame[:2000], Y[:2000])

# %%
# Nothing is computed before it is asked for.

many = dd.from_pandas(pd.concat([frame] * 40, ignore_index=True), npartitions=8)
lazy = decider.decide(many)
print(type(lazy).__module__, list(lazy.columns))
bounds = lazy["cost_bound"].compute(scheduler="threads")
print(f"{len(bounds):,} decisions, mean bound {bounds.mean():.4f}")
assert (bounds.to_numpy()[:3000] == decider.decide(frame).cost_bound).all()

# %%

fig, ax = plt.subplots(figsize=(5.4, 3))
ax.hist(bounds, bins=60, color="#4f86b5")
ax.set(xlabel="cost bound", ylabel="rows")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A fitted model is small and sends well. ``ph.batches.decide_parquet`` does the same for Parquet files of
# any size in bounded memory.
