"""Which rows do what: parts of the data, their roles for a learner, and what a row must be.

No row has two roles: what sets the radius has neither trained the predictor nor shaped the set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from polyhedge._support.alignment import check_same_rows, column_of, names_of
from polyhedge._support.frames import as_pandas, refuse_queries, refuse_rows_elsewhere
from polyhedge._support.validation import Array, as_finite, check_alpha, numbers_of
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration import (
    Calibrator,
    PreparedCalibrator,
    TargetedCalibrator,
    check_groups,
    check_labels,
    fit_labels,
    minimum_samples,
    takes_labels,
)
from polyhedge.data import GroupSplit, Split, TimeSplit, as_indices, partition_rows, split_rows, take_rows
from polyhedge.data.ordered import dealt, has_clock, in_order
from polyhedge.data.splits import IndexArray, evenly_chosen
from polyhedge.learners import Learner
from polyhedge.predictors.missing import takes_sparse
from polyhedge.predictors.raw_columns import read_features
from polyhedge.predictors.regressor import Predictor, out_of_fold
from polyhedge.predictors.schema import Schema
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.checks import check_feasible, check_outcomes, in_outcome_order, is_named, named_by
from polyhedge.problems.parameters import layout_of

_HALF = 0.5
"""Levels above are rarely meant: a bound that fails more often than it holds."""
_MOST_REFERENCES = 50
"""Values of parameters that are tried before the constraints are held to be at fault."""
# Learning samples beyond which out-of-fold residuals of training rows add little, and rows that a fold of them needs.
_ENOUGH_TO_LEARN, _ROWS_A_FOLD = 3000, 10
# Training residuals below this share of the outcomes' spread are rounding, not noise.
_REPRODUCED = 1e-3


def check_settings(
    problem: Any, alpha: float, learner: Any, split: Any, calibration: Any = None, guarantee: Any = None
) -> None:
    """Raise where a setting of a decider is not what it must be."""
    warn_of_level(check_alpha(alpha), stacklevel=5)
    if not isinstance(problem, DecisionProblem):
        raise TypeError(
            f"problem must be a DecisionProblem, got {type(problem).__name__}. Write one, DecisionProblem(decision=z, "
            "cost=lambda z, u: ..., constraints=[...], n_outcomes=...), or take one of polyhedge.problems."
        )
    if learner is not None and (isinstance(learner, type) or not isinstance(learner, Learner)):
        raise TypeError(
            f"learner must be an object with a method learn and a record needs, got {learner!r}. Call the class, or "
            "add needs = polyhedge.learners.Needs()."
        )
    is_ready = isinstance(split, (TimeSplit, GroupSplit)) or (isinstance(split, str) and split == "time")
    if not is_ready and (not isinstance(split, (tuple, list, np.ndarray)) or len(split) not in (3, 4)):
        raise ValueError(
            "split must be three shares (train, learn, calibrate), perhaps with a fourth of rows that are held out, "
            f'"time", a TimeSplit or a GroupSplit, got {split!r}.'
        )
    if calibration is not None and (isinstance(calibration, type) or not isinstance(calibration, Calibrator)):
        raise TypeError(
            f"calibration must be an object with a method calibrate, got {calibration!r}. Make one of a class of "
            'polyhedge.calibration, such as calibration=ByCategory("store").'
        )
    if guarantee not in (None, "outcome", "cost"):
        raise ValueError(f'guarantee must be "outcome" or "cost", got {guarantee!r}.')


def warn_of_level(alpha: float, stacklevel: int = 3) -> None:
    """Warn where alpha looks like a coverage level, such as 0.9 for 0.1."""
    if alpha > _HALF:
        warn(
            Code.LEVEL,
            f"alpha={alpha} looks like a coverage level, but it is the share of bounds that may fail: only "
            f"{1 - alpha:.3g} is promised. Take alpha={1 - alpha:.3g} for a coverage of {alpha}.",
            stacklevel=stacklevel,
        )


def check_policy(policy: Any, caution: Any, guarantee: Any, learner: Any) -> None:
    """Raise where settings of a policy are not what they must be, or do not go together."""
    is_number = isinstance(caution, (int, float, np.integer, np.floating)) and not isinstance(caution, bool)
    if not is_number or not 0 <= caution <= 1:
        raise ValueError(f"caution must be a number from 0 to 1, got {caution!r}.")
    if policy is None:
        return
    if isinstance(policy, type) or not (callable(policy) or hasattr(policy, "predict")):
        raise TypeError(
            f"policy must be a function of X (and parameters) or an estimator with predict, got {policy!r}."
        )
    if guarantee == "outcome" or learner is not None:
        raise ValueError(
            'A policy is guarded by its cost, so that it takes neither guarantee="outcome" nor a learner. Leave '
            "them out."
        )


def generator(random_state: Any) -> np.random.Generator:
    """A generator from whatever scikit-learn takes as a random state."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def named_rows(problem: DecisionProblem, X: Any, Y: Any, *, precomputed: bool) -> tuple[DecisionProblem, Any, Array]:
    """The problem with the names of its outcomes, and the rows in their order: of Y, and of predictions in X."""
    if Y is None:
        raise ValueError("RobustDecider requires y to be passed, but the target y is None. Call fit(X, Y).")
    problem = named_by(problem, Y, *([X] if precomputed else []))
    outcomes = check_outcomes(problem, Y)
    return problem, in_outcome_order(problem, X, 'X with predictor="precomputed"') if precomputed else X, outcomes


def outcome_names_of(problem: DecisionProblem) -> tuple[str, ...]:
    """What the outcomes are called; nothing where they are only numbered."""
    return tuple(problem.outcome_names) if is_named(problem) else ()


def feature_names(problem: DecisionProblem, X: Any, *, precomputed: bool) -> tuple[str, ...] | None:
    """What the columns of X are called; predictions that came as an array are called like the outcomes."""
    known = names_of(X)
    return tuple(problem.outcome_names) if known is None and precomputed and is_named(problem) else known


def check_rows(X: Any, Y: Any, groups: Any = None, sample_weight: Any = None, **parts: Any) -> None:
    """Raise where outcomes, groups, weights or masks of parts have another index than X."""
    refuse_queries(X, Y)
    masks = {name: part for name, part in parts.items() if getattr(part, "dtype", None) == np.bool_}
    check_same_rows({"X": X, "Y": Y, "groups": groups, "sample_weight": sample_weight, **masks})


def split_into_parts(
    X: Any,
    n: int,
    how: Any,
    given: tuple[ArrayLike | None, ...],
    needs_training: bool,
    rng: np.random.Generator,
    groups: Any = None,
) -> Split:
    """The given (train, learn, calibrate) rows, or parts as `how` says where none are given.

    The training share is dealt to the other two where the predictor needs no training; groups stay whole.
    """
    train, learn, calibrate = given
    if learn is None and calibrate is None and train is None:
        return _own_parts(X, n, TimeSplit() if isinstance(how, str) else how, needs_training, rng, groups)
    if learn is None or calibrate is None or (train is None and needs_training):
        raise ValueError(
            "Give train, learn and calibrate together (train may be left out for predictors that need no "
            "training), or none of them for a random split."
        )
    trained = np.zeros(0, dtype=np.int64) if train is None else train
    split = Split(as_indices(trained, n), as_indices(learn, n), as_indices(calibrate, n), n_rows=n)
    check_whole(split, groups)
    return ordered(split, how, X)


def ordered(split: Split, how: Any, X: Any) -> Split:
    """Given parts, each in the order of time where a `TimeSplit` knows it: what weighs rows by age asks for it."""
    if not has_clock(how):
        return split
    clock = how.clock(as_pandas(X), n_rows_of(X))
    train, learn, calibrate = (in_order(rows, clock) for rows in (split.train, split.learn, split.calibrate))
    return Split(train, learn, calibrate, n_rows=len(clock))


def _own_parts(X: Any, n: int, how: Any, needs_training: bool, rng: np.random.Generator, groups: Any = None) -> Split:
    if isinstance(how, TimeSplit):
        return how.parts(X, n, groups=groups, needs_training=needs_training)
    if isinstance(how, GroupSplit):
        return how.parts(X, n, rng=rng, needs_training=needs_training)
    shares = dealt(how, needs_training)
    if groups is not None or len(shares) == 4:
        return partition_rows(n, shares if len(shares) == 4 else (*shares, 0.0), rng=rng, groups=groups)
    return split_rows(n, shares, rng=rng)


def check_whole(split: Split, groups: Any) -> None:
    """Raise where a group has rows in two parts: the promise for a row of a new group would be void."""
    if groups is None:
        return
    own_groups = {part: np.unique(groups[getattr(split, part)]) for part in ("train", "learn", "calibrate")}
    for (first, some), (second, others) in combinations(own_groups.items(), 2):
        torn = np.intersect1d(some, others)
        if len(torn):
            raise ValueError(
                f"Every group must lie in one part, but {len(torn)} group(s) have rows in {first} and in {second}, the "
                f"first is {torn.tolist()[0]!r}: a radius from near-copies of rows that were seen covers no new group. "
                "Give whole groups to each part, or leave the parts out: they are then split by group."
            )


def check_sizes(learn: IndexArray, calibrate: IndexArray, alpha: float) -> None:
    """Raise where rows that shape a set or a policy, or those that calibrate it, are too few for this alpha."""
    needed = minimum_samples(alpha)
    for rows, verb in ((learn, "learning"), (calibrate, "calibration")):
        size = len(rows)
        if size < needed:
            raise ValueError(
                f"alpha={alpha!r} needs at least {needed} {verb} samples, got {size}: the conformal radius "
                f"would be infinite. Raise alpha or the {verb} share, or bring more rows."
            )


def roles(
    learner: Learner, predictor: Predictor, split: Split, X: Any, Y: Array, alpha: float
) -> tuple[IndexArray, IndexArray]:
    """Rows that shape the set and rows that set its radius: no row has both roles, nor training and the latter."""
    if learner.needs.learning_rows or not predictor.needs_training or len(split.train) < minimum_samples(alpha):
        return split.learn, split.calibrate
    trained = Y[split.train]
    residuals = trained - predictor.predict(take_rows(X, split.train))
    # The choice looks at training rows only, so it cannot bias the calibration.
    if (residuals.std(axis=0) <= _REPRODUCED * trained.std(axis=0)).any():
        return split.learn, split.calibrate
    return split.train, np.concatenate([split.learn, split.calibrate])


def labels_for(split: Any, groups: ArrayLike | None, X: Any, n: int) -> Any:
    """Labels of near-copies: those given, or those that a split by groups finds in X."""
    if not isinstance(split, GroupSplit):
        return group_labels(groups, n)
    if groups is not None:
        raise ValueError(f"groups are given, and split={split!r} finds others in X. Give one of them.")
    return group_labels(split.labels(X), n)


def labels_by(X: Any, by: Any, what: str = "by") -> Any:
    """Labels of rows: a column of X by its name or position, or the labels themselves, which must be of its rows."""
    if isinstance(by, (str, Integral)):
        return column_of(as_pandas(X), by if isinstance(by, str) else int(by))
    check_same_rows({"X": X, what: by})
    return by


def group_labels(groups: ArrayLike | None, n: int) -> Any:
    """Labels as an array, one for each row; None where there are none."""
    labels = None if groups is None else np.asarray(groups)
    if labels is not None and labels.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} rows, got shape {labels.shape}.")
    if labels is not None:
        check_labels(labels)
    return labels


def learning_samples(
    learner: Learner,
    predictor: Predictor,
    make: Callable[[], Predictor],
    X: Any,
    Y: Array,
    split: Split,
    alpha: float,
    groups: Any = None,
    weights: Array | None = None,
) -> tuple[IndexArray, Array, IndexArray]:
    """Rows that shape the set, the predictions there, and the rows that set its radius; `make` gives new predictors."""
    learn_rows, calibrate_rows = roles(learner, predictor, split, X, Y, alpha)
    if groups is not None:
        check_groups(groups[calibrate_rows], alpha)
    centers = predictor.predict(take_rows(X, learn_rows))
    if predictor.needs_training and learn_rows is split.learn:
        rows, more_centers = training_rows_to_learn_from(learner, make, X, Y, split, groups, weights)
        centers, learn_rows = np.vstack([more_centers, centers]), np.concatenate([rows, learn_rows])
    return learn_rows, centers, calibrate_rows


def prepared(
    calibrator: Calibrator,
    X: Any,
    split: Split,
    calibrate_rows: IndexArray,
    alpha: float,
    groups: Any = None,
    labels: Any = None,
    schema: Schema | None = None,
) -> Calibrator:
    """The calibrator after a look at features of rows that calibrate nothing; `schema` reads raw ones, if these are."""
    if not isinstance(calibrator, PreparedCalibrator):
        return calibrator
    if isinstance(calibrator, TargetedCalibrator) and calibrator.target is not None:
        target = as_pandas(calibrator.target)  # rows to come are raw where those of fit were
        target = target if schema is None else read_features(target, schema)
        calibrator = replace(calibrator, target=target)  # type: ignore[type-var]
    others, n = np.setdiff1d(np.concatenate([split.train, split.learn]), calibrate_rows), len(calibrate_rows)
    if groups is not None:  # near-copies count as one, so that one row of each group tells how often categories come
        others, n = others[np.unique(groups[others], return_index=True)[1]], len(np.unique(groups[calibrate_rows]))
    known = {} if labels is None else {"labels": labels[others]}
    return calibrator.prepared(take_rows(X, others), n, alpha, **known)


def labels_in_fit(calibrator: Any, X: Any) -> Any:
    """What came with the calibrator for the rows of a fit (n,); None where it reads X."""
    if not takes_labels(calibrator):
        return None
    check_same_rows({"X": X, "calibration": calibrator.source.given})
    return fit_labels(calibrator, n_rows_of(X))


def training_rows_to_learn_from(
    learner: Learner,
    make: Callable[[], Predictor],
    X: Any,
    Y: Array,
    split: Split,
    groups: Any = None,
    weights: Array | None = None,
) -> tuple[IndexArray, Array]:
    """Training rows that help to learn, and what predictors fitted without them predict there."""
    n_missing = _ENOUGH_TO_LEARN - len(split.learn)
    n_folds = learner.needs.training_folds
    none = np.zeros(0, dtype=np.int64), np.zeros((0, Y.shape[1]))
    if not n_folds or len(split.train) < _ROWS_A_FOLD * n_folds or n_missing <= 0:
        return none
    try:
        centers = out_of_fold(
            make,
            take_rows(X, split.train),
            Y[split.train],
            n_folds,
            None if groups is None else groups[split.train],
            None if weights is None else weights[split.train],
        )
    except ValueError as error:
        warn(
            Code.NO_FOLDS,
            f"The predictor cannot be fitted without a fold of the training rows ({error}), so the set is learned "
            "from the learning rows alone. Auto(training_folds=0) does so without this warning.",
            stacklevel=3,
        )
        return none
    chosen = evenly_chosen(len(centers), n_missing)
    return split.train[chosen], centers[chosen]


def at_reference(problem: DecisionProblem, rows: Array, split: Split) -> tuple[DecisionProblem, dict[str, Array]]:
    """The problem at the parameters for which a set is learned, and these by name.

    `rows` (n, t) are their flat values; those of rows that calibrate have no say.
    """
    if not problem.parameters:
        return problem, {}
    values = reference_values(problem, rows[np.concatenate([split.train, split.learn])])
    named = zip(problem.parameters, layout_of(problem.parameters).split(values), strict=True)
    return problem.at_values(values), {parameter.name: value for parameter, value in named}


def reference_values(problem: DecisionProblem, values: Array) -> Array:
    """The flat values of the parameters (t,) at which a set is learned, from those of many rows (n, t).

    Each is the median; where these values together are not allowed or leave no feasible decision, the nearest that
    occur in a row and do.
    """
    middle = np.median(values, axis=0)
    size = np.abs(values - middle).mean(axis=0)
    distance = (np.abs(values - middle) / np.where(size > 0, size, 1.0)).sum(axis=1)
    nearest = values[np.argsort(distance, kind="stable")]
    _, first = np.unique(nearest, axis=0, return_index=True)
    for candidate in (middle, *nearest[np.sort(first)[:_MOST_REFERENCES]]):
        if _is_reference(problem, candidate):
            return np.asarray(candidate)
    raise NoSolutionError(
        "No decision is feasible at the parameters of these rows, so no set can be learned for it. Check the values of "
        f"{', '.join(parameter.name for parameter in problem.parameters)} against the constraints."
    )


def _is_reference(problem: DecisionProblem, values: Array) -> bool:
    try:
        for parameter, value in zip(problem.parameters, layout_of(problem.parameters).split(values), strict=True):
            parameter.check(value[None])
        check_feasible(problem.at_values(values))
    except ValueError:
        return False
    return True


def one_row(x: Any) -> Any:
    """One row in the form of many."""
    x = as_pandas(x)
    if hasattr(x, "to_frame"):
        return x.to_frame().T.infer_objects()
    if hasattr(x, "iloc") or hasattr(x, "tocsr"):
        return x
    return np.atleast_2d(np.asarray(x))


def n_rows_of(X: Any) -> int:
    """The number of rows of whatever a predictor takes."""
    if not hasattr(X, "__len__") or isinstance(X, (str, bytes) if hasattr(X, "shape") else (str, bytes, Mapping)):
        refuse_rows_elsewhere(X)
    return int(X.shape[0] if hasattr(X, "shape") else len(X))


def rows_for(predictor: Any, X: Any) -> Any:
    """X as it is worked with: frames of pandas, and sparse matrices by rows where the predictor takes them."""
    if not sparse.issparse(X):
        return as_pandas(X)
    if not takes_sparse(predictor):
        is_ours = predictor is None or isinstance(predictor, str)
        name = "The default predictor" if is_ours else f"The predictor {predictor!r}"
        raise TypeError(f"{name} does not take sparse data, got {type(X).__name__}. Pass X.toarray(), or another one.")
    return X.tocsr()


def check_features(X: Any, Y: Array | None, *, may_be_missing: bool) -> None:
    """Rows must match, and numeric features be finite, but for missing ones where the predictor takes them."""
    n = n_rows_of(X)
    if Y is not None and n != len(Y):
        raise ValueError(f"X and Y must have the same number of rows, got {n} and {len(Y)}.")
    if n == 0:
        raise ValueError("X has no rows. Bring at least one.")
    if Y is not None and n == 1:
        raise ValueError("fit needs rows to train, to learn and to calibrate with, got 1 sample. Bring more rows.")
    numbers = numbers_of(X)
    if numbers is not None:
        as_finite(np.where(np.isnan(numbers), 0.0, numbers) if may_be_missing else numbers, "X", ndim=2)
