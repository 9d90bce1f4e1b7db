"""Tables and a picture of a scaling run, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge_study.files import save_figure
from polyhedge_study.grid import Grid
from polyhedge_study.paper import paper_table1
from polyhedge_study.scaling import ScalingRun
from polyhedge_study.scaling_methods import MODES
from polyhedge_study.scaling_rows import ScalingRow

__all__ = ["Summary", "comparison_grid", "draw_scaling", "markdown_report", "shared_grid", "summaries", "summary_grid"]

EXACT, AGGREGATED, BINARIES = "Scenario", "MIQCP + binaries + rows (SCIP)", "MIQCP + binaries (SCIP)"
LITERAL, PINBALL = "MIQCP + 1'lambda = 1 (SCIP)", "Pinball"
_STYLES = {
    "Scenario": ("#1f5fa8", "o"),
    "CCG": ("#4b9b8e", "s"),
    "Descent": ("#7d838d", "v"),
    "Pinball": ("#d1781b", "D"),
    AGGREGATED: ("#b3261e", "^"),
    BINARIES: ("#8a4fa3", "x"),
    LITERAL: ("#5b3a29", "+"),
}
_WITHOUT_ROWS = {LITERAL: "+ 1'lambda = 1", BINARIES: "+ binaries"}


@dataclass(frozen=True)
class Summary:
    """The seeds of one method at one size.

    Attributes
    ----------
    mode, n, method : which runs.
    runs, certified, stopped : how many there are, have a certificate, and ran out of time.
    mean_seconds, median_seconds : wall-clock times.
    objective : mean objective.
    excess : mean objective above the best bound of any method, as a share of the mean premium of that bound.
    recalibrated, nominal : mean worst-case cost over the same contexts at the calibrated radius; nominal cost.
    test_premium, test_coverage : means over the test splits.
    """

    mode: str
    n: int
    method: str
    runs: int
    certified: int
    stopped: int
    mean_seconds: float
    median_seconds: float
    objective: float
    excess: float
    recalibrated: float
    nominal: float
    test_premium: float
    test_coverage: float


def summaries(rows: Iterable[ScalingRow]) -> tuple[Summary, ...]:
    """One summary for each mode, size and method, in this order; failed runs count as runs only."""
    rows = tuple(rows)
    bounds: dict[tuple[str, int, int], float] = {}
    groups: dict[tuple[str, int, str], list[ScalingRow]] = {}
    for row in rows:
        cell = row.mode, row.n, row.seed
        bounds[cell] = max(bounds.get(cell, -np.inf), row.lower_bound)
        groups.setdefault((row.mode, row.n, row.method), []).append(row)
    order = sorted(groups, key=lambda key: (MODES.index(key[0]), key[1]))
    return tuple(_summary(key, groups[key], bounds) for key in order)


def _summary(key: tuple[str, int, str], rows: list[ScalingRow], bounds: dict[tuple[str, int, int], float]) -> Summary:
    good = [row for row in rows if row.status != "FAILED"]
    best = _mean(bounds[row.mode, row.n, row.seed] for row in good)
    objective, nominal = _mean(row.objective for row in good), _mean(row.nominal for row in good)
    seconds = [row.seconds for row in good]
    return Summary(
        *key,
        runs=len(rows),
        certified=sum(row.certified for row in good),
        stopped=sum(row.status == "STOPPED_EARLY" for row in good),
        mean_seconds=_mean(seconds),
        median_seconds=float(np.median(seconds)) if seconds else np.nan,
        objective=objective,
        excess=(objective - best) / (best - nominal),
        recalibrated=_mean(row.recalibrated for row in good),
        nominal=nominal,
        test_premium=_mean(row.test_premium for row in good),
        test_coverage=_mean(row.test_coverage for row in good),
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else np.nan


def comparison_grid(run: ScalingRun) -> Grid:
    """The paper's Table 1 beside these runs, a column for each n: a single context, times are means over the seeds."""
    of = {(s.n, s.method): s for s in summaries(run.rows) if s.mode == "single"}
    printed = {row.n: row for row in paper_table1()}
    ran, columns = {method for _, method in of}, []
    for n in run.settings.sizes:
        exact, full, pinball = (of.get((n, name)) for name in (EXACT, AGGREGATED, PINBALL))
        weak = {head: of.get((n, name)) for name, head in _WITHOUT_ROWS.items() if name in ran}
        paper = printed.get(n)
        columns.append(
            {
                "certified: paper": f"{paper.certified}/{paper.runs}" if paper else "",
                **{f"- MIQCP {head}": _certified(s) for head, s in weak.items()},
                "- MIQCP + binaries + rows": _certified(full),
                "- exact": _certified(exact),
                "MIQCP seconds: paper": _seconds(paper.miqcp_seconds if paper else None),
                **{f"- {head}": _seconds(s.mean_seconds if s else None) for head, s in weak.items()},
                "- + binaries + rows": _seconds(full.mean_seconds if full else None),
                "exact seconds": _seconds(exact.mean_seconds if exact else None),
                "pinball seconds: paper": _seconds(paper.pinball_seconds if paper else None),
                "- here": _seconds(pinball.mean_seconds if pinball else None),
                "MIQCP / pinball time: paper": _ratio(paper.time_ratio if paper else None),
                "- here, + binaries + rows": _ratio(
                    full.mean_seconds / pinball.mean_seconds if full and pinball else None
                ),
                "+ binaries + rows / exact": _ratio(full.mean_seconds / exact.mean_seconds if full and exact else None),
                "pinball's gap: paper": f"{paper.gap_percent:.1f} %" if paper else "",
                "- here, of cost": _gap(pinball, exact, of_premium=False),
                "- here, of premium": _gap(pinball, exact, of_premium=True),
            }
        )
    return Grid(
        title=f"Table 1, task {run.settings.task}: one context",
        heads=("n", *(str(n) for n in run.settings.sizes)),
        rows=_transposed(columns),
        note=(
            "The context is the mean prediction of the learning split. MIQCP, by what is added to the program of "
            "Corollary 1, whose scale is free: 1'lambda = 1; or binaries that normalise every facet; or these and "
            f"aggregated rows. The first two stop after {run.settings.printed_limit:g} s, "
            f"all after {run.settings.max_nodes} nodes. The paper names Gurobi, and certified "
            f"{sum(row.certified for row in paper_table1())} of {sum(row.runs for row in paper_table1())} runs; how it "
            "normalised the program it does not say. exact: Scenario. Gap: how much more "
            "the pinball set costs than the exact one, both recalibrated, in percent of the cost (as in the paper) "
            "and of the premium (the cost above deciding as if the prediction were true)."
        ),
    )


def _transposed(columns: list[dict[str, str]]) -> tuple[tuple[str, ...], ...]:
    return tuple((label, *(column[label] for column in columns)) for label in columns[0])


def shared_grid(run: ScalingRun) -> Grid:
    """The objective over all learning contexts, a column for each n."""
    of = {(s.n, s.method): s for s in summaries(run.rows) if s.mode == "shared"}
    methods = list(dict.fromkeys(method for _, method in of))
    columns = []
    for n in run.settings.sizes:
        column = {}
        for method in methods:
            s = of.get((n, method))
            name = method.removesuffix(" (SCIP)")  # the console has 80 columns
            column[f"{name}: certified"] = _certified(s)
            column[f"{name}: seconds"] = _seconds(s.median_seconds if s else None)
            column[f"{name}: above bound, %"] = _share(s.excess if s else None)
        columns.append(column)
    return Grid(
        title=f"Task {run.settings.task}: one set for all learning contexts",
        heads=("n", *(str(n) for n in run.settings.sizes)),
        rows=_transposed(columns),
        note=(
            "Seconds: medians. Above bound: mean objective less the certified bound, in percent of its premium. "
            f"MIQCP on SCIP plans for {run.settings.shared_contexts} random contexts only; its set is judged on all."
        ),
    )


def summary_grid(run: ScalingRun, mode: str) -> Grid:
    """All methods of one mode."""
    own = [s for s in summaries(run.rows) if s.mode == mode]
    contexts = "one context" if mode == "single" else "all learning contexts"
    note = (
        "Above bound: objective less the certified bound, in percent of the bound's premium. Recalibrated: the same "
        "contexts at the calibrated radius. Test: premium and coverage on the test contexts."
    )
    if mode == "shared":
        note += f" MIQCP plans for {run.settings.shared_contexts} random contexts only; its set is judged on all."
    return Grid(
        title=f"All methods: {contexts}",
        heads=(
            *("method, n", "runs", "certified", "out of time", "mean s", "median s", "objective", "above bound, %"),
            *("recalibrated", "test premium", "test coverage"),
        ),
        rows=tuple(
            (
                f"{s.method}, {s.n}",
                str(s.runs),
                str(s.certified),
                str(s.stopped),
                _seconds(s.mean_seconds),
                _seconds(s.median_seconds),
                f"{s.objective:.5f}",
                _share(s.excess),
                f"{s.recalibrated:.4f}",
                f"{s.test_premium:.4f}",
                f"{s.test_coverage:.3f}",
            )
            for s in own
        ),
        note=note,
    )


def _certified(summary: Summary | None) -> str:
    return f"{summary.certified}/{summary.runs}" if summary else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _share(value: float | None) -> str:
    # Rounding may leave a certified objective a hair below its bound.
    percent = 0.0 if value is None or abs(value) < 5e-6 else 100 * value
    return "" if value is None else f"{percent:.2f}" if percent < 10 else f"{percent:.1f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _gap(summary: Summary | None, exact: Summary | None, *, of_premium: bool) -> str:
    if summary is None or exact is None:
        return ""
    unit = exact.recalibrated - exact.nominal if of_premium else abs(exact.recalibrated)
    return f"{100 * (summary.recalibrated - exact.recalibrated) / unit:.1f} %"


def markdown_report(run: ScalingRun) -> str:
    """All tables, what is missing and why, and what made them."""
    grids = [comparison_grid(run), shared_grid(run), *(summary_grid(run, mode) for mode in MODES)]
    packages = ", ".join(f"{name} {version}" for name, version in run.machine["packages"].items())
    settings = run.settings
    closing = [
        "## Not run" if run.left_out else "",
        *(f"- {note}" for note in run.left_out),
        "",
        "## Settings",
        f"Seeds 0 to {settings.seeds - 1}, alpha {settings.alpha:g}, certified within {settings.tolerance:g} "
        f"(relative); {settings.n_train} training, {settings.n_calibrate} calibration and {settings.n_test} test rows. "
        "Time limits: "
        f"exact methods {settings.exact_limit:g} s, MIQCP without aggregated rows {settings.printed_limit:g} s, MIQCP "
        f"on {settings.shared_contexts} contexts {settings.shared_limit:g} s, Pinball and Descent "
        f"{settings.heuristic_limit:g} s. Node limit of MIQCP: {settings.max_nodes}.",
        "",
        f"{run.machine['platform']}, {run.machine['processor']}, {run.machine['cores']} cores, Python "
        f"{run.machine['python']}; {packages}.",
        "",
    ]
    return "\n".join(["# How the learners scale", "", *(grid.markdown() for grid in grids), *closing])


def draw_scaling(run: ScalingRun, paths: Iterable[Path]) -> None:
    """Time against n on two logarithmic axes, one panel a mode; the files' suffixes name their formats."""
    from matplotlib.figure import Figure

    every = summaries(run.rows)
    figure = Figure(figsize=(9.6, 4.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, mode, title in zip(axes, MODES, ("one context", "all learning contexts"), strict=True):
        for method, (color, marker) in _STYLES.items():
            own = [s for s in every if s.mode == mode and s.method == method]
            if own:
                _draw_line(ax, own, method, color, marker)
        _finish(ax, run.settings.sizes, title)
    paper = paper_table1()
    for name, seconds, style in (("MIQCP", "miqcp_seconds", "--"), ("pinball", "pinball_seconds", ":")):
        ns, times = [row.n for row in paper], [getattr(row, seconds) for row in paper]
        axes[0].plot(ns, times, color="black", linestyle=style, linewidth=1.0, label=f"paper: {name}")
    axes[0].set_ylabel("seconds (mean over the seeds)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    figure.suptitle(f"Task {run.settings.task}: time to learn a set from n samples", fontsize=11)
    save_figure(figure, paths)


def _draw_line(ax: Any, own: list[Summary], method: str, color: str, marker: str) -> None:
    ns, times = [s.n for s in own], [s.mean_seconds for s in own]
    ax.plot(ns, times, color=color, marker=marker, markersize=5, linewidth=1.5, label=method)
    # Hollow where some run ended without an answer of its own: the time is then a limit.
    stopped = [s for s in own if s.stopped]
    ax.plot([s.n for s in stopped], [s.mean_seconds for s in stopped], color="white", marker=".", linestyle="none")


def _finish(ax: Any, sizes: Sequence[int], title: str) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(list(sizes), [str(n) for n in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("learning samples n")
    ax.set_title(title, fontsize=10)
    ax.grid(color="#e4e6ea", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
