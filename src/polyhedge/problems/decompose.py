"""From a CVXPY expression in (z, u) to g_0(z) + sums of maxima of biaffine functions.

The expression's structure is read, not samples of it: subexpressions free of u that are not affine in z, and maxima,
absolute values and norms that contain u, are replaced by fresh variables. The rest must be affine in these and biaffine
in (z, u); its coefficients are exact. Parameters in which a formula is affine are read as further coordinates of u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.cvxcore.python import canonInterface
from cvxpy.lin_ops import lin_op

from polyhedge._support.validation import Array
from polyhedge.problems.formula import substitute, unit_values
from polyhedge.problems.pieces import SumOfMaxima, maximum_of

if TYPE_CHECKING:
    from polyhedge.problems.written import Written

_FAR = 2.0**100
"""Step for slopes: constants then fall below the last digit, and a power of two keeps all digits of the slope. (A step
of 1 would leave 0.1 (u - 1e6) a slope that is wrong by 1e-11.)"""
_MAXIMA = (cp.maximum, cp.max, cp.abs, cp.norm1, cp.norm_inf)


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

    It contains no variables but the decision z and the outcome u. Parameters that are `known` are read as coordinates
    behind those of u; decision parts keep them wherever they do not stand in a biaffine term.
    """
    try:
        return _Splitter([z] if isinstance(z, cp.Variable) else z, u, known).split(expression)
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
    parts, own = [np.zeros((0, 1 + written.outcome.size))], _at_zero([written.outcome])
    for constraint in written.support:
        is_equality = isinstance(constraint, cp.constraints.Equality)
        is_linear = is_equality or isinstance(constraint, cp.constraints.Inequality)
        if not is_linear or not constraint.expr.is_affine():
            raise ValueError(
                f"outcome_support must give linear constraints on u, got {constraint}. "
                "Write it with <=, >= or == and affine expressions of u."
            )
        rows = _affine_map(substitute(_flat(constraint.expr), own), own)
        parts += [rows, -rows] if is_equality else [rows]
    coefficients = np.vstack(parts)
    return np.ascontiguousarray(coefficients[:, 1:]), -coefficients[:, 0]


class _Splitter:
    def __init__(self, z: Sequence[cp.Variable], u: cp.Variable, known: Sequence[cp.Parameter]) -> None:
        self.z, self.u = list(z), u
        # Variables, so that products of two parameters, or of one with the outcome, are seen as such.
        self.known = [cp.Variable(p.shape, nonneg=bool(p.is_nonneg()), nonpos=bool(p.is_nonpos())) for p in known]
        self.as_variables = {p.id: v for p, v in zip(known, self.known, strict=True)}
        self.as_parameters = {v.id: p for p, v in zip(known, self.known, strict=True)}

    def split(self, expression: cp.Expression) -> list[Decomposition]:
        maxima: list[tuple[cp.Variable, cp.Expression]] = []
        terms: list[tuple[cp.Variable, cp.Expression]] = []
        skeleton = self._skeleton(substitute(expression, self.as_variables), maxima, terms)
        stacked = self._coefficients(_flat(skeleton), [*self.z, *(v for v, _ in (*maxima, *terms))])
        first = 1 + sum(v.size for v in self.z)
        if stacked[:, first:, 1:].any():
            raise _NotPiecewiseError
        functions = [function for _, atom in maxima for function in self._entries_of_maximum(atom)]
        decision_terms = [_flat(substitute(term, self.as_parameters)) for _, term in terms]
        ends = np.cumsum([first + len(functions), *(term.size for term in decision_terms)])
        rows = []
        for coefficients in stacked:
            joint, alone, weights = SumOfMaxima(coefficients[:first]), cp.Constant(0.0), coefficients[:, 0]
            for weight, function in zip(weights[first : ends[0]], functions, strict=True):
                if weight < 0 and function.groups:
                    raise _NotPiecewiseError
                joint = joint.plus(function.scaled(float(weight)))
            for start, stop, term in zip(ends[:-1], ends[1:], decision_terms, strict=True):
                if weights[start:stop].any():
                    alone = alone + weights[start:stop] @ term
            rows.append(Decomposition(alone, joint))
        return rows

    def _skeleton(self, node: cp.Expression, maxima: list, terms: list) -> cp.Expression:  # type: ignore[type-arg]
        """The expression with fresh variables for what is not affine; they are listed with what they stand for."""
        if not node.args or node.is_constant():
            return node
        if self.u.id not in {v.id for v in node.variables()}:
            sides = (self.known, self.z)
            is_kept = node.is_affine() or (
                self.known
                and all(substitute(node, {v.id: cp.Parameter(v.shape) for v in side}).is_affine() for side in sides)
            )
            return node if is_kept else _stand_in(node, terms)
        if type(node) in _MAXIMA:
            return _stand_in(node, maxima)
        if type(node) is cp.minimum:
            return -_stand_in(cp.maximum(*[-argument for argument in node.args]), maxima)
        if type(node) is cp.min:
            return -_stand_in(cp.max(-node.args[0], axis=node.axis, keepdims=node.keepdims), maxima)
        if not isinstance(node, AffAtom):
            raise _NotPiecewiseError
        return node.copy([self._skeleton(argument, maxima, terms) for argument in node.args])

    def _coefficients(self, skeleton: cp.Expression, variables: Sequence[cp.Variable]) -> Array:
        """Coefficients (rows, 1 + entries of the variables, 1 + outcomes) of a biaffine vector expression."""
        outcomes = [self.u, *self.known]
        if skeleton.is_affine():  # nothing is multiplied with an outcome: read at once, not outcome by outcome
            own = _at_zero([*variables, *outcomes])
            rows, n = _affine_map(substitute(skeleton, own), own), 1 + sum(v.size for v in variables)
            stacked = np.zeros((len(rows), n, 1 + rows.shape[1] - n))
            stacked[:, :, 0], stacked[:, 0, 1:] = rows[:, :n], rows[:, n:]
            return stacked
        # Products of outcomes would be affine in z at every fixed outcome, so both sides are asked.
        if not substitute(skeleton, {v.id: cp.Parameter(v.shape) for v in variables}).is_affine():
            raise _NotPiecewiseError
        own = _at_zero(variables)
        skeleton, at_unit = substitute(skeleton, own), []
        for values in unit_values(outcomes, _FAR):
            affine = substitute(skeleton, {key: cp.Constant(value) for key, value in values.items()})
            if not affine.is_affine():
                raise _NotPiecewiseError
            at_unit.append(_affine_map(affine, own))
        stacked = np.stack(at_unit, axis=-1)
        stacked[..., 1:] = (stacked[..., 1:] - stacked[..., :1]) / _FAR
        return stacked

    def _entries_of_maximum(self, atom: cp.Expression) -> list[SumOfMaxima]:
        """The entries (row-major) of one of `_MAXIMA` as sums of maxima."""
        arguments: list[list[SumOfMaxima]] = []
        for argument in atom.args:
            split = self.split(argument)
            if any(not entry.decision_part.is_affine() for entry in split):
                raise _NotPiecewiseError
            arguments.append([entry.joint_part for entry in split])
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


def _stand_in(node: cp.Expression, listed: list[tuple[cp.Variable, cp.Expression]]) -> cp.Variable:
    listed.append((cp.Variable(node.shape), node))
    return listed[-1][0]


def _maximum(functions: Sequence[SumOfMaxima]) -> SumOfMaxima:
    found = maximum_of(functions)
    if found is None:
        raise _NotPiecewiseError
    return found


def _both_signs(entry: SumOfMaxima) -> list[SumOfMaxima]:
    if entry.groups:
        raise _NotPiecewiseError
    return [entry, entry.scaled(-1.0)]


def _flat(expression: cp.Expression) -> cp.Expression:
    return cp.reshape(expression, (expression.size,), order="C")


def _at_zero(variables: Sequence[cp.Variable]) -> dict[int, cp.Variable]:
    """Variables at 0 in place of the user's, whose values must not change."""
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
    # CVXPY's vectors are column-major.
    orders = [np.arange(v.size).reshape(v.shape, order="F").ravel() for v in variables]
    return np.ascontiguousarray(dense[np.concatenate([a + b for a, b in zip(starts[:-1], orders, strict=True)])].T)


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
        for k, unit in enumerate(_FAR * np.eye(variable.size)):
            variable.value = unit.reshape(variable.shape)
            slopes[:, k] = (np.asarray(expression.value, dtype=float).ravel() - at_zero) / _FAR
        variable.value = np.zeros(variable.shape)
    return slopes
