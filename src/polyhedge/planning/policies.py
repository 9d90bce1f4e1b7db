r"""Scenario policies: z(x) of least risk over the scenarios of a residual distribution, and its planned cost v(x).

$$z(x) = \arg\min_{z \in Z}\ g_0(z) + \rho_i\,[\,g(z, f(x) + s(x)\,e_i) - g_0(z)\,]$$

Separable costs are solved for all rows at once (`separable.py`), and so are decisions on a segment. Otherwise the risk
is known by cuts (`risk.py`) that are found once and kept, and each row has a program (`programs.py`). A cost without
pieces is minimised at the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import all_optimal
from polyhedge.planning.corners import Corners
from polyhedge.planning.costs import MOST_KEPT, PlanningProblem
from polyhedge.planning.programs import corners_of, least_by_programs, least_on_segment, program_of
from polyhedge.planning.report import PolicyReport
from polyhedge.planning.residual_distributions import DevelopmentRows, ResidualDistribution, fit_distribution, padded
from polyhedge.planning.risk import ENOUGH, Cuts, Effort, JointCost, Risk, first_cuts, search_cuts
from polyhedge.planning.separable import Tables
from polyhedge.problems import DecisionProblem
from polyhedge.problems.second_stage import equal_rows
from polyhedge.regions import DevelopedPolicy, PlannedDecisions
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.robust.routes import best_knowing
from polyhedge.robust.threads import in_order
from polyhedge.solvers.program import Status

# How long cuts are looked for by rules that decide, and by rules that are only scored, one for each fold. On a segment
# cuts are quick, and sharper ones are worth their time. Rows with parameters need a program each, and every cut is a
# row of every quadratic or conic program.
_FOR_USE = {"segment": Effort(300, 15, ENOUGH), "parameters": Effort(30, 15, ENOUGH), "bent": Effort(20, 5, 3e-3)}
_FOR_USE["pool"] = Effort(40, 20, 1e-3)
_TO_SCORE = {"segment": Effort(120, 15, 4e-4), "bent": Effort(12, 3, 1e-2), "pool": Effort(20, 16, 2e-3)}


@stored("decision rule")
@dataclass(frozen=True)
class Rule:
    """What is minimised at a row: the cost at the prediction (distribution None), or a risk over scenarios."""

    distribution: str | None = None
    risk: Risk = field(default_factory=Risk)

    def __str__(self) -> str:
        if self.distribution is None:
            return "trust the prediction"
        return f"{self.distribution} residuals, {'mean' if self.risk.is_mean else f'CVaR {self.risk.level:g}'}"


@stored("planner")
@dataclass(frozen=True, eq=False)
class Planner:
    """A rule with its distribution and its cuts, frozen: z(x) is a function of the row alone.

    Attributes
    ----------
    problem, rule, distribution : what is decided, and how.
    cuts : lower bounds of the risk; None if the cost has no pieces or is separable.
    starts : (J, d + t + 1) contexts and spreads of rows whose best vertices others start from.
    is_scored : whether its decisions are only compared, so that they need no proof.
    """

    problem: PlanningProblem
    rule: Rule
    distribution: ResidualDistribution | None
    cuts: Cuts | None
    starts: Array = field(default_factory=lambda: np.zeros((0, 1)))
    is_scored: bool = False

    def __call__(self, X: Any, centers: Array, values: Array, n_jobs: int | None = None) -> Array:
        """Decisions (N, p); NaN where there is none."""
        return self.at(*self.placed(X, centers), values, n_jobs)[0]

    def placed(self, X: Any, centers: Array) -> tuple[Array, Array]:
        """Centres (N, d) and spreads (N,) of the distribution at rows."""
        return (centers, np.ones(len(centers))) if self.distribution is None else self.distribution.at(X, centers)

    def at(self, centers: Array, scales: Array, values: Array, n_jobs: int | None = None) -> tuple[Array, Mask]:
        """Decisions (N, p), NaN where there is none, and whether each is proven to be the rule's best (N,).

        Centres (N, d) and spreads (N,) are those of the distribution.
        """
        seen, contexts = self.problem, np.hstack([centers, values])
        if self.cuts is None:
            if seen.separable is not None:
                z = self._tables.least(contexts, scales)
                return z, np.asarray(np.isfinite(z).all(axis=1))
            if self.distribution is not None and seen.is_by_value:
                return self._by_value(centers, scales, values, n_jobs)
            z, _, is_best = best_knowing(seen.problem, centers, values)
            return z, is_best
        if seen.segment is not None:
            z0, z1, base = seen.segment
            t = least_on_segment(self.cuts, base, z0, z1, contexts, scales)
            return np.asarray(z0 + t[:, None] * (z1 - z0)), np.ones(len(t), dtype=bool)
        # One thread asks for decisions that are only scored.
        program = program_of(seen.problem, self.cuts) if self.is_scored and not seen.problem.parameters else None
        at = contexts, scales, values, n_jobs, self._corners
        return least_by_programs(seen.problem, self.cuts, *at, is_scored=self.is_scored, program=program)

    @cached_property
    def _tables(self) -> Tables:
        assert self.problem.separable is not None
        return self.problem.separable.tabled(_points(self.problem, self.distribution), self.rule.risk)

    @cached_property
    def _corners(self) -> Corners | None:
        return None if self.cuts is None else corners_of(self.problem.problem, self.cuts, self.starts, self.is_scored)

    def _by_value(self, centers: Array, scales: Array, values: Array, n_jobs: int | None) -> tuple[Array, Mask]:
        """Rows of equal values together, with the problem at these values; each row has cuts of its own."""

        def decided(rows: Indices) -> tuple[Array, Mask]:
            own, at = self.problem.at_value(values[rows[0]]), (centers[rows], scales[rows], np.zeros((len(rows), 0)))
            if not own.has_cuts:
                return Planner(own, self.rule, self.distribution, None).at(*at, 1)
            z, is_best = np.empty((len(rows), own.problem.n_decisions)), np.zeros(len(rows), dtype=bool)
            for i in range(len(rows)):
                one = at[0][[i]], at[1][[i]], at[2][[i]]
                cuts = _found_cuts(own, self.rule, self.distribution, *one, Effort(1, 30, ENOUGH))
                z[[i]], is_best[[i]] = Planner(own, self.rule, self.distribution, cuts).at(*one, 1)
            return z, is_best

        parts = equal_rows(values)
        z, is_best = np.empty((len(values), self.problem.problem.n_decisions)), np.zeros(len(values), dtype=bool)
        for rows, found in zip(parts, in_order(decided, parts, n_jobs=n_jobs), strict=True):
            z[rows], is_best[rows] = found
        return z, is_best


def fit_planner(
    problem: PlanningProblem,
    rule: Rule,
    distribution: ResidualDistribution | None,
    X: Any,
    centers: Array,
    values: Array,
    *,
    is_scored: bool = False,
) -> Planner:
    """The rule with the cuts that an even choice of these rows needs.

    A planner that is only scored has cuts for fewer rows, and less sharp ones: it is made for every fold.
    """
    if not problem.has_cuts:
        return Planner(problem, rule, distribution, None)
    is_kind = {
        "segment": problem.segment is not None,
        "parameters": bool(problem.problem.parameters),
        "bent": problem.is_bent,
        "pool": problem.pool is not None,
    }
    kind = next((kind for kind, holds in is_kind.items() if holds), "")
    effort = _TO_SCORE.get(kind, Effort(20, 5, 5e-3)) if is_scored else _FOR_USE.get(kind, Effort(40, 10, 1e-3))
    rows = evenly_chosen(len(centers), effort.rows)
    centers, scales = Planner(problem, rule, distribution, None).placed(take_rows(X, rows), centers[rows])
    values = values[rows]
    cuts = _found_cuts(problem, rule, distribution, centers, scales, values, effort)
    starts = np.column_stack([centers, values, scales])
    return Planner(problem, rule, distribution, cuts, starts, is_scored)


def _found_cuts(
    problem: PlanningProblem,
    rule: Rule,
    distribution: ResidualDistribution | None,
    centers: Array,
    scales: Array,
    values: Array,
    effort: Effort,
) -> Cuts:
    """Cuts of the rule's risk at rows; those of the relaxation serve integers too, and are quickly found."""
    relaxed, contexts = problem.relaxed, np.hstack([centers, values])
    points = padded(_points(problem, distribution), values.shape[1])
    cost = JointCost(problem.joint, points, problem.is_coupled_sum)

    is_bounded = relaxed.needs_programs and relaxed.is_bounded
    first = first_cuts(cost, rule.risk, contexts, scales, problem.usual_decision, is_bounded)
    program = None if problem.problem.parameters or relaxed.segment is not None else program_of(relaxed.problem, first)

    def decided(cuts: Cuts, own: Indices) -> Array:
        nonlocal program
        if program is None:
            planner = Planner(relaxed, rule, distribution, cuts, is_scored=True)
            return planner.at(centers[own], scales[own], values[own], n_jobs=1)[0]
        program = program if len(cuts) == len(program.cuts) else program.grown(cuts)
        at = contexts[own], scales[own], values[own]
        return least_by_programs(relaxed.problem, cuts, *at, n_jobs=1, is_scored=True, program=program)[0]

    return search_cuts(cost, rule.risk, (contexts, scales), first, effort, decided)


def _points(problem: PlanningProblem, distribution: ResidualDistribution | None) -> Array:
    return np.zeros((1, problem.problem.n_outcomes)) if distribution is None else distribution.points


@stored("policy of distributions")
@dataclass(frozen=True, eq=False)
class ScenarioPolicy(DevelopedPolicy):
    """z(x) is the mean of the decisions of some rules, v(x) a quantile of its cost over scenarios.

    Attributes
    ----------
    problem : what is decided.
    planners : rules with their distributions and cuts.
    weights : (k,) of their decisions, with sum 1.
    distribution, level : whose quantile is the planned cost, and of which level.
    report : how the policy was selected.
    """

    problem: DecisionProblem
    planners: tuple[Planner, ...]
    weights: tuple[float, ...]
    distribution: ResidualDistribution
    level: float
    report: PolicyReport
    kind: ClassVar[str] = "scenarios"

    def __post_init__(self) -> None:
        is_mean = len(self.weights) == len(self.planners) > 0 and np.isclose(sum(self.weights), 1.0)
        if not is_mean or min(self.weights) <= 0 or not 0 < self.level < 1:
            raise ValueError("A policy must have a positive weight for each rule, with sum 1, and a level in (0, 1).")

    @cached_property
    def takes_columns(self) -> bool:
        """Whether features may be `ReadColumns`: no rows are taken, and no distribution of the user's looks."""
        used = self.distribution, *(planner.distribution for planner in self.planners if planner.distribution)
        is_ours = {type(one).__module__ for one in used} == {ResidualDistribution.__module__}
        return is_ours and not self.problem.parameters

    def decide(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> PlannedDecisions:
        """Decisions, planned and expected costs of N rows."""
        n, seen = len(centers), self.planners[0].problem
        # Problems at the values of a row's parameters are kept while all rules look at them, part after part.
        step = MOST_KEPT if seen.is_by_value else max(n, 1)
        z, is_best = np.zeros((n, self.problem.n_decisions)), np.ones(n, dtype=bool)
        v, expected = np.zeros(n), np.zeros(n)
        for k in range(0, n, step):
            part = slice(k, min(k + step, n))
            X = features if step >= n else take_rows(features, np.arange(n)[part])
            at: dict[str | None, tuple[Array, Array]] = {self.distribution.name: self.distribution.at(X, centers[part])}
            for weight, planner in zip(self.weights, self.planners, strict=True):
                name = planner.rule.distribution
                at[name] = at[name] if name in at else planner.placed(X, centers[part])
                own, is_proven = planner.at(*at[name], values[part], work.n_jobs)
                z[part] += weight * own
                is_best[part] &= is_proven
            moved, scales = at[self.distribution.name]
            planned = seen.planned_cost(self.distribution.points, self.level, z[part], moved, scales, values[part])
            v[part], expected[part] = planned
            if work.progress is not None:
                work.progress(part.stop, n)
        status, detail = all_optimal(n), [""] * n
        for i in np.flatnonzero(~is_best):
            status[i] = Status.STOPPED_EARLY
            detail[i] = "A solver could not prove that no decision is better by the policy"
        for i in np.flatnonzero(~np.isfinite(z).all(axis=1) | ~np.isfinite(v)):
            status[i] = Status.FAILED
            detail[i] = "The policy has no decision there. Check the constraints and the prediction"
        return PlannedDecisions(z, v, status, tuple(detail) if any(detail) else (), expected if seen.has_mean else None)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the scenarios (n, d) of the planned cost."""
        return self.distribution.outcomes(features, centers)

    def refitted(self, rows: DevelopmentRows, seed: int) -> ScenarioPolicy:
        """The same rules with the same weights, from other development rows: nothing is selected again."""
        rules, by, report = [planner.rule for planner in self.planners], self.distribution.name, self.report
        return fit_rules(self.planners[0].problem, rules, self.weights, rows, by, self.level, seed, report)


def fit_rules(
    problem: PlanningProblem,
    rules: list[Rule],
    weights: tuple[float, ...],
    rows: DevelopmentRows,
    planned_by: str,
    level: float,
    seed: int,
    report: PolicyReport,
) -> ScenarioPolicy:
    """The policy of these rules, with distributions and cuts from all of these rows."""
    names = {planned_by, *(rule.distribution for rule in rules if rule.distribution is not None)}
    fitted = {name: fit_distribution(name, rows, seed) for name in names}
    planners = []
    for rule in rules:
        distribution = None if rule.distribution is None else fitted[rule.distribution]
        planners.append(fit_planner(problem, rule, distribution, rows.X, rows.centers, rows.values))
    return ScenarioPolicy(problem.original, tuple(planners), weights, fitted[planned_by].thinned(), level, report)
