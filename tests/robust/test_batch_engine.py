"""The batch engine: every decision equals the single solve and an independent solver, whatever the route."""

import importlib
import itertools
import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import polyhedge as ph
import polyhedge.robust.engine.batch as batch
from polyhedge.robust import Counterpart, decide, decide_knowing
from polyhedge.robust.engine.batch import BatchEngine, batch_engine, is_certified
from polyhedge.robust.engine.pivots import block_pivot, prove

KINDS = ("affine", "newsvendor", "quadratic", "weakly quadratic")
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def random_set(rng, d, n_facets):
    W = rng.normal(size=(n_facets, d))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    return ph.Polyhedron(np.vstack([W, -W.sum(axis=0)]), -np.append(0.3 + rng.random(n_facets), 1.0))


def make_problem(kind, d, rng):
    c = rng.normal(size=d) / 10
    if kind == "affine":
        return ph.problems.simplex_linear(c)
    if kind == "newsvendor":
        return ph.problems.simplex_newsvendor(0.2 + rng.random(d), 0.5 + rng.random(d), d)
    if kind == "quadratic":
        return ph.problems.simplex_quadratic(c, 0.1)
    root = rng.normal(size=(d, max(d // 2, 1)))
    return ph.problems.portfolio(root @ root.T, risk_aversion=0.2, upper=0.8)


def by_cvxpy(problem, shape, center):
    """The dual counterpart written anew from the piece list, solved by Clarabel to tight tolerances."""
    z, terms, constraints = problem.decision, [], list(problem.constraints)
    pieces = problem.pieces
    for Q, q, p, c in zip(pieces.Q, pieces.q, pieces.p, pieces.c, strict=True):
        multipliers = cp.Variable(shape.n_facets, nonneg=True)
        direction = Q @ z + q
        constraints.append(shape.W.T @ multipliers == direction)
        terms.append(-shape.b @ multipliers + direction @ center + p @ z + c)
    alone = problem.expression(z, np.zeros(problem.n_outcomes)) if len(pieces) == 1 else 0.0
    if len(pieces) == 1:  # the cost at outcome zero already holds p'z + c
        terms = [terms[0] - pieces.p[0] @ z - pieces.c[0]]
    worst = cp.maximum(*terms) if len(terms) > 1 else terms[0]
    return cp.Problem(cp.Minimize(alone + worst), constraints).solve(solver=cp.CLARABEL, **TIGHT)


def one_by_one(problem, shape, centers):
    counterpart = Counterpart(problem, shape, 0.0)
    return np.array([counterpart.solve(center).value for center in centers])


def engine_for(problem, shape, centers) -> BatchEngine:
    engine = batch_engine(Counterpart(problem, shape, 0.0), centers.mean(axis=0), np.abs(centers).mean(axis=0))
    assert engine is not None
    return engine


def assert_proven(problem, shape, centers, found):
    """The bound is attained at the worst outcome, which lies in the set, and the decision is feasible."""
    assert found.is_optimal.all()
    assert shape.contains(found.worst_outcome - centers, 1e-7).all()
    flat = found.z.reshape(len(found), -1)
    assert flat.sum(axis=1) == pytest.approx(1.0, abs=1e-9)
    assert flat.min() >= -1e-9
    if len(problem.pieces) == 1:  # else the heaviest piece attains it only together with the others
        assert problem.evaluate(flat, found.worst_outcome) == pytest.approx(found.cost_bound, abs=1e-7)


@pytest.mark.parametrize("spread", [0.2, 2.0])
@pytest.mark.parametrize("d", [2, 5, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_decisions_equal_single_solves_and_an_independent_solver(kind, d, spread):
    if kind == "newsvendor" and d == 10:
        d = 6  # 1024 pieces make CVXPY, not the engine, slow
    rng = np.random.default_rng(d)
    problem, shape = make_problem(kind, d, rng), random_set(rng, d, 3 * d)
    centers = spread * rng.normal(size=(300, d))
    found = decide(problem, shape, 0.0, centers)
    assert_proven(problem, shape, centers, found)
    some = rng.choice(len(centers), size=20, replace=False)
    assert found.cost_bound[some] == pytest.approx(one_by_one(problem, shape, centers[some]), abs=1e-8, rel=1e-8)
    for i in some[:2]:
        assert found.cost_bound[i] == pytest.approx(by_cvxpy(problem, shape, centers[i]), abs=1e-7)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(3, 5), st.sampled_from([0.1, 1.0, 10.0]))
def test_engine_closes_every_context_with_a_small_gap(seed, kind, d, spread):
    rng = np.random.default_rng(seed)
    problem, shape = make_problem(kind, d, rng), random_set(rng, d, 2 * d)
    centers = spread * rng.normal(size=(80, d))
    found = engine_for(problem, shape, centers).decide(centers, n_jobs=1)
    assert found.is_open.mean() <= 0.05
    closed = np.flatnonzero(~found.is_open)[::4]
    single = one_by_one(problem, shape, centers[closed])
    assert found.cost_bound[closed] == pytest.approx(single, abs=1e-7, rel=1e-7)
    assert (found.gap[closed] <= 1e-8 * (1 + np.abs(found.cost_bound[closed]))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_sets_with_axis_facets_and_ties_are_decided(kind):
    rng = np.random.default_rng(3)
    d = 5
    problem = make_problem(kind, d, rng)
    W = np.vstack([np.eye(d), -np.eye(d), np.ones((1, d))])
    shape = ph.Polyhedron(W, -np.concatenate([np.full(2 * d, 0.5), [1.0]]))
    centers = np.round(rng.normal(size=(400, d)), 1)  # rounded: many equal entries
    found = decide(problem, shape, 0.0, centers)
    assert_proven(problem, shape, centers, found)
    assert found.cost_bound[::8] == pytest.approx(one_by_one(problem, shape, centers[::8]), abs=1e-8)


def test_known_support_of_the_outcome_is_decided_in_batch_for_affine_costs():
    rng = np.random.default_rng(2)
    d = 4
    z = cp.Variable(d, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z,
        constraints=[cp.sum(z) == 1],
        n_outcomes=d,
        outcome_support=lambda u: [u >= 0],
    )
    shape, centers = random_set(rng, d, 10), 1 + 0.5 * rng.normal(size=(150, d))
    assert not engine_for(problem, shape, centers).decide(centers).is_open.all()
    found = decide(problem, shape, 0.0, centers)
    # Predictions whose set does not meet the support have no decision; all others equal the single solve.
    single = decide(problem, shape, 0.0, centers[:50])
    assert list(found.status[:50]) == list(single.status)
    assert found.cost_bound[:50] == pytest.approx(single.cost_bound, abs=1e-8, nan_ok=True)


def test_rows_without_a_decision_keep_their_status_and_place():
    rng = np.random.default_rng(4)
    z = cp.Variable(3)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z, constraints=[z >= 0, cp.sum(z) >= 1], n_outcomes=3
    )
    shape = ph.Box([0.1, 0.1, 0.1])
    centers = rng.normal(size=(200, 3)) + 1.0
    found = decide(problem, shape, 1.0, centers)
    # Some reward of at least 0.1 pays for any amount: then there is no best decision.
    unbounded = centers.min(axis=1) + 0.1 < -1e-9
    assert 20 < unbounded.sum() < 180
    assert (found.status[unbounded] == ph.Status.UNBOUNDED).all()
    assert np.isneginf(found.cost_bound[unbounded]).all()
    assert found.is_optimal[~unbounded].all()
    assert found.cost_bound[~unbounded] == pytest.approx(centers[~unbounded].min(axis=1) + 0.1, abs=1e-9)
    assert np.isnan(found.z[unbounded]).all()
    assert len(found.detail) == len(found)


def test_limits_and_costs_that_both_move_are_decided_and_infeasible_rows_told():
    rng = np.random.default_rng(14)
    z = cp.Variable(3)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z,
        constraints=[z >= 0, z <= 1],
        n_outcomes=3,
        uncertain_constraints=lambda z, u: [z[0] + z[1] >= u[0]],
    )
    shape, centers = ph.Box([0.1, 0.2, 0.3]), rng.normal(size=(200, 3)) + 1.0
    engine = batch_engine(Counterpart(problem, shape, 1.0), centers.mean(axis=0), np.ones(3))
    assert engine is not None
    infeasible = centers[:, 0] + 0.1 > 2 + 1e-9
    assert np.array_equal(engine.decide(centers).is_open, infeasible)
    found = decide(problem, shape, 1.0, centers)
    assert (found.status[infeasible] == ph.Status.INFEASIBLE).all()
    assert found.is_optimal[~infeasible].all()
    counterpart = Counterpart(problem, shape, 1.0)
    single = [counterpart.solve(center).value for center in centers[~infeasible]]
    assert found.cost_bound[~infeasible] == pytest.approx(single, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_do_not_depend_on_the_number_of_workers(kind, monkeypatch):
    rng = np.random.default_rng(6)
    problem, shape = make_problem(kind, 5, rng), random_set(rng, 5, 15)
    centers = rng.normal(size=(700, 5))
    monkeypatch.setattr(batch, "_TASK", 40)
    alone, together = (decide(problem, shape, 0.0, centers, n_jobs=n) for n in (1, 4))
    for name in ("z", "cost_bound", "worst_outcome", "gap"):
        assert np.allclose(getattr(alone, name), getattr(together, name), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_region_is_not_certified_and_a_wrong_end_not_proven(kind):
    rng = np.random.default_rng(8)
    problem, shape = make_problem(kind, 4, rng), random_set(rng, 4, 12)
    centers = rng.normal(size=(300, 4))
    engine = engine_for(problem, shape, centers)
    engine.decide(centers)
    region = engine.pool.regions[-1]
    assert is_certified(engine.program, region, batch._PROVEN)
    for name in ("X", "Y"):
        wrong = getattr(region, name).copy()
        wrong[tuple(rng.integers(wrong.shape))] += 1e-6
        assert not is_certified(engine.program, ph_replace(region, **{name: wrong}), batch._PROVEN)
    F = np.concatenate([np.ones((300, 1)), centers - engine.center], axis=1)
    v = np.zeros((300, engine.rule.n_pairs))  # the base for everyone: right for some, wrong for others
    proven = prove(engine.program, engine.pairs, F, v, 1e-8)
    truth = one_by_one(problem, shape, centers)
    assert 0 < proven.is_optimal.mean() < 1 or np.allclose(proven.value, truth)
    assert proven.value[proven.is_optimal] == pytest.approx(truth[proven.is_optimal], abs=1e-7)


def ph_replace(region, **changes):
    return type(region)(**{**vars(region), **changes})


def test_a_region_offered_to_the_wrong_contexts_rejects_them(monkeypatch):
    rng = np.random.default_rng(9)
    problem, shape = make_problem("affine", 5, rng), random_set(rng, 5, 15)
    centers = rng.normal(size=(600, 5))
    # Every context is sent to a random region: the tests must catch it, and the bounds must not change.
    expected = one_by_one(problem, shape, centers[:50])
    monkeypatch.setattr(
        batch._Pool, "most_promising", lambda pool, F: np.random.default_rng(0).integers(len(pool.regions), size=len(F))
    )
    found = decide(problem, shape, 0.0, centers)
    assert found.is_optimal.all()
    assert found.cost_bound[:50] == pytest.approx(expected, abs=1e-8)


def test_contexts_that_the_engine_leaves_open_go_to_the_solver(monkeypatch):
    rng = np.random.default_rng(10)
    problem, shape = make_problem("quadratic", 4, rng), random_set(rng, 4, 12)
    centers = rng.normal(size=(120, 4))
    expected = decide(problem, shape, 0.0, centers).cost_bound
    monkeypatch.setattr(batch, "_PROVEN", -1.0)  # nothing is ever good enough
    found = decide(problem, shape, 0.0, centers)
    assert found.is_optimal.all()
    assert found.cost_bound == pytest.approx(expected, abs=1e-7)


def test_integer_and_conic_problems_are_solved_on_any_number_of_workers_in_order(monkeypatch):
    rng = np.random.default_rng(11)
    centers = 2 + rng.normal(size=(20, 2))
    monkeypatch.setattr(importlib.import_module("polyhedge.robust.routes"), "_PART", 3)
    integer = ph.problems.newsvendor(0.3, 0.7, 2, integer=True, capacity=5.0)
    conic = ph.problems.simplex_linear([0.0, 0.0])
    for problem, shape in ((integer, ph.Box([0.5, 0.5])), (conic, ph.Ball(2))):
        alone, together = (decide(problem, shape, 0.7, centers, n_jobs=n) for n in (1, 3))
        assert np.allclose(alone.cost_bound, together.cost_bound, atol=1e-8)
        single = np.concatenate([decide(problem, shape, 0.7, center[None]).cost_bound for center in centers])
        assert alone.cost_bound == pytest.approx(single, abs=1e-7)


@pytest.mark.parametrize("n", [40, 1000])
def test_progress_is_reported_to_the_last_context(n):
    rng = np.random.default_rng(12)
    problem, shape = make_problem("affine", 4, rng), random_set(rng, 4, 12)
    calls = []
    decide(problem, shape, 0.0, rng.normal(size=(n, 4)), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (n, n)
    assert all(a[0] < b[0] for a, b in itertools.pairwise(calls))


def test_block_pivot_exchanges_rows_and_columns():
    rng = np.random.default_rng(13)
    M, v = rng.normal(size=(5, 7)), rng.normal(size=7)
    w = M @ v
    rows, columns = np.array([1, 3]), np.array([2, 6])
    N = block_pivot(M, rows, columns)
    v2, w2 = v.copy(), w.copy()
    v2[columns], w2[rows] = w[rows], v[columns]
    assert N @ v2 == pytest.approx(w2)
    assert block_pivot(np.zeros((2, 2)), np.array([0]), np.array([1])) is None


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_with_the_outcome_known_equal_a_direct_minimisation(kind):
    rng = np.random.default_rng(15)
    problem = make_problem(kind, 4, rng)
    outcomes = rng.normal(size=(100, 4))
    z, costs = decide_knowing(problem, outcomes)
    assert problem.evaluate(z, outcomes) == pytest.approx(costs, abs=1e-7)
    for u, cost in zip(outcomes[:10], costs[:10], strict=True):
        cost_of_z = cp.Minimize(problem.expression(problem.decision, u))
        best = cp.Problem(cost_of_z, list(problem.constraints)).solve(solver=cp.CLARABEL, **TIGHT)
        assert cost == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize(("d", "n"), [(2, 400_000), (4, 100_000)])
def test_memory_beyond_inputs_and_outputs_does_not_grow_with_the_contexts(d, n, monkeypatch):
    rng = np.random.default_rng(17)
    problem, shape = make_problem("affine", d, rng), random_set(rng, d, 3 * d)
    monkeypatch.setattr(batch, "_CHUNK", 4096)
    monkeypatch.setattr(importlib.import_module("polyhedge.robust.routes"), "_SEGMENT_CHUNK", 4096)
    beyond = []
    for size in (n // 4, n):
        centers = rng.normal(size=(size, d))
        decide(problem, shape, 0.0, centers[:100])
        tracemalloc.start()
        found = decide(problem, shape, 0.0, centers, n_jobs=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        kept = sum(getattr(found, name).nbytes for name in ("z", "cost_bound", "worst_outcome", "gap", "status"))
        beyond.append(peak - kept)
    # Two masks of a byte a context, of finite numbers and open contexts, are all that grows.
    assert beyond[1] - beyond[0] <= 3 * d * n
    assert beyond[1] <= 3 * d * n + 40e6
