"""Values of a CVXPY formula at many rows of numbers, from any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array


class RowValues:
    """A scalar formula of one or more arguments, evaluated at matching rows of numbers.

    A CVXPY parameter has one value at a time, so no two threads may share one: every call works on an expression
    with parameters of its own, taken from those at rest where there is one.

    Parameters
    ----------
    formula : as many parameters as there are shapes -> a scalar CVXPY expression.
    shapes : the shape of each argument.

    Examples
    --------
    >>> total = RowValues(lambda z, u: z @ u, [(2,), (2,)])
    >>> total(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)))
    array([3., 7.])
    """

    def __init__(self, formula: Callable[..., cp.Expression], shapes: Sequence[tuple[int, ...]]) -> None:
        self.formula, self.shapes = formula, tuple(shapes)
        self._at_rest: list[tuple[cp.Expression, list[cp.Parameter]]] = []

    def __call__(self, *rows: Array) -> Array:
        """The formula at row i of every argument, each (N, size): shape (N,); NaN outside its domain."""
        try:
            own = self._at_rest.pop()  # one step, so that no two threads get the same
        except IndexError:
            parameters = [cp.Parameter(shape) for shape in self.shapes]
            own = self.formula(*parameters), parameters
        values = self._values(*own, rows)
        self._at_rest.append(own)
        return values

    def _values(self, expression: cp.Expression, parameters: list[cp.Parameter], rows: Sequence[Array]) -> Array:
        n = len(rows[0])
        if expression.is_constant() and not expression.parameters():
            return np.full(n, float(expression.value))
        met = {parameter.id for parameter in expression.parameters()}
        shaped = [
            (parameter, some.reshape(n, *shape))
            for parameter, shape, some in zip(parameters, self.shapes, rows, strict=True)
            if parameter.id in met
        ]
        values = np.full(n, np.nan)
        with np.errstate(all="ignore"):  # outside its domain a formula is NaN
            for i in range(n):
                for parameter, numbers in shaped:
                    # Parameters without attributes take any numbers; to be told so takes longer than most formulas.
                    parameter.save_value(np.asarray(numbers[i]))
                value = expression.value
                values[i] = np.nan if value is None else float(value)
        return values
