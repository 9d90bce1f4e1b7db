r"""A problem in other units: $u_i = s_i + a_i u_i'$, $g = t + k g'$ and $z_j = m_j z_j'$.

Learners see residuals of about 1, outcomes near 0, costs that differ by about 1 and decisions of about 1, whatever the
user measures them in. `DecisionUnits` reads the units of decisions from the problem: the distance to the nearest limit
on a decision, or the amount of it that weighs as much as an outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.problems.decompose import Decomposition
from polyhedge.problems.formula import substitute
from polyhedge.problems.layout import in_structure
from polyhedge.problems.pieces import SumOfMaxima, in_order
from polyhedge.problems.written import Written
from polyhedge.solvers.program import ConicProgram
from polyhedge.solvers.scaling import Scaling
from polyhedge.solvers.scaling import scaled as scaled_matrix

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
    columns : units of the columns of the program; empty for 1.
    each : multiples of `outcome` that are the units of single outcomes, a price and a quantity; empty for 1.
    """

    outcome: float = 1.0
    cost: float = 1.0
    outcome_shift: tuple[float, ...] = ()
    cost_shift: float = 0.0
    columns: tuple[float, ...] = ()
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
    key = np.array([units.outcome, units.cost, units.cost_shift, *units.columns, *units.outcome_shift, *units.each])
    return problem.in_units.get(key, lambda _: _scaled(problem, units))


def _scaled(problem: DecisionProblem, units: Units) -> DecisionProblem:
    parts, feasible, whole = problem.cost_split, problem.feasible, problem.sum_of_maxima
    program, z_units = feasible.program, np.ones(problem.n_decisions)
    if units.columns:
        columns = np.array(units.columns)
        program, z_units = _scaled_program(program, columns), columns[feasible.z_columns]
    written, leaves = _in_new_variables(problem.written, z_units if units.columns else None)
    if parts is not None:
        program = replace(
            program,
            c=program.c / units.cost,
            P=None if program.P is None else program.P / units.cost,
            offset=(program.offset - units.cost_shift) / units.cost,
        )
        decision_part = (substitute(parts.decision_part, leaves) - units.cost_shift) / units.cost
        parts = Decomposition(decision_part, _scaled_joint(parts.joint_part, units, units.cost, z_units))
    rows = []
    for row in problem._rows:
        # What is at most 0 stays so in any unit.
        unit = _constraint_unit(row.joint_part, z_units, units.outcome, units.each) if units.columns else 1.0
        part = substitute(row.decision_part, leaves) / unit
        rows.append(Decomposition(part, _scaled_joint(row.joint_part, units, unit, z_units)))
    A, h = problem.support_rows
    return problem.with_parts(
        recomputed=("pieces", "uncertain_rows", "outcomes_are_nonneg", "_cost_values", "_uncertain"),
        decision=in_structure(problem.decision, written.variables[: written.layout.n_given]),
        written=_in_new_outcome(written, units),
        support_rows=(units.outcomes * A, h - (A @ units.shift if units.outcome_shift else 0.0)),
        _rows=rows,
        feasible=replace(feasible, program=program),
        _cost_parts=parts,
        sum_of_maxima=None if parts is None or whole is None else _scaled_joint(whole, units, units.cost, z_units),
        is_in_own_units=True,
        made_by=(scaled, (problem, units)),
    )


def _scaled_program(program: ConicProgram, columns: Array) -> ConicProgram:
    """The program with its columns in these units and rows whose largest entry is 1."""
    limits = _Limits.of(program, smallest=0.0)
    size = (limits.A @ sp.diags_array(columns)).max(axis=1).toarray().ravel()
    rows = np.where(limits.has_unit, 1 / np.where(size > 0, size, 1.0), 1.0)[limits.group]
    return replace(
        program,
        c=program.c * columns,
        A=scaled_matrix(program.A, rows, columns),
        b=rows * program.b,
        P=None if program.P is None else scaled_matrix(program.P, columns, columns),
    )


def _in_new_variables(written: Written, z_units: Array | None) -> tuple[Written, dict[int, Any]]:
    """The formulas in variables of other units, and the replacements of the old variables."""
    if z_units is None:
        return written, {}
    fresh, leaves = [], {}
    for variable, unit in zip(written.variables, written.layout.split(z_units), strict=True):
        kept = {name: value for name, value in variable.attributes.items() if value is not None and value is not False}
        if "bounds" in kept:
            kept["bounds"] = [np.broadcast_to(np.asarray(b, float), variable.shape) / unit for b in kept["bounds"]]
        fresh.append(cp.Variable(variable.shape, name=variable.name(), **kept))
        leaves[variable.id] = cp.multiply(np.asarray(unit), fresh[-1])
    return written.substituted(leaves, variables=tuple(fresh)), leaves


def _in_new_outcome(written: Written, units: Units) -> Written:
    outcome = cp.multiply(units.outcomes, written.outcome) if units.each else units.outcome * written.outcome
    changed = written.substituted({written.outcome.id: outcome + units.shift})
    return replace(changed, cost=(changed.cost - units.cost_shift) / units.cost)


def _scaled_joint(joint: SumOfMaxima, units: Units, cost: float, z_units: Array) -> SumOfMaxima:
    """Coefficients of [1, z]'M [1, u], shape (..., 1+p, 1+d), for the new outcome and decision."""

    def changed(M: Array) -> Array:
        new = M / cost
        new[..., 1:] *= units.outcomes
        if units.outcome_shift:
            new[..., 0] += (M[..., 1:] @ units.shift) / cost
        new[..., 1:, :] *= z_units[:, None]
        return np.asarray(new)

    return SumOfMaxima(changed(joint.base), tuple(in_order(changed(group)) for group in joint.groups))


@dataclass(frozen=True, eq=False)
class DecisionUnits:
    """Units of the columns of a problem's program; NaN if only costs give them, see `with_costs`."""

    columns: Array
    slope: float
    """The largest change of the cost with an outcome, at a unit of each decision; 0 if unknown."""

    @classmethod
    def of(cls, problem: DecisionProblem, outcome: float, each: tuple[float, ...] = ()) -> DecisionUnits:
        """Units from the limits on decisions, and from outcomes measured in `outcome` (or multiples of it, `each`)."""
        feasible = problem.feasible
        program, z = feasible.program, feasible.z_columns
        limits = _Limits.of(program)
        columns = limits.reach()
        joints = [] if problem.cost_split is None else [problem.cost_split.joint_part]
        sizes = [_sizes(joint, each) for joint in (*joints, *(row.joint_part for row in problem._rows))]
        for M in sizes:
            columns[z] = _first(columns[z], _quotient(outcome * M[0, 1:].max(initial=0.0), M[1:, 0]))
        if joints and program.P is not None:
            own = np.abs(program.P.diagonal())[z]
            columns[z] = _first(columns[z], _quotient(outcome * sizes[0][1:, 1:].max(axis=1, initial=0.0), own))
        columns[program.integer] = 1.0
        columns = limits.linked(columns)
        return cls(columns, _largest(sizes[0][:, 1:], columns[z]) if joints else 0.0)

    def with_costs(
        self, problem: DecisionProblem, outcome: float, cost: float, each: tuple[float, ...] = ()
    ) -> tuple[float, ...]:
        """Units of all columns, if outcomes and costs are measured in these."""
        feasible, columns = problem.feasible, self.columns
        if np.isnan(columns).any():
            limits = _Limits.of(feasible.program)
            columns = limits.linked(_first(columns, _quotient(cost, np.abs(feasible.program.c))))
        columns = _first(columns, np.ones(len(columns)))
        for k, row in zip(feasible.epigraph_columns, problem._rows, strict=True):
            if k >= 0:  # it is added to the constraint as it is
                columns[k] = _constraint_unit(row.joint_part, columns[feasible.z_columns], outcome, each)
        return tuple(columns.tolist())


@dataclass(frozen=True, eq=False)
class _Limits:
    """Absolute values of a program's rows; one row for a cone whose rows have one unit.

    Attributes
    ----------
    A, b : the largest absolute values of each unit's rows.
    group : the unit of each row of the program.
    has_unit : whether the rows of a group have one unit; those of products, powers and matrices may have several.
    """

    A: sp.csr_array
    b: Array
    group: Indices
    has_unit: Array

    @classmethod
    def of(cls, program: ConicProgram, smallest: float = 2.0**-20) -> _Limits:
        """Entries below `smallest` in the scaled program are rounding, and tell nothing of units."""
        groups, has_unit = [np.zeros(0, dtype=np.int64)], list[bool]()
        for cone in program.cones:
            is_row_by_row = cone.kind in ("zero", "nonneg")
            n = cone.n_rows if is_row_by_row else 1
            groups.append(len(has_unit) + (np.arange(cone.n_rows) if is_row_by_row else np.zeros(cone.n_rows, int)))
            has_unit += [is_row_by_row or cone.kind in ("soc", "exp")] * n
        group, of_one_unit = np.concatenate(groups), np.array(has_unit, dtype=bool)
        A, b = abs(program.A).tocoo(), np.abs(program.b)
        kept = of_one_unit[group[A.row]] & (A.data > 0)
        if smallest:
            scaling = Scaling.of(program)
            kept &= A.data * scaling.rows[A.row] * scaling.columns[A.col] > smallest
            b = np.where(b * scaling.rows > smallest, b, 0.0)
        shape, largest = (len(has_unit), A.shape[1]), np.zeros(len(has_unit))
        np.maximum.at(largest, group, b)
        place, where = np.unique(group[A.row[kept]] * shape[1] + A.col[kept], return_inverse=True)
        entries = np.zeros(len(place))
        np.maximum.at(entries, where, A.data[kept])
        matrix = sp.csr_array((entries, (place // shape[1], place % shape[1])), shape=shape)
        return cls(matrix, np.where(of_one_unit, largest, 0.0), group, of_one_unit)

    def reach(self) -> Array:
        """The distance of the nearest limit on each column; NaN if there is none."""
        A = self.A.tocoo()
        is_limit = self.b[A.row] > 0
        reach = np.full(A.shape[1], np.inf)
        np.minimum.at(reach, A.col[is_limit], self.b[A.row[is_limit]] / A.data[is_limit])
        return np.where(np.isfinite(reach), reach, np.nan)

    def linked(self, columns: Array) -> Array:
        """Units also of columns that share a row with one whose unit is known, one step after the other."""
        A = self.A.tocoo()
        while True:
            known = np.isfinite(columns)
            size = np.zeros(A.shape[0])
            np.maximum.at(size, A.row[known[A.col]], (A.data * np.where(known, columns, 0.0)[A.col])[known[A.col]])
            fresh = ~known[A.col] & (size[A.row] > 0)
            if not fresh.any():
                return columns
            units = np.full(len(columns), np.inf)
            np.minimum.at(units, A.col[fresh], size[A.row[fresh]] / A.data[fresh])
            columns = np.where(np.isfinite(units) & ~known, units, columns)


def _constraint_unit(joint: SumOfMaxima, z_units: Array, outcome: float, each: tuple[float, ...] = ()) -> float:
    """The largest term with an outcome in an uncertain constraint, at a unit of each decision and outcome."""
    return outcome * _largest(_sizes(joint, each)[:, 1:], z_units) or 1.0


def _sizes(joint: SumOfMaxima, each: tuple[float, ...]) -> Array:
    """The largest absolute coefficients of [1, z]'M [1, u] over all terms, at these multiples of outcomes."""
    sizes = np.abs(np.concatenate([joint.base[None], *joint.groups])).max(axis=0)
    return np.asarray(sizes * np.array([1.0, *each]) if each else sizes)


def _largest(M: Array, z_units: Array) -> float:
    """The largest coefficient (1 + p, d) at units of decisions, of those that are known."""
    return float((M * np.append(1.0, np.where(np.isfinite(z_units), z_units, 0.0))[:, None]).max(initial=0.0))


def _first(units: Array, others: Array) -> Array:
    return np.where(np.isfinite(units), units, others)


def _quotient(size: Array | float, each: Array) -> Array:
    """The quotient; NaN if a side is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = size / each
    return np.where(np.isfinite(quotient) & (quotient > 0), quotient, np.nan)
