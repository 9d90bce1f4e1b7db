"""The plan that a contest chose: a mean of its winners, frozen, and the report of how it was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import all_optimal
from polyhedge.planning.costs import MOST_KEPT, PlanProblem
from polyhedge.planning.levels import PlannedBy, PlannedCost, planned_level
from polyhedge.planning.policies import Planner, Rule, fit_planner, has_cuts
from polyhedge.planning.report import CHOSEN_ONCE, DRAWN_AGAIN, Entry, PlanReport, report_from
from polyhedge.planning.residual_distributions import EVEN_LAWS, LAWS, MOST_POINTS, Law, PlanRows, fit_laws, law_from
from polyhedge.planning.risk import Cuts, Risk
from polyhedge.planning.selection import (
    PLANNED_BY,
    Contest,
    Judged,
    candidates,
    choose_planned_by,
    fewest_wins,
    first_least,
    handicapped,
    resampled,
    winners,
)
from polyhedge.planning.worst_case import takes_sets
from polyhedge.problems import DecisionProblem
from polyhedge.regions.cost_guard import Planned
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.solvers.program import Status

_FEW_ROWS = 5
"""Rows whose parameters say which rules compete: one of them may have a value at which the cost is a special one."""
_MOST_RULES, _MOST_CUTS, _MOST_LEVELS = 20, 20_000, 20
"""Rules, cuts of each and levels that a file may have; contests have a dozen rules, fits found some thousand cuts."""


@dataclass(frozen=True, eq=False)
class LawPlan:
    """z(x) is the mean of some rules' decisions, v(x) a quantile of its cost under laws.

    Attributes
    ----------
    problem : what is decided.
    planners : rules with their laws and cuts.
    weights : (k,) of their decisions, with sum 1.
    costs : what plans the cost.
    cost_weights : of these, with sum 1.
    report : how it was chosen.
    """

    problem: DecisionProblem
    planners: tuple[Planner, ...]
    weights: tuple[float, ...]
    costs: tuple[PlannedCost, ...]
    cost_weights: tuple[float, ...]
    report: PlanReport
    kind: ClassVar[str] = "laws"

    def plan(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> Planned:
        """Decisions, planned and expected costs, each a function of its row alone."""
        if not len(centers):
            return _planned(np.zeros((0, self.problem.n_decisions)), np.zeros(0), np.zeros(0), np.ones(0, dtype=bool))
        seen = self.planners[0].problem  # what it keeps of a row's values serves all rules
        if seen.is_by_value and len(centers) > MOST_KEPT:
            return self._in_parts(features, centers, values, work)
        z, is_best = np.zeros((len(centers), self.problem.n_decisions)), np.ones(len(centers), dtype=bool)
        for weight, planner in zip(self.weights, self.planners, strict=True):
            own, is_proven = planner.proven(features, centers, values, work.n_jobs)
            z, is_best = z + weight * own, is_best & is_proven
        v, expected = np.zeros(len(z)), np.zeros(len(z))
        for weight, cost in zip(self.cost_weights, self.costs, strict=True):
            quantile, mean = cost(seen, z, features, centers, values)
            v, expected = v + weight * quantile, expected + weight * mean
        if work.progress is not None:
            work.progress(len(z), len(z))
        return _planned(z, v, expected, is_best)

    def _in_parts(self, features: Any, centers: Array, values: Array, work: Work) -> Planned:
        """Rows whose problems are kept while all rules look at them, part after part."""
        parts = []
        for k in range(0, len(centers), MOST_KEPT):
            rows = np.arange(k, min(k + MOST_KEPT, len(centers)))
            own = take_rows(features, rows), centers[rows], values[rows]
            parts.append(self.plan(*own, replace(work, progress=None)))
            if work.progress is not None:
                work.progress(int(rows[-1]) + 1, len(centers))
        z, v, expected = (np.concatenate([getattr(part, name) for part in parts]) for name in ("z", "v", "expected"))
        status = np.concatenate([part.status for part in parts])
        detail = tuple(text for part in parts for text in (part.detail or ("",) * len(part.v)))
        return Planned(z, v, status, detail if any(detail) else (), expected)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the outcomes (n, d) that are possible by the law that weighs most in the planned cost."""
        return self.costs[int(np.argmax(self.cost_weights))].law.outcomes(features, centers)

    @property
    def laws(self) -> dict[str, Law]:
        """All laws of the plan by name."""
        used = [*(cost.law for cost in self.costs), *(p.law for p in self.planners if p.law is not None)]
        return {law.name: law for law in used}

    def refitted(self, rows: PlanRows, seed: int) -> LawPlan:
        """The same rules with the same weights, on laws and cuts of other development rows: nothing is chosen again."""
        seen, laws = PlanProblem(self.problem), fit_laws(list(self.laws), rows, seed)
        planners = [
            fit_planner(seen, old.rule, old.law and laws[old.law.name], rows.X, rows.centers, rows.values)
            for old in self.planners
        ]
        costs = tuple(PlannedCost(laws[cost.law.name], cost.by) for cost in self.costs)
        return replace(self, planners=tuple(planners), costs=costs)

    def state(self) -> Mapping[str, Any]:
        """Numbers, texts and arrays from which `plan_from` makes the same plan."""
        return {
            "report": self.report.state(),
            "laws": [law.state() for law in self.laws.values()],
            "planners": [
                {
                    "law": planner.rule.law,
                    "risk": planner.rule.risk.level,
                    "is_over_set": planner.rule.is_over_set,
                    "weight": weight,
                    "cuts": None if planner.cuts is None else vars(planner.cuts),
                    "starts": planner.starts,
                }
                for weight, planner in zip(self.weights, self.planners, strict=True)
            ],
            "planned_by": [
                {"law": cost.law.name, "weight": weight, "levels": list(cost.by.levels), "price": cost.by.price}
                for weight, cost in zip(self.cost_weights, self.costs, strict=True)
            ],
        }


def plan_from(problem: DecisionProblem, state: Mapping[str, Any]) -> LawPlan:
    """The plan of this problem with this state; a ValueError where no fit can have made it."""
    if len(state["laws"]) > len(LAWS) or max(len(state["planners"]), len(state["planned_by"])) > _MOST_RULES:
        raise ValueError(f"A plan has at most {len(LAWS)} laws, and {_MOST_RULES} rules and ways to plan its cost.")
    laws = {one["name"]: law_from(one, problem.n_outcomes) for one in state["laws"]}
    seen, n_values = PlanProblem(problem), sum(int(np.prod(each.shape)) for each in problem.parameters)
    shape = problem.n_decisions, problem.n_outcomes + n_values
    planners = [_planner(seen, one, laws, shape) for one in state["planners"]]
    weights, by_law = ([float(one["weight"]) for one in state[name]] for name in ("planners", "planned_by"))
    if seen.is_integer and len(planners) > 1:
        raise ValueError("A plan of whole decisions has one rule: a mean of whole decisions is not whole.")
    if not all(np.isclose(sum(w), 1.0) and min(w) > 0 for w in (weights, by_law)):
        raise ValueError("The weights of a plan must be positive with sum 1.")
    costs = tuple(_planned_cost(one, laws, state.get("level")) for one in state["planned_by"])
    return LawPlan(problem, tuple(planners), tuple(weights), costs, tuple(by_law), report_from(state["report"]))


def _planned_cost(state: Mapping[str, Any], laws: Mapping[str, Law], common: Any) -> PlannedCost:
    """What plans the cost; files from before levels were shared out have a common one for the whole plan."""
    levels, price = tuple(float(t) for t in state.get("levels", [common])), float(state.get("price", 0.0))
    if state["law"] not in PLANNED_BY:
        raise ValueError(f"The cost of a plan must be planned by one of these laws: {', '.join(PLANNED_BY)}.")
    is_growing = list(levels) == sorted(set(levels)) and all(0 < level < 1 for level in levels)
    if not 0 < len(levels) <= _MOST_LEVELS or not is_growing:
        raise ValueError(f"A planned cost must have 1 to {_MOST_LEVELS} growing levels between 0 and 1.")
    if not 0 <= price < np.inf or (len(levels) > 1 and state["law"] == PLANNED_BY[-1]):
        raise ValueError("Levels are shared out at a price from 0 upwards, and not by a law of weighted residuals.")
    return PlannedCost(laws[state["law"]], PlannedBy(state["law"], levels, price))


def _planner(seen: PlanProblem, state: Mapping[str, Any], laws: Mapping[str, Law], shape: tuple[int, int]) -> Planner:
    law, cuts = state["law"], None
    if (state["cuts"] is not None) != has_cuts(seen):
        raise ValueError(
            "A rule must have cuts where the cost of the problem has pieces and does not fall apart, and only there."
        )
    if not (law is None or law in EVEN_LAWS or (seen.is_separable and float(state["risk"]) == 0)):
        raise ValueError("A rule may weigh residuals for the mean of a cost that falls apart, and for nothing else.")
    is_over_set = bool(state.get("is_over_set", False))  # files from before sets took part have none
    if is_over_set and not (law in EVEN_LAWS and takes_sets(seen)):
        raise ValueError("A rule may be over a set of a law of equal weights, where the cost has few pieces.")
    if state["cuts"] is not None:
        cuts, (p, d) = Cuts(**state["cuts"]), shape
        k = len(cuts)
        wanted = [(k, 1 + p), (k, 1 + p), (k, 1 + p, d), (k,)]
        if not 0 < k <= _MOST_CUTS or [part.shape for part in cuts.parts] != wanted:
            raise ValueError("The cuts of a rule must fit the decisions and outcomes of the problem.")
        if [part.dtype.kind for part in cuts.parts] != ["f", "f", "f", "i"] or not _are_terms(seen, cuts.term):
            raise ValueError("The cuts of a rule must be numbers, each of one term of the cost.")
    risk = float(state["risk"])
    if not 0 <= risk < 1:
        raise ValueError(f"The level of a tail must lie in [0, 1), got {risk}.")
    starts, width = state["starts"], shape[1] + 1
    if starts.dtype.kind != "f" or starts.ndim != 2 or (len(starts) and starts.shape[1] != width):
        raise ValueError(f"The starts of a rule must be rows of {width} numbers, a context and its spread.")
    return Planner(seen, Rule(law, Risk(risk), is_over_set), None if law is None else laws[law], cuts, starts)


def _are_terms(seen: PlanProblem, term: Indices) -> bool:
    """Whether these are numbers of terms of the cost: the base, and one for each group of pieces."""
    return seen.has_maxima and term.min() >= 0 and int(term.max()) <= len(seen.joint.groups)


def _planned(z: Array, v: Array, expected: Array, is_best: Mask) -> Planned:
    status, detail = all_optimal(len(z)), [""] * len(z)
    for i in np.flatnonzero(~is_best):
        status[i], detail[i] = Status.STOPPED_EARLY, "A solver could not prove that no decision is better by the plan"
    for i in np.flatnonzero(~np.isfinite(z).all(axis=1) | ~np.isfinite(v)):
        status[i], detail[i] = Status.FAILED, "The plan has no decision there. Check the constraints and the prediction"
    return Planned(z, v, status, tuple(detail) if any(detail) else (), expected)


def fit_plan(
    problem: DecisionProblem,
    rows: PlanRows,
    alpha: float,
    caution: float,
    seed: int,
    judged_on: PlanRows | None = None,
) -> LawPlan:
    """The plan that wins the contest on development rows.

    Parameters
    ----------
    problem : what is decided.
    rows : training and learning rows with predictions by models that had not seen them; never calibration rows.
    alpha : miscoverage level of the bound that will be calibrated.
    caution : weight of the bound against the mean cost, from 0 to 1.
    seed : of forests and resamplings.
    judged_on : the same rows with other predictions and folds, for the contest alone; by default `rows`. Of more than
        `MOST_POINTS` it takes an even choice: a contest needs no more, and laws for use are made of all.
    """
    seen, level = PlanProblem(problem), planned_level(alpha)
    judged = (rows if judged_on is None else judged_on).thinned(MOST_POINTS)
    rules = candidates(seen, alpha, judged.values[evenly_chosen(len(judged), _FEW_ROWS)])
    contest = Contest(seen, judged, rules, level, seed)
    draws = resampled(len(contest.judged[0][0].realised), seed)
    entries = [choose_planned_by(one, alpha, draws) for one in contest.judged]
    contest.look_closer(winners(entries, alpha, caution, draws), alpha)
    entries = [choose_planned_by(one, alpha, draws) for one in contest.judged]
    wins = winners(entries, alpha, caution, draws)
    is_single = seen.is_integer or not np.isfinite([entry.bound(alpha) for entry in entries]).all()
    if is_single:
        chosen = {first_least(handicapped(entries, alpha, caution), entries[0].tie): 1}
    else:
        chosen = {k: n for k, n in sorted(wins.items()) if n >= fewest_wins(wins)}
    total = sum(chosen.values())
    report = PlanReport(
        tuple(
            Entry(str(e.rule), str(e.planned_by), e.bound(alpha), e.cost(), chosen.get(k, 0) / total)
            for k, e in enumerate(entries)
        ),
        alpha,
        caution,
        len(entries[0].realised),
        CHOSEN_ONCE if is_single else DRAWN_AGAIN,
    )
    return _frozen(seen, rows, {entries[k]: n / total for k, n in chosen.items()}, seed, report)


def _frozen(seen: PlanProblem, rows: PlanRows, chosen: dict[Judged, float], seed: int, report: PlanReport) -> LawPlan:
    """The chosen rules with laws and cuts from all rows."""
    names = {entry.rule.law for entry in chosen} | {entry.planned_by.law for entry in chosen}
    laws = fit_laws([name for name in LAWS if name in names], rows, seed)

    def fitted(rule: Rule) -> Planner:
        law = None if rule.law is None else laws[rule.law]
        return fit_planner(seen, rule, law, rows.X, rows.centers, rows.values)

    planners = {entry: fitted(entry.rule) for entry in chosen}
    kept = {entry: share for entry, share in chosen.items() if planners[entry].has_plan}
    if not kept:  # a set had a finite worst case in every fold, and has none with all rows
        nominal = replace(next(iter(chosen)), rule=Rule())
        kept, planners = {nominal: 1.0}, {nominal: fitted(nominal.rule)}
    total = sum(kept.values())
    chosen = {entry: share / total for entry, share in kept.items()} if len(kept) < len(planners) else kept
    shares = _merged([(entry.planned_by, share) for entry, share in chosen.items()])
    costs = tuple(PlannedCost(laws[by.law], by) for by in shares)
    own = tuple(planners[entry] for entry in chosen)
    return LawPlan(seen.problem, own, tuple(chosen.values()), costs, tuple(shares.values()), report)


def _merged(planned: list[tuple[PlannedBy, float]]) -> dict[PlannedBy, float]:
    """Ways to plan the cost with their shares: those that differ in their price alone have one, the mean of theirs."""
    shares: dict[PlannedBy, float] = {}
    for law, levels in sorted({(by.law, by.levels) for by, _ in planned}):
        own = [(by.price, share) for by, share in planned if (by.law, by.levels) == (law, levels)]
        total = sum(share for _, share in own)
        shares[PlannedBy(law, levels, sum(price * share for price, share in own) / total)] = total
    return shares
