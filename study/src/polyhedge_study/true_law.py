r"""The least mean bound that any method can have with a promise of this level, computed from the true law.

Over all maps from x to conformal sets with coverage $1 - \alpha$ the least mean robust cost is

$$\min_{z(\cdot), v(\cdot)} E[v(X)] \quad\text{s.t.}\quad P\{g(z(X), Y) \le v(X)\} \ge 1 - \alpha$$

(Kiyani, Pappas, Roth, Hassani 2025). With the same level at every x it is $E \min_z Q_{1 - \alpha}[g(z, Y) \mid X]$,
the *equal-level limit*. Levels may also be shared out over x, $\min_t E\,\theta(X, t(X))$ with $E\,t(X) = 1 - \alpha$:
the *allocated limit*, which needs a floor on the levels, because a sliver of rows that is given up would let the bound
go to minus infinity.

Two outcomes: a fine grid over the segment of decisions. More: mirror descent on the quantile, whose gradient is the
mean gradient of the samples near it. Decisions are found on one sample of noise and their quantiles taken on another,
so that nothing is flattered by the search; where it stops short the figures are above the limit, never below it but for
noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge.data import mixing_matrix, noise_scale, synthetic_mean
from polyhedge.planning.costs import PlanningProblem
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide_knowing
from polyhedge_study.inside import Array

__all__ = ["Limit", "TrueLaw", "limit_of", "shared_out"]

_N_GRID = 33
"""Decisions that are tried on the segment of two outcomes."""
_N_STEPS, _FIRST_STEP = 80, 15.0
"""Of mirror descent, whose steps shrink with the root of their number from the first one's length."""
_BAND = 0.03
"""Share of the samples on either side of the quantile whose gradients are averaged."""
_N_CANDIDATES = 5
"""Of the descent's last decisions, how many are compared on the search sample."""
_CONTAMINATION, _SCALE, _DF = 0.06, 0.40, 3.0
"""The defaults of `make_synthetic`."""


@dataclass(frozen=True, eq=False)
class TrueLaw:
    """Noise of the synthetic tasks at any x: s(x) times Gaussian draws (M, d), plus heavy draws (M, d)."""

    gaussian: Array
    heavy: Array

    @classmethod
    def draw(cls, n: int, n_outcomes: int, rng: np.random.Generator) -> TrueLaw:
        """A sample of the noise that `make_synthetic` adds."""
        gaussian = rng.standard_normal((n, n_outcomes)) @ mixing_matrix(n_outcomes).T
        is_heavy = rng.random((n, 1)) < _CONTAMINATION
        return cls(gaussian, np.where(is_heavy, _SCALE * rng.standard_t(_DF, (n, n_outcomes)), 0.0))

    def outcomes(self, mean: Array, scale: float) -> Array:
        """Outcomes (M, d) at one x."""
        return mean + scale * self.gaussian + self.heavy


@dataclass(frozen=True)
class Limit:
    """Premiums over the cost of knowing the mean outcome: with equal levels, and with levels shared out."""

    equal: float
    allocated: float


def limit_of(
    problem: DecisionProblem, alpha: float, rng: np.random.Generator, *, n_rows: int, n_samples: int, floor: float
) -> Limit:
    """The limits of a synthetic task, from rows and noise that are drawn."""
    d = problem.n_outcomes
    X = rng.standard_normal((n_rows, 2 * d))
    means, scales = synthetic_mean(X), noise_scale(X)
    search, judge = (TrueLaw.draw(n_samples, d, rng) for _ in range(2))
    levels = np.concatenate([np.arange(floor, 1 - alpha, 0.01), [1 - alpha], np.arange(1.01 - alpha, 0.995, 0.01)])
    theta = np.array(
        [_quantiles(problem, m, s, search, judge, levels, 1 - alpha) for m, s in zip(means, scales, strict=True)]
    )
    ideal = float(decide_knowing(problem, means)[1].mean())
    equal = float(theta[:, np.argmin(np.abs(levels - (1 - alpha)))].mean())
    return Limit(equal - ideal, shared_out(theta, levels, 1 - alpha) - ideal)


def _quantiles(
    problem: DecisionProblem, mean: Array, scale: float, search: TrueLaw, judge: TrueLaw, levels: Array, level: float
) -> Array:
    """The least quantile (T,) of each level at one x; beyond two outcomes of the decision for one level."""
    searched, fresh = search.outcomes(mean, scale), judge.outcomes(mean, scale)
    if problem.n_outcomes > 2:
        return order_statistics(_costs(problem, descend(problem, searched, level)[None], fresh), levels)[0]
    t = np.linspace(0, 1, _N_GRID)[:, None]
    grid = np.hstack([t, 1 - t])
    best = order_statistics(_costs(problem, grid, searched), levels).argmin(axis=0)
    own, which = np.unique(best, return_inverse=True)
    judged = order_statistics(_costs(problem, grid[own], fresh), levels)
    return np.asarray(judged[which, np.arange(len(levels))])


def order_statistics(costs: Array, levels: Array) -> Array:
    """Quantiles (K, T) of costs (K, M) at these levels."""
    ranks = np.clip(np.ceil(levels * costs.shape[1] - 1e-9).astype(int) - 1, 0, costs.shape[1] - 1)
    return np.asarray(np.sort(costs, axis=1)[:, ranks])


def descend(problem: DecisionProblem, outcomes: Array, level: float) -> Array:
    """A decision (p,) on the simplex with a low quantile of the cost over outcomes (M, d), by mirror descent."""
    n, p = len(outcomes), problem.n_decisions
    low, high = int((level - _BAND) * n), min(int((level + _BAND) * n), n)
    start = decide_knowing(problem, outcomes.mean(axis=0, keepdims=True))[0][0]
    z, kept = 0.5 * start + 0.5 / p, list[Array]()
    for k in range(_N_STEPS):
        near = outcomes[np.argpartition(_costs(problem, z[None], outcomes)[0], (low, high - 1))[low:high]]
        z = z * np.exp(-_FIRST_STEP / np.sqrt(1 + k) * _gradient(problem, z, near))
        z = np.maximum(z / z.sum(), 1e-6)  # a share of zero would stay there
        z = z / z.sum()
        if k >= _N_STEPS - 6 * _N_CANDIDATES and k % 6 == 5:  # neighbours hardly differ
            kept.append(z)
    kept += list(np.eye(p))
    values = order_statistics(_costs(problem, np.array(kept), outcomes), np.array([level]))
    return kept[int(values.argmin())]


def _costs(problem: DecisionProblem, z: Array, outcomes: Array) -> Array:
    """Costs (K, M) of decisions (K, p) at outcomes (M, d)."""
    seen, none = PlanningProblem(problem), np.zeros((len(outcomes), 0))
    if seen.has_maxima and not seen.joint.groups:
        # One matrix product: a cost that is affine in the outcome.
        M, z1 = seen.joint.base, np.hstack([np.ones((len(z), 1)), z])
        alone = seen.alone(z, np.zeros((len(z), 0)))
        return np.asarray((z1 @ M[:, 1:]) @ outcomes.T + (z1 @ M[:, 0] + alone)[:, None])
    return np.stack([seen.evaluate(np.tile(one, (len(outcomes), 1)), outcomes, none) for one in z])


def _gradient(problem: DecisionProblem, z: Array, outcomes: Array) -> Array:
    """Mean gradient (p,) in z over outcomes, by differences: costs here are piecewise quadratic in each decision."""
    step = 1e-5
    moved = z + step * np.eye(len(z))
    base = _costs(problem, z[None], outcomes).mean()
    return np.asarray((_costs(problem, moved, outcomes).mean(axis=1) - base) / step)


def shared_out(theta: Array, levels: Array, level: float) -> float:
    """The least mean of theta[i, t_i] (theta: (N, T)) over levels t_i whose mean is at least `level`.

    A price on a unit of level is bisected; between the two shares that it leaps over, the mean is interpolated.

    Examples
    --------
    >>> levels = np.array([0.8, 0.9, 1.0])
    >>> shared_out(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 9.0]]), levels, 0.9)
    2.0
    """

    def at(price: float) -> tuple[float, float]:
        own = np.argmin(theta - price * levels, axis=1)
        return float(levels[own].mean()), float(theta[np.arange(len(theta)), own].mean())

    low, high = 0.0, float((np.diff(theta, axis=1) / np.diff(levels)).max()) + 1.0
    for _ in range(60):  # to the last bits of the price
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle)[0] >= level else (middle, high)
    (below, cheap), (above, dear) = at(low), at(high)
    if below >= level or above == below:
        return cheap if below >= level else dear
    return cheap + (dear - cheap) * (level - below) / (above - below)
