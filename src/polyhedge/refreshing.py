"""Newer rows for an old model: the predictor is fitted on some and the radius calibrated on others, the rest stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from polyhedge._frames import as_pandas
from polyhedge._validation import check_alpha
from polyhedge.calibration import Calibrator
from polyhedge.calibration.beside import as_values
from polyhedge.data import GroupSplit, Split, TimeSplit, as_indices, take_rows
from polyhedge.data.ordered import in_order
from polyhedge.data.partition import halve_rows
from polyhedge.doubting import row_hashes
from polyhedge.model import Model, calibrated_radii
from polyhedge.plans.development import Given, refreshed_guard
from polyhedge.predictors import Predictor, as_predictor
from polyhedge.regions import Grid, Guard, RegionFamily, ScaledSet, SetPlan
from polyhedge.rows import (
    check_beside,
    check_rows,
    check_whole,
    generator,
    group_labels,
    in_time,
    n_rows_of,
    ordered,
    outcome_names_of,
    warn_of_level,
)
from polyhedge.solvers.choice import solver_of


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
        beside: ArrayLike | None = None,
    ) -> Self:
        """Fit the predictor on one half of newer rows and calibrate on the other; shape, rules and settings stay.

        This takes a fit of the predictor and no learning. A plan keeps the rules that its contest chose, with laws of
        the newer residuals. The radius is for the present `alpha`. Where nothing is trained all rows calibrate. A
        learned shape is that of residuals of the old predictor: the promise does not depend on it, only how low bounds
        are.

        Rows that calibrate must not have trained or learned in `fit`: these made what stays, and a `DoubtWarning` tells
        of them. Rows on which an earlier `refresh` trained may calibrate now, since nothing of them is left.

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
            that those of these rows must be given here. Without a split in time halves are random.
        parameters : as in `decide`.
        beside : labels or weights of these rows, as in `decide`.
        """
        decider: Any = self
        model, alpha = decider._fitted("refresh"), check_alpha(decider.alpha)
        warn_of_level(alpha)
        check_rows(X, Y, groups, train=train, calibrate=calibrate)
        check_beside(model.radii, X, beside)
        rng = generator(decider.random_state)
        seeds = [int(seed) for seed in rng.integers(2**31, size=2)]
        # A predictor that was chosen among several stays the one that was chosen.
        chosen = decider.predictor if model.schema is None else clone(model.family.predictor.model)

        def make() -> Predictor:
            names = outcome_names_of(model.problem)
            return as_predictor(chosen, model.problem.n_outcomes, random_state=seeds[1], outcome_names=names)

        is_trained = make().needs_training or _is_refitted(model)
        labels = _labels(decider, groups, X)
        if train is None and calibrate is None:
            parts = _halves(_clock(decider.split, times), as_pandas(X), labels, rng, is_trained)
        else:
            parts = _given_parts(train, calibrate, n_rows_of(X), labels, is_trained)
            split = decider.split if times is None else TimeSplit(times=times)
            # A TimeSplit(times=...) knows the times of other rows.
            parts = parts if times is None and getattr(split, "times", None) is not None else ordered(parts, split, X)
        features, outcomes, values = model.features(X), model.outcomes(X, Y), model.values(X, parameters)
        known = np.zeros((len(outcomes), 0)) if values is None else values
        given = Given(model.problem, alpha, make, features, outcomes, known, parts, labels, seeds[0])
        with solver_of(self):
            self.model_ = refreshed(model, given, decider._calibrator, beside, needs_values=values is not None)
        decider._followed_anew()
        own, record = parts.calibrate, self.model_.record
        its_labels = None if labels is None else labels[own]
        is_in_time = in_time(decider.split) or times is not None
        rows = take_rows(features, own), outcomes[own], its_labels, is_in_time
        decider._doubt_radii(self.model_, *rows, kept=record.seen, trained=record.trained)
        return self


def refreshed(model: Model, given: Given, calibrator: Calibrator, beside: Any, *, needs_values: bool) -> Model:
    """The model with what is trained fitted on one part of newer rows, recalibrated on the other.

    `beside` has what the calibrator asks for beside the features, or None; `needs_values` says whether scores depend on
    the problem's parameters, or were asked to be checked with them.
    """
    train, calibrate = given.split.train, given.split.calibrate
    old: Any = model.family
    family = refreshed_guard(old, given) if _is_refitted(model) else _refreshed_sets(model, given)
    radii, digest = calibrated_radii(
        family,
        calibrator,
        take_rows(given.X, calibrate),
        given.Y[calibrate],
        given.alpha,
        None if given.groups is None else given.groups[calibrate],
        given.values[calibrate] if needs_values else None,
        None if beside is None else as_values(beside)[calibrate],
    )
    record = replace(model.record, trained=row_hashes(given.X, given.Y, train) if len(train) else None)
    return replace(model, family=family, record=record).with_radii(radii, digest)


def _labels(decider: Any, groups: ArrayLike | None, X: Any) -> Any:
    """Labels of near-copies: those given, or those in the column of the split."""
    found = groups
    if groups is None and isinstance(decider.split, GroupSplit):
        found = decider.split.labels(as_pandas(X))
    labels = group_labels(found, n_rows_of(X))
    if labels is None and getattr(decider.model_.radii, "is_grouped", False):
        raise ValueError(
            "This decider was calibrated with groups of near-copies, and rows that are dealt one by one would tear "
            "them apart. Give groups=, one label a row."
        )
    return labels


def _clock(split: Any, times: Any) -> TimeSplit | None:
    """How newer rows are ordered in time; None where the split is not in time."""
    how = TimeSplit() if isinstance(split, str) else split if isinstance(split, TimeSplit) else None
    if times is not None:
        return TimeSplit(times=times, gap=0 if how is None else how.gap)
    if how is not None and how.times is not None:
        raise ValueError(
            f"split={split!r} was given the times of other rows. Give times=, one for each of these rows, or refresh "
            "with a TimeSplit that names a column."
        )
    return how


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


def _is_refitted(model: Model) -> bool:
    """Whether the family is the guard of a plan that can be made anew from newer rows."""
    return hasattr(getattr(model.family, "plan", None), "refitted")


def _refreshed_sets(model: Model, given: Given) -> RegionFamily:
    """The learned sets, or the guard of their decisions, around another predictor."""
    sets, predictor, train = getattr(model.family, "sets", None), given.make(), given.split.train
    if not isinstance(sets, ScaledSet):
        raise ValueError("A plan of this kind is made for the residuals of its own predictor. Fit it anew.")
    if not predictor.needs_training:
        return model.family
    predictor.fit(take_rows(given.X, train), given.Y[train])
    moved = replace(sets, predictor=predictor)
    if isinstance(model.family, Guard):
        grid = Grid.of(predictor.predict(take_rows(given.X, train)))
        return Guard(model.problem, predictor, SetPlan(moved, model.family.set_radius(0.0)), grid)
    return moved
