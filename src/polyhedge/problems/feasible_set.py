"""The part of a decision problem without uncertainty, g_0(z) over Z, as a conic program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array, Indices, Mask
from polyhedge.solvers.program import Cone, ConicProgram

_ATTRIBUTES_WITHOUT_CONSTRAINT = {"name", "value"}
# CVXPY's canonicalisation keeps settings in module globals (before 1.9) and holds the interpreter all the while, so
# that waiting costs nothing.
_ONE_AT_A_TIME = Lock()
_SIGNS = {"nonneg": 1.0, "pos": 1.0, "nonpos": -1.0, "neg": -1.0}


@dataclass(frozen=True)
class FeasibleProgram:
    r"""Minimise g_0(z) over z in Z: a conic program whose columns `z_columns` are the decision.

    `epigraph_columns` are free columns s_r >= g_r(z), one for each uncertain constraint with a part
    that is nonlinear in z alone (-1 where there is none).
    """

    program: ConicProgram
    z_columns: Indices
    epigraph_columns: Indices


def compile_feasible_program(
    decision: cp.Variable,
    decision_cost: cp.Expression,
    constraints: Sequence[cp.Constraint],
    row_parts: Sequence[cp.Expression] = (),
) -> FeasibleProgram:
    """Canonicalise g_0 and Z once through CVXPY; integrality is kept beside the convex program."""
    flat = cp.Variable(decision.size)
    shaped = cp.reshape(flat, decision.shape, order="C")

    def on_flat(node: cp.Expression) -> cp.Expression:
        if isinstance(node, cp.Parameter):
            return cp.Constant(_value_of(node))
        if not node.args:
            return shaped if node is decision else node
        return node.copy([on_flat(argument) for argument in node.args])

    epigraphs = [None if part.is_constant() else cp.Variable() for part in row_parts]
    rows = [constraint.copy([on_flat(a) for a in constraint.args]) for constraint in constraints]
    rows += [on_flat(part) <= s for part, s in zip(row_parts, epigraphs, strict=True) if s is not None]
    rows += _attribute_constraints(decision, flat)
    objective = cp.Minimize(on_flat(decision_cost) + np.zeros(decision.size) @ flat)
    program, columns = _conic_arrays(cp.Problem(objective, rows))
    z_columns = columns[flat.id] + np.arange(decision.size)
    integer = z_columns[_mask(decision, "boolean") | _mask(decision, "integer")]
    program = ConicProgram(**{**vars(program), "integer": integer})
    epigraph_columns = [-1 if s is None else columns[s.id] for s in epigraphs]
    return FeasibleProgram(program, z_columns, np.array(epigraph_columns, dtype=np.int64))


def _mask(decision: cp.Variable, attribute: str) -> Mask:
    """Entries (row-major) of the decision with the attribute `boolean` or `integer`."""
    mask = np.zeros(decision.shape, dtype=bool)
    setting = decision.attributes.get(attribute)
    if setting is True:
        mask[...] = True
    elif setting:
        mask[tuple(getattr(decision, f"{attribute}_idx"))] = True
    return mask.ravel(order="C")


def _value_of(parameter: cp.Parameter) -> Array:
    if parameter.value is None:
        raise ValueError(
            f"The parameter {parameter.name()} of the decision problem has no value. A problem is compiled once, "
            "when it is written: set the parameter before, and write the problem again when it changes."
        )
    return np.asarray(parameter.value)


def _attribute_constraints(decision: cp.Variable, flat: cp.Variable) -> list[cp.Constraint]:
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
            lower, upper = (np.broadcast_to(np.asarray(b, float), decision.shape).ravel() for b in setting)
            rows += [flat[np.isfinite(lower)] >= lower[np.isfinite(lower)]] if np.isfinite(lower).any() else []
            rows += [flat[np.isfinite(upper)] <= upper[np.isfinite(upper)]] if np.isfinite(upper).any() else []
        else:
            raise ValueError(
                f"The decision variable has the attribute {name}={setting!r}, which is not supported. Use a plain "
                "variable (nonneg, nonpos, bounds, integer and boolean are fine) and write it as a constraint."
            )
    return rows


def _conic_arrays(problem: cp.Problem) -> tuple[ConicProgram, dict[int, int]]:
    """The arrays CVXPY would hand to Clarabel, and the first column of each variable."""
    with _ONE_AT_A_TIME:
        data, _, _ = problem.get_problem_data(cp.CLARABEL)
        P = data.get("P")
        stuffed = data["param_prob"].apply_parameters(quad_obj=P is not None)
    offset = float(np.asarray(stuffed[-3]).ravel()[0])
    quadratic = sp.csr_array(P) if P is not None and P.nnz else None
    return (
        ConicProgram(
            c=np.asarray(data["c"], dtype=float),
            A=sp.csr_array(data["A"]),
            b=np.asarray(data["b"], dtype=float),
            cones=_cones(data["dims"]),
            P=quadratic,
            offset=offset,
        ),
        dict(data["param_prob"].var_id_to_col),
    )


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
