"""A fitted model: problem, region family, radii, and the record of how they were made.

The estimator makes a model; files store it, workers receive it, pages and plots read it. It never changes: a new
calibration is a new model with the same family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import as_pandas, backend_of, from_dictionaries, is_dask_frame, names_of, select_columns
from polyhedge._support.stored import stored
from polyhedge._support.text import printable
from polyhedge._support.validation import Array, Indices
from polyhedge.calibration.marginal import Marginal
from polyhedge.calibration.radii import CalibrationRecord, Calibrator, Radii, refuse_groups, score_tolerance
from polyhedge.data import Split, digest_rows, take_rows
from polyhedge.decisions import Decisions, Labels, no_decisions, tail_mean
from polyhedge.evaluation import RowMeasures, measure_rows
from polyhedge.learners import LearnResult
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.margins import takes_margins
from polyhedge.predictors.columns import Schema, as_table, features_of, read_features
from polyhedge.predictors.recipes import is_made_here
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import check_outcomes
from polyhedge.problems.layout import ProblemParameter, from_columns, parameter_rows
from polyhedge.regions import LearnedSet, RegionFamily, Regions, Work
from polyhedge.regions.cost_guard import within_support
from polyhedge.regions.family import DEFAULT_WORK
from polyhedge.regions.largest_cost import largest_excess
from polyhedge.regions.what_if import bound_decisions, given_decisions
from polyhedge.repairs import Repairs, repair, same_rows
from polyhedge.robust.threads import one_blas_thread
from polyhedge.rows import (
    Rows,
    as_values,
    check_features,
    check_row_labels,
    check_rows,
    n_rows_of,
    one_row,
    raw_values,
    unusable_numbers,
)
from polyhedge.sets import Region, Volume

_MOST_PROGRAMS = 2_000
"""Calibration rows that are enough where every one needs an integer program: their coverage varies by .007."""
Prints = NDArray[np.uint64]
"""Fingerprints of rows, a number each."""


@stored("record", transient=("parameters", "examples"))
@dataclass(frozen=True, eq=False)
class Record:
    """How a model was made.

    Attributes
    ----------
    split, n_learn, data_digest : the parts of the rows, how many shaped the family, and a fingerprint of them.
    learn_result : the learner's certificate; None where nothing was learned by a learner.
    feature_names : columns of X; none where X was an array.
    parameters : values of the problem's parameters at which the set was learned; None if unknown.
    settings : how the settings of the estimator printed.
    details : JSON values that were stored with the model in a file.
    schema : the columns of X and their kinds; None where X had no names, or the user's predictor reads raw columns.
    seen : fingerprints of the rows that trained, learned or chose anything in `fit`; None if unknown.
    trained : fingerprints of the rows on which `refresh` fitted the predictor since.
    examples : features, parameters and labels of a few rows of the fit, at which `save` compares decisions. No file
        holds them; None if unknown.
    """

    split: Split
    n_learn: int
    data_digest: str
    learn_result: LearnResult | None = None
    feature_names: tuple[str, ...] = ()
    parameters: Mapping[str, Array] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    schema: Schema | None = None
    seen: Prints | None = None
    trained: Prints | None = None
    examples: Rows | None = None


@dataclass(frozen=True, eq=False)
class Placed:
    """The regions of a model at N rows, with their radii and notes on rows for which nothing is promised."""

    regions: Regions
    radii: Array
    notes: Mapping[int, str]
    guarantee: str
    blocks: Any = None
    total_radius: float | None = None
    risk: tuple[float, float] | None = None

    def decide(self) -> Decisions:
        """Decisions with bounds; the detail of a row says if nothing is promised for it."""
        decided = self.regions.decide(self.radii)
        more = {"blocks": self.blocks, "total_radius": self.total_radius, "risk": self.risk}
        decisions = replace(decided, radii=self.radii, **more)
        if self.guarantee == "cost" and decisions.expected_cost is None:  # a policy has no worst outcome to show
            decisions = replace(decisions, expected_cost=np.full(len(decisions), np.nan))
        return decisions.noted([self.notes.get(i, "") for i in range(len(decisions))] if self.notes else ())


@stored("model")
@dataclass(frozen=True, eq=False)
class Model:
    """Region family, radii, and the record of both.

    Attributes
    ----------
    family : the regions, learned without calibration rows; it knows the problem and the predictor.
    record : how the family was made.
    radii : what calibration made of scores.
    trail : the audit trail: one `CalibrationRecord` for each calibration so far, the newest last.
    """

    family: RegionFamily
    record: Record
    radii: Radii
    trail: tuple[CalibrationRecord, ...]

    def __repr__(self) -> str:
        promise = f"{self.radii.kind} promise, alpha {self.radii.alpha:g}"
        return f"<Model: {self.family.kind} for {self.problem.name}, {promise}>"

    @property
    def problem(self) -> DecisionProblem:
        """The decision problem."""
        return self.family.problem

    @property
    def guarantee(self) -> str:
        """What is promised: that the "outcome" lies in a set, or that the decision's "cost" is at most its bound."""
        return self.family.guarantee

    @property
    def sets(self) -> LearnedSet:
        """The sets whose shape was learned; an AttributeError if none was."""
        if self.family.sets is None:
            raise self.family.no_set()
        return self.family.sets

    @property
    def set_radius(self) -> float:
        """The radius at which the learned shape decides, the largest where rows have different ones."""
        return self.family.set_radius(self.radii.radius)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Columns that the predictor was fitted on; None if they had no names."""
        names = self.record.feature_names or getattr(self._estimator, "feature_names_in_", ())
        return tuple(str(name) for name in names) or None

    @cached_property
    def schema(self) -> Schema | None:
        """How raw columns become what the predictor takes; None if it takes them as they are."""
        return self.record.schema if is_made_here(getattr(self.family.predictor, "template", None)) else None

    @property
    def _estimator(self) -> Any:
        return getattr(self.family.predictor, "model", None)

    @property
    def _n_features(self) -> int | None:
        return getattr(self._estimator, "n_features_in_", None)

    @property
    def n_features(self) -> int:
        """Number of features that the predictor takes; an AttributeError if it does not say."""
        count = self._n_features if self.names is None else self._n_features or len(self.names)
        if count is None:
            raise AttributeError("The predictor does not say how many features it takes.")
        return int(count)

    @property
    def feature_names(self) -> NDArray[np.object_]:
        """Names of the columns of X; an AttributeError if they had none."""
        if not self.record.feature_names:
            raise AttributeError("The columns of X had no names.")
        return np.array(self.record.feature_names, dtype=object)

    @property
    def learned_at(self) -> Mapping[str, Array]:
        """The parameters for which the set was learned; an AttributeError if a file does not say."""
        if self.record.parameters is None:
            raise AttributeError("A model file does not say for which parameters its set was learned.")
        return self.record.parameters

    @property
    def policy_report(self) -> Any:
        """How the policy was selected; an AttributeError if there was no selection."""
        if self.family.report is None:
            raise AttributeError('There was no selection of policies. Use guarantee="cost" without a learner.')
        return self.family.report

    # New rows

    def read(
        self,
        X: Any,
        Y: Any = None,
        parameters: Mapping[Any, Any] | None = None,
        labels: Any = None,
        *,
        to_score: bool = False,
    ) -> Rows:
        """New rows as the model takes them, checked; `to_score` asks for parameters only if scores depend on them."""
        values = None if to_score or self.problem.parameters else np.zeros((n_rows_of(X), 0))
        if parameters or (self.problem.parameters and (not to_score or self.family.scores_need_parameters)):
            values = parameter_rows(self.problem.parameters, parameters, n_rows_of(X), X)
        if labels is not None:
            check_row_labels(self.radii, X, labels)
        outcomes = None if Y is None else self.outcomes(X, Y)
        features, notes = self._described(X, to_decide=Y is None and not to_score)
        own = raw_values(self.radii, X) if labels is None else as_values(labels)
        return Rows(features, outcomes, values, labels=own, notes=notes)

    def read_usable(
        self, X: Any, Y: Any = None, parameters: Mapping[Any, Any] | None = None, labels: Any = None
    ) -> tuple[Rows | None, Indices, list[str]]:
        """The rows of X that can be decided, their numbers, and for each row why it cannot be; None if no row can."""
        try:
            rows = self.read(X, Y, parameters, labels)
            return rows, np.arange(len(rows)), [""] * len(rows)
        except ValueError:
            kept, reasons = self.usable(X, parameters)
            if len(kept) == len(reasons):
                raise
        if not len(kept):
            return None, kept, reasons
        values = from_columns(self.problem.parameters, parameters, X)
        values |= {parameter.name: own[kept] for parameter, own in self._row_values(X, parameters)}
        some = take_rows(as_pandas(X), kept), None, values or None, None if labels is None else as_values(labels)[kept]
        rows = self.read(*some)
        return rows if Y is None else replace(rows, outcomes=self.outcomes(X, Y)[kept]), kept, reasons

    def features(self, X: Any) -> Any:
        """The columns of X that the predictor knows, in their order if both have names; checked."""
        return self._described(X)[0]

    def _described(self, X: Any, *, to_decide: bool = False) -> tuple[Any, Any]:
        """The features, and what is unlike the training rows in each row; None if kinds of columns are not known."""
        X = as_pandas(self._framed(X))
        if self.schema is not None and n_rows_of(X):
            features, notes = read_features(X, self.schema)
            is_enough = to_decide and self.family.takes_columns and self.radii.source is None
            return features if is_enough else features.frame(), notes
        names = self.names or names_of(X)
        # A raw frame comes here if it has no rows, which the check refuses.
        features = X if names is None or self.schema is not None else select_columns(X, names, "X")
        check_features(features, may_be_missing=self.family.predictor.takes_nan)
        return features, None

    def outcomes(self, X: Any, Y: Any) -> Array:
        """The outcomes (N, d) of the rows of X, in the order of the problem."""
        check_rows(X, Y)
        outcomes = check_outcomes(self.problem, as_pandas(Y))
        if len(outcomes) != n_rows_of(X):
            raise ValueError(f"X and Y must have the same number of rows, got {n_rows_of(X)} and {len(outcomes)}.")
        return outcomes

    def usable(self, X: Any, parameters: Mapping[Any, Any] | None = None) -> tuple[Indices, list[str]]:
        """The rows of X that can be decided, and for each row why it cannot; empty texts where it can."""
        X, n = as_pandas(X), n_rows_of(X)
        reasons: Any = [""] * n
        if self.schema is not None:
            read, reasons, _ = features_of(as_table(X, self.schema.source_names), self.schema)
            features = read.frame()
        else:
            names = self.names or names_of(X)
            features = X if names is None else select_columns(X, names, "X")
        found = unusable_numbers(features, may_be_missing=self.family.predictor.takes_nan)
        found |= {row: reason for row, reason in enumerate(reasons) if reason}
        for parameter, values in self._row_values(X, parameters):
            is_there = np.asarray(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
            for row in np.flatnonzero(~(is_there & parameter.allows(values))).tolist():
                what = parameter.demand_of(values[row]) if is_there[row] else f"missing: {parameter.name}"
                found[row] = f"{found[row]}; {what}" if row in found else what
        return np.setdiff1d(np.arange(n), list(found)), [found.get(row, "") for row in range(n)]

    def _row_values(self, X: Any, parameters: Mapping[Any, Any] | None) -> list[tuple[ProblemParameter, Array]]:
        """Parameters that have a value (n, *shape) for each row of X, with these values."""
        given = from_columns(self.problem.parameters, parameters, X)
        known = [(one, given[one.name]) for one in self.problem.parameters if one.name in given]
        shape = (n_rows_of(X),)
        return [(one, np.asarray(own, dtype=np.float64)) for one, own in known if np.shape(own) == shape + one.shape]

    def _framed(self, X: Any) -> Any:
        """Dictionaries as a frame, except if the predictor was fitted on dictionaries."""
        return X if self.names is None and self._n_features is None else from_dictionaries(X)

    def as_rows(self, X: Any) -> Any:
        """X as rows.

        A series indexed by the names of the features is one row, any other series a column. One row may also be a
        dictionary by these names, or as many numbers as there are features.
        """
        X = self._framed(X)
        if isinstance(X, (list, tuple, np.ndarray)) and self.schema is None:
            is_row = all(np.ndim(value) == 0 for value in X[:1]) and len(X) == self._n_features
            return np.asarray(X)[None] if is_row and np.asarray(X).dtype.kind in "iuf" else X
        if not (hasattr(X, "iloc") and X.ndim == 1):
            return X
        names = self.names if self.schema is None else self.schema.source_names
        is_row = self.family.predictor.needs_training if names is None else set(names) <= set(map(str, X.index))
        return one_row(X) if is_row else X

    # Regions, decisions and measures

    def place(self, rows: Rows, work: Work = DEFAULT_WORK) -> Placed:
        """The regions at rows that `read` returned."""
        regions = self.family.at(rows.features, rows.parameters, work)
        at = self.radii.at(rows), self.radii.notes(rows), self.guarantee
        return Placed(regions, *at, self.radii.blocks(rows), self.radii.total_radius, self.radii.risk)

    def scores(self, rows: Rows) -> Array:
        """The least radius at which each row's region holds its outcome (N,)."""
        return scores_of(self.family, rows)

    def decide(
        self, X: Any, parameters: Mapping[Any, Any] | None = None, work: Work = DEFAULT_WORK, labels: Any = None
    ) -> Decisions:
        """Decisions with bounds for new rows; rows that cannot be decided are marked."""
        return self.decide_with_notes(X, parameters, work, labels)[0]

    def decide_with_notes(
        self, X: Any, parameters: Mapping[Any, Any] | None = None, work: Work = DEFAULT_WORK, labels: Any = None
    ) -> tuple[Decisions, Any]:
        """The same, and what is unlike the training rows in each row; None if kinds of columns are not known."""
        rows, kept, reasons = self.read_usable(X, None, parameters, labels)
        notes = None if rows is None else rows.notes
        if len(kept) < len(reasons) and self.schema is not None:  # rows that are not usable have notes, too
            notes = features_of(as_table(as_pandas(X), self.schema.source_names), self.schema)[2]
        if rows is None:
            return no_decisions(self.problem, is_planned=self.guarantee == "cost").among(kept, reasons), notes
        decisions = self.place(rows, work).decide()
        if len(kept) == len(reasons):
            return decisions, notes
        own = raw_values(self.radii, X) if labels is None else as_values(labels)
        return replace(decisions.among(kept, reasons), blocks=self.radii.blocks(Rows(as_pandas(X), labels=own))), notes

    def measure(self, X: Any, Y: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> RowMeasures:
        """Bound, constraints, realised cost and regret of each row; only for rows that were not used for fitting."""
        rows, kept, reasons = self.read_usable(X, Y, parameters, labels)
        if rows is None:
            raise ValueError(f"No row can be decided. The first: {reasons[0]}.")
        measured = self.measured(rows)
        return measured if len(kept) == len(reasons) else measured.among(kept, len(reasons))

    def repair(self, X: Any, Y: Any, decisions: Any, parameters: Mapping[Any, Any] | None = None) -> Repairs:
        """The best second decisions for outcomes of rows that were decided."""
        X = self.as_rows(X)
        given = self.labels(X).index
        decided, outcomes = same_rows(decisions, n_rows_of(X), given), self.outcomes(X, Y)
        return repair(
            self.problem, decided, outcomes, parameter_rows(self.problem.parameters, parameters, n_rows_of(X), X)
        )

    def measured(self, rows: Rows) -> RowMeasures:
        """The measures of rows that `read` returned."""
        placed = self.place(rows)
        inside = np.asarray(placed.regions.scores(rows.Y) <= placed.radii)
        decisions, centers = placed.decide(), placed.regions.centers
        measured = measure_rows(self.problem, decisions, inside, centers, rows.Y, rows.parameters, placed.notes)
        if decisions.risk is not None:
            tail = tail_mean(measured.realised[measured.decided], decisions.risk[0])
            measured = replace(measured, risk=(decisions.risk[0], tail, decisions.risk_bound()))
        total = decisions.total_radius
        shares = None if total is None else decisions.cost_bound - placed.radii + total
        return replace(measured, blocks=decisions.blocks, total_bound=shares, levels=self.radii.level_of)

    def bound(self, X: Any, z: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> Decisions:
        """Bounds of other decisions z at the same regions; rows that cannot be used are marked."""
        if is_dask_frame(X):
            raise ValueError("bound takes rows in memory, got a Dask data frame. Call it for each part of the frame.")
        X, problem = self.as_rows(X), self.problem
        flat, (rows, kept, reasons) = given_decisions(problem, z, X), self.read_usable(X, None, parameters, labels)
        if rows is None:
            return no_decisions(problem, is_planned=False).among(kept, reasons)
        placed, values = self.place(rows), np.zeros((len(rows), 0)) if rows.parameters is None else rows.parameters
        found = bound_decisions(
            problem, lambda i: placed.regions.region(i, float(placed.radii[i])), placed.radii, values, flat[kept]
        )
        found = found.noted([placed.notes.get(i, "") for i in range(len(rows))])
        return replace(found if len(kept) == len(reasons) else found.among(kept, reasons), labels=self.labels(X))

    def scenarios(self, X: Any) -> Any:
        """A frame (pandas) of the policy's scenarios at each row, a column an outcome."""
        import pandas as pd

        X = self.as_rows(X)
        features = self.features(X)
        possible = self.family.scenarios(features, self.family.predictor.predict(features))
        if possible is None:
            raise ValueError(
                f'There are no scenarios: what decides is {self.family.made_of}. Fit with guarantee="cost" and no '
                "policy of your own."
            )
        names, index = self.problem.outcome_names, self.labels(X).index
        labels = range(n_rows_of(X)) if index is None else index
        frames = [pd.DataFrame(within_support(self.problem, each), columns=list(names)) for each in possible]
        return pd.concat(frames, keys=labels, names=["row", "scenario"])

    def region(self, x: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> Region:
        """The region of one row."""
        row = one_row(self.as_rows(x))
        if n_rows_of(row) != 1:
            raise ValueError(f"region takes one row, got {n_rows_of(row)}. Call it for each row.")
        placed = self.place(self.read(row, None, parameters, labels, to_score=True))
        if not np.isfinite(placed.radii[0]):
            raise ValueError(
                f"This row has no region, because its radius is infinite. {placed.notes.get(0, 'Nothing is promised')}."
            )
        return placed.regions.region(0, float(placed.radii[0]))

    def mean_volume(self, rows: Rows) -> Volume:
        """Volume of the regions, the mean over the rows that have one; infinite if none has."""
        placed = self.place(rows)
        bounded = np.flatnonzero(np.isfinite(placed.radii))
        if len(bounded) == len(placed.radii):
            return placed.regions.volume(placed.radii)
        return placed.regions.take(bounded).volume(placed.radii[bounded]) if len(bounded) else Volume(np.inf)

    def labels(self, X: Any) -> Labels:
        """Names of rows and columns of decisions at X, and the library of its frame."""
        names = tuple(self.problem.decision_names), tuple(self.problem.outcome_names)
        index, promise = X.index if hasattr(X, "iloc") else None, held_in_words(self.radii)
        return Labels(*names, index, backend_of(X), promise, self.problem.units or {})

    def with_radii(self, radii: Radii, digest: str) -> Self:
        """The model with other radii, and an entry for them in its audit trail."""
        return replace(self, radii=radii, trail=(*self.trail, _entry(radii, digest)))


def fitted_model(family: RegionFamily, record: Record, radii: Radii, digest: str) -> Model:
    """A model with the first entry of its audit trail: `digest` is of the rows that set its radii."""
    return Model(family, record, radii, (_entry(radii, digest),))


def _entry(radii: Radii, digest: str) -> CalibrationRecord:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return CalibrationRecord(date, radii.n, radii.radius, digest, radii.alpha)


def calibrated_radii(family: RegionFamily, calibrator: Calibrator, rows: Rows, alpha: float) -> tuple[Radii, str]:
    """Radii of a family, and a digest of the rows that set them: the one place where radii are set.

    The rows must not have trained, learned or chosen anything in the family.
    """
    if calibrator.needs_costs and not family.scores_are_costs:
        raise ValueError(
            f"{type(calibrator).__name__} adds up costs, and scores of {family.made_of} are none. Use "
            'guarantee="cost" and a problem without uncertain constraints.'
        )
    refuse_groups(calibrator, rows)
    if calibrator.needs_largest:
        given: Any = calibrator
        calibrator = replace(given, largest=largest_excess(family.problem))
    with one_blas_thread():
        columns = calibrator.columns(("cost", *family.problem.constraint_names))
        scores = scores_of(family, rows) if columns is None else scores_of(family, rows, of_promises=True)[:, columns]
    if not family.scores_are_steps:  # steps are integers, which differ by no rounding
        scores = scores + score_tolerance(scores)
    try:
        radii = calibrator.calibrate(scores, rows, alpha)
    except ValueError as error:
        lost = np.flatnonzero(np.isinf(scores).reshape(len(scores), -1).any(axis=1))
        if not family.why_infinite or not len(lost):
            raise
        # With other scores in their place an error that has another cause, such as too few rows, comes again.
        calibrator.calibrate(np.where(np.isinf(scores), 0.0, scores), rows, alpha)
        which = f"{len(lost)} of {len(scores)} calibration rows (the first: {', '.join(map(str, lost[:5]))})"
        raise ValueError(f"In {which} {family.why_infinite}") from error
    if not isinstance(radii, Radii):
        raise TypeError(
            "A calibrator must return a polyhedge.calibration.Radii, but the method calibrate of "
            f"{type(calibrator).__name__} returned {radii!r}. Return OneRadius(radius, alpha, len(scores), "
            "scores=scores), or a class that inherits it."
        )
    return radii, digest_rows(rows.features, rows.outcomes)


def rows_that_count(family: RegionFamily, calibrator: Calibrator, rows: Rows) -> Indices:
    """Numbers of the calibration rows that set the radius: 2000 where every one needs an integer program, else all.

    One is taken at random of each of 2000 equal stretches, by its position alone, so that they are as exchangeable
    with new rows as all are. Only one radius for all rows is set by so few, and only where no rows belong together.
    """
    n, is_one_radius = len(rows), type(calibrator) is Marginal and rows.groups is None
    seen = PlanningProblem(family.problem)
    if n <= _MOST_PROGRAMS or not is_one_radius or family.report is None or not seen.is_integer:
        return np.arange(n)
    if not (seen.needs_programs or family.problem.constraint_names):
        return np.arange(n)
    edges = np.arange(_MOST_PROGRAMS + 1) * n // _MOST_PROGRAMS
    return edges[:-1] + (np.random.default_rng(0).random(_MOST_PROGRAMS) * np.diff(edges)).astype(np.int64)


def scores_of(family: RegionFamily, rows: Rows, block: int = 262_144, *, of_promises: bool = False) -> Array:
    """Scores (N,) of rows with outcomes, `block` rows at once, so that memory does not grow with N.

    With `of_promises`, those of each promise (N, J).
    """
    n, scores = len(rows), []
    for start in range(0, n, block):
        part = rows if n <= block else rows.take(slice(start, start + block))
        regions = family.at(part.features, part.parameters)
        own = regions.scores_of_promises(part.Y) if of_promises else regions.scores(part.Y)
        if np.ndim(own) != 1 + of_promises or len(own) != len(part):
            raise ValueError(
                f"Scores must be one number for each of {len(part)} rows, but those of the {family.kind!r} family have "
                f"the shape {np.shape(own)}. Its set, or family, must return an array (n,) from scores."
            )
        scores.append(own)
    return np.concatenate(scores)


# The model in words


def held_in_words(radii: Radii) -> str:
    """How often the promise of these radii holds, such as "held in 9 of 10"."""
    share, is_of_blocks = 1 - Fraction(str(radii.alpha)), radii.of_blocks and radii.total_radius is None
    return f"held in {share.numerator} of {share.denominator}{' blocks' * is_of_blocks}"


def promise_of(model: Model) -> tuple[str, ...]:
    """What a model guarantees, and where the guarantee ends, for readers without statistics."""
    is_set, is_plain = model.guarantee == "outcome", model.radii.is_marginal
    covers = "outcome lies in the set that the decision guards against, and the " if is_set else ""
    keeps = " and all uncertain constraints hold" if model.problem.constraint_names else ""
    costs = f"{covers}cost is at most the bound that comes with the decision{keeps}"
    rests = f"This rests on {_rests_on(model.radii)} that did nothing else"
    any_predictor = "It needs no assumption on how good the predictions are."
    alone = "A decision that is changed later costs at most its worst case over the region, which may be infinite."
    share = f"{100 * (1 - model.radii.alpha):.6g} %"
    return (
        f"In at least {share} of cases like those it was calibrated on, the {costs}."
        if is_plain
        else f"The promise is that the {costs}. More exactly, it {model.radii.promise()}.",
        f"{rests}, and on one assumption: new cases come from the same source as these rows. {any_predictor}"
        if is_plain
        else f"{rests}. {any_predictor}",
        *(["It is an average over cases. One particular kind of case may be covered less often."] if is_plain else []),
        *([] if is_set else [alone]),
        "It is void if the world has changed since, or if calibration rows were used for anything else. "
        "Recalibrating on fresh rows restores it for cases that look like them."
        if is_plain
        else "It is void if calibration rows were used for anything else.",
        "It says nothing about how low the bound is: poor predictions give bounds that hold but are costly.",
        f"The guarantee in force is {guarantee_of(model)}",
    )


def guarantee_of(model: Model) -> str:
    """Which guarantee is in force and why, and what the other one needs."""
    problem, names = model.problem, ", ".join(parameter.name for parameter in model.problem.parameters)
    together = f"{names} to be exchangeable together with features and outcomes, as what past decisions left is not"
    why, other = (
        "by its learner",
        'guarantee="cost" has lower bounds as a rule; those of other decisions may be infinite',
    )
    if model.guarantee == "cost":
        why = "the default, with the lowest bounds as a rule"
        other = 'guarantee="outcome" has higher bounds as a rule; those of other decisions are finite more often'
        if names:
            other = f'It needs {together}; guarantee="outcome" does not'
    elif names:
        why = f"the default for a problem with parameters, because it needs nothing of the values of {names}"
        other = f'guarantee="cost" has lower bounds as a rule, and needs {together}'
    elif problem.uncertain_constraints is not None and not takes_margins(problem):
        why = "the default for uncertain constraints with a cost that is no sum of maxima affine in the outcome"
        other = 'guarantee="cost" needs such a cost, a learner or a policy of your own'
    is_asked = model.record.settings.get("guarantee", "None") != "None"
    return f'"{model.guarantee}", {"as asked" if is_asked else why}. {other}.'


def promised_by(model: Model) -> str:
    """What holds, of which rows and on which assumption: the bound, and uncertain constraints together with it."""
    together = ", together with all uncertain constraints," if model.problem.constraint_names else ""
    return f"bound{together} {model.radii.promise()}"


def summary_of(model: Model) -> str:
    """What was learned and promised, a line each."""
    shown = [f"  {name:<10} {printable(text)}" for name, text in summary_lines(model).items()]
    return "\n".join(["A fitted RobustDecider", *shown])


def summary_lines(model: Model) -> dict[str, str]:
    """What was learned and promised, by what it is about."""
    record, problem, result = model.record, model.problem, model.record.learn_result
    predictor = record.settings.get("chosen predictor", "")
    if not predictor:
        given = record.settings.get("predictor", "None")
        name = "a ridge regression on smooth features" if given == "None" else " ".join(given.split())
        predictor = "; ".join(filter(None, [name, record.settings.get("prepared columns")]))
    learned = model.family.made_of if model.family.report is None else model.family.report.why()
    if result is not None:
        learned = f"{type(result.set).__name__} from {record.n_learn} rows; {result.detail or result.status}"
    keeps = " and keeps all uncertain constraints" if problem.constraint_names else ""
    lines = {
        "problem": f"{problem.name}: decides {', '.join(problem.decision_names)}",
        "outcomes": ", ".join(problem.outcome_names),
        "predictor": predictor,
        "left out": record.settings.get("left out", ""),
        "rows": _parts_in_words(model),
        "learned": learned,
        "guarantee": guarantee_of(model),
        "promise": f"each decision costs at most its bound{keeps}, {held_in_words(model.radii)}",
        "exactly": f"the {promised_by(model)}",
        "rests on": f"{_rests_on(model.radii)} that did nothing else",
    }
    return {name: text for name, text in lines.items() if text}


def _rests_on(radii: Radii) -> str:
    """How many calibration rows, and how many groups or blocks they are."""
    return f"{radii.n} calibration rows" + f" in {radii.n_units} {radii.counted_as}" * radii.is_grouped


def _parts_in_words(model: Model) -> str:
    """The parts in the roles that they had: rows that learning did not need have calibrated with the others."""
    split = model.record.split
    train, learn, calibrate, held_out = map(len, (split.train, split.learn, split.calibrate, split.held_out))
    parts = f"{train} train, {learn} learn, {calibrate} calibrate"
    if learn and model.trail and model.trail[0].n == learn + calibrate:
        parts = f"{train} train and learn, {learn + calibrate} calibrate"
    elif model.trail and model.trail[0].n == _MOST_PROGRAMS < calibrate:
        parts += f" ({_MOST_PROGRAMS} of them, because each needs an integer program)"
    parts += f", {held_out} held out" if held_out else ""
    is_renewed = len(model.trail) > 1 or model.radii.n not in (calibrate, learn + calibrate, _MOST_PROGRAMS)
    return f"{parts} in fit; since then {model.radii.n} newer ones calibrate" if is_renewed else parts
