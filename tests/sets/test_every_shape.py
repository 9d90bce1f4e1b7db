"""Every exported shape, that of the study and those defined here keep the same promises and work everywhere."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import polyhedge as ph
from polyhedge.robust import decide
from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron, Shape
from polyhedge.sets.shape import Scaled
from polyhedge.solvers.linear import maximise_conic
from polyhedge.solvers.program import Cone, ConicForm
from polyhedge_study.baselines.union_of_balls import UnionOfBalls
from polyhedge_study.nets import ConvexNet


class Cap(Shape):
    """A user's own shape with what a shape must define and nothing more: {e : |e| <= r, 2 e_1 <= r}."""

    n_outcomes = 2

    def scores(self, residuals):
        e = np.asarray(residuals, dtype=float)
        return np.maximum(np.linalg.norm(e, axis=1), 2 * e[:, 0])

    def conic_form(self, radius):
        G = sp.csr_array(np.array([[2.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]))
        return ConicForm(G, np.array([radius, radius, 0.0, 0.0]), (Cone("nonneg", 1), Cone("soc", 3)))


class Wedge(Shape):
    """A user's own polyhedral shape that lists no facets: {e : |e_1| + 2 |e_2| <= r}, lifted."""

    n_outcomes = 2
    weights = np.array([1.0, 2.0])

    def scores(self, residuals):
        return np.abs(np.asarray(residuals, dtype=float)) @ self.weights

    def conic_form(self, radius):
        eye, zero = np.eye(2), np.zeros((1, 2))
        G = np.block([[eye, -eye], [-eye, -eye], [zero, self.weights[None]]])
        return ConicForm(sp.csr_array(G), np.array([0.0, 0.0, 0.0, 0.0, radius]), (Cone("nonneg", 5),))


EXPORTED = {
    "l_1 ball": Ball(2, norm=1, center=[0.1, 0.2]),
    "l_2 ball": Ball(2, center=[0.1, -0.2]),
    "l_inf ball": Ball(2, norm=np.inf),
    "box": Box([1.0, 0.5], [0.2, 0.0]),
    "ellipsoid": Ellipsoid([[1.0, 0.3], [0.3, 0.5]], [0.1, 0.0]),
    "polyhedron": Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.1, -0.2]),
    "union of balls": UnionOfBalls([[0.0, 0.0], [1.0, 0.3]]),
}
NET = ConvexNet(
    A1=[[1.0, 0.5], [-0.5, 1.0]],
    k1=[-0.1, 0.0],
    C2=[[0.5, 0.2], [0.0, 0.6]],
    A2=[[-0.2, 0.1], [0.1, -0.3]],
    k2=[0.0, 0.1],
    w3=[0.4, 0.5],
    k3=0.1,
    slope=0.4,
)
SHAPES: dict[str, Shape] = {
    **EXPORTED,
    "own": Cap(),
    "own, lifted": Wedge(),
    **{f"scaled {name}": Scaled(EXPORTED[name], 1.5) for name in ("l_1 ball", "ellipsoid", "union of balls")},
    "net of the study": NET,
}
every_shape = pytest.mark.parametrize("name", SHAPES)
POINTS = np.random.default_rng(0).normal(size=(400, 2))
AROUND = np.column_stack([np.cos(np.arange(12)), np.sin(np.arange(12))])


@every_shape
def test_it_contains_what_scores_at_most_the_radius_whatever_the_batch(name):
    shape = SHAPES[name]
    scores = shape.scores(POINTS)
    assert np.array_equal(shape.contains(POINTS, 1.0), scores <= 1.0)
    assert scores[:5] == pytest.approx([shape.scores(point[None])[0] for point in POINTS[:5]], rel=1e-12)


@every_shape
def test_the_support_is_that_of_the_conic_form_and_no_member_passes_it(name):
    shape = SHAPES[name]
    support = shape.support(AROUND, 1.0)
    assert support == pytest.approx(maximise_conic(shape.conic_form(1.0), AROUND), abs=1e-7)
    inside = POINTS[shape.contains(POINTS, 1.0)]
    assert (inside @ AROUND.T <= support + 1e-9).all()


@every_shape
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_scaling_multiplies_residuals_at_every_radius(name, factor):
    shape = SHAPES[name]
    larger = shape.scaled(factor)
    assert larger.scores(factor * POINTS) == pytest.approx(shape.scores(POINTS), rel=1e-12)
    assert larger.support(AROUND, 0.7) == pytest.approx(factor * np.asarray(shape.support(AROUND, 0.7)), rel=1e-7)
    assert maximise_conic(larger.conic_form(0.7), AROUND) == pytest.approx(larger.support(AROUND, 0.7), abs=1e-6)
    assert float(larger.volume(0.7)) == pytest.approx(factor**2 * shape.volume(0.7), rel=1e-6)
    assert larger.is_bounded == shape.is_bounded


@pytest.mark.parametrize("name", ["l_1 ball", "l_2 ball", "ellipsoid", "union of balls"])
def test_a_scaled_shape_is_all_that_the_shape_is(name):
    shape, center = EXPORTED[name], np.array([0.3, 0.4])
    larger = Scaled(shape, 1.5)
    assert larger.is_round == shape.is_round
    if shape.is_round:
        images = 1.5 * (shape.from_unit_ball(0.4 * AROUND, 0.7, center) - center) + center
        assert larger.from_unit_ball(0.4 * AROUND, 0.7, center) == pytest.approx(images, rel=1e-12)
    for part, whole in zip(larger.parts, shape.parts, strict=True):
        assert part.scores(1.5 * POINTS) == pytest.approx(whole.scores(POINTS), rel=1e-12)
    corners = shape.vertices(0.7)
    assert corners is None or larger.vertices(0.7) == pytest.approx(1.5 * corners, rel=1e-12)
    assert larger.scaled(2.0).scores(3.0 * POINTS) == pytest.approx(shape.scores(POINTS), rel=1e-12)


def test_a_scaled_l_1_ball_of_too_many_facets_has_its_corners():
    ball, z = Ball(13, norm=1), cp.Variable(13)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum_squares(u - z), constraints=[z >= 0, z <= 1], n_outcomes=13
    )
    found = decide(problem, ball, 0.5, np.zeros((1, 13)), scales=np.array([2.0]))
    assert found.cost_bound == pytest.approx([1.0], abs=1e-6)


@every_shape
def test_facets_have_the_same_scores(name):
    shape = SHAPES[name]
    facets = shape.facets()
    assert (facets is not None) == (name in ("l_1 ball", "l_inf ball", "box", "polyhedron", "scaled l_1 ball"))
    if facets is not None:
        assert facets.scores(POINTS) == pytest.approx(shape.scores(POINTS), abs=1e-12)
        assert shape.scaled(2.0).facets().scores(POINTS) == pytest.approx(shape.scaled(2.0).scores(POINTS), abs=1e-9)


def budget(cost) -> ph.DecisionProblem:
    z = cp.Variable(2)
    return ph.DecisionProblem(decision=z, cost=cost, constraints=[z >= 0, cp.sum(z) <= 2, z <= 1.5], n_outcomes=2)


PROBLEMS = {
    "segment": ph.problems.simplex_linear([0.0, 0.0]),
    "any directions": budget(lambda z, u: u @ z - cp.sum(z)),
    "pieces": ph.problems.simplex_newsvendor(1.0, 2.0, 2),
    "convex in the outcome": budget(lambda z, u: cp.sum_squares(u - z)),
}


ROUND = ("l_2 ball", "convex in the outcome")
# A convex cost over a round set is solved by splitting it up, which takes a minute; the ellipsoid is the quicker one.
PAIRS = [
    pytest.param(
        name, structure, marks=pytest.mark.slow if (name, structure) == ROUND else (), id=f"{structure}-{name}"
    )
    for structure in PROBLEMS
    for name in SHAPES
]


@pytest.mark.parametrize(("name", "structure"), PAIRS)
def test_no_member_of_the_set_costs_more_than_the_bound_and_scaling_is_that_of_the_set(name, structure):
    shape, problem, center = SHAPES[name], PROBLEMS[structure], np.array([[0.4, 0.6]])
    if (name, structure) == ("own", "convex in the outcome"):
        with pytest.raises(TypeError, match="over a Cap cannot be computed: its conic form is not polyhedral"):
            decide(problem, shape, 1.0, center)
        return
    if structure == "convex in the outcome" and name in ("own, lifted", "net of the study"):
        with pytest.raises(TypeError, match="Only shapes with facets"):
            decide(problem, shape, 1.0, center)
        return
    found = decide(problem, shape, 0.8, center, scales=np.array([1.5]))
    assert found.status[0].has_solution
    outcomes = center + 1.5 * POINTS[shape.contains(POINTS, 0.8)]
    costs = problem.evaluate(np.tile(found.flat, (len(outcomes), 1)), outcomes)
    assert costs.max() <= found.cost_bound[0] + 1e-6
    again = decide(problem, shape.scaled(1.5), 0.8, center)
    assert again.cost_bound == pytest.approx(found.cost_bound, abs=1e-6)


@every_shape
def test_it_is_calibrated_and_decided_with_when_a_learner_learns_it(name):
    class Given:
        needs = ph.learners.Needs()

        def learn(self, samples, random_state=None):
            return ph.learners.LearnResult(SHAPES[name], samples.value(SHAPES[name]), ph.Status.FINISHED, 0.0)

    X, Y = ph.data.make_synthetic(120, rng=np.random.default_rng(1))
    decider = ph.RobustDecider(PROBLEMS["segment"], learner=Given(), random_state=0).fit(X, Y)
    bound = decider.decide(X[:2]).cost_bound
    region = decider.region(X[0])
    assert np.isfinite(bound).all()
    assert region.contains(Y[0]) == (decider.set_.scores(Y[:1] - decider.centers(X[:1]))[0] <= decider.radius_)
    assert 0 < region.volume() < np.inf
