"""Plans: residual laws and decision rules z(x), v(x), and the contest between them."""

from polyhedge.plans.laws import PlanRows
from polyhedge.plans.plan import LawPlan, fit_plan, plan_from
from polyhedge.plans.report import PlanReport, report_from

__all__ = ["LawPlan", "PlanReport", "PlanRows", "fit_plan", "plan_from", "report_from"]
