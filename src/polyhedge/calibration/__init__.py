"""Conformal calibration, one file a promise: scores of calibration rows -> a radius for each new row.

Regions are nested level sets of a score. The calibration split picks one of them: its radius is the ``k``-th smallest
calibration score with ``k = ceil((n + 1) * (1 - alpha))``. If calibration and test samples are exchangeable, and
nothing else was chosen on the calibration split, then a new score is at most that radius with probability at least
``1 - alpha``, whatever the distribution.
"""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.calibration.blocks import AllOf as AllOf, BlockRadii as BlockRadii, Blocks as Blocks, Total as Total
    from polyhedge.calibration.by_category import ByCategory as ByCategory, CategoryRadii as CategoryRadii
    from polyhedge.calibration.by_constraint import ByConstraint as ByConstraint, ConstraintRadii as ConstraintRadii
    from polyhedge.calibration.by_groups import ByGroups as ByGroups, GroupRadii as GroupRadii
    from polyhedge.calibration.marginal import (
        Marginal as Marginal,
        OneRadius as OneRadius,
        attained_rank as attained_rank,
        check_groups as check_groups,
        check_labels as check_labels,
        conformal_radius as conformal_radius,
        conformal_rank as conformal_rank,
        coverage_law as coverage_law,
        grouped_radius as grouped_radius,
        minimum_samples as minimum_samples,
    )
    from polyhedge.calibration.mean_cost import CVaR as CVaR, Mean as Mean, RiskRadius as RiskRadius
    from polyhedge.calibration.online import Online as Online, OnlineRadii as OnlineRadii
    from polyhedge.calibration.radii import (
        CalibrationRecord as CalibrationRecord,
        Calibrator as Calibrator,
        Radii as Radii,
        score_tolerance as score_tolerance,
    )
    from polyhedge.calibration.recent import Recent as Recent, RecentRadius as RecentRadius
    from polyhedge.calibration.this_model import (
        ThisModel as ThisModel,
        ThisModelRadius as ThisModelRadius,
        this_model_minimum as this_model_minimum,
        this_model_rank as this_model_rank,
    )
    from polyhedge.calibration.weighted import Weighted as Weighted, WeightedRadii as WeightedRadii
    from polyhedge.rows import fit_labels as fit_labels, takes_labels as takes_labels
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
