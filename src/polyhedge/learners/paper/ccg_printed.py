r"""Algorithm 1 with the master as printed in the paper: every scenario stays inside the set.

$$\min_{W, q, z, t, \eta}\ \eta \quad\text{s.t.}\quad g(z, \hat f + e^h) \le \eta,\ W e^h \le q\ \text{for every } h,
\quad (W, q, t) \text{ covers } c_n \text{ residuals}$$

Its value bounds nothing: `ccg.py` says why. The scenarios $e^h$ start with the prediction itself, and the worst
outcome is sought within a far box, because nothing else bounds it.
"""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.learners.paper.big_m import ModelRows, SetColumns, Standardised, add_set, standardised
from polyhedge.learners.paper.ccg_master import Cut, Limits, Master, RunResult
from polyhedge.learners.samples import Samples
from polyhedge.learners.starts import axis_box
from polyhedge.robust import Adversary
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status


def learn_as_printed(samples: Samples, limits: Limits, n_facets: int) -> RunResult:
    """Alternate between the printed master and the worst outcome, until their values meet."""
    units = standardised(samples.residuals)
    far = 2.0 * float(np.abs(units.residuals).max())
    shape, box = axis_box(samples), _far_box(samples, units, far)
    master, scenarios = Master(samples), [np.zeros(samples.problem.n_outcomes)]
    unit = abs(samples.value(shape) - samples.nominal_cost)
    status, trace = Status.STOPPED_EARLY, list[float]()
    while len(trace) < limits.max_iterations and not limits.budget.is_over:
        rows = ModelRows()
        columns = _add_set_around(rows, scenarios, units, samples.rank, n_facets, far)
        master.cuts = [Cut(i, e) for i in range(len(samples.centers)) for e in scenarios]
        answer = master.solve(rows, columns.t, limits.budget)
        if not answer.solution.status.has_solution:
            break
        W = answer.x[columns.W] / units.scale
        shape = Polyhedron.from_halfspaces(W, answer.x[columns.q] + W @ units.middle)
        worst = _worst(samples, answer.z, shape, box)
        trace.append(float(np.mean([value for value, _ in worst])))
        if trace[-1] - float(answer.levels.mean()) <= limits.tolerance * unit:
            status = Status.OPTIMAL
            break
        fresh = [e for (value, e), level in zip(worst, answer.levels, strict=True) if value > level]
        if all(min(np.abs(e - old).max() for old in scenarios) < 1e-9 for e in fresh):
            break
        scenarios += fresh
    detail = f"printed master, {len(trace)} iterations: zeta - eta certifies the decision, not the set"
    return RunResult(shape, -np.inf, status, tuple(trace), detail)


def _far_box(samples: Samples, units: Standardised, far: float) -> Polyhedron:
    W = axis_box(samples).W
    return Polyhedron.from_halfspaces(W, far + W @ units.middle)


def _add_set_around(
    rows: ModelRows, scenarios: list[Array], units: Standardised, rank: int, n_facets: int, far: float
) -> SetColumns:
    """Facets that cover `rank` residuals and contain every scenario."""
    points = (np.array(scenarios) - units.middle) / units.scale
    reach = far * len(units.scale) + float(np.abs(points[0]).sum())
    columns = add_set(rows, units.residuals, rank, n_facets, reach)
    for e in points:
        for k in range(n_facets):
            rows.at_most([*columns.W[k], columns.q[k]], [*e, -1.0], 0.0)
    return columns


def _worst(samples: Samples, z: Array, shape: Polyhedron, box: Polyhedron) -> list[tuple[float, Array]]:
    """The printed subproblem around each prediction, within the far box."""
    both = Polyhedron(np.vstack([shape.W, box.W]), np.concatenate([shape.b, box.b]))
    cases = []
    for z_i, center in zip(z, samples.centers, strict=True):
        worst = Adversary(samples.problem, both, 0.0, center).worst_case(z_i)
        cases.append((worst.value, worst.outcome - center))
    return cases
