"""Tables, CSV files and log-log pictures of a speed run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge_study.files import save_figure
from polyhedge_study.grid import Grid
from polyhedge_study.inside import replace_file
from polyhedge_study.speed.cases import PRODUCT
from polyhedge_study.speed.decisions import OURS, DecisionsRun, SpeedRow
from polyhedge_study.speed.growth import GrowthLine, GrowthPoint, lines
from polyhedge_study.speed.learning import LearningRun
from polyhedge_study.speed.peers import TOLERANCE, PeersRun
from polyhedge_study.tidy import TidyTable

__all__ = ["decisions_grids", "draw_growth", "learning_grids", "markdown", "peers_grids", "save"]

_COLORS = ("#1f5fa8", "#d1781b", "#4b9b8e", "#b3261e", "#8a4fa3", "#7d838d", "#5b3a29")
_MARKERS = "osD^vx+"

Run = DecisionsRun | LearningRun | PeersRun


def decisions_grids(run: DecisionsRun) -> tuple[Grid, ...]:
    """One table for each regime, the checks, and the growth."""
    names = dict.fromkeys(row.regime for row in run.rows)
    grids = [_regime_grid([row for row in run.rows if row.regime == name]) for name in names]
    if run.checks:
        grids.append(_check_grid(run))
    return (*grids, *_growth_grids(run.growth))


def _regime_grid(rows: list[SpeedRow]) -> Grid:
    first = rows[0]
    return Grid(
        title=f"{first.regime}: {first.cost}, d = {first.d}, K = {first.K}, {first.n_contexts} contexts",
        heads=("tool", "contexts", "time of one", "times ours", "target", "met", "largest difference"),
        rows=tuple(
            (
                row.tool,
                str(row.timed) if row.timed else "-",
                _time(row.seconds),
                "" if row.tool == OURS else _ratio(row.ratio),
                _target(row),
                _yes(row.meets_target),
                row.reason or _small(row.difference),
            )
            for row in rows
        ),
    )


def _target(row: SpeedRow) -> str:
    if np.isnan(row.target):
        return ""
    return f">= 1/{1 / row.target:.0f}" if row.tool == PRODUCT else f">= {row.target:.0f}"


def _check_grid(run: DecisionsRun) -> Grid:
    return Grid(
        title="Optimal values against an independent solver's",
        heads=("regime", "distinct decisions", "solver", "random contexts", "largest difference", "within 1e-7"),
        rows=tuple(
            (c.regime, str(c.distinct), c.solver, str(c.contexts), _small(c.difference), _yes(c.passed))
            for c in run.checks
        ),
    )


def _growth_grids(points: Sequence[GrowthPoint]) -> tuple[Grid, ...]:
    curves = lines(points)
    if not curves:
        return ()
    rows = tuple((line.parameter, line.setting, line.method, _times(line), _exponent(line.exponent)) for line in curves)
    heads = ("along", "setting", "method", "seconds at each size", "exponent")
    note = "Exponent p of time ~ size^p, by least squares on logarithms."
    return (Grid("Growth", heads, rows, note),)


def _times(line: GrowthLine) -> str:
    return ", ".join(f"{size}: {seconds:.2g}" for size, seconds in zip(line.sizes, line.seconds, strict=True))


def _exponent(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def learning_grids(run: LearningRun) -> tuple[Grid, ...]:
    """One table of all calls, and the growth."""
    rows = tuple(
        (
            f"{row.method}, {row.mode}",
            str(row.n),
            str(row.d),
            str(row.K or ""),
            _time(row.seconds),
            "" if np.isnan(row.objective) else f"{row.objective:.5f}",
            "" if not np.isfinite(row.lower_bound) else f"{row.lower_bound:.5f}",
            row.reason,
        )
        for row in run.rows
    )
    heads = ("method", "n", "d", "K", "time", "objective", "lower bound", "remark")
    return (Grid("Seconds to learn a set", heads, rows), *_growth_grids(run.growth))


def peers_grids(run: PeersRun) -> tuple[Grid, ...]:
    """All peers on all sets."""
    rows = tuple(
        (
            f"{row.peer} {row.version}".strip(),
            row.set,
            str(row.d),
            str(row.timed) if row.timed else "-",
            _time(row.seconds),
            _time(row.ours),
            _ratio(row.ratio),
            _yes(row.equal),
            row.reason or _small(row.difference),
        )
        for row in run.rows
    )
    heads = ("peer", "set", "d", "timed", "time", "ours", "times ours", "equal", "difference")
    note = (
        f"Time of one context. Difference: largest of the optimal values; equal: within {TOLERANCE:g}. Decisions on "
        "the simplex, cost (c + u)'z."
    )
    return (Grid("Peers on the same sets", heads, rows, note),)


def _time(seconds: float) -> str:
    if np.isnan(seconds):
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _ratio(value: float) -> str:
    if np.isnan(value):
        return ""
    return f"1/{1 / value:.3g}" if value < 1 else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _small(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.1e}"


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "NO"


def markdown(title: str, run: Run, grids: Iterable[Grid]) -> str:
    """All tables, and what made them."""
    packages = ", ".join(f"{name} {version}" for name, version in run.machine.get("packages", {}).items())
    machine = run.machine
    closing = [
        "## Machine and settings",
        f"{machine.get('platform')}, {machine.get('processor')}, {machine.get('cores')} cores, Python "
        f"{machine.get('python')}; {packages}.",
        "",
        "Times depend on the machine and its load; the ratios are of times taken in turns within one run.",
        "",
        "```json",
        json.dumps(asdict(run.settings), indent=2),
        "```",
        "",
    ]
    return "\n".join([f"# {title}", "", *(grid.markdown() for grid in grids), *closing])


def save(folder: Path, stem: str, title: str, run: Run, grids: Iterable[Grid]) -> list[Path]:
    """Write `<stem>.md`, `.csv` and `.json` (and `<stem>_growth.csv`, `_checks.csv`); each appears whole."""
    record = {"settings": asdict(run.settings), "machine": run.machine}
    texts = {f"{stem}.md": markdown(title, run, grids), f"{stem}.json": json.dumps(record, indent=2) + "\n"}
    tables: dict[str, Sequence[Any]] = {f"{stem}.csv": run.rows}
    if isinstance(run, DecisionsRun):
        tables |= {f"{stem}_growth.csv": run.growth, f"{stem}_checks.csv": run.checks}
    tables = {name: rows for name, rows in tables.items() if rows}
    for name, text in texts.items():
        replace_file(folder / name, text.encode())
    for name, rows in tables.items():
        TidyTable(folder / name, type(rows[0])).write(rows)
    names = (f"{stem}.md", f"{stem}.csv", f"{stem}.json", f"{stem}_growth.csv", f"{stem}_checks.csv")
    return [folder / name for name in names if name in texts or name in tables]


def draw_growth(points: Sequence[GrowthPoint], title: str, paths: Iterable[Path]) -> None:
    """Seconds against size on two logarithmic axes, a panel for each parameter; legends give the exponents."""
    from matplotlib.figure import Figure

    curves = lines(points)
    parameters = list(dict.fromkeys(line.parameter for line in curves))
    figure = Figure(figsize=(4.6 * max(len(parameters), 1), 6.0), layout="constrained")
    for ax, parameter in zip(np.atleast_1d(figure.subplots(1, max(len(parameters), 1))), parameters, strict=False):
        _panel(ax, parameter, [line for line in curves if line.parameter == parameter])
    figure.suptitle(title, fontsize=11)
    save_figure(figure, paths)


def _panel(ax: Any, parameter: str, curves: list[GrowthLine]) -> None:
    from matplotlib.ticker import NullLocator

    methods = list(dict.fromkeys(line.method for line in curves))
    settings = list(dict.fromkeys(line.setting for line in curves))
    for line in curves:
        k = methods.index(line.method) % len(_COLORS)
        label = f"{line.method} ({line.setting}): {_exponent(line.exponent)}"
        style = ("-", "--", ":")[settings.index(line.setting) % 3]
        ax.plot(line.sizes, line.seconds, style, color=_COLORS[k], marker=_MARKERS[k], markersize=4, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    sizes = sorted({size for line in curves for size in line.sizes})
    ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(parameter)
    ax.set_ylabel("seconds")
    ax.grid(color="#e4e6ea", linewidth=0.6)
    ax.legend(
        fontsize=7,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        title="exponent of size",
        handlelength=3.5,
    )
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
