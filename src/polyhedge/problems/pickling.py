"""Pickles of problems: a cost that is a lambda has no name by which pickle could find it, but it has a formula."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhedge.problems.decision_problem import DecisionProblem

__all__ = ["pickled"]


def pickled(problem: DecisionProblem) -> tuple[Any, ...] | None:
    """How to make the problem again from its formulas; None where pickle finds all of its functions by name."""
    functions = [problem.cost, problem.uncertain_constraints, problem.outcome_support]
    nameless = [name for name in (getattr(one, "__qualname__", "") for one in functions) if "<" in name]
    if not nameless:
        return None
    try:
        # Stored problems are read by modules that need this one.
        state = import_module("polyhedge.problems.stored").problem_to_state(problem)
    except ValueError as error:
        raise pickle.PicklingError(
            f"{problem.name!r} has a function without a name in a module, {nameless[0]}, and its formulas "
            f"cannot be stored either ({error}). Define the function at the top of a module to pickle it; decider.save "
            "and polyhedge.load take a problem in a file, FILE.py:NAME."
        ) from error
    return _from_formulas, (state,)


def _from_formulas(state: Mapping[str, Any]) -> DecisionProblem:
    problem: DecisionProblem = import_module("polyhedge.problems.stored").problem_from_state(state)
    return problem
