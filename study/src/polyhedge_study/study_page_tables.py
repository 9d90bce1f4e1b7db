"""The study's figures as tables that can be sorted, and as cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyhedge.app.report.page import Card, Cards, Cell, Column, Table
from polyhedge_study.methods import METHODS, POLYHEDGE
from polyhedge_study.study_tables import SIGNIFICANT, TITLES, against_print, by_method, scale_of, tasks_of
from polyhedge_study.study_words import SIMPLE, best_rival, share_below
from polyhedge_study.summary import TableRow, TimeRow
from polyhedge_study.tasks import TASKS

__all__ = ["cost_cards", "task_table", "times_table"]

_HEADS = {
    "worst_case_cost": "worst-case cost (x10)",
    "premium": "premium (x10)",
    "coverage": "coverage",
    "regret": "regret (x10)",
    "volume": "volume",
    "hull_volume": "volume in the hull",
}
# What is compared comes first: the rest of a wide table is off the screen.
_PARTS = {"worst_case_cost": ("paper", "here", "difference"), "premium": ("here",), "hull_volume": ("here",)}


def task_table(figures: Sequence[TableRow], task: str) -> Table:
    """All methods on one task: cost, the paired test against Polyhedge, and the other figures beside the paper's."""
    methods = by_method(figures, task)
    columns = [Column("method")]
    for metric, head in _HEADS.items():
        columns += [Column(part, head) for part in _PARTS.get(metric, ("paper", "here"))]
        if metric == "worst_case_cost":
            columns += [Column(part, "cost less Polyhedge's") for part in ("mean", "p")]
    columns.append(Column("runs"))
    note = (
        "Mean ± standard deviation over the seeds (standard error in brackets). Bold: lowest among the methods with a "
        "guarantee. Cost less Polyhedge's: mean of the paired differences ± standard error; p from a paired t-test, "
        f"Holm-corrected, * below 0.05. Here: what this run measured. {against_print(methods)}"
    )
    return Table(TITLES[task], columns, [_row(own) for own in methods.values()], note)


def _row(own: Mapping[str, TableRow]) -> list[Cell]:
    first = own["coverage"]
    # References have no set, so a guarantee is not missing.
    kind = first.group + (", no guarantee" if first.guarantee == "none" and first.group != "reference" else "")
    cells = [Cell(first.name, detail=kind)]
    for metric in _HEADS:
        figure = own[metric]
        here = _mean(figure) if figure.n_done else Cell("failed", np.nan)
        known = {"paper": _printed(figure), "here": here, "difference": _difference(figure)}
        cells += [known[part] for part in _PARTS.get(metric, ("paper", "here"))]
        cells += _paired(figure) if metric == "worst_case_cost" else []
    cost = own["worst_case_cost"]
    runs = f"{cost.n_done}" + (f" of {cost.n_done + cost.n_failed}" if cost.n_failed else "")
    return [*cells, Cell(runs, float(cost.n_done))]


def _mean(figure: TableRow) -> Cell:
    scale = scale_of(figure.metric)
    if np.isnan(figure.here):
        return Cell("", np.nan)
    error = f" ({scale * figure.se:.2g})" if np.isfinite(figure.se) else ""
    spread = f"± {_number(scale * figure.sd)}{error}" if np.isfinite(figure.sd) else ""
    return Cell(_number(scale * figure.here, figure.metric), scale * figure.here, figure.best, spread)


def _printed(figure: TableRow) -> Cell:
    scale = scale_of(figure.metric)
    if np.isnan(figure.paper):
        return Cell("", np.nan)
    spread = f"± {_number(scale * figure.paper_sd)}" if np.isfinite(figure.paper_sd) else ""
    return Cell(_number(scale * figure.paper, figure.metric), scale * figure.paper, detail=spread)


def _difference(figure: TableRow) -> Cell:
    value = scale_of(figure.metric) * figure.difference
    return Cell("", np.nan) if np.isnan(value) else Cell(_signed(value, figure.metric), value)


def _paired(cost: TableRow) -> list[Cell]:
    if cost.method == POLYHEDGE or np.isnan(cost.versus_polyhedge):
        return [Cell("", np.nan), Cell("", np.nan)]
    error = f"± {10 * cost.versus_polyhedge_se:.2g}" if np.isfinite(cost.versus_polyhedge_se) else ""
    star = "*" if cost.p_value < SIGNIFICANT else ""
    p_value = f"{cost.p_value:.3f}{star}" if np.isfinite(cost.p_value) else ""
    value = 10 * cost.versus_polyhedge
    return [Cell(_signed(value, "worst_case_cost"), value, detail=error), Cell(p_value, cost.p_value)]


def _number(value: float, metric: str = "") -> str:
    if not np.isfinite(value):
        return "∞" if value > 0 else "-∞"
    digits = 3 if metric == "coverage" or (not metric and abs(value) < 0.095) else 2
    # Adding 0 turns a rounded -0.00 into 0.00.
    return f"{value:.3g}" if abs(value) >= 100 else f"{round(value, digits) + 0.0:.{digits}f}"


def _signed(value: float, metric: str) -> str:
    text = _number(abs(value), metric)
    return f"{'-' if value < 0 and float(text.replace('∞', 'inf')) else '+'}{text}"


def cost_cards(figures: Sequence[TableRow]) -> list[Cards]:
    """Polyhedge's premium on each task, beside the best of the paper's methods and the one-sided box."""
    cards = []
    for task in tasks_of(figures):
        methods = by_method(figures, task)
        premium = {key: own["premium"] for key, own in methods.items() if np.isfinite(own["premium"].here)}
        if POLYHEDGE not in premium:
            continue
        rival = best_rival(methods)
        more = [] if rival is None else [_rival(rival, premium[POLYHEDGE])]
        if SIMPLE in premium:
            more.append(f"one-sided box: {10 * premium[SIMPLE].here:.2f}")
        cards.append(
            Card(f"{task.capitalize()}: premium of Polyhedge's set", _card_value(premium[POLYHEDGE]), "; ".join(more))
        )
    return [Cards(cards)] if cards else []


def _card_value(figure: TableRow) -> str:
    error = f" ± {10 * figure.se:.2f}" if np.isfinite(figure.se) else ""
    return f"{10 * figure.here:.2f}{error}"


def _rival(rival: TableRow, own: TableRow) -> str:
    share = share_below(own.here, rival.here)
    return f"{share} the best other method with a guarantee ({rival.name}, {10 * rival.here:.2f})"


def times_table(times: Sequence[TimeRow]) -> Table:
    """Seconds for learning, calibration and selection, here and in the paper."""
    tasks = [task for task in TASKS if any(row.task == task for row in times)]
    of = {(row.task, row.method): row for row in times}
    columns = [Column("method"), *(Column(head, task) for task in tasks for head in ("paper", "here"))]
    rows = [
        [Cell(METHODS[key].name), *(cell for task in tasks for cell in _times(of.get((task, key))))]
        for key in METHODS
        if any((task, key) in of for task in tasks)
    ]
    note = "Seconds for learning, calibration and selection, mean ± standard deviation over the seeds."
    return Table("Times", columns, rows, note)


def _times(row: TimeRow | None) -> list[Cell]:
    if row is None:
        return [Cell("", np.nan), Cell("", np.nan)]
    paper = "" if np.isnan(row.paper) else f"{'<' if row.paper_at_most else ''}{row.paper:g}"
    spread = f"± {row.sd:.2g}" if np.isfinite(row.sd) else ""
    return [Cell(paper, row.paper), Cell(f"{row.seconds:.2g}", row.seconds, detail=spread)]
