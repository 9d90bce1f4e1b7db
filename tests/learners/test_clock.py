"""No result depends on the clock unless a time limit was asked for."""

import time
from functools import cache

import numpy as np
import pytest

import polyhedge as ph
from polyhedge.learners import CCG, Samples, Scenario, lower_bound
from polyhedge.solvers.program import Status

_CLOCK = time.perf_counter


@pytest.fixture
def other_clock(monkeypatch):
    """Let the clock run so many times faster from now on."""

    def start(factor):
        began = _CLOCK()
        monkeypatch.setattr(time, "perf_counter", lambda: began + factor * (_CLOCK() - began))

    return start


def draw(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d))


# Work that is used up before the bounds meet: what is proven by then must not depend on how long it took.
WORK = 2e4
CERTIFICATES = {
    "any directions": (ph.problems.simplex_linear(np.zeros(3)), 3),
    "fixed directions": (ph.problems.simplex_newsvendor(0.3, 0.7, 3), 3),
    "segment": (ph.problems.simplex_linear([0.0, 0.1]), 2),
}


def certificate(name, work=WORK):
    problem, d = CERTIFICATES[name]
    return lower_bound(Samples(*draw(30, d), problem, 0.15), max_work=work)


usual_certificate = cache(certificate)


@pytest.mark.parametrize("factor", [1e3, 1e-3])
@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_does_not_depend_on_the_clock(name, factor, other_clock):
    first = usual_certificate(name)
    other_clock(factor)
    second = certificate(name)
    assert (first.lower, first.upper, first.status, first.detail) == (
        second.lower,
        second.upper,
        second.status,
        second.detail,
    )
    assert np.array_equal(first.kept, second.kept)


LEARNERS = {
    "CCG": (CCG(), ph.problems.simplex_linear(np.zeros(2)), 2),
    "Scenario": (Scenario(max_work=WORK), ph.problems.simplex_linear(np.zeros(3)), 3),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_does_not_depend_on_the_clock(name, other_clock):
    learner, problem, d = LEARNERS[name]
    samples = draw(20, d)
    first = learner.learn(Samples(*samples, problem, 0.15), random_state=0)
    other_clock(1e3)
    second = learner.learn(Samples(*samples, problem, 0.15), random_state=0)
    assert (first.objective, first.lower_bound, first.status) == (second.objective, second.lower_bound, second.status)
    assert np.array_equal(first.set.W, second.set.W)
    assert np.array_equal(first.set.b, second.set.b)


def test_less_work_proves_less_and_more_work_never_less():
    bounds = [*(certificate("any directions", work) for work in (0.0, 1e4)), usual_certificate("any directions")]
    assert [bound.lower for bound in bounds] == sorted(bound.lower for bound in bounds)
    assert all(bound.lower <= bounds[-1].upper for bound in bounds)


def test_a_time_limit_that_was_asked_for_is_kept():
    problem, d = CERTIFICATES["any directions"]
    hasty = lower_bound(Samples(*draw(30, d), problem, 0.15), time_limit=0.0)
    assert hasty.status is Status.STOPPED_EARLY
