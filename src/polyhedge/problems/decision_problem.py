"""A decision problem under uncertainty, written once in CVXPY and compiled once to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._validation import Array
from polyhedge.problems.checks import check_compiled_cost, check_curvature, check_feasible
from polyhedge.problems.decompose import Decomposition, affine_rows, decompose, substitute
from polyhedge.problems.feasible_set import FeasibleProgram, compile_feasible_program
from polyhedge.problems.names import Source, check_names, default_decision_names, default_outcome_names
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.row_values import RowValues

Cost = Callable[[Any, Any], Any]


class Curvature(StrEnum):
    """How a cost depends on the outcome, which decides how its worst case is found."""

    AFFINE = "affine"
    MAX_AFFINE = "maximum of affine functions"
    CONCAVE = "concave"
    CONVEX = "convex"


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionProblem:
    r"""Choose z in Z with cost g(z, u) when the outcome u is unknown.

    Parameters
    ----------
    decision : cvxpy.Variable
        The decision z of any shape; `nonneg`, `bounds`, `integer` and `boolean` are understood.
    cost : callable
        `cost(z, u)` returns a scalar CVXPY expression, convex in z. It is called with either
        argument constant, so it must treat both alike; what it says of itself is checked.
    constraints : sequence of CVXPY constraints
        The feasible set Z.
    n_outcomes : int
        Length d of the outcome vector u.
    uncertain_constraints : callable, optional
        `uncertain_constraints(z, u)` returns inequalities, affine in u (or maxima of such), that the
        decision must satisfy for every outcome in the set.
    outcome_support : callable, optional
        `outcome_support(u)` returns linear constraints that every outcome is known to satisfy, such as
        `[u >= 0]`; uncertainty sets are intersected with them, which costs no coverage.
    name : str
        What to call the problem in reports.
    outcome_names, decision_names : sequence of str, optional
        What to call the entries of u and (row-major) of z in tables: u_1, u_2, ... and z_1, z_2, ..., or the
        variable's own name, where nothing is given.
    source : Source, optional
        Where the problem was written, if it came from a file.

    Notes
    -----
    Costs of the form $g_0(z) + \max_l\{(Q_l z + q_l)^\top u + p_l^\top z + c_l\}$ and sums of such
    maxima are recognised by structure and compiled to arrays (`pieces`).

    Examples
    --------
    >>> import cvxpy as cp
    >>> z = cp.Variable(2, nonneg=True)
    >>> problem = DecisionProblem(
    ...     decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=2
    ... )
    >>> str(problem.curvature), len(problem.pieces)
    ('affine', 1)
    """

    decision: cp.Variable
    cost: Cost
    n_outcomes: int
    constraints: Sequence[cp.Constraint] = ()
    uncertain_constraints: Callable[[Any, Any], Sequence[cp.Constraint]] | None = None
    outcome_support: Callable[[Any], Sequence[cp.Constraint]] | None = None
    name: str = "decision problem"
    outcome_names: Sequence[str] = ()
    decision_names: Sequence[str] = ()
    source: Source | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.decision, cp.Variable):
            raise TypeError(f"decision must be a cvxpy.Variable, got {type(self.decision).__name__}.")
        if not callable(self.cost):
            raise TypeError(f"cost must be a callable cost(z, u), got {self.cost!r}.")
        if (
            isinstance(self.n_outcomes, bool)
            or not isinstance(self.n_outcomes, (int, np.integer))
            or self.n_outcomes < 1
        ):
            raise ValueError(f"n_outcomes must be a positive integer, got {self.n_outcomes!r}.")
        _as_list(self.constraints, "constraints")
        self._set_names()
        check_curvature(self)
        check_feasible(self)
        check_compiled_cost(self)

    def labelled(self, **labels: Any) -> DecisionProblem:
        """The same problem with another name, outcome_names, decision_names or source; nothing is compiled again."""
        twin = copy(self)
        twin.__dict__.update(labels)
        twin._set_names()
        return twin

    def _set_names(self) -> None:
        outcomes, decisions = default_outcome_names(self.n_outcomes), default_decision_names(self.decision)
        names = {
            "outcome_names": check_names(self.outcome_names, self.n_outcomes, "outcome_names", outcomes),
            "decision_names": check_names(self.decision_names, self.n_decisions, "decision_names", decisions),
        }
        self.__dict__.update(names)

    def __deepcopy__(self, memo: dict[int, Any]) -> DecisionProblem:
        """A problem never changes, so copies share it (CVXPY variables would lose their identity)."""
        return self

    def relaxed(self) -> DecisionProblem:
        """The same problem with integer decisions made continuous (itself where there are none)."""
        feasible = self.feasible
        if not len(feasible.program.integer):
            return self
        twin = copy(self)
        continuous = replace(feasible.program, integer=np.zeros(0, dtype=np.int64))
        twin.__dict__["feasible"] = replace(feasible, program=continuous)
        return twin

    @property
    def n_decisions(self) -> int:
        """Number p of entries of the decision."""
        return int(self.decision.size)

    def expression(self, z: Any, u: Any) -> cp.Expression:
        """The cost as a scalar CVXPY expression."""
        try:
            value = self.cost(z, u)
        except (ValueError, IndexError) as error:
            raise ValueError(
                f"cost(z, u) failed for z of shape {self.decision.shape} and u of shape ({self.n_outcomes},): {error} "
                "Check n_outcomes and the shapes in the cost."
            ) from error
        if not isinstance(value, (cp.Expression, int, float, np.number, np.ndarray)):
            raise ValueError(f"cost(z, u) must return a number or a CVXPY expression, got {value!r}.")
        expression = value if isinstance(value, cp.Expression) else cp.Constant(value)
        if expression.size != 1:
            raise ValueError(
                f"cost(z, u) must return one number, got an expression of shape {expression.shape}. "
                "Sum it up, for example with cp.sum."
            )
        return cp.reshape(expression, (), order="C") if expression.shape else expression

    @cached_property
    def _cost_parts(self) -> Decomposition | None:
        u = cp.Variable(self.n_outcomes)
        parts = decompose(self.expression(self.decision, u), self.decision, u)
        return None if parts is None else parts[0]

    @cached_property
    def curvature(self) -> Curvature:
        """How the cost depends on the outcome, by structure where it has pieces, else by DCP."""
        if self._cost_parts is not None:
            return Curvature.MAX_AFFINE if self._cost_parts.joint_part.groups else Curvature.AFFINE
        return Curvature.CONCAVE if self.cost_of_outcome().is_concave() else Curvature.CONVEX

    def cost_of_outcome(self) -> cp.Expression:
        """The cost with the decision a parameter (of the variable's sign) and the outcome a variable."""
        return self.expression(_sign_parameter(self.decision), cp.Variable(self.n_outcomes))

    @cached_property
    def sum_of_maxima(self) -> SumOfMaxima | None:
        """The joint part of the cost as sums of maxima, or None where it has no such form."""
        return None if self._cost_parts is None else self._cost_parts.joint_part.merged()

    @cached_property
    def pieces(self) -> Pieces | None:
        """The joint part as one piece list, or None where it has none or too long a one."""
        return None if self.sum_of_maxima is None else self.sum_of_maxima.pieces()

    @cached_property
    def _rows(self) -> tuple[list[cp.Constraint], list[Decomposition]]:
        """Constraints without u, and the uncertain ones as expressions that must be <= 0."""
        if self.uncertain_constraints is None:
            return list(self.constraints), []
        certain, rows = list(self.constraints), []
        u = cp.Variable(self.n_outcomes)
        for constraint in _as_list(self.uncertain_constraints(self.decision, u), "uncertain_constraints"):
            if u.id not in {v.id for v in constraint.variables()}:
                certain.append(constraint)
                continue
            rows += self._inequality_rows(constraint, u)
        return certain, rows

    def _inequality_rows(self, constraint: cp.Constraint, u: cp.Variable) -> list[Decomposition]:
        if not isinstance(constraint, cp.constraints.Inequality):
            raise ValueError(
                f"The uncertain constraint {constraint} is a {type(constraint).__name__}; only inequalities "
                "can hold for all outcomes of a set. Write equalities with u as two inequalities with slack."
            )
        rows = decompose(constraint.expr, self.decision, u)
        if rows is None or any(not row.decision_part.is_convex() for row in rows):
            raise ValueError(
                f"The uncertain constraint {constraint} must be affine in the outcome (or a maximum of affine "
                "functions) and convex in the decision. Split it into such inequalities."
            )
        return rows

    @cached_property
    def uncertain_rows(self) -> tuple[Pieces, ...]:
        """The uncertain constraints: each maximum of pieces plus its epigraph column is at most 0."""
        lists = [row.joint_part.pieces() for row in self._rows[1]]
        if any(pieces is None for pieces in lists):
            raise ValueError(
                "An uncertain constraint has too many pieces. Write its terms as constraints of their own."
            )
        return tuple(pieces for pieces in lists if pieces is not None)

    @cached_property
    def feasible(self) -> FeasibleProgram:
        """g_0 over Z as a conic program (g_0 = 0 for costs without a piece form)."""
        certain, rows = self._rows
        decision_cost = cp.Constant(0.0) if self._cost_parts is None else self._cost_parts.decision_part
        return compile_feasible_program(self.decision, decision_cost, certain, [row.decision_part for row in rows])

    @cached_property
    def support_rows(self) -> tuple[Array, Array]:
        """A, h of the known support {u : A u <= h}; no rows where nothing is known."""
        if self.outcome_support is None:
            return np.zeros((0, self.n_outcomes)), np.zeros(0)
        A, h = [], []
        u = cp.Variable(self.n_outcomes)
        for constraint in _as_list(self.outcome_support(u), "outcome_support"):
            rows = affine_rows(constraint, u)
            if rows is None:
                raise ValueError(
                    f"outcome_support must give linear constraints on u, got {constraint}. "
                    "Write it with <=, >= or == and affine expressions of u."
                )
            for coefficients in rows:
                A.append(coefficients[1:])
                h.append(-coefficients[0])
        return np.array(A).reshape(-1, self.n_outcomes), np.array(h)

    @cached_property
    def outcomes_are_nonneg(self) -> bool:
        """Whether the known support says that no outcome is negative."""
        A, h = self.support_rows
        bounds_one_below = ((A < 0).sum(axis=1) == 1) & ((A != 0).sum(axis=1) == 1) & (h <= 0)
        return bool(A[bounds_one_below].any(axis=0).all())

    def with_known_signs(self, z: Array, u: Array) -> tuple[Array, Array]:
        """Z and u without the rounding errors that make CVXPY doubt signs that are known."""
        known = _sign_parameter(self.decision)
        z = np.maximum(z, 0.0) if known.is_nonneg() else np.minimum(z, 0.0) if known.is_nonpos() else z
        return z, np.maximum(u, 0.0) if self.outcomes_are_nonneg else u

    @cached_property
    def _cost_values(self) -> RowValues:
        """The cost, or what of it depends on the decision alone where the rest has pieces."""
        return RowValues(self._cost_formula, [self.decision.shape, (self.n_outcomes,)])

    def _cost_formula(self, z: cp.Parameter, u: cp.Parameter) -> cp.Expression:
        if self._cost_parts is not None:
            return substitute(self._cost_parts.decision_part, {self.decision.id: z})
        return self.expression(z, u)

    def evaluate(self, z: Array, u: Array) -> Array:
        """The cost g(z_i, u_i) at matching rows of flat decisions (N, p) and outcomes (N, d)."""
        if self.sum_of_maxima is None:
            return self._cost_values(z, u)
        # The rest depends on the decision alone, and many contexts share few decisions.
        distinct, where = np.unique(z, axis=0, return_inverse=True)
        alone = self._cost_values(distinct, np.zeros((len(distinct), self.n_outcomes)))
        return self.sum_of_maxima.evaluate(z, u) + alone[where.ravel()]

    def row_parts(self, z: Array) -> list[float]:
        """The parts of the uncertain constraints that depend on the decision alone, at one decision."""
        parameter = cp.Parameter(self.decision.shape, value=z.reshape(self.decision.shape))
        parts = [substitute(row.decision_part, {self.decision.id: parameter}) for row in self._rows[1]]
        return [float(part.value) for part in parts]

    def as_given(self, z: Array) -> Array:
        """Flat decisions (N, p) in the shape of the variable: (N, *shape), scalars as (N, 1)."""
        return z.reshape(len(z), *(self.decision.shape or (1,)))


def _as_list(constraints: Any, name: str) -> list[cp.Constraint]:
    if not isinstance(constraints, (list, tuple)) or not all(isinstance(c, cp.Constraint) for c in constraints):
        raise TypeError(f"{name} must be a list of CVXPY constraints, got {constraints!r}.")
    return list(constraints)


def _sign_parameter(decision: cp.Variable) -> cp.Parameter:
    nonneg = bool(decision.is_nonneg()) or decision.attributes.get("boolean") is True
    return cp.Parameter(decision.shape, nonneg=nonneg, nonpos=bool(decision.is_nonpos()) and not nonneg)
