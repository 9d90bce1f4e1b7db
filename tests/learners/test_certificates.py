"""Certificates rest on proven numbers only: they equal brute force in any units, and bounds never cross."""

from dataclasses import dataclass
from itertools import combinations, product

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import polyhedge as ph
from polyhedge.calibration import conformal_rank
from polyhedge.learners import Certified, CertifiedBound, Samples, auto, lower_bound
from polyhedge.learners.exact.bound import below, certified
from polyhedge.learners.exact.selection import HullOracle, floors_of_contexts
from polyhedge.solvers.program import Status

UNITS = (1e-3, 1e6)


@dataclass(frozen=True)
class Case:
    """min over z in a polytope of g_0(z) + max over l of (Q_l z + q_l)'u + p_l'z + c_l, in units of the outcome."""

    Q: np.ndarray
    q: np.ndarray
    p: np.ndarray
    c: np.ndarray
    low: float
    high: float
    total: float | None = None
    curvature: float = 0.0
    decides_outcomes: bool = False

    def model(self, outcomes, unit=1.0):
        """Variable, cost against the worst of some outcomes and constraints, all in CVXPY."""
        z = cp.Variable(self.Q.shape[2])
        of_z = unit if self.decides_outcomes else 1.0
        constraints = [z >= self.low * of_z, z <= self.high * of_z]
        constraints += [] if self.total is None else [cp.sum(z) == self.total * of_z]
        return z, constraints, cp.max(cp.hstack([self.cost(z, u, unit) for u in outcomes]))

    def cost(self, z, u, unit):
        of_cost = 1.0 if self.decides_outcomes else unit
        pieces = [
            u @ (Q @ z) + u @ q + of_cost * (p @ z) + unit * c
            for Q, q, p, c in zip(self.Q, self.q, self.p, self.c, strict=True)
        ]
        return cp.max(cp.hstack(pieces)) + (unit * self.curvature * cp.sum_squares(z) if self.curvature else 0.0)

    def problem(self, unit):
        z, constraints, _ = self.model([np.zeros(self.Q.shape[1])], unit)
        return ph.DecisionProblem(
            decision=z, cost=lambda z, u: self.cost(z, u, unit), constraints=constraints, n_outcomes=self.Q.shape[1]
        )

    def best_of_all(self, residuals, centers, rank):
        """The least mean cost over all selections, each context and selection by a program of its own."""
        selections = [list(chosen) for chosen in combinations(range(len(residuals)), rank)]
        return min(np.mean([self.least(center + residuals[kept]) for center in centers]) for kept in selections)

    def least(self, outcomes):
        """min over z of the largest cost at some outcomes, by another solver than the library's."""
        if self.curvature:
            _, constraints, cost = self.model(outcomes)
            return cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL)
        n_decisions = self.Q.shape[2]
        slopes = np.einsum("nd,ldp->nlp", outcomes, self.Q) + self.p
        rows = np.hstack([slopes.reshape(-1, n_decisions), -np.ones((slopes.shape[0] * slopes.shape[1], 1))])
        total = {} if self.total is None else {"A_eq": [[1.0] * n_decisions + [0.0]], "b_eq": [self.total]}
        bounds = [(self.low, self.high)] * n_decisions + [(None, None)]
        costs = [0.0] * n_decisions + [1.0]
        return linprog(costs, rows, -(outcomes @ self.q.T + self.c).ravel(), bounds=bounds, **total).fun


def box(rng, curvature=0.0):
    d = int(rng.integers(2, 4))
    return Case(np.eye(d)[None], np.zeros((1, d)), np.zeros((1, d)), np.zeros(1), -1.0, 1.0, curvature=curvature)


def simplex(rng):
    d = int(rng.integers(2, 4))
    return Case(np.eye(d)[None], np.zeros((1, d)), rng.normal(size=(1, d)), np.zeros(1), 0.0, 1.0, total=1.0)


def newsvendor(rng):
    q = np.array(list(product([-0.3, 0.7], repeat=2)))
    return Case(np.zeros((4, 2, 2)), q, -q, np.zeros(4), 0.0, 2.0, decides_outcomes=True)


def pieces(rng):
    L, d, p = rng.integers(2, 4), rng.integers(1, 4), rng.integers(1, 4)
    return Case(rng.normal(size=(L, d, p)), rng.normal(size=(L, d)), rng.normal(size=(L, p)), rng.normal(size=L), -1, 1)


CASES = {
    "box of both signs": box,
    "quadratic cost": lambda rng: box(rng, curvature=0.2),
    "simplex": simplex,
    "newsvendor": newsvendor,
    "pieces": pieces,
}


def check_against_brute_force(make, seed):
    rng = np.random.default_rng(seed)
    case, n, alpha = make(rng), int(rng.integers(4, 7)), float(rng.choice([0.2, 0.3, 0.4, 0.5, 0.6, 0.7]))
    d = case.Q.shape[1]
    residuals, centers = rng.normal(size=(n, d)), rng.normal(size=(int(rng.integers(1, 3)), d))
    if rng.random() < 0.3:
        residuals = residuals.round()  # many equal residuals
    exact = case.best_of_all(residuals, centers, conformal_rank(n, alpha))
    for unit in UNITS:
        bound = lower_bound(Samples(unit * residuals, unit * centers, case.problem(unit), alpha))
        allowed = 2e-6 * unit * (1 + abs(exact))
        assert bound.lower <= unit * exact + allowed
        assert bound.upper >= unit * exact - allowed
        assert bound.status is Status.OPTIMAL
        assert bound.gap <= allowed


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("seed", [1])
def test_bounds_enclose_the_optimum_over_all_selections_in_any_units(kind, seed):
    check_against_brute_force(CASES[kind], seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("seed", [0, *range(2, 32)])
def test_bounds_enclose_the_optimum_over_all_selections_in_any_units_on_many_problems(kind, seed):
    check_against_brute_force(CASES[kind], seed)


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_no_selection_costs_less_than_the_bound_where_few_residuals_are_kept(seed):
    rng = np.random.default_rng(seed)
    residuals, centers = 4e3 * rng.normal(size=(6, 3)), rng.normal(size=(2, 3))
    z = cp.Variable(3)
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[z >= -1, z <= 1], n_outcomes=3)
    bound = lower_bound(Samples(residuals, centers, problem, 0.6))
    oracle = HullOracle(problem, residuals, centers)
    costs = []
    for chosen in combinations(range(6), conformal_rank(6, 0.6)):
        costs.append(oracle.evaluate(np.isin(np.arange(6), chosen)).values.mean())
    assert bound.lower <= min(costs)
    assert bound.upper == pytest.approx(min(costs), rel=1e-6)


@pytest.mark.parametrize("n_drop", [1, 6])
@pytest.mark.parametrize("kind", CASES)
def test_floors_lie_below_every_selection(kind, n_drop):
    rng = np.random.default_rng(n_drop)
    case, n = CASES[kind](rng), 9
    d = case.Q.shape[1]
    residuals, centers = 100 * rng.normal(size=(n, d)), 100 * rng.normal(size=(2, d))
    problem = case.problem(100.0)
    floors = floors_of_contexts(problem, residuals, centers, n_drop)
    assert np.isfinite(floors).all()
    oracle = HullOracle(problem, residuals, centers)
    for dropped in list(combinations(range(n), n_drop))[:: max(1, n_drop**2)]:
        values = oracle.evaluate(~np.isin(np.arange(n), dropped)).values
        assert (values >= floors - 1e-5).all()


def test_without_bounds_on_the_decision_floors_still_hold():
    rng = np.random.default_rng(0)
    z = cp.Variable(2)
    cost = {"cost": lambda z, u: cp.norm1(u - z), "constraints": []}
    curved = {"cost": lambda z, u: u @ z + cp.sum_squares(z), "constraints": []}
    residuals, centers = rng.normal(size=(9, 2)), rng.normal(size=(2, 2))
    for parts in (cost, curved):
        problem = ph.DecisionProblem(decision=z, n_outcomes=2, **parts)
        bound = lower_bound(Samples(residuals, centers, problem, 0.6))
        assert bound.status is Status.OPTIMAL


def test_where_some_selections_cost_minus_infinity_no_bound_is_claimed():
    z = cp.Variable(1)
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[z <= 50], n_outcomes=1)
    residuals, centers = np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]]), np.zeros((2, 1))
    proven = lower_bound(Samples(residuals, centers, problem, 0.4))  # five of six: both signs are kept
    assert proven.status is Status.OPTIMAL
    assert proven.lower == pytest.approx(0.0, abs=1e-6)
    open_end = lower_bound(
        Samples(residuals, centers, problem, 0.6)
    )  # three of six: all positive, and z falls without limit
    assert open_end.lower == -np.inf
    assert open_end.status is Status.STOPPED_EARLY
    assert "no floor is proven" in open_end.detail


@pytest.mark.parametrize("unit", UNITS)
def test_bounds_that_cross_beyond_rounding_are_reported_and_not_claimed(unit, caplog):
    kept = np.ones(3, dtype=bool)
    parts = {"unit": unit, "tolerance": 1e-6, "seconds": 0.0, "detail": "by hand"}
    rounded = certified(unit * (1 + 1e-9), unit, kept, **parts)
    assert rounded.status is Status.OPTIMAL
    assert rounded.gap == 0.0
    crossed = certified(1.01 * unit, unit, kept, **parts)
    assert crossed.status is Status.FAILED
    assert crossed.lower == -np.inf
    assert "no bound is claimed" in crossed.detail
    assert "no bound is claimed" in caplog.text
    assert below(unit, 1.5 * unit, unit) == (unit, "")


def test_a_learner_reports_a_bound_above_its_own_cost(monkeypatch):
    rng = np.random.default_rng(0)
    residuals, centers = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    problem = ph.problems.simplex_newsvendor(0.3, 0.7, 2)
    wrong = CertifiedBound(1e3, 1e3, np.ones(30, dtype=bool), Status.OPTIMAL, 0.0, "", 1.0)
    monkeypatch.setattr(auto, "lower_bound", lambda *_, **__: wrong)
    result = Certified(ph.learners.OneSidedBox()).learn(Samples(residuals, centers, problem, 0.1))
    assert result.lower_bound == -np.inf
    assert "no bound is claimed" in result.detail


def test_a_certified_gap_compares_cost_and_bound_on_the_same_contexts():
    rng = np.random.default_rng(0)
    residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) * np.linspace(0, 9, 40)[:, None]
    problem = ph.problems.simplex_newsvendor(0.3, 0.7, 2)
    result = Certified(ph.learners.OneSidedBox(max_contexts=2)).learn(Samples(residuals, centers, problem, 0.1))
    everywhere = ph.robust.decide(problem, result.set, 0.0, centers).cost_bound.mean()
    assert result.objective == pytest.approx(everywhere)
    assert result.lower_bound <= result.objective
