"""Conformal calibration, one file a guarantee: scores of calibration rows -> a radius for each new row.

Regions are nested level sets of a score. The calibration split picks one of them: its radius is the ``k``-th smallest
calibration score with ``k = ceil((n + 1) * (1 - alpha))``. If calibration and test samples are exchangeable, and
nothing else was chosen on the calibration split, then a new score is at most that radius with probability at least
``1 - alpha``, whatever the distribution.
"""

from collections.abc import Mapping
from typing import Any

from polyhedge.calibration.by_category import ByCategory, CategoryRadii
from polyhedge.calibration.coverage import coverage_law
from polyhedge.calibration.grouped import check_groups, check_labels, grouped_radius
from polyhedge.calibration.labels import fit_labels, takes_labels
from polyhedge.calibration.marginal import Marginal, OneRadius, conformal_radius
from polyhedge.calibration.online import Online, OnlineRadii
from polyhedge.calibration.radii import (
    Calibration,
    Calibrator,
    FollowingRadii,
    LevelledRadii,
    MarginalRadii,
    OrderedCalibrator,
    PreparedCalibrator,
    PromisesLabels,
    Radii,
    ReadsRows,
    ReadsWeights,
    Rows,
    TargetedCalibrator,
    is_marginal,
    n_followed,
    promises_each_label,
    reads_weights,
    score_tolerance,
)
from polyhedge.calibration.rank import attained_rank, conformal_rank, minimum_samples
from polyhedge.calibration.recent import Recent, RecentRadius
from polyhedge.calibration.this_model import ThisModel, ThisModelRadius, this_model_minimum, this_model_rank
from polyhedge.calibration.weighted import Weighted, WeightedRadii

__all__ = [
    "ByCategory",
    "Calibration",
    "Calibrator",
    "CategoryRadii",
    "FollowingRadii",
    "LevelledRadii",
    "Marginal",
    "MarginalRadii",
    "OneRadius",
    "Online",
    "OnlineRadii",
    "OrderedCalibrator",
    "PreparedCalibrator",
    "PromisesLabels",
    "Radii",
    "ReadsRows",
    "ReadsWeights",
    "Recent",
    "RecentRadius",
    "Rows",
    "TargetedCalibrator",
    "ThisModel",
    "ThisModelRadius",
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
    "is_marginal",
    "minimum_samples",
    "n_followed",
    "promises_each_label",
    "radii_from_state",
    "radii_to_state",
    "reads_weights",
    "score_tolerance",
    "takes_labels",
    "this_model_minimum",
    "this_model_rank",
]

# Radii can be read from a file once they stand here.
_STORED: tuple[type[Any], ...] = (OneRadius, CategoryRadii, ThisModelRadius, WeightedRadii, RecentRadius, OnlineRadii)


def radii_from_state(kind: str, state: Mapping[str, Any]) -> Radii:
    """The radii of this `kind` that `state()` described.

    Examples
    --------
    >>> radii_from_state("marginal", {"radius": 0.5, "alpha": 0.1, "n": 20, "is_grouped": False}).radius
    0.5
    """
    known = _by_kind()
    if kind not in known:
        raise ValueError(f"Radii of the kind {kind!r} are not known; known are {', '.join(known)}.")
    return known[kind].from_state(state)


def radii_to_state(radii: Radii) -> dict[str, Any]:
    """The kind of radii and what `radii_from_state` makes them of again; a ValueError where it would make others.

    Examples
    --------
    >>> radii_to_state(OneRadius(0.5, 0.1, 20))
    {'kind': 'marginal', 'radius': 0.5, 'alpha': 0.1, 'n': 20, 'is_grouped': False}
    """
    known = _by_kind()
    # A subclass, with the kind of its parent or without, may promise something else.
    if known.get(radii.kind) is not type(radii):
        stored = ", ".join(cls.__name__ for cls in known.values())
        raise ValueError(
            f"Radii in a file must be of a type that is read again, one of {stored}, got {type(radii).__name__}: they "
            "cannot be stored. Keep the decider by pickle, or set calibration to one that Polyhedge has, such as "
            "Marginal(), and recalibrate on fresh rows."
        )
    return {"kind": radii.kind, **radii.state()}


def _by_kind() -> dict[str, type[Radii]]:
    return {cls.kind: cls for cls in _STORED}
