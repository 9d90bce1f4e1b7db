r"""Robust decisions with a known support of the outcome: the support enters only where it binds.

The set without the support is larger, so that its robust cost is an upper bound. It is the robust cost of the cut set
$\{e \in P : A (f + e) \le h\}$ where a worst residual of every tight piece lies within the support. All contexts are
decided without the support in one batch, and only those where it binds once more with it: 100 times faster where few
predictions lie near the limit. Integer decisions have no multipliers, so every piece counts as tight.

`CutReach` is the support function of the cut set along fixed directions,
$h_l(f) = \max \{q_l^\top e : e \in P,\ A (f + e) \le h\}$.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import INSIDE, SOLVED
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.problems.pieces import Pieces
from polyhedge.robust.support import SupportCertificate, cut_form, maximise
from polyhedge.sets import Shape
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import ConicForm, ConicProgram, SolverError, Status


@dataclass(frozen=True)
class Reach:
    """Along L directions at one prediction: values (L,), worst residuals (L, d), multipliers of the set's own rows."""

    values: Array
    points: Array
    multipliers: Array


class CutReach:
    """The reach of one set along given directions, around any prediction.

    Parameters
    ----------
    form : the residual set, linear.
    directions : (L, d)
    support_rows : A, h of the known support {u : A u <= h}.
    free : the reach of the whole set, where it is known.
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
