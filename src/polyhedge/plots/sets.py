"""Sets over the residuals they were made for, and regions of outcomes around one prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.validation import Array, Mask, as_rows
from polyhedge.estimator import RobustDecider
from polyhedge.plots.directions import cost_directions
from polyhedge.plots.outline import Frame, draw_set, frame_of, placed_set
from polyhedge.plots.style import BLUE, CYCLE, GREEN, GREY, RED, new_axes, plain, pyplot, tidy
from polyhedge.problems.checks import check_outcomes
from polyhedge.rows import one_row
from polyhedge.sets import Shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Ten pairs: the most that can be distinguished on a screen.
_MOST_OUTCOMES = 5
# More dots hide one another and make vector files large.
_MOST_DOTS = 3000
# A picture of regions reaches this many times the distance from the prediction to their nearest side.
_ROOM = 4.0


def sets_over_residuals(
    sets: Mapping[str, tuple[Shape, float]],
    residuals: ArrayLike,
    *,
    pair: tuple[int, int] = (0, 1),
    outcome_names: Sequence[str] | None = None,
    directions: tuple[Array, Array] | None = None,
    unit: str = "outcome minus prediction",
    ax: Axes | None = None,
) -> Axes:
    """Draw sets of residuals, their shadows on two outcomes where there are more, over residuals.

    Parameters
    ----------
    sets : name -> (shape, radius); the first is filled, and residuals outside it are crosses. Residuals that lie in
        its shadow, and outside the set in other outcomes than these two, are circles.
    residuals : (n, d)
        Outcome minus prediction, of rows that made none of the sets.
    pair : the two outcomes that are drawn, counted from 0.
    outcome_names : one name for each outcome.
    directions : (k, d) and (k,), optional
        Directions in which a rising outcome raises the cost, and how often each matters: drawn as arrows.
    unit : what the residuals are, for the axes.
    ax : matplotlib axes, new ones if None.

    Returns
    -------
    Axes
        Nothing is shown.

    Examples
    --------
    >>> from polyhedge.sets import Box
    >>> residuals = np.random.default_rng(0).normal(size=(50, 2))
    >>> ax = sets_over_residuals({"box": (Box([1.0, 1.0]), 1.5)}, residuals)
    >>> ax.get_ylabel()
    'outcome 2: outcome minus prediction'
    """
    shapes = list(sets.values())
    rows = as_rows(residuals, "residuals", shapes[0][0].n_outcomes)
    i, j = _checked(pair, rows.shape[1])
    names = [f"outcome {k + 1}" for k in range(rows.shape[1])] if outcome_names is None else outcome_names
    ax = new_axes(ax)
    frame = frame_of(np.vstack([rows[:, [i, j]], *(_reach(shape, r, (i, j), rows) for shape, r in shapes)]))
    drawn = [draw_set(ax, *one, (i, j), frame, label, k) for k, (label, one) in enumerate(sets.items())]
    _dots(ax, rows[:, [i, j]], shapes[0][0].contains(rows, shapes[0][1]), drawn[0] if rows.shape[1] > 2 else None)
    ax.plot(0, 0, marker="+", color=RED, markersize=11, markeredgewidth=1.8, linestyle="none", label="prediction")
    if directions is not None:
        _arrows(ax, directions[0][:, [i, j]], directions[1], frame)
    _set_frame(ax, frame)
    ax.set_xlabel(f"{plain(names[i])}: {unit}")
    ax.set_ylabel(f"{plain(names[j])}: {unit}")
    return tidy(ax)


def residual_set(
    decider: RobustDecider,
    X: Any,
    Y: ArrayLike,
    *,
    pair: tuple[int, int] = (0, 1),
    parameters: Mapping[Any, Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a fitted decider's set over the residuals of rows it has not seen, with the directions that cost.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, Y : rows that were not used for fitting.
    pair : the two outcomes that are drawn, counted from 0.
    parameters : values of the problem's parameters, as in `RobustDecider.decide`.
    ax : matplotlib axes, new ones if None.
    """
    names, residuals = decider.problem_.outcome_names, decider.residuals(X, Y)
    if decider.problem_.n_outcomes == 1:
        return _interval(decider, residuals[:, 0], names[0], new_axes(ax, (6.4, 3.2)))
    drawn = sets_over_residuals(
        {"the set": (decider.set_, decider.model_.set_radius)},
        residuals,
        pair=pair,
        outcome_names=names,
        directions=cost_directions(decider, X, parameters),
        unit=unit_of(decider),
        ax=ax,
    )
    if ax is None:  # a picture of our own has room below: inside, a legend would hide rows
        handles, labels = drawn.get_legend_handles_labels()
        drawn.figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    else:
        drawn.legend(loc="best", fontsize=9, framealpha=0.6)
    return drawn


def residual_pairs(
    decider: RobustDecider, X: Any, Y: ArrayLike, *, parameters: Mapping[Any, Any] | None = None
) -> NDArray[np.object_]:
    """Draw a set of three or more outcomes: its shadow on every pair, each over the residuals.

    At most five outcomes are drawn, those whose residuals vary most in units of the outcome's own spread.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, Y : rows whose residuals are drawn.
    parameters : as in `RobustDecider.decide`.

    Returns
    -------
    (n_pairs,) array of Axes
    """
    names, residuals = decider.problem_.outcome_names, decider.residuals(X, Y)
    pairs = list(combinations(most_uncertain(residuals, check_outcomes(decider.problem_, Y)), 2))
    if not pairs:
        return np.array([residual_set(decider, X, Y, parameters=parameters)], dtype=object)
    columns = min(len(pairs), 3)
    n_rows = -(-len(pairs) // columns)
    figure, grid = pyplot().subplots(
        n_rows, columns, figsize=(4.2 * columns, 3.8 * n_rows + 0.4), layout="constrained", squeeze=False
    )
    directions = cost_directions(decider, X, parameters)
    for ax, pair in zip(grid.flat, pairs, strict=False):
        sets = {"the set": (decider.set_, decider.model_.set_radius)}
        sets_over_residuals(sets, residuals, pair=pair, outcome_names=names, directions=directions, ax=ax)
        # The full labels would not fit; the title of the figure says what is drawn.
        ax.set_xlabel(plain(names[pair[0]]))
        ax.set_ylabel(plain(names[pair[1]]))
    for ax in grid.flat[len(pairs) :]:
        ax.remove()
    figure.suptitle(f"{unit_of(decider).capitalize()}, pair by pair", fontsize=11)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return np.array(grid.flat[: len(pairs)], dtype=object)


def regions(
    deciders: RobustDecider | Mapping[str, RobustDecider],
    x: Any,
    *,
    pair: tuple[int, int] = (0, 1),
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the set of outcomes at one row, with the prediction and the worst outcome.

    Parameters
    ----------
    deciders : one fitted RobustDecider, or several with their names.
    x : one row of features.
    pair : the two outcomes that are drawn, counted from 0.
    parameters, labels : as in `RobustDecider.decide`.
    ax : matplotlib axes, new ones if None.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(0))
    >>> problem, learner = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=learner, random_state=0).fit(X[:120], Y[:120])
    >>> residual_set(decider, X[120:], Y[120:]).get_xlabel(), regions(decider, X[120]).get_xlabel()
    ('u_1: outcome minus prediction', 'u_1')
    """
    named = {"the set": deciders} if isinstance(deciders, RobustDecider) else dict(deciders)
    first = next(iter(named.values()))
    names, ax = first.problem_.outcome_names, new_axes(ax)
    i, j = _checked(pair, first.problem.n_outcomes)
    placed = {
        label: placed_set(decider.region(x, parameters=parameters, labels=labels)) for label, decider in named.items()
    }
    rows = [one_row(decider.model_.as_rows(x)) for decider in named.values()]
    centers = np.array([decider.centers(row)[0] for decider, row in zip(named.values(), rows, strict=True)])
    frame = _frame_of_regions(list(placed.values()), centers, (i, j))
    for k, (label, shape) in enumerate(placed.items()):
        draw_set(ax, shape, 0.0, (i, j), frame, label, k)
        model, worst = named[label].model_, "worst outcome" if len(named) == 1 else f"worst outcome, {plain(label)}"
        if model.guarantee == "outcome":  # a bound on the cost of one decision has none
            outcome = model.decide(rows[k], parameters, labels=labels).worst_outcome[0, [i, j]]
            color = CYCLE[k % len(CYCLE)]
            ax.plot(*outcome, marker="X", color=color, markersize=9, linestyle="none", label=worst)
    for k, center in enumerate(np.unique(centers[:, [i, j]], axis=0)):
        label = "prediction" if k == 0 else "_"
        ax.plot(*center, marker="+", color=RED, markersize=11, markeredgewidth=1.8, linestyle="none", label=label)
    _set_frame(ax, frame)
    ax.set_xlabel(plain(names[i]))
    ax.set_ylabel(plain(names[j]))
    ax.legend(loc="best", fontsize=9, framealpha=0.6)
    return tidy(ax)


def _frame_of_regions(shapes: Sequence[Shape], centers: Array, pair: tuple[int, int]) -> Frame:
    """Around the predictions, wide enough for the near sides of all regions: far sides may be very far."""
    middle = centers[:, list(pair)]
    low, high = middle.min(axis=0), middle.max(axis=0)
    ends = [_corners(shape, 0.0, pair) for shape in shapes]
    near = [np.abs(end - c).min(axis=0) for end, c in zip(ends, middle, strict=True) if not np.isnan(end).any()]
    finite = [reach[np.isfinite(reach)].max(initial=0.0) for reach in near]
    room = _ROOM * (max(finite, default=0.0) or 1.0)
    for end in ends:
        if not np.isnan(end).any():
            low, high = np.minimum(low, end[0]), np.maximum(high, end[1])
    low, high = np.maximum(low, middle.min(axis=0) - room), np.minimum(high, middle.max(axis=0) + room)
    margin = 0.1 * np.where(high > low, high - low, 1.0)
    return low - margin, high + margin


def unit_of(decider: RobustDecider) -> str:
    """A decider's residuals in words: whether they are divided by a spread."""
    return "outcome minus prediction" + ("" if decider.spread_ is None else ", over spread")


def _interval(decider: RobustDecider, residuals: Array, name: str, ax: Axes) -> Axes:
    """One outcome: the interval over a histogram of the residuals."""
    radius = decider.model_.set_radius
    low, high = (sign * float(decider.set_.support([sign], radius)) for sign in (-1.0, 1.0))
    inside = decider.set_.contains(residuals[:, None], radius)
    edges = np.histogram_bin_edges(residuals, bins="auto")
    ax.hist([residuals[inside], residuals[~inside]], bins=edges.tolist(), stacked=True, color=[GREY, RED])
    shown = np.clip([low, high], edges[0] - np.ptp(edges) / 2, edges[-1] + np.ptp(edges) / 2)
    ax.axvspan(*shown, color=BLUE, alpha=0.18, label=f"the set: {low:.3g} to {high:.3g}")
    ax.axvline(0.0, color=RED, linewidth=1.2, linestyle="--", label="prediction")
    ax.set_xlabel(f"{plain(name)}: {unit_of(decider)}")
    ax.set_ylabel("rows")
    ax.legend(loc="best", fontsize=9, framealpha=0.6)
    return tidy(ax)


def _dots(ax: Axes, points: Array, inside: Mask, shadow: Array | None) -> None:
    """Residuals (n, 2): dots inside the set, crosses outside what is drawn, circles outside in other outcomes alone."""
    from matplotlib.path import Path

    hidden = np.zeros(len(points), dtype=bool)
    if shadow is not None and len(shadow) > 2:
        hidden = ~inside & Path(shadow).contains_points(points)
    shown = np.arange(len(points)) % max(len(points) // _MOST_DOTS, 1) == 0
    kinds: list[tuple[Mask, str, dict[str, Any]]] = [
        (inside, "inside the set", {"s": 9, "color": GREY, "alpha": 0.7, "linewidths": 0}),
        (hidden, "outside, by other outcomes", {"s": 16, "edgecolors": RED, "facecolors": "none", "linewidths": 0.8}),
        (~inside & ~hidden, "outside", {"s": 20, "color": RED, "marker": "x", "linewidths": 1.0}),
    ]
    for rows, label, style in kinds:
        if rows.any() or rows is inside:
            ax.scatter(*points[rows & shown].T, label=f"{label} ({100 * rows.mean():.1f} %)", **style)


def _arrows(ax: Axes, directions: Array, shares: Array, frame: Frame) -> None:
    """Arrows from the prediction, as long as their shadow on the plane, wider where they matter more often."""
    drawn = False
    for direction, share in zip(directions, shares, strict=True):
        if np.linalg.norm(direction) < 0.05 or share < 0.005:
            continue
        with np.errstate(divide="ignore"):
            room = np.where(direction > 0, frame[1] / direction, frame[0] / direction)[direction != 0].min()
        length = min(0.38 * float(np.min(frame[1] - frame[0])), 0.92 * float(room))
        style = {"arrowstyle": "-|>", "color": GREEN, "linewidth": 1.2 + 2.0 * share, "mutation_scale": 12}
        ax.annotate("", xy=tuple(length * direction), xytext=(0.0, 0.0), arrowprops=style, zorder=6)
        drawn = True
    if drawn:
        ax.plot([], [], color=GREEN, linewidth=2, marker=">", markersize=5, label="costlier this way")


def _reach(shape: Shape, radius: float, pair: tuple[int, int], residuals: Array) -> Array:
    """How far a set goes along the axes (2, 2), but no further than twice the residuals: it may end far away."""
    low, high = np.quantile(residuals[:, list(pair)], [0.005, 0.995], axis=0)
    corners = _corners(shape, radius, pair)
    width = high - low
    return np.clip(np.where(np.isnan(corners), 0.0, corners), low - 0.25 * width, high + 0.25 * width)


def _corners(shape: Shape, radius: float, pair: tuple[int, int]) -> Array:
    """Lower and upper ends of a set (2, 2) in two outcomes; NaN if it is empty, infinite where it never ends."""
    axes = np.eye(shape.n_outcomes)[list(pair)]
    low, high = -np.asarray(shape.support(-axes, radius)), np.asarray(shape.support(axes, radius))
    return np.where(low <= high, np.array([low, high]), np.nan)


def _set_frame(ax: Axes, frame: Frame) -> None:
    (left, bottom), (right, top) = frame
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    ax.locator_params(nbins=6)
    # Equal scales show angles as they are, unless they would squeeze one axis to a strip.
    if 0.4 < (top - bottom) / (right - left) < 2.5:
        ax.set_aspect("equal", adjustable="box")


def _checked(pair: tuple[int, int], n_outcomes: int) -> tuple[int, int]:
    i, j = pair
    if i == j or not (0 <= i < n_outcomes and 0 <= j < n_outcomes):
        raise ValueError(f"pair must be two different outcomes between 0 and {n_outcomes - 1}, got {pair}.")
    return i, j


def most_uncertain(residuals: Array, outcomes: Array, n: int = _MOST_OUTCOMES) -> list[int]:
    """The n outcomes whose residuals vary most, in units of the outcome's own spread; in their order."""
    spread = outcomes.std(axis=0)
    share = residuals.std(axis=0) / np.where(spread > 0, spread, 1.0)
    return sorted(np.argsort(-share, kind="stable")[:n].tolist())
