"""References: decisions without a set, between which every robust method lies.

They promise nothing, so coverage and volume are not defined (NaN). Their "worst-case cost" is the cost they plan with:
at the prediction, on average over the residuals, or at the outcome itself; their premium is that cost minus the
nominal one.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from polyhedge.problems import DecisionProblem, Pieces, SumOfMaxima
from polyhedge.robust import decide_knowing
from polyhedge.solvers.program import Cone, Solution
from polyhedge.solvers.solve import solve
from polyhedge_study.baselines.fitted import fit_predictor
from polyhedge_study.inside import Array
from polyhedge_study.measure import Measured
from polyhedge_study.tasks import Task

_N_BISECTIONS = 50
"""Until the position of a decision in [0, 1] is known to the last bits."""
_CHUNK = 100
"""Contexts that are bisected together, each with all its outcomes and pieces in memory."""
_MAX_CUTS = 300
"""Rounds of cuts: what has not converged by then is taken as it is."""
_ACCURACY = 1e-7
"""Relative gap at which cuts end."""


def nominal(task: Task, alpha: float, seed: int) -> Measured:
    """Decide as if the prediction were true; `alpha` and `seed` are not used."""
    fitted = fit_predictor(task)
    return _measure(task, fitted.centers("test"), *decide_knowing(task.problem, fitted.centers("test")), 0.0)


def sample_average(task: Task, alpha: float, seed: int) -> Measured:
    """Least mean cost over the residuals of the learning and calibration rows; `alpha`, `seed` are not used."""
    fitted = fit_predictor(task)
    centers = fitted.centers("test")
    began = time.perf_counter()
    z, cost = decide_on_average(task.problem, fitted.residuals("learn", "calibrate"), centers)
    return _measure(task, centers, z, cost, time.perf_counter() - began)


def oracle(task: Task, alpha: float, seed: int) -> Measured:
    """Decide with the outcome known: the least cost there is; `alpha` and `seed` are not used."""
    fitted = fit_predictor(task)
    return _measure(task, fitted.centers("test"), *decide_knowing(task.problem, task.rows("test")[1]), 0.0)


def _measure(task: Task, centers: Array, z: Array, cost: Array, seconds: float) -> Measured:
    problem, outcomes = task.problem, task.rows("test")[1]
    realised = problem.evaluate(z, outcomes)
    return Measured(
        coverage=np.nan,
        volume=np.nan,
        worst_case_cost=float(cost.mean()),
        premium=float(np.mean(cost - decide_knowing(problem, centers)[1])),
        regret=float(np.mean(realised - decide_knowing(problem, outcomes)[1])),
        seconds=seconds,
        detail=f"planned cost, no guarantee; mean realised cost {realised.mean():.4g}",
    )


def decide_on_average(problem: DecisionProblem, residuals: Array, centers: Array) -> tuple[Array, Array]:
    r"""Decisions (N, p) and costs (N,) of $\min_z \frac1n \sum_j g(z, f_i + \epsilon_j)$ for each prediction f_i.

    An affine cost sees only the mean residual. With decisions on a segment all contexts are bisected together on
    the slope of the mean cost; elsewhere cutting planes are added until the gap is below 1e-7.
    """
    joint = problem.sum_of_maxima
    if joint is None:
        raise ValueError("The sample-average decision needs a cost made of maxima of functions affine in the outcome.")
    if not joint.groups:
        return decide_knowing(problem, centers + residuals.mean(axis=0))
    ends, base = problem.structure.ends, problem.structure.base
    if ends is not None and base is not None and not base[2] and problem.structure.has_pieces:
        parts = [_average_along(problem.structure.pieces, ends, base, residuals, rows) for rows in _chunks(centers)]
        return np.concatenate([z for z, _ in parts]), np.concatenate([cost for _, cost in parts])
    solved = [_average_by_cuts(problem, joint, residuals + center) for center in centers]
    return np.array([z for z, _ in solved]), np.array([cost for _, cost in solved])


def _chunks(centers: Array) -> list[Array]:
    return np.array_split(centers, max(1, len(centers) // _CHUNK))


def _average_along(
    pieces: Pieces, ends: tuple[Array, Array], base: Array, residuals: Array, centers: Array
) -> tuple[Array, Array]:
    """Bisect on the slope of the mean of the highest pieces; the rest of the cost, `base`, is affine in s."""
    z0, z1 = ends
    outcomes = (centers[:, None] + residuals).reshape(-1, residuals.shape[1])
    first, last = (pieces.values(np.tile(z, (len(outcomes), 1)), outcomes) for z in ends)
    shape = (len(centers), len(residuals), len(pieces))
    height, slope = first.reshape(shape), (last - first).reshape(shape)
    low, high = np.zeros(len(centers)), np.ones(len(centers))
    for _ in range(_N_BISECTIONS):
        s = (low + high) / 2
        active = (height + slope * s[:, None, None]).argmax(axis=2)
        rises = np.take_along_axis(slope, active[..., None], axis=2).mean(axis=(1, 2)) + base[1] >= 0
        low, high = np.where(rises, low, s), np.where(rises, s, high)
    ends_and_middle = np.stack([np.zeros_like(low), high, np.ones_like(low)])
    costs = np.stack([(height + slope * s[:, None, None]).max(axis=2).mean(axis=1) for s in ends_and_middle])
    costs += base[0] + ends_and_middle * base[1]
    best = costs.argmin(axis=0)
    s = np.take_along_axis(ends_and_middle, best[None], axis=0)[0]
    return z0 + s[:, None] * (z1 - z0), np.take_along_axis(costs, best[None], axis=0)[0]


def _decision_part(problem: DecisionProblem, joint: SumOfMaxima, z: Array) -> float:
    zero = np.zeros((1, problem.n_outcomes))
    return float(problem.evaluate(z[None], zero)[0] - joint.evaluate(z[None], zero)[0])


def _average_by_cuts(problem: DecisionProblem, joint: SumOfMaxima, outcomes: Array) -> tuple[Array, float]:
    """Kelley's method: the mean of each maximum is replaced by its tangents at the decisions found so far."""
    z_columns, n = problem.feasible.z_columns, len(outcomes)
    U = np.hstack([np.ones((n, 1)), outcomes])
    base = joint.base @ U.mean(axis=0)
    groups = [np.einsum("lij,nj->nli", group, U) for group in joint.groups]
    master = _Master(problem, base[1:], len(groups))
    z = decide_knowing(problem, outcomes.mean(axis=0, keepdims=True))[0][0]
    best, best_z = np.inf, z
    for _ in range(_MAX_CUTS):
        cuts = np.array([_mean_of_highest(group, z) for group in groups])
        z1 = np.concatenate([[1.0], z])
        total = _decision_part(problem, joint, z) + float(base @ z1) + float((cuts @ z1).sum())
        best, best_z = (total, z) if total < best else (best, best_z)
        solution = master.solve_with(cuts)
        if best - (solution.value + base[0]) <= _ACCURACY * (1 + abs(best)):
            break
        z = solution.x[z_columns]
    return best_z, best


def _mean_of_highest(group: Array, z: Array) -> Array:
    """Coefficients (1 + p,) in [1, z] of the mean over outcomes of the pieces that are highest at z."""
    highest = (group @ np.concatenate([[1.0], z])).argmax(axis=1)
    return np.asarray(group[np.arange(len(group)), highest].mean(axis=0))


class _Master:
    """The feasible program with one more column for each maximum, above all its tangents."""

    def __init__(self, problem: DecisionProblem, slopes: Array, n_groups: int) -> None:
        program, self.z = problem.feasible.program, problem.feasible.z_columns
        self.n, self.n_groups = len(program.c), n_groups
        costs = np.concatenate([program.c, np.ones(n_groups)])
        costs[self.z] += slopes
        wide = sp.hstack([program.A, sp.csr_array((program.A.shape[0], n_groups))], format="csr")
        P = None if program.P is None else sp.csr_array(sp.block_diag([program.P, sp.csr_array((n_groups, n_groups))]))
        self.program = replace(program, c=costs, A=wide, P=P)

    def solve_with(self, cuts: Array) -> Solution:
        """Add one tangent for each maximum and solve."""
        rows = np.zeros((self.n_groups, self.n + self.n_groups))
        rows[:, self.z], rows[:, self.n :] = cuts[:, 1:], -np.eye(self.n_groups)
        self.program = replace(
            self.program,
            A=sp.vstack([self.program.A, sp.csr_array(rows)], format="csr"),
            b=np.concatenate([self.program.b, -cuts[:, 0]]),
            cones=(*self.program.cones, Cone("nonneg", self.n_groups)),
        )
        return solve(self.program)
