"""What a model file claims, held against what can be known without its data."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from polyhedge._support.tolerances import OPTIMAL
from polyhedge.calibration import Calibration, attained_rank
from polyhedge.io.archive import ModelFileError
from polyhedge.learners import LearnResult, Spread
from polyhedge.model import Model
from polyhedge.sets import Shape
from polyhedge.solvers.program import SolverError

_DIGEST = re.compile("[0-9a-f]{64}")
_MOST_AXES = 16
"""Each costs two linear programs."""


def check_claims(model: Model) -> None:
    """Raise where a model claims what no fit could have given.

    No radius of a set must be below every score, a proven bound not above what was reached; names and row numbers
    must make sense. That each radius has a rank among its rows is checked where they are read. Whether the radius of a
    policy is too low only rows could tell.
    """
    sets, record = model.family.sets, model.record
    if sets is not None:
        # Sets grow with the radius, so that the smallest stands for all.
        _check_radius(sets.shape, model.family.set_radius(model.radii.smallest))
    if record.learn_result is not None:
        _check_evidence(record.learn_result, is_scaled=sets is not None and sets.spread is not None)
    _check_rows(model)
    _check_names(record.feature_names)
    if sets is not None and sets.spread is not None:
        _check_spread(sets.spread, sets.shape.n_outcomes)


def check_ranks(calibrations: Sequence[Calibration]) -> None:
    """Every radius must be the score of one of its rows: there must be enough of them for its level."""
    for entry in calibrations:
        try:
            attained_rank(entry.n, entry.alpha)
        except ValueError as error:
            raise ModelFileError(f"The file claims what its calibration rows cannot give: {error}") from error


def checked_digest(text: str) -> str:
    """A fingerprint as SHA-256 gives it."""
    if not isinstance(text, str) or not _DIGEST.fullmatch(text):
        raise ModelFileError("A digest must have 64 hexadecimal digits.")
    return text


def _check_radius(shape: Shape, radius: float) -> None:
    """The set at its radius must hold something, and be of numbers that solvers can handle."""
    axes = np.eye(min(shape.n_outcomes, _MOST_AXES), shape.n_outcomes)
    with np.errstate(all="ignore"):
        try:
            reach = shape.support(np.vstack([axes, -axes]), radius)
        except (SolverError, np.linalg.LinAlgError) as error:
            raise ModelFileError(f"How far the set reaches cannot be computed: {error}") from error
    if np.isnan(reach).any() or (reach == -math.inf).any():
        raise ModelFileError(f"The radius {radius:g} is below the score of every residual: no row can have given it.")


def _check_evidence(result: LearnResult, *, is_scaled: bool) -> None:
    if not (math.isfinite(result.seconds) and result.seconds >= 0) or math.isnan(result.lower_bound):
        raise ModelFileError("What the file says of how the set was learned is not a number.")
    # A set that is scaled by a spread may be better than what is proven for sets of one size.
    margin = OPTIMAL * (1 + abs(result.objective))
    if not is_scaled and result.lower_bound > result.objective + margin:
        raise ModelFileError(
            f"The file says that no set costs less than {result.lower_bound:g}, and that its own costs "
            f"{result.objective:g}."
        )


def _check_rows(model: Model) -> None:
    split, first = model.record.split, model.trail[0].n
    n_own = len(split.learn) + len(split.calibrate)
    if split.n_rows is not None and (first > split.n_rows or split.n_rows > np.iinfo(np.int64).max):
        raise ModelFileError(f"The first radius is said to come from {first} of {split.n_rows} rows.")
    if first > n_own:
        raise ModelFileError(f"The first radius is said to come from {first} rows, and {n_own} have not trained.")


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ModelFileError("Two features have the same name.")


def _check_spread(spread: Spread, n_outcomes: int) -> None:
    if spread.fill.shape != (len(spread.columns) + n_outcomes,):
        raise ModelFileError("The spread must look at its columns and at the prediction of each outcome.")
