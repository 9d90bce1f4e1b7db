"""Region families: what every one of them keeps to, whatever calibrates it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import polyhedge as ph
from polyhedge.predictors import as_predictor
from polyhedge.regions import Guard, RegionFamily, ScaledSet, SetPlan
from polyhedge.regions.guard import steady_predictions

X, Y = ph.data.make_synthetic(120, rng=np.random.default_rng(0))
PREDICTOR = as_predictor(None, 2).fit(X[:40], Y[:40])
SHAPE = ph.Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], -np.array([0.4, 0.3, 2.0, 2.0]))
PROBLEM = ph.problems.simplex_linear([-0.08, 0.0])
SPREAD = ph.learners.Spread.fit(X[:40], Y[:40], np.exp(X[:40, 0]), min_leaf=10, seed=0)
SETS = ScaledSet(PROBLEM, PREDICTOR, SHAPE, SPREAD)
FAMILIES: dict[str, RegionFamily] = {
    "set": ScaledSet(PROBLEM, PREDICTOR, SHAPE),
    "scaled set": SETS,
    "guard": Guard(PROBLEM, PREDICTOR, SetPlan(SETS)),
}
every_family = pytest.mark.parametrize("name", list(FAMILIES))


@every_family
def test_score_is_the_least_radius_whose_region_holds_the_outcome(name: str) -> None:
    placed = FAMILIES[name].at(X[40:50])
    for i, score in enumerate(placed.scores(Y[40:50])):
        assert placed.region(i, score + 1e-6).contains(Y[40 + i])
        assert not placed.region(i, score - 1e-6).contains(Y[40 + i])


@every_family
def test_cost_is_at_most_the_bound_where_the_outcome_is_in_the_region(name: str) -> None:
    placed = FAMILIES[name].at(X[40:])
    scores = placed.scores(Y[40:])
    found = placed.decide(scores)  # every outcome lies on the border of its region
    costs = PROBLEM.evaluate(found.flat, Y[40:])
    assert (costs <= found.cost_bound + 1e-9).all()
    if name == "guard":
        np.testing.assert_allclose(costs, found.cost_bound, atol=1e-9)


@every_family
def test_some_rows_are_as_among_all(name: str) -> None:
    rows, radii = np.array([7, 3, 30]), np.linspace(0.1, 0.5, 40)
    placed = FAMILIES[name].at(X[40:80])
    some, whole = placed.take(rows).decide(radii[rows]), placed.decide(radii)
    np.testing.assert_array_equal(some.cost_bound, whole.cost_bound[rows])
    np.testing.assert_array_equal(some.z, whole.z[rows])


class Wobbly:
    """Predictions whose last bits depend on the number of rows, as matrix products do."""

    needs_training, takes_nan = False, False

    def fit(self, X: Any, Y: Any) -> Wobbly:
        return self

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        noise = np.random.default_rng(len(X)).uniform(-1, 1, X.shape) * 2.0**-50
        return np.asarray(X * (1 + noise))


def test_predictions_of_a_guard_do_not_depend_on_the_batch_even_half_way_between_two_numbers() -> None:
    rng = np.random.default_rng(0)
    middle = (rng.integers(2**31, 2**32, size=(50, 2)) + 0.5) * 2.0**-30
    rows = np.vstack([middle, rng.normal(size=(50, 2)), [[1.0, 0.0]]])
    together = steady_predictions(Wobbly(), rows)
    for size in (1, 3):
        parts = [steady_predictions(Wobbly(), rows[k : k + size]) for k in range(0, len(rows), size)]
        np.testing.assert_array_equal(np.vstack(parts), together)
    np.testing.assert_allclose(together, rows, rtol=1e-9)


def test_row_without_a_plan_scores_infinity_and_has_no_bound() -> None:
    class Nothing(SetPlan):
        def plan(self, *given: Any, **more: Any) -> Any:
            planned = super().plan(*given, **more)
            planned.z[0] = np.nan
            return planned

    placed = Guard(PROBLEM, PREDICTOR, Nothing(SETS)).at(X[40:43])
    assert placed.scores(Y[40:43])[0] == np.inf
    found = placed.decide(np.ones(3))
    assert np.isnan(found.cost_bound).tolist() == [True, False, False]
    assert not found.status[0].has_solution
