"""Robust decisions: equal to brute force for every pair of set and problem, and explained where there is none."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from polyhedge.learners.samples import Samples
from polyhedge.problems import (
    DecisionProblem,
    Pieces,
    newsvendor,
    portfolio,
    simplex_linear,
    simplex_newsvendor,
    simplex_quadratic,
)
from polyhedge.problems.pieces import PIECE_LIMIT
from polyhedge.robust import Adversary, Counterpart, decide, decide_by_scenarios, decide_knowing
from polyhedge.robust.adversary import maximise_convex_over_round_set
from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron, Region
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Status
from polyhedge.solvers.solve import solve_mixed_integer

RADIUS = 0.8


def shapes(d):
    rng = np.random.default_rng(d)
    normals = np.vstack([rng.normal(size=(2 * d, d)), np.eye(d), -np.eye(d)])
    root = rng.normal(size=(d, d)) + 2 * np.eye(d)
    return {
        "polyhedron": Polyhedron(normals, -rng.uniform(0.2, 1.0, len(normals))),
        "box": Box(rng.uniform(0.5, 1.5, d), rng.normal(size=d) * 0.1),
        "l1 ball": Ball(d, 1),
        "l2 ball": Ball(d, 2, rng.normal(size=d) * 0.1),
        "linf ball": Ball(d, np.inf),
        "ellipsoid": Ellipsoid(0.2 * root @ root.T),
    }


SHAPES = tuple(shapes(2))
ROUND = ("l2 ball", "ellipsoid")


def sphere(d, n=40_000):
    if d == 2:
        angles = np.linspace(0, 2 * np.pi, n)
        return np.column_stack([np.cos(angles), np.sin(angles)])
    points = np.random.default_rng(0).normal(size=(n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def points_of(shape, center, support):
    """The vertices of a polyhedral region, a dense sample of the boundary of a round one."""
    A, h = support
    if isinstance(shape, Ellipsoid) or (isinstance(shape, Ball) and shape.norm == 2):
        root = shape.L if isinstance(shape, Ellipsoid) else np.eye(shape.n_outcomes)
        u = center + shape.center + RADIUS * sphere(len(center)) @ root.T
        u = u[np.all(u @ A.T <= h + 1e-12, axis=1)]
        return np.vstack([u, corners_of_the_cut(shape, center, support)]) if len(A) else u
    return Region(shape, RADIUS, center, *((A, h) if len(A) else (None, None))).vertices()


def corners_of_the_cut(shape, center, support):
    """In the plane, where the lines of the support meet the round set and each other."""
    A, h = support
    pairs = [[i, j] for i in range(len(A)) for j in range(i) if abs(np.linalg.det(A[[i, j]])) > 1e-9]
    found = [np.linalg.solve(A[pair], h[pair]) for pair in pairs]
    inverse = np.linalg.inv(shape.L if isinstance(shape, Ellipsoid) else np.eye(2))
    for a, b in zip(A, h, strict=True):
        foot, along = a * b / (a @ a), np.array([-a[1], a[0]])
        start, step = inverse @ (foot - center - shape.center), inverse @ along
        roots = np.roots([step @ step, 2 * start @ step, start @ start - RADIUS**2])
        found += [foot + t * along for t in roots.real[np.isreal(roots)]]
    u = np.array(found).reshape(-1, 2)
    return u[(shape.scores(u - center) <= RADIUS + 1e-9) & np.all(u @ A.T <= h + 1e-9, axis=1)]


def worst_at(problem, z, points):
    if problem.sum_of_maxima is None:
        points = points[:: max(1, len(points) // 4000)]
    return problem.evaluate(np.tile(z, (len(points), 1)), points).max()


def worst_on_grid(problem, grid, points):
    """max over points for every decision of a grid, piece by piece (fast) or one by one.

    Of a dense sample every 20th point will do: it misses the maximum by a millionth.
    """
    points = np.vstack([points[:: 20 if len(points) > 1000 else 1], points[-50:]])
    if problem.pieces is None:
        return np.array([worst_at(problem, z, points) for z in grid])
    zeros = np.zeros((len(grid), problem.n_outcomes))
    alone = problem.evaluate(grid, zeros) - problem.pieces.evaluate(grid, zeros)
    slopes = problem.pieces.directions(grid)
    supports = (slopes @ points.T).max(axis=2)
    return alone + (supports + grid @ problem.pieces.p.T + problem.pieces.c).max(axis=1)


def simplex_grid(d, n):
    steps = np.array([s for s in product(range(n + 1), repeat=d - 1) if sum(s) <= n], dtype=float) / n
    return np.column_stack([steps, 1 - steps.sum(axis=1)])


def with_support(problem, support):
    return DecisionProblem(
        decision=problem.decision,
        cost=problem.cost,
        constraints=problem.constraints,
        n_outcomes=problem.n_outcomes,
        outcome_support=support,
    )


PROBLEMS = {
    "simplex linear": lambda d: simplex_linear(np.linspace(-0.1, 0.1, d)),
    "simplex quadratic": lambda d: simplex_quadratic(np.linspace(-0.1, 0.1, d), 0.3),
    "simplex newsvendor": lambda d: simplex_newsvendor(1.0, np.linspace(2.0, 3.0, d), d),
    "portfolio": lambda d: portfolio(np.eye(d) + 0.3, risk_aversion=0.2),
    "newsvendor": lambda d: newsvendor(1.0, 3.0, d, capacity=1.5, nonnegative_demand=False),
}
SUPPORTS = {"no support": None, "cut": lambda u: [u >= 0.1, cp.sum(u) <= 1.6]}


class TestWorstCaseIsBruteForce:
    @pytest.mark.parametrize("cut", SUPPORTS)
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("name", PROBLEMS)
    def test_in_the_plane_bound_and_decision_are_exact(self, name, shape, cut):
        problem, shape = with_support(PROBLEMS[name](2), SUPPORTS[cut]), shapes(2)[shape]
        center = np.array([0.6, 0.4])
        found = decide(problem, shape, RADIUS, center[None])
        assert found.is_optimal.all(), found.complaint()
        points = points_of(shape, center, problem.support_rows)
        bound, z = found.cost_bound[0], found.z[0]
        slack = 1e-6 if len(points) < 100 else 1e-6 * (1 + abs(bound))
        assert worst_at(problem, z, points) == pytest.approx(bound, abs=slack)
        grid = simplex_grid(2, 400)
        if name == "newsvendor":
            side = np.linspace(0, 1.5, 31)
            grid = np.array([g for g in product(side, side) if sum(g) <= 1.5])
        best = worst_on_grid(problem, grid, points).min()
        assert bound <= best + (1e-6 if len(points) < 100 else 1e-5)
        assert best - bound <= 0.2  # the grid is near enough to say something
        self.check_evidence(problem, shape, center, found)

    @staticmethod
    def check_evidence(problem, shape, center, found):
        outcome = found.worst_outcome
        assert problem.evaluate(found.z, outcome)[0] == pytest.approx(found.cost_bound[0], abs=1e-6)
        assert shape.scores(outcome - center)[0] <= RADIUS + 1e-6
        A, h = problem.support_rows
        assert np.all(A @ outcome[0] <= h + 1e-6)
        assert found.gap[0] <= 1e-6

    @pytest.mark.parametrize("d", [1, 3])
    @pytest.mark.parametrize("shape", [s for s in SHAPES if s not in ROUND])
    @pytest.mark.parametrize("name", PROBLEMS)
    def test_in_more_dimensions_the_bound_is_the_best_vertex_maximum(self, name, shape, d):
        problem, shape = PROBLEMS[name](d), shapes(d)[shape]
        center = np.linspace(0.2, 0.5, d)
        found = decide(problem, shape, RADIUS, center[None])
        points = points_of(shape, center, problem.support_rows)
        assert worst_at(problem, found.z[0], points) == pytest.approx(found.cost_bound[0], abs=1e-6)
        if problem.pieces is not None and d > 1:
            grid = simplex_grid(d, 10)
            assert found.cost_bound[0] <= worst_on_grid(problem, grid, points).min() + 1e-6

    @pytest.mark.parametrize("shape", ROUND)
    @pytest.mark.parametrize("d", [1, 3, 6])
    def test_round_sets_give_the_closed_form(self, shape, d):
        problem, shape = simplex_linear(np.zeros(d)), shapes(d)[shape]
        center = np.linspace(0.0, 0.3, d)
        found = decide(problem, shape, RADIUS, center[None])
        by_formula = lambda z: z @ center + shape.support(z, RADIUS)  # noqa: E731
        assert found.cost_bound[0] == pytest.approx(by_formula(found.z[0]), abs=1e-7)
        grid = np.random.default_rng(0).dirichlet(np.full(d, 0.5), 500)
        assert found.cost_bound[0] <= min(by_formula(z) for z in grid) + 1e-7

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_random_maxima_of_affine_functions(self, seed, shape):
        rng = np.random.default_rng(seed)
        pieces = Pieces.from_coefficients(rng.normal(size=(4, 4, 3)))
        z = cp.Variable(3, bounds=[-1, 1])
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum_squares(z) + cp.maximum(*[
                (pieces.Q[k] @ z + pieces.q[k]) @ u + pieces.p[k] @ z + pieces.c[k] for k in range(4)]),
            n_outcomes=2,
        )  # fmt: skip
        shape, centers = shapes(2)[shape], rng.normal(size=(3, 2))
        found = decide(problem, shape, RADIUS, centers)
        grid = rng.uniform(-1, 1, size=(200, 3))
        nearby = np.clip(found.z[0] + 0.05 * rng.normal(size=(200, 3)), -1, 1)
        for z_value, bound, center in zip(found.z, found.cost_bound, centers, strict=True):
            points = points_of(shape, center, problem.support_rows)
            assert worst_at(problem, z_value, points) == pytest.approx(bound, abs=2e-6)
            assert bound <= worst_on_grid(problem, np.vstack([grid, nearby]), points).min() + 2e-5

    @pytest.mark.parametrize("d", [2, 3, 6])
    def test_the_newsvendor_equals_brute_force_over_its_pieces(self, d):
        over, under = np.linspace(1, 2, d), np.linspace(4, 3, d)
        problem, shape = simplex_newsvendor(over, under, d), shapes(d)["polyhedron"]
        center = np.full(d, 1.0 / d)
        found = decide(problem, shape, RADIUS, center[None])
        slopes = np.array([np.where(bits, under, -over) for bits in product([0, 1], repeat=d)])
        supports = np.array([shape.support(a, RADIUS) for a in slopes]) + slopes @ center
        z = cp.Variable(d, nonneg=True)
        reference = cp.Problem(cp.Minimize(cp.max(supports - slopes @ z)), [cp.sum(z) == 1])
        assert found.cost_bound[0] == pytest.approx(reference.solve(solver=cp.CLARABEL), abs=1e-6)

    def test_a_point_is_decided_as_if_the_outcome_were_known(self):
        outcome = np.array([[0.4, 0.1]])
        for shape in shapes(2).values():
            if isinstance(shape, Polyhedron):
                continue
            problem = simplex_quadratic([0.0, 0.2], 0.5)
            residual_center = np.asarray(shape.center)
            z, cost = decide_knowing(problem, outcome + residual_center)
            found = decide(problem, shape, 0.0, outcome)
            assert found.cost_bound[0] == pytest.approx(cost[0], abs=1e-6)
            np.testing.assert_allclose(found.z, z, atol=1e-4)

    def test_decisions_known_to_be_possible_ignore_what_the_support_held_possible(self):
        z, cost = decide_knowing(newsvendor(1.0, 2.0, 2), np.array([[-1.0, 2.0]]))
        np.testing.assert_allclose(z, [[0.0, 2.0]], atol=1e-8)
        assert cost[0] == pytest.approx(1.0)


class TestDecisionsOfEveryKind:
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("g0", ["linear", "quadratic"])
    def test_integer_decisions_equal_enumeration(self, shape, g0):
        z = cp.Variable(2, integer=True, bounds=[-2, 3])
        quadratic = 0.5 if g0 == "quadratic" else 0.0
        target = np.array([0.4, 1.7])
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.maximum(u @ z, u[0] - z[1]) + quadratic * cp.sum_squares(z - target) - 0.3 * z[0],
            constraints=[z[0] + z[1] <= 4],
            n_outcomes=2,
        )
        shape, center = shapes(2)[shape], np.array([0.3, -0.8])
        found = decide(problem, shape, RADIUS, center[None])
        assert found.is_optimal.all(), found.complaint()
        grid = np.array([g for g in product(range(-2, 4), repeat=2) if sum(g) <= 4], float)
        points = points_of(shape, center, problem.support_rows)
        worst = worst_on_grid(problem, grid, points)
        assert found.cost_bound[0] == pytest.approx(worst.min(), abs=1e-6)
        assert worst[np.all(grid == found.z[0], axis=1)] == pytest.approx(worst.min(), abs=1e-6)
        assert problem.evaluate(found.z, found.worst_outcome)[0] == pytest.approx(found.cost_bound[0], abs=1e-6)

    @pytest.mark.parametrize("shape", ["box", "l2 ball"])
    def test_boolean_decisions_equal_enumeration(self, shape):
        z = cp.Variable((2, 3), boolean=True)
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum(z @ u) + cp.max(z @ np.array([1.0, -2.0, 0.5]) + u[0]),
            constraints=[cp.sum(z) >= 2, cp.sum(z, axis=1) <= 2],
            n_outcomes=3,
        )
        center = np.array([0.5, -0.2, -0.4])
        found = decide(problem, shapes(3)[shape], RADIUS, center[None])
        options = np.array(list(product([0.0, 1.0], repeat=6)))
        rows = options.reshape(-1, 2, 3)
        options = options[(options.sum(axis=1) >= 2) & np.all(rows.sum(axis=2) <= 2, axis=1)]
        costs = [Adversary(problem, shapes(3)[shape], RADIUS, center).worst_case(o).value for o in options]
        assert found.cost_bound[0] == pytest.approx(min(costs), abs=1e-6)
        assert found.z.shape == (1, 2, 3)

    def test_unbounded_integers_with_a_quadratic_cost_are_not_called_unbounded(self):
        problem = DecisionProblem(
            decision=cp.Variable(2, integer=True),
            cost=lambda z, u: u @ z + cp.sum_squares(z - 2.4) - 7 * cp.sum(z),
            n_outcomes=2,
        )
        center = np.array([0.1, 0.2])
        for shape in (Box([1.0, 1.0]), Ball(2)):
            found = decide(problem, shape, 0.1, center[None])
            grid = np.array(list(product(range(9), repeat=2)), float)
            costs = grid @ center + shape.support(grid, 0.1) + ((grid - 2.4) ** 2).sum(axis=1) - 7 * grid.sum(axis=1)
            assert found.cost_bound[0] == pytest.approx(costs.min(), abs=1e-6)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_second_order_cone_feasible_set(self, shape):
        z = cp.Variable(2)
        problem = DecisionProblem(
            decision=z, cost=lambda z, u: u @ z, constraints=[cp.norm(z - 1) <= 1.5], n_outcomes=2
        )
        shape, center = shapes(2)[shape], np.array([0.2, -0.3])
        found = decide(problem, shape, RADIUS, center[None])
        points = points_of(shape, center, problem.support_rows)
        radii, angles = np.meshgrid(np.linspace(0, 1.5, 16), np.linspace(0, 2 * np.pi, 120))
        grid = 1 + np.column_stack([(radii * np.cos(angles)).ravel(), (radii * np.sin(angles)).ravel()])
        assert np.linalg.norm(found.z[0] - 1) <= 1.5 + 1e-7
        assert worst_at(problem, found.z[0], points) == pytest.approx(found.cost_bound[0], abs=1e-6)
        best = worst_on_grid(problem, grid, points).min()
        assert found.cost_bound[0] <= best + 1e-4
        assert best <= found.cost_bound[0] + 0.1

    def test_a_scalar_decision(self):
        z = cp.Variable()
        problem = DecisionProblem(decision=z, cost=lambda z, u: cp.abs(z - u[0]) + u[1] * z, n_outcomes=2,
                                  constraints=[z >= -5, z <= 5])  # fmt: skip
        found = decide(problem, Box([1.0, 0.5]), 1.0, np.array([[2.0, 0.0]]))
        grid = np.linspace(-5, 5, 2001)[:, None]
        points = np.array(list(product([1.0, 3.0], [-0.5, 0.5])))
        best = worst_on_grid(problem, grid, points).min()
        assert found.cost_bound[0] == pytest.approx(best, abs=1e-6)
        assert found.z.shape == (1, 1)

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("integer", [False, True])
    def test_uncertain_constraints_hold_everywhere_and_cost_no_more_than_needed(self, shape, integer):
        z = cp.Variable(2, nonneg=True, integer=integer)
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: np.array([1.0, 1.3]) @ z + 0.1 * (u @ z),
            constraints=[z <= 4],
            uncertain_constraints=lambda z, u: [
                (u + 2) @ z >= 3,
                0.1 * cp.sum_squares(z) + cp.pos(u[0] - z[1]) <= 3,
                z[0] <= 3,
            ],
            n_outcomes=2,
        )
        shape, center = shapes(2)[shape], np.array([0.3, 0.1])
        found = decide(problem, shape, RADIUS, center[None])
        assert found.is_optimal.all(), found.complaint()
        points = points_of(shape, center, problem.support_rows)

        def excess(z):
            rows = [3 - (points + 2) @ z, 0.1 * z @ z + np.maximum(points[:, 0] - z[1], 0) - 3]
            return max(row.max() for row in rows)

        assert excess(found.z[0]) <= 1e-6
        steps = np.arange(0, 4) if integer else np.linspace(0, 3, 31)
        grid = np.array([g for g in product(steps, steps) if excess(np.array(g, float)) <= 0], float)
        best = worst_on_grid(problem, grid, points).min()
        assert found.cost_bound[0] <= best + 1e-6
        assert best <= found.cost_bound[0] + (1e-6 if integer else 0.15)

    def test_an_uncertain_constraint_without_the_decision_is_a_check_of_the_set(self):
        problem = DecisionProblem(
            decision=cp.Variable(bounds=[0, 1]),
            cost=lambda z, u: z * u[0],
            uncertain_constraints=lambda z, u: [u[0] <= 2],
            n_outcomes=1,
        )
        found = decide(problem, Ball(1), 1.0, np.array([[0.0], [1.5]]))
        assert list(found.status) == [Status.OPTIMAL, Status.INFEASIBLE]


def concave_quadratic(curvature):
    """(z'u - u'Cu) with max over u of a concave quadratic: the worst case has the closed form of its dual."""
    z = cp.Variable(2)
    root = np.linalg.cholesky(curvature).T
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z - cp.sum_squares(root @ u) + cp.sum_squares(z - 1.0),
        constraints=[z >= -2, z <= 2],
        n_outcomes=2,
    )


class TestColumnAndConstraintGeneration:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_concave_quadratic_cost_equals_its_direct_dual(self, shape):
        curvature = np.array([[0.7, 0.1], [0.1, 0.4]])
        problem, shape = concave_quadratic(curvature), shapes(2)[shape]
        center = np.array([0.4, -0.5])
        found = decide(problem, shape, RADIUS, center[None])
        assert found.is_optimal.all(), found.complaint()
        # max {u'z - u'Cu : g - G[u - f; y] in K} = min {g'l + f'm + |C^-1/2 (z - m)|^2 / 4 : G'l = (m, 0), l in K*}
        form, z, m = shape.conic_form(RADIUS), cp.Variable(2), cp.Variable(2)
        multipliers = cp.Variable(len(form.g))
        rows, start = [form.G.T @ multipliers == cp.hstack([m, *np.zeros(form.G.shape[1] - 2)])], 0
        for cone in form.cones:
            block = multipliers[start : start + cone.n_rows]
            start += cone.n_rows
            rows.append(cp.SOC(block[0], block[1:]) if cone.kind == "soc" else block >= 0)
        inverse_root = np.linalg.cholesky(np.linalg.inv(curvature)).T
        dual = form.g @ multipliers + center @ m + cp.sum_squares(inverse_root @ (z - m)) / 4
        reference = cp.Problem(cp.Minimize(dual + cp.sum_squares(z - 1.0)), [*rows, z >= -2, z <= 2])
        assert found.cost_bound[0] == pytest.approx(reference.solve(solver=cp.CLARABEL), abs=1e-5)
        assert found.cost_bound[0] >= problem.evaluate(found.z, found.worst_outcome)[0] - 1e-6

    @pytest.mark.parametrize("shape", [s for s in SHAPES if s not in ROUND])
    @pytest.mark.parametrize("cut", SUPPORTS)
    def test_a_convex_cost_over_a_polytope_is_worst_at_a_vertex(self, shape, cut):
        z = cp.Variable(2, nonneg=True)
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum_squares(u - z) + cp.exp(u @ z - 1),
            constraints=[cp.sum(z) <= 1],
            outcome_support=SUPPORTS[cut],
            n_outcomes=2,
        )
        shape, center = shapes(2)[shape], np.array([0.6, 0.4])
        found = decide(problem, shape, RADIUS, center[None])
        points = points_of(shape, center, problem.support_rows)
        assert worst_at(problem, found.z[0], points) == pytest.approx(found.cost_bound[0], abs=1e-6)
        grid = np.array([g for g in product(np.linspace(0, 1, 11), repeat=2) if sum(g) <= 1])
        best = worst_on_grid(problem, grid, points).min()
        assert best - 0.1 <= found.cost_bound[0] <= best + 1e-6

    @pytest.mark.parametrize("shape", ROUND)
    def test_a_convex_cost_over_a_round_set_is_within_its_gap_of_a_dense_sample(self, shape):
        problem = DecisionProblem(
            decision=cp.Variable(2, bounds=[-1, 1]),
            cost=lambda z, u: cp.exp(0.5 * u[0] - z[0]) + cp.square(u[1] + z[1]) + cp.sum(z),
            n_outcomes=2,
        )
        shape, center = shapes(2)[shape], np.array([0.5, 1.0])
        found = decide(problem, shape, RADIUS, center[None])
        points = points_of(shape, center, problem.support_rows)[::10]
        sampled = worst_at(problem, found.z[0], points)
        assert sampled - 1e-9 <= found.cost_bound[0] <= sampled + found.gap[0] + 1e-5
        assert found.is_optimal.all()
        assert found.gap[0] <= 1e-5

    @pytest.mark.parametrize("d", [1, 2, 3])
    def test_branch_and_bound_proves_the_gap_it_states(self, d):
        rng = np.random.default_rng(d)
        root = rng.normal(size=(d, d))
        slope = rng.normal(size=d)
        cost = lambda u: ((u @ root.T) ** 2).sum(axis=1) + u @ slope  # noqa: E731
        for shape in (Ball(d), shapes(d)["ellipsoid"]):
            center = rng.normal(size=d)
            upper, point, gap = maximise_convex_over_round_set(cost, shape, RADIUS, center, max_cones=3000)
            L = shape.L if isinstance(shape, Ellipsoid) else np.eye(d)
            sampled = cost(center + shape.center + RADIUS * sphere(d, 20_000) @ L.T).max()
            assert sampled <= upper + 1e-9
            assert upper - gap == pytest.approx(cost(point[None])[0])
            assert gap <= (1e-6 if d < 3 else 0.05) * max(1.0, abs(upper))

    def test_a_bound_that_looks_outside_the_domain_of_the_cost_is_still_right(self):
        problem = DecisionProblem(decision=cp.Variable(2, nonneg=True), cost=lambda z, u: -cp.log(u @ z), n_outcomes=2)
        worst = Adversary(problem, Ball(2), 0.9, np.ones(2)).worst_case(np.array([0.5, 0.5]))
        assert worst.value == pytest.approx(-np.log(1 - 0.9 / np.sqrt(2)), abs=1e-6)

    def test_a_convex_cost_over_a_cut_ball_is_refused(self):
        problem = DecisionProblem(
            decision=cp.Variable(2),
            cost=lambda z, u: cp.sum_squares(u - z),
            outcome_support=lambda u: [u >= 0],
            n_outcomes=2,
        )
        with pytest.raises(ValueError, match="over a ball or an ellipsoid cut by outcome_support cannot be"):
            decide(problem, Ball(2), 1.0, np.ones((1, 2)))

    @pytest.mark.parametrize("shape", SHAPES)
    def test_scenarios_and_the_dual_counterpart_agree(self, shape):
        problem, center = simplex_newsvendor(1.0, 2.0, 2), np.array([0.4, 0.7])
        by_dual = decide(problem, shapes(2)[shape], RADIUS, center[None]).cost_bound[0]
        by_scenarios = decide_by_scenarios(problem, shapes(2)[shape], RADIUS, center)
        assert by_scenarios.status is Status.OPTIMAL
        assert by_scenarios.value == pytest.approx(by_dual, abs=1e-6)

    def test_squares_over_a_box_are_decided_at_its_centre_and_optimal_means_a_small_gap(self):
        half = np.array([6.56, 11.03])
        problem = DecisionProblem(
            decision=cp.Variable(2, bounds=[0, 100]), cost=lambda z, u: cp.sum_squares(z - u), n_outcomes=2
        )
        centers = np.random.default_rng(0).normal([25.0, 20.0], [4.0, 3.0], (25, 2))
        found = decide(problem, Box(half), 1.0, centers)
        # Also where no further scenario helps: a solver's last digits are no reason to say that it stopped early.
        np.testing.assert_array_equal(found.is_optimal, found.gap <= 1e-6 * found.cost_bound)
        excess = found.cost_bound - (half**2).sum()
        assert (excess >= -1e-6).all()
        assert (excess <= found.gap + 1e-6).all()
        np.testing.assert_allclose(found.z, centers, atol=1e-2)

    @pytest.mark.parametrize("shape", ["polyhedron", "l2 ball"])
    def test_uncertain_constraints_of_a_cost_without_pieces_hold(self, shape):
        problem = DecisionProblem(
            decision=cp.Variable(2, nonneg=True),
            cost=lambda z, u: cp.sum(z) + z @ u - cp.sum_squares(u),
            uncertain_constraints=lambda z, u: [(u + 2) @ z >= 3],
            n_outcomes=2,
        )
        shape, center = shapes(2)[shape], np.array([0.3, 0.1])
        found = decide(problem, shape, RADIUS, center[None])
        points = points_of(shape, center, problem.support_rows)
        assert found.is_optimal.all(), found.complaint()
        assert ((points + 2) @ found.z[0]).min() >= 3 - 1e-5

    def test_rounding_below_known_signs_does_not_stop_the_loop(self):
        squares = DecisionProblem(
            decision=cp.Variable(2, nonneg=True),
            cost=lambda z, u: u @ cp.square(z),
            constraints=[],
            outcome_support=lambda u: [u >= 0],
            uncertain_constraints=lambda z, u: [cp.sum(z) >= 1],
            n_outcomes=2,
        )
        found = decide(squares, Ball(2), 1.0, np.array([[-0.5, 0.5]]))
        first = np.linspace(0, 1, 2001)
        angle = np.linspace(0, 2 * np.pi, 4001)
        u = np.clip(np.column_stack([np.cos(angle) - 0.5, np.sin(angle) + 0.5]), 0, None)
        u = u[np.hypot(u[:, 0] + 0.5, u[:, 1] - 0.5) <= 1 + 1e-9]
        grid = np.column_stack([first, 1 - first]) ** 2
        assert found.cost_bound[0] == pytest.approx((grid @ u.T).max(axis=1).min(), abs=1e-4)
        assert found.is_optimal.all()

    def test_a_master_that_is_unbounded_for_want_of_scenarios_is_not_the_answer(self):
        # The extremes along the axes miss the corner that makes far decisions expensive.
        W = np.array([[1.0, 1.0], [-1.0, 0.1], [0.1, -1.0]])
        problem = DecisionProblem(
            decision=cp.Variable(2), cost=lambda z, u: u @ z - 0.1 * cp.sum_squares(u), n_outcomes=2
        )
        shape = Polyhedron(W, -np.array([1.0, 0.0, 0.0]))
        found = decide(problem, shape, 1.0, np.zeros((1, 2)))
        assert found.is_optimal.all(), found.complaint()
        assert abs(found.cost_bound[0]) <= 1e-6


class TestSumsOfTooManyPieces:
    d = PIECE_LIMIT.bit_length()

    def test_the_newsvendor_over_a_box_has_its_separable_closed_form(self):
        rng = np.random.default_rng(0)
        over, under = rng.uniform(1, 2, self.d), rng.uniform(2, 5, self.d)
        scale, center = rng.uniform(0.5, 1.5, self.d), rng.uniform(4, 6, self.d)
        problem = newsvendor(over, under, self.d, nonnegative_demand=False)
        assert problem.pieces is None
        found = decide(problem, Box(scale), RADIUS, center[None])
        closed_form = (over * under / (over + under) * 2 * RADIUS * scale).sum()
        assert found.cost_bound[0] == pytest.approx(closed_form, rel=1e-6)
        assert found.is_optimal.all(), found.complaint()

    @pytest.mark.parametrize("shape", SHAPES)
    def test_the_mixed_integer_adversary_equals_the_pieces(self, shape, monkeypatch):
        few, shape, center = simplex_newsvendor(1.0, [2.0, 3.0, 4.0], 3), shapes(3)[shape], np.full(3, 0.4)
        z = np.array([0.2, 0.3, 0.5])
        by_pieces = Adversary(few, shape, RADIUS, center).worst_case(z)
        monkeypatch.setattr("polyhedge.problems.pieces.PIECE_LIMIT", 4)
        many = simplex_newsvendor(1.0, [2.0, 3.0, 4.0], 3)
        assert many.pieces is None
        by_choice = Adversary(many, shape, RADIUS, center).worst_case(z)
        assert by_choice.value == pytest.approx(by_pieces.value, abs=1e-6)
        assert shape.scores((by_choice.outcome - center)[None])[0] <= RADIUS + 1e-6


def decided(problem, shape, radius=1.0, center=(0.0, 0.0)):
    return decide(problem, shape, radius, np.array([center]))


class TestFailuresAreToldApart:
    half_plane = Polyhedron([[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]], [0.0, 0.0, 0.0])
    concave = concave_quadratic(np.eye(2))

    def test_an_unbounded_set(self):
        for problem in (simplex_linear([0.0, 0.0]), simplex_newsvendor(1.0, 1.0, 2)):
            found = decided(problem, self.half_plane)
            if problem.name == "simplex linear":
                assert found.status[0] is Status.OPTIMAL  # all on the first outcome, which is bounded
                continue
            assert found.status[0] is Status.UNBOUNDED_SET
            assert found.cost_bound[0] == np.inf
            assert "unbounded along [0.0, 1.0]" in found.complaint()

    def test_an_unbounded_set_for_a_cost_without_pieces(self):
        found = decided(self.concave, self.half_plane)
        assert found.status[0] is Status.UNBOUNDED_SET
        assert found.cost_bound[0] == np.inf

    @pytest.mark.parametrize("shape", SHAPES)
    def test_an_empty_region(self, shape):
        for problem in (simplex_linear([0.0, 0.0]), simplex_newsvendor(1.0, 1.0, 2), self.concave):
            found = decided(with_support(problem, lambda u: [u >= 100]), shapes(2)[shape])
            assert found.status[0] is Status.EMPTY_SET, (problem.name, found.complaint())
            assert np.isnan(found.z).all()
            assert "do not meet" in found.complaint()

    def test_infeasible_uncertain_constraints(self):
        for cost in (lambda z, u: u @ z, lambda z, u: u @ z - cp.sum_squares(u)):
            problem = DecisionProblem(
                decision=cp.Variable(2, bounds=[0, 1]),
                cost=cost,
                uncertain_constraints=lambda z, u: [u @ z >= 1],
                n_outcomes=2,
            )
            found = decided(problem, Ball(2))
            assert found.status[0] is Status.INFEASIBLE
            assert "No decision satisfies uncertain_constraints for all outcomes" in found.complaint()
            assert decided(problem, Ball(2), center=(3.0, 3.0)).status[0] is Status.OPTIMAL

    @pytest.mark.parametrize("options", [{}, {"integer": True}])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_cost_without_a_lower_limit(self, shape, options):
        for cost in (lambda z, u: cp.sum(u) - cp.sum(z), lambda z, u: 0.1 * (u @ z) - cp.sum(z)):
            problem = DecisionProblem(decision=cp.Variable(2, nonneg=True, **options), cost=cost, n_outcomes=2)
            found = decided(problem, shapes(2)[shape])
            assert found.status[0] is Status.UNBOUNDED
            assert found.cost_bound[0] == -np.inf

    def test_a_concave_cost_without_a_lower_limit(self):
        problem = DecisionProblem(
            decision=cp.Variable(2), cost=lambda z, u: cp.sum(z) - cp.sum_squares(u), n_outcomes=2
        )
        found = decided(problem, Ball(2))
        assert found.status[0] is Status.UNBOUNDED
        assert found.cost_bound[0] == -np.inf

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((Ball(3), 1.0, np.zeros((1, 2))), r"The set has 3 outcome\(s\) but the problem has 2"),
            ((Ball(2), 1.0, np.zeros((1, 3))), r"centers must have 2 column\(s\)"),
            ((Ball(2), 1.0, np.zeros(2)), r"centers must have 2 dimension\(s\)"),
            ((Ball(2), 1.0, np.full((1, 2), np.nan)), "centers must be finite"),
            ((Ball(2), np.inf, np.zeros((1, 2))), "radius must be finite, got inf"),
        ],
    )
    def test_wrong_shapes_and_numbers(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            decide(simplex_linear([0.0, 0.0]), *arguments)

    def test_a_counterpart_needs_pieces(self):
        with pytest.raises(ValueError, match="no piece list; use column-and-constraint generation"):
            Counterpart(self.concave, Ball(2), 1.0)

    def test_the_adversary_says_that_the_worst_case_is_infinite(self):
        worst = Adversary(simplex_linear([0.0, 0.0]), self.half_plane, 1.0, np.zeros(2)).worst_case(np.ones(2))
        assert worst.value == np.inf


def random_program(rng, n, m):
    """A bounded linear program with equations, dense rows, and several bounds for each column."""
    A = np.vstack([rng.normal(size=(1, n)), rng.normal(size=(m, n)), np.repeat(np.eye(n), 2, axis=0),
                   np.repeat(-np.eye(n), 2, axis=0) * rng.uniform(0.5, 2, (2 * n, 1))])  # fmt: skip
    inside = rng.uniform(-0.5, 0.5, n)
    slack = np.concatenate([[0.0], rng.uniform(0, 1, m), rng.integers(1, 3, 4 * n).astype(float)])
    cones = (Cone("zero", 1), Cone("nonneg", m + 4 * n))
    return ConicProgram(c=rng.normal(size=n), A=sp.csr_array(A), b=A @ inside + slack, cones=cones, offset=1.0)


class TestSolvers:
    @pytest.mark.parametrize("seed", range(4))
    def test_linear_duals_satisfy_their_definition(self, seed):
        program = random_program(np.random.default_rng(seed), 4, 3)
        solution = LinearSolver(program).solve()
        A, y = program.A.toarray(), solution.y
        np.testing.assert_allclose(program.c + A.T @ y, 0, atol=1e-8)
        assert y[1:].min() >= -1e-12
        np.testing.assert_allclose(y[1:] * (program.b - A @ solution.x)[1:], 0, atol=1e-7)
        assert solution.value == pytest.approx(1.0 - program.b @ y)

    def test_changed_numbers_give_what_a_fresh_solver_gives(self):
        rng = np.random.default_rng(0)
        program = random_program(rng, 4, 3)
        varying = np.array([2, 4])
        warm = LinearSolver(program, varying_rows=varying)
        warm.solve()
        A, b, c = program.A.toarray(), program.b.copy(), rng.normal(size=4)
        b[varying] += 0.3
        A[2, 1], A[4, 0] = A[2, 1] + 0.5, A[4, 0] * 2
        warm.change_costs(np.arange(4), c)
        warm.change_rhs(varying, b[varying])
        warm.change_entries(program.A.indptr[[2, 4]] + [1, 0], A[[2, 4], [1, 0]])
        fresh = LinearSolver(ConicProgram(c, sp.csr_array(A), b, program.cones, offset=1.0)).solve()
        assert warm.solve().value == pytest.approx(fresh.value)

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy counts with what is no number
    @pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e300])
    @pytest.mark.parametrize("at_once", [True, False])
    def test_numbers_that_are_none_fail_and_once_they_are_some_again_the_program_is_solved(self, odd, at_once):
        program = random_program(np.random.default_rng(0), 4, 3)
        entries, usual = program.A.indptr[2] + np.arange(2), program.A.toarray()[2, :2]
        wrong, limits = program.A.toarray(), program.b.copy()
        wrong[2, 0], limits[2] = odd, odd
        strange = ConicProgram(program.c, sp.csr_array(wrong), limits, program.cones, offset=1.0)
        warm = LinearSolver(strange if at_once else program, varying_rows=np.array([2]), scaling=Scaling.of(program))
        for _ in range(2):
            warm.change_rhs(np.array([2]), np.array([odd]))
            warm.change_entries(entries, np.array([odd, usual[1]]))
            if not np.isfinite(odd):
                assert warm.solve().status is Status.FAILED
            warm.change_rhs(np.array([2]), program.b[[2]])
            warm.change_entries(entries, usual)
            found = warm.solve()
            assert found.status is Status.OPTIMAL
            assert found.value == pytest.approx(LinearSolver(program).solve().value)

    def test_cones_are_no_business_of_the_linear_solver(self):
        program = ConicProgram(np.ones(2), sp.csr_array(np.eye(2)), np.ones(2), (Cone("soc", 2),))
        with pytest.raises(ValueError, match="without quadratic terms and cones"):
            LinearSolver(program)

    @pytest.mark.needs("pyscipopt")
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("quadratic", [False, True])
    def test_outer_approximation_equals_scip(self, seed, quadratic):
        rng = np.random.default_rng(seed)
        n = 4
        M, target, c = rng.normal(size=(n, n)), rng.normal(size=n) * 2, rng.normal(size=n)
        size = 3.0 + seed / 4
        x, whole = cp.Variable(n), cp.Variable(2, integer=True)
        rows = [cp.norm(M @ x - target) <= size, x[:2] == whole, x <= 5, x >= -5]
        objective = c @ x + (0.5 * cp.sum_squares(x - target) if quadratic else 0.0)
        reference = cp.Problem(cp.Minimize(objective), rows)
        reference.solve(solver=cp.SCIP)
        eye = np.eye(n)
        program = ConicProgram(
            c=c - (target if quadratic else 0.0),
            A=sp.csr_array(np.vstack([eye, -eye, np.zeros((1, n)), -M])),
            b=np.concatenate([np.full(2 * n, 5.0), [size], -target]),
            cones=(Cone("nonneg", 2 * n), Cone("soc", n + 1)),
            P=sp.csr_array(eye) if quadratic else None,
            offset=0.5 * target @ target if quadratic else 0.0,
            integer=np.array([0, 1]),
        )
        found = solve_mixed_integer(program)
        if reference.status == cp.INFEASIBLE:
            assert found.status is Status.INFEASIBLE
            return
        assert found.status is Status.OPTIMAL
        assert found.value == pytest.approx(reference.value, abs=1e-4)
        assert np.linalg.norm(M @ found.x - target) <= size + 1e-6
        np.testing.assert_array_equal(found.x[:2], np.round(found.x[:2]))

    def test_integers_without_constraints_are_minimised(self):
        program = ConicProgram(
            c=-np.array([5.2, 3.4]), A=sp.csr_array((0, 2)), b=np.zeros(0), cones=(), P=sp.csr_array(2 * np.eye(2)),
            integer=np.array([0, 1]),
        )  # fmt: skip
        np.testing.assert_array_equal(solve_mixed_integer(program).x, [3.0, 2.0])

    def test_exponential_cones_with_integers_are_refused(self):
        with pytest.raises(ValueError, match=r"Integer decisions with \['exp'\] cones are not supported"):
            DecisionProblem(decision=cp.Variable(2, integer=True), cost=lambda z, u: u @ z + cp.exp(z[0]), n_outcomes=2)


def gradient_case(name):
    z = cp.Variable(2, nonneg=True)
    simplex = [cp.sum(z) == 1]
    if name == "affine":
        return simplex_linear([0.05, 0.0])
    if name == "quadratic":
        return simplex_quadratic([0.05, 0.0], 0.4)
    if name == "maximum, fixed directions":
        return simplex_newsvendor(1.0, 2.0, 2)
    if name == "maximum":
        cost = lambda z, u: cp.maximum(u @ z, 0.5 * u[0] - z[1], 2 * u[1] * z[0]) + cp.sum_squares(z)  # noqa: E731
        return DecisionProblem(decision=z, cost=cost, constraints=simplex, n_outcomes=2)
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z + 2 * cp.sum(z) + 0.3 * cp.sum_squares(z),
        uncertain_constraints=lambda z, u: [(u + 3) @ z >= 1 + 0.1 * cp.sum_squares(z), u[0] - z[0] <= 4],
        n_outcomes=2,
    )


class TestFacetGradient:
    @pytest.mark.parametrize("cut", [None, lambda u: [u >= -0.4, cp.sum(u) <= 0.9]])
    @pytest.mark.parametrize(
        "name", ["affine", "quadratic", "maximum, fixed directions", "maximum", "uncertain constraints"]
    )
    def test_it_equals_finite_differences(self, name, cut):
        problem = gradient_case(name)
        if cut is not None:
            problem = DecisionProblem(
                decision=problem.decision,
                cost=problem.cost,
                constraints=problem.constraints,
                uncertain_constraints=problem.uncertain_constraints,
                outcome_support=cut,
                n_outcomes=2,
            )
        rng = np.random.default_rng(5)
        angles = np.linspace(0, 2 * np.pi, 5, endpoint=False) + rng.uniform(0, 0.5, 5)
        W, q = np.column_stack([np.cos(angles), np.sin(angles)]), rng.uniform(0.4, 0.8, 5)
        # A second, looser facet of one direction must get no share of the first one's multiplier. A linear cost
        # has a kink where a facet is normal to a pure decision, so that it gets another direction.
        twin = W[0] if name == "affine" else np.array([1.0, 0.0])
        W, q = np.vstack([W, twin, twin]), np.append(q, [0.35, 0.9])
        objective = Samples(
            rng.normal(size=(30, 2)), rng.normal(size=(4, 2)) * 0.1 + np.array([0.1, 0.0]), problem, 0.2
        )
        contexts = np.arange(4)
        gradient = objective.facet_gradient(W, q, contexts)
        step = 1e-5

        def value(W, q):
            return objective.facet_gradient(W, q, contexts).value

        assert np.isfinite(gradient.value)
        for k in range(len(q)):
            e = np.zeros_like(q)
            e[k] = step
            slope = (value(W, q + e) - value(W, q - e)) / (2 * step)
            assert gradient.q[k] == pytest.approx(slope, abs=1e-4)
            for j in range(2):
                E = np.zeros_like(W)
                E[k, j] = step
                slope = (value(W + E, q) - value(W - E, q)) / (2 * step)
                assert gradient.W[k, j] == pytest.approx(slope, abs=1e-4)

    @pytest.mark.parametrize("name", ["maximum", "maximum, fixed directions"])
    def test_the_weights_of_the_cost_sum_to_one_and_the_points_lie_in_the_set(self, name):
        problem, shape = gradient_case(name), shapes(2)["polyhedron"]
        counterpart = Counterpart(problem, shape, RADIUS)
        solution = counterpart.solve(np.array([0.2, 0.1]))
        assert solution.weights.sum() == pytest.approx(1.0)
        heavy = solution.weights > 1e-6
        points = solution.weighted_points[heavy] / solution.weights[heavy, None]
        assert shape.scores(points).max() <= RADIUS + 1e-6
