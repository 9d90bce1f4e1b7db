"""What crosses the border of the decider: groups, names and levels; nothing goes wrong in silence."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import polyhedge as ph
from polyhedge import Polyhedron
from polyhedge.app.report.model import model_report
from polyhedge.learners import Descent, OneSidedBox, Samples
from shared import Given, first_two, save_trusting

LINEAR = ph.problems.simplex_linear([0.0, 0.0])
RNG = np.random.default_rng(0)
Y = RNG.normal(size=(120, 2)) * [1.0, 5.0]
CENTERS = Y + RNG.normal(size=Y.shape) * [0.3, 2.0]


def decider(problem=LINEAR, predictor="precomputed", **settings):
    return ph.RobustDecider(problem, predictor, learner=OneSidedBox(), random_state=0, **settings)


# --- groups -----------------------------------------------------------------------------------------------


class TestGroups:
    @pytest.mark.parametrize(("a", "b"), [("train", "learn"), ("train", "calibrate"), ("learn", "calibrate")])
    def test_a_group_that_lies_across_given_parts_is_refused_by_name(self, a, b):
        parts = {"train": np.arange(40), "learn": np.arange(40, 80), "calibrate": np.arange(80, 120)}
        groups = np.array([f"g{i // 4:02d}" for i in range(120)])
        decider().fit(CENTERS, Y, groups=groups, **parts)
        groups[parts[a][0]] = groups[parts[b][0]] = "odd"
        with pytest.raises(ValueError, match=rf"1 group\(s\) have rows in {a} and in {b}, the first is 'odd'"):
            decider().fit(CENTERS, Y, groups=groups, **parts)

    def test_too_few_groups_to_calibrate_are_an_error_before_anything_is_learned(self):
        class NeverAsked:
            needs = ph.learners.Needs()

            def learn(self, *arguments, **settings):
                raise AssertionError("nothing should be learned")

        robust = ph.RobustDecider(LINEAR, "precomputed", learner=NeverAsked(), random_state=0)
        with pytest.raises(ValueError, match="needs at least 9 calibration groups, got 6"):
            robust.fit(CENTERS, Y, groups=np.arange(120) // 10)


# --- the level, and other settings that change after fit ----------------------------------------------------


class TestLevel:
    def test_recalibration_takes_the_present_level_and_the_trail_keeps_both(self, tmp_path):
        robust = decider().fit(CENTERS, Y).set_params(alpha=0.4).recalibrate(CENTERS, Y)
        scores = robust.set_.scores(robust.residuals(CENTERS, Y))
        assert robust.radius_ == pytest.approx(ph.conformal_radius(scores, 0.4), abs=1e-8)
        assert robust.evaluate(CENTERS, Y).promised == pytest.approx(0.6)
        assert [entry.alpha for entry in robust.calibrations_] == [0.1, 0.4]
        robust.save(tmp_path / "m.polyhedge")
        assert ph.load(tmp_path / "m.polyhedge").calibrations_ == robust.calibrations_
        assert "for alpha 0.4 from 120 rows" in str(ph.inspect_model(tmp_path / "m.polyhedge"))

    def test_nothing_that_is_set_after_fit_changes_what_was_fitted(self, tmp_path):
        settings = {"learner": Descent(n_steps=3), "random_state": 5, "split": (0.4, 0.3, 0.3)}
        robust = ph.RobustDecider(LINEAR, "linear", **settings).fit(CENTERS, Y)
        before, page = robust.decide(CENTERS), model_report(robust)
        robust.save(tmp_path / "before.polyhedge")
        other = ph.problems.newsvendor(1.0, 2.0, 3)
        robust.set_params(problem=other, predictor=None, alpha=0.5, learner=None, split=(0, 0, 1), random_state=None)
        np.testing.assert_array_equal(robust.decide(CENTERS).cost_bound, before.cost_bound)
        np.testing.assert_array_equal(robust.measure(CENTERS, Y).cost_bound, before.cost_bound)
        assert model_report(robust) == page
        robust.save(tmp_path / "after.polyhedge")
        infos = [ph.inspect_model(tmp_path / f"{name}.polyhedge") for name in ("before", "after")]
        assert infos[0].settings == infos[1].settings
        assert infos[0].problem_name == infos[1].problem_name


# --- names ------------------------------------------------------------------------------------------------

NAMED = LINEAR.labelled(outcome_names=["heating", "cooling"])
X_FRAME = pd.DataFrame(np.column_stack([CENTERS, RNG.normal(size=120)]), columns=["a", "b", "c"])
Y_FRAME = pd.DataFrame(Y, columns=["heating", "cooling"])
CENTER_FRAME = pd.DataFrame(CENTERS, columns=["heating", "cooling"])


PREDICTORS = {
    "callable": lambda: first_two,
    "frozen": lambda: FrozenEstimator(LinearRegression().fit(X_FRAME, Y)),
    "pipeline": lambda: make_pipeline(StandardScaler(), LinearRegression()),
    "by name": lambda: make_pipeline(make_column_transformer((StandardScaler(), ["b", "a"])), LinearRegression()),
    "default": lambda: None,
}


class TestNamesOfFeatures:
    @pytest.mark.parametrize("kind", PREDICTORS)
    def test_columns_in_another_order_or_with_others_between_give_the_same_results(self, kind, tmp_path):
        robust = decider(predictor=PREDICTORS[kind]()).fit(X_FRAME, Y)
        mixed = X_FRAME.assign(more=1.0)[["c", "more", "b", "a"]]
        twins = [robust]
        if kind != "callable":
            path = tmp_path / "m.polyhedge"
            trusted = robust.save(path) if kind == "default" else save_trusting(robust, path)
            twins.append(ph.load(path, trusted=trusted or ()))
        expected, measured = robust.decide(X_FRAME), robust.measure(X_FRAME, Y)
        for twin in twins:
            np.testing.assert_array_equal(twin.decide(mixed).cost_bound, expected.cost_bound)
            np.testing.assert_array_equal(twin.measure(mixed, Y).realised, measured.realised)
            np.testing.assert_array_equal(twin.residuals(mixed, Y), robust.residuals(X_FRAME, Y))
            np.testing.assert_array_equal(twin.region(mixed.iloc[3]).center, robust.region(X_FRAME.iloc[3]).center)
            radius = twin.radius_
            assert twin.recalibrate(mixed, Y).radius_ == robust.recalibrate(X_FRAME, Y).radius_ != radius

    def test_labels_that_are_no_texts_are_names_too_and_numbers_in_disorder_are_refused(self):
        years = X_FRAME.set_axis([2023, 2024, 2025], axis=1)
        robust = decider(predictor=first_two).fit(years, Y)
        np.testing.assert_array_equal(robust.centers(years[[2025, 2023, 2024]]), CENTERS)
        numbered = pd.DataFrame(X_FRAME.to_numpy())
        robust = decider(predictor=first_two).fit(numbered, Y)
        with pytest.raises(ValueError, match=r"numbered 0, 1, 2, ... in this order, got 2, 0, 1"):
            robust.decide(numbered[[2, 0, 1]])

    def test_arrays_have_no_names_and_are_taken_in_order(self):
        robust = decider(predictor=first_two).fit(X_FRAME, Y)
        np.testing.assert_array_equal(robust.centers(X_FRAME.to_numpy()), CENTERS)
        robust = decider(predictor=first_two).fit(X_FRAME.to_numpy(), Y)
        np.testing.assert_array_equal(robust.centers(X_FRAME), CENTERS)


class TestNamesOfOutcomes:
    @pytest.mark.parametrize("problem", [NAMED, LINEAR], ids=["named", "without names"])
    def test_outcomes_in_another_order_give_the_same_decider(self, problem):
        expected = decider(problem, first_two).fit(X_FRAME, Y_FRAME)
        mixed = Y_FRAME[["cooling", "heating"]]
        if problem is NAMED:
            robust = decider(problem, first_two).fit(X_FRAME, mixed)
            np.testing.assert_array_equal(robust.decide(X_FRAME).cost_bound, expected.decide(X_FRAME).cost_bound)
        assert list(expected.problem_.outcome_names) == ["heating", "cooling"]
        np.testing.assert_array_equal(expected.residuals(X_FRAME, mixed), expected.residuals(X_FRAME, Y))
        assert str(expected.evaluate(X_FRAME, mixed)) == str(expected.evaluate(X_FRAME, Y))
        np.testing.assert_array_equal(expected.measure(X_FRAME, mixed).regret, expected.measure(X_FRAME, Y).regret)
        assert expected.recalibrate(X_FRAME, mixed).radius_ == expected.recalibrate(X_FRAME, Y).radius_

    def test_a_problem_without_names_takes_those_of_the_outcomes_and_stays_as_it_was(self, tmp_path):
        robust = decider().fit(CENTERS, Y_FRAME)
        assert robust.problem is LINEAR
        assert list(LINEAR.outcome_names) == ["u_1", "u_2"]
        robust.save(tmp_path / "m.polyhedge")
        twin = ph.load(tmp_path / "m.polyhedge")
        assert (
            twin.recalibrate(CENTERS, Y_FRAME[["cooling", "heating"]]).radius_ == robust.recalibrate(CENTERS, Y).radius_
        )
        assert "worst_cooling" in ph.distributed.decide_rows(twin.model_, pd.DataFrame(CENTERS[:1])).columns
        assert tuple(twin.problem_.outcome_names) == ("heating", "cooling")

    def test_unknown_names_are_refused(self):
        wrong = Y_FRAME.rename(columns={"cooling": "gas"})
        message = r"Y must have the column\(s\) heating, cooling, got heating, gas \(missing: cooling; not known: gas\)"
        with pytest.raises(ValueError, match=message):
            decider(NAMED).fit(CENTERS, wrong)
        robust = decider().fit(CENTERS, Y_FRAME)
        for method in (robust.recalibrate, robust.evaluate, robust.measure, robust.residuals):
            with pytest.raises(ValueError, match=message):
                method(CENTERS, wrong)
        with pytest.raises(ValueError, match=r"\(not known: gas\)"):
            robust.evaluate(CENTERS, Y_FRAME.assign(gas=1.0))

    def test_one_outcome_may_come_as_a_series(self):
        problem = ph.problems.newsvendor(1.0, 2.0, 1)
        centers, outcomes = CENTERS[:, :1] + 50.0, Y_FRAME + 50.0
        robust = decider(problem).fit(centers, outcomes["heating"])
        assert list(robust.problem_.outcome_names) == ["heating"]
        expected = robust.recalibrate(centers, outcomes["heating"]).radius_
        assert robust.recalibrate(centers, outcomes["heating"].rename(None)).radius_ == expected
        with pytest.raises(ValueError, match=r"must have the column\(s\) heating, got cooling"):
            robust.evaluate(centers, outcomes["cooling"])


class TestNamesOfPredictions:
    @pytest.mark.parametrize("problem", [NAMED, LINEAR], ids=["named", "without names"])
    @pytest.mark.parametrize("named_outcomes", [True, False])
    def test_supplied_predictions_are_matched_to_outcomes_by_name(self, problem, named_outcomes, tmp_path):
        outcomes = Y_FRAME if named_outcomes or problem is LINEAR else Y
        expected = decider(NAMED).fit(CENTERS, Y)
        mixed = CENTER_FRAME[["cooling", "heating"]]
        robust = decider(problem).fit(mixed, outcomes)
        assert robust.radius_ == expected.radius_
        robust.save(tmp_path / "m.polyhedge")
        for twin in (robust, ph.load(tmp_path / "m.polyhedge"), expected):
            for given in (CENTER_FRAME, mixed, CENTERS):
                np.testing.assert_array_equal(twin.decide(given).cost_bound, expected.decide(CENTERS).cost_bound)

    def test_predictions_by_other_names_are_refused(self):
        other = CENTER_FRAME.add_suffix("_hat")
        for problem, outcomes in ((NAMED, Y), (LINEAR, Y_FRAME)):
            with pytest.raises(
                ValueError, match=r"X with predictor=.precomputed. must have .*\(missing: heating, cooling"
            ):
                decider(problem).fit(other, outcomes)
        with pytest.raises(ValueError, match=r"not known: more"):
            decider(NAMED).fit(CENTER_FRAME.assign(more=0.0), Y)
        with pytest.raises(ValueError, match=r"missing: heating, cooling; not known: heating_hat, cooling_hat"):
            decider(NAMED).fit(CENTER_FRAME, Y).decide(other)


class TestIndices:
    def test_rows_with_another_index_are_an_error_and_never_aligned(self):
        robust = decider(predictor=first_two).fit(X_FRAME, Y_FRAME)
        turned = Y_FRAME.iloc[::-1]
        message = r"X and Y must hold the same rows in the same order, but row 0 is 0 in X and 119 in Y"
        for method in (decider(predictor=first_two).fit, robust.recalibrate, robust.evaluate, robust.residuals):
            with pytest.raises(ValueError, match=message):
                method(X_FRAME, turned)
        with pytest.raises(ValueError, match=message):
            decider(ph.problems.newsvendor(1.0, 2.0, 1)).fit(CENTER_FRAME["heating"], turned["heating"])
        np.testing.assert_array_equal(robust.residuals(X_FRAME, Y), robust.residuals(X_FRAME, Y_FRAME))

    def test_groups_weights_and_masks_must_have_the_index_of_the_rows(self):
        labels = pd.Series(np.arange(120) // 2)
        with pytest.raises(ValueError, match=r"X and sample_weight must hold the same rows"):
            decider().fit(CENTER_FRAME, Y, sample_weight=1.0 + labels.iloc[::-1])
        with pytest.raises(ValueError, match=r"X and groups must hold the same rows"):
            decider().fit(CENTER_FRAME, Y, groups=labels.iloc[::-1])
        with pytest.raises(ValueError, match=r"X and groups must hold the same rows"):
            decider().fit(CENTER_FRAME, Y, groups=labels).recalibrate(CENTER_FRAME, Y, groups=labels.iloc[::-1])
        mask = labels < 30
        with pytest.raises(ValueError, match=r"X and learn must hold the same rows"):
            decider().fit(CENTER_FRAME, Y, learn=mask.iloc[::-1], calibrate=~mask)
        decider().fit(CENTER_FRAME, Y, learn=mask, calibrate=~mask, groups=labels)


def test_complex_numbers_are_refused_and_not_halved():
    robust = decider(predictor=first_two).fit(X_FRAME, Y_FRAME)
    with pytest.raises(ValueError, match=r"Y must be numeric: Complex data not supported"):
        robust.evaluate(X_FRAME, Y + 1j)
    with pytest.raises(ValueError, match=r"Complex data not supported"):
        decider().fit(CENTER_FRAME.to_numpy() * 1j, Y)


class TestBatches:
    def test_dask_and_parquet_take_columns_by_name(self, tmp_path):
        dd = pytest.importorskip("dask.dataframe")
        robust = decider(NAMED, first_two).fit(X_FRAME, Y_FRAME)
        expected = robust.decide(X_FRAME).cost_bound
        mixed = X_FRAME.assign(more=1.0)[["c", "more", "b", "a"]]
        found = robust.decide(dd.from_pandas(mixed, npartitions=3)).compute()
        np.testing.assert_array_equal(found["cost_bound"], expected)
        mixed.to_parquet(tmp_path / "rows.parquet")
        ph.distributed.decide_parquet(robust, tmp_path / "rows.parquet", tmp_path / "found.parquet")
        np.testing.assert_array_equal(pd.read_parquet(tmp_path / "found.parquet")["cost_bound"], expected)

    def test_outcomes_of_a_dask_frame_are_matched_by_name_or_taken_in_order(self):
        dd = pytest.importorskip("dask.dataframe")
        robust = decider(NAMED, first_two).fit(X_FRAME, Y_FRAME)
        expected = robust.recalibrate(X_FRAME, Y_FRAME).radius_
        rows = pd.concat([X_FRAME, Y_FRAME, Y_FRAME.add_suffix("_true")], axis=1)
        table = dd.from_pandas(rows, npartitions=2)
        for names in (["cooling", "heating"], ["heating_true", "cooling_true"]):
            assert robust.recalibrate(table, names).radius_ == expected
        with pytest.raises(ValueError, match=r"and so cooling for heating"):
            robust.recalibrate(table, ["cooling", "heating_true"])


# --- Ctrl-C -----------------------------------------------------------------------------------------------


def interrupt_at_call(monkeypatch, owner, name, number):
    """Ctrl-C in the middle of the given call of a function."""
    calls, real = itertools.count(1), getattr(owner, name)

    def interrupted(*args, **kwargs):
        if next(calls) == number:
            raise KeyboardInterrupt("Ctrl-C")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


class TestInterrupts:
    def test_ctrl_c_while_learning_reaches_the_caller_and_leaves_no_radius(self, monkeypatch):
        robust = ph.RobustDecider(LINEAR, "precomputed", learner=OneSidedBox(), random_state=0).fit(CENTERS, Y)
        robust.set_params(learner=Descent(n_steps=20))
        interrupt_at_call(monkeypatch, Samples, "facet_gradient", 5)
        with pytest.raises(KeyboardInterrupt, match="Ctrl-C"):
            robust.fit(CENTERS, Y)
        assert not hasattr(robust, "radius_")
        with pytest.raises(NotFittedError, match="is not fitted"):
            check_is_fitted(robust)

    def test_an_interrupt_outside_the_learner_leaves_nothing_of_an_earlier_fit(self, monkeypatch):
        robust = decider(predictor=LinearRegression()).fit(X_FRAME, Y_FRAME)
        interrupt_at_call(monkeypatch, LinearRegression, "fit", 1)
        with pytest.raises(KeyboardInterrupt, match="Ctrl-C"):
            robust.fit(CENTERS, Y)
        assert [name for name in vars(robust) if name.endswith("_")] == []
        with pytest.raises(NotFittedError, match=r"interrupted or failed before it had a radius\. Call fit"):
            robust.decide(CENTERS)
        interrupt_at_call(monkeypatch, Polyhedron, "scores", 1)
        with pytest.raises(KeyboardInterrupt, match="Ctrl-C"):
            robust.set_params(learner=Given(ph.Box([1.0, 1.0]).as_polyhedron())).fit(CENTERS, Y)
        assert not hasattr(robust, "radius_")
