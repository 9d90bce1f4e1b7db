"""Region families: what was learned, frozen before calibration, as x -> nested regions C_r(x); one file a family."""

from polyhedge.regions.family import PlacedRegions, RegionFamily, Work
from polyhedge.regions.guard import Guard, PlacedGuard, Plan, Planned, SetPlan
from polyhedge.regions.path import Path, PathPlan, PlacedPath, Steps
from polyhedge.regions.scaled_set import PlacedSet, ScaledSet
from polyhedge.regions.steady import Grid

__all__ = [
    "Grid",
    "Guard",
    "Path",
    "PathPlan",
    "PlacedGuard",
    "PlacedPath",
    "PlacedRegions",
    "PlacedSet",
    "Plan",
    "Planned",
    "RegionFamily",
    "ScaledSet",
    "SetPlan",
    "Steps",
    "Work",
]
