"""Settings of a decider in the way of scikit-learn: nested ones by name, fitted predictors, learners of one's own."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from polyhedge._support.warnings import Code, SettingWarning, warn
from polyhedge.calibration import OrderedCalibrator
from polyhedge.data import TimeSplit
from polyhedge.learners import Learner, LearnResult, Needs, Samples
from polyhedge.planning.margins import takes_margins
from polyhedge.predictors.missing import takes_nan, takes_sparse
from polyhedge.problems import DecisionProblem
from polyhedge.scored import hand_on
from polyhedge.sets import Shape
from polyhedge.solvers.program import Status

__all__ = ["CAUTION", "CheckedLearner", "NestedSettings", "check_caution", "guarantee_in_force", "warn_if_fitted"]

CAUTION = 0.5
"""The default of `caution`: bound and mean cost count alike."""


def guarantee_in_force(guarantee: str | None, problem: DecisionProblem, learner: Any = None, policy: Any = None) -> str:
    """What a decider with these settings promises, "cost" or "outcome": the one place that knows the default.

    The lowest bound on the decision that is taken is the default, except where a set is asked for by its learner;
    where rows have parameters of their own, which need not be exchangeable; and where constraints are uncertain and the
    cost is not of the kind that margins can be planned for.

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
    is_beyond_plans = problem.uncertain_constraints is not None and not takes_margins(problem)
    return "outcome" if learner is not None or problem.parameters or is_beyond_plans else "cost"


@dataclass(frozen=True)
class CheckedLearner:
    """A learner whose result is looked at before anybody works with it: it may be one of the user's own."""

    learner: Learner

    @property
    def needs(self) -> Needs:
        """What the learner asks for."""
        return self.learner.needs

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """What the learner learns; an error that names it where that is no set of these outcomes with its evidence."""
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


def check_caution(caution: float, in_force: str, learner: Any = None, policy: Any = None) -> None:
    """Raise where a caution is asked for and no policies compete that it could weigh.

    Examples
    --------
    >>> check_caution(0.2, "cost")
    >>> check_caution(0.2, "outcome")
    Traceback (most recent call last):
    ValueError: caution=0.2 weighs policies against each other, and guarantee="outcome" makes none. Leave caution out,
    ...
    """
    if in_force == "outcome" and caution != CAUTION:
        raise ValueError(
            f'caution={caution:g} weighs policies against each other, and guarantee="outcome" makes none. Leave '
            'caution out, or take guarantee="cost" (on the command line: leave --caution out, or take '
            "--guarantee cost)."
        )
    if caution != CAUTION and (learner is not None or policy is not None):
        given = "learner=, whose robust decisions are" if policy is None else "policy=, which is"
        raise ValueError(
            f"caution={caution:g} weighs policies against each other, and with {given} guarded, none compete. Leave "
            "caution out."
        )


class NestedSettings(BaseEstimator):
    """Fields of learner, policy and calibrator by name, such as `learner__n_facets`, for searches over settings."""

    problem: Any
    predictor: Any

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks: rows are what the predictor takes, outcomes as many as the problem has."""
        tags = super().__sklearn_tags__()
        predictor, n_outcomes = self.predictor, getattr(self.problem, "n_outcomes", 1)
        tags.input_tags.sparse, tags.input_tags.allow_nan = takes_sparse(predictor), takes_nan(predictor)
        tags.target_tags.required = True
        tags.target_tags.multi_output, tags.target_tags.single_output = n_outcomes > 1, n_outcomes == 1
        return tags

    def __sklearn_clone__(self) -> Self:
        """What scikit-learn's `clone` makes; it knows which rows scored the settings that a search tries."""
        twin: Self = super().__sklearn_clone__()
        hand_on(self, twin)
        return twin

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with `deep` also those of learner, policy, calibrator and predictor."""
        settings: dict[str, Any] = super().get_params(deep)
        if deep:
            for name, part in super().get_params(deep=False).items():
                if _is_settings(part):
                    settings |= {f"{name}__{field}": getattr(part, field) for field in _fields(part)}
        return settings

    def set_params(self, **params: Any) -> Self:
        """Set the settings `params` by name; a learner, policy or calibrator never changes, another takes its place."""
        inner: dict[str, dict[str, Any]] = {}
        for key in [key for key in params if "__" in key]:
            name, _, field = key.partition("__")
            part = params.get(name, getattr(self, name, None))
            if _is_settings(part):
                if field not in _fields(part):
                    known = ", ".join(_fields(part))
                    raise ValueError(f"{type(part).__name__} has no setting {field!r}. Its settings are: {known}.")
                inner.setdefault(name, {})[field] = params.pop(key)
        super().set_params(**params)
        for name, changed in inner.items():
            setattr(self, name, replace(getattr(self, name), **changed))
        return self


def _fields(part: Any) -> list[str]:
    return [field.name for field in fields(part) if field.init]


def _is_settings(part: Any) -> bool:
    """Learners, policies and calibrators are frozen records; a problem is one too, but is no setting."""
    return is_dataclass(part) and not isinstance(part, type) and not hasattr(part, "written")


def warn_if_unordered(calibration: Any, split: Any, calibrate: Any) -> None:
    """Warn where rows that are weighed by their age come in no order of time."""
    in_time = isinstance(split, (str, TimeSplit)) or calibrate is not None  # rows that are given are in an order
    if isinstance(calibration, OrderedCalibrator) and calibration.needs_order and not in_time:
        warn(
            Code.NO_TIMES,
            f"{calibration!r} weighs calibration rows by their age, but a random split has no order of time, so that "
            'the weights mean nothing. Take split="time" or a TimeSplit, or Marginal().',
            stacklevel=4,
        )


def warn_if_fitted(predictor: Any) -> None:
    """Warn that an estimator which comes fitted is fitted anew, and how to keep it as it is."""
    if isinstance(predictor, FrozenEstimator) or not (hasattr(predictor, "get_params") and hasattr(predictor, "fit")):
        return
    try:
        check_is_fitted(predictor)
    except (NotFittedError, TypeError):
        return
    if get_tags(predictor).requires_fit:
        warn(
            Code.FITTED_ANEW,
            f"The predictor {type(predictor).__name__} is fitted already, but a copy of it is fitted anew on the "
            "training rows. To use it as it is, pass FrozenEstimator(model), and keep the rows that it has seen out of "
            "fit's X; to fit it anew without this warning, pass sklearn.base.clone(model).",
            stacklevel=4,
            category=SettingWarning,
        )
