"""Robust decisions with a guarantee.

The public names in the order of the alphabet; the packages among them follow the pipeline: data -> predictor ->
problem -> set -> decision.
"""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

__version__ = "0.3.0"

if TYPE_CHECKING:
    from polyhedge import (
        calibration as calibration,
        data as data,
        distributed as distributed,
        learners as learners,
        plots as plots,
        predictors as predictors,
        problems as problems,
        robust as robust,
        sets as sets,
    )
    from polyhedge._support.warnings import CodedWarning as CodedWarning
    from polyhedge.calibration import (
        conformal_radius as conformal_radius,
        conformal_rank as conformal_rank,
        coverage_law as coverage_law,
    )
    from polyhedge.decisions import Decisions as Decisions
    from polyhedge.diagnostics import DiagnosticWarning as DiagnosticWarning
    from polyhedge.estimator import RobustDecider as RobustDecider, load as load
    from polyhedge.evaluation import Evaluation as Evaluation
    from polyhedge.io import ModelFileError as ModelFileError, ModelInfo as ModelInfo, inspect_model as inspect_model
    from polyhedge.learners import lower_bound as lower_bound
    from polyhedge.monitoring.backtest import backtest as backtest
    from polyhedge.monitoring.frontier import certified_frontier as certified_frontier
    from polyhedge.monitoring.log import OutcomeLog as OutcomeLog
    from polyhedge.problems import DecisionProblem as DecisionProblem
    from polyhedge.sets import (
        Ball as Ball,
        Box as Box,
        Ellipsoid as Ellipsoid,
        Polyhedron as Polyhedron,
        Region as Region,
    )
    from polyhedge.solvers.options import Solver as Solver
    from polyhedge.solvers.program import Status as Status
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
