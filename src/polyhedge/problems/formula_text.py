"""A formula as a reader writes it; CVXPY's own text leaves brackets out and shows what it puts around numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np

__all__ = ["constraint_text", "expression_text"]

_ENTRIES = 6
"""Numbers of a vector or a matrix beyond which only its size is told."""
# How tightly a text holds together: what is looser than its place asks for gets brackets.
_SUM, _PRODUCT, _WHOLE = range(3)
_CALLED = {
    "PnormApprox": "norm",
    "Pnorm": "norm",
    "PowerApprox": "power",
    "QuadForm": "quad_form",
    "quad_over_lin": "sum_squares",
}
"""Names of atoms in CVXPY's tree that are not those of the functions which a user calls."""


def expression_text(node: cp.Expression, names: Mapping[str, str] | None = None) -> str:
    """The text of an expression; `names` call entries such as `z[0]` otherwise.

    Examples
    --------
    >>> z, u = cp.Variable(2, name="z"), cp.Variable(2, name="u")
    >>> expression_text(cp.sum(cp.pos(z - 2 * u)) - (z[0] - (u[0] + 1)))
    'sum(maximum(z - 2 * u, 0)) - (z[0] - (u[0] + 1))'
    >>> expression_text((z + u)[0] * 3 - z[1], {"z[1]": "bread"})
    '(z + u)[0] * 3 - bread'
    """
    return _written(node, names or {})[0]


def constraint_text(constraint: cp.Constraint, names: Mapping[str, str] | None = None) -> str:
    """The text of a constraint; a side that is one number in every row is that number.

    Examples
    --------
    >>> z = cp.Variable(3, name="z")
    >>> print(constraint_text(z >= np.zeros(3)), constraint_text(cp.sum(z) == 4), sep="; ")
    0 <= z; sum(z) == 4
    """
    if len(constraint.args) == 2 and isinstance(constraint, (cp.constraints.Inequality, cp.constraints.Equality)):
        sign = "<=" if isinstance(constraint, cp.constraints.Inequality) else "=="
        left, right = (_side(argument, names or {}) for argument in constraint.args)
        return f"{left} {sign} {right}"
    parts = ", ".join(_written(argument, names or {})[0] for argument in constraint.args)
    return f"{type(constraint).__name__}({parts})"


def _side(node: cp.Expression, names: Mapping[str, str]) -> str:
    if isinstance(node, cp.Constant) and node.size and (value := _dense(node)).min() == value.max():
        return _number(value.flat[0])
    return _written(node, names)[0]


def _written(node: cp.Expression, names: Mapping[str, str]) -> tuple[str, int]:
    """A text, and how tightly it holds together."""
    kind = type(node).__name__
    if not node.args:
        return _leaf(node, names)
    if kind in ("Promote", "broadcast_to"):
        return _written(node.args[0], names)
    if kind == "AddExpression":
        return _sum([_term(argument, names) for argument in node.args]), _SUM
    if kind == "NegExpression":
        return f"-{_within(node.args[0], names, _PRODUCT)}", _SUM
    if kind in ("MulExpression", "multiply", "DivExpression"):
        return _product(node, kind, names)
    if kind in ("index", "special_index"):
        inner = node.args[0]
        place = node.name()[len(inner.name()) :]
        if kind == "special_index" and inner.ndim == 1:
            place = f"[{place}]"  # entries of a list, which are no row and column
        text = f"{_within(inner, names, _WHOLE)}{place}"
        return names.get(text, text), _WHOLE
    if kind == "transpose":
        return f"{_within(node.args[0], names, _WHOLE)}.T", _WHOLE
    return _call(node, kind, names), _WHOLE


def _leaf(node: Any, names: Mapping[str, str]) -> tuple[str, int]:
    if not isinstance(node, cp.Constant):
        return names.get(node.name(), node.name()), _WHOLE
    value = _dense(node)
    if value.size == 1:
        return _number(value.flat[0]), _WHOLE if value.flat[0] >= 0 else _SUM
    if value.size > _ENTRIES:
        return f"({' x '.join(map(str, value.shape))} numbers)", _WHOLE
    rows = [f"[{', '.join(map(_number, row))}]" for row in np.atleast_2d(value)]
    return (rows[0] if value.ndim == 1 else f"[{', '.join(rows)}]"), _WHOLE


def _term(node: cp.Expression, names: Mapping[str, str]) -> tuple[str, bool]:
    """One term of a sum, and whether it is taken away."""
    if type(node).__name__ == "NegExpression":
        return _within(node.args[0], names, _PRODUCT), True
    # What is added needs no brackets; a minus in front becomes the sign of the term.
    text = _written(node, names)[0]
    return (text[1:], True) if text.startswith("-") else (text, False)


def _sum(terms: list[tuple[str, bool]]) -> str:
    (first, is_negative), *rest = terms
    return f"{'-' if is_negative else ''}{first}" + "".join(f" {'-' if minus else '+'} {text}" for text, minus in rest)


def _product(node: cp.Expression, kind: str, names: Mapping[str, str]) -> tuple[str, int]:
    left, right = node.args
    for factor, other in ((left, right), (right, left)):
        if kind != "DivExpression" and (unit := _unit(factor)):
            return (f"-{_within(other, names, _PRODUCT)}", _SUM) if unit < 0 else _written(other, names)
    is_matrix = kind == "MulExpression" and not (left.is_scalar() or right.is_scalar())
    sign = "/" if kind == "DivExpression" else "@" if is_matrix else "*"
    # a / (b * c) is not a / b * c
    tight = _PRODUCT if sign == "*" else _WHOLE
    return f"{_within(left, names, _PRODUCT)} {sign} {_within(right, names, tight)}", _PRODUCT


def _unit(node: cp.Expression) -> float:
    """1 or -1 where a factor is that number, 0 elsewhere."""
    while type(node).__name__ in ("Promote", "broadcast_to"):
        node = node.args[0]
    value = float(_dense(node).flat[0]) if isinstance(node, cp.Constant) and node.size == 1 else 0.0
    return value if abs(value) == 1.0 and not node.shape else 0.0


def _call(node: Any, kind: str, names: Mapping[str, str]) -> str:
    args = [_written(argument, names)[0] for argument in node.args]
    if kind == "quad_over_lin":
        if args[1] != "1":
            return f"quad_over_lin({', '.join(args)})"
        args = args[:1]
    if kind in ("norm1", "norm_inf"):
        return f"norm({args[0]}, {'1' if kind == 'norm1' else 'inf'})"
    if kind in ("power", "PowerApprox", "Pnorm", "PnormApprox"):
        args.append(_number(getattr(node.p, "value", node.p)))
    if kind in ("sum_largest", "sum_smallest"):
        args.append(_number(node.k))
    if getattr(node, "axis", None) is not None and node.args[0].ndim > 1:
        args.append(f"axis={node.axis}")
    name = _CALLED.get(kind, kind)
    return f"{name[:1].lower()}{name[1:]}({', '.join(args)})"


def _within(node: cp.Expression, names: Mapping[str, str], asked: int) -> str:
    text, held = _written(node, names)
    return text if held >= asked else f"({text})"


def _dense(node: Any) -> Any:
    return np.asarray(node.value.toarray() if hasattr(node.value, "toarray") else node.value, dtype=float)


def _number(value: Any) -> str:
    return f"{float(value) + 0.0:.6g}"
