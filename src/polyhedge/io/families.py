"""Region families in model files: one row a family, and one a plan that a guard may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhedge.io.sets import set_from_state, set_to_state, spread_from_state, spread_to_state
from polyhedge.plans import LawPlan, MarginPath, path_from, plan_from, ties_from
from polyhedge.predictors import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.regions import Guard, Path, RegionFamily, ScaledSet, SetPlan
from polyhedge.regions.steady import grid_from

GUARANTEES = {
    "set": "the outcome lies in the set",
    "guard": "the cost of the planned decision is at most its bound",
    "path": "the cost of the planned decision is at most its bound and all uncertain constraints hold",
}
"""What is promised of each family of a file."""


def family_to_state(family: RegionFamily) -> dict[str, Any]:
    """Plain data of a family, as entries of a model's state."""
    sets = getattr(family, "sets", None)
    state: dict[str, Any] = {"family": family.kind, "set": None, "spread": None, "ties": None}
    if sets is not None:
        state["set"] = set_to_state(sets.shape)
        state["spread"] = None if sets.spread is None else spread_to_state(sets.spread)
        state["ties"] = None if sets.ties is None else sets.ties.points
    if isinstance(family, Guard | Path):
        state["plan"] = {"kind": family.plan.kind, **family.plan.state()}
        state["grid"] = None if family.grid is None else family.grid.state()
    elif not isinstance(family, ScaledSet):
        raise ValueError(f"A region family of type {type(family).__name__} cannot be stored.")
    return state


def family_from_state(state: Mapping[str, Any], problem: DecisionProblem, predictor: Predictor) -> RegionFamily:
    """The family that `family_to_state` described; files before version 3 hold sets only."""
    sets = None
    if state["set"] is not None:
        shape = set_from_state(state["set"])
        ties = None if state.get("ties") is None else ties_from(problem, state["ties"])
        sets = ScaledSet(problem, predictor, shape, spread_from_state(state.get("spread")), ties)
    kind = state.get("family", ScaledSet.kind)
    grid = grid_from(state.get("grid"), problem.n_outcomes)
    if kind == Guard.kind:
        return Guard(problem, predictor, _plan(state["plan"], sets, problem), grid)
    if kind == Path.kind:
        if state["plan"]["kind"] != MarginPath.kind:
            raise ValueError(f"{state['plan']['kind']!r} is not a known kind of path.")
        return Path(problem, predictor, path_from(problem, state["plan"]), grid)
    if kind != ScaledSet.kind or sets is None:
        raise ValueError(f"{kind!r} is not a known kind of region family.")
    return sets


def n_outcomes_of(state: Mapping[str, Any]) -> int:
    """The number of outcomes of what was learned."""
    if state["set"] is None:
        return int(state["plan"]["laws"][0]["points"].shape[1])
    return set_from_state(state["set"]).n_outcomes


def _plan(state: Mapping[str, Any], sets: ScaledSet | None, problem: DecisionProblem) -> Any:
    if state["kind"] == LawPlan.kind:
        return plan_from(problem, state)
    if state["kind"] == SetPlan.kind and sets is not None:
        return SetPlan(sets, float(state["radius"]))
    raise ValueError(f"{state['kind']!r} is not a known kind of plan.")
