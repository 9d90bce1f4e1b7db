"""Decision problems: written in CVXPY, compiled once to arrays."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.problems.checks import NoSolutionError
    from polyhedge.problems.decision_problem import Curvature, DecisionProblem, problem_from_data
    from polyhedge.problems.formula import NotPortableError
    from polyhedge.problems.layout import Source
    from polyhedge.problems.mps_file import from_mps
    from polyhedge.problems.pieces import Pieces, SumOfMaxima
    from polyhedge.problems.ready_made import (
        newsvendor,
        portfolio,
        simplex_linear,
        simplex_newsvendor,
        simplex_quadratic,
    )
    from polyhedge.problems.toml_file import from_reference, from_toml
    from polyhedge.problems.written import problem_to_data
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Curvature",
    "DecisionProblem",
    "NoSolutionError",
    "NotPortableError",
    "Pieces",
    "Source",
    "SumOfMaxima",
    "from_mps",
    "from_reference",
    "from_toml",
    "newsvendor",
    "portfolio",
    "problem_from_data",
    "problem_to_data",
    "simplex_linear",
    "simplex_newsvendor",
    "simplex_quadratic",
]
