"""Supports and robust costs of sets that a learner moves step by step."""

from __future__ import annotations

import numpy as np
import pytest

from polyhedge.robust import sharp_vertices
from polyhedge.robust.sharp_vertices import SharpVertices
from polyhedge.robust.support import maximise
from polyhedge.sets import Polyhedron


def moving(d, n_facets, rng, n_steps=12, step=0.05):
    """Bounded polyhedra {e : W e <= q} whose facets turn and shift a little from one to the next."""
    W = np.vstack([rng.normal(size=(n_facets, d)), np.eye(d), -np.eye(d)])
    q = rng.uniform(0.5, 1.5, len(W))
    for _ in range(n_steps):
        W = W + step * rng.normal(size=W.shape)
        q = np.abs(q + step * rng.normal(size=q.shape))
        yield W / np.linalg.norm(W, axis=1, keepdims=True), q


@pytest.mark.parametrize("d", [1, 2, 4, 7])
def test_supports_of_moving_facets_are_those_of_a_solver(d):
    rng = np.random.default_rng(d)
    directions = rng.normal(size=(9, d))
    supports = SharpVertices(directions)
    for W, q in moving(d, 2 * d, rng):
        found = supports(W, q)
        known = maximise(Polyhedron.from_halfspaces(W, q).conic_form(0.0), directions)
        np.testing.assert_allclose(found.values, known.values, rtol=1e-9)
        np.testing.assert_allclose(found.points, known.points, atol=1e-7)
        np.testing.assert_allclose(found.multipliers, known.multipliers, atol=1e-7)


def test_a_solver_is_hardly_asked_for_supports_of_moving_facets(monkeypatch):
    asked = []

    def counted(form, directions):
        asked.append(len(directions))
        return maximise(form, directions)

    monkeypatch.setattr(sharp_vertices, "maximise", counted)
    rng = np.random.default_rng(0)
    supports = SharpVertices(rng.normal(size=(16, 4)))
    for W, q in moving(4, 12, rng, n_steps=30):
        supports(W, q)
    assert len(asked) <= 3


def test_supports_do_not_depend_on_what_was_asked_before():
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(5, 3))
    seen = SharpVertices(directions)
    for W, q in moving(3, 6, rng):
        known, fresh = seen(W, q), SharpVertices(directions)(W, q)
        np.testing.assert_array_equal(known.values, fresh.values)
        np.testing.assert_array_equal(known.points, fresh.points)
        np.testing.assert_array_equal(known.multipliers, fresh.multipliers)


def test_ties_and_sets_without_end_are_the_solver_s():
    box, directions = np.vstack([np.eye(2), -np.eye(2)]), np.array([[1.0, 0.0], [1.0, 1.0]])
    supports = SharpVertices(directions)
    generic = SharpVertices(np.array([[1.0, 2.0], [2.0, 1.0]]))
    for q in (np.ones(4), np.array([1.0, 2.0, 1.0, 1.0])):
        form = Polyhedron.from_halfspaces(box, q).conic_form(0.0)
        np.testing.assert_array_equal(
            supports(box, q).points, maximise(form, directions).points
        )  # a whole facet is best
        generic(box, q)
    assert np.isposinf(generic(box[2:], np.ones(2)).values).all()
    assert np.isneginf(generic(box, np.array([1.0, 1.0, -2.0, 1.0])).values).all()
