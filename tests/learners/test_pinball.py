"""Algorithm 2: its gradients, projections and quantile are exact; its bias is the predicted one."""

from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
import shared
from polyhedge.learners import Samples
from polyhedge.learners.paper import pinball as module
from polyhedge.learners.paper.pinball import (
    Pinball,
    PinballState,
    far_box,
    pinball_starts,
    project_onto_simplex,
    surrogate_gradient,
)
from polyhedge.solvers.program import Status
from polyhedge_study.feature_ridge import FeatureRidge

PROBLEMS = {
    "linear": lambda: ph.problems.simplex_linear([-0.08, 0.0]),
    "newsvendor": lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 2),
    "known support": lambda: ph.problems.newsvendor(0.3, 0.7, 2, capacity=3.0),
}
QUICK = Pinball(n_steps=30, n_starts=2)


learning_data = partial(shared.learning_data, size=0.5, shift=2.0)


def objective_of(problem, **kwargs):
    return Samples(*learning_data(**kwargs), problem, 0.1)


def some_state(objective, seed=1):
    rng = np.random.default_rng(seed)
    W = np.array([[1.0, 0.1], [0.2, 1.0], [-1.0, -0.3], [-0.1, -1.0], [0.7, 0.6]])
    z = rng.dirichlet(np.ones(2), size=objective.n)
    return PinballState(W, 0.05 * rng.normal(size=5), 0.6, z)


@pytest.mark.parametrize("name", PROBLEMS)
def test_surrogate_gradient_equals_finite_differences_in_facets_radius_and_decisions(name):
    objective = objective_of(PROBLEMS[name]())
    state, batch, far = some_state(objective), np.arange(0, 60, 3), far_box(objective)
    gradient = surrogate_gradient(objective, state, batch, 3.0, far)
    rng, step = np.random.default_rng(2), 1e-6

    def value(sign, dW, db, dr, dz):
        t = sign * step
        moved = PinballState(state.W + t * dW, state.b + t * db, state.r + t * dr, state.z + t * dz)
        return surrogate_gradient(objective, moved, batch, 3.0, far).value

    for _ in range(5):
        direction = (rng.normal(size=(5, 2)), rng.normal(size=5), rng.normal(), rng.normal(size=(60, 2)))
        difference = (value(1, *direction) - value(-1, *direction)) / (2 * step)
        dW, db, dr, dz = direction
        exact = np.sum(gradient.W * dW) + gradient.b @ db + gradient.r * dr
        # Each context's decision has a gradient of its own; the surrogate is their mean.
        exact += np.sum(gradient.z * dz[batch]) / len(batch)
        assert difference == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_worst_residuals_by_bases_equal_those_by_linear_programs_with_their_multipliers(d):
    rng = np.random.default_rng(d)
    A = np.vstack([np.eye(d), -np.eye(d), rng.normal(size=(3, d))])
    rhs, V = rng.uniform(0.2, 1.0, size=(4, len(A))), rng.normal(size=(4, 5, d))
    bases, programs = module._over_bases(A, rhs, V), module._over_programs(A, rhs, V)
    assert bases.values == pytest.approx(programs.values)
    assert bases.points == pytest.approx(programs.points)
    for found in (bases, programs):
        assert found.multipliers @ A == pytest.approx(V)
        assert np.einsum("clm,cm->cl", found.multipliers, rhs) == pytest.approx(found.values)
        assert (found.multipliers >= 0).all()


def test_worst_residuals_of_an_empty_set_are_minus_infinity_either_way():
    A, rhs = np.vstack([np.eye(2), -np.eye(2)]), np.array([[1.0, 1.0, -2.0, 1.0]])
    V = np.ones((1, 1, 2))
    assert module._over_bases(A, rhs, V).values == -np.inf
    assert module._over_programs(A, rhs, V).values == -np.inf


def test_empty_set_pushes_its_radius_up():
    objective = objective_of(PROBLEMS["linear"]())
    state = some_state(objective)
    empty = PinballState(state.W, state.b, -5.0, state.z)
    gradient = surrogate_gradient(objective, empty, np.arange(60), 3.0, far_box(objective))
    assert gradient.r == pytest.approx(-3.0 * objective.rank / objective.n)
    assert not gradient.z.any()


@pytest.mark.parametrize("total", [1.0, 2.5])
def test_projection_onto_the_simplex_equals_a_quadratic_program(total):
    rows = np.random.default_rng(0).normal(size=(6, 4))
    for row, projected in zip(rows, project_onto_simplex(rows, total), strict=True):
        z = cp.Variable(4)
        cp.Problem(cp.Minimize(cp.sum_squares(z - row)), [z >= 0, cp.sum(z) == total]).solve(cp.CLARABEL)
        assert projected == pytest.approx(z.value, abs=1e-5)
        assert projected.sum() == pytest.approx(total)


def box_constrained_problem():
    z = cp.Variable(3)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z + cp.sum_squares(z),
        constraints=[z >= -1, z <= 2, cp.sum(z) == 1],
        n_outcomes=3,
    )


def test_general_decision_step_minimises_cost_plus_squared_distance_over_the_feasible_set():
    problem, rng = box_constrained_problem(), np.random.default_rng(0)
    start, gradient, rate = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), 0.7
    moved = module._decision_step(problem.feasible)(start, gradient, rate)
    for row, slope, found in zip(start, gradient, moved, strict=True):
        z = cp.Variable(3)
        goal = cp.sum_squares(z) + slope @ z + cp.sum_squares(z - row) / (2 * rate)
        cp.Problem(cp.Minimize(goal), [z >= -1, z <= 2, cp.sum(z) == 1]).solve(cp.CLARABEL)
        assert found == pytest.approx(z.value, abs=1e-5)


def test_simplex_step_includes_the_gradient_of_a_quadratic_decision_cost():
    beta, z = 0.08, np.array([[0.7, 0.3]])
    moved = module._decision_step(ph.problems.simplex_quadratic([0.0, 0.0], beta).feasible)(z, np.zeros((1, 2)), 0.1)
    slope = 2 * beta * (z[0, 0] - z[0, 1]) * np.array([1.0, -1.0])
    assert moved == pytest.approx(z - 0.1 * slope)


@pytest.mark.parametrize(("n", "alpha"), [(30, 0.1), (41, 0.2), (99, 0.05)])
def test_least_minimiser_of_the_pinball_loss_in_the_radius_is_the_conformal_radius(n, alpha):
    residuals, _ = learning_data(n=n)
    scores = ph.Polyhedron([[1.0, 0.2], [-0.4, 1.0], [-1.0, -1.0]], [0.1, 0.0, -0.2]).scores(residuals)
    tau = ph.conformal_rank(n, alpha) / n
    # The loss is piecewise linear with kinks at the scores, so that one of them is the least minimiser.
    candidates = np.sort(scores)
    excess = scores - candidates[:, None]
    losses = np.where(excess > 0, tau * excess, (tau - 1) * excess).mean(axis=1)
    least = candidates[np.flatnonzero(losses <= losses.min() + 1e-12)[0]]
    assert least == ph.conformal_radius(scores, alpha)


@pytest.mark.parametrize("name", PROBLEMS)
def test_learned_set_is_bounded_and_covers_the_conformal_rank_at_radius_0(name):
    problem = PROBLEMS[name]()
    objective = objective_of(problem)
    learner = QUICK if name != "known support" else Pinball(n_steps=8, n_starts=1, batch_size=8)
    result = learner.learn(Samples(objective.residuals, objective.centers, problem, 0.1), random_state=0)
    assert objective.radius(result.set) == pytest.approx(0.0, abs=1e-9)
    assert result.set.contains(objective.residuals, 1e-9).sum() >= objective.rank
    assert result.set.is_bounded
    assert objective.value(result.set) == pytest.approx(result.objective)
    assert result.status is Status.FINISHED


def test_pinball_improves_on_the_symmetric_box_it_starts_from():
    objective = objective_of(PROBLEMS["linear"](), n=100)
    axis = pinball_starts(objective, 4, 2, np.random.default_rng(0))[1]
    result = Pinball(n_steps=200, n_starts=2).learn(
        Samples(objective.residuals, objective.centers, objective.problem, 0.1), random_state=0
    )
    assert result.objective < objective.value(axis)


def test_more_dimensions_than_bases_can_be_listed_are_learned_by_linear_programs():
    problem = ph.problems.simplex_linear(np.zeros(5))
    residuals, centers = learning_data(n=40, d=5)
    result = Pinball(n_steps=4, n_starts=1, batch_size=4).learn(
        Samples(residuals, centers, problem, 0.1), random_state=0
    )
    assert result.set.is_bounded
    assert np.isfinite(result.objective)


@pytest.mark.parametrize(("n_facets", "d"), [(4, 2), (3, 2), (7, 2), (4, 3), (9, 3)])
def test_every_start_has_the_facets_asked_for(n_facets, d):
    objective = objective_of(ph.problems.simplex_linear(np.zeros(d)), d=d)
    starts = pinball_starts(objective, n_facets, 5, np.random.default_rng(0))
    assert [start.n_facets for start in starts] == [n_facets] * 5


def refused_problems():
    z = cp.Variable(2, nonneg=True)
    whole = cp.Variable(2, integer=True)
    simplex = [cp.sum(z) == 1]
    convex = ph.DecisionProblem(decision=z, cost=lambda z, u: cp.square(u @ z - 1), constraints=simplex, n_outcomes=2)
    uncertain = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: -cp.sum(z),
        constraints=[z <= 5],
        n_outcomes=2,
        uncertain_constraints=lambda z, u: [(2 + 0.1 * u) @ z <= 1],
    )
    integer = ph.DecisionProblem(
        decision=whole, cost=lambda z, u: u @ z, constraints=[whole >= 0, cp.sum(whole) == 2], n_outcomes=2
    )
    return [
        (convex, r"needs a cost with a piece list .*got a convex cost\. Use Descent"),
        (uncertain, r"needs a problem without uncertain_constraints.*Use Descent"),
        (integer, r"needs continuous decisions.*Use Descent"),
    ]


@pytest.mark.parametrize(("problem", "message"), refused_problems(), ids=["convex", "uncertain", "integer"])
def test_problems_beyond_algorithm_2_are_refused_with_a_way_out(problem, message):
    with pytest.raises(ValueError, match=message):
        Pinball().learn(Samples(*learning_data(), problem, 0.1))


def test_too_few_facets_are_refused():
    with pytest.raises(ValueError, match=r"n_facets must be at least n_outcomes \+ 1 = 3"):
        Pinball(n_facets=2).learn(Samples(*learning_data(), PROBLEMS["linear"](), 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [3.0, 10.0, 100.0])
def test_own_radius_covers_tau_minus_the_mean_multipliers_over_the_penalty(penalty):
    X, Y = ph.data.make_synthetic(1500, rng=np.random.default_rng(0))
    centers = FeatureRidge().fit(X[:1200], Y[:1200]).predict(X[1200:])
    objective = Samples(Y[1200:] - centers, centers, PROBLEMS["linear"](), 0.1)
    run = module._Run(
        Pinball(penalty=penalty, n_steps=3000, batch_size=300, step_size=0.1), objective, np.random.default_rng(0)
    )
    state = run.descend(pinball_starts(objective, 4, 1, run.rng)[0])[0]
    gradient = surrogate_gradient(objective, state, np.arange(300), penalty, far_box(objective))
    predicted = objective.rank / objective.n - gradient.multipliers.sum(axis=1).mean() / penalty
    covered = state.shape.contains(objective.residuals, state.r).mean()
    assert covered == pytest.approx(predicted, abs=0.02)


def test_steps_on_a_simplex_need_no_solver_in_standard_units(monkeypatch):
    def refused(program):
        raise AssertionError("a program was solved")

    monkeypatch.setattr(module, "solve", refused)
    residuals, centers = np.random.default_rng(0).normal(size=(2, 30, 2)) * [1.0, 0.3]
    for problem in (ph.problems.simplex_linear([-0.08, 0.0]), ph.problems.simplex_quadratic([-0.08, 0.0], 0.08)):
        result = ph.learners.Pinball(n_steps=3, n_starts=1).learn(Samples(residuals, centers, problem, 0.2), 0)
        assert np.isfinite(result.objective)
