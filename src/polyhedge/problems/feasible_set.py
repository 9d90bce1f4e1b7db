"""The part of a decision problem without uncertainty, g_0(z) over Z, as a conic program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems.formula import substitute, substitute_in, unit_values
from polyhedge.solvers.program import Cone, ConicProgram, as_rotated, products, rotation, row_kinds

# CVXPY's canonicalisation keeps settings in module globals (before 1.9) and holds the interpreter all the while, so
# that waiting costs nothing.
_ONE_AT_A_TIME = Lock()


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
    p, seen = sum(variable.size for variable in variables), {variable.id for variable in variables}
    # CVXPY would look for a solver that takes integers: here they stand with the decision, as columns of ours.
    others = {v.id: v for node in (decision_cost, *constraints, *row_parts) for v in node.variables()}
    variables += [v for v in others.values() if v.id not in seen and (_mask(v, "boolean") | _mask(v, "integer")).any()]
    ends = np.cumsum([0, *(v.size for v in variables)]).tolist()
    flat = cp.Variable(ends[-1])
    parts = [flat] if len(variables) == 1 else [flat[start:stop] for start, stop in pairwise(ends)]
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
    epigraph_columns = np.array([-1 if s is None else columns[s.id] for s in epigraphs], dtype=np.int64)
    return FeasibleProgram(
        replace(program, integer=flat_columns[is_integer]), flat_columns[:p], epigraph_columns, slopes
    )


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
        if setting is None or setting is False or name == "integer":
            continue
        if name in ("nonneg", "pos", "nonpos", "neg"):
            rows.append(flat >= 0 if name in ("nonneg", "pos") else flat <= 0)
        elif name == "boolean":
            chosen = np.flatnonzero(_mask(decision, "boolean"))
            rows += [flat[chosen] >= 0, flat[chosen] <= 1]
        elif name == "bounds":
            if any(isinstance(bound, cp.Expression) for bound in setting):
                raise ValueError(
                    f"The bounds of the variable {decision.name()} must be numbers. Write other bounds as constraints."
                )
            for sign, bound in zip((-1.0, 1.0), setting, strict=True):
                limit = np.broadcast_to(np.asarray(bound, float), decision.shape).ravel()
                chosen = np.flatnonzero(np.isfinite(limit))
                rows += [sign * flat[chosen] <= sign * limit[chosen]] if len(chosen) else []
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
        P, stuffed = data.get("P"), data["param_prob"]
        moved = [stuffed.apply_parameters(v, quad_obj=P is not None) for v in unit_values(parameters, 1.0)]
    if P is not None and any(abs(own - P).max() > 0 for own, *_ in moved):
        raise NotAffineError  # of a quadratic term the engine knows one only
    costs, offsets, matrices, sides = zip(*(arrays[-4:] for arrays in moved), strict=True)
    c, b = (np.column_stack([np.asarray(one, dtype=float) for one in some]) for some in (costs, sides))
    offset, A = np.array([float(np.asarray(one).ravel()[0]) for one in offsets]), [-sp.csr_array(M) for M in matrices]
    dims = data["dims"]
    if getattr(dims, "pnd", None):
        raise ValueError(
            "Generalised power cones are not supported in the feasible set. Rewrite the constraint "
            "with cp.power, cp.geo_mean of two terms or second-order cones."
        )
    sizes = [("zero", dims.zero), ("nonneg", dims.nonneg), *(("soc", n) for n in dims.soc)]
    blocks = [Cone(kind, size) for kind, size in [*sizes, *(("psd", n) for n in dims.psd)] if size]
    cones = (*blocks, *[Cone("exp", 3)] * dims.exp, *(Cone("pow", 3, exponent) for exponent in dims.p3d))
    chosen = products(A[0], b[:, 0], cones)
    if chosen:
        turn = rotation(cones, chosen)
        cones, A, b = as_rotated(cones, chosen), [sp.csr_array(turn @ M) for M in A], turn @ b
    # An entry wherever one appears at any value.
    pattern = sp.csr_array(sum((abs(M) for M in A[1:]), abs(A[0])))
    pattern.eliminate_zeros()
    pattern.sort_indices()
    places = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr)), pattern.indices
    entries = np.column_stack([np.asarray(M[places]).ravel() if pattern.nnz else np.zeros(0) for M in A])
    program = ConicProgram(
        c=c[:, 0],
        A=sp.csr_array((entries[:, 0], pattern.indices, pattern.indptr), pattern.shape),
        b=b[:, 0],
        cones=cones,
        P=sp.csr_array(P) if P is not None and P.nnz else None,
        offset=float(offset[0]),
    )
    columns = dict(stuffed.var_id_to_col)
    if not parameters:
        return program, columns, None
    in_c, in_A, in_b = (sp.csr_array(part[:, 1:] - part[:, :1]) for part in (c, entries, b))
    return program, columns, Slopes(in_c, in_A, in_b, offset[1:] - offset[0])


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
        bend = max(0.5 * float(turn @ self.D @ turn), 0.0)  # the cost is convex: a negative curvature is rounding
        return np.array([constant, turn @ self.D @ start + self.c @ step, bend])


def quadratic_cost(feasible: FeasibleProgram) -> QuadraticCost | None:
    """g_0 as a quadratic function of the decision, or None if the compiled program does not show that it is one.

    If equations give every column that costs something as an affine function of z, then g_0 is a quadratic function of
    z with these coefficients. A column that is only bounded, an epigraph, makes it another function. (CVXPY's
    `is_quadratic` counts Huber's function in.)
    """
    program, z = feasible.program, feasible.z_columns
    is_curved = np.zeros(len(program.c), dtype=bool)
    if program.P is not None:
        is_curved[program.P.tocoo().row] = True
    columns = np.flatnonzero(is_curved | (program.c != 0))
    # Column -> an equation in which it stands with decisions only.
    equations = np.flatnonzero(row_kinds(program.cones) == "zero")
    entries = program.A[equations].tocoo()
    unknown = (entries.data != 0) & ~np.isin(entries.col, z)
    alone = unknown & (np.bincount(entries.row[unknown], minlength=len(equations))[entries.row] == 1)
    defined = dict(zip(entries.col[alone].tolist(), equations[entries.row[alone]].tolist(), strict=True))
    # x[columns] = M z + m for every feasible x.
    M, m = (columns[:, None] == z).astype(float), np.zeros(len(columns))
    for k in np.flatnonzero(~np.isin(columns, z)):
        if int(columns[k]) not in defined:
            return None
        equation = defined[int(columns[k])]
        row = program.A[[equation]].toarray().ravel()
        M[k], m[k] = -row[z] / row[columns[k]], program.b[equation] / row[columns[k]]
    curved, costs = is_curved[columns], program.c[columns]
    D = np.zeros((0, 0)) if program.P is None else program.P[columns[curved]][:, columns[curved]].toarray()
    return QuadraticCost(M[curved], m[curved], D, costs @ M, float(costs @ m) + program.offset)
