r"""Ties of robust decisions: of all whose bound is the least, the one with the least mean cost.

The worst case of many decisions is often the same: a newsvendor whose worst outcome is a shortage of everything does
not care how a budget is divided. The second stage is

$$\min_{z \in Z}\ \frac1n \sum_i g(z, \hat f(x) + \sigma(x)\,e_i) \quad\text{s.t.}\quad
\max_{u \in C(x)} g(z, u) \le \text{bound}(x),$$

over residuals $e_i$ of the learning rows. Bounds stay as they are, and so does every decision that has no rival. It is
asked only where multipliers leave room for a rival (`Decisions.may_tie`). The answer is a function of prediction,
spread and bound, whatever was found first. Where the cost falls apart into a term a decision and its directions are
fixed, all rows of a segment are done at once, and of others those whose best decision of all keeps the bound
(`within_limits.py`); elsewhere each row has a program of its own, whose mean cost is known by cuts (`risk.py`) that are
found anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import ROUNDING, SOLVED
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import tight_facets
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.cutting import ENOUGH, distinct_cuts, first_cuts, lacking_cuts
from polyhedge.planning.programs import least_with_cuts
from polyhedge.planning.residual_distributions import MOST_POINTS, is_sample
from polyhedge.planning.risk import Cuts, JointCost, Risk
from polyhedge.planning.separable import Separable, separable_of
from polyhedge.planning.within_limits import WithinLimits
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import quadratic_cost
from polyhedge.regions.learned_set import SetRegions
from polyhedge.robust import Adversary, Counterpart, Decisions
from polyhedge.robust.decide import brought_back
from polyhedge.robust.threads import in_order
from polyhedge.sets import Shape
from polyhedge.solvers.program import Cone, ConicProgram, SolverError

_SAME = 1e-6
"""Share of a decision's size, or of a segment, up to which another is the same: as far as tolerances move one that has
no rival."""
_HALVINGS, _LEVEL = 40, 1e-12
"""Halvings of a segment: 1e-12 of its length. Slopes are 0 up to this share of their terms, in whatever unit."""
_ROUNDS, _ENOUGH = 12, 1e-4
"""Rounds of cuts for a row, and the share of the spread that they may miss of the mean cost."""
_TANGENTS = 40
"""Quantiles of the residuals at which the mean of each term has a cut: they miss about a thousandth of its spread."""


@dataclass(frozen=True, eq=False)
class LeastMean:
    """Breaks ties by the mean cost over residuals of learning rows.

    Attributes
    ----------
    problem : what is decided.
    points : (n, d) residuals, divided by the spread where there is one.
    """

    problem: DecisionProblem
    points: Array

    @classmethod
    def of(cls, problem: DecisionProblem, residuals: Array) -> LeastMean:
        """From all residuals of the learning rows: an even choice where they are more than a file keeps."""
        return cls(problem, residuals[evenly_chosen(len(residuals), MOST_POINTS)])

    def broken(self, placed: SetRegions, radii: Array, decisions: Decisions) -> Decisions:
        """The decisions of sets at these radii, where they tie with the least mean cost; bounds as they were."""
        if decisions.may_tie is None or not self._seen.has_maxima:
            return decisions
        rows = np.flatnonzero(decisions.may_tie & decisions.is_optimal & np.isfinite(decisions.cost_bound))
        if not len(rows):
            return decisions
        tied = _Tied(placed.take(rows), radii[rows], decisions.flat[rows], decisions.cost_bound[rows])
        first, own = tied.distinct()
        tied = tied.take(first)
        flat, worst, facets = decisions.flat.copy(), decisions.worst_outcome.copy(), decisions.active_facets.copy()
        structure = self.problem.structure
        if self._separable is None or not structure.has_fixed_directions:
            better = self._by_programs(tied, worst[rows[first]], facets[rows[first]])
            flat[rows], worst[rows], facets[rows] = (part[own] for part in better)
        else:
            flat[rows] = (self._along_segment(tied) if structure.has_fixed_lines else self._by_limits(tied))[own]
        return replace(decisions, flat=flat, worst_outcome=worst, active_facets=facets)

    @cached_property
    def _seen(self) -> PlanProblem:
        return PlanProblem(self.problem)

    @cached_property
    def _separable(self) -> Separable | None:
        return separable_of(self.problem)

    @cached_property
    def _cost(self) -> JointCost:
        n_values = sum(int(np.prod(each.shape)) for each in self.problem.parameters)
        return JointCost(self._seen.joint, np.hstack([self.points, np.zeros((len(self.points), n_values))]))

    @cached_property
    def _tables(self) -> list[tuple[Array, Array]]:
        assert self._separable is not None
        return self._separable.tables(self.points, Risk())

    def mean_costs(self, placed: SetRegions, z: Array) -> Array:
        """Mean costs (N,) of decisions (N, p) over the residuals around the predictions."""
        contexts, values = _contexts(placed)
        mean = self._cost.quantiles(z, contexts, placed.scales, (0.5,))[1]
        return mean + self._seen.alone(z, values)

    def _deviations(self, tied: _Tied) -> Array:
        """Standard deviations (N,) of the costs of the decisions: what tolerances are shares of."""
        contexts, _ = _contexts(tied.placed)
        deviations = np.empty(len(tied.z))
        for part in self._cost.blocks(len(deviations)):
            deviations[part] = self._cost.samples(tied.z[part], contexts[part], tied.placed.scales[part]).std(axis=1)
        return deviations

    def _along_segment(self, tied: _Tied) -> Array:
        """All rows at once: where between the ends of the level stretch the mean stops falling."""
        lines, placed = self.problem.structure.fixed_lines, tied.placed
        assert lines is not None
        room = self._room(tied)
        room -= lines.constants
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = room / lines.slopes
        way = lines.z1 - lines.z0
        longest = int(np.abs(way).argmax())
        s = (tied.z[:, longest] - lines.z0[longest]) / way[longest]
        low = np.minimum(np.where(lines.slopes < 0, crossing, 0.0).max(axis=1, initial=0.0), s)
        high = np.maximum(np.where(lines.slopes > 0, crossing, 1.0).min(axis=1, initial=1.0), s)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            falls = self._mean_falls(placed, lines.z0 + middle[:, None] * way, way)
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        is_other = np.abs(high - s) > _SAME
        return np.where(is_other[:, None], lines.z0 + high[:, None] * way, tied.z)

    def _room(self, tied: _Tied) -> Array:
        """What the bound leaves to each piece (N, L) when the worst outcome for it comes."""
        pieces, placed = self.problem.structure.pieces, tied.placed
        reach = _reach(placed.shape, tied.radii, pieces.q)
        for j in range(placed.centers.shape[1]):
            reach = reach + (placed.centers[:, [j]] / placed.scales[:, None]) * pieces.q[:, j]
        enough = tied.bound + _allowed(self._widest(placed, pieces.q), tied.bound)
        return np.asarray(enough[:, None] - placed.scales[:, None] * reach)

    def _widest(self, placed: SetRegions, q: Array) -> Array:
        """The largest standard deviation (N,) of pieces with fixed directions q: no decision enters it."""
        return np.asarray(placed.scales * float((self.points @ q.T).std(axis=0).max(initial=0.0)))

    def _mean_falls(self, placed: SetRegions, z: Array, way: Array) -> Mask:
        """Whether the mean cost falls (N,) at decisions in one direction, by more than rounding."""
        own, total, terms = self._separable, np.zeros(len(z)), 0.0
        assert own is not None
        for i, (knots, slopes) in enumerate(self._tables):
            kinks = own.kappa[i] + own.beta[i] * placed.centers[:, own.outcome[i]]
            passed = np.searchsorted(knots, (z[:, i] - kinks) / placed.scales, side="right")
            total = total + way[i] * (own.slope[i] + slopes[passed])
            terms += abs(way[i]) * (abs(own.slope[i]) + np.abs(slopes).max())
        return np.asarray(total < -_LEVEL * terms)

    def _by_limits(self, tied: _Tied) -> Array:
        """The room of the pieces is a limit of each; what was found first does not enter."""
        pieces, placed = self.problem.structure.pieces, tied.placed
        room, enough = self._room(tied) - pieces.c, ENOUGH * self._widest(placed, pieces.q)
        z = self._limits.least(
            placed.centers, placed.scales, room - self.problem.feasible.program.offset, enough, placed.work.n_jobs
        )
        return np.where(self._is_better(tied, z, enough)[:, None], z, tied.z)

    @cached_property
    def _limits(self) -> WithinLimits:
        """Pieces with what no outcome enters of the cost are limits of the decisions."""
        assert self._separable is not None
        alone = self.problem.feasible.program.c[self.problem.feasible.z_columns]
        return WithinLimits(self.problem, self._separable, self.points, self.problem.structure.pieces.p + alone)

    def _is_better(self, tied: _Tied, z: Array, missed: Array) -> Mask:
        """No solver is believed: whether these are other decisions, whose mean is not higher (N,).

        It may be higher by what cuts have missed of it (N,): else what was found first would stay or go by chance.
        """
        before, after = self.mean_costs(tied.placed, tied.z), self.mean_costs(tied.placed, z)
        is_other = (np.abs(z - tied.z) > _SAME * self._sizes(tied)).any(axis=1)
        return np.asarray(is_other & (after <= before + missed + ROUNDING * np.abs(before)))

    def _sizes(self, tied: _Tied) -> Array:
        """What changes of decisions (N, p) are compared with: how far residuals move the best, wherever zero lies."""
        if self._separable is None:
            return np.tile(np.abs(tied.z).max(axis=1, keepdims=True), (1, tied.z.shape[1]))
        return np.multiply.outer(tied.placed.scales, [np.ptp(knots) for knots, _ in self._tables])

    def _by_programs(self, tied: _Tied, worst: Array, facets: Mask) -> tuple[Array, Array, Mask]:
        """A program for each row. The worst outcome of whole decisions is another where they are others."""
        placed, z = tied.placed, tied.z.copy()
        keys = np.column_stack([tied.radii, placed.scales])
        sizes, which = np.unique(keys, axis=0, return_inverse=True)
        shapes = [(placed.shape.scaled(float(scale)), float(radius)) for radius, scale in sizes]
        # Where parameters change from row to row, so does the problem, and nothing is shared.
        shared = None if self.problem.parameters else [Counterpart(self.problem, *one) for one in shapes]

        def work(i: int) -> tuple[Array, Array] | None:
            own, k = tied.take(np.array([i])), int(which.ravel()[i])
            counterpart = None if shared is None else shared[k]
            try:
                return _Row(self, own, *shapes[k], counterpart).least()
            except SolverError:  # the decision that is there is as good in the worst case
                return None

        for i, better in enumerate(in_order(work, range(len(z)), n_jobs=placed.work.n_jobs)):
            if better is not None:
                own, center = shapes[int(which.ravel()[i])], placed.centers[[i]]
                z[i], worst[i] = better
                worst[i] = brought_back(self.problem, *own, center, worst[[i]])[0]
                facets[i] = tight_facets(*own, worst[[i]], center)[0]
        return z, worst, facets

    @cached_property
    def _first(self) -> Cuts | None:
        """Cuts that every row starts from: tangents of each term at quantiles, where the cost falls apart."""
        if self._separable is None:
            return None
        own, levels = self._separable, (np.arange(_TANGENTS) + 0.5) / _TANGENTS
        z = own.kappa + own.beta * np.quantile(self.points, levels, axis=0)[:, own.outcome]
        nowhere, evenly = np.zeros((len(z), self._cost.points.shape[1])), np.ones(len(z))
        return distinct_cuts(Cuts.joined([cuts for _, cuts in self._cost.cuts(z, nowhere, evenly, Risk())]))


def ties_from(problem: DecisionProblem, points: Array) -> LeastMean:
    """What breaks ties by these residuals; a ValueError where no fit can have kept them."""
    if not is_sample(points, problem.n_outcomes):
        raise ValueError(f"Ties are broken by at most {MOST_POINTS} residuals of {problem.n_outcomes} outcomes.")
    return LeastMean(problem, points)


@dataclass(frozen=True, eq=False)
class _Tied:
    """Rows that may tie: their sets, radii (N,), decisions (N, p) and bounds (N,)."""

    placed: SetRegions
    radii: Array
    z: Array
    bound: Array

    def distinct(self) -> tuple[Indices, Indices]:
        """Rows that differ, and for each row the one of them that it is like: predictors often say the same."""
        values = _contexts(self.placed)[0]
        keys = np.column_stack([values, self.placed.scales, self.radii, self.bound, self.z])
        first, own = np.unique(keys, axis=0, return_index=True, return_inverse=True)[1:]
        return first, own.ravel()

    def take(self, rows: Indices) -> _Tied:
        return _Tied(self.placed.take(rows), self.radii[rows], self.z[rows], self.bound[rows])


class _Row:
    """The second stage of one row."""

    def __init__(
        self, ties: LeastMean, own: _Tied, shape: Shape, radius: float, counterpart: Counterpart | None
    ) -> None:
        self.ties, self.own, self.shape, self.radius = ties, own, shape, radius
        self.contexts, self.values = _contexts(own.placed)
        self.problem = ties.problem.at_values(self.values[0]) if ties.problem.parameters else ties.problem
        self.counterpart = Counterpart(self.problem, shape, radius) if counterpart is None else counterpart
        structure = self.problem.structure
        is_fixed = structure.has_pieces and structure.pieces.directions_are_fixed
        # Where directions are fixed, the decision that is there need not be asked.
        deviation = ties._widest(own.placed, structure.pieces.q) if is_fixed else ties._deviations(own)
        self.deviation = float(deviation[0])

    def least(self) -> tuple[Array, Array] | None:
        """The best of the decisions with this bound and its worst outcome; None where nothing better is proven."""
        program, scales, ties = self._face(), self.own.placed.scales, self.ties
        if program is None:
            return None
        columns, cost, cuts = self.problem.feasible.z_columns, ties._cost, ties._first
        if cuts is None:
            cuts = first_cuts(ties._seen, cost, Risk(), self.contexts, scales)
        for _ in range(_ROUNDS):
            G = cuts.at(self.contexts[0], float(scales[0]))
            solution = least_with_cuts(program, columns, G, cuts.term)
            if not solution.status.has_solution:
                return None
            z = solution.x[columns][None] + 0.0  # no negative zeros
            lacking = lacking_cuts(cuts, cost, Risk(), z, self.contexts, scales, _ENOUGH)
            if not any(len(few.rows) for few in lacking):
                break
            cuts = Cuts.joined([cuts, *(few.cuts for few in lacking)])
        if not ties._is_better(self.own, z, len(cuts.terms) * _ENOUGH * np.array([self.deviation]))[0]:
            return None
        # By the set and the cost as they are written: no solver is believed.
        worst = Adversary(self.problem, self.shape, self.radius, self.own.placed.centers[0]).worst_case(z[0])
        keeps_bound = worst.value <= self.own.bound[0] + _allowed(self.deviation, self.own.bound[0])
        return (z[0], worst.outcome) if keeps_bound else None

    def _face(self) -> ConicProgram | None:
        """The robust program with the bound as a limit, and what no outcome enters of the cost as its objective."""
        at, base = self.counterpart.parametric.at(self.own.placed.centers[0]), self.problem.feasible.program
        alone = np.zeros(len(at.c))
        alone[: len(base.c)] = base.c
        limits, level = [sp.csr_array(at.c[None])], float(self.own.bound[0]) - at.offset
        known, fixed = np.zeros((0, len(at.c))), np.zeros(0)
        if at.P is not None:
            # All minimisers of a convex quadratic agree in what it bends.
            cost, z = quadratic_cost(self.problem.feasible), self.own.z[0]
            if cost is None:
                return None
            bent = cost.L @ z + cost.l
            level -= 0.5 * float(bent @ cost.D @ bent)
            known, fixed = np.zeros((len(cost.D), len(at.c))), cost.D @ (bent - cost.l)
            known[:, self.problem.feasible.z_columns] = cost.D @ cost.L
        return ConicProgram(
            c=alone,
            A=sp.csr_array(sp.vstack([at.A, sp.csr_array(known), *limits])),
            b=np.concatenate([at.b, fixed, [level + 0.5 * _allowed(self.deviation, self.own.bound[0])]]),
            cones=(*at.cones, Cone("zero", len(known)), Cone("nonneg", 1)),
            integer=at.integer,
        )


def _allowed(deviation: Any, bound: Any) -> Any:
    """By how much a worst case may exceed its bound and still be it."""
    return SOLVED * deviation + ROUNDING * np.abs(bound)


def _contexts(placed: SetRegions) -> tuple[Array, Array]:
    """[prediction, parameters] (N, d + t), and the latter."""
    values = np.zeros((len(placed.centers), 0)) if placed.values is None else placed.values
    return np.hstack([placed.centers, values]), values


def _reach(shape: Shape, radii: Array, directions: Array) -> Array:
    """The support (N, L) of the shape at these radii in fixed directions."""
    distinct, which = np.unique(radii, return_inverse=True)
    return np.stack([np.asarray(shape.support(directions, float(radius))) for radius in distinct])[which]
