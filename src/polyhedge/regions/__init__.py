"""Region families: what was learned, frozen before calibration, as x -> nested regions C_r(x); one file a family."""

from polyhedge.regions.family import PlacedRegions, RegionFamily, UsualAnswers, Work
from polyhedge.regions.guard import Developed, Guard, OverSets, PlacedGuard, Plan, Planned, WithOutcomes
from polyhedge.regions.path import Path, PathPlan, PlacedPath, Steps
from polyhedge.regions.scaled_set import PlacedSet, ScaledSet
from polyhedge.regions.set_plan import MeanCosts, SetPlan
from polyhedge.regions.steady import Grid

__all__ = [
    "Developed",
    "Grid",
    "Guard",
    "MeanCosts",
    "OverSets",
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
    "UsualAnswers",
    "WithOutcomes",
    "Work",
]
