"""From a CVXPY expression in (z, u) to g_0(z) + sums of maxima of biaffine functions.

The walk looks at structure, not at samples: subexpressions free of u that are not affine in z, and
maxima, absolute values and norms that contain u, are cut out and replaced by fresh variables. What
remains must be affine in these and biaffine in (z, u); its coefficients are read off exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom

from polyhedge._validation import Array, Indices
from polyhedge.problems.pieces import SumOfMaxima, maximum_of


@dataclass(frozen=True)
class Decomposition:
    """One scalar expression: `decision_part` (CVXPY, in z alone) + `joint_part` (arrays)."""

    decision_part: cp.Expression
    joint_part: SumOfMaxima


class _NotPiecewiseError(Exception):
    """The expression has no finite list of biaffine pieces."""


def decompose(expression: cp.Expression, z: cp.Variable, u: cp.Variable) -> list[Decomposition] | None:
    """Split every entry of `expression` (row-major); None where it has no biaffine piece list.

    Parameters
    ----------
    expression : CVXPY expression that contains no variables but z and u.
    z, u : the decision and the outcome as they stand in the expression.
    """
    try:
        return _Walk(z, u).split(expression)
    except _NotPiecewiseError:
        return None


def affine_rows(constraint: cp.Constraint, u: cp.Variable) -> Array | None:
    """Rows [constant, coefficients] of the affine expressions of u that a linear constraint bounds by 0."""
    if not isinstance(constraint, (cp.constraints.Inequality, cp.constraints.Equality)):
        return None
    if not constraint.expr.is_affine():
        return None
    rows = _affine_map(cp.reshape(constraint.expr, (constraint.expr.size,), order="C"), [u])
    return np.concatenate([rows, -rows]) if isinstance(constraint, cp.constraints.Equality) else rows


class _Walk:
    def __init__(self, z: cp.Variable, u: cp.Variable) -> None:
        self.z, self.u = z, u

    def split(self, expression: cp.Expression) -> list[Decomposition]:
        cut = _Cut(self)
        skeleton = cp.reshape(cut.skeleton(expression), (expression.size,), order="C")
        base, maxima_weights, decision_weights = self._coefficients(skeleton, cut)
        functions = [f for atom in cut.maxima for f in self._pieces_of(atom)]
        return [
            Decomposition(
                decision_part=_weighted_sum(decision_weights[row], cut.decision_terms),
                joint_part=self._combine(base[row], maxima_weights[row], functions),
            )
            for row in range(expression.size)
        ]

    def _combine(self, base: Array, weights: Array, functions: Sequence[SumOfMaxima]) -> SumOfMaxima:
        total = SumOfMaxima(base)
        for weight, function in zip(weights, functions, strict=True):
            if weight < 0 and function.groups:
                raise _NotPiecewiseError
            total = total.plus(function.scaled(float(weight)))
        return total

    def _coefficients(self, skeleton: cp.Expression, cut: _Cut) -> tuple[Array, Array, Array]:
        """Read base (rows, 1+p, 1+d) and the constant weights of the two kinds of cut-out parts."""
        p, d = self.z.size, self.u.size
        variables = [self.z, *cut.maxima_variables, *cut.decision_variables]
        # Products of outcomes would be affine in z at every fixed outcome, so both sides are asked.
        if not substitute(skeleton, {v.id: cp.Parameter(v.shape) for v in variables}).is_affine():
            raise _NotPiecewiseError
        at_unit = []
        for unit in [np.zeros(d), *np.eye(d)]:
            affine = substitute(skeleton, {self.u.id: cp.Constant(unit.reshape(self.u.shape))})
            if not affine.is_affine():
                raise _NotPiecewiseError
            at_unit.append(_affine_map(affine, variables))
        stacked = np.stack(at_unit, axis=-1)
        stacked[..., 1:] -= stacked[..., :1]
        if np.abs(stacked[:, 1 + p :, 1:]).max(initial=0.0) > 1e-12:
            raise _NotPiecewiseError
        n_maxima = sum(v.size for v in cut.maxima_variables)
        weights = stacked[:, 1 + p :, 0]
        return stacked[:, : 1 + p], weights[:, :n_maxima], weights[:, n_maxima:]

    def _pieces_of(self, atom: cp.Expression) -> list[SumOfMaxima]:
        """The entries of a maximum-like atom (row-major) as sums of maxima."""
        arguments = [self._joint_entries(argument) for argument in atom.args]
        shapes = [argument.shape for argument in atom.args]
        return _MAXIMA[type(atom)](atom, arguments, shapes)

    def _joint_entries(self, expression: cp.Expression) -> list[SumOfMaxima]:
        entries = self.split(expression)
        if any(not entry.decision_part.is_affine() for entry in entries):
            raise _NotPiecewiseError
        return [entry.joint_part for entry in entries]


class _Cut:
    """Replace what is not affine by fresh variables and remember what they stand for."""

    def __init__(self, walk: _Walk) -> None:
        self.z, self.u = walk.z, walk.u
        self.maxima: list[cp.Expression] = []
        self.maxima_variables: list[cp.Variable] = []
        self.decision_terms: list[cp.Expression] = []
        self.decision_variables: list[cp.Variable] = []

    def skeleton(self, node: cp.Expression) -> cp.Expression:
        if not node.args or node.is_constant():
            return node
        if self.u.id not in {v.id for v in node.variables()}:
            return node if node.is_affine() else self._stand_in(node, self.decision_terms, self.decision_variables)
        if type(node) in _MAXIMA:
            return self._stand_in(node, self.maxima, self.maxima_variables)
        if type(node) in (cp.minimum, cp.min):
            return -self._stand_in(_negated_minimum(node), self.maxima, self.maxima_variables)
        if not isinstance(node, AffAtom):
            raise _NotPiecewiseError
        return node.copy([self.skeleton(argument) for argument in node.args])

    def _stand_in(self, node: cp.Expression, terms: list[cp.Expression], variables: list[cp.Variable]) -> cp.Expression:
        variable = cp.Variable(node.shape)
        terms.append(node)
        variables.append(variable)
        return variable


def _negated_minimum(node: cp.Expression) -> cp.Expression:
    if isinstance(node, cp.minimum):
        return cp.maximum(*[-argument for argument in node.args])
    return cp.max(-node.args[0], axis=node.axis, keepdims=node.keepdims)


def substitute(node: cp.Expression, values: dict[int, cp.Expression]) -> cp.Expression:
    """The expression with leaves replaced, by their id."""
    if not node.args:
        return values.get(getattr(node, "id", -1), node)
    return node.copy([substitute(argument, values) for argument in node.args])


def _affine_map(expression: cp.Expression, variables: Sequence[cp.Variable]) -> Array:
    """Rows [constant, coefficients...] of an affine vector expression; variables in row-major order."""
    # CVXPY reads a gradient at the values of variables: those of the user's own are not ours to change.
    own = {variable.id: cp.Variable(variable.shape, value=np.zeros(variable.shape)) for variable in variables}
    expression = substitute(expression, dict(own))
    constant = np.asarray(expression.value, dtype=float).reshape(-1, 1)
    gradient = expression.grad
    columns = [constant]
    for variable in own.values():
        jacobian = gradient.get(variable)
        if jacobian is None:
            columns.append(np.zeros((len(constant), variable.size)))
            continue
        dense = jacobian.toarray() if hasattr(jacobian, "toarray") else np.atleast_2d(np.asarray(jacobian))
        dense = dense.reshape(variable.size, len(constant))
        columns.append(dense[_row_major(variable.shape)].T)
    return np.concatenate(columns, axis=1)


def _row_major(shape: tuple[int, ...]) -> Indices:
    """Positions, in CVXPY's column-major vectorisation, of the entries in row-major order."""
    size = int(np.prod(shape)) if shape else 1
    return np.arange(size).reshape(shape, order="F").ravel(order="C")


def _weighted_sum(weights: Array, terms: Sequence[cp.Expression]) -> cp.Expression:
    total, start = cp.Constant(0.0), 0
    for term in terms:
        w = weights[start : start + term.size]
        start += term.size
        if w.any():
            total = total + w @ cp.reshape(term, (term.size,), order="C")
    return total


# How each maximum-like atom of CVXPY reads: (atom, entries of its arguments, their shapes) -> its entries.


def _at_most_one_group(function: SumOfMaxima | None) -> SumOfMaxima:
    if function is None:
        raise _NotPiecewiseError
    return function


def _both_signs(entry: SumOfMaxima) -> list[SumOfMaxima]:
    if entry.groups:
        raise _NotPiecewiseError
    return [entry, entry.scaled(-1.0)]


def _along_axis(atom: cp.Expression, entries: list[SumOfMaxima], shape: tuple[int, ...]) -> list[list[SumOfMaxima]]:
    """The lists of entries that each entry of a reduction runs over."""
    positions = np.arange(len(entries)).reshape(shape)
    if atom.axis is None or positions.ndim <= 1:
        return [[entries[i] for i in positions.ravel()]]
    moved = np.moveaxis(positions, atom.axis, -1)
    return [[entries[i] for i in row] for row in moved.reshape(-1, moved.shape[-1])]


def _read_maximum(
    atom: cp.Expression, arguments: list[list[SumOfMaxima]], shapes: list[tuple[int, ...]]
) -> list[SumOfMaxima]:
    positions = [
        np.broadcast_to(np.arange(len(entries)).reshape(shape), atom.shape).ravel()
        for entries, shape in zip(arguments, shapes, strict=True)
    ]
    return [
        _at_most_one_group(maximum_of([entries[i] for entries, i in zip(arguments, row, strict=True)]))
        for row in zip(*positions, strict=True)
    ]


def _read_max(
    atom: cp.Expression, arguments: list[list[SumOfMaxima]], shapes: list[tuple[int, ...]]
) -> list[SumOfMaxima]:
    return [_at_most_one_group(maximum_of(run)) for run in _along_axis(atom, arguments[0], shapes[0])]


def _read_abs(
    atom: cp.Expression, arguments: list[list[SumOfMaxima]], shapes: list[tuple[int, ...]]
) -> list[SumOfMaxima]:
    return [_at_most_one_group(maximum_of(_both_signs(entry))) for entry in arguments[0]]


def _read_norm1(
    atom: cp.Expression, arguments: list[list[SumOfMaxima]], shapes: list[tuple[int, ...]]
) -> list[SumOfMaxima]:
    totals = []
    for run in _along_axis(atom, arguments[0], shapes[0]):
        total = SumOfMaxima(np.zeros_like(run[0].base))
        for entry in run:
            total = total.plus(_at_most_one_group(maximum_of(_both_signs(entry))))
        totals.append(total)
    return totals


def _read_norm_inf(
    atom: cp.Expression, arguments: list[list[SumOfMaxima]], shapes: list[tuple[int, ...]]
) -> list[SumOfMaxima]:
    return [
        _at_most_one_group(maximum_of([signed for entry in run for signed in _both_signs(entry)]))
        for run in _along_axis(atom, arguments[0], shapes[0])
    ]


_Reader = Callable[[cp.Expression, list[list[SumOfMaxima]], list[tuple[int, ...]]], list[SumOfMaxima]]
_MAXIMA: dict[type, _Reader] = {
    cp.maximum: _read_maximum,
    cp.max: _read_max,
    cp.abs: _read_abs,
    cp.norm1: _read_norm1,
    cp.norm_inf: _read_norm_inf,
}
