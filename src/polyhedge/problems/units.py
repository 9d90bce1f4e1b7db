r"""A problem in other units of outcomes and costs: $u_i = s_i + a_i u_i'$ and $g = t + k g'$."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.decompose import Decomposition
from polyhedge.problems.pieces import SumOfMaxima, in_order

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem


@dataclass(frozen=True)
class Units:
    """Units of a problem.

    Attributes
    ----------
    outcome : unit of outcomes.
    cost : unit of costs.
    outcome_shift : the outcome that counts as 0; empty for 0.
    cost_shift : the cost that counts as 0.
    each : multiples of `outcome` that are the units of single outcomes, a price and a quantity; empty for 1.
    """

    outcome: float = 1.0
    cost: float = 1.0
    outcome_shift: tuple[float, ...] = ()
    cost_shift: float = 0.0
    each: tuple[float, ...] = ()

    @property
    def outcomes(self) -> Array:
        """The unit of each outcome; a number if all have the same."""
        return np.asarray(self.outcome * np.array(self.each) if self.each else self.outcome)

    @property
    def shift(self) -> Array:
        """The outcome that counts as 0; a number if it is 0."""
        return np.array(self.outcome_shift) if self.outcome_shift else np.zeros(())

    @property
    def are_usual(self) -> bool:
        """Whether nothing changes."""
        return self == Units()


def scaled(problem: DecisionProblem, units: Units) -> DecisionProblem:
    """The same problem in other units: its arrays are changed, nothing is compiled again.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> twin = scaled(simplex_linear([4.0, 8.0]), Units(outcome=2.0, cost=2.0, cost_shift=4.0))
    >>> twin.evaluate(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0]]))
    array([5.])
    """
    return problem.variants.get(units, lambda: _scaled(problem, units))


def _scaled(problem: DecisionProblem, units: Units) -> DecisionProblem:
    parts, feasible, whole = problem.cost_split, problem.feasible, problem.sum_of_maxima
    program, written = feasible.program, problem.written
    if parts is not None:
        program = replace(
            program,
            c=program.c / units.cost,
            P=None if program.P is None else program.P / units.cost,
            offset=(program.offset - units.cost_shift) / units.cost,
        )
        decision_part = (parts.decision_part - units.cost_shift) / units.cost
        parts = Decomposition(decision_part, _scaled_joint(parts.joint_part, units, units.cost))
    A, h = problem.support_rows
    outcome = cp.multiply(units.outcomes, written.outcome) if units.each else units.outcome * written.outcome
    changed = written.substituted({written.outcome.id: outcome + units.shift})
    return problem.with_parts(
        recomputed=("pieces", "uncertain_rows", "outcomes_are_nonneg", "_cost_values", "_uncertain"),
        written=replace(changed, cost=(changed.cost - units.cost_shift) / units.cost),
        support_rows=(units.outcomes * A, h - (A @ units.shift if units.outcome_shift else 0.0)),
        _rows=[replace(row, joint_part=_scaled_joint(row.joint_part, units, 1.0)) for row in problem._rows],
        feasible=replace(feasible, program=program),
        _cost_parts=parts,
        sum_of_maxima=None if parts is None or whole is None else _scaled_joint(whole, units, units.cost),
        is_in_own_units=True,
        made_by=(scaled, (problem, units)),
    )


def _scaled_joint(joint: SumOfMaxima, units: Units, cost: float) -> SumOfMaxima:
    """Coefficients of [1, z]'M [1, u], shape (..., 1+p, 1+d), for the new outcome."""

    def changed(M: Array) -> Array:
        new = M / cost
        new[..., 1:] *= units.outcomes
        if units.outcome_shift:
            new[..., 0] += (M[..., 1:] @ units.shift) / cost
        return np.asarray(new)

    return SumOfMaxima(changed(joint.base), tuple(in_order(changed(group)) for group in joint.groups))
