"""The sensitivity experiment as a table and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge_study.files import save_figure
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.methods import METHODS
from polyhedge_study.sensitivity import SWEEPS, SensitivityRow

__all__ = ["draw_sensitivity", "sensitivity_grid", "sensitivity_report"]

_METRICS = {"coverage": "coverage", "volume": "volume", "premium": "premium"}
_STYLES = {
    "one-sided-box": ("#4b9b8e", "s"),
    "grid": ("#8a4fa3", "x"),
    "scenario": ("#b3261e", "^"),
    "pinball": ("#d1781b", "D"),
    "descent": ("#7d838d", "v"),
    "polyhedge": ("#1f5fa8", "o"),
}


def sensitivity_report(rows: Sequence[SensitivityRow]) -> str:
    """All sweeps in Markdown."""
    grids = [sensitivity_grid(rows, sweep) for sweep in SWEEPS if any(row.sweep == sweep for row in rows)]
    return "\n".join(["# Sensitivity", "", *(grid.markdown() for grid in grids)])


def sensitivity_grid(rows: Sequence[SensitivityRow], sweep: str) -> Grid:
    """One sweep: coverage, premium and volume of each learner, a column for each value."""
    own = [row for row in rows if row.sweep == sweep]
    values = sorted({row.value for row in own})
    lines = []
    for key in _STYLES:
        if any(row.method == key for row in own):
            for metric, label in _METRICS.items():
                cells = [_cell(_figures(own, key, value, metric)) for value in values]
                lines.append((f"{METHODS[key].name}: {label}", *cells))
    failures = {f"{METHODS[row.method].name}, {row.value:g}: {row.detail}" for row in own if row.status == "failed"}
    note = "Mean ± standard error over the seeds. Premium: worst-case cost minus the cost of trusting the prediction."
    note += f" Failed: {'; '.join(sorted(failures))}." if failures else ""
    return Grid(f"Against {sweep}", (sweep, *(f"{value:g}" for value in values)), tuple(lines), note)


def _figures(own: Iterable[SensitivityRow], key: str, value: float, metric: str) -> Array:
    figures = [getattr(row, metric) for row in own if row.method == key and row.value == value and row.status == "done"]
    return np.array(figures, dtype=float)


def _cell(figures: Array) -> str:
    if not len(figures):
        return ""
    error = f" ± {figures.std(ddof=1) / np.sqrt(len(figures)):.2g}" if len(figures) > 1 else ""
    return f"{figures.mean():.3g}{error}"


def draw_sensitivity(rows: Sequence[SensitivityRow], paths: Iterable[Path], *, alpha: float = 0.1) -> None:
    """One row a sweep: coverage, volume and premium, with bars of one standard error."""
    from matplotlib.figure import Figure

    sweeps = [sweep for sweep in SWEEPS if any(row.sweep == sweep for row in rows)]
    figure = Figure(figsize=(11.0, 2.9 * len(sweeps) + 0.6), layout="constrained")
    panels = figure.subplots(len(sweeps), len(_METRICS), squeeze=False)
    for line, sweep in zip(panels, sweeps, strict=True):
        own = [row for row in rows if row.sweep == sweep]
        for ax, (metric, label) in zip(line, _METRICS.items(), strict=True):
            _draw_panel(ax, own, metric)
            ax.set_xlabel(sweep)
            ax.set_ylabel(label)
            if metric == "coverage":
                ax.axhline(1 - alpha, color="black", linewidth=0.8, linestyle=":")
            if metric == "volume":
                ax.set_yscale("log")
    _legend(figure, panels)
    save_figure(figure, paths)


def _draw_panel(ax: Any, own: Sequence[SensitivityRow], metric: str) -> None:
    values = sorted({row.value for row in own})
    for key, (color, marker) in _STYLES.items():
        points = [(value, _figures(own, key, value, metric)) for value in values]
        points = [(value, figures) for value, figures in points if len(figures)]
        if points:
            means = [figures.mean() for _, figures in points]
            errors = [figures.std(ddof=1) / np.sqrt(len(figures)) if len(figures) > 1 else 0.0 for _, figures in points]
            ax.errorbar(
                [value for value, _ in points],
                means,
                # On a logarithmic axis a bar must not reach zero.
                yerr=[np.minimum(errors, 0.9 * np.abs(means)), errors],
                color=color,
                marker=marker,
                markersize=4.5,
                linewidth=1.3,
                capsize=2,
                label=METHODS[key].name,
            )
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.grid(color="#e4e6ea", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _legend(figure: Any, panels: Any) -> None:
    named: dict[str, Any] = {}
    for ax in panels.ravel():
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=6, fontsize=9, frameon=False)
