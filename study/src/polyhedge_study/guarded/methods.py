"""The methods that promise a bound on the cost of the decision taken, and the set that promises more, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from polyhedge import RobustDecider
from polyhedge.fitting import CAUTION
from polyhedge_study.guarded.developed import Bounded, Run, bounded
from polyhedge_study.guarded.quantiles import quantile_regression, scaled_quantile_regression
from polyhedge_study.guarded.risk_averse import risk_averse
from polyhedge_study.guarded.rules import cvar, forecast_plus, nominal, sample_average, scaled
from polyhedge_study.tasks import Task

__all__ = ["CAUTIOUS", "GUARDED", "PLAN", "QUICK_GUARDED", "RIVALS", "SET", "GuardedMethod"]

PLAN, CAUTIOUS, SET = "polyhedge", "polyhedge-cautious", "polyhedge-set"
"""Keys of the library as it comes, of its lowest bound whatever decisions cost on average, and of its set for every
decision at once."""


@dataclass(frozen=True)
class GuardedMethod:
    """One method.

    Attributes
    ----------
    key, name : for files and the command line, and for readers.
    run : task, alpha and seed -> what it promises.
    promise : "cost" of the decision taken, or "outcome": a set that bounds the cost of every decision.
    has_law : whether the count of rows that keep their bounds has the exact law of `held_law`; otherwise it is larger.
    needs : "" for any cost, "ratios" for a cost that separates, "service" for constraints that hold the outcome.
    """

    key: str
    name: str
    run: Run
    promise: str = "cost"
    has_law: bool = True
    needs: str = ""


def _decided(task: Task, alpha: float, seed: int, *, guarantee: str, caution: float = CAUTION) -> Bounded:
    decider = RobustDecider(task.problem, task.predictor, alpha=alpha, random_state=seed, guarantee=guarantee)
    decider.set_params(caution=caution, **({"split": "time"} if task.in_time else {}))
    split = task.split
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    detail = decider.policy_.why() if guarantee == "cost" else decider.learn_result_.detail
    return bounded(task, decider.model_.family, alpha, " ".join(detail.split()))


_ROWS = (
    GuardedMethod(PLAN, "Polyhedge", partial(_decided, guarantee="cost")),
    GuardedMethod(CAUTIOUS, "Polyhedge, caution 1", partial(_decided, guarantee="cost", caution=1.0)),
    GuardedMethod("nominal-guard", "Nominal + guard", nominal),
    GuardedMethod("average-guard", "Sample average + guard", sample_average),
    GuardedMethod("cvar-guard", "CVaR + guard", cvar),
    GuardedMethod("average-scaled", "Sample average + scaled guard", partial(scaled, tail=1.0)),
    GuardedMethod("cvar-scaled", "CVaR of the worst .3 + scaled guard", partial(scaled, tail=0.3)),
    GuardedMethod("forecast-scaled", "Forecast + k times its error", forecast_plus, needs="service"),
    GuardedMethod("quantile-guard", "Quantile regression + guard", quantile_regression),
    GuardedMethod("quantile-scaled", "Quantile regression + scaled guard", scaled_quantile_regression, needs="ratios"),
    # Scores are numbers of a list: ties make coverage larger.
    GuardedMethod("risk-averse", "Risk-averse calibration", risk_averse, has_law=False),
    GuardedMethod(SET, "Polyhedge, set", partial(_decided, guarantee="outcome"), promise="outcome"),
)

GUARDED = {row.key: row for row in _ROWS}
"""All of them by key, in the order of the tables."""
QUICK_GUARDED = (PLAN, "nominal-guard", "average-guard", "cvar-guard")
"""Keys of rows with this promise that take seconds."""
RIVALS = tuple(key for key, row in GUARDED.items() if row.promise == "cost" and key not in (PLAN, CAUTIOUS))
"""Keys of those with the same guarantee as Polyhedge."""
