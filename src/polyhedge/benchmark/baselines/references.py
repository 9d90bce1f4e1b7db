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

from polyhedge._validation import Array
from polyhedge.benchmark.baselines.fitted import fit_predictor
from polyhedge.benchmark.measure import Measured
from polyhedge.benchmark.tasks import Task
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.problems.segment import decision_segment
from polyhedge.robust import decide_knowing
from polyhedge.solvers.program import Cone, ConicProgram
from polyhedge.solvers.solve import solve

_N_BISECTIONS = 50
_CHUNK = 100
_MAX_CUTS = 300
_ACCURACY = 1e-7


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
    pieces = problem.pieces
    if pieces is None:
        raise ValueError("The sample-average decision needs a cost that is a maximum of pieces affine in the outcome.")
    if len(pieces) == 1:
        return decide_knowing(problem, centers + residuals.mean(axis=0))
    ends = decision_segment(problem) if problem.feasible.program.P is None else None
    if ends is not None:
        found = [_average_along(problem, pieces, ends, residuals, rows) for rows in _chunks(centers)]
        return np.concatenate([z for z, _ in found]), np.concatenate([cost for _, cost in found])
    solved = [_average_by_cuts(problem, pieces, residuals + center) for center in centers]
    return np.array([z for z, _ in solved]), np.array([cost for _, cost in solved])


def _chunks(centers: Array) -> list[Array]:
    return np.array_split(centers, max(1, len(centers) // _CHUNK))


def _average_along(
    problem: DecisionProblem, pieces: Pieces, ends: tuple[Array, Array], residuals: Array, centers: Array
) -> tuple[Array, Array]:
    """Bisect on the slope of the mean of the highest pieces; the rest of the cost is affine along the segment."""
    z0, z1 = ends
    outcomes = (centers[:, None] + residuals).reshape(-1, residuals.shape[1])
    first, last = (pieces.values(np.tile(z, (len(outcomes), 1)), outcomes) for z in ends)
    shape = (len(centers), len(residuals), len(pieces))
    height, slope = first.reshape(shape), (last - first).reshape(shape)
    alone = [_decision_part(problem, pieces, z) for z in ends]
    low, high = np.zeros(len(centers)), np.ones(len(centers))
    for _ in range(_N_BISECTIONS):
        s = (low + high) / 2
        active = (height + slope * s[:, None, None]).argmax(axis=2)
        rises = np.take_along_axis(slope, active[..., None], axis=2).mean(axis=(1, 2)) + alone[1] - alone[0] >= 0
        low, high = np.where(rises, low, s), np.where(rises, s, high)
    ends_and_middle = np.stack([np.zeros_like(low), high, np.ones_like(low)])
    costs = np.stack([(height + slope * s[:, None, None]).max(axis=2).mean(axis=1) for s in ends_and_middle])
    costs += alone[0] + ends_and_middle * (alone[1] - alone[0])
    best = costs.argmin(axis=0)
    s = np.take_along_axis(ends_and_middle, best[None], axis=0)[0]
    return z0 + s[:, None] * (z1 - z0), np.take_along_axis(costs, best[None], axis=0)[0]


def _decision_part(problem: DecisionProblem, pieces: Pieces, z: Array) -> float:
    zero = np.zeros((1, problem.n_outcomes))
    return float(problem.evaluate(z[None], zero)[0] - pieces.evaluate(z[None], zero)[0])


def _average_by_cuts(problem: DecisionProblem, pieces: Pieces, outcomes: Array) -> tuple[Array, float]:
    """Kelley's method: the mean of the highest pieces is replaced by its tangents at the decisions found so far."""
    feasible, p = problem.feasible, problem.n_decisions
    program, z = feasible.program, problem.feasible.z_columns
    n = len(program.c)
    z_now = decide_knowing(problem, outcomes.mean(axis=0, keepdims=True))[0][0]
    best, best_z, cuts, rhs = np.inf, z_now, [], []
    for _ in range(_MAX_CUTS):
        value, gradient = _mean_piece(pieces, z_now, outcomes)
        total = value + _decision_part(problem, pieces, z_now)
        best, best_z = (total, z_now) if total < best else (best, best_z)
        cuts.append(np.concatenate([np.zeros(n), [-1.0]]))
        cuts[-1][z] = gradient
        rhs.append(float(gradient @ z_now) - value)
        master = solve(_with_cuts(program, np.array(cuts), np.array(rhs)))
        z_now = master.x[z]
        if best - master.value <= _ACCURACY * (1 + abs(best)):
            break
    return best_z.reshape(p), best


def _mean_piece(pieces: Pieces, z: Array, outcomes: Array) -> tuple[float, Array]:
    values = pieces.values(np.tile(z, (len(outcomes), 1)), outcomes)
    active = values.argmax(axis=1)
    gradients = np.einsum("ndp,nd->np", pieces.Q[active], outcomes) + pieces.p[active]
    return float(values.max(axis=1).mean()), gradients.mean(axis=0)


def _with_cuts(program: ConicProgram, cuts: Array, rhs: Array) -> ConicProgram:
    """The program with one more column for the mean cost, above all cuts."""
    A = sp.vstack([sp.hstack([program.A, sp.csr_array((program.A.shape[0], 1))]), sp.csr_array(cuts)], format="csr")
    P = None if program.P is None else sp.csr_array(sp.block_diag([program.P, sp.csr_array((1, 1))]))
    return replace(
        program,
        c=np.concatenate([program.c, np.ones(1)]),
        A=A,
        b=np.concatenate([program.b, rhs]),
        cones=(*program.cones, Cone("nonneg", len(rhs))),
        P=P,
    )
