r"""The stochastic pinball-subgradient method (Algorithm 2 of the paper), shared over the learning contexts.

$$\min_{\theta \in \Theta,\ r,\ z_i \in Z}\ \frac1n\sum_i \max_{y \in C_\theta(X_i, r)} g(z_i, y)
  + \gamma \frac1n\sum_i \rho_{\tau_n}(S_i(\theta) - r),\qquad \theta = (W, b),\ \tau_n = c_n / n$$

Each step samples a minibatch, finds the worst outcomes of the current set, takes a subgradient in (W, b, r, z) jointly
and projects.

**Why not the printed step 5.** It takes a subgradient of $g(z, y^\ell) + \gamma\hat L(\theta, r)$ with the worst
outcome $y^\ell$ held fixed. The derivative of the cost in $\theta$ and r is then 0, and the set would learn from the
pinball loss only. The objective above it, (23) in the paper, has the maximum itself, and this module differentiates
that (`surrogate_gradient`).

What the paper leaves open: $\Theta$ are the unit rows, and the projection divides each row of W by its norm; every
context of the learning split has a decision of its own, stepped when the minibatch contains it.

**Far facets.** The paper asks for normals that positively span the space, and nothing in the algorithm keeps them so. A
fixed far box keeps the worst outcome finite meanwhile, and far facets close the learned set. Their distance is a
constant of this library: it decides the volume of such a set and no decision.

The surrogate is biased: stationarity in r makes the coverage of its own r equal to
$\tau_n - \text{mean}(1^\top\lambda) / \gamma$, with $\lambda$ the multipliers of the facets. So the learned shape is
scored, and returned, at the conformal radius of the learning split, and the starts are compared by the true objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array, Indices
from polyhedge.learners.samples import Learner, LearnResult, Samples, standard_deviations, standardised
from polyhedge.learners.starts import axis_box, both_sides, check_n_facets, closed, one_sided, pca_box
from polyhedge.problems import NoSolutionError
from polyhedge.problems.feasible_set import FeasibleProgram, quadratic_cost
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Status, row_kinds
from polyhedge.solvers.solve import solve

_MAX_BASES = 1000
"""Up to so many bases, looking at all of them at once is faster than a warm linear program each."""


@dataclass(frozen=True)
class Pinball(Learner):
    """Algorithm 2 of the paper from several starts; the best set by the true learning objective is kept.

    Parameters
    ----------
    n_facets, max_contexts : as in `Learner`
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

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Pinball(n_steps=50, n_starts=2).learn(samples, random_state=0)
    >>> result.set.n_outcomes, result.set.is_bounded
    (2, True)
    """

    n_facets: int | None = None
    penalty: float = 3.0
    n_steps: int = 1000
    batch_size: int = 32
    step_size: float = 0.03
    n_starts: int = 5
    max_contexts: int = 300

    @standardised(each_outcome=False)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        problem, d = samples.problem, samples.problem.n_outcomes
        reason = ""
        if not problem.structure.has_pieces:
            reason = f"a cost with a piece list (a maximum of affine functions of u), got a {problem.curvature} cost"
        elif problem.uncertain_rows:
            reason = "a problem without uncertain_constraints, because it steps each decision inside Z only"
        elif not problem.structure.is_continuous:
            reason = "continuous decisions, because it projects onto Z"
        if reason:
            raise ValueError(f"Pinball needs {reason}. Use Descent, which takes every problem.")
        n_facets = max(4, 2 * d) if self.n_facets is None else self.n_facets
        check_n_facets(n_facets, d)
        run = _Run(self, samples, np.random.default_rng(random_state))
        return run.from_starts(pinball_starts(samples, n_facets, self.n_starts, run.rng))


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
    """One call of `learn` with the best candidate so far."""

    def __init__(self, settings: Pinball, samples: Samples, rng: np.random.Generator) -> None:
        self.settings, self.samples, self.rng = settings, samples, rng
        self.step = _decision_step(samples.problem.feasible)
        m = samples.n_contexts
        self.scored_on = np.sort(rng.choice(m, min(m, settings.max_contexts), replace=False))
        self.best: Polyhedron | None = None
        self.best_value = np.inf
        self.own_coverage = np.nan

    def from_starts(self, starts: list[Polyhedron]) -> LearnResult:
        for start in starts:
            for state in self.descend(start):
                self._score(state)
        assert self.best is not None
        return LearnResult(
            set=self.best,
            objective=self.best_value,
            status=Status.FINISHED,
            detail=f"Algorithm 2 from {len(starts)} starts; its own radius covers {self.own_coverage:.3f} of the "
            "learning residuals",
        )

    def descend(self, start: Polyhedron) -> list[PinballState]:
        """The last iterate and the mean over the last quarter of the steps."""
        settings, samples = self.settings, self.samples
        state = self._first(start)
        far = far_box(samples)
        scale = float(standard_deviations(samples.residuals.reshape(-1, 1))[0])
        # A length on which decisions vary, so that their steps do not depend on their unit.
        width = float(np.ptp(state.z, axis=0).max()) or float(np.abs(state.z).max()) or 1.0
        tail, size = list[PinballState](), 0.0
        for t in range(settings.n_steps):
            batch = self.rng.choice(samples.n, min(settings.batch_size, samples.n), replace=False)
            gradient = surrogate_gradient(samples, state, batch, settings.penalty, far)
            rate = settings.step_size * 0.01 ** (t / settings.n_steps)
            size = max(0.99 * size, float(np.linalg.norm(gradient.z, axis=1).max()))
            z, contexts = state.z.copy(), contexts_of(samples, batch)
            if size:  # else no decision has changed any cost so far
                z[contexts] = self.step(z[contexts], gradient.z, rate * width / size)
            W = state.W - rate / (scale * settings.penalty) * gradient.W
            state = PinballState(
                W=W / np.linalg.norm(W, axis=1, keepdims=True),
                b=state.b - rate * scale / settings.penalty * gradient.b,
                r=state.r - rate * scale / settings.penalty * gradient.r,
                z=z,
            )
            if t >= settings.n_steps - max(settings.n_steps // 4, 1):
                tail.append(state)
        W = sum((each.W for each in tail), np.zeros_like(state.W))
        norms = np.linalg.norm(W, axis=1, keepdims=True)
        if not tail or not norms.all():
            return [state]
        b, r = np.mean([each.b for each in tail], axis=0), float(np.mean([each.r for each in tail]))
        return [state, PinballState(W / norms, b, r, state.z)]

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

    def _score(self, state: PinballState) -> None:
        """Evaluate a candidate exactly at the conformal radius and keep it if it is the best."""
        shape = closed(self.samples, self.samples.normalised(state.shape))
        value = self.samples.value(shape, self.scored_on)
        if value < self.best_value or self.best is None:
            self.best, self.best_value = shape, value
            self.own_coverage = float(state.shape.contains(self.samples.residuals, state.r).mean())


@dataclass(frozen=True)
class PinballState:
    """An iterate of Algorithm 2: facets W (K, d), b (K,), its own radius r, a decision z (n, p) a context."""

    W: Array
    b: Array
    r: float
    z: Array

    @property
    def shape(self) -> Polyhedron:
        """The facets as a set."""
        return Polyhedron(self.W, self.b)


class SurrogateGradient(NamedTuple):
    """The surrogate (without g_0) on a minibatch and its subgradient; z (B, p) is that of each context alone."""

    value: float
    W: Array
    b: Array
    r: float
    z: Array
    multipliers: Array


def surrogate_gradient(
    samples: Samples, state: PinballState, batch: Indices, penalty: float, far: tuple[Array, Array]
) -> SurrogateGradient:
    r"""The surrogate on a minibatch B, and its subgradient in facets, radius and decisions by the envelope theorem.

    $$\frac1{|B|}\sum_{i \in B} \max_{e : W e + b \le r1} g(z_i, \hat f(X_i) + e)
      + \gamma \frac1{|B|}\sum_{i \in B} \rho_{\tau_n}(S_i(W, b) - r)$$

    With multipliers $\lambda_i$ of $W e + b \le r$ at the worst residual $e_i$, the cost has
    $\partial_r = 1^\top\lambda_i$, $\partial_b = -\lambda_i$, $\partial_W = -\lambda_i e_i^\top$; the scores
    above r weigh $\tau_n$ and those below $-(1 - \tau_n)$ in the pinball loss, through their active facets.
    Contexts whose set is empty contribute nothing to the cost: all scores lie above r and push it up.
    """
    pieces, (A, h) = samples.problem.structure.pieces, samples.problem.support_rows
    contexts = contexts_of(samples, batch)
    W, b, r, z, n, K = state.W, state.b, state.r, state.z[contexts], len(batch), len(state.b)
    centers, residuals = samples.centers[contexts], samples.residuals[batch]
    rhs = np.concatenate([r - b, far[1]])[None]
    if len(A):
        rhs = np.hstack([np.tile(rhs, (n, 1)), h - centers @ A.T])
    limits = np.vstack([W, far[0], A])
    maximise = _over_bases if comb(*limits.shape) <= _MAX_BASES else _over_programs
    worst = maximise(limits, rhs, pieces.directions(z))
    totals = worst.values + pieces.values(z, centers)
    piece, rows = totals.argmax(axis=1), np.arange(n)
    exists = np.isfinite(totals[rows, piece])
    e = np.where(exists[:, None], worst.points[rows, piece], 0.0)
    multipliers = np.where(exists[:, None], worst.multipliers[rows, piece, :K], 0.0)
    grad_z = np.einsum("ndp,nd->np", pieces.Q[piece], centers + e) + pieces.p[piece]
    scores = residuals @ W.T + b
    active, score = scores.argmax(axis=1), scores.max(axis=1)
    tau = samples.rank / samples.n
    xi = penalty * np.where(score > r, tau, tau - 1) / n
    grad_W, grad_b = -multipliers.T @ e / n, -multipliers.mean(axis=0)
    np.add.at(grad_W, active, xi[:, None] * residuals)
    np.add.at(grad_b, active, xi)
    return SurrogateGradient(
        value=float(np.where(exists, totals[rows, piece], 0.0).mean() + xi @ (score - r)),
        W=grad_W,
        b=grad_b,
        r=float(multipliers.sum() / n - xi.sum()),
        z=np.where(exists[:, None], grad_z, 0.0),
        multipliers=multipliers,
    )


def contexts_of(samples: Samples, batch: Indices) -> Indices:
    """The contexts that a minibatch of samples plans for: their own, or in turn where there are fewer."""
    return batch % samples.n_contexts


def far_box(samples: Samples) -> tuple[Array, Array]:
    """Rows and offsets of a box at twice the largest learning residuals."""
    low, middle, high = np.quantile(samples.residuals, [0.0, 0.5, 1.0], axis=0)
    reach = 2 * (high - low) + 1e-9
    return both_sides(len(middle)), np.concatenate([middle + reach, reach - middle])


class WorstResiduals(NamedTuple):
    """For each context and direction: max v'e (-inf if empty), a maximiser, and multipliers of the rows."""

    values: Array
    points: Array
    multipliers: Array


def _over_bases(A: Array, rhs: Array, directions: Array) -> WorstResiduals:
    r"""Maximise directions (B, L, d) over the bounded sets $\{e : A e \le \text{rhs}_i\}$; rhs has 1 or B rows.

    All bases at once: the optimal one is feasible in the primal and in the dual.
    """
    bases, size = _bases(*A.shape), np.linalg.norm(A, axis=1)
    bases = bases[np.abs(np.linalg.det(A[bases])) > 1e-10 * size[bases].prod(axis=1)]
    inverse = np.linalg.inv(A[bases])
    vertices = (inverse @ rhs[:, bases, None])[..., 0]
    unit = float(np.abs(rhs / size).max()) or 1.0
    outside = ((vertices @ A.T - rhs[:, None]) / size).max(axis=2) / unit
    multipliers = directions[:, None] @ inverse
    length = np.linalg.norm(directions, axis=2)[:, None] + 1e-300
    negative = -(multipliers * size[bases][:, None]).min(axis=3) / length
    violation = np.maximum(np.maximum(outside, 0.0)[:, :, None], negative)
    best = violation.argmin(axis=1)
    context, direction = np.indices(best.shape)
    points = vertices[np.minimum(context, len(rhs) - 1), best]
    full = np.zeros((*best.shape, len(A)))
    np.put_along_axis(full, bases[best], np.maximum(multipliers[context, best, direction], 0.0), axis=2)
    is_empty = violation.min(axis=1) > SOLVED
    return WorstResiduals(np.where(is_empty, -np.inf, (directions * points).sum(axis=2)), points, full)


@lru_cache(maxsize=8)
def _bases(n_rows: int, d: int) -> Indices:
    return np.array(list(combinations(range(n_rows), d)), dtype=np.int64)


def _over_programs(A: Array, rhs: Array, directions: Array) -> WorstResiduals:
    """One linear program for each context and direction, each from the last basis."""
    # Not `robust.support.maximise`: it would build a model for each right-hand side.
    (n, n_directions, d), m = directions.shape, len(A)
    rows, columns = np.arange(m), np.arange(d)
    program = ConicProgram(c=np.zeros(d), A=sp.csr_array(A), b=rhs[0], cones=(Cone("nonneg", m),))
    solver = LinearSolver(program, varying_rows=rows)
    values = np.full((n, n_directions), -np.inf)
    points, multipliers = np.zeros(directions.shape), np.zeros((n, n_directions, m))
    for i in range(n):
        if 0 < i < len(rhs):
            solver.change_rhs(rows, rhs[i])
        for k in range(n_directions):
            solver.change_costs(columns, -directions[i, k])
            solution = solver.solve()
            if solution.status.has_solution:
                values[i, k], points[i, k], multipliers[i, k] = -solution.value, solution.x, solution.y
    return WorstResiduals(values, points, multipliers)


def _decision_step(feasible: FeasibleProgram) -> Callable[[Array, Array, float], Array]:
    r"""A function (z, gradient, rate) -> decisions (B, p) after a step down the slope of the cost and back into Z.

    As printed, $z' = \Pi_Z(z - \text{rate}\,(\nabla g_0(z) + \text{gradient}))$, with $\Pi_Z$ the nearest point of Z.
    On a simplex with quadratic g_0 it is a sort; else it is a convex program for each decision, `_proximal_step`.
    """
    quadratic = _quadratic_on_simplex(feasible)
    if quadratic is None:
        return partial(_proximal_step, feasible)
    H, g, total = quadratic
    return lambda z, gradient, rate: project_onto_simplex(z - rate * (gradient + z @ H + g), total)


def project_onto_simplex(rows: Array, total: float = 1.0) -> Array:
    r"""Nearest points of $\{z \ge 0, 1^\top z = \text{total}\}$: z = max(row - t, 0), with t found by sorting."""
    falling = -np.sort(-rows, axis=1)
    thresholds = (np.cumsum(falling, axis=1) - total) / np.arange(1, rows.shape[1] + 1)
    n_positive = np.maximum((falling > thresholds).sum(axis=1), 1)
    return np.maximum(rows - thresholds[np.arange(len(rows)), n_positive - 1][:, None], 0.0)


def _proximal_step(feasible: FeasibleProgram, z: Array, gradient: Array, rate: float) -> Array:
    r"""$\arg\min_{z' \in Z} g_0(z') + \text{gradient}^\top z' + |z' - z|^2 / (2\,\text{rate})$, one program a row.

    With linear g_0 this is the projected step as printed; otherwise g_0 acts at the new point.
    """
    program, columns = feasible.program, feasible.z_columns
    n = len(program.c)
    near = sp.csr_array((np.full(len(columns), 1 / rate), (columns, columns)), shape=(n, n))
    P = near if program.P is None else sp.csr_array(program.P + near)
    moved = z.copy()
    for i in range(len(z)):
        c = program.c.copy()
        c[columns] += gradient[i] - z[i] / rate
        solution = solve(replace(program, c=c, P=P))
        if solution.status.has_solution:
            moved[i] = solution.x[columns]
    return moved


def _quadratic_on_simplex(feasible: FeasibleProgram) -> tuple[Array, Array, float] | None:
    """H, g, total if Z is {z >= 0, sum z = total} and g_0 is z'Hz / 2 + g'z; None otherwise.

    Other columns must be fixed by as many equations, as CVXPY writes quadratic costs, so that they do not limit z.
    """
    program, z = feasible.program, feasible.z_columns
    others = np.setdiff1d(np.arange(len(program.c)), z)
    A, p = program.A.toarray(), len(z)
    kinds = row_kinds(program.cones)
    defines = A[:, others].any(axis=1)
    B = A[defines][:, others]
    own, own_kinds, own_b = A[~defines][:, z], kinds[~defines], program.b[~defines]
    equation, signs = own[own_kinds == "zero"], own[own_kinds == "nonneg"]
    is_simplex = (
        set(kinds) <= {"zero", "nonneg"}
        and not (kinds[defines] == "nonneg").any()
        and len(B) == len(others)
        and (not len(B) or np.linalg.matrix_rank(B) == len(B))
        and len(equation) == 1
        and bool(np.ptp(equation) == 0 and equation[0, 0] != 0)
        and signs.shape == (p, p)
        and not own_b[own_kinds == "nonneg"].any()
        and np.array_equal(np.sort(signs, axis=0), np.vstack([signs.min(axis=0), np.zeros((p - 1, p))]))
        and bool((signs.sum(axis=1) < 0).all() and (signs.sum(axis=0) < 0).all())
    )
    total = float(own_b[own_kinds == "zero"][0] / equation[0, 0]) if is_simplex else 0.0
    cost = quadratic_cost(feasible) if total > 0 else None
    return None if cost is None else (cost.hessian, cost.slope, total)
