"""Fit in five steps: read the rows, split them, choose the predictor, develop the region family, calibrate its radii.

No row has two roles: rows that set the radius have neither trained the predictor nor shaped the family.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from polyhedge._support.frames import as_pandas, check_same_rows, from_dictionaries, names_of, refuse_outcomes
from polyhedge._support.validation import Array, check_alpha
from polyhedge._support.warnings import Code, SettingWarning, warn
from polyhedge.calibration import (
    Blocks,
    Calibrator,
    Marginal,
    check_groups,
    check_labels,
    fit_labels,
    minimum_samples,
    takes_labels,
)
from polyhedge.calibration.by_constraint import with_levels
from polyhedge.data import GroupSplit, Split, TimeSplit, as_indices, digest_rows, partition_rows, split_rows
from polyhedge.data.splits import IndexArray, dealt, evenly_chosen, has_clock, in_order, in_time
from polyhedge.diagnostics import Diagnostic, diagnostics_of_fit, order_diagnostic, row_hashes
from polyhedge.learners import Auto, Learner, LearnResult, Samples, learn_with_spread
from polyhedge.model import Model, Record, calibrated_radii, fitted_model, guarantee_of, rows_that_count
from polyhedge.planning import DevelopmentRows, LeastMean
from polyhedge.planning.development import Development, parts_of_policy, planned_guard
from polyhedge.planning.margins import takes_margins
from polyhedge.planning.pool import piecewise
from polyhedge.predictors.columns import Schema, number_columns, read_features, reads_columns
from polyhedge.predictors.recipes import check_weights, is_auto, is_made_here, prepare, takes_frame
from polyhedge.predictors.regressor import Predictor, as_predictor, out_of_fold, takes_sparse
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.checks import check_feasible, check_outcomes, in_outcome_order, is_named, named_by
from polyhedge.problems.layout import layout_of, parameter_rows
from polyhedge.regions import CostGuard, LearnedSet, RegionFamily, SetPolicy
from polyhedge.regions.largest_cost import largest_excess
from polyhedge.rows import Rows, check_features, check_rows, check_source, n_rows_of, raw_values
from polyhedge.sets import Shape
from polyhedge.solvers.program import Status

CAUTION = 0.25
"""The default of `caution`: on real tables a quarter gave lower mean costs than a half, at level bounds."""
SETTINGS = ("predictor", "learner", "split", "random_state", "calibration", "guarantee", "policy", "caution", "solver")
"""Settings that a model's record keeps as texts."""
_ENOUGH_TO_LEARN, _ROWS_A_FOLD = 3000, 10
"""Learning samples beyond which residuals of training rows add little, and training rows that a fold needs."""
_LOG = logging.getLogger(__name__)

Parts = tuple[ArrayLike | None, ArrayLike | None, ArrayLike | None]
"""The rows that train, learn and calibrate, where the user gives them."""


def fit(
    settings: Any,
    X: Any,
    Y: Any,
    parts: Parts = (None, None, None),
    groups: ArrayLike | None = None,
    parameters: Mapping[Any, Any] | None = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Model, tuple[Diagnostic, ...]]:
    """A model fitted to rows, and its diagnostics.

    `settings` has the attributes of `RobustDecider`, and the rest is as in its `fit`.
    """
    settings = with_levels(settings) if isinstance(settings.alpha, Mapping) else settings
    check_settings(settings, parts[2])
    problem, rows = read(settings, X, Y, parts, groups, parameters, sample_weight)
    rng = generator(settings.random_state)
    split_rng = rng.spawn(1)[0]
    seed, predictor_seed = (int(each) for each in rng.integers(2**31, size=2))
    split, about_order = split_into_parts(settings, problem, rows, parts, split_rng)
    chosen = choose_predictor(settings, problem, rows, split, predictor_seed)
    developed = develop(settings, problem, chosen, split, seed)
    model = calibrate(settings, chosen, split, developed)
    if model.guarantee == "outcome" and settings.guarantee is None and settings.learner is None:
        text = f"The guarantee in force is {guarantee_of(model)} Name the one that you want: guarantee=..."
        warn(Code.GUARANTEE, text, stacklevel=3, category=SettingWarning)
    found = diagnostics_of_fit(model, chosen.rows, developed.calibrate, in_time(settings.split))
    return model, (*about_order, *found)


# 1. Read


def read(
    settings: Any,
    X: Any,
    Y: Any,
    parts: Parts,
    groups: ArrayLike | None,
    parameters: Mapping[Any, Any] | None,
    sample_weight: ArrayLike | None,
) -> tuple[DecisionProblem, Rows]:
    """The problem with the names of its outcomes, and the rows with all their parts, checked."""
    problem, predictor = settings.problem, settings.predictor
    X = from_dictionaries(X) if predictor is None or is_auto(predictor) else X
    check_rows(X, Y, groups, sample_weight, **dict(zip(("train", "learn", "calibrate"), parts, strict=True)))
    n = n_rows_of(X)
    values = parameter_rows(problem.parameters, parameters, n, X)
    labels = raw_values(settings.calibration, X)
    if takes_labels(settings.calibration):
        check_same_rows({"X": X, "calibration": settings.calibration.source.given})
        labels = fit_labels(settings.calibration, n)
    if sparse.issparse(X) and not takes_sparse(predictor):
        is_ours = predictor is None or isinstance(predictor, str)
        name = "The default predictor" if is_ours else f"The predictor {predictor!r}"
        raise TypeError(f"{name} does not take sparse data, got {type(X).__name__}. Pass X.toarray(), or another one.")
    X = X.tocsr() if sparse.issparse(X) else as_pandas(X)
    Y, weights = as_pandas(Y), check_weights(sample_weight, n)
    if Y is None:
        raise ValueError("RobustDecider requires y to be passed, but the target y is None. Call fit(X, Y).")
    is_given = is_precomputed(predictor)
    problem = named_by(problem, Y, *([X] if is_given else []))
    outcomes = check_outcomes(problem, Y)
    X = in_outcome_order(problem, X, 'X with predictor="precomputed"') if is_given else X
    if n != len(outcomes):
        raise ValueError(f"X and Y must have the same number of rows, got {n} and {len(outcomes)}.")
    if n == 1:
        raise ValueError("fit needs rows to train, to learn and to calibrate with, got 1 sample. Bring more rows.")
    return problem, Rows(X, outcomes, values, labels_of_groups(settings, groups, X, n, labels), labels, weights)


def is_precomputed(predictor: Any) -> bool:
    """Whether X holds predictions."""
    return isinstance(predictor, str) and predictor == "precomputed"


def labels_of_groups(settings: Any, groups: ArrayLike | None, X: Any, n: int, labels: Any = None) -> Any:
    """Labels of rows that belong together (n,); None if there are none.

    They are those given, those that a split by groups finds in X, or the blocks that the calibrator promises
    something for.
    """
    split, calibrator = settings.split, settings.calibration
    if isinstance(split, GroupSplit):
        if groups is not None:
            raise ValueError(f"groups are given, and split={split!r} finds others in X. Give one of them.")
        groups = split.labels(as_pandas(X))
    own = None if groups is None else np.asarray(groups)
    if own is not None:
        if own.shape != (n,):
            raise ValueError(f"groups must have one label for each of the {n} rows, got shape {own.shape}.")
        check_labels(own)
    if isinstance(calibrator, Blocks):
        return calibrator.groups(Rows(as_pandas(X), groups=own, labels=labels))
    return own


# 2. Split


def split_into_parts(
    settings: Any, problem: DecisionProblem, rows: Rows, parts: Parts, rng: np.random.Generator
) -> tuple[Split, list[Diagnostic]]:
    """The given parts, or parts as the setting `split` says; and whether rows are in an order that these ignore."""
    how, X, n = settings.split, rows.features, len(rows)
    predictor = as_predictor(None if is_auto(settings.predictor) else settings.predictor, problem.n_outcomes)
    needs_training = predictor.needs_training
    is_read = needs_training and not is_made_here(settings.predictor) and reads_columns(X)
    check_features(X, may_be_missing=is_read or predictor.takes_nan)
    if needs_training:  # one that is trained already may read predictions by these names
        refuse_outcomes(X, problem.outcome_names, list(rows.Y.T))
    is_asked = has_clock(how) or rows.groups is not None or any(part is not None for part in parts)
    about_order = [] if is_asked else order_diagnostic(X, as_they_come=in_time(how))
    if all(part is None for part in parts):
        how = TimeSplit() if isinstance(how, str) else how
        if isinstance(how, TimeSplit):
            split = how.parts(X, n, groups=rows.groups, needs_training=needs_training)
        elif isinstance(how, GroupSplit):
            split = how.parts(X, n, rng=rng, needs_training=needs_training)
        elif rows.groups is not None or len(how) == 4:
            split = partition_rows(n, dealt(how, needs_training), rng=rng, groups=rows.groups)
        else:
            split = split_rows(n, dealt(how, needs_training)[:3], rng=rng)
    else:
        train, learn, calibrate = parts
        if learn is None or calibrate is None or (train is None and needs_training):
            raise ValueError(
                "Give train, learn and calibrate together (train may be left out for predictors that need no "
                "training), or none of them for a random split."
            )
        train = np.zeros(0, dtype=np.int64) if train is None else train
        split = Split(as_indices(train, n), as_indices(learn, n), as_indices(calibrate, n), n_rows=n)
        check_whole(split, rows.groups)
        split = ordered(split, how, X)
    learn_rows, calibrate_rows = split.learn, split.calibrate
    if _in_force(settings) == "cost" and settings.learner is None:
        learn_rows, calibrate_rows = parts_of_policy(split, settings.policy, settings.alpha, trained=needs_training)
    needed = minimum_samples(settings.alpha)
    for part, verb in ((learn_rows, "learning"), (calibrate_rows, "calibration")):
        if len(part) < needed:
            raise ValueError(
                f"alpha={settings.alpha!r} needs at least {needed} {verb} samples, got {len(part)}: the conformal "
                f"radius would be infinite. Raise alpha or the {verb} share, or bring more rows."
            )
    return split, about_order


def ordered(split: Split, how: Any, X: Any) -> Split:
    """Given parts, each in the order of time if a `TimeSplit` knows it: calibrators that weigh rows by age need it."""
    if not has_clock(how):
        return split
    clock = how.clock(as_pandas(X), n_rows_of(X))
    train, learn, calibrate = (in_order(rows, clock) for rows in (split.train, split.learn, split.calibrate))
    return Split(train, learn, calibrate, n_rows=len(clock))


def check_whole(split: Split, groups: Any) -> None:
    """Raise if a group has rows in two parts: the promise for a row of a new group would be void."""
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


# 3. Choose the predictor


@dataclass(frozen=True, eq=False)
class ChosenPredictor:
    """The rows as a predictor takes them, and `make`, which returns that predictor.

    Raw columns were read by the schema. It is None for arrays and predictors that read raw columns themselves. `notes`
    say what was chosen, prepared and left out, and why.
    """

    problem: DecisionProblem
    rows: Rows
    make: Callable[[], Predictor]
    schema: Schema | None
    is_read: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)


def choose_predictor(settings: Any, problem: DecisionProblem, rows: Rows, split: Split, seed: int) -> ChosenPredictor:
    """The user's predictor, with raw columns prepared if it does not take them; or the best of a few by cross-fitting.

    Only training rows choose.
    """
    names = tuple(problem.outcome_names) if is_named(problem) else ()
    as_ours = partial(as_predictor, n_outcomes=problem.n_outcomes, random_state=seed, outcome_names=names)
    template = None if is_auto(settings.predictor) else settings.predictor
    predictor, X = as_ours(template), rows.features
    is_read = predictor.needs_training and not is_made_here(template) and reads_columns(X)
    if is_read and template is not None and takes_frame(predictor, rows, split.train):
        is_read = False
        check_features(X, may_be_missing=predictor.takes_nan)
    schema = number_columns(X, problem.outcome_names, split.train)
    notes: Mapping[str, str] = {}
    if is_read or is_auto(settings.predictor):
        own = settings.predictor if template is None else getattr(predictor, "template", None)
        prepared = prepare(rows, split.train, problem.outcome_names, seed, own)
        check_source(settings.calibration, prepared.features, X)
        rows, notes = replace(rows, features=prepared.features), prepared.notes
        schema, template = prepared.schema or schema, prepared.template
        _LOG.info("predictor: %s", "; ".join(notes.values()))
    check_source(settings.calibration, rows.features, X)
    return ChosenPredictor(problem, rows, partial(as_ours, template), schema, is_read, notes)


# 4. Develop the family


@dataclass(frozen=True, eq=False)
class Developed:
    """A region family, how many rows made it, and the rows that are left to calibrate it.

    `reference` has the parameters at which a set was learned, `result` the learner's certificate.
    """

    family: RegionFamily
    n_learn: int
    calibrate: IndexArray
    reference: Mapping[str, Array] = field(default_factory=dict)
    result: LearnResult | None = None


def develop(settings: Any, problem: DecisionProblem, chosen: ChosenPredictor, split: Split, seed: int) -> Developed:
    """The family that the guarantee in force asks for: a bound on the cost of a policy, or a learned set."""
    is_cost = _in_force(settings) == "cost"
    if is_cost and settings.learner is None:
        given = Development(problem, settings.alpha, chosen.make, chosen.rows, split, seed, in_time(settings.split))
        family, n_rows, left = planned_guard(given, settings.policy, settings.caution)
        counted = rows_that_count(family, settings.calibration or Marginal(), chosen.rows.take(left))
        return Developed(family, n_rows, left[counted])
    learned = _learn_set(settings, problem, chosen, split, seed)
    if not is_cost:
        return learned
    sets: Any = learned.family
    policy = SetPolicy(replace(sets, ties=None), costs=sets.ties)
    return replace(learned, family=CostGuard(problem, sets.predictor, policy))


def _learn_set(settings: Any, problem: DecisionProblem, chosen: ChosenPredictor, split: Split, seed: int) -> Developed:
    """The learned set around the prediction."""
    rows, predictor, train = chosen.rows, chosen.make(), chosen.rows.take(split.train)
    if predictor.needs_training:
        predictor.fit(train.features, train.Y, train.weights)
    learner = Auto() if settings.learner is None else settings.learner
    learn_rows, calibrate_rows = split.learn, split.calibrate
    are_enough = predictor.needs_training and len(train) >= minimum_samples(settings.alpha)
    if are_enough and not learner.needs.learning_rows:
        # Training rows shape the set unless their residuals are rounding. No calibration row has a say.
        residuals = train.Y - predictor.predict(train.features)
        if (residuals.std(axis=0) > 1e-3 * train.Y.std(axis=0)).all():
            learn_rows, calibrate_rows = split.train, np.concatenate([split.learn, split.calibrate])
    if rows.groups is not None:
        check_groups(rows.groups[calibrate_rows], settings.alpha)
    centers = predictor.predict(rows.take(learn_rows).features)
    if predictor.needs_training and learn_rows is split.learn:
        more, more_centers = training_rows_to_learn_from(learner, chosen.make, rows, split)
        centers, learn_rows = np.vstack([more_centers, centers]), np.concatenate([more, learn_rows])
    own, learned_at, reference = rows.take(learn_rows), problem, dict[str, Array]()
    if problem.parameters and rows.parameters is not None:
        values = reference_values(problem, rows.parameters[np.concatenate([split.train, split.learn])])
        split_values = layout_of(problem.parameters).split(values)
        reference = {p.name: value for p, value in zip(problem.parameters, split_values, strict=True)}
        learned_at = problem.at_values(values)
    if problem.has_recourse:
        none = np.zeros((len(own), 0)), np.zeros(len(own), dtype=np.int64)
        learned_at = piecewise(learned_at, DevelopmentRows(own.features, centers, own.Y, *none))
    samples = Samples(own.Y - centers, centers, learned_at, settings.alpha)
    result, spread = learn_with_spread(_Checked(learner), samples, own.features, seed=seed, groups=own.groups)
    sets = LearnedSet(problem, predictor, result.set, spread)
    ties = LeastMean.of(problem, sets.around(centers, own.features).residuals(own.Y))
    return Developed(replace(sets, ties=ties), len(learn_rows), calibrate_rows, reference, result)


def training_rows_to_learn_from(
    learner: Learner, make: Callable[[], Predictor], rows: Rows, split: Split
) -> tuple[IndexArray, Array]:
    """Training rows that help to learn, and predictions there by models that were fitted without them."""
    n_missing, n_folds = _ENOUGH_TO_LEARN - len(split.learn), learner.needs.training_folds
    none = np.zeros(0, dtype=np.int64), np.zeros((0, rows.Y.shape[1]))
    if not n_folds or len(split.train) < _ROWS_A_FOLD * n_folds or n_missing <= 0:
        return none
    try:
        train = rows.take(split.train)
        centers = out_of_fold(make, train.features, train.Y, n_folds, train.groups, train.weights)
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


def reference_values(problem: DecisionProblem, values: Array) -> Array:
    """The flat values of the parameters (t,) at which a set is learned, from those of many rows (n, t).

    Each is the median. If these values together are not allowed or leave no feasible decision, the nearest of a row
    that do take their place.
    """
    middle = np.median(values, axis=0)
    size = np.abs(values - middle).mean(axis=0)
    distance = (np.abs(values - middle) / np.where(size > 0, size, 1.0)).sum(axis=1)
    nearest = values[np.argsort(distance, kind="stable")]
    _, first = np.unique(nearest, axis=0, return_index=True)
    for candidate in (middle, *nearest[np.sort(first)[:50]]):  # if fifty rows fail, the constraints are at fault
        try:
            for parameter, value in zip(
                problem.parameters, layout_of(problem.parameters).split(candidate), strict=True
            ):
                parameter.check(value[None])
            check_feasible(problem.at_values(candidate))
        except ValueError:
            continue
        return np.asarray(candidate)
    raise NoSolutionError(
        "No decision is feasible at the parameters of these rows, so no set can be learned for it. Check the values of "
        f"{', '.join(parameter.name for parameter in problem.parameters)} against the constraints."
    )


@dataclass(frozen=True)
class _Checked:
    """A learner, perhaps the user's own, whose result is checked."""

    learner: Learner

    @property
    def needs(self) -> Any:
        return self.learner.needs

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        result, who = self.learner.learn(samples, random_state), type(self.learner).__name__
        if not isinstance(result, LearnResult) or not isinstance(result.status, Status):
            raise TypeError(
                "A learner must return a polyhedge.learners.LearnResult with a polyhedge.Status, but the method learn "
                f"of {who} returned {result!r}. Return LearnResult(shape, samples.value(shape), Status.FINISHED, "
                "seconds=0.0)."
            )
        if not isinstance(result.set, Shape):
            raise TypeError(
                f"A learner must learn a polyhedge.sets.Shape, but the result of {who} holds {result.set!r}. Return a "
                "set of polyhedge, such as Polyhedron(W, b), or an instance of your own subclass of Shape."
            )
        d = samples.problem.n_outcomes
        if result.set.n_outcomes != d:
            raise ValueError(
                f"A learned set must have the {d} outcomes of the problem, but the {type(result.set).__name__} that "
                f"{who} learned has {result.set.n_outcomes}. Make it of samples.residuals, which have {d} columns."
            )
        return result


# 5. Calibrate


def calibrate(settings: Any, chosen: ChosenPredictor, split: Split, developed: Developed) -> Model:
    """The model: radii of the family from rows that had no part in it, with the record of the fit."""
    problem, rows, own = chosen.problem, chosen.rows, chosen.rows.take(developed.calibrate)
    others = np.setdiff1d(np.concatenate([split.train, split.learn]), developed.calibrate)
    calibrator = prepared_calibrator(
        settings.calibration or Marginal(),
        rows.take(others),
        own,
        settings.alpha,
        chosen.schema if chosen.is_read else None,
    )
    radii, digest = calibrated_radii(developed.family, calibrator, own, settings.alpha)
    names = names_of(rows.features)
    if names is None and is_precomputed(settings.predictor) and is_named(problem):
        names = tuple(problem.outcome_names)
    record = Record(
        split=split,
        n_learn=developed.n_learn,
        data_digest=digest_rows(rows.features, rows.outcomes, split.train, split.learn, split.calibrate),
        learn_result=developed.result,
        feature_names=names or (),
        parameters=developed.reference,
        settings={name: repr(getattr(settings, name)) for name in SETTINGS} | dict(chosen.notes),
        schema=chosen.schema,
        seen=row_hashes(rows.take(others)),
        examples=replace(rows.take(evenly_chosen(len(rows), 3)), outcomes=None),
    )
    return fitted_model(developed.family, record, radii, digest)


def prepared_calibrator(
    calibrator: Calibrator, others: Rows, own: Rows, alpha: float, schema: Schema | None = None
) -> Calibrator:
    """The calibrator after a look at features of `others`, which calibrate nothing; `schema` reads raw ones."""
    if calibrator.target is not None:
        target = as_pandas(calibrator.target)  # rows to come are raw if those of fit were
        target = target if schema is None else read_features(target, schema)[0].frame()
        calibrator = replace(calibrator, target=target)  # type: ignore[type-var]
    n = len(own)
    if own.groups is not None:  # near-copies count as one: one row of each group tells how often categories come
        others = others.take(np.unique(others.groups, return_index=True)[1])
        n = len(np.unique(own.groups))
    return calibrator.prepared(others, n, alpha)


# Settings


def generator(random_state: Any) -> np.random.Generator:
    """A generator from whatever scikit-learn takes as a random state."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def guarantee_in_force(guarantee: str | None, problem: DecisionProblem, learner: Any = None, policy: Any = None) -> str:
    """What a decider with these settings promises, "cost" or "outcome": the one place that knows the default.

    The lowest bound on the returned decision is the default, except if a learner asks for a set; if rows have
    parameters, which need not be exchangeable; and if constraints are uncertain and the cost takes no margins.

    Examples
    --------
    >>> import polyhedge as ph
    >>> problem = ph.problems.simplex_linear([0.0, 0.0])
    >>> guarantee_in_force(None, problem), guarantee_in_force(None, problem, learner=ph.learners.OneSidedBox())
    ('cost', 'outcome')
    """
    if guarantee is not None:
        return guarantee
    if policy is not None:
        return "cost"
    is_beyond_margins = problem.uncertain_constraints is not None and not takes_margins(problem)
    return "outcome" if learner is not None or problem.parameters or is_beyond_margins else "cost"


def _in_force(settings: Any) -> str:
    return guarantee_in_force(settings.guarantee, settings.problem, settings.learner, settings.policy)


def check_settings(settings: Any, calibrate: Any = None) -> None:
    """Raise or warn if a setting of a decider is not what it must be; `calibrate` are rows that were given."""
    warn_of_level(check_alpha(settings.alpha), stacklevel=5)
    problem, learner, split, calibration = settings.problem, settings.learner, settings.split, settings.calibration
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
    if settings.guarantee not in (None, "outcome", "cost"):
        raise ValueError(f'guarantee must be "outcome" or "cost", got {settings.guarantee!r}.')
    _check_policy(settings)
    if calibration is not None:
        is_path = _in_force(settings) == "cost" and learner is None and settings.policy is None
        if calibration.needs_largest and _in_force(settings) == "cost":
            largest_excess(problem)  # an error before hours of planning
        calibration.columns(("cost", *(problem.constraint_names if is_path else ())))
    _warn_if_fitted(settings.predictor)
    is_ordered = in_time(split) or calibrate is not None  # rows that are given are in an order
    if calibration is not None and calibration.needs_order and not is_ordered:
        warn(
            Code.NO_TIMES,
            f"{calibration!r} weighs calibration rows by their age, but a random split has no order of time, so that "
            'the weights mean nothing. Take split="time" or a TimeSplit, or Marginal().',
            stacklevel=4,
        )


def warn_of_level(alpha: float, stacklevel: int = 3) -> None:
    """Warn if alpha looks like a coverage level, such as 0.9 for 0.1."""
    if alpha > 0.5:  # a bound that fails more often than it holds is rarely meant
        warn(
            Code.LEVEL,
            f"alpha={alpha} looks like a coverage level, but it is the share of bounds that may fail: only "
            f"{1 - alpha:.3g} is promised. Take alpha={1 - alpha:.3g} for a coverage of {alpha}.",
            stacklevel=stacklevel,
        )


def _check_policy(settings: Any) -> None:
    caution, policy, learner = settings.caution, settings.policy, settings.learner
    is_number = isinstance(caution, (int, float, np.integer, np.floating)) and not isinstance(caution, bool)
    if not is_number or not 0 <= caution <= 1:
        raise ValueError(f"caution must be a number from 0 to 1, got {caution!r}.")
    if policy is not None:
        if isinstance(policy, type) or not (callable(policy) or hasattr(policy, "predict")):
            raise TypeError(
                f"policy must be a function of X (and parameters) or an estimator with predict, got {policy!r}."
            )
        if settings.guarantee == "outcome" or learner is not None:
            raise ValueError(
                'The cost of a policy\'s decisions is bounded, so that it takes neither guarantee="outcome" nor a '
                "learner. Leave them out."
            )
    if caution == CAUTION:
        return
    weighs = f"caution={caution:g} weighs policies against each other, and"
    if _in_force(settings) == "outcome":
        raise ValueError(
            f'{weighs} guarantee="outcome" makes none. Leave caution out, or take guarantee="cost" (on the command '
            "line: leave --caution out, or take --guarantee cost)."
        )
    if learner is not None or policy is not None:
        given = "learner=" if policy is None else "policy="
        raise ValueError(f"{weighs} with {given} there is only one. Leave caution out.")


def _warn_if_fitted(predictor: Any) -> None:
    """Warn that an estimator which comes fitted is fitted again, and how to keep it as it is."""
    if isinstance(predictor, FrozenEstimator) or not (hasattr(predictor, "get_params") and hasattr(predictor, "fit")):
        return
    try:
        check_is_fitted(predictor)
    except (NotFittedError, TypeError):
        return
    if get_tags(predictor).requires_fit:
        warn(
            Code.REFITTED,
            f"The predictor {type(predictor).__name__} is fitted already, but a copy of it is fitted again on the "
            "training rows. To use it as it is, pass FrozenEstimator(model), and keep the rows that it has seen out of "
            "fit's X; to fit it again without this warning, pass sklearn.base.clone(model).",
            stacklevel=5,
            category=SettingWarning,
        )
