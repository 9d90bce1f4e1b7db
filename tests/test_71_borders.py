"""What crosses the border of the decider: groups, names and levels; nothing goes wrong in silence."""

import json
import zipfile

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.io.archive import pack
from polyhedge.learners import Descent, OneSidedBox
from polyhedge.report.model import model_report
from polyhedge.words import promise_in_words

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

    def test_rows_in_no_part_may_belong_to_any_group(self):
        groups = np.arange(120) // 2
        decider().fit(CENTERS, Y, groups=groups, learn=np.arange(40), calibrate=np.arange(40, 119))

    def test_too_few_groups_to_calibrate_are_an_error_before_anything_is_learned(self):
        class NeverAsked:
            def learn(self, *arguments, **settings):
                raise AssertionError("nothing should be learned")

        robust = ph.RobustDecider(LINEAR, "precomputed", learner=NeverAsked(), random_state=0)
        with pytest.raises(ValueError, match="needs at least 9 calibration groups, got 6"):
            robust.fit(CENTERS, Y, groups=np.arange(120) // 10)

    def test_labels_of_mixed_kinds_are_refused(self):
        with pytest.raises(ValueError, match=r"groups must be labels of one kind.*label of their own"):
            decider().fit(CENTERS, Y, groups=np.array(["a", None] * 60, dtype=object))


# --- the level, and other settings that change after fit ----------------------------------------------------


class TestLevel:
    def test_a_level_set_after_fit_promises_nothing_before_recalibration(self, tmp_path):
        robust = decider().fit(CENTERS, Y)
        before = str(robust.evaluate(CENTERS, Y))
        robust.set_params(alpha=0.4)
        assert robust.alpha_ == 0.1
        assert str(robust.evaluate(CENTERS, Y)) == before
        assert "at least 90 %" in promise_in_words(robust)[0]
        assert "90 %" in model_report(robust, CENTERS, Y)
        robust.save(tmp_path / "m.polyhedge")
        assert ph.inspect_model(tmp_path / "m.polyhedge").alpha == 0.1
        assert ph.load(tmp_path / "m.polyhedge").get_params()["alpha"] == 0.1

    def test_recalibration_takes_the_present_level_and_the_trail_keeps_both(self, tmp_path):
        robust = decider().fit(CENTERS, Y).set_params(alpha=0.4).recalibrate(CENTERS, Y)
        scores = robust.set_.scores(robust.residuals(CENTERS, Y))
        assert robust.radius_ == ph.conformal_radius(scores, 0.4)
        assert robust.evaluate(CENTERS, Y).promised == pytest.approx(0.6)
        assert [entry.alpha for entry in robust.calibrations_] == [0.1, 0.4]
        robust.save(tmp_path / "m.polyhedge")
        assert ph.load(tmp_path / "m.polyhedge").calibrations_ == robust.calibrations_
        assert "for alpha 0.4 from 120 rows" in str(ph.inspect_model(tmp_path / "m.polyhedge"))

    def test_the_one_level_of_an_older_file_is_that_of_its_radii(self, tmp_path):
        robust = decider(alpha=0.2).fit(CENTERS, Y)
        robust.save(tmp_path / "new.polyhedge")
        with zipfile.ZipFile(tmp_path / "new.polyhedge") as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != "digest.txt"}
        state = json.loads(members["model.json"])
        state["schema"], state["alpha"] = 2, state["calibrations"][0].pop()
        members["model.json"] = json.dumps(state).encode()
        (tmp_path / "old.polyhedge").write_bytes(pack(members))
        assert ph.load(tmp_path / "old.polyhedge").calibrations_ == robust.calibrations_
        assert ph.inspect_model(tmp_path / "old.polyhedge").alpha == 0.2

    def test_nothing_that_is_set_after_fit_changes_what_was_fitted(self, tmp_path):
        settings = {"learner": Descent(n_steps=3), "random_state": 5, "split": (0.4, 0.3, 0.3)}
        robust = ph.RobustDecider(LINEAR, LinearRegression(), **settings).fit(CENTERS, Y)
        before, page = robust.decide(CENTERS), model_report(robust, CENTERS, Y)
        robust.save(tmp_path / "before.polyhedge")
        other = ph.problems.newsvendor(1.0, 2.0, 3)
        robust.set_params(problem=other, predictor=None, alpha=0.5, learner=None, split=(0, 0, 1), random_state=None)
        np.testing.assert_array_equal(robust.decide(CENTERS).cost_bound, before.cost_bound)
        np.testing.assert_array_equal(robust.measure(CENTERS, Y).cost_bound, before.cost_bound)
        assert model_report(robust, CENTERS, Y) == page
        robust.save(tmp_path / "after.polyhedge")
        infos = [ph.inspect_model(tmp_path / f"{name}.polyhedge") for name in ("before", "after")]
        assert infos[0].settings == infos[1].settings
        assert infos[0].problem_name == infos[1].problem_name
