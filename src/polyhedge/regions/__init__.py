"""Region families: what was learned, frozen before calibration, as x -> nested regions C_r(x); one file a family."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.regions.cost_guard import CostGuard, GuardRegions
    from polyhedge.regions.family import RegionFamily, Regions, Work
    from polyhedge.regions.learned_set import LearnedSet, SetPolicy, SetRegions
    from polyhedge.regions.margin_path import MarginPath, PathPolicy, PathRegions, Steps
    from polyhedge.regions.policy import DevelopedPolicy, PlannedDecisions, Policy
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "CostGuard",
    "DevelopedPolicy",
    "GuardRegions",
    "LearnedSet",
    "MarginPath",
    "PathPolicy",
    "PathRegions",
    "PlannedDecisions",
    "Policy",
    "RegionFamily",
    "Regions",
    "SetPolicy",
    "SetRegions",
    "Steps",
    "Work",
]
