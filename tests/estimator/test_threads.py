"""Many threads, one problem: every answer is the one that a single thread gets."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.calibration import Marginal
from polyhedge.monitoring import monitor as following
from polyhedge.problems import (
    DecisionProblem,
    newsvendor,
    problem_from_data,
    problem_to_data,
    simplex_linear,
    simplex_quadratic,
)
from polyhedge.sets import Box
from shared import Given

N_THREADS = 4
N_CALLS = 8


@pytest.fixture(autouse=True)
def _eager_switches():
    """Threads take turns a hundred times as often as usual, so that what they share is seen half done."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def _on_simplex(cost, **more):
    z = cp.Variable(2, nonneg=True)
    return DecisionProblem(decision=z, cost=cost, constraints=[cp.sum(z) == 1], n_outcomes=2, **more)


def _with_uncertain_constraint():
    z = cp.Variable(2, nonneg=True)
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z) + 0.1 * cp.sum_squares(z),
        constraints=[z <= 9],
        uncertain_constraints=lambda z, u: [z[0] + 0.5 * z[1] >= u[0], 0.1 * cp.square(z[1]) + u[1] <= 1 + 2 * z[1]],
        n_outcomes=2,
    )


def _with_integers():
    z = cp.Variable(2, integer=True)
    cost = lambda z, u: u @ z + cp.norm1(z - 0.3)  # noqa: E731
    return DecisionProblem(decision=z, cost=cost, constraints=[z >= -2, z <= 2], n_outcomes=2)


KINDS = {
    "affine": lambda: simplex_linear([-0.08, 0.0]),
    "quadratic": lambda: simplex_quadratic([0.2, 0.1], 0.3),
    "newsvendor": lambda: newsvendor(1.0, 2.0, 2, nonnegative_demand=False),
    "piecewise_base": lambda: _on_simplex(lambda z, u: u @ z + 3 * cp.abs(z[0] - 0.5)),
    "concave": lambda: _on_simplex(lambda z, u: u @ z - 0.1 * cp.sum_squares(u)),
    "convex": lambda: _on_simplex(lambda z, u: cp.sum_squares(u - z)),
    "uncertain_constraints": _with_uncertain_constraint,
    "integers": _with_integers,
}


def _fitted(problem, seed=0, n=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    decider = ph.RobustDecider(
        problem, "precomputed", alpha=0.2, learner=Given(Box([1.0, 1.0]).as_polyhedron()), random_state=0
    )
    return decider.fit(X, X + 0.3 * rng.normal(size=(n, 2)))


def _rows(seed, n):
    rng = np.random.default_rng(100 + seed)
    X = rng.normal(size=(n, 2))
    return X, X + 0.3 * rng.normal(size=(n, 2))


def _everything(decider, seed):
    """What a fitted decider says about some rows, as one array."""
    X, Y = _rows(seed, 20)
    decided, measured = decider.decide(X[:1], n_jobs=1), decider.measure(X[:1], Y[:1])
    parts = [decided.z, decided.cost_bound, decided.worst_outcome, measured.realised, measured.regret]
    parts += [decider.problem.evaluate(X, Y), decider.residuals(X, Y), decider.scales(X), decider.region(X[0]).center]
    return np.concatenate([np.ravel(part) for part in parts])


def _at_once(work, n_calls=N_CALLS, n_threads=N_THREADS):
    """work(0), work(1), ... from threads that start together."""
    start = Barrier(n_threads)
    with ThreadPoolExecutor(n_threads, initializer=start.wait) as pool:
        return list(pool.map(work, range(n_calls)))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_from_many_threads_are_those_of_one(kind):
    decider = _fitted(KINDS[kind]())
    n_calls = N_THREADS if kind == "concave" else N_CALLS  # a branch and bound each
    alone = [_everything(decider, seed) for seed in range(n_calls)]
    together = _at_once(lambda seed: _everything(decider, seed), n_calls)
    assert np.array_equal(np.array(alone), np.array(together), equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_problem_is_first_used_by_many_threads(kind):
    problem = KINDS[kind]()
    state = problem_to_data(problem)
    rng = np.random.default_rng(0)
    z, u = rng.normal(size=(N_CALLS, 2)), rng.normal(size=(N_CALLS, 2))
    expected = [problem.evaluate(z[i : i + 1], u[i : i + 1])[0] for i in range(N_CALLS)]
    for _ in range(3):
        fresh = problem_from_data(state)  # nothing is compiled yet

        def value(i, fresh=fresh):
            parts = fresh.row_parts(z[i])
            assert len(parts) == len(fresh.uncertain_rows)
            return fresh.evaluate(z[i : i + 1], u[i : i + 1])[0]

        assert np.array_equal(_at_once(value), expected, equal_nan=True)


def test_problems_written_at_once_on_one_variable_read_the_right_coefficients():
    z = cp.Variable(2, nonneg=True)
    z.value = np.array([3.0, 4.0])

    def coefficients(k):
        problem = DecisionProblem(
            decision=z,
            cost=lambda z, u: k * (u @ z) + z[0] + cp.maximum(u[0] - z[1], k),
            constraints=[cp.sum(z) == 1],
            n_outcomes=2,
        )
        pieces = problem.pieces
        return np.concatenate([pieces.Q.ravel(), pieces.q.ravel(), pieces.p.ravel(), pieces.c])

    alone = [coefficients(k) for k in range(8)]
    assert np.array_equal(np.array(_at_once(coefficients, 8, 4)), np.array(alone))
    assert np.array_equal(z.value, [3.0, 4.0])


def test_deciders_that_share_a_problem_are_recalibrated_at_once():
    problem = KINDS["concave"]()
    deciders = [_fitted(problem, seed) for seed in range(4)]

    def radius(i):
        decider = deciders[i % 4]
        decider.recalibrate(*_rows(i % 4, 50))
        return decider.radius_

    radii = _at_once(radius)
    assert radii == [radii[i % 4] for i in range(N_CALLS)]
    assert len(set(radii)) == 4
    assert [len(decider.calibrations_) for decider in deciders] == [1 + N_CALLS // 4] * 4


class _Interrupted(Marginal):
    """A marginal radius, before which something else happens once."""

    def calibrate(self, scores, rows, alpha):
        vars(self).pop("meanwhile", lambda: None)()
        return super().calibrate(scores, rows, alpha)


def test_radii_of_a_set_that_was_refreshed_meanwhile_are_dropped():
    calibrator, (X, Y) = _Interrupted(), _rows(0, 120)
    learner = Given(Box([1.0, 1.0]).as_polyhedron())
    decider = ph.RobustDecider(KINDS["affine"](), alpha=0.2, learner=learner, calibration=calibrator, random_state=0)
    decider.fit(X, Y)

    def meanwhile():  # as a thread would that ends between scores and radius
        with ThreadPoolExecutor(1) as other:
            other.submit(decider.refresh, X, 10 * Y).result()

    vars(calibrator)["meanwhile"] = meanwhile
    with pytest.raises(RuntimeError, match="refreshed or recalibrated by another thread meanwhile"):
        decider.recalibrate(*_rows(1, 120))
    assert len(decider.calibrations_) == 2
    assert decider.evaluate(X, 10 * Y).coverage > 0.7


@pytest.mark.parametrize("change", ["fit", "refresh", "recalibrate"])
@pytest.mark.parametrize("keys", [None, [f"row {i}" for i in range(20)]])
def test_outcomes_counted_meanwhile_do_not_bring_an_old_model_back(monkeypatch, change, keys):
    (X, Y), learner = _rows(0, 120), Given(Box([1.0, 1.0]).as_polyhedron())
    decider = ph.RobustDecider(KINDS["affine"](), alpha=0.2, learner=learner, random_state=0).fit(X, Y)
    newer, counted = _rows(1, 120), following.updated

    def counted_late(*arguments):  # as a thread would that is overtaken between reading the model and counting
        monkeypatch.setattr(following, "updated", counted)
        with ThreadPoolExecutor(1) as other:
            other.submit(getattr(decider, change), *newer).result()
        return counted(*arguments)

    monkeypatch.setattr(following, "updated", counted_late)
    with pytest.raises(RuntimeError, match=r"by another thread meanwhile.*none of them was counted. Update once more"):
        decider.update(*_rows(2, 20), keys=keys)
    expected = ph.RobustDecider(KINDS["affine"](), alpha=0.2, learner=learner, random_state=0).fit(X, Y)
    getattr(expected, change)(*newer)
    assert decider.radius_ == expected.radius_
    assert len(decider.calibrations_) == len(expected.calibrations_)
    assert not hasattr(decider, "monitored_")
    assert len(decider.update(*_rows(2, 20), keys=keys).missed) == 20
