"""The theory experiments as tables and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from polyhedge.calibration import coverage_law
from polyhedge_study.files import save_figure
from polyhedge_study.finite_population import TheorySettings, population
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.theory import GapBound, density_at_quantile, fitted_slope, gap_bound, vc_dimension
from polyhedge_study.theory_runs import REUSE, CoverageRow, GapRow, ReuseRow

__all__ = ["TheoryRun", "coverage_grid", "draw_theory", "gap_constants", "gap_grid", "reuse_grid", "theory_report"]

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#d1781b", "#7d838d"
_FACETS = 4
"""K of the paper's experiments, for the dimension V in the bound."""
_DELTA = 0.1
"""Probability with which the bound of Theorem 2 may fail: the gap's 90 % level stands beside it."""


@dataclass(frozen=True)
class TheoryRun:
    """The rows of all three experiments, and their settings."""

    settings: TheorySettings
    coverage: Sequence[CoverageRow]
    reuse: Sequence[ReuseRow]
    gap: Sequence[GapRow]


def theory_report(run: TheoryRun) -> str:
    """All tables in Markdown."""
    grids = coverage_grid(run), reuse_grid(run), gap_grid(run)
    return "\n".join(["# Theory", "", *(grid.markdown() for grid in grids)])


def coverage_grid(run: TheoryRun) -> Grid:
    """Coverage of recalibrated sets beside the Beta law, with a Kolmogorov-Smirnov test."""
    lines = []
    for m in sorted({row.m for row in run.coverage}):
        coverages, law = _coverages(run, m), coverage_law(m, run.settings.alpha)
        lines.append(
            (
                str(m),
                str(len(coverages)),
                f"{coverages.mean():.4f}",
                f"{law.mean():.4f}",
                f"{coverages.std(ddof=1):.4f}" if len(coverages) > 1 else "",
                f"{law.std():.4f}",
                f"{stats.kstest(coverages, law.cdf).pvalue:.3f}",
            )
        )
    return Grid(
        "Coverage after recalibration follows its Beta law",
        ("m", "runs", "mean", "law's mean", "sd", "law's sd", "p"),
        tuple(lines),
        "True coverage of sets that the exact learner shaped; p: Kolmogorov-Smirnov test against the law.",
    )


def _coverages(run: TheoryRun, m: int) -> Array:
    return np.array([row.coverage for row in run.coverage if row.m == m and row.status == "done"])


def reuse_grid(run: TheoryRun) -> Grid:
    """Coverage with and without fresh calibration samples."""
    lines = []
    for sweep, value in _reuse_points(run):
        reused, fresh = _reuse(run, sweep, value)
        lines.append((f"{sweep} = {value}", str(len(reused)), _with_error(reused), _with_error(fresh)))
    return Grid(
        "What reusing the learning samples costs (Lemma 4)",
        ("", "runs", "coverage, reused", "coverage, recalibrated"),
        tuple(lines),
        f"Promised: {1 - run.settings.alpha:g}. Mean true coverage ± standard error. Where n varies the learner is "
        "exact; where K or d does, it is Descent on 80 samples (K = 4 d in the latter case). The bound of Lemma 4 says "
        "nothing about these figures: given the learning samples, the total variation in it is 1 for continuous "
        f"outcomes, and the bound is {-run.settings.alpha:g}.",
    )


def _reuse_points(run: TheoryRun) -> list[tuple[str, int]]:
    done = {(row.sweep, row.value) for row in run.reuse if row.status == "done"}
    return [(sweep, value) for sweep, values in REUSE.items() for value in values if (sweep, value) in done]


def _reuse(run: TheoryRun, sweep: str, value: int) -> tuple[Array, Array]:
    own = [row for row in run.reuse if (row.sweep, row.value, row.status) == (sweep, value, "done")]
    return np.array([row.reused for row in own]), np.array([row.recalibrated for row in own])


def _with_error(values: Array) -> str:
    error = f" ± {_error(values):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{error}"


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def gap_grid(run: TheoryRun) -> Grid:
    """The gap and its parts against n = m, fitted slopes, the theorem's rates and its bound."""
    sizes, parts = _gaps(run)
    lines = []
    for position, n in enumerate(sizes):
        bound = _bound(run.settings, n)
        cells = [f"{part[position]:.4g}" for part in parts.values()]
        lines.append((str(n), *cells, f"{bound.calibration:.3g}", f"{bound.learning:.3g}"))
    if len(sizes) > 1:
        lines.append(("slope", *(_slope(sizes, part) for part in parts.values()), "-0.5", "-0.5, log"))
    constants = gap_constants(run.settings)
    return Grid(
        "Suboptimality gap for one context (Theorem 2), m = n",
        ("n", *parts, "bound: calibration", "bound: learning"),
        tuple(lines),
        "In cost. The gap's 90 % level over the seeds, and the means of its learning part and of the size of its "
        "calibration part; slopes of their logarithms in log n by least squares ± standard error. The context is one "
        "where mixed decisions are best. Bound at delta = 0.1 with "
        f"L_r = {constants['sensitivity']:.3g}, kappa = {constants['density']:.3g} (least over the decisions' "
        f"directions), V = {constants['dimension']:.3g} (K = {_FACETS}); it is far above the gap, and only its rates "
        f"are informative.{_shares(run)}",
    )


def _shares(run: TheoryRun) -> str:
    """Which part is the larger one: measured, and in the bound."""
    sizes, parts = _gaps(run)
    pairs = zip(parts["learning part"], parts["calibration part"], strict=True)
    ratios = [calibration / learning for learning, calibration in pairs if learning > 0]
    if not ratios:
        return ""
    bounds = [_bound(run.settings, n) for n in sizes]
    opposite = [bound.learning / bound.calibration for bound in bounds]
    means = [np.mean([row.calibration_gap for row in run.gap if (row.n, row.status) == (n, "done")]) for n in sizes]
    order = "Measured, the larger part is the other one." if min(ratios) > 1 else "The order depends on n."
    order = "Measured, it is the larger part too." if max(ratios) < 1 else order
    return (
        f" The measured calibration part is {min(ratios):.2g} to {max(ratios):.2g} times the learning part; in the "
        f"bound the learning part is {min(opposite):.0f} to {max(opposite):.0f} times the calibration part. {order} "
        f"With its sign the calibration part is {means[0]:+.2g} in the mean at "
        f"n = {sizes[0]} and {means[-1]:+.2g} at n = {sizes[-1]}."
    )


def _gaps(run: TheoryRun) -> tuple[list[int], dict[str, list[float]]]:
    """Sizes; the level that the gap exceeds with probability delta; means of its learning and calibration part."""
    done = [row for row in run.gap if row.status == "done"]
    sizes = sorted({row.n for row in done})
    own = [[row for row in done if row.n == n] for n in sizes]
    return sizes, {
        "gap, 90 % level": [float(np.quantile([row.gap for row in rows], 1 - _DELTA)) for rows in own],
        "learning part": [float(np.mean([row.learning_gap for row in rows])) for rows in own],
        "calibration part": [float(np.mean([abs(row.calibration_gap) for row in rows])) for rows in own],
    }


def _slope(sizes: Sequence[int], values: Sequence[float]) -> str:
    if min(values) <= 0:
        return ""
    slope, error = fitted_slope(sizes, values)
    return f"{slope:.2f}" + (f" ± {error:.2f}" if np.isfinite(error) else "")


def gap_constants(settings: TheorySettings) -> dict[str, float]:
    """Constants of the theorem in the experiment of `run_gap`.

    Facets along decisions have scores in units of cost, so the cost moves one for one with the radius: L_r = 1. The
    density is the least over the directions of all decisions.
    """
    residuals = population(2, settings.pool).residuals
    densities = [
        density_at_quantile(residuals @ [1 - s, s], 1 - settings.alpha, width=min(0.02, settings.alpha / 2))
        for s in np.linspace(0.0, 1.0, 11)
    ]
    return {"sensitivity": 1.0, "density": min(densities), "dimension": vc_dimension(2, _FACETS)}


def _bound(settings: TheorySettings, n: int) -> GapBound:
    return gap_bound(n, n, delta=_DELTA, **gap_constants(settings))


def draw_theory(run: TheoryRun, paths: Iterable[Path]) -> None:
    """Four panels: the law of the coverage, reuse against n, K and d, and the gap against n."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 7.6), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    _draw_law(panels[0], run)
    _draw_gap(panels[1], run)
    panels[2].set_axis_off()
    for ax, sweep in zip(panels[3:], REUSE, strict=True):
        ax.sharey(panels[3])
        _draw_reuse(ax, run, sweep)
    for ax in (*panels[:2], *panels[3:]):
        ax.grid(color="#e4e6ea", linewidth=0.6)
        ax.set_axisbelow(True)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    handles, labels = panels[1].get_legend_handles_labels()
    panels[2].legend(handles, labels, loc="center left", fontsize=9, frameon=False, title="gap (Theorem 2)")
    save_figure(figure, paths)


def _draw_law(ax: Any, run: TheoryRun) -> None:
    """Empirical distributions of the coverage over the Beta laws."""
    sizes = sorted({row.m for row in run.coverage})
    for m, color in zip(sizes, (_ORANGE, _GREY, _BLUE), strict=False):
        coverages, law = np.sort(_coverages(run, m)), coverage_law(m, run.settings.alpha)
        grid = np.linspace(float(law.ppf(0.0005)), 1.0, 300)
        ax.plot(grid, law.cdf(grid), color=color, linewidth=1.0, linestyle="--")
        share = np.arange(1, len(coverages) + 1) / len(coverages)
        ax.step(coverages, share, where="post", color=color, linewidth=1.4, label=f"m = {m}")
    ax.set_title("coverage after recalibration; dashed: Beta law", fontsize=9)
    ax.set_xlabel("true coverage")
    ax.set_ylabel("share of runs below")
    ax.legend(fontsize=8, frameon=False)


def _draw_gap(ax: Any, run: TheoryRun) -> None:
    sizes, parts = _gaps(run)
    for (name, values), color, marker in zip(parts.items(), (_BLUE, _ORANGE, _GREY), "oDs", strict=True):
        ax.plot(
            sizes, values, color=color, marker=marker, markersize=4.5, linewidth=1.3, label=_named(name, sizes, values)
        )
    bounds = [_bound(run.settings, n) for n in sizes]
    ax.plot(sizes, [b.learning for b in bounds], color=_ORANGE, linestyle=":", label="bound: learning part")
    ax.plot(sizes, [b.calibration for b in bounds], color=_GREY, linestyle=":", label="bound: calibration part")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_title("suboptimality gap for one context", fontsize=9)
    ax.set_xlabel("n = m")
    ax.set_ylabel("cost")


def _named(name: str, sizes: Sequence[int], values: Sequence[float]) -> str:
    slope = _slope(sizes, values) if len(sizes) > 1 else ""
    return f"{name}, slope {slope}" if slope else name


def _draw_reuse(ax: Any, run: TheoryRun, sweep: str) -> None:
    values = [value for name, value in _reuse_points(run) if name == sweep]
    pairs = [_reuse(run, sweep, value) for value in values]
    for side, (label, color) in enumerate((("radius from the learning samples", _ORANGE), ("from fresh ones", _BLUE))):
        means, errors = [pair[side].mean() for pair in pairs], [_error(pair[side]) for pair in pairs]
        ax.errorbar(values, means, yerr=errors, color=color, marker="o", markersize=4.5, capsize=2, label=label)
    ax.axhline(1 - run.settings.alpha, color="black", linewidth=0.8, linestyle=":")
    if sweep == "n":
        ax.set_xscale("log")
        ax.set_xticks(values, [str(value) for value in values])
        ax.minorticks_off()
        ax.legend(fontsize=8, frameon=False, loc="lower right")
        ax.set_title("what reusing the learning samples costs", fontsize=9)
    ax.set_xlabel(sweep)
    ax.set_ylabel("mean true coverage")
