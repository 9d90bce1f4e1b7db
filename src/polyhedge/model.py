"""A fitted model: what was learned, what calibration made of it, and the record of how it was made.

The estimator makes one; files store it, workers receive it, pages and plots read it. It never changes: a new
calibration is a new model with the same family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.alignment import names_of, select_columns
from polyhedge._support.frames import as_pandas, backend_of, from_dictionaries, row_labels
from polyhedge._support.validation import Array, Indices, numbers_of
from polyhedge.calibration import Calibration, Calibrator, Radii, Rows, score_tolerance
from polyhedge.calibration.labels import as_values, check_row_labels
from polyhedge.data import Split, digest_rows, take_rows
from polyhedge.decisions import Labels, no_decisions
from polyhedge.evaluation import RowMeasures, measure_rows
from polyhedge.fitting import check_features, check_rows, n_rows_of, one_row
from polyhedge.learners import LearnResult
from polyhedge.predictors.raw_columns import as_table, oddities, read_features
from polyhedge.predictors.schema import Schema, features_of
from polyhedge.predictors.selection import is_made_here
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import check_outcomes
from polyhedge.problems.parameters import ProblemParameter, from_columns, parameter_rows
from polyhedge.regions import LearnedSet, RegionFamily, Regions, Work
from polyhedge.regions.family import DEFAULT_WORK
from polyhedge.robust import Decisions
from polyhedge.robust.threads import one_blas_thread
from polyhedge.sets import Region, Volume

Prints = NDArray[np.uint64]
"""Fingerprints of rows, a number each."""
_ASKED_OF_RADII = [name for name in vars(Radii) if name[0] != "_" and name not in ("state", "from_state")]
"""What a model asks of its radii; files ask for their state too, and only of types that they know."""
_BLOCK = 262_144
"""Rows that are scored at once: what is needed in between does not grow with their number."""


@dataclass(frozen=True, eq=False)
class Record:
    """How a model was made.

    Attributes
    ----------
    split, n_learn, data_digest : the parts of the rows, how many shaped the family, and a fingerprint of them.
    learn_result : the learner's evidence; None where nothing was learned by a learner.
    feature_names : columns of X; none where X was an array.
    parameters : values of the problem's parameters at which it was learned; None where that is not known.
    settings : how the settings of the estimator printed.
    details : what was stored beside it in a file.
    schema : the columns of X and their kinds; None where it had no names, or a predictor of one's own takes more than
        numbers.
    seen : a number for each row that trained, learned or chose anything in `fit`; None where that is not known.
    trained : the same for the rows on which the predictor was fitted since, by `refresh`.
    examples : features of a few rows of the fit, with their values of parameters and labels or weights. `save` compares
        decisions there, and no file holds them; None where they are not known.
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
    examples: tuple[Any, Array, Any] | None = None


@dataclass(frozen=True, eq=False)
class Placed:
    """The regions of a model at N rows, with their radii and what is odd about them."""

    regions: Regions
    radii: Array
    notes: Mapping[int, str]
    guarantee: str

    def decide(self) -> Decisions:
        """Decisions with bounds; the detail of a row says where nothing is promised for it."""
        decisions = replace(self.regions.decide(self.radii), radii=self.radii)
        if (
            self.guarantee == "cost" and decisions.expected_cost is None
        ):  # no policy has a worst outcome to tell instead
            decisions = replace(decisions, expected_cost=np.full(len(decisions), np.nan))
        return decisions.noted([self.notes.get(i, "") for i in range(len(decisions))] if self.notes else ())


@dataclass(frozen=True, eq=False)
class Model:
    """Region family, radii, and the record of both.

    Attributes
    ----------
    family : the regions, learned without calibration rows.
    radii : what calibration made of scores.
    trail : the audit trail: one `Calibration` for each calibration so far, the newest last.
    record : how the family was made.
    """

    family: RegionFamily
    record: Record
    radii: Radii
    trail: tuple[Calibration, ...]

    def __repr__(self) -> str:
        promise = f"{self.radii.kind} promise, alpha {self.radii.alpha:g}"
        return f"<Model: {self.family.kind} for {self.problem.name}, {promise}>"

    @property
    def problem(self) -> DecisionProblem:
        """What is decided."""
        return self.family.problem

    @property
    def guarantee(self) -> str:
        """What is promised: that the "outcome" lies in a set, or that the decision's "cost" is at most its bound."""
        return self.family.guarantee

    @property
    def sets(self) -> LearnedSet:
        """The sets whose shape was learned; an AttributeError where none was."""
        if self.family.sets is None:
            raise self.family.no_set()
        return self.family.sets

    @property
    def set_radius(self) -> float:
        """The radius at which the learned shape decides, the largest where rows have different ones."""
        return self.family.set_radius(self.radii.radius)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Columns that the predictor was fitted on; None where they had no names."""
        # A model from an old file knows the names only through its predictor.
        predictor = getattr(self.family.predictor, "model", None)
        names = self.record.feature_names or getattr(predictor, "feature_names_in_", ())
        return tuple(str(name) for name in names) or None

    @property
    def schema(self) -> Schema | None:
        """How raw columns become what the predictor takes; None where it takes them as they are."""
        return self.record.schema if is_made_here(getattr(self.family.predictor, "model", None)) else None

    def features(self, X: Any) -> Any:
        """The columns of X that the predictor knows, in their order, where both have names; checked."""
        X = as_pandas(self._framed(X))
        names = self.names or names_of(X)
        if self.schema is not None:
            features = read_features(X, self.schema)
        else:
            features = X if names is None else select_columns(X, names, "X")
        check_features(features, None, may_be_missing=self.family.predictor.takes_nan)
        return features

    def placed(
        self,
        X: Any,
        parameters: Mapping[Any, Any] | None = None,
        work: Work = DEFAULT_WORK,
        *,
        to_decide: bool = True,
        labels: Any = None,
    ) -> Placed:
        """The regions at the rows of X; `parameters` are needed to decide, and where scores depend on them."""
        values, rows = self.values(X, parameters, needed=to_decide), self.rows(X, labels)
        return Placed(self.family.at(rows.X, values, work), self.radii.at(rows), self.radii.notes(rows), self.guarantee)

    def place(
        self, features: Any, n: int, values: Array | None, work: Work = DEFAULT_WORK, labels: Any = None
    ) -> Placed:
        """The regions at n rows of checked features and flat values (n, t) of the problem's parameters."""
        rows = Rows(features, n, labels=labels)
        regions = self.family.at(features, values, work)
        return Placed(regions, self.radii.at(rows), self.radii.notes(rows), self.guarantee)

    def rows(self, X: Any, labels: Any = None) -> Rows:
        """What radii may know of new rows: checked features, and the labels that `calibration` reads."""
        check_row_labels(self.radii, X, labels)
        return Rows(self.features(X), n_rows_of(X), labels=labels)

    def values(self, X: Any, parameters: Mapping[Any, Any] | None, *, needed: bool = False) -> Array | None:
        """Flat values (N, t) of the problem's parameters; None where nothing depends on them and none are given."""
        if not (needed or parameters is not None or self.family.scores_need_parameters):
            return None
        return parameter_rows(self.problem.parameters, parameters, n_rows_of(X), X)

    def scores(self, X: Any, Y: Any, parameters: Mapping[Any, Any] | None = None) -> Array:
        """The least radius at which each row's region holds its outcome (N,)."""
        outcomes = self.outcomes(X, Y)
        return scores_of(self.family, self.features(X), outcomes, self.values(X, parameters))

    def decide(
        self, X: Any, parameters: Mapping[Any, Any] | None = None, work: Work = DEFAULT_WORK, labels: Any = None
    ) -> Decisions:
        """Decisions with bounds for new rows; rows that cannot be decided are marked."""
        try:
            return self.placed(X, parameters, work, labels=labels).decide()
        except ValueError:
            rows, reasons = self.usable(X, parameters)
            if len(rows) == len(reasons):
                raise
        if not len(rows):
            return no_decisions(self.problem, is_planned=self.guarantee == "cost").among(rows, reasons)
        X, parameters, labels = self.some(rows, X, parameters, labels)
        return self.placed(X, parameters, work, labels=labels).decide().among(rows, reasons)

    def usable(self, X: Any, parameters: Mapping[Any, Any] | None = None) -> tuple[Indices, list[str]]:
        """The rows of X that can be decided, and for each row why it cannot; empty texts where it can."""
        X, n = as_pandas(X), n_rows_of(X)
        reasons: Any = [""] * n
        if self.schema is not None:
            features, reasons, _ = features_of(as_table(X, self.schema.source_names), self.schema)
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

    def some(self, rows: Indices, X: Any, parameters: Mapping[Any, Any] | None, labels: Any) -> tuple[Any, Any, Any]:
        """Some rows of X, with their values of parameters and the labels that calibration reads."""
        values = from_columns(self.problem.parameters, parameters, X)
        values |= {parameter.name: own[rows] for parameter, own in self._row_values(X, parameters)}
        return take_rows(as_pandas(X), rows), values or None, None if labels is None else as_values(labels)[rows]

    def _row_values(self, X: Any, parameters: Mapping[Any, Any] | None) -> list[tuple[ProblemParameter, Array]]:
        """Parameters that have a value (n, *shape) for each row of X, and these."""
        given = from_columns(self.problem.parameters, parameters, X)
        known = [(one, given[one.name]) for one in self.problem.parameters if one.name in given]
        shape = (n_rows_of(X),)
        return [(one, np.asarray(own, dtype=np.float64)) for one, own in known if np.shape(own) == shape + one.shape]

    def worst_outcomes(self, X: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> Array:
        """For each row (N, d) an outcome at which the decision costs what it may: of the set, or an illustration."""
        decided = self.decide(X, parameters, labels=labels)
        if len(decided) == 0:
            return decided.worst_outcome
        values = self.values(X, parameters, needed=True)
        known = np.zeros((len(decided), 0)) if values is None else values
        return self.family.worst_outcomes(self.features(X), decided, known)

    @property
    def _n_features(self) -> int | None:
        return getattr(getattr(self.family.predictor, "model", None), "n_features_in_", None)

    def _framed(self, X: Any) -> Any:
        """Dictionaries as a frame, except where the predictor was fitted on dictionaries."""
        return X if self.names is None and self._n_features is None else from_dictionaries(X)

    def as_rows(self, X: Any) -> Any:
        """X, or one row of it where it is a series by the names of the features; not where it is a column.

        Dictionaries by these names are rows too, and so is a list or array of as many numbers as there are features.
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

    def oddities(self, X: Any) -> Sequence[str]:
        """What is unlike the training rows in each row of X; nothing where kinds of columns are not known."""
        return () if self.schema is None else tuple(oddities(as_pandas(X), self.schema))

    def labels(self, X: Any, frame: str | None = None, promise: str = "") -> Labels:
        """What rows and columns of decisions at X are called; `frame` is a library, by default the one of X."""
        names = tuple(self.problem.decision_names), tuple(self.problem.outcome_names)
        return Labels(*names, row_labels(X), frame or backend_of(X), promise, self.problem.units or {})

    def region(self, x: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> Region:
        """The region of one row."""
        row = one_row(self.as_rows(x))
        if n_rows_of(row) != 1:
            raise ValueError(f"region takes one row, got {n_rows_of(row)}. Call it for each row.")
        placed = self.placed(row, parameters, to_decide=False, labels=labels)
        if not np.isfinite(placed.radii[0]):
            raise ValueError(
                f"This row has no region, because its radius is infinite. {placed.notes.get(0, 'Nothing is promised')}."
            )
        return placed.regions.region(0, float(placed.radii[0]))

    def measure(self, X: Any, Y: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> RowMeasures:
        """Bound, constraints, realised cost and regret row by row; rows that were not used for fitting."""
        outcomes = self.outcomes(X, Y)
        rows, reasons = self.usable(X, parameters)
        if 0 < len(rows) < len(reasons):
            X, parameters, labels = self.some(rows, X, parameters, labels)
            return self.measure(X, outcomes[rows], parameters, labels).among(rows, len(reasons))
        placed = self.placed(X, parameters, labels=labels)
        return measure_rows(
            self.problem,
            placed.decide(),
            np.asarray(placed.regions.scores(outcomes) <= placed.radii),
            placed.regions.centers,
            outcomes,
            from_columns(self.problem.parameters, parameters, X),
            placed.notes,
        )

    def outcomes(self, X: Any, Y: Any) -> Array:
        """The outcomes (N, d) of the rows of X, in the order of the problem."""
        check_rows(X, Y)
        outcomes = check_outcomes(self.problem, as_pandas(Y))
        if len(outcomes) != n_rows_of(X):
            raise ValueError(f"X and Y must have the same number of rows, got {n_rows_of(X)} and {len(outcomes)}.")
        return outcomes

    def mean_volume(self, X: Any, parameters: Mapping[Any, Any] | None = None, labels: Any = None) -> Volume:
        """Volume of the regions, the mean over the rows that have one; infinite where none has."""
        placed = self.placed(X, parameters, to_decide=False, labels=labels)
        rows = np.flatnonzero(np.isfinite(placed.radii))
        if len(rows) == len(placed.radii):
            return placed.regions.volume(placed.radii)
        return placed.regions.take(rows).volume(placed.radii[rows]) if len(rows) else Volume(np.inf)

    def with_radii(self, radii: Radii, digest: str) -> Self:
        """The model with other radii, and an entry for them in its audit trail."""
        return replace(self, radii=radii, trail=(*self.trail, _entry(radii, digest)))


def unusable_numbers(features: Any, *, may_be_missing: bool) -> dict[int, str]:
    """Which columns of rows, by their numbers, are missing or not finite and must not be."""
    numbers = numbers_of(features)
    if numbers is None:
        return {}
    bad = np.isinf(numbers) if may_be_missing else ~np.isfinite(numbers)
    names = getattr(features, "columns", None)
    names = np.arange(numbers.shape[1]) if names is None else features.select_dtypes("number").columns
    reasons = {}
    for row in np.flatnonzero(bad.any(axis=1)):
        kind = "missing" if np.isnan(numbers[row, bad[row]]).all() else "not finite"
        reasons[int(row)] = f"{kind}: {', '.join(str(name) for name in names[bad[row]])}"
    return reasons


def fitted_model(family: RegionFamily, record: Record, radii: Radii, digest: str) -> Model:
    """A model with the first entry of its audit trail: `digest` is of the rows that set its radii."""
    return Model(family, record, radii, (_entry(radii, digest),))


def calibrated_radii(
    family: RegionFamily,
    calibrator: Calibrator,
    features: Any,
    outcomes: Array,
    alpha: float,
    groups: Any = None,
    values: Array | None = None,
    labels: Any = None,
) -> tuple[Radii, str]:
    """Radii of a family, and a digest of the rows that set them: the one place where radii are set.

    The rows must not have trained, learned or chosen anything in the family.
    """
    with one_blas_thread():
        scores = scores_of(family, features, outcomes, values)
    if not family.scores_are_steps:  # steps are integers, which differ by no rounding
        scores = scores + score_tolerance(scores)
    rows = Rows(features, len(scores), groups, labels)
    try:
        radii = calibrator.calibrate(scores, rows, alpha)
    except ValueError as error:
        n_lost = int(np.isinf(scores).sum())
        if not family.why_infinite or not n_lost:
            raise
        # With other scores in their place an error that has another cause, such as too few rows, comes again.
        calibrator.calibrate(np.where(np.isinf(scores), 0.0, scores), rows, alpha)
        raise ValueError(f"In {n_lost} of {len(scores)} calibration rows {family.why_infinite}") from error
    _check_radii(radii, calibrator)
    return radii, digest_rows(features, outcomes)


def _check_radii(radii: Any, calibrator: Calibrator) -> None:
    """Raise where a calibrator, which may be the user's own, returned something else than radii."""
    missing = [name for name in _ASKED_OF_RADII if not hasattr(radii, name)]
    if missing:
        raise TypeError(
            "A calibrator must return radii with the members of polyhedge.calibration.Radii, but the method calibrate "
            f"of {type(calibrator).__name__} returned {radii!r}, without {', '.join(missing)}. Return "
            "OneRadius(radius, alpha, len(scores), scores=scores), or a class that inherits it."
        )


def scores_of(family: RegionFamily, features: Any, outcomes: Array, values: Array | None) -> Array:
    """Scores of rows (N,), block by block; `values` (N, t) of the problem's parameters where these matter."""
    n = len(outcomes)

    def score(rows: Indices) -> Array:
        part = features if len(rows) == n else take_rows(features, rows)
        scores = family.at(part, None if values is None else values[rows]).scores(outcomes[rows])
        if np.shape(scores) != (len(rows),):
            raise ValueError(
                f"Scores must be one number for each of {len(rows)} rows, but those of the {family.kind!r} family have "
                f"the shape {np.shape(scores)}. Its set, or family, must return an array (n,) from scores."
            )
        return scores

    return np.concatenate([score(np.arange(k, min(k + _BLOCK, n))) for k in range(0, n, _BLOCK)])


def _entry(radii: Radii, digest: str) -> Calibration:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(date, radii.n, radii.radius, digest, radii.alpha)
