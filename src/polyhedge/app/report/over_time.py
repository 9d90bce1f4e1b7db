"""Pages over time: how issued bounds have held, and a backtest over history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhedge._support.text import with_unit
from polyhedge._support.validation import Array
from polyhedge.app.report.page import Block, Card, Cards, Note, Page, Section, Text, frame_table
from polyhedge.app.report.pictures import draw
from polyhedge.monitoring.backtest import Backtest, in_days
from polyhedge.monitoring.log import LoggedRow
from polyhedge.monitoring.monitor import Monitoring
from polyhedge.plots.style import BLUE, GREY, ORANGE, RED, plain, tidy

_WINDOW = 50
"""Rows of the moving share: with fewer, one miss in ten rows would look like a change."""
# Inches: the whole width of the page.
_WIDE = (8.4, 3.4)


def monitoring_report(
    title: str,
    monitored: Monitoring,
    history: Sequence[LoggedRow],
    radius: float,
    cost_unit: str = "",
    diagnostics: Sequence[str] = (),
) -> str:
    """The page of a model whose outcomes are monitored: coverage, alarm, bounds and costs in the order of the rows.

    `monitored`, `history` and `diagnostics` are those of the `OutcomeLog`, `radius` is the one in force; `title` is
    that of the page, and costs are in units of `cost_unit`.
    """
    n, n_bounded, alarm = len(monitored.missed), int(monitored.has_bound.sum()), monitored.alarm
    of_rows = f"of {n} rows" if n == n_bounded else f"of {n_bounded} rows with a bound"
    unbounded = (
        []
        if n == n_bounded or monitored.not_missed is None
        else [
            Card("rows without a bound", str(n - n_bounded), f"of {n} rows"),
            Card("not missed", f"{float(monitored.not_missed):.3f}", "of all rows; those without a bound count"),
        ]
    )
    cards = [
        Card("covered", "no rows yet" if monitored.coverage is None else f"{float(monitored.coverage):.3f}", of_rows),
        Card("promised", f"{monitored.promised:.3g}"),
        *unbounded,
        Card("alarm", "none kept" if alarm is None else "raised" if alarm.is_raised else "no"),
        Card("radius in force", f"{radius:.4g}"),
    ]
    blocks: list[Block] = [Cards(cards)]
    if alarm is not None:
        blocks.append(Note(f"{alarm}.", warning=alarm.is_raised))
    blocks += [Note(text, warning=True) for text in diagnostics]
    if monitored.was_recomputed:
        blocks.append(
            Text("Some rows came without the bounds that were issued for them; theirs were recomputed from the model.")
        )
    sections = [Section("What came", blocks)]
    if n:
        sections.append(Section("Coverage over time", _coverage_picture(monitored)))
        sections.append(Section("Bounds and costs over time", _cost_picture(history, cost_unit)))
    lead = "What was promised, and what came, in the order in which outcomes became known."
    return Page(title, lead, sections).html()


def _coverage_picture(monitored: Monitoring) -> list[Block]:
    row = np.flatnonzero(monitored.has_bound) + 1
    covered, n = ~monitored.missed[row - 1], len(row)
    if not n:
        return [Text("No row had a bound, so that there is no coverage to show.")]
    running = np.cumsum(covered) / np.arange(1, n + 1)
    moving = np.convolve(covered, np.ones(_WINDOW) / _WINDOW, mode="valid") if n >= _WINDOW else np.zeros(0)

    def paint(ax: Any) -> None:
        ax.plot(row, running, color=BLUE, label="all rows so far")
        if len(moving):
            ax.plot(row[_WINDOW - 1 :], moving, color=ORANGE, linewidth=1.0, label=f"last {_WINDOW} rows")
        ax.axhline(monitored.promised, color=GREY, linestyle="--", linewidth=1.0, label="promised")
        if monitored.alarm is not None and monitored.alarm.raised_at is not None:
            ax.axvline(monitored.alarm.raised_at, color=RED, linewidth=1.2, label="alarm")
        ax.set(xlabel="outcomes known", ylabel="share covered", ylim=(min(0.5, float(running.min())) - 0.02, 1.02))
        tidy(ax)

    return draw(paint, "Share of the rows with a bound that were covered by what they were promised.", _WIDE)


def _cost_picture(history: Sequence[LoggedRow], unit: str) -> list[Block]:
    bound, cost = (
        np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        for values in ([row.cost_bound for row in history], [row.cost for row in history])
    )
    if not np.isfinite(bound).any():
        return [
            Text(
                "No decisions were noted, so there are no bounds to show. `polyhedge decide MODEL NEW --out FILE --key "
                "COLUMN` notes them."
            )
        ]
    caption = "The bound on the cost of each decision, and its realised cost. Crosses lie above their bounds."
    place = np.arange(1, len(bound) + 1)
    return draw(lambda ax: _paint_costs(ax, place, bound, cost, "outcomes known", unit), caption, _WIDE)


def _paint_costs(ax: Any, place: Any, bound: Array, cost: Array, label: str, unit: str) -> None:
    ax.plot(place, bound, color=BLUE, linewidth=1.0, label="bound, known before the outcome")
    ax.plot(place, cost, color=GREY, linewidth=0.8, marker=".", markersize=3, label="realised cost")
    broken = cost > bound
    if broken.any():
        ax.plot(np.asarray(place)[broken], cost[broken], color=RED, linestyle="", marker="x", label="above its bound")
    ax.set(xlabel=plain(label), ylabel=plain(with_unit("cost", unit)))
    tidy(ax)


def backtest_report(backtest: Backtest, title: str = "Promise and reality over history") -> str:
    """The page of a `backtest` under a `title`: coverage, bounds and costs period by period."""
    worst, periods = backtest.worst, backtest.periods
    cards = [
        Card("covered", f"{float(backtest.coverage):.3f}", f"of {backtest.coverage.n} rows with a bound"),
        Card("promised", f"{backtest.promised:.3g}"),
        Card("worst period", f"{worst.coverage:.3f}", f"from {in_days(worst.start)}, {worst.n} rows"),
        Card("rows without a bound", str(sum(period.n_without_bound for period in periods))),
    ]
    heads = ["from", "rows", "covered", "mean bound", "mean cost", "without a bound", "radius"]
    frame = backtest.to_frame().set_axis(heads, axis=1)
    frame["from"] = frame["from"].map(in_days)
    frame = frame.rename(columns={head: with_unit(head, backtest.cost_unit) for head in ("mean bound", "mean cost")})
    note = (
        "Each period was decided with what was known before it. Shares covered and means of bounds leave out rows "
        f"without one; where these count as held, {float(backtest.not_missed):.3f} of all rows were not missed."
    )
    caption = "Share of the rows with a bound of each period that were covered."
    # Where periods begin, as matplotlib takes it: dates or numbers.
    places = [p.start if isinstance(p.start, np.datetime64) else float(p.start) for p in periods]

    def paint(ax: Any) -> None:
        ax.plot(places, [p.coverage for p in periods], color=BLUE, marker="o", markersize=3, label="covered")
        ax.axhline(backtest.promised, color=GREY, linestyle="--", linewidth=1.0, label="promised")
        ax.set(ylabel="share covered")
        tidy(ax)

    def paint_costs(ax: Any) -> None:
        bound, cost = (np.array([getattr(p, name) for p in periods]) for name in ("cost_bound", "realised"))
        _paint_costs(ax, places, bound, cost, "", backtest.cost_unit)

    sections = [
        Section("In short", [Cards(cards), Text(backtest.verdict)]),
        Section("Coverage over time", draw(paint, caption, _WIDE)),
        Section("Bounds and costs over time", draw(paint_costs, "Mean bound and mean cost of each period.", _WIDE)),
        Section("Period by period", [frame_table("Promise and reality", frame, note)]),
    ]
    lead = "What would have been promised, and what would have come, had the decider been used over this history."
    return Page(title, lead, sections).html()
