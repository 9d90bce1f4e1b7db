"""Robust decisions per second: `polyhedge.robust.decide` against CVXPY, context by context.

The rival is what one would write by hand: the dual counterpart as one CVXPY problem with the prediction as a
parameter (DPP, so that it is canonicalised once), solved again for each context. Both get the same learned
polyhedron, and their optimal values must agree to 1e-6 or the run fails.

    python benchmarks/decisions.py [--contexts 1000] [--rival-contexts 200]
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import cvxpy as cp
import numpy as np

from polyhedge import RobustDecider
from polyhedge.benchmark import synthetic_task
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron

TOLERANCE = 1e-6
REPEATS = 3
PACKAGES = ("polyhedge", "numpy", "scipy", "cvxpy", "highspy", "clarabel")

C = np.array([-0.08, 0.0])
BETA, OVERAGE, UNDERAGE = 0.08, 0.3, 0.7


def linear_rival(shape: Polyhedron, radius: float) -> tuple[cp.Problem, cp.Parameter]:
    """min (c + f)'z + q's  s.t.  W's = z, s >= 0: the support function of the set by its dual."""
    return _affine_rival(shape, radius, lambda z: cp.Constant(0.0))


def quadratic_rival(shape: Polyhedron, radius: float) -> tuple[cp.Problem, cp.Parameter]:
    """The same with 0.08 (z_1 - z_2)^2 added."""
    return _affine_rival(shape, radius, lambda z: BETA * cp.square(z[0] - z[1]))


def _affine_rival(
    shape: Polyhedron, radius: float, decision_cost: Callable[[cp.Variable], cp.Expression]
) -> tuple[cp.Problem, cp.Parameter]:
    z, multipliers = cp.Variable(2, nonneg=True), cp.Variable(len(shape.b), nonneg=True)
    center = cp.Parameter(2)
    cost = (C + center) @ z + (radius - shape.b) @ multipliers + decision_cost(z)
    return cp.Problem(cp.Minimize(cost), [cp.sum(z) == 1, shape.W.T @ multipliers == z]), center


def newsvendor_rival(shape: Polyhedron, radius: float) -> tuple[cp.Problem, cp.Parameter]:
    """min t  s.t.  t is above the worst case of each of the four pieces of the cost."""
    z, t, center = cp.Variable(2, nonneg=True), cp.Variable(), cp.Parameter(2)
    constraints = [cp.sum(z) == 1]
    for slope in itertools.product((-OVERAGE, UNDERAGE), repeat=2):
        multipliers = cp.Variable(len(shape.b), nonneg=True)
        constraints += [
            t >= np.array(slope) @ (center - z) + (radius - shape.b) @ multipliers,
            shape.W.T @ multipliers == np.array(slope),
        ]
    return cp.Problem(cp.Minimize(t), constraints), center


RIVALS = {
    "linear": (linear_rival, cp.HIGHS),
    "quadratic": (quadratic_rival, cp.CLARABEL),
    "newsvendor": (newsvendor_rival, cp.HIGHS),
}


def measure(objective: str, n_contexts: int, n_rival: int) -> tuple[float, float, float]:
    """Contexts per second of `decide` and of the rival, and the largest difference of their values."""
    task = synthetic_task(0, objective, sizes=(1200, 300, 300, n_contexts))
    decider = RobustDecider(task.problem, predictor=task.predictor, random_state=0)
    split = task.split
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    shape, radius = decider.set_, decider.radius_
    centers = decider.predictor_.predict(task.rows("test")[0])
    make_rival, solver = RIVALS[objective]
    problem, parameter = make_rival(shape, radius)
    solve_by_cvxpy(problem, parameter, centers[:1], solver)  # pays for the canonicalisation
    ours, theirs = [], []
    # Alternating runs see the same load of the machine; the fastest of each is the least disturbed.
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = decide(task.problem, shape, radius, centers)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        values = solve_by_cvxpy(problem, parameter, centers[:n_rival], solver)
        theirs.append(time.perf_counter() - began)
    difference = float(np.abs(found.cost_bound[: len(values)] - values).max())
    return n_contexts / min(ours), len(values) / min(theirs), difference


def solve_by_cvxpy(problem: cp.Problem, parameter: cp.Parameter, centers: np.ndarray, solver: str) -> np.ndarray:
    values = []
    for center in centers:
        parameter.value = center
        values.append(problem.solve(solver=solver))
    return np.array(values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--contexts", type=int, default=1000, help="contexts for decide()")
    parser.add_argument("--rival-contexts", type=int, default=200, help="how many of them CVXPY solves too")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}, Python {platform.python_version()}")
    print(", ".join(f"{name} {version(name)}" for name in PACKAGES))
    print(f"{'objective':<12}{'decide()/s':>12}{'CVXPY/s':>12}{'ratio':>8}{'largest difference':>22}")
    agree = True
    for objective in RIVALS:
        ours, theirs, difference = measure(objective, options.contexts, options.rival_contexts)
        print(f"{objective:<12}{ours:>12.0f}{theirs:>12.0f}{ours / theirs:>8.1f}{difference:>22.1e}")
        agree &= difference <= TOLERANCE
    if not agree:
        print(f"The optimal values differ by more than {TOLERANCE:g}.", file=sys.stderr)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
