"""Supports and robust costs of sets that a learner moves step by step."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from polyhedge.learners import Samples
from polyhedge.learners.objective import reach_cost
from polyhedge.problems import DecisionProblem, newsvendor, simplex_linear, simplex_quadratic
from polyhedge.robust import Counterpart, warm_starts
from polyhedge.robust.support import SupportCertificate, maximise
from polyhedge.robust.warm_starts import SharpVertices
from polyhedge.sets import Polyhedron


def moving(d, n_facets, rng, n_steps=12, step=0.05):
    """Bounded polyhedra {e : W e <= q} whose facets turn and shift a little from one to the next."""
    W = np.vstack([rng.normal(size=(n_facets, d)), np.eye(d), -np.eye(d)])
    q = rng.uniform(0.5, 1.5, len(W))
    for _ in range(n_steps):
        W = W + step * rng.normal(size=W.shape)
        q = np.abs(q + step * rng.normal(size=q.shape))
        yield W / np.linalg.norm(W, axis=1, keepdims=True), q


@pytest.mark.parametrize("d", [1, 2, 4, 7])
def test_supports_of_moving_facets_are_those_of_a_solver(d):
    rng = np.random.default_rng(d)
    directions = rng.normal(size=(9, d))
    supports = SharpVertices(directions)
    for W, q in moving(d, 2 * d, rng):
        found = supports(W, q)
        known = maximise(Polyhedron.from_halfspaces(W, q).conic_form(0.0), directions)
        np.testing.assert_allclose(found.values, known.values, rtol=1e-9)
        np.testing.assert_allclose(found.points, known.points, atol=1e-7)
        np.testing.assert_allclose(found.multipliers, known.multipliers, atol=1e-7)


def test_ties_and_sets_without_end_are_the_solver_s():
    box, directions = np.vstack([np.eye(2), -np.eye(2)]), np.array([[1.0, 0.0], [1.0, 1.0]])
    supports = SharpVertices(directions)
    generic = SharpVertices(np.array([[1.0, 2.0], [2.0, 1.0]]))
    for q in (np.ones(4), np.array([1.0, 2.0, 1.0, 1.0])):
        form = Polyhedron.from_halfspaces(box, q).conic_form(0.0)
        np.testing.assert_array_equal(
            supports(box, q).points, maximise(form, directions).points
        )  # a whole facet is best
        generic(box, q)
    assert np.isposinf(generic(box[2:], np.ones(2)).values).all()
    assert np.isneginf(generic(box, np.array([1.0, 1.0, -2.0, 1.0])).values).all()


def charging(d):
    """Energy for d hours: at most 1 in an hour, d / 2 in all, at most d / 3 in the first half."""
    z = cp.Variable(d, bounds=[0, 1])
    rows = [cp.sum(z) == d / 2, cp.sum(z[: d // 2]) <= d / 3]
    return DecisionProblem(decision=z, cost=lambda z, u: u @ z + cp.sum(z) / 5, constraints=rows, n_outcomes=d)


@pytest.mark.parametrize("problem", [simplex_linear([0.1, 0.0, 0.0]), charging(6)], ids=["shares", "charging"])
def test_gradients_of_moving_facets_are_those_of_a_solver(problem, monkeypatch):
    d, rng = problem.n_outcomes, np.random.default_rng(1)
    residuals, centers = rng.normal(size=(40, d)), rng.normal(size=(40, d))
    quick, slow = (Samples(residuals, centers, problem, 0.1) for _ in range(2))
    slow._facet_costs.__dict__["sharp_programs"] = None
    asked = []
    monkeypatch.setattr(Counterpart, "solve", _counted(Counterpart.solve, asked))
    for W, q in moving(d, d, rng, n_steps=10, step=0.02):
        contexts = rng.choice(40, size=16, replace=False)
        found, n_asked = quick.facet_gradient(W, q, contexts), len(asked)
        known = slow.facet_gradient(W, q, contexts)
        del asked[n_asked:]
        assert found.value == pytest.approx(known.value, rel=1e-9)
        np.testing.assert_allclose(found.q, known.q, atol=1e-8)
        np.testing.assert_allclose(found.W, known.W, atol=1e-7)
    assert len(asked) <= 40  # of 160


def _counted(method, asked):
    def solve(self, center):
        asked.append(center)
        return method(self, center)

    return solve


def test_gradients_of_moving_facets_do_not_depend_on_what_was_asked_before():
    problem, rng = charging(4), np.random.default_rng(2)
    residuals, centers = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    seen, contexts = Samples(residuals, centers, problem, 0.1), np.arange(12)
    for W, q in moving(4, 4, rng, n_steps=6, step=0.02):
        seen.facet_gradient(W, q, rng.choice(30, size=9, replace=False))
        fresh = Samples(residuals, centers, problem, 0.1)
        for _ in range(2):
            known = seen.facet_gradient(W, q, contexts), fresh.facet_gradient(W, q, contexts)
        assert known[0].value == pytest.approx(known[1].value, abs=1e-9)
        np.testing.assert_allclose(known[0].W, known[1].W, atol=1e-8)


def test_a_cost_that_falls_without_end_is_infinite_however_facets_moved():
    z = cp.Variable(2)
    problem = DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=2)
    samples = Samples(np.zeros((4, 2)), np.array([[0.0, 0.0], [0.0, 9.0], [1.0, 0.0], [0.0, 0.1]]), problem, 0.25)
    box = np.vstack([np.eye(2), -np.eye(2)])
    turned = box @ np.array([[0.8, 0.6], [-0.5, 0.9]])
    for q in (np.full(4, 2.0), np.full(4, 2.1)):
        assert np.isfinite(samples.facet_gradient(turned, q, np.array([0, 2, 3])).value)
        assert np.isposinf(samples.facet_gradient(turned, q, np.arange(4)).value)


def test_levels_of_moving_pieces_are_those_of_a_solver():
    problem, rng = newsvendor(1.0, 3.0, 3, capacity=4.0), np.random.default_rng(4)
    centers, contexts = rng.uniform(1.0, 2.0, size=(30, 3)), np.arange(30)
    quick, slow = reach_cost(problem, centers), reach_cost(problem, centers)
    slow.sharp, asked = None, []
    solve = quick._solve
    quick._solve = lambda levels: (asked.append(levels), solve(levels))[1]
    for _ in range(6):
        reach = rng.uniform(0.5, 2.0, size=(30, len(problem.structure.pieces)))
        (values, weights), known = quick.each(reach, contexts), slow.each(reach, contexts)
        np.testing.assert_allclose(values, known[0], rtol=1e-9)
        np.testing.assert_allclose(weights, known[1], atol=1e-7)
        assert quick.tangent(reach[0])[0] == pytest.approx(slow.tangent(reach[0])[0], rel=1e-9)
    assert len(asked) <= 180  # of 360


def test_parallel_facets_that_share_a_multiplier_are_left_to_the_solver(monkeypatch):
    W, q, directions = np.array([[1.0, 0.0], [1.0, 0.0]]), np.ones(2), np.array([[2.0, 0.0]])
    # What an interior-point solver answers: both facets hold the maximum, each by half.
    shared = SupportCertificate(np.array([2.0]), np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]), 2)
    monkeypatch.setattr(warm_starts, "maximise", lambda form, directions: shared)
    supports = SharpVertices(directions)
    assert supports(W, q) is shared
    assert supports(W, q) is shared


@pytest.mark.parametrize(
    "problem", [simplex_linear([0.0, 0.0]), simplex_quadratic([0.0, 0.0], 0.1)], ids=lambda p: p.name
)
def test_slopes_against_facets_along_the_axes_do_not_depend_on_the_last_digit(problem):
    """At the ends of a segment of decisions several vertices are worst at once, and a stated rule takes one."""
    rng = np.random.default_rng(0)
    W = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [-0.6, -0.8]])
    residuals, centers = rng.normal(size=(2, 40, 2))
    slopes = []
    for seed in range(5):
        moved = centers * (1 + 1e-15 * np.random.default_rng(seed).normal(size=centers.shape))
        samples = Samples(residuals, moved, problem, 0.1)
        slopes.append(samples.facet_gradient(W, np.array([1.0, 1.2, 1.1, 2.0]), np.arange(40)))
    for one in slopes[1:]:
        np.testing.assert_allclose(one.W, slopes[0].W, atol=1e-12)
        np.testing.assert_allclose(one.q, slopes[0].q, atol=1e-12)
