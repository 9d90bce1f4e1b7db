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
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from polyhedge._support.validation import Array, Mask
from polyhedge.problems.feasible_set import QuadraticCost, quadratic_cost
from polyhedge.problems.segment import (
    FixedLines,
    Segment,
    decision_ray,
    decision_segment,
    fixed_lines_of,
    quadratic_base,
    segment_of,
)

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem
    from polyhedge.problems.lifted import Lifted
    from polyhedge.problems.pieces import Pieces, SumOfMaxima


class Kind(StrEnum):
    """Forms of a problem, the most special first."""

    SEGMENT = "segment"
    FIXED_DIRECTIONS = "fixed directions"
    PIECES = "pieces"
    SUM_OF_MAXIMA = "sum of maxima"
    GENERAL = "general"


@dataclass(frozen=True, eq=False)
class Structure:
    """The form of a problem; each property is computed once.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear, simplex_newsvendor
    >>> str(simplex_linear([0.0, 0.0]).structure.kind), str(simplex_newsvendor(1.0, 2.0, 2).structure.kind)
    ('segment', 'fixed directions')
    """

    problem: DecisionProblem

    @cached_property
    def kind(self) -> Kind:
        """The most special form that the problem has."""
        if self.is_on_segment:
            return Kind.SEGMENT
        if self.has_fixed_directions:
            return Kind.FIXED_DIRECTIONS
        if self.has_pieces:
            return Kind.PIECES
        return Kind.SUM_OF_MAXIMA if self.has_maxima else Kind.GENERAL

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
    def ends(self) -> tuple[Array, Array] | None:
        """The two ends of Z if it is a segment; else None."""
        return decision_segment(self.problem)

    @cached_property
    def ray(self) -> tuple[Array, Array] | None:
        """The end of Z and one step from it, if it is a half-line; else None."""
        return decision_ray(self.problem)

    @cached_property
    def base(self) -> Array | None:
        """Coefficients (3,) of g_0 in 1, s and s^2 between the ends, if it is quadratic; else None."""
        return None if self.ends is None else quadratic_base(self.problem, *self.ends)

    @cached_property
    def segment(self) -> Segment | None:
        """Decisions, directions and costs along a segment; None if the problem has another form."""
        if not self.has_pieces or len(self.pieces) > 1 or self.has_known_support:
            return None
        if self.ends is None or self.base is None:
            return None
        return segment_of(self.pieces, *self.ends, self.base)

    @property
    def is_on_segment(self) -> bool:
        """Whether one piece is decided along a segment."""
        return self.segment is not None

    @cached_property
    def fixed_lines(self) -> FixedLines | None:
        """Few pieces with fixed directions as lines along a segment; None if the problem has another form."""
        if not self.has_pieces or self.has_known_support or self.ends is None or self.base is None:
            return None
        return fixed_lines_of(self.pieces, *self.ends, self.base, np.zeros((2, self.problem.n_outcomes)))

    @property
    def has_fixed_lines(self) -> bool:
        """Whether few pieces with fixed directions are decided along a segment."""
        return self.fixed_lines is not None
