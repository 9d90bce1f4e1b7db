"""A decision problem as one line of formulas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import cvxpy as cp

from polyhedge.problems.violations import as_written
from polyhedge.problems.written import substitute, substitute_in

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

__all__ = ["formula_of", "formulas_by_name", "units_in_words"]

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
    units = f"; {units_in_words(problem)}" if problem.units else ""
    cost = _short(substitute(written.cost, leaves))
    return f"<{problem.name}: minimise over {chosen} the cost {cost}{under}{units}>"


def units_in_words(problem: DecisionProblem) -> str:
    """What is measured in what; empty where nothing is said.

    Examples
    --------
    >>> from polyhedge.problems import newsvendor
    >>> units_in_words(newsvendor(1.0, 4.0, names=["rolls"]).labelled(units={"cost": "EUR", "rolls": "pieces"}))
    'cost in EUR, rolls in pieces'
    """
    return ", ".join(f"{name} in {unit}" for name, unit in (problem.units or {}).items())


def formulas_by_name(problem: DecisionProblem) -> tuple[str, list[str]]:
    """The cost and the constraints, with entries of decisions and outcomes by their names.

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
    'maximum(rolls - asked for, 4.0 * (asked for - rolls)) + bread'
    """
    written = problem.written
    leaves = {written.outcome.id: cp.Variable(written.outcome.shape, name="u")}
    rows = [*written.certain, *written.uncertain, *written.support]
    texts = [_short(substitute(written.cost, leaves)), *(_short(substitute_in(row, leaves)) for row in rows)]
    names = {f"u[{k}]": name for k, name in enumerate(problem.outcome_names)}
    if written.layout.n_given == 1 and len(written.variables[0].shape) == 1:
        variable = written.variables[0].name()
        names |= {f"{variable}[{k}]": name for k, name in enumerate(problem.decision_names)}
    named = [_subtracted(_ENTRY.sub(lambda found: names.get(found.group(), found.group()), text)) for text in texts]
    return named[0], named[1:]


_ENTRY = re.compile(r"\b\w+\[\d+\]")


def _subtracted(text: str) -> str:
    """`a + -(b)` as a reader writes it."""
    return re.sub(r"\+ -(?:\(([^()]*)\)|(\w[\w ]*))", lambda found: f"- {found.group(1) or found.group(2)}", text)


def _short(formula: Any) -> str:
    text = " ".join(as_written(str(formula)).split())
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _variable(variable: cp.Variable) -> str:
    words = {"nonneg": "at least 0", "nonpos": "at most 0", "integer": "whole numbers", "boolean": "0 or 1"}
    size = " x ".join(map(str, variable.shape)) or "a number"
    return (
        f"{variable.name()} ({', '.join([size, *(said for key, said in words.items() if variable.attributes[key])])})"
    )
