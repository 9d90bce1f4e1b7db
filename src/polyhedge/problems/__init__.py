"""Decision problems: written in CVXPY, compiled once to arrays."""

from polyhedge.problems.checks import NoSolutionError
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.names import Source
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.ready_made import (
    newsvendor,
    portfolio,
    simplex_linear,
    simplex_newsvendor,
    simplex_quadratic,
)

__all__ = [
    "Curvature",
    "DecisionProblem",
    "NoSolutionError",
    "Pieces",
    "Source",
    "SumOfMaxima",
    "newsvendor",
    "portfolio",
    "simplex_linear",
    "simplex_newsvendor",
    "simplex_quadratic",
]
