"""Pictures: every function returns matplotlib Axes, and none shows them. Needs the extra `plot`."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.plots.curves import CostCurve, bounds_and_costs, cost_coverage, cost_curve
    from polyhedge.plots.directions import cost_directions, cost_slopes
    from polyhedge.plots.maps import decision_map
    from polyhedge.plots.sets import regions, residual_pairs, residual_set, sets_over_residuals
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "CostCurve",
    "bounds_and_costs",
    "cost_coverage",
    "cost_curve",
    "cost_directions",
    "cost_slopes",
    "decision_map",
    "regions",
    "residual_pairs",
    "residual_set",
    "sets_over_residuals",
]
