r"""Column-and-constraint generation for costs without a piece list.

The master chooses the best decision against a finite list of outcomes,
$\eta = \min_z \max_{u \in S} g(z, u)$, a lower bound; the adversary finds the worst outcome for that
decision, an upper bound $\zeta$, and adds it to S. The loop ends when $\zeta - \eta \le \varepsilon$.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, ROUNDING
from polyhedge._support.validation import Array
from polyhedge.problems import Curvature, DecisionProblem
from polyhedge.problems.checks import may_be_infeasible
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.robust.adversary import Adversary
from polyhedge.robust.recourse import BothStages
from polyhedge.robust.support import maximise
from polyhedge.sets import Shape
from polyhedge.solvers.program import Cone, Scaling, Solution, Status, status_at
from polyhedge.solvers.solve import solve

_ALL_VERTICES = 64
"""Vertices up to which all are scenarios from the start: one program instead of several rounds."""
_FAR = 1e4
"""How far a decision may go while scenarios that would hold it back are still missing."""
_SHARE = 0.1
"""Share of the tolerance that is aimed at: a solver's last digits are then no reason to say that it stopped early."""
_STARTS = 8
"""Outcomes from which worse ones are looked for before the worst is proven."""
_HOLDS = 1e-6
"""Share of a constraint's spread over the set up to which it holds."""
_NEW = 1e-10
"""Share of the set's width up to which two outcomes are one."""


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
    shape: Shape,
    radius: float,
    center: Array,
    *,
    tolerance: float = OPTIMAL,
    max_iterations: int = 200,
) -> ScenarioSolution:
    """The robust decision around one prediction; any cost, any bounded set.

    Parameters
    ----------
    problem : what is decided.
    shape, radius : the set of residuals.
    center : (d,) the prediction.
    tolerance : share of the spread of the decision's costs over the set.
    max_iterations : rounds after which the best decision so far is returned with its gap.
    """
    adversary = Adversary(problem, shape, radius, center)
    scenarios = _first_scenarios(problem, adversary)
    if scenarios is None:
        return _no_decision(problem, Status.EMPTY_SET)
    if not np.isfinite(scenarios).all():
        return _no_decision(problem, Status.UNBOUNDED_SET)
    best = _no_decision(problem, Status.FAILED)
    has_proofs = adversary.needs_proofs
    for _ in range(max_iterations):
        master, z = best_against(problem, scenarios)
        is_far = master.status is Status.UNBOUNDED
        if is_far:  # perhaps only for want of scenarios: ask the adversary about a far decision
            master, z = best_against(problem, scenarios, reach=_FAR)
        if not master.status.has_solution:
            is_robust = problem.uncertain_constraints is not None
            if master.status is not Status.INFEASIBLE or (not is_robust and may_be_infeasible(problem)):
                return _no_decision(problem, master.status, master.detail)
            if is_robust:
                detail = "No decision satisfies uncertain_constraints for all outcomes of the set"
                return _no_decision(problem, master.status, detail)
            detail = f"{master.detail} is the solver's answer, but there are feasible decisions"
            return _no_decision(problem, Status.FAILED, detail)
        if has_proofs and not is_far:
            # Bad outcomes are cheap to find: the proof that there is none left is asked for last.
            costs = problem.evaluate(np.tile(z, (len(scenarios), 1)), scenarios)
            bad = adversary.climbed(z, scenarios[np.argsort(-costs)[:_STARTS]])
            if bad.value > master.value + master.gap + tolerance * _size(problem, z, scenarios, master):
                scenarios = np.vstack([scenarios, bad.outcome])
                continue
        worst = adversary.worst_case(z)
        violated = _violations(problem, adversary, z)
        lower = -np.inf if is_far else master.value - master.gap
        if not len(violated) and not worst.value >= best.value:
            best = ScenarioSolution(z, worst.value, worst.outcome, Status.STOPPED_EARLY, np.inf)
        gap, size = max(best.value - lower, 0.0), _size(problem, z, scenarios, master)
        status = status_at(gap, size, tolerance)
        if np.isfinite(gap) and gap <= _SHARE * tolerance * size + worst.gap:
            break
        fresh = np.vstack([worst.outcome[None], violated])
        distance = np.abs(scenarios[:, None] - fresh[None]).max(axis=2).min(axis=0)
        if (distance <= _NEW * np.ptp(scenarios, axis=0).max(initial=0.0) + ROUNDING * np.abs(fresh).max()).all():
            if is_far:
                return _no_decision(problem, Status.UNBOUNDED)
            break
        scenarios = np.vstack([scenarios, fresh])
    if best.status is Status.FAILED:
        return best
    return replace(best, status=status, gap=gap, scenarios=scenarios)


def _size(problem: DecisionProblem, z: Array, scenarios: Array, master: Solution) -> float:
    """How far costs differ over the outcomes so far and their mean (where they do not, the size of the master's costs).

    The rounding of outcomes, and hence of their costs, is added.
    """
    scenarios = np.vstack([scenarios, scenarios.mean(axis=0)])
    costs = problem.evaluate(np.tile(z, (len(scenarios), 1)), scenarios)
    cost_range, value = float(np.nanmax(costs) - np.nanmin(costs)), float(np.nanmax(np.abs(costs)))
    wide = float(np.ptp(scenarios, axis=0).max(initial=0.0))
    digits = float(np.abs(scenarios).max(initial=0.0)) / wide if wide else 1.0
    return (cost_range or master.size) * (1 + ROUNDING / OPTIMAL * digits) + ROUNDING / OPTIMAL * value


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
    is_listed = problem.curvature is Curvature.CONVEX and adversary.has_vertices
    if is_listed and len(adversary.vertices) <= _ALL_VERTICES:
        return adversary.vertices
    return adversary.center + extremes.points


def best_against(problem: DecisionProblem, scenarios: Array, *, reach: float | None = None) -> tuple[Solution, Array]:
    """The master: the decision with the least maximum cost over a finite list of outcomes (S, d).

    `reach` bounds the entries of the decision, in units of the program (see `Scaling`).
    """
    if problem.has_recourse:
        return BothStages(problem).solve(scenarios, worst=True, reach=reach)
    variables, scenarios = problem.written.variables, problem.with_known_outcome_sign(scenarios)
    costs = [problem.cost_at(None, u) for u in scenarios]
    worst = cp.maximum(*costs) if len(costs) > 1 else costs[0]
    rows = [*problem.written.certain, *(row for u in scenarios for row in problem.constraints_at(u))]
    feasible = compile_feasible_program(variables, worst, rows)
    program, z = feasible.program, feasible.z_columns
    if reach is not None:
        limits = reach * Scaling.of(program).columns[z]
        pick = sp.csr_array((np.ones(len(z)), (np.arange(len(z)), z)), shape=(len(z), len(program.c)))
        program = replace(
            program,
            A=sp.vstack([program.A, pick, -pick], format="csr"),
            b=np.concatenate([program.b, limits, limits]),
            cones=(*program.cones, Cone("nonneg", 2 * len(z))),
        )
    solution = solve(program)
    return solution, solution.x[z]


def _violations(problem: DecisionProblem, adversary: Adversary, z: Array) -> Array:
    """Outcomes of the set at which an uncertain constraint does not hold for this decision."""
    outcomes = [np.zeros((0, problem.n_outcomes))]
    for pieces, part in zip(problem.uncertain_rows, problem.row_parts(z), strict=True):
        certificate = maximise(adversary.form, pieces.directions(z[None])[0])
        at_center = pieces.values(z[None], adversary.center[None])[0]
        totals = certificate.values + at_center + part
        worst = int(np.argmax(totals))
        terms = (
            np.abs(pieces.p[worst] * z).sum() + np.abs(pieces.directions(z[None])[0, worst] * adversary.center).sum()
        )
        allowed = _HOLDS * float(np.abs(certificate.values).max()) + ROUNDING * float(terms + abs(part))
        if totals[worst] > allowed:
            outcomes.append((adversary.center + certificate.points[worst])[None])
    return np.vstack(outcomes)
