"""What a careful statistician would say of a fit, as warnings: few rows, ties, drift, copies, rows seen before."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhedge._support.frames import as_pandas
from polyhedge._support.validation import Array, Indices
from polyhedge._support.warnings import CodedWarning
from polyhedge.calibration import MarginalRadii, Radii, is_marginal
from polyhedge.data import take_rows
from polyhedge.diagnostics import (
    Code,
    Diagnostic,
    coverage_diagnostic,
    drift_along_file,
    drift_between_parts,
    expected_cost_diagnostic,
    few_rows_diagnostic,
    groups_diagnostic,
    one_of_each_group,
    ties_diagnostic,
)
from polyhedge.evaluation import Proportion, RowMeasures
from polyhedge.model import Model, Prints
from polyhedge.scored import scored_at_several

__all__ = [
    "Diagnoses",
    "DiagnosticWarning",
    "categories",
    "chosen_diagnostic",
    "copies_diagnostic",
    "diagnostics_of_evaluation",
    "diagnostics_of_fit",
    "diagnostics_of_radii",
    "row_hashes",
    "seen_diagnostic",
    "seen_rows",
]

_NOTABLE_OVERLAP = 0.02
"""Share of rows that were seen before beyond which they are no fresh ones: fewer may be alike by chance."""


_NOTABLE_REPEAT = 10
"""Rows that are no repetition by chance where all of them came before: single rows may well be equal."""


class DiagnosticWarning(CodedWarning, UserWarning):
    """A reason to diagnostic a fit, or what is measured on some rows; `decider.diagnostics_` keeps those of the fit.

    Parameters
    ----------
    text : the warning as it is shown.
    code : what the diagnostic is about, such as "Few rows" or "Drift", for programs; None where none was given.

    Examples
    --------
    >>> import warnings
    >>> warnings.filterwarnings("error", category=DiagnosticWarning)  # a fit that is to be questioned does not pass
    """


class Diagnoses:
    """What a decider says of its own fit and calibration, and of rows that it knows already."""

    diagnostics_: tuple[Diagnostic, ...]

    def _diagnostic(
        self, model: Model, X: Any, Y: Array, calibrate: Indices, labels: Any, in_time: bool, said: Sequence[Diagnostic]
    ) -> None:
        """Look at the rows of a fit; features as the predictor takes them, outcomes in the problem's order.

        `said` is what raw rows have told already.
        """
        diagnostics = (*said, *diagnostics_of_fit(model, X, Y, calibrate, labels, in_time))
        _warn(diagnostics, stacklevel=5)
        # Told when it is used: a search fits in its folds on rows that other folds have scored, which does no harm.
        self.diagnostics_ = (*chosen_diagnostic(scored_at_several(self), row_hashes(X, Y, calibrate)), *diagnostics)

    def _diagnostic_radii(
        self,
        model: Model,
        X: Any,
        Y: Array,
        labels: Any,
        in_time: bool,
        *,
        kept: Prints | None,
        trained: Prints | None = None,
        told: Sequence[Diagnostic] = (),
    ) -> None:
        """Look at rows that set radii anew: features as the predictor takes them, outcomes in the problem's order.

        `kept` are rows that made what stays of the model, `trained` those that were given with these to train on;
        `told` are diagnostics that are known already.
        """
        hashes = row_hashes(X, Y)
        about = [*diagnostics_of_radii(model, X, labels), *_drift_within(model, X, Y, labels, in_time)]
        chosen = chosen_diagnostic(scored_at_several(self), hashes)
        self.diagnostics_ = (
            *told,
            *chosen,
            *seen_diagnostic(kept, hashes),
            *copies_diagnostic(hashes, trained, labels),
            *about,
        )
        _warn(self.diagnostics_, stacklevel=4)

    def _diagnostic_size(self, radii: Radii) -> None:
        """Look at radii whose rows are elsewhere."""
        self.diagnostics_ = tuple(_few_rows(radii, radii.n, "rows"))
        _warn(self.diagnostics_, stacklevel=4)

    def _diagnostic_rows(self, model: Model, X: Any, Y: Any) -> None:
        """Warn where rows that should be fresh have trained or shaped the model."""
        seen = seen_rows(model)
        if seen is not None:
            _warn(seen_diagnostic(seen, row_hashes(model.features(X), model.outcomes(X, Y))), stacklevel=4)

    def _diagnostic_choice(self) -> None:
        """Warn that rows which chose the settings have calibrated what is to be used."""
        _warn(
            [diagnostic for diagnostic in vars(self).get("diagnostics_", ()) if diagnostic.code is Code.CHOSEN],
            stacklevel=4,
        )

    def _diagnostic_fed(self, model: Model, X: Any, Y: Any) -> None:
        """Warn where all rows of a call were fed to `update` before, so that they count twice; keep what is fed."""
        hashes, fed = row_hashes(model.features(X), model.outcomes(X, Y)), vars(self).get("_fed")
        if hashes is None:
            return
        if fed is not None and len(hashes) >= _NOTABLE_REPEAT and np.isin(hashes, fed).all():
            text = (
                f"Fed before: all of these {len(hashes)} rows were fed to update before, and now count twice. Feed "
                "each row once, or give keys=, so that rows that are known are left as they are."
            )
            _warn([Diagnostic(Code.COPIES, text)], stacklevel=4)
        self._fed = hashes if fed is None else np.concatenate([fed, hashes])


def _warn(diagnostics: Sequence[Diagnostic], stacklevel: int) -> None:
    for diagnostic in diagnostics:
        warnings.warn(DiagnosticWarning(str(diagnostic), diagnostic.code), stacklevel=stacklevel)


def diagnostics_of_fit(
    model: Model, X: Any, Y: Array, calibrate: Indices, labels: Any, in_time: bool
) -> tuple[Diagnostic, ...]:
    """Copies, few calibration rows, tied scores, drift; from rows that the predictor of the model has not seen.

    Parameters
    ----------
    model : fitted on these rows.
    X, Y : features as the predictor takes them, and outcomes (n, d).
    calibrate : the rows that set the radius: with pooled calibration, learning rows too.
    labels : (n,) of near-copies, or None.
    in_time : whether parts follow one another in time.
    """
    own = None if labels is None else np.asarray(labels)[calibrate]
    copies = copies_diagnostic(row_hashes(X, Y, calibrate), model.record.seen, own)
    about = diagnostics_of_radii(model, take_rows(X, calibrate), own)
    return (*copies, *about, *_drift(model, X, Y, labels, in_time))


def diagnostics_of_radii(model: Model, X: Any, labels: Any) -> list[Diagnostic]:
    """Few calibration rows, tied scores, categories that are covered less often; features and labels of these rows."""
    radii = model.radii
    if not (isinstance(radii, MarginalRadii) and radii.is_marginal):
        return []
    n_units, unit = (radii.n, "rows") if labels is None else (len(np.unique(labels)), "groups")
    said = _few_rows(radii, n_units, unit)
    if radii.scores is not None:
        # Scores of a path are steps: that many are equal says nothing of the rows.
        said += [] if model.family.scores_are_steps else ties_diagnostic(radii.scores, radii.radius, model.guarantee)
        said += [] if labels is not None else groups_diagnostic(radii.scores <= radii.radius, categories(X))
    return said


def diagnostics_of_evaluation(
    model: Model, coverage: Proportion, measured: RowMeasures, n_units: int, labels: Any = None
) -> list[Diagnostic]:
    """Coverage that is too low or notably too high, and expected costs that are off, on rows that were not used.

    Parameters
    ----------
    model, measured : what decided, and what happened row by row.
    coverage : of rows that are independent of each other.
    n_units : independent rows or groups that set the radius.
    labels : (N,) of near-copies, or None.
    """
    told = coverage_diagnostic(coverage, n_units, model.radii.alpha) if is_marginal(model.radii) else []
    return [*told, *expected_cost_diagnostic(measured.expected, measured.realised, labels)]


def _few_rows(radii: Radii, n_units: int, unit: str) -> list[Diagnostic]:
    return few_rows_diagnostic(n_units, radii.alpha, unit) if is_marginal(radii) else []


def categories(X: Any, rows: Indices | None = None) -> dict[str, Any]:
    """The columns of a data frame that name kinds, at these rows or at all; none of an array."""
    frame = as_pandas(X)
    if not hasattr(frame, "select_dtypes"):
        return {}
    frame = frame if rows is None else frame.iloc[rows]
    columns = ((str(name), frame.iloc[:, j]) for j, name in enumerate(frame.columns))  # names may stand twice
    return {name: column for name, column in columns if column.dtype.kind not in "fiucMm"}


def _drift(model: Model, X: Any, Y: Array, labels: Any, in_time: bool) -> list[Diagnostic]:
    names, learn, calibrate = model.problem.outcome_names, model.record.split.learn, model.record.split.calibrate

    def residuals(rows: Indices) -> Array:
        predicted = model.family.predictor.predict(take_rows(X, rows))
        return one_of_each_group(Y[rows] - predicted, None if labels is None else np.asarray(labels)[rows])

    # Rows that developed a policy have trained its predictor too: their residuals are smaller than those of new rows.
    if in_time and model.family.trains_on_learning_rows:
        return _between_halves(residuals(calibrate), names)
    if in_time:
        parts = [
            (name, residuals(rows)) for name, rows in (("learning", learn), ("calibration", calibrate)) if len(rows)
        ]
        return drift_between_parts(parts, (), names)
    unseen = calibrate if model.family.trains_on_learning_rows else np.concatenate([learn, calibrate])
    return drift_along_file(residuals(np.sort(unseen)), names)


def _drift_within(model: Model, X: Any, Y: Array, labels: Any, in_time: bool) -> list[Diagnostic]:
    """Whether the first half of calibration rows differs from the second."""
    residuals = one_of_each_group(Y - model.family.predictor.predict(X), labels)
    if not in_time:
        return drift_along_file(residuals, model.problem.outcome_names)
    return _between_halves(residuals, model.problem.outcome_names)


def _between_halves(residuals: Array, names: Sequence[str]) -> list[Diagnostic]:
    """Whether the older half of calibration rows differs from the newer one."""
    half = len(residuals) // 2
    parts = [("older half", residuals[:half]), ("newer half of the calibration", residuals[half:])]
    return drift_between_parts(parts, (), names)


def row_hashes(X: Any, Y: Array, rows: Indices | None = None) -> Prints | None:
    """A number for each row by its features and outcomes; None where they cannot be hashed."""
    import pandas as pd

    try:
        features = as_pandas(X)
        frame = pd.DataFrame(features if hasattr(features, "iloc") else np.asarray(features))
        frame = frame if rows is None else frame.iloc[rows]
        # 3 and 3.0 are one number, whatever a column is made of elsewhere.
        frame = frame.astype(dict.fromkeys(_whole_numbers(frame), np.float64))
        outcomes = Y if rows is None else Y[rows]
        hashes = [pd.util.hash_pandas_object(part, index=False) for part in (frame, pd.DataFrame(outcomes))]
    except (TypeError, ValueError):
        return None
    # Other factors for the two, so that equal parts do not cancel.
    return np.asarray(3 * hashes[0].to_numpy() + 5 * hashes[1].to_numpy(), dtype=np.uint64)


def _whole_numbers(frame: Any) -> list[Any]:
    """Columns of whole numbers; none where names stand twice."""
    return [name for name, kind in frame.dtypes.items() if kind.kind in "iu"] if frame.columns.is_unique else []


def seen_rows(model: Model) -> Prints | None:
    """The rows that trained, learned or chose anything in the model; None where that is not known."""
    known = [prints for prints in (model.record.seen, model.record.trained) if prints is not None]
    return np.concatenate(known) if known else None


def seen_diagnostic(seen: Prints | None, hashes: Prints | None) -> list[Diagnostic]:
    """Whether rows trained or shaped the model: then nothing that is measured or promised with them can be trusted."""
    if seen is None or hashes is None or not len(hashes):
        return []
    share = float(np.isin(hashes, seen).mean())
    if share <= _NOTABLE_OVERLAP:
        return []
    return [
        Diagnostic(
            Code.SEEN,
            f"{Code.SEEN}: {share:.0%} of these rows trained or shaped the model. Coverage measured or promised with "
            "them is not to be trusted. Use rows that it has not seen.",
        )
    ]


def chosen_diagnostic(scored: Prints, hashes: Prints | None) -> list[Diagnostic]:
    """Whether calibration rows have scored several settings: a radius from rows that chose is too small."""
    share = 0.0 if hashes is None or not len(hashes) else float(np.isin(hashes, scored).mean())
    if share <= _NOTABLE_OVERLAP:
        return []
    return [
        Diagnostic(
            Code.CHOSEN,
            f"{Code.CHOSEN}: {share:.0%} of the calibration rows have scored several settings. What they chose has a "
            "lower bound on them than on new rows. recalibrate on rows that have not, or fit with such rows as "
            "calibrate= (and learn=, where these calibrate too).",
        )
    ]


def copies_diagnostic(calibrate: Prints | None, others: Prints | None, labels: Any) -> list[Diagnostic]:
    """Whether calibration rows are copies of rows that trained or learned; without groups, also of one another."""
    if calibrate is None or not len(calibrate):
        return []
    is_copy = np.zeros(len(calibrate), dtype=bool) if others is None else np.isin(calibrate, others)
    if labels is None:
        _, place, count = np.unique(calibrate, return_inverse=True, return_counts=True)
        is_copy |= count[place] > 1
    if is_copy.mean() <= _NOTABLE_OVERLAP:
        return []
    return [
        Diagnostic(
            Code.COPIES,
            f"{Code.COPIES}: {is_copy.mean():.0%} of the calibration rows are equal to another row in every column. "
            "Copies in two parts make a model look better than it is. Leave them out, or give groups=, one label for "
            "each row and its copies; if they are separate events, all is well.",
        )
    ]
