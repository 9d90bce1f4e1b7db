"""A fitted model on newer rows: a refreshed predictor with new radii, or new radii alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.frames import as_pandas, is_dask_frame
from polyhedge._support.validation import check_alpha
from polyhedge._support.warnings import Code
from polyhedge.calibration import Calibrator, Radii, minimum_samples
from polyhedge.data import Split, TimeSplit, as_indices
from polyhedge.data.splits import HALVES, clock_for, in_order, in_time, partition_rows
from polyhedge.diagnostics import Diagnostic, diagnostics_of_new_radii, diagnostics_of_size, row_hashes, seen_rows
from polyhedge.distributed import distributed_radius
from polyhedge.fitting import check_whole, generator, labels_of_groups, ordered, warn_of_level
from polyhedge.model import Model, calibrated_radii, rows_that_count
from polyhedge.planning.development import Development, redeveloped
from polyhedge.predictors.recipes import is_auto, is_made_here
from polyhedge.predictors.regressor import Predictor, as_predictor, out_of_fold
from polyhedge.problems.checks import is_named
from polyhedge.rows import Rows, as_values, check_row_labels, check_rows, n_rows_of, raw_values

_LEAST_TO_TRAIN = 2
"""One row is left out of the fit of the other, so that there is a residual."""


def recalibrated(
    settings: Any,
    model: Model,
    calibrator: Calibrator,
    X: Any,
    Y: Any,
    groups: ArrayLike | None = None,
    times: Any = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> tuple[Radii, str, tuple[Diagnostic, ...]]:
    """Radii of a model from fresh rows, a digest of these, and diagnostics; see `RobustDecider.recalibrate`."""
    alpha = check_alpha(settings.alpha)
    warn_of_level(alpha, stacklevel=4)
    if is_dask_frame(X):
        if any(part is not None for part in (groups, times, labels)):
            raise ValueError(
                "groups, times and labels cannot be given for a Dask DataFrame, from which only one radius for all "
                "rows can be set. Leave them out, or recalibrate on rows in memory."
            )
        radius, digest = distributed_radius(model, X, list(Y), calibrator, alpha, parameters)
        return radius, digest, tuple(diagnostics_of_size(radius))
    check_rows(X, Y, groups)
    check_row_labels(calibrator, X, labels)
    rows = model.read(X, Y, parameters, to_score=True)
    own_groups = labels_of_groups(settings, groups, X, len(rows), labels)
    rows = replace(rows, groups=own_groups, labels=raw_values(calibrator, X) if labels is None else as_values(labels))
    clock = clock_for(settings.split, times)
    if clock is not None and (clock.column is not None or clock.times is not None):
        # Radii that weigh rows by age, or follow them, take them in the order of time.
        rows = rows.take(in_order(np.arange(len(rows)), clock.clock(as_pandas(X), len(rows))))
    rows = rows.take(rows_that_count(model.family, calibrator, rows))
    radii, digest = calibrated_radii(model.family, calibrator, rows, alpha)
    found = diagnostics_of_new_radii(replace(model, radii=radii), rows, in_time(settings.split), seen_rows(model))
    return radii, digest, found


def refreshed(
    settings: Any,
    model: Model,
    calibrator: Calibrator,
    X: Any,
    Y: Any,
    train: ArrayLike | None = None,
    calibrate: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    times: Any = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> tuple[Model, Split, tuple[Diagnostic, ...]]:
    """The model with its predictor fitted on one part of newer rows, calibrated on the other; parts, diagnostics.

    Arguments as in `RobustDecider.refresh`.
    """
    alpha = check_alpha(settings.alpha)
    warn_of_level(alpha, stacklevel=4)
    check_rows(X, Y, groups, train=train, calibrate=calibrate)
    check_row_labels(model.radii, X, labels)
    rng = generator(settings.random_state)
    seed, predictor_seed = (int(each) for each in rng.integers(2**31, size=2))
    make = _same_predictor(settings.predictor, model, predictor_seed)
    is_trained = make().needs_training or model.family.is_refitted
    own_groups = labels_of_groups(settings, groups, X, n_rows_of(X), labels)
    if own_groups is None and model.radii.is_grouped:
        raise ValueError(
            "This decider was calibrated with groups of near-copies, and rows that are dealt one by one would tear "
            "them apart. Give groups=, one label a row."
        )
    if train is None and calibrate is None:
        split = _halves(settings.split, times, as_pandas(X), own_groups, rng, is_trained)
    else:
        if calibrate is None or (is_trained and not np.size(() if train is None else train)):
            raise ValueError(
                "Give train and calibrate together, each with rows (train may be left out where nothing is trained), "
                "or neither, for halves."
            )
        none, n = np.zeros(0, dtype=np.int64), n_rows_of(X)
        split = Split(none if train is None else as_indices(train, n), none, as_indices(calibrate, n), n_rows=n)
        check_whole(split, own_groups)
        split = ordered(split, clock_for(settings.split, times), X)
    needed, n_train = minimum_samples(alpha), len(split.train)
    if len(split.calibrate) < needed or (is_trained and n_train < _LEAST_TO_TRAIN):
        raise ValueError(
            f"A refresh for alpha={alpha!r} needs at least {needed} newer rows to calibrate and {_LEAST_TO_TRAIN} to "
            f"train with, got {len(split.calibrate)} and {n_train}. Bring more rows, or raise alpha."
        )
    rows = replace(model.read(X, Y, parameters, labels, to_score=True), groups=own_groups)
    about_predictor, stays = _keeps_predictor(model, make, rows, split)
    family, predictor, train_rows = model.family, make(), rows.take(split.train)
    if family.is_refitted and not stays:
        family = redeveloped(family, Development(family.problem, alpha, make, rows, split, seed))
    elif predictor.needs_training and not stays:
        family = family.moved(predictor.fit(train_rows.features, train_rows.Y))
    own, trained = rows.take(split.calibrate), row_hashes(train_rows) if n_train else None
    own = own.take(rows_that_count(family, calibrator, own))
    radii, digest = calibrated_radii(family, calibrator, own, alpha)
    if stays and trained is not None and model.record.trained is not None:  # rows of an earlier refresh stay in use
        trained = np.concatenate([model.record.trained, trained])
    record = replace(model.record, trained=trained)
    fresh = replace(model, family=family, record=record).with_radii(radii, digest)
    is_in_time = in_time(settings.split) or times is not None
    found = diagnostics_of_new_radii(fresh, own, is_in_time, record.seen, record.trained)
    return fresh, split, (*about_predictor, *found)


def _same_predictor(predictor: Any, model: Model, seed: int) -> Callable[[], Predictor]:
    """Gives new predictors of the kind that the model has; a choice among several is not made again."""
    is_same = repr(predictor) == model.record.settings.get("predictor")
    is_ours = predictor is None or is_auto(predictor) or is_made_here(predictor)
    if model.schema is not None and not is_ours and not is_same:
        raise ValueError(
            f"This decider reads raw columns by the predictor that fit has made, and refresh fits that one again, got "
            f"predictor={predictor!r} since. Call fit to take another predictor."
        )
    fitted: Any = model.family.predictor
    template = fitted.template if model.schema is not None or is_auto(predictor) else predictor
    names = tuple(model.problem.outcome_names) if is_named(model.problem) else ()
    return partial(as_predictor, template, model.problem.n_outcomes, random_state=seed, outcome_names=names)


def _halves(split: Any, times: Any, X: Any, groups: Any, rng: np.random.Generator, is_trained: bool) -> Split:
    """Rows to train on and rows to calibrate on, whole groups each; all rows calibrate if nothing is trained."""
    how: TimeSplit | None = clock_for(split, times)
    if in_time(split) and how is None:
        raise ValueError(
            f"split={split!r} was given the times of other rows. Give times=, one for each of these rows, or refresh "
            "with a TimeSplit that names a column."
        )
    n = n_rows_of(X)
    if not is_trained:
        rows = np.arange(n)
        return Split(rows[:0], rows[:0], rows if how is None else in_order(rows, how.clock(X, n)), n_rows=n)
    if how is not None:
        train, calibrate = how.halves(X, n, groups=groups)
    else:
        halves = partition_rows(n, HALVES, rng=rng, groups=groups)  # in the order of the table, where drift can be seen
        train, calibrate = halves.learn, halves.calibrate
    return Split(train, train[:0], calibrate, n_rows=n)


def _keeps_predictor(
    model: Model, make: Callable[[], Predictor], rows: Rows, split: Split
) -> tuple[list[Diagnostic], bool]:
    """Whether the old predictor stays: its squared error is lower on newer training rows that it has not seen.

    Errors are in units of the variance of each outcome, and summed. The new predictor is cross-fitted. There is no
    comparison if no such row is known, or if the new predictor cannot be fitted without a fold. A predictor that
    calibration rows have trained cannot stay: its residuals there are too small.
    """
    prints, seen = row_hashes(rows), seen_rows(model)
    if not make().needs_training or prints is None or seen is None:
        return [], False
    fresh, train = np.flatnonzero(~np.isin(prints[split.train], seen)), rows.take(split.train)
    if not len(fresh):
        return [], False
    try:  # each fold leaves four fifths of the rows, as in the development of policies
        centers = out_of_fold(make, train.features, train.Y, min(5, len(train)), train.groups)
    except ValueError:
        return [], False
    size = np.where(train.Y.std(axis=0) > 0, train.Y.std(axis=0), 1.0)
    before = model.family.predictor.predict(train.take(fresh).features)
    old, new = (float((((train.Y[fresh] - each) / size) ** 2).sum()) for each in (before, centers[fresh]))
    n_known, are_level = int(np.isin(prints[split.calibrate], seen).sum()), old > 0.95 * new
    if old >= new or are_level:
        return [], old < new and not n_known
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
    return [Diagnostic(Code.REFRESH, f"{Code.REFRESH}: {text} Bring more rows to train on, or fit again.")], not n_known
