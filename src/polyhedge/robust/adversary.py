r"""The worst outcome for given decisions: the inner maximum of the robust problem.

| cost in u                  | set                        | how                                       | exact |
|----------------------------|----------------------------|-------------------------------------------|-------|
| (maximum of) affine        | any                        | one linear maximisation for each piece    | yes   |
| sum of maxima, many pieces | any                        | mixed-integer program over the pieces     | yes   |
| concave                    | any                        | one convex program                        | yes   |
| convex                     | with facets or vertices    | the vertices                              | yes   |
| convex                     | Euclidean ball, ellipsoid  | branch and bound over cones of directions | gap   |
| second stage, many pieces  | polyhedra of many vertices | mixed-integer program: its optimality     | gap   |
| concave, convex            | union of balls             | each ball by itself                       | gap   |

"gap": to a proven gap, which the bound includes.

On a round set the unit sphere is split into simplicial cones with unit generators $v_i$. With
$t = \max\{\sum a_i : |\sum a_i v_i| \le 1\}$, every point of the cone on the sphere is a mean of points on the segments
$[v_i, t v_i]$, so that by convexity the cost is at most its maximum over the end points. The cone with the highest
bound is split until the bounds meet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product
from math import comb

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, ROUNDING
from polyhedge._support.validation import Array
from polyhedge.problems import Curvature, DecisionProblem, SumOfMaxima
from polyhedge.problems.feasible_set import compile_feasible_program
from polyhedge.robust.recourse import BothStages
from polyhedge.robust.support import form_at, maximise, membership
from polyhedge.sets import Region, Shape
from polyhedge.solvers.program import Cone, ConicForm, ConicProgram, SolverError, Status
from polyhedge.solvers.solve import solve

_CLIMBS = 30
"""Steps of a local search for a bad outcome: each ends at a vertex of the set, and few are needed."""
_FEW_VERTICES = 400_000
"""Vertices that as many facets may have at most (McMullen's bound) where they are listed: mostly far fewer."""


@dataclass(frozen=True)
class WorstCase:
    """The worst `outcome` (d,) for one decision; `value - gap` is attained at it."""

    value: float
    outcome: Array
    gap: float = 0.0


class Adversary:
    """Find worst outcomes around one prediction, for as many decisions as are asked for.

    Parameters
    ----------
    problem : what is decided.
    shape, radius : the set of residuals.
    center : (d,) the prediction.
    """

    def __init__(self, problem: DecisionProblem, shape: Shape, radius: float, center: Array) -> None:
        self.problem, self.shape, self.radius, self.center = problem, shape, radius, center
        self.form = form_at(shape, radius, center, problem.support_rows)

    def worst_case(self, z: Array) -> WorstCase:
        """The outcome in the set with the highest cost g(z, u)."""
        problem = self.problem
        if problem.structure.has_pieces:
            return self._over_pieces(z)
        if problem.sum_of_maxima is not None:
            return self._over_sum_of_maxima(z, problem.sum_of_maxima)
        if self.shape.parts:
            return self._over_parts(z)
        if problem.curvature is Curvature.CONCAVE:
            return self._concave(z)
        second = problem.second_stage
        if second is not None and len(second.program.integer):
            raise ValueError(
                "With integers in the second stage the cost is not convex in the outcome, and its worst case is out of "
                'reach. Use guarantee="cost".'
            )
        if self.needs_proofs:
            return self._over_both_stages(z)
        return self._over_vertices(z) if self.has_vertices else self._over_round_set(z)

    @cached_property
    def needs_proofs(self) -> bool:
        """Whether the worst outcome takes a mixed-integer program: a linear second stage over many vertices."""
        second = self.problem.second_stage
        return (
            second is not None
            and second.is_linear
            and not self.problem.structure.has_pieces
            and self.has_vertices
            and not self.lists_few_vertices
        )

    @property
    def lists_few_vertices(self) -> bool:
        """Whether a polyhedral set has so few facets that its vertices are quickly listed."""
        facets, d = self.shape.facets(), self.problem.n_outcomes
        m, half = 0 if facets is None else facets.n_facets + len(self.problem.support_rows[1]), d // 2
        return (
            facets is not None
            and comb(max(m - d + half, 0), half) + comb(max(m - half - 1, 0), d - half - 1) <= _FEW_VERTICES
        )

    def _over_both_stages(self, z: Array) -> WorstCase:
        solution = BothStages(self.problem).worst_within(z, self.form, self.center)
        if not solution.status.has_solution:
            raise SolverError(f"The worst outcome could not be found: {solution.status} {solution.detail}")
        outcome = self.center + solution.x[: self.problem.n_outcomes]
        value = float(self.problem.evaluate(z[None], outcome[None])[0])
        return WorstCase(value + solution.gap, outcome, solution.gap)

    def climbed(self, z: Array, starts: Array) -> WorstCase:
        """A bad outcome of a second stage, without a proof: from each start (S, d) the worst for its active pieces."""
        second, joint, own = self.problem.second_stage, self.problem.first_stage.sum_of_maxima, np.append(1.0, z)
        assert second is not None
        assert joint is not None
        u, best = starts, WorstCase(-np.inf, self.center)
        for _ in range(_CLIMBS):
            here, at = np.tile(z, (len(u), 1)), np.hstack([np.ones((len(u), 1)), u])
            found = self.problem.answers(here, u, with_decisions=False)
            lines = np.einsum("i,nij->nj", own, second.pieces_of(found.multipliers)) + own @ joint.base
            for group in joint.groups:
                pieces = np.einsum("i,lij->lj", own, group)
                lines += pieces[(at @ pieces.T).argmax(axis=1)]
            costs = self.problem.evaluate(here, u)
            top = int(np.argmax(costs))
            if not costs[top] > best.value + ROUNDING * abs(best.value) or not np.isfinite(lines).all():
                break
            best = WorstCase(float(costs[top]), u[top])
            u = self.center + maximise(self.form, lines[:, 1:]).points
        return best

    @property
    def has_vertices(self) -> bool:
        """Whether the set is polyhedral, so that a convex cost is worst at a vertex."""
        return all(cone.kind in ("zero", "nonneg") for cone in self.form.cones)

    def _over_pieces(self, z: Array) -> WorstCase:
        pieces = self.problem.structure.pieces
        certificate = maximise(self.form, pieces.directions(z[None])[0])
        totals = certificate.values + pieces.values(z[None], self.center[None])[0]
        worst = int(np.argmax(totals))
        outcome = self.center + certificate.points[worst]
        if not np.isfinite(totals[worst]):
            return WorstCase(float(totals[worst]), outcome)
        return WorstCase(float(self.problem.evaluate(z[None], outcome[None])[0]), outcome)

    def _over_sum_of_maxima(self, z: Array, cost: SumOfMaxima) -> WorstCase:
        program = _choice_program(self.form, cost, z, self.center)
        solution = solve(program)
        if not solution.status.has_solution:
            raise SolverError(f"The worst outcome could not be found: {solution.status} {solution.detail}")
        outcome = self.center + solution.x[: self.problem.n_outcomes]
        value = float(self.problem.evaluate(z[None], outcome[None])[0])
        return WorstCase(value + solution.gap, outcome, solution.gap)

    def _over_parts(self, z: Array) -> WorstCase:
        cases = [part.worst_case(z) for part in self._parts]
        value = max(worst.value for worst in cases)
        best = max(cases, key=lambda worst: worst.value - worst.gap)
        return WorstCase(value, best.outcome, value - (best.value - best.gap))

    @cached_property
    def _parts(self) -> list[Adversary]:
        assert self.shape.parts
        return [Adversary(self.problem, part, self.radius, self.center) for part in self.shape.parts]

    def _concave(self, z: Array) -> WorstCase:
        u = cp.Variable(self.problem.n_outcomes)
        z, _ = self.problem.with_known_signs(z, self.center)
        gain = self.problem.cost_at(z, u)
        feasible = compile_feasible_program(u, -gain, membership(u - self.center, self.form))
        solution = solve(feasible.program)
        if solution.status is Status.UNBOUNDED:
            return WorstCase(np.inf, np.full(u.size, np.nan))
        if solution.status is not Status.OPTIMAL:  # a point that is not the worst would make too low a bound
            raise SolverError(f"The worst outcome could not be found: {solution.status} {solution.detail}")
        outcome = solution.x[feasible.z_columns]
        return WorstCase(solution.gap - solution.value, outcome, solution.gap)

    @cached_property
    def vertices(self) -> Array:
        """The vertices (n, d) of a polyhedral set around the prediction; it must list its facets or its vertices."""
        A, h = self.problem.support_rows
        listed = None if len(A) else self.shape.vertices(self.radius)
        if listed is not None:
            return self.center + listed
        return Region(self.shape, self.radius, self.center, A, h).vertices()

    def _over_vertices(self, z: Array) -> WorstCase:
        vertices = self.vertices
        costs = self.problem.evaluate(np.tile(z, (len(vertices), 1)), vertices)
        worst = int(np.argmax(costs))
        return WorstCase(float(costs[worst]), vertices[worst])

    def _over_round_set(self, z: Array) -> WorstCase:
        if self.problem.structure.has_known_support:
            raise ValueError(
                "The worst case of a convex cost over a ball or an ellipsoid cut by outcome_support cannot be "
                "computed exactly. Use a polyhedral set, or drop outcome_support."
            )
        value, outcome, gap = maximise_convex_over_round_set(
            lambda u: self.problem.evaluate(np.tile(z, (len(u), 1)), u), self.shape, self.radius, self.center
        )
        return WorstCase(value, outcome, gap)


def _choice_program(form: ConicForm, cost: SumOfMaxima, z: Array, center: Array) -> ConicProgram:
    """Maximise a sum of maxima: binaries pick one piece of each group, big-M is how far the others exceed it."""
    d, n_set = len(center), form.G.shape[1]
    z1 = np.concatenate([[1.0], z])
    groups = [np.einsum("i,lij->lj", z1, group) for group in cost.groups]
    base = z1 @ cost.base
    sizes = [len(group) for group in groups]
    n_choices = sum(sizes)
    n = n_set + len(groups) + n_choices
    rows, rhs = [], []
    first_choice = n_set + len(groups)
    for s, group in enumerate(groups):
        constants = group[:, 0] + group[:, 1:] @ center
        excess = _largest_excess(form, group[:, 1:], constants)
        for k in range(len(group)):
            row = np.zeros(n)
            row[:d], row[n_set + s], row[first_choice + k] = -group[k, 1:], 1.0, excess[k]
            rows.append(row)
            rhs.append(constants[k] + excess[k])
        first_choice += len(group)
    pick = np.zeros((len(groups), n))
    starts = n_set + len(groups) + np.concatenate([[0], np.cumsum(sizes)])
    for s in range(len(groups)):
        pick[s, starts[s] : starts[s + 1]] = 1.0
    choices = np.arange(n_set + len(groups), n)
    box = sp.csr_array((np.ones(n_choices), (np.arange(n_choices), choices)), shape=(n_choices, n))
    set_rows = sp.hstack([form.G, sp.csr_array((form.G.shape[0], n - n_set))], format="csr")
    c = np.zeros(n)
    c[:d], c[n_set : n_set + len(groups)] = -base[1:], -1.0
    return ConicProgram(
        c=c,
        A=sp.vstack([set_rows, sp.csr_array(np.array(rows)), sp.csr_array(pick), box, -box], format="csr"),
        b=np.concatenate([form.g, rhs, np.ones(len(groups)), np.ones(n_choices), np.zeros(n_choices)]),
        cones=(*form.cones, Cone("nonneg", len(rows)), Cone("zero", len(groups)), Cone("nonneg", 2 * n_choices)),
        offset=-float(base[0] + base[1:] @ center),
        integer=choices,
    )


def _largest_excess(form: ConicForm, slopes: Array, constants: Array) -> Array:
    """For each piece, how far the group's other pieces can exceed it over the set."""
    k = len(slopes)
    pairs = [(i, j) for i in range(k) for j in range(k) if i != j]
    values = maximise(form, np.array([slopes[j] - slopes[i] for i, j in pairs])).values
    if not np.isfinite(values).all():
        raise ValueError(
            "The set is unbounded (or empty), so the worst case is infinite. Add facets or a bounding box."
        )
    excess = [value + constants[j] - constants[i] for value, (i, j) in zip(values, pairs, strict=True)]
    largest = np.zeros(k)
    for value, (i, _) in zip(excess, pairs, strict=True):
        largest[i] = max(largest[i], value)
    return largest


# What is not proven by then is reported with its gap.
_MAX_CONES = 20_000


def maximise_convex_over_round_set(
    cost: Callable[[Array], Array],
    shape: Shape,
    radius: float,
    center: Array,
    *,
    tolerance: float = 0.1 * OPTIMAL,
    max_cones: int = _MAX_CONES,
) -> tuple[float, Array, float]:
    """Return an upper bound of the maximum, the best point found and the gap between them.

    `tolerance` is a share of how far the cost differs over the ends of the axes and the centre.
    """
    if not shape.is_round:
        raise TypeError(
            f"The worst case of this convex cost over a {type(shape).__name__} cannot be computed: its conic form is "
            "not polyhedral, and it has no from_unit_ball. Use a Polyhedron, a Box, a Ball or an Ellipsoid."
        )

    def to_outcome(points: Array) -> Array:
        return shape.from_unit_ball(points, radius, center)

    d = len(center)
    best_value, best_point = -np.inf, center
    order = count()
    heap: list[tuple[float, int, Array]] = []

    def costs(outcomes: Array) -> Array:
        # A bound may look outside the domain of the cost, where nothing is known.
        values = cost(outcomes)
        return np.where(np.isnan(values), np.inf, values)

    def bound(generators: Array) -> float:
        nonlocal best_value, best_point
        on_sphere = to_outcome(generators)
        values = costs(on_sphere)
        k = int(np.argmax(values))
        if values[k] > best_value:
            best_value, best_point = float(values[k]), on_sphere[k]
        reach = np.sqrt(np.linalg.inv(generators @ generators.T).sum())
        return float(max(values.max(), costs(to_outcome(reach * generators)).max()))

    def push(generators: Array) -> None:
        heapq.heappush(heap, (-bound(generators), next(order), generators))

    for signs in product((-1.0, 1.0), repeat=d):
        push(np.diag(signs))
    ends = costs(to_outcome(np.vstack([np.eye(d), -np.eye(d), np.zeros((1, d))])))
    allowed = tolerance * float(best_value - ends.min()) + ROUNDING * abs(best_value)
    for _ in range(max_cones):
        upper = -heap[0][0]
        if upper - best_value <= allowed:
            break
        generators = heapq.heappop(heap)[2]
        if d == 1:
            heapq.heappush(heap, (-best_value, next(order), generators))
            break
        for half in _bisect(generators):
            push(half)
    upper = max(-heap[0][0], best_value)
    return upper, best_point, upper - best_value


def _bisect(generators: Array) -> list[Array]:
    """Split the cone across its widest pair of generators."""
    cosines = generators @ generators.T
    i, j = np.unravel_index(int(np.argmin(cosines)), cosines.shape)
    middle = generators[i] + generators[j]
    middle = middle / np.linalg.norm(middle)
    halves = []
    for replaced in (i, j):
        half = generators.copy()
        half[replaced] = middle
        halves.append(half)
    return halves
