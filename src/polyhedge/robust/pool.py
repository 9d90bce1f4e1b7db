r"""Decisions for many contexts from a pool of few: certified by matrix products, solved only where needed.

For an affine cost the context changes only the linear cost of z. A pooled decision z with its support value
bounds the optimum from above, $g_0(z) + v(z)^\top f + h(v(z))$; a pooled worst-case residual e bounds it from
below, $\min_{z \in Z} g_0(z) + v(z)^\top (f + e)$, a minimum over the vertices of Z. Where the best of both
agree the context is solved, whatever basis a solver would have found. The context with the widest gap goes
to the solver, its decision and residual join the pool, and all others are compared again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array, Indices, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.robust.counterpart import Counterpart
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram

_TOLERANCE = 1e-9
_PATIENCE = 64
"""Solves after which the pool must have certified at least as many contexts again, or it is given up."""


@dataclass(frozen=True)
class VertexCosts:
    """The cost of each vertex of Z as a function of the outcome: constants (k,) + slopes (k, d) u."""

    constants: Array
    slopes: Array


@dataclass
class Pooled:
    """Best decisions, bounds and residuals of N contexts, and which are not proven optimal yet."""

    z: Array
    upper: Array
    lower: Array
    residual: Array
    is_open: Mask

    def settle(self, contexts: Indices) -> None:
        """Close the contexts whose bounds have met."""
        gap = self.upper[contexts] - self.lower[contexts]
        self.is_open[contexts] = gap > _TOLERANCE * (1 + np.abs(self.upper[contexts]))


def decide_from_pool(
    problem: DecisionProblem, counterpart: Counterpart, vertices: VertexCosts, centers: Array
) -> Pooled:
    """Certify as many contexts as the pool can; those it cannot are left open for single solves."""
    n, p, d = len(centers), problem.n_decisions, problem.n_outcomes
    pooled = Pooled(
        z=np.full((n, p), np.nan),
        upper=np.full(n, np.inf),
        lower=np.full(n, -np.inf),
        residual=np.full((n, d), np.nan),
        is_open=np.ones(n, dtype=bool),
    )
    nominal = centers @ vertices.slopes.T + vertices.constants
    todo: Indices = np.arange(n)
    face = _WorstFace(problem, counterpart, vertices)
    solved, progress = 0, 0
    while len(todo):
        i = int(todo[np.argmax(pooled.upper[todo] - pooled.lower[todo])])
        solution = counterpart.solve(centers[i])
        residual = counterpart.worst_residual(solution)
        if not solution.status.has_solution or not np.isfinite(residual).all():
            return pooled
        _offer_decision(problem, pooled, centers, todo, i, solution.z, solution.value)
        _offer_residual(pooled, nominal, todo, residual, vertices)
        _offer_residual(pooled, nominal, todo, face.highest(solution.z, residual), vertices)
        pooled.settle(todo)
        before, todo = len(todo), todo[pooled.is_open[todo]]
        solved, progress = solved + 1, progress + before - len(todo)
        if pooled.is_open[i]:
            return pooled
        if solved % _PATIENCE == 0:
            if progress < 2 * _PATIENCE:
                return pooled
            progress = 0
    return pooled


class _WorstFace:
    """Among a decision's worst residuals, the one that is also bad for the other vertices of Z.

    A solver returns any worst residual; one that is high in all directions proves most contexts.
    """

    def __init__(self, problem: DecisionProblem, counterpart: Counterpart, vertices: VertexCosts) -> None:
        form, self.d = counterpart.form, problem.n_outcomes
        assert problem.pieces is not None
        self.pieces = problem.pieces
        self.row = np.array([len(form.g)])
        costs = np.zeros(form.G.shape[1])
        costs[: self.d] = -vertices.slopes.mean(axis=0)
        face = np.ones((1, form.G.shape[1]))
        face[0, self.d :] = 0.0
        program = ConicProgram(
            c=costs,
            A=sp.vstack([form.G, sp.csr_array(face)], format="csr"),
            b=np.append(form.g, 0.0),
            cones=(*form.cones, Cone("nonneg", 1)),
        )
        self.solver = LinearSolver(program, varying_rows=self.row)

    def highest(self, z: Array, residual: Array) -> Array:
        """A worst residual of the decision with the highest mean over the directions; itself where none is."""
        direction = self.pieces.directions(z[None])[0, 0]
        self.solver.change_coefficients(np.repeat(self.row, self.d), np.arange(self.d), -direction)
        self.solver.change_rhs(self.row, np.array([-float(direction @ residual)]))
        solution = self.solver.solve()
        return solution.x[: self.d] if solution.status.has_solution else residual


def _offer_decision(
    problem: DecisionProblem, pooled: Pooled, centers: Array, todo: Indices, i: int, z: Array, value: float
) -> None:
    """The decision's bound at other contexts differs by its direction times the change in prediction."""
    assert problem.pieces is not None
    direction = problem.pieces.directions(z[None])[0, 0]
    bound = value + (centers[todo] - centers[i]) @ direction
    better = bound < pooled.upper[todo]
    pooled.upper[todo[better]] = bound[better]
    pooled.z[todo[better]] = z


def _offer_residual(pooled: Pooled, nominal: Array, todo: Indices, residual: Array, vertices: VertexCosts) -> None:
    bound = (nominal[todo] + vertices.slopes @ residual).min(axis=1)
    better = bound > pooled.lower[todo]
    pooled.lower[todo[better]] = bound[better]
    pooled.residual[todo[better]] = residual
