"""Region families: what was learned, frozen before calibration, as x -> nested regions C_r(x); one file a family."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.regions.cost_guard import CostGuard as CostGuard, GuardRegions as GuardRegions
    from polyhedge.regions.family import (
        DevelopedPolicy as DevelopedPolicy,
        PlannedDecisions as PlannedDecisions,
        Policy as Policy,
        RegionFamily as RegionFamily,
        Regions as Regions,
        Work as Work,
    )
    from polyhedge.regions.learned_set import LearnedSet as LearnedSet, SetPolicy as SetPolicy, SetRegions as SetRegions
    from polyhedge.regions.margin_path import (
        MarginPath as MarginPath,
        PathPolicy as PathPolicy,
        PathRegions as PathRegions,
        Steps as Steps,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
