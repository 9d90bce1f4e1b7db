"""Policies: residual distributions, decision rules z(x) with planned costs v(x), their selection, and margin paths."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.planning.costs import MeanCost
    from polyhedge.planning.margin_path import MarginPolicy, fit_path
    from polyhedge.planning.policies import ScenarioPolicy
    from polyhedge.planning.report import PolicyReport
    from polyhedge.planning.residual_distributions import DevelopmentRows, ResidualDistribution, residual_distribution
    from polyhedge.planning.selection import fit_policy
    from polyhedge.planning.ties import LeastMean
    from polyhedge.planning.user_policy import UserPolicy
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "DevelopmentRows",
    "LeastMean",
    "MarginPolicy",
    "MeanCost",
    "PolicyReport",
    "ResidualDistribution",
    "ScenarioPolicy",
    "UserPolicy",
    "fit_path",
    "fit_policy",
    "residual_distribution",
]
