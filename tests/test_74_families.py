"""Region families and calibrators: what every one of them keeps to, in every combination.

A new family is one row in `FAMILIES`, a new calibrator one in `CALIBRATORS`.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import polyhedge as ph
import polyhedge.words as ph_words
from polyhedge.calibration import ByCategory, Calibrator, Marginal, Rows
from polyhedge.data import Split
from polyhedge.model import Model, Record, calibrated_radii, fitted_model
from polyhedge.plans import PlanRows, fit_plan
from polyhedge.predictors import as_predictor
from polyhedge.regions import Guard, RegionFamily, ScaledSet, SetPlan
from polyhedge.regions.steady import Grid, steady_predictions

N_CATEGORIES = 2


def rows(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows whose last feature is a category, in turn; outcomes of one category vary more."""
    features, outcomes = ph.data.make_synthetic(n, rng=np.random.default_rng(seed))
    category = np.arange(n) % N_CATEGORIES
    noise = np.random.default_rng(seed + 1).normal(size=outcomes.shape) * category[:, None]
    return np.column_stack([features, category]), outcomes + noise


X, Y = rows(120, 0)
PREDICTOR = as_predictor(None, 2).fit(X[:40], Y[:40])
SHAPE = ph.Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], -np.array([0.4, 0.3, 2.0, 2.0]))
PROBLEM = ph.problems.simplex_linear([-0.08, 0.0])
SPREAD = ph.learners.Spread.fit(X[:40], Y[:40], np.exp(X[:40, 0]), min_leaf=10, seed=0)
DEVELOPED = PlanRows(X[:40], PREDICTOR.predict(X[:40]), Y[:40], np.zeros((40, 0)), np.arange(40) // 8)
SETS = ScaledSet(PROBLEM, PREDICTOR, SHAPE, SPREAD)
FAMILIES: dict[str, RegionFamily] = {
    "set": ScaledSet(PROBLEM, PREDICTOR, SHAPE),
    "scaled set": SETS,
    "guard": Guard(PROBLEM, PREDICTOR, SetPlan(SETS)),
    "planned": Guard(PROBLEM, PREDICTOR, fit_plan(PROBLEM, DEVELOPED, 0.1, 0.5, 0), Grid.of(DEVELOPED.centers)),
}
CALIBRATORS: dict[str, Calibrator] = {
    "marginal": Marginal(),
    "by category": ByCategory(X.shape[1] - 1),
    "by category, else marginal": ByCategory(X.shape[1] - 1, otherwise="marginal"),
}
every_family = pytest.mark.parametrize("name", list(FAMILIES))
every_calibrator = pytest.mark.parametrize("calibrator", list(CALIBRATORS))
# The bound of a set may differ in its last bits with the batch, because predictions do; a guard's must not.
_SAME = {"set": 1e-9, "scaled set": 1e-9, "guard": 0.0, "planned": 0.0}


def model_of(name: str, calibrator: str, order: Any = slice(None)) -> Model:
    """A family, calibrated on the middle rows, taken in this order."""
    family, features, outcomes = FAMILIES[name], X[40:100][order], Y[40:100][order]
    radii = calibrated_radii(family, CALIBRATORS[calibrator], features, outcomes, 0.1)
    split = Split(np.arange(40), np.zeros(0, dtype=np.int64), np.arange(40, 100), n_rows=120)
    return fitted_model(family, Record(split, 40, "0" * 64), *radii)


@pytest.fixture(scope="module")
def scores() -> dict[str, NDArray[np.float64]]:
    """Scores of fresh rows in every family."""
    features, outcomes = FRESH
    return {name: family.at(features).scores(outcomes) for name, family in FAMILIES.items()}


FRESH = rows(1200, 5)


@every_calibrator
@every_family
def test_coverage_follows_its_law_in_every_category_that_is_promised(
    name: str, calibrator: str, scores: dict[str, NDArray[np.float64]]
) -> None:
    # Blocks of 4 calibration rows a category (or in all) and one new row: with alpha = 1/5 the new score is at most
    # the 4th of 4 with probability 4/5 exactly, block by block independently. False alarms: 1 in 10 000 a family.
    by_category = calibrator != "marginal"
    size = 5 * (N_CATEGORIES if by_category else 1)
    covered: list[list[bool]] = [[], []]
    for start in range(0, 1200, size):
        block, new = np.arange(start, start + size - size // 5), np.arange(start + size - size // 5, start + size)
        radii = CALIBRATORS[calibrator].calibrate(scores[name][block], Rows(FRESH[0][block], len(block)), 0.2)
        inside = scores[name][new] <= radii.at(Rows(FRESH[0][new], len(new)))
        for row, is_inside in zip(new, inside, strict=True):
            covered[row % N_CATEGORIES if by_category else 0].append(bool(is_inside))
    for counted in filter(None, covered):
        assert stats.binomtest(sum(counted), len(counted), 0.8).pvalue > 1e-4


@every_calibrator
@every_family
def test_order_of_calibration_rows_does_not_matter(name: str, calibrator: str) -> None:
    shuffled = model_of(name, calibrator, np.random.default_rng(0).permutation(60))
    np.testing.assert_allclose(shuffled.placed(X[100:]).radii, model_of(name, calibrator).placed(X[100:]).radii, 1e-12)


@every_calibrator
@every_family
def test_rows_are_decided_alone_as_in_any_batch_and_order(name: str, calibrator: str) -> None:
    model, new = model_of(name, calibrator), X[100:106]
    whole = model.decide(new)
    for parts in ([[i] for i in range(6)], np.split(np.arange(6), [1, 3]), [np.arange(6)[::-1]]):
        found = [model.decide(new[part]) for part in parts]
        order = np.concatenate(parts)
        for field in ("flat", "cost_bound"):
            together = np.concatenate([getattr(one, field) for one in found])
            np.testing.assert_allclose(together, getattr(whole, field)[order], rtol=_SAME[name], atol=_SAME[name])


@every_calibrator
@every_family
def test_model_decides_the_same_after_a_file_and_after_a_pickle(name: str, calibrator: str, tmp_path: Path) -> None:
    decider = ph.RobustDecider(PROBLEM)
    decider.model_ = model_of(name, calibrator)
    decider.save(tmp_path / "model.polyhedge")
    read = ph.load(tmp_path / "model.polyhedge")
    expected = decider.decide(X[100:])
    for twin in (read.model_, pickle.loads(pickle.dumps(decider.model_))):
        found = twin.decide(X[100:])
        np.testing.assert_array_equal(found.cost_bound, expected.cost_bound)
        np.testing.assert_array_equal(found.flat, expected.flat)
        assert twin.radii.promise() == decider.model_.radii.promise()
    assert read.recalibrate(X[40:100], Y[40:100]).radius_ == decider.radius_


@every_calibrator
@every_family
def test_rows_of_a_table_are_decided_as_in_memory(name: str, calibrator: str) -> None:
    model = model_of(name, calibrator)
    table = ph.batches.decide_rows(model, pd.DataFrame(X[100:]))
    np.testing.assert_array_equal(table["cost_bound"], model.decide(X[100:]).cost_bound)
    assert table["note"].isna().all()


@pytest.mark.parametrize("calibrator", [name for name in CALIBRATORS if name != "marginal"])
@every_family
def test_row_of_a_category_without_calibration_rows_is_marked(name: str, calibrator: str) -> None:
    model, new = model_of(name, calibrator), np.vstack([X[100], X[101]])
    new[1, -1] = 7
    found = model.decide(new)
    assert found.detail[0] == ""
    assert "category '7'" in found.detail[1]
    assert (found.cost_bound[1] == np.inf) == (calibrator == "by category")
    noted = ph.batches.decide_rows(model, pd.DataFrame(new))["note"]
    assert "nothing is promised" in noted[1]


@pytest.fixture(scope="module")
def decider() -> ph.RobustDecider:
    """A decider that promises a cost."""
    learner = ph.learners.OneSidedBox()
    return ph.RobustDecider(PROBLEM, learner=learner, guarantee="cost", random_state=0).fit(X, Y)


class TestCostGuarantee:
    """`RobustDecider(guarantee="cost")` guards the decisions over the learned set."""

    def test_recalibration_moves_the_bound_and_not_the_decision(self, decider: ph.RobustDecider) -> None:
        twin = pickle.loads(pickle.dumps(decider)).recalibrate(*rows(40, 9))
        before, after = decider.decide(X[:5]), twin.decide(X[:5])
        np.testing.assert_array_equal(after.flat, before.flat)
        np.testing.assert_allclose(after.cost_bound - before.cost_bound, twin.radius_ - decider.radius_, atol=1e-12)

    def test_bound_is_the_worst_cost_at_the_learned_size_plus_the_radius(self, decider: ph.RobustDecider) -> None:
        planned = ph.robust.decide(PROBLEM, decider.set_, 0.0, decider.centers(X[:5]), scales=decider.scales(X[:5]))
        found = decider.decide(X[:5])
        np.testing.assert_allclose(found.cost_bound, planned.cost_bound + decider.radius_, rtol=1e-7)

    def test_share_of_rows_inside_is_the_share_whose_bound_held(self, decider: ph.RobustDecider) -> None:
        measured = decider.measure(*rows(60, 11))
        np.testing.assert_array_equal(measured.inside, measured.held)

    def test_words_promise_the_cost_and_no_set(self, decider: ph.RobustDecider) -> None:
        first = ph_words.promise_in_words(decider)[0]
        assert "cost is at most the bound" in first
        assert "outcome lies" not in first

    def test_file_keeps_what_is_promised(self, decider: ph.RobustDecider, tmp_path: Path) -> None:
        decider.save(tmp_path / "model.polyhedge")
        assert ph.load(tmp_path / "model.polyhedge").guarantee == "cost"
        assert "cost of the planned decision" in str(ph.inspect_model(tmp_path / "model.polyhedge"))

    def test_uncertain_constraints_that_a_plan_breaks_count_against_it(self) -> None:
        z = cp.Variable(2, nonneg=True)
        problem = ph.DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum(z),
            constraints=[z <= 20],
            uncertain_constraints=lambda z, u: [z >= u],
            n_outcomes=2,
        )
        sets = ScaledSet(problem, PREDICTOR, SHAPE)
        placed = Guard(problem, PREDICTOR, SetPlan(sets)).at(X[:10])
        broken = (Y[:10] > placed.planned.z).any(axis=1)
        np.testing.assert_array_equal(placed.scores(Y[:10]) == np.inf, broken)
        assert 0 < broken.sum() < 10

    def test_unknown_guarantee_is_refused(self) -> None:
        with pytest.raises(ValueError, match="guarantee must be"):
            ph.RobustDecider(PROBLEM, guarantee="costs").fit(X, Y)


@every_family
def test_score_is_the_least_radius_whose_region_holds_the_outcome(name: str) -> None:
    placed = FAMILIES[name].at(X[40:50])
    for i, score in enumerate(placed.scores(Y[40:50])):
        assert placed.region(i, score + 1e-6).contains(Y[40 + i])
        assert not placed.region(i, score - 1e-6).contains(Y[40 + i])


@every_family
def test_cost_is_at_most_the_bound_where_the_outcome_is_in_the_region(name: str) -> None:
    placed = FAMILIES[name].at(X[40:60])
    found = placed.decide(placed.scores(Y[40:60]))  # every outcome lies on the border of its region
    costs = PROBLEM.evaluate(found.flat, Y[40:60])
    assert (costs <= found.cost_bound + 1e-9).all()
    if name == "guard":
        np.testing.assert_allclose(costs, found.cost_bound, atol=1e-9)


@every_family
def test_some_rows_are_as_among_all(name: str) -> None:
    rows, radii = np.array([7, 3, 9]), np.linspace(0.1, 0.5, 10)
    placed = FAMILIES[name].at(X[40:50])
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


@pytest.mark.parametrize("shift", [None, 0.0, 1e6])
def test_predictions_of_a_guard_do_not_depend_on_the_batch_even_half_way_between_two_numbers(
    shift: float | None,
) -> None:
    rng = np.random.default_rng(0)
    grid = None if shift is None else Grid.of(rng.normal(size=(100, 2)) + shift)
    origin, step = (np.zeros(2), np.full(2, 2.0**-30)) if grid is None else (grid.origin, grid.step)
    middle = origin + (rng.integers(2**31, 2**32, size=(50, 2)) + 0.5) * step
    rows = np.vstack([middle, rng.normal(size=(50, 2)) + origin, [[1.0, 0.0]]])
    together = steady_predictions(Wobbly(), rows, grid)
    for size in (1, 3):
        parts = [steady_predictions(Wobbly(), rows[k : k + size], grid) for k in range(0, len(rows), size)]
        np.testing.assert_array_equal(np.vstack(parts), together)
    np.testing.assert_allclose(together - origin, rows - origin, rtol=1e-9, atol=step.max())


def test_guard_of_decisions_from_a_shared_pool_does_not_depend_on_the_batch() -> None:
    problem = ph.problems.newsvendor(
        0.3, 0.7, 2, nonnegative_demand=False
    )  # no closed form: contexts of a call share decisions
    guard = Guard(problem, PREDICTOR, SetPlan(ScaledSet(problem, PREDICTOR, SHAPE)))
    whole = guard.at(X[40:50]).planned
    for i in (0, 7):
        alone = guard.at(X[40 + i : 41 + i]).planned
        np.testing.assert_array_equal(alone.z[0], whole.z[i])
        assert alone.v[0] == whole.v[i]


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
