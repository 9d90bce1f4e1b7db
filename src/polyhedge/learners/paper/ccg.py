r"""Column-and-constraint generation (Algorithm 1 of the paper), with a master that is a relaxation.

$$\min_{W, b, z, r, t}\ \max_u\ g(z, u) \quad\text{s.t.}\quad W(u - \hat f(x)) + b \le r1,\quad
W\epsilon_j + b \le (r + M(1 - t_j))1,\ 1^\top t \ge c_n,\ z \in Z$$

(the paper's Proposition 1; several contexts share W, b, r and t, and their costs are averaged).

**Why not the printed master.** It keeps every earlier worst outcome y^h *inside* the next set,
$W(y^h - \hat f) + b \le r1$, and charges its cost. But y^h was the worst outcome of an earlier set, and a better set
may well leave it out. So the printed master is no relaxation, its value eta no lower bound, and
$\zeta - \eta \le \varepsilon$ certifies only that z is robust for the last set. Besides, nothing in it rewards a small
set, and at the first iteration nothing bounds eta.

**The valid master.** A scenario may be charged only if the set cannot avoid it. A convex set that covers the
selected residuals $S = \{j : t_j = 1\}$ contains their hull, and the hull is itself a polyhedron. So (W, b) leaves
the problem: its value is $\min_{|S| = c_n}\min_z\max_{e \in hull(S)} g(z, \hat f + e)$. Where the cost is a maximum
of affine pieces in u, its maximum over the hull is at a residual. A residual counts if it is selected, which gives the
conditional cut

$$g(z, \hat f + \epsilon_j) \le \eta + M_j (1 - t_j).$$

The master over (z, t, eta) is linear (convex) in z with n binaries and no product of variables:

$$\min_{z, t, \eta}\ \frac1m\sum_i \eta_i \quad\text{s.t.}\quad
g(z_i, \hat f_i + \epsilon_j) \le \eta_i + M_j (1 - t_j)\ \text{for every cut } j \text{ of context } i$$
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.exact.bound import WORK, Budget, below
from polyhedge.learners.paper.model import (
    CentredResiduals,
    Contexts,
    ModelRows,
    add_set,
    bounded_directions,
    excess_over_selected,
    for_contexts,
)
from polyhedge.learners.samples import Learner, LearnResult, Samples, standardised
from polyhedge.learners.starts import axis_box, check_n_facets, closed, without_noise
from polyhedge.problems import NoSolutionError
from polyhedge.robust import Adversary
from polyhedge.robust.scenarios import best_against
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Solution, Status, status_at
from polyhedge.solvers.solve import solve


@dataclass(frozen=True)
class CCG(Learner):
    r"""Alternate between a master over (z, t) and the worst outcome, until their values meet.

    Parameters
    ----------
    n_facets : int
        Facets of the printed master. The valid one needs no limit: see Notes.
    contexts, max_work, time_limit : as in `Learner`
    tolerance : float
        Stop when the upper bound zeta exceeds the lower bound eta by no more than this share of the spread of costs:
        how much the residuals differ in cost at the first decisions.
    max_iterations : int
        When to stop without that certificate.
    as_printed : bool
        Use the master as printed in the paper (module docstring), within a far box, from the prediction
        as first scenario. No lower bound results.

    Notes
    -----
    *What is certified.* `lower_bound` holds for every convex set that covers c_n learning residuals,
    whatever its number of facets, for the contexts named in `detail`. The cost must be a maximum of affine pieces in u.
    The bound is attained, up to the tolerance, by the half-spaces $\{e : g_l(z_i, \hat f_i + e) \le \eta_i\}$ of the
    planned decisions, one for each context and piece. The adversary is a sort of the selected residuals.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> result = CCG().learn(Samples(residuals, centers, simplex_linear([0.0, 0.0]), alpha=0.1))
    >>> str(result.status), result.gap <= 1e-4, result.set.is_bounded
    ('optimal', True, True)
    """

    n_facets: int = 4
    contexts: Contexts = "mean"
    tolerance: float = 1e-4
    max_iterations: int = 200
    max_work: float = WORK
    time_limit: float | None = None
    as_printed: bool = False

    @standardised(each_outcome=False)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        for name in ("uncertain_constraints", "outcome_support"):
            if getattr(samples.problem, name) is not None:
                raise ValueError(f"CCG does not apply to problems with {name}. Use Descent.")
        samples, about = for_contexts(samples, self.contexts, random_state)
        budget = Budget.of(self.max_work, self.time_limit)
        if self.as_printed:
            check_n_facets(self.n_facets, samples.problem.n_outcomes)
            run = _learn_as_printed(samples, self, budget)
        else:
            run = _Valid(samples, self, budget).run()
        shape = closed(samples, samples.normalised(run.shape))
        value = samples.value(shape)
        lower, complaint = below(run.lower_bound, value, run.unit)
        return LearnResult(
            set=shape,
            objective=value,
            status=Status.FAILED if complaint else run.status,
            lower_bound=lower,
            detail=f"objective and bound for {about}; {complaint or run.detail}",
        )


class _RunResult(NamedTuple):
    """What a run of masters and adversaries ends with; `unit` is the spread of costs over the residuals."""

    shape: Polyhedron
    lower_bound: float
    status: Status
    detail: str
    unit: float = 0.0


@dataclass(frozen=True)
class _Planned:
    """Decisions, the residuals they are planned for, and their worst costs over the hull of these."""

    z: Array
    selected: Indices
    worst: Array

    @property
    def value(self) -> float:
        return float(self.worst.mean())


class _Valid:
    """Conditional cuts; the master's value is a lower bound."""

    def __init__(self, samples: Samples, settings: CCG, budget: Budget) -> None:
        self.samples, self.problem, self.settings, self.budget = samples, samples.problem, settings, budget
        self.master, self.unit = Master(samples), 0.0

    def run(self) -> _RunResult:
        settings, budget, n_iterations = self.settings, self.budget, 0
        best = self._first_plan()
        # Where residuals cannot differ in cost, all selections cost the same, and no master is needed.
        lower = best.value if not self.unit else -np.inf
        allowed = settings.tolerance * self.unit
        while best.value - lower > allowed and n_iterations < settings.max_iterations and not budget.is_over:
            rows = ModelRows()
            t = rows.columns(self.samples.n, 0.0, 1.0, integer=True)
            rows.at_most(t, -np.ones(len(t)), -float(self.samples.rank))
            answer = self.master.solve(rows, t, budget)
            if not answer.solution.status.has_solution:
                break
            lower = max(lower, answer.solution.value - answer.solution.gap)
            plans = (
                self._separate(answer, np.flatnonzero(answer.x[t] > 0.5)),
                self._plan(answer.z, self._least_harmful(answer.z, answer.levels)),
            )
            best = min(best, *plans, key=lambda plan: plan.value)
            n_iterations += 1
        status = status_at(best.value - lower, self.unit, settings.tolerance)
        detail = f"{n_iterations} iterations, {len(self.master.cuts)} scenarios, bound valid for every convex set"
        return _RunResult(self._shape(best), lower, status, detail, self.unit)

    def _first_plan(self) -> _Planned:
        """Decisions against the mean residual; cuts that bound every level from below."""
        samples = self.samples
        middle = samples.residuals.mean(axis=0)
        solved = [best_against(self.problem, (center + middle)[None]) for center in samples.centers]
        if not all(solution.status.has_solution for solution, _ in solved):
            failed = next(solution.status for solution, _ in solved if not solution.status.has_solution)
            raise NoSolutionError(
                f"A decision against the mean residual cannot be found: {failed}. Check the feasible set and the cost; "
                "a decision that lowers the cost without limit needs bounds."
            )
        z = np.array([decision for _, decision in solved])
        costs = self._costs_at(z)
        self.unit = max(float(np.ptp(costs, axis=1).mean()), float(self.master.excess.max()))
        # Every selection contains one of any n - c_n + 1 residuals.
        for i, worst in enumerate(np.argsort(-costs, axis=1)[:, : samples.n - samples.rank + 1]):
            self.master.cuts += [Cut(i, samples.residuals[j], np.array([j])) for j in worst]
        return self._plan(z, self._least_harmful(z, np.zeros(len(z))))

    def _costs_at(self, z: Array) -> Array:
        """g(z_i, f_i + eps_j) for each context i and residual j."""
        residuals = self.samples.residuals
        return np.array(
            [
                self.problem.evaluate(np.tile(z_i, (len(residuals), 1)), center + residuals)
                for z_i, center in zip(z, self.samples.centers, strict=True)
            ]
        )

    def _least_harmful(self, z: Array, levels: Array) -> Indices:
        """The c_n residuals whose largest excess over the levels is smallest."""
        excess = (self._costs_at(z) - levels[:, None]).max(axis=0)
        return np.sort(np.argsort(excess, kind="stable")[: self.samples.rank])

    def _plan(self, z: Array, selected: Indices) -> _Planned:
        return _Planned(z, selected, np.array([w for w, _ in self._worst_points(z, selected)]))

    def _separate(self, answer: MasterSolution, selected: Indices) -> _Planned:
        """The adversary: a cut for every context whose cost over the hull exceeds its level."""
        worst = self._worst_points(answer.z, selected)
        for i, (value, cut) in enumerate(worst):
            if value > answer.levels[i] + 0.1 * self.settings.tolerance * self.unit:
                self.master.cuts.append(cut)
        return _Planned(answer.z, selected, np.array([value for value, _ in worst]))

    def _worst_points(self, z: Array, selected: Indices) -> list[tuple[float, Cut]]:
        costs = self._costs_at(z)[:, selected]
        worst = selected[costs.argmax(axis=1)]
        return [
            (float(value), Cut(i, self.samples.residuals[j], np.array([j])))
            for i, (value, j) in enumerate(zip(costs.max(axis=1), worst, strict=True))
        ]

    def _shape(self, plan: _Planned) -> Polyhedron:
        """{e : every piece of every context costs at most the plan's worst}."""
        pieces, centers = self.problem.structure.pieces, self.samples.centers
        total = self.problem.evaluate(plan.z, centers)
        values = pieces.values(plan.z, centers)
        slack = plan.worst[:, None] - (total - values.max(axis=1))[:, None] - values
        W, q = pieces.directions(plan.z).reshape(-1, centers.shape[1]), slack.ravel()
        size = np.linalg.norm(W, axis=1)
        moving = size > 1e-9 * max(1.0, float(size.max()))
        if not moving.any():  # no outcome matters: every set that covers the selected residuals costs the same
            W = axis_box(self.samples).W
            return Polyhedron(W, -(self.samples.residuals[plan.selected] @ W.T).max(axis=0))
        W, q = without_noise(W[moving] / size[moving, None]), q[moving] / size[moving]
        # One facet for each direction, the tightest; rounding finds decisions that agree up to solver noise.
        order = np.lexsort((q, *np.round(W.T, 6)))
        _, first = np.unique(np.round(W[order], 6), axis=0, return_index=True)
        return Polyhedron.from_halfspaces(W[order][first], q[order][first])


def _learn_as_printed(samples: Samples, settings: CCG, budget: Budget) -> _RunResult:
    r"""Algorithm 1 with the master as printed: every scenario stays inside the set.

    $$\min_{W, q, z, t, \eta}\ \eta \quad\text{s.t.}\quad g(z, \hat f + e^h) \le \eta,\ W e^h \le q\ \text{for all } h,
    \quad (W, q, t) \text{ covers } c_n \text{ residuals}$$

    Its value bounds nothing. The scenarios $e^h$ start with the prediction itself, and the worst outcome is sought
    within a far box, because nothing else bounds it.
    """
    units = CentredResiduals.of(samples.residuals)
    far = 2.0 * float(np.abs(units.residuals).max())
    shape = axis_box(samples)
    box = Polyhedron.from_halfspaces(shape.W, far + shape.W @ units.middle)
    master, scenarios = Master(samples), [np.zeros(samples.problem.n_outcomes)]
    unit = abs(samples.value(shape) - samples.nominal_cost)
    status, n_iterations = Status.STOPPED_EARLY, 0
    while n_iterations < settings.max_iterations and not budget.is_over:
        rows = ModelRows()
        points = (np.array(scenarios) - units.middle) / units.scale
        reach = far * len(units.scale) + float(np.abs(points[0]).sum())
        columns = add_set(rows, units.residuals, samples.rank, settings.n_facets, reach)
        for e, k in product(points, range(settings.n_facets)):
            rows.at_most([*columns.W[k], columns.q[k]], [*e, -1.0], 0.0)
        master.cuts = [Cut(i, e) for i in range(len(samples.centers)) for e in scenarios]
        answer = master.solve(rows, columns.t, budget)
        if not answer.solution.status.has_solution:
            break
        W = answer.x[columns.W] / units.scale
        shape = Polyhedron.from_halfspaces(W, answer.x[columns.q] + W @ units.middle)
        both = Polyhedron(np.vstack([shape.W, box.W]), np.concatenate([shape.b, box.b]))
        worst = []
        for z, center in zip(answer.z, samples.centers, strict=True):
            case = Adversary(samples.problem, both, 0.0, center).worst_case(z)
            worst.append((case.value, case.outcome - center))
        n_iterations += 1
        if np.mean([value for value, _ in worst]) - answer.levels.mean() <= settings.tolerance * unit:
            status = Status.OPTIMAL
            break
        fresh = [e for (value, e), level in zip(worst, answer.levels, strict=True) if value > level]
        if all(min(np.abs(e - old).max() for old in scenarios) < 1e-9 for e in fresh):
            break
        scenarios += fresh
    detail = f"printed master, {n_iterations} iterations: zeta - eta certifies the decision, not the set"
    return _RunResult(shape, -np.inf, status, detail)


@dataclass
class Cut:
    """The cost at residual `point` counts in context `context` if the residual in `support` is selected, if any."""

    context: int
    point: Array
    support: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class MasterSolution:
    """Decisions (m, p) and levels (m,) of the contexts; `x` are all columns."""

    solution: Solution
    z: Array
    levels: Array
    x: Array


class Master:
    """min of the mean level over (z, t, levels) subject to cuts; the printed one also over (W, b).

    `excess` (n,) is how far the cost at each residual can exceed a level where its cut is switched off.
    """

    def __init__(self, samples: Samples) -> None:
        self.samples, self.problem = samples, samples.problem
        low, high = bounded_directions(samples.problem, samples.problem.structure.pieces, "CCG")
        self.excess = excess_over_selected(samples.residuals, low, high, samples.rank)
        self.cuts: list[Cut] = []

    def solve(self, rows: ModelRows, t: Indices, budget: Budget) -> MasterSolution:
        """Complete rows that hold the columns t (and perhaps a set) by the cuts of each context, and solve."""
        centers, feasible, pieces = self.samples.centers, self.problem.feasible, self.problem.structure.pieces
        weight = 1.0 / len(centers)
        levels = rows.columns(len(centers), -np.inf, np.inf, cost=weight)
        z_columns = []
        for i, center in enumerate(centers):
            cuts = [cut for cut in self.cuts if cut.context == i]
            columns = rows.embed(feasible.program, weight)[feasible.z_columns]
            z_columns.append(columns)
            outcomes = center + np.array([cut.point for cut in cuts])
            slopes = np.einsum("ldp,sd->slp", pieces.Q, outcomes) + pieces.p
            for cut, slope, constant in zip(cuts, slopes, outcomes @ pieces.q.T + pieces.c, strict=True):
                M = self.excess[cut.support]
                for values, known in zip(slope, constant, strict=True):
                    rows.at_most([*columns, levels[i], *t[cut.support]], [*values, -1.0, *M], M.sum() - known)
        program = rows.conic()
        n_rows = len(program.b)
        solution = solve(program, time_limit=budget.seconds, max_nodes=budget.affords(n_rows))
        budget.spend(n_rows, times=1 + solution.n_nodes)
        z, whole = solution.x[np.array(z_columns)], solution.x[levels]
        if solution.status.has_solution:  # g_0 of each decision stands in the objective, not in the rows
            u = np.zeros((len(z), self.problem.n_outcomes))
            whole = whole + self.problem.evaluate(z, u) - pieces.evaluate(z, u)
        return MasterSolution(solution, z, whole, solution.x)
