r"""The structure of a problem: which closed forms, certificates and routes apply to it.

The cost is $g_0(z)$ plus a joint part of decision and outcome. By that part and by Z a problem is

| kind             | joint part                                    | Z                       |
|------------------|-----------------------------------------------|-------------------------|
| segment          | one piece, $(Qz + q)^\top u + p^\top z + c$   | a segment, nothing else |
| fixed directions | a maximum of $q_l^\top u + p_l^\top z + c_l$  | continuous              |
| pieces           | a maximum of listed pieces                    | any                     |
| sum of maxima    | too many pieces to list                       | any                     |
| general          | concave or convex in u                        | any                     |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from polyhedge._support.validation import Array, Mask
from polyhedge.problems.feasible_set import QuadraticCost, quadratic_cost
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import ConicProgram, Status, row_kinds

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem
    from polyhedge.problems.lifted import Lifted
    from polyhedge.problems.pieces import Pieces, SumOfMaxima


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


@dataclass(frozen=True, eq=False)
class Structure:
    """The form of a problem; each property is computed once.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear, simplex_newsvendor
    >>> simplex_linear([0.0, 0.0]).structure.segment is None, simplex_newsvendor(1.0, 2.0, 2).structure.segment is None
    (False, True)
    """

    problem: DecisionProblem

    @property
    def has_pieces(self) -> bool:
        """Whether the joint part is a maximum of listed pieces, affine in the outcome."""
        return self.problem.pieces is not None

    @property
    def pieces(self) -> Pieces:
        """The pieces, for callers that need them."""
        if self.problem.pieces is None:
            raise ValueError(
                "The cost must be a maximum of not too many functions that are affine in the outcome, got one that is "
                f"{self.problem.curvature}. The learner Descent takes every problem."
            )
        return self.problem.pieces

    @property
    def has_maxima(self) -> bool:
        """Whether the joint part is a sum of maxima of affine functions, of however many pieces."""
        return self.problem.cost_split is not None

    @cached_property
    def maxima(self) -> SumOfMaxima:
        """That sum over [outcome, parameters], for callers that need it."""
        if self.problem.cost_split is None:
            raise ValueError("The cost must be a sum of maxima of functions that are affine in the outcome.")
        return self.problem.cost_split.joint_part.merged()

    @property
    def has_lifted_pieces(self) -> bool:
        """Whether there are parameters, and one list of pieces serves all their values."""
        return self.problem.lifted is not None and self.problem.lifted.pieces is not None

    @property
    def lifted(self) -> Lifted:
        """The problem with its parameters as coordinates, for callers that know that it has this form."""
        assert self.problem.lifted is not None
        return self.problem.lifted

    @property
    def is_continuous(self) -> bool:
        """Whether no decision is integer."""
        return not len(self.problem.feasible.program.integer)

    @property
    def has_known_support(self) -> bool:
        """Whether outcomes have a known support."""
        return bool(len(self.problem.support_rows[0]))

    @property
    def has_fixed_directions(self) -> bool:
        """Whether no direction in which the cost rises depends on the decision or the context."""
        return not self.has_known_support and self.has_fixed_directions_in_support

    @cached_property
    def has_fixed_directions_in_support(self) -> bool:
        """The same with a known support, which may cut the set of each context elsewhere."""
        if not self.has_pieces or self.problem.uncertain_rows:
            return False
        return self.pieces.directions_are_fixed and self.is_continuous

    @cached_property
    def ignored_outcomes(self) -> Mask:
        """Outcomes (d,) that neither cost nor constraints look at; none if this cannot be read from coefficients."""
        problem = self.problem
        parts, lifted = problem.cost_split, problem.lifted_parts
        if parts is None:
            return np.zeros(problem.n_outcomes, dtype=bool)
        rows = problem._rows if lifted is None else lifted.rows
        joints = [parts.joint_part, *(row.joint_part for row in rows)]
        seen = [M[..., 1:].any(axis=tuple(range(M.ndim - 1))) for joint in joints for M in (joint.base, *joint.groups)]
        return np.asarray(~np.any(seen, axis=0)[: problem.n_outcomes])

    @cached_property
    def own_cost(self) -> QuadraticCost | None:
        """The part of the cost that is the decision's alone as a quadratic form; None if it is another function."""
        return None if self.problem.parameters else quadratic_cost(self.problem.feasible)

    @cached_property
    def _line(self) -> _Line | None:
        """The line that the equations of Z leave to the decision; None if they leave more or less."""
        feasible = self.problem.feasible
        program, z = feasible.program, feasible.z_columns
        is_polyhedral = all(cone.kind in ("zero", "nonneg") for cone in program.cones)
        if self.problem.uncertain_rows or len(program.integer) or not is_polyhedral:
            return None
        # Equations of z alone, and pairs of inequalities that say the same as one.
        others = np.setdiff1d(np.arange(len(program.c)), z)
        of_decisions = np.asarray(abs(program.A[:, others]).sum(axis=1)).ravel() == 0
        rows = program.A[of_decisions][:, z].toarray()
        is_equation = (row_kinds(program.cones) == "zero")[of_decisions]
        whole = np.column_stack([rows, program.b[of_decisions]])
        upper = {row.tobytes() for row in whole[~is_equation] + 0.0}  # no negative zeros
        is_pair = np.array([(0.0 - row).tobytes() in upper for row in whole], dtype=bool)
        equations, p = rows[(is_equation | is_pair) & rows.any(axis=1)], len(z)
        if len(equations) < p - 1:
            return None
        _, sizes, axes = np.linalg.svd(equations / np.abs(equations).max(axis=1, keepdims=True, initial=0.0))
        # Sizes are right up to rounding, so that these are not zero, and the equations have this rank at least.
        rounding = max(equations.shape) * np.finfo(float).eps * sizes.max(initial=0.0)
        if (sizes > rounding).sum() != p - 1:
            return None
        direction = axes[-1] * np.sign(axes[-1][np.flatnonzero(np.abs(axes[-1]) > 0.5 / np.sqrt(p))[0]])
        solver = LinearSolver(ConicProgram(c=np.zeros(len(program.c)), A=program.A, b=program.b, cones=program.cones))

        def least(costs: Array) -> Array | None:
            solver.change_costs(z, costs)
            solution = solver.solve()
            return solution.x[z] if solution.status is Status.OPTIMAL else None

        # The solver measures decisions within a factor of four of their size.
        return _Line(direction, least(direction), least(-direction), float(solver.scaling.columns[z].max()))

    @cached_property
    def ends(self) -> tuple[Array, Array] | None:
        """The two ends of Z if its equations say that it lies on a line and it is bounded; else None."""
        line = self._line
        if line is None or line.low is None or line.high is None:
            return None
        # The solver places a vertex to 1e-9, so that a shorter segment has no ends worth the name; the general routes
        # decide such a problem exactly, too.
        shortest = 1e-6 * max(line.unit / 4, float(np.abs(line.low).max()), float(np.abs(line.high).max()))
        return (line.low, line.high) if line.direction @ (line.high - line.low) > shortest else None

    @cached_property
    def ray(self) -> tuple[Array, Array] | None:
        """The end of Z and one step from it, if Z is a half-line; else None."""
        line = self._line
        if line is None:
            return None
        if line.low is not None and line.high is None:
            return line.low, line.low + line.direction
        return (line.high, line.high - line.direction) if line.high is not None and line.low is None else None

    @cached_property
    def base(self) -> Array | None:
        """Coefficients (3,) of g_0 in 1, s and s^2 between the ends, if it is quadratic; else None."""
        return None if self.ends is None or self.own_cost is None else self.own_cost.along(*self.ends)

    @cached_property
    def segment(self) -> Segment | None:
        """Decisions, directions and costs along a segment; None if the problem has another form."""
        if not self.has_pieces or len(self.pieces) > 1 or self.has_known_support:
            return None
        if self.ends is None or self.base is None:
            return None
        (z0, z1), pieces = self.ends, self.pieces
        v0, v1 = pieces.directions(np.stack([z0, z1]))[:, 0]
        own = np.array([pieces.p[0] @ z0 + pieces.c[0], pieces.p[0] @ (z1 - z0), 0.0])
        return Segment(z0, z1, v0, v1, self.base + own)

    @cached_property
    def fixed_lines(self) -> FixedLines | None:
        """At most 16 pieces (all crossings are compared) with fixed directions as lines along a segment, or None."""
        if not self.has_pieces or self.has_known_support or self.ends is None or self.base is None:
            return None
        if not self.pieces.directions_are_fixed or len(self.pieces) > 16 or self.base[2] > 0:
            return None
        first, last = self.pieces.values(np.stack(self.ends), np.zeros((2, self.problem.n_outcomes)))
        return FixedLines(*self.ends, self.base[0] + first, self.base[1] + last - first, self.pieces.q)


@dataclass(frozen=True)
class _Line:
    """A polyhedral Z on a line: its direction, the end to either side, if there is one, and the unit of decisions."""

    direction: Array
    low: Array | None
    high: Array | None
    unit: float
