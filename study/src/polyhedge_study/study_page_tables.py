"""The study's figures as tables that can be sorted, and as cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyhedge.report import Card, Cards, Cell, Column, Table
from polyhedge_study.methods import DEFAULT, METHODS
from polyhedge_study.study_tables import TITLES, by_method, tasks_of
from polyhedge_study.summary import TableRow, TimeRow
from polyhedge_study.tasks import TASKS

__all__ = ["cost_cards", "task_table", "times_table"]

_HEADS = {
    "worst_case_cost": "worst-case cost (x10)",
    "premium": "premium (x10)",
    "coverage": "coverage",
    "regret": "regret (x10)",
    "volume": "volume",
}
_SIMPLE = "one-sided-box"
_SIGNIFICANT = 0.05


def task_table(figures: Sequence[TableRow], task: str) -> Table:
    """All methods on one task: paper | ours | difference, and the paired test against the default."""
    methods = by_method(figures, task)
    columns = [Column("method")]
    for metric, head in _HEADS.items():
        parts = ("ours",) if metric == "premium" else ("paper", "ours", "difference")
        columns += [Column(part, head) for part in parts]
    columns += [Column(head, "cost less the default's") for head in ("mean", "p")]
    columns.append(Column("runs"))
    note = (
        "Mean ± standard deviation over the seeds (standard error in brackets). Bold: lowest among the methods with a "
        "guarantee. Cost less the default's: mean of the paired differences ± standard error; p from a paired t-test, "
        "Holm-corrected, * below 0.05. The printed Ours stands beside the rotated-box grid, which it agrees with, and "
        "beside our default."
    )
    return Table(TITLES[task], columns, [_row(own) for own in methods.values()], note)


def _row(own: Mapping[str, TableRow]) -> list[Cell]:
    first = own["coverage"]
    # References have no set, so a guarantee is not missing.
    kind = first.group + (", no guarantee" if first.guarantee == "none" and first.group != "reference" else "")
    cells = [Cell(first.name, detail=kind)]
    for metric in _HEADS:
        figure = own[metric]
        ours = _mean(figure) if figure.n_done else Cell("failed", np.nan)
        cells += [ours] if metric == "premium" else [_printed(figure), ours, _difference(figure)]
    cost = own["worst_case_cost"]
    runs = f"{cost.n_done}" + (f" of {cost.n_done + cost.n_failed}" if cost.n_failed else "")
    return [*cells, *_paired(cost), Cell(runs, float(cost.n_done))]


def _scale(metric: str) -> int:
    return 10 if metric in ("worst_case_cost", "premium", "regret") else 1


def _mean(figure: TableRow) -> Cell:
    scale = _scale(figure.metric)
    if np.isnan(figure.ours):
        return Cell("", np.nan)
    error = f" ({scale * figure.se:.2g})" if np.isfinite(figure.se) else ""
    spread = f"± {_number(scale * figure.sd)}{error}" if np.isfinite(figure.sd) else ""
    return Cell(_number(scale * figure.ours, figure.metric), scale * figure.ours, figure.best, spread)


def _printed(figure: TableRow) -> Cell:
    scale = _scale(figure.metric)
    if np.isnan(figure.paper):
        return Cell("", np.nan)
    spread = f"± {_number(scale * figure.paper_sd)}" if np.isfinite(figure.paper_sd) else ""
    return Cell(_number(scale * figure.paper, figure.metric), scale * figure.paper, detail=spread)


def _difference(figure: TableRow) -> Cell:
    value = _scale(figure.metric) * figure.difference
    return Cell("", np.nan) if np.isnan(value) else Cell(_signed(value, figure.metric), value)


def _paired(cost: TableRow) -> list[Cell]:
    if cost.method == DEFAULT or np.isnan(cost.versus_default):
        return [Cell("", np.nan), Cell("", np.nan)]
    error = f"± {10 * cost.versus_default_se:.2g}" if np.isfinite(cost.versus_default_se) else ""
    star = "*" if cost.p_value < _SIGNIFICANT else ""
    p_value = f"{cost.p_value:.3f}{star}" if np.isfinite(cost.p_value) else ""
    value = 10 * cost.versus_default
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
    """The default's premium on each task, beside the best of the paper's methods and the one-sided box."""
    cards = []
    for task in tasks_of(figures):
        methods = by_method(figures, task)
        premium = {key: own["premium"] for key, own in methods.items() if np.isfinite(own["premium"].ours)}
        if DEFAULT not in premium:
            continue
        rivals = [f for f in premium.values() if f.group in ("baseline", "ablation") and f.guarantee != "none"]
        # The grid is what the paper prints as its own method.
        rivals += [premium[key] for key in ("grid",) if key in premium and premium[key] not in rivals]
        more = [_rival(min(rivals, key=lambda figure: figure.ours), premium[DEFAULT])] if rivals else []
        if _SIMPLE in premium:
            more.append(f"one-sided box: {10 * premium[_SIMPLE].ours:.2f}")
        cards.append(
            Card(f"{task.capitalize()}: premium of the default", _card_value(premium[DEFAULT]), "; ".join(more))
        )
    return [Cards(cards)] if cards else []


def _card_value(figure: TableRow) -> str:
    error = f" ± {10 * figure.se:.2f}" if np.isfinite(figure.se) else ""
    return f"{10 * figure.ours:.2f}{error}"


def _rival(rival: TableRow, default: TableRow) -> str:
    share = 1 - default.ours / rival.ours
    side = "below" if share >= 0 else "above"
    return f"{100 * abs(share):.0f} % {side} the best of the paper's methods ({rival.name}, {10 * rival.ours:.2f})"


def times_table(times: Sequence[TimeRow]) -> Table:
    """Seconds for learning, calibration and selection, ours beside the paper's."""
    tasks = [task for task in TASKS if any(row.task == task for row in times)]
    of = {(row.task, row.method): row for row in times}
    columns = [Column("method"), *(Column(head, task) for task in tasks for head in ("paper", "ours"))]
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
