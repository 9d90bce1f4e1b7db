"""What a fitted decider is for: decisions, their regions, how they fared on fresh rows, and a file of it all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.progress import progress as bar
from polyhedge._support.progress import tell
from polyhedge._support.validation import Array
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration import radii_to_state
from polyhedge.diagnosing import Diagnoses, diagnostics_of_evaluation, row_hashes
from polyhedge.distributed import decide_frame, is_dask_frame
from polyhedge.evaluation import Evaluation, RowMeasures, by_group
from polyhedge.fitted import FittedAttributes, OutputSetting
from polyhedge.fitting import labels_by
from polyhedge.io import Key, write_model
from polyhedge.monitoring.state import life_of
from polyhedge.regions import Work
from polyhedge.robust import Decisions
from polyhedge.scored import note_scored
from polyhedge.sets import Region, Volume
from polyhedge.solvers.options import solver_of
from polyhedge.summary import held_in_words

_LOG = logging.getLogger(__name__)
_OURS = "polyhedge."


class Decides(FittedAttributes, Diagnoses, OutputSetting):
    """The methods of a decider that need its model and change nothing of it."""

    def decide(
        self,
        X: Any,
        *,
        parameters: Mapping[Any, Any] | None = None,
        labels: ArrayLike | None = None,
        n_jobs: int | None = None,
        progress: Callable[[int, int], None] | bool = False,
    ) -> Decisions:
        """Robust decisions with cost bounds for new rows; warns where a row has no optimal decision.

        A row with a missing or impossible value keeps its place: its decision and bound are NaN, its status is "not
        decided", and its detail says why. It is an error where no row at all can be decided.

        Parameters
        ----------
        X : (N, n_features) array, DataFrame, whatever the predictor takes, or Dask DataFrame; a series or dictionary by
            the names of the features, or as many numbers as there are features, is one row.
        parameters : dict, optional
            Values of the problem's parameters, by name: one for all rows, one a row, or the name of a column of X (a
            list of names where the parameter has several entries). One that is not given is read from the column of
            its name, where X is a frame with such a column.
        labels : (N,) labels or weights, optional
            What `calibration` was given for the rows of `fit`, for these rows; of a Dask DataFrame the name
            of the column that holds them.
        n_jobs : int, optional
            Number of threads, by default one a core; the decisions do not depend on it.
        progress : bool or callable
            True shows a bar as in `fit`; a callable is called now and then with the number of rows decided and the
            number of all.

        Returns
        -------
        Decisions
            Its `to_frame()` has the names of the problem, and the index and the library (pandas, polars, pyarrow) of
            X. Or a lazy Dask DataFrame where X is one: `polyhedge.distributed.decide_rows` says with which columns.
            Dask's own workers and progress bars take the place of `n_jobs` and `progress`.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
        >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
        >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
        >>> decisions = decider.decide(X[400:])
        >>> print(decisions[0])
        0: z_1 = ..., z_2 = ... costs at most ..., held in 9 of 10
        >>> list(decisions.to_frame().columns[:3])
        ['z_1', 'z_2', 'cost_bound']
        """
        decisions: Decisions = self._decided(X, parameters, labels, n_jobs, progress)
        self._diagnostic_choice()
        return decisions

    def _decided(
        self,
        X: Any,
        parameters: Mapping[Any, Any] | None = None,
        labels: ArrayLike | None = None,
        n_jobs: int | None = None,
        progress: Callable[[int, int], None] | bool = False,
    ) -> Any:
        model = self._fitted("decide")
        if is_dask_frame(X):
            with solver_of(self):
                return decide_frame(model, X, parameters, labels)
        X = model.as_rows(X)
        work = Work(n_jobs, progress if callable(progress) else lambda done, total: tell(_LOG, "deciding", done, total))
        with bar("deciding", progress is True), solver_of(self):
            decisions = model.decide(X, parameters, work, labels)
        complaint = decisions.complaint()
        if complaint:
            warn(Code.NO_DECISION, complaint, stacklevel=3)
        row_names = model.labels(X, self._output_library, held_in_words(model.radii.alpha))
        return replace(decisions.noted(model.oddities(X)), labels=row_names)

    def frontier(self, n: int = 11) -> list[dict[str, Any]]:
        """Scored bound and mean cost of the best rule at n cautions from 0 to 1, one dictionary each.

        The figures are scored on rows that do not calibrate: choose a `caution` by them, then fit with it. A choice by
        calibrated bounds would void the promise.
        """
        self._fitted("frontier")
        return self.policy_.frontier(n)

    def region(self, x: Any, *, parameters: Mapping[Any, Any] | None = None, labels: ArrayLike | None = None) -> Region:
        """The set of outcomes that the decision at one row guards against.

        A set of outcomes is the same whatever the problem's parameters are; one that guards a cost is not.

        Parameters
        ----------
        x : one row, of X as in `decide`.
        parameters, labels : of this row, as in `decide`.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
        >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
        >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
        >>> region = decider.region(X[400])
        >>> region.contains(decider.centers(X[400:401])).tolist()
        [True]
        """
        with solver_of(self):
            return self._fitted("region").region(x, parameters, labels)

    def worst_outcomes(
        self, X: Any, *, parameters: Mapping[Any, Any] | None = None, labels: ArrayLike | None = None
    ) -> Array:
        """For each row an outcome (N, d) at which its decision costs about its bound.

        With `guarantee="outcome"` it is the worst outcome of the set around the prediction. With "cost" it is an
        illustration: among the outcomes that the policy holds possible there (residuals of training and learning rows
        around the prediction, within the known support) the dearest one at which the bound holds, and with it every
        uncertain constraint. Many outcomes cost as much, and the promise is about none of them. NaN where there is
        none.

        Parameters
        ----------
        X, parameters, labels : as in `decide`.
        """
        with solver_of(self):
            return self._fitted("worst_outcomes").worst_outcomes(X, parameters, labels)

    def evaluate(
        self,
        X: Any,
        Y: ArrayLike,
        *,
        parameters: Mapping[Any, Any] | None = None,
        volume: bool | None = None,
        by: Any = None,
        labels: ArrayLike | None = None,
    ) -> Evaluation:
        """Coverage, bounds, constraints and costs on rows that were not used for fitting.

        Rows of X that cannot be decided (see `decide`) have no bound: `n_undecided` counts them.

        Parameters
        ----------
        X, Y : as in `fit`.
        parameters, labels : as in `decide`.
        volume : whether to tell the mean volume of the sets; None where it is quick: for bounded sets of at most 3
            outcomes. With many outcomes it can take minutes and says little.
        by : a column of X by name or position, or labels (N,): `groups` of the result then tells coverage and cost of
            each, with intervals and p-values that are corrected for the number of groups.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
        >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
        >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
        >>> evaluation = decider.evaluate(X[400:], Y[400:])
        >>> print(f"{evaluation.bound_held:.0%} of {evaluation.bound_held.n} rows cost no more than their bound")
        9... of 200 rows cost no more than their bound
        """
        model = self._fitted("evaluate")  # read once: another thread may recalibrate meanwhile
        asked = model.family.has_quick_volume if volume is None else volume
        rows, reasons = model.usable(X, parameters)
        are_some = 0 < len(rows) < len(reasons)
        used = model.some(rows, X, parameters, labels) if are_some else (X, parameters, labels)
        self._diagnostic_rows(model, used[0], model.outcomes(X, Y)[rows] if are_some else Y)
        with solver_of(self):
            measured = model.measure(X, Y, parameters, labels)
            size = model.mean_volume(*used) if asked else None
        summary = measured.summary(model.radii.alpha, volume=size)
        groups = () if by is None else by_group(measured, labels_by(X, by), model.radii.alpha)
        # How many groups of near-copies set a radius is not known here.
        diagnostics = (
            []
            if model.radii.is_grouped
            else diagnostics_of_evaluation(model, summary.coverage, measured, model.radii.n)
        )
        return replace(summary, groups=groups, diagnostics=tuple(diagnostics))

    def measure(
        self,
        X: Any,
        Y: ArrayLike,
        *,
        parameters: Mapping[Any, Any] | None = None,
        labels: ArrayLike | None = None,
    ) -> RowMeasures:
        """Bound, constraints, realised cost and regret row by row, on rows that were not used for fitting.

        Parameters
        ----------
        X, Y : as in `fit`.
        parameters, labels : as in `decide`.
        """
        with solver_of(self):
            return self._fitted("measure").measure(X, Y, parameters, labels)

    def score(self, X: Any, y: ArrayLike | None = None) -> float:
        """Minus the mean cost bound at rows `X` that were not used for fitting: larger is better, as searches want it.

        Scores compare only at one alpha: a lower promise has lower bounds. A search such as `GridSearchCV` fits and
        calibrates within its own folds, so that the setting it finds is free to use; but rows that chose a setting
        must not calibrate it. Fit the chosen setting with `calibrate` rows that the search has not seen (and such
        `learn` rows, where these calibrate too), or `recalibrate` it on fresh ones: `best_estimator_`, fitted on all
        rows of the search, warns when it decides or is saved, where the search ran in this process.

        `y` is not needed for the score, which is a promise and no observation, but tells which rows these are.
        """
        decisions = self._decided(X)
        if y is not None:
            model = self._fitted("score")
            note_scored(self, row_hashes(model.features(X), model.outcomes(X, y)))
        return -float(np.mean(decisions.cost_bound))

    def mean_volume(
        self, X: Any, *, parameters: Mapping[Any, Any] | None = None, labels: ArrayLike | None = None
    ) -> Volume:
        """Volume of the set, the mean over the rows that have one; over an even choice where support is known.

        Parameters
        ----------
        X, parameters, labels : as in `decide`.
        """
        with solver_of(self):
            return self._fitted("mean_volume").mean_volume(X, parameters, labels)

    def save(
        self,
        path: str | Path,
        details: Mapping[str, Any] | None = None,
        *,
        trusted: Sequence[str] = (),
        sign: Key | None = None,
    ) -> None:
        """Write the fitted decider to one file that `polyhedge.load` reads without running code from it.

        How rows are split, a seed and what came of bounds (`followed_`) travel along; of the rows only fingerprints do.
        What was written is read back before it takes its name: where decisions, bounds, expected costs or scores at a
        few rows of the fit differ, the file is refused and nothing is written. Parts of one's own may be such.

        Parameters
        ----------
        path : where to write; the file is replaced whole or not at all.
        details : JSON values to keep beside the model, such as column names.
        trusted : names of types in the predictor beyond those on the list in docs/model-file.md.
        sign : private key, the file that `polyhedge keygen` wrote or its text; `load(path, verify=...)` with the public
            key then refuses every other file.
        """
        model = self._fitted("save")
        self._diagnostic_choice()
        if details is not None:
            model = replace(model, record=replace(model.record, details=details))
        decider: Any = self
        radii_to_state(model.radii)  # or an error of its own that knows better
        calibrator = decider._calibrator
        if type(calibrator) is not type(model.radii.calibrator) and not type(calibrator).__module__.startswith(_OURS):
            raise ValueError(
                f"A calibrator in a file must be one that Polyhedge has, got {calibrator!r}: a loaded decider would "
                f"recalibrate by {model.radii.calibrator!r}. Keep the decider by pickle, or set calibration to one "
                "that Polyhedge has and recalibrate on fresh rows."
            )
        fed = vars(self)
        life = life_of(
            decider.split,
            fed.get("followed_"),
            decider.random_state,
            fed.get("_fed_keys", ()),
            are_alone=fed.get("_fed_alone", False),
        )
        with solver_of(self):
            write_model(path, model, trusted, sign, life)
