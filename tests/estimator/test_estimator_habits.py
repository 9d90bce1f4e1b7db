"""What scikit-learn users expect of an estimator, and of problems that are ready-made."""

import io
import logging
import pickle
import time

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyhedge as ph
from polyhedge._support import progress as _bar
from polyhedge._support.progress import tell
from polyhedge.calibration import Online
from shared import codes

X, Y = ph.data.make_synthetic(240, rng=np.random.default_rng(0))
PROBLEM = ph.problems.simplex_linear([0.0, 0.0])
QUICK = ph.learners.OneSidedBox()


def decider(**settings):
    return ph.RobustDecider(PROBLEM, **{"learner": QUICK, "random_state": 0, **settings})


def test_a_fitted_predictor_is_fitted_anew_with_a_warning_that_names_the_way_out():
    for model in (LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())):
        model.fit(X[:50], Y[:50])
        with pytest.warns(UserWarning, match=r"is fitted already, .*pass FrozenEstimator\(model\)") as caught:
            decider(predictor=model).fit(X[50:], Y[50:])
        assert "Refitted" in codes(caught)
        decider(predictor=clone(model)).fit(X[50:], Y[50:])
    decider(predictor=FrozenEstimator(model)).fit(X[50:], Y[50:])


def test_settings_of_a_learner_are_set_by_name_and_the_learner_stays_as_it_was():
    robust = decider()
    assert robust.get_params()["learner__scale"] == "std"
    twin = clone(robust).set_params(learner__max_contexts=50, alpha=0.2)
    assert (twin.learner.max_contexts, twin.alpha, QUICK.max_contexts) == (50, 0.2, 300)
    with pytest.raises(
        ValueError, match=r"OneSidedBox has no setting 'facets'\. Its settings are: scale, max_contexts"
    ):
        robust.set_params(learner__facets=3)


def test_the_number_of_features_is_known_after_fit():
    assert decider().fit(X, Y).n_features_in_ == 4
    with pytest.raises(AttributeError, match="no radius yet"):
        decider().n_features_in_  # noqa: B018
    with pytest.raises(NotFittedError, match="before decide"):
        decider().score(X)


@pytest.mark.parametrize(
    ("make", "stem"),
    [
        (lambda **names: ph.problems.newsvendor(1.0, [2.0, 3.0], **names), "order"),
        (lambda **names: ph.problems.simplex_newsvendor(1.0, [2.0, 3.0], **names), "z"),
        (lambda **names: ph.problems.simplex_linear([0.0, 0.0], **names), "z"),
        (lambda **names: ph.problems.simplex_quadratic([0.0, 0.0], 1.0, **names), "z"),
        (lambda **names: ph.problems.portfolio(np.eye(2), **names), "weight"),
    ],
)
def test_decisions_for_each_outcome_are_called_like_the_columns_of_outcomes(make, stem, tmp_path):
    outcomes = pd.DataFrame(np.abs(Y), columns=["rolls", "bread"])
    expected = (f"{stem}_rolls", f"{stem}_bread")
    assert make(names=outcomes).decision_names == make(names=outcomes.columns).decision_names == expected
    fitted = ph.RobustDecider(make(), "precomputed", learner=ph.learners.OneSidedBox()).fit(outcomes, outcomes)
    assert tuple(fitted.decide(outcomes[:3]).to_frame().columns[:2]) == expected
    fitted.save(tmp_path / "m.polyhedge")
    assert ph.load(tmp_path / "m.polyhedge").problem_.decision_names == expected
    assert pickle.loads(pickle.dumps(make())).labelled(outcome_names=outcomes).decision_names == expected
    fixed = make().labelled(decision_names=["a", "b"])
    assert fixed.labelled(outcome_names=outcomes).decision_names == ("a", "b")
    assert make().labelled(outcome_names=outcomes).labelled(outcome_names=["x", "y"]).decision_names[0] == f"{stem}_x"


def test_a_bar_is_drawn_where_somebody_looks_and_leaves_nothing_behind(monkeypatch):
    logger, screen = logging.getLogger("polyhedge"), io.StringIO()
    before = logger.level, list(logger.handlers)
    with monkeypatch.context() as patch:
        patch.setattr("rich.console.Console", lambda stderr: Console(file=screen, force_terminal=True))
        with _bar.progress("deciding"):
            tell(logger, "deciding", 3, 10)
            time.sleep(2.3)  # work of less than two seconds has no bar
    assert "deciding" in screen.getvalue()
    robust = decider().fit(X, Y, progress=True)
    np.testing.assert_array_equal(robust.decide(X, progress=True).cost_bound, decider().fit(X, Y).decide(X).cost_bound)
    assert (logger.level, list(logger.handlers)) == before


def test_one_row_of_numbers_is_decided_and_other_shapes_are_refused():
    by_name = dict(zip("abcd", X[0], strict=True))
    frame = pd.DataFrame(X, columns=list("abcd"))
    for rows, ones in ((X, [X[0], X[0].tolist()]), (frame, [frame.iloc[0], by_name])):
        fitted = decider(predictor=None).fit(rows, Y)
        for k, row in enumerate(ones, start=1):
            assert len(fitted.update(row, Y[0]).missed) == k
            np.testing.assert_allclose(fitted.decide(row).cost_bound, fitted.decide(rows[:1]).cost_bound)
            np.testing.assert_allclose(
                fitted.region(row).support(np.eye(2)), fitted.region(rows[:1]).support(np.eye(2))
            )
        with pytest.raises(ValueError, match=r"same number of rows|Expected 2D array"):
            fitted.evaluate(X[0], Y[:1])
        with pytest.raises(TypeError, match=r"got a dict\. Pass one row as pd\.DataFrame\(\[X\]\)"):
            fitted.evaluate(by_name, Y[:1])
    with pytest.raises(ValueError, match="Expected 2D array"):
        decider(predictor=None).fit(X, Y).decide(X[0, :3])


def test_what_a_decider_has_no_name_for_says_what_to_call():
    assert not hasattr(decider(), "predict")
    with pytest.raises(AttributeError, match=r"Call decide\(X\) for decisions, centers\(X\) for predicted outcomes"):
        decider().predict(X)
    z = cp.Variable(2, nonneg=True)
    written = cp.Problem(cp.Minimize(cp.sum(z)), [cp.sum(z) == 1])
    with pytest.raises(TypeError, match=r"got Problem\. Write one, DecisionProblem\(decision=z, cost=lambda z, u"):
        ph.RobustDecider(written).fit(X, Y)


def test_an_outcome_that_is_no_number_is_quoted():
    wrong = Y.astype(object)
    wrong[3, 1] = "many"
    with pytest.raises(ValueError, match=r"Y must be numeric: .*'many' at index \(3, 1\)\. Correct it"):
        decider().fit(X, wrong)


def test_progress_is_logged_and_handed_to_a_callable(caplog):
    robust, seen = decider().fit(X, Y), []
    with caplog.at_level(logging.INFO, logger="polyhedge"):
        robust.decide(X)
    assert caplog.records[-1].getMessage() == f"deciding: {len(X)} of {len(X)}"
    robust.decide(X, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(X), len(X))


def whole(**limits):
    order = cp.Variable(2, integer=True)
    cost = (lambda z, u: cp.sum(z)) if limits else lambda z, u: cp.sum(z) + 3 * cp.sum(cp.pos(u - z))
    rows = [order >= 0, order <= 20, np.array([[1, 2], [2, 1]]) @ order <= 50]
    return ph.DecisionProblem(decision=order, cost=cost, constraints=rows, n_outcomes=2, **limits)


@pytest.mark.parametrize(
    ("problem", "stages"),
    [
        (whole(), {"comparing policies", "deciding rows"}),
        (whole(uncertain_constraints=lambda z, u: [z >= u]), {"comparing policies", "calibrating"}),
    ],
    ids=["cost", "constraints"],
)
def test_a_fit_that_solves_a_program_for_every_row_tells_how_far_it_is(problem, stages, caplog):
    with caplog.at_level(logging.INFO, logger="polyhedge"):
        ph.RobustDecider(problem, alpha=0.2, random_state=0).fit(X, 3 + Y)
    told = [(record.doing, record.done, record.total) for record in caplog.records if hasattr(record, "doing")]
    assert stages <= {doing for doing, _, _ in told}
    assert all(0 <= done <= total for _, done, total in told)
    assert sum(doing in stages for doing, _, _ in told) >= 8


def test_one_fit_serves_several_levels_as_far_as_the_calibration_rows_allow(tmp_path):
    robust = decider(alpha=0.2).fit(X, Y)
    strict = robust.at(alpha=0.05)
    again = decider(alpha=0.2).fit(X, Y).set_params(alpha=0.05)
    rows = np.concatenate([robust.split_.learn, robust.split_.calibrate])  # this learner needs no learning rows
    again.recalibrate(X[rows], Y[rows])
    assert strict.radius_ == again.radius_ > robust.radius_
    assert (strict.alpha_, robust.alpha_, strict.set_ is robust.set_) == (0.05, 0.2, True)
    assert [entry.alpha for entry in strict.calibrations_] == [0.2, 0.05]
    assert "held in 19 of 20" in str(strict)
    with pytest.raises(ValueError, match=r"alpha=0\.001 needs at least 999 calibration samples"):
        robust.at(alpha=0.001)
    robust.save(tmp_path / "model.polyhedge")
    with pytest.raises(ValueError, match="a model file does not keep scores"):
        ph.load(tmp_path / "model.polyhedge").at(alpha=0.05)


def test_a_radius_that_follows_outcomes_has_no_other_level():
    with pytest.raises(ValueError, match="cannot be read at another, got those of kind 'online'"):
        decider(calibration=Online(), split="time").fit(X, Y).at(alpha=0.2)
