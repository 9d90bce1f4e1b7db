"""Learners that only the study needs: Corollary 1 (`miqcp`) and grids of rotated boxes (`boxes`)."""

from __future__ import annotations

import numpy as np

from polyhedge.learners import Samples
from polyhedge.robust import decide_knowing

__all__ = ["nominal_cost"]


def nominal_cost(samples: Samples) -> float:
    """Mean cost of deciding as if the predictions were true: the zero of the premium."""
    return float(np.nanmean(decide_knowing(samples.problem, samples.centers)[1]))
