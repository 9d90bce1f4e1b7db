"""
How many rows, and how sure
===========================

The promise is a mean over calibration samples. One model covers a little more or less. Its coverage has a known
distribution: Beta(k, m + 1 - k) for m calibration rows. Here it is compared with four thousand calibrations of the same
model.

The scores are synthetic, the only ones of this gallery. The coverage of a radius is known exactly only if the
distribution of the outcomes is known.

It needs ``pip install 'polyhedge[plot]'``.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyhedge as ph

ALPHA = 0.1
rng = np.random.default_rng(0)

# %%
# Heavy-tailed scores. The distribution of the coverage does not depend on theirs.


def coverages(m: int, repetitions: int = 4000) -> np.ndarray:
    """Coverage of the radius from m calibration scores, again and again."""
    scores = rng.standard_cauchy((repetitions, m))
    radii = np.array([ph.conformal_radius(row, ALPHA) for row in scores])
    return 0.5 + np.arctan(radii) / np.pi


# %%
# Bars: four thousand calibrations. Lines: the Beta distribution.

sizes = (50, 200, 1000)
fig, axes = plt.subplots(1, len(sizes), figsize=(9, 2.8), sharex=True)
grid = np.linspace(0.75, 1, 400)
for ax, m in zip(axes, sizes, strict=True):
    found, exact = coverages(m), ph.coverage_law(m, ALPHA)
    ax.hist(found, bins=40, density=True, color="#9bb8d3")
    ax.plot(grid, exact.pdf(grid), color="#1b4f7a")
    ax.axvline(1 - ALPHA, color="0.5", ls="--", lw=1)
    low, high = exact.ppf([0.05, 0.95])
    ax.set(title=f"{m} rows: {low:.3f} to {high:.3f}", xlabel="coverage of one model", yticks=[])
    print(f"{m:5d} rows: mean {found.mean():.4f}, exact {exact.mean():.4f}; promised {1 - ALPHA}")
fig.tight_layout()
plt.show()

# %%
# **Lesson.** A few dozen rows keep the promise on average; a few hundred make one model reliable. Nine models out
# of ten lie in the range above each plot.
