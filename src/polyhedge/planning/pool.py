r"""The pool: pieces that stand for the second stage of a problem with recourse where policies are planned.

Every vertex $\lambda$ of the dual of the second stage is a piece of the cost, and there may be too many to list. A pool
holds those that occur: at decisions that are planned for development rows, over scenarios of their residuals. Rounds of
planning and of exact second stages add pieces until the pool misses little of the mean cost. A pool bounds the second
stage from below, so that it only plans: costs that are realised, scored or calibrated come from exact second stages.
Integer and conic second stages are planned by the pieces of their relaxations.

Where a second stage has no solution, a ray of the dual proves it. The pool adds a multiple of the ray to a piece, which
makes such decisions expensive in plans.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.data.splits import evenly_chosen
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.residual_distributions import DevelopmentRows, Uniform
from polyhedge.planning.risk import Risk
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.second_stage import distinct, penalised, values_at
from polyhedge.robust.recourse import BothStages
from polyhedge.solvers.program import Cone, ConicProgram
from polyhedge.solvers.solve import solve

_CONTEXTS, _SCENARIOS, _FIRST = 16, 60, 10
"""Rows and residuals at which pieces are looked for, and residuals of the first sample average at each row."""
_ROUNDS, _ENOUGH = 6, 1e-3
"""Rounds of planning, and the share of the deviation of costs that a pool may miss of their mean."""
_MOST_PIECES = 160
"""Pieces of a pool at most: every scenario of every row is held against all of them. The rarest are left out."""
INFEASIBLE = 100.0
"""Deviations of the cost that a row without a cost counts as when rules are compared."""
_FAR = 10.0
"""How far from planned decisions others are tried, in deviations of the planned decisions."""


def with_pool(problem: DecisionProblem, rows: DevelopmentRows) -> PlanningProblem:
    """The problem as policies see it, with a pool where there is a second stage whose pieces are not all known.

    `rows` are development rows: calibration rows have no part in the pool.
    """
    second = problem.second_stage
    if problem.structure.has_maxima or problem.first_stage.cost_split is None:
        return PlanningProblem(problem)
    few = rows.take(evenly_chosen(len(rows), _CONTEXTS))
    residuals = (rows.outcomes - rows.centers)[evenly_chosen(len(rows), _SCENARIOS)]
    first = _first_decisions(problem, few, residuals)
    if not len(first):
        raise NoSolutionError(
            "The second stage is infeasible at all scenarios of all development rows that were tried. Relax "
            "recourse_constraints, or add a recourse variable that is expensive and always feasible."
        )
    if second is None or second.moves is not None:
        # The pieces are others at every value of the parameters: what is kept is where to look for them.
        some, tried = residuals[evenly_chosen(len(residuals), _FIRST)], _tried(problem, first, few)
        outcomes = [few.centers[k % len(few)] + some for k in range(len(first))]
        z = np.vstack([np.repeat(first, len(some), axis=0), tried])
        return PlanningProblem(problem, None, z, np.vstack([*outcomes, np.tile(few.centers[0], (len(tried), 1))]))
    pairs = _Pairs(problem, few, residuals)
    pool = pairs.pool([first[k % len(first)] for k in range(len(few))], _tried(problem, first, few))
    for _ in range(_ROUNDS):
        planned = _planned(PlanningProblem(problem, pool), few, residuals)
        larger = pairs.pool(planned)
        if pairs.shortfall(pool, planned) <= _ENOUGH or len(larger) == len(pool):
            break
        pool = larger
    return PlanningProblem(problem, pairs.most_used(pool), n_penalties=len(pairs.rays))


def piecewise(problem: DecisionProblem, rows: DevelopmentRows) -> DecisionProblem:
    """A problem of one stage whose pieces stand for the second: all of them, or a pool. To learn sets with."""
    if problem.all_pieces is not None:
        return problem.with_pool(problem.all_pieces)
    second = problem.second_stage
    if second is not None and (len(second.program.integer) or second.program.P is not None):
        raise ValueError(
            "With integers or squares in the second stage the worst outcome of a set is out of reach. Use "
            'guarantee="cost", which needs no worst case.'
        )
    seen = with_pool(problem, rows)
    if seen.pool is None:
        raise ValueError(
            'A set cannot be learned for this second stage, because its pieces are not known. Use guarantee="cost".'
        )
    return seen.problem


class _Pairs:
    """First decisions and contexts at which the second stage was solved, with the pieces that were met."""

    def __init__(self, problem: DecisionProblem, few: DevelopmentRows, residuals: Array) -> None:
        assert problem.second_stage is not None
        self.second, self.few, self.residuals = problem.second_stage, few, residuals
        p, k = problem.n_decisions, self.second.sides.shape[2] - 1
        self.z, self.w = np.zeros((0, p)), np.zeros((0, k))
        self.pieces = self.rays = np.zeros((0, 1 + p, 1 + k))
        self.n_kept = 0

    def at(self, k: int, z: Array) -> tuple[Array, Array]:
        """A decision with every scenario of a row."""
        outcomes = self.few.centers[k] + self.residuals
        return np.tile(z, (len(outcomes), 1)), np.hstack([outcomes, np.tile(self.few.values[k], (len(outcomes), 1))])

    def pool(self, planned: list[Array], tried: Array | None = None) -> Array:
        """The pool with the pieces at one decision for each row, and at further decisions at a prediction."""
        pairs = [self.at(k, z) for k, z in enumerate(planned) if np.isfinite(z).all()]
        if tried is not None:
            context = np.hstack([self.few.centers, self.few.values])
            few = [np.tile(context[k], (len(tried), 1)) for k in evenly_chosen(len(context), 3)]
            pairs += [(tried, own) for own in few]
        z, w = (np.concatenate(part) for part in zip(*pairs, strict=True))
        pieces, rays = self.second.cuts(z, w)
        self.z, self.w = np.concatenate([self.z, z]), np.concatenate([self.w, w])
        self.pieces, self.rays = (distinct(np.concatenate(pair)) for pair in ((self.pieces, pieces), (self.rays, rays)))
        return penalised(self.pieces, self.rays, self.z, self.w)[0]

    def shortfall(self, pool: Array, planned: list[Array]) -> float:
        """What a pool misses of the mean cost at planned decisions, in deviations of the cost: the largest of rows."""
        missed = [0.0]
        for k, z in enumerate(planned):
            if np.isfinite(z).all():
                pairs = self.at(k, z)
                exact = self.second.relaxed().costs(*pairs)
                there = np.isfinite(exact)
                known = values_at(pool, pairs[0][there], pairs[1][there]).max(axis=1)
                missed.append(float((exact[there] - known).mean() / (exact[there].std() or 1.0)) if len(known) else 0.0)
        return max(missed)

    def most_used(self, pool: Array) -> Array:
        """The pieces that are the largest at most pairs, and all penalties."""
        if len(pool) <= _MOST_PIECES:
            return pool
        wins = np.bincount(values_at(pool, self.z, self.w).argmax(axis=1), minlength=len(pool))
        wins[len(pool) - len(self.rays) :] = len(self.z) + 1
        return pool[np.sort(np.argsort(-wins, kind="stable")[: max(_MOST_PIECES, len(self.rays) + 1)])]


def _first_decisions(problem: DecisionProblem, few: DevelopmentRows, residuals: Array) -> list[Array]:
    """The sample average over a few scenarios at each row, relaxed; rows without a solution are left out."""
    some, found = residuals[evenly_chosen(len(residuals), _FIRST)], list[Array]()
    for center, values in zip(few.centers, few.values, strict=True):
        both = BothStages(_relaxed(problem.at_values(values)))
        solution, z = both.solve(center + some)
        if not solution.status.has_solution:
            # No decision is feasible for all of them: those that some decision can meet, and each by itself.
            alone = [(one, *both.solve(one[None])) for one in center + some]
            kept = [(one, z) for one, solution, z in alone if solution.status.has_solution]
            if not kept:
                continue
            solution, z = both.solve(np.array([one for one, _ in kept]))
            z = z if solution.status.has_solution else np.median([z for _, z in kept], axis=0)
        found.append(z)
    return found


def _relaxed(problem: DecisionProblem) -> DecisionProblem:
    """Both stages without integers."""
    assert problem.second_stage is not None
    if problem.structure.is_continuous and not len(problem.second_stage.program.integer):
        return problem
    first = problem.first_stage.relaxed()
    return problem.with_parts(first_stage=first, second_stage=problem.second_stage.relaxed())


def _tried(problem: DecisionProblem, first: list[Array], few: DevelopmentRows) -> Array:
    """Decisions far from the planned ones to either side of each entry, as far as Z reaches: a pool must hold there."""
    middle = np.median(first, axis=0)
    reach = _FAR * np.maximum(np.ptp(first, axis=0), np.abs(middle).max() * 0.1 + 1e-3)
    feasible = problem.at_values(few.values[0]).first_stage.feasible
    program, z = feasible.program, feasible.z_columns
    p, n = len(z), len(program.c)
    pick = sp.csr_array((np.ones(p), (np.arange(p), z)), shape=(p, n))
    box = ConicProgram(
        np.zeros(n),
        sp.csr_array(sp.vstack([program.A, pick, -pick])),
        np.concatenate([program.b, middle + reach, reach - middle]),
        (*program.cones, Cone("nonneg", 2 * p)),
    )
    tried = [middle]
    for direction in np.vstack([np.ones((1, p)), -np.ones((1, p)), np.eye(p), -np.eye(p)])[:80]:
        c = np.zeros(n)
        c[z] = direction / reach
        solution = solve(replace(box, c=c))
        if solution.status.has_solution:
            tried.append(solution.x[z])
    return np.array(tried)


def _planned(seen: PlanningProblem, few: DevelopmentRows, residuals: Array) -> list[Array]:
    """Decisions by the mean and by a tail over the scenarios, row by row in turn."""
    distribution = Uniform(residuals)
    planners = [
        fit_planner(
            seen.relaxed, Rule("uniform", Risk(level)), distribution, few.X, few.centers, few.values, is_scored=True
        )
        for level in (0.0, 0.7)
    ]
    planned = [planner(few.X, few.centers, few.values, n_jobs=1) for planner in planners]
    return [planned[k % 2][k] for k in range(len(few))]
