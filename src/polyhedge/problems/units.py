r"""A problem in other units: $u = s + a u'$ and $g = t + k g'$.

Algorithms with tolerances of their own, such as those that learn a set, see residuals of about 1, outcomes not far from
0 and costs that differ by about 1. Numbers that another unit changes in their last bits only are the same here: they
are rounded to twelve digits. Decisions keep their units: programs are solved in units of their own (`solvers.scaling`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.decompose import Decomposition
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.written import Written, substitute, substitute_in

_BITS = 40
"""Bits of a coefficient that are kept, of 53: the rest is what changes of unit add."""


@dataclass(frozen=True)
class Units:
    """Outcomes are counted from `outcome_shift` in terms of `outcome`, costs from `cost_shift` in terms of `cost`."""

    outcome: float = 1.0
    cost: float = 1.0
    outcome_shift: tuple[float, ...] = ()
    cost_shift: float = 0.0

    @property
    def shift(self) -> Array:
        """The outcome that counts as 0; a number where it is 0 itself."""
        return np.array(self.outcome_shift) if self.outcome_shift else np.zeros(())

    @property
    def are_usual(self) -> bool:
        """Whether nothing changes."""
        return self == Units()


def problem_in(problem: DecisionProblem, units: Units) -> DecisionProblem:
    """The same problem in other units, which are then its own: arrays are changed, nothing is compiled again.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> twin = problem_in(simplex_linear([4.0, 8.0]), Units(outcome=2.0, cost=2.0, cost_shift=4.0))
    >>> twin.evaluate(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0]]))
    array([5.])
    """
    key = np.array([units.outcome, units.cost, units.cost_shift, *units.outcome_shift])
    return problem.in_units.get(key, lambda _: _problem_in(problem, units))


def _problem_in(problem: DecisionProblem, units: Units) -> DecisionProblem:
    parts, feasible = problem.cost_split, problem.feasible
    if parts is not None:
        program = feasible.program
        offset = float(rounded(np.array((program.offset - units.cost_shift) / units.cost)))
        P = None if program.P is None else _rounded_entries(program.P / units.cost)
        c = rounded(program.c / units.cost)
        feasible = replace(feasible, program=replace(program, c=c, P=P, offset=offset))
        parts = Decomposition(
            (parts.decision_part - units.cost_shift) / units.cost, _joint_in(parts.joint_part, units, units.cost)
        )
    return problem.with_parts(
        anew=("pieces", "outcomes_are_nonneg", "_cost_values"),
        written=_written_in(problem.written, units),
        uncertain_rows=_rows_in(problem, units),
        support_rows=_support_in(problem, units),
        _rows=_row_parts_in(problem, units),
        feasible=feasible,
        _cost_parts=parts,
        sum_of_maxima=None if problem.sum_of_maxima is None else _joint_in(problem.sum_of_maxima, units, units.cost),
        is_in_own_units=True,
    )


def _written_in(written: Written, units: Units) -> Written:
    """The formulas with the outcome replaced by what it is in terms of the new one."""
    leaves = {written.outcome.id: units.outcome * written.outcome + units.shift}
    return replace(
        written,
        cost=(substitute(written.cost, leaves) - units.cost_shift) / units.cost,
        uncertain=tuple(substitute_in(row, leaves) for row in written.uncertain),
        support=tuple(substitute_in(row, leaves) for row in written.support),
    )


def _joint_in(joint: SumOfMaxima, units: Units, cost: float) -> SumOfMaxima:
    return SumOfMaxima(_matrix_in(joint.base, units, cost), tuple(_matrix_in(g, units, cost) for g in joint.groups))


def _matrix_in(M: Array, units: Units, cost: float) -> Array:
    """Coefficients of [1, z]'M [1, u], shape (..., 1+p, 1+d), for the new outcome."""
    changed = M / cost
    changed[..., 1:] *= units.outcome
    if units.outcome_shift:
        changed[..., 0] += (M[..., 1:] @ units.shift) / cost
    return rounded(changed)


def _rows_in(problem: DecisionProblem, units: Units) -> tuple[Pieces, ...]:
    return tuple(
        Pieces(
            Q=rounded(units.outcome * pieces.Q),
            q=rounded(units.outcome * pieces.q),
            p=pieces.p + (np.einsum("ldp,d->lp", pieces.Q, units.shift) if units.outcome_shift else 0.0),
            c=pieces.c + (pieces.q @ units.shift if units.outcome_shift else 0.0),
        )
        for pieces in problem.uncertain_rows
    )


def _row_parts_in(problem: DecisionProblem, units: Units) -> list[Decomposition]:
    return [replace(row, joint_part=_joint_in(row.joint_part, units, 1.0)) for row in problem._rows]


def _support_in(problem: DecisionProblem, units: Units) -> tuple[Array, Array]:
    A, h = problem.support_rows
    return rounded(units.outcome * A), h - (A @ units.shift if units.outcome_shift else 0.0)


def _rounded_entries(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((rounded(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)


def rounded(numbers: Array) -> Array:
    """Each number to the bits that are kept.

    Examples
    --------
    >>> rounded(np.array([3.0, 3.0 + 1e-15])).tolist()
    [3.0, 3.0]
    """
    fractions, exponents = np.frexp(numbers)
    return np.asarray(np.ldexp(np.round(np.ldexp(fractions, _BITS)), exponents - _BITS))
