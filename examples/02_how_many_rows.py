"""
How many rows, and how sure
===========================

The promise is about the mean over calibration draws. One model covers a little more or less, with a law that is known
exactly: Beta(k, m + 1 - k) for m calibration rows. Here the law is compared with what happens when the same model is
calibrated four thousand times.

The scores are made up, the only ones of this gallery: to know the coverage of a radius exactly one has to know the law
that outcomes are drawn from, and of real data nobody does.

It needs ``pip install 'polyhedge[plot]'``.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyhedge as ph

ALPHA = 0.1
rng = np.random.default_rng(0)

# %%
# Scores of a heavy-tailed kind: the law does not depend on how they are distributed. The coverage of a radius is then
# known, because the distribution is.


def coverages(m: int, repetitions: int = 4000) -> np.ndarray:
    """Coverage of the radius from m calibration scores, again and again."""
    scores = rng.standard_cauchy((repetitions, m))
    radii = np.array([ph.conformal_radius(row, ALPHA) for row in scores])
    return 0.5 + np.arctan(radii) / np.pi


# %%
# Bars: what happened. Lines: the law.

sizes = (50, 200, 1000)
fig, axes = plt.subplots(1, len(sizes), figsize=(9, 2.8), sharex=True)
grid = np.linspace(0.75, 1, 400)
for ax, m in zip(axes, sizes, strict=True):
    found, law = coverages(m), ph.coverage_law(m, ALPHA)
    ax.hist(found, bins=40, density=True, color="#9bb8d3")
    ax.plot(grid, law.pdf(grid), color="#1b4f7a")
    ax.axvline(1 - ALPHA, color="0.5", ls="--", lw=1)
    low, high = law.ppf([0.05, 0.95])
    ax.set(title=f"{m} rows: {low:.3f} to {high:.3f}", xlabel="coverage of one model", yticks=[])
    print(f"{m:5d} rows: mean {found.mean():.4f}, law {law.mean():.4f}; promised {1 - ALPHA}")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A few dozen rows keep the promise on average; a few hundred make one model reliable. Nine models of ten
# lie in the range above each picture.
