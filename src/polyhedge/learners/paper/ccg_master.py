r"""The master of column-and-constraint generation: decisions, levels and the cuts between them.

$$\min_{z, t, \eta}\ \frac1m\sum_i \eta_i \quad\text{s.t.}\quad
g(z_i, \hat f_i + e^h) \le \eta_i + M_h \sum_{j \in S_h} (1 - t_j)\ \text{for every cut } h \text{ of context } i$$

A cut without residuals $S_h$ always holds. The rows that say what t means are the caller's: see `ccg.py` for the
master that is a relaxation and `ccg_printed.py` for the one in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, Protocol

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.budget import Budget
from polyhedge.learners.paper.big_m import ModelRows, direction_bounds, excess_over_selected
from polyhedge.learners.samples import Samples
from polyhedge.problems import DecisionProblem, NoSolutionError, Pieces
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.robust.scenarios import best_against
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Solution, Status
from polyhedge.solvers.solve import solve

# Corners double with each decision.
MAX_CORNER_DECISIONS = 10


@dataclass(frozen=True)
class Limits:
    """When to stop: at zeta - eta <= tolerance, after so many iterations, or when the budget is spent."""

    tolerance: float
    max_iterations: int
    budget: Budget


class RunResult(NamedTuple):
    """What a run of masters and adversaries ends with; the lower bound is -inf where there is none.

    `unit` is the spread of costs over the residuals.
    """

    shape: Polyhedron
    lower_bound: float
    status: Status
    trace: tuple[float, ...]
    detail: str
    unit: float = 0.0


@dataclass
class Cut:
    """The cost at residual `point` counts in context `context` if all residuals of `support` are selected."""

    context: int
    point: Array
    support: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class MasterSolution:
    """Decisions (m, p) and levels (m,) of the contexts; `x` are all columns."""

    solution: Solution
    z: Array
    levels: Array
    x: Array


class Master:
    """min of the mean level over (z, t, levels) subject to cuts; the printed one also over (W, b)."""

    def __init__(self, samples: Samples) -> None:
        self.samples, structure = samples, samples.problem.structure
        self.costs: _Costs = _PieceCosts(samples, structure.pieces) if structure.has_pieces else _GeneralCosts(samples)
        self.cuts: list[Cut] = []

    def solve(self, rows: ModelRows, t: Indices, budget: Budget) -> MasterSolution:
        """Complete rows that hold the columns t (and perhaps a set) by the cuts of each context, and solve."""
        centers = self.samples.centers
        weight = 1.0 / len(centers)
        levels = rows.columns(len(centers), -np.inf, np.inf, cost=weight)
        z_columns = []
        for i, center in enumerate(centers):
            cuts = [cut for cut in self.cuts if cut.context == i]
            points = np.array([cut.point for cut in cuts]).reshape(len(cuts), -1)
            z, by_cut = self.costs.embed(rows, center, points, weight)
            z_columns.append(z)
            for cut, cost_rows in zip(cuts, by_cut, strict=True):
                M = self.costs.big_m(i, cut) if len(cut.support) else 0.0
                for columns, values, constant in cost_rows:
                    rows.at_most(
                        [*columns, levels[i], *t[cut.support]],
                        [*values, -1.0, *np.full(len(cut.support), M)],
                        M * len(cut.support) - constant,
                    )
        program = rows.conic()
        n_rows = len(program.b)
        solution = solve(program, time_limit=budget.seconds, max_nodes=budget.affords(n_rows))
        budget.spend(n_rows, times=1 + solution.n_nodes)
        z = solution.x[np.array(z_columns)]
        whole = solution.x[levels] + self.costs.outside_rows(z) if solution.status.has_solution else solution.x[levels]
        return MasterSolution(solution, z, whole, solution.x)


class _Costs(Protocol):
    """How a cost enters the master: as columns and rows for the cuts of one context.

    `reach` is how much residuals can differ in cost at any decision, as far as that is known.
    """

    reach: float

    def embed(
        self, rows: ModelRows, center: Array, points: Array, weight: float
    ) -> tuple[Indices, list[list[tuple[Sequence[int], Sequence[float], float]]]]:
        """Columns of z, and for each point rows (columns, values, constant) whose maximum is its cost."""

    def big_m(self, context: int, cut: Cut) -> float:
        """How far the cost can exceed the context's level where the cut is switched off."""

    def outside_rows(self, z: Array) -> Array:
        """The part of the cost of each decision that stands in the objective and not in the rows."""


class _PieceCosts:
    """g_0 in the objective, one row for each piece."""

    def __init__(self, samples: Samples, pieces: Pieces) -> None:
        self.problem, self.pieces = samples.problem, pieces
        low, high = direction_bounds(samples.problem, pieces, "CCG")
        self.M = excess_over_selected(samples.residuals, low, high, samples.rank)
        self.reach = float(self.M.max())

    def embed(
        self, rows: ModelRows, center: Array, points: Array, weight: float
    ) -> tuple[Indices, list[list[tuple[Sequence[int], Sequence[float], float]]]]:
        feasible, pieces = self.problem.feasible, self.pieces
        z = rows.embed(feasible.program, weight)[feasible.z_columns]
        slopes = np.einsum("ldp,sd->slp", pieces.Q, center + points) + pieces.p
        constants = (center + points) @ pieces.q.T + pieces.c
        return z, [
            [(z.tolist(), slope, float(constant)) for slope, constant in zip(*of_point, strict=True)]
            for of_point in zip(slopes, constants, strict=True)
        ]

    def big_m(self, context: int, cut: Cut) -> float:
        return float(self.M[cut.support].max())

    def outside_rows(self, z: Array) -> Array:
        u = np.zeros((len(z), self.problem.n_outcomes))
        return self.problem.evaluate(z, u) - self.pieces.evaluate(z, u)


class _GeneralCosts:
    """One epigraph column for each point, compiled through CVXPY."""

    reach = 0.0

    def __init__(self, samples: Samples) -> None:
        self.problem, self.samples = samples.problem, samples
        self.corners = _corners(samples.problem)
        self.lowest = [self._lowest_level(center) for center in samples.centers]

    def _lowest_level(self, center: Array) -> float:
        """No selection of c_n residuals costs less than the c_n-th smallest of their own best costs."""
        solutions = [best_against(self.problem, (center + e)[None])[0] for e in self.samples.residuals]
        costs = [solution.value - solution.gap if solution.status.has_solution else np.nan for solution in solutions]
        if np.isnan(costs).any():
            raise NoSolutionError(
                "CCG needs a least cost at every outcome, and one of a learning residual has none: "
                f"{solutions[int(np.argmax(np.isnan(costs)))].status}. Add bounds to the decision, or use Descent."
            )
        return float(np.partition(costs, self.samples.rank - 1)[self.samples.rank - 1])

    def embed(
        self, rows: ModelRows, center: Array, points: Array, weight: float
    ) -> tuple[Indices, list[list[tuple[Sequence[int], Sequence[float], float]]]]:
        problem = self.problem
        variables, certain = problem.written.variables, problem.written.certain
        costs = [problem.cost_at(None, center + e) for e in points]
        compiled = compile_feasible_program(variables, cp.Constant(0.0), certain, costs)
        x = rows.embed(compiled.program, weight)
        return x[compiled.z_columns], [
            [([], [], float(cost.value))] if column < 0 else [([int(x[column])], [1.0], 0.0)]
            for column, cost in zip(compiled.epigraph_columns, costs, strict=True)
        ]

    def big_m(self, context: int, cut: Cut) -> float:
        outcome = self.samples.centers[context] + cut.point
        highest = self.problem.evaluate(self.corners, np.tile(outcome, (len(self.corners), 1))).max()
        if not np.isfinite(highest):
            raise ValueError(
                "CCG bounds a cost without affine pieces at the corners of the feasible set's box, and it has no value "
                "at one of them. Use Descent."
            )
        return max(float(highest) - self.lowest[context], 0.0)

    def outside_rows(self, z: Array) -> Array:
        return np.zeros(len(z))


def _corners(problem: DecisionProblem) -> Array:
    """Corners of a box around Z: a cost convex in z is highest at one of them."""
    if problem.n_decisions > MAX_CORNER_DECISIONS:
        raise ValueError(
            f"CCG bounds a cost without affine pieces at the corners of the feasible set's box, which takes at most "
            f"{MAX_CORNER_DECISIONS} decisions, got {problem.n_decisions}. Use Descent."
        )
    axes = np.eye(problem.n_decisions)[None]
    d = problem.n_decisions
    as_pieces = Pieces(Q=axes, q=np.zeros((1, d)), p=np.zeros((1, d)), c=np.zeros(1))
    low, high = direction_bounds(problem, as_pieces, "CCG")
    return np.array(list(product(*zip(low[0], high[0], strict=True))))
