r"""A problem in other units: $u_i = s_i + a_i u_i'$, $g = t + k g'$ and $z_j = m_j z_j'$.

Algorithms with tolerances of their own, such as those that learn a set, see residuals of about 1, outcomes not far from
0, costs that differ by about 1 and decisions that go as far as about 1. Numbers that another unit changes in their last
bits only are the same here: they are rounded to twelve digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.decision_units import constraint_unit, row_units
from polyhedge.problems.decompose import Decomposition
from polyhedge.problems.formula import substitute, substitute_in
from polyhedge.problems.layout import in_structure
from polyhedge.problems.pieces import SumOfMaxima, in_order
from polyhedge.problems.written import Written
from polyhedge.solvers.program import ConicProgram
from polyhedge.solvers.scaling import scaled

_BITS = 40
"""Bits of a coefficient that are kept, of 53: the rest is what changes of unit add."""


@dataclass(frozen=True)
class Units:
    """Outcomes are counted from `outcome_shift` in terms of `outcome`, costs from `cost_shift` in terms of `cost`.

    `each` are multiples of `outcome` that single outcomes are measured in, a price and a quantity; none for 1.
    The columns of the program are measured in terms of `columns`, which then multiply its rows as well, so that the
    largest number of each is 1; none for all as they are.
    """

    outcome: float = 1.0
    cost: float = 1.0
    outcome_shift: tuple[float, ...] = ()
    cost_shift: float = 0.0
    columns: tuple[float, ...] = ()
    each: tuple[float, ...] = ()

    @property
    def outcomes(self) -> Array:
        """What each outcome is measured in; a number where all are measured alike."""
        return np.asarray(self.outcome * np.array(self.each) if self.each else self.outcome)

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
    key = np.array([units.outcome, units.cost, units.cost_shift, *units.columns, *units.outcome_shift, *units.each])
    return problem.in_units.get(key, lambda _: _problem_in(problem, units))


def _problem_in(problem: DecisionProblem, units: Units) -> DecisionProblem:
    parts, feasible, has_pieces = problem.cost_split, problem.feasible, problem.cost_split is not None
    z_units = np.array(units.columns)[feasible.z_columns] if units.columns else np.ones(problem.n_decisions)
    program = _columns_in(feasible.program, np.array(units.columns)) if units.columns else feasible.program
    written, leaves = _in_new_variables(problem.written, z_units if units.columns else None)
    if parts is not None:
        offset = float(rounded(np.array((program.offset - units.cost_shift) / units.cost)))
        P = None if program.P is None else _rounded_entries(program.P / units.cost)
        program = replace(program, c=rounded(program.c / units.cost), P=P, offset=offset)
        decision_part = (substitute(parts.decision_part, leaves) - units.cost_shift) / units.cost
        parts = Decomposition(decision_part, _joint_in(parts.joint_part, units, units.cost, z_units))
    whole = problem.sum_of_maxima
    return problem.with_parts(
        anew=("pieces", "uncertain_rows", "outcomes_are_nonneg", "_cost_values", "_uncertain"),
        decision=in_structure(problem.decision, written.variables[: written.layout.n_given]),
        written=_written_in(written, units),
        support_rows=_support_in(problem, units),
        _rows=_row_parts_in(problem, units, z_units, leaves),
        feasible=replace(feasible, program=program),
        _cost_parts=parts,
        sum_of_maxima=_joint_in(whole, units, units.cost, z_units) if has_pieces and whole is not None else None,
        is_in_own_units=True,
        made_by=(problem_in, (problem, units)),
    )


def _columns_in(program: ConicProgram, columns: Array) -> ConicProgram:
    """The program with its columns in these units and its rows in those that follow."""
    rows = row_units(program, columns)
    return replace(
        program,
        c=program.c * columns,
        A=_rounded_entries(scaled(program.A, rows, columns)),
        b=rounded(rows * program.b),
        P=None if program.P is None else scaled(program.P, columns, columns),
    )


def _in_new_variables(written: Written, z_units: Array | None) -> tuple[Written, dict[int, Any]]:
    """The formulas in variables of other units, and what takes the place of the old ones."""
    if z_units is None:
        return written, {}
    each = [np.asarray(part) for part in written.layout.split(z_units)]
    fresh = tuple(_variable_in(v, unit) for v, unit in zip(written.variables, each, strict=True))
    leaves = {v.id: cp.multiply(unit, other) for v, other, unit in zip(written.variables, fresh, each, strict=True)}
    certain = tuple(substitute_in(row, leaves) for row in written.certain)
    changed = replace(written, variables=fresh, certain=certain, cost=substitute(written.cost, leaves))
    return replace(changed, uncertain=tuple(substitute_in(row, leaves) for row in written.uncertain)), leaves


def _variable_in(variable: cp.Variable, unit: Array) -> cp.Variable:
    """A variable with the same attributes; bounds are in the new unit."""
    kept = {name: value for name, value in variable.attributes.items() if value is not None and value is not False}
    if "bounds" in kept:
        kept["bounds"] = [np.broadcast_to(np.asarray(bound, float), variable.shape) / unit for bound in kept["bounds"]]
    return cp.Variable(variable.shape, name=variable.name(), **kept)


def _written_in(written: Written, units: Units) -> Written:
    """The formulas with the outcome replaced by what it is in terms of the new one."""
    outcome = cp.multiply(units.outcomes, written.outcome) if units.each else units.outcome * written.outcome
    leaves = {written.outcome.id: outcome + units.shift}
    return replace(
        written,
        cost=(substitute(written.cost, leaves) - units.cost_shift) / units.cost,
        uncertain=tuple(substitute_in(row, leaves) for row in written.uncertain),
        support=tuple(substitute_in(row, leaves) for row in written.support),
    )


def _joint_in(joint: SumOfMaxima, units: Units, cost: float, z_units: Array) -> SumOfMaxima:
    base, *groups = (_matrix_in(M, units, cost, z_units) for M in (joint.base, *joint.groups))
    return SumOfMaxima(base, tuple(map(in_order, groups)))


def _matrix_in(M: Array, units: Units, cost: float, z_units: Array) -> Array:
    """Coefficients of [1, z]'M [1, u], shape (..., 1+p, 1+d), for the new outcome and decision."""
    changed = M / cost
    changed[..., 1:] *= units.outcomes
    if units.outcome_shift:
        changed[..., 0] += (M[..., 1:] @ units.shift) / cost
    changed[..., 1:, :] *= z_units[:, None]
    return rounded(changed)


def _row_parts_in(
    problem: DecisionProblem, units: Units, z_units: Array, leaves: dict[int, Any]
) -> list[Decomposition]:
    """The uncertain constraints, each in a unit of its own: what is at most 0 stays so."""
    decompositions = []
    for row in problem._rows:
        unit = constraint_unit(row.joint_part, z_units, units.outcome, units.each) if units.columns else 1.0
        part = substitute(row.decision_part, leaves) / unit
        decompositions.append(Decomposition(part, _joint_in(row.joint_part, units, unit, z_units)))
    return decompositions


def _support_in(problem: DecisionProblem, units: Units) -> tuple[Array, Array]:
    A, h = problem.support_rows
    return rounded(units.outcomes * A), h - (A @ units.shift if units.outcome_shift else 0.0)


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
