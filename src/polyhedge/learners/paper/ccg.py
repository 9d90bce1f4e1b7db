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

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.exact.bound import WORK, Budget, below
from polyhedge.learners.paper.model import Contexts, ModelRows, bounded_directions, excess_over_selected, for_contexts
from polyhedge.learners.samples import Learner, LearnResult, Samples, standardised
from polyhedge.learners.starts import axis_box, closed, without_noise
from polyhedge.problems import NoSolutionError
from polyhedge.robust.scenarios import best_against
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Solution, Status, status_at
from polyhedge.solvers.solve import solve


@dataclass(frozen=True)
class CCG(Learner):
    r"""Alternate between a master over (z, t) and the worst outcome, until their values meet.

    Parameters
    ----------
    contexts, max_work, time_limit : as in `Learner`
    tolerance : float
        Stop when the upper bound zeta exceeds the lower bound eta by no more than this share of the spread of costs:
        how much the residuals differ in cost at the first decisions.
    max_iterations : int
        When to stop without that certificate.

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

    contexts: Contexts = "mean"
    tolerance: float = 1e-4
    max_iterations: int = 200
    max_work: float = WORK
    time_limit: float | None = None

    @standardised(each_outcome=False)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        for name in ("uncertain_constraints", "outcome_support"):
            if getattr(samples.problem, name) is not None:
                raise ValueError(f"CCG does not apply to problems with {name}. Use Descent.")
        samples, about = for_contexts(samples, self.contexts, random_state)
        return _Search(samples, self, Budget.of(self.max_work, self.time_limit)).run(about)


@dataclass(frozen=True)
class _Planned:
    """Decisions, the residuals they are planned for, and their worst costs over the hull of these."""

    z: Array
    selected: Indices
    worst: Array

    @property
    def value(self) -> float:
        return float(self.worst.mean())


class _Search:
    """Conditional cuts; the master's value is a lower bound."""

    def __init__(self, samples: Samples, settings: CCG, budget: Budget) -> None:
        self.samples, self.problem, self.settings, self.budget = samples, samples.problem, settings, budget
        self.master, self.unit = Master(samples), 0.0

    def run(self, about: str) -> LearnResult:
        """Search until the bounds meet or the budget is spent."""
        settings, budget, n_iterations = self.settings, self.budget, 0
        best = self._first_plan()
        # Where residuals cannot differ in cost, all selections cost the same, and no master is needed.
        lower = best.value if not self.unit else -np.inf
        allowed = settings.tolerance * self.unit
        while best.value - lower > allowed and n_iterations < settings.max_iterations and not budget.is_over:
            rows = ModelRows()
            t = rows.columns(self.samples.n, 0.0, 1.0, integer=True)
            rows.at_most(t, -np.ones(len(t)), -float(self.samples.rank))
            solution, z, levels = self.master.solve(rows, t, budget)
            if not solution.status.has_solution:
                break
            lower = max(lower, solution.value - solution.gap)
            plans = (
                self._separate(z, levels, np.flatnonzero(solution.x[t] > 0.5)),
                self._plan(z, self._least_harmful(z, levels)),
            )
            best = min(best, *plans, key=lambda plan: plan.value)
            n_iterations += 1
        shape = closed(self.samples, self.samples.normalised(self._shape(best)))
        value, status = self.samples.value(shape), status_at(best.value - lower, self.unit, settings.tolerance)
        lower, complaint = below(lower, value, self.unit)
        words = f"{n_iterations} iterations, {len(self.master.cuts)} scenarios, bound valid for every convex set"
        return LearnResult(
            set=shape,
            objective=value,
            status=Status.FAILED if complaint else status,
            lower_bound=lower,
            detail=f"objective and bound for {about}; {complaint or words}",
        )

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
            self.master.cuts += [Cut(i, int(j)) for j in worst]
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

    def _separate(self, z: Array, levels: Array, selected: Indices) -> _Planned:
        """The adversary: a cut for every context whose cost over the hull exceeds its level."""
        worst = self._worst_points(z, selected)
        self.master.cuts += [
            cut
            for (value, cut), level in zip(worst, levels, strict=True)
            if value > level + 0.1 * self.settings.tolerance * self.unit
        ]
        return _Planned(z, selected, np.array([value for value, _ in worst]))

    def _worst_points(self, z: Array, selected: Indices) -> list[tuple[float, Cut]]:
        costs = self._costs_at(z)[:, selected]
        worst = selected[costs.argmax(axis=1)]
        return [
            (float(value), Cut(i, int(j))) for i, (value, j) in enumerate(zip(costs.max(axis=1), worst, strict=True))
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


class Cut(NamedTuple):
    """The cost at a residual counts in a context if the residual is selected."""

    context: int
    residual: int


class Master:
    """min of the mean level over (z, t, levels) subject to cuts.

    `excess` (n,) is how far the cost at each residual can exceed a level where its cut is switched off.
    """

    def __init__(self, samples: Samples) -> None:
        self.samples, self.problem = samples, samples.problem
        low, high = bounded_directions(samples.problem, samples.problem.structure.pieces, "CCG")
        self.excess = excess_over_selected(samples.residuals, low, high, samples.rank)
        self.cuts: list[Cut] = []

    def solve(self, rows: ModelRows, t: Indices, budget: Budget) -> tuple[Solution, Array, Array]:
        """Complete rows that hold the columns t by the cuts of each context: the solution, decisions and levels."""
        centers, feasible, pieces = self.samples.centers, self.problem.feasible, self.problem.structure.pieces
        weight = 1.0 / len(centers)
        levels = rows.columns(len(centers), -np.inf, np.inf, cost=weight)
        z_columns = []
        for i, center in enumerate(centers):
            kept = [cut.residual for cut in self.cuts if cut.context == i]
            columns = rows.embed(feasible.program, weight)[feasible.z_columns]
            z_columns.append(columns)
            outcomes = center + self.samples.residuals[kept]
            slopes = np.einsum("ldp,sd->slp", pieces.Q, outcomes) + pieces.p
            for j, slope, constant in zip(kept, slopes, outcomes @ pieces.q.T + pieces.c, strict=True):
                M = float(self.excess[j])
                for values, known in zip(slope, constant, strict=True):
                    rows.at_most([*columns, levels[i], t[j]], [*values, -1.0, M], M - known)
        program = rows.program()
        n_rows = len(program.b)
        solution = solve(program, time_limit=budget.seconds, max_nodes=budget.affords(n_rows))
        budget.spend(n_rows, times=1 + solution.n_nodes)
        z, whole = solution.x[np.array(z_columns)], solution.x[levels]
        if solution.status.has_solution:  # g_0 of each decision stands in the objective, not in the rows
            u = np.zeros((len(z), self.problem.n_outcomes))
            whole = whole + self.problem.evaluate(z, u) - pieces.evaluate(z, u)
        return solution, z, whole
