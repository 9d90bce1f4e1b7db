"""What comes back behaves as a pandas user expects: frames, slices, numbers, tables in a notebook."""

import copy
import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.evaluation import Estimate, Proportion
from polyhedge.planning.report import Entry, PolicyReport
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
    with pytest.raises(IndexError, match=r"There are 25 decisions, counted from 0, got 25"):
        decisions[25]
    with pytest.raises(KeyError, match="There is no variable 'power'"):
        decisions["power"]


def test_a_column_is_selected_by_the_name_that_it_has_in_the_frame(fitted):
    decider, X, _ = fitted
    decisions = decider.decide(X[:5])
    np.testing.assert_array_equal(decisions["z_oil"], decisions.to_frame()["z_oil"])


def test_a_frame_has_every_decision_bound_and_status(decisions):
    frame = decisions.to_frame()
    assert frame.columns.tolist() == ["z_1", "z_2", "cost_bound", "worst_u_1", "worst_u_2", "status", "note"]
    np.testing.assert_array_equal(frame[["z_1", "z_2"]], decisions.z)
    np.testing.assert_array_equal(frame["cost_bound"], decisions.cost_bound)
    assert set(frame["status"]) == {"optimal"}


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


def test_decisions_have_the_callers_index_and_the_names_of_problem_and_outcomes(fitted):
    decider, X, _ = fitted
    decisions = decider.decide(X)
    frame = decisions.to_frame()
    pd.testing.assert_index_equal(frame.index, X.index)
    assert frame.columns.tolist() == ["z_steel", "z_oil", "cost_bound", "worst_steel", "worst_oil", "status", "note"]
    assert decisions[3].label == 1253
    assert re.fullmatch(r"1253: z_steel = .*, z_oil = .* costs at most .*, held in 9 of 10", str(decisions[3]))
    assert "costs at most its bound, held in 9 of 10" in decisions._repr_html_()


def test_a_series_by_the_names_of_the_features_is_one_row(fitted):
    decider, X, _ = fitted
    shuffled = X.iloc[4][X.columns[::-1]]
    one = decider.decide(shuffled)
    assert one.to_frame().index.tolist() == [1254]
    np.testing.assert_array_equal(one.cost_bound, decider.decide(X.iloc[[4]]).cost_bound)
    np.testing.assert_array_equal(decider.region(shuffled).center, decider.region(X.iloc[[4]]).center)


def test_a_decision_called_like_a_column_of_ours_keeps_its_own():
    problem = PROBLEM.labelled(decision_names=["status", "cost_bound"])
    Y = np.random.default_rng(0).normal(size=(100, 2))
    decider = ph.RobustDecider(problem, "precomputed", learner=ph.learners.OneSidedBox(), random_state=0).fit(Y, Y)
    decisions = decider.decide(Y)
    np.testing.assert_array_equal(decisions.to_frame()[["status_", "cost_bound_"]], decisions.z)


def as_frame_of(library: str, frame: pd.DataFrame):
    if library == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_another_library_come_back_as_they_came(fitted, library):
    _, X, Y = fitted
    again = ph.RobustDecider(PROBLEM, learner=ph.learners.OneSidedBox(), random_state=0)
    again.fit(as_frame_of(library, X), as_frame_of(library, Y))
    same = ph.RobustDecider(PROBLEM, learner=ph.learners.OneSidedBox(), random_state=0).fit(X, Y)
    decisions = again.decide(as_frame_of(library, X))
    assert type(decisions.to_frame()).__module__.split(".")[0] == library
    np.testing.assert_array_equal(decisions.cost_bound, same.decide(X).cost_bound)
    assert again.evaluate(as_frame_of(library, X), as_frame_of(library, Y)).coverage == same.evaluate(X, Y).coverage
    again.recalibrate(as_frame_of(library, X), as_frame_of(library, Y))


# PyArrow asks the newest pandas for dates with a zone in a way that it will not answer for ever.
@pytest.mark.filterwarnings("ignore:Series.values returning an ndarray")
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_another_library_serve_wherever_pandas_frames_do(fitted, library):
    decider, X, Y = fitted
    mine, theirs = (as_frame_of(library, frame) for frame in (X, Y))
    row = mine[:1]
    np.testing.assert_array_equal(decider.model_.features(row), X[:1])
    day = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=len(X), freq="D", tz="Europe/Berlin")})
    column = as_frame_of(library, day)["day"]
    settings = {"learner": ph.learners.OneSidedBox(), "random_state": 0}
    given, own = (
        ph.RobustDecider(PROBLEM, split=ph.data.TimeSplit(times=times), **settings).fit(X, Y)
        for times in (column, day["day"].set_axis(X.index))
    )
    assert given.radius_ == own.radius_
    assert given.region(row).radius == own.region(X[:1]).radius
    came = given.update(mine, theirs, given.decide(mine))
    assert str(came) == str(own.update(X, Y, own.decide(X)))


@pytest.mark.needs("pyarrow")
def test_rows_that_are_not_in_memory_are_refused(fitted):
    import pyarrow.dataset

    decider, X, _ = fitted
    lazy = pyarrow.dataset.dataset(as_frame_of("pyarrow", X))
    with pytest.raises(TypeError, match=r"Rows must be in memory, got InMemoryDataset. Call collect\(\)"):
        decider.decide(lazy)


def test_printing_a_decider_tells_in_words_what_was_learned_and_promised(fitted):
    decider, _, _ = fitted
    told = str(decider)
    assert told == decider.summary()
    for text in (
        "problem    simplex linear: decides z_steel, z_oil",
        "outcomes   steel, oil",
        "predictor  smooth-ridge (",
        "rows       125 train and learn, 125 calibrate",
        "promise    each decision costs at most its bound, held in 9 of 10",
        "exactly    the bound holds for a new row with probability at least 0.9",
    ):
        assert text in told
    assert str(clone(decider)) == repr(clone(decider))
    with pytest.raises(NotFittedError, match=r"Call fit\(X, Y\) before summary"):
        clone(decider).summary()


def test_the_report_of_a_policy_and_a_backtest_are_tables():
    entries = (Entry("trust", 3.0, 1.5, 0.0), Entry("<b>mean</b>", 2.0, 1.0, 1.0))
    report = PolicyReport(entries, 0.1, 0.5, 200)
    assert report.to_frame()["bound"].tolist() == [3.0, 2.0]
    assert report._repr_html_().count("<tr") == 2
    assert "<b>" not in report._repr_html_()
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(1))
    decider = ph.RobustDecider(PROBLEM, learner=ph.learners.OneSidedBox(), random_state=0)
    tested = ph.backtest(decider, X, Y, every=50, start=200)
    assert tested._repr_html_().count("<tr") == 1 + len(tested.periods)
    assert "promised 0.9" in tested._repr_html_()


@pytest.fixture(scope="module")
def worked(tmp_path_factory) -> dict[str, Any]:
    """What a notebook shows after a fit, a decision, an evaluation, an update and a backtest."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=300), "town": rng.choice(["a", "b"], 300)})
    Y = pd.DataFrame({"u": X["x"] + rng.normal(size=300), "v": rng.normal(size=300)})
    problem, learner = ph.problems.simplex_linear([0.0, 0.1]), ph.learners.OneSidedBox()
    fitted = ph.RobustDecider(problem, LinearRegression(), learner=learner, random_state=0).fit(X[["x"]][:200], Y[:200])
    rows, came = X[["x"]][200:], Y[200:]
    return {
        "decision": fitted.decide(rows)[0],
        "decisions": fitted.decide(rows),
        "evaluation": fitted.evaluate(rows, came, by=X["town"][200:]),
        "measured": fitted.measure(rows, came),
        "followed": fitted.update(rows, came),
        "learned": fitted.learn_result_,
        "model": fitted.model_,
        "region": fitted.region(rows.iloc[0]),
        "split": fitted.split_,
        "backtest": ph.backtest(fitted, X[["x"]], Y, every=50),
        "log": ph.OutcomeLog(tmp_path_factory.mktemp("log") / "log.db", fitted),
    }


def test_nothing_prints_a_wall_of_numbers(worked):
    for name, thing in worked.items():
        shown = repr(thing)
        assert shown.startswith("<"), name
        assert len(shown) < 300, name
        assert "\n" not in shown, name
        assert "array(" not in shown, name
