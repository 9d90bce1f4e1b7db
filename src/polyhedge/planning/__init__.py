"""Policies: residual distributions, decision rules z(x) with planned costs v(x), their selection, and margin paths."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.planning.margin_path import MarginPolicy as MarginPolicy, fit_path as fit_path
    from polyhedge.planning.policies import ScenarioPolicy as ScenarioPolicy
    from polyhedge.planning.report import PolicyReport as PolicyReport
    from polyhedge.planning.residual_distributions import (
        DevelopmentRows as DevelopmentRows,
        ResidualDistribution as ResidualDistribution,
        residual_distribution as residual_distribution,
    )
    from polyhedge.planning.selection import fit_policy as fit_policy
    from polyhedge.planning.ties import LeastMean as LeastMean
    from polyhedge.planning.user_policy import UserPolicy as UserPolicy
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
