"""What is decided where: decisions over two features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.frames import as_pandas
from polyhedge._support.validation import Array, check_count
from polyhedge.decisions import Decisions
from polyhedge.estimator import RobustDecider
from polyhedge.fitting import reference_values
from polyhedge.plots.style import GREY, new_axes, plain, tidy
from polyhedge.problems.layout import by_row, parameter_rows
from polyhedge.rows import as_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# A feature of so few values is drawn at these alone, and the values of so many other features are printed.
_FEW, _MOST_HELD = 2, 6


def decision_map(
    decider: RobustDecider,
    X: Any,
    features: tuple[int | str, int | str] = (0, 1),
    *,
    show: int | str | None = None,
    resolution: int = 40,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw decisions over a grid of two features, all others held at a typical value.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X : array or data frame
        Its ranges make the grid, its medians (most frequent values for text) the other features, its rows the dots.
    features : two columns, by position or by name.
    show : what the colour means
        A number or a name: that entry of the decision. "cost_bound": the bound. None: the first entry.
    resolution : points of the grid along each feature.
    parameters : values of the problem's parameters at the rows of X, as in `RobustDecider.decide`; the map is drawn
        at typical ones, see `RobustDecider.fit`.
    labels : labels or weights of the rows of X, as in `RobustDecider.decide`; the map is drawn at the most frequent
        label, or the median weight.
    ax : matplotlib axes, new ones if None.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(0))
    >>> problem, learner = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=learner, random_state=0).fit(X[:120], Y[:120])
    >>> ax = decision_map(decider, X, features=(0, 1), resolution=5)
    >>> ax.get_xlabel()
    'feature 1'
    """
    import pandas as pd

    resolution, X = check_count(resolution, "resolution", minimum=2), as_pandas(X)
    is_array = not hasattr(X, "iloc")
    if is_array:
        X = pd.DataFrame(np.asarray(X)).rename(columns=lambda k: f"feature {k + 1}")
    columns = [_column(X, feature) for feature in features]
    if columns[0] == columns[1]:
        raise ValueError(f"features must be two different columns, got {features!r}.")
    first, second = (_range(_values(X, column), resolution) for column in columns)
    # Rows of X's own kind: typical values everywhere but in the two columns.
    axes = (axis.ravel() for axis in np.meshgrid(first, second))
    drawn = {
        X.columns[k]: axis.astype(bool) if X.dtypes.iloc[k].kind == "b" else axis
        for k, axis in zip(columns, axes, strict=True)
    }
    usual = {name: _typical(X[name]) for name in X.columns}
    grid = X.iloc[np.zeros(first.size * second.size, dtype=int)].reset_index(drop=True).assign(**usual | drawn)
    typical, own, problem = dict[str, Array](), dict[str, Any](), decider.problem_
    if problem.parameters:
        values = reference_values(problem, parameter_rows(problem.parameters, parameters, len(X), X))
        typical = {name: value[0] for name, value in by_row(problem.parameters, values[None]).items()}
    if labels is not None and decider.model_.radii.reads_weights:
        own = {"weight": float(np.median(as_values(labels).tolist()))}
    elif labels is not None:
        own = {"label": Counter(as_values(labels).tolist()).most_common(1)[0][0]}
    rows = grid.to_numpy() if is_array else grid
    decisions = decider.model_.decide(rows, typical, labels=next(([value] * len(grid) for value in own.values()), None))
    ax = new_axes(ax)
    _paint(ax, first, second, decisions, show, list(decider.problem_.decision_names))
    ax.scatter(_values(X, columns[0]), _values(X, columns[1]), s=5, color=GREY, alpha=0.45, linewidths=0, zorder=3)
    _set_axis(ax.xaxis, ax.set_xlim, first, X, columns[0])
    _set_axis(ax.yaxis, ax.set_ylim, second, X, columns[1])
    held = _held(X, columns, typical, own)
    if held:
        ax.set_title(plain(held), fontsize=8, loc="left", wrap=True)
    tidy(ax).grid(visible=False)
    return ax


def _set_axis(axis: Any, set_limits: Any, values: Array, X: Any, column: int) -> None:
    """Name an axis and end it where the grid ends; a feature of two values has two ticks, between which nothing is."""
    axis.set_label_text(plain(str(X.columns[column])))
    if len(values) > _FEW:
        set_limits(values[0], values[-1])
        return
    margin = (values[1] - values[0]) / 2
    set_limits(values[0] - margin, values[1] + margin)
    axis.set_ticks(values, ["no", "yes"] if X.dtypes.iloc[column].kind == "b" else [f"{value:g}" for value in values])


def _held(X: Any, columns: list[int], parameters: Mapping[str, Array], labels: Mapping[str, Any]) -> str:
    """Where the other features and the problem's parameters are held, in words."""
    others = [(X.columns[k], _typical(X.iloc[:, k])) for k in range(X.shape[1]) if k not in columns]
    # A parameter of several entries has no room here.
    known = {name: float(value) for name, value in parameters.items() if not value.ndim}
    held = [*known.items(), *labels.items(), *others]
    shown = [
        f"{name} = {value:.4g}" if isinstance(value, (float, np.floating)) else f"{name} = {value}"
        for name, value in held[:_MOST_HELD]
    ]
    more = f" and {len(held) - _MOST_HELD} more" if len(held) > _MOST_HELD else ""
    return f"held at: {', '.join(shown)}{more}" if shown else ""


def _paint(
    ax: Axes, first: Array, second: Array, decisions: Decisions, show: int | str | None, names: list[str]
) -> None:
    z, shape = decisions.z.reshape(len(decisions), -1), (len(second), len(first))
    chosen: int | str = 0 if show is None else names.index(show) if show in names else show
    if chosen == "cost_bound":
        values, label = decisions.cost_bound, "cost bound"
    elif isinstance(chosen, int) and 0 <= chosen < z.shape[1]:
        values, label = z[:, chosen], plain(names[chosen])
    else:
        raise ValueError(f'show must be "cost_bound" or one of {", ".join(names)}, got {show!r}.')
    finite = np.where(np.isfinite(values), values, np.nan)
    mesh = ax.pcolormesh(first, second, finite.reshape(shape), cmap="cividis", shading="nearest", rasterized=True)
    ax.figure.colorbar(mesh, ax=ax, label=label)


def _column(X: Any, feature: int | str) -> int:
    names = list(X.columns)
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"There is no feature {feature!r}. Choose from: {', '.join(map(str, names))}.")
        return names.index(feature)
    return range(len(names))[feature]


def _values(X: Any, column: int) -> Array:
    return np.asarray(X.iloc[:, column].to_numpy(), dtype=np.float64)


def _range(values: Array, resolution: int) -> Array:
    distinct = np.unique(values[np.isfinite(values)])
    if len(distinct) < 2:
        raise ValueError("A feature of the map must have two values or more. Choose another.")
    return distinct if len(distinct) <= _FEW else np.linspace(distinct[0], distinct[-1], resolution)


def _typical(column: Any) -> Any:
    if column.dtype.kind in "iuf":
        return column.median()
    modes = column.mode()
    return modes.iloc[0] if len(modes) else None
