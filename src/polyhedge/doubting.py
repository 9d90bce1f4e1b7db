"""What a careful statistician would say of a fit, as warnings: few rows, ties, drift, rows that were seen before."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhedge._frames import as_pandas
from polyhedge._validation import Array, Indices
from polyhedge.calibration import OneRadius
from polyhedge.data import take_rows
from polyhedge.doubts import (
    Code,
    Doubt,
    drift_along_file,
    drift_between_parts,
    few_rows_doubt,
    groups_doubt,
    one_of_each_group,
    ties_doubt,
)
from polyhedge.model import Model
from polyhedge.regions import Path

__all__ = ["DoubtWarning", "Doubts", "categories", "doubts_of_fit", "row_hashes", "seen_doubt"]

_NOTABLE_OVERLAP = 0.02
"""Share of rows that were seen before beyond which they are no fresh ones: fewer may be alike by chance."""


_NOTABLE_REPEAT = 10
"""Rows that are no repetition by chance where all of them came before: single rows may well be equal."""


class DoubtWarning(UserWarning):
    """A reason to doubt a fit, or what is measured on some rows; `decider.doubts_` keeps those of the fit.

    Examples
    --------
    >>> import warnings
    >>> warnings.filterwarnings("error", category=DoubtWarning)  # a fit that is to be doubted does not pass
    """


class Doubts:
    """What a decider says of its own fit, and of rows that it knows already."""

    doubts_: tuple[Doubt, ...]

    def _doubt(self, model: Model, X: Any, Y: Array, calibrate: Indices, labels: Any, in_time: bool) -> None:
        """Look at the rows of a fit; features as the predictor takes them, outcomes in the problem's order."""
        split = model.record.split
        self.doubts_ = doubts_of_fit(model, X, Y, calibrate, labels, in_time)
        self._seen = row_hashes(X, Y, np.setdiff1d(np.concatenate([split.train, split.learn]), calibrate))
        _warn(self.doubts_, stacklevel=5)

    def _doubt_rows(self, model: Model, X: Any, Y: Any) -> None:
        """Warn where rows that should be fresh have trained or shaped the model."""
        seen = vars(self).get("_seen")
        if seen is not None:
            _warn(seen_doubt(seen, row_hashes(model.features(X), model.outcomes(X, Y))), stacklevel=4)

    def _doubt_fed(self, model: Model, X: Any, Y: Any) -> None:
        """Warn where all rows of a call were fed to `update` before, so that they count twice; keep what is fed."""
        hashes, fed = row_hashes(model.features(X), model.outcomes(X, Y)), vars(self).get("_fed")
        if hashes is None:
            return
        if fed is not None and len(hashes) >= _NOTABLE_REPEAT and np.isin(hashes, fed).all():
            text = (
                f"Fed before: all of these {len(hashes)} rows were fed to update before, and now count twice. Feed "
                "each row once, or give keys=, so that rows that are known are left as they are."
            )
            _warn([Doubt(Code.COPIES, text)], stacklevel=4)
        self._fed = hashes if fed is None else np.concatenate([fed, hashes])


def _warn(doubts: Sequence[Doubt], stacklevel: int) -> None:
    for doubt in doubts:
        warnings.warn(str(doubt), DoubtWarning, stacklevel=stacklevel)


def doubts_of_fit(model: Model, X: Any, Y: Array, calibrate: Indices, labels: Any, in_time: bool) -> tuple[Doubt, ...]:
    """Few calibration rows, tied scores, drift; from rows that the predictor of the model has not seen.

    Parameters
    ----------
    model : fitted on these rows.
    X, Y : features as the predictor takes them, and outcomes (n, d).
    calibrate : the rows that set the radius: with pooled calibration, learning rows too.
    labels : (n,) of near-copies, or None.
    in_time : whether parts follow one another in time.
    """
    radii, said = model.radii, list[Doubt]()
    if isinstance(radii, OneRadius) and radii.kind == "marginal":
        n_units = radii.n if labels is None else len(np.unique(np.asarray(labels)[calibrate]))
        said += few_rows_doubt(n_units, radii.alpha, "rows" if labels is None else "groups")
        if radii.scores is not None:
            # Scores of a path are steps: that many are equal says nothing of the rows.
            said += [] if isinstance(model.family, Path) else ties_doubt(radii.scores, radii.radius)
            said += [] if labels is not None else groups_doubt(radii.scores <= radii.radius, categories(X, calibrate))
    return (*said, *_drift(model, X, Y, labels, in_time))


def categories(X: Any, rows: Indices) -> dict[str, Any]:
    """The columns of a data frame that name kinds, at these rows; none of an array."""
    frame = as_pandas(X)
    if not hasattr(frame, "select_dtypes"):
        return {}
    columns = ((str(name), frame.iloc[:, j]) for j, name in enumerate(frame.columns))  # names may stand twice
    return {name: column.iloc[rows] for name, column in columns if column.dtype.kind not in "fiucMm"}


def _drift(model: Model, X: Any, Y: Array, labels: Any, in_time: bool) -> list[Doubt]:
    names, learn, calibrate = model.problem.outcome_names, model.record.split.learn, model.record.split.calibrate

    def residuals(rows: Indices) -> Array:
        found = Y[rows] - model.family.predictor.predict(take_rows(X, rows))
        return one_of_each_group(found, None if labels is None else np.asarray(labels)[rows])

    if not model.family.trains_on_learning_rows and in_time:
        parts = [
            (name, residuals(rows)) for name, rows in (("learning", learn), ("calibration", calibrate)) if len(rows)
        ]
        return drift_between_parts(parts, (), names)
    # Rows that developed a plan have trained its predictor too: their residuals are smaller than those of new rows.
    unseen = calibrate if model.family.trains_on_learning_rows else np.concatenate([learn, calibrate])
    return drift_along_file(residuals(unseen if in_time else np.sort(unseen)), names)


def row_hashes(X: Any, Y: Array, rows: Indices | None = None) -> NDArray[np.uint64] | None:
    """A number for each row by its features and outcomes; None where they cannot be hashed."""
    import pandas as pd

    try:
        frame = as_pandas(X) if hasattr(as_pandas(X), "iloc") else pd.DataFrame(np.asarray(X))
        frame = frame if rows is None else frame.iloc[rows]
        outcomes = Y if rows is None else Y[rows]
        hashes = [pd.util.hash_pandas_object(part, index=False) for part in (frame, pd.DataFrame(outcomes))]
    except (TypeError, ValueError):
        return None
    # Other factors for the two, so that equal parts do not cancel.
    return np.asarray(3 * hashes[0].to_numpy() + 5 * hashes[1].to_numpy(), dtype=np.uint64)


def seen_doubt(seen: NDArray[np.uint64], hashes: NDArray[np.uint64] | None) -> list[Doubt]:
    """Whether rows trained or shaped the model: then nothing that is measured or promised with them can be trusted."""
    if hashes is None or not len(hashes):
        return []
    share = float(np.isin(hashes, seen).mean())
    if share <= _NOTABLE_OVERLAP:
        return []
    return [
        Doubt(
            Code.SEEN,
            f"{Code.SEEN}: {share:.0%} of these rows trained or shaped the model. Coverage measured or promised with "
            "them is not to be trusted. Use rows that it has not seen.",
        )
    ]
