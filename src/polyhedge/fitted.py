"""What a fitted decider shows: what its model has is read from it, so that nothing can disagree with another."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.exceptions import NotFittedError

from polyhedge._support.files import replace_file
from polyhedge._support.frames import BACKENDS
from polyhedge._support.validation import Array
from polyhedge.calibration import Calibration, LevelledRadii
from polyhedge.data import Split
from polyhedge.learners import LearnResult, Spread
from polyhedge.model import Model
from polyhedge.planning import PolicyReport
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.regions import LearnedSet
from polyhedge.sets import Shape
from polyhedge.solvers.options import solver_of
from polyhedge.summary import guarantee_of, promised_by, summary_of


class FittedAttributes:
    """Public attributes of a fitted decider; an AttributeError before `fit`, so that hasattr tells."""

    alpha: float
    model_: Model

    @property
    def _model(self) -> Model:
        if "model_" not in vars(self):
            raise AttributeError("This RobustDecider has no radius yet. Call fit(X, Y) first.")
        return self.model_

    def _forget(self) -> None:
        """Begin anew: no part of an earlier fit may stay beside parts of this one."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self._fit_has_begun = True

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a radius."""
        return hasattr(self, "model_")

    def _fitted(self, method: str) -> Model:
        """The model, or an error that names the missing step."""
        if hasattr(self, "model_"):
            return self.model_
        said = "This RobustDecider is not fitted yet"
        if getattr(self, "_fit_has_begun", False):
            said = "The last fit of this RobustDecider was interrupted or failed before it had a radius"
            said += "; learn_result_ has the set it had found" if hasattr(self, "learn_result_") else ""
        raise NotFittedError(f"{said}. Call fit(X, Y) before {method}.")

    @property
    def problem_(self) -> DecisionProblem:
        """The problem as it was fitted."""
        return self._model.problem

    @property
    def predictor_(self) -> Predictor:
        """The fitted predictor."""
        return self._model.family.predictor

    @property
    def set_(self) -> Shape:
        """The learned shape, in residuals; where there is a spread, in residuals divided by it."""
        return self._sets("set_").shape

    @property
    def spread_(self) -> Spread | None:
        """The predicted spread that scales the set at each row; None where one size serves all rows."""
        return self._sets("spread_").spread

    @property
    def learn_result_(self) -> LearnResult:
        """The learner's evidence; also that of a fit that was interrupted later."""
        if "learn_result_" not in vars(self):
            self._sets("learn_result_")
            raise AttributeError("There is no learn_result_: this decider came from a file that holds none.")
        result: LearnResult = vars(self)["learn_result_"]
        return result

    @learn_result_.setter
    def learn_result_(self, result: LearnResult) -> None:
        vars(self)["learn_result_"] = result

    @learn_result_.deleter
    def learn_result_(self) -> None:
        del vars(self)["learn_result_"]

    def _sets(self, name: str, error: type[Exception] = AttributeError) -> LearnedSet:
        try:
            return self._model.sets
        except AttributeError as missing:
            raise error(f"There is no {name}. {missing}") from None

    @property
    def policy_(self) -> PolicyReport:
        """Which rules make the policy, how they were scored, and why."""
        report: PolicyReport | None = self._model.family.report
        if report is None:
            raise AttributeError('There was no selection of policies. Use guarantee="cost" without a learner.')
        return report

    @property
    def radius_(self) -> float:
        """The calibrated radius, the largest where rows have different ones."""
        return self._model.radii.radius

    @property
    def alpha_(self) -> float:
        """The level that the radius was set for, hence what is promised."""
        return self._model.radii.alpha

    @property
    def promise_(self) -> str:
        """What is promised, of which rows and on which assumption, in words."""
        return f"The {promised_by(self._model)}."

    @property
    def guarantee_(self) -> str:
        """Which guarantee is in force and why, and what the other one needs, in words."""
        return guarantee_of(self._model)

    @property
    def n_calibrate_(self) -> int:
        """Samples that set the radius."""
        return self._model.radii.n

    @property
    def calibrations_(self) -> tuple[Calibration, ...]:
        """The audit trail: one entry for each calibration so far, the newest last."""
        return self._model.trail

    @property
    def n_learn_(self) -> int:
        """Samples that made the policy or shaped the set."""
        return self._model.record.n_learn

    @property
    def split_(self) -> Split:
        """The row indices of the three parts."""
        return self._model.record.split

    @property
    def data_digest_(self) -> str:
        """SHA-256 of the rows and their split."""
        return self._model.record.data_digest

    @property
    def settings_(self) -> dict[str, str]:
        """How the settings printed when the decider was fitted."""
        return dict(self._model.record.settings)

    @property
    def details_(self) -> dict[str, Any]:
        """What was stored beside a model that was loaded from a file."""
        return dict(self._model.record.details)

    @property
    def parameters_(self) -> dict[str, Array]:
        """The values of the problem's parameters for which the set was learned; a file does not keep them."""
        if self._model.record.parameters is None:
            raise AttributeError("A model file does not say for which parameters its set was learned.")
        return dict(self._model.record.parameters)

    def at(self, alpha: float) -> Self:
        """A decider of the same shape whose bounds hold at another level `alpha`, as far as its calibration rows allow.

        Each level's promise holds by itself. A level that is chosen by looking at these bounds has no promise: choose
        it beforehand, or recalibrate on fresh rows. A radius that follows outcomes has levels of its own, and files do
        not keep the scores that this needs: recalibrate there.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
        >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
        >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
        >>> [round(1 - decider.at(alpha=alpha).alpha_, 2) for alpha in (0.2, 0.05)]
        [0.8, 0.95]
        >>> bool(decider.at(alpha=0.05).radius_ > decider.radius_ > decider.at(alpha=0.2).radius_)
        True
        """
        radii = self._model.radii
        if not isinstance(radii, LevelledRadii):
            raise ValueError(
                f"Radii that are kept for one level cannot be read at another, got those of kind {radii.kind!r}: they "
                "follow outcomes, or have no at_level. Set alpha and recalibrate on fresh rows, or fit anew."
            )
        twin = copy(self)
        twin.alpha, twin.model_ = alpha, self._model.with_radii(radii.at_level(alpha), self._model.trail[-1].digest)
        vars(twin).pop("followed_", None)  # what came of bounds at another level
        return twin

    @property
    def n_features_in_(self) -> int:
        """Number of features that the predictor takes."""
        known = self._model.names
        count = None if known is None else len(known)
        count = getattr(getattr(self.predictor_, "model", None), "n_features_in_", count)
        if count is None:
            raise AttributeError("The predictor does not say how many features it takes.")
        return int(count)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns of X, where it had names."""
        if not self._model.record.feature_names:
            raise AttributeError("The columns of X had no names.")
        return np.array(self._model.record.feature_names, dtype=object)

    def centers(self, X: Any) -> Array:
        """The predictions (N, d) at the rows of X, around which the sets lie."""
        model = self._fitted("centers")
        return model.family.predictor.predict(model.features(X))

    @property
    def predict(self) -> NoReturn:
        """None, so that hasattr tells: decisions come from `decide`, predictions from `centers`."""
        raise AttributeError(
            "A RobustDecider has no predict. Call decide(X) for decisions with their bounds, centers(X) for predicted "
            "outcomes."
        )

    def scales(self, X: Any, centers: Array | None = None) -> Array:
        """How many times its calibrated size the set has at each row of `X` (N,): the predicted spread, or 1.

        `centers` are the predictions there, where they are known already.
        """
        model = self._fitted("scales")
        return self._sets("scale of a set", ValueError).scales(
            model.features(X), self.centers(X) if centers is None else centers
        )

    def residuals(self, X: Any, Y: ArrayLike) -> Array:
        """What `set_` is a set of: `Y` minus the prediction at `X` (N, d), over the predicted spread if any."""
        model = self._fitted("residuals")
        outcomes = model.outcomes(X, Y)
        return self._sets("residual that a set is made of", ValueError).at(model.features(X)).residuals(outcomes)


class Telling:
    """A fitted decider in words and as a page."""

    model_: Model

    def summary(self) -> str:
        """What was learned from which rows, and what is promised, a line each: what `print(decider)` shows after fit.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> Y = np.random.default_rng(0).normal(size=(100, 2))
        >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0).fit(Y, Y)
        >>> print(decider.summary().splitlines()[-3])
          promise    each decision costs at most its bound, held in 9 of 10
        """
        if not hasattr(self, "model_"):
            raise NotFittedError("This RobustDecider is not fitted yet. Call fit(X, Y) before summary.")
        return summary_of(self.model_)

    def __str__(self) -> str:
        """The summary of a fitted decider; before, its settings."""
        return self.summary() if hasattr(self, "model_") else repr(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: the summary of a fitted decider; before, scikit-learn's picture of its settings."""
        if not hasattr(self, "model_"):
            shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
            return shown
        head, *lines = self.summary().splitlines()
        rows = [(line[2:12].strip(), line[13:]) for line in lines]
        cells = "".join(
            f'<tr><th style="text-align: left">{escape(name)}</th><td style="text-align: left">{escape(said)}</td></tr>'
            for name, said in rows
        )
        return {"text/plain": repr(self), "text/html": f"<p>{escape(head)}</p><table>{cells}</table>"}

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def report(
        self,
        path: str | Path,
        X: Any = None,
        Y: Any = None,
        *,
        parameters: Mapping[Any, Any] | None = None,
        labels: Any = None,
    ) -> None:
        """Write the page of a fitted decider, one HTML file that works offline.

        Parameters
        ----------
        path : where to write; the file is replaced whole or not at all.
        X, Y : rows that were not used for fitting; the page then says what was observed on them.
        parameters, labels : of these rows, as in `decide`.
        """
        if not hasattr(self, "model_"):
            raise NotFittedError("This RobustDecider is not fitted yet. Call fit(X, Y) before report.")
        # Pages are made from deciders, not the other way round: looked up when one is asked for.
        with solver_of(self):
            page = import_module("polyhedge.app.report").model_report(self, X, Y, parameters=parameters, labels=labels)
        replace_file(Path(path), page.encode())


class OutputSetting:
    """Which library the frames that come out are of."""

    def set_output(self, *, transform: str | None = None) -> Self:
        """The library whose frames `decide(X).to_frame()` gives: scikit-learn's convention for what comes out.

        Parameters
        ----------
        transform : "pandas", "polars", "pyarrow", "modin", "cudf" or "default", the library of X; None leaves it as it
            is. Without a setting of its own, a decider follows `sklearn.set_config(transform_output=...)`.
        """
        if transform not in (None, "default", *BACKENDS):
            names = ", ".join(map(repr, BACKENDS))
            raise ValueError(f"transform must be one of {names}, 'default' or None, got {transform!r}.")
        if transform is not None:
            # Where scikit-learn keeps it: `clone` takes it along.
            self._sklearn_output_config = {"transform": transform}
        return self

    @property
    def _output_library(self) -> str | None:
        own = getattr(self, "_sklearn_output_config", {})
        asked: str = own.get("transform", get_config()["transform_output"])
        return None if asked == "default" else asked
