"""Pictures: they show what the numbers say, for every shape, and nothing pops up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import polyhedge as ph
from polyhedge.learners import OneSidedBox, PcaBox
from polyhedge.plots.outline import frame_of, projection
from polyhedge_study import synthetic_task
from polyhedge_study.nets import ConvexNet

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib.path import Path  # noqa: E402

from polyhedge_study.baselines.union_of_balls import UnionOfBalls  # noqa: E402

FRAME = np.full(2, -50.0), np.full(2, 50.0)
SHAPES = {
    "polyhedron": ph.Polyhedron(np.vstack([np.eye(3), -np.ones((1, 3)), [[1.0, 2.0, -1.0]]]), np.zeros(5)),
    "box": ph.Box([1.0, 2.0, 0.5]),
    "ball 1": ph.Ball(3, norm=1),
    "ball 2": ph.Ball(3),
    "ball inf": ph.Ball(3, norm=np.inf),
    "ellipsoid": ph.Ellipsoid(np.diag([1.0, 4.0, 0.5])),
    "union": UnionOfBalls([[0.0, 1.0, 0.0], [2.0, -1.0, 1.0]]),
    "network": ConvexNet(
        A1=[[1.0, 0.5, 0.0], [-1.0, 0.0, 2.0]],
        k1=[0.1, 0.0],
        C2=np.eye(2),
        A2=np.zeros((2, 3)),
        k2=[0.0, 0.0],
        w3=[1.0, 0.5],
        k3=0.0,
        slope=0.5,
    ),
}
DISCS = UnionOfBalls([[-2.0, 0.0], [2.0, 0.0]])


@pytest.fixture(autouse=True)
def _no_figure_is_left() -> Iterator[None]:
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture(scope="module")
def two() -> tuple[ph.RobustDecider, np.ndarray, np.ndarray]:
    return fitted(2)


@pytest.fixture(scope="module")
def four() -> tuple[ph.RobustDecider, np.ndarray, np.ndarray]:
    return fitted(4, PcaBox())


def fitted(d: int, learner=None) -> tuple[ph.RobustDecider, np.ndarray, np.ndarray]:
    task = synthetic_task(0, n_outcomes=d, sizes=(200, 60, 60, 100))
    split, learner = task.split, learner or OneSidedBox()
    decider = ph.RobustDecider(task.problem, task.predictor, learner=learner, guarantee="outcome", random_state=0)
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    return decider, *task.rows("test")


def texts(ax) -> str:
    legend = ax.get_legend()
    words = [ax.get_xlabel(), ax.get_ylabel(), ax.get_title(), *(t.get_text() for t in ax.texts)]
    return " ".join([*words, *(t.get_text() for t in legend.get_texts())] if legend else words)


# --- outlines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_outline_has_the_support_of_the_set_along_every_direction_of_the_plane(name: str) -> None:
    shape, angles = SHAPES[name], np.linspace(0, 6, 41)
    V = np.column_stack([np.cos(angles), np.sin(angles)])
    full = np.zeros((len(V), 3))
    full[:, [0, 2]] = V
    corners = projection(shape, 1.5, (0, 2), FRAME)
    # Between the tangents that are drawn, a corner may stand out by a share of 1 - cos(half a degree).
    np.testing.assert_allclose((V @ corners.T).max(axis=1), shape.support(full, 1.5), rtol=1e-2)


def test_outline_of_a_polygon_is_exact() -> None:
    shape = ph.Polyhedron([[1.0, 0.3], [-0.2, 1.0], [-1.0, -1.0]], [0.0, 0.1, 0.2])
    corners = projection(shape, 1.0, (0, 1), FRAME)
    expected = shape.vertices(1.0)
    np.testing.assert_allclose(corners[np.lexsort(corners.T)], expected[np.lexsort(expected.T)], atol=1e-9)


@pytest.mark.parametrize("d", [2, 3])
def test_outline_of_a_half_space_ends_at_the_frame(d: int) -> None:
    normal = np.array([[1.0, 0.37, 0.0][:d]])
    corners = projection(ph.Polyhedron(normal, [0.0]), 1.0, (0, 1), FRAME)
    assert (corners @ normal[0, :2]).max() == pytest.approx(1.0)
    assert corners.min() == pytest.approx(-50.0)


def test_empty_set_has_no_outline_and_says_so() -> None:
    assert len(projection(ph.Ball(3), -1.0, (0, 1), FRAME)) == 0
    ax = ph.plots.sets_over_residuals({"mine": (ph.Ball(2), -1.0)}, np.random.default_rng(0).normal(size=(50, 2)))
    assert "mine: empty" in texts(ax)


def test_frame_ignores_a_few_far_points() -> None:
    points = np.vstack([np.random.default_rng(0).normal(size=(2000, 2)), [[1e6, 1e6]]])
    low, high = frame_of(points)
    assert high.max() < 10
    assert low.min() > -10


# --- sets over residuals ----------------------------------------------------------------------------------


def test_set_that_is_not_convex_is_drawn_as_it_is() -> None:
    residuals = np.random.default_rng(0).normal(size=(200, 2)) * 2
    ax = ph.plots.sets_over_residuals({"discs": (DISCS, 0.8)}, residuals)
    outlines = [path for contour in ax.collections for path in contour.get_paths()]
    assert any(path.contains_point((2.0, 0.0)) for path in outlines)
    assert not any(path.contains_point((0.0, 0.0)) for path in outlines if len(path.vertices) > 100)


def test_first_set_is_filled_and_its_coverage_is_in_the_legend(two) -> None:
    decider, X, Y = two
    ax = ph.plots.residual_set(decider, X, Y)
    inside = decider.set_.contains(Y - decider.predictor_.predict(X), decider.radius_).mean()
    assert f"({100 * inside:.1f} %)" in " ".join(ax.get_legend_handles_labels()[1])
    assert "u_1: outcome minus prediction" in texts(ax)
    assert "costlier this way" in ax.get_legend_handles_labels()[1]


def test_one_outcome_is_an_interval_over_a_histogram() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    problem = ph.problems.newsvendor(1.0, 3.0, 1, nonnegative_demand=False)
    decider = ph.RobustDecider(problem, "precomputed", learner=OneSidedBox(), random_state=0)
    decider.fit(X, X + rng.normal(size=(200, 1)))
    assert "the set:" in texts(ph.plots.residual_set(decider, X, (X + rng.normal(size=(200, 1)))[:, 0]))


def test_every_pair_of_outcomes_gets_its_picture(four) -> None:
    decider, X, Y = four
    axes = ph.plots.residual_pairs(decider, X, Y)
    labels = {(ax.get_xlabel(), ax.get_ylabel()) for ax in axes}
    assert len(labels) == 6
    assert ("u_1", "u_4") in labels


def test_crosses_lie_outside_what_is_drawn_also_where_there_are_more_outcomes(four) -> None:
    decider, X, Y = four
    residuals, inside = decider.residuals(X, Y), decider.set_.contains(decider.residuals(X, Y), decider.radius_)
    ax = ph.plots.sets_over_residuals({"the set": (decider.set_, decider.radius_)}, residuals)
    shadow = Path(ax.patches[0].get_xy())
    marks = {handle.get_label().partition(" (")[0]: handle.get_offsets() for handle in ax.collections}
    assert not shadow.contains_points(marks["outside"]).any()
    assert shadow.contains_points(marks["outside, by other outcomes"]).all()
    assert len(marks["outside"]) + len(marks["outside, by other outcomes"]) == (~inside).sum()


def test_given_axes_are_used_and_nothing_is_shown(two, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("a picture was shown"))
    decider, X, Y = two
    for draw in (
        lambda ax: ph.plots.residual_set(decider, X, Y, ax=ax),
        lambda ax: ph.plots.cost_coverage(decider, X, Y, ax=ax),
        lambda ax: ph.plots.decision_map(decider, X, resolution=5, ax=ax),
        lambda ax: ph.plots.regions(decider, X[0], ax=ax),
    ):
        ax = matplotlib.figure.Figure().add_subplot()
        assert draw(ax) is ax
    assert not plt.get_fignums()


# --- regions ----------------------------------------------------------------------------------------------


def test_regions_of_several_deciders_share_a_picture(two) -> None:
    decider, X, _ = two
    text = texts(ph.plots.regions({"one": decider, "other": decider}, X[0]))
    assert "worst outcome, one" in text
    assert "other" in text


# --- directions, curves, maps -----------------------------------------------------------------------------


def test_directions_are_those_of_the_decisions_with_their_shares(two) -> None:
    decider, X, _ = two
    directions, shares = ph.plots.cost_directions(decider, X)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0)
    assert shares.sum() == pytest.approx(1.0)
    assert (directions >= -1e-12).all()  # the cost rises with both outcomes


def test_cost_bound_rises_with_the_promise_and_has_the_deciders_own_at_its_radius(two) -> None:
    decider, X, Y = two
    curve = ph.plots.cost_curve(decider, X, Y, alphas=(0.5, 0.2, 0.1))
    assert (np.diff(curve.cost_bound) >= 0).all()
    at_level = ph.robust.decide(decider.problem, decider.set_, curve.radii[2], decider.predictor_.predict(X))
    assert curve.cost_bound[2] == pytest.approx(at_level.cost_bound.mean())
    assert curve.oracle <= min(curve.nominal, curve.realised.min())
    assert not curve.is_fixed


def test_the_mean_cost_of_a_policy_is_shown_to_be_the_same_at_every_level() -> None:
    Y = np.random.default_rng(0).normal(size=(300, 2))
    decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0)
    decider.fit(Y[:200] / 2, Y[:200])
    curve = ph.plots.cost_curve(decider, Y[200:] / 2, Y[200:], alphas=(0.5, 0.2, 0.1))
    assert curve.is_fixed
    assert (np.diff(curve.cost_bound) > 0).all()
    labels = ph.plots.cost_coverage(decider, Y[200:] / 2, Y[200:]).get_legend_handles_labels()[1]
    assert "mean realised cost, the same at every level" in labels


def test_levels_that_need_more_rows_are_left_out_and_all_of_them_is_an_error(two) -> None:
    decider, X, Y = two
    assert ph.plots.cost_curve(decider, X[:20], Y[:20], alphas=(0.5, 0.01)).alphas.tolist() == [0.5]
    with pytest.raises(ValueError, match=r"5 rows are too few .* alpha=0.01 needs at least 99"):
        ph.plots.cost_curve(decider, X[:5], Y[:5], alphas=(0.01,))


@pytest.mark.parametrize("show", [None, 1, "cost_bound"])
def test_decision_map_shows_what_is_asked(two, show) -> None:
    decider, X, _ = two
    ax = ph.plots.decision_map(decider, X, show=show, resolution=6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 1", "feature 2")


def test_decision_map_of_a_frame_takes_names_and_keeps_text_columns() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.normal(size=120), "kind": ["x", "y", "x"] * 40, "b": rng.normal(size=120)})
    seen = []

    def predict(X):
        seen.append(X)
        return X[["a", "b"]].to_numpy()

    decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), predict, learner=OneSidedBox(), random_state=0)
    decider.fit(frame, frame[["a", "b"]].to_numpy() + rng.normal(size=(120, 2)))
    ax = ph.plots.decision_map(decider, frame, ("a", "b"), resolution=4)
    assert ax.get_ylabel() == "b"
    assert set(seen[-1]["kind"]) == {"x"}
    with pytest.raises(ValueError, match=r"There is no feature 'c'\. Choose from: a, kind, b"):
        ph.plots.decision_map(decider, frame, ("a", "c"))


def test_an_evaluation_draws_each_bound_against_its_cost():
    """As many crosses as rows that broke their bound, all above the line."""
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(3))
    problem = ph.problems.simplex_linear([0.0, 0.0])
    decider = ph.RobustDecider(problem, learner=OneSidedBox(), alpha=0.3, random_state=0).fit(X[:200], Y[:200])
    evaluation = decider.evaluate(X[200:], Y[200:])
    held, broken = (dots.get_offsets() for dots in evaluation.plot().collections)
    assert len(held) + len(broken) == 100
    assert len(broken) == round(100 * (1 - evaluation.bound_held)) > 0
    assert (broken[:, 1] > broken[:, 0]).all()
    with pytest.raises(ValueError, match=r"RobustDecider\.evaluate"):
        decider.measure(X[200:], Y[200:]).summary(0.3).plot()
