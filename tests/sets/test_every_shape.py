"""Every exported shape, that of the study and those defined here keep the same promises and work everywhere."""

from __future__ import annotations

import gc
import pickle
import weakref
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import polyhedge as ph
from polyhedge.io.sets import set_from_state, set_to_state
from polyhedge.robust import adversary, decide
from polyhedge.robust.programs import Cache
from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron, UncertaintySet, UnionOfBalls, facets_of, scaled
from polyhedge.sets import shape as protocol
from polyhedge.solvers.linear import maximise_conic
from polyhedge.solvers.program import Cone, ConicForm
from polyhedge_study.nets import ConvexNet


class Cap:
    """A user's own shape with what `decide` needs and nothing more: part of a ball, {e : |e| <= r, 2 e_1 <= r}."""

    n_outcomes = 2
    is_bounded = True

    def scores(self, residuals):
        e = np.asarray(residuals, dtype=float)
        return np.maximum(np.linalg.norm(e, axis=1), 2 * e[:, 0])

    def contains(self, residuals, radius):
        return self.scores(residuals) <= radius

    def support(self, directions, radius):
        V = np.atleast_2d(directions)
        values = maximise_conic(self.conic_form(radius), V)
        return float(values[0]) if np.ndim(directions) == 1 else values

    def volume(self, radius, *, rng=None, n_samples=0):
        return ph.sets.Volume((np.pi - np.pi / 3 + np.sqrt(3) / 4) * radius**2)

    def conic_form(self, radius):
        G = sp.csr_array(np.array([[2.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]))
        return ConicForm(G, np.array([radius, radius, 0.0, 0.0]), (Cone("nonneg", 1), Cone("soc", 3)))


@dataclass(frozen=True)
class Wedge:
    """A user's own polyhedral shape that lists no facets: {e : |e_1| + 2 |e_2| <= r}, lifted. It has no hash."""

    weights: np.ndarray
    n_outcomes = 2
    is_bounded = True

    def scores(self, residuals):
        return np.abs(np.asarray(residuals, dtype=float)) @ self.weights

    def contains(self, residuals, radius):
        return self.scores(residuals) <= radius

    def support(self, directions, radius):
        values = radius * (np.abs(np.atleast_2d(directions)) / self.weights).max(axis=1)
        return float(values[0]) if np.ndim(directions) == 1 else values

    def volume(self, radius, *, rng=None, n_samples=0):
        return ph.sets.Volume(2 * radius**2 / self.weights.prod())

    def conic_form(self, radius):
        eye, zero = np.eye(2), np.zeros((1, 2))
        G = np.block([[eye, -eye], [-eye, -eye], [zero, self.weights[None]]])
        return ConicForm(sp.csr_array(G), np.array([0.0, 0.0, 0.0, 0.0, radius]), (Cone("nonneg", 5),))


class Bare:
    """A user's own shape without `scaled`: the members of another one that are asked for, and no more."""

    def __init__(self, shape, *more):
        for name in ("n_outcomes", "is_bounded", "scores", "contains", "support", "volume", "conic_form", *more):
            setattr(self, name, getattr(shape, name))


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
# What `scaled` makes of these, beside what the exported shapes make of themselves.
BARE = {
    "own, round": ("ellipsoid", Bare(EXPORTED["ellipsoid"], "from_unit_ball", "sample")),
    "own, in parts": ("union of balls", Bare(EXPORTED["union of balls"], "parts")),
    "own, with corners": ("l_1 ball", Bare(EXPORTED["l_1 ball"], "vertices", "sample")),
}
SHAPES: dict[str, UncertaintySet] = {
    **EXPORTED,
    "own": Cap(),
    "own, lifted": Wedge(np.array([1.0, 2.0])),
    **{name: shape for name, (_, shape) in BARE.items()},
    "net of the study": NET,
}
every_shape = pytest.mark.parametrize("name", SHAPES)
POINTS = np.random.default_rng(0).normal(size=(400, 2))
AROUND = np.column_stack([np.cos(np.arange(12)), np.sin(np.arange(12))])


def test_the_table_has_every_exported_shape():
    exported = {getattr(ph.sets, name) for name in ph.sets.__all__}
    shapes = {
        one for one in exported if isinstance(one, type) and hasattr(one, "conic_form") and hasattr(one, "scores")
    }
    shapes -= {UncertaintySet, ph.sets.LearnedShape}
    assert {type(shape) for shape in EXPORTED.values()} == shapes


@every_shape
def test_it_fulfils_the_protocol_and_contains_what_scores_at_most_the_radius(name):
    shape = SHAPES[name]
    assert isinstance(shape, UncertaintySet)
    scores = shape.scores(POINTS)
    assert np.array_equal(shape.contains(POINTS, 1.0), scores <= 1.0)
    assert (scores[:5] == [shape.scores(point[None])[0] for point in POINTS[:5]]).all()


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
    larger = scaled(shape, factor)
    assert larger.scores(factor * POINTS) == pytest.approx(shape.scores(POINTS), rel=1e-12)
    assert larger.support(AROUND, 0.7) == pytest.approx(factor * np.asarray(shape.support(AROUND, 0.7)), rel=1e-7)
    assert maximise_conic(larger.conic_form(0.7), AROUND) == pytest.approx(larger.support(AROUND, 0.7), abs=1e-6)
    assert float(larger.volume(0.7)) == pytest.approx(factor**2 * shape.volume(0.7))
    assert larger.is_bounded == shape.is_bounded


@pytest.mark.parametrize("name", BARE)
def test_without_a_way_of_its_own_a_scaled_shape_is_all_that_the_shape_is_and_no_more(name):
    twin, shape = EXPORTED[BARE[name][0]], BARE[name][1]
    larger, known = scaled(shape, 1.5), scaled(twin, 1.5)
    for optional in (protocol.Round, protocol.Union, protocol.Sampled):
        assert isinstance(larger, optional) == isinstance(shape, optional)
        assert isinstance(pickle.loads(pickle.dumps(scaled(twin, 1.5))), optional) == isinstance(known, optional)
    if isinstance(larger, protocol.Round):
        images = larger.from_unit_ball(0.4 * AROUND, 0.7, np.array([0.3, 0.4]))
        assert images == pytest.approx(known.from_unit_ball(0.4 * AROUND, 0.7, np.array([0.3, 0.4])), rel=1e-12)
    if isinstance(larger, protocol.Union):
        parts = zip(larger.parts, known.parts, strict=True)
        assert all(np.array_equal(part.scores(POINTS), other.scores(POINTS)) for part, other in parts)
    if isinstance(larger, protocol.Sampled):
        points = larger.sample(0.7, 200, np.random.default_rng(0))
        assert points == pytest.approx(1.5 * twin.sample(0.7, 200, np.random.default_rng(0)), rel=1e-12)
        assert known.contains(points, 0.7 + 1e-9).all()
    corners = shape.vertices(0.7) if isinstance(shape, protocol.Cornered) else None
    assert (larger.vertices(0.7) is None) == (corners is None)
    if corners is not None:
        assert known.scores(larger.vertices(0.7)) == pytest.approx(np.full(len(corners), 0.7), rel=1e-12)
    assert larger.scaled(2.0).scores(POINTS) == pytest.approx(scaled(twin, 3.0).scores(POINTS), rel=1e-12)


def test_a_scaled_l_1_ball_of_too_many_facets_has_its_corners():
    ball, z = Ball(13, norm=1), cp.Variable(13)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.sum_squares(u - z), constraints=[z >= 0, z <= 1], n_outcomes=13
    )
    found = decide(problem, ball, 0.5, np.zeros((1, 13)), scales=np.array([2.0]))
    assert found.cost_bound == pytest.approx([1.0], abs=1e-6)


@pytest.mark.needs("matplotlib")
def test_a_scaled_union_of_ones_own_is_drawn_in_its_parts():
    drawn = ph.Region(scaled(BARE["own, in parts"][1], 2.0), 0.1, np.zeros(2)).plot()
    assert len(drawn.patches) == 2


@every_shape
def test_facets_have_the_same_scores(name):
    shape = SHAPES[name]
    facets = facets_of(shape)
    has_none = ("l_2 ball", "ellipsoid", "union of balls", "own", "own, lifted", *BARE, "net of the study")
    assert (facets is None) == (name in has_none)
    if facets is not None:
        assert facets.scores(POINTS) == pytest.approx(shape.scores(POINTS), abs=1e-12)
        assert facets_of(scaled(shape, 2.0)).scores(POINTS) == pytest.approx(
            scaled(shape, 2.0).scores(POINTS), abs=1e-9
        )


@pytest.mark.parametrize("name", EXPORTED)
def test_a_stored_shape_has_the_same_scores_to_the_last_bit(name):
    again = set_from_state(set_to_state(EXPORTED[name]))
    assert np.array_equal(again.scores(POINTS), EXPORTED[name].scores(POINTS))


def test_a_shape_without_state_says_what_can_be_stored():
    with pytest.raises(ValueError, match=r"A set of type Cap cannot be stored; one of Polyhedron, Box"):
        set_to_state(Cap())


def test_a_shape_that_describes_itself_as_an_exported_one_is_stored_as_that():
    class Square(Cap):
        def state(self):
            return {"kind": "Box", "scale": np.ones(2), "center": np.zeros(2)}

    assert isinstance(set_from_state(set_to_state(Square())), Box)


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
    found = decide(problem, shape, 0.8, center, scales=np.array([1.5]))
    assert found.status[0].has_solution
    outcomes = center + 1.5 * POINTS[shape.contains(POINTS, 0.8)]
    costs = problem.evaluate(np.tile(found.flat, (len(outcomes), 1)), outcomes)
    assert costs.max() <= found.cost_bound[0] + 1e-6
    again = decide(problem, scaled(shape, 1.5), 0.8, center)
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


def test_a_shape_without_a_hash_has_the_vertices_of_the_polyhedron_that_it_is():
    wedge = SHAPES["own, lifted"]
    W = np.array([[1.0, 2.0], [1.0, -2.0], [-1.0, 2.0], [-1.0, -2.0]])
    problem, centers = PROBLEMS["convex in the outcome"], np.array([[0.3, 0.4], [-0.2, 0.1]])
    found = decide(problem, wedge, 0.8, centers)
    assert found.cost_bound == pytest.approx(decide(problem, Polyhedron(W, np.zeros(4)), 0.8, centers).cost_bound)


def test_vertices_are_found_once_for_all_contexts_and_no_shape_outlives_its_user(monkeypatch):
    asked = []
    find = adversary.shadow_vertices
    monkeypatch.setattr(adversary, "shadow_vertices", lambda *given: asked.append(1) or find(*given))
    wedge, problem, kept = Wedge(np.array([1.0, 2.0])), PROBLEMS["convex in the outcome"], Cache()
    for _ in range(2):
        decide(problem, wedge, 0.8, np.array([[0.3, 0.4], [-0.2, 0.1], [0.0, 0.5]]), cache=kept)
    assert len(asked) == 1
    alive = weakref.ref(wedge)
    del wedge, kept
    gc.collect()
    assert alive() is None
