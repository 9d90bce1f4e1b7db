r"""What decisions are measured in where a learner sees them: kilograms and tonnes give the same numbers.

Solvers scale columns by powers of two, which leaves every digit as it was: in units that are not powers of two of each
other the digits differ, and a search may turn at the last of them. So the columns of a program get units that the
problem itself tells, in the user's terms: how far a limit lets a decision go, or how much of it weighs as much as an
outcome. Whatever the user measures decisions in, the numbers that are left are the same but for rounding, which
`problem_in` takes off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.problems.pieces import SumOfMaxima
from polyhedge.solvers.program import Cone, ConicProgram
from polyhedge.solvers.scaling import Scaling

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

_TINY = 2.0**-20
"""Share of a usual number of a program below which one is rounding and tells nothing of units."""
_OWN_UNIT = ("zero", "nonneg")
_ONE_UNIT = ("soc", "exp")
"""Cones whose rows have one unit; those of others (products, powers, matrices) may have several."""


@dataclass(frozen=True, eq=False)
class DecisionUnits:
    """Units of the columns of a problem's program, in the user's; NaN where only costs tell them, see `told`."""

    columns: Array
    slope: float
    """The largest change of the cost with an outcome, at a unit of each decision; 0 where nothing tells."""

    @classmethod
    def of(cls, problem: DecisionProblem, outcome: float, each: tuple[float, ...] = ()) -> DecisionUnits:
        """What limits, and outcomes in terms of `outcome` (or multiples of it, `each`), tell of decisions."""
        feasible = problem.feasible
        program, z = feasible.program, feasible.z_columns
        rows = _Rows.of(program)
        columns = rows.reach()
        joints = [] if problem.cost_split is None else [problem.cost_split.joint_part]
        sizes = [_sizes(joint, each) for joint in (*joints, *(row.joint_part for row in problem._rows))]
        for M in sizes:
            columns[z] = _first(columns[z], _quotient(outcome * M[0, 1:].max(initial=0.0), M[1:, 0]))
        if joints and program.P is not None:
            own = np.abs(program.P.diagonal())[z]
            columns[z] = _first(columns[z], _quotient(outcome * sizes[0][1:, 1:].max(axis=1, initial=0.0), own))
        columns[program.integer] = 1.0  # a whole number has no other unit
        columns = rows.linked(columns)
        return cls(columns, _largest(sizes[0][:, 1:], columns[z]) if joints else 0.0)

    def told(
        self, problem: DecisionProblem, outcome: float, cost: float, each: tuple[float, ...] = ()
    ) -> tuple[float, ...]:
        """Units of all columns where outcomes and costs are measured in terms of these."""
        feasible = problem.feasible
        columns = self.columns
        if np.isnan(columns).any():
            columns = _Rows.of(feasible.program).linked(_first(columns, _quotient(cost, np.abs(feasible.program.c))))
        columns = _first(columns, np.ones(len(columns)))
        for k, row in zip(feasible.epigraph_columns, problem._rows, strict=True):
            if k >= 0:  # it is added to the constraint as it is
                columns[k] = constraint_unit(row.joint_part, columns[feasible.z_columns], outcome, each)
        return tuple(columns.tolist())


def row_units(program: ConicProgram, columns: Array) -> Array:
    """What to multiply the rows by where columns are measured in these units: one number for each cone's rows."""
    rows = _Rows.of(program, tiny=0.0)
    size = (rows.A @ sp.diags_array(columns)).max(axis=1).toarray().ravel()
    return np.where(rows.has_unit, 1 / np.where(size > 0, size, 1.0), 1.0)[rows.group]


def constraint_unit(joint: SumOfMaxima, z_units: Array, outcome: float, each: tuple[float, ...] = ()) -> float:
    """The largest term of an uncertain constraint that sees the outcome, at a unit of each decision and outcome."""
    return outcome * _largest(_sizes(joint, each)[:, 1:], z_units) or 1.0


@dataclass(frozen=True, eq=False)
class _Rows:
    """Sizes of the numbers of a program, the largest of each cone's rows where these have one unit."""

    A: sp.csr_array
    b: Array
    group: Indices
    has_unit: Array

    @classmethod
    def of(cls, program: ConicProgram, tiny: float = _TINY) -> _Rows:
        group, has_unit = _groups(program.cones)
        frame = Scaling.of(program) if tiny else None
        A, b = abs(program.A).tocoo(), np.abs(program.b)
        kept = has_unit[group[A.row]] & (A.data > 0)
        if frame is not None:
            kept &= A.data * frame.rows[A.row] * frame.columns[A.col] > tiny
            b = np.where(b * frame.rows > tiny, b, 0.0)
        shape = (len(has_unit), A.shape[1])
        largest = np.zeros(len(has_unit))
        np.maximum.at(largest, group, b)
        entries = _largest_entries(group[A.row[kept]], A.col[kept], A.data[kept], shape)
        return cls(entries, np.where(has_unit, largest, 0.0), group, has_unit)

    def reach(self) -> Array:
        """How far each column can go by the nearest limit on it; NaN where none tells."""
        A = self.A.tocoo()
        told = self.b[A.row] > 0
        reach = np.full(A.shape[1], np.inf)
        np.minimum.at(reach, A.col[told], self.b[A.row[told]] / A.data[told])
        return np.where(np.isfinite(reach), reach, np.nan)

    def linked(self, columns: Array) -> Array:
        """Units of columns that share a row with one whose unit is known, one step after the other."""
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


def _groups(cones: tuple[Cone, ...]) -> tuple[Indices, Array]:
    """The number of the unit of each row, and whether the rows of a number have one unit."""
    groups, has_unit, start = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=bool)], 0
    for cone in cones:
        n = cone.n_rows if cone.kind in _OWN_UNIT else 1
        groups.append(start + (np.arange(n) if n == cone.n_rows else np.zeros(cone.n_rows, dtype=np.int64)))
        has_unit.append(np.full(n, cone.kind in (*_OWN_UNIT, *_ONE_UNIT)))
        start += n
    return np.concatenate(groups), np.concatenate(has_unit)


def _largest_entries(rows: Indices, columns: Indices, sizes: Array, shape: tuple[int, int]) -> sp.csr_array:
    """A matrix with the largest of the entries that fall together."""
    place, where = np.unique(rows * shape[1] + columns, return_inverse=True)
    largest = np.zeros(len(place))
    np.maximum.at(largest, where, sizes)
    return sp.csr_array((largest, (place // shape[1], place % shape[1])), shape=shape)


def _sizes(joint: SumOfMaxima, each: tuple[float, ...]) -> Array:
    """The largest sizes of the coefficients of [1, z]'M [1, u] over all terms, at these multiples of outcomes."""
    sizes = np.abs(np.concatenate([joint.base[None], *joint.groups])).max(axis=0)
    return np.asarray(sizes * np.array([1.0, *each]) if each else sizes)


def _largest(M: Array, z_units: Array) -> float:
    """The largest coefficient (1 + p, d) at units of decisions, of those that are known."""
    return float((M * np.append(1.0, np.where(np.isfinite(z_units), z_units, 0.0))[:, None]).max(initial=0.0))


def _first(units: Array, others: Array) -> Array:
    """Units, and others where there are none."""
    return np.where(np.isfinite(units), units, others)


def _quotient(size: Array | float, each: Array) -> Array:
    """The quotient; NaN where a side is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = size / each
    return np.where(np.isfinite(quotient) & (quotient > 0), quotient, np.nan)
