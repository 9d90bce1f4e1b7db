r"""The stochastic pinball-subgradient method (Algorithm 2 of the paper), shared over the learning contexts.

$$\min_{\theta \in \Theta,\ r,\ z_i \in Z}\ \frac1n\sum_i \max_{y \in C_\theta(X_i, r)} g(z_i, y)
  + \gamma \frac1n\sum_i \rho_{\tau_n}(S_i(\theta) - r),\qquad \theta = (W, b),\ \tau_n = c_n / n$$

As printed, each step samples a minibatch, finds the worst outcomes of the current set, takes a subgradient in
(W, b, r, z) jointly and projects. What the paper leaves open: $\Theta$ are the unit rows (without a
normalisation the penalty has no meaning), and the projection divides each row of W by its norm; every context
of the learning split has a decision of its own, stepped when the minibatch contains it; a fixed far box keeps
the worst outcome finite while the facets do not bound the set.

The surrogate is biased: stationarity in r makes the coverage of its own r equal to
$\tau_n - \text{mean}(1^\top\lambda) / \gamma$, with $\lambda$ the multipliers of the facets. The learned shape is
therefore judged, and returned, at the conformal radius of the learning split. A lower surrogate need not be a
lower true objective: longer runs or longer steps often end in a worse set, which is why the starts are compared
by the true objective.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array, Indices, check_count
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.result import LearnResult
from polyhedge.learners.starts import axis_box, check_n_facets, closed, one_sided, pca_box
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import FeasibleProgram
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Status
from polyhedge.solvers.solve import solve

logger = logging.getLogger(__name__)

# Up to so many bases, looking at all of them at once is faster than a warm linear program each.
_MAX_BASES = 1000
_TOLERANCE = 1e-7


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
    """

    n_facets: int | None = None
    penalty: float = 3.0
    n_steps: int = 1000
    batch_size: int = 32
    step_size: float = 0.03
    n_starts: int = 5
    max_contexts: int = 300
    time_limit: float | None = None

    def learn(
        self,
        residuals: Array,
        centers: Array,
        problem: DecisionProblem,
        alpha: float,
        random_state: Any = None,
    ) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        self._check(problem)
        n_facets = max(4, 2 * problem.n_outcomes) if self.n_facets is None else self.n_facets
        check_n_facets(n_facets, problem.n_outcomes)
        objective = LearningObjective(problem, residuals, centers, alpha)
        run = _Run(self, objective, np.random.default_rng(random_state))
        return run.from_starts(pinball_starts(objective, n_facets, self.n_starts, run.rng))

    def _check(self, problem: DecisionProblem) -> None:
        for name in ("n_steps", "batch_size", "n_starts", "max_contexts"):
            check_count(getattr(self, name), name, minimum=1)
        for name in ("penalty", "step_size"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}.")
        reason = ""
        if problem.pieces is None:
            reason = f"a cost with a piece list (a maximum of affine functions of u), got a {problem.curvature} cost"
        elif problem.uncertain_rows:
            reason = "a problem without uncertain_constraints, because it steps each decision inside Z only"
        elif len(problem.feasible.program.integer):
            reason = "continuous decisions, because it projects onto Z"
        if reason:
            raise ValueError(f"Pinball needs {reason}. Use Descent, which takes every problem.")


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


def pinball_starts(
    objective: LearningObjective, n_facets: int, n_starts: int, rng: np.random.Generator
) -> list[Polyhedron]:
    """The one-sided box, boxes along axes and principal components, then random turns of the first."""
    starts = [one_sided(objective, n_facets)]
    if n_facets >= 2 * objective.problem.n_outcomes:
        starts += [axis_box(objective), pca_box(objective)]
    starts = [_with_facets(objective, start, n_facets, rng) for start in starts[:n_starts]]
    while len(starts) < n_starts:
        W = starts[0].W + 0.5 * rng.standard_normal(starts[0].W.shape) / np.sqrt(starts[0].n_outcomes)
        starts.append(_at_common_level(objective, W))
    return starts


def _with_facets(
    objective: LearningObjective, start: Polyhedron, n_facets: int, rng: np.random.Generator
) -> Polyhedron:
    """Fill up with random facets that touch the start's learning set level."""
    missing = n_facets - start.n_facets
    if missing <= 0:
        return start
    start = objective.normalised(start)
    extra = objective.normalised(_at_common_level(objective, rng.standard_normal((missing, start.n_outcomes))))
    return Polyhedron(np.vstack([start.W, extra.W]), np.concatenate([start.b, extra.b]))


def _at_common_level(objective: LearningObjective, W: Array) -> Polyhedron:
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    level = min(objective.rank / objective.n, 1.0)
    return Polyhedron(W, -np.quantile(objective.residuals @ W.T, level, axis=0))


class _Run:
    """One call of `learn`: candidates, the best so far, the clock."""

    def __init__(self, settings: Pinball, objective: LearningObjective, rng: np.random.Generator) -> None:
        self.settings, self.objective, self.rng = settings, objective, rng
        self.began = time.perf_counter()
        self.step = decision_step(objective.problem.feasible)
        m = objective.n_contexts
        self.judged_on = np.sort(rng.choice(m, min(m, settings.max_contexts), replace=False))
        self.best: Polyhedron | None = None
        self.best_value, self.trace, self.stopped = np.inf, list[float](), False
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
            self.stopped = True
        if self.best is None:
            self.judge(self.state)
        return self._result(f"Algorithm 2 from {done} of {len(starts)} starts")

    def descend(self, start: Polyhedron) -> list[PinballState]:
        """The last iterate and the mean over the last quarter of the steps."""
        settings, objective = self.settings, self.objective
        state = self.state = self._first(start)
        far = far_box(objective)
        scale, width = float(objective.residuals.std()) or 1.0, self._width(state.z)
        means, size = _TailMean(settings.n_steps), 0.0
        for t in range(settings.n_steps):
            if self._out_of_time():
                break
            batch = self.rng.choice(objective.n, min(settings.batch_size, objective.n), replace=False)
            gradient = surrogate_gradient(objective, state, batch, settings.penalty, far)
            rate = settings.step_size * 0.01 ** (t / settings.n_steps)
            size = max(0.99 * size, float(np.linalg.norm(gradient.z, axis=1).max()), 1e-300)
            z, contexts = state.z.copy(), contexts_of(objective, batch)
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
        objective, shape = self.objective, self.objective.normalised(start)
        found = decide(objective.problem, closed(objective, shape), 0.0, objective.centers)
        z = found.z.reshape(objective.n_contexts, -1)
        if not np.isfinite(z).all():
            raise ValueError(
                "A learning context has no robust decision in the starting set. Solve it with "
                f"polyhedge.robust.decide to see why. {found.complaint()}"
            )
        return PinballState(shape.W, shape.b, 0.0, z)

    def _width(self, z: Array) -> float:
        """A length on which decisions vary, so that their steps do not depend on their unit."""
        return float(np.ptp(z, axis=0).max()) or float(np.abs(z).max()) or 1.0

    def judge(self, state: PinballState) -> None:
        """Evaluate a candidate exactly at the conformal radius and keep it if it is the best."""
        shape = closed(self.objective, self.objective.normalised(state.shape))
        value = self.objective.value(shape, self.judged_on)
        self.trace.append(value)
        if value < self.best_value or self.best is None:
            self.best, self.best_value = shape, value
            self.own_coverage = float(state.shape.contains(self.objective.residuals, state.r).mean())

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


class SurrogateGradient(NamedTuple):
    """The surrogate (without g_0) on a minibatch and its subgradient; z (B, p) is that of each context alone."""

    value: float
    W: Array
    b: Array
    r: float
    z: Array
    multipliers: Array


def surrogate_gradient(
    objective: LearningObjective,
    state: PinballState,
    batch: Indices,
    penalty: float,
    far: tuple[Array, Array],
) -> SurrogateGradient:
    r"""Envelope theorem: with multipliers $\lambda_i$ of $W e + b \le r$ at the worst residual $e_i$, the cost has

    $\partial_r = 1^\top\lambda_i$, $\partial_b = -\lambda_i$, $\partial_W = -\lambda_i e_i^\top$; the scores
    above r weigh $\tau_n$ and those below $-(1 - \tau_n)$ in the pinball loss, through their active facets.
    Contexts whose set is empty contribute nothing to the cost: all scores lie above r and push it up.
    """
    pieces, (A, h) = objective.problem.pieces, objective.problem.support_rows
    assert pieces is not None
    contexts = contexts_of(objective, batch)
    W, b, r, z, n, K = state.W, state.b, state.r, state.z[contexts], len(batch), len(state.b)
    centers, residuals = objective.centers[contexts], objective.residuals[batch]
    rhs = np.concatenate([r - b, far[1]])[None]
    if len(A):
        rhs = np.hstack([np.tile(rhs, (n, 1)), h - centers @ A.T])
    worst = worst_residuals(np.vstack([W, far[0], A]), rhs, pieces.directions(z))
    totals = worst.values + pieces.values(z, centers)
    piece, rows = totals.argmax(axis=1), np.arange(n)
    exists = np.isfinite(totals[rows, piece])
    e = np.where(exists[:, None], worst.points[rows, piece], 0.0)
    multipliers = np.where(exists[:, None], worst.multipliers[rows, piece, :K], 0.0)
    grad_z = np.einsum("ndp,nd->np", pieces.Q[piece], centers + e) + pieces.p[piece]
    scores = residuals @ W.T + b
    active, score = scores.argmax(axis=1), scores.max(axis=1)
    tau = objective.rank / objective.n
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


def contexts_of(objective: LearningObjective, batch: Indices) -> Indices:
    """The contexts that a minibatch of samples plans for: their own, or in turn where there are fewer."""
    return batch % objective.n_contexts


def far_box(objective: LearningObjective) -> tuple[Array, Array]:
    """Rows and offsets of a box at twice the largest learning residuals."""
    low, middle, high = np.quantile(objective.residuals, [0.0, 0.5, 1.0], axis=0)
    eye = np.eye(len(middle))
    reach = 2 * (high - low) + 1e-9
    return np.vstack([eye, -eye]), np.concatenate([middle + reach, reach - middle])


class WorstResiduals(NamedTuple):
    """For each context and direction: max v'e (-inf if empty), a maximiser, and multipliers of the rows."""

    values: Array
    points: Array
    multipliers: Array


def worst_residuals(A: Array, rhs: Array, directions: Array) -> WorstResiduals:
    r"""Maximise directions (B, L, d) over the bounded sets $\{e : A e \le \text{rhs}_i\}$; rhs has 1 or B rows."""
    if comb(*A.shape) <= _MAX_BASES:
        return _over_bases(A, rhs, directions)
    return _over_programs(A, rhs, directions)


def _over_bases(A: Array, rhs: Array, directions: Array) -> WorstResiduals:
    """All bases at once: the optimal one is feasible in the primal and in the dual."""
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
    is_empty = violation.min(axis=1) > _TOLERANCE
    return WorstResiduals(np.where(is_empty, -np.inf, (directions * points).sum(axis=2)), points, full)


@lru_cache(maxsize=8)
def _bases(n_rows: int, d: int) -> Indices:
    return np.array(list(combinations(range(n_rows), d)), dtype=np.int64)


def _over_programs(A: Array, rhs: Array, directions: Array) -> WorstResiduals:
    """One linear program for each context and direction, each from the last basis."""
    (n, n_directions, d), m = directions.shape, len(A)
    rows: Any = np.arange(m)
    columns: Any = np.arange(d)
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


class DecisionStep(Protocol):
    """A step from decisions z (B, p) along minus the gradient of the cost without g_0, then back into Z."""

    def __call__(self, z: Array, gradient: Array, rate: float) -> Array:
        """The new decisions (B, p)."""


def decision_step(feasible: FeasibleProgram) -> DecisionStep:
    """On a simplex with quadratic g_0 the projected step as printed, in closed form; else `_proximal_step`."""
    quadratic = _quadratic_on_simplex(feasible)
    if quadratic is None:
        return lambda z, gradient, rate: _proximal_step(feasible, z, gradient, rate)
    H, g, total = quadratic
    return lambda z, gradient, rate: project_onto_simplex(z - rate * (gradient + z @ H + g), total)


def project_onto_simplex(rows: Array, total: float = 1.0) -> Array:
    r"""Nearest points of $\{z \ge 0, 1^\top z = \text{total}\}$: z = max(row - t, 0), with t found by sorting.

    Examples
    --------
    >>> project_onto_simplex(np.array([[0.9, 0.3], [2.0, 0.0]]))
    array([[0.8, 0.2],
           [1. , 0. ]])
    """
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

    Columns beside z must be fixed by as many equations, as CVXPY writes quadratic costs; they are eliminated.
    """
    program, z = feasible.program, feasible.z_columns
    others = np.setdiff1d(np.arange(len(program.c)), z)
    A, p = program.A.toarray(), len(z)
    kinds = np.concatenate([np.repeat(cone.kind, cone.n_rows) for cone in program.cones])
    defines = A[:, others].any(axis=1)
    B, D = A[defines][:, others], A[defines][:, z]
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
    if total <= 0:
        return None
    T, t = np.zeros((len(program.c), p)), np.zeros(len(program.c))
    T[z] = np.eye(p)
    if len(B):
        T[others], t[others] = np.linalg.solve(B, -D), np.linalg.solve(B, program.b[defines])
    P = np.zeros((len(t), len(t))) if program.P is None else program.P.toarray()
    return T.T @ P @ T, T.T @ (program.c + P @ t), total
