"""The whole chain behind one estimator: fit, decide, region, evaluate, recalibrate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from polyhedge._columns import names_of, select_columns
from polyhedge._validation import Array, check_alpha
from polyhedge.batches import Model, decide_frame, distributed_radius, is_dask_frame
from polyhedge.batches.model import known_names
from polyhedge.calibration import Calibration, conformal_radius, grouped_radius
from polyhedge.data import digest_rows, take_rows
from polyhedge.io import Key, StoredModel, write_model
from polyhedge.learners import Auto, Learner, Samples, learn_with_spread
from polyhedge.metrics import Evaluation, RowMeasures, measure_rows
from polyhedge.predictors import Predictor, as_predictor
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import check_outcomes
from polyhedge.problems.parameters import from_columns, parameter_rows
from polyhedge.robust import Decisions, decide
from polyhedge.rows import (
    at_reference,
    check_features,
    check_rows,
    check_settings,
    check_sizes,
    feature_names,
    generator,
    group_labels,
    learning_samples,
    n_rows_of,
    named_rows,
    one_row,
    split_into_parts,
)
from polyhedge.sets import Polyhedron, Region, Volume, has_quick_volume, mean_volume

_SETTINGS = ("predictor", "learner", "split", "random_state")
_VOLUME_REGIONS = 20
_CALIBRATION_BLOCK = 262_144
_TRAIL = Lock()
"""Held while a radius joins the audit trail: two that are set at once must both be in it."""


class RobustDecider(BaseEstimator):
    r"""Robust decisions whose cost bound holds with probability at least 1 - alpha.

    `fit` splits the rows into three disjoint parts: one trains the predictor, one learns the shape of
    the set from the decision problem, one sets the radius by conformal calibration. For a new x,
    $P\{g(z(x), Y) \le \text{cost\_bound}(x)\} \ge 1 - \alpha$ in finite samples, for any predictor and any
    distribution, as long as the rows are exchangeable.

    Parameters
    ----------
    problem : DecisionProblem
    predictor : scikit-learn regressor, Pipeline, FrozenEstimator, callable, "precomputed" or None
        What predicts the outcome; "precomputed" takes X itself as the prediction. None is a ridge
        regression on simple nonlinear features.
    alpha : float
        Share of outcomes that may fall outside the set.
    learner : Learner or None
        How the shape is learned; None for the default.
    split : (train, learn, calibrate)
        Shares of the rows. The training share is dealt to the other two where the predictor needs none.
    random_state : int, numpy Generator, RandomState or None
        Same seed, same result.

    Attributes
    ----------
    problem_, predictor_ : the problem as it was fitted, and the fitted predictor.
    parameters_ : the values of the problem's parameters for which the set was learned, by name.
    set_ : the learned shape, in residuals; where there is a spread, in residuals divided by it.
    radius_, alpha_ : its calibrated radius, and the level that it was set for. Setting `alpha` after `fit` promises
        nothing until `recalibrate` sets a radius for it.
    spread_ : the predicted `Spread` that scales the set at each row; None where one size serves all rows.
    learn_result_ : the learner's evidence.
    split_ : the row indices of the three parts.
    n_learn_, n_calibrate_ : samples that shaped the set, and that set its radius.
    calibrations_ : the audit trail: one `Calibration` for each radius so far, the newest last.
    settings_ : how predictor, learner, split and random_state printed when the decider was fitted.
    data_digest_ : SHA-256 of the rows and their split.
    details_ : what was stored beside a model that was loaded from a file.
    feature_names_in_ : names of the columns of X, where it was a data frame; of the outcomes, where predictions of a
        problem with outcome names came as an array.

    Notes
    -----
    Names decide where there are names. Columns of X that come in another order than in `fit`, and columns of Y (or of
    predictions that are supplied) in another order than the problem's outcome names, are put in order; what cannot be
    matched is refused. A problem without outcome names takes those of fit's Y. Arrays have no names and are taken in
    order. Data frames and series with unequal indices are refused, never aligned.

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
        predictor: Any = None,
        alpha: float = 0.1,
        learner: Learner | None = None,
        split: Sequence[float] = (0.5, 0.25, 0.25),
        random_state: Any = None,
    ) -> None:
        self.problem = problem
        self.predictor = predictor
        self.alpha = alpha
        self.learner = learner
        self.split = split
        self.random_state = random_state

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
            Values of the problem's parameters, as in `decide`. The set is learned for one reference, `parameters_`:
            the median of each over the training and learning rows, or the nearest values that occur where these are
            infeasible or not whole. Coverage does not depend on it, because it is about outcomes alone.
        """
        self._forget()
        check_settings(self.problem, self.alpha, self.learner, self.split)
        check_rows(X, Y, groups, train=train, learn=learn, calibrate=calibrate)
        values = parameter_rows(self.problem.parameters, from_columns(parameters, X), n_rows_of(X))
        precomputed = isinstance(self.predictor, str)
        problem, X, Y = named_rows(self.problem, X, Y, precomputed=precomputed)
        labels = group_labels(groups, len(Y))
        rng = generator(self.random_state)
        split_rng = rng.spawn(1)[0]
        learn_seed, predictor_seed = (int(seed) for seed in rng.integers(2**31, size=2))

        def make_predictor() -> Predictor:
            return as_predictor(self.predictor, problem.n_outcomes, random_state=predictor_seed)

        predictor = make_predictor()
        check_features(X, Y, may_be_missing=predictor.takes_nan)
        given = (train, learn, calibrate)
        split = split_into_parts(len(Y), self.split, given, predictor.needs_training, split_rng, labels)
        check_sizes(split, self.alpha)
        if predictor.needs_training:
            predictor.fit(take_rows(X, split.train), Y[split.train])
        learner = Auto() if self.learner is None else self.learner
        learn_rows, centers, calibrate_rows = learning_samples(
            learner, predictor, make_predictor, X, Y, split, self.alpha, labels
        )
        self.n_learn_ = len(learn_rows)
        learned_at, self.parameters_ = at_reference(problem, values, split)
        self.learn_result_, self.spread_ = learn_with_spread(
            learner,
            Samples(Y[learn_rows] - centers, centers, learned_at, self.alpha),
            take_rows(X, learn_rows),
            seed=learn_seed,
            groups=None if labels is None else labels[learn_rows],
        )
        if self.learn_result_.interrupted and not learner.needs.keep_interrupted:
            raise KeyboardInterrupt("fit was interrupted: learn_result_ has the best set so far, without a radius.")
        self.set_ = self.learn_result_.set
        self.problem_, self.predictor_, self.split_ = problem, predictor, split
        self.settings_ = {name: repr(getattr(self, name)) for name in _SETTINGS}
        names = feature_names(problem, X, precomputed=precomputed)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.data_digest_ = digest_rows(X, Y, split.train, split.learn, split.calibrate)
        self.calibrations_: tuple[Calibration, ...] = ()
        self._calibrate(
            take_rows(X, calibrate_rows), Y[calibrate_rows], None if labels is None else labels[calibrate_rows]
        )
        return self

    def recalibrate(
        self, X: Any, Y: Any, *, groups: ArrayLike | None = None, parameters: Mapping[Any, Any] | None = None
    ) -> Self:
        """Set the radius anew from fresh rows, for the present `alpha`; the shape stays.

        `calibrations_` keeps the old radii. The rows must not have been used for training or learning, otherwise the
        guarantee is void. Labels in `groups` mark rows that are near-copies of each other, as in `fit`. These groups
        must be new as well: the decider does not keep the labels of `fit`, so it cannot tell a group that it has been
        trained on.

        A radius is about outcomes alone, so `parameters` are not needed; those that are given are checked.

        Where X is a Dask DataFrame, Y names its outcome columns, in the order of the outcomes where they are not called
        like them; the radius is computed from scores that stay with the
        workers, and is exactly that of the same rows in memory.
        """
        self._check_fitted("recalibrate")
        if is_dask_frame(X):
            if groups is not None:
                raise ValueError("groups cannot be given for a Dask DataFrame. Recalibrate on one row of each group.")
            alpha = check_alpha(self.alpha)
            self._set_radius(*distributed_radius(Model.of(self, parameters), X, list(Y), alpha), alpha)
            return self
        check_rows(X, Y, groups)
        if parameters is not None:
            parameter_rows(self.problem_.parameters, from_columns(parameters, X), n_rows_of(X))
        X, Y = self._features(X), check_outcomes(self.problem_, Y)
        check_features(X, Y, may_be_missing=self.predictor_.takes_nan)
        self._calibrate(X, Y, group_labels(groups, len(Y)))
        return self

    def _calibrate(self, X: Any, Y: Array, groups: Any = None) -> None:
        """Calibration rows only: the one place that sets the radius."""
        scores = np.empty(len(Y))
        for k in range(0, len(Y), _CALIBRATION_BLOCK):
            rows = np.arange(k, min(k + _CALIBRATION_BLOCK, len(Y)))
            part = X if len(rows) == len(Y) else take_rows(X, rows)
            centers = self.predictor_.predict(part)
            scores[rows] = self.set_.scores((Y[rows] - centers) / self._scales(part, centers)[:, None])
        alpha = check_alpha(self.alpha)
        radius = conformal_radius(scores, alpha) if groups is None else grouped_radius(scores, groups, alpha)
        self._set_radius(radius, len(scores), digest_rows(X, Y), alpha)

    def _set_radius(self, radius: float, n: int, digest: str, alpha: float) -> None:
        """Take a radius over, and note in the audit trail where it comes from."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        with _TRAIL:
            self.calibrations_ = (*self.calibrations_, Calibration(date, n, radius, digest, alpha))

    @property
    def radius_(self) -> float:
        """The calibrated radius."""
        return self._calibration.radius

    @property
    def alpha_(self) -> float:
        """The level that the radius was set for, hence what is promised."""
        return self._calibration.alpha

    @property
    def n_calibrate_(self) -> int:
        """Samples that set the radius."""
        return self._calibration.n

    @property
    def _calibration(self) -> Calibration:
        # An AttributeError where there is no calibration yet, so that hasattr(decider, "radius_") tells.
        if not getattr(self, "calibrations_", ()):
            raise AttributeError("This RobustDecider has no radius yet. Call fit(X, Y) first.")
        return self.calibrations_[-1]

    def decide(
        self,
        X: Any,
        *,
        parameters: Mapping[Any, Any] | None = None,
        n_jobs: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Decisions:
        """Robust decisions with cost bounds for new rows; warns where a row has no optimal decision.

        Parameters
        ----------
        X : (N, n_features) array, DataFrame, whatever the predictor takes, or Dask DataFrame
        parameters : dict, optional
            Values of the problem's parameters, by name: one for all rows, one a row, or the name of a column of X (a
            list of names where the parameter has several entries).
        n_jobs : int, optional
            Number of threads, by default one a core; the decisions do not depend on it.
        progress : callable, optional
            Called now and then with the number of rows decided and the number of all.

        Returns
        -------
        Decisions
            Or a lazy Dask DataFrame where X is one: `polyhedge.batches.decide_rows` says with which columns.
            There a row with missing values keeps its place with a note; here it is an error. Dask's own
            workers and progress bars take the place of `n_jobs` and `progress`.
        """
        self._check_fitted("decide")
        if is_dask_frame(X):
            return decide_frame(Model.of(self, parameters), X)
        centers = self.centers(X)
        known = {"scales": self._scales(X, centers), "parameters": from_columns(parameters, X)}
        decisions = decide(self.problem_, self.set_, self.radius_, centers, **known, n_jobs=n_jobs, progress=progress)
        complaint = decisions.complaint()
        if complaint:
            warnings.warn(complaint, RuntimeWarning, stacklevel=2)
        return decisions

    def region(self, x: Any) -> Region:
        """The set of outcomes that the decision at one row guards against, whatever the problem's parameters are."""
        self._check_fitted("region")
        centers = self.centers(one_row(x))
        if len(centers) != 1:
            raise ValueError(f"region takes one row, got {len(centers)}. Call it for each row.")
        return self._region_around(centers[0], self._scales(one_row(x), centers)[0])

    def centers(self, X: Any) -> Array:
        """The predictions (N, d), around which the sets lie."""
        self._check_fitted("centers")
        features = self._features(X)
        check_features(features, None, may_be_missing=self.predictor_.takes_nan)
        return self.predictor_.predict(features)

    def outcomes_and_centers(self, X: Any, Y: Any) -> tuple[Array, Array]:
        """The outcomes (N, d) in the order of the problem, and the predictions for the same rows."""
        self._check_fitted("outcomes_and_centers")
        check_rows(X, Y)
        outcomes, centers = check_outcomes(self.problem_, Y), self.centers(X)
        if len(outcomes) != len(centers):
            raise ValueError(f"X and Y must have the same number of rows, got {len(centers)} and {len(outcomes)}.")
        return outcomes, centers

    def scales(self, X: Any, centers: Array | None = None) -> Array:
        """How many times its calibrated size the set has at each row (N,): the predicted spread, or 1.

        `centers` are the predictions there, where they are known already.
        """
        self._check_fitted("scales")
        return self._scales(X, self.centers(X) if centers is None else centers)

    def _scales(self, X: Any, centers: Array) -> Array:
        return np.ones(len(centers)) if self.spread_ is None else self.spread_(self._features(X), centers)

    def _features(self, X: Any) -> Any:
        """The columns of `fit`, in their order, where both have names."""
        names = known_names(self) or names_of(X)
        return X if names is None else select_columns(X, names, "X")

    def residuals(self, X: Any, Y: ArrayLike) -> Array:
        """What `set_` is a set of: outcome minus prediction (N, d), over the predicted spread where there is one."""
        self._check_fitted("residuals")
        Y, centers = self.outcomes_and_centers(X, Y)
        return np.asarray((Y - centers) / self._scales(X, centers)[:, None])

    def evaluate(
        self,
        X: Any,
        Y: ArrayLike,
        *,
        parameters: Mapping[Any, Any] | None = None,
        volume: bool | None = None,
    ) -> Evaluation:
        """Coverage, bounds, constraints and costs on rows that were not used for fitting.

        Parameters
        ----------
        X, Y : as in `fit`.
        parameters : as in `decide`.
        volume : whether to tell the mean volume of the sets; None where it is quick: for bounded sets of at most 3
            outcomes. With many outcomes it can take minutes and says little.
        """
        still = self._snapshot("evaluate")
        asked = has_quick_volume(still.set_) if volume is None else volume
        measured = still.measure(X, Y, parameters=parameters)
        return measured.summary(still.alpha_, volume=still.mean_volume(X) if asked else None)

    def _snapshot(self, method: str) -> Self:
        """The decider as it is now: another thread may recalibrate it meanwhile."""
        self._check_fitted(method)
        with _TRAIL:
            return copy(self)

    def measure(self, X: Any, Y: ArrayLike, *, parameters: Mapping[Any, Any] | None = None) -> RowMeasures:
        """Bound, constraints, realised cost and regret row by row, on rows that were not used for fitting."""
        self._check_fitted("evaluate")
        Y, centers = self.outcomes_and_centers(X, Y)
        scales = self._scales(X, centers)
        radius = self.radius_  # read once: another thread may recalibrate meanwhile
        parameters = from_columns(parameters, X)
        decisions = decide(self.problem_, self.set_, radius, centers, scales=scales, parameters=parameters)
        inside = self.set_.contains((Y - centers) / scales[:, None], radius)
        return measure_rows(self.problem_, decisions, inside, centers, Y, parameters)

    def save(
        self,
        path: str | Path,
        details: Mapping[str, Any] | None = None,
        *,
        trusted: Sequence[str] = (),
        sign: Key | None = None,
    ) -> None:
        """Write the fitted decider to one file that `polyhedge.load` reads without running code from it.

        Parameters
        ----------
        path : where to write; the file is replaced whole or not at all.
        details : JSON values to keep beside the model, such as column names.
        trusted : names of types in the predictor beyond those on the list in docs/model-file.md.
        sign : private key, the file that `polyhedge keygen` wrote or its text; `load(path, verify=...)` with the public
            key then refuses every other file.
        """
        self._check_fitted("save")
        model = StoredModel(
            problem=self.problem_,
            set=self.set_,
            spread=self.spread_,
            calibrations=self.calibrations_,
            predictor=self.predictor_,
            learn_result=self.learn_result_,
            n_learn=self.n_learn_,
            split=self.split_,
            data_digest=self.data_digest_,
            feature_names=tuple(getattr(self, "feature_names_in_", ())),
            settings=self.settings_,
            details=getattr(self, "details_", {}) if details is None else details,
        )
        write_model(path, model, trusted, sign)

    def _region_around(self, center: Array, scale: float) -> Region:
        A, h = self.problem_.support_rows
        known = {"support_W": A, "support_h": h} if len(A) else {}
        shape = self.set_.scaled(scale) if isinstance(self.set_, Polyhedron) else self.set_
        return Region(shape, self.radius_, center, **known)

    def mean_volume(self, X: Any) -> Volume:
        """Volume of the set, the mean over the rows; over an even choice of them where support is known."""
        self._check_fitted("mean_volume")
        has_known_support = len(self.problem_.support_rows[0]) > 0
        if self.spread_ is None and not has_known_support:
            return self.set_.volume(self.radius_)
        centers = self.centers(X)
        scales = self._scales(X, centers)
        if not has_known_support:
            return mean_volume(self.set_, self.radius_, scales)
        chosen = np.unique(np.linspace(0, len(centers) - 1, _VOLUME_REGIONS).astype(int))
        volumes = [self._region_around(centers[i], scales[i]).volume() for i in chosen]
        spread = float(np.std(volumes, ddof=1) / np.sqrt(len(volumes))) if len(volumes) > 1 else 0.0
        return Volume(float(np.mean(volumes)), spread)

    def _forget(self) -> None:
        """Begin anew: no part of an earlier fit may stay beside parts of this one."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self._fit_has_begun = True

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a radius."""
        return hasattr(self, "radius_")

    def _check_fitted(self, method: str) -> None:
        if hasattr(self, "radius_"):
            return
        said = "This RobustDecider is not fitted yet"
        if getattr(self, "_fit_has_begun", False):
            said = "The last fit of this RobustDecider was interrupted or failed before it had a radius"
            said += "; learn_result_ has the set it had found" if hasattr(self, "learn_result_") else ""
        raise NotFittedError(f"{said}. Call fit(X, Y) before {method}.")
