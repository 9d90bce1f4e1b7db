"""Decision problems: written in CVXPY, compiled once to arrays."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.problems.checks import NoSolutionError as NoSolutionError
    from polyhedge.problems.decision_problem import (
        Curvature as Curvature,
        DecisionProblem as DecisionProblem,
        problem_from_data as problem_from_data,
    )
    from polyhedge.problems.formula import NotPortableError as NotPortableError
    from polyhedge.problems.layout import Source as Source
    from polyhedge.problems.mps_file import from_mps as from_mps
    from polyhedge.problems.pieces import Pieces as Pieces, SumOfMaxima as SumOfMaxima
    from polyhedge.problems.ready_made import (
        newsvendor as newsvendor,
        portfolio as portfolio,
        simplex_linear as simplex_linear,
        simplex_newsvendor as simplex_newsvendor,
        simplex_quadratic as simplex_quadratic,
    )
    from polyhedge.problems.toml_file import from_reference as from_reference, from_toml as from_toml
    from polyhedge.problems.written import problem_to_data as problem_to_data
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
