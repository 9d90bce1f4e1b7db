r"""Column-and-constraint generation for costs without a piece list.

The master chooses the best decision against a finite list of outcomes,
$\eta = \min_z \max_{u \in S} g(z, u)$, a lower bound; the adversary finds the worst outcome for that
decision, an upper bound $\zeta$, and adds it to S. The loop ends when $\zeta - \eta \le \varepsilon$.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np

from polyhedge._validation import Array
from polyhedge.problems import Curvature, DecisionProblem
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.robust.adversary import Adversary
from polyhedge.robust.support import maximise
from polyhedge.sets import UncertaintySet
from polyhedge.solvers.program import Solution, Status
from polyhedge.solvers.solve import solve

_ALL_VERTICES = 64
_FAR = 1e4


@dataclass(frozen=True)
class ScenarioSolution:
    """A decision with lower bound eta and upper bound zeta = `value` of its worst-case cost."""

    z: Array
    value: float
    outcome: Array
    status: Status
    gap: float
    detail: str = ""
    scenarios: Array = field(default_factory=lambda: np.zeros((0, 0)))


def decide_by_scenarios(
    problem: DecisionProblem,
    shape: UncertaintySet,
    radius: float,
    center: Array,
    *,
    tolerance: float = 1e-7,
    max_iterations: int = 200,
) -> ScenarioSolution:
    """The robust decision around one prediction; any cost, any bounded set."""
    adversary = Adversary(problem, shape, radius, center)
    scenarios = _first_scenarios(problem, adversary)
    if scenarios is None:
        return _no_decision(problem, Status.EMPTY_SET)
    if not np.isfinite(scenarios).all():
        return _no_decision(problem, Status.UNBOUNDED_SET)
    best = _no_decision(problem, Status.FAILED)
    for _ in range(max_iterations):
        master, z = best_against(problem, scenarios)
        is_far = master.status is Status.UNBOUNDED
        if is_far:  # perhaps only for want of scenarios: ask the adversary about a far decision
            master, z = best_against(problem, scenarios, reach=_FAR)
        if not master.status.has_solution:
            return _no_decision(problem, master.status, _why_no_master(problem, master))
        worst = adversary.worst_case(z)
        violated = _violations(problem, adversary, z, tolerance)
        lower = -np.inf if is_far else master.value - master.gap
        if not len(violated) and not worst.value >= best.value:
            best = ScenarioSolution(z, worst.value, worst.outcome, Status.STOPPED_EARLY, np.inf)
        gap = max(best.value - lower, 0.0)
        allowed = tolerance * max(1.0, abs(best.value))
        is_exact = np.isfinite(gap) and gap <= 10 * allowed
        status = Status.OPTIMAL if is_exact else Status.STOPPED_EARLY
        if np.isfinite(gap) and gap <= allowed + worst.gap:
            return _with(best, gap, status, scenarios)
        fresh = np.vstack([worst.outcome[None], violated])
        if not _adds_something(scenarios, fresh):
            if is_far:
                return _no_decision(problem, Status.UNBOUNDED)
            return _with(best, gap, status, scenarios)
        scenarios = np.vstack([scenarios, fresh])
    return _with(best, gap, Status.STOPPED_EARLY, scenarios)


def _with(best: ScenarioSolution, gap: float, status: Status, scenarios: Array) -> ScenarioSolution:
    if best.status is Status.FAILED:
        return best
    return ScenarioSolution(best.z, best.value, best.outcome, status, gap, best.detail, scenarios)


def _why_no_master(problem: DecisionProblem, master: Solution) -> str:
    if master.status is Status.INFEASIBLE and problem.uncertain_constraints is not None:
        return "No decision satisfies uncertain_constraints for all outcomes of the set"
    return master.detail


def _no_decision(problem: DecisionProblem, status: Status, detail: str = "") -> ScenarioSolution:
    value = {Status.UNBOUNDED_SET: np.inf, Status.UNBOUNDED: -np.inf, Status.FAILED: np.inf}.get(status, np.nan)
    nan = np.full(problem.n_decisions, np.nan)
    return ScenarioSolution(nan, value, np.full(problem.n_outcomes, np.nan), status, np.inf, detail)


def _first_scenarios(problem: DecisionProblem, adversary: Adversary) -> Array | None:
    """All vertices where they are few and the cost is convex, else the extremes along the axes."""
    axes = np.eye(problem.n_outcomes)
    extremes = maximise(adversary.form, np.vstack([axes, -axes]))
    if np.isneginf(extremes.values).any():
        return None
    if not np.isfinite(extremes.values).all():
        return np.full((1, problem.n_outcomes), np.inf)
    if problem.curvature is Curvature.CONVEX and adversary.has_vertices:
        vertices = adversary.vertices()
        if len(vertices) <= _ALL_VERTICES:
            return vertices
    return adversary.center + extremes.points


def best_against(problem: DecisionProblem, scenarios: Array, *, reach: float | None = None) -> tuple[Solution, Array]:
    """The master: the decision with the least maximum cost over a finite list of outcomes (S, d).

    `reach` bounds the entries of the decision.
    """
    variables, scenarios = problem.written.variables, problem.with_known_outcome_sign(scenarios)
    costs = [problem.cost_at(None, u) for u in scenarios]
    worst = cp.maximum(*costs) if len(costs) > 1 else costs[0]
    rows = [*problem.written.certain, *(row for u in scenarios for row in problem.constraints_at(u))]
    rows += [] if reach is None else [row for z in variables for row in (z <= reach, z >= -reach)]
    feasible = compile_feasible_program(variables, worst, rows)
    solution = solve(feasible.program)
    return solution, solution.x[feasible.z_columns]


def _violations(problem: DecisionProblem, adversary: Adversary, z: Array, tolerance: float) -> Array:
    """Outcomes of the set at which an uncertain constraint does not hold for this decision."""
    found = [np.zeros((0, problem.n_outcomes))]
    for pieces, part in zip(problem.uncertain_rows, problem.row_parts(z), strict=True):
        certificate = maximise(adversary.form, pieces.directions(z[None])[0])
        totals = certificate.values + pieces.values(z[None], adversary.center[None])[0] + part
        worst = int(np.argmax(totals))
        if totals[worst] > tolerance * 10:
            found.append((adversary.center + certificate.points[worst])[None])
    return np.vstack(found)


def _adds_something(scenarios: Array, fresh: Array) -> bool:
    distance = np.abs(scenarios[:, None] - fresh[None]).max(axis=2).min(axis=0)
    return bool((distance > 1e-10 * (1 + np.abs(fresh).max())).any())
