"""The part of a decision problem without uncertainty, g_0(z) over Z, as a conic program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems.formula import substitute, substitute_in
from polyhedge.solvers.program import Cone, ConicProgram, row_kinds
from polyhedge.solvers.scaling import as_rotated, products, rotation, with_products

_ATTRIBUTES_WITHOUT_CONSTRAINT = {"name", "value"}
# CVXPY's canonicalisation keeps settings in module globals (before 1.9) and holds the interpreter all the while, so
# that waiting costs nothing.
_ONE_AT_A_TIME = Lock()
_SIGNS = {"nonneg": 1.0, "pos": 1.0, "nonpos": -1.0, "neg": -1.0}


@dataclass(frozen=True)
class Slopes:
    """How the numbers of a program move with the parameters: a row for each cost, stored entry and right-hand side."""

    c: sp.csr_array
    A: sp.csr_array
    b: sp.csr_array
    offset: Array


@dataclass(frozen=True)
class FeasibleProgram:
    r"""Minimise g_0(z) over z in Z: a conic program whose columns `z_columns` are the decision.

    `epigraph_columns` are free columns s_r >= g_r(z), one for each uncertain constraint with a part
    that is nonlinear in z alone (-1 if there is none). With `slopes` it is the program at parameters of zero.
    """

    program: ConicProgram
    z_columns: Indices
    epigraph_columns: Indices
    slopes: Slopes | None = None

    def at(self, values: Array) -> FeasibleProgram:
        """The program at flat values of the parameters."""
        slopes, zero = self.slopes, self.program
        if slopes is None:
            return self
        entries = zero.A.data + slopes.A @ values
        program = replace(
            zero,
            c=zero.c + slopes.c @ values,
            A=sp.csr_array((entries, zero.A.indices, zero.A.indptr), zero.A.shape),
            b=zero.b + slopes.b @ values,
            offset=zero.offset + float(slopes.offset @ values),
        )
        return replace(self, program=program, slopes=None)


def compile_feasible_program(
    decision: cp.Variable | Sequence[cp.Variable],
    decision_cost: cp.Expression,
    constraints: Sequence[cp.Constraint],
    row_parts: Sequence[cp.Expression] = (),
    parameters: Sequence[cp.Parameter] = (),
) -> FeasibleProgram:
    """Canonicalise g_0 and Z once through CVXPY; integrality is kept apart from the convex program.

    Variables that are not part of the decision are auxiliary: CVXPY gives them columns of their own. With parameters,
    `NotAffineError` says that the program's numbers are not affine in them.
    """
    variables = [decision] if isinstance(decision, cp.Variable) else list(decision)
    p = sum(variable.size for variable in variables)
    # CVXPY would look for a solver that takes integers: here they stand with the decision, as columns of ours.
    variables += _other_integers(variables, [decision_cost, *constraints, *row_parts])
    flat = cp.Variable(sum(variable.size for variable in variables))
    parts = _parts(flat, variables)
    shaped = {v.id: cp.reshape(part, v.shape, order="C") for v, part in zip(variables, parts, strict=True)}
    # Of attributes only signs matter here, and CVXPY takes values of zero for granted.
    known = [
        cp.Parameter(p.shape, nonneg=p.is_nonneg(), nonpos=p.is_nonpos(), value=np.zeros(p.shape)) for p in parameters
    ]
    shaped |= {p.id: k for p, k in zip(parameters, known, strict=True)}
    epigraphs = [None if part.is_constant() else cp.Variable() for part in row_parts]
    rows = [substitute_in(constraint, shaped) for constraint in constraints]
    rows += [substitute(part, shaped) <= s for part, s in zip(row_parts, epigraphs, strict=True) if s is not None]
    rows += [row for v, part in zip(variables, parts, strict=True) for row in _attribute_constraints(v, part)]
    objective = cp.Minimize(substitute(decision_cost, shaped) + np.zeros(flat.size) @ flat)
    program, columns, slopes = _conic_arrays(cp.Problem(objective, rows), known)
    flat_columns = columns[flat.id] + np.arange(flat.size)
    is_integer = np.concatenate([_mask(v, "boolean") | _mask(v, "integer") for v in variables])
    program = ConicProgram(**{**vars(program), "integer": flat_columns[is_integer]})
    epigraph_columns = [-1 if s is None else columns[s.id] for s in epigraphs]
    return FeasibleProgram(program, flat_columns[:p], np.array(epigraph_columns, dtype=np.int64), slopes)


def _parts(flat: cp.Variable, variables: Sequence[cp.Variable]) -> list[cp.Expression]:
    if len(variables) == 1:
        return [flat]
    ends = np.cumsum([0, *(v.size for v in variables)])
    return [flat[start:stop] for start, stop in pairwise(ends.tolist())]


def _other_integers(variables: Sequence[cp.Variable], nodes: Sequence[Any]) -> list[cp.Variable]:
    seen = {variable.id for variable in variables}
    others = {v.id: v for node in nodes for v in node.variables() if v.id not in seen}
    return [v for v in others.values() if v.attributes.get("integer") or v.attributes.get("boolean")]


def _mask(decision: cp.Variable, attribute: str) -> Mask:
    """Entries (row-major) of the decision with the attribute `boolean` or `integer`."""
    mask = np.zeros(decision.shape, dtype=bool)
    setting = decision.attributes.get(attribute)
    if setting is True:
        mask[...] = True
    elif setting:
        mask[tuple(getattr(decision, f"{attribute}_idx"))] = True
    return mask.ravel(order="C")


def _attribute_constraints(decision: cp.Variable, flat: cp.Expression) -> list[cp.Constraint]:
    """What the variable's attributes (nonneg, boolean, bounds, ...) demand, as constraints on `flat`."""
    rows: list[cp.Constraint] = []
    for name, setting in decision.attributes.items():
        if setting is None or setting is False or name in _ATTRIBUTES_WITHOUT_CONSTRAINT | {"integer"}:
            continue
        if name in _SIGNS:
            rows.append(_SIGNS[name] * flat >= 0)
        elif name == "boolean":
            chosen = np.flatnonzero(_mask(decision, "boolean"))
            rows += [flat[chosen] >= 0, flat[chosen] <= 1]
        elif name == "bounds":
            if any(isinstance(bound, cp.Expression) for bound in setting):
                raise ValueError(
                    f"The bounds of the variable {decision.name()} must be numbers. Write other bounds as constraints."
                )
            lower, upper = (np.broadcast_to(np.asarray(b, float), decision.shape).ravel() for b in setting)
            rows += [flat[np.isfinite(lower)] >= lower[np.isfinite(lower)]] if np.isfinite(lower).any() else []
            rows += [flat[np.isfinite(upper)] <= upper[np.isfinite(upper)]] if np.isfinite(upper).any() else []
        else:
            raise ValueError(
                f"The variable {decision.name()} has the attribute {name}={setting!r}, which is not supported in a "
                "decision. Use a plain "
                "variable (nonneg, nonpos, bounds, integer and boolean are fine) and write it as a constraint."
            )
    return rows


class NotAffineError(Exception):
    """The numbers of a program are not affine in its parameters."""


def _conic_arrays(
    problem: cp.Problem, parameters: Sequence[cp.Parameter]
) -> tuple[ConicProgram, dict[int, int], Slopes | None]:
    """The arrays CVXPY would hand to Clarabel, the first column of each variable, and how parameters move them."""
    if parameters and not problem.is_dpp():
        raise NotAffineError
    with _ONE_AT_A_TIME:
        data, _, _ = problem.get_problem_data(cp.CLARABEL)
        P = data.get("P")
        stuffed = data["param_prob"].apply_parameters(quad_obj=P is not None)
        moved = [_moved(data["param_prob"], unit, P) for unit in _units(parameters)]
    offset = float(np.asarray(stuffed[-3]).ravel()[0])
    quadratic = sp.csr_array(P) if P is not None and P.nnz else None
    program = ConicProgram(
        c=np.asarray(data["c"], dtype=float),
        A=sp.csr_array(data["A"]),
        b=np.asarray(data["b"], dtype=float),
        cones=_cones(data["dims"]),
        P=quadratic,
        offset=offset,
    )
    columns = dict(data["param_prob"].var_id_to_col)
    if not parameters:
        return with_products(program), columns, None
    program, moved = _products_of_all(program, moved)
    program, slopes = _with_slopes(program, moved)
    return program, columns, slopes


def _products_of_all(program: ConicProgram, moved: Sequence[Any]) -> tuple[ConicProgram, list[Any]]:
    """The program, and its numbers at units of the parameters, with products instead of second-order cones."""
    chosen = products(program.A, program.b, program.cones)
    turn = rotation(program.cones, chosen)
    turned = [(c, offset, sp.csr_array(turn @ A), turn @ b) for c, offset, A, b in moved]
    cones = as_rotated(program.cones, chosen)
    return replace(program, A=sp.csr_array(turn @ program.A), b=turn @ program.b, cones=cones), turned


def _units(parameters: Sequence[cp.Parameter]) -> Iterator[dict[int, Array]]:
    """Values of all parameters, by id: one entry after the other at one, all others at zero."""
    zeros = {p.id: np.zeros(p.shape) for p in parameters}
    for parameter in parameters:
        for index in np.ndindex(*parameter.shape):
            unit = np.zeros(parameter.shape)
            unit[index] = 1.0
            yield zeros | {parameter.id: unit}


def _moved(stuffed: Any, values: dict[int, Array], P: Any) -> tuple[Array, float, sp.csr_array, Array]:
    """Costs, offset, matrix and right-hand sides at these values."""
    *quadratic, c, offset, A, b = stuffed.apply_parameters(values, quad_obj=P is not None)
    if quadratic and abs(quadratic[0] - P).max() > 0:
        raise NotAffineError  # of a quadratic term the engine knows one only
    return (
        np.asarray(c, dtype=float),
        float(np.asarray(offset).ravel()[0]),
        -sp.csr_array(A),
        np.asarray(b, dtype=float),
    )


def _with_slopes(program: ConicProgram, moved: Sequence[Any]) -> tuple[ConicProgram, Slopes]:
    """The program with an entry wherever one appears at any value, and the slopes of its numbers."""
    c, offsets, matrices, b = zip(*moved, strict=True)
    steps = [sp.csr_array(A - program.A) for A in matrices]
    pattern = abs(program.A)
    for step in steps:
        pattern = pattern + abs(step)
    pattern = sp.csr_array(pattern)
    pattern.sort_indices()
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))

    def entries(A: sp.csr_array) -> Array:
        return np.asarray(A[rows, pattern.indices]).ravel() if len(rows) else np.zeros(0)

    A = sp.csr_array((entries(program.A), pattern.indices, pattern.indptr), pattern.shape)
    slopes = Slopes(
        c=sp.csr_array(np.column_stack(c) - program.c[:, None]),
        A=sp.csr_array(np.column_stack([entries(step) for step in steps])),
        b=sp.csr_array(np.column_stack(b) - program.b[:, None]),
        offset=np.array(offsets) - program.offset,
    )
    return replace(program, A=A), slopes


def _cones(dims: object) -> tuple[Cone, ...]:
    cones = [Cone("zero", dims.zero), Cone("nonneg", dims.nonneg)]  # type: ignore[attr-defined]
    cones += [Cone("soc", size) for size in dims.soc]  # type: ignore[attr-defined]
    cones += [Cone("psd", order) for order in dims.psd]  # type: ignore[attr-defined]
    cones += [Cone("exp", 3)] * dims.exp  # type: ignore[attr-defined]
    cones += [Cone("pow", 3, exponent) for exponent in dims.p3d]  # type: ignore[attr-defined]
    if getattr(dims, "pnd", None):
        raise ValueError(
            "Generalised power cones are not supported in the feasible set. Rewrite the constraint "
            "with cp.power, cp.geo_mean of two terms or second-order cones."
        )
    return tuple(cone for cone in cones if cone.size)


@dataclass(frozen=True)
class QuadraticCost:
    r"""The function $\tfrac12 |L z + l|_D^2 + c^\top z + \text{offset}$ with the symmetric matrix D."""

    L: Array
    l: Array  # noqa: E741 - the letter of the formula
    D: Array
    c: Array
    offset: float

    @property
    def hessian(self) -> Array:
        """H of z'Hz / 2 + slope'z + constant."""
        return np.asarray(self.L.T @ self.D @ self.L)

    @property
    def slope(self) -> Array:
        """The gradient at z = 0."""
        return np.asarray(self.c + self.L.T @ self.D @ self.l)

    def along(self, z0: Array, z1: Array) -> Array:
        """Coefficients (3,) of 1, s and s^2 at z0 + s (z1 - z0)."""
        step = z1 - z0
        start, turn = self.L @ z0 + self.l, self.L @ step
        constant = 0.5 * start @ self.D @ start + self.c @ z0 + self.offset
        bend = 0.5 * float(turn @ self.D @ turn)
        # The cost is convex: a negative curvature is rounding; dividing a slope by less than 1e-200 would overflow.
        return np.array([constant, turn @ self.D @ start + self.c @ step, bend if bend > 1e-200 else 0.0])


def quadratic_cost(feasible: FeasibleProgram) -> QuadraticCost | None:
    """g_0 as a quadratic function of the decision, or None if the compiled program does not show that it is one.

    If equations give every column that costs something as an affine function of z, then g_0 is a quadratic function of
    z with these coefficients. A column that is only bounded, an epigraph, makes it another function. (CVXPY's
    `is_quadratic` counts Huber's function in.)
    """
    program = feasible.program
    is_curved = np.zeros(len(program.c), dtype=bool)
    if program.P is not None:
        is_curved[program.P.tocoo().row] = True
    columns = np.flatnonzero(is_curved | (program.c != 0))
    maps = _affine_in_decision(program, feasible.z_columns, columns)
    if maps is None:
        return None
    M, m = maps
    curved = is_curved[columns]
    D = np.zeros((0, 0)) if program.P is None else program.P[columns[curved]][:, columns[curved]].toarray()
    costs = program.c[columns]
    return QuadraticCost(M[curved], m[curved], D, costs @ M, float(costs @ m) + program.offset)


def _affine_in_decision(program: ConicProgram, z: Indices, columns: Indices) -> tuple[Array, Array] | None:
    """M, m with x[columns] = M z + m for every feasible x; None if some column is not given by an equation."""
    M, m = np.zeros((len(columns), len(z))), np.zeros(len(columns))
    equations, place = _one_unknown_each(program, z), {int(column): k for k, column in enumerate(z)}
    for k, column in enumerate(columns):
        if int(column) in place:
            M[k, place[int(column)]] = 1.0
        elif int(column) in equations:
            row = program.A[[equations[int(column)]]].toarray().ravel()
            M[k], m[k] = -row[z] / row[column], program.b[equations[int(column)]] / row[column]
        else:
            return None
    return M, m


def _one_unknown_each(program: ConicProgram, z: Indices) -> dict[int, int]:
    """Column -> an equation in which it stands with decisions only."""
    equations = np.flatnonzero(row_kinds(program.cones) == "zero")
    others = program.A[equations].tocoo()
    unknown = (others.data != 0) & ~np.isin(others.col, z)
    count = np.bincount(others.row[unknown], minlength=len(equations))
    alone = unknown & (count[others.row] == 1)
    return {int(column): int(equations[row]) for row, column in zip(others.row[alone], others.col[alone], strict=True)}
