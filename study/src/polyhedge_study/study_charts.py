"""Charts and pictures of the study's page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyhedge.app.report.page import Block
from polyhedge.app.report.pictures import draw
from polyhedge.plots.style import BLUE, CYCLE, GREEN, GREY, ORANGE, RED, tidy
from polyhedge_study.demo import compare, paint_sets
from polyhedge_study.inside import Array
from polyhedge_study.methods import GROUPS, METHODS, POLYHEDGE
from polyhedge_study.page_blocks import Chart
from polyhedge_study.sensitivity import SensitivityRow
from polyhedge_study.study_figure import far_above
from polyhedge_study.study_tables import TITLES
from polyhedge_study.summary import TableRow
from polyhedge_study.tasks import make_task

__all__ = ["bubble_chart", "sensitivity_picture", "set_picture"]

_COLORS = {"baseline": GREY, "ablation": ORANGE, "learner": BLUE, "reference": GREEN}
_MARKERS = "osD^vxP*"


def bubble_chart(task: str, methods: Mapping[str, Mapping[str, TableRow]], alpha: float) -> Chart:
    """Coverage against worst-case cost of one task; bubbles grow with the volume of the set."""
    traces: list[dict[str, Any]] = []
    for group in GROUPS:
        own = [m for key, m in methods.items() if m["coverage"].group == group and _is_drawn(m) and key != POLYHEDGE]
        if own:
            traces.append(_trace(group, own, _COLORS[group]))
    if POLYHEDGE in methods and _is_drawn(methods[POLYHEDGE]):
        traces.append(_trace("Polyhedge, set", [methods[POLYHEDGE]], RED))
    printed = [
        m for m in methods.values() if np.isfinite(m["coverage"].paper) and np.isfinite(m["worst_case_cost"].paper)
    ]
    if printed:
        traces.append(_printed_trace(printed))
    layout: dict[str, Any] = {
        "title": {"text": TITLES[task], "font": {"size": 15}},
        "margin": {"l": 58, "r": 12, "t": 44, "b": 92},
        "xaxis": {"title": {"text": "coverage"}, "tickformat": ".3f", "nticks": 6, "automargin": True},
        "yaxis": {"title": {"text": "worst-case cost (x10)"}, "automargin": True},
        "legend": {"orientation": "h", "y": -0.24, "font": {"size": 12}},
        "hovermode": "closest",
        "shapes": [_promise(alpha)],
    }
    caption = (
        f"{TITLES[task]}: each bubble is a method, its size grows with the root of the set's volume. Lower is cheaper; "
        "the dotted line is the promised coverage. Hollow: no guarantee. Touch a bubble for its figures, the legend to "
        "hide a group."
    )
    above = far_above({key: dict(own) for key, own in methods.items()})
    if above:
        inside = [10 * m["worst_case_cost"].here for key, m in methods.items() if key not in above and _is_drawn(m)]
        margin = 0.12 * (max(inside) - min(inside))
        layout["yaxis"]["range"] = [min(inside) - margin, max(inside) + margin]
        places = (f"{methods[k]['coverage'].name} at {10 * methods[k]['worst_case_cost'].here:.3g}" for k in above)
        caption += f" Far above the chart: {', '.join(places)}."
    return Chart(f"bubbles-{task}", traces, layout, caption)


def _is_drawn(own: Mapping[str, TableRow]) -> bool:
    return bool(np.isfinite(own["coverage"].here) and np.isfinite(own["worst_case_cost"].here))


def _trace(name: str, own: Sequence[Mapping[str, TableRow]], color: str) -> dict[str, Any]:
    hollow = [m["coverage"].guarantee == "none" for m in own]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [m["coverage"].here for m in own],
        "y": [10 * m["worst_case_cost"].here for m in own],
        "text": [_hover(m) for m in own],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "size": [_size(m["volume"].here) for m in own],
            "color": ["rgba(0,0,0,0)" if empty else color for empty in hollow],
            "opacity": 0.8,
            "line": {"color": color, "width": 2},
        },
    }


def _printed_trace(printed: Sequence[Mapping[str, TableRow]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "paper, as printed",
        "visible": "legendonly",
        "x": [m["coverage"].paper for m in printed],
        "y": [10 * m["worst_case_cost"].paper for m in printed],
        "text": [f"<b>{html.escape(m['coverage'].name)}</b><br>as printed in the paper" for m in printed],
        "hovertemplate": "%{text}<br>coverage %{x:.3f}<br>cost %{y:.2f}<extra></extra>",
        "marker": {"symbol": "diamond", "size": 9, "color": GREY},
    }


def _hover(own: Mapping[str, TableRow]) -> str:
    coverage, cost, premium, regret, volume, within = (
        own[name] for name in ("coverage", "worst_case_cost", "premium", "regret", "volume", "hull_volume")
    )
    lines = [
        f"<b>{html.escape(coverage.name)}</b>",
        f"coverage {coverage.here:.3f} ± {coverage.sd:.3f}",
        f"worst-case cost {10 * cost.here:.2f} ± {10 * cost.sd:.2f}",
        f"premium {10 * premium.here:.2f}",
        f"regret {10 * regret.here:.2f}",
        f"volume {volume.here:.3g}, {within.here:.3g} within the hull of the residuals",
        f"{coverage.n_done} seeds" + (", no guarantee" if coverage.guarantee == "none" else ""),
    ]
    return "<br>".join(line.replace(" ± nan", "") for line in lines)


def _size(volume: float) -> float:
    return float(np.clip(9 + 9 * np.sqrt(volume), 9, 46)) if np.isfinite(volume) else 46.0


def _promise(alpha: float) -> dict[str, Any]:
    line = {"color": GREY, "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": 1 - alpha, "x1": 1 - alpha, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def set_picture(task_name: str, alpha: float, seed: int = 0) -> list[Block]:
    """The learned set, at one size, and a Bonferroni box over the test residuals of a seed, with costly directions."""
    comparison = compare(make_task(task_name, seed), alpha=alpha, random_state=seed)
    premiums = [row.evaluation.premium.value for row in comparison.rows]
    caption = (
        f"{TITLES[task_name]}, seed {seed}: the learned set, at one size for all contexts (premium {premiums[0]:.3f}), "
        f"and a Bonferroni box (premium {premiums[1]:.3f}) over {len(comparison.residuals)} test residuals. Arrows: "
        "which way outcomes cost more."
    )
    return draw(lambda ax: paint_sets(comparison, ax), caption, (5.4, 4.8))


def sensitivity_picture(sweep: str, rows: Sequence[SensitivityRow], alpha: float) -> list[Block]:
    """Worst-case cost, premium and coverage of each learner along one sweep, mean ± standard error over the seeds."""
    own = [row for row in rows if row.sweep == sweep and row.status == "done"]
    # Over all sweeps, so that a learner keeps its colour.
    keys = [key for key in METHODS if any(row.method == key for row in rows)]

    metrics = {"worst_case_cost": "worst-case cost", "premium": "premium", "coverage": "coverage"}

    # One above the other: side by side they would be too small on a phone.
    def paint(*panels: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        for position, key in enumerate(keys):
            for target, metric in zip(panels, metrics, strict=True):
                runs = [row for row in own if row.method == key]
                if runs:
                    _curve(target, runs, metric, position, METHODS[key].name)
        panels[-1].axhline(1 - alpha, color=GREY, linestyle=":", linewidth=1.2)
        for target, label in zip(panels, metrics.values(), strict=True):
            target.set_ylabel(label)
            tidy(target)
        if all(float(row.value).is_integer() for row in own):
            panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[-1].set_xlabel(sweep)

    caption = (
        f"Against {sweep}: worst-case cost (as the paper draws), premium and coverage on fresh data, mean ± standard "
        f"error over {len({row.seed for row in own})} seed(s). The dotted line is the promised coverage."
    )
    return draw(paint, caption, (5.4, 7.4), n_panels=3)


def _curve(ax: Any, own: Sequence[SensitivityRow], metric: str, position: int, name: str) -> None:
    values = sorted({row.value for row in own})
    means, errors = np.array([_moments([getattr(r, metric) for r in own if r.value == v]) for v in values]).T
    style = {"color": CYCLE[position % len(CYCLE)], "marker": _MARKERS[position % len(_MARKERS)]}
    ax.errorbar(values, means, yerr=errors, markersize=4.5, linewidth=1.4, capsize=2, label=name, **style)


def _moments(values: Sequence[float]) -> Array:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return np.array([np.mean(values), error])
