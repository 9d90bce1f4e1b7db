r"""A problem with parameters, compiled once for all their values.

If costs, constraints and uncertain constraints are affine in the parameters $\theta$, these become further coordinates
of the outcome without uncertainty: the cost is $g_0(z) + \max_l\{(Q_l z + q_l)^\top (u, \theta) + p_l^\top z + c_l\}$,
and the program of Z has costs, entries and right-hand sides that are affine in $\theta$. Contexts with different values
are then decided together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.decompose import Decomposition, decompose
from polyhedge.problems.feasible_set import FeasibleProgram, NotAffineError, compile_feasible_program
from polyhedge.problems.formula import substitute
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.written import Written

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

_MOST_ENTRIES = 1000
"""Entries of all parameters that a problem is compiled for; beyond, it is compiled at each value."""


@dataclass(frozen=True, eq=False)
class Lifted:
    """What `DecisionProblem` is compiled to, with the parameters as outcomes behind the others.

    It has the properties of a problem that a robust counterpart asks for. `n_outcomes` counts the uncertain ones.
    """

    n_outcomes: int
    feasible: FeasibleProgram
    sum_of_maxima: SumOfMaxima
    uncertain_rows: tuple[Pieces, ...]
    support_rows: tuple[Array, Array]

    @property
    def n_decisions(self) -> int:
        """Entries of the flat decision."""
        return len(self.feasible.z_columns)

    @cached_property
    def pieces(self) -> Pieces | None:
        """The joint part of the cost as one piece list, or None if that would be too long."""
        return self.sum_of_maxima.pieces()

    def at(self, values: Array) -> dict[str, Any]:
        """The compiled properties of the problem at flat values."""
        return {
            "feasible": self.feasible.at(values),
            "sum_of_maxima": self.sum_of_maxima.with_known(values),
            "uncertain_rows": tuple(rows.with_known(values) for rows in self.uncertain_rows),
            "support_rows": self.support_rows,
        }


@dataclass(frozen=True, eq=False)
class LiftedParts:
    """Cost and uncertain constraints split over (u, parameters); the decision parts may hold parameters, too."""

    cost: Decomposition
    rows: tuple[Decomposition, ...]

    def at(self, written: Written, values: Array) -> dict[str, Any]:
        """The splits at flat values, as the properties of a problem."""
        leaves = written.leaves(values=values)

        def put_in(part: Decomposition) -> Decomposition:
            return Decomposition(substitute(part.decision_part, leaves), part.joint_part.with_known(values))

        return {"_cost_parts": put_in(self.cost), "_rows": [put_in(row) for row in self.rows]}


def split_with_parameters(written: Written) -> LiftedParts | None:
    """The splits, or None if one is not affine in the parameters and the outcome together."""
    known = [parameter.leaf for parameter in written.parameters]
    if sum(leaf.size for leaf in known) > _MOST_ENTRIES or any(p.is_matrix_kind for p in written.parameters):
        return None
    expressions = [written.cost, *(row.expr for row in written.uncertain if isinstance(row, cp.constraints.Inequality))]
    parts: list[Decomposition] = []
    for expression in expressions:
        split = decompose(expression, written.variables, written.outcome, known)
        if split is None:
            return None
        parts += split
    is_fine = len(expressions) == 1 + len(written.uncertain) and all(p.decision_part.is_convex() for p in parts[1:])
    return LiftedParts(_without_known_terms(parts[0], written), tuple(parts[1:])) if is_fine else None


def _without_known_terms(cost: Decomposition, written: Written) -> Decomposition:
    """Move [1, z]'T theta from the joint part to the decision's: in every piece it would move entries, there costs."""
    base, d = cost.joint_part.base.copy(), written.outcome.size
    T = base[:, 1 + d :].copy()
    if not T.any():
        return cost
    base[:, 1 + d :] = 0.0
    z, theta = (
        cp.hstack([cp.reshape(leaf, (leaf.size,), order="C") for leaf in leaves])
        for leaves in (written.variables, [parameter.leaf for parameter in written.parameters])
    )
    known = T[0] @ theta + z @ (T[1:] @ theta)
    return Decomposition(cost.decision_part + known, SumOfMaxima(base, cost.joint_part.groups))


def lift(problem: DecisionProblem) -> Lifted | None:
    """Compile a problem for all values of its parameters; None if its numbers are not affine in them."""
    parts, written = problem.lifted_parts, problem.written
    if parts is None:
        return None
    rows = [row.joint_part.pieces() for row in parts.rows]
    pieces = tuple(row for row in rows if row is not None)
    if len(pieces) < len(rows):
        return None
    leaves = [parameter.leaf for parameter in written.parameters]
    try:
        feasible = compile_feasible_program(
            written.variables,
            parts.cost.decision_part,
            written.certain,
            [row.decision_part for row in parts.rows],
            leaves,
        )
    except NotAffineError:
        return None
    return Lifted(problem.n_outcomes, feasible, parts.cost.joint_part.merged(), pieces, problem.support_rows)


class ProblemCache:
    """A problem at the last 32 values: a day's calls repeat few, and each holds a program."""

    def __init__(self) -> None:
        self._lock, self._problems = Lock(), OrderedDict[bytes, Any]()

    def get(self, values: Array, make: Callable[[Array], DecisionProblem]) -> DecisionProblem:
        """The problem at flat values, made if it is not in the cache."""
        key = np.ascontiguousarray(values, dtype=np.float64).tobytes()
        with self._lock:
            if key in self._problems:
                self._problems.move_to_end(key)
                return self._problems[key]
        made = make(values)
        with self._lock:
            kept = self._problems.setdefault(key, made)  # another thread may have been faster
            while len(self._problems) > 32:
                self._problems.popitem(last=False)
        return kept

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """The content is not pickled."""
        return ProblemCache, ()
