r"""Decisions that keep uncertain constraints with a margin, by a program for each row.

$$z_t(x) = \arg\min_{z \in Z}\ g_0(z) + \mathrm{mean}_i\,[\,g(z, c + s\,e_i) - g_0(z)\,]
\quad\text{s.t.}\quad \mathrm{CVaR}_{\tau,i}\,[\,h_r(z, c + t\,s_r\,e_{r,i})\,] \le 0 \ \text{ for every } r$$

The uncertain constraints are $h_r(z, u) \le 0$. The points $e_i$ of the distribution have mean zero here, c is the
mean of the distribution at x and s its spread. Margins are in proportion to the error of each constraint: $s_r$ is a
forest of the sizes of its residuals, and $e_{r,i}$ are the residuals divided by it, with mean zero. At t = 0 the mean
is trusted, and a larger t asks for more. The tail of a constraint is one convex and positively homogeneous function for
all rows and all margins t (`risk.py`), so that cuts found once serve the whole path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import all_optimal
from polyhedge.planning.bases import least_from_basis, least_integers
from polyhedge.planning.corners import Corners, MovingProgram
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.programs import solver_of, with_cuts
from polyhedge.planning.residual_distributions import (
    MOST_POINTS,
    DevelopmentRows,
    ResidualDistribution,
    fit_spread,
    padded,
    within,
)
from polyhedge.planning.risk import Cuts, JointCost, Risk, distinct_cuts, first_cuts, lacking_cuts
from polyhedge.predictors.trees import Forest
from polyhedge.problems import DecisionProblem
from polyhedge.problems.feasible_set import FeasibleProgram
from polyhedge.robust import decide_knowing
from polyhedge.robust.threads import in_order
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status
from polyhedge.solvers.solve import IntegerSolver, solve

Statuses = NDArray[np.object_]
_PART = 256
"""Rows that one solver takes, together as far as possible, and else one after the other from its beginning."""
_BASES, _MOST_COLUMNS = 2, 32
"""Rows of a part whose bases others start from, and columns beyond which a solver is as quick."""
_ROUNDS, _ROWS = 8, 24
"""Rounds in which cuts are looked for, and rows they are looked for at."""
_MARGINS = (0.4, 1.0, 1.8, 3.0)
"""Margins at which cuts are looked for, in turn."""


@stored("planner with margins")
@dataclass(frozen=True, eq=False)
class MarginPlanner:
    """Least mean cost with margins, frozen.

    Attributes
    ----------
    problem : what is decided.
    distribution : of the outcome.
    cuts, limits : lower bounds of the mean cost, and of the tails of the constraints, whose `term` is the constraint.
    reference : (d + t,) a usual context, [prediction, parameters]; programs are set up there.
    spread : forest of the s_r; None for 1.
    """

    problem: PlanningProblem
    distribution: ResidualDistribution
    cuts: Cuts
    limits: Cuts
    reference: Array
    spread: Forest | None = None

    def __post_init__(self) -> None:
        parts = [cuts for cuts in (self.cuts, self.limits) if len(cuts)]
        if self.reference.ndim != 1 or any(cuts.C.shape[2] != len(self.reference) for cuts in parts):
            raise ValueError("The cuts of a path must be about the outcomes and parameters of its reference.")
        if self.spread is not None and not self.spread.fits(self.distribution.points.shape[1], self.n_limits):
            raise ValueError("The forest of margins must look at the prediction and say a size for each constraint.")

    @cached_property
    def n_limits(self) -> int:
        """How many uncertain constraints there are."""
        return len(limits_of(self.problem.problem))

    @cached_property
    def shift(self) -> Array:
        """The mean of the distribution's points (d,)."""
        return np.asarray(self.distribution.points.mean(axis=0))

    @cached_property
    def cost(self) -> JointCost:
        """The joint part of the cost over the points, seen from their mean."""
        n_values = len(self.reference) - self.distribution.points.shape[1]
        return JointCost(self.problem.joint, padded(self.distribution.points - self.shift, n_values))

    @cached_property
    def _sizes(self) -> JointCost:
        """The sizes of the terms of the joint part, as a cost over one point, the mean."""
        return JointCost(self.cost.total.sizes(), np.zeros((1, len(self.reference))))

    def contexts(self, X: Any, centers: Array, values: Array) -> tuple[Array, Array]:
        """[mean of the distribution, parameters] (N, d + t) and spreads (N, 1 + R): s and the s_r."""
        mean, scales = self.distribution.at(X, centers)
        own = np.ones((len(mean), self.n_limits)) if self.spread is None else within(self.spread(X, centers))
        return np.hstack([mean + scales[:, None] * self.shift, values]), np.column_stack([scales, own])

    def at(
        self, contexts: Array, scales: Array, margins: Array, values: Array, n_jobs: int | None = None
    ) -> tuple[Array, Statuses]:
        """Decisions (N, p) where contexts and spreads are known, with margins t (N,), and how each was found (N,).

        NaN where there is no decision. A status is proven: no solver is believed that a decision is the best, or that
        there is none.
        """
        z, status = np.full((len(contexts), self.problem.problem.n_decisions), np.nan), all_optimal(len(contexts))
        rest = np.arange(len(contexts))
        if self._corners is not None:
            z, arrived = self._corners(np.column_stack([contexts, scales[:, :1], margins[:, None] * scales[:, 1:]]))
            rest = np.flatnonzero(~arrived)
        parts = [rest[k : k + _PART] for k in range(0, len(rest), _PART)]

        def work(part: Indices) -> list[tuple[Array, Status]]:
            return self._part(contexts[part], scales[part], margins[part], values[part])

        for part, decided in zip(parts, in_order(work, parts, n_jobs=n_jobs), strict=True):
            for i, (one, found) in zip(part, decided, strict=True):
                z[i], status[i] = one, found
        return z, status

    @cached_property
    def _corners(self) -> Corners | None:
        """The corners that all rows and margins share; None where they differ in more than limits."""
        return None if self.problem.problem.parameters else _Programs(self, self.problem.problem, None).corners()

    def _part(self, contexts: Array, scales: Array, margins: Array, values: Array) -> list[tuple[Array, Status]]:
        problem, decided = self.problem.problem, list[tuple[Array, Status]]()
        if not problem.parameters:
            return _Programs(self, problem, None).decide_all(contexts, scales[:, 0], margins[:, None] * scales[:, 1:])
        programs, key = None, b""
        for context, scale, margin, value in zip(contexts, scales, margins, values, strict=True):
            if programs is None or value.tobytes() != key:
                programs, key = _Programs(self, problem.at_values(value), value), value.tobytes()
            decided.append(programs.decide(context, float(scale[0]), margin * scale[1:]))
        return decided

    def planned(self, z: Array, contexts: Array, scales: Array, values: Array) -> tuple[Array, Array, Array]:
        """Means and standard deviations of costs (N,), and sizes of the terms that they are sums of; NaN without z."""
        moments = np.full((3, len(z)), np.nan)
        rows = np.flatnonzero(np.isfinite(z).all(axis=1))
        z, contexts = z[rows], contexts[rows]
        mean, deviation = np.empty(len(z)), np.empty(len(z))
        for part in self.cost.blocks(len(z)):
            costs = self.cost.samples(z[part], contexts[part], scales[rows[part], 0])
            mean[part], deviation[part] = costs.mean(axis=1), costs.std(axis=1)
        alone = self.problem.alone(z, values[rows])
        sizes = self._sizes.samples(np.abs(z), np.abs(contexts), np.ones(len(z)))[:, 0] + np.abs(alone)
        moments[:, rows] = mean + alone, deviation, sizes
        return moments[0], moments[1], moments[2]


def takes_margins(problem: DecisionProblem) -> bool:
    """Whether cost and uncertain constraints have the form that plans with margins need."""
    second = problem.second_stage
    is_planned = not problem.has_recourse or (second is not None and second.moves is None)
    return is_planned and problem.first_stage.structure.has_maxima and problem._uncertain is not None


def limits_of(problem: DecisionProblem) -> list[Any]:
    """The joint parts of the uncertain constraints over [outcome, parameters]; an error where they have none."""
    if problem._uncertain is None:
        raise ValueError("Parameters must enter the uncertain constraints linearly.")
    return [split.joint_part.merged() for split in problem._uncertain.splits]


def fit_margins(
    problem: PlanningProblem, distribution: ResidualDistribution, level: float, rows: DevelopmentRows, seed: int
) -> MarginPlanner:
    """The planner with the cuts that an even choice of development rows needs, relaxed if there are integers."""
    spread, points = fit_limits(problem.problem, distribution, rows, seed)
    some, n_values = rows.thinned(_ROWS), rows.values.shape[1]
    nowhere, values = np.zeros(rows.centers.shape[1] + n_values), some.values
    bare = MarginPlanner(problem, distribution, _NO_CUTS, _NO_CUTS, nowhere, spread)
    contexts, spreads = bare.contexts(some.X, some.centers, values)
    margins = np.resize(_MARGINS, len(some))
    risks = [(bare.cost, Risk(), spreads[:, 0])]
    for total, scaled, sizes in zip(limits_of(problem.problem), points, spreads[:, 1:].T, strict=True):
        risks.append((JointCost(total, padded(scaled, n_values)), Risk(level), sizes * margins))
    all_cuts = [first_cuts(cost, risk, contexts, sizes, problem.usual_decision) for cost, risk, sizes in risks]
    is_open = np.ones(len(some), dtype=bool)
    for _ in range(_ROUNDS):
        own = np.flatnonzero(is_open)
        planner = replace(_with(bare, all_cuts, np.median(contexts, axis=0)), problem=problem.relaxed)
        z, _ = planner.at(contexts[own], spreads[own], margins[own], values[own], n_jobs=1)
        own, z = own[np.isfinite(z).all(axis=1)], z[np.isfinite(z).all(axis=1)]
        if not len(own):  # no row has a decision: its status says so
            break
        is_open[:] = False
        for k, (cost, risk, sizes) in enumerate(risks):
            for lacking, more in lacking_cuts(all_cuts[k], cost, risk, z, contexts[own], sizes[own]):
                is_open[own[lacking]] = True
                all_cuts[k] = distinct_cuts(Cuts.joined([all_cuts[k], more]))
        if not is_open.any():
            break
    return _with(bare, all_cuts, np.median(contexts, axis=0))


def fit_limits(
    problem: DecisionProblem, distribution: ResidualDistribution, rows: DevelopmentRows, seed: int
) -> tuple[Forest | None, list[Array]]:
    """The forest of the s_r, None for a uniform distribution, and the points (n, d) of each constraint.

    The residual of a constraint is taken at the best decision of a usual outcome.
    """
    totals = limits_of(problem)
    if not distribution.complexity:
        return None, [distribution.points - distribution.points.mean(axis=0)] * len(totals)
    residuals = distribution.residuals(rows, seed)
    usual = np.median(np.hstack([rows.outcomes, rows.values]), axis=0)[None]
    z = np.nan_to_num(decide_knowing(problem, usual[:, : problem.n_outcomes], usual[:, problem.n_outcomes :])[0])
    at = [np.hstack([outcomes, rows.values]) for outcomes in (rows.outcomes, rows.outcomes - residuals)]
    sizes = np.empty((len(rows), len(totals)))
    for r, total in enumerate(totals):
        h = JointCost(total, np.zeros(usual.shape))
        came, expected = (h.samples(np.tile(z, (len(rows), 1)), own, np.ones(len(rows)))[:, 0] for own in at)
        sizes[:, r] = np.abs(came - expected)
    means = sizes.mean(axis=0)
    spread, predicted = fit_spread(rows, sizes / np.where(means > 0, means, 1.0), seed)
    kept = evenly_chosen(len(rows), MOST_POINTS)
    points = [residuals[kept] / own[kept, None] for own in predicted.T]
    return spread, [own - own.mean(axis=0) for own in points]


_NO_CUTS = Cuts(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros((0, 1, 0)), np.zeros(0, dtype=np.int64))


def _with(bare: MarginPlanner, all_cuts: Sequence[Cuts], reference: Array) -> MarginPlanner:
    """The planner with cuts of the cost, and of all constraints one after the other."""
    of_rows = [replace(cuts, term=np.full(len(cuts), r)) for r, cuts in enumerate(all_cuts[1:])]
    limits = Cuts.joined(of_rows) if of_rows else all_cuts[0].take(np.zeros(0, dtype=np.int64))
    return replace(bare, cuts=all_cuts[0], limits=limits, reference=reference)


class _Programs:
    """The programs of one problem without parameters; linear ones are set up once, and their numbers changed."""

    def __init__(self, planner: MarginPlanner, problem: DecisionProblem, values: Array | None) -> None:
        self.planner, self.feasible, self.n = planner, problem.feasible, problem.n_decisions
        self.reference = planner.reference.copy()
        if values is not None:
            self.reference[len(self.reference) - len(values) :] = values
        program = self.feasible.program
        self.is_linear = program.is_linear
        self.solver: LinearSolver | IntegerSolver | None = None

    def corners(self) -> Corners | None:
        """The corners of the program at [context, spread, margins of the constraints]; None if not only limits move."""
        cuts, limits, n_limits = self.planner.cuts, self.planner.limits, self.planner.n_limits
        if not self.is_linear or _moving(cuts).any() or _moving(limits).any():
            return None
        starts = np.array([[*self.reference, 1.0, *([margin] * n_limits)] for margin in _MARGINS])
        G, H = cuts.at(self.reference, 1.0), limits.at(self.reference, _MARGINS[0])
        solver = self._changed(G, H)
        if isinstance(solver, IntegerSolver):
            return None
        slope, b = np.zeros((len(solver.program.b), starts.shape[1])), solver.program.b.copy()
        of_cuts, of_limits = np.split(self.rows, [len(cuts)])
        for rows, one in ((of_cuts, cuts), (of_limits, limits)):
            b[rows], slope[rows, : len(self.reference)] = -one.A[:, 0], -one.C[:, 0]
        slope[of_cuts, len(self.reference)] = -cuts.B[:, 0]
        slope[of_limits, len(self.reference) + 1 + limits.term] = -limits.B[:, 0]
        origin = np.concatenate([self.reference, np.zeros(1 + n_limits)])
        whole = replace(solver.program, b=b + slope @ origin)
        columns = self.feasible.z_columns
        moving = MovingProgram.of(whole, columns, slope, origin, solver.scaling, moves_limits=True)
        return Corners(moving, solver, starts)

    def decide_all(self, contexts: Array, scales: Array, margins: Array) -> list[tuple[Array, Status]]:
        """Decisions of rows, and how they were found: most are found together from the bases of a few."""
        decided, rest, n_bases = dict[int, tuple[Array, Status]](), np.arange(len(contexts)), 0
        while len(rest):
            i, n_bases = int(rest[0]), n_bases + 1
            decided[i] = self.decide(contexts[i], scales[i], margins[i])
            if n_bases <= _BASES:
                z, status = self._from_basis(contexts[rest], scales[rest], margins[rest])
                own = np.flatnonzero(status != Status.FAILED)
                decided |= {int(rest[k]): (z[k], status[k]) for k in own}
            rest = np.setdiff1d(rest, list(decided))
        return [decided[i] for i in range(len(contexts))]

    def _from_basis(self, contexts: Array, scales: Array, margins: Array) -> tuple[Array, Statuses]:
        """Decisions (N, p) of rows from the last basis, and statuses (N,): FAILED where nothing is proven."""
        z, status = np.full((len(contexts), self.n), np.nan), np.full(len(contexts), Status.FAILED, dtype=object)
        solver, integer = self.solver, self.feasible.program.integer
        if isinstance(solver, IntegerSolver):
            solver = None if solver.search is None else solver.relaxation
        if solver is None or len(solver.scaling.columns) > _MOST_COLUMNS:
            return z, status
        if len(integer):  # the relaxation was last solved with integers put in
            solver.solve_cold()
        active, scaling = solver.active_rows(), solver.scaling
        if active is None or (active | solver.is_equation).sum() != len(scaling.columns):
            return z, status
        limits, program = self.planner.limits, solver.program
        numbers = [
            one.A + sizes[:, :, None] * one.B + np.einsum("kij,nj->nki", one.C, contexts)
            for one, sizes in ((self.planner.cuts, scales[:, None]), (limits, margins[:, limits.term]))
        ]
        changed = np.concatenate(numbers, axis=1)
        A, b = np.tile(program.A.toarray(), (len(z), 1, 1)), np.tile(program.b, (len(z), 1))
        b[:, self.rows] = -changed[:, :, 0]
        row, column = self.moving
        A[:, self.rows[row], self.feasible.z_columns[column]] = changed[:, row, 1 + column]
        A *= scaling.rows[:, None] * scaling.columns
        c = scaling.columns * program.c
        bases = np.tile(np.flatnonzero(active | solver.is_equation), (len(z), 1))
        given = A, scaling.rows * b, c / np.abs(c).max(), solver.is_equation, bases
        x, is_best, is_empty = least_integers(*given, integer) if len(integer) else least_from_basis(*given)[:3]
        status[is_best], status[is_empty] = Status.OPTIMAL, Status.INFEASIBLE
        return (scaling.columns * x)[:, self.feasible.z_columns], status

    def decide(self, context: Array, scale: float, margins: Array) -> tuple[Array, Status]:
        limits = self.planner.limits
        G, H = self.planner.cuts.at(context, scale), limits.at(context, margins[limits.term, None])
        solution = self._linear(G, H) if self.is_linear else solve(self._program(G, H))
        if solution.status is Status.UNBOUNDED:  # of equally good decisions without end none may have the least sum
            solution = solve(self._program(G, H, breaks_ties=False))
        has_one = solution.status.has_solution
        return solution.x[self.feasible.z_columns] if has_one else np.full(self.n, np.nan), solution.status

    def _program(self, G: Array, H: Array, *, breaks_ties: bool = True) -> ConicProgram:
        feasible, term = self.feasible, self.planner.cuts.term
        program = with_cuts(feasible.program, feasible.z_columns, G[:, 1:], G[:, 0], term, breaks_ties=breaks_ties)
        return with_limits(program, feasible, H, self.planner.limits.term)

    def _linear(self, G: Array, H: Array) -> Solution:
        solver = self._changed(G, H)
        return solver.solve_cold() if len(self.entries) else solver.solve()

    def _changed(self, G: Array, H: Array) -> LinearSolver | IntegerSolver:
        """The solver with the numbers of a row."""
        if self.solver is None:
            self._set_up()
        assert self.solver is not None
        changed = np.vstack([G, H])
        self.solver.program.b[self.rows] = -changed[:, 0]
        self.solver.change_entries(self.entries, changed[:, 1:][self.moving])
        return self.solver

    def _set_up(self) -> None:
        """The program at the reference, with room for every number that a row can change."""
        cuts, limits, reference = self.planner.cuts, self.planner.limits, self.reference
        program = self._program(cuts.at(reference, 1.0), limits.at(reference, 1.0))
        k = len(cuts) + len(limits)
        self.rows = np.arange(len(program.b) - k, len(program.b))
        self.moving = np.nonzero(np.vstack([_moving(cuts), _moving(limits)]))
        at = self.rows[self.moving[0]], self.feasible.z_columns[self.moving[1]]
        A = _with_room(program.A, *at)
        places = sp.csr_array((np.arange(1, A.nnz + 1), A.indices, A.indptr), shape=A.shape)
        self.entries = np.asarray(places[at]).ravel() - 1 if len(at[0]) else np.zeros(0, dtype=np.int64)
        self.solver = solver_of(replace(program, A=A), self.rows)


def _moving(cuts: Cuts) -> Mask:
    """Which slopes (K, p) of cuts differ from row to row."""
    return np.asarray((cuts.B[:, 1:] != 0) | (cuts.C[:, 1:] != 0).any(axis=2))


def _with_room(A: sp.csr_array, rows: Indices, columns: Indices) -> sp.csr_array:
    """The matrix with an entry stored at each of these places, a zero where there was none."""
    coo = A.tocoo()
    entries = np.concatenate([coo.data, np.zeros(len(rows))])
    at = np.concatenate([coo.row, rows]), np.concatenate([coo.col, columns])
    wider = sp.coo_array((entries, at), shape=A.shape)
    wider.sum_duplicates()
    return sp.csr_array(wider).sorted_indices()


def with_limits(program: ConicProgram, feasible: FeasibleProgram, H: Array, rows: Indices) -> ConicProgram:
    """The program with the rows [1, z] H_k + g_r(z) <= 0, where g_r is the part of constraint r in z alone."""
    if not len(H):
        return program
    entries = np.zeros((len(H), len(program.c)))
    entries[:, feasible.z_columns] = H[:, 1:]
    column = feasible.epigraph_columns[rows]
    entries[np.flatnonzero(column >= 0), column[column >= 0]] = 1.0
    A = sp.csr_array(sp.vstack([program.A, sp.csr_array(entries)]))
    b = np.concatenate([program.b, -H[:, 0]])
    return replace(program, A=A, b=b, cones=(*program.cones, Cone("nonneg", len(H))))
