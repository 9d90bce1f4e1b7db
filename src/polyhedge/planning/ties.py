r"""Ties of robust decisions: of all whose bound is the least, the one with the least mean cost.

The worst case of many decisions is often the same: a newsvendor whose worst outcome is a shortage of everything does
not care how a budget is divided. The second stage is

$$\min_{z \in Z}\ \frac1n \sum_i g(z, \hat f(x) + \sigma(x)\,e_i) \quad\text{s.t.}\quad
\max_{u \in C(x)} g(z, u) \le \text{bound}(x),$$

over residuals $e_i$ of the learning rows. Bounds stay as they are, and so does every decision without an alternative
optimum (`Decisions.may_tie`). Each row has one program, whose mean cost is known by cuts (`risk.py`). Decisions on a
segment with a separable cost are found for all rows at once, a thousand times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import ROUNDING, SOLVED
from polyhedge._support.validation import Array, Indices
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import Decisions
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.programs import least_with_cuts
from polyhedge.planning.residual_distributions import MOST_POINTS, padded
from polyhedge.planning.risk import Cuts, JointCost, Risk, distinct_cuts, first_cuts, lacking_cuts
from polyhedge.planning.separable import Separable, separable_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import quadratic_cost
from polyhedge.regions.learned_set import SetRegions
from polyhedge.robust import Adversary, Counterpart
from polyhedge.robust.routes import Job, brought_back
from polyhedge.robust.support import CutReach, Reach
from polyhedge.robust.threads import in_order
from polyhedge.sets import Shape
from polyhedge.solvers.program import Cone, ConicProgram, SolverError

_SAME = 1e-6
"""Share of the size of a decision, or of a segment, up to which another decision is the same."""
_MISSED = 1e-4
"""Share of the spread of costs that cuts may miss of the mean cost of a row."""


@stored("least mean cost")
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
        """The decisions of sets at these radii, with the least mean cost where they tie; bounds as they were."""
        if decisions.may_tie is None or not self._seen.has_maxima:
            return decisions
        rows = np.flatnonzero(decisions.may_tie & decisions.is_optimal & np.isfinite(decisions.cost_bound))
        if not len(rows):
            return decisions
        flat, worst = decisions.flat.copy(), decisions.worst_outcome.copy()
        tied = _Tied(placed.take(rows), radii[rows], flat[rows], decisions.cost_bound[rows])
        if self._separable is not None and self.problem.structure.fixed_lines is not None:
            sets, directions = tied.placed, self.problem.structure.pieces.q
            reach = sets.scales[:, None] * _support(sets.shape, tied.radii, directions)
            flat[rows] = self.on_segment(sets.centers, sets.scales, tied.z, tied.bound, reach)
        else:
            first, own = tied.distinct()
            better = self._by_programs(tied.take(first), worst[rows[first]])
            flat[rows], worst[rows] = (part[own] for part in better)
        return replace(decisions, flat=flat, worst_outcome=worst)

    def on_segment(self, centers: Array, scales: Array, z: Array, bound: Array, reach: Array) -> Array:
        """Decisions (N, p) on a segment: the point of least mean cost on the stretch where bounds are equal.

        Parameters
        ----------
        centers, scales : (N, d) predictions and (N,) spreads.
        z, bound : (N, p) decisions and (N,) their worst-case costs.
        reach : (N, L) support of the residual set of each row in the direction of each piece of the cost.
        """
        lines, pieces, own = self.problem.structure.fixed_lines, self.problem.structure.pieces, self._separable
        if lines is None or own is None:
            return z
        enough = bound + _allowed(scales * self._widest(pieces.q), bound)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (enough[:, None] - reach - centers @ pieces.q.T - lines.constants) / lines.slopes
        way = lines.z1 - lines.z0
        longest = int(np.abs(way).argmax())
        s = (z[:, longest] - lines.z0[longest]) / way[longest]
        low = np.minimum(np.where(lines.slopes < 0, crossing, 0.0).max(axis=1, initial=0.0), s)
        high = np.maximum(np.where(lines.slopes > 0, crossing, 1.0).min(axis=1, initial=1.0), s)
        # The mean is convex along the segment: its least between the ends is the nearest to its least of all.
        best = own.tabled(self.points, Risk()).least(centers, scales)
        high = np.clip((best[:, longest] - lines.z0[longest]) / way[longest], low, high)
        is_other = np.abs(high - s) > _SAME
        return np.where(is_other[:, None], lines.z0 + high[:, None] * way, z)

    def mean_costs(self, placed: SetRegions, z: Array) -> Array:
        """Mean costs (N,) of decisions (N, p) over the residuals around the predictions; NaN without a decision."""
        _, values = _contexts(placed)
        return self._seen.planned_cost(self.points, 0.5, z, placed.centers, placed.scales, values)[1]

    @cached_property
    def _seen(self) -> PlanningProblem:
        return PlanningProblem(self.problem)

    @cached_property
    def _separable(self) -> Separable | None:
        return separable_of(self.problem)

    @cached_property
    def _cost(self) -> JointCost:
        return JointCost(
            self._seen.joint, padded(self.points, sum(int(np.prod(p.shape)) for p in self.problem.parameters))
        )

    def _widest(self, directions: Array) -> float:
        """The largest standard deviation of a piece with a fixed direction: no decision enters it."""
        return float((self.points @ directions.T).std(axis=0).max(initial=0.0))

    @cached_property
    def _tangents(self) -> Cuts | None:
        """Cuts that every row starts from: tangents of each term at forty quantiles, if the cost is separable."""
        if self._separable is None:
            return None
        own, width = self._separable, np.ptp(self.points, axis=0)
        # Beyond the residuals on both sides too: without the outer slopes the cuts alone might have no least.
        ends = self.points.min(axis=0) - width, self.points.max(axis=0) + width
        at = np.vstack([np.quantile(self.points, (np.arange(40) + 0.5) / 40, axis=0), *ends])
        z = own.kappa + own.beta * at[:, own.outcome]
        nowhere, evenly = np.zeros((len(z), self._cost.points.shape[1])), np.ones(len(z))
        return distinct_cuts(Cuts.joined([cuts for _, cuts in self._cost.cuts(z, nowhere, evenly, Risk())]))

    def _known(self, job: Job, centers: Array) -> Sequence[Reach | Counterpart | None]:
        """What is known of rows with this set: its reach in fixed directions, or the robust counterpart.

        None where parameters change the problem from row to row.
        """
        problem, own = self.problem, (job.shape, job.radius)
        if problem.parameters:
            return [None] * len(centers)
        if not _is_plain(problem):
            return [Counterpart(problem, *own)] * len(centers)
        make = partial(CutReach.of, *own, problem.structure.pieces.q, problem.support_rows)
        with job.cached(centers, "reach", lambda _: make()) as cut:
            if cut is None:
                return [Counterpart(problem, *own)] * len(centers)
            reaches: list[Reach] = [cut.start() for _ in centers]
            for reach, center, is_free in zip(reaches, centers, cut.is_free(centers), strict=True):
                cut.cut(reach, center, np.flatnonzero(~is_free))  # what is not found stays that of the whole set
        return reaches

    def _by_programs(self, tied: _Tied, worst: Array) -> tuple[Array, Array]:
        """One program for each row. A decision that replaces another brings its own worst outcome."""
        placed, z = tied.placed, tied.z.copy()
        sizes, which = np.unique(np.column_stack([tied.radii, placed.scales]), axis=0, return_inverse=True)
        which = which.ravel()
        shapes = [(placed.shape.scaled(float(scale)), float(radius)) for radius, scale in sizes]
        known = dict[int, Reach | Counterpart | None]()
        for k, one in enumerate(shapes):
            rows, job = (
                np.flatnonzero(which == k),
                Job(self.problem, *one, None, False, placed.cache, float(sizes[k, 1])),
            )
            known.update(zip(rows.tolist(), self._known(job, placed.centers[rows]), strict=True))

        def work(i: int) -> tuple[Array, Array] | None:
            try:
                return _Row(self, tied.take(np.array([i])), *shapes[int(which[i])], known[i]).least()
            except SolverError:  # the first decision is as good in the worst case
                return None

        for i, better in enumerate(in_order(work, range(len(z)), n_jobs=placed.work.n_jobs)):
            if better is not None:
                own, center = shapes[int(which[i])], placed.centers[[i]]
                z[i], worst[i] = better
                worst[i] = brought_back(self.problem, *own, center, worst[[i]])[0]
        return z, worst


@dataclass(frozen=True, eq=False)
class _Tied:
    """Rows that may tie: their sets, radii (N,), decisions (N, p) and bounds (N,)."""

    placed: SetRegions
    radii: Array
    z: Array
    bound: Array

    def distinct(self) -> tuple[Indices, Indices]:
        """Distinct rows, and for each row the place of its own among them: predictors often repeat themselves."""
        keys = np.column_stack([_contexts(self.placed)[0], self.placed.scales, self.radii, self.bound, self.z])
        first, own = np.unique(keys, axis=0, return_index=True, return_inverse=True)[1:]
        return first, own.ravel()

    def take(self, rows: Indices) -> _Tied:
        return _Tied(self.placed.take(rows), self.radii[rows], self.z[rows], self.bound[rows])


class _Row:
    """The second stage of one row."""

    def __init__(
        self, ties: LeastMean, own: _Tied, shape: Shape, radius: float, known: Reach | Counterpart | None
    ) -> None:
        self.ties, self.own, self.shape, self.radius = ties, own, shape, radius
        self.contexts, values = _contexts(own.placed)
        self.problem = ties.problem.at_values(values[0]) if ties.problem.parameters else ties.problem
        self.center = own.placed.centers[0]
        self.known = Counterpart(self.problem, shape, radius) if known is None else known
        structure, scales = self.problem.structure, own.placed.scales
        if structure.has_pieces and structure.pieces.directions_are_fixed:
            self.deviation = float(scales[0]) * ties._widest(structure.pieces.q)
        else:
            self.deviation = float(ties._cost.samples(own.z, self.contexts, scales).std())

    def least(self) -> tuple[Array, Array] | None:
        """The best of the decisions with this bound and its worst outcome; None where nothing better is proven."""
        program, scales, ties = self._face(), self.own.placed.scales, self.ties
        if program is None:
            return None
        columns, cost, cuts = self.problem.feasible.z_columns, ties._cost, ties._tangents
        if cuts is None:
            cuts = first_cuts(cost, Risk(), self.contexts, scales, ties._seen.usual_decision)
        for _ in range(12):
            solution = least_with_cuts(program, columns, cuts.at(self.contexts[0], float(scales[0])), cuts.term)
            if not solution.status.has_solution:
                return None
            z = solution.x[columns][None] + 0.0  # no negative zeros
            lacking = lacking_cuts(cuts, cost, Risk(), z, self.contexts, scales, _MISSED)
            if not any(len(rows) for rows, _ in lacking):
                break
            cuts = Cuts.joined([cuts, *(more for _, more in lacking)])
        # No solver is believed: another decision, whose mean is higher by no more than cuts have missed.
        is_other = np.abs(z - self.own.z).max() > _SAME * np.abs(self.own.z).max()
        before, after = (float(ties.mean_costs(self.own.placed, one)[0]) for one in (self.own.z, z))
        missed = len(cuts.terms) * _MISSED * self.deviation
        if not is_other or after > before + missed + ROUNDING * abs(before):
            return None
        value, outcome = self._worst_case(z)
        keeps_bound = value <= self.own.bound[0] + _allowed(self.deviation, self.own.bound[0])
        return (z[0], outcome) if keeps_bound else None

    def _worst_case(self, z: Array) -> tuple[float, Array]:
        """The worst cost of a decision (1, p), and its outcome."""
        if isinstance(self.known, Counterpart):
            worst = Adversary(self.problem, self.shape, self.radius, self.center).worst_case(z[0])
            return worst.value, worst.outcome
        totals = self.known.values + self.problem.structure.pieces.values(z, self.center[None])[0]
        outcome = self.center + self.known.points[int(totals.argmax())]
        return float(self.problem.evaluate(z, outcome[None])[0]), outcome

    def _face(self) -> ConicProgram | None:
        """The robust program with the bound as a limit, and g_0, the cost without the outcome, as its objective."""
        base = self.problem.feasible.program
        if not isinstance(self.known, Counterpart):
            pieces = self.problem.structure.pieces
            rows = np.tile(base.c, (len(pieces), 1))
            rows[:, self.problem.feasible.z_columns] += pieces.p
            allowed = 0.5 * _allowed(self.deviation, self.own.bound[0])
            level = self.own.bound[0] + allowed - base.offset - pieces.c - pieces.q @ self.center - self.known.values
            whole = sp.csr_array(sp.vstack([base.A, sp.csr_array(rows)]))
            cones = (*base.cones, Cone("nonneg", len(pieces)))
            return replace(base, A=whole, b=np.concatenate([base.b, level]), cones=cones, offset=0.0)
        at = self.known.parametric.at(self.center)
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


def _is_plain(problem: DecisionProblem) -> bool:
    """Whether worst cases are limits of the decision alone: no decision turns a direction, and g_0 is linear."""
    structure, is_linear = problem.structure, not problem.constraint_names and problem.feasible.program.P is None
    return is_linear and structure.has_pieces and structure.pieces.directions_are_fixed


def _allowed(deviation: Any, bound: Any) -> Any:
    """By how much a worst case may exceed its bound and still count as equal."""
    return SOLVED * deviation + ROUNDING * np.abs(bound)


def _contexts(placed: SetRegions) -> tuple[Array, Array]:
    """[prediction, parameters] (N, d + t), and the parameters (N, t)."""
    values = np.zeros((len(placed.centers), 0)) if placed.values is None else placed.values
    return np.hstack([placed.centers, values]), values


def _support(shape: Shape, radii: Array, directions: Array) -> Array:
    """The support (N, L) of the shape at these radii in fixed directions."""
    distinct, which = np.unique(radii, return_inverse=True)
    return np.stack([np.asarray(shape.support(directions, float(radius))) for radius in distinct])[which.ravel()]
