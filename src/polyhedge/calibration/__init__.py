"""Conformal calibration, one file a promise: scores of calibration rows -> a radius for each new row.

Regions are nested level sets of a score. The calibration split picks one of them: its radius is the ``k``-th smallest
calibration score with ``k = ceil((n + 1) * (1 - alpha))``. If calibration and test samples are exchangeable, and
nothing else was chosen on the calibration split, then a new score is at most that radius with probability at least
``1 - alpha``, whatever the distribution.
"""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.calibration.blocks import AllOf, BlockRadii, Blocks, Total
    from polyhedge.calibration.by_category import ByCategory, CategoryRadii
    from polyhedge.calibration.labels import fit_labels, takes_labels
    from polyhedge.calibration.marginal import (
        Marginal,
        OneRadius,
        check_groups,
        check_labels,
        conformal_radius,
        coverage_law,
        grouped_radius,
    )
    from polyhedge.calibration.online import Online, OnlineRadii
    from polyhedge.calibration.radii import Calibration, Calibrator, Radii, score_tolerance
    from polyhedge.calibration.rank import attained_rank, conformal_rank, minimum_samples
    from polyhedge.calibration.recent import Recent, RecentRadius
    from polyhedge.calibration.this_model import ThisModel, ThisModelRadius, this_model_minimum, this_model_rank
    from polyhedge.calibration.weighted import Weighted, WeightedRadii
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "AllOf",
    "BlockRadii",
    "Blocks",
    "ByCategory",
    "Calibration",
    "Calibrator",
    "CategoryRadii",
    "Marginal",
    "OneRadius",
    "Online",
    "OnlineRadii",
    "Radii",
    "Recent",
    "RecentRadius",
    "ThisModel",
    "ThisModelRadius",
    "Total",
    "Weighted",
    "WeightedRadii",
    "attained_rank",
    "check_groups",
    "check_labels",
    "conformal_radius",
    "conformal_rank",
    "coverage_law",
    "fit_labels",
    "grouped_radius",
    "minimum_samples",
    "score_tolerance",
    "takes_labels",
    "this_model_minimum",
    "this_model_rank",
]
