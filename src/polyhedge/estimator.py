"""`RobustDecider`: fit, decide, evaluate, monitor, recalibrate and refresh, as one scikit-learn estimator.

Its methods are calls of functions on the fitted `Model`; the estimator holds the settings, and the model in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from polyhedge._support.files import replace_file
from polyhedge._support.frames import is_dask_frame
from polyhedge._support.progress import progress as bar, tell
from polyhedge._support.settings import SettingsEstimator
from polyhedge._support.validation import Array
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration import Calibrator, Marginal
from polyhedge.calibration.by_constraint import with_levels
from polyhedge.data import GroupSplit, TimeSplit
from polyhedge.decisions import Decisions
from polyhedge.diagnostics import diagnostics_of_evaluation, fresh_rows_diagnostic, warn_of
from polyhedge.distributed import decide_frame
from polyhedge.evaluation import Evaluation, RowMeasures, by_group
from polyhedge.fitting import CAUTION, fit
from polyhedge.io import MAX_BYTES, Key, read_model, write_model
from polyhedge.learners import Learner, LearnResult
from polyhedge.model import Model, guarantee_of, promised_by, summary_of
from polyhedge.monitoring import monitor
from polyhedge.monitoring.monitor import Monitoring, MonitoringState
from polyhedge.monitoring.refresh import recalibrated, refreshed
from polyhedge.predictors.regressor import takes_nan, takes_sparse
from polyhedge.problems import DecisionProblem
from polyhedge.regions import LearnedSet, Work
from polyhedge.repairs import Repairs
from polyhedge.robust.threads import one_blas_thread
from polyhedge.rows import labels_by
from polyhedge.sets import Region
from polyhedge.solvers.options import Solver, solver_of

Parameters = Mapping[Any, Any] | None
Labels = ArrayLike | None
_LOG = logging.getLogger(__name__)
_OLD_BOUNDS = "outcomes were held against bounds that are no more in force, and none of them was counted. Update"
_COUNTING = Lock()
"""Held while outcomes are counted: those of two threads must both be."""
_EXCHANGE = Lock()
"""Held while a decider gets another model: one that was made for the old one must not replace it."""


class RobustDecider(SettingsEstimator):
    r"""Robust decisions whose cost bound holds with probability at least 1 - alpha.

    `fit` splits the rows into three disjoint parts. The first trains the predictor. The second develops, with the
    first, a policy or the shape of a set. The third sets the radius by conformal calibration and nothing else. For a
    new x, $P\{g(z(x), Y) \le c(x)\} \ge 1 - \alpha$, c(x) being its `cost_bound`: in finite samples, for any predictor
    and any distribution, as long as the rows are exchangeable.

    Parameters
    ----------
    problem : DecisionProblem
    predictor : "auto", scikit-learn regressor, Pipeline, FrozenEstimator, callable, "precomputed" or None
        "auto" takes arrays and raw data frames, and chooses by cross-validation on the training rows;
        `settings_["chosen predictor"]` says what and why. None is the smooth ridge, and "auto" for raw frames.
        "smooth-ridge", "ridge", "forest", "boosting" and "linear" name one of ours. "precomputed": X is the prediction.
    alpha : float, or dict
        Share of new rows whose bound may fail (with guarantee="outcome": whose outcome may lie outside the set). With
        uncertain constraints also a level for each, `alpha={"cost": 0.1, "load is met": 0.01}`.
    learner : Learner or None
        How the shape of a set is learned; None for the default, which needs none if guarantee is "cost".
    split : (train, learn, calibrate), "time", `data.TimeSplit` or `data.GroupSplit`
        Shares of the rows, at random; "time" takes rows in the order in which they come. Rows of a fourth share are
        held out, for `evaluate`: `split_.held_out`.
    random_state : int, numpy Generator, RandomState or None
        Same seed, same result.
    calibration : Calibrator or None
        What the promise is about, see `polyhedge.calibration`; None for all rows together. `promise_` has the words.
    guarantee : {"cost", "outcome"} or None
        "cost": a policy fixes the decision first, and the bound on the cost of this one decision is calibrated. It is
        the lowest. Rules compete on training and learning rows, see `policy_`; with a learner, the policy is the best
        decision against the learned set. "outcome": a set of outcomes is calibrated, and the decision is the best
        against all of them. None means "cost", with exceptions: `guarantee_` says which is in force, and why.
    policy : function, estimator with predict, or None
        A policy of your own, X -> decisions (N, ...), or (X, parameters) -> decisions: implies guarantee="cost". It
        must depend on each row alone, and not be made from calibration rows. An estimator with `fit` is trained.
    caution : float
        From 0 to 1: the weight of the bound against the mean cost when policies compete, see `frontier`.
    solver : Solver or None
        Options, and another back-end for integers; not kept in files.

    Attributes
    ----------
    model_ : the fitted `Model`, which never changes; `recalibrate` makes another. Other attributes are read from it.
    diagnostics_ : of the last fit, refresh or recalibration; each was a `DiagnosticWarning`.
    refreshed_split_ : the row indices of the parts of the last `refresh`.

    Notes
    -----
    Columns with names are put in the order of `fit`, and outcomes in that of the problem's outcome names. Frames and
    series with unequal indices are refused, never aligned. Frames of other libraries reach the predictor as pandas
    frames; rows that are not in memory are refused.

    Rows that chose a setting must not calibrate it: `recalibrate` the `best_estimator_` of a `GridSearchCV` on rows
    that the search has not seen.

    Examples
    --------
    >>> import numpy as np, polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
    >>> problem, box = ph.problems.simplex_linear([-0.08, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
    >>> print(decider.summary().splitlines()[0])
    A fitted RobustDecider
    >>> decider.decide(X[400:]).z.shape, decider.evaluate(X[400:], Y[400:]).bound_held.n
    ((200, 2), 200)
    >>> decider.region(X[400]).contains(decider.centers(X[400:401])), decider.at(alpha=0.2).radius_ < decider.radius_
    (array([ True]), True)
    >>> decider.recalibrate(X[400:500], Y[400:500]).n_calibrate_, decider.update(X[500:], Y[500:]).coverage.n
    (100, 100)
    """

    model_: Model
    _state = MonitoringState()

    def __init__(
        self,
        problem: DecisionProblem,
        predictor: Any = "auto",
        alpha: float | Mapping[str, float] = 0.1,
        learner: Learner | None = None,
        split: Sequence[float] | str | TimeSplit | GroupSplit = (0.5, 0.25, 0.25),
        random_state: Any = None,
        calibration: Calibrator | None = None,
        guarantee: str | None = None,
        policy: Any = None,
        caution: float = CAUTION,
        solver: Solver | None = None,
    ) -> None:
        self.problem = problem
        self.predictor = predictor
        self.alpha = alpha
        self.learner = learner
        self.split = split
        self.random_state = random_state
        self.calibration = calibration
        self.guarantee = guarantee
        self.policy = policy
        self.caution = caution
        self.solver = solver

    def fit(
        self,
        X: Any,
        Y: ArrayLike,
        *,
        train: Labels = None,
        learn: Labels = None,
        calibrate: Labels = None,
        groups: Labels = None,
        parameters: Parameters = None,
        sample_weight: Labels = None,
        progress: bool = False,
    ) -> Self:
        """Split the rows, train the predictor, develop the policy or learn the set, and calibrate its radius.

        Ctrl-C raises KeyboardInterrupt and leaves a decider without a radius.

        Parameters
        ----------
        X : (n, n_features) array, DataFrame or whatever the predictor takes
        Y : (n, n_outcomes) array, DataFrame or, for one outcome, Series
        train, learn, calibrate : index arrays or masks, optional
            The split, if it should not be random; the parts must not overlap, and groups must not lie across them.
        groups : (n,) labels, optional
            Rows of one group are near-copies: they are kept in one part, and the radius counts groups instead of rows.
            The promise is then for a row of a new group.
        parameters : dict, optional
            Values of the problem's parameters, as in `decide`. A set is learned for one reference, `parameters_`: the
            medians, or the nearest feasible values that occur.
        sample_weight : (n,) numbers, optional
            How much each row counts when the predictor is fitted, and for nothing else. Searches and pipelines hand it
            on after `decider.set_fit_request(sample_weight=True)`.
        progress : bool
            Whether to show a bar with the time left.
        """
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # no part of an earlier fit may stay with parts of this one
        self._fit_has_begun, self._state = True, MonitoringState()
        with bar("fitting", progress), self._solving, one_blas_thread():
            model, found = fit(self, X, Y, (train, learn, calibrate), groups, parameters, sample_weight)
        self._take_over(model)
        self._prepared_from, self.diagnostics_ = self.calibration, found
        warn_of(found)
        return self

    def decide(
        self,
        X: Any,
        *,
        parameters: Parameters = None,
        labels: Labels = None,
        n_jobs: int | None = None,
        progress: Callable[[int, int], None] | bool = False,
    ) -> Decisions:
        """Robust decisions with cost bounds for new rows; warns if a row has no optimal decision.

        A row with a missing or impossible value keeps its place: its decision and bound are NaN, its status is "not
        decided", and its detail says why.

        Parameters
        ----------
        X : (N, n_features) array, DataFrame, whatever the predictor takes, or Dask DataFrame; a series or dictionary by
            the names of the features, or as many numbers as there are features, is one row.
        parameters : dict, optional
            Values of the problem's parameters, by name: one for all rows, one a row, or the names of columns of X; by
            default the column of its name.
        labels : (N,) labels or weights, optional
            Those of these rows, if `calibration` was given labels or weights of the rows of `fit`; of a Dask DataFrame
            the name of the column that holds them.
        n_jobs : int, optional
            Number of threads, by default one a core; the decisions do not depend on it.
        progress : bool or callable
            True shows a bar; a callable is called with the numbers of rows decided and of all.

        Returns
        -------
        Decisions
            Its `to_frame()` has the names of the problem, and the index and the library of X. A lazy Dask DataFrame if
            X is one: `polyhedge.distributed.decide_rows` says with which columns.
        """
        model = self._fitted("decide")
        if is_dask_frame(X):
            with self._solving:
                lazy: Any = decide_frame(model, X, parameters, labels)
            return lazy
        X = model.as_rows(X)
        with bar("deciding") if progress is True else nullcontext(), self._solving:
            notify = progress if callable(progress) else None
            if notify is None and _LOG.isEnabledFor(logging.INFO):
                notify = partial(tell, _LOG, "deciding")
            decisions, notes = model.decide_with_notes(X, parameters, Work(n_jobs, notify), labels)
        complaint = decisions.complaint()
        if complaint:
            warn(Code.NO_DECISION, complaint, stacklevel=2)
        return replace(decisions.noted(notes), labels=model.labels(X))

    def repair(self, X: Any, Y: Any, decisions: Decisions, *, parameters: Parameters = None) -> Repairs:
        """The best second decisions for outcomes `Y` at rows `X` that `decide` returned `decisions` for, with costs.

        `parameters` are as in `decide`.
        """
        with self._solving:
            repairs = self._fitted("repair").repair(X, Y, decisions, parameters)
        if repairs.complaint():
            warn(Code.NO_DECISION, repairs.complaint(), stacklevel=2)
        return repairs

    def region(self, x: Any, *, parameters: Parameters = None, labels: Labels = None) -> Region:
        """The set of outcomes that the decision at one row `x` guards against.

        `parameters` and `labels` are those of this row, as in `decide`.
        """
        with self._solving:
            return self._fitted("region").region(x, parameters, labels)

    def bound(self, X: Any, z: Any, *, parameters: Parameters = None, labels: Labels = None) -> Decisions:
        """Bounds of decisions `z` of your own at rows `X`, with the worst outcome of each.

        They hold together with those of `decide`, for all decisions at once. A bound is infinite where nothing limits
        an outcome that hurts z. `z` has the shape of the decision, or is a frame; `parameters` and `labels`
        are as in `decide`.
        """
        with self._solving:
            return self._fitted("bound").bound(X, z, parameters, labels)

    def scenarios(self, X: Any) -> Any:
        """Equally likely scenarios of the outcome at each row of `X`, a frame (pandas) for a model of your own."""
        return self._fitted("scenarios").scenarios(X)

    def frontier(self, n: int = 11) -> list[dict[str, Any]]:
        """Cross-validated bound and mean cost of the best rule at n cautions from 0 to 1, one dictionary each.

        No calibration row enters: choose a `caution` by these figures, then fit with it.
        """
        self._fitted("frontier")
        return self.policy_.frontier(n)

    def at(self, alpha: Any) -> Self:
        """A decider of the same shape whose bounds hold at other `alpha`, as far as its calibration rows allow.

        Each level's promise holds by itself. A level that is chosen by looking at these bounds has no promise. Radii
        that follow outcomes, and those of a file, have no scores for another level: recalibrate.
        """
        model = self._model
        twin = copy(self)
        twin.alpha, twin.model_ = alpha, model.with_radii(model.radii.at_level(alpha), model.trail[-1].digest)
        twin._state = MonitoringState()  # coverage so far is of bounds at another level
        return twin

    def evaluate(
        self,
        X: Any,
        Y: ArrayLike,
        *,
        parameters: Parameters = None,
        volume: bool | None = None,
        by: Any = None,
        groups: Labels = None,
        labels: Labels = None,
    ) -> Evaluation:
        """Coverage, bounds, constraints and costs on rows that were not used for fitting.

        Parameters
        ----------
        X, Y : as in `fit`.
        parameters, labels : as in `decide`.
        volume : whether to compute the mean volume of the sets; None for bounded sets of at most 3 outcomes.
        by : a column of X by name or position, or labels (N,): `groups` of the result then has coverage and cost of
            each, with intervals and p-values that are corrected for the number of groups.
        groups : (N,) labels of near-copies, as in `fit`: the coverage of one row of each is then given too.
        """
        model = self._fitted("evaluate")  # read once: another thread may recalibrate meanwhile
        rows, _, _ = model.read_usable(X, Y, parameters, labels)
        fresh = [] if rows is None else fresh_rows_diagnostic(model, rows)
        warn_of(fresh)
        with self._solving:
            measured = model.measure(X, Y, parameters, labels)
            is_asked = model.family.has_quick_volume if volume is None else volume
            size = model.mean_volume(rows) if is_asked and rows is not None else None
        summary, alpha = measured.summary(model.radii.alpha, volume=size), model.radii.alpha
        summary = replace(summary, one_a_group=None if groups is None else measured.one_of_each(groups))
        found = (*fresh, *diagnostics_of_evaluation(model, summary, measured, groups))
        by_label = () if by is None else by_group(measured, labels_by(X, by), alpha)
        return replace(summary, groups=by_label, diagnostics=found, rows=measured)

    def measure(self, X: Any, Y: ArrayLike, *, parameters: Parameters = None, labels: Labels = None) -> RowMeasures:
        """Bound, constraints, realised cost and regret row by row, on rows `X`, `Y` that were not used for fitting.

        `parameters` and `labels` are as in `decide`.
        """
        with self._solving:
            return self._fitted("measure").measure(X, Y, parameters, labels)

    def score(self, X: Any, y: Labels = None) -> float:
        """Minus the mean cost bound at rows `X` that were not used for fitting: larger is better, as searches want it.

        Scores compare only at one alpha. `y` is not needed. Rows that chose a setting must not calibrate it, see Notes.
        """
        return -float(np.mean(self.decide(X).cost_bound))

    def update(
        self,
        X: Any,
        Y: Any,
        bounds: Decisions | Labels = None,
        *,
        radii: Labels = None,
        keys: Sequence[Any] | None = None,
        log: Any = None,
        parameters: Parameters = None,
        labels: Labels = None,
    ) -> Monitoring:
        """Feed outcomes as they become known, late and in batches too, in the order of time.

        Coverage is counted and returned (`monitored_`), an alarm is raised if it is worse than chance allows, and radii
        of `Online()` move.

        Parameters
        ----------
        X, Y : rows whose outcomes are known now; each row once. One row may come by itself, as in `decide`.
        bounds : what `decide` returned for these rows. With guarantee="cost" also the bounds (N,) on their costs. None
            takes those that `log` has noted under the keys; otherwise radii are computed again, row by row in this
            order, and the result says so.
        radii : (N,) those of the decisions, if they were kept without them; instead of `bounds`.
        keys : N names of rows, each once. Rows whose keys were fed before, also through a log, are left as they are.
        log : `OutcomeLog` of this decider, a database that outlives the process; needs `keys`, and all outcomes.
        parameters, labels : as in `decide`.
        """
        begun = self._fitted("update")
        outcomes = monitor.read_outcomes(begun, X, Y, bounds, radii, keys, parameters, labels)
        warn_of(fresh_rows_diagnostic(begun, outcomes.rows))
        if log is not None:
            monitor.check_log(log, begun, self._state, outcomes)
            with self._solving:
                log.add(outcomes.keys, *outcomes.raw, outcomes.issued, parameters=parameters, labels=labels)
            return self.follow(log)
        with _COUNTING:
            model, state = self._fitted("update"), self._state  # another thread may have fed outcomes meanwhile
            if model.family is not begun.family:
                raise _exchanged(_OLD_BOUNDS)
            with self._solving:
                later, later_state = monitor.updated(model, state, outcomes)
            with _EXCHANGE:
                if vars(self).get("model_") is not model:
                    raise _exchanged(_OLD_BOUNDS)
                self.model_, self._state = later, later_state
        return self.monitored_

    def follow(self, log: Any) -> Monitoring:
        """Take over what a log knows: the radius after its last outcome, and coverage over all outcomes in it."""
        monitor.check_log(log, self._fitted("follow"))
        with _COUNTING:
            model, monitoring = log.replay()
            state = MonitoringState(monitoring, frozenset(log.keys()))  # should the log be left, its rows are known
            with _EXCHANGE:
                monitor.check_log(log, self._fitted("follow"))  # another thread may have recalibrated meanwhile
                self.model_, self._state = model, state
        return self.monitored_

    def recalibrate(
        self,
        X: Any,
        Y: Any,
        *,
        groups: Labels = None,
        times: Any = None,
        parameters: Parameters = None,
        labels: Labels = None,
    ) -> Self:
        """Set the radius again from fresh rows `X` and `Y`, for the present `alpha`; the shape stays.

        The rows must not have been used for training or learning, otherwise the guarantee is void, and a
        `DiagnosticWarning` names them. They are taken in the order of `times`, else of the column of a `TimeSplit`,
        otherwise as they come. `groups` are as in `fit`, and must be new; `parameters` and `labels` are as in `decide`.
        If X is a Dask DataFrame, Y names its outcome columns; scores stay with the workers.
        """
        model = self._fitted("recalibrate")
        with self._solving:
            more = groups, times, parameters, labels
            radii, digest, found = recalibrated(with_levels(self), model, self._calibrator, X, Y, *more)
        with _EXCHANGE:  # radii that are set at once must both join the audit trail
            if getattr(vars(self).get("model_"), "family", None) is not model.family:
                raise _exchanged("new radii are not those of its policy or set, and were dropped. Recalibrate")
            self.model_, self._state = self.model_.with_radii(radii, digest), MonitoringState()
        self.diagnostics_ = found
        warn_of(found)
        return self

    def refresh(
        self,
        X: Any,
        Y: Any,
        *,
        train: Labels = None,
        calibrate: Labels = None,
        groups: Labels = None,
        times: Any = None,
        parameters: Parameters = None,
        labels: Labels = None,
    ) -> Self:
        """Fit the predictor on one half of newer rows and calibrate on the other; shape, rules and settings stay.

        A policy keeps its rules, with newer residuals. The old predictor stays if its squared error is lower on those
        newer training rows that it has not seen, and no calibration row trained it. A `DiagnosticWarning` with the code
        "Refresh" says so, unless the two are level. Rows that calibrate must not have trained or learned in `fit`.

        Parameters
        ----------
        X, Y : newer rows, as in `fit`.
        train, calibrate : index arrays or masks, optional
            The two parts, if they should not be halves. Older rows may train, but must not calibrate.
        groups : (n,) labels, optional
            Near-copies, as in `fit`: a group is in one half, and counts once. With a `GroupSplit` they are read from
            its column; a decider that was calibrated with groups is not refreshed without them.
        times : (n,) numbers or dates, optional
            With a split in time the older half trains, the newer one calibrates, with the gap of a `TimeSplit` between
            them; times are read from its column, or given here. Otherwise halves are random.
        parameters, labels : of these rows, as in `decide`.
        """
        model = self._fitted("refresh")
        more = groups, times, parameters, labels
        with self._solving:
            model, split, found = refreshed(with_levels(self), model, self._calibrator, X, Y, train, calibrate, *more)
        self._take_over(model)
        self.refreshed_split_, self.diagnostics_ = split, found
        warn_of(found)
        return self

    def save(
        self,
        path: str | Path,
        details: Mapping[str, Any] | None = None,
        *,
        trusted: Sequence[str] = (),
        sign: Key | None = None,
    ) -> None:
        """Write the fitted decider to one file that `polyhedge.load` reads without running code from it.

        The file is read back: if decisions, bounds or scores at a few rows of the fit differ, nothing is written.

        Parameters
        ----------
        path : where to write; the file is replaced whole or not at all.
        details : JSON values to keep with the model, such as column names.
        trusted : names of types in the predictor beyond those on the list in docs/model-file.md.
        sign : private key, the file that `polyhedge keygen` wrote or its text; `load(path, verify=...)` with the public
            key then refuses every other file.
        """
        model = self._fitted("save")
        if details is not None:
            model = replace(model, record=replace(model.record, details=details))
        monitor.check_stored(model, self._calibrator)
        with self._solving:
            write_model(path, model, trusted, sign, monitor.continuation(self.split, self.random_state, self._state))

    def report(
        self, path: str | Path, X: Any = None, Y: Any = None, *, parameters: Parameters = None, labels: Any = None
    ) -> None:
        """Write the page of a fitted decider, one HTML file that works offline.

        Parameters
        ----------
        path : where to write; the file is replaced whole or not at all.
        X, Y : rows that were not used for fitting; the page then shows what was observed on them.
        parameters, labels : of these rows, as in `decide`.
        """
        self._fitted("report")
        with self._solving:
            page = import_module("polyhedge.app.report").model_report(self, X, Y, parameters=parameters, labels=labels)
        replace_file(Path(path), page.encode())

    def summary(self) -> str:
        """What was learned from which rows, and what is promised, a line each, as `print(decider)` shows."""
        return summary_of(self._fitted("summary"))

    # An AttributeError before `fit`, so that hasattr tells
    problem_ = property(lambda self: self._model.problem, doc="The problem as it was fitted.")
    predictor_ = property(lambda self: self._model.family.predictor, doc="The fitted predictor.")
    set_ = property(lambda self: self._sets("set_").shape, doc="The learned shape, in residuals over the spread.")
    spread_ = property(lambda self: self._sets("spread_").spread, doc="The predicted spread; None if there is none.")
    radius_ = property(lambda self: self._model.radii.radius, doc="The calibrated radius, the largest of the rows.")
    alpha_ = property(lambda self: self._model.radii.alpha, doc="The level that the radius was set for.")
    promise_ = property(lambda self: f"The {promised_by(self._model)}.", doc="What is promised, in words.")
    guarantee_ = property(lambda self: guarantee_of(self._model), doc="Which guarantee is in force and why.")
    n_calibrate_ = property(lambda self: self._model.radii.n, doc="Samples that set the radius.")
    n_learn_ = property(lambda self: self._model.record.n_learn, doc="Samples that developed the family.")
    calibrations_ = property(lambda self: self._model.trail, doc="The audit trail, the newest entry last.")
    split_ = property(lambda self: self._model.record.split, doc="The row indices of the three parts.")
    data_digest_ = property(lambda self: self._model.record.data_digest, doc="SHA-256 of the rows and their split.")
    settings_ = property(lambda self: dict(self._model.record.settings), doc="How the settings printed in `fit`.")
    details_ = property(lambda self: dict(self._model.record.details), doc="JSON values stored with the model.")
    policy_ = property(lambda self: self._model.policy_report, doc="Which rules make the policy, and why.")
    parameters_ = property(lambda self: dict(self._model.learned_at), doc="Parameters for which the set was learned.")
    n_features_in_ = property(lambda self: self._model.n_features, doc="Number of features that the predictor takes.")
    feature_names_in_ = property(lambda self: self._model.feature_names, doc="Names of the columns of X, if any.")

    @property
    def learn_result_(self) -> LearnResult:
        """The learner's certificate."""
        result = self._model.record.learn_result
        if result is None:
            self._sets("learn_result_")
            raise AttributeError("There is no learn_result_: this decider came from a file that holds none.")
        return result

    @property
    def monitored_(self) -> Monitoring:
        """Coverage since calibration."""
        if self._state.monitoring is None:
            raise AttributeError("No outcome is known since calibration. Call update(X, Y) first.")
        return self._state.monitoring

    @property
    def predict(self) -> NoReturn:
        """None, so that hasattr tells: decisions come from `decide`, predictions from `centers`."""
        raise AttributeError(
            "A RobustDecider has no predict. Call decide(X) for decisions, centers(X) for predicted outcomes."
        )

    def centers(self, X: Any) -> Array:
        """The predictions (N, d) at the rows of X, around which the sets lie."""
        model = self._fitted("centers")
        return model.family.predictor.predict(model.features(X))

    def scales(self, X: Any) -> Array:
        """How many times its calibrated size the set has at each row of `X` (N,): the predicted spread, or 1."""
        features = self._fitted("scales").features(X)
        return self._sets("scale of a set", ValueError).at(features).scales

    def residuals(self, X: Any, Y: ArrayLike) -> Array:
        """Residuals (N, d) that `set_` holds: `Y` minus the prediction at `X`, over the predicted spread if any."""
        rows = self._fitted("residuals").read(X, Y, to_score=True)
        return self._sets("residual that a set is made of", ValueError).at(rows.features).residuals(rows.Y)

    @property
    def _model(self) -> Model:
        if "model_" not in vars(self):
            raise AttributeError("This RobustDecider has no radius yet. Call fit(X, Y) first.")
        return self.model_

    def _fitted(self, method: str) -> Model:
        """The model, or an error that names the missing step."""
        if hasattr(self, "model_"):
            return self.model_
        what = "This RobustDecider is not fitted yet"
        if getattr(self, "_fit_has_begun", False):
            what = "The last fit of this RobustDecider was interrupted or failed before it had a radius"
        raise NotFittedError(f"{what}. Call fit(X, Y) before {method}.")

    def _sets(self, name: str, error: type[Exception] = AttributeError) -> LearnedSet:
        try:
            return self._model.sets
        except AttributeError as missing:
            raise error(f"There is no {name}. {missing}") from None

    @property
    def _solving(self) -> AbstractContextManager[None]:
        """The context in which the setting `solver` is in force."""
        return nullcontext() if self.solver is None else solver_of(self)

    def _take_over(self, model: Model) -> None:
        with _EXCHANGE:
            self.model_, self._state = model, MonitoringState()

    @property
    def _calibrator(self) -> Calibrator:
        """The calibrator as `fit` prepared it, if it has not been set since."""
        is_prepared = type(self.calibration).prepared is not Calibrator.prepared if self.calibration else False
        if is_prepared and self.calibration is getattr(self, "_prepared_from", None):
            return self.model_.radii.calibrator
        return with_levels(self).calibration or Marginal()

    # scikit-learn's conventions

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a radius."""
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks: rows are what the predictor takes, outcomes as many as the problem has."""
        tags = super().__sklearn_tags__()
        predictor, n_outcomes = self.predictor, getattr(self.problem, "n_outcomes", 1)
        tags.input_tags.sparse, tags.input_tags.allow_nan = takes_sparse(predictor), takes_nan(predictor)
        tags.target_tags.required = True
        tags.target_tags.multi_output, tags.target_tags.single_output = n_outcomes > 1, n_outcomes == 1
        return tags


def _exchanged(what: str) -> RuntimeError:
    how = "This decider was fitted, refreshed or recalibrated by another thread meanwhile, so that"
    return RuntimeError(f"{how} {what} once more.")


def load(
    path: str | Path,
    *,
    problem: DecisionProblem | None = None,
    trusted: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
    verify: Key | Sequence[Key] | None = None,
) -> RobustDecider:
    """Read a fitted decider from a file that `RobustDecider.save` wrote; its decisions are the same.

    Nothing from the file is run, and everything is checked before it is used. Files that are cut off, edited, hostile
    or of another version raise `ModelFileError`.

    Parameters
    ----------
    path : the file.
    problem : the problem, if the file holds only a reference to it (see `problems.from_reference`).
    trusted : names of types in the predictor that you allow beyond those on the list in docs/model-file.md. A file with
        such types can run code and crash the process.
    max_bytes : size of the unpacked model beyond which it is refused.
    verify : public key, or several: a file that none of them has signed, or that was changed since, is refused before
        anything of it is read. Without a key, the file can be from anybody.

    Examples
    --------
    >>> import tempfile, numpy as np, polyhedge as ph
    >>> Y = np.random.default_rng(0).normal(size=(100, 2))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0)
    >>> decider.fit(Y / 2, Y).save(path := tempfile.mkdtemp() + "/model.polyhedge")
    >>> bool(np.allclose(ph.load(path).decide(Y).cost_bound, decider.decide(Y).cost_bound))
    True
    """
    model, template, life = read_model(path, problem=problem, trusted=trusted, max_bytes=max_bytes, verify=verify)
    monitor.check_continuation(life, model)
    calibrator = model.radii.calibrator
    decider = RobustDecider(
        model.problem,
        template,
        alpha=model.radii.alpha,
        calibration=None if calibrator == Marginal() else calibrator,
        guarantee=model.guarantee,
        random_state=life.seed,
        split=life.split,
    )
    decider.model_, decider._state = model, life.state
    return decider
