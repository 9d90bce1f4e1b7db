"""What crosses the border of the decider: groups, names and levels; nothing goes wrong in silence."""

import numpy as np
import pytest

import polyhedge as ph
from polyhedge.learners import OneSidedBox

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
        with pytest.raises(ValueError, match="groups must be labels of one kind.*label of their own"):
            decider().fit(CENTERS, Y, groups=np.array(["a", None] * 60, dtype=object))
