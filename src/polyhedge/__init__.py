"""Robust decisions with a guarantee.

The public names in the order of the alphabet; the packages among them follow the pipeline: data -> predictor ->
problem -> set -> decision.
"""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

__version__ = "0.3.0"

if TYPE_CHECKING:
    from polyhedge import calibration, data, distributed, learners, plots, predictors, problems, robust, sets
    from polyhedge._support.warnings import CodedWarning
    from polyhedge.calibration import Calibration, conformal_radius, conformal_rank, coverage_law
    from polyhedge.decisions import Decisions
    from polyhedge.diagnostics import DiagnosticWarning
    from polyhedge.estimator import RobustDecider, load
    from polyhedge.evaluation import Evaluation
    from polyhedge.io import ModelFileError, ModelInfo, inspect_model
    from polyhedge.learners import lower_bound
    from polyhedge.monitoring.backtest import backtest
    from polyhedge.monitoring.log import OutcomeLog
    from polyhedge.problems import DecisionProblem
    from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron, Region
    from polyhedge.solvers.options import Solver
    from polyhedge.solvers.program import Status
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Ball",
    "Box",
    "Calibration",
    "CodedWarning",
    "DecisionProblem",
    "Decisions",
    "DiagnosticWarning",
    "Ellipsoid",
    "Evaluation",
    "ModelFileError",
    "ModelInfo",
    "OutcomeLog",
    "Polyhedron",
    "Region",
    "RobustDecider",
    "Solver",
    "Status",
    "backtest",
    "calibration",
    "conformal_radius",
    "conformal_rank",
    "coverage_law",
    "data",
    "distributed",
    "inspect_model",
    "learners",
    "load",
    "lower_bound",
    "plots",
    "predictors",
    "problems",
    "robust",
    "sets",
]
