"""CVXPY expressions as plain data: nested dictionaries of atom names, arrays and numbers, and back.

Reading a tree back builds atoms from a fixed list by name and calls nothing else, so that a tree from an unknown
file can do no more than describe a formula.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.atom import Atom

# Far deeper than anything written by hand, and below Python's own limit of recursion.
MAX_DEPTH = 200
# A second's work; what is larger is written with matrices.
MAX_NODES = 50_000
MAX_SIZE = 1_000_000
"""Entries that one node of a tree may have; larger formulas cannot be solved anyway."""
MAX_TOTAL = 10_000_000
"""Entries that all nodes of a problem may have together."""

_MAX_POWER = 2**32
"""Powers are rounded to fractions with a denominator of at most 1024."""

_PARTS = {
    "affine": (
        "AddExpression Concatenate DivExpression Hstack MulExpression NegExpression Promote Sum Trace Vstack "
        "broadcast_to conj conv convolve cumsum diag_mat diag_vec index kron multiply nonneg_wrap nonpos_wrap nsd_wrap "
        "psd_wrap reshape special_index symmetric_wrap transpose upper_tri"
    ),
    "elementwise": "Power PowerApprox abs entr exp huber kl_div log log1p logistic maximum minimum rel_entr xexp",
    "of several entries": (
        "GeoMean GeoMeanApprox MatrixFrac Pnorm PnormApprox cummax dotsort lambda_max log_det log_sum_exp max min "
        "norm1 normNuc norm_inf quad_over_lin sigma_max sum_largest tr_inv"
    ),
    "constraints": "Equality ExpCone Inequality NonNeg NonPos PSD PowCone3D SOC Zero",
}
_KNOWN = frozenset(name for names in _PARTS.values() for name in names.split())
"""Atoms and constraints as files name them: as CVXPY 1.9 does, wherever it keeps the classes."""

_OLD_NAMES = {
    "Power": "power",
    "PowerApprox": "power",
    "GeoMean": "geo_mean",
    "GeoMeanApprox": "geo_mean",
    "PnormApprox": "Pnorm",
    "Trace": "trace",
}
"""What CVXPY before 1.8 called a part. Where it has one class for two names, it meant the approximation."""


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
    if isinstance(node, (cp.Variable, cp.Parameter)):
        if node.id not in leaves:
            kind = "variable" if isinstance(node, cp.Variable) else "parameter"
            raise NotPortableError(f"it holds the {kind} {node.name()}, which the problem does not know")
        return {"leaf": leaves[node.id]}
    if isinstance(node, cp.Constant):
        return {"constant": _plain_value(node.value)}
    names = ["quad_form"] if type(node) is cp.QuadForm else [n for n, made in _classes().items() if made is type(node)]
    if not names:
        raise NotPortableError(f"it holds {type(node).__name__}, which is not on the list of known parts")
    args, data = _makings(node)
    return {
        "atom": names[-1],  # the last of two is the one with "Approx"
        "args": [to_tree(argument, leaves) for argument in args],
        "data": [_plain_data(item) for item in data],
    }


class FormulaWork:
    """What reading the formulas of one problem may cost: parts and entries, counted as often as they stand there."""

    def __init__(self) -> None:
        self.nodes_left, self.entries_left = MAX_NODES, MAX_TOTAL

    def node(self, depth: int) -> None:
        """Count one part, nested `depth` below the deepest that is allowed."""
        self.nodes_left -= 1
        if depth == 0 or self.nodes_left < 0:
            raise ValueError(f"A formula may have {MAX_NODES} parts, nested {MAX_DEPTH} deep; this one has more.")

    def entries(self, n: float, what: str) -> None:
        """Count the entries of a part, before or as soon as its shape is known."""
        self.entries_left -= int(min(n, MAX_TOTAL + 1))
        if n > MAX_SIZE or self.entries_left < 0:
            raise ValueError(
                f"A part of a formula may have {MAX_SIZE} entries, and all parts {MAX_TOTAL}; {what} has {n:g}."
            )


def from_tree(tree: Any, leaves: Mapping[str, Any], work: FormulaWork | None = None) -> Any:
    """The expression or constraint that a tree describes, with `leaves` for its variables.

    Trees of one problem share their `work`.

    Examples
    --------
    >>> float(from_tree({"atom": "abs", "args": [{"leaf": "z"}], "data": []}, {"z": cp.Constant(-2.0)}).value)
    2.0
    """
    return _Builder(leaves, FormulaWork() if work is None else work).build(tree, MAX_DEPTH)


class _Builder:
    def __init__(self, leaves: Mapping[str, Any], work: FormulaWork) -> None:
        self.leaves, self.work = leaves, work

    def build(self, tree: Any, depth: int) -> Any:
        self.work.node(depth)
        if "leaf" in tree:
            return self.leaves[tree["leaf"]]
        if "constant" in tree:
            return cp.Constant(_value(tree["constant"], self.work))
        args = [self.build(argument, depth - 1) for argument in tree["args"]]
        made = _make(tree["atom"], args, [self.data(item, depth - 1) for item in tree["data"]])
        size = sum(a.size for a in made.args) if isinstance(made, cp.Constraint) else made.size
        self.work.entries(size, str(tree["atom"])[:80])
        return made

    def data(self, plain: Any, depth: int) -> Any:
        """What an atom needs beside its arguments."""
        self.work.node(depth)
        if not isinstance(plain, dict):
            return plain
        ((kind, content), *more) = plain.items()
        if kind == "slice":
            return slice(*[self.data(part, depth - 1) for part in content])
        if kind in ("list", "tuple"):
            parts = [self.data(part, depth - 1) for part in content]
            return parts if kind == "list" else tuple(parts)
        if kind == "fraction":
            return _fraction(*content)
        if kind == "array":
            return content.astype(bool) if more[0][1] else content
        if kind == "expression":
            return _Builder({}, self.work).build(content, depth - 1)
        if kind == "ellipsis":
            return Ellipsis
        raise ValueError(f"{kind!r} is not a known kind of setting in a formula.")


def _make(name: str, args: list[Any], data: list[Any]) -> Any:
    if name == "quad_form":
        # The function and not the atom: it reads a constant z as CVXPY would in the user's own formula.
        return cp.quad_form(*args)
    if name not in _KNOWN:
        raise ValueError(f"{name!r} is not on the list of known parts of a formula.")
    if name not in _classes():
        raise ValueError(
            f"The formula holds {name}, which CVXPY {cp.__version__} does not have. Install a newer CVXPY."
        )
    made = _classes()[name]
    return made(args) if name == "AddExpression" else made(*args, *_accepted(made, name, len(args), data))


def _makings(node: Any) -> tuple[list[Any], list[Any]]:
    """The arguments and settings from which an atom or constraint is made again."""
    if type(node).__name__ == "geo_mean":  # CVXPY before 1.8 says how it computes one, not how to make it
        if len(set(node.w)) == 1:
            return node.args, []
        # With weights, it has picked the entries whose weights are positive.
        (picked,) = node.args
        is_picked = np.asarray(picked.get_data()[0])
        weights = np.zeros(is_picked.shape, dtype=np.int64)
        whole = math.lcm(*(share.denominator for share in node.w))
        weights[is_picked] = [int(share * whole) for share in node.w]
        return picked.args, [weights.tolist()]
    data = node.get_data() or []
    # The last item of a constraint's data is its number in this process, which means nothing elsewhere.
    return node.args, data[:-1] if isinstance(node, cp.Constraint) else data


def _accepted(made: type, name: str, n_args: int, data: list[Any]) -> list[Any]:
    """Settings without those at the end that an older CVXPY lacks, which must say nothing there."""
    parameters = inspect.signature(made).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return data
    room = max(len(parameters) - n_args, 0)
    if any(item is not None and item is not False for item in data[room:]):
        raise ValueError(f"{name} has settings that CVXPY {cp.__version__} does not know. Install a newer CVXPY.")
    return data[:room]


@cache
def _classes() -> dict[str, type]:
    """Atoms and constraints by their name in files; those that this version of CVXPY does not have are left out."""
    # CVXPY moves classes between modules more often than it renames them.
    here = {made.__name__: made for made in (*_below(Atom), *_below(cp.Constraint))}
    known = {name: here.get(name, here.get(_OLD_NAMES.get(name, ""))) for name in sorted(_KNOWN)}
    return {name: made for name, made in known.items() if made is not None}


def _below(base: Any) -> Iterator[type]:
    """CVXPY's own subclasses at any depth; a user's are not on the list, whatever their names."""
    for made in base.__subclasses__():
        if made.__module__.startswith("cvxpy."):
            yield made
            yield from _below(made)


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


def _value(plain: Any, work: FormulaWork) -> Any:
    if not isinstance(plain, dict):
        if not isinstance(plain, (int, float, np.ndarray)) or not np.isfinite(plain).all():
            raise ValueError("A constant of a formula must be a finite number or an array.")
        work.entries(np.size(plain), "a constant")
        return plain
    row, column, data = plain["sparse"]
    shape = tuple(plain["shape"])
    if len(shape) != 2 or any(type(n) is not int or n < 1 for n in shape):
        raise ValueError(f"A sparse constant must have two axes, got the shape {str(shape)[:80]}.")
    # Before it is built: a matrix without entries takes the memory of its rows or columns.
    work.entries(float(shape[0]) * shape[1], "a sparse constant")
    positions = ((row, shape[0]), (column, shape[1]))
    if any(p.dtype.kind != "i" or p.shape != data.shape or ((p < 0) | (p >= n)).any() for p, n in positions):
        raise ValueError("A sparse constant has entries outside of it.")
    made = sp.coo_array((data, (row, column)), shape=shape)
    return made.asformat({"csc": "csc", "csr": "csr"}.get(plain["format"], "csc"))


def _fraction(numerator: Any, denominator: Any) -> Fraction:
    if any(type(n) is not int or abs(n) > _MAX_POWER for n in (numerator, denominator)):
        raise ValueError("An exponent must be a fraction of two numbers of moderate size.")
    return Fraction(numerator, denominator)


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
