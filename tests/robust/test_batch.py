"""Decisions in batch equal decisions one by one, and carry a proof."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import polyhedge as ph
from polyhedge.robust import Adversary, Counterpart, decide
from polyhedge.robust.segment import decide_along, support_along


def random_polytope(rng, d, n_facets):
    W = np.vstack([rng.normal(size=(n_facets, d)), np.eye(d), -np.eye(d)])
    return ph.Polyhedron(W, -np.r_[rng.random(n_facets) + 0.2, np.ones(d), 2 * np.ones(d)])


def one_by_one(problem, shape, radius, centers):
    counterpart = Counterpart(problem, shape, radius)
    return np.array([counterpart.solve(center).value for center in centers])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.05, 1.0]), st.integers(1, 9))
def test_decisions_along_a_segment_equal_single_solves_and_are_saddle_points(seed, curvature, n_facets):
    rng = np.random.default_rng(seed)
    problem = ph.problems.simplex_quadratic([-0.08, 0.0], curvature)
    shape, centers = random_polytope(rng, 2, n_facets), rng.normal(size=(8, 2))
    found = decide(problem, shape, 0.1, centers)
    assert found.cost_bound == pytest.approx(one_by_one(problem, shape, 0.1, centers), abs=1e-7)
    assert found.is_optimal.all()
    assert shape.contains(found.worst_outcome - centers, 0.1 + 1e-9).all()
    assert problem.evaluate(found.z, found.worst_outcome) == pytest.approx(found.cost_bound, abs=1e-9)
    for z, center, bound in zip(found.z, centers, found.cost_bound, strict=True):
        assert Adversary(problem, shape, 0.1, center).worst_case(z).value == pytest.approx(bound, abs=1e-8)


def test_segments_with_more_than_two_outcomes_have_closed_forms_too():
    rng = np.random.default_rng(0)
    z = cp.Variable(1)
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u[:3] @ np.ones(3) * z[0] + u[3] * (1 - z[0]),
        constraints=[z >= 0, z <= 1],
        n_outcomes=4,
    )
    assert problem.structure.segment is not None
    shape, centers = random_polytope(rng, 4, 6), rng.normal(size=(30, 4))
    found = decide(problem, shape, 0.0, centers)
    assert found.cost_bound == pytest.approx(one_by_one(problem, shape, 0.0, centers), abs=1e-8)


def test_an_unbounded_or_empty_set_is_left_to_the_diagnosis():
    problem = ph.problems.simplex_linear([0.0, 0.0])
    half_plane = ph.Polyhedron([[-1.0, 0.0]], [0.0])
    assert support_along(problem.structure.segment, half_plane.conic_form(0.0)) is None
    assert decide(problem, half_plane, 0.0, np.zeros((1, 2))).status[0] is ph.Status.UNBOUNDED_SET
    nothing = ph.Polyhedron([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0])
    assert decide(problem, nothing, 0.0, np.zeros((1, 2))).status[0] is ph.Status.EMPTY_SET


def test_a_million_contexts_are_decided_in_one_go():
    problem, rng = ph.problems.simplex_linear([-0.08, 0.0]), np.random.default_rng(0)
    shape, centers = random_polytope(rng, 2, 4), rng.normal(size=(1_000_000, 2))
    support = support_along(problem.structure.segment, shape.conic_form(0.0))
    _, bound, _ = decide_along(problem.structure.segment, support, centers)
    some = rng.choice(len(centers), size=50, replace=False)
    assert bound[some] == pytest.approx(one_by_one(problem, shape, 0.0, centers[some]), abs=1e-9)


def test_order_of_contexts_and_batch_size_do_not_change_the_bounds():
    rng = np.random.default_rng(1)
    problem = ph.problems.simplex_linear(np.zeros(4))
    shape, centers = random_polytope(rng, 4, 5), rng.normal(size=(150, 4))
    together = decide(problem, shape, 0.0, centers).cost_bound
    order = rng.permutation(150)
    assert decide(problem, shape, 0.0, centers[order]).cost_bound == pytest.approx(together[order], abs=1e-8)
    assert decide(problem, shape, 0.0, centers[:10]).cost_bound == pytest.approx(together[:10], abs=1e-8)


class TestRadiusPerRow:
    """Each context has a set of its own size."""

    shape = ph.Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], np.zeros(3))
    centers = np.random.default_rng(0).normal(size=(6, 2))
    radii, scales = np.array([1, 1, 2, np.inf, 2, 0.5]), np.array([1, 2, 1, 1, 1, 2.0])

    def decided(self, rows):
        problem = ph.problems.simplex_linear([0.0, 0.0])
        return decide(problem, self.shape, self.radii[rows], self.centers[rows], scales=self.scales[rows])

    def test_decisions_are_those_of_each_context_by_itself(self):
        together = self.decided(np.arange(6))
        alone = [self.decided(np.array([i])) for i in range(6)]
        np.testing.assert_allclose(together.cost_bound, [found.cost_bound[0] for found in alone], rtol=1e-9)
        np.testing.assert_allclose(together.z, np.concatenate([found.z for found in alone]), atol=1e-7)

    def test_context_without_a_radius_has_no_decision_and_says_why(self):
        found = self.decided(np.arange(6))
        assert found.status[3] is ph.Status.UNBOUNDED_SET
        assert np.isnan(found.z[3]).all()
        assert "radius is infinite" in found.detail[3]

    @pytest.mark.parametrize(
        ("radius", "match"), [(np.ones(3), "an entry for each"), (np.full(6, np.nan), "be finite")]
    )
    def test_radii_that_are_none_are_refused(self, radius, match):
        with pytest.raises(ValueError, match=match):
            decide(ph.problems.simplex_linear([0.0, 0.0]), self.shape, radius, self.centers)
