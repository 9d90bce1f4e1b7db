"""Plans: residual laws, decision rules z(x), v(x) and paths of them, and the contest between them."""

from polyhedge.planning.margin_path import MarginPath, fit_path, path_from
from polyhedge.planning.mean_cost import MeanCost, mean_cost_from
from polyhedge.planning.planned import LawPlan, fit_plan, plan_from
from polyhedge.planning.report import PlanReport, report_from
from polyhedge.planning.residual_distributions import PlanRows
from polyhedge.planning.ties import LeastMean, ties_from

__all__ = [
    "LawPlan",
    "LeastMean",
    "MarginPath",
    "MeanCost",
    "PlanReport",
    "PlanRows",
    "fit_path",
    "fit_plan",
    "mean_cost_from",
    "path_from",
    "plan_from",
    "report_from",
    "ties_from",
]
