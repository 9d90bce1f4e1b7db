"""Policies: residual distributions, decision rules z(x), v(x) and paths of them, and the selection between them."""

from polyhedge.planning.margin_path import MarginPolicy, fit_path, path_from
from polyhedge.planning.mean_cost import MeanCost, mean_cost_from
from polyhedge.planning.planned import ScenarioPolicy, fit_policy, policy_from
from polyhedge.planning.report import PolicyReport, report_from
from polyhedge.planning.residual_distributions import DevelopmentRows
from polyhedge.planning.ties import LeastMean, ties_from

__all__ = [
    "DevelopmentRows",
    "LeastMean",
    "MarginPolicy",
    "MeanCost",
    "PolicyReport",
    "ScenarioPolicy",
    "fit_path",
    "fit_policy",
    "mean_cost_from",
    "path_from",
    "policy_from",
    "report_from",
    "ties_from",
]
