"""A decision problem as one line of formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import cvxpy as cp

from polyhedge.problems.formula_text import constraint_text, expression_text

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

__all__ = ["formula_of", "formulas_by_name", "units_in_words"]

_LONG = 200
"""Letters of one formula beyond which a reader has seen enough."""
_MANY = 12
"""Constraints beyond which the rest is counted."""


def formula_of(problem: DecisionProblem) -> str:
    """What is minimised over which decisions, under which constraints, and what is known of the outcome u.

    Examples
    --------
    >>> from polyhedge.problems import newsvendor
    >>> print(formula_of(newsvendor(1.0, [4.0, 5.0], capacity=10.0)))
    <newsvendor: minimise over order (2, at least 0) the cost [1, 1] @ maximum(order - u, 0) + [4, 5] @ \
maximum(u - order, 0) subject to [1, 1] @ order <= 10; known of u: 0 <= u>
    """
    written, names = problem.written, _letters(problem)
    cost = _short(expression_text(written.cost, names))
    limits = _listed([*written.certain, *written.uncertain], names)
    known = _listed(written.support, names)
    chosen = ", ".join(_variable(v, names) for v in written.variables[: written.layout.n_given])
    parts = [
        f"minimise over {chosen} the cost {cost}{' subject to ' if limits else ''}{'; '.join(limits)}",
        f"known of u: {'; '.join(known)}" if known else "",
        units_in_words(problem),
    ]
    return f"<{problem.name}: {'; '.join(part for part in parts if part)}>"


def units_in_words(problem: DecisionProblem) -> str:
    """What is measured in what; empty where nothing is said.

    Examples
    --------
    >>> from polyhedge.problems import newsvendor
    >>> units_in_words(newsvendor(1.0, 4.0, names=["rolls"]).labelled(units={"cost": "EUR", "rolls": "pieces"}))
    'cost in EUR, rolls in pieces'
    """
    return ", ".join(f"{name} in {unit}" for name, unit in (problem.units or {}).items())


def formulas_by_name(problem: DecisionProblem) -> tuple[str, list[str], list[str]]:
    """The cost, the constraints and what is known of outcomes, with entries of both by their names.

    Examples
    --------
    >>> import cvxpy as cp
    >>> from polyhedge.problems import DecisionProblem
    >>> problem = DecisionProblem(
    ...     decision=cp.Variable(2, nonneg=True),
    ...     cost=lambda z, u: cp.maximum(z[0] - u[0], 4 * (u[0] - z[0])) + z[1],
    ...     n_outcomes=1,
    ...     decision_names=["rolls", "bread"],
    ...     outcome_names=["asked for"],
    ... )
    >>> formulas_by_name(problem)[0]
    'maximum(rolls - asked for, 4 * (asked for - rolls)) + bread'
    """
    written, names = problem.written, _letters(problem)
    names |= {f"u[{k}]": name for k, name in enumerate(problem.outcome_names)}
    if written.layout.n_given == 1 and len(written.variables[0].shape) == 1:
        variable = names[written.variables[0].name()]
        names |= {f"{variable}[{k}]": name for k, name in enumerate(problem.decision_names)}
    limits = _listed([*written.certain, *written.uncertain], names)
    return _short(expression_text(written.cost, names)), limits, _listed(written.support, names)


def _letters(problem: DecisionProblem) -> dict[str, str]:
    """What variables are called: CVXPY gives those without a name a number."""
    written = problem.written
    own = {v.name(): name for v, name in zip(written.variables, written.layout.names, strict=True)}
    return own | {written.outcome.name(): "u"}


def _listed(rows: Sequence[cp.Constraint], names: Mapping[str, str]) -> list[str]:
    shown = [_short(constraint_text(row, names)) for row in rows[:_MANY]]
    return shown if len(rows) <= _MANY else [*shown, f"{len(rows) - _MANY} more"]


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _variable(variable: cp.Variable, names: Mapping[str, str]) -> str:
    words = {"nonneg": "at least 0", "nonpos": "at most 0", "integer": "whole numbers", "boolean": "0 or 1"}
    size = " x ".join(map(str, variable.shape)) or "a number"
    facts = [said for key, said in words.items() if variable.attributes[key]]
    return f"{names[variable.name()]} ({', '.join([size, *facts])})"
