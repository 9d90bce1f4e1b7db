"""Region families: what was learned, frozen before calibration, as x -> nested regions C_r(x); one file a family."""

from polyhedge.regions.family import PlacedRegions, RegionFamily, Work
from polyhedge.regions.guard import Guard, PlacedGuard, Plan, Planned, SetPlan
from polyhedge.regions.scaled_set import PlacedSet, ScaledSet

__all__ = [
    "Guard",
    "PlacedGuard",
    "PlacedRegions",
    "PlacedSet",
    "Plan",
    "Planned",
    "RegionFamily",
    "ScaledSet",
    "SetPlan",
    "Work",
]
