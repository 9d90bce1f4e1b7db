"""Rules and distributions compete on rows that they have not seen, and the winners of many resamplings are averaged.

Scored are the policy's bound as calibration would set it, mean of v plus the conformal quantile of the cost's excess
over v, and its mean cost, weighed by `caution`. Development rows only: the rows that calibrate the guard choose
nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np

from polyhedge._support.progress import tell
from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import attained_rank
from polyhedge.data.splits import evenly_chosen
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.levels import PlannedBy, levels_to_share, quantiles_of_each, shared_out
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.residual_distributions import (
    DISTRIBUTIONS,
    EVEN_DISTRIBUTIONS,
    DevelopmentRows,
    PlacedDistribution,
    ResidualDistribution,
    fit_distributions,
    says_the_same,
)
from polyhedge.planning.risk import Risk
from polyhedge.planning.worst_case import takes_sets
from polyhedge.robust.threads import in_order

PLANNED_BY = ("scaled", "corrected", "weighted")
"""Distributions that may plan a cost; the first unless another is clearly lower."""
_PLANNED_BY_FIRST = PLANNED_BY[:2]
"""Those that every rule is scored with, at one level for all rows. Weighted residuals must be sorted at every row, and
so must costs whose levels are shared out: these are tried for the rules alone that do best with the first."""
# Shares of wins then come in steps of 4 per cent, finer than any choice between rules.
_RESAMPLINGS = 25
_FEWEST_WINS = 2
"""A winner of one resampling of 25 is dropped: it would cost time at every row, and weigh 4 per cent."""
_COMPLEXITY_PENALTY = 0.1
"""Share of the premium, over the square root of the number of rows, that each step of complexity must save."""
_JUDGED, _JUDGED_OF_SUMS, _JUDGED_IF_COSTLY = 120, 60, 30
"""Rows of a fold that are scored where each of them needs a program, one with many cuts, and one made for it alone."""
_SIMPLE_DISTRIBUTIONS = EVEN_DISTRIBUTIONS[:2]
"""Distributions of tails of sums, which take long. What a corrected centre brings, other rules show as well."""

_TAILS, _CAREFUL = (0.5, 0.7), 0.9
"""Levels of the tails that rules may guard against, from hardly careful to the promised level, which is always one of
them. Where that lies beyond 0.9, this is tried as well: the step from 0.7 would be long."""
_LOG = logging.getLogger(__name__)


def candidates(problem: PlanProblem, alpha: float, values: Iterable[Array] = ()) -> list[Rule]:
    """Rules from simple to complex, where parameters of rows have values such as these, each (t,).

    Where every row needs a program made for it alone, the most careful tail is left out for the sake of time, and so it
    is of a sum of several maxima under constraints that couple them, whose tail does not split into terms: such tails
    are taken by two distributions, and by none where programs are not linear or rows have parameters. The worst case
    over a set takes part where that is quickly learned. Weighted residuals plan where the cost falls apart: elsewhere
    every row would need all of them in a program. Where nothing couples its terms either, outcomes have distributions
    of their own: a quantile model each.
    """
    if not problem.has_maxima:
        is_summed = problem.is_by_value and any(problem.at_value(value).has_maxima for value in values)
        tails_at_value = [
            Rule(distribution, Risk(level)) for distribution in EVEN_DISTRIBUTIONS for level in (0.0, *_TAILS)
        ]
        return [Rule(), *(tails_at_value if is_summed else [Rule("corrected")])]
    promised = round(1 - alpha, 12)
    tails = sorted({*_TAILS, promised} | ({_CAREFUL} if promised > _CAREFUL else set()))
    if problem.is_coupled_sum or (problem.is_costly and problem.joint.groups):
        tails = tails[:2]
    if problem.is_coupled_sum and not problem.has_linear_programs:
        tails = []
    even = [Rule(distribution, Risk(level)) for distribution in EVEN_DISTRIBUTIONS for level in (0.0, *tails)]
    if problem.is_coupled_sum:
        even = [rule for rule in even if rule.risk.is_mean or rule.distribution in _SIMPLE_DISTRIBUTIONS]
    if takes_sets(problem):
        even.append(Rule(EVEN_DISTRIBUTIONS[0], Risk(promised), is_over_set=True))
    weighted = [Rule("weighted")] if problem.is_separable else []
    if problem.separable is not None and problem.problem.n_outcomes > 1 and not problem.separable.row.any():
        weighted.append(Rule("marginal"))
    return [Rule(), *even, *weighted]


def complexity(rule: Rule) -> int:
    """How much a rule may overfit: forests of its law count, and a learned set; a sample of residuals does not."""
    return 0 if rule.distribution is None else DISTRIBUTIONS.index(rule.distribution) + rule.is_over_set


@dataclass(frozen=True, eq=False)
class Scored:
    """Planned and realised costs (n,) of one rule on rows that it had not seen, by what planned the cost."""

    rule: Rule
    planned_by: PlannedBy
    planned: Array
    realised: Array

    def bound(self, alpha: float, rows: Indices | slice = slice(None)) -> float:
        """Mean bound as calibration on these rows would set it."""
        planned, excess = self.planned[rows], self._excess[rows]
        k = attained_rank(len(excess), alpha)
        return _mean(planned) + float(np.partition(excess, k - 1)[k - 1])

    @cached_property
    def _excess(self) -> Array:
        """Realised above planned costs (n,), infinite where one is missing."""
        excess = self.realised - self.planned
        return np.where(np.isfinite(excess), excess, np.inf)

    @property
    def tie(self) -> float:
        """Differences of figures that are none."""
        return SELECTION_TIE * float(np.nanstd(self.realised))

    def cost(self, rows: Indices | slice = slice(None)) -> float:
        """Mean cost."""
        return _mean(self.realised[rows])

    def figure(self, alpha: float, caution: float, rows: Indices | slice = slice(None)) -> float:
        """What is compared: caution x bound + (1 - caution) x mean cost."""
        return caution * self.bound(alpha, rows) + (1 - caution) * self.cost(rows)


def _mean(costs: Array) -> float:
    """The mean of those that are there: mostly all, which takes a fifth of the time of looking for others."""
    mean = float(costs.mean())
    return float(np.nanmean(costs)) if np.isnan(mean) else mean


class Selection:
    """Rules scored on the folds of development rows by distributions of the others.

    Attributes
    ----------
    scored : for each rule its figures, by each distribution that planned the cost.
    """

    def __init__(
        self, problem: PlanProblem, samples: DevelopmentRows, rules: Sequence[Rule], level: float, seed: int
    ) -> None:
        self._problem, self._rules, self._level, self._seed = problem, rules, level, seed
        parts = [(_scored(problem, own), rest) for own, rest in samples.folds()]
        self._owns = [samples.take(own) for own, _ in parts]
        self._rests = [samples.take(rest) for _, rest in parts]
        names = {*EVEN_DISTRIBUTIONS, *(rule.distribution for rule in rules if rule.distribution is not None)}
        self._distributions: list[dict[str, tuple[ResidualDistribution, PlacedDistribution]]] = [{} for _ in parts]
        self._fit([name for name in DISTRIBUTIONS if name in names])
        self._z = self._all_decided()
        has_policy = [_decides(rule, zs) for rule, zs in zip(rules, self._z, strict=True)]
        if any(has_policy):  # a rule that decides nowhere, as where no set has a finite worst case, is none
            self._z, self._rules = list(compress(self._z, has_policy)), list(compress(rules, has_policy))
        realised = [np.concatenate([self._realised(k, z) for k, z in enumerate(zs)]) for zs in self._z]
        self.scored: list[list[Scored]] = [[] for _ in self._rules]
        self._plan(range(len(self._rules)), _PLANNED_BY_FIRST, realised)

    def look_closer(self, chosen: Iterable[int], alpha: float) -> None:
        """Judge some of the rules with costs planned by weighted residuals, and at levels that are shared out too."""
        rules, realised = sorted(chosen), [one[0].realised for one in self.scored]
        self._fit(["weighted"])
        self._plan(rules, PLANNED_BY[2:], realised)
        if not self._problem.has_maxima:  # every row would sort a formula's costs by itself
            return
        levels = levels_to_share(alpha)
        for i, name, quantiles in self._quantiles(rules, _PLANNED_BY_FIRST, levels):
            by = shared_out(name, levels, quantiles, realised[i], alpha)
            self.scored[i].append(Scored(self._rules[i], by, by.taken(quantiles), realised[i]))

    def _all_decided(self) -> list[list[Array]]:
        """Decisions of each rule in each fold; those on distributions that say the same are made once."""
        folds = range(len(self._owns))
        wanted = [
            [(k, replace(rule, distribution=self._simplest(k, rule.distribution))) for k in folds]
            for rule in self._rules
        ]
        jobs, decided = list(dict.fromkeys(job for own in wanted for job in own)), []
        # On a segment these are many small steps: threads would pass the interpreter to and fro, and be no sooner done.
        n_jobs = 1 if self._problem.is_on_segment else None
        for z in in_order(lambda job: self._decided(*job), jobs, n_jobs=n_jobs):
            decided.append(z)
            tell(_LOG, "planning", len(decided), len(jobs))
        known = dict(zip(jobs, decided, strict=True))
        return [[known[job] for job in own] for own in wanted]

    def _simplest(self, k: int, name: str | None) -> str | None:
        """The first distribution of a fold that says the same as the one of this name."""
        distributions = self._distributions[k]
        return next(
            (
                one
                for one in EVEN_DISTRIBUTIONS
                if name in distributions and says_the_same(distributions[one][0], distributions[name][0])
            ),
            name,
        )

    def _fit(self, names: Sequence[str]) -> None:
        """Distributions of each fold's other rows, and what they say of its own: asked once, for all rules."""

        def work(k: int) -> dict[str, tuple[ResidualDistribution, PlacedDistribution]]:
            own, rest = self._owns[k], self._rests[k]
            distributions = fit_distributions(
                [name for name in names if name not in self._distributions[k]], rest, self._seed
            )
            return {
                name: (distribution, distribution.placed(own.X, own.centers))
                for name, distribution in distributions.items()
            }

        for known, new in zip(self._distributions, list(in_order(work, range(len(self._owns)))), strict=True):
            known.update(new)

    def _decided(self, k: int, rule: Rule) -> Array:
        own, rest = self._owns[k], self._rests[k]
        distribution, at = (None, PlacedDistribution(own.centers, np.ones(len(own))))
        if rule.distribution is not None:
            distribution, at = self._distributions[k][rule.distribution]
        # Cuts are looked for at rows of the distribution; a tail of a sum is known at its own rows alone, by what it
        # does there.
        at_rows = own if self._problem.is_tail_of_sum(rule.risk) else rest
        planner = fit_planner(
            self._problem, rule, distribution, at_rows.X, at_rows.centers, at_rows.values, is_scored=True
        )
        return planner.at(at, own.values, n_jobs=1)

    def _realised(self, k: int, z: Array) -> Array:
        return self._problem.evaluate(z, self._owns[k].outcomes, self._owns[k].values)

    def _plan(self, chosen: Sequence[int], names: Sequence[str], realised: Sequence[Array]) -> None:
        """Judge rules with their costs planned by these distributions, at one level."""
        for i, name, quantiles in self._quantiles(chosen, names, (self._level,)):
            by = PlannedBy(name, (self._level,))
            self.scored[i].append(Scored(self._rules[i], by, by.taken(quantiles), realised[i]))

    def _quantiles(
        self, chosen: Sequence[int], names: Sequence[str], levels: tuple[float, ...]
    ) -> Iterator[tuple[int, str, Array]]:
        """For each rule and distribution the quantiles (n, T) of the rule's costs at all scored rows."""

        def work(job: tuple[int, str]) -> Array:
            k, name = job
            (distribution, at), decisions = self._distributions[k][name], [self._z[i][k] for i in chosen]
            return quantiles_of_each(self._problem, distribution, levels, decisions, at, self._owns[k].values)

        folds = range(len(self._owns))
        wanted = {name: [(k, self._simplest(k, name) or name) for k in folds] for name in names}
        jobs = list(dict.fromkeys(job for own in wanted.values() for job in own))
        known = dict(zip(jobs, in_order(work, jobs), strict=True))
        for name in names:
            for i, own in zip(chosen, np.concatenate([known[job] for job in wanted[name]], axis=1), strict=True):
                yield i, name, own


def _decides(rule: Rule, folds: Sequence[Array]) -> bool:
    """Whether a rule has decisions (n, p) to be scored by; one over a set in all folds, because it learns in each."""
    is_there = [bool(np.isfinite(z).any()) for z in folds]
    return all(is_there) if rule.is_over_set else any(is_there)


def _scored(problem: PlanProblem, own: Indices) -> Indices:
    """Those rows of a fold that are scored."""
    most = _JUDGED_OF_SUMS if problem.is_coupled_sum else _JUDGED
    most = _JUDGED_IF_COSTLY if problem.is_costly else most
    if not problem.is_on_segment and not problem.is_separable and len(own) > most:
        own = own[evenly_chosen(len(own), most)]
    return own


def resampled(n: int, seed: int) -> list[Indices]:
    """Rows of 25 block bootstraps; blocks as long as the cube root of n keep neighbours together."""
    rng, length = np.random.default_rng(seed), max(int(round(n ** (1 / 3))), 1)
    starts = rng.integers(n, size=(_RESAMPLINGS, -(-n // length)))
    return [((s[:, None] + np.arange(length)) % n).ravel()[:n] for s in starts]


def choose_planned_by(scored: Sequence[Scored], alpha: float, draws: Sequence[Indices]) -> Scored:
    """The first way to plan the cost, or one that is lower by more than a standard error of the paired difference."""
    best, bounds = scored[0], np.array([scored[0].bound(alpha, rows) for rows in draws])
    for other in scored[1:]:
        its_bounds = np.array([other.bound(alpha, rows) for rows in draws])
        # Where rows lack a decision, a draw may have no finite bound, and says nothing of the difference.
        both = np.isfinite(bounds) & np.isfinite(its_bounds)
        error = float(np.std(bounds[both] - its_bounds[both])) if both.any() else 0.0
        if best.bound(alpha) - other.bound(alpha) > error + best.tie:
            best, bounds = other, its_bounds
    return best


def penalized(entries: Sequence[Scored], alpha: float, caution: float, rows: Indices | slice = slice(None)) -> Array:
    """The figures (k,) of the entries, those of more complex rules with a complexity penalty."""
    step = (
        _COMPLEXITY_PENALTY / np.sqrt(len(entries[0].realised)) * max(entries[0].bound(alpha) - entries[0].cost(), 0.0)
    )
    figures = [
        e.figure(alpha, caution, rows) + (step * complexity(e.rule) if np.isfinite(step) else 0) for e in entries
    ]
    return np.array(figures)


def winners(entries: Sequence[Scored], alpha: float, caution: float, draws: Sequence[Indices]) -> Counter[int]:
    """How often each entry has the least figure when rows are drawn again."""
    return Counter(first_least(penalized(entries, alpha, caution, rows), entries[0].tie) for rows in draws)


def first_least(figures: Array, tie: float) -> int:
    """The first of the least figures; differences up to a tie are none, so that rounding does not choose."""
    return int(np.argmax(figures <= np.nanmin(figures) + tie)) if np.isfinite(figures).any() else 0


def fewest_wins(wins: Counter[int]) -> int:
    """Wins that make a rule part of the policy; all take part where none has more than one."""
    return min(_FEWEST_WINS, max(wins.values()))
