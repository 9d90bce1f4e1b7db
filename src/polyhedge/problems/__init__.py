"""Decision problems: written in CVXPY, compiled once to arrays."""

from polyhedge.problems.checks import NoSolutionError
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.from_mps import from_mps
from polyhedge.problems.from_toml import from_toml
from polyhedge.problems.names import Source
from polyhedge.problems.pieces import Pieces, SumOfMaxima
from polyhedge.problems.ready_made import (
    newsvendor,
    portfolio,
    simplex_linear,
    simplex_newsvendor,
    simplex_quadratic,
)
from polyhedge.problems.reference import from_reference

__all__ = [
    "Curvature",
    "DecisionProblem",
    "NoSolutionError",
    "Pieces",
    "Source",
    "SumOfMaxima",
    "from_mps",
    "from_reference",
    "from_toml",
    "newsvendor",
    "portfolio",
    "simplex_linear",
    "simplex_newsvendor",
    "simplex_quadratic",
]
