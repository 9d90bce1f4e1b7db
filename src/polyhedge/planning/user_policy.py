"""A policy of the user's own, x -> z: its decisions are taken as they are, their cost is planned over scenarios.

A function may see the row's parameters too, (x, parameters) -> z: the promise is about rows in which features,
parameters and outcome are exchangeable together, so that both are as much part of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import FEASIBLE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge._support.warnings import Code, warn
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import all_optimal
from polyhedge.planning.costs import PlanningProblem, planned_level
from polyhedge.planning.policies import Rule
from polyhedge.planning.report import TAKEN_AS_IT_IS, Entry, PolicyReport
from polyhedge.planning.residual_distributions import (
    MOST_POINTS,
    DevelopmentRows,
    ResidualDistribution,
    fit_distribution,
)
from polyhedge.planning.selection import Scored
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import broken_by
from polyhedge.problems.layout import by_row
from polyhedge.regions import DevelopedPolicy, PlannedDecisions
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.solvers.program import Status


@stored("decision function")
@dataclass(frozen=True, eq=False)
class PolicyFunction:
    """What decides: a function of the features of N rows and, where it takes them, of the values of their parameters.

    Attributes
    ----------
    decide : X -> decisions (N, ...), or (X, parameters by name, each (N, *shape)) -> decisions.
    problem : what is decided.
    takes_parameters : whether it is given the parameters.
    """

    decide: Callable[..., Any]
    problem: DecisionProblem
    takes_parameters: bool = False

    def __call__(self, X: Any, values: Array) -> Array:
        """Flat decisions (N, p) at N rows with flat values (N, t) of the problem's parameters."""
        # A copy: what a policy writes into its parameters must not change those that the row is decided with.
        given = (by_row(self.problem.parameters, values.copy()),) if self.takes_parameters else ()
        z, n, p = np.asarray(self.decide(X, *given), dtype=np.float64), len(values), self.problem.n_decisions
        if z.ndim == 0 or len(z) != n or z.size != n * p:
            raise ValueError(
                f"The policy must give a decision of {p} number(s) for each of the {n} rows, got an array of shape "
                f"{z.shape}."
            )
        z = z.reshape(n, p)
        return np.where(np.isfinite(z), z, np.nan)


@stored("policy of the user")
@dataclass(frozen=True, eq=False)
class UserPolicy(DevelopedPolicy):
    """Decisions of a policy and a quantile of their cost under a distribution.

    Attributes
    ----------
    problem : what is decided.
    policy : decides, each row by itself.
    distribution, level : what plans the cost.
    report : how it was scored.
    """

    problem: DecisionProblem
    policy: PolicyFunction
    distribution: ResidualDistribution
    level: float
    report: PolicyReport
    kind: ClassVar[str] = "policy"

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
        """The policy's decisions, and what they are planned to cost; none where it breaks a constraint."""
        given = self.policy(features, values)
        broken = broken_by(self.problem, given, values)
        is_refused: Mask = ~(broken <= FEASIBLE)  # a decision that is not a number keeps nothing
        z = np.where(is_refused[:, None], np.nan, given)
        centers, scales = self.distribution.at(features, centers)
        seen = PlanningProblem(self.problem)
        v, expected = seen.planned_cost(self.distribution.points, self.level, z, centers, scales, values)
        status = all_optimal(len(z))
        status.fill(Status.FINISHED)
        status[is_refused] = Status.REFUSED
        detail = ["" if by <= FEASIBLE else _broken_words(one, by) for one, by in zip(given, broken, strict=True)]
        return PlannedDecisions(z, v, status, tuple(detail) if any(detail) else (), expected)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the outcomes (n, d) that are possible by the distribution."""
        return self.distribution.outcomes(features, centers)

    def refitted(self, rows: DevelopmentRows, seed: int) -> UserPolicy:
        """The same policy, as it was trained, with a distribution of other development rows."""
        return replace(self, distribution=fit_distribution("scaled", rows, seed).thinned())


def fit_user_policy(
    problem: DecisionProblem,
    policy: Any,
    rows: DevelopmentRows,
    alpha: float,
    trained_on: tuple[Any, Array, Any],
    seed: int,
) -> UserPolicy:
    """The policy, trained on training rows where it can be, with its cost planned over scaled residuals."""
    decide = _policy(problem, policy, *trained_on)
    seen, level = PlanningProblem(problem), planned_level(alpha)
    few = rows.thinned(MOST_POINTS)
    z = decide(few.X, few.values)
    _check_alone(decide, few, z)
    _check_kept(z, broken_by(problem, z, few.values), alpha)
    z, planned = _without_folds(policy, problem, few, z), np.full(len(few), np.nan)
    for own, rest in few.folds():
        distribution, at = fit_distribution("scaled", few.take(rest), seed).thinned(), few.take(own)
        moved, scales = distribution.at(at.X, at.centers)
        planned[own] = seen.planned_cost(distribution.points, level, z[own], moved, scales, at.values)[0]
    scored = Scored(Rule(), planned, seen.evaluate(z, few.outcomes, few.values))
    entry = Entry("your own policy", scored.bound(alpha), scored.cost(), 1.0)
    report = PolicyReport((entry,), alpha, 1.0, len(few), TAKEN_AS_IT_IS)
    return UserPolicy(problem, decide, fit_distribution("scaled", rows, seed).thinned(), level, report)


def _check_alone(policy: PolicyFunction, rows: DevelopmentRows, z: Array) -> None:
    """Raise if a row gets another decision alone, or in another order, than among the others."""
    some = evenly_chosen(len(z), 8)

    def decided(own: Indices) -> Array:
        return policy(take_rows(rows.X, own), rows.values[own])

    alone, turned = np.vstack([decided(some[[k]]) for k in range(len(some))]), decided(some[::-1])[::-1]
    within = 1e-6 * np.nan_to_num(np.abs(z)).max(axis=0)  # networks of 32 bits round
    for other, where in ((alone, "alone"), (turned, "among few rows in another order")):
        is_same = np.isclose(other, z[some], rtol=0, atol=within, equal_nan=True).all(axis=1)
        if not is_same.all():
            k = int(np.argmin(is_same))
            shown, among = (np.array2string(one, precision=6, threshold=6) for one in (other[k], z[some[k]]))
            raise ValueError(
                "The decision of a policy must be a function of its row alone: otherwise calibration rows and later "
                f"rows are decided by different rules, and no bound holds. Row {some[k]} of {len(z)} that do not "
                f"calibrate is decided as {shown} {where}, and as {among} among all. Let the policy use nothing of "
                "the other rows, such as their mean or order, and no random numbers: find such figures from "
                "training rows once."
            )


def _without_folds(policy: Any, problem: DecisionProblem, rows: DevelopmentRows, z: Array) -> Array:
    """Decisions (n, p) as they would be at new rows.

    A policy that is trained here decides each fold after training on the others. One that came fitted decides as it is,
    since its training rows are not known.
    """
    if not is_trained_here(policy):
        return z
    scored = np.full(z.shape, np.nan)
    try:
        for own, rest in rows.folds():
            fitted = clone(policy).fit(take_rows(rows.X, rest), rows.outcomes[rest])
            scored[own] = PolicyFunction(fitted.predict, problem)(take_rows(rows.X, own), rows.values[own])
    except ValueError as error:
        warn(
            Code.NO_FOLDS,
            f"The policy cannot be trained without a fold of the rows ({error}), so that its scored figures are those "
            "of rows that it has seen. The calibrated bound does not depend on them.",
            stacklevel=6,
        )
        return z
    return scored


def _check_kept(z: Array, broken: Array, alpha: float) -> None:
    """Raise where so many decisions break a constraint that no finite bound can be promised."""
    is_broken: Mask = ~(broken <= FEASIBLE)
    if is_broken.mean() > alpha:
        first = int(np.argmax(is_broken))
        raise ValueError(
            f"The policy must give decisions that can be taken, but in {int(is_broken.sum())} of {len(z)} rows that do "
            f"not calibrate it does not, the first of them: {_broken_words(z[first], broken[first])}. Such rows have "
            f"no bound, and with alpha={alpha:g} no more than that share of rows may be without one."
        )


def _broken_words(z: Array, by: float) -> str:
    shown = np.array2string(z, precision=4, threshold=6)
    if not np.isfinite(z).all():
        return f"The policy gave no decision: {shown} is not a number in each entry"
    return (
        f"The decision {shown} breaks the constraints by {by:.2g} of their terms: decisions must keep constraints, "
        f"bounds and integers within {FEASIBLE:g}. Let the policy return the nearest that does"
    )


def is_trained_here(policy: Any) -> bool:
    """Whether `fit` trains the policy, on training rows alone; the rows behind any other are not known."""
    return hasattr(policy, "predict") and hasattr(policy, "fit") and not isinstance(policy, FrozenEstimator)


def _policy(problem: DecisionProblem, policy: Any, X: Any, Y: Array, train: Any) -> PolicyFunction:
    """The user's policy, trained on training rows where it can be."""
    if not hasattr(policy, "predict"):
        return PolicyFunction(policy, problem, _takes_parameters(policy))
    if is_trained_here(policy):
        policy = clone(policy).fit(take_rows(X, train), Y[train])
    return PolicyFunction(policy.predict, problem)


def _takes_parameters(function: Callable[..., Any]) -> bool:
    """Whether a function has a place for parameters: a second argument without a default, or one called so.

    Other defaults are the function's own settings, as in `lambda X, level=0.9: ...`.
    """
    try:
        arguments = signature(function).parameters.values()
    except (TypeError, ValueError):  # compiled functions need not tell
        return False
    places = [one for one in arguments if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (places[1].default is Parameter.empty or places[1].name == "parameters")
