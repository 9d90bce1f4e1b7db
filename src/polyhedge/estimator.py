"""The whole chain behind one estimator: fit, decide, region, evaluate, recalibrate."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.alignment import refuse_outcomes
from polyhedge._support.frames import as_pandas, from_dictionaries
from polyhedge._support.progress import log_lines
from polyhedge._support.progress import progress as bar
from polyhedge._support.validation import Array
from polyhedge._support.warnings import Code, SettingWarning, warn
from polyhedge.calibration import Calibrator, Marginal, PreparedCalibrator
from polyhedge.calibration.labels import check_source
from polyhedge.data import GroupSplit, TimeSplit, digest_rows, take_rows
from polyhedge.data.ordered import has_clock, in_time
from polyhedge.data.splits import IndexArray, evenly_chosen
from polyhedge.deciding import Decides
from polyhedge.diagnosing import row_hashes
from polyhedge.diagnostics import order_diagnostic
from polyhedge.fitted import Telling
from polyhedge.fitting import (
    at_reference,
    check_features,
    check_policy,
    check_rows,
    check_settings,
    check_sizes,
    feature_names,
    generator,
    labels_for,
    labels_in_fit,
    learning_samples,
    n_rows_of,
    named_rows,
    outcome_names_of,
    prepared,
    rows_for,
    split_into_parts,
)
from polyhedge.learners import Auto, Learner, Samples, learn_with_spread
from polyhedge.model import Record, calibrated_radii, fitted_model
from polyhedge.monitoring.monitor import EXCHANGE, FollowsOutcomes
from polyhedge.monitoring.refresh import Refreshes
from polyhedge.planning import LeastMean, MeanCost
from polyhedge.planning.development import Given, parts_of_policy, planned_guard
from polyhedge.predictors.raw_columns import number_columns
from polyhedge.predictors.regressor import Predictor, as_predictor
from polyhedge.predictors.selection import is_auto, is_made_here, prepare, reads_columns, takes_frame
from polyhedge.predictors.weights import check_weights
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.regions import CostGuard, LearnedSet, RegionFamily, SetPolicy
from polyhedge.robust.threads import one_blas_thread
from polyhedge.settings import (
    CAUTION,
    CheckedLearner,
    NestedSettings,
    check_caution,
    guarantee_in_force,
    warn_if_fitted,
    warn_if_unordered,
)
from polyhedge.solvers.options import Solver, solver_of

_SETTINGS = ("predictor", "learner", "split", "random_state", "calibration", "guarantee", "policy", "caution", "solver")
_LOG = logging.getLogger(__name__)
_N_EXAMPLES = 3
"""Rows at which `save` compares decisions: a few milliseconds, and seconds where each row is a hard program."""


class RobustDecider(FollowsOutcomes, Refreshes, Decides, Telling, NestedSettings):
    r"""Robust decisions whose cost bound holds with probability at least 1 - alpha.

    `fit` splits the rows into three disjoint parts: the first trains the predictor, the second makes, with the first,
    a policy of decisions or the shape of a set, the third sets the radius by conformal calibration and nothing else.
    For a new x, $P\{g(z(x), Y) \le c(x)\} \ge 1 - \alpha$, c(x) being its `cost_bound`: in finite samples, for any
    predictor and any distribution, as long as the rows are exchangeable.

    Parameters
    ----------
    problem : DecisionProblem
    predictor : "auto", scikit-learn regressor, Pipeline, FrozenEstimator, callable, "precomputed" or None
        What predicts the outcome. "auto" takes arrays of numbers and raw data frames with numbers, texts, categories,
        booleans, dates (their weekday, month and hour) and gaps, and chooses by cross-validation on the training rows
        among ridge, a smooth ridge (on features, their squares and sines), forest and boosting:
        `settings_["chosen predictor"]` says which and why. None is the smooth ridge without a selection, which takes a
        second or more, where X is numbers without gaps, and "auto" where it is a raw data frame. A regressor that
        does not take a raw frame as it is gets its columns prepared as with "auto": `print(decider)` says so.
        "smooth-ridge", "ridge", "forest", "boosting" and "linear" name one of ours. "precomputed" takes X itself as the
        prediction.
    alpha : float
        Share of new rows whose bound may fail (with guarantee="outcome": whose outcome may lie outside the set).
    learner : Learner or None
        How the shape of a set is learned; None for the default, which policies where guarantee is "cost".
    split : (train, learn, calibrate), "time", `data.TimeSplit` or `data.GroupSplit`
        Shares of the rows, which are dealt at random; "time" takes rows in the order in which they come. The training
        share is dealt to the other two where the predictor needs none. Rows of a fourth share are held out:
        `split_.held_out` names them, for `evaluate`.
    random_state : int, numpy Generator, RandomState or None
        Same seed, same result.
    calibration : Calibrator or None
        What the promise is about, see `polyhedge.calibration`: `ByCategory`, `Weighted`, `Recent`, `Online` or
        `ThisModel`; None for all rows together. `promise_` says it in words.
    guarantee : {"cost", "outcome"} or None
        "cost": a policy fixes the decision first, and the bound on the cost of this one decision is calibrated. It is
        the lowest, and says nothing of other decisions or outcomes. Rules compete on training and learning rows, see
        `policy_`; with a learner, the policy is the best decision against the learned set.
        "outcome": a set of outcomes is calibrated, and the decision is the best against all of them. The bound of every
        other decision holds as well.
        None means "cost", except where a learner is given, where the problem takes parameters row by row and where it
        has uncertain constraints beside a cost that is no sum of maxima of affine functions: then "outcome". Where no
        learner asks for it, `fit` warns. `print(decider)` tells which one is in force, why, and what the other needs.
    policy : function, estimator with predict, or None
        A policy of your own, X -> decisions (N, ...), which is guarded: implies guarantee="cost". A function with a
        second argument that has no default, or is called `parameters`, is given the problem's parameters of these rows
        there, arrays (N, ...) by name; estimators see X alone. An estimator with `fit` is trained on the training
        rows; a function must depend on each row alone, and what it was made from must not contain calibration rows
        (learning rows it may contain). A decision that breaks constraints, bounds or integrality is refused: it has no
        bound, and counts as infinitely expensive where it calibrates.
    caution : float
        From 0 to 1: how much the bound counts against the mean cost when policies compete; `frontier` shows the choice.
        Where none compete (with "outcome", a learner or a policy of your own) `fit` refuses any but the default.
    solver : Solver or None
        Options and another back-end for whole numbers, where the solvers that are chosen by themselves do not serve;
        not kept in files.

    Attributes
    ----------
    model_ : the fitted `Model`: region family, radii and the record of both. It never changes; `recalibrate` makes
        another. What a model has is read from it; the rest tells how this fit went.
    problem_, predictor_ : the problem as it was fitted, and the fitted predictor.
    parameters_ : the values of the problem's parameters for which the set was learned, by name.
    set_ : the learned shape, in residuals; where there is a spread, in residuals divided by it.
    promise_ : what is promised, to whom and on which assumption, in words.
    guarantee_ : which guarantee is in force and why, and what the other one needs, in words.
    radius_, alpha_ : its calibrated radius, the largest where rows have different ones, and the level that it was set
        for. Setting `alpha` after `fit` promises nothing until `recalibrate` sets a radius for it.
    spread_ : the predicted `Spread` that scales the set at each row; None where one size serves all rows.
    learn_result_ : the learner's evidence.
    policy_ : with guarantee="cost" and no learner, a `PolicyReport`: which rules make the policy, how they were
    scored, why. split_, refreshed_split_ : the row indices of the three parts, and of those of the last `refresh`.
    n_learn_, n_calibrate_ : samples that made the policy or shaped the set, and that set its radius.
    calibrations_ : the audit trail: one `Calibration` for each radius so far, the newest last.
    diagnostics_ : what to worry about in the last fit, refresh or recalibration, in words: few calibration rows, ties,
        drift, copies, rows seen before, rows that chose settings; each was or will be a `DiagnosticWarning`.
    followed_ : what came of the bounds since, after `update`: coverage, and an alarm where it is worse than chance.
    settings_ : how predictor, learner, split and random_state printed when the decider was fitted.
    data_digest_ : SHA-256 of the rows and their split.
    details_ : what was stored beside a model that was loaded from a file.
    n_features_in_ : how many columns X had.
    feature_names_in_ : names of the columns of X, where it was a data frame; of the outcomes, where predictions of a
        problem with outcome names came as an array.

    Notes
    -----
    Names decide where there are names. Columns of X that come in another order than in `fit`, and columns of Y (or of
    predictions that are supplied) in another order than the problem's outcome names, are put in order; what cannot be
    matched is refused. A problem without outcome names takes those of fit's Y, also for the decisions that belong to
    these outcomes (`is_paired`). Arrays have no names and are taken in order. Data frames and series with unequal
    indices are refused, never aligned. Frames and series of polars, pyarrow and whatever else narwhals knows reach the
    predictor as pandas frames; rows that are not in memory yet, such as those of a polars LazyFrame or a DuckDB
    relation, are refused, because no query promises their order.

    scikit-learn's `check_estimator`, whose few rows promise one in two (`alpha=0.5`), passes but for three checks.
    `check_estimators_overwrite_params` compares pickles, and a problem, which no fit changes, keeps what is compiled of
    it on first use, so that its pickle grows. `check_sample_weight_equivalence_on_dense_data` calls the outcomes `y`
    and takes a row of weight 2 for two rows, but weights are for the predictor only, and two rows may train and
    calibrate. `check_sample_weights_not_an_array` passes rows that have
    neither a shape nor a length.

    `pickle` is for the same versions of all packages; `save` writes a file that other versions read, without running
    code from it. As the last step of a `Pipeline`, `score` is reached through it, and what it adds to scikit-learn's
    verbs is reached by `pipeline[-1].decide(pipeline[:-1].transform(X))`; a transformer before `predictor`, inside of
    the decider, keeps names, files and pages whole.

    Loggers are called like modules, all below "polyhedge": `logging.getLogger("polyhedge").setLevel("INFO")` tells how
    far long work is ("learning: 3 of 10"), each record with `doing`, `done` and `total`. Nothing is logged above INFO:
    what needs attention is a warning, what cannot go on an error.

    Examples
    --------
    >>> import numpy as np
    >>> import polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> X, Y = ph.data.make_synthetic(400, rng=rng)
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([-0.08, 0.0]), random_state=0).fit(X, Y)
    >>> decider.decide(X[:3]).z.shape
    (3, 2)
    """

    def __init__(
        self,
        problem: DecisionProblem,
        predictor: Any = "auto",
        alpha: float = 0.1,
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
        train: ArrayLike | None = None,
        learn: ArrayLike | None = None,
        calibrate: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        parameters: Mapping[Any, Any] | None = None,
        sample_weight: ArrayLike | None = None,
        progress: bool = False,
        verbose: bool = False,
    ) -> Self:
        """Split the rows, train the predictor, learn the shape and calibrate its radius.

        A learner whose `needs` say `learning_rows = False` (such as `OneSidedBox`) needs no learning rows: it
        takes the residuals of the training rows, and the radius is calibrated on the learning and calibration
        rows together. Neither the predictor nor the shape has seen any of these, so the guarantee is the same,
        with more calibration samples. Where nothing was trained, or where the predictor reproduces its
        training outcomes so closely that the residuals tell nothing, the splits keep their usual roles.

        A learner that needs `training_folds = k` (such as the default, `Auto`) learns from more than the learning
        rows: the predictor is also fitted without each of k folds of the training rows, and its residuals there
        join in, up to 3 000 samples in all. One that says `may_scale` (`Auto` too) lets the set be scaled by a
        spread that is predicted from the numeric features and the prediction, where cross-fitting on the same
        samples says that this pays.

        Ctrl-C raises KeyboardInterrupt and leaves a decider without a radius, whatever was fitted before. Where it came
        while learning, `learn_result_` has the best set so far; a learner that says `keep_interrupted`
        has that set calibrated instead.

        Parameters
        ----------
        X : (n, n_features) array, DataFrame or whatever the predictor takes
        Y : (n, n_outcomes) array, DataFrame or, for one outcome, Series
        train, learn, calibrate : index arrays or masks, optional
            The split, where it should not be random; the parts must not overlap, and groups must not lie across them.
        groups : (n,) labels, optional
            Rows of one group are near-copies of each other: they are kept in one part, and the radius counts groups
            instead of rows, see `grouped_radius`. The promise is then for a row of a new group.
        parameters : dict, optional
            Values of the problem's parameters, as in `decide`; a column of X that holds them stays a feature. The set
            is learned for one reference, `parameters_`: the median of each over the training and learning rows, or the
            nearest values that occur where these are infeasible or not whole. Coverage does not depend on it, because
            it is about outcomes alone.
        sample_weight : (n,) numbers, optional
            How much each row counts when the predictor is fitted, and for nothing else: the promise is about rows as
            they come (`calibration=Weighted(...)` is for a promise about others). Searches and pipelines hand it on
            after `decider.set_fit_request(sample_weight=True)`, scikit-learn's metadata routing.
        progress : bool
            Whether to show a bar with the time left, in a terminal or a notebook, where it takes over two seconds.
        verbose : bool
            Whether to write what the loggers tell (see Notes) to standard error, a line for each tenth of the way and
            for what was chosen: for scripts and files.
        """
        with log_lines(verbose), bar("fitting", progress), solver_of(self):
            self._fit(X, Y, train, learn, calibrate, groups, parameters, sample_weight)
        return self

    def _fit(
        self,
        X: Any,
        Y: Any,
        train: ArrayLike | None,
        learn: ArrayLike | None,
        calibrate: ArrayLike | None,
        groups: ArrayLike | None,
        parameters: Mapping[Any, Any] | None,
        sample_weight: ArrayLike | None,
    ) -> None:
        self._forget()
        self._followed_anew()
        check_settings(self.problem, self.alpha, self.learner, self.split, self.calibration, self.guarantee)
        check_policy(self.policy, self.caution, self.guarantee, self.learner)
        in_force = guarantee_in_force(self.guarantee, self.problem, self.learner, self.policy)
        check_caution(self.caution, in_force, self.learner, self.policy)
        warn_if_fitted(self.predictor)
        warn_if_unordered(self.calibration, self.split, calibrate)
        X = from_dictionaries(X) if self.predictor is None or is_auto(self.predictor) else X
        check_rows(X, Y, groups, sample_weight, train=train, learn=learn, calibrate=calibrate)
        values = parameter_rows(self.problem.parameters, parameters, n_rows_of(X), X)
        labels = labels_in_fit(self.calibration, X)
        X, Y, weights = rows_for(self.predictor, X), as_pandas(Y), check_weights(sample_weight, n_rows_of(X))
        precomputed = isinstance(self.predictor, str) and self.predictor == "precomputed"
        problem, X, Y = named_rows(self.problem, X, Y, precomputed=precomputed)
        grouping = labels_for(self.split, groups, X, len(Y))
        rng = generator(self.random_state)
        split_rng = rng.spawn(1)[0]
        learn_seed, predictor_seed = (int(seed) for seed in rng.integers(2**31, size=2))
        template, said = (None if is_auto(self.predictor) else self.predictor), dict[str, str]()

        def make_predictor() -> Predictor:
            names = outcome_names_of(problem)
            return as_predictor(template, problem.n_outcomes, random_state=predictor_seed, outcome_names=names)

        predictor = make_predictor()
        is_read = predictor.needs_training and not is_made_here(template) and reads_columns(X)
        check_features(X, Y, may_be_missing=is_read or predictor.takes_nan)
        if predictor.needs_training:  # one that is trained already may read predictions by these names
            refuse_outcomes(X, problem.outcome_names, Y.T)
        parts, is_in_time = (train, learn, calibrate), in_time(self.split)
        is_as_asked = has_clock(self.split) or grouping is not None or any(part is not None for part in parts)
        about_order = [] if is_as_asked else order_diagnostic(X, as_they_come=is_in_time)
        split = split_into_parts(X, len(Y), self.split, parts, predictor.needs_training, split_rng, grouping)
        learn_rows, calibrate_rows = split.learn, split.calibrate
        if in_force == "cost" and self.learner is None:
            learn_rows, calibrate_rows = parts_of_policy(split, self.policy, trained=predictor.needs_training)
        check_sizes(learn_rows, calibrate_rows, self.alpha)
        schema = number_columns(X, problem.outcome_names, split.train)
        if is_read and template is not None and takes_frame(predictor, X, Y, split.train):
            is_read = False
            check_features(X, Y, may_be_missing=predictor.takes_nan)
        if is_read or is_auto(self.predictor):
            own = self.predictor if template is None else getattr(predictor, "template", None)
            chosen = prepare(X, Y, problem.outcome_names, split.train, grouping, predictor_seed, weights, own)
            check_source(self.calibration, chosen.X, X)
            X, schema, template, said = chosen.X, chosen.schema or schema, chosen.template, chosen.said
            _LOG.info("predictor: %s", "; ".join(said.values()))
        check_source(self.calibration, X, X)
        given = Given(
            problem, self.alpha, make_predictor, X, Y, values, split, grouping, learn_seed, weights, is_in_time
        )
        family, n_learn, calibrate_rows, reference = self._family(given)
        few = evenly_chosen(len(Y), _N_EXAMPLES)
        record = Record(
            split=split,
            n_learn=n_learn,
            data_digest=digest_rows(X, Y, split.train, split.learn, split.calibrate),
            learn_result=getattr(self, "learn_result_", None),
            feature_names=feature_names(problem, X, precomputed=precomputed) or (),
            parameters=reference,
            settings={name: repr(getattr(self, name)) for name in _SETTINGS} | said,
            schema=schema,
            seen=row_hashes(X, Y, np.setdiff1d(np.concatenate([split.train, split.learn]), calibrate_rows)),
            examples=(take_rows(X, few), values[few], None if labels is None else labels[few]),
        )
        rows = take_rows(X, calibrate_rows), Y[calibrate_rows]
        its_groups = None if grouping is None else grouping[calibrate_rows]
        reads = schema if is_read else None
        asked = self.calibration or Marginal()
        calibrator = prepared(asked, X, split, calibrate_rows, self.alpha, grouping, labels, reads)
        its_own = None if labels is None else labels[calibrate_rows]
        radii = calibrated_radii(family, calibrator, *rows, self.alpha, its_groups, values[calibrate_rows], its_own)
        model = fitted_model(family, record, *radii)
        with EXCHANGE:
            self.model_, self._prepared_from = model, self.calibration
            self._followed_anew()
        if in_force == "outcome" and self.guarantee is None and self.learner is None:
            text = f"The guarantee in force is {self.guarantee_} Name the one that you want: guarantee=..."
            warn(Code.GUARANTEE, text, stacklevel=3, category=SettingWarning)
        self._diagnostic(model, X, Y, calibrate_rows, grouping, is_in_time, about_order)

    def _family(self, given: Given) -> tuple[RegionFamily, int, IndexArray, dict[str, Array]]:
        """What is learned, from how many rows, the rows that will calibrate it, and the parameters it is learned at."""
        is_cost = guarantee_in_force(self.guarantee, given.problem, self.learner, self.policy) == "cost"
        if is_cost and self.learner is None:
            guard, n_learn, calibrate_rows = planned_guard(given, self.policy, self.caution)
            return guard, n_learn, calibrate_rows, {}
        sets, n_learn, calibrate_rows, reference = self._learn(given)
        family: RegionFamily = sets
        if is_cost:
            costs = None if sets.ties is None else MeanCost(given.problem, sets.ties.points)
            policy = SetPolicy(replace(sets, ties=None), costs=costs)
            family = CostGuard(given.problem, sets.predictor, policy)
        return family, n_learn, calibrate_rows, reference

    def _learn(self, given: Given) -> tuple[LearnedSet, int, IndexArray, dict[str, Array]]:
        """The learned set around the prediction."""
        X, Y, split, labels, predictor = given.X, given.Y, given.split, given.groups, given.make()
        if predictor.needs_training:
            predictor.fit(take_rows(X, split.train), Y[split.train], given.weights_of(split.train))
        learner = Auto() if self.learner is None else self.learner
        learn_rows, centers, calibrate_rows = learning_samples(
            learner, predictor, given.make, X, Y, split, self.alpha, labels, given.weights
        )
        learned_at, reference = at_reference(given.problem, given.values, split)
        samples = Samples(Y[learn_rows] - centers, centers, learned_at, self.alpha)
        groups = None if labels is None else labels[learn_rows]
        with one_blas_thread():
            self.learn_result_, spread = learn_with_spread(
                CheckedLearner(learner), samples, take_rows(X, learn_rows), seed=given.seed, groups=groups
            )
        if self.learn_result_.interrupted and not learner.needs.keep_interrupted:
            raise KeyboardInterrupt("fit was interrupted: learn_result_ has the best set so far, without a radius.")
        sets = LearnedSet(given.problem, predictor, self.learn_result_.set, spread)
        placed = sets.around(centers, take_rows(X, learn_rows))
        sets = replace(sets, ties=LeastMean.of(given.problem, placed.residuals(Y[learn_rows])))
        return sets, len(learn_rows), calibrate_rows, reference

    @property
    def _calibrator(self) -> Calibrator:
        """What calibrates: as `fit` prepared it, where it has not been set anew."""
        is_prepared = isinstance(self.calibration, PreparedCalibrator)
        if is_prepared and self.calibration is getattr(self, "_prepared_from", None):
            return self.model_.radii.calibrator
        return self.calibration or Marginal()
