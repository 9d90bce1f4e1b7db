"""What is known of outcomes enters only where it binds, and what models keep changes no decision."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from polyhedge.learners import Samples
from polyhedge.problems import DecisionProblem, newsvendor
from polyhedge.robust import Counterpart, decide
from polyhedge.robust.routes import ROUTES, Cache, Job
from polyhedge.robust.threads import one_blas_thread
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

_ROUTES = {way.name: way for way in ROUTES}


def _some_set(rng: np.random.Generator, d: int, reach: float) -> Polyhedron:
    W = rng.normal(size=(3 * d, d))
    W = np.vstack([W / np.linalg.norm(W, axis=1, keepdims=True), np.eye(d), -np.eye(d)])
    return Polyhedron(W, -reach * rng.uniform(0.5, 1.5, len(W)))


def _priced(d: int) -> DecisionProblem:
    """One piece whose direction is the decision; prices lie between 0 and 4."""
    z = cp.Variable(d, nonneg=True)
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z,
        constraints=[cp.sum(z) == 1],
        n_outcomes=d,
        outcome_support=lambda u: [u >= 0, u <= 4],
    )


PROBLEMS: dict[str, tuple[Callable[[], DecisionProblem], int]] = {
    "one product": (lambda: newsvendor(1.0, 3.0, 1), 40),
    "products within a capacity": (lambda: newsvendor(1.0, 3.0, 3, capacity=5.0), 12),
    "so many contexts that an engine serves them": (lambda: newsvendor(1.0, 2.0, 2, capacity=5.0), 80),
    "whole numbers": (lambda: newsvendor(1.0, 3.0, 2, capacity=4.0, integer=True), 6),
    "one piece that turns": (lambda: _priced(3), 12),
    "one piece, many contexts": (lambda: _priced(3), 80),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_decisions_with_the_support_are_those_of_the_whole_program(name: str, seed: int) -> None:
    make, n = PROBLEMS[name]
    problem, rng = make(), np.random.default_rng(seed)
    centers = rng.uniform(0.0, 3.5, size=(n, problem.n_outcomes))
    shape = _some_set(rng, problem.n_outcomes, 1.2)
    job, way = Job(problem, shape, 0.3, 1), _ROUTES["known support"]
    assert way.applies(job, centers)
    found, whole = way.decide(job, centers), _ROUTES["counterpart"].decide(job, centers)
    assert found is not None
    assert whole is not None
    assert list(found.status) == list(whole.status)
    np.testing.assert_allclose(found.cost_bound, whole.cost_bound, rtol=1e-8, atol=1e-8)
    # Of several best decisions either may come; both have the bound, against outcomes that the support holds.
    A, h = problem.support_rows
    assert (found.worst_outcome @ A.T <= h + 1e-7).all()
    attained = problem.evaluate(found.flat, found.worst_outcome)
    np.testing.assert_allclose(attained, found.cost_bound, rtol=1e-6, atol=1e-6)


def test_a_support_that_leaves_nothing_is_told_context_by_context() -> None:
    problem, shape = newsvendor(1.0, 3.0, 2, capacity=5.0), _some_set(np.random.default_rng(0), 2, 1.0)
    centers = np.array([[2.0, 2.0], [-50.0, 2.0]])
    found = _ROUTES["known support"].decide(Job(problem, shape, 0.1, 1), centers)
    assert found is not None
    assert list(found.status) == [Status.OPTIMAL, Status.EMPTY_SET]


@pytest.mark.parametrize("reach", [0.5, 2.5])
@pytest.mark.parametrize(("d", "capacity"), [(1, None), (1, 2.0), (2, None), (3, 5.0)])
def test_gradients_with_the_support_are_those_of_the_whole_program(
    d: int, capacity: float | None, reach: float
) -> None:
    rng = np.random.default_rng(d)
    problem, shape = newsvendor(1.0, 3.0, d, capacity=capacity), _some_set(rng, d, reach)
    samples = Samples(rng.normal(size=(20, d)), rng.uniform(0.2, 3.0, size=(20, d)), problem, 0.1)
    contexts, q = np.arange(8), -shape.b
    found = samples.facet_gradient(shape.W, q, contexts)
    counterpart = Counterpart(problem, Polyhedron.from_halfspaces(shape.W, q), 0.0)
    whole = [counterpart.solve(center) for center in samples.centers[contexts]]
    assert found.value == pytest.approx(np.mean([solution.value for solution in whole]), rel=1e-9)
    _agrees_with_differences(samples, shape.W, q, contexts)


def _agrees_with_differences(samples: Samples, W: np.ndarray, q: np.ndarray, contexts: np.ndarray) -> None:
    """Along a random direction the cost is between the gradients of its two ends, as of a convex function in q."""
    rng, step = np.random.default_rng(0), 1e-4
    for _ in range(3):
        along = rng.normal(size=len(q))
        here = samples.facet_gradient(W, q, contexts)
        there = samples.facet_gradient(W, q + step * along, contexts)
        slopes = sorted([here.q @ along, there.q @ along])
        assert slopes[0] - 1e-6 <= (there.value - here.value) / step <= slopes[1] + 1e-6


def test_one_outcome_with_a_support_needs_no_solver() -> None:
    rng = np.random.default_rng(0)
    for capacity in (None, 4.0):
        problem = newsvendor(1.0, 3.0, 1, capacity=capacity)
        assert Samples(rng.normal(size=(20, 1)), rng.uniform(size=(20, 1)), problem, 0.1).has_closed_form


# --- what models keep -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["products within a capacity", "whole numbers", "one piece that turns"])
def test_rows_are_decided_alike_whatever_was_decided_before(name: str) -> None:
    problem, rng = PROBLEMS[name][0](), np.random.default_rng(0)
    shape, centers = _some_set(rng, problem.n_outcomes, 1.2), rng.uniform(0.0, 3.5, size=(5, problem.n_outcomes))
    alone = [decide(problem, shape, 0.3, row[None], cache=Cache()) for row in centers]
    kept = Cache()
    for _ in range(2):
        for row, expected in zip(centers, alone, strict=True):
            found = decide(problem, shape, 0.3, row[None], cache=kept)
            np.testing.assert_allclose(found.flat, expected.flat, atol=1e-7)
            np.testing.assert_allclose(found.cost_bound, expected.cost_bound, rtol=1e-9)
    without = decide(problem, shape, 0.3, centers)
    np.testing.assert_allclose(without.cost_bound, [found.cost_bound[0] for found in alone], rtol=1e-8, atol=1e-8)
    assert len(kept) > 0


def test_radius_and_scale_tell_what_is_kept_apart() -> None:
    problem, rng = newsvendor(1.0, 3.0, 2, capacity=5.0), np.random.default_rng(0)
    shape, centers, kept = _some_set(rng, 2, 1.0), rng.uniform(1.0, 3.0, size=(3, 2)), Cache()
    for radius in (0.1, 0.4):
        for scale in (1.0, 1.5):
            found = decide(problem, shape, radius, centers, scales=np.full(3, scale), cache=kept)
            expected = decide(problem, shape.scaled(scale), radius, centers)
            np.testing.assert_allclose(found.cost_bound, expected.cost_bound, rtol=1e-8)


def test_threads_that_share_a_store_do_not_share_a_solver() -> None:
    problem, rng = newsvendor(1.0, 3.0, 3, capacity=5.0), np.random.default_rng(0)
    shape, centers, kept = _some_set(rng, 3, 1.0), rng.uniform(0.5, 3.0, size=(40, 3)), Cache()
    expected = [decide(problem, shape, 0.2, row[None], cache=Cache()).cost_bound[0] for row in centers]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: decide(problem, shape, 0.2, row[None], cache=kept).cost_bound[0], centers))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_store_is_bounded_and_empty_after_pickling() -> None:
    kept = Cache()
    for key in range(100):
        with kept.entry(key, list):
            pass
    assert 0 < len(kept) < 100
    assert len(pickle.loads(pickle.dumps(kept))) == 0


def test_what_failed_its_user_is_not_kept() -> None:
    kept = Cache()
    with pytest.raises(RuntimeError, match="broken"), kept.entry("key", list):
        raise RuntimeError("broken")
    assert len(kept) == 0


# --- threads for matrix products --------------------------------------------------------------------------


def _blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_calls_that_overlap_restore_the_threads_that_were_set_before_all_of_them() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        before = _blas_threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert _blas_threads() == {1}
        first.__exit__(None, None, None)  # the one that saw what was set ends first
        assert _blas_threads() == {1}
        second.__exit__(None, None, None)
        assert _blas_threads() == before
