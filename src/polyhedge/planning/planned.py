"""The policy that a selection chose: a mean of its winners, frozen, and the report of how it was chosen."""

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
from polyhedge.planning.report import CHOSEN_ONCE, DRAWN_AGAIN, Entry, PolicyReport, report_from
from polyhedge.planning.residual_distributions import (
    DISTRIBUTIONS,
    EVEN_DISTRIBUTIONS,
    MOST_POINTS,
    DevelopmentRows,
    ResidualDistribution,
    distribution_from,
    fit_distributions,
)
from polyhedge.planning.risk import Cuts, Risk
from polyhedge.planning.selection import (
    PLANNED_BY,
    Scored,
    Selection,
    candidates,
    choose_planned_by,
    fewest_wins,
    first_least,
    penalized,
    resampled,
    winners,
)
from polyhedge.planning.worst_case import takes_sets
from polyhedge.problems import DecisionProblem
from polyhedge.regions import DevelopedPolicy, PlannedDecisions
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.solvers.program import Status

_FEW_ROWS = 5
"""Rows whose parameters say which rules compete: one of them may have a value at which the cost is a special one."""
_MOST_RULES, _MOST_CUTS, _MOST_LEVELS = 20, 20_000, 20
"""Rules, cuts of each and levels that a file may have; selections have a dozen rules, fits found some thousand cuts."""


@dataclass(frozen=True, eq=False)
class ScenarioPolicy(DevelopedPolicy):
    """z(x) is the mean of some rules' decisions, v(x) a quantile of its cost under distributions.

    Attributes
    ----------
    problem : what is decided.
    planners : rules with their distributions and cuts.
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
    report: PolicyReport
    kind: ClassVar[str] = "distributions"

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
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

    def _in_parts(self, features: Any, centers: Array, values: Array, work: Work) -> PlannedDecisions:
        """Rows whose problems are kept while all rules look at them, part after part."""
        parts = []
        for k in range(0, len(centers), MOST_KEPT):
            rows = np.arange(k, min(k + MOST_KEPT, len(centers)))
            own = take_rows(features, rows), centers[rows], values[rows]
            parts.append(self.decide(*own, replace(work, progress=None)))
            if work.progress is not None:
                work.progress(int(rows[-1]) + 1, len(centers))
        z, v, expected = (np.concatenate([getattr(part, name) for part in parts]) for name in ("z", "v", "expected"))
        status = np.concatenate([part.status for part in parts])
        detail = tuple(text for part in parts for text in (part.detail or ("",) * len(part.v)))
        return PlannedDecisions(z, v, status, detail if any(detail) else (), expected)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the outcomes (n, d) that are possible by the distribution that weighs most in the planned cost."""
        return self.costs[int(np.argmax(self.cost_weights))].distribution.outcomes(features, centers)

    @property
    def distributions(self) -> dict[str, ResidualDistribution]:
        """All distributions of the policy by name."""
        used = [
            *(cost.distribution for cost in self.costs),
            *(p.distribution for p in self.planners if p.distribution is not None),
        ]
        return {distribution.name: distribution for distribution in used}

    def refitted(self, rows: DevelopmentRows, seed: int) -> ScenarioPolicy:
        """The same rules with the same weights, on distributions and cuts of other development rows: nothing is chosen
        again.
        """
        seen, distributions = PlanProblem(self.problem), fit_distributions(list(self.distributions), rows, seed)
        planners = [
            fit_planner(
                seen,
                old.rule,
                old.distribution and distributions[old.distribution.name],
                rows.X,
                rows.centers,
                rows.values,
            )
            for old in self.planners
        ]
        costs = tuple(PlannedCost(distributions[cost.distribution.name], cost.by) for cost in self.costs)
        return replace(self, planners=tuple(planners), costs=costs)

    def state(self) -> Mapping[str, Any]:
        """Numbers, texts and arrays from which `plan_from` makes the same policy."""
        return {
            "report": self.report.state(),
            "distributions": [distribution.state() for distribution in self.distributions.values()],
            "planners": [
                {
                    "distribution": planner.rule.distribution,
                    "risk": planner.rule.risk.level,
                    "is_over_set": planner.rule.is_over_set,
                    "weight": weight,
                    "cuts": None if planner.cuts is None else vars(planner.cuts),
                    "starts": planner.starts,
                }
                for weight, planner in zip(self.weights, self.planners, strict=True)
            ],
            "planned_by": [
                {
                    "distribution": cost.distribution.name,
                    "weight": weight,
                    "levels": list(cost.by.levels),
                    "price": cost.by.price,
                }
                for weight, cost in zip(self.cost_weights, self.costs, strict=True)
            ],
        }


def policy_from(problem: DecisionProblem, state: Mapping[str, Any]) -> ScenarioPolicy:
    """The policy of this problem with this state; a ValueError where no fit can have made it."""
    if (
        len(state["distributions"]) > len(DISTRIBUTIONS)
        or max(len(state["planners"]), len(state["planned_by"])) > _MOST_RULES
    ):
        raise ValueError(
            f"A policy has at most {len(DISTRIBUTIONS)} distributions, and {_MOST_RULES} rules and ways to plan its "
            "cost."
        )
    distributions = {one["name"]: distribution_from(one, problem.n_outcomes) for one in state["distributions"]}
    seen, n_values = PlanProblem(problem), sum(int(np.prod(each.shape)) for each in problem.parameters)
    shape = problem.n_decisions, problem.n_outcomes + n_values
    planners = [_planner(seen, one, distributions, shape) for one in state["planners"]]
    weights, by_distribution = ([float(one["weight"]) for one in state[name]] for name in ("planners", "planned_by"))
    if seen.is_integer and len(planners) > 1:
        raise ValueError("A policy of whole decisions has one rule: a mean of whole decisions is not whole.")
    if not all(np.isclose(sum(w), 1.0) and min(w) > 0 for w in (weights, by_distribution)):
        raise ValueError("The weights of a policy must be positive with sum 1.")
    costs = tuple(_planned_cost(one, distributions, state.get("level")) for one in state["planned_by"])
    return ScenarioPolicy(
        problem, tuple(planners), tuple(weights), costs, tuple(by_distribution), report_from(state["report"])
    )


def _planned_cost(
    state: Mapping[str, Any], distributions: Mapping[str, ResidualDistribution], common: Any
) -> PlannedCost:
    """What plans the cost; files from before levels were shared out have a common one for the whole policy."""
    levels, price = tuple(float(t) for t in state.get("levels", [common])), float(state.get("price", 0.0))
    if state["distribution"] not in PLANNED_BY:
        raise ValueError(
            f"The cost of a policy must be planned by one of these distributions: {', '.join(PLANNED_BY)}."
        )
    is_growing = list(levels) == sorted(set(levels)) and all(0 < level < 1 for level in levels)
    if not 0 < len(levels) <= _MOST_LEVELS or not is_growing:
        raise ValueError(f"A planned cost must have 1 to {_MOST_LEVELS} growing levels between 0 and 1.")
    if not 0 <= price < np.inf or (len(levels) > 1 and state["distribution"] == PLANNED_BY[-1]):
        raise ValueError(
            "Levels are shared out at a price from 0 upwards, and not by a distribution of weighted residuals."
        )
    return PlannedCost(distributions[state["distribution"]], PlannedBy(state["distribution"], levels, price))


def _planner(
    seen: PlanProblem,
    state: Mapping[str, Any],
    distributions: Mapping[str, ResidualDistribution],
    shape: tuple[int, int],
) -> Planner:
    distribution, cuts = state["distribution"], None
    if (state["cuts"] is not None) != has_cuts(seen):
        raise ValueError(
            "A rule must have cuts where the cost of the problem has pieces and does not fall apart, and only there."
        )
    if not (
        distribution is None or distribution in EVEN_DISTRIBUTIONS or (seen.is_separable and float(state["risk"]) == 0)
    ):
        raise ValueError("A rule may weigh residuals for the mean of a cost that falls apart, and for nothing else.")
    is_over_set = bool(state.get("is_over_set", False))  # files from before sets took part have none
    if is_over_set and not (distribution in EVEN_DISTRIBUTIONS and takes_sets(seen)):
        raise ValueError("A rule may be over a set of a distribution of equal weights, where the cost has few pieces.")
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
    return Planner(
        seen,
        Rule(distribution, Risk(risk), is_over_set),
        None if distribution is None else distributions[distribution],
        cuts,
        starts,
    )


def _are_terms(seen: PlanProblem, term: Indices) -> bool:
    """Whether these are numbers of terms of the cost: the base, and one for each group of pieces."""
    return seen.has_maxima and term.min() >= 0 and int(term.max()) <= len(seen.joint.groups)


def _planned(z: Array, v: Array, expected: Array, is_best: Mask) -> PlannedDecisions:
    status, detail = all_optimal(len(z)), [""] * len(z)
    for i in np.flatnonzero(~is_best):
        status[i], detail[i] = Status.STOPPED_EARLY, "A solver could not prove that no decision is better by the policy"
    for i in np.flatnonzero(~np.isfinite(z).all(axis=1) | ~np.isfinite(v)):
        status[i], detail[i] = (
            Status.FAILED,
            "The policy has no decision there. Check the constraints and the prediction",
        )
    return PlannedDecisions(z, v, status, tuple(detail) if any(detail) else (), expected)


def fit_policy(
    problem: DecisionProblem,
    rows: DevelopmentRows,
    alpha: float,
    caution: float,
    seed: int,
    scored_on: DevelopmentRows | None = None,
) -> ScenarioPolicy:
    """The policy that wins the selection on development rows.

    Parameters
    ----------
    problem : what is decided.
    rows : training and learning rows with predictions by models that had not seen them; never calibration rows.
    alpha : miscoverage level of the bound that will be calibrated.
    caution : weight of the bound against the mean cost, from 0 to 1.
    seed : of forests and resamplings.
    scored_on : the same rows with other predictions and folds, for the selection alone; by default `rows`. Of more than
        `MOST_POINTS` it takes an even choice: a selection needs no more, and distributions for use are made of all.
    """
    seen, level = PlanProblem(problem), planned_level(alpha)
    scored = (rows if scored_on is None else scored_on).thinned(MOST_POINTS)
    rules = candidates(seen, alpha, scored.values[evenly_chosen(len(scored), _FEW_ROWS)])
    selection = Selection(seen, scored, rules, level, seed)
    draws = resampled(len(selection.scored[0][0].realised), seed)
    entries = [choose_planned_by(one, alpha, draws) for one in selection.scored]
    selection.look_closer(winners(entries, alpha, caution, draws), alpha)
    entries = [choose_planned_by(one, alpha, draws) for one in selection.scored]
    wins = winners(entries, alpha, caution, draws)
    is_single = seen.is_integer or not np.isfinite([entry.bound(alpha) for entry in entries]).all()
    if is_single:
        chosen = {first_least(penalized(entries, alpha, caution), entries[0].tie): 1}
    else:
        chosen = {k: n for k, n in sorted(wins.items()) if n >= fewest_wins(wins)}
    total = sum(chosen.values())
    report = PolicyReport(
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


def _frozen(
    seen: PlanProblem, rows: DevelopmentRows, chosen: dict[Scored, float], seed: int, report: PolicyReport
) -> ScenarioPolicy:
    """The chosen rules with distributions and cuts from all rows."""
    names = {entry.rule.distribution for entry in chosen} | {entry.planned_by.distribution for entry in chosen}
    distributions = fit_distributions([name for name in DISTRIBUTIONS if name in names], rows, seed)

    def fitted(rule: Rule) -> Planner:
        distribution = None if rule.distribution is None else distributions[rule.distribution]
        return fit_planner(seen, rule, distribution, rows.X, rows.centers, rows.values)

    planners = {entry: fitted(entry.rule) for entry in chosen}
    kept = {entry: share for entry, share in chosen.items() if planners[entry].has_policy}
    if not kept:  # a set had a finite worst case in every fold, and has none with all rows
        nominal = replace(next(iter(chosen)), rule=Rule())
        kept, planners = {nominal: 1.0}, {nominal: fitted(nominal.rule)}
    total = sum(kept.values())
    chosen = {entry: share / total for entry, share in kept.items()} if len(kept) < len(planners) else kept
    shares = _merged([(entry.planned_by, share) for entry, share in chosen.items()])
    costs = tuple(PlannedCost(distributions[by.distribution], by) for by in shares)
    own = tuple(planners[entry] for entry in chosen)
    return ScenarioPolicy(seen.problem, own, tuple(chosen.values()), costs, tuple(shares.values()), report)


def _merged(planned: list[tuple[PlannedBy, float]]) -> dict[PlannedBy, float]:
    """Ways to plan the cost with their shares: those that differ in their price alone have one, the mean of theirs."""
    shares: dict[PlannedBy, float] = {}
    for distribution, levels in sorted({(by.distribution, by.levels) for by, _ in planned}):
        own = [(by.price, share) for by, share in planned if (by.distribution, by.levels) == (distribution, levels)]
        total = sum(share for _, share in own)
        shares[PlannedBy(distribution, levels, sum(price * share for price, share in own) / total)] = total
    return shares
