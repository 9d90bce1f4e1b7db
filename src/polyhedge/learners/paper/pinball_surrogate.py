r"""The surrogate of Algorithm 2 on a minibatch, with its subgradient in facets, radius and decisions.

$$\frac1{|B|}\sum_{i \in B} \max_{e : W e + b \le r1} g(z_i, \hat f(X_i) + e)
  + \gamma \frac1{|B|}\sum_{i \in B} \rho_{\tau_n}(S_i(W, b) - r)$$

The inner maximum is a linear program for each context and piece of the cost. Its maximiser is the worst residual,
its multipliers are the subgradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array, Indices
from polyhedge.learners.samples import Samples
from polyhedge.sets import Polyhedron
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram

# Up to so many bases, looking at all of them at once is faster than a warm linear program each.
_MAX_BASES = 1000


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
    samples: Samples,
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
    pieces, (A, h) = samples.problem.structure.pieces, samples.problem.support_rows
    contexts = contexts_of(samples, batch)
    W, b, r, z, n, K = state.W, state.b, state.r, state.z[contexts], len(batch), len(state.b)
    centers, residuals = samples.centers[contexts], samples.residuals[batch]
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
    is_empty = violation.min(axis=1) > SOLVED
    return WorstResiduals(np.where(is_empty, -np.inf, (directions * points).sum(axis=2)), points, full)


@lru_cache(maxsize=8)
def _bases(n_rows: int, d: int) -> Indices:
    return np.array(list(combinations(range(n_rows), d)), dtype=np.int64)


def _over_programs(A: Array, rhs: Array, directions: Array) -> WorstResiduals:
    """One linear program for each context and direction, each from the last basis."""
    # Not `robust.support.maximise`: it would build a model for each right-hand side.
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
