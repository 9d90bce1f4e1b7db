"""Where every calibration row needs an integer program, some of them set the radius."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge import model as models
from polyhedge.calibration import Marginal, Recent
from polyhedge.model import rows_that_count
from polyhedge.rows import Rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 2))
Y = np.maximum(5 + X + RNG.normal(size=(240, 2)), 0.0)


def problem(integer: bool = True) -> ph.DecisionProblem:
    z = cp.Variable(2, integer=integer)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z)),
        constraints=[z >= 0, z[0] + 2 * z[1] <= 14, 2 * z[0] + z[1] <= 13],
        n_outcomes=2,
    )


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(models, "_MOST_PROGRAMS", 40)
    return 40


def fitted(integer: bool = True) -> ph.RobustDecider:
    return ph.RobustDecider(problem(integer), alpha=0.1, random_state=0, guarantee="cost").fit(X, Y)


def test_radius_is_that_of_the_chosen_rows_and_the_summary_says_so(few: int) -> None:
    decider = fitted()
    model, calibrate = decider.model_, decider.split_.calibrate
    own = Rows(X[calibrate], Y[calibrate])
    chosen = rows_that_count(model.family, Marginal(), own)
    assert len(chosen) == few == model.radii.n < len(calibrate)
    radius = ph.conformal_radius(model.radii.scores, 0.1)
    assert decider.radius_ == radius
    np.testing.assert_allclose(model.scores(own.take(chosen)), model.radii.scores, atol=1e-6)
    assert f"{len(calibrate)} calibrate (40 of them, because each needs an integer program)" in decider.summary()
    assert "since then" not in decider.summary()
    decider.recalibrate(X[:150], Y[:150])
    assert decider.n_calibrate_ == few


def test_rows_are_chosen_by_their_position_alone_one_of_each_stretch(few: int) -> None:
    family = fitted().model_.family
    chosen = rows_that_count(family, Marginal(), Rows(X[:130], Y[:130]))
    np.testing.assert_array_equal(chosen, rows_that_count(family, Marginal(), Rows(X[110:], Y[110:] + 7.0)))
    assert (np.diff(chosen) > 0).all()
    edges = np.arange(few + 1) * 130 // few
    assert ((edges[:-1] <= chosen) & (chosen < edges[1:])).all()


def test_all_rows_count_in_groups_for_other_promises_and_without_integers(few: int) -> None:
    family = fitted().model_.family
    rows = Rows(X[:130], Y[:130])
    assert len(rows_that_count(family, Recent(100), rows)) == 130
    assert len(rows_that_count(family, Marginal(), Rows(X[:130], Y[:130], groups=np.arange(130) // 2))) == 130
    assert len(rows_that_count(fitted(integer=False).model_.family, Marginal(), rows)) == 130
