"""A level for each promise: exact laws of steps, and a whole path."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import polyhedge as ph
from polyhedge.calibration import ByConstraint, ConstraintRadii, conformal_radius, coverage_law
from polyhedge.calibration.radii import rows_without_features
from polyhedge.rows import Rows
from shared import round_trip

N_CALIBRATIONS = 300
FALSE_ALARM = 1e-4
LEVELS = {"cost": 0.2, "load is met": 0.05, "tank holds": 0.1}


def drawn(rng: np.random.Generator, law: str, n: int) -> np.ndarray:
    """Scores (n, 3) of a row's promises, which depend on each other."""
    common = rng.standard_t(2, size=(n, 1))
    scores = common + rng.standard_t(2, size=(n, 3)) + [0.0, 1.0, 0.5]
    return np.ceil(np.clip(scores, -1, 12)) if law == "steps" else scores


def held(radii: ConstraintRadii, fresh: np.ndarray) -> np.ndarray:
    """How often each promise is kept at the step of all."""
    return np.asarray((fresh <= radii.radius).mean(axis=0))


def coverages(law: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    fresh = drawn(rng, law, 10_000)
    made = [
        ByConstraint(LEVELS).calibrate(drawn(rng, law, n), rows_without_features(n), 0.1) for _ in range(N_CALIBRATIONS)
    ]
    return np.array([held(radii, fresh) for radii in made])


def check(found: np.ndarray) -> None:
    """Each promise is kept at its level in the mean over calibrations: four standard errors, 3 alarms in 100 000."""
    error = 4 * found.std(axis=0) / np.sqrt(len(found))
    assert (found.mean(axis=0) >= 1 - np.array(list(LEVELS.values())) - error).all(), "kept too rarely"


@pytest.mark.parametrize("n", [19, 60])
@pytest.mark.parametrize("law", ["heavy tails", "steps"])
def test_each_promise_is_kept_at_its_own_level(law: str, n: int) -> None:
    check(coverages(law, n))


def test_one_level_for_all_breaks_the_promise_and_the_test_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyhedge.calibration.by_constraint.conformal_radius", lambda s, _: conformal_radius(s, 0.2))
    with pytest.raises(AssertionError, match="kept too rarely"):
        check(coverages("heavy tails", 60))


def test_the_promise_that_decides_the_step_follows_its_beta_law() -> None:
    """Scores of the second promise are the largest by far, so that its rank is the radius."""
    rng, uniform = np.random.default_rng(1), []
    for _ in range(N_CALIBRATIONS):
        scores = rng.uniform(size=(60, 3)) + np.array([0.0, 10.0, 0.0])
        radii = ByConstraint(LEVELS).calibrate(scores, rows_without_features(60), 0.1)
        uniform.append(coverage_law(60, 0.05).cdf(radii.radius - 10))
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_levels_survive_a_file_and_can_be_others() -> None:
    scores = drawn(np.random.default_rng(0), "steps", 60)
    radii = ByConstraint(LEVELS).calibrate(scores, rows_without_features(60), 0.1)
    twin = round_trip(radii)
    assert (twin.radii, twin.promise(), twin.calibrator) == (radii.radii, radii.promise(), radii.calibrator)
    assert radii.alpha == pytest.approx(0.35)
    assert "0.65; each by itself, 'cost' with at least 0.8, 'load is met' with at least 0.95" in radii.promise()
    assert radii.at_level(dict.fromkeys(LEVELS, 0.2)).radius <= radii.radius
    with pytest.raises(ValueError, match=r"a level for each promise, such as \{'cost': 0.2"):
        radii.at_level(0.1)
    with pytest.raises(ValueError, match="without the scores"):
        twin.at_level(LEVELS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByConstraint({"cost": 0.6, "load": 0.5}), "sum to less than 1, got 1.1"),
        (lambda: ByConstraint({"cost": 0.0}), "alpha must lie strictly between 0 and 1"),
        (
            lambda: ByConstraint(LEVELS).columns(("cost", "load is met")),
            "for each of 'cost', 'load is met', got levels",
        ),
        (lambda: ByConstraint(LEVELS).columns(("cost",)), "need uncertain constraints"),
        (
            lambda: ByConstraint(LEVELS).calibrate(np.zeros((18, 3)), rows_without_features(18), 0.1),
            "The level of 'load is met': alpha=0.05 needs at least 19",
        ),
        (
            lambda: ByConstraint(LEVELS).calibrate(np.zeros((20, 2)), rows_without_features(20), 0.1),
            "a score for each of 3 promises",
        ),
        (
            lambda: ByConstraint(LEVELS).calibrate(np.zeros((20, 3)), Rows(np.zeros((20, 0)), groups=np.ones(20)), 0.1),
            "one by one",
        ),
    ],
)
def test_wrong_levels_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_evaluate_says_what_is_promised_for_each_constraint() -> None:
    """The column that the levels name, and no other; plain levels promise nothing for one constraint alone."""
    problem = ph.DecisionProblem(
        decision=cp.Variable(1, nonneg=True),
        cost=lambda z, u: cp.sum(z),
        uncertain_constraints=lambda z, u: [z >= u],
        constraint_names=["load is met"],
        n_outcomes=1,
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    Y = 20 + 3 * X + rng.normal(size=(200, 1))
    for alpha, promised in (({"cost": 0.2, "load is met": 0.05}, 0.95), (0.1, None)):
        decider = ph.RobustDecider(problem, "ridge", alpha=alpha, random_state=0).fit(X[:150], Y[:150])
        seen = decider.evaluate(X[150:], Y[150:])
        assert seen.constraints[0].promised == promised
        assert ("(promised 0.95; nominal" in str(seen)) == (promised is not None)


def test_levels_need_a_problem_with_these_constraints() -> None:
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
    problem, levels = ph.problems.simplex_linear([0.0, 0.0]), {"cost": 0.1, "load is met": 0.01}
    with pytest.raises(ValueError, match="Levels by constraint need uncertain constraints"):
        ph.RobustDecider(problem, alpha=levels).fit(X, Y)
    with pytest.raises(ValueError, match="alpha has a level for each constraint, and calibration="):
        ph.RobustDecider(problem, alpha=levels, calibration=ph.calibration.Marginal()).fit(X, Y)
