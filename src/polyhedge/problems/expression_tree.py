"""CVXPY expressions as plain data: nested dictionaries of atom names, arrays and numbers, and back.

Reading a tree back builds atoms from a fixed list by name and calls nothing else, so that a tree from an unknown
file can do no more than describe a formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

MAX_DEPTH = 200
MAX_NODES = 50_000
MAX_SIZE = 1_000_000
"""Entries that one node of a tree may have; larger formulas cannot be solved anyway."""

_ATOMS = {
    "cvxpy.atoms.affine": (
        "add_expr.AddExpression binary_operators.DivExpression binary_operators.MulExpression "
        "binary_operators.multiply broadcast_to.broadcast_to concatenate.Concatenate conj.conj conv.conv "
        "conv.convolve cumsum.cumsum diag.diag_mat diag.diag_vec hstack.Hstack index.index index.special_index "
        "kron.kron promote.Promote reshape.reshape sum.Sum trace.Trace transpose.transpose "
        "unary_operators.NegExpression upper_tri.upper_tri vstack.Vstack wraps.nonneg_wrap wraps.nonpos_wrap "
        "wraps.nsd_wrap wraps.psd_wrap wraps.symmetric_wrap"
    ),
    "cvxpy.atoms.elementwise": (
        "abs.abs entr.entr exp.exp huber.huber kl_div.kl_div log.log log1p.log1p logistic.logistic maximum.maximum "
        "minimum.minimum power.Power power.PowerApprox rel_entr.rel_entr xexp.xexp"
    ),
    "cvxpy.atoms": (
        "cummax.cummax dotsort.dotsort geo_mean.GeoMean geo_mean.GeoMeanApprox lambda_max.lambda_max "
        "log_det.log_det log_sum_exp.log_sum_exp matrix_frac.MatrixFrac max.max min.min norm1.norm1 "
        "norm_inf.norm_inf norm_nuc.normNuc pnorm.Pnorm pnorm.PnormApprox quad_over_lin.quad_over_lin "
        "sigma_max.sigma_max sum_largest.sum_largest tr_inv.tr_inv"
    ),
    "cvxpy.constraints": (
        "exponential.ExpCone nonpos.Inequality nonpos.NonNeg nonpos.NonPos power.PowCone3D psd.PSD "
        "second_order.SOC zero.Equality zero.Zero"
    ),
}


class NotPortableError(ValueError):
    """The expression holds something that cannot be written as plain data."""


def to_tree(node: Any, leaves: Mapping[int, str]) -> dict[str, Any]:
    """Plain data of an expression or constraint whose variables `leaves` names by their id.

    Examples
    --------
    >>> z = cp.Variable(2)
    >>> to_tree(-z, {z.id: "z"})
    {'atom': 'NegExpression', 'args': [{'leaf': 'z'}], 'data': []}
    """
    if isinstance(node, cp.Variable):
        if node.id not in leaves:
            raise NotPortableError(f"it holds the variable {node.name()}, which is neither z nor u")
        return {"leaf": leaves[node.id]}
    if isinstance(node, (cp.Parameter, cp.Constant)):
        return {"constant": _plain_value(node.value)}
    name = type(node).__name__
    if type(node) is cp.QuadForm:
        return {"atom": "quad_form", "args": [to_tree(argument, leaves) for argument in node.args], "data": []}
    if type(node) not in _classes().values():
        raise NotPortableError(f"it holds {name}, which is not on the list of known parts")
    data = node.get_data() or []
    # The last item of a constraint's data is its number in this process, which means nothing elsewhere.
    data = data[:-1] if isinstance(node, cp.Constraint) else data
    return {
        "atom": name,
        "args": [to_tree(argument, leaves) for argument in node.args],
        "data": [_plain_data(item) for item in data],
    }


def from_tree(tree: Any, leaves: Mapping[str, Any]) -> Any:
    """The expression or constraint that a tree describes, with `leaves` for its variables.

    Examples
    --------
    >>> float(from_tree({"atom": "abs", "args": [{"leaf": "z"}], "data": []}, {"z": cp.Constant(-2.0)}).value)
    2.0
    """
    return _Builder(leaves).build(tree, MAX_DEPTH)


class _Builder:
    def __init__(self, leaves: Mapping[str, Any]) -> None:
        self.leaves, self.n_nodes = leaves, 0

    def build(self, tree: Any, depth: int) -> Any:
        self.n_nodes += 1
        if depth == 0 or self.n_nodes > MAX_NODES:
            raise ValueError(f"A formula may have {MAX_NODES} parts, nested {MAX_DEPTH} deep; this one has more.")
        if "leaf" in tree:
            return self.leaves[tree["leaf"]]
        if "constant" in tree:
            return cp.Constant(_value(tree["constant"]))
        args = [self.build(argument, depth - 1) for argument in tree["args"]]
        made = _make(tree["atom"], args, [_data(item, self.leaves) for item in tree["data"]])
        size = sum(a.size for a in made.args) if isinstance(made, cp.Constraint) else made.size
        if size > MAX_SIZE:
            raise ValueError(f"A part of a formula may have {MAX_SIZE} entries, {tree['atom']} has {size}.")
        return made


def _make(name: str, args: list[Any], data: list[Any]) -> Any:
    if name == "quad_form":
        # The function and not the atom: it reads a constant z as CVXPY would in the user's own formula.
        return cp.quad_form(*args)
    if name not in _classes():
        raise ValueError(f"{name!r} is not on the list of known parts of a formula.")
    made = _classes()[name]
    return made(args) if name == "AddExpression" else made(*args, *data)


@cache
def _classes() -> dict[str, type]:
    """Atoms and constraints by name; those that this version of CVXPY does not have are left out."""
    found = {}
    for package, paths in _ATOMS.items():
        for path in paths.split():
            module, name = path.split(".")
            try:
                found[name] = getattr(import_module(f"{package}.{module}"), name)
            except (ImportError, AttributeError):
                continue
    return found


def _plain_value(value: Any) -> Any:
    """A constant: a number, an array, or the entries of a sparse matrix."""
    if value is None:
        raise NotPortableError("it holds a parameter without a value")
    if sp.issparse(value):
        coo = value.tocoo()
        entries = [np.asarray(part) for part in (coo.row, coo.col, coo.data)]
        return {"sparse": [np.asarray(part, dtype=np.int64) for part in entries[:2]] + [_real(entries[2])],
                "shape": [int(n) for n in value.shape], "format": value.format}  # fmt: skip
    array = _real(np.asarray(value))
    return array.item() if array.ndim == 0 else array


def _real(array: Any) -> Any:
    if array.dtype.kind in "bi":
        return array.astype(np.int64)
    if array.dtype.kind not in "fu":
        raise NotPortableError(f"it holds a constant of type {array.dtype}")
    return array.astype(np.float64)


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    row, column, data = plain["sparse"]
    made = sp.coo_array((data, (row, column)), shape=tuple(plain["shape"]))
    return made.asformat({"csc": "csc", "csr": "csr"}.get(plain["format"], "csc"))


def _plain_data(item: Any) -> Any:
    """What an atom needs beside its arguments: axes, shapes, exponents, indices."""
    if item is None or isinstance(item, (bool, str, int, float)):
        return item
    if isinstance(item, (np.bool_, np.integer, np.floating)):
        return item.item()
    if isinstance(item, slice):
        return {"slice": [_plain_data(part) for part in (item.start, item.stop, item.step)]}
    if isinstance(item, (list, tuple)):
        return {type(item).__name__: [_plain_data(part) for part in item]}
    if isinstance(item, Fraction):
        return {"fraction": [item.numerator, item.denominator]}
    if item is Ellipsis:
        return {"ellipsis": True}
    if isinstance(item, np.ndarray):
        return {"array": _real(item), "is_mask": item.dtype.kind == "b"}
    if isinstance(item, cp.Expression):
        return {"expression": to_tree(item, {})}
    raise NotPortableError(f"it holds a {type(item).__name__}")


def _data(plain: Any, leaves: Mapping[str, Any]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, content), *more) = plain.items()
    if kind == "slice":
        return slice(*[_data(part, leaves) for part in content])
    if kind in ("list", "tuple"):
        parts = [_data(part, leaves) for part in content]
        return parts if kind == "list" else tuple(parts)
    if kind == "fraction":
        return Fraction(*content)
    if kind == "array":
        return content.astype(bool) if more[0][1] else content
    if kind == "expression":
        return from_tree(content, {})
    if kind == "ellipsis":
        return Ellipsis
    raise ValueError(f"{kind!r} is not a known kind of setting in a formula.")
