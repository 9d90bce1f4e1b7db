r"""The regimes in which decisions are timed, as data that every rival can read.

Residuals are Gaussian scale mixtures with standard deviations of about 1; the set has offsets at one quantile of
theirs and a conformal radius, and is fixed by the seed. Predictions are normal. In the usual regimes the facets look
like learned ones: along the axes, along random mixtures of outcomes, and one far facet that closes the side which
cannot hurt (the newsvendor is hurt on both sides and has facets on both); predictions vary three times as much as
residuals, and few distinct decisions occur. In the *hard* ones facets point in random directions and predictions vary
about as much as the set is wide: thousands of distinct decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np

from polyhedge.calibration import conformal_radius
from polyhedge.problems import DecisionProblem, simplex_linear, simplex_newsvendor, simplex_quadratic
from polyhedge.sets import Polyhedron
from polyhedge_study.inside import Array
from polyhedge_study.tasks import BETA, OVERAGE, UNDERAGE, advantage

__all__ = ["REGIMES", "Instance", "LinearForm", "Regime", "draw", "problem_of"]

ALPHA = 0.1
"""The paper's level."""
PARAMETERS, WARM, PRODUCT = "CVXPY with parameters", "HiGHS warm-started", "one matrix product"


@dataclass(frozen=True)
class Regime:
    """A kind of problem, its size, and what is asked of it.

    Attributes
    ----------
    name : short name.
    cost : "linear", "quadratic" or "newsvendor", over the simplex.
    d, K, n_contexts : outcomes, facets, predictions.
    spread : standard deviation of the predictions over that of the residuals.
    facets : "one-sided", "two-sided" or "random", see above; "residuals" where plans are made from K of them.
    targets : least ratio of a rival's time to ours; for the matrix product, largest ratio of ours to its.
    """

    name: str
    cost: str
    d: int
    K: int
    n_contexts: int
    spread: float = 3.0
    facets: str = "one-sided"
    targets: dict[str, float] = field(default_factory=dict)

    def with_contexts(self, n: int) -> Regime:
        """The same regime with so many predictions."""
        return replace(self, n_contexts=n)


_MILLION = {PARAMETERS: 5000.0, WARM: 100.0, PRODUCT: 20.0}

REGIMES = (
    *(Regime(f"d2-K{K}", "linear", 2, K, 1_000_000, targets=_MILLION) for K in (4, 6, 8)),
    Regime("d5-K20", "linear", 5, 20, 100_000, targets={PARAMETERS: 300.0}),
    Regime("d10-K40", "linear", 10, 40, 100_000, targets={PARAMETERS: 100.0}),
    Regime("d10-K40-hard", "linear", 10, 40, 20_000, 2.0, "random", {PARAMETERS: 20.0}),
    Regime("d20-K80", "linear", 20, 80, 20_000, targets={PARAMETERS: 50.0}),
    Regime("d20-K80-hard", "linear", 20, 80, 20_000, 2.0, "random", {PARAMETERS: 10.0}),
    Regime("newsvendor-d6", "newsvendor", 6, 24, 20_000, facets="two-sided", targets={PARAMETERS: 100.0}),
    Regime("quadratic-d2", "quadratic", 2, 4, 1_000_000, targets={PARAMETERS: 50.0}),
    Regime("quadratic-d10", "quadratic", 10, 40, 20_000, targets={PARAMETERS: 50.0}),
)


@dataclass(frozen=True)
class LinearForm:
    """min (cost + slope f)'x + x'Px / 2  s.t.  A x = b,  G x <= h + H f,  x >= lower; its value is the robust cost."""

    cost: Array
    slope: Array
    P: Array | None
    A: Array
    b: Array
    G: Array
    h: Array
    H: Array
    lower: Array


@dataclass(frozen=True, eq=False)
class Instance:
    """A regime with its numbers drawn: problem, set, radius and predictions (N, d)."""

    regime: Regime
    problem: DecisionProblem
    shape: Polyhedron
    radius: float
    centers: Array

    @property
    def q(self) -> Array:
        """Right-hand sides of the facets, W e <= q."""
        return self.radius - self.shape.b

    @cached_property
    def slopes(self) -> Array:
        """Slopes of the newsvendor's pieces in the outcome, (2^d, d)."""
        return np.array(list(product((-OVERAGE, UNDERAGE), repeat=self.regime.d)))

    @cached_property
    def reach(self) -> Array:
        """Support of the set along `slopes`: constants, which a careful rival computes once."""
        return np.asarray(self.shape.support(self.slopes, self.radius))

    @cached_property
    def even(self) -> Array:
        """The matrix M of the quadratic cost z'Mz: the sum of squared differences times beta."""
        d = self.regime.d
        return BETA * (d * np.eye(d) - np.ones((d, d)))

    def linear_form(self) -> LinearForm:
        """The dual counterpart as arrays: columns z, lambda for affine costs, columns z, t for the newsvendor."""
        return self._of_newsvendor() if self.regime.cost == "newsvendor" else self._of_affine()

    def _of_affine(self) -> LinearForm:
        d, K = self.regime.d, self.shape.n_facets
        n = d + K
        P = np.zeros((n, n))
        if self.regime.cost == "quadratic":
            P[:d, :d] = 2 * self.even
        return LinearForm(
            cost=np.concatenate([advantage(d), self.q]),
            slope=np.vstack([np.eye(d), np.zeros((K, d))]),
            P=P if P.any() else None,
            A=np.vstack([np.hstack([np.ones((1, d)), np.zeros((1, K))]), np.hstack([-np.eye(d), self.shape.W.T])]),
            b=np.concatenate([[1.0], np.zeros(d)]),
            G=np.zeros((0, n)),
            h=np.zeros(0),
            H=np.zeros((0, d)),
            lower=np.zeros(n),
        )

    def _of_newsvendor(self) -> LinearForm:
        d, pieces = self.regime.d, len(self.slopes)
        return LinearForm(
            cost=np.append(np.zeros(d), 1.0),
            slope=np.zeros((d + 1, d)),
            P=None,
            A=np.append(np.ones(d), 0.0)[None],
            b=np.ones(1),
            G=np.hstack([-self.slopes, -np.ones((pieces, 1))]),
            h=-self.reach,
            H=-self.slopes,
            lower=np.append(np.zeros(d), -np.inf),
        )


def draw(regime: Regime, seed: int) -> Instance:
    """The numbers of a regime; the set depends on the seed, d, K and the kind of facets only.

    Examples
    --------
    >>> instance = draw(REGIMES[0].with_contexts(10), seed=0)
    >>> instance.shape.n_facets, instance.centers.shape, instance.shape.is_bounded
    (4, (10, 2), True)
    """
    d, K = regime.d, regime.K
    least = 2 * d if regime.facets == "two-sided" else d + 1
    if least > K:
        raise ValueError(f"K must be at least {least} for d = {d}, so that the set is bounded, got {K}.")
    rng = np.random.default_rng([seed, d, K])
    residuals = rng.normal(size=(4000, d)) * rng.gamma(4.0, 0.25, size=(4000, 1))
    W = _normals(regime, rng)
    reach = np.quantile(residuals @ W.T, 0.98, axis=0)
    if regime.facets == "one-sided":
        reach[d] *= 10.0
    shape = Polyhedron(W, -reach)
    radius = conformal_radius(shape.scores(residuals), ALPHA)
    centers = regime.spread * rng.normal(size=(regime.n_contexts, d))
    if regime.cost == "newsvendor":
        # Demands around an even split of the stock, so that orders and demands have the same size.
        scale = 0.2 / d
        shape, centers = Polyhedron(W, -reach * scale), 1.0 / d + scale * centers
        radius *= scale
    return Instance(regime, problem_of(regime), shape, float(radius), centers)


def _normals(regime: Regime, rng: np.random.Generator) -> Array:
    d, K = regime.d, regime.K
    if regime.facets == "random":
        W = rng.normal(size=(K, d))
        return np.asarray(W / np.linalg.norm(W, axis=1, keepdims=True))
    behind = -np.eye(d) if regime.facets == "two-sided" else -np.ones((1, d)) / np.sqrt(d)
    mixtures = rng.dirichlet(np.ones(d), size=K - d - len(behind)) * np.sqrt(d)
    return np.vstack([np.eye(d), behind, mixtures])


def problem_of(regime: Regime) -> DecisionProblem:
    """What is decided in a regime."""
    if regime.cost == "newsvendor":
        return simplex_newsvendor(OVERAGE, UNDERAGE, regime.d)
    if regime.cost == "quadratic":
        return simplex_quadratic(advantage(regime.d), BETA)
    return simplex_linear(advantage(regime.d))
