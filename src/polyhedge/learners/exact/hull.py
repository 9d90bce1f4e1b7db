r"""The scenario value of a selection of residuals, with the mixtures that prove it.

For a selection S and context i, $v_i(S) = \min_z \max_{j \in S} g(z, \hat f_i + e_j)$ is the cost of
the convex hull of S. By duality there is a mixture $\lambda$ over S with
$v_i(S) = \min_z \sum_j \lambda_j\, g(z, \hat f_i + e_j) =: \Phi_i(\lambda)$, and this number is a lower bound
of $v_i(T)$ for *every* selection T that contains the support of $\lambda$, whatever the cost looks like.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.learners.budget import Budget
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.robust.counterpart import Counterpart
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicForm, ConicProgram, Status

_TOLERANCE = 1e-8
"""Share of the spread of a context's costs that a solver may be off by."""
_WEIGHT = 1e-9
"""Weights below this are rounding: what they could prove is lost in the tolerance."""


class _Hull:
    """The convex hull of some residuals, as a set for the robust counterpart."""

    def __init__(self, points: Array) -> None:
        self.points = points
        self.n_outcomes = points.shape[1]

    def conic_form(self, radius: float) -> ConicForm:
        """E = points' w, 1'w = 1, w >= 0 with the weights w as auxiliary coordinates."""
        k, d = self.points.shape
        equations = np.block([[np.eye(d), -self.points.T], [np.zeros((1, d)), np.ones((1, k))]])
        bounds = sp.hstack([sp.csr_array((k, d)), -sp.eye_array(k)], format="csr")
        return ConicForm(
            G=sp.vstack([sp.csr_array(equations), bounds], format="csr"),
            g=np.concatenate([np.zeros(d), [1.0], np.zeros(k)]),
            cones=(Cone("zero", d + 1), Cone("nonneg", k)),
        )


@dataclass(frozen=True)
class Mixture:
    """Weights over a few residuals whose mixed cost is at least `value` for every decision in a context."""

    value: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class HullValues:
    """Values v_i(S) (n,), decisions (n, p) and a proving mixture for each context."""

    values: Array
    z: Array
    mixtures: tuple[Mixture, ...]


def disjoint_mixtures(
    problem: DecisionProblem, residuals: Array, center: Array, count: int, budget: Budget | None = None
) -> list[Mixture]:
    """Proving mixtures of one context with disjoint members, by falling value; fewer when the budget is over.

    Dropping fewer than `count` residuals leaves one of `count` disjoint mixtures whole, so the last
    value is a floor for every selection; so is the value of a mixture without members.
    """
    context = _ContextProgram(problem, residuals, center)
    available = np.ones(len(residuals), dtype=bool)
    mixtures: list[Mixture] = []
    while len(mixtures) < count and not (budget is not None and budget.is_over):
        mixture = context.solve(available)
        if budget is not None:
            budget.spend(len(context.program.b))
        if mixture is None:
            break
        mixtures.append(mixture)
        available[list(mixture.members)] = False
        if not mixture.members or not available.any():
            break
    return mixtures


class _ContextProgram:
    """Min over z of the max over the available residuals of g(z, f + e_j): a row for each residual and piece."""

    def __init__(self, problem: DecisionProblem, residuals: Array, center: Array) -> None:
        feasible, outcomes = problem.feasible, center + residuals
        program, n = feasible.program, len(residuals)
        n_columns = len(program.c) + 1
        pieces = problem.structure.pieces
        self.sees_outcome = pieces.sees_outcome
        blocks, rhs = [sp.hstack([program.A, sp.csr_array((len(program.b), 1))], format="csr")], [program.b]
        for k in range(len(pieces)):
            rows = np.zeros((n, n_columns))
            rows[:, feasible.z_columns] = outcomes @ pieces.Q[k] + pieces.p[k]
            rows[:, -1] = -1.0
            blocks.append(sp.csr_array(rows))
            rhs.append(-(outcomes @ pieces.q[k] + pieces.c[k]))
        first = len(program.b)
        self.n, self.rows = n, np.arange(first, first + n * (len(blocks) - 1))
        self.program = ConicProgram(
            c=np.append(program.c, 1.0),
            A=sp.vstack(blocks, format="csr"),
            b=np.concatenate(rhs),
            cones=(*program.cones, Cone("nonneg", len(self.rows))),
            P=None if program.P is None else sp.block_diag([program.P, sp.csr_array((1, 1))], format="csr"),
            offset=program.offset,
        )
        self.warm = LinearSolver(self.program, varying_rows=self.rows) if self.program.is_linear else None

    def solve(self, available: Mask) -> Mixture | None:
        """The value with some residuals only, and the residuals whose rows carry multipliers."""
        in_use = np.tile(available, len(self.rows) // self.n)
        rhs = np.where(in_use, self.program.b[self.rows], np.inf)
        if self.warm is not None:
            self.warm.change_rhs(self.rows, rhs)
            solution = self.warm.solve()
        else:
            keep = np.concatenate([np.arange(self.rows[0]), self.rows[in_use]])
            cones = (*self.program.cones[:-1], Cone("nonneg", int(in_use.sum())))
            solution = solve_conic(replace(self.program, A=self.program.A[keep], b=self.program.b[keep], cones=cones))
        if not np.isfinite(solution.gap):  # no solution, or none that proves a value
            return None
        weights = np.zeros(len(self.rows))
        weights[in_use] = solution.y[self.rows][in_use] if self.warm is not None else solution.y[self.rows[0] :]
        by_piece = weights.reshape(-1, self.n)[self.sees_outcome]
        active = np.flatnonzero(by_piece.max(axis=0, initial=0.0) > _WEIGHT)
        costs = self.program.A[self.rows[in_use]] @ solution.x - self.program.b[self.rows[in_use]]
        slack = _TOLERANCE * float(np.ptp(costs)) + solution.gap
        return Mixture(solution.value - slack, tuple(int(j) for j in active))


class HullOracle:
    """Evaluate v_i(S) for many selections; residuals that were once active are tried first."""

    def __init__(
        self, problem: DecisionProblem, residuals: Array, centers: Array, budget: Budget | None = None
    ) -> None:
        self.problem, self.residuals, self.centers = problem, residuals, centers
        self.budget = budget
        self.pool: set[int] = set()

    def evaluate(self, kept: Mask, contexts: Indices | None = None) -> HullValues:
        """Values of all (or some) contexts for the selection `kept`.

        The hull is grown lazily: solve with the pool's residuals, add those that a decision's cost
        directions show to lie outside, until none does.
        """
        chosen = np.arange(len(self.centers)) if contexts is None else contexts
        pool = self._first_pool(kept)
        todo, by_context = chosen, {}
        while len(todo):
            members = np.array(sorted(pool))
            try:
                solved = self._solve(members, todo)
            except NoSolutionError:
                if len(members) == kept.sum():
                    raise
                pool = set(np.flatnonzero(kept).tolist())  # a part of the hull may leave the cost unbounded
                continue
            missing, again = self._violated(kept, members, solved)
            by_context.update({int(i): s for i, s in zip(todo, solved, strict=True)})
            if not missing:
                break
            pool |= missing
            self.pool |= missing
            todo = todo[again]
        return HullValues(
            values=np.array([by_context[int(i)][0] for i in chosen]),
            z=np.array([by_context[int(i)][1] for i in chosen]).reshape(len(chosen), -1),
            mixtures=tuple(by_context[int(i)][2] for i in chosen),
        )

    def _first_pool(self, kept: Mask) -> set[int]:
        """Extremes along the axes and whatever was active before, as far as it is kept."""
        available = np.flatnonzero(kept)
        axes = np.eye(self.problem.n_outcomes)
        along = self.residuals[available] @ np.vstack([axes, -axes]).T
        return {int(available[j]) for j in along.argmax(axis=0)} | {j for j in self.pool if kept[j]}

    def _solve(self, members: Indices, contexts: Indices) -> list[tuple[float, Array, Mixture]]:
        counterpart = Counterpart(self.problem, _Hull(self.residuals[members]), 0.0)  # type: ignore[arg-type]
        if self.budget is not None:
            self.budget.spend(len(counterpart.parametric.at_zero.b), times=len(contexts))
        sees_outcome, results = self.problem.structure.pieces.sees_outcome, []
        for i in contexts:
            solution = counterpart.solve(self.centers[i])
            if solution.status is Status.FAILED or (solution.status.has_solution and not np.isfinite(solution.gap)):
                raise RuntimeError(f"Learning context {int(i)} could not be solved: {solution.detail}.")
            if not solution.status.has_solution:
                raise NoSolutionError(
                    f"There is no best decision against the residuals of the learning split in context {int(i)}: "
                    f"{solution.status}. Check the feasible set and the cost; a decision that lowers the cost without "
                    "limit needs bounds."
                )
            weights = solution.weighted_auxiliary[sees_outcome].sum(axis=0)
            active = members[np.flatnonzero(weights > _WEIGHT)]
            slack = _TOLERANCE * self.cost_range(solution.z[None], members) + solution.gap
            mixture = Mixture(solution.value - slack, tuple(int(j) for j in active))
            results.append((solution.value, solution.z, mixture))
        return results

    def cost_range(self, z: Array, members: Indices | None = None) -> float:
        """How much the residuals (some of them) differ in cost at decisions (N, p), in the mean over these."""
        residuals = self.residuals if members is None else self.residuals[members]
        return float(np.ptp(self.problem.structure.pieces.directions(z) @ residuals.T, axis=2).max(axis=1).mean())

    def _violated(
        self, kept: Mask, members: Indices, solved: list[tuple[float, Array, Mixture]]
    ) -> tuple[set[int], Mask]:
        """Cache residuals that exceed the hull of the members along some solution's directions."""
        z = np.array([solution[1] for solution in solved])
        available = np.flatnonzero(kept)
        missing: set[int] = set()
        again = np.zeros(len(solved), dtype=bool)
        directions = self.problem.structure.pieces.directions(z)
        for piece in range(directions.shape[1]):
            heights = directions[:, piece] @ self.residuals[available].T
            inside = (directions[:, piece] @ self.residuals[members].T).max(axis=1)
            out = heights.max(axis=1) - inside > _TOLERANCE * np.ptp(heights, axis=1)
            missing |= {int(available[j]) for j in heights[out].argmax(axis=1)} - set(members.tolist())
            again |= out
        return missing, again
