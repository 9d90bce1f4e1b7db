r"""What every selection of residuals costs at least, context by context: proven before anything is searched.

Whatever `n_drop` residuals are dropped, one of `n_drop` + 1 disjoint groups stays whole. A cost that is convex in the
outcome is highest at a group's members, so a set that covers a group costs at least as much as any mixture
$p_g$ of its members:

$$v_i(S) \ge \min_g \min_z g(z, \hat f_i + p_g) \ge \min_z g(z, \hat f_i + c) - t, \qquad
t = \max_g \max_{v} v^\top (c - p_g),$$

where v ranges over a box around all directions that the cost can have. One linear program finds the mixtures and the
point c with the least t: zero where the hulls of the groups meet, and then no selection can leave out c.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.paper.big_m import direction_bounds
from polyhedge.learners.scales import standard_deviations
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide_knowing
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram


def floors_of_contexts(problem: DecisionProblem, residuals: Array, centers: Array, n_drop: int) -> Array:
    """A number (m,) for each context below the cost of every selection; -inf where nothing is proven.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> residuals = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 3.0], [5.0, 5.0]])
    >>> floors_of_contexts(simplex_linear([0.0, 0.0]), residuals, np.zeros((1, 2)), n_drop=1).round(6)
    array([3.])
    """
    groups = _groups(residuals, n_drop + 1)
    try:
        low, high = direction_bounds(problem, problem.structure.pieces, "A certificate")
    except ValueError:  # directions without bounds: the groups one by one
        means = [residuals[group].mean(axis=0) for group in groups]
        values = np.min([decide_knowing(problem, centers + mean)[1] for mean in means], axis=0)
        return np.where(np.isnan(values), -np.inf, values)
    box = _Box(low.min(axis=0), high.max(axis=0))
    point, shortfall = _unavoidable(residuals, groups, box)
    values = decide_knowing(problem, centers + point)[1] - shortfall
    return np.where(np.isnan(values), -np.inf, values)


class _Box(NamedTuple):
    """Bounds (d,) of all directions in which the cost can rise."""

    low: Array
    high: Array

    def reach(self, steps: Array) -> Array:
        """The most that the cost can rise along each row of `steps`."""
        return np.maximum(steps * self.low, steps * self.high).sum(axis=1)


def _groups(residuals: Array, count: int) -> list[Indices]:
    """Disjoint groups of about equal size, dealt from the innermost residual to the outermost."""
    standard = (residuals - residuals.mean(axis=0)) / standard_deviations(residuals)
    order = np.argsort(np.linalg.norm(standard, axis=1), kind="stable")
    return [order[k::count] for k in range(count)]


def _unavoidable(residuals: Array, groups: list[Indices], box: _Box) -> tuple[Array, float]:
    """The point c and its shortfall t; the solver only proposes mixtures, t is computed from them."""
    mixtures = np.array([residuals[group].mean(axis=0) for group in groups])
    candidates = [(mixtures.mean(axis=0), mixtures), *_proposed(residuals, groups, box)]
    shortfalls = [max(float(box.reach(point - mixtures).max()), 0.0) for point, mixtures in candidates]
    best = int(np.argmin(shortfalls))
    return candidates[best][0], shortfalls[best]


def _proposed(residuals: Array, groups: list[Indices], box: _Box) -> list[tuple[Array, Array]]:
    """The point and the mixtures of the linear program, if it has a solution.

    It works on centred residuals of size 1, so that the solver's tolerances do not depend on units.
    """
    middle = residuals.mean(axis=0)
    size = float(np.abs(residuals - middle).max()) or 1.0
    members, k, d = np.concatenate(groups), len(groups), len(middle)
    points = (residuals[members] - middle) / size
    group_of = np.repeat(np.arange(k), [len(group) for group in groups])
    solution = LinearSolver(_meeting_program(points, group_of, box)).solve()
    if not solution.status.has_solution:
        return []
    weights = np.maximum(solution.x[: len(members)], 0.0)
    totals = np.bincount(group_of, weights, minlength=k)
    mixtures = np.zeros((k, d))
    np.add.at(mixtures, group_of, (weights / totals[group_of])[:, None] * points)
    return [(middle + size * solution.x[len(members) : len(members) + d], middle + size * mixtures)]


def _meeting_program(points: Array, group_of: Indices, box: _Box) -> ConicProgram:
    """Minimise t over (weights, c, up, down, t): c - p_g = up_g - down_g, high'up_g - low'down_g <= t."""
    (n, d), k = points.shape, int(group_of.max()) + 1
    reach = float(np.abs([box.low, box.high]).max()) or 1.0
    sums = sp.csr_array((np.ones(n), (group_of, np.arange(n))), shape=(k, n))
    rows, columns = (group_of[:, None] * d + np.arange(d)).ravel(), np.repeat(np.arange(n), d)
    mixed = sp.csr_array((points.ravel(), (rows, columns)), shape=(k * d, n))
    steps, same = sp.eye_array(k * d, format="csr"), sp.csr_array(np.tile(np.eye(d), (k, 1)))
    up, down = (sp.kron(sp.eye_array(k), side[None] / reach) for side in (box.high, -box.low))
    blocks = [
        [sums, None, None, None, sp.csr_array((k, 1))],
        [-mixed, same, -steps, steps, None],
        [None, None, up, down, sp.csr_array(-np.ones((k, 1)))],
        [-sp.eye_array(n), None, None, None, None],
        [None, None, -steps, None, None],
        [None, None, None, -steps, None],
    ]
    A = sp.csr_array(sp.block_array(blocks))
    b = np.concatenate([np.ones(k), np.zeros(A.shape[0] - k)])
    cones = Cone("zero", k + k * d), Cone("nonneg", len(b) - k - k * d)
    return ConicProgram(c=np.eye(1, A.shape[1], A.shape[1] - 1)[0], A=A, b=b, cones=cones)
