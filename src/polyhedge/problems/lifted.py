r"""A problem with parameters, compiled once for all their values.

If costs, constraints and uncertain constraints are affine in the parameters $\theta$, these become further coordinates
of the outcome without uncertainty: the cost is $g_0(z) + \max_l\{(Q_l z + q_l)^\top (u, \theta) + p_l^\top z + c_l\}$,
and the program of Z has costs, entries and right-hand sides that are affine in $\theta$. Contexts with different values
are then decided together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array
from polyhedge.problems.decompose import Decomposition, decompose
from polyhedge.problems.feasible_set import FeasibleProgram, NotAffineError, compile_feasible_program
from polyhedge.problems.formula import substitute
from polyhedge.problems.pieces import Pieces, SumOfMaxima

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem
    from polyhedge.problems.written import Written


@dataclass(frozen=True, eq=False)
class Lifted:
    """A `DecisionProblem` compiled with its parameters as further outcomes, behind the others.

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


@dataclass(frozen=True, eq=False)
class LiftedParts:
    """Cost and uncertain constraints split over (u, parameters); the decision parts may hold parameters, too."""

    cost: Decomposition
    rows: tuple[Decomposition, ...]


def parts_at(problem: DecisionProblem, values: Array) -> dict[str, Any]:
    """The compiled properties of a problem at flat values of its parameters; none if it must be compiled for them."""
    lifted, parts, leaves = problem.lifted, problem.lifted_parts, problem.written.leaves(values=values)
    if problem.has_recourse and lifted is None:
        first = problem.first_stage.at_values(values)
        second = None if problem.second_stage is None else problem.second_stage.at(values)
        known = {"first_stage": first, "feasible_without_cost": first.feasible_without_cost}
        return known | ({} if second is None else {"second_stage": second})
    if lifted is None or parts is None:
        return {} if problem.interpolated is None else problem.interpolated.at(values)

    def at(part: Decomposition) -> Decomposition:
        return Decomposition(substitute(part.decision_part, leaves), part.joint_part.with_known(values))

    return {
        "feasible": lifted.feasible.at(values),
        "support_rows": lifted.support_rows,
        "_cost_parts": at(parts.cost),
        "_rows": [at(row) for row in parts.rows],
    }


def split_with_parameters(written: Written) -> LiftedParts | None:
    """The splits, or None if one is not affine in the parameters and the outcome together.

    Of more than 1000 entries of parameters there are none: such a problem is compiled at each value.
    """
    known = [parameter.leaf for parameter in written.parameters]
    if sum(leaf.size for leaf in known) > 1000 or any(p.is_matrix_kind for p in written.parameters):
        return None
    parts: list[Decomposition] = []
    for node in (written.cost, *written.uncertain):
        expression = node.expr if isinstance(node, cp.constraints.Inequality) else node
        is_expression = isinstance(expression, cp.Expression)
        split = decompose(expression, written.variables, written.outcome, known) if is_expression else None
        if split is None or (parts and not all(row.decision_part.is_convex() for row in split)):
            return None
        parts += split
    # [1, z]'T theta moves from the joint part to the decision's: in every piece it would move entries, there costs.
    joint, alone, d = parts[0].joint_part, parts[0].decision_part, written.outcome.size
    base, T = joint.base.copy(), joint.base[:, 1 + d :]
    base[:, 1 + d :] = 0.0
    if T.any():
        z, theta = (
            cp.hstack([cp.reshape(leaf, (leaf.size,), order="C") for leaf in leaves])
            for leaves in (written.variables, known)
        )
        alone = alone + (T[0] @ theta + z @ (T[1:] @ theta))
    return LiftedParts(Decomposition(alone, SumOfMaxima(base, joint.groups)), tuple(parts[1:]))


def lift(problem: DecisionProblem) -> Lifted | None:
    """Compile a problem for all values of its parameters; None if its numbers are not affine in them."""
    parts, written = problem.lifted_parts, problem.written
    if parts is None:
        return None
    rows = [row.joint_part.pieces() for row in parts.rows]
    pieces = tuple(row for row in rows if row is not None)
    if len(pieces) < len(rows):
        return None
    row_parts, leaves = [row.decision_part for row in parts.rows], [parameter.leaf for parameter in written.parameters]
    try:
        feasible = compile_feasible_program(
            written.variables, parts.cost.decision_part, written.certain, row_parts, leaves
        )
    except NotAffineError:
        return None
    return Lifted(problem.n_outcomes, feasible, parts.cost.joint_part.merged(), pieces, problem.support_rows)


@dataclass(frozen=True, eq=False)
class Interpolated:
    """A linear problem whose compiled numbers are affine in its parameters, although a parameter multiplies an outcome.

    Attributes
    ----------
    written : its formulas.
    compiled : the problem at one value of its parameters, whose structure all others share.
    numbers : (1 + t, m) all numbers of the problem at values of 0, and by how much a unit of each parameter moves them.
    """

    written: Written
    compiled: DecisionProblem
    numbers: Array

    def at(self, values: Array) -> dict[str, Any]:
        """The compiled properties at flat values (t,) of the parameters."""
        feasible, parts = self.compiled.feasible, self.compiled._cost_parts
        assert parts is not None
        rest = np.concatenate([[1.0], values]) @ self.numbers

        def taken(like: Array) -> Array:
            nonlocal rest
            own, rest = rest[: like.size].reshape(like.shape), rest[like.size :]
            return own

        zero, joint = feasible.program, parts.joint_part
        c, b, offset, entries = taken(zero.c), taken(zero.b), float(taken(np.zeros(1))[0]), taken(zero.A.data)
        A = sp.csr_array((entries, zero.A.indices, zero.A.indptr), zero.A.shape)
        program = replace(zero, c=c, A=A, b=b, offset=offset)
        z = cp.hstack([cp.reshape(leaf, (leaf.size,), order="C") for leaf in self.written.variables])
        alone = c[feasible.z_columns] @ z + offset
        moved = SumOfMaxima(taken(joint.base), tuple(taken(group) for group in joint.groups))
        return {
            "feasible": replace(feasible, program=program),
            "support_rows": self.compiled.support_rows,
            "_cost_parts": Decomposition(alone, moved),
            "_rows": [],
        }


def interpolate(problem: DecisionProblem) -> Interpolated | None:
    """The problem from compilations at a few values; None if one more value shows that it is not affine in them."""
    parameters, written = problem.parameters, problem.written
    signs = [np.full(one.leaf.size, -1.0 if one.leaf.is_nonpos() else 1.0) for one in parameters]
    sign = np.concatenate(signs)
    is_plain = not any(one.is_matrix_kind or one.leaf.attributes["integer"] for one in parameters)
    if len(sign) > 50 or written.uncertain or not is_plain:
        return None
    steps = np.vstack([np.zeros(len(sign)), np.eye(len(sign)), np.arange(1, len(sign) + 1) / 7])
    values = sign * (1 + steps)
    compiled = [problem.compiled_at(value) for value in values]
    found, first = [own for one in compiled if (own := _numbers_of(one)) is not None], compiled[0]
    if len(found) < len(compiled) or any(own.shape != found[0].shape for own in found):
        return None
    same = [np.array_equal(one.feasible.program.A.indices, first.feasible.program.A.indices) for one in compiled]
    slopes = sign[:, None] * (np.array(found[1:-1]) - found[0])
    numbers = np.vstack([found[0] - values[0] @ slopes, slopes])
    off = np.abs(np.concatenate([[1.0], values[-1]]) @ numbers - found[-1])
    is_affine = all(same) and bool((off <= CANCELLATION * (1 + np.abs(found[-1]))).all())
    return Interpolated(written, first, numbers) if is_affine else None


def _numbers_of(problem: DecisionProblem) -> Array | None:
    """All numbers of a linear problem without auxiliary columns, end to end; None for others."""
    parts = problem._cost_parts
    if parts is None:
        return None
    program, joint = problem.feasible.program, parts.joint_part
    if not program.is_linear or len(program.c) != problem.n_decisions:
        return None
    arrays = [program.c, program.b, np.array([program.offset]), program.A.data, joint.base, *joint.groups]
    return np.concatenate([array.ravel() for array in arrays])


class ProblemCache:
    """The last 32 variants of a problem, at values or in units: a day's calls repeat few, and each holds a program."""

    def __init__(self) -> None:
        self._lock, self._problems = Lock(), OrderedDict[Hashable, Any]()

    def get(self, key: Hashable, make: Callable[[], DecisionProblem]) -> DecisionProblem:
        """The variant of this key, made if it is not in the cache."""
        with self._lock:
            if key in self._problems:
                self._problems.move_to_end(key)
                return self._problems[key]
        made = make()
        with self._lock:
            kept = self._problems.setdefault(key, made)  # another thread may have been faster
            while len(self._problems) > 32:
                self._problems.popitem(last=False)
        return kept
