"""Units do not matter: the same problem in other units has the same statuses, bounds and decisions, on every route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import polyhedge as ph
from polyhedge.learners import Samples
from polyhedge.learners.samples import SampleScaling
from polyhedge.problems.checks import outside_support
from polyhedge.robust import Adversary, decide
from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Solution
from polyhedge.solvers.verify import Verifier
from polyhedge_study.baselines.union_of_balls import UnionOfBalls
from shared import simplex

EPS = float(np.finfo(float).eps)
TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


@dataclass(frozen=True)
class Units:
    """u = outcome (u' + shift), z = decision (z' + move), cost times `cost`; shift and move are in spreads."""

    outcome: float = 1.0
    cost: float = 1.0
    decision: float = 1.0
    shift: float = 0.0
    move: float = 0.0

    @property
    def tolerance(self) -> float:
        """What a bound may be off by, in spreads: a little, and what rounding makes of numbers so far from 0."""
        return 1e-6 + 4096 * EPS * (1 + self.shift) * (1 + self.move)


def random_units(rng: np.random.Generator, route: str) -> Units:
    def factor() -> float:
        return float(10.0 ** rng.uniform(-6, 6))

    # A product of a decision and an outcome, both far from 0, has terms as large as the product of both distances.
    shift, move = [(0.0, 0.0), (4.0, 0.0), (0.0, 4.0), (2.0, 2.0)][rng.integers(4)]
    shift, move = (float(10.0 ** rng.uniform(0, most)) if most else 0.0 for most in (shift, move))
    outcome, cost, decision = factor(), factor(), factor()
    return Units(outcome, cost, 1.0 if route in WHOLE else decision, shift, 0.0 if route in SIGNED else move)


@dataclass(frozen=True)
class Case:
    """A problem, a set and predictions in ordinary units: costs, residuals and decisions of about 1."""

    cost: Callable[[Any, Any], Any]
    n_decisions: int
    constraints: Callable[[Any], list[Any]]
    shape: Any
    radius: float
    centers: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)
    uncertain: Callable[[Any, Any], list[Any]] | None = None
    support: Callable[[Any], list[Any]] | None = None
    worst: Callable[[Case, Any, np.ndarray], Any] | None = None

    def worst_cost(self, z: Any, center: np.ndarray) -> Any:
        """The greatest cost over the set, as an expression in z."""
        if self.worst is not None:
            return self.worst(self, z, center)
        return cp.max(cp.hstack([self.cost(z, u) for u in corners(self, center)]))

    def optima(self, centers: np.ndarray) -> np.ndarray:
        """What one independent program finds at all these predictions in ordinary units: the sum is least at each."""
        if self.attributes.get("integer"):  # few enough to try them all
            points = [np.array(z) for z in product(range(7), repeat=2)]
            return np.array([min(float(self.worst_cost(z, center).value) for z in points) for center in centers])
        costs, rows = [], []
        for center in centers:
            z = cp.Variable(self.n_decisions, **self.attributes)
            costs.append(self.worst_cost(z, center))
            rows += self.constraints(z)
            rows += [] if self.uncertain is None else [r for u in corners(self, center) for r in self.uncertain(z, u)]
        cp.Problem(cp.Minimize(sum(costs)), rows).solve(solver=cp.CLARABEL, **TIGHT)
        return np.array([float(cost.value) for cost in costs])

    def problem_in(self, units: Units) -> ph.DecisionProblem:
        """The problem as it is written in other units."""

        def before(z: Any) -> Any:
            return z / units.decision - units.move if units.move else z / units.decision

        def outcome(u: Any) -> Any:
            return u / units.outcome - units.shift if units.shift else u / units.outcome

        z = cp.Variable(self.n_decisions, **self.attributes)
        return ph.DecisionProblem(
            decision=z,
            cost=lambda z, u: units.cost * self.cost(before(z), outcome(u)),
            constraints=self.constraints(before(z)),
            n_outcomes=self.centers.shape[1],
            uncertain_constraints=self.uncertain and (lambda z, u: self.uncertain(before(z), outcome(u))),
            outcome_support=self.support and (lambda u: self.support(outcome(u))),
        )

    def decisions_in(self, units: Units) -> ph.Decisions:
        shape, radius = set_in(self.shape, self.radius, units.outcome)
        return decide(self.problem_in(units), shape, radius, units.outcome * (self.centers + units.shift))


def set_in(shape: Any, radius: float, unit: float) -> tuple[Any, float]:
    """The set and its radius where residuals are `unit` times as large."""
    if isinstance(shape, Polyhedron):
        return Polyhedron(shape.W / unit, shape.b), radius
    if isinstance(shape, Box):
        return Box(unit * shape.scale, unit * shape.center), radius
    if isinstance(shape, Ellipsoid):
        return Ellipsoid(unit**2 * shape.shape, unit * shape.center), radius
    if isinstance(shape, UnionOfBalls):
        return UnionOfBalls(unit * shape.anchors), unit * radius
    return Ball(shape.n_outcomes, shape.norm, unit * shape.center), unit * radius


def corners(case: Case, center: np.ndarray) -> np.ndarray:
    """The corners of a polyhedral set, cut with u >= 0 where that is known, by trying all choices of d facets."""
    shape = case.shape.as_polyhedron()
    W, h = shape.W, case.radius - shape.b + shape.W @ center
    if case.support is not None:
        W, h = np.vstack([W, -np.eye(len(center))]), np.append(h, np.zeros(len(center)))
    blocks = np.array(list(combinations(range(len(W)), W.shape[1])))
    proper = blocks[np.abs(np.linalg.det(W[blocks])) > 1e-9]
    points = np.linalg.solve(W[proper], h[proper][..., None])[..., 0]
    return points[(points @ W.T <= h + 1e-9).all(axis=1)]


# Sets


def random_polyhedron(rng: np.random.Generator, d: int) -> Polyhedron:
    W = np.vstack([rng.normal(size=(3, d)), np.eye(d), -np.eye(d)])
    return Polyhedron(W, -rng.uniform(0.3, 1.5, size=len(W)))


def random_polyhedral_set(rng: np.random.Generator, d: int) -> tuple[Any, float]:
    kind = rng.integers(3)
    if kind == 0:
        return random_polyhedron(rng, d), float(rng.uniform(0, 0.3))
    if kind == 1:
        return Box(rng.uniform(0.3, 2, size=d), rng.normal(size=d)), float(rng.uniform(0.5, 1.5))
    return Ball(d, float(rng.choice([1.0, np.inf])), rng.normal(size=d)), float(rng.uniform(0.5, 1.5))


def worst_over_round(case: Case, z: Any, center: np.ndarray) -> Any:
    """The greatest of a cost c + v'u over balls: what the norm adds to the cost at the centres."""
    d = len(center)
    at_zero = case.cost(z, np.zeros(d))
    v = cp.hstack([case.cost(z, e) - at_zero for e in np.eye(d)])
    # A quadratic part cancels in v, which CVXPY does not see: such costs say their direction themselves.
    v = z if case.n_decisions == d else v
    shape = case.shape
    if isinstance(shape, Ellipsoid):
        return case.cost(z, center + shape.center) + case.radius * cp.norm(np.linalg.cholesky(shape.shape).T @ v)
    middles = shape.anchors if isinstance(shape, UnionOfBalls) else shape.center[None]
    return cp.max(cp.hstack([case.cost(z, center + m) for m in middles])) + case.radius * cp.norm(v)


# Routes: each returns a random case that takes it


def linear_cost(rng: np.random.Generator, d: int) -> Callable[[Any, Any], Any]:
    c = rng.normal(size=d)
    return lambda z, u: (c + u) @ z


def quadratic_cost(rng: np.random.Generator, d: int) -> Callable[[Any, Any], Any]:
    c, beta, first = rng.normal(size=d), float(10 ** rng.uniform(-1, 1)), rng.normal(size=(2, d))
    return lambda z, u: (c + u) @ z + beta * cp.sum_squares(first @ z)


def newsvendor_cost(rng: np.random.Generator, d: int) -> Callable[[Any, Any], Any]:
    over, under = rng.uniform(0.5, 2, size=d), rng.uniform(1, 5, size=d)
    return lambda z, u: over @ cp.pos(z - u) + under @ cp.pos(u - z)


def some_centers(rng: np.random.Generator, d: int, n: int = 2) -> np.ndarray:
    return rng.normal(size=(n, d))


def segment_linear(rng: np.random.Generator) -> Case:
    return Case(linear_cost(rng, 2), 2, simplex, *random_polyhedral_set(rng, 2), some_centers(rng, 2))


def segment_quadratic(rng: np.random.Generator) -> Case:
    return Case(quadratic_cost(rng, 2), 2, simplex, *random_polyhedral_set(rng, 2), some_centers(rng, 2))


def batch_linear(rng: np.random.Generator) -> Case:
    return Case(linear_cost(rng, 3), 3, simplex, *random_polyhedral_set(rng, 3), some_centers(rng, 3, 70))


def batch_quadratic(rng: np.random.Generator) -> Case:
    return Case(quadratic_cost(rng, 3), 3, simplex, *random_polyhedral_set(rng, 3), some_centers(rng, 3, 70))


def batch_newsvendor(rng: np.random.Generator) -> Case:
    shape = random_polyhedron(rng, 2), 0.1
    return Case(newsvendor_cost(rng, 2), 2, _shelf(rng), *shape, 2 + some_centers(rng, 2, 70))


def _shelf(rng: np.random.Generator) -> Callable[[Any], list[Any]]:
    capacity = float(rng.uniform(1, 5))
    return lambda z: [z >= 0, cp.sum(z) <= capacity]


def single_linear(rng: np.random.Generator) -> Case:
    limit = rng.uniform(0.4, 1, size=3)
    rows: Callable[[Any], list[Any]] = lambda z: [z >= 0, cp.sum(z) == 1, z <= limit]  # noqa: E731
    return Case(linear_cost(rng, 3), 3, rows, *random_polyhedral_set(rng, 3), some_centers(rng, 3))


def single_quadratic(rng: np.random.Generator) -> Case:
    rows: Callable[[Any], list[Any]] = lambda z: [z >= -1, z <= 2, cp.norm(z) <= 1.5]  # noqa: E731
    return Case(quadratic_cost(rng, 3), 3, rows, *random_polyhedral_set(rng, 3), some_centers(rng, 3))


def round_set(rng: np.random.Generator) -> Case:
    root = rng.normal(size=(3, 3)) + 2 * np.eye(3)
    shape = [
        Ball(3, 2, rng.normal(size=3)),
        Ellipsoid(root @ root.T / 4, rng.normal(size=3)),
        UnionOfBalls(rng.normal(size=(3, 3))),
    ]
    cost = linear_cost(rng, 3) if rng.random() < 0.5 else quadratic_cost(rng, 3)
    radius = float(rng.uniform(0.3, 1))
    return Case(cost, 3, simplex, shape[rng.integers(3)], radius, some_centers(rng, 3), worst=worst_over_round)


def single_newsvendor(rng: np.random.Generator) -> Case:
    free: Callable[[Any], list[Any]] = lambda z: [z >= 0]  # noqa: E731
    rows = free if rng.random() < 0.5 else _shelf(rng)
    return Case(newsvendor_cost(rng, 2), 2, rows, *random_polyhedral_set(rng, 2), 2 + some_centers(rng, 2))


def newsvendor_with_curvature(rng: np.random.Generator) -> Case:
    shape, plain, weight = random_polyhedral_set(rng, 2), newsvendor_cost(rng, 2), float(rng.uniform(0.1, 1))
    cost = lambda z, u: plain(z, u) + weight * cp.sum_squares(z)  # noqa: E731
    return Case(cost, 2, _shelf(rng), *shape, 2 + some_centers(rng, 2))


def many_pieces(rng: np.random.Generator) -> Case:
    d = 13
    over, under = rng.uniform(0.5, 2, size=d), rng.uniform(1, 5, size=d)

    def worst(case: Case, z: Any, center: np.ndarray) -> Any:
        low, high = (center + sign * case.radius * case.shape.scale for sign in (-1, 1))
        return cp.sum(cp.maximum(cp.multiply(over, cp.pos(z - low)), cp.multiply(under, cp.pos(high - z))))

    cost = lambda z, u: over @ cp.pos(z - u) + under @ cp.pos(u - z)  # noqa: E731
    box = Box(rng.uniform(0.3, 1, size=d))
    return Case(cost, d, _shelf(rng), box, 1.0, 2 + some_centers(rng, d, 1), worst=worst)


def concave_cost(rng: np.random.Generator) -> Case:
    bend = float(rng.uniform(0.1, 1))

    def worst(case: Case, z: Any, center: np.ndarray) -> Any:
        best = np.clip(1 / (2 * bend), center - case.radius * case.shape.scale, center + case.radius * case.shape.scale)
        return cp.sum(cp.multiply(best - bend * best**2, z))

    cost = lambda z, u: z @ (u - bend * cp.square(u))  # noqa: E731
    box = Box(rng.uniform(0.3, 1, size=2))
    return Case(cost, 2, simplex, box, 1.0, some_centers(rng, 2, 1), {"nonneg": True}, worst=worst)


def convex_cost(rng: np.random.Generator) -> Case:
    B = rng.normal(size=(2, 2))
    cost = lambda z, u: cp.sum_squares(u - B @ z) + 0.1 * cp.sum(z)  # noqa: E731
    return Case(cost, 2, _shelf(rng), random_polyhedron(rng, 2), 0.1, some_centers(rng, 2, 1))


def whole_numbers(rng: np.random.Generator) -> Case:
    rows: Callable[[Any], list[Any]] = lambda z: [z >= 0, z <= 6]  # noqa: E731
    shape = random_polyhedron(rng, 2), 0.1
    return Case(newsvendor_cost(rng, 2), 2, rows, *shape, 3 + some_centers(rng, 2), {"integer": True})


def whole_numbers_with_curvature(rng: np.random.Generator) -> Case:
    plain, shape = newsvendor_cost(rng, 2), (random_polyhedron(rng, 2), 0.1)
    rows: Callable[[Any], list[Any]] = lambda z: [z >= 0, z <= 6]  # noqa: E731
    cost = lambda z, u: plain(z, u) + 0.2 * cp.sum_squares(z)  # noqa: E731
    return Case(cost, 2, rows, *shape, 3 + some_centers(rng, 2, 1), {"integer": True})


def uncertain_constraints(rng: np.random.Generator) -> Case:
    price, need = rng.uniform(1, 2, size=3), float(rng.uniform(1, 2))
    kinds: list[Callable[[Any, Any], list[Any]]] = [lambda z, u: [z >= u], lambda z, u: [(3 + u) @ z >= need]]
    covers = kinds[rng.integers(2)]
    rows: Callable[[Any], list[Any]] = lambda z: [z >= 0]  # noqa: E731
    cost = lambda z, u: price @ z + 0.1 * cp.sum(u)  # noqa: E731
    shape = random_polyhedron(rng, 3), 0.1
    return Case(cost, 3, rows, *shape, 0.3 * some_centers(rng, 3), uncertain=covers)


def known_support(rng: np.random.Generator) -> Case:
    cost = newsvendor_cost(rng, 2) if rng.random() < 0.5 else linear_cost(rng, 2)
    shape, known = (random_polyhedron(rng, 2), 0.1), lambda u: [u >= 0]
    return Case(cost, 2, _shelf(rng), *shape, np.abs(some_centers(rng, 2)), support=known)


ROUTES = {
    route.__name__: route
    for route in (
        segment_linear, segment_quadratic, batch_linear, batch_quadratic, batch_newsvendor, single_linear,
        single_quadratic, round_set, single_newsvendor, newsvendor_with_curvature, many_pieces, concave_cost,
        convex_cost, whole_numbers, whole_numbers_with_curvature, uncertain_constraints, known_support,
    )
}  # fmt: skip
WHOLE = ("whole_numbers", "whole_numbers_with_curvature")
SIGNED = ("concave_cost", *WHOLE)


def complaints(route: str, seed: int, n_units: int) -> list[str]:
    """What is wrong with the decisions of one random case in some random units, in words."""
    rng = np.random.default_rng([seed, sorted(ROUTES).index(route)])
    case = ROUTES[route](rng)
    expected = case.optima(case.centers[:2])
    wrong = []
    for _ in range(n_units):
        units = random_units(rng, route)
        wrong += [f"{route} {seed} {units}: {text}" for text in complaints_in(case, units, expected)]
    return wrong


def complaints_in(case: Case, units: Units, expected: np.ndarray) -> list[str]:
    found = case.decisions_in(units)
    wrong = [] if found.is_optimal.all() else [found.complaint()]
    for i in range(len(expected)):
        if not found.is_optimal[i]:
            continue
        bound = float(found.cost_bound[i]) / units.cost
        z = found.z[i] / units.decision - units.move
        reached = float(case.worst_cost(z, case.centers[i]).value)
        if abs(bound - expected[i]) > units.tolerance:
            wrong.append(f"bound {bound} instead of {expected[i]}")
        if abs(reached - expected[i]) > units.tolerance:
            wrong.append(f"decision costs {reached} instead of {expected[i]}")
    return wrong


N_UNITS = 2
"""Units in which each random case is decided; one program in ordinary units tells what is right in all of them."""
N_QUICK, N_FEW = 4, 1
"""Cases of each route; few of those whose worst case is a mixed-integer program."""
SLOW_ROUTES = ("many_pieces", *WHOLE)


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_bounds_statuses_and_decisions_do_not_depend_on_units(route: str) -> None:
    n = N_FEW if route in SLOW_ROUTES else N_QUICK
    assert [text for seed in range(n) for text in complaints(route, seed, N_UNITS)] == []


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_outcomes_may_exceed_their_support_by_rounding_in_their_own_unit(unit: float) -> None:
    Y = unit * np.random.default_rng(9).uniform(0, 2, size=(30, 2))
    problem = ph.problems.newsvendor(1.0, 3.0, 2)
    Y[3, 1] = -1e-12 * unit
    assert not outside_support(problem, Y).any()
    Y[3, 1] = -1e-6 * unit
    assert np.flatnonzero(outside_support(problem, Y)).tolist() == [3]


@pytest.mark.parametrize("units", [Units(shift=1e4), Units(1e-6, 1e-6, shift=1e4), Units(1e6, 1e6, shift=1e4)])
def test_a_shift_of_all_outcomes_shifts_the_bound_of_a_budget_and_changes_no_decision(units: Units) -> None:
    rng = np.random.default_rng(5)
    (shape, radius), centers = random_polyhedral_set(rng, 4), rng.normal(size=(80, 4))
    problem = ph.problems.simplex_linear(np.zeros(4))
    usual = decide(problem, shape, radius, centers)
    moved = decide(problem, *set_in(shape, radius, units.outcome), units.outcome * (centers + units.shift))
    assert moved.is_optimal.all()
    assert moved.cost_bound / units.outcome - units.shift == pytest.approx(usual.cost_bound, abs=units.tolerance)
    worst = [Adversary(problem, shape, radius, c).worst_case(z).value for c, z in zip(centers, moved.z, strict=True)]
    assert worst == pytest.approx(usual.cost_bound, abs=units.tolerance)


# Solvers


@pytest.mark.parametrize("seed", range(6))
def test_a_program_with_rows_and_columns_in_any_units_has_the_same_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = 4, 7
    A, x = rng.normal(size=(m, n)), rng.normal(size=n)
    rows, limits = (
        np.vstack([A, -np.eye(n), np.eye(n)]),
        np.concatenate([A @ x + rng.exponential(size=m), 2 - x, 2 + x]),
    )
    c = rng.normal(size=n)
    expected = linprog(c, rows, limits, bounds=(None, None))
    D, R = 10.0 ** rng.uniform(-6, 6, size=n), 10.0 ** rng.uniform(-6, 6, size=len(rows))
    unit, shift = float(10.0 ** rng.uniform(-6, 6)), rng.normal(size=n) * 10.0 ** rng.uniform(0, 6)
    program = ConicProgram(
        c=unit * c / D,
        A=sp.csr_array(R[:, None] * rows / D),
        b=R * (limits + rows @ shift),
        cones=(Cone("nonneg", len(rows)),),
        offset=-unit * float(c @ shift),
    )
    for found in (LinearSolver(program).solve(), solve_conic(program)):
        assert found.status is ph.Status.OPTIMAL
        assert found.value / unit == pytest.approx(expected.fun, abs=1e-6 + 4096 * EPS * np.abs(shift).max())


def test_a_point_that_is_not_optimal_is_not_called_so_whatever_the_solver_says() -> None:
    A, b = sp.csr_array(np.vstack([-np.eye(2), np.ones((1, 2))])), np.array([0.0, 0.0, 1.0])
    program = ConicProgram(np.array([-1.0, -2.0]), A, b, (Cone("nonneg", 3),))
    verifier = Verifier(program, Scaling.of(program))
    claims = {(0.0, 1.0): ph.Status.OPTIMAL, (1.0, 0.0): ph.Status.STOPPED_EARLY, (0.0, 1.001): ph.Status.STOPPED_EARLY}
    for x, status in claims.items():
        claimed = Solution(np.array(x), np.array([1.0, 0.0, 2.0]), np.nan, ph.Status.OPTIMAL)
        assert verifier.verify(program, claimed).status is status
    assert verifier.verify(program, replace(claimed, x=np.array([1.0, 0.0]))).gap == pytest.approx(1.0)


def test_integers_that_share_a_sum_are_the_best_of_all_however_near_zero_their_relaxation_is() -> None:
    # Seen from the optimum without integrality, the first linear relaxation is worth 0 up to rounding.
    rng, z = np.random.default_rng(4), cp.Variable(2, integer=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z + 0.1 * cp.sum_squares(z),
        constraints=[z >= 0, z <= 3, cp.sum(z) == 3],
        n_outcomes=2,
    )
    shape, centers = Box([0.34, 0.21]), rng.normal(scale=0.3, size=(20, 2))
    found = decide(problem, shape, 1.0, centers)
    points = np.array([[k, 3 - k] for k in range(4)])
    costs = (centers + shape.scale) @ points.T + 0.1 * (points**2).sum(axis=1)
    assert found.is_optimal.all()
    assert found.cost_bound == pytest.approx(costs.min(axis=1), abs=1e-7)


# Learners


@pytest.mark.parametrize("seed", [0, 3])
def test_the_unit_of_costs_does_not_vanish_where_nothing_is_best(seed: int) -> None:
    # With outcomes around 0 the best of the usual decisions is nearly nothing, which an interior-point method nearly
    # finds: costs then hardly differ over outcomes, by how much is the solver's noise.
    residuals, centers = np.random.default_rng(seed).normal(size=(2, 100, 2))

    def cost_unit(outcome: float, cost: float, decision: float) -> float:
        z = cp.Variable(2, nonneg=True)
        problem = ph.DecisionProblem(
            decision=z,
            cost=lambda z, u: cost * ((u / outcome + 0.1) @ z / decision + 0.5 * cp.sum_squares(z / decision)),
            constraints=[cp.sum(z) <= 3 * decision],
            n_outcomes=2,
        )
        samples = Samples(outcome * residuals, outcome * centers, problem, 0.2)
        return SampleScaling.of(samples, each_outcome=False).units.cost / cost

    usual = cost_unit(1.0, 1.0, 1.0)
    assert usual > 0.01
    assert cost_unit(7e4, 3e6, 1.0) == pytest.approx(usual, rel=1e-5)
