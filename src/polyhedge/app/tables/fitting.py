"""From a table and a decision problem to a fitted decider, with everything a careful user wants to be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from polyhedge import diagnostics, learners
from polyhedge._support.validation import Array, check_alpha
from polyhedge.app.tables.labels import labels_column, labels_or_weights
from polyhedge.app.tables.options import LEARNERS, TableOptions
from polyhedge.app.tables.parameters import Sources, columns_in, sources_of, take_parameters
from polyhedge.app.tables.roles import row_prints
from polyhedge.app.tables.rows import measure_table, quick_volume, thinned_coverage
from polyhedge.app.tables.usable import UsableRows, check_solvable, order_outcomes
from polyhedge.calibration import OrderedCalibrator, is_marginal, reads_weights
from polyhedge.calibration.labels import with_values
from polyhedge.calibration.named import calibrator_named
from polyhedge.data import Split, TimeSplit, partition_rows
from polyhedge.data.splits import IndexArray
from polyhedge.diagnosing import DiagnosticWarning, categories, diagnostics_of_evaluation
from polyhedge.diagnostics import Diagnostic
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Evaluation, Proportion
from polyhedge.learners import Certified
from polyhedge.predictors.schema import Schema, choose_columns
from polyhedge.predictors.selection import choose_predictor, make_predictor
from polyhedge.predictors.table import Table
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import is_named
from polyhedge.settings import check_caution, guarantee_in_force

__all__ = ["FittedTable", "fit_table"]


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A fitted decider and what was found out on the way.

    Attributes
    ----------
    decider, schema : the model and the columns it takes.
    split, held_out : row numbers within the usable rows.
    X, Y : the usable rows.
    evaluation : on the held-out part; None where there is none.
    thinned : coverage of one held-out row of each group; None where there are no groups.
    predictor, reason : name of the predictor and why it was chosen.
    notes, warnings : what a reader should know, and should worry about.
    n_groups : groups among the calibration rows; None where rows count one by one.
    prints : fingerprints of rows used for training and learning.
    sources, parameters : where the values of the problem's parameters come from, and those of the usable rows.
    labels_column, labels : column that is no feature with labels or weights of calibration, and its values here.
    """

    decider: RobustDecider
    schema: Schema
    split: Split
    held_out: IndexArray
    X: Any
    Y: Array
    evaluation: Evaluation | None
    thinned: Proportion | None
    predictor: str
    reason: str
    notes: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]
    n_groups: int | None
    prints: tuple[str, ...] = field(repr=False)
    sources: Sources
    parameters: Mapping[str, Array]
    labels_column: str | None = None
    labels: Any = None

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each part."""
        parts = {name: len(getattr(self.split, name)) for name in ("train", "learn", "calibrate")}
        return {**parts, "held_out": len(self.held_out)}

    @property
    def n_between(self) -> int:
        """Rows in no part, because they lie in a gap between two."""
        return len(self.Y) - sum(self.sizes.values())


def fit_table(
    table: Table,
    problem: DecisionProblem,
    outcomes: Sequence[str],
    alpha: float = 0.1,
    options: TableOptions | None = None,
) -> FittedTable:
    """Split a history, train, learn, calibrate, and look at the held-out rows.

    Parameters
    ----------
    table : the history, one row an observation.
    problem : what is to be decided.
    outcomes : names of the columns with the problem's outcomes.
    alpha : share of bounds that may fail.
    options : see `TableOptions`.

    Examples
    --------
    >>> import pandas as pd
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(0))
    >>> frame = pd.DataFrame(np.hstack([X, Y]), columns=["a", "b", "c", "d", "cost_1", "cost_2"])
    >>> problem = ph.problems.simplex_linear([0.0, 0.0])
    >>> fitted = fit_table(Table(frame, "history.csv"), problem, ["cost_1", "cost_2"], 0.2)
    >>> fitted.sizes, fitted.predictor
    ({'train': 120, 'learn': 60, 'calibrate': 60, 'held_out': 60}, 'smooth-ridge')
    """
    options = TableOptions() if options is None else options
    check_alpha(alpha)
    outcomes = order_outcomes(problem, outcomes)
    if not len(table):
        raise ValueError(f"{table.source} has the names of columns but no rows. Bring rows to learn from.")
    problem = problem if is_named(problem) else problem.labelled(outcome_names=outcomes)
    guarantee = guarantee_in_force(options.guarantee, problem, options.learner)
    learner = _learner(options) if options.learner or guarantee == "outcome" else None
    check_caution(options.caution, guarantee, learner)
    options = replace(options, parameters=sources_of(problem, options.parameters))
    aside = [*options.group, *([options.time_column] if options.time_column else [])]
    table.check_columns(aside)
    aside += columns_in(options.parameters)
    schema, about_columns = choose_columns(
        table, outcomes, features=options.features, categorical=options.categorical, set_aside=aside
    )
    rows = UsableRows.of(table, schema, problem, options)
    if options.starts is None:
        rows.check_size(table.source, alpha, options.shares, "cost" if learner is None else "outcome")
    calibrator = None if options.calibration is None else calibrator_named(options.calibration)
    column, labels = labels_column(calibrator, table, rows.X, outcomes), None
    if column is not None:
        labels = labels_or_weights(table, column, are_weights=reads_weights(calibrator))[rows.kept]
        calibrator = with_values(calibrator, labels)
    check_solvable(problem, rows.Y.mean(axis=0), rows.parameters)
    rng = np.random.default_rng(options.seed)
    how = _how(rows, options)
    split, held_out = _parts(rows, how, options, rng)
    predictor, reason = _predictor(schema, rows, split, options)
    in_order: dict[str, Any] = {} if how is None else {"split": how}
    decider = RobustDecider(
        problem,
        predictor=make_predictor(predictor, schema, random_state=options.seed),
        alpha=alpha,
        learner=learner,
        random_state=options.seed,
        guarantee=options.guarantee,
        caution=options.caution,
        calibration=calibrator,
        **in_order,
    )
    with catch_warnings():
        # The same and more is said below, in the words of the command line.
        simplefilter("ignore", DiagnosticWarning)
        decider.fit(
            rows.X,
            rows.Y,
            train=split.train,
            learn=split.learn,
            calibrate=split.calibrate,
            groups=rows.groups,
            parameters=rows.parameters,
        )
    n_groups = None if rows.groups is None else len(np.unique(rows.groups[split.calibrate]))
    n_units = decider.n_calibrate_ if n_groups is None else n_groups
    held_out_labels = None if labels is None else labels[held_out]
    evaluation, thinned = _held_out(decider, rows, held_out, rng, held_out_labels, n_units)
    told: tuple[Any, ...] = () if evaluation is None else evaluation.diagnostics
    is_dealt = rows.times is None and not options.group
    about_order = diagnostics.order_diagnostic(table.frame.iloc[rows.kept]) if is_dealt else []
    seen = rows.kept[np.concatenate([split.train, split.learn])]
    return FittedTable(
        decider=decider,
        schema=schema,
        split=split,
        held_out=held_out,
        X=rows.X,
        Y=rows.Y,
        evaluation=evaluation,
        thinned=thinned,
        predictor=predictor,
        reason=reason,
        notes=(*table.notes, *about_columns),
        warnings=(*rows.warnings, *about_order, *told, *_diagnostics(decider, rows, split, held_out, outcomes)),
        n_groups=n_groups,
        prints=row_prints(Table(table.frame.iloc[seen], table.source), [*schema.source_names, *outcomes]),
        sources=options.parameters,
        parameters=rows.parameters,
        labels_column=column,
        labels=labels,
    )


def _how(rows: UsableRows, options: TableOptions) -> TimeSplit | None:
    """The split in time, which a model file keeps, so that newer rows are split as these; None for one at random."""
    if rows.times is None:
        return None
    return TimeSplit(options.time_column, rows.times, options.shares, options.starts, options.gap)


def _parts(
    rows: UsableRows, how: TimeSplit | None, options: TableOptions, rng: np.random.Generator
) -> tuple[Split, IndexArray]:
    """Train, learn and calibrate rows, and those held out."""
    if how is None:
        split = partition_rows(len(rows.Y), options.shares, rng=rng, groups=rows.groups)
    else:
        split = how.parts(rows.X, len(rows.Y), groups=rows.groups)
    return split, split.held_out


def _learner(options: TableOptions) -> Certified:
    """What learns a set."""
    kind = getattr(learners, LEARNERS[options.learner or "auto"])
    limit = {"time_limit": options.time_limit} if "time_limit" in {one.name for one in fields(kind)} else {}
    return Certified(kind(**limit), keep_interrupted=options.keep_interrupted)


def _predictor(schema: Schema, rows: UsableRows, split: Split, options: TableOptions) -> tuple[str, str]:
    if options.predictor != "auto":
        return options.predictor, "as asked"
    groups = None if rows.groups is None else rows.groups[split.train]
    X, Y = rows.X.iloc[split.train], rows.Y[split.train]
    return choose_predictor(schema, X, Y, groups=groups, random_state=options.seed)


def _held_out(
    decider: RobustDecider, rows: UsableRows, held_out: IndexArray, rng: np.random.Generator, labels: Any, n_units: int
) -> tuple[Evaluation | None, Proportion | None]:
    if not len(held_out):
        return None, None
    X = rows.X.iloc[held_out]
    measures = measure_table(decider, X, rows.Y[held_out], take_parameters(rows.parameters, held_out), labels)
    groups = None if rows.groups is None else rows.groups[held_out]
    thinned = None if groups is None else thinned_coverage(measures, groups, rng)
    summary = measures.summary(decider.alpha_, volume=quick_volume(decider, X, labels))
    coverage = summary.coverage if thinned is None else thinned
    found = diagnostics_of_evaluation(decider.model_, coverage, measures, n_units, groups)
    return replace(summary, diagnostics=tuple(found)), thinned


def _ties(decider: RobustDecider, scores: Array) -> list[Diagnostic]:
    """Scores of a path are steps: that many are equal says nothing of the rows."""
    model = decider.model_
    return (
        [] if model.family.scores_are_steps else diagnostics.ties_diagnostic(scores, decider.radius_, model.guarantee)
    )


def _diagnostics(
    decider: RobustDecider,
    rows: UsableRows,
    split: Split,
    held_out: IndexArray,
    outcomes: Sequence[str],
) -> list[Diagnostic]:
    scores = _scores(decider, rows, split.calibrate)
    judged = held_out if len(held_out) else split.calibrate
    centers = rows.Y[judged] - _residuals(decider, rows, judged)
    n_units = decider.n_calibrate_ if rows.groups is None else len(np.unique(rows.groups[split.calibrate]))
    about_radius = []
    if is_marginal(decider.model_.radii):
        inside = scores <= decider.radius_
        about_radius = [
            *_ties(decider, scores),
            *diagnostics.few_rows_diagnostic(n_units, decider.alpha_, rows.unit),
            *(
                []
                if rows.groups is not None
                else diagnostics.groups_diagnostic(inside, categories(rows.X, split.calibrate))
            ),
        ]
    if rows.times is None and isinstance(decider.calibration, OrderedCalibrator) and decider.calibration.needs_order:
        text = "rows are weighed by their age, but without --time-column they have none: the weights mean nothing."
        about_radius.append(Diagnostic(diagnostics.Code.ORDER, f"{diagnostics.Code.ORDER}: {text} Give --time-column."))
    return [
        *_drift(decider, rows, split, held_out, outcomes),
        *about_radius,
        *diagnostics.predictor_diagnostics(
            rows.Y[judged],
            centers,
            rows.Y[split.train].mean(axis=0),
            outcomes,
            is_scaled=getattr(decider, "spread_", None) is not None,
        ),
    ]


def _drift(
    decider: RobustDecider, rows: UsableRows, split: Split, held_out: IndexArray, outcomes: Sequence[str]
) -> list[Diagnostic]:
    """Between parts where they are ordered in time; random parts are alike, so there the file's order is tested."""
    # Rows that developed a policy have trained its predictor too: their residuals are smaller than those of new rows.
    learned = split.learn[:0] if decider.model_.family.trains_on_learning_rows else split.learn
    if rows.times is None:
        unseen = np.sort(np.concatenate([learned, split.calibrate, held_out]))
        return diagnostics.drift_along_file(_by_group(_residuals(decider, rows, unseen), rows, unseen), outcomes)
    parts = {"learning": learned, "calibration": split.calibrate, "held-out": held_out}
    residuals = {name: _residuals(decider, rows, part) for name, part in parts.items() if len(part)}
    scores = [
        _by_group(_scores(decider, rows, parts[name])[:, None], rows, parts[name])[:, 0]
        for name in ("calibration", "held-out")
        if name in residuals
    ]
    by_group = [(name, _by_group(values, rows, parts[name])) for name, values in residuals.items()]
    return diagnostics.drift_between_parts(by_group, scores, outcomes)


def _residuals(decider: RobustDecider, rows: UsableRows, part: IndexArray) -> Array:
    if not len(part):
        return np.zeros((0, rows.Y.shape[1]))
    return np.asarray(rows.Y[part] - decider.centers(rows.X.iloc[part]))


def _scores(decider: RobustDecider, rows: UsableRows, part: IndexArray) -> Array:
    return decider.model_.scores(rows.X.iloc[part], rows.Y[part], take_parameters(rows.parameters, part))


def _by_group(values: Array, rows: UsableRows, part: IndexArray) -> Array:
    """One row for each group, its mean, in the order of the file: near-copies are no independent evidence."""
    return diagnostics.one_of_each_group(values, None if rows.groups is None else rows.groups[part])
