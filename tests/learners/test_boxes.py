"""Boxes: each is the best of its grid by independent evaluation; one-sided boxes know which sides hurt."""

from dataclasses import replace
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
import shared
from polyhedge.learners import Learner, Samples
from polyhedge.learners.one_sided_box import OneSidedBox, harmful_sides
from polyhedge.learners.paper.boxes import PcaBox, at_learning_radius
from polyhedge.solvers.program import Status
from polyhedge_study.learners.boxes import MinVolume, RotatedBoxGrid, box_volume, rotated_boxes

LEARNERS = [
    PcaBox(),
    MinVolume(n_angles=4, n_aspects=3),
    RotatedBoxGrid(n_angles=4, n_aspects=3),
    OneSidedBox(),
    OneSidedBox(scale=False),
]
GRIDS = [MinVolume(n_angles=4, n_aspects=3), RotatedBoxGrid(n_angles=4, n_aspects=3)]
PLUS, MINUS = np.eye(2), -np.eye(2)


learning_data = partial(shared.learning_data, n=40)


def linear_objective(**kwargs):
    residuals, centers = learning_data(**kwargs)
    return Samples(residuals, centers, ph.problems.simplex_linear(np.zeros(residuals.shape[1])), 0.1)


def learn(learner, objective, random_state=0):
    return learner.learn(objective, random_state=random_state)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_every_learner_returns_a_bounded_set_that_covers_the_conformal_rank_at_radius_0(learner, d):
    objective = linear_objective(d=d)
    result = learn(learner, objective)
    assert isinstance(learner, Learner)
    assert objective.radius(result.set) == pytest.approx(0.0, abs=1e-9)
    assert result.set.contains(objective.residuals, 1e-9).sum() >= objective.rank
    assert result.set.is_bounded
    assert result.objective == pytest.approx(objective.value(result.set))
    assert result.status is Status.FINISHED


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_costs_without_pieces_are_learned_too(learner):
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.square(u @ z - 1), constraints=[cp.sum(z) == 1], n_outcomes=2
    )
    if isinstance(learner, RotatedBoxGrid):
        learner = RotatedBoxGrid(n_angles=2, n_aspects=1)
    result = learn(replace(learner, max_contexts=2), Samples(*learning_data(), problem, 0.1))
    assert np.isfinite(result.objective)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_volume_of_a_box_is_that_of_its_polyhedron(d):
    objective = linear_objective(d=d)
    for shape in rotated_boxes(objective.residuals, 2, 2, 4.0, np.random.default_rng(0)):
        at_radius = at_learning_radius(objective, shape)
        assert box_volume(at_radius) == pytest.approx(float(at_radius.volume(0.0)))


def test_box_of_the_grid_is_centred_and_orthogonal_with_half_widths_in_standard_deviations():
    residuals, _ = learning_data()
    shape = rotated_boxes(residuals, 3, 1, 4.0, np.random.default_rng(0))[1]
    frame = shape.W[:2] / np.linalg.norm(shape.W[:2], axis=1, keepdims=True)
    assert frame @ frame.T == pytest.approx(np.eye(2))
    assert shape.support(frame, 1.0) == pytest.approx((residuals @ frame.T).std(axis=0))
    assert shape.support(-frame, 1.0) == pytest.approx(shape.support(frame, 1.0))


@pytest.mark.parametrize("d", [2, 3])
def test_aspects_are_ratios_of_half_widths_up_to_the_largest(d):
    residuals, _ = learning_data(d=d)
    for shape in rotated_boxes(residuals, 3, 4, 4.0, np.random.default_rng(0)):
        size = np.linalg.norm(shape.W[:d], axis=1, keepdims=True)
        aspects = 1 / (size[:, 0] * (residuals @ (shape.W[:d] / size).T).std(axis=0))
        assert aspects.max() / aspects.min() <= 4.0 * (1 + 1e-9)


def test_principal_box_is_axis_aligned_for_uncorrelated_residuals_of_unequal_spread():
    a, b = 3.0, 1.0
    residuals = np.array([[a, 0.0], [-a, 0.0], [0.0, b], [0.0, -b]] * 5)
    objective = Samples(residuals, np.zeros((20, 2)), ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    shape = learn(PcaBox(), objective).set
    assert sorted(shape.support(PLUS, 0.0)) == pytest.approx([b, a])


def test_least_volume_box_has_the_least_volume_of_its_grid():
    objective = linear_objective()
    grid = rotated_boxes(objective.residuals, 4, 3, 4.0, np.random.default_rng(0))
    volumes = [float(shape.volume(objective.radius(shape))) for shape in grid]
    result = learn(GRIDS[0], objective)
    assert float(result.set.volume(0.0)) == pytest.approx(min(volumes))
    assert len(set(np.round(volumes, 9))) > 1


def test_grid_search_has_the_least_mean_worst_case_cost_of_its_grid():
    objective = linear_objective()
    grid = rotated_boxes(objective.residuals, 4, 3, 4.0, np.random.default_rng(0))
    costs = [_simplex_worst_case(shape.vertices(objective.radius(shape)), objective.centers) for shape in grid]
    result = learn(GRIDS[1], objective)
    assert result.objective == pytest.approx(min(costs), abs=1e-7)
    assert _simplex_worst_case(result.set.vertices(0.0), objective.centers) == pytest.approx(min(costs))


def _simplex_worst_case(vertices, centers):
    """Mean over contexts of min over the segment of a maximum of lines: at an end or where two lines cross."""
    slope, level = vertices[:, 0] - vertices[:, 1], vertices[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = ((level - level[:, None]) / (slope[:, None] - slope)).ravel()
    t = np.concatenate([[0.0, 1.0], crossings[(crossings > 0) & (crossings < 1)]])
    z = np.column_stack([t, 1 - t])
    return ((z @ vertices.T).max(axis=1) + centers @ z.T).min(axis=1).mean()


def test_grid_whose_constraints_no_decision_meets_says_so():
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: -cp.sum(z),
        constraints=[z <= 5, cp.sum(z) >= 1],
        n_outcomes=2,
        uncertain_constraints=lambda z, u: [u @ z <= 0.1],
    )
    objective = Samples(*learning_data(n=10), problem, 0.1)
    with pytest.raises(ValueError, match=r"no finite worst-case cost on the learning split.*uncertain_constraints"):
        learn(RotatedBoxGrid(n_angles=2, n_aspects=1), objective)


def user_problem(cost, constraints=lambda z: [], n_outcomes=2, variable=None, **kwargs):
    z = cp.Variable(2, nonneg=True) if variable is None else variable
    return ph.DecisionProblem(decision=z, cost=cost, constraints=constraints(z), n_outcomes=n_outcomes, **kwargs)


def simplex(z):
    return [cp.sum(z) == 1]


SIDES = {
    "simplex linear": (ph.problems.simplex_linear([-0.08, 0.0]), PLUS),
    "simplex quadratic": (ph.problems.simplex_quadratic([-0.08, 0.0], 0.08), PLUS),
    "newsvendor": (ph.problems.simplex_newsvendor(0.3, 0.7, 2), np.vstack([PLUS, MINUS])),
    "newsvendor without overage cost": (ph.problems.simplex_newsvendor(0.0, 0.7, 2), PLUS),
    "long-only portfolio": (ph.problems.portfolio(np.eye(2)), MINUS),
    "portfolio whose bounds and budget rule out going short": (
        ph.problems.portfolio(np.eye(2), lower=-0.5, upper=1.0),
        MINUS,
    ),
    "portfolio that may go short": (
        ph.problems.portfolio(np.eye(2), lower=[-0.5, 0.0], upper=1.5),
        np.vstack([[[1.0, 0.0]], MINUS]),
    ),
    "unbounded decision": (
        user_problem(lambda z, u: u[0] * z[0] + cp.sum_squares(z), variable=cp.Variable(2)),
        np.array([[1.0, 0.0], [-1.0, 0.0]]),
    ),
    "difference of outcomes": (
        user_problem(lambda z, u: (u[0] - u[1]) * z[0], simplex),
        np.array([[1.0, 0.0], [0.0, -1.0]]),
    ),
    "side reached only by constants": (
        user_problem(lambda z, u: (z[0] - 2) * u[0] + z[1] * u[1], simplex),
        np.array([[0.0, 1.0], [-1.0, 0.0]]),
    ),
    "cone": (user_problem(lambda z, u: u @ z, lambda z: [cp.norm(z - 2) <= 1]), PLUS),
    "cone that reaches below 0": (
        user_problem(lambda z, u: u @ z, lambda z: [cp.norm(z) <= 1], variable=cp.Variable(2)),
        np.vstack([PLUS, MINUS]),
    ),
    "integer decision": (
        user_problem(lambda z, u: u @ z, lambda z: [z >= -0.5, z <= 1], variable=cp.Variable(2, integer=True)),
        PLUS,
    ),
    "uncertain constraint": (
        user_problem(
            lambda z, u: -cp.sum(z),
            lambda z: [z <= 5],
            uncertain_constraints=lambda z, u: [(2 - 0.1 * u[0]) * z[0] <= 1],
        ),
        np.array([[-1.0, 0.0]]),
    ),
    "no pieces": (user_problem(lambda z, u: cp.square(u @ z - 1), simplex), np.vstack([PLUS, MINUS])),
}


@pytest.mark.parametrize("name", SIDES)
def test_harmful_sides_are_exactly_the_axis_directions_that_can_raise_the_cost(name):
    problem, expected = SIDES[name]
    assert sorted(map(tuple, harmful_sides(problem))) == sorted(map(tuple, expected))


def test_one_sided_box_opens_harmless_sides_beyond_all_residuals_and_scales_the_others():
    objective = linear_objective()
    result = learn(OneSidedBox(), objective)
    spread = objective.residuals.std(axis=0)
    reach = result.set.support(PLUS, 0.0) / spread
    assert reach[0] == pytest.approx(reach[1])
    assert (result.set.support(MINUS, 0.0) > (-objective.residuals).max(axis=0)).all()
    equal = learn(OneSidedBox(scale=False), objective).set.support(PLUS, 0.0)
    assert equal[0] == pytest.approx(equal[1])
    assert result.detail == "2 of 4 axis sides can raise the cost"


def test_far_facets_of_the_one_sided_box_cost_nothing():
    objective = linear_objective()
    shape = learn(OneSidedBox(), objective).set
    half_open = ph.Polyhedron(shape.W[:2], shape.b[:2])
    assert objective.value(shape) == pytest.approx(objective.value(half_open))


def test_one_sided_box_of_a_cost_that_ignores_outcomes_is_a_box():
    problem = user_problem(lambda z, u: cp.sum(z) + 0 * cp.sum(u), simplex)
    result = learn(OneSidedBox(), Samples(*learning_data(), problem, 0.1))
    assert result.detail.startswith("0 of 4")
    assert result.set.n_facets == 4
    assert result.set.is_bounded
