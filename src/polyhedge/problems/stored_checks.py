"""Whether the two descriptions in a file, arrays and formulas, are of one problem.

Decisions are made from the arrays. A file in which they say another cost than the formula, or another feasible set,
would give bounds that mean nothing. Coefficients are compared one by one with those that the formula gives, and values
at points of all sizes. Points and their number depend on the file alone and not on the clock, so that
it is accepted always or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, Indices
from polyhedge.problems.checks import check_curvature, feasible_points
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.decompose import count_parts, support_rows
from polyhedge.problems.pieces import Pieces
from polyhedge.problems.written import substitute, substitute_in
from polyhedge.solvers.program import Cone, ConicProgram
from polyhedge.solvers.solve import solve

_SMALLEST, _LARGEST = -6.0, 9.0
"""Powers of ten of outcomes and decisions: pieces differ far from zero, constants near it."""
_DECISION_SIZES = (1.0, 1e3, 1e6)
"""Of points that are projected onto the feasible set; each costs two or more solves of it."""
_N_BETWEEN = 2
"""Points between those: the others may all lie in corners."""
_WORK = 100_000
"""Parts of formulas that are evaluated, as often as they are: a third of a second."""
_FEWEST, _MOST = 1, 16
"""Outcomes at each decision beside zero, whatever the work, and decisions that need not be feasible."""
_WORK_OF_ROWS = 4_000
"""Parts of uncertain constraints up to which their coefficients are read once more, half a second."""
# Seconds of a solve in a check: loading as a whole must take no longer than two.
_TIME_LIMIT = 1.0
# The compiled and the written cost are sums of the same terms in another order.
_EXACT = 1e-9
_SOLVED = 1e-4
"""Solvers stop at 1e-8 of a program's own units, which may be far from those of a value."""


def check_stored(problem: DecisionProblem) -> None:
    """Raise ValueError where arrays and formulas of a problem that was read differ."""
    rng = np.random.default_rng(0)
    check_curvature(problem)
    _check_support(problem)
    _check_coefficients(problem)
    _check_kind(problem)
    decisions = _decisions(problem, rng)
    values = _Values(problem)
    # As many evaluations as there are decisions, times outcomes.
    n = int(np.clip(np.sqrt(_WORK / values.n_parts) - len(decisions) / 2, _FEWEST, _MOST))
    decisions = decisions[: max(n, len(_DECISION_SIZES))]
    # Points of Z may all lie in one corner; others show more, where the formula is defined.
    far = _of_all_sizes(rng, n, problem.n_decisions)
    others = problem.with_known_signs(far, np.zeros((1, 1)))[0]
    for i, z in enumerate((*decisions, *others)):
        u = np.vstack([np.zeros(problem.n_outcomes), _of_all_sizes(rng, n, problem.n_outcomes)])
        is_feasible = i < len(decisions)
        if is_feasible:
            _check_constraints(problem, z)
        cost, rows = values.at(z, u)
        _check_cost(problem, cost, z, u, is_feasible)
        _check_uncertain_rows(problem, rows, z, u, is_feasible)


def _decisions(problem: DecisionProblem, rng: np.random.Generator) -> Array:
    """Points of the feasible set (or its relaxation): some near zero, some at its ends, and some between them."""
    by_size = [feasible_points(problem, 1, rng, _TIME_LIMIT, size) for size in _DECISION_SIZES]
    points = np.vstack(by_size)
    if not len(points):
        return points
    return np.vstack([points, rng.dirichlet(np.ones(len(points)), _N_BETWEEN) @ points])


def _of_all_sizes(rng: np.random.Generator, n: int, d: int) -> Array:
    """Rows (n, d): sizes from the smallest to the largest, by turns one for all entries and one for each."""
    one = rng.permutation(np.linspace(_SMALLEST, _LARGEST, n))[:, None]
    each = rng.uniform(_SMALLEST, _LARGEST, size=(n, d))
    sizes = np.where(np.arange(n)[:, None] % 2 == 0, one, each)
    return np.asarray(10.0**sizes * rng.normal(size=(n, d)))


class _Values:
    """Cost and uncertain constraints as they are written, at numbers: copied once, and evaluated many times."""

    def __init__(self, problem: DecisionProblem) -> None:
        written = problem.written
        if any(not isinstance(row, cp.constraints.Inequality) for row in written.uncertain):
            raise ValueError("Uncertain constraints must be inequalities.")
        self.layout = problem.layout
        self.z = [cp.Parameter(shape) for shape in problem.layout.shapes]
        self.u = cp.Parameter(problem.n_outcomes)
        leaves = written.leaves(list(self.z), self.u)
        self.formulas = [substitute(f, leaves) for f in (written.cost, *(row.expr for row in written.uncertain))]
        self.n_parts = sum(count_parts(formula) for formula in self.formulas)

    def at(self, z: Array, u: Array) -> tuple[Array, Array]:
        """The cost (n,) and all entries of the constraints (rows, n) at one decision; NaN where it is undefined."""
        for parameter, part in zip(self.z, self.layout.split(z), strict=True):
            parameter.save_value(part)
        entries = []
        with np.errstate(all="ignore"):
            for row in u:
                self.u.save_value(row)
                entries.append(np.concatenate([_entries(formula) for formula in self.formulas]))
        cost, *rows = np.array(entries).T
        return cost, np.array(rows).reshape(-1, len(u))


def _check_kind(problem: DecisionProblem) -> None:
    total = problem.sum_of_maxima
    if total is not None:
        expected = [Curvature.MAX_AFFINE if total.groups else Curvature.AFFINE]
    else:
        in_outcome = problem.cost_of_outcome()
        said = ((Curvature.CONCAVE, in_outcome.is_concave()), (Curvature.CONVEX, in_outcome.is_convex()))
        expected = [kind for kind, holds in said if holds]
    if problem.curvature not in expected:
        raise ValueError(f"The cost is compiled as {problem.curvature}, its formula is {' or '.join(expected)}.")


def _check_support(problem: DecisionProblem) -> None:
    own = support_rows(problem.written)
    if not all(_are_close(stored, said) for stored, said in zip(problem.support_rows, own, strict=True)):
        raise ValueError("The known support of the outcome is compiled to another one than its formula.")


def _check_coefficients(problem: DecisionProblem) -> None:
    """Lists of pieces must be those that the formulas give.

    Another version may have written the same function with more or fewer pieces: then those of the formulas are taken,
    and the program of the decisions must fit them.
    """
    stored, parts = problem.sum_of_maxima, problem.cost_split
    if stored is not None and parts is not None:
        said = parts.joint_part.merged()
        if not _are_same([stored.base[None], *stored.groups], [said.base[None], *said.groups], "cost"):
            problem._set(sum_of_maxima=said)
    if sum(count_parts(row.expr) for row in problem.written.uncertain) > _WORK_OF_ROWS:
        return
    rows = [row.joint_part.pieces() for row in problem._rows]
    if len(rows) != len(problem.uncertain_rows):
        raise ValueError("The problem has another number of uncertain constraints than it is compiled to.")
    taken = [
        own if said is None or _are_same([_stacked(own)], [_stacked(said)], "uncertain constraint") else said
        for own, said in zip(problem.uncertain_rows, rows, strict=True)
    ]
    problem._set(uncertain_rows=tuple(taken))


def _stacked(pieces: Pieces) -> Array:
    n = len(pieces)
    return np.hstack([pieces.Q.reshape(n, -1), pieces.q, pieces.p, pieces.c[:, None]])


def _are_same(stored: Sequence[Array], said: Sequence[Array], what: str) -> bool:
    """Whether two functions are written with as many pieces; then these must be the same."""
    if [part.shape for part in stored] != [part.shape for part in said]:
        return False
    if not all(_are_close(_in_order(a), _in_order(b)) for a, b in zip(stored, said, strict=True)):
        raise ValueError(f"The {what} is compiled to another one than its formula.")
    return True


def _in_order(pieces: Array) -> Array:
    """Rows in an order that does not depend on roundings."""
    rows = pieces.reshape(len(pieces), -1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        digits = 10.0 ** (np.floor(np.log10(np.abs(rows))) - 6)
        rounded = np.where((rows == 0) | ~np.isfinite(digits) | (digits == 0), 0.0, np.round(rows / digits) * digits)
    return rows[np.lexsort(rounded.T)] if rows.size else rows


def _are_close(stored: Array, said: Array) -> bool:
    """Whether each number is the same but for roundings of it; zeros may be what is left of others."""
    if stored.shape != said.shape or not np.isfinite(stored).all():
        return False
    left = np.finfo(float).eps * float(np.abs(said).max(initial=0.0))
    return bool((np.abs(stored - said) <= _EXACT * np.maximum(np.abs(stored), np.abs(said)) + left).all())


def _check_constraints(problem: DecisionProblem, z: Array) -> None:
    """A decision of the compiled feasible set must satisfy the constraints as they are written."""
    own = {v.id for v in problem.written.variables}
    leaves, scale = problem.written.leaves(z), 1.0 + float(np.abs(z).max(initial=0.0))
    for row in problem.written.certain:
        if not {v.id for v in row.variables()} <= own:
            continue  # auxiliary variables are not known at a decision
        violation = np.max(np.asarray(substitute_in(row, leaves).violation(), dtype=float), initial=0.0)
        size = max((float(np.abs(c.value).max()) for c in row.constants() if c.size), default=0.0)
        if not violation <= _SOLVED * scale * (1.0 + size):
            raise ValueError("The feasible set is compiled to another one than its constraints.")


def _check_cost(problem: DecisionProblem, values: Array, z: Array, u: Array, is_feasible: bool) -> None:
    total = problem.sum_of_maxima
    if total is None:
        return
    sizes = total.sizes().evaluate(np.abs(z)[None].repeat(len(u), axis=0), np.abs(u))
    alone = _remainder(values, total.evaluate, sizes, z, u, "cost")
    if is_feasible and alone is not None:
        _check_least(problem.feasible.program, problem.feasible.z_columns, z, alone)


def _check_uncertain_rows(problem: DecisionProblem, values: Array, z: Array, u: Array, is_feasible: bool) -> None:
    feasible = problem.feasible
    if len(values) != len(problem.uncertain_rows):
        raise ValueError("The problem has another number of uncertain constraints than it is compiled to.")
    for said, pieces, column in zip(values, problem.uncertain_rows, feasible.epigraph_columns, strict=True):
        absolute = Pieces(*(np.abs(part) for part in (pieces.Q, pieces.q, pieces.p, pieces.c)))
        sizes = absolute.evaluate(np.abs(z)[None].repeat(len(u), axis=0), np.abs(u))
        alone = _remainder(said, pieces.evaluate, sizes, z, u, "uncertain constraint")
        if alone is None or not is_feasible:
            continue
        if column < 0:
            _check_same(np.array([0.0]), np.array([alone]), "uncertain constraint", _SOLVED)
            continue
        c = np.zeros(len(feasible.program.c))
        c[column] = 1.0
        _check_least(replace(feasible.program, c=c, P=None, offset=0.0), feasible.z_columns, z, alone)


def _entries(formula: cp.Expression) -> Array:
    """The value of a formula, row-major; NaN outside its domain."""
    value = formula.value
    if value is None:
        return np.full(formula.size, np.nan)
    value = value.toarray() if sp.issparse(value) else value
    return np.asarray(value, dtype=np.float64).reshape(-1)


def _remainder(
    written: Array, compiled: Callable[[Array, Array], Array], sizes: Array, z: Array, u: Array, what: str
) -> float | None:
    """What the formula has beyond its compiled part, which must be the same at every outcome; None if undefined."""
    joint = compiled(np.tile(z, (len(u), 1)), u)
    if not np.isfinite(joint).all():
        raise ValueError(f"The {what} is compiled to numbers without end.")
    if not np.isfinite(written).all():
        return None
    # Relative to each value, so that a large outcome does not hide what a small one shows.
    alone = written - joint
    allowed = _EXACT * np.maximum(1.0, np.maximum(np.abs(written), np.abs(joint))) + CANCELLATION * sizes
    if (np.abs(alone - alone[0]) > np.maximum(allowed, allowed[0])).any():
        raise ValueError(f"The {what} is compiled to another one than its formula.")
    return float(alone[0])


def _check_same(compiled: Array, written: Array, what: str, tolerance: float = _EXACT) -> None:
    if compiled.shape == written.shape:
        size = np.maximum(np.abs(compiled), np.abs(written)).max(initial=1.0)
        if np.isfinite(compiled).all() and (np.abs(compiled - written) <= tolerance * size).all():
            return
    raise ValueError(f"The {what} is compiled to another one than its formula.")


def _check_least(program: ConicProgram, columns: Indices, z: Array, said: float) -> None:
    """The least objective at a fixed decision is the part of the formula that depends on it alone."""
    n = len(program.c)
    fixed = sp.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n))
    at_z = replace(
        program,
        A=sp.csr_array(sp.vstack([fixed, program.A])),
        b=np.concatenate([z, program.b]),
        cones=(Cone("zero", len(columns)), *program.cones),
        integer=np.zeros(0, dtype=np.int64),
    )
    solution = solve(at_z, time_limit=_TIME_LIMIT)
    scale = 1.0 + abs(said) + float(np.abs(program.c[columns] * z).sum())
    # A point on the border may lie outside by a rounding error, or leave the solver short of an answer; then nothing
    # can be compared.
    if solution.status.has_solution and solution.gap <= 0.1 * _SOLVED * scale:
        _check_same(np.array([solution.value / scale]), np.array([said / scale]), "cost of a decision", _SOLVED)
