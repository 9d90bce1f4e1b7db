"""Pictures: every function returns matplotlib Axes, and none shows them. Needs the extra `plot`."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.plots.curves import (
        CostCurve as CostCurve,
        bounds_and_costs as bounds_and_costs,
        cost_coverage as cost_coverage,
        cost_curve as cost_curve,
    )
    from polyhedge.plots.directions import cost_directions as cost_directions, cost_slopes as cost_slopes
    from polyhedge.plots.maps import decision_map as decision_map
    from polyhedge.plots.sets import (
        regions as regions,
        residual_pairs as residual_pairs,
        residual_set as residual_set,
        sets_over_residuals as sets_over_residuals,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
