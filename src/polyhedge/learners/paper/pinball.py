r"""The stochastic pinball-subgradient method (Algorithm 2 of the paper), shared over the learning contexts.

$$\min_{\theta \in \Theta,\ r,\ z_i \in Z}\ \frac1n\sum_i \max_{y \in C_\theta(X_i, r)} g(z_i, y)
  + \gamma \frac1n\sum_i \rho_{\tau_n}(S_i(\theta) - r),\qquad \theta = (W, b),\ \tau_n = c_n / n$$

Each step samples a minibatch, finds the worst outcomes of the current set, takes a subgradient in (W, b, r, z) jointly
and projects.

**Why not the printed step 5.** It takes a subgradient of $g(z, y^\ell) + \gamma\hat L(\theta, r)$ with the worst
outcome $y^\ell$ held fixed. The cost then depends on z alone: its derivative in $\theta$ and in r is 0, and the set
would learn from the pinball loss only, which knows nothing of the decision. The objective above it, (23) in the paper,
has the maximum itself. So this module differentiates the maximum: by the envelope theorem, with the multipliers
$\lambda_i$ of the facets at the worst residual $e_i$, the cost has the derivatives $1^\top\lambda_i$ in r, $-\lambda_i$
in b and $-\lambda_i e_i^\top$ in W (`pinball_surrogate.py`).

What the paper leaves open: $\Theta$ are the unit rows (without a normalisation the penalty has no meaning), and the
projection divides each row of W by its norm; every context of the learning split has a decision of its own, stepped
when the minibatch contains it.

**Far facets.** The paper asks for normals that positively span the space, so that the set is bounded. Nothing in the
algorithm keeps them so, and a set that is open towards outcomes that cannot hurt costs less. A fixed far box keeps the
worst outcome finite meanwhile, and far facets close the learned set. How far they lie is a constant of this library.
It decides the volume of such a set and no decision, so that the study reports the volume within the hull of the
residuals beside the volume.

The surrogate is biased: stationarity in r makes the coverage of its own r equal to
$\tau_n - \text{mean}(1^\top\lambda) / \gamma$, with $\lambda$ the multipliers of the facets. The learned shape is
therefore scored, and returned, at the conformal radius of the learning split. A lower surrogate need not be a
lower true objective: longer runs or longer steps often end in a worse set, which is why the starts are compared
by the true objective.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.validation import Array, check_count
from polyhedge.learners.paper.decision_steps import decision_step
from polyhedge.learners.paper.pinball_surrogate import PinballState, contexts_of, far_box, surrogate_gradient
from polyhedge.learners.result import LearnResult, Needs
from polyhedge.learners.samples import Samples
from polyhedge.learners.scales import standard_deviations
from polyhedge.learners.scaling import in_one_unit
from polyhedge.learners.starts import axis_box, check_n_facets, closed, one_sided, pca_box
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pinball:
    """Algorithm 2 of the paper from several starts; the best set by the true learning objective is kept.

    Parameters
    ----------
    n_facets : int or None
        Facets K that are learned; None for max(4, 2 d). Far facets that only keep the set bounded are
        added to them where needed.
    penalty : float
        Weight gamma of the pinball loss, in cost for each unit of residual. Below mean(1'lambda) / tau_n the
        surrogate has no minimum in r and the set collapses; large values minimise the spread of the scores.
    n_steps : int
        Steps for each start.
    batch_size : int
        Samples in each minibatch.
    step_size : float
        First step relative to the residuals' scale; it falls to a hundredth.
    n_starts : int
        Starts; the first three are the one-sided and the two symmetric boxes where n_facets allows them.
    max_contexts : int
        Contexts on which the starts' results are compared (all, where there are fewer).
    time_limit : float or None
        Seconds after which the best set so far is returned.

    Examples
    --------
    >>> import polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Pinball(n_steps=50, n_starts=2).learn(samples, random_state=0)
    >>> result.set.n_outcomes, result.set.is_bounded
    (2, True)
    """

    needs: ClassVar[Needs] = Needs()

    n_facets: int | None = None
    penalty: float = 3.0
    n_steps: int = 1000
    batch_size: int = 32
    step_size: float = 0.03
    n_starts: int = 5
    max_contexts: int = 300
    time_limit: float | None = None

    @in_one_unit
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        self._check(samples.problem)
        d = samples.problem.n_outcomes
        n_facets = max(4, 2 * d) if self.n_facets is None else self.n_facets
        check_n_facets(n_facets, d)
        run = _Run(self, samples, np.random.default_rng(random_state))
        return run.from_starts(pinball_starts(samples, n_facets, self.n_starts, run.rng))

    def _check(self, problem: DecisionProblem) -> None:
        for name in ("n_steps", "batch_size", "n_starts", "max_contexts"):
            check_count(getattr(self, name), name, minimum=1)
        for name in ("penalty", "step_size"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}.")
        reason = ""
        if not problem.structure.has_pieces:
            reason = f"a cost with a piece list (a maximum of affine functions of u), got a {problem.curvature} cost"
        elif problem.uncertain_rows:
            reason = "a problem without uncertain_constraints, because it steps each decision inside Z only"
        elif not problem.structure.is_continuous:
            reason = "continuous decisions, because it projects onto Z"
        if reason:
            raise ValueError(f"Pinball needs {reason}. Use Descent, which takes every problem.")


def pinball_starts(samples: Samples, n_facets: int, n_starts: int, rng: np.random.Generator) -> list[Polyhedron]:
    """The one-sided box, boxes along axes and principal components, then random turns of the first."""
    starts = [one_sided(samples, n_facets)]
    if n_facets >= 2 * samples.problem.n_outcomes:
        starts += [axis_box(samples), pca_box(samples)]
    starts = [_with_facets(samples, start, n_facets, rng) for start in starts[:n_starts]]
    while len(starts) < n_starts:
        W = starts[0].W + 0.5 * rng.standard_normal(starts[0].W.shape) / np.sqrt(starts[0].n_outcomes)
        starts.append(_at_common_level(samples, W))
    return starts


def _with_facets(samples: Samples, start: Polyhedron, n_facets: int, rng: np.random.Generator) -> Polyhedron:
    """Fill up with random facets that touch the start's learning set level."""
    missing = n_facets - start.n_facets
    if missing <= 0:
        return start
    start = samples.normalised(start)
    extra = samples.normalised(_at_common_level(samples, rng.standard_normal((missing, start.n_outcomes))))
    return Polyhedron(np.vstack([start.W, extra.W]), np.concatenate([start.b, extra.b]))


def _at_common_level(samples: Samples, W: Array) -> Polyhedron:
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    level = min(samples.rank / samples.n, 1.0)
    return Polyhedron(W, -np.quantile(samples.residuals @ W.T, level, axis=0))


class _Run:
    """One call of `learn`: candidates, the best so far, the clock."""

    def __init__(self, settings: Pinball, samples: Samples, rng: np.random.Generator) -> None:
        self.settings, self.samples, self.rng = settings, samples, rng
        self.began = time.perf_counter()
        self.step = decision_step(samples.problem.feasible)
        m = samples.n_contexts
        self.scored_on = np.sort(rng.choice(m, min(m, settings.max_contexts), replace=False))
        self.best: Polyhedron | None = None
        self.best_value, self.trace, self.stopped = np.inf, list[float](), False
        self.interrupted = False
        self.own_coverage = np.nan

    def from_starts(self, starts: list[Polyhedron]) -> LearnResult:
        self.state = PinballState(starts[0].W, starts[0].b, 0.0, np.zeros((0, 0)))
        done = 0
        try:
            for start in starts:
                for state in self.descend(start):
                    self.judge(state)
                done += 1
                if self.stopped:
                    break
        except KeyboardInterrupt:
            logger.warning("Interrupted after %d of %d starts: the best set so far is returned.", done, len(starts))
            self.stopped = self.interrupted = True
        if self.best is None:
            self.judge(self.state)
        return self._result(f"Algorithm 2 from {done} of {len(starts)} starts")

    def descend(self, start: Polyhedron) -> list[PinballState]:
        """The last iterate and the mean over the last quarter of the steps."""
        settings, samples = self.settings, self.samples
        state = self.state = self._first(start)
        far = far_box(samples)
        scale, width = float(standard_deviations(samples.residuals.reshape(-1, 1))[0]), self._width(state.z)
        means, size = _TailMean(settings.n_steps), 0.0
        for t in range(settings.n_steps):
            if self._out_of_time():
                break
            batch = self.rng.choice(samples.n, min(settings.batch_size, samples.n), replace=False)
            gradient = surrogate_gradient(samples, state, batch, settings.penalty, far)
            rate = settings.step_size * 0.01 ** (t / settings.n_steps)
            size = max(0.99 * size, float(np.linalg.norm(gradient.z, axis=1).max()))
            z, contexts = state.z.copy(), contexts_of(samples, batch)
            if size:  # else no decision has changed any cost so far
                z[contexts] = self.step(z[contexts], gradient.z, rate * width / size)
            W = state.W - rate / (scale * settings.penalty) * gradient.W
            state = self.state = PinballState(
                W=W / np.linalg.norm(W, axis=1, keepdims=True),
                b=state.b - rate * scale / settings.penalty * gradient.b,
                r=state.r - rate * scale / settings.penalty * gradient.r,
                z=z,
            )
            means.add(t, state)
        return [state, *means.states(state)]

    def _first(self, start: Polyhedron) -> PinballState:
        """The start at its learning radius, with its robust decisions."""
        samples, shape = self.samples, self.samples.normalised(start)
        decisions = decide(samples.problem, closed(samples, shape), 0.0, samples.centers)
        z = decisions.flat
        if not np.isfinite(z).all():
            raise NoSolutionError(
                f"A learning context has no robust decision in the starting set. {decisions.complaint()}. Relax the "
                "constraints, bound the decision or drop such rows."
            )
        return PinballState(shape.W, shape.b, 0.0, z)

    def _width(self, z: Array) -> float:
        """A length on which decisions vary, so that their steps do not depend on their unit."""
        return float(np.ptp(z, axis=0).max()) or float(np.abs(z).max()) or 1.0

    def judge(self, state: PinballState) -> None:
        """Evaluate a candidate exactly at the conformal radius and keep it if it is the best."""
        shape = closed(self.samples, self.samples.normalised(state.shape))
        value = self.samples.value(shape, self.scored_on)
        self.trace.append(value)
        if value < self.best_value or self.best is None:
            self.best, self.best_value = shape, value
            self.own_coverage = float(state.shape.contains(self.samples.residuals, state.r).mean())

    def _out_of_time(self) -> bool:
        limit = self.settings.time_limit
        self.stopped = limit is not None and time.perf_counter() - self.began > limit
        return self.stopped

    def _result(self, detail: str) -> LearnResult:
        assert self.best is not None
        return LearnResult(
            set=self.best,
            objective=self.best_value,
            status=Status.STOPPED_EARLY if self.stopped else Status.OPTIMAL,
            seconds=time.perf_counter() - self.began,
            trace=tuple(self.trace),
            detail=f"{detail}; its own radius covers {self.own_coverage:.3f} of the learning residuals",
            interrupted=self.interrupted,
        )


class _TailMean:
    """Running means of (W, b, r) over the last quarter of the steps."""

    def __init__(self, n_steps: int) -> None:
        self.first, self.count = n_steps - max(n_steps // 4, 1), 0
        self.sum: tuple[Array, Array, float] | None = None

    def add(self, t: int, state: PinballState) -> None:
        if t >= self.first:
            W, b, r = self.sum or (np.zeros_like(state.W), np.zeros_like(state.b), 0.0)
            self.sum, self.count = (W + state.W, b + state.b, r + state.r), self.count + 1

    def states(self, last: PinballState) -> list[PinballState]:
        if self.sum is None:
            return []
        W, b, r = self.sum
        size = np.linalg.norm(W, axis=1, keepdims=True)
        return [PinballState(W / size, b / self.count, r / self.count, last.z)] if size.all() else []
