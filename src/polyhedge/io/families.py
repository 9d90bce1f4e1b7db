"""Region families in model files: one row of `FAMILIES` a family, with one entry a type of policy that it may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from polyhedge.io.sets import set_from_state, set_to_state, spread_from_state, spread_to_state
from polyhedge.learners import Spread
from polyhedge.planning import (
    LeastMean,
    MarginPolicy,
    MeanCost,
    ScenarioPolicy,
    mean_cost_from,
    path_from,
    policy_from,
    ties_from,
)
from polyhedge.predictors.regressor import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.regions import CostGuard, LearnedSet, MarginPath, RegionFamily, SetPolicy

State = Mapping[str, Any]


class StoredFamily(NamedTuple):
    """How files hold families of one kind.

    Attributes
    ----------
    family : the class.
    promise : what is promised of it, in words.
    to_state : what a family is made of beside its sets, as entries of a model's state.
    from_state : a model's state, its problem, its predictor and the sets of the file, if any, -> the family.
    """

    family: type[Any]
    promise: str
    to_state: Callable[[Any], dict[str, Any]]
    from_state: Callable[[State, DecisionProblem, Predictor, LearnedSet | None], RegionFamily]


def family_to_state(family: RegionFamily) -> dict[str, Any]:
    """Plain data of a family, as entries of a model's state."""
    stored = FAMILIES.get(family.kind)
    # A subclass may have regions of its own, and would be read as its parent.
    if stored is None or type(family) is not stored.family:
        raise _cannot_be_stored("region family", family, [row.family for row in FAMILIES.values()])
    state: dict[str, Any] = {"family": family.kind, "set": None, "spread": None, "ties": None}
    sets = family.sets
    if sets is not None:
        parts = ("set", sets, LearnedSet), ("spread", sets.spread, Spread), ("choice among ties", sets.ties, LeastMean)
        for what, part, known in parts:
            if part is not None and type(part) is not known:
                raise _cannot_be_stored(what, part, [known])
        state["set"] = set_to_state(sets.shape)
        state["spread"] = None if sets.spread is None else spread_to_state(sets.spread)
        state["ties"] = None if sets.ties is None else sets.ties.points
    return {**state, **stored.to_state(family)}


def _cannot_be_stored(what: str, given: object, known: Iterable[type]) -> ValueError:
    names = ", ".join(cls.__name__ for cls in known)
    return ValueError(
        f"A {what} of type {type(given).__name__} cannot be stored: a file would be read as another type. Of type "
        f"{names} it can, and of another once polyhedge.io.families names it. Keep the decider by pickle."
    )


def family_from_state(state: State, problem: DecisionProblem, predictor: Predictor) -> RegionFamily:
    """The family that `family_to_state` described; files before version 3 hold sets only."""
    kind = state.get("family", LearnedSet.kind)
    if kind not in FAMILIES:
        raise ValueError(f"{kind!r} is not a known kind of region family.")
    sets = None
    if state["set"] is not None:
        shape = set_from_state(state["set"])
        ties = None if state.get("ties") is None else ties_from(problem, state["ties"])
        sets = LearnedSet(problem, predictor, shape, spread_from_state(state.get("spread")), ties)
    return FAMILIES[kind].from_state(state, problem, predictor, sets)


def check_outcomes_of(state: State, n_outcomes: int) -> None:
    """Raise where the set of a file has other outcomes than the problem; policies are checked with their
    distributions.
    """
    if state["set"] is not None and (d := set_from_state(state["set"]).n_outcomes) != n_outcomes:
        raise ValueError(f"the set has {d} outcomes, the problem {n_outcomes}")


def _sets_there(sets: LearnedSet | None) -> LearnedSet:
    if sets is None:
        raise ValueError("What is made of a set must come with it.")
    return sets


def _set_policy(problem: DecisionProblem, state: State, sets: LearnedSet | None) -> SetPolicy:
    """The policy of a set; files from before costs were expected of it hold no residuals."""
    costs = mean_cost_from(problem, state.get("residuals"))
    return SetPolicy(_sets_there(sets), float(state["radius"]), costs)


def _of_plans(
    family: type[CostGuard] | type[MarginPath],
    promise: str,
    policies: Mapping[type[Any], Callable[[DecisionProblem, State, LearnedSet | None], Any]],
) -> StoredFamily:
    """The row of a family that holds a policy of one of these types, each made of problem, state and sets."""
    of_kind = {cls.kind: make for cls, make in policies.items()}

    def to_state(made: CostGuard | MarginPath) -> dict[str, Any]:
        policy = {"kind": made.policy.kind, **made.policy.state()}  # or an error of its own that knows better
        if type(made.policy) not in policies:
            raise _cannot_be_stored("policy", made.policy, policies)
        costs = made.policy.costs if isinstance(made.policy, SetPolicy) else None
        if costs is not None and type(costs) is not MeanCost:
            raise _cannot_be_stored("mean cost", costs, [MeanCost])
        return {"policy": policy}

    def from_state(
        state: State, problem: DecisionProblem, predictor: Predictor, sets: LearnedSet | None
    ) -> RegionFamily:
        kind = state["policy"]["kind"]
        if kind not in of_kind:
            raise ValueError(f"{kind!r} is not a known kind of policy of a {family.kind}.")
        policy = of_kind[kind](problem, state["policy"], sets)
        return family(problem, predictor, policy)

    return StoredFamily(family, promise, to_state, from_state)


# A family can be stored once it stands here.
FAMILIES: dict[str, StoredFamily] = {
    row.family.kind: row
    for row in (
        StoredFamily(
            LearnedSet,
            "the outcome lies in the set",
            lambda family: {},
            lambda state, problem, predictor, sets: _sets_there(sets),
        ),
        _of_plans(
            CostGuard,
            "the cost of the planned decision is at most its bound",
            {
                ScenarioPolicy: lambda problem, state, sets: policy_from(problem, state),
                SetPolicy: _set_policy,
            },
        ),
        _of_plans(
            MarginPath,
            "the cost of the planned decision is at most its bound and all uncertain constraints hold",
            {MarginPolicy: lambda problem, state, sets: path_from(problem, state)},
        ),
    )
}
