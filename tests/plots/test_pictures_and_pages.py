"""Pictures and pages show what is decided: every direction that hurts, where features are held, rows with decisions."""

import re

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.app.report import model_report
from polyhedge.learners import OneSidedBox
from polyhedge.plots.directions import cost_directions

pytestmark = pytest.mark.needs("matplotlib")


@pytest.fixture(scope="module")
def plant():
    """Two plants whose shortage costs four times what idling costs; loads depend on an area and a flag."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"area": rng.uniform(1.0, 3.0, 300), "old": rng.random(300) < 0.5})
    level = 5 + 3 * X["area"].to_numpy() + 4 * X["old"].to_numpy()
    Y = pd.DataFrame(level[:, None] + rng.normal(size=(300, 2)), columns=["heating", "cooling"])
    problem = ph.problems.newsvendor(1.0, 4.0, names=["heating", "cooling"], nonnegative_demand=False)
    decider = ph.RobustDecider(problem, learner=OneSidedBox(), random_state=0, guarantee="outcome")
    return decider.fit(X[:220], Y[:220]), X[220:], Y[220:]


@pytest.fixture(autouse=True)
def _no_window():
    import matplotlib as mpl

    mpl.use("Agg")


def test_every_direction_that_binds_has_an_arrow_not_only_that_of_one_worst_outcome(plant):
    decider, X, _ = plant
    directions, shares = cost_directions(decider, X)
    # A shortage costs four, idling one: both loads up hurts, and so does either while the other idles.
    assert (directions[shares > 0.5].max(axis=0) > 0).all()
    decided = decider.decide(X)
    pieces, z = decider.problem_.pieces, decided.flat[:1]
    slopes = pieces.directions(z)[0]
    worst = np.asarray(decider.set_.support(slopes, decider.radius_)) + pieces.values(z, decider.centers(X.iloc[:1]))[0]
    binding = slopes[worst >= worst.max() - 1e-6 * np.abs(worst).max()]
    for slope in binding / np.linalg.norm(binding, axis=1, keepdims=True):
        assert (directions @ slope).max() > np.cos(np.deg2rad(6.1))
    assert len(binding) > 1


def test_the_legend_of_a_picture_of_a_set_hides_no_rows(plant):
    decider, X, Y = plant
    ax = ph.plots.residual_set(decider, X, Y)
    assert ax.get_legend() is None
    assert ax.figure.legends[0].get_texts()[0].get_text().startswith("the set")


def test_a_set_that_is_cropped_says_so():
    wide = ph.Polyhedron(np.array([[1.0, 0.0], [0.0, 1.0], [-0.01, 0.0], [0.0, -0.01]]), np.zeros(4))
    residuals = np.random.default_rng(0).normal(size=(200, 2))
    for shape, said in ((wide, True), (ph.Box([1.0, 1.0]), False)):
        ax = ph.plots.sets_over_residuals({"the set": (shape, 1.0)}, residuals)
        assert ("beyond the picture" in ax.get_legend_handles_labels()[1][0]) is said


def test_a_map_says_where_features_are_held_and_draws_a_flag_at_its_two_values(plant):
    decider, X, _ = plant
    ax = ph.plots.decision_map(decider, X, ("area", "old"), resolution=5)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["no", "yes"]
    numbers = X.assign(old=X["old"].astype(float))
    with_more = ph.RobustDecider(decider.problem, learner=OneSidedBox(), random_state=0, guarantee="outcome")
    frame = numbers.assign(width=numbers["area"] * 2)
    with_more.fit(frame, plant[2])
    assert re.fullmatch(
        r"held at: width = \d\.\d+", ph.plots.decision_map(with_more, frame, ("area", "old")).get_title(loc="left")
    )


def test_outcomes_of_a_page_are_known_by_name_and_must_be_of_its_rows(plant):
    decider, X, Y = plant
    page = model_report(decider, X[:20], Y[:20])
    assert model_report(decider, X[:20], Y[:20][["cooling", "heating"]]) == page
    with pytest.raises(ValueError, match="X and Y must hold the same rows in the same order"):
        model_report(decider, X[:20], Y[20:40])


@pytest.mark.needs("polars")
def test_pages_take_frames_of_polars(plant, tmp_path):
    import polars as pl

    decider, X, Y = plant
    decider.report(tmp_path / "page.html", pl.from_pandas(X[:40]), pl.from_pandas(Y[:40]))
    assert "Bound held" in (tmp_path / "page.html").read_text(encoding="utf-8")
