"""The study's picture: coverage, worst-case cost and volume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge_study.files import save_figure
from polyhedge_study.methods import GROUPS, METHODS, POLYHEDGE
from polyhedge_study.study import StudyRow
from polyhedge_study.study_tables import TITLES, by_method, tasks_of
from polyhedge_study.summary import TableRow, table_rows

__all__ = ["draw_bubbles", "far_above"]

_COLORS = {"baseline": "#7d838d", "ablation": "#d1781b", "learner": "#1f5fa8", "reference": "#4b9b8e"}
# Share of a panel within which two labels would cover each other.
_CLOSE = np.array([0.03, 0.02])


def draw_bubbles(rows: Sequence[StudyRow], paths: Iterable[Path], *, alpha: float = 0.1) -> None:
    """Coverage against worst-case cost, one panel a task; the area of a bubble grows with the set's volume."""
    from matplotlib.figure import Figure

    figures = table_rows(rows)
    tasks = tasks_of(figures)
    figure = Figure(figsize=(5.2 * min(len(tasks), 2) + 0.4, 4.4 * ((len(tasks) + 1) // 2) + 1.2), layout="constrained")
    panels = figure.subplots((len(tasks) + 1) // 2, min(len(tasks), 2), squeeze=False).ravel()
    numbers = _numbers(figures)
    for ax, task in zip(panels, tasks, strict=False):
        _draw_panel(ax, by_method(figures, task), numbers)
        ax.axvline(1 - alpha, color="black", linewidth=0.8, linestyle=":")
        ax.set_title(TITLES[task], fontsize=10)
    for ax in panels[len(tasks) :]:
        ax.set_visible(False)
    _legend(figure, numbers)
    save_figure(figure, paths)


def far_above(methods: dict[str, dict[str, TableRow]]) -> list[str]:
    """The methods whose cost is so high that, drawn to scale, all others would lie on one line."""
    costs = {key: own["worst_case_cost"].here for key, own in methods.items() if np.isfinite(own["coverage"].here)}
    finite = [cost for cost in costs.values() if np.isfinite(cost)]
    if len(finite) < 4:
        return []
    low, high = np.quantile(finite, [0.25, 0.75])
    return [key for key, cost in costs.items() if np.isfinite(cost) and cost > high + 8 * (high - low) > low]


def _numbers(figures: Iterable[TableRow]) -> dict[str, int]:
    """A number for each method that has a set and a cost somewhere."""
    drawn = {f.method for f in figures if f.metric == "coverage" and np.isfinite(f.here)}
    return {key: position + 1 for position, key in enumerate(key for key in METHODS if key in drawn)}


def _draw_panel(ax: Any, methods: dict[str, dict[str, TableRow]], numbers: dict[str, int]) -> None:
    above = far_above(methods)
    shown = {
        key: own
        for key, own in methods.items()
        if key in numbers and key not in above and np.isfinite(own["worst_case_cost"].here)
    }
    if above:
        places = ", ".join(f"{numbers[key]} at {10 * methods[key]['worst_case_cost'].here:.3g}" for key in above)
        ax.text(0.98, 0.97, f"far above: {places}", transform=ax.transAxes, ha="right", va="top", fontsize=7.5)
    for own in sorted(shown.values(), key=lambda own: -_area(own["volume"].here)):
        coverage, cost = own["coverage"], own["worst_case_cost"]
        color = _COLORS[coverage.group]
        ax.scatter(
            [coverage.here],
            [10 * cost.here],
            s=_area(own["volume"].here),
            facecolors=color if coverage.guarantee != "none" else "none",
            edgecolors="black" if coverage.method == POLYHEDGE else color,
            alpha=0.55,
            linewidths=1.4,
        )
    _label(ax, {numbers[key]: (own["coverage"].here, 10 * own["worst_case_cost"].here) for key, own in shown.items()})
    ax.set_xlabel("coverage")
    ax.set_ylabel("worst-case cost (x10)")
    ax.margins(0.1)
    ax.grid(color="#e4e6ea", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _label(ax: Any, points: dict[int, tuple[float, float]]) -> None:
    """Number the bubbles; those in the same place share one label."""
    if not points:
        return
    places = np.array(list(points.values()))
    size = _CLOSE * np.maximum(np.ptp(places, axis=0), 1e-9)
    labels: list[tuple[tuple[float, float], list[int]]] = []
    for number, point in points.items():
        near = [names for place, names in labels if (np.abs(np.subtract(place, point)) <= size).all()]
        if near:
            near[0].append(number)
        else:
            labels.append((point, [number]))
    for place, names in labels:
        text = ",".join(map(str, names))
        ax.annotate(text, place, ha="center", va="center", fontsize=7, zorder=5)


def _area(volume: float) -> float:
    """Points squared; the root keeps sets that open to harmless sides on the page."""
    return float(np.clip(160 * np.sqrt(volume), 40, 1500)) if np.isfinite(volume) else 1500.0


def _legend(figure: Any, numbers: dict[str, int]) -> None:
    from matplotlib.lines import Line2D

    groups = {METHODS[key].group for key in numbers}
    style: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 8, "alpha": 0.7}
    handles = [Line2D([], [], color=_COLORS[group], label=group, **style) for group in GROUPS if group in groups]
    handles.append(Line2D([], [], markeredgecolor="black", markerfacecolor="none", label="no guarantee", **style))
    handles += [
        Line2D([], [], linestyle="none", label=f"{number}  {METHODS[key].name}") for key, number in numbers.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7.5, frameon=False, handlelength=1.0)
