"""Newer rows for an old model: the predictor is fitted on some and the radius calibrated on others, the rest stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from polyhedge._support.frames import as_pandas
from polyhedge._support.validation import check_alpha
from polyhedge.calibration import Calibrator, Radii, minimum_samples
from polyhedge.calibration.labels import as_values, check_row_labels
from polyhedge.data import GroupSplit, Split, TimeSplit, as_indices, take_rows
from polyhedge.data.ordered import clock_for, in_order, in_time
from polyhedge.data.splits import halve_rows
from polyhedge.diagnosing import row_hashes, seen_rows
from polyhedge.diagnostics import Code, Diagnostic
from polyhedge.distributed import distributed_radius, is_dask_frame
from polyhedge.fitting import (
    check_rows,
    check_whole,
    generator,
    group_labels,
    n_rows_of,
    ordered,
    outcome_names_of,
    warn_of_level,
)
from polyhedge.model import Model, calibrated_radii
from polyhedge.monitoring.monitor import EXCHANGE
from polyhedge.planning.development import Given, redeveloped
from polyhedge.predictors.regressor import Predictor, as_predictor, out_of_fold
from polyhedge.predictors.selection import is_auto, is_made_here
from polyhedge.regions import RegionFamily
from polyhedge.solvers.options import solver_of

_LEAST_TO_TRAIN = 2
"""One row is left out of the fit of the other, so that there is a residual."""
_N_FOLDS = 5
"""Folds in which a new predictor is scored against the old one: each sees four fifths of the rows, as in policies."""
_LEVEL = 0.95
"""Share of the new predictor's squared error from which on the old one is level with it: no word is said then."""


class Refreshes:
    """How a fitted decider takes newer rows."""

    def refresh(
        self,
        X: Any,
        Y: Any,
        *,
        train: ArrayLike | None = None,
        calibrate: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        times: Any = None,
        parameters: Mapping[Any, Any] | None = None,
        labels: ArrayLike | None = None,
    ) -> Self:
        """Fit the predictor on one half of newer rows and calibrate on the other; shape, rules and settings stay.

        This takes a fit of the predictor and no learning. A policy keeps the rules that its selection chose, with
        distributions of the newer residuals. The radius is for the present `alpha`. Where nothing is trained all rows
        calibrate. A learned shape is that of residuals of the old predictor: the promise does not depend on it, only
        how low bounds are.

        The old predictor stays, with its policy, if its squared error is lower on those newer training rows that it has
        not seen. The new one is scored there by models that were fitted without the row. Calibration rows take no part
        in this choice. Where some of them trained the old predictor it cannot stay. A `DiagnosticWarning` with the code
        "Refresh" tells of either, unless the two are level.

        Rows that calibrate must not have trained or learned in `fit`: these made what stays, and a `DiagnosticWarning`
        names them. Rows on which an earlier `refresh` trained may calibrate now, since nothing of them is left.

        Parameters
        ----------
        X, Y : newer rows, as in `fit`.
        train, calibrate : index arrays or masks, optional
            The two parts, where they should not be halves. Older rows may train, but must not calibrate.
        groups : (n,) labels, optional
            Near-copies, as in `fit`: a group is in one half, and counts once. With a `GroupSplit` they are read from
            its column; a decider that was calibrated with groups is not refreshed without them.
        times : (n,) numbers or dates, optional
            With a split in time the older half trains, the newer one calibrates, and the gap of a `TimeSplit` is kept
            between them. Times are read from its column; a `TimeSplit(times=...)` knows those of other rows, so
            that those of these rows must be given here. Without a split in time halves are random. `refreshed_split_`
            has the rows of both parts.
        parameters : as in `decide`.
        labels : labels or weights of these rows, as in `decide`.
        """
        decider: Any = self
        model, alpha = decider._fitted("refresh"), check_alpha(decider.alpha)
        warn_of_level(alpha)
        check_rows(X, Y, groups, train=train, calibrate=calibrate)
        check_row_labels(model.radii, X, labels)
        rng = generator(decider.random_state)
        seeds = [int(seed) for seed in rng.integers(2**31, size=2)]
        # A predictor that was chosen among several stays the one that was chosen.
        was_chosen = model.schema is not None or is_auto(decider.predictor)
        chosen = clone(model.family.predictor.model) if was_chosen else decider.predictor
        _check_reader(model, decider.predictor)

        def make() -> Predictor:
            names = outcome_names_of(model.problem)
            return as_predictor(chosen, model.problem.n_outcomes, random_state=seeds[1], outcome_names=names)

        is_trained = make().needs_training or model.family.is_refitted
        grouping = _labels(decider, groups, X)
        if train is None and calibrate is None:
            parts = _halves(_clock(decider.split, times), as_pandas(X), grouping, rng, is_trained)
        else:
            parts = _given_parts(train, calibrate, n_rows_of(X), grouping, is_trained)
            parts = ordered(parts, clock_for(decider.split, times), X)
        _check_sizes(parts, alpha, is_trained)
        features, outcomes, values = model.features(X), model.outcomes(X, Y), model.values(X, parameters)
        known = np.zeros((len(outcomes), 0)) if values is None else values
        given = Given(model.problem, alpha, make, features, outcomes, known, parts, grouping, seeds[0])
        with solver_of(self):
            fresh, told = refreshed(model, given, decider._calibrator, labels, needs_values=values is not None)
        with EXCHANGE:
            self.model_ = fresh
            decider._followed_anew()
        decider.refreshed_split_ = parts
        own, record = parts.calibrate, fresh.record
        its_groups = None if grouping is None else grouping[own]
        is_in_time = in_time(decider.split) or times is not None
        rows = take_rows(features, own), outcomes[own], its_groups, is_in_time
        decider._diagnostic_radii(fresh, *rows, kept=record.seen, trained=record.trained, told=told)
        return self

    def recalibrate(
        self,
        X: Any,
        Y: Any,
        *,
        groups: ArrayLike | None = None,
        times: Any = None,
        parameters: Mapping[Any, Any] | None = None,
        labels: ArrayLike | None = None,
    ) -> Self:
        """Set the radius anew from fresh rows `X` and `Y`, for the present `alpha`; the shape stays.

        `calibrations_` keeps the old radii. The rows must not have been used for training or learning, otherwise the
        guarantee is void, and a `DiagnosticWarning` tells of them. They are taken in the order of `times`, else of the
        column of a `TimeSplit`, otherwise as they come. Labels in `groups` mark rows that are near-copies of each
        other, as in `fit`; with a `GroupSplit` they are read from its column. These groups must be new as well: the
        decider does not keep the labels of `fit`, so it cannot tell a group that it has been trained on.

        A radius is about outcomes alone, so `parameters` are not needed; those that are given are checked. `labels` are
        labels or weights of these rows, as in `decide`.

        Where X is a Dask DataFrame, Y names its outcome columns, in the order of the outcomes where they are not called
        like them; the radius is computed from scores that stay with the workers, and is exactly that of the same rows
        in memory.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
        >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
        >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
        >>> decider = decider.recalibrate(X[400:], Y[400:])
        >>> [entry.n for entry in decider.calibrations_]
        [200, 200]
        """
        decider: Any = self
        model, alpha = decider._fitted("recalibrate"), check_alpha(decider.alpha)
        warn_of_level(alpha)
        if is_dask_frame(X):
            if groups is not None:
                raise ValueError("groups cannot be given for a Dask DataFrame. Recalibrate on one row of each group.")
            if times is not None:
                raise ValueError("times cannot be given for a Dask DataFrame, whose radius depends on no order.")
            if labels is not None:
                raise ValueError(
                    "labels cannot be given for a Dask DataFrame, from which only one radius for all rows can be set. "
                    "Leave it out, or recalibrate on rows in memory."
                )
            with solver_of(self):
                radius, digest = distributed_radius(model, X, list(Y), decider._calibrator, alpha, parameters)
            self._take_over(model, radius, digest)
            decider._diagnostic_size(radius)
            return self
        if groups is None and isinstance(decider.split, GroupSplit):
            groups = decider.split.labels(X)
        check_rows(X, Y, groups)
        values = model.values(X, parameters)
        features, outcomes = model.features(X), model.outcomes(X, Y)
        grouping = group_labels(groups, len(outcomes))
        check_row_labels(decider._calibrator, X, labels)
        labels = None if labels is None else as_values(labels)
        clock = clock_for(decider.split, times)
        if clock is not None and (clock.column is not None or clock.times is not None):
            # What weighs rows by age, or follows them, takes them in the order of time.
            order = in_order(np.arange(len(outcomes)), clock.clock(as_pandas(X), len(outcomes)))
            features, outcomes = take_rows(features, order), outcomes[order]
            grouping, values, labels = (None if each is None else each[order] for each in (grouping, values, labels))
        rows = features, outcomes, alpha, grouping, values, labels
        with solver_of(self):
            radii, digest = calibrated_radii(model.family, decider._calibrator, *rows)
        self._take_over(model, radii, digest)
        own = replace(model, radii=radii)  # another thread may have set others meanwhile
        decider._diagnostic_radii(own, features, outcomes, grouping, in_time(decider.split), kept=seen_rows(model))
        return self

    def _take_over(self, scored: Model, radii: Radii, digest: str) -> None:
        """The radii of the model that scored their rows; an error where another thread has put another one there."""
        decider: Any = self
        with EXCHANGE:  # radii that are set at once must both join the audit trail
            if getattr(vars(self).get("model_"), "family", None) is not scored.family:
                raise RuntimeError(
                    "This decider was fitted or refreshed by another thread while it was recalibrated, so that the new "
                    "radii are not those of its policy or set, and were dropped. Recalibrate once more."
                )
            self.model_ = self.model_.with_radii(radii, digest)
            decider._followed_anew()


def refreshed(
    model: Model, given: Given, calibrator: Calibrator, labels: Any, *, needs_values: bool
) -> tuple[Model, list[Diagnostic]]:
    """The model with what is trained fitted on one part of newer rows, recalibrated on the other; and if it was not.

    `labels` has the labels or weights that the calibrator reads, or None; `needs_values` says whether scores depend on
    the problem's parameters, or were asked to be checked with them.
    """
    train, calibrate = given.split.train, given.split.calibrate
    told, stays = _worse_diagnostic(model, given)
    family = model.family
    if not stays:
        family = (redeveloped if family.is_refitted else _moved)(family, given)
    radii, digest = calibrated_radii(
        family,
        calibrator,
        take_rows(given.X, calibrate),
        given.Y[calibrate],
        given.alpha,
        None if given.groups is None else given.groups[calibrate],
        given.values[calibrate] if needs_values else None,
        None if labels is None else as_values(labels)[calibrate],
    )
    trained = row_hashes(given.X, given.Y, train) if len(train) else None
    if stays and trained is not None and model.record.trained is not None:  # the rows of an earlier refresh stay in use
        trained = np.concatenate([model.record.trained, trained])
    record = replace(model.record, trained=trained)
    return replace(model, family=family, record=record).with_radii(radii, digest), told


def _worse_diagnostic(model: Model, given: Given) -> tuple[list[Diagnostic], bool]:
    """Whether the new predictor does worse on newer training rows that the old one has not seen, and the old one stays.

    Errors are squared, in shares of the variance of each outcome, and summed. No comparison is made where no such row
    is known, or where the new predictor cannot be fitted without a fold. A predictor that calibration rows have trained
    cannot stay: its residuals there are too small.
    """
    train, predictor, seen = given.split.train, given.make(), seen_rows(model)
    prints = row_hashes(given.X, given.Y)
    if not predictor.needs_training or prints is None or seen is None:
        return [], False
    fresh = np.flatnonzero(~np.isin(prints[train], seen))
    if not len(fresh):
        return [], False
    X, Y = take_rows(given.X, train), given.Y[train]
    groups = None if given.groups is None else given.groups[train]
    try:
        centers = out_of_fold(given.make, X, Y, min(_N_FOLDS, len(train)), groups)
    except ValueError:
        return [], False
    size = np.where(Y.std(axis=0) > 0, Y.std(axis=0), 1.0)
    before = model.family.predictor.predict(take_rows(X, fresh))
    old, new = (float((((Y[fresh] - each) / size) ** 2).sum()) for each in (before, centers[fresh]))
    n_known = int(np.isin(prints[given.split.calibrate], seen).sum())
    if old >= new or (n_known and old > _LEVEL * new):
        return [], False
    if old > _LEVEL * new:
        return [], True
    errors = (
        f"squared error on {len(fresh)} newer training rows is {old / new:.0%} of that of a predictor fitted on "
        f"{len(train)} newer rows"
    )
    text = f"the predictor from before stays. Its {errors}. Only the radius is set from newer rows."
    if n_known:
        text = (
            f"the predictor from before was better, and could not stay because {n_known} calibration rows trained it. "
            f"Its {errors}. Leave these rows out."
        )
    return [Diagnostic(Code.REFRESH, f"{Code.REFRESH}: {text} Bring more rows to train on, or fit anew.")], not n_known


def _labels(decider: Any, groups: ArrayLike | None, X: Any) -> Any:
    """Labels of near-copies: those given, or those in the column of the split."""
    given = groups
    if groups is None and isinstance(decider.split, GroupSplit):
        given = decider.split.labels(as_pandas(X))
    labels = group_labels(given, n_rows_of(X))
    if labels is None and decider.model_.radii.is_grouped:
        raise ValueError(
            "This decider was calibrated with groups of near-copies, and rows that are dealt one by one would tear "
            "them apart. Give groups=, one label a row."
        )
    return labels


def _clock(split: Any, times: Any) -> TimeSplit | None:
    """How newer rows are ordered in time; None where the split is not in time."""
    if in_time(split) and clock_for(split, times) is None:
        raise ValueError(
            f"split={split!r} was given the times of other rows. Give times=, one for each of these rows, or refresh "
            "with a TimeSplit that names a column."
        )
    return clock_for(split, times)


def _halves(how: TimeSplit | None, X: Any, labels: Any, rng: np.random.Generator, is_trained: bool) -> Split:
    """Rows to train on and rows to calibrate on, whole groups each; all rows calibrate where nothing is trained."""
    n = n_rows_of(X)
    if not is_trained:
        rows = np.arange(n)
        return Split(rows[:0], rows[:0], rows if how is None else in_order(rows, how.clock(X, n)), n_rows=n)
    if n < 2:
        raise ValueError(f"refresh trains on some rows and calibrates on others, got {n} row(s). Bring more.")
    if how is not None:
        train, calibrate = how.halves(X, n, groups=labels)
    else:
        train, calibrate = halve_rows(n, rng=rng, groups=labels)
        calibrate = np.sort(calibrate)  # drift along the table can only be seen in its order
    return Split(train, train[:0], calibrate, n_rows=n)


def _given_parts(train: Any, calibrate: Any, n: int, labels: Any, is_trained: bool) -> Split:
    if calibrate is None or (is_trained and (train is None or not len(train))):
        raise ValueError(
            "Give train and calibrate together, each with rows (train may be left out where nothing is trained), or "
            "neither, for halves."
        )
    none = np.zeros(0, dtype=np.int64)
    parts = Split(none if train is None else as_indices(train, n), none, as_indices(calibrate, n), n_rows=n)
    check_whole(parts, labels)
    return parts


def _check_reader(model: Model, predictor: Any) -> None:
    """Raise where another predictor was set since than the one that reads the raw columns of the model."""
    is_same = repr(predictor) == model.record.settings.get("predictor")
    if model.schema is None or predictor is None or is_auto(predictor) or is_made_here(predictor) or is_same:
        return
    raise ValueError(
        f"This decider reads raw columns by the predictor that fit has made, and refresh fits that one anew, got "
        f"predictor={predictor!r} since. Call fit to take another predictor."
    )


def _check_sizes(parts: Split, alpha: float, is_trained: bool) -> None:
    """Raise before anything is trained where no radius, or no residual of rows that were left out, can come of it."""
    needed, n_train = minimum_samples(alpha), len(parts.train)
    if len(parts.calibrate) < needed or (is_trained and n_train < _LEAST_TO_TRAIN):
        raise ValueError(
            f"A refresh for alpha={alpha!r} needs at least {needed} newer rows to calibrate and {_LEAST_TO_TRAIN} to "
            f"train with, got {len(parts.calibrate)} and {n_train}. Bring more rows, or raise alpha."
        )


def _moved(family: RegionFamily, given: Given) -> RegionFamily:
    """The same around a predictor that is fitted on newer rows; as it is where none is."""
    predictor, X = given.make(), take_rows(given.X, given.split.train)
    if not predictor.needs_training:
        return family
    predictor.fit(X, given.Y[given.split.train])
    return family.moved(predictor)
