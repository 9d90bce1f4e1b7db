r"""A problem in standard units: $u_i = s_i + a_i u_i'$, $g = t + k g'$ and $z_j = b_j z_j'$.

The units of outcomes and costs come from data (`learners/samples.py`). Those of decisions, of auxiliary columns and of
limits come from the problem in these: they are the ones in which its coefficients are nearest to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.decompose import Decomposition
from polyhedge.problems.feasible_set import FeasibleProgram
from polyhedge.problems.formula import substitute
from polyhedge.problems.pieces import SumOfMaxima, in_order
from polyhedge.solvers.program import LIGHT, ConicProgram, Equations, cone_groups, places, scaled as scaled_matrix

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem


_DERIVED = ["pieces", "uncertain_rows", "outcomes_are_nonneg", "feasible_without_cost", "_cost_values", "_uncertain"]
"""Compiled parts of a problem that follow from the others."""


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
    keeps_proportions : whether all decisions have one unit.
    """

    outcome: float = 1.0
    cost: float = 1.0
    outcome_shift: tuple[float, ...] = ()
    cost_shift: float = 0.0
    each: tuple[float, ...] = ()
    keeps_proportions: bool = False

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

    Its `decision_units` (p,) are those of the flat decision.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> twin = scaled(simplex_linear([4.0, 8.0]), Units(outcome=2.0, cost=2.0, cost_shift=4.0))
    >>> twin.evaluate(np.array([[0.0, 1.0]]) / twin.decision_units, np.array([[0.0, 3.0]]))
    array([5.])
    """
    return problem.variants.get(units, lambda: _scaled(problem, units))


def _scaled(problem: DecisionProblem, units: Units) -> DecisionProblem:
    parts, rows, written = problem.cost_split, problem._rows, problem.written
    joints = [_in_outcomes(row.joint_part, units, 1.0) for row in rows]
    cost = SumOfMaxima(np.zeros((1 + problem.n_decisions, 1)))
    feasible, program = problem.feasible, problem.feasible.program
    if parts is not None:
        # Merged in the units of the formula, where no shift hides which segments are parallel.
        cost = _in_outcomes(parts.joint_part.merged(), units, units.cost)
        program = replace(
            program,
            c=program.c / units.cost,
            P=None if program.P is None else program.P / units.cost,
            offset=(program.offset - units.cost_shift) / units.cost,
        )
        feasible = replace(feasible, program=program)
    columns = _column_units(feasible, cost, joints)
    if units.keeps_proportions and not len(program.integer):
        columns[feasible.z_columns] = np.exp2(np.log2(columns[feasible.z_columns]).mean())
    z, limits = columns[feasible.z_columns], _row_units(program, columns)
    program = replace(
        program,
        c=columns * program.c,
        P=None if program.P is None else scaled_matrix(program.P, columns, columns),
        A=scaled_matrix(program.A, limits, columns),
        b=limits * program.b,
    )
    # An epigraph column and the pieces that it is added to have one unit.
    joints = [_in_decisions(joint, z) for joint in joints]
    sizes = [
        columns[k] if k >= 0 else _largest(joint) for k, joint in zip(feasible.epigraph_columns, joints, strict=True)
    ]
    leaves, variables = _leaves(problem, z)
    outcome = cp.multiply(units.outcomes, written.outcome) if units.each else units.outcome * written.outcome
    changed = written.substituted(leaves | {written.outcome.id: outcome + units.shift}, variables=variables)
    A, h = problem.support_rows
    if parts is not None:
        cost = _in_decisions(cost, z)
        parts = Decomposition((substitute(parts.decision_part, leaves) - units.cost_shift) / units.cost, cost)
    return problem.with_parts(
        recomputed=_DERIVED,
        written=replace(changed, cost=(changed.cost - units.cost_shift) / units.cost),
        support_rows=(units.outcomes * A, h - (A @ units.shift if units.outcome_shift else 0.0)),
        _rows=[
            Decomposition(substitute(row.decision_part, leaves) / size, joint.scaled(1 / size))
            for row, joint, size in zip(rows, joints, sizes, strict=True)
        ],
        feasible=replace(feasible, program=program),
        _cost_parts=parts,
        sum_of_maxima=None if parts is None else cost,
        decision_units=z,
        made_by=(scaled, (problem, units)),
    )


def _in_outcomes(joint: SumOfMaxima, units: Units, cost: float) -> SumOfMaxima:
    """Coefficients of [1, z]'M [1, u], shape (..., 1+p, 1+d), for the new outcome."""

    def changed(M: Array) -> Array:
        new = M / cost
        new[..., 1:] *= units.outcomes
        if units.outcome_shift:
            new[..., 0] += (M[..., 1:] @ units.shift) / cost
        return np.asarray(new)

    return SumOfMaxima(changed(joint.base), tuple(in_order(changed(group)) for group in joint.groups))


def _in_decisions(joint: SumOfMaxima, z: Array) -> SumOfMaxima:
    """The same coefficients for decisions in units z."""
    own = np.append(1.0, z)[:, None]
    return SumOfMaxima(own * joint.base, tuple(own * group for group in joint.groups))


def _leaves(problem: DecisionProblem, z: Array) -> tuple[dict[int, cp.Expression], tuple[cp.Variable, ...]]:
    """What takes the place of the variables, and the variables in these units: bounds have those of decisions."""
    written, leaves, variables = problem.written, dict[int, cp.Expression](), list[cp.Variable]()
    for variable, unit in zip(written.variables, written.layout.split(z), strict=True):
        own, known = variable, {name: one for name, one in variable.attributes.items() if one}
        if "bounds" in known:
            bounds = [np.asarray(bound) / unit for bound in known["bounds"]]
            own = cp.Variable(variable.shape, **known | {"name": variable.name(), "bounds": bounds})
        variables.append(own)
        leaves[variable.id] = cp.multiply(unit, own)
    return leaves, tuple(variables)


def _matrices(joint: SumOfMaxima) -> Array:
    return np.concatenate([joint.base[None], *joint.groups])


def _largest(joint: SumOfMaxima) -> float:
    return float(np.abs(_matrices(joint)).max()) or 1.0


def _column_units(feasible: FeasibleProgram, cost: SumOfMaxima, rows: Sequence[SumOfMaxima]) -> Array:
    """Units of the columns in which all coefficients are nearest to 1, by least squares in their logarithms.

    Costs count only for columns whose unit no limit determines; integers have the unit 1.
    """
    program, z, n = feasible.program, feasible.z_columns, len(feasible.program.c)
    group = n + cone_groups(program.cones)
    first = int(group.max(initial=n - 1)) + 1  # behind the columns and the limits, the uncertain constraints
    equations, (row, column) = Equations(first + len(rows)), places(program.A)
    equations.add(program.A.data, 1.0, column, group[row])
    equations.add(program.b, 1.0, group)
    equations.add(program.c, LIGHT, np.arange(n))
    if program.P is not None:
        equations.add(program.P.data, LIGHT, *places(program.P))
    for k, joint in enumerate([cost, *rows]):
        M = _matrices(joint)
        of_decision = np.broadcast_to(z[:, None], M[:, 1:].shape).ravel()
        if k == 0:
            equations.add(M[:, 1:].ravel(), LIGHT, of_decision)
            continue
        own = first + k - 1
        equations.add(M[:, 1:].ravel(), 1.0, of_decision, np.full(of_decision.size, own))
        equations.add(M[:, 0].ravel(), 1.0, np.full(M[:, 0].size, own))
        if feasible.epigraph_columns[k - 1] >= 0:
            equations.add(np.ones(1), 1.0, feasible.epigraph_columns[[k - 1]], np.array([own]))
    return np.exp2(equations.solve(program.integer, n_refinements=2)[:n])


def _row_units(program: ConicProgram, columns: Array) -> Array:
    """Factors of the rows that make the largest coefficient of each limit 1; those of a cone have one."""
    group, (row, column) = cone_groups(program.cones), places(program.A)
    largest = np.zeros(int(group.max(initial=-1)) + 1)
    np.maximum.at(largest, group[row], np.abs(program.A.data) * columns[column])
    return np.where(largest > 0, 1 / np.where(largest > 0, largest, 1.0), 1.0)[group]
