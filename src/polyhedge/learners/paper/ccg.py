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
the problem: its value is $\min_{|S| = c_n}\min_z\max_{e \in hull(S)} g(z, \hat f + e)$. A point
$e^h = \sum_j p_j\epsilon_j$ of the hull of an earlier selection lies in every set that covers the residuals with
$p_j > 0$, which gives the conditional cut

$$g(z, \hat f + e^h) \le \eta + M \sum_{j : p_j > 0} (1 - t_j).$$

The master over (z, t, eta) is linear (convex) in z with n binaries and no product of variables.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.budget import WORK, Budget
from polyhedge.learners.exact.bound import below
from polyhedge.learners.paper.big_m import ModelRows
from polyhedge.learners.paper.ccg_master import Cut, Limits, Master, MasterSolution, RunResult
from polyhedge.learners.paper.ccg_printed import learn_as_printed
from polyhedge.learners.paper.miqcp import Contexts, model_contexts
from polyhedge.learners.result import LearnResult, Needs
from polyhedge.learners.samples import Samples
from polyhedge.learners.scaling import in_one_unit
from polyhedge.learners.starts import axis_box, check_n_facets, closed, without_noise
from polyhedge.problems import Curvature, DecisionProblem, NoSolutionError, Pieces
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.robust.scenarios import best_against
from polyhedge.sets import Polyhedron
from polyhedge.solvers.linear import maximise_linear
from polyhedge.solvers.program import Status, status_at
from polyhedge.solvers.solve import solve


@dataclass(frozen=True)
class CCG:
    r"""Alternate between a master over (z, t) and the worst outcome, until their values meet.

    Parameters
    ----------
    n_facets : int
        Facets of the printed master. The valid one needs no limit: see Notes.
    contexts : "mean", int, indices or None
        For which predictions decisions are planned: the mean prediction, so many random ones, these rows,
        or all.
    tolerance : float
        Stop when the upper bound zeta exceeds the lower bound eta by no more than this share of the spread of costs:
        how much the residuals differ in cost at the first decisions.
    max_iterations, max_work : int, float
        When to stop without that certificate; work is counted in rows of programs solved, about a minute for every
        six million.
    time_limit : float or None
        Seconds after which the best set so far is returned; None, so that the result never depends on the clock.
    as_printed : bool
        Use the master as printed in the paper (module docstring), within a far box, from the prediction
        as first scenario. No lower bound results.

    Notes
    -----
    *What is certified.* `lower_bound` holds for every convex set that covers c_n learning residuals,
    whatever its number of facets, for the contexts named in `detail`. It is attained, up to the tolerance:

    - costs that are maxima of affine pieces in u: by the half-spaces
      $\{e : g_l(z_i, \hat f_i + e) \le \eta_i\}$ of the planned decisions, one for each context and piece;
      the adversary is a sort of the selected residuals;
    - other convex costs: by the hull of the selected residuals; again a sort, as the vertices are residuals;
    - concave costs: by the hull as well, since its inner points count and a set outside the hull only adds
      worse ones. The adversary is a convex program over the hull, and a cut has up to d + 1 residuals.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> result = CCG().learn(Samples(residuals, centers, simplex_linear([0.0, 0.0]), alpha=0.1))
    >>> str(result.status), result.gap <= 1e-4, result.set.is_bounded
    ('optimal', True, True)
    """

    needs: ClassVar[Needs] = Needs()

    n_facets: int = 4
    contexts: Contexts = "mean"
    tolerance: float = 1e-4
    max_iterations: int = 200
    max_work: float = WORK
    time_limit: float | None = None
    as_printed: bool = False

    @in_one_unit
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        began = time.perf_counter()
        _check_supported(samples.problem)
        chosen, about = model_contexts(self.contexts, samples.centers, np.random.default_rng(random_state))
        samples = replace(samples, centers=chosen)
        samples.radius(axis_box(samples))  # too few samples for alpha are an error here, not inside a master
        limits = Limits(self.tolerance, self.max_iterations, Budget.of(self.max_work, self.time_limit))
        if self.as_printed:
            check_n_facets(self.n_facets, samples.problem.n_outcomes)
            run = learn_as_printed(samples, limits, self.n_facets)
        else:
            run = _Valid(samples, limits).run()
        shape = closed(samples, samples.normalised(run.shape))
        value = samples.value(shape)
        lower, complaint = below(run.lower_bound, value, run.unit)
        return LearnResult(
            set=shape,
            objective=value,
            status=Status.FAILED if complaint else run.status,
            seconds=time.perf_counter() - began,
            lower_bound=lower,
            trace=run.trace,
            detail=f"objective and bound for {about}; {complaint or run.detail}",
        )


def _check_supported(problem: DecisionProblem) -> None:
    for given, name in (
        (problem.uncertain_constraints, "uncertain_constraints"),
        (problem.outcome_support, "outcome_support"),
    ):
        if given is not None:
            raise ValueError(f"CCG does not apply to problems with {name}. Use Descent.")


@dataclass(frozen=True)
class _Plan:
    """Decisions, the residuals they are planned for, and their worst costs over the hull of these."""

    z: Array
    selected: Indices
    worst: Array

    @property
    def value(self) -> float:
        return float(self.worst.mean())


class _Valid:
    """Conditional cuts; the master's value is a lower bound."""

    def __init__(self, samples: Samples, limits: Limits) -> None:
        self.samples, self.problem, self.limits = samples, samples.problem, limits
        self.master, self.unit = Master(samples), 0.0

    def run(self) -> RunResult:
        limits, trace = self.limits, list[float]()
        best = self._first_policy()
        # Where residuals cannot differ in cost, all selections cost the same, and no master is needed.
        lower = best.value if self.problem.structure.has_pieces and not self.unit else -np.inf
        allowed = limits.tolerance * self.unit
        while best.value - lower > allowed and len(trace) < limits.max_iterations and not limits.budget.is_over:
            rows = ModelRows()
            t = rows.columns(self.samples.n, 0.0, 1.0, integer=True)
            rows.at_most(t, -np.ones(len(t)), -float(self.samples.rank))
            answer = self.master.solve(rows, t, limits.budget)
            if not answer.solution.status.has_solution:
                break
            lower = max(lower, answer.solution.value - answer.solution.gap)
            plans = [self._separate(answer, np.flatnonzero(answer.x[t] > 0.5))]
            if self.problem.curvature is not Curvature.CONCAVE:
                plans.append(self._plan(answer.z, self._least_harmful(answer.z, answer.levels)))
            best = min([best, *plans], key=lambda plan: plan.value)
            trace.append(best.value)
        status = status_at(best.value - lower, self.unit, limits.tolerance)
        detail = f"{len(trace)} iterations, {len(self.master.cuts)} scenarios, bound valid for every convex set"
        return RunResult(self._shape(best), lower, status, tuple(trace), detail, self.unit)

    def _first_policy(self) -> _Plan:
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
        self.unit = max(float(np.ptp(costs, axis=1).mean()), self.master.costs.reach)
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

    def _plan(self, z: Array, selected: Indices) -> _Plan:
        return _Plan(z, selected, np.array([w for w, _ in self._worst_points(z, selected)]))

    def _separate(self, answer: MasterSolution, selected: Indices) -> _Plan:
        """The adversary: a cut for every context whose cost over the hull exceeds its level."""
        worst = self._worst_points(answer.z, selected)
        for i, (value, cut) in enumerate(worst):
            if value > answer.levels[i] + 0.1 * self.limits.tolerance * self.unit:
                self.master.cuts.append(cut)
        return _Plan(answer.z, selected, np.array([value for value, _ in worst]))

    def _worst_points(self, z: Array, selected: Indices) -> list[tuple[float, Cut]]:
        if self.problem.curvature is Curvature.CONCAVE:
            return [self._worst_in_hull(i, z_i, selected) for i, z_i in enumerate(z)]
        costs = self._costs_at(z)[:, selected]
        worst = selected[costs.argmax(axis=1)]
        return [
            (float(value), Cut(i, self.samples.residuals[j], np.array([j])))
            for i, (value, j) in enumerate(zip(costs.max(axis=1), worst, strict=True))
        ]

    def _worst_in_hull(self, i: int, z: Array, selected: Indices) -> tuple[float, Cut]:
        """Maximum of a concave cost over convex combinations of residuals, with few of them (Caratheodory)."""
        E, center = self.samples.residuals[selected], self.samples.centers[i]
        p = cp.Variable(len(selected))
        gain = self.problem.cost_at(z, center + E.T @ p)
        compiled = compile_feasible_program(p, -gain, [p >= 0, cp.sum(p) == 1])
        solution = solve(compiled.program)
        if not solution.status.has_solution:
            raise RuntimeError(f"The worst outcome could not be found: {solution.status} {solution.detail}")
        weights = _few_weights(E, solution.x[compiled.z_columns])
        used = np.flatnonzero(weights)
        return solution.gap - solution.value, Cut(i, weights[used] @ E[used], selected[used])

    def _shape(self, plan: _Plan) -> Polyhedron:
        if not self.problem.structure.has_pieces:
            return self._hull(plan.selected)
        shape = self._level_sets(plan, self.problem.structure.pieces)
        if shape is not None:
            return shape
        # No outcome matters to these decisions: every set that covers the selected residuals costs the same.
        box = axis_box(self.samples)
        return Polyhedron(box.W, -(self.samples.residuals[plan.selected] @ box.W.T).max(axis=0))

    def _level_sets(self, plan: _Plan, pieces: Pieces) -> Polyhedron | None:
        """{e : every piece of every context costs at most the plan's worst}; None without any facet."""
        centers = self.samples.centers
        total = self.problem.evaluate(plan.z, centers)
        values = pieces.values(plan.z, centers)
        slack = plan.worst[:, None] - (total - values.max(axis=1))[:, None] - values
        W, q = pieces.directions(plan.z).reshape(-1, centers.shape[1]), slack.ravel()
        size = np.linalg.norm(W, axis=1)
        moving = size > 1e-9 * max(1.0, float(size.max()))
        if not moving.any():
            return None
        W, q = without_noise(W[moving] / size[moving, None]), q[moving] / size[moving]
        # One facet for each direction, the tightest; rounding finds decisions that agree up to solver noise.
        order = np.lexsort((q, *np.round(W.T, 6)))
        _, first = np.unique(np.round(W[order], 6), axis=0, return_index=True)
        return Polyhedron.from_halfspaces(W[order][first], q[order][first])

    def _hull(self, selected: Indices) -> Polyhedron:
        points = self.samples.residuals[selected]
        if points.shape[1] == 1:
            return Polyhedron.from_halfspaces([[1.0], [-1.0]], [points.max(), -points.min()])
        try:
            facets = ConvexHull(points).equations
        except QhullError as error:
            raise ValueError(
                "The selected residuals have no hull with volume, so it has no facets to return. Use Descent, or "
                "more learning samples."
            ) from error
        facets = np.unique(np.round(facets, 12), axis=0)
        return Polyhedron.from_halfspaces(facets[:, :-1], (points @ facets[:, :-1].T).max(axis=0))


def _few_weights(E: Array, weights: Array) -> Array:
    """Weights of the same mean of the rows of E with at most d + 1 of them positive: a basic solution."""
    point = np.maximum(weights, 0.0) @ E / np.maximum(weights, 0.0).sum()
    n = len(E)
    rows = np.vstack([-np.eye(n), E.T, -E.T, np.ones((1, n)), -np.ones((1, n))])
    slack = 1e-9 * (1 + np.abs(E).max())
    limits = np.concatenate([np.zeros(n), point + slack, slack - point, [1.0], [-1.0]])
    distance = np.linalg.norm(E - point, axis=1)
    _, vertices = maximise_linear(rows, limits, -distance[None])
    basic = np.where(vertices[0] > 1e-9, vertices[0], 0.0) if np.isfinite(vertices).all() else weights
    return np.asarray(basic / basic.sum())
