r"""A path of policies by margins: step k has the margin $t_k$ in constraints and $\rho_k$ in the cost.

$$v_k(x) = \mathrm{mean}_i\,g(z_{t_k}(x), c + s\,e_i) + \rho_k\,\mathrm{std}_i\,g(z_{t_k}(x), c + s\,e_i).$$

A standard deviation is above zero wherever the cost varies; a quantile of a skewed cost may lie below its mean, and no
multiple of their distance would be a bound. Distribution, margins and their relation are chosen on development rows, by
cross-fitting: the bound that calibration would give, weighed with the mean cost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.progress import tell
from polyhedge._support.stored import stored
from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.calibration import conformal_rank
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import all_optimal
from polyhedge.planning.costs import PlanningProblem, planned_level
from polyhedge.planning.margins import MarginPlanner, Statuses, fit_margins
from polyhedge.planning.pool import with_pool
from polyhedge.planning.report import CHOSEN_ONCE, Entry, PolicyReport
from polyhedge.planning.residual_distributions import (
    DISTRIBUTIONS,
    DevelopmentRows,
    fit_distribution,
    helpful_distributions,
)
from polyhedge.planning.selection import COMPLEXITY_PENALTY, first_least
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.regions import PathPolicy, PlannedDecisions
from polyhedge.regions.family import DEFAULT_WORK, Work
from polyhedge.robust.threads import in_order
from polyhedge.solvers.program import Status

_KNOTS = (0.0, 0.7, 1.5, 3.2)
"""Margins at which programs are solved to compare policies; decisions in between are interpolated."""
_TRIED = tuple(np.geomspace(0.35, 3.2, 20).tolist())
"""Margins that are scored for every distribution; 1 is the mean of the worst share itself."""
_MULTIPLES = (
    *(0.6, 0.7, 0.8, 0.85, 0.89, 0.93, 0.97, 1.01, 1.05, 1.1, 1.15, 1.2, 1.26),
    *(1.33, 1.42, 1.52, 1.63, 1.76, 1.9, 2.07, 2.26, 2.48, 2.74, 3.05, 3.4, 3.85, 4.4),
)
"""The path in multiples of what was scored best. Calibration goes too far by half a step on average: steps are small
where it is expected to end, and never far apart.
"""
_FEW_MULTIPLES = _MULTIPLES[::3]
"""The path where decisions are integers: they jump anyway, and each step is an integer program a row."""
_SCORED_ROWS = 60
"""Rows of a fold that are scored: each of them needs a program for every knot."""
_ROUNDING = 1e-10
"""What costs may be off by, as a share of the terms that they are sums of: a cost that is certain must be within v."""
_LOG = logging.getLogger(__name__)
_UNKNOWN = "not solved yet"
_DETAILS = {
    Status.STOPPED_EARLY: "A solver could not prove that no decision is better by the policy, or more cautious",
    Status.REFUSED: "No decision keeps the uncertain constraints at the prediction, not even without a margin",
    Status.FAILED: "The policy has no decision there. Check the constraints and the prediction",
}
"""Details of a row whose decision is not proven to be the best."""


@stored("policy with margins")
@dataclass(frozen=True, eq=False)
class MarginPolicy(PathPolicy):
    """Policies with growing margins.

    Attributes
    ----------
    planner : gives decisions with margins.
    margins : (K,) t_k of the steps.
    spreads : (K,) rho_k of the steps.
    level : of the tails of the constraints.
    report : how it was chosen.
    """

    planner: MarginPlanner
    margins: tuple[float, ...]
    spreads: tuple[float, ...]
    level: float
    report: PolicyReport
    kind: ClassVar[str] = "margins"

    def __post_init__(self) -> None:
        steps = np.array([self.margins, self.spreads])
        if not steps.size or not np.isfinite(steps).all() or steps[0].min() < 0 or not 0 < self.level < 1:
            raise ValueError("A path must have a finite margin and spread for each step, and a level between 0 and 1.")

    @property
    def n_steps(self) -> int:
        """How many policies there are for a row."""
        return len(self.margins)

    def at(self, features: Any, centers: Array, values: Array, work: Work = DEFAULT_WORK) -> MarginSteps:
        """The path at N rows; the distribution is evaluated there once."""
        contexts, scales = self.planner.contexts(features, centers, values)
        return MarginSteps(self, contexts, scales, values, work.n_jobs)

    def outcomes(self, features: Any, centers: Array) -> Iterator[Array]:
        """Row by row the outcomes (n, d) that are possible by the distribution."""
        return self.planner.distribution.outcomes(features, centers)

    def refitted(self, rows: DevelopmentRows, seed: int) -> MarginPolicy:
        """The same margins under the same kind of distribution, from other development rows: nothing is chosen
        again.
        """
        planner = self.planner
        return replace(self, planner=_planner(planner.problem, planner.distribution.name, rows, self.level, seed))


class MarginSteps:
    """The path at N rows.

    Where no decision has the margin of a step, the policy of the step before is taken, so that a path ends at the most
    cautious decision there is. The policy without a margin comes before the first step. Programs are solved when they
    are asked for, and their answers kept: a step does not depend on which others were asked for before.
    """

    def __init__(
        self, path: MarginPolicy, contexts: Array, scales: Array, values: Array, n_jobs: int | None = None
    ) -> None:
        self.path, self.contexts, self.scales, self.values, self.n_jobs = path, contexts, scales, values, n_jobs
        self.known: dict[int, tuple[Array, Statuses]] = {}

    def decide(self, step: int, rows: Indices) -> PlannedDecisions:
        """The policies of some of the rows at one step."""
        z, status = self.decisions(step, rows)
        mean, deviation, sizes = self.costs(z, rows)
        v = mean + self.path.spreads[step] * deviation + _ROUNDING * sizes
        status[np.isfinite(z).all(axis=1) & ~np.isfinite(v)] = Status.FAILED
        detail = tuple(_DETAILS.get(one, "") for one in status)
        return PlannedDecisions(z, v, status, detail if any(detail) else (), mean)

    def costs(self, z: Array, rows: Indices) -> tuple[Array, Array, Array]:
        """Means and standard deviations of the costs of decisions under the distribution (n,), and the sizes of their
        terms.
        """
        return self.path.planner.planned(z, self.contexts[rows], self.scales[rows], self.values[rows])

    def decisions(self, step: int, rows: Indices) -> tuple[Array, Statuses]:
        """Decisions (n, p) of some of the rows at one step, NaN where there is none without a margin, and statuses.

        OPTIMAL says that the decision is proven to be the best of its margin, and that there is none of a larger one up
        to this step; REFUSED, that there is none of any margin.
        """
        z, left = np.full((len(rows), self.path.planner.problem.problem.n_decisions), np.nan), np.arange(len(rows))
        is_proven = np.ones(len(rows), dtype=bool)
        for k in range(step, -2, -1):  # the last without a margin
            z[left], statuses = self._solved(k, rows[left])
            has_one = np.isfinite(z[left]).all(axis=1)
            is_proven[left] &= np.where(has_one, statuses == Status.OPTIMAL, statuses == Status.INFEASIBLE)
            left = left[~has_one]
            if not len(left):
                break
        status = all_optimal(len(rows))
        status[~is_proven] = Status.STOPPED_EARLY
        status[left], status[left[~is_proven[left]]] = Status.REFUSED, Status.FAILED
        return z, status

    def _solved(self, step: int, rows: Indices) -> tuple[Array, Statuses]:
        """Decisions of one margin and how they were found, each program solved once."""
        n, p = len(self.contexts), self.path.planner.problem.problem.n_decisions
        if step not in self.known:
            self.known[step] = np.full((n, p), np.nan), np.full(n, _UNKNOWN, dtype=object)
        z, status = self.known[step]
        new = rows[status[rows] == _UNKNOWN]
        margins = np.full(len(new), self.path.margins[step] if step >= 0 else 0.0)
        at = self.contexts[new], self.scales[new], margins, self.values[new]
        z[new], status[new] = self.path.planner.at(*at, n_jobs=self.n_jobs)
        return z[rows], status[rows]

    def take(self, rows: Indices) -> MarginSteps:
        """The path at some of the rows."""
        return MarginSteps(self.path, self.contexts[rows], self.scales[rows], self.values[rows], self.n_jobs)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A margin under a distribution on rows that had no part in making it.

    `needed` (n,) is the rho that each row would have needed, infinite where it broke a constraint; `has_margin` (n,)
    says which rows have a decision with the least margin that is not zero.
    """

    distribution: str
    margin: float
    mean: Array
    deviation: Array
    needed: Array
    realised: Array
    has_margin: Mask

    def rho(self, alpha: float) -> float:
        """The rho that calibration on these rows would give, at the nearest level that as many rows can keep."""
        k = min(conformal_rank(len(self.needed), alpha), len(self.needed))
        return float(np.partition(self.needed, k - 1)[k - 1])

    def bound(self, alpha: float) -> float:
        """The mean bound at that rho."""
        rho = self.rho(alpha)
        return float(np.nanmean(self.mean + rho * self.deviation)) if np.isfinite(rho) else np.inf

    def cost(self) -> float:
        """Mean realised cost; NaN where no row has a decision."""
        return float(np.nanmean(self.realised)) if np.isfinite(self.realised).any() else np.nan

    def figure(self, alpha: float, caution: float) -> float:
        """The score by which margins are compared; infinite without a bound, whatever the weight of the bound."""
        bound = self.bound(alpha)
        return caution * bound + (1 - caution) * self.cost() if np.isfinite(bound) else np.inf


def fit_path(
    problem: DecisionProblem,
    rows: DevelopmentRows,
    alpha: float,
    caution: float,
    seed: int,
    scored_on: DevelopmentRows | None = None,
) -> MarginPolicy:
    """The path that is scored best on development rows.

    Parameters
    ----------
    problem : what is decided; its cost must be a sum of maxima of functions that are affine in the outcome.
    rows : training and learning rows with predictions by models that had not seen them; never calibration rows.
    alpha : miscoverage level of the promise that will be calibrated.
    caution : weight of the bound against the mean cost, from 0 to 1.
    seed : of forests.
    scored_on : the same rows with other predictions and folds, for the choice alone; by default `rows`.
    """
    seen = with_pool(problem, rows) if problem.has_recourse else PlanningProblem(problem)
    level = planned_level(alpha)
    scored = rows if scored_on is None else scored_on
    # A program with integer decisions takes many times as long, so that fewer rows are scored there, and one
    # distribution.
    most = 12 if seen.is_costly else _SCORED_ROWS
    folds = [(own[evenly_chosen(len(own), most)], rest) for own, rest in scored.folds()]
    names = ("scaled",) if seen.is_costly else helpful_distributions(scored, seed)

    def tried(job: tuple[str, int]) -> list[_Tried]:
        name, (own, rest) = job[0], folds[job[1]]
        return _try(_planner(seen, name, scored.take(rest), level, seed), scored.take(own))

    jobs, parts = [(name, k) for name in names for k in range(len(folds))], list[list[_Tried]]()
    for one in in_order(tried, jobs):
        parts.append(one)
        tell(_LOG, "comparing policies", len(parts), len(jobs))
    of_names = [parts[k : k + len(folds)] for k in range(0, len(parts), len(folds))]
    entries = [one for name, own in zip(names, of_names, strict=True) for one in _joined(name, own)]
    if not any(one.has_margin.any() or np.isfinite(one.bound(alpha)) for one in entries):
        raise NoSolutionError(
            "No decision keeps the uncertain constraints with a margin for outcomes off the prediction, at any of "
            f"{len(entries[0].needed)} rows, though the prediction alone can be met. Relax the constraints, bound the "
            "decision more widely or raise alpha."
        )
    best = _best(entries, alpha, caution)
    figures = [
        Entry(
            f"{e.distribution} residuals, {e.margin:.3g} times the margin", e.bound(alpha), e.cost(), float(e is best)
        )
        for e in entries
    ]
    report = PolicyReport(tuple(figures), alpha, caution, len(best.needed), CHOSEN_ONCE)
    rho = best.rho(alpha) if np.isfinite(best.rho(alpha)) else 1.0
    multiples = _FEW_MULTIPLES if seen.is_integer else _MULTIPLES
    return MarginPolicy(
        _planner(seen, best.distribution, rows, level, seed),
        tuple(m * best.margin for m in multiples),
        tuple(rho + (m - 1) * max(rho, 1.0) for m in multiples),
        level,
        report,
    )


def _planner(seen: PlanningProblem, name: str, rows: DevelopmentRows, level: float, seed: int) -> MarginPlanner:
    return fit_margins(seen, fit_distribution(name, rows, seed), level, rows, seed)


def _try(planner: MarginPlanner, own: DevelopmentRows) -> list[_Tried]:
    """Each margin on rows that had no part in the planner; a knot without a decision takes that of the knot before."""
    contexts, scales = planner.contexts(own.X, own.centers, own.values)
    problem, found, tried = planner.problem.problem, list[Array](), list[_Tried]()
    for knot in _KNOTS:
        z, _ = planner.at(contexts, scales, np.full(len(own), knot), own.values, n_jobs=1)
        found.append(z)
    has_margin = np.asarray(np.isfinite(found[1]).all(axis=1))
    for before, z in pairwise(found):
        z[:] = np.where(np.isfinite(z).all(axis=1, keepdims=True), z, before)
    for margin in _TRIED:
        k = int(np.searchsorted(_KNOTS, margin))
        share = (margin - _KNOTS[k - 1]) / (_KNOTS[k] - _KNOTS[k - 1])
        z = (1 - share) * found[k - 1] + share * found[k]
        mean, deviation, sizes = planner.planned(z, contexts, scales, own.values)
        decided = np.isfinite(mean)
        realised, needed = np.full(len(z), np.nan), np.full(len(z), np.inf)
        at = z[decided], own.outcomes[decided], own.values[decided]
        realised[decided] = planner.problem.evaluate(*at)
        excess = realised - mean - _ROUNDING * sizes
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(deviation > _ROUNDING * sizes, excess / deviation, np.where(excess <= 0, 0.0, np.inf))
        kept = (problem.violations(*at) == 0).all(axis=1)
        needed[decided] = np.where(kept, ratio[decided], np.inf)
        tried.append(_Tried(planner.distribution.name, margin, mean, deviation, needed, realised, has_margin))
    return tried


def _joined(name: str, parts: Sequence[Sequence[_Tried]]) -> list[_Tried]:
    def joined(k: int, field: str) -> Any:
        return np.concatenate([getattr(part[k], field) for part in parts])

    fields = ("mean", "deviation", "needed", "realised", "has_margin")
    return [_Tried(name, t, **{f: joined(k, f) for f in fields}) for k, t in enumerate(_TRIED)]


def _best(entries: Sequence[_Tried], alpha: float, caution: float) -> _Tried:
    """The entry of least figure plus complexity penalty; the one of largest margin if none has a bound."""
    known = [e for e in entries if np.isfinite(e.figure(alpha, caution))]
    if not known:
        return replace(entries[0], margin=max(e.margin for e in entries))
    premium = max(known[0].bound(alpha) - known[0].cost(), 0.0)
    step = COMPLEXITY_PENALTY / np.sqrt(len(known[0].needed)) * premium
    figures = np.array([e.figure(alpha, caution) + step * DISTRIBUTIONS[e.distribution].complexity for e in known])
    return known[first_least(figures, SELECTION_TIE * float(np.nanstd(known[0].realised)))]
