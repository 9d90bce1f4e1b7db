"""A decision problem as one line of formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy as cp

from polyhedge.problems.written import substitute, substitute_in

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

__all__ = ["formula_of"]

_LONG = 200
"""Letters of one formula beyond which a reader has seen enough."""


def formula_of(problem: DecisionProblem) -> str:
    """What is minimised over which decisions, and under which constraints; u is the outcome.

    Examples
    --------
    >>> from polyhedge.problems import newsvendor
    >>> print(formula_of(newsvendor(1.0, [4.0, 5.0], capacity=10.0)))
    <newsvendor: minimise over order (2, at least 0) the cost [1. 1.] @ maximum(order + -u, 0.0) + [4. 5.] @ \
maximum(u + -order, 0.0) subject to [1. 1.] @ order <= 10.0; 0.0 <= u>
    """
    written = problem.written
    leaves = {written.outcome.id: cp.Variable(written.outcome.shape, name="u")}
    rows = [*written.certain, *written.uncertain, *written.support]
    limits = [_short(substitute_in(row, leaves)) for row in rows]
    under = f" subject to {'; '.join(limits)}" if limits else ""
    chosen = ", ".join(map(_variable, written.variables[: written.layout.n_given]))
    return f"<{problem.name}: minimise over {chosen} the cost {_short(substitute(written.cost, leaves))}{under}>"


def _short(formula: Any) -> str:
    text = " ".join(str(formula).split())
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _variable(variable: cp.Variable) -> str:
    words = {"nonneg": "at least 0", "nonpos": "at most 0", "integer": "whole numbers", "boolean": "0 or 1"}
    size = " x ".join(map(str, variable.shape)) or "a number"
    return (
        f"{variable.name()} ({', '.join([size, *(said for key, said in words.items() if variable.attributes[key])])})"
    )
