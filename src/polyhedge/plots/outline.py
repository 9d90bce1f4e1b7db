"""Outlines in the plane of two outcomes, of any set: what a picture draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array
from polyhedge.plots.style import CYCLE, LINES, plain
from polyhedge.sets import Polyhedron, Region, Shape
from polyhedge.sets.halfspaces import vertices
from polyhedge.solvers.linear import maximise_linear

if TYPE_CHECKING:
    from matplotlib.axes import Axes


N_DIRECTIONS = 360
"""One a degree: an outline without visible corners."""
N_GRID = 300
"""Points along each axis: an outline without visible steps."""
# Share of the residuals on each side of each axis that may lie outside the frame.
_TAIL = 0.005

Frame = tuple[Array, Array]
"""Lower and upper ends (2,) of the two axes."""


def projection(shape: Shape, radius: float, pair: tuple[int, int], frame: Frame) -> Array:
    """Corners (n, 2), in cyclic order, of the set's shadow on two outcomes, cut to a frame; none if it is empty.

    The shadow holds the residuals of the two outcomes for which the others can be completed to a member of the set.
    It is convex: a set that is not, such as a union of balls, is replaced by its hull.
    """
    facets, first = shape.facets(), list(pair)
    if facets is not None and shape.n_outcomes == 2:
        return _clip(facets.W[:, first], radius - facets.b, frame)
    # Off the axes: a maximum along the normal of a facet may be any point of it, next to it it is a corner.
    angles = np.linspace(0.0, 2 * np.pi, N_DIRECTIONS, endpoint=False) + 1.0 / N_DIRECTIONS
    V = np.column_stack([np.cos(angles), np.sin(angles)])
    full = np.zeros((len(V), shape.n_outcomes))
    full[:, first] = V
    if facets is not None:
        return _shadow(facets, radius, pair, frame, full)
    values = np.asarray(shape.support(full, radius))
    if np.isneginf(values).any():
        return np.empty((0, 2))
    bounded = np.isfinite(values)
    return _clip(V[bounded], values[bounded], frame)


def _shadow(facets: Polyhedron, radius: float, pair: tuple[int, int], frame: Frame, directions: Array) -> Array:
    """The extreme points of a polyhedron within the frame, along directions that go round the plane once.

    Cut to the frame first: an unbounded polyhedron has extreme points along hardly any direction.
    """
    axes = np.eye(facets.n_outcomes)[list(pair)]
    W = np.vstack([facets.W, axes, -axes])
    h = np.concatenate([radius - facets.b, frame[1], -frame[0]])
    points = maximise_linear(W, h, directions)[1][:, list(pair)]
    if np.isnan(points).any():
        return np.empty((0, 2))
    size = float(np.abs(points).max()) or 1.0
    moved = np.abs(points - np.roll(points, 1, axis=0)).max(axis=1) > 1e-9 * size
    return points[moved] if moved.any() else points[:1]


def draw_set(
    ax: Axes, shape: Shape, radius: float, pair: tuple[int, int], frame: Frame, label: str, position: int
) -> Array:
    """Draw one set on axes: the first is filled, later ones are lines of another colour and dash.

    Two outcomes: the set itself, also where it is not convex. More: its shadow. An empty set says so. Returns the
    corners (n, 2) of what is drawn; none of a set that is not convex.
    """
    label = plain(label)
    color, dash = CYCLE[position % len(CYCLE)], LINES[position % len(LINES)]
    face = (color, 0.18) if position == 0 else (color, 0.0)
    known = shape.shape if isinstance(shape, _Placed) else shape
    if shape.n_outcomes == 2 and known.facets() is None and not known.is_round:  # not convex
        _contour(ax, shape, radius, pair, frame, color, dash, fill=position == 0)
        ax.plot([], [], color=color, linestyle=dash, linewidth=1.8, label=label)
        return np.empty((0, 2))
    low, high = frame
    # Cut well outside the picture, so that its edge is not taken for an edge of the set.
    beyond = 0.2 * (high - low)
    corners = projection(shape, radius, pair, (low - beyond, high + beyond))
    if len(corners) and ((corners < low - SOLVED * beyond) | (corners > high + SOLVED * beyond)).any():
        label = f"{label}, which goes on beyond the picture"
    if not len(corners):
        ax.plot([], [], color=color, linestyle=dash, linewidth=1.8, label=f"{label}: empty")
        ax.text(0.5, 0.5, f"{label}: empty", transform=ax.transAxes, ha="center", va="center", color=color)
        return corners
    ax.fill(*corners.T, facecolor=face, edgecolor=color, linestyle=dash, linewidth=1.8, label=label, zorder=2)
    return corners


def _contour(
    ax: Axes, shape: Shape, radius: float, pair: tuple[int, int], frame: Frame, color: str, dash: str, *, fill: bool
) -> None:
    x, y = (np.linspace(a, b, N_GRID) for a, b in zip(*frame, strict=True))
    points = np.empty((N_GRID * N_GRID, 2))
    points[:, pair[0]], points[:, pair[1]] = (axis.ravel() for axis in np.meshgrid(x, y))
    excess = shape.scores(points).reshape(N_GRID, N_GRID) - radius
    if not excess.min() < 0:
        ax.text(0.5, 0.5, "empty", transform=ax.transAxes, ha="center", va="center", color=color)
        return
    if fill:
        ax.contourf(x, y, excess, levels=[excess.min() - 1.0, 0.0], colors=[color], alpha=0.18)
    ax.contour(x, y, excess, levels=[0.0], colors=[color], linestyles=[dash], linewidths=1.8)


def placed_set(region: Region) -> Shape:
    """A region of outcomes as a set at radius 0, so that both are drawn alike."""
    try:
        return Polyhedron.from_halfspaces(region.W, region.h)
    except TypeError:
        return _Placed(region)


class _Placed(Shape):
    """A region of a round or general shape: its support function, and scores that are 0 on its boundary."""

    def __init__(self, region: Region) -> None:
        self.region, self.shape = region, region.shape

    @property
    def n_outcomes(self) -> int:
        return self.region.n_outcomes

    def support(self, directions: ArrayLike, radius: float) -> Any:
        return self.region.support(directions)

    def scores(self, residuals: ArrayLike) -> Array:
        region, outcomes = self.region, np.asarray(residuals, dtype=np.float64)
        excess = region.shape.scores(outcomes - region.center) - region.radius
        if region.support_W is None or region.support_h is None:
            return excess
        return np.maximum(excess, (outcomes @ region.support_W.T - region.support_h).max(axis=1))


def frame_of(points: Array, margin: float = 0.08) -> Frame:
    """A frame around the bulk of points (n, 2): a few far ones must not shrink all others to a dot."""
    low, high = np.quantile(points, _TAIL, axis=0), np.quantile(points, 1 - _TAIL, axis=0)
    spread = np.where(high > low, high - low, np.abs(high).max(initial=0.0) or 1.0)
    return low - margin * spread, high + margin * spread


def _clip(normals: Array, offsets: Array, frame: Frame) -> Array:
    """Corners of {p : normals p <= offsets} within the frame, in cyclic order; none if it is empty."""
    axes = np.eye(2)
    corners = vertices(np.vstack([normals, axes, -axes]), np.concatenate([offsets, frame[1], -frame[0]]))
    around = corners - corners.mean(axis=0) if len(corners) else corners
    return corners[np.argsort(np.arctan2(around[:, 1], around[:, 0]))]
