"""Learning: gradients equal finite differences, sets are bounded, results carry evidence."""

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.learners import Descent, Samples
from polyhedge.learners.descent import total_gradient
from polyhedge.learners.starts import axis_box, closed, one_sided, pca_box
from polyhedge.solvers.program import Status
from shared import learning_data

PROBLEMS = {
    "linear": lambda: ph.problems.simplex_linear([-0.08, 0.0]),
    "quadratic": lambda: ph.problems.simplex_quadratic([-0.08, 0.0], 0.08),
    "newsvendor": lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 2),
}


@pytest.fixture(params=PROBLEMS)
def objective(request):
    residuals, centers = learning_data()
    return Samples(residuals, centers, PROBLEMS[request.param](), 0.1)


def test_total_gradient_equals_finite_differences_of_the_objective_at_the_conformal_radius(objective):
    rng = np.random.default_rng(1)
    W = np.array([[1.0, 0.1], [0.2, 1.0], [-1.0, -0.3], [-0.1, -1.0], [0.7, 0.6]])
    b = rng.normal(size=5) * 0.05
    contexts = np.arange(objective.n)
    grad_W, grad_b = total_gradient(objective, W, b, contexts, width=0.0)

    def value(W, b):
        return objective.value(ph.Polyhedron(W, b))

    step = 1e-6
    for _ in range(4):
        dW, db = rng.normal(size=W.shape), rng.normal(size=b.shape)
        difference = (value(W + step * dW, b + step * db) - value(W - step * dW, b - step * db)) / (2 * step)
        exact = np.sum(grad_W * dW) + np.sum(grad_b * db)
        assert difference == pytest.approx(exact, abs=2e-4)


def test_every_start_covers_the_conformal_rank_at_its_learning_radius(objective):
    for shape in (axis_box(objective), pca_box(objective), one_sided(objective, 4)):
        normal = objective.normalised(shape)
        assert objective.radius(normal) == pytest.approx(0.0, abs=1e-12)
        assert normal.contains(objective.residuals, 1e-12).sum() >= objective.rank
        assert np.linalg.norm(normal.W, axis=1) == pytest.approx(1.0)


def test_normalising_does_not_change_the_learning_set(objective):
    shape = pca_box(objective)
    directions = np.random.default_rng(0).normal(size=(20, 2))
    before = shape.support(directions, objective.radius(shape))
    assert objective.normalised(shape).support(directions, 0.0) == pytest.approx(before)


def test_closing_bounds_the_set_and_keeps_every_learning_residual_that_was_inside(objective):
    half_open = ph.Polyhedron([[1.0, 0.0], [0.0, 1.0]], [-0.3, -0.4])
    shape = closed(objective, half_open)
    assert shape.is_bounded
    inside = half_open.contains(objective.residuals, 0.0)
    assert (shape.contains(objective.residuals, 0.0) == inside).all()


def test_one_sided_start_has_only_harmful_sides():
    residuals, centers = learning_data()
    linear = Samples(residuals, centers, PROBLEMS["linear"](), 0.1)
    assert (one_sided(linear, 2).W @ np.ones(2) > 0).all()
    newsvendor = Samples(residuals, centers, PROBLEMS["newsvendor"](), 0.1)
    assert newsvendor.normalised(one_sided(newsvendor, 4)).is_bounded


def test_descent_improves_on_all_its_starts_and_reports_its_evidence(objective):
    result = Descent(n_steps=60).learn(
        Samples(objective.residuals, objective.centers, objective.problem, 0.1), random_state=0
    )
    assert isinstance(result, ph.learners.LearnResult)
    starts = [one_sided(objective, 4), axis_box(objective), pca_box(objective)]
    assert result.objective < min(objective.value(shape) for shape in starts)
    assert objective.value(result.set) <= result.objective + 1e-9
    assert result.set.is_bounded
    assert result.status is Status.FINISHED
    assert result.seconds > 0


@pytest.mark.parametrize("n_facets", [1, 2])
def test_fewer_facets_than_dimensions_plus_one_is_an_error(n_facets):
    residuals, centers = learning_data(n=40)
    with pytest.raises(ValueError, match=r"n_facets must be at least n_outcomes \+ 1 = 3.*got"):
        Descent(n_facets=n_facets).learn(Samples(residuals, centers, PROBLEMS["linear"](), 0.2))


def user_problems():
    z = cp.Variable(2, nonneg=True)
    simplex = [cp.sum(z) == 1]
    yield (
        "concave cost",
        ph.DecisionProblem(
            decision=z, cost=lambda z, u: u @ z - 0.1 * cp.sum_squares(u), constraints=simplex, n_outcomes=2
        ),
    )
    yield (
        "cone",
        ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.norm(z - 1) <= 1], n_outcomes=2),
    )


@pytest.mark.parametrize(
    ("name", "problem"), list(user_problems()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_descent_works_on_every_kind_of_problem(name, problem):
    residuals, centers = learning_data(n=6)
    result = Descent(n_steps=2, max_contexts=2).learn(Samples(residuals, centers, problem, 0.2), random_state=0)
    assert np.isfinite(result.objective)
    assert result.set.is_bounded
