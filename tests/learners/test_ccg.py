"""Column-and-constraint generation: its bounds meet at the brute-force optimum."""

from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
import shared
from polyhedge.learners import Samples
from polyhedge.learners.paper.ccg import CCG
from polyhedge.solvers.program import Status
from shared import brute_force, check_evidence

Z = cp.Variable(2, nonneg=True)
WHOLE = cp.Variable(2, integer=True)
PROBLEMS = {
    "linear": lambda: ph.problems.simplex_linear([-0.08, 0.0]),
    "quadratic": lambda: ph.problems.simplex_quadratic([-0.08, 0.0], 0.08),
    "newsvendor": lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 2),
    "portfolio": lambda: ph.problems.portfolio([[0.3, 0.1], [0.1, 0.2]], lower=-1.0, upper=2.0),
    "integer": lambda: ph.DecisionProblem(
        decision=WHOLE,
        cost=lambda z, u: u @ z + 0.1 * cp.sum_squares(z),
        constraints=[WHOLE >= -1, WHOLE <= 2, cp.sum(WHOLE) == 1],
        n_outcomes=2,
    ),
}

learning_data = partial(shared.learning_data, size=0.3)


SHARED = ("newsvendor",)
"""Costs whose set is learned for two contexts at once; the others are slow tests."""
CONVEX_CASES = [
    *((name, "mean", 1) for name in PROBLEMS),
    *((name, [0, 3], 0) for name in SHARED),
    *(pytest.param(name, [0, 3], 0, marks=pytest.mark.slow) for name in PROBLEMS if name not in SHARED),
]


@pytest.mark.parametrize(("name", "contexts", "seed"), CONVEX_CASES, ids=str)
def test_bounds_meet_at_brute_force(name, contexts, seed):
    residuals, centers = learning_data(7, seed=seed)
    check_bounds(PROBLEMS[name](), residuals, centers, contexts, brute_force)


def check_bounds(problem, residuals, centers, contexts, truth_of, alpha=0.3):
    result = CCG(contexts=contexts, tolerance=1e-6).learn(Samples(residuals, centers, problem, alpha))
    chosen = centers.mean(axis=0)[None] if contexts == "mean" else centers[contexts]
    truth = truth_of(problem, residuals, chosen, alpha)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(truth, abs=3e-6)
    assert result.lower_bound == pytest.approx(truth, abs=3e-6)
    check_evidence(result, residuals, chosen, problem, alpha)


def test_lower_bound_holds_for_every_set_the_other_learners_find():
    residuals, centers = learning_data(60)
    problem = PROBLEMS["newsvendor"]()
    result = CCG().learn(Samples(residuals, centers, problem, 0.1))
    assert result.set.n_facets == 4  # one for each piece
    mean = Samples(residuals, centers.mean(axis=0)[None], problem, 0.1)
    descent = ph.learners.Descent(n_steps=40).learn(Samples(residuals, centers, problem, 0.1), random_state=0)
    assert result.lower_bound <= mean.value(descent.set, np.array([0]))
    assert result.gap <= 1e-4


@pytest.mark.parametrize("settings", [{"time_limit": 0.0}, {"max_iterations": 0}])
def test_out_of_time_returns_a_valid_set_without_a_bound(settings):
    residuals, centers = learning_data(30)
    problem = PROBLEMS["linear"]()
    result = CCG(**settings).learn(Samples(residuals, centers, problem, 0.1))
    assert result.status is Status.STOPPED_EARLY
    assert result.lower_bound == -np.inf
    check_evidence(result, residuals, centers.mean(axis=0)[None], problem, 0.1)


def test_one_outcome_is_an_interval():
    z = cp.Variable(nonneg=True)
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: cp.abs(u[0] - z), constraints=[z <= 1], n_outcomes=1)
    residuals, centers = learning_data(9, d=1)
    result = CCG().learn(Samples(residuals, centers, problem, 0.3))
    truth = brute_force(problem, residuals, centers.mean(axis=0)[None], 0.3)
    assert result.objective == pytest.approx(truth, abs=2e-4)


def test_ccg_says_where_it_does_not_apply_and_what_does():
    residuals, centers = learning_data(10)
    parts = {"decision": Z, "n_outcomes": 2, "cost": lambda z, u: u @ z, "constraints": [cp.sum(Z) == 1]}
    known = ph.DecisionProblem(outcome_support=lambda u: [u >= -9], **parts)
    with pytest.raises(ValueError, match=r"CCG does not apply to problems with outcome_support\. Use Descent"):
        CCG().learn(Samples(residuals, centers, known, 0.2))
    squared = ph.DecisionProblem(**parts | {"cost": lambda z, u: cp.square(u @ z)})
    with pytest.raises(ValueError, match=r"must be a maximum of .* functions .*, got one that is convex"):
        CCG().learn(Samples(residuals, centers, squared, 0.2))


def test_too_few_samples_for_alpha_are_an_error():
    residuals, centers = learning_data(5)
    with pytest.raises(ValueError, match=r"alpha=0\.1 needs at least 9 .*samples, got 5"):
        CCG().learn(Samples(residuals, centers, PROBLEMS["linear"](), 0.1))
