"""A decision problem under uncertainty, written once in CVXPY and compiled once to arrays."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from operator import attrgetter, methodcaller
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.checks import (
    RowValues,
    UncertainRows,
    check_feasible,
    check_second_stage,
    check_support,
    check_with_parameters,
    is_never_positive,
)
from polyhedge.problems.decompose import Decomposition, decompose, inequality_rows, support_rows
from polyhedge.problems.feasible_set import FeasibleProgram, NotAffineError, compile_feasible_program
from polyhedge.problems.formula import NotPortableError, in_structure, leaves_of, substitute, substitute_in
from polyhedge.problems.layout import (
    Layout,
    ProblemParameter,
    Source,
    check_names,
    check_units,
    default_outcome_names,
    layout_of,
    own_decision_names,
    parameter_rows,
)
from polyhedge.problems.lifted import (
    Interpolated,
    Lifted,
    LiftedParts,
    ProblemCache,
    interpolate,
    lift,
    parts_at,
    split_with_parameters,
)
from polyhedge.problems.pieces import Pieces, SumOfMaxima, maximum_of
from polyhedge.problems.second_stage import Answers, SecondStage, compile_second_stage, equal_rows
from polyhedge.problems.structure import Structure
from polyhedge.problems.written import (
    Written,
    as_list,
    check_curvature,
    constraint_texts,
    fields_from_data,
    problem_text,
    problem_to_data,
    read_constants,
    read_problem,
)

Cost = Callable[..., Any]


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
    decision : cvxpy.Variable, or list or dictionary of them
        The decision z: one or several variables, each of any shape; `nonneg`, `bounds`, `integer` and `boolean`
        are understood. A dictionary names them, otherwise their own names do.
    cost : callable
        `cost(z, u)` returns a scalar CVXPY expression, convex in z, which comes in the structure of `decision`. It
        is called once, with variables. Other variables in it are auxiliary: chosen together with the decision, before
        the outcome is known.
    constraints : sequence of CVXPY constraints
        The feasible set Z; other variables in them are auxiliary, too. One that may stand for the outcome is refused.
    n_outcomes : int
        Length d of the outcome vector u.
    uncertain_constraints : callable, optional
        `uncertain_constraints(z, u)` returns inequalities, affine in u (or maxima of such), that the
        decision must satisfy for every outcome in the set. A variable that is not declared in `decision` would be a
        choice after the outcome (recourse) here, and is refused.
    recourse : cvxpy.Variable, or list or dictionary of them, optional
        The second decision y, taken once the outcome is known. `cost(z, u, y)` is then the cost of both stages, which
        is convex in z and y together; no outcome multiplies y. Undeclared variables that only the second stage has
        are chosen with y.
    recourse_constraints : callable, optional
        `recourse_constraints(z, u, y)` returns the constraints that link both decisions and the outcome.
    outcome_support : callable, optional
        `outcome_support(u)` returns linear constraints that every outcome is known to satisfy, such as
        `[u >= 0]`; uncertainty sets are intersected with them, which costs no coverage.
    name : str
        What to call the problem in reports.
    outcome_names, decision_names : sequence of str, optional
        What to call the entries of u and (row-major, one variable after the other) of z in tables: u_1, u_2, ...
        and z_1, z_2, ..., or the variables' own names, if nothing is given. A list, or a frame with such columns.
    is_paired : bool
        Whether entry j of the decision belongs to outcome j, also one that `fit` names: `order_bread`, not `order_1`.
    constraint_names : sequence of str, optional
        What to call the uncertain constraints, in their order; their texts if nothing is given.
    units : dict, optional
        What the "cost", outcomes, decisions and parameters are measured in, texts by name, for pages and formulas.
    source : Source, optional
        Where the problem was written, if it came from a file.
    constants : list of cvxpy.Parameter
        Parameters that keep the value they have now, whatever happens to them later. All other parameters in cost,
        constraints and uncertain constraints are inputs, which every call gives by their names, as one value or one
        a row: `decide(..., parameters={"stock": 3.0})`. Their own `.value` is never looked at.

    Notes
    -----
    Costs of the form $g_0(z) + \max_l\{(Q_l z + q_l)^\top u + p_l^\top z + c_l\}$ and sums of such
    maxima are recognised by structure and compiled to arrays (`pieces`). Parameters in which all of this is affine
    (prices, stocks, limits) are compiled along with it, so that rows with different values are decided together.

    Examples
    --------
    >>> import cvxpy as cp
    >>> z = cp.Variable(2, nonneg=True)
    >>> problem = DecisionProblem(
    ...     decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=2
    ... )
    >>> str(problem.curvature), len(problem.pieces)
    ('affine', 1)

    Units that are switched on, at a cost, before their power is chosen; `slack` is auxiliary:

    >>> on, power = cp.Variable(2, boolean=True), cp.Variable(2, nonneg=True)
    >>> slack = cp.Variable(nonneg=True, name="slack")
    >>> problem = DecisionProblem(
    ...     decision={"on": on, "power": power},
    ...     cost=lambda z, u: u @ z["power"] + cp.sum(z["on"]) + 9 * slack,
    ...     constraints=[power <= 2 * on, cp.sum(power) + slack >= 3],
    ...     n_outcomes=2,
    ... )
    >>> problem.decision_names, problem.layout.names
    (('on_1', 'on_2', 'power_1', 'power_2'), ('on', 'power', 'slack'))
    """

    decision: Any
    cost: Cost
    n_outcomes: int
    constraints: Sequence[cp.Constraint] = ()
    uncertain_constraints: Callable[[Any, Any], Sequence[cp.Constraint]] | None = None
    recourse: Any = None
    recourse_constraints: Callable[[Any, Any, Any], Sequence[cp.Constraint]] | None = None
    outcome_support: Callable[[Any], Sequence[cp.Constraint]] | None = None
    name: str = "decision problem"
    outcome_names: Sequence[str] = ()
    decision_names: Sequence[str] = ()
    is_paired: bool = False
    constraint_names: Sequence[str] = ()
    units: Mapping[str, str] | None = None
    source: Source | None = None
    constants: Sequence[Any] = ()

    written: Written = field(init=False, repr=False)
    """The formulas, read once when the problem was written."""
    made_by: tuple[Any, ...] = field(default=(), init=False, repr=False)
    """The function and its arguments that made this problem from another one, for pickles."""

    def __post_init__(self) -> None:
        self._read()
        check_support(self)
        if self.parameters:
            check_with_parameters(self)
            return
        check_feasible(self)
        assert self.uncertain_rows is not None  # compiled now, so that mistakes are named
        if self.has_recourse:
            check_second_stage(self)

    def _read(self) -> None:
        """Read the callables, and check names and curvature."""
        n = self.n_outcomes
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"n_outcomes must be a positive integer, got {n!r}.")
        constraints, constants = tuple(as_list(self.constraints, "constraints")), read_constants(self.constants)
        self._set(constraints=constraints, constants=constants)
        written = read_problem(self)
        # A list or a dictionary of the user's may change later.
        given = in_structure(self.decision, written.variables[: written.layout.n_given])
        self._set(written=written, decision=given)
        if written.recourse is not None:
            later = written.recourse
            self._set(recourse=in_structure(self.recourse, later.variables[: later.layout.n_given]))
        self._set_names()
        check_curvature(self)

    def __repr__(self) -> str:
        return problem_text(self) if "written" in vars(self) else f"<{self.name}>"

    def labelled(self, **labels: Any) -> DecisionProblem:
        """The same problem with another name, source or names of its parts; nothing is compiled again."""
        follows = list(self.decision_names) == own_decision_names(self)  # the names of outcomes
        twin = self.with_parts(**{"units": None} | ({"decision_names": ()} if follows else {}) | labels)
        twin._set_names()
        if self.made_by:
            twin._set(made_by=(methodcaller("labelled", **labels), (self,)))
        if twin.units is None and self.units is not None:
            renamed = dict(zip(self._all_names(), twin._all_names(), strict=True))
            twin._set(units={renamed.get(name, name): unit for name, unit in self.units.items()})
        return twin

    def with_parts(self, recomputed: Sequence[str] = (), **parts: Any) -> DecisionProblem:
        """A problem that differs in these parts, fields or compiled ones; `recomputed` names those to derive again."""
        left_out = ("structure", "variants", *recomputed)
        kept = {name: part for name, part in vars(self).items() if name not in left_out}
        return self.assembled(**kept | parts)

    @classmethod
    def assembled(cls, **parts: Any) -> DecisionProblem:
        """A problem of fields and compiled parts that were checked where they were made: nothing is compiled again."""
        problem = object.__new__(cls)
        problem._set(**parts)
        return problem

    def _set(self, **parts: Any) -> None:
        """Set an attribute while the problem is made; afterwards it never changes."""
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    @cached_property
    def structure(self) -> Structure:
        """What the problem is: which closed forms, certificates and ways to decide apply to it."""
        return Structure(self)

    @cached_property
    def decision_units(self) -> Array | None:
        """Units (p,) of the flat decision if the problem is in standard units, see `problems/units.py`."""
        return None

    def _set_names(self) -> None:
        d, layout, texts = self.n_outcomes, self.layout, constraint_texts(self.written)
        self._set(outcome_names=check_names(self.outcome_names, d, "outcome_names", default_outcome_names(d)))
        own = own_decision_names(self)
        self._set(decision_names=check_names(self.decision_names, layout.given_size, "decision_names", own))
        self._set(constraint_names=check_names(self.constraint_names, len(texts), "constraint_names", texts))
        self._set(units=check_units(self.units, self._all_names()))

    def _all_names(self) -> list[str]:
        return [*self.outcome_names, *self.decision_names, *(parameter.name for parameter in self.parameters)]

    def __deepcopy__(self, memo: dict[int, Any]) -> DecisionProblem:
        """A problem never changes, so copies share it (CVXPY variables would lose their identity)."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its formulas, or by the call that made it from another problem."""
        if self.made_by:
            return self.made_by
        try:
            return _unpickled, (problem_to_data(self),)
        except NotPortableError as error:
            raise pickle.PicklingError(
                f"{self.name!r} cannot be pickled, because its formulas cannot be stored ({error}). decider.save and "
                "polyhedge.load take a problem in a file, FILE.py:NAME."
            ) from error

    def relaxed(self) -> DecisionProblem:
        """The same problem with integer decisions made continuous (itself if there are none)."""
        feasible = self.feasible
        if not len(feasible.program.integer):
            return self
        continuous = replace(feasible.program, integer=np.zeros(0, dtype=np.int64))
        return self.with_parts(
            made_by=(methodcaller("relaxed"), (self,)), feasible=replace(feasible, program=continuous)
        )

    @property
    def layout(self) -> Layout:
        """Where each variable stands in a flat decision z, and what it is called."""
        return self.written.layout

    @property
    def parameters(self) -> tuple[ProblemParameter, ...]:
        """Inputs that every call must give; none are left in `at(...)`."""
        return self.written.parameters

    def at(self, parameters: Mapping[Any, Any]) -> DecisionProblem:
        """The same problem at values of its parameters, by name or by the user's own `cp.Parameter`."""
        return self.at_values(parameter_rows(self.parameters, parameters, 1)[0])

    def at_values(self, values: Array) -> DecisionProblem:
        """The same problem at flat values of its parameters; the last few that were asked for are kept."""
        if not self.parameters:
            return self
        key = np.ascontiguousarray(values, dtype=np.float64).tobytes()

        def at() -> DecisionProblem:
            problem = self.compiled_at(values)
            problem._set(**parts_at(self, values))
            return problem

        return self.variants.get(key, at)

    @cached_property
    def variants(self) -> ProblemCache:
        """The last few of the same problem at values of its parameters or in other units."""
        return ProblemCache()

    def compiled_at(self, values: Array) -> DecisionProblem:
        """The same problem at flat values of its parameters, whose formulas are compiled when they are needed."""
        parts: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        parts |= {"written": self.written.at(values), "made_by": (methodcaller("at_values", values), (self,))}
        return self.assembled(**parts)

    @cached_property
    def lifted_parts(self) -> LiftedParts | None:
        """Cost and uncertain constraints with the parameters as coordinates, if they are affine in them."""
        if self.has_recourse and self.parameters:
            if self.all_pieces is None or self.first_stage.lifted is None:
                return None
            return self.with_pool(self.all_pieces).lifted_parts
        return split_with_parameters(self.written) if self.parameters else None

    @cached_property
    def lifted(self) -> Lifted | None:
        """The problem compiled for all values of its parameters; None if there are none or it has no such form."""
        return lift(self) if self.parameters else None

    @cached_property
    def interpolated(self) -> Interpolated | None:
        """The problem at any values of its parameters from compilations at a few; None if it has no such form."""
        return interpolate(self) if self.parameters and not self.has_recourse else None

    @property
    def _formulas(self) -> Written:
        """The formulas, if no parameter in them is without a value."""
        if self.parameters:
            parameter_rows(self.parameters, None, 1)
        return self.written

    @property
    def has_recourse(self) -> bool:
        """Whether there is a second decision once the outcome is known."""
        return self.written.recourse is not None

    @cached_property
    def first_stage(self) -> DecisionProblem:
        """The problem without its second stage, neither its costs nor its constraints; itself if it has none."""
        if not self.has_recourse:
            return self
        # What is compiled of a problem with recourse is its total cost.
        kept = ("feasible_without_cost", "support_rows", "outcomes_are_nonneg")
        derived = [name for name, part in vars(DecisionProblem).items() if isinstance(part, cached_property)]
        return self.with_parts(
            recomputed=[name for name in derived if name not in kept],
            written=replace(self.written, recourse=None),
            recourse=None,
            recourse_constraints=None,
            made_by=(attrgetter("first_stage"), (self,)),
        )

    @cached_property
    def second_stage(self) -> SecondStage | None:
        """The second stage as arrays; None if there is none, or only at values of the parameters."""
        if not self.has_recourse:
            return None
        try:
            return compile_second_stage(self.written, is_nonneg=self.outcomes_are_nonneg)
        except NotAffineError:
            return None

    @cached_property
    def all_pieces(self) -> Array | None:
        """All pieces (K, 1 + p, 1 + k) of the second stage, if they can be listed and it is always feasible."""
        second = self.second_stage
        dual = None if second is None or self.first_stage.cost_split is None else second.dual
        return dual[0] if dual is not None and is_never_positive(self, dual[1]) else None

    @property
    def recourse_layout(self) -> Layout:
        """Where each variable stands in a flat second decision, and what it is called."""
        if self.written.recourse is None:
            raise ValueError("The problem has no second stage. Declare one: recourse=..., cost=lambda z, u, y: ...")
        return self.written.recourse.layout

    def with_pool(self, pool: Array) -> DecisionProblem:
        """The first stage with a maximum of pieces (K, 1 + p, 1 + k) over contexts for its second: to plan with.

        Pieces bound the second stage from below. It is the problem itself only if `pool` has all of them.
        """
        first = self.first_stage
        joint = maximum_of([SumOfMaxima(piece) for piece in pool])
        if joint is None or first.cost_split is None:
            raise ValueError("A pool of pieces needs a cost of the first stage that is a sum of maxima of pieces.")
        split = Decomposition(first.cost_split.decision_part, first.cost_split.joint_part.plus(joint))
        parts: dict[str, Any] = {"_cost_parts": split}
        if first.parameters and first.lifted_parts is not None:
            parts = {"lifted_parts": replace(first.lifted_parts, cost=split)}
        again = ("sum_of_maxima", "pieces", "lifted", "interpolated", "curvature", "_cost_values")
        return first.with_parts(recomputed=again, made_by=(methodcaller("with_pool", pool), (self,)), **parts)

    @cached_property
    def n_decisions(self) -> int:
        """Number p of entries of the flat decision z, with those of auxiliary variables of the cost behind them."""
        return self.layout.size

    def expression(self, z: Any, u: Any) -> cp.Expression:
        """The cost as a scalar CVXPY expression, at a decision in the structure of `decision` and an outcome."""
        leaves = [z if isinstance(z, cp.Expression) else cp.Constant(z) for z in leaves_of(self.decision, z)]
        auxiliary = self.written.variables[self.layout.n_given :]
        return self.cost_at([*leaves, *auxiliary], u)

    def cost_at(self, z: Any, u: Any) -> cp.Expression:
        """The cost as an expression: at a flat decision or a list of leaves, or in its variables if z is None."""
        return substitute(self._formulas.cost, self.written.leaves(z, u))

    def constraints_at(self, u: Array) -> list[cp.Constraint]:
        """What the uncertain constraints demand of the decision if the outcome is u."""
        leaves = self.written.leaves(u=u)
        return [substitute_in(row, leaves) for row in self._formulas.uncertain]

    @cached_property
    def _cost_parts(self) -> Decomposition | None:
        if self.has_recourse:
            return None if self.all_pieces is None else self.with_pool(self.all_pieces)._cost_parts
        parts = decompose(self._formulas.cost, self.written.variables, self.written.outcome)
        return None if parts is None else parts[0]

    @cached_property
    def curvature(self) -> Curvature:
        """How the cost depends on the outcome, by structure if it has pieces, else by DCP."""
        if self.has_recourse and self._cost_parts is None:
            return Curvature.CONVEX
        if self._cost_parts is not None:
            return Curvature.MAX_AFFINE if self._cost_parts.joint_part.groups else Curvature.AFFINE
        return Curvature.CONCAVE if self.cost_of_outcome().is_concave() else Curvature.CONVEX

    def cost_of_outcome(self) -> cp.Expression:
        """The cost as a function of the outcome: the decision is a parameter, with the signs of its variables."""
        z = [_sign_parameter(v) for v in self.written.variables]
        return substitute(self.written.cost, self.written.leaves(z, cp.Variable(self.n_outcomes)))

    @cached_property
    def sum_of_maxima(self) -> SumOfMaxima | None:
        """The joint part of the cost as sums of maxima, or None if it has no such form."""
        return None if self._cost_parts is None else self._cost_parts.joint_part.merged()

    @cached_property
    def pieces(self) -> Pieces | None:
        """The joint part as one piece list, or None if it has none or too long a one."""
        return None if self.sum_of_maxima is None else self.sum_of_maxima.pieces()

    @cached_property
    def _rows(self) -> list[Decomposition]:
        """The uncertain constraints as expressions that must be <= 0."""
        return [row for constraint in self._formulas.uncertain for row in inequality_rows(constraint, self.written)]

    @cached_property
    def uncertain_rows(self) -> tuple[Pieces, ...]:
        """The uncertain constraints: each maximum of pieces plus its epigraph column is at most 0."""
        lists = [row.joint_part.pieces() for row in self._rows]
        if any(pieces is None for pieces in lists):
            raise ValueError(
                "An uncertain constraint has too many pieces. Write its terms as constraints of their own."
            )
        return tuple(pieces for pieces in lists if pieces is not None)

    @cached_property
    def feasible(self) -> FeasibleProgram:
        """g_0 over Z as a conic program (g_0 = 0 for costs without a piece form)."""
        decision_cost = cp.Constant(0.0) if self._cost_parts is None else self._cost_parts.decision_part
        row_parts = [row.decision_part for row in self._rows]
        return compile_feasible_program(self.written.variables, decision_cost, self.written.certain, row_parts)

    @cached_property
    def feasible_without_cost(self) -> FeasibleProgram:
        """Z alone, so that no column or row belongs to the cost."""
        return compile_feasible_program(self.written.variables, cp.Constant(0.0), self.written.certain)

    @cached_property
    def support_rows(self) -> tuple[Array, Array]:
        """A, h of the known support {u : A u <= h}; no rows if nothing is known."""
        return support_rows(self.written)

    @cached_property
    def outcomes_are_nonneg(self) -> bool:
        """Whether by the known support no outcome is negative."""
        A, h = self.support_rows
        bounds_one_below = ((A < 0).sum(axis=1) == 1) & ((A != 0).sum(axis=1) == 1) & (h <= 0)
        return bool(A[bounds_one_below].any(axis=0).all())

    def with_known_signs(self, z: Array, u: Array) -> tuple[Array, Array]:
        """Z and u without the rounding errors that hide known signs from CVXPY."""
        signs = [_sign_parameter(variable) for variable in self.written.variables]
        lower = [np.full(sign.size, 0.0 if sign.is_nonneg() else -np.inf) for sign in signs]
        upper = [np.full(sign.size, 0.0 if sign.is_nonpos() else np.inf) for sign in signs]
        z = np.clip(z, np.concatenate(lower), np.concatenate(upper))
        return z, self.with_known_outcome_sign(u)

    def with_known_outcome_sign(self, u: Array) -> Array:
        """Outcomes without rounding errors below a known zero."""
        return np.maximum(u, 0.0) if self.outcomes_are_nonneg else u

    @cached_property
    def _cost_values(self) -> RowValues:
        """The cost, or what of it depends on the decision (and parameters) alone if the rest has pieces."""
        split = self.cost_split
        return RowValues(self.written, self.written.cost if split is None else split.decision_part)

    @property
    def cost_split(self) -> Decomposition | None:
        """The cost split into a part in the decision alone and the joint part; None if it has no such form."""
        if not self.parameters:
            return self._cost_parts
        return None if self.lifted_parts is None else self.lifted_parts.cost

    def evaluate(self, z: Array, u: Array, values: Array | None = None) -> Array:
        """The cost g(z_i, u_i) at matching rows of flat decisions (N, p) and outcomes (N, d).

        `values` (N, t) are those of the parameters, flat and row by row, if the problem has any.
        """
        if np.shape(z)[1:] != (self.n_decisions,):
            raise ValueError(f"z must have shape (N, {self.n_decisions}), as Decisions.flat has, got {np.shape(z)}.")
        if values is None:
            values = parameter_rows(self.parameters, None, len(z))
        if self.has_recourse:
            return self.first_stage.evaluate(z, u, values) + self.answers(z, u, values, with_decisions=False).costs
        if self.cost_split is None:
            return self._cost_values(*self.layout.columns(z), u, *layout_of(self.parameters).columns(values))
        # The rest depends on the decision alone, and many contexts share few decisions.
        known = np.hstack([z, values])
        distinct, where = np.unique(known, axis=0, return_inverse=True)
        alone, theta = np.hsplit(distinct, [self.n_decisions])
        zero = np.zeros((len(distinct), self.n_outcomes))
        rest = self._cost_values(*self.layout.columns(alone), zero, *layout_of(self.parameters).columns(theta))
        joint = self.cost_split.joint_part if self.parameters else self.sum_of_maxima
        assert joint is not None
        return joint.evaluate(z, np.hstack([u, values])) + rest[where.ravel()]

    def answers(self, z: Array, u: Array, values: Array | None = None, *, with_decisions: bool = True) -> Answers:
        """The second stage at matching rows of flat decisions (N, p) and outcomes (N, d): its costs, and decisions."""
        if values is None:
            values = parameter_rows(self.parameters, None, len(z))
        z = self.with_known_signs(z, u)[0]  # an order of -1e-9 is none, not one that no second decision repairs
        if self.second_stage is not None:
            return self.second_stage.answers(z, np.hstack([u, values]), with_decisions=with_decisions)
        parts = equal_rows(values)
        found = [self.at_values(values[r[0]]).answers(z[r], u[r], with_decisions=with_decisions) for r in parts]
        order = np.argsort(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))
        return Answers(*(np.concatenate(part)[order] for part in zip(*found, strict=True)))

    def row_parts(self, z: Array) -> list[float]:
        """The parts of the uncertain constraints that depend on the decision alone, at one decision."""
        leaves = self.written.leaves(z)
        return [float(substitute(row.decision_part, leaves).value) for row in self._rows]

    def violations(self, z: Array, u: Array, values: Array | None = None) -> Array:
        """By how much each uncertain constraint is exceeded (N, n): rows as in `evaluate`, 0 if it holds."""
        if values is None:
            values = parameter_rows(self.parameters, None, len(z))
        if self._uncertain is not None:
            return self._uncertain.violations(z, u, values)
        rows = [self.at_values(v).violations(z[[i]], u[[i]]) for i, v in enumerate(values)]
        return np.vstack([np.zeros((0, len(self.constraint_names))), *rows])

    @cached_property
    def _uncertain(self) -> UncertainRows | None:
        """The uncertain constraints as functions of many rows; None if the parameters do not enter linearly."""
        rows = self._rows if not self.parameters else None if self.lifted_parts is None else self.lifted_parts.rows
        return None if rows is None else UncertainRows(self.written, rows)


def _sign_parameter(decision: cp.Variable) -> cp.Parameter:
    nonneg = bool(decision.is_nonneg()) or decision.attributes.get("boolean") is True
    return cp.Parameter(decision.shape, nonneg=nonneg, nonpos=bool(decision.is_nonpos()) and not nonneg)


def problem_from_data(data: Mapping[str, Any]) -> DecisionProblem:
    """The problem that `problem_to_data` described, compiled again; mistakes in the data are ValueErrors."""
    problem = _unpickled(data)
    if problem.parameters:
        check_with_parameters(problem)
    else:
        assert problem.feasible is not None
        assert problem.uncertain_rows is not None
        if problem.has_recourse:
            check_second_stage(problem)
    return problem


def _unpickled(data: Mapping[str, Any]) -> DecisionProblem:
    problem = DecisionProblem.assembled(**fields_from_data(data))
    problem._read()
    return problem
