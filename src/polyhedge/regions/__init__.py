"""Region families: what was learned, frozen before calibration, as x -> nested regions C_r(x); one file a family."""

from polyhedge.regions.batch_invariant import Grid
from polyhedge.regions.cost_guard import Developed, Guard, OverSets, PlacedGuard, Planned, Policy, WithOutcomes
from polyhedge.regions.family import PlacedRegions, RegionFamily, UsualAnswers, Work
from polyhedge.regions.learned_set import PlacedSet, ScaledSet
from polyhedge.regions.margin_path import Path, PathPolicy, PlacedPath, Steps
from polyhedge.regions.set_policy import MeanCosts, SetPolicy

__all__ = [
    "Developed",
    "Grid",
    "Guard",
    "MeanCosts",
    "OverSets",
    "Path",
    "PathPolicy",
    "PlacedGuard",
    "PlacedPath",
    "PlacedRegions",
    "PlacedSet",
    "Planned",
    "Policy",
    "RegionFamily",
    "ScaledSet",
    "SetPolicy",
    "Steps",
    "UsualAnswers",
    "WithOutcomes",
    "Work",
]
