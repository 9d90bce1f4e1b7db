"""The methods that promise a bound on the cost of the decision taken, and the set that promises more, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from polyhedge import RobustDecider
from polyhedge_study.guarded.developed import Bounded, Run, at_radius
from polyhedge_study.guarded.quantiles import quantile_regression, scaled_quantile_regression
from polyhedge_study.guarded.risk_averse import risk_averse
from polyhedge_study.guarded.rules import cvar, nominal, sample_average
from polyhedge_study.tasks import Task

__all__ = ["GUARDED", "PLAN", "QUICK_GUARDED", "RIVALS", "SET", "GuardedMethod"]

PLAN, SET = "polyhedge", "polyhedge-set"
"""Keys of the library as it comes, and of its set for every decision at once, which all rows are compared with."""


@dataclass(frozen=True)
class GuardedMethod:
    """One method.

    Attributes
    ----------
    key, name : for files and the command line, and for readers.
    run : task, alpha and seed -> what it promises.
    promise : "cost" of the decision taken, or "outcome": a set that bounds the cost of every decision.
    has_law : whether the count of rows that keep their bounds has the exact law of `held_law`; otherwise it is larger.
    needs_ratios : whether it needs a cost that separates.
    """

    key: str
    name: str
    run: Run
    promise: str = "cost"
    has_law: bool = True
    needs_ratios: bool = False


def _decided(task: Task, alpha: float, seed: int, guarantee: str) -> Bounded:
    decider = RobustDecider(task.problem, task.predictor, alpha=alpha, random_state=seed, guarantee=guarantee)
    if task.in_time:
        decider.set_params(split="time")
    split = task.split
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    detail = decider.plan_.why() if guarantee == "cost" else decider.learn_result_.detail
    X, Y = task.rows("test")
    return at_radius(decider.model_.family.at(X), Y, decider.radius_, alpha, " ".join(detail.split()))


def _plan(task: Task, alpha: float, seed: int) -> Bounded:
    return _decided(task, alpha, seed, "cost")


def _set(task: Task, alpha: float, seed: int) -> Bounded:
    return _decided(task, alpha, seed, "outcome")


_ROWS = (
    GuardedMethod(PLAN, "Polyhedge", _plan),
    GuardedMethod("nominal-guard", "Nominal + guard", nominal),
    GuardedMethod("average-guard", "Sample average + guard", sample_average),
    GuardedMethod("cvar-guard", "CVaR + guard", cvar),
    GuardedMethod("quantile-guard", "Quantile regression + guard", quantile_regression),
    GuardedMethod(
        "quantile-scaled", "Quantile regression + scaled guard", scaled_quantile_regression, needs_ratios=True
    ),
    # Scores are numbers of a list: ties make coverage larger.
    GuardedMethod("risk-averse", "Risk-averse calibration", risk_averse, has_law=False),
    GuardedMethod(SET, "Polyhedge, set", _set, promise="outcome"),
)

GUARDED = {row.key: row for row in _ROWS}
"""All of them by key, in the order of the tables."""
QUICK_GUARDED = (PLAN, "nominal-guard", "average-guard", "cvar-guard")
"""Keys of rows with this promise that take seconds."""
RIVALS = tuple(key for key, row in GUARDED.items() if row.promise == "cost" and key != PLAN)
"""Keys of those with the same guarantee as Polyhedge."""
