"""Region families in model files: one row of `FAMILIES` a family, with one entry a plan that it may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from polyhedge.io.sets import set_from_state, set_to_state, spread_from_state, spread_to_state
from polyhedge.plans import LawPlan, MarginPath, path_from, plan_from, ties_from
from polyhedge.predictors import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.regions import Guard, Path, RegionFamily, ScaledSet, SetPlan
from polyhedge.regions.steady import grid_from

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
    from_state: Callable[[State, DecisionProblem, Predictor, ScaledSet | None], RegionFamily]


def family_to_state(family: RegionFamily) -> dict[str, Any]:
    """Plain data of a family, as entries of a model's state."""
    stored = FAMILIES.get(family.kind)
    if stored is None or not isinstance(family, stored.family):
        raise ValueError(f"A region family of type {type(family).__name__} cannot be stored.")
    state: dict[str, Any] = {"family": family.kind, "set": None, "spread": None, "ties": None}
    sets = family.sets
    if sets is not None:
        state["set"] = set_to_state(sets.shape)
        state["spread"] = None if sets.spread is None else spread_to_state(sets.spread)
        state["ties"] = None if sets.ties is None else sets.ties.points
    return {**state, **stored.to_state(family)}


def family_from_state(state: State, problem: DecisionProblem, predictor: Predictor) -> RegionFamily:
    """The family that `family_to_state` described; files before version 3 hold sets only."""
    kind = state.get("family", ScaledSet.kind)
    if kind not in FAMILIES:
        raise ValueError(f"{kind!r} is not a known kind of region family.")
    sets = None
    if state["set"] is not None:
        shape = set_from_state(state["set"])
        ties = None if state.get("ties") is None else ties_from(problem, state["ties"])
        sets = ScaledSet(problem, predictor, shape, spread_from_state(state.get("spread")), ties)
    return FAMILIES[kind].from_state(state, problem, predictor, sets)


def check_outcomes_of(state: State, n_outcomes: int) -> None:
    """Raise where the set of a file has other outcomes than the problem; plans are checked with their laws."""
    if state["set"] is not None and (d := set_from_state(state["set"]).n_outcomes) != n_outcomes:
        raise ValueError(f"the set has {d} outcomes, the problem {n_outcomes}")


def _sets_there(sets: ScaledSet | None) -> ScaledSet:
    if sets is None:
        raise ValueError("What is made of a set must come with it.")
    return sets


def _of_plans(
    family: type[Guard] | type[Path],
    promise: str,
    plans: Mapping[str, Callable[[DecisionProblem, State, ScaledSet | None], Any]],
) -> StoredFamily:
    """The row of a family that holds a plan of one of these kinds, each made of problem, state and sets."""
    known = ", ".join(map(repr, plans))

    def to_state(made: Guard | Path) -> dict[str, Any]:
        plan = {"kind": made.plan.kind, **made.plan.state()}
        if made.plan.kind not in plans:
            raise ValueError(f"A plan of kind {made.plan.kind!r} cannot be stored; of a {family.kind}, {known} can.")
        return {"plan": plan, "grid": None if made.grid is None else made.grid.state()}

    def from_state(
        state: State, problem: DecisionProblem, predictor: Predictor, sets: ScaledSet | None
    ) -> RegionFamily:
        kind = state["plan"]["kind"]
        if kind not in plans:
            raise ValueError(f"{kind!r} is not a known kind of plan of a {family.kind}.")
        plan = plans[kind](problem, state["plan"], sets)
        return family(problem, predictor, plan, grid_from(state.get("grid"), problem.n_outcomes))

    return StoredFamily(family, promise, to_state, from_state)


# A family can be stored once it stands here.
FAMILIES: dict[str, StoredFamily] = {
    row.family.kind: row
    for row in (
        StoredFamily(
            ScaledSet,
            "the outcome lies in the set",
            lambda family: {},
            lambda state, problem, predictor, sets: _sets_there(sets),
        ),
        _of_plans(
            Guard,
            "the cost of the planned decision is at most its bound",
            {
                LawPlan.kind: lambda problem, state, sets: plan_from(problem, state),
                SetPlan.kind: lambda problem, state, sets: SetPlan(_sets_there(sets), float(state["radius"])),
            },
        ),
        _of_plans(
            Path,
            "the cost of the planned decision is at most its bound and all uncertain constraints hold",
            {MarginPath.kind: lambda problem, state, sets: path_from(problem, state)},
        ),
    )
}
