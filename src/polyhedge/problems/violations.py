"""How far uncertain constraints were exceeded, where decisions and outcomes have met."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.decompose import Decomposition
from polyhedge.problems.parameters import layout_of
from polyhedge.problems.row_values import RowValues
from polyhedge.problems.written import Written, substitute, substitute_in

_SOLVED = 1e-8
"""What solvers leave between the two sides of a constraint, in shares of the terms that it adds up."""
_LONGEST_NAME = 60
"""Characters of a constraint's text that serve as its name in tables."""


class UncertainRows:
    """The uncertain constraints as functions of many decisions, outcomes and parameters at once.

    Parameters
    ----------
    written : the problem's formulas.
    splits : every entry of the constraints (left side minus right side), split over (u, parameters) into arrays and
        what depends on the decision and the parameters alone.
    """

    def __init__(self, written: Written, splits: Sequence[Decomposition]) -> None:
        self.written, self.splits = written, tuple(splits)
        shapes = [*written.layout.shapes, *(parameter.shape for parameter in written.parameters)]
        self.alone = [RowValues(partial(self._alone, r), shapes) for r in range(len(self.splits))]

    def _alone(self, row: int, *leaves: cp.Parameter) -> cp.Expression:
        k = len(self.written.variables)
        return substitute(self.splits[row].decision_part, self.written.leaves(list(leaves[:k]), None, list(leaves[k:])))

    def violations(self, z: Array, u: Array, values: Array) -> Array:
        """By how much each constraint is exceeded (N, n_constraints), for rows of z (N, p), u (N, d) and parameters.

        Zero where it holds, up to what solvers leave open; the largest entry of a constraint with several; NaN
        without a decision.
        """
        excess, decided = np.full((len(z), len(self.splits)), np.nan), np.isfinite(z).all(axis=1)
        z, known, values = z[decided], np.hstack([u, values])[decided], values[decided]
        arguments = [*self.written.layout.columns(z), *layout_of(self.written.parameters).columns(values)]
        for r, (split, alone) in enumerate(zip(self.splits, self.alone, strict=True)):
            rest = alone(*arguments)
            value = split.joint_part.evaluate(z, known) + rest
            size = split.joint_part.sizes().evaluate(np.abs(z), np.abs(known)) + np.abs(rest)
            excess[decided, r] = np.where(value > _SOLVED * size, value, 0.0)
        ends = np.cumsum([0, *(constraint.size for constraint in self.written.uncertain)])
        worst = [excess[:, first:last].max(axis=1) for first, last in pairwise(ends.tolist())]
        return np.array(worst).reshape(len(worst), len(excess)).T


def constraint_texts(written: Written) -> list[str]:
    """What to call uncertain constraints that nobody named: their own text, each once."""
    named = {v.id: cp.Variable(v.shape, name=n) for v, n in zip(written.variables, written.layout.names, strict=True)}
    named[written.outcome.id] = cp.Variable(written.outcome.shape, name="u")
    texts = [as_written(str(substitute_in(constraint, named))) for constraint in written.uncertain]
    return each_once([text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 3]}..." for text in texts])


def as_written(text: str) -> str:
    """CVXPY's text of a formula without what it puts around numbers and powers, whatever its version.

    Examples
    --------
    >>> as_written("Promote(2.0, (3,)) <= 0.5 @ z[1]")
    '2.0 <= 0.5 * z[1]'
    """
    text = re.sub(r"Promote\(([^(),]+), \([\d, ]+\)\)", r"\1", text).replace("PowerApprox(", "power(")
    # CVXPY 1.7 writes a number times an entry as a product of matrices.
    return re.sub(r"(?<![\w.\])])(\d+(?:\.\d+)?(?:e[+-]?\d+)?) @ ", r"\1 * ", text)


def each_once(names: Sequence[str]) -> list[str]:
    """The names, those that come again with a number behind them.

    Examples
    --------
    >>> each_once(["a <= u", "b <= u", "a <= u"])
    ['a <= u', 'b <= u', 'a <= u (2)']
    """
    counts = [list(names[:i]).count(name) for i, name in enumerate(names)]
    return [name if not count else f"{name} ({count + 1})" for name, count in zip(names, counts, strict=True)]
