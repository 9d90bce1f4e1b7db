"""The sensitivity experiment as tables, as a picture, and as verdicts on what the paper says about its own figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from polyhedge.calibration import coverage_law
from polyhedge_study.files import save_figure
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.methods import METHODS
from polyhedge_study.sensitivity import SWEEPS, SensitivityRow, SensitivitySettings
from polyhedge_study.summary import paired

__all__ = ["draw_sensitivity", "sensitivity_grid", "sensitivity_report", "statements"]

_METRICS = {
    "coverage": "coverage",
    "volume": "volume",
    "hull_volume": "volume in the hull",
    "worst_case_cost": "worst-case cost",
    "premium": "premium",
}
_JUDGED = ("pinball", "polyhedge")
"""Whom the paper's statements are judged by: its own Algorithm 2, and the library's set."""
_NEAR = 0.02
"""Coverage within two hundredths is near, or mildly affected: the printed standard deviation of a row's coverage."""
_LEVEL = 0.05
"""Of the tests below: the usual one."""
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
    said = ["## What the paper says about this figure", "", *(f"- {sentence}" for sentence in statements(rows)), ""]
    return "\n".join(["# Sensitivity", "", *said, *(grid.markdown() for grid in grids)])


def statements(rows: Sequence[SensitivityRow], settings: SensitivitySettings | None = None) -> list[str]:
    """Each statement of the paper about its sensitivity figure, and whether the measured rows bear it out."""
    settings = SensitivitySettings() if settings is None else settings
    done = [row for row in rows if row.status == "done"]
    judged = {key: own for key in _JUDGED if (own := [row for row in done if row.method == key])}
    claims: dict[str, Callable[[Sequence[SensitivityRow]], str]] = {
        "As d grows, coverage stays near the promised level": lambda own: _near(own, settings),
        "as d grows at K = 8, volume grows": lambda own: _ends(own, "d, K = 8", ("volume", "hull_volume"), grows=True),
        "K = 4d instead of K = 8 reduces the volume in the hull at the largest d": lambda own: _facets(
            own, "hull_volume"
        ),
        "K = 4d instead of K = 8 reduces the worst-case cost at the largest d": lambda own: _facets(
            own, "worst_case_cost"
        ),
        "K has a mild effect on coverage": lambda own: _mild(own),
        "larger K reduces volume at first": lambda own: _ends(own, "K", ("volume", "hull_volume"), upto=1, grows=False),
        "more learning rows, up to half of all, reduce the worst-case cost": lambda own: _ends(
            own, "n / (n + m)", ("worst_case_cost",), upto=2, grows=False
        ),
        "too few calibration rows make coverage unstable": lambda own: _unstable(own, settings),
    }
    sentences = []
    for claim, judge in claims.items():
        found = {METHODS[key].name: verdict for key, own in judged.items() if (verdict := judge(own))}
        if found:
            verdicts = "; ".join(f"{name}: {verdict}" for name, verdict in found.items())
            sentences.append(f"{claim[0].upper()}{claim[1:]}. {verdicts}.")
    return sentences


def _at(own: Iterable[SensitivityRow], sweep: str, value: float) -> list[SensitivityRow]:
    return [row for row in own if row.sweep == sweep and row.value == value]


def _values(own: Iterable[SensitivityRow], sweep: str) -> list[float]:
    return sorted({row.value for row in own if row.sweep == sweep})


def _near(own: Sequence[SensitivityRow], settings: SensitivitySettings) -> str:
    """Whether means lie within `_NEAR` of the promise, or within two standard errors by the exact law."""
    points = [
        [row.coverage for row in _at(own, sweep, value)]
        for sweep in ("d, K = 8", "d, K = 4d")
        for value in _values(own, sweep)
    ]
    if not points:
        return ""
    alpha, law = settings.alpha, coverage_law(settings.n_pooled // 2, settings.alpha)
    sd = float(np.sqrt(law.var() + alpha * (1 - alpha) / settings.n_test))
    means = [float(np.mean(point)) for point in points]
    near = [max(_NEAR, 2 * sd / np.sqrt(len(point))) for point in points]
    holds = all(abs(mean - law.mean()) <= width for mean, width in zip(means, near, strict=True))
    return f"{_word(holds)} ({min(means):.3f} to {max(means):.3f})"


def _mild(own: Sequence[SensitivityRow]) -> str:
    means = [float(np.mean([row.coverage for row in _at(own, "K", value)])) for value in _values(own, "K")]
    return f"{_word(max(means) - min(means) <= _NEAR)} ({min(means):.3f} to {max(means):.3f})" if means else ""


def _ends(
    own: Sequence[SensitivityRow], sweep: str, metrics: Sequence[str], *, grows: bool, upto: int | None = None
) -> str:
    """Whether metrics grow, or fall, from the first value of a sweep to the last, or to that at `upto`."""
    values = _values(own, sweep)
    if len(values) < 2:
        return ""
    first, last = values[0], values[-1] if upto is None else values[min(upto, len(values) - 1)]
    verdicts = [
        f"{_METRICS[metric]} {_change(_at(own, sweep, last), _at(own, sweep, first), metric, grows=grows)}"
        for metric in metrics
    ]
    return f"{', '.join(verdicts)} from {first:g} to {last:g}"


def _facets(own: Sequence[SensitivityRow], metric: str) -> str:
    common = [value for value in _values(own, "d, K = 4d") if value in _values(own, "d, K = 8") and value > 2]
    if not common:
        return ""
    many, few = _at(own, "d, K = 4d", common[-1]), _at(own, "d, K = 8", common[-1])
    return f"{_change(many, few, metric, grows=False)} at d = {common[-1]:g}"


def _change(after: Sequence[SensitivityRow], before: Sequence[SensitivityRow], metric: str, *, grows: bool) -> str:
    """Verdict on a difference that is paired by seeds, and the means before and after."""
    common = {row.seed for row in after} & {row.seed for row in before}
    after, before = ([row for row in side if row.seed in common] for side in (after, before))
    if not common:
        return "not measured on common seeds"
    mean, _, p_value = paired(after, before, metric)
    means = " -> ".join(f"{np.mean([getattr(row, metric) for row in side]):.3g}" for side in (before, after))
    if not p_value < _LEVEL:
        return f"not told apart by {len(after)} seed{'s' if len(after) > 1 else ''} ({means})"
    return f"{_word((mean > 0) == grows)} ({means})"


def _unstable(own: Sequence[SensitivityRow], settings: SensitivitySettings) -> str:
    """The spread of the coverage over the seeds at the least and the most calibration rows, beside its exact law."""
    values = _values(own, "n / (n + m)")
    if len(values) < 2:
        return ""
    many, few = (
        np.array([row.coverage for row in _at(own, "n / (n + m)", value)]) for value in (values[0], values[-1])
    )
    if min(len(many), len(few)) < 2:
        return ""
    p_value = stats.f.sf(few.var(ddof=1) / many.var(ddof=1), len(few) - 1, len(many) - 1)
    verdict = "holds" if p_value < _LEVEL else f"not told apart by {len(few)} seeds"
    rows = [settings.n_pooled - round(value * settings.n_pooled) for value in (values[0], values[-1])]
    laws = [float(coverage_law(m, settings.alpha).std()) for m in rows]
    spreads = f"standard deviation {many.std(ddof=1):.3f} with {rows[0]} rows, {few.std(ddof=1):.3f} with {rows[1]}"
    return f"{verdict} ({spreads}; by the exact law of the true coverage {laws[0]:.3f} and {laws[1]:.3f})"


def _word(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def sensitivity_grid(rows: Sequence[SensitivityRow], sweep: str) -> Grid:
    """One sweep: the metrics of each learner, a column for each value."""
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
    """One row a sweep: coverage, volumes, worst-case cost (the paper's) and premium, with one standard error."""
    from matplotlib.figure import Figure

    sweeps = [sweep for sweep in SWEEPS if any(row.sweep == sweep for row in rows)]
    figure = Figure(figsize=(3.4 * len(_METRICS), 2.9 * len(sweeps) + 0.6), layout="constrained")
    panels = figure.subplots(len(sweeps), len(_METRICS), squeeze=False)
    for line, sweep in zip(panels, sweeps, strict=True):
        own = [row for row in rows if row.sweep == sweep]
        for ax, (metric, label) in zip(line, _METRICS.items(), strict=True):
            _draw_panel(ax, own, metric)
            ax.set_xlabel(sweep)
            ax.set_ylabel(label)
            if metric == "coverage":
                ax.axhline(1 - alpha, color="black", linewidth=0.8, linestyle=":")
            if metric in ("volume", "hull_volume"):
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
                # On a logarithmic axis, that of volumes, a bar must not reach zero.
                yerr=[np.minimum(errors, 0.9 * np.abs(means)) if "volume" in metric else errors, errors],
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
