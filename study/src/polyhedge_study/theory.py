r"""Theorem 2 of the paper in numbers: the bound on the suboptimality gap, and estimates of its constants.

$$\Delta \le \frac{L_r}{\kappa}\sqrt{\frac{\log(4/\delta)}{2m}}
  + \frac{2L_r}{\kappa}\sqrt{\frac{32[V\log(en/V) + \log(16/\delta)]}{n}} + \epsilon_{opt}$$

with probability at least $1 - \delta$. $\Delta$ is the worst-case cost of the learned and recalibrated set less that
of the best set with the true radius; $L_r$ says how fast the cost moves with the radius, $\kappa$ is the least density
of a score at its true radius, $V$ the VC dimension of the sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polyhedge_study.inside import check_count

__all__ = ["GapBound", "density_at_quantile", "fitted_slope", "gap_bound", "vc_dimension"]


@dataclass(frozen=True)
class GapBound:
    """The two statistical terms of the bound.

    Attributes
    ----------
    calibration : what m calibration samples may cost, of order m ** -1/2.
    learning : what n learning samples may cost, of order (log n / n) ** 1/2.
    total : their sum with the optimisation error.
    """

    calibration: float
    learning: float
    total: float


def gap_bound(
    n: int, m: int, *, sensitivity: float, density: float, dimension: float, delta: float = 0.1, error: float = 0.0
) -> GapBound:
    r"""Theorem 2: what the gap exceeds with probability at most delta.

    Parameters
    ----------
    n, m : learning and calibration samples.
    sensitivity : $L_r$, how fast the worst-case cost moves with the radius.
    density : $\kappa$, see `density_at_quantile`.
    dimension : $V$, see `vc_dimension`. Where n < V the growth function $(en/V)^V$ is replaced by its own cap $2^n$.
    delta : probability with which the bound may fail.
    error : $\epsilon_{opt}$, 0 for an exact learner.

    Examples
    --------
    >>> bound = gap_bound(300, 300, sensitivity=1.0, density=0.5, dimension=vc_dimension(2, 4))
    >>> round(bound.calibration, 3), round(bound.learning, 1)
    (0.157, 18.4)
    """
    check_count(n, "n", minimum=1)
    check_count(m, "m", minimum=1)
    growth = dimension * np.log(np.e * n / dimension) if n >= dimension else n * np.log(2.0)
    scale = sensitivity / density
    calibration = scale * float(np.sqrt(np.log(4 / delta) / (2 * m)))
    learning = 2 * scale * float(np.sqrt(32 * (growth + np.log(16 / delta)) / n))
    return GapBound(calibration, learning, calibration + learning + error)


def vc_dimension(n_outcomes: int, n_facets: int) -> float:
    r"""An upper bound on $V$ for intersections of K half-spaces: $2 (d + 1) K \log_2(3 K)$.

    Half-spaces of d outcomes have VC dimension d + 1, and the intersections of K sets of a class of dimension D have
    at most $2 D K \log_2(3 K)$.

    References
    ----------
    .. [1] A. Blumer, A. Ehrenfeucht, D. Haussler and M. Warmuth, "Learnability and the Vapnik-Chervonenkis
       dimension", Journal of the ACM 36 (1989), Lemma 3.2.3.

    Examples
    --------
    >>> round(vc_dimension(2, 4), 1)
    86.0
    """
    d, K = check_count(n_outcomes, "n_outcomes", minimum=1), check_count(n_facets, "n_facets", minimum=1)
    return float(2 * (d + 1) * K * np.log2(3 * K))


def density_at_quantile(scores: ArrayLike, level: float, width: float = 0.02) -> float:
    r"""Estimate of $\kappa$ for one shape: the density of its score at the quantile of this level.

    The probability between the levels `level` - `width` and `level` + `width`, over the distance of their quantiles.

    Examples
    --------
    >>> uniform = np.linspace(0.0, 2.0, 10_001)
    >>> round(density_at_quantile(uniform, 0.9), 3)
    0.5
    """
    low, high = max(level - width, 0.0), min(level + width, 1.0)
    below, above = np.quantile(np.asarray(scores, dtype=float), [low, high])
    return float((high - low) / (above - below))


def fitted_slope(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Slope of log y in log x by least squares, and its standard error (NaN for two points).

    Examples
    --------
    >>> slope, error = fitted_slope([10, 100, 1000], [3.0, 0.3, 0.03])
    >>> round(slope, 6)
    -1.0
    """
    u, v = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    u = u - u.mean()
    slope = float(u @ v / (u @ u))
    residuals = v - v.mean() - slope * u
    freedom = len(u) - 2
    error = float(np.sqrt(residuals @ residuals / freedom / (u @ u))) if freedom > 0 else np.nan
    return slope, error
