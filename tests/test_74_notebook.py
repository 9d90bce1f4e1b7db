"""What comes back behaves as a pandas user expects: frames, slices, numbers, tables in a notebook."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.metrics import Estimate, Proportion
from polyhedge.robust import decide
from polyhedge.sets import Box

PROBLEM = ph.problems.simplex_linear([0.0, 0.0])
CENTERS = np.random.default_rng(0).normal(size=(25, 2))


@pytest.fixture(scope="module")
def decisions():
    return decide(PROBLEM, Box([1.0, 0.5]), 0.5, CENTERS)


def test_rows_slices_masks_and_names_select(decisions):
    np.testing.assert_array_equal(decisions[3:7].z, decisions.z[3:7])
    cheap = decisions.cost_bound < np.median(decisions.cost_bound)
    np.testing.assert_array_equal(decisions[cheap].cost_bound, decisions.cost_bound[cheap])
    np.testing.assert_array_equal(decisions[[4, 1]].gap, decisions.gap[[4, 1]])
    assert decisions[-1].cost_bound == decisions.cost_bound[-1]
    np.testing.assert_array_equal(decisions[np.int64(2)].z, decisions.z[2])
    with pytest.raises(IndexError, match="range"):
        decisions[25]
    with pytest.raises(KeyError, match="There is no variable 'power'"):
        decisions["power"]


def test_iterating_goes_over_all_rows_once(decisions):
    assert [row.cost_bound for row in decisions] == decisions.cost_bound.tolist()
    assert [row.label for row in decisions] == list(range(25))


def test_a_frame_has_every_decision_bound_and_status(decisions):
    frame = decisions.to_frame()
    assert frame.columns.tolist() == ["z_1", "z_2", "cost_bound", "worst_u_1", "worst_u_2", "status", "note"]
    np.testing.assert_array_equal(frame[["z_1", "z_2"]], decisions.z)
    np.testing.assert_array_equal(frame["cost_bound"], decisions.cost_bound)
    assert set(frame["status"]) == {"optimal"}


@pytest.mark.needs("pyarrow")
def test_frames_of_another_library_on_request(decisions):
    assert decisions.to_frame("pyarrow").column_names == decisions.to_frame().columns.tolist()


def test_an_unknown_library_is_refused_by_name(decisions):
    with pytest.raises(ValueError, match="backend must be one of pandas, polars, pyarrow, got 'excel'"):
        decisions.to_frame("excel")


def test_printing_is_short_whatever_the_number_of_rows(decisions):
    assert repr(decisions).startswith("<Decisions: 25 rows, 25 optimal, cost bounds ")
    assert len(str(decisions).splitlines()) == 12
    assert str(decisions).splitlines()[-1] == "... 15 more rows: to_frame() has all"
    assert decisions._repr_html_().count("<tr") == 11


@pytest.mark.parametrize("number", [Proportion(0.9, 0.85, 0.95, 400), Estimate(0.9, 0.01)])
def test_figures_are_numbers(number):
    assert (number > 0.8, float(number), round(number, 1), f"{number:.3f}") == (True, 0.9, 0.9, "0.900")
    assert number + 1 == 1.9
    for twin in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert repr(twin) == repr(number)


def test_an_error_of_rounding_is_not_shown():
    assert str(Estimate(0.9701, 1.7e-17)) == "0.9701"
    assert str(Estimate(0.9701, 0.012)) == "0.9701 ± 0.012"


@pytest.fixture(scope="module")
def fitted():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(1))
    names = [f"x{k}" for k in range(X.shape[1])]
    X = pd.DataFrame(X, columns=names, index=pd.Index(range(1000, 1300), name="case"))
    Y = pd.DataFrame(Y, columns=["steel", "oil"], index=X.index)
    decider = ph.RobustDecider(PROBLEM, learner=ph.learners.OneSidedBox(), random_state=0)
    return decider.fit(X[:250], Y[:250]), X[250:], Y[250:]


def test_an_evaluation_is_a_table(fitted):
    decider, X, Y = fitted
    evaluation = decider.evaluate(X, Y)
    frame = evaluation.to_frame()
    assert frame.loc["coverage", "value"] == float(evaluation.coverage)
    assert frame.loc["realised_cost", "standard_error"] == evaluation.realised_cost.standard_error
    assert "coverage" in evaluation._repr_html_()
