"""Decisions on a segment: problems whose Z has one dimension, such as a budget split in two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.feasible_set import FeasibleProgram, quadratic_cost
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import ConicProgram, Status, row_kinds

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem
    from polyhedge.problems.pieces import Pieces

# The solver places a vertex to 1e-9, so that a shorter segment than this has no ends worth the name; a problem that
# is not taken for a segment is decided by the general routes, exactly too.
_SHORTEST = 1e-6
_MAX_PIECES = 16
"""Pieces up to which all their crossings are compared: their number grows with the square."""


@dataclass(frozen=True)
class Segment:
    """Decisions z(s) = z0 + s (z1 - z0), their directions, and their cost without uncertainty.

    The cost of z(s) at outcome u is base[0] + base[1] s + base[2] s^2 + v(s)'u.
    """

    z0: Array
    z1: Array
    v0: Array
    v1: Array
    base: Array


@dataclass(frozen=True)
class FixedLines:
    """Decisions z0 + s (z1 - z0); each piece at residual 0 is constant + slope s, plus direction'u."""

    z0: Array
    z1: Array
    constants: Array
    slopes: Array
    directions: Array


def segment_of(pieces: Pieces, z0: Array, z1: Array, base: Array) -> Segment:
    """One piece between two decisions, where g_0 has the coefficients `base` in 1, s and s^2."""
    v0, v1 = pieces.directions(np.stack([z0, z1]))[:, 0]
    base = base.copy()
    base[0] += pieces.p[0] @ z0 + pieces.c[0]
    base[1] += pieces.p[0] @ (z1 - z0)
    return Segment(z0, z1, v0, v1, base)


def fixed_lines_of(pieces: Pieces, z0: Array, z1: Array, base: Array, nothing: Array) -> FixedLines | None:
    """Pieces as lines between two decisions; None if there are too many, or they turn or bend on the way."""
    if not pieces.directions_are_fixed or len(pieces) > _MAX_PIECES or base[2] > 0:
        return None
    values = pieces.values(np.stack([z0, z1]), nothing)
    return FixedLines(z0, z1, base[0] + values[0], base[1] + values[1] - values[0], pieces.q)


def decision_segment(problem: DecisionProblem) -> tuple[Array, Array] | None:
    """The two ends of Z if its equations say that it lies on a line and it is bounded; else None."""
    line = _Line.of(problem)
    if line is None or line.low is None or line.high is None:
        return None
    shortest = _SHORTEST * max(line.unit / 4, float(np.abs(line.low).max()), float(np.abs(line.high).max()))
    return (line.low, line.high) if line.direction @ (line.high - line.low) > shortest else None


def decision_ray(problem: DecisionProblem) -> tuple[Array, Array] | None:
    """The end of Z and one step from it, if Z is a line's half that goes on for ever; else None."""
    line = _Line.of(problem)
    if line is None:
        return None
    if line.low is not None and line.high is None:
        return line.low, line.low + line.direction
    return (line.high, line.high - line.direction) if line.high is not None and line.low is None else None


@dataclass(frozen=True)
class _Line:
    """A polyhedral Z on a line: its direction, the end to either side, if there is one, and the unit of decisions."""

    direction: Array
    low: Array | None
    high: Array | None
    unit: float

    @classmethod
    def of(cls, problem: DecisionProblem) -> _Line | None:
        program = problem.feasible.program
        is_polyhedral = all(cone.kind in ("zero", "nonneg") for cone in program.cones)
        if problem.uncertain_rows or len(program.integer) or not is_polyhedral:
            return None
        direction = _line_of(problem.feasible)
        if direction is None:
            return None
        least = _Least(problem)
        return cls(direction, least(direction), least(-direction), least.unit)


def _line_of(feasible: FeasibleProgram) -> Array | None:
    """The direction of the line that the equations of Z leave to the decision; None if they leave more or less."""
    equations, p = _equations(feasible), len(feasible.z_columns)
    if len(equations) < p - 1:
        return None
    _, sizes, axes = np.linalg.svd(equations / np.abs(equations).max(axis=1, keepdims=True, initial=0.0))
    # Sizes are right up to rounding, so that these are not zero, and the equations have this rank at least.
    rounding = max(equations.shape) * np.finfo(float).eps * sizes.max(initial=0.0)
    if (sizes > rounding).sum() != p - 1:
        return None
    direction = axes[-1]
    return np.asarray(direction * np.sign(direction[np.flatnonzero(np.abs(direction) > 0.5 / np.sqrt(p))[0]]))


def _equations(feasible: FeasibleProgram) -> Array:
    """Left-hand sides of equations of z alone, and of pairs of inequalities that say the same as one."""
    program, z = feasible.program, feasible.z_columns
    others = np.setdiff1d(np.arange(len(program.c)), z)
    of_decisions = np.asarray(abs(program.A[:, others]).sum(axis=1)).ravel() == 0
    rows, rhs = program.A[of_decisions][:, z].toarray(), program.b[of_decisions]
    is_equation = (row_kinds(program.cones) == "zero")[of_decisions]
    whole = np.column_stack([rows, rhs])
    upper = {row.tobytes() for row in whole[~is_equation] + 0.0}  # no negative zeros
    is_pair = np.array([(0.0 - row).tobytes() in upper for row in whole], dtype=bool)
    return rows[(is_equation | is_pair) & rows.any(axis=1)]


class _Least:
    """Extreme decisions of a polyhedral Z, each linear program from the last one's basis."""

    def __init__(self, problem: DecisionProblem) -> None:
        program, self.columns = problem.feasible.program, problem.feasible.z_columns
        costs = np.zeros(len(program.c))
        self.solver = LinearSolver(ConicProgram(c=costs, A=program.A, b=program.b, cones=program.cones))

    @property
    def unit(self) -> float:
        """What the solver measures decisions in, within a factor of four of their size."""
        return float(self.solver.scaling.columns[self.columns].max())

    def __call__(self, costs: Array) -> Array | None:
        self.solver.change_costs(self.columns, costs)
        solution = self.solver.solve()
        return solution.x[self.columns] if solution.status is Status.OPTIMAL else None


def quadratic_base(problem: DecisionProblem, z0: Array, z1: Array) -> Array | None:
    """Coefficients (3,) of g_0 in 1, s and s^2 along the segment if it is known to be quadratic, else None."""
    cost = quadratic_cost(problem.feasible)
    return None if cost is None else cost.along(z0, z1)
