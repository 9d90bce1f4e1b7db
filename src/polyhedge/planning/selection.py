"""Selection of a policy: rules are scored on rows that they have not seen, and the winners of resamplings averaged.

The score of a rule weighs two figures by `caution`: the bound as calibration would set it, mean of v plus the conformal
quantile of the excess of the cost over v, and the mean cost. Development rows only: calibration rows select nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhedge._support.progress import tell
from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import conformal_rank
from polyhedge.data.splits import evenly_chosen
from polyhedge.planning.costs import PlanningProblem, planned_level
from polyhedge.planning.policies import Rule, ScenarioPolicy, fit_planner, fit_rules
from polyhedge.planning.pool import INFEASIBLE, with_pool
from polyhedge.planning.report import CHOSEN_ONCE, DRAWN_AGAIN, Entry, PolicyReport
from polyhedge.planning.residual_distributions import (
    DISTRIBUTIONS,
    MOST_POINTS,
    DevelopmentRows,
    fit_distribution,
    helpful_distributions,
)
from polyhedge.planning.risk import Risk
from polyhedge.problems import DecisionProblem
from polyhedge.robust.threads import in_order

_RESAMPLINGS = 25
"""Shares of wins come in steps of 4 per cent, finer than any choice between rules."""
_FEWEST_WINS = 2
"""A winner of one resampling is dropped: it would cost time at every row, and weigh 4 per cent."""
_FIRST_FOLDS, _MOST_RULES = 2, 3
"""Where every row needs a program: folds that score all rules, and rules in use, one less if it is bent or a pool."""
COMPLEXITY_PENALTY = 0.1
"""Share of the premium, over the square root of the number of rows, that each step of complexity must save."""
_LOG = logging.getLogger(__name__)


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
        `MOST_POINTS` an even choice is scored; distributions for use are made of all.
    """
    level, samples = planned_level(alpha), (rows if scored_on is None else scored_on).thinned(MOST_POINTS)
    seen = with_pool(problem, samples) if problem.has_recourse else PlanningProblem(problem)
    # One of few rows may have values of its parameters at which the cost is a special one.
    names = helpful_distributions(samples, seed)
    rules = candidates(seen, alpha, samples.values[evenly_chosen(len(samples), 5)], names)
    folds = Folds(seen, samples, rules, level, seed)
    most = _MOST_RULES - (seen.is_bent or seen.pool is not None) if seen.needs_programs else None
    if most is not None:
        # Successive halving: all rules are scored on the last folds, and those that win resamplings there on all.
        first = _best_planned(folds.scored(rules, _FIRST_FOLDS), alpha, caution)[1]
        rules = [first[k].rule for k in _winners(first, alpha, caution, seed, most)]
    planned_by, entries = _best_planned(folds.scored(rules), alpha, caution)
    is_single = seen.is_integer or not np.isfinite([entry.bound(alpha) for entry in entries]).all()
    if is_single:
        chosen = {first_least(penalized(entries, alpha, caution), entries[0].tie): 1}
    else:
        chosen = _winners(entries, alpha, caution, seed, most)
    shares = {k: n / sum(chosen.values()) for k, n in chosen.items()}
    figures = [Entry(str(e.rule), e.bound(alpha), e.cost(), shares.get(k, 0.0)) for k, e in enumerate(entries)]
    reason = CHOSEN_ONCE if is_single else DRAWN_AGAIN
    report = PolicyReport(tuple(figures), alpha, caution, len(entries[0].realised), reason)
    own = [entries[k].rule for k in shares]
    return fit_rules(seen, own, tuple(shares.values()), rows, planned_by, level, seed, report)


def _winners(
    entries: Sequence[Scored], alpha: float, caution: float, seed: int, most: int | None = None
) -> dict[int, int]:
    """The entries that win most resamplings of the rows, in their order, and how many each of them wins."""
    draws = resampled(len(entries[0].realised), seed)
    wins = Counter(first_least(penalized(entries, alpha, caution, own), entries[0].tie) for own in draws)
    return {k: n for k, n in sorted(wins.most_common(most)) if n >= min(_FEWEST_WINS, max(wins.values()))}


def _best_planned(scored: Mapping[str, list[Scored]], alpha: float, caution: float) -> tuple[str, list[Scored]]:
    """The distribution that plans the cost, with its entries: scaled, unless another has a lower least score."""
    scores = {name: penalized(entries, alpha, caution).min() for name, entries in scored.items()}
    name = min(scores, key=lambda name: scores[name])
    return name, scored[name]


def candidates(
    problem: PlanningProblem, alpha: float, values: Iterable[Array] = (), names: Sequence[str] = ("uniform", "scaled")
) -> list[Rule]:
    """Rules from simple to complex, if parameters of rows have values such as these, each (t,).

    The prediction, and for each distribution the mean and the tails CVaR 0.5, 0.7 and of the promised level. If every
    row needs a program of its own, the most careful tail is left out to save time. For a coupled sum of maxima it is
    left out too, and all tails are if its programs are not linear or rows have parameters. Without pieces of the cost
    there is the prediction, corrected or not, unless it has pieces at given values of its parameters.
    """
    promised = round(1 - alpha, 12)
    levels = sorted({0.0, 0.5, 0.7, promised} | ({0.9} if promised > 0.9 else set()))
    if not problem.has_maxima:
        is_summed = problem.is_by_value and any(problem.at_value(value).has_maxima for value in values)
        levels = [0.0, 0.5, 0.7]
        if not is_summed:
            return [Rule(), *(Rule(name) for name in names if DISTRIBUTIONS[name].moves_centers)]
    elif problem.is_coupled_sum:
        levels = [0.0] if problem.is_costly or problem.is_bent else levels[:3]
    elif (problem.is_costly or problem.pool is not None) and problem.joint.groups:
        levels = levels[:3]
    return [Rule(), *(Rule(name, Risk(level)) for name in names for level in levels)]


@dataclass(frozen=True, eq=False)
class Scored:
    """Planned and realised costs (n,) of one rule on rows that it had not seen."""

    rule: Rule
    planned: Array
    realised: Array

    def bound(self, alpha: float, rows: Indices | slice = slice(None)) -> float:
        """Mean bound as calibration on these rows would set it, at the nearest level that as many rows can keep."""
        excess = self._excess[rows]
        k = min(conformal_rank(len(excess), alpha), len(excess))
        return _mean(self.planned[rows]) + float(np.partition(excess, k - 1)[k - 1])

    @cached_property
    def _excess(self) -> Array:
        """Realised above planned costs (n,), infinite where one is missing."""
        excess = self.realised - self.planned
        return np.where(np.isfinite(excess), excess, np.inf)

    @property
    def tie(self) -> float:
        """The difference of scores up to which rules tie."""
        return SELECTION_TIE * float(np.std(self.realised[np.isfinite(self.realised)]))

    def cost(self, rows: Indices | slice = slice(None)) -> float:
        """Mean cost."""
        return _mean(self.realised[rows])

    def lost(self, rows: Indices | slice = slice(None)) -> float:
        """What rows of infinite cost, whose second stage is infeasible, add to the mean cost in the comparison."""
        share = float(np.isposinf(self.realised[rows]).mean())
        return share * INFEASIBLE * self.tie / SELECTION_TIE if share else 0.0


def _mean(costs: Array) -> float:
    """The mean of those that are finite: mostly all, which takes a fifth of the time of looking for others."""
    mean = float(costs.mean())
    return mean if np.isfinite(mean) else float(costs[np.isfinite(costs)].mean()) if np.isfinite(costs).any() else mean


class Folds:
    """The folds of development rows, on which rules are scored by the distributions of the other folds.

    The cost is planned by the scaled distribution, or by another whose scenarios differ from row to row. Decisions are
    kept, so that rules can be scored on some folds first.
    """

    def __init__(
        self, problem: PlanningProblem, samples: DevelopmentRows, rules: Sequence[Rule], level: float, seed: int
    ) -> None:
        self.problem, self.level = problem, level
        own = {"uniform", "scaled", *(rule.distribution for rule in rules)}
        tried = [name for name in DISTRIBUTIONS if name in own]
        self.planned_by = [name for name in tried if DISTRIBUTIONS[name].complexity]
        self.folds = [(samples.take(_chosen(problem, own)), samples.take(rest)) for own, rest in samples.folds()]
        names = [(k, name) for k in range(len(self.folds)) for name in tried]
        made = in_order(lambda job: fit_distribution(job[1], self.folds[job[0]][1], seed), names)
        self.fitted = dict(zip(names, made, strict=True))
        self.planning = {name: one.thinned() for name, one in self.fitted.items()}
        at = [one.at(self.folds[k][0].X, self.folds[k][0].centers) for (k, _), one in self.fitted.items()]
        self.at = dict(zip(names, at, strict=True))
        self.decisions: dict[tuple[int, Rule], Array] = {}

    def scored(self, rules: Sequence[Rule], most: int | None = None) -> dict[str, list[Scored]]:
        """Each rule on the last folds, at most so many, by the distribution that plans its cost."""
        numbers = range(len(self.folds))[-(most or 0) :]
        jobs = list(dict.fromkeys((k, self._simplest(k, rule)) for rule in rules for k in numbers))
        new = [job for job in jobs if job not in self.decisions]
        # On a segment these are many small steps: threads would pass the interpreter to and fro.
        n_jobs = 1 if self.problem.segment is not None else None
        for done, (job, z) in enumerate(zip(new, in_order(self._decided, new, n_jobs=n_jobs), strict=True), start=1):
            self.decisions[job] = z
            tell(_LOG, "comparing policies", done, len(new))

        def planned(pair: tuple[str, tuple[int, Rule]]) -> Array:
            by, job = pair
            at = *self.at[job[0], by], self.folds[job[0]][0].values
            return self.problem.planned_cost(self.planning[job[0], by].points, self.level, self.decisions[job], *at)[0]

        pairs = [(name, job) for name in self.planned_by for job in jobs]
        costs = dict(zip(pairs, in_order(planned, pairs), strict=True))
        entries: dict[str, list[Scored]] = {name: [] for name in self.planned_by}
        for rule in rules:
            own = [(k, self._simplest(k, rule)) for k in numbers]
            rows = [self.folds[k][0] for k in numbers]
            realised = np.concatenate(
                [
                    self.problem.evaluate(self.decisions[job], one.outcomes, one.values)
                    for job, one in zip(own, rows, strict=True)
                ]
            )
            for name in self.planned_by:
                entries[name].append(Scored(rule, np.concatenate([costs[name, job] for job in own]), realised))
        there = {name: [one for one in own if np.isfinite(one.realised).any()] for name, own in entries.items()}
        return there if there["scaled"] else entries

    def _simplest(self, k: int, rule: Rule) -> Rule:
        """The rule, or the one that decides the same: distributions may be equal at every row."""
        is_same = rule.distribution is not None and self.fitted[k, rule.distribution].is_uniform
        return Rule("uniform", rule.risk) if is_same else rule

    def _decided(self, job: tuple[int, Rule]) -> Array:
        """Decisions (n, p) of a rule at the rows of a fold."""
        k, rule = job
        own, rest = self.folds[k]
        distribution = None if rule.distribution is None else self.fitted[k, rule.distribution]
        planner = fit_planner(self.problem, rule, distribution, rest.X, rest.centers, rest.values, is_scored=True)
        at = (own.centers, np.ones(len(own))) if rule.distribution is None else self.at[k, rule.distribution]
        return planner.at(*at, own.values, n_jobs=1)[0]


def _chosen(problem: PlanningProblem, own: Indices) -> Indices:
    """Those rows of a fold that are scored: fewer if each needs a program, one with many cuts, or one of its own."""
    if not problem.needs_programs:
        return own
    most = 30 if problem.is_costly else 40 if problem.is_bent else 60 if problem.is_coupled_sum else 80
    return own if len(own) <= most else own[evenly_chosen(len(own), most)]


def resampled(n: int, seed: int) -> list[Indices]:
    """Rows of 25 block bootstraps; blocks as long as the cube root of n keep neighbours together."""
    rng, length = np.random.default_rng(seed), max(int(round(n ** (1 / 3))), 1)
    starts = rng.integers(n, size=(_RESAMPLINGS, -(-n // length)))
    return [((s[:, None] + np.arange(length)) % n).ravel()[:n] for s in starts]


def penalized(entries: Sequence[Scored], alpha: float, caution: float, rows: Indices | slice = slice(None)) -> Array:
    """Scores (k,), caution x bound + (1 - caution) x mean cost, plus the complexity penalty of each forest."""
    first = entries[0]
    penalty = COMPLEXITY_PENALTY / np.sqrt(len(first.realised)) * max(first.bound(alpha) - first.cost(), 0.0)
    penalty = penalty if np.isfinite(penalty) else 0.0
    scores = [caution * one.bound(alpha, rows) + (1 - caution) * (one.cost(rows) + one.lost(rows)) for one in entries]
    return np.array(scores) + penalty * np.array(
        [DISTRIBUTIONS[one.rule.distribution or "uniform"].complexity for one in entries]
    )


def first_least(scores: Array, tie: float) -> int:
    """The first of the least scores; differences up to a tie are none, so that rounding does not choose."""
    return int(np.argmax(scores <= np.nanmin(scores) + tie)) if np.isfinite(scores).any() else 0
