r"""The scenario value of a selection of residuals, with the mixtures that prove it, and floors below every selection.

For a selection S and context i, $v_i(S) = \min_z \max_{j \in S} g(z, \hat f_i + e_j)$ is the cost of
the convex hull of S. By duality there is a mixture $\lambda$ over S with
$v_i(S) = \min_z \sum_j \lambda_j\, g(z, \hat f_i + e_j) =: \Phi_i(\lambda)$, and this number is a lower bound
of $v_i(T)$ for *every* selection T that contains the support of $\lambda$, whatever the cost looks like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.learners.exact.bound import Budget
from polyhedge.learners.paper.model import direction_bounds
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.robust import decide_knowing
from polyhedge.robust.counterpart import Counterpart
from polyhedge.solvers.program import Cone, ConicForm, Status

_TOLERANCE = 1e-8
"""Share of the spread of a context's costs that a solver may be off by."""
_WEIGHT = 1e-9
"""Weights below this are rounding: what they could prove is lost in the tolerance."""


class _Hull:
    """The convex hull of some residuals, as a set for the robust counterpart."""

    def __init__(self, points: Array) -> None:
        self.points = points
        self.n_outcomes = points.shape[1]

    def conic_form(self, radius: float) -> ConicForm:
        """E = points' w, 1'w = 1, w >= 0 with the weights w as auxiliary coordinates."""
        k, d = self.points.shape
        equations = np.block([[np.eye(d), -self.points.T], [np.zeros((1, d)), np.ones((1, k))]])
        bounds = sp.hstack([sp.csr_array((k, d)), -sp.eye_array(k)], format="csr")
        return ConicForm(
            G=sp.vstack([sp.csr_array(equations), bounds], format="csr"),
            g=np.concatenate([np.zeros(d), [1.0], np.zeros(k)]),
            cones=(Cone("zero", d + 1), Cone("nonneg", k)),
        )


@dataclass(frozen=True)
class Mixture:
    """Weights over a few residuals whose mixed cost is at least `value` for every decision in a context."""

    value: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class HullValues:
    """Values v_i(S) (n,), decisions (n, p) and a proving mixture for each context."""

    values: Array
    z: Array
    mixtures: tuple[Mixture, ...]


class HullOracle:
    """Evaluate v_i(S) for many selections; residuals that were once active are tried first."""

    def __init__(
        self, problem: DecisionProblem, residuals: Array, centers: Array, budget: Budget | None = None
    ) -> None:
        self.problem, self.residuals, self.centers = problem, residuals, centers
        self.budget = Budget(np.inf) if budget is None else budget
        self.pool: set[int] = set()

    def evaluate(self, kept: Mask, contexts: Indices | None = None) -> HullValues:
        """Values of all (or some) contexts for the selection `kept`.

        The hull is grown lazily: solve with the pool's residuals, add those that a decision's cost
        directions show to lie outside, until none does.
        """
        chosen = np.arange(len(self.centers)) if contexts is None else contexts
        available, axes = np.flatnonzero(kept), np.eye(self.problem.n_outcomes)
        extremes = available[(self.residuals[available] @ np.vstack([axes, -axes]).T).argmax(axis=0)]
        pool = set(extremes.tolist()) | {j for j in self.pool if kept[j]}
        todo, solved = chosen, dict[int, tuple[float, Array, Mixture]]()
        while len(todo):
            members = np.array(sorted(pool))
            try:
                solved |= self._solve(members, todo)
            except NoSolutionError:
                if len(members) == kept.sum():
                    raise
                pool = set(available.tolist())  # a part of the hull may leave the cost unbounded
                continue
            missing, again = self._violated(available, members, np.array([solved[int(i)][1] for i in todo]))
            if not missing:
                break
            pool |= missing
            self.pool |= missing
            todo = todo[again]
        values, z, mixtures = zip(*(solved[int(i)] for i in chosen), strict=True)
        return HullValues(np.array(values), np.array(z).reshape(len(chosen), -1), mixtures)

    def _solve(self, members: Indices, contexts: Indices) -> dict[int, tuple[float, Array, Mixture]]:
        counterpart = Counterpart(self.problem, _Hull(self.residuals[members]), 0.0)  # type: ignore[arg-type]
        self.budget.spend(len(counterpart.parametric.at_zero.b), times=len(contexts))
        sees_outcome, solved = self.problem.structure.pieces.sees_outcome, {}
        for i in contexts.tolist():
            solution = counterpart.solve(self.centers[i])
            if solution.status is Status.FAILED or (solution.status.has_solution and not np.isfinite(solution.gap)):
                raise RuntimeError(f"Learning context {i} could not be solved: {solution.detail}.")
            if not solution.status.has_solution:
                raise NoSolutionError(
                    f"There is no best decision against the residuals of the learning split in context {i}: "
                    f"{solution.status}. Check the feasible set and the cost; a decision that lowers the cost without "
                    "limit needs bounds."
                )
            weights = solution.weighted_auxiliary[sees_outcome].sum(axis=0)
            active = members[np.flatnonzero(weights > _WEIGHT)]
            slack = _TOLERANCE * self.cost_range(solution.z[None], members) + solution.gap
            solved[i] = (solution.value, solution.z, Mixture(solution.value - slack, tuple(active.tolist())))
        return solved

    def cost_range(self, z: Array, members: Indices | None = None) -> float:
        """How much the residuals (some of them) differ in cost at decisions (N, p), in the mean over these."""
        residuals = self.residuals if members is None else self.residuals[members]
        return float(np.ptp(self.problem.structure.pieces.directions(z) @ residuals.T, axis=2).max(axis=1).mean())

    def _violated(self, available: Indices, members: Indices, z: Array) -> tuple[set[int], Mask]:
        """Kept residuals that exceed the hull of the members along the directions of some decision."""
        missing: set[int] = set()
        again = np.zeros(len(z), dtype=bool)
        directions = self.problem.structure.pieces.directions(z)
        for piece in range(directions.shape[1]):
            heights = directions[:, piece] @ self.residuals[available].T
            inside = (directions[:, piece] @ self.residuals[members].T).max(axis=1)
            out = heights.max(axis=1) - inside > _TOLERANCE * np.ptp(heights, axis=1)
            missing |= set(available[heights[out].argmax(axis=1)].tolist()) - set(members.tolist())
            again |= out
        return missing, again

    def disjoint_mixtures(self, context: int, count: int) -> list[Mixture]:
        """Proving mixtures of one context with disjoint members, by falling value; fewer when the budget is over.

        Dropping fewer than `count` residuals leaves one of `count` disjoint mixtures whole, so the last
        value is a floor for every selection; so is the value of a mixture without members.
        """
        available, mixtures = np.ones(len(self.residuals), dtype=bool), list[Mixture]()
        while len(mixtures) < count and available.any() and not self.budget.is_over:
            try:
                mixtures += self.evaluate(available, np.array([context])).mixtures
            except (NoSolutionError, RuntimeError):  # few residuals may leave the cost unbounded
                break
            if not mixtures[-1].members:
                break
            available[list(mixtures[-1].members)] = False
        return mixtures


def floors_of_contexts(problem: DecisionProblem, residuals: Array, centers: Array, n_drop: int) -> Array:
    r"""A number (m,) for each context below the cost of every selection; -inf where nothing is proven.

    Whatever `n_drop` residuals are dropped, one of `n_drop` + 1 disjoint groups stays whole. A cost that is convex in
    the outcome is highest at a group's members, so a set that covers a group costs at least as much as any mixture
    $p_g$ of its members:

    $$v_i(S) \ge \min_g \min_z g(z, \hat f_i + p_g) \ge \min_z g(z, \hat f_i + c) - t, \qquad
    t = \max_g \max_{v} v^\top (c - p_g),$$

    where v ranges over a box around all directions that the cost can have. The point c is the mean residual, and each
    mixture is the one nearest to it: t is zero where c lies in the hull of every group, so that no selection avoids c.
    """
    # About equal groups, dealt from the innermost residual to the outermost.
    order = np.argsort(np.linalg.norm(residuals - residuals.mean(axis=0), axis=1), kind="stable")
    groups = [order[k :: n_drop + 1] for k in range(n_drop + 1)]
    low, high = direction_bounds(problem, problem.structure.pieces)
    if np.isfinite([low, high]).all():
        middle, low, high = residuals.mean(axis=0), low.min(axis=0), high.max(axis=0)
        steps = np.array([middle - mixing_weights(residuals[group], middle) @ residuals[group] for group in groups])
        shortfall = max(float(np.maximum(steps * low, steps * high).sum(axis=1).max()), 0.0)
        values = decide_knowing(problem, centers + middle)[1] - shortfall
    else:  # the groups one by one
        means = [residuals[group].mean(axis=0) for group in groups]
        values = np.min([decide_knowing(problem, centers + mean)[1] for mean in means], axis=0)
    return np.where(np.isnan(values), -np.inf, values)


def mixing_weights(points: Array, target: Array) -> Array:
    """Weights of a convex combination of the rows that is the target, or near it where it lies outside their hull.

    At most d + 1 of them are positive: the active columns of non-negative least squares are independent.
    """
    steps = points - target
    far = 1e3 * float(np.abs(steps).max()) or 1.0
    weights, _ = nnls(np.vstack([steps.T, np.full(len(points), far)]), np.append(np.zeros(len(target)), far))
    return np.asarray(weights / weights.sum())
