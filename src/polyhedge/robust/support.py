r"""Linear functions over a conic set: values, maximisers and the multipliers that prove them.

A known support of the outcome enters only where it binds. The set without it is larger, so that its robust cost is an
upper bound, and the robust cost of the cut set $\{e \in P : A (f + e) \le h\}$ where a worst residual of every tight
piece lies within the support. All contexts are decided without the support in one batch, and only those where it binds
once more with it: 100 times faster where few predictions lie near the limit. Integer decisions have no multipliers, so
every piece counts as tight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np

from polyhedge._support.tolerances import INSIDE, SOLVED
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.problems.pieces import Pieces
from polyhedge.sets import Shape
from polyhedge.sets.region import cut_form
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import ConicForm, ConicProgram, Solution, SolverError, Status


@dataclass(frozen=True)
class SupportCertificate:
    """For each direction v: max v'e, a maximiser, and multipliers with G'y = (v, 0), g'y = value.

    `lifted` are the maximisers with their auxiliary coordinates, `points` the maximisers alone.
    """

    values: Array
    lifted: Array
    multipliers: Array
    n_outcomes: int

    @property
    def points(self) -> Array:
        """The maximisers e (n, d)."""
        return self.lifted[:, : self.n_outcomes]


def form_at(shape: Shape, radius: float, center: Array, support_rows: tuple[Array, Array]) -> ConicForm:
    """The residual set at a radius, cut by the known support of the outcome around one prediction."""
    return cut_form(shape.conic_form(radius), center, support_rows)


def maximise(form: ConicForm, directions: Array) -> SupportCertificate:
    """Maximise every row of `directions` over the set; inf where unbounded, -inf where it is empty."""
    return Maximiser(form)(directions)


class Maximiser:
    """Maximise linear functions over one set, as often as asked for; each linear program starts from the last basis."""

    def __init__(self, form: ConicForm) -> None:
        self.program = ConicProgram(c=np.zeros(form.G.shape[1]), A=form.G, b=form.g, cones=form.cones)
        self.warm = LinearSolver(self.program) if self.program.is_linear else None

    def __call__(self, directions: Array) -> SupportCertificate:
        """See `maximise`."""
        n, d = directions.shape
        rows, columns = self.program.A.shape
        values, lifted, multipliers = np.empty(n), np.full((n, columns), np.nan), np.full((n, rows), np.nan)
        for i, direction in enumerate(directions):
            solution = self.solve(direction)
            values[i] = {Status.UNBOUNDED: np.inf, Status.INFEASIBLE: -np.inf}.get(solution.status, -solution.value)
            if solution.status in (Status.FAILED, Status.STOPPED_EARLY):  # too low a value would be no bound
                raise SolverError(f"The worst case along {direction.tolist()} could not be found: {solution.detail}.")
            lifted[i], multipliers[i] = solution.x, solution.y
        return SupportCertificate(values, lifted, multipliers, d)

    def solve(self, direction: Array) -> Solution:
        """The program of one direction, whose last entries may be left out if they are 0."""
        if self.warm is None:
            padded = np.concatenate([-direction, np.zeros(len(self.program.c) - len(direction))])
            return solve_conic(replace(self.program, c=padded))
        self.warm.change_costs(np.arange(len(direction)), -direction)
        return self.warm.solve()


def is_empty(form: ConicForm) -> bool:
    """Whether no residual satisfies the set's constraints."""
    return Maximiser(form).solve(np.zeros(1)).status is Status.INFEASIBLE


def membership(e: cp.Expression, form: ConicForm) -> list[cp.Constraint]:
    """CVXPY constraints that put e into the set."""
    n_aux = form.G.shape[1] - e.size
    y = cp.hstack([e, cp.Variable(n_aux)]) if n_aux else e
    slack, constraints, start = form.g - form.G @ y, [], 0
    for cone in form.cones:
        block = slack[start : start + cone.n_rows]
        start += cone.n_rows
        if cone.kind == "soc":
            constraints.append(cp.SOC(block[0], block[1:]))
        else:
            constraints.append(block == 0 if cone.kind == "zero" else block >= 0)
    return constraints


@dataclass(frozen=True)
class Reach:
    """Along L directions at one prediction: values (L,), worst residuals (L, d), multipliers of the set's own rows."""

    values: Array
    points: Array
    multipliers: Array


class CutReach:
    r"""The support function of the cut set, $h_l(f) = \max \{q_l^\top e : e \in P, A (f + e) \le h\}$, for fixed $q_l$.

    The residual set P is linear, directions are (L, d); `free` is the reach of the whole set, where it is known.
    """

    def __init__(
        self,
        form: ConicForm,
        directions: Array,
        support_rows: tuple[Array, Array],
        free: SupportCertificate | None = None,
    ) -> None:
        self.form, self.directions = form, directions
        self.A, self.h = support_rows
        self.free = maximise(form, directions) if free is None else free
        self.at_points = self.free.points @ self.A.T
        self._solver: LinearSolver | None = None

    @classmethod
    def of(cls, shape: Shape, radius: float, directions: Array, support_rows: tuple[Array, Array]) -> CutReach | None:
        """None where the set is round, or no reach could be found."""
        form = shape.conic_form(radius)
        if any(cone.kind == "soc" for cone in form.cones):
            return None
        try:
            return cls(form, directions, support_rows)
        except SolverError:  # the whole program says context by context how it ended
            return None

    def is_free(self, centers: Array) -> Mask:
        """Where the worst residual of the whole set lies within the support (N, L)."""
        at_centers = centers @ self.A.T
        room = self.h - at_centers + INSIDE * (np.abs(self.h) + np.abs(centers) @ np.abs(self.A).T)
        lies_inside = np.ones((len(centers), len(self.directions)), dtype=bool)
        for row in range(len(self.h)):
            with np.errstate(invalid="ignore"):
                lies_inside &= self.at_points[:, row] <= room[:, row, None]
        return lies_inside & np.isfinite(self.free.values)

    def start(self) -> Reach:
        """The reach of the whole set."""
        free = self.free
        return Reach(free.values.copy(), free.points.copy(), free.multipliers[:, : len(self.form.g)].copy())

    def cut(self, reach: Reach, center: Array, which: Indices) -> bool:
        """Put the reach of the cut set at some directions; False where it is empty, unbounded or not found."""
        n_own, d = len(self.form.g), self.directions.shape[1]
        solver = self._cut_solver(center)
        for k in which:
            solver.change_costs(np.arange(d), -self.directions[k])
            solution = solver.solve()
            if solution.status is not Status.OPTIMAL:
                return False
            reach.values[k], reach.points[k] = -solution.value, solution.x[:d]
            reach.multipliers[k] = solution.y[:n_own]
        return True

    def _cut_solver(self, center: Array) -> LinearSolver:
        rows = len(self.form.g) + np.arange(len(self.h))
        if self._solver is None:
            nowhere = np.zeros(self.directions.shape[1])
            cut = cut_form(self.form, nowhere, (self.A, self.h))
            program = ConicProgram(c=np.zeros(cut.G.shape[1]), A=cut.G, b=cut.g, cones=cut.cones)
            self._solver = LinearSolver(program, varying_rows=rows)
        self._solver.change_rhs(rows, self.h - self.A @ center)
        return self._solver


def has_support_to_spare(problem: DecisionProblem) -> bool:
    """Whether decisions can be tried without the known support: one piece, or several with fixed directions."""
    structure = problem.structure
    if not structure.has_known_support or not structure.has_pieces or problem.uncertain_rows:
        return False
    return structure.pieces.directions_are_fixed or (len(structure.pieces) == 1 and structure.is_continuous)


def lies_within(problem: DecisionProblem, outcomes: Array) -> Mask:
    """Which outcomes (N, d) the known support holds."""
    A, h = problem.support_rows
    with np.errstate(invalid="ignore"):
        room = h - outcomes @ A.T + INSIDE * (np.abs(h) + np.abs(outcomes) @ np.abs(A).T)
    return np.asarray((room >= 0).all(axis=1))


def is_proven(decisions: Decisions, reach: CutReach | None, problem: DecisionProblem, centers: Array) -> Mask:
    """Which decisions for the whole set are optimal for the cut set too: their worst residuals lie inside.

    `reach` is that along fixed directions; None where the one worst outcome is the decision's own.
    """
    is_optimal = np.array([status is Status.OPTIMAL for status in decisions.status], dtype=bool)
    if reach is None:
        return is_optimal & lies_within(problem, decisions.worst_outcome)
    is_free = reach.is_free(centers)
    if problem.structure.is_continuous:
        is_free |= ~tight_pieces(problem.structure.pieces, reach.free.values, np.nan_to_num(decisions.flat), centers)
    return is_optimal & is_free.all(axis=1)


def tight_pieces(pieces: Pieces, reach: Array, Z: Array, centers: Array) -> Mask:
    """Pieces that attain the worst-case cost of decisions Z (N, p), for reaches (L,) or (N, L); all are (N, L)."""
    values = reach + pieces.values(Z, centers)
    size = np.where(np.isfinite(values), np.abs(values), 0.0).max(axis=1, keepdims=True)
    return np.asarray(values >= values.max(axis=1, keepdims=True) - SOLVED * size)
