"""From rows to the guard of a policy: which rows develop it, which calibrate it, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration import minimum_samples
from polyhedge.data import Split, take_rows
from polyhedge.data.splits import IndexArray, evenly_chosen, fold_of
from polyhedge.planning.margin_path import fit_path
from polyhedge.planning.margins import takes_margins
from polyhedge.planning.residual_distributions import MOST_POINTS, DevelopmentRows
from polyhedge.planning.selection import fit_policy
from polyhedge.planning.user_policy import fit_user_policy, is_trained_here
from polyhedge.predictors.regressor import Predictor, out_of_fold
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.regions import CostGuard, MarginPath, Policy, RegionFamily
from polyhedge.robust import decide_knowing
from polyhedge.robust.threads import one_blas_thread
from polyhedge.rows import Rows

# Each predictor sees four fifths of the rows, and some rows are left to say how far it is off.
_N_FOLDS, _ROWS_A_FOLD = 5, 10
_FEW_ROWS = 5
"""Rows at which a problem is tried before policies are made: where none has a solution, the problem is at fault."""
_MOST_ROWS = 10_000
"""Development rows that forests of distributions are grown on at most, evenly chosen: a second each, a file of a
megabyte."""
FEWEST_FORWARD = 150
"""Rows below which folds look both ways: predictors of a third of fewer say little about one of all."""


@dataclass(frozen=True, eq=False)
class Development:
    """What a policy is developed from.

    Attributes
    ----------
    problem, alpha : what is decided, and the level of its promise.
    make : gives a new predictor that is not fitted.
    rows, split : all rows, and their parts.
    seed : of forests and resamplings.
    in_time : whether the parts of the split, and the rows within each, follow one another in time.
    """

    problem: DecisionProblem
    alpha: float
    make: Callable[[], Predictor]
    rows: Rows
    split: Split
    seed: int
    in_time: bool = False


def planned_guard(given: Development, policy: Any, caution: float) -> tuple[CostGuard | MarginPath, int, IndexArray]:
    """The guard of the best policy (or of the user's policy), how many rows made it, and those that calibrate it.

    Where constraints are uncertain, a margin on the cost cannot repair a decision that breaks one. The guard is then a
    path of policies with growing margins.

    Training and learning rows develop it: the predictor is fitted on all of them, and policies are made from
    predictions of models that had not seen the row. Where calibration rows are too few for the level, learning rows
    calibrate too, unless a predictor or policy came fitted: learning rows may have made it. Where the split is in time,
    what is chosen is scored by earlier rows alone; distributions for use look both ways, to have more rows.
    """
    if given.problem.constraint_names and policy is None and not takes_margins(given.problem):
        raise ValueError(
            'guarantee="cost" plans margins for uncertain constraints where the cost is a sum of maxima of functions '
            "that are affine in the outcome and parameters enter linearly, and this problem is of another kind. Use "
            'guarantee="outcome", give a learner, or with recourse write them in recourse_constraints.'
        )
    split = given.split
    develop, calibrate = parts_of_policy(split, policy, given.alpha, trained=given.make().needs_training)
    predictor, rows, made_of = _predicted(given, develop)
    calibrate = calibrate[~np.isin(calibrate, made_of)]
    _check_solvable(given.problem, rows)
    is_forward = given.in_time and policy is None and made_of is develop
    scored = _forward(given, develop, rows) if is_forward else rows
    if given.problem.constraint_names and policy is None:
        path = fit_path(given.problem, rows, given.alpha, caution, given.seed, scored.thinned(MOST_POINTS))
        return MarginPath(given.problem, predictor, path), len(rows), calibrate
    frozen: Policy
    if policy is None:
        frozen = fit_policy(given.problem, rows, given.alpha, caution, given.seed, scored)
    else:
        data = given.rows.features, given.rows.Y, split.train
        frozen = fit_user_policy(given.problem, policy, rows, given.alpha, data, given.seed)
    return CostGuard(given.problem, predictor, frozen), len(rows), calibrate


def parts_of_policy(split: Split, policy: Any, alpha: float, *, trained: bool) -> tuple[IndexArray, IndexArray]:
    """Rows that develop a policy and rows that calibrate it; `trained`: whether the predictor is trained here."""
    may_pool = trained and (policy is None or is_trained_here(policy))
    # Learning rows calibrate where calibration rows cannot keep the level and training rows are enough to plan with.
    if may_pool and len(split.calibrate) < minimum_samples(alpha) and len(split.train) >= _N_FOLDS * _ROWS_A_FOLD:
        return split.train, np.concatenate([split.learn, split.calibrate])
    return np.concatenate([split.train, split.learn]) if trained else split.learn, split.calibrate


def redeveloped(family: RegionFamily, given: Development) -> RegionFamily:
    """The guard or path with its predictor fitted on newer rows, and the same rules on distributions from these.

    Nothing is chosen again. The training rows of `given` develop it, and its calibration rows are left for the radius.
    """
    predictor, rows, _ = _predicted(given, given.split.train)
    with one_blas_thread():
        return family.refitted(predictor, rows, given.seed)


def _check_solvable(problem: DecisionProblem, rows: DevelopmentRows) -> None:
    """Raise if, even for outcomes equal to the predictions, none of a few rows has a best decision."""
    few = evenly_chosen(len(rows), _FEW_ROWS)
    costs = decide_knowing(problem, rows.centers[few], rows.values[few] if problem.parameters else None)[1]
    if not np.isfinite(costs).any():
        raise NoSolutionError(
            f"At the prediction {rows.centers[few[0]].round(4).tolist()} and others no decision is best: none meets "
            f"the constraints{' of both stages' if problem.has_recourse else ''}, or the cost can be lowered without "
            "limit. Relax the constraints, bound the decision or check signs."
        )


def _predicted(given: Development, develop: IndexArray) -> tuple[Predictor, DevelopmentRows, IndexArray]:
    """The predictor for use, development rows with out-of-sample predictions, and the numbers of these rows.

    They are other rows than `develop` if the predictor cannot be fitted without a fold of them.
    """
    predictor, own = given.make(), given.rows.take(develop)
    if not predictor.needs_training:
        centers = predictor.predict(own.features)
    else:
        try:
            centers = out_of_fold(given.make, own.features, own.Y, _N_FOLDS, own.groups, own.weights)
            predictor = predictor.fit(own.features, own.Y, own.weights)
        except ValueError as error:
            return _from_learning_rows(given, error)
    return predictor, _development_rows(own, centers, fold_of(len(own), _N_FOLDS, own.groups)), develop


def _from_learning_rows(given: Development, error: ValueError) -> tuple[Predictor, DevelopmentRows, IndexArray]:
    warn(
        Code.NO_FOLDS,
        f"The predictor cannot be fitted without a fold of the rows ({error}), so the policy is made from the learning "
        "rows alone. A frozen predictor does so without this warning.",
        stacklevel=5,
    )
    train, learn = given.rows.take(given.split.train), given.rows.take(given.split.learn)
    predictor = given.make().fit(train.features, train.Y, train.weights)
    centers, folds = predictor.predict(learn.features), fold_of(len(learn), _N_FOLDS, learn.groups)
    return predictor, _development_rows(learn, centers, folds), given.split.learn


def _forward(given: Development, develop: IndexArray, rows: DevelopmentRows) -> DevelopmentRows:
    """The development rows with predictions and folds that look back only; `rows` where they are too few for that."""
    own = given.rows.take(develop)
    folds = forward_folds(len(own), own.groups)
    if len(own) < FEWEST_FORWARD or len(np.unique(folds)) == 1:
        return rows
    if not given.make().needs_training:
        return _development_rows(own, given.make().predict(own.features), folds, in_time=True)
    try:
        centers = forward_predictions(given.make, own.features, own.Y, folds, own.groups, own.weights)
    except ValueError:  # a predictor that takes four fifths of the rows and not a third of them
        return rows
    return _development_rows(own, centers, folds, in_time=True)


def _development_rows(rows: Rows, centers: Array, blocks: Indices, *, in_time: bool = False) -> DevelopmentRows:
    kept = evenly_chosen(len(rows), _MOST_ROWS)
    own = rows.take(kept)
    values = np.zeros((len(own), 0)) if own.parameters is None else own.parameters
    return DevelopmentRows(own.features, centers[kept], own.Y, values, blocks[kept], in_time)


def forward_folds(n: int, groups: Any = None) -> Indices:
    """The fold (n,) of each of n rows in time order; a group counts as being at the time of its last row.

    Rows are cut into six equal parts, of which the first two are the first fold: it is only learned from.

    Examples
    --------
    >>> forward_folds(12)
    array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    """
    last = np.arange(n)
    if groups is not None:
        labels, its_label = np.unique(groups, return_inverse=True)
        last_of = np.zeros(len(labels), dtype=np.int64)
        np.maximum.at(last_of, its_label, np.arange(n))
        last = last_of[its_label]
    return np.asarray(np.maximum(6 * last // n - 1, 0))


def forward_predictions(
    make: Callable[[], Predictor], X: Any, Y: Array, folds: Indices, groups: Any = None, weights: Array | None = None
) -> Array:
    """Predictions (n, d), each by a model of earlier folds; within the first, of its other rows."""
    centers = np.empty(Y.shape)
    for k in np.unique(folds):
        own, before = np.flatnonzero(folds == k), np.flatnonzero(folds < k)
        if not len(before):
            labels, its_weights = (None if each is None else each[own] for each in (groups, weights))
            centers[own] = out_of_fold(make, take_rows(X, own), Y[own], 3, labels, its_weights)
            continue
        its_weights = None if weights is None else weights[before]
        centers[own] = make().fit(take_rows(X, before), Y[before], its_weights).predict(take_rows(X, own))
    return centers
