"""From a CVXPY expression in (z, u) to g_0(z) + sums of maxima of biaffine functions.

The expression's structure is read, not samples of it: subexpressions free of u that are not affine in z, and maxima,
absolute values and norms that contain u, are replaced by fresh variables. The rest must be affine in these and biaffine
in (z, u); its coefficients are exact. Parameters in which a formula is affine are read as further coordinates of u.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.cvxcore.python import canonInterface
from cvxpy.lin_ops import lin_op

from polyhedge._support.validation import Array, Indices
from polyhedge.problems.formula import substitute
from polyhedge.problems.pieces import SumOfMaxima, maximum_of
from polyhedge.problems.written import Written

_FAR = 2.0**100
"""Step for slopes: constants then fall below the last digit, and a power of two keeps all digits of the slope. (A step
of 1 would leave 0.1 (u - 1e6) a slope that is wrong by 1e-11.)"""


@dataclass(frozen=True)
class Decomposition:
    """One scalar expression: `decision_part` (CVXPY, in z alone) + `joint_part` (arrays)."""

    decision_part: cp.Expression
    joint_part: SumOfMaxima


class _NotPiecewiseError(Exception):
    """The expression has no finite list of biaffine pieces."""


def decompose(
    expression: cp.Expression,
    z: cp.Variable | Sequence[cp.Variable],
    u: cp.Variable,
    known: Sequence[cp.Parameter] = (),
) -> list[Decomposition] | None:
    """Split every entry of `expression` (row-major); None if it has no biaffine piece list.

    Parameters
    ----------
    expression : CVXPY expression that contains no variables but z and u.
    z, u : the decision (one or several variables) and the outcome as they stand in the expression.
    known : parameters in the expression, to be read as coordinates behind those of u. The decision parts keep them
        wherever they do not stand in a biaffine term.
    """
    variables = [z] if isinstance(z, cp.Variable) else list(z)
    try:
        return _Walk(variables, u, known).split(expression)
    except _NotPiecewiseError:
        return None


def inequality_rows(constraint: cp.Constraint, written: Written) -> list[Decomposition]:
    """An uncertain constraint as expressions, each split, that must be <= 0."""
    if not isinstance(constraint, cp.constraints.Inequality):
        raise ValueError(
            f"The uncertain constraint {constraint} is a {type(constraint).__name__}; only inequalities "
            "can hold for all outcomes of a set. Write equalities with u as two inequalities with slack."
        )
    rows = decompose(constraint.expr, written.variables, written.outcome)
    if rows is None or any(not row.decision_part.is_convex() for row in rows):
        raise ValueError(
            f"The uncertain constraint {constraint} must be affine in the outcome (or a maximum of affine "
            "functions) and convex in the decision. Split it into such inequalities."
        )
    return rows


def support_rows(written: Written) -> tuple[Array, Array]:
    """A, h of the known support {u : A u <= h}; no rows if nothing is known."""
    parts, u = [np.zeros((0, 1 + written.outcome.size))], written.outcome
    for constraint in written.support:
        is_equality = isinstance(constraint, cp.constraints.Equality)
        is_linear = is_equality or isinstance(constraint, cp.constraints.Inequality)
        if not is_linear or not constraint.expr.is_affine():
            raise ValueError(
                f"outcome_support must give linear constraints on u, got {constraint}. "
                "Write it with <=, >= or == and affine expressions of u."
            )
        own = _at_zero([u])
        rows = _affine_map(substitute(cp.reshape(constraint.expr, (constraint.expr.size,), order="C"), own), own)
        parts += [rows, -rows] if is_equality else [rows]
    coefficients = np.vstack(parts)
    return np.ascontiguousarray(coefficients[:, 1:]), -coefficients[:, 0]


class _Walk:
    def __init__(self, z: Sequence[cp.Variable], u: cp.Variable, known: Sequence[cp.Parameter]) -> None:
        self.z, self.u = list(z), u
        # Products of two of them, or of one with the outcome, must be seen as such.
        signs = [{"nonneg": bool(p.is_nonneg()), "nonpos": bool(p.is_nonpos())} for p in known]
        self.known = [cp.Variable(p.shape, **sign) for p, sign in zip(known, signs, strict=True)]
        self.as_variables = {p.id: v for p, v in zip(known, self.known, strict=True)}
        self.as_parameters = {v.id: p for p, v in zip(known, self.known, strict=True)}

    def split(self, expression: cp.Expression) -> list[Decomposition]:
        if self.known:
            expression = substitute(expression, self.as_variables)
        cut = _Cut(self)
        skeleton = cp.reshape(cut.skeleton(expression), (expression.size,), order="C")
        base, maxima_weights, decision_weights = self._coefficients(skeleton, cut)
        functions = [f for atom in cut.maxima for f in self._pieces_of(atom)]
        decision_terms = [substitute(term, self.as_parameters) if self.known else term for term in cut.decision_terms]
        return [
            Decomposition(
                decision_part=_weighted_sum(decision_weights[row], decision_terms),
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
        p = sum(v.size for v in self.z)
        variables = [*self.z, *cut.maxima_variables, *cut.decision_variables]
        n_maxima = sum(v.size for v in cut.maxima_variables)
        stacked = self._affine(skeleton, variables) if skeleton.is_affine() else self._biaffine(skeleton, variables)
        if stacked[:, 1 + p :, 1:].any():
            raise _NotPiecewiseError
        weights = stacked[:, 1 + p :, 0]
        return stacked[:, : 1 + p], weights[:, :n_maxima], weights[:, n_maxima:]

    def _affine(self, skeleton: cp.Expression, variables: Sequence[cp.Variable]) -> Array:
        """Coefficients (rows, 1 + variables, 1 + d) where no variable is multiplied with an outcome: read at once."""
        own = _at_zero([*variables, self.u, *self.known])
        rows, n = _affine_map(substitute(skeleton, own), own), 1 + sum(v.size for v in variables)
        stacked = np.zeros((len(rows), n, 1 + rows.shape[1] - n))
        stacked[:, :, 0], stacked[:, 0, 1:] = rows[:, :n], rows[:, n:]
        return stacked

    def _biaffine(self, skeleton: cp.Expression, variables: Sequence[cp.Variable]) -> Array:
        """The same where some are: read at one outcome after the other."""
        # Products of outcomes would be affine in z at every fixed outcome, so both sides are asked.
        if not substitute(skeleton, {v.id: cp.Parameter(v.shape) for v in variables}).is_affine():
            raise _NotPiecewiseError
        own = _at_zero(variables)
        skeleton, at_unit = substitute(skeleton, own), []
        for unit in _units([self.u, *self.known]):
            affine = substitute(skeleton, unit)
            if not affine.is_affine():
                raise _NotPiecewiseError
            at_unit.append(_affine_map(affine, own))
        stacked = np.stack(at_unit, axis=-1)
        stacked[..., 1:] = (stacked[..., 1:] - stacked[..., :1]) / _FAR
        return stacked

    def _pieces_of(self, atom: cp.Expression) -> list[SumOfMaxima]:
        """The entries of a maximum-like atom (row-major) as sums of maxima."""
        return _entries_of_maximum(atom, [self._joint_entries(argument) for argument in atom.args])

    def _joint_entries(self, expression: cp.Expression) -> list[SumOfMaxima]:
        entries = self.split(expression)
        if any(not entry.decision_part.is_affine() for entry in entries):
            raise _NotPiecewiseError
        return [entry.joint_part for entry in entries]


def _units(variables: Sequence[cp.Variable]) -> Iterator[dict[int, cp.Expression]]:
    """All variables at zero, then one entry after the other far out."""
    zeros = {v.id: cp.Constant(np.zeros(v.shape)) for v in variables}
    yield zeros
    for v in variables:
        for index in np.ndindex(*v.shape):
            unit = np.zeros(v.shape)
            unit[index] = _FAR
            yield zeros | {v.id: cp.Constant(unit)}


class _Cut:
    """Replace what is not affine by fresh variables and remember what they stand for."""

    def __init__(self, walk: _Walk) -> None:
        self.z, self.u, self.known = walk.z, walk.u, walk.known
        self.maxima: list[cp.Expression] = []
        self.maxima_variables: list[cp.Variable] = []
        self.decision_terms: list[cp.Expression] = []
        self.decision_variables: list[cp.Variable] = []

    def skeleton(self, node: cp.Expression) -> cp.Expression:
        if not node.args or node.is_constant():
            return node
        if self.u.id not in {v.id for v in node.variables()}:
            is_kept = node.is_affine() or (self.known and self._is_biaffine(node))
            return node if is_kept else self._stand_in(node, self.decision_terms, self.decision_variables)
        if type(node) in _MAXIMA:
            return self._stand_in(node, self.maxima, self.maxima_variables)
        if type(node) in (cp.minimum, cp.min):
            return -self._stand_in(_negated_minimum(node), self.maxima, self.maxima_variables)
        if not isinstance(node, AffAtom):
            raise _NotPiecewiseError
        return node.copy([self.skeleton(argument) for argument in node.args])

    def _is_biaffine(self, node: cp.Expression) -> bool:
        """Whether it is affine in z at fixed parameters and in these at fixed z."""
        return all(
            substitute(node, {v.id: cp.Parameter(v.shape) for v in side}).is_affine() for side in (self.known, self.z)
        )

    def _stand_in(self, node: cp.Expression, terms: list[cp.Expression], variables: list[cp.Variable]) -> cp.Expression:
        variable = cp.Variable(node.shape)
        terms.append(node)
        variables.append(variable)
        return variable


def _negated_minimum(node: cp.Expression) -> cp.Expression:
    if isinstance(node, cp.minimum):
        return cp.maximum(*[-argument for argument in node.args])
    return cp.max(-node.args[0], axis=node.axis, keepdims=node.keepdims)


def _at_zero(variables: Sequence[cp.Variable]) -> dict[int, cp.Variable]:
    """Variables to take the place of these: CVXPY reads a gradient at values, and the user's are not ours to change."""
    return {v.id: cp.Variable(v.shape, value=np.zeros(v.shape)) for v in variables}


def _affine_map(expression: cp.Expression, variables: Mapping[int, cp.Variable]) -> Array:
    """Rows [constant, coefficients...] of an affine vector expression; variables, all at 0, in row-major order."""
    constant = np.asarray(expression.value, dtype=float).reshape(-1, 1)
    slopes = _compiled_slopes(expression, list(variables.values()))
    if slopes is None or not np.isfinite(slopes).all():
        slopes = np.hstack([_value_slopes(expression, variable) for variable in variables.values()])
    rows = np.hstack([constant, slopes])
    if not np.isfinite(rows).all():
        raise ValueError(f"The coefficients of {expression} must be finite numbers, and some are not. Correct them.")
    return rows


def _compiled_slopes(expression: cp.Expression, variables: Sequence[cp.Variable]) -> Array | None:
    """Coefficients (rows, entries of all variables, row-major) from CVXPY's compiler; None if it cannot read them."""
    if not _is_for_compiler(expression):
        return None
    starts = np.cumsum([0, *(variable.size for variable in variables)])
    columns = {variable.id: int(start) for variable, start in zip(variables, starts[:-1], strict=True)}
    n, only = int(starts[-1]), lin_op.CONSTANT_ID
    try:
        form, constraints = expression.canonical_form
        matrix = canonInterface.get_problem_matrix([form], n, columns, {only: 1}, {only: 0}, expression.size, "CPP")
    except (NotImplementedError, ValueError, TypeError):  # an atom that is affine here and not always
        return None
    if constraints:
        return None
    dense = np.asarray(matrix.reshape((n + 1, expression.size)).toarray())[:-1]
    order = np.concatenate([start + _row_major(v.shape) for start, v in zip(starts[:-1], variables, strict=True)])
    return np.ascontiguousarray(dense[order].T)


def _is_for_compiler(node: cp.Expression) -> bool:
    """Whether CVXPY's compiled code knows all parts."""
    if not node.args or node.is_constant():
        return node.ndim <= 2
    is_known = isinstance(node, AffAtom) and node.ndim <= 2 and getattr(node, "_supports_cpp", lambda: True)()
    return is_known and all(_is_for_compiler(argument) for argument in node.args)


def _value_slopes(expression: cp.Expression, variable: cp.Variable) -> Array:
    """The coefficients (rows, size) of one variable of an affine expression, from its values far out."""
    slopes = np.zeros((expression.size, variable.size))
    if variable.id in {v.id for v in expression.variables()}:
        at_zero = np.asarray(expression.value, dtype=float).ravel()
        for k in range(variable.size):
            unit = np.zeros(variable.size)
            unit[k] = _FAR
            variable.value = unit.reshape(variable.shape)
            slopes[:, k] = (np.asarray(expression.value, dtype=float).ravel() - at_zero) / _FAR
        variable.value = np.zeros(variable.shape)
    return slopes


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


_MAXIMA = (cp.maximum, cp.max, cp.abs, cp.norm1, cp.norm_inf)


def _maximum(functions: Sequence[SumOfMaxima]) -> SumOfMaxima:
    found = maximum_of(functions)
    if found is None:
        raise _NotPiecewiseError
    return found


def _both_signs(entry: SumOfMaxima) -> list[SumOfMaxima]:
    if entry.groups:
        raise _NotPiecewiseError
    return [entry, entry.scaled(-1.0)]


def _entries_of_maximum(atom: cp.Expression, arguments: list[list[SumOfMaxima]]) -> list[SumOfMaxima]:
    """The entries (row-major) of one of `_MAXIMA` from those of its arguments."""
    if isinstance(atom, cp.maximum):
        positions = [
            np.broadcast_to(np.arange(len(entries)).reshape(argument.shape), atom.shape).ravel()
            for entries, argument in zip(arguments, atom.args, strict=True)
        ]
        rows = zip(*positions, strict=True)
        return [_maximum([entries[i] for entries, i in zip(arguments, row, strict=True)]) for row in rows]
    entries = arguments[0]
    if isinstance(atom, cp.abs):
        return [_maximum(_both_signs(entry)) for entry in entries]
    places = np.arange(len(entries)).reshape(atom.args[0].shape)
    is_along_axis = atom.axis is not None and places.ndim > 1
    places = np.moveaxis(places, atom.axis, -1) if is_along_axis else places.reshape(1, -1)
    runs = [[entries[i] for i in row] for row in places.reshape(-1, places.shape[-1])]
    if isinstance(atom, cp.max):
        return [_maximum(run) for run in runs]
    if isinstance(atom, cp.norm_inf):
        return [_maximum([signed for entry in run for signed in _both_signs(entry)]) for run in runs]
    zero = SumOfMaxima(np.zeros_like(entries[0].base))
    return [reduce(SumOfMaxima.plus, (_maximum(_both_signs(entry)) for entry in run), zero) for run in runs]
